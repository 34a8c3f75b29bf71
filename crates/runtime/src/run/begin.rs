//! How runs come to their turn: in their conversation first, then among those that run.

use std::sync::{Arc, Mutex};

use tokio::sync::{mpsc, oneshot};

use super::stop::{ContinuedGuard, RunStop};
use super::{ActiveRun, Conversations, Inner, OWED_RETRY, RunControl, RunEvent, STEERED, STOPPED, lock};
use crate::keys::{KeyPlace, SessionKey};
use crate::lanes::{CRON_LANE, LanePriority, LaneTask, MAIN_LANE, SUBAGENT_LANE, nested_lane};
use crate::queue::QueueTurn;
use crate::replies::OwedReply;
use crate::source::ConversationClaim;

impl Conversations {
    pub(super) fn begin(&self, key: SessionKey, turn: Arc<QueueTurn>) {
        let stop = RunStop::default();
        let (sender, steer) = mpsc::channel(STEERED);
        let active =
            ActiveRun { turn: turn.id.clone(), group: turn.group.clone(), stop: stop.clone(), steer: sender };
        lock(&self.0.active).insert(key.clone(), active);
        self.0.changed.notify_waiters();
        let control = RunControl { stop: stop.clone(), steer };
        let task = LaneTask { timeout: self.0.timeout, ..lane_of(&key) };
        let lanes = self.0.lanes.clone();
        let (inner, of, run) = (self.0.clone(), key.clone(), turn.clone());
        let (give, result) = oneshot::channel();
        let waiting = WaitingClaim::default();
        let claim = self.0.clone().claim(key.clone(), stop.clone(), waiting.clone());
        let ticket = lanes.enqueue_in_session_behind(&key, task, claim, move |handle, claim| async move {
            let claim = claim.take();
            if control.stop.begins() {
                drop(give.send(inner.attempt(&of, &run, &handle, control).await));
            }
            drop(claim);
        });
        let inner = self.0.clone();
        tokio::spawn(async move {
            let result = tokio::select! {
                biased;
                // It does not hold up who stops it that the lane is full, or that a front works in the conversation.
                () = stop.given_up() => {
                    drop(waiting.take());
                    Err(STOPPED.into())
                }
                result = result => match result {
                    Ok(result) => result,
                    Err(_) => Err(ticket.wait().await.err().map_or_else(String::new, |why| why.to_string())),
                },
            };
            inner.finish(&key, &turn, result).await;
        });
    }

    /// Answers what a process that ended had begun to answer.
    pub(super) fn answer_owed(&self, key: &SessionKey, owed: OwedReply) {
        let task = LaneTask { timeout: self.0.timeout, ..lane_of(key) };
        let (inner, of) = (self.0.clone(), key.clone());
        // Before the turns of the conversation, which wait behind it in its lane. Where it fails, the next of them tries again, or time.
        let Some(guard) = ContinuedGuard::new(&inner, key, &owed) else { return };
        if lock(&inner.active).contains_key(key) {
            // It is answered before the turn that runs there.
            return;
        }
        let stop = guard.stop.clone();
        let (members, turn) = (owed.members.clone(), owed.turn.clone());
        let (give, result) = oneshot::channel();
        let (of, task_inner, own) = (of, inner.clone(), stop.clone());
        let waiting = WaitingClaim::default();
        let claim = self.0.clone().claim(key.clone(), stop.clone(), waiting.clone());
        drop(self.0.lanes.enqueue_in_session_behind(key, task, claim, move |handle, claim| async move {
            let claim = claim.take();
            if own.begins() {
                drop(give.send(task_inner.answer_owed(&of, owed, &handle, &own).await));
            }
            drop(claim);
        }));
        let key = key.clone();
        tokio::spawn(async move {
            let done = tokio::select! {
                biased;
                () = stop.given_up() => {
                    drop(waiting.take());
                    Ok(())
                }
                done = result => done.unwrap_or_else(|_| Err("the run broke off".into())),
            };
            if stop.asked.is_cancelled() {
                inner.give_up(&key, &turn).await;
            }
            let Err(why) = done else { return };
            for reader in inner.readers_of(&members) {
                drop(reader.try_send(RunEvent::Failing(why.clone())));
            }
            drop(guard);
            let all = Arc::downgrade(&inner);
            drop(inner);
            tokio::time::sleep(OWED_RETRY).await;
            if let Some(all) = all.upgrade().map(Conversations) {
                let owed = all.0.replies.as_ref().and_then(|replies| replies.owed(&key));
                if let Some(owed) = owed.filter(|owed| owed.turn == turn) {
                    all.answer_owed(&key, owed);
                }
            }
        });
    }
}

impl Inner {
    /// The conversation for a run, once no front works in it by itself; nothing for a run that does not begin.
    async fn claim(self: Arc<Self>, key: SessionKey, stop: RunStop, waiting: WaitingClaim) -> WaitingClaim {
        tokio::select! {
            claim = self.sessions.claim(&key) => *lock(&waiting.0) = Some(claim),
            () = stop.given_up() => {}
        }
        if stop.is_given_up() {
            drop(waiting.take());
        }
        waiting
    }
}

/// The conversation of a run that waits for its place. A run that is stopped meanwhile gives it back at once.
#[derive(Clone, Default)]
struct WaitingClaim(Arc<Mutex<Option<ConversationClaim>>>);

impl WaitingClaim {
    fn take(&self) -> Option<ConversationClaim> {
        lock(&self.0).take()
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
