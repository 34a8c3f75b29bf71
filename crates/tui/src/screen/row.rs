//! Lines laid out in rows of a screen.

use crate::{Line, Style};
use std::sync::Arc;
use unicode_segmentation::UnicodeSegmentation as _;

/// A character as a person sees one, in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cell {
    /// Where its text ends in the row's; it begins where the one before ends.
    pub(super) end: usize,
    /// Its first column.
    pub(super) column: usize,
    /// 1 or 2.
    pub(super) width: u8,
    /// Terminals disagree about its width.
    pub(super) unsure: bool,
    pub(super) style: Style,
}

/// One row. Blank cells at its end, which look like erased ones, are left out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Row {
    pub(super) text: String,
    pub(super) cells: Vec<Cell>,
    /// The line goes on in the next row: the terminal is left to break it, so that what is selected there has no
    /// break, and a resized window lays it out anew.
    pub(super) wraps: bool,
    /// Has a cell that terminals disagree about.
    pub(super) unsure: bool,
}

impl Row {
    /// The columns that have something in them.
    pub(super) fn width(&self) -> usize {
        self.cells.last().map_or(0, |cell| cell.column + usize::from(cell.width))
    }

    /// The text of a cell.
    pub(super) fn text(&self, index: usize) -> &str {
        let start = index.checked_sub(1).map_or(0, |before| self.cells[before].end);
        &self.text[start..self.cells[index].end]
    }

    /// Whether a cell is a space on the terminal's own ground, as an erased one is.
    pub(super) fn blank(&self, index: usize) -> bool {
        let style = self.cells[index].style;
        self.text(index) == " "
            && style.background == crate::Color::Default
            && !style.underline
            && !style.reverse
            && !style.strike
    }

    fn push(&mut self, text: &str, column: usize, width: u8, style: Style) {
        let unsure = unsure(text);
        self.text.push_str(text);
        self.cells.push(Cell { end: self.text.len(), column, width, unsure, style });
        self.unsure |= unsure;
    }

    /// Ends the row where the next one begins.
    fn wrap(mut self, columns: usize) -> Arc<Self> {
        // What a terminal would break elsewhere is not left to it.
        self.wraps = !self.unsure && self.width() == columns;
        Arc::new(self)
    }

    fn end(mut self) -> Arc<Self> {
        while self.cells.last().is_some_and(|_| self.blank(self.cells.len() - 1)) {
            self.cells.pop();
            self.text.pop();
        }
        Arc::new(self)
    }
}

/// The rows that a line takes; at least one.
pub(super) fn rows(line: &Line, columns: usize) -> Vec<Arc<Row>> {
    let mut rows = Vec::new();
    let mut row = Row::default();
    let mut column = 0;
    for span in &line.spans {
        let mut place = |text: &str| {
            let (text, width) = seen(text, columns);
            if width == 0 {
                // It belongs to the character before it, in another span or not.
                if let Some(cell) = row.cells.last_mut() {
                    row.text.push_str(text);
                    cell.end = row.text.len();
                    cell.unsure = true;
                    row.unsure = true;
                }
                return;
            }
            if column + usize::from(width) > columns {
                rows.push(std::mem::take(&mut row).wrap(columns));
                column = 0;
            }
            row.push(text, column, width, span.style);
            column += usize::from(width);
        };
        if span.text.is_ascii() {
            // Each is a character by itself, and finding that out again takes ten times as long.
            for at in 0..span.text.len() {
                place(&span.text[at..=at]);
            }
        } else {
            span.text.graphemes(true).for_each(place);
        }
    }
    rows.push(row.end());
    rows
}

/// What is written for a cluster, and how wide it is. Nothing that a terminal would obey leaves this crate, whoever
/// forgot to clean it.
fn seen(text: &str, columns: usize) -> (&str, u8) {
    if text.chars().any(char::is_control) {
        return ("\u{fffd}", 1);
    }
    match crate::width(text) {
        0 => (text, 0),
        1 => (text, 1),
        _ if columns < 2 => ("?", 1),
        _ => (text, 2),
    }
}

/// Whether terminals disagree about the width of a cluster: those of several characters, unless one only has accents,
/// and pictures, whose tables are of the year that the terminal was made.
fn unsure(text: &str) -> bool {
    let mut characters = text.chars();
    let Some(first) = characters.next() else { return false };
    let accents = |character| matches!(character, '\u{300}'..='\u{36f}' | '\u{3099}' | '\u{309a}');
    ('\u{1f000}'..'\u{20000}').contains(&first) || !characters.all(accents)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_take_rows() {
        for (text, columns, expected) in [
            ("", 4, &[("", false)] as &[(&str, bool)]),
            ("abcd", 4, &[("abcd", false)]),
            ("abcdef", 4, &[("abcd", true), ("ef", false)]),
            ("abc日本", 4, &[("abc", false), ("日本", false)]),
            ("ab日本", 4, &[("ab日", true), ("本", false)]),
            ("ab  ", 4, &[("ab", false)]),
            ("e\u{301}a", 1, &[("e\u{301}", true), ("a", false)]),
            ("日", 1, &[("?", false)]),
            ("a\x1b[1m", 9, &[("a\u{fffd}[1m", false)]),
            ("👩\u{200d}👧xyz", 4, &[("👩\u{200d}👧xy", false), ("z", false)]),
        ] {
            let rows = rows(&Line::from(text), columns);
            let shown: Vec<(&str, bool)> = rows.iter().map(|row| (row.text.as_str(), row.wraps)).collect();
            assert_eq!(shown, expected, "{text:?}");
        }
    }
}
