mod complete;
mod vi;
mod views;

use proptest::prelude::*;
use unicode_segmentation::UnicodeSegmentation as _;

use super::clusters::is_boundary;
use super::layout::Layout;
use super::*;
use crate::keys::{key_name, parse_key};
use crate::{Size, Theme};

/// An editor of a width, with the table's keys.
struct Bench {
    editor: Editor,
    bindings: Bindings,
}

impl Bench {
    fn new(columns: usize, rows: usize) -> Self {
        let mut editor = Editor::default();
        editor.resize(Size { columns, rows });
        Self { editor, bindings: Bindings::default() }
    }

    /// Keys by their names, with spaces between; what is in quotes is typed.
    fn press(&mut self, keys: &str) -> EditorOutcome {
        let mut outcome = EditorOutcome::Ignored;
        for (at, part) in keys.split('\'').enumerate() {
            if at % 2 == 1 {
                for one in part.chars() {
                    outcome = self.editor.on_key(Key::from(KeyCode::Char(one)), &self.bindings);
                }
                continue;
            }
            for name in part.split_whitespace() {
                outcome = self.editor.on_key(parse_key(name).unwrap(), &self.bindings);
            }
        }
        outcome
    }

    /// The text with `|` at the cursor.
    fn marked(&self) -> String {
        let (text, at) = (self.editor.buffer.text(), self.editor.buffer.cursor());
        format!("{}|{}", &text[..at], &text[at..])
    }
}

/// What a text with `|` at the cursor becomes.
fn check(before: &str, keys: &str, expect: &str) {
    let mut bench = Bench::new(40, 10);
    put(&mut bench, before);
    bench.press(keys);
    assert_eq!(bench.marked(), expect, "{before:?} {keys}");
}

fn put(bench: &mut Bench, marked: &str) {
    let (left, right) = marked.split_once('|').unwrap();
    bench.editor.set_text(&format!("{left}{right}"));
    bench.editor.buffer.go(left.len());
}

#[test]
fn motions_and_edits() {
    check("|", "'hello' ctrl+a 'x'", "x|hello");
    check("ab|", "left left left right 'x'", "ax|b");
    check("日本|", "left", "日|本");
    check("e\u{301}|x", "backspace", "|x");
    check("👩‍👩‍👧|", "backspace", "|");
    check("|👩‍👩‍👧x", "delete", "|x");
    check("one two|", "alt+b alt+b", "|one two");
    check("|one two", "alt+f 'x'", "onex| two");
    check("a\nb|c\nd", "home 'x'", "a\nx|bc\nd");
    check("a\nb|c\nd", "end", "a\nbc|\nd");
    check("ab\nabcd|\nab", "up up", "ab|\nabcd\nab");
    check("abcd|\nab\nabcd", "down down", "abcd\nab\nabcd|");
    check("a|b", "ctrl+home 'x' ctrl+end 'y'", "xaby|");
    check("a|b", "shift+enter", "a\n|b");
    check("ab\\|", "enter 'c'", "ab\nc|");
    check("one.two one|", "ctrl+alt+] 'o' ctrl+alt+] 'o'", "one.tw|o one");
    check("|one two", "ctrl+] 't' 'x'", "one x|two");
    check("|one two", "ctrl+] escape 'x'", "x|one two");
    check("a\n|\u{301}", "backspace 'x'", "a\u{301}x|");
}

#[test]
fn cuts_come_back() {
    check("one two three|", "ctrl+w ctrl+w ctrl+y", "one two three|");
    check("one two| three", "ctrl+w ctrl+k ctrl+a ctrl+y", "two three|one ");
    check("one two|", "ctrl+w left ctrl+w ctrl+y", "one| ");
    check("one two|", "ctrl+w left ctrl+w ctrl+y alt+y", "two| ");
    check("one two|", "ctrl+w left ctrl+w ctrl+y alt+y alt+y", "one| ");
    check("one two|", "ctrl+w ctrl+y left alt+y", "one tw|o");
    check("a\nb|", "ctrl+u ctrl+u", "a|");
    check("|a\nb", "ctrl+k ctrl+k", "|b");
    check("|", "ctrl+y alt+y ctrl+w ctrl+k ctrl+-", "|");
    let mut bench = Bench::new(40, 10);
    let long = "line\n".repeat(12);
    bench.editor.paste(&long);
    bench.press("ctrl+w");
    assert!(bench.editor.is_empty());
    bench.press("'x' enter");
    bench.press("ctrl+y");
    assert_eq!(bench.editor.text(), long, "a chip survives in the ring when its editor was emptied");
}

#[test]
fn undo_goes_by_words() {
    check("|", "'one two' ctrl+-", "one|");
    check("|", "'one two' ctrl+- ctrl+-", "|");
    check("|", "'one two' ctrl+- alt+-", "one two|");
    check("|", "'abc' backspace backspace ctrl+-", "abc|");
    check("|", "'ab' left 'c' ctrl+-", "a|b");
    check("one two|", "ctrl+w ctrl+-", "one two|");
    check("|", "'ab' ctrl+- 'x' alt+-", "x|");
}

#[test]
fn long_pastes_are_chips() {
    let mut bench = Bench::new(60, 10);
    let ten = "line\n".repeat(9);
    bench.editor.paste(&ten);
    assert_eq!(bench.editor.buffer.text(), ten);
    bench.editor.clear();
    let long = "line\r\n".repeat(12) + "end";
    bench.press("'a '");
    bench.editor.paste(&long);
    bench.editor.paste(&"x".repeat(1001));
    bench.press("' b'");
    assert_eq!(
        bench.editor.view(Size { columns: 60, rows: 5 }, &Theme::default()).0[0].text(),
        "a [paste #1 +13 lines][paste #2 1001 characters] b"
    );
    assert_eq!(bench.editor.text(), format!("a {}{} b", long.replace("\r\n", "\n"), "x".repeat(1001)));
    bench.press("left left backspace ctrl+-");
    let expect = format!("a {}{} b", long.replace("\r\n", "\n"), "x".repeat(1001));
    assert_eq!(bench.press("enter"), EditorOutcome::Submit(expect));
    assert!(bench.editor.is_empty());
}

#[test]
fn characters_that_stand_for_chips_come_through() {
    let mut bench = Bench::new(60, 10);
    let foreign = "a\u{10F000}b\u{10F001}\u{10F000}";
    bench.editor.paste(foreign);
    bench.editor.paste(&"x".repeat(2000));
    bench.press("'\u{10F002}'");
    assert_eq!(bench.editor.text(), format!("{foreign}{}\u{10F002}", "x".repeat(2000)));
}

#[test]
fn history_keeps_what_was_being_written() {
    let mut bench = Bench::new(40, 10);
    bench.editor.set_history(vec!["one".into(), "two\nlines".into()]);
    bench.press("'draft' up");
    assert_eq!(bench.editor.text(), "two\nlines");
    bench.press("up");
    assert_eq!(bench.editor.text(), "two\nlines", "a row up first");
    bench.press("up up up");
    assert_eq!(bench.editor.text(), "one");
    bench.press("down down down down");
    assert_eq!(bench.editor.text(), "draft");
    assert_eq!(bench.press("enter"), EditorOutcome::Submit("draft".into()));
    bench.press("alt+p");
    assert_eq!(bench.editor.text(), "draft");
    bench.press("alt+n");
    assert!(bench.editor.is_empty());
    let outcome = bench.press("alt+p alt+p alt+p alt+p alt+p");
    assert_eq!((bench.editor.text().as_str(), outcome), ("one", EditorOutcome::Ignored));
}

#[test]
fn keys_of_others_are_left() {
    let mut bench = Bench::new(40, 10);
    for key in ["escape", "ctrl+d", "ctrl+c", "alt+enter", "alt+up", "f7"] {
        assert_eq!(bench.press(key), EditorOutcome::Ignored, "{key}");
    }
    bench.press("'ab' left");
    assert_eq!(bench.press("ctrl+d"), EditorOutcome::Handled(vec![]));
    assert_eq!(bench.press("ctrl+g"), EditorOutcome::Handled(vec![EditorEffect::EditExternally("a".into())]));
    let copied = EditorOutcome::Handled(vec![EditorEffect::Copy("a".into())]);
    assert_eq!(bench.press("alt+w"), copied);
    assert_eq!(bench.press("ctrl+v"), EditorOutcome::Handled(vec![EditorEffect::PasteImage]));
    let shell = |text| shell_line(text).map(|line| (line.command, line.hidden));
    assert_eq!(shell("!ls -l"), Some(("ls -l", false)));
    assert_eq!(shell(" !! ls"), Some(("ls", true)));
    assert_eq!(shell("a !b"), None);
}

#[test]
fn key_cost_is_independent_of_the_text_length() {
    let words = "a word and another, with 日本 and e\u{301} between; ";
    let size = Size { columns: 80, rows: 10 };
    for before in [String::new(), words.repeat(20_000), format!("{words}\n").repeat(20_000)] {
        let mut bench = Bench::new(size.columns, size.rows);
        bench.editor.set_text(&before);
        for (at, one) in words.chars().cycle().take(2_000).enumerate() {
            let before = bench.editor.buffer.layout().work;
            bench.press(if at % 97 == 0 { "shift+enter" } else { "" });
            bench.press(&format!("'{one}'"));
            let work = bench.editor.buffer.layout().work - before;
            assert!(work < 600, "{work} clusters measured at {at}");
        }
        let (lines, (row, _)) = bench.editor.view(size, &Theme::default());
        assert_eq!((lines.len(), row), (10, 9));
        let before = bench.editor.buffer.layout().work;
        bench.press("'x' left backspace ctrl+- 'y' up down end ctrl+w ctrl+y");
        assert!(bench.editor.buffer.layout().work - before < 4_000);
    }
}

#[test]
fn a_megabyte_is_pasted_as_one_character() {
    let mut bench = Bench::new(80, 10);
    let long = "0123456789 abcdef\n".repeat(60_000);
    let before = bench.editor.buffer.layout().work;
    bench.editor.paste(&long);
    bench.press("'x' left left right backspace");
    assert!(bench.editor.buffer.layout().work - before < 200);
    bench.press("ctrl+-");
    assert_eq!(bench.editor.text(), format!("{long}x"));
}

#[derive(Debug, Clone)]
enum Step {
    Type(String),
    Paste(String),
    Key(&'static str),
    Resize(usize),
}

const KEYS: &[&str] = &[
    "left",
    "right",
    "left",
    "right",
    "up",
    "down",
    "home",
    "end",
    "alt+b",
    "alt+f",
    "backspace",
    "delete",
    "ctrl+w",
    "alt+d",
    "ctrl+u",
    "ctrl+k",
    "ctrl+y",
    "alt+y",
    "ctrl+-",
    "alt+-",
    "shift+enter",
    "pageUp",
    "pageDown",
];

fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[a-z]{1,6}",
        Just(" ".to_owned()),
        Just("\n".to_owned()),
        Just("\t".to_owned()),
        Just("日本".to_owned()),
        Just("e\u{301}".to_owned()),
        Just("\u{301}".to_owned()),
        Just("🇩🇪".to_owned()),
        Just("🇩".to_owned()),
        Just("👩‍👩‍👧".to_owned()),
        Just("\u{200d}".to_owned()),
        Just("\u{1b}".to_owned()),
        Just("\u{202e}".to_owned()),
        Just("\u{10F000}".to_owned()),
        Just("\u{600}".to_owned()),
        Just("नमस्ते".to_owned()),
        Just(".".to_owned()),
    ];
    proptest::collection::vec(piece, 1..6).prop_map(|pieces| pieces.concat())
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => text().prop_map(Step::Type),
        1 => text().prop_map(Step::Paste),
        1 => (text(), 11..30usize).prop_map(|(text, times)| Step::Paste(format!("{text}\n").repeat(times))),
        6 => proptest::sample::select(KEYS).prop_map(Step::Key),
        1 => (1..50usize).prop_map(Step::Resize),
    ];
    proptest::collection::vec(step, 1..60)
}

/// A reference buffer: a list of clusters, where a chip is one cluster.
#[derive(Default)]
struct NaiveBuffer {
    left: Vec<String>,
    right: Vec<String>,
}

impl NaiveBuffer {
    /// Clusters of both sides anew, with the cursor at the first boundary that is not before where it was.
    fn settle(&mut self) {
        let left: usize = self.left.iter().map(String::len).sum();
        let mut all: Vec<String> = Vec::new();
        let mut plain = String::new();
        for part in self.left.drain(..).chain(self.right.drain(..)) {
            if part.len() > 60 {
                all.extend(plain.graphemes(true).map(str::to_owned));
                plain.clear();
                all.push(part);
            } else {
                plain += &part;
            }
        }
        all.extend(plain.graphemes(true).map(str::to_owned));
        let mut at = 0;
        for cluster in all {
            let side = if at < left { &mut self.left } else { &mut self.right };
            at += cluster.len();
            side.push(cluster);
        }
    }

    fn text(&self) -> String {
        self.left.concat() + &self.right.concat()
    }
}

proptest! {
    #[test]
    fn every_step_leaves_a_sound_editor(steps in steps(), columns in 1..60usize) {
        let mut bench = Bench::new(columns, 5);
        let mut columns = columns;
        for step in &steps {
            match step {
                Step::Type(text) => { bench.press(&format!("'{text}'")); }
                Step::Paste(text) => bench.editor.paste(text),
                Step::Key(key) => { bench.press(key); }
                Step::Resize(to) => {
                    columns = *to;
                    bench.editor.resize(Size { columns, rows: 5 });
                }
            }
            let buffer = &bench.editor.buffer;
            prop_assert!(is_boundary(buffer.text(), buffer.cursor()), "{:?} after {:?}", bench.marked(), step);
            let fresh = Layout::new(buffer.source(), columns);
            prop_assert_eq!(fresh.starts(), buffer.layout().starts(), "{:?} after {:?}", buffer.text(), step);
            let (lines, (row, column)) = bench.editor.view(Size { columns, rows: 5 }, &Theme::default());
            prop_assert!(row < lines.len() && lines.len() <= 5 && column < columns.max(1));
            for line in &lines {
                prop_assert!(line.width() <= columns.max(1), "{:?} is wider than {}", line, columns);
                prop_assert!(!line.text().chars().any(char::is_control));
            }
        }
        // All of it taken back, and done again.
        while bench.editor.buffer.redo() {}
        let last = bench.editor.text();
        while bench.editor.buffer.undo() {
            let buffer = &bench.editor.buffer;
            prop_assert!(is_boundary(buffer.text(), buffer.cursor()));
        }
        prop_assert_eq!(bench.editor.text(), "");
        while bench.editor.buffer.redo() {}
        prop_assert_eq!(bench.editor.text(), last);
    }

    #[test]
    fn a_naive_editor_does_the_same(steps in steps()) {
        let mut bench = Bench::new(40, 5);
        let mut naive = NaiveBuffer::default();
        for step in steps {
            match step {
                Step::Type(text) => {
                    for one in text.chars().filter(|one| !one.is_control() && *one != '\u{10F000}') {
                        bench.press(&format!("'{one}'"));
                        naive.left.push(one.to_string());
                        naive.settle();
                    }
                }
                Step::Paste(text) => {
                    let text = text.replace('\u{10F000}', "");
                    if text.is_empty() || (text.len() <= 60) != (text.matches('\n').count() < 10) {
                        continue;
                    }
                    bench.editor.paste(&text);
                    naive.left.push(text);
                    naive.settle();
                }
                Step::Key(key @ ("left" | "right" | "backspace" | "delete")) => {
                    bench.press(key);
                    match key {
                        "left" => naive.right.splice(0..0, naive.left.pop()).for_each(drop),
                        "right" if !naive.right.is_empty() => naive.left.push(naive.right.remove(0)),
                        "backspace" => drop(naive.left.pop()),
                        "delete" if !naive.right.is_empty() => drop(naive.right.remove(0)),
                        _ => {}
                    }
                    naive.settle();
                }
                Step::Key(_) | Step::Resize(_) => {}
            }
            prop_assert_eq!(bench.editor.text(), naive.text());
            let left = bench.editor.buffer.clip(0..bench.editor.buffer.cursor()).expand();
            prop_assert_eq!(left, naive.left.concat());
        }
    }
}

/// Keys are told by their names where a test fails.
#[test]
fn names_of_keys_in_tests_are_good() {
    for name in KEYS {
        assert_eq!(key_name(parse_key(name).unwrap()), *name);
    }
}
