//! Plan mode and the to-do list as the program has them.

use quipu_testkit::{Answer, Reply};
use serde_json::json;

use crate::pty::{CTRL_C, CTRL_D, Terminal, says};
use crate::support::*;

const ALT_M: &str = "\u{1b}m";

fn plan(id: &str, text: &str) -> Reply {
    call(id, "plan", &json!({ "text": text }))
}

/// Answers the question that stands there; with Alt a key counts at once.
pub(crate) fn answers(terminal: &mut Terminal, key: &str) {
    terminal.shows("waiting for your answer");
    terminal.types(&format!("\u{1b}{key}"));
}

/// The last message of a request, in words.
fn last_said(world: &World, request: usize) -> String {
    wire_text(messages(&world.requests()[request]).last().unwrap())
}

#[test]
fn print_mode_answers_with_the_plan() {
    let world = World::new([
        bash("a", "ls && touch made"),
        call("b", "write", &json!({ "path": "made", "content": "x" })),
        plan("c", "1. Make it.\n2. Test it."),
    ]);
    let output = world.run(&["-p", "--plan", "go"]).exits(0);
    assert_eq!(output.text(), "1. Make it.\n2. Test it.\n");
    assert!(output.err.contains("Plan mode is on"), "{}", output.err);
    assert!(!world.path("work/made").exists());
    // The next process finds the mode, and another one leaves it.
    world.server.push(says("Still planning."));
    world.run(&["-c", "-p", "more"]).ok();
    assert!(last_said(&world, 3).contains("Plan mode is on"), "{}", last_said(&world, 3));
    world.server.push(call("d", "write", &json!({ "path": "made", "content": "x" })));
    world.server.push(says("Made."));
    world.run(&["-c", "-p", "--permissions", "workspace", "now do it"]).ok();
    assert_eq!(std::fs::read_to_string(world.path("work/made")).unwrap(), "x");
    let nodes = world.run(&["show", "--json", world.sessions()[0]["id"].as_str().unwrap()]).ok().text();
    assert!(nodes.contains("1. Make it."), "the plan is a node");
    world.check();
}

#[test]
fn plan_mode_can_be_a_setting_and_a_permission_mode() {
    let world = World::new([says("One."), says("Two."), says("Three.")]);
    world.run(&["-p", "--permission-mode", "plan", "one"]).ok();
    assert!(last_said(&world, 0).contains("Plan mode is on"));
    world.run(&["config", "set", "planMode", "true"]).ok();
    world.run(&["-p", "two"]).ok();
    assert!(last_said(&world, 1).contains("Plan mode is on"));
    world.run(&["-p", "--permissions", "workspace", "three"]).ok();
    assert_eq!(last_said(&world, 2), "three");
    world.run(&["permissions"]).ok();
    world.check();
}

#[test]
fn terminal_switches_plan_mode_and_accepts_a_plan() {
    let world = World::new([
        plan("a", "Write the file."),
        call("b", "write", &json!({ "path": "made", "content": "x" })),
        says("It is done."),
    ]);
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    terminal.types(ALT_M);
    terminal.shows("Permissions are now `plan`");
    terminal.types("do it\r");
    terminal.shows("Accept this plan?");
    terminal.shows("Write the file.");
    assert!(!terminal.seen().contains("Plan mode is on"), "{}", terminal.seen());
    answers(&mut terminal, "1");
    terminal.settles("It is done.");
    assert_eq!(std::fs::read_to_string(world.path("work/made")).unwrap(), "x");
    terminal.types("/plan\r");
    terminal.until("plan mode again", |shown| shown.matches("Permissions are now `plan`").count() == 2);
    terminal.types("/plan\r");
    terminal
        .until("the mode of before", |shown| shown.matches("Permissions are now `workspace`").count() == 2);
    terminal.types(&format!("{CTRL_C}{CTRL_D}"));
    assert_eq!(terminal.ends(), Some(0));
    world.check();
}

#[test]
fn terminal_sends_the_text_of_plan_in_plan_mode() {
    let world = World::new([plan("a", "Too much."), plan("b", "Less."), says("Done.")]);
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    terminal.types("/plan think of it\r");
    terminal.shows("Too much.");
    answers(&mut terminal, "3");
    terminal.shows("What should change?");
    answers(&mut terminal, "w");
    terminal.shows("Enter answers");
    terminal.types("fewer steps\r");
    terminal.shows("Less.");
    assert!(last_said(&world, 1).contains("fewer steps"), "{}", last_said(&world, 1));
    answers(&mut terminal, "1");
    terminal.settles("Done.");
    terminal.types(&format!("{CTRL_C}{CTRL_D}"));
    assert_eq!(terminal.ends(), Some(0));
    assert!(wire_text(&messages(&world.requests()[0])[0]).contains("Plan mode is on"));
    world.check();
}

#[test]
fn todo_list_is_shown_in_each_front() {
    let todo = |id: &str, status: &str| {
        call(id, "todo", &json!({ "items": [{ "text": "count the files", "status": status }] }))
    };
    let world = World::new([todo("a", "in_progress"), says("Printed.")]);
    let output = world.run(&["-p", "count"]).ok();
    assert!(output.err.contains("[>] count the files"), "{}", output.err);
    assert_eq!(output.text(), "Printed.\n");
    world.server.push(todo("b", "pending"));
    world.server.push(says("Events."));
    let events = world.run(&["-c", "-p", "--mode", "json", "again"]).ok().text();
    assert!(events.contains("[ ] count the files"), "{events}");
    // The list is there when the session is, and folds when all is done.
    world.server.push(todo("c", "done"));
    world.server.push(says("All counted."));
    let mut terminal = Terminal::open(&world, &["-c"]);
    terminal.shows("[ ] count the files");
    terminal.types("go on\r");
    terminal.settles("All counted.");
    terminal.hides("[ ] count the files");
    terminal.types(&format!("{CTRL_C}{CTRL_D}"));
    assert_eq!(terminal.ends(), Some(0));
    world.run(&["config", "set", "todo.tool", "false"]).ok();
    world.server.push(Answer::new().text("Without.").reply());
    world.run(&["-p", "new"]).ok();
    let request = world.requests().pop().unwrap();
    assert!(!String::from_utf8_lossy(&request.body).contains("\"todo\""));
    world.check();
}
