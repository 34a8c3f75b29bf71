//! What Markdown is laid out from: pieces that know their text and their place, and not yet how wide the screen is.

use std::sync::Arc;

use super::table::{Cells, Shape};
use crate::Role;
use crate::styled::Run;

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
