//! What models get wrong, and the paths and commands that hang whoever meets them unprepared.

use nix::sys::signal::Signal;
use quipu_testkit::{Answer, Gate, Reply, process_memory};
use serde_json::{Value, json};

use crate::support::*;

/// The result that the model is told for one call.
#[track_caller]
fn result_of(world: &World, call: Reply) -> (bool, String) {
    let before = world.requests().len();
    world.server.push(call);
    world.server.push(Answer::new().text("I see.").reply());
    world.run(&["-p", "-c", "go on"]).ok();
    let requests = world.requests();
    assert_eq!(requests.len(), before + 2);
    let last = messages(&requests[before + 1]).pop().unwrap();
    let block = last["content"]
        .as_array()
        .unwrap()
        .iter()
        .find(|block| block["type"] == "tool_result")
        .unwrap()
        .clone();
    (block["is_error"] == true, wire_text(&block))
}

#[track_caller]
fn fails(world: &World, call: Reply, words: &[&str]) {
    let (failed, text) = result_of(world, call);
    assert!(failed, "{text}");
    for word in words {
        assert!(text.contains(word), "{word} is not in: {text}");
    }
}

#[test]
fn arguments_that_are_not_json_or_not_what_the_tool_takes() {
    let world = World::new([]);
    let raw = |tool: &str, arguments: &str| Answer::new().tool_call("c1", tool, arguments).reply();
    fails(&world, raw("bash", "{\"command\": \"touch ran"), &["bash"]);
    fails(&world, raw("bash", "touch ran"), &["bash"]);
    fails(&world, raw("bash", "[\"touch ran\"]"), &["bash"]);
    fails(&world, raw("bash", ""), &["command"]);
    fails(&world, raw("bash", r#"{"command":["touch ran"]}"#), &["command"]);
    fails(&world, raw("bash", r#"{"command":"touch ran","timeout":"soon"}"#), &["timeout"]);
    fails(&world, raw("read", r#"{"file":"x"}"#), &["path"]);
    fails(&world, raw("no_such_tool", "{}"), &["Tool no_such_tool not found"]);
    fails(&world, raw("bash", &format!("{{\"command\":{}", "[".repeat(100_000))), &["bash"]);
    assert!(!world.path("work/ran").exists());
    // An answer that was cut off runs nothing either.
    let cut = Answer::new().tool_call("c1", "bash", r#"{"command":"touch ran"}"#).stop("max_tokens").reply();
    fails(&world, cut, &["not executed", "output token limit"]);
    assert!(!world.path("work/ran").exists());
}

#[test]
fn devices_pipes_and_directories_hang_nobody() {
    let world = World::new([]);
    // Most of them are outside the workspace.
    world.run(&["permissions", "set", "full"]).ok();
    let mkfifo = |name: &str| {
        nix::unistd::mkfifo(&world.path("work").join(name), nix::sys::stat::Mode::S_IRWXU).unwrap();
    };
    mkfifo("pipe");
    std::os::unix::fs::symlink("/dev/zero", world.path("work/zeros")).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(world.path("work/socket")).unwrap();
    for path in ["pipe", "/dev/zero", "zeros", "/dev/tty", "socket", ".", "gone"] {
        fails(&world, call("c1", "read", &json!({ "path": path })), &[path.trim_start_matches('.')]);
    }
    for path in ["pipe", "zeros", "socket", "."] {
        let edits = json!([{ "oldText": "a", "newText": "b" }]);
        fails(&world, call("c1", "edit", &json!({ "path": path, "edits": edits })), &[]);
        fails(&world, call("c1", "write", &json!({ "path": path, "content": "text" })), &[]);
    }
    drop(socket);
    // Several at once, with one that works.
    world.file("fine.txt", "fine");
    let answer =
        ["pipe", "fine.txt", "/dev/zero"].iter().enumerate().fold(Answer::new(), |answer, (n, path)| {
            answer.tool_call(&format!("c{n}"), "read", &json!({ "path": path }).to_string())
        });
    let (_, text) = result_of(&world, answer.reply());
    assert!(text.contains("pipe"), "{text}");
    let results: Vec<Value> =
        world.nodes().into_iter().filter(|node| node["message"]["role"] == "toolResult").collect();
    let last: Vec<bool> =
        results[results.len() - 3..].iter().map(|node| node["message"]["isError"] == true).collect();
    assert_eq!(last, [true, false, true]);
}

#[test]
fn endless_output_is_stopped_in_bounded_memory() {
    let gate = Gate::new();
    let answer = Answer::new().text("Enough.").stream();
    let world = World::new([
        call("c1", "bash", &json!({ "command": "yes some words", "timeout": 0.3 })),
        Reply::sse("").then_gate(&gate).then(answer),
    ]);
    let running = world.start(&["-p", "print"]);
    reached(&gate);
    if let Some(memory) = process_memory(running.child.id()) {
        assert!(memory.peak < 96 << 10, "{memory:?}");
    }
    gate.open();
    running.wait().ok();
    let result = wire_text(messages(&world.requests()[1]).last().unwrap());
    assert!(
        result.contains("timed out after 0.3 seconds") && result.contains("Full output: "),
        "{}",
        &result[result.len() - 300..]
    );
    assert!(result.len() < 60 << 10, "{}", result.len());
    let spilled = result.split("Full output: ").nth(1).unwrap().split(']').next().unwrap();
    assert!(spilled.starts_with(world.path("home/.quipu").to_str().unwrap()), "{spilled}");
    assert_eq!(mode(spilled.as_ref()), 0o600);
}

#[test]
fn endless_runs_end_by_signal_and_by_max_turns() {
    let world = World::new([bash("c1", "echo $$ > pid; exec yes words")]);
    let mut running = world.start(&["-p", "--mode", "json", "print"]);
    while !running.line().unwrap().contains("tool_execution_update") {}
    running.signal(Signal::SIGINT);
    running.wait().exits(130);
    no_command_lives(&world);
    for n in 0..3 {
        world.server.push(bash(&format!("d{n}"), "seq 100000"));
    }
    world.run(&["-p", "-c", "--max-turns", "3", "again"]).exits(5);
    world.server.push(Answer::new().text("Fine.").reply());
    world.run(&["-p", "-c", "go on"]).ok();
    assert_eq!(world.requests().len(), 5);
}

#[test]
fn the_keys_of_providers_are_not_given_to_commands() {
    let world =
        World::new([bash("c1", "env; echo key=${OWN_KEY:-none}"), Answer::new().text("Fine.").reply()]);
    let file = std::fs::read_to_string(world.path("home/.quipu/models.json")).unwrap();
    std::fs::write(world.path("home/.quipu/models.json"), file.replace(KEY, "$OWN_KEY")).unwrap();
    let mut command = world.quipu(&["-p", "go"]);
    command.env("OWN_KEY", KEY).env("OTHER", "stays");
    RunningCommand::start(command).wait().ok();
    assert_eq!(world.requests()[0].header("x-api-key"), Some(KEY));
    let result = wire_text(messages(&world.requests()[1]).last().unwrap());
    assert!(
        result.contains("key=none") && result.contains("OTHER=stays") && !result.contains("OWN_KEY="),
        "{result}"
    );
}
