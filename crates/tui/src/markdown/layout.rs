//! Pieces become lines of a width.

use super::piece::{Body, Indent, Piece};
use super::table::{Cells, Shape, Side, text};
use crate::styled::Run;
use crate::{Line, Role, Style, Theme, wrap};

/// Columns between two of a table.
const BETWEEN: usize = 3;
/// Columns from which on a word in a table may be broken.
const LONG_WORD: usize = 12;

/// Lays a piece out. No line is wider than `columns`, but those of code: where such a line ends is for the reader to
/// see, and for whoever copies it.
pub(super) fn layout(piece: &Piece, columns: usize, theme: &Theme, lines: &mut Vec<Line>) {
    let columns = columns.max(1);
    let mut indents = &piece.indents[..];
    let mut indent = indents.iter().map(Indent::width).sum::<usize>();
    // The outermost give way, so that half of the room is for the text.
    while indent > columns / 2 {
        let Some((first, rest)) = indents.split_first() else { break };
        indent -= first.width();
        indents = rest;
    }
    let room = columns - indent;
    let (body, whole) = match &piece.body {
        Body::Blank => {
            let mut line = Line::default();
            prefix(indents, false, theme, &mut line);
            trim(&mut line);
            lines.push(line);
            return;
        }
        Body::Text(runs) => (paragraph(runs, room, theme), false),
        Body::Code(runs) => (vec![line_of(runs, theme)], true),
        Body::Rule => (vec![Line::styled("─".repeat(room.min(40)), theme.border)], false),
        Body::Header(shape, cells) => (header(shape, cells, room, theme), false),
        Body::Row(shape, cells) => (row(shape, cells, room, theme), false),
    };
    for (index, line) in body.into_iter().enumerate() {
        let mut full = Line::default();
        prefix(indents, index == 0, theme, &mut full);
        if whole && !line.spans.is_empty() {
            full.push("  ", Style::default());
        }
        full.spans.extend(line.spans);
        trim(&mut full);
        lines.push(full);
    }
}

impl Indent {
    fn width(&self) -> usize {
        crate::width(&self.rest)
    }
}

fn prefix(indents: &[Indent], first: bool, theme: &Theme, line: &mut Line) {
    for indent in indents {
        let text = if first { &indent.first } else { &indent.rest };
        line.push(text.clone(), theme.style(indent.role));
    }
}

/// Removes spaces at the end that nobody sees.
fn trim(line: &mut Line) {
    while let Some(last) = line.spans.last_mut() {
        last.text.truncate(last.text.trim_end_matches(' ').len());
        if !last.text.is_empty() {
            break;
        }
        line.spans.pop();
    }
}

/// Runs as one line. In a theme where code looks like text it keeps its marks.
pub(crate) fn line_of(runs: &[Run], theme: &Theme) -> Line {
    let mut line = Line::default();
    for run in runs {
        line.push(run.text.clone(), style_of(run, theme));
    }
    line
}

fn style_of(run: &Run, theme: &Theme) -> Style {
    let mut style = theme.style(run.role);
    if run.bold {
        style = over(style, theme.strong);
    }
    if run.italic {
        style = over(style, theme.emphasis);
    }
    style.strike |= run.strike;
    if let (Some(links), Some(target)) = (&theme.links, &run.link) {
        style.link = links.to(target);
    }
    style
}

/// A style with what another one says beside it.
fn over(style: Style, more: Style) -> Style {
    let color = |below, above| if above == crate::Color::Default { below } else { above };
    Style {
        foreground: color(style.foreground, more.foreground),
        background: color(style.background, more.background),
        bold: style.bold | more.bold,
        dim: style.dim | more.dim,
        italic: style.italic | more.italic,
        underline: style.underline | more.underline,
        reverse: style.reverse | more.reverse,
        strike: style.strike | more.strike,
        link: style.link,
    }
}

/// Runs in lines of so many columns. A run's line ends end lines.
fn paragraph(runs: &[Run], columns: usize, theme: &Theme) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut line = Line::default();
    for run in runs {
        let style = style_of(run, theme);
        let marked;
        let text = if run.role == Role::Code && style == (Style { link: style.link, ..Style::default() }) {
            marked = format!("`{}`", run.text);
            &marked
        } else {
            &run.text
        };
        for (index, part) in text.split('\n').enumerate() {
            if index > 0 {
                lines.extend(wrap(&std::mem::take(&mut line), columns, 0));
            }
            if !part.is_empty() {
                line.push(part, style);
            }
        }
    }
    lines.extend(wrap(&line, columns, 0));
    lines
}

/// How wide each column is within so much room; `None` when there is no room for a table, when words would be torn, or when
/// nobody sees it.
fn widths(shape: &Shape, room: usize, theme: &Theme) -> Option<Vec<usize>> {
    if theme.spoken {
        return None;
    }
    let wanted = if theme.code == Style::default() { &shape.marked } else { &shape.widths };
    let count = wanted.len();
    let room = room.checked_sub(BETWEEN * (count - 1)).filter(|room| *room >= 4 * count)?;
    let mut widest = wanted.iter().copied().max().unwrap_or(0);
    let needed = |widest: usize| wanted.iter().map(|width| (*width).min(widest)).sum::<usize>();
    if needed(widest) > room {
        // The most that fits when no column is wider; found by halving.
        let (mut fits, mut not) = (1, widest);
        while not - fits > 1 {
            let middle = fits.midpoint(not);
            if needed(middle) <= room { fits = middle } else { not = middle }
        }
        widest = fits;
    }
    let mut widths: Vec<usize> = wanted.iter().map(|width| (*width).min(widest)).collect();
    // What the halving left over goes to the columns that want it.
    let mut left = room - widths.iter().sum::<usize>().min(room);
    for (width, wanted) in widths.iter_mut().zip(wanted) {
        let more = left.min(wanted.saturating_sub(*width)).min(1);
        *width += more;
        left -= more;
    }
    let breaks = |(width, word): (&usize, &usize)| *width < (*word).min(LONG_WORD);
    (!widths.iter().zip(&shape.words).any(breaks)).then_some(widths)
}

fn header(shape: &Shape, cells: &Cells, room: usize, theme: &Theme) -> Vec<Line> {
    // Without room for columns each cell says which one it is of.
    let Some(widths) = widths(shape, room, theme) else { return Vec::new() };
    let mut bold = cells.clone();
    bold.iter_mut().flatten().for_each(|run| run.bold = true);
    let mut lines = columns(shape, &bold, &widths, theme);
    let rule: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
    lines.push(Line::styled(rule.join("─┼─"), theme.border));
    lines
}

fn row(shape: &Shape, cells: &Cells, room: usize, theme: &Theme) -> Vec<Line> {
    if let Some(widths) = widths(shape, room, theme) {
        return columns(shape, cells, &widths, theme);
    }
    let mut lines = vec![Line::styled("─".repeat(room.min(8)), theme.border)];
    for (name, cell) in shape.names.iter().zip(cells) {
        if text(cell).is_empty() {
            continue;
        }
        let mut runs = Vec::new();
        if !name.is_empty() {
            let mut run = Run::new(&format!("{name}: "), Role::Text);
            run.bold = true;
            runs.push(run);
        }
        runs.extend(cell.iter().cloned());
        lines.extend(paragraph(&runs, room, theme));
    }
    lines
}

fn columns(shape: &Shape, cells: &Cells, widths: &[usize], theme: &Theme) -> Vec<Line> {
    let cells: Vec<Vec<Line>> =
        cells.iter().zip(widths).map(|(cell, width)| paragraph(cell, *width, theme)).collect();
    let height = cells.iter().map(Vec::len).max().unwrap_or(0);
    let mut lines = Vec::with_capacity(height);
    for at in 0..height {
        let mut line = Line::default();
        for (index, (cell, width)) in cells.iter().zip(widths).enumerate() {
            if index > 0 {
                line.push(" │ ", theme.border);
            }
            let part = cell.get(at).cloned().unwrap_or_default();
            let free = width.saturating_sub(part.width());
            let before = match shape.sides[index] {
                Side::Left => 0,
                Side::Center => free / 2,
                Side::Right => free,
            };
            if before > 0 {
                line.push(" ".repeat(before), Style::default());
            }
            line.spans.extend(part.spans);
            if free > before {
                line.push(" ".repeat(free - before), Style::default());
            }
        }
        trim(&mut line);
        lines.push(line);
    }
    lines
}
