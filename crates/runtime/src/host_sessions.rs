//! Sessions of the host for conversations: each keeps its own across restarts, and those that nobody uses are closed.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use quipu::protocol::{Json, Notice, SessionId, UnixMs};
use quipu::store::{
    Commit, Durability, Graph, InboxItem, Op, RefName, SessionQuery, StoreError, conversation_inbox,
};
use quipu::{LiveChanges, Session};
use quipu_host::{Failure, Home, OpenRequest, Question, SessionTarget};
use tokio::sync::{
    Notify, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, OwnedSemaphorePermit, RwLock, Semaphore,
};
use tokio::time::Instant;

use crate::conversation_rules::{ConversationTimes, ResetSettings, SessionOwner};
use crate::desk::SessionObserver;
use crate::keys::{AgentId, DEFAULT_AGENT, SessionKey};
use crate::source::{SessionSource, SourcedSession};

/// The row of an inbox that names the session.
const ROW: &str = "session";
/// How often it is tried again to be the first who says which session a conversation has.
const TRIES: usize = 3;

/// How many sessions are open, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostSessionLimits {
    /// Sessions that are open at most: 1,000. Another one closes the one that was not used for longest; where all are in use, it waits.
    pub open: usize,
    /// A session that was not used for so long is closed: 30 minutes.
    pub idle: Duration,
}

impl Default for HostSessionLimits {
    fn default() -> Self {
        Self { open: 1_000, idle: Duration::from_secs(30 * 60) }
    }
}

/// How the session of a conversation is opened.
pub type ConversationOpener = Arc<dyn Fn(&SessionKey) -> OpenRequest + Send + Sync>;

/// Sessions of a host for conversations. Which one a conversation has is kept in the store. Cheap to clone.
#[derive(Clone)]
pub struct HostSessions(Arc<Inner>);

struct Inner {
    home: Home,
    store: Arc<dyn Graph>,
    request: ConversationOpener,
    idle: Duration,
    places: Arc<Semaphore>,
    slots: Mutex<HashMap<SessionKey, Slot>>,
    /// One is not in use any more.
    freed: Notify,
    observer: OnceLock<SessionObserver>,
}

/// A conversation that has an open session, or is about to.
#[derive(Clone)]
struct Slot {
    state: Arc<RwLock<SlotState>>,
    used: Arc<Mutex<Instant>>,
}

/// A conversation that a front works in by itself.
pub struct BorrowedConversation {
    sessions: HostSessions,
    key: SessionKey,
    session: Option<SessionId>,
    slot: Slot,
    state: OwnedRwLockWriteGuard<SlotState>,
}

#[derive(Default)]
struct SlotState {
    open: Option<(Session, OwnedSemaphorePermit)>,
    /// It is not in the list any more.
    is_gone: bool,
}

/// Holds a session open.
struct Use {
    inner: Arc<Inner>,
    slot: Slot,
    held: Option<OwnedRwLockReadGuard<SlotState>>,
}

impl Drop for Use {
    fn drop(&mut self) {
        *lock(&self.slot.used) = Instant::now();
        self.held = None;
        self.inner.freed.notify_waiters();
    }
}

impl HostSessions {
    /// Sessions in the store of a home, each opened as `request` says; which session, and what else questions are answered, is
    /// not for it to say.
    ///
    /// # Errors
    /// The store cannot be opened.
    pub async fn new(
        home: Home,
        limits: HostSessionLimits,
        request: ConversationOpener,
    ) -> Result<Self, Failure> {
        let store: Arc<dyn Graph> = home.store().await?;
        let HostSessionLimits { open, idle } = limits;
        let places = Arc::new(Semaphore::new(open.max(1)));
        let (slots, freed, observer) = (Mutex::default(), Notify::new(), OnceLock::new());
        Ok(Self(Arc::new(Inner { home, store, request, idle, places, slots, freed, observer })))
    }

    /// Gives each session that is opened to `observer` first. The one that was set first stays.
    #[must_use]
    pub fn observed_by(self, observer: SessionObserver) -> Self {
        self.0.observer.get_or_init(|| observer);
        self
    }

    /// Sessions in the store of a home, those of each agent with the model and in the directory that `agents.byId` of the settings
    /// says. All else is as `request` says.
    ///
    /// # Errors
    /// The store cannot be opened.
    pub async fn of_agents(
        home: Home,
        limits: HostSessionLimits,
        request: OpenRequest,
    ) -> Result<Self, Failure> {
        let settings = home.clone();
        let of_key = move |key: &SessionKey| agent_request(&settings, &request, key);
        Self::new(home, limits, Arc::new(of_key)).await
    }

    /// The store, which all of them share.
    pub fn store(&self) -> &Arc<dyn Graph> {
        &self.0.store
    }

    /// The session that a conversation has, open or not.
    ///
    /// # Errors
    /// What the store says.
    pub async fn session_of(&self, key: &SessionKey) -> Result<Option<SessionId>, StoreError> {
        self.0.stored(key).await
    }

    /// How many are open.
    pub fn open(&self) -> usize {
        let slots = lock(&self.0.slots);
        slots.values().filter(|slot| slot.state.try_read().is_ok_and(|state| state.open.is_some())).count()
    }

    /// The conversation goes on in a new session; the one that it had stays in the history. Waits for the end of a run.
    ///
    /// # Errors
    /// What the store says; nothing changed then.
    pub async fn reset(&self, key: &SessionKey) -> Result<(), StoreError> {
        let slot = self.0.slot(key);
        let mut state = slot.state.write().await;
        if let Some(stored) = self.0.stored(key).await? {
            let ops = vec![Op::InboxTake { session: conversation_inbox(&key.to_string()), item: ROW.into() }];
            let commit = Commit { ops, durability: Durability::Power, ..Commit::default() };
            match self.0.store.commit(commit).await {
                // Somebody else was faster.
                Ok(()) | Err(StoreError::Missing { .. }) => drop(stored),
                Err(error) => return Err(error),
            }
        }
        if let Some((session, place)) = state.open.take() {
            session.shutdown().await;
            drop(place);
        }
        self.0.forget(key, &slot, &mut state);
        Ok(())
    }

    /// Takes a conversation away from runs, for a front that opens its session by itself: waits for the end of a run, and closes the
    /// session. Runs wait until it is given back: until what this returns is dropped.
    ///
    /// # Errors
    /// What the store says.
    pub async fn borrow(&self, key: &SessionKey) -> Result<BorrowedConversation, StoreError> {
        let (slot, mut state) = loop {
            let slot = self.0.slot(key);
            let state = slot.state.clone().write_owned().await;
            if !state.is_gone {
                break (slot, state);
            }
        };
        if let Some((session, place)) = state.open.take() {
            session.shutdown().await;
            drop(place);
        }
        let (sessions, key) = (self.clone(), key.clone());
        let mut borrowed = BorrowedConversation { sessions, key, session: None, slot, state };
        borrowed.session = self.0.stored(&borrowed.key).await?;
        Ok(borrowed)
    }

    /// Closes all sessions: what runs is aborted and recorded first.
    pub async fn close(&self) {
        let slots: Vec<_> =
            lock(&self.0.slots).iter().map(|(key, slot)| (key.clone(), slot.clone())).collect();
        let close = slots.into_iter().map(|(key, slot)| async move {
            // One that is being opened is waited for. The handle is not held meanwhile, or whoever uses it waited for this.
            let session = slot.state.read().await.open.as_ref().map(|(session, _)| session.clone());
            if let Some(session) = session {
                session.shutdown().await;
            }
            let mut state = slot.state.write().await;
            state.open = None;
            self.0.forget(&key, &slot, &mut state);
        });
        join_all(close).await;
    }
}

impl BorrowedConversation {
    /// The session that it has. The store may not know it: one that was never spoken in, or was removed.
    #[must_use]
    pub const fn session(&self) -> Option<&SessionId> {
        self.session.as_ref()
    }

    /// It goes on in this session; false where another process says otherwise. Resolved = it survives the loss of power.
    ///
    /// # Errors
    /// What the store says.
    pub async fn keep(&mut self, id: &SessionId) -> Result<bool, StoreError> {
        let is_kept = self.session.as_ref() == Some(id)
            || self.sessions.0.keep(&self.key, self.session.is_some(), id).await?;
        if is_kept {
            self.session = Some(id.clone());
        }
        Ok(is_kept)
    }
}

impl Drop for BorrowedConversation {
    fn drop(&mut self) {
        let inner = &self.sessions.0;
        inner.forget(&self.key, &self.slot, &mut self.state);
        inner.freed.notify_waiters();
    }
}

impl SessionSource for HostSessions {
    fn session<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, Result<SourcedSession, Failure>> {
        Box::pin(async move {
            loop {
                let slot = self.0.slot(key);
                let state = slot.state.clone().read_owned().await;
                if state.is_gone {
                    continue;
                }
                if let Some(session) = state.live().await {
                    return Ok(self.held(session, slot, state));
                }
                drop(state);
                let mut state = slot.state.clone().write_owned().await;
                if state.is_gone {
                    continue;
                }
                let live = state.live().await;
                let session = match live {
                    Some(session) => session,
                    None => {
                        // What ended by itself.
                        state.open = None;
                        match self.0.open(key).await {
                            Ok((session, place)) => {
                                state.open = Some((session.clone(), place));
                                session
                            }
                            Err(failure) => {
                                self.0.forget(key, &slot, &mut state);
                                return Err(failure);
                            }
                        }
                    }
                };
                return Ok(self.held(session, slot, state.downgrade()));
            }
        })
    }

    fn renew<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(self.renew_at(key, quipu_host::now()))
    }

    fn tend(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            loop {
                let freed = self.0.freed.notified();
                match self.0.close_unused(self.0.idle).await {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => freed.await,
                }
            }
        })
    }
}

impl HostSessions {
    /// Begins a conversation anew where the settings say so.
    async fn renew_at(&self, key: &SessionKey, now: UnixMs) -> Result<(), Failure> {
        let settings = ResetSettings::from(&self.0.home.config().resets);
        if settings == ResetSettings::default() {
            return Ok(());
        }
        let zone = quipu_host::local_zone();
        // Its hour was checked.
        let Ok(policy) = settings.resolve(key, SessionOwner::Program, &zone) else { return Ok(()) };
        let Some(id) = self.session_of(key).await? else { return Ok(()) };
        let query = SessionQuery { id: Some(id), ..SessionQuery::default() };
        let Some(row) = self.0.store.sessions(query).await?.into_iter().next() else { return Ok(()) };
        // Heartbeats and jobs have sessions of their own, so what was last written here is of a person or an answer.
        let times = ConversationTimes { started: row.created, last_said: Some(row.updated) };
        if policy.due(&times, now).is_some() {
            self.reset(key).await?;
        }
        Ok(())
    }

    fn held(&self, session: Session, slot: Slot, state: OwnedRwLockReadGuard<SlotState>) -> SourcedSession {
        *lock(&slot.used) = Instant::now();
        SourcedSession::held(session, Use { inner: self.0.clone(), slot, held: Some(state) })
    }
}

impl SlotState {
    /// The session, where it has not ended.
    async fn live(&self) -> Option<Session> {
        let (session, _) = self.open.as_ref()?;
        session.tune(LiveChanges::default()).await.is_ok().then(|| session.clone())
    }
}

impl Inner {
    fn slot(&self, key: &SessionKey) -> Slot {
        let new = || Slot { state: Arc::default(), used: Arc::new(Mutex::new(Instant::now())) };
        lock(&self.slots).entry(key.clone()).or_insert_with(new).clone()
    }

    /// Takes a conversation off the list, whose state is locked.
    fn forget(&self, key: &SessionKey, slot: &Slot, state: &mut SlotState) {
        state.is_gone = true;
        let mut slots = lock(&self.slots);
        if slots.get(key).is_some_and(|there| Arc::ptr_eq(&there.state, &slot.state)) {
            slots.remove(key);
        }
    }

    async fn stored(&self, key: &SessionKey) -> Result<Option<SessionId>, StoreError> {
        let work = self.store.pending(&conversation_inbox(&key.to_string())).await?;
        Ok(work.inbox.first().and_then(|row| row.input.read::<String>().ok()).map(SessionId::from))
    }

    /// Opens the session of a conversation.
    async fn open(&self, key: &SessionKey) -> Result<(Session, OwnedSemaphorePermit), Failure> {
        let place = self.place().await?;
        for _ in 0..TRIES {
            let stored = self.stored(key).await?;
            // One that was never spoken in is not in the store, nor is one that was removed.
            let known = match &stored {
                Some(id) => self.store.head(&RefName::session(id)).await?.map(|_| id.clone()),
                None => None,
            };
            let (session, notices) = self.open_session(key, known.clone()).await?;
            let id = session.view().session;
            if notices.iter().any(|notice| matches!(notice, Notice::Branched { .. })) {
                // It is another one's; nothing was written to the branch.
                session.shutdown().await;
                let known = known.unwrap_or(id);
                return Err(Failure::failed(format!(
                    "session {known} of the conversation `{key}` is open elsewhere; close it there"
                )));
            }
            if Some(&id) == stored.as_ref() {
                return Ok((session, place));
            }
            match self.keep(key, stored.is_some(), &id).await {
                Ok(true) => return Ok((session, place)),
                // Another process began one at the same time.
                Ok(false) => session.shutdown().await,
                Err(error) => {
                    session.shutdown().await;
                    return Err(error.into());
                }
            }
        }
        Err(Failure::failed(format!("another process changes the session of the conversation `{key}`")))
    }

    async fn open_session(
        &self,
        key: &SessionKey,
        known: Option<SessionId>,
    ) -> Result<(Session, Vec<Notice>), Failure> {
        let mut request = (self.request)(key);
        request.which = known.map_or(SessionTarget::New, |id| SessionTarget::Session(id.to_string()));
        request.is_shared = true;
        request.store = Some(self.store.clone());
        let here = (Question::Here, Some(true));
        let nobody = [
            Question::NewText,
            Question::Caches,
            Question::Resources,
            Question::Memory,
            Question::DreamBudget,
        ];
        // What the front answered stands before it.
        request.answers.extend(std::iter::once(here).chain(nobody.map(|question| (question, None))));
        // Opening reads files and takes a while: it ends, or a lease would be left behind.
        let home = self.home.clone();
        let opened = tokio::spawn(async move { quipu_host::open(&home, &request).await });
        let opened = opened.await.map_err(|error| Failure::failed(error.to_string()))??.opened;
        if let Some(observer) = self.observer.get() {
            observer(&opened.session);
        }
        Ok((opened.session, opened.notices))
    }

    /// Says which session the conversation has; false where another process says otherwise.
    async fn keep(&self, key: &SessionKey, replaces: bool, id: &SessionId) -> Result<bool, StoreError> {
        let session = conversation_inbox(&key.to_string());
        let take = Op::InboxTake { session: session.clone(), item: ROW.into() };
        let input = Json::of(id.as_str()).unwrap_or_default();
        let item = InboxItem { id: ROW.into(), queue: key.to_string(), input };
        let ops = replaces.then_some(take).into_iter().chain([Op::InboxPut { session, item }]).collect();
        let commit = Commit { ops, durability: Durability::Power, ..Commit::default() };
        match self.store.commit(commit).await {
            Ok(()) => Ok(self.stored(key).await?.as_ref() == Some(id)),
            Err(StoreError::Missing { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// A place for one more open session.
    async fn place(&self) -> Result<OwnedSemaphorePermit, Failure> {
        loop {
            let freed = self.freed.notified();
            if let Ok(place) = self.places.clone().try_acquire_owned() {
                return Ok(place);
            }
            if !self.close_oldest().await {
                freed.await;
            }
        }
    }

    /// Those that nobody uses, the one that was not used for longest first.
    fn unused(&self) -> Vec<(Instant, SessionKey, Slot)> {
        let slots = lock(&self.slots);
        let unused =
            slots.iter().filter(|(_, slot)| slot.state.try_write().is_ok_and(|state| state.open.is_some()));
        let mut all: Vec<_> =
            unused.map(|(key, slot)| (*lock(&slot.used), key.clone(), slot.clone())).collect();
        drop(slots);
        all.sort_by_key(|(used, _, _)| *used);
        all
    }

    /// Closes the session that was not used for longest; false where all are in use.
    async fn close_oldest(&self) -> bool {
        for (_, key, slot) in self.unused() {
            if self.close_slot(&key, &slot).await {
                return true;
            }
        }
        false
    }

    /// Closes what was not used for so long, and says when there may be more.
    async fn close_unused(&self, idle: Duration) -> Option<Instant> {
        for (used, key, slot) in self.unused() {
            let due = used.checked_add(idle)?;
            if due > Instant::now() {
                return Some(due);
            }
            self.close_slot(&key, &slot).await;
        }
        None
    }

    async fn close_slot(&self, key: &SessionKey, slot: &Slot) -> bool {
        let Ok(mut state) = slot.state.clone().try_write_owned() else { return false };
        let Some((session, place)) = state.open.take() else { return false };
        // Whoever wants it again waits, as a session that is not closed is not opened again.
        session.shutdown().await;
        drop(place);
        self.forget(key, slot, &mut state);
        true
    }
}

/// How a session of a conversation is opened: as its agent is set up.
fn agent_request(home: &Home, request: &OpenRequest, key: &SessionKey) -> OpenRequest {
    let mut request = request.clone();
    let config = home.config();
    let id = key.agent().map_or(DEFAULT_AGENT, AgentId::as_str);
    let Some(agent) = config.named_agents.get(id) else { return request };
    if request.model.is_none() {
        request.model.clone_from(&agent.model);
    }
    if let Some(written) = &agent.workspace {
        let path = match written.strip_prefix('~') {
            Some(below) => std::env::home_dir().map(|home| home.join(below.trim_start_matches('/'))),
            None => Some(PathBuf::from(written)),
        };
        // Without symbolic links, as sessions name it.
        match path.and_then(|path| path.canonicalize().ok()).filter(|path| path.is_dir()) {
            Some(path) => request.here = path,
            None => home.warn(format!("the workspace of the agent `{id}` is not a directory: {written}")),
        }
    }
    request
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
