//! `/login` for a provider with a login: the account is logged in to from the terminal, with a server that plays the
//! provider.

use quipu_testkit::{FakeServer, Reply};
use serde_json::{Value, json};

use crate::pty::{CTRL_D, ENTER, ESCAPE, Terminal};
use crate::support::{World, mode};

const AUTH: &str = "home/.quipu/auth.json";
/// An address stands on one line.
const WIDTH: u16 = 600;

fn world(server: &FakeServer, restriction: Option<&str>) -> World {
    let world = World::new([]);
    let url = server.url();
    let row = json!({
        "name": "Test Plan", "source": "a test", "date": "2026-11-27", "client_id": "client-1",
        "restriction": restriction,
        "token_url": format!("{url}/token"),
        "browser": { "url": format!("{url}/authorize"), "redirect": "http://localhost:0/callback" },
        "device": { "code_url": format!("{url}/device") },
    });
    std::fs::write(world.path("home/.quipu/logins.json"), json!({ "testing": row }).to_string()).unwrap();
    world
}

fn reply(status: u16, body: &Value) -> Reply {
    Reply::new(status, "application/json", body.to_string())
}

fn tokens() -> Reply {
    let body =
        json!({ "access_token": "access-token-1", "refresh_token": "refresh-token-1", "expires_in": 36_000 });
    reply(200, &body)
}

fn device_code() -> Reply {
    let body = json!({ "device_code": "device-1", "user_code": "ABCD-1234", "interval": 1, "expires_in": 900,
        "verification_uri": "https://example.com/activate" });
    reply(200, &body)
}

fn open(world: &World) -> Terminal {
    let mut terminal = Terminal::sized(world, &[], WIDTH, 40);
    terminal.shows("test-1");
    terminal.types("/login testing\r");
    terminal.shows("A credential for testing");
    terminal
}

fn leave(mut terminal: Terminal) {
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
}

fn stored(world: &World) -> Value {
    serde_json::from_str(&std::fs::read_to_string(world.path(AUTH)).unwrap()).unwrap()
}

/// What the browser gets that returns from the page that is shown.
fn browser(terminal: &Terminal, result: &str) -> String {
    let seen = terminal.seen();
    let url = seen.split_whitespace().rfind(|word| word.contains("/authorize?")).unwrap();
    crate::logins::browser(url, result)
}

#[test]
fn terminal_login_in_a_browser_is_stored() {
    let server = FakeServer::start([tokens()]);
    let world = world(&server, None);
    let mut terminal = open(&world);
    terminal.types(ENTER);
    terminal.shows("Open this page:");
    terminal.shows("paste its last address here");
    assert!(browser(&terminal, "code=code-of-test").starts_with("HTTP/1.1 200"));
    terminal.shows("You are logged in to testing (Test Plan).");
    terminal.shows("/model testing lists its models.");
    terminal.hides("paste its last address here");
    leave(terminal);
    assert_eq!(
        (&stored(&world)["testing"]["access"], mode(&world.path(AUTH))),
        (&json!("access-token-1"), 0o600)
    );
}

#[test]
fn terminal_login_takes_a_pasted_code_after_consent() {
    let server = FakeServer::start([tokens()]);
    let words = "Test allows this plan in its own program only.";
    let world = world(&server, Some(words));
    let mut terminal = open(&world);
    terminal.types(ENTER);
    terminal.shows(words);
    terminal.shows("Use Test Plan all the same?");
    // No is what Enter takes.
    terminal.types(ENTER);
    terminal.hides("Use Test Plan all the same?");
    terminal.types("/login testing\r");
    terminal.shows("A credential for testing");
    terminal.types(ENTER);
    terminal.shows("Use Test Plan all the same?");
    assert_eq!(server.requests().len(), 0);
    terminal.types("yes\r");
    terminal.shows("paste its last address here");
    terminal.types("code-of-test\r");
    terminal.shows("You are logged in to testing (Test Plan).");
    leave(terminal);
    assert!(stored(&world)["testing"]["accepted"].is_number());
}

#[test]
fn terminal_login_by_device_code_is_left_by_escape() {
    let pending = || reply(400, &json!({ "error": "authorization_pending" }));
    let server = FakeServer::start([device_code(), pending(), pending(), pending(), pending(), pending()]);
    let world = world(&server, None);
    let mut terminal = open(&world);
    terminal.types("another device\r");
    terminal.shows("https://example.com/activate");
    terminal.shows("Enter the code ABCD-1234 there.");
    terminal.shows("waiting for the login to testing");
    terminal.types(ESCAPE);
    terminal.shows("The login was stopped; nothing is stored.");
    terminal.hides("waiting for the login");
    leave(terminal);
    assert!(!world.path(AUTH).exists());
}

#[test]
fn terminal_login_in_a_browser_is_left_by_escape() {
    let server = FakeServer::start([]);
    let world = world(&server, None);
    let mut terminal = open(&world);
    terminal.types(ENTER);
    terminal.shows("paste its last address here");
    terminal.types(ESCAPE);
    terminal.shows("The login was stopped; nothing is stored.");
    terminal.hides("paste its last address here");
    leave(terminal);
    assert!(!world.path(AUTH).exists());
}

#[test]
fn terminal_login_that_is_denied_says_so() {
    let server = FakeServer::start([device_code(), reply(400, &json!({ "error": "access_denied" }))]);
    let world = world(&server, None);
    let mut terminal = open(&world);
    terminal.types("another device\r");
    terminal.shows("the login was denied: access_denied; nothing is stored");
    leave(terminal);
    assert!(!world.path(AUTH).exists());
}

#[test]
fn missing_credential_names_the_login_of_its_provider() {
    let world = World::new([]);
    let ran = world.run(&["-p", "--provider", "openai-codex", "Hi"]);
    ran.fails(3, &["log in with `quipu auth login openai-codex`"]);
    let ran = world.run(&["-p", "--provider", "github-copilot", "Hi"]);
    let words = ["`quipu auth set github-copilot`", "or log in with `quipu auth login github-copilot`"];
    ran.fails(3, &words);
    world.run(&["-p", "--provider", "groq", "Hi"]).fails(3, &["set a key with `quipu auth set groq`"]);
}
