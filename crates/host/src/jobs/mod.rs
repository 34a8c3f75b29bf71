//! Jobs: work that is due at a time, stored until it is done. A [`JobHandler`] does the work of one kind, a [`JobRunner`] gives
//! it the jobs that are due, and [`run_alongside`] drives one while a long-lived front runs. `docs/schedule.md` says what holds.

mod answers;
mod dream;
mod drive;
mod import_now;
mod import_watch;
mod models;
mod past_build;
mod runner;
mod scheduled;
mod thread;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use quipu::{Runner, RunnerError};
use quipu_protocol::UnixMs;
use quipu_store::{Job, JobFailurePlan, JobTime};
use tokio_util::sync::CancellationToken;

use crate::{Home, HostNotice, Observer};

pub use crate::job_notice::JobNotice;
pub use crate::scheduled_job::{DREAM, PAST_BUILD, past_work};
pub use answers::take_answers;
pub use dream::{DreamJob, keep_dream_job};
pub use drive::{keep_dream_jobs, run_alongside, watch_alongside};
pub use import_now::IMPORT_NOW;
pub use import_watch::{IMPORT_WATCH, ImportWatch};
pub use models::models_for_jobs;
pub(crate) use runner::RunnerSeat;
pub use runner::{DueRun, JobRunner, RunnerOptions};
pub use scheduled::{BuiltInWork, ScheduledHandler, WorkEnd};

/// The kind of the jobs that wake heartbeats: the process that has the conversations runs them, and no other.
pub const HEARTBEAT_JOB: &str = "heartbeat";

/// Does the work of the jobs of one kind.
///
/// A job runs at least once each time it is due. It runs again when its process ends before that is stored, so its work must
/// bear being done twice. One that returns an error, panics, or takes longer than its deadline has used up an attempt; it is
/// tried again later, until its attempts are used up.
///
/// What blocks its thread without `await` cannot be ended, and its lease is not renewed meanwhile.
///
/// ```
/// use std::time::Duration;
///
/// use futures_util::future::BoxFuture;
/// use quipu_host::jobs::{JobContext, JobError, JobHandler, JobOutcome};
/// use quipu_store::{Job, JobTime};
///
/// /// Removes files of yesterday from the directory that the job names, every hour.
/// struct Sweep;
///
/// impl JobHandler for Sweep {
///     fn kind(&self) -> &str {
///         "sweep"
///     }
///
///     fn deadline(&self) -> Duration {
///         Duration::from_secs(60)
///     }
///
///     fn run<'a>(&'a self, job: &'a Job, cx: &'a JobContext) -> BoxFuture<'a, Result<JobOutcome, JobError>> {
///         Box::pin(async move {
///             let mut files = tokio::fs::read_dir(&job.payload).await.map_err(JobError::new)?;
///             while let Some(file) = files.next_entry().await.map_err(JobError::new)? {
///                 if cx.stop().is_cancelled() {
///                     // The job is given back, and due at once for the next runner.
///                     return Err(JobError::new("the job was stopped"));
///                 }
///                 let age = file.metadata().await.ok().and_then(|found| found.modified().ok()?.elapsed().ok());
///                 if age.is_some_and(|age| age > Duration::from_secs(24 * 60 * 60)) {
///                     // Gone already is as good: an attempt before this one may have done it.
///                     tokio::fs::remove_file(file.path()).await.ok();
///                 }
///             }
///             Ok(JobOutcome::Again(JobTime::After(Duration::from_secs(60 * 60))))
///         })
///     }
/// }
/// ```
pub trait JobHandler: Send + Sync + 'static {
    /// The kind of its jobs: at most 128 bytes.
    fn kind(&self) -> &str;

    /// How long one attempt may take.
    fn deadline(&self) -> Duration {
        Duration::from_secs(600)
    }

    /// How many of its jobs run at once at most. Jobs of other kinds run beside them.
    fn at_once(&self) -> usize {
        1
    }

    /// When a job is tried again whose attempt failed; `None` for the times of the runner. [`Job::attempts`] counts the one that
    /// failed.
    fn retry(&self, _job: &Job, _now: UnixMs) -> Option<JobFailurePlan> {
        None
    }

    /// Records how an attempt ended whose work was dropped before it was done.
    ///
    /// # Errors
    /// Why it could not be recorded.
    fn dropped<'a>(&'a self, _job: &'a Job, _why: DropReason) -> BoxFuture<'a, Result<(), JobError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Makes one attempt. Dropped where it takes too long, the job was removed, or the process ends.
    fn run<'a>(&'a self, job: &'a Job, cx: &'a JobContext) -> BoxFuture<'a, Result<JobOutcome, JobError>>;
}

/// What comes after an attempt that succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobOutcome {
    /// Nothing: the job is removed.
    Done,
    /// The job is due again, a second from now at the earliest.
    Again(JobTime),
}

/// Why the work of an attempt is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropReason {
    /// It took longer than the deadline of its handler.
    Deadline(Duration),
    /// The runner ends; the job is given back.
    Shutdown,
    /// The job was paused, removed or replaced, or another process took it over.
    Lost,
}

/// Why an attempt failed, for people. It is sealed, and 4,096 bytes of it are stored.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{text}")]
pub struct JobError {
    text: String,
    plan: Option<JobFailurePlan>,
    /// US dollars that it cost all the same.
    cost: f64,
}

impl JobError {
    /// In one line, without a full stop.
    pub fn new(why: impl fmt::Display) -> Self {
        Self { text: why.to_string(), plan: None, cost: 0.0 }
    }

    /// Says when the job is tried again, in the place of [`JobHandler::retry`].
    #[must_use]
    pub fn planned(self, plan: JobFailurePlan) -> Self {
        Self { plan: Some(plan), ..self }
    }

    /// Says what it cost all the same, in US dollars.
    #[must_use]
    pub fn costing(self, cost: f64) -> Self {
        Self { cost, ..self }
    }
}

/// What a handler is given beside its job.
#[derive(Clone)]
pub struct JobContext {
    stop: CancellationToken,
    observer: Arc<dyn Observer>,
    models: Option<Arc<MakeRunner>>,
    /// The one of this attempt.
    runner: Arc<OnceLock<Runner>>,
    /// Cancelled when the attempt is over.
    over: CancellationToken,
}

/// Makes what asks models for a job.
type MakeRunner = dyn Fn() -> Result<Runner, RunnerError> + Send + Sync;

impl JobContext {
    /// Cancelled when the runner ends: the handler has two seconds to return. An error that it returns then gives the job
    /// back, and does not count as an attempt.
    pub fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    /// Asks models for the job: the same runner for the whole attempt. Its calls and its child sessions are recorded in sessions
    /// of their own. They are aborted when the attempt is over, and the runner is `Closed` from then on, also where the job
    /// gave it to a task of its own. The job's deadline goes on meanwhile. May read files, and run a command that knows a key.
    ///
    /// # Errors
    /// `NoProvider` where no model can be asked, or the program gives jobs none; `Model` where its credential is wrong.
    pub fn runner(&self) -> Result<Runner, RunnerError> {
        if let Some(runner) = self.runner.get() {
            return Ok(runner.clone());
        }
        let none = || RunnerError::NoProvider { why: "this program does not give models to jobs".into() };
        let runner = (self.models.as_ref().ok_or_else(none)?)()?.until(self.over.clone());
        Ok(self.runner.get_or_init(|| runner).clone())
    }

    /// Tells people that something is wrong, though the job goes on.
    pub fn warn(&self, text: impl Into<String>) {
        self.observer.notice(HostNotice { is_warning: true, text: text.into(), advice: None });
    }
}

/// The handlers that every front has.
pub fn handlers(home: &Home) -> Vec<Arc<dyn JobHandler>> {
    let built_in: Vec<Arc<dyn BuiltInWork>> = vec![
        Arc::new(import_now::RegularImport::new(home.clone())),
        Arc::new(past_build::PastBuild::new(home.clone())),
    ];
    vec![
        Arc::new(ImportWatch::new(home.clone())),
        Arc::new(ScheduledHandler::new(home, built_in)),
        Arc::new(DreamJob::new(home)),
    ]
}
