//! `quipu serve` at an address or a socket: the real command, driven over real connections.

#[cfg(test)]
mod access;
#[cfg(test)]
mod chat;
#[cfg(test)]
mod conversation_history;
#[cfg(test)]
mod conversation_imports;
#[cfg(test)]
mod conversation_marks;
#[cfg(test)]
mod conversation_recovery;
#[cfg(test)]
mod conversation_streaming;
#[cfg(test)]
mod conversation_tools;
#[cfg(test)]
mod conversations;
#[cfg(test)]
mod event_stream;
#[cfg(test)]
mod heartbeat_jobs;
#[cfg(test)]
mod install;
#[cfg(test)]
mod life;
#[cfg(test)]
mod peers;
#[cfg(test)]
mod sockets;

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use nix::sys::signal::Signal;
use quipu_testkit::{Answer, Reply};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{Error, HandshakeError, Message, WebSocket};

use crate::support::*;

/// A client that waits longer hangs.
const LIMIT: Duration = Duration::from_secs(120);

fn says(text: &str) -> Reply {
    Answer::new().text(text).reply()
}

/// A world that answers with this script, and has a model for new sessions.
fn world(script: impl IntoIterator<Item = Reply>) -> World {
    let world = World::new(script);
    configure(&world, &json!({}));
    world
}

/// Writes settings with a model for new sessions, and these members besides.
fn configure(world: &World, more: &Value) {
    let mut settings = json!({ "retry": { "baseDelayMs": 1 }, "defaultModel": MODEL });
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    std::fs::write(world.path("home/.quipu/settings.json"), settings.to_string()).unwrap();
}

/// A server, which is killed with its test.
struct Server {
    command: Option<RunningCommand>,
    address: String,
    token: String,
}

/// The answer to a request.
#[derive(Debug)]
struct HttpAnswer {
    status: u16,
    head: String,
    body: String,
}

impl HttpAnswer {
    #[track_caller]
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }

    /// It must be this error.
    #[track_caller]
    fn refuses(&self, status: u16, code: &str) {
        assert_eq!((self.status, self.json()["error"]["code"].as_str()), (status, Some(code)), "{self:?}");
    }
}

impl Server {
    fn start(world: &World) -> Self {
        Self::start_with(world, &[])
    }

    fn start_with(world: &World, args: &[&str]) -> Self {
        let mut command = world.start(&[&["serve", "--listen", "127.0.0.1:0", "--json"], args].concat());
        let line = command.line().unwrap();
        let place: Value = serde_json::from_str(&line).unwrap();
        let address = place["url"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned();
        let file = std::path::PathBuf::from(place["tokenFile"].as_str().unwrap());
        assert_eq!(mode(&file), 0o600);
        let token = std::fs::read_to_string(file).unwrap().trim().to_owned();
        let told = command.line_with("Serving");
        assert!(told.contains(&address) && !told.contains(&token), "{told}");
        Self { command: Some(command), address, token }
    }

    /// It must end so at this signal.
    fn ends(mut self, signal: Signal, code: i32) -> CommandOutput {
        let command = self.command.take().unwrap();
        command.signal(signal);
        command.wait().exits(code)
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream
    }

    /// Sends a request with the token. A header of this name replaces one that is sent else; an empty one leaves it out.
    fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> TcpStream {
        let mut stream = self.connect();
        let bearer = format!("Bearer {}", self.token);
        let length = body.len().to_string();
        let usual = [
            ("Host", &*self.address),
            ("Authorization", &*bearer),
            ("Connection", "close"),
            ("Content-Type", "application/json"),
            ("Content-Length", &*length),
        ];
        let is_other = |name: &str| headers.iter().all(|(other, _)| *other != name);
        let all = usual.iter().filter(|(name, _)| is_other(name)).chain(headers);
        let lines: String = all
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        // A refused body is not read to its end.
        stream.write_all(format!("{method} {path} HTTP/1.1\r\n{lines}\r\n{body}").as_bytes()).ok();
        stream
    }

    fn request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> HttpAnswer {
        answer_of(self.send(method, path, headers, body))
    }

    fn get(&self, path: &str) -> HttpAnswer {
        self.request("GET", path, &[], "")
    }

    fn post(&self, path: &str, body: &Value) -> HttpAnswer {
        self.request("POST", path, &[], &body.to_string())
    }

    /// A WebSocket, greeted.
    fn socket(&self) -> Socket {
        let mut socket = self.silent_socket();
        socket.send(&json!({ "type": "hello", "version": 2 }));
        assert_eq!(socket.next()["type"], "hello");
        socket
    }

    fn silent_socket(&self) -> Socket {
        let bearer = format!("Bearer {}", self.token);
        let socket = self.upgraded(&[("authorization", &bearer)]).unwrap();
        Socket { socket, number: 0, kept: Vec::new() }
    }

    /// A WebSocket with these headers, or the status that it is refused with.
    fn upgraded(&self, headers: &[(&'static str, &str)]) -> Result<WebSocket<TcpStream>, u16> {
        let url = format!("ws://{}/v1/socket", self.address);
        let mut request = url.into_client_request().unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        match tokio_tungstenite::tungstenite::client(request, self.connect()) {
            Ok((socket, _)) => Ok(socket),
            Err(HandshakeError::Failure(Error::Http(answer))) => Err(answer.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    /// The value of a metric.
    fn metric(&self, name: &str) -> Option<f64> {
        let text = self.get("/metrics").body;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map(|value| value.parse().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(command) = self.command.take() {
            command.signal(Signal::SIGKILL);
        }
    }
}

/// Reads an answer to the end of the connection.
fn answer_of(mut stream: impl Read) -> HttpAnswer {
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok();
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let body = match head.to_lowercase().contains("transfer-encoding: chunked") {
        true => unchunked(body),
        false => body.to_owned(),
    };
    HttpAnswer { status, head: head.to_lowercase(), body }
}

fn unchunked(mut text: &str) -> String {
    let mut whole = String::new();
    while let Some((length, rest)) = text.split_once("\r\n") {
        let length = usize::from_str_radix(length.trim(), 16).unwrap();
        if length == 0 {
            break;
        }
        whole.push_str(&rest[..length]);
        text = rest[length..].strip_prefix("\r\n").unwrap();
    }
    whole
}

/// A client over a WebSocket.
struct Socket {
    socket: WebSocket<TcpStream>,
    number: u64,
    /// What came while something else was waited for.
    kept: Vec<Value>,
}

impl Socket {
    fn send(&mut self, line: &Value) {
        self.text(&line.to_string());
    }

    fn text(&mut self, text: &str) {
        self.socket.send(Message::text(text)).unwrap();
    }

    /// The next line; the code and the reason where the server closes.
    fn read(&mut self) -> Result<Value, (u16, String)> {
        loop {
            match self.socket.read() {
                Ok(Message::Text(text)) => return Ok(serde_json::from_str(&text).unwrap()),
                Ok(Message::Close(Some(frame))) => return Err((frame.code.into(), frame.reason.to_string())),
                Ok(Message::Ping(_) | Message::Pong(_)) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn next(&mut self) -> Value {
        self.read().unwrap()
    }

    /// The code and the reason with which the server closes; lines before that are passed over.
    fn closed(&mut self) -> (u16, String) {
        loop {
            if let Err(closed) = self.read() {
                return closed;
            }
        }
    }

    /// The answer to a line; what comes before it is kept.
    fn ask(&mut self, mut line: Value) -> Value {
        self.number += 1;
        line["id"] = self.number.into();
        self.send(&line);
        loop {
            let answer = self.next();
            if answer["id"] == self.number {
                return answer;
            }
            self.kept.push(answer);
        }
    }

    fn open(&mut self, world: &World) -> String {
        let opened = self.ask(json!({ "type": "open", "cwd": world.path("work") }));
        assert_eq!(opened["type"], "opened", "{opened}");
        opened["session"].as_str().unwrap().to_owned()
    }

    fn subscribe(&mut self, session: &str) -> Value {
        let snapshot = self.ask(json!({ "type": "subscribe", "session": session }));
        assert_eq!(snapshot["type"], "snapshot", "{snapshot}");
        snapshot
    }

    fn prompt(&mut self, session: &str, text: &str) {
        let command = json!({ "type": "prompt", "input": [{ "type": "text", "text": text }], "when": "now" });
        let ack = self.ask(json!({ "type": "command", "session": session, "command": command }));
        assert_eq!(ack["type"], "ack", "{ack}");
    }

    /// The events up to the next one of this type.
    fn events_to(&mut self, last: &str) -> Vec<Value> {
        let mut events = Vec::new();
        let mut kept = std::mem::take(&mut self.kept).into_iter();
        loop {
            let line = kept.next().unwrap_or_else(|| self.next());
            if line["type"] == "event" {
                let is_last = line["envelope"]["event"]["type"] == last;
                events.push(line);
                if is_last {
                    self.kept = kept.collect();
                    return events;
                }
            }
        }
    }
}

/// Reads the head of an answer that goes on.
fn head_of(reader: &mut BufReader<TcpStream>) -> String {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).unwrap() > 0, "{head}");
    }
    head
}
