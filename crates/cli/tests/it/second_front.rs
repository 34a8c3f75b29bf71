//! `quipu serve`, and a front that is none of ours: the example crate outside of the workspace.

use std::path::{Path, PathBuf};
use std::process::Command;

use quipu_testkit::{Answer, Reply};
use serde_json::{Value, json};

use crate::support::*;

/// The example, built as somebody else would build it.
fn example() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("two-sessions");
    let manifest = root.join("examples/two-sessions/Cargo.toml");
    let mut cargo = Command::new(env!("CARGO"));
    // What this workspace was built from is all that it needs.
    cargo.args(["build", "--quiet", "--offline", "--locked", "--manifest-path"]).arg(manifest);
    let output = cargo.arg("--target-dir").arg(&target).env_remove("CARGO_TARGET_DIR").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    target.join("debug/two-sessions")
}

fn of(session: &str, reply: Reply) -> Reply {
    reply.only_for(session)
}

#[test]
fn front_outside_of_the_workspace_drives_two_sessions_at_once() {
    let write = |path: &str, content: &str| call("c1", "write", &json!({ "path": path, "content": content }));
    let says = |text: &str| Answer::new().text(text).reply();
    let (one, two) = ("Write `one`", "Write `hello`");
    let world = World::new([
        of(one, write("version.txt", "one\n")),
        of(one, says("It is written.")),
        of(one, write("version.txt", "two\n")),
        of(one, says("It is changed.")),
        of(one, says("Briefly: done.")),
        of(two, write("../asked.txt", "hello\n")),
        of(two, says("It is there.")),
    ]);
    for made in ["work/one", "work/two"] {
        std::fs::create_dir(world.path(made)).unwrap();
    }
    let settings = json!({ "retry": { "baseDelayMs": 1 }, "defaultModel": MODEL });
    std::fs::write(world.path("home/.quipu/settings.json"), settings.to_string()).unwrap();
    let mut command = world.command(example());
    command.arg(&world.program).arg(world.path("work/one")).arg(world.path("work/two"));
    let ran = RunningCommand::start(command).wait();
    assert!(ran.status.success(), "{}\n{}", ran.text(), ran.err);
    for said in [
        "version 2 of the protocol",
        "steered: ",
        "asked: ",
        "answered: Handled",
        "version.txt: two",
        "after the jump: one",
        "after the undo: two",
        "the server ended: exit status: 0",
    ] {
        assert!(ran.text().contains(said), "{said}\n{}\n{}", ran.text(), ran.err);
    }
    assert_eq!(std::fs::read_to_string(world.path("work/asked.txt")).unwrap(), "hello\n");
    let lines = include_str!("../../../../examples/two-sessions/src/main.rs").lines().count();
    assert!(lines <= 300, "{lines}");
}

#[test]
fn serve_says_what_is_wrong_and_how_it_ended() {
    let world = World::says("hi");
    world.unchecked();
    let lines = |ran: &CommandOutput| -> Vec<Value> {
        ran.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    // Nobody at the other end.
    let ran = world.run_with(&["serve"], "");
    assert_eq!((ran.status.code(), ran.text().as_str()), (Some(0), ""), "{}", ran.err);
    // Another program, and another version.
    for line in ["{\"type\":\"hello\",\"version\":99}\n", "{\"id\":1,\"method\":\"initialize\"}\n"] {
        let ran = world.run_with(&["serve"], line);
        assert_eq!(ran.status.code(), Some(2), "{}", ran.err);
        assert!(ran.err.contains("docs/serve.md"), "{}", ran.err);
        let answer = lines(&ran).remove(0);
        assert_eq!((&answer["type"], &answer["kind"]), (&json!("error"), &json!("version")), "{answer}");
    }
    // What was asked for is answered before it ends with its input.
    let work = world.path("work");
    let input = format!(
        "{{\"type\":\"hello\",\"version\":2}}\n{{\"type\":\"open\",\"id\":1,\"cwd\":{}}}\nnothing\n",
        json!(work)
    );
    let ran = world.run_with(&["serve", "--store", "named.db"], input);
    assert_eq!(ran.status.code(), Some(0), "{}", ran.err);
    let answers = lines(&ran);
    let types: Vec<&str> = answers.iter().filter_map(|answer| answer["type"].as_str()).collect();
    assert!(types.contains(&"hello") && types.contains(&"error"), "{answers:?}");
    assert!(types.contains(&"opened") || answers.iter().any(|answer| answer["id"] == 1), "{answers:?}");
}
