//! Two texts that were made of one, as one: what either added is there, what either removed is not.

use std::time::{Duration, Instant};

use similar::{Algorithm, DiffOp, capture_diff_slices_deadline};

/// How long two texts are compared before the rest counts as another one.
const LONGEST: Duration = Duration::from_secs(2);

/// Merges by whole lines. Where both added something at one place, `theirs` comes first; what both added is there once.
pub(super) fn merge(base: &[u8], theirs: &[u8], ours: &[u8]) -> Vec<u8> {
    let ends = theirs.ends_with(b"\n") || ours.ends_with(b"\n");
    let [base, theirs, ours] = [base, theirs, ours].map(lines);
    let (theirs, ours) = (Difference::of(&base, &theirs), Difference::of(&base, &ours));
    let mut merged: Vec<&[u8]> = Vec::new();
    for (at, (their, our)) in theirs.added.iter().zip(&ours.added).enumerate() {
        if !holds(our, their) {
            merged.extend(their);
        }
        if !holds(their, our) || holds(our, their) {
            merged.extend(our);
        }
        if let Some(line) = base.get(at).filter(|_| theirs.kept[at] && ours.kept[at]) {
            merged.push(line);
        }
    }
    let mut text = merged.join(&b'\n');
    if ends && !merged.is_empty() {
        text.push(b'\n');
    }
    text
}

fn lines(text: &[u8]) -> Vec<&[u8]> {
    match text.strip_suffix(b"\n").unwrap_or(text) {
        [] if text.is_empty() => Vec::new(),
        text => text.split(|byte| *byte == b'\n').collect(),
    }
}

fn holds(lines: &[&[u8]], part: &[&[u8]]) -> bool {
    part.is_empty() || lines.windows(part.len()).any(|window| window == part)
}

/// How a text differs from the one that it was made of.
struct Difference<'a> {
    /// For each line of the first text, whether it is still there.
    kept: Vec<bool>,
    /// What stands before each line of the first text, and behind the last, that was not there.
    added: Vec<Vec<&'a [u8]>>,
}

impl<'a> Difference<'a> {
    fn of(base: &[&[u8]], new: &[&'a [u8]]) -> Self {
        let mut kept = vec![false; base.len()];
        let mut added = vec![Vec::new(); base.len() + 1];
        let end = Some(Instant::now() + LONGEST);
        for op in capture_diff_slices_deadline(Algorithm::Myers, base, new, end) {
            match op {
                DiffOp::Equal { .. } => kept[op.old_range()].fill(true),
                DiffOp::Insert { .. } | DiffOp::Replace { .. } => {
                    added[op.old_range().start].extend_from_slice(&new[op.new_range()]);
                }
                DiffOp::Delete { .. } => {}
            }
        }
        Self { kept, added }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn merged(base: &str, theirs: &str, ours: &str) -> String {
        String::from_utf8(merge(base.as_bytes(), theirs.as_bytes(), ours.as_bytes())).unwrap()
    }

    #[test]
    fn merge_keeps_what_either_added() {
        assert_eq!(merged("a\nb\n", "a\nx\nb\n", "a\nb\ny\n"), "a\nx\nb\ny\n");
        assert_eq!(merged("", "x\n", "y\n"), "x\ny\n");
        assert_eq!(merged("a\n", "a\nx\n", "a\nx\ny\n"), "a\nx\ny\n", "once");
        assert_eq!(merged("a\n", "a\nx\ny\n", "a\nx\n"), "a\nx\ny\n", "once");
        assert_eq!(merged("a\n", "a\nx\n", "a\nx\n"), "a\nx\n", "once");
        assert_eq!(merged("a\nb\n", "b\n", "a\nb\ny\n"), "b\ny\n", "what one removed stays away");
        assert_eq!(merged("a\n", "", ""), "");
    }

    #[test]
    fn merge_does_not_join_lines_without_an_end() {
        assert_eq!(merged("a", "a\nx", "a\ny\n"), "a\nx\ny\n");
        assert_eq!(merged("a", "a\nx", "a\ny"), "a\nx\ny");
        assert_eq!(merged("a\n\n", "a\n\nx\n", "a\n\n"), "a\n\nx\n");
    }

    #[test]
    fn merge_takes_bytes_that_are_no_text() {
        assert_eq!(merge(b"\xff\n", b"\xff\n\xfe\n", b"\xff\nb\n"), b"\xff\n\xfe\nb\n");
    }

    fn text() -> impl Strategy<Value = String> {
        proptest::collection::vec("[a-c]{0,1}\n", 0..6).prop_map(|lines| lines.concat())
    }

    proptest! {
        /// Who changed nothing has no say; and no line that only one of them has, and that was not there before, is lost.
        #[test]
        fn merge_loses_no_line(base in text(), theirs in text(), ours in text()) {
            prop_assert_eq!(merged(&base, &theirs, &base), &*theirs);
            prop_assert_eq!(merged(&base, &base, &ours), &*ours);
            let merged = merged(&base, &theirs, &ours);
            for line in theirs.lines().chain(ours.lines()).filter(|line| base.lines().all(|old| old != *line)) {
                prop_assert!(merged.lines().any(|found| found == line), "{:?} of {:?}", line, merged);
            }
        }
    }
}
