//! The server on the loopback address.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::client::{NEW, OLD};
use super::filled;
use crate::support::*;

/// A server, which is killed with its test.
struct HttpServer {
    command: Option<RunningCommand>,
    address: String,
    token: String,
}

fn served(world: &World) -> HttpServer {
    served_at(world, "127.0.0.1:0")
}

fn served_at(world: &World, address: &str) -> HttpServer {
    let command = world.start(&["mcp", "serve", "--listen", address]);
    let mut served = HttpServer { command: Some(command), address: String::new(), token: String::new() };
    let line = served.command.as_mut().unwrap().line_with("Serving");
    served.address = line.split("http://").nth(1).unwrap().split("/mcp").next().unwrap().to_owned();
    let path = world.path("home/.quipu/mcp-server.token");
    assert_eq!(mode(&path), 0o600);
    let token = std::fs::read_to_string(path).unwrap();
    assert!(!line.contains(token.trim()), "{line}");
    served.token = token.trim().to_owned();
    served
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        if let Some(command) = self.command.take() {
            command.signal(Signal::SIGKILL);
        }
    }
}

impl HttpServer {
    fn ends(mut self, signal: Signal, code: i32) {
        let command = self.command.take().unwrap();
        command.signal(signal);
        command.wait().exits(code);
    }

    /// The status and the body of the answer to a request with these headers.
    fn post(&self, headers: &[(&str, &str)], body: &Value) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        let body = body.to_string();
        let host = headers.iter().find(|(name, _)| *name == "Host").map_or(&*self.address, |(_, host)| host);
        let mut head = format!(
            "POST /mcp HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n",
            body.len()
        );
        for (name, value) in headers.iter().filter(|(name, _)| *name != "Host") {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        // A refused body is not read to its end.
        stream.write_all(format!("{head}\r\n{body}").as_bytes()).ok();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok();
        let answer = String::from_utf8_lossy(&answer);
        let (first, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer}"));
        (first.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    fn asks(&self, version: &str, method: &str, params: &Value) -> Value {
        let bearer = format!("Bearer {}", self.token);
        let mut params = params.clone();
        let name = params["name"].as_str().unwrap_or_default().to_owned();
        let mut headers = vec![("Authorization", &*bearer), ("MCP-Protocol-Version", version)];
        if version == NEW {
            headers.push(("Mcp-Method", method));
            if !name.is_empty() {
                headers.push(("Mcp-Name", &name));
            }
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": NEW,
                "io.modelcontextprotocol/clientCapabilities": {},
                "io.modelcontextprotocol/clientInfo": { "name": "tester", "version": "1" },
            });
        }
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let (status, body) = self.post(&headers, &message);
        assert_eq!(status, 200, "{method}: {body}");
        serde_json::from_str(&body).unwrap_or_else(|_| panic!("{body}"))
    }
}

#[test]
fn both_generations_call_tools_over_http() {
    let world = filled();
    let served = served(&world);
    let params = json!({
        "protocolVersion": OLD, "capabilities": {}, "clientInfo": { "name": "tester", "version": "1" },
    });
    assert_eq!(served.asks(OLD, "initialize", &params)["result"]["protocolVersion"], OLD);
    for version in [OLD, NEW] {
        let tools = served.asks(version, "tools/list", &json!({}));
        assert_eq!(tools["result"]["tools"].as_array().unwrap().len(), 5, "{tools}");
        let call = json!({ "name": "search", "arguments": { "query": "paint" } });
        let found = served.asks(version, "tools/call", &call);
        assert!(found.to_string().contains("Blue paint it is."), "{found}");
    }
    served.ends(Signal::SIGTERM, 143);
}

#[test]
fn server_answers_by_the_address_that_it_listens_at() {
    let world = filled();
    let served = served_at(&world, "127.0.0.2:0");
    assert!(served.address.starts_with("127.0.0.2:"), "{}", served.address);
    let tools = served.asks(OLD, "tools/list", &json!({}));
    assert_eq!(tools["result"]["tools"].as_array().unwrap().len(), 5, "{tools}");
    served.ends(Signal::SIGTERM, 143);
}

#[test]
fn requests_without_token_or_from_a_page_are_refused() {
    let world = filled();
    let served = served(&world);
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    let bearer = format!("Bearer {}", served.token);
    let good = ("Authorization", &*bearer);
    assert_eq!(served.post(&[good], &list).0, 200);
    for (headers, expect) in [
        (vec![], 401),
        (vec![("Authorization", "Bearer ")], 401),
        (vec![("Authorization", &bearer[..bearer.len() - 1])], 401),
        (vec![("Authorization", &served.token)], 401),
        (vec![good, ("Origin", "https://example.com")], 403),
        (vec![good, ("Origin", "null")], 403),
        (vec![good, ("Host", "example.com")], 403),
    ] {
        let (status, body) = served.post(&headers, &list);
        assert_eq!(status, expect, "{headers:?}: {body}");
        assert!(!body.contains("search"), "{body}");
    }
    let large =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": { "a": "a".repeat(2 << 20) } });
    assert_eq!(served.post(&[good], &large).0, 413);
    let token = served.token.clone();
    served.ends(Signal::SIGINT, 130);
    // The same token the next time, and no other address than this machine's.
    let again = super::http::served(&world);
    assert_eq!(again.token, token);
    again.ends(Signal::SIGTERM, 143);
    set_mode(&world.path("home/.quipu/mcp-server.token"), 0o640);
    world.run(&["mcp", "serve", "--listen", "127.0.0.1:0"]).fails(1, &["open to other users", "chmod 600"]);
    world.run(&["mcp", "serve", "--listen", "0.0.0.0:0"]).fails(2, &["not an address of this machine alone"]);
}
