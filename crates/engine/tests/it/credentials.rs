//! Credentials from a source, in sessions: what is sealed, what is recorded, and what goes on.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use quipu::SessionOptions;
use quipu::protocol::{Entry, Message, ModelErrorKind, Outcome};
use quipu::store::{Store as _, Until, decode_nodes};
use quipu_providers::{
    CallOptions, CallOutcome, Credential, CredentialError, CredentialRequest, CredentialSource, Credentials,
    Expiry, Scheme, Secret, Settings,
};
use quipu_replay::{Places, Recorder};
use quipu_testkit::{Answer, FakeServer, Reply};
use serde_json::json;

use crate::support::{LiveSession, World};

/// Gives what it was given, one after the other.
struct Queue(Mutex<VecDeque<Result<Credential, CredentialError>>>);

impl CredentialSource for Queue {
    fn name(&self) -> &str {
        "a queue"
    }

    fn credential<'a>(
        &'a self,
        _request: &'a CredentialRequest<'a>,
    ) -> BoxFuture<'a, Result<Credential, CredentialError>> {
        let next = self.0.lock().unwrap().pop_front();
        let over = || Err(CredentialError::Unavailable { why: "nothing is left".into() });
        Box::pin(std::future::ready(next.unwrap_or_else(over)))
    }

    fn report<'a>(&'a self, _identity: &'a str, _outcome: &'a CallOutcome) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }
}

fn token(identity: &str, expiry: Expiry) -> Credential {
    let secret = Secret::new(format!("{identity}-token-that-nobody-may-see"));
    Credential { expiry, ..Credential::new(identity, Scheme::Bearer(secret)) }
}

fn options(
    world: &World,
    server: &FakeServer,
    given: impl IntoIterator<Item = Result<Credential, CredentialError>>,
) -> (SessionOptions, Arc<Recorder>) {
    let models = json!({ "providers": { "testing": {
        "baseUrl": server.url(),
        "api": "anthropic-messages",
        "models": [{ "id": "test-model", "contextWindow": 100_000, "maxTokens": 1_000 }],
    } } });
    let home = world.dir.path().join("home");
    std::fs::create_dir_all(&home).unwrap();
    std::fs::write(home.join("models.json"), models.to_string()).unwrap();
    let credentials = Credentials::new(Arc::new(Queue(Mutex::new(given.into_iter().collect()))));
    let call = CallOptions { base_delay: Duration::from_millis(1), ..CallOptions::default() };
    let (settings, warnings) = Settings::load(&home, &|_| None);
    assert_eq!(warnings, []);
    let settings = settings.with_call_options(call).with_credentials("testing", credentials);
    let model = settings.models_of("testing")[0].clone();
    let provider = settings.provider_for(&model, None).unwrap();
    let path = world.dir.path().join("session.rec");
    let sealer = world.engine.sealer().clone();
    let recorder = Arc::new(Recorder::create(&path, provider, sealer, Places::of(world.cwd())).unwrap());
    let options = SessionOptions {
        tools: quipu::builtin(),
        ..SessionOptions::new(world.cwd(), model, recorder.clone())
    };
    (options, recorder)
}

/// Whether any file of the world holds the text.
fn is_kept(world: &World, text: &str) -> bool {
    let mut left = vec![world.dir.path().to_owned()];
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            let bytes = std::fs::read(&path).unwrap_or_default();
            if bytes.windows(text.len()).any(|window| window == text.as_bytes()) {
                return true;
            }
        }
    }
    false
}

#[tokio::test]
async fn secrets_of_a_source_are_sealed_and_its_attempts_recorded() {
    let server = FakeServer::start([
        Reply::error(401, "authentication_error", "bad: first-token-that-nobody-may-see"),
        Answer::new()
            .tool_call(
                "c1",
                "bash",
                r#"{"command":"printf '%s-%s' second token-that-nobody-may''; printf -- -see"}"#,
            )
            .reply(),
        Answer::new().text("It prints something.").reply(),
        Answer::new().text("And again.").reply(),
    ]);
    let world = World::new();
    let given = [Ok(token("first", Expiry::UntilRefused)), Ok(token("second", Expiry::UntilRefused))];
    let (options, recorder) = options(&world, &server, given);
    let live = world.create_with(options).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    assert_eq!(live.run("Is it second-token-that-nobody-may-see?").await, Outcome::Done);
    let said = live.said().join("\n");
    assert!(said.contains("Is it [REDACTED:credential:"), "{said}");
    let (_, printed, _) = &live.results()[0];
    assert!(printed.starts_with("[REDACTED:credential:"), "{printed}");
    let head = live.session.view().head.unwrap();
    live.finish().await;
    assert_eq!(recorder.finish().unwrap(), 3);
    let world = world.check().await;
    let nodes = world.store.lineage(head, Until::Root).await.unwrap();
    let decoded = decode_nodes(&*world.store, &nodes).await.unwrap();
    let attempts: Vec<Vec<_>> = decoded
        .iter()
        .filter(|one| matches!(&one.entry, Entry::Message(Message::Assistant(_))))
        .map(|one| {
            let attempts = &one.step.call.as_ref().unwrap().attempts;
            attempts.iter().map(|it| (it.status, it.credential.clone().unwrap_or_default())).collect()
        })
        .collect();
    let second = || (Some(200), "second".to_owned());
    assert_eq!(attempts, [vec![(Some(401), "first".to_owned()), second()], vec![second()], vec![second()]]);
    assert!(is_kept(&world, "Is it [REDACTED"));
    assert!(!is_kept(&world, "second-token-that") && !is_kept(&world, "first-token-that"));
}

#[tokio::test]
async fn a_source_that_fails_ends_the_run_and_the_session_goes_on() {
    let server = FakeServer::start([Answer::new().text("Well.").reply(), Answer::new().text("On.").reply()]);
    let world = World::new();
    let login = "Run `example login`.";
    let given = [
        Err(CredentialError::NeedsLogin { what: login.into() }),
        Err(CredentialError::Unavailable { why: "its server is down".into() }),
        Ok(token("good", Expiry::Once)),
    ];
    let (options, _recorder) = options(&world, &server, given);
    let live: LiveSession = world.create_with(options).await;
    for expect in [login, "The credential source `a queue` failed: its server is down."] {
        match live.run("go").await {
            Outcome::Failed(error) => {
                assert_eq!((error.kind, error.message.as_str()), (ModelErrorKind::NoCredential, expect));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(live.run("again").await, Outcome::Done);
    assert!(matches!(live.run("and now").await, Outcome::Failed(_)));
    live.finish().await;
    assert_eq!(server.requests().len(), 1);
    world.check().await;
}
