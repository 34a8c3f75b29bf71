//! Logins: each flow against a server that plays it, and the renewal of tokens.

use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use quipu_providers::{AuthFile, LoginError, LoginMethod, LoginOptions, LoginTokens, Logins, PendingLogin};
use quipu_testkit::{CapturedRequest, FakeServer, Reply};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The built-in logins, with all servers at `url`, each in a directory of its name, and free ports for browsers.
pub(crate) fn rows(url: &str) -> String {
    let mut text = include_str!("../../data/logins.json").replace("https://", &format!("{url}/"));
    // A name, and no address.
    let claim = "https://api.openai.com/auth";
    text = text.replace(&claim.replace("https://", &format!("{url}/")), claim);
    for port in [":53692/", ":1455/", ":1456/"] {
        text = text.replace(port, ":0/");
    }
    text
}

fn logins(server: &FakeServer) -> Logins {
    Logins::parse(&rows(&server.url())).unwrap()
}

fn options(method: LoginMethod) -> LoginOptions {
    LoginOptions { method: Some(method), least_interval: Duration::from_millis(1), ..LoginOptions::default() }
}

fn reply(status: u16, body: &Value) -> Reply {
    Reply::new(status, "application/json", body.to_string())
}

fn tokens(number: u32) -> Reply {
    reply(
        200,
        &json!({ "access_token": format!("access-token-{number}"), "refresh_token": format!("refresh-token-{number}"),
            "expires_in": 3600, "token_type": "bearer" }),
    )
}

/// The parameters of a form or a query.
fn params(text: &str) -> Vec<(String, String)> {
    let url = reqwest::Url::parse(&format!("http://localhost/?{text}")).unwrap();
    url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned())).collect()
}

fn param(text: &str, name: &str) -> Option<String> {
    params(text).into_iter().find(|(known, _)| known == name).map(|(_, value)| value)
}

fn query(url: &str) -> &str {
    url.split_once('?').unwrap().1
}

fn form(request: &CapturedRequest) -> Vec<(String, String)> {
    assert_eq!(request.header("content-type"), Some("application/x-www-form-urlencoded"));
    params(std::str::from_utf8(&request.body).unwrap())
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// What a browser gets when it returns to `address` with this query.
async fn visit(address: &str, query: &str) -> String {
    let url = reqwest::Url::parse(address).unwrap();
    let mut stream = TcpStream::connect(("127.0.0.1", url.port().unwrap())).await.unwrap();
    let request = format!("GET {}?{query} HTTP/1.1\r\nhost: localhost\r\n\r\n", url.path());
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

fn stored(home: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(home.join("auth.json")).unwrap()).unwrap()
}

/// What `auth.json` has of these tokens.
fn kept(provider: &str, tokens: &LoginTokens) -> Value {
    let home = tempfile::tempdir().unwrap();
    AuthFile::new(home.path()).set_login(provider, tokens, None).unwrap();
    stored(home.path())[provider].clone()
}

async fn nothing_pasted() -> Option<String> {
    None
}

/// A login in a browser that brings this code.
async fn by_browser(server: &FakeServer, provider: &str) -> (String, Result<LoginTokens, LoginError>) {
    let login = PendingLogin::begin(&logins(server), provider, options(LoginMethod::Browser)).await.unwrap();
    let prompt = login.prompt();
    assert!(prompt.listens && prompt.takes_code && prompt.user_code.is_none());
    let q = query(&prompt.url);
    let back = param(q, "redirect_uri").or_else(|| param(q, "callback_url")).unwrap();
    let state = param(q, "state").map(|state| format!("&state={state}")).unwrap_or_default();
    let finish = tokio::spawn(login.finish(nothing_pasted()));
    if !state.is_empty() {
        assert!(visit(&back, "code=evil-code&state=wrong").await.starts_with("HTTP/1.1 400"));
        assert!(visit(&back, "error=access_denied&state=wrong").await.starts_with("HTTP/1.1 400"));
    }
    assert!(visit(&back.replace("/callback", "/other"), "code=evil-code").await.starts_with("HTTP/1.1 404"));
    let page = visit(&back, &format!("code=code-of-test{state}")).await;
    assert!(page.starts_with("HTTP/1.1 200") && !page.contains("code-of-test"), "{page}");
    (prompt.url, finish.await.unwrap())
}

#[tokio::test]
async fn browser_login_proves_that_it_asked_for_the_code() {
    let server = FakeServer::start([tokens(1)]);
    let (url, tokens) = by_browser(&server, "anthropic").await;
    assert!(url.starts_with(&format!("{}/claude.ai/oauth/authorize?", server.url())), "{url}");
    let q = query(&url);
    assert_eq!(param(q, "code_challenge_method").as_deref(), Some("S256"));
    let sent = &server.requests()[0];
    assert_eq!((sent.method.as_str(), sent.path.as_str()), ("POST", "/platform.claude.com/v1/oauth/token"));
    let body = sent.json();
    let verifier = body["code_verifier"].as_str().unwrap();
    assert_eq!(param(q, "code_challenge"), Some(URL_SAFE_NO_PAD.encode(Sha256::digest(verifier))));
    assert_eq!((&body["code"], &body["grant_type"]), (&json!("code-of-test"), &json!("authorization_code")));
    assert_eq!(body["redirect_uri"].as_str(), param(q, "redirect_uri").as_deref());
    assert_eq!(body["state"].as_str(), param(q, "state").as_deref());
    let tokens = tokens.unwrap();
    assert!(!format!("{tokens:?}").contains("-token-"));
    let kept = kept("anthropic", &tokens);
    assert_eq!((&kept["access"], &kept["refresh"]), (&json!("access-token-1"), &json!("refresh-token-1")));
}

#[tokio::test]
async fn account_of_a_login_is_kept_from_its_token() {
    let claims = json!({ "https://api.openai.com/auth": { "chatgpt_account_id": "account-7" } });
    let access = format!("head.{}.sig", URL_SAFE_NO_PAD.encode(claims.to_string()));
    let good = json!({ "access_token": access, "refresh_token": "r-1", "expires_in": 60 });
    let server = FakeServer::start([reply(200, &good), tokens(1)]);
    let (_, tokens) = by_browser(&server, "openai-codex").await;
    assert_eq!(kept("openai-codex", &tokens.unwrap())["accountId"], "account-7");
    let (_, without) = by_browser(&server, "openai-codex").await;
    let error = without.unwrap_err().to_string();
    assert!(error.contains("does not say") && !error.contains("access-token"), "{error}");
}

#[tokio::test]
async fn browser_login_can_make_a_lasting_key() {
    let server = FakeServer::start([reply(200, &json!({ "key": "sk-or-made-for-test" }))]);
    let (url, tokens) = by_browser(&server, "openrouter").await;
    let body = server.requests()[0].json();
    let verifier = body["code_verifier"].as_str().unwrap();
    assert_eq!(
        body,
        json!({ "code": "code-of-test", "code_verifier": verifier, "code_challenge_method": "S256" })
    );
    assert_eq!(params(query(&url)).len(), 3, "{url}");
    assert_eq!(
        kept("openrouter", &tokens.unwrap()),
        json!({ "type": "api_key", "key": "sk-or-made-for-test" })
    );
}

#[tokio::test]
async fn gateway_says_where_its_login_is() {
    let server = FakeServer::start([]);
    let place = format!("{}/login/here", server.url());
    server.push(reply(200, &json!({ "authorizationEndpoint": place })));
    server.push(tokens(1));
    let (url, tokens) = by_browser(&server, "radius").await;
    assert!(url.starts_with(&place) && tokens.is_ok());
    // A page that is no page of the web is not opened.
    for odd in ["file:///etc/passwd", "javascript:1", "http://example.com/", "https://user:word@example.com/"]
    {
        server.push(reply(200, &json!({ "authorizationEndpoint": odd })));
        let begun = PendingLogin::begin(&logins(&server), "radius", options(LoginMethod::Browser)).await;
        assert!(matches!(begun, Err(LoginError::Address { .. })), "{odd}");
    }
}

#[tokio::test]
async fn denied_browser_login_ends_at_once() {
    let server = FakeServer::start([]);
    let login =
        PendingLogin::begin(&logins(&server), "anthropic", options(LoginMethod::Browser)).await.unwrap();
    let url = login.prompt().url;
    let (back, state) = (param(query(&url), "redirect_uri").unwrap(), param(query(&url), "state").unwrap());
    let finish = tokio::spawn(login.finish(nothing_pasted()));
    let page = visit(&back, &format!("error=access_denied&error_description=Not%20now&state={state}")).await;
    assert!(page.contains("denied"), "{page}");
    assert_eq!(finish.await.unwrap(), Err(LoginError::Denied { words: ": Not now".into() }));
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test]
async fn code_is_pasted_where_the_browser_is_elsewhere() {
    let server = FakeServer::start([tokens(1)]);
    let paste = |text: &str| {
        let text = text.to_owned();
        async move { Some(text) }
    };
    let begin = || async {
        PendingLogin::begin(&logins(&server), "anthropic", options(LoginMethod::Paste)).await.unwrap()
    };
    let login = begin().await;
    let prompt = login.prompt();
    assert!(!prompt.listens && prompt.takes_code);
    let q = query(&prompt.url).to_owned();
    assert!(param(&q, "redirect_uri").unwrap().ends_with("/platform.claude.com/oauth/code/callback"));
    let state = param(&q, "state").unwrap();
    assert!(login.finish(paste(&format!("code-of-test#{state}\n"))).await.is_ok());
    assert_eq!(server.requests()[0].json()["code"], "code-of-test");
    assert_eq!(begin().await.finish(paste("code#of-another")).await, Err(LoginError::ForeignCode));
    assert_eq!(begin().await.finish(paste("  ")).await, Err(LoginError::NoCode));
    assert!(matches!(begin().await.finish(nothing_pasted()).await, Err(LoginError::Callback { .. })));
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn login_works_by_pasting_when_its_port_is_taken() {
    let server = FakeServer::start([tokens(1)]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let rows = rows(&server.url()).replace("localhost:0", &format!("localhost:{port}"));
    let rows = Logins::parse(&rows).unwrap();
    let login = PendingLogin::begin(&rows, "anthropic", options(LoginMethod::Browser)).await.unwrap();
    assert!(!login.prompt().listens);
    assert!(login.finish(async { Some("code-of-test".to_owned()) }).await.is_ok());
}

#[tokio::test]
async fn login_that_nobody_completes_ends() {
    let server = FakeServer::start([]);
    let limit = Duration::from_millis(20);
    let options = LoginOptions { limit, ..options(LoginMethod::Browser) };
    let login = PendingLogin::begin(&logins(&server), "anthropic", options).await.unwrap();
    let back = param(query(&login.prompt().url), "redirect_uri").unwrap();
    assert_eq!(login.finish(nothing_pasted()).await, Err(LoginError::TimedOut { limit }));
    let port = reqwest::Url::parse(&back).unwrap().port().unwrap();
    assert!(TcpStream::connect(("127.0.0.1", port)).await.is_err(), "nobody listens any more");
}

/// What a server says first in a login by device code.
fn device_code(server: &FakeServer, more: &Value) -> Reply {
    let mut body = json!({ "device_code": "device-code-of-test", "user_code": "ABCD-1234", "interval": 0,
        "expires_in": 900, "verification_uri": format!("{}/activate", server.url()) });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    reply(200, &body)
}

async fn by_device(server: &FakeServer, provider: &str) -> Result<LoginTokens, LoginError> {
    let login = PendingLogin::begin(&logins(server), provider, options(LoginMethod::Device)).await?;
    let prompt = login.prompt();
    assert!(prompt.user_code.is_some() && !prompt.takes_code);
    login.finish(nothing_pasted()).await
}

#[tokio::test]
async fn device_login_waits_as_the_server_says() {
    let server = FakeServer::start([]);
    let error = |status, code: &str| reply(status, &json!({ "error": code }));
    for reply in [
        device_code(&server, &json!({})),
        error(400, "authorization_pending"),
        reply(400, &json!({ "error": "slow_down", "interval": 0.001 })),
        // A server that is down for a moment.
        reply(503, &json!({})),
        error(400, "authorization_pending"),
        tokens(1),
    ] {
        server.push(reply);
    }
    let tokens = by_device(&server, "xai").await.unwrap();
    assert_eq!(kept("xai", &tokens)["access"], "access-token-1");
    let all = server.requests();
    assert_eq!(all.len(), 6);
    let scope = "openid profile email offline_access grok-cli:access api:access";
    let id = "b1a00492-073a-47ea-816f-4c329264a828";
    assert_eq!(form(&all[0]), pairs(&[("client_id", id), ("scope", scope), ("referrer", "quipu")]));
    let grant = "urn:ietf:params:oauth:grant-type:device_code";
    for poll in &all[1..] {
        let expect = [("grant_type", grant), ("client_id", id), ("device_code", "device-code-of-test")];
        assert_eq!((poll.path.as_str(), form(poll)), ("/auth.x.ai/oauth2/token", pairs(&expect)));
    }
}

#[tokio::test]
async fn device_login_ends_when_it_cannot_succeed() {
    let check = async |replies: &[Reply], expect: &str| {
        let server = FakeServer::start([]);
        server.push(device_code(&server, &json!({})));
        replies.iter().for_each(|reply| server.push(reply.clone()));
        let error = by_device(&server, "radius").await.unwrap_err().to_string();
        assert!(error.contains(expect), "{error}");
        assert!(!error.contains("device-code-of-test"), "{error}");
        assert_eq!(server.requests().len(), replies.len() + 1);
    };
    let error =
        |code: &str| reply(400, &json!({ "error": code, "error_description": "device-code-of-test no" }));
    check(&[error("access_denied")], "the login was denied: access_denied: [credential] no").await;
    check(&[error("expired_token")], "expired").await;
    check(&[error("invalid_client")], "refused whether the login is done (HTTP 400): invalid_client").await;
    check(&[reply(200, &json!({ "error": "odd" }))], "(HTTP 200): odd").await;
    check(&[Reply::new(200, "text/html", "<html>")], "it is not JSON").await;
    let down = || reply(500, &json!({}));
    check(&[down(), down(), down(), down(), down()], "HTTP 500").await;
    // A code that is over before the first question.
    let server = FakeServer::start([]);
    server.push(device_code(&server, &json!({ "interval": 60, "expires_in": 1 })));
    assert_eq!(by_device(&server, "xai").await, Err(LoginError::Expired));
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn page_of_a_device_login_must_be_of_the_web() {
    for odd in ["file:///bin/sh", "http://example.com", "-version", "https://a:b@example.com"] {
        let server = FakeServer::start([]);
        server.push(device_code(&server, &json!({ "verification_uri": odd })));
        let begun = PendingLogin::begin(&logins(&server), "xai", options(LoginMethod::Device)).await;
        assert!(matches!(begun, Err(LoginError::Address { .. })), "{odd}");
    }
    for code in ["two words", "\u{1b}[2J", "", &"x".repeat(65)] {
        let server = FakeServer::start([]);
        server.push(device_code(&server, &json!({ "user_code": code })));
        let begun = PendingLogin::begin(&logins(&server), "xai", options(LoginMethod::Device)).await;
        assert!(matches!(begun, Err(LoginError::Nonsense { .. })), "{code:?}");
    }
}

#[tokio::test]
async fn device_login_can_end_in_a_code_and_its_verifier() {
    let claims = json!({ "https://api.openai.com/auth": { "chatgpt_account_id": "account-7" } });
    let access = format!("head.{}.sig", URL_SAFE_NO_PAD.encode(claims.to_string()));
    let server = FakeServer::start([
        reply(200, &json!({ "device_auth_id": "device-1", "user_code": "ABCD-1234", "interval": "0" })),
        reply(403, &json!({})),
        reply(404, &json!({})),
        reply(200, &json!({ "authorization_code": "code-1", "code_verifier": "verifier-1" })),
        reply(200, &json!({ "access_token": access, "refresh_token": "refresh-1", "expires_in": 60 })),
    ]);
    let tokens = by_device(&server, "openai-codex").await.unwrap();
    assert_eq!(kept("openai-codex", &tokens)["accountId"], "account-7");
    let all = server.requests();
    assert_eq!(all[0].json(), json!({ "client_id": "app_EMoamEEZ73f0CkXaXp7hrann" }));
    assert_eq!(all[1].json(), json!({ "device_auth_id": "device-1", "user_code": "ABCD-1234" }));
    let sent = form(&all[4]);
    let value = |name: &str| sent.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    assert_eq!((value("code"), value("code_verifier")), (Some("code-1"), Some("verifier-1")));
    assert!(value("redirect_uri").unwrap().ends_with("/auth.openai.com/deviceauth/callback"));
}

/// A token for calls that is good until the far future.
fn call_token(host: &str) -> Reply {
    let token = format!("tid=token-of-test;exp=1;proxy-ep={host};sku=x");
    reply(200, &json!({ "token": token, "expires_at": 4_102_444_800_u64, "refresh_in": 1500 }))
}

#[tokio::test]
async fn token_of_a_login_is_exchanged_for_one_of_calls() {
    let server = FakeServer::start([]);
    server.push(device_code(&server, &json!({})));
    // This server says so with a status that is good.
    server.push(reply(200, &json!({ "error": "authorization_pending" })));
    server.push(reply(200, &json!({ "access_token": "login-token-of-test", "scope": "read:user" })));
    server.push(call_token("proxy.business.githubcopilot.com"));
    let tokens = by_device(&server, "github-copilot").await.unwrap();
    let kept = kept("github-copilot", &tokens);
    assert_eq!(kept["refresh"], "login-token-of-test");
    assert!(kept["access"].as_str().unwrap().starts_with("tid=token-of-test"));
    assert_eq!(kept.get("enterpriseUrl"), None);
    let all = server.requests();
    assert_eq!(all[0].path, "/github.com/login/device/code");
    let exchange = &all[3];
    assert_eq!(
        (exchange.method.as_str(), exchange.path.as_str()),
        ("GET", "/api.github.com/copilot_internal/v2/token")
    );
    assert_eq!(exchange.header("authorization"), Some("Bearer login-token-of-test"));
    assert_eq!(exchange.header("copilot-integration-id"), Some("vscode-chat"));
}

#[tokio::test]
async fn company_domain_is_used_for_every_request_of_a_login() {
    let server = FakeServer::start([]);
    let begin = async |domain: &str| {
        let options = LoginOptions { domain: Some(domain.to_owned()), ..options(LoginMethod::Device) };
        PendingLogin::begin(&logins(&server), "github-copilot", options).await
    };
    server.push(device_code(&server, &json!({})));
    server.push(reply(200, &json!({ "access_token": "login-token-of-test" })));
    server.push(call_token("proxy.octo.ghe.example"));
    let tokens = begin("https://octo.ghe.example/").await.unwrap().finish(nothing_pasted()).await.unwrap();
    assert_eq!(kept("github-copilot", &tokens)["enterpriseUrl"], "octo.ghe.example");
    let paths: Vec<_> = server.requests().into_iter().map(|request| request.path).collect();
    let expect = [
        "/octo.ghe.example/login/device/code",
        "/octo.ghe.example/login/oauth/access_token",
        "/api.octo.ghe.example/copilot_internal/v2/token",
    ];
    assert_eq!(paths, expect);
    for odd in ["a b", "user@example.com", "example.com/path", "example..com", "-x.com", "example.com:x"] {
        assert!(matches!(begin(odd).await, Err(LoginError::Domain { .. })), "{odd}");
    }
    assert_eq!(server.requests().len(), 3);
    // A token that would send calls elsewhere.
    server.push(device_code(&server, &json!({})));
    server.push(reply(200, &json!({ "access_token": "login-token-of-test" })));
    server.push(call_token("proxy.example.com"));
    let error = by_device(&server, "github-copilot").await.unwrap_err().to_string();
    assert!(error.contains("api.example.com, which is not a host of this provider"), "{error}");
}

#[tokio::test]
async fn logins_that_a_provider_does_not_have_are_refused() {
    let server = FakeServer::start([]);
    let check = async |provider: &str, method, expect: &str| {
        let begun = PendingLogin::begin(&logins(&server), provider, options(method)).await;
        assert_eq!(begun.unwrap_err().to_string(), expect);
    };
    check("groq", LoginMethod::Browser, "groq has no login by browser").await;
    check("openrouter", LoginMethod::Device, "OpenRouter has no login by device code").await;
    check("xai", LoginMethod::Paste, "SuperGrok or X Premium has no login by browser").await;
    assert_eq!(server.requests().len(), 0);
}
