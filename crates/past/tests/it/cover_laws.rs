//! Laws of every cover, over random forests, sound and broken.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use quipu_past::cover::{
    Cover, CoverAsk, CoverItem, Exclusion, Fault, Forest, Gap, Shortfall, Span, Verdict, cover,
};
use quipu_protocol::NodeId;

fn id(n: usize) -> NodeId {
    let mut bytes = [0; 32];
    let [.., last] = n.to_be_bytes();
    // Not in the order of time.
    bytes[0] = last.wrapping_mul(37);
    bytes[1] = last;
    NodeId(bytes)
}

/// Chunks with any children: missing, twice owned, in circles, twice there, with spans that end before they begin.
fn broken() -> impl Strategy<Value = Vec<CoverItem>> {
    let exclusion = prop_oneof![
        6 => Just(None),
        1 => Just(Some(Exclusion::Retracted)),
        1 => Just(Some(Exclusion::Superseded)),
    ];
    let one =
        (0..32_usize, 0..200_i64, -3..60_i64, 0..30_u64, exclusion, prop::collection::vec(0..36_usize, 0..4));
    prop::collection::vec(one, 0..40).prop_map(|all| {
        let item =
            |(n, start, width, cost, exclusion, children): (usize, i64, i64, u64, _, Vec<usize>)| CoverItem {
                id: id(n),
                span: Span { start, end: start + width },
                cost,
                exclusion,
                children: children.into_iter().map(id).collect(),
            };
        all.into_iter().map(item).collect()
    })
}

/// A sound hierarchy over leaves one after the other, with pauses between some, of two to four children each.
fn sound() -> impl Strategy<Value = Vec<CoverItem>> {
    let leaf = (0..4_i64, 1..6_i64, 1..20_u64);
    (prop::collection::vec(leaf, 1..40), 2..5_usize, 0..4_usize, 1..40_u64).prop_map(
        |(leaves, arity, levels, cost)| {
            let mut items = Vec::new();
            let mut at = 0;
            for (pause, width, cost) in leaves {
                at += pause;
                items.push(CoverItem {
                    id: id(items.len()),
                    span: Span { start: at, end: at + width - 1 },
                    cost,
                    exclusion: None,
                    children: vec![],
                });
                at += width;
            }
            let mut level = 0..items.len();
            for _ in 0..levels {
                let first = items.len();
                for start in level.clone().step_by(arity) {
                    let children = &items[start..(start + arity).min(level.end)];
                    let span =
                        Span { start: children[0].span.start, end: children[children.len() - 1].span.end };
                    let children = children.iter().map(|child| child.id).collect();
                    items.push(CoverItem { id: id(items.len()), span, cost, exclusion: None, children });
                }
                level = first..items.len();
            }
            items
        },
    )
}

fn forests() -> impl Strategy<Value = Vec<CoverItem>> {
    prop_oneof![broken(), sound()]
}

fn asks() -> impl Strategy<Value = CoverAsk> {
    let relevance = prop::collection::vec((0..40_usize, -1.0..5.0_f64), 0..20);
    (
        0..300_u64,
        prop::option::of(-5..260_i64),
        prop::option::of(-5..260_i64),
        prop::collection::vec(-5..260_i64, 0..30),
        relevance,
        prop_oneof![3 => Just(0_u8), 1 => 1..=120_u8],
    )
        .prop_map(|(budget, boundary, floor, turns, relevance, focus)| {
            let relevance = relevance.into_iter().map(|(n, value)| (id(n), value)).collect();
            CoverAsk { budget, boundary, floor, turns, relevance, focus }
        })
}

/// The chunks that count: of several with one id, the first.
fn kept(items: &[CoverItem]) -> BTreeMap<NodeId, CoverItem> {
    let mut sorted = items.to_vec();
    sorted.sort_by(|a, b| (a.span, a.id).cmp(&(b.span, b.id)).then_with(|| a.cmp(b)));
    let mut kept = BTreeMap::new();
    for item in sorted {
        kept.entry(item.id).or_insert(item);
    }
    kept
}

/// Everything that a chunk contains, however deep.
fn contained(items: &BTreeMap<NodeId, CoverItem>, of: NodeId) -> BTreeSet<NodeId> {
    let mut open = items[&of].children.clone();
    let mut seen = BTreeSet::new();
    while let Some(next) = open.pop() {
        if let Some(item) = items.get(&next).filter(|_| seen.insert(next)) {
            open.extend(&item.children);
        }
    }
    seen
}

fn is_covered(cover: &Cover, at: i64) -> bool {
    cover.members.iter().any(|member| member.span.contains(at))
}

fn check(items: &[CoverItem], ask: &CoverAsk) -> Result<Cover, TestCaseError> {
    let found = cover(items.to_vec(), ask);
    let all = kept(items);
    let ids: BTreeSet<NodeId> = found.members.iter().map(|member| member.id).collect();
    // Within the budget.
    prop_assert_eq!(found.used, found.members.iter().map(|member| member.cost).sum::<u64>());
    prop_assert!(found.used <= ask.budget);
    prop_assert_eq!(ids.len(), found.members.len());
    for member in &found.members {
        let item = &all[&member.id];
        prop_assert_eq!((item.span, item.cost, item.exclusion), (member.span, member.cost, None));
        prop_assert!(member.span.start <= member.span.end);
        prop_assert!(ask.boundary.is_none_or(|boundary| member.span.end <= boundary));
        // None inside another.
        let below = contained(&all, member.id);
        prop_assert!(below.iter().all(|below| *below == member.id || !ids.contains(below)));
    }
    prop_assert!(found.members.is_sorted_by_key(|member| (member.span, member.id)));
    // No gap that is not reported, and none that is not there.
    let valid: Vec<Span> = all.values().map(|item| item.span).filter(|span| span.start <= span.end).collect();
    if let (Some(first), Some(last)) =
        (valid.iter().map(|span| span.start).min(), valid.iter().map(|span| span.end).max())
    {
        for at in first..=ask.boundary.map_or(last, |boundary| boundary.min(last)) {
            let in_gap = found.gaps.iter().filter(|gap| gap.span.contains(at)).count();
            prop_assert_eq!(in_gap, usize::from(!is_covered(&found, at)), "at {}", at);
        }
    }
    let turns: BTreeSet<i64> = ask.turns.iter().copied().collect();
    for Gap { span, turns: count, .. } in &found.gaps {
        prop_assert_eq!(turns.range(span.start..=span.end).count(), *count);
    }
    // The floor never moves back, and only what is served lets a turn be left out.
    prop_assert!(found.floor >= ask.floor);
    for turn in &turns {
        let is_new = Some(*turn) > ask.floor && Some(*turn) <= found.floor;
        prop_assert!(!is_new || is_covered(&found, *turn));
        prop_assert!(!found.leaves_out(*turn) || is_covered(&found, *turn) && Some(*turn) <= found.floor);
    }
    // Each chunk that is served is explained, and who is at the top is, too.
    let chosen: BTreeSet<NodeId> = found
        .decisions
        .iter()
        .filter(|decision| matches!(decision.verdict, Verdict::Chosen(_)))
        .map(|decision| decision.id)
        .collect();
    prop_assert_eq!(&chosen, &ids);
    let decided: BTreeSet<NodeId> = found.decisions.iter().map(|decision| decision.id).collect();
    let owned: BTreeSet<NodeId> = all.values().flat_map(|item| item.children.iter().copied()).collect();
    prop_assert!(all.keys().all(|id| owned.contains(id) || decided.contains(id)));
    // What is wrong with children is said.
    for item in all.values() {
        for child in item.children.iter().filter(|child| !all.contains_key(child)) {
            let fault = Fault::MissingChild { id: item.id, child: *child };
            prop_assert!(found.faults.contains(&fault));
        }
        let is_circle = contained(&all, item.id).contains(&item.id);
        let in_cycle = found
            .faults
            .iter()
            .any(|fault| matches!(fault, Fault::Cycle { of, .. } if of.contains(&item.id)));
        prop_assert_eq!(is_circle, in_cycle);
    }
    prop_assert_eq!(found.shortfall == Some(Shortfall::NoBudget), ask.budget == 0);
    Ok(found)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn covers_keep_the_laws(items in forests(), ask in asks()) {
        check(&items, &ask)?;
    }

    #[test]
    fn order_of_the_input_changes_no_byte(
        (items, shuffled) in forests().prop_flat_map(|items| (Just(items.clone()), Just(items).prop_shuffle())),
        ask in asks(),
    ) {
        let bytes = |items, ask: &CoverAsk| serde_json::to_string(&cover(items, ask)).unwrap();
        let mut other = ask.clone();
        other.turns.reverse();
        other.relevance.reverse();
        prop_assert_eq!(bytes(items, &ask), bytes(shuffled, &other));
    }

    #[test]
    fn floor_grows_over_many_turns(items in forests(), asks in prop::collection::vec(asks(), 1..8)) {
        let mut floor = None;
        for ask in asks {
            let found = check(&items, &CoverAsk { floor, ..ask })?;
            prop_assert!(found.floor >= floor);
            floor = found.floor;
        }
    }

    #[test]
    fn parts_below_chunks_are_chunks_as_all_others(
        items in sound(), ask in asks(), at in 0..40_usize, costs in prop::collection::vec(1..20_u64, 1..6),
    ) {
        let leaf = &items[at % items.len()];
        prop_assume!(leaf.children.is_empty());
        let part = |(n, cost): (usize, &u64)| {
            CoverItem { id: id(200 + n), span: leaf.span, cost: *cost, exclusion: None, children: vec![] }
        };
        let parts: Vec<CoverItem> = costs.iter().enumerate().map(part).collect();
        let mut all = items.clone();
        all[at % items.len()].children = parts.iter().map(|part| part.id).collect();
        all.extend(parts.clone());
        let forest = Forest::new(items.clone()).with_parts(vec![(leaf.id, parts)]);
        prop_assert_eq!(forest.cover(&ask), check(&all, &ask)?);
    }

    #[test]
    fn sound_forest_is_served_without_a_hole(items in sound(), ask in asks()) {
        let all = kept(&items);
        let owned: BTreeSet<NodeId> = items.iter().flat_map(|item| item.children.iter().copied()).collect();
        let roots: u64 = all.values().filter(|item| !owned.contains(&item.id)).map(|item| item.cost).sum();
        let ask = CoverAsk { budget: roots + ask.budget, boundary: None, focus: 0, ..ask };
        let found = check(&items, &ask)?;
        prop_assert_eq!(&found.faults, &vec![]);
        prop_assert!(found.gaps.iter().all(|gap| gap.chunks == 0), "{:?}", found.gaps);
        prop_assert!(ask.budget == 0 || found.shortfall.is_none());
    }
}

/// Long chains, circles and children of many do not take long.
#[test]
fn cover_of_hostile_shapes_ends() {
    let count = 20_000_usize;
    let wide = |n: usize| {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&(n as u64).to_be_bytes());
        NodeId(bytes)
    };
    let item = |n: usize, children: Vec<usize>| CoverItem {
        id: wide(n),
        span: Span { start: n as i64, end: count as i64 },
        cost: 1,
        exclusion: n.is_multiple_of(3).then_some(Exclusion::Retracted),
        children: children.into_iter().map(wide).collect(),
    };
    let chain = (0..count).map(|n| item(n, vec![n + 1])).collect::<Vec<_>>();
    let circles = (0..count).map(|n| item(n, vec![n ^ 1])).collect();
    let ladder = (0..count).map(|n| item(n, vec![n + 1, n + 2])).collect();
    let shared = (0..count).map(|n| item(n, if n < 100 { (100..300).collect() } else { vec![] })).collect();
    for items in [chain, circles, ladder, shared] {
        for budget in [0, 1, 50, 1_000_000] {
            let ask = CoverAsk { budget, turns: (0..1_000).collect(), ..CoverAsk::default() };
            assert!(cover(Vec::clone(&items), &ask).used <= budget);
        }
    }
}
