//! Sessions of the host for conversations: each keeps its own across restarts, and those that nobody uses are closed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use quipu::protocol::{Json, Notice, SessionId, UnixMs};
use quipu::store::{
    Commit, Durability, Graph, InboxItem, Op, OpenWork, RefName, SessionQuery, StoreError, conversation_inbox,
};
use quipu::{BackgroundWake, LiveChanges, OpenedSession, Session, Tool};
use quipu_host::{
    Failure, Home, OpenRequest, Question, Sender, SessionTarget, SettingsToolFilter, agent_request,
};
use tokio::sync::{
    Notify, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, OwnedSemaphorePermit, RwLock, Semaphore,
};
use tokio::time::Instant;

use crate::conversation_rules::{TurnCause, conversation_limit, turn_limit};
use crate::desk::{Desk, SessionObserver};
use crate::heartbeat::HeartbeatSettings;
use crate::keys::SessionKey;
use crate::queue::MessageGroup;
use crate::source::{ConversationClaim, SessionSource, SourcedSession};
use claims::{Claim, Claims};

/// The row of an inbox that names the session.
const ROW: &str = "session";
/// The name of no conversation: its rows are the conversations that there are.
const ALL: &str = "";
/// How often it is tried again to be the first who says which session a conversation has.
const TRIES: usize = 3;

/// How many sessions are open, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostSessionLimits {
    /// Sessions that are open at most: 1,000. Another one closes the one that was not used for longest; where all are in use, it waits.
    pub open: usize,
    /// A session that was not used for so long is closed: 5 minutes. It is used while it works, or a command runs in its background.
    pub idle: Duration,
}

impl Default for HostSessionLimits {
    fn default() -> Self {
        Self { open: 1_000, idle: Duration::from_secs(5 * 60) }
    }
}

/// How the session of a conversation is opened.
pub type ConversationOpener = Arc<dyn Fn(&SessionKey) -> OpenRequest + Send + Sync>;

/// More tools of the session of a conversation, such as [`AgentTools`](crate::AgentTools) has.
pub type ConversationTools = Arc<dyn Fn(&SessionKey) -> Vec<Arc<dyn Tool>> + Send + Sync>;

/// Sees each session of a conversation that is opened.
pub type ConversationObserver = Arc<dyn Fn(&SessionKey, &Session) + Send + Sync>;

/// Sessions of a host for conversations. Which one a conversation has is kept in the store. Cheap to clone.
#[derive(Clone)]
pub struct HostSessions(Arc<Inner>);

/// Sessions that this keeps nobody from closing.
#[derive(Clone)]
pub(crate) struct WeakSessions(Weak<Inner>);

impl WeakSessions {
    pub(crate) fn upgrade(&self) -> Option<HostSessions> {
        self.0.upgrade().map(HostSessions)
    }
}

struct Inner {
    home: Home,
    store: Arc<dyn Graph>,
    request: ConversationOpener,
    idle: Duration,
    places: Arc<Semaphore>,
    slots: Mutex<HashMap<SessionKey, Slot>>,
    claims: Arc<Claims>,
    /// One is not in use any more.
    freed: Notify,
    observer: OnceLock<SessionObserver>,
    conversation_observer: OnceLock<ConversationObserver>,
    desk: OnceLock<Desk>,
}

/// A conversation that has an open session, or is about to.
#[derive(Clone)]
struct Slot {
    state: Arc<RwLock<SlotState>>,
    used: Arc<Mutex<Instant>>,
    /// The session that the conversation is known to have in the store.
    kept: Arc<Mutex<Option<SessionId>>>,
}

/// A conversation that a front works in by itself.
pub struct BorrowedConversation {
    sessions: HostSessions,
    key: SessionKey,
    session: Option<SessionId>,
    slot: Slot,
    state: OwnedRwLockWriteGuard<SlotState>,
    _claim: Claim,
}

#[derive(Default)]
struct SlotState {
    open: Option<OpenConversation>,
    /// It is not in the list any more.
    is_gone: bool,
}

/// The open session of a conversation.
struct OpenConversation {
    session: Session,
    /// Which tools it offers to whom.
    filter: Option<Arc<SettingsToolFilter>>,
    _place: OwnedSemaphorePermit,
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
        // One that works is looked at again after that time.
        let idle = idle.max(Duration::from_secs(1));
        let places = Arc::new(Semaphore::new(open.max(1)));
        let (slots, claims, freed) = (Mutex::default(), Arc::default(), Notify::new());
        let (observer, conversation_observer, desk) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        Ok(Self(Arc::new(Inner {
            home,
            store,
            request,
            idle,
            places,
            slots,
            claims,
            freed,
            observer,
            conversation_observer,
            desk,
        })))
    }

    /// Gives each session that is opened to `observer`, with its conversation. The one that was set first stays.
    #[must_use]
    pub fn conversations_observed_by(self, observer: ConversationObserver) -> Self {
        self.0.conversation_observer.get_or_init(|| observer);
        self
    }

    /// Clients of lines have sessions open at `desk`: those that all of them left are closed there when a conversation needs them. The one
    /// that was set first stays.
    #[must_use]
    pub fn beside(self, desk: Desk) -> Self {
        self.0.desk.get_or_init(|| desk);
        self
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
        let of_key = move |key: &SessionKey| agent_request(&settings, &request, agent_of(key));
        Self::new(home, limits, Arc::new(of_key)).await
    }

    /// The same, with tools of conversations. A session of an agent that is not set up is not opened, unless it is `main`.
    ///
    /// # Errors
    /// The store cannot be opened.
    pub async fn of_agents_with(
        home: Home,
        limits: HostSessionLimits,
        request: OpenRequest,
        tools: ConversationTools,
    ) -> Result<Self, Failure> {
        let settings = home.clone();
        let of_key = move |key: &SessionKey| {
            let mut request = agent_request(&settings, &request, agent_of(key));
            request.audience.is_known_only = true;
            request.added_tools.extend(tools(key));
            request
        };
        Self::new(home, limits, Arc::new(of_key)).await
    }

    /// The conversations that had a session at some time, in the order of their keys.
    ///
    /// # Errors
    /// What the store says.
    pub async fn conversations(&self) -> Result<Vec<SessionKey>, StoreError> {
        let rows = self.0.store.pending(&conversation_inbox(ALL)).await?.inbox;
        let mut keys: Vec<SessionKey> =
            rows.iter().filter_map(|row| SessionKey::parse(&row.queue).ok()).collect();
        keys.sort_by_key(ToString::to_string);
        keys.dedup();
        Ok(keys)
    }

    pub(crate) fn downgrade(&self) -> WeakSessions {
        WeakSessions(Arc::downgrade(&self.0))
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

    /// Takes a conversation away from runs, for a front that opens its session by itself: waits for the end of a run that came first,
    /// and closes the session. Runs wait until it is given back: until what this returns is dropped.
    ///
    /// # Errors
    /// What the store says.
    pub async fn borrow(&self, key: &SessionKey) -> Result<BorrowedConversation, StoreError> {
        let claim = self.0.claims.claim(key).await;
        self.borrow_claimed(key, claim).await
    }

    /// The same for a message that came at this time: the conversation begins anew where it is to. Not before it is taken away, or it
    /// would do so under a run that came first.
    ///
    /// # Errors
    /// What the store says.
    pub async fn borrow_renewed(
        &self,
        key: &SessionKey,
        at: UnixMs,
    ) -> Result<BorrowedConversation, StoreError> {
        let claim = self.0.claims.claim(key).await;
        self.renew_at(key, at).await?;
        self.borrow_claimed(key, claim).await
    }

    async fn borrow_claimed(
        &self,
        key: &SessionKey,
        claim: Claim,
    ) -> Result<BorrowedConversation, StoreError> {
        let (slot, mut state) = self.0.locked_slot(key).await;
        if let Some(open) = state.open.take() {
            open.session.shutdown().await;
            self.0.left(key, &slot, &open.session).await;
        }
        let (sessions, key) = (self.clone(), key.clone());
        let mut borrowed = BorrowedConversation { sessions, key, session: None, slot, state, _claim: claim };
        borrowed.session = self.0.stored(&borrowed.key).await?;
        Ok(borrowed)
    }

    /// What the settings say now of the open session of a conversation: how many turns of the user its requests have. The sessions of
    /// this have it before each run.
    #[must_use]
    pub fn live_changes(&self, key: &SessionKey) -> LiveChanges {
        let config = self.0.home.config();
        let turns = match key.is_heartbeat() && !self.0.heartbeat_settings(key).is_isolated() {
            true => conversation_limit(&config.turns, key),
            false => turn_limit(&config.turns, key),
        };
        LiveChanges { turns: Some(turns), ..LiveChanges::default() }
    }

    /// Closes all sessions: what runs is aborted and recorded first.
    pub async fn close(&self) {
        let slots: Vec<_> =
            lock(&self.0.slots).iter().map(|(key, slot)| (key.clone(), slot.clone())).collect();
        let close = slots.into_iter().map(|(key, slot)| async move {
            // One that is being opened is waited for. The handle is not held meanwhile, or whoever uses it waited for this.
            let session = slot.state.read().await.open.as_ref().map(|open| open.session.clone());
            if let Some(session) = session {
                session.shutdown().await;
                self.0.left(&key, &slot, &session).await;
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

    /// A person says something in it, in this session, or waited for an answer until now. Resolved = it survives the end of the process.
    ///
    /// # Errors
    /// What the store says.
    pub async fn person_said(&self, id: &SessionId) -> Result<(), StoreError> {
        self.sessions.0.person_said(&self.key, id, quipu_host::now()).await
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
        Box::pin(self.opened(key, None))
    }

    fn session_for<'a>(
        &'a self,
        key: &'a SessionKey,
        group: &'a MessageGroup,
    ) -> BoxFuture<'a, Result<SourcedSession, Failure>> {
        Box::pin(self.opened(key, Some(sender_of(&group.authority))))
    }

    fn claim<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, ConversationClaim> {
        Box::pin(async move { ConversationClaim::held(self.0.claims.claim(key).await) })
    }

    fn renew<'a>(&'a self, key: &'a SessionKey, at: UnixMs) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move { Ok(self.renew_at(key, at).await?) })
    }

    fn heard<'a>(
        &'a self,
        key: &'a SessionKey,
        session: &'a Session,
        cause: TurnCause,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            match cause {
                TurnCause::Person => {
                    let id = session.view().session;
                    Ok(self.0.person_said(key, &id, quipu_host::now()).await?)
                }
                TurnCause::System => Ok(()),
            }
        })
    }

    fn follow<'a>(&'a self, key: &'a SessionKey, session: &'a Session) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            let slot = self.0.slot(key);
            self.0.follow(key, &slot, session).await
        })
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
    /// The open session of a conversation; with a sender, for whose messages it works from now on.
    async fn opened(&self, key: &SessionKey, sender: Option<Sender>) -> Result<SourcedSession, Failure> {
        let changes = self.live_changes(key);
        loop {
            let slot = self.0.slot(key);
            let state = slot.state.clone().read_owned().await;
            if state.is_gone {
                continue;
            }
            if let Some(session) = state.live(sender.as_ref(), changes).await {
                self.0.follow(key, &slot, &session).await?;
                return Ok(self.held(session, slot, state));
            }
            drop(state);
            let mut state = slot.state.clone().write_owned().await;
            if state.is_gone {
                continue;
            }
            let live = state.live(sender.as_ref(), changes).await;
            let session = match live {
                Some(session) => {
                    self.0.follow(key, &slot, &session).await?;
                    session
                }
                None => {
                    // What ended by itself.
                    if let Some(ended) = state.open.take() {
                        self.0.left(key, &slot, &ended.session).await;
                    }
                    match self.0.open(key, sender.clone()).await {
                        Ok(open) => {
                            let session = open.session.clone();
                            // One that has ended by itself says so at its first use.
                            drop(session.tune(changes).await);
                            *lock(&slot.kept) = Some(session.view().session);
                            state.open = Some(open);
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
    }

    fn held(&self, session: Session, slot: Slot, state: OwnedRwLockReadGuard<SlotState>) -> SourcedSession {
        *lock(&slot.used) = Instant::now();
        SourcedSession::held(session, Use { inner: self.0.clone(), slot, held: Some(state) })
    }
}

impl SlotState {
    /// The session, where it has not ended, with what the settings say and the tools of a sender.
    async fn live(&self, sender: Option<&Sender>, changes: LiveChanges) -> Option<Session> {
        let OpenConversation { session, filter, .. } = self.open.as_ref()?;
        session.tune(changes).await.ok()?;
        if let Some((filter, sender)) = filter.as_ref().zip(sender) {
            filter.set_sender(Some(sender.clone()));
        }
        Some(session.clone())
    }
}

impl Slot {
    /// Whether its session works though nobody uses it: a command runs in the background, or the end of one began a run.
    fn is_at_work(&self) -> bool {
        let Ok(state) = self.state.try_read() else { return false };
        state.open.as_ref().is_some_and(|open| {
            open.session.view().run.is_some()
                || open.session.background().iter().any(|command| command.end.is_none())
        })
    }
}

impl Inner {
    fn slot(&self, key: &SessionKey) -> Slot {
        let new = || {
            let used = Arc::new(Mutex::new(Instant::now()));
            Slot { state: Arc::default(), used, kept: Arc::default() }
        };
        lock(&self.slots).entry(key.clone()).or_insert_with(new).clone()
    }

    /// A conversation on the list, whose state nobody else uses.
    async fn locked_slot(&self, key: &SessionKey) -> (Slot, OwnedRwLockWriteGuard<SlotState>) {
        loop {
            let slot = self.slot(key);
            let state = slot.state.clone().write_owned().await;
            if !state.is_gone {
                return (slot, state);
            }
        }
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
        Ok(named_session(&work))
    }

    /// Opens the session of a conversation.
    async fn open(&self, key: &SessionKey, sender: Option<Sender>) -> Result<OpenConversation, Failure> {
        let place = self.place().await?;
        for _ in 0..TRIES {
            let stored = self.stored(key).await?;
            // One that was never spoken in is not in the store, nor is one that was removed.
            let known = match &stored {
                Some(id) => self.known(id).await?,
                None => None,
            };
            let (opened, filter) = self.open_session(key, known.clone(), sender.clone()).await?;
            let OpenedSession { session, notices } = opened;
            let id = session.view().session;
            if notices.iter().any(|notice| matches!(notice, Notice::Branched { .. })) {
                // It is another one's; nothing was written to the branch.
                session.shutdown().await;
                let known = known.unwrap_or(id);
                if let Some(desk) = self.desk.get()
                    && desk.close_abandoned(&known).await
                {
                    continue;
                }
                return Err(Failure::failed(format!(
                    "session {known} of the conversation `{key}` is open elsewhere; close it there"
                )));
            }
            if Some(&id) == stored.as_ref() {
                return Ok(OpenConversation { session, filter, _place: place });
            }
            match self.keep(key, stored.is_some(), &id).await {
                Ok(true) => return Ok(OpenConversation { session, filter, _place: place }),
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

    /// The session, where it can be gone on with. One that was imported has no ref of ours: it goes on in a new one below it.
    async fn known(&self, id: &SessionId) -> Result<Option<SessionId>, StoreError> {
        if self.store.head(&RefName::session(id)).await?.is_some() {
            return Ok(Some(id.clone()));
        }
        let query = SessionQuery { id: Some(id.clone()), ..SessionQuery::default() };
        let rows = self.store.sessions(query).await?;
        Ok(rows.into_iter().find(|row| row.head.is_some()).map(|row| row.id))
    }

    async fn open_session(
        &self,
        key: &SessionKey,
        known: Option<SessionId>,
        sender: Option<Sender>,
    ) -> Result<(OpenedSession, Option<Arc<SettingsToolFilter>>), Failure> {
        let mut request = (self.request)(key);
        request.audience.agent.get_or_insert_with(|| agent_of(key).to_owned());
        // What the key says is known; what a message says of its group is not.
        request.audience.group = group_of(key);
        request.audience.sender = Some(sender.unwrap_or_default());
        request.which = known.map_or(SessionTarget::New, |id| SessionTarget::Session(id.to_string()));
        request.is_shared = true;
        // What it began by itself would be answered to nobody, or to who writes next.
        request.background_wake = BackgroundWake::Running;
        request.is_light |= key.is_heartbeat() && self.heartbeat_settings(key).is_light();
        request.conversation = Some(place_of(key));
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
        let started = opened.await.map_err(|error| Failure::failed(error.to_string()))??;
        if let Some(observer) = self.observer.get() {
            observer(&started.opened.session);
        }
        if let Some(observer) = self.conversation_observer.get() {
            observer(key, &started.opened.session);
        }
        Ok((started.opened, started.tool_filter))
    }

    /// The heartbeat of the agent of a conversation, as the settings have it.
    fn heartbeat_settings(&self, key: &SessionKey) -> HeartbeatSettings {
        let config = self.home.config();
        let heartbeat = config.named_agents.get(agent_of(key)).and_then(|agent| agent.heartbeat.clone());
        // It was checked.
        heartbeat.and_then(|heartbeat| serde_json::from_value(heartbeat).ok()).unwrap_or_default()
    }

    /// Says which session the conversation has; false where another process says otherwise.
    async fn keep(&self, key: &SessionKey, replaces: bool, id: &SessionId) -> Result<bool, StoreError> {
        let mut ops = row_ops(key, replaces, id);
        ops.push(listed(key));
        let commit = Commit { ops, durability: Durability::Power, ..Commit::default() };
        match self.store.commit(commit).await {
            Ok(()) => Ok(self.stored(key).await?.as_ref() == Some(id)),
            Err(StoreError::Missing { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The conversation goes on in the session that is open for it: in a branch, where another process took the one that it had.
    async fn follow(&self, key: &SessionKey, slot: &Slot, session: &Session) -> Result<(), Failure> {
        let id = session.view().session;
        if lock(&slot.kept).as_ref() == Some(&id) {
            return Ok(());
        }
        if !self.keep(key, true, &id).await? {
            let text = format!("another process changes the session of the conversation `{key}`");
            return Err(Failure::failed(text));
        }
        *lock(&slot.kept) = Some(id);
        Ok(())
    }

    /// The same for a session that is not open any more, where nobody waits for it.
    async fn left(&self, key: &SessionKey, slot: &Slot, session: &Session) {
        if let Err(failure) = self.follow(key, slot, session).await {
            let id = session.view().session;
            let why = failure.message;
            self.home.warn(format!("the conversation `{key}` does not go on in its session {id}: {why}"));
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

    /// Closes the session that was not used for longest, of those that do not work where there is one; false where all are in use.
    async fn close_oldest(&self) -> bool {
        let (working, resting): (Vec<_>, Vec<_>) =
            self.unused().into_iter().partition(|(_, _, slot)| slot.is_at_work());
        for (_, key, slot) in resting.into_iter().chain(working) {
            if self.close_slot(&key, &slot).await {
                return true;
            }
        }
        false
    }

    /// Closes what was not used for so long, and says when there may be more.
    async fn close_unused(&self, idle: Duration) -> Option<Instant> {
        let mut next = None;
        for (used, key, slot) in self.unused() {
            let now = Instant::now();
            let due = used.checked_add(idle)?;
            if due > now {
                return Some(due);
            }
            if slot.is_at_work() {
                *lock(&slot.used) = now;
                next = next.or(now.checked_add(idle));
                continue;
            }
            self.close_slot(&key, &slot).await;
        }
        next
    }

    async fn close_slot(&self, key: &SessionKey, slot: &Slot) -> bool {
        let Ok(mut state) = slot.state.clone().try_write_owned() else { return false };
        let Some(open) = state.open.take() else { return false };
        // Whoever wants it again waits, as a session that is not closed is not opened again.
        open.session.shutdown().await;
        self.left(key, slot, &open.session).await;
        drop(open);
        self.forget(key, slot, &mut state);
        // Whoever waits for a place may have found none to close.
        self.freed.notify_waiters();
        true
    }
}

/// The session that a conversation has.
fn named_session(work: &OpenWork) -> Option<SessionId> {
    let row = work.inbox.iter().find(|row| row.id.as_str() == ROW)?;
    row.input.read::<String>().ok().map(SessionId::from)
}

/// Puts the row of a conversation, in place of the one that it has.
fn row_ops(key: &SessionKey, replaces: bool, id: &SessionId) -> Vec<Op> {
    let session = conversation_inbox(&key.to_string());
    let take = Op::InboxTake { session: session.clone(), item: ROW.into() };
    let input = Json::of(id.as_str()).unwrap_or_default();
    let item = InboxItem { id: ROW.into(), queue: key.to_string(), input };
    replaces.then_some(take).into_iter().chain([Op::InboxPut { session, item }]).collect()
}

/// Puts a conversation on the list of all. A row that is there stays, so nothing is read for it.
fn listed(key: &SessionKey) -> Op {
    let name = key.to_string();
    let item = InboxItem { id: name.as_str().into(), queue: name, input: Json::object() };
    Op::InboxPut { session: conversation_inbox(ALL), item }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

mod audience;
mod claims;
mod imported;
mod renewal;
mod said;

use audience::{agent_of, group_of, sender_of};
pub use audience::{audience_of, place_of};
pub use imported::{
    BindMode, ConversationBinding, ImportedConversation, KnownConversation, bind_conversation, conversations,
};

#[cfg(test)]
mod tests;
