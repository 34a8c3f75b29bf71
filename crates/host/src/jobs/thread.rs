//! Work of jobs that blocks.

use tokio::task::JoinError;

use super::{JobContext, JobError};

/// Does work in a thread of its own: files are parsed there, and the lease is renewed here meanwhile. It ends when the job is
/// stopped, and also where the future is dropped.
///
/// # Errors
/// When the work panicked.
pub(super) async fn in_own_thread<T, F>(
    cx: &JobContext,
    work: impl FnOnce(JobContext) -> F + Send + 'static,
) -> Result<Result<T, JobError>, JoinError>
where
    T: Send + 'static,
    F: Future<Output = Result<T, JobError>>,
{
    let cx = cx.clone();
    let stop = cx.stop().child_token();
    let _stops = stop.clone().drop_guard();
    let work = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map_err(JobError::new)?.block_on(async {
            tokio::select! {
                biased;
                () = stop.cancelled() => Err(JobError::new("the job was stopped")),
                done = work(cx) => done,
            }
        })
    };
    tokio::task::spawn_blocking(work).await
}
