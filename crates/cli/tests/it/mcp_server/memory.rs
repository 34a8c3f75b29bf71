//! The tools of memory, for other agents.

use serde_json::{Value, json};

use super::client::{Client, OLD, text};
use crate::memory_watch::{Notes, put};
use crate::support::*;

fn names(client: &mut Client) -> Vec<String> {
    let listed = client.ask("tools/list", &json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn memory_tools_take_the_place_of_search_where_memory_is_on() {
    let world = World::says("Fine.");
    world.run(&["-p", "Paint the gate blue."]).ok();
    assert_eq!(names(&mut Client::started(&world)), ["search", "read", "around", "how", "why"]);
    world.run(&["memory", "on"]).ok();
    let mut client = Client::started(&world);
    let all = ["memory_search", "memory_get", "memory_note", "read", "around", "how", "why"];
    assert_eq!(names(&mut client), all);
    // Together as cheap as without memory, and each names those that are there.
    let listed = client.ask("tools/list", &json!({}));
    let handed = listed["result"]["tools"].as_array().unwrap().iter().map(|tool| {
        json!({ "name": tool["name"], "description": tool["description"], "input_schema": tool["inputSchema"] })
    });
    let handed = Value::from(handed.collect::<Vec<_>>()).to_string();
    assert!(quipu_transcript::estimate_text(&handed) <= 500, "{handed}");
    assert!(handed.contains("a node with read") && !handed.contains("recall"), "{handed}");
    // Once there is a past, its summaries can be read too, and nobody else writes one.
    world.run(&["past", "create", "2026-05", "--text", "The gate was painted."]).ok();
    world.run(&["config", "set", "memory.create", "true"]).ok();
    let mut with_past = all.to_vec();
    with_past.insert(3, "memory_range");
    assert_eq!(names(&mut Client::started(&world)), with_past);
    let month = text(&client.call("memory_range", &json!({ "range": "2026-05" })));
    assert!(month.contains("The gate was painted."), "{month}");
    let noted = text(&client.call("memory_note", &json!({ "text": "The gate is iron." })));
    assert!(noted.contains("\"author\":\"untrusted\""), "another agent noted it: {noted}");
    let found = text(&client.call("memory_search", &json!({ "query": "What colour has the gate?" })));
    assert!(found.contains("Paint the gate blue.") && found.contains("The gate is iron."), "{found}");
    let read: Value = client.call("memory_get", &json!({ "path": "../../secret.md" }));
    assert!(text(&read).contains("\"unavailable\":true"), "{read}");
}

#[test]
fn server_that_searched_a_memory_has_its_notes_indexed() {
    let world = World::new([]);
    world.run(&["memory", "on"]).ok();
    let notes = Notes::of(&world);
    let mut client = Client::started(&world);
    client.call("memory_search", &json!({ "query": "zebrafish" }));
    put(&notes.root.join("MEMORY.md"), "- The zebrafish is red.\n");
    notes.until("zebrafish", 1);
}

/// Projects with a memory each, which says their names.
fn projects() -> World {
    let world = World::new([]);
    for name in ["a", "b", "c"] {
        let dir = world.path("work").join(name);
        std::fs::create_dir_all(dir.join(".git")).unwrap();
        std::fs::create_dir_all(dir.join("sub/deep")).unwrap();
        let quipu = |args: &[&str]| {
            let mut command = world.quipu(args);
            command.current_dir(&dir);
            RunningCommand::start(command).wait()
        };
        quipu(&["memory", "on"]).ok();
        let status = quipu(&["memory", "status", "--json"]).ok().json();
        let root = std::path::PathBuf::from(status["memories"][0]["root"].as_str().unwrap());
        std::fs::create_dir_all(&root).unwrap();
        std::fs::write(root.join("MEMORY.md"), format!("- the gate of {name} is of wood{name}\n")).unwrap();
        quipu(&["memory", "review", "--accept-all"]).ok();
    }
    world
}

fn with_roots(world: &World, dir: &str, roots: &[&str]) -> Client {
    let mut client = Client::start_in(world, &world.path(dir), &["mcp", "serve"]);
    let uri = |root: &&str| json!({ "uri": format!("file://{}", world.path("work").join(root).display()) });
    client.roots = Some(roots.iter().map(uri).collect());
    client.initialize(OLD, &json!({ "roots": { "listChanged": true } }));
    client
}

/// What a client reads of the memories of its roots.
fn read_of(client: &mut Client) -> String {
    let searched = text(&client.call("memory_search", &json!({ "query": "What is the gate made of?" })));
    let got = text(&client.call("memory_get", &json!({ "path": "MEMORY.md" })));
    format!("{searched}\n{got}")
}

#[test]
fn roots_of_two_projects_read_no_third_memory() {
    let world = projects();
    let mut client = with_roots(&world, "work/a", &["b/sub", "a"]);
    let read = read_of(&mut client);
    assert!(read.contains("wooda") && !read.contains("woodc"), "{read}");
    let before = std::fs::read_dir(world.path("home/.quipu/memory")).unwrap().count();
    let noted = text(&client.call("memory_note", &json!({ "text": "A note of somebody." })));
    assert!(noted.contains("untrusted"), "{noted}");
    assert_eq!(std::fs::read_dir(world.path("home/.quipu/memory")).unwrap().count(), before);
    client.ends(0);
    let mut command = world.quipu(&["memory", "list", "--json"]);
    command.current_dir(world.path("work/c"));
    let of_c = RunningCommand::start(command).wait().ok().text();
    assert!(!of_c.contains("memory/2"), "nothing was noted there: {of_c}");
}

#[test]
fn roots_that_are_links_read_no_other_memory() {
    let world = projects();
    // The repository leads to another project: by its last part, on the way, and by a link to a link.
    std::os::unix::fs::symlink(world.path("work/c"), world.path("work/a/link")).unwrap();
    std::os::unix::fs::symlink(world.path("work/a/link"), world.path("work/a/again")).unwrap();
    for dir in ["work/a", "tmp", "work/b"] {
        for root in ["a/link", "a/link/sub", "a/link/sub/deep", "a/again/sub"] {
            let mut client = with_roots(&world, dir, &[root]);
            let read = read_of(&mut client);
            assert!(!read.contains("woodc"), "{root} from {dir}: {read}");
            // Beside one that is good.
            let mut client = with_roots(&world, dir, &[root, "b"]);
            let read = read_of(&mut client);
            assert!(read.contains("woodb") && !read.contains("woodc"), "{root} from {dir}: {read}");
        }
    }
    // A link within the project is the project.
    std::os::unix::fs::symlink(world.path("work/a/sub"), world.path("work/a/near")).unwrap();
    let mut client = with_roots(&world, "tmp", &["a/near/deep"]);
    assert!(read_of(&mut client).contains("wooda"));
}
