//! Which lines of one text are which of another. Of long texts that differ in few lines, only those few are looked at.

use std::ops::Range;

/// For each line of a newer text the one of an older text that it is.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Alignment {
    /// Lines that both begin with.
    prefix: usize,
    /// Of the lines of the newer text between: those of the older one, `None` for one that was added.
    middle: Vec<Option<usize>>,
    /// Lines that both end with.
    suffix: usize,
    /// Lines of the older text.
    old: usize,
}

impl Alignment {
    /// Of all lines of a newer text, to an older one of so many lines.
    pub(super) fn new(mut found: Vec<Option<usize>>, old: usize) -> Self {
        let count = found.len();
        let prefix = found.iter().enumerate().take_while(|(at, place)| **place == Some(*at)).count();
        let rest = found[prefix..].iter().rev().enumerate();
        let suffix =
            rest.take_while(|(back, place)| place.is_some_and(|place| place + back + 1 == old)).count();
        found.truncate(count - suffix);
        found.drain(..prefix);
        Self { prefix, middle: found, suffix, old }
    }

    /// Of two texts that begin with the same `prefix` lines and end with the same `suffix` ones: what stands between is aligned
    /// by itself, from 0.
    pub(super) fn between(prefix: usize, middle: &Self, suffix: usize) -> Self {
        let all = 0..middle.count();
        let inner = all.map(|line| middle.get(line).map(|place| place + prefix)).collect();
        Self { prefix, middle: inner, suffix, old: prefix + middle.old + suffix }
    }

    /// Lines of the newer text.
    fn count(&self) -> usize {
        self.prefix + self.middle.len() + self.suffix
    }

    /// Which line of the older text it is.
    pub(super) fn get(&self, line: usize) -> Option<usize> {
        match line.checked_sub(self.prefix) {
            None => Some(line),
            Some(at) => match at.checked_sub(self.middle.len()) {
                None => self.middle[at],
                Some(behind) if behind < self.suffix => Some(self.old - self.suffix + behind),
                Some(_) => None,
            },
        }
    }

    /// Lines that stand in both.
    pub(super) fn kept(&self) -> usize {
        self.prefix + self.middle.iter().flatten().count() + self.suffix
    }

    /// The lines of the older text that are not found again.
    pub(super) fn removed(&self) -> RemovedLines {
        let from = self.prefix;
        let mut lines = vec![true; (self.old - self.suffix).saturating_sub(from)];
        for place in self.middle.iter().flatten() {
            if let Some(removed) = place.checked_sub(from).and_then(|at| lines.get_mut(at)) {
                *removed = false;
            }
        }
        RemovedLines { from, lines }
    }
}

/// Lines of an older text that do not stand in a newer one.
#[derive(Debug)]
pub(super) struct RemovedLines {
    /// Those before are kept, as are those behind the last.
    from: usize,
    lines: Vec<bool>,
}

impl RemovedLines {
    fn holds(&self, line: usize) -> bool {
        line.checked_sub(self.from).and_then(|at| self.lines.get(at)).copied().unwrap_or(false)
    }
}

/// Lines of a text among which others are looked for.
#[derive(Clone, Copy)]
pub(super) enum Sources<'a> {
    All,
    Removed(&'a RemovedLines),
    Kept(&'a RemovedLines),
}

impl Sources<'_> {
    /// Whether a line is one of them.
    pub(super) fn holds(&self, line: usize) -> bool {
        match self {
            Self::All => true,
            Self::Removed(removed) => removed.holds(line),
            Self::Kept(removed) => !removed.holds(line),
        }
    }

    /// Where they are, in a text of so many lines.
    pub(super) fn range(&self, count: usize) -> Range<usize> {
        match self {
            Self::All | Self::Kept(_) => 0..count,
            Self::Removed(removed) => {
                removed.from.min(count)..(removed.from + removed.lines.len()).min(count)
            }
        }
    }
}

/// Lines of a state one after the other, and the lines of the file in question that they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LineRun {
    line: usize,
    of: usize,
    count: usize,
}

/// Lines of a state, and which lines of the file in question they are.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LineRuns(Vec<LineRun>);

impl LineRuns {
    /// All lines of the file in question.
    pub(super) fn all(count: usize) -> Self {
        let mut all = Self::default();
        all.push(0, 0, count);
        all
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn push(&mut self, line: usize, of: usize, count: usize) {
        if count == 0 {
            return;
        }
        match self.0.last_mut() {
            Some(last) if last.line + last.count == line && last.of + last.count == of => last.count += count,
            _ => self.0.push(LineRun { line, of, count }),
        }
    }

    pub(super) fn extend(&mut self, others: Self) {
        for LineRun { line, of, count } in others.0 {
            self.push(line, of, count);
        }
    }

    /// The lines of the file in question.
    pub(super) fn places(&self) -> impl Iterator<Item = Range<usize>> {
        self.0.iter().map(|run| run.of..run.of + run.count)
    }

    /// Each line by itself.
    pub(super) fn pairs(&self) -> Vec<(usize, usize)> {
        let each = |run: &LineRun| {
            let (line, of) = (run.line, run.of);
            (0..run.count).map(move |n| (line + n, of + n))
        };
        self.0.iter().flat_map(each).collect()
    }

    /// The same lines in an older text, and those that do not stand there.
    pub(super) fn follow(&self, found: &Alignment) -> (Self, Vec<(usize, usize)>) {
        let (mut same, mut rest) = (Self::default(), Vec::new());
        let behind = found.prefix + found.middle.len();
        for LineRun { line, of, count } in &self.0 {
            let (from, end) = (*line, line + count);
            let place = |line: usize| of + (line - from);
            let before = end.min(found.prefix).max(from);
            same.push(from, *of, before - from);
            for line in before..end.min(behind).max(before) {
                match found.get(line) {
                    Some(older) => same.push(older, place(line), 1),
                    None => rest.push((line, place(line))),
                }
            }
            let begin = from.max(behind);
            if begin < end {
                match found.get(begin) {
                    Some(older) => same.push(older, place(begin), end - begin),
                    None => rest.extend((begin..end).map(|line| (line, place(line)))),
                }
            }
        }
        (same, rest)
    }
}

impl From<Vec<(usize, usize)>> for LineRuns {
    fn from(pairs: Vec<(usize, usize)>) -> Self {
        let mut runs = Self::default();
        pairs.into_iter().for_each(|(line, of)| runs.push(line, of, 1));
        runs
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// What is known of runs and of both ends is what is known of each line.
        #[test]
        fn alignment_says_of_runs_what_it_says_of_lines(
            steps in proptest::collection::vec((0_usize..3, 1_usize..6), 0..12),
            open in proptest::collection::vec(any::<bool>(), 60),
        ) {
            let (mut found, mut old) = (Vec::new(), 0);
            for (kind, count) in steps {
                match kind {
                    0 => found.extend((0..count).map(|n| Some(old + n))),
                    1 => found.extend((0..count).map(|_| None)),
                    _ => {}
                }
                old += if kind == 1 { 0 } else { count };
            }
            let alignment = Alignment::new(found.clone(), old);
            let all: Vec<Option<usize>> = (0..found.len()).map(|line| alignment.get(line)).collect();
            prop_assert_eq!(&all, &found);
            prop_assert_eq!(alignment.get(found.len()), None);
            prop_assert_eq!(alignment.kept(), found.iter().flatten().count());
            let removed = alignment.removed();
            let is_removed: Vec<bool> = (0..old).map(|line| !found.contains(&Some(line))).collect();
            let sources = Sources::Removed(&removed);
            prop_assert_eq!((0..old).map(|line| sources.holds(line)).collect::<Vec<_>>(), is_removed);
            prop_assert!((0..old).all(|line| !sources.holds(line) || sources.range(old).contains(&line)));
            let pairs: Vec<(usize, usize)> =
                (0..found.len()).filter(|line| open[*line]).map(|line| (line, line * 2 / 3 + 7)).collect();
            let runs = LineRuns::from(pairs.clone());
            prop_assert_eq!(&runs.pairs(), &pairs);
            let (same, rest) = runs.follow(&alignment);
            let of_line = |(line, of): &(usize, usize)| found[*line].map(|older| (older, *of));
            prop_assert_eq!(same.pairs(), pairs.iter().filter_map(of_line).collect::<Vec<_>>());
            let left: Vec<_> = pairs.into_iter().filter(|(line, _)| found[*line].is_none()).collect();
            prop_assert_eq!(rest, left);
            let (before, behind) = (found.len() % 5, old % 4);
            let mut whole: Vec<Option<usize>> = (0..before).map(Some).collect();
            whole.extend(found.iter().map(|place| place.map(|place| place + before)));
            whole.extend((0..behind).map(|n| Some(before + old + n)));
            let wanted = Alignment::new(whole.clone(), before + old + behind);
            let between = Alignment::between(before, &alignment, behind);
            prop_assert!((0..whole.len() + 1).all(|line| between.get(line) == wanted.get(line)));
            prop_assert_eq!(between.kept(), wanted.kept());
        }
    }
}
