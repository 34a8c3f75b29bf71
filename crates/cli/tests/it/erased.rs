//! What goes on when something was erased: a session, its export, its import, and what doctor tells.

use std::sync::Arc;

use quipu_host::holders::Holders;
use quipu_host::{Home, SilentObserver};
use quipu_store::{EraseReport, EraseTargets, OpenOptions, Selection, SqliteStore};
use quipu_testkit::Answer;
use serde_json::{Value, json};

use crate::support::*;

const SECRET: &str = "tamarind-7741";

/// Erases from all places of the world's home.
fn erase(world: &World, selection: Selection) -> Vec<(String, EraseReport)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let path = world.store();
        let store = Arc::new(SqliteStore::open(&path, &OpenOptions::default()).unwrap());
        let home = Home::at(path.parent().unwrap(), Arc::new(SilentObserver));
        let targets = EraseTargets { selection, why: "somebody asked".into() };
        let answers = Holders::of(&home, Some(&store)).erase(&targets).await;
        answers.into_iter().map(|answer| (answer.holder, answer.answer.unwrap())).collect()
    })
}

fn needle(text: &str) -> Selection {
    Selection { needles: vec![text.into()], ..Selection::default() }
}

fn text_of(node: &Value) -> String {
    node["message"]["content"].to_string()
}

fn healthy(world: &World) {
    let told = world.run(&["doctor", "--json"]).ok().json();
    assert_eq!(told["healthy"], true, "{told}");
}

#[test]
fn session_goes_on_without_what_was_erased() {
    let told = format!("I will remember {SECRET}.");
    let world = World::new([
        bash("c1", &format!("echo {SECRET}")),
        Answer::new().text(&told).reply(),
        Answer::new().text("Two.").reply(),
        Answer::new().text("Three.").reply(),
    ]);
    // Requests that were made of it are not there to be compared.
    world.unchecked();
    world.run(&["-p", &format!("the code is {SECRET}")]).ok();
    world.run(&["-p", "-c", "second"]).ok();
    let nodes = world.nodes();
    let export = world.path("out.md");
    let id = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    world.run(&["export", &id, "--format", "markdown", "-o", export.to_str().unwrap()]).ok();
    assert!(std::fs::read_to_string(&export).unwrap().contains(SECRET));

    let erased = erase(&world, needle(SECRET));
    for (holder, erased) in &erased {
        assert_eq!(erased.kept, [], "{holder}");
    }
    let count = |name: &str| erased.iter().find(|(holder, _)| holder == name).unwrap().1.count;
    assert!(count("store.graph") >= 4, "{erased:?}");
    assert_eq!(count("written"), 1);
    assert!(!export.exists());
    for name in ["quipu.db", "quipu.db-wal"] {
        let raw = std::fs::read(world.store().with_file_name(name)).unwrap_or_default();
        assert!(!contains(&raw, SECRET.as_bytes()), "{name}");
    }

    let after = world.nodes();
    let ids = |nodes: &[Value]| nodes.iter().map(|node| node["id"].clone()).collect::<Vec<_>>();
    assert_eq!(ids(&after), ids(&nodes));
    for (before, after) in nodes.iter().zip(&after) {
        if !before.to_string().contains(SECRET) {
            assert_eq!(before, after);
        } else {
            assert!(!after.to_string().contains(SECRET));
        }
    }
    world.run(&["-p", "-c", "third"]).ok();
    let said: Vec<Value> = messages(world.requests().last().unwrap());
    let said = serde_json::to_string(&said).unwrap();
    assert!(said.contains("[erased]") && said.contains("Two.") && said.contains("third"), "{said}");
    assert!(!said.contains(SECRET), "{said}");
    // The call is there with its result, as a model wants it.
    assert!(said.contains("c1"), "{said}");

    let shown = world.run(&["export", &id, "--format", "markdown"]).ok().text();
    assert!(shown.contains("[erased]") && shown.contains("Three.") && !shown.contains(SECRET));
    let found = world.run(&["search", "--json", "tamarind"]).ok().text();
    assert!(!found.contains("tamarind-7741"), "{found}");
    healthy(&world);
}

#[test]
fn erased_node_says_when_and_why() {
    let world = World::new([Answer::new().text("One.").reply()]);
    // Requests that were made of it are not there to be compared.
    world.unchecked();
    world.run(&["-p", &format!("the code is {SECRET}")]).ok();
    let nodes = world.nodes();
    let said = nodes.iter().find(|node| text_of(node).contains(SECRET)).unwrap()["id"].as_str().unwrap();
    let answer = nodes.iter().find(|node| text_of(node).contains("One.")).unwrap()["id"].as_str().unwrap();
    erase(&world, Selection { nodes: vec![said.parse().unwrap()], ..Selection::default() });
    let shown = world.run(&["show", said]).ok().text();
    assert!(
        shown.contains("erased") && shown.contains("somebody asked") && !shown.contains(SECRET),
        "{shown}"
    );
    let shown = world.run(&["show", said, "--json"]).ok().json();
    assert_eq!(shown["erased"]["why"], "somebody asked");
    assert!(shown["erased"]["at"].as_i64().unwrap() > 1_700_000_000_000);
    assert_eq!(world.run(&["show", answer, "--json"]).ok().json().get("erased"), None);
    let refused = world.run(&["show", answer, "--request"]);
    assert!(!refused.status.success());
    assert!(refused.message().contains("was erased"), "{}", refused.message());
    healthy(&world);
}

#[test]
fn imported_again_erased_text_does_not_come_back() {
    let world = World::new([]);
    let user = |id: &str, parent: Value, text: &str| {
        json!({ "type": "message", "id": id, "parentId": parent, "timestamp": "2025-01-02T03:04:06.000Z",
            "message": { "role": "user", "content": [{ "type": "text", "text": text }], "timestamp": 5 } })
    };
    let header = json!({ "type": "session", "version": 3, "id": "old-1", "timestamp": "2025-01-02T03:04:05.678Z",
        "cwd": world.path("work") });
    let mut lines = vec![
        header,
        user("e1", Value::Null, &format!("the code is {SECRET}")),
        user("e2", "e1".into(), "and the rest"),
    ];
    let text = |lines: &[Value]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    let path = world.file("old.jsonl", text(&lines));
    world.run(&["import", "pi", path.to_str().unwrap()]).ok();
    erase(&world, needle(SECRET));
    lines.push(user("e3", "e2".into(), "something new"));
    std::fs::write(&path, text(&lines)).unwrap();
    world.run(&["import", "pi", path.to_str().unwrap()]).ok();
    let shown = world.run(&["show", "old-1", "--json"]).ok().text();
    assert!(
        shown.contains("something new") && shown.contains("and the rest") && !shown.contains(SECRET),
        "{shown}"
    );
    let raw = std::fs::read(world.store()).unwrap();
    assert!(!contains(&raw, SECRET.as_bytes()));
    world.check();
}

#[test]
fn doctor_tells_the_bytes_of_every_holder() {
    let world = World::says("One.");
    world.run(&["-p", "hello"]).ok();
    let told = world.run(&["doctor", "--json"]).ok().json();
    let holders = told["holders"].as_array().unwrap();
    let names: Vec<&str> = holders.iter().map(|holder| holder["holder"].as_str().unwrap()).collect();
    let all = [
        "memory",
        "store.graph",
        "store.jobs",
        "store.memory-dreams",
        "store.search",
        "store.semantic",
        "store.activity",
        "store.copies",
        "outputs",
        "caches",
        "written",
        "permissions",
        "history",
        "drafts",
        "trace",
    ];
    assert_eq!(names, all);
    assert!(holders.iter().all(|holder| holder["bytes"].is_u64() && holder.get("error").is_none()), "{told}");
    assert!(holders[1]["bytes"].as_u64().unwrap() > 4_096);
    let text = world.run(&["doctor"]).ok().text();
    assert!(text.contains("content") && text.contains("store.graph"), "{text}");
}

#[test]
fn files_written_for_somebody_are_known_and_erased() {
    let world = World::new(["One.", "Two.", "Three."].map(|text| Answer::new().text(text).reply()));
    world.unchecked();
    let (tape, log, file, picture) = (
        world.path("tape.jsonl"),
        world.path("trace.jsonl"),
        world.path("work/own.jsonl"),
        world.path("a.svg"),
    );
    let said = format!("the code is {SECRET}");
    let mut command = world.quipu(&["-p", "--record", tape.to_str().unwrap(), &said]);
    command.env("QUIPU_LOG", "info").env("QUIPU_LOG_FILE", &log);
    RunningCommand::start(command).wait().ok();
    let id = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    world.run(&["life", &id, "--svg", picture.to_str().unwrap()]).ok();
    world.run(&["-p", "--session", file.to_str().unwrap(), &said]).ok();
    let listed = std::fs::read_to_string(world.path("home/.quipu/written.jsonl")).unwrap();
    let kinds: Vec<Value> = listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut kinds: Vec<&str> = kinds.iter().map(|line| line["kind"].as_str().unwrap()).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, ["picture", "recording", "sessionFile", "trace"]);
    assert_eq!(mode(&world.path("home/.quipu/written.jsonl")), 0o600);
    let before = std::fs::read_to_string(&file).unwrap();
    assert!(before.contains(SECRET));

    for (holder, erased) in erase(&world, needle(SECRET)) {
        assert_eq!(erased.kept, [], "{holder}");
    }
    assert!(!tape.exists());
    let after = std::fs::read_to_string(&file).unwrap();
    assert!(!after.contains(SECRET));
    assert_eq!((after.len(), after.lines().count()), (before.len(), before.lines().count()));
    // The session goes on in its file.
    world.run(&["-p", "--session", file.to_str().unwrap(), "and on"]).ok();
    let request = serde_json::to_string(&messages(world.requests().last().unwrap())).unwrap();
    assert!(request.contains("and on") && !request.contains(SECRET), "{request}");
    assert!(std::fs::read_to_string(&file).unwrap().contains("and on"));
    healthy(&world);
}
