//! What holds of every document: taking out gives the bytes that the file would have had.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::document::Syntax;
use crate::edit::{Container, EditError, Placement};
use crate::json::{Item, Kind, Node, parse};

fn path(names: &str) -> Vec<String> {
    names.split('.').map(str::to_owned).collect()
}

/// What is put into each document.
fn pieces() -> Vec<(Placement, Value)> {
    let hook = |event: &str| json!({ "hooks": [{ "type": "command", "command": format!("'/opt/a b/quipu' hook x {event}") }] });
    vec![
        (
            Placement::Member(path("servers.quipu")),
            json!({ "command": "/opt/a b/quipu", "args": ["mcp", "serve"], "env": {} }),
        ),
        (Placement::Element(path("hooks.Start")), hook("Start")),
        (Placement::Element(path("hooks.Stop")), hook("Stop")),
        (Placement::Member(path("deep.er.quipu")), json!(true)),
    ]
}

fn put(
    syntax: Syntax,
    text: &str,
    pieces: &[(Placement, Value)],
) -> Result<(String, Vec<Container>), EditError> {
    let (mut text, mut created) = (text.to_owned(), Vec::new());
    for (placement, value) in pieces {
        let new = syntax.insert(&text, placement, value)?;
        text = new.text;
        created.extend(new.created);
    }
    Ok((text, created))
}

/// A piece that went with what the user deleted is not there to be taken.
fn taken(syntax: Syntax, text: &str, pieces: &[(Placement, Value)], created: &[Container]) -> String {
    pieces.iter().rev().fold(text.to_owned(), |text, (placement, value)| {
        syntax.remove(&text, placement, value, created).unwrap().unwrap_or(text)
    })
}

fn blank() -> BoxedStrategy<&'static str> {
    prop_oneof![
        6 => Just(""),
        4 => Just(" "),
        8 => Just("\n  "),
        2 => Just("\n"),
        2 => Just("\n\n\t"),
        1 => Just("\r\n  "),
        1 => Just(" /* c, } */ "),
        1 => Just(" // it's \"c\" }\n  "),
        1 => Just("\n  /* a\n  b */\n  "),
    ]
    .boxed()
}

fn scalar() -> BoxedStrategy<String> {
    prop_oneof![
        Just("1".to_owned()),
        Just("true".to_owned()),
        Just("\"a, \\\" // b\"".to_owned()),
        Just("'single'".to_owned()),
        Just("1e400".to_owned()),
        Just("\"\u{e9}\u{1f600}\"".to_owned()),
    ]
    .boxed()
}

fn value() -> BoxedStrategy<String> {
    scalar()
        .prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                container(inner.clone().prop_map(|value| (None, value)), "[", "]"),
                object(inner, &["a", "b", "c", "d"]),
            ]
        })
        .boxed()
}

/// A container as somebody could write it.
fn container(
    item: impl Strategy<Value = (Option<&'static str>, String)> + 'static,
    open: &'static str,
    close: &'static str,
) -> BoxedStrategy<String> {
    let item = (blank(), item, blank(), blank(), blank());
    (prop::collection::vec(item, 0..4), blank(), any::<bool>())
        .prop_map(move |(items, end, trailing)| {
            let count = items.len();
            let mut text = open.to_owned();
            for (index, (before, (name, value), colon, behind, after)) in items.into_iter().enumerate() {
                text += before;
                if let Some(name) = name {
                    text += &format!("\"{name}{index}\":{colon}");
                }
                text += &value;
                text += behind;
                if index + 1 < count || trailing {
                    text += ",";
                    text += after;
                }
            }
            text + end + close
        })
        .boxed()
}

fn object(value: BoxedStrategy<String>, names: &'static [&'static str]) -> BoxedStrategy<String> {
    container((prop::sample::select(names).prop_map(Some), value), "{", "}")
}

/// A document, sometimes with what the pieces are put into.
fn document() -> BoxedStrategy<String> {
    let object_of = || object(value(), &["x", "y"]);
    let list_of = || container(value().prop_map(|value| (None, value)), "[", "]");
    let hooks = (blank(), list_of(), blank(), object_of(), any::<bool>()).prop_map(
        |(before, list, behind, more, first)| {
            if first {
                format!("{{{before}\"Start\": {list}{behind}}}")
            } else {
                format!("{{{before}\"other\": {more},{behind}\"Stop\":{list}}}")
            }
        },
    );
    let root = (
        prop_oneof![Just(""), Just("\u{feff}"), Just("// top\n"), Just("\n")],
        prop::option::of(object_of()),
        prop::option::of(hooks),
        prop::collection::vec((blank(), value(), blank()), 0..4),
        blank(),
        any::<bool>(),
        prop_oneof![Just(""), Just("\n"), Just("\r\n"), Just("\n// end\n")],
    );
    let written = root.prop_map(|(top, servers, hooks, others, end, trailing, bottom)| {
        let mut items: Vec<String> = Vec::new();
        for (index, (before, value, behind)) in others.into_iter().enumerate() {
            items.push(format!("{before}\"k{index}\": {value}{behind}"));
        }
        items.extend(servers.map(|servers| format!("\n  \"servers\": {servers}")));
        items.extend(hooks.map(|hooks| format!("\n  \"hooks\" : {hooks}")));
        let comma = if trailing && !items.is_empty() { "," } else { "" };
        format!("{top}{{{}{comma}{end}}}{bottom}", items.join(","))
    });
    prop_oneof![1 => Just(String::new()), 1 => Just("\u{feff}\n\n".to_owned()), 2 => Just("{}".to_owned()), 20 => written].boxed()
}

/// What somebody does to a member or element that was there before.
#[derive(Debug, Clone)]
enum UserEdit {
    Replace(String),
    InsertBefore(String),
    InsertAfter(String),
    Delete,
    CommentAfter,
    BlankBefore,
}

fn edit() -> impl Strategy<Value = (prop::sample::Index, UserEdit)> {
    let edit = prop_oneof![
        scalar().prop_map(UserEdit::Replace),
        value().prop_map(UserEdit::InsertBefore),
        value().prop_map(UserEdit::InsertAfter),
        Just(UserEdit::Delete),
        Just(UserEdit::CommentAfter),
        Just(UserEdit::BlankBefore),
    ];
    (any::<prop::sample::Index>(), edit)
}

/// The places of all items: names and numbers on the way to each.
fn places(node: &Node, above: &[String], found: &mut Vec<Vec<String>>) {
    for (index, item) in node.items().iter().enumerate() {
        let step = if item.name.is_empty() { index.to_string() } else { item.name.clone() };
        let place = [above, &[step]].concat();
        places(&item.value, &place, found);
        found.push(place);
    }
}

/// The container of an item, and which it is there.
fn item_at<'a>(root: &'a Node, place: &[String]) -> (&'a Node, usize) {
    let (last, above) = place.split_last().unwrap();
    let step = |node: &'a Node, name: &String| match &node.kind {
        Kind::Array(_) => name.parse().unwrap(),
        _ => node.items().iter().position(|item| item.name == *name).unwrap(),
    };
    let node = above.iter().fold(root, |node, name| &node.items()[step(node, name)].value);
    (node, step(node, last))
}

/// The same edit in either text. `count` is how many items the container has without ours.
fn edited(text: &str, place: &[String], edit: &UserEdit, count: usize, number: usize) -> String {
    let root = parse(text).unwrap();
    let (node, index) = item_at(&root, place);
    let item: &Item = &node.items()[index];
    let named = |value: &str| match node.kind {
        Kind::Array(_) => value.to_owned(),
        _ => format!("\"new{number}\": {value}"),
    };
    let spliced = |from: usize, to: usize, new: &str| [&text[..from], new, &text[to..]].concat();
    match edit {
        UserEdit::Replace(new) => spliced(item.value.span.start, item.end(), new),
        UserEdit::InsertBefore(new) => spliced(item.start, item.start, &format!("{},\n    ", named(new))),
        UserEdit::InsertAfter(new) => spliced(item.end(), item.end(), &format!(",\n    {}", named(new))),
        UserEdit::CommentAfter => spliced(item.end(), item.end(), " /* mine */"),
        UserEdit::BlankBefore => spliced(item.start, item.start, "\n\n      "),
        // Whoever deletes the only one decides what else goes.
        UserEdit::Delete if count == 1 => text.to_owned(),
        UserEdit::Delete if index == 0 => spliced(item.start, node.items()[1].start, ""),
        UserEdit::Delete => spliced(node.items()[index - 1].end(), item.end(), ""),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn json_edits_made_in_between_are_all_that_stays(
        text in document(),
        edits in prop::collection::vec(edit(), 0..4),
        convert in any::<bool>(),
        tail in prop_oneof![3 => Just(""), 1 => Just("\n"), 1 => Just("\n/* tail */")],
    ) {
        let pieces = pieces();
        let (with, created) = match put(Syntax::Json, &text, &pieces) {
            Ok(new) => new,
            Err(EditError::Shape(_)) => return Err(TestCaseError::reject("a value has another form")),
            Err(error) => return Err(TestCaseError::fail(format!("{error:?}: {text}"))),
        };
        prop_assert_eq!(&taken(Syntax::Json, &with, &pieces, &created), &text);
        let (mut expect, mut mine) = (text.clone(), with);
        let mut is_edited = false;
        for (number, (index, edit)) in edits.iter().enumerate() {
            let mut found = Vec::new();
            if let Ok(root) = parse(&expect) {
                places(&root, &[], &mut found);
            }
            if found.is_empty() {
                continue;
            }
            let place = index.get(&found);
            let root = parse(&expect).unwrap();
            let count = item_at(&root, place).0.items().len();
            expect = edited(&expect, place, edit, count, number);
            mine = edited(&mine, place, edit, count, number);
            is_edited = true;
        }
        if !text.trim_start_matches('\u{feff}').trim().is_empty() {
            expect += tail;
            mine += tail;
            if convert && is_edited && !expect.contains('\r') && !mine.contains('\r') {
                expect = expect.replace('\n', "\r\n");
                mine = mine.replace('\n', "\r\n");
            }
        }
        let left = taken(Syntax::Json, &mine, &pieces, &created);
        // A container that a user's edit replaced takes our piece with it.
        prop_assert_eq!(left, expect, "from {}", mine);
    }

    #[test]
    fn toml_edits_made_in_between_are_all_that_stays(
        lines in prop::collection::vec(0..8_usize, 0..8),
        ends in any::<bool>(),
        windows in any::<bool>(),
        mark in any::<bool>(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..3_usize), 0..4),
        tail in prop_oneof![2 => Just(""), 1 => Just("\n[tail]\nx = 1\n"), 1 => Just("\n# tail"), 1 => Just("\n")],
        convert in any::<bool>(),
    ) {
        let written = |(index, kind): (usize, &usize)| match kind {
            0 => format!("k{index} = {index}"),
            1 => format!("# comment {index}"),
            2 => String::new(),
            3 => format!("[t{index}]\na = [\n  1, # one\n  2,\n]"),
            4 => format!("[[list]]\nn{index} = \"x\\\"y\""),
            5 => format!("[servers.s{index}]\ncommand = 'c'"),
            6 => format!("s{index} = \"\"\"\n[servers.quipu]\n\"\"\""),
            _ => format!("d{index}.e = 1979-05-27T07:32:00Z"),
        };
        let mut lines: Vec<String> = lines.iter().enumerate().map(written).collect();
        let newline = if windows { "\r\n" } else { "\n" };
        let joined = |lines: &[String]| {
            let text = lines.join("\n") + if ends && !lines.is_empty() { "\n" } else { "" };
            let mark = if mark { "\u{feff}" } else { "" };
            format!("{mark}{}", text.replace('\n', newline))
        };
        let text = joined(&lines);
        let hook = json!({ "hooks": [{ "type": "command", "command": "'/opt/a b/quipu' hook x Start" }] });
        let pieces = vec![
            (Placement::Member(path("servers.quipu")), json!({ "command": "/opt/\"q\"/quipu", "args": ["mcp", "serve"], "env": { "A": "b" } })),
            (Placement::Element(path("hooks.Start")), hook),
        ];
        let (with, created) = put(Syntax::Toml, &text, &pieces).unwrap();
        prop_assert_eq!(&taken(Syntax::Toml, &with, &pieces, &created), &text);
        let block = with.strip_prefix(&text).unwrap().to_owned();
        for (index, kind) in &edits {
            // The last line stays: the block is behind it.
            if lines.len() < 2 {
                break;
            }
            let at = index.index(lines.len() - 1);
            match kind {
                0 => { lines.insert(at, "# mine".to_owned()); }
                1 => { lines.remove(at); }
                _ => lines[at] = format!("mine{} = [ 1 ]", lines.len()),
            }
        }
        // In a file that was empty, a blank line before the tail is that of the table.
        let is_empty = text.trim_start_matches('\u{feff}').is_empty();
        let own_tail = if is_empty { tail.strip_prefix('\n').unwrap_or(tail) } else { tail };
        let (mut expect, mut mine) = (joined(&lines) + own_tail, joined(&lines) + &block + tail);
        if Syntax::Toml.values(&expect, &path("servers")).is_err() {
            return Err(TestCaseError::reject("the edit is not TOML"));
        }
        if convert && !windows && !expect.contains('\r') {
            expect = expect.replace('\n', "\r\n");
            mine = mine.replace('\n', "\r\n");
        }
        prop_assert_eq!(taken(Syntax::Toml, &mine, &pieces, &created), expect, "from {}", mine);
    }

    #[test]
    fn hostile_texts_are_refused_or_kept(text in "[\\[\\]{}\",:a1 \\n/*'=#.]{0,40}") {
        for syntax in [Syntax::Json, Syntax::Toml] {
            for (placement, value) in pieces() {
                if syntax == Syntax::Toml && !value.is_object() {
                    continue;
                }
                if let Ok(new) = syntax.insert(&text, &placement, &value) {
                    let back = syntax.remove(&new.text, &placement, &value, &new.created);
                    prop_assert_eq!(back, Ok(Some(text.clone())));
                }
            }
        }
    }
}
