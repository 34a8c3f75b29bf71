//! One attempt of a job with a schedule: the work, the log, and who is told.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use quipu_protocol::{SessionId, UnixMs};
use quipu_store::{Job, JobDelivery, JobRun, JobRunChange, JobRunState, JobRuns, NewJobRun};

use super::{deliver, prompt};
use crate::Home;
use crate::jobs::{JobContext, JobError, JobHandler, JobOutcome};
use crate::scheduled_job::{JobTarget, SCHEDULED, ScheduledJob, ScheduledWork};

/// How long one attempt may take.
const DEADLINE: Duration = Duration::from_secs(60 * 60);
/// After how long a job is tried again that failed once, twice and so on.
const RETRIES: [Duration; 5] = [
    Duration::from_secs(30),
    Duration::from_secs(60),
    Duration::from_secs(5 * 60),
    Duration::from_secs(15 * 60),
    Duration::from_secs(60 * 60),
];
/// Runs that are lost with their process, one after the other, before the job waits for its next time.
const LOST: usize = 3;

/// What came of the work of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkEnd {
    /// How it ended: `Done` or `Limit`.
    pub state: JobRunState,
    /// The session that it worked in.
    pub session: Option<SessionId>,
    /// US dollars that it cost.
    pub cost: f64,
    /// The answer, sealed. Nobody is told of an empty one.
    pub text: String,
}

/// Work that this program does by itself when a job is due.
pub trait BuiltInWork: Send + Sync + 'static {
    /// Its name in jobs.
    fn name(&self) -> &str;

    /// Does it. It may be done again after an attempt that was lost.
    fn run<'a>(
        &'a self,
        arguments: &'a [String],
        cx: &'a JobContext,
    ) -> BoxFuture<'a, Result<WorkEnd, JobError>>;
}

/// Runs jobs with a schedule.
pub struct ScheduledHandler {
    home: Home,
    built_in: Vec<Arc<dyn BuiltInWork>>,
}

impl ScheduledHandler {
    /// For the store of a place.
    pub fn new(home: Home, built_in: Vec<Arc<dyn BuiltInWork>>) -> Self {
        // The store that a front has open stays the one that others find.
        Self { home: home.apart(), built_in }
    }

    async fn attempt(&self, job: &Job, cx: &JobContext) -> Result<JobOutcome, JobError> {
        let scheduled = ScheduledJob::of_payload(&job.payload).map_err(JobError::new)?;
        let again = || {
            let next = scheduled.next(job.key.as_str(), crate::now()).map_err(JobError::new)?;
            Ok::<_, JobError>(next.map_or(JobOutcome::Done, JobOutcome::Again))
        };
        if job.due > crate::now() {
            // The clock was set back: its time is still to come.
            return again();
        }
        let store = self.home.store().await.map_err(JobError::new)?;
        let log: &dyn JobRuns = &*store;
        let earlier = log.job_runs(Some(&job.key), None, LOST).await.map_err(JobError::new)?;
        if let Some(run) = undelivered(&earlier, job, &scheduled.target) {
            self.tell(log, &scheduled.target, run, cx).await?;
            return again();
        }
        let lost = earlier.iter().take_while(|run| run.ended.is_none()).count();
        let new = NewJobRun {
            key: job.key.clone(),
            due: job.due,
            attempt: job.attempts,
            target: scheduled.target.word().to_owned(),
            began: crate::now(),
        };
        let id = log.begin_job_run(new.clone()).await.map_err(JobError::new)?;
        if lost >= LOST && !scheduled.when.is_once() {
            let text = format!("its process ended {LOST} times in a row; the job waits for its next time");
            self.end(log, id, JobRunState::Failed, text).await?;
            return again();
        }
        let worked = match &scheduled.work {
            ScheduledWork::Prompt(work) => {
                let began = |session: SessionId| async move {
                    let change = JobRunChange { session: Some(session), ..JobRunChange::default() };
                    log.change_job_run(id, change).await.map_err(JobError::new)
                };
                prompt::run(&self.home, work, cx.stop(), began).await
            }
            ScheduledWork::BuiltIn { name, arguments } => {
                match self.built_in.iter().find(|work| work.name() == name) {
                    Some(work) => work.run(arguments, cx).await,
                    None => Err(JobError::new(format!("this version has no built-in work `{name}`"))),
                }
            }
        };
        let end = match worked {
            Ok(end) => end,
            Err(error) => {
                let state =
                    if cx.stop().is_cancelled() { JobRunState::Interrupted } else { JobRunState::Failed };
                self.end(log, id, state, crate::sealed(&error.to_string())).await?;
                return Err(error);
            }
        };
        let silent = scheduled.target == JobTarget::Nobody || end.text.trim().is_empty();
        let delivery = if silent { JobDelivery::Nothing } else { JobDelivery::Pending };
        let run = JobRun {
            id,
            key: job.key.clone(),
            due: job.due,
            attempt: job.attempts,
            began: new.began,
            ended: Some(crate::now()),
            state: end.state,
            session: end.session.clone(),
            cost: end.cost,
            text: end.text.clone(),
            target: new.target,
            delivery,
        };
        let change = JobRunChange {
            session: end.session,
            ended: Some((end.state, crate::now())),
            cost: Some(end.cost),
            text: Some(end.text),
            delivery: Some(delivery),
        };
        log.change_job_run(id, change).await.map_err(JobError::new)?;
        if delivery == JobDelivery::Pending && scheduled.target != JobTarget::Terminal {
            self.tell(log, &scheduled.target, &run, cx).await?;
        }
        again()
    }

    async fn end(
        &self,
        log: &dyn JobRuns,
        id: u64,
        state: JobRunState,
        text: String,
    ) -> Result<(), JobError> {
        let ended = Some((state, crate::now()));
        let change = JobRunChange { ended, text: Some(text), ..JobRunChange::default() };
        log.change_job_run(id, change).await.map_err(JobError::new)
    }

    async fn tell(
        &self,
        log: &dyn JobRuns,
        target: &JobTarget,
        run: &JobRun,
        cx: &JobContext,
    ) -> Result<(), JobError> {
        let told = cx.stop().run_until_cancelled(deliver::deliver(&self.home, target, run)).await;
        told.unwrap_or_else(|| Err(JobError::new("the job was stopped")))?;
        let change = JobRunChange { delivery: Some(JobDelivery::Done), ..JobRunChange::default() };
        log.change_job_run(run.id, change).await.map_err(JobError::new)
    }
}

/// A run for the same time that ended well, and whose answer could not be told: it is not done again.
fn undelivered<'a>(earlier: &'a [JobRun], job: &Job, target: &JobTarget) -> Option<&'a JobRun> {
    let run = earlier.first()?;
    let is_open = run.due == job.due && run.delivery == JobDelivery::Pending;
    (is_open && run.ended.is_some() && *target != JobTarget::Terminal).then_some(run)
}

impl JobHandler for ScheduledHandler {
    fn kind(&self) -> &str {
        SCHEDULED
    }

    fn deadline(&self) -> Duration {
        DEADLINE
    }

    fn retry(&self, job: &Job, now: UnixMs) -> Option<Duration> {
        let failed = usize::try_from(job.attempts.saturating_sub(1)).unwrap_or(usize::MAX);
        if let Some(wait) = RETRIES.get(failed) {
            return Some(*wait);
        }
        // Often enough: it waits for its next time.
        let scheduled = ScheduledJob::of_payload(&job.payload).ok()?;
        let next = scheduled.schedule(job.key.as_str()).ok()?.next_after(now)?;
        Some(Duration::from_millis(u64::try_from(next - now).unwrap_or(0)).max(RETRIES[0]))
    }

    fn run<'a>(&'a self, job: &'a Job, cx: &'a JobContext) -> BoxFuture<'a, Result<JobOutcome, JobError>> {
        Box::pin(self.attempt(job, cx))
    }
}
