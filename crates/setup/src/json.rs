//! JSON as other agents write it, with the places of its values: comments, trailing commas, names and strings as JSON5
//! has them.

use std::ops::Range;

use serde_json::{Map, Value};

/// Containers within each other at most.
const DEPTH: usize = 128;

/// A value, and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) span: Range<usize>,
    pub(crate) kind: Kind,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Kind {
    Scalar(Value),
    Array(Vec<Item>),
    Object(Vec<Item>),
}

/// A member of an object, or an element of an array.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Item {
    /// Empty for an element.
    pub(crate) name: String,
    /// Where the name begins, or the element.
    pub(crate) start: usize,
    pub(crate) value: Node,
    /// Where the comma behind it stands.
    pub(crate) comma: Option<usize>,
}

impl Item {
    /// All of it, with its name.
    pub(crate) fn span(&self) -> Range<usize> {
        self.start..self.end()
    }

    pub(crate) fn end(&self) -> usize {
        self.value.span.end
    }
}

/// Why a text cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SyntaxError {
    pub(crate) at: usize,
    pub(crate) what: &'static str,
}

impl Node {
    /// The value; of members with one name the last counts.
    pub(crate) fn value(&self) -> Value {
        match &self.kind {
            Kind::Scalar(value) => value.clone(),
            Kind::Array(items) => items.iter().map(|item| item.value.value()).collect(),
            Kind::Object(items) => {
                let members = items.iter().map(|item| (item.name.clone(), item.value.value()));
                Value::Object(members.collect::<Map<_, _>>())
            }
        }
    }

    /// The members or elements; none of a scalar.
    pub(crate) fn items(&self) -> &[Item] {
        match &self.kind {
            Kind::Array(items) | Kind::Object(items) => items,
            Kind::Scalar(_) => &[],
        }
    }

    /// The last member of this name.
    pub(crate) fn member(&self, name: &str) -> Option<&Item> {
        match &self.kind {
            Kind::Object(items) => items.iter().rev().find(|item| item.name == name),
            Kind::Array(_) | Kind::Scalar(_) => None,
        }
    }

    /// The value at the end of these names.
    pub(crate) fn at(&self, path: &[String]) -> Option<&Self> {
        path.iter().try_fold(self, |node, name| node.member(name).map(|item| &item.value))
    }
}

/// The line of a place, from 1.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count()
}

/// Where the text begins behind a byte order mark.
pub(crate) fn begin_of(text: &str) -> usize {
    if text.starts_with('\u{feff}') { 3 } else { 0 }
}

/// Reads a whole text.
pub(crate) fn parse(text: &str) -> Result<Node, SyntaxError> {
    let mut reader = Reader { text, at: begin_of(text) };
    reader.trivia()?;
    let node = reader.value(0)?;
    reader.trivia()?;
    if reader.at == text.len() { Ok(node) } else { Err(reader.wrong("nothing may follow the value")) }
}

/// The first end of a line from here on that is in no comment, before `to`.
pub(crate) fn line_end(text: &str, from: usize, to: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = from;
    while at < to {
        match bytes[at] {
            b'\n' => return Some(at),
            b'\r' if bytes.get(at + 1) == Some(&b'\n') => return Some(at),
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                while at < to && bytes[at] != b'\n' {
                    at += 1;
                }
                if at < to && bytes[at - 1] == b'\r' {
                    at -= 1;
                }
            }
            b'/' if bytes.get(at + 1) == Some(&b'*') => {
                at = text[at + 2..].find("*/").map_or(to, |found| at + 2 + found + 2);
            }
            _ => at += 1,
        }
    }
    None
}

/// Whether a value has a comment in it.
pub(crate) fn has_comment(text: &str) -> bool {
    let mut quote = None;
    let mut signs = text.chars().peekable();
    while let Some(sign) = signs.next() {
        match quote {
            Some(_) if sign == '\\' => drop(signs.next()),
            Some(open) if sign == open => quote = None,
            Some(_) => {}
            None if sign == '"' || sign == '\'' => quote = Some(sign),
            None if sign == '/' => return true,
            None => {}
        }
    }
    false
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn wrong(&self, what: &'static str) -> SyntaxError {
        SyntaxError { at: self.at.min(self.text.len()), what }
    }

    fn next(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Passes over blanks and comments.
    fn trivia(&mut self) -> Result<(), SyntaxError> {
        loop {
            let rest = &self.text[self.at..];
            let blank =
                rest.len() - rest.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}').len();
            self.at += blank;
            let rest = &self.text[self.at..];
            if rest.starts_with("//") {
                self.at += rest.find('\n').unwrap_or(rest.len());
            } else if let Some(comment) = rest.strip_prefix("/*") {
                let length = comment.find("*/").ok_or(self.wrong("a comment has no end"))?;
                self.at += length + 4;
            } else {
                return Ok(());
            }
        }
    }

    fn value(&mut self, depth: usize) -> Result<Node, SyntaxError> {
        let start = self.at;
        let kind = match self.next() {
            Some(b'{' | b'[') if depth == DEPTH => return Err(self.wrong("it is nested too deeply")),
            Some(b'{') => Kind::Object(self.container(depth, b'}')?),
            Some(b'[') => Kind::Array(self.container(depth, b']')?),
            Some(b'"' | b'\'') => Kind::Scalar(Value::String(self.string()?)),
            Some(_) => Kind::Scalar(self.word()?),
            None => return Err(self.wrong("a value is missing")),
        };
        Ok(Node { span: start..self.at, kind })
    }

    fn container(&mut self, depth: usize, close: u8) -> Result<Vec<Item>, SyntaxError> {
        self.at += 1;
        let mut items: Vec<Item> = Vec::new();
        loop {
            self.trivia()?;
            if self.next() == Some(close) {
                self.at += 1;
                return Ok(items);
            }
            if items.last().is_some_and(|item| item.comma.is_none()) {
                return Err(self.wrong("a comma or the end of the list is missing"));
            }
            let start = self.at;
            let mut name = String::new();
            if close == b'}' {
                name = self.name()?;
                self.trivia()?;
                if self.next() != Some(b':') {
                    return Err(self.wrong("a colon is missing"));
                }
                self.at += 1;
                self.trivia()?;
            }
            let value = self.value(depth + 1)?;
            self.trivia()?;
            let comma = (self.next() == Some(b',')).then_some(self.at);
            self.at += usize::from(comma.is_some());
            items.push(Item { name, start, value, comma });
        }
    }

    fn name(&mut self) -> Result<String, SyntaxError> {
        match self.next() {
            Some(b'"' | b'\'') => self.string(),
            Some(b'A'..=b'Z' | b'a'..=b'z' | b'_' | b'$') => {
                let rest = &self.text[self.at..];
                let is_of_name = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
                let length = rest.find(|c| !is_of_name(c)).unwrap_or(rest.len());
                self.at += length;
                Ok(rest[..length].to_owned())
            }
            _ => Err(self.wrong("a name is missing")),
        }
    }

    fn string(&mut self) -> Result<String, SyntaxError> {
        let (start, bytes) = (self.at, self.text.as_bytes());
        let quote = bytes[start];
        let mut end = start + 1;
        loop {
            match bytes.get(end) {
                Some(byte) if *byte == quote => break,
                Some(b'\\') => end += 2,
                Some(b'\n') | None => return Err(self.wrong("a string has no end")),
                Some(_) => end += 1,
            }
        }
        self.at = end + 1;
        let written = &self.text[start..=end];
        Ok(serde_json::from_str(written).unwrap_or_else(|_| unescaped(&written[1..written.len() - 1])))
    }

    fn word(&mut self) -> Result<Value, SyntaxError> {
        let rest = &self.text[self.at..];
        let is_of_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
        let word = &rest[..rest.find(|c| !is_of_word(c)).unwrap_or(rest.len())];
        let value = serde_json::from_str(word).ok().or_else(|| is_json5(word).then_some(Value::Null));
        let value = value.ok_or(self.wrong("a value is missing"))?;
        self.at += word.len();
        Ok(value)
    }
}

/// A number as only JSON5 has it.
fn is_json5(word: &str) -> bool {
    let digits = word.trim_start_matches(['+', '-']);
    let hex = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    matches!(digits, "Infinity" | "NaN")
        || hex.is_some_and(|hex| !hex.is_empty() && hex.bytes().all(|byte| byte.is_ascii_hexdigit()))
        || digits.len() + 1 >= word.len() && digits.parse::<f64>().is_ok()
}

/// A string that only JSON5 has; its escapes stand for themselves, apart from the common ones.
fn unescaped(written: &str) -> String {
    let mut text = String::with_capacity(written.len());
    let mut signs = written.chars();
    while let Some(sign) = signs.next() {
        match (sign, sign == '\\') {
            (_, true) => match signs.next() {
                Some('n') => text.push('\n'),
                Some('t') => text.push('\t'),
                Some('\n') | None => {}
                Some(other) => text.push(other),
            },
            (sign, false) => text.push(sign),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lenient_texts_have_their_values() {
        let check = |text: &str, expect: Value| assert_eq!(parse(text).unwrap().value(), expect, "{text}");
        check(
            "\u{feff}// c\n{ \"a\": 1, /* d */ 'b': [true, null,], c: 'x\\'y', }\n",
            json!({ "a": 1, "b": [true, null], "c": "x'y" }),
        );
        check("{\"a\":1,\"a\":\"\\u00e9\"}", json!({ "a": "é" }));
        check("[0x1F, +1, .5, -Infinity]", json!([null, null, null, null]));
    }

    #[test]
    fn broken_texts_name_their_place() {
        let check = |text: &str, line: usize| {
            let error = parse(text).unwrap_err();
            assert_eq!(line_of(text, error.at), line, "{text}");
        };
        check("", 1);
        check("{\n\"a\": \n", 3);
        check("{\n\"a\": 1\n\"b\": 2}", 3);
        check("{\n\"a\n\": 1}", 2);
        check("{}\n}", 2);
        check("{\"a\": nothing}", 1);
        check("{\n,}", 2);
        check("/* open", 1);
        check(&"[".repeat(5_000), 1);
    }
}
