//! Models that a user set for calls of a purpose: who makes them, what is recorded, and what stays on this machine.

use std::sync::Arc;

use quipu::protocol::{CompactionResult, Event, Model, NodeId, Notice, Outcome, Thinking};
use quipu::store::{Store as _, decode_nodes};
use quipu::{
    CallRequest, Engine, FindError, ModelLookupError, Models, Provider, PurposeModel, RunnerPurpose,
    SessionOptions,
};

use crate::compact::{is_summary_request, long, options};
use crate::support::{Fake, FarProvider, LiveSession, World, say};

/// What is set for one purpose.
struct PurposeSetting {
    purpose: &'static str,
    found: Result<(Arc<Model>, Arc<dyn Provider>), ModelLookupError>,
}

impl Models for PurposeSetting {
    fn find(&self, provider: &str, id: &str) -> Result<(Arc<Model>, Arc<dyn Provider>), ModelLookupError> {
        let pattern = format!("{provider}/{id}");
        Err(ModelLookupError::NotFound(FindError::UnknownModel { pattern, similar: Vec::new() }))
    }

    fn find_for(&self, purpose: &str) -> Result<Option<PurposeModel>, ModelLookupError> {
        if purpose != self.purpose {
            return Ok(None);
        }
        let (model, provider) = self.found.clone()?;
        Ok(Some(PurposeModel { model, provider, thinking: Some(Thinking::Low) }))
    }
}

fn small() -> Arc<Model> {
    let (id, provider) = ("small-model".into(), "elsewhere".into());
    Arc::new(Model { id, provider, api: "test".into(), context_window: 2_600, ..Model::default() })
}

fn set(purpose: &'static str, provider: Arc<dyn Provider>) -> Option<Arc<dyn Models>> {
    Some(Arc::new(PurposeSetting { purpose, found: Ok((small(), provider)) }))
}

/// Three exchanges in a window of 4,000 tokens, then a fourth: it is compacted before.
async fn compacted(world: &World, models: Option<Arc<dyn Models>>) -> LiveSession {
    let live = world.create_with(SessionOptions { models, ..options(world, 4_000) }).await;
    for n in 0..5 {
        assert_eq!(live.run(&long(&format!("question-{n}"))).await, Outcome::Done);
    }
    live
}

fn summary_node(live: &LiveSession) -> NodeId {
    let nodes = live.all(|event| match event {
        Event::CompactionEnded { result, .. } => match &**result {
            CompactionResult::Done { node, .. } => Some(*node),
            other => panic!("{other:?}"),
        },
        _ => None,
    });
    nodes[0]
}

fn notes(live: &LiveSession) -> Vec<String> {
    live.all(|event| match event {
        Event::Ui { ui: quipu::protocol::Ui::Notice { notice: Notice::Note { text } } } => Some(text.clone()),
        _ => None,
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn summary_is_made_by_the_model_of_its_purpose() {
    let world = World::with((0..6).map(|n| say(&long(&format!("answer-{n}")))));
    let other = Arc::new(Fake::default());
    // The window is smaller than the session's: the conversation is read in pieces.
    other.push((0..8).map(|_| say("## Goal\nCounting.")));
    let live = compacted(&world, set("compaction", other.clone())).await;
    let summaries = other.bodies();
    assert!(
        summaries.len() > 1 && summaries.iter().all(|body| is_summary_request(body)),
        "{}",
        summaries.len()
    );
    assert!(!world.fake.bodies().iter().any(|body| is_summary_request(body)));
    assert_eq!(notes(&live), [""; 0]);
    let node = summary_node(&live);
    live.finish().await;
    let nodes: Vec<_> = world.store.nodes(&[node]).await.unwrap().into_iter().flatten().collect();
    let decoded = decode_nodes(&*world.store, &nodes).await.unwrap();
    let call = decoded[0].step.call.as_ref().unwrap();
    assert_eq!((&*call.model, &*call.provider), ("small-model", "elsewhere"));
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn summary_of_a_local_session_stays_on_this_machine() {
    let mut replies: Vec<_> = (0..4).map(|n| say(&long(&format!("answer-{n}")))).collect();
    replies.extend([say("## Goal\nCounting."), say("## Goal\nCounting."), say("last")]);
    let world = World::with(replies);
    let far = Arc::new(Fake::default());
    let live = compacted(&world, set("compaction", Arc::new(FarProvider(far.clone())))).await;
    assert!(far.bodies().is_empty() && world.fake.bodies().iter().any(|body| is_summary_request(body)));
    let notes = notes(&live);
    assert!(
        notes.iter().any(|note| note.contains("runs on this machine and small-model does not")),
        "{notes:?}"
    );
    live.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn purpose_whose_model_cannot_be_used_is_left_to_the_session() {
    let mut replies: Vec<_> = (0..4).map(|n| say(&long(&format!("answer-{n}")))).collect();
    replies.extend([say("## Goal\nCounting."), say("## Goal\nCounting."), say("last")]);
    let world = World::with(replies);
    let found = Err(ModelLookupError::Failed { why: "no key".into() });
    let live = compacted(&world, Some(Arc::new(PurposeSetting { purpose: "compaction", found }))).await;
    assert!(world.fake.bodies().iter().any(|body| is_summary_request(body)));
    let notes = notes(&live);
    assert!(
        notes.iter().any(|note| note.contains("The model set for `compaction` cannot be used")),
        "{notes:?}"
    );
    live.finish().await;
}

/// Calls of a runner that name no model.
#[tokio::test]
async fn runner_asks_the_model_of_its_purpose() {
    let world = World::new();
    let other = Arc::new(Fake::default());
    other.push([say("A name")]);
    let engine: &Engine = &world.engine;
    let models = set("title", other.clone());
    let runner = engine.runner(SessionOptions { models, ..world.options() });
    let ask = |word: &str| CallRequest::new(RunnerPurpose::new(word).unwrap(), "Name this.");
    assert_eq!(runner.call(ask("title")).await.unwrap().text, "A name");
    assert_eq!(runner.call(ask("opinion")).await.unwrap().text, "done");
    assert_eq!((other.bodies().len(), world.fake.bodies().len()), (1, 1));
    let far = Arc::new(Fake::default());
    let models = set("title", Arc::new(FarProvider(far.clone())));
    let runner = engine.runner(SessionOptions { models, ..world.options() });
    assert_eq!(runner.call(ask("title")).await.unwrap().text, "done");
    assert!(far.bodies().is_empty(), "what is local stays local");
}
