//! What a source puts before the conversation: where it stands, when it is asked, and that a request is the same again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use quipu::protocol::{AuthorClass, Entry, EpochOpening, Message, OpeningBoundary, Outcome};
use quipu::store::{LineageEnd, Store as _, Upkeep as _, decode_nodes};
use quipu::{
    CompactionAsk, CompactionSettings, ContextSource, EpochReason, Opening, OpeningAsk, PruneSettings,
    SessionOptions, SourceError, SourceSummary,
};

use crate::support::{World, say, text_of};

/// Gives one text after the other, the last one again and again.
pub(crate) struct Chapters {
    texts: Mutex<VecDeque<&'static str>>,
    pub(crate) asked: Mutex<Vec<OpeningAsk>>,
    compactions: Mutex<Vec<CompactionAsk>>,
}

impl Chapters {
    pub(crate) fn new(texts: &[&'static str]) -> Arc<Self> {
        let texts = Mutex::new(texts.iter().copied().collect());
        Arc::new(Self { texts, asked: Mutex::default(), compactions: Mutex::default() })
    }

    fn reasons(&self) -> Vec<EpochReason> {
        self.asked.lock().unwrap().iter().map(|ask| ask.reason).collect()
    }
}

impl ContextSource for Chapters {
    fn name(&self) -> &str {
        "chapters"
    }

    fn wants(&self, reason: EpochReason) -> bool {
        matches!(reason, EpochReason::Run | EpochReason::Compaction)
    }

    fn opening<'a>(&'a self, ask: &'a OpeningAsk) -> BoxFuture<'a, Result<Option<Opening>, SourceError>> {
        self.asked.lock().unwrap().push(ask.clone());
        let mut texts = self.texts.lock().unwrap();
        let text = if texts.len() > 1 { texts.pop_front() } else { texts.front().copied() };
        let given = match text {
            Some("") => Err(SourceError::new("no chapter")),
            Some("nothing") => Ok(None),
            text => Ok(Some(Opening {
                text: text.unwrap_or_default().to_owned(),
                boundary: Some(OpeningBoundary { assistant: "breath".into(), user: "now".into() }),
                nodes: Vec::new(),
                state: text.map(|text| format!("state of {text}")),
            })),
        };
        std::future::ready(given).boxed()
    }

    fn compaction<'a>(
        &'a self,
        ask: &'a CompactionAsk,
    ) -> BoxFuture<'a, Result<Option<SourceSummary>, SourceError>> {
        self.compactions.lock().unwrap().push(ask.clone());
        let given = SourceSummary {
            author: Some(AuthorClass::Untrusted),
            ..SourceSummary::from("all that left".to_owned())
        };
        std::future::ready(Ok(Some(given))).boxed()
    }
}

fn options(world: &World, chapters: &Arc<Chapters>) -> SessionOptions {
    let sources: Vec<Arc<dyn ContextSource>> = vec![chapters.clone()];
    SessionOptions { context_sources: sources, ..world.options() }
}

fn sent(world: &World) -> Vec<String> {
    world.fake.last_messages().iter().map(text_of).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opening_stands_before_the_conversation_and_is_resumed() {
    let world = World::new();
    let chapters = Chapters::new(&["one", "one", "two"]);
    let live = world.create_with(options(&world, &chapters)).await;
    world.fake.push([say("A."), say("B.")]);
    assert_eq!(live.run("first").await, Outcome::Done);
    assert_eq!(sent(&world), ["one", "breath", "now", "first"]);
    assert_eq!(live.run("second").await, Outcome::Done);
    assert_eq!(sent(&world), ["two", "breath", "now", "first", "A.", "second"]);
    assert_eq!(chapters.reasons(), [EpochReason::Start, EpochReason::Run, EpochReason::Run]);
    let asked = chapters.asked.lock().unwrap().clone();
    assert_eq!((&asked[0].before, asked[0].first), (&None, None));
    let state = |ask: &OpeningAsk| ask.before.clone().and_then(|before: EpochOpening| before.state);
    assert_eq!(state(&asked[2]).as_deref(), Some("state of one"));
    // What is asked now is not told, only what was asked before.
    let earlier: Vec<String> = asked[2].earlier.iter().map(|message| text_of(message)).collect();
    assert_eq!((earlier, asked[1].earlier.len()), (vec!["first".to_owned()], 0));
    assert!(asked[2].first.is_some() && asked[2].tokens > 0);
    let id = live.id();
    live.finish().await;
    // Without the source, and in another process: the same bytes, and what comes behind them.
    let before = world.fake.bodies().last().unwrap().clone();
    let world = world.reopen();
    let (live, _) = world.open(&id).await;
    world.fake.push([say("C.")]);
    assert_eq!(live.run("third").await, Outcome::Done);
    assert_eq!(sent(&world), ["two", "breath", "now", "first", "A.", "second", "B.", "third"]);
    let shared = |body: &[u8]| crate::support::messages_of(body);
    assert!(shared(world.fake.bodies().last().unwrap()).starts_with(&shared(&before)));
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opening_that_is_the_same_makes_no_node() {
    let world = World::new();
    let chapters = Chapters::new(&["one"]);
    let live = world.create_with(options(&world, &chapters)).await;
    for text in ["first", "second", "third"] {
        assert_eq!(live.run(text).await, Outcome::Done);
    }
    let head = live.session.view().head.unwrap();
    let nodes = world.store.lineage(head, LineageEnd::Root).await.unwrap();
    let decoded = decode_nodes(&*world.store, &nodes).await.unwrap();
    assert_eq!(decoded.iter().filter(|one| matches!(one.entry, Entry::Epoch(_))).count(), 0);
    let used = world.engine.context_use(head, &PruneSettings::default()).await.unwrap();
    let part = used.parts.iter().find(|part| part.kind == quipu::ContextKind::Opening).unwrap();
    assert_eq!(part.count, 3);
    // Each answer says what its request had.
    let answers: Vec<_> = nodes.iter().zip(&decoded).filter(|(_, one)| one.step.call.is_some()).collect();
    for (at, (node, one)) in answers.iter().enumerate() {
        let parts = world.engine.request_parts(node.id).await.unwrap();
        assert_eq!(Some(parts.head), one.step.call.as_ref().map(|call| call.head));
        assert_eq!((parts.messages.len(), parts.opening_messages.len()), (at * 2 + 1, 3));
        assert_eq!(parts.opening.map(|opening| opening.text).as_deref(), Some("one"));
    }
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opening_stays_until_its_source_says_otherwise() {
    let world = World::new();
    let chapters = Chapters::new(&["one", "one", "", "nothing"]);
    let live = world.create_with(options(&world, &chapters)).await;
    for (text, expect) in [
        ("first", &["one", "breath", "now", "first"][..]),
        ("second", &["one", "breath", "now", "first", "done", "second"]),
        ("third", &["first", "done", "second", "done", "third"]),
    ] {
        assert_eq!(live.run(text).await, Outcome::Done);
        assert_eq!(sent(&world), expect);
    }
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opening_outlasts_another_system_prompt() {
    let world = World::new();
    let live = world.create_with(options(&world, &Chapters::new(&["one"]))).await;
    assert_eq!(live.run("first").await, Outcome::Done);
    let id = live.id();
    live.finish().await;
    let world = world.reopen();
    let chapters = Chapters::new(&[""]);
    let other = SessionOptions { system: Some("Other words.".into()), ..options(&world, &chapters) };
    let opened = world.engine.open(&id, other).await.unwrap();
    let live = crate::support::LiveSession::of(opened.session).await;
    assert_eq!(live.run("second").await, Outcome::Done);
    assert_eq!(sent(&world), ["one", "breath", "now", "first", "done", "second"]);
    // The conversation goes on: nothing of it begins.
    assert_eq!(chapters.reasons(), [EpochReason::Run]);
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn summary_stands_between_opening_and_boundary() {
    let world = World::new();
    let chapters = Chapters::new(&["one"]);
    let compaction = CompactionSettings { keep_recent_tokens: 10, ..CompactionSettings::default() };
    let options = SessionOptions { compaction, ..options(&world, &chapters) };
    let live = world.create_with(options).await;
    for text in ["first", "second", "third"] {
        let answer = format!("{text} {}", "x".repeat(400));
        world.fake.push([say(&answer)]);
        assert_eq!(live.run(text).await, Outcome::Done);
    }
    live.session.compact(None).await.unwrap();
    live.until(1, |event| matches!(event, quipu::protocol::Event::CompactionEnded { .. })).await;
    assert_eq!(live.run("fourth").await, Outcome::Done);
    let said = sent(&world);
    assert_eq!((&said[0][..], &said[2][..], &said[3][..]), ("one", "breath", "now"));
    assert!(said[1].contains("all that left") && said.last().unwrap() == "fourth", "{said:?}");
    let ask = chapters.compactions.lock().unwrap().pop().unwrap();
    let first = ask.first_kept.expect("something stays");
    let parts = world.engine.request_parts(live.session.view().head.unwrap()).await.unwrap();
    assert_eq!(parts.messages.first().map(|(node, _)| *node), Some(first));
    assert!(parts.compacted.is_some() && chapters.reasons().contains(&EpochReason::Compaction));
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jump_keeps_the_opening_that_is_served() {
    let world = World::new();
    let chapters = Chapters::new(&["one", "one", "two"]);
    let live = world.create_with(options(&world, &chapters)).await;
    assert_eq!(live.run("first").await, Outcome::Done);
    let begin = live.session.view().head.unwrap();
    assert_eq!(live.run("second").await, Outcome::Done);
    live.session.jump(begin, None, None).await.unwrap();
    live.until(1, |event| matches!(event, quipu::protocol::Event::JumpEnded { .. })).await;
    assert_eq!(live.run("other").await, Outcome::Done);
    assert_eq!(sent(&world), ["two", "breath", "now", "first", "done", "other"]);
    assert!(world.fake.last_messages().iter().all(|message| !matches!(message, Message::Other(_))));
    live.finish().await;
    // The calls of the branch that was left stand on no lineage.
    assert_eq!(world.store.check().await.unwrap().problems, []);
}
