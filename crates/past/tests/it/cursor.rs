//! Builds that go on from the one before: they make what builds from nothing make, and read what is new.

use proptest::prelude::*;
use quipu_past::{
    BuildSize, ExtractiveSummary, MemoryChunk, PastCursor, PastId, ReviewState, Summaries, read_chunks,
    set_review_state,
};
use quipu_protocol::{Message, NodeId, SessionId, UnixMs};
use quipu_store::{Commit, RefExpectation, RefMove, RefName};

use crate::model::Script;
use crate::support::*;

/// What happens between two builds.
#[derive(Debug, Clone)]
enum Step {
    /// Turns of a session: minutes before each, and bytes of its question.
    Say(usize, Vec<(i64, usize)>),
    /// A call without a result, and a result of an earlier one.
    Call(usize),
    Result(usize),
    /// A session goes back to where it was before it was last said something in.
    Undo(usize),
    Remove(usize),
    Retract(usize),
    /// Minutes without anything.
    Wait(i64),
    /// A clock is set back.
    SetBack,
    /// Another process builds.
    BuildElsewhere,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let turns = prop::collection::vec((0..40_i64, 0..5_000_usize), 1..5);
    let step = prop_oneof![
        12 => (0..6_usize, turns).prop_map(|(session, turns)| Step::Say(session, turns)),
        2 => (0..6_usize).prop_map(Step::Call),
        2 => (0..6_usize).prop_map(Step::Result),
        1 => (0..6_usize).prop_map(Step::Undo),
        1 => (0..6_usize).prop_map(Step::Remove),
        1 => (0..40_usize).prop_map(Step::Retract),
        4 => (1..60_i64).prop_map(Step::Wait),
        1 => Just(Step::SetBack),
        1 => Just(Step::BuildElsewhere),
    ];
    prop::collection::vec(step, 1..24)
}

/// Two worlds to which the same happens: in one of them builds go on from each other.
struct Twins {
    kept: World,
    anew: World,
    now: UnixMs,
    heads: Vec<Vec<NodeId>>,
}

impl Twins {
    fn new() -> Self {
        Self { kept: World::new(), anew: World::new(), now: EPOCH, heads: vec![Vec::new(); 6] }
    }

    async fn say(&mut self, session: usize, messages: &[(UnixMs, Message)]) {
        let name = format!("s{session}");
        let nodes = self.kept.say(&name, messages).await;
        assert_eq!(self.anew.say(&name, messages).await, nodes);
        self.heads[session].extend(nodes.last());
    }

    async fn go(&self, session: usize, to: Option<NodeId>) {
        for world in [&self.kept, &self.anew] {
            let name = RefName::session(&SessionId::from(format!("s{session}")));
            let expect = RefExpectation::Any;
            let mut commit = Commit::default();
            commit.moves.push(RefMove { name, expect, to, fence: None, why: "undo".into() });
            world.store.commit(commit).await.unwrap();
        }
    }

    async fn step(&mut self, step: &Step) {
        match step {
            Step::Say(session, turns) => {
                let mut said = Vec::new();
                for (pause, size) in turns {
                    self.now += pause * MINUTE + 1;
                    let text = format!("Say {} {}", self.now, "more ".repeat(size / 5));
                    said.push(asked(&text, self.now));
                    said.push(answered("Well.", self.now));
                }
                self.say(*session, &said).await;
            }
            Step::Call(session) => self.say(*session, &[called(&format!("c{session}"), self.now)]).await,
            Step::Result(session) => {
                self.say(*session, &[result(&format!("c{session}"), "done", self.now)]).await;
            }
            Step::Undo(session) => {
                let heads = &mut self.heads[*session];
                if heads.len() > 1 {
                    heads.pop();
                    let to = heads.last().copied();
                    self.go(*session, to).await;
                }
            }
            Step::Remove(session) => {
                if !self.heads[*session].is_empty() {
                    self.go(*session, None).await;
                    self.heads[*session].clear();
                }
            }
            Step::Retract(nth) => {
                let chunks = self.anew.live().await;
                if let Some(chunk) = chunks.get(*nth) {
                    let id = chunk.id();
                    for world in [&self.kept, &self.anew] {
                        let state = ReviewState::Retracted;
                        set_review_state(&*world.store, &world.scope, id, state, self.now).await.unwrap();
                    }
                }
            }
            Step::Wait(minutes) => self.now += minutes * MINUTE,
            Step::SetBack => self.now -= 20 * MINUTE,
            Step::BuildElsewhere => {
                for world in [&self.kept, &self.anew] {
                    build_at(world, &mut PastCursor::default(), RULES, self.now).await;
                }
            }
        }
    }
}

const RULES: Summaries<'static> = Summaries::Rules(&ExtractiveSummary);

async fn build_at(world: &World, cursor: &mut PastCursor, by: Summaries<'_>, now: UnixMs) -> BuildSize {
    let plan = by.plan_from(cursor, &*world.store, &world.scope, now).await.unwrap();
    let size = plan.size();
    let end = by.build(&*world.store, &world.scope, &plan, now, &mut |_| {}).await.unwrap();
    assert_eq!(size.leaves + size.parents, end.size.leaves + end.size.parents);
    drop(plan);
    cursor.settle(&*world.store).await.unwrap();
    size
}

/// Everything that a past has, in the order in which it was made.
async fn all(world: &World) -> Vec<(PastId, bool, MemoryChunk)> {
    let index = world.index().await;
    let nodes: Vec<NodeId> = index.chunks().map(|chunk| chunk.node).collect();
    let chunks = read_chunks(&*world.store, &world.scope, &nodes).await.unwrap();
    let ids = index.chunks().map(|chunk| (chunk.id, chunk.is_live()));
    ids.zip(chunks).map(|((id, is_live), chunk)| (id, is_live, chunk)).collect()
}

async fn check_steps(steps: &[Step], by: Summaries<'_>, pairs: Summaries<'_>) {
    let mut twins = Twins::new();
    let mut cursor = PastCursor::default();
    for step in steps {
        twins.step(step).await;
        let one = build_at(&twins.kept, &mut cursor, by, twins.now).await;
        let other = build_at(&twins.anew, &mut PastCursor::default(), pairs, twins.now).await;
        assert_eq!(one, other, "{step:?}");
        assert_eq!(all(&twins.kept).await, all(&twins.anew).await, "{step:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn builds_that_go_on_make_what_builds_from_nothing_make(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            check_steps(&steps, RULES, RULES).await;
            check_steps(&steps, Summaries::Model(&Script::default()), Summaries::Model(&Script::default())).await;
        });
    }
}

#[tokio::test]
async fn builds_that_go_on_read_everything_once() {
    let world = World::new();
    for day in 0..60 {
        world.say(&format!("s{day}"), &turn(&format!("task{day}"), EPOCH + day * DAY)).await;
    }
    let mut cursor = PastCursor::default();
    let mut now = EPOCH + 60 * DAY;
    assert_eq!(build_at(&world, &mut cursor, RULES, now).await.leaves, 60);
    let long = "word ".repeat(2_000);
    for nth in 0..20 {
        world.say("s60", &[asked(&long, now), answered("Well.", now + 1)]).await;
        // Another session of a moment, and one that goes on after a pause.
        world.say(&format!("t{nth}"), &turn("more", now)).await;
        world.say("s3", &turn(&format!("again{nth}"), now + 2)).await;
        now += 40 * MINUTE;
        let size = build_at(&world, &mut cursor, RULES, now).await;
        assert_eq!((size.leaves, size.standing > 60), (3, true), "{nth}");
        assert_eq!(build_at(&world, &mut cursor, RULES, now).await.leaves, 0);
    }
    assert_eq!(cursor.read_whole(), 1);
    let anew = World::plan(&world).await.size();
    assert_eq!((anew.leaves, anew.parents, anew.superseded), (0, 0, 0));
    // What a person does is seen.
    let chunk = world.live().await[0].id();
    set_review_state(&*world.store, &world.scope, chunk, ReviewState::Retracted, now).await.unwrap();
    assert!(build_at(&world, &mut cursor, RULES, now).await.retracted > 0);
    assert_eq!(cursor.read_whole(), 2);
}

#[tokio::test]
async fn chunks_of_a_removed_session_are_not_shown() {
    let world = World::new();
    for day in 0..20 {
        world.say(&format!("s{day}"), &turn(&format!("task{day}"), EPOCH + day * DAY)).await;
    }
    world.build().await;
    let name = RefName::session(&SessionId::from("s7".to_owned()));
    let stood = world.store.head(&name).await.unwrap();
    let go = async |to| {
        let mut commit = Commit::default();
        let expect = RefExpectation::Any;
        commit.moves.push(RefMove { name: name.clone(), expect, to, fence: None, why: "rm".into() });
        world.store.commit(commit).await.unwrap();
    };
    let tells =
        |chunks: &[MemoryChunk]| chunks.iter().filter(|chunk| chunk.summary.contains("task7")).count();
    let before = world.live().await;
    assert!(tells(&before) > 1);
    go(None).await;
    assert_eq!(tells(&world.live().await), 0);
    // What else was summed up with it is still shown.
    assert_eq!(world.live().await.iter().filter(|chunk| chunk.level == 0).count(), 19);
    // There again, it is as it was.
    go(stood).await;
    assert_eq!(world.live().await, before);
    go(None).await;
    let size = world.build().await;
    assert!(size.superseded > 1 && size.leaves == 0, "{size:?}");
    assert_eq!(tells(&world.live().await), 0);
    go(stood).await;
    world.build().await;
    assert_eq!(
        world.live().await.iter().map(MemoryChunk::id).collect::<Vec<_>>(),
        before.iter().map(MemoryChunk::id).collect::<Vec<_>>()
    );
}
