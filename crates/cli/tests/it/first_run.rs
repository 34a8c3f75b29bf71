//! The terminal before there is a model: what is said, servers on this machine, keys.

use std::net::TcpListener;

use quipu_testkit::{Answer, FakeServer, Reply};
use serde_json::json;

use crate::pty::{CTRL_D, ESCAPE, Terminal};
use crate::support::{KEY, World, mode};

/// A world in which no model can be used, and no server is looked for but these.
pub(crate) fn world(replies: impl IntoIterator<Item = Reply>, servers: &serde_json::Value) -> World {
    let world = World::new(replies);
    std::fs::remove_file(world.path("home/.quipu/models.json")).unwrap();
    let mut all = json!({ "ollama": null, "llama.cpp": null, "lmstudio": null, "vllm": null, "sglang": null,
        "jan": null, "koboldcpp": null, "docker": null });
    all.as_object_mut().unwrap().extend(servers.as_object().unwrap().clone());
    let settings = json!({ "localServers": all });
    std::fs::write(world.path("home/.quipu/settings.json"), settings.to_string()).unwrap();
    world
}

/// A provider that has no key yet.
pub(crate) fn keyless(world: &World, url: &str) {
    let own = json!({ "id": "test-1", "api": "anthropic-messages", "contextWindow": 200_000 });
    let file = json!({ "providers": { "keyless": {
        "baseUrl": url, "apiKey": "$NO_SUCH_KEY_IS_SET", "api": "anthropic-messages", "models": [own] } } });
    std::fs::write(world.path("home/.quipu/models.json"), file.to_string()).unwrap();
}

fn refused() -> Reply {
    let body = json!({ "type": "error", "error": { "type": "authentication_error", "message": "invalid x-api-key" } });
    Reply::new(401, "application/json", body.to_string())
}

/// Leaves, and looks at what was shown on the way.
#[track_caller]
fn leave(terminal: &mut Terminal) {
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    assert!(!String::from_utf8_lossy(&terminal.bytes).contains(KEY), "the key was shown");
}

#[test]
fn first_run_without_a_key_lists_commands_to_type() {
    let world = world([], &json!({}));
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("You cannot use a model yet");
    for words in ["/login", "/demo", "/import", "/search WORDS", "/quit"] {
        terminal.shows(words);
    }
    // The list is left; the words are still there, and what is said waits.
    terminal.types(ESCAPE);
    terminal.hides("What now?");
    terminal.shows("/help lists all");
    terminal.types("hello\r");
    terminal.shows("waits: hello");
    terminal.shows("no model yet");
    terminal.types(ESCAPE);
    terminal.hides("waits: hello");
    terminal.types("\u{3}/lgin x\r");
    terminal.shows("There is no /lgin. /login?");
    terminal.types("\u{3}/demo\r");
    terminal.shows("The demo runs");
    terminal.until("the demo", |shown| shown.contains("quipu show") || shown.contains("session "));
    terminal.hides("The demo runs");
    leave(&mut terminal);
}

#[test]
fn a_key_is_taken_checked_and_kept_for_the_user_alone() {
    let world = world([Answer::new().text("yes").reply(), Answer::new().text("Here.").reply()], &json!({}));
    keyless(&world, &world.server.url());
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("What now?");
    terminal.types(ESCAPE);
    terminal.shows("/help lists all");
    // What is said before there is a model is said when there is one.
    terminal.types("hello\r");
    terminal.shows("waits: hello");
    terminal.types("/login keyless\r");
    terminal.shows("API key for keyless");
    terminal.types(&format!("{KEY}\r"));
    terminal.shows("It works.");
    terminal.shows("Here.");
    terminal.shows("test-1");
    leave(&mut terminal);
    assert_eq!(mode(&world.path("home/.quipu/auth.json")), 0o600);
    assert_eq!(world.requests().len(), 2);
    world.unchecked();
}

#[test]
fn a_wrong_key_is_told_and_not_kept() {
    let world = world([refused(), Answer::new().text("yes").reply()], &json!({}));
    keyless(&world, &world.server.url());
    let mut terminal = Terminal::open(&world, &["--model", "keyless/test-1"]);
    terminal.shows("What now?");
    terminal.types("add a key\r");
    terminal.shows("A key for");
    terminal.types("keyless\r");
    terminal.shows("API key for keyless");
    terminal.types("not-the-key\r");
    terminal.shows("keyless rejects the key");
    terminal.shows("invalid x-api-key");
    assert!(!world.path("home/.quipu/auth.json").exists());
    // It is asked for again, at once.
    terminal.shows("API key for keyless");
    terminal.types(&format!("{KEY}\r"));
    terminal.shows("It works.");
    terminal.shows("test-1 ·");
    leave(&mut terminal);
    let kept = std::fs::read_to_string(world.path("home/.quipu/auth.json")).unwrap();
    assert!(kept.contains(KEY) && !kept.contains("not-the-key"), "{kept}");
    assert_eq!(world.requests().len(), 2, "a refusal is not asked for again");
    world.unchecked();
}

#[test]
fn without_the_network_the_key_may_be_kept_all_the_same() {
    let world = world([], &json!({}));
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    keyless(&world, &format!("http://{nobody}"));
    let mut terminal = Terminal::sized(&world, &[], 100, 60);
    terminal.shows("What now?");
    for answer in ["not save\r", "again\r", "key anyway\r"] {
        if answer != "key anyway\r" {
            terminal.types("add a key\r");
            terminal.shows("A key for");
            terminal.types("keyless\r");
            terminal.shows("API key for keyless");
            terminal.types(&format!("{KEY}\r"));
        }
        terminal.shows("Save the key anyway");
        terminal.shows("could not be reached");
        assert!(!world.path("home/.quipu/auth.json").exists());
        terminal.types(answer);
        match answer {
            "not save\r" => terminal.shows("What now?"),
            "again\r" => {
                terminal.until("the second answer", |shown| shown.matches("could not be tested").count() > 2);
            }
            _ => terminal.shows("The key was not tested."),
        }
    }
    terminal.shows("test-1 ·");
    leave(&mut terminal);
    assert_eq!(mode(&world.path("home/.quipu/auth.json")), 0o600);
}

#[test]
fn first_run_offers_local_servers_without_waiting() {
    let list = json!({ "object": "list", "data": [{ "id": "small:1b" }, { "id": "large:70b" }] }).to_string();
    let list = || Reply::new(200, "application/json", list.clone());
    let server = FakeServer::start([list(), list()]);
    // Takes connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = (format!("http://{}/v1", silent.local_addr().unwrap()), silent);
    let world = world([], &json!({ "mine": format!("{}/v1", server.url()), "mute": silent.0 }));
    let mut terminal = Terminal::open(&world, &[]);
    terminal.until("the list, before all servers were looked for", |shown| shown.contains("What now?"));
    assert!(!String::from_utf8_lossy(&terminal.bytes).contains("small:1b"), "it waited for the servers");
    terminal.shows("Use small:1b of mine");
    terminal.shows("Use large:70b of mine");
    terminal.types("small\r");
    terminal.shows("small:1b ·");
    leave(&mut terminal);
}

#[test]
fn first_run_lists_searched_model_servers() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let world = world([], &json!({ "mine": format!("http://{nobody}/v1") }));
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows(&format!("No model server is running on this machine; checked mine ({})", nobody.port()));
    leave_list(&mut terminal);
}

#[test]
fn faulty_settings_are_reported_and_the_rest_applies() {
    let world = World::says("Here.");
    let home = world.path("home/.quipu");
    std::fs::create_dir(home.join("themes")).unwrap();
    std::fs::write(home.join("themes/mine.json"), "{\"roles\":{\n\"link\": \"bleu\",\n\"code\": \"red\"}}")
        .unwrap();
    std::fs::write(home.join("settings.json"), "{\"theme\": \"mine\", \"localServers\": 7}").unwrap();
    std::fs::write(
        home.join("keybindings.json"),
        "{\n\"app.exit\": \"crtl+q\",\n\"app.help\": [\"f2\"],\n\"cursorUp\": \"up\"}",
    )
    .unwrap();
    let mut terminal = Terminal::open(&world, &[]);
    for told in [
        "themes/mine.json:2: `bleu` is not a colour",
        "keybindings.json:2: \"app.exit\" cannot have the key",
        "\"app.exit\" would have no key, so",
        "keybindings.json:4: there is no action \"cursorUp\"",
        "localServers must be an object of URLs",
    ] {
        terminal.shows(told);
    }
    terminal.until("each once", |shown| shown.matches("localServers must be").count() == 1);
    // What is right in them holds.
    terminal.types("\u{1b}OQ");
    terminal.shows("Commands and keys");
    terminal.types("this help");
    terminal.shows("F2  This help");
    terminal.types("\u{1b}");
    terminal.hides("Commands and keys");
    terminal.types("hello\r");
    terminal.shows("Here.");
    leave(&mut terminal);
    assert_eq!(world.sessions().len(), 1, "it was opened once");
}

/// Leaves by the list itself.
fn leave_list(terminal: &mut Terminal) {
    terminal.types("leave\r");
    assert_eq!(terminal.ends(), Some(0));
}
