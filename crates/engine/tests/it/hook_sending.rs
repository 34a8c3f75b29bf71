//! Hooks at the bytes of a request, its headers, the beginning of the answer, and the system prompt: what they change is recorded
//! before it is sent, and is what is sent again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use quipu::protocol::{CallRecord, Command, Entry, Event, Json, ModelErrorKind, NodeId, Outcome};
use quipu::store::{LineageEnd, RefName, Store as _, decode_nodes};
use quipu::{
    HOOK_HEADERS, Hook, HookContext, HookError, HookFailure, Payload, PayloadChange, ResponseHead, RunStart,
    RunStartVerdict, SendVerdict, SessionOptions,
};

use serde_json::{Value, json};

use crate::hooks::{hooked, notes, records};
use crate::support::{Gate, LiveSession, Reply, World, say};

const SECRET: &str = "ghp_0123456789abcdefghijABCDEFGHIJ012345";

type Change = dyn Fn(&Payload) -> SendVerdict + Send + Sync;

/// Changes the bytes of each request, and counts how often.
struct SendHook {
    change: Box<Change>,
    guards: bool,
    called: AtomicUsize,
}

impl SendHook {
    fn with(change: impl Fn(&Payload) -> SendVerdict + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { change: Box::new(change), guards: false, called: AtomicUsize::new(0) })
    }

    fn called(&self) -> usize {
        self.called.load(Ordering::SeqCst)
    }
}

impl Hook for SendHook {
    fn name(&self) -> &str {
        "sends"
    }

    fn on_failure(&self) -> HookFailure {
        if self.guards { HookFailure::Block } else { HookFailure::Pass }
    }

    fn changes_payloads(&self) -> bool {
        true
    }

    fn before_send<'a>(
        &'a self,
        payload: &'a Payload,
        _: &'a HookContext,
    ) -> BoxFuture<'a, Result<SendVerdict, HookError>> {
        self.called.fetch_add(1, Ordering::SeqCst);
        Box::pin(std::future::ready(Ok((self.change)(payload))))
    }
}

/// Adds a number to the body, a header that holds a secret, and takes one away.
fn marks() -> Arc<SendHook> {
    let count = AtomicUsize::new(0);
    SendHook::with(move |payload| {
        let mut body = payload.body.value();
        body["mark"] = json!(count.fetch_add(1, Ordering::SeqCst));
        SendVerdict::Change(PayloadChange {
            body: Some(Json::from(&body)),
            set_headers: BTreeMap::from([("x-team".to_owned(), format!("blue {SECRET}"))]),
            remove_headers: vec!["x-old".into()],
        })
    })
}

fn bodies(world: &World) -> Vec<Value> {
    world.fake.bodies().iter().map(|body| serde_json::from_slice(body).unwrap()).collect()
}

/// The records of calls on the lineage of a session.
async fn calls(world: &World, live: &LiveSession) -> Vec<CallRecord> {
    let head = live.session.view().head.unwrap();
    let nodes = world.store.lineage(head, LineageEnd::Root).await.unwrap();
    let decoded = decode_nodes(&*world.store, &nodes).await.unwrap();
    decoded.into_iter().filter_map(|one| one.step.call).collect()
}

async fn go_on(live: &LiveSession) -> Outcome {
    let before = live.outcomes().len();
    live.session.send(Command::Continue).await.unwrap();
    live.settled(before + 1).await;
    live.outcomes().pop().unwrap()
}

#[tokio::test]
async fn bytes_and_headers_are_changed_recorded_and_sent_again() {
    let world =
        World::with([Reply { error: Some(ModelErrorKind::Overloaded), ..say("") }, say("a0"), say("a1")]);
    let hook = marks();
    let live = hooked(&world, vec![hook.clone()]).await;
    assert!(matches!(live.run("one").await, Outcome::Failed(_)));
    assert_eq!(go_on(&live).await, Outcome::Done);
    assert_eq!(hook.called(), 1, "what was recorded is sent once more, and no hook is asked");
    let sent = world.fake.bodies();
    assert_eq!(sent[0], sent[1]);
    assert_eq!(bodies(&world)[0]["mark"], json!(0));
    let headers = world.fake.headers.lock().unwrap().clone();
    assert_eq!(headers[0], headers[1]);
    assert_eq!(headers[0].set, [("x-team".to_owned(), format!("blue {SECRET}"))]);
    assert_eq!(headers[0].removed, ["x-old"]);
    // Another request is another question for them.
    assert_eq!(live.run("two").await, Outcome::Done);
    assert_eq!((hook.called(), bodies(&world)[2]["mark"].clone()), (2, json!(1)));
    let calls = calls(&world, &live).await;
    assert_eq!(calls.len(), 3);
    for (call, sent) in calls.iter().zip(world.fake.bodies()) {
        assert_eq!(world.store.chunk(call.body, 0..u64::MAX).await.unwrap(), sent);
        assert!(call.before_hooks.is_some_and(|before| before != call.body));
        assert_eq!(call.removed_headers, ["x-old"]);
        let kept = &call.headers["x-team"];
        assert!(kept.starts_with("blue ") && !kept.contains(SECRET), "{kept}");
    }
    assert_eq!(calls[0].before_hooks, calls[1].before_hooks);
    let kept = records(&world, &live).await;
    assert_eq!((&kept[0][0]["point"], &kept[0][0]["did"]), (&json!("beforeSend"), &json!("replaced")));
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn changed_request_is_sent_again_after_a_crash_without_the_hook() {
    for aborts in [false, true] {
        let gate = Gate::new();
        let world = World::with([Reply { before: Some(gate.clone()), ..say("never") }, say("a0"), say("a1")]);
        let live = hooked(&world, vec![marks()]).await;
        let id = live.id();
        live.session.prompt("one").await.unwrap();
        gate.reached().await;
        if aborts {
            live.session.abort().await.unwrap();
            live.settled(1).await;
            live.finish().await;
        } else {
            live.session.kill();
            drop(live.ended().await);
        }
        let (live, _) = world.open(&id).await;
        assert_eq!(go_on(&live).await, Outcome::Done);
        let sent = world.fake.bodies();
        assert_eq!(sent[0], sent[1], "aborted: {aborts}");
        let headers = world.fake.headers.lock().unwrap().clone();
        assert_eq!(headers[0], headers[1]);
        // It has its answer: what follows is as it is without hooks.
        assert_eq!(live.run("two").await, Outcome::Done);
        assert!(bodies(&world)[2].get("mark").is_none());
        assert!(world.fake.headers.lock().unwrap()[2].is_empty());
        live.finish().await;
        world.check().await;
    }
}

#[tokio::test]
async fn another_request_is_not_the_one_that_was_changed() {
    let world = World::with([Reply { error: Some(ModelErrorKind::Overloaded), ..say("") }, say("a0")]);
    let live = hooked(&world, vec![marks()]).await;
    let id = live.id();
    assert!(matches!(live.run("one").await, Outcome::Failed(_)));
    live.finish().await;
    let (live, _) = world.open(&id).await;
    assert_eq!(live.run("two").await, Outcome::Done);
    assert!(bodies(&world)[1].get("mark").is_none());
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn changes_that_cannot_be_made_have_no_effect() {
    let header = |name: &str, value: &str| PayloadChange {
        set_headers: BTreeMap::from([(name.to_owned(), value.to_owned())]),
        ..PayloadChange::default()
    };
    let removes = PayloadChange { remove_headers: vec!["authorization".into()], ..PayloadChange::default() };
    let cases = [
        (header("authorization", "Bearer x"), "the header authorization cannot be changed"),
        (removes, "the header authorization cannot be changed"),
        (header("X-Team", "x"), "is not in lower case"),
        (header("x team", "x"), "is not a valid header name"),
        (header("x-team", "a\r\nb: c"), "has characters that HTTP does not allow"),
        (header("x-team", &"x".repeat(HOOK_HEADERS)), "bytes of headers"),
    ];
    for (change, why) in cases {
        for guards in [false, true] {
            let world = World::with([say("a0")]);
            let change = change.clone();
            let hook = SendHook::with(move |_| SendVerdict::Change(change.clone()));
            let hook = Arc::new(SendHook { guards, ..Arc::into_inner(hook).unwrap() });
            let live = hooked(&world, vec![hook]).await;
            let outcome = live.run("one").await;
            assert!(notes(&live).iter().any(|note| note.contains(why)), "{why}: {:?}", notes(&live));
            if guards {
                let Outcome::Failed(error) = outcome else { panic!("{outcome:?}") };
                assert_eq!(error.kind, ModelErrorKind::InvalidRequest);
                assert!(error.message.contains("blocked this"), "{error:?}");
                assert!(world.fake.bodies().is_empty(), "nothing is sent");
            } else {
                assert_eq!(outcome, Outcome::Done);
                assert!(world.fake.headers.lock().unwrap()[0].is_empty());
                assert_eq!(calls(&world, &live).await[0].before_hooks, None);
            }
            live.finish().await;
        }
    }
}

#[tokio::test]
async fn each_hook_sees_the_bytes_that_the_one_before_it_left() {
    let world = World::with([say("a0")]);
    let add = |name: &'static str| {
        SendHook::with(move |payload: &Payload| {
            let mut body = payload.body.value();
            let seen = json!([body["seen"], payload.headers.keys().collect::<Vec<_>>()]);
            body["seen"] = seen;
            SendVerdict::Change(PayloadChange {
                body: Some(Json::from(&body)),
                set_headers: BTreeMap::from([(name.to_owned(), "1".to_owned())]),
                remove_headers: vec!["x-b".into()],
            })
        })
    };
    let live = hooked(&world, vec![add("x-a"), add("x-b"), add("x-c")]).await;
    assert_eq!(live.run("one").await, Outcome::Done);
    let seen = json!([[[null, []], ["x-a"]], ["x-a", "x-b"]]);
    assert_eq!(bodies(&world)[0]["seen"], seen);
    let headers = world.fake.headers.lock().unwrap()[0].clone();
    let names: Vec<_> = headers.set.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!((names, headers.removed), (vec!["x-a", "x-c"], vec!["x-b".to_owned()]));
    live.finish().await;
}

/// Looks on at the beginning of answers.
struct ResponseHook {
    heads: Arc<Mutex<Vec<ResponseHead>>>,
    gate: Option<Gate>,
}

impl Hook for ResponseHook {
    fn name(&self) -> &str {
        "looks"
    }

    fn response<'a>(
        &'a self,
        head: &'a ResponseHead,
        cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<(), HookError>> {
        assert!(cx.run.is_some());
        Box::pin(async move {
            if let Some(gate) = &self.gate {
                gate.pass().await;
            }
            self.heads.lock().unwrap().push(head.clone());
            Ok(())
        })
    }
}

#[tokio::test]
async fn beginning_of_an_answer_is_shown_and_nothing_waits_for_it() {
    let world = World::with([say("a0"), say("a1")]);
    let (heads, gate) = (Arc::<Mutex<Vec<ResponseHead>>>::default(), Gate::new());
    let live =
        hooked(&world, vec![Arc::new(ResponseHook { heads: heads.clone(), gate: Some(gate.clone()) })]).await;
    assert_eq!(live.run("one").await, Outcome::Done);
    assert!(heads.lock().unwrap().is_empty(), "the run is over, and the hook has not answered yet");
    gate.open();
    assert_eq!(live.run("two").await, Outcome::Done);
    while heads.lock().unwrap().len() < 2 {
        tokio::task::yield_now().await;
    }
    let head = heads.lock().unwrap()[0].clone();
    assert_eq!((head.attempt, head.status), (1, 200));
    assert_eq!(head.headers, [("x-request-id".to_owned(), "r1".to_owned())]);
    live.finish().await;
    world.check().await;
}

/// Says something in the system prompt at each run.
struct PromptHook(Arc<Mutex<Option<String>>>);

impl Hook for PromptHook {
    fn name(&self) -> &str {
        "says"
    }

    fn before_run<'a>(
        &'a self,
        _: &'a RunStart,
        _: &'a HookContext,
    ) -> BoxFuture<'a, Result<RunStartVerdict, HookError>> {
        let text = self.0.lock().unwrap().clone();
        let verdict = text.map_or(RunStartVerdict::Pass, RunStartVerdict::system);
        Box::pin(std::future::ready(Ok(verdict)))
    }
}

fn system(world: &World) -> String {
    bodies(world).last().unwrap()["system"].as_str().unwrap().to_owned()
}

/// How many epochs begin on the lineage of a session.
async fn epochs(world: &World, head: NodeId) -> usize {
    let nodes = world.store.lineage(head, LineageEnd::Root).await.unwrap();
    let decoded = decode_nodes(&*world.store, &nodes).await.unwrap();
    decoded.iter().filter(|one| matches!(one.entry, Entry::Epoch(_))).count()
}

#[tokio::test]
async fn system_text_of_a_hook_is_an_epoch_and_stays_until_replaced() {
    let world = World::new();
    let text = Arc::new(Mutex::new(None));
    let says: Vec<Arc<dyn Hook>> = vec![Arc::new(PromptHook(text.clone()))];
    let options = |hooks| SessionOptions { hooks, system: Some("Base.".into()), ..world.options() };
    let live = world.create_with(options(says.clone())).await;
    live.run("one").await;
    assert_eq!(system(&world), "Base.");
    let say_now = |words: &str| *text.lock().unwrap() = Some(words.to_owned());
    say_now(&format!("It rains {SECRET}."));
    live.run("two").await;
    let with = system(&world);
    assert!(with.starts_with("Base.\n\nIt rains ") && !with.contains(SECRET), "{with}");
    live.run("three").await;
    assert_eq!(system(&world), with);
    let head = live.session.view().head.unwrap();
    assert_eq!(epochs(&world, head).await, 1, "the same text again is no change");
    // It stays where the hook says nothing, in another process, and where the hook is gone.
    *text.lock().unwrap() = None;
    let id = live.id();
    live.finish().await;
    for hooks in [says.clone(), Vec::new()] {
        let live = LiveSession::of(
            world
                .engine
                .open(&id, SessionOptions { hooks, system: None, ..world.options() })
                .await
                .unwrap()
                .session,
        )
        .await;
        live.run("four").await;
        assert_eq!(system(&world), with);
        live.finish().await;
    }
    let options = SessionOptions { hooks: says, system: None, ..world.options() };
    let live = LiveSession::of(world.engine.open(&id, options).await.unwrap().session).await;
    say_now("The sun shines.");
    live.run("five").await;
    assert_eq!(system(&world), "Base.\n\nThe sun shines.");
    // Going back does not take it away.
    live.session.jump(head, None, None).await.unwrap();
    live.until(1, |event| matches!(event, Event::JumpEnded { .. })).await;
    live.run("six").await;
    assert_eq!(system(&world), "Base.\n\nThe sun shines.");
    say_now("");
    live.run("seven").await;
    assert_eq!(system(&world), "Base.");
    live.finish().await;
    let stored = world.store.head(&RefName::session(&id)).await.unwrap().unwrap();
    assert!(epochs(&world, stored).await >= 2);
    crate::support::check_store(&world.store).await;
}

#[tokio::test]
async fn hook_that_hangs_over_the_bytes_ends_only_its_own_effect() {
    struct HangingHook;
    impl Hook for HangingHook {
        fn name(&self) -> &str {
            "hangs"
        }

        fn deadline(&self) -> Duration {
            Duration::from_millis(10)
        }

        fn changes_payloads(&self) -> bool {
            true
        }

        fn before_send<'a>(
            &'a self,
            _: &'a Payload,
            _: &'a HookContext,
        ) -> BoxFuture<'a, Result<SendVerdict, HookError>> {
            Box::pin(std::future::pending())
        }
    }
    let world = World::with([say("a0")]);
    let live = hooked(&world, vec![Arc::new(HangingHook), marks()]).await;
    assert_eq!(live.run("one").await, Outcome::Done);
    assert_eq!(bodies(&world)[0]["mark"], json!(0));
    assert!(notes(&live).iter().any(|note| note.contains("did not answer within")), "{:?}", notes(&live));
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn header_with_an_unknown_secret_fails_that_request_alone() {
    let world = World::with([say("a0")]);
    let count = AtomicUsize::new(0);
    let hook = SendHook::with(move |_| match count.fetch_add(1, Ordering::SeqCst) {
        0 => SendVerdict::Change(PayloadChange {
            set_headers: BTreeMap::from([(
                "x-team".to_owned(),
                "[REDACTED:github-token:00000000]".to_owned(),
            )]),
            ..PayloadChange::default()
        }),
        _ => SendVerdict::Pass,
    });
    let live = hooked(&world, vec![hook.clone()]).await;
    let Outcome::Failed(error) = live.run("one").await else { panic!("it was sent") };
    assert!(error.message.contains("x-team"), "{error:?}");
    assert_eq!(go_on(&live).await, Outcome::Done);
    assert_eq!(hook.called(), 2, "what cannot be sent is not tried again");
    live.finish().await;
}
