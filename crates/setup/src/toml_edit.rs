//! Puts a table at the end of a TOML file and takes it out again; every other byte stays.

use std::ops::Range;

use serde_json::{Map, Number, Value};
use toml::de::{DeTable, DeValue};

use crate::edit::{EditError, Insertion, Placement};
use crate::json::begin_of;

/// Tables within each other that are read.
const DEPTH: usize = 64;

/// The whole file as a value.
pub(crate) fn read(text: &str) -> Result<Value, EditError> {
    let text = &text[begin_of(text)..];
    let table = DeTable::parse(text).map_err(|error| EditError::Syntax {
        at: error.span().map_or(0, |span| span.start.min(text.len())),
        what: error.message().to_owned(),
    })?;
    Ok(table_value(table.get_ref(), DEPTH))
}

fn table_value(table: &DeTable<'_>, depth: usize) -> Value {
    let members =
        table.iter().map(|(name, value)| (name.get_ref().to_string(), value_of(value.get_ref(), depth)));
    Value::Object(members.collect::<Map<_, _>>())
}

fn value_of(value: &DeValue<'_>, depth: usize) -> Value {
    let Some(depth) = depth.checked_sub(1) else { return Value::Null };
    match value {
        DeValue::String(text) => Value::from(text.as_ref()),
        DeValue::Boolean(flag) => Value::Bool(*flag),
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).map_or(Value::Null, Value::from)
        }
        DeValue::Float(number) => {
            number.as_str().parse().ok().and_then(Number::from_f64).map_or(Value::Null, Value::Number)
        }
        DeValue::Datetime(date) => Value::from(date.to_string()),
        DeValue::Array(items) => items.iter().map(|item| value_of(item.get_ref(), depth)).collect(),
        DeValue::Table(table) => table_value(table, depth),
    }
}

/// The text with a table at its end.
pub(crate) fn insert(text: &str, placement: &Placement, value: &Value) -> Result<Insertion, EditError> {
    let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let body = body(placement, value, newline)?;
    let is_blank = text.len() == begin_of(text);
    let text = match (is_blank, text.ends_with('\n')) {
        (true, _) => format!("{text}{body}{newline}"),
        (false, true) => format!("{text}{newline}{body}{newline}"),
        (false, false) => format!("{text}{newline}{newline}{body}"),
    };
    read(&text).map_err(|_| EditError::Shape(placement.path().join(".")))?;
    Ok(Insertion { text, created: Vec::new() })
}

/// The text without the table. `None` when it is not there as it was written.
pub(crate) fn remove(text: &str, placement: &Placement, value: &Value) -> Result<Option<String>, EditError> {
    let found = find(text, placement, value)?;
    Ok(found.map(|(range, newline)| cut(text, range.start, range.end, newline)))
}

/// The text with a table in the place of another. `None` when that is not there as it was written.
pub(crate) fn replace(
    text: &str,
    placement: &Placement,
    old: &Value,
    new: &Value,
) -> Result<Option<String>, EditError> {
    let Some((range, newline)) = find(text, placement, old)? else { return Ok(None) };
    let body = body(placement, new, newline)?;
    Ok(Some([&text[..range.start], &body, &text[range.end..]].concat()))
}

/// Where the lines of a table stand, and how they end.
fn find(
    text: &str,
    placement: &Placement,
    value: &Value,
) -> Result<Option<(Range<usize>, &'static str)>, EditError> {
    let mut expect = read(text)?;
    if !take(&mut expect, placement, value) {
        return Ok(None);
    }
    let expect = pruned(expect);
    // An editor may have changed the ends of all lines.
    for newline in ["\n", "\r\n"] {
        let body = body(placement, value, newline)?;
        let starts = text.match_indices(&body).map(|(at, _)| at);
        for start in starts {
            let end = start + body.len();
            let is_line = start == begin_of(text) || text[..start].ends_with('\n');
            let rest = &text[end..];
            if !is_line || !(rest.is_empty() || rest.starts_with(['\n', '\r'])) {
                continue;
            }
            let new = cut(text, start, end, newline);
            if read(&new).is_ok_and(|new| pruned(new) == expect) {
                return Ok(Some((start..end, newline)));
            }
        }
    }
    Ok(None)
}

/// The text without a table that stands in whole lines, and without the blank line before it.
fn cut(text: &str, start: usize, end: usize, newline: &str) -> String {
    let (before, rest) = (&text[..start], &text[end..]);
    let is_line = |line: &&str| line.len() == begin_of(text) || line.ends_with('\n');
    let line = before.strip_suffix(newline).filter(is_line);
    match (line, rest.strip_prefix(newline)) {
        (Some(line), Some(rest)) => [line, rest].concat(),
        // What was put behind it into an empty file brought a blank line.
        (None, Some(rest)) if before.len() == begin_of(text) => {
            [before, rest.strip_prefix(newline).unwrap_or(rest)].concat()
        }
        (None, Some(rest)) => [before, rest].concat(),
        // The last line had no end, and what was put behind it brought one.
        (Some(line), None) => [line.strip_suffix(newline).unwrap_or(line), rest].concat(),
        (None, None) => [before, rest].concat(),
    }
}

/// Takes a value out of a file; whether it was there.
fn take(root: &mut Value, placement: &Placement, value: &Value) -> bool {
    let (path, last) = match placement {
        Placement::Member(path) => match path.split_last() {
            Some((last, path)) => (path, Some(last)),
            None => return false,
        },
        Placement::Element(path) => (path.as_slice(), None),
    };
    let Some(at) = path.iter().try_fold(root, |at, name| at.get_mut(name)) else { return false };
    match (at, last) {
        (Value::Object(members), Some(last)) if members.get(last) == Some(value) => {
            members.shift_remove(last).is_some()
        }
        (Value::Array(items), None) => match items.iter().rposition(|item| item == value) {
            Some(index) => {
                items.remove(index);
                true
            }
            None => false,
        },
        _ => false,
    }
}

/// The value without tables and lists that hold nothing.
fn pruned(value: Value) -> Value {
    let is_full = |value: &Value| match value {
        Value::Object(members) => !members.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    };
    match value {
        Value::Object(members) => Value::Object(
            members
                .into_iter()
                .map(|(name, value)| (name, pruned(value)))
                .filter(|(_, value)| is_full(value))
                .collect(),
        ),
        Value::Array(items) => items.into_iter().map(pruned).collect(),
        other => other,
    }
}

/// The table in lines, without an end of the last one.
fn body(placement: &Placement, value: &Value, newline: &str) -> Result<String, EditError> {
    let name = placement.path().iter().map(|name| key(name)).collect::<Vec<_>>().join(".");
    let Value::Object(members) = value else { return Err(EditError::Shape(name)) };
    let mut lines = vec![match placement {
        Placement::Member(_) => format!("[{name}]"),
        Placement::Element(_) => format!("[[{name}]]"),
    }];
    lines.extend(members.iter().map(|(name, value)| format!("{} = {}", key(name), inline(value))));
    Ok(lines.join(newline))
}

fn key(name: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.chars().all(is_bare) { name.to_owned() } else { string(name) }
}

fn inline(value: &Value) -> String {
    let list = |items: Vec<String>| items.join(", ");
    match value {
        Value::String(text) => string(text),
        Value::Array(items) => format!("[{}]", list(items.iter().map(inline).collect())),
        Value::Object(members) => {
            let members = members.iter().map(|(name, value)| format!("{} = {}", key(name), inline(value)));
            format!("{{ {} }}", list(members.collect()))
        }
        // TOML has no null; the reader finds that the value is not the same.
        Value::Null => "\"\"".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// A basic string: as in JSON, apart from one control character.
fn string(text: &str) -> String {
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}
