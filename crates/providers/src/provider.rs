//! The seam between the engine and anything that answers like a model.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use quipu_protocol::{CallEnd, CallEvent, Charge, ModelError, ModelRequest};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::{Body, HeaderChanges, Memory, ResponseHead};

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
    /// Who is given each secret that the call uses, before anything is sent with it: what seals them. It may be given
    /// the same again.
    pub secrets: Option<LearnSecret>,
    /// What is changed of the headers.
    pub headers: HeaderChanges,
    /// Who is shown how each answer begins; what there is no room for is not shown. `None`: nobody.
    pub responses: Option<mpsc::Sender<ResponseHead>>,
}

impl Call {
    /// A call that nobody else has a part in.
    #[must_use]
    pub fn new(
        request: Arc<ModelRequest>,
        body: Bytes,
        events: mpsc::Sender<CallEvent>,
        cancel: CancellationToken,
    ) -> Self {
        let headers = HeaderChanges::default();
        Self { request, body, events, cancel, retries: None, secrets: None, headers, responses: None }
    }
}

/// Takes a secret, so that it can be sealed where it occurs.
pub type LearnSecret = Arc<dyn Fn(&str) + Send + Sync>;

/// A question: may the same bytes be sent once more?
#[derive(Debug)]
pub struct RetryAsk {
    /// What the attempts so far may have been charged.
    pub charges: Vec<Charge>,
    /// The answer. Dropped: no.
    pub go: oneshot::Sender<bool>,
}
