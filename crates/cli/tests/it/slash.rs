//! The commands of the terminal that begin with a slash, and the keys that are like them.

use std::time::{Duration, Instant};

use base64::Engine as _;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use quipu_testkit::{Answer, Gate, Reply};
use serde_json::{Value, json};

use crate::archive::{ID, conversation, lines};
use crate::pty::{CTRL_C, CTRL_D, ENTER, ESCAPE, Terminal, held, says};
use crate::support::*;

const CTRL_G: &str = "\u{7}";
const CTRL_P: &str = "\u{10}";
const CTRL_V: &str = "\u{16}";
const CTRL_X: &str = "\u{18}";
const CTRL_Z: &str = "\u{1a}";
const DOWN: &str = "\u{1b}[B";
const TAB: &str = "\t";

/// A terminal in which these were said and answered.
pub(crate) fn after(world: &World, prompts: &[&str]) -> Terminal {
    let mut terminal = Terminal::open(world, &[]);
    terminal.shows("test-1");
    for (at, text) in prompts.iter().enumerate() {
        terminal.types(&format!("{text}\r"));
        terminal.settles(&format!("Answer {}.", at + 1));
    }
    terminal
}

pub(crate) fn answers(count: usize) -> World {
    World::new((1..=count).map(|at| says(&format!("Answer {at}."))))
}

pub(crate) fn leave(mut terminal: Terminal) {
    // A list, the text, and then the terminal.
    terminal.types(&format!("{CTRL_C}{CTRL_C}{CTRL_D}"));
    assert_eq!(terminal.ends(), Some(0));
}

fn said(world: &World, request: usize) -> Vec<String> {
    messages(&world.requests()[request]).iter().map(wire_text).collect()
}

#[test]
fn fork_goes_on_from_before_a_message_that_is_chosen() {
    let world = answers(3);
    let mut terminal = after(&world, &["first question", "second question"]);
    terminal.types("/fork\r");
    terminal.shows("Start a new session just before");
    terminal.types("second");
    terminal.until("one message", |shown| shown.contains("1 of 1"));
    terminal.types(ENTER);
    terminal.until("the message in the editor", |shown| {
        shown.lines().any(|line| line.trim_end() == "second question")
    });
    terminal.types(" in other words\r");
    terminal.settles("Answer 3.");
    leave(terminal);
    assert_eq!(said(&world, 2), ["first question", "Answer 1.", "second question in other words"]);
    assert_eq!(world.sessions().len(), 2);
}

#[test]
fn demo_says_nothing_past_the_terminal() {
    let world = World::new([]);
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    terminal.types("/demo\r");
    terminal.shows("Every step is a node of the graph");
    terminal.until("the end of the demo", |shown| shown.contains("quipu sessions --all"));
    // Notes stand between the answers, where they were printed.
    let shown = terminal.lines().join("\n");
    let place = |text: &str| shown.find(text).unwrap_or_else(|| panic!("no {text:?} in {shown}"));
    assert!(place("• edit discount.sh") > place("The discount is subtracted"), "{shown}");
    assert!(place("• edit discount.sh") < place("Now the test again."), "{shown}");
    // What is written past the drawing ends its lines in a way of its own.
    let bytes = String::from_utf8_lossy(&terminal.bytes).into_owned();
    let answers = bytes.match_indices("I will run the test first");
    let ends = answers.map(|(at, _)| bytes[at..].chars().find(|letter| letter.is_control()));
    let ends: Vec<_> = ends.collect();
    assert!(!ends.is_empty() && ends.iter().all(|end| *end != Some('\n')), "{ends:?}");
    leave(terminal);
}

#[test]
fn fork_offers_what_was_said_as_it_is_typed() {
    let world = answers(3);
    let mut terminal = after(&world, &["first question", "second question"]);
    terminal.types("/fork sec");
    terminal.until("what was said", |shown| shown.matches("second question").count() > 1);
    terminal.types(ENTER);
    terminal.until("the message in the editor", |shown| {
        shown.lines().any(|line| line.trim_end() == "second question")
    });
    terminal.types("!\r");
    terminal.settles("Answer 3.");
    leave(terminal);
    assert_eq!(said(&world, 2).last().unwrap(), "second question!");
}

#[test]
fn clone_goes_on_with_the_same_past() {
    let world = answers(2);
    let mut terminal = after(&world, &["first question"]);
    terminal.types("/clone\r");
    terminal.until("the clone", |shown| shown.matches("Answer 1.").count() == 2);
    terminal.types("again\r");
    terminal.settles("Answer 2.");
    leave(terminal);
    assert_eq!(said(&world, 1), ["first question", "Answer 1.", "again"]);
    assert_eq!(world.sessions().len(), 2);
}

#[test]
fn undo_and_redo_take_steps() {
    let world = answers(4);
    let mut terminal = after(&world, &["one", "two", "three"]);
    terminal.types("/undo ");
    terminal.until("the steps", |shown| {
        ["› 1", "Answer 2.", "Answer 1."].iter().all(|words| shown.contains(words))
            && shown.contains("turn, to ")
    });
    terminal.types("2\r");
    terminal.shows("restores it");
    terminal.hides("opening the session");
    terminal.types("/redo\r");
    terminal.shows("redone");
    terminal.hides("opening the session");
    terminal.types("four\r");
    terminal.settles("Answer 4.");
    leave(terminal);
    assert_eq!(said(&world, 3), ["one", "Answer 1.", "two", "Answer 2.", "four"]);
}

#[test]
fn undo_without_anything_to_undo_says_so() {
    let world = answers(0);
    let mut terminal = Terminal::sized(&world, &[], 100, 60);
    terminal.shows("test-1");
    let commands =
        ["/undo", "/redo", "/fork", "/clone", "/label x", "/name x", "/recall", "/context", "/export"];
    for (at, command) in commands.iter().enumerate() {
        terminal.types(&format!("{command}\r"));
        let told = "This session has no messages yet";
        terminal.until(command, |shown| shown.matches(told).count() == at + 1);
    }
    leave(terminal);
}

#[test]
fn bookmarks_are_set_listed_and_offered() {
    let world = answers(1);
    let mut terminal = after(&world, &["first"]);
    terminal.types("/bookmark good-place\r");
    terminal.shows("`good-place` names");
    terminal.types("/bookmark\r");
    terminal.until("the list", |shown| shown.matches("good-place").count() >= 3);
    terminal.types("/bookmark goo");
    terminal.until("the offer", |shown| shown.contains("› good-place"));
    leave(terminal);
    assert_eq!(world.run(&["bookmark", "--json"]).ok().json_lines()[0]["name"], "good-place");
}

#[test]
fn a_label_is_seen_in_the_tree_and_leads_back() {
    let world = answers(2);
    let mut terminal = after(&world, &["first"]);
    terminal.types("/label before the storm\r");
    terminal.shows("The label is changed");
    terminal.hides("opening the session");
    terminal.types("/tree\r");
    terminal.shows("[before the storm]");
    terminal.types(ESCAPE);
    terminal.hides("[before the storm]");
    // What has a label is offered where a node is wanted.
    terminal.types("/recall bef");
    terminal.shows("› before the storm");
    terminal.types(ENTER);
    terminal.shows("/recall ");
    terminal.shows("Answer 1.");
    leave(terminal);
}

#[test]
fn slash_search_recall_and_tree_show_messages() {
    let world = answers(2);
    let mut terminal = after(&world, &["tell me of quinces", "and of medlars"]);
    // The index of the search follows what is said.
    let until = Instant::now() + Duration::from_secs(60);
    while !world.run(&["search", "quinces"]).text().contains("quinces") {
        assert!(Instant::now() < until, "it is not indexed");
    }
    // What is found is read here, or gone on from.
    terminal.types("/search quinces\r");
    terminal.shows("Found for quinces");
    terminal.shows("user: tell me of quinces");
    terminal.types(ENTER);
    terminal.shows("Read it here");
    terminal.types(ENTER);
    terminal.until("the node in full", |shown| shown.contains("/recall ") && shown.contains("quinces"));
    terminal.types("/search --role user tell\r");
    terminal.shows("user: tell me of quinces");
    terminal.types("qui\r");
    terminal.types("a new session\r");
    terminal.until("the text in the editor", |shown| shown.contains("\ntell me of quinces\n"));
    terminal.hides("opening the session");
    terminal.types("\u{3}/search nothing-like-it\r");
    terminal.shows("Nothing was found.");
    terminal.types("/search --no-such-flag x\r");
    terminal.shows("--no-such-flag");
    terminal.types("/search\r");
    terminal.shows("Search for");
    terminal.types("medlars\r");
    terminal.shows("user: and of medlars");
    terminal.types(ENTER);
    terminal.shows("Continue that session");
    // What is asked of a session while it is opened is answered of that one.
    terminal.types("continue that\r/recall\r");
    terminal.until("the node in full", |shown| {
        shown.contains("/recall ") && shown.matches("Answer 2.").count() >= 2
    });
    terminal.types("/life\r");
    terminal.until("the graph", |shown| shown.contains("/life ") && shown.contains("medlars"));
    leave(terminal);
}

#[test]
fn usage_context_and_permissions_are_printed() {
    let world = answers(1);
    let mut terminal = after(&world, &["first"]);
    terminal.types("/usage --by mod");
    terminal.shows("› --by model");
    terminal.types(ENTER);
    terminal.shows("/usage --by model");
    terminal.until("the usage", |shown| shown.matches("test-1").count() >= 2);
    terminal.types("/context\r");
    terminal.shows("of 200");
    terminal.types("/permissions wor");
    terminal.shows("› workspace");
    terminal.types(ENTER);
    terminal.shows("/permissions workspace");
    terminal.types("/permissions\r");
    terminal.until("the permissions", |shown| shown.matches("workspace").count() >= 2);
    leave(terminal);
}

#[test]
fn export_writes_a_new_file_in_each_format_and_never_over_one() {
    let world = answers(1);
    let mut terminal = after(&world, &["first"]);
    for (format, file) in [("markdown", "a.md"), ("html", "b.html"), ("json", "c.json"), ("pi", "d.jsonl")] {
        terminal.types(&format!("/export {format} {file}\r"));
        terminal.until("the end of it", |shown| shown.contains(&format!("-o {file}")));
        terminal.types("/export ");
        terminal.shows("› markdown");
        terminal.types(&format!("{CTRL_C}{CTRL_C}"));
        terminal.hides("› markdown");
        assert!(std::fs::metadata(world.path("work").join(file)).unwrap().len() > 20, "{file}");
    }
    let before = std::fs::read(world.path("work/a.md")).unwrap();
    terminal.types("/export markdown a.md\r");
    terminal.shows("exists");
    leave(terminal);
    assert_eq!(std::fs::read(world.path("work/a.md")).unwrap(), before);
    assert!(String::from_utf8(before).unwrap().contains("Answer 1."));
}

#[test]
fn copy_puts_the_last_answer_on_the_clipboard() {
    let world = answers(1);
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    terminal.types("/copy\r");
    terminal.shows("There is no answer yet");
    terminal.types("first\r");
    terminal.settles("Answer 1.");
    let wanted = base64::engine::general_purpose::STANDARD.encode("Answer 1.");
    for ask in ["/copy\r", CTRL_X] {
        terminal.bytes.clear();
        terminal.types(ask);
        terminal.shows("on the clipboard");
        assert!(contains(&terminal.bytes, format!("52;c;{wanted}").as_bytes()), "{ask:?}");
        terminal.types("x\u{7f}");
        terminal.hides("on the clipboard");
    }
    leave(terminal);
}

/// The command with an editor that is this script.
pub(crate) fn with_editor(world: &World, script: &str, args: &[&str]) -> Terminal {
    let path = world.path("editor.sh");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    set_mode(&path, 0o700);
    let mut command = world.quipu(args);
    command.env("EDITOR", &path);
    Terminal::start(command, 100, 30)
}

#[test]
fn the_external_editor_writes_the_prompt() {
    let world = answers(1);
    let mut terminal = with_editor(&world, "cat \"$1\"; printf ' and a second' >> \"$1\"", &[]);
    terminal.shows("test-1");
    terminal.types("the first line");
    terminal.shows("the first line");
    terminal.types(CTRL_G);
    terminal.shows("the first line and a second");
    terminal.types(ENTER);
    terminal.settles("Answer 1.");
    leave(terminal);
    assert_eq!(said(&world, 0), ["the first line and a second"]);
}

#[test]
fn an_editor_that_fails_leaves_what_was_written() {
    let world = answers(0);
    let mut terminal = with_editor(&world, "exit 3", &[]);
    terminal.shows("test-1");
    terminal.types("precious");
    terminal.shows("precious");
    terminal.types(CTRL_G);
    terminal.shows("The editor could not be used.");
    terminal.shows("precious");
    leave(terminal);
}

#[test]
fn suspended_terminal_resumes_with_the_shell() {
    let world = answers(1);
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    terminal.types("half");
    terminal.shows("half");
    let pid = Pid::from_raw(terminal.child.id().cast_signed());
    for times in 1..=2 {
        terminal.types(CTRL_Z);
        let stopped = waitpid(pid, Some(WaitPidFlag::WUNTRACED)).unwrap();
        assert!(matches!(stopped, WaitStatus::Stopped(..)), "{stopped:?}");
        assert!(terminal.is_restored(), "the shell has no terminal");
        terminal.signal(Signal::SIGCONT);
        terminal.until("the editor again", |shown| shown.matches("test-1").count() > times);
        terminal.types("+");
        let text = format!("half{}", "+".repeat(times));
        terminal.until(&text, |shown| shown.lines().any(|line| line.trim_end() == text));
    }
    terminal.types(ENTER);
    terminal.settles("Answer 1.");
    leave(terminal);
    assert_eq!(said(&world, 0), ["half++"]);
}

fn settings(world: &World) -> Value {
    serde_json::from_slice(&std::fs::read(world.path("home/.quipu/settings.json")).unwrap()).unwrap()
}

#[test]
fn settings_are_chosen_written_and_edited() {
    let world = answers(2);
    let script = "printf '{\"compaction\":{\"enabled\":true}}' > \"$1\"";
    let mut terminal = with_editor(&world, script, &[]);
    terminal.shows("test-1");
    terminal.types("/settings\r");
    terminal.shows("type to filter");
    terminal.types("retry base");
    terminal.shows("now 1 (your settings.j");
    terminal.types(&"\u{7f}".repeat(10));
    terminal.types("prune false");
    terminal.shows("current value (built-in)");
    terminal.types(ENTER);
    terminal.shows("context.prune.enabled is now false");
    terminal.hides("opening the session");
    // The rest stands as it was.
    assert_eq!(
        settings(&world),
        json!({ "retry": { "baseDelayMs": 1 }, "context": { "prune": { "enabled": false } } })
    );
    terminal.types("/settings compaction.reserveTokens 2000\r");
    terminal.shows("compaction.reserveTokens is now 2000");
    terminal.hides("opening the session");
    assert_eq!(settings(&world)["compaction"]["reserveTokens"], 2000);
    for (at, wrong) in
        ["compaction.reserveTokens many", "nothing.known 1", "search.tool perhaps"].iter().enumerate()
    {
        terminal.types(&format!("/settings {wrong}\r"));
        terminal.until(wrong, |shown| shown.matches("That did not work.").count() == at + 1);
    }
    let before = settings(&world);
    // A number is asked for in the editor.
    terminal.types("/settings\r");
    terminal.shows("type to filter");
    terminal.types("keepRecent\r");
    terminal.shows("/settings compaction.keepRecentTokens");
    terminal.types(CTRL_C);
    assert_eq!(settings(&world), before);
    terminal.types("/settings\r");
    terminal.shows("type to filter");
    terminal.types(ENTER);
    terminal.shows("The settings are in effect");
    terminal.types("done\r");
    terminal.settles("Answer 1.");
    leave(terminal);
    assert_eq!(settings(&world), json!({ "compaction": { "enabled": true } }));
}

#[test]
fn login_offers_providers_and_checks_the_key() {
    let world = World::new([Answer::new().text("yes").reply()]);
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    terminal.types("/login testi");
    terminal.shows("› testing");
    terminal.types(ENTER);
    terminal.shows("API key for testing");
    terminal.types(&format!("{KEY}\r"));
    terminal.shows("It works.");
    assert!(!contains(&terminal.bytes, KEY.as_bytes()), "the key was shown");
    leave(terminal);
    assert_eq!(mode(&world.path("home/.quipu/auth.json")), 0o600);
    world.unchecked();
}

#[test]
fn import_takes_sessions_in_and_resume_goes_on_with_one() {
    let world = answers(1);
    world.file("session.jsonl", lines(&conversation(&world, ID)));
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    terminal.types("/import pi session.jsonl\r");
    // What it prints stands above a status that is drawn again.
    terminal.until("the end of it", |shown| {
        shown.split_once("9 added").is_some_and(|(_, after)| after.contains("test-1"))
    });
    terminal.types("/resume Which\r");
    terminal.shows("Right it is.");
    terminal.shows("this conversation continues");
    terminal.types("on\r");
    terminal.settles("Answer 1.");
    leave(terminal);
    assert_eq!(said(&world, 0), ["Which way?", "Left or right.", "Right.", "Right it is.", "on"]);
    assert_eq!(world.run(&["export", "--format", "pi", ID]).ok().json_lines(), conversation(&world, ID));
}

#[test]
fn resume_offers_sessions_as_they_are_typed() {
    let world = answers(3);
    world.run(&["-p", "about apples"]).ok();
    world.run(&["-p", "about pears"]).ok();
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    terminal.types("/resume appl");
    terminal.shows("› about apples");
    terminal.types(ENTER);
    terminal.shows("Answer 1.");
    terminal.types("more\r");
    terminal.settles("Answer 3.");
    leave(terminal);
    assert_eq!(said(&world, 2), ["about apples", "Answer 1.", "more"]);
}

#[test]
fn models_are_offered_cycled_and_recorded_where_they_begin() {
    let world = World::new((1..=3).map(|at| says(&format!("Answer {at}."))));
    let mut terminal = after(&world, &["one"]);
    terminal.types("/model think");
    terminal.shows("› testing/thinker");
    terminal.types(ENTER);
    terminal.until("the model", |shown| !shown.contains("/model") && shown.contains("thinker"));
    terminal.types("/thinking hi");
    terminal.shows("› high");
    terminal.types(ENTER);
    terminal.until("the level", |shown| !shown.contains("/thinking") && shown.contains("high"));
    terminal.types("two\r");
    terminal.settles("Answer 2.");
    terminal.types(CTRL_P);
    terminal.shows("Model: testing/test-1");
    terminal.types("three\r");
    terminal.settles("Answer 3.");
    leave(terminal);
    let models: Vec<Value> = world.requests().iter().map(|request| request.json()["model"].clone()).collect();
    assert_eq!(models, ["test-1", "thinker", "test-1"]);
    assert_eq!(world.sessions().len(), 1, "it stays one session");
    // Recorded where it was chosen, and in words of the format that others read.
    let id = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    let lines = world.run(&["export", "--format", "pi", &id]).ok().json_lines();
    let kinds: Vec<String> = lines
        .iter()
        .map(|line| match line["type"].as_str().unwrap() {
            "model_change" => format!("model {}", line["modelId"].as_str().unwrap()),
            "thinking_level_change" => format!("thinking {}", line["thinkingLevel"].as_str().unwrap()),
            "message" => line["message"]["role"].as_str().unwrap().to_owned(),
            other => other.to_owned(),
        })
        .collect();
    let expect = [
        "session",
        "model test-1",
        "thinking off",
        "user",
        "assistant",
        "model thinker",
        "thinking high",
        "user",
        "assistant",
        "model test-1",
        "thinking off",
        "user",
        "assistant",
    ];
    assert_eq!(kinds, expect);
}

#[test]
fn model_keys_cycle_through_enabled_models() {
    let world = answers(2);
    let enabled = |names: Value| {
        let text = json!({ "retry": { "baseDelayMs": 1 }, "enabledModels": names }).to_string();
        std::fs::write(world.path("home/.quipu/settings.json"), text).unwrap();
    };
    // The model has no such level: the one that it gets is shown.
    enabled(json!(["testing/think*:max", "nobody", "test-1"]));
    let mut terminal = after(&world, &["one"]);
    terminal.types(CTRL_P);
    terminal.shows("Model: testing/thinker, thinking high");
    terminal.types(CTRL_P);
    terminal.shows("Model: testing/test-1");
    // The order of the setting, from its end to its beginning.
    terminal.types(CTRL_P);
    terminal.shows("Model: testing/thinker");
    terminal.types("two\r");
    terminal.settles("Answer 2.");
    enabled(json!(["thinker"]));
    terminal.types(CTRL_P);
    terminal.shows("There is no other model");
    enabled(json!(["nobody/*"]));
    terminal.types(CTRL_P);
    terminal.shows("names no usable model: nobody/*");
    enabled(json!("thinker"));
    terminal.types(CTRL_P);
    terminal.shows("must be a list of names");
    leave(terminal);
    assert_eq!(world.requests()[1].json()["model"], "thinker");
}

#[test]
fn slash_diff_offers_branches_and_compares_with_the_head() {
    let world = answers(3);
    let mut terminal = after(&world, &["one", "two"]);
    terminal.types("/undo\r");
    terminal.shows("restores it");
    terminal.hides("opening the session");
    terminal.types("three\r");
    terminal.settles("Answer 3.");
    terminal.types("/diff branch");
    terminal.shows("› branch that ends with");
    // The newest end is where it stands; the one behind it is what was taken back.
    terminal.types(DOWN);
    terminal.until("the other branch", |shown| {
        shown
            .lines()
            .skip_while(|line| !line.contains("branch that ends"))
            .nth(1)
            .is_some_and(|line| line.contains('›'))
    });
    terminal.types(ENTER);
    terminal.until("both", |shown| {
        shown.split_once("/diff ").is_some_and(|(_, below)| below.contains("two") && below.contains("three"))
    });
    leave(terminal);
}

#[test]
fn life_and_import_offer_what_may_follow() {
    let world = answers(2);
    world.file("session.jsonl", lines(&conversation(&world, ID)));
    let mut terminal = after(&world, &["about quinces", "about medlars"]);
    terminal.types("/life quin");
    terminal.shows("› about quinces");
    terminal.types(ENTER);
    terminal.until("the graph", |shown| {
        shown.split_once("/life ").is_some_and(|(_, below)| below.contains("about quinces"))
    });
    terminal.types("/import p");
    terminal.shows("› pi");
    // What is taken can be gone on with.
    terminal.types(TAB);
    terminal.until("the agent", |shown| shown.lines().any(|line| line.trim_end() == "/import pi"));
    terminal.types(" session.jsonl\r");
    terminal.until("the end of it", |shown| {
        shown.split_once("9 added").is_some_and(|(_, after)| after.contains("test-1"))
    });
    leave(terminal);
    assert_eq!(world.sessions().len(), 2);
}

#[test]
fn a_model_that_is_chosen_while_it_works_answers_the_next_turn() {
    let gate = Gate::new();
    let world = World::new([held("Answer 1.", &gate), says("Answer 2.")]);
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    terminal.types("one\r");
    reached(&gate);
    terminal.shows("Answer 1");
    terminal.types("/model testing/thinker\r");
    terminal.shows("From the next turn");
    terminal.types("two\r");
    terminal.shows("next: two");
    gate.open();
    terminal.settles("Answer 2.");
    leave(terminal);
    assert_eq!(world.requests()[1].json()["model"], "thinker");
    assert_eq!(world.sessions().len(), 1);
}

#[test]
fn a_model_that_is_none_is_told_and_all_stays_as_it_is() {
    let world = answers(2);
    let mut terminal = after(&world, &["one"]);
    terminal.types("/model nobody/nothing\r");
    terminal.shows("The session did not change.");
    terminal.types("two\r");
    terminal.settles("Answer 2.");
    leave(terminal);
    assert_eq!(world.requests()[1].json()["model"], MODEL);
}

#[test]
fn compact_sums_up_with_a_focus_once_the_work_is_done() {
    let gate = Gate::new();
    let second = Answer::new().text(&"Answer 2. ".repeat(900));
    let world = World::new([
        says("Answer 1. ".repeat(900).as_str()),
        Reply::sse("").then_gate(&gate).then(second.stream()),
        says("Notes."),
        says("Notes of the turn."),
        says("Answer 3."),
    ]);
    let text = json!({ "compaction": { "reserveTokens": 1000, "keepRecentTokens": 501 } }).to_string();
    std::fs::write(world.path("home/.quipu/settings.json"), text).unwrap();
    let mut terminal = after(&world, &["one"]);
    terminal.types("two\r");
    reached(&gate);
    terminal.types("/compact the weather above all\r");
    terminal.shows("The context is compacted when the work is done");
    gate.open();
    terminal
        .until("the end of it", |shown| shown.contains("Context compacted") && !shown.contains("stops it"));
    leave(terminal);
    let asked = String::from_utf8_lossy(&world.requests()[2].body).into_owned();
    assert!(asked.contains("the weather above all"), "{asked}");
    world.unchecked();
}

#[test]
fn completion_is_chosen_with_arrows_and_taken_with_tab() {
    let world = answers(0);
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    terminal.types("/export ");
    terminal.shows("› markdown");
    terminal.types(DOWN);
    terminal.shows("› html");
    terminal.types(TAB);
    terminal.shows("/export html");
    leave(terminal);
}

#[test]
fn clipboard_image_becomes_a_file_path_in_the_editor() {
    use std::os::unix::ffi::OsStrExt as _;

    let world = answers(1);
    let image = b"\x89PNG\r\n\x1a\nand so on";
    std::fs::write(world.path("image"), image).unwrap();
    let programs = world.path("programs");
    std::fs::create_dir(&programs).unwrap();
    let program = programs.join("wl-paste");
    std::fs::write(&program, format!("#!/bin/sh\nexec cat '{}'\n", world.path("image").display())).unwrap();
    set_mode(&program, 0o755);
    let path = std::env::join_paths(
        std::iter::once(programs).chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
    )
    .unwrap();
    let mut command = world.quipu(&[]);
    command.env("PATH", &path).env("WAYLAND_DISPLAY", "wayland-0").env("TMPDIR", world.path("work"));
    let mut terminal = Terminal::start(command, 200, 24);
    terminal.shows("test-1");
    terminal.types("see ");
    terminal.shows("see");
    terminal.types(CTRL_V);
    terminal.shows(".png");
    terminal.types(ENTER);
    terminal.settles("Answer 1.");
    leave(terminal);
    let said = said(&world, 0).remove(0);
    // What is no image that can be read stays a file.
    let path = said.strip_prefix("see @").unwrap().lines().next().unwrap();
    let file = std::path::Path::new(path);
    assert!(file.as_os_str().as_bytes().ends_with(b".png"), "{said}");
    assert_eq!(std::fs::read(file).unwrap(), image);
    assert_eq!(mode(file), 0o600);
}
