//! Two processes at the same time.

use quipu_testkit::{Answer, Gate, Reply};

use crate::support::*;

#[test]
fn the_second_on_one_session_is_told_and_gets_a_branch() {
    let gate = Gate::new();
    let answer = Answer::new().text("Two.").stream();
    let world = World::new([
        Answer::new().text("One.").reply(),
        Reply::sse("").then_gate(&gate).then(answer),
        Answer::new().text("Three.").reply(),
    ]);
    world.run(&["-p", "first"]).ok();
    let session = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    let running = world.start(&["-p", "-c", "second"]);
    reached(&gate);
    let ran = world.run(&["-p", "-c", "--mode", "json", "third"]).ok();
    assert!(ran.err.contains("Another process is working on this session"), "{}", ran.err);
    let lines = ran.json_lines();
    crate::events::lawful(&lines);
    let branch = lines[0]["id"].as_str().unwrap();
    assert!(branch != session && ran.err.contains(branch));
    gate.open();
    assert_eq!(running.wait().ok().text(), "Two.\n");
    let requests = world.requests();
    let said = |n: usize| messages(&requests[n]).iter().map(wire_text).collect::<Vec<_>>();
    assert_eq!(said(1), ["first", "One.", "second"]);
    // What the first one had said was acknowledged, so it is there.
    assert_eq!(said(2), ["first", "One.", "second", "third"]);
    // Both are sessions of their own now, and both go on.
    let sessions = world.sessions();
    assert_eq!(sessions.len(), 2);
    let row = sessions.iter().find(|row| row["id"] == branch).unwrap();
    assert_eq!(row["parentSession"], session);
    let goes_on = [
        (session.as_str(), vec!["first", "One.", "second", "Two.", "go on"]),
        (branch, vec!["first", "One.", "second", "third", "Three.", "go on"]),
    ];
    for (id, texts) in goes_on {
        world.server.push(Answer::new().text("On.").reply());
        let ran = world.run(&["-p", "--session", id, "go on"]).ok();
        assert!(!ran.err.contains("Another process"), "{}", ran.err);
        let texts_sent: Vec<String> =
            messages(world.requests().last().unwrap()).iter().map(wire_text).collect();
        assert_eq!(texts_sent, texts);
    }
}

#[test]
fn a_process_that_was_killed_holds_nothing() {
    let gate = Gate::new();
    let world = World::new([Reply::sse("").then_gate(&gate), Answer::new().text("On.").reply()]);
    let mut running = world.start(&["-p", "first"]);
    reached(&gate);
    running.child.kill().unwrap();
    running.wait();
    let ran = world.run(&["-p", "-c", "second"]).ok();
    assert!(ran.err.contains("interrupted earlier; whether it was answered is unknown"), "{}", ran.err);
    assert_eq!(world.sessions().len(), 1);
}

#[test]
fn many_at_once_lose_nothing() {
    let world = World::new((0..8).map(|n| Answer::new().text(&format!("Answer {n}.")).reply()));
    let all: Vec<Running> = (0..8).map(|n| world.start(&["-p", &format!("prompt {n}")])).collect();
    for running in all {
        running.wait().ok();
    }
    let sessions = world.sessions();
    assert_eq!(sessions.len(), 8);
    assert!(sessions.iter().all(|row| row["entries"] == 2));
}
