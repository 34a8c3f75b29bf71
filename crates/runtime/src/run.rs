//! Runs: a message goes into the queue of its conversation, and comes out as what its session says and an outcome.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use quipu::Delivery;
use quipu::protocol::{Ack, Command, Envelope, ItemId, Outcome, RunId, SessionId, UnixMs, UserInput};
use tokio::sync::{Notify, mpsc};

use crate::conversation_rules::TurnCause;
use crate::keys::SessionKey;
use crate::lanes::{LaneStatus, Lanes, MAIN_LANE, TaskHandle};
use crate::queue::{
    Authority, BusyMode, DropReason, DropRule, InboxError, InboxEvents, MessageGroup, MessageInbox,
    NewMessage, QueueEffect, QueueInput, QueuePolicy, QueueRefusal, QueueTurn, QueuedMessage,
};
use crate::replies::{OwedReply, Replies, ReplyFlow, SaidMessage, files_of};
use crate::source::SessionSource;
use follow::Follow;
use outcome::EndedRun;
pub use outcome::RunOutcome;
use stop::{ContinuedGuard, ContinuedRun, RunStop};

/// Events of a run that wait for who reads them, before the run waits.
const EVENTS: usize = 256;
/// Messages on their way to the active run at most: as many as may wait.
const STEERED: usize = crate::queue::CAP_LIMIT;
/// What stops a conversation when a message says nothing else; with or without a slash in front.
const STOP_WORDS: [&str; 7] = ["stop", "abort", "cancel", "halt", "esc", "exit", "interrupt"];
/// Why a turn did not begin that was stopped.
const STOPPED: &str = "it was stopped before it began";
/// How often a run that a crash ended is continued: what ends the process each time must not do so for ever.
const CONTINUED: u32 = 3;
/// How long it is waited for a run to begin that is to be stopped.
const BEGIN: Duration = Duration::from_secs(1);
/// When it is tried again to continue a run of a process before this one.
const OWED_RETRY: Duration = Duration::from_secs(10);
/// When it is tried again to store the end of a turn.
const STORE_RETRY: Duration = Duration::from_secs(1);

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

impl RunRequest {
    /// A message of the system, in the name of `group`: it waits behind everything else, and where `cap` wait it is refused, so that it drops
    /// nothing that somebody wrote.
    pub(crate) fn of_system(
        key: SessionKey,
        group: MessageGroup,
        input: UserInput,
        at: UnixMs,
        cap: usize,
    ) -> Self {
        let MessageGroup { route, authority, .. } = group;
        let message = NewMessage { message_id: None, route, authority, from: None, input, at };
        let policy =
            QueuePolicy { mode: BusyMode::Followup, debounce: Duration::ZERO, cap, drop: DropRule::New };
        Self { key, message, policy }
    }
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

/// What became of something that was said in a chat.
#[derive(Debug)]
pub enum Acceptance {
    /// It is a message, and on its way.
    Queued(Run),
    /// It stopped what was theirs to stop.
    Stopped,
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
    replies: Option<Replies>,
    readers: Mutex<HashMap<ItemId, mpsc::Sender<RunEvent>>>,
    active: Mutex<HashMap<SessionKey, ActiveRun>>,
    /// Some run began, or the end of one is stored.
    changed: Notify,
    continued: Mutex<HashMap<SessionKey, ContinuedRun>>,
}

/// Conversations that this keeps nobody from ending.
#[derive(Clone)]
pub(crate) struct WeakConversations(Weak<Inner>);

impl WeakConversations {
    pub(crate) fn upgrade(&self) -> Option<Conversations> {
        self.0.upgrade().map(Conversations)
    }
}

/// What reaches a run from outside.
struct ActiveRun {
    turn: ItemId,
    /// Where its messages came from, and with which rights.
    group: MessageGroup,
    stop: RunStop,
    steer: mpsc::Sender<Arc<QueuedMessage>>,
}

/// The same, inside.
struct RunControl {
    stop: RunStop,
    steer: mpsc::Receiver<Arc<QueuedMessage>>,
}

impl Conversations {
    /// Conversations over an inbox. Nothing runs before [`Conversations::serve`] is polled.
    pub fn new(
        inbox: MessageInbox,
        lanes: Lanes,
        sessions: Arc<dyn SessionSource>,
        timeout: Option<Duration>,
    ) -> Self {
        Self(Arc::new(Inner {
            inbox,
            lanes,
            sessions,
            timeout,
            replies: None,
            readers: Mutex::default(),
            active: Mutex::default(),
            changed: Notify::new(),
            continued: Mutex::default(),
        }))
    }

    /// The same, with answers that are delivered. To be called before anything runs.
    #[must_use]
    pub fn with_replies(self, replies: Replies) -> Self {
        let Inner { inbox, lanes, sessions, timeout, .. } = &*self.0;
        let new = Self::new(inbox.clone(), lanes.clone(), sessions.clone(), *timeout);
        let Ok(inner) = Arc::try_unwrap(new.0) else { unreachable!("nothing else has it") };
        Self(Arc::new(Inner { replies: Some(replies), ..inner }))
    }

    /// Takes what somebody says in a chat: a word that stops the conversation stops what is theirs, anything else is queued.
    ///
    /// # Errors
    /// As [`Conversations::start`].
    pub async fn accept(&self, request: RunRequest) -> Result<Acceptance, RunError> {
        if is_stop_word(&request.message.input.text()) {
            self.stop(&request.key, request.message.authority).await?;
            return Ok(Acceptance::Stopped);
        }
        self.start(request).await.map(Acceptance::Queued)
    }

    /// Stops what somebody with these rights may stop: aborts the run and drops what waits. An owner stops all, others their own.
    /// Resolved = nothing more of it is said, also after a crash.
    ///
    /// # Errors
    /// `Inbox`.
    pub async fn stop(&self, key: &SessionKey, authority: Authority) -> Result<(), RunError> {
        let may = |group: &MessageGroup| authority.may_stop(&group.authority);
        let continued =
            lock(&self.0.continued).get(key).filter(|run| may(&run.group)).map(|run| run.stop.clone());
        if let Some(stop) = &continued {
            stop.asked.cancel();
        }
        let active = match self.0.inbox.stop(key, authority.clone()).await? {
            // It may be about to begin.
            Some(turn) => tokio::time::timeout(BEGIN, self.0.begun(key, &turn)).await.unwrap_or_default(),
            None => None,
        };
        if let Some(stop) = &active {
            stop.asked.cancel();
        }
        for stop in [continued, active].into_iter().flatten() {
            stop.stored.cancelled().await;
        }
        self.0.stop_owed(key, &authority).await;
        Ok(())
    }

    /// What a process before this one left and [`Conversations::serve`] goes on with, by message: messages that wait, and runs that
    /// had begun. To be called before that.
    pub async fn continued(&self) -> Vec<(SessionKey, Run)> {
        let waiting = self.0.inbox.waiting().await;
        let owed = self.0.replies.iter().flat_map(Replies::all_owed);
        let owed = owed.flat_map(|(key, owed)| owed.members.into_iter().map(move |id| (key.clone(), id)));
        let (mut runs, mut seen) = (Vec::new(), HashSet::new());
        for (key, id) in waiting.into_iter().chain(owed) {
            // A turn may be about to begin of which a reply is prepared.
            if seen.insert(id.clone()) {
                let (sender, events) = mpsc::channel(EVENTS);
                self.0.readers().insert(id.clone(), sender);
                runs.push((key, Run { id, events }));
            }
        }
        runs
    }

    /// Queues a message. Resolved = it survives the loss of power.
    ///
    /// # Errors
    /// `Inbox`, `Duplicate`, `Full`.
    pub async fn start(&self, request: RunRequest) -> Result<Run, RunError> {
        let RunRequest { key, message, policy } = request;
        let interrupts = (policy.mode == BusyMode::Interrupt).then(|| message.authority.clone());
        let (sender, events) = mpsc::channel(EVENTS);
        let id = MessageInbox::fresh_id();
        // Before it is there, or it could end unseen.
        self.0.readers().insert(id.clone(), sender);
        let put = self.0.inbox.put_as(id.clone(), &key, message, policy).await;
        let error = match put {
            Ok(Ok(())) => {
                if let Some(authority) = interrupts {
                    self.0.interrupt_continued(&key, &authority);
                }
                return Ok(Run { id, events });
            }
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

    /// Does what the inbox wants done and delivers replies, until the inbox is closed: to be polled as long as the process takes
    /// messages. What it has begun goes on when it is dropped. What a process before this one left unanswered is answered first.
    ///
    /// # Errors
    /// What the store says; calling it again goes on.
    pub async fn serve(&self, events: &mut InboxEvents) -> Result<(), InboxError> {
        for (key, owed) in self.0.replies.iter().flat_map(Replies::all_owed) {
            self.answer_owed(&key, owed);
        }
        let deliver = async {
            match &self.0.replies {
                Some(replies) => replies.deliver().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            done = self.serve_inbox(events) => done,
            () = deliver => Ok(()),
            () = self.0.sessions.tend() => Ok(()),
        }
    }

    async fn serve_inbox(&self, events: &mut InboxEvents) -> Result<(), InboxError> {
        loop {
            let (key, effect) = match events.next().await {
                Ok(next) => next,
                Err(InboxError::Closed) => return Ok(()),
                Err(error) => return Err(error),
            };
            match effect {
                QueueEffect::Start(turn) => {
                    if turn.interrupts {
                        self.0.interrupt_continued(&key, &turn.group.authority);
                    }
                    self.begin(key, turn);
                }
                QueueEffect::Abort => {
                    if let Some(run) = lock(&self.0.active).get(&key) {
                        run.stop.asked.cancel();
                    }
                }
                QueueEffect::Dropped(id, why) => self.0.say_dropped(&id, why),
                QueueEffect::Steer(message) => {
                    // One that is over takes nothing: at its end the message waits again.
                    let steer = lock(&self.0.active).get(&key).map(|run| run.steer.clone());
                    drop(steer.map(|steer| steer.try_send(message)));
                }
                // Who reads was told why.
                QueueEffect::Failing { .. } | QueueEffect::Refused(..) => {}
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

    pub(crate) fn downgrade(&self) -> WeakConversations {
        WeakConversations(Arc::downgrade(&self.0))
    }

    /// Where the messages of the active run came from, and with which rights.
    pub(crate) fn active_group(&self, key: &SessionKey) -> Option<MessageGroup> {
        lock(&self.0.active).get(key).map(|run| run.group.clone())
    }

    /// The same of the run under way: one that a process before this one left is continued while the next turn waits.
    pub(crate) fn running_group(&self, key: &SessionKey) -> Option<MessageGroup> {
        let owed = self.0.replies.as_ref().and_then(|replies| replies.owed(key));
        owed.map(|owed| owed.group()).or_else(|| self.active_group(key))
    }

    /// What delivers answers, where anything does.
    pub(crate) fn replies(&self) -> Option<&Replies> {
        self.0.replies.as_ref()
    }

    /// A text without the secrets that are known.
    pub(crate) fn sealed(&self, text: &str) -> String {
        self.0.inbox.sealed(text)
    }
}

impl Inner {
    fn readers(&self) -> MutexGuard<'_, HashMap<ItemId, mpsc::Sender<RunEvent>>> {
        lock(&self.readers)
    }

    /// Runs a turn in its session; or why it did not begin.
    async fn attempt(
        self: &Arc<Self>,
        key: &SessionKey,
        turn: &Arc<QueueTurn>,
        handle: &TaskHandle,
        control: RunControl,
    ) -> Result<EndedRun, String> {
        let began = Instant::now();
        let RunControl { stop, steer } = control;
        if stop.asked.is_cancelled() {
            return Err(STOPPED.into());
        }
        if let Some(owed) = self.replies.as_ref().and_then(|replies| replies.owed(key))
            && owed.turn != turn.id
        {
            self.answer_earlier(key, owed, handle, &stop).await?;
            if self
                .replies
                .as_ref()
                .and_then(|replies| replies.owed(key))
                .is_some_and(|owed| owed.turn != turn.id)
            {
                return Err("what another message is owed could not be said yet".into());
            }
        }
        if self.replies.as_ref().is_none_or(|replies| replies.owed(key).is_none()) {
            // As of then: who waited for an answer was not idle.
            let at = turn.at.unwrap_or_else(quipu_host::now);
            self.sessions.renew(key, at).await.map_err(|failure| failure.message)?;
        }
        let sourced = self.sessions.session_for(key, &turn.group).await.map_err(|failure| failure.message)?;
        let session = &sourced.session;
        // To open one can take its time.
        handle.progress();
        if stop.asked.is_cancelled() {
            return Err(STOPPED.into());
        }
        let (_, events) = session.subscribe(Delivery::Lossless).await.map_err(|why| why.to_string())?;
        let reply = match &self.replies {
            Some(replies) => replies.begin(key, turn, session).await.map_err(|why| why.to_string())?,
            None => None,
        };
        let cause = TurnCause::of(&turn.input);
        self.sessions.heard(key, session, cause).await.map_err(|failure| failure.message)?;
        let (inbox, row) = MessageInbox::row_of(turn);
        let ack = match session.prompt_stored(&inbox, &row, turn.input.clone()).await {
            Ok(ack) => ack,
            Err(quipu::Refusal::Blocked { why }) => {
                // It would be blocked each time, and hold up what is behind it.
                let taken = self.inbox.tell(key, QueueInput::Entered(turn.id.clone())).await;
                taken.map_err(|error| error.to_string())?;
                if let Some(replies) = &self.replies {
                    replies.finish(key, &turn.id).await.map_err(|error| error.to_string())?;
                }
                let outcome = RunOutcome::blocked(session.view().session, why);
                return Ok(EndedRun { outcome, members: turn.members.clone() });
            }
            Err(why) => {
                // An attempt before may have been broken off behind the commit.
                if matches!(self.inbox.is_stored(turn).await, Ok(false)) {
                    drop(self.inbox.entered(key, &turn.id).await);
                    drop(sourced);
                    if let Some(owed) = self.replies.as_ref().and_then(|replies| replies.owed(key)) {
                        self.answer_owed(key, owed, handle, &stop).await?;
                    }
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
        // Where it fails, the next turn tries again before anything is said.
        drop(self.sessions.follow(key, session).await);
        let mut follow = Follow::new(self, key, session, turn.members.clone());
        follow.reply = reply;
        follow.cause = cause;
        follow.steer = Some(steer);
        if let Ack::Started(run) = &ack {
            drop(self.inbox.tell(key, QueueInput::Steerable(true)).await);
            follow.started(run.clone(), &turn.members).await;
        }
        if ack != Ack::Handled {
            follow.run(events, handle, &stop).await;
        }
        if let Ack::Queued(_) = ack {
            if self.inbox.is_stored(turn).await.map_err(|why| why.to_string())? {
                // It may still wait in the session.
                drop(session.send(Command::Unqueue { items: vec![turn.id.clone()] }).await);
                if self.inbox.is_stored(turn).await.map_err(|why| why.to_string())? {
                    return Err("its session ended before it took the message".into());
                }
            }
            self.inbox.entered(key, &turn.id).await.map_err(|why| why.to_string())?;
        }
        Ok(follow.end(began.elapsed()).await)
    }

    /// Delivers what a run said whose process ended, and continues it where it had not come to its end.
    async fn answer_owed(
        &self,
        key: &SessionKey,
        owed: OwedReply,
        handle: &TaskHandle,
        stop: &RunStop,
    ) -> Result<(), String> {
        let Some(replies) = &self.replies else { return Ok(()) };
        if replies.owed(key).is_none_or(|now| now.turn != owed.turn) {
            // Somebody did so meanwhile.
            return Ok(());
        }
        let members = owed.members.clone();
        if let Some(ended) = self.continue_owed(key, owed, replies, handle, stop).await? {
            self.say_ended(&members, ended.outcome);
        }
        Ok(())
    }

    /// The same with a run of another turn, which has its own stop.
    async fn answer_earlier(
        self: &Arc<Self>,
        key: &SessionKey,
        owed: OwedReply,
        handle: &TaskHandle,
        stop: &RunStop,
    ) -> Result<(), String> {
        let turn = owed.turn.clone();
        let guard = ContinuedGuard::new(self, key, &owed);
        let own = match &guard {
            Some(guard) => guard.stop.clone(),
            None => lock(&self.continued).get(key).map(|run| run.stop.clone()).unwrap_or_default(),
        };
        own.begins();
        let done = self.answer_owed(key, owed, handle, &own).await;
        if own.asked.is_cancelled() {
            self.give_up(key, &turn).await;
        }
        drop(guard);
        if stop.asked.is_cancelled() {
            return Err(STOPPED.into());
        }
        if handle.stopped().is_cancelled() {
            return Err("the run before it made no progress".into());
        }
        done
    }

    /// Continues a run, up to its end.
    async fn continue_owed(
        &self,
        key: &SessionKey,
        owed: OwedReply,
        replies: &Replies,
        handle: &TaskHandle,
        stop: &RunStop,
    ) -> Result<Option<EndedRun>, String> {
        let finished = async |outcome: Outcome| {
            replies.finish(key, &owed.turn).await.map_err(|why| why.to_string())?;
            let outcome = RunOutcome::unseen(owed.session.clone(), outcome);
            Ok(Some(EndedRun { outcome, members: owed.members.clone() }))
        };
        // A prompt leaves the inbox with the commit that makes it part of a session.
        let gone = self.inbox.gone(std::slice::from_ref(&owed.turn)).await.map_err(|why| why.to_string())?;
        if gone.is_empty() {
            // Its turn is still to begin.
            return Ok(None);
        }
        if stop.asked.is_cancelled() {
            return finished(Outcome::Aborted).await;
        }
        let sourced =
            self.sessions.session_for(key, &owed.group()).await.map_err(|failure| failure.message)?;
        let session = &sourced.session;
        handle.progress();
        let (_, events) = session.subscribe(Delivery::Lossless).await.map_err(|why| why.to_string())?;
        if session.view().session != owed.session {
            // It was reset: that conversation is over.
            return finished(Outcome::Aborted).await;
        }
        let said = replies.said(&owed, &session.view()).await.map_err(|why| why.to_string())?;
        let mut reply = ReplyFlow::of(replies, key, &owed, files_of(session));
        if let Some(reply) = &mut reply {
            replies.knows(reply, &said);
            for SaidMessage { node, message, .. } in &said.messages {
                replies.take(key, reply, *node, message).await.map_err(|why| why.to_string())?;
            }
        }
        let is_answered = said.is_answered();
        stop.continues();
        let is_interrupted = self.inbox.interrupts(key, &owed.turn, &owed.authority).await;
        if is_answered || said.is_left || is_interrupted || owed.continued >= CONTINUED {
            let is_answered = is_answered && !said.messages.is_empty();
            return finished(if is_answered { Outcome::Done } else { Outcome::Aborted }).await;
        }
        if !replies.continues(key, &owed.turn).await.map_err(|why| why.to_string())? {
            // It was stopped meanwhile.
            return Ok(None);
        }
        let ack = match session.send(Command::Continue).await {
            Ok(ack) => ack,
            Err(quipu::Refusal::NothingToContinue) => return finished(Outcome::Done).await,
            Err(why) => return Err(why.to_string()),
        };
        let began = Instant::now();
        let mut follow = Follow::new(self, key, session, owed.members.clone());
        follow.reply = reply;
        if let Ack::Started(run) = ack {
            follow.started(run, &owed.members).await;
        }
        follow.run(events, handle, stop).await;
        Ok(Some(follow.end(began.elapsed()).await))
    }

    /// Says something to those whose messages a run answers.
    async fn say(&self, members: &[ItemId], event: &RunEvent) {
        for reader in self.readers_of(members) {
            // One that is gone reads nothing.
            drop(reader.send(event.clone()).await);
        }
    }

    fn readers_of(&self, members: &[ItemId]) -> Vec<mpsc::Sender<RunEvent>> {
        let readers = self.readers();
        members.iter().filter_map(|id| readers.get(id).cloned()).collect()
    }

    fn say_dropped(&self, id: &ItemId, why: DropReason) {
        let reader = self.readers().remove(id);
        if let Some(reader) = reader {
            // One that reads nothing sees the end of its events.
            drop(reader.try_send(RunEvent::Dropped(why)));
        }
    }

    /// Says to those whose messages a run answers how it ended.
    fn say_ended(&self, members: &[ItemId], outcome: RunOutcome) {
        let readers: Vec<_> = {
            let mut readers = self.readers();
            members.iter().filter_map(|id| readers.remove(id)).collect()
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

    async fn finish(&self, key: &SessionKey, turn: &Arc<QueueTurn>, result: Result<EndedRun, String>) {
        let stop = lock(&self.active).get(key).filter(|run| run.turn == turn.id).map(|run| run.stop.clone());
        if stop.as_ref().is_some_and(|stop| stop.asked.is_cancelled()) {
            self.give_up(key, &turn.id).await;
        }
        match result {
            Ok(EndedRun { outcome, members }) => self.say_ended(&members, outcome),
            // Its messages are dropped, and nothing failed.
            Err(why) if why == STOPPED => {}
            Err(why) => {
                for reader in self.readers_of(&turn.members) {
                    drop(reader.try_send(RunEvent::Failing(why.clone())));
                }
            }
        }
        // Until it is stored, the conversation runs nothing else.
        let effects = loop {
            match self.inbox.ended(key, &turn.id).await {
                Err(InboxError::Store(_)) => tokio::time::sleep(STORE_RETRY).await,
                ended => break ended.unwrap_or_default(),
            }
        };
        self.changed.notify_waiters();
        for effect in effects {
            if let QueueEffect::Dropped(id, why) = effect {
                self.say_dropped(&id, why);
            }
        }
        if !self.inbox.holds(key, turn).await {
            let mut readers = self.readers();
            turn.members.iter().for_each(|id| drop(readers.remove(id)));
        }
        {
            let mut active = lock(&self.active);
            if active.get(key).is_some_and(|run| run.turn == turn.id) {
                active.remove(key);
            }
        }
        if let Some(stop) = stop {
            stop.stored.cancel();
        }
    }
}

/// Whether a message only says that all shall stop.
fn is_stop_word(text: &str) -> bool {
    let is_around = |letter: char| letter.is_whitespace() || matches!(letter, '.' | '!' | ',' | ';' | '…');
    let word = text.trim_matches(is_around).to_lowercase();
    STOP_WORDS.contains(&word.strip_prefix('/').unwrap_or(&word))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

mod begin;
mod command_ends;
mod follow;
mod outcome;
#[cfg(test)]
mod renewal_tests;
mod stop;
#[cfg(test)]
mod tests;
