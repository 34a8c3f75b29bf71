//! What is at most.

use std::time::Duration;

/// What is at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyLimits {
    /// Connections at once; others wait in the system's queue.
    pub connections: usize,
    /// Bytes of the body of a request.
    pub body: usize,
    /// Bytes of an answer that are kept; the client gets all of it.
    pub answer: usize,
    /// Bytes of requests and answers that are in memory at once, under way or waiting to be kept.
    pub memory: usize,
    /// How long a client may take for the headers of a request, and for each piece of its body.
    pub request: Duration,
    /// How long a server may be silent, before its answer begins and between two pieces.
    pub silence: Duration,
    /// How long a client may leave a piece of an answer unread.
    pub unread: Duration,
    /// How long a request waits for what the store says of its conversation.
    pub decision: Duration,
}

/// The limits of `serve`, where nobody says otherwise.
pub const PROXY_LIMITS: ProxyLimits = ProxyLimits {
    connections: 64,
    body: 64 << 20,
    answer: 64 << 20,
    memory: 512 << 20,
    request: Duration::from_secs(30),
    silence: Duration::from_secs(900),
    unread: Duration::from_secs(600),
    decision: Duration::from_secs(20),
};
