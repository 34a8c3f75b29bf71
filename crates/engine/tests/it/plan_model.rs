//! The model of plan mode, and the switch as the lineage keeps it.

use std::sync::Arc;

use quipu::protocol::{Answer, AskKind, Command, Event, Model, Notice, SessionId, Setting, Thinking, Ui};
use quipu::{
    Delivery, FindError, ModelLookupError, Models, OpenedSession, PLANS_PURPOSE, PlanningSettings, Provider,
    PurposeModel, SessionOptions, epoch_at,
};
use serde_json::json;

use crate::support::{Fake, LiveSession, World, call, say, text_of};

const ALL: PlanningSettings = PlanningSettings { plan: true, start: None, named_model: false, todo: true };

type Route = (Arc<Model>, Arc<dyn Provider>);

/// A model for plans, and one that a person can choose.
struct PlanModels {
    plans: Result<Option<Route>, ModelLookupError>,
    chosen: Route,
}

impl Models for PlanModels {
    fn find(&self, provider: &str, id: &str) -> Result<Route, ModelLookupError> {
        if id == self.chosen.0.id {
            return Ok(self.chosen.clone());
        }
        let pattern = format!("{provider}/{id}");
        Err(ModelLookupError::NotFound(FindError::UnknownModel { pattern, similar: Vec::new() }))
    }

    fn find_for(&self, purpose: &str) -> Result<Option<PurposeModel>, ModelLookupError> {
        if purpose != PLANS_PURPOSE {
            return Ok(None);
        }
        let found = self.plans.clone()?;
        Ok(found.map(|(model, provider)| PurposeModel { model, provider, thinking: Some(Thinking::High) }))
    }
}

fn model(id: &str) -> Arc<Model> {
    let (id, provider) = (id.into(), "elsewhere".into());
    Arc::new(Model { id, provider, api: "test".into(), context_window: 200_000, ..Model::default() })
}

/// A world with a model for plans and one to choose.
struct PlanWorld {
    world: World,
    planner: Arc<Fake>,
    chosen: Arc<Fake>,
}

impl PlanWorld {
    fn new() -> Self {
        let (planner, chosen) = (Arc::new(Fake::default()), Arc::new(Fake::default()));
        Self { world: World::new(), planner, chosen }
    }

    fn options(&self) -> SessionOptions {
        let models = PlanModels {
            plans: Ok(Some((model("planner"), self.planner.clone()))),
            chosen: (model("chosen"), self.chosen.clone()),
        };
        SessionOptions { planning: ALL, models: Some(Arc::new(models)), ..self.world.options() }
    }

    /// How often each was asked: the session's own, the one for plans, the chosen one.
    fn asked(&self) -> (usize, usize, usize) {
        let asked = |fake: &Fake| fake.bodies().len();
        (asked(&self.world.fake), asked(&self.planner), asked(&self.chosen))
    }

    async fn reopened(&self, id: &SessionId) -> LiveSession {
        reopened(&self.world, id, self.options()).await
    }
}

async fn reopened(world: &World, id: &SessionId, options: SessionOptions) -> LiveSession {
    let OpenedSession { session, .. } = world.engine.open(id, options).await.unwrap();
    LiveSession::of(session).await
}

async fn set(live: &LiveSession, setting: Setting) {
    live.session.send(Command::Set { setting }).await.unwrap();
}

async fn plan(live: &LiveSession, on: bool) {
    set(live, Setting::Plan { on }).await;
}

/// Waits for the first note to the person.
async fn noted(live: &LiveSession) {
    live.until(1, |event| matches!(event, Event::Ui { ui: Ui::Notice { notice: Notice::Note { .. } } }))
        .await;
}

fn notes(live: &LiveSession) -> Vec<String> {
    live.all(|event| match event {
        Event::Ui { ui: Ui::Notice { notice: Notice::Note { text } } } => Some(text.clone()),
        _ => None,
    })
}

/// The ids of the models that the session changed to.
fn changes(live: &LiveSession) -> Vec<(String, Thinking)> {
    live.all(|event| match event {
        Event::EpochChanged { model, thinking, .. } => Some((model.id.clone(), *thinking)),
        _ => None,
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plans_are_made_by_the_model_of_their_purpose() {
    let plan_world = PlanWorld::new();
    let world = &plan_world.world;
    let own = world.options().model.id.clone();
    world.fake.push([say("one"), say("two"), say("worked"), say("three")]);
    plan_world.planner.push([say("planned"), call(&[("plan", json!({ "text": "Do it." }))])]);
    let live = world.create_with(plan_world.options()).await;
    live.run("Before.").await;
    plan(&live, true).await;
    noted(&live).await;
    assert!(notes(&live)[0].contains("elsewhere/planner plans"), "{:?}", notes(&live));
    live.run("Plan.").await;
    assert_eq!(plan_world.asked(), (1, 1, 0));
    plan(&live, false).await;
    live.run("Work.").await;
    assert_eq!(plan_world.asked(), (2, 1, 0));
    assert!(text_of(world.fake.last_messages().last().unwrap()).contains("Plan mode is off"));
    assert_eq!(changes(&live), [("planner".into(), Thinking::Off), (own.clone(), Thinking::Off)]);
    plan(&live, true).await;
    let (id, head) = (live.id(), live.session.view().head.unwrap());
    live.finish().await;

    // No message followed the switch. The session is as it was left, and its own model is not lost.
    let epoch = epoch_at(&*world.store, head).await.unwrap();
    assert_eq!((epoch.model.as_str(), epoch.chosen().1), ("planner", own.as_str()));
    let live = plan_world.reopened(&id).await;
    assert!(live.session.is_planning());
    let (_, mut events) = live.session.subscribe_and_answer(Delivery::Live).await.unwrap();
    let session = live.session.clone();
    let answers = tokio::spawn(async move {
        while let Some(envelope) = events.next().await {
            if let Event::AskOpened { ask } = &envelope.event
                && let AskKind::Choose { .. } = &ask.kind
            {
                let answer = Answer::Choose { option: "accept".into() };
                session.send(Command::Answer { ask: ask.id.clone(), answer }).await.unwrap();
                return;
            }
        }
    });
    live.run("Go on.").await;
    answers.await.unwrap();
    // The plan is accepted: the same run goes on with the session's own model.
    assert_eq!(plan_world.asked(), (3, 2, 0));
    assert!(!live.session.is_planning());
    live.finish().await;
    let live = plan_world.reopened(&id).await;
    assert!(!live.session.is_planning());
    live.run("More.").await;
    assert_eq!(plan_world.asked(), (4, 2, 0));
    live.finish().await;
    plan_world.world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn model_chosen_in_plan_mode_is_kept() {
    let plan_world = PlanWorld::new();
    let world = &plan_world.world;
    let live = world.create_with(plan_world.options()).await;
    live.run("Before.").await;
    plan(&live, true).await;
    set(&live, Setting::Model { provider: "elsewhere".into(), id: "chosen".into() }).await;
    live.run("Plan.").await;
    assert_eq!(plan_world.asked(), (1, 0, 1));
    let id = live.id();
    live.finish().await;
    // Whoever opens it again gives it the model that was chosen.
    let options = || SessionOptions {
        model: model("chosen"),
        provider: plan_world.chosen.clone(),
        ..plan_world.options()
    };
    let live = reopened(world, &id, options()).await;
    live.run("Plan on.").await;
    plan(&live, false).await;
    live.run("Work.").await;
    assert_eq!(plan_world.asked(), (1, 0, 3));
    // The next time it plans, it has the model for plans again.
    plan(&live, true).await;
    live.run("Plan more.").await;
    assert_eq!(plan_world.asked(), (1, 1, 3));
    live.finish().await;
    // Who names a model when the session is opened wants that one.
    let named = SessionOptions {
        planning: PlanningSettings { start: Some(true), named_model: true, ..ALL },
        ..plan_world.options()
    };
    let live = world.create_with(named).await;
    live.run("Plan.").await;
    assert!(live.session.is_planning());
    assert_eq!(plan_world.asked(), (2, 1, 3));
    live.finish().await;
    plan_world.world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unusable_model_for_plans_is_named() {
    let plan_world = PlanWorld::new();
    let world = &plan_world.world;
    let chosen: Route = (model("chosen"), plan_world.chosen.clone());
    let plans = Err(ModelLookupError::Failed { why: "no key".into() });
    let models: Arc<dyn Models> = Arc::new(PlanModels { plans, chosen });
    let options = || SessionOptions { planning: ALL, models: Some(models.clone()), ..world.options() };
    let live = world.create_with(options()).await;
    live.run("Before.").await;
    plan(&live, true).await;
    let said = |notes: &[String]| {
        notes
            .iter()
            .filter(|note| {
                note.contains("The model set for `plans` cannot be used") && note.contains("no key")
            })
            .count()
    };
    noted(&live).await;
    assert_eq!(said(&notes(&live)), 1);
    live.run("Plan.").await;
    plan(&live, false).await;
    live.run("Work.").await;
    assert_eq!((plan_world.asked(), changes(&live)), ((3, 0, 0), Vec::new()));
    live.finish().await;
    let start = PlanningSettings { start: Some(true), ..ALL };
    let live = world.create_with(SessionOptions { planning: start, ..options() }).await;
    live.run("Plan.").await;
    assert_eq!(said(&notes(&live)), 1, "{:?}", notes(&live));
    live.finish().await;
    plan_world.world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn switch_without_a_message_survives_a_restart() {
    let world = World::new();
    let options = || SessionOptions { planning: ALL, ..world.options() };
    let live = world.create_with(options()).await;
    live.run("Before.").await;
    let (id, before) = (live.id(), live.session.view().head.unwrap());
    plan(&live, true).await;
    let switched = live.session.view().head.unwrap();
    assert!(changes(&live).is_empty(), "the model is the same");
    // As a crash would.
    live.session.kill();
    live.ended().await;
    let live = reopened(&world, &id, options()).await;
    assert!(live.session.is_planning());
    live.run("Plan.").await;
    assert!(text_of(world.fake.last_messages().last().unwrap()).contains("Plan mode is on"));
    plan(&live, false).await;
    live.finish().await;
    let live = reopened(&world, &id, options()).await;
    assert!(!live.session.is_planning());
    // The model heard last that it is on.
    live.run("Work.").await;
    assert!(text_of(world.fake.last_messages().last().unwrap()).contains("Plan mode is off"));
    live.finish().await;
    for (at, on) in [(before, false), (switched, true)] {
        let session = world.engine.fork(at, options()).await.unwrap().session;
        assert_eq!(session.is_planning(), on);
        session.shutdown().await;
    }
    let plan = epoch_at(&*world.store, switched).await.unwrap().plan.unwrap();
    assert!(plan.on && plan.before.is_none());
    world.check().await;
}
