//! What jobs have to say to whoever starts a terminal next.

use quipu_store::{JobRun, JobRuns as _, StoreError};

use crate::{Home, JobTarget};

/// Answers that one start tells at most; the others come with the next one.
const AT_ONCE: usize = 10;

/// The answers that wait for a terminal, and those that their targets could not be given, the oldest first: each is given once.
/// None where nobody here has the store open.
///
/// # Errors
/// What the store says.
pub async fn take_answers(home: &Home) -> Result<Vec<JobRun>, StoreError> {
    match home.opened_store() {
        Some(store) if !store.is_read_only() => {
            let mut runs = store.take_job_runs(JobTarget::Terminal.word(), AT_ONCE).await?;
            runs.extend(store.take_failed_deliveries(AT_ONCE - runs.len().min(AT_ONCE)).await?);
            runs.sort_by_key(|run| run.id);
            Ok(runs)
        }
        Some(_) | None => Ok(Vec::new()),
    }
}
