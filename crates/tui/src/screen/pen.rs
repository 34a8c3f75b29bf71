//! Where a terminal's cursor stands and in which style it writes; moves and styles in as few bytes as there are.

use super::row::Row;
use crate::{Color, Depth, Link, Links, Style};
use std::io::Write as _;

/// What a terminal is told, and what it is known to have come to by that.
#[derive(Debug)]
pub(super) struct Pen {
    pub(super) out: Vec<u8>,
    /// The cursor's row, from the first of the live part.
    pub(super) row: usize,
    /// Its column. Unknown after the last column of a row was written, where terminals differ.
    pub(super) column: Option<usize>,
    /// As it is on the terminal, after [`Depth::nearest`].
    style: Style,
    /// Where what is written leads.
    link: Link,
    pub(super) links: Option<Links>,
    depth: Depth,
    /// Whether anything but text at the cursor was written.
    pub(super) jumped: bool,
}

impl Pen {
    pub(super) fn new(depth: Depth) -> Self {
        Self {
            out: Vec::new(),
            row: 0,
            column: Some(0),
            style: Style::default(),
            link: Link::default(),
            links: None,
            depth,
            jumped: false,
        }
    }

    /// A control sequence with one number, which is left out where it is 1.
    pub(super) fn control(&mut self, number: usize, last: char) {
        self.jumped = true;
        // Writing to a vector cannot fail.
        let _written = match number {
            1 => write!(self.out, "\x1b[{last}"),
            number => write!(self.out, "\x1b[{number}{last}"),
        };
    }

    /// Moves to a row and column that the screen has.
    pub(super) fn go(&mut self, row: usize, column: usize) {
        if row > self.row && column == 0 && row - self.row < 3 {
            self.lines(row - self.row);
            return;
        }
        match row.cmp(&self.row) {
            std::cmp::Ordering::Greater => self.control(row - self.row, 'B'),
            std::cmp::Ordering::Less => self.control(self.row - row, 'A'),
            std::cmp::Ordering::Equal => {}
        }
        self.row = row;
        match self.column {
            Some(at) if at == column => {}
            _ if column == 0 => {
                self.out.push(b'\r');
                self.jumped = true;
            }
            Some(at) if at < column => self.control(column - at, 'C'),
            Some(at) if at - column < 4 => {
                self.out.extend(std::iter::repeat_n(b'\x08', at - column));
                self.jumped = true;
            }
            _ => self.control(column + 1, 'G'),
        }
        self.column = Some(column);
    }

    /// Goes to the beginning of a row below, which is made when the screen has none there.
    pub(super) fn lines(&mut self, count: usize) {
        self.jumped = true;
        // A new row has the ground that is written on: see "background colour erase" of terminals.
        self.plain();
        self.out.push(b'\r');
        self.out.extend(std::iter::repeat_n(b'\n', count));
        self.row += count;
        self.column = Some(0);
    }

    /// Back to the terminal's own style.
    pub(super) fn plain(&mut self) {
        self.style(Style::default());
    }

    /// Erases from the cursor to the end of its row (`K`) or of the screen (`J`).
    pub(super) fn erase(&mut self, what: char) {
        self.plain();
        self.control(1, what);
    }

    /// Puts rows in (`L`) or takes them out (`M`) at the cursor's row; those below make room or close up.
    pub(super) fn shift(&mut self, row: usize, count: usize, what: char) {
        self.go(row, 0);
        self.plain();
        self.control(count, what);
    }

    /// Writes a cell of a row that is as wide as `columns`, where the cursor stands.
    pub(super) fn cell(&mut self, row: &Row, index: usize, columns: usize) {
        let cell = row.cells[index];
        self.style(cell.style);
        self.out.extend_from_slice(row.text(index).as_bytes());
        let end = cell.column + usize::from(cell.width);
        self.column = (end < columns).then_some(end);
        if cell.unsure && end < columns {
            self.control(end + 1, 'G');
        }
    }

    /// Begins a link, or ends the one before.
    fn lead(&mut self, link: Link) {
        let Some(links) = self.links.as_ref().filter(|_| link != self.link) else { return };
        let address = links.address(link);
        let _written = write!(self.out, "\x1b]8;;{}\x1b\\", address.as_deref().unwrap_or_default());
        self.link = link;
    }

    fn style(&mut self, style: Style) {
        self.lead(style.link);
        let style = Style {
            foreground: self.depth.nearest(style.foreground),
            background: self.depth.nearest(style.background),
            link: Link::default(),
            ..style
        };
        if style == self.style {
            return;
        }
        if style == Style::default() {
            self.out.extend_from_slice(b"\x1b[m");
            self.style = style;
            return;
        }
        let mut changes = Vec::new();
        difference(self.style, style, &mut changes);
        let mut afresh = Vec::new();
        difference(Style::default(), style, &mut afresh);
        let (reset, parameters) =
            if afresh.len() + 1 < changes.len() { (true, afresh) } else { (false, changes) };
        self.out.extend_from_slice(b"\x1b[");
        if reset {
            self.out.extend_from_slice(b"0;");
        }
        for (index, parameter) in parameters.iter().enumerate() {
            let separator = if index > 0 { ";" } else { "" };
            let _written = write!(self.out, "{separator}{parameter}");
        }
        self.out.push(b'm');
        self.style = style;
    }
}

/// The parameters that make one style of another.
fn difference(from: Style, to: Style, parameters: &mut Vec<u8>) {
    // One parameter ends both.
    let lighter = from.bold && !to.bold || from.dim && !to.dim;
    let switches = [
        (from.bold && !lighter, to.bold, 1, 22),
        (from.dim && !lighter, to.dim, 2, 22),
        (from.italic, to.italic, 3, 23),
        (from.underline, to.underline, 4, 24),
        (from.reverse, to.reverse, 7, 27),
        (from.strike, to.strike, 9, 29),
    ];
    if lighter {
        parameters.push(22);
    }
    for (was, is, on, off) in switches {
        if was != is {
            parameters.push(if is { on } else { off });
        }
    }
    if from.foreground != to.foreground {
        color(to.foreground, 30, parameters);
    }
    if from.background != to.background {
        color(to.background, 40, parameters);
    }
}

/// The parameters of a colour; `base` is 30 for the foreground and 40 for the background.
fn color(color: Color, base: u8, parameters: &mut Vec<u8>) {
    match color {
        Color::Default => parameters.push(base + 9),
        Color::Ansi(index @ 0..8) => parameters.push(base + index),
        Color::Ansi(index @ 8..16) => parameters.push(base + 60 + index - 8),
        Color::Ansi(index) | Color::Indexed(index) => parameters.extend([base + 8, 5, index]),
        Color::Rgb(red, green, blue) => parameters.extend([base + 8, 2, red, green, blue]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn styles_in_few_bytes() {
        let plain = Style::default();
        let bold = Style { bold: true, ..plain };
        let red = Style::colored(Color::Ansi(1));
        let busy = Style {
            foreground: Color::Rgb(1, 2, 3),
            background: Color::Indexed(17),
            italic: true,
            underline: true,
            ..bold
        };
        for (from, to, expected) in [
            (plain, bold, "\x1b[1m"),
            (bold, plain, "\x1b[m"),
            (red, plain, "\x1b[m"),
            (Style { bold: true, ..red }, red, "\x1b[22m"),
            (busy, plain, "\x1b[m"),
            (busy, red, "\x1b[0;31m"),
            (bold, Style { dim: true, ..plain }, "\x1b[22;2m"),
            (bold, Style { dim: true, ..bold }, "\x1b[2m"),
            (plain, Style { background: Color::Ansi(12), ..plain }, "\x1b[104m"),
            (plain, busy, "\x1b[1;3;4;38;2;1;2;3;48;5;17m"),
        ] {
            let mut pen = Pen::new(Depth::Rgb);
            pen.style(from);
            pen.out.clear();
            pen.style(to);
            assert_eq!(String::from_utf8_lossy(&pen.out), expected, "{from:?} {to:?}");
        }
    }
}
