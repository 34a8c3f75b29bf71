//! The dialogue that was recorded with Pi 0.85.1, held with Quipu. The capture has the first commands; the others are known by
//! their responses. Responses overtook each other there; here each is waited for.

use quipu_testkit::Reply;
use serde_json::{Value, json};

use super::Rpc;
use crate::support::*;

const CAPTURE: &str = include_str!("../../../../rpc/tests/data/pi-rpc.out");
const COMMANDS: &str = include_str!("../../../../rpc/tests/data/pi-rpc.in");

/// What the server of the capture answered.
fn answer() -> Reply {
    let chunk = |delta: Value, end: Value| {
        json!({ "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m1",
            "choices": [{ "index": 0, "delta": delta, "finish_reason": end }] })
    };
    let usage = json!({ "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m1", "choices": [],
        "usage": { "prompt_tokens": 120, "completion_tokens": 7, "total_tokens": 127,
            "prompt_tokens_details": { "cached_tokens": 100 } } });
    let chunks = [
        chunk(json!({ "role": "assistant", "content": "" }), Value::Null),
        chunk(json!({ "content": "All " }), Value::Null),
        chunk(json!({ "content": "done." }), Value::Null),
        chunk(json!({}), json!("stop")),
        usage,
    ];
    let text: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
    Reply::sse(format!("{text}data: [DONE]\n\n"))
}

/// A world with the model of the capture.
fn world() -> World {
    let world = World::new([answer()]);
    let model = json!({ "id": "m1", "contextWindow": 32_000, "maxTokens": 4_000 });
    let url = format!("{}/v1", world.server.url());
    let provider = json!({ "baseUrl": url, "api": "openai-completions", "apiKey": "k", "models": [model] });
    let models = json!({ "providers": { "fake": provider } });
    std::fs::write(world.path("home/.quipu/models.json"), models.to_string()).unwrap();
    std::fs::write(world.path("home/.quipu/settings.json"), r#"{"retry":{"baseDelayMs":10,"maxRetries":2}}"#)
        .unwrap();
    // Its requests go to a provider of another name than those of other tests.
    world.unchecked();
    world
}

/// A line without what differs from run to run: ids, times, places.
fn plain(value: Value, ids: &mut Vec<String>) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(|item| plain(item, ids)).collect(),
        Value::Object(members) => {
            let members = members.into_iter().map(|(name, value)| {
                let value = match (name.as_str(), value) {
                    ("timestamp" | "labelTimestamp", _) => json!("TIME"),
                    ("baseUrl", _) => json!("URL"),
                    ("sessionId", _) => json!("SESSION"),
                    ("id" | "parentId" | "leafId" | "entryId", Value::String(id)) if id.len() > 4 => {
                        // In the order in which they are met.
                        let at = ids.iter().position(|known| *known == id).unwrap_or_else(|| {
                            ids.push(id);
                            ids.len() - 1
                        });
                        json!(format!("ENTRY {at}"))
                    }
                    (_, value) => plain(value, ids),
                };
                (name, value)
            });
            Value::Object(members.collect())
        }
        Value::Number(number) if number.as_f64().is_some_and(|number| number == 0.0) => json!(0),
        other => other,
    }
}

/// Takes what is listed in `docs/rpc.md` as a difference out of a line, of either program.
fn without_differences(mut line: Value) -> Value {
    fn walk(value: &mut Value) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(walk),
            Value::Object(members) => {
                // Sessions are in the store, and in a file only where one is named.
                members.shift_remove("sessionFile");
                // Reasoning tokens are there where the server counts them.
                if members.get("reasoning") == Some(&json!(0)) {
                    members.shift_remove("reasoning");
                }
                // The provider's word for the end of an answer is there where it says more than ours.
                members.shift_remove("rawStopReason");
                // Names the node of the message.
                members.shift_remove("node");
                // Estimates of tokens behind the last answer differ.
                members.shift_remove("contextUsage");
                // What a message began with.
                members.shift_remove("responseId");
                members.values_mut().for_each(walk);
            }
            _ => {}
        }
    }
    walk(&mut line);
    // The parser's own words.
    if line["command"] == "parse" {
        line["error"] = line["error"].as_str().unwrap().split(':').next().unwrap().into();
    }
    // The state of the copy: there it has the name of what it is a copy of.
    if line["id"] == "17" {
        line["data"].as_object_mut().unwrap().shift_remove("sessionName");
    }
    // What was known of the usage when the message began.
    if line["type"] == "message_update" {
        line.as_object_mut().unwrap().shift_remove("usage");
    }
    line
}

fn compared(line: &Value, ids: &mut Vec<String>) -> String {
    plain(without_differences(line.clone()), ids).to_string()
}

fn captured() -> Vec<Value> {
    CAPTURE.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn recorded_dialogue_has_the_same_answers() {
    let world = world();
    let mut rpc = Rpc::start(&world, &[]);
    // A session that nothing was said in has no name: it gets one first.
    let mut given = Vec::new();
    let mut answers: Vec<Value> = Vec::new();
    let send = |rpc: &mut Rpc, line: &str, answers: &mut Vec<Value>| {
        rpc.process.send(line);
        loop {
            let line = rpc.next();
            if line["type"] == "response" {
                answers.push(line);
                return;
            }
        }
    };
    let later = [
        json!({ "id": "4", "type": "get_entries" }),
        json!({ "id": "5", "type": "get_session_stats" }),
        json!({ "id": "6", "type": "set_session_name", "name": "my name" }),
        json!({ "id": "7", "type": "compact" }),
        json!({ "id": "8", "type": "get_tree" }),
        json!({ "id": "9", "type": "steer", "message": "later" }),
        json!({ "id": "10", "type": "clear_queue" }),
        json!({ "id": "11", "type": "get_fork_messages" }),
        json!({ "id": "12", "type": "cycle_thinking_level" }),
        json!({ "id": "13", "type": "set_thinking_level", "level": "off" }),
        json!({ "id": "14", "type": "cycle_model" }),
        json!({ "id": "15", "type": "get_last_assistant_text" }),
        json!({ "id": "16", "type": "clone" }),
        json!({ "id": "17", "type": "get_state" }),
    ];
    for line in COMMANDS.lines().filter(|line| !line.is_empty()) {
        given.push(line.to_owned());
    }
    // The line in the shell ended before the run there, and stands behind the answer all the same; here it is given when the run
    // is over.
    let shell = given.pop().unwrap();
    for line in &given {
        send(&mut rpc, line, &mut answers);
    }
    // It may have ended before the last of them was answered.
    if !rpc.events.iter().any(|event| event["type"] == "agent_settled") {
        rpc.until("agent_settled");
    }
    send(&mut rpc, &shell, &mut answers);
    for command in later {
        send(&mut rpc, &command.to_string(), &mut answers);
    }
    rpc.process.close().ok();

    let theirs = captured();
    let key = |line: &Value| (line["id"].to_string(), line["command"].to_string());
    let (mut our_ids, mut their_ids) = (Vec::new(), Vec::new());
    // Both in the order in which ours came, as ids are counted as they are met.
    for ours in &answers {
        let their = theirs.iter().find(|line| line["type"] == "response" && key(line) == key(ours));
        let their = their.unwrap_or_else(|| panic!("no such response in the capture: {ours}"));
        assert_eq!(compared(ours, &mut our_ids), compared(their, &mut their_ids));
    }
    let responses = theirs.iter().filter(|line| line["type"] == "response").count();
    assert_eq!(answers.len(), responses, "each response of the capture was had");

    // The events of the run, and those of what was asked for after it.
    let is_event = |line: &&Value| {
        let kind = line["type"].as_str().unwrap();
        // Ours alone; and the end of what there began only, as the capture ends.
        !kind.starts_with("quipu_") && kind != "response" && kind != "compaction_end"
    };
    let order = |lines: &[Value]| -> Vec<String> {
        let mut ids = Vec::new();
        // The output of the line in the shell comes in as many pieces as the system hands out.
        let (shell, lines): (Vec<&Value>, Vec<&Value>) =
            lines.iter().filter(is_event).partition(|line| line["type"] == "bash_execution_update");
        let shell = shell.into_iter().cloned().reduce(|mut all, piece| {
            all["delta"] =
                json!(format!("{}{}", all["delta"].as_str().unwrap(), piece["delta"].as_str().unwrap()));
            all
        });
        let shell = compared(&shell.expect("the line in the shell has output"), &mut ids);
        let mut lines: Vec<String> = lines.into_iter().map(|line| compared(line, &mut ids)).collect();
        // What was asked for in one breath came in another order.
        let settled = lines.iter().position(|line| line.contains("agent_settled")).unwrap();
        let after = settled.min(lines.len() - 1);
        lines[after..].sort();
        lines.push(shell);
        lines
    };
    assert_eq!(order(&rpc.events), order(&theirs));
}
