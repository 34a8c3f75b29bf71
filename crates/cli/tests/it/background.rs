//! Commands in the background, with the real program: who may start them, what is shown of them, and when they end.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use quipu_testkit::Reply;
use serde_json::{Value, json};

use crate::pty::{CTRL_D, Terminal, says};
use crate::support::{World, call, messages, wire_text};

fn begin(id: &str, command: &str) -> Reply {
    call(id, "bash", &json!({ "command": command, "run_in_background": true }))
}

/// A pipe that a command holds open while it lives.
fn fifo(world: &World) -> PathBuf {
    let path = world.path("work/hold");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    path
}

/// Whether somebody reads the pipe.
fn is_read(fifo: &Path) -> bool {
    let nonblocking = nix::fcntl::OFlag::O_NONBLOCK.bits();
    std::fs::OpenOptions::new().write(true).custom_flags(nonblocking).open(fifo).is_ok()
}

fn holds(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::yield_now();
    }
}

fn told(world: &World) -> String {
    messages(world.requests().last().unwrap()).iter().map(wire_text).collect::<Vec<_>>().join("\n")
}

#[test]
fn print_mode_ends_background_commands_and_says_so() {
    let world = World::new([begin("c1", "exec 3<> hold; sleep 1000"), says("It runs.")]);
    let hold = fifo(&world);
    let ran = world.run(&["-p", "start it", "--permissions", "full"]).ok();
    assert!(ran.text().contains("It runs."), "{}", ran.err);
    for part in [
        "• background b1: exec 3<> hold",
        "• background b1 was killed because the session ended: exec 3<> hold",
    ] {
        assert!(ran.err.contains(part), "{part}: {}", ran.err);
    }
    assert!(!is_read(&hold), "nothing of it is left");
}

#[test]
fn background_commands_need_the_permission_of_bash() {
    let world = World::new([begin("c1", "touch ran"), says("No.")]);
    world.run(&["permissions", "add", "deny", "bash(touch *)"]).ok();
    world.run(&["-p", "start it", "--permissions", "full"]).ok();
    assert!(!world.path("work/ran").exists());
    assert!(!told(&world).contains("Started background command"), "{}", told(&world));
}

#[test]
fn setting_takes_background_commands_away() {
    let names = |world: &World| {
        let body: Value = world.requests().last().unwrap().json();
        let tools = body["tools"].as_array().unwrap().clone();
        let has = tools.iter().any(|tool| tool["name"] == "background");
        let declared = body["tools"].to_string();
        (has, ["run_in_background", "yield"].map(|name| declared.contains(&format!("\"{name}\""))))
    };
    let world = World::new([says("One."), says("Two."), says("Three.")]);
    world.run(&["-p", "one"]).ok();
    assert_eq!(names(&world), (true, [true, true]));
    world.run(&["-p", "--tools", "read", "two"]).ok();
    assert_eq!(names(&world), (false, [false, false]));
    world.run(&["config", "set", "background", "false"]).ok();
    world.run(&["-p", "three"]).ok();
    assert_eq!(names(&world), (false, [false, false]));
}

#[test]
fn killed_terminal_leaves_no_background_command() {
    let world = World::new([begin("c1", "exec 3<> hold; sleep 1000"), says("It runs.")]);
    let hold = fifo(&world);
    let mut terminal = Terminal::open(&world, &["--permissions", "full"]);
    terminal.shows("test-1");
    terminal.types("start it\r");
    terminal.settles("It runs.");
    terminal.shows("1 background command");
    holds("it runs", || is_read(&hold));
    terminal.dies();
    holds("it is gone", || !is_read(&hold));
    world.server.push(says("I see."));
    world.run(&["-p", "-c", "does it run?"]).ok();
    let told = told(&world);
    assert!(told.contains("do not run in this session any more"), "{told}");
    assert!(told.contains("b1: exec 3<> hold"), "{told}");
}

#[test]
fn person_lists_reads_and_kills_background_commands() {
    let world = World::new([begin("c1", "echo row-$((40+2)); sleep 1000"), says("It runs.")]);
    let mut terminal = Terminal::open(&world, &["--permissions", "full"]);
    terminal.shows("test-1");
    terminal.types("start it\r");
    terminal.settles("It runs.");
    terminal.shows("1 background command");
    terminal.types("/background b1\r");
    terminal.shows("Show its output");
    terminal.types("\r");
    terminal.shows("row-42");
    terminal.types("/background\r");
    terminal.shows("Background commands");
    terminal.types("\r");
    terminal.shows("Kill it");
    terminal.types("kill\r");
    terminal.shows("was killed by the user");
    terminal.hides("1 background command");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
}
