//! A call that is begun before its session is there.

use std::sync::Arc;

use quipu::protocol::{Entry, NodeId, Notice, Outcome, UnixMs};
use quipu::store::{StepCall, Store, Until, Upkeep, decode_nodes};
use quipu::{Clock, EarlyCall, Engine, SessionOptions};

use crate::support::{Gate, Live, World, open_store, say};

/// Always the same time: bodies of these tests hold it.
struct Still;

impl Clock for Still {
    fn now(&self) -> UnixMs {
        1_800_000_000_000
    }
}

/// A store with a session, the same once more without knowing of what comes, and the node to go on from.
async fn world(replies: impl IntoIterator<Item = crate::support::Reply>) -> (World, Engine, NodeId) {
    let mut world = World::with([say("Left or right?")]);
    world.engine = world.engine.with_clock(Arc::new(Still));
    let live = world.create().await;
    live.run("Where to?").await;
    let head = live.session.view().head.unwrap();
    live.finish().await;
    world.fake.push(replies);
    let aside = world.dir.path().join("aside");
    std::fs::create_dir(&aside).unwrap();
    world.store.backup(&aside.join("quipu.db")).await.unwrap();
    let aside = world.engine.over(open_store(&aside));
    (world, aside, head)
}

/// The call that a session below `at` would make first when it is told `prompt`.
async fn begun(world: &World, aside: &Engine, at: NodeId, prompt: &str) -> Arc<EarlyCall> {
    let first = aside.first_request(at, world.options(), prompt.into()).await.unwrap();
    let id = first.session().clone();
    assert!(world.store.pending(&id).await.unwrap().steps.is_empty());
    let call = world.engine.begin_early(first, world.fake.clone()).await.unwrap();
    let steps = world.store.pending(&id).await.unwrap().steps;
    assert_eq!(steps.iter().map(|step| &step.call).collect::<Vec<_>>(), [&StepCall::Early]);
    Arc::new(call)
}

fn with(world: &World, call: &Arc<EarlyCall>) -> SessionOptions {
    SessionOptions { id: Some(call.session().clone()), early: Some(call.clone()), ..world.options() }
}

#[tokio::test]
async fn the_first_request_gets_the_answer_to_the_call_that_was_begun() {
    let gate = Gate::new();
    let slow = crate::support::Reply { before: Some(gate.clone()), ..say("Left it is.") };
    let (world, aside, head) = world([slow, say("On.")]).await;
    let call = begun(&world, &aside, head, "Left.").await;
    gate.reached().await;
    assert_eq!(world.fake.bodies().len(), 2);
    let live = Live::of(world.engine.go_on_from(head, with(&world, &call)).await.unwrap().session).await;
    gate.open();
    assert_eq!(live.run("Left.").await, Outcome::Done);
    assert_eq!(live.run("And then?").await, Outcome::Done);
    assert_eq!(live.said().last().unwrap(), "assistant: On.");
    assert_eq!(world.fake.bodies().len(), 3, "each was sent once");
    assert!(call.finish().await);
    assert_eq!(world.store.pending(call.session()).await.unwrap().steps, []);
    live.finish().await;
    drop(aside);
    world.check().await;
}

#[tokio::test]
async fn another_request_stops_the_call_and_is_made_itself() {
    let never = crate::support::Reply { before: Some(Gate::new()), ..say("Left it is.") };
    let (world, aside, head) = world([never, say("Right it is.")]).await;
    let call = begun(&world, &aside, head, "Left.").await;
    let live = Live::of(world.engine.go_on_from(head, with(&world, &call)).await.unwrap().session).await;
    assert_eq!(live.run("Right.").await, Outcome::Done);
    assert_eq!(live.said().last().unwrap(), "assistant: Right it is.");
    assert_eq!(world.fake.bodies().len(), 3);
    assert!(!call.finish().await);
    let id = live.id();
    live.finish().await;
    // What it may have cost is kept beside the conversation, which goes on as if it had not been.
    let (live, troubles) = world.open(&id).await;
    assert_eq!(troubles, [Notice::Interrupted { calls: Vec::new(), model_call: true }]);
    live.run("On.").await;
    assert!(world.fake.last_messages().iter().all(|message| crate::support::text_of(message) != "Left."));
    live.finish().await;
    drop(aside);
    world.check().await;
}

#[tokio::test]
async fn a_call_of_a_dead_process_is_kept_by_the_session_that_takes_its_place() {
    let (world, aside, head) = world([]).await;
    let call = begun(&world, &aside, head, "Left.").await;
    let id = call.session().clone();
    // As far as the store can tell.
    drop(call);
    let options = SessionOptions { id: Some(id.clone()), ..world.options() };
    let opened = world.engine.go_on_from(head, options).await.unwrap();
    assert_eq!(opened.troubles, [Notice::Interrupted { calls: Vec::new(), model_call: true }]);
    assert_eq!(world.store.pending(&id).await.unwrap().steps, []);
    let live = Live::of(opened.session).await;
    live.run("Right.").await;
    let head = live.session.view().head.unwrap();
    live.finish().await;
    let nodes = world.store.lineage(head, Until::Count(4)).await.unwrap();
    let decoded = decode_nodes(&*world.store, &nodes).await.unwrap();
    assert!(matches!(&decoded[0].entry, Entry::Session(start) if start.session == id));
    assert!(matches!(&decoded[1].entry, Entry::Meta(json) if json.get().contains("quipu.early")));
    assert_eq!(decoded[1].step.call.as_ref().unwrap().head, nodes[0].record.parent.unwrap());
    drop(aside);
    // The call may not have been sent before it was stopped, and is recorded all the same.
    world.check().await;
}

#[tokio::test]
async fn nothing_is_foreseen_where_something_else_comes_first() {
    let (world, aside, head) = world([]).await;
    let mut options = world.options();
    options.limits.daily_budget = Some(0.0);
    assert!(aside.first_request(head, options, "Left.".into()).await.is_none());
    assert!(aside.first_request(head, world.options(), "".into()).await.is_none());
    assert_eq!(world.fake.bodies().len(), 1);
    drop(aside);
    world.check().await;
}
