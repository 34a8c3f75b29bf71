//! Keeps conversations: a thread of its own, so that no client waits for the store.

mod asking;
mod keeping;
mod known;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use quipu_protocol::Model;
use quipu_seal::Sealer;
use quipu_store::{Graph, StoreError};
use tokio::sync::{mpsc, oneshot};

use crate::exchange::Exchange;
use crate::recorder::known::KnownSessions;
use crate::upstream::Upstreams;
use crate::wires::WireKind;

/// Exchanges that wait to be kept, at most.
const WAITING: usize = 1_024;

/// Opens the store, when something is to be kept.
pub type StoreOpener = Arc<dyn Fn() -> Result<Arc<dyn Graph>, String> + Send + Sync>;
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
    Keep(Box<Exchange>),
    Decide { wire: WireKind, headers: HeaderMap, body: Bytes, reply: oneshot::Sender<Decision> },
}

#[derive(Debug, Default)]
struct Counters {
    kept: AtomicU64,
    unread: AtomicU64,
    lost: AtomicU64,
    rewritten: AtomicU64,
    has_jumps: AtomicBool,
}

/// Gives exchanges to the recorder.
#[derive(Clone)]
pub(crate) struct RecorderHandle {
    jobs: mpsc::Sender<Job>,
    counters: Arc<Counters>,
    notify: Arc<dyn Fn(&str) + Send + Sync>,
}

impl RecorderHandle {
    /// Keeps an exchange, some time.
    pub(crate) fn keep(&self, exchange: Exchange) {
        if self.jobs.try_send(Job::Keep(Box::new(exchange))).is_err() {
            self.counters.lost(&*self.notify, "more exchanges came than could be kept");
        }
    }

    /// Whether any conversation has a jump.
    pub(crate) fn has_jumps(&self) -> bool {
        self.counters.has_jumps.load(Ordering::Relaxed)
    }

    /// What becomes of a request, behind all exchanges before it; `None` where nobody decides.
    pub(crate) async fn decide(&self, wire: WireKind, headers: HeaderMap, body: Bytes) -> Option<Decision> {
        let (reply, decided) = oneshot::channel();
        self.jobs.send(Job::Decide { wire, headers, body, reply }).await.ok()?;
        decided.await.ok()
    }
}

impl Counters {
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
        let handle =
            RecorderHandle { jobs, counters: Arc::clone(&counters), notify: Arc::clone(&options.notify) };
        // Until the store is open, any conversation may have one.
        counters.has_jumps.store(true, Ordering::Relaxed);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::Builder::new().name("recorder".into()).spawn(move || {
            runtime.block_on(async move {
                let mut keeper = Keeper::new(options, upstreams, counters);
                keeper.look().await;
                while let Some(job) = waiting.recv().await {
                    match job {
                        Job::Keep(exchange) => keeper.keep(*exchange).await,
                        Job::Decide { wire, headers, body, reply } => {
                            let decision = keeper.decide(wire, &headers, &body).await;
                            // Who asked may have left.
                            drop(reply.send(decision));
                        }
                    }
                }
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
struct Keeper {
    options: RecorderOptions,
    upstreams: Arc<Upstreams>,
    counters: Arc<Counters>,
    store: Option<Arc<dyn Graph>>,
    sessions: KnownSessions,
}

impl Keeper {
    fn new(options: RecorderOptions, upstreams: Arc<Upstreams>, counters: Arc<Counters>) -> Self {
        Self { options, upstreams, counters, store: None, sessions: KnownSessions::default() }
    }

    fn notify(&self, text: &str) {
        (self.options.notify)(text);
    }

    /// The store, opened when it is not.
    fn store(&mut self) -> Result<Arc<dyn Graph>, String> {
        if let Some(store) = &self.store {
            return Ok(Arc::clone(store));
        }
        let store = (self.options.opener)()?;
        self.store = Some(Arc::clone(&store));
        Ok(store)
    }

    /// Finds out which conversations have jumps.
    async fn look(&mut self) {
        let found = match self.store() {
            Ok(store) => self.sessions.look(&*store).await.map_err(|error| error.to_string()),
            Err(error) => Err(error),
        };
        match found {
            Ok(any) => self.counters.has_jumps.store(any, Ordering::Relaxed),
            Err(error) => self.notify(&format!("the store cannot be used: {error}")),
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
        error.to_string()
    }
}
