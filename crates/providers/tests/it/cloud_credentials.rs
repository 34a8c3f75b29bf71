//! Models whose requests are signed: where the keys are from, and what arrives.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hmac::{Hmac, KeyInit as _, Mac as _};
use quipu_protocol::{Message, Model, ModelError, ModelErrorKind, ModelRequest, Thinking};
use quipu_providers::{Call, CallEnd, CallOptions, Settings, laws};
use quipu_testkit::{Answer, CapturedRequest, FakeServer, Gate, Reply, Wire};
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub(crate) const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+secret";
pub(crate) const TOKEN: &str = "session-token-of-test";
const ID: &str = "us.anthropic.claude-sonnet-4-5-20250929-v1:0";

/// A directory of the user's own, and variables. Without more of them, this is no virtual machine of the cloud.
pub(crate) struct World {
    pub(crate) home: tempfile::TempDir,
    vars: BTreeMap<String, String>,
}

/// How a call of this model ends, and the secrets that it learns.
pub(crate) async fn call(settings: &Settings, model: Model) -> Result<(CallEnd, Vec<String>), ModelError> {
    let provider = settings.provider_for(&model, None)?;
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
    let (send, mut receive) = mpsc::channel(64);
    let body = provider.encode(&request).unwrap();
    let learned = Arc::new(Mutex::new(Vec::new()));
    let learns = learned.clone();
    let call = Call {
        secrets: Some(Arc::new(move |secret: &str| learns.lock().unwrap().push(secret.to_owned()))),
        ..Call::new(request, body, send, CancellationToken::new())
    };
    let end = provider.send(call).await;
    let mut events = Vec::new();
    while let Ok(event) = receive.try_recv() {
        events.push(event);
    }
    laws::check(&events, &end).unwrap();
    let learned = learned.lock().unwrap().clone();
    Ok((end, learned))
}

impl World {
    pub(crate) fn new(vars: &[(&str, &str)]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut world = Self { home, vars: BTreeMap::new() };
        world.vars.insert("HOME".into(), world.home.path().to_string_lossy().into_owned());
        world.set("AWS_EC2_METADATA_DISABLED", "true");
        vars.iter().for_each(|(name, value)| world.set(name, value));
        world
    }

    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.vars.insert(name.into(), value.into());
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        let path = self.home.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        private(&path);
        path.to_string_lossy().into_owned()
    }

    pub(crate) fn settings(&self) -> Settings {
        let (settings, warnings) = Settings::load(self.home.path(), &|name| self.vars.get(name).cloned());
        assert!(warnings.is_empty(), "{warnings:?}");
        let base_delay = Duration::from_millis(1);
        settings.with_call_options(CallOptions { base_delay, ..CallOptions::default() })
    }

    /// A call to a model of the catalogue, and what it taught.
    pub(crate) async fn call(&self) -> Result<(CallEnd, Vec<String>), ModelError> {
        let settings = self.settings();
        call(&settings, bedrock_model(&settings)).await
    }

    /// The error of a call that sends nothing to the model's server.
    pub(crate) async fn fails(&self, words: &[&str]) -> ModelError {
        let error = match self.call().await {
            Ok((end, _)) => end.error.unwrap(),
            Err(error) => error,
        };
        assert!(!error.message.contains('\n'), "{error}");
        for word in words {
            assert!(error.message.contains(word), "{error} says {word}");
        }
        for secret in [SECRET, TOKEN] {
            assert!(!error.message.contains(secret), "{error}");
        }
        error
    }
}

#[cfg(unix)]
fn private(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

#[cfg(not(unix))]
fn private(_: &Path) {}

fn bedrock_model(settings: &Settings) -> Model {
    let models = settings.models_of("amazon-bedrock");
    Model::clone(models.iter().find(|model| model.id == ID).unwrap())
}

pub(crate) fn answer() -> Reply {
    Answer::on(Wire::Converse).text("Well.").reply()
}

/// A server of models, named by the variable for it.
pub(crate) fn served(replies: impl IntoIterator<Item = Reply>, vars: &[(&str, &str)]) -> (FakeServer, World) {
    let server = FakeServer::start(replies);
    let mut world = World::new(vars);
    world.set("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", &server.url());
    (server, world)
}

fn hex(bytes: impl AsRef<[u8]>) -> String {
    quipu_protocol::hex(bytes.as_ref())
}

fn keyed(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

/// Checks the signature of a request step by step, as its description says it is made.
pub(crate) fn is_signed(request: &CapturedRequest, secret: &str, region: &str) -> bool {
    let authorization = request.header("authorization").unwrap();
    let rest = authorization.strip_prefix("AWS4-HMAC-SHA256 Credential=AKID/").unwrap();
    let (scope, rest) = rest.split_once(", SignedHeaders=").unwrap();
    let (names, signature) = rest.split_once(", Signature=").unwrap();
    let date = request.header("x-amz-date").unwrap();
    assert_eq!(scope, format!("{}/{region}/bedrock/aws4_request", &date[..8]));
    for name in ["content-type", "host", "x-amz-date"] {
        assert!(names.split(';').any(|known| known == name), "{names}");
    }
    let headers: String =
        names.split(';').map(|name| format!("{name}:{}\n", request.header(name).unwrap())).collect();
    // The path is encoded once more than it is sent.
    let path = request.path.replace('%', "%25");
    let body = hex(Sha256::digest(&request.body));
    let canonical = format!("{}\n{path}\n\n{headers}\n{names}\n{body}", request.method);
    let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", hex(Sha256::digest(canonical)));
    let key = scope.split('/').fold(format!("AWS4{secret}").into_bytes(), |key, part| keyed(&key, part));
    hex(keyed(&key, &text)) == signature
}

#[tokio::test]
async fn access_keys_sign_what_arrives() {
    let vars = [
        ("AWS_ACCESS_KEY_ID", "AKID"),
        ("AWS_SECRET_ACCESS_KEY", SECRET),
        ("AWS_SESSION_TOKEN", TOKEN),
        ("AWS_REGION", "eu-west-1"),
    ];
    let busy = Reply::error_on(Wire::Converse, 503, "ServiceUnavailableException", "busy");
    let (server, world) = served([busy, answer()], &vars);
    let (end, learned) = world.call().await.unwrap();
    assert_eq!((end.error.as_ref(), end.message.text()), (None, "Well.".to_owned()));
    let name = Some("AWS_ACCESS_KEY_ID");
    assert!(end.attempts.iter().all(|attempt| attempt.credential.as_deref() == name));
    assert!([SECRET, TOKEN].iter().all(|secret| learned.contains(&(*secret).to_owned())));
    assert!(!learned.contains(&"AKID".to_owned()));
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    for request in &requests {
        assert_eq!(request.path, format!("/model/{}/converse-stream", ID.replace(':', "%3A")));
        assert_eq!(request.header("x-amz-security-token"), Some(TOKEN));
        assert!(is_signed(request, SECRET, "eu-west-1"));
        assert!(!is_signed(request, "another", "eu-west-1"));
    }
    // Sealed, and not by the id of the key.
    let secrets: Vec<_> = world.settings().secrets().into_iter().map(|(_, secret)| secret).collect();
    assert_eq!(secrets, [TOKEN, SECRET]);
}

#[tokio::test]
async fn bearer_token_comes_before_keys() {
    let vars = [
        ("AWS_BEARER_TOKEN_BEDROCK", "bearer-of-test"),
        ("AWS_ACCESS_KEY_ID", "AKID"),
        ("AWS_SECRET_ACCESS_KEY", SECRET),
    ];
    let (server, world) = served([answer()], &vars);
    assert_eq!(
        world.settings().credential_source("amazon-bedrock").as_deref(),
        Some("AWS_BEARER_TOKEN_BEDROCK")
    );
    assert_eq!(world.call().await.unwrap().0.error, None);
    let request = &server.requests()[0];
    assert_eq!(request.header("authorization"), Some("Bearer bearer-of-test"));
    assert_eq!(request.header("x-amz-date"), None);
}

#[tokio::test]
async fn no_credential_is_sent_where_auth_is_skipped() {
    let vars = [("AWS_BEDROCK_SKIP_AUTH", "1"), ("AWS_BEARER_TOKEN_BEDROCK", "bearer-of-test")];
    let (server, world) = served([answer()], &vars);
    assert_eq!(world.call().await.unwrap().0.error, None);
    assert_eq!(server.requests()[0].header("authorization"), None);
    let world = World::new(&vars[..1]);
    let settings = world.settings();
    assert!(settings.is_available(&bedrock_model(&settings)));
    assert_eq!(settings.credential_source("amazon-bedrock").as_deref(), Some("AWS_BEDROCK_SKIP_AUTH"));
}

fn profile(id: &str, secret: &str) -> String {
    format!("[work]\naws_access_key_id = {id}\naws_secret_access_key = {secret}\n")
}

#[tokio::test]
async fn profile_is_read_again_when_its_keys_are_refused() {
    let gate = Gate::new();
    let refused = || Reply::error_on(Wire::Converse, 403, "ExpiredTokenException", "expired");
    let (server, world) =
        served([refused(), refused().then_gate(&gate), answer()], &[("AWS_PROFILE", "work")]);
    world.write(".aws/config", "[profile work]\nregion = ap-south-1\n");
    world.write(".aws/credentials", &profile("AKID", "old-secret-key"));
    // The same keys are not tried twice.
    let (end, _) = world.call().await.unwrap();
    assert_eq!((end.attempts.len(), end.error.unwrap().kind), (1, ModelErrorKind::Auth));
    assert!(is_signed(&server.requests()[0], "old-secret-key", "ap-south-1"));
    // Others are, with the same bytes.
    let writes = async {
        server.wait_for_requests(2).await;
        world.write(".aws/credentials", &profile("AKID", "new-secret-key"));
        gate.open();
    };
    let (end, ()) = tokio::join!(world.call(), writes);
    let (end, learned) = end.unwrap();
    assert_eq!((end.error, end.attempts.len()), (None, 2));
    let requests = server.requests();
    assert!(is_signed(&requests[1], "old-secret-key", "ap-south-1"));
    assert!(is_signed(&requests[2], "new-secret-key", "ap-south-1"));
    assert_eq!(requests[1].body, requests[2].body);
    assert!(learned.contains(&"new-secret-key".to_owned()));
}

#[tokio::test]
async fn stored_profile_comes_before_variables() {
    let vars = [("AWS_ACCESS_KEY_ID", "AKID0"), ("AWS_SECRET_ACCESS_KEY", SECRET)];
    let (server, world) = served([answer()], &vars);
    world.write("auth.json", r#"{"amazon-bedrock":{"type":"api_key","env":{"AWS_PROFILE":"work"}}}"#);
    world.write(".aws/credentials", &profile("AKID", "profile-secret"));
    let source = world.settings().credential_source("amazon-bedrock");
    assert_eq!(source.as_deref(), Some("AWS profile work"));
    assert_eq!(world.call().await.unwrap().0.error, None);
    assert!(is_signed(&server.requests()[0], "profile-secret", "us-east-1"));
}

#[tokio::test]
async fn profile_without_keys_says_what_to_do() {
    let (server, world) = served([], &[("AWS_PROFILE", "work")]);
    world.fails(&["no AWS profile \"work\"", "AWS_PROFILE"]).await;
    world.write(".aws/config", "[profile work]\nsso_session = corp\n");
    let error = world.fails(&["sso_session", "aws configure export-credentials"]).await;
    assert_eq!(error.kind, ModelErrorKind::NoCredential);
    assert!(server.requests().is_empty());
}

/// Writes the token of a single sign-on as `aws sso login` keeps it.
fn sign_on(world: &World, file: &str, start_url: &str, token: &str, expires_at: &str) {
    let cached = serde_json::json!({ "startUrl": start_url, "region": "eu-west-1", "accessToken": token,
        "expiresAt": expires_at, "clientId": "c", "clientSecret": "s" });
    world.write(&format!(".aws/sso/cache/{file}.json"), &cached.to_string());
}

const SSO: &str = "[profile work]\nsso_session = corp\nsso_account_id = 123456789012\nsso_role_name = Dev ops\nregion = eu-west-1\n\
    [sso-session corp]\nsso_start_url = https://corp.example/start\nsso_region = eu-west-1\n";

#[tokio::test]
async fn token_of_a_single_sign_on_becomes_keys_of_its_role() {
    let keys = serde_json::json!({ "roleCredentials": { "accessKeyId": "AKID", "secretAccessKey": SECRET,
        "sessionToken": TOKEN, "expiration": 4_102_444_800_000_i64 } });
    let portal = FakeServer::start([Reply::new(200, "application/json", keys.to_string())]);
    let (server, mut world) = served([answer(), answer()], &[("AWS_PROFILE", "work")]);
    world.set("AWS_ENDPOINT_URL_SSO", &portal.url());
    world.write(".aws/config", SSO);
    let start = "https://corp.example/start";
    sign_on(&world, "old", start, "token-old", "2020-01-01T00:00:00Z");
    sign_on(&world, "other", "https://other.example/start", "token-other", "2099-01-01T00:00:00Z");
    sign_on(&world, "new", start, "token-new", "2098-01-01T00:00:00UTC");
    world.write(".aws/sso/cache/client.json", "{\"clientId\": 7");
    let source = world.settings().credential_source("amazon-bedrock");
    assert_eq!((source.as_deref(), portal.requests().len()), (Some("AWS profile work"), 0));
    let (end, learned) = world.call().await.unwrap();
    assert_eq!(end.error, None);
    let asked = &portal.requests()[0];
    assert_eq!(
        (asked.method.as_str(), asked.path.as_str()),
        ("GET", "/federation/credentials?role_name=Dev+ops&account_id=123456789012")
    );
    assert_eq!(asked.header("x-amz-sso_bearer_token"), Some("token-new"));
    assert!(is_signed(&server.requests()[0], SECRET, "eu-west-1"));
    assert!(learned.contains(&TOKEN.to_owned()));
}

#[tokio::test]
async fn single_sign_on_that_is_over_says_what_to_run() {
    let portal = FakeServer::start([
        Reply::new(401, "application/json", r#"{"message":"Session token not found: token-new"}"#),
        Reply::new(403, "application/json", r#"{"message":"No access with token-new"}"#),
        Reply::new(200, "application/json", r#"{"roleCredentials":{"accessKeyId":"AKID"}}"#),
    ]);
    let (server, mut world) = served([], &[("AWS_PROFILE", "work")]);
    world.set("AWS_ENDPOINT_URL_SSO", &portal.url());
    world.write(".aws/config", SSO);
    let run = "Run `aws sso login` for this profile";
    world.fails(&["SSO login of the AWS profile \"work\" is missing", run]).await;
    sign_on(&world, "a", "https://corp.example/start", "token-new", "2020-01-01T00:00:00Z");
    let error = world.fails(&["has expired", run]).await;
    assert_eq!((error.kind, portal.requests().len()), (ModelErrorKind::NoCredential, 0));
    sign_on(&world, "a", "https://corp.example/start", "token-new", "2099-01-01T00:00:00Z");
    world.fails(&["was refused", run]).await;
    let error = world.fails(&["answered 403", "No access with [credential]"]).await;
    assert!(!error.message.contains("token-new"), "{error}");
    world.fails(&["sent no access key"]).await;
    // The token does not leave the machine in the open.
    world.set("AWS_ENDPOINT_URL_SSO", "http://portal.example");
    world.fails(&["leads to portal.example over plain HTTP"]).await;
    assert!(server.requests().is_empty());
}

pub(crate) fn container_keys(expires_in: i64) -> String {
    let at = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let at = jiff::Timestamp::from_second(i64::try_from(at.as_secs()).unwrap() + expires_in).unwrap();
    serde_json::json!({ "AccessKeyId": "AKID", "SecretAccessKey": SECRET, "Token": TOKEN, "Expiration": at.to_string() })
        .to_string()
}

#[tokio::test]
async fn container_role_gives_keys_until_they_expire() {
    let keys = FakeServer::start([
        Reply::new(200, "application/json", container_keys(5)),
        Reply::new(200, "application/json", container_keys(3_600)),
    ]);
    let busy = || Reply::error_on(Wire::Converse, 503, "ServiceUnavailableException", "busy");
    let (server, mut world) = served([busy(), busy(), answer()], &[("AWS_REGION", "us-west-2")]);
    world.set("AWS_CONTAINER_CREDENTIALS_FULL_URI", &format!("{}/v1/keys", keys.url()));
    let file = world.write("token", "container-token\n");
    world.set("AWS_CONTAINER_AUTHORIZATION_TOKEN", "not this one");
    world.set("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", &file);
    let (end, learned) = world.call().await.unwrap();
    assert_eq!(end.error, None);
    // Those that end within ten seconds are for one attempt; the others stay.
    assert_eq!((keys.requests().len(), server.requests().len()), (2, 3));
    assert!(learned.contains(&TOKEN.to_owned()));
    let request = &keys.requests()[0];
    assert_eq!((request.method.as_str(), request.path.as_str()), ("GET", "/v1/keys"));
    assert_eq!(request.header("authorization"), Some("container-token"));
    assert!(server.requests().iter().all(|request| is_signed(request, SECRET, "us-west-2")));
}

#[tokio::test]
async fn container_that_gives_no_keys_fails_in_words() {
    let check = async |reply: Reply, words: &[&str]| {
        let keys = FakeServer::start([reply]);
        let (server, mut world) = served([], &[("AWS_CONTAINER_AUTHORIZATION_TOKEN", TOKEN)]);
        world.set("AWS_CONTAINER_CREDENTIALS_FULL_URI", &keys.url());
        let error = world.fails(words).await;
        assert_eq!((error.kind, server.requests().len()), (ModelErrorKind::NoCredential, 0));
    };
    let json = |text: &str| Reply::new(200, "application/json", text.to_owned());
    check(Reply::new(403, "text/plain", format!("bad {TOKEN}\nno")), &["answered 403: bad [credential] no"])
        .await;
    check(json("{}"), &["sent no access key"]).await;
    check(json(&container_keys(-5)), &["it has expired"]).await;
    check(json("").then_repeat(vec![b' '; 1 << 16], 4), &["more than the limit of 64 KiB"]).await;
    check(Reply::new(302, "text/plain", "").header("location", "http://10.0.0.1/"), &["answered 302"]).await;
    check(Reply::reset(), &["did not answer"]).await;
}

#[tokio::test]
async fn keys_are_not_asked_for_in_the_open() {
    let check = async |vars: &[(&str, &str)], words: &[&str]| {
        let (server, world) = served([], vars);
        let error = world.fails(words).await;
        assert_eq!((error.kind, server.requests().len()), (ModelErrorKind::NoCredential, 0));
    };
    let open = ["over plain HTTP", "Use https"];
    check(&[("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://192.0.2.1/keys")], &open).await;
    check(&[("AWS_CONTAINER_CREDENTIALS_FULL_URI", "nonsense")], &["not an HTTP URL"]).await;
    check(&[("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "x")], &["does not begin with a slash"]).await;
    let identity = ("AWS_WEB_IDENTITY_TOKEN_FILE", "/nowhere/token");
    let role = ("AWS_ROLE_ARN", "arn:aws:iam::1:role/r");
    check(&[identity, role, ("AWS_ENDPOINT_URL_STS", "http://192.0.2.1/")], &open).await;
    check(&[identity, role], &["/nowhere/token cannot be read"]).await;
    let world = World::new(&[
        ("AWS_ACCESS_KEY_ID", "AKID"),
        ("AWS_SECRET_ACCESS_KEY", SECRET),
        ("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", "http://192.0.2.1"),
    ]);
    assert_eq!(world.fails(&open).await.kind, ModelErrorKind::InvalidRequest);
}

#[tokio::test]
async fn web_identity_becomes_keys_of_its_role() {
    let xml = format!(
        "<AssumeRoleWithWebIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><AssumeRoleWithWebIdentityResult>\
         <Credentials><AccessKeyId>AKID</AccessKeyId><SecretAccessKey>{SECRET}</SecretAccessKey><SessionToken>{TOKEN}\
         </SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleWithWebIdentityResult>\
         </AssumeRoleWithWebIdentityResponse>"
    );
    let sts = FakeServer::start([Reply::new(200, "text/xml", xml)]);
    let (server, mut world) = served([answer()], &[("AWS_ROLE_ARN", "arn:aws:iam::1:role/r")]);
    let file = world.write("jwt", "eyJ.a+b/c=.d&e\n");
    world.set("AWS_WEB_IDENTITY_TOKEN_FILE", &file);
    world.set("AWS_ROLE_SESSION_NAME", "me");
    world.set("AWS_ENDPOINT_URL_STS", &sts.url());
    let (end, learned) = world.call().await.unwrap();
    assert_eq!(end.error, None);
    assert!(learned.contains(&SECRET.to_owned()));
    assert!(is_signed(&server.requests()[0], SECRET, "us-east-1"));
    let asked = &sts.requests()[0];
    assert_eq!(
        std::str::from_utf8(&asked.body).unwrap(),
        "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr&RoleSessionName=me\
         &WebIdentityToken=eyJ.a%2Bb%2Fc%3D.d%26e"
    );
    assert_eq!(asked.header("content-type"), Some("application/x-www-form-urlencoded"));
}

#[tokio::test]
async fn refused_web_identity_is_told_without_its_token() {
    let xml = format!(
        "<ErrorResponse><Error><Code>InvalidIdentityToken</Code><Message>bad {TOKEN}</Message></Error></ErrorResponse>"
    );
    let sts = FakeServer::start([Reply::new(400, "text/xml", xml)]);
    let (server, mut world) = served([], &[]);
    let file = world.write("jwt", TOKEN);
    world.set("AWS_ENDPOINT_URL_STS", &sts.url());
    world.set("AWS_PROFILE", "pod");
    let config = format!("[profile pod]\nrole_arn = r\nweb_identity_token_file = {file}\n");
    world.write(".aws/config", &config);
    world.fails(&["answered 400: InvalidIdentityToken: bad [credential]"]).await;
    assert_eq!((sts.requests().len(), server.requests().len()), (1, 0));
}

#[tokio::test]
async fn errors_of_the_server_have_their_kinds() {
    use ModelErrorKind as K;
    let keys = [("AWS_ACCESS_KEY_ID", "AKID"), ("AWS_SECRET_ACCESS_KEY", SECRET)];
    for (status, name, message, kind) in [
        (400, "ValidationException", "The provided model identifier is invalid.", K::InvalidRequest),
        (
            400,
            "ValidationException:http://internal/coral/",
            "Input is too long for requested model.",
            K::ContextOverflow,
        ),
        (400, "ExpiredTokenException", "The security token is expired", K::Auth),
        (400, "ServiceQuotaExceededException", "Too much", K::Quota),
        (403, "AccessDeniedException", "You don't have access to the model", K::Auth),
        (403, "InvalidSignatureException", "Signature expired", K::Auth),
        (404, "ResourceNotFoundException", "Could not resolve the model", K::UnknownModel),
        (408, "ModelTimeoutException", "Took too long", K::Timeout),
        (424, "ModelErrorException", "The model failed", K::Server),
        (429, "ThrottlingException", "Too many requests, please wait", K::RateLimited),
        (429, "ModelNotReadyException", "Not ready", K::RateLimited),
        (500, "InternalServerException", "Oops", K::Server),
        (503, "ServiceUnavailableException", "Busy", K::Overloaded),
    ] {
        let reply =
            || Reply::error_on(Wire::Converse, status, name, message).header("x-amzn-requestid", "req-7");
        let (_server, world) = served([reply(), reply(), reply(), reply()], &keys);
        let (end, _) = world.call().await.unwrap();
        let error = end.error.unwrap();
        assert_eq!((error.kind, error.status), (kind, Some(status)), "{name}");
        assert_eq!(error.request_id.as_deref(), Some("req-7"));
        let message = message.trim_end_matches('.');
        assert!(error.message.contains(message), "{error}");
    }
    // The name of the error may stand in the body.
    let body = r#"{"__type":"com.amazon.coral.service#UnrecognizedClientException","Message":"The token is invalid"}"#;
    let (_server, world) = served([Reply::new(400, "application/x-amz-json-1.1", body)], &keys);
    let error = world.call().await.unwrap().0.error.unwrap();
    assert_eq!(error.kind, K::Auth);
    assert!(error.message.contains("The token is invalid"), "{error}");
}

#[test]
fn models_are_available_with_any_credential_and_nobody_is_asked() {
    let check = |files: &[(&str, &str)], vars: &[(&str, &str)], source: Option<&str>, begins: bool| {
        let server = FakeServer::start([]);
        let mut world = World::new(vars);
        if vars.iter().any(|(name, _)| name.ends_with("FULL_URI")) {
            world.set("AWS_CONTAINER_CREDENTIALS_FULL_URI", &server.url());
        }
        for (name, text) in files {
            world.write(name, text);
        }
        let settings = world.settings();
        assert_eq!(settings.credential_source("amazon-bedrock").as_deref(), source, "{vars:?}");
        let models = settings.models_of("amazon-bedrock");
        assert!(models.len() > 100);
        for model in models {
            assert_eq!(settings.is_available(model), source.is_some(), "{}", model.id);
            let made = settings.provider_for(model, None);
            assert_eq!(made.is_ok(), source.is_some(), "{}: {:?}", model.id, made.map(drop));
        }
        let default = settings.default_model().map(|model| model.id.clone());
        assert_eq!(default.as_deref(), begins.then_some("us.anthropic.claude-opus-4-6-v1"), "{vars:?}");
        assert!(server.requests().is_empty());
    };
    let keys = [("AWS_ACCESS_KEY_ID", "AKID"), ("AWS_SECRET_ACCESS_KEY", SECRET)];
    check(&[], &[], None, false);
    check(&[], &keys, Some("AWS_ACCESS_KEY_ID"), true);
    check(&[], &[("AWS_BEARER_TOKEN_BEDROCK", "bearer-1")], Some("AWS_BEARER_TOKEN_BEDROCK"), true);
    check(&[], &[("AWS_PROFILE", "work")], Some("AWS profile work"), true);
    check(&[], &[("AWS_CONTAINER_CREDENTIALS_FULL_URI", "x")], Some("AWS container role"), true);
    let identity = [("AWS_WEB_IDENTITY_TOKEN_FILE", "/x"), ("AWS_ROLE_ARN", "r")];
    check(&[], &identity, Some("AWS_WEB_IDENTITY_TOKEN_FILE"), true);
    check(&[], &identity[..1], None, false);
    let stored = r#"{"amazon-bedrock":{"type":"api_key","key":"stored-key-1"}}"#;
    check(&[("auth.json", stored)], &[], Some("auth.json"), true);
    // The usual profile is there for other programs: it is used when somebody asks for it.
    let usual = profile("AKID", SECRET).replace("work", "default");
    check(&[(".aws/credentials", &usual)], &[], Some("AWS profile default"), false);
}

#[test]
fn keys_of_a_cloud_come_after_those_of_other_providers() {
    let keys =
        [("AWS_ACCESS_KEY_ID", "AKID"), ("AWS_SECRET_ACCESS_KEY", SECRET), ("XAI_API_KEY", "xai-key-1")];
    assert_eq!(World::new(&keys).settings().default_model().unwrap().provider, "xai");
    let bearer = [("AWS_BEARER_TOKEN_BEDROCK", "bearer-1"), ("XAI_API_KEY", "xai-key-1")];
    assert_eq!(World::new(&bearer).settings().default_model().unwrap().provider, "amazon-bedrock");
}

#[tokio::test]
async fn missing_credential_names_keys_and_region() {
    let error = World::new(&[])
        .fails(&["AWS_BEARER_TOKEN_BEDROCK", "AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_REGION"])
        .await;
    assert_eq!(error.kind, ModelErrorKind::NoCredential);
    let half = [("AWS_ACCESS_KEY_ID", "AKID")];
    World::new(&half).fails(&["AWS_ACCESS_KEY_ID is set without AWS_SECRET_ACCESS_KEY"]).await;
    let region = [("AWS_BEARER_TOKEN_BEDROCK", "bearer-1"), ("AWS_REGION", "a.b/")];
    World::new(&region).fails(&["\"a.b/\" from AWS_REGION is not a region"]).await;
}

#[tokio::test]
async fn provider_of_ones_own_is_called_with_the_same_keys() {
    let (server, world) =
        served([answer()], &[("AWS_ACCESS_KEY_ID", "AKID"), ("AWS_SECRET_ACCESS_KEY", SECRET)]);
    let file = serde_json::json!({ "providers": { "team": {
        "baseUrl": server.url(), "api": "bedrock-converse-stream", "models": [{ "id": ID }],
    } } });
    world.write("models.json", &file.to_string());
    let settings = world.settings();
    assert_eq!(settings.credential_source("team").as_deref(), Some("AWS_ACCESS_KEY_ID"));
    assert!(settings.is_available(&settings.models_of("team")[0]));
    assert!(settings.provider_for(&settings.models_of("team")[0], None).unwrap().is_local());
}
