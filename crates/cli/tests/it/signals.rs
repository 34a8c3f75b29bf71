//! Ctrl-C, SIGTERM, SIGHUP: what was acknowledged is kept, children are dead, and the session goes on.

use nix::sys::signal::Signal;
use quipu_testkit::{Answer, Gate, Reply};
use serde_json::Value;

use crate::support::*;

/// The beginning of an answer, then nothing until the gate opens.
fn stops_at(gate: &Gate, text: &str) -> Reply {
    Reply::sse(Answer::new().text(text).unfinished()).then_gate(gate)
}

fn continues(world: &World) -> Vec<Value> {
    world.server.push(Answer::new().text("Here.").reply());
    assert_eq!(world.run(&["-p", "-c", "second"]).ok().text(), "Here.\n");
    let said = messages(world.requests().last().unwrap());
    let roles: Vec<&Value> = said.iter().map(|message| &message["role"]).collect();
    assert!(!roles.windows(2).any(|pair| pair[0] == pair[1] && pair[0] == "assistant"), "{said:?}");
    said
}

#[test]
fn each_signal_has_its_code_and_keeps_half_an_answer() {
    let cases = [(Signal::SIGINT, 130), (Signal::SIGTERM, 143), (Signal::SIGHUP, 129)];
    for (signal, code) in cases {
        let gate = Gate::new();
        let world = World::unprivileged([stops_at(&gate, "Half an answer\n")]);
        let mut running = world.start(&["-p", "--stream", "first"]);
        assert_eq!(running.line().unwrap(), "Half an answer");
        reached(&gate);
        running.signal(signal);
        let ran = running.wait().exits(code);
        assert_eq!(ran.text(), "Half an answer\n");
        let answer = world.nodes().pop().unwrap();
        assert_eq!(answer["message"]["stopReason"], "aborted", "{answer}");
        assert_eq!(answer["message"]["content"][0]["text"], "Half an answer\n");
        let said = continues(&world);
        assert!(wire_text(&said[0]).starts_with("first"), "{said:?}");
    }
}

#[test]
fn before_the_answer_begins_and_between_tries() {
    let gate = Gate::new();
    let world = World::new([Reply::sse("").then_gate(&gate)]);
    let running = world.start(&["-p", "first"]);
    reached(&gate);
    running.signal(Signal::SIGINT);
    running.wait().exits(130);
    continues(&world);

    // While it waits for the next try.
    let world = World::new([Reply::error(503, "overloaded_error", "Overloaded")]);
    std::fs::write(world.path("home/.quipu/settings.json"), r#"{"retry":{"baseDelayMs":60000}}"#).unwrap();
    let mut running = world.start(&["-p", "first"]);
    running.says("try 2");
    running.signal(Signal::SIGINT);
    running.wait().exits(130);
    continues(&world);
}

/// A command that ignores signals, with a child that does as well, and one more in a session of its own where such
/// can be found.
const STUBBORN: &str = r#"trap '' INT TERM HUP QUIT
echo $$ > pids
loop='trap "" INT TERM HUP QUIT; echo $$ >> pids; while :; do sleep 60; done'
sh -c "$loop" &
count=2
if [ "$(uname)" = Linux ]; then setsid sh -c "$loop" & count=3; fi
while [ "$(wc -l < pids)" -lt $count ]; do :; done
echo started
while :; do sleep 60; done"#;

fn pids(world: &World) -> Vec<i32> {
    let pids = std::fs::read_to_string(world.path("work/pids")).unwrap();
    let pids: Vec<i32> = pids.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(pids.len(), if cfg!(target_os = "linux") { 3 } else { 2 }, "it did not run once: {pids:?}");
    pids
}

fn started(world: &World) -> RunningCommand {
    let mut running = world.start(&["-p", "--mode", "json", "first"]);
    // The command itself says it, too.
    while !running.line().unwrap().contains(r#""text":"started"#) {}
    running
}

#[test]
fn a_command_that_ignores_signals_ends_with_the_run() {
    let world = World::new([bash("c1", STUBBORN)]);
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let running = started(&world);
        running.signal(signal);
        let ran = running.wait();
        assert!(ran.status.code().is_some_and(|code| code > 128), "{} {}", ran.status, ran.err);
        crate::events::lawful(&ran.json_lines());
        pids(&world);
        no_command_lives(&world);
        let result = world.nodes().pop().unwrap();
        assert_eq!(result["message"]["role"], "toolResult");
        assert!(
            result["message"]["content"][0]["text"].as_str().unwrap().contains("Command aborted"),
            "{result}"
        );
        continues(&world);
        world.server.push(bash("c1", STUBBORN));
    }
}

#[test]
fn twice_leaves_at_once_and_nothing_lives_on() {
    let world = World::new([bash("c1", STUBBORN)]);
    let mut running = started(&world);
    running.signal(Signal::SIGINT);
    running.says("Ctrl-C again");
    running.signal(Signal::SIGINT);
    let code = running.wait().status.code();
    assert_eq!(code, Some(130));
    pids(&world);
    no_command_lives(&world);
    continues(&world);
}

#[test]
fn killed_run_kills_children_and_does_not_rerun_calls() {
    let world = World::new([bash("c1", STUBBORN)]);
    let running = started(&world);
    running.signal(Signal::SIGKILL);
    running.wait();
    pids(&world);
    no_command_lives(&world);
    let said = continues(&world);
    assert!(said.iter().any(|message| wire_text(message).contains("Interrupted:")), "{said:?}");
    pids(&world);
}

#[test]
fn a_background_server_ends_with_the_session_that_started_it() {
    let world = World::new([
        bash("c1", "sleep 600 & echo $! > pid; echo up"),
        bash("c2", "kill -0 $(cat pid) && echo alive"),
        Answer::new().text("Done.").reply(),
    ]);
    world.run(&["-p", "first"]).ok();
    assert!(wire_text(messages(&world.requests()[2]).last().unwrap()).contains("alive"));
    no_command_lives(&world);
}
