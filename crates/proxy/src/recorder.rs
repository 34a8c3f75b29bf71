//! Keeps conversations: a thread of its own, so that no client waits for the store.

mod asking;
mod first_calls;
mod keeping;
mod known;

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use quipu_protocol::Model;
use quipu_seal::Sealer;
use quipu_store::{Graph, StoreError};
use tokio::sync::{mpsc, oneshot};

use crate::exchange::Exchange;
use crate::inspection::{is_concerned, may_ask};
use crate::jump::REFS;
use crate::recorder::first_calls::FirstCalls;
use crate::recorder::known::KnownSessions;
use crate::upstream::Upstreams;
use crate::wire_kind::WireKind;

/// Exchanges that wait to be kept, at most.
const WAITING: usize = 1_024;

/// Why the store could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StoreOpenError(pub String);

/// Opens the store, when something is to be kept.
pub type StoreOpener = Arc<dyn Fn() -> Result<Arc<dyn Graph>, StoreOpenError> + Send + Sync>;
/// A model of a provider by its id, for what its tokens cost.
pub type ModelLookup = Arc<dyn Fn(&str, &str) -> Option<Arc<Model>> + Send + Sync>;

/// How conversations are kept.
pub struct RecorderOptions {
    /// Opens the store; asked again after a failure.
    pub opener: StoreOpener,
    /// Seals what goes to the store.
    pub sealer: Arc<Sealer>,
    /// What models cost.
    pub models: ModelLookup,
    /// Takes lines for the person who runs the proxy.
    pub notify: Arc<dyn Fn(&str) + Send + Sync>,
    /// The command with which a jump is confirmed; its id follows.
    pub confirm_command: String,
}

/// What became of exchanges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProxyCounts {
    /// In the store.
    pub kept: u64,
    /// Passed on and not kept, because their requests say nothing of a conversation.
    pub unread: u64,
    /// Passed on and not kept, because the store failed, or more came than could be kept.
    pub lost: u64,
    /// Requests of which messages were left out.
    pub rewritten: u64,
}

/// What becomes of a request of which the store may know something.
#[derive(Debug)]
pub(crate) enum Decision {
    /// It is passed on as it came.
    Pass,
    /// These bytes are sent in its place. The target is told with the answer.
    Send { bytes: Bytes, target: String },
    /// The proxy answers.
    Answer { kind: &'static str, text: String },
    /// Nothing is sent, because what should be left out cannot be.
    Refuse(String),
}

enum Job {
    /// A request is sent; what it is of may tell what others of its session are.
    Begin {
        wire: WireKind,
        headers: HeaderMap,
        body: Bytes,
    },
    Keep(Box<Exchange>),
    Decide {
        wire: WireKind,
        headers: HeaderMap,
        body: Bytes,
        reply: oneshot::Sender<Decision>,
    },
}

#[derive(Default)]
struct Counters {
    kept: AtomicU64,
    unread: AtomicU64,
    lost: AtomicU64,
    rewritten: AtomicU64,
    /// The store, while it is open.
    store: Mutex<Option<Arc<dyn Graph>>>,
}

/// Gives exchanges to the recorder.
#[derive(Clone)]
pub(crate) struct RecorderHandle {
    jobs: mpsc::Sender<Job>,
    counters: Arc<Counters>,
    notify: Arc<dyn Fn(&str) + Send + Sync>,
    sealer: Arc<Sealer>,
}

impl RecorderHandle {
    /// A request is about to be sent.
    pub(crate) fn begin(&self, wire: WireKind, headers: &HeaderMap, body: &Bytes) {
        let job = Job::Begin { wire, headers: headers.clone(), body: body.clone() };
        if self.jobs.try_send(job).is_err() {
            tracing::debug!("a request is not looked at before its answer");
        }
    }

    /// Keeps an exchange, some time.
    pub(crate) fn keep(&self, exchange: Exchange) {
        if self.jobs.try_send(Job::Keep(Box::new(exchange))).is_err() {
            self.counters.lost(&*self.notify, "more exchanges came than could be kept");
        }
    }

    /// Whether the store has to say something of a request. Found out beside the recorder, so that no conversation waits for
    /// the writes of another one; where the store cannot be read, all have to ask.
    pub(crate) async fn is_concerned(&self, wire: WireKind, headers: &HeaderMap, body: &Bytes) -> bool {
        let store = self.counters.store();
        let Some(store) = store else { return true };
        let Ok(plans) = store.heads(REFS).await else { return true };
        if plans.is_empty() && !may_ask(headers, body) {
            return false;
        }
        let (headers, body, sealer) = (headers.clone(), body.clone(), Arc::clone(&self.sealer));
        let concerned = tokio::task::spawn_blocking(move || {
            let plans: HashSet<String> =
                plans.into_iter().map(|head| head.name.as_str().to_owned()).collect();
            is_concerned(wire, &headers, &body, &plans, &|text| sealer.seal(text).into_owned())
        });
        concerned.await.unwrap_or(true)
    }

    /// What becomes of a request, behind all exchanges before it; `None` where nobody decides.
    pub(crate) async fn decide(&self, wire: WireKind, headers: HeaderMap, body: Bytes) -> Option<Decision> {
        let (reply, decided) = oneshot::channel();
        self.jobs.send(Job::Decide { wire, headers, body, reply }).await.ok()?;
        decided.await.ok()
    }
}

impl Counters {
    fn store(&self) -> Option<Arc<dyn Graph>> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_store(&self, store: Option<Arc<dyn Graph>>) {
        *self.store.lock().unwrap_or_else(PoisonError::into_inner) = store;
    }

    fn lost(&self, notify: &dyn Fn(&str), why: &str) {
        let lost = self.lost.fetch_add(1, Ordering::Relaxed) + 1;
        // Each power of two, so that a store that stays away does not fill the screen.
        if lost.is_power_of_two() {
            notify(&format!("{lost} exchange(s) were passed on and not kept: {why}"));
        }
    }

    fn counts(&self) -> ProxyCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ProxyCounts {
            kept: of(&self.kept),
            unread: of(&self.unread),
            lost: of(&self.lost),
            rewritten: of(&self.rewritten),
        }
    }
}

/// The thread that keeps conversations.
pub(crate) struct Recorder {
    handle: RecorderHandle,
    thread: JoinHandle<()>,
}

impl Recorder {
    pub(crate) fn start(options: RecorderOptions, upstreams: Arc<Upstreams>) -> std::io::Result<Self> {
        let (jobs, mut waiting) = mpsc::channel(WAITING);
        let counters = Arc::new(Counters::default());
        let handle = RecorderHandle {
            jobs,
            counters: Arc::clone(&counters),
            notify: Arc::clone(&options.notify),
            sealer: Arc::clone(&options.sealer),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::Builder::new().name("recorder".into()).spawn(move || {
            runtime.block_on(async move {
                let mut recorder = ExchangeRecorder::new(options, upstreams, counters);
                recorder.look().await;
                loop {
                    let job = match recorder.calls.next() {
                        None => waiting.recv().await,
                        Some(until) => match tokio::time::timeout_at(until, waiting.recv()).await {
                            Ok(job) => job,
                            Err(_) => {
                                let due = recorder.calls.due();
                                recorder.keep_all(due).await;
                                continue;
                            }
                        },
                    };
                    let Some(job) = job else { break };
                    match job {
                        Job::Begin { wire, headers, body } => recorder.begin(wire, &headers, &body).await,
                        Job::Keep(exchange) => recorder.keep(*exchange).await,
                        Job::Decide { wire, headers, body, reply } => {
                            recorder.keep_held_of(wire, &headers, &body).await;
                            let decision = recorder.decide(wire, &headers, &body).await;
                            // Who asked may have left.
                            drop(reply.send(decision));
                        }
                    }
                }
                let held = recorder.calls.of(None);
                recorder.keep_all(held).await;
            });
        })?;
        Ok(Self { handle, thread })
    }

    pub(crate) fn handle(&self) -> RecorderHandle {
        self.handle.clone()
    }

    /// Keeps what waits, for `most` at most.
    pub(crate) async fn end(self, most: Duration) -> ProxyCounts {
        let Self { handle, thread } = self;
        let counters = Arc::clone(&handle.counters);
        drop(handle);
        let end = tokio::time::Instant::now() + most;
        while !thread.is_finished() && tokio::time::Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if thread.is_finished() && thread.join().is_err() {
            counters.lost.fetch_add(1, Ordering::Relaxed);
        }
        counters.counts()
    }
}

/// What the recorder works with.
struct ExchangeRecorder {
    options: RecorderOptions,
    upstreams: Arc<Upstreams>,
    counters: Arc<Counters>,
    store: Option<Arc<dyn Graph>>,
    sessions: KnownSessions,
    calls: FirstCalls,
}

impl ExchangeRecorder {
    fn new(options: RecorderOptions, upstreams: Arc<Upstreams>, counters: Arc<Counters>) -> Self {
        let (sessions, calls) = (KnownSessions::default(), FirstCalls::default());
        Self { options, upstreams, counters, store: None, sessions, calls }
    }

    fn notify(&self, text: &str) {
        (self.options.notify)(text);
    }

    /// The store, opened when it is not.
    fn store(&mut self) -> Result<Arc<dyn Graph>, String> {
        if let Some(store) = &self.store {
            return Ok(Arc::clone(store));
        }
        let store = (self.options.opener)().map_err(|error| error.to_string())?;
        self.store = Some(Arc::clone(&store));
        self.counters.set_store(Some(Arc::clone(&store)));
        Ok(store)
    }

    /// Finds out which conversations have jumps.
    async fn look(&mut self) {
        let found = match self.store() {
            Ok(store) => self.sessions.look(&*store).await.map_err(|error| error.to_string()),
            Err(error) => Err(error),
        };
        if let Err(error) = found {
            self.notify(&format!("the store cannot be used: {error}"));
        }
    }

    fn seal(&self) -> impl Fn(&str) -> String + use<> {
        let sealer = Arc::clone(&self.options.sealer);
        move |text: &str| sealer.seal(text).into_owned()
    }

    fn failed(&mut self, error: &StoreError) -> String {
        // What is known of sessions may not be so.
        self.sessions.forget();
        self.store = None;
        self.counters.set_store(None);
        error.to_string()
    }
}
