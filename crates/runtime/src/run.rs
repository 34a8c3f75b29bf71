//! Runs: a message goes into the queue of its conversation, and comes out as what its session says and an outcome.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use quipu::protocol::{Ack, Ending, Envelope, Event, ItemId, Message, Outcome, RunId, SessionId, Usage};
use quipu::{Delivery, Events, Session};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::keys::{KeyPlace, SessionKey};
use crate::lanes::{
    CRON_LANE, LanePriority, LaneStatus, LaneTask, Lanes, MAIN_LANE, SUBAGENT_LANE, TaskHandle, nested_lane,
};
use crate::queue::{
    DropReason, InboxError, InboxEvents, MessageInbox, NewMessage, QueueEffect, QueueInput, QueuePolicy,
    QueueRefusal, QueueTurn,
};

/// Events of a run that wait for who reads them, before the run waits.
const EVENTS: usize = 256;
/// How long an aborted run may take to end.
const ABORT: Duration = Duration::from_secs(20);
/// When it is tried again to store the end of a turn.
const STORE_RETRY: Duration = Duration::from_secs(1);

/// Which session a conversation has.
pub trait SessionSource: Send + Sync + 'static {
    /// The open session of a conversation: the same one each time, until somebody resets it.
    fn session<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, Result<Session, quipu_host::Failure>>;
}

/// Whether the agent of a conversation is busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentLoad {
    /// It has nothing to do.
    Idle,
    /// Something runs or waits.
    Busy,
}

/// A message that is to be run.
#[derive(Debug, Clone)]
pub struct RunRequest {
    /// Its conversation.
    pub key: SessionKey,
    /// The message.
    pub message: NewMessage,
    /// What becomes of it while the conversation is busy.
    pub policy: QueuePolicy,
}

/// What happens to a message. The last is `Dropped` or `Ended`.
#[derive(Debug, Clone)]
pub enum RunEvent {
    /// It is part of a session, together with other messages that waited.
    Started {
        /// The session.
        session: SessionId,
        /// The run.
        run: RunId,
        /// All messages that the run answers.
        messages: Vec<ItemId>,
    },
    /// What the session says.
    Session(Arc<Envelope>),
    /// It could not begin, and is tried again: why.
    Failing(String),
    /// It was dropped before it began.
    Dropped(DropReason),
    /// It ended.
    Ended(Arc<RunOutcome>),
}

/// The end of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunOutcome {
    /// The session.
    pub session: SessionId,
    /// How it ended.
    pub outcome: Outcome,
    /// The text of the last answer; of an aborted one what there was.
    pub text: String,
    /// Tokens and cost of all answers of the run.
    pub usage: Usage,
    /// Those of the last answer alone, by which the context is measured.
    pub last_usage: Option<Usage>,
    /// How long it took.
    pub duration: Duration,
    /// It was stopped because it made no progress.
    pub timed_out: bool,
}

/// Why a message was not run.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RunError {
    /// It was not queued.
    #[error(transparent)]
    Inbox(#[from] InboxError),
    /// The same message was queued before.
    #[error("the message was delivered before")]
    Duplicate,
    /// As many messages wait in the conversation as may.
    #[error("too many messages wait in this conversation; try again later")]
    Full,
    /// It was dropped while it waited.
    #[error("the message was dropped while it waited: {}", .0.text())]
    Dropped(DropReason),
    /// It has no outcome, as the process is ending or the run broke off. What is part of no session waits in the store.
    #[error("the run ended without an outcome; if it had not begun, the message waits in the store")]
    Closed,
}

/// A message on its way. Dropping it stops nothing.
#[derive(Debug)]
pub struct Run {
    /// The message.
    pub id: ItemId,
    events: mpsc::Receiver<RunEvent>,
}

impl Run {
    /// The next event; `None` after the last. Who does not read holds up the run.
    pub async fn next(&mut self) -> Option<RunEvent> {
        self.events.recv().await
    }

    /// Reads to the end.
    ///
    /// # Errors
    /// `Dropped`, `Closed`.
    pub async fn outcome(mut self) -> Result<Arc<RunOutcome>, RunError> {
        while let Some(event) = self.next().await {
            match event {
                RunEvent::Ended(outcome) => return Ok(outcome),
                RunEvent::Dropped(why) => return Err(RunError::Dropped(why)),
                RunEvent::Started { .. } | RunEvent::Session(_) | RunEvent::Failing(_) => {}
            }
        }
        Err(RunError::Closed)
    }
}

/// Runs the messages of an inbox, in lanes. Cheap to clone.
#[derive(Clone)]
pub struct Conversations(Arc<Inner>);

struct Inner {
    inbox: MessageInbox,
    lanes: Lanes,
    sessions: Arc<dyn SessionSource>,
    /// How long a run may make no progress.
    timeout: Option<Duration>,
    readers: Mutex<HashMap<ItemId, mpsc::Sender<RunEvent>>>,
    active: Mutex<HashMap<SessionKey, CancellationToken>>,
}

impl Conversations {
    /// Conversations over an inbox. Nothing runs before [`Conversations::serve`] is polled.
    pub fn new(
        inbox: MessageInbox,
        lanes: Lanes,
        sessions: Arc<dyn SessionSource>,
        timeout: Option<Duration>,
    ) -> Self {
        let (readers, active) = (Mutex::default(), Mutex::default());
        Self(Arc::new(Inner { inbox, lanes, sessions, timeout, readers, active }))
    }

    /// Queues a message. Resolved = it survives the loss of power.
    ///
    /// # Errors
    /// `Inbox`, `Duplicate`, `Full`.
    pub async fn start(&self, request: RunRequest) -> Result<Run, RunError> {
        let RunRequest { key, message, policy } = request;
        let (sender, events) = mpsc::channel(EVENTS);
        let id = MessageInbox::fresh_id();
        // Before it is there, or it could end unseen.
        self.0.readers().insert(id.clone(), sender);
        let put = self.0.inbox.put_as(id.clone(), &key, message, policy).await;
        let error = match put {
            Ok(Ok(())) => return Ok(Run { id, events }),
            Ok(Err(QueueRefusal::Duplicate)) => RunError::Duplicate,
            Ok(Err(QueueRefusal::Full)) => RunError::Full,
            Err(error) => error.into(),
        };
        self.0.readers().remove(&id);
        Err(error)
    }

    /// Queues a message and waits for the end of its run.
    ///
    /// # Errors
    /// Each [`RunError`].
    pub async fn run(&self, request: RunRequest) -> Result<Arc<RunOutcome>, RunError> {
        self.start(request).await?.outcome().await
    }

    /// Does what the inbox wants done, until it is closed: to be polled as long as the process takes messages. What it has begun
    /// goes on when it is dropped.
    ///
    /// # Errors
    /// What the store says; calling it again goes on.
    pub async fn serve(&self, events: &mut InboxEvents) -> Result<(), InboxError> {
        loop {
            let (key, effect) = match events.next().await {
                Ok(next) => next,
                Err(InboxError::Closed) => return Ok(()),
                Err(error) => return Err(error),
            };
            match effect {
                QueueEffect::Start(turn) => self.begin(key, turn),
                QueueEffect::Abort => {
                    if let Some(stop) = lock(&self.0.active).get(&key) {
                        stop.cancel();
                    }
                }
                QueueEffect::Dropped(id, why) => {
                    let reader = self.0.readers().remove(&id);
                    if let Some(reader) = reader {
                        // One that reads nothing sees the end of its events.
                        drop(reader.try_send(RunEvent::Dropped(why)));
                    }
                }
                // Who reads was told why. Runs are not said to take messages, so none is handed to them.
                QueueEffect::Failing { .. } | QueueEffect::Steer(_) | QueueEffect::Refused(..) => {}
            }
        }
    }

    /// Whether the agent of a conversation is busy: it runs itself, or anything runs or waits in the lane of conversations.
    #[must_use]
    pub fn load(&self, key: &SessionKey) -> AgentLoad {
        let is_active = lock(&self.0.active).contains_key(key);
        let is_used = |lane: &LaneStatus| lane.lane == MAIN_LANE && lane.running + lane.waiting > 0;
        let is_busy = is_active || self.0.lanes.status().iter().any(is_used);
        if is_busy { AgentLoad::Busy } else { AgentLoad::Idle }
    }

    fn begin(&self, key: SessionKey, turn: Arc<QueueTurn>) {
        let stop = CancellationToken::new();
        lock(&self.0.active).insert(key.clone(), stop.clone());
        let task = LaneTask { timeout: self.0.timeout, ..lane_of(&key) };
        let lanes = self.0.lanes.clone();
        let (inner, of, run) = (self.0.clone(), key.clone(), turn.clone());
        let (give, result) = oneshot::channel();
        let ticket = lanes.enqueue_in_session(&key, task, move |handle| async move {
            drop(give.send(inner.attempt(&of, &run, &handle, &stop).await));
        });
        let inner = self.0.clone();
        tokio::spawn(async move {
            let result = match result.await {
                Ok(result) => result,
                Err(_) => Err(ticket.wait().await.err().map_or_else(String::new, |why| why.to_string())),
            };
            inner.finish(&key, &turn, result).await;
        });
    }
}

impl Inner {
    fn readers(&self) -> MutexGuard<'_, HashMap<ItemId, mpsc::Sender<RunEvent>>> {
        lock(&self.readers)
    }

    /// Runs a turn in its session; or why it did not begin.
    async fn attempt(
        &self,
        key: &SessionKey,
        turn: &Arc<QueueTurn>,
        handle: &TaskHandle,
        stop: &CancellationToken,
    ) -> Result<RunOutcome, String> {
        let began = Instant::now();
        if stop.is_cancelled() {
            return Err("it was stopped before it began".into());
        }
        let session = self.sessions.session(key).await.map_err(|failure| failure.message)?;
        // To open one can take its time.
        handle.progress();
        let (_, events) = session.subscribe(Delivery::Lossless).await.map_err(|why| why.to_string())?;
        let (inbox, row) = MessageInbox::row_of(turn);
        let ack = match session.prompt_stored(&inbox, &row, turn.input.clone()).await {
            Ok(ack) => ack,
            Err(why) => {
                // An attempt before may have been broken off behind the commit.
                if matches!(self.inbox.is_stored(turn).await, Ok(false)) {
                    drop(self.inbox.entered(key, &turn.id).await);
                }
                return Err(why.to_string());
            }
        };
        let stored = match &ack {
            Ack::Started(_) => self.inbox.entered(key, &turn.id).await,
            // A hook did what was wanted, and nobody takes the row.
            Ack::Handled => self.inbox.tell(key, QueueInput::Entered(turn.id.clone())).await,
            // Something that the session said to itself is answered first; it is taken behind that.
            _ => Ok(()),
        };
        stored.map_err(|why| why.to_string())?;
        let mut outcome = RunOutcome {
            session: session.view().session,
            outcome: Outcome::Done,
            text: String::new(),
            usage: Usage::default(),
            last_usage: None,
            duration: Duration::ZERO,
            timed_out: false,
        };
        if let Ack::Started(run) = &ack {
            let session = outcome.session.clone();
            self.say(turn, &RunEvent::Started { session, run: run.clone(), messages: turn.members.clone() })
                .await;
        }
        if ack != Ack::Handled {
            self.follow(turn, events, &session, handle, stop, &mut outcome).await;
        }
        if let Ack::Queued(_) = ack {
            self.inbox.entered(key, &turn.id).await.map_err(|why| why.to_string())?;
        }
        outcome.duration = began.elapsed();
        Ok(outcome)
    }

    /// Passes on what the session says until its run ended.
    async fn follow(
        &self,
        turn: &QueueTurn,
        mut events: Events,
        session: &Session,
        handle: &TaskHandle,
        stop: &CancellationToken,
        outcome: &mut RunOutcome,
    ) {
        let (mut ended, mut aborted) = (None, None);
        loop {
            let next = tokio::select! {
                biased;
                () = stop.cancelled(), if aborted.is_none() => None,
                () = handle.stopped().cancelled(), if aborted.is_none() => {
                    outcome.timed_out = true;
                    None
                }
                () = until(aborted) => break,
                envelope = events.next() => match envelope {
                    Some(envelope) => Some(envelope),
                    None => break,
                },
            };
            let Some(envelope) = next else {
                aborted = Some(tokio::time::Instant::now() + ABORT);
                // A session that is closed has ended the run already.
                drop(session.abort().await);
                continue;
            };
            match &envelope.event {
                Event::MessageEnded { message, ending: Ending::Committed(_), .. } => {
                    if let Message::Assistant(answer) = &**message {
                        let text = answer.text();
                        outcome.text = if text.is_empty() { std::mem::take(&mut outcome.text) } else { text };
                        add(&mut outcome.usage, &answer.usage);
                        outcome.last_usage = Some(answer.usage);
                    }
                }
                Event::RunEnded { outcome } => ended = Some(outcome.clone()),
                _ => {}
            }
            let is_last = ended.is_some() && matches!(envelope.event, Event::Settled);
            // After a timeout nobody holds it up any more.
            if !outcome.timed_out {
                let event = RunEvent::Session(envelope);
                tokio::select! {
                    () = self.say(turn, &event) => handle.progress(),
                    () = handle.stopped().cancelled() => {}
                }
            }
            if is_last {
                break;
            }
        }
        outcome.outcome = ended.unwrap_or(Outcome::Aborted);
    }

    /// Says something to those whose messages a turn has.
    async fn say(&self, turn: &QueueTurn, event: &RunEvent) {
        for reader in self.readers_of(turn) {
            // One that is gone reads nothing.
            drop(reader.send(event.clone()).await);
        }
    }

    fn readers_of(&self, turn: &QueueTurn) -> Vec<mpsc::Sender<RunEvent>> {
        let readers = self.readers();
        turn.members.iter().filter_map(|id| readers.get(id).cloned()).collect()
    }

    async fn finish(&self, key: &SessionKey, turn: &Arc<QueueTurn>, result: Result<RunOutcome, String>) {
        lock(&self.active).remove(key);
        match result {
            Ok(outcome) => {
                let readers: Vec<_> = {
                    let mut readers = self.readers();
                    turn.members.iter().filter_map(|id| readers.remove(id)).collect()
                };
                let ended = RunEvent::Ended(Arc::new(outcome));
                for reader in readers {
                    let ended = ended.clone();
                    // One that reads late must not hold up the conversation.
                    if let Err(mpsc::error::TrySendError::Full(ended)) = reader.try_send(ended) {
                        tokio::spawn(async move { drop(reader.send(ended).await) });
                    }
                }
            }
            Err(why) => {
                for reader in self.readers_of(turn) {
                    drop(reader.try_send(RunEvent::Failing(why.clone())));
                }
            }
        }
        // Until it is stored, the conversation runs nothing else.
        let ended = QueueInput::Ended(turn.id.clone());
        while let Err(InboxError::Store(_)) = self.inbox.tell(key, ended.clone()).await {
            tokio::time::sleep(STORE_RETRY).await;
        }
        if !self.inbox.holds(key, turn).await {
            let mut readers = self.readers();
            turn.members.iter().for_each(|id| drop(readers.remove(id)));
        }
    }
}

async fn until(time: Option<tokio::time::Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Where a conversation runs.
fn lane_of(key: &SessionKey) -> LaneTask {
    let (lane, priority) = match key.place() {
        KeyPlace::Subagent(_) => (SUBAGENT_LANE, LanePriority::Normal),
        KeyPlace::Cron(_) => (nested_lane(CRON_LANE), LanePriority::Background),
        _ if key.is_heartbeat() => (MAIN_LANE, LanePriority::Background),
        _ => (MAIN_LANE, LanePriority::Foreground),
    };
    LaneTask::new(lane).with_priority(priority)
}

fn add(sum: &mut Usage, more: &Usage) {
    sum.input += more.input;
    sum.output += more.output;
    sum.cache_read += more.cache_read;
    sum.cache_write += more.cache_write;
    sum.total_tokens += more.total_tokens;
    sum.cost.input += more.cost.input;
    sum.cost.output += more.cost.output;
    sum.cost.cache_read += more.cost.cache_read;
    sum.cost.cache_write += more.cost.cache_write;
    sum.cost.total += more.cost.total;
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
