//! Permissions that change while a session is open.

use std::io::Write as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use quipu_testkit::{Answer, Gate, Reply};
use serde_json::{Value, json};

use crate::pty::{CTRL_D, Terminal, says};
use crate::support::*;

/// The text of the last result that the model was told.
fn last_result(world: &World) -> String {
    wire_text(messages(world.requests().last().unwrap()).last().unwrap())
}

fn status(terminal: &mut Terminal, mode: &str) {
    terminal.until(&format!("the mode {mode} in the status line"), |shown| {
        shown.lines().rev().take(3).any(|line| line.split([' ', '·']).any(|word| word == mode))
    });
}

#[test]
fn mode_ask_holds_for_the_next_call_of_the_open_session() {
    let world = World::new([
        bash("c1", "echo 1 > first"),
        says("One."),
        bash("c2", "git push --force; echo 2 > second"),
        says("As you wish."),
        bash("c3", "echo 3 > third"),
        says("Three."),
    ]);
    let mut terminal = Terminal::open(&world, &["--permissions", "full"]);
    terminal.shows("test-1");
    status(&mut terminal, "full");
    terminal.types("go\r");
    terminal.settles("One.");
    assert!(world.path("work/first").exists());
    terminal.types("/permissions ask\r");
    terminal.shows("are now `ask`");
    status(&mut terminal, "ask");
    terminal.types("push\r");
    terminal.shows("`bash`: Allow");
    terminal.shows("git push --force");
    assert!(!world.path("work/second").exists());
    terminal.types("\u{1b}n\r");
    terminal.settles("As you wish.");
    assert!(!world.path("work/second").exists());
    assert!(last_result(&world).contains("did not allow"), "{}", last_result(&world));
    terminal.types("/permissions set full\r");
    terminal.shows("are now `full`");
    status(&mut terminal, "full");
    terminal.types("again\r");
    terminal.settles("Three.");
    assert!(world.path("work/third").exists());
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
fn open_question_is_answered_by_mode_full() {
    let world = World::new([bash("c1", "echo 1 > ran"), says("Done it.")]);
    let mut terminal = Terminal::open(&world, &["--permissions", "ask"]);
    terminal.shows("test-1");
    terminal.types("go\r");
    terminal.shows("`bash`: Allow");
    // As from another terminal.
    world.run(&["permissions", "full"]).ok();
    terminal.shows("is allowed by the current permissions");
    terminal.settles("Done it.");
    status(&mut terminal, "full");
    assert!(world.path("work/ran").exists());
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
}

/// Waits until this file is there.
fn appears(world: &World, name: &str) {
    let until = Instant::now() + Duration::from_secs(60);
    while !world.path("work").join(name).exists() {
        assert!(Instant::now() < until, "{name} does not appear");
        std::thread::yield_now();
    }
}

/// A run that another program is asked by.
fn asking(world: &World, args: &[&str]) -> RunningCommand {
    let mut command = world.quipu(&[&["-p", "--mode", "json", "--ask-on-stdin"], args, &["go"]].concat());
    command.stdin(Stdio::piped());
    RunningCommand::start(command)
}

/// Reads lines up to one of this type.
fn until(running: &mut RunningCommand, kind: &str) -> Value {
    loop {
        let line: Value = serde_json::from_str(&running.line().expect(kind)).unwrap();
        if line["type"] == kind {
            return line;
        }
    }
}

fn answers(running: &mut RunningCommand, asked: &Value, choice: usize) {
    let answer =
        json!({ "type": "extension_ui_response", "id": asked["id"], "value": asked["options"][choice] });
    writeln!(running.child.stdin.as_mut().unwrap(), "{answer}").unwrap();
}

#[test]
fn stricter_mode_of_another_process_holds_within_an_answer() {
    let world = World::new([
        Answer::new()
            .tool_call("c1", "write", &json!({ "path": "one", "content": "1" }).to_string())
            .tool_call(
                "c2",
                "bash",
                &json!({ "command": "touch begun; until test -e go; do sleep 0.01; done" }).to_string(),
            )
            .tool_call("c3", "write", &json!({ "path": "two", "content": "2" }).to_string())
            .reply(),
        says("Done."),
    ]);
    let mut running = asking(&world, &["--permissions", "full"]);
    // The second call runs, and the third waits for it.
    appears(&world, "begun");
    world.run(&["permissions", "set", "ask"]).ok();
    world.file("go", "");
    let asked = until(&mut running, "quipu_asked");
    assert_eq!(asked["toolCallId"], "c3");
    assert!(!world.path("work/two").exists());
    let put = until(&mut running, "extension_ui_request");
    answers(&mut running, &put, 3);
    running.wait().ok();
    assert!(world.path("work/one").exists() && !world.path("work/two").exists());
}

#[test]
fn policy_that_answers_is_told_to_programs() {
    let world = World::new([bash("c1", "echo 1 > ran"), says("Done.")]);
    let mut running = asking(&world, &["--permissions", "ask"]);
    until(&mut running, "quipu_asked");
    world.run(&["permissions", "set", "full"]).ok();
    assert_eq!(until(&mut running, "quipu_permissions")["mode"], "full");
    let closed = until(&mut running, "quipu_ask_closed");
    assert_eq!((&closed["answer"], &closed["byPolicy"]), (&json!("allow"), &json!(true)), "{closed}");
    running.wait().ok();
    assert!(world.path("work/ran").exists());
}

#[test]
fn revoked_grant_is_asked_again_at_once() {
    let gate = Gate::new();
    let write = |id: &str| json!({ "path": "../out", "content": id }).to_string();
    let second = Answer::new().tool_call("c2", "write", &write("c2")).stream();
    let world = World::new([
        Answer::new().tool_call("c1", "write", &write("c1")).reply(),
        Reply::sse("").then_gate(&gate).then(second),
        says("Done."),
    ]);
    let mut running = asking(&world, &[]);
    let put = until(&mut running, "extension_ui_request");
    answers(&mut running, &put, 2);
    reached(&gate);
    assert_eq!(std::fs::read_to_string(world.path("out")).unwrap(), "c1");
    world.run(&["permissions", "revoke", "p1"]).ok();
    gate.open();
    let put = until(&mut running, "extension_ui_request");
    answers(&mut running, &put, 3);
    running.wait().ok();
    assert_eq!(std::fs::read_to_string(world.path("out")).unwrap(), "c1");
}

#[test]
fn damaged_file_of_permissions_allows_nothing() {
    let world = World::new([
        bash("c1", "touch begun; until test -e go; do sleep 0.01; done"),
        bash("c2", "echo 1 > ran"),
        says("I see."),
    ]);
    let running = asking(&world, &["--permissions", "full"]);
    appears(&world, "begun");
    std::fs::write(world.path("home/.quipu/permissions.json"), "{").unwrap();
    world.file("go", "");
    running.wait().ok();
    assert!(last_result(&world).contains("permissions.json cannot be used"), "{}", last_result(&world));
    assert!(!world.path("work/ran").exists());
    std::fs::remove_file(world.path("home/.quipu/permissions.json")).unwrap();
}

#[test]
fn mode_full_is_refused_where_the_network_is_closed() {
    if !crate::permissions::confined() {
        return;
    }
    let world = World::new([]);
    let mut terminal = Terminal::open(&world, &["--no-network"]);
    terminal.shows("test-1");
    terminal.types("/permissions full\r");
    terminal.shows("which `full` cannot do");
    status(&mut terminal, "workspace");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    assert!(!world.path("home/.quipu/permissions.json").exists());
}

#[test]
fn mode_of_one_run_gives_way_to_one_that_is_set() {
    let world = World::new([bash("c1", "echo 1 > ran"), says("As you wish.")]);
    world.unchecked();
    let mut terminal = Terminal::open(&world, &["--no-session", "--permissions", "full"]);
    terminal.shows("test-1");
    // What others save does not change what was said for this run.
    world.run(&["permissions", "set", "workspace"]).ok();
    terminal.types("/permissions ask\r");
    status(&mut terminal, "ask");
    terminal.types("go\r");
    terminal.shows("`bash`: Allow");
    terminal.types("\u{1b}n\r");
    terminal.settles("As you wish.");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    assert!(!world.path("work/ran").exists());
}

/// A yes for good is for the script as it was: other bytes are asked about again.
#[test]
fn permission_for_good_is_bound_to_the_bytes_of_a_script() {
    let run = || bash("c1", "./run.sh");
    let world = World::new([run(), says("One."), run(), says("Two."), run(), says("Three.")]);
    let script = |text: &str| {
        use std::os::unix::fs::PermissionsExt as _;
        world.file("run.sh", text);
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(world.path("work/run.sh"), mode).unwrap();
    };
    script("#!/bin/sh\necho one >> ran\n");
    let mut running = asking(&world, &["--permissions", "ask"]);
    let asked = until(&mut running, "extension_ui_request");
    let options = asked["options"].as_array().unwrap();
    let is_always = |option: &Value| {
        let text = option.as_str().unwrap().to_lowercase();
        text.contains("always") && !text.contains("rule")
    };
    let always = options.iter().position(is_always).unwrap_or_else(|| panic!("{options:?}"));
    answers(&mut running, &asked, always);
    running.wait().ok();
    assert_eq!(std::fs::read_to_string(world.path("work/ran")).unwrap(), "one\n");
    let saved: Value =
        serde_json::from_slice(&std::fs::read(world.path("home/.quipu/permissions.json")).unwrap()).unwrap();
    let entry = saved["projects"].as_object().unwrap().values().next().unwrap()["entries"][0].clone();
    assert_eq!((&entry["kind"], &entry["subject"]), (&json!("grant"), &json!("./run.sh")));
    let hash = entry["files"][0]["content"].as_str().unwrap();
    assert!(hash.len() == 64 && entry["files"][0]["path"].as_str().unwrap().ends_with("run.sh"), "{entry}");

    // Nobody is there, and nobody needs to be.
    world.run(&["-p", "-c", "go"]).ok();
    assert_eq!(std::fs::read_to_string(world.path("work/ran")).unwrap(), "one\none\n");
    script("#!/bin/sh\necho two >> ran\n");
    world.run(&["-p", "-c", "go"]).ok();
    assert_eq!(std::fs::read_to_string(world.path("work/ran")).unwrap(), "one\none\n");
    let told = last_result(&world);
    assert!(told.contains("has changed since"), "{told}");
}
