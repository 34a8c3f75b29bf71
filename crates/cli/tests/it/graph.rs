//! The graph in the terminal: the real program, its navigator, and sessions of other agents.

use quipu_testkit::{Answer, Reply};
use serde_json::json;

use crate::archive::{ID, conversation, lines};
use crate::pty::{CTRL_C, CTRL_D, ENTER, ESCAPE, Terminal, says};
use crate::support::*;

const ALT_D: &str = "\u{1b}d";
const ALT_L: &str = "\u{1b}l";
const CTRL_A: &str = "\u{1}";
const DOWN: &str = "\u{1b}[B";
const END: &str = "\u{1b}[F";
const HOME: &str = "\u{1b}[H";
const LEFT: &str = "\u{1b}[D";
const RIGHT: &str = "\u{1b}[C";
const TAB: &str = "\t";

fn leave(mut terminal: Terminal) {
    // A list, the text, and then the terminal.
    terminal.types(&format!("{CTRL_C}{CTRL_C}{CTRL_D}"));
    assert_eq!(terminal.ends(), Some(0));
}

fn said(world: &World, request: usize) -> Vec<String> {
    messages(&world.requests()[request]).iter().map(wire_text).collect()
}

fn writes(path: &str, content: &str) -> Reply {
    let args = json!({ "path": path, "content": content }).to_string();
    Answer::new().tool_call("c1", "write", &args).reply()
}

/// A session of two branches: `left` was left for `right`.
fn two_branches(more: impl IntoIterator<Item = Reply>) -> World {
    let answers = ["Left or right?", "Left it is.", "Right it is."].map(says);
    let world = World::new(answers.into_iter().chain(more));
    world.run(&["-p", "which way"]).ok();
    let fork = world.sessions()[0]["head"].as_str().unwrap().to_owned();
    world.run(&["-p", "-c", "go left"]).ok();
    world.run(&["branch", &fork]).ok();
    world.run(&["-p", "-c", "go right"]).ok();
    world
}

fn open(world: &World) -> Terminal {
    let mut terminal = Terminal::open(world, &["-c"]);
    terminal.shows("test-1");
    terminal.types("/tree\r");
    terminal.shows("type to search");
    terminal
}

#[test]
fn branches_fold_are_filtered_searched_and_previewed() {
    let world = two_branches([]);
    let mut terminal = open(&world);
    terminal.shows("Left it is.");
    terminal.shows("◂ here");
    // Up from the head into the branch that was left, and fold it.
    terminal.types("left it");
    terminal.hides("type to search");
    terminal.types(ESCAPE);
    terminal.shows("type to search");
    terminal.types(LEFT);
    terminal.hides("assistant Left it is.");
    terminal.shows("├▸");
    terminal.types(RIGHT);
    terminal.shows("assistant Left it is.");
    // Only what the user said.
    terminal.types(&format!("{TAB}{TAB}"));
    terminal.shows("user only");
    terminal.hides("assistant Left it is.");
    terminal.types("go le");
    terminal.until("one row", |shown| shown.contains("user go left") && !shown.contains("user which way"));
    terminal.types(ESCAPE);
    terminal.shows("user which way");
    terminal.types(&format!("{HOME} "));
    terminal.shows("│ ");
    leave_tree(terminal);
}

fn leave_tree(mut terminal: Terminal) {
    terminal.types(ESCAPE);
    terminal.hides("type to search");
    leave(terminal);
}

#[test]
fn diff_shows_branches_side_by_side_or_stacked() {
    let world = two_branches([]);
    for (columns, beside) in [(120, true), (100, true), (99, false), (60, false)] {
        let mut terminal = Terminal::sized(&world, &["-c"], columns, 40);
        terminal.shows("test-1");
        terminal.types("/tree\r");
        terminal.shows("type to search");
        terminal.types(&format!("left it is{ALT_D}"));
        terminal.shows("◆ compared");
        terminal.types(ESCAPE);
        terminal.shows("type to search");
        terminal.types(&format!("{END}{ALT_D}"));
        terminal.shows("Two branches");
        terminal.shows("common ancestor");
        let seen = terminal.seen();
        let both = seen.lines().any(|line| line.contains("go left") && line.contains("go right"));
        assert_eq!(both, beside, "{columns}:\n{seen}");
        assert!(seen.contains("go left") && seen.contains("go right") && seen.contains('$'), "{seen}");
        terminal.types(ESCAPE);
        terminal.shows("type to search");
        leave_tree(terminal);
    }
}

#[test]
fn file_changes_are_shown_before_a_jump_restores_them() {
    let world = World::new([
        writes("a.txt", "one"),
        says("Wrote one."),
        writes("a.txt", "two"),
        says("Wrote two."),
        says("After."),
    ]);
    world.run(&["-p", "write one"]).ok();
    world.run(&["-p", "-c", "write two"]).ok();
    let mut terminal = open(&world);
    terminal.types("user write two\r");
    terminal.shows("Go there with the files");
    terminal.types("with the files\r");
    terminal.shows("Files that would change");
    terminal.shows("~ a.txt");
    // Nothing yet.
    assert_eq!(std::fs::read(world.path("work/a.txt")).unwrap(), b"two");
    terminal.types(ESCAPE);
    terminal.hides("Files that would change");
    assert_eq!(std::fs::read(world.path("work/a.txt")).unwrap(), b"two");
    // What somebody else wrote is marked, and only replaced when that is said.
    world.file("a.txt", "mine");
    let rows = [(ENTER, "The session did not move", "mine"), ("o", "The session is now at", "one")];
    for (key, told, expect) in rows {
        terminal.types("/tree\r");
        terminal.shows("type to search");
        terminal.types("user write two\r");
        terminal.shows("Go there with the files");
        terminal.types("with the files\r");
        terminal.shows("Files that would change");
        terminal.shows("! ~ a.txt");
        terminal.types(key);
        terminal.hides("Files that would change");
        terminal.shows(told);
        assert_eq!(
            std::fs::read(world.path("work/a.txt")).unwrap(),
            expect.as_bytes(),
            "{}",
            terminal.seen()
        );
    }
    terminal.shows("write two");
    terminal.types(" again\r");
    terminal.settles("After.");
    leave(terminal);
    let last = world.requests().len() - 1;
    assert_eq!(said(&world, last).last().unwrap(), "write two again");
}

#[test]
fn a_label_is_given_in_the_tree() {
    let world = two_branches([]);
    let mut terminal = open(&world);
    terminal.types(&format!("left it is{ALT_L}"));
    terminal.shows("Label of");
    terminal.types("the other way\r");
    terminal.hides("Label of");
    terminal.hides("opening the session");
    terminal.types("/tree\r");
    terminal.shows("[the other way]");
    leave_tree(terminal);
}

#[test]
fn jump_from_the_tree_summarizes_the_left_branch() {
    let world = two_branches([says("Notes of the right way."), says("Back again.")]);
    let mut terminal = open(&world);
    terminal.types("left it is\r");
    terminal.shows("Go there with a summary");
    terminal.types(&format!("{DOWN}{DOWN}{ENTER}"));
    terminal.shows("The session is now at");
    terminal.hides("stops it");
    terminal.types("and now\r");
    terminal.settles("Back again.");
    leave(terminal);
    let last = said(&world, 4);
    assert!(last.iter().any(|text| text.contains("Notes of the right way.")), "{last:?}");
    assert!(
        last.iter().any(|text| text == "go left") && last.iter().all(|text| text != "go right"),
        "{last:?}"
    );
}

#[test]
fn one_key_further_are_the_project_and_then_all_sessions() {
    let world = two_branches([says("About that."), says("On from there.")]);
    // Another directory, and another agent.
    std::fs::create_dir(world.path("other")).unwrap();
    let mut elsewhere = world.quipu(&["-p", "in another directory"]);
    elsewhere.current_dir(world.path("other"));
    assert!(elsewhere.status().unwrap().success());
    world.file("session.jsonl", lines(&conversation(&world, ID)));
    world.run(&["import", "pi", "session.jsonl"]).ok();
    let mut terminal = open(&world);
    terminal.types(CTRL_A);
    terminal.shows("Sessions of this directory");
    terminal.shows("which way");
    terminal.shows("Which way?");
    assert!(!terminal.seen().contains("in another directory"), "{}", terminal.seen());
    terminal.types(CTRL_A);
    terminal.shows("All sessions");
    terminal.shows("in another directory");
    // The nodes of an imported session, below its row.
    terminal.types("Which way? pi");
    terminal.until("one session", |shown| !shown.contains("in another directory"));
    terminal.types(RIGHT);
    terminal.types(ESCAPE);
    terminal.shows("user Left.");
    terminal.shows("assistant Left it is.");
    // On from one of its nodes, in a session of our own.
    terminal.types("assistant left it is.");
    terminal.until("the rows", |shown| !shown.contains("user Left."));
    terminal.types(&format!("{END}{ENTER}"));
    terminal.shows("A new session from there");
    terminal.types(ENTER);
    terminal.hides("A new session from there");
    terminal.hides("opening the session");
    terminal.shows("Left it is.");
    terminal.types("go on\r");
    terminal.settles("On from there.");
    leave(terminal);
    let last = world.requests().len() - 1;
    assert_eq!(said(&world, last), ["Which way?", "Left or right.", "Left.", "Left it is.", "go on"]);
    let own = world.sessions().into_iter().find(|row| row["parentSession"] == ID).unwrap();
    assert_eq!(own["agent"], "quipu");
    assert_eq!(world.run(&["export", "--format", "pi", ID]).ok().json_lines(), conversation(&world, ID));
}

#[test]
fn a_long_session_shows_its_end_and_says_where_the_rest_is() {
    let world = World::new([says("Still here.")]);
    // More nodes than `show` gives.
    world.unchecked();
    let mut entries = conversation(&world, ID);
    entries.truncate(3);
    let mut last = "t1".to_owned();
    for at in 0..3_000 {
        let (user, answer) = (format!("u{at}"), format!("a{at}"));
        entries.push(crate::archive::user(&user, &last, &format!("question {at}")));
        let text = json!([{ "type": "text", "text": format!("answer {at}") }]);
        entries.push(crate::archive::assistant(&answer, &user, &text, "stop"));
        last = answer;
    }
    world.file("session.jsonl", lines(&entries));
    world.run(&["import", "pi", "session.jsonl"]).ok();
    let mut terminal = Terminal::open(&world, &["-c"]);
    terminal.shows("answer 2999");
    terminal.hides("opening the session");
    let written = String::from_utf8_lossy(&terminal.bytes).into_owned();
    assert!(written.contains("earlier entries: /tree walks them"), "{written}");
    assert!(!written.contains("question 2900"), "only the end is printed");
    terminal.types("still there?\r");
    terminal.settles("Still here.");
    // The tree of the session that it goes on from: what is not read is a row, and opens in pages.
    terminal.types("/tree\r");
    terminal.shows("type to search");
    terminal.types(CTRL_A);
    terminal.shows("Sessions of this directory");
    terminal.types(&format!("question 0 pi{RIGHT}{ESCAPE}"));
    terminal.until("the row of the rest", |shown| shown.contains("more; → expands them"));
    for page in ["question 230", "question 180"] {
        terminal.types(&format!("more; →{RIGHT}{ESCAPE}"));
        terminal.until(page, |shown| shown.contains("more; → expands them") && shown.contains(page));
    }
    leave_tree(terminal);
}
