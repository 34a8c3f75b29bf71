//! The helper, spoken to as the extension never does.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::*;

/// Longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(60);

struct Helper {
    child: Child,
    input: Option<ChildStdin>,
    output: Receiver<Value>,
    next: u64,
}

impl Helper {
    fn start(world: &World) -> Self {
        let mut command = world.quipu(&["pi-helper"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        let (lines, output) = channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in stdout.lines() {
                let line = line.unwrap();
                let answer = serde_json::from_str(&line).unwrap_or_else(|_| panic!("no answer: {line}"));
                if lines.send(answer).is_err() {
                    return;
                }
            }
        });
        let input = child.stdin.take();
        Self { child, input, output, next: 0 }
    }

    fn line(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    fn answer(&self) -> Value {
        self.output.recv_timeout(LIMIT).expect("the helper answers")
    }

    fn send(&mut self, op: &str, mut request: Value) -> u64 {
        self.next += 1;
        request["id"] = json!(self.next);
        request["op"] = json!(op);
        self.line(&request.to_string());
        self.next
    }

    fn ask(&mut self, op: &str, request: Value) -> Value {
        let id = self.send(op, request);
        let answer = self.answer();
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    fn ends(mut self) {
        drop(self.input.take());
        assert!(self.child.wait().unwrap().success());
    }
}

fn header(session: &str) -> Value {
    json!({ "type": "session", "version": 3, "id": session, "timestamp": "2026-11-27T10:00:00.000Z", "cwd": "/w" })
}

fn entry(number: usize, parent: Option<usize>, text: &str) -> Value {
    let id = |number: usize| format!("{number:08x}");
    json!({ "type": "message", "id": id(number), "parentId": parent.map(id),
        "timestamp": "2026-11-27T10:00:01.000Z",
        "message": { "role": "user", "content": [{ "type": "text", "text": text }], "timestamp": 1 } })
}

#[test]
fn helper_answers_lines_that_are_no_requests() {
    let world = World::new([]);
    let mut helper = Helper::start(&world);
    for line in
        ["nonsense", "{\"id\":1,", "7", "[]", "{}", "{\"id\":{},\"op\":\"hello\"}", "{\"id\":1}", "\u{1}"]
    {
        helper.line(line);
        let answer = helper.answer();
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&Value::Null, &json!("malformed")), "{line}");
    }
    helper.line(&format!("{{\"id\":1,\"op\":\"tool\",\"a\":{}", "[".repeat(100_000)));
    assert_eq!(helper.answer()["error"]["code"], "malformed");
    helper.line(&"a".repeat((16 << 20) + 1));
    let answer = helper.answer();
    assert!(answer["error"]["message"].as_str().unwrap().contains("16777216 bytes"), "{answer}");
    for (op, request, code) in [
        ("none", json!({}), "malformed"),
        ("open", json!({}), "malformed"),
        ("open", json!({ "header": 7 }), "file"),
        ("open", json!({ "header": { "type": "session", "id": "s" } }), "file"),
        ("append", json!({ "session": "s", "first": 0, "entries": [] }), "not-open"),
        ("append", json!({ "session": "s", "first": -1, "entries": [] }), "malformed"),
        ("tool", json!({ "session": "s", "name": "life", "arguments": {} }), "not-open"),
        ("restore", json!({ "session": "s", "file": "/nowhere/s.jsonl" }), "not-open"),
    ] {
        let answer = helper.ask(op, request.clone());
        assert_eq!(answer["error"]["code"], code, "{op} {request}: {answer}");
    }
    assert_eq!(helper.ask("hello", json!({}))["result"]["protocol"], 1);
    helper.ends();
}

#[test]
fn helper_ends_with_endless_garbage() {
    let world = World::new([]);
    let mut helper = Helper::start(&world);
    // It stops reading at some time.
    helper.input.as_mut().unwrap().write_all("garbage\n".repeat(100_000).as_bytes()).ok();
    assert_eq!(helper.child.wait().unwrap().code(), Some(2));
}

#[test]
fn thousand_requests_at_once_are_each_answered_once() {
    let world = World::new([]);
    let mut helper = Helper::start(&world);
    let opened = helper.ask("open", json!({ "header": header("s1") }));
    assert_eq!(opened["result"]["count"], 0, "{opened}");
    let mut waiting = BTreeSet::new();
    let steps = 1_000_usize;
    for number in 0..steps {
        let parent = number.checked_sub(1);
        let request = json!({ "session": "s1", "first": number, "entries": [entry(number, parent, "x")],
            "leaf": format!("{number:08x}") });
        waiting.insert(helper.send("append", request));
        let request = json!({ "session": "s1", "name": "life", "arguments": {}, "leaf": null });
        waiting.insert(helper.send("tool", request));
    }
    let cancelled = helper.send("cancel", json!({ "target": helper.next }));
    waiting.insert(cancelled);
    while !waiting.is_empty() {
        let answer = helper.answer();
        assert!(waiting.remove(&answer["id"].as_u64().unwrap()), "{answer}");
        let code = &answer["error"]["code"];
        assert!(code.is_null() || code == "cancelled", "{answer}");
    }
    let state = helper.ask("state", json!({ "session": "s1" }));
    assert_eq!(state["result"]["count"], steps, "{state}");
    helper.ends();
    assert_eq!(super::pi::nodes(&world, "s1", &[]).len(), steps + 1);
}

#[test]
fn entries_twice_and_entries_too_late_are_told_apart() {
    let world = World::new([]);
    let mut helper = Helper::start(&world);
    helper.ask("open", json!({ "header": header("s1") }));
    let first: Vec<Value> = vec![entry(0, None, "a"), entry(1, Some(0), "b")];
    let append = |first: usize, entries: &[Value]| json!({ "session": "s1", "first": first, "entries": entries, "leaf": null });
    assert_eq!(helper.ask("append", append(0, &first))["result"]["count"], 2);
    assert_eq!(helper.ask("append", append(0, &first))["result"]["count"], 2);
    let gap = helper.ask("append", append(5, &[entry(5, None, "f")]));
    assert_eq!(gap["error"]["code"], "gap", "{gap}");
    // What was opened again begins anew, and what is there is recognized.
    helper.ask("open", json!({ "header": header("s1") }));
    let state = helper.ask("state", json!({ "session": "s1" }));
    assert_eq!((&state["result"]["count"], &state["result"]["lacking"]), (&json!(0), &json!(2)));
    let third = [first.clone(), vec![entry(2, Some(1), "sk-ant-api03-not a whole line\u{2028}")]].concat();
    assert_eq!(helper.ask("append", append(0, &third))["result"]["count"], 3);
    let state = helper.ask("state", json!({ "session": "s1" }));
    assert_eq!((&state["result"]["count"], &state["result"]["lacking"]), (&json!(3), &json!(0)));
    helper.ends();
    let lines: Vec<String> = [header("s1")].iter().chain(&third).map(ToString::to_string).collect();
    let file = world.file("s1.jsonl", lines.join("\n") + "\n");
    super::pi::agrees_with_import(&world, "s1", &file);
}
