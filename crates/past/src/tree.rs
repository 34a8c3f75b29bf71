//! Which chunks have one parent: groups of neighbours in time, cut where the calendar and the content say, never by counting.

use std::ops::Range;

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

/// Groups of [`FEWEST`] to [`MOST`] neighbours each; none where there are fewer. The items are sorted by span and work. A cut
/// stands where the highest unit of the calendar changes, and among equals where the content has the highest hash, so another item
/// moves the cuts near it at most.
pub(crate) fn groups(items: &[TreeItem]) -> Vec<Range<usize>> {
    if items.len() < FEWEST {
        return Vec::new();
    }
    let ranks: Vec<(u8, WorkId)> = items
        .iter()
        .enumerate()
        .map(|(at, item)| match at.checked_sub(1).and_then(|before| items.get(before)) {
            Some(before) => (calendar_rank(before.span.start(), item.span.start()), item.work),
            None => (0, item.work),
        })
        .collect();
    let mut groups = Vec::new();
    let mut open = Vec::from([Range { start: 0, end: items.len() }]);
    while let Some(range) = open.pop() {
        if range.len() <= MOST {
            groups.push(range);
            continue;
        }
        let cuts = range.start + FEWEST..=range.end - FEWEST;
        let Some(cut) = cuts.max_by_key(|at| ranks[*at]) else { continue };
        // The later half first, so that the earlier one is taken first.
        open.push(cut..range.end);
        open.push(range.start..cut);
    }
    groups
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
