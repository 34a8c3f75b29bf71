//! What the actions of the editor do.

use super::clusters::{after, before, line_end, line_start, word_end, word_start};
use super::history::HistoryEntry;
use super::kill::KillMode;
use super::{Editor, EditorEffect, EditorOutcome, LastAction};
use crate::keys::Action;

impl Editor {
    /// Does an action; `None` for one that is not the editor's, or has nothing to do here that others might not.
    pub(super) fn act(&mut self, action: Action) -> Option<EditorOutcome> {
        let last = std::mem::take(&mut self.last);
        let at = self.buffer.cursor();
        let to = |editor: &mut Self, place: usize| editor.buffer.go(place);
        let text = self.buffer.text();
        match action {
            Action::Submit => {
                if text[..at].ends_with('\\') {
                    self.buffer.replace(at - 1..at, "\n");
                } else {
                    return Some(self.submit());
                }
            }
            Action::NewLine => self.buffer.replace(at..at, "\n"),
            Action::CursorUp => return self.up(last, 1),
            Action::CursorDown => return self.down(last, 1),
            Action::PageUp => self.rows(last, usize::saturating_sub),
            Action::PageDown => self.rows(last, |row, page| row + page),
            Action::CursorLeft => to(self, before(text, at)),
            Action::CursorRight => to(self, after(text, at)),
            Action::CursorWordLeft => to(self, word_start(text, at)),
            Action::CursorWordRight => to(self, word_end(text, at)),
            Action::CursorLineStart => to(self, line_start(text, at)),
            Action::CursorLineEnd => to(self, line_end(text, at)),
            Action::CursorTextStart => to(self, 0),
            Action::CursorTextEnd => to(self, text.len()),
            Action::JumpForward => self.last = LastAction::Jump { back: false },
            Action::JumpBackward => self.last = LastAction::Jump { back: true },
            Action::HistoryPrevious => return self.older(),
            Action::HistoryNext => return self.newer(),
            Action::DeleteCharBackward => self.buffer.erase(before(text, at)..at),
            Action::DeleteCharForward if text.is_empty() => return None,
            Action::DeleteCharForward => self.buffer.erase(at..after(text, at)),
            Action::DeleteWordBackward => self.cut(last, word_start(text, at), at),
            Action::DeleteWordForward => self.cut(last, at, word_end(text, at)),
            Action::DeleteToLineStart => {
                let start = line_start(text, at);
                // At the beginning of a line there is nothing but the line before.
                self.cut(last, if start == at { before(text, at) } else { start }, at);
            }
            Action::DeleteToLineEnd => {
                let end = line_end(text, at);
                self.cut(last, at, if end == at { after(text, at) } else { end });
            }
            Action::Yank => {
                if let Some(clip) = self.kills.last() {
                    self.buffer.put(at..at, clip);
                    self.last = LastAction::Yank { from: at };
                }
            }
            Action::YankPop => {
                let LastAction::Yank { from } = last else { return Some(EditorOutcome::Handled(Vec::new())) };
                if let Some(clip) = self.kills.turn() {
                    self.buffer.put(from..at, clip);
                    self.last = LastAction::Yank { from };
                }
            }
            Action::CopyText => {
                let marked = self.marked();
                let range = if marked.is_empty() { 0..text.len() } else { marked };
                let copied = self.buffer.clip(range).expand();
                return Some(EditorOutcome::Handled(vec![EditorEffect::Copy(copied)]));
            }
            Action::Complete => return Some(EditorOutcome::Handled(self.complete_path())),
            Action::Undo => {
                self.buffer.undo();
            }
            Action::Redo => {
                self.buffer.redo();
            }
            _ => return None,
        }
        Some(EditorOutcome::Handled(Vec::new()))
    }

    fn cut(&mut self, last: LastAction, from: usize, to: usize) {
        let with = match last {
            LastAction::Cut if to == self.buffer.cursor() => KillMode::Before,
            LastAction::Cut => KillMode::Behind,
            _ => KillMode::Alone,
        };
        self.kills.cut(self.buffer.clip(from..to), with);
        self.buffer.replace(from..to, "");
        self.last = LastAction::Cut;
    }

    /// Rows up; from the first row, to what was sent before.
    pub(super) fn up(&mut self, last: LastAction, rows: usize) -> Option<EditorOutcome> {
        if self.buffer.layout().row_of(self.buffer.cursor()) == 0 {
            return self.older();
        }
        self.rows(last, |row, _| row.saturating_sub(rows));
        Some(EditorOutcome::Handled(Vec::new()))
    }

    /// Rows down; from the last row, to what was sent after, or to the end.
    pub(super) fn down(&mut self, last: LastAction, rows: usize) -> Option<EditorOutcome> {
        let layout = self.buffer.layout();
        if layout.row_of(self.buffer.cursor()) + 1 == layout.len() {
            if self.history.is_shown() {
                return self.newer();
            }
            self.buffer.go(self.buffer.text().len());
            return Some(EditorOutcome::Handled(Vec::new()));
        }
        self.rows(last, |row, _| row + rows);
        Some(EditorOutcome::Handled(Vec::new()))
    }

    /// To another row, in the column where the first of such motions began.
    fn rows(&mut self, last: LastAction, to: impl FnOnce(usize, usize) -> usize) {
        let (layout, source) = (self.buffer.layout(), self.buffer.source());
        let (row, column) = layout.position(source, self.buffer.cursor());
        let goal = match last {
            LastAction::Rows { goal } => goal,
            _ => column,
        };
        let row = to(row, self.page.max(1)).min(layout.len() - 1);
        let place = layout.place(source, row, goal);
        self.buffer.go(place);
        self.last = LastAction::Rows { goal };
    }

    fn older(&mut self) -> Option<EditorOutcome> {
        let buffer = &self.buffer;
        let text = self.history.previous(|| buffer.clip(0..buffer.text().len()))?;
        self.show(&text);
        Some(EditorOutcome::Handled(Vec::new()))
    }

    fn newer(&mut self) -> Option<EditorOutcome> {
        match self.history.next()? {
            HistoryEntry::Sent(text) => self.show(&text),
            HistoryEntry::Written(clip) => self.buffer.put(0..self.buffer.text().len(), &clip),
        }
        Some(EditorOutcome::Handled(Vec::new()))
    }

    fn show(&mut self, text: &str) {
        let text = self.buffer.pasted_when_large(text);
        self.buffer.replace(0..self.buffer.text().len(), &text);
    }

    /// To the next one of a character, or the one before.
    pub(super) fn jump(&mut self, character: char, back: bool) {
        let (text, at) = (self.buffer.text(), self.buffer.cursor());
        let found = if back {
            text[..at].rfind(character)
        } else {
            let from = after(text, at);
            text[from..].find(character).map(|found| from + found)
        };
        if let Some(found) = found.filter(|found| super::clusters::is_boundary(text, *found)) {
            self.buffer.go(found);
        }
    }
}
