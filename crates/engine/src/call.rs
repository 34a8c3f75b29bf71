//! One model call as an effect: recorded, then sent, then reported.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::FutureExt as _;
use quipu_protocol::{
    AssistantMessage, BlobId, CallRecord, ChunkId, Content, Json, Limit, ModelError, ModelErrorKind,
    ModelRequest, NodeId, Outcome, RunId, SessionId, StopReason,
};
use quipu_providers::{Call, CallEnd, CallEvent, Provider};
use quipu_seal::Sealer;
use quipu_store::{Commit, NewChunk, Op, Step, StepCall, StepState, Store};
use sha2::{Digest, Sha256};
use tokio::sync::{Mutex, mpsc};
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::machine::Input;

/// How long a provider may take to come back from a call that was stopped.
const GRACE: Duration = Duration::from_secs(5);

/// What a session needs to make model calls.
pub(crate) struct Caller {
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) sealer: Arc<Sealer>,
    pub(crate) system: Option<BlobId>,
    /// US dollars that all sessions of the store may spend in a day.
    pub(crate) daily_budget: Option<f64>,
    /// Another store that counts, too.
    pub(crate) ledger: Option<Arc<dyn Store>>,
    /// The body of the call before this one: the next one is kept as the difference to it.
    pub(crate) last_body: Mutex<Option<ChunkId>>,
}

/// A call to make.
pub(crate) struct Order {
    pub(crate) session: SessionId,
    pub(crate) run: RunId,
    pub(crate) head: NodeId,
    pub(crate) request: Arc<ModelRequest>,
    /// The request's bytes, when they were foreseen.
    pub(crate) written: Option<Written>,
    pub(crate) cancel: CancellationToken,
}

/// A request as the bytes that will be sent.
#[derive(Debug)]
pub(crate) struct Written {
    body: Bytes,
    /// The same, for the store.
    bytes: Arc<[u8]>,
    /// Their SHA-256.
    id: ChunkId,
}

impl Written {
    fn new(body: Bytes) -> Self {
        Self { bytes: Arc::from(&body[..]), id: ChunkId(Sha256::digest(&body).into()), body }
    }
}

/// Where a request waits that will be sent when nothing comes between.
#[derive(Debug, Default)]
pub(crate) struct Foreseen(std::sync::Mutex<Option<(Arc<ModelRequest>, Written)>>);

impl Foreseen {
    pub(crate) fn put(&self, written: Option<Written>, request: Arc<ModelRequest>) {
        *self.slot() = written.map(|written| (request, written));
    }

    /// The bytes of this very request.
    pub(crate) fn take(&self, request: &Arc<ModelRequest>) -> Option<Written> {
        let (foreseen, written) = self.slot().take()?;
        Arc::ptr_eq(&foreseen, request).then_some(written)
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Option<(Arc<ModelRequest>, Written)>> {
        // Nothing can break down while it is held.
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Caller {
    /// Records the call, sends it, reports its events and its end.
    pub(crate) async fn make(&self, order: Order, events: mpsc::Sender<(RunId, CallEvent)>) -> Input {
        let run = order.run.clone();
        let request = order.request.clone();
        // A provider that breaks down must not leave the run waiting for ever.
        let made = AssertUnwindSafe(self.attempt(order, events)).catch_unwind().await;
        let (mut end, record) = match made {
            Ok(Ok(made)) => made,
            Ok(Err(outcome)) => return Input::CallNotMade { run, outcome },
            Err(_) => {
                let text = "the model's adapter failed inside; this is a bug of the adapter";
                (failure(&request, self.clock.now(), ModelError::new(ModelErrorKind::Malformed, text)), None)
            }
        };
        seal_answer(&mut end.message, &self.sealer);
        if let Some(error) = &mut end.error {
            error.message = self.sealer.seal(&error.message).into_owned();
        }
        for event in &mut end.unknown {
            *event = self.sealer.seal_json(event);
        }
        Input::CallEnded { run, end: Box::new(end), record: record.map(Box::new) }
    }

    /// The bytes of a request that may come to be sent. `None` when it has none: whoever sends it finds out why.
    pub(crate) fn write_down(&self, request: &ModelRequest) -> Option<Written> {
        let body = std::panic::catch_unwind(AssertUnwindSafe(|| self.provider.encode(request)));
        Some(Written::new(body.ok()?.ok()?))
    }

    /// What is left of today's budget, as an error when nothing is.
    async fn check_budget(&self) -> Result<(), Outcome> {
        let Some(budget) = self.daily_budget else { return Ok(()) };
        let today = self.clock.day_of(self.clock.now());
        let mut spent = 0.0;
        for store in [&self.store].into_iter().chain(&self.ledger) {
            spent += store.spent(today).await.map_err(|error| {
                let text = format!("what was spent today could not be read, so nothing was sent: {error}");
                Outcome::StoreFailed(text)
            })?;
        }
        if spent < budget { Ok(()) } else { Err(Outcome::Limit(Limit::Daily { spent, budget })) }
    }

    /// An error is how the run ends: nothing was sent then.
    async fn attempt(
        &self,
        mut order: Order,
        events: mpsc::Sender<(RunId, CallEvent)>,
    ) -> Result<(CallEnd, Option<CallRecord>), Outcome> {
        self.check_budget().await?;
        let written = match order.written.take() {
            Some(written) => written,
            None => match self.provider.encode(&order.request) {
                Ok(body) => Written::new(body),
                Err(error) => return Ok((failure(&order.request, self.clock.now(), error), None)),
            },
        };
        let body = written.body.clone();
        let clock = Instant::now();
        let mut record = self.record(&order, written).await.map_err(Outcome::StoreFailed)?;
        let (tx, mut rx) = mpsc::channel(256);
        let call = Call { request: order.request.clone(), body, events: tx, cancel: order.cancel.clone() };
        let send = async {
            let overdue = async {
                order.cancel.cancelled().await;
                tokio::time::sleep(GRACE).await;
            };
            tokio::select! {
                biased;
                end = self.provider.send(call) => end,
                () = overdue => {
                    let text = "aborted; the model's adapter did not stop in time and was dropped";
                    failure(&order.request, self.clock.now(), ModelError::new(ModelErrorKind::Aborted, text))
                }
            }
        };
        let forward = async {
            let mut first = None;
            while let Some(mut event) = rx.recv().await {
                match &mut event {
                    CallEvent::Retry { error, .. } => {
                        error.message = self.sealer.seal(&error.message).into_owned();
                    }
                    CallEvent::Started(message) => seal_answer(message, &self.sealer),
                    CallEvent::Delta(_) => {
                        first.get_or_insert_with(|| millis(clock));
                    }
                }
                let sent = tokio::select! {
                    biased;
                    // Nobody waits for pieces of a call that was stopped, and a subscriber that does not read
                    // must not hold up its end.
                    () = order.cancel.cancelled() => continue,
                    sent = events.send((order.run.clone(), event)) => sent,
                };
                if sent.is_err() {
                    order.cancel.cancel();
                }
            }
            first
        };
        let (end, first) = tokio::join!(send, forward);
        record.first_token_ms = first;
        record.duration_ms = Some(millis(clock));
        Ok((end, Some(record)))
    }

    /// Writes what is about to be sent.
    async fn record(&self, order: &Order, written: Written) -> Result<CallRecord, String> {
        let request = &order.request;
        let Written { body, bytes, id } = written;
        let tools = Json::of(&*request.tools).map_err(|error| error.to_string())?;
        let record = CallRecord {
            api: request.model.api.clone(),
            provider: request.model.provider.clone(),
            model: request.model.id.clone(),
            local: self.provider.is_local(),
            projection: quipu_transcript::PROJECTION,
            head: order.head,
            system: self.system,
            tools: ChunkId(Sha256::digest(tools.get()).into()),
            body: id,
            body_bytes: body.len() as u64,
            started: self.clock.now(),
            first_token_ms: None,
            duration_ms: None,
            attempts: Vec::new(),
        };
        let mut last = self.last_body.lock().await;
        let chunk = match *last {
            Some(base) if base != id => NewChunk::Delta { id, base, bytes },
            Some(_) | None => NewChunk::Full { id, bytes },
        };
        let step = Step {
            run: order.run.clone(),
            call: StepCall::Model,
            state: StepState::Sent,
            data: serde_json::to_vec(&record).ok(),
        };
        let batch = Commit {
            chunks: vec![chunk],
            ops: vec![Op::StepPut { session: order.session.clone(), step }],
            ..Commit::default()
        };
        let stored = self.store.commit(batch).await;
        stored.map_err(|error| format!("the request could not be recorded, so it was not sent: {error}"))?;
        *last = Some(id);
        Ok(record)
    }
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

fn failure(request: &ModelRequest, now: quipu_protocol::UnixMs, error: ModelError) -> CallEnd {
    CallEnd {
        message: AssistantMessage {
            error_message: Some(error.message.clone()),
            ..AssistantMessage::of(&request.model, StopReason::Error, now)
        },
        error: Some(error),
        attempts: Vec::new(),
        unknown: Vec::new(),
    }
}

/// The model can only know a secret that it guessed or saw in an image; the store must not hold it all the same.
pub(crate) fn seal_answer(message: &mut AssistantMessage, sealer: &Sealer) {
    for block in &mut message.content {
        match block {
            Content::Text(text) => replace(&mut text.text, sealer),
            Content::Thinking(thinking) => {
                if replace_if(&mut thinking.thinking, sealer) {
                    // The signature covers the words that were just changed.
                    thinking.thinking_signature = None;
                }
            }
            Content::ToolCall(call) => {
                call.arguments = sealer.seal_json(&call.arguments);
                replace(&mut call.name, sealer);
                let mut id = call.id.to_string();
                if replace_if(&mut id, sealer) {
                    call.id = id.into();
                }
            }
            Content::Image(_) => {}
            Content::Other(json) => *json = sealer.seal_json(json),
        }
    }
    // A server could say our own key back in any of its words.
    let words = [
        &mut message.error_message,
        &mut message.response_id,
        &mut message.response_model,
        &mut message.raw_stop_reason,
    ];
    for text in words.into_iter().flatten() {
        replace(text, sealer);
    }
}

/// Seals text and other blocks that go to the model and the store.
pub(crate) fn seal_content(content: &mut [Content], sealer: &Sealer) {
    for block in content {
        match block {
            Content::Text(text) => replace(&mut text.text, sealer),
            Content::Thinking(thinking) => replace(&mut thinking.thinking, sealer),
            Content::ToolCall(call) => call.arguments = sealer.seal_json(&call.arguments),
            Content::Image(_) => {}
            Content::Other(json) => *json = sealer.seal_json(json),
        }
    }
}

fn replace(text: &mut String, sealer: &Sealer) {
    replace_if(text, sealer);
}

fn replace_if(text: &mut String, sealer: &Sealer) -> bool {
    let sealed = match sealer.seal(text) {
        std::borrow::Cow::Owned(sealed) if sealed != *text => sealed,
        std::borrow::Cow::Owned(_) | std::borrow::Cow::Borrowed(_) => return false,
    };
    *text = sealed;
    true
}
