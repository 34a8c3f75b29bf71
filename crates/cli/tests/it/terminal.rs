//! `quipu` without arguments on a terminal: the real program on a pseudo-terminal, against the fake server.

mod linear;
mod oriented;
mod shown;

use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::Signal;
use quipu_testkit::{Answer, Gate, Reply};
use serde_json::json;

use crate::pty::{
    ALT_ENTER, ALT_UP, CTRL_C, CTRL_D, CTRL_L, ENTER, ESCAPE, PAGE_DOWN, PAGE_UP, SHIFT_TAB, Terminal, held,
    says,
};
use crate::support::{World, bash, messages, reached, wire_text};

#[test]
fn a_conversation() {
    let world = World::new([says("Hello **there**.\n\nSecond paragraph."), says("And again.")]);
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    terminal.types("say hello");
    terminal.shows("say hello");
    terminal.types(ENTER);
    terminal.shows("Second paragraph.");
    terminal.types("and then?\r");
    terminal.shows("And again.");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    assert_eq!(messages(&world.requests()[1]).len(), 3);
    terminal.shows("To continue: `quipu --session");
    assert_eq!(world.sessions().len(), 1);
}

#[test]
fn terminal_continues_a_session_and_exits_in_three_ways() {
    let world = World::new([says("One."), says("Two.")]);
    world.run(&["-p", "first"]).ok();
    for (args, leave) in [(&["-c"][..], "/quit\r"), (&["-c"], CTRL_D), (&["-c"], "\u{3}\u{3}")] {
        let mut terminal = Terminal::open(&world, args);
        terminal.shows("One.");
        terminal.types(leave);
        assert_eq!(terminal.ends(), Some(0));
    }
    let mut terminal = Terminal::open(&world, &["-c"]);
    terminal.shows("One.");
    terminal.types("second\r");
    terminal.shows("Two.");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    assert_eq!(messages(&world.requests()[1]).len(), 3);
    assert_eq!(world.sessions().len(), 1);
}

#[test]
fn without_a_terminal_it_says_what_to_do() {
    let world = World::new([]);
    let ran = world.run(&[]).fails(2, &["stdin is not a terminal", "give a task", "quipu -p", "quipu demo"]);
    assert!(ran.err.lines().count() < 4, "{}", ran.err);
    // A command that was mistyped, or that others have, is no task.
    for (word, meant) in
        [("sesions", "quipu sessions"), ("login", "quipu auth login"), ("serach", "quipu search")]
    {
        world.run(&[word]).fails(2, &["there is no command", meant, "quipu -p"]);
    }
    world.run(&["auth", "set", "antropic"]).fails(2, &["did you mean `anthropic`?"]);
    world.run(&["-p", "--model", "anthropc/claude", "x"]).fails(2, &["Did you mean anthropic/claude"]);
}

#[test]
fn messages_during_a_turn_steer_queue_and_are_taken_back() {
    let gate = Gate::new();
    let world = World::new([held("Working on it.", &gate), says("Steered."), says("Followed up.")]);
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    terminal.types("begin\r");
    reached(&gate);
    terminal.shows("Working on it.");
    terminal.types("turn left\r");
    terminal.shows("next: turn left");
    terminal.types(&format!("then stop{ALT_ENTER}"));
    terminal.shows("then: then stop");
    terminal.types(&format!("forget this{ALT_ENTER}"));
    terminal.shows("then: forget this");
    terminal.types(ALT_UP);
    terminal.hides("then: forget this");
    terminal.shows("forget this");
    gate.open();
    terminal.shows("Steered.");
    terminal.shows("Followed up.");
    terminal.types(&format!("{CTRL_C}{CTRL_D}"));
    assert_eq!(terminal.ends(), Some(0));
    let last = messages(&world.requests()[2]);
    let said: Vec<String> = last.iter().filter(|one| one["role"] == "user").map(wire_text).collect();
    assert_eq!(said, ["begin", "turn left", "then stop"]);
}

#[test]
fn escape_stops_it_and_gives_back_what_waits() {
    let gate = Gate::new();
    let world = World::new([held("Never ending", &gate), says("Fresh.")]);
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    terminal.types("begin\r");
    reached(&gate);
    terminal.types("something else\r");
    terminal.shows("next: something else");
    terminal.types(ESCAPE);
    terminal.shows("Stopped.");
    terminal.hides("next:");
    terminal.shows("something else");
    gate.open();
    terminal.types(ENTER);
    terminal.shows("Fresh.");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
fn terminal_asks_before_a_command_runs() {
    let world = World::new([bash("c1", "echo asked-and-run"), says("It ran.")]);
    let mut terminal = Terminal::open(&world, &["--permissions", "ask"]);
    terminal.shows("test-1");
    terminal.types("run it\r");
    terminal.shows("`bash`: Allow");
    terminal.shows("echo asked-and-run");
    terminal.shows("in this session");
    terminal.types("\u{1b}y");
    terminal.shows("It ran.");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    assert!(wire_text(&messages(&world.requests()[1])[2]).contains("asked-and-run"));
    assert!(terminal.bytes.windows(4).any(|part| part == b"\x1b]9;"), "nobody was told");
}

#[test]
fn long_question_is_allowed_only_after_its_last_row() {
    let command: String = (1..=202)
        .map(|at| if at == 101 { "touch payload\u{202e}\n".to_owned() } else { format!("true step-{at}\n") })
        .collect();
    let world = World::new([bash("c1", &command), says("It ran.")]);
    let mut terminal = Terminal::open(&world, &["--permissions", "ask"]);
    terminal.shows("test-1");
    terminal.types("run it\r");
    terminal.shows("of 202");
    for yes in ["\u{1b}y", "\u{1b}a", "\u{1b}s"] {
        terminal.types(yes);
        terminal.shows("Read it to the last row");
    }
    let mut found = false;
    for _ in 0..202 {
        let seen = terminal.seen();
        found |= seen.contains("touch payload\\u{202e}");
        if seen.contains("true step-202") {
            break;
        }
        let at = seen.split("rows ").nth(1).and_then(|rest| rest.split(' ').nth(2)).unwrap().to_owned();
        terminal.types(PAGE_DOWN);
        terminal.hides(&format!("to {at} of 202"));
    }
    assert!(found, "the middle was not shown");
    terminal.shows("PageUp, PageDown move");
    terminal.types("\u{1b}y");
    terminal.shows("It ran.");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    assert_eq!(world.requests().len(), 2);
}

#[test]
fn question_on_a_tiny_screen_shows_the_command_and_keys() {
    let world = World::new([bash("c1", "echo tiny-and-run"), says("It ran.")]);
    let mut terminal = Terminal::sized(&world, &["--permissions", "ask"], 20, 5);
    terminal.shows("test-1");
    terminal.types("run it\r");
    terminal.shows("echo tiny-and-run");
    // The words of the question have no room beside it.
    terminal.types(&PAGE_DOWN.repeat(8));
    terminal.shows(">y s a n");
    terminal.types(&PAGE_UP.repeat(8));
    terminal.shows("echo tiny-and-run");
    // What is written meanwhile is seen as well, and the keys that answer then.
    terminal.types("wait");
    terminal.shows("Alt+ y s a n");
    let shown = terminal.seen();
    assert!(shown.contains("echo tiny-and-run") && shown.contains("\nwait"), "{shown}");
    terminal.types("\u{1b}y");
    // Above the screen, mostly.
    terminal.tells(b"It ran.");
    terminal.types(&format!("{CTRL_C}{CTRL_D}"));
    assert_eq!(terminal.ends(), Some(0));
    assert!(wire_text(&messages(&world.requests()[1])[2]).contains("tiny-and-run"));
}

#[test]
fn keys_do_not_wait_while_a_permission_is_saved() {
    let world = World::new([bash("c1", "touch ran"), says("It ran.")]);
    let mut terminal = Terminal::open(&world, &["--permissions", "ask"]);
    terminal.shows("test-1");
    terminal.types("run it\r");
    terminal.shows("`bash`: Allow");
    let lock = std::fs::File::create(world.path("home/.quipu/permissions.lock")).unwrap();
    let held = Flock::lock(lock, FlockArg::LockExclusive).unwrap();
    terminal.types("\u{1b}a");
    terminal.hides("`bash`: Allow");
    terminal.types("meanwhile");
    terminal.shows("meanwhile");
    assert!(!world.path("work/ran").exists(), "it was not allowed yet");
    held.unlock().unwrap();
    terminal.shows("It ran.");
    assert!(world.path("work/ran").exists());
    terminal.shows("lists and revokes");
    terminal.types(&format!("{CTRL_C}{CTRL_D}"));
    assert_eq!(terminal.ends(), Some(0));
    assert!(world.run(&["permissions", "list"]).ok().text().contains("touch ran"));
}

#[test]
fn a_no_tells_the_model_why() {
    let world = World::new([bash("c1", "rm -rf everything"), says("As you wish.")]);
    let mut terminal = Terminal::open(&world, &["--permissions", "ask"]);
    terminal.shows("test-1");
    terminal.types("run it\r");
    terminal.shows("`bash`: Allow");
    terminal.types("\u{1b}n");
    terminal.shows("No, because");
    terminal.types("not today\r");
    terminal.shows("As you wish.");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    assert!(wire_text(&messages(&world.requests()[1])[2]).contains("not today"));
}

#[test]
fn the_tree_leads_back_and_the_text_comes_into_the_editor() {
    let world = World::new([says("First answer."), says("Second answer."), says("Other answer.")]);
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    terminal.types("first question\r");
    terminal.shows("First answer.");
    terminal.types("second question\r");
    terminal.settles("Second answer.");
    terminal.types("/tree\r");
    terminal.shows("type to search");
    terminal.shows("user first question");
    terminal.types("second question");
    terminal.shows("user second question");
    terminal.hides("user first question");
    terminal.types(ENTER);
    terminal.shows("Go there with the files");
    terminal.types(ENTER);
    terminal.shows("The session is now at");
    terminal.types("!\r");
    terminal.shows("second question!");
    terminal.shows("Other answer.");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    let said: Vec<String> = messages(&world.requests()[2]).iter().map(wire_text).collect();
    assert_eq!(said, ["first question", "First answer.", "second question!"]);
    assert_eq!(world.sessions().len(), 1);
}

#[test]
fn another_session_is_gone_on_with() {
    let world = World::new([says("About apples."), says("About pears."), says("More apples.")]);
    world.run(&["-p", "tell me of apples"]).ok();
    world.run(&["-p", "tell me of pears"]).ok();
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    terminal.types("/resume\r");
    terminal.shows("tell me of apples");
    terminal.types("apples");
    terminal.hides("tell me of pears");
    terminal.types(ENTER);
    terminal.shows("About apples.");
    terminal.types("more\r");
    terminal.shows("More apples.");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    assert_eq!(messages(&world.requests()[2]).len(), 3);
}

#[test]
fn cli_commands_print_in_the_terminal_and_move_the_session() {
    let world = World::new([says("One."), says("Two.")]);
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    terminal.types("first\r");
    terminal.settles("One.");
    terminal.types("/context\r");
    terminal.shows("/context ");
    terminal.shows("of 200");
    terminal.types("second\r");
    terminal.settles("Two.");
    // The second is given while the session is opened again behind the first.
    terminal.types("/undo\r/name a good name\r");
    terminal.shows("restores it");
    terminal.shows("The name of the session is changed");
    terminal.types("/nothing\r");
    terminal.shows("There is no /nothing");
    terminal.types(&format!("{CTRL_C}/help\r"));
    terminal.shows("Commands and keys");
    terminal.types(ESCAPE);
    terminal.hides("Commands and keys");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    assert_eq!(world.sessions()[0]["name"], "a good name");
    let roles: Vec<_> = messages(&world.requests()[1]).len().to_string().chars().collect();
    assert_eq!(roles, ['3']);
}

#[test]
fn shell_lines_run_and_reach_the_model_unless_hidden() {
    let world = World::new([says("I see.")]);
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    terminal.types("!echo seen-$((40+2))\r");
    terminal.shows("seen-42");
    terminal.hides("running");
    terminal.types("!!echo hidden-$((40+3))\r");
    terminal.shows("hidden-43");
    terminal.types("what was it?\r");
    terminal.shows("I see.");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    let said: String = messages(&world.requests()[0]).iter().map(wire_text).collect();
    assert!(said.contains("seen-42") && said.contains("what was it?") && !said.contains("hidden"), "{said}");
}

#[test]
fn models_and_thinking_change() {
    let world = World::new([says("One."), says("Two.")]);
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    terminal.types("first\r");
    terminal.settles("One.");
    terminal.types(CTRL_L);
    terminal.shows("testing/thinker");
    terminal.types("thinker\r");
    terminal.hides("testing/thinker");
    terminal.shows("thinker");
    terminal.types(SHIFT_TAB);
    terminal.shows("Thinking:");
    terminal.types("second\r");
    terminal.shows("Two.");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    let second = world.requests()[1].json();
    assert_eq!(second["model"], "thinker");
    assert_eq!(messages(&world.requests()[1]).len(), 3);
    assert_eq!(world.sessions().len(), 1);
}

#[test]
fn prompts_wait_while_it_compacts() {
    let gate = Gate::new();
    let notes = Answer::new().text("Notes of all that.");
    let world = World::new([
        says("A long answer. ".repeat(400).as_str()),
        says("A second answer. ".repeat(400).as_str()),
        Reply::sse("").then_gate(&gate).then(notes.stream()),
        says("Notes of the beginning of the turn."),
        says("After that."),
    ]);
    std::fs::write(
        world.path("home/.quipu/settings.json"),
        json!({ "compaction": { "reserveTokens": 1000, "keepRecentTokens": 501 }, "retry": { "baseDelayMs": 1 } }).to_string(),
    )
    .unwrap();
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    terminal.types("first\r");
    terminal.until("the end of the answer", |shown| {
        shown.contains("A long answer.") && !shown.contains("stops it")
    });
    terminal.types("second\r");
    terminal.until("the end of the second", |shown| {
        shown.contains("A second answer.") && !shown.contains("stops it")
    });
    terminal.types("/compact\r");
    reached(&gate);
    terminal.shows("compacting");
    terminal.types("and now?\r");
    terminal.shows("and now?");
    terminal
        .until("it waiting", |shown| shown.contains("next: and now?") || shown.contains("then: and now?"));
    gate.open();
    terminal.shows("After that.");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    // Of a summary in two calls, one is kept with the node.
    world.unchecked();
}

#[test]
fn a_draft_survives_a_kill() {
    let world = World::new([says("Hello.")]);
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    terminal.types("half a thou");
    terminal.shows("half a thou");
    // It is kept as soon as it is shown.
    terminal.keeps(&world, "half a thou");
    terminal.signal(Signal::SIGKILL);
    terminal.child.wait().unwrap();
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("half a thou");
    terminal.types("ght\r");
    terminal.shows("Hello.");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    assert_eq!(wire_text(&messages(&world.requests()[0])[0]), "half a thought");
}

#[test]
fn a_signal_leaves_the_terminal_as_it_was_and_the_session_whole() {
    let gate = Gate::new();
    let world = World::new([held("Streaming along", &gate), says("Still here.")]);
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    terminal.types("begin\r");
    reached(&gate);
    terminal.shows("Streaming along");
    terminal.signal(Signal::SIGTERM);
    assert_eq!(terminal.ends(), Some(143));
    gate.open();
    let mut terminal = Terminal::open(&world, &["-c"]);
    terminal.shows("begin");
    terminal.types("still there?\r");
    terminal.shows("Still here.");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
fn terminal_resize_during_a_stream_keeps_the_screen() {
    let gate = Gate::new();
    let text = "word ".repeat(200);
    let world = World::new([held(&text, &gate), says("Wide again.")]);
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    terminal.types("begin\r");
    reached(&gate);
    terminal.shows("word word");
    for (columns, rows) in [(20, 5), (1, 1), (200, 60), (60, 20)] {
        terminal.resize(columns, rows);
    }
    gate.open();
    terminal.until("the end of it", |shown| shown.contains("word word") && !shown.contains("stops it"));
    terminal.types("more\r");
    terminal.shows("Wide again.");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
fn a_session_that_is_open_elsewhere_says_so() {
    let world = World::new([says("One."), says("Branch.")]);
    let mut first = Terminal::open(&world, &[]);
    first.shows("test-1");
    first.types("begin\r");
    first.shows("One.");
    let mut second = Terminal::open(&world, &["-c"]);
    second.shows("to a branch of it");
    second.types("go on\r");
    second.shows("Branch.");
    second.types(CTRL_D);
    assert_eq!(second.ends(), Some(0));
    first.types(CTRL_D);
    assert_eq!(first.ends(), Some(0));
    assert_eq!(world.sessions().len(), 2);
}

#[test]
fn task_on_a_terminal_opens_it_and_is_sent() {
    let world = World::new([says("Done."), says("And that.")]);
    let mut terminal = Terminal::open(&world, &["fix it", "and that"]);
    terminal.shows("Done.");
    terminal.shows("And that.");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    let sent: Vec<String> =
        world.requests().iter().map(|asked| messages(asked).last().unwrap().to_string()).collect();
    assert!(sent[0].contains("fix it") && sent[1].contains("and that"), "{sent:?}");
}
