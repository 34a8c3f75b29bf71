//! Tables: which lines are one, and how wide their columns are.

use super::inline::inline;
use crate::line::is_wide;
use crate::styled::Run;
use crate::{Role, width};

/// Rows, and bytes of them, after which the widths of the columns are settled: what follows is laid out as it comes.
pub(super) const SETTLED_ROWS: usize = 64;
pub(super) const SETTLED_BYTES: usize = 16 << 10;
/// Columns of a table; the rest of a row stands in the last one.
const COLUMNS: usize = 32;

/// The texts of a row.
pub(super) type Cells = Vec<Vec<Run>>;

/// How a column is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Center,
    Right,
}

/// What the rows of a table have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) sides: Vec<Side>,
    /// Of each column, as the widest of its cells needs it.
    pub(super) widths: Vec<usize>,
    /// The same where code stands between marks, for want of colour.
    pub(super) marked: Vec<usize>,
    /// Of each column, how wide its longest word is.
    pub(super) words: Vec<usize>,
    /// What the columns are called, without styles.
    pub(super) names: Vec<String>,
}

/// A table that is being read.
#[derive(Debug, Clone)]
pub(super) struct Table {
    pub(super) shape: Shape,
    /// The header first.
    pub(super) rows: Vec<Cells>,
    pub(super) bytes: usize,
}

impl Table {
    /// A table of a header and the line below it, if these are such.
    pub(super) fn begin(header: &str, delimiters: &str, role: Role) -> Option<Self> {
        let sides = sides(delimiters)?;
        let cells = split(header);
        if cells.len() != sides.len() || sides.len() > COLUMNS || !header.contains('|') {
            return None;
        }
        let (widths, marked, words) = (vec![1; sides.len()], vec![1; sides.len()], vec![1; sides.len()]);
        let shape = Shape { sides, widths, marked, words, names: Vec::new() };
        let mut table = Self { shape, rows: Vec::new(), bytes: 0 };
        table.push(header, role);
        table.shape.names = table.rows.iter().flatten().map(|cell| text(cell)).collect();
        Some(table)
    }

    /// Adds a row.
    pub(super) fn push(&mut self, line: &str, role: Role) {
        let cells = cells(line, self.shape.sides.len(), role);
        for (at, cell) in cells.iter().enumerate() {
            let text = text(cell);
            let marks = 2 * cell.iter().filter(|run| run.role == Role::Code).count();
            let wide = text.split('\n').map(width).max().unwrap_or(0);
            let word = text.split_whitespace().map(unbroken).max().unwrap_or(0);
            let shape = &mut self.shape;
            shape.widths[at] = shape.widths[at].max(wide);
            shape.marked[at] = shape.marked[at].max(wide + marks);
            shape.words[at] = shape.words[at].max(word);
        }
        self.bytes += line.len();
        self.rows.push(cells);
    }

    /// Whether its widths change no more.
    pub(super) fn is_settled(&self) -> bool {
        self.rows.len() > SETTLED_ROWS || self.bytes > SETTLED_BYTES
    }
}

/// How wide a word is that should not be broken; wide characters may be parted anywhere.
fn unbroken(word: &str) -> usize {
    if word.chars().any(is_wide) { 2 } else { width(word) }
}

/// A row as so many cells.
pub(super) fn cells(line: &str, columns: usize, role: Role) -> Cells {
    let mut texts = split(line);
    if texts.len() > columns {
        let rest = texts.split_off(columns - 1).join(" | ");
        texts.push(rest);
    }
    texts.resize(columns, String::new());
    texts.iter().map(|text| inline(text, role)).collect()
}

pub(super) fn text(cell: &[Run]) -> String {
    cell.iter().map(|run| run.text.as_str()).collect()
}

/// The cells of a line. `\|` does not end one.
fn split(line: &str) -> Vec<String> {
    let line = line.trim();
    let line = line.strip_prefix('|').unwrap_or(line);
    let mut cells = vec![String::new()];
    let mut characters = line.chars().peekable();
    while let Some(c) = characters.next() {
        let last = cells.len() - 1;
        match c {
            '\\' if characters.peek() == Some(&'|') => {
                characters.next();
                cells[last].push('|');
            }
            '\\' => {
                cells[last].push('\\');
                cells[last].extend(characters.next());
            }
            '|' if characters.peek().is_none() => {}
            '|' => cells.push(String::new()),
            c => cells[last].push(c),
        }
    }
    cells.iter().map(|cell| cell.trim().to_owned()).collect()
}

/// The line below a header: `| --- | :-: |`.
fn sides(line: &str) -> Option<Vec<Side>> {
    let trimmed = line.trim();
    if !trimmed.contains('|') || !trimmed.contains('-') || trimmed.contains(|c: char| !"|:- \t".contains(c)) {
        return None;
    }
    split(trimmed)
        .iter()
        .map(|cell| {
            let (start, end) = (cell.starts_with(':'), cell.ends_with(':'));
            let dashes = cell.trim_start_matches(':').trim_end_matches(':');
            let valid = !dashes.is_empty()
                && dashes.bytes().all(|byte| byte == b'-')
                && dashes.len() + 2 >= cell.len();
            valid.then_some(match (start, end) {
                (true, true) => Side::Center,
                (false, true) => Side::Right,
                _ => Side::Left,
            })
        })
        .collect()
}
