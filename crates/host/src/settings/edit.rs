//! Changes one value in the text of a file, and leaves all other text as it is.

use serde_json::Value;

use super::text::{Form, Node, SyntaxError, parse};

/// Why a text cannot be changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EditError {
    /// It is no JSON, from this place on.
    Syntax(usize),
    /// What should hold the value is no object; where that stands.
    NotAnObject(String),
}

impl From<SyntaxError> for EditError {
    fn from(SyntaxError { at }: SyntaxError) -> Self {
        Self::Syntax(at)
    }
}

/// The text with a value at this path.
pub(super) fn set(text: &str, path: &[&str], value: &Value) -> Result<String, EditError> {
    let Some((first, within)) = path.split_first() else { return Ok(text.to_owned()) };
    if text.trim_start_matches('\u{feff}').trim().is_empty() {
        return Ok(format!("{{\n  {}\n}}\n", member(first, &nested(within, value), "  ")));
    }
    let root = parse(text)?;
    let (mut at, mut depth) = (&root, 0);
    loop {
        let Form::Object(members) = &at.form else {
            return Err(EditError::NotAnObject(path[..depth].join(".")));
        };
        let Some(found) = at.member(path[depth]) else {
            let written = nested(&path[depth + 1..], value);
            let indent = indent_of(text, at, depth);
            return Ok(match members.last() {
                Some(last) => {
                    let new = member(path[depth], &written, &indent);
                    let begin = members.first().map_or(at.span.end, |first| first.start);
                    let is_tall = text[at.span.start..begin].contains('\n');
                    let gap = if is_tall { format!(",\n{indent}") } else { ", ".to_owned() };
                    spliced(text, last.value.span.end..last.value.span.end, &format!("{gap}{new}"))
                }
                None => {
                    let outer = " ".repeat(indent.len().saturating_sub(2));
                    let new = member(path[depth], &written, &indent);
                    spliced(text, at.span.clone(), &format!("{{\n{indent}{new}\n{outer}}}"))
                }
            });
        };
        depth += 1;
        if depth == path.len() || found.value.form == Form::Null {
            let indent = line_indent(text, found.start);
            let written = nested(&path[depth..], value);
            return Ok(spliced(text, found.value.span.clone(), &tall(&written, &indent)));
        }
        at = &found.value;
    }
}

/// The text without the value at this path, however often it is there; `None` where it is not.
pub(super) fn unset(text: &str, path: &[&str]) -> Result<Option<String>, EditError> {
    let mut now: Option<String> = None;
    loop {
        let current = now.as_deref().unwrap_or(text);
        if current.trim_start_matches('\u{feff}').trim().is_empty() {
            return Ok(now);
        }
        let root = parse(current)?;
        let Some((object, name)) = holder(&root, path) else { return Ok(now) };
        let Form::Object(members) = &object.form else { return Ok(now) };
        let Some(at) = members.iter().position(|member| member.name == name) else { return Ok(now) };
        let cut = match (at.checked_sub(1).map(|before| &members[before]), members.get(at + 1)) {
            (Some(before), _) => before.value.span.end..members[at].value.span.end,
            (None, Some(next)) => members[at].start..next.start,
            (None, None) => object.span.start + 1..object.span.end - 1,
        };
        now = Some(spliced(current, cut, ""));
    }
}

/// The object that holds what a path leads to.
fn holder<'a, 'p>(root: &'a Node, path: &[&'p str]) -> Option<(&'a Node, &'p str)> {
    let (last, before) = path.split_last()?;
    let mut at = root;
    for name in before {
        at = &at.member(name)?.value;
    }
    at.member(last).map(|_| (at, *last))
}

fn spliced(text: &str, cut: std::ops::Range<usize>, new: &str) -> String {
    format!("{}{new}{}", &text[..cut.start], &text[cut.end..])
}

/// A value within objects of these names.
fn nested(path: &[&str], value: &Value) -> Value {
    path.iter()
        .rev()
        .fold(value.clone(), |value, name| Value::Object([((*name).to_owned(), value)].into_iter().collect()))
}

fn member(name: &str, value: &Value, indent: &str) -> String {
    format!("{}: {}", Value::from(name), tall(value, indent))
}

/// The value in lines, those after the first indented.
fn tall(value: &Value, indent: &str) -> String {
    format!("{value:#}").replace('\n', &format!("\n{indent}"))
}

/// What stands before the first member of an object, or should.
fn indent_of(text: &str, object: &Node, depth: usize) -> String {
    match &object.form {
        Form::Object(members) if !members.is_empty() => line_indent(text, members[0].start),
        _ if depth == 0 => "  ".to_owned(),
        _ => format!("{}  ", line_indent(text, object.span.start)),
    }
}

/// The blanks at the beginning of the line of a place.
fn line_indent(text: &str, at: usize) -> String {
    let line = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    text[line..at].chars().take_while(|c| matches!(c, ' ' | '\t')).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(text: &str, path: &str, value: &Value, expect: &str) {
        let path: Vec<&str> = path.split('.').collect();
        assert_eq!(set(text, &path, value).as_deref(), Ok(expect));
    }

    #[test]
    fn set_changes_one_value_and_no_other_text() {
        check("", "a.b", &json!(1), "{\n  \"a\": {\n    \"b\": 1\n  }\n}\n");
        check("{}", "a", &json!("x"), "{\n  \"a\": \"x\"\n}");
        check("{\"z\":1, \"a\" : 2}\n", "a", &json!(3), "{\"z\":1, \"a\" : 3}\n");
        check("{\"z\":1}", "a", &json!(3), "{\"z\":1, \"a\": 3}");
        check(
            "{\n\t\"z\": {}\n}\n",
            "a.b",
            &json!(true),
            "{\n\t\"z\": {},\n\t\"a\": {\n\t  \"b\": true\n\t}\n}\n",
        );
        check("{\n  \"z\": {}\n}\n", "z.b", &json!(true), "{\n  \"z\": {\n    \"b\": true\n  }\n}\n");
        check("{\"a\": null}", "a.b", &json!(1), "{\"a\": {\n  \"b\": 1\n}}");
        // Of two the last one counts, so that is the one.
        check("{\"a\":1,\"a\":2}", "a", &json!(3), "{\"a\":1,\"a\":3}");
        check("\u{feff}{\"a\":1}", "a", &json!(3), "\u{feff}{\"a\":3}");
        assert_eq!(set("{\"a\":[]}", &["a", "b"], &json!(1)), Err(EditError::NotAnObject("a".into())));
        assert_eq!(set("[]", &["a"], &json!(1)), Err(EditError::NotAnObject(String::new())));
        assert_eq!(set("{\"a\":}", &["a"], &json!(1)), Err(EditError::Syntax(5)));
    }

    #[test]
    fn unset_removes_one_value_and_no_other_text() {
        let check = |text: &str, path: &str, expect: Option<&str>| {
            let path: Vec<&str> = path.split('.').collect();
            assert_eq!(unset(text, &path), Ok(expect.map(str::to_owned)), "{text}");
        };
        check("{\"a\":1}", "b", None);
        check("", "b", None);
        check("{\"a\": 1}", "a", Some("{}"));
        check("{\n  \"a\": 1,\n  \"b\": 2\n}", "a", Some("{\n  \"b\": 2\n}"));
        check("{\n  \"a\": 1,\n  \"b\": 2\n}", "b", Some("{\n  \"a\": 1\n}"));
        check("{\"a\":1,\"b\":2,\"a\":3}", "a", Some("{\"b\":2}"));
        check("{\"s\":{\"a\":1,\"x\":[]}}", "s.a", Some("{\"s\":{\"x\":[]}}"));
    }
}
