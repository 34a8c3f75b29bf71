//! `quipu branch`: a session goes to another of its nodes.

use quipu_testkit::{Answer, Gate, Reply};
use serde_json::{Value, json};

use crate::archive::{peer, run_peer};
use crate::support::*;

fn answers(texts: &[&str]) -> Vec<Reply> {
    texts.iter().map(|text| Answer::new().text(text).reply()).collect()
}

/// What the last request said, beside the system prompt.
fn said(world: &World) -> Vec<String> {
    messages(world.requests().last().unwrap()).iter().map(wire_text).collect()
}

fn head(world: &World) -> String {
    world.sessions()[0]["head"].as_str().unwrap().to_owned()
}

/// The node of the user's message or the answer that says this.
fn node(world: &World, text: &str) -> String {
    let says = |node: &&Value| node.to_string().contains(text);
    world.nodes().iter().find(says).unwrap()["id"].as_str().unwrap().to_owned()
}

#[test]
fn a_session_goes_back_and_there_again_without_a_model() {
    let world = World::new(answers(&["Left or right?", "Left it is.", "Right it is.", "On I go."]));
    world.run(&["-p", "Where to?"]).ok();
    world.run(&["-p", "-c", "Left."]).ok();
    let (left, last) = (node(&world, "Left."), head(&world));
    let ran = world.run(&["branch", &left[..8]]).ok();
    assert!(ran.err.contains("just before this message") && ran.err.contains("\n\nLeft.\n"), "{}", ran.err);
    assert!(ran.err.contains(&format!("quipu branch {}", &last[..12])), "{}", ran.err);
    assert_eq!(ran.text().trim(), head(&world));
    assert_eq!(world.requests().len(), 2, "nobody was asked");
    world.run(&["-p", "-c", "Right."]).ok();
    assert_eq!(said(&world), ["Where to?", "Left or right?", "Right."]);
    assert_eq!(world.sessions().len(), 1, "it is the same session");

    // What was left is in the tree, and the way back is the same command.
    let tree = world.run(&["show"]).ok().text();
    assert!(tree.contains("Left it is.") && tree.contains("Right it is."), "{tree}");
    let told = world.run(&["branch", "--json", "--label", "the left one", &last]).ok().json();
    let expect = json!([last, null, 0, null, null]);
    assert_eq!(json!([told["at"], told["text"], told["images"], told["summary"], told["cost"]]), expect);
    assert_ne!(told["head"], last, "the label is a node behind it");
    world.run(&["-p", "-c", "Go."]).ok();
    assert_eq!(said(&world), ["Where to?", "Left or right?", "Left.", "Left it is.", "Go."]);
    let listed = world.run(&["sessions"]).ok().text();
    assert!(listed.contains("1 label"), "{listed}");

    world.run(&["branch", "nothing"]).fails(2, &["is no node and no session"]);
    world.run(&["branch", &last, "--label", &"x".repeat(201)]).fails(2, &["at most 200 characters"]);
}

#[test]
fn branch_summarizes_the_left_part_on_request() {
    let world = World::new(
        [
            Answer::new().text("Left or right?").reply(),
            Answer::new().tool_call("c1", "read", r#"{"path":"f"}"#).reply(),
        ]
        .into_iter()
        .chain(answers(&["Left it is.", "## Goal\nTo the left.", "Right it is."])),
    );
    world.file("f", "a file\n");
    world.run(&["-p", "Where to?"]).ok();
    world.run(&["-p", "-c", "Left."]).ok();
    let (left, last) = (node(&world, "Left."), head(&world));
    let args = ["branch", &left, "--focus", "the dead ends", "--label", "turned", "--json"];
    let ran = world.run(&args).ok();
    assert!(ran.err.contains("going to"), "{}", ran.err);
    let told = ran.json();
    assert_eq!(
        (&told["from"], &told["text"], &told["head"]),
        (&json!(last), &json!("Left."), &json!(head(&world)))
    );
    assert!(told["cost"].as_f64().unwrap() > 0.0, "{told}");

    let request = world.requests()[3].clone();
    assert!(request.json()["tools"].as_array().is_none_or(Vec::is_empty), "{}", request.json());
    assert!(request.json()["max_tokens"].as_u64().unwrap() <= 4_096, "{}", request.json());
    let asked: String = messages(&request).iter().map(wire_text).collect();
    assert!(asked.contains("[User]: Left.") && asked.contains("read(path=\"f\")"), "{asked}");
    assert!(
        asked.contains("[Tool result]: a file") && asked.ends_with("Additional focus: the dead ends"),
        "{asked}"
    );
    assert!(!asked.contains("Where to?") && !asked.contains("Critical Context"), "{asked}");

    world.run(&["-p", "-c", "Right."]).ok();
    let next = said(&world);
    assert_eq!((next.len(), &*next[0], &*next[3]), (4, "Where to?", "Right."), "{next:?}");
    let note = "## Goal\nTo the left.\n\n<read-files>\nf\n</read-files>";
    assert!(next[2].contains(note), "{next:?}");

    // Its bytes are kept, and it is a line of a session file.
    let summary = told["summary"].as_str().unwrap();
    world.run(&["show", summary, "--request"]).ok();
    let id = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    let lines = world.run(&["export", "--format", "pi", &id]).ok().json_lines();
    let line = lines.iter().find(|line| line["type"] == "branch_summary").unwrap();
    assert_eq!((&line["summary"], &line["details"]["readFiles"]), (&json!(note), &json!(["f"])));
    assert!(line["fromId"].is_string() && line["usage"]["cost"]["total"].as_f64().unwrap() > 0.0, "{line}");
    let label = lines.iter().find(|line| line["type"] == "label").unwrap();
    assert_eq!((&label["targetId"], &label["label"]), (&line["id"], &json!("turned")));

    // Written there, it is read again as what it was.
    let there = World::new(answers(&["Well."]));
    let file = there.file("out.jsonl", lines.iter().map(|line| format!("{line}\n")).collect::<String>());
    there.run(&["import", "pi", file.to_str().unwrap()]).ok();
    there.run(&["-p", "--session", &id, "--cwd", there.path("work").to_str().unwrap(), "on"]).ok();
    assert!(messages(&there.requests()[0]).iter().any(|message| wire_text(message).contains(note)));

    // The other agent sends it on as well, in its place.
    let Some(peer) = peer() else { return };
    let other = World::says("Peer here.");
    other.unchecked();
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let [from, to] = [&world, &other].map(|world| world.path("work").display().to_string());
    let file = other.file("out.jsonl", text.replace(&from, &to));
    assert_eq!(run_peer(&peer, &other, &["--session", file.to_str().unwrap(), "on"]).text(), "Peer here.\n");
    let told = crate::archive::said(&other);
    assert_eq!((told.len(), &*told[0], &*told[5]), (6, "Where to?", "on"), "{told:?}");
    assert!(told[2].contains(note) && told[3] == "Right.", "{told:?}");
}

#[test]
fn a_summary_that_fails_is_told_and_moves_nothing() {
    let world = World::new(
        answers(&["One.", "Two."])
            .into_iter()
            .chain([Answer::new().text("half").stop("max_tokens").reply()])
            .chain(answers(&["Three."])),
    );
    world.run(&["-p", "one"]).ok();
    world.run(&["-p", "-c", "two"]).ok();
    let (to, last) = (node(&world, "One."), head(&world));
    world.run(&["branch", &to, "--summarize"]).fails(1, &["the session did not move", "cut off"]);
    let paid = world.nodes().into_iter().find(|node| node.to_string().contains("quipu.summary")).unwrap();
    assert_eq!(paid["parent"], last, "what it cost is kept beside the conversation");
    world.run(&["-p", "-c", "three"]).ok();
    assert_eq!(said(&world), ["one", "One.", "two", "Two.", "three"]);
}

#[test]
fn branch_moves_only_an_idle_session_of_its_own() {
    let gate = Gate::new();
    let gated = Reply::sse("").then_gate(&gate).then(Answer::new().text("Two.").stream());
    let world = World::new(answers(&["One."]).into_iter().chain([gated]));
    world.run(&["-p", "one"]).ok();
    let to = node(&world, "One.");
    let running = world.start(&["-p", "-c", "two"]);
    reached(&gate);
    world.run(&["branch", &to]).fails(1, &["another process is working on session"]);
    world.run(&["branch", &to, "--summarize"]).fails(1, &["another process is working on session"]);
    gate.open();
    running.wait().ok();
    world.run(&["branch", &to]).ok();

    let header = json!({ "type": "session", "version": 3, "id": "foreign-1", "timestamp": "2025-01-02T03:04:05.678Z",
        "cwd": world.path("work") });
    let user = json!({ "type": "message", "id": "u1", "parentId": null, "timestamp": "2025-01-02T03:04:06.000Z",
        "message": { "role": "user", "content": "hello", "timestamp": 5 } });
    let file = world.file("foreign.jsonl", format!("{header}\n{user}\n"));
    world.run(&["import", "pi", file.to_str().unwrap()]).ok();
    world.run(&["branch", "ext:u1"]).fails(2, &["written by pi and stays as it is", "quipu fork"]);
}
