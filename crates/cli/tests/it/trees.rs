//! Forks, clones, labels, names and what removes a session.

use quipu_testkit::{Answer, Gate, Reply};
use serde_json::{Value, json};

use crate::support::*;

fn answers(texts: &[&str]) -> Vec<Reply> {
    texts.iter().map(|text| Answer::new().text(text).reply()).collect()
}

/// What the last request said, beside the system prompt.
fn said(world: &World) -> Vec<String> {
    messages(world.requests().last().unwrap()).iter().map(wire_text).collect()
}

fn line(ran: &CommandOutput) -> String {
    ran.text().trim_end().to_owned()
}

fn id(node: &Value) -> &str {
    node["id"].as_str().unwrap()
}

/// The session of that id as `quipu sessions --json` gives it.
fn row(world: &World, session: &str) -> Value {
    world.sessions().into_iter().find(|row| row["id"] == session).unwrap()
}

#[test]
fn fork_continues_after_an_answer_or_before_a_message() {
    let world = World::new(answers(&["Left or right?", "Left it is.", "Right it is.", "Wrong."]));
    world.run(&["-p", "Where to?"]).ok();
    world.run(&["-p", "-c", "Left."]).ok();
    let nodes = world.nodes();
    let first = world.sessions()[0]["id"].as_str().unwrap().to_owned();

    let behind = line(&world.run(&["fork", id(&nodes[2])]).ok());
    assert_eq!(row(&world, &behind)["parentSession"], first.as_str());
    world.run(&["-p", "--session", &behind, "Right."]).ok();
    assert_eq!(said(&world), ["Where to?", "Left or right?", "Right."]);

    let ran = world.run(&["fork", id(&nodes[3])]).ok();
    assert!(ran.err.contains("just before this message") && ran.err.contains("\n\nLeft.\n"), "{}", ran.err);
    world.run(&["-p", "--session", &line(&ran), "Up."]).ok();
    assert_eq!(said(&world), ["Where to?", "Left or right?", "Up."]);
    let ran = world.run(&["fork", "--json", id(&nodes[1])]).ok().json();
    assert_eq!((&ran["text"], &ran["at"], &ran["images"]), (&json!("Where to?"), &nodes[0]["id"], &json!(0)));

    // The session that they left is as it was.
    assert_eq!(row(&world, &first)["head"], nodes[4]["id"]);
    world.run(&["fork", "nothing"]).fails(2, &["is no node and no session"]);
}

#[test]
fn a_fork_from_a_call_without_a_result_can_go_on() {
    let world = World::new([
        bash("c1", "true"),
        Answer::new().text("Done.").reply(),
        Answer::new().text("Otherwise.").reply(),
    ]);
    world.run(&["-p", "do it"]).ok();
    let call = world.nodes()[2].clone();
    assert_eq!(call["role"], "assistant");
    let fork = line(&world.run(&["fork", id(&call)]).ok());
    world.run(&["-p", "--session", &fork, "no, otherwise"]).ok();
    let said = said(&world);
    assert_eq!((said.len(), said[3].as_str()), (4, "no, otherwise"), "{said:?}");
    assert!(said[2].contains("has no result"), "{said:?}");
}

#[test]
fn a_clone_has_the_same_past_and_a_way_of_its_own() {
    let world = World::new(answers(&["One.", "Two.", "Three."]));
    world.run(&["-p", "a"]).ok();
    let first = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    let clone = line(&world.run(&["clone", &first]).ok());
    let list = world.run(&["sessions"]).ok().text();
    assert!(list.contains(&format!("(fork of {first}, no message yet)")), "{list}");
    world.run(&["-p", "--session", &clone, "b"]).ok();
    assert_eq!(said(&world), ["a", "One.", "b"]);
    world.run(&["-p", "--session", &first, "c"]).ok();
    assert_eq!(said(&world), ["a", "One.", "c"]);
    world.run(&["clone", "nothing"]).fails(2, &["is no node and no session"]);
}

#[test]
fn labels_are_given_changed_cleared_and_exported() {
    let world = World::new(answers(&["One.", "Two."]));
    world.run(&["-p", "a"]).ok();
    let nodes = world.nodes();
    let session = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    world.run(&["label", id(&nodes[1]), "first", "\u{1b}[31m\nword"]).ok();
    world.run(&["label", id(&nodes[2]), "bad"]).ok();
    world.run(&["label", id(&nodes[2]), "good"]).ok();
    assert_eq!(row(&world, &session)["labels"], 2);
    world.run(&["label", id(&nodes[1])]).ok();
    assert_eq!(row(&world, &session)["labels"], 1);
    assert!(world.run(&["sessions"]).ok().text().contains("a  1 label\n"));
    let export = world.run(&["export", "--format", "pi", &session]).ok().json_lines();
    let labels: Vec<(&Value, &Value)> = export
        .iter()
        .filter(|entry| entry["type"] == "label")
        .map(|entry| (&entry["targetId"], &entry["label"]))
        .collect();
    let own = |text: &str| {
        let found = export.iter().find(|entry| entry["message"]["content"][0]["text"] == text);
        &found.unwrap()["id"]
    };
    let (a, one) = (own("a"), own("One."));
    let said = [json!("first [31m word"), json!("bad"), json!("good"), Value::Null];
    assert_eq!(labels, [(a, &said[0]), (one, &said[1]), (one, &said[2]), (a, &said[3])]);
    // The model does not hear of labels.
    world.run(&["-p", "-c", "b"]).ok();
    assert_eq!(crate::trees::said(&world), ["a", "One.", "b"]);
    world.run(&["label", id(&nodes[1]), &"x".repeat(201)]).fails(2, &["at most 200 characters"]);
    world.run(&["label", "nothing", "x"]).fails(2, &["is no node and no session"]);
}

#[test]
fn a_session_is_found_by_a_name_that_only_it_has() {
    let world = World::new(answers(&["One.", "Two.", "Three."]));
    world.run(&["-p", "a"]).ok();
    world.run(&["-p", "b"]).ok();
    let rows = world.sessions();
    let (second, first) = (rows[0]["id"].as_str().unwrap(), rows[1]["id"].as_str().unwrap());
    world.run(&["rename", first, " the\n\nfirst\u{7} ", "one "]).ok();
    assert_eq!(row(&world, first)["name"], "the first one");
    assert!(world.run(&["sessions"]).ok().text().contains("the first one  a\n"));
    world.run(&["-p", "--session", "the first one", "c"]).ok();
    assert_eq!(said(&world), ["a", "One.", "c"]);
    assert_eq!(world.run(&["show", "the first one", "--json"]).ok().json()["session"]["id"], first);
    world.run(&["rename", second, "the first one"]).ok();
    world.run(&["show", "the first one"]).fails(2, &["could be any of these", first, second]);
    world.run(&["rename", first, ""]).ok();
    assert_eq!(world.run(&["show", "the first one", "--json"]).ok().json()["session"]["id"], second);
    world.run(&["rename", first, &"x".repeat(201)]).fails(2, &["at most 200 characters"]);
    let export = world.run(&["export", "--format", "pi", second]).ok().json_lines();
    assert_eq!(export.last().unwrap()["name"], "the first one");
}

#[test]
fn a_removed_session_can_be_gone_on_from() {
    let world = World::new(answers(&["One.", "Two."]));
    world.run(&["-p", "a"]).ok();
    let session = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    let head = world.sessions()[0]["head"].as_str().unwrap().to_owned();
    world.run(&["rm", &session]).fails(2, &["--yes", &session]);
    assert_eq!(world.sessions().len(), 1);
    let ran = world.run(&["rm", "--yes", &session]).ok();
    assert!(ran.err.contains(&format!("quipu fork {head}")), "{}", ran.err);
    assert_eq!(world.sessions(), Vec::<Value>::new());
    world.run(&["show"]).fails(2, &["no session in this directory"]);
    world.run(&["rm", "--yes", &session]).fails(2, &["was removed", &format!("quipu fork {head}")]);
    world.run(&["rename", &session, "x"]).fails(2, &["was removed"]);
    world.run(&["-p", "--session", &session, "b"]).fails(2, &["was removed", &format!("quipu fork {head}")]);
    // By its last node, or by the id that it had.
    let fork = line(&world.run(&["fork", &head]).ok());
    let other = line(&world.run(&["fork", &session]).ok());
    world.run(&["-p", "--session", &fork, "b"]).ok();
    assert_eq!(said(&world), ["a", "One.", "b"]);
    assert_eq!(row(&world, &other)["parentSession"], session.as_str());
    assert_eq!(world.run(&["doctor", "--json"]).ok().json()["healthy"], true);
    // What the session asked is in the store, and no list leads there.
    world.unchecked();
}

#[test]
fn busy_session_is_left_unchanged() {
    let gate = Gate::new();
    let two = Reply::sse("").then_gate(&gate).then(Answer::new().text("Two.").stream());
    let world = World::new([Answer::new().text("One.").reply(), two]);
    world.run(&["-p", "a"]).ok();
    let session = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    let running = world.start(&["-p", "-c", "b"]);
    reached(&gate);
    world.run(&["rm", "--yes", &session]).fails(1, &["in use by another process", &session]);
    world.run(&["rename", &session, "x"]).fails(1, &["in use by another process"]);
    gate.open();
    running.wait().ok();
    world.run(&["rename", &session, "x"]).ok();
    world.run(&["rm", "--yes", "x"]).ok();
    world.unchecked();
}

/// An imported session with two branches and a label.
fn imported(world: &World) -> Vec<Value> {
    let entry = |id: &str, parent: Option<&str>, rest: Value| {
        let mut entry = json!({ "id": id, "parentId": parent, "timestamp": "2025-01-02T03:04:06.000Z" });
        entry.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        entry
    };
    let user = |id: &str, parent: Option<&str>, text: &str| {
        let content = json!([{ "type": "text", "text": text }]);
        entry(
            id,
            parent,
            json!({ "type": "message", "message": { "role": "user", "content": content, "timestamp": 5 } }),
        )
    };
    let entries = vec![
        json!({ "type": "session", "version": 3, "id": ID, "timestamp": "2025-01-02T03:04:05.678Z",
            "cwd": world.path("work") }),
        entry("m1", None, json!({ "type": "model_change", "provider": "testing", "modelId": MODEL })),
        user("u1", Some("m1"), "Which way?"),
        user("u2", Some("u1"), "Left."),
        user("u3", Some("u1"), "Right."),
        entry("l1", Some("u3"), json!({ "type": "label", "targetId": "u1", "label": "fork" })),
        entry("n1", Some("l1"), json!({ "type": "session_info", "name": "the way" })),
    ];
    let text: String = entries.iter().map(|entry| format!("{entry}\n")).collect();
    let file = world.file("session.jsonl", text);
    world.run(&["import", "pi", file.to_str().unwrap()]).ok();
    entries
}

const ID: &str = "0199aaaa-0000-7000-8000-000000000001";

#[test]
fn an_imported_session_is_labelled_named_cloned_and_removed() {
    let world = World::new(answers(&["One.", "Two."]));
    let file = imported(&world);
    assert_eq!((&row(&world, ID)["name"], &row(&world, ID)["labels"]), (&json!("the way"), &json!(1)));
    world.run(&["label", "ext:u2", "not taken"]).ok();
    world.run(&["label", "ext:u1", "here"]).ok();
    world.run(&["rename", "the way", "another"]).ok();
    assert_eq!((&row(&world, ID)["name"], &row(&world, ID)["labels"]), (&json!("another"), &json!(2)));
    // What was in the file is written as it was; what was said of it since follows.
    let export = world.run(&["export", "--format", "pi", "another"]).ok().json_lines();
    assert_eq!(export[..file.len()], file);
    let more: Vec<&Value> = export[file.len()..].iter().collect();
    assert_eq!((more.len(), &more[0]["parentId"]), (3, &json!("n1")), "{more:?}");
    assert_eq!((&more[0]["targetId"], &more[0]["label"]), (&json!("u2"), &json!("not taken")));
    assert_eq!((&more[1]["targetId"], &more[1]["parentId"]), (&json!("u1"), &more[0]["id"]));
    assert_eq!((&more[2]["type"], &more[2]["name"]), (&json!("session_info"), &json!("another")));

    let clone = line(&world.run(&["clone", "another"]).ok());
    world.run(&["-p", "--session", &clone, "on"]).ok();
    assert_eq!(said(&world), ["Which way?", "Right.", "on"]);
    let system = world.requests().last().unwrap().json()["system"].to_string();
    assert!(system.contains("Quipu"), "a prompt of ours: {system}");
    assert_eq!(world.requests().last().unwrap().json()["model"], MODEL);
    let fork = world.run(&["fork", "ext:u2"]).ok();
    assert!(fork.err.contains("\n\nLeft.\n"), "{}", fork.err);

    world.run(&["rm", "--yes", ID]).ok();
    assert!(world.sessions().iter().all(|row| row["id"] != ID));
    // The file brings it back, and what was said of it is of the past.
    world.run(&["import", "pi", "session.jsonl"]).ok();
    assert_eq!(row(&world, ID)["title"], "Which way?");
}

#[test]
fn a_session_whose_directory_is_gone_goes_on_in_another() {
    let world = World::new(answers(&["One.", "Two.", "Three."]));
    let gone = world.path("work/gone");
    std::fs::create_dir(&gone).unwrap();
    let mut command = world.quipu(&["-p", "a"]);
    command.current_dir(&gone);
    RunningCommand::start(command).wait().ok();
    std::fs::remove_dir(&gone).unwrap();
    let all = world.run(&["sessions", "--all", "--json"]).ok().json_lines();
    let session = all[0]["id"].as_str().unwrap();
    world.run(&["-p", "--session", session, "b"]).fails(2, &["no longer exists", "--cwd DIR", session]);
    world.run(&["-p", "--session", session, "--cwd", "nowhere", "b"]).exits(2);
    world.run(&["-p", "--cwd", ".", "b"]).fails(2, &["--session or --fork"]);
    let ran = world.run(&["-p", "--session", session, "--cwd", ".", "b"]).ok();
    assert!(ran.err.contains("continues in"), "{}", ran.err);
    assert_eq!(said(&world), ["a", "One.", "b"]);
    let system = world.requests().last().unwrap().json()["system"].to_string();
    assert!(!system.contains("/gone"), "{system}");
    // It is a session of this directory now.
    world.run(&["-p", "-c", "c"]).ok();
    assert_eq!(said(&world), ["a", "One.", "b", "Two.", "c"]);
    assert_eq!(world.sessions()[0]["parentSession"], session);
    let fork = line(&world.run(&["fork", session, "--cwd", "."]).ok());
    assert_eq!(row(&world, &fork)["cwd"], world.path("work").to_str().unwrap());
}
