//! Another model, or another level of thinking, for a session that is open.

use std::sync::Arc;

use quipu::protocol::{Ack, Entry, Event, Model, NodeId, Notice, Outcome, Setting, Thinking, Ui};
use quipu::store::{LineageEnd, Store, decode_nodes};
use quipu::{FindError, ModelLookupError, Models, Provider, Refusal, SessionOptions};
use serde_json::json;

use crate::support::{Fake, Gate, LiveSession, World, call, gated, model, say};

/// Knows one other model, which another provider carries requests to.
struct SingleModel(Arc<Model>, Arc<Fake>);

impl Models for SingleModel {
    fn find(&self, provider: &str, id: &str) -> Result<(Arc<Model>, Arc<dyn Provider>), ModelLookupError> {
        let found = self.0.provider == provider && self.0.id == id;
        found.then(|| (self.0.clone(), self.1.clone() as _)).ok_or_else(|| {
            let pattern = format!("{provider}/{id}");
            ModelLookupError::NotFound(FindError::UnknownModel { pattern, similar: Vec::new() })
        })
    }

    fn remarks(&self, model: &Model) -> Vec<String> {
        if model.name.is_empty() { Vec::new() } else { vec![format!("{} cannot search.", model.name)] }
    }
}

fn other() -> Arc<Model> {
    let (id, provider, reasoning) = ("other-model".into(), "elsewhere".into(), true);
    Arc::new(Model { id, api: "test".into(), provider, reasoning, ..Model::default() })
}

fn to_other() -> Setting {
    Setting::Model { provider: "elsewhere".into(), id: "other-model".into() }
}

/// A session that knows the other model, and who answers for that.
async fn create(world: &World) -> (LiveSession, Arc<Fake>) {
    let fake = Arc::new(Fake::default());
    let models = Some(Arc::new(SingleModel(other(), fake.clone())) as Arc<dyn Models>);
    (world.create_with(SessionOptions { models, ..world.options() }).await, fake)
}

/// What stands on the lineage of a session, in a word each.
async fn words(world: &World, head: NodeId) -> Vec<String> {
    let nodes = world.store.lineage(head, LineageEnd::Root).await.unwrap();
    let decoded = decode_nodes(&*world.store, &nodes).await.unwrap();
    let word = |entry: &Entry| match entry {
        Entry::Session(start) => format!("session {}", start.epoch.model),
        Entry::Epoch(epoch) => format!("epoch {} {:?}", epoch.model, epoch.thinking),
        Entry::Message(message) => message.role().unwrap().into_owned(),
        other => format!("{other:?}"),
    };
    decoded.iter().map(|one| word(&one.entry)).collect()
}

fn changes(live: &LiveSession) -> Vec<(Option<NodeId>, String, Thinking)> {
    live.all(|event| match event {
        Event::EpochChanged { node, model, thinking } => Some((*node, model.id.clone(), *thinking)),
        _ => None,
    })
}

/// The checks of bodies ask one provider; those of the other are put there.
fn together(world: &World, fake: &Fake) {
    world.fake.bodies.lock().unwrap().extend(fake.bodies());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_model_change_applies_to_next_request() {
    let world = World::with([say("one")]);
    let (live, fake) = create(&world).await;
    fake.push([say("two")]);
    live.run("a").await;
    assert_eq!(live.session.set(to_other()).await, Ok(Ack::Handled));
    let head = live.session.view().head.unwrap();
    live.settled(2).await;
    assert_eq!(changes(&live).last().unwrap(), &(Some(head), "other-model".into(), Thinking::Off));
    let expect = ["session test-model", "user", "assistant", "epoch other-model Off"];
    assert_eq!(words(&world, head).await, expect);
    // The same again is nothing new.
    assert_eq!(live.session.set(to_other()).await, Ok(Ack::Handled));
    assert_eq!(live.session.view().head, Some(head));
    assert_eq!(live.session.set(Setting::Thinking { level: Thinking::High }).await, Ok(Ack::Handled));
    // The run, and each change.
    live.settled(3).await;

    assert_eq!(live.run("b").await, Outcome::Done);
    assert_eq!((world.fake.bodies().len(), fake.bodies().len()), (1, 1));
    let said: Vec<String> = fake.last_messages().iter().map(crate::support::text_of).collect();
    assert_eq!(said, ["a", "one", "b"]);
    let head = live.session.view().head.unwrap();
    let id = live.id();
    live.finish().await;
    let nodes = world.store.lineage(head, LineageEnd::Root).await.unwrap();
    assert!(nodes.last().unwrap().config.as_deref().unwrap().contains("other-model"), "who wrote the answer");
    let expect = ["epoch other-model Off", "epoch other-model High", "user", "assistant"];
    assert_eq!(words(&world, head).await[3..], expect);
    together(&world, &fake);
    let world = world.check().await;
    // Opened with what it stands in, it goes on without another node.
    let options = SessionOptions {
        model: other(),
        thinking: Thinking::High,
        provider: fake.clone(),
        ..world.options()
    };
    let live = LiveSession::of(world.engine.open(&id, options).await.unwrap().session).await;
    live.run("c").await;
    let head = live.session.view().head.unwrap();
    assert_eq!(words(&world, head).await[7..], ["user", "assistant"]);
    live.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn model_change_while_working_applies_to_next_turn() {
    let gate = Gate::new();
    let mut world = World::with([call(&[("wait", json!({ "text": "waited" }))])]);
    world.tools = vec![gated("wait", &gate)];
    let (live, fake) = create(&world).await;
    fake.push([say("done there")]);
    live.session.prompt("a").await.unwrap();
    gate.reached().await;
    let rest = async {
        // Commands are taken in the order in which they were sent.
        live.session.follow_up("b").await.unwrap();
        assert_eq!(changes(&live), []);
        gate.open();
    };
    let (model, level) =
        (live.session.set(to_other()), live.session.set(Setting::Thinking { level: Thinking::Low }));
    let (model, level, ()) = tokio::join!(model, level, rest);
    assert_eq!((model, level), (Ok(Ack::Handled), Ok(Ack::Handled)));
    live.settled(1).await;
    assert_eq!((world.fake.bodies().len(), fake.bodies().len()), (1, 2));
    let head = live.session.view().head.unwrap();
    let expect = [
        "session test-model",
        "user",
        "assistant",
        "toolResult",
        "epoch other-model Low",
        "assistant",
        "user",
        "assistant",
    ];
    assert_eq!(words(&world, head).await, expect);
    assert_eq!(live.all(|event| matches!(event, Event::RunEnded { .. }).then_some(())).len(), 1);
    live.finish().await;
    together(&world, &fake);
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn before_anything_is_said_the_session_begins_so() {
    let world = World::new();
    let (live, fake) = create(&world).await;
    assert_eq!(live.session.set(Setting::Thinking { level: Thinking::Max }).await, Ok(Ack::Handled));
    assert_eq!(live.session.set(to_other()).await, Ok(Ack::Handled));
    assert_eq!(live.session.view().head, None);
    assert_eq!(live.session.set(Setting::Thinking { level: Thinking::High }).await, Ok(Ack::Handled));
    // A level that the model does not have becomes one that it has.
    let expect =
        [(None, "other-model".to_owned(), Thinking::Off), (None, "other-model".into(), Thinking::High)];
    live.until(2, |event| matches!(event, Event::EpochChanged { .. })).await;
    assert_eq!(changes(&live), expect);
    live.run("a").await;
    let head = live.session.view().head.unwrap();
    assert_eq!(words(&world, head).await, ["session other-model", "user", "assistant"]);
    live.finish().await;
    together(&world, &fake);
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn remarks_about_a_model_are_said_when_it_is_chosen() {
    let world = World::with([say("one")]);
    let model = Arc::new(Model { name: "Other".into(), ..Model::clone(&other()) });
    let models = Some(Arc::new(SingleModel(model, Arc::default())) as Arc<dyn Models>);
    let live = world.create_with(SessionOptions { models, ..world.options() }).await;
    live.run("a").await;
    let unknown = Setting::Model { provider: "elsewhere".into(), id: "none".into() };
    assert!(live.session.set(unknown).await.is_err());
    assert_eq!(live.session.set(to_other()).await, Ok(Ack::Handled));
    live.until(1, |event| matches!(event, Event::Ui { ui: Ui::Notice { .. } })).await;
    let notes = live.all(|event| match event {
        Event::Ui { ui: Ui::Notice { notice: Notice::Note { text } } } => Some(text.clone()),
        _ => None,
    });
    assert_eq!(notes, ["Other cannot search."]);
    live.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_model_is_refused_and_changes_nothing() {
    let world = World::new();
    let (live, _) = create(&world).await;
    live.run("a").await;
    let head = live.session.view().head;
    let nobody = Setting::Model { provider: "nobody".into(), id: "none".into() };
    assert_eq!(
        live.session.set(nobody).await,
        Err(Refusal::NoSuchModel { why: "There is no model \"nobody/none\".".into() })
    );
    assert_eq!((live.session.view().head, changes(&live)), (head, vec![]));
    live.finish().await;
    // One that knows no others.
    let live = world.create().await;
    assert!(matches!(live.session.set(to_other()).await, Err(Refusal::NoSuchModel { .. })));
    assert_eq!(model().id, "test-model");
    live.finish().await;
    world.check().await;
}
