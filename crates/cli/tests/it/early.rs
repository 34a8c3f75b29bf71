//! The first call of a large session file, begun before all of the file is in the store.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use quipu_store::{OpenOptions, SessionQuery, SqliteStore, Store};
use quipu_testkit::{Answer, Gate, Reply};
use serde_json::{Value, json};

use crate::archive::{ID, assistant, entry, header, user};
use crate::session_file::{agrees, read, texts};
use crate::support::*;

/// Files of fewer bytes are read first.
const LARGE: usize = 4 << 20;
/// Entries between two compactions, those that each keeps, and those after the last one.
const COMPACTED: usize = 40;
const KEPT: usize = 4;
const TAIL: usize = 6;

/// A session of more than [`LARGE`] bytes: so many messages in a row, compacted again and again.
fn entries(world: &World, count: usize, tail: usize) -> Vec<Value> {
    let words = "words ".repeat((LARGE + 200_000) / 6 / count);
    let mut entries = vec![
        header(world, ID),
        entry("m1", None, &json!({ "type": "model_change", "provider": "testing", "modelId": MODEL })),
        entry("t1", Some("m1"), &json!({ "type": "thinking_level_change", "thinkingLevel": "off" })),
    ];
    let mut parent = "t1".to_owned();
    for n in 0..count {
        let id = format!("a{n}");
        entries.push(match n % 2 {
            0 => user(&id, &parent, &format!("question {n}: {words}")),
            _ => assistant(
                &id,
                &parent,
                &json!([{ "type": "text", "text": format!("answer {n}: {words}") }]),
                "stop",
            ),
        });
        parent = id;
        if (count - n - 1).checked_sub(tail).is_some_and(|left| left % COMPACTED == 0) && n >= COMPACTED {
            let id = format!("c{n}");
            let kept = format!("a{}", n + 1 - KEPT);
            let summary = json!({ "type": "compaction", "summary": format!("summary {n}"), "firstKeptEntryId": kept,
                "tokensBefore": 1000 });
            entries.push(entry(&id, Some(&parent), &summary));
            parent = id;
        }
    }
    entries
}

fn write(world: &World, entries: &[Value]) -> PathBuf {
    let text = crate::archive::lines(entries);
    assert!(text.len() > LARGE);
    world.file("s.jsonl", text)
}

fn says(texts: &[&str]) -> Vec<Reply> {
    texts.iter().map(|text| Answer::new().text(text).reply()).collect()
}

/// The nodes of the session that goes on.
fn own_nodes(world: &World) -> Vec<Value> {
    let sessions = world.sessions();
    let own = sessions.iter().find(|session| session["agent"] == "quipu").unwrap();
    world.nodes_of(&[own["id"].as_str().unwrap()])
}

/// Whether the first call of our session was sent before it was recorded there.
fn was_early(world: &World) -> bool {
    let nodes = own_nodes(world);
    let call = &nodes.iter().find(|node| !node["step"]["call"].is_null()).unwrap()["step"]["call"];
    call["attempts"][0]["at"].as_i64().unwrap() < call["started"].as_i64().unwrap()
}

/// Whether the session's ref stands at the end of the file already.
fn is_imported(world: &World) -> bool {
    in_store(world, async |store| {
        let query = SessionQuery { id: Some(ID.into()), ..SessionQuery::default() };
        store
            .sessions(query)
            .await
            .unwrap()
            .iter()
            .any(|row| row.head.is_some() && row.name.as_str() == format!("pi/{ID}"))
    })
}

fn in_store<T>(world: &World, ask: impl AsyncFnOnce(&SqliteStore) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = SqliteStore::open(&world.store(), &OpenOptions::default()).unwrap();
        ask(&store).await
    })
}

/// The nodes that our session added: kind of the entry, its text, and whether a model call stands at it.
fn ours(world: &World) -> Vec<(String, String, bool)> {
    let nodes = own_nodes(world);
    let own = nodes.iter().filter(|node| node["step"]["extra"]["pi"].is_null());
    own.map(|node| {
        let text = wire_text(&node["entry"]["message"]);
        (node["role"].as_str().unwrap_or_default().to_owned(), text, !node["step"]["call"].is_null())
    })
    .collect()
}

/// Whether the store is as it should be, with so many steps that are open.
fn is_healthy_with(world: &World, open: u32) -> bool {
    let doctor = world.run(&["doctor", "--json"]).ok().json();
    doctor["healthy"] == true && doctor.to_string().contains(&format!("; {open} open steps"))
}

fn remove_store(world: &World) {
    for end in ["", "-wal", "-shm"] {
        std::fs::remove_file(format!("{}{end}", world.store().display())).ok();
    }
}

fn file_lines(path: &Path) -> Vec<(Value, String)> {
    let of = |entry: &Value| (entry["type"].clone(), wire_text(&entry["message"]));
    read(path).iter().map(of).collect()
}

#[test]
fn what_is_sent_answered_and_kept_is_the_same() {
    let world = World::new(says(&["Early.", "Next.", "Early."]));
    let all = entries(&world, 440, TAIL);
    let path = write(&world, &all);
    let ran = world.run(&["-p", "--session", "s.jsonl", "And now?"]).ok();
    assert_eq!(ran.text(), "Early.\n");
    assert!(!ran.err.contains("model call"), "{}", ran.err);
    assert!(was_early(&world));
    assert_eq!(world.requests().len(), 1);
    let (early, file) = (ours(&world), file_lines(&path));
    let said: Vec<String> = messages(&world.requests()[0]).iter().map(wire_text).collect();
    assert!(said[0].contains("summary 433"), "{}", said[0]);
    assert_eq!(said.last().unwrap(), "And now?");
    assert!(is_healthy_with(&world, 0));
    agrees(&world, &path);

    // It goes on as usual.
    world.run(&["-p", "--session", "s.jsonl", "And then?"]).ok();
    let texts = texts(&path);
    assert_eq!(texts[texts.len() - 4..], ["And now?", "Early.", "And then?", "Next."]);

    // The same when the file is imported first.
    world.check();
    remove_store(&world);
    write(&world, &all);
    world.run(&["import", "pi", "s.jsonl"]).ok();
    let ran = world.run(&["-p", "--session", "s.jsonl", "And now?"]).ok();
    assert_eq!(ran.text(), "Early.\n");
    assert!(!was_early(&world));
    let requests = world.requests();
    assert_eq!(requests.len(), 3);
    assert!(requests[0].body == requests[2].body, "the two requests differ");
    assert_eq!((ours(&world), file_lines(&path)), (early, file));
    world.unchecked();
}

#[test]
fn it_is_sent_while_the_file_is_read_and_told_of_when_the_process_dies() {
    // Until the process is killed before it is done with the file.
    for _ in 0..5 {
        let gate = Gate::new();
        let mut world = World::new([Reply::sse("").then_gate(&gate)]);
        let path = write(&world, &entries(&world, 4_000, TAIL));
        let before = std::fs::read(&path).unwrap();
        let running = world.start(&["-p", "--session", "s.jsonl", "And now?"]);
        reached(&gate);
        running.signal(Signal::SIGKILL);
        running.wait();
        if is_imported(&world) {
            world.unchecked();
            continue;
        }
        assert_eq!(std::fs::read(&path).unwrap(), before);
        assert!(is_healthy_with(&world, 1));

        world.another_server(says(&["Here.", "Again."]));
        let ran = world.run(&["-p", "--session", "s.jsonl", "Are you there?"]).ok();
        assert_eq!(ran.text(), "Here.\n");
        assert!(ran.err.contains("A model call was interrupted earlier"), "{}", ran.err);
        let said: Vec<String> = messages(&world.requests()[0]).iter().map(wire_text).collect();
        assert_eq!(said.last().unwrap(), "Are you there?");
        assert!(said.iter().all(|text| text != "And now?"), "it was never accepted");
        let calls = ours(&world).into_iter().filter(|(.., call)| *call).count();
        assert_eq!(calls, 2);
        assert!(std::fs::read(&path).unwrap().starts_with(&before));

        // Once.
        let ran = world.run(&["-p", "--session", "s.jsonl", "Still?"]).ok();
        assert!(!ran.err.contains("interrupted"), "{}", ran.err);
        assert_eq!(ran.text(), "Again.\n");
        assert_eq!(read(&path).iter().filter(|line| line["customType"] == "quipu.early").count(), 1);
        assert!(is_healthy_with(&world, 0));
        return;
    }
    panic!("the file was read before the process could be killed");
}

#[test]
fn a_call_that_asked_something_else_is_stopped_and_made_anew() {
    for _ in 0..5 {
        let gate = Gate::new();
        let mut script = vec![Reply::sse("").then_gate(&gate)];
        script.extend(says(&["New.", "Next."]));
        let world = World::new(script);
        let all = entries(&world, 4_000, TAIL);
        let path = write(&world, &all);
        let running = world.start(&["-p", "--session", "s.jsonl", "And now?"]);
        reached(&gate);
        running.signal(Signal::SIGSTOP);
        let was_imported = is_imported(&world);
        let more = user("more", all.last().unwrap()["id"].as_str().unwrap(), "Another program says this.");
        let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(crate::archive::lines(&[more]).as_bytes()).unwrap();
        running.signal(Signal::SIGCONT);
        if was_imported {
            running.signal(Signal::SIGKILL);
            running.wait();
            world.unchecked();
            continue;
        }
        let ran = running.wait().ok();
        gate.open();
        assert_eq!(ran.text(), "New.\n");
        assert!(ran.err.contains("stopped since the session asked something else"), "{}", ran.err);
        let requests = world.requests();
        assert_eq!(requests.len(), 2);
        let said = |at: usize| messages(&requests[at]).iter().map(wire_text).collect::<Vec<_>>().join("\n");
        assert!(!said(0).contains("Another program says this.") && said(0).contains("And now?"));
        assert!(said(1).contains("Another program says this.") && said(1).contains("And now?"));

        // What it cost is kept beside the conversation.
        let ran = world.run(&["-p", "--session", "s.jsonl", "And then?"]).ok();
        assert!(ran.err.contains("A model call was interrupted earlier"), "{}", ran.err);
        assert_eq!(ours(&world).into_iter().filter(|(.., call)| *call).count(), 3);
        return;
    }
    panic!("the file was read before anything could be added to it");
}

#[test]
fn nothing_is_foreseen_of_an_unusual_file() {
    let change: [fn(&mut Vec<Value>, &mut String); 6] = [
        |entries, _| entries.push(user("a5", "a439", "A second one of this name.")),
        |entries, _| entries.push(user("x", "x", "After itself.")),
        |entries, _| entries.push(user("x", "nobody", "After nobody.")),
        |_, text| text.push_str("{\"type\":\"message\",\"id\":\"torn\""),
        |entries, _| entries[0]["version"] = json!(2),
        |entries, _| entries[0]["cwd"] = json!("/nowhere/at/all"),
    ];
    for (at, change) in change.into_iter().enumerate() {
        let world = World::new(says(&["One."]));
        let (mut all, mut torn) = (entries(&world, 440, TAIL), String::new());
        change(&mut all, &mut torn);
        let path = write(&world, &all);
        std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(torn.as_bytes()).unwrap();
        let ran = world.run(&["-p", "--session", "s.jsonl", "And now?"]);
        if at == 5 {
            ran.fails(2, &["/nowhere/at/all", "--cwd"]);
            assert_eq!(world.requests().len(), 0);
        } else {
            ran.ok();
            assert_eq!(world.requests().len(), 1);
            assert!(!was_early(&world), "{at}");
        }
    }
}

#[test]
fn nothing_is_foreseen_of_a_session_that_does_something_else_first() {
    // It is compacted before it can go on.
    let world = World::new(says(&["Sum."; 12]));
    write(&world, &entries(&world, 440, 90));
    world.run(&["-p", "--session", "s.jsonl", "And now?"]).ok();
    assert!(!was_early(&world));
    let said: Vec<String> = messages(&world.requests()[0]).iter().map(wire_text).collect();
    assert_ne!(said.last().unwrap(), "And now?");
    // All but the last request for a summary stand beside that in one node.
    world.unchecked();

    // What may be spent today is spent.
    let world = World::new(says(&["One.", "Two."]));
    world.run(&["-p", "hello"]).ok();
    write(&world, &entries(&world, 440, TAIL));
    let args = ["-p", "--session", "s.jsonl", "--daily-budget", "0.0000001", "And now?"];
    world.run(&args).fails(5, &["daily budget"]);
    assert_eq!(world.requests().len(), 1);

    // It is recorded.
    let world = World::new(says(&["One."]));
    write(&world, &entries(&world, 440, TAIL));
    world.run(&["-p", "--session", "s.jsonl", "--record", "r.jsonl", "And now?"]).ok();
    assert_eq!(world.requests().len(), 1);
    assert!(!was_early(&world));
}
