//! Vi's modes: commands are letters, and inserting is one of them.

mod command;
mod motion;

use std::ops::Range;

use super::buffer::Clip;
use super::clusters::{after, before, line_end, line_start};
use super::{Editor, EditorOutcome};
use crate::keys::{Bindings, written};
use crate::{Key, KeyCode};
use motion::CharacterSearch;

/// Higher counts are taken for this.
const MOST: usize = 100_000;
/// Keys of a change that are kept for `.`.
const KEPT_KEYS: usize = 100_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Mode {
    #[default]
    Insert,
    Normal,
    Visual {
        anchor: usize,
        lines: bool,
        /// The buffer's count of changes when the anchor was set: of another text it says nothing.
        of: u64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Delete,
    Change,
    Copy,
}

/// A command that waits for another key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PendingKey {
    Find { back: bool, till: bool },
    G,
    Replace,
    Object { around: bool },
}

#[derive(Debug, Clone, Default)]
pub(super) struct Vi {
    mode: Mode,
    count: Option<usize>,
    operator: Option<(Operator, Option<usize>)>,
    pending: Option<PendingKey>,
    find: Option<CharacterSearch>,
    /// What was removed or copied last, and whether it is of whole lines.
    register: (Clip, bool),
    /// Keys of the command that is under way, and of the last one that changed the text.
    keys: Vec<Key>,
    repeat: Vec<Key>,
    repeating: bool,
}

impl Vi {
    fn is_between(&self) -> bool {
        self.count.is_some() || self.operator.is_some() || self.pending.is_some()
    }

    fn forget(&mut self) {
        (self.count, self.operator, self.pending) = (None, None, None);
    }

    /// Counts before the operator and before the motion.
    fn take_count(&mut self) -> Option<usize> {
        let before = self.operator.and_then(|(_, count)| count);
        match (before, self.count.take()) {
            (None, None) => None,
            (one, other) => Some(one.unwrap_or(1).saturating_mul(other.unwrap_or(1)).min(MOST)),
        }
    }

    /// Something was sent, or taken from elsewhere: inserting begins.
    pub(super) fn begin(&mut self) {
        self.forget();
        self.mode = Mode::Insert;
        self.keys.clear();
    }
}

impl Editor {
    /// Which of vi's modes the editor is in, for whoever shows it; `None` when it has none.
    #[must_use]
    pub fn vi_mode(&self, bindings: &Bindings) -> Option<&'static str> {
        bindings.vi().then_some(match self.vi.mode {
            Mode::Insert => "INSERT",
            Mode::Normal => "NORMAL",
            Mode::Visual { lines: false, .. } => "VISUAL",
            Mode::Visual { lines: true, .. } => "VISUAL LINE",
        })
    }

    /// What is marked.
    pub(super) fn marked(&self) -> Range<usize> {
        let Mode::Visual { anchor, lines, of } = self.vi.mode else { return 0..0 };
        if of != self.buffer.changes() {
            return 0..0;
        }
        let (text, at) = (self.buffer.text(), self.buffer.cursor());
        let (from, to) = (anchor.min(at).min(text.len()), anchor.max(at).min(text.len()));
        if lines { line_start(text, from)..line_end(text, to) } else { from..after(text, to) }
    }

    /// A key where vi's modes are; `None` when it means what it means without them.
    pub(super) fn vi_key(&mut self, key: Key, bindings: &Bindings) -> Option<EditorOutcome> {
        let handled = Some(EditorOutcome::Handled(Vec::new()));
        let is_escape =
            key.code == KeyCode::Escape || (key.modifiers.control && matches!(key.code, KeyCode::Char('[')));
        // What changed the text by another way than vi's, such as a paste, ended the marking.
        if matches!(self.vi.mode, Mode::Visual { of, .. } if of != self.buffer.changes()) {
            self.vi.forget();
            self.vi.mode = Mode::Normal;
            self.clamp();
        }
        if self.vi.mode == Mode::Insert {
            // Only what a command began is repeated.
            let by_command = !self.vi.keys.is_empty();
            if by_command {
                self.record(key);
            }
            if !is_escape {
                return None;
            }
            self.leave_insert();
            if by_command {
                self.finish_change();
            }
            return handled;
        }
        if is_escape {
            let was = self.vi.is_between() || self.vi.mode != Mode::Normal;
            self.vi.forget();
            self.vi.mode = Mode::Normal;
            self.clamp();
            return if was { handled } else { None };
        }
        let redo = key.modifiers.control && key.code == KeyCode::Char('r');
        let character = match key.code {
            _ if redo => '\u{12}',
            KeyCode::Backspace if key.modifiers == Default::default() => 'h',
            _ => match written(key) {
                Some(character) => character,
                None => {
                    // Arrows, Enter and others do what they do; what was begun is let go.
                    self.vi.forget();
                    return None;
                }
            },
        };
        if !self.vi.is_between() && self.vi.mode == Mode::Normal && !self.vi.repeating {
            self.vi.keys.clear();
        }
        if character == '.' && !self.vi.is_between() && self.vi.mode == Mode::Normal {
            self.repeat_change(bindings);
            return handled;
        }
        self.record(key);
        let before = self.buffer.changes();
        let outcome = self.command(character);
        if self.vi.mode == Mode::Normal && !self.vi.is_between() {
            self.clamp();
            if self.buffer.changes() != before && !matches!(character, 'u' | '\u{12}') {
                self.finish_change();
            }
        }
        Some(outcome)
    }

    fn record(&mut self, key: Key) {
        if !self.vi.repeating && self.vi.keys.len() < KEPT_KEYS {
            self.vi.keys.push(key);
        }
    }

    /// The keys since the command began are what `.` does.
    fn finish_change(&mut self) {
        if !self.vi.repeating {
            self.vi.repeat = std::mem::take(&mut self.vi.keys);
        }
    }

    fn repeat_change(&mut self, bindings: &Bindings) {
        if std::mem::replace(&mut self.vi.repeating, true) {
            return;
        }
        self.buffer.begin_group();
        for key in self.vi.repeat.clone() {
            // What the keys of a change could want of others was asked for when they were pressed.
            let _outcome = self.key(key, bindings);
        }
        self.buffer.end_group();
        self.vi.repeating = false;
    }

    /// Inserting begins; all that is typed until Escape is one step.
    fn insert_mode(&mut self) {
        self.vi.forget();
        self.vi.mode = Mode::Insert;
        self.buffer.begin_group();
    }

    fn leave_insert(&mut self) {
        self.buffer.end_group();
        self.vi.forget();
        self.vi.mode = Mode::Normal;
        let (text, at) = (self.buffer.text(), self.buffer.cursor());
        if at > line_start(text, at) {
            self.buffer.go(before(text, at));
        }
        self.popup = None;
    }

    /// In normal mode the cursor is on a character, where its line has one.
    pub(super) fn clamp(&mut self) {
        if self.vi.mode != Mode::Normal {
            return;
        }
        let (text, at) = (self.buffer.text(), self.buffer.cursor());
        let is_end = |byte: Option<&u8>| byte.is_none_or(|byte| *byte == b'\n');
        let bytes = text.as_bytes();
        let starts = at.checked_sub(1).is_none_or(|last| bytes[last] == b'\n');
        if !starts && is_end(bytes.get(at)) {
            self.buffer.go(before(text, at));
        }
    }
}
