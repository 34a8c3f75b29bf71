//! Calls with the login of Gemini CLI: the body within another, the events within others, and the project of the account.

use std::path::Path;
use std::sync::Arc;

use quipu_protocol::{AssistantMessage, Content, Message, Model, ModelRequest};
use quipu_providers::{
    AgentAccount, AuthFile, CacheRetention, CallOptions, CredentialError, Credentials, Memory, Provider,
    google,
};
use quipu_testkit::{Answer, FakeServer, Reply, Wire};
use serde_json::{Value, json};

use crate::agents::Machine;
use crate::credentials::World;
use crate::encode::{conversation, request};
use crate::encode_contents;
use crate::wires;

const ID: &str = "google-gemini-cli";
const FILE: &str = ".gemini/oauth_creds.json";
const FUTURE: i64 = 4_102_444_800_000;
const ASK: &str = "/v1internal:loadCodeAssist";
const CALL: &str = "/v1internal:streamGenerateContent?alt=sse";

pub(crate) fn model() -> Model {
    Model { provider: ID.into(), api: google::code_assist::API.into(), ..encode_contents::model() }
}

/// An answer of [`model`].
pub(crate) fn own(content: Vec<Content>) -> Message {
    let mut message = encode_contents::own(content);
    if let Message::Assistant(answer) = &mut message {
        answer.provider = ID.into();
        answer.api = google::code_assist::API.into();
    }
    message
}

/// What the server checks: its own members, and the body within.
pub(crate) fn acceptable(body: &Value) -> Result<(), String> {
    for (name, value) in body.as_object().unwrap() {
        let fits = match name.as_str() {
            "model" | "project" | "user_prompt_id" => value.as_str().is_some_and(|text| !text.is_empty()),
            "request" => value.is_object(),
            _ => false,
        };
        if !fits {
            return Err(format!("{name} is {value}"));
        }
    }
    if body["request"].get("model").is_some() {
        return Err("the model is named within".into());
    }
    encode_contents::acceptable(&body["request"])
}

fn provider(options: CallOptions) -> Arc<dyn Provider> {
    wires::provider(&model(), Credentials::none(), &[], options).unwrap()
}

/// A stream of the wire within, with each event within another.
pub(crate) fn around(stream: &str) -> String {
    let line = |line: &str| match line.strip_prefix("data: ").filter(|event| event.starts_with('{')) {
        Some(event) => format!("data: {{\"response\":{event},\"traceId\":\"trace-1\"}}\n"),
        None => format!("{line}\n"),
    };
    stream.lines().map(line).collect()
}

fn decoded(model: Model, bytes: &str) -> (AssistantMessage, usize, Option<String>) {
    let mut decoder = google::decoder(Arc::new(model), 1);
    let mut events = Vec::new();
    let result = decoder.push(bytes.as_bytes(), &mut events).and_then(|()| decoder.end(&mut events));
    let (message, unknown, failure) = decoder.finish(result.as_ref().err());
    let error = result.err().or(failure).map(|error| format!("{:?} {}", error.kind, error.message));
    (message, unknown.len(), error)
}

#[test]
fn events_within_others_mean_what_they_mean_alone() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/contents");
    let mut count = 0;
    for path in std::fs::read_dir(directory).unwrap().map(|file| file.unwrap().path()) {
        if path.extension().is_none_or(|end| end != "sse") {
            continue;
        }
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        // An error stands beside the answer, not within it.
        if text.contains("\"error\"") {
            continue;
        }
        let (mut alone, unknown, error) = decoded(encode_contents::model(), &text);
        let (mut within, same_unknown, same_error) = decoded(model(), &around(&text));
        within.response_id.take();
        alone.response_id.take();
        alone.provider = ID.into();
        alone.api = google::code_assist::API.into();
        assert_eq!((within, same_unknown, same_error), (alone, unknown, error), "{}", path.display());
        count += 1;
    }
    assert!(count > 12, "{count}");
    let said =
        json!({ "candidates": [{ "content": { "parts": [{ "text": "hello" }] }, "finishReason": "STOP" }] });
    let (message, ..) = decoded(model(), &around(&format!("data: {said}\n\n")));
    assert_eq!(message.response_id.as_deref(), Some("trace-1"));
    let failed = r#"data: {"error":{"code":429,"message":"No capacity","status":"RESOURCE_EXHAUSTED"}}"#;
    let (_, _, error) = decoded(model(), &format!("{failed}\n\n"));
    assert!(error.unwrap().starts_with("RateLimited reported a failure: No capacity"));
    let alone = "data: {\"remainingCredits\":[{\"creditAmount\":\"7\"}]}\n\n";
    assert_eq!(decoded(model(), alone).1, 1);
}

#[test]
fn body_within_is_that_of_the_wire() {
    let bare = |request: &ModelRequest| {
        let request = ModelRequest { model: Arc::new(encode_contents::model()), ..request.clone() };
        let bare = wires::provider(&request.model, Credentials::none(), &[], CallOptions::default()).unwrap();
        serde_json::from_slice::<Value>(&bare.encode(&request).unwrap()).unwrap()
    };
    let all: Vec<_> = conversation().into_iter().map(Arc::new).collect();
    for session in [Some("session-1"), None] {
        let mut whole = request(model(), Vec::new());
        whole.session = session.map(Into::into);
        let mut memory = Memory::default();
        for count in 1..=all.len() {
            whole.messages = all[..count].to_vec().into();
            let body = provider(CallOptions::default()).encode_next(&whole, &mut memory).unwrap();
            let mut body: Value = serde_json::from_slice(&body.bytes).unwrap();
            let within = body["request"].as_object_mut().unwrap();
            assert_eq!(within.remove("session_id"), session.map(Value::from));
            assert_eq!(Value::Object(within.clone()), bare(&whole));
            let prompts = all[..count].iter().filter(|it| matches!(***it, Message::User(_))).count();
            let mut expect =
                json!({ "model": "gemini-3-test", "project": wires::PROJECT, "request": within });
            if let Some(session) = session {
                expect["user_prompt_id"] = format!("{session}-{prompts}").into();
            }
            assert_eq!(body, expect);
        }
    }
    let none = CallOptions { cache: CacheRetention::Off, ..CallOptions::default() };
    let body = provider(none).encode(&request(model(), conversation())).unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((body.get("user_prompt_id"), body["request"].get("session_id")), (None, None));
}

/// A machine on which Gemini CLI is logged in, and whose server is that of the account.
fn machine(replies: impl IntoIterator<Item = Reply>, expires: i64) -> Machine {
    let machine = Machine::new(replies);
    let models = json!({ "providers": { ID: { "baseUrl": machine.server.url() } } });
    machine.file(".quipu/models.json", &models);
    machine.file(FILE, &login(expires));
    machine
}

fn login(expires: i64) -> Value {
    json!({ "access_token": "ya29.access-token-1", "refresh_token": "1//owners-refresh-token", "scope": "x",
        "token_type": "Bearer", "id_token": "a.b.c", "expiry_date": expires })
}

fn says(status: u16, body: &Value) -> Reply {
    Reply::new(status, "application/json", body.to_string()).only_for("metadata")
}

fn answer(text: &str) -> Reply {
    Answer::on(Wire::Envelope).text(text).reply().only_for("contents")
}

async fn account(machine: &Machine, project: Option<&str>) -> Result<AgentAccount, CredentialError> {
    let home = machine.home.path().to_str().unwrap().to_owned();
    let project = project.map(str::to_owned);
    let env = |name: &str| match name {
        "HOME" => Some(home.clone()),
        "GOOGLE_CLOUD_PROJECT" => project.clone(),
        _ => None,
    };
    let (settings, _) = quipu_providers::Settings::load(&machine.path(".quipu"), &env);
    let login = settings.agent_logins().into_iter().find(|login| login.agent == "gemini-cli").unwrap();
    assert!(login.restriction.as_deref().unwrap().contains("a violation of its terms"));
    settings.agent_account(&login).await
}

#[tokio::test]
async fn project_of_the_account_is_asked_for_and_named_in_calls() {
    let free =
        json!({ "currentTier": { "id": "free-tier" }, "cloudaicompanionProject": "useful-name-b4rcs" });
    let machine = machine([says(200, &free), answer("hello")], FUTURE);
    let found = account(&machine, None).await.unwrap();
    let file = AuthFile::new(&machine.path(".quipu"));
    file.set_reference(ID, "gemini-cli", None, &found).unwrap();
    let refused = |settings: &quipu_providers::Settings| {
        settings.provider_for(&settings.default_of(ID).unwrap(), None).err().unwrap().message
    };
    assert!(
        refused(&machine.settings()).contains("nobody has accepted the restriction of this login. Google")
    );
    file.set_reference(ID, "gemini-cli", Some(1), &found).unwrap();
    let settings = machine.settings();
    let model = settings.default_of(ID).unwrap();
    let world = World::of(settings.provider_for(&model, None).unwrap(), Model::clone(&model));
    assert_eq!(world.call().await.error, None);
    let [asked, called] = &machine.server.requests()[..] else { panic!() };
    assert_eq!((asked.path.as_str(), called.path.as_str()), (ASK, CALL));
    for sent in [asked, called] {
        assert_eq!(sent.header("authorization"), Some("Bearer ya29.access-token-1"));
        assert_eq!(sent.header("user-agent"), Some(concat!("quipu/", env!("CARGO_PKG_VERSION"))));
    }
    assert_eq!(called.json()["project"], "useful-name-b4rcs");
    assert_eq!(called.json()["model"], "gemini-2.5-pro");
    assert_eq!(world.learned(), ["ya29.access-token-1"]);
    // The file of the owner and its refresh token stay where they are.
    assert_eq!(machine.text(FILE), login(FUTURE).to_string());
    assert!(!machine.text(".quipu/auth.json").contains("ya29"));
    // Without a project nothing is sent.
    file.set_reference(ID, "gemini-cli", Some(1), &AgentAccount::default()).unwrap();
    assert!(
        refused(&machine.settings()).contains("need a project, and none is known. Set GOOGLE_CLOUD_PROJECT")
    );
    assert_eq!(machine.server.requests().len(), 2);
}

#[tokio::test]
async fn project_that_a_person_names_is_asked_about_and_used() {
    let paid = json!({ "currentTier": { "id": "standard-tier" } });
    let machine = machine([says(200, &paid)], FUTURE);
    assert_eq!(account(&machine, Some("mine-1")).await.unwrap().project.as_deref(), Some("mine-1"));
    let sent = machine.server.requests()[0].json();
    assert_eq!(
        (&sent["cloudaicompanionProject"], &sent["metadata"]["duetProject"]),
        (&json!("mine-1"), &json!("mine-1"))
    );
}

#[tokio::test]
async fn account_that_cannot_be_used_is_named_with_the_reason() {
    let elsewhere = FakeServer::start([]);
    let tier = |more: &Value| {
        let mut answer = json!({ "currentTier": { "id": "free-tier" } });
        answer.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        answer
    };
    let page = Reply::new(200, "text/html", "<!doctype html><title>Sign in</title>");
    for (reply, words) in [
        (
            says(200, &json!({ "allowedTiers": [{ "id": "free-tier" }] })),
            "it has not been set up. Start Gemini CLI once",
        ),
        (
            says(
                200,
                &json!({ "ineligibleTiers": [{ "reasonMessage": "Your account is not eligible.\u{1b}[31m" }] }),
            ),
            "cannot be used: Your account is not eligible",
        ),
        (says(200, &tier(&json!({}))), "has no project of its own; set GOOGLE_CLOUD_PROJECT"),
        (
            says(200, &tier(&json!({ "cloudaicompanionProject": "p\",\"x\":\"" }))),
            "is not the id of a project",
        ),
        (
            says(401, &json!({ "error": { "code": 401, "message": "bad ya29.access-token-1" } })),
            "Log in with Gemini CLI again",
        ),
        (says(503, &json!({})), "(HTTP 503)"),
        (page, "it is not JSON but a page"),
        (Reply::new(302, "text/plain", "").header("location", &elsewhere.url()), "(HTTP 302)"),
    ] {
        let machine = machine([reply], FUTURE);
        let error = account(&machine, None).await.unwrap_err().to_string();
        assert!(error.contains(words) && !error.contains("ya29") && !error.contains('\u{1b}'), "{error}");
    }
    assert_eq!(elsewhere.requests().len(), 0);
}

#[tokio::test]
async fn expired_login_of_gemini_cli_is_left_to_its_owner() {
    let machine = machine([], 1);
    let error = account(&machine, None).await.unwrap_err().to_string();
    assert!(error.contains("has expired; use Gemini CLI once"), "{error}");
    let found = AgentAccount { project: Some("p-1".into()) };
    AuthFile::new(&machine.path(".quipu")).set_reference(ID, "gemini-cli", Some(1), &found).unwrap();
    let settings = machine.settings();
    let error = settings.provider_for(&settings.default_of(ID).unwrap(), None).err().unwrap();
    assert!(error.message.contains("use Gemini CLI once"), "{error}");
    assert_eq!((machine.server.requests().len(), machine.text(FILE)), (0, login(1).to_string()));
}
