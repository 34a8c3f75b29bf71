//! The four tools, and going back with them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use quipu_testkit::{Answer, Gate, Reply};
use serde_json::{Value, json};

use super::pi::*;
use crate::archive::peer;
use crate::support::*;

/// The text of each message of the request with this number.
fn asked(world: &World, number: usize) -> Vec<String> {
    messages(&world.requests()[number]).iter().map(wire_text).collect()
}

/// Entries of a session file.
fn entries(file: &Path) -> Vec<Value> {
    std::fs::read_to_string(file).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn id_of(file: &Path, said: &str) -> String {
    let all = entries(file);
    let found = all.iter().find(|entry| entry["message"]["content"].to_string().contains(said));
    found.unwrap_or_else(|| panic!("nobody said {said:?}"))["id"].as_str().unwrap().to_owned()
}

/// The names of all files below a directory; those beside a store come and go with its connections.
fn files_below(directory: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            // Node keeps there what it compiled, when it ends.
            if name != "node-compile-cache" {
                found.extend(files_below(&path));
            }
        } else if !["-wal", "-shm"].iter().any(|end| name.ends_with(end)) {
            found.insert(path);
        }
    }
    found
}

fn tobe(id: &str, target: &str, message: &str) -> Reply {
    call(id, "tobe", &json!({ "target_node_hash": target, "carryover_message": message }))
}

fn says(text: &str) -> Reply {
    Answer::new().text(text).reply()
}

#[test]
fn tools_of_pi_show_the_graph() {
    let Some(peer) = peer() else { return };
    let world = World::new([says("Hi there.")]);
    install_helper(&world);
    let mut pi = Pi::start(&peer, &world, &[]);
    pi.prompt("Hello.");
    let first = id_of(&pi.file(), "Hello.");
    for reply in [
        call("c1", "life", &json!({ "ancestors": 5 })),
        call("c2", "recall", &json!({ "hash": format!("pi:{first}") })),
        call("c3", "trace", &json!({ "filter_mode": "all" })),
        call("c4", "recall", &json!({ "hash": "beef" })),
        says("Seen."),
    ] {
        world.server.push(reply);
    }
    pi.prompt("Look.");
    let life = pi.result("c1");
    assert!(life.contains(&format!("[pi:{first}]")) && life.contains("user: \"Hello.\""), "{life}");
    assert!(life.contains("<-- FOCUS, HEAD") && life.ends_with("--- end of archive ---"), "{life}");
    let recall = pi.result("c2");
    assert!(recall.contains("text: \"Hello.\"") && recall.contains("<-- TARGET NODE"), "{recall}");
    let trace = pi.result("c3");
    assert!(trace.starts_with("--- archived action log ---"), "{trace}");
    assert_eq!(pi.results["c4"]["isError"], true, "{}", pi.results["c4"]);
    pi.close();
}

#[test]
fn tobe_goes_back_and_the_next_request_shows_it() {
    let Some(peer) = peer() else { return };
    goes_back(&peer);
}

#[test]
fn tobe_goes_back_in_the_newest_pi() {
    let Some(peer) = newest() else { return };
    goes_back(&peer);
}

fn goes_back(peer: &[PathBuf; 2]) {
    let world = World::new([says("Two ways lead on."), says("The left way is closed.")]);
    install_helper(&world);
    let reload = "export default (pi) => pi.registerCommand('again', { description: 'x', handler: async (_, ctx) => ctx.reload() });";
    std::fs::write(world.path("home/.pi/agent/extensions/again.ts"), reload).unwrap();
    let mut pi = Pi::start(peer, &world, &[]);
    pi.prompt("Which ways are there?");
    pi.prompt("Take the left one.");
    let (session, file) = (pi.session(), pi.file());
    let target = id_of(&file, "Two ways lead on.");
    let before = files_below(&world.path("."));
    world.server.push(tobe("c1", &format!("pi:{target}"), "Left is closed. Take the right one."));
    world.server.push(says("I take the right one."));
    pi.prompt("And now?");
    assert_eq!(pi.asked.len(), 1);
    let question = pi.asked[0]["message"].as_str().unwrap();
    assert!(question.contains("Two ways lead on.") && question.contains("Left is closed."), "{question}");
    assert!(pi.result("c1").starts_with("Incarnation initiated → "), "{}", pi.result("c1"));

    // What the model is shown: what led to the target, and the message to itself.
    let shown = asked(&world, 3);
    assert_eq!(shown.len(), 3, "{shown:?}");
    assert_eq!(&shown[..2], ["Which ways are there?", "Two ways lead on."]);
    assert!(
        shown[2].starts_with(
            "[SYSTEM / INCARNATION NOTE]: Left is closed. Take the right one.\n[SYSTEM WARNING]: "
        )
    );
    // And so on with the next prompt, where extensions are loaded again before.
    pi.run("/again");
    world.server.push(says("Further right."));
    pi.prompt("Go on.");
    let shown = asked(&world, 4);
    assert_eq!(
        (shown.len(), &shown[3][..], &shown[4][..]),
        (5, "I take the right one.", "Go on."),
        "{shown:?}"
    );

    pi.close();
    // It leaves no file behind, and puts none back.
    assert_eq!(files_below(&world.path(".")), before);
    // The turn that was left is whole: its call has its result.
    let all = entries(&file);
    let result = all.iter().find(|entry| entry["message"]["toolCallId"] == "c1").unwrap();
    let aside = all.iter().find(|entry| entry["id"] == result["parentId"]).unwrap();
    assert_eq!(aside["customType"], "quipu.leaving");
    let call = all.iter().find(|entry| entry["id"] == aside["parentId"]).unwrap();
    assert_eq!(call["message"]["role"], "assistant");
    let note = all.iter().find(|entry| entry.to_string().contains("INCARNATION NOTE")).unwrap();
    assert_eq!(note["parentId"], target.as_str());
    agrees_with_import(&world, &session, &file);
    let trace = world.run(&["trace", &session]).ok().text();
    assert!(trace.contains("INCARNATE: ") && trace.contains("> Left is closed."), "{trace}");

    // Pi alone finds its way from the file.
    world.server.push(says("Without."));
    print(peer, &world, &["--no-extensions", "--continue", "And without it?"]).ok();
    let shown = asked(&world, 5);
    assert_eq!((shown.len(), &shown[4][..]), (7, "Go on."), "{shown:?}");
}

#[test]
fn tobe_without_consent_changes_nothing() {
    let Some(peer) = peer() else { return };
    let world = World::new([says("One.")]);
    install_helper(&world);
    print(&peer, &world, &["First."]).ok();
    let mut pi = Pi::start(&peer, &world, &["--continue"]);
    let (session, file) = (pi.session(), pi.file());
    let target = id_of(&file, "One.");
    world.server.push(tobe("c1", &target, "Back."));
    world.server.push(says("I stay."));
    pi.consents = false;
    pi.prompt("Try.");
    assert_eq!(pi.results["c1"]["isError"], true);
    assert!(pi.result("c1").contains("refused"), "{}", pi.result("c1"));
    assert_eq!(asked(&world, 2).len(), 5);
    // Nor where nobody can be asked, nor into a turn that is not whole, nor with an empty message.
    pi.close();
    for (number, (to, message, why)) in
        [(&target[..], "Back.", "consent"), ("HEAD", "Back.", "no result"), (&target, " ", "empty")]
            .into_iter()
            .enumerate()
    {
        world.server.push(tobe("c2", to, message));
        world.server.push(says("I stay."));
        print(&peer, &world, &["--continue", "Try again."]).ok();
        let shown = asked(&world, 4 + 2 * number);
        assert!(shown.last().unwrap().contains(why), "{why}: {shown:?}");
    }
    agrees_with_import(&world, &session, &file);
    assert!(!world.run(&["trace", &session, "--filter", "all"]).text().contains("INCARNATE"));
}

#[test]
fn branch_of_another_agent_is_seen_and_entered() {
    let Some(peer) = peer() else { return };
    let world = World::new([bash("q1", "echo blue"), says("The paint is blue."), says("Hi.")]);
    world.run(&["-p", "Which paint?"]).ok();
    let own = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    let shown = world.nodes_of(&[&own]);
    let head = shown.last().unwrap()["id"].as_str().unwrap().to_owned();
    install_helper(&world);
    let mut pi = Pi::start(&peer, &world, &[]);
    pi.prompt("Hello.");
    world.server.push(call("c1", "life", &json!({ "focus_hash": &head[..16] })));
    world.server.push(tobe("c2", &head[..16], "Go on with the paint."));
    world.server.push(says("Blue it is."));
    pi.prompt("What did the other one do?");
    assert!(pi.result("c1").contains("The paint is blue."), "{}", pi.result("c1"));
    assert!(pi.asked[0]["message"].as_str().unwrap().contains("another session"));
    let requests = world.requests();
    let shown: Vec<String> = messages(requests.last().unwrap()).iter().map(wire_text).collect();
    assert_eq!(shown.len(), 5, "{shown:?}");
    assert_eq!((&shown[0][..], &shown[3][..]), ("Which paint?", "The paint is blue."));
    assert!(shown[2].contains("blue") && shown[4].contains("Go on with the paint."), "{shown:?}");
    let (session, file) = (pi.session(), pi.file());
    pi.close();
    agrees_with_import(&world, &session, &file);
    // The other session is as it was.
    assert_eq!(ids(&world.nodes_of(&[&own])), ids(&nodes(&world, &own, &[])));
}

#[test]
fn jump_that_pi_did_not_survive_goes_on() {
    let Some(peer) = peer() else { return };
    let gate = Gate::new();
    let world = World::new([says("Two ways."), says("Closed.")]);
    install_helper(&world);
    let mut pi = Pi::start(&peer, &world, &[]);
    pi.prompt("Which?");
    pi.prompt("Left.");
    let (session, file) = (pi.session(), pi.file());
    world.server.push(tobe("c1", &id_of(&file, "Two ways."), "Take the right one."));
    world.server.push(says("Never heard.").then_gate(&gate));
    pi.send(&json!({ "type": "prompt", "message": "And now?" }));
    // The message to itself is asked about: now Pi dies.
    pi.until("tool_execution_end");
    reached(&gate);
    pi.kill();
    gate.open();
    // Opened from another session, which begins it twice here.
    world.server.push(says("Elsewhere."));
    let mut pi = Pi::start(&peer, &world, &[]);
    pi.prompt("Something else.");
    pi.send(&json!({ "type": "switch_session", "sessionPath": file }));
    assert_eq!(pi.until("response")["success"], true);
    assert_eq!(pi.session(), session);
    world.server.push(says("Right it is."));
    pi.prompt("Go on.");
    assert!(pi.tells("went to another point").contains("continues there"));
    let requests = world.requests();
    let shown: Vec<String> = messages(requests.last().unwrap()).iter().map(wire_text).collect();
    let text = shown.join("\n");
    assert!(text.contains("Take the right one.") && text.contains("Go on."), "{shown:?}");
    assert!(!text.contains("Closed."), "{shown:?}");
    pi.close();
    agrees_with_import(&world, &session, &file);
}

#[test]
fn jump_is_over_once_the_session_goes_on_elsewhere() {
    let Some(peer) = peer() else { return };
    let gate = Gate::new();
    let world = World::new([says("Two ways."), says("Closed.")]);
    install_helper(&world);
    let mut pi = Pi::start(&peer, &world, &[]);
    pi.prompt("Which?");
    pi.prompt("Left.");
    let (session, file) = (pi.session(), pi.file());
    world.server.push(tobe("c1", &id_of(&file, "Two ways."), "Take the right one."));
    world.server.push(says("Never heard.").then_gate(&gate));
    pi.send(&json!({ "type": "prompt", "message": "And now?" }));
    pi.until("tool_execution_end");
    reached(&gate);
    pi.kill();
    gate.open();
    // Without the extension it goes on where its file ends; what comes last there is no message.
    world.server.push(says("I stay left."));
    print(&peer, &world, &["--no-extensions", "--continue", "Stay."]).ok();
    let last = entries(&file).pop().unwrap();
    let name = json!({ "type": "session_info", "id": "0a0b0c0d", "parentId": last["id"], "timestamp": last["timestamp"], "name": "n" });
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{text}{name}\n")).unwrap();
    let mut pi = Pi::start(&peer, &world, &["--continue"]);
    world.server.push(says("Left it is."));
    pi.prompt("Go on.");
    let shown: Vec<String> = messages(world.requests().last().unwrap()).iter().map(wire_text).collect();
    assert!(shown.contains(&"I stay left.".to_owned()), "{shown:?}");
    assert_eq!(pi.told, [""; 0]);
    pi.close();
    agrees_with_import(&world, &session, &file);
}

#[test]
fn jump_that_was_not_kept_is_none_after_a_crash() {
    let Some(peer) = peer() else { return };
    let gate = Gate::new();
    let world = World::new([says("Two ways."), says("Closed.")]);
    install_helper(&world);
    let mut pi = Pi::start(&peer, &world, &[]);
    pi.prompt("Which?");
    pi.prompt("Left.");
    let (session, file) = (pi.session(), pi.file());
    let helper = pi.helper();
    pi.when_asked = Some(Box::new(move || {
        kill(Pid::from_raw(helper), Signal::SIGKILL).unwrap();
        gone(helper);
    }));
    world.server.push(tobe("c1", &id_of(&file, "Two ways."), "Take the right one."));
    world.server.push(says("Never heard.").then_gate(&gate));
    pi.send(&json!({ "type": "prompt", "message": "And now?" }));
    pi.until("tool_execution_end");
    let why = pi.result("c1");
    assert!(why.starts_with("You stay where you are: "), "{why}");
    reached(&gate);
    pi.kill();
    gate.open();
    let mut pi = Pi::start(&peer, &world, &["--continue"]);
    world.server.push(says("Left it is."));
    pi.prompt("Go on.");
    let shown: Vec<String> = messages(world.requests().last().unwrap()).iter().map(wire_text).collect();
    assert!(shown.contains(&"Closed.".to_owned()), "{shown:?}");
    // A store that is locked is said with the tool.
    let lock = lock_writes(&world);
    world.server.push(call("c2", "life", &json!({})));
    world.server.push(says("Locked."));
    pi.prompt("Look.");
    assert!(pi.result("c2").contains("locked by another program for 2 s"), "{}", pi.result("c2"));
    drop(lock);
    pi.close();
    agrees_with_import(&world, &session, &file);
    assert!(!world.run(&["trace", &session, "--filter", "all"]).text().contains("INCARNATE"));
}
