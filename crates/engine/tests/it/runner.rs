//! A runner asks models for hooks and sources: what it may spend, how deep it goes, what is recorded and when.

use std::io::{BufRead as _, BufReader};
use std::process::{Command as Process, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use quipu::protocol::{
    Ack, Command, Entry, Event, Limit, Message, Model, ModelError, ModelErrorKind, ModelRequest, MoveFiles,
    MoveReport, Notice, Outcome, Prices, RunId, SessionId, StopReason, ToolCall, ToolResultMessage, Trust,
    UserInput,
};
use quipu::store::{
    LineageEnd, ReadModel as _, RefName, SessionQuery, StepCall, StepState, Store as _, UsageGrouping,
    UsageQuery, decode_nodes,
};
use quipu::{
    Call, CallAnswer, CallEnd, CallRequest, CallVerdict, ChildAnswer, ChildRequest, Context, ContextAsk,
    ContextSource, Decision, Engine, Hook, HookContext, HookError, InputVerdict, Limits, ModelName,
    MoveRequest, MoveVerdict, Policy, Proposal, Provider, ResultVerdict, RunEnd, RunEndVerdict, RunStart,
    RunStartVerdict, Runner, RunnerError, RunnerPurpose, Sealer, Section, SessionOptions, SourceError,
    SourceVersion, ToolSource,
};
use quipu_testkit::SpanCollector;
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::sources::{Bench, plug};
use crate::support::{
    Fake, Gate, KEY, LiveSession, Reply, World, call, echo, engine_over, model, open_store, say, scratch,
};

/// Where a hook does its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HookSite {
    Input,
    ToolCall,
    ToolResult,
    TurnEnd,
    RunEnd,
    Move,
    Start,
}

type Work = dyn Fn(HookContext) -> BoxFuture<'static, ()> + Send + Sync;

/// A hook that does something at one point, and lets all pass.
struct WorkHook {
    at: HookSite,
    work: Box<Work>,
}

impl WorkHook {
    fn hook<F: Future<Output = ()> + Send + 'static>(
        at: HookSite,
        work: impl Fn(HookContext) -> F + Send + Sync + 'static,
    ) -> Arc<dyn Hook> {
        Arc::new(Self { at, work: Box::new(move |cx| work(cx).boxed()) })
    }

    async fn at(&self, at: HookSite, cx: &HookContext) {
        if self.at == at {
            (self.work)(cx.clone()).await;
        }
    }
}

impl Hook for WorkHook {
    fn name(&self) -> &str {
        "asking"
    }

    fn input<'a>(
        &'a self,
        _: &'a UserInput,
        cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<InputVerdict, HookError>> {
        self.at(HookSite::Input, cx).map(|()| Ok(InputVerdict::Pass)).boxed()
    }

    fn tool_call<'a>(
        &'a self,
        _: &'a ToolCall,
        cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<CallVerdict, HookError>> {
        self.at(HookSite::ToolCall, cx).map(|()| Ok(CallVerdict::Pass)).boxed()
    }

    fn tool_result<'a>(
        &'a self,
        _: &'a ToolCall,
        _: &'a ToolResultMessage,
        cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<ResultVerdict, HookError>> {
        self.at(HookSite::ToolResult, cx).map(|()| Ok(ResultVerdict::Pass)).boxed()
    }

    fn turn_end<'a>(&'a self, _: u32, cx: &'a HookContext) -> BoxFuture<'a, Result<(), HookError>> {
        self.at(HookSite::TurnEnd, cx).map(Ok).boxed()
    }

    fn run_end<'a>(
        &'a self,
        _: &'a RunEnd,
        cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<RunEndVerdict, HookError>> {
        self.at(HookSite::RunEnd, cx).map(|()| Ok(RunEndVerdict::Pass)).boxed()
    }

    fn before_run<'a>(
        &'a self,
        _: &'a RunStart,
        cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<RunStartVerdict, HookError>> {
        self.at(HookSite::Start, cx).map(|()| Ok(RunStartVerdict::Pass)).boxed()
    }

    fn before_move<'a>(
        &'a self,
        _: &'a MoveRequest,
        cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<MoveVerdict, HookError>> {
        self.at(HookSite::Move, cx).map(|()| Ok(MoveVerdict::Pass)).boxed()
    }
}

fn purpose() -> RunnerPurpose {
    RunnerPurpose::new("title").unwrap()
}

/// Another one each time.
fn request() -> CallRequest {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let prompt = format!("Name this: {}.", COUNT.fetch_add(1, Ordering::Relaxed));
    CallRequest { system: "You name things.".into(), ..CallRequest::new(purpose(), prompt) }
}

type Answers<T> = mpsc::UnboundedReceiver<Result<T, RunnerError>>;

/// A hook that makes one call each time that it is asked, and what it was answered.
fn calls_at(
    at: HookSite,
    request: impl Fn() -> CallRequest + Send + Sync + 'static,
) -> (Arc<dyn Hook>, Answers<CallAnswer>) {
    let (tell, answers) = mpsc::unbounded_channel();
    let hook = WorkHook::hook(at, move |cx| {
        let (tell, request) = (tell.clone(), request());
        async move { drop(tell.send(cx.runner().call(request).await)) }
    });
    (hook, answers)
}

async fn hooked(world: &World, hook: Arc<dyn Hook>) -> LiveSession {
    world.create_with(SessionOptions { hooks: vec![hook], ..world.options() }).await
}

/// What nodes of the session say of this kind, with the purpose of their calls' records where they have one.
async fn noted(world: &World, session: &SessionId, kind: &str) -> Vec<serde_json::Value> {
    let head = world.store.head(&RefName::session(session)).await.unwrap().unwrap();
    let nodes = world.store.lineage(head, LineageEnd::Root).await.unwrap();
    let decoded = decode_nodes(&*world.store, &nodes).await.unwrap();
    let kinds = decoded.iter().filter_map(|one| match &one.entry {
        Entry::Meta(json) => Some((json.value(), one.step.clone())),
        _ => None,
    });
    let of_kind = kinds.filter(|(json, _): &(serde_json::Value, _)| json["customType"] == kind);
    of_kind
        .map(|(json, step)| {
            let mut data = json["data"].clone();
            data["run"] = json!(step.run);
            data["body"] = json!(step.call.map(|call| call.body));
            data
        })
        .collect()
}

async fn cost_of(world: &World, session: &SessionId) -> f64 {
    let query = UsageQuery { by: UsageGrouping::Session, since: None, until: None };
    let sums = world.store.usage(query).await.unwrap().found;
    sums.iter().filter(|sum| sum.key == session.as_str()).map(|sum| sum.cost).sum()
}

#[tokio::test]
async fn call_is_recorded_with_its_purpose_before_it_is_sent() {
    let traced = SpanCollector::default();
    let _collecting = traced.collect();
    let gate = Gate::new();
    let reply = Reply { cost: 0.25, before: Some(gate.clone()), ..say("A name") };
    let world = World::with([Reply { cost: 0.5, ..say("one") }, reply, say("two")]);
    let (hook, mut answers) = calls_at(HookSite::RunEnd, request);
    let live = hooked(&world, hook).await;
    live.session.prompt("go").await.unwrap();
    gate.reached().await;
    let run = live.session.view().run.unwrap();
    let steps = world.store.pending(&live.id()).await.unwrap().steps;
    let [step] = steps.as_slice() else { panic!("{steps:?}") };
    assert_eq!((&step.call, step.state), (&StepCall::Tool("runner".into()), StepState::Sent));
    let row: serde_json::Value = serde_json::from_slice(step.data.as_ref().unwrap()).unwrap();
    assert_eq!((&row["side"]["purpose"], &row["side"]["run"]), (&json!("title"), &json!(run)));
    let sent = world.fake.bodies().pop().unwrap();
    let body = serde_json::from_value(row["body"].clone()).unwrap();
    assert_eq!(world.store.chunk(body, 0..u64::MAX).await.unwrap(), sent, "the bytes are in the store");
    gate.open();
    live.settled(1).await;
    let answer = answers.recv().await.unwrap().unwrap();
    assert_eq!((&*answer.text, answer.usage.cost.total, answer.session), ("A name", 0.25, live.id()));

    // It stands beside the conversation, and what it cost is the session's.
    assert_eq!(live.run("more").await, Outcome::Done);
    let id = live.id();
    assert_eq!(live.said().iter().filter(|said| said.contains("A name")).count(), 0);
    live.finish().await;
    let kept = noted(&world, &id, "quipu.call").await;
    let [kept, next] = kept.as_slice() else { panic!("{kept:?}") };
    assert_eq!((&kept["purpose"], &kept["run"], &kept["body"]), (&json!("title"), &json!(run), &row["body"]));
    assert_eq!(kept["answer"]["content"][0]["text"], "A name");
    assert!(next["run"] != kept["run"]);
    assert_eq!(cost_of(&world, &id).await, 0.75);
    assert_eq!(world.store.pending(&id).await.unwrap().steps, []);
    let purposes: Vec<String> = traced
        .all()
        .iter()
        .filter(|span| span.name == "model_call")
        .map(|span| span.fields["purpose"].clone())
        .collect();
    assert_eq!(purposes, ["answer", "title", "answer", "title"]);
    world.check().await;
}

#[tokio::test]
async fn call_beyond_its_budget_is_not_sent() {
    let world = World::with([say("one")]);
    // A token costs a cent.
    let cost = Prices { output: 10_000.0, ..Prices::default() };
    let model = Arc::new(Model { max_tokens: 8_192, cost, ..(*model()).clone() });
    let (hook, mut answers) = calls_at(HookSite::Input, || CallRequest { budget: Some(0.5), ..request() });
    let options = SessionOptions { model, hooks: vec![hook], ..world.options() };
    let live = world.create_with(options).await;
    // The first one, before the session has a name, and one of the session.
    for runs in 1..=2 {
        assert_eq!(live.run("go").await, Outcome::Done);
        let refused = answers.recv().await.unwrap().unwrap_err();
        assert!(matches!(&refused, RunnerError::Budget(Limit::Cost(limit)) if *limit == 0.5), "{refused:?}");
        assert_eq!(world.fake.bodies().len(), runs, "only the session's own are sent");
    }
    let id = live.id();
    live.finish().await;
    assert_eq!(noted(&world, &id, "quipu.call").await, Vec::<serde_json::Value>::new());
    world.check().await;
}

#[tokio::test]
async fn run_pays_for_what_its_hooks_ask() {
    let world = World::with([
        Reply { cost: 0.25, ..call(&[("echo", json!({ "text": "a" }))]) },
        Reply { cost: 0.5, ..say("A name") },
    ]);
    let (hook, mut answers) = calls_at(HookSite::ToolCall, request);
    let limits = Limits { max_cost: Some(0.75), ..Limits::default() };
    let options = SessionOptions { limits, hooks: vec![hook], ..world.options() };
    let live = world.create_with(options).await;
    assert_eq!(live.run("go").await, Outcome::Limit(Limit::Cost(0.75)));
    assert_eq!(answers.recv().await.unwrap().unwrap().text, "A name");
    assert_eq!(world.fake.bodies().len(), 2, "nothing is left for another call");
    live.finish().await;

    // And it may ask for no more than is left: 0.25 of it do not pay for the least that a call may cost.
    world.fake.push([
        say("spare"),
        Reply { cost: 0.75, ..call(&[("echo", json!({ "text": "a" }))]) },
        say("so"),
    ]);
    let (hook, mut answers) = calls_at(HookSite::ToolCall, || CallRequest { budget: Some(9.0), ..request() });
    let limits = Limits { max_cost: Some(1.5), ..Limits::default() };
    let options = SessionOptions { limits, model: dear(), hooks: vec![hook], ..world.options() };
    let live = world.create_with(options).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    assert_eq!(live.run("go").await, Outcome::Limit(Limit::Cost(1.5)));
    let refused = answers.recv().await.unwrap().unwrap_err();
    assert!(matches!(refused, RunnerError::Budget(Limit::Cost(_))), "{refused:?}");
    live.finish().await;
    world.check().await;
}

/// A thousand tokens of answer cost a dollar, and an answer has 1,024 at most.
fn dear() -> Arc<Model> {
    let cost = Prices { output: 1_000.0, ..Prices::default() };
    Arc::new(Model { max_tokens: 1_024, cost, ..(*model()).clone() })
}

#[tokio::test]
async fn day_pays_for_what_hooks_ask_and_nothing_stays_reserved() {
    let costs = |cost, text: &str| Reply { cost, ..say(text) };
    let world = World::with([costs(0.25, "one"), costs(0.5, "A name"), costs(0.25, "two")]);
    let (hook, mut answers) = calls_at(HookSite::RunEnd, || CallRequest { budget: Some(9.0), ..request() });
    let limits =
        Limits { daily_budget: Some(2.0), wait: Some(Duration::from_millis(20)), ..Limits::default() };
    let options = SessionOptions { limits, model: dear(), hooks: vec![hook], ..world.options() };
    let live = world.create_with(options).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    assert_eq!(answers.recv().await.unwrap().unwrap().text, "A name");
    assert_eq!(live.run("go").await, Outcome::Done);
    let refused = answers.recv().await.unwrap().unwrap_err();
    assert!(
        matches!(refused, RunnerError::Budget(Limit::Daily { spent, .. }) if (spent - 1.0).abs() < 1e-6),
        "{refused:?}"
    );
    live.finish().await;
    assert_eq!(world.store.spent(0).await.unwrap(), 1.0);
    let later = i64::MAX / 2;
    assert_eq!(world.store.assumed(0, later).await.unwrap(), 0.0, "no reservation is left");
    world.check().await;
}

#[tokio::test]
async fn call_that_takes_too_long_is_stopped_and_recorded() {
    let gate = Gate::new();
    let world = World::with([say("one"), Reply { before: Some(gate.clone()), ..say("late") }]);
    let late = || CallRequest { deadline: Duration::from_millis(30), ..request() };
    let (hook, mut answers) = calls_at(HookSite::RunEnd, late);
    let live = hooked(&world, hook).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    let refused = answers.recv().await.unwrap().unwrap_err();
    assert!(
        matches!(refused, RunnerError::Deadline { after } if after == Duration::from_millis(30)),
        "{refused:?}"
    );
    let id = live.id();
    live.finish().await;
    let kept = noted(&world, &id, "quipu.call").await;
    assert_eq!(kept.len(), 1);
    assert!(kept[0]["error"].as_str().unwrap().contains("Aborted"), "{kept:?}");
    assert!(!kept[0]["body"].is_null(), "that it was sent is known");
    world.check().await;
}

#[tokio::test]
async fn calls_are_aborted_with_their_run_and_with_the_session() {
    let (first, second) = (Gate::new(), Gate::new());
    let world = World::with([
        say("one"),
        Reply { before: Some(first.clone()), ..say("late") },
        say("two"),
        Reply { before: Some(second.clone()), ..say("late") },
    ]);
    // One that nothing waits for, and that goes on when its run is over.
    let (hook, mut answers) = calls_at(HookSite::TurnEnd, request);
    let (block, _open) = tokio::sync::watch::channel(());
    let live = {
        let hold = WorkHook::hook(HookSite::RunEnd, move |_| {
            let mut hold = block.subscribe();
            async move { drop(hold.changed().await) }
        });
        world.create_with(SessionOptions { hooks: vec![hook, hold], ..world.options() }).await
    };
    live.session.prompt("go").await.unwrap();
    first.reached().await;
    live.session.abort().await.unwrap();
    assert!(matches!(answers.recv().await.unwrap(), Err(RunnerError::Aborted)));
    live.settled(1).await;
    assert_eq!(live.outcomes(), [Outcome::Aborted]);
    live.session.prompt("go").await.unwrap();
    second.reached().await;
    let id = live.id();
    // The session waits for what it is to keep of it.
    live.finish().await;
    assert!(matches!(answers.recv().await.unwrap(), Err(RunnerError::Aborted)));
    assert_eq!(noted(&world, &id, "quipu.call").await.len(), 2);
    assert_eq!(world.store.pending(&id).await.unwrap().steps, []);
    world.check().await;
}

#[tokio::test]
async fn hook_that_is_too_slow_loses_its_call() {
    struct SlowHook(mpsc::UnboundedSender<()>);
    impl Hook for SlowHook {
        fn name(&self) -> &str {
            "slow"
        }

        fn deadline(&self) -> Duration {
            Duration::from_millis(30)
        }

        fn run_end<'a>(
            &'a self,
            _: &'a RunEnd,
            cx: &'a HookContext,
        ) -> BoxFuture<'a, Result<RunEndVerdict, HookError>> {
            async {
                drop(cx.runner().call(request()).await);
                self.0.send(()).unwrap();
                Ok(RunEndVerdict::Pass)
            }
            .boxed()
        }
    }
    let gate = Gate::new();
    let world = World::with([say("one"), Reply { before: Some(gate.clone()), ..say("late") }]);
    let (tell, mut told) = mpsc::unbounded_channel();
    let live = hooked(&world, Arc::new(SlowHook(tell))).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    assert!(told.try_recv().is_err(), "its deadline goes on while a model works for it");
    let id = live.id();
    live.finish().await;
    assert!(noted(&world, &id, "quipu.call").await[0]["error"].is_string());
    world.check().await;
}

fn child() -> ChildRequest {
    ChildRequest { system: "You look things up.".into(), ..ChildRequest::new(purpose(), "Look it up.") }
}

fn is_child(session: Option<&SessionId>) -> bool {
    session.is_some_and(|session| session.as_str().starts_with("child-"))
}

/// A hook that begins one child session each time that it is asked outside of one, and what it was answered.
fn children_at(at: HookSite, request: ChildRequest) -> (Arc<dyn Hook>, Answers<ChildAnswer>) {
    let (tell, answers) = mpsc::unbounded_channel();
    let hook = WorkHook::hook(at, move |cx| {
        let (tell, request) = (tell.clone(), request.clone());
        async move {
            if !is_child(cx.session.as_ref()) {
                drop(tell.send(cx.runner().session(request).await));
            }
        }
    });
    (hook, answers)
}

#[tokio::test]
async fn child_sessions_are_three_levels_deep_at_most() {
    let world = World::new();
    let (tell, mut answers) = mpsc::unbounded_channel();
    // Within each child, too.
    let hook = WorkHook::hook(HookSite::Input, move |cx| {
        let tell = tell.clone();
        async move { drop(tell.send(cx.runner().session(child()).await)) }
    });
    let live = hooked(&world, hook).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    // The innermost one is refused; those around it end one after the other.
    let refused = answers.recv().await.unwrap().unwrap_err();
    assert!(matches!(refused, RunnerError::TooDeep { depth: 4 }), "{refused:?}");
    let mut sessions = Vec::new();
    for _ in 0..3 {
        sessions.push(answers.recv().await.unwrap().unwrap().session);
    }
    for (session, depth) in sessions.iter().zip([3, 2, 1]) {
        assert_eq!(noted(&world, session, "quipu.parent").await[0]["depth"], depth);
    }
    assert!(answers.try_recv().is_err());
    assert_eq!(world.fake.bodies().len(), 4);
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn child_session_stands_in_the_graph_and_can_be_opened() {
    let world = World::with([
        say("one"),
        Reply { cost: 0.25, ..say("Found it.") },
        Reply { cost: 0.5, ..say("two") },
    ]);
    let (hook, mut answers) = children_at(HookSite::RunEnd, child());
    let live = hooked(&world, hook).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    let answer = answers.recv().await.unwrap().unwrap();
    assert_eq!((&answer.outcome, &*answer.text, answer.cost), (&Outcome::Done, "Found it.", 0.25));
    let id = live.id();
    live.finish().await;
    assert_eq!(
        noted(&world, &answer.session, "quipu.parent").await,
        [json!({ "purpose": "title", "depth": 1, "parent": id, "run": null, "body": null })]
    );
    let told = noted(&world, &id, "quipu.child").await;
    assert_eq!((&told[0]["session"], &told[0]["cost"]), (&json!(answer.session), &json!(0.25)));
    assert_eq!(cost_of(&world, &id).await, 0.0, "what it cost is counted once, as its own");
    assert_eq!(cost_of(&world, &answer.session).await, 0.25);

    // Nobody meets it by chance, and whoever looks finds it.
    assert_eq!(world.engine.newest(&world.cwd()).await.unwrap().unwrap().id, id);
    let all = async |query: SessionQuery| -> Vec<SessionId> {
        world.store.sessions(query).await.unwrap().into_iter().map(|row| row.id).collect()
    };
    assert_eq!(all(SessionQuery::default()).await, std::slice::from_ref(&id));
    assert_eq!(all(SessionQuery { children: true, ..SessionQuery::default() }).await.len(), 2);
    let below = SessionQuery { parent: Some(id.clone()), ..SessionQuery::default() };
    assert_eq!(all(below).await, std::slice::from_ref(&answer.session));

    // It has no tools, and nothing of its parent's prompt.
    let body: serde_json::Value = serde_json::from_slice(&world.fake.bodies()[1]).unwrap();
    assert_eq!((&body["system"], &body["tools"]), (&json!("You look things up."), &json!([])));
    let (opened, notices) = world.open(&answer.session).await;
    assert_eq!((opened.id(), notices.len()), (answer.session, 0));
    assert_eq!(opened.run("And now?").await, Outcome::Done);
    assert_eq!(opened.said().last().unwrap(), "assistant: two");
    opened.finish().await;
    world.check().await;
}

/// Asks before each call.
struct Asks;

impl Policy for Asks {
    fn decide(&self, _: &Proposal<'_>) -> Decision {
        Decision::Ask { question: "May it?".into(), subject: "x".into() }
    }
}

#[tokio::test]
async fn child_session_uses_lent_tools_under_parent_rules() {
    let world = World::with([say("one"), call(&[("echo", json!({ "text": "a" }))]), say("Found it.")]);
    let lent = ChildRequest { tools: vec!["echo".into()], ..child() };
    let (hook, mut answers) = children_at(HookSite::RunEnd, lent);
    let policy = Arc::new(Asks);
    let options = SessionOptions { hooks: vec![hook], policy, ..world.options() };
    let live = world.create_with(options).await;
    // Somebody who could answer is in front of the parent, and not of the child.
    let _answerer = live.session.subscribe_and_answer(quipu::Delivery::Live).await.unwrap();
    assert_eq!(live.run("go").await, Outcome::Done);
    let answer = answers.recv().await.unwrap().unwrap();
    assert_eq!(answer.text, "Found it.");
    live.finish().await;
    let (opened, _) = world.open(&answer.session).await;
    let head = opened.session.view().head.unwrap();
    let nodes = world.store.lineage(head, LineageEnd::Root).await.unwrap();
    let refused =
        decode_nodes(&*world.store, &nodes).await.unwrap().into_iter().find_map(|one| match one.entry {
            Entry::Message(Message::ToolResult(result)) => Some(result),
            _ => None,
        });
    assert!(refused.unwrap().is_error, "what needs a person is refused");
    opened.finish().await;

    let none = ChildRequest { tools: vec!["bash".into()], ..child() };
    let (hook, mut answers) = children_at(HookSite::RunEnd, none);
    let live = hooked(&world, hook).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    assert!(matches!(answers.recv().await.unwrap(), Err(RunnerError::NoTool(name)) if name == "bash"));
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn child_of_a_session_without_a_name_has_tools_of_sources() {
    let world = World::with([call(&[("plug0", json!({}))]), say("Found it."), say("one")]);
    let lent = ChildRequest { tools: vec!["plug0".into(), "echo".into()], ..child() };
    // Before the first prompt is stored.
    let (hook, mut answers) = children_at(HookSite::Input, lent);
    let source: Arc<dyn ToolSource> = Bench::new("bench", vec![plug("plug0")]);
    let options = SessionOptions { hooks: vec![hook], tool_sources: vec![source], ..world.options() };
    let live = world.create_with(options).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    assert_eq!(answers.recv().await.unwrap().unwrap().text, "Found it.");
    let result = String::from_utf8(world.fake.bodies()[1].to_vec()).unwrap();
    assert!(result.contains("from plug0"), "{result}");
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn child_session_ends_at_its_deadline_and_its_cost_is_the_runs() {
    let gate = Gate::new();
    let world = World::with([
        Reply { cost: 0.25, ..call(&[("echo", json!({ "text": "a" }))]) },
        Reply { cost: 0.375, ..call(&[("echo", json!({ "text": "b" }))]) },
        Reply { before: Some(gate.clone()), ..say("late") },
        Reply { cost: 0.25, ..call(&[("echo", json!({ "text": "c" }))]) },
    ]);
    let slow = ChildRequest { deadline: Duration::from_secs(1), tools: vec!["echo".into()], ..child() };
    let (hook, mut answers) = children_at(HookSite::ToolResult, slow);
    let limits = Limits { max_cost: Some(0.75), ..Limits::default() };
    let options = SessionOptions { limits, hooks: vec![hook], ..world.options() };
    let live = world.create_with(options).await;
    assert_eq!(live.run("go").await, Outcome::Limit(Limit::Cost(0.75)), "the run pays for it");
    assert!(matches!(answers.recv().await.unwrap(), Err(RunnerError::Deadline { .. })));
    assert!(matches!(answers.recv().await.unwrap(), Err(RunnerError::Budget(_))), "nothing is left");
    let id = live.id();
    live.finish().await;
    assert_eq!(noted(&world, &id, "quipu.child").await[0]["cost"], 0.375);
    world.check().await;
}

#[tokio::test]
async fn four_calls_of_a_session_are_under_way_at_most() {
    let gates: Vec<Gate> = (0..5).map(|_| Gate::new()).collect();
    let held = gates.iter().map(|gate| Reply { before: Some(gate.clone()), ..say("so") });
    let world = World::with(std::iter::once(say("one")).chain(held));
    let hook = WorkHook::hook(HookSite::RunEnd, |cx| async move {
        let runner = cx.runner();
        let calls = (0..5).map(|_| runner.call(request()));
        for answer in futures_util::future::join_all(calls).await {
            assert_eq!(answer.unwrap().text, "so");
        }
    });
    let live = hooked(&world, hook).await;
    live.session.prompt("go").await.unwrap();
    for gate in &gates[..4] {
        gate.reached().await;
    }
    assert_eq!(world.fake.bodies().len(), 5);
    gates[2].open();
    gates[4].reached().await;
    gates.iter().for_each(Gate::open);
    live.settled(1).await;
    let id = live.id();
    live.finish().await;
    assert_eq!(noted(&world, &id, "quipu.call").await.len(), 5);
    world.check().await;
}

/// A source of context that asks a model for what it gives.
struct Digest(SourceVersion, Mutex<Vec<SessionId>>);

impl ContextSource for Digest {
    fn name(&self) -> &str {
        "digest"
    }

    fn version(&self) -> SourceVersion {
        self.0.clone()
    }

    fn context<'a>(&'a self, ask: &'a ContextAsk) -> BoxFuture<'a, Result<Context, SourceError>> {
        async {
            let answer = ask.cx.runner().call(request()).await.map_err(SourceError::new)?;
            self.1.lock().unwrap().push(answer.session);
            let section = Section { id: "digest".into(), text: answer.text, trust: Trust::Owner };
            Ok(Context { sections: vec![section], keep_recent: None })
        }
        .boxed()
    }
}

#[tokio::test]
async fn source_asks_a_model_for_its_sections() {
    let world = World::with([
        Reply { cost: 0.25, ..say("First digest.") },
        say("one"),
        Reply { cost: 0.5, ..say("Second digest.") },
        say("two"),
    ]);
    let source = Arc::new(Digest(SourceVersion::new(), Mutex::default()));
    let options = SessionOptions { context_sources: vec![source.clone()], ..world.options() };
    let live = world.create_with(options).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    source.0.change();
    assert_eq!(live.run("go").await, Outcome::Done);
    let id = live.id();
    live.finish().await;
    let systems: Vec<String> = world
        .fake
        .bodies()
        .iter()
        .map(|body| serde_json::from_slice::<serde_json::Value>(body).unwrap()["system"].to_string())
        .collect();
    assert!(systems[1].contains("First digest.") && systems[3].contains("Second digest."), "{systems:?}");
    // While the session had no name, the call was recorded in a session of its own, which names it; then in the session.
    let sessions = source.1.lock().unwrap().clone();
    assert!(sessions[0] != id && sessions[1] == id, "{sessions:?}");
    let mark = &noted(&world, &sessions[0], "quipu.parent").await[0];
    assert_eq!((&mark["parent"], &mark["purpose"]), (&json!(id), &json!("title")));
    assert_eq!(cost_of(&world, &sessions[0]).await, 0.25);
    assert_eq!(noted(&world, &id, "quipu.call").await.len(), 1);
    assert_eq!(cost_of(&world, &id).await, 0.5);
    let (opened, notices) = world.open(&sessions[0]).await;
    assert_eq!(notices, []);
    opened.finish().await;
    world.check().await;
}

#[tokio::test]
async fn secrets_of_requests_and_answers_are_sealed() {
    const SECRET: &str = "correct-horse/battery+staple";
    let mut world = World::with([say("one"), say(&format!("It is {SECRET}.")), say(SECRET)]);
    let sealer = Sealer::new(KEY);
    sealer.know("api-key", SECRET);
    world.engine = Engine::new(world.store.clone(), Arc::new(sealer), world.dir.path().join("spill"));
    let (tell, mut answers) = mpsc::unbounded_channel();
    let hook = WorkHook::hook(HookSite::RunEnd, move |cx| {
        let tell = tell.clone();
        async move {
            let call =
                CallRequest { system: format!("Key: {SECRET}"), ..CallRequest::new(purpose(), SECRET) };
            tell.send(cx.runner().call(call).await.unwrap().text).unwrap();
            let child = ChildRequest { system: SECRET.into(), ..ChildRequest::new(purpose(), SECRET) };
            tell.send(cx.runner().session(child).await.unwrap().text).unwrap();
        }
    });
    // Within the child, too.
    let once = Mutex::new(false);
    let first = WorkHook::hook(HookSite::RunEnd, move |cx| {
        let nested = std::mem::replace(&mut *once.lock().unwrap(), true);
        let work = (!nested).then(|| hook.clone());
        async move {
            if let Some(hook) = work {
                let end = RunEnd { outcome: Outcome::Done, answer: String::new(), again: 0 };
                hook.run_end(&end, &cx).await.unwrap();
            }
        }
    });
    let live = hooked(&world, first).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    for _ in 0..2 {
        let text = answers.recv().await.unwrap();
        assert!(!text.contains(SECRET) && text.contains("[REDACTED:"), "{text}");
    }
    live.finish().await;
    for body in world.fake.bodies() {
        assert!(!String::from_utf8_lossy(&body).contains(SECRET));
    }
    for name in ["quipu.db", "quipu.db-wal"] {
        let bytes = std::fs::read(world.dir.path().join(name)).unwrap_or_default();
        assert!(memchr::memmem::find(&bytes, SECRET.as_bytes()).is_none(), "{name}");
    }
    world.check().await;
}

#[tokio::test]
async fn failures_are_told_apart() {
    let world = World::with([
        say("one"),
        Reply { error: Some(ModelErrorKind::Overloaded), ..say("half") },
        Reply { panics: true, ..say("") },
    ]);
    let (tell, mut told) = mpsc::unbounded_channel();
    let hook = WorkHook::hook(HookSite::RunEnd, move |cx| {
        let tell = tell.clone();
        async move {
            let name = ModelName { provider: "none".into(), id: "none".into() };
            for request in [
                request(),
                request(),
                CallRequest { model: Some(name), ..request() },
                CallRequest { max_tokens: 0, ..request() },
            ] {
                drop(tell.send(cx.runner().call(request).await.unwrap_err()));
            }
        }
    });
    let live = hooked(&world, hook).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    let kinds = async |told: &mut mpsc::UnboundedReceiver<RunnerError>| told.recv().await.unwrap();
    let failed = kinds(&mut told).await;
    assert!(
        matches!(&failed, RunnerError::Model(error) if error.kind == ModelErrorKind::Overloaded),
        "{failed:?}"
    );
    let broke = kinds(&mut told).await;
    assert!(
        matches!(&broke, RunnerError::Model(error) if error.kind == ModelErrorKind::Malformed),
        "{broke:?}"
    );
    assert!(matches!(kinds(&mut told).await, RunnerError::NoModel(_)));
    assert!(matches!(kinds(&mut told).await, RunnerError::BadRequest(quipu::BadRequest::Tokens)));
    let id = live.id();
    live.finish().await;
    let kept = noted(&world, &id, "quipu.call").await;
    assert_eq!(kept[0]["answer"]["content"][0]["text"], "half", "what was said until then is kept");
    assert_eq!(world.store.pending(&id).await.unwrap().steps, []);
}

/// The model of a process that is killed: it answers what hooks ask as it is told, and its own second call never ends.
struct KilledProvider {
    fake: Fake,
    answers: bool,
}

impl Provider for KilledProvider {
    fn encode(&self, request: &ModelRequest) -> Result<Bytes, ModelError> {
        self.fake.encode(request)
    }

    fn is_local(&self) -> bool {
        true
    }

    fn send(&self, call: Call) -> BoxFuture<'_, CallEnd> {
        async move {
            let side = &*call.request.system == "You name things.";
            let again =
                call.request.messages.iter().any(|message| matches!(&**message, Message::ToolResult(_)));
            match (side, self.answers) {
                (true, true) => {
                    self.fake.push([Reply { cost: 0.25, ..say("A name") }]);
                }
                (true, false) => {
                    println!("\n@sent");
                    std::future::pending::<()>().await;
                }
                (false, _) if again => std::future::pending::<()>().await,
                (false, _) => self
                    .fake
                    .push([Reply { cost: 0.5, ..super::support::call(&[("echo", json!({ "text": "a" }))]) }]),
            }
            self.fake.send(call).await
        }
        .boxed()
    }
}

/// Not a test: the part of the process that is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_process() {
    let Some(dir) = std::env::var_os("QUIPU_RUNNER_DIR") else { return };
    let dir = std::path::PathBuf::from(dir);
    let engine = engine_over(open_store(&dir), &dir);
    let answers = std::env::var_os("QUIPU_RUNNER_ANSWERS").is_some();
    let hook = WorkHook::hook(HookSite::TurnEnd, |cx| async move {
        let request = CallRequest { budget: Some(9.0), ..request() };
        cx.runner().call(request).await.unwrap();
        println!("\n@answered");
    });
    let options = SessionOptions {
        tools: vec![echo()],
        hooks: vec![hook],
        id: Some("killed".into()),
        limits: Limits { daily_budget: Some(100.0), ..Limits::default() },
        ..SessionOptions::new(
            dir.join("work"),
            dear(),
            Arc::new(KilledProvider { fake: Fake::default(), answers }),
        )
    };
    let session = engine.create(options).await.unwrap();
    drop(session.ask("go").await);
}

#[test]
fn calls_of_a_killed_process_are_found_on_open() {
    for answers in [false, true] {
        let dir = scratch();
        std::fs::create_dir_all(dir.path().join("work")).unwrap();
        let mut process = Process::new(std::env::current_exe().unwrap());
        process
            .args(["runner::killed_process", "--exact", "--nocapture"])
            .env("QUIPU_RUNNER_DIR", dir.path());
        if answers {
            process.env("QUIPU_RUNNER_ANSWERS", "1");
        }
        let mut process = process.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines().map_while(Result::ok);
        let moment = lines.into_iter().find(|line| line.starts_with('@')).unwrap();
        assert_eq!(moment, if answers { "@answered" } else { "@sent" });
        process.kill().unwrap();
        process.wait().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(found(World::in_dir(dir), answers));
    }
}

async fn found(world: World, answered: bool) {
    let id = SessionId::from("killed");
    let (live, notices) = world.open(&id).await;
    assert!(matches!(&notices[..], [Notice::Interrupted { model_call: true, .. }]), "{notices:?}");
    let kept = noted(&world, &id, "quipu.call").await;
    let [kept] = kept.as_slice() else { panic!("{kept:?}") };
    assert_eq!(kept["purpose"], "title");
    let body = serde_json::from_value(kept["body"].clone()).unwrap();
    assert!(!world.store.chunk(body, 0..u64::MAX).await.unwrap().is_empty());
    if answered {
        assert_eq!(kept["answer"]["content"][0]["text"], "A name");
        // That of the session's own call is left, whose answer is not known.
        assert!(world.store.assumed(0, i64::MAX / 2).await.unwrap() < 1.025, "its cost counts once");
    } else {
        assert!(kept["error"].as_str().unwrap().contains("may have been sent and charged"), "{kept}");
    }
    assert_eq!(cost_of(&world, &id).await, if answered { 0.75 } else { 0.5 });
    assert_eq!(world.store.pending(&id).await.unwrap().steps, []);
    assert_eq!(live.run("again").await, Outcome::Done);
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn program_asks_without_a_session() {
    let world = World::with([Reply { cost: 0.25, ..say("A name") }, say("Found it.")]);
    let runner: Runner = world.engine.runner(world.options());
    let messages = vec![
        Message::user("Name this.", 0),
        Message::Assistant(quipu::protocol::AssistantMessage {
            content: vec![quipu::protocol::Content::text("Which?")],
            stop_reason: StopReason::Stop,
            ..Default::default()
        }),
        Message::user("That.", 0),
    ];
    let answer = runner.call(CallRequest { messages, ..request() }).await.unwrap();
    assert_eq!(answer.text, "A name");
    let mark = &noted(&world, &answer.session, "quipu.parent").await[0];
    assert_eq!((&mark["purpose"], &mark["parent"]), (&json!("title"), &json!(null)));
    assert_eq!(cost_of(&world, &answer.session).await, 0.25);
    let (opened, notices) = world.open(&answer.session).await;
    assert_eq!(notices, []);
    opened.finish().await;
    let child = runner.session(child()).await.unwrap();
    assert_eq!(child.text, "Found it.");
    world.check().await;
}

async fn moved(live: &LiveSession, command: Command) -> MoveReport {
    match live.session.send(command).await {
        Ok(Ack::Moved(moved)) => moved,
        other => panic!("{other:?}"),
    }
}

fn undo() -> Command {
    Command::Undo { steps: 1, files: MoveFiles::Auto }
}

fn redo() -> Command {
    Command::Redo { steps: 1, files: MoveFiles::Auto }
}

#[tokio::test]
async fn calls_of_hooks_stand_in_the_way_of_no_move() {
    let world = World::with([Reply { cost: 0.125, ..say("a0") }, Reply { cost: 0.125, ..say("a1") }]);
    let (hook, mut answers) = calls_at(HookSite::Move, || CallRequest { budget: Some(1.5), ..request() });
    let limits = Limits { daily_budget: Some(100.0), ..Limits::default() };
    let mut options = SessionOptions { limits, model: dear(), hooks: vec![hook], ..world.options() };
    options.compaction.keep_recent_tokens = 1;
    let live = world.create_with(options.clone()).await;
    let mut heads = Vec::new();
    for text in ["q0", "q1"] {
        live.run(&format!("{text} {}", "long ".repeat(2_000))).await;
        heads.push(live.session.view().head.unwrap());
    }
    let asks = || world.fake.push([Reply { cost: 0.25, ..say("A name") }]);
    // Each is one step, back and forward, at once.
    for (command, from, to) in [(undo(), 1, 0), (redo(), 0, 1), (undo(), 1, 0), (redo(), 0, 1)] {
        asks();
        let moved = moved(&live, command).await;
        assert_eq!((moved.from, moved.to, moved.steps.len()), (heads[from], heads[to], 1));
        assert!(answers.recv().await.unwrap().is_ok());
    }
    asks();
    live.session.jump(heads[0], None, None).await.unwrap();
    live.until(1, |event| matches!(event, Event::JumpEnded { .. })).await;
    assert!(answers.recv().await.unwrap().is_ok());
    for (command, to) in [(undo(), 1), (redo(), 0), (undo(), 1)] {
        asks();
        assert_eq!(moved(&live, command).await.to, heads[to]);
        assert!(answers.recv().await.unwrap().is_ok());
    }
    // Until they are nodes the day counts what they cost, and then the same once.
    let now = i64::MAX / 2;
    let spent = async || world.store.spent(0).await.unwrap() + world.store.assumed(0, now).await.unwrap();
    assert_eq!(spent().await, 0.25 + 8.0 * 0.25);
    // A compaction, too.
    world.fake.push([say("sum")]);
    live.session.compact(None).await.unwrap();
    live.until(1, |event| matches!(event, Event::CompactionEnded { .. })).await;
    assert!(!noted(&world, &live.id(), "quipu.call").await.is_empty());
    let compacted = live.session.view().head.unwrap();
    asks();
    let back = moved(&live, Command::UndoCompaction).await;
    assert_ne!(back.to, compacted);
    assert!(answers.recv().await.unwrap().is_ok());

    asks();
    let back = moved(&live, undo()).await;

    let (id, before) = (live.id(), spent().await);
    live.finish().await;
    assert_eq!(spent().await, before);
    assert_eq!(world.store.pending(&id).await.unwrap().steps, []);
    assert_eq!(cost_of(&world, &id).await, 0.25 + 10.0 * 0.25);

    // The end of a session writes them behind the move, which can be done again all the same, and undone.
    let head = world.store.head(&RefName::session(&id)).await.unwrap();
    assert_ne!(head, Some(back.to));
    let again = world.engine.redo(&id, 1).await.unwrap();
    assert_eq!((again[0].from, again[0].to), (head, Some(back.from)));
    let undone = world.engine.undo(&id, 1).await.unwrap();
    assert_eq!((undone[0].to, &undone[0].kind), (Some(back.to), &again[0].kind));
}

#[tokio::test]
async fn run_goes_on_while_a_call_of_a_hook_is_under_way() {
    let gate = Gate::new();
    let held = Reply { cost: 0.25, before: Some(gate.clone()), ..say("A name") };
    // A token costs a ten-thousandth of a dollar: each call may cost less than half of it.
    let cost = Prices { output: 100.0, ..Prices::default() };
    let model = Arc::new(Model { max_tokens: 4_096, cost, ..(*model()).clone() });
    let world = World::with([call(&[("echo", json!({ "text": "a" }))]), held]);
    let (hook, mut answers) = calls_at(HookSite::TurnEnd, request);
    let limits = Limits { max_cost: Some(1.0), ..Limits::default() };
    let options = SessionOptions { limits, model: model.clone(), hooks: vec![hook], ..world.options() };
    let live = world.create_with(options).await;
    live.session.prompt("go").await.unwrap();
    gate.reached().await;
    live.until(2, |event| matches!(event, Event::TurnStarted { .. })).await;
    gate.open();
    live.settled(1).await;
    assert_eq!(live.outcomes(), [Outcome::Done]);
    assert!(answers.recv().await.unwrap().is_ok());
    live.finish().await;

    // Where what it may cost is in the way, the run waits for it, and can be aborted.
    for aborts in [false, true] {
        let gate = Gate::new();
        let held = Reply { cost: 0.125, before: Some(gate.clone()), ..say("A name") };
        let world = World::with([Reply { cost: 0.01, ..call(&[("echo", json!({ "text": "a" }))]) }, held]);
        let (hook, _answers) = calls_at(HookSite::TurnEnd, request);
        let limits = Limits { max_cost: Some(0.5), ..Limits::default() };
        let options = SessionOptions { limits, model: model.clone(), hooks: vec![hook], ..world.options() };
        let live = world.create_with(options).await;
        live.session.prompt("go").await.unwrap();
        gate.reached().await;
        live.until(2, |event| matches!(event, Event::TurnStarted { .. })).await;
        if aborts {
            live.session.abort().await.unwrap();
        } else {
            gate.open();
        }
        live.settled(1).await;
        assert_eq!(live.outcomes(), [if aborts { Outcome::Aborted } else { Outcome::Done }]);
        gate.open();
        live.finish().await;
    }
}

#[tokio::test]
async fn run_that_is_over_pays_for_nothing_more() {
    let world = World::with([say("one")]);
    let kept: Arc<Mutex<Option<Runner>>> = Arc::default();
    let keep = kept.clone();
    let hook = WorkHook::hook(HookSite::RunEnd, move |cx| {
        *keep.lock().unwrap() = Some(cx.runner());
        std::future::ready(())
    });
    let limits = Limits { max_cost: Some(1.0), ..Limits::default() };
    let live = world.create_with(SessionOptions { limits, hooks: vec![hook], ..world.options() }).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    let runner = kept.lock().unwrap().take().unwrap();
    let refused = runner.call(request()).await.unwrap_err();
    assert!(matches!(refused, RunnerError::Budget(Limit::Cost(limit)) if limit == 1.0), "{refused:?}");
    assert_eq!(world.fake.bodies().len(), 1);
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn first_run_pays_for_what_is_asked_before_it_begins() {
    let world = World::with([Reply { cost: 0.75, ..say("A name") }, say("one")]);
    let (hook, mut answers) = calls_at(HookSite::Start, || CallRequest { budget: Some(9.0), ..request() });
    let limits = Limits { max_cost: Some(1.5), ..Limits::default() };
    let options = SessionOptions { limits, model: dear(), hooks: vec![hook], ..world.options() };
    let live = world.create_with(options.clone()).await;
    // The least that a call may cost is more than is left.
    assert_eq!(live.run("go").await, Outcome::Limit(Limit::Cost(1.5)));
    assert_eq!(answers.recv().await.unwrap().unwrap().text, "A name");
    assert_eq!(world.fake.bodies().len(), 1);
    live.finish().await;
    // And more than the run may cost is not asked for.
    let limits = Limits { max_cost: Some(0.5), ..Limits::default() };
    let live = world.create_with(SessionOptions { limits, ..options }).await;
    assert_eq!(live.run("go").await, Outcome::Limit(Limit::Cost(0.5)));
    let refused = answers.recv().await.unwrap().unwrap_err();
    assert!(matches!(refused, RunnerError::Budget(Limit::Cost(_))), "{refused:?}");
    assert_eq!(world.fake.bodies().len(), 1);
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn child_pays_for_what_its_hooks_ask_without_a_run() {
    let world = World::with([say("one")]);
    let (tell, mut answers) = mpsc::unbounded_channel();
    let inner = WorkHook::hook(HookSite::Input, move |cx| {
        let tell = tell.clone();
        async move {
            if is_child(cx.session.as_ref()) {
                let request = CallRequest { budget: Some(9.0), ..request() };
                drop(tell.send(cx.runner().call(request).await));
            }
        }
    });
    let (outer, _children) = children_at(HookSite::RunEnd, ChildRequest { budget: Some(0.5), ..child() });
    let hooks = vec![inner, outer];
    let live = world.create_with(SessionOptions { model: dear(), hooks, ..world.options() }).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    let refused = answers.recv().await.unwrap().unwrap_err();
    assert!(matches!(refused, RunnerError::Budget(Limit::Cost(_))), "{refused:?}");
    live.finish().await;
    world.check().await;
}

type KeptRunner = (Runner, Option<RunId>);

#[tokio::test]
async fn session_that_is_closed_asks_nobody() {
    let world = World::with([say("one")]);
    let kept: Arc<Mutex<Option<KeptRunner>>> = Arc::default();
    let keep = kept.clone();
    let hook = WorkHook::hook(HookSite::RunEnd, move |cx| {
        *keep.lock().unwrap() = Some((cx.runner(), cx.run.clone()));
        std::future::ready(())
    });
    let live = hooked(&world, hook).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    // A run that is over pays for nothing, and forbids nothing.
    let (runner, run) = kept.lock().unwrap().take().unwrap();
    assert!(run.is_some());
    assert_eq!(runner.call(request()).await.unwrap().text, "done");
    live.session.send(Command::Rename { name: "after".into() }).await.unwrap();
    live.finish().await;
    assert!(matches!(runner.call(request()).await, Err(RunnerError::Closed)));
    assert!(matches!(runner.session(child()).await, Err(RunnerError::Closed)));
    world.check().await;
}

#[tokio::test]
async fn closed_runner_aborts_what_is_under_way() {
    let gate = Gate::new();
    let world = World::with([Reply { before: Some(gate.clone()), ..say("late") }, say("Not asked.")]);
    let closed = CancellationToken::new();
    let runner: Runner = world.engine.runner(world.options()).until(closed.clone());
    let call = tokio::spawn({
        let runner = runner.clone();
        async move { runner.call(request()).await }
    });
    gate.reached().await;
    closed.cancel();
    assert!(matches!(call.await.unwrap(), Err(RunnerError::Closed)));
    assert!(matches!(runner.call(request()).await, Err(RunnerError::Closed)));
    assert!(matches!(runner.session(child()).await, Err(RunnerError::Closed)));
    world.check().await;
}
