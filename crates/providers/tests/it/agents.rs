//! Logins that other programs keep on this machine: offered, used where a person asks, renewed only by their owner's
//! rules.

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use quipu_protocol::{Model, ModelErrorKind};
use quipu_providers::{AgentAccount, AuthFile, Settings};
use quipu_testkit::{Answer, FakeServer, Reply, Wire};
use serde_json::{Value, json};

use crate::credentials::World;
use crate::logins::rows;
use crate::wires;

const FUTURE: i64 = 4_102_444_800_000;

/// A home directory in which other programs keep their files, and a server for tokens and models.
pub(crate) struct Machine {
    pub(crate) home: tempfile::TempDir,
    pub(crate) server: FakeServer,
}

fn answer() -> Reply {
    Answer::new().text("x").reply().only_for("messages")
}

fn tokens(number: u32) -> Reply {
    let body = json!({ "access_token": format!("access-token-{number}"),
        "refresh_token": format!("refresh-token-{number}"), "expires_in": 3600 });
    Reply::new(200, "application/json", body.to_string()).only_for("grant_type")
}

impl Machine {
    pub(crate) fn new(replies: impl IntoIterator<Item = Reply>) -> Self {
        let machine = Self { home: tempfile::tempdir().unwrap(), server: FakeServer::start(replies) };
        let url = machine.server.url();
        machine.file(".quipu/logins.json", &serde_json::from_str(&rows(&url)).unwrap());
        let row = json!({ "baseUrl": url, "api": wires::api(Wire::Messages), "models": [{ "id": "m" }] });
        let rows: serde_json::Map<_, _> = ["anthropic", "openai-codex", "github-copilot", "xai"]
            .iter()
            .map(|id| ((*id).to_owned(), row.clone()))
            .collect();
        machine.file(".quipu/models.json", &json!({ "providers": rows }));
        machine
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    pub(crate) fn file(&self, name: &str, content: &Value) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content.to_string()).unwrap();
    }

    pub(crate) fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    pub(crate) fn settings(&self) -> Settings {
        let home = self.home.path().to_str().unwrap().to_owned();
        Settings::load(&self.path(".quipu"), &move |name| (name == "HOME").then(|| home.clone())).0
    }

    fn uses(&self, provider: &str, agent: &str, accepted: Option<i64>) {
        AuthFile::new(&self.path(".quipu"))
            .set_reference(provider, agent, accepted, &AgentAccount::default())
            .unwrap();
    }

    fn world(&self, provider: &str) -> World {
        let settings = self.settings();
        let model = settings.models_of(provider).iter().find(|model| model.id == "m").unwrap();
        World::of(settings.provider_for(model, None).unwrap(), Model::clone(model))
    }

    /// Why a call cannot be made.
    fn refusal(&self, provider: &str) -> String {
        let settings = self.settings();
        let model = settings.models_of(provider).iter().find(|model| model.id == "m").unwrap();
        let error = settings.provider_for(model, None).err().unwrap();
        assert_eq!(error.kind, ModelErrorKind::NoCredential);
        error.message
    }

    /// The tokens of calls, and the paths of other requests.
    fn asked(&self) -> Vec<String> {
        let asked = self.server.requests().into_iter().map(|request| match request.path.as_str() {
            "/v1/messages" => request.header("authorization").unwrap_or_default().replace("Bearer ", ""),
            path => path.to_owned(),
        });
        asked.collect()
    }
}

const CLAUDE: &str = ".claude/.credentials.json";
const PI: &str = ".pi/agent/auth.json";

fn claude(access: &str, expires: i64) -> Value {
    json!({ "claudeAiOauth": { "accessToken": access, "refreshToken": "owners-refresh-token", "expiresAt": expires } })
}

fn pi(number: u32, expires: i64) -> Value {
    json!({ "xai": { "type": "oauth", "access": format!("access-token-{number}"),
        "refresh": format!("refresh-token-{number}"), "expires": expires, "more": [1] },
        "groq": { "type": "api_key", "key": "k" } })
}

#[test]
fn logins_of_other_programs_are_found_and_left_alone() {
    let machine = Machine::new([]);
    assert!(machine.settings().agent_logins().is_empty());
    machine.file(CLAUDE, &claude("access-token-1", FUTURE));
    machine.file(PI, &pi(1, FUTURE));
    machine.file(".codex/auth.json", &json!({ "tokens": { "access_token": "a", "account_id": "b" } }));
    machine.file(".gemini/oauth_creds.json", &json!({ "access_token": "a", "expiry_date": 1 }));
    machine.file(".config/github-copilot/hosts.json", &json!({ "github.com": { "oauth_token": "a" } }));
    let settings = machine.settings();
    let found = settings.agent_logins();
    let found: Vec<_> = found.iter().map(|it| (it.agent.as_str(), it.provider.as_deref())).collect();
    let expect = [
        ("claude-code", Some("anthropic")),
        ("codex", Some("openai-codex")),
        ("copilot", Some("github-copilot")),
        ("gemini-cli", Some("google-gemini-cli")),
        ("pi", Some("xai")),
    ];
    assert_eq!(found, expect);
    // Nobody asked for them.
    for (_, provider) in expect {
        assert_eq!(provider.and_then(|provider| settings.credential_source(provider)), None);
    }
    // Files of a key, and broken ones, are no logins.
    machine.file(".codex/auth.json", &json!({ "OPENAI_API_KEY": "sk-x", "tokens": null }));
    std::fs::write(machine.path(CLAUDE), "{\"claudeAiOauth\": {\"accessTok").unwrap();
    machine.file(PI, &json!([]));
    machine.file(".config/github-copilot/hosts.json", &json!({ "github.com": 7 }));
    assert_eq!(machine.settings().agent_logins().len(), 1);
}

#[tokio::test]
async fn login_of_another_program_is_used_by_reference() {
    let machine = Machine::new([answer(), answer()]);
    machine.file(CLAUDE, &claude("access-token-1", FUTURE));
    machine.uses("anthropic", "claude-code", None);
    assert!(machine.refusal("anthropic").contains("nobody has accepted the restriction"));
    machine.uses("anthropic", "claude-code", Some(1));
    let stored: Value = serde_json::from_str(&machine.text(".quipu/auth.json")).unwrap();
    let expect = json!({ "anthropic": { "type": "reference", "agent": "claude-code", "accepted": 1 } });
    assert_eq!(stored, expect);
    let world = machine.world("anthropic");
    assert_eq!(world.call().await.error, None);
    // Its owner renews it.
    machine.file(CLAUDE, &claude("access-token-2", FUTURE));
    assert_eq!(machine.world("anthropic").call().await.error, None);
    assert_eq!(machine.asked(), ["access-token-1", "access-token-2"]);
    assert_eq!(world.learned(), ["access-token-1"]);
    assert_eq!(machine.text(CLAUDE), claude("access-token-2", FUTURE).to_string());
    assert_eq!(
        machine.settings().credential_source("anthropic").as_deref(),
        Some("the login of claude-code")
    );
}

#[tokio::test]
async fn token_of_another_client_is_sent_in_our_own_name() {
    let machine = Machine::new([answer()]);
    machine.file(CLAUDE, &claude("sk-ant-oat01-token", FUTURE));
    machine.uses("anthropic", "claude-code", Some(1));
    assert_eq!(machine.world("anthropic").call().await.error, None);
    let sent = &machine.server.requests()[0];
    let mut headers: Vec<_> = sent.headers.clone();
    headers.retain(|(name, _)| {
        !["host", "content-length", "accept", "accept-encoding"].contains(&name.as_str())
    });
    headers.sort();
    let ours = concat!("quipu/", env!("CARGO_PKG_VERSION"));
    let expect = [
        ("anthropic-beta", "oauth-2025-04-20"),
        ("anthropic-version", "2023-06-01"),
        ("authorization", "Bearer sk-ant-oat01-token"),
        ("content-type", "application/json"),
        ("user-agent", ours),
    ];
    assert_eq!(headers, expect.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let body = std::str::from_utf8(&sent.body).unwrap();
    assert!(!body.contains("Claude Code") && !body.contains("\"system\""), "{body}");
}

#[tokio::test]
async fn expired_login_of_another_program_is_not_taken_over() {
    let machine = Machine::new([answer()]);
    let before = claude("access-token-1", 1);
    machine.file(CLAUDE, &before);
    machine.uses("anthropic", "claude-code", Some(1));
    let why = machine.refusal("anthropic");
    assert!(why.contains("has expired; use Claude Code once, or log in to anthropic here"), "{why}");
    // The end of this one stands in the token itself.
    let token = format!("h.{}.s", URL_SAFE_NO_PAD.encode(json!({ "exp": 1 }).to_string()));
    machine.file(".codex/auth.json", &json!({ "tokens": { "access_token": token, "refresh_token": "r" } }));
    machine.uses("openai-codex", "codex", None);
    assert!(machine.refusal("openai-codex").contains("use Codex once"));
    assert_eq!((machine.text(CLAUDE), machine.asked().len()), (before.to_string(), 0));
    for (text, expect) in [
        ("{\"claudeAiOauth\": {\"accessToken\": \"tok-in-file", "is not a JSON object"),
        ("{}", "keeps no login"),
    ] {
        std::fs::write(machine.path(CLAUDE), text).unwrap();
        let why = machine.refusal("anthropic");
        assert!(why.contains(expect) && !why.contains("tok-in-file"), "{why}");
    }
    machine.uses("anthropic", "nobody", Some(1));
    assert!(machine.refusal("anthropic").contains("\"nobody\" is unknown"));
}

#[tokio::test]
async fn login_is_renewed_in_the_file_of_its_owner() {
    let machine = Machine::new([tokens(1)]);
    machine.file(PI, &pi(0, 1));
    machine.uses("xai", "pi", None);
    let worlds: Vec<_> = (0..10).map(|_| machine.world("xai")).collect();
    (0..10).for_each(|_| machine.server.push(answer()));
    let ends = futures_util::future::join_all(worlds.iter().map(World::call)).await;
    assert!(ends.iter().all(|end| end.error.is_none()), "{ends:?}");
    let asked = machine.asked();
    assert_eq!(asked.iter().filter(|it| *it == "/auth.x.ai/oauth2/token").count(), 1, "{asked:?}");
    assert_eq!(asked.iter().filter(|it| *it == "access-token-1").count(), 10, "{asked:?}");
    let kept: Value = serde_json::from_str(&machine.text(PI)).unwrap();
    assert_eq!(kept, pi(1, kept["xai"]["expires"].as_i64().unwrap()));
    assert!(!machine.text(".quipu/auth.json").contains("-token-"));
    assert!(!machine.path(".pi/agent/auth.json.lock").exists());
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(machine.path(PI)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

#[tokio::test]
async fn owner_that_renews_its_login_is_waited_for() {
    let machine = Machine::new([answer()]);
    machine.file(PI, &pi(0, 1));
    machine.uses("xai", "pi", None);
    let lock = machine.path(".pi/agent/auth.json.lock");
    std::fs::create_dir(&lock).unwrap();
    let world = machine.world("xai");
    let call = tokio::spawn(async move { world.call().await });
    tokio::task::yield_now().await;
    machine.file(PI, &pi(7, FUTURE));
    std::fs::remove_dir(&lock).unwrap();
    assert_eq!(call.await.unwrap().error, None);
    assert_eq!(machine.asked(), ["access-token-7"]);
}

#[tokio::test]
async fn lock_of_an_owner_that_died_is_taken() {
    let machine = Machine::new([tokens(1), answer()]);
    machine.file(PI, &pi(0, 1));
    machine.uses("xai", "pi", None);
    let lock = machine.path(".pi/agent/auth.json.lock");
    std::fs::create_dir(&lock).unwrap();
    let long_ago = SystemTime::now() - Duration::from_secs(60);
    File::open(&lock).unwrap().set_modified(long_ago).unwrap();
    assert_eq!(machine.world("xai").call().await.error, None);
    assert_eq!(machine.asked(), ["/auth.x.ai/oauth2/token", "access-token-1"]);
    assert!(!lock.exists());
}

#[tokio::test]
async fn refused_renewal_leaves_the_file_of_the_owner() {
    let refused = Reply::new(400, "application/json", json!({ "error": "invalid_grant" }).to_string());
    let machine = Machine::new([refused]);
    machine.file(PI, &pi(0, 1));
    machine.uses("xai", "pi", None);
    let error = machine.world("xai").call().await.error.unwrap();
    assert!(error.message.contains("Log in with Pi again, or log in to xai here."), "{error}");
    assert_eq!(machine.text(PI), pi(0, 1).to_string());
    assert!(!machine.path(".pi/agent/auth.json.lock").exists());
}

#[tokio::test]
async fn login_that_is_exchanged_is_stored_nowhere() {
    let machine = Machine::new([]);
    let host = machine.server.address().to_string();
    let url = machine.server.url();
    let base = json!({ "field": "proxy-ep", "replace": ["proxy.", ""], "hosts": [host], "scheme": "http",
        "fallback": "http://127.0.0.1:1", "domain_fallback": "http://127.0.0.1:1" });
    let row = json!({ "name": "Copilot", "source": "a test", "date": "2026-11-27", "token_url": url,
        "exchange": { "url": format!("{url}/exchange") }, "sent": { "base_url": base } });
    machine.file(".quipu/logins.json", &json!({ "github-copilot": row }));
    let apps = json!({ "other.example:1": { "oauth_token": "login-of-another" },
        "github.com:Iv1.x": { "user": "u", "oauth_token": "login-token-of-test" } });
    machine.file(".config/github-copilot/apps.json", &apps);
    machine.uses("github-copilot", "copilot", None);
    let call_token = format!("tid=1;proxy-ep=proxy.{host};x");
    let body = json!({ "token": call_token, "expires_at": FUTURE / 1000 });
    machine.server.push(Reply::new(200, "application/json", body.to_string()));
    machine.server.push(answer());
    machine.server.push(answer());
    let world = machine.world("github-copilot");
    assert_eq!((world.call().await.error, world.call().await.error), (None, None));
    assert_eq!(machine.asked(), ["/exchange", call_token.as_str(), call_token.as_str()]);
    let exchange = &machine.server.requests()[0];
    assert_eq!(exchange.header("authorization"), Some("Bearer login-token-of-test"));
    assert_eq!(machine.text(".config/github-copilot/apps.json"), apps.to_string());
    assert!(!machine.text(".quipu/auth.json").contains("tid="));
}
