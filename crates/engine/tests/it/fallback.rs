//! Models that continue a run when its own cannot, and the keys before them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use proptest::prelude::*;
use quipu::protocol::{
    Delta, Ending, Entry, Event, Message, Model, ModelError, ModelErrorKind, ModelRequest, Notice, Outcome,
    Thinking, Ui,
};
use quipu::store::{LineageEnd, Store, decode_nodes};
use quipu::{Call, CallEnd, ModelLookupError, Models, Provider, SessionOptions};
use quipu_providers::{AuthFile, CallOptions, MAX_CREDENTIALS_PER_CALL, Settings};
use quipu_testkit::{Answer, FakeServer, Reply};
use serde_json::json;

use crate::support::{Fake, LiveSession, World, call, echo, say};

/// Models by their names, each with what carries requests to it.
#[derive(Default)]
struct KnownModels(BTreeMap<String, (Arc<Model>, Arc<dyn Provider>)>);

impl KnownModels {
    fn with(mut self, id: &str, provider: Arc<dyn Provider>) -> Self {
        let model = Model {
            id: id.into(),
            api: "test".into(),
            provider: "elsewhere".into(),
            reasoning: true,
            ..Model::default()
        };
        self.0.insert(format!("elsewhere/{id}"), (Arc::new(model), provider));
        self
    }
}

impl Models for KnownModels {
    fn find(&self, provider: &str, id: &str) -> Result<(Arc<Model>, Arc<dyn Provider>), ModelLookupError> {
        let name = format!("{provider}/{id}");
        let missing = || ModelLookupError::Failed { why: format!("there is no {name}") };
        self.0.get(&name).cloned().ok_or_else(missing)
    }
}

/// A provider whose server is on another machine.
struct Remote(Arc<Fake>);

impl Provider for Remote {
    fn encode(&self, request: &ModelRequest) -> Result<bytes::Bytes, ModelError> {
        self.0.encode(request)
    }

    fn is_local(&self) -> bool {
        false
    }

    fn send(&self, call: Call) -> BoxFuture<'_, CallEnd> {
        self.0.send(call)
    }
}

fn fails(kind: ModelErrorKind, text: &str) -> crate::support::Reply {
    crate::support::Reply { error: Some(kind), ..say(text) }
}

async fn create(world: &World, known: KnownModels, names: &[&str]) -> LiveSession {
    let fallbacks = names.iter().map(ToString::to_string).collect();
    let models = Some(Arc::new(known) as Arc<dyn Models>);
    world.create_with(SessionOptions { models, fallbacks, ..world.options() }).await
}

fn notes(live: &LiveSession) -> Vec<String> {
    live.all(|event| match event {
        Event::Ui { ui: Ui::Notice { notice: Notice::Note { text } } } => Some(text.clone()),
        _ => None,
    })
}

/// What a person sees of answers at the end: pieces as they come, without those that were dropped.
#[derive(Default)]
struct Screen {
    open: BTreeMap<String, String>,
    shown: Vec<String>,
    dropped: usize,
}

impl Screen {
    fn of(live: &LiveSession) -> Self {
        let mut screen = Self::default();
        for envelope in live.events() {
            match &envelope.event {
                Event::MessageStarted { id, message, .. } if matches!(**message, Message::Assistant(_)) => {
                    screen.open.insert(id.to_string(), String::new());
                }
                Event::MessageDelta { id, delta: Delta::Text { text, .. } } => {
                    screen.open.get_mut(&id.to_string()).unwrap().push_str(text);
                }
                Event::MessageEnded { id, message, ending } => {
                    let Message::Assistant(answer) = &**message else { continue };
                    let streamed = screen.open.remove(&id.to_string()).unwrap();
                    match ending {
                        Ending::Committed(_) => {
                            assert!(answer.text().starts_with(&streamed), "{streamed} {}", answer.text());
                            screen.shown.push(answer.text());
                        }
                        Ending::Dropped(_) => screen.dropped += 1,
                    }
                }
                _ => {}
            }
        }
        assert!(screen.open.is_empty(), "{:?}", screen.open);
        screen
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fallback_continues_a_run_without_repeating_tools() {
    let runs = Arc::new(Mutex::new(0));
    let mut world = World::with([
        call(&[("echo", json!({ "text": "once" }))]),
        fails(ModelErrorKind::Overloaded, "half"),
    ]);
    let counted = runs.clone();
    let tool = crate::support::tool("echo", move |_, _| {
        *counted.lock().unwrap() += 1;
        async { quipu::ToolOutput::text("once") }
    });
    world.tools = vec![tool];
    let fake = Arc::new(Fake::default());
    fake.push([say("from the other")]);
    let known = KnownModels::default().with("b", fake.clone());
    let live = create(&world, known, &["elsewhere/none", "elsewhere/b"]).await;
    assert_eq!(live.run("a").await, Outcome::Done);
    assert_eq!(*runs.lock().unwrap(), 1);
    let screen = Screen::of(&live);
    assert_eq!((screen.shown.last().unwrap().as_str(), screen.dropped), ("from the other", 1));
    assert!(!screen.shown.iter().any(|text| text.contains("half")));
    let notes = notes(&live);
    assert!(notes[0].contains("elsewhere/none cannot be used"), "{notes:?}");
    assert!(notes[1].contains("continues with elsewhere/b"), "{notes:?}");
    // The other model sees the conversation with the result, and nothing of the half answer.
    let said: Vec<String> = fake.last_messages().iter().map(crate::support::text_of).collect();
    assert_eq!(said.last().map(String::as_str), Some("once"));
    let head = live.session.view().head.unwrap();
    live.finish().await;
    let nodes = world.store.lineage(head, LineageEnd::Root).await.unwrap();
    let decoded = decode_nodes(&*world.store, &nodes).await.unwrap();
    let fallback = decoded.iter().find_map(|one| match &one.entry {
        Entry::Epoch(epoch) => epoch.fallback.clone(),
        _ => None,
    });
    let fallback = fallback.expect("an epoch that says why");
    assert_eq!((fallback.model.as_str(), fallback.reason), ("test-model", ModelErrorKind::Overloaded));
    let failed = decoded.iter().find(|one| matches!(&one.entry, Entry::Meta(_))).expect("the failed call");
    assert!(failed.step.call.is_some(), "it is recorded as a call");
    world.fake.bodies.lock().unwrap().extend(fake.bodies());
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn local_model_falls_back_to_local_models_only() {
    let world = World::with([fails(ModelErrorKind::Server, "")]);
    let (far, near) = (Arc::new(Fake::default()), Arc::new(Fake::default()));
    let known = KnownModels::default().with("far", Arc::new(Remote(far.clone()))).with("near", near.clone());
    let live = create(&world, known, &["elsewhere/far", "elsewhere/near"]).await;
    assert_eq!(live.run("a").await, Outcome::Done);
    assert_eq!((far.bodies().len(), near.bodies().len()), (0, 1));
    assert!(notes(&live)[0].contains("not on this machine"), "{:?}", notes(&live));
    live.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_without_fallbacks_fails_as_before() {
    let world = World::with([fails(ModelErrorKind::Server, "half")]);
    let live = create(&world, KnownModels::default(), &[]).await;
    assert!(matches!(live.run("a").await, Outcome::Failed(error) if error.kind == ModelErrorKind::Server));
    let screen = Screen::of(&live);
    assert_eq!((screen.shown, screen.dropped), (vec!["half".to_owned()], 0));
    live.finish().await;
    world.check().await;
}

/// Models, keys and patience of a home, looked up anew as a front does.
struct HomeModels(std::path::PathBuf);

const RETRIES: u32 = 1;

impl HomeModels {
    fn settings(&self) -> Settings {
        let (settings, warnings) = Settings::load(&self.0, &|_| None);
        assert_eq!(warnings, []);
        let patience = CallOptions {
            base_delay: Duration::from_millis(1),
            max_retries: RETRIES,
            idle_timeout: Duration::from_secs(20),
            ..CallOptions::default()
        };
        settings.with_call_options(patience)
    }
}

impl Models for HomeModels {
    fn find(&self, provider: &str, id: &str) -> Result<(Arc<Model>, Arc<dyn Provider>), ModelLookupError> {
        let settings = self.settings();
        let model = settings.models_of(provider).iter().find(|model| model.id == id).cloned();
        let model = model.ok_or_else(|| ModelLookupError::Failed { why: format!("there is no {id}") })?;
        let carries = settings.provider_for(&model, None)?;
        Ok((model, carries))
    }
}

/// What a server does with a request, by a number.
fn reply(number: u8) -> Reply {
    let half = || Answer::new().text("Half of").unfinished();
    let says = |status, kind: &str, message: &str| Reply::error(status, kind, message);
    match number % 18 {
        0 => says(401, "authentication_error", "invalid x-api-key"),
        1 => says(401, "authentication_error", "API key revoked"),
        2 => says(402, "billing_error", "pay"),
        3 => says(429, "rate_limit_error", "slow down"),
        4 => says(429, "rate_limit_error", "weekly usage limit reached"),
        5 => says(529, "overloaded_error", "Overloaded"),
        6 => says(500, "api_error", "boom"),
        7 => says(400, "invalid_request_error", "odd"),
        8 => says(400, "invalid_request_error", "thinking: supported values are: 'low', 'high'."),
        9 => says(400, "invalid_request_error", "this model does not support thinking"),
        10 => says(404, "not_found_error", "model: m"),
        11 => says(413, "request_too_large", "too large"),
        12 => Reply::sse(half()).then_reset(),
        13 => Reply::sse(half()),
        14 => Reply::new(200, "text/html", "<title>Log in</title>"),
        15 => Reply::reset(),
        _ => Answer::new().text("Yes.").reply(),
    }
}

/// One model of a world: how many keys its provider has, and what its server does.
type ModelPlan = (usize, Vec<u8>);

fn worlds() -> impl Strategy<Value = (Vec<ModelPlan>, usize)> {
    let plan = (1..=3_usize, prop::collection::vec(any::<u8>(), 0..14));
    (prop::collection::vec(plan, 1..=3), 1..=3_usize)
}

/// Requests that one prompt makes at most: each model is asked at each of its levels of thinking, and each of these calls
/// with each key and so many retries.
fn most_requests(plans: &[ModelPlan]) -> usize {
    let levels = 5;
    let call = |keys: usize| 1 + RETRIES as usize + keys.min(MAX_CREDENTIALS_PER_CALL) - 1;
    plans.iter().map(|(keys, _)| levels * call(*keys)).sum()
}

async fn play(plans: Vec<ModelPlan>, prompts: usize) {
    let servers: Vec<FakeServer> = plans
        .iter()
        .map(|(_, numbers)| FakeServer::start(numbers.iter().map(|number| reply(*number))))
        .collect();
    let world = World::new();
    let home = world.dir.path().join("home");
    std::fs::create_dir_all(&home).unwrap();
    let mut providers = serde_json::Map::new();
    for (at, server) in servers.iter().enumerate() {
        let entry = json!({
            "baseUrl": server.url(),
            "api": "anthropic-messages",
            "models": [{ "id": format!("m{at}"), "reasoning": true, "contextWindow": 100_000, "maxTokens": 32_000 }],
        });
        providers.insert(format!("p{at}"), entry);
        for key in 0..plans[at].0 {
            let id = if key == 0 { format!("p{at}") } else { format!("p{at}:k{key}") };
            AuthFile::new(&home).set_key(&id, &format!("secret-key-{at}-{key}")).unwrap();
        }
    }
    std::fs::write(home.join("models.json"), json!({ "providers": providers }).to_string()).unwrap();
    let models = HomeModels(home.clone());
    let (model, provider) = models.find("p0", "m0").unwrap();
    let options = SessionOptions {
        thinking: Thinking::Medium,
        models: Some(Arc::new(models)),
        fallbacks: (1..servers.len()).map(|at| format!("p{at}/m{at}")).collect(),
        tools: vec![echo()],
        ..SessionOptions::new(world.cwd(), model, provider)
    };
    let live = world.create_with(options).await;
    let mut sent = 0;
    for _ in 0..prompts {
        let before = Screen::of(&live);
        let outcome = live.run("a").await;
        let screen = Screen::of(&live);
        let shown = &screen.shown[before.shown.len()..];
        match &outcome {
            Outcome::Done => assert_eq!(shown, ["Yes."], "one answer is shown"),
            Outcome::Failed(error) => {
                assert!(!error.message.is_empty());
                assert!(
                    shown.len() <= 1 && shown.iter().all(|text| "Half of".starts_with(text)),
                    "{shown:?}"
                );
            }
            other => panic!("{other:?}"),
        }
        let now: usize = servers.iter().map(|server| server.requests().len()).sum();
        assert!((1..=most_requests(&plans)).contains(&(now - sent)), "{} requests", now - sent);
        sent = now;
    }
    for request in servers.iter().flat_map(FakeServer::requests) {
        let body = String::from_utf8_lossy(&request.body).into_owned();
        assert!(!body.contains("Half of"), "no half answer is part of a request");
    }
    if let Ok(state) = std::fs::read_to_string(home.join("auth-state.json")) {
        assert!(!state.contains("secret-key"));
    }
    live.finish().await;
    crate::support::check_store(&world.store).await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_failures_end_in_an_answer_or_a_stated_error((plans, prompts) in worlds()) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(play(plans, prompts));
    }
}
