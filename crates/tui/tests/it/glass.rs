//! A terminal without a window, that watches what it is told.

use quipu_tui::Size;
use std::num::NonZeroU16;

/// A terminal, and what was seen of it.
pub(crate) struct Glass {
    parser: vt100::Parser,
    /// Within a synchronised update, where nobody sees the screen.
    hidden: bool,
    /// The last bytes, to find sequences in.
    tail: Vec<u8>,
    /// Bytes it was told.
    pub(crate) bytes: usize,
}

const SCROLLBACK: usize = 1_000_000;

impl Glass {
    pub(crate) fn new(size: Size) -> Self {
        let parser = vt100::Parser::new(cells(size.rows), cells(size.columns), SCROLLBACK);
        Self { parser, hidden: false, tail: Vec::new(), bytes: 0 }
    }

    /// Takes bytes, and looks at the screen after each that a person could see it after.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        for forbidden in ["\x1b[2J", "\x1b[3J", "\x1bc", "\x1b[?1049h", "\x1b[?47h"] {
            let found = bytes.windows(forbidden.len()).any(|window| window == forbidden.as_bytes());
            assert!(!found, "{forbidden:?} in {:?}", String::from_utf8_lossy(bytes));
        }
        let was_blank = self.blank();
        let mut blank = None;
        for byte in bytes {
            let before = self.parser.screen().scrollback_len();
            self.parser.process(&[*byte]);
            self.bytes += 1;
            assert!(self.parser.screen().scrollback_len() >= before, "the scrollback became shorter");
            self.tail.push(*byte);
            if self.tail.ends_with(b"\x1b[?2026h") {
                self.hidden = true;
                self.tail.clear();
            } else if self.tail.ends_with(b"\x1b[?2026l") {
                self.hidden = false;
                self.tail.clear();
            }
            if !self.hidden {
                blank = blank.or(self.blank().then(|| String::from_utf8_lossy(&self.tail).into_owned()));
            }
        }
        if !was_blank && !self.blank() {
            assert_eq!(blank, None, "the screen was blank after this");
        }
        assert!(!self.hidden, "an update has no end");
    }

    fn blank(&self) -> bool {
        self.parser.screen().contents().trim().is_empty()
    }

    /// Another size, in which rows are cut off and not laid out anew, as xterm does.
    pub(crate) fn resize(&mut self, size: Size) {
        self.parser.set_size(cells(size.rows), cells(size.columns));
    }

    /// Another size, for which lines are laid out anew, as most terminals do.
    pub(crate) fn reflow(&mut self, size: Size) {
        let (row, column) = self.cursor();
        let above = self.parser.screen().scrollback_len() + row;
        let rows = self.rows();
        let columns = usize::from(self.parser.screen().size().1.get());
        let mut cursor = (0, 0);
        let mut line = String::new();
        let mut made = Glass::new(size);
        let last = rows.iter().rposition(|(text, _)| !text.is_empty()).unwrap_or(0).max(above);
        let mut physical = 0;
        for (index, (text, wraps)) in rows.iter().enumerate().take(last + 1) {
            if index == above {
                let before: String = line.clone() + &text.chars().take(column).collect::<String>();
                let at = quipu_tui::width(&before) + column.saturating_sub(quipu_tui::width(text));
                let rows_before = breaks(&before, size.columns);
                cursor = (physical + rows_before, at.min(size.columns - 1));
                if rows_before > 0 {
                    cursor.1 = column % size.columns;
                }
            }
            line.push_str(text);
            if *wraps {
                // Rows were read without the spaces at their ends.
                line.extend(std::iter::repeat_n(' ', columns - quipu_tui::width(text)));
            } else {
                physical += breaks(&line, size.columns) + 1;
                made.parser.process(line.as_bytes());
                line.clear();
                if index < last {
                    made.parser.process(b"\r\n");
                }
            }
        }
        let scrolled = made.parser.screen().scrollback_len();
        let row = cursor.0.saturating_sub(scrolled) + 1;
        made.parser.process(format!("\x1b[{row};{}H", cursor.1 + 1).as_bytes());
        self.parser = made.parser;
    }

    /// All rows from the first of the scrollback to the last of the screen, without blanks at their ends, and whether
    /// the line goes on in the next.
    pub(crate) fn rows(&mut self) -> Vec<(String, bool)> {
        let (_, columns) = self.parser.screen().size();
        let screen = self.parser.screen_mut();
        let first = |screen: &vt100::Screen| {
            let text = screen.rows(0, columns.get()).next().unwrap_or_default();
            (text.trim_end().to_owned(), screen.row_wrapped(0))
        };
        let mut rows = Vec::new();
        for back in (1..=screen.scrollback_len()).rev() {
            screen.set_scrollback(back);
            rows.push(first(screen));
        }
        screen.set_scrollback(0);
        for (index, text) in screen.rows(0, columns.get()).enumerate() {
            let wraps = screen.row_wrapped(u16::try_from(index).unwrap());
            rows.push((text.trim_end().to_owned(), wraps));
        }
        rows
    }

    /// The rows without those that are blank at the end.
    pub(crate) fn texts(&mut self) -> Vec<String> {
        let mut texts: Vec<String> = self.rows().into_iter().map(|(text, _)| text).collect();
        while texts.last().is_some_and(String::is_empty) {
            texts.pop();
        }
        texts
    }

    pub(crate) fn screen(&self) -> &vt100::Screen {
        self.parser.screen()
    }

    /// Row of the screen, and column.
    pub(crate) fn cursor(&self) -> (usize, usize) {
        let (row, column) = self.parser.screen().cursor_position();
        (usize::from(row), usize::from(column))
    }

    /// The row of the cursor, counted from the first of the scrollback.
    pub(crate) fn cursor_row(&self) -> usize {
        self.parser.screen().scrollback_len() + self.cursor().0
    }
}

/// How often a terminal breaks a line.
fn breaks(text: &str, columns: usize) -> usize {
    reference_rows(text, columns).len() - 1
}

/// The rows that a text takes, each character as wide as it is.
pub(crate) fn reference_rows(text: &str, columns: usize) -> Vec<String> {
    let mut rows = vec![String::new()];
    let mut column = 0;
    for cluster in unicode_segmentation::UnicodeSegmentation::graphemes(text, true) {
        let width = quipu_tui::width(cluster);
        let cluster = if width > columns { "?" } else { cluster };
        let width = width.min(columns);
        if column + width > columns {
            rows.push(String::new());
            column = 0;
        }
        column += width;
        rows.last_mut().unwrap().push_str(cluster);
    }
    rows
}

fn cells(count: usize) -> NonZeroU16 {
    NonZeroU16::new(u16::try_from(count).unwrap()).unwrap()
}
