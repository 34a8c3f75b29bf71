//! The past as it is planned and built: by content and calendar, whatever came first.

use std::collections::HashSet;

use proptest::prelude::*;
use quipu_past::{
    ChildSummary, ExtractiveSummary, FEWEST, HARD_BYTES, IDLE, MOST, MemoryChunk, PastError, PastId,
    PastPlan, PastScope, ReviewState, SOFT_BYTES, SOFT_NODES, SourceText, Summariser, SummaryMethod,
    build_past, segments_of, set_review_state,
};
use quipu_protocol::{Message, NodeId, UnixMs};

use crate::model::Script;
use crate::support::*;

/// One session a day with two stretches, of so many days.
fn diary(days: i64) -> Vec<SaidSession> {
    (0..days)
        .map(|day| {
            let at = EPOCH + day * DAY;
            let mut said = turn(&format!("task{day}"), at);
            said.extend(turn(&format!("more{day}"), at + 2 * HOUR));
            (format!("s{day}"), said)
        })
        .collect()
}

async fn cut(world: &World) -> Vec<Vec<NodeId>> {
    let row = world.scope.sessions(&*world.store).await.unwrap().remove(0);
    let found = segments_of(&*world.store, &row, NOW).await.unwrap();
    found.segments.into_iter().map(|segment| segment.nodes).collect()
}

#[tokio::test]
async fn segments_end_at_pauses_days_and_sizes() {
    let world = World::new();
    // 22:13:20: a pause, then midnight without one, then much text.
    let mut said = turn("one", EPOCH);
    let second = EPOCH + 1_000 + IDLE;
    said.extend(turn("two", second));
    said.extend((0..8).flat_map(|nth| turn(&format!("x{nth}"), second + (nth + 1) * 10 * MINUTE)));
    let long = "word ".repeat(SOFT_BYTES / 5);
    said.push(asked(&long, EPOCH + 120 * MINUTE));
    said.extend(turn("after", EPOCH + 121 * MINUTE));
    let nodes = world.say("s", &said).await;
    let ends: Vec<usize> = cut(&world)
        .await
        .iter()
        .scan(0, |sum, some| {
            *sum += some.len();
            Some(*sum)
        })
        .collect();
    // The first request of the new day is x7.
    assert_eq!((ends, nodes.len()), (vec![2, 18, 21, 23], 23));
}

#[tokio::test]
async fn call_and_result_are_never_apart() {
    let world = World::new();
    let huge = "x".repeat(HARD_BYTES + 1);
    let said = vec![
        asked("Run it.", EPOCH),
        called("c", EPOCH + 1),
        // Hours later, of a size of its own, with the same id as the next one.
        result("c", &huge, EPOCH + 5 * HOUR),
        called("c", EPOCH + 5 * HOUR + 1),
        asked("Still there?", EPOCH + 20 * HOUR),
        result("c", "done", EPOCH + 40 * HOUR),
        called("lost", EPOCH + 40 * HOUR + 1),
        asked("Next.", EPOCH + 50 * HOUR),
    ];
    let nodes = world.say("s", &said).await;
    assert_eq!(cut(&world).await, [&nodes[0..3], &nodes[3..7], &nodes[7..8]]);
}

#[tokio::test]
async fn conversation_that_goes_on_waits() {
    let world = World::new();
    let mut said = turn("old", NOW - DAY);
    said.extend(turn("new", NOW - MINUTE));
    world.say("s", &said).await;
    // A clock that was wrong: nothing will be added.
    world.say("future", &turn("later", NOW + DAY)).await;
    let size = world.build().await;
    assert_eq!((size.leaves, size.open, size.nodes), (2, 2, 4));
}

#[tokio::test]
async fn nodes_without_a_time_have_the_time_before_them() {
    let world = World::new();
    let said = [
        asked("Never dated.", 0),
        asked("Dated.", EPOCH),
        answered("By the one before.", 7),
        asked("More.", 0),
    ];
    let nodes = world.say_as("s", "other", "/work", &said).await;
    let row = world.scope.sessions(&*world.store).await.unwrap().remove(0);
    let found = segments_of(&*world.store, &row, NOW).await.unwrap();
    assert_eq!(found.untimed, 1);
    assert_eq!(found.segments[0].nodes, nodes[1..]);
    assert_eq!(found.segments[0].span.width(), 1);
}

#[tokio::test]
async fn session_without_any_time_is_counted_and_in_no_chunk() {
    let world = World::new();
    world.say_as("undated", "other", "/work", &[asked("Never dated.", 0), answered("Nor this.", 7)]).await;
    world.say("dated", &turn("one", EPOCH)).await;
    let size = world.build().await;
    assert_eq!((size.untimed, size.leaves, size.nodes), (2, 1, 2));
    assert!(world.live().await.iter().all(|chunk| !chunk.summary.contains("dated")));
}

/// The laws of a hierarchy.
fn check_hierarchy(chunks: &[MemoryChunk]) {
    let by_id: std::collections::HashMap<PastId, &MemoryChunk> =
        chunks.iter().map(|chunk| (chunk.id(), chunk)).collect();
    let mut owned = HashSet::new();
    for chunk in chunks {
        assert!(!chunk.summary.is_empty());
        assert_eq!(chunk.level == 0, chunk.children.is_empty());
        assert_eq!(chunk.level == 0, !chunk.sources.is_empty());
        if chunk.level > 0 {
            assert!((FEWEST..=MOST).contains(&chunk.children.len()));
        }
        for child in &chunk.children {
            let found = by_id[child];
            assert!(chunk.span.covers(found.span) && found.level + 1 == chunk.level);
            assert!(owned.insert(*child), "two parents");
        }
    }
    let sources: Vec<NodeId> =
        chunks.iter().flat_map(|chunk| &chunk.sources).map(|source| source.node).collect();
    assert_eq!(sources.iter().collect::<HashSet<_>>().len(), sources.len(), "a node in two leaves");
}

#[tokio::test]
async fn build_makes_what_is_estimated_and_nothing_twice() {
    let world = World::new();
    for (session, said) in diary(40) {
        world.say(&session, &said).await;
    }
    let size = world.build().await;
    assert_eq!((size.sessions, size.leaves, size.nodes, size.standing), (40, 80, 160, 0));
    assert!(size.parents > 80 / MOST && size.bytes > 0);
    let chunks = world.live().await;
    check_hierarchy(&chunks);
    assert_eq!(chunks.iter().map(|chunk| chunk.sources.len()).sum::<usize>(), 160);
    assert!(chunks.iter().any(|chunk| chunk.summary.contains("Please do task7.")));
    let head = world.store.head(&quipu_store::RefName::session(&world.scope.session())).await.unwrap();
    let again = world.build().await;
    assert_eq!((again.leaves, again.parents, again.superseded, again.standing), (0, 0, 0, chunks.len()));
    assert_eq!(world.store.head(&quipu_store::RefName::session(&world.scope.session())).await.unwrap(), head);
}

#[tokio::test]
async fn late_session_reopens_only_what_it_overlaps() {
    let world = World::new();
    for (session, said) in diary(60) {
        world.say(&session, &said).await;
    }
    world.build().await;
    let before = world.live().await;
    let late = EPOCH + 30 * DAY + 3 * HOUR;
    world.say("late", &turn("forgotten", late)).await;
    let check = world.plan().await.check();
    assert_eq!(check.gaps.len(), 1);
    assert!(check.gaps[0].late_for.is_some(), "a parent lies at that time");
    let size = world.build().await;
    let after = world.live().await;
    check_hierarchy(&after);
    assert_eq!(size.leaves, 1);
    let gone: Vec<&MemoryChunk> = before.iter().filter(|chunk| !after.contains(chunk)).collect();
    assert_eq!(gone.len(), size.superseded);
    assert!(gone.iter().all(|chunk| chunk.level > 0), "no other leaf is made again");
    assert!(gone.len() * 3 <= before.iter().filter(|chunk| chunk.level > 0).count(), "{}", gone.len());
    // A session that goes on has its last leaf made again, and what stands above it.
    world.say("s59", &turn("addition", EPOCH + 59 * DAY + 2 * HOUR + MINUTE)).await;
    let size = world.build().await;
    assert_eq!(size.leaves, 1);
    let last = world.live().await;
    check_hierarchy(&last);
    let gone: Vec<&MemoryChunk> =
        after.iter().filter(|chunk| chunk.level == 0 && !last.contains(chunk)).collect();
    assert_eq!(gone.len(), 1);
    assert_eq!(gone[0].session.as_ref().unwrap().as_str(), "s59");
    let new = last.iter().find(|chunk| chunk.level == 0 && !after.contains(chunk)).unwrap();
    let node = world.index().await.get(&new.id()).unwrap().node;
    let made = quipu_past::read_chunks(&*world.store, &world.scope, &[node]).await.unwrap().remove(0);
    assert_eq!(made.supersedes, [gone[0].id()]);
}

#[tokio::test]
async fn scope_has_its_own_sessions_alone() {
    let mut world = World::new();
    world.say_as("a", "quipu", "/work/one", &turn("one", EPOCH)).await;
    world.say_as("b", "other", "/work/one/deep", &turn("two", EPOCH + DAY)).await;
    world.say_as("c", "quipu", "/work/oneself", &turn("three", EPOCH + 2 * DAY)).await;
    for (scope, leaves) in [
        (PastScope::All, 3),
        (PastScope::Project("/work/one".into()), 2),
        (PastScope::Agent("quipu".into()), 2),
        (PastScope::Session("c".into()), 1),
    ] {
        world.scope = scope.clone();
        // The pasts that were built before are no sessions of this one.
        assert_eq!(world.build().await.leaves, leaves, "{scope:?}");
        assert!(world.live().await.iter().all(|chunk| chunk.scope == scope));
    }
    let imported = world.store.sessions(quipu_store::SessionQuery::default()).await.unwrap();
    assert_eq!(imported.len(), 3 + 4);
}

#[tokio::test]
async fn million_at_one_instant_are_still_a_tree() {
    let world = World::new();
    for nth in 0..300 {
        world.say(&format!("s{nth}"), &[asked(&format!("Say {nth}."), EPOCH)]).await;
    }
    let size = world.build().await;
    assert_eq!(size.leaves, 300);
    let chunks = world.live().await;
    check_hierarchy(&chunks);
    // All have the same range; each key finds its own all the same.
    let index = world.index().await;
    for chunk in index.live() {
        let key = index.key(chunk);
        let found = index.find(&key, NOW, &jiff::tz::TimeZone::UTC, &world.scope).unwrap();
        assert_eq!(found.id, chunk.id, "{key}");
    }
}

#[tokio::test]
async fn clock_that_jumps_within_a_session_leaves_a_tree() {
    let world = World::new();
    // Years ahead and back again, before the beginning of the session, and further than times go.
    let jumps = [0, 3_650 * DAY, MINUTE, -3 * DAY, 2 * MINUTE, i64::MAX - EPOCH, 3 * MINUTE];
    let said: Vec<_> =
        (0..).zip(jumps).map(|(nth, by)| asked(&format!("Say number {nth}."), EPOCH + by)).collect();
    let nodes = world.say("jumps", &said).await;
    for day in 0..6 {
        world.say(&format!("calm{day}"), &turn(&format!("task{day}"), EPOCH + day * DAY)).await;
    }
    world.build().await;
    let chunks = world.live().await;
    check_hierarchy(&chunks);
    let told: HashSet<NodeId> =
        chunks.iter().flat_map(|chunk| &chunk.sources).map(|source| source.node).collect();
    assert!(nodes.iter().all(|node| told.contains(node)), "each is summed up");
    let again = world.build().await;
    assert_eq!((again.leaves, again.parents, again.superseded), (0, 0, 0));
    // What is said to be of the future is in no cover of now; the rest is.
    let index = world.index().await;
    let charge = quipu_past::cover::Charge { characters: 4, image: 0 };
    let stock = quipu_past::CoverStock::read(&*world.store, &world.scope, &index, charge).await.unwrap();
    let cover = stock.cover_before(8_000, None, NOW);
    assert!(cover.cover.members.iter().all(|member| member.span.end < NOW), "{:?}", cover.cover.members);
    assert!(cover.text.contains("Say number 0.") && cover.text.contains("task5"), "{}", cover.text);
}

/// Gives nothing.
struct Silence;

impl Summariser for Silence {
    fn method(&self) -> SummaryMethod {
        SummaryMethod::Extractive { version: 99, instead: None, refusal: None }
    }

    fn leaf(&self, _: &[SourceText]) -> String {
        " \n".into()
    }

    fn parent(&self, _: &[ChildSummary]) -> String {
        String::new()
    }
}

#[tokio::test]
async fn summariser_that_gives_nothing_is_an_error() {
    let world = World::new();
    world.say("s", &turn("one", EPOCH)).await;
    let plan = PastPlan::make(&*world.store, &world.scope, &Silence.method(), NOW).await.unwrap();
    let built = build_past(&*world.store, &world.scope, &Silence, &plan, NOW, &mut |_| {}).await;
    assert!(matches!(built, Err(PastError::BadSummary(_))), "{built:?}");
    assert!(world.live().await.is_empty());
}

#[tokio::test]
async fn second_writer_goes_on_from_what_the_first_one_made() {
    let world = World::new();
    for (session, said) in diary(40) {
        world.say(&session, &said).await;
    }
    let plan = world.plan().await;
    world.build().await;
    let made = world.live().await;
    let built = build_past(&*world.store, &world.scope, &ExtractiveSummary, &plan, NOW, &mut |_| {}).await;
    let size = built.unwrap();
    assert_eq!((size.leaves, size.parents, size.standing), (0, 0, made.len()));
    assert_eq!(world.live().await, made);
}

#[tokio::test]
async fn review_in_the_middle_of_a_build_counts() {
    let world = World::new();
    for (session, said) in diary(80) {
        world.say(&session, &said).await;
    }
    let plan = world.plan().await;
    let (store, scope) = (world.store.clone(), world.scope.clone());
    let mut retracted = None;
    let mut review = |at: quipu_past::BuildProgress| {
        if at.done > 0 && retracted.is_none() {
            // Another process, between two commits.
            let (store, scope) = (store.clone(), scope.clone());
            let work = async move {
                let index = quipu_past::PastIndex::read(&*store, &scope).await.unwrap();
                let id = index.live().next().unwrap().id;
                set_review_state(&*store, &scope, id, ReviewState::Retracted, NOW).await.unwrap();
                id
            };
            let thread = std::thread::spawn(|| {
                tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
            });
            retracted = Some(thread.join().unwrap());
        }
    };
    let built = build_past(&*world.store, &world.scope, &ExtractiveSummary, &plan, NOW, &mut review).await;
    let size = built.unwrap();
    assert_eq!((size.leaves, size.retracted), (160, 1));
    let chunks = world.live().await;
    check_hierarchy(&chunks);
    assert!(chunks.iter().all(|chunk| Some(chunk.id()) != retracted));
    let again = world.build().await;
    assert_eq!((again.leaves, again.parents, again.superseded), (0, 0, 0));
}

#[tokio::test]
async fn leaf_of_a_session_that_goes_on_stays_until_it_is_over() {
    let world = World::new();
    for (session, said) in diary(20) {
        world.say(&session, &said).await;
    }
    world.build().await;
    let before = world.live().await;
    let last = EPOCH + 19 * DAY + 2 * HOUR + 1_000;
    world.say("s19", &turn("addition", last + MINUTE)).await;
    // It may still go on: nothing is lost meanwhile.
    let now = last + 3 * MINUTE;
    let plan = PastPlan::make(&*world.store, &world.scope, &ExtractiveSummary.method(), now).await.unwrap();
    let size = plan.size();
    assert_eq!((size.open, size.leaves, size.parents, size.superseded), (2, 0, 0, 0));
    assert_eq!(plan.check().outdated, 0);
    build_past(&*world.store, &world.scope, &ExtractiveSummary, &plan, now, &mut |_| {}).await.unwrap();
    assert_eq!(world.live().await, before);
    let size = world.build().await;
    assert_eq!((size.leaves, size.open), (1, 0));
    check_hierarchy(&world.live().await);
}

#[tokio::test]
async fn segment_of_very_many_steps_is_cut() {
    let world = World::new();
    let silent: Vec<_> = (0..9_000).map(|at| answered("", EPOCH + at)).collect();
    world.say("silent", &[vec![asked("Go.", EPOCH)], silent].concat()).await;
    let row = world.scope.sessions(&*world.store).await.unwrap().remove(0);
    let found = segments_of(&*world.store, &row, NOW).await.unwrap();
    let counts: Vec<usize> = found.segments.iter().map(|segment| segment.nodes.len()).collect();
    assert_eq!(counts, [SOFT_NODES, SOFT_NODES, 9_001 - 2 * SOFT_NODES]);
}

/// A session, and what is said in it.
type SaidSession = (String, Vec<(UnixMs, Message)>);

/// Sessions with whatever is said when, and an order in which they come.
fn imports() -> impl Strategy<Value = (Vec<SaidSession>, Vec<usize>)> {
    let sessions = prop::collection::vec(prop::collection::vec((0..40_i64, 0..2_000_usize), 1..6), 6..30);
    let sessions = sessions.prop_map(|sessions| {
        let mut said = Vec::new();
        for (nth, turns) in sessions.into_iter().enumerate() {
            let mut at = EPOCH + (nth as i64 * 7 % 11) * DAY;
            let mut messages = Vec::new();
            for (pause, size) in turns {
                at += pause * 5 * MINUTE;
                messages.push(asked(&format!("Say {nth} {}", "more ".repeat(size / 5)), at));
                messages.push(answered("Well.", at + 1));
            }
            said.push((format!("s{nth}"), messages));
        }
        said
    });
    sessions.prop_flat_map(|sessions| {
        let order: Vec<usize> = (0..sessions.len()).collect();
        (Just(sessions), Just(order).prop_shuffle())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]
    #[test]
    fn order_of_imports_changes_no_byte((sessions, order) in imports(), builds in 1..4_usize) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let at_once = World::new();
            for (session, said) in &sessions {
                at_once.say(session, said).await;
            }
            at_once.build().await;
            // In another order, each session in two pieces, with builds between.
            let shuffled = World::new();
            for (nth, at) in order.iter().enumerate() {
                let (session, said) = &sessions[*at];
                let half = said.len() / 2;
                shuffled.say(session, &said[..half.max(1)]).await;
                if nth % builds == 0 {
                    shuffled.build().await;
                }
                if half.max(1) < said.len() {
                    shuffled.say(session, &said[half.max(1)..]).await;
                }
            }
            shuffled.build().await;
            let strip = |chunks: Vec<MemoryChunk>| -> Vec<(PastId, String)> {
                chunks.into_iter().map(|chunk| (chunk.id(), chunk.summary)).collect()
            };
            let (one, other) = (at_once.live().await, shuffled.live().await);
            check_hierarchy(&other);
            assert_eq!(strip(one), strip(other));
            // The same with a model whose answers depend on all that it is sent.
            at_once.build_by(&Script::default()).await;
            let script = Script::default();
            for (nth, at) in order.iter().enumerate() {
                let late = EPOCH + (nth as i64 * 5 % 11) * DAY + HOUR;
                shuffled.say(&format!("late{at}"), &turn("more", late)).await;
                if nth % (builds * 4) == 0 {
                    shuffled.build_by(&script).await;
                }
            }
            shuffled.build_by(&script).await;
            for (nth, at) in order.iter().enumerate() {
                let late = EPOCH + (nth as i64 * 5 % 11) * DAY + HOUR;
                at_once.say(&format!("late{at}"), &turn("more", late)).await;
            }
            at_once.build_by(&Script::default()).await;
            let (one, other) = (at_once.live().await, shuffled.live().await);
            check_hierarchy(&other);
            assert!(other.iter().all(|chunk| matches!(chunk.method, SummaryMethod::Model(_))));
            assert_eq!(strip(one), strip(other));
        });
    }
}
