//! Whatever comes, the host goes on: exit code 0 and no output.

use std::process::Stdio;

use quipu_integrations::{HOSTS, read_log};
use serde_json::{Value, json};

use super::{filled, hook, payload};
use crate::support::*;

fn is_silent(ran: CommandOutput) {
    let ran = ran.ok();
    assert_eq!((ran.text().as_str(), ran.err.as_str()), ("", ""));
}

fn problems(world: &World) -> Vec<String> {
    let lines = read_log(&world.path("home/.quipu/hooks")).unwrap();
    lines.into_iter().map(|line| format!("{} {}: {}", line.agent, line.event, line.problem)).collect()
}

#[test]
fn bad_payloads_are_silent_and_logged() {
    let world = filled();
    let huge = json!({ "prompt": "paint ".repeat(1 << 20) }).to_string();
    let deep = "[".repeat(100_000);
    for input in
        ["", "{", "nothing", "[]", "7", "\"text\"", "null", &huge, &deep, "{\"cwd\":7,\"prompt\":[]}"]
    {
        for host in &HOSTS {
            is_silent(hook(&world, host.name, "UserPromptSubmit", input));
        }
    }
    is_silent(hook(&world, "claude-code", "UserPromptSubmit", [0xff, 0xfe, b'{']));
    is_silent(hook(&world, "claude-code", "EventOfTomorrow", payload(&world, &json!({ "prompt": "paint" }))));
    is_silent(hook(&world, "agent-of-tomorrow", "SessionStart", payload(&world, &json!({}))));
    let problems = problems(&world);
    for part in ["the payload is no JSON", "more than 4194304 bytes", "there is no agent of this name"] {
        assert!(problems.iter().any(|line| line.contains(part)), "{part}: {problems:?}");
    }
    // A payload of tomorrow has more and other members.
    let more =
        json!({ "prompt": "Which paint?", "session_id": { "v": 2 }, "permission_mode": 3, "new": [[{}]] });
    let ran = hook(&world, "claude-code", "UserPromptSubmit", payload(&world, &more)).ok();
    assert!(ran.text().contains("paint"), "{}", ran.text());
}

#[test]
fn payload_that_never_ends_is_given_up() {
    let world = filled();
    let mut command = world.quipu(&["hook", "claude-code", "SessionStart"]);
    command.stdin(Stdio::piped());
    let mut running = RunningCommand::start(command);
    let held = running.child.stdin.take();
    is_silent(running.wait());
    drop(held);
    let problems = problems(&world);
    assert!(problems.iter().any(|line| line.contains("gave up after")), "{problems:?}");
}

#[test]
fn hook_without_a_usable_store_is_silent() {
    let world = World::says("nothing");
    world.unchecked();
    let start = |name: &str| {
        println!("{name}");
        is_silent(hook(&world, "claude-code", "SessionStart", payload(&world, &json!({}))));
    };
    std::fs::remove_dir_all(world.path("home/.quipu")).unwrap();
    start("no directory");
    assert!(!world.path("home/.quipu").exists());
    std::fs::create_dir(world.path("home/.quipu")).unwrap();
    start("no store");
    assert!(!world.store().exists());
    std::fs::write(world.store(), "").unwrap();
    start("an empty file");
    let problem = problems(&world).pop().unwrap();
    assert!(problem.contains("is not a store: it is empty"), "{problem}");
    std::fs::write(world.store(), "this is no database, but long enough to look like one".repeat(200))
        .unwrap();
    start("no database");
    std::fs::remove_file(world.store()).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", world.store()).unwrap();
    start("a link");
    std::fs::remove_file(world.store()).unwrap();
    std::fs::create_dir(world.store()).unwrap();
    start("a directory");
    let gone: Value = json!({ "cwd": "/no/such/directory" });
    is_silent(hook(&world, "claude-code", "SessionStart", payload(&world, &gone)));
}

#[test]
fn settings_in_doubt_give_nothing() {
    let world = filled();
    let set = |text: &str| std::fs::write(world.path("home/.quipu/settings.json"), text).unwrap();
    let start = || hook(&world, "claude-code", "SessionStart", payload(&world, &json!({})));
    for text in [
        r#"{"integrations":{"history":"off"},}"#,
        r#"{"integrations":{"history":"of"}}"#,
        r#"{"integrations":{"histry":"off"}}"#,
        r#"{"integrations":"off"}"#,
        r#"["off"]"#,
    ] {
        println!("{text}");
        set(text);
        let before = problems(&world).len();
        is_silent(start());
        let problems = problems(&world).split_off(before);
        assert!(problems.len() == 1 && problems[0].contains("is in doubt: "), "{problems:?}");
    }
    set(r#"{"integrations":{"history":"off"}}"#);
    let before = problems(&world);
    is_silent(start());
    assert_eq!(problems(&world), before);
    // What is wrong with other settings says nothing of this one.
    set(r#"{"integrations":{"history":"small"},"zeppelin":1,"theme":7}"#);
    assert!(start().ok().text().contains("Plan the gate"));
}

#[test]
fn answer_is_printed_also_where_it_cannot_be_noted() {
    let world = filled();
    std::fs::create_dir_all(world.path("home/.quipu/hooks")).unwrap();
    world.file("../home/.quipu/hooks/seen", "no directory");
    let more = json!({ "prompt": "Which paint?" });
    let ran = hook(&world, "claude-code", "UserPromptSubmit", payload(&world, &more)).ok();
    assert!(ran.text().contains("paint"), "{}", ran.text());
    let problem = problems(&world).pop().unwrap();
    assert!(problem.contains("could not be noted"), "{problem}");
}

#[test]
fn arguments_of_a_hook_are_never_a_fault() {
    let world = filled();
    for arguments in [
        &["hook"][..],
        &["hook", "claude-code"],
        &["hook", "claude-code", "Stop", "more", "--of", "tomorrow"],
        &["hook", "--version", "Stop"],
    ] {
        println!("{arguments:?}");
        let mut command = world.quipu(arguments);
        command.env("QUIPU_HOOK_DEADLINE_MS", "60000").stdin(Stdio::null());
        is_silent(RunningCommand::start(command).wait());
    }
}
