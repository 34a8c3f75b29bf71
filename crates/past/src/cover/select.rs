//! The choice: roots first, then splits where they help.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use quipu_protocol::UnixMs;

use super::forest::{Forest, Levels};
use super::item::{
    Choice, Cover, CoverAsk, CoverItem, Decision, Gap, Loss, Member, Shortfall, Span, SplitCause, Verdict,
};

/// Steps up from children that several chunks have, for one cover. Whoever is beyond counts as contained elsewhere.
const STEPS: usize = 2_000_000;
/// How often what was too large is tried again after a split that made room.
const PASSES: usize = 8;

pub(super) fn select(forest: &Forest, ask: &CoverAsk) -> Cover {
    let mut selection = Selection::new(forest, ask);
    if ask.budget > 0 {
        selection.take_for_question();
        selection.take_roots();
        selection.split();
    } else {
        let (roots, passed, _) = selection.reached(None);
        roots.into_iter().for_each(|root| selection.decide(root, Verdict::Dropped(Loss::OverBudget)));
        passed.into_iter().for_each(|(place, verdict)| selection.decide(place, verdict));
    }
    selection.finish()
}

/// What comes first: chunks that stand for turns that were left out before, the relevant, the new, the wide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    guards: bool,
    level: u8,
    end: UnixMs,
    width: u64,
    place: u32,
}

struct Selection<'a> {
    forest: &'a Forest,
    ask: &'a CoverAsk,
    /// Sorted, each once.
    turns: Vec<UnixMs>,
    /// How many of them were left out before.
    left_out: usize,
    levels: Levels,
    verdicts: Vec<Option<Verdict>>,
    is_member: Vec<bool>,
    /// Whether a member is below it.
    has_member: Vec<bool>,
    /// What list it was put into last.
    listed: Vec<u32>,
    list: u32,
    used: u64,
    steps: usize,
    /// What the cheapest chunk costs that may be served.
    cheapest: Option<u64>,
}

impl<'a> Selection<'a> {
    fn new(forest: &'a Forest, ask: &'a CoverAsk) -> Self {
        let mut turns = ask.turns.clone();
        turns.sort_unstable();
        turns.dedup();
        let left_out = ask.floor.map_or(0, |floor| turns.partition_point(|turn| *turn <= floor));
        let count = forest.items.len();
        let mut selection = Self {
            forest,
            ask,
            turns,
            left_out,
            levels: forest.levels(&ask.relevance),
            verdicts: vec![None; count],
            is_member: vec![false; count],
            has_member: vec![false; count],
            listed: vec![0; count],
            list: 0,
            used: 0,
            steps: 0,
            cheapest: None,
        };
        let costs = (0..count).filter(|at| selection.obstacle(*at).is_none() && !forest.is_drawn_in(*at));
        selection.cheapest = costs.map(|at| forest.items[at].cost).min();
        selection
    }

    fn item(&self, place: u32) -> &'a CoverItem {
        &self.forest.items[place as usize]
    }

    fn room(&self) -> u64 {
        self.ask.budget.saturating_sub(self.used)
    }

    fn decide(&mut self, place: u32, verdict: Verdict) {
        self.verdicts[place as usize] = Some(verdict);
    }

    /// Why a chunk cannot be served, whatever else is.
    fn obstacle(&self, at: usize) -> Option<(SplitCause, Loss)> {
        let item = &self.forest.items[at];
        if item.span.start > item.span.end {
            return Some((SplitCause::BadSpan, Loss::BadSpan));
        }
        if let Some(exclusion) = item.exclusion {
            return Some((SplitCause::Excluded(exclusion), Loss::Excluded(exclusion)));
        }
        let is_late = self.ask.boundary.is_some_and(|boundary| item.span.end > boundary);
        is_late.then_some((SplitCause::EndsAfterBoundary, Loss::EndsAfterBoundary))
    }

    /// Chunks that can stand in the place of one, or of the whole forest: its children, or theirs where one cannot be served.
    /// Also what is in the way on the way down, and whether nothing is missing.
    fn reached(&mut self, of: Option<u32>) -> (Vec<u32>, Vec<(u32, Verdict)>, bool) {
        self.list += 1;
        let (mut found, mut passed, mut is_whole) = (Vec::new(), Vec::new(), true);
        // Each with whether a chunk that several have is on the way to it.
        let mut open: Vec<(u32, bool)> = match of {
            None => self.forest.roots().map(|root| (root, false)).collect(),
            Some(place) => {
                is_whole = !self.forest.lacks_child[place as usize];
                self.forest.children[place as usize].iter().map(|child| (*child, false)).collect()
            }
        };
        open.reverse();
        while let Some((place, is_below_shared)) = open.pop() {
            let at = place as usize;
            let is_shared = is_below_shared || self.forest.owners(place).len() > 1;
            if self.listed[at] == self.list || self.is_member[at] {
                continue;
            }
            let obstacle = self.obstacle(at);
            let children = &self.forest.children[at];
            let is_in_the_way = obstacle.is_some() || self.has_member[at];
            if !is_in_the_way {
                self.listed[at] = self.list;
                found.push((place, is_shared));
                continue;
            }
            // Seen twice only where it is shared, and then its children are there already.
            self.listed[at] = self.list;
            let (cause, loss) = obstacle.unwrap_or((SplitCause::Question, Loss::Contained));
            if children.is_empty() {
                is_whole = false;
                passed.push((place, Verdict::Dropped(loss)));
            } else {
                is_whole &= !self.forest.lacks_child[at];
                passed.push((place, Verdict::Split(cause)));
                open.extend(children.iter().rev().map(|child| (*child, is_shared)));
            }
        }
        // What another one of them contains, or another member, is served by that one.
        let mut kept = Vec::with_capacity(found.len());
        for (place, is_shared) in found {
            if is_shared && self.is_contained(place, of) {
                passed.push((place, Verdict::Dropped(Loss::Contained)));
            } else {
                kept.push(place);
            }
        }
        (kept, passed, is_whole)
    }

    /// Whether a member, but not `without`, or one of the present list is above it.
    fn is_contained(&mut self, place: u32, without: Option<u32>) -> bool {
        let mut open = self.forest.owners(place).to_vec();
        let mut seen = std::collections::BTreeSet::new();
        while let Some(above) = open.pop() {
            if !seen.insert(above) || Some(above) == without {
                continue;
            }
            self.steps += 1;
            let at = above as usize;
            let is_listed =
                self.listed[at] == self.list && self.obstacle(at).is_none() && !self.has_member[at];
            if self.steps > STEPS || self.is_member[at] || is_listed {
                return true;
            }
            open.extend(self.forest.owners(above));
        }
        false
    }

    fn take(&mut self, place: u32, choice: Choice) {
        self.used += self.item(place).cost;
        self.is_member[place as usize] = true;
        self.decide(place, Verdict::Chosen(choice));
        let mut open = self.forest.owners(place).to_vec();
        while let Some(above) = open.pop() {
            if !std::mem::replace(&mut self.has_member[above as usize], true) {
                open.extend(self.forest.owners(above));
            }
        }
    }

    /// Whether turns that were left out before are in it.
    fn guards(&self, span: Span) -> bool {
        let first = self.turns.partition_point(|turn| *turn < span.start);
        first < self.left_out && self.turns[first] <= span.end
    }

    fn rank(&self, place: u32, level: u8) -> Rank {
        let span = self.item(place).span;
        Rank { guards: self.guards(span), level, end: span.end, width: span.width(), place }
    }

    /// The share of the budget that goes to relevant chunks one by one.
    fn take_for_question(&mut self) {
        let share = self.ask.budget / 100 * u64::from(self.ask.focus.min(100))
            + self.ask.budget % 100 * u64::from(self.ask.focus.min(100)) / 100;
        if share == 0 {
            return;
        }
        self.list += 1;
        // The most relevant first; then the narrow, the new, the first. Positive numbers are in the order of their bits.
        let key = |place: &u32| {
            let span = self.item(*place).span;
            (self.levels.values[*place as usize].to_bits(), Reverse(span.width()), span.end, Reverse(*place))
        };
        let mut heap: BinaryHeap<_> = self.levels.relevant.iter().map(key).collect();
        while let Some((_, _, _, Reverse(place))) = heap.pop() {
            if self.cheapest.is_none_or(|cheapest| cheapest > share - self.used) {
                break;
            }
            let cost = self.item(place).cost;
            let fits = self.used.checked_add(cost).is_some_and(|used| used <= share);
            let at = place as usize;
            if !fits || self.has_member[at] || self.obstacle(at).is_some() || self.is_contained(place, None) {
                continue;
            }
            // A tree that stands for turns that are left out stays whole.
            if !self.forest.owners(place).is_empty() && self.is_below_guard(place) {
                continue;
            }
            self.take(place, Choice::Question);
        }
    }

    fn is_below_guard(&mut self, place: u32) -> bool {
        let mut open = self.forest.owners(place).to_vec();
        let mut seen = std::collections::BTreeSet::new();
        while let Some(above) = open.pop() {
            self.steps += 1;
            if self.steps > STEPS || self.guards(self.item(above).span) {
                return true;
            }
            if seen.insert(above) {
                open.extend(self.forest.owners(above));
            }
        }
        false
    }

    /// The roots, or what stands in their place, as far as the budget goes; then parts of those that are too large.
    fn take_roots(&mut self) {
        let (roots, passed, _) = self.reached(None);
        passed.into_iter().for_each(|(place, verdict)| self.decide(place, verdict));
        let ranked = |selection: &Self, places: Vec<u32>| -> Vec<Rank> {
            let level = |place: u32| selection.levels.subtree[place as usize];
            places.into_iter().map(|place| selection.rank(place, level(place))).collect()
        };
        let mut heap = BinaryHeap::from(ranked(self, roots));
        let mut large = Vec::new();
        while let Some(rank) = heap.pop() {
            if self.fits(rank.place) {
                self.take(rank.place, Choice::ChildrenTooLarge);
            } else {
                large.push(rank);
            }
        }
        let mut heap = BinaryHeap::from(large);
        while let Some(rank) = heap.pop() {
            let place = rank.place;
            // What several chunks have comes more than once.
            if self.is_member[place as usize]
                || matches!(self.verdicts[place as usize], Some(Verdict::Split(_)))
            {
                continue;
            }
            if self.fits(place) {
                if self.has_member[place as usize] || self.is_below_another(place) {
                    self.decide(place, Verdict::Dropped(Loss::Contained));
                } else {
                    self.take(place, Choice::ChildrenTooLarge);
                }
                continue;
            }
            let has_room = self.cheapest.is_some_and(|cheapest| cheapest <= self.room());
            if self.forest.children[place as usize].is_empty() || !has_room {
                self.decide(place, Verdict::Dropped(Loss::OverBudget));
                continue;
            }
            self.decide(place, Verdict::Split(SplitCause::TooLarge));
            let (parts, passed, _) = self.reached(Some(place));
            passed.into_iter().for_each(|(place, verdict)| self.decide(place, verdict));
            heap.extend(ranked(self, parts));
        }
    }

    fn fits(&self, place: u32) -> bool {
        self.used.checked_add(self.item(place).cost).is_some_and(|used| used <= self.ask.budget)
    }

    fn is_below_another(&mut self, place: u32) -> bool {
        // No list is meant here, only members.
        self.list += 1;
        self.is_contained(place, None)
    }

    /// Puts children in the place of members while there is room.
    fn split(&mut self) {
        let members = (0..self.is_member.len()).filter(|at| self.is_member[*at]);
        let members: Vec<u32> = members.filter_map(|at| u32::try_from(at).ok()).collect();
        let mut heap = BinaryHeap::new();
        members.into_iter().for_each(|place| self.offer(place, &mut heap));
        for _ in 0..PASSES {
            let mut large = Vec::new();
            let mut has_saved = false;
            while let Some(rank) = heap.pop() {
                let place = rank.place;
                let (parts, passed, is_whole) = self.reached(Some(place));
                if parts.is_empty() || !is_whole || !self.keeps_turns(place, &parts) {
                    self.keep(place, Choice::ChildrenIncomplete);
                    continue;
                }
                let cost = parts.iter().try_fold(0_u64, |sum, part| sum.checked_add(self.item(*part).cost));
                let rest = self.used - self.item(place).cost;
                let cost =
                    cost.filter(|cost| rest.checked_add(*cost).is_some_and(|used| used <= self.ask.budget));
                let Some(cost) = cost else {
                    self.keep(place, Choice::ChildrenTooLarge);
                    large.push(rank);
                    continue;
                };
                has_saved |= cost < self.item(place).cost;
                let next = heap.peek();
                let cause = match next {
                    _ if rank.level > 0 => SplitCause::Relevance,
                    Some(next) if next.level == 0 && next.end == rank.end => SplitCause::Width,
                    _ => SplitCause::Recency,
                };
                self.is_member[place as usize] = false;
                self.used = rest;
                self.decide(place, Verdict::Split(cause));
                passed.into_iter().for_each(|(place, verdict)| self.decide(place, verdict));
                for part in parts {
                    self.take(part, Choice::ChildrenTooLarge);
                    self.offer(part, &mut heap);
                }
            }
            if !has_saved || large.is_empty() {
                break;
            }
            heap.extend(large);
        }
    }

    /// Says why a member stays; who was taken for the question was taken for that.
    fn keep(&mut self, place: u32, choice: Choice) {
        if self.verdicts[place as usize] != Some(Verdict::Chosen(Choice::Question)) {
            self.decide(place, Verdict::Chosen(choice));
        }
    }

    /// A member whose children could stand in its place.
    fn offer(&mut self, place: u32, heap: &mut BinaryHeap<Rank>) {
        if self.forest.children[place as usize].is_empty() {
            let is_leaf = !self.forest.lacks_child[place as usize];
            self.keep(place, if is_leaf { Choice::Leaf } else { Choice::ChildrenIncomplete });
            return;
        }
        let rank = self.rank(place, self.levels.below[place as usize]);
        heap.push(Rank { guards: false, ..rank });
    }

    /// Whether the parts cover each raw turn that the whole covers.
    fn keeps_turns(&self, whole: u32, parts: &[u32]) -> bool {
        let span = self.item(whole).span;
        let first = self.turns.partition_point(|turn| *turn < span.start);
        let turns = self.turns[first..].iter().take_while(|turn| **turn <= span.end);
        let mut spans: Vec<Span> = parts.iter().map(|part| self.item(*part).span).collect();
        spans.sort_unstable();
        are_covered(&spans, turns.copied()).all(|(_, is_covered)| is_covered)
    }

    fn finish(self) -> Cover {
        let forest = self.forest;
        let mut members: Vec<Member> = Vec::new();
        let mut decisions = Vec::new();
        let mut dropped = 0;
        for (at, item) in forest.items.iter().enumerate() {
            if self.is_member[at] {
                members.push(Member { id: item.id, span: item.span, cost: item.cost });
            }
            let verdict = match self.verdicts[at] {
                None if forest.is_drawn_in(at) => Some(Verdict::Dropped(Loss::Contained)),
                verdict => verdict,
            };
            dropped += usize::from(verdict == Some(Verdict::Dropped(Loss::OverBudget)));
            let level = self.levels.subtree[at];
            decisions.extend(verdict.map(|verdict| Decision { id: item.id, level, verdict }));
        }
        let spans: Vec<Span> = members.iter().map(|member| member.span).collect();
        let shortfall = match self.cheapest {
            _ if self.ask.budget == 0 => Some(Shortfall::NoBudget),
            Some(cheapest) if cheapest > self.ask.budget => Some(Shortfall::BelowOneChunk { cheapest }),
            _ if dropped > 0 => Some(Shortfall::Dropped { chunks: dropped }),
            _ => None,
        };
        Cover {
            used: self.used,
            budget: self.ask.budget,
            floor: self.floor(&spans),
            gaps: self.gaps(&spans),
            faults: forest.faults.clone(),
            shortfall,
            decisions,
            members,
        }
    }

    /// As far as each turn after the earlier floor is covered.
    fn floor(&self, spans: &[Span]) -> Option<UnixMs> {
        let turns = self.turns[self.left_out..].iter().copied();
        let turns = turns.take_while(|turn| self.ask.boundary.is_none_or(|boundary| *turn <= boundary));
        let covered = are_covered(spans, turns).take_while(|(_, is_covered)| *is_covered);
        covered.last().map(|(turn, _)| turn).or(self.ask.floor)
    }

    fn gaps(&self, spans: &[Span]) -> Vec<Gap> {
        let forest = self.forest;
        let Some(Span { start, end }) = forest.extent else { return Vec::new() };
        let end = self.ask.boundary.map_or(end, |boundary| boundary.min(end));
        let mut gaps = Vec::new();
        let count = |times: &[UnixMs], span: Span| {
            times.partition_point(|time| *time <= span.end) - times.partition_point(|time| *time < span.start)
        };
        let mut open = |span: Span| {
            if span.start <= span.end {
                let (turns, chunks) = (count(&self.turns, span), count(&forest.leaves, span));
                gaps.push(Gap { span, turns, chunks });
            }
        };
        let mut next = Some(start);
        for span in spans {
            let Some(from) = next else { break };
            if let Some(before) = span.start.checked_sub(1) {
                open(Span { start: from, end: before.min(end) });
            }
            next = span.end.checked_add(1).map(|after| after.max(from));
        }
        if let Some(from) = next {
            open(Span { start: from, end });
        }
        gaps
    }
}

/// Each time, and whether one of the spans contains it. Both are sorted.
fn are_covered(spans: &[Span], times: impl Iterator<Item = UnixMs>) -> impl Iterator<Item = (UnixMs, bool)> {
    let mut next = 0;
    let mut end: Option<UnixMs> = None;
    times.map(move |time| {
        while let Some(span) = spans.get(next).filter(|span| span.start <= time) {
            end = end.max(Some(span.end));
            next += 1;
        }
        (time, end.is_some_and(|end| time <= end))
    })
}
