//! An import that is killed at any point, finds no room, or is not alone, goes on when it is run again: what is in the store at
//! the end is what one import alone gives.

#[path = "../../../archive/tests/it/zips.rs"]
mod zips;

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use quipu_protocol::NodeId;
use quipu_store::{LineageEnd, OpenOptions, SqliteStore, Store};
use serde_json::{Value, json};

use crate::archive::{header, lines, user};
use crate::support::*;

/// Messages of each file: several commits.
const MESSAGES: usize = 2_500;
/// The times of all messages begin here: seconds.
const BEGIN: usize = 1_767_322_800;

fn iso(second: usize) -> String {
    format!(
        "2026-01-{:02}T{:02}:{:02}:{:02}.000Z",
        2 + second / 86_400,
        second / 3_600 % 24,
        second / 60 % 60,
        second % 60
    )
}

fn is_prompt(at: usize) -> bool {
    at.is_multiple_of(2)
}

/// A file for each reader.
fn files(world: &World) -> Vec<(&'static str, PathBuf)> {
    let all = || 0..MESSAGES;
    let before = |at: usize| if at == 0 { Value::Null } else { json!(format!("n{}", at - 1)) };
    let chats = all().step_by(500).map(|first| {
        let node = |at: usize| {
            let role = if is_prompt(at) { "user" } else { "assistant" };
            let parent = if at == first { Value::Null } else { before(at) };
            let message = json!({ "id": format!("n{at}"), "author": { "role": role }, "create_time": BEGIN + at,
                "content": { "content_type": "text", "parts": [format!("text {at}")] } });
            (format!("n{at}"), json!({ "id": format!("n{at}"), "parent": parent, "message": message }))
        };
        let mapping: serde_json::Map<String, Value> = (first..first + 500).map(node).collect();
        json!({ "id": format!("chat-{first}"), "title": "A title", "create_time": BEGIN, "mapping": mapping,
            "current_node": format!("n{}", first + 499) })
    });
    let said = all().step_by(1_250).map(|first| {
        let message = |at: usize| {
            let sender = if is_prompt(at) { "human" } else { "assistant" };
            json!({ "uuid": format!("n{at}"), "sender": sender, "created_at": iso(at), "content": [{ "type": "text", "text": format!("text {at}") }] })
        };
        let messages: Vec<Value> = (first..first + 1_250).map(message).collect();
        json!({ "uuid": format!("said-{first}"), "name": "", "created_at": iso(0), "chat_messages": messages })
    });
    let activity = all().step_by(2).map(|at| {
        json!({ "header": "Gemini Apps", "products": ["Gemini Apps"], "title": format!("Prompted text {at}"), "time": iso(at * 60),
            "safeHtmlItem": [{ "html": format!("<p>answer {at}</p>") }] })
    });
    // Ends with a prompt, as do two below: an answer at the end counts as one that is being written for two minutes.
    let log = std::iter::once(json!({ "sessionId": "log", "projectHash": "h", "startTime": iso(0), "kind": "main" })).chain((0..=MESSAGES).map(|at| {
        let kind = if is_prompt(at) { "user" } else { "gemini" };
        json!({ "id": format!("n{at}"), "timestamp": iso(at), "type": kind, "content": [{ "text": format!("text {at}") }] })
    }));
    let start = json!({ "type": "session.start", "data": { "sessionId": "events", "context": { "cwd": "/p" } }, "id": "start",
        "timestamp": iso(0), "parentId": null });
    let events = std::iter::once(start).chain(all().map(|at| {
        let kind = if is_prompt(at) { "user.message" } else { "assistant.message" };
        let parent = if at == 0 { json!("start") } else { before(at) };
        json!({ "type": kind, "data": { "content": format!("text {at}") }, "id": format!("n{at}"), "timestamp": iso(at), "parentId": parent })
    }));
    let claws = std::iter::once(header(world, "claws")).chain(all().map(|at| match at {
        0 => user("n0", "", "text"),
        at => user(&format!("n{at}"), &format!("n{}", at - 1), "text"),
    }));
    let requests: Vec<Value> = all()
        .step_by(2)
        .map(|at| {
            json!({ "requestId": format!("r{at}"), "responseId": format!("a{at}"), "message": { "text": format!("text {at}") },
                "response": [{ "value": "Yes." }], "timestamp": (BEGIN + at) * 1_000, "result": { "timings": {} } })
        })
        .collect();
    let chat = json!({ "responderUsername": "x", "requests": requests });
    let chats = json!(chats.collect::<Vec<_>>()).to_string();
    let records = (0..=MESSAGES).map(|at| {
        let is_prompt = is_prompt(at) || at == MESSAGES;
        let (role, content) = if is_prompt { ("user", json!(format!("text {at}"))) } else { ("assistant", json!([{ "type": "text", "text": format!("text {at}") }])) };
        let message = json!({ "id": format!("m{at}"), "role": role, "model": "x", "content": content, "stop_reason": "end_turn" });
        json!({ "type": role, "uuid": format!("n{at}"), "parentUuid": before(at), "sessionId": "0199cccc-0000-7000-8000-000000000009", "cwd": "/p",
            "timestamp": iso(at), "version": "2.1.0", "message": message })
    });
    let meta = json!({ "id": "0199bbbb", "timestamp": iso(0), "cwd": "/p" });
    let meta = json!({ "timestamp": iso(0), "ordinal": 0, "type": "session_meta", "payload": meta });
    let items = std::iter::once(meta).chain((0..=MESSAGES).map(|at| {
        let (role, kind) = if is_prompt(at) || at == MESSAGES { ("user", "input_text") } else { ("assistant", "output_text") };
        let message = json!({ "type": "message", "role": role, "content": [{ "type": kind, "text": format!("text {at}") }] });
        json!({ "timestamp": iso(at), "ordinal": at + 1, "type": "response_item", "payload": message })
    }));
    vec![
        ("chatgpt", world.file("conversations.json", &chats)),
        (
            "claude-code",
            world.file("0199cccc-0000-7000-8000-000000000009.jsonl", lines(&records.collect::<Vec<_>>())),
        ),
        (
            "codex",
            world.file("rollout-2026-01-02T03-00-00-0199bbbb.jsonl", lines(&items.collect::<Vec<_>>())),
        ),
        ("opencode", storage(world)),
        ("opencode", world.file("opencode.db", unpacked("fixtures/many.db.gz"))),
        (
            "chatgpt",
            world.file(
                "export.zip",
                zips::zip(
                    &[
                        zips::deflated("conversations.json", chats.as_bytes()),
                        zips::stored("user.json", b"{}"),
                    ],
                    false,
                ),
            ),
        ),
        ("claude-ai", world.file("said.json", json!(said.collect::<Vec<_>>()).to_string())),
        ("gemini-takeout", world.file("MyActivity.json", json!(activity.collect::<Vec<_>>()).to_string())),
        ("gemini-cli", world.file("session-log.jsonl", lines(&log.collect::<Vec<_>>()))),
        ("copilot-cli", world.file("events.jsonl", lines(&events.collect::<Vec<_>>()))),
        ("openclaw", world.file("claws.jsonl", lines(&claws.collect::<Vec<_>>()))),
        ("vscode-chat", world.file("chat.json", chat.to_string())),
    ]
}

fn unpacked(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let packed = std::fs::read(crate::exports::fixture(name)).unwrap();
    flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut bytes).unwrap();
    bytes
}

/// The files of an agent that keeps one for each session, message and part.
fn storage(world: &World) -> PathBuf {
    let write = |path: String, value: &Value| {
        let path = world.path(&format!("work/storage/{path}.json"));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, value.to_string()).unwrap();
    };
    for first in (0..MESSAGES).step_by(1_250) {
        let session = format!("ses_{first}");
        let at = |at: usize| json!({ "created": (BEGIN + at) * 1_000 });
        write(
            format!("session/p/{session}"),
            &json!({ "id": session, "directory": "/p", "title": "A title", "version": "1.0.0", "time": at(first) }),
        );
        for n in first..first + 1_250 {
            let (message, part) = (format!("msg_{n:05}"), format!("prt_{n:05}"));
            write(
                format!("message/{session}/{message}"),
                &json!({ "id": message, "sessionID": session, "role": "user", "time": at(n) }),
            );
            write(
                format!("part/{message}/{part}"),
                &json!({ "id": part, "sessionID": session, "messageID": message, "type": "text", "text": format!("text {n}") }),
            );
        }
    }
    world.path("work/storage")
}

/// Every ref with its node, and all nodes, of a store.
fn all(path: &Path) -> (Vec<(String, NodeId)>, Vec<NodeId>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let store = SqliteStore::open(path, &OpenOptions::default()).unwrap();
        let heads = store.heads("").await.unwrap();
        let mut nodes = Vec::new();
        for head in &heads {
            nodes.extend(
                store.lineage(head.node, LineageEnd::Root).await.unwrap().into_iter().map(|node| node.id),
            );
        }
        nodes.sort();
        nodes.dedup();
        (heads.into_iter().map(|head| (head.name.to_string(), head.node)).collect(), nodes)
    })
}

#[test]
fn killed_at_any_point_each_import_goes_on() {
    let world = World::new([]);
    world.unchecked();
    let mut files = files(&world);
    let (mut graph, mut killed) = (None, 0);
    // The graph of the sessions before it is what the last one reads.
    while let Some((agent, file)) = files.first().cloned().or_else(|| graph.take()) {
        if !files.is_empty() {
            files.remove(0);
        }
        let name = file.to_str().unwrap();
        let kind = file.extension().and_then(|end| end.to_str()).unwrap_or_default();
        let whole = world.path(&format!("tmp/{agent}-{kind}-whole.db"));
        let begun = Instant::now();
        world.run(&["import", agent, name, "--store", whole.to_str().unwrap()]).ok();
        let took = begun.elapsed();
        let store = world.path(&format!("tmp/{agent}-{kind}.db"));
        let args = ["import", agent, name, "--store", store.to_str().unwrap()];
        for part in 1..=3 {
            let mut running = world.start(&args);
            let until = Instant::now() + took * part / 4 + Duration::from_micros(u64::from(part) * 777);
            while Instant::now() < until {
                std::hint::spin_loop();
            }
            killed += u32::from(running.child.try_wait().unwrap().is_none());
            kill(running.pid(), Signal::SIGKILL).ok();
            running.wait();
        }
        world.run(&args).ok();
        assert_eq!(all(&store), all(&whole), "{agent}");
        assert!(all(&whole).1.len() >= MESSAGES, "{agent}");
        if kind == "zip" {
            graph = Some(("playfilo", whole));
        }
    }
    assert!(killed > 8, "the imports were over before they could be killed");
}

/// The rest is taken in, and programs find in the reports what was not.
#[test]
fn partial_import_is_reported_by_the_exit_code() {
    let world = World::new([]);
    world.unchecked();
    let whole = lines(&[header(&world, "whole"), user("n0", "", "Whole.")]);
    // Bytes that look like nothing, a last line that is being written, and a line that is none.
    let torn = format!("{}{{\"type\":", whole.replace("whole", "torn"));
    let none = whole.replace("whole", "none").replace("Whole.", "No JSON: \u{1}");
    let message = json!({ "id": "a", "author": { "role": "user" }, "create_time": BEGIN, "content": { "content_type": "text", "parts": ["Look."] } });
    let chat = json!({ "id": "chat", "create_time": BEGIN, "mapping": { "a": { "id": "a", "parent": null, "message": message } } });
    let bomb = format!("[{chat},{}{chat}]", " ".repeat(64 << 20));
    let bomb = zips::zip(&[zips::deflated("conversations.json", bomb.as_bytes())], false);
    assert!(bomb.len() < 1 << 20, "{}", bomb.len());
    for (agent, name, content, code, lost, pending) in [
        ("pi", "whole.jsonl", whole.as_bytes(), 0, 0, 0),
        ("pi", "torn.jsonl", torn.as_bytes(), 0, 1, 1),
        ("pi", "none.jsonl", none.as_bytes(), 1, 1, 0),
        ("chatgpt", "bomb.zip", &bomb, 1, 1, 0),
    ] {
        let file = world.file(name, content);
        let args = ["import", agent, file.to_str().unwrap()];
        // What may be complete later is not lost for people either.
        let shown = world.run(&[&args[..], &["--dry-run"]].concat()).exits(code).text();
        assert_eq!(shown.contains("1 held back until complete"), pending == 1, "{shown}");
        assert_eq!(shown.contains("1 lost"), lost > pending, "{shown}");
        let ran = world.run(&[&args[..], &["--dry-run", "--json"]].concat()).exits(code);
        assert_eq!(sum(&ran.json_lines(), "lost"), lost, "{name}");
        let ran = world.run(&[&args[..], &["--json"]].concat()).exits(code);
        let reports = ran.json_lines();
        assert_eq!((sum(&reports, "lost"), sum(&reports, "pending")), (lost, pending), "{name}: {reports:?}");
        assert!(code == 0 || ran.message().contains("parts of 1 file could not be imported"), "{}", ran.err);
    }
    // As a line each, whether a file or what it is in cannot be read.
    for (agent, name) in [("pi", "nowhere"), ("codex", "whole.jsonl")] {
        let ran = world.run(&["import", agent, name, "--json"]).exits(1);
        let told = ran.json_lines();
        assert!(told.len() == 1 && told[0]["error"].as_str().unwrap().contains(name), "{told:?}");
        assert!(told[0]["path"].as_str().unwrap().ends_with(name), "{told:?}");
    }
}

/// A sum of a report over several.
fn sum(reports: &[Value], name: &str) -> u64 {
    reports.iter().filter_map(|report| report[name].as_u64()).sum()
}

/// A file of each way in which sessions come, one of them with many branches: each end has a ref.
fn few(world: &World) -> Vec<(&'static str, PathBuf)> {
    let entries = (0..MESSAGES).map(|at| match at {
        0 => user("n0", "", "text"),
        at => user(&format!("n{at}"), &format!("n{}", if at % 5 == 0 { at / 2 } else { at - 1 }), "text"),
    });
    let entries: Vec<Value> = std::iter::once(header(world, "branches")).chain(entries).collect();
    let mut files = files(world);
    files.retain(|(agent, file)| {
        ["claude-code", "opencode"].contains(agent) || file.extension().is_some_and(|end| end == "zip")
    });
    files.push(("pi", world.file("branches.jsonl", lines(&entries))));
    files
}

#[test]
fn two_imports_at_once_give_what_one_gives() {
    let world = World::new([]);
    world.unchecked();
    for (agent, file) in few(&world) {
        let name = file.to_str().unwrap();
        let kind = file.extension().and_then(|end| end.to_str()).unwrap_or_default();
        let [whole, store] =
            ["one", "two"].map(|which| world.path(&format!("tmp/{agent}-{kind}-{which}.db")));
        world.run(&["import", agent, name, "--store", whole.to_str().unwrap()]).ok();
        let args = ["import", agent, name, "--json", "--store", store.to_str().unwrap()];
        for reports in [world.start(&args), world.start(&args)].map(|one| one.wait().ok().json_lines()) {
            assert_eq!(sum(&reports, "changed") + sum(&reports, "lost"), 0, "{agent}: {reports:?}");
        }
        assert_eq!(all(&store), all(&whole), "{agent}");
        let again = world.run(&args).ok().json_lines();
        assert_eq!(sum(&again, "added"), 0, "{agent}: {again:?}");
    }
}

#[test]
fn import_without_disk_space_resumes_when_there_is_some() {
    let world = World::new([]);
    world.unchecked();
    for (agent, file) in few(&world) {
        let name = file.to_str().unwrap();
        let kind = file.extension().and_then(|end| end.to_str()).unwrap_or_default();
        let [whole, store] =
            ["whole", "full"].map(|which| world.path(&format!("tmp/{agent}-{kind}-{which}.db")));
        world.run(&["import", agent, name, "--store", whole.to_str().unwrap()]).ok();
        let args = ["import", agent, name, "--store", store.to_str().unwrap()];
        // A file may have so many blocks of 512 bytes.
        let mut command = world.command("sh");
        command
            .args(["-c", "trap '' XFSZ; ulimit -f 600; exec \"$0\" \"$@\""])
            .arg(&world.program)
            .args(args);
        RunningCommand::start(command).wait().fails(4, &["room"]);
        world.run(&args).ok();
        assert_eq!(all(&store), all(&whole), "{agent}");
    }
}
