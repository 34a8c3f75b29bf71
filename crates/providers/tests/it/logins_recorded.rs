//! The first requests of each login, compared with those of another client that was recorded making the same login.

use std::collections::BTreeMap;
use std::time::Duration;

use quipu_providers::{LoginMethod, LoginOptions, Logins, PendingLogin, Settings};
use quipu_testkit::{FakeServer, Reply, Wire};
use serde_json::{Value, json};

use crate::credentials::World;
use crate::logins::rows;
use crate::wires;

/// Headers that a server may look at; what a connection brings is left out.
const HEADERS: [&str; 5] =
    ["authorization", "content-type", "editor-version", "editor-plugin-version", "copilot-integration-id"];

/// Parameters, with those that chance makes left blank.
fn params(text: &str) -> BTreeMap<String, String> {
    let named: Vec<(String, String)> = if text.starts_with('{') {
        let object: serde_json::Map<String, Value> = serde_json::from_str(text).unwrap();
        object.into_iter().map(|(name, value)| (name, value.as_str().unwrap().to_owned())).collect()
    } else {
        let url = reqwest::Url::parse(&format!("http://localhost/?{text}")).unwrap();
        url.query_pairs().map(|(name, value)| (name.into_owned(), value.into_owned())).collect()
    };
    let plain = |(name, value): (String, String)| {
        let value = match name.as_str() {
            "state" | "code_challenge" => "…".into(),
            "code_verifier" if value != "VERIFIER" => "…".into(),
            // Each client says who it is.
            "originator" | "referrer" => "…".into(),
            // Ours lead to the server of the test.
            "redirect_uri" if value.starts_with("https://") => value.replace("https://", "127.0.0.1/"),
            "redirect_uri" | "callback_url" => {
                let mut url = reqwest::Url::parse(&value).unwrap();
                url.set_port(None).unwrap();
                let path: Vec<_> = url.path().split('/').filter(|part| part.len() < 20).collect();
                format!("{}{}", url.host_str().unwrap(), path.join("/"))
            }
            _ => value,
        };
        (name, value)
    };
    named.into_iter().map(plain).collect()
}

/// A request in the form that is compared.
fn request(method: &str, url: &str, headers: &BTreeMap<String, String>, body: &str) -> Value {
    let headers: BTreeMap<_, _> =
        headers.iter().filter(|(name, _)| HEADERS.contains(&name.as_str())).collect();
    json!({ "method": method, "url": url, "headers": headers, "body": params(body) })
}

/// A page, and the parameters of its query.
type Page = (String, BTreeMap<String, String>);

/// The page and the requests of a recorded login.
fn recorded(flow: &str) -> (Option<Page>, Vec<Value>) {
    let all: Value = serde_json::from_str(include_str!("../recordings/logins.json")).unwrap();
    let flow = &all["flows"][flow];
    let authorize = flow["authorize"].as_str().map(|url| {
        let (page, query) = url.split_once('?').unwrap();
        (page.to_owned(), params(query))
    });
    let requests = flow["requests"].as_array().unwrap().iter().map(|one| {
        let headers: BTreeMap<String, String> = serde_json::from_value(one["headers"].clone()).unwrap();
        let text = |name: &str| one[name].as_str().unwrap_or_default().to_owned();
        request(&text("method"), &text("url"), &headers, &text("body"))
    });
    (authorize, requests.collect())
}

/// What we asked, with the addresses that the servers stand for.
fn asked(server: &FakeServer) -> Vec<Value> {
    let all = server.requests().into_iter().map(|one| {
        let headers = one.headers.iter().cloned().collect();
        let url = format!("https:/{}", one.path);
        request(&one.method, &url, &headers, std::str::from_utf8(&one.body).unwrap())
    });
    all.collect()
}

fn reply(body: &Value) -> Reply {
    Reply::new(200, "application/json", body.to_string())
}

fn device() -> Reply {
    reply(
        &json!({ "device_code": "DEVICE", "user_code": "ABCD-1234", "verification_uri": "https://example.com/x",
        "interval": 0.001, "expires_in": 900, "device_auth_id": "DEVICE" }),
    )
}

async fn check_login(flow: &str, method: LoginMethod, answers: impl IntoIterator<Item = Reply>) {
    let (provider, _) = flow.split_once(' ').unwrap();
    let server = FakeServer::start(answers);
    let logins = Logins::parse(&rows(&server.url())).unwrap();
    let options = LoginOptions {
        method: Some(method),
        least_interval: Duration::from_millis(1),
        ..LoginOptions::default()
    };
    let login = PendingLogin::begin(&logins, provider, options).await.unwrap();
    let url = login.prompt().url;
    let (authorize, requests) = recorded(flow);
    if let Some((page, expect)) = authorize {
        let (ours, query) = url.split_once('?').unwrap();
        assert_eq!(ours.replace(&format!("{}/", server.url()), "https://"), page, "{flow}");
        assert_eq!(params(query), expect, "{flow}");
    }
    // The server of the recording refuses in the end, too.
    login.finish(async { Some("CODE".to_owned()) }).await.unwrap_err();
    assert_eq!(asked(&server), requests, "{flow}");
}

#[tokio::test]
async fn browser_logins_ask_what_a_real_client_asks() {
    for flow in ["anthropic browser", "openai-codex browser", "openrouter browser"] {
        check_login(flow, LoginMethod::Browser, []).await;
    }
    let place = json!({ "authorizationEndpoint": "https://radius.pi.dev/authorize" });
    let server = FakeServer::start([reply(&place)]);
    let logins = Logins::parse(&rows(&server.url())).unwrap();
    let login = PendingLogin::begin(&logins, "radius", LoginOptions::default()).await.unwrap();
    let (authorize, requests) = recorded("radius browser");
    let url = login.prompt().url;
    let (page, query) = url.split_once('?').unwrap();
    assert_eq!(((page.to_owned(), params(query)), asked(&server)), (authorize.unwrap(), requests));
}

#[tokio::test]
async fn device_logins_ask_what_a_real_client_asks() {
    let code = reply(&json!({ "authorization_code": "CODE", "code_verifier": "VERIFIER" }));
    check_login("openai-codex device", LoginMethod::Device, [device(), code]).await;
    let login = reply(&json!({ "access_token": "LOGIN" }));
    check_login("github-copilot device", LoginMethod::Device, [device(), login]).await;
    for flow in ["xai device", "radius device"] {
        check_login(flow, LoginMethod::Device, [device()]).await;
    }
}

#[tokio::test]
async fn refreshes_ask_what_a_real_client_asks() {
    for provider in ["anthropic", "openai-codex", "xai", "radius"] {
        let refused = json!({ "error": "invalid_grant" }).to_string();
        let server = FakeServer::start([Reply::new(400, "application/json", refused)]);
        let home = tempfile::tempdir().unwrap();
        let write = |name: &str, text: String| std::fs::write(home.path().join(name), text).unwrap();
        write("logins.json", rows(&server.url()));
        let entry =
            json!({ "type": "oauth", "access": "ACCESS", "refresh": "REFRESH", "expires": 1, "accepted": 1 });
        write("auth.json", json!({ provider: entry }).to_string());
        let models =
            json!({ "baseUrl": server.url(), "api": wires::api(Wire::Messages), "models": [{ "id": "m" }] });
        write("models.json", json!({ "providers": { provider: models } }).to_string());
        let (settings, _) = Settings::load(home.path(), &|_| None);
        let model = settings.models_of(provider).iter().find(|model| model.id == "m").unwrap();
        let caller = settings.provider_for(model, None).unwrap();
        assert!(World::of(caller, (**model).clone()).call().await.error.is_some());
        assert_eq!(asked(&server), recorded(&format!("{provider} refresh")).1, "{provider}");
    }
}
