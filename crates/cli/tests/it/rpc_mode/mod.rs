//! `quipu --mode rpc`, driven as Pi's programs drive Pi.

mod client;
mod hostile;
mod questions;
mod recorded;
mod sessions;

use serde_json::{Value, json};

use crate::support::*;

/// A program at the other end of the pipes.
pub(super) struct Rpc {
    pub(super) process: JsonProcess,
    number: u64,
    /// The events so far.
    pub(super) events: Vec<Value>,
}

impl Rpc {
    pub(super) fn start(world: &World, args: &[&str]) -> Self {
        let process = JsonProcess::start(world.quipu(&[&["--mode", "rpc"], args].concat()));
        Self { process, number: 0, events: Vec::new() }
    }

    /// Sends a command without waiting for its response; its id.
    pub(super) fn send(&mut self, mut command: Value) -> Value {
        self.number += 1;
        let id = json!(format!("c{}", self.number));
        command["id"] = id.clone();
        self.process.send(&command.to_string());
        id
    }

    /// The next line; events are kept.
    pub(super) fn next(&mut self) -> Value {
        let line = self.process.next();
        if line["type"] != "response" {
            self.events.push(line.clone());
        }
        line
    }

    /// The response to a command that was sent. It must be the next response.
    #[track_caller]
    pub(super) fn response(&mut self, id: &Value) -> Value {
        loop {
            let line = self.next();
            if line["type"] == "response" {
                assert_eq!(line["id"], *id, "{line}");
                return line;
            }
        }
    }

    /// Sends a command and gives its response.
    #[track_caller]
    pub(super) fn ask(&mut self, command: Value) -> Value {
        let id = self.send(command);
        self.response(&id)
    }

    /// The data of a command that must succeed.
    #[track_caller]
    pub(super) fn data(&mut self, command: Value) -> Value {
        let response = self.ask(command);
        assert_eq!(response["success"], true, "{response}");
        response["data"].clone()
    }

    /// The error of a command that must fail.
    #[track_caller]
    pub(super) fn error(&mut self, command: Value) -> String {
        let response = self.ask(command);
        assert_eq!(response["success"], false, "{response}");
        response["error"].as_str().unwrap().to_owned()
    }

    /// Reads until an event of a type.
    pub(super) fn until(&mut self, kind: &str) -> Value {
        loop {
            let line = self.next();
            if line["type"] == kind {
                return line;
            }
        }
    }

    /// Says something and waits until the run is over.
    #[track_caller]
    pub(super) fn run(&mut self, message: &str) {
        self.data(json!({ "type": "prompt", "message": message }));
        self.until("agent_settled");
    }

    pub(super) fn state(&mut self) -> Value {
        self.data(json!({ "type": "get_state" }))
    }
}

/// The types of events, in their order.
pub(super) fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}
