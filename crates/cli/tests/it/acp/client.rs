//! A client of the protocol over pipes.

use std::collections::VecDeque;

use serde_json::{Value, json};

use crate::support::*;

pub(super) struct Client {
    pub(super) process: JsonProcess,
    next: u64,
    /// Updates that came, and have not been taken.
    pub(super) updates: Vec<Value>,
    /// Requests of the agent that nobody has answered.
    requests: VecDeque<Value>,
    /// Answers that came while another one was waited for.
    answers: Vec<Value>,
}

impl Client {
    pub(super) fn silent(world: &World) -> Self {
        let process = JsonProcess::start(world.quipu(&["acp"]));
        Self { process, next: 0, updates: Vec::new(), requests: VecDeque::new(), answers: Vec::new() }
    }

    /// One that has said what it can do.
    pub(super) fn start(world: &World, capabilities: &Value) -> Self {
        let mut client = Self::silent(world);
        let params = json!({ "protocolVersion": 1, "clientCapabilities": capabilities });
        let answer = client.call("initialize", &params);
        assert_eq!(answer["protocolVersion"], 1, "{answer}");
        client
    }

    pub(super) fn line(&mut self, line: &str) {
        self.process.send(line);
    }

    /// Sends a request; its id.
    pub(super) fn send(&mut self, method: &str, params: &Value) -> u64 {
        self.next += 1;
        let id = self.next;
        self.line(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string());
        id
    }

    pub(super) fn tell(&mut self, method: &str, params: &Value) {
        self.line(&json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string());
    }

    /// Reads one message and keeps it where it belongs.
    fn read(&mut self) {
        let message = self.process.next();
        match (message.get("method").and_then(Value::as_str), message.get("id")) {
            (Some("session/update"), None) => self.updates.push(message["params"].clone()),
            (Some(_), Some(_)) => self.requests.push_back(message),
            // What was taken back is not asked any more.
            (Some("$/cancel_request"), None) => {
                let id = &message["params"]["requestId"];
                self.requests.retain(|request| request["id"] != *id);
            }
            (Some(method), None) => panic!("an unknown notification: {method}"),
            (None, _) => self.answers.push(message),
        }
    }

    /// The answer to a request, whole.
    pub(super) fn answer(&mut self, id: &Value) -> Value {
        loop {
            if let Some(at) = self.answers.iter().position(|answer| answer["id"] == *id) {
                return self.answers.remove(at);
            }
            self.read();
        }
    }

    /// What a request comes to.
    pub(super) fn result(&mut self, id: u64) -> Value {
        let answer = self.answer(&json!(id));
        assert!(answer.get("error").is_none(), "{answer}");
        answer["result"].clone()
    }

    pub(super) fn call(&mut self, method: &str, params: &Value) -> Value {
        let id = self.send(method, params);
        self.result(id)
    }

    /// The error of a request.
    pub(super) fn fails(&mut self, method: &str, params: &Value) -> Value {
        let id = self.send(method, params);
        let answer = self.answer(&json!(id));
        assert!(answer.get("error").is_some(), "{answer}");
        answer["error"].clone()
    }

    /// The next request of the agent; answers that come before it are kept.
    pub(super) fn request(&mut self) -> Value {
        loop {
            if let Some(request) = self.requests.pop_front() {
                return request;
            }
            self.read();
        }
    }

    /// The next request of the agent; `None` where the answer to a request came first.
    pub(super) fn request_or_answer(&mut self, id: u64) -> Option<Value> {
        loop {
            if let Some(request) = self.requests.pop_front() {
                return Some(request);
            }
            if self.answers.iter().any(|answer| answer["id"] == id) {
                return None;
            }
            self.read();
        }
    }

    pub(super) fn reply(&mut self, request: &Value, result: &Value) {
        self.line(&json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }).to_string());
    }

    /// A new session in the world's directory; its id.
    pub(super) fn open(&mut self, world: &World) -> String {
        let params = json!({ "cwd": world.path("work"), "mcpServers": [] });
        self.call("session/new", &params)["sessionId"].as_str().unwrap().to_owned()
    }

    pub(super) fn prompt(&mut self, session: &str, text: &str) -> u64 {
        let prompt = json!([{ "type": "text", "text": text }]);
        self.send("session/prompt", &json!({ "sessionId": session, "prompt": prompt }))
    }

    /// Sends a prompt and waits for the reason why its turn ended.
    pub(super) fn says(&mut self, session: &str, text: &str) -> String {
        let id = self.prompt(session, text);
        self.result(id)["stopReason"].as_str().unwrap().to_owned()
    }

    /// Updates of a kind, which are taken.
    pub(super) fn of_kind(&mut self, kind: &str) -> Vec<Value> {
        let (of, others) = std::mem::take(&mut self.updates)
            .into_iter()
            .partition(|update| update["update"]["sessionUpdate"] == kind);
        self.updates = others;
        of
    }

    /// The text of the pieces of a kind, which are taken.
    pub(super) fn text(&mut self, kind: &str) -> String {
        let of = self.of_kind(kind);
        of.iter().filter_map(|update| update["update"]["content"]["text"].as_str()).collect()
    }

    /// Waits for an update of a kind.
    pub(super) fn wait_for(&mut self, kind: &str) -> Value {
        loop {
            let mut found = self.of_kind(kind);
            if !found.is_empty() {
                let first = found.remove(0);
                self.updates.splice(..0, found);
                return first;
            }
            self.read();
        }
    }

    /// Closes its input and waits for the end of the agent.
    pub(super) fn leave(self) {
        let ran = self.process.close();
        assert_eq!(ran.status.code(), Some(0), "{}", ran.err);
    }
}
