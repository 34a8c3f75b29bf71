//! The past in the terminal: its chunks on the tree, its commands on a chunk, and long work that can be stopped.

use quipu_testkit::{Answer, Gate};
use serde_json::json;

use crate::past::{hours, import};
use crate::past_model::{allow, world as with_a_model};
use crate::pty::{ENTER, ESCAPE, Terminal, held};
use crate::slash::leave;
use crate::support::*;

const DOWN: &str = "\u{1b}[B";
const RIGHT: &str = "\u{1b}[C";
const LEFT: &str = "\u{1b}[D";
const HOME: &str = "\u{1b}[H";
const ALT_S: &str = "\u{1b}s";
/// A question that stood there so long is answered.
const READ: std::time::Duration = std::time::Duration::from_millis(500);

/// A past of a day with a parent above its leaves.
fn built() -> World {
    let world = World::new([Answer::new().text("Answer 1.").reply()]);
    import(&world, "a.jsonl", &hours(&world, "alpha", 0, 5));
    world.run(&["past", "build"]).ok();
    world
}

/// A terminal in which one thing was said, with the tree open and its first row chosen.
fn tree(world: &World) -> Terminal {
    let mut terminal = Terminal::sized(world, &[], 140, 40);
    terminal.shows("test-1");
    terminal.types("hello\r");
    terminal.settles("Answer 1.");
    opens(&mut terminal);
    terminal
}

/// Opens the tree with the past of the project selected.
fn opens(terminal: &mut Terminal) {
    terminal.types("/tree\r");
    terminal.shows("◂ here");
    terminal.types(HOME);
    terminal.shows("› past of project");
}

#[test]
fn chunks_stand_on_the_tree_and_lead_to_their_sources() {
    let world = built();
    let mut terminal = tree(&world);
    terminal.types(RIGHT);
    terminal.shows("5 chunks, untrusted: ");
    terminal.types(DOWN);
    terminal.shows("› ├─2025-01-01T00:00:00.25Z..2025-01-01T04");
    terminal.types(RIGHT);
    terminal.shows("2025-01-01T04:00:00.25Z..2025-01-01T04:00:01.251Z · 2 nodes, untrusted: > Please do step 4 of alpha.");
    // A leaf opens to its nodes, and all fold again.
    terminal.types(&format!("{DOWN}{RIGHT}"));
    terminal.shows("user Please do step 0 of alpha.");
    terminal.types(&format!("{DOWN}{LEFT}"));
    terminal.hides("assistant Did step 0");
    // One key lists all that it stands on, the next two read it.
    terminal.types(&format!("{HOME}{DOWN}{ALT_S}"));
    terminal.shows("Sources of 2025-01-01T00:00:00.25Z");
    terminal.shows("1 of 10");
    terminal.types("step 3");
    terminal.shows("1 of 2");
    terminal.types(ENTER);
    terminal.shows("› Read it here");
    terminal.types(ENTER);
    terminal.shows("/recall");
    terminal.shows("Please do step 3 of alpha.");
    // The widest view has that of everything too.
    world.run(&["past", "build", "--all"]).ok();
    terminal.types("/tree\r");
    terminal.shows("◂ here");
    for (name, past) in
        [("Sessions of this directory", "past of project"), ("All sessions", "past of all sessions")]
    {
        terminal.types("\u{1}");
        terminal.shows(name);
        terminal.types(HOME);
        terminal.shows(&format!("› {past}"));
    }
    leave(terminal);
}

#[test]
fn commands_of_a_chunk_ask_and_write_as_the_command_line_does() {
    let world = built();
    let mut terminal = tree(&world);
    terminal.types(RIGHT);
    terminal.shows("5 chunks, untrusted: ");
    terminal.types(&format!("{DOWN}{RIGHT}"));
    terminal.shows("· 2 nodes, untrusted: > Please do step 4 of alpha.");
    terminal.types(&format!("{DOWN}{ENTER}"));
    terminal.shows("Past of project");
    terminal.shows("› Show it");
    terminal.types("retract");
    terminal.shows("› Retract");
    terminal.types(ENTER);
    terminal.shows("Take it back");
    // Nothing was done yet, and a no leaves it so.
    terminal.types(ESCAPE);
    terminal.hides("Take it back");
    let key = "2025-01-01T00:00:00.25Z..2025-01-01T00:00:01.251Z";
    let shown = world.run(&["past", key, "--json"]).ok().json();
    assert_eq!(shown["state"], "made");
    let id = shown["id"].as_str().unwrap();
    opens(&mut terminal);
    terminal.types(RIGHT);
    terminal.shows("5 chunks, untrusted: ");
    terminal.types(&format!("{DOWN}{RIGHT}"));
    terminal.shows("· 2 nodes, untrusted: > Please do step 4 of alpha.");
    terminal.types(&format!("{DOWN}{ENTER}"));
    terminal.shows("› Show it");
    terminal.types("retract");
    terminal.shows("› Retract");
    terminal.types(ENTER);
    terminal.shows("Take it back");
    pause();
    terminal.types(ENTER);
    terminal.shows(&format!("/past retract {}", &id[..12]));
    terminal.shows("is retracted.");
    assert_eq!(world.run(&["past", id, "--json"]).ok().json()["state"], "retracted");
    // A build shows its estimate first.
    opens(&mut terminal);
    terminal.types(ENTER);
    terminal.shows("› Show the coarsest chunks");
    terminal.types("behind");
    terminal.shows("› Build");
    terminal.types(ENTER);
    terminal.shows("Build the past");
    terminal.shows("1 above them to make");
    assert_eq!(world.run(&["past", "estimate", "--json"]).ok().json()["parents"], 1);
    pause();
    terminal.types(ENTER);
    terminal.shows("1 above them made");
    assert_eq!(world.run(&["past", "estimate", "--json"]).ok().json()["parents"], 0);
    leave(terminal);
}

#[test]
fn past_of_the_slash_command_prints_what_the_command_prints() {
    let world = built();
    let mut terminal = Terminal::sized(&world, &[], 140, 60);
    terminal.shows("test-1");
    let same = |terminal: &mut Terminal, words: &str| {
        let arguments: Vec<&str> = std::iter::once("past").chain(words.split_whitespace()).collect();
        let out = world.run(&arguments);
        let text = [String::from_utf8_lossy(&out.out).into_owned(), out.err.clone()].concat();
        terminal.types(&format!("/past {words}\r"));
        let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
        assert!(!lines.is_empty(), "{words}");
        for line in lines {
            // What does not fit is wrapped.
            let line: String = line.trim_start_matches("quipu: ").chars().take(100).collect();
            terminal.shows(line.trim_end());
        }
    };
    for words in [
        "2025-01-01T01:00Z",
        "sources 2025-01-01T02:00Z",
        "check",
        "estimate",
        "cover --budget 100",
        "cover --budget 0",
        "next tuesday",
        "2025-01-07..2025-01-01",
        "deadbeef99",
        "retract 1999",
        "--all build",
    ] {
        same(&mut terminal, words);
    }
    // A file of a command lies where the session works.
    terminal.types("/past page -o there.html\r");
    terminal.shows("bytes in there.html");
    assert!(world.path("work/there.html").exists());
    terminal.types("/past build --help\r");
    terminal.shows("Ask no model, also where the settings allow one");
    // Keys and actions are offered.
    terminal.types("/past 2025-01-01T00");
    terminal.shows("2025-01-01T00:00:00.25Z..2025-01-01T04:00:01.251Z");
    terminal.types("\u{15}/past sup");
    terminal.shows("put another one in the place of some");
    terminal.types("\u{15}");
    leave(terminal);
}

#[test]
fn build_in_the_terminal_is_stopped_and_goes_on() {
    let gate = Gate::new();
    let first = Answer::new().text("The work went on.").usage(10, 500, 0, 0).reply();
    let world = with_a_model([first, held("Never", &gate)]);
    allow(&world, 100.0);
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    terminal.types("/past build\r");
    terminal.shows("building the past: ");
    let standing = || world.run(&["past", "estimate", "--json"]).ok().json()["standing"].clone();
    assert!((0..500).any(|_| standing() == 1), "the first chunk is not written");
    // The terminal takes what is typed meanwhile.
    terminal.types("/past today\r");
    terminal.shows("no chunk of project");
    terminal.types("/past prove\r");
    terminal.shows("Already building the past");
    terminal.types("a word");
    terminal.shows("a word");
    terminal.types(ESCAPE);
    terminal.shows("The build was stopped");
    terminal.hides("building the past:");
    // What was made stays, and the past can be written to again.
    let estimated = world.run(&["past", "estimate", "--json"]).ok().json();
    assert_eq!((&estimated["leaves"], &estimated["standing"]), (&json!(7), &json!(1)), "{estimated}");
    for _ in 0..8 {
        world.server.push(Answer::new().text("And on.").usage(10, 500, 0, 0).reply());
    }
    // Who was stopped lets go of it a moment after it says so.
    let mut built = world.run(&["past", "build", "--json"]);
    for _ in 0..100 {
        if !built.err.contains("another process is writing") {
            break;
        }
        built = world.run(&["past", "build", "--json"]);
    }
    let built = built.ok().json();
    let count = |name: &str| built[name].as_u64().unwrap();
    assert_eq!(count("calls") + count("recorded"), 8, "{built}");
    gate.open();
    leave(terminal);
}

/// Lets pass what a person needs to read a question.
fn pause() {
    let (_open, never) = std::sync::mpsc::channel::<()>();
    assert!(never.recv_timeout(READ).is_err());
}
