//! JSON as it is written: values with the places where they stand, so that one can be changed and the rest stays, and so
//! that one that cannot be used does not hide the others.

use std::collections::BTreeSet;
use std::ops::Range;

use serde_json::{Map, Number, Value};

/// Lists and objects within each other at most; what lies deeper is not read.
const DEPTH: usize = 32;

/// A value, and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) span: Range<usize>,
    pub(crate) form: Form,
}

/// What a value is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Form {
    Null,
    Flag(bool),
    /// `None` for one that no program can count with.
    Number(Option<Number>),
    Text(String),
    List(Vec<Node>),
    Object(Vec<Member>),
    /// It lies too deep.
    Unread,
}

/// A member of an object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Member {
    /// Where its name begins.
    pub(crate) start: usize,
    pub(crate) name: String,
    pub(crate) value: Node,
}

/// Why a text is no JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SyntaxError {
    pub(crate) at: usize,
}

/// Why a value of a text that is JSON cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueProblem {
    TooLarge,
    TooDeep,
}

impl ValueProblem {
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::TooLarge => "holds a number that is too large",
            Self::TooDeep => "is nested too deeply",
        }
    }
}

impl Node {
    /// The value; of members with the same name the last one.
    pub(crate) fn value(&self) -> Result<Value, ValueProblem> {
        Ok(match &self.form {
            Form::Null => Value::Null,
            Form::Flag(flag) => Value::Bool(*flag),
            Form::Number(number) => Value::Number(number.clone().ok_or(ValueProblem::TooLarge)?),
            Form::Text(text) => Value::String(text.clone()),
            Form::List(items) => Value::Array(items.iter().map(Self::value).collect::<Result<_, _>>()?),
            Form::Object(members) => {
                let members = members.iter().map(|member| Ok((member.name.clone(), member.value.value()?)));
                Value::Object(members.collect::<Result<Map<_, _>, _>>()?)
            }
            Form::Unread => return Err(ValueProblem::TooDeep),
        })
    }

    /// The last member of this name.
    pub(crate) fn member(&self, name: &str) -> Option<&Member> {
        let Form::Object(members) = &self.form else { return None };
        members.iter().rev().find(|member| member.name == name)
    }
}

/// Members that stand before another of the same name, and so do not count: the path and the place of each.
pub(crate) fn doubled(node: &Node, path: &str, found: &mut Vec<(String, usize)>) {
    match &node.form {
        Form::Object(members) => {
            let mut seen = BTreeSet::new();
            for member in members.iter().rev() {
                let path = joined(path, &member.name);
                if seen.insert(&member.name) {
                    doubled(&member.value, &path, found);
                } else {
                    found.push((path, member.start));
                }
            }
        }
        Form::List(items) => {
            for (at, item) in items.iter().enumerate() {
                doubled(item, &format!("{path}[{at}]"), found);
            }
        }
        Form::Null | Form::Flag(_) | Form::Number(_) | Form::Text(_) | Form::Unread => {}
    }
}

/// The path of a member.
pub(crate) fn joined(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// The line of a place, from 1.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count()
}

/// Reads a text. A mark of the order of bytes may stand before it.
pub(crate) fn parse(text: &str) -> Result<Node, SyntaxError> {
    let mut reader = Reader { text, at: if text.starts_with('\u{feff}') { 3 } else { 0 } };
    let node = reader.value(0)?;
    reader.blank();
    if reader.at == text.len() { Ok(node) } else { Err(reader.wrong()) }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn wrong(&self) -> SyntaxError {
        SyntaxError { at: self.at }
    }

    fn next(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn blank(&mut self) {
        while matches!(self.next(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Takes a sign, if it is the next one.
    fn takes(&mut self, sign: u8) -> bool {
        self.blank();
        let is_next = self.next() == Some(sign);
        self.at += usize::from(is_next);
        is_next
    }

    fn value(&mut self, depth: usize) -> Result<Node, SyntaxError> {
        self.blank();
        let start = self.at;
        let form = match self.next().ok_or(self.wrong())? {
            b'{' | b'[' if depth == DEPTH => self.skipped()?,
            b'{' => self.object(depth)?,
            b'[' => self.list(depth)?,
            b'"' => Form::Text(self.string()?),
            b'-' | b'0'..=b'9' => self.number()?,
            _ => self.word()?,
        };
        Ok(Node { span: start..self.at, form })
    }

    fn object(&mut self, depth: usize) -> Result<Form, SyntaxError> {
        self.at += 1;
        let mut members = Vec::new();
        if self.takes(b'}') {
            return Ok(Form::Object(members));
        }
        loop {
            self.blank();
            let start = self.at;
            if self.next() != Some(b'"') {
                return Err(self.wrong());
            }
            let name = self.string()?;
            if !self.takes(b':') {
                return Err(self.wrong());
            }
            members.push(Member { start, name, value: self.value(depth + 1)? });
            if self.takes(b'}') {
                return Ok(Form::Object(members));
            }
            if !self.takes(b',') {
                return Err(self.wrong());
            }
        }
    }

    fn list(&mut self, depth: usize) -> Result<Form, SyntaxError> {
        self.at += 1;
        let mut items = Vec::new();
        if self.takes(b']') {
            return Ok(Form::List(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            if self.takes(b']') {
                return Ok(Form::List(items));
            }
            if !self.takes(b',') {
                return Err(self.wrong());
            }
        }
    }

    /// Passes over what lies too deep, however deep that is: only its brackets and strings are looked at.
    fn skipped(&mut self) -> Result<Form, SyntaxError> {
        let mut open = Vec::new();
        while let Some(sign) = self.next() {
            match sign {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'{' => open.push(b'}'),
                b'[' => open.push(b']'),
                b'}' | b']' if open.pop() != Some(sign) => return Err(self.wrong()),
                _ => {}
            }
            self.at += 1;
            if open.is_empty() {
                return Ok(Form::Unread);
            }
        }
        Err(self.wrong())
    }

    fn string(&mut self) -> Result<String, SyntaxError> {
        let start = self.at;
        let bytes = self.text.as_bytes();
        let mut end = start + 1;
        loop {
            match bytes.get(end) {
                Some(b'"') => break,
                Some(b'\\') => end += 2,
                Some(_) => end += 1,
                None => return Err(SyntaxError { at: start }),
            }
        }
        self.at = end + 1;
        let written = self.text.get(start..self.at).ok_or(SyntaxError { at: start })?;
        serde_json::from_str(written).map_err(|_| SyntaxError { at: start })
    }

    fn number(&mut self) -> Result<Form, SyntaxError> {
        let start = self.at;
        while matches!(self.next(), Some(b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9')) {
            self.at += 1;
        }
        let written = &self.text[start..self.at];
        match serde_json::from_str::<Number>(written) {
            Ok(number) => Ok(Form::Number(Some(number))),
            Err(_) if is_number(written) => Ok(Form::Number(None)),
            Err(_) => Err(SyntaxError { at: start }),
        }
    }

    fn word(&mut self) -> Result<Form, SyntaxError> {
        let words = [("null", Form::Null), ("true", Form::Flag(true)), ("false", Form::Flag(false))];
        let rest = &self.text[self.at..];
        let found = words.into_iter().find(|(word, _)| rest.starts_with(word)).ok_or(self.wrong())?;
        self.at += found.0.len();
        Ok(found.1)
    }
}

/// Whether this is written as JSON writes numbers, however large.
fn is_number(text: &str) -> bool {
    let text = text.strip_prefix('-').unwrap_or(text);
    let (digits, exponent) = match text.split_once(['e', 'E']) {
        Some((digits, exponent)) => (digits, Some(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))),
        None => (text, None),
    };
    let (whole, fraction) = match digits.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (digits, None),
    };
    let all_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    all_digits(whole)
        && (whole == "0" || !whole.starts_with('0'))
        && fraction.is_none_or(all_digits)
        && exponent.is_none_or(all_digits)
}
