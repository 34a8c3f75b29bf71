//! Markdown as it streams in: what is finished is handed over once, and what may still change is kept small.
//!
//! CommonMark with tables, tasks, and text struck through, with these differences. A line end within a paragraph stays
//! one. Links are followed by their URL; what refers to a definition elsewhere stays as it was written, as do
//! definitions: they come last, when what refers to them is long printed. Tags of HTML are shown, not obeyed.

mod blocks;
mod forms;
mod inline;
mod layout;
mod piece;
mod starts;
mod table;
#[cfg(test)]
mod tests;

use blocks::Blocks;
pub(crate) use layout::line_of;
use piece::Piece;

use crate::{Line, Role, Theme};

/// Bytes of a line that are read together: of a longer one, the rest is a line of its own.
const LINE: usize = 2 << 10;

/// Markdown that grows.
///
/// ```
/// use quipu_tui::{Markdown, Theme};
///
/// let theme = Theme::dark();
/// let mut markdown = Markdown::new();
/// markdown.push("One *line*.\n\nAnother");
/// assert_eq!(markdown.take(80, &theme)[0].text(), "One line.");
/// assert_eq!(markdown.live(80, &theme)[1].text(), "Another");
/// markdown.push(" one.");
/// markdown.end();
/// assert_eq!(markdown.take(80, &theme)[1].text(), "Another one.");
/// ```
#[derive(Debug, Clone)]
pub struct Markdown {
    /// The line that has no end yet.
    pending: String,
    /// Whether the beginning of that line was too long to be kept.
    within: bool,
    blocks: Blocks,
}

impl Default for Markdown {
    fn default() -> Self {
        Self::new()
    }
}

impl Markdown {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::of(Role::Text)
    }

    /// Nothing yet; ordinary text in it will play this role.
    #[must_use]
    pub fn of(role: Role) -> Self {
        Self { pending: String::new(), within: false, blocks: Blocks::new(role) }
    }

    /// Adds text. How a text is cut makes no difference to what comes of it.
    pub fn push(&mut self, text: &str) {
        let mut searched = self.pending.len();
        self.pending.push_str(text);
        let mut start = 0;
        loop {
            let end = self.pending[searched..].find('\n').map(|at| searched + at);
            let length = end.unwrap_or(self.pending.len()) - start;
            if length > LINE {
                let cut = start + cut(&self.pending[start..]);
                feed(&mut self.blocks, &self.pending[start..cut], self.within);
                self.within = true;
                start = cut;
                searched = end.unwrap_or(self.pending.len());
                continue;
            }
            let Some(end) = end else { break };
            feed(&mut self.blocks, &self.pending[start..end], self.within);
            self.within = false;
            start = end + 1;
            searched = start;
        }
        self.pending.drain(..start);
    }

    /// Says that nothing more comes: all that is there is finished.
    pub fn end(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        if !pending.is_empty() {
            feed(&mut self.blocks, &pending, self.within);
        }
        self.within = false;
        self.blocks.end();
    }

    /// Lines that were finished since the last call: they change no more, and are not kept here. What is printed of a
    /// text are these, in their order.
    #[must_use]
    pub fn take(&mut self, columns: usize, theme: &Theme) -> Vec<Line> {
        lines(std::mem::take(&mut self.blocks.pieces), columns, theme)
    }

    /// What may still change, as it would look if nothing more came; of bounded size, however long the text is. It stands
    /// below what [`take`](Self::take) gives.
    #[must_use]
    pub fn live(&self, columns: usize, theme: &Theme) -> Vec<Line> {
        let mut blocks = self.blocks.unfinished();
        if !self.pending.is_empty() {
            feed(&mut blocks, &self.pending, self.within);
        }
        blocks.end();
        lines(blocks.pieces, columns, theme)
    }
}

/// A whole text of Markdown.
#[must_use]
pub fn markdown(text: &str, columns: usize, theme: &Theme) -> Vec<Line> {
    let mut markdown = Markdown::new();
    markdown.push(text);
    markdown.end();
    markdown.take(columns, theme)
}

fn lines(pieces: Vec<Piece>, columns: usize, theme: &Theme) -> Vec<Line> {
    let mut lines = Vec::with_capacity(pieces.len());
    for piece in pieces {
        #[cfg(test)]
        tests::count(piece.bytes());
        layout::layout(&piece, columns, theme, &mut lines);
    }
    lines
}

fn feed(blocks: &mut Blocks, line: &str, within: bool) {
    #[cfg(test)]
    tests::count(line.len());
    let line = line.strip_suffix('\r').unwrap_or(line);
    if within { blocks.more(line) } else { blocks.line(line) }
}

/// Where a line that is too long is cut: behind a space near the limit, else at it.
fn cut(line: &str) -> usize {
    let limit = line.floor_char_boundary(LINE);
    let near = line.floor_char_boundary(LINE - 512);
    line[near..limit].rfind(' ').map_or(limit, |at| near + at + 1)
}
