//! One line of code as runs.

use super::LineState;
use super::table::{Language, Mode};
use crate::Role;
use crate::styled::Run;

struct Lexer<'a> {
    language: &'static Language,
    text: &'a str,
    at: usize,
    runs: Vec<Run>,
    /// Nothing but space and marks of lists came yet.
    first: bool,
}

/// A line, which `inside` begins in and afterwards says what the next one begins in.
pub(super) fn line(language: &'static Language, inside: &mut LineState, text: &str) -> Vec<Run> {
    let mut lexer = Lexer { language, text, at: 0, runs: Vec::new(), first: true };
    match language.mode {
        Mode::Diff => lexer.diff(),
        Mode::Markdown => lexer.markdown(inside),
        Mode::Markup => lexer.markup(inside),
        Mode::Code | Mode::Shell | Mode::Keys => lexer.code(inside),
    }
    lexer.runs
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn put(&mut self, length: usize, role: Role) {
        let text = &self.text[self.at..self.at + length];
        if text.is_empty() {
            return;
        }
        match self.runs.last_mut() {
            Some(last) if last.role == role || text.trim().is_empty() => last.text.push_str(text),
            _ => {
                self.runs.push(Run {
                    text: text.to_owned(),
                    role,
                    bold: false,
                    italic: false,
                    strike: false,
                    link: None,
                });
            }
        }
        self.at += length;
    }

    fn code(&mut self, inside: &mut LineState) {
        let language = self.language;
        if self.text.starts_with('#') && !language.directives.is_empty() {
            let word = self.text[1..].trim_start().split(|c: char| !c.is_alphanumeric()).next().unwrap_or("");
            if language.directives.split(' ').any(|other| other == word) {
                let length = self.text.find(word).unwrap_or(0) + word.len();
                self.put(length, Role::Keyword);
                if word == "include" {
                    let length = self.rest().find(['/', '"']).map_or(self.rest().len(), |_| 0);
                    self.put(length, Role::String);
                }
            }
        }
        while self.at < self.text.len() {
            match *inside {
                LineState::Comment(which, depth) => self.comment(which, depth, inside),
                LineState::Text(which) => self.string(which, 0, inside),
                LineState::Nothing | LineState::Tag => self.token(inside),
            }
        }
        // A string that may not go on ends with the line.
        if let LineState::Text(which) = *inside
            && !language.strings[which].lines
        {
            *inside = LineState::Nothing;
        }
    }

    fn token(&mut self, inside: &mut LineState) {
        let language = self.language;
        let rest = self.rest();
        let space = rest.len() - rest.trim_start().len();
        if space > 0 {
            return self.put(space, Role::Text);
        }
        if let Some(which) = language.comments.iter().position(|(open, _)| rest.starts_with(open)) {
            let open = language.comments[which].0.len();
            self.put(open, Role::Comment);
            *inside = LineState::Comment(which, 1);
            return;
        }
        let before = self.text[..self.at].chars().next_back();
        let apart = before.is_none_or(|c| c.is_whitespace() || ";(|&".contains(c));
        let strict = matches!(language.mode, Mode::Shell | Mode::Keys);
        if language.line_comments.iter().any(|mark| rest.starts_with(mark)) && (apart || !strict) {
            let length = rest.len();
            return self.put(length, Role::Comment);
        }
        if let Some(which) = language.strings.iter().position(|string| rest.starts_with(string.open)) {
            return self.string(which, language.strings[which].open.len(), inside);
        }
        let Some(c) = rest.chars().next() else { return };
        if c == '\'' && language.characters {
            return self.character();
        }
        if language.attributes && (rest.starts_with("#[") || rest.starts_with("#![")) {
            let length = rest.find(']').map_or(rest.len(), |end| end + 1);
            return self.put(length, Role::Property);
        }
        if language.sigils.contains(c)
            && let Some(length) = sigil(rest)
        {
            self.first = false;
            return self.put(length, Role::Property);
        }
        if c.is_ascii_digit() {
            self.first = false;
            let length = number(rest);
            return self.put(length, Role::Number);
        }
        if c.is_alphabetic() || c == '_' || (language.word.contains(c) && c != '-') {
            return self.word();
        }
        if self.first && c == '[' && language.keys == "=" {
            let length = rest.trim_end().len();
            return self.put(length, Role::Type);
        }
        self.first &= "-{,[(;".contains(c);
        self.put(c.len_utf8(), Role::Punctuation);
    }

    fn word(&mut self) {
        let language = self.language;
        let rest = self.rest();
        let part = |c: char| c.is_alphanumeric() || c == '_' || language.word.contains(c);
        let length = rest.find(|c| !part(c)).unwrap_or(rest.len());
        let word = &rest[..length];
        let after = &rest[length..];
        let lower;
        let known = if language.any_case {
            lower = word.to_ascii_lowercase();
            lower.as_str()
        } else {
            word
        };
        let listed = |list: &str| list.split(' ').any(|other| other == known);
        let member = self.text[..self.at].ends_with('.') && !self.text[..self.at].ends_with("..");
        let role = if self.is_key(after) {
            Role::Property
        } else if !member && listed(language.constants) {
            Role::Constant
        } else if !member && listed(language.keywords) {
            Role::Keyword
        } else if listed(language.types) {
            Role::Type
        } else if self.names_function()
            || after.starts_with('(')
            || (after.starts_with('!') && language.attributes)
        {
            Role::Function
        } else if language.upper && word.starts_with(char::is_uppercase) {
            let shouted = word.len() > 1 && !word.contains(char::is_lowercase);
            if shouted { Role::Constant } else { Role::Type }
        } else {
            Role::Text
        };
        if !(self.first && language.mode == Mode::Keys && language.keys.is_empty()) {
            self.first = false;
        }
        self.put(length, role);
    }

    /// Whether the word before says that a function's name comes.
    fn names_function(&self) -> bool {
        let last = self.runs.last().filter(|run| run.role == Role::Keyword && run.text.ends_with(' '));
        let word = last.and_then(|run| run.text.trim_end().rsplit(' ').next());
        word.is_some_and(|word| matches!(word, "fn" | "def" | "func" | "fun" | "function" | "sub" | "defp"))
    }

    /// Whether what was just read is the name of a value.
    fn is_key(&self, after: &str) -> bool {
        let keys = self.language.keys;
        let first = self.first || keys == "\":";
        !keys.is_empty() && first && after.trim_start().starts_with(keys.trim_start_matches('"'))
    }

    fn comment(&mut self, which: usize, depth: usize, inside: &mut LineState) {
        let (open, close) = self.language.comments[which];
        let rest = self.rest();
        let end = rest.find(close);
        let again = rest.find(open).filter(|at| self.language.nested && end.is_none_or(|end| *at < end));
        match (again, end) {
            (Some(at), _) => {
                let length = at + open.len();
                self.put(length, Role::Comment);
                *inside = LineState::Comment(which, depth + 1);
            }
            (None, Some(at)) => {
                let length = at + close.len();
                self.put(length, Role::Comment);
                *inside = if depth > 1 { LineState::Comment(which, depth - 1) } else { LineState::Nothing };
            }
            (None, None) => {
                let length = rest.len();
                self.put(length, Role::Comment);
            }
        }
    }

    /// A string from here on, whose first bytes are its beginning.
    fn string(&mut self, which: usize, begun: usize, inside: &mut LineState) {
        let string = &self.language.strings[which];
        let rest = self.rest();
        let mut at = begun;
        let end = loop {
            let tail = &rest[at..];
            let Some(close) = tail.find(string.close) else { break None };
            match tail.find('\\').filter(|escape| string.escapes && *escape < close) {
                Some(escape) => {
                    let escaped = tail[escape + 1..].chars().next().map_or(0, char::len_utf8);
                    at += escape + 1 + escaped;
                }
                None => break Some(at + close + string.close.len()),
            }
        };
        *inside = if end.is_none() { LineState::Text(which) } else { LineState::Nothing };
        let length = end.unwrap_or(rest.len());
        let role = if self.is_key(&rest[length..]) { Role::Property } else { Role::String };
        self.first = false;
        self.put(length, role);
    }

    /// `'x'`, or what begins with the same mark: a lifetime, a label.
    fn character(&mut self) {
        let rest = self.rest();
        let mut inner = rest[1..].chars();
        let first = inner.next();
        let length = if first == Some('\\') {
            inner.next();
            inner.as_str().find('\'').map(|end| rest.len() - inner.as_str().len() + end + 1)
        } else {
            inner.as_str().starts_with('\'').then(|| rest.len() - inner.as_str().len() + 1)
        };
        match length {
            Some(length) => self.put(length, Role::String),
            None => {
                let name =
                    rest[1..].find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len() - 1);
                self.put(1 + name, Role::Property);
            }
        }
    }

    fn diff(&mut self) {
        let starts = |marks: &[&str]| marks.iter().any(|mark| self.text.starts_with(mark));
        let role =
            if starts(&["+++", "---", "diff ", "index ", "Index:", "rename ", "new file", "deleted file"]) {
                Role::Muted
            } else if starts(&["@@"]) {
                Role::Property
            } else if starts(&["+", ">"]) {
                Role::Added
            } else if starts(&["-", "<"]) {
                Role::Removed
            } else {
                Role::Context
            };
        self.put(self.text.len(), role);
    }

    fn markdown(&mut self, inside: &mut LineState) {
        let trimmed = self.text.trim_start();
        let indent = self.text.len() - trimmed.len();
        let fence = trimmed.starts_with("```") || trimmed.starts_with("~~~");
        if fence || *inside != LineState::Nothing {
            if fence {
                *inside = if *inside == LineState::Nothing { LineState::Text(0) } else { LineState::Nothing };
            }
            return self.put(self.text.len(), Role::Code);
        }
        if trimmed.starts_with('#') {
            return self.put(self.text.len(), Role::Heading);
        }
        if trimmed.starts_with('>') {
            return self.put(self.text.len(), Role::Quote);
        }
        self.put(indent, Role::Text);
        if ["- ", "* ", "+ "].iter().any(|mark| trimmed.starts_with(mark)) {
            self.put(2, Role::Bullet);
        }
        while self.at < self.text.len() {
            let rest = self.rest();
            let next = rest.find('`').unwrap_or(rest.len());
            self.put(next, Role::Text);
            let rest = self.rest();
            let code = rest.get(1..).and_then(|inner| inner.find('`')).map_or(rest.len(), |end| end + 2);
            self.put(code, Role::Code);
        }
    }

    fn markup(&mut self, inside: &mut LineState) {
        while self.at < self.text.len() {
            let rest = self.rest();
            match *inside {
                LineState::Comment(which, depth) => self.comment(which, depth, inside),
                LineState::Text(which) => {
                    self.string(which, 0, inside);
                    if *inside == LineState::Nothing {
                        *inside = LineState::Tag;
                    }
                }
                LineState::Tag => {
                    let Some(c) = rest.chars().next() else { return };
                    match c {
                        '>' => {
                            *inside = LineState::Nothing;
                            self.put(1, Role::Punctuation);
                        }
                        '"' | '\'' => {
                            self.string(usize::from(c == '\''), 1, inside);
                            if *inside == LineState::Nothing {
                                *inside = LineState::Tag;
                            }
                        }
                        c if c.is_alphanumeric() || "_:-@.".contains(c) => {
                            let length = rest.find(|c: char| !c.is_alphanumeric() && !"_:-@.".contains(c));
                            let length = length.unwrap_or(rest.len());
                            self.put(length, Role::Property);
                        }
                        c => self.put(c.len_utf8(), Role::Punctuation),
                    }
                }
                LineState::Nothing => {
                    if rest.starts_with("<!--") {
                        self.put(4, Role::Comment);
                        *inside = LineState::Comment(0, 1);
                    } else if let Some(name) = rest.strip_prefix('<').filter(|name| !name.starts_with(' ')) {
                        let marks = 1 + name.len() - name.trim_start_matches(['/', '!', '?']).len();
                        let name = &rest[marks..];
                        let length = name.find(|c: char| !c.is_alphanumeric() && !"_:-.".contains(c));
                        let length = length.unwrap_or(name.len());
                        self.put(marks, Role::Punctuation);
                        self.put(length, Role::Keyword);
                        *inside = LineState::Tag;
                    } else if rest.starts_with('&') && rest.find(';').is_some_and(|end| end < 10) {
                        let length = rest.find(';').unwrap_or(0) + 1;
                        self.put(length, Role::Constant);
                    } else {
                        let length = 1 + rest
                            .bytes()
                            .skip(1)
                            .position(|byte| byte == b'<' || byte == b'&')
                            .unwrap_or(rest.len() - 1);
                        self.put(length, Role::Text);
                    }
                }
            }
        }
    }
}

/// `$name`, `${name}`, `@name`, `$1`.
fn sigil(rest: &str) -> Option<usize> {
    let name = &rest[1..];
    if name.starts_with(['{', '(']) {
        let close = if name.starts_with('{') { '}' } else { ')' };
        // A command within: only its mark.
        return if close == ')' { Some(1) } else { name.find(close).map(|end| end + 2) };
    }
    if name.starts_with(['?', '#', '*', '@', '!', '$', '<', '^']) && rest.starts_with('$') {
        return Some(2);
    }
    let length = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
    (length > 0).then_some(length + 1)
}

fn number(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let hex = rest.starts_with("0x") || rest.starts_with("0X");
    let mut at = 1;
    while let Some(byte) = bytes.get(at) {
        let continues = byte.is_ascii_alphanumeric()
            || *byte == b'_'
            || (*byte == b'.' && bytes.get(at + 1).is_some_and(u8::is_ascii_digit))
            || (matches!(byte, b'+' | b'-') && !hex && matches!(bytes[at - 1], b'e' | b'E'));
        if !continues {
            break;
        }
        at += 1;
    }
    at
}
