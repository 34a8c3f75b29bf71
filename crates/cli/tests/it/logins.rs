//! Logins as a person makes them: `quipu auth login`, in real processes, with a server that plays the provider.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;

use nix::sys::signal::Signal;
use quipu_testkit::{Answer, FakeServer, Gate, Reply};
use serde_json::{Value, json};

use crate::support::{RunningCommand, World, mode};

const AUTH: &str = "home/.quipu/auth.json";

/// A world whose provider has logins at `server`.
fn world(server: &FakeServer, replies: impl IntoIterator<Item = Reply>, more: &Value) -> World {
    let world = World::new(replies);
    let url = server.url();
    let mut row = json!({
        "name": "Test Plan", "source": "a test", "date": "2026-11-27", "client_id": "client-1",
        "token_url": format!("{url}/token"),
        "browser": { "url": format!("{url}/authorize"), "redirect": "http://localhost:0/callback" },
        "device": { "code_url": format!("{url}/device") },
    });
    row.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let rows = json!({ "testing": row }).to_string();
    std::fs::write(world.path("home/.quipu/logins.json"), rows).unwrap();
    world
}

fn reply(status: u16, body: &Value) -> Reply {
    Reply::new(status, "application/json", body.to_string())
}

fn tokens() -> Value {
    json!({ "access_token": "access-token-1", "refresh_token": "refresh-token-1", "expires_in": 36_000 })
}

fn stored(world: &World) -> Value {
    serde_json::from_str(&std::fs::read_to_string(world.path(AUTH)).unwrap()).unwrap()
}

/// The command with a stdin that stays open.
fn start(world: &World, args: &[&str]) -> RunningCommand {
    let mut command = world.quipu(args);
    command.stdin(Stdio::piped());
    RunningCommand::start(command)
}

/// What the browser gets that opens `url`, logs in and returns with this.
pub(crate) fn browser(url: &str, result: &str) -> String {
    let value = |name: &str| {
        let (_, rest) = url.split_once(&format!("{name}=")).unwrap();
        rest.split('&').next().unwrap().replace("%3A", ":").replace("%2F", "/")
    };
    let (back, state) = (value("redirect_uri"), value("state"));
    let (host, path) = back.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(host.replace("localhost", "127.0.0.1")).unwrap();
    write!(stream, "GET /{path}?{result}&state={state} HTTP/1.1\r\nhost: {host}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn ten_processes_renew_a_login_once() {
    let gate = Gate::new();
    let late = Reply::new(200, "application/json", "").then_gate(&gate).then(tokens().to_string());
    let server = FakeServer::start([late]);
    let answers = (0..10).map(|number| Answer::new().text(&format!("answer {number}")).reply());
    let world = world(&server, answers, &json!({}));
    let entry = json!({ "testing": { "type": "oauth", "access": "access-token-0", "refresh": "refresh-token-0",
        "expires": 1, "accountId": "account-7" } });
    std::fs::write(world.path(AUTH), entry.to_string()).unwrap();
    let started: Vec<_> = (0..10).map(|_| world.start(&["-p", "Hi"])).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // One has asked; the others find its lock, or what it stored.
    runtime.block_on(server.wait_for_requests(1));
    gate.open();
    for running in started {
        running.wait().ok();
    }
    assert_eq!(server.requests().len(), 1);
    let body = server.requests()[0].body.clone();
    assert!(body.ends_with(b"refresh_token=refresh-token-0"));
    let calls = world.requests();
    assert_eq!(calls.len(), 10);
    assert!(calls.iter().all(|call| call.header("authorization") == Some("Bearer access-token-1")));
    let kept = &stored(&world)["testing"];
    assert_eq!((&kept["refresh"], &kept["accountId"]), (&json!("refresh-token-1"), &json!("account-7")));
}

#[test]
fn browser_login_is_stored_for_the_user_alone() {
    let server = FakeServer::start([reply(200, &tokens())]);
    let world = world(&server, [Answer::new().text("hello").reply()], &json!({}));
    let mut running = start(&world, &["auth", "login", "testing"]);
    let url = running.line_with("/authorize?");
    running.says("paste its last address here");
    assert!(browser(&url, "code=code-of-test").starts_with("HTTP/1.1 200"));
    let ran = running.wait().ok();
    assert!(ran.err.contains("You are logged in to testing (Test Plan)."), "{}", ran.err);
    assert!(!ran.err.contains("-token-1") && ran.out.is_empty());
    assert_eq!(mode(&world.path(AUTH)), 0o600);
    world.run(&["-p", "Hi"]).ok();
    assert_eq!(world.requests()[0].header("authorization"), Some("Bearer access-token-1"));

    let listed = world.run(&["auth"]).ok();
    let line = "testing  from auth.json: a login, its token expires in 9 h and is renewed by itself";
    assert!(listed.text().contains(line), "{}", listed.text());
    assert!(listed.err.contains("quipu auth login PROVIDER"), "{}", listed.err);
    let listed = world.run(&["auth", "--json"]).ok().json_lines();
    let listed = listed.iter().find(|line| line["provider"] == "testing").unwrap();
    assert_eq!(listed["login"]["renewable"], true);
    assert!(world.run(&["auth", "remove", "testing"]).ok().err.contains("Removed."));
    assert_eq!(stored(&world), json!({}));
}

#[test]
fn login_without_a_browser_takes_a_pasted_code() {
    let server = FakeServer::start([reply(200, &tokens())]);
    let world = world(&server, [], &json!({}));
    world.run_with(&["auth", "login", "testing", "--no-browser"], "code-of-test\n").ok();
    assert_eq!(stored(&world)["testing"]["access"], "access-token-1");
    let other = world.run_with(&["auth", "login", "testing", "--no-browser"], "code#of-another\n");
    other.fails(2, &["belongs to another login", "nothing is stored"]);
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn device_login_shows_its_code() {
    let code = json!({ "device_code": "device-1", "user_code": "ABCD-1234", "interval": 1, "expires_in": 900,
        "verification_uri": format!("https://{}/activate", "example.com") });
    let denied = json!({ "error": "access_denied" });
    let server =
        FakeServer::start([reply(200, &code), reply(200, &tokens()), reply(200, &code), reply(400, &denied)]);
    let world = world(&server, [], &json!({}));
    let ran = world.run(&["auth", "login", "testing", "--device"]).ok();
    assert!(ran.err.contains("https://example.com/activate") && ran.err.contains("ABCD-1234"), "{}", ran.err);
    assert!(world.run(&["auth", "remove", "testing"]).ok().err.contains("Removed."));
    let ran = world.run(&["auth", "login", "testing", "--device"]);
    ran.fails(3, &["the login was denied: access_denied", "nothing is stored"]);
    assert_eq!(stored(&world), json!({}));
}

#[test]
fn interrupted_login_stores_nothing() {
    let server = FakeServer::start([]);
    let world = world(&server, [], &json!({}));
    let mut running = start(&world, &["auth", "login", "testing"]);
    let url = running.line_with("/authorize?");
    running.says("Ctrl-C ends it");
    running.signal(Signal::SIGINT);
    running.wait().fails(130, &["the login was stopped"]);
    assert!(!world.path(AUTH).exists());
    let port = url.split("localhost%3A").nth(1).unwrap().split("%2F").next().unwrap();
    assert!(TcpStream::connect(format!("127.0.0.1:{port}")).is_err());
}

#[test]
fn denied_browser_login_has_its_exit_code() {
    let server = FakeServer::start([]);
    let world = world(&server, [], &json!({}));
    let mut running = start(&world, &["auth", "login", "testing"]);
    let url = running.line_with("/authorize?");
    browser(&url, "error=access_denied&error_description=Not%20today");
    running.wait().fails(3, &["the login was denied: Not today"]);
    assert!(!world.path(AUTH).exists());
}

#[test]
fn restricted_login_is_made_only_after_a_person_accepts() {
    let server = FakeServer::start([reply(200, &tokens())]);
    let words = "Test allows this plan in its own program only.";
    let world = world(&server, [], &json!({ "restriction": words }));
    let login = ["auth", "login", "testing", "--no-browser"];
    let ran = world.run_with(&login, "code-of-test\n");
    assert!(ran.err.starts_with(words), "{}", ran.err);
    ran.fails(2, &["only after you confirm: add --yes"]);
    assert_eq!(server.requests().len(), 0);
    let ran = world.run_with(&[&login[..], &["--yes"]].concat(), "code-of-test\n").ok();
    assert!(ran.err.starts_with(words), "{}", ran.err);
    assert!(stored(&world)["testing"]["accepted"].is_number());
}

#[test]
fn login_that_does_not_exist_names_those_that_do() {
    let server = FakeServer::start([]);
    let world = world(&server, [], &json!({}));
    let ran = world.run(&["auth", "login", "testin"]);
    ran.fails(2, &["testin has no login. Did you mean testing?", "github-copilot", "xai"]);
    let ran = world.run(&["auth", "login", "openrouter", "--device"]);
    ran.fails(2, &["OpenRouter has no login by device code"]);
    // A file of the project has no say in where a login goes.
    world.file("logins.json", json!({ "openrouter": { "name": "Planted" } }).to_string());
    std::fs::create_dir(world.path("work/.quipu")).unwrap();
    world.file(".quipu/logins.json", json!({ "openrouter": { "name": "Planted" } }).to_string());
    world.run(&["auth", "login", "openrouter", "--device"]).fails(2, &["OpenRouter has no login"]);
}

#[test]
fn login_of_another_program_is_offered_and_used_when_asked() {
    let server = FakeServer::start([]);
    let words = "Test allows this plan in its own program only.";
    let world = world(&server, [], &json!({ "restriction": words }));
    // The built-in row of this provider with a server of the test.
    let rows = std::fs::read_to_string(world.path("home/.quipu/logins.json")).unwrap();
    std::fs::write(world.path("home/.quipu/logins.json"), rows.replace("\"testing\":", "\"anthropic\":"))
        .unwrap();
    let file = world.path("home/.claude/.credentials.json");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let content =
        json!({ "claudeAiOauth": { "accessToken": "access-token-7", "expiresAt": 4_102_444_800_000_u64 } });
    std::fs::write(&file, content.to_string()).unwrap();

    let listed = world.run(&["auth"]).ok();
    assert!(listed.err.contains("for anthropic. Use it: quipu auth use claude-code"), "{}", listed.err);
    assert!(!world.path(AUTH).exists());
    world.run(&["auth", "use", "codex"]).fails(2, &["codex keeps no login", "these do: claude-code"]);
    world.run(&["auth", "use", "claude-code"]).fails(2, &["only after you confirm: add --yes"]);
    assert!(!world.path(AUTH).exists());
    let ran = world.run(&["auth", "use", "claude-code", "--yes"]).ok();
    assert!(ran.err.starts_with(words) && ran.err.contains("Nothing was copied"), "{}", ran.err);
    assert_eq!(stored(&world)["anthropic"]["agent"], "claude-code");
    assert!(!std::fs::read_to_string(world.path(AUTH)).unwrap().contains("access-token-7"));
    let listed = world.run(&["auth"]).ok();
    let line = "anthropic  from the login of claude-code: a login that stays with claude-code";
    assert!(listed.text().contains(line), "{}", listed.text());
    world.run(&["auth", "remove", "anthropic"]).ok();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), content.to_string());
    assert_eq!(server.requests().len(), 0);
}

#[test]
fn login_with_a_project_is_used_after_a_person_accepts() {
    let account = json!({ "currentTier": { "id": "free-tier" }, "cloudaicompanionProject": "project-7" });
    let answer = json!({ "response": { "candidates": [{ "content": { "role": "model", "parts": [{ "text": "hello" }] },
        "finishReason": "STOP" }], "usageMetadata": { "promptTokenCount": 5, "candidatesTokenCount": 2 } } });
    let world = World::new([reply(200, &account), Reply::sse(format!("data: {answer}\n\n"))]);
    let file = world.path("home/.gemini/oauth_creds.json");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let login = |expires: u64| {
        json!({ "access_token": "ya29.access-token-7", "refresh_token": "1//refresh-token-7",
        "expiry_date": expires })
    };
    std::fs::write(&file, login(4_102_444_800_000).to_string()).unwrap();
    let model = "google-gemini-cli/gemini-2.5-pro";
    let listed = world.run(&["auth"]).ok();
    let offer = "for google-gemini-cli. Use it: quipu auth use gemini-cli";
    assert!(listed.err.contains(offer), "{}", listed.err);
    let words = ["is called with the login that Gemini CLI keeps", "with `quipu auth use gemini-cli`"];
    world.run(&["-p", "--model", model, "Hi"]).fails(3, &words);
    let models = json!({ "providers": { "google-gemini-cli": { "baseUrl": world.server.url() } } });
    std::fs::write(world.path("home/.quipu/models.json"), models.to_string()).unwrap();
    let words = "Google allows the login of Gemini CLI in its own programs only";
    let ran = world.run(&["auth", "use", "gemini-cli"]);
    assert!(ran.err.starts_with(words), "{}", ran.err);
    ran.fails(2, &["only after you confirm: add --yes"]);
    assert_eq!(world.requests().len(), 0);
    let ran = world.run(&["auth", "use", "gemini-cli", "--yes"]).ok();
    assert!(ran.err.starts_with(words) && ran.err.contains("Nothing was copied"), "{}", ran.err);
    assert_eq!(stored(&world)["google-gemini-cli"]["project"], "project-7");
    assert_eq!(world.run(&["-p", "--model", model, "Hi"]).ok().text(), "hello\n");
    let call = &world.requests()[1].json();
    assert_eq!((&call["project"], &call["model"]), (&json!("project-7"), &json!("gemini-2.5-pro")));
    let answer = world.nodes().into_iter().find(|node| !node["step"]["call"].is_null()).unwrap();
    let kept = world.run(&["show", answer["id"].as_str().unwrap(), "--request"]).ok().out;
    assert_eq!(kept, world.requests()[1].body);
    world.unchecked();
    // Its owner alone renews it.
    std::fs::write(&file, login(1).to_string()).unwrap();
    world.run(&["-p", "--model", model, "Hi"]).fails(3, &["has expired; use Gemini CLI once"]);
    world
        .run(&["auth", "use", "gemini-cli", "--yes"])
        .fails(3, &["use Gemini CLI once", "nothing is stored"]);
    assert_eq!((world.requests().len(), std::fs::read_to_string(&file).unwrap()), (2, login(1).to_string()));
}

#[test]
fn login_that_no_provider_takes_asks_for_one_of_ours() {
    let world = World::new([]);
    let file = world.path("home/.copilot/config.json");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let content =
        json!({ "authTokens": { "https://github.com:octo": { "token": "gho_token-of-copilot-cli" } } });
    std::fs::write(&file, format!("// Its owner writes comments.\n{content}")).unwrap();
    let why = "its token belongs to the application of that program, and GitHub gives no token of calls for it; log in to \
        github-copilot here";
    let listed = world.run(&["auth"]).ok();
    let line = format!("Copilot CLI keeps a login in {}, which cannot be used: {why}", file.display());
    assert!(listed.err.contains(&line), "{}", listed.err);
    assert!(listed.err.contains("With a login: anthropic, github-copilot"), "{}", listed.err);
    world.run(&["auth", "use", "copilot-cli"]).fails(2, &["cannot be used", why]);
    assert!(!world.path(AUTH).exists() && world.requests().is_empty());
    assert!(!listed.err.contains("gho_"));
}

#[test]
fn files_of_a_project_send_no_credential_elsewhere() {
    let elsewhere = FakeServer::start([]);
    let server = FakeServer::start([reply(200, &tokens())]);
    let world = world(&server, (0..2).map(|_| Answer::new().text("hello").reply()), &json!({}));
    let entry = json!({ "testing": { "type": "oauth", "access": "access-token-0", "refresh": "refresh-token-0",
        "expires": 1 } });
    std::fs::write(world.path(AUTH), entry.to_string()).unwrap();
    let url = elsewhere.url();
    let models = json!({ "providers": {
        "testing": { "baseUrl": url, "api": "anthropic-messages", "apiKey": "!touch ran",
            "models": [{ "id": "test-1", "baseUrl": url }] },
        "anthropic": { "baseUrl": url },
    } });
    let logins = json!({ "testing": { "name": "Planted", "source": "x", "date": "2026-11-27", "client_id": "c",
        "token_url": format!("{url}/token") } });
    let settings =
        json!({ "localServers": { "ollama": format!("{url}/v1") }, "baseUrl": url, "httpProxy": url });
    let auth = json!({ "testing": { "type": "api_key", "key": "!touch ran" } });
    std::fs::create_dir(world.path("work/.quipu")).unwrap();
    for (name, content) in
        [("models", &models), ("logins", &logins), ("settings", &settings), ("auth", &auth)]
    {
        world.file(&format!("{name}.json"), content.to_string());
        world.file(&format!(".quipu/{name}.json"), content.to_string());
    }
    world.file(".env", format!("ANTHROPIC_BASE_URL={url}\nHTTP_PROXY={url}\nHTTPS_PROXY={url}\n"));
    let ran = world.run(&["-p", "Hi"]).ok();
    assert!(
        ran.err.contains("the settings of this project are ignored until you accept them"),
        "{}",
        ran.err
    );
    assert_eq!(world.requests()[0].header("authorization"), Some("Bearer access-token-1"));
    // Nor when a person has accepted them: none of these is a setting of a project.
    let accepted = world.run(&["config", "trust"]);
    world.run(&["-p", "Hi"]).ok();
    assert_eq!((world.requests().len(), server.requests().len()), (2, 1), "{}", accepted.err);
    assert_eq!(elsewhere.requests().len(), 0);
    assert!(!world.path("work/ran").exists() && !world.path("home/.quipu/ran").exists());
}
