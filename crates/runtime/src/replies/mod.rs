//! Replies: what runs answer, on its way to chats. Each is stored before it is offered, and leaves the store when the chat has
//! acknowledged it.

mod files;
mod flow;
mod locks;
mod post;
mod recording;
mod rows;
mod said;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use quipu::Session;
use quipu::protocol::{ItemId, Json};
use quipu::store::{Graph, REPLY_OUTBOX, StoreError};
use quipu_outbound::{MessageSink, Offer, Outbox, PartState, ReplyKey, SinkError, StreamOptions};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::inbox_rows::RowChange;
use crate::keys::SessionKey;
use crate::queue::{QueueTurn, Route};
pub use files::offered_block;
pub(crate) use files::{files_of, sendable_file};
pub(crate) use flow::ReplyFlow;
use locks::{StripedGuard, StripedLocks};
pub use post::{MESSAGE_TOOL, PostError, SESSIONS_CHANNEL};
pub(crate) use post::{PostedMessage, ToolPost};
pub(crate) use rows::{OWED, OwedReply};
use rows::{OutboxRows, ReplyRow, StoredReply};
pub(crate) use said::SaidMessage;

/// Replies of one route that wait at most: with more, no turn of that route begins.
pub const REPLY_LIMIT: usize = 1_024;
/// Refused messages that are remembered until somebody takes them.
const REFUSED: usize = 256;
/// How long a chat may take to acknowledge a message before it counts as lost.
const OFFER: Duration = Duration::from_secs(60);
/// When it is tried again to store that something was acknowledged.
const STORE_RETRY: Duration = Duration::from_secs(1);

/// Where replies of a route go, and how.
#[derive(Clone)]
pub struct ReplyRoute {
    /// The chat.
    pub sink: Arc<dyn MessageSink + Send + Sync>,
    /// Lengths, and which messages are replies. `drain` follows from the timing, and `pacing` does not count. Which files an answer may send
    /// follows from its session.
    pub options: StreamOptions,
    /// When an answer is sent.
    pub timing: ReplyTiming,
    /// How long it may take to acknowledge a message before that counts as lost and is offered again.
    pub patience: AckPatience,
}

impl ReplyRoute {
    /// A chat that acknowledges a message within a minute, and is sent whole answers.
    pub fn new(sink: Arc<dyn MessageSink + Send + Sync>, options: StreamOptions) -> Self {
        let (timing, patience) = (ReplyTiming::Whole, AckPatience::Within(OFFER));
        Self { sink, options, timing, patience }
    }
}

/// When an answer is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReplyTiming {
    /// When it is part of its session.
    #[default]
    Whole,
    /// In blocks, while it arrives. What left is not taken back when the answer breaks off: the next attempt continues it where it says
    /// the same, and is sent whole otherwise, under the same key.
    Streamed,
}

/// How long an acknowledgement is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckPatience {
    /// So long.
    Within(Duration),
    /// Until it comes: for a sink that keeps what is offered and shows it to whoever asks.
    Unlimited,
}

/// What a tool is about to send to a chat.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SentMessage {
    /// The text.
    pub text: String,
    /// Addresses or paths of media.
    pub media: Vec<String>,
    /// The chat, as [`StreamOptions::target`] names it.
    pub target: Option<String>,
}

/// The chats that a process can reach.
pub trait ReplyRoutes: Send + Sync + 'static {
    /// Where replies of a conversation on a route go; `None` where nobody wants them. Asked again after [`Replies::wake`].
    fn route(&self, conversation: &SessionKey, route: &Route) -> Option<ReplyRoute>;

    /// What a call of a tool sends to a chat: an answer that repeats it is not sent.
    fn sent(&self, tool: &str, arguments: &Json) -> Option<SentMessage> {
        let _ = (tool, arguments);
        None
    }

    /// Another chat that a run for `from` may send messages to, by the name that the model gives it. None by default.
    fn named(&self, from: &Route, name: &str) -> Option<Route> {
        let _ = (from, name);
        None
    }
}

/// What became of something that is to be said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostOutcome {
    /// It is stored, and on its way.
    Stored,
    /// Nobody wants replies on this route, or it says nothing.
    Unwanted,
    /// [`REPLY_LIMIT`] replies wait on this route.
    Full,
}

/// A message that a chat will never take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedReply {
    /// Where it was to go.
    pub route: Route,
    /// The reply.
    pub key: ReplyKey,
    /// The part of it.
    pub part: u32,
    /// What the chat says.
    pub reason: String,
}

/// Replies on their way. Cheap to clone.
#[derive(Clone)]
pub struct Replies(Arc<Inner>);

struct Inner {
    store: Arc<dyn Graph>,
    routes: Arc<dyn ReplyRoutes>,
    began: Instant,
    number: AtomicU64,
    owed: Mutex<HashMap<SessionKey, OwedReply>>,
    /// Held while what is owed to a conversation is read, changed and stored.
    changing: StripedLocks,
    /// Held while a row of a reply of a route is made and stored. Taken behind `changing`.
    storing: StripedLocks,
    outboxes: Mutex<HashMap<Route, RouteOutbox>>,
    /// Routes at which there may be something to do.
    changed: Mutex<HashSet<Route>>,
    wake: Notify,
    /// Something is delivered, or owed no more.
    settled: Notify,
    refused: Mutex<VecDeque<RefusedReply>>,
}

/// Parts of replies that were acknowledged or refused.
type EndedParts = Vec<(ReplyKey, Vec<u32>)>;

#[derive(Default)]
struct RouteOutbox {
    outbox: Outbox,
    /// The queue and the number of each reply.
    rows: HashMap<ReplyKey, (String, u64)>,
}

impl Replies {
    /// Replies of a store, with those that a process before this one did not deliver. One process at a time: the one that has the
    /// queues of messages.
    ///
    /// # Errors
    /// What the store says.
    pub async fn open(store: Arc<dyn Graph>, routes: Arc<dyn ReplyRoutes>) -> Result<Self, StoreError> {
        let rows = store.pending(&REPLY_OUTBOX.into()).await?.inbox;
        let OutboxRows { owed, replies: stored } = OutboxRows::of(rows);
        let number = stored.iter().map(|(_, reply)| reply.number).max().unwrap_or(0);
        let mut found: HashMap<Route, (Vec<_>, HashMap<_, _>)> = HashMap::new();
        for (queue, StoredReply { number, route, delivery }) in stored {
            let (deliveries, rows) = found.entry(route).or_default();
            rows.insert(delivery.key.clone(), (queue, number));
            deliveries.push(delivery);
        }
        let outboxes = found.into_iter().map(|(route, (deliveries, rows))| {
            (route, RouteOutbox { outbox: Outbox::restore(deliveries), rows })
        });
        let replies = Self(Arc::new(Inner {
            store,
            routes,
            began: Instant::now(),
            number: AtomicU64::new(number),
            owed: Mutex::new(owed.into_iter().collect()),
            changing: StripedLocks::default(),
            storing: StripedLocks::default(),
            outboxes: Mutex::new(outboxes.collect()),
            changed: Mutex::default(),
            wake: Notify::new(),
            settled: Notify::new(),
            refused: Mutex::default(),
        }));
        replies.end_abandoned().await?;
        Ok(replies)
    }

    /// A chat of this route can be reached now.
    pub fn wake(&self, route: &Route) {
        lock(&self.0.changed).insert(route.clone());
        self.0.wake.notify_one();
    }

    /// How many replies are not delivered.
    pub fn len(&self) -> usize {
        lock(&self.0.outboxes).values().map(|outbox| outbox.outbox.replies().len()).sum()
    }

    /// Whether each reply is delivered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits until no run owes an answer and each reply is delivered.
    pub async fn idle(&self) {
        loop {
            let settled = self.0.settled.notified();
            if lock(&self.0.owed).is_empty() && lock(&self.0.outboxes).is_empty() {
                return;
            }
            settled.await;
        }
    }

    /// The newest messages that chats refused, since the last call.
    pub fn take_refused(&self) -> Vec<RefusedReply> {
        std::mem::take(&mut *lock(&self.0.refused)).into()
    }

    /// Runs whose answers are owed.
    pub(crate) fn all_owed(&self) -> Vec<(SessionKey, OwedReply)> {
        lock(&self.0.owed).iter().map(|(key, owed)| (key.clone(), owed.clone())).collect()
    }

    /// What is owed to a conversation.
    pub(crate) fn owed(&self, key: &SessionKey) -> Option<OwedReply> {
        lock(&self.0.owed).get(key).cloned()
    }

    /// A turn is about to become part of a session: what it will say is owed from here on. `None` where nobody wants it.
    pub(crate) async fn begin(
        &self,
        key: &SessionKey,
        turn: &QueueTurn,
        session: &Session,
    ) -> Result<Option<ReplyFlow>, ReplyError> {
        let _changing = self.changing(key).await;
        let (route, view) = (&turn.group.route, session.view());
        let owed = match self.owed(key) {
            // An attempt before did not get further.
            Some(owed) if owed.turn == turn.id && owed.session == view.session => owed,
            _ => OwedReply {
                base: view.head,
                authority: turn.group.authority.clone(),
                message: turn.message_ids.last().cloned(),
                members: turn.members.clone(),
                ..OwedReply::new(turn.id.clone(), view.session.clone(), route.clone())
            },
        };
        let Some(mut flow) = ReplyFlow::of(self, key, &owed, files_of(session)) else { return Ok(None) };
        flow.continue_at(owed.next.unwrap_or_default());
        if lock(&self.0.outboxes).get(route).is_some_and(|one| one.outbox.replies().len() >= REPLY_LIMIT) {
            return Err(ReplyError::Full);
        }
        self.put_owed(key, owed, Vec::new()).await?;
        Ok(Some(flow))
    }

    /// Stores that another process continues a turn; whether it is still owed.
    pub(crate) async fn continues(&self, key: &SessionKey, turn: &ItemId) -> Result<bool, StoreError> {
        let _changing = self.changing(key).await;
        let Some(owed) = self.owed(key).filter(|owed| owed.turn == *turn) else { return Ok(false) };
        let owed = OwedReply { continued: owed.continued.saturating_add(1), ..owed };
        self.put_owed(key, owed, Vec::new()).await?;
        Ok(true)
    }

    /// Stores that a message is about to be handed to the run.
    pub(crate) async fn hands(&self, key: &SessionKey, message: &ItemId) -> Result<(), StoreError> {
        let change = |owed: &mut OwedReply| owed.handed.push(message.clone());
        self.change_owed(key, change).await
    }

    /// Stores that the run took a message that was handed to it, or did not.
    pub(crate) async fn handed(
        &self,
        key: &SessionKey,
        message: &ItemId,
        is_taken: bool,
    ) -> Result<(), StoreError> {
        let change = |owed: &mut OwedReply| match is_taken {
            true => owed.members.push(message.clone()),
            false => owed.handed.retain(|id| id != message),
        };
        self.change_owed(key, change).await
    }

    async fn change_owed(
        &self,
        key: &SessionKey,
        change: impl FnOnce(&mut OwedReply),
    ) -> Result<(), StoreError> {
        let _changing = self.changing(key).await;
        let Some(mut owed) = self.owed(key) else { return Ok(()) };
        change(&mut owed);
        self.put_owed(key, owed, Vec::new()).await
    }

    /// Nothing else changes what is owed to a conversation meanwhile.
    async fn changing(&self, key: &SessionKey) -> StripedGuard<'_> {
        self.0.changing.lock(key).await
    }

    /// Stores what is owed, with changes of replies.
    async fn put_owed(
        &self,
        key: &SessionKey,
        owed: OwedReply,
        mut changes: Vec<RowChange>,
    ) -> Result<(), StoreError> {
        let before = self.owed(key).map(|before| ReplyRow::Owed(Box::new(before)).take());
        let put = ReplyRow::Owed(Box::new(owed.clone())).put(&key.to_string());
        changes.push(RowChange { is_needed: true, take: before.and_then(|before| before.take), ..put });
        self.change(changes).await?;
        lock(&self.0.owed).insert(key.clone(), owed);
        Ok(())
    }

    /// Has replies delivered that are stored.
    fn add(&self, key: &SessionKey, route: &Route, replies: Vec<StoredReply>) {
        if replies.is_empty() {
            return;
        }
        {
            let mut outboxes = lock(&self.0.outboxes);
            let there = outboxes.entry(route.clone()).or_default();
            for StoredReply { number, delivery, .. } in replies {
                there.rows.insert(delivery.key.clone(), (key.to_string(), number));
                there.outbox.add(delivery);
            }
        }
        self.wake(route);
    }

    /// Delivers. It never ends.
    pub(crate) async fn deliver(&self) {
        let mut under_way = FuturesUnordered::new();
        // Until it is stored what came of an offer, nothing more is offered on its route.
        let mut busy: HashSet<Route> = HashSet::new();
        for (route, ended) in self.restored() {
            busy.insert(route.clone());
            under_way.push(self.store_ended(route, ended));
        }
        let mut pauses: HashMap<Route, i64> = HashMap::new();
        loop {
            let now = self.now();
            let mut routes = std::mem::take(&mut *lock(&self.0.changed));
            routes.extend(pauses.iter().filter(|(_, due)| **due <= now).map(|(route, _)| route.clone()));
            for route in routes {
                pauses.remove(&route);
                if busy.contains(&route) {
                    continue;
                }
                let Some(ReplyRoute { sink, options, patience, .. }) = self.next_route(&route) else {
                    continue;
                };
                let mut outboxes = lock(&self.0.outboxes);
                let Some(one) = outboxes.get_mut(&route) else { continue };
                if let Some(offer) = one.outbox.next(now) {
                    drop(outboxes);
                    let offer = Offer { block: offered_block(offer.block, options.chunks.max), ..offer };
                    busy.insert(route.clone());
                    under_way.push(self.offer(route, sink, patience, offer));
                } else if let Some(due) = one.outbox.deadline(now) {
                    pauses.insert(route, due);
                }
            }
            let due = pauses.values().min().and_then(|due| u64::try_from(*due).ok());
            tokio::select! {
                () = self.0.wake.notified() => {}
                Some(route) = under_way.next(), if !under_way.is_empty() => {
                    busy.remove(&route);
                    lock(&self.0.changed).insert(route);
                }
                () = self.sleep(due) => {}
            }
        }
    }

    /// What is offered again, and by route the parts that were acknowledged or refused: whether that was stored is not known, as deliveries
    /// can be dropped at any moment.
    fn restored(&self) -> Vec<(Route, EndedParts)> {
        let mut outboxes = lock(&self.0.outboxes);
        for one in outboxes.values_mut() {
            one.outbox = Outbox::restore(one.outbox.replies().to_vec());
        }
        lock(&self.0.changed).extend(outboxes.keys().cloned());
        let ended = |one: &RouteOutbox| {
            let replies = one.outbox.replies().iter().map(|reply| {
                let ended = (reply.settled..).zip(&reply.parts);
                let ended = ended.filter(|(_, part)| !matches!(part.state, PartState::Waiting { .. }));
                (reply.key.clone(), ended.map(|(part, _)| part).collect::<Vec<u32>>())
            });
            replies.filter(|(_, parts)| !parts.is_empty()).collect::<EndedParts>()
        };
        let of_routes = outboxes.iter().map(|(route, one)| (route.clone(), ended(one)));
        of_routes.filter(|(_, ended)| !ended.is_empty()).collect()
    }

    /// Stores what came of offers that were made before.
    fn store_ended(&self, route: Route, ended: EndedParts) -> BoxFuture<'_, Route> {
        Box::pin(async move {
            let sink = ended.first().and_then(|(key, _)| self.route_of(&route, key)).map(|there| there.sink);
            for (key, parts) in ended {
                self.stored_at_last(&route, &key).await;
                for part in parts {
                    if let Some(sink) = &sink {
                        sink.stored(&key, part);
                    }
                }
            }
            route
        })
    }

    /// Until it is stored what came of an offer; after a crash the message comes once more.
    async fn stored_at_last(&self, route: &Route, key: &ReplyKey) {
        while self.store_delivered(route, key).await.is_err() {
            tokio::time::sleep(STORE_RETRY).await;
        }
    }

    /// Where the next reply of a route goes.
    fn next_route(&self, route: &Route) -> Option<ReplyRoute> {
        let next = {
            let outboxes = lock(&self.0.outboxes);
            let replies = outboxes.get(route)?.outbox.replies();
            replies.iter().find(|reply| reply.is_waiting())?.key.clone()
        };
        self.route_of(route, &next)
    }

    /// Where a reply goes.
    fn route_of(&self, route: &Route, key: &ReplyKey) -> Option<ReplyRoute> {
        let conversation = SessionKey::parse(&self.queue_of(route, key)).ok()?;
        self.0.routes.route(&conversation, route)
    }

    /// Until so many milliseconds after the beginning.
    async fn sleep(&self, due: Option<u64>) {
        match due.and_then(|due| self.0.began.checked_add(Duration::from_millis(due))) {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    /// Offers a message and stores what came of it.
    fn offer(
        &self,
        route: Route,
        sink: Arc<dyn MessageSink + Send + Sync>,
        patience: AckPatience,
        offer: Offer,
    ) -> BoxFuture<'_, Route> {
        Box::pin(async move {
            let (key, part) = (offer.key.clone(), offer.part);
            let offered = sink.offer(offer);
            let result = match patience {
                AckPatience::Unlimited => Ok(offered.await),
                AckPatience::Within(time) => tokio::time::timeout(time, offered).await,
            };
            let result = match result {
                Ok(result) => result,
                Err(_) => {
                    let reason = "it did not acknowledge the message in time".to_owned();
                    Err(SinkError::Unavailable { reason, retry_after: None })
                }
            };
            if self.came_of(&route, &key, part, result) {
                self.stored_at_last(&route, &key).await;
                sink.stored(&key, part);
            }
            route
        })
    }

    /// Takes down what came of an offer, and says whether the store has to know of it.
    fn came_of(
        &self,
        route: &Route,
        key: &ReplyKey,
        part: u32,
        result: Result<quipu_outbound::Acknowledgement, SinkError>,
    ) -> bool {
        let now = self.now();
        let mut outboxes = lock(&self.0.outboxes);
        let Some(one) = outboxes.get_mut(route) else { return false };
        // The part is there: it was offered.
        drop(match result {
            Ok(acknowledgement) => one.outbox.acknowledge(key, part, acknowledgement),
            Err(error) => one.outbox.fail(key, part, &error, now),
        });
        let Some(delivery) = one.outbox.reply(key) else { return false };
        let state = part
            .checked_sub(delivery.settled)
            .and_then(|part| delivery.parts.get(usize::try_from(part).ok()?));
        let state = state.map(|part| &part.state);
        match state {
            Some(PartState::Waiting { .. }) | None => return false,
            Some(PartState::Acknowledged { .. }) => {}
            Some(PartState::Refused { reason }) => {
                let mut refused = lock(&self.0.refused);
                if refused.len() == REFUSED {
                    refused.pop_front();
                }
                let (route, key, reason) = (route.clone(), key.clone(), reason.clone());
                refused.push_back(RefusedReply { route, key, part, reason });
            }
        }
        true
    }

    fn now(&self) -> i64 {
        i64::try_from(self.0.began.elapsed().as_millis()).unwrap_or(i64::MAX)
    }
}

/// Why a turn does not begin.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(crate) enum ReplyError {
    #[error("what a run answers could not be stored: {0}")]
    Store(#[from] StoreError),
    #[error("{REPLY_LIMIT} replies wait for this chat; it is answered again when they are delivered")]
    Full,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod media_tests;
#[cfg(test)]
mod streamed_tests;
#[cfg(test)]
mod tests;
