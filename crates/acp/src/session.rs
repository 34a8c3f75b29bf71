//! One session that is open for a client.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quipu::{Delivery, Events, Session};
use quipu_host::{Home, SavedPermissions};
use quipu_protocol::{Model, Outcome, RunId, Snapshot, StopReason};
use quipu_store::Graph;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::link::SessionLink;
use crate::options::OptionState;
use crate::wire::{INTERNAL, INVALID_REQUEST, WireError};

/// Ends that are remembered for those who wait for one.
const ENDS: usize = 16;

/// A session, and what belongs to it.
pub(crate) struct OpenSession {
    pub(crate) session: Session,
    /// The place with the commands of this session.
    pub(crate) home: Home,
    pub(crate) store: Arc<dyn Graph>,
    pub(crate) permissions: Arc<SavedPermissions>,
    pub(crate) link: Arc<SessionLink>,
    pub(crate) ends: watch::Receiver<RunEndLog>,
    pub(crate) models: Mutex<Arc<[Arc<Model>]>>,
    prompt: Mutex<Option<PromptTicket>>,
    /// What is told once the client knows the session.
    pub(crate) beginning: Mutex<Option<FollowStart>>,
    /// Tells the client of events.
    pub(crate) follow: Mutex<Option<AbortOnDropHandle<()>>>,
}

/// How the session stood, its events since, where their ends go, and notices: each with whether it is a warning.
pub(crate) type FollowStart = (Box<Snapshot>, Events, watch::Sender<RunEndLog>, Vec<(String, bool)>);

/// A prompt under way.
#[derive(Clone)]
pub(crate) struct PromptTicket {
    /// The request that it came with.
    pub(crate) request: Value,
    /// Fires when the client cancels it.
    pub(crate) cancelled: CancellationToken,
}

/// Runs and compactions that ended, the newest last.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunEndLog {
    /// All that there were.
    pub(crate) count: u64,
    pub(crate) last: VecDeque<RunEnd>,
}

/// How one ended.
#[derive(Debug, Clone)]
pub(crate) struct RunEnd {
    pub(crate) run: Option<RunId>,
    pub(crate) outcome: Outcome,
    /// Why the last answer stopped.
    pub(crate) stop: StopReason,
}

impl RunEndLog {
    pub(crate) fn push(&mut self, end: RunEnd) {
        self.count += 1;
        self.last.push_back(end);
        if self.last.len() > ENDS {
            self.last.pop_front();
        }
    }
}

impl OpenSession {
    pub(crate) fn new(
        (session, home): (Session, Home),
        (store, permissions): (Arc<dyn Graph>, Arc<SavedPermissions>),
        link: Arc<SessionLink>,
        ends: watch::Receiver<RunEndLog>,
        models: Vec<Arc<Model>>,
    ) -> Arc<Self> {
        let models = Mutex::new(models.into());
        let (prompt, beginning, follow) = (Mutex::default(), Mutex::default(), Mutex::default());
        Arc::new(Self { session, home, store, permissions, link, ends, models, prompt, beginning, follow })
    }

    fn prompt(&self) -> MutexGuard<'_, Option<PromptTicket>> {
        self.prompt.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a prompt: there is one at a time.
    pub(crate) fn begin_prompt(&self, request: Value) -> Result<PromptTicket, WireError> {
        let mut prompt = self.prompt();
        if prompt.is_some() {
            let why = "a prompt of this session is under way; wait for its answer or cancel it";
            return Err(WireError::new(INVALID_REQUEST, why));
        }
        let ticket = PromptTicket { request, cancelled: CancellationToken::new() };
        *prompt = Some(ticket.clone());
        Ok(ticket)
    }

    pub(crate) fn end_prompt(&self) {
        self.prompt().take();
    }

    /// Cancels the prompt under way: the one of this request, or whichever there is. Whether there was one.
    pub(crate) fn cancel_prompt(&self, request: Option<&Value>) -> bool {
        let ticket = self.prompt().clone();
        let Some(ticket) = ticket.filter(|ticket| request.is_none_or(|request| ticket.request == *request))
        else {
            return false;
        };
        ticket.cancelled.cancel();
        true
    }

    /// Stops what runs.
    pub(crate) async fn abort(&self) {
        self.link.stop_waiting();
        // A session that is closed has nothing to abort.
        drop(self.session.abort().await);
    }

    pub(crate) async fn snapshot(&self) -> Result<Snapshot, WireError> {
        let subscribed = self.session.subscribe(Delivery::Live).await;
        let failed = |error: quipu::Refusal| WireError::new(INTERNAL, error.to_string());
        subscribed.map(|(snapshot, _)| snapshot).map_err(failed)
    }

    /// Its modes and options, for answers.
    pub(crate) async fn state(&self) -> Result<Value, WireError> {
        let snapshot = self.snapshot().await?;
        Ok(self.state_of(&snapshot))
    }

    pub(crate) fn state_of(&self, snapshot: &Snapshot) -> Value {
        let models = self.models.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (session, permissions) = (&self.session, &*self.permissions);
        let state = OptionState { session, permissions, snapshot, models: &models };
        json!({ "modes": state.modes(), "configOptions": state.options() })
    }

    /// Closes it: what runs is aborted and recorded, and the client is told of that.
    pub(crate) async fn close(&self) {
        self.link.stop_waiting();
        self.session.shutdown().await;
        let follow = self.follow.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(follow) = follow {
            // What is left of its events is told.
            drop(follow.await);
        }
    }
}
