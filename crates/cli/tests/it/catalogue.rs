//! The catalogue of models, taken from a file or a URL.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use serde_json::{Value, json};

use crate::support::*;

const FILE: &str = "home/.quipu/catalogue.json";

fn row(id: &str, base_url: &str) -> Value {
    json!({ "id": id, "name": "New", "api": "anthropic-messages", "baseUrl": base_url, "input": ["text"],
        "cost": { "input": 1.5, "output": 2.5 }, "contextWindow": 300_000, "maxTokens": 9_000 })
}

/// A catalogue with a new model and a changed one of a known provider, and a provider of its own.
fn catalogue() -> Value {
    json!({ "source": { "date": "2030-01-02" }, "providers": {
        "anthropic": [row("claude-next", "https://api.anthropic.com"), row("claude-haiku-4-5", "https://api.anthropic.com")],
        "new-house": [row("house-1", "https://house.example")],
    } })
}

fn listed(world: &World, search: &str) -> Vec<Value> {
    world.run(&["models", "--all", "--json", search]).ok().json_lines()
}

fn find<'a>(rows: &'a [Value], id: &str) -> &'a Value {
    rows.iter().find(|row| row["id"] == id).unwrap_or_else(|| panic!("{id}: {rows:?}"))
}

/// Answers one request with these bytes; gives the address.
fn serve(answer: Vec<u8>) -> (String, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/models.json", listener.local_addr().unwrap());
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 4096];
        assert!(stream.read(&mut request).unwrap() > 0);
        stream.write_all(&answer).ok();
    });
    (url, thread)
}

fn http(status: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nlocation: /b\r\n\r\n{body}").into_bytes()
}

#[test]
fn catalogue_of_a_file_changes_and_adds_models() {
    let world = World::new([]);
    let before = listed(&world, "claude-");
    let built_in = world.run(&["models"]).ok();
    assert!(built_in.err.contains("Built-in catalogue of 20"), "{}", built_in.err);
    std::fs::write(world.path("work/list.json"), catalogue().to_string()).unwrap();
    let ran = world.run(&["models", "--refresh", "list.json", "--json"]).ok();
    let kept: Value = serde_json::from_str(&ran.text()).unwrap();
    assert_eq!((&kept["models"], &kept["ignored"]), (&json!(3), &json!(0)), "{kept}");
    let rows = listed(&world, "claude-");
    assert_eq!(rows.len(), before.len() + 1);
    assert_eq!(find(&rows, "claude-next")["source"], "catalogue.json");
    assert_eq!(find(&rows, "claude-haiku-4-5")["contextWindow"], 300_000);
    assert_eq!(find(&listed(&world, "house"), "house-1")["provider"], "new-house");
    let said = world.run(&["models"]).ok().err;
    assert!(said.contains("Catalogue of 2030-01-02 from /") && said.contains("list.json"), "{said}");
    // Without a value it is taken from the same place again.
    let mut other = catalogue();
    other["source"]["date"] = "2030-02-03".into();
    std::fs::write(world.path("work/list.json"), other.to_string()).unwrap();
    assert!(world.run(&["models", "--refresh"]).ok().text().contains("of 2030-02-03"));
    world.run(&["models", "--built-in"]).ok();
    assert_eq!(listed(&world, "claude-"), before);
    let refused = world.run(&["models", "--refresh"]);
    assert!(
        refused.status.code() == Some(2) && refused.err.contains("name the file or URL"),
        "{}",
        refused.err
    );
}

#[test]
fn catalogue_of_a_server_is_kept_for_later_sessions() {
    let world = World::new([]);
    let (url, thread) = serve(http("200 OK", &catalogue().to_string()));
    let text = world.run(&["models", "--refresh", &url]).ok().text();
    thread.join().unwrap();
    assert!(text.contains("3 models of 2 providers, of 2030-01-02"), "{text}");
    assert_eq!(find(&listed(&world, "house"), "house-1")["available"], false);
}

#[test]
fn a_catalogue_does_not_decide_where_keys_go() {
    let world = World::new([]);
    let mut bad = catalogue();
    let mut with_header = row("claude-header", "https://api.anthropic.com");
    with_header["headers"] = json!({ "x-a": "!touch run", "x-b": "$HOME" });
    let mut negative = row("claude-cheap", "https://api.anthropic.com");
    negative["cost"]["input"] = json!(-1);
    bad["providers"]["anthropic"] = json!([
        row("claude-thief", "https://thief.example"),
        row("claude-variable", "https://{HOME}.example"),
        negative,
        with_header,
        7,
    ]);
    std::fs::write(world.path("work/list.json"), bad.to_string()).unwrap();
    let ran = world.run(&["models", "--refresh", "list.json"]).ok();
    let said = &ran.err;
    for part in [
        "claude-thief is ignored: the key of this provider would go to another server",
        "claude-variable is ignored: its base URL names variables",
        "claude-cheap has a price below 0",
        "anthropic, model 5: ",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(ran.text().contains("2 models of 2 providers"), "{}", ran.text());
    // The same holds for a file that another program wrote into the home.
    std::fs::write(world.path(FILE), bad.to_string()).unwrap();
    let rows = listed(&world, "claude-");
    assert!(rows.iter().all(|row| row["id"] != "claude-thief" && row["id"] != "claude-cheap"), "{rows:?}");
    assert_eq!(find(&rows, "claude-header")["source"], "catalogue.json");
    let kept = std::fs::read_to_string(world.path("home/.quipu/catalogue.json")).unwrap();
    assert!(kept.contains("thief"), "a listing changes no file");
}

#[test]
fn catalogue_that_cannot_be_had_says_why_and_changes_nothing() {
    let world = World::new([]);
    std::fs::write(world.path("work/list.json"), catalogue().to_string()).unwrap();
    world.run(&["models", "--refresh", "list.json"]).ok();
    let kept = std::fs::read_to_string(world.path(FILE)).unwrap();
    let refused = |from: &str, why: &str| {
        let ran = world.run(&["models", "--refresh", from]);
        assert!(!ran.status.success() && ran.err.contains(why), "{from}: {}", ran.err);
        assert_eq!(std::fs::read_to_string(world.path(FILE)).unwrap(), kept, "{from}");
    };
    for (name, text, why) in [
        ("empty.json", "", "is not a catalogue of models"),
        ("page.json", "<html>", "is not a catalogue of models"),
        ("list.json.old", "[{},{}]", "is not a catalogue of models: it does not begin with a JSON object"),
        ("other.json", "{\"providers\":{\"anthropic\":[]}}", "it has no model that can be used"),
        (
            "date.json",
            "{\"source\":{\"date\":\"soon\"},\"providers\":{}}",
            "its date is soon, not YYYY-MM-DD",
        ),
    ] {
        std::fs::write(world.path(&format!("work/{name}")), text).unwrap();
        refused(name, why);
    }
    refused("nowhere.json", "there is no such file");
    refused("http://models.example/list.json", "use an address that begins with https://");
    let with_password = "https://me:secret@models.example/list.json";
    refused(with_password, "https://models.example/list.json cannot be used");
    let ran = world.run(&["models", "--refresh", with_password]);
    assert!(ran.err.contains("may not contain a user name or a password"), "{}", ran.err);
    assert!(!ran.err.contains("secret"), "{}", ran.err);
    refused(
        "ftp://models.example/list.json",
        "begins with https://, or with http:// on this machine, not with ftp://",
    );
    for (answer, why) in [
        (http("404 Not Found", "no"), "the server answered 404"),
        (http("302 Found", ""), "it redirects to /b; use that address"),
        (http("200 OK", "[]"), "is not a catalogue of models"),
    ] {
        let (url, thread) = serve(answer);
        refused(&url, why);
        thread.join().unwrap();
    }
    // A file in the home that is broken leaves the built-in models, and says so.
    std::fs::write(world.path(FILE), "{").unwrap();
    let ran = world.run(&["models", "--all"]).ok();
    assert!(
        ran.err.contains("only the built-in models are known") && ran.text().contains("claude-haiku-4-5"),
        "{}",
        ran.err
    );
}
