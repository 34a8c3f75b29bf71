//! Calls to the backend of a subscription over real HTTP: tokens, accounts, headers and limits.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use quipu_protocol::{Json, ModelError, ModelErrorKind, ModelRequest, StopReason};
use quipu_providers::{
    Call, CallEnd, CallOptions, Credential, Credentials, HeaderText, OpenAiResponses, Provider, Scheme,
    Secret, Settings,
};
use quipu_testkit::{Answer, CapturedRequest, FakeServer, Reply, Wire};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::encode::{request, user};
use crate::encode_codex;

/// A token with these claims.
fn token(claims: &str) -> String {
    format!(
        "{}.{}.c2lnbmF0dXJl",
        URL_SAFE_NO_PAD.encode(r#"{"alg":"RS256"}"#),
        URL_SAFE_NO_PAD.encode(claims)
    )
}

fn of_account(account: &str) -> String {
    token(&format!(r#"{{"https://api.openai.com/auth":{{"chatgpt_account_id":"{account}"}},"exp":1}}"#))
}

fn options() -> CallOptions {
    CallOptions { base_delay: Duration::from_millis(1), ..CallOptions::default() }
}

fn asked(server: &FakeServer) -> ModelRequest {
    let mut model = encode_codex::model();
    model.base_url = server.url();
    request(model, vec![user(vec![quipu_protocol::Content::text("Hi")])])
}

async fn send(provider: &dyn Provider, request: ModelRequest) -> CallEnd {
    let (send, _receive) = mpsc::channel(64);
    let body = provider.encode(&request).unwrap();
    provider.send(Call::new(Arc::new(request), body, send, CancellationToken::new())).await
}

fn made(
    server: &FakeServer,
    credential: Credential,
    headers: &[(String, String)],
) -> Result<OpenAiResponses, ModelError> {
    OpenAiResponses::new(&asked(server).model, Credentials::fixed(credential), headers, options())
}

async fn answered(scheme: Scheme, more: &[(&str, &str)], headers: &[(String, String)]) -> CapturedRequest {
    let server = FakeServer::start([Answer::on(Wire::Subscription).text("Hello").reply()]);
    let mut credential = Credential::new("a login", scheme);
    let plain = |(name, value): &(&str, &str)| ((*name).to_owned(), HeaderText::Plain((*value).to_owned()));
    credential.headers = more.iter().map(plain).collect();
    let end = send(&made(&server, credential, headers).unwrap(), asked(&server)).await;
    assert_eq!((end.error, end.message.text()), (None, "Hello".to_owned()));
    assert_eq!(
        (end.message.api.as_str(), end.message.stop_reason),
        ("openai-codex-responses", StopReason::Stop)
    );
    server.requests()[0].clone()
}

#[tokio::test]
async fn subscription_call_names_account_and_session() {
    let secret = of_account("acc-1");
    for scheme in [Scheme::Bearer(Secret::new(&*secret)), Scheme::Key(Secret::new(&*secret))] {
        let request = answered(scheme, &[], &[]).await;
        assert_eq!(request.path, "/codex/responses");
        for (name, value) in [
            ("authorization", format!("Bearer {secret}").as_str()),
            ("chatgpt-account-id", "acc-1"),
            ("openai-beta", "responses=experimental"),
            ("originator", "quipu"),
            ("session-id", "s"),
            ("x-client-request-id", "s"),
            ("accept", "text/event-stream"),
            ("user-agent", concat!("quipu/", env!("CARGO_PKG_VERSION"))),
        ] {
            assert_eq!(request.header(name), Some(value), "{name}");
        }
        assert_eq!(request.header("session_id"), None);
        assert_eq!(request.json()["prompt_cache_key"], "s");
    }
}

#[tokio::test]
async fn account_of_the_credential_wins_over_the_token() {
    let own = [("chatgpt-account-id", "acc-2")];
    for secret in [of_account("acc-1"), token("{}"), "opaque".into()] {
        let request = answered(Scheme::Bearer(Secret::new(&*secret)), &own, &[]).await;
        assert_eq!(request.header("chatgpt-account-id"), Some("acc-2"), "{secret}");
    }
    let configured =
        [("chatgpt-account-id".to_owned(), "acc-3".to_owned()), ("session-id".to_owned(), "mine".to_owned())];
    let request = answered(Scheme::Bearer(Secret::new(of_account("acc-1"))), &own, &configured).await;
    assert_eq!(request.header("chatgpt-account-id"), Some("acc-3"));
    assert_eq!(
        (request.header("session-id"), request.header("x-client-request-id")),
        (Some("mine"), Some("s"))
    );
}

#[test]
fn login_that_is_missing_says_what_to_do() {
    let server = FakeServer::start([]);
    let refused = |secret: &str| {
        let credential = Credential::new("a test", Scheme::Key(Secret::new(secret)));
        made(&server, credential, &[]).err().unwrap()
    };
    for (secret, words) in [
        ("sk-proj-0123456789".to_owned(), ["not an access token", "log in to this provider"]),
        (token(r#"{"sub":"me"}"#), ["names no ChatGPT account", "Log in to this provider again"]),
    ] {
        let error = refused(&secret);
        assert_eq!(error.kind, ModelErrorKind::Auth);
        assert!(words.iter().all(|word| error.message.contains(word)), "{error}");
        assert!(!error.message.contains(&secret) && error.message.ends_with('.'), "{error}");
    }
    assert_eq!(server.requests().len(), 0);
}

/// Models of the catalogue with this API can be called once a login is stored.
#[test]
fn catalogue_models_of_the_subscription_can_be_called() {
    let home = tempfile::tempdir().unwrap();
    let settings = || Settings::load(home.path(), &|_| None).0;
    assert!(settings().default_model().is_none_or(|model| model.provider != "openai-codex"));
    let entry = serde_json::json!({ "openai-codex": {
        "type": "oauth", "access": of_account("acc-1"), "refresh": "r", "expires": 4_102_444_800_000_u64,
    } });
    std::fs::write(home.path().join("auth.json"), entry.to_string()).unwrap();
    let settings = settings();
    let model = settings.default_model().unwrap();
    assert_eq!((model.provider.as_str(), model.api.as_str()), ("openai-codex", "openai-codex-responses"));
    assert!(settings.models_of("openai-codex").iter().all(|model| settings.is_available(model)));
    assert!(settings.provider_for(&model, None).is_ok());
    let key = settings.provider_for(&model, Some("sk-proj-0123456789")).err().unwrap();
    assert!(key.message.contains("no API key"), "{key}");
}

/// Asks a server that refuses with this body, and then answers.
async fn limited(body: &str) -> (CallEnd, usize) {
    let limit = Reply::new(429, "application/json", body.to_owned());
    let server = FakeServer::start([limit, Answer::on(Wire::Subscription).text("Here").reply()]);
    let credential = Credential::new("a login", Scheme::Bearer(Secret::new(of_account("acc-1"))));
    let provider = made(&server, credential, &[]).unwrap();
    let end = send(&provider, asked(&server)).await;
    (end, server.requests().len())
}

#[tokio::test]
async fn usage_limit_names_plan_and_reset() {
    let body = r#"{"error":{"type":"usage_limit_reached","message":"The usage limit has been reached","plan_type":"Plus",
        "resets_at":1777936568,"resets_in_seconds":13872}}"#;
    let (end, requests) = limited(body).await;
    let error = end.error.unwrap();
    assert_eq!((error.kind, error.status, requests), (ModelErrorKind::UsageLimit, Some(429), 1));
    assert_eq!(error.retry_after, Some(Duration::from_secs(13_872)));
    assert!(error.message.contains("has been reached (plan plus, resets in 3 h 52 min)."), "{error}");
    // With the time alone, which lies in the past here.
    let (end, requests) = limited(&body.replace(",\"resets_in_seconds\":13872", "")).await;
    assert_eq!((end.error, requests), (None, 2));
    let far = body.replace(",\"resets_in_seconds\":13872", "").replace("1777936568", "4102444800");
    let error = limited(&far).await.0.error.unwrap();
    assert_eq!(error.kind, ModelErrorKind::UsageLimit);
    assert!(
        error.message.contains(" d ") && error.retry_after.is_some_and(|wait| wait.as_secs() > 86_400),
        "{error}"
    );
}

#[tokio::test]
async fn usage_limit_that_passes_soon_is_waited_for() {
    let body = r#"{"error":{"type":"usage_limit_reached","message":"The usage limit has been reached","plan_type":"pro",
        "resets_in_seconds":0.03}}"#;
    let (end, requests) = limited(body).await;
    assert_eq!((end.error.as_ref(), requests), (None, 2));
    assert_eq!(end.attempts[0].error, Some(ModelErrorKind::RateLimited));
}

#[tokio::test]
async fn other_refusals_of_the_backend_have_their_kinds() {
    use ModelErrorKind as K;
    for (status, body, kind, words) in [
        (
            403,
            r#"{"error":{"type":"usage_not_included","message":"Upgrade to use it."}}"#,
            K::Quota,
            "Upgrade",
        ),
        (400, r#"{"detail":"Unsupported parameter: max_output_tokens"}"#, K::InvalidRequest, "Unsupported"),
        (401, r#"{"error":{"code":"token_expired","message":"Token is expired."}}"#, K::Auth, "expired"),
        (
            400,
            r#"{"error":{"code":"context_length_exceeded","message":"Too long."}}"#,
            K::ContextOverflow,
            "long",
        ),
    ] {
        let server = FakeServer::start([Reply::new(status, "application/json", body)]);
        let credential = Credential::new("a login", Scheme::Bearer(Secret::new(of_account("acc-1"))));
        let error = send(&made(&server, credential, &[]).unwrap(), asked(&server)).await.error.unwrap();
        assert_eq!((error.kind, error.status), (kind, Some(status)), "{error}");
        assert!(error.message.contains(words), "{error}");
    }
}

/// The backend names the tier of the account; what was asked for is charged.
#[tokio::test]
async fn tier_that_was_asked_for_sets_the_price() {
    let cost = async |asked_tier: &str, named: &str| {
        let stream = Answer::on(Wire::Subscription).text("x").usage(1_000_000, 0, 0, 0).stream();
        let stream = stream.replace(
            "\"status\":\"completed\"",
            &format!("\"status\":\"completed\",\"service_tier\":\"{named}\""),
        );
        assert!(stream.contains("service_tier"));
        let server = FakeServer::start([Reply::sse(stream)]);
        let mut request = asked(&server);
        let model = Arc::make_mut(&mut request.model);
        model.cost.input = 1.0;
        model.sampling_params = Json::parse(&format!(r#"{{"service_tier":"{asked_tier}"}}"#)).ok();
        let credential = Credential::new("a login", Scheme::Bearer(Secret::new(of_account("acc-1"))));
        let provider =
            OpenAiResponses::new(&request.model, Credentials::fixed(credential), &[], options()).unwrap();
        let end = send(&provider, request).await;
        assert_eq!(end.error, None);
        end.message.usage.cost.total
    };
    assert!((cost("priority", "default").await - 2.0).abs() < 1e-9);
    assert!((cost("flex", "default").await - 0.5).abs() < 1e-9);
    assert!((cost("auto", "default").await - 1.0).abs() < 1e-9);
    assert!((cost("auto", "priority").await - 2.0).abs() < 1e-9);
}
