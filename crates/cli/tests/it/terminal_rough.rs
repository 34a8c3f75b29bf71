//! The terminal under rough use: a flood, binary text, and windows that are hardly there.

use quipu_testkit::{Answer, Gate, Reply, process_memory};
use serde_json::json;

use crate::pty::{CTRL_C, CTRL_D, ESCAPE, PAGE_DOWN, Terminal, held, says};
use crate::support::{World, bash, call, messages, reached, wire_text};

/// Bytes of the outputs that were too long to be held.
fn spilled(world: &World) -> u64 {
    let Ok(sessions) = std::fs::read_dir(world.path("home/.quipu/outputs")) else { return 0 };
    let outputs = sessions.flat_map(|session| std::fs::read_dir(session.unwrap().path()).unwrap());
    outputs.map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
}

#[test]
fn a_flood_is_folded_bounded_and_stopped() {
    let full = std::env::var_os("QUIPU_FULL").is_some();
    let enough: u64 = if full { 1 << 30 } else { 48 << 20 };
    let world = World::new([bash("c1", "yes flood-of-words"), says("Dry again.")]);
    let mut terminal = Terminal::open(&world, &["--permissions", "full"]);
    terminal.shows("test-1");
    terminal.types("open the gates\r");
    terminal.shows("flood-of-words");
    terminal.until("the flood", |_| spilled(&world) >= enough);
    terminal.shows("lines above");
    let shown = terminal.screen.screen().contents();
    assert!(shown.matches("flood-of-words").count() < 20, "{shown}");
    terminal.types(ESCAPE);
    terminal.shows("Stopped.");
    let tool = process_memory(terminal.pid().as_raw().cast_unsigned()).unwrap().peak;
    // And one of the user's own, whose file is shorter.
    terminal.types("!yes another-flood\r");
    terminal.shows("another-flood");
    let before = spilled(&world);
    terminal.until("another flood", |_| spilled(&world) >= before + (16 << 20));
    terminal.types(ESCAPE);
    terminal.shows("stopped");
    let both = process_memory(terminal.pid().as_raw().cast_unsigned()).unwrap().peak;
    assert!(tool < 150_000 && both < 150_000, "{tool} and {both} kB");
    terminal.types(&format!("{CTRL_C}and now?\r"));
    terminal.settles("Dry again.");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    let told = messages(&world.requests()[1]).iter().map(wire_text).map(|text| text.len()).sum::<usize>();
    assert!(told < 200_000, "{told} bytes");
}

#[test]
fn binary_that_is_pasted_is_text_and_nothing_is_obeyed() {
    let world = World::new([says("Strange.")]);
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    let mut bytes: Vec<u8> =
        (0..64_u32 << 10).map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()[2]).collect();
    bytes.extend_from_slice(b"\x1b[2J\x1b[3J\x1bc\x1b]0;title\x07\x1b[?1049h\x03\x04\x1a\r\n");
    terminal.pastes(&bytes);
    terminal.shows("[paste #1");
    terminal.types(" what is this?");
    terminal.shows("what is this?");
    terminal.types("\r");
    terminal.settles("Strange.");
    // Short enough to be shown as it is.
    terminal.pastes(b"\x1b[2J\x07\x00bell and \x9b2J");
    terminal.shows("bell and");
    terminal.types(&format!("{CTRL_C}{CTRL_D}"));
    assert_eq!(terminal.ends(), Some(0));
    let said = wire_text(&messages(&world.requests()[0])[0]);
    assert!(said.len() > 32 << 10 && said.ends_with("what is this?"), "{}", said.len());
}

#[test]
fn the_smallest_window_has_all_of_it() {
    let world =
        World::new([bash("c1", "echo asked-and-run"), says("It ran.\n\n```rust\nfn main() {}\n```\n")]);
    let mut terminal = Terminal::sized(&world, &["--permissions", "ask"], 20, 5);
    terminal.shows("─");
    terminal.types("run it\r");
    terminal.tells(b"\x1b]9;");
    terminal.types(&PAGE_DOWN.repeat(8));
    terminal.shows(">y s a n");
    terminal.types("\u{1b}y");
    terminal.tells(b"main");
    terminal.types("/model\r");
    terminal.shows("Model");
    terminal.types(ESCAPE);
    terminal.hides("Model");
    terminal.types(&format!("{CTRL_C}!echo tiny-$((40+2))\r"));
    terminal.tells(b"tiny-42");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
fn a_window_of_no_size_at_all() {
    let gate = Gate::new();
    let text = "word ".repeat(200);
    let world = World::new([held(&text, &gate), says("Here again.")]);
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    terminal.types("begin\r");
    reached(&gate);
    terminal.shows("word word");
    for (columns, rows) in [(0, 0), (1, 1), (0, 24), (2, 1), (500, 2), (80, 24)] {
        terminal.resize(columns, rows);
        terminal.types("x");
    }
    gate.open();
    terminal.settles("xxxxxx");
    terminal.types(&format!("{CTRL_C}more\r"));
    terminal.settles("Here again.");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
fn lists_open_and_close_over_an_answer_that_streams() {
    let gates = [Gate::new(), Gate::new()];
    let answer = |parts: &[&str]| parts.iter().fold(Answer::new(), |answer, part| answer.text(part));
    let parts = ["# Title\n\nfirst words", "and more\n\n- one\n- two\n", "```sh\necho code\n```\n\nThe end."];
    let (one, two) = (answer(&parts[..1]).unfinished(), answer(&parts[..2]).unfinished());
    let whole = answer(&parts).stream();
    let reply = Reply::sse(one.clone()).then_gate(&gates[0]).then(whole[one.len()..two.len()].to_owned());
    let reply = reply.then_gate(&gates[1]).then(whole[two.len()..].to_owned());
    let world = World::new([says("Before."), reply, bash("c1", "echo from-a-tool"), says("Last words.")]);
    let mut terminal = Terminal::open(&world, &["--permissions", "full"]);
    terminal.shows("test-1");
    terminal.types("first\r");
    terminal.settles("Before.");
    terminal.types("second\r");
    reached(&gates[0]);
    terminal.types("/tree\r");
    terminal.shows("type to search");
    gates[0].open();
    reached(&gates[1]);
    terminal.shows("type to search");
    terminal.types(ESCAPE);
    terminal.shows("stops it");
    terminal.types("/model\r");
    terminal.shows("testing/thinker");
    gates[1].open();
    terminal.types(ESCAPE);
    // What came right behind it would be taken with it, as Alt and a letter.
    terminal.hides("testing/thinker");
    terminal.settles("The end.");
    terminal.types("third\r");
    terminal.settles("Last words.");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    let lines = terminal.lines().join("\n");
    for part in ["first words", "and more", "The end.", "Last words."] {
        assert_eq!(lines.matches(part).count(), 1, "{part} once:\n{lines}");
    }
}

#[test]
fn a_question_shows_the_command_the_directory_and_why() {
    let world = World::new([bash("c1", "rm -rf build && make"), says("Done.")]);
    let work = world.path("work").display().to_string();
    let mut terminal = Terminal::sized(&world, &["--permissions", "ask"], 160, 40);
    terminal.shows("test-1");
    terminal.types("build it\r");
    terminal.shows("rm -rf build && make");
    terminal.shows(&format!("in {work}"));
    terminal.shows("`bash`: Allow running this command in");
    terminal.shows("asks before every command");
    terminal.types("\u{1b}y");
    terminal.settles("Done.");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    // One that reaches out of the directory says so.
    let world = World::new([
        call("c1", "write", &json!({ "path": "/etc/quipu-test", "content": "x" })),
        says("As you wish."),
    ]);
    let mut terminal = Terminal::sized(&world, &[], 160, 40);
    terminal.shows("test-1");
    terminal.types("write it\r");
    terminal.shows("`write`: Allow writing");
    terminal.shows("/etc/quipu-test");
    terminal.shows("outside the workspace");
    terminal.types("\u{1b}n");
    terminal.shows("No, because");
    terminal.types("\r");
    terminal.settles("As you wish.");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    assert!(!std::path::Path::new("/etc/quipu-test").exists());
}
