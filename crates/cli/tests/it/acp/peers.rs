//! Two clients of others: `acpx` from npm, and the Python SDK from PyPI.

use std::process::Command;

use quipu_testkit::{Answer, Gate, Reply, peer_files, peer_python};
use serde_json::json;

use super::says;
use crate::support::*;

#[test]
fn acpx_drives_sessions_and_one_shot_prompts() {
    let Some([node, acpx]) = peer_files(["node/bin/node", "acpx/dist/cli.js"]) else { return };
    let edit = json!({ "path": "a.txt", "edits": [{ "oldText": "one", "newText": "two" }] });
    let world = World::new([
        says("Hello from the agent."),
        call("c1", "edit", &edit),
        says("It is changed."),
        says("I remember."),
    ]);
    let path = world.file("a.txt", "one\n");
    let run = |words: &[&str]| {
        let mut command = world.command(&node);
        let agent = format!("{} acp", world.program.display());
        command.arg(&acpx).args(["--agent", &agent, "--approve-all", "--ttl", "1", "--timeout", "60"]);
        RunningCommand::start({
            command.args(words);
            command
        })
        .wait()
    };
    let ran = run(&["--format", "quiet", "exec", "hi"]).ok();
    assert_eq!(ran.text().trim(), "Hello from the agent.");
    run(&["sessions", "new"]).ok();
    run(&["set-mode", "ask"]).ok();
    let ran = run(&["change a.txt"]).ok();
    assert!(ran.text().contains("It is changed."), "{}", ran.text());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "two\n");
    // The session is loaded again by another process.
    let ran = run(&["do you remember?"]).ok();
    assert!(ran.text().contains("I remember."), "{}", ran.text());
    run(&["sessions", "close"]).ok();
}

#[test]
fn python_sdk_drives_a_whole_conversation() {
    let Some(python) = peer_python("acp") else { return };
    let edit = json!({ "path": "a.txt", "edits": [{ "oldText": "typed", "newText": "changed" }] });
    let todo = json!({ "items": [{ "text": "Look", "status": "done" }] });
    let slow = Answer::new().text("slow").unfinished();
    let gate = Gate::new();
    let world = World::new([
        call("c1", "edit", &edit),
        call("c2", "todo", &todo),
        says("Changed."),
        Reply::sse(slow).then_gate(&gate),
        says("Here again."),
    ]);
    world.file("a.txt", "saved\n");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/acp/peer.py");
    let mut command: Command = world.command("python3");
    command.env("PYTHONPATH", python).env("PYTHONDONTWRITEBYTECODE", "1").arg(script);
    command.arg(&world.program).arg(world.path("work"));
    let ran = RunningCommand::start(command).wait().ok();
    assert!(ran.text().contains("the conversation went as it should"), "{}\n{}", ran.text(), ran.err);
    gate.open();
}
