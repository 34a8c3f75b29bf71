//! Puts a value into the text of a JSON file and takes it out again; every other byte stays.

use std::ops::Range;

use serde::Serialize as _;
use serde_json::Value;

use crate::edit::{Container, EditError, Insertion, Origin, Placement};
use crate::json::{Item, Kind, Node, SyntaxError, begin_of, has_comment, line_end, parse};

impl From<SyntaxError> for EditError {
    fn from(SyntaxError { at, what }: SyntaxError) -> Self {
        Self::Syntax { at, what: what.to_owned() }
    }
}

/// How a file is written.
struct Style {
    newline: &'static str,
    /// One level.
    unit: String,
}

impl Style {
    fn of(text: &str, root: &Node) -> Self {
        let newline = match text.find('\n') {
            Some(at) if text[..at].ends_with('\r') => "\r\n",
            _ => "\n",
        };
        let unit = root.items().iter().find_map(|item| own_indent(text, item.start));
        Self { newline, unit: unit.filter(|unit| !unit.is_empty()).unwrap_or("  ").to_owned() }
    }

    /// The value in lines, those after the first indented.
    fn tall(&self, value: &Value, indent: &str) -> Result<String, EditError> {
        let mut bytes = Vec::new();
        let formatter = serde_json::ser::PrettyFormatter::with_indent(self.unit.as_bytes());
        let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
        let text = value.serialize(&mut serializer).ok().and_then(|()| String::from_utf8(bytes).ok());
        let text = text.ok_or(EditError::Unfaithful)?;
        Ok(text.replace('\n', &format!("{}{indent}", self.newline)))
    }
}

/// The text with a value in a place that is free.
pub(crate) fn insert(text: &str, placement: &Placement, value: &Value) -> Result<Insertion, EditError> {
    let (path, is_member) = (placement.path(), matches!(placement, Placement::Member(_)));
    let is_blank = text[begin_of(text)..].trim().is_empty();
    // What is blank is as good as an empty object, which is written in its place.
    let (mut now, mut created) = (text.to_owned(), Vec::new());
    if is_blank {
        let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
        let origin = Origin::Blank { text: text[begin_of(text)..].to_owned() };
        created.push(Container { path: Vec::new(), origin });
        now = format!("{}{{{newline}}}{newline}", &text[..begin_of(text)]);
    }
    let root = parse(&now)?;
    let style = Style::of(&now, &root);
    let shape = |depth: usize| EditError::Shape(path[..depth].join("."));
    let (mut at, mut depth) = (&root, 0);
    let last = path.len() - usize::from(is_member);
    while depth < last {
        let Kind::Object(_) = at.kind else { return Err(shape(depth)) };
        let Some(item) = at.member(&path[depth]) else { break };
        at = &item.value;
        depth += 1;
    }
    // What is between the container that is there and the value.
    let mut nested =
        if is_member || depth == last { value.clone() } else { Value::Array(vec![value.clone()]) };
    let is_object = is_member || depth < last;
    let named = if is_member { &path[depth..] } else { &path[depth..last] };
    for (back, name) in named.iter().enumerate().skip(1).rev() {
        nested = Value::Object([(name.clone(), nested)].into_iter().collect());
        created.push(Container { path: path[..depth + back].to_vec(), origin: Origin::Absent });
    }
    if !is_member && depth < last {
        created.push(Container { path: path.to_vec(), origin: Origin::Absent });
    }
    match (&at.kind, is_object) {
        (Kind::Object(_), true) | (Kind::Array(_), false) => {}
        _ => return Err(shape(depth)),
    }
    let name = is_object.then(|| path[depth].as_str());
    if let Some(behind) = add(&mut now, &style, at, name, &nested)? {
        created.push(Container { path: path[..depth].to_vec(), origin: Origin::Empty { behind } });
    }
    Ok(Insertion { text: now, created })
}

/// Adds to a container. If that was empty and without a line break: what stands between the value and its end now.
fn add(
    text: &mut String,
    style: &Style,
    node: &Node,
    name: Option<&str>,
    value: &Value,
) -> Result<Option<String>, EditError> {
    let close = node.span.end - 1;
    let member = |written: String| match name {
        Some(name) => format!("{}: {written}", Value::from(name)),
        None => written,
    };
    let outer = line_indent(text, node.span.start).to_owned();
    let own = node.items().iter().find_map(|item| own_indent(text, item.start)).map(str::to_owned);
    let indent = own.unwrap_or_else(|| format!("{outer}{}", style.unit));
    let Some(last) = node.items().last() else {
        let open = node.span.start + 1;
        if let Some(end) = line_end(text, open, close) {
            let new = format!("{}{indent}{}", style.newline, member(style.tall(value, &indent)?));
            text.insert_str(end, &new);
            return Ok(None);
        }
        if !text.trim_end().contains('\n') && text.len() > node.span.len() + 2 {
            text.insert_str(open, &member(value.to_string()));
            return Ok(None);
        }
        let behind = format!("{}{outer}", style.newline);
        let new = member(style.tall(value, &indent)?);
        text.insert_str(open, &format!("{}{indent}{new}{behind}", style.newline));
        return Ok(Some(behind));
    };
    let behind = last.comma.map_or(last.end(), |comma| comma + 1);
    let comma = if last.comma.is_some() { "," } else { "" };
    match line_end(text, behind, close) {
        Some(end) => {
            let new = member(style.tall(value, &indent)?);
            text.insert_str(end, &format!("{}{indent}{new}{comma}", style.newline));
        }
        None => {
            let inner = &text[node.span.start + 1..close];
            let gap = if inner.contains(": ") || inner.starts_with(' ') { " " } else { "" };
            let new = match (name, gap) {
                (Some(name), "") => format!("{}:{value}", Value::from(name)),
                _ => member(value.to_string()),
            };
            text.insert_str(behind, &format!("{gap}{new}{comma}"));
        }
    }
    if last.comma.is_none() {
        text.insert(last.end(), ',');
    }
    Ok(None)
}

/// Where a value stands: the items on the way to it, each with its container.
struct Way<'a>(Vec<(&'a Node, usize)>);

impl<'a> Way<'a> {
    fn to(root: &'a Node, placement: &Placement, value: &Value) -> Option<Self> {
        let (mut at, mut way) = (root, Vec::new());
        for name in placement.path() {
            let index = at.items().iter().rposition(|item| item.name == *name && !name.is_empty())?;
            way.push((at, index));
            at = &at.items()[index].value;
        }
        match placement {
            Placement::Element(_) => {
                let Kind::Array(items) = &at.kind else { return None };
                way.push((at, items.iter().rposition(|item| item.value.value() == *value)?));
            }
            Placement::Member(_) if at.value() != *value => return None,
            Placement::Member(_) => {}
        }
        Some(Self(way))
    }
}

/// The text without a value, and without the containers that were made for it and hold nothing else. `None` when the
/// value is not there.
pub(crate) fn remove(
    text: &str,
    placement: &Placement,
    value: &Value,
    created: &[Container],
) -> Result<Option<String>, EditError> {
    if text[begin_of(text)..].trim().is_empty() {
        return Ok(None);
    }
    let root = parse(text)?;
    let Some(Way(mut way)) = Way::to(&root, placement, value) else { return Ok(None) };
    // A comment in it is the user's.
    if way.last().is_some_and(|(node, index)| has_comment(&text[node.items()[*index].span()])) {
        return Ok(None);
    }
    let names = placement.path();
    let origin = |depth: usize| {
        let container = created.iter().find(|container| container.path == names[..depth]);
        container.map(|container| &container.origin)
    };
    loop {
        let Some((node, index)) = way.last() else { return Ok(None) };
        let is_alone = node.items().len() == 1 && holds_only(text, node, &node.items()[*index]);
        match origin(way.len() - 1) {
            Some(Origin::Absent) if is_alone && way.len() > 1 => {
                way.pop();
            }
            Some(Origin::Blank { text: blank }) if is_alone => {
                return Ok(Some(format!("{}{blank}", &text[..begin_of(text)])));
            }
            Some(Origin::Empty { behind }) => return Ok(Some(cut(text, node, *index, behind))),
            _ => return Ok(Some(cut(text, node, *index, ""))),
        }
    }
}

/// The text with a value in the place of another, written in the same way. `None` when that is not there.
pub(crate) fn replace(
    text: &str,
    placement: &Placement,
    old: &Value,
    new: &Value,
) -> Result<Option<String>, EditError> {
    if text[begin_of(text)..].trim().is_empty() {
        return Ok(None);
    }
    let root = parse(text)?;
    let Some(Way(way)) = Way::to(&root, placement, old) else { return Ok(None) };
    let Some((node, index)) = way.last() else { return Ok(None) };
    let span = node.items()[*index].value.span.clone();
    let new = match text[span.clone()].contains('\n') {
        true => Style::of(text, &root).tall(new, line_indent(text, span.start))?,
        false => new.to_string(),
    };
    Ok(Some([&text[..span.start], &new, &text[span.end..]].concat()))
}

/// Whether a container has nothing but this item: no comments either.
fn holds_only(text: &str, node: &Node, item: &Item) -> bool {
    let is_blank = |range: Range<usize>| text[range].chars().all(|c| c.is_whitespace() || c == ',');
    is_blank(node.span.start + 1..item.start) && is_blank(item.end()..node.span.end - 1)
}

/// The text without an item. `behind` is removed as well if it follows the item.
fn cut(text: &str, node: &Node, index: usize, behind: &str) -> String {
    let items = node.items();
    let item = &items[index];
    let before = &text[..item.start];
    let blank = before.trim_end_matches([' ', '\t']);
    let line = blank.strip_suffix('\n').map(|blank| blank.strip_suffix('\r').unwrap_or(blank));
    let start = line.unwrap_or(blank).len();
    let comma = index.checked_sub(1).and_then(|index| items[index].comma);
    match (item.comma, comma) {
        // The comma stands directly behind, or has a comment before it.
        (Some(own), _) => [&text[..start], &text[item.end()..own], &text[own + 1..]].concat(),
        (None, Some(comma)) => [&text[..comma], &text[comma + 1..start], &text[item.end()..]].concat(),
        (None, None) => {
            let rest = &text[item.end()..];
            // An editor may have changed the ends of all lines.
            let blanks = [behind.replace("\r\n", "\n"), behind.replace("\r\n", "\n").replace('\n', "\r\n")];
            let kept = blanks.iter().find_map(|blank| rest.strip_prefix(blank.as_str())).unwrap_or(rest);
            [&text[..start], kept].concat()
        }
    }
}

/// The blanks before a place that begins its line.
fn own_indent(text: &str, at: usize) -> Option<&str> {
    let line = text[..at].rfind('\n')? + 1;
    let blank = &text[line..at];
    blank.chars().all(|c| c == ' ' || c == '\t').then_some(blank)
}

/// The blanks at the beginning of the line of a place.
fn line_indent(text: &str, at: usize) -> &str {
    let line = text[..at].rfind('\n').map_or(begin_of(text), |newline| newline + 1);
    let rest = &text[line..at];
    &rest[..rest.len() - rest.trim_start_matches([' ', '\t']).len()]
}
