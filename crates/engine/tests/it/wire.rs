//! The engine over the real wire, against a server on the loopback address.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use quipu::SessionOptions;
use quipu::protocol::{ChunkId, Entry, Event, Message, ModelError, ModelErrorKind, ModelRequest, Outcome};
use quipu::store::{LineageEnd, Store, decode_nodes};
use quipu_providers::{Body, Call, CallEnd, CallOptions, Memory, Provider, Settings};
use quipu_testkit::{Answer, FakeServer, Gate, Reply};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::support::{LiveSession, World};

fn options(world: &World, server: &FakeServer) -> SessionOptions {
    let models = json!({ "providers": { "fake": {
        "baseUrl": server.url(),
        "api": "anthropic-messages",
        "apiKey": "a-key-for-tests",
        "models": [{ "id": "test-model", "input": ["text", "image"], "contextWindow": 100_000, "maxTokens": 1_000 }],
    } } });
    let home = world.dir.path().join("home");
    std::fs::create_dir_all(&home).unwrap();
    std::fs::write(home.join("models.json"), models.to_string()).unwrap();
    let (settings, warnings) = Settings::load(&home, &|_| None);
    assert_eq!(warnings, []);
    let call = CallOptions { base_delay: Duration::from_millis(1), ..CallOptions::default() };
    let settings = settings.with_call_options(call);
    let model = settings.models_of("fake")[0].clone();
    let provider = settings.provider_for(&model, None).unwrap();
    SessionOptions {
        tools: quipu::builtin(),
        system: Some("You are tested.".into()),
        ..SessionOptions::new(world.cwd(), model, provider)
    }
}

/// Every request that the server saw is kept to the byte, also after a restart.
async fn assert_kept(world: World, server: &FakeServer) -> World {
    let world = world.check().await;
    for request in server.requests() {
        let id = ChunkId(Sha256::digest(&request.body).into());
        assert_eq!(world.store.chunk(id, 0..u64::MAX).await.unwrap(), request.body);
    }
    world
}

#[tokio::test]
async fn a_task_over_the_wire_and_on_after_a_restart() {
    let server = FakeServer::start([
        Answer::new()
            .thinking("Look first.", "sig")
            .tool_call("c1", "bash", r#"{"command":"echo hi > f"}"#)
            .tool_call("c2", "read", r#"{ "path" : "f" }"#)
            .reply(),
        Answer::new().text("It says hi.").reply(),
        Answer::new().text("Still hi.").reply(),
    ]);
    let world = World::new();
    let live = world.create_with(options(&world, &server)).await;
    assert_eq!(live.run("what does it say?").await, Outcome::Done);
    assert_eq!(live.results()[1], ("c2".into(), "hi\n".into(), false));
    let id = live.id();
    live.finish().await;
    let world = assert_kept(world, &server).await;
    let opened = world.engine.open(&id, options(&world, &server)).await.unwrap();
    let live = LiveSession::of(opened.session).await;
    assert_eq!(live.run("and now?").await, Outcome::Done);
    live.finish().await;
    let bodies: Vec<_> = server.requests().iter().map(|request| request.json()["messages"].clone()).collect();
    let plain = |body: &serde_json::Value| {
        // The mark of what to cache moves with the end.
        let text = body.to_string().replace(r#","cache_control":{"type":"ephemeral"}"#, "");
        serde_json::from_str::<Vec<serde_json::Value>>(&text).unwrap()
    };
    for pair in bodies.windows(2) {
        assert!(plain(&pair[1]).starts_with(&plain(&pair[0])), "each body extends the one before it");
    }
    assert_kept(world, &server).await;
}

/// Says with what each body was begun.
struct WatchedProvider {
    inner: Arc<dyn Provider>,
    memories: Mutex<Vec<String>>,
}

impl Provider for WatchedProvider {
    fn encode(&self, request: &ModelRequest) -> Result<Bytes, ModelError> {
        self.inner.encode(request)
    }

    fn encode_next(&self, request: &ModelRequest, memory: &mut Memory) -> Result<Body, ModelError> {
        self.memories.lock().unwrap().push(format!("{memory:?}"));
        self.inner.encode_next(request, memory)
    }

    fn is_local(&self) -> bool {
        self.inner.is_local()
    }

    fn send(&self, call: Call) -> BoxFuture<'_, CallEnd> {
        self.inner.send(call)
    }
}

/// A session that nobody used for some minutes gives back what it had for its next request, which is as if it had not.
#[tokio::test]
async fn request_behind_a_rest_extends_the_one_before() {
    let server = FakeServer::start(["One.", "Two.", "Three."].map(|text| Answer::new().text(text).reply()));
    let world = World::new();
    let mut options = options(&world, &server);
    let watched = Arc::new(WatchedProvider { inner: options.provider.clone(), memories: Mutex::default() });
    options.provider = watched.clone();
    let live = world.create_with(options).await;
    for minutes in [0, 10, 0] {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(60 * minutes)).await;
        // The lease is renewed meanwhile, at which the session sees that nothing happened.
        for _ in 0..3 {
            tokio::time::advance(Duration::from_secs(100 * minutes.min(1))).await;
            tokio::task::yield_now().await;
        }
        tokio::time::resume();
        assert_eq!(live.run("and now?").await, Outcome::Done);
    }
    live.finish().await;
    let bodies: Vec<_> = server.requests().iter().map(|request| request.json()["messages"].clone()).collect();
    assert_eq!(bodies.iter().map(|body| body.as_array().unwrap().len()).collect::<Vec<_>>(), [1, 3, 5]);
    let memories = watched.memories.lock().unwrap().clone();
    assert_eq!(memories.iter().map(|known| known.contains("Some")).collect::<Vec<_>>(), [false, false, true]);
    assert_kept(world, &server).await;
}

#[tokio::test]
async fn failures_that_pass_are_attempts_of_one_answer() {
    let busy = || Reply::error(503, "overloaded_error", "busy").header("retry-after-ms", "1");
    let server = FakeServer::start([busy(), busy(), Answer::new().text("There.").reply()]);
    let world = World::new();
    let live = world.create_with(options(&world, &server)).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    assert_eq!(live.all(|event| matches!(event, Event::RetryScheduled { .. }).then_some(())).len(), 2);
    let head = live.session.view().head.unwrap();
    live.finish().await;
    assert_eq!(server.requests().len(), 3);
    let nodes = world.store.lineage(head, LineageEnd::Root).await.unwrap();
    let decoded = decode_nodes(&*world.store, &nodes).await.unwrap();
    let answers: Vec<_> =
        decoded.iter().filter(|one| matches!(&one.entry, Entry::Message(Message::Assistant(_)))).collect();
    assert_eq!(answers.len(), 1);
    let call = answers[0].step.call.as_ref().unwrap();
    assert_eq!(
        call.attempts.iter().map(|attempt| attempt.status).collect::<Vec<_>>(),
        [Some(503), Some(503), Some(200)]
    );
    assert!(call.local && call.first_token_ms.is_some() && call.duration_ms.is_some());
    assert_kept(world, &server).await;
}

#[tokio::test]
async fn an_answer_that_is_stopped_keeps_what_came() {
    let gate = Gate::new();
    let half = Answer::new().text("The beginning of it.").unfinished();
    let server = FakeServer::start([Reply::sse(half).then_gate(&gate), Answer::new().text("On.").reply()]);
    let world = World::new();
    let live = world.create_with(options(&world, &server)).await;
    live.session.prompt("go").await.unwrap();
    live.until(2, |event| matches!(event, Event::MessageDelta { .. })).await;
    live.session.abort().await.unwrap();
    live.settled(1).await;
    gate.open();
    assert_eq!(live.outcomes(), [Outcome::Aborted]);
    assert!(live.said()[1].starts_with("assistant: The beg"));
    assert_eq!(live.run("again").await, Outcome::Done);
    assert_eq!(
        server.requests()[1].json()["messages"].as_array().unwrap().len(),
        2,
        "two prompts, no half answer"
    );
    live.finish().await;
    assert_kept(world, &server).await;
}

#[tokio::test]
async fn bad_answers_end_the_run_and_the_session_goes_on() {
    let cases: [(Reply, ModelErrorKind); 7] = [
        (Reply::error(401, "authentication_error", "no"), ModelErrorKind::Auth),
        (Reply::error(404, "not_found_error", "no such model"), ModelErrorKind::UnknownModel),
        (Reply::new(200, "text/html", "<html>hello</html>"), ModelErrorKind::Malformed),
        (Reply::sse(""), ModelErrorKind::StreamEnded),
        (Reply::sse("event: message_start\ndata: {\"type\":\"mess"), ModelErrorKind::StreamEnded),
        (Reply::sse("garbage\n\n".repeat(100)), ModelErrorKind::Malformed),
        (Reply::reset(), ModelErrorKind::Network),
    ];
    for (reply, kind) in cases {
        // Those that may pass are tried four times.
        let server = FakeServer::start(std::iter::repeat_n(reply, if kind.is_transient() { 4 } else { 1 }));
        let world = World::new();
        let live = world.create_with(options(&world, &server)).await;
        let outcome = live.run("go").await;
        assert!(matches!(&outcome, Outcome::Failed(error) if error.kind == kind), "{kind:?}: {outcome:?}");
        server.push(Answer::new().text("Well.").reply());
        assert_eq!(live.run("again").await, Outcome::Done, "{kind:?}");
        live.finish().await;
        assert_kept(world, &server).await;
    }
}

#[tokio::test]
async fn stalled_reader_pauses_server_and_abort_still_works() {
    let piece = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"more and more and more\"}}\n\n";
    let begin = Answer::new().event(
        json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } }),
    );
    let server = FakeServer::start([
        Reply::sse(begin.unfinished()).then_repeat(piece, 400_000).then_hang(),
        Answer::new().text("On.").reply(),
    ]);
    let world = World::new();
    let live = world.create_with(options(&world, &server)).await;
    let (_, events) = live.session.subscribe(quipu::Delivery::Lossless).await.unwrap();
    live.session.prompt("go").await.unwrap();
    live.until(200, |event| matches!(event, Event::MessageDelta { .. })).await;
    live.session.abort().await.unwrap();
    live.settled(1).await;
    assert!(live.events().len() < 2_000, "{}", live.events().len());
    drop(events);
    assert_eq!(live.run("again").await, Outcome::Done);
    live.finish().await;
    assert_kept(world, &server).await;
}
