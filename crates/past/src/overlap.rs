//! Which of many ranges overlaps another one, found without a look at each.

use quipu_protocol::UnixMs;

use crate::TimeRange;

/// Ranges with keys: the least key among those that overlap a range.
pub(crate) struct OverlapIndex<K> {
    /// The beginnings, sorted.
    starts: Vec<UnixMs>,
    /// A tree over them, in halves: the last end and the least key below. The first place is empty.
    nodes: Vec<Option<(UnixMs, K)>>,
    width: usize,
}

impl<K: Ord + Copy> OverlapIndex<K> {
    pub(crate) fn new(ranges: impl IntoIterator<Item = (TimeRange, K)>) -> Self {
        let mut ranges: Vec<(TimeRange, K)> = ranges.into_iter().collect();
        ranges.sort_unstable_by_key(|(range, key)| (*range, *key));
        let width = ranges.len().next_power_of_two();
        let mut nodes = vec![None; 2 * width];
        for (at, (range, key)) in ranges.iter().enumerate() {
            nodes[width + at] = Some((range.end(), *key));
        }
        for at in (1..width).rev() {
            nodes[at] = match (nodes[2 * at], nodes[2 * at + 1]) {
                (Some((one, a)), Some((other, b))) => Some((one.max(other), a.min(b))),
                (one, other) => one.or(other),
            };
        }
        Self { starts: ranges.iter().map(|(range, _)| range.start()).collect(), nodes, width }
    }

    /// The least key of those that overlap the range.
    pub(crate) fn least(&self, range: TimeRange) -> Option<K> {
        let begun = self.starts.partition_point(|start| *start < range.end());
        let mut best = None;
        self.look(1, 0, self.width, begun, range.start(), &mut best);
        best
    }

    fn look(&self, at: usize, first: usize, width: usize, begun: usize, start: UnixMs, best: &mut Option<K>) {
        let Some((end, key)) = self.nodes.get(at).copied().flatten() else { return };
        if first >= begun || end <= start || best.is_some_and(|best| best <= key) {
            return;
        }
        if width == 1 {
            *best = Some(key);
            return;
        }
        let half = width / 2;
        let key_of = |at: usize| self.nodes.get(at).copied().flatten().map(|(_, key)| key);
        let (left, right) = ((2 * at, first), (2 * at + 1, first + half));
        // The half with the lower key first: often the other one need not be looked at.
        let is_right_first = match (key_of(left.0), key_of(right.0)) {
            (Some(left), Some(right)) => right < left,
            _ => false,
        };
        for (at, first) in if is_right_first { [right, left] } else { [left, right] } {
            self.look(at, first, half, begun, start, best);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn many_at_one_time_are_not_all_looked_at() {
        // A look at each would be 40,000,000,000 of them.
        let ranges = (0..200_000_i64).map(|nth| (TimeRange::new(nth % 7, 9 + nth % 5).unwrap(), nth));
        let index = OverlapIndex::new(ranges.clone());
        assert!(ranges.map(|(range, _)| index.least(range)).all(|least| least == Some(0)));
    }

    proptest! {
        #[test]
        fn least_key_is_that_of_a_look_at_all(
            ranges in prop::collection::vec((0..100_i64, 1..40_i64), 0..40),
            asked in (0..120_i64, 1..40_i64),
        ) {
            let range = |(start, width): (i64, i64)| TimeRange::new(start, start + width).unwrap();
            let ranges: Vec<(TimeRange, usize)> =
                ranges.into_iter().map(range).enumerate().map(|(at, range)| (range, at * 7 % 41)).collect();
            let asked = range(asked);
            let all = ranges.iter().filter(|(range, _)| range.overlap(asked) > 0).map(|(_, key)| *key).min();
            prop_assert_eq!(OverlapIndex::new(ranges).least(asked), all);
        }
    }
}
