//! Rows that a terminal shows made into others, with few bytes.

use super::pen::Pen;
use super::row::Row;
use crate::Size;
use std::sync::Arc;

/// Jumping over fewer cells takes as many bytes as writing them.
const GAP: usize = 4;

/// Makes `wanted` of `shown`, the rows from the first of the live part to its last. Rows that are too many for the
/// screen leave it at its top, into the scrollback.
///
/// How far down the screen the live part stands is not known and need not be: a line feed on its last row moves down
/// where there is room, and scrolls where there is none.
pub(super) fn update(pen: &mut Pen, mut shown: Vec<Arc<Row>>, wanted: &[Arc<Row>], size: Size) {
    if wanted.len() > size.rows {
        let mut flows = false;
        for (index, row) in wanted.iter().enumerate() {
            if index >= shown.len() {
                if !flows || row.cells.is_empty() {
                    pen.go(index - 1, 0);
                    pen.lines(1);
                }
                flows = write(pen, index, &Row::default(), row, size.columns, flows);
            } else {
                flows = write(pen, index, &shown[index], row, size.columns, flows);
            }
        }
        return;
    }
    let before = shown.iter().zip(wanted).take_while(|(old, new)| old == new).count();
    let most = shown.len().min(wanted.len()) - before;
    let after =
        shown.iter().rev().zip(wanted.iter().rev()).take(most).take_while(|(old, new)| old == new).count();
    make_room(pen, &mut shown, wanted.len(), after);
    scroll(pen, &mut shown[before..wanted.len() - after], &wanted[before..wanted.len() - after], before);
    let mut flows = false;
    for (index, row) in wanted.iter().enumerate() {
        flows = if *row == shown[index] && !flows {
            false
        } else {
            write(pen, index, &shown[index], row, size.columns, flows)
        };
    }
}

/// Puts in or takes out as many rows as it needs to have `count`, above the last `after`, which stay as they are.
fn make_room(pen: &mut Pen, shown: &mut Vec<Arc<Row>>, count: usize, after: usize) {
    let until = shown.len() - after;
    if count > shown.len() {
        let more = count - shown.len();
        pen.go(shown.len() - 1, 0);
        pen.lines(more);
        if after > 0 {
            pen.shift(until, more, 'L');
        }
        shown.splice(until..until, std::iter::repeat_n(Arc::default(), more));
    } else if count < shown.len() {
        let fewer = shown.len() - count;
        if after > 0 {
            pen.shift(until - fewer, fewer, 'M');
        } else {
            pen.go(count, 0);
            pen.erase('J');
        }
        shown.drain(until - fewer..until);
    }
}

/// Moves rows that are wanted some rows further up or down. `first` is the row of the first of these on the screen.
fn scroll(pen: &mut Pen, shown: &mut [Arc<Row>], wanted: &[Arc<Row>], first: usize) {
    let length = shown.len();
    let alike = |old: &[Arc<Row>], new: &[Arc<Row>]| {
        old.iter().zip(new).filter(|(old, new)| !new.cells.is_empty() && old == new).count()
    };
    let in_place = alike(shown, wanted);
    let mut best = (in_place + 1, 0, false);
    for by in 1..length {
        for (up, count) in
            [(true, alike(&shown[by..], wanted)), (false, alike(&shown[..length - by], &wanted[by..]))]
        {
            if count > best.0 {
                best = (count, by, up);
            }
        }
    }
    let (_, by, up) = best;
    if by == 0 {
        return;
    }
    if up {
        pen.shift(first, by, 'M');
        pen.shift(first + length - by, by, 'L');
        shown.rotate_left(by);
        shown[length - by..].fill(Arc::default());
    } else {
        pen.shift(first + length - by, by, 'M');
        pen.shift(first, by, 'L');
        shown.rotate_right(by);
        shown[..by].fill(Arc::default());
    }
}

/// Writes a row over another one. `flows`: the row above was just written to its end and goes on here, so that what is
/// written next makes the terminal break the line. Returns whether this row does that to the next one.
fn write(pen: &mut Pen, at: usize, old: &Row, new: &Row, columns: usize, flows: bool) -> bool {
    let flows = flows && !new.cells.is_empty();
    if flows {
        // Where the first cell will come to stand.
        pen.row = at;
        pen.column = Some(0);
    }
    if old.unsure || new.unsure {
        write_afresh(pen, at, old, new, columns, flows);
        return false;
    }
    // The terminal knows that the old row went on, until its end is erased.
    let unwraps = old.wraps && !new.wraps && new.width() == columns;
    let mut last = None;
    let mut others = 0;
    for (index, cell) in new.cells.iter().enumerate() {
        while old.cells.get(others).is_some_and(|other| other.column < cell.column) {
            others += 1;
        }
        let same = match old.cells.get(others) {
            Some(_) => same(old, others, new, index),
            None => cell.column >= old.width() && new.blank(index),
        };
        let forced = flows && index == 0 || new.wraps != old.wraps && index + 1 == new.cells.len();
        if same && !forced {
            continue;
        }
        let from = match last {
            Some(last) if index - last <= GAP => last + 1,
            _ => index,
        };
        pen.go(at, new.cells[from].column);
        for between in from..=index {
            if unwraps && between + 1 == new.cells.len() {
                pen.erase('K');
            }
            pen.cell(new, between, columns);
        }
        last = Some(index);
    }
    if old.width() > new.width() {
        pen.go(at, new.width());
        pen.erase('K');
    }
    new.wraps && last.is_some_and(|last| last + 1 == new.cells.len())
}

/// As `write`, where a character's width is uncertain: all to the right of the first change is erased and written with
/// the column named after each such character, and the terminal must not break the line.
fn write_afresh(pen: &mut Pen, at: usize, old: &Row, new: &Row, columns: usize, flows: bool) {
    let limit = old.cells.len().min(new.cells.len());
    let mut from = (0..limit).take_while(|index| same(old, *index, new, *index)).count();
    if from == old.cells.len() && from == new.cells.len() && !flows {
        return;
    }
    while from > 0 && new.cells[from - 1].unsure {
        from -= 1;
    }
    if flows {
        from = 1;
        pen.cell(new, 0, columns);
    }
    let column = new.cells.get(from).map_or(new.width(), |cell| cell.column);
    if column >= columns {
        return;
    }
    pen.go(at, column);
    if old.unsure || old.width() > column {
        pen.erase('K');
    }
    pen.out.extend_from_slice(b"\x1b[?7l");
    for index in from..new.cells.len() {
        pen.cell(new, index, columns);
    }
    pen.out.extend_from_slice(b"\x1b[?7h");
}

fn same(old: &Row, old_index: usize, new: &Row, new_index: usize) -> bool {
    let (one, other) = (old.cells[old_index], new.cells[new_index]);
    one.column == other.column
        && one.width == other.width
        && one.style == other.style
        && old.text(old_index) == new.text(new_index)
}
