//! `quipu -p --mode json`: every line is JSON, and the order of events keeps its laws.

use quipu_testkit::{Answer, Reply};
use serde_json::{Value, json};

use crate::support::*;

/// Checks the lines of one run of the command against the laws of the event stream; gives the events without
/// the header.
pub(crate) fn lawful(lines: &[Value]) -> &[Value] {
    let [header, events @ ..] = lines else { panic!("no header") };
    assert_eq!(header["type"], "session", "{header}");
    assert_eq!(header["version"], 3);
    for member in ["id", "timestamp", "cwd"] {
        assert!(header[member].as_str().is_some_and(|text| !text.is_empty()), "{member}: {header}");
    }
    let mut laws = Laws::default();
    for event in events {
        if let Err(law) = laws.take(event) {
            panic!("{law}: {event}\n{laws:?}");
        }
    }
    assert!(!laws.running && laws.settled, "the run did not end: {laws:?}");
    events
}

#[derive(Debug, Default)]
struct Laws {
    running: bool,
    settled: bool,
    turn: bool,
    open: Option<Value>,
    streamed: String,
    /// Calls of the last answer that have not begun, and results that have not become messages.
    calls: Vec<String>,
    started: Vec<String>,
    results: Vec<String>,
    turn_results: usize,
    all: usize,
}

impl Laws {
    fn take(&mut self, event: &Value) -> Result<(), &'static str> {
        let law = |holds: bool, law: &'static str| if holds { Ok(()) } else { Err(law) };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let message = &event["message"];
        match event["type"].as_str().ok_or("an event has a type")? {
            "agent_start" => {
                law(!self.running, "a run begins when none is under way")?;
                *self = Self { running: true, ..Self::default() };
            }
            "turn_start" => {
                law(self.running && !self.turn, "a turn begins in a run, after the one before it")?;
                (self.turn, self.turn_results) = (true, 0);
            }
            "message_start" => {
                law(self.turn && self.open.is_none(), "messages stand in turns, one after the other")?;
                law(message["role"].is_string(), "a message has a role")?;
                law(self.started.is_empty(), "messages wait until all tools ended")?;
                (self.open, self.streamed) = (Some(message.clone()), String::new());
            }
            "message_update" => {
                let open = self.open.as_ref().ok_or("a piece belongs to an open message")?;
                law(open["role"] == "assistant", "only answers stream")?;
                law(event.get("message").is_none(), "a piece does not repeat the message")?;
                let piece = &event["assistantMessageEvent"];
                law(piece.get("partial").is_none(), "a piece does not repeat the message")?;
                if piece["type"] == "text_delta" {
                    self.streamed.push_str(&text(&piece["delta"]));
                }
            }
            "message_end" => {
                let open = self.open.take().ok_or("a message ends after it began")?;
                law(open["role"] == message["role"], "the message that ends is the one that began")?;
                // One that was dropped is no part of the conversation.
                if message["role"] == "assistant" && event["node"].is_null() {
                    return Ok(());
                }
                law(
                    event["node"].as_str().is_some_and(|node| node.len() == 64),
                    "a kept message has a node",
                )?;
                self.all += 1;
                let blocks = message["content"].as_array().cloned().unwrap_or_default();
                if message["role"] == "assistant" {
                    let said: String = blocks.iter().map(|block| text(&block["text"])).collect();
                    law(self.streamed.is_empty() || said == self.streamed, "the pieces are the message")?;
                    let failed = ["error", "aborted"].iter().any(|reason| message["stopReason"] == *reason);
                    let calls = blocks.iter().filter(|block| block["type"] == "toolCall" && !failed);
                    self.calls = calls.map(|call| text(&call["id"])).collect();
                    self.results = self.calls.clone();
                }
                if message["role"] == "toolResult" {
                    law(!self.results.is_empty(), "a result answers a call")?;
                    let id = self.results.remove(0);
                    law(id == text(&message["toolCallId"]), "results come in the order of the calls")?;
                    self.turn_results += 1;
                }
            }
            "tool_execution_start" => {
                law(self.open.is_none() && !self.calls.is_empty(), "a tool begins after its answer")?;
                let id = self.calls.remove(0);
                law(id == text(&event["toolCallId"]), "tools begin in the order of the calls")?;
                self.started.push(id);
            }
            "tool_execution_update" | "tool_execution_end" => {
                let id = text(&event["toolCallId"]);
                let at = self.started.iter().position(|open| *open == id);
                let at = at.ok_or("a tool that says something has begun and not ended")?;
                if event["type"] == "tool_execution_end" {
                    self.started.remove(at);
                    law(event["isError"].is_boolean(), "a result is an error or not")?;
                }
            }
            "turn_end" => {
                law(
                    self.turn && self.open.is_none() && self.started.is_empty(),
                    "a turn ends when all is done",
                )?;
                law(message["role"] == "assistant", "a turn ends with its answer")?;
                let results = event["toolResults"].as_array().ok_or("a turn ends with its results")?;
                law(results.len() == self.turn_results, "a turn ends with all its results")?;
                self.turn = false;
            }
            "agent_end" => {
                law(self.running && !self.turn, "a run ends after its last turn")?;
                let all = event["messages"].as_array().ok_or("a run ends with its messages")?;
                law(all.len() == self.all, "a run ends with all its messages")?;
                law(event["willRetry"].is_boolean(), "a run ends and says whether it goes on")?;
                self.running = false;
            }
            "agent_settled" => {
                law(!self.running, "settled means that nothing runs")?;
                self.settled = true;
            }
            "auto_retry_start" | "auto_retry_end" | "queue_update" | "quipu_trouble" => {}
            _ => return Err("an event of a known type"),
        }
        Ok(())
    }
}

fn kinds(events: &[Value]) -> Vec<String> {
    let mut kinds: Vec<String> = Vec::new();
    for event in events {
        let kind = event["type"].as_str().unwrap();
        let role = event["message"]["role"].as_str().filter(|_| kind.starts_with("message_"));
        let kind = role.map_or(kind.to_owned(), |role| format!("{kind} {role}"));
        // How many pieces there are is not the point.
        if kind != "message_update" || kinds.last() != Some(&kind) {
            kinds.push(kind);
        }
    }
    kinds
}

const TURN: [&str; 4] =
    ["message_start assistant", "message_update", "message_end assistant", "tool_execution_start"];

#[test]
fn a_task_with_tools_in_order() {
    let world = World::new([
        Answer::new()
            .text("Looking.")
            .tool_call("c1", "bash", r#"{"command":"echo one"}"#)
            .tool_call("c2", "read", r#"{"path":"gone.txt"}"#)
            .reply(),
        Answer::new().thinking("Hm.", "c2ln").text("Done: é\u{2028}😀").reply(),
    ]);
    let ran = world.run(&["-p", "--mode", "json", "go"]).ok();
    assert_eq!(ran.text().lines().count(), ran.json_lines().len());
    let lines = ran.json_lines();
    assert_eq!(lines[0]["cwd"], json!(world.path("work")));
    assert_eq!(lines[0]["id"], world.sessions()[0]["id"]);
    let events = lawful(&lines);
    let mut expect = vec!["agent_start", "turn_start", "message_start user", "message_end user"];
    expect.extend(TURN);
    expect.extend(["tool_execution_start", "tool_execution_end", "tool_execution_end"]);
    expect.extend(["message_start toolResult", "message_end toolResult"].repeat(2));
    expect.extend(["turn_end", "turn_start"]);
    expect.extend(&TURN[..3]);
    expect.extend(["turn_end", "agent_end", "agent_settled"]);
    let mut kinds = kinds(events);
    kinds.retain(|kind| kind != "tool_execution_update");
    assert_eq!(kinds, expect);
    // The nodes that were named are those that are kept, in this order.
    let named: Vec<&Value> =
        events.iter().filter(|event| event["node"].is_string()).map(|event| &event["node"]).collect();
    let nodes = world.nodes();
    let kept: Vec<&Value> =
        nodes.iter().filter(|node| node["message"].is_object()).map(|node| &node["id"]).collect();
    assert_eq!(named, kept);
    // And what was streamed is what is kept.
    let last = &events[events.len() - 2]["messages"];
    assert_eq!(last.as_array().unwrap().last().unwrap(), &nodes.last().unwrap()["message"]);
}

#[test]
fn a_retry_is_told_and_leaves_one_answer() {
    let busy = || Reply::error(503, "overloaded_error", "Overloaded");
    let broken = Reply::sse(Answer::new().text("Half an ans").unfinished()).then_cut();
    let world = World::new([busy(), busy(), broken, Answer::new().text("Whole.").reply()]);
    let ran = world.run(&["-p", "--mode", "json", "go"]).ok();
    let lines = ran.json_lines();
    let events = lawful(&lines);
    let count = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
    assert_eq!(count("auto_retry_start"), 3, "{}", ran.text());
    assert_eq!(world.requests().len(), 4);
    assert_eq!(world.nodes().iter().filter(|node| node["message"]["role"] == "assistant").count(), 1);
    let answer = world.nodes().pop().unwrap();
    assert_eq!(answer["step"]["call"]["attempts"].as_array().unwrap().len(), 4);
}

#[test]
fn each_prompt_is_a_run_and_failure_is_told_in_events_too() {
    let refused = Reply::error(400, "invalid_request_error", "that does not work");
    let world = World::new([Answer::new().text("One.").reply(), refused]);
    let ran =
        world.run(&["-p", "--mode", "json", "first", "second", "third"]).fails(1, &["that does not work"]);
    let lines = ran.json_lines();
    let events = lawful(&lines);
    assert_eq!(events.iter().filter(|event| event["type"] == "agent_start").count(), 2);
    let failed = events.iter().rev().find(|event| event["type"] == "message_end").unwrap();
    assert_eq!(failed["message"]["stopReason"], "error");
    assert!(failed["message"]["errorMessage"].as_str().unwrap().contains("that does not work"));
}
