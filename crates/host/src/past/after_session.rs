//! A build of a project's past after a session in it has ended: a job, due when the session counts as over.

use std::time::Duration;

use futures_util::future::BoxFuture;
use quipu::{Hook, HookContext, HookError};
use quipu_past::{IDLE, PastScope};
use quipu_schedule::Recurrence;
use quipu_store::{JobKey, JobState, Jobs as _};

use crate::scheduled_job::{JobTarget, ScheduledJob, past_work};
use crate::{Home, now};

/// What is waited for beyond a pause.
const SPARE: Duration = Duration::from_secs(60);

/// Adds the job when a session ends. There is one for each project: the next session that ends puts it off.
pub(crate) struct AfterSession {
    home: Home,
    scope: PastScope,
}

impl AfterSession {
    pub(crate) fn new(home: &Home, scope: PastScope) -> Self {
        Self { home: home.apart(), scope }
    }

    async fn add(&self) -> Result<(), HookError> {
        let store = self.home.store().await.map_err(HookError::new)?;
        if store.is_read_only() {
            return Ok(());
        }
        let mut key = JobKey::from(self.scope.session().as_str());
        // One that runs now would be lost: what it does not see any more is for the one after it.
        let there = store.job(&key).await.map_err(HookError::new)?;
        if there.is_some_and(|job| matches!(job.state, JobState::Running { .. })) {
            key = JobKey::from(format!("{}-next", self.scope.session()));
        }
        let spare = i64::try_from(SPARE.as_millis()).unwrap_or_default();
        let job = ScheduledJob {
            when: Recurrence::At(now().saturating_add(IDLE).saturating_add(spare)),
            jitter_ms: 0,
            work: past_work(&self.scope),
            target: JobTarget::Nobody,
        };
        let job = job.new_job(key, now()).map_err(HookError::new)?;
        store.put_job(job, now()).await.map_err(HookError::new)?;
        Ok(())
    }
}

impl Hook for AfterSession {
    fn name(&self) -> &str {
        "past"
    }

    fn session_end<'a>(&'a self, _: &'a HookContext) -> BoxFuture<'a, Result<(), HookError>> {
        Box::pin(self.add())
    }
}
