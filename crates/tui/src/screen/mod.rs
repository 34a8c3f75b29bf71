//! What a terminal is told so that it shows finished lines and a live part below them.
//!
//! Pure: lines and frames go in, bytes come out. Finished lines are printed once, scroll into the terminal's own
//! scrollback and are never touched again; the live part is changed where it differs. What moves the cursor about is
//! inside a synchronised update, so that terminals that know those never show a half-made screen.

mod difference;
pub(crate) mod linear;
mod pen;
mod row;

use crate::{Depth, Frame, Line, Links, Picture, Size};
use pen::Pen;
use row::Row;
use std::sync::Arc;

/// Lines that wait to be written, at most: more are made bytes at once.
const WAITING: usize = 1_000;

const HIDE_CURSOR: &[u8] = b"\x1b[?25l";
const SHOW_CURSOR: &[u8] = b"\x1b[?25h";
const BEGIN_UPDATE: &[u8] = b"\x1b[?2026h";
const END_UPDATE: &[u8] = b"\x1b[?2026l";

/// What a terminal shows of us, and what it must be told to show something else.
///
/// ```
/// use quipu_tui::{Depth, Frame, Line, Screen, Size};
///
/// let mut screen = Screen::new(Size { columns: 80, rows: 24 }, Depth::Rgb);
/// screen.print(&[Line::from("finished")]);
/// screen.draw(&Frame { lines: vec![Line::from("> ")], cursor: Some((0, 2)) });
/// let bytes = screen.take();
/// assert!(String::from_utf8_lossy(&bytes).contains("finished\r\n>"));
/// // Nothing is written for what is there.
/// screen.draw(&Frame { lines: vec![Line::from("> ")], cursor: Some((0, 2)) });
/// assert!(screen.take().is_empty());
/// ```
#[derive(Debug)]
pub struct Screen {
    size: Size,
    pen: Pen,
    /// Finished lines that are not written yet.
    printed: Vec<Line>,
    /// The live part as it shall be, with its lines laid out.
    live: Vec<(Line, Vec<Arc<Row>>)>,
    cursor: Option<(usize, usize)>,
    /// The rows of the live part as the terminal has them; none before the first.
    shown: Vec<Arc<Row>>,
    /// The columns that the terminal had when it was told of these rows.
    columns: usize,
    cursor_shown: bool,
    reflows: bool,
    /// The size changed since the terminal was told anything.
    resized: bool,
    changed: bool,
}

impl Screen {
    /// A terminal whose cursor stands in a row that is ours from its first column on.
    #[must_use]
    pub fn new(size: Size, depth: Depth) -> Self {
        let size = at_least_one(size);
        Self {
            size,
            pen: Pen::new(depth),
            printed: Vec::new(),
            live: Vec::new(),
            cursor: Some((0, 0)),
            shown: Vec::new(),
            columns: size.columns,
            cursor_shown: true,
            reflows: true,
            resized: false,
            changed: false,
        }
    }

    /// Whether the terminal lays out what it shows anew when its width changes, as most do, or cuts it off, as xterm
    /// and the Linux console do.
    #[must_use]
    pub fn reflows(mut self, reflows: bool) -> Self {
        self.reflows = reflows;
        self
    }

    /// The terminal knows links: it is told where texts lead.
    #[must_use]
    pub fn links(mut self, links: Option<Links>) -> Self {
        self.pen.links = links;
        self
    }

    /// The size it draws for.
    #[must_use]
    pub fn size(&self) -> Size {
        self.size
    }

    /// Adds finished lines above the live part. They are the terminal's from then on.
    pub fn print(&mut self, lines: &[Line]) {
        for line in lines {
            if let Some(picture) = &line.picture {
                self.picture(picture);
                continue;
            }
            self.printed.push(line.clone());
            self.changed = true;
            if self.printed.len() >= WAITING {
                self.advance();
            }
        }
    }

    /// Adds rows and draws an image in them, while nothing of the live part stands there. One that the screen has no room
    /// for is left out.
    fn picture(&mut self, picture: &Picture) {
        if picture.rows >= self.size.rows || picture.columns > self.size.columns {
            return;
        }
        self.advance();
        let (live, cursor) = (std::mem::take(&mut self.live), self.cursor.take());
        self.printed = vec![Line::default(); picture.rows];
        self.advance();
        // Where terminals leave the cursor behind an image differs.
        self.pen.out.extend_from_slice(b"\x1b7");
        self.pen.control(picture.rows, 'A');
        self.pen.out.push(b'\r');
        self.pen.out.extend_from_slice(&picture.bytes);
        self.pen.out.extend_from_slice(b"\x1b8");
        (self.live, self.cursor, self.changed) = (live, cursor, true);
    }

    /// Shows another live part.
    pub fn draw(&mut self, frame: &Frame) {
        if self.cursor != frame.cursor {
            self.cursor = frame.cursor;
            self.changed = true;
        }
        let mut old: Vec<Option<(Line, Vec<Arc<Row>>)>> =
            std::mem::take(&mut self.live).into_iter().map(Some).collect();
        self.changed |= old.len() != frame.lines.len();
        let count = old.len();
        for (index, line) in frame.lines.iter().enumerate() {
            // A line that stayed has kept its place from the top or from the bottom.
            let from_bottom = (count + index).checked_sub(frame.lines.len());
            let kept = [Some(index), from_bottom].into_iter().flatten().find_map(|place| {
                let slot = old.get_mut(place)?;
                if slot.as_ref().is_some_and(|(known, _)| known == line) { slot.take() } else { None }
            });
            self.changed |= kept.is_none();
            self.live.push(kept.unwrap_or_else(|| (line.clone(), row::rows(line, self.size.columns))));
        }
    }

    /// The terminal has another size now. What it shows of the live part is drawn again.
    pub fn resize(&mut self, size: Size) {
        let size = at_least_one(size);
        if size == self.size {
            return;
        }
        self.changed = true;
        if size.columns != self.size.columns {
            for (line, rows) in &mut self.live {
                *rows = row::rows(line, size.columns);
            }
        }
        self.size = size;
        self.resized = true;
    }

    /// What the terminal is to be told since this was asked last. To be written whole before anything else is.
    #[must_use]
    pub fn take(&mut self) -> Vec<u8> {
        if self.changed {
            self.advance();
        }
        let body = std::mem::take(&mut self.pen.out);
        let jumped = std::mem::take(&mut self.pen.jumped);
        let shall_show = self.cursor.is_some();
        let mut out = Vec::with_capacity(body.len() + 32);
        if jumped {
            out.extend_from_slice(BEGIN_UPDATE);
        }
        // Where updates are not synchronised, the cursor is not seen to run about.
        if self.cursor_shown && (jumped || !shall_show) && !(body.is_empty() && shall_show) {
            out.extend_from_slice(HIDE_CURSOR);
            self.cursor_shown = false;
        }
        out.extend_from_slice(&body);
        if shall_show && !self.cursor_shown {
            out.extend_from_slice(SHOW_CURSOR);
            self.cursor_shown = true;
        }
        if jumped {
            out.extend_from_slice(END_UPDATE);
        }
        out
    }

    /// Leaves the terminal to others: what is shown stays, and the cursor stands at the beginning of a row below it.
    /// What is drawn next begins there, or wherever they leave the cursor, at the beginning of a row.
    #[must_use]
    pub fn finish(&mut self) -> Vec<u8> {
        if self.changed {
            self.advance();
        }
        if let Some(last) = self.shown.len().checked_sub(1) {
            let filled = !self.shown[last].cells.is_empty();
            self.pen.go(last, 0);
            if filled {
                self.pen.lines(1);
            }
        }
        self.shown.clear();
        self.live.clear();
        self.cursor = Some((0, 0));
        self.changed = false;
        let out = self.take();
        self.pen.row = 0;
        self.pen.column = Some(0);
        out
    }

    /// Writes what changed.
    fn advance(&mut self) {
        self.changed = false;
        if std::mem::take(&mut self.resized) && !self.shown.is_empty() {
            self.lose();
        }
        if self.shown.is_empty() {
            self.pen.out.push(b'\r');
            self.pen.column = Some(0);
            self.pen.row = 0;
            self.pen.erase('J');
            self.shown.push(Arc::default());
        }
        let mut wanted: Vec<Arc<Row>> =
            self.printed.drain(..).flat_map(|line| row::rows(&line, self.size.columns)).collect();
        let finished = wanted.len();
        let cursor = self.clip(&mut wanted);
        difference::update(&mut self.pen, std::mem::take(&mut self.shown), &wanted, self.size);
        self.shown = wanted.split_off(finished);
        self.columns = self.size.columns;
        // Never left among what is finished.
        match cursor {
            Some((row, column)) => self.pen.go(finished + row, column),
            None if self.pen.row < finished => self.pen.go(finished, 0),
            None => {}
        }
        self.pen.row -= finished;
        self.pen.plain();
    }

    /// Adds the rows of the live part that fit the screen, and says where among them the cursor stands.
    fn clip(&self, wanted: &mut Vec<Arc<Row>>) -> Option<(usize, usize)> {
        let mut rows: Vec<Arc<Row>> = Vec::new();
        let mut cursor = None;
        for (index, (_, laid)) in self.live.iter().enumerate() {
            if let Some((_, mut column)) = self.cursor.filter(|(line, _)| *line == index) {
                let mut row = 0;
                while row + 1 < laid.len() && column >= laid[row].width() {
                    column -= laid[row].width();
                    row += 1;
                }
                cursor = Some((rows.len() + row, column.min(self.size.columns - 1)));
            }
            rows.extend(laid.iter().cloned());
        }
        if rows.is_empty() {
            rows.push(Arc::default());
        }
        let top = rows.len().saturating_sub(self.size.rows);
        let top = cursor.map_or(top, |(row, _)| top.min(row));
        wanted.extend(rows.into_iter().skip(top).take(self.size.rows));
        cursor.map(|(row, column)| (row - top, column))
    }

    /// After the size changed, maybe more than once: goes to where the live part begins now, and erases it.
    fn lose(&mut self) {
        let above = self.above();
        self.pen.out.push(b'\r');
        if above > 0 {
            self.pen.control(above, 'A');
        }
        self.pen.erase('J');
        self.pen.row = 0;
        self.pen.column = Some(0);
        self.shown = vec![Arc::default()];
        self.columns = self.size.columns;
    }

    /// How many rows there are above the cursor's, in the width that the terminal has now. Where terminals differ, the
    /// fewest: a row that is left over is less harm than a finished one that is erased.
    fn above(&self) -> usize {
        if !self.reflows || self.size.columns == self.columns {
            return self.pen.row;
        }
        let mut above = 0;
        let mut column = 0;
        for (index, row) in self.shown.iter().enumerate().take(self.pen.row + 1) {
            for cell in &row.cells {
                if index == self.pen.row && Some(cell.column) >= self.pen.column && self.pen.column.is_some()
                {
                    break;
                }
                let width = usize::from(cell.width);
                if column + width > self.size.columns {
                    above += 1;
                    column = 0;
                }
                column += width;
            }
            if index < self.pen.row && !row.wraps {
                above += 1;
                column = 0;
            }
        }
        above
    }
}

fn at_least_one(size: Size) -> Size {
    Size { columns: size.columns.max(1), rows: size.rows.max(1) }
}
