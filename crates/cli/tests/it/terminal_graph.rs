//! Sessions in the terminal: what must be known before one is opened, and `/tree` with what came before it.

use std::path::Path;

use crate::archive::{ID, conversation, lines};
use crate::missing_cwd::in_a_directory_that_is_gone;
use crate::pty::{CTRL_C, CTRL_D, ENTER, ESCAPE, Terminal};
use crate::slash::{after, answers, leave};
use crate::support::*;

const DOWN: &str = "\u{1b}[B";

/// What the last request said, beside the system prompt.
fn said(world: &World) -> Vec<String> {
    messages(world.requests().last().unwrap()).iter().map(wire_text).collect()
}

#[test]
fn session_with_a_missing_directory_asks_and_continues_here() {
    let world = answers(2);
    let session = in_a_directory_that_is_gone(&world);
    let mut terminal = Terminal::open(&world, &["--session", &session]);
    terminal.shows("› Continue it here");
    // It was asked while the session was opened, and is done in it.
    terminal.types(ENTER);
    terminal.shows("continues in");
    terminal.types("/tree\r");
    terminal.shows("◂ here");
    terminal.types(ESCAPE);
    terminal.hides("◂ here");
    terminal.types("b\r");
    terminal.settles("Answer 2.");
    leave(terminal);
    assert_eq!(said(&world), ["a", "Answer 1.", "b"]);
    let cwd = world.sessions()[0]["cwd"].as_str().unwrap().to_owned();
    assert_eq!(Path::new(&cwd), world.path("work"));
}

#[test]
fn one_that_is_left_gives_the_session_before_it_back() {
    let world = answers(3);
    in_a_directory_that_is_gone(&world);
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    terminal.types("here\r");
    terminal.settles("Answer 2.");
    for leaves in [format!("{DOWN}{ENTER}"), ESCAPE.to_owned()] {
        terminal.types("/resume\r");
        terminal.shows("type to filter");
        terminal.types("gone");
        terminal.until("one session", |shown| shown.contains("1 of 1"));
        terminal.types(ENTER);
        terminal.shows("› Continue it here");
        terminal.types(&leaves);
        terminal.hides("› Continue it here");
        terminal.hides("opening the session");
    }
    terminal.types("and on\r");
    terminal.settles("Answer 3.");
    leave(terminal);
    assert_eq!(said(&world), ["here", "Answer 2.", "and on"]);
    assert_eq!(world.sessions().len(), 2);
}

#[test]
fn changed_identity_text_asks_in_the_terminal() {
    let world = answers(3);
    let settings = serde_json::json!({ "retry": { "baseDelayMs": 1 }, "identity": { "file": "me.md" } });
    std::fs::write(world.path("home/.quipu/settings.json"), settings.to_string()).unwrap();
    let me = world.path("home/.quipu/me.md");
    std::fs::write(&me, "I am Ada.\n").unwrap();
    world.run(&["-p", "one"]).ok();
    std::fs::write(&me, "I am Eve.\n").unwrap();
    let mut terminal = Terminal::open(&world, &["-c"]);
    terminal.shows("+1 I am Eve.");
    terminal.shows("› Keep the old text");
    terminal.types(ENTER);
    terminal.hides("› Keep the old text");
    terminal.types("two\r");
    terminal.settles("Answer 2.");
    leave(terminal);
    assert!(world.requests()[1].json()["system"].to_string().contains("I am Ada."));
    // That holds for this text; another one is asked about, and taken.
    std::fs::write(&me, "I am Zoe.\n").unwrap();
    let mut terminal = Terminal::open(&world, &["-c"]);
    terminal.shows("› Keep the old text");
    terminal.types(&format!("{DOWN}{ENTER}"));
    terminal.hides("Keep the old text");
    terminal.types("three\r");
    terminal.settles("Answer 3.");
    leave(terminal);
    assert!(world.requests()[2].json()["system"].to_string().contains("I am Zoe."));
}

#[test]
fn tree_of_an_imported_session_marks_the_head_at_once() {
    let world = answers(1);
    world.file("session.jsonl", lines(&conversation(&world, ID)));
    world.run(&["import", "pi", "session.jsonl"]).ok();
    let mut terminal = Terminal::open(&world, &["--session", ID]);
    // While it is opened, or later: it is the tree of this session.
    terminal.shows("Right it is.");
    terminal.types("/tree\r");
    terminal.shows("◂ here");
    terminal.shows("forked from session: Which way?");
    terminal.shows("user Right.");
    terminal.types(ESCAPE);
    terminal.hides("◂ here");
    terminal.types("on\r");
    terminal.settles("Answer 1.");
    terminal.types("/tree\r");
    terminal.shows("this session continues from here");
    terminal.until("the tree", |shown| {
        let row = |text: &str| shown.lines().position(|line| line.contains(text));
        row("forked from session") < row("user Right.")
            && row("user Right.") < row("this session continues")
            && row("this session continues") < row("◂ here")
    });
    leave(terminal);
}

#[test]
fn tree_of_a_fork_starts_at_its_origin() {
    let world = answers(5);
    let mut terminal = after(&world, &["first question", "second question"]);
    terminal.types("/fork sec");
    terminal.shows("› second question");
    terminal.types(ENTER);
    terminal.until("the message in the editor", |shown| {
        shown.lines().any(|line| line.trim_end() == "second question")
    });
    terminal.types(" of the fork\r");
    terminal.settles("Answer 3.");
    // A fork of a fork.
    terminal.types("/fork of the");
    terminal.shows("› second question of the fork");
    terminal.types(ENTER);
    terminal.until("the message in the editor", |shown| {
        shown.lines().any(|line| line.trim_end() == "second question of the fork")
    });
    terminal.types(", once more\r");
    terminal.settles("Answer 4.");
    terminal.types("/tree\r");
    terminal.shows("this session continues from here");
    terminal.shows("user first question");
    terminal.until("the end", |shown| shown.contains("once more") && shown.contains("◂ here"));
    // One of the rows before leads to a session from there, or to the one that it is of.
    terminal.types("Answer 1");
    terminal.hides("once more  ");
    terminal.types(ENTER);
    terminal.shows("of another session");
    terminal.types(&format!("{DOWN}{ENTER}"));
    terminal.until("the first session", |shown| shown.rfind("Answer 2.") > shown.rfind("once more"));
    terminal.hides("opening the session");
    terminal.types("third question\r");
    terminal.settles("Answer 5.");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    assert_eq!(
        said(&world),
        ["first question", "Answer 1.", "second question", "Answer 2.", "third question"]
    );
    assert_eq!(world.sessions().len(), 3);
}

#[test]
fn import_has_the_terminal_until_it_is_answered_or_stopped() {
    let world = answers(1);
    let dir = world.path("home/.pi/agent/sessions/--work--");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("session.jsonl"), lines(&conversation(&world, ID))).unwrap();
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    terminal.types("/import\r");
    terminal.shows("Import 1 sessions?");
    terminal.signal(nix::sys::signal::Signal::SIGINT);
    terminal.shows("The command failed");
    // What is typed is the terminal's again.
    terminal.types("kept whole");
    terminal.shows("kept whole");
    terminal.types(&format!("{CTRL_C}/import\r"));
    terminal.until("the question once more", |shown| shown.matches("Import 1 sessions?").count() == 2);
    terminal.types("y\r");
    terminal.until("the terminal again", |shown| {
        shown.contains("session.jsonl") && shown.trim_end().ends_with("/work")
    });
    terminal.types("/resume\r");
    terminal.shows("Which way?");
    terminal.types(ESCAPE);
    leave(terminal);
}
