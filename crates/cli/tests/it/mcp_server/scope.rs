//! What a client may see.

use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use quipu_testkit::Answer;
use serde_json::{Value, json};

use super::client::{Client, OLD, text};
use crate::support::*;

/// A session in `work/a` and one in `work/b`.
fn projects() -> World {
    let world = World::new([
        Answer::new().text("Alder knots.").reply(),
        call("c1", "write", &json!({ "path": "b.md", "content": "birch\n" })),
        Answer::new().text("Birch knots.").reply(),
    ]);
    for dir in ["a", "b"] {
        std::fs::create_dir(world.path("work").join(dir)).unwrap();
        let mut command = world.quipu(&["-p", dir, "--permissions", "full"]);
        command.current_dir(world.path("work").join(dir));
        assert!(command.output().unwrap().status.success());
    }
    world
}

fn with_roots(world: &World, roots: &[String]) -> Client {
    let mut client = Client::start(world, &["mcp", "serve"]);
    client.roots = Some(roots.iter().map(|uri| json!({ "uri": uri })).collect());
    client.initialize(OLD, &json!({ "roots": { "listChanged": true } }));
    client
}

fn root(world: &World, name: &str) -> String {
    format!("file://{}", world.path("work").join(name).display())
}

fn seen(client: &mut Client) -> (bool, bool) {
    let found = text(&client.call("search", &json!({ "query": "knots" })));
    (found.contains("Alder"), found.contains("Birch"))
}

#[test]
fn roots_of_the_client_are_the_scope() {
    let world = projects();
    let mut client = with_roots(&world, &[root(&world, "a")]);
    assert_eq!(seen(&mut client), (true, false));
    // What lies outside cannot be reached by any name.
    let sessions = world.sessions();
    let other = sessions.iter().find(|row| row["cwd"].as_str().unwrap().ends_with("/b")).unwrap();
    let nodes = world.nodes_of(&[other["id"].as_str().unwrap()]);
    let ids = nodes.iter().map(|node| node["id"].clone()).chain([other["id"].clone()]);
    for id in ids.filter(Value::is_string) {
        for tool in ["read", "around", "how"] {
            let refused = client.call(tool, &json!({ "id": id }));
            assert!(text(&refused).contains("Nothing in"), "{tool} {id}: {refused}");
        }
        let uri = format!("quipu://node/{}", id.as_str().unwrap());
        assert!(client.ask("resources/read", &json!({ "uri": uri }))["error"].is_object());
    }
    let listed = client.ask("resources/list", &json!({}));
    assert_eq!(listed["result"]["resources"].as_array().unwrap().len(), 1, "{listed}");
    assert!(text(&client.call("why", &json!({ "file": root(&world, "b/b.md") }))).contains("cannot be read"));
    // Whether it exists or not.
    symlink(world.path("work/b"), world.path("work/a/link")).unwrap();
    symlink(world.path("work/b/none.md"), world.path("work/a/nowhere")).unwrap();
    for file in ["b/b.md", "b/none.md", "a/../b/none.md", "a/link/b.md", "a/link/none.md", "a/nowhere"] {
        let refused = text(&client.call("why", &json!({ "file": world.path("work").join(file) })));
        assert!(refused.contains("outside"), "{file}: {refused}");
    }
    let missing = text(&client.call("why", &json!({ "file": "none.md" })));
    assert!(missing.contains("cannot be read"), "{missing}");
    let done = client.ask("prompts/get", &json!({ "name": "what-did-we-do-here" }));
    assert!(!done.to_string().contains("birch") && !done.to_string().contains("/b,"), "{done}");
    // The client's roots change.
    client.roots = Some(json!([{ "uri": root(&world, "b") }, { "uri": root(&world, "a") }]));
    client.tell("notifications/roots/list_changed", &json!({}));
    let until = Instant::now() + Duration::from_secs(60);
    while seen(&mut client) != (true, true) {
        assert!(Instant::now() < until, "the new roots are not used");
    }
    client.ends(0);
}

#[test]
fn directory_is_the_scope_without_roots() {
    let world = projects();
    let begin = |dir: &str, args: &[&str]| {
        let mut client = Client::start_in(&world, &world.path("work").join(dir), args);
        client.initialize(OLD, &json!({}));
        client
    };
    assert_eq!(seen(&mut begin("b", &["mcp", "serve"])), (false, true));
    assert_eq!(seen(&mut begin("", &["mcp", "serve"])), (true, true), "and below");
    // Only the user's own setting widens it.
    std::fs::write(world.path("home/.quipu/settings.json"), r#"{"mcpServer":{"scope":"all"}}"#).unwrap();
    assert_eq!(seen(&mut begin("b", &["mcp", "serve"])), (true, true));
    std::fs::write(world.path("home/.quipu/settings.json"), "{}").unwrap();
    std::fs::create_dir_all(world.path("work/b/.quipu")).unwrap();
    world.file("b/.quipu/settings.json", r#"{"mcpServer":{"scope":"all"}}"#);
    assert_eq!(seen(&mut begin("b", &["mcp", "serve"])), (false, true));
}

#[test]
fn roots_that_lead_elsewhere_are_refused_with_a_line() {
    let world = projects();
    symlink(world.path("work/b"), world.path("work/a/link")).unwrap();
    symlink(world.path("work/a"), world.path("tmp/elsewhere")).unwrap();
    for (address, words) in [
        (root(&world, "a/link"), "a link that leads out"),
        (format!("file://{}", world.path("tmp/elsewhere").display()), "a link that leads out"),
        (root(&world, "a/../b"), "no file:// address"),
        (root(&world, "none"), "no such directory"),
        (root(&world, "b/b.md"), "not a directory"),
        ("https://example.com/".into(), "no file:// address"),
        ("file://%2fx%00".into(), "no file:// address"),
    ] {
        let mut client = with_roots(&world, std::slice::from_ref(&address));
        let refused = text(&client.call("search", &json!({ "query": "knots" })));
        assert!(
            refused.contains("No root of the client can be used") && refused.contains(words),
            "{refused}"
        );
        let told = client.notice();
        assert!(told.contains(words) && told.contains("is not used"), "{told}");
        // Beside one that is good, only that one counts.
        let mut client = with_roots(&world, &[address, root(&world, "a")]);
        assert_eq!(seen(&mut client), (true, false));
    }
}

#[test]
fn roots_that_never_come_show_nothing() {
    let world = projects();
    let mut client = Client::start(&world, &["mcp", "serve"]);
    client.initialize(OLD, &json!({ "roots": {} }));
    let refused = text(&client.call("search", &json!({ "query": "knots" })));
    assert!(refused.contains("did not name them"), "{refused}");
    // One that was late is asked again.
    client.roots = Some(json!([{ "uri": root(&world, "a") }]));
    assert_eq!(seen(&mut client), (true, false));
    client.ends(0);
}
