//! Sessions of every agent go on with the model that they had, by requests that their wire takes.

use std::collections::BTreeSet;
use std::path::PathBuf;

use quipu_testkit::{Answer, Wire};
use serde_json::{Value, json};

use crate::support::*;

/// Where a session comes from, and what goes on.
struct Case {
    agent: &'static str,
    fixture: &'static str,
    /// What stands in the fixture for its session's id, and for its directory.
    replaced: &'static [(&'static str, &'static str)],
    session: &'static str,
    provider: &'static str,
    /// Empty where the file names none, so that it is the user's.
    model: &'static str,
}

const fn case(
    agent: &'static str,
    fixture: &'static str,
    session: &'static str,
    model: [&'static str; 2],
) -> Case {
    Case { agent, fixture, replaced: &[], session, provider: model[0], model: model[1] }
}

const CASES: [Case; 10] = [
    Case {
        replaced: &[("\"s\"", "\"claude-01\""), ("\"/p\"", "CWD")],
        ..case("claude-code", "claude_code_files/corpus/tools.jsonl", "claude-01", ["anthropic", "m"])
    },
    Case {
        replaced: &[("\"s\"", "\"codex-01\""), ("\"/p\"", "CWD")],
        ..case("codex", "codex_files/corpus/tools.jsonl", "codex-01", ["openai", "m"])
    },
    Case {
        replaced: &[("\"s1\"", "\"claw-01\""), ("\"/p\"", "CWD")],
        ..case("openclaw", "openclaw_files/corpus/tree.jsonl", "claw-01", ["p", "m"])
    },
    case("gemini-cli", "gemini_files/corpus/gone-on.jsonl", "0c1ed2ac", ["google", "gemini-2.5-flash"]),
    Case {
        replaced: &[("\"/p q\"", "CWD")],
        ..case("copilot-cli", "copilot_files/corpus/tools.jsonl", "fd1fbd40", ["github-copilot", "gpt-5"])
    },
    case("opencode", "opencode_files/corpus/hand-made.db", "ses_two", ["p", "m"]),
    case("vscode-chat", "chat_files/corpus/all.json", "", ["own", "model"]),
    case("chatgpt", "chatgpt_files/corpus/export.zip", "6939aaaa", ["openai", "gpt-5"]),
    case("claude-ai", "claude_ai_files/corpus/export.zip", "", ["anthropic", ""]),
    case("gemini-takeout", "gemini_takeout_files/corpus/takeout.zip", "gemini-2026-01-02", ["google", ""]),
];

pub(crate) const WIRES: [Wire; 9] = [
    Wire::Messages,
    Wire::Completions,
    Wire::Responses,
    Wire::Contents,
    Wire::Subscription,
    Wire::Chunks,
    Wire::Converse,
    Wire::Gateway,
    Wire::Envelope,
];

/// Sends the requests of all these models to the server, by one wire.
pub(crate) fn configure(world: &World, wire: Wire) {
    let api = match wire {
        Wire::Messages => "anthropic-messages",
        Wire::Completions => "openai-completions",
        Wire::Responses => "openai-responses",
        Wire::Contents => "google-generative-ai",
        Wire::Subscription => "openai-codex-responses",
        Wire::Chunks => "mistral-conversations",
        Wire::Gateway => "pi-messages",
        Wire::Envelope => "google-gemini-cli",
        Wire::Converse => "bedrock-converse-stream",
    };
    let mut providers = serde_json::Map::new();
    for Case { provider, model, .. } in CASES.iter().filter(|case| !case.model.is_empty()) {
        let model = json!({ "id": model, "api": api, "contextWindow": 200_000, "maxTokens": 8_000, "input": ["text", "image"] });
        let entry = providers.entry(*provider).or_insert_with(|| {
            json!({
                "baseUrl": world.server.url(), "apiKey": KEY, "api": api, "models": [],
                "headers": { "chatgpt-account-id": "account-of-test" },
            })
        });
        entry["models"].as_array_mut().unwrap().push(model);
    }
    let file = json!({ "providers": providers });
    std::fs::write(world.path("home/.quipu/models.json"), file.to_string()).unwrap();
}

fn ids<'a>(blocks: impl Iterator<Item = &'a Value>, kind: &str, member: &str) -> BTreeSet<String> {
    let of_kind = blocks.filter(|block| kind.is_empty() || block["type"] == kind);
    of_kind.map(|block| block[member].as_str().unwrap().to_owned()).collect()
}

/// Every call has its result right behind it, and every result its call right before it.
fn check_messages(messages: &[Value]) {
    let mut open = BTreeSet::new();
    for message in messages {
        let blocks: Vec<&Value> = message["content"].as_array().unwrap().iter().collect();
        assert!(!blocks.is_empty(), "{message}");
        assert_eq!(ids(blocks.iter().copied(), "tool_result", "tool_use_id"), open, "{messages:?}");
        open = ids(blocks.iter().copied(), "tool_use", "id");
    }
    assert_eq!((messages.last().unwrap()["role"].as_str(), open.len()), (Some("user"), 0));
    assert_eq!(messages[0]["role"], "user");
}

/// The same where each result is a message.
fn check_completions(messages: &[Value]) {
    let mut open = BTreeSet::new();
    for message in messages {
        if message["role"] == "tool" {
            assert!(open.remove(message["tool_call_id"].as_str().unwrap()), "{messages:?}");
            continue;
        }
        assert_eq!(open.len(), 0, "{messages:?}");
        open = ids(message["tool_calls"].as_array().into_iter().flatten(), "", "id");
    }
    assert_eq!((messages.last().unwrap()["role"].as_str(), open.len()), (Some("user"), 0));
}

/// The same where each call and each result is an item.
fn check_responses(items: &[Value]) {
    let mut open = BTreeSet::new();
    for item in items {
        match item["type"].as_str() {
            Some("function_call_output") => {
                assert!(open.remove(item["call_id"].as_str().unwrap()), "{items:?}");
            }
            Some("function_call") => {
                assert!(open.insert(item["call_id"].as_str().unwrap()), "{items:?}");
            }
            _ => {}
        }
        assert!(item["role"] != "user" || open.is_empty(), "{items:?}");
    }
    assert_eq!((items.last().unwrap()["role"].as_str(), open.len()), (Some("user"), 0));
}

/// The same where each result is a part of the user's turn, in the order of the calls.
fn check_contents(turns: &[Value]) {
    let of = |turn: &Value, kind: &str| -> Vec<String> {
        let parts = turn["parts"].as_array().unwrap().iter().filter_map(|part| part.get(kind));
        parts.map(|part| part["name"].as_str().unwrap().to_owned()).collect()
    };
    let mut open = Vec::new();
    for (place, turn) in turns.iter().enumerate() {
        assert_eq!(turn["role"], if place % 2 == 0 { "user" } else { "model" }, "{turns:?}");
        assert_eq!(of(turn, "functionResponse"), open, "{turns:?}");
        open = of(turn, "functionCall");
    }
    assert_eq!((turns.last().unwrap()["role"].as_str(), open.len()), (Some("user"), 0));
}

/// The same with blocks that are named by a member.
fn check_converse(messages: &[Value]) {
    let mut open = BTreeSet::new();
    for message in messages {
        let blocks = message["content"].as_array().unwrap();
        let of = |kind: &str| -> BTreeSet<String> {
            let found = blocks.iter().filter_map(|block| block.get(kind));
            found.map(|block| block["toolUseId"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(of("toolResult"), open, "{messages:?}");
        open = of("toolUse");
    }
    assert_eq!((messages.last().unwrap()["role"].as_str(), open.len()), (Some("user"), 0));
}

/// The same with messages as sessions hold them, where a result also names its tool.
fn check_gateway(messages: &[Value]) {
    let mut open = BTreeSet::new();
    for message in messages {
        if message["role"] == "toolResult" {
            let result = (message["toolCallId"].as_str().unwrap(), message["toolName"].as_str().unwrap());
            assert!(open.remove(&(result.0.to_owned(), result.1.to_owned())), "{messages:?}");
            continue;
        }
        assert_eq!(open.len(), 0, "{messages:?}");
        let blocks = message["content"].as_array().into_iter().flatten();
        let calls = blocks.filter(|block| block["type"] == "toolCall");
        let text = |block: &Value, member: &str| block[member].as_str().unwrap().to_owned();
        open = calls.map(|block| (text(block, "id"), text(block, "name"))).collect();
    }
    assert_eq!((messages.last().unwrap()["role"].as_str(), open.len()), (Some("user"), 0));
}

/// The list of what was said, by the API of the request.
fn said(wire: Wire, body: &Value) -> Vec<Value> {
    let list = match wire {
        Wire::Messages | Wire::Completions | Wire::Chunks | Wire::Converse => &body["messages"],
        Wire::Responses | Wire::Subscription => &body["input"],
        Wire::Contents => &body["contents"],
        Wire::Envelope => &body["request"]["contents"],
        Wire::Gateway => &body["context"]["messages"],
    };
    list.as_array().unwrap().clone()
}

/// What every server wants of a conversation.
pub(crate) fn check(wire: Wire, body: &Value) {
    let said = &said(wire, body);
    match wire {
        Wire::Messages => check_messages(said),
        Wire::Completions | Wire::Chunks => check_completions(said),
        Wire::Responses | Wire::Subscription => check_responses(said),
        Wire::Contents | Wire::Envelope => check_contents(said),
        Wire::Converse => check_converse(said),
        Wire::Gateway => check_gateway(said),
    }
}

#[test]
fn imported_sessions_continue_with_their_own_model() {
    let world = World::new([]);
    let mut sessions = Vec::new();
    for case in &CASES {
        let corpus = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../archive/tests/it/__fuzz__");
        let from = corpus.join(case.fixture);
        let file =
            world.path("tmp").join(format!("{}-{}", case.agent, from.file_name().unwrap().to_str().unwrap()));
        if case.replaced.is_empty() {
            std::fs::copy(&from, &file).unwrap();
        } else {
            let mut text = std::fs::read_to_string(&from).unwrap();
            for (old, new) in case.replaced {
                let new =
                    if *new == "CWD" { json!(world.path("work")).to_string() } else { (*new).to_owned() };
                text = text.replace(old, &new);
            }
            std::fs::write(&file, text).unwrap();
        }
        let ran = world.run(&["import", case.agent, file.to_str().unwrap(), "--json"]);
        let reports = ran.json_lines();
        let is_lost = reports.iter().any(|report| report["lost"].as_u64() > report["pending"].as_u64());
        assert_eq!(ran.status.code(), Some(i32::from(is_lost)), "{}: {reports:?}", case.agent);
        let found = reports.iter().find_map(|report| {
            report["session"].as_str().filter(|id| !id.is_empty() && id.starts_with(case.session))
        });
        sessions.push(found.unwrap_or_else(|| panic!("{}: {reports:?}", case.agent)).to_owned());
    }
    for wire in WIRES {
        configure(&world, wire);
        for (case, session) in CASES.iter().zip(&sessions) {
            world.server.push(Answer::on(wire).text("Yes.").reply());
            let model: &[&str] = if case.model.is_empty() { &["--model", "p/m"] } else { &[] };
            let mut command =
                world.quipu(&[&["-p", "--session", session, "--cwd", ".", "on"], model].concat());
            // One wire names a project in its requests.
            command.env("GOOGLE_CLOUD_PROJECT", "project-7");
            RunningCommand::start(command).wait().ok();
            let request = world.requests().last().unwrap().clone();
            let body = request.json();
            let names_model = !matches!(wire, Wire::Contents | Wire::Converse);
            if !case.model.is_empty() && names_model {
                assert_eq!(body["model"], case.model, "{}", case.agent);
            }
            check(wire, &body);
        }
    }
    world.unchecked();
}

#[test]
fn newest_session_continues_only_with_its_own_model() {
    let world = World::new([Answer::new().text("Yes.").reply()]);
    let cwd = world.path("work");
    let record = |kind: &str, id: &str, parent: Value, message: Value| {
        json!({ "type": kind, "uuid": id, "parentUuid": parent, "sessionId": "0199aaaa-0000-4000-8000-000000000001",
            "cwd": cwd, "timestamp": "2025-01-02T03:04:06.000Z", "message": message })
    };
    let answer = |id: &str, model: &str, text: &str| {
        json!({ "id": id, "role": "assistant", "model": model, "content": [{ "type": "text", "text": text }],
            "stop_reason": "end_turn" })
    };
    let user = |text: &str| json!({ "role": "user", "content": text });
    let records = [
        record("user", "n1", Value::Null, user("Look.")),
        record("assistant", "n2", json!("n1"), answer("m1", "its-own-1", "Seen.")),
        record("user", "n3", json!("n2"), user("And?")),
        // What the program wrote in the model's place when a request failed.
        record("assistant", "n4", json!("n3"), answer("m2", "<synthetic>", "API Error")),
        record("user", "n5", json!("n4"), user("Once more.")),
    ];
    let lines: String = records.iter().map(|record| format!("{record}\n")).collect();
    let file = world.file("one.jsonl", lines);
    world.run(&["import", "claude-code", file.to_str().unwrap()]).ok();
    // Its provider has no credential here: what could be used is said, and not taken.
    let ran = world.run(&["-p", "-c", "on"]);
    ran.fails(3, &["anthropic", "--model testing/"]);
    assert_eq!(world.requests().len(), 0);
    let own = json!({ "id": "its-own-1", "api": "anthropic-messages", "contextWindow": 200_000, "maxTokens": 8_000 });
    let testing =
        json!({ "id": MODEL, "api": "anthropic-messages", "contextWindow": 200_000, "maxTokens": 8_000 });
    let provider = |model: &Value| json!({ "baseUrl": world.server.url(), "apiKey": KEY, "models": [model] });
    let models = json!({ "providers": { "testing": provider(&testing), "anthropic": provider(&own) } });
    std::fs::write(world.path("home/.quipu/models.json"), models.to_string()).unwrap();
    world.run(&["-p", "-c", "on"]).ok();
    let body = world.requests().last().unwrap().json();
    assert_eq!(body["model"], "its-own-1");
    check_messages(body["messages"].as_array().unwrap());
    world.unchecked();
}
