//! Other agents themselves, as `cargo xtask peers` installs them: each has one conversation with a server on loopback
//! that says what it was told to say; what is imported of the files that it wrote is compared with that, message by
//! message, tool by tool, token by token.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use quipu_testkit::{needs_peers, peer_modules, skip_without};
use serde_json::{Value, json};

use crate::support::*;

/// A block of a model's answer.
#[derive(Debug, Clone)]
pub(crate) enum ModelBlock {
    Thinking(&'static str),
    Text(&'static str),
    Call(&'static str, &'static str, Value),
}

/// What a server does with one request.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    Says(Vec<ModelBlock>),
    /// A request that fails, each time that it is made.
    Fails,
    /// A stream that breaks off behind its first words, each time.
    Breaks(&'static str),
    /// One that does so once.
    BreaksOnce(&'static str),
}

#[derive(Debug, Default)]
struct State {
    script: Vec<Reply>,
    /// Replies so far, failed ones included: their usage tells them apart.
    count: u64,
    /// The number of each reply that came whole.
    whole: Vec<u64>,
    /// Bodies of requests that had tools.
    asked: Vec<Value>,
}

/// A model's server in the wires that peers speak.
pub(crate) struct Server {
    pub(crate) url: String,
    state: Arc<Mutex<State>>,
}

impl Server {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                // A program that is gone asks no more.
                std::thread::spawn(move || drop(answer(connection, &state)));
            }
        });
        Self { url, state }
    }

    pub(crate) fn load(&self, script: &[Reply]) {
        self.state.lock().unwrap().script = script.iter().rev().cloned().collect();
    }

    /// The requests of the conversation so far, in order.
    pub(crate) fn asked(&self) -> Vec<Value> {
        self.state.lock().unwrap().asked.clone()
    }

    /// The numbers of the replies that came whole since the last call.
    fn whole(&self) -> Vec<u64> {
        std::mem::take(&mut self.state.lock().unwrap().whole)
    }
}

fn answer(mut connection: TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 64 << 10];
    let (at, length) = loop {
        let head = bytes.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4);
        if let Some(at) = head {
            let head = String::from_utf8_lossy(&bytes[..at]).to_lowercase();
            let length = head
                .split_once("content-length:")
                .and_then(|(_, rest)| rest.lines().next()?.trim().parse().ok());
            break (at, length.unwrap_or(0));
        }
        match connection.read(&mut buffer)? {
            0 => return Ok(()),
            count => bytes.extend_from_slice(&buffer[..count]),
        }
    };
    while bytes.len() < at + length {
        match connection.read(&mut buffer)? {
            0 => return Ok(()),
            count => bytes.extend_from_slice(&buffer[..count]),
        }
    }
    let head = String::from_utf8_lossy(&bytes[..at]).into_owned();
    let path = head.split(' ').nth(1).unwrap_or_default();
    let body: Value = serde_json::from_slice(&bytes[at..]).unwrap_or_default();
    let (status, kind, text) = if !head.starts_with("POST ") || path.contains("count_tokens") {
        ("404 Not Found", "application/json", "{}".to_owned())
    } else {
        let wire = if path.contains("/responses") {
            items
        } else if path.contains("GenerateContent") || path.contains("generateContent") {
            chunks
        } else {
            blocks
        };
        let has_tools = body["tools"].as_array().is_some_and(|tools| !tools.is_empty());
        let mut state = state.lock().unwrap();
        if has_tools {
            state.asked.push(body);
        }
        let reply = match state.script.last().cloned() {
            // Titles and the like, which are no part of the conversation.
            _ if !has_tools => Some((0, Reply::Says(vec![ModelBlock::Text("A title")]))),
            None => None,
            Some(reply) => {
                state.count += 1;
                if let Reply::Says(_) | Reply::BreaksOnce(_) = reply {
                    state.script.pop();
                }
                if let Reply::Says(_) = reply {
                    let number = state.count;
                    state.whole.push(number);
                }
                Some((state.count, reply))
            }
        };
        match reply {
            Some((number, Reply::Says(says))) => {
                ("200 OK", "text/event-stream", stream(&wire(number, &says, true)))
            }
            Some((number, Reply::Breaks(text) | Reply::BreaksOnce(text))) => {
                ("200 OK", "text/event-stream", stream(&wire(number, &[ModelBlock::Text(text)], false)))
            }
            Some((_, Reply::Fails)) | None => {
                let error =
                    json!({ "type": "invalid_request_error", "message": "scripted failure", "code": "bad" });
                (
                    "400 Bad Request",
                    "application/json",
                    json!({ "type": "error", "error": error }).to_string(),
                )
            }
        }
    };
    let length = text.len();
    // Without a length a stream may break off.
    let length =
        if kind == "text/event-stream" { String::new() } else { format!("content-length: {length}\r\n") };
    write!(connection, "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\n{length}connection: close\r\n\r\n{text}")
}

fn stream(events: &[Value]) -> String {
    let name =
        |event: &Value| event["type"].as_str().map(|name| format!("event: {name}\n")).unwrap_or_default();
    events.iter().map(|event| format!("{}data: {event}\n\n", name(event))).collect()
}

fn chunks(number: u64, says: &[ModelBlock], whole: bool) -> Vec<Value> {
    // What was thought is counted beside the rest.
    let usage = json!({ "promptTokenCount": 1000 + number, "cachedContentTokenCount": 500 + number,
        "candidatesTokenCount": 7 + number, "thoughtsTokenCount": 3, "totalTokenCount": 1010 + 2 * number });
    let part = |(at, say): (usize, &ModelBlock)| {
        let part = match say {
            ModelBlock::Thinking(text) => json!({ "text": text, "thought": true }),
            ModelBlock::Text(text) => json!({ "text": text }),
            ModelBlock::Call(id, name, arguments) => {
                json!({ "functionCall": { "id": id, "name": name, "args": arguments } })
            }
        };
        let mut candidate = json!({ "content": { "role": "model", "parts": [part] }, "index": 0 });
        if whole && at + 1 == says.len() {
            candidate["finishReason"] = json!("STOP");
        }
        json!({ "candidates": [candidate], "responseId": format!("resp_{number}"), "modelVersion": "m", "usageMetadata": usage })
    };
    says.iter().enumerate().map(part).collect()
}

fn blocks(number: u64, says: &[ModelBlock], whole: bool) -> Vec<Value> {
    let usage = json!({ "input_tokens": 1000 + number, "cache_read_input_tokens": 500 + number,
        "cache_creation_input_tokens": 0, "output_tokens": 1 });
    let message = json!({ "id": format!("msg_{number}"), "type": "message", "role": "assistant", "model": "claude-sonnet-4-5",
        "content": [], "stop_reason": null, "stop_sequence": null, "usage": usage });
    let mut events = vec![json!({ "type": "message_start", "message": message })];
    for (index, say) in says.iter().enumerate() {
        let (start, deltas) = match say {
            ModelBlock::Thinking(text) => (
                json!({ "type": "thinking", "thinking": "", "signature": "" }),
                vec![
                    json!({ "type": "thinking_delta", "thinking": text }),
                    json!({ "type": "signature_delta", "signature": format!("sig{number}") }),
                ],
            ),
            ModelBlock::Text(text) => {
                (json!({ "type": "text", "text": "" }), vec![json!({ "type": "text_delta", "text": text })])
            }
            ModelBlock::Call(id, name, arguments) => (
                json!({ "type": "tool_use", "id": id, "name": name, "input": {} }),
                vec![json!({ "type": "input_json_delta", "partial_json": arguments.to_string() })],
            ),
        };
        events.push(json!({ "type": "content_block_start", "index": index, "content_block": start }));
        let deltas = deltas.into_iter();
        events.extend(
            deltas.map(|delta| json!({ "type": "content_block_delta", "index": index, "delta": delta })),
        );
        if whole {
            events.push(json!({ "type": "content_block_stop", "index": index }));
        }
    }
    if whole {
        let calls = says.iter().any(|say| matches!(say, ModelBlock::Call(..)));
        let delta =
            json!({ "stop_reason": if calls { "tool_use" } else { "end_turn" }, "stop_sequence": null });
        events.push(
            json!({ "type": "message_delta", "delta": delta, "usage": { "output_tokens": 10 + number } }),
        );
        events.push(json!({ "type": "message_stop" }));
    }
    events
}

fn items(number: u64, says: &[ModelBlock], whole: bool) -> Vec<Value> {
    let response = |status: &str, output: &[Value], usage: Value| {
        json!({ "id": format!("resp_{number}"), "object": "response", "created_at": 1, "model": "m", "status": status,
            "output": output, "usage": usage })
    };
    let mut events =
        vec![json!({ "type": "response.created", "response": response("in_progress", &[], Value::Null) })];
    let mut output = Vec::new();
    for (index, say) in says.iter().enumerate() {
        let (id, item) = match say {
            ModelBlock::Thinking(text) => {
                let summary = json!([{ "type": "summary_text", "text": text }]);
                let id = format!("rs_{number}_{index}");
                (
                    id.clone(),
                    json!({ "type": "reasoning", "id": id, "summary": summary, "encrypted_content": format!("enc{number}") }),
                )
            }
            ModelBlock::Text(text) => {
                let content = json!([{ "type": "output_text", "text": text, "annotations": [] }]);
                let id = format!("msg_{number}_{index}");
                (
                    id.clone(),
                    json!({ "type": "message", "id": id, "role": "assistant", "status": "completed", "content": content }),
                )
            }
            ModelBlock::Call(call, name, arguments) => {
                let id = format!("fc_{call}");
                let mut item = json!({ "type": "function_call", "id": id, "call_id": call, "name": name,
                    "arguments": arguments.to_string(), "status": "completed" });
                // Tools of servers stand in namespaces on this wire.
                if let Some((space, name)) = name.split_once("::") {
                    (item["namespace"], item["name"]) = (space.into(), name.into());
                }
                (id, item)
            }
        };
        events.push(json!({ "type": "response.output_item.added", "output_index": index, "item": item }));
        if let ModelBlock::Text(text) = say {
            events.push(json!({ "type": "response.output_text.delta", "item_id": id, "output_index": index,
                "content_index": 0, "delta": text }));
        }
        if whole {
            events.push(json!({ "type": "response.output_item.done", "output_index": index, "item": item }));
        }
        output.push(item);
    }
    if whole {
        let usage = json!({ "input_tokens": 1000 + number, "input_tokens_details": { "cached_tokens": 500 + number },
            "output_tokens": 10 + number, "output_tokens_details": { "reasoning_tokens": 3 }, "total_tokens": 1010 + 2 * number });
        events
            .push(json!({ "type": "response.completed", "response": response("completed", &output, usage) }));
    }
    events
}

/// The session that a prompt goes to.
enum PromptTarget<'a> {
    New,
    Same(&'a str),
    Fork(&'a str),
}

/// What a request that failed leaves in an agent's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FailureTrace {
    /// A request that failed is an answer that says so.
    Recorded,
    /// It has left nothing, and its prompt is not in the conversation any more.
    Forgotten,
}

/// Another agent.
struct Peer {
    /// What the import calls it.
    agent: &'static str,
    /// The tool that runs a command line, and the names of its arguments.
    shell: fn(&str) -> (&'static str, Value),
    /// The tool that reads a file.
    read: fn(&Path) -> (&'static str, Value),
    /// The tool that changes `alpha` in a file to `beta`.
    edit: fn(&Path) -> (&'static str, Value),
    command: fn(&World, &Path, &str, PromptTarget<'_>, &str) -> Command,
    /// Uncached input of a reply of this number.
    input: fn(u64) -> u64,
    /// What a model does when its stream is to break: a program that asks again without end has to be answered.
    breaks: fn() -> Vec<Reply>,
    /// What a stream that broke leaves.
    broken: &'static [&'static str],
    /// Where its session files are, in the home directory.
    files: &'static str,
    /// Whether it has a way to fork without a person.
    forks: bool,
    failed: FailureTrace,
    /// What it makes of a call's id.
    id: fn(&str, &str) -> String,
}

/// The first file that matches: each word is a name, or its beginning where it ends in `*`.
fn found(dir: &Path, words: &[&str]) -> Option<PathBuf> {
    let Some((word, rest)) = words.split_first() else { return dir.is_file().then(|| dir.to_owned()) };
    let Some(start) = word.strip_suffix('*') else { return found(&dir.join(word), rest) };
    let mut names: Vec<_> = std::fs::read_dir(dir).ok()?.flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    let mut names =
        names.into_iter().filter(|name| name.to_str().is_some_and(|name| name.starts_with(start)));
    names.find_map(|name| found(&dir.join(name), rest))
}

/// A program of the peers that CI has to have; `None`, and a line that says so, where it is not there.
pub(crate) fn required(words: &[&str]) -> Option<PathBuf> {
    let program = installed(words);
    assert!(program.is_some() || !needs_peers(), "{} is missing", words.join("/"));
    program
}

/// A program of the peers; `None`, and a line that says so, where it is not there.
pub(crate) fn installed(words: &[&str]) -> Option<PathBuf> {
    let program = found(&peer_modules(), words);
    if program.is_none() {
        skip_without(&words.join("/"));
    }
    program
}

/// With what the peer that keeps sessions by projects asks for nothing but the model, and on this machine alone.
pub(crate) const QUIET_WITH_PROJECTS: [(&str, &str); 5] = [
    ("DISABLE_AUTOUPDATER", "1"),
    ("DISABLE_TELEMETRY", "1"),
    ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
    ("CLAUDE_CODE_MAX_RETRIES", "1"),
    ("NO_PROXY", "127.0.0.1"),
];

/// The peer that keeps sessions by projects, with a model at this address.
pub(crate) fn with_messages_at(command: &mut Command, url: &str) {
    command.envs(QUIET_WITH_PROJECTS).envs([
        ("ANTHROPIC_BASE_URL", url),
        ("ANTHROPIC_API_KEY", "k"),
        ("ANTHROPIC_MODEL", "claude-sonnet-4-5"),
    ]);
}

/// The peer that keeps sessions as events, with a model at this address.
pub(crate) fn with_responses_at(command: &mut Command, url: &str) {
    let url = format!("{url}/v1");
    command.envs([
        ("COPILOT_OFFLINE", "true"),
        ("COPILOT_AUTO_UPDATE", "false"),
        ("COPILOT_PROVIDER_TYPE", "openai"),
        ("COPILOT_PROVIDER_WIRE_API", "responses"),
        ("COPILOT_PROVIDER_BASE_URL", &url),
        ("COPILOT_PROVIDER_API_KEY", "k"),
        ("COPILOT_MODEL", "gpt-5"),
        ("NO_PROXY", "127.0.0.1"),
    ]);
}

/// One message of an export in short; `None` for what is no message of the conversation.
fn short(entry: &Value) -> Option<String> {
    let message = entry.get("message")?;
    let content: Vec<String> = match &message["content"] {
        Value::String(text) => vec![text.clone()],
        Value::Array(blocks) => blocks
            .iter()
            .map(|block| match block["type"].as_str() {
                Some("text") => block["text"].as_str().unwrap().to_owned(),
                Some("thinking") => format!("({})", block["thinking"].as_str().unwrap()),
                Some("toolCall") => {
                    format!("{}={}", block["id"].as_str().unwrap(), block["name"].as_str().unwrap())
                }
                _ => block.to_string(),
            })
            .collect(),
        _ => Vec::new(),
    };
    let content = content.join(" ");
    match message["role"].as_str()? {
        "user" => Some(format!("u {content}")),
        "assistant" if message["stopReason"] == "error" => {
            let told = message["errorMessage"].as_str().unwrap_or_default();
            Some(if told.contains("scripted failure") {
                "failed".into()
            } else {
                format!("broken {content}").trim().into()
            })
        }
        "assistant" => Some(format!("a {content}")),
        "toolResult" => {
            let mark = if message["isError"] == true { "!" } else { "" };
            Some(format!("r {}{mark}", message["toolCallId"].as_str().unwrap()))
        }
        _ => None,
    }
}

/// One conversation, and what is imported of it.
fn converse(peer: &Peer, program: &Path) {
    use ModelBlock::{Call, Text, Thinking};
    let world = World::says("On.");
    world.unchecked();
    let server = Server::start();
    let work = world.path("work");
    let file = world.file("a.txt", "alpha\n");
    let prompt = |to: PromptTarget<'_>, text: &str, script: &[Reply]| {
        server.load(script);
        let ran = RunningCommand::start((peer.command)(&world, program, &server.url, to, text)).wait();
        println!("{text}: {:?}\n{}\n{}", ran.status, ran.text(), ran.err);
        server.whole()
    };
    let import = || {
        // Whatever they wrote last is whole.
        for entry in walk(&world.path("home").join(peer.files)) {
            let old = std::time::SystemTime::now() - std::time::Duration::from_secs(600);
            std::fs::File::options().append(true).open(entry).unwrap().set_modified(old).unwrap();
        }
        let reports = world.run(&["import", peer.agent, "--json"]).ok().json_lines();
        for report in &reports {
            for none in ["lost", "changed", "repaired"] {
                assert_eq!(report[none], 0, "{report}");
            }
        }
        reports
    };
    let mut replies =
        prompt(PromptTarget::New, "hello", &[Reply::Says(vec![Thinking("let me see"), Text("Hi.")])]);
    let first = import();
    assert_eq!(first.len(), 1);
    let id = first[0]["session"].as_str().unwrap().to_owned();
    let call = |id: &'static str, (name, arguments): (&'static str, Value)| Call(id, name, arguments);
    let calls = [
        call("call_1", (peer.shell)("sleep 0.3; echo out; exit 3")),
        call("call_2", (peer.read)(&work.join("nope"))),
        call("call_3", (peer.read)(&file)),
    ];
    replies.extend(prompt(
        PromptTarget::Same(&id),
        "tools",
        &[
            Reply::Says([vec![Text("Reading.")], calls.to_vec()].concat()),
            Reply::Says(vec![Thinking("more"), call("call_4", (peer.edit)(&file))]),
            Reply::Says(vec![Text("Done.")]),
        ],
    ));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "beta\n");
    assert_eq!(prompt(PromptTarget::Same(&id), "fail", &[Reply::Fails]), [0; 0]);
    replies.extend(prompt(PromptTarget::Same(&id), "again", &[Reply::Says(vec![Text("Good again.")])]));
    replies.extend(prompt(PromptTarget::Same(&id), "break", &(peer.breaks)()));
    let forked = match peer.forks {
        true => prompt(PromptTarget::Fork(&id), "forked", &[Reply::Says(vec![Text("In the fork.")])]),
        false => vec![0],
    };
    let own = prompt(PromptTarget::Same(&id), "on", &[Reply::Says(vec![Text("In the original.")])]);
    assert_eq!((forked.len(), own.len()), (1, 1), "each was asked for once");

    let reports = import();
    let sessions = world.sessions();
    assert_eq!(sessions.len(), 1 + usize::from(peer.forks), "{sessions:?}");
    assert!(sessions.iter().all(|row| row["cwd"] == work.to_str().unwrap()), "{sessions:?}");
    let mut shared = vec![
        "u hello",
        "a (let me see) Hi.",
        "u tools",
        "a Reading. call_1=SHELL call_2=READ call_3=READ",
        "r call_1!",
        "r call_2!",
        "r call_3",
        "a (more) call_4=EDIT",
        "r call_4",
        "a Done.",
        "u fail",
        "failed",
        "u again",
        "a Good again.",
        "u break",
    ];
    let names =
        [("SHELL", (peer.shell)("").0), ("READ", (peer.read)(&file).0), ("EDIT", (peer.edit)(&file).0)];
    if peer.failed == FailureTrace::Forgotten {
        shared.retain(|line| !["u fail", "failed", "u break"].contains(line));
    }
    let own_ids: Vec<(&str, String)> = ["call_1", "call_2", "call_3", "call_4"]
        .into_iter()
        .zip(["SHELL", "READ", "READ", "EDIT"])
        .map(|(call, tool)| {
            let name = names.iter().find(|(word, _)| *word == tool).unwrap().1;
            (call, (peer.id)(name, call))
        })
        .collect();
    let in_its_words = |line: &str| {
        let line = names.iter().fold(line.to_owned(), |line, (from, to)| line.replace(from, to));
        own_ids.iter().fold(line, |line, (from, to)| line.replace(from, to))
    };
    let mut shared: Vec<String> = shared.into_iter().map(in_its_words).collect();
    shared[4..7].sort();
    let mut both = vec![(&id[..], own, ["u on", "a In the original."])];
    if peer.forks {
        let fork = sessions.iter().find(|row| row["id"] != id.as_str()).unwrap();
        both.push((fork["id"].as_str().unwrap(), forked, ["u forked", "a In the fork."]));
    }
    for (session, last, end) in &both {
        // What leads to the end: an export has what was left behind as well.
        let mut all = world.run(&["export", "--format", "pi", session]).ok().json_lines();
        let mut next = all.last().map_or(Value::Null, |entry| entry["id"].clone());
        all.reverse();
        all.retain(|entry| {
            let leads = entry["id"] == next;
            if leads {
                next = entry["parentId"].clone();
            }
            leads
        });
        all.reverse();
        let entries = all;
        // Results come in the order in which they were done.
        let mut said: Vec<String> = entries.iter().filter_map(short).collect();
        said[4..7].sort();
        let expect: Vec<&str> =
            shared.iter().map(String::as_str).chain(peer.broken.iter().copied()).chain(*end).collect();
        assert_eq!(said, expect, "{}", peer.agent);
        let answers = entries.iter().map(|entry| &entry["message"]);
        let answers =
            answers.filter(|message| message["role"] == "assistant" && message["stopReason"] != "error");
        let usage: Vec<[u64; 3]> = answers
            .map(|answer| {
                ["input", "cacheRead", "output"].map(|name| answer["usage"][name].as_u64().unwrap())
            })
            .collect();
        let numbers = replies.iter().chain(last);
        let expect: Vec<[u64; 3]> =
            numbers.map(|number| [(peer.input)(*number), 500 + number, 10 + number]).collect();
        assert_eq!(usage, expect, "{}", peer.agent);
        let sent: Vec<&Value> = calls
            .iter()
            .filter_map(|say| match say {
                Call(_, _, arguments) => Some(arguments),
                _ => None,
            })
            .collect();
        let blocks = entries.iter().filter_map(|entry| entry["message"]["content"].as_array()).flatten();
        let kept: Vec<&Value> =
            blocks.filter(|block| block["type"] == "toolCall").map(|block| &block["arguments"]).collect();
        for (sent, kept) in sent.iter().zip(kept) {
            for (name, value) in sent.as_object().unwrap() {
                assert_eq!(&kept[name], value, "{}", peer.agent);
            }
        }
        let result = |call: &str| {
            let call = in_its_words(call);
            let found = entries.iter().find(|entry| entry["message"]["toolCallId"] == call).unwrap();
            found["message"]["content"].to_string()
        };
        assert!(result("call_1").contains("out") && result("call_3").contains("alpha"));
    }
    if peer.failed == FailureTrace::Forgotten {
        // Nothing is lost: it is a branch of its own.
        let tree = world.run(&["tree", &id, "--all"]).ok().text();
        assert!(tree.contains("fail") && tree.contains("break"), "{tree}");
    }
    // Nothing comes twice, and the order does not matter.
    assert!(import().iter().all(|report| report["unchanged"] == true || report["added"] == 0), "{reports:?}");
    let nodes = |world: &World, store: &[&str]| -> Vec<Value> {
        let mut ids = Vec::new();
        for session in both.iter().map(|(session, ..)| session) {
            let args = [&["show", session, "--json"][..], store].concat();
            ids.extend(world.run(&args).ok().json_lines().into_iter().map(|node| node["id"].clone()));
        }
        ids.sort_by_key(ToString::to_string);
        ids.dedup();
        ids
    };
    let mut files = walk(&world.path("home").join(peer.files));
    files.retain(|file| file.extension().is_some_and(|extension| extension == "jsonl"));
    for file in files.iter().rev() {
        world.run(&["import", peer.agent, file.to_str().unwrap(), "--store", "other.db"]).ok();
    }
    if !files.is_empty() {
        assert_eq!(nodes(&world, &["--store", "other.db"]), nodes(&world, &[]));
    }
    // And it goes on here.
    world.run(&["-p", "--session", &id, "--model", MODEL, "onward"]).ok();
    let requests = world.requests();
    let last = messages(requests.last().unwrap());
    let texts: Vec<String> = last.iter().map(wire_text).collect();
    assert!(texts.first().is_some_and(|text| text.contains("hello")), "{texts:?}");
    assert!(texts.last().is_some_and(|text| text.contains("onward")), "{texts:?}");
}

/// Every file below a directory, by name.
pub(crate) fn walk(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.file_type().unwrap().is_dir() {
                open.push(entry.path());
            } else {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    files
}

#[test]
fn import_of_a_peer_with_rollouts() {
    let Some(program) = required(&["@openai", "codex-*", "vendor", "*", "bin", "codex"]) else { return };
    let peer = Peer {
        agent: "codex",
        shell: |line| ("exec_command", json!({ "cmd": line })),
        read: |path| ("exec_command", json!({ "cmd": format!("cat '{}'", path.display()) })),
        edit: |path| {
            let patch = format!(
                "*** Begin Patch\n*** Update File: {}\n@@\n-alpha\n+beta\n*** End Patch\n",
                path.display()
            );
            ("exec_command", json!({ "cmd": format!("apply_patch <<'EOF'\n{patch}EOF\n") }))
        },
        command: |world, program, url, to, text| {
            let home = world.path("home/.codex");
            std::fs::create_dir_all(&home).unwrap();
            let settings = format!(
                "model = \"m\"\nmodel_provider = \"fake\"\ncheck_for_update_on_startup = false\n\
                 [model_providers.fake]\nname = \"fake\"\nbase_url = \"{url}/v1\"\nwire_api = \"responses\"\nenv_key = \"PEER_KEY\"\n\
                 request_max_retries = 0\nstream_max_retries = 0\n[analytics]\nenabled = false\n[otel]\nexporter = \"none\"\n"
            );
            std::fs::write(home.join("config.toml"), settings).unwrap();
            let mut command = world.command(program);
            command.args(["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]);
            match to {
                PromptTarget::New => {}
                PromptTarget::Same(id) => drop(command.args(["resume", id])),
                PromptTarget::Fork(id) => drop(command.args(["fork", id])),
            }
            command.arg(text).env("CODEX_HOME", home).env("PEER_KEY", "k").env("NO_PROXY", "127.0.0.1");
            command
        },
        // Its wire counts cached input as input.
        input: |_| 500,
        breaks: || vec![Reply::Breaks("Half of")],
        broken: &["broken"],
        files: ".codex/sessions",
        forks: true,
        failed: FailureTrace::Recorded,
        id: |_, call| call.into(),
    };
    converse(&peer, &program);
}

#[test]
fn import_of_a_peer_with_projects() {
    let Some(program) = installed(&["@anthropic-ai", "claude-code-*", "claude"]) else { return };
    let peer = Peer {
        agent: "claude-code",
        shell: |line| ("Bash", json!({ "command": line, "description": "x" })),
        read: |path| ("Read", json!({ "file_path": path })),
        edit: |path| ("Edit", json!({ "file_path": path, "old_string": "alpha", "new_string": "beta" })),
        command: |world, program, url, to, text| {
            let mut command = world.command(program);
            command.args(["-p", text, "--allowedTools", "Bash,Read,Edit"]);
            match to {
                PromptTarget::New => {}
                PromptTarget::Same(id) => drop(command.args(["--resume", id])),
                PromptTarget::Fork(id) => drop(command.args(["--resume", id, "--fork-session"])),
            }
            with_messages_at(&mut command, url);
            command
        },
        input: |number| 1000 + number,
        breaks: || vec![Reply::Breaks("Half of")],
        broken: &["broken"],
        files: ".claude/projects",
        forks: true,
        failed: FailureTrace::Recorded,
        id: |_, call| call.into(),
    };
    converse(&peer, &program);
}

#[test]
fn import_of_a_peer_with_a_database() {
    let Some(program) = required(&["opencode-*", "bin", "opencode"]) else { return };
    let peer = Peer {
        agent: "opencode",
        shell: |line| ("bash", json!({ "command": line, "description": "x" })),
        read: |path| ("read", json!({ "filePath": path })),
        edit: |path| ("edit", json!({ "filePath": path, "oldString": "alpha", "newString": "beta" })),
        command: |world, program, url, to, text| {
            let models = json!({ "m": { "name": "m", "limit": { "context": 1_000_000, "output": 8_000 } } });
            let options = json!({ "baseURL": format!("{url}/v1"), "apiKey": "k" });
            let provider = json!({ "fake": { "npm": "@ai-sdk/anthropic", "name": "fake", "options": options, "models": models } });
            let settings = json!({ "autoupdate": false, "share": "disabled", "model": "fake/m", "small_model": "fake/m",
                "permission": "allow", "provider": provider });
            let settings = world.file("../tmp/peer.json", settings.to_string());
            let mut command = world.command(program);
            command.arg("run");
            match to {
                PromptTarget::New => {}
                PromptTarget::Same(id) => drop(command.args(["--session", id])),
                PromptTarget::Fork(id) => drop(command.args(["--session", id, "--fork"])),
            }
            command.arg(text).env("OPENCODE_CONFIG", settings).env("NO_PROXY", "127.0.0.1");
            for name in ["AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS"] {
                command.env(format!("OPENCODE_DISABLE_{name}"), "1");
            }
            command
        },
        input: |number| 1000 + number,
        breaks: || vec![Reply::BreaksOnce("Half of"), Reply::Says(vec![ModelBlock::Text("Whole.")])],
        broken: &["broken Half of", "a Whole."],
        files: ".local/share/opencode",
        forks: true,
        failed: FailureTrace::Recorded,
        id: |_, call| call.into(),
    };
    converse(&peer, &program);
}

#[test]
fn import_of_a_peer_with_an_operation_log() {
    let Some(program) = installed(&["@google", "gemini-cli", "bundle", "gemini.js"]) else { return };
    let Some(_) = installed(&["node", "bin", "node"]) else { return };
    let peer = Peer {
        agent: "gemini-cli",
        shell: |line| ("run_shell_command", json!({ "command": line, "description": "x" })),
        read: |path| ("read_file", json!({ "file_path": path })),
        edit: |path| {
            let change =
                json!({ "file_path": path, "old_string": "alpha", "new_string": "beta", "instruction": "x" });
            ("replace", change)
        },
        command: |world, program, url, to, text| {
            let settings = json!({ "security": { "auth": { "selectedType": "gemini-api-key" } },
                "general": { "enableAutoUpdate": false }, "privacy": { "usageStatisticsEnabled": false } });
            let path = world.path("home").join(".gemini/settings.json");
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, settings.to_string()).unwrap();
            let mut command = world.command(program.ancestors().nth(4).unwrap().join("node/bin/node"));
            command.arg(program).args(["-p", text, "-y", "--skip-trust", "-m", "gemini-2.5-flash"]);
            if let PromptTarget::Same(id) = to {
                command.args(["--resume", id]);
            }
            for (name, value) in
                [("GOOGLE_GEMINI_BASE_URL", url), ("GEMINI_API_KEY", "k"), ("NO_PROXY", "127.0.0.1")]
            {
                command.env(name, value);
            }
            command
        },
        // It counts what was read from the cache as input.
        input: |_| 500,
        breaks: || vec![Reply::Breaks("Half of")],
        broken: &[],
        files: ".gemini/tmp",
        forks: false,
        failed: FailureTrace::Forgotten,
        id: |name, call| format!("{name}__{call}"),
    };
    converse(&peer, &program);
}

#[test]
fn import_of_a_peer_with_an_event_chain() {
    let Some(program) = installed(&["@github", "copilot-*", "copilot"]) else { return };
    let peer = Peer {
        agent: "copilot-cli",
        shell: |line| ("bash", json!({ "command": line, "description": "x" })),
        read: |path| ("view", json!({ "path": path })),
        edit: |path| ("edit", json!({ "path": path, "old_str": "alpha", "new_str": "beta" })),
        command: |world, program, url, to, text| {
            let mut command = world.command(program);
            command.args(["-p", text, "--allow-all-tools", "--allow-all-paths", "--no-auto-update"]);
            if let PromptTarget::Same(id) = to {
                command.arg(format!("--resume={id}"));
            }
            with_responses_at(&mut command, url);
            command
        },
        // It counts what was read from the cache as input.
        input: |_| 500,
        breaks: || vec![Reply::Breaks("Half of")],
        broken: &["broken"],
        files: ".copilot/session-state",
        forks: false,
        failed: FailureTrace::Recorded,
        id: |_, call| call.into(),
    };
    converse(&peer, &program);
}
