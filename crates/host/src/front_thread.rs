//! Work beside a front that lives long.

use std::future::Future;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::Failure;

/// How work beside a front ended.
pub(crate) enum ThreadEnd {
    /// It was done, or asked to end.
    Done,
    /// It could not go on.
    Failed(Failure),
    /// A bug.
    Panicked,
    /// It was asked to end and did not in time. It blocks its thread, which ends with the process.
    Blocked,
}

/// Does work in a thread with a runtime of its own, so that nothing that it does, a panic neither, is the front's. Ends with it;
/// once `stop` is cancelled, which the work sees itself, after `patience` at the latest.
pub(crate) async fn run_in_thread<F>(
    stop: &CancellationToken,
    patience: Duration,
    work: impl FnOnce() -> F + Send + 'static,
) -> ThreadEnd
where
    F: Future<Output = Result<(), Failure>>,
{
    let mut thread = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(work())
    });
    let ended = tokio::select! {
        ended = &mut thread => ended,
        () = stop.cancelled() => match tokio::time::timeout(patience, &mut thread).await {
            Ok(ended) => ended,
            Err(_) => return ThreadEnd::Blocked,
        },
    };
    match ended {
        Ok(Ok(())) => ThreadEnd::Done,
        Ok(Err(failure)) => ThreadEnd::Failed(failure),
        Err(_) => ThreadEnd::Panicked,
    }
}
