//! One request and its answer, as they went over the wire.

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use quipu_protocol::UnixMs;
use tokio::sync::OwnedSemaphorePermit;

use crate::wire_kind::WireKind;

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerEnd {
    /// With its last byte.
    Whole,
    /// The server ended it before that.
    Broken,
    /// The client left.
    Aborted,
    /// The proxy was stopped.
    Stopped,
    /// It is larger than what is kept, or there was no room to keep it; the client got all of it.
    TooLarge,
}

/// A request that was sent, and what came back.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) wire: WireKind,
    /// Of the request, as the client sent them. Keys in them are never kept.
    pub(crate) headers: HeaderMap,
    /// The bytes that were sent.
    pub(crate) body: Bytes,
    pub(crate) started: UnixMs,
    /// `None` where no answer came.
    pub(crate) status: Option<StatusCode>,
    pub(crate) answer_headers: HeaderMap,
    pub(crate) answer: Vec<Bytes>,
    pub(crate) first_ms: Option<u64>,
    pub(crate) duration_ms: u64,
    pub(crate) end: AnswerEnd,
    /// Room for what waits to be kept.
    pub(crate) room: Option<OwnedSemaphorePermit>,
}

/// The time, in milliseconds since the epoch.
pub(crate) fn now() -> UnixMs {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
