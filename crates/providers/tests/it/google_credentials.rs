//! Calls with application default credentials: from a file of Google's tools to a request with a token.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use quipu_protocol::{Model, ModelError};
use quipu_providers::{CallEnd, CallOptions, Settings};
use quipu_testkit::{Answer, CapturedRequest, FakeServer, Reply, Wire};
use rustls::SignatureScheme;
use serde_json::{Value, json};

const KEY: &str = include_str!("../data/service-account.pem");
const PUBLIC: &[u8] = include_bytes!("../data/service-account.public.der");
const USUAL: &str = ".config/gcloud/application_default_credentials.json";
const SECRETS: [&str; 2] = ["refresh-token-of-adc", "client-secret-of-adc"];

/// A home directory, variables, and a server for tokens and models.
struct World {
    home: tempfile::TempDir,
    vars: BTreeMap<String, String>,
    server: FakeServer,
}

fn answer(text: &str) -> Reply {
    Answer::on(Wire::Contents).text(text).reply().only_for("contents")
}

fn token(number: u32) -> Reply {
    let body = json!({ "access_token": format!("access-token-{number}"), "expires_in": 3599, "token_type": "Bearer" });
    Reply::new(200, "application/json", body.to_string()).only_for("grant_type")
}

impl World {
    fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut vars = BTreeMap::new();
        vars.insert("HOME".to_owned(), home.path().to_str().unwrap().to_owned());
        let world = Self { home, vars, server: FakeServer::start(replies) };
        let models = json!({ "providers": { "google-vertex": { "baseUrl": world.server.url() } } });
        world.file("models.json", &models);
        world
    }

    fn file(&self, name: &str, content: &Value) -> String {
        let path = self.home.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn set(&mut self, name: &str, value: &str) {
        self.vars.insert(name.into(), value.into());
    }

    fn settings(&self) -> Settings {
        let (settings, _) = Settings::load(self.home.path(), &|name| self.vars.get(name).cloned());
        settings
            .with_call_options(CallOptions { base_delay: Duration::from_millis(1), ..CallOptions::default() })
    }

    fn person(&self, more: &Value) -> Value {
        let mut file = json!({ "type": "authorized_user", "client_id": "client-1", "client_secret": SECRETS[1],
            "refresh_token": SECRETS[0], "token_uri": format!("{}/token", self.server.url()) });
        file.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        file
    }

    fn service(&self) -> Value {
        json!({ "type": "service_account", "project_id": "p-1", "private_key_id": "key-7", "private_key": KEY,
            "client_email": "robot@p-1.iam.gserviceaccount.com", "token_uri": format!("{}/token", self.server.url()) })
    }

    /// A call, and what it taught.
    async fn call(&self) -> Result<(CallEnd, Vec<String>), ModelError> {
        let settings = self.settings();
        let model = settings.default_of("google-vertex").unwrap();
        crate::cloud_credentials::call(&settings, Model::clone(&model)).await
    }

    /// The error of a call, after which nothing more was sent than these requests.
    async fn fails(&self, words: &str, requests: usize) {
        let error = match self.call().await {
            Ok((end, _)) => end.error.unwrap(),
            Err(error) => error,
        };
        assert!(error.message.contains(words) && !error.message.contains('\n'), "{error} says {words}");
        let key = KEY.lines().nth(3).unwrap();
        assert!([SECRETS[0], SECRETS[1], key].iter().all(|it| !error.message.contains(it)), "{error}");
        assert_eq!(self.server.requests().len(), requests, "{error}");
    }
}

fn form(request: &CapturedRequest) -> BTreeMap<String, String> {
    assert_eq!(request.header("content-type"), Some("application/x-www-form-urlencoded"));
    let query = std::str::from_utf8(&request.body).unwrap();
    let url = reqwest::Url::parse(&format!("http://localhost/?{query}")).unwrap();
    url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned())).collect()
}

#[tokio::test]
async fn refresh_token_of_the_usual_file_becomes_a_bearer_token() {
    let world = World::new([token(1), answer("one")]);
    assert_eq!(world.settings().credential_source("google-vertex"), None);
    world.file(USUAL, &world.person(&json!({ "quota_project_id": "billing-1" })));
    let source = world.settings().credential_source("google-vertex");
    assert_eq!(source.as_deref(), Some("application default credentials"));
    let (end, learned) = world.call().await.unwrap();
    assert_eq!(end.error, None);
    let [asked, called] = &world.server.requests()[..] else { panic!() };
    let expect = [
        ("client_id", "client-1"),
        ("client_secret", SECRETS[1]),
        ("grant_type", "refresh_token"),
        ("refresh_token", SECRETS[0]),
    ];
    let expect = expect.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!((asked.path.as_str(), form(asked)), ("/token", BTreeMap::from(expect)));
    assert_eq!(called.header("authorization"), Some("Bearer access-token-1"));
    assert_eq!(called.header("x-goog-user-project"), Some("billing-1"));
    for secret in SECRETS.iter().chain(&["access-token-1"]) {
        assert!(learned.iter().any(|known| known == secret), "{secret}");
    }
}

#[tokio::test]
async fn service_account_signs_its_own_statement() {
    let mut world = World::new([token(1), answer("one")]);
    let path = world.file("robot.json", &world.service());
    world.set("GOOGLE_APPLICATION_CREDENTIALS", &path);
    assert_eq!(
        world.settings().credential_source("google-vertex").as_deref(),
        Some("GOOGLE_APPLICATION_CREDENTIALS")
    );
    let (end, learned) = world.call().await.unwrap();
    assert_eq!(end.error, None);
    let params = form(&world.server.requests()[0]);
    assert_eq!(params["grant_type"], "urn:ietf:params:oauth:grant-type:jwt-bearer");
    let (text, signature) = params["assertion"].rsplit_once('.').unwrap();
    let parts: Vec<Value> = text
        .split('.')
        .map(|part| serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap())
        .collect();
    assert_eq!(parts[0], json!({ "alg": "RS256", "typ": "JWT", "kid": "key-7" }));
    let (from, to) = (parts[1]["iat"].as_i64().unwrap(), parts[1]["exp"].as_i64().unwrap());
    assert_eq!(to - from, 3_600);
    let claims = json!({ "iss": "robot@p-1.iam.gserviceaccount.com", "iat": from, "exp": to,
        "scope": "https://www.googleapis.com/auth/cloud-platform", "aud": format!("{}/token", world.server.url()) });
    assert_eq!(parts[1], claims);
    let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms.mapping;
    let (_, rsa) =
        algorithms.iter().find(|(scheme, _)| *scheme == SignatureScheme::RSA_PKCS1_SHA256).unwrap();
    let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
    assert!(rsa[0].verify_signature(PUBLIC, text.as_bytes(), &signature).is_ok());
    assert!(rsa[0].verify_signature(PUBLIC, b"another text", &signature).is_err());
    assert!(learned.iter().any(|known| known == KEY.lines().nth(3).unwrap()));
}

#[tokio::test]
async fn refused_token_is_fetched_again_once() {
    let refused = Reply::error_on(Wire::Contents, 401, "UNAUTHENTICATED", "expired").only_for("contents");
    let world = World::new([token(1), refused, token(2), answer("one")]);
    world.file(USUAL, &world.person(&json!({})));
    assert_eq!(world.call().await.unwrap().0.error, None);
    let tokens: Vec<_> = world
        .server
        .requests()
        .iter()
        .filter_map(|it| it.header("authorization").map(str::to_owned))
        .collect();
    assert_eq!(tokens, ["Bearer access-token-1", "Bearer access-token-2"]);
}

#[tokio::test]
async fn project_and_location_of_a_token_are_asked_for_before_it() {
    let mut world = World::new([]);
    world.file("models.json", &json!({}));
    let path = world.file("robot.json", &world.service());
    world.set("GOOGLE_APPLICATION_CREDENTIALS", &path);
    world.fails("GOOGLE_CLOUD_PROJECT and GOOGLE_CLOUD_LOCATION are not set. Application default", 0).await;
    world.set("GOOGLE_CLOUD_PROJECT", "p-1");
    world.fails("GOOGLE_CLOUD_LOCATION is not set. Application default credentials need", 0).await;
    // A file that lies about says nothing of what a new session begins with.
    assert!(world.settings().default_model().is_none_or(|model| model.provider != "google-vertex"));
    world.vars.remove("GOOGLE_APPLICATION_CREDENTIALS");
    world.fails("GOOGLE_APPLICATION_CREDENTIALS names, or that of `gcloud auth", 0).await;
    // A key needs none of them.
    world.set("GOOGLE_CLOUD_API_KEY", "key-1");
    assert_eq!(world.settings().credential_source("google-vertex").as_deref(), Some("GOOGLE_CLOUD_API_KEY"));
}

#[tokio::test]
async fn files_that_cannot_be_used_send_nothing() {
    let mut world = World::new([]);
    let path = world.home.path().join("adc.json").to_str().unwrap().to_owned();
    world.set("GOOGLE_APPLICATION_CREDENTIALS", &path);
    world.fails("No such file", 0).await;
    let with = |uri: &str| world.person(&json!({ "token_uri": uri }));
    for (content, words) in [
        (with("https://evil.example/token"), "not an https address of Google; nothing is sent there"),
        (with("http://oauth2.googleapis.com/token"), "not an https address of Google"),
        (with("https://oauth2.googleapis.com@evil.example/"), "not an https address of Google"),
        (json!({ "type": "external_account" }), "\"external_account\" are not supported"),
        (
            json!({ "type": "authorized_user", "client_id": "c", "client_secret": "s" }),
            "it has no \"refresh_token\"",
        ),
        (json!({ "refresh_token": SECRETS[0] }), "it has no \"type\""),
        (json!([SECRETS[0]]), "is not a JSON object"),
        (
            json!({ "type": "service_account", "client_email": "e", "private_key": "-----BEGIN" }),
            "not an RSA key",
        ),
    ] {
        world.file("adc.json", &content);
        world.fails(words, 0).await;
    }
    std::fs::write(&path, " ".repeat(65 << 10)).unwrap();
    world.fails("is larger than 65536 bytes", 0).await;
}

#[tokio::test]
async fn token_server_that_answers_nonsense_is_named() {
    let page = "<!doctype html><title>Sign in</title>";
    let control = json!({ "access_token": "a\u{1b}[31mb" }).to_string();
    let to = |status: u16, body: &str| Reply::new(status, "application/json", body.to_owned());
    for (reply, words) in [
        (to(200, page), "it is not JSON"),
        (to(200, "{}"), "it has no \"access_token\""),
        (to(200, &control), "is not one word"),
        (to(200, &"x".repeat(70 << 10)), "it is larger than 65536 bytes"),
        (
            to(
                400,
                r#"{"error":"invalid_grant","error_description":"Token has been revoked: refresh-token-of-adc"}"#,
            ),
            "Run `gcloud auth application-default login` again",
        ),
        (to(302, "").header("location", "http://127.0.0.1:9/"), "(HTTP 302)"),
        (to(503, ""), "(HTTP 503)"),
    ] {
        let world = World::new([reply]);
        world.file(USUAL, &world.person(&json!({})));
        world.fails(words, 1).await;
    }
}
