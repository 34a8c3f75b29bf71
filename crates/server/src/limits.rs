//! What is at most.

use std::time::Duration;

use quipu_runtime::LINE_LIMIT;

/// Bytes of the headers of a request.
pub(crate) const HEADERS: usize = 64 << 10;
/// Bytes on their way between a connection and the desk.
pub(crate) const PIPE: usize = 64 << 10;
/// Bytes of a frame of a WebSocket: a line.
pub(crate) const FRAME: usize = LINE_LIMIT;
/// The time in which lines of a client are counted.
pub(crate) const LINES_TIME: Duration = Duration::from_secs(10);
/// How long a client may take to read why it is closed.
pub(crate) const LAST_WORD: Duration = Duration::from_secs(5);
/// How much longer than a client may stall a connection lives on that takes nothing.
pub(crate) const BEHIND: Duration = Duration::from_secs(10);
/// How often an event stream says that it is alive.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// What is at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerLimits {
    /// Connections of HTTP at once. One more gets an error and is closed. A WebSocket is one of the clients instead.
    pub connections: usize,
    /// Clients of lines at once, of WebSockets and of event streams together.
    pub clients: usize,
    /// Lines of one client in ten seconds.
    pub lines: usize,
    /// Bytes of the body of a request for an answer.
    pub body: usize,
    /// Bytes of the body of a message for a conversation.
    pub message: usize,
    /// Sessions of conversations that are open at once.
    pub conversations: usize,
    /// Clients that read replies at once.
    pub readers: usize,
    /// How long a run of a conversation may make no progress.
    pub run: Duration,
    /// Requests for an answer at once.
    pub chats: usize,
    /// Requests that wait for one session.
    pub waiting: usize,
    /// How long a client may take for the headers of a request, and for each piece of its body.
    pub request: Duration,
    /// How long a client may read nothing of what waits for it.
    pub stalled: Duration,
    /// How long a client of an event stream may be without one.
    pub detached: Duration,
    /// How long answers that are on their way may take when the server ends.
    pub end: Duration,
}

/// The limits where nobody says otherwise.
pub const SERVER_LIMITS: ServerLimits = ServerLimits {
    connections: 256,
    clients: 64,
    lines: 5_000,
    body: 20 << 20,
    message: 1 << 20,
    conversations: 1_000,
    readers: 64,
    run: Duration::from_secs(60 * 60),
    chats: 32,
    waiting: 8,
    request: Duration::from_secs(30),
    stalled: Duration::from_secs(30),
    detached: Duration::from_secs(60),
    end: Duration::from_secs(10),
};
