//! Which part of a text is in which row.

use std::borrow::Cow;

use super::clusters::{Chip, after, is_chip};

/// A tab leads to the next multiple of this many columns.
const TAB: usize = 4;

/// Text in rows of a width, wrapped between words. The last column is left for the cursor, so that it has a place
/// behind the last character; one space may hang into it.
///
/// What follows the beginning of a row depends on nothing before it: after an edit, rows are laid out again from
/// shortly before it until one begins where it did.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    columns: usize,
    /// Where rows begin, in bytes. The first is 0.
    rows: Vec<usize>,
    /// Clusters that were measured since the beginning.
    pub(super) work: u64,
}

/// The text and what its chips stand for.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) text: &'a str,
    pub(super) chips: &'a [Chip],
}

impl<'a> Source<'a> {
    /// How a cluster looks when it begins at a column, and its columns; at most `most`.
    pub(super) fn cell(&self, from: usize, to: usize, column: usize, most: usize) -> (Cow<'a, str>, usize) {
        let cluster = &self.text[from..to];
        let first = cluster.chars().next().unwrap_or(' ');
        match first {
            ' '..='~' if cluster.len() == 1 => (Cow::Borrowed(cluster), 1),
            '\n' => (Cow::Borrowed(""), 0),
            '\t' if cluster.len() == 1 => {
                let columns = (TAB - column % TAB).min(most);
                (Cow::Owned(" ".repeat(columns)), columns)
            }
            chip if is_chip(chip) => {
                let label = self.chips.get(index(chip)).map_or("", |chip| &chip.label);
                let label = if label.len() <= most { label } else { &label[..most] };
                (Cow::Borrowed(label), label.len())
            }
            _ => {
                let safe = crate::clean(cluster);
                let columns = crate::width(&safe);
                if columns <= most {
                    return (safe, columns);
                }
                let fits = safe.char_indices().nth(most).map_or(safe.len(), |(end, _)| end);
                match safe {
                    Cow::Owned(escaped) if escaped.is_ascii() => {
                        (Cow::Owned(escaped[..fits].to_owned()), most)
                    }
                    _ => (Cow::Borrowed("?"), 1),
                }
            }
        }
    }

    /// Where the row behind the one that begins at `start` begins; `None` when it is the last.
    fn next_row(&self, start: usize, columns: usize, work: &mut u64) -> Option<usize> {
        let most = columns.saturating_sub(1).max(1);
        let (mut at, mut column, mut opportunity) = (start, 0, None);
        let mut was_wide = false;
        loop {
            *work += 1;
            if at == self.text.len() {
                return None;
            }
            let end = after(self.text, at);
            let byte = self.text.as_bytes()[at];
            if byte == b'\n' {
                return Some(end);
            }
            let (_, wide) = self.cell(at, end, column, most);
            let is_wide = wide == 2 && byte >= 0x80;
            if (is_wide || was_wide) && at > start {
                opportunity = Some(at);
            }
            if column + wide > most {
                if byte == b' ' && column == most && most < columns {
                    // It hangs, and ends the row, unless the line ends with it.
                    return (end < self.text.len() && self.text.as_bytes()[end] != b'\n')
                        .then_some(end)
                        .or_else(|| (end < self.text.len()).then_some(end + 1));
                }
                return Some(opportunity.unwrap_or(if at > start { at } else { end }));
            }
            column += wide;
            at = end;
            was_wide = is_wide;
            if matches!(byte, b' ' | b'\t') {
                opportunity = Some(at);
            }
        }
    }
}

/// Which chip a character stands for.
pub(super) fn index(chip: char) -> usize {
    (chip as usize).saturating_sub(0x10F000)
}

impl Layout {
    pub(super) fn new(source: Source<'_>, columns: usize) -> Self {
        let mut layout = Self { columns, rows: vec![0], work: 0 };
        layout.fill(source);
        layout
    }

    fn fill(&mut self, source: Source<'_>) {
        let mut at = 0;
        while let Some(next) = source.next_row(at, self.columns, &mut self.work) {
            self.rows.push(next);
            at = next;
        }
    }

    pub(super) fn columns(&self) -> usize {
        self.columns
    }

    /// After `removed` bytes at a place gave way to `inserted`; `source` is the text after that.
    pub(super) fn edited(&mut self, source: Source<'_>, at: usize, removed: usize, inserted: usize) {
        // The cluster before may be another one now. Where a row ends was decided by a cluster in one of the two
        // after it: the first that had no room.
        let row = self.row_of(at.saturating_sub(1)).saturating_sub(2);
        // Rows that began behind what was removed are where they would be now, should their text be the same.
        let behind = self.rows.partition_point(|start| *start <= at + removed);
        let moved = |start: usize| start - removed + inserted;
        let mut start = self.rows[row];
        let mut fresh = Vec::new();
        let mut old = behind;
        loop {
            let Some(next) = source.next_row(start, self.columns, &mut self.work) else {
                old = self.rows.len();
                break;
            };
            while old < self.rows.len() && moved(self.rows[old]) < next {
                old += 1;
            }
            if old < self.rows.len() && moved(self.rows[old]) == next {
                break;
            }
            fresh.push(next);
            start = next;
        }
        if old < self.rows.len() && removed != inserted {
            for start in &mut self.rows[old..] {
                *start = moved(*start);
            }
        }
        self.rows.splice(row + 1..old, fresh);
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn row_of(&self, at: usize) -> usize {
        self.rows.partition_point(|start| *start <= at).saturating_sub(1)
    }

    pub(super) fn start(&self, row: usize) -> usize {
        self.rows[row.min(self.rows.len() - 1)]
    }

    /// The end of a row without its newline.
    pub(super) fn end(&self, source: Source<'_>, row: usize) -> usize {
        match self.rows.get(row + 1) {
            Some(next) if source.text.as_bytes()[next - 1] == b'\n' => next - 1,
            Some(next) => *next,
            None => source.text.len(),
        }
    }

    /// Row and column of a place.
    pub(super) fn position(&self, source: Source<'_>, at: usize) -> (usize, usize) {
        let row = self.row_of(at);
        let most = self.columns.saturating_sub(1).max(1);
        let (mut from, mut column) = (self.rows[row], 0);
        while from < at {
            let to = after(source.text, from);
            column += source.cell(from, to, column, most).1;
            from = to;
        }
        (row, column.min(self.columns.saturating_sub(1)))
    }

    /// The place in a row that is nearest to a column, from the left.
    pub(super) fn place(&self, source: Source<'_>, row: usize, goal: usize) -> usize {
        let row = row.min(self.rows.len() - 1);
        let most = self.columns.saturating_sub(1).max(1);
        let end = self.end(source, row);
        // Behind the last cluster of a wrapped row is where the next row begins.
        let wrapped = self.rows.get(row + 1).is_some_and(|next| *next == end);
        let (mut from, mut column) = (self.rows[row], 0);
        while from < end {
            let to = after(source.text, from);
            let wide = source.cell(from, to, column, most).1;
            if column + wide > goal || (wrapped && to >= end) {
                return from;
            }
            column += wide;
            from = to;
        }
        from
    }

    #[cfg(test)]
    pub(super) fn starts(&self) -> &[usize] {
        &self.rows
    }
}
