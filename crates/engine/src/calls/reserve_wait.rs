//! What others have reserved stands in the way of a call, and will be released or spent.

use std::time::Duration;

use quipu_protocol::Outcome;
use tokio::time::Instant;

use super::{CallJob, Caller};

/// How often what others have reserved is looked at, beside each commit.
const LOOK: Duration = Duration::from_millis(500);

/// How a call waits for what it wants to reserve: no longer than its purse says, and people are told once.
pub(super) struct ReserveWait<'a> {
    caller: &'a Caller,
    order: &'a CallJob,
    began: Instant,
    is_notified: bool,
}

impl<'a> ReserveWait<'a> {
    pub(super) fn new(caller: &'a Caller, order: &'a CallJob) -> Self {
        Self { caller, order, began: Instant::now(), is_notified: false }
    }

    /// Whether the call has waited as long as it may.
    pub(super) fn is_over(&self) -> bool {
        self.began.elapsed() >= self.caller.purse.wait
    }

    /// Waits until something changes; `reserved` says what others hold, and of what.
    pub(super) async fn for_others(&mut self, reserved: &str, changed: impl Future) -> Result<(), Outcome> {
        if !self.is_notified {
            self.is_notified = true;
            let most = self.caller.purse.wait.as_secs_f64().ceil();
            let text = format!("waiting up to {most} s: other calls have reserved {reserved}");
            self.caller.tell(self.order, text).await;
        }
        self.pause(changed).await
    }

    /// Waits until something changes, no longer than is left of what a call waits.
    pub(super) async fn pause(&self, changed: impl Future) -> Result<(), Outcome> {
        let rest = self.caller.purse.wait.saturating_sub(self.began.elapsed()).min(LOOK);
        tokio::select! {
            biased;
            () = self.order.cancel.cancelled() => Err(Outcome::Aborted),
            // A store that is closed says so with the next question.
            _ = tokio::time::timeout(rest, changed) => Ok(()),
        }
    }
}
