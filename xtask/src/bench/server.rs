//! A model server on loopback that does as little as it can: it reads a request, writes an answer that was made
//! before, and notes when.
//!
//! The test kit's server keeps whole requests and can do much more; here its own time would be in every figure.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use nix::poll::{PollFd, PollFlags};
use ruzstd::decoding::StreamingDecoder;

use super::measure::now_ns;
use super::wires::Reply;

/// What a body that is compressed with Zstandard begins with.
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];

/// Bytes of one request at most.
const MAX_REQUEST: usize = 256 << 20;

/// Answers each `POST` with the next reply of its script, on a kept connection, and all else with status 404. Gone
/// when it is dropped; a connection ends when its program does.
pub(super) struct ModelServer {
    address: SocketAddr,
    state: Arc<State>,
}

/// Answers a request by what it says.
type Reader = Box<dyn Fn(&str) -> Reply + Send>;

#[derive(Default)]
struct State {
    script: Mutex<VecDeque<Reply>>,
    reader: Mutex<Option<Reader>>,
    served: Mutex<Vec<ServedRequest>>,
    last_request: Mutex<Vec<u8>>,
    stop: AtomicBool,
}

/// One request of the script, in nanoseconds of [`now_ns`].
#[derive(Debug, Clone)]
pub(super) struct ServedRequest {
    /// When its first byte came.
    pub(super) first_byte_ns: u64,
    pub(super) body_bytes: usize,
    /// When the last byte of the answer was handed to the system; 0 before that.
    pub(super) replied_ns: Arc<AtomicU64>,
    /// When the program closed the connection in the midst of a paced answer; 0 before that.
    pub(super) closed_ns: Arc<AtomicU64>,
}

impl ModelServer {
    pub(super) fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("no socket for the model server")?;
        let address = listener.local_addr()?;
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        std::thread::Builder::new().name("model-server".to_owned()).spawn(move || {
            for connection in listener.incoming().flatten() {
                if shared.stop.load(Ordering::Relaxed) {
                    return;
                }
                let state = Arc::clone(&shared);
                // A connection that the program broke shows as a request that is missing.
                std::thread::spawn(move || drop(answer(connection, &state)));
            }
        })?;
        Ok(Self { address, state })
    }

    /// Its address as a base URL, without a slash at the end.
    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Forgets what was and takes a new script.
    pub(super) fn load(&self, script: impl IntoIterator<Item = Reply>) {
        *self.state.script.lock().unwrap_or_else(PoisonError::into_inner) = script.into_iter().collect();
        drop(self.take());
    }

    /// Answers what the script has no reply for by what is asked.
    pub(super) fn answer_by(&self, reader: impl Fn(&str) -> Reply + Send + 'static) {
        *self.state.reader.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(reader));
    }

    /// The requests since the last call, in order.
    pub(super) fn take(&self) -> Vec<ServedRequest> {
        std::mem::take(&mut *self.state.served.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The last request, its body unpacked if it is compressed with Zstandard.
    pub(super) fn last_request(&self) -> String {
        self.state.last_request()
    }
}

impl State {
    fn last_request(&self) -> String {
        let request = self.last_request.lock().unwrap_or_else(PoisonError::into_inner);
        let body = request.windows(4).position(|window| window == b"\r\n\r\n").map_or(0, |at| at + 4);
        let (head, body) = request.split_at(body);
        let mut unpacked = Vec::new();
        let decoder = body.starts_with(ZSTD).then(|| StreamingDecoder::new(body).ok()).flatten();
        let whole = decoder.is_some_and(|mut decoder| decoder.read_to_end(&mut unpacked).is_ok());
        String::from_utf8_lossy(head).into_owned()
            + &*String::from_utf8_lossy(if whole { &unpacked } else { body })
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.state.stop.store(true, Ordering::Relaxed);
        // Wakes the thread that waits for connections.
        drop(TcpStream::connect(self.address));
    }
}

fn answer(mut connection: TcpStream, state: &State) -> std::io::Result<()> {
    connection.set_nodelay(true)?;
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        let Some(request) = read(&mut connection, &mut bytes)? else { return Ok(()) };
        if !request.is_post {
            return write(&mut connection, &Reply::refusal("404 Not Found"));
        }
        let replied_ns = Arc::new(AtomicU64::new(0));
        let closed_ns = Arc::new(AtomicU64::new(0));
        // Changed for the buffer of the request before, which costs nothing.
        std::mem::swap(&mut bytes, &mut *state.last_request.lock().unwrap_or_else(PoisonError::into_inner));
        // Before the answer: the program may be gone by the time that it is written.
        state.served.lock().unwrap_or_else(PoisonError::into_inner).push(ServedRequest {
            first_byte_ns: request.first_byte_ns,
            body_bytes: request.body_bytes,
            replied_ns: Arc::clone(&replied_ns),
            closed_ns: Arc::clone(&closed_ns),
        });
        let reply = state.script.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let read = || {
            let reader = state.reader.lock().unwrap_or_else(PoisonError::into_inner);
            reader.as_ref().map(|reader| reader(&state.last_request()))
        };
        let Some(reply) = reply.or_else(read) else {
            return write(&mut connection, &Reply::refusal("400 The script is over"));
        };
        if let Some(every) = reply.every {
            if !write_paced(&mut connection, &reply, every)? {
                closed_ns.store(now_ns(), Ordering::Relaxed);
                return Ok(());
            }
        } else {
            write(&mut connection, &reply)?;
        }
        replied_ns.store(now_ns(), Ordering::Relaxed);
    }
}

fn write(connection: &mut TcpStream, reply: &Reply) -> std::io::Result<()> {
    reply.pieces.iter().try_for_each(|piece| connection.write_all(piece))
}

#[cfg(target_os = "linux")]
fn says_something(connection: &TcpStream, within: Duration) -> std::io::Result<bool> {
    let wait = nix::sys::time::TimeSpec::from_duration(within);
    let mut polled = [PollFd::new(connection.as_fd(), PollFlags::POLLIN)];
    Ok(nix::poll::ppoll(&mut polled, Some(wait), None)? > 0)
}

/// To the millisecond: there is no `ppoll` here.
#[cfg(not(target_os = "linux"))]
fn says_something(connection: &TcpStream, within: Duration) -> std::io::Result<bool> {
    let wait = nix::poll::PollTimeout::try_from(within).unwrap_or(nix::poll::PollTimeout::MAX);
    let mut polled = [PollFd::new(connection.as_fd(), PollFlags::POLLIN)];
    Ok(nix::poll::poll(&mut polled, wait)? > 0)
}

/// Writes a piece at a time; `false` when the program closes the connection meanwhile.
fn write_paced(connection: &mut TcpStream, reply: &Reply, every: Duration) -> std::io::Result<bool> {
    let mut due = Instant::now();
    for piece in &reply.pieces {
        let wait = due.saturating_duration_since(Instant::now());
        // A program that has its answer says nothing more: what comes is the end.
        if says_something(connection, wait)? || connection.write_all(piece).is_err() {
            return Ok(false);
        }
        due += every;
    }
    Ok(true)
}

struct Request {
    is_post: bool,
    first_byte_ns: u64,
    body_bytes: usize,
}

/// Reads one request with a `content-length`; `None` when the connection ends first.
fn read(connection: &mut TcpStream, bytes: &mut Vec<u8>) -> std::io::Result<Option<Request>> {
    let mut buffer = [0; 64 << 10];
    let mut first_byte_ns = 0;
    let mut body_at = None;
    let mut length = 0;
    while body_at.is_none_or(|at| bytes.len() < at + length) {
        let count = match connection.read(&mut buffer) {
            Ok(0) => return Ok(None),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if first_byte_ns == 0 {
            first_byte_ns = now_ns();
        }
        bytes.extend_from_slice(&buffer[..count]);
        if body_at.is_none() {
            body_at = bytes.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4);
            length = body_at.map_or(0, |at| content_length(&bytes[..at]));
        }
        if bytes.len() > MAX_REQUEST || length > MAX_REQUEST {
            return Err(std::io::Error::other("a request of more than 256 MiB"));
        }
    }
    Ok(Some(Request { is_post: bytes.starts_with(b"POST "), first_byte_ns, body_bytes: length }))
}

fn content_length(head: &[u8]) -> usize {
    let head = String::from_utf8_lossy(head);
    let lines = head.lines().filter_map(|line| line.split_once(':'));
    let mut lengths = lines.filter(|(name, _)| name.trim().eq_ignore_ascii_case("content-length"));
    lengths.next().and_then(|(_, value)| value.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::wires::Wire;

    fn ask(connection: &mut TcpStream, request: &str, until: &str) -> Result<String> {
        connection.write_all(request.as_bytes())?;
        let mut bytes = Vec::new();
        let mut buffer = [0; 1_024];
        while !String::from_utf8_lossy(&bytes).contains(until) {
            match connection.read(&mut buffer)? {
                0 => break,
                count => bytes.extend_from_slice(&buffer[..count]),
            }
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    #[test]
    fn requests_are_answered_in_order_and_timed() -> Result<()> {
        let server = ModelServer::start()?;
        let text = |text: &str| Wire::Messages.text(&[text.to_owned()]);
        server.load([text("one"), text("two")]);
        let address = server.url().replace("http://", "");
        let mut connection = TcpStream::connect(&address)?;
        let post = "POST /v1/messages HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello";
        assert!(ask(&mut connection, post, "0\r\n\r\n")?.contains("one"));
        // The same connection, then another.
        assert!(ask(&mut connection, post, "0\r\n\r\n")?.contains("two"));
        assert!(ask(&mut connection, post, "\r\n\r\n")?.starts_with("HTTP/1.1 400 "));
        let get = "GET /v1/models HTTP/1.1\r\n\r\n";
        assert!(ask(&mut TcpStream::connect(&address)?, get, "\r\n\r\n")?.starts_with("HTTP/1.1 404 "));
        let served = server.take();
        assert_eq!(served.iter().map(|one| one.body_bytes).collect::<Vec<_>>(), [5, 5, 5]);
        assert!(served[0].replied_ns.load(Ordering::Relaxed) <= served[1].first_byte_ns);
        assert!(server.take().is_empty() && server.last_request().ends_with("hello"));
        Ok(())
    }
}
