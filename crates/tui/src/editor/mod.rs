//! Where prompts are written.
//!
//! An [`Editor`] is pure: keys and pastes change it, [`Editor::view`] shows it, and what only the outside can do comes
//! out of it as an [`EditorEffect`]. What a key costs does not grow with the text behind which it is typed: rows are
//! laid out again from the one before the cursor, and undo keeps what changed.

mod buffer;
mod clusters;
mod complete;
mod draft;
mod emacs;
mod history;
mod kill;
mod layout;
mod popup;
#[cfg(test)]
mod tests;
mod vi;
mod view;

use buffer::Buffer;
pub use complete::{CommandWord, Query};
pub use draft::Draft;
use history::History;
use kill::KillRing;
pub use popup::Candidate;

use crate::keys::{Action, Bindings, Scope, written};
use crate::{Key, KeyCode};

/// What became of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EditorOutcome {
    /// It is not the editor's.
    Ignored,
    /// The editor may look different now; and this is to be done.
    Handled(Vec<EditorEffect>),
    /// This is sent, chips as what they stand for. The editor is empty.
    Submit(String),
}

/// What the editor wants of the outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EditorEffect {
    /// Let the user's editor have this text, and give what comes of it to [`Editor::set_text`].
    EditExternally(String),
    /// Put this on the clipboard.
    Copy(String),
    /// Give what is found to [`Editor::offer`], in parts or at once.
    Complete {
        /// The number of the question. The newest counts.
        id: u64,
        /// What is wanted.
        query: Query,
    },
    /// Put the image of the clipboard into a file, and give its path to [`Editor::insert`].
    PasteImage,
}

/// The action of the previous key, where the next one depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum LastAction {
    #[default]
    Other,
    Cut,
    Yank {
        from: usize,
    },
    Rows {
        goal: usize,
    },
    Jump {
        back: bool,
    },
}

/// A text that is being written: several lines, wrapped between words, with history, undo and a kill ring.
#[derive(Debug, Clone, Default)]
pub struct Editor {
    buffer: Buffer,
    kills: KillRing,
    history: History,
    last: LastAction,
    vi: vi::Vi,
    commands: Vec<CommandWord>,
    popup: Option<popup::Popup>,
    /// The beginning of what a list was closed for: it does not open again for that.
    dismissed: Option<usize>,
    /// Questions for candidates.
    asked: u64,
    /// The first row that is seen, as far as it was said.
    top: usize,
    /// Rows that are seen at once.
    page: usize,
}

impl Editor {
    /// A key was pressed. Whoever has keys of its own ([`Scope::App`]) gives them here first, and takes those that are
    /// ignored: an open list and vi's modes have uses for Escape.
    pub fn on_key(&mut self, key: Key, bindings: &Bindings) -> EditorOutcome {
        let before = (self.buffer.changes(), self.buffer.cursor());
        let mut outcome = self.key(key, bindings);
        if let EditorOutcome::Handled(effects) = &mut outcome {
            let after = (self.buffer.changes(), self.buffer.cursor());
            let grew = after.0 > before.0;
            if after != before && effects.is_empty() {
                *effects = self.follow(grew);
            }
        }
        if bindings.vi() {
            self.clamp();
        }
        self.scroll();
        outcome
    }

    fn key(&mut self, key: Key, bindings: &Bindings) -> EditorOutcome {
        if let LastAction::Jump { back } = self.last {
            self.last = LastAction::Other;
            if let Some(character) = written(key) {
                self.jump(character, back);
            }
            // Any other key takes the jump back.
            if written(key).is_some() || key.code == KeyCode::Escape {
                return EditorOutcome::Handled(Vec::new());
            }
        }
        if let Some(outcome) = self.popup_key(key, bindings) {
            return outcome;
        }
        if bindings.vi()
            && let Some(outcome) = self.vi_key(key, bindings)
        {
            return outcome;
        }
        if let Some(action) = bindings.action(Scope::Editor, key)
            && let Some(outcome) = self.act(action)
        {
            return outcome;
        }
        match bindings.action(Scope::App, key) {
            Some(Action::ExternalEditor) => {
                return EditorOutcome::Handled(vec![EditorEffect::EditExternally(self.text())]);
            }
            Some(Action::PasteImage) => return EditorOutcome::Handled(vec![EditorEffect::PasteImage]),
            Some(_) => return EditorOutcome::Ignored,
            None => {}
        }
        match written(key) {
            Some(character) => {
                self.last = LastAction::Other;
                self.history.leave();
                let text = self.buffer.clean(character.encode_utf8(&mut [0; 4]));
                self.buffer.type_text(&text);
                EditorOutcome::Handled(Vec::new())
            }
            None => EditorOutcome::Ignored,
        }
    }

    /// Text was pasted. More than 10 lines of it, or 1,000 characters, become a chip.
    pub fn paste(&mut self, text: &str) {
        self.leave();
        let text = self.buffer.pasted(text);
        let at = self.buffer.cursor();
        self.buffer.replace(at..at, &text);
        self.scroll();
    }

    /// Puts text at the cursor, as it is.
    pub fn insert(&mut self, text: &str) {
        self.leave();
        let text = self.buffer.clean(text);
        let at = self.buffer.cursor();
        self.buffer.replace(at..at, &text);
        self.scroll();
    }

    /// The whole text, chips as what they stand for.
    #[must_use]
    pub fn text(&self) -> String {
        self.buffer.clip(0..self.buffer.text().len()).expand()
    }

    /// Another number after each change of the text: whoever keeps a draft sees whether it is the same.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.buffer.changes()
    }

    /// Whether nothing is written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buffer.text().is_empty()
    }

    /// Whether it begins so.
    #[must_use]
    pub fn starts_with(&self, letter: char) -> bool {
        self.buffer.text().starts_with(letter)
    }

    /// Another text in the place of this one, which undo brings back; the cursor behind it.
    pub fn set_text(&mut self, text: &str) {
        self.leave();
        let text = self.buffer.clean(text);
        self.buffer.replace(0..self.buffer.text().len(), &text);
        self.scroll();
    }

    /// No text any more; undo brings it back.
    pub fn clear(&mut self) {
        self.set_text("");
    }

    /// The shell's command, when what is written is one.
    #[must_use]
    pub fn shell(&self) -> Option<ShellLine<'_>> {
        shell_line(self.buffer.text())
    }

    /// What was sent in earlier sessions, the oldest first. Of more than 1,000 the oldest are left out.
    pub fn set_history(&mut self, sent: Vec<String>) {
        self.history.load(sent);
    }

    /// What was sent, the newest first, each text once.
    pub fn sent(&self) -> impl Iterator<Item = &str> {
        self.history.sent()
    }

    /// How much room there is: rows are laid out for so many columns, and a page is so many rows. A view of another
    /// width is right as well, but is laid out as a whole each time.
    pub fn resize(&mut self, size: crate::Size) {
        self.buffer.resize(size.columns);
        self.page = size.rows;
        self.scroll();
    }

    /// What comes has nothing to do with what was before.
    fn leave(&mut self) {
        self.last = LastAction::Other;
        self.popup = None;
        self.history.leave();
    }

    fn scroll(&mut self) {
        let layout = self.buffer.layout();
        self.top = self.top(layout.len(), layout.row_of(self.buffer.cursor()), self.page);
    }

    /// Takes what is written, as when it is sent: the text, chips as what they stand for. The editor is empty then, and
    /// its history has the text.
    pub fn take(&mut self) -> String {
        let text = self.text();
        self.history.push(&text);
        self.buffer.reset();
        self.leave();
        self.vi.begin();
        self.scroll();
        text
    }

    /// Something was sent that was not written here.
    pub fn remember(&mut self, text: &str) {
        self.history.push(text);
    }

    fn submit(&mut self) -> EditorOutcome {
        EditorOutcome::Submit(self.take())
    }
}

/// A line that runs in the shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShellLine<'a> {
    /// The command, without the marks.
    pub command: &'a str,
    /// The model does not see it, nor what it prints.
    pub hidden: bool,
}

/// What a text says to the shell: after `!` what the model sees too, after `!!` what it does not.
#[must_use]
pub fn shell_line(text: &str) -> Option<ShellLine<'_>> {
    let command = text.trim_start().strip_prefix('!')?;
    let hidden = command.strip_prefix('!');
    Some(ShellLine { command: hidden.unwrap_or(command).trim(), hidden: hidden.is_some() })
}
