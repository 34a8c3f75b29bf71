//! What an edit changed, for people and for other programs.

use serde::Serialize;
use similar::{DiffOp, group_diff_ops};

use super::compare::{Lines, lines};

/// Lines shown around a change.
const CONTEXT: usize = 4;
/// Lines that are compared one by one; each takes some hundred bytes while that goes on.
pub(crate) const COMPARED: usize = 200_000;

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

/// Compares two texts with LF line ends. After half a second it settles for a coarser answer; `None` when the
/// changes lie too far apart to be compared line by line.
pub(crate) fn details(old: &str, new: &str, path: &str) -> Option<Details> {
    // What is far from the changes is cut away first: memory goes with the change, not with the file.
    let skipped = same_start(old, new);
    let (old_rest, new_rest) = (&old[skipped..], &new[skipped..]);
    let same = same_end(old_rest, new_rest);
    let (old_part, new_part) = (&old_rest[..old_rest.len() - same], &new_rest[..new_rest.len() - same]);
    if count_lines(old_part) + count_lines(new_part) > COMPARED {
        return None;
    }
    let Lines { old: old_lines, new: new_lines, ops } = lines(old_part, new_part);
    let offset = count_lines(&old[..skipped]);
    let first_changed_line =
        ops.iter().find(|op| !matches!(op, DiffOp::Equal { .. })).map(|op| offset + op.new_range().start + 1);
    let most = (count_lines(old) + 1).max(count_lines(new) + 1);
    let compared = LineComparison { offset, width: most.to_string().len(), old: old_lines, new: new_lines };
    Some(Details {
        diff: compared.diff(&ops),
        patch: compared.patch(&group_diff_ops(ops, CONTEXT), path),
        first_changed_line,
    })
}

/// The lines in which two texts differ, with their numbers and some lines around them; `None` when the changes lie too far
/// apart to be compared line by line.
pub fn changed_lines(old: &str, new: &str) -> Option<String> {
    details(old, new, "").map(|details| details.diff)
}

/// Where the lines begin that are worth comparing: one line more than is shown before the first change.
fn same_start(old: &str, new: &str) -> usize {
    let same = old.bytes().zip(new.bytes()).take_while(|(a, b)| a == b).count();
    memchr::memrchr_iter(b'\n', &old.as_bytes()[..same]).nth(CONTEXT + 1).map_or(0, |at| at + 1)
}

/// Bytes at the end that are not worth comparing: all but one line more than is shown after the last change.
fn same_end(old: &str, new: &str) -> usize {
    let same = old.bytes().rev().zip(new.bytes().rev()).take_while(|(a, b)| a == b).count();
    let start = old.len() - same;
    memchr::memchr_iter(b'\n', &old.as_bytes()[start..]).nth(CONTEXT + 1).map_or(0, |at| same - at - 1)
}

pub(crate) fn count_lines(text: &str) -> usize {
    memchr::memchr_iter(b'\n', text.as_bytes()).count()
}

struct LineComparison<'a> {
    /// Lines before those that were compared.
    offset: usize,
    /// Digits of a line number.
    width: usize,
    old: Vec<&'a str>,
    new: Vec<&'a str>,
}

impl LineComparison<'_> {
    fn diff(&self, ops: &[DiffOp]) -> String {
        let width = self.width;
        let row = |sign: char, index: usize, lines: &[&str]| {
            let line = lines[index].strip_suffix('\n').unwrap_or(lines[index]);
            format!("{sign}{:>width$} {line}", self.offset + index + 1)
        };
        let mut rows = Vec::new();
        for (position, op) in ops.iter().enumerate() {
            if let DiffOp::Equal { old_index, len, .. } = *op {
                let before = if position == 0 { 0 } else { CONTEXT };
                let after = if position + 1 == ops.len() { 0 } else { CONTEXT };
                let all = old_index..old_index + len;
                if before + after >= len {
                    rows.extend(all.map(|at| row(' ', at, &self.old)));
                } else {
                    rows.extend((all.start..all.start + before).map(|at| row(' ', at, &self.old)));
                    rows.push(format!(" {:width$} ...", ""));
                    rows.extend((all.end - after..all.end).map(|at| row(' ', at, &self.old)));
                }
                continue;
            }
            rows.extend(op.old_range().map(|at| row('-', at, &self.old)));
            rows.extend(op.new_range().map(|at| row('+', at, &self.new)));
        }
        rows.join("\n")
    }

    fn patch(&self, hunks: &[Vec<DiffOp>], path: &str) -> String {
        let mut out = format!("--- {path}\n+++ {path}\n");
        let mut put = |sign: char, line: &str| {
            out.push(sign);
            out.push_str(line);
            if !line.ends_with('\n') {
                out.push_str("\n\\ No newline at end of file\n");
            }
        };
        for hunk in hunks {
            let (Some(first), Some(last)) = (hunk.first(), hunk.last()) else { continue };
            let side = |start: usize, end: usize| {
                // An empty side is named by the line before it.
                let number = self.offset + start + usize::from(end > start);
                format!("{number},{}", end - start)
            };
            let old = side(first.old_range().start, last.old_range().end);
            let new = side(first.new_range().start, last.new_range().end);
            // The sign of a header's line is the first of its two.
            let header = format!("@ -{old} +{new} @@\n");
            put('@', &header);
            for op in hunk {
                if let DiffOp::Equal { .. } = op {
                    op.old_range().for_each(|at| put(' ', self.old[at]));
                    continue;
                }
                op.old_range().for_each(|at| put('-', self.old[at]));
                op.new_range().for_each(|at| put('+', self.new[at]));
            }
        }
        out
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
        let details = details(&old, &new, "f").unwrap();
        let expect = "  1 line 1|  2 line 2|  3 line 3|  4 line 4|- 5 line 5|+ 5 line five|  6 line 6|  7 line 7|  8 line 8|+ 9 more|  9 line 9| 10 line 10| 11 line 11| 12 line 12|    ...| 21 line 21| 22 line 22| 23 line 23| 24 line 24|-25 line 25| 26 line 26| 27 line 27| 28 line 28| 29 line 29|    ...";
        assert_eq!(details.diff.replace('\n', "|"), expect);
        assert_eq!(details.first_changed_line, Some(5));
        let headers: Vec<&str> = details.patch.lines().filter(|line| line.starts_with("@@")).collect();
        assert_eq!(headers, ["@@ -1,12 +1,13 @@", "@@ -21,9 +22,8 @@"]);
    }

    #[test]
    fn far_into_a_long_file() {
        let old: String = (1..=3000).map(|n| format!("line {n}\n")).collect();
        let changed = details(&old, &old.replace("line 1500\n", "x\n"), "f").unwrap();
        assert_eq!(
            changed.diff.replace('\n', "|"),
            "      ...| 1496 line 1496| 1497 line 1497| 1498 line 1498| 1499 line 1499|-1500 line 1500|+1500 x| 1501 line 1501| 1502 line 1502| 1503 line 1503| 1504 line 1504|      ..."
        );
        assert_eq!(
            changed.patch.replace('\n', "|"),
            "--- f|+++ f|@@ -1496,9 +1496,9 @@| line 1496| line 1497| line 1498| line 1499|-line 1500|+x| line 1501| line 1502| line 1503| line 1504|"
        );
        assert_eq!(changed.first_changed_line, Some(1500));
    }

    #[test]
    fn edges() {
        let check = |old: &str, new: &str, expect: &str, patch: &str| {
            let details = details(old, new, "f").unwrap();
            assert_eq!(details.diff.replace('\n', "|"), expect, "{old:?} {new:?}");
            let patch = format!("--- f\n+++ f\n{patch}");
            assert_eq!(details.patch, patch, "{old:?} {new:?}");
        };
        check("", "a\n", "+1 a", "@@ -0,0 +1,1 @@\n+a\n");
        check("a\n", "", "-1 a", "@@ -1,1 +0,0 @@\n-a\n");
        check("a", "a\n", "-1 a|+1 a", "@@ -1,1 +1,1 @@\n-a\n\\ No newline at end of file\n+a\n");
        check("a\na\n", "a\na\na\n", " 1 a| 2 a|+3 a", "@@ -1,2 +1,3 @@\n a\n a\n+a\n");
    }

    #[test]
    fn changes_too_far_apart_are_not_compared() {
        let old = format!("a\n{}b\n", "\n".repeat(COMPARED));
        assert_eq!(details(&old, &old.replace('a', "x").replace('b', "y"), "f"), None);
    }
}
