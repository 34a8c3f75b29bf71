//! What is open over the editor, at several widths.

use std::fmt::Write as _;
use std::sync::Arc;

use quipu_protocol::{NodeId, SessionId};

use super::{State, UiEvent};
use crate::component::{Chooser, Component, LineInput, component_view};
use crate::editor::Editor;
use crate::fake_host::{FakeHost, carry_out};
use crate::features::ways::{FilePlan, Way};
use crate::host::{Reach, TreeKind, TreeRow};
use crate::navigator::Navigator;
use crate::picker::{Picker, PickerRow};
use crate::{Bindings, Key, KeyCode, Modifiers, Size, Theme};

const WIDTHS: [usize; 4] = [20, 40, 80, 120];

fn node(at: u8) -> NodeId {
    NodeId([at; 32])
}

fn state(size: Size) -> State {
    State::new(size, Theme::plain(), Bindings::default(), Editor::default(), 0)
}

fn listed<T: Clone + Send + 'static>(title: &str, rows: Vec<PickerRow<T>>) -> Box<dyn Component> {
    Box::new(Chooser::new(Picker::new(title, rows), |_, _, _| panic!("something was chosen")))
}

/// At each width, after the same keys; and that no line is wider than the window, nor are there more than its rows.
fn shown(make: impl Fn() -> Box<dyn Component>, keys: &[Key]) -> String {
    let mut out = String::new();
    for columns in WIDTHS {
        let size = Size { columns, rows: 12 };
        let mut state = state(size);
        state.overlay = Some(make());
        for key in keys {
            state.with_component(&mut Vec::new(), |component, state, effects| {
                let open = component.on_key(*key, state, effects);
                assert!(open.is_some() && state.overlay.is_none(), "{key:?} closed it");
                open
            });
        }
        let previewed = keys.contains(&KeyCode::Char(' ').into());
        if let (Some(navigator), true) = (state.shown_component::<Navigator>(), previewed) {
            navigator.previewed(node(3), "The file says:\n\tone\n\x1b[2Jtwo");
        }
        let overlay = state.overlay.as_deref().unwrap();
        writeln!(out, "══ {columns}").unwrap();
        for line in component_view(overlay, size, &Theme::plain()) {
            writeln!(out, "{}", line.text().trim_end()).unwrap();
            assert!(line.width() <= columns, "{columns}: {}", line.text());
        }
        for columns in 2..30 {
            for rows in 5..9 {
                let lines = component_view(overlay, Size { columns, rows }, &Theme::plain());
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
    insta::assert_snapshot!(shown(|| listed("Continue session", rows(30)), &[]));
}

#[test]
fn a_list_that_is_narrowed() {
    insta::assert_snapshot!(shown(|| listed("Continue session", rows(30)), &typed("part 2")));
}

#[test]
fn a_list_in_which_nothing_fits() {
    insta::assert_snapshot!(shown(|| listed("Continue session", rows(3)), &typed("xyz")));
}

#[test]
fn search_results_overlay() {
    let hits = || {
        let hit = |at: u8, text: &str| {
            let detail = format!("Mend the parser · claude-code · {at}h ago");
            PickerRow::new((node(at), Some(SessionId::from("one"))), text, detail)
        };
        listed(
            "Found for red button",
            vec![
                hit(1, "user: …make the red button larger…"),
                hit(2, "bash: grep -rn 'red button' src/ and what else is on so long a line that it is cut"),
            ],
        )
    };
    insta::assert_snapshot!(shown(hits, &[KeyCode::Down.into()]));
}

#[test]
fn the_ways_to_a_node() {
    let ways = || {
        let rows = vec![
            PickerRow::new(Way::Plain, "Go there", "files do not change"),
            PickerRow::new(Way::Fork, "A new session from there", "this one does not change"),
        ];
        listed("Node 0101", rows)
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

fn tree_rows() -> Vec<TreeRow> {
    let folded = TreeKind::Folded { below: node(1), depth: 0, count: 40 };
    vec![
        row(1, 0, false, folded, "⋮ 40 more; → expands them"),
        row(2, 0, false, TreeKind::User, "user: Mend the parser of tables, and tell what was wrong with it"),
        row(3, 1, true, TreeKind::Assistant, "assistant: It lost a row. \u{1b}[2J"),
        row(4, 1, false, TreeKind::Tool, "read: src/parser.rs"),
        row(5, 2, true, TreeKind::Session, "session, 12 nodes: the other way"),
        row(6, 0, false, TreeKind::Summary, "compaction: 12,000 tokens"),
    ]
}

fn tree() -> Box<dyn Component> {
    Box::new(Navigator::new(tree_rows(), Reach::Session("home".into()), "home".into()))
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
fn file_plan_overlay() {
    let text = (1..=20).map(|at| format!("  change  src/part_{at}.rs\n")).collect::<String>();
    let foreseen = || Box::new(FilePlan::new(node(1), text.clone())) as Box<dyn Component>;
    insta::assert_snapshot!(shown(foreseen, &[KeyCode::PageDown.into()]));
}

#[test]
fn a_line_that_is_asked_for() {
    let asked = |secret: bool| {
        move || -> Box<dyn Component> {
            let line = LineInput::new("Key for example", |_, _, _| panic!("it was taken"));
            Box::new(if secret { line.secret() } else { line })
        }
    };
    let out = [asked(true), asked(false)]
        .map(|make| shown(make, &typed("sk-not-a-key-of-anybody")))
        .join("── not secret\n");
    assert_eq!(out.matches("sk-not-a-key").count(), WIDTHS.len(), "{out}");
    insta::assert_snapshot!(out);
}

#[test]
fn escape_twice_leads_to_the_tree() {
    for (apart, leads) in [(1, true), (1_999, true), (2_000, false)] {
        let size = Size { columns: 80, rows: 24 };
        let mut state = state(size);
        (state.standing.session, state.standing.head) = (Some("one".into()), Some(node(1)));
        state.opening.under_way = false;
        let escape = || UiEvent::Key(KeyCode::Escape.into());
        assert!(state.on(escape(), 10_000).is_empty());
        assert!(state.hint.as_ref().is_some_and(|hint| hint.contains("again")), "{:?}", state.hint);
        let effects = state.on(escape(), 10_000 + apart);
        let host = Arc::new(FakeHost { tree: tree_rows(), ..FakeHost::default() });
        assert!(carry_out(&host, &mut state, effects).is_empty());
        let expected: &[&str] = if leads { &["tree Session(SessionId(one)) false"] } else { &[] };
        assert_eq!(host.asked(), expected, "{apart} ms apart");
        assert_eq!(state.shown_component::<Navigator>().is_some(), leads, "{apart} ms apart");
    }
}
