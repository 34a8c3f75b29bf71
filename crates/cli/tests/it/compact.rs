//! `quipu compact`, and contexts that are compacted by themselves.

use quipu_testkit::Answer;
use serde_json::json;

use crate::support::{World, messages, wire_text};

fn answers(texts: &[&str]) -> Vec<quipu_testkit::Reply> {
    texts.iter().map(|text| Answer::new().text(text).reply()).collect()
}

/// Settings by which about the last exchange stays.
fn small(world: &World) {
    let settings = json!({ "compaction": { "reserveTokens": 1000, "keepRecentTokens": 501 } });
    std::fs::write(world.path("home/.quipu/settings.json"), settings.to_string()).unwrap();
}

#[test]
fn a_session_is_compacted_on_demand_and_that_is_undone() {
    let long = "word ".repeat(400);
    let world = World::new(answers(&[&long, &long, "## Goal\nTo count.", "three", "four"]));
    small(&world);
    world.run(&["compact"]).fails(2, &["no session here"]);
    world.run(&["-p", "one"]).ok();
    world.run(&["compact"]).fails(2, &["nothing to compact"]);
    world.run(&["-p", "-c", "two"]).ok();
    world.run(&["compact", "--undo"]).fails(2, &["was not compacted"]);

    let ran = world.run(&["compact", "--focus", "the numbers"]).ok();
    let node = ran.text();
    assert!(ran.err.contains("compacting (as asked)") && ran.err.contains("tokens before"), "{}", ran.err);
    let asked = messages(&world.requests()[2]).iter().map(wire_text).collect::<String>();
    assert!(asked.contains("[User]: one") && asked.ends_with("Additional focus: the numbers"), "{asked}");
    let shown = world.run(&["show", node.trim()]).ok().text();
    assert!(shown.contains("## Goal\nTo count.\n\n<user-messages>\none\n</user-messages>"), "{shown}");
    world.run(&["show", node.trim(), "--request"]).ok();
    assert_eq!(world.run(&["show", node.trim(), "--json"]).ok().json()["compaction"]["reason"], "manual");

    world.run(&["-p", "-c", "three?"]).ok();
    let said: Vec<String> = messages(&world.requests()[3]).iter().map(wire_text).collect();
    assert!(
        said[0].contains("To count.") && said[1..] == ["two", &long, "three?"].map(str::to_owned),
        "{said:?}"
    );
    // What was said since would be left behind, so another way is named.
    world.run(&["compact", "--undo"]).fails(2, &["went on after its compaction", "quipu -p --fork"]);
}

#[test]
fn undone_the_next_request_is_the_one_that_would_have_been_sent() {
    let long = "word ".repeat(400);
    let mut bodies = Vec::new();
    for compacts in [true, false] {
        let mut script = answers(&[&long, &long]);
        if compacts {
            script.extend(answers(&["In short."]));
        }
        script.extend(answers(&["three"]));
        let world = World::new(script);
        small(&world);
        world.run(&["-p", "one"]).ok();
        world.run(&["-p", "-c", "two"]).ok();
        if compacts {
            world.run(&["compact"]).ok();
            let node = world.run(&["compact", "--undo"]).ok().text();
            assert_eq!(node.trim().len(), 64);
            world.run(&["compact", "--undo"]).fails(2, &["was not compacted"]);
        }
        world.run(&["-p", "-c", "three?"]).ok();
        let body = world.requests().last().unwrap().body.clone();
        let text = String::from_utf8(body.to_vec()).unwrap();
        bodies.push(text.replace(&*world.path("").to_string_lossy(), "/"));
    }
    assert_eq!(bodies[0], bodies[1]);
}

#[test]
fn a_summary_that_fails_is_told_and_changes_nothing() {
    let long = "word ".repeat(400);
    let world = World::new(
        answers(&[&long, &long])
            .into_iter()
            .chain([Answer::new().text("half").stop("max_tokens").reply()])
            .chain(answers(&["three"])),
    );
    small(&world);
    world.run(&["-p", "one"]).ok();
    world.run(&["-p", "-c", "two"]).ok();
    world.run(&["compact"]).fails(1, &["not compacted, the context is as it was", "cut off"]);
    world.run(&["-p", "-c", "three?"]).ok();
    let said: Vec<String> = messages(&world.requests()[3]).iter().map(wire_text).collect();
    assert_eq!(said, ["one", &long, "two", &long, "three?"]);
}

#[test]
fn settings_that_make_no_sense_are_told() {
    let world = World::new(answers(&["hello"]));
    let settings = r#"{"compaction":{"reserveTokens":-1}}"#;
    std::fs::write(world.path("home/.quipu/settings.json"), settings).unwrap();
    let ran = world.run(&["-p", "hi"]).ok();
    assert!(ran.err.contains("settings.json: compaction.reserveTokens must be"), "{}", ran.err);
}
