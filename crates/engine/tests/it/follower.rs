//! Who watches commits: told of each, in order, once it is durable; and never able to harm a run.

use quipu_store::Store as _;
use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use quipu::protocol::{Entry, Event, Notice, Outcome};
use quipu::store::{Graph, Until, decode_nodes};
use quipu::{ChangeError, Committed, Follower, SessionOptions};
use serde_json::json;

use crate::support::{Gate, Live, World, call, say};

/// Keeps what it is told, each time with whether the store had it by then.
struct Watcher {
    store: Arc<dyn Graph>,
    seen: Mutex<Vec<(Committed, bool)>>,
    /// Passed before each note.
    gate: Option<Gate>,
    says: Option<&'static str>,
    panics: bool,
}

impl Watcher {
    fn of(world: &World) -> Self {
        Self { store: world.store.clone(), seen: Mutex::default(), gate: None, says: None, panics: false }
    }
}

impl Follower for Watcher {
    fn committed(&self, commit: Committed) -> BoxFuture<'_, Vec<Notice>> {
        Box::pin(async move {
            if let Some(gate) = &self.gate {
                gate.pass().await;
            }
            let found = self.store.nodes(&commit.nodes).await.unwrap();
            self.seen.lock().unwrap().push((commit, found.iter().all(Option::is_some)));
            assert!(!self.panics, "as it was told");
            self.says.map(|text| Notice::Note { text: text.into() }).into_iter().collect()
        })
    }
}

fn following(world: &World, watcher: &Arc<Watcher>) -> SessionOptions {
    SessionOptions { follower: Some(watcher.clone()), ..world.options() }
}

#[tokio::test]
async fn each_commit_is_told_in_order() {
    let world = World::with([call(&[("echo", json!({ "text": "hi" }))]), say("Done."), say("Again.")]);
    let watcher = Arc::new(Watcher::of(&world));
    let live = Live::of(world.engine.create(following(&world, &watcher)).await.unwrap()).await;
    live.run("Do it.").await;
    live.run("And again.").await;
    let (id, head) = (live.id(), live.session.view().head.unwrap());
    live.finish().await;
    let world = world.check().await;
    let seen = std::mem::take(&mut *watcher.seen.lock().unwrap());
    assert!(seen.iter().all(|(commit, stored)| *stored && commit.session == id && !commit.nodes.is_empty()));
    let told: Vec<_> = seen.into_iter().flat_map(|(commit, _)| commit.nodes).collect();
    let lineage = world.store.lineage(head, Until::Root).await.unwrap();
    assert_eq!(told, lineage.iter().map(|node| node.id).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_slow_one_holds_nothing_up_and_is_waited_for_at_the_end() {
    let gate = Gate::new();
    let world = World::with([say("One."), say("Two.")]);
    let watcher = Arc::new(Watcher { gate: Some(gate.clone()), ..Watcher::of(&world) });
    let live = Live::of(world.engine.create(following(&world, &watcher)).await.unwrap()).await;
    assert_eq!(live.run("first").await, Outcome::Done);
    assert_eq!(live.run("second").await, Outcome::Done);
    assert!(watcher.seen.lock().unwrap().is_empty());
    gate.open();
    live.finish().await;
    assert_eq!(watcher.seen.lock().unwrap().iter().map(|(commit, _)| commit.nodes.len()).sum::<usize>(), 5);
    world.check().await;
}

#[tokio::test]
async fn one_that_fails_is_told_and_harms_nothing() {
    for panics in [false, true] {
        let world = World::with([say("One."), say("Two.")]);
        let says = Some("the disk is full");
        let watcher = Arc::new(Watcher { says, panics, ..Watcher::of(&world) });
        let session = world.engine.create(following(&world, &watcher)).await.unwrap();
        let (_, mut events) = session.subscribe(quipu::Delivery::Lossless).await.unwrap();
        assert_eq!(session.ask("first").await.unwrap().0, Outcome::Done);
        let told = loop {
            if let Event::Ui { ui: quipu::protocol::Ui::Notice { notice: Notice::Note { text } } } =
                &events.next().await.unwrap().event
            {
                break text.clone();
            }
        };
        assert!(told.contains(if panics { "bug in the follower" } else { "the disk is full" }), "{told}");
        assert_eq!(session.ask("second").await.unwrap(), (Outcome::Done, "Two.".into()));
        drop(events);
        session.shutdown().await;
        assert!(watcher.seen.lock().unwrap().len() > 2);
        world.check().await;
    }
}

#[tokio::test]
async fn a_session_advances_to_what_another_program_wrote_below_it() {
    let world = World::with([say("One."), say("Two."), say("Three.")]);
    let live = world.create().await;
    live.run("first").await;
    let (id, head) = (live.id(), live.session.view().head.unwrap());
    assert!(matches!(world.engine.advance(&id, head).await, Ok(true)), "it stands there");
    // A fork stands for what another program wrote.
    let other = Live::of(world.engine.fork(head, world.options()).await.unwrap().session).await;
    other.run("second").await;
    let below = other.session.view().head.unwrap();
    other.finish().await;
    assert!(matches!(world.engine.advance(&id, below).await, Err(ChangeError::Busy(_))));
    live.finish().await;
    assert!(world.engine.advance(&id, below).await.unwrap());
    assert!(!world.engine.advance(&id, head).await.unwrap(), "never back");
    let live = Live::of(world.engine.open(&id, world.options()).await.unwrap().session).await;
    live.run("third").await;
    let head = live.session.view().head.unwrap();
    live.finish().await;
    let nodes = world.store.lineage(head, Until::Root).await.unwrap();
    let entries = decode_nodes(&*world.store, &nodes).await.unwrap();
    assert_eq!(entries.iter().filter(|one| matches!(one.entry, Entry::Message(_))).count(), 6);
}

#[tokio::test]
async fn open_calls_are_no_reason_to_refuse_where_nobody_answers_them() {
    let gate = Gate::new();
    let world = World::with([call(&[("echo", json!({ "text": "hi" }))]), say("On.")]);
    drop(gate);
    let live = world.create().await;
    live.run("Do it.").await;
    let head = live.session.view().head.unwrap();
    live.finish().await;
    let nodes = world.store.lineage(head, Until::Root).await.unwrap();
    let answer = nodes.iter().find(|node| node.record.role == "assistant").unwrap().id;
    assert!(world.engine.fork(answer, world.options()).await.is_err());
    let live = Live::of(world.engine.go_on_from(answer, world.options()).await.unwrap().session).await;
    assert_eq!(live.run("on").await, Outcome::Done);
    live.finish().await;
}
