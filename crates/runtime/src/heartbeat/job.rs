//! The job that wakes a heartbeat when its time has come.

use std::time::Duration;

use futures_util::future::BoxFuture;
use quipu::store::{Job, JobTime, NewJob};
use quipu_host::jobs::{HEARTBEAT_JOB, JobContext, JobError, JobHandler, JobOutcome};
use quipu_schedule::INTERVAL_LEAST;
use serde::{Deserialize, Serialize};

use super::serve::{Heartbeats, WakeOutcome};
use super::settings::HeartbeatRules;
use super::state::WakeReason;
use crate::keys::SessionKey;

/// What a job is to wake. A job whose interval changes begins anew.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct HeartbeatWork {
    conversation: String,
    every_ms: u64,
}

/// Attempts in a row that may fail: they wake, and do nothing that could fail.
const ATTEMPTS: u32 = 3;

/// The job of a conversation's heartbeat; `None` where heartbeats are off. A process that was not there at its time wakes it once.
#[must_use]
pub fn heartbeat_job(key: &SessionKey, rules: &HeartbeatRules) -> Option<NewJob> {
    let every = interval(rules)?;
    let every_ms = u64::try_from(every.as_millis()).unwrap_or(u64::MAX);
    let conversation = key.to_string();
    let name = format!("{HEARTBEAT_JOB}/{conversation}").into();
    let payload = serde_json::to_string(&HeartbeatWork { conversation, every_ms }).ok()?;
    Some(NewJob {
        key: name,
        kind: HEARTBEAT_JOB.to_owned(),
        payload,
        due: JobTime::After(every),
        attempt_limit: ATTEMPTS,
    })
}

/// The conversation whose heartbeat a job wakes, and how often; `None` where the job does not say so.
#[must_use]
pub fn heartbeat_of(job: &Job) -> Option<(SessionKey, Duration)> {
    let work: HeartbeatWork = serde_json::from_str(&job.payload).ok()?;
    Some((SessionKey::parse(&work.conversation).ok()?, Duration::from_millis(work.every_ms)))
}

/// No job is due more often than schedules may be.
fn interval(rules: &HeartbeatRules) -> Option<Duration> {
    rules.every.map(|every| every.max(INTERVAL_LEAST))
}

/// Wakes heartbeats, for runners of jobs. Bears being done twice: what wakes a heartbeat twice runs it once.
pub struct HeartbeatJob(Heartbeats);

impl HeartbeatJob {
    /// For the heartbeats of this process.
    #[must_use]
    pub fn new(heartbeats: Heartbeats) -> Self {
        Self(heartbeats)
    }

    fn wake(&self, job: &Job) -> Result<JobOutcome, JobError> {
        let work: HeartbeatWork = serde_json::from_str(&job.payload).map_err(JobError::new)?;
        let key = SessionKey::parse(&work.conversation).map_err(JobError::new)?;
        let every = self.0.rules(&key).as_ref().and_then(interval);
        match (every, self.0.wake(&key, WakeReason::Interval)) {
            (Some(every), WakeOutcome::Woken) => Ok(JobOutcome::Again(JobTime::After(every))),
            // Somebody switched it off.
            (None, _) | (Some(_), WakeOutcome::Unknown) => Ok(JobOutcome::Done),
        }
    }
}

impl JobHandler for HeartbeatJob {
    fn kind(&self) -> &str {
        HEARTBEAT_JOB
    }

    fn run<'a>(&'a self, job: &'a Job, _: &'a JobContext) -> BoxFuture<'a, Result<JobOutcome, JobError>> {
        Box::pin(std::future::ready(self.wake(job)))
    }
}
