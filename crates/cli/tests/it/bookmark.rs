//! `quipu bookmark`: names for nodes.

use quipu_testkit::Answer;
use serde_json::json;

use crate::support::*;

#[test]
fn lists_of_an_empty_home_say_so_and_succeed() {
    let world = World::new([]);
    for (list, words) in [
        (&["sessions"][..], "There are no sessions yet"),
        (&["sessions", "--all"], "There are no sessions yet"),
        (&["log"], "There are no sessions yet"),
        (&["usage"], "There are no sessions yet"),
        (&["search", "word"], "There are no sessions yet"),
        (&["bookmark"], "There are no bookmarks yet"),
        (&["mcp", "list"], "There are no MCP servers"),
        (&["schedule", "list"], "There are no jobs"),
    ] {
        let ran = world.run(list).ok();
        assert!(ran.err.contains(words) && ran.text().is_empty(), "{list:?}: {}", ran.err);
    }
    // Those that need a session have nothing to work on.
    for command in [&["tree"][..], &["life"], &["files"], &["show"], &["undo"], &["rm", "x"], &["label", "x"]]
    {
        world.run(command).fails(2, &["there are no sessions yet", "quipu import"]);
    }
    world.run(&["tree", "--store", "none.db"]).fails(2, &["none.db"]);
}

#[test]
fn a_name_stands_wherever_a_node_is_named() {
    let world = World::new(["One.", "Two."].map(|text| Answer::new().text(text).reply()));
    world.run(&["-p", "one"]).ok();
    let first = world.sessions()[0]["head"].clone();
    let first = first.as_str().unwrap();
    assert_eq!(
        world.run(&["bookmark", "good state"]).ok().text().trim(),
        first,
        "where the newest session stands"
    );
    world.run(&["-p", "-c", "two"]).ok();
    let second = world.sessions()[0]["head"].as_str().unwrap().to_owned();
    assert_eq!(world.run(&["show", "good state", "--json"]).ok().json()["id"], first);
    world.run(&["bookmark", "later\u{7}", &second[..8]]).ok();
    let told = world.run(&["bookmark", "--json"]).ok().json_lines();
    let names: Vec<_> = told.iter().map(|one| (&one["name"], &one["node"], &one["owner"])).collect();
    let ours = json!("quipu");
    let (a, b) = (json!("good state"), json!("later"));
    assert_eq!(names, [(&a, &json!(first), &ours), (&b, &json!(second), &ours)]);
    let listed = world.run(&["bookmark"]).ok().text();
    assert!(listed.contains("good state") && listed.contains(&second[..12]), "{listed}");

    // It moves, goes places, and goes.
    world.run(&["branch", "good state"]).ok();
    assert_eq!(world.sessions()[0]["head"], first);
    world.run(&["bookmark", "good state", &second]).ok();
    assert_eq!(world.run(&["show", "good state", "--json"]).ok().json()["id"], *second);
    world.run(&["bookmark", "--rm", "good state"]).ok();
    world.run(&["show", "good state"]).fails(2, &["is no node and no session"]);
    // Of a name without end the beginning is told.
    let told = world.run(&["recall", &"a".repeat(70_000)]).fails(2, &["is no node and no session"]);
    assert!(told.err.len() < 500, "{} bytes", told.err.len());
    world.run(&["bookmark", "--rm", "good state"]).fails(2, &["there is no bookmark `good state`"]);

    world.run(&["bookmark", " \u{1} "]).fails(2, &["1 to 256 bytes"]);
    world.run(&["bookmark", &"x".repeat(257)]).fails(2, &["1 to 256 bytes"]);
    world.run(&["bookmark", "x", "nothing"]).fails(2, &["is no node and no session"]);
}
