//! The seam between the engine and anything that answers like a model.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use quipu_protocol::{AssistantMessage, Attempt, Delta, Json, ModelError, ModelRequest, Usage};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::{Body, Memory};

/// Something that answers like a model: a wire with its credential, or a script.
pub trait Provider: Send + Sync + 'static {
    /// The exact bytes that [`Provider::send`] will send. Pure: the same request gives the same bytes.
    ///
    /// # Errors
    /// `InvalidRequest` when the wire cannot say it.
    fn encode(&self, request: &ModelRequest) -> Result<Bytes, ModelError>;

    /// As [`Provider::encode`]; where the request goes on from the one that was made last with this memory, at the
    /// cost of what is new in it.
    ///
    /// # Errors
    /// As [`Provider::encode`].
    fn encode_next(&self, request: &ModelRequest, memory: &mut Memory) -> Result<Body, ModelError> {
        let _ = memory;
        Ok(Body::of(self.encode(request)?))
    }

    /// Whether the server is on this machine (a loopback address, a script).
    fn is_local(&self) -> bool;

    /// Sends `call.body` and reports. Resolves when the answer is complete, has failed for good or was
    /// cancelled; never hangs longer than its timeouts. Nothing of it goes on after the future is dropped.
    fn send(&self, call: Call) -> BoxFuture<'_, CallEnd>;
}

/// A call to make.
pub struct Call {
    /// What `body` was made from.
    pub request: Arc<ModelRequest>,
    /// The bytes to send.
    pub body: Bytes,
    /// Where pieces of the answer go. Bounded: a slow reader slows the stream.
    pub events: mpsc::Sender<CallEvent>,
    /// Ends the call early.
    pub cancel: CancellationToken,
    /// Who is asked before the bytes are sent again. `None`: nobody.
    pub retries: Option<mpsc::Sender<RetryAsk>>,
}

/// A question: may the same bytes be sent once more?
#[derive(Debug)]
pub struct RetryAsk {
    /// What the attempts so far may have been charged.
    pub charges: Vec<Charge>,
    /// The answer. Dropped: no.
    pub go: oneshot::Sender<bool>,
}

/// What an attempt may have been charged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Charge {
    /// Nothing: the server was not reached, or refused the request.
    Nothing,
    /// What its answer told.
    Told(Usage),
    /// It broke off, or told nothing: so much, and what else the request allows.
    AtLeast(Usage),
}

/// What happens during a call, in order.
#[derive(Debug, Clone, PartialEq)]
pub enum CallEvent {
    /// The answer begins: headers came and the first event was read. `message` has no content yet.
    Started(Box<AssistantMessage>),
    /// A piece of it.
    Delta(Delta),
    /// What was streamed so far is void, or nothing came: the same bytes are sent again after `delay`.
    Retry {
        /// The attempt that will follow, from 2.
        attempt: u32,
        /// How long we wait, no shorter than the server asked.
        delay: Duration,
        /// What went wrong.
        error: ModelError,
    },
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq)]
pub struct CallEnd {
    /// The answer; what came of it when it failed (`stop_reason` error or aborted, usage as far as known).
    pub message: AssistantMessage,
    /// Why it failed.
    pub error: Option<ModelError>,
    /// Each time that the body was sent, in order.
    pub attempts: Vec<Attempt>,
    /// What each of them may have been charged, in order. Empty: no more than the message tells.
    pub charges: Vec<Charge>,
    /// Events of the stream that this version does not know, verbatim.
    pub unknown: Vec<Json>,
}
