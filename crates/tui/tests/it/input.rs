//! What terminals send, whole and cut anywhere.

use proptest::prelude::*;
use quipu_tui::{Answer, Decoder, Key, KeyCode, Modifiers, TerminalEvent};
use std::time::Duration;

/// A key by its name: `ctrl+alt+shift+` and a character or the name of a key.
fn key(name: &str) -> TerminalEvent {
    let mut modifiers = Modifiers::default();
    let mut rest = name;
    while let Some((held, other)) = rest.split_once('+').filter(|(_, other)| !other.is_empty()) {
        match held {
            "ctrl" => modifiers.control = true,
            "alt" => modifiers.alt = true,
            "shift" => modifiers.shift = true,
            _ => break,
        }
        rest = other;
    }
    let mut characters = rest.chars();
    let code = match (characters.next(), characters.next()) {
        (Some(only), None) => KeyCode::Char(only),
        _ => match rest {
            "enter" => KeyCode::Enter,
            "tab" => KeyCode::Tab,
            "backspace" => KeyCode::Backspace,
            "delete" => KeyCode::Delete,
            "escape" => KeyCode::Escape,
            "up" => KeyCode::Up,
            "down" => KeyCode::Down,
            "left" => KeyCode::Left,
            "right" => KeyCode::Right,
            "home" => KeyCode::Home,
            "end" => KeyCode::End,
            "pageup" => KeyCode::PageUp,
            "pagedown" => KeyCode::PageDown,
            "insert" => KeyCode::Insert,
            other => KeyCode::Function(other.strip_prefix('f').unwrap().parse().unwrap()),
        },
    };
    TerminalEvent::Key(Key { code, modifiers })
}

fn keys(names: &[&str]) -> Vec<TerminalEvent> {
    names.iter().map(|name| key(name)).collect()
}

fn decode(bytes: &[u8]) -> Vec<TerminalEvent> {
    let mut decoder = Decoder::default();
    let mut events = decoder.feed(bytes);
    // Until nothing is held back.
    while decoder.wait().is_some() {
        events.extend(decoder.flush());
    }
    events
}

fn decode_split(bytes: &[u8]) -> Vec<TerminalEvent> {
    let mut decoder = Decoder::default();
    let mut events: Vec<TerminalEvent> = bytes.iter().flat_map(|byte| decoder.feed(&[*byte])).collect();
    while decoder.wait().is_some() {
        events.extend(decoder.flush());
    }
    events
}

/// The same whole and byte by byte.
fn check(bytes: &[u8], expected: &[TerminalEvent]) {
    assert_eq!(decode(bytes), expected, "{:?}", String::from_utf8_lossy(bytes));
    assert_eq!(decode_split(bytes), expected, "byte by byte: {:?}", String::from_utf8_lossy(bytes));
}

#[test]
fn keys_as_terminals_send_them() {
    for (bytes, expected) in [
        ("aÄ日👍", &["a", "Ä", "日", "👍"] as &[&str]),
        ("\r\n\t\x7f\x08 ", &["enter", "ctrl+j", "tab", "backspace", "ctrl+h", " "]),
        ("\x01\x1a\0\x1c\x1f", &["ctrl+a", "ctrl+z", "ctrl+ ", "ctrl+\\", "ctrl+_"]),
        ("\x1b[A\x1b[B\x1b[C\x1b[D\x1b[H\x1b[F", &["up", "down", "right", "left", "home", "end"]),
        ("\x1bOA\x1bOD\x1bOH\x1bOM\x1bOP\x1bOS", &["up", "left", "home", "enter", "f1", "f4"]),
        ("\x1bOj\x1bOp\x1bOy\x1bOk", &["*", "0", "9", "+"]),
        (
            "\x1b[1~\x1b[2~\x1b[3~\x1b[4~\x1b[5~\x1b[6~",
            &["home", "insert", "delete", "end", "pageup", "pagedown"],
        ),
        ("\x1b[11~\x1b[15~\x1b[17~\x1b[21~\x1b[23~\x1b[24~", &["f1", "f5", "f6", "f10", "f11", "f12"]),
        ("\x1b[[A\x1b[[E", &["f1", "f5"]),
        (
            "\x1b[1;2A\x1b[1;5C\x1b[1;3D\x1b[3;5~\x1b[1;2P",
            &["shift+up", "ctrl+right", "alt+left", "ctrl+delete", "shift+f1"],
        ),
        (
            "\x1b[Z\x1b[3^\x1b[3@\x1b[a\x1bOc",
            &["shift+tab", "ctrl+delete", "ctrl+shift+delete", "shift+up", "ctrl+right"],
        ),
        ("\x1bOR\x1b[R\x1b[1;2R\x1b[13~", &["f3", "f3", "shift+f3", "f3"]),
        // Alt is an Escape before.
        ("\x1bb\x1b\r\x1b\x7f\x1bÄ\x1b\x02", &["alt+b", "alt+enter", "alt+backspace", "alt+Ä", "ctrl+alt+b"]),
        ("\x1b\x1b[A\x1b\x1bOA", &["alt+up", "alt+up"]),
        ("\x1b", &["escape"]),
        ("\x1b\x1b", &["escape", "escape"]),
        ("\x1b\x1b\x1b", &["escape", "escape", "escape"]),
        ("x\x1b[", &["x", "alt+["]),
        ("x\x1bO", &["x", "alt+O"]),
        ("x\x1b]", &["x", "alt+]"]),
        ("x\x1bP", &["x", "alt+P"]),
        // The Kitty keyboard protocol.
        (
            "\x1b[27u\x1b[13;2u\x1b[13;5u\x1b[9;5u\x1b[127;3u",
            &["escape", "shift+enter", "ctrl+enter", "ctrl+tab", "alt+backspace"],
        ),
        ("\x1b[97;5u\x1b[97;6u\x1b[97:65;6u\x1b[49:33;6u", &["ctrl+a", "ctrl+A", "ctrl+A", "ctrl+!"]),
        ("\x1b[97;5:1u\x1b[97;5:2u\x1b[97;5:3u", &["ctrl+a", "ctrl+a"]),
        ("\x1b[1;5:2A\x1b[1;1:3A\x1b[3;1:3~", &["ctrl+up"]),
        ("\x1b[57399u\x1b[57414u\x1b[57419u\x1b[57376u", &["0", "enter", "up", "f13"]),
        ("\x1b[97;69u\x1b[97;133u", &["ctrl+a", "ctrl+a"]),
        // Modifiers and locks by themselves, and what belongs to the desktop.
        ("\x1b[57441;2u\x1b[57358u\x1b[97;9u\x1b[57428u", &[]),
        // modifyOtherKeys
        (
            "\x1b[27;5;13~\x1b[27;2;13~\x1b[27;6;65~\x1b[27;5;46~",
            &["ctrl+enter", "shift+enter", "ctrl+A", "ctrl+."],
        ),
        ("\x1b[27;5;9~\x1b[27;3;27~", &["ctrl+tab", "alt+escape"]),
    ] {
        check(bytes.as_bytes(), &keys(expected));
    }
}

#[test]
fn an_answer_that_comes_late_is_never_text() {
    let light = TerminalEvent::Background([255; 3]);
    let attributes = TerminalEvent::Answer(Answer::Attributes);
    let hello = || ["h", "e", "l", "l", "o"].map(key).to_vec();
    for (before, after, expected) in [
        ("\x1b]11;rgb:ffff/ff", "ff/ffff\x1b\\x", vec![light.clone(), key("x")]),
        ("\x1b]11;rgb:ffff/ffff/ffff\x1b", "\\x", vec![light, key("x")]),
        ("\x1b[?62;", "1cx", vec![attributes, key("x")]),
        // The rest never came: what is typed then is text.
        ("\x1b]11;rgb:ffff/ff", "hello", hello()),
        ("\x1b[?62;", "hello", hello()),
        // What is no answer is dropped as ever.
        ("\x1b]52;c;aGk", "hello", hello()),
    ] {
        let mut decoder = Decoder::remote();
        assert_eq!(decoder.feed(before.as_bytes()), []);
        while decoder.wait().is_some() {
            assert_eq!(decoder.flush(), []);
        }
        assert_eq!(decoder.feed(after.as_bytes()), expected, "{before:?} {after:?}");
    }
}

#[test]
fn other_events() {
    let answer = TerminalEvent::Answer;
    for (bytes, expected) in [
        ("\x1b[I\x1b[O", vec![TerminalEvent::Focus(true), TerminalEvent::Focus(false)]),
        ("\x1b]11;rgb:1e1e/2020/ffff\x1b\\", vec![TerminalEvent::Background([0x1e, 0x20, 0xff])]),
        ("\x1b]11;rgb:f/0/8\x07", vec![TerminalEvent::Background([255, 0, 136])]),
        ("\x1b]11;rgba:00/80/ff/ff\x07x", vec![TerminalEvent::Background([0, 128, 255]), key("x")]),
        ("\x1b[?62;1;6c", vec![answer(Answer::Attributes)]),
        ("\x1b[?1u", vec![answer(Answer::Keyboard(1))]),
        ("\x1b[?2026;2$y", vec![answer(Answer::Mode { mode: 2026, setting: 2 })]),
        ("\x1b[12;40R", vec![answer(Answer::Cursor(12, 40))]),
        ("\x1b[1;40R", vec![answer(Answer::Cursor(1, 40))]),
    ] {
        check(bytes.as_bytes(), &expected);
    }
}

/// Answers that nobody asked for, reports of the mouse and what is not known: none of it is text.
#[test]
fn sequences_are_never_text() {
    for bytes in [
        "\x1b]10;rgb:ffff/ffff/ffff\x1b\\",
        "\x1b]4;1;rgb:0/0/0\x07",
        "\x1b]52;c;aGVsbG8=\x1b\\",
        "\x1b]11;nonsense\x07",
        "\x1bP>|some terminal(1.2)\x1b\\",
        "\x1bP1$r0m\x1b\\",
        "\x1b_Gi=31;OK\x1b\\",
        "\x1b^private\x1b\\",
        "\x1bXstring\x1b\\",
        "\x1b[>41;354;0c",
        "\x1b[8;24;80t",
        "\x1b[0n",
        "\x1b[M !!",
        "\x1b[<0;12;13M\x1b[<0;12;13m",
        "\x1b[?997;1n",
        "\x1b[999999999999999999999~",
        "\x1b[;;;;;u",
        "\x1b[1;2;3;4;5;6;7z",
        "\x1b[!p",
        "\x1b[u",
        // Cut off for ever.
        "\x1b[1;5",
        "\x1b]11;rgb:12",
        "\x1bP>|half",
    ] {
        check(bytes.as_bytes(), &[]);
        let mut after = bytes.as_bytes().to_vec();
        let ended = bytes.ends_with(|last: char| !last.is_ascii_digit()) && !bytes.ends_with("half");
        if ended {
            after.push(b'x');
            check(&after, &[key("x")]);
        }
    }
}

/// Alt with a key that looks like the beginning of an answer, and then other keys: nothing swallows for ever.
#[test]
fn a_beginning_without_an_end_gives_way() {
    let mut decoder = Decoder::default();
    assert_eq!(decoder.feed(b"\x1b]"), []);
    assert_eq!(decoder.flush(), keys(&["alt+]"]));
    assert_eq!(decoder.feed(b"hello"), keys(&["h", "e", "l", "l", "o"]));
    // A half answer is dropped after a second wait.
    assert_eq!(decoder.feed(b"\x1b]11;rgb"), []);
    assert_eq!(decoder.flush(), []);
    assert!(decoder.wait().is_some());
    assert_eq!(decoder.flush(), []);
    assert_eq!(decoder.wait(), None);
    assert_eq!(decoder.feed(b"x"), keys(&["x"]));
    // Ctrl-C gets through anything.
    for begun in ["\x1b]11;rgb", "\x1bP", "\x1b[1;", "\x1bO", "\x1b[200~pasted"] {
        let mut decoder = Decoder::default();
        let _begun = decoder.feed(begun.as_bytes());
        let events = decoder.feed(b"\x03");
        assert_eq!(events.last(), Some(&key("ctrl+c")), "after {begun:?}");
    }
}

#[test]
fn incomplete_sequences_wait_for_more_bytes() {
    let waits = |bytes: &[u8]| {
        let mut decoder = Decoder::default();
        let _events = decoder.feed(bytes);
        decoder.wait()
    };
    assert_eq!(waits(b"a"), None);
    assert!(waits(b"\x1b").is_some_and(|wait| wait < Duration::from_millis(5)));
    assert!(waits(b"\x1b[1;").is_some_and(|wait| wait > Duration::from_millis(5)));
    assert_eq!(waits(b"\x1b[200~"), None);
    assert!(waits(b"\x1b[200~text").is_some());
    let mut remote = Decoder::remote();
    let _events = remote.feed(b"\x1b");
    assert!(remote.wait().is_some_and(|wait| wait > Duration::from_millis(5)));
}

#[test]
fn pastes() {
    let paste = |text: &str| TerminalEvent::Paste(text.to_owned());
    for (bytes, expected) in [
        (&b"\x1b[200~one\rtwo\r\nthree\nfour\x1b[201~x"[..], vec![paste("one\ntwo\nthree\nfour"), key("x")]),
        (b"\x1b[200~\x1b[201~", vec![paste("")]),
        // What it holds is obeyed by nobody.
        (
            b"\x1b[200~\x1b[A\x03\x1b]0;t\x07\x1b[200~\x1b[201~",
            vec![paste("\x1b[A\x03\x1b]0;t\x07\x1b[200~")],
        ),
        (b"\x1b[200~\x1b[20\x1b[201~\x1b[A", vec![paste("\x1b[20"), key("up")]),
        (b"\x1b[200~a\xffb\x00\x1b[201~", vec![paste("a\u{fffd}b\0")]),
        ("\x1b[200~ä日\x1b[201~\x1b[200~b\x1b[201~".as_bytes(), vec![paste("ä日"), paste("b")]),
        // An end without a beginning.
        (b"\x1b[201~x", vec![key("x")]),
    ] {
        if !expected.contains(&paste("\x1b[A\x03\x1b]0;t\x07\x1b[200~")) {
            check(bytes, &expected);
        }
        assert_eq!(decode(bytes), expected);
    }
    // One whose end got lost is not lost itself, and what comes then is taken for more of it.
    let mut decoder = Decoder::default();
    assert_eq!(decoder.feed(b"\x1b[200~half"), []);
    assert_eq!(decoder.flush(), [paste("half")]);
    assert_eq!(decoder.wait(), None);
    assert_eq!(decoder.feed(b"\rmore"), []);
    assert_eq!(decoder.feed(b"\x1b[201~"), [paste("\nmore")]);
}

#[test]
fn a_megabyte_pasted_in_pieces_of_any_size() {
    let text = "a line of text, ä and 日\x1b[20 and almost an end \x1b[201\n".repeat(20_000);
    let mut bytes = b"\x1b[200~".to_vec();
    bytes.extend_from_slice(text.as_bytes());
    bytes.extend_from_slice(b"\x1b[201~");
    assert!(bytes.len() > 1_000_000);
    for piece in [1, 7, 4_096, bytes.len()] {
        let mut decoder = Decoder::default();
        let events: Vec<TerminalEvent> = bytes.chunks(piece).flat_map(|piece| decoder.feed(piece)).collect();
        assert!(
            events == [TerminalEvent::Paste(text.clone())],
            "in pieces of {piece}: {} events",
            events.len()
        );
    }
}

#[test]
fn bytes_that_are_no_text() {
    let wrong = '\u{fffd}'.to_string();
    for (bytes, expected) in [
        (&b"\xff\xfe\x80a"[..], vec![&*wrong, &wrong, &wrong, "a"]),
        (b"\xc3a", vec![&wrong, "a"]),
        (b"\xe6\x97a", vec![&wrong, "a"]),
        (b"\xed\xa0\x80b", vec![&wrong, "b"]),
        (b"\xc2\x9b1m", vec![&wrong, "1", "m"]),
        (b"\xe6\x97", vec![&wrong]),
        (b"\xe6\x1b[A", vec![&wrong, "up"]),
    ] {
        check(bytes, &keys(&expected));
    }
}

proptest! {
    /// Any bytes, cut anywhere: the same events, none of them a control character as text, and nothing is held back in
    /// the end.
    #[test]
    fn cut_anywhere(
        pieces in proptest::collection::vec(
            prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..6),
                proptest::sample::select(vec![
                    "\x1b", "[", "O", "]", "\x1b[200~", "\x1b[201~", "\x1b\\", "\x07", ";", ":", "27", "~", "u", "M", "A", "1;5",
                    "\x1b[<", "\x1b]11;rgb:", "ä", "日", "\x1bP", "[[", "\x03x",
                ]).prop_map(|text| text.as_bytes().to_vec()),
            ],
            0..24,
        ),
        cuts in proptest::collection::vec(1_usize..7, 1..24),
    ) {
        let bytes = pieces.concat();
        let whole = decode(&bytes);
        let mut decoder = Decoder::default();
        let mut events = Vec::new();
        let mut rest = &bytes[..];
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, later) = rest.split_at((*cut).min(rest.len()));
            // A Ctrl-C that comes alone in the midst of a paste ends it.
            prop_assume!(piece != b"\x03");
            events.extend(decoder.feed(piece));
            rest = later;
        }
        for _ in 0..4 {
            events.extend(decoder.flush());
        }
        prop_assert_eq!(decoder.wait(), None);
        prop_assert_eq!(&events, &whole);
        for event in events {
            if let TerminalEvent::Key(Key { code: KeyCode::Char(character), .. }) = event {
                prop_assert!(!character.is_control());
            }
        }
    }
}
