//! How the text looks.

use super::Editor;
use super::clusters::{after, is_chip};
use super::layout::{Layout, Source};
use crate::{Line, Size, Style, Theme};

impl Editor {
    /// The rows that are seen, no more than `size.rows` of them, each no wider than `size.columns`, and where among
    /// them the cursor is: row and column, both from 0. The row of the cursor is always seen.
    #[must_use]
    pub fn view(&self, size: Size, theme: &Theme) -> (Vec<Line>, (usize, usize)) {
        let source = self.buffer.source();
        let other;
        let layout = if size.columns == self.buffer.layout().columns() {
            self.buffer.layout()
        } else {
            other = Layout::new(source, size.columns);
            &other
        };
        let (row, column) = layout.position(source, self.buffer.cursor());
        let top = self.top(layout.len(), row, size.rows);
        let rows = top..layout.len().min(top + size.rows.max(1));
        let lines = rows.map(|row| self.line(source, layout, row, theme)).collect();
        (lines, (row - top, column))
    }

    /// Rows above those that are seen, and below.
    #[must_use]
    pub fn hidden(&self, size: Size) -> (usize, usize) {
        let source = self.buffer.source();
        let other;
        let layout = if size.columns == self.buffer.layout().columns() {
            self.buffer.layout()
        } else {
            other = Layout::new(source, size.columns);
            &other
        };
        let top = self.top(layout.len(), layout.row_of(self.buffer.cursor()), size.rows);
        (top, layout.len().saturating_sub(top + size.rows.max(1)))
    }

    /// The first row that is seen: the one that was, unless the cursor or the end would not be.
    pub(super) fn top(&self, all: usize, row: usize, seen: usize) -> usize {
        let seen = seen.max(1);
        self.top.min(row).max((row + 1).saturating_sub(seen)).min(all.saturating_sub(seen))
    }

    fn line(&self, source: Source<'_>, layout: &Layout, row: usize, theme: &Theme) -> Line {
        let most = layout.columns().saturating_sub(1).max(1);
        let end = layout.end(source, row);
        let marked = self.marked();
        let (mut from, mut column) = (layout.start(row), 0);
        let mut line = Line::default();
        let mut run = (String::new(), theme.text);
        while from < end {
            let to = after(source.text, from);
            // The space that hangs over the edge.
            let room = if column < most { most } else { 1 };
            let (shown, wide) = source.cell(from, to, column, room);
            let mut style =
                if source.text[from..to].starts_with(is_chip) { theme.accent } else { theme.text };
            if marked.contains(&from) {
                style = Style { reverse: !style.reverse, ..style };
            }
            if style != run.1 {
                push(&mut line, &mut run, style);
            }
            run.0.push_str(&shown);
            column += wide;
            from = to;
        }
        if marked.contains(&end) && source.text.as_bytes().get(end) == Some(&b'\n') {
            let style = Style { reverse: true, ..theme.text };
            push(&mut line, &mut run, style);
            run.0.push(' ');
        }
        push(&mut line, &mut run, theme.text);
        line
    }
}

fn push(line: &mut Line, run: &mut (String, Style), next: Style) {
    if !run.0.is_empty() {
        line.push(std::mem::take(&mut run.0), run.1);
    }
    run.1 = next;
}
