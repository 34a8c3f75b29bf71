//! `kill -9` of Pi, of its helper, and of both; files that are torn or gone.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use quipu_testkit::{Answer, Gate, Reply};
use serde_json::{Value, json};

use super::pi::*;
use crate::archive::{as_script, peer};
use crate::support::*;

fn says(text: &str) -> Reply {
    Answer::new().text(text).reply()
}

fn has_role(role: &'static str, count: usize) -> impl Fn(&[Value]) -> bool {
    move |nodes| nodes.iter().filter(|node| node["role"] == role).count() >= count
}

#[test]
fn prompt_survives_pi_that_is_killed_before_its_file_is_there() {
    let Some(peer) = peer() else { return };
    let gate = Gate::new();
    let world = World::new([says("Never.").then_gate(&gate)]);
    install_helper(&world);
    let mut pi = Pi::start(&peer, &world, &[]);
    let (session, file) = (pi.session(), pi.file());
    pi.send(&json!({ "type": "prompt", "message": "Remember this." }));
    reached(&gate);
    wait_for_nodes(&world, &session, has_role("user", 1));
    let helper = pi.helper();
    pi.kill();
    gate.open();
    // It ends with Pi.
    gone(helper);
    assert!(!file.exists(), "this version writes its file with the first answer");
    let shown = nodes(&world, &session, &[]);
    assert!(shown.iter().any(|node| node.to_string().contains("Remember this.")), "{shown:?}");
    world.run(&["doctor"]).ok();

    // The file is written from the graph.
    world.server.push(says("I do."));
    let mut pi = Pi::start(&peer, &world, &[]);
    pi.run(&format!("/quipu restore {session}"));
    pi.tells("entries now");
    assert_eq!(pi.session(), session);
    pi.prompt("Do you?");
    let texts: Vec<String> = messages(world.requests().last().unwrap()).iter().map(wire_text).collect();
    assert_eq!(texts, ["Remember this.", "Do you?"]);
    let file = pi.file();
    pi.close();
    agrees_with_import(&world, &session, &file);
}

#[test]
fn helper_that_dies_is_started_again_and_catches_up() {
    let Some(peer) = peer() else { return };
    let gates = [Gate::new(), Gate::new(), Gate::new()];
    let mut script = Vec::new();
    for (at, gate) in gates.iter().enumerate() {
        script.push(bash(&format!("c{at}"), "true"));
        script.push(says(&format!("Answer {at}.")).then_gate(gate));
    }
    let world = World::new(script);
    install_helper(&world);
    let mut pi = Pi::start(&peer, &world, &[]);
    let session = pi.session();
    for (at, gate) in gates.iter().enumerate() {
        let helper = pi.helper();
        pi.send(&json!({ "type": "prompt", "message": format!("Prompt {at}.") }));
        match at {
            // At once, and while the model is asked.
            0 => {}
            _ => reached(gate),
        }
        kill(Pid::from_raw(helper), Signal::SIGKILL).unwrap();
        gone(helper);
        gate.open();
        pi.until("agent_settled");
        wait_for_nodes(&world, &session, has_role("assistant", 2 * at + 2));
    }
    let file = pi.file();
    assert_eq!(pi.told, [""; 0]);
    pi.close();
    agrees_with_import(&world, &session, &file);
}

#[test]
fn helper_that_dies_again_and_again_is_left_alone() {
    let Some(peer) = peer() else { return };
    let world = World::new([says("One."), says("Two.")]);
    let script = world.file("dies.sh", "#!/bin/sh\necho started >> runs\necho it broke >&2\nexit 3\n");
    set_mode(&script, 0o755);
    install(&world, &[script.to_str().unwrap()]);
    let mut pi = Pi::start(&peer, &world, &[]);
    pi.prompt("First.");
    let why = pi.tells("ended 6 times");
    assert!(why.contains("it broke") && why.contains("Pi works as without it"), "{why}");
    pi.prompt("Second.");
    assert_eq!(pi.told.len(), 1, "{:?}", pi.told);
    pi.close();
    let runs = std::fs::read_to_string(world.path("work/runs")).unwrap();
    assert_eq!(runs.lines().count(), 6);
}

#[test]
fn both_are_killed_at_any_step_and_nothing_is_lost() {
    let Some(peer) = peer() else { return };
    let rounds = if std::env::var_os("QUIPU_FULL").is_some() { 40 } else { 4 };
    let mut world = World::new([]);
    let mut session = String::new();
    let mut file = std::path::PathBuf::new();
    for round in 0..rounds {
        let gate = Gate::new();
        // What the one before had left, nobody asks for any more.
        world.another_server([]);
        install_helper(&world);
        world.server.push(bash("c1", "true"));
        world.server.push(says(&format!("Answer {round}.")).then_gate(&gate));
        let args: &[&str] = if round == 0 { &[] } else { &["--continue"] };
        let mut pi = Pi::start(&peer, &world, args);
        (session, file) = (pi.session(), pi.file());
        let helper = pi.helper();
        pi.send(&json!({ "type": "prompt", "message": format!("Prompt {round}.") }));
        match round % 4 {
            0 => drop(pi.until("turn_end")),
            1 => drop(pi.until("message_start")),
            2 => reached(&gate),
            _ => drop(pi.until("tool_execution_start")),
        }
        if round % 2 == 0 {
            kill(Pid::from_raw(helper), Signal::SIGKILL).unwrap();
            pi.kill();
        } else {
            pi.kill();
            gone(helper);
        }
        gate.open();
        let nodes = nodes(&world, &session, &[]);
        println!("{round}: {} nodes", nodes.len());
    }
    world.another_server([says("At last.")]);
    install_helper(&world);
    let mut pi = Pi::start(&peer, &world, &["--continue"]);
    assert_eq!(pi.session(), session);
    pi.prompt("Still there?");
    pi.close();
    // What the file holds is in the graph, as an import has it.
    let text = std::fs::read_to_string(&file).unwrap();
    let said: Vec<String> = nodes(&world, &session, &[]).iter().map(Value::to_string).collect();
    for line in text.lines().skip(1) {
        let entry: Value = serde_json::from_str(line).unwrap();
        if entry["message"]["role"] == "user" {
            let words = entry["message"]["content"][0]["text"].as_str().unwrap();
            assert!(said.iter().any(|node| node.contains(words)), "{words}");
        }
    }
    world.run(&["doctor"]).ok();
}

#[test]
fn torn_file_is_restored_from_the_graph() {
    let Some(peer) = peer() else { return };
    let world = World::new([says("One."), says("Two."), says("Three.")]);
    install_helper(&world);
    print(&peer, &world, &["First."]).ok();
    print(&peer, &world, &["--continue", "Second."]).ok();
    let report = world.run(&["import", "pi", "--json"]).ok().json_lines().remove(0);
    let file = std::path::PathBuf::from(report["path"].as_str().unwrap());
    let whole = std::fs::read_to_string(&file).unwrap();
    // Its last line is torn, and one before it is gone.
    let mut lines: Vec<&str> = whole.lines().collect();
    let last = lines.pop().unwrap();
    lines.remove(3);
    std::fs::write(&file, format!("{}\n{}", lines.join("\n"), &last[..last.len() / 2])).unwrap();
    let mut pi = Pi::start(&peer, &world, &["--session", file.to_str().unwrap()]);
    pi.tells("2 entries of this session are in the graph and not in its file");
    pi.run("/quipu restore");
    let told = pi.tells("entries now");
    assert!(told.contains("torn-1"), "{told}");
    pi.prompt("Third.");
    let texts: Vec<String> = messages(world.requests().last().unwrap()).iter().map(wire_text).collect();
    assert_eq!(texts, ["First.", "One.", "Second.", "Two.", "Third."]);
    pi.close();
    // What was there before is there as it was.
    let entries = |text: &str| -> Vec<Value> {
        text.lines().map(|line| as_script(&serde_json::from_str(line).unwrap())).collect()
    };
    let now = entries(&std::fs::read_to_string(&file).unwrap());
    for entry in entries(&whole) {
        assert!(now.contains(&entry), "{entry} is not in {now:?}");
    }
    let report = world.run(&["import", "pi", file.to_str().unwrap(), "--json"]).ok().json_lines().remove(0);
    assert_eq!((&report["added"], &report["lost"]), (&json!(0), &json!(0)), "{report}");
}

#[test]
fn file_that_is_removed_under_way_is_reported_and_restored() {
    let Some(peer) = peer() else { return };
    let world = World::new([says("One."), says("Two."), says("Three.")]);
    install_helper(&world);
    let mut pi = Pi::start(&peer, &world, &[]);
    pi.prompt("First.");
    let (session, file) = (pi.session(), pi.file());
    wait_for_nodes(&world, &session, has_role("assistant", 1));
    std::fs::remove_file(&file).unwrap();
    pi.prompt("Second.");
    wait_for_nodes(&world, &session, has_role("assistant", 2));
    pi.tells("the file of this session is gone");
    pi.run("/quipu restore");
    pi.tells("entries now");
    pi.prompt("Third.");
    let texts: Vec<String> = messages(world.requests().last().unwrap()).iter().map(wire_text).collect();
    assert_eq!(texts, ["First.", "One.", "Second.", "Two.", "Third."]);
    // A whole file stays as it is, and one that is there gets no twin.
    pi.run("/quipu restore");
    pi.tells("nothing is missing");
    pi.send(&json!({ "type": "new_session" }));
    pi.until("response");
    pi.run(&format!("/quipu restore {session}"));
    pi.tells("is there");
    assert_eq!(pi.file(), file);
    pi.close();
    agrees_with_import(&world, &session, &file);
    // It was left for the new one and gone on with once, though this version begins it twice.
    let trace = world.run(&["trace", &session, "--filter", "all"]).ok().text();
    assert_eq!((trace.matches("BOOT").count(), trace.matches("SESSION_SWITCH").count()), (1, 2), "{trace}");
}
