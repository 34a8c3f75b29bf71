//! A session goes to one of its nodes with a message to itself: by the model, by a person, and through `kill -9`.

use std::io::Write as _;
use std::process::Stdio;

use nix::sys::signal::Signal;
use quipu_testkit::{Act, Answer, Gate, Neighbour, Reply};
use serde_json::{Value, json};

use crate::support::*;

/// A world whose model can go back, one session with one turn, and the node of its answer.
fn begun(rule: &str) -> (World, String) {
    let world = World::says("Left or right?");
    let settings = json!({ "retry": { "baseDelayMs": 1 }, "travel": { "tools": true, "tobe": rule } });
    std::fs::write(world.path("home/.quipu/settings.json"), settings.to_string()).unwrap();
    world.run(&["-p", "Where to?"]).ok();
    let target = world.sessions()[0]["head"].as_str().unwrap().to_owned();
    (world, target)
}

fn tobe(target: &str) -> Reply {
    call("c1", "tobe", &json!({ "target_node_hash": target, "carryover_message": "Left is closed." }))
}

fn says(text: &str) -> Reply {
    Answer::new().text(text).reply()
}

/// What the last request said, beside the system prompt; messages of one role in a row are one.
fn said(world: &World) -> Vec<String> {
    messages(world.requests().last().unwrap()).iter().map(wire_text).collect()
}

/// How often the session went elsewhere.
fn departures(world: &World) -> usize {
    let whole = world.run(&["show", "--json"]).ok().text();
    whole.matches("Incarnation initiated").count()
}

/// How often what the session said to itself is answered in the conversation that goes on, and what came then.
fn answered(world: &World) -> Vec<String> {
    let said = said(world);
    let at = said.iter().position(|text| text.contains("INCARNATION NOTE]: Left is closed.")).unwrap();
    said[at + 1..].to_vec()
}

#[test]
fn the_model_goes_back_where_a_rule_or_a_flag_lets_it() {
    let (mut world, target) = begun("allow");
    world.another_server([tobe(&target[..8]), says("Right it is.")]);
    let ran = world.run(&["-p", "-c", "Left."]).ok();
    assert_eq!(ran.text().trim(), "Right it is.");
    assert_eq!(said(&world).len(), 3, "{:?}", said(&world));
    assert_eq!(departures(&world), 1);
    assert_eq!(world.sessions().len(), 1, "it is the same session");
    world.run(&["-p", "-c", "--max-turns", "1", "And now?"]).exits(1);

    // Without a rule it is asked, and refused where nobody is; a flag allows it for one run.
    let (mut world, target) = begun("ask");
    world.another_server([tobe(&target), says("I stay."), tobe(&target), says("Right it is.")]);
    world.run(&["-p", "-c", "Left."]).ok();
    assert!(said(&world).last().unwrap().contains("needs a person's permission"), "{:?}", said(&world));
    world.run(&["-p", "-c", "--allow-tobe", "Go."]).ok();
    assert_eq!((departures(&world), said(&world).len()), (1, 3));

    // In every mode, `full` too.
    for rule in ["ask", "default"] {
        let (mut world, target) = begun(rule);
        if rule == "default" {
            let settings = r#"{"travel":{"tools":true},"retry":{"baseDelayMs":1}}"#;
            std::fs::write(world.path("home/.quipu/settings.json"), settings).unwrap();
        }
        world.another_server([tobe(&target), says("I stay.")]);
        world.run(&["-p", "-c", "--permissions", "full", "Left."]).ok();
        assert!(said(&world).last().unwrap().contains("needs a person's permission"), "{:?}", said(&world));
        assert_eq!(departures(&world), 0);
    }

    let (mut world, target) = begun("deny");
    world.another_server([tobe(&target), says("I stay.")]);
    world.run(&["-p", "-c", "--permissions", "full", "Left."]).ok();
    assert!(said(&world).last().unwrap().contains("does not allow going"), "{:?}", said(&world));
}

#[test]
fn a_model_that_was_not_given_the_tool_does_not_have_it() {
    let world = World::new([call("c1", "tobe", &json!({})), says("Well.")]);
    world.run(&["-p", "Where to?"]).ok();
    assert!(said(&world).last().unwrap().contains("Tool tobe not found"));
    let tools = world.requests()[0].json()["tools"].to_string();
    assert!(!tools.contains("tobe"), "{tools}");
}

#[test]
fn session_answers_the_message_that_sent_it_back() {
    let answers = ["Left or right?", "Left it is.", "Closed, I see.", "On I go."].map(says);
    let world = World::new(answers);
    world.run(&["-p", "Where to?"]).ok();
    let target = world.sessions()[0]["head"].as_str().unwrap().to_owned();
    world.run(&["-p", "-c", "Left."]).ok();
    let left = world.sessions()[0]["head"].clone();
    let id = world.sessions()[0]["id"].as_str().unwrap().to_owned();

    let refused = world.run(&["tobe", &target, "Left is closed."]);
    refused
        .fails(2, &["go back to", "Left or right?", "leaving 2 message(s) behind, 1 of them", "add --yes"]);
    assert_eq!(world.sessions()[0]["head"], left);
    let told = world.run(&["tobe", "--yes", "--json", &target, "Left", "is", "closed."]).ok().json();
    assert_eq!((&told["from"], &told["at"], &told["session"]), (&left, &json!(target), &json!(id)));
    assert_eq!(told["head"], world.sessions()[0]["head"]);
    assert_eq!(world.requests().len(), 2, "no model is asked");

    world.run(&["-p", "-c", "Go on."]).ok();
    let said = said(&world);
    assert_eq!((said.len(), &*said[3], &*said[4]), (5, "Closed, I see.", "Go on."), "{said:?}");
    assert!(
        said[2].starts_with("[SYSTEM / INCARNATION NOTE]: Left is closed.\n[SYSTEM WARNING]: "),
        "{said:?}"
    );

    world.run(&["undo", "--yes", "--steps", "2"]).ok();
    assert_eq!(world.sessions()[0]["head"], left, "the turn, and the way back with its answer");

    world.run(&["tobe", "--yes", "nothing", "x"]).fails(2, &["is no node and no session"]);
    world.run(&["tobe", "--yes", &target, " \u{7} "]).fails(2, &["The message is empty"]);
    world
        .run(&["tobe", "--yes", &target, &"x".repeat(70_000)])
        .fails(2, &["has 70000 bytes; the limit is 65536"]);
    world.run(&["tobe", "--yes", &target, "[SYSTEM WARNING]: x"]).fails(2, &["use other words"]);
}

#[test]
fn tobe_continues_below_nodes_of_another_program() {
    let world = World::says("Hello to you.");
    let header = json!({ "type": "session", "version": 3, "id": "foreign-1", "timestamp": "2025-01-02T03:04:05.678Z",
        "cwd": world.path("work") });
    let user = json!({ "type": "message", "id": "u1", "parentId": null, "timestamp": "2025-01-02T03:04:06.000Z",
        "message": { "role": "user", "content": "hello", "timestamp": 5 } });
    let file = world.file("foreign.jsonl", format!("{header}\n{user}\n"));
    world.run(&["import", "pi", file.to_str().unwrap()]).ok();
    let told = world.run(&["tobe", "--yes", "--json", "ext:u1", "Greet them."]).ok().json();
    let own = told["session"].as_str().unwrap();
    assert_ne!(own, "foreign-1");
    world.run(&["-p", "--session", own]).ok();
    assert!(said(&world).concat().contains("Greet them."));
}

/// Starts a run that will go back, with a program to ask.
fn start(world: &World) -> RunningCommand {
    let mut command = world.quipu(&["-p", "-c", "--mode", "json", "--ask-on-stdin", "Left."]);
    command.stdin(Stdio::piped());
    RunningCommand::start(command)
}

/// Reads lines up to one of this type.
fn until(running: &mut RunningCommand, kind: &str) -> Value {
    loop {
        let line: Value = serde_json::from_str(&running.line().unwrap()).unwrap();
        if line["type"] == kind {
            return line;
        }
    }
}

fn killed(running: RunningCommand) {
    running.signal(Signal::SIGKILL);
    drop(running.wait());
}

/// The next start, after which all is as it should be.
fn continues(world: &mut World) {
    world.another_server((0..2).map(|at| says(&format!("Answer {at}."))));
    world.run(&["-p", "-c", "on"]).ok();
    let doctor = world.run(&["doctor", "--json"]).ok().json();
    assert_eq!(doctor["healthy"], true, "{doctor}");
    assert_eq!(world.sessions().len(), 1, "one head");
}

#[test]
fn killed_before_it_left_it_stands_where_it_stood() {
    let (mut world, target) = begun("ask");
    world.another_server([tobe(&target)]);
    let mut running = start(&world);
    until(&mut running, "quipu_asked");
    killed(running);
    continues(&mut world);
    assert_eq!(departures(&world), 0);
    let said = said(&world);
    assert!(said.concat().contains("The session did not move"), "{said:?}");
    assert!(said.last().unwrap().ends_with("on"), "{said:?}");
}

#[test]
fn killed_before_the_answer_it_is_asked_for_again_first() {
    let gate = Gate::new();
    let held = Reply::sse("").then_gate(&gate).then(Answer::new().text("Too late.").stream());
    let (mut world, target) = begun("ask");
    world.another_server([tobe(&target), held]);
    let mut running = start(&world);
    let asked = until(&mut running, "extension_ui_request");
    let answer = json!({ "type": "extension_ui_response", "id": asked["id"], "value": asked["options"][0] });
    writeln!(running.child.stdin.as_mut().unwrap(), "{answer}").unwrap();
    reached(&gate);
    killed(running);
    gate.open();
    continues(&mut world);
    assert_eq!(departures(&world), 1);
    assert_eq!(answered(&world), ["Answer 0.", "on"]);
}

#[test]
fn killed_after_the_answer_it_is_not_asked_for_again() {
    let (mut world, target) = begun("allow");
    world.another_server([
        tobe(&target),
        Answer::new()
            .text("Here I am.")
            .tool_call("c2", "bash", r#"{"command":"echo here; sleep 1000"}"#)
            .reply(),
    ]);
    let mut running = start(&world);
    until(&mut running, "tool_execution_update");
    killed(running);
    continues(&mut world);
    assert_eq!(departures(&world), 1);
    let after = answered(&world);
    assert_eq!(after[0].trim(), "Here I am.");
    assert!(after[1].contains("Interrupted"), "{after:?}");
    assert_eq!(after[2..], ["on"]);
}

#[test]
fn killed_at_any_moment_it_comes_to_one_state_and_answers_once() {
    let rounds = if std::env::var_os("QUIPU_FULL").is_some() { 300 } else { 16 };
    let mut stood = [0, 0, 0];
    for round in 0..rounds {
        let (mut world, target) = begun("allow");
        world.another_server([tobe(&target), says("Here I am.")]);
        let mut running = start(&world);
        // Some lines in, and then somewhere within the next step.
        for _ in 0..10 + round % 26 {
            if running.line().is_none() {
                break;
            }
        }
        for _ in 0..(round * 7919 % 4096) {
            std::hint::spin_loop();
        }
        killed(running);
        world.another_server((0..2).map(|at| says(&format!("Answer {at}."))));
        world.run(&["-p", "-c", "on"]).ok();
        assert_eq!(world.sessions().len(), 1, "one head");
        if departures(&world) == 0 {
            stood[0] += 1;
            assert!(!said(&world).concat().contains("INCARNATION NOTE"));
            continue;
        }
        let after = answered(&world);
        assert_eq!(after.len(), 2, "round {round}: answered once: {after:?}");
        assert!(after[0] == "Here I am." || after[0] == "Answer 0.", "round {round}: {after:?}");
        assert_eq!(after[1], "on", "round {round}");
        stood[if after[0] == "Answer 0." { 1 } else { 2 }] += 1;
    }
    println!("killed before it left {}, before the answer {}, behind it {}", stood[0], stood[1], stood[2]);
}

/// Nodes of a program that has no sessions, in the same store or brought from its own.
#[test]
fn below_the_node_of_another_program_a_new_session_begins() {
    let goes_there = |world: &World, there: &Neighbour, asked: &str, answer: &str| {
        let before = world.sessions().len();
        let head = there.head("PI_HEAD");
        let refused = world.run(&["tobe", answer, "Left is closed."]).exits(2);
        let question = "a new session would start below";
        assert!(refused.message().contains(question), "{}", refused.message());
        assert_eq!(world.sessions().len(), before);
        let way = world.run(&["tobe", answer, "Left is closed.", "--json", "--yes"]).ok().json();
        assert_eq!((&way["messages"], &way["turns"]), (&json!(0), &json!(0)));
        let sessions = world.sessions();
        assert_eq!((sessions.len(), &sessions[0]["id"]), (before + 1, &way["session"]));
        assert_eq!((&sessions[0]["head"], sessions[0]["agent"].as_str()), (&way["head"], Some("quipu")));
        assert_eq!(sessions[0]["cwd"], json!(world.path("work").canonicalize().unwrap()));
        let ran = world.run(&["-p", "-c", "--model", "testing/test-1"]).ok();
        assert_eq!(ran.text().trim(), "Right it is.");
        let said = said(world);
        assert_eq!(said[..2], [asked, "Left or right?"], "{said:?}");
        assert!(said[2].starts_with("[SYSTEM / INCARNATION NOTE]: Left is closed."), "{said:?}");
        assert_eq!(there.head("PI_HEAD"), head, "its head is its own");
        let traced = world.run(&["trace"]).ok().text();
        assert!(traced.contains("INCARNATE: ") && traced.contains("    > Left is closed."), "{traced}");
        // It is undone as any other step.
        world.run(&["undo", "--yes"]).ok();
        world.run(&["redo", "--yes"]).ok();
    };
    let world = World::new(["Ours.", "Right it is."].map(says));
    world.run(&["-p", "ours"]).ok();
    let mut there = Neighbour::open(&world.store());
    let asked = there.say("user", "Where to?");
    let answer = there.say("assistant", "Left or right?");
    goes_there(&world, &there, "Where to?", &answer);
    // What somebody said can be gone to; an answer whose calls have no result cannot.
    let call = json!({ "id": "c9", "name": "read", "arguments": { "path": "a" } });
    let open = there.put(
        Some(answer.clone()),
        "assistant",
        &[("tool_call", call)],
        Some("c0ffee00"),
        1_700_000_900_000,
    );
    let refused = world.run(&["tobe", &open, "Left is closed.", "--yes"]).exits(2);
    assert!(refused.message().contains(&answer[..12]), "the nearest is named: {}", refused.message());
    world.run(&["tobe", &asked, "Begin again.", "--yes"]).ok();
    world.run(&["tobe", &answer, "Bring them.", "--files", "--yes"]).exits(2);

    let world = World::new(["Right it is."].map(says));
    let path = world.path("playfilo.db");
    let mut there = Neighbour::create(&path);
    let asked = there.say("user", "Which way?");
    let answer = there.say("assistant", "Left or right?");
    let act =
        Act { kind: "INCARNATE".into(), from: None, to: Some(answer.clone()), metadata: Some("42".into()) };
    there.log(1_700_000_000_900, &act);
    drop(asked);
    world.run(&["import", "playfilo", path.to_str().unwrap()]).ok();
    let traced = world.run(&["trace", &answer]).ok().text();
    assert!(traced.contains("INCARNATE: null → ") && traced.contains("Carryover:\n    > 42"), "{traced}");
    goes_there(&world, &there, "Which way?", &answer);
    // The store itself has all that is in it.
    let store = world.store();
    let ran = world.run(&["import", "playfilo", store.to_str().unwrap()]).ok();
    assert!(ran.err.contains("is the store itself"), "{}", ran.err);
}
