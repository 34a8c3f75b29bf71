//! A model call that is begun before its session can be opened.
//!
//! What a session is to go on from may take seconds to come into the store, and what its first request is made of may be
//! known long before. So the same engine, over a store that holds no more than that, is asked what it would send
//! ([`Engine::first_request`]); that is recorded in the store proper and sent ([`Engine::begin_early`]); and when the session
//! is there and sends its first request, it gets the answer to this one, if the two are the same bytes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use quipu_dag::Blob;
use quipu_protocol::{
    CallRecord, Entry, Event, Json, ModelError, ModelErrorKind, ModelRequest, NodeId, Notice, RunId,
    SessionId, UserInput,
};
use quipu_providers::{Body, Call, CallEnd, CallEvent, Memory, Provider};
use quipu_store::{Commit, NewChunk, Op, Step, StepCall, Store, StoreError};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::call::failure;
use crate::clock::{Clock as _, SystemClock};
use crate::commit::Committer;
use crate::engine::{Engine, OpenError, Opened, SessionOptions};
use crate::machine::{Draft, Plan, PlanOp, step_of};
use crate::recording::is_summary;
use crate::resume::{Past, broken, sent_call};
use crate::subscribe::Delivery;

/// Pieces of an answer that wait until the session is there; then the server waits.
const AHEAD: usize = 4_096;

/// What a session would send first.
pub struct FirstRequest {
    session: SessionId,
    request: Arc<ModelRequest>,
    body: Bytes,
    /// As it was recorded.
    step: Step,
    record: CallRecord,
    system: Option<Blob>,
}

impl FirstRequest {
    /// The session that would send it. It must have this id when it is made, which the request may name.
    pub fn session(&self) -> &SessionId {
        &self.session
    }
}

/// A call that was begun before its session was there ([`SessionOptions::early`]): the first request of that is answered with
/// the answer to this call if it has the same bytes and the same model. Else the call is stopped, and the request sent like
/// any other. Nothing of it goes on after it is dropped.
///
/// Until then it is an open step of the session ([`StepCall::Early`]). What nothing came of becomes a node when the session
/// is opened next.
pub struct EarlyCall {
    inner: Arc<dyn Provider>,
    store: Arc<dyn Store>,
    session: SessionId,
    run: RunId,
    request: Arc<ModelRequest>,
    body: Bytes,
    state: Mutex<State>,
}

struct State {
    running: Option<Running>,
    adopted: bool,
}

/// The call on its way.
struct Running {
    events: mpsc::Receiver<CallEvent>,
    cancel: CancellationToken,
    task: JoinHandle<CallEnd>,
}

impl Running {
    /// Ends the call. What came of it is void.
    async fn stop(mut self) {
        self.cancel.cancel();
        self.events.close();
        // It panicked over something that nobody asks for.
        drop((&mut self.task).await);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.cancel.cancel();
        self.task.abort();
    }
}

impl Engine {
    /// The request that a new session below a node would send first, with these options and this prompt. `None` when it
    /// would do anything else before, such as to sum the context up, or nothing at all. Nothing is sent. For an engine over a
    /// store that is thrown away: what the session commits stays in it.
    pub async fn first_request(
        &self,
        at: NodeId,
        options: SessionOptions,
        prompt: UserInput,
    ) -> Option<FirstRequest> {
        let (sender, mut caught) = mpsc::channel(1);
        // What it costs could not be reserved where it counts.
        if options.limits.max_cost.is_some() || options.limits.daily_budget.is_some() {
            return None;
        }
        let provider = Arc::new(Catcher { inner: options.provider.clone(), caught: sender });
        let mut options = SessionOptions { provider, follower: None, ..options };
        options.files.enabled = false;
        let Opened { session, .. } = self.go_on_from(at, options).await.ok()?;
        let first = async {
            let (_, mut events) = session.subscribe(Delivery::Lossless).await.ok()?;
            session.prompt(prompt).await.ok()?;
            loop {
                tokio::select! {
                    biased;
                    call = caught.recv() => break call,
                    event = events.next() => match event?.event {
                        Event::RunEnded { .. } | Event::Settled => break None,
                        _ => {}
                    },
                }
            }
        };
        let id = session.view().session;
        let first = match first.await {
            Some((request, body)) if !is_summary(&request) => self.recorded(id, request, body).await,
            Some(_) | None => None,
        };
        session.shutdown().await;
        first
    }

    /// A request with what was recorded of it.
    async fn recorded(
        &self,
        session: SessionId,
        request: Arc<ModelRequest>,
        body: Bytes,
    ) -> Option<FirstRequest> {
        let steps = self.store().pending(&session).await.ok()?.steps;
        let step = steps.into_iter().find(|step| step.call == StepCall::Model)?;
        let (_, record, _) = sent_call(&step)?;
        let system = match record.system {
            Some(id) => Some(self.store().blobs(&[id]).await.ok()?.into_iter().flatten().next()?),
            None => None,
        };
        Some(FirstRequest { session, request, body, step, record, system })
    }

    /// Records a call in the store, and then sends it. Must be called within a Tokio runtime.
    ///
    /// # Errors
    /// What the store says; nothing was sent then.
    pub async fn begin_early(
        &self,
        first: FirstRequest,
        provider: Arc<dyn Provider>,
    ) -> Result<EarlyCall, StoreError> {
        let FirstRequest { session, request, body, step, record, system } = first;
        let run = step.run.clone();
        let step = Step { call: StepCall::Early, ..step };
        let commit = Commit {
            blobs: system.into_iter().collect(),
            chunks: vec![NewChunk::Full { id: record.body, bytes: Arc::from(&body[..]) }],
            ops: vec![Op::StepPut { session: session.clone(), step }],
            ..Commit::default()
        };
        self.store().commit(commit).await?;
        let (sender, events) = mpsc::channel(AHEAD);
        let cancel = CancellationToken::new();
        let call = Call {
            request: request.clone(),
            body: body.clone(),
            events: sender,
            cancel: cancel.clone(),
            retries: None,
        };
        let inner = provider.clone();
        let task = tokio::spawn(async move { provider.send(call).await });
        let state = State { running: Some(Running { events, cancel, task }), adopted: false };
        let store = self.store().clone();
        Ok(EarlyCall { inner, store, session, run, request, body, state: state.into() })
    }
}

impl EarlyCall {
    /// The session that is to adopt it.
    pub fn session(&self) -> &SessionId {
        &self.session
    }

    /// Stops the call if nobody asked for its answer. Whether the session got it.
    pub async fn finish(&self) -> bool {
        let running = self.state().running.take();
        if let Some(running) = running {
            running.stop().await;
        }
        self.state().adopted
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing can break down while it is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_for(&self, call: &Call) -> bool {
        let session = &call.request.session;
        call.body == self.body && call.request.model == self.request.model && *session == self.request.session
    }

    /// The answer to this call as the answer to `call`, which says the same.
    async fn adopt(&self, mut running: Running, call: Call) -> CallEnd {
        let Self { session, run, .. } = self;
        let over = Op::StepRemove { session: session.clone(), run: run.clone(), call: StepCall::Early };
        // Should this fail, the step is taken for what it is when the session is opened next: the call of a node.
        drop(self.store.commit(Commit { ops: vec![over], ..Commit::default() }).await);
        let forward = async {
            while let Some(event) = running.events.recv().await {
                // A reader that is gone does not stop the call.
                drop(call.events.send(event).await);
            }
        };
        tokio::select! {
            () = forward => {}
            () = call.cancel.cancelled() => running.cancel.cancel(),
        }
        running.events.close();
        match (&mut running.task).await {
            Ok(end) => end,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => aborted(&call.request),
            },
        }
    }
}

impl Provider for EarlyCall {
    fn encode(&self, request: &ModelRequest) -> Result<Bytes, ModelError> {
        self.inner.encode(request)
    }

    fn encode_next(&self, request: &ModelRequest, memory: &mut Memory) -> Result<Body, ModelError> {
        self.inner.encode_next(request, memory)
    }

    fn is_local(&self) -> bool {
        self.inner.is_local()
    }

    fn send(&self, call: Call) -> BoxFuture<'_, CallEnd> {
        async move {
            let running = {
                let mut state = self.state();
                let running = state.running.take();
                state.adopted |= running.is_some() && self.is_for(&call);
                running
            };
            match running {
                Some(running) if self.is_for(&call) => self.adopt(running, call).await,
                Some(running) => {
                    running.stop().await;
                    self.inner.send(call).await
                }
                None => self.inner.send(call).await,
            }
        }
        .boxed()
    }
}

/// Keeps what it is to send, and sends nothing.
struct Catcher {
    inner: Arc<dyn Provider>,
    caught: mpsc::Sender<(Arc<ModelRequest>, Bytes)>,
}

impl Provider for Catcher {
    fn encode(&self, request: &ModelRequest) -> Result<Bytes, ModelError> {
        self.inner.encode(request)
    }

    fn encode_next(&self, request: &ModelRequest, memory: &mut Memory) -> Result<Body, ModelError> {
        self.inner.encode_next(request, memory)
    }

    fn is_local(&self) -> bool {
        self.inner.is_local()
    }

    fn send(&self, call: Call) -> BoxFuture<'_, CallEnd> {
        async move {
            // Only the first one is asked for.
            drop(self.caught.try_send((call.request.clone(), call.body)));
            call.cancel.cancelled().await;
            aborted(&call.request)
        }
        .boxed()
    }
}

fn aborted(request: &ModelRequest) -> CallEnd {
    failure(request, SystemClock.now(), ModelError::new(ModelErrorKind::Aborted, "stopped"))
}

/// Early calls that a process left, each as what is kept of it below `head`. That of `made`, a call of the session, became
/// this call.
pub(crate) fn early_drafts(steps: &[Step], made: Option<&CallRecord>, head: Option<NodeId>) -> Vec<Draft> {
    const WHY: &str =
        "begun before the session could be opened, and not used: it may have been answered and charged";
    let early = steps.iter().filter(|step| step.call == StepCall::Early).filter_map(sent_call);
    let lost = early.filter(|(_, record, _)| made.is_none_or(|made| made.body != record.body));
    let draft = |(run, record, _): (RunId, CallRecord, _)| {
        // Where it was recorded there was no node of its lineage yet.
        let record = CallRecord { head: head.unwrap_or(record.head), ..record };
        let json =
            serde_json::json!({ "type": "custom", "customType": "quipu.early", "data": { "error": WHY } });
        Draft::of(Entry::Meta(Json::from(&json)), step_of(Some(run), vec![record]))
    };
    lost.map(draft).collect()
}

/// Begins a session for which a dead process left an early call, with a node of that; else it begins with its first
/// message, and nothing is done.
pub(crate) async fn settle_early(
    store: &dyn Store,
    committer: &mut Committer,
    id: &SessionId,
    past: &mut Past,
    first: &mut Vec<Draft>,
) -> Result<Option<Notice>, OpenError> {
    let steps = store.pending(id).await?.steps;
    let drafts = early_drafts(&steps, None, past.head);
    if drafts.is_empty() {
        return Ok(None);
    }
    let plan = Plan {
        session: id.clone(),
        expect: None,
        parent: past.head,
        carried: 0,
        leaves: Vec::new(),
        drafts: first.drain(..).chain(drafts).collect(),
        ops: steps.into_iter().map(|step| PlanOp::Forget { run: step.run, session: None }).collect(),
        jump: None,
        power: true,
    };
    let nodes = committer.commit(plan, None).await.map_err(|error| broken(id, error))?;
    past.head = nodes.last().copied().or(past.head);
    past.has_ref = true;
    past.last_time = committer.last_time();
    Ok(Some(Notice::Interrupted { calls: Vec::new(), model_call: true }))
}
