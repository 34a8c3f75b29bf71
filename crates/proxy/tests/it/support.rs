//! A running proxy, a client that speaks bytes, and the graph that comes of it.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use quipu_protocol::{Entry, Message, NodeId, StepInfo};
use quipu_proxy::{
    PROXY_LIMITS, ProxyCounts, ProxyLimits, ProxyOptions, RecorderOptions, Upstreams, WireKind, serve,
};
use quipu_seal::Sealer;
use quipu_store::{Graph, LineageEnd, OpenOptions, RefName, SessionQuery, SessionRow};
use quipu_testkit::{Answer as Said, Reply, Wire};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

pub(crate) const WIRES: [WireKind; 3] = [WireKind::Messages, WireKind::Completions, WireKind::Responses];

pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// A proxy in a thread of its own.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    stop: CancellationToken,
    thread: Option<JoinHandle<ProxyCounts>>,
    pub(crate) lines: Arc<Mutex<Vec<String>>>,
}

/// What a client got.
#[derive(Debug)]
pub(crate) struct ClientAnswer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl ClientAnswer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

pub(crate) fn opener(path: PathBuf) -> quipu_proxy::StoreOpener {
    Arc::new(move || {
        quipu_store::open(&path, &OpenOptions::default())
            .map_err(|error| quipu_proxy::StoreOpenError(error.to_string()))
    })
}

impl Proxy {
    pub(crate) fn start(upstream: &str, store: &Path) -> Self {
        Self::with(upstream, opener(store.to_owned()), PROXY_LIMITS)
    }

    pub(crate) fn with(upstream: &str, opener: quipu_proxy::StoreOpener, limits: ProxyLimits) -> Self {
        Self::to(&[upstream.to_owned()], opener, limits)
    }

    pub(crate) fn to(upstreams: &[String], opener: quipu_proxy::StoreOpener, limits: ProxyLimits) -> Self {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&lines);
        let recorder = RecorderOptions {
            opener,
            sealer: Arc::new(Sealer::new([7; 32])),
            models: Arc::new(|_, _| None),
            notify: Arc::new(move |line| told.lock().unwrap().push(line.to_owned())),
            confirm_command: "confirm-it".into(),
        };
        let upstreams = Upstreams::new(upstreams).unwrap();
        let options = ProxyOptions { upstreams, recorder, limits };
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let (send, receive) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            block_on(async {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                send.send(listener.local_addr().unwrap()).unwrap();
                serve(options, listener, stopped).await.unwrap()
            })
        });
        Self { address: receive.recv().unwrap(), stop, thread: Some(thread), lines }
    }

    /// Ends it in order.
    pub(crate) fn end(mut self) -> ProxyCounts {
        self.stop.cancel();
        self.thread.take().unwrap().join().unwrap()
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    }

    /// Sends a request byte for byte, and reads the answer to its end.
    pub(crate) fn raw(&self, request: &[u8]) -> ClientAnswer {
        let mut stream = self.connect();
        // A refused body is not read to its end.
        stream.write_all(request).ok();
        read(&mut stream)
    }

    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> ClientAnswer {
        let mut head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n",
            self.address,
            body.len()
        );
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        self.raw(&[head.as_bytes(), b"\r\n", body].concat())
    }

    /// A call of a client that says who it is.
    pub(crate) fn call(&self, wire: WireKind, body: &Value) -> ClientAnswer {
        let headers = [
            ("User-Agent", "some-cli/1.0"),
            ("Authorization", "Bearer key-of-a-person-000000"),
            ("Content-Type", "application/json"),
        ];
        self.send("POST", path(wire), &headers, body.to_string().as_bytes())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Reads an answer until the connection ends.
pub(crate) fn read(stream: &mut TcpStream) -> ClientAnswer {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).ok();
    let at = bytes.windows(4).position(|part| part == b"\r\n\r\n");
    let at = at.unwrap_or_else(|| panic!("no answer: {}", String::from_utf8_lossy(&bytes)));
    let head = String::from_utf8_lossy(&bytes[..at]).into_owned();
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    let body = bytes[at + 4..].to_vec();
    let is_chunked = headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
    ClientAnswer { status, headers, body: if is_chunked { unchunked(&body) } else { body } }
}

fn unchunked(mut body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    while let Some(at) = body.windows(2).position(|part| part == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&body[..at]).unwrap().trim(), 16).unwrap();
        let data = &body[at + 2..];
        if size == 0 || data.len() < size {
            break;
        }
        out.extend_from_slice(&data[..size]);
        body = &data[size + 2..];
    }
    out
}

pub(crate) fn path(wire: WireKind) -> &'static str {
    match wire {
        WireKind::Messages => "/v1/messages",
        WireKind::Completions => "/v1/chat/completions",
        WireKind::Responses => "/v1/responses",
    }
}

/// How the fake server speaks.
pub(crate) fn spoken(wire: WireKind) -> Wire {
    match wire {
        WireKind::Messages => Wire::Messages,
        WireKind::Completions => Wire::Completions,
        WireKind::Responses => Wire::Responses,
    }
}

/// An answer in one body or as a stream.
pub(crate) fn says(wire: WireKind, is_stream: bool, text: &str) -> Reply {
    if is_stream {
        return Said::on(spoken(wire)).text(text).reply();
    }
    let body = match wire {
        WireKind::Messages => json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
            "content": [{ "type": "text", "text": text }], "usage": { "input_tokens": 10, "output_tokens": 5 },
        }),
        WireKind::Completions => json!({
            "id": "chatcmpl-1", "model": "m", "usage": { "prompt_tokens": 10, "completion_tokens": 5 },
            "choices": [{ "index": 0, "finish_reason": "stop", "message": { "role": "assistant", "content": text } }],
        }),
        WireKind::Responses => json!({
            "id": "resp_1", "model": "m", "status": "completed", "usage": { "input_tokens": 10, "output_tokens": 5 },
            "output": [{ "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": text }] }],
        }),
    };
    Reply::new(200, "application/json", body.to_string())
}

/// A request with these messages, turn by turn: the user's at even places.
pub(crate) fn asks(wire: WireKind, session: &str, is_stream: bool, turns: &[&str]) -> Value {
    let turns: Vec<Value> = turns
        .iter()
        .enumerate()
        .map(|(at, text)| {
            let role = if at % 2 == 0 { "user" } else { "assistant" };
            let kind = if at % 2 == 0 { "input_text" } else { "output_text" };
            match wire {
                WireKind::Messages => json!({ "role": role, "content": [{ "type": "text", "text": text }] }),
                WireKind::Completions => json!({ "role": role, "content": text }),
                WireKind::Responses => {
                    json!({ "type": "message", "role": role, "content": [{ "type": kind, "text": text }] })
                }
            }
        })
        .collect();
    with_list(wire, session, is_stream, turns)
}

/// A request with this list of messages.
#[expect(clippy::needless_pass_by_value, reason = "lists are made for the call")]
pub(crate) fn with_list(wire: WireKind, session: &str, is_stream: bool, list: Vec<Value>) -> Value {
    let tool = json!({ "type": "function", "name": "look", "function": { "name": "look" } });
    match wire {
        WireKind::Messages => json!({
            "model": "m", "max_tokens": 100, "stream": is_stream, "system": "You help.\nWorking directory: /work/place\n",
            "tools": [{ "name": "look", "input_schema": { "type": "object" } }],
            "metadata": { "user_id": format!("user_1_account__session_{session}") }, "messages": list,
        }),
        WireKind::Completions => json!({
            "model": "m", "stream": is_stream, "tools": [tool], "prompt_cache_key": session, "messages": list,
        }),
        WireKind::Responses => json!({
            "model": "m", "stream": is_stream, "tools": [tool], "prompt_cache_key": session, "input": list,
            "instructions": "You help.",
        }),
    }
}

pub(crate) fn open(path: &Path) -> Arc<dyn Graph> {
    quipu_store::open(path, &OpenOptions::default()).unwrap()
}

/// Every session, those beside others too.
pub(crate) fn sessions(store: &dyn Graph) -> Vec<SessionRow> {
    let query = SessionQuery { children: true, ..SessionQuery::default() };
    block_on(store.sessions(query)).unwrap()
}

/// The messages that lead to a node, each as who said it and what.
pub(crate) fn said(store: &dyn Graph, node: NodeId) -> Vec<(String, String)> {
    entries(store, node).into_iter().filter_map(|(_, entry, _)| words(&entry)).collect()
}

pub(crate) fn entries(store: &dyn Graph, node: NodeId) -> Vec<(NodeId, Entry, StepInfo)> {
    let nodes = block_on(store.lineage(node, LineageEnd::Root)).unwrap();
    let decoded = block_on(store.decoded(nodes)).unwrap();
    decoded.into_iter().map(|(node, decoded)| (node.id, decoded.entry, decoded.step)).collect()
}

pub(crate) fn words(entry: &Entry) -> Option<(String, String)> {
    let Entry::Message(message) = entry else { return None };
    Some(match message {
        Message::User(user) => ("user".into(), user.content.text()),
        Message::Assistant(answer) => {
            let calls = answer.tool_calls().map(|call| format!("<{}>", call.name));
            let error = answer.error_message.iter().map(|error| format!("!{error}"));
            let text = Some(answer.text()).filter(|text| !text.is_empty());
            ("assistant".into(), text.into_iter().chain(calls).chain(error).collect::<Vec<_>>().join(" "))
        }
        Message::ToolResult(result) => {
            let text = result.content.iter().filter_map(|part| part.as_text());
            (format!("result of {}", result.tool_name), text.collect::<Vec<_>>().join(" "))
        }
        other => ("other".into(), format!("{other:?}")),
    })
}

/// Where the session of this name stands.
pub(crate) fn head(store: &dyn Graph, agent: &str, session: &str) -> NodeId {
    let name = RefName::of_agent(agent, &session.into());
    for _ in 0..100 {
        if let Some(node) = block_on(store.head(&name)).unwrap() {
            return node;
        }
        // It is kept some time after the answer.
        block_on(store.changed()).unwrap();
    }
    panic!("no {name}")
}

pub(crate) fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(who, what)| ((*who).to_owned(), (*what).to_owned())).collect()
}
