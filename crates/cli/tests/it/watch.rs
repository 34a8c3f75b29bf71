//! `quipu import --watch`: what other agents write Watching for new messages.

use std::io::Write as _;
use std::path::Path;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::archive::{ID, conversation, header, lines, user};
use crate::support::*;

fn append(file: &Path, text: &str) {
    let mut file = std::fs::File::options().append(true).open(file).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

/// The next report.
fn next(running: &mut RunningCommand) -> Value {
    let line = running.line().expect("a report");
    serde_json::from_str(&line).unwrap()
}

#[test]
fn watch_imports_new_lines() {
    let world = World::new([]);
    world.unchecked();
    let dir = world.path("home/.pi/agent/sessions/--work--");
    std::fs::create_dir_all(&dir).unwrap();
    let (first, second) = (dir.join("first.jsonl"), dir.join("second.jsonl"));
    std::fs::write(&first, lines(&conversation(&world, ID))).unwrap();
    let mut watch = world.start(&["import", "--watch", "--yes", "--json"]);
    let report = next(&mut watch);
    assert_eq!((&report["added"], &report["branches"]), (&json!(9), &json!(2)), "{report}");
    watch.says("Watching for new messages");

    // A line in two pieces: the first is no entry yet.
    let line = lines(&[user("u4", "a3", "And now for something completely different.")]);
    let (head, rest) = line.split_at(60);
    append(&first, head);
    append(&first, rest);
    let report = next(&mut watch);
    assert_eq!((&report["session"], &report["added"], &report["lost"]), (&json!(ID), &json!(1), &json!(0)));
    let found = world.run(&["search", "completely different", "--json"]).ok().json_lines();
    assert_eq!(found[0]["session"], ID, "{found:?}");

    // A new session, and a directory that was not there when it began.
    const OTHER: &str = "0199aaaa-0000-7000-8000-000000000002";
    std::fs::write(&second, lines(&[header(&world, OTHER)])).unwrap();
    append(&second, &lines(&[user("x1", "nobody", "Hello?")]));
    let mut added = 0;
    while added < 1 {
        let report = next(&mut watch);
        assert_eq!(report["session"], OTHER, "{report}");
        added += report["added"].as_u64().unwrap();
    }
    let other = world.path("home/.codex/sessions/2025/08/01");
    std::fs::create_dir_all(&other).unwrap();
    let bare = [
        json!({ "id": "0199bbbb-0000-7000-8000-000000000001", "timestamp": "2025-08-01T00:00:00.000Z", "instructions": null }),
        json!({ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "From elsewhere." }] }),
    ];
    std::fs::write(
        other.join("rollout-2025-08-01T00-00-00-0199bbbb-0000-7000-8000-000000000001.jsonl"),
        lines(&bare),
    )
    .unwrap();
    assert_eq!(next(&mut watch)["added"], 1);

    // What is removed, or is no session, ends nothing.
    std::fs::remove_file(&second).unwrap();
    std::fs::write(dir.join("third.jsonl"), "{}\n").unwrap();
    assert!(next(&mut watch)["error"].is_string());
    append(&first, &lines(&[user("u5", "u4", "Still here.")]));
    assert_eq!(next(&mut watch)["added"], 1);
    watch.signal(Signal::SIGINT);
    assert_eq!(watch.wait().status.code(), Some(130));

    // What came in is what an import would have taken.
    let reports = world.run(&["import", "pi", first.to_str().unwrap(), "--json"]).ok().json_lines();
    assert_eq!((&reports[0]["added"], &reports[0]["changed"]), (&json!(0), &json!(0)), "{reports:?}");
}

#[test]
fn killed_while_it_follows_nothing_is_missing_afterwards() {
    let world = World::new([]);
    world.unchecked();
    let file = world.file("s.jsonl", lines(&conversation(&world, ID)));
    let name = file.to_str().unwrap();
    let args = ["import", "pi", name, "--watch", "--json"];
    let mut before = "a3".to_owned();
    let mut written = 9;
    for round in 0..4 {
        let mut watch = world.start(&args);
        drop(next(&mut watch));
        let mut batch = Vec::new();
        for entry in 0..50 {
            let id = format!("n{round}x{entry}");
            batch.push(user(&id, &before, "more"));
            before = id;
        }
        written += batch.len();
        append(&file, &lines(&batch));
        if round % 2 == 0 {
            drop(next(&mut watch));
        }
        watch.signal(Signal::SIGKILL);
        watch.wait();
    }
    let report = world.run(&["import", "pi", name, "--json"]).ok().json_lines().remove(0);
    let export = world.run(&["export", "--format", "pi", ID]).ok().json_lines();
    assert_eq!(export.len(), written + 1, "{report}");
}

#[test]
fn an_answer_that_was_not_whole_comes_in_when_it_is() {
    let world = World::new([]);
    world.unchecked();
    let dir = world.path("home/.claude/projects/-work");
    std::fs::create_dir_all(&dir).unwrap();
    const SESSION: &str = "0199cccc-0000-7000-8000-000000000001";
    let record = |kind: &str, id: &str, parent: Value, message: Value| {
        json!({ "type": kind, "uuid": id, "parentUuid": parent, "sessionId": SESSION, "cwd": world.path("work"),
            "timestamp": "2025-08-01T00:00:00.000Z", "version": "2.1.329", "message": message })
    };
    let answer = json!({ "id": "m1", "type": "message", "role": "assistant", "model": "claude-x", "stop_reason": "end_turn",
        "content": [{ "type": "text", "text": "Yes?" }], "usage": { "input_tokens": 1, "output_tokens": 1 } });
    let entries = [
        record("user", "u1", Value::Null, json!({ "role": "user", "content": "Hello." })),
        record("assistant", "a1", json!("u1"), answer),
    ];
    std::fs::write(dir.join(format!("{SESSION}.jsonl")), lines(&entries)).unwrap();
    let mut watch = world.start(&["import", "claude-code", "--watch", "--json"]);
    let first = next(&mut watch);
    assert_eq!((&first["added"], &first["lost"]), (&json!(1), &json!(1)), "{first}");
    let second = next(&mut watch);
    assert_eq!((&second["added"], &second["lost"]), (&json!(1), &json!(0)), "{second}");
    watch.signal(Signal::SIGTERM);
    assert_eq!(watch.wait().status.code(), Some(143));
}

#[test]
fn nothing_there_yet_is_no_reason_not_to_watch() {
    let world = World::new([]);
    world.unchecked();
    let mut watch = world.start(&["import", "pi", "--watch", "--json"]);
    watch.says("Watching for new messages");
    let dir = world.path("home/.pi/agent/sessions/--work--");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("s.jsonl"), lines(&conversation(&world, ID))).unwrap();
    assert_eq!(next(&mut watch)["added"], 9);
    watch.signal(Signal::SIGINT);
    watch.wait();
    world.run(&["import", "pi", "--watch", "--dry-run"]).fails(2, &["--dry-run"]);
}

/// Bytes that a process has asked the system for, but for those of the store's own threads, which live as long as it does:
/// they copy its log into its file when nobody writes for a moment.
#[cfg(target_os = "linux")]
fn read_by(running: &RunningCommand) -> u64 {
    let asked = |dir: &Path| -> u64 {
        let told = std::fs::read_to_string(dir.join("io")).unwrap();
        told.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
    };
    let process = Path::new("/proc").join(running.pid().to_string());
    let mut of_the_store = 0;
    for thread in std::fs::read_dir(process.join("task")).unwrap() {
        let thread = thread.unwrap().path();
        // One that ended meanwhile has no name any more.
        if std::fs::read_to_string(thread.join("comm")).is_ok_and(|name| name.starts_with("quipu-store-")) {
            of_the_store += asked(&thread);
        }
    }
    asked(&process) - of_the_store
}

/// Of a file that grows what was read is not read again.
#[cfg(target_os = "linux")]
#[test]
fn watch_skips_unchanged_files() {
    let world = World::new([]);
    world.unchecked();
    let text = "words of some length ".repeat(600);
    let mut entries = vec![header(&world, ID), user("n0", "", &text)];
    entries.extend((1..1_200).map(|n| user(&format!("n{n}"), &format!("n{}", n - 1), &text)));
    let file = world.file("s.jsonl", lines(&entries));
    let size = std::fs::metadata(&file).unwrap().len();
    assert!(size > 14_000_000, "{size}");
    let mut watch = world.start(&["import", "pi", file.to_str().unwrap(), "--watch", "--json"]);
    assert_eq!(next(&mut watch)["added"], 1_200);
    watch.says("Watching for new messages");
    let mut before = "n1199".to_owned();
    let mut read = Vec::new();
    for round in 0..4 {
        let id = format!("m{round}");
        let begun = read_by(&watch);
        append(&file, &lines(&[user(&id, &before, "more")]));
        assert_eq!(next(&mut watch)["added"], 1);
        read.push(read_by(&watch) - begun);
        before = id;
    }
    // Where the first goes on is told by the hash of what stands before it.
    assert!(read[1..].iter().all(|read| *read < size / 4 * 3), "{read:?}");
    watch.signal(Signal::SIGINT);
    watch.wait();
    let report = world.run(&["import", "pi", file.to_str().unwrap(), "--json"]).ok().json_lines().remove(0);
    assert_eq!(
        (&report["unchanged"], &report["bytes"]),
        (&json!(true), &json!(std::fs::metadata(&file).unwrap().len()))
    );
}

/// Makes a line of a session file, by its number and text.
#[cfg(target_os = "linux")]
type LineMaker = fn(usize, &str) -> Value;

#[cfg(target_os = "linux")]
fn others(world: &World) -> [(&'static str, &'static str, Option<Value>, LineMaker); 5] {
    const TIME: &str = "2026-01-02T03:04:05.000Z";
    fn before(at: usize) -> Value {
        at.checked_sub(1).map_or(Value::Null, |before| json!(format!("n{before}")))
    }
    let record: LineMaker = |at, text| {
        json!({ "type": "user", "uuid": format!("n{at}"), "parentUuid": before(at), "timestamp": TIME, "cwd": "/p",
            "sessionId": "0199cccc-0000-7000-8000-000000000009", "message": { "role": "user", "content": text } })
    };
    let item: LineMaker = |at, text| {
        let content = json!([{ "type": "input_text", "text": text }]);
        json!({ "timestamp": TIME, "ordinal": at + 1, "type": "response_item",
            "payload": { "type": "message", "role": "user", "content": content } })
    };
    let message: LineMaker = |at, text| json!({ "id": format!("n{at}"), "timestamp": TIME, "type": "user", "content": [{ "text": text }] });
    let event: LineMaker = |at, text| {
        let parent = if at == 0 { json!("start") } else { before(at) };
        json!({ "type": "user.message", "data": { "content": text }, "id": format!("n{at}"), "timestamp": TIME, "parentId": parent })
    };
    let entry: LineMaker = |at, text| match at {
        0 => user("n0", "", text),
        at => user(&format!("n{at}"), &format!("n{}", at - 1), text),
    };
    let meta = json!({ "id": "0199bbbb", "timestamp": TIME, "cwd": "/p" });
    let meta = json!({ "timestamp": TIME, "ordinal": 0, "type": "session_meta", "payload": meta });
    let log = json!({ "sessionId": "log", "projectHash": "h", "startTime": TIME, "kind": "main" });
    let start = json!({ "sessionId": "events", "context": { "cwd": "/p" } });
    let start =
        json!({ "type": "session.start", "data": start, "id": "start", "timestamp": TIME, "parentId": null });
    [
        ("claude-code", "0199cccc-0000-7000-8000-000000000009.jsonl", None, record),
        ("codex", "rollout-2026-01-02T03-00-00-0199bbbb.jsonl", Some(meta), item),
        ("gemini-cli", "session-log.jsonl", Some(log), message),
        ("copilot-cli", "events.jsonl", Some(start), event),
        ("openclaw", "claws.jsonl", Some(header(world, "claws")), entry),
    ]
}

/// The same of the files of every agent that writes lines.
#[cfg(target_os = "linux")]
#[test]
fn of_no_file_of_lines_what_was_read_is_read_again() {
    let world = World::new([]);
    world.unchecked();
    let text = "words of some length ".repeat(600);
    for (agent, name, head, next_line) in others(&world) {
        let mut entries: Vec<Value> = head.into_iter().collect();
        entries.extend((0..600).map(|at| next_line(at, &text)));
        let file = world.file(name, lines(&entries));
        let size = std::fs::metadata(&file).unwrap().len();
        assert!(size > 7_000_000, "{size}");
        let mut watch = world.start(&["import", agent, file.to_str().unwrap(), "--watch", "--json"]);
        assert_eq!(next(&mut watch)["added"], 600, "{agent}");
        watch.says("Watching for new messages");
        // What was stored is read once more for the search: not by the one that is measured.
        world.run(&["search", "length", "--json"]).ok();
        let mut read = Vec::new();
        for at in 600..606 {
            let begun = read_by(&watch);
            append(&file, &lines(&[next_line(at, "more")]));
            let report = next(&mut watch);
            assert_eq!((&report["added"], &report["present"]), (&json!(1), &json!(at)), "{agent}");
            read.push(read_by(&watch) - begun);
        }
        // The store reads for itself now and then, much at once: what is appended takes the least.
        read.sort_unstable();
        assert!(read[..2].iter().all(|read| *read < size / 16), "{agent}: {size} {read:?}");
        watch.signal(Signal::SIGINT);
        watch.wait();
        let report =
            world.run(&["import", agent, file.to_str().unwrap(), "--json"]).ok().json_lines().remove(0);
        assert_eq!(
            (&report["unchanged"], &report["bytes"]),
            (&json!(true), &json!(std::fs::metadata(&file).unwrap().len())),
            "{agent}"
        );
    }
}
