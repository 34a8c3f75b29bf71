//! What a change does to a file, in lines.

use similar::{Algorithm, ChangeTag, DiffOp, capture_diff_slices, group_diff_ops};

/// Lines around a change.
const AROUND: usize = 3;

/// A line of a diff, without its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiffLine {
    /// Where the next lines stand.
    Place {
        /// The first line before the change, from 1.
        before: usize,
        /// The first line after the change, from 1.
        after: usize,
    },
    /// It stays.
    Same(String),
    /// It goes.
    Deletion(String),
    /// It comes.
    Addition(String),
    /// The line above has no end.
    NoNewline,
}

/// The lines that differ, with some around them.
pub fn diff(before: &str, after: &str) -> Vec<DiffLine> {
    let old: Vec<&str> = before.split_inclusive('\n').collect();
    let new: Vec<&str> = after.split_inclusive('\n').collect();
    let ops = capture_diff_slices(Algorithm::Myers, &old, &new);
    let mut lines = Vec::new();
    for group in group_diff_ops(ops, AROUND) {
        let place =
            |range: fn(&DiffOp) -> std::ops::Range<usize>| group.first().map_or(1, |op| range(op).start + 1);
        lines.push(DiffLine::Place { before: place(DiffOp::old_range), after: place(DiffOp::new_range) });
        for change in group.iter().flat_map(|op| op.iter_changes(&old, &new)) {
            let written: &str = change.value();
            let text = written.trim_end_matches(['\n', '\r']).to_owned();
            lines.push(match change.tag() {
                ChangeTag::Equal => DiffLine::Same(text),
                ChangeTag::Delete => DiffLine::Deletion(text),
                ChangeTag::Insert => DiffLine::Addition(text),
            });
            if !written.ends_with('\n') {
                lines.push(DiffLine::NoNewline);
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_lines_have_their_places() {
        let before: String = (1..=20).map(|line| format!("{line}\n")).collect();
        let after = before.replace("10\n", "ten\n") + "21";
        let lines = diff(&before, &after);
        let text = |line: &str| line.to_owned();
        assert_eq!(lines[0], DiffLine::Place { before: 7, after: 7 });
        assert_eq!(lines[4..6], [DiffLine::Deletion(text("10")), DiffLine::Addition(text("ten"))]);
        assert_eq!(lines[9], DiffLine::Place { before: 18, after: 18 });
        assert_eq!(lines[13..], [DiffLine::Addition(text("21")), DiffLine::NoNewline]);
        assert_eq!(diff("a\n", "a\n"), []);
    }
}
