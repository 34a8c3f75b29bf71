//! What is shown where the terminal can: links, images, its own colours; who is called; and what is thrown at it.

use quipu_testkit::Gate;
use serde_json::json;

use crate::pty::{CTRL_C, CTRL_D, Terminal, held, says};
use crate::support::{World, bash, call, messages, reached, wire_text};

const KITTY: &[(&str, &str)] = &[("TERM", "xterm-kitty")];
const FOCUSED: &str = "\u{1b}[I";
const LOOKED_AWAY: &str = "\u{1b}[O";

/// A red image of 64 by 32 pixels.
fn png() -> Vec<u8> {
    fn chunk(kind: &[u8; 4], data: &[u8]) -> Vec<u8> {
        let mut crc = !0_u32;
        for byte in kind.iter().chain(data) {
            crc ^= u32::from(*byte);
            for _ in 0..8 {
                crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
            }
        }
        let length = u32::try_from(data.len()).unwrap();
        [&length.to_be_bytes()[..], kind, data, &(!crc).to_be_bytes()].concat()
    }
    let row = [&[0][..], &[255, 0, 0].repeat(64)].concat();
    let pixels = row.repeat(32);
    // Stored as it is, in one block.
    let length = u16::try_from(pixels.len()).unwrap();
    let (mut one, mut two) = (1_u32, 0_u32);
    for byte in &pixels {
        one = (one + u32::from(*byte)) % 65_521;
        two = (two + one) % 65_521;
    }
    let packed = [
        &[0x78, 1, 1][..],
        &length.to_le_bytes(),
        &(!length).to_le_bytes(),
        &pixels,
        &(two << 16 | one).to_be_bytes(),
    ]
    .concat();
    let head = [&64_u32.to_be_bytes()[..], &32_u32.to_be_bytes(), &[8, 2, 0, 0, 0]].concat();
    [b"\x89PNG\r\n\x1a\n".to_vec(), chunk(b"IHDR", &head), chunk(b"IDAT", &packed), chunk(b"IEND", b"")]
        .concat()
}

impl Terminal {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

#[test]
fn links_are_emitted_only_for_capable_terminals() {
    let text =
        "See [the page](https://example.org/a), [bad](javascript:alert), <me@example.org>, [src](src/a.rs).";
    let read = call("c1", "read", &json!({ "path": "notes.txt" }));
    for (env, knows) in [(KITTY, true), (&[][..], false)] {
        let world = World::new([says(text), read.clone(), says("Read.")]);
        let notes = world.file("notes.txt", "something");
        let mut terminal = Terminal::telling(&world, &[], 100, 30, env);
        terminal.shows("test-1");
        terminal.types("links\r");
        terminal.settles("the page (https://example.org/a)");
        terminal.shows("me@example.org");
        terminal.types("read\r");
        terminal.settles("Read.");
        terminal.types(CTRL_D);
        assert_eq!(terminal.ends(), Some(0));
        let written = terminal.text();
        let directory = notes.parent().unwrap().canonicalize().unwrap();
        for address in [
            "https://example.org/a".to_owned(),
            "mailto:me@example.org".to_owned(),
            format!("file://{}/src/a.rs", directory.display()),
            format!("file://{}/notes.txt", directory.display()),
        ] {
            let begins = format!("\u{1b}]8;;{address}\u{1b}\\");
            assert_eq!(written.contains(&begins), knows, "{address} in {written:?}");
        }
        assert!(!written.contains("]8;;javascript"));
        let (begun, ended) =
            (written.matches("\u{1b}]8;;").count(), written.matches("\u{1b}]8;;\u{1b}\\").count());
        assert!(!knows || begun >= 2 * ended.min(1) && ended > 0, "{begun} {ended}");
    }
}

#[test]
fn an_image_that_a_tool_read_is_drawn_in_rows_of_its_own() {
    for (env, begins) in [
        (KITTY, "\u{1b}_Ga=T,f=100,q=2,C=1,c=8,r=2,m="),
        (&[("TERM_PROGRAM", "iTerm.app")][..], "\u{1b}]1337;File=inline=1;size="),
        (&[("TERM", "xterm-kitty"), ("TMUX", "/tmp/none,1,0")][..], ""),
    ] {
        let world = World::new([call("c1", "read", &json!({ "path": "red.png" })), says("It is red.")]);
        world.file("red.png", png());
        let mut terminal = Terminal::telling(&world, &[], 60, 12, env);
        terminal.shows("test-1");
        terminal.types("look\r");
        terminal.settles("It is red.");
        let shown = terminal.screen.screen().contents();
        assert!(shown.contains("[PNG image, 64 × 32, "), "{shown}");
        // Two rows are kept free for it.
        let between = shown.split("64 × 32").nth(1).and_then(|rest| rest.split("It is red.").next()).unwrap();
        let expected = if begins.is_empty() { 2 } else { 4 };
        assert_eq!(between.matches('\n').count(), expected, "{shown}");
        terminal.types(CTRL_D);
        assert_eq!(terminal.ends(), Some(0));
        let written = terminal.text();
        let drawn = written.contains("\u{1b}_G") || written.contains("\u{1b}]1337");
        assert_eq!(drawn, !begins.is_empty());
        assert!(written.contains(begins), "{written:?}");
        assert!(!written.contains("\u{1b}Ptmux"));
    }
}

#[test]
fn preview_of_the_tree_shows_no_escapes() {
    let world = World::new([says("An answer \u{1b}[2J\u{1b}]0;evil\u{7} here.")]);
    let mut terminal = Terminal::sized(&world, &[], 120, 24);
    terminal.shows("test-1");
    terminal.types("hello\r");
    terminal.settles("here.");
    terminal.types("/tree\r");
    terminal.shows("◂ here");
    terminal.types(" ");
    terminal.shows("evil");
    let shown = terminal.screen.screen().contents();
    for paint in ["[0m", "[1m", "[2m", "[36m"] {
        assert!(!shown.contains(paint), "{paint} in {shown}");
    }
    terminal.types("\u{1b}");
    terminal.hides("◂ here");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    assert!(!terminal.text().contains("\u{1b}]0;evil"));
}

/// The blocks of the last message of the user, by type.
fn sent_blocks(world: &World) -> Vec<String> {
    let said = crate::support::messages(world.requests().last().unwrap()).pop().unwrap();
    let blocks = said["content"].as_array().cloned().unwrap_or_default();
    blocks.iter().map(|block| block["type"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn image_named_or_dropped_is_sent_with_the_prompt() {
    let world = World::new([says("Red."), says("Red again."), says("Red from the command line.")]);
    let red = world.file("red one.png", png());
    let mut terminal = Terminal::sized(&world, &[], 100, 20);
    terminal.shows("test-1");
    // As a terminal pastes a file that is dropped on it.
    let dropped = red.display().to_string().replace(' ', "\\ ");
    terminal.pastes(dropped.as_bytes());
    terminal.shows("red one.png\"");
    terminal.types("what is it?\r");
    terminal.settles("Red.");
    assert_eq!(sent_blocks(&world), ["text", "image"]);
    terminal.types("and @\"red one.png\" or @none.png?\r");
    terminal.settles("Red again.");
    assert_eq!(sent_blocks(&world), ["text", "image"]);
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    world.run(&["-p", "what is @\"red one.png\"?"]).ok();
    assert_eq!(sent_blocks(&world), ["text", "image"]);
}

#[test]
fn a_light_ground_makes_it_light_and_the_setting_wins() {
    const LIGHT: &str = "\u{1b}]11;rgb:ffff/fff0/ffff\u{1b}\\";
    let colour = |setting: &str, answer: &str| {
        let world = World::new([says("One.")]);
        std::fs::write(world.path("home/.quipu/settings.json"), setting).unwrap();
        let mut terminal = Terminal::telling(&world, &[], 100, 30, &[("COLORTERM", "truecolor")]);
        // The prompt waits for no answer.
        terminal.shows("test-1");
        terminal.types(answer);
        terminal.types("hello\r");
        terminal.settles("One.");
        terminal.types(CTRL_D);
        assert_eq!(terminal.ends(), Some(0));
        let said = wire_text(&messages(&world.requests()[0])[0]);
        assert_eq!(said, "hello", "an answer of the terminal was typed");
        // Those of what is beside the matter, in the one theme and in the other.
        let text = terminal.text();
        (text.contains("38;2;138;143;152"), text.contains("38;2;95;101;112"))
    };
    assert_eq!(colour(r#"{"theme":"light"}"#, ""), (false, true));
    assert_eq!(colour("{}", ""), (true, false));
    assert_eq!(colour("{}", LIGHT), (true, true));
    assert_eq!(colour("{}", "\u{1b}]11;rgb:2e2e/3434/3636\u{7}"), (true, false));
    assert_eq!(colour(r#"{"theme":"dark"}"#, LIGHT), (true, false));
}

#[test]
fn focused_terminal_is_not_notified() {
    let world = World::new([bash("c1", "true"), says("First."), bash("c2", "true"), says("Second.")]);
    std::fs::write(world.path("home/.quipu/settings.json"), r#"{"terminal":{"notify":"osc777"}}"#).unwrap();
    let mut terminal = Terminal::open(&world, &["--permissions", "ask"]);
    terminal.shows("test-1");
    terminal.types(FOCUSED);
    terminal.types("one\r");
    terminal.shows("`bash`: Allow");
    terminal.types("\u{1b}y");
    terminal.settles("First.");
    assert!(!terminal.text().contains("\u{1b}]777"), "somebody was called");
    terminal.types(LOOKED_AWAY);
    terminal.types("two\r");
    terminal.shows("`bash`: Allow");
    terminal.tells("\u{1b}]777;notify;Quipu;bash needs your approval.\u{7}\u{7}".as_bytes());
    terminal.types("\u{1b}y");
    terminal.tells("\u{1b}]777;notify;Quipu;The agent is done.\u{7}\u{7}".as_bytes());
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
}

#[test]
fn a_tiny_screen_one_of_no_size_and_binary_that_is_pasted() {
    let gate = Gate::new();
    let world = World::new([held(&"word ".repeat(100), &gate), says("Still here.")]);
    let mut terminal = Terminal::sized(&world, &[], 20, 5);
    terminal.shows("test-1");
    let binary: String = (0..=255_u8).map(char::from).filter(|byte| !"\u{1b}".contains(*byte)).collect();
    terminal.types(&format!("\u{1b}[200~{binary}\u{1b}[2J\u{1b}]0;x\u{7}\u{1b}[201~"));
    terminal.types("\u{1b}[999;999;999~\u{1b}P1;2q\u{1b}\\");
    terminal.tells("␇".as_bytes());
    terminal.types(CTRL_C);
    terminal.types("begin\r");
    reached(&gate);
    terminal.shows("answering");
    for (columns, rows) in [(0, 0), (1, 1), (0, 5), (20, 0), (3, 2)] {
        terminal.resize(columns, rows);
    }
    terminal.resize(60, 20);
    gate.open();
    terminal.settles("word word");
    terminal.types("more\r");
    terminal.shows("Still here.");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    assert_eq!(wire_text(&messages(&world.requests()[0])[0]), "begin");
    assert!(!terminal.text().contains("\u{1b}]0;x"), "what was pasted was obeyed");
}
