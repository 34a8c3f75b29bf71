//! A client of the protocol over pipes.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::*;

/// The newest version with a handshake, and the one without.
pub(crate) const OLD: &str = "2025-11-25";
pub(crate) const NEW: &str = "2026-07-28";

pub(crate) struct Client {
    pub(crate) process: JsonProcess,
    next: u64,
    has_session: bool,
    /// What the client says its roots are.
    pub(crate) roots: Option<Value>,
}

impl Client {
    pub(crate) fn start(world: &World, args: &[&str]) -> Self {
        Self::start_in(world, &world.path("work"), args)
    }

    pub(crate) fn start_in(world: &World, dir: &Path, args: &[&str]) -> Self {
        let mut command = world.quipu(args);
        command.current_dir(dir);
        Self { process: JsonProcess::start(command), next: 0, has_session: false, roots: None }
    }

    /// One that has begun a session of the newest version with a handshake.
    pub(crate) fn started(world: &World) -> Self {
        let mut client = Self::start(world, &["mcp", "serve"]);
        client.initialize(OLD, &json!({}));
        client
    }

    pub(crate) fn initialize(&mut self, version: &str, capabilities: &Value) -> Value {
        let params = json!({
            "protocolVersion": version, "capabilities": capabilities,
            "clientInfo": { "name": "tester", "version": "1" },
        });
        self.has_session = true;
        let result = self.ask("initialize", &params)["result"].take();
        self.tell("notifications/initialized", &json!({}));
        result
    }

    pub(crate) fn line(&mut self, line: &str) {
        self.process.send(line);
    }

    pub(crate) fn tell(&mut self, method: &str, params: &Value) {
        self.line(&json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string());
    }

    /// Sends a request; gives its id.
    pub(crate) fn send(&mut self, method: &str, params: &Value) -> u64 {
        self.next += 1;
        let mut params = params.clone();
        if !self.has_session {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": NEW,
                "io.modelcontextprotocol/clientCapabilities": {},
                "io.modelcontextprotocol/clientInfo": { "name": "tester", "version": "1" },
            });
        }
        self.line(
            &json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params }).to_string(),
        );
        self.next
    }

    /// The next message that is no question of the server.
    pub(crate) fn message(&mut self) -> Value {
        loop {
            let message = self.process.next();
            if message["method"] == "roots/list" {
                let Some(roots) = self.roots.clone() else { continue };
                let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "result": { "roots": roots } });
                self.line(&answer.to_string());
                continue;
            }
            return message;
        }
    }

    pub(crate) fn ask(&mut self, method: &str, params: &Value) -> Value {
        let id = self.send(method, params);
        let answer = self.message();
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        self.ask("tools/call", &json!({ "name": tool, "arguments": arguments }))
    }

    /// The next line for people.
    pub(crate) fn notice(&mut self) -> String {
        self.process.running.line_with("")
    }

    /// Closes its end; the server ends with this code.
    pub(crate) fn ends(self, code: i32) {
        self.process.close().exits(code);
    }
}

/// The text of a result.
pub(crate) fn text(answer: &Value) -> String {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text: {answer}")).to_owned()
}
