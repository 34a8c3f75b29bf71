//! Work that is due at a time and outlives the process that asked for it: what a store must do for it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use quipu_protocol::UnixMs;

use crate::{Fence, Fut, Owner, StoreError};

/// Bytes of a job's key, and of its kind, at most.
pub const JOB_KEY_LIMIT: usize = 128;
/// Bytes of a job's payload at most.
pub const JOB_PAYLOAD_LIMIT: usize = 64 << 10;
/// Bytes of a job's error at most.
pub const JOB_ERROR_LIMIT: usize = 4 << 10;
/// Jobs in one store at most.
pub const JOB_LIMIT: u64 = 10_000;

/// The name of a job, unique in its store.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobKey(Arc<str>);

impl JobKey {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for JobKey {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<String> for JobKey {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobKey({})", self.0)
    }
}

/// A job to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewJob {
    /// Its name.
    pub key: JobKey,
    /// Which handler runs it.
    pub kind: String,
    /// What the handler has to know. No secret: it is stored and listed as it is.
    pub payload: String,
    /// When it is due first.
    pub due: JobTime,
    /// Attempts in a row that may fail before the job stands as failed; one at least.
    pub attempt_limit: u32,
}

impl NewJob {
    /// Whether it is within the limits, which every store checks.
    ///
    /// # Errors
    /// `TooLarge`.
    pub fn check(&self) -> Result<(), StoreError> {
        check_size("the key of a job", &self.key.0, JOB_KEY_LIMIT)?;
        check_size("the kind of a job", &self.kind, JOB_KEY_LIMIT)?;
        check_size("the payload of a job", &self.payload, JOB_PAYLOAD_LIMIT)
    }
}

/// Whether the error of a job is within its limit, which every store checks.
///
/// # Errors
/// `TooLarge`.
pub fn check_job_error(error: &str) -> Result<(), StoreError> {
    check_size("the error of a job", error, JOB_ERROR_LIMIT)
}

fn check_size(what: &str, text: &str, limit: usize) -> Result<(), StoreError> {
    if text.len() <= limit {
        return Ok(());
    }
    Err(StoreError::TooLarge { what: what.to_owned(), size: text.len() as u64, limit: limit as u64 })
}

/// When a job is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobTime {
    /// At a time of the calendar. If the clock is set back, the job waits for that time.
    At(UnixMs),
    /// So long from now. If the clock is set back, the job does not wait longer than that.
    After(Duration),
    /// At a time of the calendar, one of many. If the clock is set back, the job is claimed when it would have been, and finds by
    /// [`Job::due`] that its time is still to come.
    Slot(UnixMs),
}

impl JobTime {
    /// That time of the calendar, seen from `now`.
    pub fn from_now(self, now: UnixMs) -> UnixMs {
        match self {
            Self::At(at) | Self::Slot(at) => at,
            Self::After(time) => now.saturating_add(i64::try_from(time.as_millis()).unwrap_or(i64::MAX)),
        }
    }
}

/// What became of a job that was put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobPut {
    /// It is new.
    Added,
    /// One of this name had another kind, payload or limit of attempts. It begins anew; whoever runs the old one has lost it. A
    /// paused one stays paused.
    Replaced,
    /// The same job is there. It stays as it stands, also its due time and a failure.
    Unchanged,
}

/// A job as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Its name.
    pub key: JobKey,
    /// Which handler runs it.
    pub kind: String,
    /// What the handler has to know.
    pub payload: String,
    /// What it is doing.
    pub state: JobState,
    /// Which time it is due for. Stays while attempts are made, and when the clock is set back.
    pub due: UnixMs,
    /// When it can be claimed: when it is due; after a failed attempt, when it is tried again; of one that runs, when its
    /// lease ends. Of a failed one, when it failed; of a paused one, the end of time.
    pub next: UnixMs,
    /// Attempts since the last that succeeded, the one under way included.
    pub attempts: u32,
    /// How many may fail.
    pub attempt_limit: u32,
    /// Why the last attempt failed, where one did since the last that succeeded.
    pub error: Option<String>,
}

/// What a job is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobState {
    /// It waits until it is due.
    Waiting,
    /// A process runs it, or did when it ended: see [`Job::next`].
    Running {
        /// The runner that holds the lease.
        owner: Owner,
    },
    /// Its attempts are used up. It waits for [`Jobs::retry_job`].
    Failed,
    /// A person paused it. It waits for [`Jobs::resume_job`].
    Paused,
}

/// The right to run jobs, which one process has at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunnerLease {
    /// Who has it.
    pub owner: Owner,
    /// Its number: grows with each new holder.
    pub fence: Fence,
}

/// The result of a request for the [`RunnerLease`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunnerLeaseOutcome {
    /// The lease was granted or renewed.
    Granted(RunnerLease),
    /// Another process holds it.
    Refused {
        /// The runner that holds the lease.
        owner: Owner,
        /// Until when, unless that process renews it.
        until: UnixMs,
    },
}

/// A job that this process runs, for the time of its lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobClaim {
    /// The job, with this attempt counted.
    pub job: Job,
    /// The number of the claim: no two claims of a store have the same.
    pub fence: Fence,
}

/// The result of a request for a due job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimOutcome {
    /// A job that is due.
    Job(Box<JobClaim>),
    /// A job whose last attempt ended with its process: its attempts are used up, and it stands as failed now.
    Exhausted(Box<Job>),
    /// Nothing is due.
    Nothing,
}

/// What becomes of a job that was to be retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobRetry {
    /// It is due now, and all its attempts are before it.
    Due,
    /// It runs already, and stays as it is.
    Running,
    /// It is paused, and stays as it is.
    Paused,
    /// There is none of that name.
    Missing,
}

/// When a job is tried again whose attempt failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobFailurePlan {
    /// For the same time, after so long; it stands as failed where that was the last attempt.
    Retry(Duration),
    /// Not for that time any more: it is due at its next one, with all its attempts before it.
    Next(JobTime),
    /// Never: it stands as failed.
    Stop,
}

/// What becomes of a job that was to be paused or resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobPause {
    /// It is now as it was to be.
    Changed,
    /// It was so already, and stays as it is.
    Unchanged,
    /// There is none of that name.
    Missing,
}

/// The jobs of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobKind {
    /// The kind's name, which its handler takes.
    pub kind: String,
    /// How many there are.
    pub count: u64,
    /// How many of them stand as failed.
    pub failed: u64,
    /// When the next one can be claimed ([`Job::next`]); `None` where all have failed. Where the clock was set back and a
    /// job would wait longer than it should, that is now: [`Jobs::claim_job`] sets its time right.
    pub next: Option<UnixMs>,
}

/// Why the last attempt of a job failed whose process ended.
pub const LOST_ATTEMPT: &str = "the process that ran the job ended before the job was done";

/// Work that is due at a time and outlives the process that asked for it. A job runs at least once each time it is due; a
/// process that ends while it runs one leaves it to the next, so that it may run twice. Time comes in as an argument.
///
/// One process at a time has the right to run jobs ([`Jobs::lead_jobs`]), and each job that it runs is claimed for a time, under
/// a fence. Who lets either time go by loses it to another process, and what it says of the job afterwards is refused.
pub trait Jobs: Send + Sync + 'static {
    /// Stores a job. Said again, it changes nothing. Survives the loss of power.
    ///
    /// # Errors
    /// `TooLarge`, `TooManyJobs`, and what any write may say.
    fn put_job(&self, job: NewJob, now: UnixMs) -> Fut<'_, JobPut>;

    /// Stores a job where there is none of its name, as [`Jobs::put_job`] does; whether there was none.
    ///
    /// # Errors
    /// As [`Jobs::put_job`].
    fn put_new_job(&self, job: NewJob, now: UnixMs) -> Fut<'_, bool>;

    /// The same, paused from its beginning.
    ///
    /// # Errors
    /// As [`Jobs::put_job`].
    fn put_paused_job(&self, job: NewJob, now: UnixMs) -> Fut<'_, bool>;

    /// Takes or renews the right to run jobs, for `ttl`. Where the clock was set back, another process keeps it for no longer
    /// than `ttl` from now.
    fn lead_jobs<'a>(&'a self, owner: &'a Owner, now: UnixMs, ttl: Duration) -> Fut<'a, RunnerLeaseOutcome>;

    /// Gives that right back. Nothing happens where it was lost.
    fn resign_jobs<'a>(&'a self, lease: &'a RunnerLease) -> Fut<'a, ()>;

    /// Claims the job of one of these kinds that has waited the longest, for `ttl`. That counts as an attempt.
    ///
    /// # Errors
    /// `NotLeading` where the right to run jobs was lost.
    fn claim_job<'a>(
        &'a self,
        lease: &'a RunnerLease,
        kinds: &'a [&'a str],
        now: UnixMs,
        ttl: Duration,
    ) -> Fut<'a, ClaimOutcome>;

    /// Claims it for `ttl` from now.
    ///
    /// # Errors
    /// `JobLost` where another process claimed it, or it was cancelled or replaced.
    fn renew_job<'a>(&'a self, claim: &'a JobClaim, now: UnixMs, ttl: Duration) -> Fut<'a, ()>;

    /// The attempt succeeded. The job is due again at `next`, or is removed.
    ///
    /// # Errors
    /// As [`Jobs::renew_job`].
    fn finish_job<'a>(&'a self, claim: &'a JobClaim, next: Option<JobTime>, now: UnixMs) -> Fut<'a, ()>;

    /// The attempt failed. The job is due again as `plan` says, or stands as failed; gives which of the two. `error` must hold
    /// no secret; it is kept until an attempt succeeds.
    ///
    /// # Errors
    /// As [`Jobs::renew_job`], and `TooLarge`.
    fn fail_job<'a>(
        &'a self,
        claim: &'a JobClaim,
        error: &'a str,
        plan: JobFailurePlan,
        now: UnixMs,
    ) -> Fut<'a, JobState>;

    /// Gives the job back as if it had not been claimed: it is due now, and the attempt does not count.
    ///
    /// # Errors
    /// As [`Jobs::renew_job`].
    fn release_job<'a>(&'a self, claim: &'a JobClaim, now: UnixMs) -> Fut<'a, ()>;

    /// Makes a job due now, with all its attempts before it; a paused one stays as it is. Survives the loss of power.
    fn retry_job<'a>(&'a self, key: &'a JobKey, now: UnixMs) -> Fut<'a, JobRetry>;

    /// Pauses a job: it is not claimed, and who runs it has lost it. Survives the loss of power.
    fn pause_job<'a>(&'a self, key: &'a JobKey) -> Fut<'a, JobPause>;

    /// Ends the pause of a job: it is due at `due`, with all its attempts before it. Survives the loss of power.
    fn resume_job<'a>(&'a self, key: &'a JobKey, due: JobTime, now: UnixMs) -> Fut<'a, JobPause>;

    /// Removes a job; whether there was one. Who runs it has lost it. Survives the loss of power.
    fn cancel_job<'a>(&'a self, key: &'a JobKey) -> Fut<'a, bool>;

    /// A job.
    fn job<'a>(&'a self, key: &'a JobKey) -> Fut<'a, Option<Job>>;

    /// The jobs behind `after` in the order of their names, at most `limit`.
    fn jobs<'a>(&'a self, after: Option<&'a JobKey>, limit: usize) -> Fut<'a, Vec<Job>>;

    /// Which kinds there are, by name. Cheap: nothing is read but one small row for each job.
    fn job_kinds(&self, now: UnixMs) -> Fut<'_, Vec<JobKind>>;
}
