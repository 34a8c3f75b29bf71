//! One model call as an effect: recorded, then sent, then reported.

mod account_money;
mod accounts;
pub(crate) mod bodies;
mod book;
mod content_size;
mod hooked;
pub(crate) mod money;
mod purpose_money;
mod reserve_wait;
mod side;
mod span;

use std::borrow::Cow;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::mailbox;
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use quipu_protocol::{
    AssistantMessage, BlobId, Body as MessageBody, CallRecord, Content, ImageContent, Message, ModelError,
    ModelErrorKind, ModelRequest, NodeId, Outcome, RunId, ServerToolBlock, SessionId, StopReason,
    UserMessage,
};
use quipu_providers::{Body, Call, CallEnd, CallEvent, LearnSecret, Provider, ResponseHead, RetryAsk};
use quipu_seal::Sealer;
use quipu_store::{Commit, Graph, Op, Step, StepState};
use serde::Serialize;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

pub use self::account_money::account_use;
pub use self::accounts::{AccountBudget, AccountUse, Accounts};
use self::bodies::Bodies;
pub(crate) use self::content_size::ContentSize;
pub(crate) use self::hooked::{ChangePayload, ChangedPayload, HookedCall};
use self::money::{CallOrigin, CallReport, Purse, Stake};
pub(crate) use self::side::{SideEnd, SideNote, ended_row, is_over, side_call};
pub(crate) use self::span::CallPurpose;
use self::span::{model_call, model_call_ended};
use crate::clock::Clock;
use quipu_machine::{CallMoney, RunMoney};
use quipu_machine::{Calls, MachineInput};

/// How long a provider may take to come back from a call that was stopped.
const GRACE: Duration = Duration::from_secs(5);

/// What a session needs to make model calls.
pub(crate) struct Caller {
    pub(crate) provider: ActiveProvider,
    pub(crate) store: Arc<dyn Graph>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) sealer: Arc<Sealer>,
    /// Gives the sealer what calls use.
    pub(crate) learn: LearnSecret,
    /// What may be spent.
    pub(crate) purse: Arc<Purse>,
    /// Whether calls that failed are made again at all.
    pub(crate) retries: Arc<AtomicBool>,
    /// The body of the call before this one: the next one is kept as the difference to it.
    pub(crate) bodies: Mutex<Bodies>,
    /// The record of the last request that hooks changed, as long as it has no answer.
    pub(crate) unanswered: Mutex<Option<Box<CallRecord>>>,
}

/// What carries requests; another model may have another one.
pub(crate) struct ActiveProvider(Mutex<Arc<dyn Provider>>);

impl From<Arc<dyn Provider>> for ActiveProvider {
    fn from(provider: Arc<dyn Provider>) -> Self {
        Self(Mutex::new(provider))
    }
}

/// A call to make.
pub(crate) struct CallJob {
    pub(crate) session: SessionId,
    pub(crate) run: RunId,
    pub(crate) head: NodeId,
    pub(crate) request: Arc<ModelRequest>,
    /// What the commit before the call recorded of it, when the call was foreseen.
    pub(crate) recorded: Option<PreparedCall>,
    /// The blob of its system prompt, where it is one.
    pub(crate) system: Option<BlobId>,
    /// What it is for.
    pub(crate) purpose: CallPurpose,
    /// For a call that sums the context up: those that were made for the same summary before it. They stand in no
    /// node yet.
    pub(crate) summary: Option<Calls>,
    /// What the run may still spend.
    pub(crate) money: Option<RunMoney>,
    /// US dollars that calls of its purpose may cost in a day.
    pub(crate) daily: Option<f64>,
    /// Asked right before it is sent.
    pub(crate) is_outdated: Option<OutdatedCheck>,
    /// Where people are notified of what was done to the request.
    pub(crate) tell: Option<mailbox::Sender<MachineInput>>,
    /// What hooks make of it.
    pub(crate) hooked: Option<HookedCall>,
    /// Who is shown how answers begin.
    pub(crate) responses: Option<mpsc::Sender<ResponseHead>>,
    pub(crate) cancel: CancellationToken,
}

/// Whether something in a request was forgotten by a person since it was made: it is not sent then.
pub(crate) type OutdatedCheck = Box<dyn FnOnce() -> BoxFuture<'static, bool> + Send + Sync>;

impl CallJob {
    /// What calls for the same summary cost, or may have cost. It stands in no node yet.
    pub(crate) fn made(&self) -> f64 {
        self.summary.as_ref().map_or(0.0, Calls::cost)
    }
}

/// What came of an order.
pub(crate) struct CallResult {
    pub(crate) end: CallEnd,
    pub(crate) record: Option<CallRecord>,
    pub(crate) money: CallMoney,
}

/// A request to record.
struct CallRow<'a> {
    session: &'a SessionId,
    run: &'a RunId,
    head: NodeId,
    system: Option<BlobId>,
    request: &'a ModelRequest,
    hooked: Option<&'a HookedCall>,
    summary: Option<&'a Calls>,
    side: Option<&'a SideNote>,
}

/// What the store has of a request that is about to be sent.
#[derive(Serialize)]
struct SentRow<'a> {
    #[serde(flatten)]
    record: &'a CallRecord,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<&'a Calls>,
    #[serde(skip_serializing_if = "Option::is_none")]
    side: Option<&'a SideNote>,
}

/// A request as the bytes that will be sent, and what the store has of it as about to be sent.
#[derive(Debug)]
pub(crate) struct PreparedCall {
    body: Body,
    record: CallRecord,
}

impl PreparedCall {
    /// The body.
    pub(crate) fn bytes(&self) -> Bytes {
        self.body.bytes.clone()
    }
}

/// A request that is recorded in the commit before it.
pub(crate) struct NextCall {
    pub(crate) caller: Arc<Caller>,
    pub(crate) slot: Arc<PreparedCallSlot>,
    pub(crate) run: RunId,
    pub(crate) request: Arc<ModelRequest>,
    /// The blob of its system prompt.
    pub(crate) system: Option<BlobId>,
}

impl NextCall {
    /// Adds the record to the commit that makes `head`. `None` when the request has no bytes: whoever sends it finds
    /// out why.
    pub(crate) fn record(
        &self,
        session: &SessionId,
        head: NodeId,
        batch: &mut Commit,
    ) -> Option<PreparedCall> {
        let Self { caller, run, request, system, .. } = self;
        let (hooked, summary, side) = (None, None, None);
        let asked = CallRow { session, run, head, system: *system, request, hooked, summary, side };
        let made = AssertUnwindSafe(|| caller.record(&asked, batch));
        std::panic::catch_unwind(made).ok()?.ok()
    }

    /// The commit is made: the record waits until the request is sent.
    pub(crate) fn keep(&self, recorded: Option<PreparedCall>) {
        if let Some(recorded) = &recorded {
            self.caller.kept(recorded);
        }
        *self.slot.slot() = recorded.map(|recorded| (self.request.clone(), recorded));
    }
}

/// Where a recorded request waits until it is sent, or another one is in its place.
#[derive(Debug, Default)]
pub(crate) struct PreparedCallSlot(Mutex<Option<(Arc<ModelRequest>, PreparedCall)>>);

impl PreparedCallSlot {
    /// The record of this very request.
    pub(crate) fn take(&self, request: &Arc<ModelRequest>) -> Option<PreparedCall> {
        let (slot, recorded) = self.slot().take()?;
        Arc::ptr_eq(&slot, request).then_some(recorded)
    }

    fn slot(&self) -> MutexGuard<'_, Option<(Arc<ModelRequest>, PreparedCall)>> {
        // Nothing can break down while it is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Caller {
    /// Records the call, sends it, reports its events and its end.
    pub(crate) async fn make(
        &self,
        order: CallJob,
        events: mailbox::Sender<(RunId, CallEvent)>,
    ) -> MachineInput {
        let run = order.run.clone();
        let request = order.request.clone();
        // A provider that breaks down must not leave the run waiting for ever.
        let made = AssertUnwindSafe(self.attempt(order, events)).catch_unwind().await;
        let (mut end, record, money) = match made {
            Ok(Ok(CallResult { end, record, money })) => (end, record, money),
            Ok(Err(outcome)) => return MachineInput::CallNotMade { run, outcome },
            Err(_) => {
                let text = "the model's adapter panicked; this is a bug in the adapter";
                let error = ModelError::new(ModelErrorKind::Malformed, text);
                (failure(&request, self.clock.now(), error), None, CallMoney::default())
            }
        };
        seal_answer(&mut end.message, &self.sealer);
        if let Some(error) = &mut end.error {
            error.message = self.sealer.seal(&error.message).into_owned();
        }
        for event in &mut end.unknown {
            *event = self.sealer.seal_json(event);
        }
        let (record, hooks) = (record.map(Box::new), Vec::new());
        MachineInput::CallEnded { run, end: Box::new(end), record, money, hooks, replaced: None }
    }

    /// Reserves, sends, settles. An error is how the run ends: nothing was sent then.
    pub(crate) async fn attempt(
        &self,
        order: CallJob,
        events: mailbox::Sender<(RunId, CallEvent)>,
    ) -> Result<CallResult, Outcome> {
        let span = model_call(&order, || self.provider().is_local());
        let made = self.attempt_within(order, events).instrument(span.clone()).await;
        model_call_ended(&span, &made, |text| self.sealer.seal(text).into_owned());
        made
    }

    async fn attempt_within(
        &self,
        mut order: CallJob,
        events: mailbox::Sender<(RunId, CallEvent)>,
    ) -> Result<CallResult, Outcome> {
        let asking = CallOrigin { is_summary: order.summary.is_some(), tell: order.tell.clone() };
        let reserved = match self.change_payload(&mut order).await {
            // What is reserved of one budget is kept while it waits for another.
            Ok(()) => tokio::select! {
                biased;
                reserved = self.reserve(&mut order) => reserved,
                () = self.renew_reserved() => Err(Outcome::Aborted),
            },
            Err(outcome) => Err(outcome),
        };
        let made = match reserved {
            Ok(stake) => {
                // Another attempt may cost what is left of that.
                if let (Some(needs), Some(money)) =
                    (self.purse.needs(stake.as_ref().map_or(0, Stake::amount)), &mut order.money)
                {
                    money.left = money::in_dollars(needs);
                }
                self.send(order, events, stake.as_ref()).await.map(|sent| (sent, stake))
            }
            Err(outcome) => Err(outcome),
        };
        match made {
            Ok((sent, stake)) => {
                let assumed = self.settle(&asking, &sent, stake.as_ref()).await;
                if !asking.is_summary && sent.end.error.is_none() {
                    *self.unanswered() = None;
                }
                let CallReport { end, record, refused, .. } = sent;
                Ok(CallResult { end, record, money: CallMoney { assumed, refused } })
            }
            Err(outcome) => {
                self.settle_accounts(None).await;
                // The calls of a summary before it become a node.
                if !asking.is_summary {
                    self.release(0).await;
                }
                Err(outcome)
            }
        }
    }

    async fn send(
        &self,
        mut order: CallJob,
        events: mailbox::Sender<(RunId, CallEvent)>,
        stake: Option<&Stake>,
    ) -> Result<CallReport, Outcome> {
        let clock = Instant::now();
        let recorded = match order.recorded.take() {
            Some(recorded) => recorded,
            None => {
                let mut batch = Commit::default();
                let asked = CallRow {
                    session: &order.session,
                    run: &order.run,
                    head: order.head,
                    system: order.system,
                    request: &order.request,
                    hooked: order.hooked.as_ref(),
                    summary: order.summary.as_ref(),
                    side: order.purpose.side(),
                };
                let recorded = match self.record(&asked, &mut batch) {
                    Ok(recorded) => recorded,
                    Err(error) => {
                        let end = failure(&order.request, self.clock.now(), error);
                        return Ok(CallReport {
                            request: order.request,
                            bytes: 0,
                            end,
                            record: None,
                            refused: None,
                        });
                    }
                };
                self.store.commit(batch).await.map_err(|error| {
                    let text = format!("could not record the request, so it was not sent: {error}");
                    Outcome::StoreFailed(text)
                })?;
                self.kept(&recorded);
                recorded
            }
        };
        let PreparedCall { body, mut record } = recorded;
        let headers = match self.header_changes(&record) {
            Ok(headers) => headers,
            Err(error) => {
                // It could never be sent: hooks are asked again the next time.
                *self.unanswered() = None;
                let end = failure(&order.request, self.clock.now(), error);
                return Ok(CallReport { request: order.request, bytes: 0, end, record: None, refused: None });
            }
        };
        if let Some(is_outdated) = order.is_outdated.take()
            && is_outdated().await
        {
            let call = side::key_of(order.purpose.side());
            let (session, run) = (order.session.clone(), order.run.clone());
            let removed = Op::StepRemove { session, run, call, data: None };
            // Should it fail, the next request takes its row.
            drop(self.store.commit(Commit { ops: vec![removed], ..Commit::default() }).await);
            *self.unanswered() = None;
            return Err(Outcome::Aborted);
        }
        let (tx, mut rx) = mpsc::channel(256);
        let (asks, mut asked) = mpsc::channel::<RetryAsk>(1);
        let call = Call {
            request: order.request.clone(),
            body: body.bytes,
            events: tx,
            cancel: order.cancel.clone(),
            retries: Some(asks),
            secrets: Some(self.learn.clone()),
            headers,
            responses: order.responses.take(),
        };
        let provider = self.provider();
        let bytes = record.body_bytes;
        let send = async {
            let overdue = async {
                order.cancel.cancelled().await;
                tokio::time::sleep(GRACE).await;
            };
            tokio::select! {
                biased;
                end = provider.send(call) => end,
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
                let place = tokio::select! {
                    biased;
                    place = events.reserve() => place,
                    // A subscriber that does not read must not hold up the end of a call that was stopped.
                    () = order.cancel.cancelled() => continue,
                };
                match place {
                    Ok(place) => place.send((order.run.clone(), event)),
                    Err(_) => order.cancel.cancel(),
                }
            }
            first
        };
        // An attempt that broke off may have been charged: another one needs money of its own.
        let gate = async {
            let mut refused = None;
            while let Some(RetryAsk { charges, go }) = asked.recv().await {
                let is_wanted = self.retries.load(Ordering::Relaxed);
                if let Some(stake) = stake.filter(|_| is_wanted) {
                    refused = self.reserve_again(&order, stake, &charges).await.err();
                }
                if go.send(is_wanted && refused.is_none()).is_err() {
                    // The call is over: it needs no answer.
                    break;
                }
            }
            refused
        };
        let all = async { tokio::join!(send, forward, gate) };
        let (end, first, refused) = tokio::select! {
            biased;
            ended = all => ended,
            () = self.keep_reserved() => return Err(Outcome::Aborted),
        };
        record.first_token_ms = first;
        record.duration_ms = Some(millis(clock));
        Ok(CallReport { request: order.request, bytes, end, record: Some(record), refused })
    }

    /// The bytes of a request; adds to `batch` what the store keeps of it as about to be sent.
    fn record(&self, asked: &CallRow<'_>, batch: &mut Commit) -> Result<PreparedCall, ModelError> {
        let CallRow { session, run, head, system, request, hooked, summary, side } = *asked;
        let mut bodies = self.bodies();
        let provider = self.provider();
        let payload = hooked.and_then(|hooked| hooked.payload.as_ref());
        let body = match payload {
            Some(payload) => Body::of(payload.body.clone()),
            None => bodies.make(&*provider, request)?,
        };
        let (headers, removed_headers) =
            payload.map(|payload| (payload.headers.clone(), payload.removed.clone())).unwrap_or_default();
        let before_hooks = hooked.filter(|hooked| hooked.is_changed).map(|hooked| hooked.before);
        let record = CallRecord {
            api: request.model.api.clone(),
            provider: request.model.provider.clone(),
            model: request.model.id.clone(),
            local: provider.is_local(),
            projection: quipu_transcript::PROJECTION,
            head,
            system,
            tools: bodies.tools(&request.tools),
            body: body.id,
            body_bytes: body.bytes.len() as u64,
            before_hooks,
            headers,
            removed_headers,
            started: self.clock.now(),
            first_token_ms: None,
            duration_ms: None,
            attempts: Vec::new(),
        };
        batch.chunks.push(bodies.chunk(&body));
        let data = serde_json::to_vec(&SentRow { record: &record, summary, side }).ok();
        let step = Step { run: run.clone(), call: side::key_of(side), state: StepState::Sent, data };
        batch.ops.push(Op::StepPut { session: session.clone(), step });
        Ok(PreparedCall { body, record })
    }

    /// The record is in the store.
    fn kept(&self, recorded: &PreparedCall) {
        self.bodies().kept(&recorded.body);
        if recorded.record.before_hooks.is_some() {
            *self.unanswered() = Some(Box::new(recorded.record.clone()));
        }
    }

    fn unanswered(&self) -> MutexGuard<'_, Option<Box<CallRecord>>> {
        // Nothing can break down while it is held.
        self.unanswered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn provider(&self) -> Arc<dyn Provider> {
        // Nothing can break down while it is held.
        self.provider.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Requests that are made from now on are carried by this.
    pub(crate) fn set_provider(&self, provider: Arc<dyn Provider>) {
        *self.provider.0.lock().unwrap_or_else(PoisonError::into_inner) = provider;
        self.bodies().written_otherwise();
    }

    /// Lets go of what only makes the next request faster.
    pub(crate) fn rest(&self) {
        self.bodies().rest();
    }

    fn bodies(&self) -> MutexGuard<'_, Bodies> {
        // An adapter that breaks down in the middle of a body leaves no memory of it.
        self.bodies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn failure(request: &ModelRequest, now: quipu_protocol::UnixMs, error: ModelError) -> CallEnd {
    CallEnd {
        message: AssistantMessage {
            error_message: Some(error.message.clone()),
            ..AssistantMessage::of(&request.model, StopReason::Error, now)
        },
        error: Some(error),
        attempts: Vec::new(),
        charges: Vec::new(),
        unknown: Vec::new(),
    }
}

/// The model can only know a secret that it guessed or saw in an image; the store must not hold it all the same.
pub fn seal_answer(message: &mut AssistantMessage, sealer: &Sealer) {
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
            Content::Other(json) => match ServerToolBlock::of_json(json) {
                Some(used) => seal_server_tool(block, used, sealer),
                None => *json = sealer.seal_json(json),
            },
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

/// Seals what people see of a tool of the provider. What the provider wants back is not changed: where it must not be
/// kept as it is, it goes.
fn seal_server_tool(block: &mut Content, mut used: ServerToolBlock, sealer: &Sealer) {
    let data = used.data.take();
    let mut was_sealed = replace_if(&mut used.tool, sealer);
    for text in used.queries.iter_mut().chain(&mut used.sources).chain(&mut used.error) {
        was_sealed |= replace_if(text, sealer);
    }
    used.data = data.filter(|_| !was_sealed);
    *block = used.into_content();
}

/// Seals text and other blocks that go to the model and the store.
pub fn seal_content(content: &mut [Content], sealer: &Sealer) {
    for block in content {
        match block {
            Content::Text(text) => replace(&mut text.text, sealer),
            Content::Thinking(thinking) => replace(&mut thinking.thinking, sealer),
            Content::ToolCall(call) => call.arguments = sealer.seal_json(&call.arguments),
            Content::Image(image) => strip_picture(image),
            Content::Other(json) => *json = sealer.seal_json(json),
        }
    }
}

fn strip_picture(image: &mut ImageContent) {
    if let Cow::Owned(plain) = quipu_seal::without_text(&image.data) {
        image.data = plain;
    }
}

/// Leaves out the text inside of pictures of a message, where secrets can stand that nothing else looks at.
pub(crate) fn strip_pictures(message: &mut Message) {
    let content = match message {
        Message::User(UserMessage { content: MessageBody::Blocks(content), .. }) => content,
        Message::ToolResult(result) => &mut result.content,
        _ => return,
    };
    for block in content {
        if let Content::Image(image) = block {
            strip_picture(image);
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
