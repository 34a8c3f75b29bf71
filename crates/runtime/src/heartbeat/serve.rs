//! Runs heartbeats when they are due.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use quipu::Clock;
use quipu::protocol::{AuthorClass, Content, Origin, Outcome, Provenance, UnixMs, UserInput};
use tokio::sync::Notify;

use super::settings::HeartbeatRules;
use super::state::{Heartbeat, HeartbeatFile, HeartbeatReply, HeartbeatStep, WakeReason};
use crate::keys::SessionKey;
use crate::queue::MessageGroup;
use crate::run::{AgentLoad, Conversations, RunError, RunOutcome, RunRequest};

/// How long nothing is looked at, at most: a clock that was set is noticed then.
const LOOK: Duration = Duration::from_secs(60);

/// What runs the messages of heartbeats.
pub trait HeartbeatRuns: Send + Sync + 'static {
    /// Whether the agent of a conversation is busy.
    fn load(&self, key: &SessionKey) -> AgentLoad;

    /// Runs a message to its end.
    fn run(&self, request: RunRequest) -> BoxFuture<'_, Result<Arc<RunOutcome>, RunError>>;
}

impl HeartbeatRuns for Conversations {
    fn load(&self, key: &SessionKey) -> AgentLoad {
        Self::load(self, key)
    }

    fn run(&self, request: RunRequest) -> BoxFuture<'_, Result<Arc<RunOutcome>, RunError>> {
        Box::pin(Self::run(self, request))
    }
}

/// What is around a conversation.
pub trait HeartbeatPlace: Send + Sync + 'static {
    /// HEARTBEAT.md of its workspace, as it is now.
    fn file<'a>(&'a self, key: &'a SessionKey) -> BoxFuture<'a, HeartbeatFile>;

    /// Gives people what a heartbeat has to say, and says whether they get it.
    fn deliver<'a>(&'a self, key: &'a SessionKey, alert: String) -> BoxFuture<'a, AlertDelivery>;
}

/// What became of an alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlertDelivery {
    /// People get it, or it is stored for them: the same is not said again within a day.
    Stored,
    /// It is lost: the same may be said again with the next heartbeat.
    Lost,
}

/// Whether something was woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WakeOutcome {
    /// It is looked at when it may be.
    Woken,
    /// The conversation has no heartbeat.
    Unknown,
}

/// The heartbeats of conversations. Cheap to clone. What they ran and said is known until the process ends.
#[derive(Clone)]
pub struct Heartbeats(Arc<Inner>);

struct Inner {
    runs: Arc<dyn HeartbeatRuns>,
    place: Arc<dyn HeartbeatPlace>,
    clock: Arc<dyn Clock>,
    beats: Mutex<HashMap<SessionKey, Heartbeat>>,
    changed: Notify,
}

/// The message of a heartbeat, in the conversation beside `key`: it has the rights of nobody, waits behind everything else, and at most one waits.
#[must_use]
pub fn heartbeat_request(key: &SessionKey, prompt: &str, now: UnixMs) -> RunRequest {
    let input = UserInput::new(vec![Content::text(prompt.to_owned())])
        .from_source(Provenance::new(Origin::Schedule, AuthorClass::System));
    RunRequest::of_system(key.heartbeat(), MessageGroup::default(), input, now, 1)
}

impl Heartbeats {
    /// No heartbeats yet. None runs before [`Heartbeats::serve`] is polled.
    pub fn new(runs: Arc<dyn HeartbeatRuns>, place: Arc<dyn HeartbeatPlace>, clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Inner { runs, place, clock, beats: Mutex::default(), changed: Notify::new() }))
    }

    /// Gives a conversation a heartbeat, or the one that it has other rules.
    pub fn set(&self, key: SessionKey, rules: HeartbeatRules) {
        match self.0.beats().entry(key) {
            Entry::Occupied(mut beat) => beat.get_mut().set_rules(rules),
            Entry::Vacant(place) => drop(place.insert(Heartbeat::new(rules))),
        }
    }

    /// Takes the heartbeat of a conversation away. One that runs goes on to its end, and nobody is told what it says.
    pub fn remove(&self, key: &SessionKey) {
        self.0.beats().remove(key);
    }

    /// The rules of a conversation's heartbeat.
    #[must_use]
    pub fn rules(&self, key: &SessionKey) -> Option<HeartbeatRules> {
        self.0.beats().get(key).map(|beat| beat.rules().clone())
    }

    /// Wakes the heartbeat of a conversation.
    pub fn wake(&self, key: &SessionKey, reason: WakeReason) -> WakeOutcome {
        let now = self.0.clock.now();
        match self.0.beats().get_mut(key) {
            Some(beat) => beat.wake(reason, now),
            None => return WakeOutcome::Unknown,
        }
        self.0.changed.notify_one();
        WakeOutcome::Woken
    }

    /// Runs heartbeats when they are due, for as long as it is polled. Those under way are given up when it is dropped, and what they have begun
    /// goes on in its conversation.
    pub async fn serve(&self) {
        let inner = &*self.0;
        inner.beats().values_mut().for_each(Heartbeat::give_up);
        let mut under_way = FuturesUnordered::new();
        let mut keys: HashSet<SessionKey> = HashSet::new();
        loop {
            let now = inner.clock.now();
            let (mut due, mut next) = (Vec::new(), None::<UnixMs>);
            for (key, beat) in inner.beats().iter_mut().filter(|(key, _)| !keys.contains(key)) {
                match beat.due(now) {
                    Some(at) if at <= now => due.push(key.clone()),
                    Some(at) => next = Some(next.map_or(at, |next| next.min(at))),
                    None => {}
                }
            }
            for key in due {
                keys.insert(key.clone());
                under_way.push(async move {
                    inner.beat(&key).await;
                    key
                });
            }
            let wait = next.map_or(LOOK, |at| {
                Duration::from_millis(u64::try_from(at.saturating_sub(now)).unwrap_or(0)).min(LOOK)
            });
            let is_idle = next.is_none();
            tokio::select! {
                Some(key) = under_way.next(), if !under_way.is_empty() => {
                    keys.remove(&key);
                }
                () = inner.changed.notified() => {}
                // Nobody is woken up for nothing.
                () = tokio::time::sleep(wait), if !is_idle => {}
            }
        }
    }
}

impl Inner {
    fn beats(&self) -> MutexGuard<'_, HashMap<SessionKey, Heartbeat>> {
        self.beats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at one that is due, and runs it where it is to run.
    async fn beat(&self, key: &SessionKey) {
        let file = self.place.file(key).await;
        let load = self.runs.load(key);
        let now = self.clock.now();
        let prompt = match self.beats().get_mut(key) {
            Some(beat) => match beat.step(now, load, &file) {
                HeartbeatStep::Run(_) => beat.rules().prompt.clone(),
                HeartbeatStep::Wait(_) | HeartbeatStep::Skip(_) => return,
            },
            None => return,
        };
        let ran = self.runs.run(heartbeat_request(key, &prompt, now)).await;
        let answer = ran.ok().filter(|outcome| outcome.outcome == Outcome::Done && !outcome.timed_out);
        let reply = match (self.beats().get_mut(key), answer) {
            (Some(beat), Some(outcome)) => beat.answered(&outcome.text, self.clock.now()),
            (Some(beat), None) => {
                beat.failed();
                return;
            }
            (None, _) => return,
        };
        let HeartbeatReply::Alert(alert) = reply else { return };
        match self.place.deliver(key, alert.clone()).await {
            AlertDelivery::Stored => {
                if let Some(beat) = self.beats().get_mut(key) {
                    beat.delivered(&alert, self.clock.now());
                }
            }
            AlertDelivery::Lost => {}
        }
    }
}

#[cfg(test)]
mod tests;
