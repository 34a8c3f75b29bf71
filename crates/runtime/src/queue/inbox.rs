//! Queues in the store: what was accepted survives the process, and is run once.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quipu::store::{Durability, Graph, InboxItem, MESSAGE_INBOX, RefName, StoreError};
use quipu::{Sealer, seal_content, with_lease};
use quipu_protocol::{ItemId, Json, SessionId, UnixMs, UserInput};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::{
    Authority, QueueEffect, QueueInput, QueuePolicy, QueueRefusal, QueueRow, QueueTurn, QueuedMessage, Route,
    SessionQueue,
};
use crate::inbox_rows::{RowChange, change_rows, change_rows_that_are_there};
use crate::keys::SessionKey;

/// Bytes of a message at most, as it is stored: 16 MiB.
pub const MESSAGE_LIMIT: usize = 16 << 20;
/// Messages and turns of all conversations that wait at most.
pub const INBOX_LIMIT: usize = 65_536;
/// Conversations without work that are remembered, to know messages that come twice.
const IDLE_QUEUES: usize = 4_096;
/// When a queue is tried again whose changes could not be stored.
const STORE_RETRY: u64 = 1_000;
/// Who has the queues: one process.
const LEASE: &str = "runtime/messages";

/// A queue for each conversation.
type Queues = BTreeMap<SessionKey, Arc<tokio::sync::Mutex<SessionQueue>>>;

/// Why a message or a change was not taken. Nothing changed then.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum InboxError {
    /// The store failed.
    #[error("the queue of messages could not be stored: {0}")]
    Store(#[from] StoreError),
    /// Another process has the queues of this store.
    #[error("another process runs the queued messages of this store; end it first")]
    HeldElsewhere,
    /// A message is too large.
    #[error("the message has {bytes} bytes; at most {MESSAGE_LIMIT} are allowed")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// Too many messages wait.
    #[error("{INBOX_LIMIT} messages are waiting; try again later")]
    Full,
    /// The process is ending.
    #[error("the queues of messages are closed")]
    Closed,
}

/// A message to be queued.
#[derive(Debug, Clone, PartialEq)]
pub struct NewMessage {
    /// Its id on its channel.
    pub message_id: Option<String>,
    /// From where to where.
    pub route: Route,
    /// With which rights.
    pub authority: Authority,
    /// The name of the sender, for the model to read.
    pub from: Option<String>,
    /// What it says.
    pub input: UserInput,
    /// When it came.
    pub at: UnixMs,
}

/// The queues of all conversations of a store. Cheap to clone.
///
/// Each change is stored before anything is done about it, and what is to be done comes out of [`InboxEvents`]: so a process that
/// dies finds what it had accepted, and knows what did not become part of a session.
#[derive(Clone)]
pub struct MessageInbox(Arc<Inner>);

struct Inner {
    store: Arc<dyn Graph>,
    sealer: Arc<Sealer>,
    began: Instant,
    queues: Mutex<Queues>,
    /// When a queue wants to be asked again.
    due: Mutex<HashMap<SessionKey, u64>>,
    due_changed: Notify,
    rows: AtomicUsize,
    unreadable: Vec<ItemId>,
    events: mpsc::UnboundedSender<(SessionKey, QueueEffect)>,
}

/// What is to be done for the conversations of a [`MessageInbox`].
pub struct InboxEvents {
    inbox: MessageInbox,
    events: mpsc::UnboundedReceiver<(SessionKey, QueueEffect)>,
}

/// Who removes the row of a turn whose prompt is part of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RowTaker {
    Queue,
    Session,
}

impl MessageInbox {
    /// Works with the queues of a store, which no other process has meanwhile. What a process before left comes out of the events
    /// first: turns whose prompt is part of no session, and messages that wait.
    ///
    /// # Errors
    /// `HeldElsewhere`, `Store`, and what the work does.
    pub async fn with<T, E: From<InboxError> + From<StoreError>, F: Future<Output = Result<T, E>>>(
        store: Arc<dyn Graph>,
        sealer: Arc<Sealer>,
        work: impl FnOnce(Self, InboxEvents) -> F,
    ) -> Result<T, E> {
        let busy = || InboxError::HeldElsewhere.into();
        let opened = store.clone();
        let begun = async move {
            let (inbox, events) = Self::open(opened, sealer).await?;
            work(inbox, events).await
        };
        with_lease(&store, &RefName::from(LEASE), busy, begun).await
    }

    async fn open(store: Arc<dyn Graph>, sealer: Arc<Sealer>) -> Result<(Self, InboxEvents), InboxError> {
        let pending = store.pending(&holder()).await?;
        let rows = AtomicUsize::new(pending.inbox.len());
        let mut unreadable = Vec::new();
        let mut found: BTreeMap<SessionKey, Vec<QueueRow>> = BTreeMap::new();
        for item in pending.inbox {
            match (SessionKey::parse(&item.queue), item.input.read::<QueueRow>()) {
                (Ok(key), Ok(row)) if *row.id() == item.id => found.entry(key).or_default().push(row),
                // It stays where it is; a newer version may be able to read it.
                _ => unreadable.push(item.id),
            }
        }
        let due = found.keys().map(|key| (key.clone(), 0)).collect();
        let queue = |rows| Arc::new(tokio::sync::Mutex::new(SessionQueue::restore(rows, 0)));
        let queues = found.into_iter().map(|(key, rows)| (key, queue(rows))).collect();
        let (sender, receiver) = mpsc::unbounded_channel();
        let inbox = Self(Arc::new(Inner {
            store,
            sealer,
            began: Instant::now(),
            queues: Mutex::new(queues),
            due: Mutex::new(due),
            due_changed: Notify::new(),
            rows,
            unreadable,
            events: sender,
        }));
        Ok((inbox.clone(), InboxEvents { inbox, events: receiver }))
    }

    /// The session and the id under which the store has the row of a turn, for [`quipu::Session::prompt_stored`].
    pub fn row_of(turn: &QueueTurn) -> (SessionId, ItemId) {
        (holder(), turn.id.clone())
    }

    /// The row of a message that waits, and the inbox that holds it.
    pub(crate) fn row_of_message(message: &QueuedMessage) -> (SessionId, ItemId) {
        (holder(), message.id.clone())
    }

    /// Rows that could not be read, such as those of a newer version. They stay in the store.
    pub fn unreadable(&self) -> &[ItemId] {
        &self.0.unreadable
    }

    /// Queues a message; its id. What it says is sealed. Resolved = it survives the loss of power. `Err` within `Ok`: it was
    /// refused, and is not kept.
    ///
    /// # Errors
    /// `TooLarge`, `Full`, `Store`, `Closed`.
    pub async fn put(
        &self,
        key: &SessionKey,
        message: NewMessage,
        policy: QueuePolicy,
    ) -> Result<Result<ItemId, QueueRefusal>, InboxError> {
        let id = Self::fresh_id();
        Ok(self.put_as(id.clone(), key, message, policy).await?.map(|()| id))
    }

    /// A text without the secrets that are known.
    pub(crate) fn sealed(&self, text: &str) -> String {
        self.0.sealer.seal(text).into_owned()
    }

    /// An id for [`MessageInbox::put_as`].
    pub(crate) fn fresh_id() -> ItemId {
        uuid::Uuid::now_v7().to_string().into()
    }

    /// [`MessageInbox::put`] under an id that is used for nothing else.
    pub(crate) async fn put_as(
        &self,
        id: ItemId,
        key: &SessionKey,
        message: NewMessage,
        policy: QueuePolicy,
    ) -> Result<Result<(), QueueRefusal>, InboxError> {
        let NewMessage { message_id, route, authority, from, mut input, at } = message;
        seal_content(&mut input.content, &self.0.sealer);
        let from = from.map(|from| self.0.sealer.seal(&from).into_owned());
        let mode = policy.mode;
        let message = QueuedMessage { id: id.clone(), message_id, route, authority, from, input, at, mode };
        let bytes = serde_json::to_vec(&message).map_or(0, |json| json.len());
        if bytes > MESSAGE_LIMIT {
            return Err(InboxError::TooLarge { bytes });
        }
        if self.0.rows.load(Ordering::Relaxed) >= INBOX_LIMIT {
            return Err(InboxError::Full);
        }
        let effects = self.change(key, QueueInput::Arrived(message.into(), policy), RowTaker::Queue).await?;
        let refused = effects.into_iter().find_map(|effect| match effect {
            QueueEffect::Refused(refused, why) if refused == id => Some(why),
            _ => None,
        });
        Ok(refused.map_or(Ok(()), Err))
    }

    /// The messages of all conversations that wait, those of turns that are to begin included.
    pub(crate) async fn waiting(&self) -> Vec<(SessionKey, ItemId)> {
        let queues: Vec<_> =
            self.0.queues().iter().map(|(key, queue)| (key.clone(), queue.clone())).collect();
        let mut waiting = Vec::new();
        for (key, queue) in queues {
            for row in queue.lock().await.rows() {
                let ids = match row {
                    QueueRow::Message(message) => vec![message.id.clone()],
                    QueueRow::Turn(turn) => turn.members.clone(),
                    // Who sent one was told.
                    QueueRow::Overflow(_) => Vec::new(),
                };
                waiting.extend(ids.into_iter().map(|id| (key.clone(), id)));
            }
        }
        waiting
    }

    /// Which of these messages are not in the store any more.
    pub(crate) async fn gone(&self, ids: &[ItemId]) -> Result<Vec<ItemId>, InboxError> {
        let pending = self.0.store.pending(&holder()).await?;
        let is_there = |id: &ItemId| pending.inbox.iter().any(|item| item.id == *id);
        Ok(ids.iter().filter(|id| !is_there(id)).cloned().collect())
    }

    /// A message that was handed to a run is part of its session, which took its row.
    pub(crate) async fn steered(&self, key: &SessionKey, id: &ItemId) -> Result<(), InboxError> {
        self.change(key, QueueInput::SteerTaken(id.clone()), RowTaker::Session).await.map(drop)
    }

    /// Whether the store still has the row of a turn: else its prompt is part of a session.
    pub(crate) async fn is_stored(&self, turn: &QueueTurn) -> Result<bool, InboxError> {
        let pending = self.0.store.pending(&holder()).await?;
        Ok(pending.inbox.iter().any(|item| item.id == turn.id))
    }

    /// Whether a turn is part of no session, and will be tried again.
    pub(crate) async fn holds(&self, key: &SessionKey, turn: &QueueTurn) -> bool {
        let queue = self.0.queue(key);
        let queue = queue.lock().await;
        queue.rows().iter().any(|row| *row.id() == turn.id)
    }

    /// Takes what happened in a conversation.
    ///
    /// # Errors
    /// `Store`, `Closed`. It did not happen then.
    pub async fn tell(&self, key: &SessionKey, input: QueueInput) -> Result<(), InboxError> {
        self.change(key, input, RowTaker::Queue).await.map(drop)
    }

    /// A turn is over; what comes of that.
    pub(crate) async fn ended(
        &self,
        key: &SessionKey,
        turn: &ItemId,
    ) -> Result<Vec<QueueEffect>, InboxError> {
        self.change(key, QueueInput::Ended(turn.clone()), RowTaker::Queue).await
    }

    /// Stops what somebody may stop. The turn that is being aborted, where one is.
    pub(crate) async fn stop(
        &self,
        key: &SessionKey,
        authority: Authority,
    ) -> Result<Option<ItemId>, InboxError> {
        self.tell(key, QueueInput::Stop(authority)).await?;
        Ok(self.aborting(key).await)
    }

    /// The turn of a conversation that is being aborted.
    pub(crate) async fn aborting(&self, key: &SessionKey) -> Option<ItemId> {
        let queue = self.0.queue(key);
        queue.lock().await.aborting().cloned()
    }

    /// Whether a message that came interrupts this turn of an earlier process, which had these rights.
    pub(crate) async fn interrupts(&self, key: &SessionKey, turn: &ItemId, authority: &Authority) -> bool {
        let queue = self.0.queue(key);
        queue.lock().await.interrupts(turn, authority)
    }

    /// The prompt of a turn is part of a session, and its row left the store with that commit.
    ///
    /// # Errors
    /// `Closed`.
    pub async fn entered(&self, key: &SessionKey, turn: &ItemId) -> Result<(), InboxError> {
        self.change(key, QueueInput::Entered(turn.clone()), RowTaker::Session).await.map(drop)
    }

    /// How many messages and turns wait, of all conversations.
    pub fn len(&self) -> usize {
        self.0.rows.load(Ordering::Relaxed)
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// In a task of its own, so that a caller that goes does not leave the memory behind the store.
    async fn change(
        &self,
        key: &SessionKey,
        input: QueueInput,
        taker: RowTaker,
    ) -> Result<Vec<QueueEffect>, InboxError> {
        let (inbox, key) = (self.0.clone(), key.clone());
        let done = tokio::spawn(async move { inbox.apply(key, input, taker).await });
        done.await.map_err(|_| InboxError::Closed)?
    }
}

impl Inner {
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_due(&self, key: SessionKey, due: Option<u64>) {
        let mut all = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match due {
            Some(due) => all.insert(key, due),
            None => all.remove(&key),
        };
        if before != due {
            self.due_changed.notify_one();
        }
    }

    fn queue(&self, key: &SessionKey) -> Arc<tokio::sync::Mutex<SessionQueue>> {
        let mut queues = self.queues();
        if queues.len() > IDLE_QUEUES && !queues.contains_key(key) {
            queues.retain(|_, queue| {
                Arc::strong_count(queue) > 1 || !queue.try_lock().is_ok_and(|one| one.is_idle())
            });
        }
        queues.entry(key.clone()).or_default().clone()
    }

    async fn apply(
        &self,
        key: SessionKey,
        input: QueueInput,
        taker: RowTaker,
    ) -> Result<Vec<QueueEffect>, InboxError> {
        let queue = self.queue(&key);
        let mut queue = queue.lock().await;
        let accepts = matches!(input, QueueInput::Arrived(..));
        // They come to an end in every case.
        let ends = matches!(input, QueueInput::Ended(_) | QueueInput::Stop(_));
        let mut next = queue.clone();
        let effects = next.on(input, self.now());
        let (before, after) = (queue.rows(), next.rows());
        let mut changes = changes(&key, &before, &after);
        if taker == RowTaker::Session {
            changes.retain(|change| change.take.is_none());
        }
        let durability = if accepts { Durability::Power } else { Durability::Process };
        let stored = match ends {
            // A session took a row with a commit of its own, and was broken off before it said so.
            true => change_rows_that_are_there(&*self.store, &holder(), changes, durability).await,
            false => change_rows(&*self.store, &holder(), &changes, durability).await,
        };
        if let Err(error) = stored {
            self.set_due(key, queue.due().map(|_| self.now().saturating_add(STORE_RETRY)));
            return Err(error.into());
        }
        self.rows.fetch_add(after.len(), Ordering::Relaxed);
        self.rows.fetch_sub(before.len(), Ordering::Relaxed);
        *queue = next;
        self.set_due(key.clone(), queue.due());
        for effect in &effects {
            // Nobody is there any more who runs something: the store has it.
            drop(self.events.send((key.clone(), effect.clone())));
        }
        Ok(effects)
    }
}

impl InboxEvents {
    /// The next thing that is to be done. Waits for it, and wakes up for nothing else. Dropping the future loses nothing.
    ///
    /// # Errors
    /// `Store` where a queue could not be changed; it is tried again by later calls.
    pub async fn next(&mut self) -> Result<(SessionKey, QueueEffect), InboxError> {
        loop {
            let due = {
                let all = self.inbox.0.due.lock().unwrap_or_else(PoisonError::into_inner);
                all.iter().min_by_key(|(_, due)| **due).map(|(key, due)| (key.clone(), *due))
            };
            let asked = async {
                let Some((key, due)) = &due else { return std::future::pending().await };
                match self.inbox.0.began.checked_add(Duration::from_millis(*due)) {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
                key
            };
            tokio::select! {
                biased;
                event = self.events.recv() => return event.ok_or(InboxError::Closed),
                () = self.inbox.0.due_changed.notified() => {}
                key = asked => self.inbox.tell(key, QueueInput::Tick).await?,
            }
        }
    }
}

fn holder() -> SessionId {
    MESSAGE_INBOX.into()
}

/// What a commit has to do so that these rows become those. A row of one id never changes.
fn changes(key: &SessionKey, before: &[QueueRow], after: &[QueueRow]) -> Vec<RowChange> {
    let is_in = |rows: &[QueueRow], row: &QueueRow| rows.iter().any(|one| one.id() == row.id());
    let gone = before.iter().filter(|row| !is_in(after, row));
    let gone = gone.map(|row| RowChange::take(row.id().clone()));
    let come = after.iter().filter(|row| !is_in(before, row)).map(|row| {
        // Plain data always has a JSON form.
        let input = Json::of(row).unwrap_or_default();
        RowChange::put(InboxItem { id: row.id().clone(), queue: key.to_string(), input })
    });
    gone.chain(come).collect()
}

#[cfg(test)]
mod tests;
