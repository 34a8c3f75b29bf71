//! Where one is, what failed, and what is folded.

use crate::pty::{CTRL_D, ENTER, ESCAPE, Terminal, says};
use crate::support::{World, bash};

#[test]
fn new_session_says_what_it_is_and_how_to_get_help() {
    let world = World::new([says("Hello.")]);
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("New session: testing/test-1");
    terminal.shows("/help or F1 lists commands and keys");
    terminal.types("hello\r");
    terminal.shows("Hello.");
    terminal.types("/new\r");
    terminal.types("/help\r");
    terminal.shows("Commands and keys");
    terminal.types(ESCAPE);
    terminal.hides("Commands and keys");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
fn folded_output_shows_its_key_and_opens() {
    let world =
        World::new([bash("t1", "seq -f 'row %g' 60"), bash("t2", "echo before; exit 3"), says("Done.")]);
    let mut terminal = Terminal::open(&world, &["--permissions", "full"]);
    terminal.shows("test-1");
    terminal.types("go\r");
    terminal.shows("54 lines above (Ctrl+O opens)");
    terminal.shows("✗ $ echo before; exit 3");
    terminal.shows("Command exited with code 3");
    terminal.shows("Done.");
    terminal.types("\u{f}");
    terminal.shows("row 42");
    terminal.types("\u{f}");
    terminal.shows("No folded output is left to open");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
fn undo_says_after_which_message_the_session_stands() {
    let world = World::new([says("One."), says("Two.")]);
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    for (said, answered) in [("the first task", "One."), ("the second task", "Two.")] {
        terminal.types(said);
        terminal.types(ENTER);
        terminal.settles(answered);
    }
    terminal.types("/undo\r");
    terminal.shows("The conversation now ends after your message: the first task");
    terminal.types("/undo\r");
    terminal.shows("The conversation is now at its beginning");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
fn cost_of_a_session_survives_resume_and_undo() {
    let world = World::new([says("One."), says("Two.")]);
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    terminal.types("first\r");
    terminal.shows("One.");
    terminal.shows("$0.01");
    terminal.types("second\r");
    terminal.shows("Two.");
    let spent: f64 = world.sessions()[0]["cost"].as_f64().unwrap();
    let shown = format!("${spent:.2}");
    terminal.shows(&shown);
    terminal.types("/undo\r");
    terminal.shows("The conversation now ends after");
    terminal.shows(&shown);
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    let mut terminal = Terminal::open(&world, &["-c"]);
    terminal.shows("One.");
    terminal.shows(&shown);
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
fn waiting_for_a_person_is_shown_apart_from_work() {
    let world = World::new([bash("t1", "echo asked"), says("Done.")]);
    let mut terminal = Terminal::open(&world, &["--permissions", "ask"]);
    terminal.shows("test-1");
    terminal.types("go\r");
    terminal.shows("? waiting for your answer");
    terminal.hides("running, ");
    terminal.types("\u{1b}y");
    terminal.shows("Done.");
    terminal.hides("waiting for your answer");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
}
