//! A run as it goes: its events are passed on, messages reach it, its answers become replies.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use quipu::protocol::{
    Ack, Command, Ending, Envelope, Event, ItemId, Message, NodeId, Outcome, QueuedItem, RunId,
};
use quipu::{Delivery, Events, Refusal, Session};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{EndedRun, Inner, RunEvent, RunOutcome, RunStop};
use crate::conversation_rules::TurnCause;
use crate::keys::SessionKey;
use crate::lanes::TaskHandle;
use crate::queue::{MessageInbox, QueueInput, QueuedMessage};
use crate::replies::ReplyFlow;

/// How long an aborted run may take to end.
const ABORT: Duration = Duration::from_secs(20);
/// When a session is asked again that could not say what it still has to take.
const AGAIN: Duration = Duration::from_secs(1);

/// A run, from its prompt to its end.
pub(super) struct Follow<'a> {
    inner: &'a Inner,
    key: &'a SessionKey,
    session: &'a Session,
    /// The turn whose answers are owed.
    turn: Option<ItemId>,
    /// The messages that it answers.
    members: Vec<ItemId>,
    pub(super) reply: Option<ReplyFlow>,
    /// Whether a person has it run.
    pub(super) cause: TurnCause,
    /// Messages that are to reach it.
    pub(super) steer: Option<mpsc::Receiver<Arc<QueuedMessage>>>,
    /// Messages that were handed to its session and are not known to be part of it; whether they were seen to wait there.
    handed: HashMap<ItemId, bool>,
    run: Option<RunId>,
    /// The run whose beginning was read last.
    seen: Option<RunId>,
    outcome: RunOutcome,
    /// It came to its end.
    is_done: bool,
    /// It was stopped: nothing more of it is said.
    is_given_up: bool,
}

/// What happens next to a run.
enum RunStep {
    Stop,
    TimedOut,
    Overdue,
    Handed(ItemId, Box<Result<Ack, Refusal>>),
    Event(Option<Arc<Envelope>>),
    Message(Arc<QueuedMessage>),
    Settle,
    Tick,
}

impl<'a> Follow<'a> {
    pub(super) fn new(
        inner: &'a Inner,
        key: &'a SessionKey,
        session: &'a Session,
        members: Vec<ItemId>,
    ) -> Self {
        let outcome = RunOutcome::unseen(session.view().session, Outcome::Done);
        let turn = inner.replies.as_ref().and_then(|replies| replies.owed(key)).map(|owed| owed.turn);
        let (reply, steer, run, seen) = (None, None, None, None);
        let (cause, handed, is_done, is_given_up) = (TurnCause::System, HashMap::new(), true, false);
        Self {
            inner,
            key,
            session,
            turn,
            members,
            reply,
            cause,
            steer,
            handed,
            run,
            seen,
            outcome,
            is_done,
            is_given_up,
        }
    }

    /// These messages are part of the session.
    pub(super) async fn started(&mut self, run: RunId, messages: &[ItemId]) {
        self.run = Some(run.clone());
        let session = self.outcome.session.clone();
        self.inner.say(messages, &RunEvent::Started { session, run, messages: messages.to_vec() }).await;
    }

    /// Passes on what the session says until its run ended.
    pub(super) async fn run(&mut self, mut events: Events, handle: &TaskHandle, stop: &RunStop) {
        let (mut ended, mut aborted, mut settled, mut again) = (None, None, false, None);
        let mut cause = TurnCause::System;
        let mut handing: Option<BoxFuture<'a, (ItemId, Result<Ack, Refusal>)>> = None;
        loop {
            if settled && handing.is_none() && self.handed.is_empty() {
                break;
            }
            let can_settle = settled && handing.is_none();
            let is_open = aborted.is_none() && !settled && handing.is_none();
            let next = tokio::select! {
                biased;
                () = stop.asked.cancelled(), if aborted.is_none() => RunStep::Stop,
                () = handle.stopped().cancelled(), if aborted.is_none() => RunStep::TimedOut,
                () = until(aborted) => RunStep::Overdue,
                (id, ack) = finished(&mut handing) => RunStep::Handed(id, Box::new(ack)),
                () = until(again), if can_settle => RunStep::Settle,
                () = until(self.reply_deadline()) => RunStep::Tick,
                envelope = events.next() => RunStep::Event(envelope),
                Some(message) = received(&mut self.steer), if is_open => RunStep::Message(message),
            };
            match next {
                RunStep::Stop | RunStep::TimedOut => {
                    self.outcome.timed_out = matches!(next, RunStep::TimedOut);
                    aborted = Some(Instant::now() + ABORT);
                    // Nobody waits for more of it, also after a crash.
                    self.reply = None;
                    self.is_given_up = true;
                    self.owes_nothing().await;
                    // A session that is closed has ended the run already.
                    drop(self.session.abort().await);
                }
                RunStep::Overdue => break,
                RunStep::Message(message) => {
                    self.handed.insert(message.id.clone(), false);
                    if let (Some(_), Some(replies)) = (&self.reply, &self.inner.replies) {
                        // Without it, a crash in the next moment leaves the message unanswered.
                        drop(replies.hands(self.key, &message.id).await);
                    }
                    let (session, input) = (self.session, message.input.clone());
                    cause = TurnCause::of(&input);
                    handing = Some(Box::pin(async move {
                        let (inbox, item) = MessageInbox::row_of_message(&message);
                        let ack = session.steer_stored(&inbox, &item, input).await;
                        (item, ack)
                    }));
                }
                RunStep::Handed(id, ack) => {
                    handing = None;
                    // With a run of its own, where the one before was over.
                    if self.acknowledged(id, *ack).await {
                        (ended, settled) = (None, false);
                        if aborted.is_some() {
                            // It waited for a hook while the run was stopped.
                            drop(self.session.abort().await);
                        }
                    }
                    // Not before: a stop that comes meanwhile must not wait for it. The message is stored; without this note the
                    // conversation only counts as idle a little earlier.
                    drop(self.inner.sessions.heard(self.key, self.session, cause).await);
                    if cause == TurnCause::Person {
                        self.cause = cause;
                    }
                    again = settled.then(|| Instant::now() + AGAIN);
                }
                RunStep::Settle => {
                    again = Some(Instant::now() + AGAIN);
                    match self.take_back().await {
                        TakenBack::AtRest => break,
                        TakenBack::Unknown => {}
                        // What the session says of that run is still to be read.
                        TakenBack::Taken => (ended, settled) = (None, false),
                    }
                }
                RunStep::Tick => self.reply_ticked().await,
                RunStep::Event(None) => break,
                RunStep::Event(Some(envelope)) => {
                    // What another front of the session runs belongs to nobody here: this run was still to begin.
                    let is_own = self.run.is_none()
                        || envelope.run.is_none()
                        || envelope.run == self.run
                        || envelope.run == self.seen;
                    if is_own {
                        self.arrives(&envelope.event).await;
                    }
                    match &envelope.event {
                        Event::RunStarted if self.seen.is_none() && !is_own => {}
                        Event::RunStarted => {
                            self.run.clone_from(&envelope.run);
                            self.seen.clone_from(&envelope.run);
                            (ended, settled) = (None, false);
                        }
                        // A message began a run of its own: what is still to be read of the one before does not end this one.
                        Event::RunEnded { .. } if self.run != self.seen => {}
                        Event::RunEnded { outcome } => ended = Some(outcome.clone()),
                        Event::Settled if ended.is_some() => {
                            settled = true;
                            // What it has not taken by now it takes in a run of its own, or never.
                            again = Some(Instant::now());
                        }
                        Event::QueueChanged { steering, follow_up } => {
                            let begins = self.queue_changed(steering, follow_up).await;
                            if begins && settled {
                                (ended, settled) = (None, false);
                            }
                        }
                        Event::MessageEnded { message, ending: Ending::Committed(node), .. } if is_own => {
                            self.said(*node, message).await;
                        }
                        Event::HeadMoved { .. } => {
                            if let Some(reply) = &mut self.reply {
                                reply.moved();
                            }
                        }
                        Event::ToolEnded { result, .. } if is_own => {
                            if let Some(reply) = &mut self.reply {
                                reply.tool_ended(result);
                            }
                        }
                        _ => {}
                    }
                    // After a timeout nobody holds it up any more.
                    if is_own && !self.outcome.timed_out {
                        let event = RunEvent::Session(envelope);
                        tokio::select! {
                            biased;
                            () = self.inner.say(&self.members, &event) => handle.progress(),
                            () = handle.stopped().cancelled() => {}
                            () = stop.asked.cancelled() => {}
                        }
                    }
                }
            }
        }
        // Or it would come to a session that nobody follows.
        if let Some(handing) = handing
            && let Ok((id, ack)) = tokio::time::timeout(AGAIN, handing).await
        {
            self.acknowledged(id, ack).await;
        }
        if !self.handed.is_empty() {
            // What the session has not taken waits again once the end of the run is stored.
            self.take_back().await;
        }
        // Who waited for it was not idle meanwhile.
        drop(self.inner.sessions.heard(self.key, self.session, self.cause).await);
        self.outcome.outcome = ended.unwrap_or(Outcome::Aborted);
        self.is_done = settled;
        if aborted.is_none() && self.outcome.outcome == Outcome::Aborted {
            // Another front aborted it, or the session is being closed, and takes nothing more.
            let asked = self.session.send(Command::Unqueue { items: vec!["none".into()] }).await;
            self.is_done &= !matches!(asked, Err(Refusal::Closed));
        }
    }

    /// What came of it, once its replies are stored.
    pub(super) async fn end(mut self, duration: Duration) -> EndedRun {
        // A session that was closed did not finish: what it owes is said by the next process.
        let is_said = self.reply.take().is_some() && self.is_done;
        if is_said || self.is_given_up {
            self.owes_nothing().await;
        }
        self.outcome.duration = duration;
        EndedRun { outcome: self.outcome, members: self.members }
    }

    /// Stores that nothing more of it is owed to the chat.
    async fn owes_nothing(&self) {
        let turn = self.turn.as_ref();
        if let (Some(replies), Some(turn)) = (&self.inner.replies, turn) {
            // Of a run that was stopped it is tried again.
            drop(replies.finish(self.key, turn).await);
        }
    }

    /// A message of the run is part of the session.
    async fn said(&mut self, node: NodeId, message: &Message) {
        if let Message::Assistant(answer) = message {
            let text = answer.text();
            if !text.is_empty() {
                self.outcome.text = text;
            }
            self.outcome.usage += &answer.usage;
            self.outcome.last_usage = Some(answer.usage);
        }
        if let (Some(reply), Some(replies)) = (&mut self.reply, &self.inner.replies)
            && replies.take(self.key, reply, node, message).await.is_err()
        {
            // It is owed until the store takes it; the next process says it.
            self.reply = None;
        }
    }

    /// What is sent of an answer before it is part of the session.
    async fn arrives(&mut self, event: &Event) {
        let inbox = &self.inner.inbox;
        if let (Some(reply), Some(replies)) = (&mut self.reply, &self.inner.replies)
            && replies.arrives(self.key, reply, event, &|text| inbox.sealed(text)).await.is_err()
        {
            self.reply = None;
        }
    }

    fn reply_deadline(&self) -> Option<Instant> {
        self.inner.replies.as_ref()?.deadline(self.reply.as_ref()?)
    }

    async fn reply_ticked(&mut self) {
        if let (Some(reply), Some(replies)) = (&mut self.reply, &self.inner.replies)
            && replies.ticked(self.key, reply).await.is_err()
        {
            self.reply = None;
        }
    }

    /// Whether a run began with it.
    async fn acknowledged(&mut self, id: ItemId, ack: Result<Ack, Refusal>) -> bool {
        let begins = matches!(ack, Ok(Ack::Started(_)));
        match ack {
            // It waits there until it is part of the conversation; that may have been seen by now.
            Ok(Ack::Queued(_)) => {}
            Ok(Ack::Started(run)) => {
                self.run = Some(run);
                self.taken(id).await;
            }
            // A hook did what was wanted, and nobody takes the row.
            Ok(_) => {
                self.handed.remove(&id);
                self.was_handed(&id, false).await;
                drop(self.inner.inbox.tell(self.key, QueueInput::SteerTaken(id.clone())).await);
                self.members.push(id);
            }
            Err(_) => {
                self.handed.remove(&id);
                self.was_handed(&id, false).await;
                drop(self.inner.inbox.tell(self.key, QueueInput::SteerRefused(id)).await);
            }
        }
        begins
    }

    /// What was seen to wait and waits no more is part of the conversation, or was taken back: the store knows.
    /// Whether any is.
    async fn queue_changed(&mut self, steering: &[QueuedItem], follow_up: &[QueuedItem]) -> bool {
        let mut left = Vec::new();
        for (id, was_there) in &mut self.handed {
            let is_there = steering.iter().chain(follow_up).any(|item| item.id == *id);
            if *was_there && !is_there {
                left.push(id.clone());
            }
            *was_there |= is_there;
        }
        if left.is_empty() {
            return false;
        }
        let gone = self.inner.inbox.gone(&left).await.unwrap_or_default();
        let any = !gone.is_empty();
        for id in gone {
            self.taken(id).await;
        }
        any
    }

    /// Stores what became of a message that was handed over.
    async fn was_handed(&self, id: &ItemId, is_taken: bool) {
        if let (Some(_), Some(replies)) = (&self.reply, &self.inner.replies) {
            // Without it, only news of the message are missed after a crash.
            drop(replies.handed(self.key, id, is_taken).await);
        }
    }

    /// A message that was handed over is part of the session.
    async fn taken(&mut self, id: ItemId) {
        if self.handed.remove(&id).is_none() {
            return;
        }
        drop(self.inner.inbox.steered(self.key, &id).await);
        self.members.push(id.clone());
        self.was_handed(&id, true).await;
        if let Some(run) = self.run.clone() {
            self.started(run, &[id]).await;
        }
    }

    /// Takes back what the session has not made part of the conversation: that waits again when the end of the run is stored.
    async fn take_back(&mut self) -> TakenBack {
        let items: Vec<ItemId> = self.handed.keys().cloned().collect();
        let asked = self.session.send(Command::Unqueue { items: items.clone() }).await;
        if !matches!(asked, Ok(_) | Err(Refusal::Closed)) {
            return TakenBack::Unknown;
        }
        // As it stands behind that.
        if let Ok((snapshot, _)) = self.session.subscribe(Delivery::Live).await
            && snapshot.run.is_some()
        {
            return TakenBack::Unknown;
        }
        let Ok(gone) = self.inner.inbox.gone(&items).await else { return TakenBack::Unknown };
        let taken = if gone.is_empty() { TakenBack::AtRest } else { TakenBack::Taken };
        for id in gone {
            self.taken(id).await;
        }
        taken
    }
}

/// What came of taking messages back.
enum TakenBack {
    /// Nothing runs, and none of them is part of the conversation.
    AtRest,
    /// Some are part of the conversation by now.
    Taken,
    /// The session is at work.
    Unknown,
}

/// The end of a hand-over, where one is under way.
async fn finished<T>(handing: &mut Option<BoxFuture<'_, T>>) -> T {
    match handing {
        Some(handing) => handing.await,
        None => std::future::pending().await,
    }
}

async fn received(steer: &mut Option<mpsc::Receiver<Arc<QueuedMessage>>>) -> Option<Arc<QueuedMessage>> {
    match steer {
        Some(steer) => steer.recv().await,
        None => None,
    }
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}
