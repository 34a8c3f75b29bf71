//! Conversations that began in another gateway, and what people do to their sessions between two messages.

use super::conversations::{MAIN, Reader, queued, taken, world_with};
use super::*;

const KNOWN: &str = "11111111-0b5e-4f0a-9d1c-8f2f4a6b7c8d";
const GONE: &str = "22222222-0b5e-4f0a-9d1c-8f2f4a6b7c8d";
const GHOST: &str = "agent:main:direct:ghost";

/// A session that a model of this provider answered, as the other gateway writes it.
fn transcript(id: &str, provider: &str) -> String {
    let content = |text: &str| json!([{ "type": "text", "text": text }]);
    let asked = json!({ "role": "user", "content": content("Asked there."), "timestamp": 1 });
    let answered = json!({ "role": "assistant", "content": content("Answered there."), "api": "x", "provider": provider,
        "model": MODEL, "stopReason": "stop", "timestamp": 2,
        "usage": { "input": 1, "output": 1, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 2 } });
    let at = "2026-05-20T01:02:03.004Z";
    let entry = |id: &str, parent: Value, message: Value| json!({ "type": "message", "id": id, "parentId": parent, "timestamp": at, "message": message });
    let (one, two) = (format!("{}-1", &id[..8]), format!("{}-2", &id[..8]));
    [
        json!({ "type": "session", "version": 3, "id": id, "timestamp": at, "cwd": "/p" }),
        entry(&one, Value::Null, asked),
        entry(&two, json!(one), answered),
    ]
    .map(|line| format!("{line}\n"))
    .concat()
}

fn set_agents(world: &World, agents: &Value) {
    world.run(&["config", "set", "agents.byId", &agents.to_string()]).ok();
}

fn texts(world: &World, at: usize) -> Vec<String> {
    messages(&world.requests()[at]).iter().map(wire_text).collect()
}

#[test]
fn conversation_of_another_gateway_goes_on() {
    let world = world_with(["Here.", "With another model."].map(says), &json!({}));
    let dir = world.path("home/.openclaw");
    let sessions = dir.join("agents/main/sessions");
    std::fs::create_dir_all(&sessions).unwrap();
    std::fs::write(dir.join("openclaw.json"), "{ agents: { list: [ { id: 'main' } ] } }").unwrap();
    std::fs::write(sessions.join(format!("{KNOWN}.jsonl")), transcript(KNOWN, "testing")).unwrap();
    std::fs::write(sessions.join(format!("{GONE}.jsonl")), transcript(GONE, "nobody")).unwrap();
    let index =
        json!({ MAIN: { "sessionId": KNOWN, "updatedAt": 9 }, GHOST: { "sessionId": GONE, "updatedAt": 8 } });
    std::fs::write(sessions.join("sessions.json"), index.to_string()).unwrap();
    world.run(&["import", "--state", "openclaw"]).ok();

    let server = Server::start(&world);
    queued(&server, MAIN, &json!({ "text": "And here?" }));
    assert_eq!(taken(&server, &mut Reader::of(&server, MAIN)), "Here.");
    assert_eq!(texts(&world, 0), ["Asked there.", "Answered there.", "And here?"]);
    // No other model is chosen for one that is gone, and the message waits for the person who does.
    let mut reader = Reader::of(&server, GHOST);
    queued(&server, GHOST, &json!({ "text": "And I?" }));
    let news = reader.status("failing");
    let reason = news["reason"].as_str().unwrap();
    assert!(reason.contains("nobody/") && reason.contains("not available any more"), "{news}");
    set_agents(&world, &json!({ "main": { "model": "testing/thinker" } }));
    assert_eq!(taken(&server, &mut reader), "With another model.");
    assert_eq!(texts(&world, 1), ["Asked there.", "Answered there.", "And I?"]);
    assert_eq!(world.requests()[1].json()["model"], "thinker");
}

#[test]
fn completion_takes_no_session_that_is_open_elsewhere() {
    let world = world_with(["One.", "Two.", "Three."].map(says), &json!({}));
    let first = Server::start(&world);
    let mut reader = Reader::of(&first, MAIN);
    // Which of two that start at once would get the conversations is not said.
    queued(&first, MAIN, &json!({ "text": "First" }));
    assert_eq!(taken(&first, &mut reader), "One.");
    let second = Server::start(&world);
    let body =
        json!({ "model": "quipu", "user": MAIN, "messages": [{ "role": "user", "content": "Third" }] });
    let ask = || second.post("/v1/chat/completions", &body);
    // It would go on beside what is said at the other server.
    ask().refuses(409, "session_in_use");
    queued(&first, MAIN, &json!({ "text": "Second" }));
    assert_eq!(taken(&first, &mut reader), "Two.");
    first.ends(Signal::SIGTERM, 0);
    let answer = ask();
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(texts(&world, 2), ["First", "One.", "Second", "Two.", "Third"]);
    assert_eq!(world.run(&["sessions", "--json"]).ok().json_lines().len(), 1);
}

#[test]
fn conversation_goes_on_where_people_put_its_session() {
    let write = json!({ "path": "note.txt", "content": "made" });
    let script = [
        says("One."),
        call("c1", "write", &write),
        says("Written."),
        says("Beside."),
        says("After."),
        says("New."),
    ];
    let world = world_with(script, &json!({}));
    let server = Server::start(&world);
    let mut reader = Reader::of(&server, MAIN);
    for (text, answer) in [("First", "One."), ("Write", "Written.")] {
        queued(&server, MAIN, &json!({ "text": text }));
        assert_eq!(taken(&server, &mut reader), answer);
    }
    let rows = world.run(&["sessions", "--json"]).ok().json_lines();
    let id = rows[0]["id"].as_str().unwrap().to_owned();
    // While the server has it open, nobody else moves it, and who speaks in it speaks beside it.
    for args in [&["undo", &id, "--yes"][..], &["rm", &id, "--yes"]] {
        world.run(args).fails(1, &["is in use by another process"]);
    }
    let beside = world.run(&["-p", "--session", &id, "Beside"]).ok();
    assert!(beside.err.contains("continues on a branch"), "{}", beside.err);
    server.ends(Signal::SIGTERM, 0);
    // What is undone between two servers is undone for the conversation, with its file.
    assert!(world.path("work/note.txt").exists());
    world.run(&["undo", &id, "--files", "--yes"]).ok();
    assert!(!world.path("work/note.txt").exists());
    let server = Server::start(&world);
    queued(&server, MAIN, &json!({ "text": "Then" }));
    assert_eq!(taken(&server, &mut Reader::of(&server, MAIN)), "After.");
    assert_eq!(texts(&world, 4), ["First", "One.", "Then"]);
    server.ends(Signal::SIGTERM, 0);
    // What was said in a session that is removed is in none that the store lists.
    world.check();
    world.unchecked();
    // In place of a session that was removed it has a new one.
    world.run(&["rm", &id, "--yes"]).ok();
    let server = Server::start(&world);
    queued(&server, MAIN, &json!({ "text": "Anew" }));
    assert_eq!(taken(&server, &mut Reader::of(&server, MAIN)), "New.");
    assert_eq!(texts(&world, 5), ["Anew"]);
}
