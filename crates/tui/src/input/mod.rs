//! What a terminal sends, made keys and other events: incremental, and linear in what comes.

mod lines;
mod sequence;

pub(crate) use lines::Lines;

use crate::{Key, KeyCode, Modifiers};
use std::time::Duration;

/// What came from a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TerminalEvent {
    /// A key was pressed, or is held down.
    Key(Key),
    /// Text was pasted. Its line breaks are line feeds; bytes that are no UTF-8 came as U+FFFD. Nothing else is
    /// changed: it may hold any control characters.
    Paste(String),
    /// Lines that were typed, or pasted, where the kernel edits lines. Without the last line break.
    Line(String),
    /// What is under way shall stop: Ctrl-C, or Escape by itself in a line, where the kernel edits lines.
    Interrupt,
    /// Ctrl-D in an empty line, where the kernel edits lines.
    Finished,
    /// The window is looked at now, or no longer.
    Focus(bool),
    /// The terminal's colour behind text, as it said when it was asked (`OSC 11`): red, green, blue.
    Background([u8; 3]),
    /// The terminal answered a question: about itself (`CSI c`), which every terminal does after all that it was asked
    /// before, or something else that nobody waits for.
    Answer(Answer),
}

/// Answers of a terminal to what it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// What it is (`CSI ? .. c`). Comes last when it was asked last.
    Attributes,
    /// It knows the Kitty keyboard protocol, with these flags now.
    Keyboard(u32),
    /// How it takes a mode (`CSI ? mode ; setting $ y`): 0 not known, 1 and 3 set, 2 and 4 not set.
    Mode {
        /// Its number.
        mode: u32,
        /// As above.
        setting: u32,
    },
    /// Where its cursor stands: row and column, from 1.
    Cursor(u32, u32),
}

/// How long bytes may wait for those that would make them a sequence, and after an Escape alone on a terminal that is
/// far away.
pub(crate) const SEQUENCE_WAIT: Duration = Duration::from_millis(50);
/// How long an Escape may wait for what would make it a key with Alt. A terminal on this machine writes both at once.
pub(crate) const ESCAPE_WAIT: Duration = Duration::from_millis(2);
/// How long a paste may pause.
const PASTE_WAIT: Duration = Duration::from_secs(2);

/// More bytes than any sequence has; of longer ones the rest is dropped.
const LONGEST_SEQUENCE: usize = 4_096;
const PASTE_END: &[u8] = b"\x1b[201~";

/// Makes events of bytes, however they are cut.
///
/// Some bytes are a key by themselves and the beginning of more: then [`Decoder::wait`] says how long to wait for more
/// before [`Decoder::flush`].
#[derive(Debug, Default)]
pub struct Decoder {
    state: State,
    /// What was read of a sequence after its introducer, or of a paste.
    held: Vec<u8>,
    /// An Escape came before the sequence: the key has Alt.
    escaped: bool,
    /// What was held at the last flush was let wait once more.
    waited: bool,
    /// What is held is the beginning of an answer whose rest comes late: what cannot be of it is not.
    late: bool,
    remote: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Ground,
    /// Within a character of so many bytes.
    Utf8(usize),
    /// After Escape.
    Escape,
    /// After `ESC [`.
    Csi,
    /// After `ESC O`.
    Ss3,
    /// After `ESC` and one of `]`, `P`, `X`, `^`, `_`, up to `ESC \` or BEL.
    Text(u8),
    /// Such a text, and then Escape.
    TextEscape(u8),
    /// So many bytes of an old report of the mouse are still to come.
    Mouse(usize),
    Paste,
}

impl Decoder {
    /// For a terminal whose bytes come over a network, where those of one key may come apart.
    #[must_use]
    pub fn remote() -> Self {
        Self { remote: true, ..Self::default() }
    }

    /// The events that are complete with these bytes.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<TerminalEvent> {
        let mut events = Vec::new();
        self.waited = false;
        // A paste whose end got lost would take every key.
        if self.state == State::Paste && bytes == b"\x03" {
            self.end_paste(&mut events);
        }
        let mut rest = bytes;
        while let Some(byte) = rest.first() {
            if self.state == State::Paste {
                rest = self.paste(rest, &mut events);
                continue;
            }
            if self.byte(*byte, &mut events) {
                rest = &rest[1..];
            }
        }
        events
    }

    /// How long to wait for more before [`Decoder::flush`]; nothing when nothing is held back.
    #[must_use]
    pub fn wait(&self) -> Option<Duration> {
        match self.state {
            State::Ground => None,
            _ if self.late => None,
            State::Escape if !self.remote => Some(ESCAPE_WAIT),
            State::Paste if self.held.is_empty() => None,
            State::Paste => Some(PASTE_WAIT),
            _ => Some(SEQUENCE_WAIT),
        }
    }

    /// What is held back becomes events, for nothing came in the time that [`Decoder::wait`] said. Of a sequence that
    /// has begun, more is waited for once; then it is dropped, for it is no text that anybody typed.
    pub fn flush(&mut self) -> Vec<TerminalEvent> {
        let mut events = Vec::new();
        let begun = !self.held.is_empty();
        match self.state {
            State::Ground => {}
            State::Utf8(_) => self.text(&mut events),
            State::Escape => {
                if self.escaped {
                    events.push(key(KeyCode::Escape));
                }
                events.push(key(KeyCode::Escape));
                self.reset();
            }
            State::Paste => {
                if begun {
                    events.push(TerminalEvent::Paste(pasted(&std::mem::take(&mut self.held))));
                }
            }
            State::Csi | State::Ss3 | State::Text(_) if !begun => {
                let introducer = match self.state {
                    State::Csi => b'[',
                    State::Ss3 => b'O',
                    State::Text(introducer) => introducer,
                    _ => b'?',
                };
                self.reset();
                events.push(TerminalEvent::Key(with_alt(Key::from(KeyCode::Char(char::from(introducer))))));
            }
            // No person begins like this, and the rest would be taken for text.
            State::Text(b']') | State::TextEscape(b']') if self.waited && self.held.starts_with(b"11;") => {
                self.late = true;
            }
            State::Csi if self.waited && self.held.first() == Some(&b'?') => self.late = true,
            _ if self.waited => self.reset(),
            _ => self.waited = true,
        }
        events
    }

    fn reset(&mut self) {
        self.state = State::Ground;
        self.held.clear();
        self.escaped = false;
        self.waited = false;
        self.late = false;
    }

    /// Takes a byte; `false` when it has to be offered again, for it ended what was before it and is no part of that.
    fn byte(&mut self, byte: u8, events: &mut Vec<TerminalEvent>) -> bool {
        let answers = match self.state {
            State::Csi => b"0123456789;$cuy".contains(&byte),
            _ => byte.is_ascii_hexdigit() || b":;/rgba\x1b\x07\\".contains(&byte),
        };
        if self.late && !answers {
            self.reset();
            return false;
        }
        match self.state {
            State::Ground => self.ground(byte, events),
            State::Utf8(length) => {
                if byte & 0xc0 != 0x80 {
                    self.text(events);
                    return false;
                }
                self.held.push(byte);
                if self.held.len() == length {
                    self.text(events);
                }
            }
            State::Escape => self.after_escape(byte, events),
            State::Csi => return self.csi(byte, events),
            State::Ss3 => {
                if byte < 0x20 {
                    self.reset();
                    return false;
                }
                if (byte.is_ascii_digit() || byte == b';') && self.held.len() < 8 {
                    self.held.push(byte);
                } else {
                    let found = sequence::ss3(&self.held, byte);
                    self.emit(found.map(TerminalEvent::Key), events);
                }
            }
            State::Text(introducer) => match byte {
                0x1b => self.state = State::TextEscape(introducer),
                0x07 => self.end_text(introducer, events),
                // Nobody answers with these: it is a person, who pressed Alt and a key that looks like a beginning.
                0x03 | b'\r' => {
                    self.reset();
                    return false;
                }
                _ if self.held.len() < LONGEST_SEQUENCE => self.held.push(byte),
                _ => {}
            },
            State::TextEscape(introducer) => {
                if byte == b'\\' {
                    self.end_text(introducer, events);
                } else {
                    self.reset();
                    self.state = State::Escape;
                    return false;
                }
            }
            State::Mouse(left) => {
                if left <= 1 {
                    self.reset();
                } else {
                    self.state = State::Mouse(left - 1);
                }
            }
            State::Paste => {}
        }
        true
    }

    fn ground(&mut self, byte: u8, events: &mut Vec<TerminalEvent>) {
        match byte {
            0x1b => self.state = State::Escape,
            0..=0x7f => {
                let found = control(byte);
                self.emit(Some(TerminalEvent::Key(found)), events);
            }
            0xc2..=0xf4 => {
                self.held.push(byte);
                self.state = State::Utf8(match byte {
                    0xc2..=0xdf => 2,
                    0xe0..=0xef => 3,
                    _ => 4,
                });
            }
            _ => self.emit(Some(key(KeyCode::Char(char::REPLACEMENT_CHARACTER))), events),
        }
    }

    /// Ends the character that is held, complete or not.
    fn text(&mut self, events: &mut Vec<TerminalEvent>) {
        let character = std::str::from_utf8(&self.held)
            .ok()
            .and_then(|text| text.chars().next())
            .filter(|character| !character.is_control())
            .unwrap_or(char::REPLACEMENT_CHARACTER);
        self.emit(Some(key(KeyCode::Char(character))), events);
    }

    /// Adds what a sequence was, with Alt if an Escape came before it.
    fn emit(&mut self, found: Option<TerminalEvent>, events: &mut Vec<TerminalEvent>) {
        let found = match found {
            Some(TerminalEvent::Key(key)) if self.escaped => Some(TerminalEvent::Key(with_alt(key))),
            other => other,
        };
        events.extend(found);
        self.reset();
    }

    fn after_escape(&mut self, byte: u8, events: &mut Vec<TerminalEvent>) {
        match byte {
            b'[' => self.state = State::Csi,
            b'O' => self.state = State::Ss3,
            b']' | b'P' | b'X' | b'^' | b'_' => self.state = State::Text(byte),
            // Escape twice, or Alt with a key that is a sequence: what comes next tells.
            0x1b if !self.escaped => self.escaped = true,
            0x1b => events.push(key(KeyCode::Escape)),
            _ => {
                if self.escaped {
                    // Escape, and then Alt with this.
                    events.push(key(KeyCode::Escape));
                }
                self.escaped = true;
                self.state = State::Ground;
                self.ground(byte, events);
            }
        }
    }

    fn csi(&mut self, byte: u8, events: &mut Vec<TerminalEvent>) -> bool {
        match byte {
            // F1 to F5 of the Linux console: `ESC [ [ A`.
            b'[' if self.held.is_empty() => self.held.push(byte),
            0x20..=0x3f => {
                if self.held.len() < LONGEST_SEQUENCE {
                    self.held.push(byte);
                }
            }
            b'M' if self.held.is_empty() => self.state = State::Mouse(3),
            0x40..=0x7e => {
                if self.held == b"200" && byte == b'~' {
                    self.reset();
                    self.state = State::Paste;
                } else {
                    let found = sequence::csi(&self.held, byte);
                    self.emit(found, events);
                }
            }
            _ => {
                self.reset();
                return false;
            }
        }
        true
    }

    fn end_text(&mut self, introducer: u8, events: &mut Vec<TerminalEvent>) {
        let found = if introducer == b']' { sequence::background(&self.held) } else { None };
        self.emit(found, events);
    }

    /// Takes bytes of a paste, and returns those after its end.
    fn paste<'bytes>(&mut self, bytes: &'bytes [u8], events: &mut Vec<TerminalEvent>) -> &'bytes [u8] {
        // The end may have begun in what is held.
        let overlap = self.held.len().min(PASTE_END.len() - 1);
        let from = self.held.len() - overlap;
        let before = self.held.len();
        // Only where an end could be complete with them are bytes taken that come after it.
        let mut seam = self.held[from..].to_vec();
        seam.extend_from_slice(&bytes[..bytes.len().min(PASTE_END.len() - 1)]);
        if let Some(at) = find(&seam, PASTE_END) {
            self.held.truncate(from + at);
            let used = from + at + PASTE_END.len() - before;
            self.end_paste(events);
            return &bytes[used..];
        }
        if let Some(at) = find(bytes, PASTE_END) {
            self.held.extend_from_slice(&bytes[..at]);
            self.end_paste(events);
            return &bytes[at + PASTE_END.len()..];
        }
        self.held.extend_from_slice(bytes);
        &[]
    }

    fn end_paste(&mut self, events: &mut Vec<TerminalEvent>) {
        events.push(TerminalEvent::Paste(pasted(&self.held)));
        self.reset();
        self.held.shrink_to(LONGEST_SEQUENCE);
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, what)
}

/// The text of a paste: terminals send a carriage return for each line break.
fn pasted(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    if text.contains('\r') { text.replace("\r\n", "\n").replace('\r', "\n") } else { text.into_owned() }
}

fn key(code: KeyCode) -> TerminalEvent {
    TerminalEvent::Key(Key::from(code))
}

fn with_alt(key: Key) -> Key {
    Key { modifiers: Modifiers { alt: true, ..key.modifiers }, ..key }
}

/// The key that sends one byte.
fn control(byte: u8) -> Key {
    let held = |character| Key {
        code: KeyCode::Char(character),
        modifiers: Modifiers { control: true, ..Modifiers::default() },
    };
    match byte {
        0 => held(' '),
        b'\t' => KeyCode::Tab.into(),
        b'\r' => KeyCode::Enter.into(),
        0x7f => KeyCode::Backspace.into(),
        0x1b => KeyCode::Escape.into(),
        1..=0x1a => held(char::from(byte + 0x60)),
        0x1c..=0x1f => held(char::from(byte + 0x40)),
        _ => KeyCode::Char(char::from(byte)).into(),
    }
}
