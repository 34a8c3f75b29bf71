//! Policies behind the permissions: the strictest verdict counts, what fails denies its own call, and a step about tools
//! opens neither a way elsewhere nor the sandbox.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use quipu::protocol::{
    Answer, Ask, AskKind, AssistantMessage, Command, Content, Entry, Event, Json, Outcome, Permission,
    Provenance, Scope, Setting, ToolCall,
};
use quipu::store::{LineageEnd, Store as _, decode_nodes};
use quipu::{
    CallVerdict, ConfinementRequest, ConfinementVerdict, Crossing, Decision, Delivery, Grant, GrantError,
    Hook, HookContext, HookError, MessageVerdict, POLICY_TEXT, PermissionMode, PermissionRules, Permissions,
    Policy, PolicyContext, PolicyError, Proposal, SandboxSupport, SessionOptions, ToolOutput, ToolPolicy,
    ToolRequest, ToolVerdict, Touches, TravelRequest, TravelVerdict,
};
use quipu_testkit::SpanCollector;
use serde_json::{Value, json};

use crate::hooks::notes;
use crate::support::{Gate, LiveSession, World, call, gated, say, touching};

/// What a step does about a call.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    Say(ToolVerdict),
    Error,
    Panics,
    Hangs,
    Floods,
}

type StepFn = dyn Fn(&ToolRequest<'_>) -> Act + Send + Sync;

/// A step made of closures and verdicts.
pub(crate) struct Step {
    name: &'static str,
    decides: Box<StepFn>,
    travel: TravelVerdict,
    confinement: ConfinementVerdict,
    version: AtomicU64,
    /// The calls that it was asked about.
    asked: Mutex<Vec<String>>,
    /// How calls would reach beyond their bounds, as it was told.
    pub(crate) crossings: Mutex<Vec<Crossing>>,
    granted: Mutex<Vec<(Grant, Scope)>>,
    holds: Result<Scope, GrantError>,
}

impl Step {
    /// Its rules change.
    pub(crate) fn bump(&self) {
        self.version.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn new(
        name: &'static str,
        decides: impl Fn(&ToolRequest<'_>) -> Act + Send + Sync + 'static,
    ) -> Self {
        Self {
            name,
            decides: Box::new(decides),
            travel: TravelVerdict::NoOpinion,
            confinement: ConfinementVerdict::NoOpinion,
            version: AtomicU64::new(0),
            asked: Mutex::default(),
            crossings: Mutex::default(),
            granted: Mutex::default(),
            holds: Ok(Scope::Always),
        }
    }

    pub(crate) fn of(name: &'static str, act: Act) -> Self {
        Self::new(name, move |_| act.clone())
    }

    pub(crate) fn says(name: &'static str, verdict: ToolVerdict) -> Self {
        Self::of(name, Act::Say(verdict))
    }

    pub(crate) fn travelling(self, travel: TravelVerdict) -> Self {
        Self { travel, ..self }
    }

    pub(crate) fn confining(self, confinement: ConfinementVerdict) -> Self {
        Self { confinement, ..self }
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

impl ToolPolicy for Step {
    fn name(&self) -> &str {
        self.name
    }

    fn deadline(&self) -> Duration {
        Duration::from_millis(if self.name.contains("slow") { 20 } else { 60_000 })
    }

    fn version(&self) -> u64 {
        self.version.load(Ordering::SeqCst)
    }

    fn decide<'a>(
        &'a self,
        request: &'a ToolRequest<'a>,
        _: &'a PolicyContext,
    ) -> BoxFuture<'a, Result<ToolVerdict, PolicyError>> {
        self.asked.lock().unwrap().push(request.call.id.to_string());
        let act = (self.decides)(request);
        Box::pin(async move {
            match act {
                Act::Say(verdict) => Ok(verdict),
                Act::Error => Err(PolicyError::new("its list is gone")),
                Act::Panics => panic!("a policy that breaks down"),
                Act::Hangs => std::future::pending().await,
                Act::Floods => Ok(ToolVerdict::deny("x".repeat(POLICY_TEXT + 1))),
            }
        })
    }

    fn travel<'a>(
        &'a self,
        _: &'a TravelRequest<'a>,
        _: &'a PolicyContext,
    ) -> BoxFuture<'a, Result<TravelVerdict, PolicyError>> {
        Box::pin(std::future::ready(Ok(self.travel.clone())))
    }

    fn confinement<'a>(
        &'a self,
        request: &'a ConfinementRequest<'a>,
        _: &'a PolicyContext,
    ) -> BoxFuture<'a, Result<ConfinementVerdict, PolicyError>> {
        self.crossings.lock().unwrap().extend_from_slice(request.crossings);
        Box::pin(std::future::ready(Ok(self.confinement.clone())))
    }

    fn grant(&self, grant: Grant, scope: Scope) -> BoxFuture<'_, Result<Scope, GrantError>> {
        self.granted.lock().unwrap().push((grant, scope));
        Box::pin(std::future::ready(self.holds.clone()))
    }
}

/// Permissions that say the same of every call.
pub(crate) struct FixedPolicy(pub(crate) Decision);

impl Policy for FixedPolicy {
    fn decide(&self, _: &Proposal<'_>) -> Decision {
        self.0.clone()
    }
}

pub(crate) fn chain<const N: usize>(steps: [&Arc<Step>; N]) -> Vec<Arc<dyn ToolPolicy>> {
    steps.into_iter().map(|step| Arc::clone(step) as Arc<dyn ToolPolicy>).collect()
}

fn asks(live: &LiveSession) -> Vec<Arc<Ask>> {
    live.all(|event| match event {
        Event::AskOpened { ask } => Some(ask.clone()),
        _ => None,
    })
}

/// Waits for a question, and answers it.
pub(crate) async fn answer(live: &LiveSession, nth: usize, answer: Answer) -> Permission {
    // Where nobody is asked, the run ends.
    live.until(nth, |event| matches!(event, Event::AskOpened { .. } | Event::Settled)).await;
    let ask = asks(live).get(nth - 1).cloned().expect("a person is asked");
    live.session.send(Command::Answer { ask: ask.id.clone(), answer }).await.unwrap();
    ask.permission().unwrap().clone()
}

/// What the results say of policies, one list for each that says something.
pub(crate) async fn records(world: &World, live: &LiveSession) -> Vec<Value> {
    let head = live.session.view().head.unwrap();
    let nodes = world.store.lineage(head, LineageEnd::Root).await.unwrap();
    let decoded = decode_nodes(&*world.store, &nodes).await.unwrap();
    let messages = decoded.into_iter().filter(|one| matches!(&one.entry, Entry::Message(_)));
    messages.filter_map(|one| Some(one.step.extra.get("policies")?.value())).collect()
}

fn echoes(texts: &[&str]) -> World {
    let calls: Vec<_> = texts.iter().map(|text| ("echo", json!({ "text": text }))).collect();
    World::with([call(&calls), say("well")])
}

#[tokio::test]
async fn steps_see_sealed_calls_in_order_behind_the_permissions() {
    const TOKEN: &str = "ghp_0123456789abcdefghijklmnopqrstuvwxyz";
    struct OrderPolicy(Arc<Mutex<Vec<&'static str>>>);
    impl Policy for OrderPolicy {
        fn decide(&self, _: &Proposal<'_>) -> Decision {
            self.0.lock().unwrap().push("permissions");
            Decision::Allow
        }
    }
    let world = echoes(&[TOKEN]);
    let order: Arc<Mutex<Vec<&'static str>>> = Arc::default();
    let step = |name: &'static str| {
        let order = order.clone();
        Arc::new(Step::new(name, move |request| {
            order.lock().unwrap().push(name);
            assert_eq!(request.origin, &Provenance::model());
            assert!(!request.call.arguments.get().contains(TOKEN), "{}", request.call.arguments);
            assert!(request.subject().contains("[REDACTED:"), "{}", request.subject());
            assert_eq!(request.touches, &Touches::Nothing);
            Act::Say(ToolVerdict::NoOpinion)
        }))
    };
    let (one, two) = (step("one"), step("two"));
    let policy = Arc::new(OrderPolicy(order.clone()));
    let options = SessionOptions { policy, policies: chain([&one, &two]), ..world.options() };
    let live = world.create_with(options).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    assert!(!live.results()[0].2, "{:?}", live.results());
    assert_eq!(*order.lock().unwrap(), ["permissions", "one", "two"]);
    assert_eq!(records(&world, &live).await, [Value::Null; 0]);
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn denial_behind_a_permission_counts_and_ends_the_chain() {
    let world = echoes(&["a"]);
    let kind = Arc::new(Step::says("kind", ToolVerdict::allow()));
    let strict = Arc::new(Step::says("strict", ToolVerdict::deny("not on a Friday")));
    let behind = Arc::new(Step::says("behind", ToolVerdict::allow()));
    let policies = chain([&kind, &strict, &behind]);
    let live = world.create_with(SessionOptions { policies, ..world.options() }).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    let (_, text, is_error) = live.results().remove(0);
    assert!(is_error && text.contains("strict") && text.contains("not on a Friday"), "{text}");
    assert_eq!((kind.asked().len(), strict.asked().len(), behind.asked().len()), (1, 1, 0));
    let kept = records(&world, &live).await;
    assert_eq!(kept, [json!([{ "policy": "strict", "question": "call", "did": "denied" }])]);
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn permissions_that_deny_end_the_chain() {
    let world = echoes(&["a"]);
    let kind = Arc::new(Step::says("kind", ToolVerdict::allow()));
    let policy = Arc::new(FixedPolicy(Decision::Deny { reason: "Not here.".into() }));
    let options = SessionOptions { policy, policies: chain([&kind]), ..world.options() };
    let live = world.create_with(options).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    assert_eq!(live.results()[0].1, "Not here.");
    assert_eq!(kind.asked(), [""; 0]);
    let kept = records(&world, &live).await;
    assert_eq!(kept, [json!([{ "policy": "permissions", "question": "call", "did": "denied" }])]);
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn grant_of_a_step_does_not_answer_the_permissions() {
    let world = echoes(&["a"]);
    let kind = Arc::new(Step::says("kind", ToolVerdict::allow()));
    let decision = Decision::Ask { question: "Run it?".into(), subject: "a".into() };
    let options = SessionOptions {
        policy: Arc::new(FixedPolicy(decision)),
        policies: chain([&kind]),
        ..world.options()
    };
    let live = world.create_with(options).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    let (_, text, is_error) = live.results().remove(0);
    assert!(is_error && text.contains("needs a person's permission") && text.contains("Run it?"), "{text}");
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn call_without_any_opinion_is_asked() {
    for steps in [0, 2] {
        let world = echoes(&["a"]);
        let silent = Arc::new(Step::says("silent", ToolVerdict::NoOpinion));
        let policies = chain([&silent, &silent]).into_iter().take(steps).collect();
        let policy = Arc::new(FixedPolicy(Decision::NoOpinion));
        let live = world.create_with(SessionOptions { policy, policies, ..world.options() }).await;
        let person = live.session.subscribe_and_answer(Delivery::Live).await.unwrap();
        live.session.prompt("go").await.unwrap();
        let asked = answer(&live, 1, Answer::once()).await;
        live.settled(1).await;
        assert!(asked.question.contains("No policy decides"), "{asked:?}");
        assert_eq!(asked.scopes, [Scope::Once]);
        assert_eq!(live.results()[0].1, "a");
        drop(person);
        live.finish().await;
        world.check().await;
    }
}

#[tokio::test]
async fn step_allows_a_call_without_an_opinion_of_the_permissions() {
    let world = echoes(&["a"]);
    let kind = Arc::new(Step::says("kind", ToolVerdict::allow()));
    let policy = Arc::new(FixedPolicy(Decision::NoOpinion));
    let options = SessionOptions { policy, policies: chain([&kind]), ..world.options() };
    let live = world.create_with(options).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    assert_eq!(live.results()[0], ("c1".into(), "a".into(), false));
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn yes_for_the_session_is_told_to_the_step_that_asked() {
    let world = World::with([
        call(&[("echo", json!({ "text": "a" }))]),
        call(&[("echo", json!({ "text": "a" }))]),
        say("well"),
    ]);
    let kept: Arc<Mutex<Vec<Grant>>> = Arc::default();
    let granted = kept.clone();
    let careful = Arc::new(Step::new("careful", move |request| {
        let grant = Grant { tool: request.call.name.clone(), subject: request.subject() };
        Act::Say(match granted.lock().unwrap().contains(&grant) {
            true => ToolVerdict::Allow { grants: vec![grant] },
            false => ToolVerdict::Ask {
                question: "Really?\nTruly?".into(),
                scopes: vec![Scope::Once, Scope::Session],
            },
        })
    }));
    let other = Arc::new(Step::says("other", ToolVerdict::NoOpinion));
    let policies = chain([&careful, &other]);
    let live = world.create_with(SessionOptions { policies, ..world.options() }).await;
    let person = live.session.subscribe_and_answer(Delivery::Live).await.unwrap();
    live.session.prompt("go").await.unwrap();
    live.until(1, |event| matches!(event, Event::AskOpened { .. })).await;
    // What the step keeps, before the call is decided again.
    kept.lock().unwrap().push(Grant { tool: "echo".into(), subject: "{\"text\":\"a\"}".into() });
    let asked = answer(&live, 1, Answer::Allow { scope: Scope::Session }).await;
    assert_eq!((&*asked.question, &*asked.subject), ("Really? Truly? (careful)", "{\"text\":\"a\"}"));
    assert_eq!(asked.scopes, [Scope::Once, Scope::Session]);
    live.settled(1).await;
    assert_eq!(asks(&live).len(), 1, "it goes by what was granted");
    assert!(live.results().iter().all(|(_, text, is_error)| text == "a" && !is_error));
    let grant = Grant { tool: "echo".into(), subject: "{\"text\":\"a\"}".into() };
    assert_eq!(*careful.granted.lock().unwrap(), [(grant, Scope::Session)]);
    assert_eq!(*other.granted.lock().unwrap(), []);
    let on = json!([{ "tool": "echo", "subject": "{\"text\":\"a\"}" }]);
    assert_eq!(
        records(&world, &live).await,
        [
            json!([{ "policy": "careful", "question": "call", "did": "asked" }]),
            json!([{ "policy": "careful", "question": "call", "did": "allowed", "grants": on }]),
        ]
    );
    drop(person);
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn question_of_two_lasts_as_long_as_the_shorter_allows() {
    struct GrantPolicy(Mutex<Vec<(Grant, Scope)>>);
    impl Policy for GrantPolicy {
        fn decide(&self, _: &Proposal<'_>) -> Decision {
            Decision::Ask { question: "Run it?".into(), subject: "what it does".into() }
        }
        fn scopes(&self, _: &Grant) -> Vec<Scope> {
            vec![Scope::Once, Scope::Session, Scope::Always]
        }
        fn grant(&self, grant: Grant, scope: Scope) -> Result<Scope, GrantError> {
            self.0.lock().unwrap().push((grant, scope));
            Ok(scope)
        }
    }
    let world = echoes(&["a"]);
    let base = Arc::new(GrantPolicy(Mutex::default()));
    let scopes = vec![Scope::Once, Scope::Session];
    let ask = ToolVerdict::Ask { question: "Really?".into(), scopes };
    let careful = Arc::new(Step { holds: Ok(Scope::Once), ..Step::says("careful", ask) });
    let options = SessionOptions { policy: base.clone(), policies: chain([&careful]), ..world.options() };
    let live = world.create_with(options).await;
    let person = live.session.subscribe_and_answer(Delivery::Live).await.unwrap();
    live.session.prompt("go").await.unwrap();
    let asked = answer(&live, 1, Answer::Allow { scope: Scope::Session }).await;
    assert_eq!((&*asked.question, &*asked.subject), ("Run it? Really? (careful)", "what it does"));
    assert_eq!(asked.scopes, [Scope::Once, Scope::Session]);
    live.settled(1).await;
    let of = |subject: &str| Grant { tool: "echo".into(), subject: subject.into() };
    assert_eq!(*base.0.lock().unwrap(), [(of("what it does"), Scope::Session)]);
    assert_eq!(*careful.granted.lock().unwrap(), [(of("{\"text\":\"a\"}"), Scope::Session)]);
    let closed = live.all(|event| match event {
        Event::AskClosed { answer, .. } => answer.clone(),
        _ => None,
    });
    assert_eq!(closed, [Answer::once()], "the step keeps nothing, so it holds once");
    drop(person);
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn failing_step_denies_its_call_alone_and_people_are_told() {
    let cases = [
        (Act::Error, "its list is gone"),
        (Act::Panics, "bug in the policy"),
        (Act::Hangs, "within 0.02 s"),
        (Act::Floods, "the limit is 16384"),
    ];
    for (act, expected) in cases {
        let world = echoes(&["bad", "good"]);
        let broken = Arc::new(Step::new("slow guard", move |request| {
            let bad = request.call.arguments.get().contains("bad");
            if bad { act.clone() } else { Act::Say(ToolVerdict::NoOpinion) }
        }));
        let behind = Arc::new(Step::says("behind", ToolVerdict::allow()));
        let policies = chain([&broken, &behind]);
        let live = world.create_with(SessionOptions { policies, ..world.options() }).await;
        assert_eq!(live.run("go").await, Outcome::Done);
        let results = live.results();
        assert!(results[0].2, "{results:?}");
        assert!(results[0].1.contains("slow guard") && results[0].1.contains(expected), "{results:?}");
        assert_eq!(results[1], ("c2".into(), "good".into(), false));
        assert_eq!(behind.asked(), ["c2"]);
        let told = notes(&live);
        let fits = |text: &String| text.contains("slow guard") && text.contains(expected);
        assert!(matches!(&told[..], [text] if fits(text) && text.contains("echo")), "{told:?}");
        let kept = records(&world, &live).await;
        assert_eq!(kept, [json!([{ "policy": "slow guard", "question": "call", "did": "failed" }])]);
        live.finish().await;
        world.check().await;
    }
}

#[tokio::test]
async fn step_that_hangs_does_not_hold_up_an_abort() {
    let world = echoes(&["a"]);
    let gate = Gate::new();
    let reached = gate.clone();
    struct WaitingStep(Gate);
    impl ToolPolicy for WaitingStep {
        fn name(&self) -> &str {
            "waits"
        }
        fn decide<'a>(
            &'a self,
            _: &'a ToolRequest<'a>,
            _: &'a PolicyContext,
        ) -> BoxFuture<'a, Result<ToolVerdict, PolicyError>> {
            Box::pin(async {
                self.0.pass().await;
                Ok(ToolVerdict::allow())
            })
        }
    }
    let policies: Vec<Arc<dyn ToolPolicy>> = vec![Arc::new(WaitingStep(gate))];
    let live = world.create_with(SessionOptions { policies, ..world.options() }).await;
    live.session.prompt("go").await.unwrap();
    reached.reached().await;
    live.session.abort().await.unwrap();
    live.settled(1).await;
    assert_eq!(live.outcomes(), [Outcome::Aborted]);
    assert_eq!(live.results(), [("c1".into(), "Operation aborted".into(), true)]);
    assert_eq!(notes(&live), [""; 0]);
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn clock_of_a_step_stands_still_while_it_asks() {
    struct Asks;
    impl ToolPolicy for Asks {
        fn name(&self) -> &str {
            "asks"
        }
        fn deadline(&self) -> Duration {
            Duration::from_millis(40)
        }
        fn decide<'a>(
            &'a self,
            request: &'a ToolRequest<'a>,
            cx: &'a PolicyContext,
        ) -> BoxFuture<'a, Result<ToolVerdict, PolicyError>> {
            Box::pin(async move {
                assert!(cx.session().is_some() && cx.run().is_some());
                assert_eq!(cx.cwd(), request.cwd);
                let kind = AskKind::Confirm { title: "Whose change is it?".into(), text: String::new() };
                let answer = cx.ask(kind, Answer::Confirm { yes: false }, None).await;
                let answer = answer.map_err(PolicyError::new)?;
                Ok(ToolVerdict::deny(format!("{answer:?}")))
            })
        }
    }
    let world = echoes(&["a"]);
    let policies: Vec<Arc<dyn ToolPolicy>> = vec![Arc::new(Asks)];
    let live = world.create_with(SessionOptions { policies, ..world.options() }).await;
    let person = live.session.subscribe_and_answer(Delivery::Live).await.unwrap();
    live.session.prompt("go").await.unwrap();
    live.until(1, |event| matches!(event, Event::AskOpened { .. })).await;
    // Longer than it may take by itself.
    let waited = std::time::Instant::now();
    while waited.elapsed() < Duration::from_millis(120) {
        tokio::task::yield_now().await;
    }
    let (ask, answer) = (asks(&live)[0].id.clone(), Answer::Confirm { yes: true });
    live.session.send(Command::Answer { ask, answer }).await.unwrap();
    live.settled(1).await;
    let text = live.results().remove(0).1;
    assert!(text.contains("yes: true"), "{text}");
    assert_eq!(notes(&live), [""; 0]);
    drop(person);
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn rules_of_a_step_that_change_before_a_call_begins_count() {
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
    let late = touching("late", file(), |_, _| async { panic!("it does not run") });
    world.tools = vec![wait, late];
    let closed = Arc::new(AtomicU64::new(0));
    let now = closed.clone();
    let list = Arc::new(Step::new("list", move |_| {
        Act::Say(match now.load(Ordering::SeqCst) {
            0 => ToolVerdict::NoOpinion,
            _ => ToolVerdict::deny("closed by now"),
        })
    }));
    let live = world.create_with(SessionOptions { policies: chain([&list]), ..world.options() }).await;
    live.session.prompt("go").await.unwrap();
    gate.reached().await;
    closed.store(1, Ordering::SeqCst);
    list.version.fetch_add(1, Ordering::SeqCst);
    gate.open();
    live.settled(1).await;
    let results = live.results();
    assert_eq!(results[0].1, "a", "what had begun goes on: {results:?}");
    assert!(results[1].2 && results[1].1.contains("closed by now"), "{results:?}");
    assert_eq!(list.asked(), ["c1", "c2", "c2"]);
    let kept = records(&world, &live).await;
    assert_eq!(kept, [json!([{ "policy": "list", "question": "call", "did": "denied" }])]);
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn open_question_is_decided_again_by_the_whole_chain() {
    let outside = tempfile::tempdir().unwrap();
    let file = outside.path().canonicalize().unwrap().join("f");
    for (then, runs) in [(ToolVerdict::NoOpinion, true), (ToolVerdict::deny("changed its mind"), false)] {
        let mut world =
            World::with([call(&[("write", json!({ "path": file, "content": "new" }))]), say("well")]);
        world.tools = quipu::builtin();
        let rules = |mode| PermissionRules {
            mode,
            cwd: world.cwd(),
            own: world.cwd().join("../own"),
            support: Some(SandboxSupport::Missing),
            ..PermissionRules::default()
        };
        let permissions = Arc::new(Permissions::new(rules(PermissionMode::Workspace), []));
        let again = AtomicU64::new(0);
        let step = Arc::new(Step::new("step", move |_| {
            Act::Say(match again.fetch_add(1, Ordering::SeqCst) {
                0 => ToolVerdict::allow(),
                _ => then.clone(),
            })
        }));
        let options =
            SessionOptions { policy: permissions.clone(), policies: chain([&step]), ..world.options() };
        let live = world.create_with(options).await;
        let person = live.session.subscribe_and_answer(Delivery::Live).await.unwrap();
        live.session.prompt("go").await.unwrap();
        live.until(1, |event| matches!(event, Event::AskOpened { .. })).await;
        permissions.exchange(rules(PermissionMode::Full), []);
        live.session.set(Setting::Permissions).await.unwrap();
        live.settled(1).await;
        let results = live.results();
        assert_eq!(results[0].2, !runs, "{results:?}");
        assert_eq!(results[0].1.contains("changed its mind"), !runs, "{results:?}");
        let by_policy = live.all(|event| match event {
            Event::AskClosed { by_policy, .. } => Some(*by_policy),
            _ => None,
        });
        assert_eq!(by_policy, [true]);
        let kept = records(&world, &live).await;
        let asked = json!({ "policy": "permissions", "question": "call", "did": "asked" });
        let denied = json!({ "policy": "step", "question": "call", "did": "denied" });
        assert_eq!(kept, [if runs { json!([asked]) } else { json!([asked, denied]) }]);
        drop(person);
        live.finish().await;
        world.check().await;
    }
}

/// Changes the text of each call, or asks; changes answers that say so.
struct Changes;

impl Hook for Changes {
    fn name(&self) -> &str {
        "changes"
    }

    fn tool_call<'a>(
        &'a self,
        call: &'a ToolCall,
        _: &'a HookContext,
    ) -> BoxFuture<'a, Result<CallVerdict, HookError>> {
        let text = call.arguments.get();
        let verdict = match (text.contains("ask"), text.contains("mine")) {
            (true, _) => CallVerdict::Ask { question: "May it?".into() },
            (_, true) => CallVerdict::Pass,
            (..) => CallVerdict::Replace(Json::from(&json!({ "text": "changed" }))),
        };
        Box::pin(std::future::ready(Ok(verdict)))
    }

    fn message_end<'a>(
        &'a self,
        message: &'a AssistantMessage,
        _: &'a HookContext,
    ) -> BoxFuture<'a, Result<MessageVerdict, HookError>> {
        let call = message.tool_calls().find(|call| call.arguments.get().contains("replace")).cloned();
        let verdict = call.map_or(MessageVerdict::Pass, |call| {
            let arguments = Json::from(&json!({ "text": "mine" }));
            MessageVerdict::Replace(vec![Content::ToolCall(ToolCall { arguments, ..call })])
        });
        Box::pin(std::future::ready(Ok(verdict)))
    }
}

#[tokio::test]
async fn policy_steps_see_hook_changes_and_no_hook_questions() {
    let texts = |text: &str| ("echo", json!({ "text": text }));
    let world =
        World::with([call(&[texts("a"), texts("ask")]), call(&[texts("replace")]), call(&[texts("ask")])]);
    let seen: Arc<Mutex<Vec<(String, Provenance)>>> = Arc::default();
    let sees = seen.clone();
    let step = Arc::new(Step::new("step", move |request| {
        let text = request.call.arguments.value()["text"].as_str().unwrap().to_owned();
        sees.lock().unwrap().push((text, request.origin.clone()));
        Act::Say(ToolVerdict::allow())
    }));
    let hooks: Vec<Arc<dyn Hook>> = vec![Arc::new(Changes)];
    let options = SessionOptions { hooks, policies: chain([&step]), ..world.options() };
    let live = world.create_with(options).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    let results = live.results();
    assert_eq!(results[0], ("c1".into(), "changed".into(), false));
    assert!(results[1].1.contains("needs a person's permission"), "{results:?}");
    assert!(results[1].1.contains("May it? (changes)"), "{results:?}");
    let of = |text: &str, origin: &Provenance| (text.to_owned(), origin.clone());
    let (hook, model) = (Provenance::hook("changes"), Provenance::model());
    assert_eq!(
        *seen.lock().unwrap(),
        [of("changed", &hook), of("ask", &model), of("mine", &hook), of("ask", &model)]
    );
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn record_of_a_result_outlives_a_crash() {
    let gate = Gate::new();
    let mut world =
        World::with([call(&[("echo", json!({ "text": "a" })), ("wait", json!({ "text": "b" }))])]);
    world.tools.push(gated("wait", &gate));
    let list = Arc::new(Step::new("list", |request| {
        let grant = Grant { tool: request.call.name.clone(), subject: request.subject() };
        Act::Say(ToolVerdict::Allow { grants: vec![grant] })
    }));
    let live = world.create_with(SessionOptions { policies: chain([&list]), ..world.options() }).await;
    live.session.prompt("go").await.unwrap();
    gate.reached().await;
    live.until(1, |event| matches!(event, Event::ToolEnded { .. })).await;
    let id = live.id();
    live.session.kill();
    drop(live.ended().await);
    let (live, _) = world.open(&id).await;
    world.fake.push([say("on")]);
    assert_eq!(live.run("next").await, Outcome::Done);
    let on = json!([{ "tool": "echo", "subject": "{\"text\":\"a\"}" }]);
    let allowed = json!([{ "policy": "list", "question": "call", "did": "allowed", "grants": on }]);
    assert_eq!(records(&world, &live).await, [allowed]);
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn each_answer_of_the_chain_is_a_span() {
    let traced = SpanCollector::default();
    let _collecting = traced.collect();
    let world = echoes(&["a"]);
    let kind = Arc::new(Step::says("kind", ToolVerdict::allow()));
    let broken = Arc::new(Step::of("broken", Act::Error));
    let policies = chain([&kind, &broken]);
    let live = world.create_with(SessionOptions { policies, ..world.options() }).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    live.finish().await;
    let all = traced.all();
    let at = (0..all.len()).filter(|&at| traced.path(at) == "session/run/turn/policy");
    let spans: Vec<[String; 3]> =
        at.map(|at| ["policy", "question", "outcome"].map(|field| all[at].fields[field].clone())).collect();
    let of = |policy: &str, outcome: &str| [policy, "call", outcome].map(str::to_owned);
    let expected = [of("permissions", "allowed"), of("kind", "allowed"), of("broken", "failed")];
    assert_eq!(spans, expected);
    world.check().await;
}
