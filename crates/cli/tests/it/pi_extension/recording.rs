//! Entries come into the graph as they are made.

use std::time::Instant;

use quipu_testkit::{Answer, Gate, Reply};
use serde_json::json;

use super::pi::*;
use crate::archive::peer;
use crate::support::*;

#[test]
fn entries_of_pi_are_nodes_before_the_answer_is_there() {
    let Some(peer) = peer() else { return };
    let gate = Gate::new();
    let world = World::new([
        bash("c1", "echo from-the-tool"),
        Answer::new().text("It said so.").reply().then_gate(&gate),
        Answer::new().text("Again.").reply(),
    ]);
    install_helper(&world);
    let mut pi = Pi::start(&peer, &world, &[]);
    pi.send(&json!({ "type": "prompt", "message": "Run it." }));
    reached(&gate);
    let session = pi.session();
    // While the model is asked again, the tool's result is a node.
    let is_there = |nodes: &[serde_json::Value]| nodes.iter().any(|node| node["role"] == "toolResult");
    wait_for_nodes(&world, &session, is_there);
    gate.open();
    pi.until("agent_settled");
    pi.prompt("Once more.");
    let file = pi.file();
    pi.close();
    agrees_with_import(&world, &session, &file);
    let shown = nodes(&world, &session, &[]);
    let roles: Vec<&str> = shown.iter().filter_map(|node| node["role"].as_str()).collect();
    let messages: Vec<&str> =
        roles.into_iter().filter(|role| ["user", "assistant", "toolResult"].contains(role)).collect();
    assert_eq!(messages, ["user", "assistant", "toolResult", "assistant", "user", "assistant"]);
    // The head of that program stands at the last entry.
    let head = world.run(&["show", "PI_HEAD", "--json"]).ok().json();
    assert_eq!(head["id"], shown.last().unwrap()["id"]);
}

#[test]
fn pi_without_its_helper_works_and_says_so_once() {
    let Some(peer) = peer() else { return };
    let world = World::new([
        bash("c1", "echo one"),
        Answer::new().text("Done.").reply(),
        Answer::new().text("And on.").reply(),
    ]);
    install(&world, &["/nowhere/quipu", "pi-helper"]);
    let ran = print(&peer, &world, &["Run it."]).ok();
    assert_eq!(ran.text(), "Done.\n");
    assert_eq!(ran.err.matches("/nowhere/quipu was not found").count(), 1, "{}", ran.err);
    let ran = print(&peer, &world, &["--continue", "On."]).ok();
    assert_eq!(ran.text(), "And on.\n");
    assert!(!world.store().exists());
}

#[test]
fn entries_missed_without_the_helper_are_caught_up() {
    let Some(peer) = peer() else { return };
    let world = World::new(["One.", "Two.", "Three."].map(|text| Answer::new().text(text).reply()));
    install(&world, &["/nowhere/quipu", "pi-helper"]);
    print(&peer, &world, &["First."]).ok();
    install_helper(&world);
    print(&peer, &world, &["--continue", "Second."]).ok();
    let sessions = world.sessions();
    assert_eq!(sessions.len(), 1, "{sessions:?}");
    let mut pi = Pi::start(&peer, &world, &["--continue"]);
    pi.prompt("Third.");
    let (session, file) = (pi.session(), pi.file());
    assert_eq!(pi.told, [""; 0]);
    pi.close();
    agrees_with_import(&world, &session, &file);
    let shown = nodes(&world, &session, &[]);
    assert_eq!(shown.iter().filter(|node| node["role"] == "user").count(), 3);
    let trace = world.run(&["trace", &session]).ok().text();
    assert!(trace.contains("BOOT"), "{trace}");
}

#[test]
fn entries_of_two_programs_on_one_file_agree_with_it() {
    let Some(peer) = peer() else { return };
    let world = World::new(["One.", "Two.", "Three.", "Four."].map(|text| Answer::new().text(text).reply()));
    install_helper(&world);
    let mut pi = Pi::start(&peer, &world, &[]);
    pi.prompt("First.");
    let (session, file) = (pi.session(), pi.file());
    let mut other = Pi::start(&peer, &world, &["--session", file.to_str().unwrap()]);
    other.prompt("From the other.");
    pi.prompt("From this.");
    other.prompt("From the other again.");
    let back = json!({ "target_node_hash": "HEAD", "carryover_message": "Back." });
    world.server.push(call("c1", "tobe", &back));
    world.server.push(Answer::new().text("I stay.").reply());
    pi.prompt("Go back.");
    assert!(pi.result("c1").contains("Another program writes"), "{}", pi.result("c1"));
    pi.close();
    other.close();
    agrees_with_import(&world, &session, &file);
}

#[test]
fn entries_of_a_program_without_a_helper_are_seen_at_once() {
    let Some(peer) = peer() else { return };
    let world = World::new(["One.", "Two.", "Three."].map(|text| Answer::new().text(text).reply()));
    install_helper(&world);
    let mut pi = Pi::start(&peer, &world, &[]);
    pi.prompt("First.");
    let (session, file) = (pi.session(), pi.file());
    wait_for_nodes(&world, &session, |nodes| nodes.iter().any(|node| node.to_string().contains("One.")));
    // This one records nothing, and the first one does nothing meanwhile.
    install(&world, &["/nowhere/quipu", "pi-helper"]);
    print(&peer, &world, &["--session", file.to_str().unwrap(), "From the other."]).ok();
    wait_for_nodes(&world, &session, |nodes| nodes.iter().any(|node| node.to_string().contains("Two.")));
    pi.tells("another program writes");
    pi.prompt("From this.");
    pi.close();
    agrees_with_import(&world, &session, &file);
}

#[test]
fn session_that_is_not_kept_is_not_kept_here() {
    let Some(peer) = peer() else { return };
    let world = World::says("Hi.");
    install_helper(&world);
    print(&peer, &world, &["--no-session", "Hello."]).ok();
    assert!(!world.store().exists());
}

#[test]
fn identity_text_stays_with_its_session() {
    let Some(peer) = peer() else { return };
    let world = World::new(["One.", "Two.", "Three."].map(|text| Answer::new().text(text).reply()));
    install_helper(&world);
    std::fs::write(world.path("home/.quipu/me.md"), "You are Filo.\n").unwrap();
    std::fs::write(world.path("home/.quipu/settings.json"), r#"{"identity":{"file":"me.md"}}"#).unwrap();
    print(&peer, &world, &["First."]).ok();
    // Another text is not taken without a person.
    std::fs::write(world.path("home/.quipu/me.md"), "You are Mirin.\n").unwrap();
    print(&peer, &world, &["--continue", "Second."]).ok();
    let mut pi = Pi::start(&peer, &world, &["--continue"]);
    pi.prompt("Third.");
    assert_eq!(pi.asked.len(), 1);
    pi.close();
    let systems: Vec<String> =
        world.requests().iter().map(|request| request.json()["system"].to_string()).collect();
    for (system, name) in systems.iter().zip(["Filo", "Filo", "Mirin"]) {
        assert!(system.contains(&format!("You are {name}.\\n\\n")), "{name}: {system}");
    }
    assert_eq!(systems.len(), 3);
}

#[test]
fn sessions_of_both_programs_stay_apart_in_one_store() {
    let Some(peer) = peer() else { return };
    // Each prompt is four nodes: the prompt, a call, its result, the answer. Ours run beside those of Pi, several calls in a row.
    // Nobody makes room in a context, so each request holds a whole session: of ten thousand steps they would be most of the work.
    let is_full = std::env::var_os("QUIPU_FULL").is_some();
    let (sessions, rounds, together) = if is_full { (10, 25, 10) } else { (1, 2, 3) };
    let world = World::new([]);
    install_helper(&world);
    let models = world.path("home/.quipu/models.json");
    let text = std::fs::read_to_string(&models).unwrap();
    std::fs::write(&models, text.replace(":200000,", ":1000000000,")).unwrap();
    let mut kept: Vec<(String, &str, &str, usize)> = Vec::new();
    let mut files = Vec::new();
    for number in 0..sessions {
        let mut pi = Pi::start(&peer, &world, &[]);
        let mut own: Option<String> = None;
        for round in 0..rounds {
            let began = Instant::now();
            let ours = |reply: Reply| world.server.push(reply.only_for("To Quipu, "));
            (1..2 * together).for_each(|at| ours(bash(&format!("c{at}"), &format!("true {at}"))));
            ours(Answer::new().text(&format!("Quipu {number}.{round}.")).reply());
            let said = format!("To Quipu, {number}.{round}.");
            let running = RunningCommand::start(match &own {
                None => world.quipu(&["-p", &said]),
                Some(id) => world.quipu(&["-p", "--session", id, &said]),
            });
            for at in 0..together {
                let theirs = |reply: Reply| world.server.push(reply.only_for("To Pi, "));
                theirs(bash("c1", "true"));
                theirs(Answer::new().text(&format!("Pi {number}.{round}.{at}.")).reply());
                pi.prompt(&format!("To Pi, {number}.{round}.{at}."));
            }
            running.wait().ok();
            // Each holds the whole session.
            world.server.forget_requests();
            if own.is_none() {
                let rows = world.sessions();
                let is_new = |id: &str| kept.iter().all(|(known, ..)| known != id);
                let mut ids =
                    rows.iter().filter(|row| row["agent"] == "quipu").filter_map(|row| row["id"].as_str());
                own = ids.find(|id| is_new(id)).map(str::to_owned);
            }
            if is_full {
                println!("session {number}, round {round}: {:?}", began.elapsed());
            }
        }
        let (session, file) = (pi.session(), pi.file());
        pi.close();
        kept.push((session.clone(), "Pi", "Quipu", rounds * together));
        kept.push((own.unwrap(), "Quipu", "Pi", rounds));
        files.push((session, file));
    }
    for (id, this, other, prompts) in &kept {
        // `show` gives 5,000 nodes at most.
        let whole = world.run(&["export", "--format", "json", id]).ok().json();
        let shown = whole["nodes"].as_array().unwrap();
        let texts: Vec<String> = shown.iter().map(ToString::to_string).collect();
        assert!(!texts.iter().any(|text| text.contains(&format!("To {other},"))), "{texts:?}");
        let of_user = texts.iter().filter(|text| text.contains(&format!("To {this},"))).count();
        assert_eq!(of_user, *prompts, "{id}");
        let messages = ["user", "assistant", "toolResult"];
        let steps = shown.iter().filter(|node| messages.contains(&node["role"].as_str().unwrap_or_default()));
        assert_eq!(steps.count(), 4 * rounds * together, "{id}");
    }
    for (session, file) in &files {
        agrees_with_import(&world, session, file);
    }
    world.run(&["doctor"]).ok();
}
