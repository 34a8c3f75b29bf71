//! What is typed and said in the terminal is never lost: killed, twice at once, on a full disk, with the window gone.

use std::path::Path;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use quipu_testkit::{Gate, Reply};

use crate::pty::{ALT_ENTER, ALT_UP, CTRL_C, CTRL_D, ENTER, Terminal, UP, held, says};
use crate::support::{World, messages, mode, reached, wire_text};

const SECRET: &str = "ghp_Zk3vQ9xT1mB7cR5nW8yL2dF6hJ4pS0aGuE1o";

/// All that stands in files below a directory.
fn kept(directory: &Path) -> Vec<(std::path::PathBuf, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(kept(&path));
        } else {
            found.push((path.clone(), String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned()));
        }
    }
    found
}

#[test]
fn terminal_files_are_sealed_and_private() {
    let world = World::new([says("As you say.")]);
    let home = world.path("home/.quipu");
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    terminal.types(&format!("keep {SECRET} and {}", crate::support::KEY));
    terminal.shows("cdef");
    terminal.keeps(&world, "and [REDACTED:credential:");
    terminal.dies();
    let drafts = kept(&home.join("drafts"));
    assert!(drafts.iter().any(|(_, text)| text.contains("keep [REDACTED:github-token:")), "{drafts:?}");
    assert_eq!(mode(&home.join("drafts")), 0o700);
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("keep [REDACTED:github-token:");
    terminal.types(&format!("{CTRL_C}again {SECRET}"));
    terminal.shows("aGuE1o");
    terminal.types(ENTER);
    terminal.settles("As you say.");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    let history = std::fs::read_to_string(home.join("history.jsonl")).unwrap();
    assert!(history.contains("again [REDACTED:github-token:"), "{history}");
    for (path, text) in drafts.iter().cloned().chain(kept(&home)) {
        if path.ends_with("models.json") || path.ends_with("quipu") {
            continue;
        }
        assert!(!text.contains(SECRET) && !text.contains(crate::support::KEY), "{}", path.display());
        assert!(
            !path.exists() || mode(&path) & 0o077 == 0 || path.ends_with("settings.json"),
            "{}",
            path.display()
        );
    }
}

#[test]
fn prompt_survives_a_kill_in_draft_or_session() {
    for waits in [false, true] {
        let gate = Gate::new();
        let world = World::new([held("Never said", &gate)]);
        world.unchecked();
        let mut terminal = Terminal::open(&world, &[]);
        terminal.shows("test-1");
        terminal.types("remember the milk");
        terminal.shows("remember the milk");
        terminal.keeps(&world, "remember the milk");
        terminal.types(ENTER);
        if waits {
            reached(&gate);
        }
        terminal.dies();
        gate.open();
        let mut terminal = Terminal::open(&world, &["-c"]);
        terminal.shows("remember the milk");
        terminal.types(&format!("{CTRL_C}{CTRL_D}"));
        assert_eq!(terminal.ends(), Some(0));
        let drafts = kept(&world.path("home/.quipu/drafts"));
        assert!(drafts.iter().all(|(_, text)| !text.contains("milk")), "{drafts:?}");
    }
}

#[test]
fn a_prompt_that_is_sent_just_before_it_is_left_is_in_the_store() {
    let world = World::new([says("Too late to be seen.")]);
    world.unchecked();
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    terminal.types(&format!("do not forget me\r{CTRL_D}"));
    assert_eq!(terminal.ends(), Some(0));
    let history = std::fs::read_to_string(world.path("home/.quipu/history.jsonl")).unwrap();
    assert!(history.contains("do not forget me"), "{history}");
    let nodes = world.nodes();
    assert!(nodes.iter().any(|node| node.to_string().contains("do not forget me")), "{nodes:?}");
}

#[test]
fn early_prompt_survives_a_kill_before_the_session_opens() {
    let world = World::new([]);
    let mut terminal = Terminal::open(&world, &[]);
    // As early as it takes keys.
    terminal.shows("─");
    terminal.types(&format!("too early\r{CTRL_D}"));
    assert_eq!(terminal.ends(), Some(0));
    world.unchecked();
    let draft = kept(&world.path("home/.quipu/drafts"));
    let session = world.sessions();
    assert!(draft.iter().any(|(_, text)| text.contains("too early")) || session.len() == 1, "{draft:?}");
}

#[test]
fn two_terminals_at_once_keep_what_was_sent_in_both() {
    let world = World::new([]);
    let mut both = [Terminal::open(&world, &[]), Terminal::open(&world, &[])];
    for (at, terminal) in both.iter_mut().enumerate() {
        terminal.shows("test-1");
        terminal.types(&format!("!echo from-$(({at}+40))\r"));
        terminal.shows(&format!("from-{}", at + 40));
    }
    for terminal in &mut both {
        terminal.types("!echo again\r");
        terminal.until("the second", |shown| shown.matches("again").count() > 1);
        terminal.types(CTRL_D);
        assert_eq!(terminal.ends(), Some(0));
    }
    let path = world.path("home/.quipu/history.jsonl");
    let history = std::fs::read_to_string(&path).unwrap();
    assert!(history.contains("(0+40)") && history.contains("(1+40)"), "{history}");
    assert_eq!(mode(&path), 0o600);
    // Somebody was killed in the middle of a line.
    std::fs::write(&path, format!("{history}{{\"text\":\"half a li")).unwrap();
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    terminal.types(UP);
    terminal.shows("!echo again");
    terminal.types(&format!("{CTRL_C}!echo whole\r"));
    terminal.until("it", |shown| shown.matches("whole").count() > 1);
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    let history = std::fs::read_to_string(&path).unwrap();
    assert!(history.ends_with("{\"text\":\"!echo whole\"}\n"), "{history}");
}

#[test]
fn a_full_disk_is_told_once_and_stops_nobody() {
    let world = World::new([says("Before.")]);
    world.run(&["-p", "hello"]).ok();
    let mut command = world.command("bash");
    // No file can grow from here on.
    command.args(["-c", "ulimit -f 0; exec \"$0\" \"$@\""]).arg(&world.program);
    let mut terminal = Terminal::start(command, 100, 30);
    terminal.shows("─");
    terminal.hides("opening the session");
    terminal.types("some keys");
    terminal.shows("some keys");
    terminal.shows("Your unsent text");
    terminal.types(&format!("{CTRL_C}!echo it-$((40+2))\r"));
    terminal.shows("it-42");
    terminal.shows("The output is not saved in the session");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    let shown = terminal.lines().join("\n");
    assert_eq!(shown.matches("Your unsent text").count(), 1, "{shown}");
}

#[test]
fn a_window_that_is_closed_in_the_middle_of_an_answer() {
    for hangs_up in [false, true] {
        let gate = Gate::new();
        let world = World::new([held("Streaming along", &gate), says("Still here.")]);
        let mut terminal = Terminal::open(&world, &[]);
        terminal.shows("test-1");
        terminal.types("begin\r");
        reached(&gate);
        terminal.shows("Streaming along");
        terminal.types("half a thought");
        terminal.shows("half a thought");
        if hangs_up {
            terminal.signal(Signal::SIGHUP);
        } else {
            terminal.closes();
        }
        assert_eq!(terminal.ends(), Some(129));
        gate.open();
        let mut terminal = Terminal::open(&world, &["-c"]);
        terminal.shows("begin");
        terminal.shows("Streaming along");
        terminal.shows("half a thought");
        terminal.types(&format!("{CTRL_C}still there?\r"));
        terminal.shows("Still here.");
        terminal.types(CTRL_D);
        assert_eq!(terminal.ends(), Some(0));
        let said: Vec<String> = messages(&world.requests()[1]).iter().map(wire_text).collect();
        assert_eq!((said[0].as_str(), said.last().unwrap().as_str()), ("begin", "still there?"));
    }
}

#[test]
fn queued_message_is_taken_back_and_edited() {
    let gate = Gate::new();
    let world = World::new([held("Working on it.", &gate), says("As you wish.")]);
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    terminal.types("begin\r");
    reached(&gate);
    terminal.types(&format!("paint it red{ALT_ENTER}"));
    terminal.shows("then: paint it red");
    terminal.types(ALT_UP);
    terminal.hides("then:");
    terminal.shows("paint it red");
    terminal.types(&format!("\u{17}blue{ALT_ENTER}"));
    terminal.shows("then: paint it blue");
    gate.open();
    terminal.settles("As you wish.");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    let said: Vec<String> = messages(&world.requests()[1]).iter().map(wire_text).collect();
    assert_eq!(said, ["begin", "Working on it.", "paint it blue"]);
}

#[test]
fn rapid_messages_keep_their_order() {
    let gate = Gate::new();
    let world = World::new(
        [held("Working on it.", &gate)]
            .into_iter()
            .chain((0..6).map(|_| says("Yes.")))
            .collect::<Vec<Reply>>(),
    );
    let mut terminal = Terminal::sized(&world, &[], 100, 70);
    terminal.shows("test-1");
    terminal.types("begin\r");
    reached(&gate);
    terminal.types("one\rtwo\rthree\rfour\rfive\rsix\r");
    terminal.shows("next: six");
    gate.open();
    terminal.until("all answers", |shown| shown.matches("Yes.").count() == 6 && !shown.contains("stops it"));
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    let said = messages(world.requests().last().unwrap());
    let said: Vec<String> = said.iter().filter(|one| one["role"] == "user").map(wire_text).collect();
    assert_eq!(said, ["begin", "one", "two", "three", "four", "five", "six"]);
}

#[test]
fn signal_ends_the_external_editor_and_keeps_its_draft() {
    for (ignores, signal, code) in
        [("", Signal::SIGTERM, 143), ("", Signal::SIGHUP, 129), ("trap '' TERM", Signal::SIGTERM, 143)]
    {
        let world = World::new([]);
        let script = format!(
            "{ignores}\nprintf ' and saved' >> \"$1\"; stty -echo; echo $$ > pid; echo it-waits; exec tail -f /dev/null"
        );
        let mut terminal = crate::slash::with_editor(&world, &script, &[]);
        terminal.shows("test-1");
        terminal.types("begun");
        terminal.shows("begun");
        terminal.types("\u{7}");
        terminal.shows("it-waits");
        terminal.signal(signal);
        // And leaves the terminal as it was.
        assert_eq!(terminal.ends(), Some(code));
        let editor = std::fs::read_to_string(world.path("work/pid")).unwrap().trim().parse().unwrap();
        assert_eq!(kill(Pid::from_raw(editor), None), Err(Errno::ESRCH), "the editor goes on");
        let mut terminal = Terminal::open(&world, &[]);
        terminal.shows("begun and saved");
        terminal.types(&format!("{CTRL_C}{CTRL_D}"));
        assert_eq!(terminal.ends(), Some(0));
    }
}
