//! Several stored keys of one provider, against a real server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use quipu_protocol::{Message, ModelErrorKind as K, ModelRequest, Thinking};
use quipu_providers::{AuthFile, Call, CallEnd, CallOptions, Provider, Settings, forget_key_use};
use quipu_testkit::{Answer, FakeServer, Reply};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// A home with a provider that a fake server stands for.
struct World {
    home: tempfile::TempDir,
    server: FakeServer,
    env: BTreeMap<String, String>,
}

impl World {
    fn new(keys: &[(&str, &str)], replies: impl IntoIterator<Item = Reply>) -> Self {
        let home = tempfile::tempdir().unwrap();
        let server = FakeServer::start(replies);
        let world = Self { home, server, env: BTreeMap::new() };
        let models = json!({ "providers": { "fake": {
            "baseUrl": world.server.url(), "api": "anthropic-messages",
            "models": [{ "id": "m" }, { "id": "n" }],
        } } });
        std::fs::write(world.home.path().join("models.json"), models.to_string()).unwrap();
        for (id, key) in keys {
            AuthFile::new(world.home.path()).set_key(id, key).unwrap();
        }
        world
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.home.path().join(name), text).unwrap();
    }

    fn settings(&self) -> Settings {
        let (settings, warnings) = Settings::load(self.home.path(), &|name| self.env.get(name).cloned());
        assert!(warnings.is_empty(), "{warnings:?}");
        let patience =
            CallOptions { base_delay: Duration::from_millis(1), max_retries: 1, ..CallOptions::default() };
        settings.with_call_options(patience)
    }

    fn caller(&self, model: &str) -> (Arc<dyn Provider>, Arc<ModelRequest>) {
        let settings = self.settings();
        let found = settings.models_of("fake").iter().find(|it| it.id == model).unwrap().clone();
        let provider = settings.provider_for(&found, None).unwrap();
        let request = ModelRequest {
            model: found,
            system: "".into(),
            tools: Vec::new().into(),
            messages: vec![Arc::new(Message::user("Hi", 0))].into(),
            thinking: Thinking::Off,
            max_tokens: None,
            session: None,
            stable_system: None,
        };
        (provider, Arc::new(request))
    }

    /// One call, as a new process makes it.
    async fn call(&self) -> CallEnd {
        call(&self.caller("m")).await
    }

    /// The keys that requests had, in order.
    fn keys(&self) -> Vec<String> {
        let key = |it: quipu_testkit::CapturedRequest| it.header("x-api-key").unwrap_or_default().to_owned();
        self.server.requests().into_iter().map(key).collect()
    }

    fn state(&self) -> Option<String> {
        std::fs::read_to_string(self.home.path().join("auth-state.json")).ok()
    }
}

async fn call((provider, request): &(Arc<dyn Provider>, Arc<ModelRequest>)) -> CallEnd {
    let (events, mut read) = mpsc::channel(64);
    let body = provider.encode(request).unwrap();
    let sent = provider.send(Call::new(request.clone(), body, events, CancellationToken::new()));
    let drain = async { while read.recv().await.is_some() {} };
    tokio::join!(sent, drain).0
}

fn yes() -> Reply {
    Answer::new().text("Yes.").reply()
}

fn refusal() -> Reply {
    Reply::error(401, "authentication_error", "invalid x-api-key")
}

fn limit() -> Reply {
    Reply::error(429, "rate_limit_error", "slow down")
}

fn names(end: &CallEnd) -> Vec<Option<&str>> {
    end.attempts.iter().map(|attempt| attempt.credential.as_deref()).collect()
}

const ONE: &str = "key-number-1";
const TWO: &str = "key-number-2";

#[tokio::test]
async fn refused_key_gives_way_to_another() {
    let world = World::new(&[("fake", ONE), ("fake:work", TWO)], [refusal(), yes(), yes(), yes()]);
    let end = world.call().await;
    assert_eq!((end.error.as_ref(), names(&end)), (None, vec![Some("fake"), Some("fake:work")]));
    // It is known to the next process, and nothing of a key is in the file.
    assert_eq!(names(&world.call().await), [Some("fake:work")]);
    assert_eq!(world.keys(), [ONE, TWO, TWO]);
    let state = world.state().unwrap();
    assert!(state.contains("\"fake\"") && !state.contains(ONE) && !state.contains(TWO), "{state}");
    let statuses = world.settings().key_statuses("fake");
    let rests: Vec<_> =
        statuses.iter().map(|it| (it.id.as_str(), it.rest.as_ref().map(|it| it.after))).collect();
    assert_eq!(rests, [("fake:work", None), ("fake", Some("a refusal"))]);
    // A key that is stored anew was not refused.
    AuthFile::new(world.home.path()).set_key("fake", "key-number-3").unwrap();
    forget_key_use(world.home.path(), "fake").unwrap();
    assert_eq!(names(&world.call().await), [Some("fake")]);
}

#[tokio::test]
async fn single_key_keeps_no_state() {
    let mut world = World::new(&[("fake", ONE)], [refusal(), limit(), yes()]);
    assert_eq!(world.call().await.error.unwrap().kind, K::Auth);
    let end = world.call().await;
    assert_eq!((end.error.as_ref(), names(&end)), (None, vec![None, Some("auth.json")]));
    assert_eq!(world.state(), None);
    assert!(world.settings().key_statuses("fake").is_empty());
    // One from the environment alone is one alone.
    world.env.insert("OTHER".into(), TWO.into());
    AuthFile::new(world.home.path()).remove("fake").unwrap();
    let models = std::fs::read_to_string(world.home.path().join("models.json")).unwrap();
    world.write("models.json", &models.replace("\"baseUrl\"", "\"apiKey\":\"$OTHER\",\"baseUrl\""));
    world.server.push(refusal());
    assert_eq!(world.call().await.error.unwrap().kind, K::Auth);
    assert_eq!((world.keys().last().unwrap().as_str(), world.state()), (TWO, None));
}

#[tokio::test]
async fn key_of_models_file_follows_stored_keys() {
    let world = World::new(&[("fake:b", TWO)], [refusal(), yes()]);
    let models = std::fs::read_to_string(world.home.path().join("models.json")).unwrap();
    world.write("models.json", &models.replace("\"baseUrl\"", "\"apiKey\":\"key-number-1\",\"baseUrl\""));
    let end = world.call().await;
    assert_eq!((end.error.as_ref(), names(&end)), (None, vec![Some("fake:b"), Some("models.json")]));
    assert_eq!(world.keys(), [TWO, ONE]);
}

#[tokio::test]
async fn named_key_alone_is_the_key_of_its_provider() {
    let world = World::new(&[("fake:b", TWO)], [yes()]);
    assert_eq!(world.settings().credential_source("fake").as_deref(), Some("auth.json"));
    assert_eq!(world.call().await.error, None);
    assert_eq!((world.keys(), world.state()), (vec![TWO.to_owned()], None));
}

#[tokio::test]
async fn key_order_of_the_settings_counts() {
    let world = World::new(&[("fake", ONE), ("fake:work", TWO)], [yes(), yes(), yes()]);
    // Without it, the one that was not used for the longest time.
    assert_eq!(names(&world.call().await), [Some("fake")]);
    assert_eq!(names(&world.call().await), [Some("fake:work")]);
    world.write("settings.json", r#"{"keyOrder":["fake:work","fake"]}"#);
    assert_eq!(names(&world.call().await), [Some("fake:work")]);
}

#[tokio::test]
async fn session_stays_with_its_key() {
    let world = World::new(&[("fake", ONE), ("fake:work", TWO)], [yes(), yes(), yes()]);
    let caller = world.caller("m");
    for _ in 0..3 {
        assert_eq!(names(&call(&caller).await), [Some("fake")]);
    }
}

#[tokio::test]
async fn rate_limit_of_one_model_leaves_the_key_to_others() {
    let world = World::new(&[("fake", ONE), ("fake:work", TWO)], [limit(), yes(), yes()]);
    world.write("settings.json", r#"{"keyOrder":["fake","fake:work"]}"#);
    assert_eq!(names(&world.call().await), [Some("fake"), Some("fake:work")]);
    assert_eq!(names(&call(&world.caller("n")).await), [Some("fake")]);
}

#[tokio::test]
async fn calls_end_when_all_keys_are_refused() {
    let world = World::new(&[("fake", ONE), ("fake:b", TWO)], (0..9).map(|_| refusal()));
    let end = world.call().await;
    assert_eq!((end.error.as_ref().map(|it| it.kind), names(&end).len()), (Some(K::Auth), 2));
    // They rest, and are tried all the same: nothing else can be.
    let end = world.call().await;
    assert_eq!((end.error.map(|it| it.kind), end.attempts.len()), (Some(K::Auth), 1));
    // Where all are limited, the wire waits and tries again.
    let world = World::new(&[("fake", ONE), ("fake:b", TWO)], [limit(), limit(), yes()]);
    let end = world.call().await;
    assert_eq!((end.error.as_ref(), names(&end).len()), (None, 3));
}

#[tokio::test]
async fn named_key_is_read_again_after_a_refusal() {
    let world = World::new(&[("fake", ONE), ("fake:work", TWO)], [refusal(), yes()]);
    let caller = world.caller("m");
    AuthFile::new(world.home.path()).set_key("fake", "key-number-3").unwrap();
    let end = call(&caller).await;
    assert_eq!((end.error.as_ref(), names(&end)), (None, vec![Some("fake"), Some("fake")]));
    assert_eq!(world.keys(), [ONE, "key-number-3"]);
}

#[tokio::test]
async fn uses_that_cannot_be_written_are_told() {
    let world = World::new(&[("fake", ONE), ("fake:b", TWO)], [refusal(), refusal()]);
    world.write("auth-state.json", "{ not ours");
    let error = world.call().await.error.unwrap();
    assert!(error.message.contains("auth-state.json"), "{error}");
    assert_eq!(world.keys(), [ONE, TWO], "the keys are tried all the same");
    assert_eq!(world.state().unwrap(), "{ not ours");
}

#[tokio::test]
async fn named_keys_are_secrets() {
    let world = World::new(&[("fake", ONE), ("fake:work", TWO), ("fake:third", "key-number-3")], []);
    let secrets = world.settings().secrets();
    for key in [ONE, TWO, "key-number-3"] {
        assert!(secrets.contains(&("fake".to_owned(), key.to_owned())), "{key}");
    }
}
