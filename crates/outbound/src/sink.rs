//! Where replies go.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use crate::block::ReplyKey;
use crate::offer::Offer;

/// The chat has the message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Acknowledgement {
    /// The message as the chat names it, by which it can be edited or answered.
    pub message: Option<String>,
}

/// Why an offer was not acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SinkError {
    /// It may or may not have arrived. It is offered again under the same key.
    #[error("the chat did not acknowledge a message: {reason}; it is offered again")]
    Unavailable {
        /// What happened.
        reason: String,
        /// How long the chat asks to wait.
        retry_after: Option<Duration>,
    },
    /// The chat will never take it.
    #[error("the chat refuses a message: {reason}")]
    Refused {
        /// What the chat says.
        reason: String,
    },
    /// The preview cannot be edited. The message is offered again as a new one, under the same key.
    #[error("the preview of a reply cannot be edited: {reason}; the reply is sent as a new message")]
    NotEditable {
        /// What the chat says.
        reason: String,
    },
}

/// What [`MessageSink::offer`] returns.
pub type SinkFuture<'a> = Pin<Box<dyn Future<Output = Result<Acknowledgement, SinkError>> + Send + 'a>>;

/// A consumer of replies: a chat, a program, a test.
///
/// The same key and part can be offered several times, when an acknowledgement was lost. A sink takes it once, and acknowledges
/// each offer.
pub trait MessageSink {
    /// Takes one message. It is delivered when the future gives an acknowledgement, and not before.
    fn offer(&self, offer: Offer) -> SinkFuture<'_>;

    /// What came of an offer is stored: where it was acknowledged or refused, that message is not offered again, also after a crash.
    fn stored(&self, key: &ReplyKey, part: u32) {
        let _ = (key, part);
    }
}
