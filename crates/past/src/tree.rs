//! Which chunks have one parent: groups of neighbours in time, cut where the calendar and the content say, never by counting.

use std::ops::Range;
use std::sync::Arc;

use quipu_protocol::UnixMs;

use crate::{TimeRange, WorkId};

/// Children of a parent at least, where there are as many.
pub const FEWEST: usize = 4;
/// Children of a parent at most.
pub const MOST: usize = 16;

/// A chunk that is to have a parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TreeItem {
    pub(crate) span: TimeRange,
    pub(crate) work: WorkId,
    /// Its place in the plan.
    pub(crate) at: usize,
}

/// Groups of [`FEWEST`] to [`MOST`] neighbours each; none where there are fewer. A cut stands where the highest unit of the calendar
/// changes, and among equals where the content has the highest hash, so another item moves the cuts near it at most. What does not
/// change is not looked at again.
#[derive(Debug, Default)]
pub(crate) struct Grouping {
    ranks: Vec<(u8, WorkId)>,
    root: Option<Arc<GroupNode>>,
}

/// Neighbours that are one group, or are cut in two.
#[derive(Debug)]
struct GroupNode {
    count: usize,
    halves: Option<[Arc<GroupNode>; 2]>,
}

/// Items that are the same as before at the beginning and at the end, and how many there were and are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SameItems {
    pub(crate) before: usize,
    pub(crate) after: usize,
    pub(crate) were: usize,
    pub(crate) are: usize,
}

impl SameItems {
    /// Where a range of items was, if they are all the same.
    pub(crate) fn was(&self, range: &Range<usize>) -> Option<Range<usize>> {
        if range.end <= self.before {
            return Some(range.clone());
        }
        let changed = self.are - self.after;
        (range.start >= changed).then(|| {
            let moved = |at: usize| at - changed + (self.were - self.after);
            moved(range.start)..moved(range.end)
        })
    }
}

impl Grouping {
    /// Groups the items as they are now, sorted by span and work.
    pub(crate) fn update(&mut self, items: &[TreeItem], same: SameItems) {
        let rank = |at: usize| match at.checked_sub(1).and_then(|before| items.get(before)) {
            Some(before) => (calendar_rank(before.span.start(), items[at].span.start()), items[at].work),
            None => (0, items[at].work),
        };
        // The first that is the same behind a change stands behind another one.
        let changed = same.before..(same.are - same.after + 1).min(same.are);
        let was = same.before..(same.were - same.after + 1).min(same.were);
        self.ranks.splice(was, changed.map(rank));
        let old = self.root.take();
        if items.len() >= FEWEST {
            self.root = Some(self.node(0..items.len(), old.as_ref().map(|old| (old, 0)), same));
        }
    }

    fn node(
        &self,
        range: Range<usize>,
        old: Option<(&Arc<GroupNode>, usize)>,
        same: SameItems,
    ) -> Arc<GroupNode> {
        if let Some((old, start)) = old
            && same.was(&range) == Some(start..start + old.count)
        {
            return Arc::clone(old);
        }
        let count = range.len();
        let cuts = range.start + FEWEST..(range.end + 1).saturating_sub(FEWEST);
        let cut = (count > MOST).then(|| cuts.max_by_key(|at| self.ranks[*at])).flatten();
        let halves = cut.map(|cut| {
            let [first, second] = match old {
                Some((old, start)) => match &old.halves {
                    Some([first, second]) => [Some((first, start)), Some((second, start + first.count))],
                    None => [None, None],
                },
                None => [None, None],
            };
            [self.node(range.start..cut, first, same), self.node(cut..range.end, second, same)]
        });
        Arc::new(GroupNode { count, halves })
    }

    /// The groups, in their order.
    pub(crate) fn groups(&self) -> Vec<Range<usize>> {
        let mut groups = Vec::new();
        let mut open: Vec<(&Arc<GroupNode>, usize)> = self.root.iter().map(|root| (root, 0)).collect();
        while let Some((node, start)) = open.pop() {
            match &node.halves {
                None => groups.push(start..start + node.count),
                // The later half first, so that the earlier one is taken first.
                Some([first, second]) => open.extend([(second, start + first.count), (first, start)]),
            }
        }
        groups
    }
}

/// The highest unit of the calendar, in UTC, that is another one: 4 a year, 3 a month, 2 a day, 1 an hour, 0 none.
fn calendar_rank(before: UnixMs, next: UnixMs) -> u8 {
    let hour = |at: UnixMs| at.div_euclid(3_600_000);
    if hour(before) == hour(next) {
        return 0;
    }
    let date = |at: UnixMs| {
        let at = jiff::Timestamp::from_millisecond(at).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        jiff::tz::TimeZone::UTC.to_datetime(at).date()
    };
    let (before, next) = (date(before), date(next));
    match (before.year() == next.year(), before.month() == next.month(), before == next) {
        (false, _, _) => 4,
        (true, false, _) => 3,
        (true, true, false) => 2,
        (true, true, true) => 1,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use quipu_dag::sha256;

    use super::*;

    /// The groups of items that are grouped once.
    fn groups(items: &[TreeItem]) -> Vec<Range<usize>> {
        let mut grouping = Grouping::default();
        grouping.update(items, SameItems { before: 0, after: 0, were: 0, are: items.len() });
        grouping.groups()
    }

    fn items(starts: &[UnixMs]) -> Vec<TreeItem> {
        let mut starts = starts.to_vec();
        starts.sort_unstable();
        starts.dedup();
        let item = |(at, start): (usize, &UnixMs)| TreeItem {
            span: TimeRange::new(*start, *start + 1).unwrap(),
            work: WorkId(sha256(&start.to_le_bytes())),
            at,
        };
        starts.iter().enumerate().map(item).collect()
    }

    #[test]
    fn groups_end_where_the_year_does() {
        let year = 31_536_000_000;
        let starts: Vec<UnixMs> =
            (0..10).chain((0..10).map(|at| year * 3 + at)).map(|at| 1_700_000_000_000 + at).collect();
        assert_eq!(groups(&items(&starts)), [0..10, 10..20]);
    }

    proptest! {
        #[test]
        fn groups_have_four_to_sixteen_neighbours(starts in prop::collection::vec(0..9_000_000_000_i64, 0..400)) {
            let items = items(&starts);
            let groups = groups(&items);
            prop_assert_eq!(groups.is_empty(), items.len() < FEWEST);
            let mut next = 0;
            for group in &groups {
                prop_assert_eq!(group.start, next);
                prop_assert!((FEWEST..=MOST).contains(&group.len()), "{:?}", group);
                next = group.end;
            }
            prop_assert!(groups.is_empty() || next == items.len());
        }

        #[test]
        fn groups_that_are_updated_are_those_of_a_look_at_all(
            steps in prop::collection::vec((prop::collection::vec(0..400_000_000_i64, 0..60), 0..30_usize), 1..8),
        ) {
            let (mut grouping, mut before, mut starts) = (Grouping::default(), Vec::new(), Vec::new());
            for (added, removed) in steps {
                starts.drain(..removed.min(starts.len()));
                // Some come at the end, as most do, others between.
                starts.extend(added);
                let after = items(&starts);
                let same = |(one, other): &(&TreeItem, &TreeItem)| (one.span, one.work) == (other.span, other.work);
                let first = before.iter().zip(&after).take_while(same).count();
                let rest = before.iter().rev().zip(after.iter().rev()).take_while(same).count();
                let rest = rest.min(before.len().min(after.len()) - first);
                let same = SameItems { before: first, after: rest, were: before.len(), are: after.len() };
                grouping.update(&after, same);
                prop_assert_eq!(grouping.groups(), groups(&after));
                before = after;
            }
        }

        #[test]
        fn group_moves_only_near_a_late_item(
            starts in prop::collection::vec(0..90_000_000_000_i64, 200..600),
            late in 0..90_000_000_000_i64,
        ) {
            let before = items(&starts);
            let with_late: Vec<UnixMs> = starts.iter().copied().chain([late]).collect();
            let after = items(&with_late);
            let contents = |items: &[TreeItem]| -> Vec<Vec<UnixMs>> {
                let starts = |range: Range<usize>| items[range].iter().map(|item| item.span.start()).collect();
                groups(items).into_iter().map(starts).collect()
            };
            let (before, after) = (contents(&before), contents(&after));
            let gone = before.iter().filter(|group| !after.contains(group)).count();
            // Of twenty groups and more, the one that the item falls in, and now and then some beside it.
            prop_assert!(gone <= before.len() / 2, "{gone} of {}", before.len());
        }
    }
}
