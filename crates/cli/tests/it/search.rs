//! What was said and done is found again.

use quipu_testkit::Answer;
use serde_json::{Value, json};

use crate::support::*;

/// A run with a tool, and one without.
fn filled() -> World {
    let world = World::new([
        call("c1", "read", &json!({ "path": "notes/plan.md" })),
        Answer::new().text("The plan says: paint the gate.").reply(),
        Answer::new().text("Blue \u{1b}[31m paint it is.").reply(),
    ]);
    std::fs::create_dir_all(world.path("work/notes")).unwrap();
    world.file("notes/plan.md", "Step one: paint the gate green.\n");
    world.run(&["-p", "What is the plan?"]).ok();
    world.run(&["-p", "Which paint, Ren\u{e9}?"]).ok();
    world
}

fn hits(world: &World, args: &[&str]) -> Vec<Value> {
    let args: Vec<&str> = ["search", "--json"].iter().chain(args).copied().collect();
    let mut lines = world.run(&args).ok().json_lines();
    let end = lines.pop().unwrap();
    assert_eq!(
        (&end["type"], &end["unindexed"]["words"], &end["cut"]),
        (&json!("end"), &json!(0), &json!(false))
    );
    assert_eq!(end["hits"], lines.len());
    lines
}

fn texts(world: &World, args: &[&str]) -> Vec<String> {
    hits(world, args).iter().map(|hit| hit["text"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn search_finds_messages_and_calls() {
    let world = filled();
    let all = [
        "Blue [31m paint it is.",
        "Which paint, Ren\u{e9}?",
        "The plan says: paint the gate.",
        "Step one: paint the gate green.",
    ];
    assert_eq!(texts(&world, &["paint"]), all);
    assert_eq!(texts(&world, &["PAINT", "rene"]), all[1..2]);
    assert_eq!(texts(&world, &["\"the gate green\""]), all[3..]);
    assert_eq!(texts(&world, &["paint", "--role", "user", "--role", "tool"]), [all[1], all[3]]);
    assert_eq!(texts(&world, &["paint", "--tool", "read"]), all[3..]);
    assert_eq!(texts(&world, &["paint", "--file", "plan.md"]), all[3..]);
    assert_eq!(texts(&world, &["--file", "notes/plan.md"]).len(), 2, "the call and its result");
    assert_eq!(texts(&world, &["paint", "--agent", "pi"]), <[&str; 0]>::default());
    assert_eq!(texts(&world, &["paint", "--project", "."]), all);
    assert_eq!(texts(&world, &["paint", "--project", "/nowhere"]), <[&str; 0]>::default());
    assert_eq!(texts(&world, &["paint", "--since", "1h"]), all);
    assert_eq!(texts(&world, &["paint", "--since", "2999-01-01"]), <[&str; 0]>::default());
    assert_eq!(texts(&world, &["paint", "--limit", "1"]), all[..1]);
    assert_eq!(texts(&world, &["otes/pla"]).len(), 1, "a part of a path");
    assert_eq!(texts(&world, &["otes/pla", "--exact"]), <[&str; 0]>::default());
    assert_eq!(
        texts(&world, &["--part", "aint"]),
        <[&str; 0]>::default(),
        "parts of messages are not looked for"
    );
    let best = hits(&world, &["gate", "--best"]);
    assert!(best.len() == 2 && best.iter().all(|hit| hit["score"].as_f64().unwrap() > 0.0));
    let hit = &hits(&world, &["green"])[0];
    let session = hit["session"].as_str().unwrap();
    assert_eq!(
        (&hit["role"], &hit["tool"], &hit["by"]),
        (&json!("toolResult"), &json!("read"), &json!("words"))
    );
    assert_eq!((&hit["agent"], &hit["title"]), (&json!("quipu"), &json!("What is the plan?")));
    let mark = hit["marks"][0].as_array().unwrap();
    let at = |n: usize| usize::try_from(mark[n].as_u64().unwrap()).unwrap();
    assert_eq!(&hit["text"].as_str().unwrap()[at(0)..at(1)], "green");
    assert_eq!(texts(&world, &["paint", "--branch", session]), all[2..]);

    // For people: in groups, with what opens it, and nothing that steers a terminal.
    let ran = world.run(&["search", "paint"]).ok();
    let text = ran.text();
    assert!(!text.contains('\u{1b}') && text.contains("Blue [31m paint it is."), "{text}");
    assert_eq!(text.matches("  open: quipu show ").count(), 2, "{text}");
    let node = text.split("open: quipu show ").nth(1).unwrap().split(' ').next().unwrap();
    assert!(world.run(&["show", node]).ok().text().contains("paint it is."));
    let ran = world.run(&["search", "nothing of the kind"]).ok();
    assert_eq!((ran.text().as_str(), ran.err.trim()), ("", "Nothing was found."));
}

#[test]
fn wrong_searches_are_told() {
    let world = filled();
    world.run(&["search"]).fails(2, &["give words or a filter"]);
    world.run(&["search", " "]).fails(2, &["give words or a filter"]);
    world.run(&["search", "x", "--since", "yesterday"]).fails(2, &["--since yesterday", "3d"]);
    world.run(&["search", "x", "--branch", "nothing"]).fails(2, &["nothing", "no node"]);
    world.run(&["search", &"x".repeat(5_000)]).fails(2, &["4096"]);
    let ran = world.run(&["search", "--part", "ab"]).ok();
    assert!(ran.err.contains("three characters"), "{}", ran.err);
}

#[test]
fn removed_sessions_are_not_found_unless_they_are_named() {
    let world = filled();
    let hit = &hits(&world, &["green"])[0];
    let (session, node) = (hit["session"].as_str().unwrap(), hit["node"].as_str().unwrap());
    world.server.push(Answer::new().text("The fork says: no paint.").reply());
    world.run(&["-p", "--fork", node, "And without?"]).ok();
    world.run(&["rm", "--yes", session]).ok();
    // What the fork goes on from is still said in a session that stands; what came after is not.
    let all = ["The fork says: no paint.", "Blue [31m paint it is.", "Which paint, Ren\u{e9}?"];
    let shared = "Step one: paint the gate green.";
    assert_eq!(texts(&world, &["paint"]), [all[0], all[1], all[2], shared]);
    let named = hits(&world, &["paint", "--branch", session]);
    assert_eq!(
        named.iter().map(|hit| (hit["text"].as_str().unwrap(), &hit["removed"])).collect::<Vec<_>>(),
        [("The plan says: paint the gate.", &json!(true)), (shared, &json!(true))]
    );
    let ran = world.run(&["search", "green"]).ok();
    let fork = format!("continue: quipu -p --fork {}", &node[..12]);
    assert!(ran.text().contains("  (removed)\n") && ran.text().contains(&fork), "{}", ran.text());
    let fork = hits(&world, &["fork", "says"])[0]["session"].as_str().unwrap().to_owned();
    world.run(&["rm", "--yes", &fork]).ok();
    assert_eq!(texts(&world, &["paint"]), all[1..]);
    // What the sessions asked is in the store, and no list leads there.
    world.unchecked();
}

#[test]
fn an_import_is_searched_at_once() {
    let world = World::new([]);
    let lines = [
        json!({ "type": "session", "version": 3, "id": "0199aaaa-0000-7000-8000-000000000002", "timestamp": "2025-01-02T03:04:05.678Z", "cwd": "/elsewhere" }),
        json!({ "type": "message", "id": "u1", "parentId": null, "timestamp": "2025-01-02T03:04:06.000Z",
            "message": { "role": "user", "content": "Where did the heron go?", "timestamp": 5 } }),
    ];
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let file = world.file("one.jsonl", text);
    world.run(&["import", "pi", file.to_str().unwrap()]).ok();
    let found = hits(&world, &["heron", "--agent", "pi", "--project", "/elsewhere"]);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0]["cwd"], "/elsewhere");
}

/// The tool of the model: the sessions of this directory, in a frame; not without a store, not when it is turned off, and
/// not for what is replayed.
#[test]
fn the_model_searches_what_was_done_here() {
    let world = filled();
    let ask = |args: &Value| call("s1", "search_history", args);
    world.server.push(ask(&json!({ "query": "gate", "role": "tool" })));
    world.server.push(Answer::new().text("In the plan.").reply());
    world.run(&["-p", "--record", "found.rec", "Where was the gate painted?"]).ok();
    let last = world.requests().pop().unwrap().json();
    let said = last["messages"].to_string();
    assert!(
        said.contains("--- archived history: ") && said.contains("Step one: paint the gate green."),
        "{said}"
    );
    assert!(said.contains("1 hit in ") && said.contains("What is the plan? (quipu)"), "{said}");

    // Elsewhere: somebody would have to say yes.
    world.server.push(ask(&json!({ "query": "gate", "project": "/" })));
    world.server.push(Answer::new().text("No.").reply());
    world.run(&["-p", "And elsewhere?"]).ok();
    let refused = world.requests().pop().unwrap().json()["messages"].to_string();
    assert!(
        refused.contains("nobody is here to give it") && refused.contains("adding its directory"),
        "{refused}"
    );

    let offers = |world: &World| {
        let body = world.requests().pop().unwrap().json();
        body["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "search_history")
    };
    assert!(offers(&world));
    world.server.push(Answer::new().text("Nothing is kept.").reply());
    world.run(&["-p", "--no-session", "hi"]).ok();
    assert!(!offers(&world));
    std::fs::write(world.path("home/.quipu/settings.json"), r#"{"search":{"tool":false}}"#).unwrap();
    world.server.push(Answer::new().text("Off.").reply());
    world.run(&["-p", "hi"]).ok();
    assert!(!offers(&world));
    std::fs::write(world.path("home/.quipu/settings.json"), r#"{"search":{"tool":"no"}}"#).unwrap();
    world.server.push(Answer::new().text("On.").reply());
    let ran = world.run(&["-p", "hi"]).ok();
    assert!(offers(&world) && ran.err.contains("search.tool must be true or false"), "{}", ran.err);
}

#[test]
fn the_indexes_are_made_anew_on_demand() {
    let world = filled();
    let before = texts(&world, &["paint"]);
    for what in [&["--rebuild"][..], &["--rebuild", "search"], &["--rebuild", "all"]] {
        let args: Vec<&str> = ["doctor", "--json"].iter().chain(what).copied().collect();
        let told = world.run(&args).ok().json();
        let findings = told["findings"].as_array().unwrap();
        let finding = findings.iter().find(|finding| finding["what"] == "rebuild").unwrap();
        assert!(finding["state"] == "good" && finding["detail"].as_str().unwrap().contains("were rebuilt"));
        assert_eq!(texts(&world, &["paint"]), before);
    }
    world.run(&["doctor", "--rebuild", "--repair"]).fails(2, &["--repair"]);
    world.run(&["doctor", "--rebuild", "graph"]).fails(2, &["search", "all"]);
    let empty = World::new([]);
    empty.run(&["doctor", "--rebuild"]).ok();
    assert!(!empty.store().exists());
}
