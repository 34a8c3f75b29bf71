//! The tools of memory, for other agents.

use serde_json::{Value, json};

use super::client::{Client, text};
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
