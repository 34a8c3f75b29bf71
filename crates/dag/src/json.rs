//! JSON values as JavaScript's `JSON.parse` gives them.

use crate::Text;

/// Arrays and objects inside each other at most; deeper input is refused.
pub const MAX_DEPTH: usize = 2_000;

/// A JSON value. Numbers are doubles, as in JavaScript: integers above 2^53 lose digits.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number; infinite when the text names one that is too large.
    Number(f64),
    /// A string, lone surrogates included.
    String(Text),
    /// An array.
    Array(Vec<Value>),
    /// Members in the order received, each name once (the last value wins); `__proto__` is a name like others.
    Object(Vec<(Text, Value)>),
}

/// Why a text is not JSON, or not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{kind} at byte {offset} of the JSON text")]
pub struct JsonError {
    /// What is wrong.
    pub kind: JsonErrorKind,
    /// Where, in bytes from the start.
    pub offset: usize,
}

/// What is wrong with a JSON text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JsonErrorKind {
    /// The text ends inside a value.
    #[error("unexpected end")]
    End,
    /// A character that cannot stand here.
    #[error("unexpected character {0:?}")]
    Character(char),
    /// A backslash with something that is no escape behind it.
    #[error("unknown escape")]
    Escape,
    /// A raw control character in a string.
    #[error("control character in a string")]
    Control,
    /// Digits that are no JSON number, such as `01` or `1.`.
    #[error("malformed number")]
    Number,
    /// More than [`MAX_DEPTH`] levels.
    #[error("more than {MAX_DEPTH} levels of arrays and objects")]
    Depth,
}

impl Value {
    /// Reads what `JSON.parse` reads.
    ///
    /// Takes memory of at most about 40 times the length of `text`; the caller limits that length.
    ///
    /// # Errors
    /// When the text is not one JSON value, or nests deeper than [`MAX_DEPTH`].
    pub fn parse(text: &str) -> Result<Self, JsonError> {
        Parser { text, bytes: text.as_bytes(), at: 0 }.document()
    }

    /// The value of a member, when this is an object that has it.
    pub fn get(&self, name: &str) -> Option<&Value> {
        match self {
            Self::Object(members) => {
                members.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value)
            }
            _ => None,
        }
    }

    /// The text, when this is a string.
    pub fn as_text(&self) -> Option<&Text> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// An object of these members.
    pub fn object<K: Into<Text>>(members: impl IntoIterator<Item = (K, Value)>) -> Self {
        Self::Object(members.into_iter().map(|(key, value)| (key.into(), value)).collect())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::String(text.into())
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

/// Integers above 2^53 lose digits, as they do in JavaScript. `serde_json` itself limits the depth to 128.
impl From<serde_json::Value> for Value {
    fn from(value: serde_json::Value) -> Self {
        match value {
            serde_json::Value::Null => Self::Null,
            serde_json::Value::Bool(value) => Self::Bool(value),
            serde_json::Value::Number(number) => Self::Number(number.as_f64().unwrap_or(f64::NAN)),
            serde_json::Value::String(text) => Self::String(text.into()),
            serde_json::Value::Array(items) => Self::Array(items.into_iter().map(Self::from).collect()),
            serde_json::Value::Object(members) => {
                Self::Object(members.into_iter().map(|(key, value)| (key.into(), value.into())).collect())
            }
        }
    }
}

// What is open while the parser is inside it: no recursion, so that depth costs heap and not stack.
enum Open {
    Array(Vec<Value>),
    Object(Vec<(Text, Value)>, Text),
}

struct Parser<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl Parser<'_> {
    fn document(mut self) -> Result<Value, JsonError> {
        let mut open: Vec<Open> = Vec::new();
        loop {
            let Some(mut value) = self.value_or_open(&mut open)? else { continue };
            // A value is complete: put it where it belongs, and close what it completes.
            loop {
                self.white_space();
                value = match open.pop() {
                    None if self.at == self.bytes.len() => return Ok(value),
                    None => return Err(self.unexpected()),
                    Some(Open::Array(mut items)) => {
                        items.push(value);
                        match self.peek() {
                            Some(b',') => {
                                self.at += 1;
                                open.push(Open::Array(items));
                                break;
                            }
                            Some(b']') => {
                                self.at += 1;
                                Value::Array(items)
                            }
                            _ => return Err(self.unexpected()),
                        }
                    }
                    Some(Open::Object(mut members, name)) => {
                        members.push((name, value));
                        match self.peek() {
                            Some(b',') => {
                                self.at += 1;
                                self.white_space();
                                let name = self.member_name()?;
                                open.push(Open::Object(members, name));
                                break;
                            }
                            Some(b'}') => {
                                self.at += 1;
                                Value::Object(last_wins(members))
                            }
                            _ => return Err(self.unexpected()),
                        }
                    }
                };
            }
        }
    }

    /// A whole value, or `None` when an array or object with something inside was opened.
    fn value_or_open(&mut self, open: &mut Vec<Open>) -> Result<Option<Value>, JsonError> {
        self.white_space();
        let value = match self.peek() {
            Some(bracket @ (b'[' | b'{')) => {
                if open.len() >= MAX_DEPTH {
                    return Err(self.error(JsonErrorKind::Depth));
                }
                self.at += 1;
                self.white_space();
                match (bracket, self.peek()) {
                    (b'[', Some(b']')) => {
                        self.at += 1;
                        Value::Array(Vec::new())
                    }
                    (b'[', _) => {
                        open.push(Open::Array(Vec::new()));
                        return Ok(None);
                    }
                    (_, Some(b'}')) => {
                        self.at += 1;
                        Value::Object(Vec::new())
                    }
                    (_, _) => {
                        let name = self.member_name()?;
                        open.push(Open::Object(Vec::new(), name));
                        return Ok(None);
                    }
                }
            }
            Some(b'"') => Value::String(self.string()?),
            Some(b'-' | b'0'..=b'9') => Value::Number(self.number()?),
            Some(b't') => self.word("true", Value::Bool(true))?,
            Some(b'f') => self.word("false", Value::Bool(false))?,
            Some(b'n') => self.word("null", Value::Null)?,
            _ => return Err(self.unexpected()),
        };
        Ok(Some(value))
    }

    fn member_name(&mut self) -> Result<Text, JsonError> {
        if self.peek() != Some(b'"') {
            return Err(self.unexpected());
        }
        let name = self.string()?;
        self.white_space();
        if self.peek() != Some(b':') {
            return Err(self.unexpected());
        }
        self.at += 1;
        Ok(name)
    }

    fn string(&mut self) -> Result<Text, JsonError> {
        self.at += 1;
        let mut text = String::new();
        // In use from the first lone surrogate on.
        let mut units: Option<Vec<u16>> = None;
        loop {
            let rest = &self.bytes[self.at..];
            let plain = crate::canonical::plain(rest);
            if plain == rest.len() {
                self.at = self.bytes.len();
                return Err(self.error(JsonErrorKind::End));
            }
            let piece = &self.text[self.at..self.at + plain];
            match &mut units {
                None => text.push_str(piece),
                Some(units) => units.extend(piece.encode_utf16()),
            }
            self.at += plain;
            match self.bytes[self.at] {
                b'"' => {
                    self.at += 1;
                    return Ok(match units {
                        None => text.into(),
                        Some(units) => Text::from_utf16(&units),
                    });
                }
                b'\\' => {
                    let unit = self.escape()?;
                    let mut pair = [unit, 0];
                    let mut used = 1;
                    if (0xD800..0xDC00).contains(&unit) && self.bytes[self.at..].starts_with(b"\\u") {
                        let back = self.at;
                        pair[1] = self.escape()?;
                        if (0xDC00..0xE000).contains(&pair[1]) {
                            used = 2;
                        } else {
                            self.at = back;
                        }
                    }
                    match (&mut units, char::decode_utf16(pair[..used].iter().copied()).next()) {
                        (Some(units), _) => units.extend(&pair[..used]),
                        (None, Some(Ok(character))) => text.push(character),
                        (None, _) => units = Some(text.encode_utf16().chain([unit]).collect()),
                    }
                }
                _ => return Err(self.error(JsonErrorKind::Control)),
            }
        }
    }

    /// The code unit of the escape at the cursor.
    fn escape(&mut self) -> Result<u16, JsonError> {
        let Some(&letter) = self.bytes.get(self.at + 1) else {
            self.at = self.bytes.len();
            return Err(self.error(JsonErrorKind::End));
        };
        let unit = match letter {
            b'"' | b'\\' | b'/' => letter,
            b'b' => 0x08,
            b'f' => 0x0C,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let mut unit = 0;
                for at in self.at + 2..self.at + 6 {
                    let digit = match self.bytes.get(at) {
                        Some(&byte) => char::from(byte).to_digit(16),
                        None => return Err(JsonError { kind: JsonErrorKind::End, offset: self.bytes.len() }),
                    };
                    let Some(digit) = digit.and_then(|digit| u16::try_from(digit).ok()) else {
                        return Err(self.error(JsonErrorKind::Escape));
                    };
                    unit = unit << 4 | digit;
                }
                self.at += 6;
                return Ok(unit);
            }
            _ => return Err(self.error(JsonErrorKind::Escape)),
        };
        self.at += 2;
        Ok(unit.into())
    }

    fn number(&mut self) -> Result<f64, JsonError> {
        let start = self.at;
        let malformed = JsonError { kind: JsonErrorKind::Number, offset: start };
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        let whole = self.digits();
        if whole == 0 || (whole > 1 && self.bytes[self.at - whole] == b'0') {
            return Err(malformed);
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            if self.digits() == 0 {
                return Err(malformed);
            }
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if self.digits() == 0 {
                return Err(malformed);
            }
        }
        // Rust rounds to the nearest double, and too large gives infinity: as JavaScript does.
        self.text[start..self.at].parse().map_err(|_| malformed)
    }

    fn digits(&mut self) -> usize {
        let count = self.bytes[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += count;
        count
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, JsonError> {
        for expected in word.bytes() {
            if self.peek() != Some(expected) {
                return Err(self.unexpected());
            }
            self.at += 1;
        }
        Ok(value)
    }

    fn white_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn unexpected(&self) -> JsonError {
        // The cursor stands on a character boundary: it only ever passes whole characters.
        match self.text.get(self.at..).and_then(|rest| rest.chars().next()) {
            Some(character) => self.error(JsonErrorKind::Character(character)),
            None => self.error(JsonErrorKind::End),
        }
    }

    fn error(&self, kind: JsonErrorKind) -> JsonError {
        JsonError { kind, offset: self.at }
    }
}

/// Leaves each name once: at its first place, with its last value.
fn last_wins(members: Vec<(Text, Value)>) -> Vec<(Text, Value)> {
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_by(|&a, &b| members[a].0.cmp(&members[b].0));
    if order.windows(2).all(|pair| members[pair[0]].0 != members[pair[1]].0) {
        return members;
    }
    // The sort is stable, so in a run of equal names the first is the place and the last the value.
    let mut place: Vec<Option<usize>> = vec![None; members.len()];
    let mut run = 0;
    for at in 0..order.len() {
        if members[order[at]].0 != members[order[run]].0 {
            run = at;
        }
        place[order[run]] = Some(order[at]);
    }
    let mut members: Vec<Option<(Text, Value)>> = members.into_iter().map(Some).collect();
    place.into_iter().flatten().filter_map(|from| members[from].take()).collect()
}
