//! The server.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::listener::Listener;
use crate::reply::Step;
use crate::{Identity, Reply};

/// Bytes of one request at most.
const MAX_REQUEST: usize = 256 << 20;

/// One request, as it came.
#[derive(Debug, Clone)]
pub struct CapturedRequest {
    /// Such as `POST`.
    pub method: String,
    /// The path, with its query.
    pub path: String,
    /// The headers in order, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The exact bytes of the body.
    pub body: Bytes,
    /// When all of it was read.
    pub at: Instant,
}

impl CapturedRequest {
    /// The first header of this name (in lower case).
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Whether a client that was answered 404 asks for the models that there are, which no script is about. Who looks for
    /// servers on this machine does not say who it is.
    fn asks_what_is_here(&self) -> bool {
        self.method == "GET" && self.path == "/v1/models" && self.header("user-agent").is_some()
    }

    /// The beginning of a tunnel to `target`.
    pub(crate) fn tunnel(method: &str, target: String) -> Self {
        Self {
            method: method.to_owned(),
            path: target,
            headers: Vec::new(),
            body: Bytes::new(),
            at: Instant::now(),
        }
    }

    /// The body as JSON; null when it is none.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// A server on `127.0.0.1` with a thread of its own. It answers requests in the order of its script, each on a
/// connection of its own unless the reply before it kept the connection, and a request beyond the script with
/// status 400. Gone when it is dropped.
#[derive(Debug)]
pub struct FakeServer {
    listener: Listener,
    scheme: &'static str,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    script: Mutex<VecDeque<Reply>>,
    captured: watch::Sender<Vec<CapturedRequest>>,
}

impl FakeServer {
    /// Starts a server with this script.
    ///
    /// # Panics
    /// When no socket or thread can be had.
    pub fn start(script: impl IntoIterator<Item = Reply>) -> Self {
        Self::with(script, "http", |connection, state| async move {
            let mut connection = connection;
            let ended = answer(&mut connection, &state).await;
            reset_if(&ended, &connection)
        })
    }

    /// The same behind TLS.
    ///
    /// # Panics
    /// As [`FakeServer::start`].
    pub fn start_tls(script: impl IntoIterator<Item = Reply>, identity: &Identity) -> Self {
        let acceptor = TlsAcceptor::from(identity.0.clone());
        Self::with(script, "https", move |connection, state| {
            let acceptor = acceptor.clone();
            async move {
                let mut connection = acceptor.accept(connection).await?;
                let ended = answer(&mut connection, &state).await;
                reset_if(&ended, connection.get_ref().0)
            }
        })
    }

    fn with<F>(
        script: impl IntoIterator<Item = Reply>,
        scheme: &'static str,
        serve: impl Fn(TcpStream, Arc<State>) -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = std::io::Result<()>> + Send + 'static,
    {
        let state = Arc::new(State {
            script: Mutex::new(script.into_iter().collect()),
            captured: watch::Sender::new(Vec::new()),
        });
        let shared = state.clone();
        let listener = Listener::start("fake server", move |connection| {
            // A connection that the other side broke is that test's matter.
            let served = connection.set_nodelay(true).map(|()| serve(connection, shared.clone()));
            async move {
                if let Ok(served) = served {
                    drop(served.await);
                }
            }
        });
        Self { listener, scheme, state }
    }

    /// Its address as a base URL, without a slash at the end.
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.listener.address)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.listener.address
    }

    /// Adds to the script.
    pub fn push(&self, reply: Reply) {
        self.state.script.lock().unwrap_or_else(PoisonError::into_inner).push_back(reply);
    }

    /// The requests so far, in order.
    pub fn requests(&self) -> Vec<CapturedRequest> {
        self.state.captured.borrow().clone()
    }

    /// Forgets the requests so far: a long conversation is in each of them.
    pub fn forget_requests(&self) {
        self.state.captured.send_modify(Vec::clear);
    }

    /// Waits until there were `count` requests, and gives all.
    pub async fn wait_for_requests(&self, count: usize) -> Vec<CapturedRequest> {
        let mut captured = self.state.captured.subscribe();
        match captured.wait_for(|captured| captured.len() >= count).await {
            Ok(captured) => captured.clone(),
            Err(_) => self.requests(),
        }
    }
}

/// Breaks the connection where a step of the script asked for it.
fn reset_if(ended: &std::io::Result<()>, connection: &TcpStream) -> std::io::Result<()> {
    match ended {
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => connection.set_zero_linger(),
        Ok(()) | Err(_) => Ok(()),
    }
}

async fn answer(
    connection: &mut (impl AsyncRead + AsyncWrite + Unpin),
    state: &State,
) -> std::io::Result<()> {
    while answer_one(connection, state).await? {}
    connection.shutdown().await
}

/// Whether the connection takes another request.
async fn answer_one(
    connection: &mut (impl AsyncRead + AsyncWrite + Unpin),
    state: &State,
) -> std::io::Result<bool> {
    let Some(request) = read(connection).await? else { return Ok(false) };
    if request.asks_what_is_here() {
        connection
            .write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            .await?;
        return Ok(false);
    }
    // Before the request is shown, so that scripts and requests keep the same order.
    let reply = {
        let body = String::from_utf8_lossy(&request.body);
        let fits = |reply: &Reply| reply.only.as_ref().is_none_or(|text| body.contains(text.as_str()));
        let mut script = state.script.lock().unwrap_or_else(PoisonError::into_inner);
        let place = script.iter().position(fits);
        place.and_then(|place| script.remove(place))
    };
    state.captured.send_modify(|captured| captured.push(request));
    let reply = reply
        .unwrap_or_else(|| Reply::error(400, "invalid_request_error", "the script of this server is over"));
    let chunked = reply.head.as_ref().is_some_and(|head| head.chunked);
    let keep = reply.head.as_ref().is_some_and(|head| head.keep);
    if let Some(head) = &reply.head {
        let after = if keep { "keep-alive" } else { "close" };
        let mut text = format!("HTTP/1.1 {} Scripted\r\nconnection: {after}\r\n", head.status);
        for (name, value) in &head.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if chunked {
            text.push_str("transfer-encoding: chunked\r\n");
        }
        text.push_str("\r\n");
        connection.write_all(text.as_bytes()).await?;
    }
    for step in &reply.steps {
        match step {
            Step::Bytes(bytes) => send(connection, bytes, chunked).await?,
            Step::Drip(bytes, pause) => {
                for byte in bytes.chunks(1) {
                    send(connection, byte, chunked).await?;
                    connection.flush().await?;
                    if pause.is_zero() {
                        tokio::task::yield_now().await;
                    } else {
                        tokio::time::sleep(*pause).await;
                    }
                }
            }
            Step::Repeat(bytes, times) => {
                for _ in 0..*times {
                    send(connection, bytes, chunked).await?;
                }
            }
            Step::Gate(gate) => {
                connection.flush().await?;
                gate.pass().await;
            }
            Step::Hang => {
                connection.flush().await?;
                std::future::pending::<()>().await;
            }
            Step::Cut => return Ok(false),
            Step::Reset => return Err(std::io::ErrorKind::ConnectionReset.into()),
        }
    }
    if chunked {
        connection.write_all(b"0\r\n\r\n").await?;
    }
    connection.flush().await?;
    Ok(chunked && keep)
}

async fn send(
    connection: &mut (impl AsyncWrite + Unpin),
    bytes: &[u8],
    chunked: bool,
) -> std::io::Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    if chunked {
        connection.write_all(format!("{:x}\r\n", bytes.len()).as_bytes()).await?;
        connection.write_all(bytes).await?;
        return connection.write_all(b"\r\n").await;
    }
    connection.write_all(bytes).await
}

/// Reads one request with a `content-length`; `None` when the connection ends before it is whole.
pub(crate) async fn read(
    connection: &mut (impl AsyncRead + Unpin),
) -> std::io::Result<Option<CapturedRequest>> {
    let mut bytes = Vec::new();
    let body_at = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        if connection.read_buf(&mut bytes).await? == 0 || bytes.len() > MAX_REQUEST {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&bytes[..body_at]).into_owned();
    let mut lines = head.lines();
    let mut request_line = lines.next().unwrap_or_default().split(' ');
    let method = request_line.next().unwrap_or_default().to_owned();
    let path = request_line.next().unwrap_or_default().to_owned();
    let headers: Vec<_> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim().to_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.and_then(|(_, value)| value.parse().ok()).unwrap_or(0_usize);
    if length > MAX_REQUEST {
        return Ok(None);
    }
    while bytes.len() < body_at + length {
        if connection.read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
    }
    let body = Bytes::from(bytes).slice(body_at..body_at + length);
    Ok(Some(CapturedRequest { method, path, headers, body, at: Instant::now() }))
}
