//! What sources do before a compaction: once for each, on every way into one, and without holding it up.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use quipu::protocol::{CompactionReason, CompactionResult, Event, ModelErrorKind, Notice, Outcome, Ui};
use quipu::{
    CallRequest, CompactionAsk, CompactionSettings, ContextSource, RunnerPurpose, SessionOptions, SourceError,
};

use crate::support::{LiveSession, Reply, World, model, say};

/// What the source does then.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum SourceBehaviour {
    AsksAModel,
    Fails,
    Panics,
    Hangs,
}

pub(crate) struct NoteSource {
    does: SourceBehaviour,
    asked: Mutex<Vec<CompactionAsk>>,
    pub(crate) answers: Mutex<Vec<String>>,
}

impl NoteSource {
    pub(crate) fn new(does: SourceBehaviour) -> Arc<Self> {
        Arc::new(Self { does, asked: Mutex::default(), answers: Mutex::default() })
    }

    pub(crate) fn asked(&self) -> Vec<CompactionAsk> {
        self.asked.lock().unwrap().clone()
    }
}

impl ContextSource for NoteSource {
    fn name(&self) -> &str {
        "keeper"
    }

    fn deadline(&self) -> Duration {
        if self.does == SourceBehaviour::Hangs { Duration::from_millis(50) } else { Duration::from_secs(10) }
    }

    fn before_compaction<'a>(&'a self, ask: &'a CompactionAsk) -> BoxFuture<'a, Result<(), SourceError>> {
        self.asked.lock().unwrap().push(ask.clone());
        async move {
            match self.does {
                SourceBehaviour::AsksAModel => {
                    let purpose = RunnerPurpose::new("keeping").map_err(SourceError::new)?;
                    let question = format!("What is worth keeping before {}?", ask.head);
                    let asked = ask.cx.runner().call(CallRequest::new(purpose, question)).await;
                    self.answers.lock().unwrap().push(asked.map_err(SourceError::new)?.text);
                    Ok(())
                }
                SourceBehaviour::Fails => Err(SourceError::new("no room for notes")),
                SourceBehaviour::Panics => panic!("a source that breaks down"),
                SourceBehaviour::Hangs => std::future::pending().await,
            }
        }
        .boxed()
    }
}

fn long(word: &str) -> String {
    format!("{word} {}", "x".repeat(1_596))
}

fn options(world: &World, keeper: &Arc<NoteSource>) -> SessionOptions {
    let model = quipu::protocol::Model { context_window: 40_000, ..(*model()).clone() };
    let compaction =
        CompactionSettings { enabled: true, reserve_tokens: 4_000, keep_recent_tokens: 800, safeguard: None };
    let sources: Vec<Arc<dyn ContextSource>> = vec![keeper.clone()];
    SessionOptions { model: Arc::new(model), compaction, context_sources: sources, ..world.options() }
}

fn ended(live: &LiveSession) -> Vec<(CompactionReason, bool)> {
    live.all(|event| match event {
        Event::CompactionEnded { reason, result } => {
            Some((*reason, matches!(**result, CompactionResult::Done { .. })))
        }
        _ => None,
    })
}

async fn talk(world: &World, live: &LiveSession, turns: usize) {
    for n in 0..turns {
        world.fake.push([say(&long(&format!("answer-{n}")))]);
        assert_eq!(live.run(&long(&format!("question-{n}"))).await, Outcome::Done);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn source_is_told_before_each_way_of_compacting() {
    let world = World::new();
    let keeper = NoteSource::new(SourceBehaviour::AsksAModel);
    let live = world.create_with(options(&world, &keeper)).await;
    talk(&world, &live, 4).await;
    // The model refuses the context: what leaves it is kept first, then it is summed up, then the call is repeated.
    let refused = Reply { error: Some(ModelErrorKind::ContextOverflow), ..say("") };
    world.fake.push([refused, say("kept 1"), say("## Goal\nOne."), say("after it")]);
    assert_eq!(live.run("next").await, Outcome::Done);
    talk(&world, &live, 4).await;
    world.fake.push([say("kept 2"), say("## Goal\nTwo.")]);
    live.session.compact(None).await.unwrap();
    live.until(2, |event| matches!(event, Event::CompactionEnded { .. })).await;
    assert_eq!(ended(&live), [(CompactionReason::Overflow, true), (CompactionReason::Manual, true)]);
    let asked = keeper.asked();
    assert_eq!(
        asked.iter().map(|ask| ask.reason).collect::<Vec<_>>(),
        [Some(CompactionReason::Overflow), Some(CompactionReason::Manual)]
    );
    assert_ne!(asked[0].head, asked[1].head);
    assert!(
        asked[0].messages.iter().any(|message| crate::support::text_of(message).starts_with("question-0"))
    );
    assert!(asked[1].previous.as_deref().is_some_and(|previous| previous.contains("One.")));
    assert_eq!(*keeper.answers.lock().unwrap(), ["kept 1", "kept 2"]);
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn source_is_told_once_for_each_compaction_near_the_end() {
    let world = World::new();
    let keeper = NoteSource::new(SourceBehaviour::AsksAModel);
    let mut options = options(&world, &keeper);
    let small = quipu::protocol::Model { context_window: 4_000, ..(*model()).clone() };
    (options.model, options.compaction.reserve_tokens) = (Arc::new(small), 400);
    let live = world.create_with(options).await;
    // Everybody is answered with one word.
    for n in 0..24 {
        assert_eq!(live.run(&long(&format!("question-{n}"))).await, Outcome::Done);
    }
    let (ended, asked) = (ended(&live), keeper.asked());
    assert!(
        !ended.is_empty() && ended.iter().all(|end| *end == (CompactionReason::Threshold, true)),
        "{ended:?}"
    );
    assert_eq!(asked.len(), ended.len());
    let heads: std::collections::HashSet<_> = asked.iter().map(|ask| ask.head).collect();
    assert_eq!(heads.len(), asked.len());
    assert_eq!(*keeper.answers.lock().unwrap(), vec!["done"; asked.len()]);
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compaction_goes_on_whatever_a_source_does_before_it() {
    for (does, why) in [
        (SourceBehaviour::Fails, "no room"),
        (SourceBehaviour::Panics, "panicked"),
        (SourceBehaviour::Hangs, "within 0.05 s"),
    ] {
        let world = World::new();
        let keeper = NoteSource::new(does);
        let live = world.create_with(options(&world, &keeper)).await;
        talk(&world, &live, 4).await;
        world.fake.push([say("## Goal\nOf the model.")]);
        live.session.compact(None).await.unwrap();
        live.until(1, |event| matches!(event, Event::CompactionEnded { .. })).await;
        assert_eq!(ended(&live), [(CompactionReason::Manual, true)]);
        let notices = live.all(|event| match event {
            Event::Ui { ui: Ui::Notice { notice: Notice::Note { text } } } => Some(text.clone()),
            _ => None,
        });
        assert!(notices.iter().any(|text| text.contains("keeper") && text.contains(why)), "{notices:?}");
        live.finish().await;
        world.check().await;
    }
}
