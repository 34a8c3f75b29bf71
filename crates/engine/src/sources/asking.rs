//! One call of a source: with a deadline, and whatever becomes of it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use futures_util::FutureExt as _;
use quipu_seal::Sealer;
use tokio_util::sync::CancellationToken;

use super::{LONGEST, SourceError};

/// What came of a call.
pub(super) enum Answer<T> {
    Given(T),
    /// Why it has no effect.
    Failed(String),
    /// Nobody waits for it any more.
    Cancelled,
}

/// Calls a source. Also a panic while it makes its future, or is asked for its deadline, is only its failure.
pub(super) async fn ask<T>(
    sealer: &Sealer,
    deadline: impl FnOnce() -> Duration,
    cancel: &CancellationToken,
    work: impl Future<Output = Result<T, SourceError>> + Send,
) -> Answer<T> {
    const BROKE_DOWN: &str = "it panicked, which is a bug in the source";
    let Ok(limit) = catch_unwind(AssertUnwindSafe(deadline)) else {
        return Answer::Failed(BROKE_DOWN.into());
    };
    let limit = limit.min(LONGEST);
    tokio::select! {
        biased;
        () = cancel.cancelled() => Answer::Cancelled,
        done = AssertUnwindSafe(work).catch_unwind() => match done {
            Ok(Ok(given)) => Answer::Given(given),
            Ok(Err(error)) => Answer::Failed(sealer.seal(&error.to_string()).into_owned()),
            Err(_) => Answer::Failed(BROKE_DOWN.into()),
        },
        () = tokio::time::sleep(limit) => {
            Answer::Failed(format!("it did not answer within {} s", limit.as_secs_f64()))
        }
    }
}
