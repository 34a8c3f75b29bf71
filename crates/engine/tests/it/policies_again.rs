//! Calls that are decided again: what ends such a decision, and what a yes that was given before covers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use quipu::protocol::{Answer, Event, Outcome, Setting};
use quipu::{
    Decision, Delivery, PolicyContext, PolicyError, SessionOptions, ToolOutput, ToolPolicy, ToolRequest,
    ToolVerdict, Touches,
};
use serde_json::json;

use crate::policies::{Act, FixedPolicy, Step, answer, chain, records};
use crate::support::{Gate, World, call, say, touching};

/// Asks a person first; asked again, never answers.
struct AskOncePolicy {
    times: AtomicU64,
    version: Arc<AtomicU64>,
    dropped: Mutex<Option<tokio::sync::oneshot::Sender<()>>>,
    reached: Gate,
}

/// Says that it was dropped.
struct DropNotice(Option<tokio::sync::oneshot::Sender<()>>);

impl Drop for DropNotice {
    fn drop(&mut self) {
        if let Some(sender) = self.0.take() {
            sender.send(()).ok();
        }
    }
}

impl ToolPolicy for AskOncePolicy {
    fn name(&self) -> &str {
        "never again"
    }

    fn version(&self) -> u64 {
        self.version.load(Ordering::SeqCst)
    }

    fn decide<'a>(
        &'a self,
        _: &'a ToolRequest<'a>,
        _: &'a PolicyContext,
    ) -> BoxFuture<'a, Result<ToolVerdict, PolicyError>> {
        Box::pin(async {
            if self.times.fetch_add(1, Ordering::SeqCst) == 0 {
                return Ok(ToolVerdict::ask("Really?"));
            }
            let _notice = DropNotice(self.dropped.lock().unwrap().take());
            self.reached.pass().await;
            Ok(ToolVerdict::allow())
        })
    }
}

#[tokio::test]
async fn decision_of_an_open_question_ends_with_the_question() {
    for aborts in [true, false] {
        let world = World::with([call(&[("echo", json!({ "text": "a" }))]), say("well")]);
        let (dropped, ended) = tokio::sync::oneshot::channel();
        let (version, gate) = (Arc::new(AtomicU64::new(1)), Gate::new());
        let step: Arc<dyn ToolPolicy> = Arc::new(AskOncePolicy {
            times: AtomicU64::new(0),
            version: version.clone(),
            dropped: Mutex::new(Some(dropped)),
            reached: gate.clone(),
        });
        let live = world.create_with(SessionOptions { policies: vec![step], ..world.options() }).await;
        let person = live.session.subscribe_and_answer(Delivery::Live).await.unwrap();
        live.session.prompt("go").await.unwrap();
        live.until(1, |event| matches!(event, Event::AskOpened { .. })).await;
        version.fetch_add(1, Ordering::SeqCst);
        live.session.set(Setting::Permissions).await.unwrap();
        gate.reached().await;
        if aborts {
            live.session.abort().await.unwrap();
        } else {
            answer(&live, 1, Answer::Deny { reason: None }).await;
        }
        ended.await.unwrap();
        live.settled(1).await;
        assert_eq!(live.outcomes(), [if aborts { Outcome::Aborted } else { Outcome::Done }]);
        assert!(live.results()[0].2, "{:?}", live.results());
        drop(person);
        live.finish().await;
        world.check().await;
    }
}

#[tokio::test]
async fn yes_does_not_cover_a_step_that_asks_later() {
    for (second, runs) in [(Answer::once(), true), (Answer::Deny { reason: None }, false)] {
        let gate = Gate::new();
        let mut world = World::with([
            call(&[("wait", json!({ "text": "a" })), ("late", json!({ "text": "b" }))]),
            say("well"),
        ]);
        let file = || Touches::Writes(vec![world.cwd().join("f")]);
        let waits = gate.clone();
        let wait = touching("wait", file(), move |_, _| {
            let waits = waits.clone();
            async move {
                waits.pass().await;
                ToolOutput::text("a")
            }
        });
        let late = touching("late", file(), |_, _| async { ToolOutput::text("b") });
        world.tools = vec![wait, late];
        let first = Arc::new(Step::new("first", |request| {
            let is_late = request.call.name == "late";
            Act::Say(if is_late { ToolVerdict::ask("First?") } else { ToolVerdict::NoOpinion })
        }));
        let strict = Arc::new(AtomicU64::new(0));
        let now = strict.clone();
        let other = Arc::new(Step::new("other", move |_| {
            Act::Say(match now.load(Ordering::SeqCst) {
                0 => ToolVerdict::NoOpinion,
                _ => ToolVerdict::ask("Other?"),
            })
        }));
        let policies = chain([&first, &other]);
        let policy = Arc::new(FixedPolicy(Decision::Allow));
        let live = world.create_with(SessionOptions { policy, policies, ..world.options() }).await;
        let person = live.session.subscribe_and_answer(Delivery::Live).await.unwrap();
        live.session.prompt("go").await.unwrap();
        let asked = answer(&live, 1, Answer::once()).await;
        assert_eq!(asked.question, "First? (first)");
        gate.reached().await;
        strict.store(1, Ordering::SeqCst);
        other.bump();
        gate.open();
        let asked = answer(&live, 2, second).await;
        assert_eq!(asked.question, "First? (first) Other? (other)");
        live.settled(1).await;
        let results = live.results();
        assert_eq!((results[0].1.as_str(), results[1].2), ("a", !runs), "{results:?}");
        let kept = records(&world, &live).await;
        let did = |policy| json!({ "policy": policy, "question": "call", "did": "asked" });
        assert_eq!(kept, [json!([did("first"), did("other")])]);
        drop(person);
        live.finish().await;
        world.check().await;
    }
}

#[tokio::test]
async fn yes_covers_the_same_questions_after_rules_change() {
    let gate = Gate::new();
    let mut world = World::with([
        call(&[("wait", json!({ "text": "a" })), ("late", json!({ "text": "b" }))]),
        say("well"),
    ]);
    let file = || Touches::Writes(vec![world.cwd().join("f")]);
    let waits = gate.clone();
    let wait = touching("wait", file(), move |_, _| {
        let waits = waits.clone();
        async move {
            waits.pass().await;
            ToolOutput::text("a")
        }
    });
    let late = touching("late", file(), |_, _| async { ToolOutput::text("b") });
    world.tools = vec![wait, late];
    let step = Arc::new(Step::new("first", |request| {
        let is_late = request.call.name == "late";
        Act::Say(if is_late { ToolVerdict::ask("First?") } else { ToolVerdict::NoOpinion })
    }));
    let live = world.create_with(SessionOptions { policies: chain([&step]), ..world.options() }).await;
    let person = live.session.subscribe_and_answer(Delivery::Live).await.unwrap();
    live.session.prompt("go").await.unwrap();
    answer(&live, 1, Answer::once()).await;
    gate.reached().await;
    step.bump();
    gate.open();
    live.settled(1).await;
    assert_eq!(live.results()[1].1, "b");
    assert_eq!(live.all(|event| matches!(event, Event::AskOpened { .. }).then_some(())).len(), 1);
    drop(person);
    live.finish().await;
    world.check().await;
}
