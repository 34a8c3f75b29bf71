//! Hooks see the steps of a session, and change, stop or ask about them; what fails loses its own effect alone.

use quipu_store::Store as _;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use quipu::protocol::{
    Answer, AskKind, Command, Content, Entry, Event, Json, Notice, Outcome, ToolCall, ToolResultMessage, Ui,
    UserInput,
};
use quipu::store::{Until, decode_nodes};
use quipu::{
    CallVerdict, Decision, Delivery, HOOK_TEXT, Hook, HookContext, HookError, HookFailure, InputVerdict,
    Policy, Proposal, Refusal, ResultVerdict, SessionOptions,
};
use serde_json::json;

use crate::support::{LiveSession, World, call, say, text_of, tool};

type CallHook = dyn Fn(&ToolCall) -> CallVerdict + Send + Sync;
type InputHook = dyn Fn(&UserInput) -> InputVerdict + Send + Sync;
type ResultHook = dyn Fn(&ToolResultMessage) -> ResultVerdict + Send + Sync;

/// A hook made of closures.
#[derive(Default)]
struct ClosureHook {
    name: &'static str,
    input: Option<Box<InputHook>>,
    call: Option<Box<CallHook>>,
    result: Option<Box<ResultHook>>,
    /// Never answers.
    hangs: bool,
    guards: bool,
}

impl Hook for ClosureHook {
    fn name(&self) -> &str {
        self.name
    }

    fn deadline(&self) -> Duration {
        if self.hangs { Duration::from_millis(20) } else { Duration::from_secs(60) }
    }

    fn on_failure(&self) -> HookFailure {
        if self.guards { HookFailure::Block } else { HookFailure::Pass }
    }

    fn input<'a>(
        &'a self,
        input: &'a UserInput,
        _: &'a HookContext,
    ) -> BoxFuture<'a, Result<InputVerdict, HookError>> {
        let verdict = self.input.as_ref().map_or(InputVerdict::Pass, |hook| hook(input));
        Box::pin(std::future::ready(Ok(verdict)))
    }

    fn tool_call<'a>(
        &'a self,
        call: &'a ToolCall,
        _: &'a HookContext,
    ) -> BoxFuture<'a, Result<CallVerdict, HookError>> {
        if self.hangs {
            return Box::pin(std::future::pending());
        }
        let verdict = self.call.as_ref().map_or(CallVerdict::Pass, |hook| hook(call));
        Box::pin(std::future::ready(Ok(verdict)))
    }

    fn tool_result<'a>(
        &'a self,
        _: &'a ToolCall,
        result: &'a ToolResultMessage,
        _: &'a HookContext,
    ) -> BoxFuture<'a, Result<ResultVerdict, HookError>> {
        let verdict = self.result.as_ref().map_or(ResultVerdict::Pass, |hook| hook(result));
        Box::pin(std::future::ready(Ok(verdict)))
    }
}

fn on_call(
    name: &'static str,
    hook: impl Fn(&ToolCall) -> CallVerdict + Send + Sync + 'static,
) -> Arc<dyn Hook> {
    Arc::new(ClosureHook { name, call: Some(Box::new(hook)), ..ClosureHook::default() })
}

fn on_input(
    name: &'static str,
    hook: impl Fn(&UserInput) -> InputVerdict + Send + Sync + 'static,
) -> Arc<dyn Hook> {
    Arc::new(ClosureHook { name, input: Some(Box::new(hook)), ..ClosureHook::default() })
}

fn on_result(
    name: &'static str,
    hook: impl Fn(&ToolResultMessage) -> ResultVerdict + Send + Sync + 'static,
) -> Arc<dyn Hook> {
    Arc::new(ClosureHook { name, result: Some(Box::new(hook)), ..ClosureHook::default() })
}

pub(crate) async fn hooked(world: &World, hooks: Vec<Arc<dyn Hook>>) -> LiveSession {
    world.create_with(SessionOptions { hooks, ..world.options() }).await
}

pub(crate) fn notes(live: &LiveSession) -> Vec<String> {
    live.all(|event| match event {
        Event::Ui { ui: Ui::Notice { notice: Notice::Note { text } } } => Some(text.clone()),
        _ => None,
    })
}

pub(crate) fn words(world: &World) -> Vec<String> {
    world.fake.last_messages().iter().map(text_of).collect()
}

/// What the nodes of messages say of hooks.
pub(crate) async fn records(world: &World, live: &LiveSession) -> Vec<serde_json::Value> {
    let head = live.session.view().head.unwrap();
    let nodes = world.store.lineage(head, Until::Root).await.unwrap();
    let decoded = decode_nodes(&*world.store, &nodes).await.unwrap();
    let messages = decoded.into_iter().filter(|one| matches!(&one.entry, Entry::Message(_)));
    messages.filter_map(|one| Some(one.step.extra.get("hooks")?.value())).collect()
}

fn with_text(call: &ToolCall, text: &str) -> CallVerdict {
    let mut arguments = call.arguments.value();
    arguments["text"] = text.into();
    CallVerdict::Replace(Json::from(&arguments))
}

#[tokio::test]
async fn call_that_a_hook_blocks_does_not_run() {
    let mut world = World::with([call(&[("echo", json!({ "text": "a" }))]), say("well")]);
    world.tools = vec![tool("echo", |_, _| async { panic!("it does not run") })];
    let block = |_: &ToolCall| CallVerdict::Block { reason: "not on a Friday".into() };
    let live = hooked(&world, vec![on_call("calendar", block)]).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    let results = live.results();
    assert!(results[0].1.contains("calendar") && results[0].1.contains("not on a Friday"), "{results:?}");
    assert!(results[0].2);
    let kept = records(&world, &live).await;
    assert_eq!((&kept[0][0]["hook"], &kept[0][0]["did"]), (&json!("calendar"), &json!("blocked")));
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn replaced_arguments_are_what_policy_and_tool_see() {
    struct TextPolicy(&'static str);
    impl Policy for TextPolicy {
        fn decide(&self, proposal: &Proposal<'_>) -> Decision {
            assert_eq!(proposal.text("text").as_deref(), Some(self.0));
            Decision::Allow
        }
    }
    let world = World::with([call(&[("echo", json!({ "text": "a" }))]), say("well")]);
    let hooks = vec![
        on_call("first", |call| with_text(call, "b")),
        on_call("second", |call| {
            assert!(call.arguments.get().contains("\"b\""), "each sees what the one before it left");
            with_text(call, "c")
        }),
    ];
    let options = SessionOptions { hooks, policy: Arc::new(TextPolicy("c")), ..world.options() };
    let live = world.create_with(options).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    assert_eq!(live.results()[0].1, "c");
    // The model made the call as it made it; what ran is recorded beside its result.
    let kept = records(&world, &live).await;
    assert_eq!(kept.len(), 1);
    let told: Vec<_> = kept[0].as_array().unwrap().iter().map(|one| one["hook"].clone()).collect();
    assert_eq!(told, ["first", "second"]);
    assert_eq!(kept[0][1]["arguments"]["text"], "c");
    let id = live.id();
    live.finish().await;
    // Resumed with no hook there, the request is what it was.
    world.fake.push([say("again")]);
    let (live, _) = world.open(&id).await;
    assert_eq!(live.run("on").await, Outcome::Done);
    assert!(words(&world).contains(&"c".to_owned()));
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn arguments_of_a_hook_are_validated() {
    let world = World::with([call(&[("echo", json!({ "text": "a" }))]), say("well")]);
    let nonsense = |_: &ToolCall| CallVerdict::Replace(Json::from(&json!({ "text": ["no", "text"] })));
    let live = hooked(&world, vec![on_call("odd", nonsense)]).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    assert!(live.results()[0].2, "{:?}", live.results());
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn question_of_a_hook_is_asked_where_the_policy_lets_pass() {
    let ask = |_: &ToolCall| CallVerdict::Ask { question: "Really?".into() };
    for (yes, expected) in [(true, "a"), (false, "denied")] {
        let world = World::with([call(&[("echo", json!({ "text": "a" }))]), say("well")]);
        let live = hooked(&world, vec![on_call("careful", ask)]).await;
        let person = live.session.subscribe_and_answer(Delivery::Live).await.unwrap();
        live.session.prompt("go").await.unwrap();
        live.until(1, |event| matches!(event, Event::AskOpened { .. })).await;
        let asks = live.all(|event| match event {
            Event::AskOpened { ask } => Some(ask.clone()),
            _ => None,
        });
        let AskKind::Permission(permission) = &asks[0].kind else { panic!("{asks:?}") };
        assert!(permission.question.contains("Really?") && permission.question.contains("careful"));
        assert!(permission.subject.contains('a'));
        let answer = if yes { Answer::once() } else { Answer::Deny { reason: Some("denied".into()) } };
        live.session.send(Command::Answer { ask: asks[0].id.clone(), answer }).await.unwrap();
        live.settled(1).await;
        assert!(live.results()[0].1.contains(expected), "{:?}", live.results());
        drop(person);
        live.finish().await;
        world.check().await;
    }
}

#[tokio::test]
async fn results_are_replaced_and_added_to() {
    let world = World::with([call(&[("echo", json!({ "text": "a" }))]), say("well")]);
    let hooks = vec![
        on_result("editor", |result| {
            assert_eq!(result.content.len(), 1);
            ResultVerdict::Replace { content: vec![Content::text("b")], is_error: true }
        }),
        on_result("linter", |result| {
            assert!(result.is_error, "each sees what the one before it left");
            ResultVerdict::Append("a line is too long".into())
        }),
    ];
    let live = hooked(&world, hooks).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    let (_, text, is_error) = live.results().remove(0);
    assert!(is_error && text.starts_with("b\n") && text.contains("linter"), "{text}");
    let sent = words(&world);
    assert!(sent.iter().any(|text| text.contains("a line is too long")), "{sent:?}");
    let kept = records(&world, &live).await;
    assert_eq!((kept[0][0]["did"].clone(), kept[0][1]["did"].clone()), (json!("replaced"), json!("added")));
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn inputs_are_replaced_added_to_handled_and_blocked() {
    let world = World::with([say("a0"), say("a1")]);
    let live = hooked(
        &world,
        vec![on_input("desk", |input| {
            let text = input.content[0].as_text().unwrap_or_default();
            match text {
                "replace" => InputVerdict::Replace("other words".into()),
                "beside" => InputVerdict::Add("It is Monday.".into()),
                "handle" => InputVerdict::Handled,
                "block" => InputVerdict::Block { reason: "a secret".into() },
                _ => InputVerdict::Pass,
            }
        })],
    )
    .await;
    assert_eq!(live.run("replace").await, Outcome::Done);
    assert_eq!(words(&world), ["other words"]);
    assert_eq!(live.run("beside").await, Outcome::Done);
    let last = words(&world).pop().unwrap();
    assert!(last.starts_with("beside\n") && last.ends_with("It is Monday."), "{last}");
    assert!(last.contains("hook desk"), "nobody takes it for the user's words: {last}");
    assert_eq!(live.session.prompt("handle").await, Ok(quipu::protocol::Ack::Handled));
    match live.session.prompt("block").await {
        Err(Refusal::Blocked { why }) => assert!(why.contains("desk") && why.contains("a secret"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(world.fake.bodies().len(), 2, "neither was said");
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn text_added_by_hooks_is_sealed() {
    const SECRET: &str = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
    let world = World::with([call(&[("echo", json!({ "text": "a" }))]), say("well")]);
    let hooks = vec![
        on_input("one", |_| InputVerdict::Add(format!("token {SECRET}"))),
        on_call("two", |call| with_text(call, SECRET)),
        on_result("three", |_| ResultVerdict::Append(format!("and {SECRET}"))),
    ];
    let live = hooked(&world, hooks).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    for body in world.fake.bodies() {
        assert!(!String::from_utf8_lossy(&body).contains(SECRET));
    }
    let kept = serde_json::to_string(&records(&world, &live).await).unwrap();
    assert!(!kept.contains(SECRET), "{kept}");
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn failing_hook_loses_its_own_effect_alone() {
    let hang = || ClosureHook { name: "slow", hangs: true, ..ClosureHook::default() };
    let panics = || ClosureHook {
        name: "broken",
        call: Some(Box::new(|_| panic!("a bug"))),
        ..ClosureHook::default()
    };
    let flood = || {
        let text = "x".repeat(HOOK_TEXT + 1);
        let call: Box<CallHook> = Box::new(move |_| CallVerdict::Block { reason: text.clone() });
        ClosureHook { name: "loud", call: Some(call), ..ClosureHook::default() }
    };
    let makers: [&dyn Fn() -> ClosureHook; 3] = [&hang, &panics, &flood];
    for make in makers {
        for guards in [false, true] {
            let world = World::with([call(&[("echo", json!({ "text": "a" }))]), say("well")]);
            let failing = ClosureHook { guards, ..make() };
            let name = failing.name;
            let behind = on_call("behind", |call| with_text(call, "b"));
            let live = hooked(&world, vec![Arc::new(failing), behind]).await;
            assert_eq!(live.run("go").await, Outcome::Done);
            let (_, text, is_error) = live.results().remove(0);
            match guards {
                // Those behind it had theirs.
                false => assert_eq!((text.as_str(), is_error), ("b", false), "{name}"),
                true => assert!(is_error && text.contains(name), "{name}: {text}"),
            }
            assert!(notes(&live).iter().any(|note| note.contains(name)), "{name}: {:?}", notes(&live));
            live.finish().await;
            world.check().await;
        }
    }
}

#[tokio::test]
async fn run_is_stopped_while_a_hook_hangs() {
    struct HangingHook(tokio::sync::watch::Sender<bool>);
    impl Hook for HangingHook {
        fn name(&self) -> &str {
            "hangs"
        }

        fn tool_call<'a>(
            &'a self,
            _: &'a ToolCall,
            _: &'a HookContext,
        ) -> BoxFuture<'a, Result<CallVerdict, HookError>> {
            self.0.send_replace(true);
            Box::pin(std::future::pending())
        }
    }
    let world = World::with([call(&[("echo", json!({ "text": "a" }))]), say("well")]);
    let (tell, mut reached) = tokio::sync::watch::channel(false);
    let live = hooked(&world, vec![Arc::new(HangingHook(tell))]).await;
    live.session.prompt("go").await.unwrap();
    reached.wait_for(|reached| *reached).await.unwrap();
    live.session.abort().await.unwrap();
    live.settled(1).await;
    assert_eq!(live.outcomes(), [Outcome::Aborted]);
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn hook_that_asks_a_person_has_time_for_the_answer() {
    struct Asks;
    impl Hook for Asks {
        fn name(&self) -> &str {
            "asks"
        }

        fn deadline(&self) -> Duration {
            Duration::from_millis(50)
        }

        fn tool_call<'a>(
            &'a self,
            call: &'a ToolCall,
            cx: &'a HookContext,
        ) -> BoxFuture<'a, Result<CallVerdict, HookError>> {
            Box::pin(async move {
                let question = || AskKind::Confirm { title: "Now?".into(), text: String::new() };
                let first = cx.ask(question(), Answer::Confirm { yes: false }, None);
                // Within its own question it asks in vain.
                let second = async {
                    tokio::task::yield_now().await;
                    cx.ask(question(), Answer::Confirm { yes: false }, None).await
                };
                let (first, second) = tokio::join!(first, second);
                assert_eq!(second, Err(quipu::HookAskError::Asking));
                Ok(with_text(call, &format!("{first:?}")))
            })
        }
    }
    let world = World::with([call(&[("echo", json!({ "text": "a" }))]), say("well")]);
    let live = hooked(&world, vec![Arc::new(Asks)]).await;
    let person = live.session.subscribe_and_answer(Delivery::Live).await.unwrap();
    live.session.prompt("go").await.unwrap();
    live.until(1, |event| matches!(event, Event::AskOpened { .. })).await;
    let asks = live.all(|event| match event {
        Event::AskOpened { ask } => Some(ask.clone()),
        _ => None,
    });
    // Longer than it may take by itself.
    let waited = std::time::Instant::now();
    while waited.elapsed() < Duration::from_millis(120) {
        tokio::task::yield_now().await;
    }
    live.session
        .send(Command::Answer { ask: asks[0].id.clone(), answer: Answer::Confirm { yes: true } })
        .await
        .unwrap();
    live.settled(1).await;
    let text = live.results().remove(0).1;
    assert!(text.contains("yes: true"), "{text}");
    assert_eq!(notes(&live), [""; 0]);
    drop(person);
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn question_of_a_hook_closes_when_the_run_is_stopped() {
    struct Asks;
    impl Hook for Asks {
        fn name(&self) -> &str {
            "asks"
        }

        fn tool_call<'a>(
            &'a self,
            _: &'a ToolCall,
            cx: &'a HookContext,
        ) -> BoxFuture<'a, Result<CallVerdict, HookError>> {
            Box::pin(async move {
                let kind = AskKind::Confirm { title: "Now?".into(), text: String::new() };
                drop(cx.ask(kind, Answer::Confirm { yes: false }, None).await);
                Ok(CallVerdict::Pass)
            })
        }
    }
    let world = World::with([call(&[("echo", json!({ "text": "a" }))])]);
    let live = hooked(&world, vec![Arc::new(Asks)]).await;
    let person = live.session.subscribe_and_answer(Delivery::Live).await.unwrap();
    live.session.prompt("go").await.unwrap();
    live.until(1, |event| matches!(event, Event::AskOpened { .. })).await;
    live.session.abort().await.unwrap();
    live.until(1, |event| matches!(event, Event::AskClosed { .. })).await;
    live.settled(1).await;
    let (snapshot, _) = live.session.subscribe(Delivery::Live).await.unwrap();
    assert!(snapshot.asks.is_empty(), "nobody waits for an answer");
    drop(person);
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn questions_of_all_hooks_and_of_the_policy_are_one() {
    struct AskPolicy;
    impl Policy for AskPolicy {
        fn decide(&self, _: &Proposal<'_>) -> Decision {
            Decision::Ask { question: "Run it?".into(), subject: "echo".into() }
        }
    }
    let asks = |name: &'static str| on_call(name, |_| CallVerdict::Ask { question: "Sure?".into() });
    let world = World::with([call(&[("echo", json!({ "text": "a" }))]), say("well")]);
    let options = SessionOptions {
        hooks: vec![asks("one"), asks("two")],
        policy: Arc::new(AskPolicy),
        ..world.options()
    };
    let live = world.create_with(options).await;
    let person = live.session.subscribe_and_answer(Delivery::Live).await.unwrap();
    live.session.prompt("go").await.unwrap();
    live.until(1, |event| matches!(event, Event::AskOpened { .. })).await;
    let asked = live.all(|event| match event {
        Event::AskOpened { ask } => Some(ask.clone()),
        _ => None,
    });
    let question = asked[0].permission().unwrap().question.clone();
    assert_eq!(question, "Run it? Sure? (one) Sure? (two)");
    live.session.send(Command::Answer { ask: asked[0].id.clone(), answer: Answer::no() }).await.unwrap();
    live.settled(1).await;
    drop(person);
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn hook_without_a_deadline_to_tell_loses_its_own_effect_alone() {
    struct BrokenHook;
    impl Hook for BrokenHook {
        fn name(&self) -> &str {
            "broken"
        }

        fn deadline(&self) -> Duration {
            panic!("a bug of a hook")
        }
    }
    let world = World::with([call(&[("echo", json!({ "text": "a" }))]), say("well")]);
    let live = hooked(&world, vec![Arc::new(BrokenHook)]).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    assert!(notes(&live).iter().any(|note| note.contains("hook broken had no effect on a tool call")));
    live.ended().await.finish().unwrap();
    world.check().await;
}
