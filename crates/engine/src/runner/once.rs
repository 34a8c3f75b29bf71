//! One call of a model that nobody watches, for summaries and for all that a runner does.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use crate::mailbox;
use futures_util::FutureExt as _;
use quipu_protocol::{ModelError, ModelErrorKind, Outcome, SessionId, StopReason};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{CallAnswer, RunnerError};
use crate::calls::{CallJob, CallResult, Caller, SideEnd, seal_answer};

impl Caller {
    /// Records it, sends it, settles what it cost. An error is why nothing was sent.
    pub(crate) async fn once(&self, order: CallJob) -> Result<CallResult, Outcome> {
        let (events, mut unwatched) = mailbox::channel(64);
        let watch = async { while unwatched.recv().await.is_some() {} };
        let (made, ()) = tokio::join!(self.attempt(order, events), watch);
        made
    }

    /// The same, stopped when its deadline passes. A provider that breaks down is an error like others.
    pub(crate) async fn once_until(
        &self,
        order: CallJob,
        until: Instant,
    ) -> (Result<CallResult, Outcome>, bool) {
        let cancel = order.cancel.clone();
        let work = AssertUnwindSafe(self.once(order)).catch_unwind();
        let (made, late) = in_time(until, &cancel, work).await;
        let broke_down = |_| {
            let text = "the model's adapter panicked; this is a bug in the adapter";
            Err(Outcome::Failed(ModelError::new(ModelErrorKind::Malformed, text)))
        };
        (made.unwrap_or_else(broke_down), late)
    }
}

/// Does something that ends soon when it is cancelled, and cancels it when its deadline passes; says whether it did.
pub(crate) async fn in_time<T>(
    until: Instant,
    cancel: &CancellationToken,
    work: impl Future<Output = T>,
) -> (T, bool) {
    tokio::pin!(work);
    tokio::select! {
        biased;
        done = &mut work => return (done, false),
        () = tokio::time::sleep_until(until) => {}
    }
    cancel.cancel();
    (work.await, true)
}

/// What a call came to: for whoever asked, and for the record.
pub(crate) fn answered(
    caller: &Caller,
    made: &mut CallResult,
    session: &SessionId,
    late: Option<Duration>,
) -> (Result<CallAnswer, RunnerError>, SideEnd) {
    let CallResult { end, money, .. } = made;
    seal_answer(&mut end.message, &caller.sealer);
    if let Some(error) = &mut end.error {
        error.message = caller.sealer.seal(&error.message).into_owned();
        let aborted = error.kind == ModelErrorKind::Aborted;
        end.message.stop_reason = if aborted { StopReason::Aborted } else { StopReason::Error };
        end.message.error_message.get_or_insert_with(|| error.message.clone());
    }
    let usage = end.message.usage;
    let says = end.error.is_none() || !end.message.content.is_empty();
    let kept = SideEnd {
        usage,
        answer: says.then(|| end.message.clone()),
        error: end.error.as_ref().map(|error| error.message.clone()),
        reserved: Vec::new(),
    };
    let answer = match (&end.error, money.refused.take(), late) {
        (None, _, _) => {
            let (text, message) = (end.message.text(), end.message.clone());
            Ok(CallAnswer { text, message, usage, session: session.clone() })
        }
        (Some(_), Some(outcome), _) => Err(RunnerError::of(outcome)),
        (Some(_), None, Some(after)) => Err(RunnerError::Deadline { after }),
        (Some(error), None, None) if error.kind == ModelErrorKind::Aborted => Err(RunnerError::Aborted),
        (Some(error), None, None) => Err(RunnerError::Model(error.clone())),
    };
    (answer, kept)
}

/// Why nothing was sent.
pub(crate) fn unsent(outcome: Outcome, late: Option<Duration>) -> RunnerError {
    match late {
        Some(after) => RunnerError::Deadline { after },
        None => RunnerError::of(outcome),
    }
}
