//! A turn that ended comes into the graph, in a process of its own.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use quipu_integrations::read_log;
use serde_json::{Value, json};

use super::{hook, payload};
use crate::support::*;

const ID: &str = "3f2a7c1e-5b6d-4e8f-9a0b-1c2d3e4f5a6b";
/// How long a turn may take to arrive.
const LIMIT: Duration = Duration::from_secs(120);

fn line(uuid: u32, parent: Option<u32>, kind: &str, message: &Value, world: &World) -> String {
    let id = |n: u32| format!("00000000-0000-4000-8000-{n:012}");
    let record = json!({ "type": kind, "uuid": id(uuid), "parentUuid": parent.map(id), "sessionId": ID, "isSidechain": false,
        "cwd": world.path("work"), "version": "2.1.329", "timestamp": format!("2026-11-20T10:00:{uuid:02}.000Z"),
        "message": message });
    format!("{record}\n")
}

fn turn(n: u32, prompt: &str, answer: &str, world: &World) -> String {
    let user = json!({ "role": "user", "content": prompt });
    let said = json!({ "id": format!("msg_{n}"), "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
        "content": [{ "type": "text", "text": answer }], "usage": { "input_tokens": 10, "output_tokens": 2 } });
    line(2 * n, (n > 0).then(|| 2 * n - 1), "user", &user, world)
        + &line(2 * n + 1, Some(2 * n), "assistant", &said, world)
}

fn file(world: &World) -> PathBuf {
    let path = world.path("home").join(format!(".claude/projects/-work/{ID}.jsonl"));
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    path
}

/// Waits until a search finds the words.
fn arrives(world: &World, words: &str) {
    let began = Instant::now();
    while !world.run(&["search", words, "--json"]).text().contains("\"node\"") {
        let problems = read_log(&world.path("home/.quipu/hooks"));
        assert!(began.elapsed() < LIMIT, "{words} did not arrive: {problems:?}");
    }
}

#[test]
fn ended_turn_arrives_also_when_two_end_at_once() {
    let world = World::says("nothing");
    let path = file(&world);
    std::fs::write(&path, turn(0, "Name the heron", "It is called Ardea.", &world)).unwrap();
    let payload = payload(&world, &json!({ "session_id": ID, "transcript_path": path }));
    std::thread::scope(|scope| {
        for event in ["Stop", "Stop", "SessionEnd"] {
            let (world, payload) = (world.path("home"), payload.clone());
            let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_quipu"));
            command.args(["hook", "claude-code", event]).env_clear().env("HOME", world);
            command.env("QUIPU_HOOK_DEADLINE_MS", "60000").stdin(std::process::Stdio::piped());
            scope.spawn(move || {
                let ran = super::run_to_end(command, payload.into_bytes()).ok();
                assert_eq!(ran.text(), "");
            });
        }
    });
    arrives(&world, "Ardea");
    let more =
        std::fs::read_to_string(&path).unwrap() + &turn(1, "And the owl?", "That one is Strix.", &world);
    std::fs::write(&path, more).unwrap();
    assert_eq!(hook(&world, "claude-code", "Stop", payload.as_str()).ok().text(), "");
    arrives(&world, "Strix");
    let sessions = world.sessions();
    assert_eq!(sessions.len(), 1, "{sessions:?}");
    assert_eq!(sessions[0]["id"], ID);
    assert_eq!(read_log(&world.path("home/.quipu/hooks")).unwrap(), []);
}

#[test]
fn file_that_is_no_session_of_the_agent_stays_out() {
    let world = World::says("nothing");
    let path = file(&world);
    let outside = world.file("outside.jsonl", turn(0, "Name the heron", "It is called Ardea.", &world));
    std::os::unix::fs::symlink(&outside, &path).unwrap();
    for named in [outside, path, PathBuf::from("/no/such/file")] {
        let payload = payload(&world, &json!({ "session_id": ID, "transcript_path": named }));
        assert_eq!(hook(&world, "claude-code", "Stop", payload).ok().text(), "");
    }
    let began = Instant::now();
    let problems = loop {
        let problems = read_log(&world.path("home/.quipu/hooks")).unwrap();
        assert!(began.elapsed() < LIMIT, "{problems:?}");
        if problems.len() == 3 {
            break problems;
        }
        std::thread::yield_now();
    };
    assert!(problems.iter().all(|line| line.event == "take-in"), "{problems:?}");
    assert!(world.sessions().is_empty());
}

#[test]
fn ended_turn_without_its_file_brings_no_other() {
    let world = World::says("nothing");
    let path = file(&world);
    std::fs::write(&path, turn(0, "Name the heron", "It is called Ardea.", &world)).unwrap();
    for event in ["Stop", "SessionEnd"] {
        assert_eq!(hook(&world, "claude-code", event, "").ok().text(), "");
        assert_eq!(hook(&world, "claude-code", event, payload(&world, &json!({}))).ok().text(), "");
    }
    // What began then is done when what began later is.
    let other = path.with_file_name("4f2a7c1e-5b6d-4e8f-9a0b-1c2d3e4f5a6b.jsonl");
    let text = turn(0, "And the owl?", "That one is Strix.", &world);
    std::fs::write(
        &other,
        text.replace(ID, "4f2a7c1e-5b6d-4e8f-9a0b-1c2d3e4f5a6b").replace("00000000-", "00000001-"),
    )
    .unwrap();
    let payload = payload(&world, &json!({ "session_id": "s", "transcript_path": other }));
    assert_eq!(hook(&world, "claude-code", "Stop", payload).ok().text(), "");
    arrives(&world, "Strix");
    let sessions = world.sessions();
    assert!(sessions.len() == 1 && sessions[0]["id"] != ID, "{sessions:?}");
}
