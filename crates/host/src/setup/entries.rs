//! The members of a file of another agent, with the lines where they stand.

use std::path::Path;
use std::rc::Rc;

use serde_json::{Map, Number, Value};

use super::json5;
use super::table::FileForm;
use crate::settings::text::{Form, Node, SyntaxError, line_of, parse};

/// Members of a file that are looked at, with those within them.
pub(super) const MOST: usize = 5_000;
/// Objects within each other.
const DEPTH: usize = 16;

/// A member of an object.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    /// Its names, with dots between them.
    pub(super) key: String,
    /// The line of its name, from 1.
    pub(super) line: usize,
    /// The file that has that line, where it is another one than that which is looked at.
    pub(super) file: Option<Rc<Path>>,
    pub(super) value: Value,
    /// The members of its value.
    pub(super) members: Vec<Entry>,
}

impl Entry {
    /// A member of this one, or else what is around it.
    pub(super) fn nearest(&self, key: &str) -> &Self {
        let around = |entry: &&Self| {
            key.strip_prefix(entry.key.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        // The last one counts; of names with dots in them, the longer one is meant.
        let found = self.members.iter().rev().filter(around).max_by_key(|entry| entry.key.len());
        found.map_or(self, |entry| entry.nearest(key))
    }
}

/// The members of a file.
///
/// # Errors
/// What is wrong with it, and in which line.
pub(super) fn entries(text: &str, form: FileForm) -> Result<Vec<Entry>, (usize, String)> {
    let mut left = MOST;
    let entries = match form {
        FileForm::Toml => of_toml(text, &mut left)?,
        FileForm::Json => of_json(text, &mut left)?,
        FileForm::Json5 => of_json(&json5::plain(text), &mut left)?,
    };
    if left == 0 { Err((1, too_many())) } else { Ok(entries) }
}

/// Why a file with too many members is not looked at.
pub(super) fn too_many() -> String {
    format!("it has more than {MOST} members")
}

fn of_json(text: &str, left: &mut usize) -> Result<Vec<Entry>, (usize, String)> {
    let (value, entries) = entries_below(text, "", None, left)?;
    if value.is_object() { Ok(entries) } else { Err((1, "it is not a JSON object".to_owned())) }
}

/// The members of plain JSON, with these names before theirs, and its value: an empty object for any object, and for an empty text.
pub(super) fn entries_below(
    text: &str,
    above: &str,
    file: Option<&Rc<Path>>,
    left: &mut usize,
) -> Result<(Value, Vec<Entry>), (usize, String)> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim().is_empty() {
        return Ok((Value::Object(Map::new()), Vec::new()));
    }
    let syntax =
        |SyntaxError { at }: SyntaxError| (line_of(text, at), "it is not valid JSON from here on".to_owned());
    let root = parse(text).map_err(syntax)?;
    let entries = members_of(text, &root, above, file, left);
    let value = match &root.form {
        Form::Object(_) => Value::Object(Map::new()),
        _ => root.value().unwrap_or(Value::Null),
    };
    Ok((value, entries))
}

/// The name of a member, by its names and those of what it is in.
pub(super) fn member_name<'a>(key: &'a str, above: &str) -> &'a str {
    if above.is_empty() {
        return key;
    }
    key.strip_prefix(above).and_then(|rest| rest.strip_prefix('.')).unwrap_or(key)
}

fn members_of(text: &str, node: &Node, above: &str, file: Option<&Rc<Path>>, left: &mut usize) -> Vec<Entry> {
    let Form::Object(members) = &node.form else { return Vec::new() };
    let mut entries = Vec::new();
    for member in members {
        if *left == 0 {
            break;
        }
        *left -= 1;
        let key = joined(above, &member.name);
        // What cannot be read is null.
        let value = member.value.value().unwrap_or(Value::Null);
        let members = members_of(text, &member.value, &key, file, left);
        let line = line_of(text, member.start);
        entries.push(Entry { key, line, file: file.cloned(), value, members });
    }
    entries
}

fn joined(above: &str, name: &str) -> String {
    if above.is_empty() { name.to_owned() } else { format!("{above}.{name}") }
}

fn of_toml(text: &str, left: &mut usize) -> Result<Vec<Entry>, (usize, String)> {
    let table = toml::de::DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_of(text, span.start.min(text.len())));
        (line, format!("it is not valid TOML: {}", error.message()))
    })?;
    Ok(toml_members(text, table.get_ref(), "", left, DEPTH))
}

fn toml_members(
    text: &str,
    table: &toml::de::DeTable<'_>,
    above: &str,
    left: &mut usize,
    depth: usize,
) -> Vec<Entry> {
    let mut entries = Vec::new();
    for (name, value) in table {
        if *left == 0 || depth == 0 {
            break;
        }
        *left -= 1;
        let key = joined(above, name.get_ref());
        let line = line_of(text, name.span().start.min(text.len()));
        let members = match value.get_ref() {
            toml::de::DeValue::Table(table) => toml_members(text, table, &key, left, depth - 1),
            _ => Vec::new(),
        };
        let value = toml_value(value.get_ref(), depth);
        entries.push(Entry { key, line, file: None, value, members });
    }
    entries.sort_by_key(|entry| entry.line);
    entries
}

fn toml_value(value: &toml::de::DeValue<'_>, depth: usize) -> Value {
    use toml::de::DeValue;
    if depth == 0 {
        return Value::Null;
    }
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
        DeValue::Array(items) => items.iter().map(|item| toml_value(item.get_ref(), depth - 1)).collect(),
        DeValue::Table(table) => {
            let members = table
                .iter()
                .map(|(name, value)| (name.get_ref().to_string(), toml_value(value.get_ref(), depth - 1)));
            Value::Object(members.collect::<Map<_, _>>())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(entries: &[Entry]) -> Vec<(String, usize)> {
        let mut found = Vec::new();
        for entry in entries {
            found.push((entry.key.clone(), entry.line));
            found.extend(lines(&entry.members));
        }
        found
    }

    #[test]
    fn members_have_the_lines_of_their_names() {
        let json = entries("{\n \"a\": 1,\n \"b\": {\n  \"c\": [true] }\n}", FileForm::Json).unwrap();
        let expect = [("a".to_owned(), 2), ("b".to_owned(), 3), ("b.c".to_owned(), 4)];
        assert_eq!(lines(&json), expect);
        let toml = entries("a = 1\n[b]\nc = [true]\n", FileForm::Toml).unwrap();
        assert_eq!(lines(&toml), [("a".to_owned(), 1), ("b".to_owned(), 2), ("b.c".to_owned(), 3)]);
        assert_eq!((&json[0].value, &json[1].value), (&toml[0].value, &toml[1].value));
    }

    #[test]
    fn broken_file_names_its_line() {
        let (json, toml) = (FileForm::Json, FileForm::Toml);
        for (text, form, line) in
            [("{\n\"a\": ", json, 2), ("[]", json, 1), ("a = 1\nb = \n", toml, 2), ("{\"a\":1}", toml, 1)]
        {
            assert_eq!(entries(text, form).unwrap_err().0, line, "{text}");
        }
        assert_eq!(entries("", FileForm::Json).unwrap(), []);
        let many: String = (0..6_000).map(|at| format!("k{at} = 1\n")).collect();
        assert!(entries(&many, toml).unwrap_err().1.contains("5000"));
        let deep = format!("{}1{}", "{\"a\":".repeat(500), "}".repeat(500));
        assert!(entries(&deep, json).is_ok());
    }
}
