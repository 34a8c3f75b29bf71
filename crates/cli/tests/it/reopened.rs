//! Commands of the terminal that move the session or open it again: its file, or the memory it is in, stays its own.

use crate::archive::said;
use crate::pty::{CTRL_D, Terminal, says};
use crate::session_file::{agrees, texts};
use crate::support::*;

/// What is typed behind two turns, what is seen of it, and the turns that stay.
struct Row {
    typed: &'static [&'static str],
    shown: &'static str,
    turns: usize,
}

const TABLE: &[Row] = &[
    Row { typed: &["/name The road"], shown: "The road", turns: 2 },
    Row { typed: &["/label here"], shown: "The label is changed", turns: 2 },
    Row { typed: &["/undo"], shown: "second", turns: 1 },
    Row { typed: &["/undo 2"], shown: "first", turns: 0 },
    Row { typed: &["/undo", "/redo"], shown: "Answer 2.", turns: 2 },
    Row { typed: &["/redo"], shown: "/redo changed nothing", turns: 2 },
    Row { typed: &["/settings cacheRetention none"], shown: "cacheRetention", turns: 2 },
];

const TURNS: [&str; 4] = ["first", "Answer 1.", "second", "Answer 2."];

fn begun(args: &[&str]) -> (World, Terminal) {
    let world = World::new((1..=3).map(|at| says(&format!("Answer {at}."))));
    let mut terminal = Terminal::open(&world, args);
    terminal.shows("test-1");
    for (text, answer) in [("first", "Answer 1."), ("second", "Answer 2.")] {
        terminal.types(&format!("{text}\r"));
        terminal.settles(answer);
    }
    (world, terminal)
}

fn says_third(terminal: &mut Terminal) {
    terminal.types("third\r");
    terminal.settles("Answer 3.");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
fn reopened_session_keeps_its_file() {
    for row in TABLE {
        let (world, mut terminal) = begun(&["--session", "s.jsonl"]);
        for typed in row.typed {
            terminal.types(&format!("{typed}\r"));
        }
        terminal.shows(row.shown);
        says_third(&mut terminal);
        let path = world.path("work/s.jsonl");
        let all = [&TURNS[..2 * row.turns], &["third", "Answer 3."]].concat();
        assert_eq!(said(&world), all[..all.len() - 1], "{:?}", row.typed);
        assert_eq!(texts(&path), all, "{:?}", row.typed);
        assert_eq!(world.sessions().len(), 1, "{:?}", row.typed);
        // The next start adds nothing but a name or a label.
        world.server.push(says("Answer 4."));
        world.run(&["-p", "--session", "s.jsonl", "fourth"]).ok();
        assert_eq!(texts(&path), [&all[..], &["fourth", "Answer 4."]].concat(), "{:?}", row.typed);
        agrees(&world, &path);
    }
}

#[test]
fn session_in_memory_goes_on_behind_each_command() {
    for row in TABLE {
        let (world, mut terminal) = begun(&["--no-session"]);
        world.unchecked();
        for typed in row.typed {
            terminal.types(&format!("{typed}\r"));
        }
        terminal.shows(row.shown);
        says_third(&mut terminal);
        assert_eq!(said(&world), [&TURNS[..2 * row.turns], &["third"]].concat(), "{:?}", row.typed);
        assert!(!world.path("home/.quipu/quipu.db").exists());
    }
}

#[test]
fn empty_session_keeps_its_file_behind_a_setting() {
    let world = World::new([says("Answer 1.")]);
    let mut terminal = Terminal::open(&world, &["--session", "s.jsonl"]);
    terminal.shows("test-1");
    terminal.types("/settings cacheRetention none\r");
    terminal.shows("cacheRetention");
    terminal.types("first\r");
    terminal.settles("Answer 1.");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    assert_eq!(texts(&world.path("work/s.jsonl")), ["first", "Answer 1."]);
}
