//! Objects of a PDF file and the parser that reads them, which nothing in a file makes fail.

use std::collections::BTreeMap;

use super::limits::{Budget, DEPTH, PdfError, VALUES};

/// The members of a dictionary.
pub(super) type Dict = BTreeMap<Box<str>, Object>;

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Object {
    Null,
    Number(f64),
    Text(Vec<u8>),
    Name(Box<str>),
    Array(Vec<Object>),
    Dict(Dict),
    /// Another object, by its number.
    Ref(u32),
    /// A word that is no value: an operator, `stream`, `endobj`, `true`.
    Word(Box<str>),
}

impl Object {
    pub(super) fn number(&self) -> Option<f64> {
        if let Self::Number(number) = self { Some(*number) } else { None }
    }

    /// A number that counts something.
    pub(super) fn count(&self) -> Option<usize> {
        let number = self.number().filter(|number| (0.0..=1e9).contains(number))?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is within the range")]
        Some(number as usize)
    }

    pub(super) fn name(&self) -> Option<&str> {
        if let Self::Name(name) = self { Some(name) } else { None }
    }

    pub(super) fn is_word(&self, wanted: &str) -> bool {
        matches!(self, Self::Word(word) if &**word == wanted)
    }
}

/// Reads objects one after the other.
#[derive(Debug, Clone)]
pub(super) struct Parser<'a> {
    bytes: &'a [u8],
    pub(super) at: usize,
    /// Values in the object that was read last.
    pub(super) values: usize,
}

pub(super) fn is_space(byte: u8) -> bool {
    matches!(byte, 0 | b'\t' | b'\n' | 0x0C | b'\r' | b' ')
}

fn is_delimiter(byte: u8) -> bool {
    matches!(byte, b'(' | b')' | b'<' | b'>' | b'[' | b']' | b'{' | b'}' | b'/' | b'%')
}

impl<'a> Parser<'a> {
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at, values: 0 }
    }

    pub(super) fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn next_byte(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    /// What lies ahead.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    pub(super) fn skip_space(&mut self) {
        while let Some(byte) = self.peek() {
            if byte == b'%' {
                while self.peek().is_some_and(|byte| byte != b'\n' && byte != b'\r') {
                    self.at += 1;
                }
            } else if is_space(byte) {
                self.at += 1;
            } else {
                return;
            }
        }
    }

    /// The next object; `None` at the end. What cannot be read is passed over.
    pub(super) fn object(&mut self, budget: &mut Budget<'_>) -> Result<Option<Object>, PdfError> {
        self.values = 0;
        self.nested(budget, 0)
    }

    fn nested(&mut self, budget: &mut Budget<'_>, depth: usize) -> Result<Option<Object>, PdfError> {
        budget.step()?;
        self.values += 1;
        if self.values > VALUES {
            return Err(PdfError::TooMuchWork);
        }
        let from = self.at;
        self.skip_space();
        let Some(byte) = self.peek() else { return Ok(None) };
        let object = match byte {
            b'/' => {
                self.at += 1;
                Object::Name(self.name())
            }
            b'(' => {
                self.at += 1;
                Object::Text(self.literal())
            }
            b'<' if self.rest().starts_with(b"<<") => {
                self.at += 2;
                self.dict(budget, depth)?
            }
            b'<' => {
                self.at += 1;
                Object::Text(self.hex())
            }
            b'[' => {
                self.at += 1;
                self.array(budget, depth)?
            }
            b'+' | b'-' | b'.' | b'0'..=b'9' => self.number_or_ref(),
            b'>' if self.rest().starts_with(b">>") => {
                self.at += 2;
                Object::Word(">>".into())
            }
            _ if is_delimiter(byte) => {
                self.at += 1;
                Object::Word(char::from(byte).to_string().into())
            }
            _ => self.word(),
        };
        if !matches!(object, Object::Array(_) | Object::Dict(_)) {
            budget.looked_at(self.at - from)?;
        }
        Ok(Some(object))
    }

    fn word(&mut self) -> Object {
        let from = self.at;
        while self.peek().is_some_and(|byte| !is_space(byte) && !is_delimiter(byte)) {
            self.at += 1;
        }
        let word = self.bytes.get(from..self.at).unwrap_or_default();
        match word {
            b"null" => Object::Null,
            word => Object::Word(String::from_utf8_lossy(word.get(..32).unwrap_or(word)).into()),
        }
    }

    fn name(&mut self) -> Box<str> {
        let mut name = Vec::new();
        while let Some(byte) = self.peek().filter(|byte| !is_space(*byte) && !is_delimiter(*byte)) {
            self.at += 1;
            let hex =
                self.rest().first_chunk().and_then(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?));
            match hex.filter(|_| byte == b'#') {
                Some(byte) => {
                    self.at += 2;
                    name.push(byte);
                }
                None => name.push(byte),
            }
        }
        name.truncate(127);
        String::from_utf8_lossy(&name).into()
    }

    fn number_or_ref(&mut self) -> Object {
        let Some(number) = self.number() else { return Object::Null };
        // `12 0 R`: the words behind a whole number may make it a reference.
        let mut ahead = self.clone();
        let id = Object::Number(number).count().and_then(|id| u32::try_from(id).ok());
        if let Some(id) = id.filter(|id| number.fract() == 0.0 && *id > 0)
            && ahead.peek().is_some_and(is_space)
        {
            ahead.skip_space();
            if ahead.peek().is_some_and(|byte| byte.is_ascii_digit()) && ahead.number().is_some() {
                ahead.skip_space();
                let end =
                    ahead.bytes.get(ahead.at + 1).is_none_or(|byte| is_space(*byte) || is_delimiter(*byte));
                if ahead.peek() == Some(b'R') && end {
                    self.at = ahead.at + 1;
                    return Object::Ref(id);
                }
            }
        }
        Object::Number(number)
    }

    pub(super) fn number(&mut self) -> Option<f64> {
        let from = self.at;
        while self.peek().is_some_and(|byte| matches!(byte, b'+' | b'-' | b'.' | b'0'..=b'9')) {
            self.at += 1;
        }
        let text = std::str::from_utf8(self.bytes.get(from..self.at)?).ok()?;
        let text = text.get(..64).unwrap_or(text);
        // Some writers give two signs, or one in the middle.
        let number = text.parse().or_else(|_| text.trim_start_matches(['-', '+']).parse::<f64>());
        number.ok().filter(|number: &f64| number.is_finite())
    }

    fn literal(&mut self) -> Vec<u8> {
        let (mut text, mut open) = (Vec::new(), 1_u32);
        while let Some(byte) = self.next_byte() {
            match byte {
                b'(' => {
                    open += 1;
                    text.push(byte);
                }
                b')' => {
                    open -= 1;
                    if open == 0 {
                        break;
                    }
                    text.push(byte);
                }
                b'\\' => self.escape(&mut text),
                _ => text.push(byte),
            }
        }
        text
    }

    fn escape(&mut self, text: &mut Vec<u8>) {
        let Some(byte) = self.next_byte() else { return };
        match byte {
            b'n' => text.push(b'\n'),
            b'r' => text.push(b'\r'),
            b't' => text.push(b'\t'),
            b'b' => text.push(8),
            b'f' => text.push(12),
            b'\r' => {
                if self.peek() == Some(b'\n') {
                    self.at += 1;
                }
            }
            b'\n' => {}
            b'0'..=b'7' => {
                let mut code = u32::from(byte - b'0');
                for _ in 0..2 {
                    let Some(next) = self.peek().filter(|byte| (b'0'..=b'7').contains(byte)) else { break };
                    self.at += 1;
                    code = code * 8 + u32::from(next - b'0');
                }
                text.push(code.to_le_bytes()[0]);
            }
            other => text.push(other),
        }
    }

    fn hex(&mut self) -> Vec<u8> {
        let mut digits = Vec::new();
        while let Some(byte) = self.next_byte().filter(|byte| *byte != b'>') {
            digits.extend(digit(byte));
        }
        digits.chunks(2).map(|pair| pair.first().unwrap_or(&0) << 4 | pair.get(1).unwrap_or(&0)).collect()
    }

    fn array(&mut self, budget: &mut Budget<'_>, depth: usize) -> Result<Object, PdfError> {
        let mut items = Vec::new();
        if depth >= DEPTH {
            return Ok(Object::Null);
        }
        while let Some(item) = self.nested(budget, depth + 1)? {
            match &item {
                Object::Word(word) if &**word == "]" => break,
                // It was never closed.
                Object::Word(word) if matches!(&**word, "endobj" | "obj" | "stream" | ">>") => break,
                _ => items.push(item),
            }
        }
        Ok(Object::Array(items))
    }

    fn dict(&mut self, budget: &mut Budget<'_>, depth: usize) -> Result<Object, PdfError> {
        let mut members = Dict::new();
        if depth >= DEPTH {
            return Ok(Object::Null);
        }
        while let Some(key) = self.nested(budget, depth + 1)? {
            match key {
                Object::Name(key) => {
                    let Some(value) = self.nested(budget, depth + 1)? else { break };
                    if value.is_word(">>") {
                        break;
                    }
                    members.insert(key, value);
                }
                Object::Word(word) if matches!(&*word, ">>" | "endobj" | "stream") => break,
                _ => {}
            }
        }
        Ok(Object::Dict(members))
    }
}

pub(super) fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}
