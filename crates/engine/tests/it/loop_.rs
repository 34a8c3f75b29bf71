//! The loop: queues, limits, answers that are odd, questions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use quipu::protocol::{
    AbortTarget, Ack, Answer, Command, Event, Json, Limit, ModelErrorKind, Outcome, QueueMode, StopReason,
};
use quipu::{Decision, Delivery, Limits, LiveChanges, Policy, Proposal, QueueDrain, Refusal, ToolOutput};
use serde_json::json;

use crate::support::{Gate, Reply, World, call, gated, say, text_of, tool};

#[tokio::test]
async fn a_task_with_tools_from_prompt_to_settled() {
    let world = World::with([
        Reply {
            thinking: Some("hm".into()),
            ..call(&[("echo", json!({"text": "one"})), ("echo", json!({"text": "two"}))])
        },
        Reply { retries: 3, ..say("finished") },
    ]);
    let live = world.create().await;
    assert_eq!(live.run("do it").await, Outcome::Done);
    assert_eq!(
        live.said(),
        [
            "user: do it",
            "assistant: calling",
            "toolResult: one",
            "toolResult: two",
            "assistant: ",
            "assistant: ",
            "assistant: finished"
        ]
    );
    let retries = live.all(|event| match event {
        Event::RetryScheduled { attempt, .. } => Some(*attempt),
        _ => None,
    });
    assert_eq!(retries, [2, 3, 4]);
    assert_eq!(live.all(|event| matches!(event, Event::RetryEnded { ok: true }).then_some(())).len(), 1);
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn steering_comes_between_turns_and_follow_ups_at_the_end() {
    let gate = Gate::new();
    let mut world =
        World::with([call(&[("wait", json!({}))]), say("after s1"), say("after s2"), say("after f1")]);
    world.tools.push(gated("wait", &gate));
    let live = world.create().await;
    live.session.prompt("start").await.unwrap();
    gate.reached().await;
    for (text, when) in [
        ("f1", QueueMode::FollowUp),
        ("s1", QueueMode::Steer),
        ("gone", QueueMode::Steer),
        ("s2", QueueMode::Steer),
        ("f2", QueueMode::FollowUp),
    ] {
        let ack = live.session.send(Command::Prompt { input: text.into(), when }).await.unwrap();
        if text == "gone" {
            let Ack::Queued(item) = ack else { panic!("{ack:?}") };
            let taken = live.session.send(Command::Unqueue { items: vec![item.clone()] }).await.unwrap();
            assert_eq!(taken, Ack::Unqueued(vec!["gone".into()]));
            let again = live.session.send(Command::Unqueue { items: vec![item] }).await.unwrap();
            assert_eq!(again, Ack::Unqueued(vec![]));
        }
    }
    assert_eq!(live.session.prompt("now").await, Err(Refusal::Busy));
    assert_eq!(live.session.send(Command::Continue).await, Err(Refusal::Busy));
    assert_eq!(live.session.view().waiting, 4);
    gate.open();
    live.settled(1).await;
    assert_eq!(
        live.said(),
        [
            "user: start",
            "assistant: calling",
            "toolResult: nothing",
            "user: s1",
            "assistant: after s1",
            "user: s2",
            "assistant: after s2",
            "user: f1",
            "assistant: after f1",
            "user: f2",
            "assistant: done",
        ]
    );
    assert_eq!(live.outcomes(), [Outcome::Done]);
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn queues_are_emptied_at_once_where_that_is_wanted() {
    let gate = Gate::new();
    let mut world = World::with([call(&[("wait", json!({}))]), say("after s"), say("after f")]);
    world.tools.push(gated("wait", &gate));
    let live = world.create().await;
    let all = Some(QueueDrain::All);
    let tuning = LiveChanges { steering: all, follow_up: all, ..LiveChanges::default() };
    live.session.tune(tuning).await.unwrap();
    live.session.prompt("start").await.unwrap();
    gate.reached().await;
    for (text, when) in [
        ("f1", QueueMode::FollowUp),
        ("s1", QueueMode::Steer),
        ("s2", QueueMode::Steer),
        ("f2", QueueMode::FollowUp),
    ] {
        live.session.send(Command::Prompt { input: text.into(), when }).await.unwrap();
    }
    gate.open();
    live.settled(1).await;
    assert_eq!(
        live.said()[3..],
        ["user: s1", "user: s2", "assistant: after s", "user: f1", "user: f2", "assistant: after f",]
    );
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn queues_are_bounded() {
    let gate = Gate::new();
    let mut world = World::with([call(&[("wait", json!({}))])]);
    world.tools.push(gated("wait", &gate));
    let live = world.create().await;
    live.session.prompt("start").await.unwrap();
    gate.reached().await;
    let sends = (0..300).map(|_| live.session.steer("more"));
    let acks = futures_util::future::join_all(sends).await;
    assert_eq!(acks.iter().filter(|ack| ack.is_ok()).count(), 256);
    assert!(acks.iter().all(|ack| matches!(ack, Ok(Ack::Queued(_)) | Err(Refusal::QueueFull))));
    let Ok(Ack::Unqueued(taken)) = live.session.send(Command::Unqueue { items: vec![] }).await else {
        panic!()
    };
    assert_eq!(taken.len(), 256);
    live.session.steer("room again").await.unwrap();
    gate.open();
    live.settled(1).await;
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn go_on_without_a_message() {
    let world = World::with([Reply { error: Some(ModelErrorKind::Quota), ..say("half") }, say("better")]);
    let live = world.create().await;
    assert_eq!(live.session.send(Command::Continue).await, Err(Refusal::NothingToContinue));
    assert!(
        matches!(live.run("question").await, Outcome::Failed(error) if error.kind == ModelErrorKind::Quota)
    );
    assert!(matches!(live.session.send(Command::Continue).await, Ok(Ack::Started(_))));
    live.settled(2).await;
    assert_eq!(live.outcomes().pop(), Some(Outcome::Done));
    let bodies = world.fake.bodies();
    assert_eq!(bodies[0], bodies[1], "the failed answer is not shown to the model");
    assert_eq!(live.session.send(Command::Continue).await, Err(Refusal::NothingToContinue));
    assert_eq!(live.session.prompt("  ").await, Err(Refusal::Empty));
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn limits_end_a_run() {
    let turns = [call(&[("echo", json!({}))]), call(&[("echo", json!({}))]), call(&[("echo", json!({}))])];
    let world = World::with(turns.clone().map(|reply| Reply { cost: 0.4, ..reply }));
    let limits = Limits { max_turns: Some(2), ..Limits::default() };
    let live = world.create_with(quipu::SessionOptions { limits, ..world.options() }).await;
    assert_eq!(live.run("go").await, Outcome::Limit(Limit::Turns(2)));
    assert_eq!(world.fake.bodies().len(), 2);
    live.finish().await;
    world.fake.push(turns.map(|reply| Reply { cost: 0.4, ..reply }));
    let limits = Limits { max_cost: Some(0.5), ..Limits::default() };
    let live = world.create_with(quipu::SessionOptions { limits, ..world.options() }).await;
    assert_eq!(live.run("go").await, Outcome::Limit(Limit::Cost(0.5)));
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn a_batch_that_terminates_ends_the_run_unless_something_waits() {
    let gate = Gate::new();
    let stop = |gate: &Gate| {
        let gate = gate.clone();
        tool("stop", move |_, _| {
            let gate = gate.clone();
            async move {
                gate.pass().await;
                ToolOutput { terminate: true, ..ToolOutput::text("stopped") }
            }
        })
    };
    let both = call(&[("stop", json!({})), ("echo", json!({}))]);
    let mut world = World::with([
        call(&[("stop", json!({}))]),
        both,
        say("on"),
        call(&[("stop", json!({}))]),
        say("still here"),
    ]);
    gate.open();
    world.tools.push(stop(&gate));
    let live = world.create().await;
    assert_eq!(live.run("one").await, Outcome::Done);
    assert_eq!(world.fake.bodies().len(), 1, "every call said so");
    assert_eq!(live.run("two").await, Outcome::Done);
    assert_eq!(world.fake.bodies().len(), 3, "one of two said so");
    live.finish().await;
    let closed = Gate::new();
    world.tools = vec![stop(&closed)];
    let live = world.create().await;
    live.session.prompt("three").await.unwrap();
    closed.reached().await;
    live.session.follow_up("and").await.unwrap();
    closed.open();
    live.settled(1).await;
    assert_eq!(live.said().last().unwrap(), "assistant: still here");
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn calls_that_cannot_run_are_answered() {
    let mut reply = call(&[
        ("nope", json!({})),
        ("echo", json!({"text": {"a": 1}})),
        ("echo", json!({"text": "break touches"})),
    ]);
    reply.calls.push(("c4".into(), "echo".into(), Json::of("not { json").unwrap()));
    let length = Reply { stop: Some(StopReason::Length), ..call(&[("echo", json!({"text": "cut"}))]) };
    let world =
        World::with([reply, length, call(&[("panic", json!({})), ("echo", json!({"text": "fine"}))])]);
    let mut world = world;
    world.tools.push(tool("panic", |_, _| async { panic!("a tool that breaks down") }));
    let live = world.create().await;
    assert_eq!(live.run("go").await, Outcome::Done);
    let results = live.results();
    assert_eq!(results.len(), 7);
    assert_eq!(results[0], ("c1".into(), "Tool nope not found".into(), true));
    assert!(results[1].1.starts_with("Validation failed for tool \"echo\"") && results[1].2, "{results:?}");
    assert!(results[2].1.contains("the check before it panicked") && results[2].2);
    assert!(results[3].1.contains("not valid JSON") && results[3].2, "{results:?}");
    assert!(results[4].1.contains("output token limit") && results[4].2);
    assert!(results[5].1.contains("panicked") && results[5].2);
    assert_eq!(results[6], ("c2".into(), "fine".into(), false));
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn call_ids_that_repeat_are_kept_apart() {
    let mut reply = call(&[
        ("echo", json!({"text": "a"})),
        ("echo", json!({"text": "b"})),
        ("echo", json!({"text": "c"})),
    ]);
    for (at, call) in reply.calls.iter_mut().enumerate() {
        call.0 = if at == 2 { String::new() } else { "same".into() };
    }
    let world = World::with([reply.clone(), reply]);
    let live = world.create().await;
    assert_eq!(live.run("go").await, Outcome::Done);
    let texts: Vec<String> = world.fake.last_messages().iter().map(text_of).collect();
    assert_eq!(texts, ["go", "calling", "a", "b", "c", "calling", "a", "b", "c"]);
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn more_calls_than_are_run_at_once_all_get_their_result() {
    let counts = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
    let seen = counts.clone();
    let many: Vec<_> = (0..300).map(|_| ("count", json!({}))).collect();
    let mut world = World::with([call(&many)]);
    world.tools.push(tool("count", move |_, _| {
        let seen = seen.clone();
        async move {
            let now = seen.0.fetch_add(1, Ordering::SeqCst) + 1;
            seen.1.fetch_max(now, Ordering::SeqCst);
            tokio::task::yield_now().await;
            seen.0.fetch_sub(1, Ordering::SeqCst);
            ToolOutput::text("ok")
        }
    }));
    let live = world.create().await;
    assert_eq!(live.run("go").await, Outcome::Done);
    let results = live.results();
    assert_eq!(results.iter().filter(|(_, text, _)| text == "ok").count(), 256);
    assert_eq!(results.iter().filter(|(_, text, _)| text.contains("at most 256 calls")).count(), 44);
    assert!(counts.1.load(Ordering::SeqCst) <= 32);
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn a_provider_that_breaks_down_fails_the_run() {
    let world = World::with([Reply { panics: true, ..say("") }, say("back")]);
    let live = world.create().await;
    assert!(
        matches!(live.run("go").await, Outcome::Failed(error) if error.kind == ModelErrorKind::Malformed)
    );
    assert_eq!(live.run("again").await, Outcome::Done);
    live.finish().await;
    // Its call was recorded; the record went down with it, so only the rest of the check holds.
    crate::support::check_store(&world.store).await;
}

/// Five seconds of patience, so only in the full run.
#[tokio::test]
async fn a_provider_that_does_not_stop_is_dropped() {
    struct UnstoppableProvider(Gate);
    impl quipu::Provider for UnstoppableProvider {
        fn encode(
            &self,
            _: &quipu::protocol::ModelRequest,
        ) -> Result<bytes::Bytes, quipu::protocol::ModelError> {
            Ok("{\"messages\":[]}".into())
        }
        fn is_local(&self) -> bool {
            true
        }
        fn send(&self, _: quipu::Call) -> futures_util::future::BoxFuture<'_, quipu::CallEnd> {
            Box::pin(async {
                self.0.pass().await;
                unreachable!("the gate stays closed")
            })
        }
    }
    if std::env::var_os("QUIPU_FULL").is_none() {
        return;
    }
    let world = World::new();
    let gate = Gate::new();
    let provider = Arc::new(UnstoppableProvider(gate.clone()));
    let live = world.create_with(quipu::SessionOptions { provider, ..world.options() }).await;
    live.session.prompt("go").await.unwrap();
    gate.reached().await;
    live.session.abort().await.unwrap();
    live.settled(1).await;
    assert_eq!(live.outcomes(), [Outcome::Aborted]);
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn a_result_beyond_the_limit_is_left_out() {
    let mut world = World::with([call(&[("flood", json!({}))])]);
    world.tools.push(tool("flood", |_, _| async { ToolOutput::text("x".repeat((64 << 20) + 1)) }));
    let live = world.create().await;
    assert_eq!(live.run("go").await, Outcome::Done);
    assert!(live.results()[0].1.contains("67108865 bytes"));
    live.finish().await;
    world.check().await;
}

struct Ask;

impl Policy for Ask {
    fn decide(&self, proposal: &Proposal<'_>) -> Decision {
        match proposal.text("text").as_deref() {
            Some("deny") => Decision::Deny { reason: "Not here.".into() },
            Some("free") => Decision::Allow,
            text => Decision::Ask { question: "Run it?".into(), subject: text.unwrap_or_default().into() },
        }
    }
}

fn asking(world: &World) -> quipu::SessionOptions {
    quipu::SessionOptions { policy: Arc::new(Ask), ..world.options() }
}

#[tokio::test]
async fn questions_allow_deny_and_nobody() {
    let calls = ["free", "deny", "yes", "no", "why"].map(|text| ("echo", json!({ "text": text })));
    let world = World::with([call(&calls), call(&calls[..3])]);
    let live = world.create_with(asking(&world)).await;
    let (_, mut events) = live.session.subscribe_and_answer(Delivery::Lossless).await.unwrap();
    let session = live.session.clone();
    let person = tokio::spawn(async move {
        let mut subjects = Vec::new();
        while let Some(envelope) = events.next().await {
            let Event::AskOpened { ask } = &envelope.event else {
                if matches!(envelope.event, Event::Settled) {
                    break;
                }
                continue;
            };
            subjects.push(ask.permission().unwrap().subject.to_string());
            let answer = match &*ask.permission().unwrap().subject {
                "yes" => Answer::once(),
                "no" => Answer::Deny { reason: None },
                _ => Answer::Deny { reason: Some("too risky".into()) },
            };
            let command = Command::Answer { ask: ask.id.clone(), answer };
            assert_eq!(session.send(command.clone()).await, Ok(Ack::Handled));
            assert_eq!(session.send(command).await, Err(Refusal::NoSuchAsk));
        }
        subjects
    });
    assert_eq!(live.run("go").await, Outcome::Done);
    assert_eq!(person.await.unwrap(), ["yes", "no", "why", "yes"]);
    let texts: Vec<_> = live.results().into_iter().map(|(_, text, _)| text).collect();
    assert_eq!(texts[..2], ["free", "Not here."]);
    assert_eq!(texts[2], "yes");
    assert!(texts[3].contains("did not allow") && texts[4].contains("too risky"));
    live.finish().await;
    // With nobody who could answer it is refused at once.
    world.fake.push([call(&calls[2..3])]);
    let live = world.create_with(asking(&world)).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    assert!(live.results()[0].1.contains("nobody is here"));
    assert!(live.all(|event| matches!(event, Event::AskOpened { .. }).then_some(())).is_empty());
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn a_question_ends_when_its_answerer_leaves_or_its_time_is_up() {
    let world = World::with([
        call(&[("echo", json!({"text": "x"}))]),
        say("ok"),
        call(&[("echo", json!({"text": "x"}))]),
    ]);
    let live = world.create_with(asking(&world)).await;
    let (_, one) = live.session.subscribe_and_answer(Delivery::Live).await.unwrap();
    let (_, other) = live.session.subscribe_and_answer(Delivery::Live).await.unwrap();
    live.session.prompt("go").await.unwrap();
    live.until(1, |event| matches!(event, Event::AskOpened { .. })).await;
    drop(other);
    live.session.steer("still waiting").await.unwrap();
    assert!(live.results().is_empty());
    drop(one);
    live.settled(1).await;
    assert!(live.results()[0].1.contains("was not run"));
    live.finish().await;
    let options =
        quipu::SessionOptions { ask_deadline: std::time::Duration::from_millis(1), ..asking(&world) };
    let live = world.create_with(options).await;
    let (_, _held) = live.session.subscribe_and_answer(Delivery::Live).await.unwrap();
    world.fake.push([call(&[("echo", json!({"text": "x"}))])]);
    assert_eq!(live.run("go").await, Outcome::Done);
    assert!(live.results()[0].1.contains("Nobody answered the permission question in time"));
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn one_call_of_a_batch_is_stopped() {
    let (one, two) = (Gate::new(), Gate::new());
    let mut world = World::with([call(&[("one", json!({"text": "1"})), ("two", json!({"text": "2"}))])]);
    world.tools = vec![gated("one", &one), gated("two", &two)];
    let live = world.create().await;
    live.session.prompt("go").await.unwrap();
    one.reached().await;
    two.reached().await;
    live.session.send(Command::Abort { target: AbortTarget::Tool("c1".into()) }).await.unwrap();
    live.until(1, |event| matches!(event, Event::ToolEnded { .. })).await;
    live.session.send(Command::Abort { target: AbortTarget::Tool("none".into()) }).await.unwrap();
    two.open();
    live.settled(1).await;
    let results = live.results();
    assert_eq!(results[0], ("c1".into(), "Operation aborted".into(), true));
    assert_eq!(results[1], ("c2".into(), "2".into(), false));
    assert_eq!(live.outcomes(), [Outcome::Done]);
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn a_policy_that_hangs_does_not_hold_up_an_abort() {
    struct HangingPolicy(
        tokio::sync::mpsc::UnboundedSender<()>,
        std::sync::Mutex<std::sync::mpsc::Receiver<()>>,
    );
    impl Policy for HangingPolicy {
        fn decide(&self, _: &Proposal<'_>) -> Decision {
            self.0.send(()).unwrap();
            // Ends when the test lets go of the other end.
            self.1.lock().unwrap().recv().ok();
            Decision::Allow
        }
    }
    let world = World::with([call(&[("echo", json!({}))])]);
    // Waited for without a thread: the test has but one, on which the session works as well.
    let (asked, mut was_asked) = tokio::sync::mpsc::unbounded_channel();
    let (release, hangs) = std::sync::mpsc::channel();
    let policy = Arc::new(HangingPolicy(asked, std::sync::Mutex::new(hangs)));
    let live = world.create_with(quipu::SessionOptions { policy, ..world.options() }).await;
    live.session.prompt("go").await.unwrap();
    live.until(2, |event| matches!(event, Event::MessageEnded { .. })).await;
    was_asked.recv().await.unwrap();
    live.session.abort().await.unwrap();
    live.settled(1).await;
    assert_eq!(live.results(), [("c1".into(), "Operation aborted".into(), true)]);
    drop(release);
    assert_eq!(live.run("next").await, Outcome::Done);
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn closing_aborts_and_nothing_is_lost() {
    let gate = Gate::new();
    let mut world = World::with([call(&[("wait", json!({"text": "x"})), ("echo", json!({"text": "kept"}))])]);
    world.tools.push(gated("wait", &gate));
    let live = world.create().await;
    let id = live.id();
    live.session.prompt("go").await.unwrap();
    gate.reached().await;
    live.until(1, |event| matches!(event, Event::ToolEnded { .. })).await;
    live.session.follow_up("later").await.unwrap();
    let events = live.finish().await;
    assert!(events.iter().any(|one| matches!(one.event, Event::RunEnded { outcome: Outcome::Aborted })));
    let world = world.check().await;
    let (live, notices) = world.open(&id).await;
    assert_eq!((notices, live.session.view().waiting), (vec![], 1));
    assert!(matches!(live.session.send(Command::Continue).await, Ok(Ack::Started(_))));
    live.settled(1).await;
    let texts: Vec<String> = world.fake.last_messages().iter().map(text_of).collect();
    assert_eq!(texts[2..], ["Operation aborted", "kept", "done", "later"]);
    live.finish().await;
    world.check().await;
}
