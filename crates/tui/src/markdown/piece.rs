//! What Markdown is laid out from: pieces that know their text and their place, and not yet how wide the screen is.

use std::sync::Arc;

use super::table::{Cells, Shape};
use crate::{Role, clean};

/// Text that plays one role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) text: String,
    pub(crate) role: Role,
    pub(crate) bold: bool,
    pub(crate) italic: bool,
    pub(crate) strike: bool,
    /// Where it leads.
    pub(crate) link: Option<Arc<str>>,
}

impl Run {
    /// Text of somebody else, made safe. Line ends stay.
    pub(crate) fn new(text: &str, role: Role) -> Self {
        let text = match text.contains('\n') {
            false => clean(text).into_owned(),
            true => text.split('\n').map(|line| clean(line)).collect::<Vec<_>>().join("\n"),
        };
        Self { text, role, bold: false, italic: false, strike: false, link: None }
    }

    fn looks_like(&self, other: &Self) -> bool {
        (self.role, self.bold, self.italic, self.strike, &self.link)
            == (other.role, other.bold, other.italic, other.strike, &other.link)
    }

    /// Adds a run, to the one before where they look the same.
    pub(crate) fn join(runs: &mut Vec<Self>, run: Self) {
        match runs.last_mut() {
            _ if run.text.is_empty() => {}
            Some(last) if last.looks_like(&run) && run.role != Role::Code => last.text.push_str(&run.text),
            _ => runs.push(run),
        }
    }
}

/// What stands to the left of a piece on account of one quotation or item of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Indent {
    /// Before the piece's first line.
    pub(super) first: String,
    /// Before the others; as wide.
    pub(super) rest: String,
    pub(super) role: Role,
}

/// A part of the text that is laid out by itself.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    /// From the outermost.
    pub(super) indents: Vec<Indent>,
    pub(super) body: Body,
}

#[derive(Debug, Clone)]
pub(super) enum Body {
    /// Between two others.
    Blank,
    /// Wrapped at words; a run that is `\n` ends a line.
    Text(Vec<Run>),
    /// One line, wrapped anywhere.
    Code(Vec<Run>),
    /// From side to side.
    Rule,
    /// The names of a table's columns.
    Header(Arc<Shape>, Cells),
    /// A row of a table.
    Row(Arc<Shape>, Cells),
}

#[cfg(test)]
impl Piece {
    /// Bytes of text in it.
    pub(super) fn bytes(&self) -> usize {
        let of = |runs: &[Run]| runs.iter().map(|run| run.text.len()).sum::<usize>();
        match &self.body {
            Body::Blank | Body::Rule => 1,
            Body::Text(runs) | Body::Code(runs) => of(runs),
            Body::Header(_, cells) | Body::Row(_, cells) => cells.iter().map(|cell| of(cell)).sum(),
        }
    }
}
