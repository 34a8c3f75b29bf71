//! The queue of one session, as a function from what happened to what is to be done.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use quipu_protocol::ItemId;
use serde::{Deserialize, Serialize};

use super::{
    Authority, BusyMode, DropRule, MessageGroup, Overflow, QueuePolicy, QueueTurn, QueuedMessage, Route,
};

/// However often something comes, what waits is run after so long: 30 seconds.
pub const DEBOUNCE_LIMIT: Duration = Duration::from_secs(30);
/// How long after the first attempt a turn is tried again that could not begin; each time twice as long.
const RETRY: Duration = Duration::from_secs(1);
/// How long at most.
const RETRY_LIMIT: Duration = Duration::from_secs(300);
/// Messages that are remembered after they were taken, to know those that come twice.
const RECENT: usize = 64;
/// Bytes of a channel's message id that is remembered at most.
const MESSAGE_ID: usize = 512;

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum QueueInput {
    /// A message came, for which this holds.
    Arrived(Box<QueuedMessage>, QueuePolicy),
    /// Whether the active run takes messages: it streams, and does not compact.
    Steerable(bool),
    /// A message that was handed to the active run is part of the session.
    SteerTaken(ItemId),
    /// It did not take it.
    SteerRefused(ItemId),
    /// The prompt of a turn is part of the session.
    Entered(ItemId),
    /// The run of a turn ended, or did not begin.
    Ended(ItemId),
    /// Somebody with these rights wants that all stops.
    Stop(Authority),
    /// Time went by.
    Tick,
}

/// What is to be done, once the state is stored.
#[derive(Debug, Clone, PartialEq)]
pub enum QueueEffect {
    /// Run this.
    Start(Arc<QueueTurn>),
    /// Hand this to the active run.
    Steer(Arc<QueuedMessage>),
    /// Abort the active run.
    Abort,
    /// A message was not taken.
    Refused(ItemId, QueueRefusal),
    /// A message that waited is gone.
    Dropped(ItemId, DropReason),
    /// A turn could not begin, and is tried again.
    Failing {
        /// The turn.
        turn: ItemId,
        /// How often it was tried.
        attempts: u32,
    },
}

/// Why a message was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueRefusal {
    /// It is there already, or was a short time ago.
    Duplicate,
    /// As many wait as may.
    Full,
}

/// Why a message is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropReason {
    /// More wait than may.
    Cap,
    /// Another message took its place.
    Interrupted,
    /// Somebody stopped all.
    Stopped,
}

impl DropReason {
    /// The reason in words.
    pub fn text(self) -> &'static str {
        match self {
            Self::Cap => "too many newer ones came",
            Self::Interrupted => "a newer one took its place",
            Self::Stopped => "the conversation was stopped",
        }
    }
}

/// What a store keeps of a queue: one row for each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum QueueRow {
    /// A message that waits, or was handed to the active run.
    Message(Arc<QueuedMessage>),
    /// A turn whose prompt is not part of a session.
    Turn(Arc<QueueTurn>),
    /// Messages that were dropped.
    Overflow(Arc<Overflow>),
}

impl QueueRow {
    /// Names it.
    pub fn id(&self) -> &ItemId {
        match self {
            Self::Message(message) => &message.id,
            Self::Turn(turn) => &turn.id,
            Self::Overflow(overflow) => &overflow.id,
        }
    }
}

/// The queue of one session. Time is handed in: milliseconds of any clock that usually goes forward.
///
/// [`SessionQueue::rows`] is all that has to survive; [`SessionQueue::restore`] makes a queue of it.
#[derive(Debug, Clone, Default)]
pub struct SessionQueue {
    waiting: VecDeque<Arc<QueuedMessage>>,
    overflow: VecDeque<Arc<Overflow>>,
    active: Option<ActiveTurn>,
    /// Handed to the active run, and not known to be taken.
    steering: Vec<Arc<QueuedMessage>>,
    /// Turns that could not begin.
    failed: VecDeque<FailedTurn>,
    recent: VecDeque<(Route, String)>,
    now: u64,
    /// When the last message came that waits, and the first.
    last: u64,
    first: u64,
    debounce: u64,
}

#[derive(Debug, Clone)]
struct ActiveTurn {
    turn: Arc<QueueTurn>,
    attempts: u32,
    has_entered: bool,
    is_steerable: bool,
    /// Why it is being aborted.
    aborting: Option<DropReason>,
}

#[derive(Debug, Clone)]
struct FailedTurn {
    turn: Arc<QueueTurn>,
    attempts: u32,
    at: u64,
}

impl SessionQueue {
    /// A queue of the rows that were kept, in the order in which they were stored. What was on its way to a run waits again; a
    /// turn that had begun to run is the first, with the same prompt.
    pub fn restore(rows: impl IntoIterator<Item = QueueRow>, now: u64) -> Self {
        let mut queue = Self { now, last: now, first: now, ..Self::default() };
        for row in rows {
            match row {
                QueueRow::Message(message) => queue.waiting.push_back(message),
                QueueRow::Turn(turn) => {
                    let ids = turn.message_ids.iter().map(|id| (turn.group.route.clone(), id.clone()));
                    queue.recent.extend(ids);
                    queue.failed.push_back(FailedTurn { turn, attempts: 0, at: now });
                }
                QueueRow::Overflow(overflow) => queue.overflow.push_back(overflow),
            }
        }
        queue
    }

    /// What has to survive, the oldest first.
    pub fn rows(&self) -> Vec<QueueRow> {
        let active = self.active.iter().filter(|active| !active.has_entered).map(|active| &active.turn);
        let turns = active.chain(self.failed.iter().map(|failed| &failed.turn));
        let turns = turns.cloned().map(QueueRow::Turn);
        let overflow = self.overflow.iter().cloned().map(QueueRow::Overflow);
        let messages = self.steering.iter().chain(&self.waiting).cloned().map(QueueRow::Message);
        turns.chain(overflow).chain(messages).collect()
    }

    /// Whether it can be forgotten: nothing runs, nothing waits.
    pub fn is_idle(&self) -> bool {
        self.active.is_none() && self.rows().is_empty()
    }

    /// How many messages wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The turn that runs.
    pub fn active(&self) -> Option<&Arc<QueueTurn>> {
        self.active.as_ref().map(|active| &active.turn)
    }

    /// When [`QueueInput::Tick`] is next of use. `None`: not before something else happens.
    pub fn due(&self) -> Option<u64> {
        if self.active.is_some() {
            return None;
        }
        if let Some(failed) = self.failed.front() {
            return Some(failed.at);
        }
        if self.waiting.is_empty() && self.overflow.is_empty() {
            return None;
        }
        let longest = self.debounce.max(millis(DEBOUNCE_LIMIT));
        Some(self.last.saturating_add(self.debounce).min(self.first.saturating_add(longest)))
    }

    /// Takes what happened.
    pub fn on(&mut self, input: QueueInput, now: u64) -> Vec<QueueEffect> {
        self.set_now(now);
        let mut effects = Vec::new();
        match input {
            QueueInput::Arrived(message, policy) => self.arrived(*message, policy, &mut effects),
            QueueInput::Steerable(is_steerable) => {
                if let Some(active) = &mut self.active {
                    active.is_steerable = is_steerable;
                }
            }
            QueueInput::SteerTaken(id) => self.steering.retain(|message| message.id != id),
            QueueInput::SteerRefused(id) => {
                // Of a run that is being stopped it goes with that.
                if self.active.as_ref().is_none_or(|active| active.aborting.is_none())
                    && let Some(at) = self.steering.iter().position(|message| message.id == id)
                {
                    let message = self.steering.remove(at);
                    self.wait_again([message]);
                }
            }
            QueueInput::Entered(turn) => {
                if let Some(active) = self.active.as_mut().filter(|active| active.turn.id == turn) {
                    active.has_entered = true;
                }
            }
            QueueInput::Ended(turn) => self.ended(&turn, &mut effects),
            QueueInput::Stop(authority) => self.stop(&authority, DropReason::Stopped, &mut effects),
            QueueInput::Tick => {}
        }
        self.start(&mut effects);
        effects
    }

    /// A clock that goes back makes nothing wait longer; one that jumps ahead makes nothing wait.
    fn set_now(&mut self, now: u64) {
        let back = self.now.saturating_sub(now);
        if back > 0 {
            let times = [&mut self.last, &mut self.first].into_iter();
            for time in times.chain(self.failed.iter_mut().map(|failed| &mut failed.at)) {
                *time = time.saturating_sub(back);
            }
        }
        self.now = now;
    }

    fn arrived(&mut self, message: QueuedMessage, policy: QueuePolicy, effects: &mut Vec<QueueEffect>) {
        let message = QueuedMessage { mode: policy.mode, ..message };
        if self.is_known(&message) {
            return effects.push(QueueEffect::Refused(message.id, QueueRefusal::Duplicate));
        }
        let group = message.group();
        if policy.mode == BusyMode::Interrupt {
            // Only what its sender may stop.
            self.stop(&message.authority, DropReason::Interrupted, effects);
        }
        let held = self.waiting.len() + self.steering.len();
        if held >= policy.cap {
            let victim = (policy.drop != DropRule::New).then(|| self.victim(&group)).flatten();
            let Some(victim) = victim.and_then(|at| self.waiting.remove(at)) else {
                return effects.push(QueueEffect::Refused(message.id, QueueRefusal::Full));
            };
            if policy.drop == DropRule::Summarize {
                self.summarise(&victim, policy.cap);
            }
            effects.push(QueueEffect::Dropped(victim.id.clone(), DropReason::Cap));
        }
        self.remember(&message);
        let message = Arc::new(message);
        if let Some(active) = &self.active
            && policy.mode == BusyMode::Steer
            && active.is_steerable
            && active.aborting.is_none()
            && active.turn.group == group
        {
            self.steering.push(message.clone());
            return effects.push(QueueEffect::Steer(message));
        }
        if self.waiting.is_empty() {
            self.first = self.now;
        }
        let is_at_rest = self.active.is_none() && self.due().is_none();
        // Only what comes while something runs waits for more.
        let waits = !is_at_rest && policy.mode != BusyMode::Interrupt;
        self.debounce = if waits { millis(policy.debounce) } else { 0 };
        self.last = self.now;
        self.waiting.push_back(message);
    }

    /// Whether a message of this id came on its route; where it has none, whether one that says the same waits.
    fn is_known(&self, message: &QueuedMessage) -> bool {
        if let Some(id) = &message.message_id
            && id.len() <= MESSAGE_ID
        {
            return self.recent.iter().any(|(route, known)| known == id && *route == message.route)
                || self.held().any(|one| one.message_id.as_ref() == Some(id) && one.route == message.route);
        }
        let group = message.group();
        self.held().any(|one| one.message_id.is_none() && one.input == message.input && one.group() == group)
    }

    fn held(&self) -> impl Iterator<Item = &Arc<QueuedMessage>> {
        self.steering.iter().chain(&self.waiting)
    }

    fn remember(&mut self, message: &QueuedMessage) {
        let Some(id) = message.message_id.clone().filter(|id| id.len() <= MESSAGE_ID) else { return };
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back((message.route.clone(), id));
    }

    /// Which message goes for one of this group: the oldest of the same, else the oldest of those who have most, so that who
    /// floods a session drops nobody else's.
    fn victim(&self, group: &MessageGroup) -> Option<usize> {
        let groups: Vec<MessageGroup> = self.waiting.iter().map(|message| message.group()).collect();
        if let Some(own) = groups.iter().position(|one| one == group) {
            return Some(own);
        }
        let count = |one: &MessageGroup| groups.iter().filter(|other| *other == one).count();
        (0..groups.len()).max_by_key(|at| (count(&groups[*at]), std::cmp::Reverse(*at)))
    }

    fn summarise(&mut self, message: &QueuedMessage, cap: usize) {
        let group = message.group();
        let at = self.overflow.iter().position(|overflow| overflow.group == group);
        let mut overflow = match at.and_then(|at| self.overflow.remove(at)) {
            Some(overflow) => Arc::unwrap_or_clone(overflow),
            None => Overflow::new(group),
        };
        overflow.add(message, cap);
        self.overflow.push_back(Arc::new(overflow));
        // Senders who all have another name must not fill the memory.
        while self.overflow.len() > cap {
            self.overflow.pop_front();
        }
    }

    /// Puts messages in front of those that wait.
    fn wait_again(
        &mut self,
        messages: impl IntoIterator<Item = Arc<QueuedMessage>, IntoIter: DoubleEndedIterator>,
    ) {
        if self.waiting.is_empty() {
            (self.first, self.last) = (self.now, self.now);
        }
        for message in messages.into_iter().rev() {
            self.waiting.push_front(message);
        }
    }

    fn ended(&mut self, turn: &ItemId, effects: &mut Vec<QueueEffect>) {
        let Some(active) = self.active.take_if(|active| active.turn.id == *turn) else { return };
        let unused = std::mem::take(&mut self.steering);
        match active.aborting {
            // They have the rights of the run: whoever stopped it stopped them.
            Some(why) => {
                effects.extend(unused.iter().map(|message| QueueEffect::Dropped(message.id.clone(), why)));
            }
            None => self.wait_again(unused),
        }
        if active.has_entered {
            return;
        }
        if let Some(why) = active.aborting {
            let gone = active.turn.members.iter().cloned();
            return effects.extend(gone.map(|id| QueueEffect::Dropped(id, why)));
        }
        let attempts = active.attempts + 1;
        let delay = RETRY.saturating_mul(1 << attempts.saturating_sub(1).min(16)).min(RETRY_LIMIT);
        let at = self.now.saturating_add(millis(delay));
        effects.push(QueueEffect::Failing { turn: turn.clone(), attempts });
        self.failed.push_front(FailedTurn { turn: active.turn, attempts, at });
    }

    /// Whether anything that is still to be said interrupts this turn, which a process before this one began with these rights.
    pub(super) fn interrupts(&self, turn: &ItemId, authority: &Authority) -> bool {
        let comes = |message: &Arc<QueuedMessage>| {
            message.mode == BusyMode::Interrupt && message.authority.may_stop(authority)
        };
        let active = self.active.iter().map(|active| &active.turn);
        let mut turns = active.chain(self.failed.iter().map(|failed| &failed.turn));
        self.held().any(comes)
            || turns.any(|one| one.interrupts && one.id != *turn && one.group.authority.may_stop(authority))
    }

    /// The turn that is being aborted.
    pub(super) fn aborting(&self) -> Option<&ItemId> {
        self.active.as_ref().filter(|active| active.aborting.is_some()).map(|active| &active.turn.id)
    }

    /// Aborts and drops what somebody may stop: an owner all, others what is their own.
    fn stop(&mut self, authority: &Authority, why: DropReason, effects: &mut Vec<QueueEffect>) {
        let may = |other: &Authority| authority.may_stop(other);
        if let Some(active) = self.active.as_mut().filter(|active| may(&active.turn.group.authority))
            && active.aborting.is_none()
        {
            active.aborting = Some(why);
            effects.push(QueueEffect::Abort);
        }
        let mut stays = |message: &Arc<QueuedMessage>| {
            let stays = !may(&message.authority);
            if !stays {
                effects.push(QueueEffect::Dropped(message.id.clone(), why));
            }
            stays
        };
        // What was handed to the run is either part of it by its end, or goes then.
        self.waiting.retain(&mut stays);
        self.failed.retain(|failed| {
            let stays = !may(&failed.turn.group.authority);
            if !stays {
                let gone = failed.turn.members.iter().cloned();
                effects.extend(gone.map(|id| QueueEffect::Dropped(id, why)));
            }
            stays
        });
        self.overflow.retain(|overflow| !may(&overflow.group.authority));
    }

    /// Starts what is due, where nothing runs.
    fn start(&mut self, effects: &mut Vec<QueueEffect>) {
        if self.due().is_none_or(|due| due > self.now) {
            return;
        }
        let next = match self.failed.pop_front() {
            Some(failed) => Some((failed.turn, failed.attempts)),
            None => self.next_turn().map(|turn| (Arc::new(turn), 0)),
        };
        let Some((turn, attempts)) = next else { return };
        self.active = Some(ActiveTurn {
            turn: turn.clone(),
            attempts,
            has_entered: false,
            is_steerable: false,
            aborting: None,
        });
        // What waits now came before the next message does: it need not wait for more.
        self.first = self.now;
        effects.push(QueueEffect::Start(turn));
    }

    /// Takes the next turn off the queue: the oldest message with those right behind it that may be run together with it.
    fn next_turn(&mut self) -> Option<QueueTurn> {
        if let Some(overflow) = self.overflow.front()
            && self.waiting.iter().all(|message| message.group() != overflow.group)
        {
            let overflow = self.overflow.pop_front()?;
            return QueueTurn::of(overflow.group.clone(), &[], Some(&overflow));
        }
        let group = self.waiting.front()?.group();
        let mut messages: Vec<Arc<QueuedMessage>> = self.waiting.pop_front().into_iter().collect();
        let collects = |message: &QueuedMessage| message.mode == BusyMode::Collect;
        if messages.first().is_some_and(|first| collects(first)) {
            while let Some(next) = self.waiting.pop_front_if(|next| collects(next) && next.group() == group) {
                messages.push(next);
            }
        }
        let at = self.overflow.iter().position(|overflow| overflow.group == group);
        let overflow = at.and_then(|at| self.overflow.remove(at));
        QueueTurn::of(group, &messages, overflow.as_deref())
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
