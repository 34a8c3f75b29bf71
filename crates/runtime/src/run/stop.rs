//! How runs are stopped, and which runs of an earlier process are continued.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use quipu::protocol::{ItemId, Outcome};
use tokio_util::sync::CancellationToken;

use super::{Inner, RunOutcome, STORE_RETRY, lock};
use crate::keys::SessionKey;
use crate::queue::{Authority, MessageGroup};
use crate::replies::OwedReply;

/// How a run is stopped.
#[derive(Clone, Default)]
pub(super) struct RunStop {
    pub(super) asked: CancellationToken,
    /// The run is over, and that is stored.
    pub(super) stored: CancellationToken,
    /// Whether it began, or is given up before that.
    begun: Arc<OnceLock<bool>>,
    /// What a run of an earlier process had said is known, and its model is about to be asked again.
    continues: Arc<AtomicBool>,
}

impl RunStop {
    /// Whether the run may begin now.
    pub(super) fn begins(&self) -> bool {
        *self.begun.get_or_init(|| true)
    }

    /// Whether it was stopped before it began.
    pub(super) fn is_given_up(&self) -> bool {
        self.begun.get() == Some(&false)
    }

    /// From here on a message that interrupts aborts the run; one that came before is met by who continues it, in the inbox.
    pub(super) fn continues(&self) {
        self.continues.store(true, Ordering::SeqCst);
    }

    /// Resolved = the run was to be stopped before it began, and does not begin.
    pub(super) async fn given_up(&self) {
        self.asked.cancelled().await;
        if *self.begun.get_or_init(|| false) {
            std::future::pending::<()>().await;
        }
    }
}

/// A run of a process before this one, which is continued.
pub(super) struct ContinuedRun {
    pub(super) group: MessageGroup,
    pub(super) stop: RunStop,
}

/// Until it is dropped, a run of a process before this one is known as continued.
pub(super) struct ContinuedGuard {
    inner: Arc<Inner>,
    key: SessionKey,
    pub(super) stop: RunStop,
}

impl ContinuedGuard {
    /// `None` where it is continued already.
    pub(super) fn new(inner: &Arc<Inner>, key: &SessionKey, owed: &OwedReply) -> Option<Self> {
        let mut all = lock(&inner.continued);
        if all.contains_key(key) {
            return None;
        }
        let stop = RunStop::default();
        all.insert(key.clone(), ContinuedRun { group: owed.group(), stop: stop.clone() });
        Some(Self { inner: inner.clone(), key: key.clone(), stop })
    }
}

impl Drop for ContinuedGuard {
    fn drop(&mut self) {
        lock(&self.inner.continued).remove(&self.key);
        self.stop.stored.cancel();
    }
}

impl Inner {
    /// Nothing more of a turn is said. It ends once that is stored.
    pub(super) async fn give_up(&self, key: &SessionKey, turn: &ItemId) {
        let Some(replies) = &self.replies else { return };
        let Some(owed) = replies.owed(key).filter(|owed| owed.turn == *turn) else { return };
        while replies.finish(key, turn).await.is_err() {
            tokio::time::sleep(STORE_RETRY).await;
        }
        self.say_ended(&owed.members, RunOutcome::unseen(owed.session, Outcome::Aborted));
    }

    /// Aborts a run of an earlier process for a message that is queued. What it had said before is delivered.
    pub(super) fn interrupt_continued(&self, key: &SessionKey, authority: &Authority) {
        let continued = lock(&self.continued);
        let run = continued.get(key).filter(|run| authority.may_stop(&run.group.authority));
        if let Some(run) = run.filter(|run| run.stop.continues.load(Ordering::SeqCst)) {
            run.stop.asked.cancel();
        }
    }

    /// Gives up what is owed to somebody who stops it, where nothing runs that would say it.
    pub(super) async fn stop_owed(&self, key: &SessionKey, authority: &Authority) {
        let owed = self.replies.as_ref().and_then(|replies| replies.owed(key));
        let Some(owed) = owed.filter(|owed| authority.may_stop(&owed.group().authority)) else {
            return;
        };
        let is_active = lock(&self.active).get(key).is_some_and(|run| run.turn == owed.turn);
        if !is_active && !lock(&self.continued).contains_key(key) {
            self.give_up(key, &owed.turn).await;
        }
    }

    /// How a turn is stopped that is being aborted, once it has begun; `None` where it ends.
    pub(super) async fn begun(&self, key: &SessionKey, turn: &ItemId) -> Option<RunStop> {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(run) = lock(&self.active).get(key).filter(|run| run.turn == *turn) {
                return Some(run.stop.clone());
            }
            if self.inbox.aborting(key).await.as_ref() != Some(turn) {
                return None;
            }
            changed.await;
        }
    }
}
