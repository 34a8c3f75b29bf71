//! Credentials through their source, as a real server sees them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use quipu_protocol::{Message, Model, ModelErrorKind, ModelRequest, Thinking};
use quipu_providers::{
    AuthFile, Call, CallEnd, CallEvent, CallOptions, CallOutcome, Credential, CredentialError,
    CredentialRequest, CredentialSource, Credentials, Embedder as _, EmbeddingEndpoint, Expiry,
    HeaderChanges, HeaderText, MAX_CREDENTIALS_PER_CALL, Provider, Scheme, Secret, Settings, Sign,
    SignRequest, laws,
};
use quipu_testkit::{Answer, CapturedRequest, FakeServer, Reply};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::wires::{self, WIRES, Wire};

/// What a scripted source does when it is asked.
enum Act {
    Give(Credential),
    Fail(CredentialError),
    Panic,
    Hang,
    Wait(Halt),
}

/// A place where a source waits for the test.
#[derive(Clone, Default)]
struct Halt(Arc<tokio::sync::Notify>, Arc<tokio::sync::Notify>);

/// A source that follows a script, and gives its last credential when that is over.
#[derive(Default)]
struct ScriptedSource {
    script: Mutex<VecDeque<Act>>,
    last: Mutex<Option<Credential>>,
    asked: AtomicUsize,
    /// Identity and outcome that came before, of each question.
    refused: Mutex<Vec<Option<(String, CallOutcome)>>>,
    reports: Mutex<Vec<(String, CallOutcome)>>,
}

impl ScriptedSource {
    fn new(script: impl IntoIterator<Item = Act>) -> Arc<Self> {
        let script = Mutex::new(script.into_iter().collect());
        Arc::new(Self { script, ..Self::default() })
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    fn reports(&self) -> Vec<(String, CallOutcome)> {
        self.reports.lock().unwrap().clone()
    }
}

impl CredentialSource for ScriptedSource {
    fn name(&self) -> &str {
        "scripted"
    }

    fn credential<'a>(
        &'a self,
        request: &'a CredentialRequest<'a>,
    ) -> BoxFuture<'a, Result<Credential, CredentialError>> {
        Box::pin(async move {
            assert_eq!(request.provider, "testing");
            self.asked.fetch_add(1, Ordering::SeqCst);
            let refused = request.refused.as_ref().map(|it| (it.identity.to_owned(), it.outcome));
            self.refused.lock().unwrap().push(refused);
            let act = self.script.lock().unwrap().pop_front();
            let last = self.last.lock().unwrap().clone();
            let given = match act {
                Some(Act::Give(credential)) => credential,
                Some(Act::Fail(error)) => return Err(error),
                Some(Act::Panic) => panic!("the source of a test breaks down"),
                Some(Act::Hang) => std::future::pending().await,
                Some(Act::Wait(gate)) => {
                    gate.0.notify_one();
                    gate.1.notified().await;
                    bearer("waited", "secret-after-waiting")
                }
                None => last.expect("the script is over and nothing was given"),
            };
            *self.last.lock().unwrap() = Some(given.clone());
            Ok(given)
        })
    }

    fn report<'a>(&'a self, identity: &'a str, outcome: &'a CallOutcome) -> BoxFuture<'a, ()> {
        Box::pin(async move { self.reports.lock().unwrap().push((identity.to_owned(), *outcome)) })
    }
}

fn bearer(identity: &str, secret: &str) -> Credential {
    Credential::new(identity, Scheme::Bearer(Secret::new(secret)))
}

fn options() -> CallOptions {
    CallOptions { base_delay: Duration::from_millis(1), ..CallOptions::default() }
}

/// One model over a wire, and what its calls taught.
pub(crate) struct World {
    provider: Arc<dyn Provider>,
    request: Arc<ModelRequest>,
    learned: Arc<Mutex<Vec<String>>>,
}

impl World {
    fn new(wire: Wire, url: String, credentials: Credentials, options: CallOptions) -> Self {
        let model = Model {
            id: "test-model".into(),
            provider: "testing".into(),
            api: wires::api(wire).into(),
            base_url: url,
            ..Model::default()
        };
        let provider = wires::provider(&model, credentials, &[], options).unwrap();
        Self::of(provider, model)
    }

    pub(crate) fn of(provider: Arc<dyn Provider>, model: Model) -> Self {
        let request = Arc::new(ModelRequest {
            model: Arc::new(model),
            system: "".into(),
            tools: Vec::new().into(),
            messages: vec![Arc::new(Message::user("Hi", 0))].into(),
            thinking: Thinking::Off,
            max_tokens: None,
            session: None,
            stable_system: None,
        });
        Self { provider, request, learned: Arc::default() }
    }

    pub(crate) async fn call(&self) -> CallEnd {
        self.call_until(CancellationToken::new()).await
    }

    async fn call_until(&self, cancel: CancellationToken) -> CallEnd {
        let (send, mut receive) = mpsc::channel(4);
        let body = self.provider.encode(&self.request).unwrap();
        let learned = self.learned.clone();
        let call = Call {
            request: self.request.clone(),
            body,
            events: send,
            cancel,
            retries: None,
            secrets: Some(Arc::new(move |secret: &str| learned.lock().unwrap().push(secret.to_owned()))),
            headers: HeaderChanges::default(),
            responses: None,
        };
        let read = async {
            let mut events = Vec::new();
            while let Some(event) = receive.recv().await {
                events.push(event);
            }
            events
        };
        let (end, events): (_, Vec<CallEvent>) = tokio::join!(self.provider.send(call), read);
        laws::check(&events, &end).unwrap();
        end
    }

    pub(crate) fn learned(&self) -> Vec<String> {
        let mut learned = self.learned.lock().unwrap().clone();
        learned.sort();
        learned.dedup();
        learned
    }
}

fn world(wire: Wire, server: &FakeServer, source: &Arc<ScriptedSource>) -> World {
    World::new(wire, server.url(), Credentials::new(source.clone()), options())
}

fn answer(wire: Wire) -> Reply {
    Answer::on(wire).text("x").reply()
}

fn statuses(end: &CallEnd) -> Vec<(Option<u16>, Option<&str>)> {
    end.attempts.iter().map(|attempt| (attempt.status, attempt.credential.as_deref())).collect()
}

/// The request that one answered call made with this credential.
async fn sent(wire: Wire, credential: Credential) -> (CapturedRequest, World) {
    let server = FakeServer::start([answer(wire)]);
    let source = ScriptedSource::new([Act::Give(credential)]);
    let world = world(wire, &server, &source);
    let end = world.call().await;
    assert_eq!(end.error, None);
    assert_eq!(source.reports().last().unwrap().1, CallOutcome::Done);
    (server.requests().remove(0), world)
}

#[tokio::test]
async fn each_scheme_stands_in_its_header_on_each_wire() {
    for wire in WIRES {
        let (request, world) = sent(wire, bearer("one", "bearer-secret")).await;
        assert_eq!(request.header("authorization"), Some("Bearer bearer-secret"));
        assert_eq!(world.learned(), ["bearer-secret"]);

        let scheme = Scheme::Header { name: "X-Own-Key".into(), value: Secret::new("header-secret") };
        let mut credential = Credential::new("one", scheme);
        credential.headers = vec![
            ("x-account".into(), HeaderText::Plain("acme".into())),
            ("x-session".into(), HeaderText::Secret(Secret::new("session-secret"))),
        ];
        let (request, world) = sent(wire, credential).await;
        for (name, value) in [
            ("x-own-key", Some("header-secret")),
            ("x-account", Some("acme")),
            ("x-session", Some("session-secret")),
            ("authorization", None),
            ("x-api-key", None),
        ] {
            assert_eq!(request.header(name), value, "{name}");
        }
        assert_eq!(world.learned(), ["header-secret", "session-secret"]);

        let (request, world) = sent(wire, Credential::new("nobody", Scheme::None)).await;
        assert_eq!((request.header("authorization"), request.header("x-api-key")), (None, None));
        assert!(world.learned().is_empty());

        let (request, _) = sent(wire, Credential::new("key", Scheme::Key(Secret::new("key-secret")))).await;
        let own = match wire {
            Wire::Messages => request.header("x-api-key") == Some("key-secret"),
            Wire::Completions
            | Wire::Responses
            | Wire::Subscription
            | Wire::Chunks
            | Wire::Converse
            | Wire::Gateway
            | Wire::Envelope => request.header("authorization") == Some("Bearer key-secret"),
            Wire::Contents => request.header("x-goog-api-key") == Some("key-secret"),
        };
        assert!(own, "{request:?}");
    }
}

/// Signs with the hash of all that it is shown.
struct Hashes;

fn signature(method: &str, url: &str, headers: &[(&str, &str)], body: &[u8]) -> String {
    let mut hash = Sha256::new();
    hash.update(format!("signing-key {method} {url}"));
    let signed = |name: &str| ["host", "content-type", "accept"].contains(&name);
    headers
        .iter()
        .filter(|(name, _)| signed(name))
        .for_each(|(name, value)| hash.update(format!("{name}{value}")));
    hash.update(body);
    quipu_protocol::hex(&hash.finalize())
}

impl Sign for Hashes {
    fn sign<'a>(
        &'a self,
        request: &'a SignRequest<'a>,
    ) -> BoxFuture<'a, Result<Vec<(String, Secret)>, CredentialError>> {
        let mut headers = request.headers.clone();
        headers.sort_unstable();
        let made = signature(request.method, request.url, &headers, request.body);
        Box::pin(async { Ok(vec![("x-signature".into(), Secret::new(made))]) })
    }

    fn secrets(&self) -> Vec<Secret> {
        vec![Secret::new("signing-key")]
    }
}

#[tokio::test]
async fn a_signature_is_over_what_arrives() {
    for wire in WIRES {
        let server = FakeServer::start([Reply::error_on(wire, 503, "overloaded", "busy"), answer(wire)]);
        let source =
            ScriptedSource::new([Act::Give(Credential::new("signer", Scheme::Signer(Arc::new(Hashes))))]);
        let world = world(wire, &server, &source);
        assert_eq!(world.call().await.error, None);
        for request in server.requests() {
            let url = format!("{}{}", server.url(), request.path);
            let mut headers: Vec<_> =
                request.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            headers.sort_unstable();
            let expect = signature(&request.method, &url, &headers, &request.body);
            assert_eq!(request.header("x-signature"), Some(expect.as_str()));
        }
        assert_eq!((server.requests().len(), source.asked()), (2, 1));
        assert_eq!(world.learned(), ["signing-key"]);
    }
}

#[tokio::test]
async fn a_base_url_takes_the_place_of_the_models() {
    for wire in WIRES {
        let server = FakeServer::start([answer(wire)]);
        let mut credential = bearer("one", "bearer-secret");
        credential.base_url = Some(format!("{}/deep/v1", server.url()));
        let source = ScriptedSource::new([Act::Give(credential)]);
        let far = "https://nobody.invalid".to_owned();
        let world = World::new(wire, far, Credentials::new(source.clone()), options());
        assert_eq!(world.call().await.error, None);
        assert!(server.requests()[0].path.starts_with("/deep/v1/"), "{}", server.requests()[0].path);
        assert!(!world.provider.is_local());
    }
}

#[tokio::test]
async fn an_expired_credential_is_fetched_anew() {
    let wire = Wire::Messages;
    let server = FakeServer::start((0..5).map(|_| answer(wire)));
    let in_ms = |ms: i64| {
        let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_millis();
        Expiry::At(i64::try_from(now).unwrap() + ms)
    };
    let until =
        |name: &str, expiry| Act::Give(Credential { expiry, ..bearer(name, &format!("{name}-secret")) });
    let source = ScriptedSource::new([
        until("brief", in_ms(5_000)),
        until("once", Expiry::Once),
        until("long", in_ms(3_600_000)),
    ]);
    let world = world(wire, &server, &source);
    for _ in 0..5 {
        assert_eq!(world.call().await.error, None);
    }
    let keys: Vec<_> = server
        .requests()
        .iter()
        .map(|it| it.header("authorization").unwrap_or_default().to_owned())
        .collect();
    let expect = ["brief", "once", "long", "long", "long"].map(|name| format!("Bearer {name}-secret"));
    assert_eq!(keys, expect);
    assert_eq!(source.asked(), 3);
}

#[tokio::test]
async fn another_credential_follows_a_refusal() {
    for wire in WIRES {
        for (status, kind, outcome) in [
            (401, "authentication_error", CallOutcome::Unauthorised),
            (429, "rate_limit_error", CallOutcome::RateLimited),
            (402, "billing_error", CallOutcome::Quota),
        ] {
            let said = "what about first-secret?";
            let server =
                FakeServer::start([Reply::error_on(wire, status, kind, said), answer(wire), answer(wire)]);
            let source = ScriptedSource::new([
                Act::Give(bearer("first", "first-secret")),
                Act::Give(bearer("second", "second-secret")),
            ]);
            let world = world(wire, &server, &source);
            let end = world.call().await;
            assert_eq!(end.error, None, "{status}");
            assert_eq!(statuses(&end), [(Some(status), Some("first")), (Some(200), Some("second"))]);
            let reports = [("first".to_owned(), outcome), ("second".to_owned(), CallOutcome::Done)];
            assert_eq!(source.reports(), reports);
            assert_eq!(*source.refused.lock().unwrap(), [None, Some(("first".to_owned(), outcome))]);
            let bodies: Vec<_> = server.requests().into_iter().map(|request| request.body).collect();
            assert_eq!(bodies[0], bodies[1], "the same bytes");
            // It stays with what works.
            assert_eq!(world.call().await.error, None);
            assert_eq!(server.requests()[2].header("authorization"), Some("Bearer second-secret"));
            assert_eq!(world.learned(), ["first-secret", "second-secret"]);
        }
    }
}

#[tokio::test]
async fn embedding_changes_credential_after_a_refusal() {
    let answer =
        json!({ "data": [{ "index": 0, "embedding": [1.0, 0.0] }], "usage": { "prompt_tokens": 1 } });
    let done = || Reply::new(200, "application/json", answer.to_string());
    let refusal = Reply::error_on(Wire::Completions, 401, "authentication_error", "no");
    let server = FakeServer::start([refusal, done(), done()]);
    let source = ScriptedSource::new([
        Act::Give(bearer("first", "first-secret")),
        Act::Give(bearer("second", "second-secret")),
    ]);
    let model =
        Model { id: "small".into(), provider: "testing".into(), base_url: server.url(), ..Model::default() };
    let patience = CallOptions { max_retries: 0, ..options() };
    let endpoint =
        EmbeddingEndpoint::new(&model, Credentials::new(source.clone()), &[], None, patience).unwrap();
    for _ in 0..2 {
        let made = endpoint.embed(&["red".to_owned()]).await.unwrap();
        assert_eq!(made.vectors, [[1.0, 0.0]]);
    }
    let sent: Vec<_> =
        server.requests().iter().map(|asked| asked.header("authorization").unwrap().to_owned()).collect();
    assert_eq!(sent, ["Bearer first-secret", "Bearer second-secret", "Bearer second-secret"]);
    let done = ("second".to_owned(), CallOutcome::Done);
    assert_eq!(source.reports(), [("first".to_owned(), CallOutcome::Unauthorised), done.clone(), done]);
    // One that has no other one says so, and is not asked without end.
    let refused = || Reply::error_on(Wire::Completions, 401, "authentication_error", "no");
    let server = FakeServer::start([refused(), refused()]);
    let source = ScriptedSource::new([Act::Give(bearer("only", "only-secret"))]);
    let model = Model { base_url: server.url(), ..model };
    let patience = CallOptions { max_retries: 0, ..options() };
    let endpoint = EmbeddingEndpoint::new(&model, Credentials::new(source), &[], None, patience).unwrap();
    assert_eq!(endpoint.embed(&["red".to_owned()]).await.unwrap_err().kind, ModelErrorKind::Auth);
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_call_uses_so_many_credentials_and_no_more() {
    let wire = Wire::Completions;
    let server = FakeServer::start((0..9).map(|_| Reply::error_on(wire, 401, "authentication_error", "no")));
    let source = ScriptedSource::new(
        (0..9).map(|n| Act::Give(bearer(&format!("k{n}"), &format!("secret-number-{n}")))),
    );
    let end = world(wire, &server, &source).call().await;
    assert_eq!(end.error.unwrap().kind, ModelErrorKind::Auth);
    assert_eq!(end.attempts.len(), MAX_CREDENTIALS_PER_CALL);
    assert_eq!(server.requests().len(), MAX_CREDENTIALS_PER_CALL);
}

#[tokio::test]
async fn the_same_credential_again_ends_a_refused_call() {
    let wire = Wire::Messages;
    let server = FakeServer::start([
        Reply::error(401, "authentication_error", "no"),
        Reply::error(429, "rate_limit_error", "slowly"),
        answer(wire),
    ]);
    let source = ScriptedSource::new([Act::Give(bearer("only", "only-secret"))]);
    let world = world(wire, &server, &source);
    let end = world.call().await;
    assert_eq!((end.error.unwrap().kind, end.attempts.len()), (ModelErrorKind::Auth, 1));
    // The wire itself waits and tries again where that can help.
    let end = world.call().await;
    assert_eq!((end.error, end.attempts.len()), (None, 2));
}

#[tokio::test]
async fn a_refusal_after_which_a_person_must_act_says_so() {
    let server = FakeServer::start([Reply::error(401, "authentication_error", "token revoked")]);
    let login = "Run `example login`.";
    let source = ScriptedSource::new([
        Act::Give(bearer("first", "first-secret")),
        Act::Fail(CredentialError::NeedsLogin { what: login.into() }),
    ]);
    let error = world(Wire::Messages, &server, &source).call().await.error.unwrap();
    assert_eq!((error.kind, error.status), (ModelErrorKind::NoCredential, Some(401)));
    assert!(error.message.contains("token revoked") && error.message.contains(login), "{error}");
}

#[tokio::test]
async fn faulty_credential_source_fails_only_that_call() {
    let huge = "x".repeat(4 << 20);
    let give = |change: &dyn Fn(&mut Credential)| {
        let mut credential = bearer("one", "good-secret-0");
        change(&mut credential);
        Act::Give(credential)
    };
    let with_url = |url: &str| {
        let url = url.to_owned();
        give(&move |it: &mut Credential| it.base_url = Some(url.clone()))
    };
    for wire in WIRES {
        let cases = [
            (Act::Panic, "panicked"),
            (Act::Hang, "did not answer within 0.05 s"),
            (
                Act::Fail(CredentialError::Unavailable { why: "its server is down\n.".into() }),
                "server is down",
            ),
            (Act::Fail(CredentialError::Unavailable { why: huge.clone() }), "xxx"),
            (Act::Give(bearer("one", "")), "is empty"),
            (Act::Give(bearer("one", "bad-secret\r\nx-evil: 1")), "line break"),
            (Act::Give(bearer("one", &huge)), "larger than the limit of 16384 bytes"),
            (Act::Give(bearer("", "good-secret-0")), "identity"),
            (Act::Give(bearer(&huge, "good-secret-0")), "identity"),
            (Act::Give(bearer("me:good-secret-0", "good-secret-0")), "identity"),
            (with_url("no url"), "base URL"),
            (with_url("file:///etc/passwd"), "base URL"),
            (with_url("http://me:good-secret-0@127.0.0.1:1"), "base URL"),
            (with_url(&format!("http://127.0.0.1/{huge}")), "larger than the limit of 2048 bytes"),
            (with_url("https://elsewhere.invalid"), "on another machine"),
            (give(&|it| it.expiry = Expiry::At(1)), "expired"),
            (give(&|it| it.headers = vec![("a b".into(), HeaderText::Plain("c".into()))]), "does not allow"),
            (give(&|it| it.headers = vec![("a".into(), HeaderText::Plain("b\n".into()))]), "does not allow"),
            (
                give(&|it| it.headers = vec![("a".into(), HeaderText::Plain("b".into())); 33]),
                "more than 32 headers",
            ),
        ];
        let server = FakeServer::start([answer(wire)]);
        let count = cases.len();
        let (acts, expect): (Vec<_>, Vec<_>) = cases.into_iter().unzip();
        let source = ScriptedSource::new(acts.into_iter().chain([Act::Give(bearer("one", "good-secret-0"))]));
        let patience = CallOptions { credential_timeout: Duration::from_millis(50), ..options() };
        let world = World::new(wire, server.url(), Credentials::new(source.clone()), patience);
        for what in expect {
            let end = world.call().await;
            let error = end.error.unwrap();
            assert_eq!(error.kind, ModelErrorKind::NoCredential, "{error}");
            assert!(error.message.contains("`scripted`") && error.message.contains(what), "{what}: {error}");
            assert!(error.message.len() < 5_000 && !error.message.contains("-secret"), "{error}");
            assert!(end.attempts.is_empty());
        }
        assert_eq!(server.requests().len(), 0);
        assert_eq!(world.call().await.error, None);
        assert_eq!(source.asked(), count + 1);
    }
}

#[tokio::test]
async fn a_login_that_is_needed_is_said_in_the_sources_words() {
    let server = FakeServer::start([]);
    let what = "Run `example login` and try again.";
    let source = ScriptedSource::new([Act::Fail(CredentialError::NeedsLogin { what: what.into() })]);
    let error = world(Wire::Completions, &server, &source).call().await.error.unwrap();
    assert_eq!((error.kind, error.message.as_str()), (ModelErrorKind::NoCredential, what));
}

#[tokio::test]
async fn half_of_the_fetches_fail_and_each_call_has_an_end() {
    let wire = Wire::Messages;
    let server = FakeServer::start((0..200).map(|_| answer(wire)));
    let once = |n: usize| Credential { expiry: Expiry::Once, ..bearer("one", &format!("secret-number-{n}")) };
    let source = ScriptedSource::new((0..200).map(|n| match n % 4 {
        0 => Act::Fail(CredentialError::Unavailable { why: "down".into() }),
        1 | 3 => Act::Give(once(n)),
        _ => Act::Panic,
    }));
    let world = world(wire, &server, &source);
    let mut good = 0;
    for _ in 0..200 {
        match world.call().await.error {
            None => good += 1,
            Some(error) => assert_eq!(error.kind, ModelErrorKind::NoCredential),
        }
    }
    assert_eq!((good, server.requests().len()), (100, 100));
}

#[tokio::test]
async fn calls_at_once_fetch_once() {
    let wire = Wire::Messages;
    let server = FakeServer::start((0..8).map(|_| answer(wire)));
    let gate = Halt::default();
    let source = ScriptedSource::new([Act::Wait(gate.clone())]);
    let credentials = Credentials::new(source.clone());
    let worlds: Vec<_> =
        (0..8).map(|_| World::new(wire, server.url(), credentials.clone(), options())).collect();
    let calls = futures_util::future::join_all(worlds.iter().map(World::call));
    let open = async {
        gate.0.notified().await;
        gate.1.notify_one();
    };
    let (ends, ()) = tokio::join!(calls, open);
    assert!(ends.iter().all(|end| end.error.is_none()));
    assert_eq!(source.asked(), 1);
}

#[tokio::test]
async fn calls_at_once_share_a_failure() {
    let server = FakeServer::start([]);
    let source = ScriptedSource::new([Act::Hang]);
    let credentials = Credentials::new(source.clone());
    let patience = CallOptions { credential_timeout: Duration::from_millis(80), ..options() };
    let worlds: Vec<_> = (0..8)
        .map(|_| World::new(Wire::Messages, server.url(), credentials.clone(), patience.clone()))
        .collect();
    let ends = futures_util::future::join_all(worlds.iter().map(World::call)).await;
    assert!(ends.iter().all(|end| end.error.is_some()));
    assert_eq!(source.asked(), 1);
}

#[tokio::test]
async fn a_call_that_is_stopped_leaves_the_fetch_to_the_next() {
    let wire = Wire::Completions;
    let server = FakeServer::start([answer(wire)]);
    let gate = Halt::default();
    let source = ScriptedSource::new([Act::Wait(gate.clone()), Act::Give(bearer("next", "next-secret"))]);
    let world = world(wire, &server, &source);
    let cancel = CancellationToken::new();
    let stop = async {
        gate.0.notified().await;
        cancel.cancel();
    };
    let (end, ()) = tokio::join!(world.call_until(cancel.clone()), stop);
    assert_eq!(end.error.unwrap().kind, ModelErrorKind::Aborted);
    assert_eq!(world.call().await.error, None);
    assert_eq!(server.requests()[0].header("authorization"), Some("Bearer next-secret"));
}

#[tokio::test]
async fn a_secret_stands_in_no_debug_form_and_no_error() {
    let wire = Wire::Messages;
    let said = "the key bearer-secret with session-secret is not good";
    let server = FakeServer::start([Reply::error(403, "permission_error", said)]);
    let mut credential = bearer("account one", "bearer-secret");
    credential.headers = vec![("x-session".into(), HeaderText::Secret(Secret::new("session-secret")))];
    let shown = format!("{credential:?} {:?}", Credentials::fixed(credential.clone()));
    let source = ScriptedSource::new([Act::Give(credential)]);
    let end = world(wire, &server, &source).call().await;
    let all = format!("{shown} {end:?}");
    assert!(all.contains("account one") && !all.contains("-secret"), "{all}");
}

/// Settings whose provider `testing` has a key in `auth.json`.
pub(crate) fn stored(wire: Wire, home: &std::path::Path, url: &str) -> (Settings, Model) {
    stored_for("testing", wire, home, url)
}

/// The same for another provider.
pub(crate) fn stored_for(provider: &str, wire: Wire, home: &std::path::Path, url: &str) -> (Settings, Model) {
    let models = serde_json::json!({ "providers": { provider: {
        "baseUrl": url, "api": wires::api(wire), "models": [{ "id": "m" }],
        "headers": { wires::ACCOUNT.0: wires::ACCOUNT.1 },
    } } });
    std::fs::write(home.join("models.json"), models.to_string()).unwrap();
    let project = |name: &str| (name == "GOOGLE_CLOUD_PROJECT").then(|| wires::PROJECT.to_owned());
    let (settings, _) = Settings::load(home, &project);
    let settings = settings.with_call_options(options());
    let model = Model::clone(settings.models_of(provider).iter().find(|model| model.id == "m").unwrap());
    (settings, model)
}

#[tokio::test]
async fn a_stored_key_that_is_refused_is_read_again() {
    for wire in WIRES {
        let home = tempfile::tempdir().unwrap();
        let no = || Reply::error_on(wire, 401, "authentication_error", "no");
        let server = FakeServer::start([no(), answer(wire), answer(wire), no()]);
        AuthFile::new(home.path()).set_key("testing", "old-key-0-of-test").unwrap();
        let (settings, model) = stored(wire, home.path(), &server.url());
        let provider = settings.provider_for(&model, None).unwrap();
        // Another process stores another key.
        AuthFile::new(home.path()).set_key("testing", "new-key-1-of-test").unwrap();
        let world = World::of(provider, model);
        let end = world.call().await;
        assert_eq!((end.error, end.attempts.len()), (None, 2));
        assert_eq!(world.call().await.attempts.len(), 1);
        // The same key again is no other.
        let end = world.call().await;
        assert_eq!((end.error.unwrap().kind, end.attempts.len()), (ModelErrorKind::Auth, 1));
        assert_eq!(world.learned(), ["new-key-1-of-test", "old-key-0-of-test"]);
    }
}

#[tokio::test]
async fn a_key_command_runs_again_after_a_refusal() {
    let wire = Wire::Messages;
    let home = tempfile::tempdir().unwrap();
    let no = Reply::error(401, "authentication_error", "no");
    let server = FakeServer::start([no, answer(wire)]);
    std::fs::write(home.path().join("token"), "token-number-one").unwrap();
    std::fs::write(home.path().join("auth.json"), r#"{"testing":{"type":"api_key","key":"!cat token"}}"#)
        .unwrap();
    let (settings, model) = stored(wire, home.path(), &server.url());
    let provider = settings.provider_for(&model, None).unwrap();
    std::fs::write(home.path().join("token"), "token-number-two").unwrap();
    assert_eq!(World::of(provider, model).call().await.error, None);
    let keys: Vec<_> = server.requests().iter().map(|it| it.header("x-api-key").map(str::to_owned)).collect();
    assert_eq!(keys, [Some("token-number-one".to_owned()), Some("token-number-two".to_owned())]);
}

#[tokio::test]
async fn a_stored_token_that_expires_says_what_to_do() {
    let home = tempfile::tempdir().unwrap();
    let server = FakeServer::start([]);
    // Within the margin in which it is fetched anew, and over by then.
    let entry = |expires: u128| {
        format!(r#"{{"testing":{{"type":"oauth","access":"tok-access-1","expires":{expires}}}}}"#)
    };
    let soon = std::time::UNIX_EPOCH.elapsed().unwrap().as_millis() + 9_000;
    std::fs::write(home.path().join("auth.json"), entry(soon)).unwrap();
    let (settings, model) = stored(Wire::Messages, home.path(), &server.url());
    let provider = settings.provider_for(&model, None).unwrap();
    std::fs::write(home.path().join("auth.json"), entry(1)).unwrap();
    let error = World::of(provider, model).call().await.error.unwrap();
    assert_eq!(error.kind, ModelErrorKind::NoCredential);
    assert!(error.message.contains("has expired; log in again"), "{error}");
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test]
async fn settings_call_through_a_source_that_is_plugged_in() {
    let wire = Wire::Messages;
    let home = tempfile::tempdir().unwrap();
    let server = FakeServer::start([answer(wire), answer(wire)]);
    let (settings, model) = stored(wire, home.path(), &server.url());
    let source = ScriptedSource::new([Act::Give(bearer("one", "plugged-in-secret"))]);
    let settings = settings.with_credentials("testing", Credentials::new(source));
    assert_eq!(settings.credential_source("testing").as_deref(), Some("scripted"));
    assert!(settings.is_available(&model));
    let world = World::of(settings.provider_for(&model, None).unwrap(), model.clone());
    assert_eq!(world.call().await.error, None);
    assert_eq!(server.requests()[0].header("authorization"), Some("Bearer plugged-in-secret"));
    assert!(settings.secrets().iter().any(|(_, secret)| secret == "plugged-in-secret"));
    // A key that is given by hand comes first.
    let world = World::of(settings.provider_for(&model, Some("given-by-hand")).unwrap(), model);
    assert_eq!(world.call().await.error, None);
    assert_eq!(server.requests()[1].header("x-api-key"), Some("given-by-hand"));
}
