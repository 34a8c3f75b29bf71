//! What an edit changed, for people and for other programs.

use std::fmt::Write;
use std::time::Duration;

use serde::Serialize;
use similar::{DiffOp, TextDiff};

/// Lines shown around a change.
const CONTEXT: usize = 4;

/// The details of an edit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Details {
    /// Changed lines with their numbers, and some around them.
    pub(crate) diff: String,
    /// The same as a unified diff.
    pub(crate) patch: String,
    /// The number, from 1, of the first line that changed, in the new text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) first_changed_line: Option<usize>,
}

/// Compares two texts with LF line ends. After half a second it settles for a coarser answer.
pub(crate) fn details(old: &str, new: &str, path: &str) -> Details {
    let diff = TextDiff::configure().timeout(Duration::from_millis(500)).diff_lines(old, new);
    let patch = diff.unified_diff().context_radius(CONTEXT).header(path, path).to_string();
    let lines = |text: &str| text.split('\n').count();
    let width = lines(old).max(lines(new)).to_string().len();
    let mut shown = Shown { out: String::new(), width };
    let old_line = |index: usize| diff.old_slice(index).unwrap_or_default();
    let new_line = |index: usize| diff.new_slice(index).unwrap_or_default();
    let ops = diff.ops();
    let mut first_changed_line = None;
    for (position, op) in ops.iter().enumerate() {
        if let DiffOp::Equal { old_index, len, .. } = *op {
            let before = if position == 0 { 0 } else { CONTEXT };
            let after = if position + 1 == ops.len() { 0 } else { CONTEXT };
            if before + after >= len {
                (old_index..old_index + len).for_each(|at| shown.line(' ', at, old_line(at)));
            } else if before + after > 0 {
                (old_index..old_index + before).for_each(|at| shown.line(' ', at, old_line(at)));
                shown.elision();
                (old_index + len - after..old_index + len).for_each(|at| shown.line(' ', at, old_line(at)));
            }
            continue;
        }
        first_changed_line = first_changed_line.or(Some(op.new_range().start + 1));
        op.old_range().for_each(|at| shown.line('-', at, old_line(at)));
        op.new_range().for_each(|at| shown.line('+', at, new_line(at)));
    }
    Details { diff: shown.out, patch, first_changed_line }
}

struct Shown {
    out: String,
    width: usize,
}

impl Shown {
    fn line(&mut self, sign: char, index: usize, line: &str) {
        self.separate();
        let line = line.strip_suffix('\n').unwrap_or(line);
        // Writing to a string does not fail.
        write!(self.out, "{sign}{:>width$} {line}", index + 1, width = self.width).ok();
    }

    fn elision(&mut self) {
        self.separate();
        write!(self.out, " {:width$} ...", "", width = self.width).ok();
    }

    fn separate(&mut self) {
        if !self.out.is_empty() {
            self.out.push('\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_numbers() {
        let old: String = (1..=30).map(|n| format!("line {n}\n")).collect();
        let new = old
            .replace("line 5\n", "line five\n")
            .replace("line 25\n", "")
            .replace("line 8\n", "line 8\nmore\n");
        let details = details(&old, &new, "f");
        let expect = " 1 line 1\n  2 line 2\n  3 line 3\n  4 line 4\n- 5 line 5\n+ 5 line five\n  6 line 6\n  7 line 7\n  8 line 8\n+ 9 more\n  9 line 9\n 10 line 10\n 11 line 11\n 12 line 12\n    ...\n 21 line 21\n 22 line 22\n 23 line 23\n 24 line 24\n-25 line 25\n 26 line 26\n 27 line 27\n 28 line 28\n 29 line 29\n    ...";
        assert_eq!(details.diff.trim_start(), expect.trim_start());
        assert_eq!(details.first_changed_line, Some(5));
        assert!(details.patch.starts_with("--- f\n+++ f\n@@ -1,12 +1,13 @@\n line 1\n"), "{}", details.patch);
    }
}
