//! What is open over the editor, at several widths.

use std::fmt::Write as _;

use quipu_protocol::{NodeId, SessionId};

use super::overlay::{Asked, Overlay, Wanted, Way};
use super::{Effect, Input, State};
use crate::editor::Editor;
use crate::host::{Reach, TreeKind, TreeRow};
use crate::navigator::Navigator;
use crate::picker::{Picker, PickerRow};
use crate::reader::Reader;
use crate::{Bindings, Key, KeyCode, Modifiers, Size, Theme};

const WIDTHS: [usize; 4] = [20, 40, 80, 120];

fn node(at: u8) -> NodeId {
    NodeId([at; 32])
}

/// At each width, after the same keys; and that no line is wider than the window, nor are there more than its rows.
fn shown(make: impl Fn() -> Overlay, keys: &[Key]) -> String {
    let mut out = String::new();
    for columns in WIDTHS {
        let size = Size { columns, rows: 12 };
        let mut overlay = make();
        for key in keys {
            overlay = match overlay.on_key(*key, size) {
                super::Going::Open(overlay) | super::Going::Both(overlay, _) => overlay,
                super::Going::Closed | super::Going::Chosen(_) => panic!("{key:?} closed it"),
            };
        }
        let previewed = keys.contains(&KeyCode::Char(' ').into());
        if let (Overlay::Tree(navigator), true) = (&mut overlay, previewed) {
            navigator.previewed(node(3), "The file says:\n\tone\n\x1b[2Jtwo".into());
        }
        writeln!(out, "══ {columns}").unwrap();
        for line in overlay.view(size, &Theme::plain()) {
            writeln!(out, "{}", line.text().trim_end()).unwrap();
            assert!(line.width() <= columns, "{columns}: {}", line.text());
        }
        for columns in 2..30 {
            for rows in 5..9 {
                let lines = overlay.view(Size { columns, rows }, &Theme::plain());
                assert!(lines.len() <= rows, "{} lines in {columns}×{rows}", lines.len());
                assert!(lines.iter().all(|line| line.width() <= columns), "{columns}×{rows}");
            }
        }
    }
    out
}

fn typed(text: &str) -> Vec<Key> {
    text.chars().map(|letter| KeyCode::Char(letter).into()).collect()
}

fn rows(count: u8) -> Vec<PickerRow<SessionId>> {
    let row = |at: u8| {
        let text = match at {
            2 => {
                "日本語の見出し, wide characters that have to be cut somewhere \u{202e}and a mark".to_owned()
            }
            at => format!("Mend the parser of tables, part {at}"),
        };
        PickerRow::new(at.to_string().into(), text, format!("{at}d ago · {at}0 entries · $0.0{at}"))
    };
    (1..=count).map(row).collect()
}

#[test]
fn a_list() {
    insta::assert_snapshot!(shown(|| Overlay::Sessions(Picker::new("Go on with", rows(30))), &[]));
}

#[test]
fn a_list_that_is_narrowed() {
    insta::assert_snapshot!(shown(
        || Overlay::Sessions(Picker::new("Go on with", rows(30))),
        &typed("part 2")
    ));
}

#[test]
fn a_list_in_which_nothing_fits() {
    insta::assert_snapshot!(shown(|| Overlay::Sessions(Picker::new("Go on with", rows(3))), &typed("xyz")));
}

#[test]
fn what_was_found() {
    let hits = || {
        let hit = |at: u8, text: &str| {
            let detail = format!("Mend the parser · claude-code · {at}h ago");
            PickerRow::new((node(at), Some("one".into())), text, detail)
        };
        Overlay::Found(Picker::new(
            "Found for red button",
            vec![
                hit(1, "user: …make the red button larger…"),
                hit(2, "bash: grep -rn 'red button' src/ and what else is on so long a line that it is cut"),
            ],
        ))
    };
    insta::assert_snapshot!(shown(hits, &[KeyCode::Down.into()]));
}

#[test]
fn the_ways_to_a_node() {
    let ways = || {
        let rows = vec![
            PickerRow::new(Way::Plain, "Go there", "files stay as they are"),
            PickerRow::new(Way::Fork, "A new session from there", "this one stays as it is"),
        ];
        Overlay::Way(Picker::new("Node 0101", rows), node(1))
    };
    insta::assert_snapshot!(shown(ways, &[]));
}

fn row(at: u8, level: usize, starts: bool, kind: TreeKind, text: &str) -> TreeRow {
    TreeRow {
        level,
        starts,
        label: if at == 2 { "before the rewrite".into() } else { String::new() },
        head: at == 6,
        session: (kind == TreeKind::Session).then(|| format!("s{at}").into()),
        ..TreeRow::new(node(at), kind, text)
    }
}

fn tree() -> Overlay {
    let folded = TreeKind::Folded { below: node(1), depth: 0, count: 40 };
    let rows = vec![
        row(1, 0, false, folded, "⋮ 40 more; → shows them"),
        row(2, 0, false, TreeKind::User, "user: Mend the parser of tables, and tell what was wrong with it"),
        row(3, 1, true, TreeKind::Assistant, "assistant: It lost a row. \u{1b}[2J"),
        row(4, 1, false, TreeKind::Tool, "read: src/parser.rs"),
        row(5, 2, true, TreeKind::Session, "session, 12 nodes: the other way"),
        row(6, 0, false, TreeKind::Summary, "compaction: 12,000 tokens"),
    ];
    Overlay::Tree(Box::new(Navigator::new(rows, Reach::Session("home".into()), "home".into())))
}

#[test]
fn the_tree() {
    insta::assert_snapshot!(shown(tree, &[]));
}

#[test]
fn the_tree_searched_and_previewed() {
    let mut keys = typed("lost");
    keys.push(KeyCode::Char(' ').into());
    insta::assert_snapshot!(shown(tree, &keys));
}

#[test]
fn the_tree_with_a_branch_marked() {
    let alt = Modifiers { alt: true, ..Modifiers::default() };
    let keys = [KeyCode::Up.into(), KeyCode::Up.into(), Key { code: KeyCode::Char('d'), modifiers: alt }];
    insta::assert_snapshot!(shown(tree, &keys));
}

#[test]
fn what_would_become_of_files() {
    let text = (1..=20).map(|at| format!("  change  src/part_{at}.rs\n")).collect::<String>();
    let help = "Enter goes there · o also where what is in a file (!) would be lost · Escape stays";
    let foreseen =
        || Overlay::Foreseen(Reader::new("What would become of files", text.clone(), help), node(1));
    insta::assert_snapshot!(shown(foreseen, &[KeyCode::PageDown.into()]));
}

#[test]
fn a_line_that_is_asked_for() {
    let asked = |secret: bool, purpose: Wanted| {
        move || {
            let title = "Key for example".to_owned();
            Overlay::Line(Asked { title, text: String::new(), secret, purpose: purpose.clone() })
        }
    };
    let out = [asked(true, Wanted::Key("example".into())), asked(false, Wanted::Label(node(1)))]
        .map(|make| shown(make, &typed("sk-not-a-key-of-anybody")))
        .join("── not secret\n");
    assert_eq!(out.matches("sk-not-a-key").count(), WIDTHS.len(), "{out}");
    insta::assert_snapshot!(out);
}

#[test]
fn escape_twice_leads_to_the_tree() {
    for (apart, leads) in [(1, true), (1_999, true), (2_000, false)] {
        let size = Size { columns: 80, rows: 24 };
        let mut state = State::new(size, Theme::plain(), Bindings::default(), Editor::default(), 0);
        (state.standing.session, state.standing.head) = (Some("one".into()), Some(node(1)));
        state.opening = false;
        let escape = || Input::Key(KeyCode::Escape.into());
        assert!(state.on(escape(), 10_000).is_empty());
        assert!(state.hint.as_ref().is_some_and(|hint| hint.contains("again")), "{:?}", state.hint);
        let effects = state.on(escape(), 10_000 + apart);
        let tree = matches!(effects.as_slice(), [Effect::Tree(Reach::Session(session), false)] if session.as_str() == "one");
        assert_eq!(tree, leads, "{apart} ms apart: {effects:?}");
    }
}
