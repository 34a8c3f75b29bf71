//! What jobs did: one row for each attempt, kept for a while.

use quipu_protocol::{SessionId, UnixMs};

use crate::{Fut, JobKey};

/// Runs that are kept of one job at most.
pub const JOB_RUNS_EACH: u64 = 100;
/// Runs that are kept of all jobs at most.
pub const JOB_RUNS: u64 = 2_000;
/// Bytes of what is kept of an answer, or of an error, at most.
pub const JOB_RUN_TEXT: usize = 16 << 10;

/// An attempt that begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewJobRun {
    /// The job.
    pub key: JobKey,
    /// The time that the job was due for.
    pub due: UnixMs,
    /// Which attempt for that time, from 1.
    pub attempt: u32,
    /// The target of its answer: a word.
    pub target: String,
    /// When it begins.
    pub began: UnixMs,
}

/// How an attempt stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobRunState {
    /// It runs, or did when its process ended.
    Running,
    /// It ended well.
    Done,
    /// It stopped at a limit: of money or of turns.
    Limit,
    /// It failed.
    Failed,
    /// Its process ended before it did, or the job was taken away meanwhile.
    Interrupted,
}

impl JobRunState {
    /// Every state.
    pub const ALL: [Self; 5] = [Self::Running, Self::Done, Self::Limit, Self::Failed, Self::Interrupted];

    /// Its word in the table and on screens.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Limit => "limit",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
        }
    }
}

/// Whether the answer of a run was delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobDelivery {
    /// There is nothing to deliver.
    Nothing,
    /// It is still to be delivered.
    Pending,
    /// It was delivered.
    Done,
    /// It could not be delivered, and is not tried again.
    Failed,
}

impl JobDelivery {
    /// Its word in the table.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Pending => "pending",
            Self::Done => "done",
            Self::Failed => "failed",
        }
    }
}

/// A run as it is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct JobRun {
    /// Its number: later runs have larger ones.
    pub id: u64,
    /// The job.
    pub key: JobKey,
    /// The time that the job was due for.
    pub due: UnixMs,
    /// Which attempt for that time.
    pub attempt: u32,
    /// When it began.
    pub began: UnixMs,
    /// When it ended, where that is known.
    pub ended: Option<UnixMs>,
    /// How it stands.
    pub state: JobRunState,
    /// The session that it worked in.
    pub session: Option<SessionId>,
    /// US dollars that it cost.
    pub cost: f64,
    /// The answer, or the error: its beginning, sealed.
    pub text: String,
    /// The target of the answer.
    pub target: String,
    /// Whether that was done.
    pub delivery: JobDelivery,
}

/// A change of a run; `None` leaves something as it is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JobRunChange {
    /// The session that it works in.
    pub session: Option<SessionId>,
    /// How it ended, and when.
    pub ended: Option<(JobRunState, UnixMs)>,
    /// US dollars that it cost.
    pub cost: Option<f64>,
    /// The answer, or the error. The beginning of a longer one is kept.
    pub text: Option<String>,
    /// Whether it was delivered.
    pub delivery: Option<JobDelivery>,
}

/// The log of what jobs did. Bounded: [`JOB_RUNS_EACH`] runs of each job and [`JOB_RUNS`] of all. Without a run nothing is
/// written.
pub trait JobRuns: Send + Sync + 'static {
    /// An attempt begins. Earlier ones of the job that still stand as running were interrupted.
    fn begin_job_run(&self, run: NewJobRun) -> Fut<'_, u64>;

    /// Changes a run. Nothing happens where it is not kept any more.
    fn change_job_run(&self, id: u64, change: JobRunChange) -> Fut<'_, ()>;

    /// Runs before `before`, the newest first, at most `limit`; of one job or of all.
    fn job_runs<'a>(
        &'a self,
        key: Option<&'a JobKey>,
        before: Option<u64>,
        limit: usize,
    ) -> Fut<'a, Vec<JobRun>>;

    /// Takes what is still to be delivered to `target`, the oldest first, at most `limit`. Of two that ask at the same time one gets
    /// each run.
    fn take_job_runs<'a>(&'a self, target: &'a str, limit: usize) -> Fut<'a, Vec<JobRun>>;

    /// Takes what could not be delivered to its target, the oldest first, at most `limit`: each is given once, and stays failed.
    fn take_failed_deliveries(&self, limit: usize) -> Fut<'_, Vec<JobRun>>;

    /// What is still to be delivered of a job is not delivered any more: its delivery failed.
    fn end_deliveries<'a>(&'a self, key: &'a JobKey) -> Fut<'a, ()>;
}
