//! The text, its chips, the cursor, and how edits are taken back.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::clusters::{CHIPS, Chip, is_chip, snap};
use super::layout::{Layout, Source, index};

/// Text pasted of more lines than this, or more characters, becomes a chip.
const LONG_LINES: usize = 10;
const LONG_CHARACTERS: usize = 1_000;
/// Bytes of a text of the history above which it becomes a chip.
const LARGE: usize = 16 << 10;
/// Undo goes back this many steps, as long as their texts take no more than so many bytes.
const STEPS: usize = 10_000;
const BYTES: usize = 32 << 20;

/// A piece of a text that can be put into another: with the chips that it needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Clip(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    Text(String),
    Chip(Arc<str>),
}

impl Clip {
    pub(super) fn new(pieces: Vec<Piece>) -> Self {
        Self(pieces)
    }

    pub(super) fn pieces(&self) -> &[Piece] {
        &self.0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is there, with chips as what they stand for.
    pub(super) fn expand(&self) -> String {
        self.0
            .iter()
            .map(|piece| match piece {
                Piece::Text(text) => text.as_str(),
                Piece::Chip(content) => content,
            })
            .collect()
    }

    /// Both, one after the other.
    pub(super) fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }
}

/// What typing a key did, for whether the next one belongs to the same step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Typed { space: bool },
    Erased,
    Other,
}

#[derive(Debug, Clone)]
struct Change {
    at: usize,
    removed: String,
    inserted: String,
}

#[derive(Debug, Clone)]
struct Step {
    changes: Vec<Change>,
    before: usize,
    after: usize,
    kind: Kind,
}

impl Step {
    fn bytes(&self) -> usize {
        self.changes.iter().map(|change| change.removed.len() + change.inserted.len()).sum()
    }
}

#[derive(Debug, Clone)]
pub(super) struct Buffer {
    text: String,
    cursor: usize,
    chips: Vec<Chip>,
    layout: Layout,
    done: VecDeque<Step>,
    undone: Vec<Step>,
    bytes: usize,
    /// Changes since the beginning, also those of steps.
    changes: u64,
    /// The next change begins a step of its own.
    sealed: bool,
    /// Changes until it is closed are one step; so many of them are open, each inside the one before.
    grouped: usize,
}

impl Default for Buffer {
    fn default() -> Self {
        Self {
            text: String::new(),
            cursor: 0,
            chips: Vec::new(),
            layout: Layout::new(Source { text: "", chips: &[] }, 80),
            done: VecDeque::new(),
            undone: Vec::new(),
            bytes: 0,
            changes: 0,
            sealed: true,
            grouped: 0,
        }
    }
}

impl Buffer {
    /// With a character for each chip.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn cursor(&self) -> usize {
        self.cursor
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(super) fn source(&self) -> Source<'_> {
        Source { text: &self.text, chips: &self.chips }
    }

    pub(super) fn resize(&mut self, columns: usize) {
        if columns != self.layout.columns() {
            self.layout = Layout::new(self.source(), columns);
        }
    }

    /// Puts the cursor at a boundary. What is typed next is another step.
    pub(super) fn go(&mut self, at: usize) {
        debug_assert!(super::clusters::is_boundary(&self.text, at));
        self.sealed |= at != self.cursor;
        self.cursor = at;
    }

    /// Everything forgotten: text, chips and steps.
    pub(super) fn reset(&mut self) {
        let columns = self.layout.columns();
        let (work, changes) = (self.layout.work, self.changes + 1);
        *self = Self { changes, ..Self::default() };
        self.layout = Layout::new(self.source(), columns);
        self.layout.work += work;
    }

    /// A piece of the text that can be kept.
    pub(super) fn clip(&self, range: Range<usize>) -> Clip {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        for one in self.text[range].chars() {
            match self.chips.get(index(one)).filter(|_| is_chip(one)) {
                Some(chip) => {
                    if !plain.is_empty() {
                        pieces.push(Piece::Text(std::mem::take(&mut plain)));
                    }
                    pieces.push(Piece::Chip(chip.content.clone()));
                }
                None => plain.push(one),
            }
        }
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Clip(pieces)
    }

    /// The text of a clip, with characters for its chips.
    fn admit(&mut self, clip: &Clip) -> String {
        let mut text = String::new();
        for piece in clip.pieces() {
            match piece {
                Piece::Text(plain) => text.push_str(&self.clean(plain)),
                Piece::Chip(content) => match self.chip(content) {
                    Some(chip) => text.push(chip),
                    None => text.push_str(&self.clean(content)),
                },
            }
        }
        text
    }

    /// Text from outside: lines end with `\n`, and no character of it is one of ours.
    pub(super) fn clean(&mut self, foreign: &str) -> String {
        let text = if foreign.contains('\r') {
            foreign.replace("\r\n", "\n").replace('\r', "\n")
        } else {
            foreign.to_owned()
        };
        if !text.contains(is_chip) {
            return text;
        }
        let mut bytes = [0; 4];
        text.chars()
            .map(|one| {
                if is_chip(one) {
                    self.chip(&Arc::from(&*one.encode_utf8(&mut bytes))).unwrap_or('\u{FFFD}')
                } else {
                    one
                }
            })
            .collect()
    }

    /// The character for a content, the same for the same; `None` when there are 4,094 others.
    fn chip(&mut self, content: &Arc<str>) -> Option<char> {
        let known = |chip: &Chip| {
            Arc::ptr_eq(&chip.content, content) || (content.len() <= 4 && chip.content == *content)
        };
        let at = match self.chips.iter().position(known) {
            Some(at) => at,
            None => {
                let label = label(self.chips.len() + 1, content);
                self.chips.push(Chip { label, content: content.clone() });
                self.chips.len() - 1
            }
        };
        let found = char::from_u32(0x10F000 + u32::try_from(at).ok()?).filter(|one| CHIPS.contains(one));
        if found.is_none() {
            self.chips.pop();
        }
        found
    }

    /// What a paste puts into the text: the text itself, or, when it is long, the character of a chip.
    pub(super) fn pasted(&mut self, text: &str) -> String {
        let is_long = text.len() > LONG_CHARACTERS && text.chars().nth(LONG_CHARACTERS).is_some()
            || text.matches('\n').nth(LONG_LINES - 1).is_some()
            || text.matches('\r').nth(LONG_LINES - 1).is_some();
        if is_long {
            let plain = if text.contains('\r') {
                Arc::from(text.replace("\r\n", "\n").replace('\r', "\n"))
            } else {
                Arc::from(text)
            };
            if let Some(chip) = self.chip(&plain) {
                return chip.to_string();
            }
        }
        self.clean(text)
    }

    /// A text of before, as a chip when it is so large that one would not want to see it.
    pub(super) fn pasted_when_large(&mut self, text: &str) -> String {
        if text.len() > LARGE { self.pasted(text) } else { self.clean(text) }
    }

    /// Puts a kept piece in the place of a range, and the cursor behind it.
    pub(super) fn put(&mut self, range: Range<usize>, clip: &Clip) {
        let text = self.admit(clip);
        self.replace(range, &text);
    }

    /// Puts text that was cleaned in the place of a range, and the cursor behind it. A step of its own.
    pub(super) fn replace(&mut self, range: Range<usize>, text: &str) {
        self.edit(range, text, Kind::Other);
        self.sealed = true;
    }

    /// Types a piece of text that was cleaned; words that are typed make steps.
    pub(super) fn type_text(&mut self, text: &str) {
        let space = text.chars().all(char::is_whitespace);
        self.edit(self.cursor..self.cursor, text, Kind::Typed { space });
    }

    /// Removes a range beside the cursor; such that follow each other make a step.
    pub(super) fn erase(&mut self, range: Range<usize>) {
        self.edit(range, "", Kind::Erased);
    }

    /// Changes until [`end_group`](Self::end_group) are one step.
    pub(super) fn begin_group(&mut self) {
        self.grouped += 1;
        if self.grouped == 1 {
            self.sealed = true;
        }
    }

    pub(super) fn end_group(&mut self) {
        self.grouped = self.grouped.saturating_sub(1);
        if self.grouped == 0 {
            self.sealed = true;
        }
    }

    fn edit(&mut self, range: Range<usize>, text: &str, kind: Kind) {
        if range.is_empty() && text.is_empty() {
            return;
        }
        let before = self.cursor;
        let change = Change {
            at: range.start,
            removed: self.text[range.clone()].to_owned(),
            inserted: text.to_owned(),
        };
        self.splice(range.start, range.len(), text);
        let at = range.start + text.len();
        // What is there now may have become one with what follows.
        self.cursor = snap(&self.text, at);
        self.undone.clear();
        self.keep(change, before, kind);
    }

    /// Keeps how a change is taken back.
    fn keep(&mut self, change: Change, before: usize, kind: Kind) {
        self.bytes += change.removed.len() + change.inserted.len();
        let after = self.cursor;
        let joins = |step: &Step| match (step.kind, kind) {
            // A space begins a new step unless it follows one.
            (Kind::Typed { space: was }, Kind::Typed { space }) => was || !space,
            (Kind::Erased, Kind::Erased) => true,
            _ => false,
        };
        let sealed = std::mem::replace(&mut self.sealed, false);
        let last = self.done.back_mut().filter(|step| !sealed && (self.grouped > 0 || joins(step)));
        match last {
            Some(step) => {
                step.kind = kind;
                step.after = after;
                match step.changes.last_mut() {
                    // Typing, which is one growing insertion.
                    Some(last)
                        if change.removed.is_empty()
                            && last.removed.is_empty()
                            && last.at + last.inserted.len() == change.at =>
                    {
                        last.inserted.push_str(&change.inserted);
                    }
                    _ => step.changes.push(change),
                }
            }
            None => self.done.push_back(Step { changes: vec![change], before, after, kind }),
        }
        while self.done.len() > STEPS || (self.bytes > BYTES && self.done.len() > 1) {
            let Some(oldest) = self.done.pop_front() else { break };
            self.bytes = self.bytes.saturating_sub(oldest.bytes());
        }
    }

    fn splice(&mut self, at: usize, removed: usize, text: &str) {
        self.changes += 1;
        if at == self.text.len() {
            self.text.push_str(text);
        } else {
            self.text.replace_range(at..at + removed, text);
        }
        let source = Source { text: &self.text, chips: &self.chips };
        self.layout.edited(source, at, removed, text.len());
    }

    /// Takes the last step back. Whether there was one.
    pub(super) fn undo(&mut self) -> bool {
        let Some(step) = self.done.pop_back() else { return false };
        self.bytes = self.bytes.saturating_sub(step.bytes());
        for change in step.changes.iter().rev() {
            self.splice(change.at, change.inserted.len(), &change.removed);
        }
        self.cursor = snap(&self.text, step.before);
        self.sealed = true;
        self.undone.push(step);
        true
    }

    /// Does the step again that was taken back last. Whether there was one.
    pub(super) fn redo(&mut self) -> bool {
        let Some(step) = self.undone.pop() else { return false };
        for change in &step.changes {
            self.splice(change.at, change.removed.len(), &change.inserted);
        }
        self.bytes += step.bytes();
        self.cursor = snap(&self.text, step.after);
        self.sealed = true;
        self.done.push_back(step);
        true
    }
}

/// How a chip is shown.
fn label(number: usize, content: &str) -> String {
    if content.len() <= 4 {
        return content.chars().flat_map(char::escape_unicode).collect();
    }
    match content.matches('\n').count() {
        0..LONG_LINES => format!("[paste #{number} {} characters]", content.chars().count()),
        lines => format!("[paste #{number} +{} lines]", lines + usize::from(!content.ends_with('\n'))),
    }
}
