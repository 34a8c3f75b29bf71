//! The terminal in lines: for screen readers, and where nothing can be drawn.

use nix::sys::signal::Signal;
use quipu_testkit::{Answer, FakeServer, Gate, Reply};
use serde_json::json;

use crate::first_run;
use crate::pty::{CTRL_D, Terminal, held, says};
use crate::support::{KEY, World, bash, call, messages, reached, wire_text};

const DUMB: &[(&str, &str)] = &[("TERM", "dumb")];

impl Terminal {
    fn dumb(world: &World, args: &[&str]) -> Self {
        Self::telling(world, args, 200, 24, DUMB)
    }

    /// All that was written, with the line breaks that a program writes.
    fn transcript(&self) -> String {
        String::from_utf8_lossy(&self.bytes).replace("\r\n", "\n")
    }

    /// Waits until this was written behind what was written before.
    #[track_caller]
    fn hears(&mut self, from: usize, part: &str) {
        while !self.transcript()[from..].contains(part) {
            assert!(self.takes_more(), "{part:?} was not said:\n{}", &self.transcript()[from..]);
        }
    }

    /// Types a line and waits for what comes of it.
    #[track_caller]
    fn line(&mut self, line: &str, part: &str) {
        let from = self.transcript().len();
        self.types(&format!("{line}\n"));
        self.hears(from, part);
    }

    /// Answers a question, again where that came too early.
    #[track_caller]
    fn answer(&mut self, line: &str, part: &str) {
        let from = self.transcript().len();
        loop {
            let at = self.transcript().len();
            self.types(&format!("{line}\n"));
            while !self.transcript()[from..].contains(part) {
                if self.transcript()[at..].contains("answer again") {
                    break;
                }
                assert!(self.takes_more(), "{part:?} was not said:\n{}", &self.transcript()[from..]);
            }
            if self.transcript()[from..].contains(part) {
                return;
            }
        }
    }

    /// The number of the last row that holds this.
    #[track_caller]
    fn number(&self, text: &str) -> String {
        let said = self.transcript();
        let row =
            said.lines().rfind(|line| line.contains(text)).unwrap_or_else(|| panic!("no {text}: {said}"));
        row.split_once('.').unwrap().0.to_owned()
    }

    /// Nothing moved a cursor, erased anything, or was a sequence of any kind.
    #[track_caller]
    fn moved_nothing(&self) {
        let text = self.transcript();
        let moved = text.find(|letter: char| letter.is_control() && letter != '\n' && letter != '\x07');
        assert_eq!(moved, None, "{:?}", &text[moved.unwrap_or(0).saturating_sub(40)..]);
        for frame in ['─', '│', '›', '⠋', '▏'] {
            assert!(!text.contains(frame), "{frame} in {text}");
        }
    }
}

#[test]
fn a_whole_conversation_in_lines() {
    let world = World::new([
        says("Hello **there**.\n\n- one\n- two\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"),
        bash("c1", "echo asked-and-run"),
        says("It ran."),
        bash("c2", "rm -rf everything"),
        says("As you wish."),
        bash("c3", "echo third"),
        says("Third."),
    ]);
    let mut terminal = Terminal::dumb(&world, &["--permissions", "ask"]);
    terminal.hears(0, "by TERM");
    terminal.hears(0, "Session open. Model test-1, permissions ask, directory ");
    terminal.hears(0, "\nYou: ");
    terminal.line("say hello", "Working.\n");
    terminal.hears(0, "\nAgent:\nHello there.\n");
    terminal.hears(0, "\na: 1\nb: 2\n");
    terminal.hears(0, "b: 2\nYou: ");
    assert_eq!(terminal.transcript().matches("say hello").count(), 1, "{}", terminal.transcript());
    terminal.line("run it", "Needs an answer: `bash`: Allow");
    terminal.hears(0, "echo asked-and-run");
    terminal.hears(0, "1.  this time\n");
    terminal.hears(0, "4.  no\nAnswer: ");
    terminal.answer("1", "\nAgent:\nIt ran.\n");
    terminal.hears(0, "Command: echo asked-and-run\n  asked-and-run\n");
    terminal.line("run another", "Needs an answer");
    terminal.answer("no, not today", "\nAgent:\nAs you wish.\n");
    terminal.line("and a third", "Needs an answer");
    terminal.line("what is it for?", "the question still needs");
    terminal.answer("4", "Why not?");
    terminal.hears(0, "Reason: ");
    terminal.line("never mind", "Third.");
    terminal.line("/quit", "To continue: `quipu --session");
    assert_eq!(terminal.ends(), Some(0));
    terminal.moved_nothing();
    let said = |at: usize, message: usize| wire_text(&messages(&world.requests()[at])[message]);
    assert!(said(2, 4).contains("asked-and-run"));
    assert!(said(4, 8).contains("not today"), "{}", said(4, 8));
    assert!(said(6, 12).contains("never mind"), "{}", said(6, 12));
    // What was said before is told with who said it.
    let mut terminal = Terminal::dumb(&world, &["-c"]);
    terminal.hears(0, "You: say hello\n");
    terminal.hears(0, "\nAgent:\nHello there.\n");
    terminal.hears(0, "Third.");
    terminal.hears(0, "Session open.");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    terminal.moved_nothing();
}

#[test]
fn linear_mode_stops_steers_and_queues() {
    let gate = Gate::new();
    let world = World::new([held("Never ending.\n\nAnd more", &gate), says("Fresh."), says("Later.")]);
    let mut terminal = Terminal::dumb(&world, &[]);
    terminal.hears(0, "You: ");
    terminal.line("begin", "Working.");
    reached(&gate);
    terminal.hears(0, "Never ending.\n");
    terminal.line("turn left", "For the next turn: turn left\n");
    terminal.line("/later then stop", "For the end of the work: then stop\n");
    terminal.line("/unqueue", "Not sent: then stop\nEnter alone sends it");
    let from = terminal.transcript().len();
    terminal.signal(Signal::SIGINT);
    terminal.hears(from, "Stopped.");
    terminal.hears(from, "Not sent: turn left");
    terminal.hears(from, "You: ");
    gate.open();
    // The prompt is there again when the turn has ended.
    let prompts_after = |terminal: &mut Terminal, answer: &str| {
        let from = terminal.transcript().rfind(answer).unwrap();
        terminal.hears(from, "You: ");
    };
    terminal.line("", "Agent:\nFresh.");
    prompts_after(&mut terminal, "Fresh.");
    let from = terminal.transcript().len();
    terminal.line("one more", "Later.");
    prompts_after(&mut terminal, "Later.");
    terminal.signal(Signal::SIGINT);
    terminal.hears(from, "Ctrl-C again exits");
    terminal.signal(Signal::SIGINT);
    assert_eq!(terminal.ends(), Some(0));
    terminal.moved_nothing();
    let last = messages(&world.requests()[1]);
    assert!(wire_text(last.last().unwrap()).contains("turn left"), "{last:?}");
}

#[test]
fn lists_have_numbers_and_words_narrow_them() {
    let world =
        World::new([says("About apples."), says("About pears."), says("More apples."), says("Left.")]);
    world.run(&["-p", "tell me of apples"]).ok();
    world.run(&["-p", "tell me of pears"]).ok();
    let mut terminal = Terminal::dumb(&world, &[]);
    terminal.hears(0, "You: ");
    terminal.line("/resume", "Continue session: 2 to choose from.\n1. tell me of pears");
    terminal.hears(0, "Choose: ");
    terminal.line("apples", "Continue session with apples: 1 to choose from.\n1. tell me of apples");
    terminal.line("1", "About apples.");
    terminal.line("more", "More apples.");
    terminal.line("/tree", "Tree, default: 4 rows.\n1. ");
    terminal.hears(0, ", current node\n");
    terminal.line("p 1", "\nNode ");
    terminal.line("tell me", "Tree, default with tell me: ");
    terminal.line("1", "1. Go there");
    terminal.line("", "You: ");
    terminal.line("/context", "of 200");
    terminal.line("/model", "Model: 2 to choose from.");
    terminal.line("think", "1. testing/thinker");
    terminal.line("1", "Model thinker, thinking ");
    terminal.line("/model nobody", "Model with nobody: 0 to choose from.");
    terminal.line("", "You: ");
    terminal.line("/model think", "Model with think: 1 to choose from.\n1. testing/thinker");
    terminal.line("", "You: ");
    terminal.line("/nothing", "There is no /nothing");
    terminal.line("/help", "answers a question or selects a row of a list");
    terminal.line("/name a good name", "The name of the session is changed");
    terminal.line("!echo seen-$((40+2))", "Your command: echo seen-$((40+2))\n  seen-42\n");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    terminal.moved_nothing();
    assert_eq!(world.sessions()[0]["name"], "a good name");
    assert_eq!(messages(&world.requests()[2]).len(), 3);
}

#[test]
fn linear_paste_is_held_until_it_ends() {
    let world = World::new([says("Read."), says("Joined.")]);
    let mut terminal = Terminal::dumb(&world, &[]);
    terminal.hears(0, "You: ");
    terminal.types("first\nsecond\nthi");
    terminal.hears(0, "2 lines pasted");
    terminal.hears(0, "More: ");
    terminal.line("rd \u{1b}[A\u{1b}[Dline", "Read.");
    terminal.line("a line that \\", "More: ");
    terminal.line("goes on", "Joined.");
    terminal.types("\u{0}\u{1}\u{80}\u{ff}\u{1b}]0;x\u{7}\nand\nmore\n");
    terminal.hears(0, "3 lines pasted");
    terminal.signal(Signal::SIGINT);
    terminal.hears(0, "The pasted lines are discarded");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    let said = |at: usize| wire_text(messages(&world.requests()[at]).last().unwrap());
    assert_eq!(said(0), "first\nsecond\nthird line");
    assert_eq!(said(1), "a line that \ngoes on");
}

#[test]
fn a_flag_a_variable_and_a_setting_ask_for_it() {
    let world = World::new([]);
    let setting = |on: bool| {
        let text = json!({ "screenReader": on }).to_string();
        std::fs::write(world.path("home/.quipu/settings.json"), text).unwrap();
    };
    let by = |args: &[&str], value: &str, words: &str| {
        let env = [("QUIPU_SCREEN_READER", value)];
        let mut terminal = Terminal::telling(&world, args, 80, 24, &env);
        terminal.hears(0, words);
        terminal.hears(0, "You: ");
        terminal.types(CTRL_D);
        assert_eq!(terminal.ends(), Some(0));
        terminal.moved_nothing();
    };
    by(&["--screen-reader"], "0", "by --screen-reader.");
    by(&[], "1", "by QUIPU_SCREEN_READER.");
    setting(true);
    by(&[], "", "by screenReader in settings.json.");
    let mut terminal = Terminal::telling(&world, &[], 80, 24, &[("QUIPU_SCREEN_READER", "0")]);
    terminal.shows("test-1");
    assert!(String::from_utf8_lossy(&terminal.bytes).contains("\u{1b}[?2004h"));
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
fn without_a_key_one_is_taken_and_not_shown() {
    let world = first_run::world([says("yes")], &json!({}));
    first_run::keyless(&world, &world.server.url());
    let mut terminal = Terminal::dumb(&world, &[]);
    terminal.hears(0, "There is no credential for keyless");
    terminal.hears(0, "What now?: ");
    terminal.line("add a key", "1. Log in, or add a key");
    terminal.line("1", "A key for: ");
    terminal.line("keyless", "1. keyless");
    terminal.line("1", "API key for keyless");
    terminal.hears(0, "Key: ");
    terminal.line(KEY, "It works.");
    terminal.hears(0, "Session open. Model test-1");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    terminal.moved_nothing();
    assert!(!terminal.transcript().contains(KEY), "the key was shown");
    world.unchecked();
}

#[test]
fn a_long_answer_comes_by_its_parts_and_hostile_text_stays_text() {
    let gate = Gate::new();
    let answer = Answer::new().text("First part.\n\nSecond \u{1b}[2J\u{202e}part.\n\nThird");
    let begun = answer.unfinished();
    let rest = answer.stream()[begun.len()..].to_owned();
    let world = World::new([Reply::sse(begun).then_gate(&gate).then(rest)]);
    let mut terminal = Terminal::telling(&world, &[], 20, 5, DUMB);
    terminal.hears(0, "You: ");
    terminal.line("begin", "Agent:\nFirst part.\n");
    reached(&gate);
    terminal.hears(0, "Second ␛[2J\\u{202e}part.\n");
    for (columns, rows) in [(1, 1), (0, 0), (200, 60)] {
        terminal.resize(columns, rows);
    }
    gate.open();
    terminal.hears(0, "Third\n");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    terminal.moved_nothing();
}

#[test]
fn linear_shell_line_prints_output_once_and_its_end() {
    let world = World::new([says("I see.")]);
    let go = world.path("work/go");
    nix::unistd::mkfifo(&go, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut terminal = Terminal::dumb(&world, &[]);
    terminal.hears(0, "You: ");
    let line = "!seq -f row-%g 3; printf 'half '; read -r word < go; echo \"the word is $word\"; exit 3";
    terminal.line(line, "Running your command.\n");
    terminal.hears(0, "Your command: seq -f row-%g 3");
    terminal.hears(0, "  row-3\n");
    std::fs::write(&go, "fish\n").unwrap();
    terminal.hears(0, "  half the word is fish\n  exit code 3\nYou: ");
    for row in ["  row-1\n", "  row-2\n", "  row-3\n", "Your command: seq", "half the word is fish\n"] {
        assert_eq!(terminal.transcript().matches(row).count(), 1, "{row} in {}", terminal.transcript());
    }
    terminal.line("!true", "Your command: true\n  no output\nYou: ");
    terminal.line("!echo begun-$((40+2)); sleep 1000", "  begun-42\n");
    let from = terminal.transcript().len();
    terminal.signal(Signal::SIGINT);
    terminal.hears(from, "Not sent: !echo begun-$((40+2)); sleep 1000\n");
    terminal.hears(from, "  stopped\n");
    terminal.line("what was it?", "I see.");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    terminal.moved_nothing();
    let told = messages(&world.requests()[0]).iter().map(wire_text).collect::<Vec<_>>().join("\n");
    assert!(told.contains("row-2") && told.contains("the word is fish"), "{told}");
}

#[test]
fn linear_completions_and_sent_messages_are_lists() {
    let world = World::new([says("One."), says("Two.")]);
    let mut terminal = Terminal::dumb(&world, &[]);
    terminal.hears(0, "You: ");
    terminal.line("first of all", "One.");
    terminal.line("/export ?", "/export: ");
    terminal.hears(0, "html");
    terminal.hears(0, "Choose: ");
    let html = terminal.number("html");
    terminal.line(&html, "Not sent: /export html\nEnter alone sends it");
    let from = terminal.transcript().len();
    terminal.line("", "/export");
    terminal.hears(from, "You: ");
    terminal.line("/thinking ?", "Thinking: ");
    terminal.line("", "You: ");
    terminal.line("/history", "Sent before: ");
    terminal.hears(0, "Choose: ");
    let first = terminal.number(". first of all");
    terminal.line(&first, "Not sent: first of all\n");
    terminal.line("", "Two.");
    terminal.line("/settings", "Settings: ");
    terminal.line("", "You: ");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    terminal.moved_nothing();
    assert_eq!(wire_text(messages(&world.requests()[1]).last().unwrap()), "first of all");
    let files = std::fs::read_dir(world.path("work")).unwrap().flatten();
    assert_eq!(files.filter(|file| file.path().extension().is_some_and(|end| end == "html")).count(), 1);
}

#[test]
fn branches_are_compared_and_what_files_would_become_is_told() {
    let writes = |content: &str| call("c1", "write", &json!({ "path": "a.txt", "content": content }));
    let world = World::new([
        writes("one"),
        says("Wrote one."),
        writes("two"),
        says("Wrote two."),
        says("Went elsewhere."),
    ]);
    world.run(&["-p", "write one"]).ok();
    world.run(&["-p", "-c", "write two"]).ok();
    let mut terminal = Terminal::dumb(&world, &["-c"]);
    terminal.hears(0, "You: ");
    let tree = |terminal: &mut Terminal| {
        let from = terminal.transcript().len();
        terminal.line("/tree", "Tree, default: ");
        terminal.hears(from, "Choose: ");
    };
    let foresee = |terminal: &mut Terminal| {
        tree(terminal);
        let row = terminal.number("user write two");
        terminal.line(&row, "Go there with the files");
        let files = terminal.number("Go there with the files");
        terminal.line(&files, "Files that would change:\n");
        terminal.hears(0, "~ a.txt");
        terminal.hears(0, "Enter alone cancels.\nAnswer: ");
    };
    foresee(&mut terminal);
    terminal.line("what?", "Files that would change:\n");
    terminal.line("", "You: ");
    assert_eq!(std::fs::read(world.path("work/a.txt")).unwrap(), b"two");
    foresee(&mut terminal);
    terminal.line("y", "The session is now at ");
    terminal.hears(0, "Not sent: write two\n");
    assert_eq!(std::fs::read(world.path("work/a.txt")).unwrap(), b"one");
    terminal.line("go elsewhere", "Went elsewhere.");
    tree(&mut terminal);
    let (here, there) = (terminal.number("Went elsewhere."), terminal.number("Wrote two."));
    terminal.line(&format!("c {here}"), ", to be compared\n");
    terminal.line(&format!("c {there}"), "Two branches:\n");
    terminal.hears(0, "Enter goes back to the tree.\nChoose: ");
    let said = terminal.transcript();
    let compared = said.split("Two branches:\n").nth(1).unwrap();
    assert!(compared.contains("common ancestor") && compared.contains("go elsewhere"), "{compared}");
    terminal.line("", "Tree, default: ");
    terminal.line("", "You: ");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    terminal.moved_nothing();
}

#[test]
fn servers_that_are_found_come_behind_what_was_listed() {
    let list = json!({ "object": "list", "data": [{ "id": "small:1b" }] }).to_string();
    let list = || Reply::new(200, "application/json", list.clone());
    let server = FakeServer::start([list(), list()]);
    let world = first_run::world([], &json!({ "mine": format!("{}/v1", server.url()) }));
    let mut terminal = Terminal::dumb(&world, &[]);
    terminal.hears(0, "What now?: 5 to choose from.\n1. Log in, or add a key");
    terminal.hears(0, "What now?: 6 to choose from.\n1. Log in, or add a key");
    terminal.hears(0, "6. Use small:1b of mine");
    terminal.line("6", "Session open. Model small:1b");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    terminal.moved_nothing();
}
