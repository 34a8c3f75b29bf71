//! Changes: which lines, and which words of them.

use quipu_protocol::Json;
use serde::Deserialize;

use crate::{Line, Role, Style, Theme, clean, wrap};

/// Pairs that are compared at most; texts with more are taken as wholly different.
const COMPARED: usize = 1 << 18;

/// A line of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    sort: Sort,
    /// Digits; empty where no number is known.
    number: String,
    text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    Added,
    Removed,
    Same,
    /// Lines are left out here.
    Fold,
}

/// The number of added and removed lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChangeCount {
    /// Lines that came.
    pub added: usize,
    /// Lines that went.
    pub removed: usize,
}

/// A change that can be shown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Diff {
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Details {
    diff: String,
}

#[derive(Deserialize)]
struct Edits {
    edits: Vec<Replacement>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Replacement {
    old_text: String,
    new_text: String,
}

impl Diff {
    /// From the details of an edit's result: `diff` has lines with sign, number and text. `None` where there are none.
    #[must_use]
    pub fn of_details(details: &Json) -> Option<Self> {
        let details: Details = details.read().ok()?;
        Some(Self { rows: details.diff.split('\n').filter_map(row).collect() })
    }

    /// From the arguments of an edit, before it is made: without numbers. `None` when they are not such.
    #[must_use]
    pub fn of_arguments(arguments: &str) -> Option<Self> {
        let edits: Edits = serde_json::from_str(arguments).ok()?;
        let mut rows = Vec::new();
        for edit in edits.edits {
            if !rows.is_empty() {
                rows.push(Row { sort: Sort::Fold, number: String::new(), text: String::new() });
            }
            rows.extend(compare(&edit.old_text, &edit.new_text));
        }
        Some(Self { rows })
    }

    /// How much it is.
    #[must_use]
    pub fn changed(&self) -> ChangeCount {
        let count = |sort| self.rows.iter().filter(|row| row.sort == sort).count();
        ChangeCount { added: count(Sort::Added), removed: count(Sort::Removed) }
    }

    /// The change in lines of at most `columns` columns: numbers, signs, and the words that differ.
    #[must_use]
    pub fn lines(&self, columns: usize, theme: &Theme) -> Vec<Line> {
        let digits = self.rows.iter().map(|row| row.number.len()).max().unwrap_or(0);
        // On a narrow screen the text needs the room.
        let digits = if (digits + 3) * 3 > columns { 0 } else { digits };
        let mut lines = Vec::new();
        let mut at = 0;
        while at < self.rows.len() {
            let run = |from: usize, sort| self.rows[from..].iter().take_while(|row| row.sort == sort).count();
            let removed = run(at, Sort::Removed);
            let added = run(at + removed, Sort::Added);
            if removed == 0 && added == 0 {
                lines.extend(draw(&self.rows[at], &[], digits, columns, theme));
                at += 1;
                continue;
            }
            let (old, new) = (&self.rows[at..at + removed], &self.rows[at + removed..at + removed + added]);
            let words: Vec<_> =
                old.iter().zip(new).map(|(old, new)| words_that_differ(&old.text, &new.text)).collect();
            for (index, row) in old.iter().enumerate() {
                let marked = words.get(index).map_or(&[][..], |words| &words.0);
                lines.extend(draw(row, marked, digits, columns, theme));
            }
            for (index, row) in new.iter().enumerate() {
                let marked = words.get(index).map_or(&[][..], |words| &words.1);
                lines.extend(draw(row, marked, digits, columns, theme));
            }
            at += removed + added;
        }
        lines
    }
}

/// `+12 text`, `- 3 text`, `  4 text`, `    ...`.
fn row(line: &str) -> Option<Row> {
    let sort = match line.as_bytes().first()? {
        b'+' => Sort::Added,
        b'-' => Sort::Removed,
        b' ' => Sort::Same,
        _ => return None,
    };
    let rest = line[1..].trim_start_matches(' ');
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 {
        return Some(Row { sort: Sort::Fold, number: String::new(), text: String::new() });
    }
    let text = rest[digits..].strip_prefix(' ').unwrap_or(&rest[digits..]);
    Some(Row { sort, number: rest[..digits].to_owned(), text: clean(text).into_owned() })
}

fn draw(row: &Row, marked: &[(usize, usize)], digits: usize, columns: usize, theme: &Theme) -> Vec<Line> {
    let (sign, role, strong) = match row.sort {
        Sort::Added => (theme.mark("+ ", "added: "), Role::Added, Role::AddedWord),
        Sort::Removed => (theme.mark("- ", "removed: "), Role::Removed, Role::RemovedWord),
        Sort::Same => (theme.mark("  ", ""), Role::Context, Role::Context),
        Sort::Fold => (theme.mark("⋮ ", "…"), Role::LineNumber, Role::LineNumber),
    };
    let (style, strong) = (theme.style(role), theme.style(strong));
    let gutter = if digits > 0 { digits + 1 } else { 0 };
    let sign = match columns {
        0..3 => "",
        3..6 => sign.trim_end(),
        _ => sign,
    };
    let room = columns.saturating_sub(gutter + crate::width(sign)).max(1);
    let mut text = Line::default();
    let mut from = 0;
    for (start, end) in marked {
        text.push(&row.text[from..*start], style);
        text.push(&row.text[*start..*end], strong);
        from = *end;
    }
    text.push(&row.text[from..], style);
    text.spans.retain(|span| !span.text.is_empty());
    let mut lines = Vec::new();
    for (index, part) in wrap(&text, room, 0).into_iter().enumerate() {
        let mut line = Line::default();
        if gutter > 0 {
            let number = if index == 0 { row.number.as_str() } else { "" };
            line.push(format!("{number:>digits$} "), theme.line_number);
        }
        line.push(if index == 0 { sign.to_owned() } else { " ".repeat(crate::width(sign)) }, style);
        line.spans.extend(part.spans);
        if part_is_empty(&line) {
            line.spans.retain(|span| !span.text.trim().is_empty());
        }
        lines.push(line);
    }
    lines
}

fn part_is_empty(line: &Line) -> bool {
    line.spans.iter().all(|span| span.text.trim().is_empty() && span.style == Style::default())
}

/// What two texts have in common: a pair of places for each, ascending. `None` when they are too large to compare.
fn common(old: &[&str], new: &[&str]) -> Option<Vec<(usize, usize)>> {
    let start = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    let end = old[start..].iter().rev().zip(new[start..].iter().rev()).take_while(|(a, b)| a == b).count();
    let (a, b) = (&old[start..old.len() - end], &new[start..new.len() - end]);
    if a.len().saturating_mul(b.len()) > COMPARED {
        return None;
    }
    // Longest common subsequence: how many from each pair of places on.
    let row = b.len() + 1;
    let mut lengths = vec![0u32; (a.len() + 1) * row];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            lengths[i * row + j] = if a[i] == b[j] {
                lengths[(i + 1) * row + j + 1] + 1
            } else {
                lengths[(i + 1) * row + j].max(lengths[i * row + j + 1])
            };
        }
    }
    let mut pairs: Vec<_> = (0..start).map(|at| (at, at)).collect();
    let (mut i, mut j) = (0, 0);
    while i < a.len() && j < b.len() {
        if a[i] == b[j] {
            pairs.push((start + i, start + j));
            (i, j) = (i + 1, j + 1);
        } else if lengths[(i + 1) * row + j] >= lengths[i * row + j + 1] {
            i += 1;
        } else {
            j += 1;
        }
    }
    pairs.extend((0..end).map(|at| (old.len() - end + at, new.len() - end + at)));
    Some(pairs)
}

/// Two texts as rows, lines that are in both only once.
fn compare(old: &str, new: &str) -> Vec<Row> {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let row = |sort, text: &str| Row { sort, number: String::new(), text: clean(text).into_owned() };
    let mut rows = Vec::new();
    let (mut i, mut j) = (0, 0);
    for (a, b) in common(&old, &new).unwrap_or_default().into_iter().chain([(old.len(), new.len())]) {
        rows.extend(old[i..a].iter().map(|text| row(Sort::Removed, text)));
        rows.extend(new[j..b].iter().map(|text| row(Sort::Added, text)));
        if a < old.len() {
            rows.push(row(Sort::Same, old[a]));
        }
        (i, j) = (a + 1, b + 1);
    }
    rows
}

type Ranges = Vec<(usize, usize)>;

/// The parts of two lines that differ; none when little is the same.
fn words_that_differ(old: &str, new: &str) -> (Ranges, Ranges) {
    let (a, b) = (words(old), words(new));
    let Some(pairs) = common(&a, &b) else { return Default::default() };
    let solid = |words: &[&str]| {
        words.iter().filter(|word| !word.trim().is_empty()).map(|word| word.len()).sum::<usize>()
    };
    let same: Vec<&str> = pairs.iter().map(|(at, _)| a[*at]).collect();
    if solid(&same) * 3 < solid(&a).min(solid(&b)) || solid(&same) == 0 {
        return Default::default();
    }
    (others(&a, pairs.iter().map(|pair| pair.0)), others(&b, pairs.iter().map(|pair| pair.1)))
}

/// The ranges of bytes of the words that are not among those that both have.
fn others(words: &[&str], shared: impl Iterator<Item = usize>) -> Ranges {
    let mut ranges: Ranges = Vec::new();
    let mut shared = shared.peekable();
    let mut start = 0;
    for (index, word) in words.iter().enumerate() {
        let end = start + word.len();
        if shared.next_if_eq(&index).is_none() {
            match ranges.last_mut() {
                Some(last) if last.1 == start => last.1 = end,
                _ => ranges.push((start, end)),
            }
        }
        start = end;
    }
    ranges
}

/// A line as words, runs of spaces, and other characters one by one.
fn words(line: &str) -> Vec<&str> {
    let kind = |c: char| if c.is_alphanumeric() || c == '_' { 1 } else { 2 * usize::from(c == ' ') };
    let mut words = Vec::new();
    let mut start = 0;
    let mut last = 0;
    for (at, c) in line.char_indices() {
        let this = kind(c);
        if at > start && (this != last || this == 0) {
            words.push(&line[start..at]);
            start = at;
        }
        last = this;
    }
    if start < line.len() {
        words.push(&line[start..]);
    }
    words
}
