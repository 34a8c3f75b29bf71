//! The token by which a model says that it has nothing to say.

use std::mem;

/// A message that is only this is not sent.
pub const SILENT_TOKEN: &str = "NO_REPLY";
const SILENT_JSON: &str = "{\"action\":\"NO_REPLY\"}";
/// Blanks and asterisks that can stand before the token at the end of a text, in characters.
const RUN_MOST: usize = 256;

/// Whether the whole message is the token, in any case, or its JSON form.
pub fn is_silent(text: &str) -> bool {
    let text = text.trim();
    text.eq_ignore_ascii_case(SILENT_TOKEN) || text == SILENT_JSON
}

/// Whether the text may become the token: at least two capital letters of it.
pub fn is_silent_prefix(text: &str) -> bool {
    let text = text.trim();
    text.len() >= 2 && SILENT_TOKEN.starts_with(text)
}

/// The text without a token that is glued to its start or stands alone at its end; empty when it is silent.
pub fn without_silent_token(text: &str) -> String {
    let mut gate = SilenceGate::new();
    let mut visible = gate.push(text);
    visible.push_str(&gate.finish());
    visible
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// All so far may be the silent message: bytes of the token and of its JSON form that are matched.
    Head { token: Option<usize>, json: Option<usize> },
    /// Text, and whether a token may end it.
    Body(Tail),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tail {
    Text,
    /// Blanks and asterisks.
    Run,
    /// Bytes of the token after them.
    Token(usize),
}

/// Holds back what may be the token while the text of one message arrives. What it gives is the same in whatever pieces the text
/// arrives.
#[derive(Debug, Clone)]
pub struct SilenceGate {
    phase: Phase,
    held: String,
    run: usize,
    silent: bool,
}

impl Default for SilenceGate {
    fn default() -> Self {
        Self::new()
    }
}

impl SilenceGate {
    /// For one message.
    pub fn new() -> Self {
        Self {
            phase: Phase::Head { token: Some(0), json: Some(0) },
            held: String::new(),
            run: 0,
            silent: false,
        }
    }

    /// The text that is certain to be sent.
    pub fn push(&mut self, text: &str) -> String {
        let mut out = String::new();
        for character in text.chars() {
            self.character(character, &mut out);
        }
        out
    }

    /// What is held in the middle of a text, when something other than text follows it.
    pub fn release(&mut self) -> String {
        match self.phase {
            Phase::Head { .. } => String::new(),
            Phase::Body(_) => {
                self.phase = Phase::Body(Tail::Text);
                mem::take(&mut self.held)
            }
        }
    }

    /// What is held at the end of a text, when another text of the message may follow. While all so far may be the silent message, it
    /// stays held.
    pub fn end_text(&mut self) -> String {
        let whole = self.phase == Phase::Body(Tail::Token(SILENT_TOKEN.len()));
        let held = self.release();
        if whole { String::new() } else { held }
    }

    /// What is left to send: the message ends here.
    pub fn finish(&mut self) -> String {
        let held = mem::take(&mut self.held);
        match self.phase {
            Phase::Head { .. } if is_silent(&held) => {
                self.silent = true;
                String::new()
            }
            Phase::Body(Tail::Token(matched)) if matched == SILENT_TOKEN.len() => String::new(),
            _ => held,
        }
    }

    /// Whether the message was only the token; known when it has ended.
    pub fn is_silent(&self) -> bool {
        self.silent
    }

    fn character(&mut self, character: char, out: &mut String) {
        match self.phase {
            Phase::Head { token, json } => self.head(character, token, json, out),
            Phase::Body(tail) => self.body(character, tail, out),
        }
    }

    fn head(&mut self, character: char, token: Option<usize>, json: Option<usize>, out: &mut String) {
        let next = |matched: Option<usize>, whole: &str, any_case: bool| {
            let matched = matched?;
            if character.is_whitespace() && (matched == 0 || matched == whole.len()) {
                return Some(matched);
            }
            let expected = char::from(*whole.as_bytes().get(matched)?);
            let same =
                if any_case { expected.eq_ignore_ascii_case(&character) } else { expected == character };
            same.then_some(matched + 1)
        };
        let next_token = next(token, SILENT_TOKEN, true);
        let next_json = next(json, SILENT_JSON, false);
        if next_token.is_some() || next_json.is_some() {
            self.held.push(character);
            self.phase = Phase::Head { token: next_token, json: next_json };
            return;
        }
        let mut held = mem::take(&mut self.held);
        if token == Some(SILENT_TOKEN.len()) && held.ends_with(SILENT_TOKEN) && character.is_alphabetic() {
            held.clear();
        }
        self.phase = Phase::Body(Tail::Text);
        held.push(character);
        for character in held.chars() {
            self.character(character, out);
        }
    }

    fn body(&mut self, character: char, tail: Tail, out: &mut String) {
        let filler = character.is_whitespace() || character == '*';
        let next = match tail {
            Tail::Text | Tail::Run if filler => Some(Tail::Run),
            Tail::Run if SILENT_TOKEN.starts_with(character) => Some(Tail::Token(1)),
            Tail::Token(matched) if matched == SILENT_TOKEN.len() => filler.then_some(tail),
            Tail::Token(matched) if SILENT_TOKEN[matched..].starts_with(character) => {
                Some(Tail::Token(matched + 1))
            }
            _ => None,
        };
        let Some(next) = next else {
            out.push_str(&mem::take(&mut self.held));
            self.phase = Phase::Body(Tail::Text);
            self.run = 0;
            if filler {
                self.body(character, Tail::Text, out);
            } else {
                out.push(character);
            }
            return;
        };
        self.run += 1;
        if self.run > RUN_MOST {
            out.push_str(&mem::take(&mut self.held));
            self.run = 0;
            self.phase = Phase::Body(Tail::Text);
            out.push(character);
            return;
        }
        self.held.push(character);
        self.phase = Phase::Body(next);
    }
}
