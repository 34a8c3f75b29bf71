//! The table of jobs.

use std::time::Duration;

use quipu_protocol::UnixMs;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::failure::{Failure, Outcome};
use super::{SqliteStore, rows};
use crate::{
    ClaimOutcome, Durability, Fence, Fut, JOB_LIMIT, Job, JobClaim, JobFailurePlan, JobKey, JobKind,
    JobPause, JobPut, JobRetry, JobState, JobTime, Jobs, LOST_ATTEMPT, NewJob, Owner, RunnerLease,
    RunnerLeaseOutcome, StoreError, check_job_error,
};

/// The lease of whoever runs jobs, among those of refs.
const RUNNER: &str = "quipu.jobs";

/// What [`read`] reads.
const COLUMNS: &str = "key, kind, payload, state, due, attempts, attempt_limit, error, owner, next";

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// A time, and how far from now it may be at most.
fn when(time: JobTime, now: UnixMs) -> (i64, Option<i64>) {
    let span = match time {
        JobTime::At(_) => None,
        JobTime::After(time) => Some(millis(time)),
        JobTime::Slot(at) => Some(at.saturating_sub(now).max(0)),
    };
    (time.from_now(now), span)
}

/// Other programs may write anything into the table: what cannot be read counts as failed.
fn read(row: &Row<'_>) -> rusqlite::Result<Job> {
    let owned = |column| Ok::<_, rusqlite::Error>(rows::text(row, column)?.unwrap_or_default().into_owned());
    let number = |column| Ok::<_, rusqlite::Error>(u32::try_from(rows::integer(row, column)?).unwrap_or(0));
    let state = match owned(3)?.as_str() {
        "waiting" => JobState::Waiting,
        "running" => JobState::Running { owner: Owner(owned(8)?) },
        "paused" => JobState::Paused,
        _ => JobState::Failed,
    };
    Ok(Job {
        key: owned(0)?.into(),
        kind: owned(1)?,
        payload: owned(2)?,
        state,
        due: rows::integer(row, 4)?,
        next: rows::integer(row, 9)?,
        attempts: number(5)?,
        attempt_limit: number(6)?,
        error: rows::text(row, 7)?.map(std::borrow::Cow::into_owned),
    })
}

fn find(connection: &Connection, key: &JobKey) -> Outcome<Option<Job>> {
    let mut statement =
        connection.prepare_cached(&format!("SELECT {COLUMNS} FROM quipu_job WHERE key = ?1"))?;
    Ok(statement.query_row([key.as_str()], read).optional()?)
}

fn put(connection: &Connection, job: &NewJob, now: UnixMs) -> Outcome<JobPut> {
    let found = find(connection, &job.key)?;
    let is_same = |other: &Job| {
        (&other.kind, &other.payload, other.attempt_limit)
            == (&job.kind, &job.payload, job.attempt_limit.max(1))
    };
    if found.as_ref().is_some_and(is_same) {
        return Ok(JobPut::Unchanged);
    }
    if found.is_none() {
        let count: i64 =
            connection.prepare_cached("SELECT count(*) FROM quipu_job")?.query_row([], |row| row.get(0))?;
        if count.unsigned_abs() >= JOB_LIMIT {
            return Err(StoreError::TooManyJobs { limit: JOB_LIMIT }.into());
        }
    }
    let (due, span) = when(job.due, now);
    let is_paused = found.as_ref().is_some_and(|found| found.state == JobState::Paused);
    let (state, next, span) = if is_paused { ("paused", i64::MAX, None) } else { ("waiting", due, span) };
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO quipu_job (key, kind, state, due, next, span, fence, attempts, attempt_limit, payload) \
             VALUES (?1, ?2, ?7, ?3, ?8, ?4, 0, 0, ?5, ?6)",
        )?
        .execute(params![
            job.key.as_str(),
            job.kind,
            due,
            span,
            job.attempt_limit.max(1),
            job.payload,
            state,
            next
        ])?;
    Ok(if found.is_some() { JobPut::Replaced } else { JobPut::Added })
}

/// Who has the right to run jobs, under which fence, until when.
fn runner(connection: &Connection) -> Outcome<Option<(RunnerLease, i64)>> {
    let mut statement =
        connection.prepare_cached("SELECT owner, fence, expires FROM quipu_lease WHERE ref = ?1")?;
    let found = statement.query_row([RUNNER], |row| {
        let owner = Owner(rows::text(row, 0)?.unwrap_or_default().into_owned());
        let fence = Fence(rows::integer(row, 1)?.unsigned_abs());
        Ok((RunnerLease { owner, fence }, rows::integer(row, 2)?))
    });
    Ok(found.optional()?)
}

fn set_runner(connection: &Connection, lease: &RunnerLease, expires: i64) -> Outcome<()> {
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO quipu_lease (ref, owner, fence, expires) VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute(params![RUNNER, lease.owner.0, i64::try_from(lease.fence.0).unwrap_or(i64::MAX), expires])?;
    Ok(())
}

fn lead(connection: &Connection, owner: &Owner, now: UnixMs, ttl: i64) -> Outcome<RunnerLeaseOutcome> {
    let end = now.saturating_add(ttl);
    let fence = match runner(connection)? {
        None => Fence(1),
        Some((held, until)) if until > now && held.owner == *owner => held.fence,
        Some((held, until)) if until > now && !held.owner.0.is_empty() => {
            // A lease that ends later than one of now was made before the clock was set back.
            if until > end {
                set_runner(connection, &held, end)?;
            }
            return Ok(RunnerLeaseOutcome::Refused { owner: held.owner, until: until.min(end) });
        }
        Some((held, _)) => Fence(held.fence.0 + 1),
    };
    let lease = RunnerLease { owner: owner.clone(), fence };
    set_runner(connection, &lease, end)?;
    Ok(RunnerLeaseOutcome::Granted(lease))
}

fn resign(connection: &Connection, lease: &RunnerLease) -> Outcome<()> {
    if runner(connection)?.is_some_and(|(held, _)| held == *lease) {
        let nobody = RunnerLease { owner: Owner(String::new()), fence: lease.fence };
        set_runner(connection, &nobody, 0)?;
    }
    Ok(())
}

/// A number that no claim of this store had before, also of a job that was removed and put again.
fn next_fence(connection: &Connection) -> Outcome<i64> {
    Ok(connection
        .prepare_cached(
            "INSERT INTO quipu_meta (key, value) VALUES ('job_fence', '1') \
             ON CONFLICT (key) DO UPDATE SET value = CAST(CAST(value AS INTEGER) + 1 AS TEXT) \
             RETURNING CAST(value AS INTEGER)",
        )?
        .query_row([], |row| row.get(0))?)
}

/// The job of these kinds that has waited the longest.
fn due(connection: &Connection, kinds: &[String], now: UnixMs) -> Outcome<Option<Job>> {
    let mut statement = connection.prepare_cached(
        "SELECT key FROM quipu_job WHERE state <> 'failed' AND next <= ?1 \
         AND kind IN (SELECT value FROM json_each(?2)) ORDER BY next, key LIMIT 1",
    )?;
    let names = serde_json::Value::from(kinds.to_vec()).to_string();
    let key: Option<String> = statement.query_row(params![now, names], |row| row.get(0)).optional()?;
    match key {
        Some(key) => find(connection, &key.into()),
        None => Ok(None),
    }
}

fn claim(
    connection: &Connection,
    lease: &RunnerLease,
    kinds: &[String],
    now: UnixMs,
    ttl: i64,
) -> Outcome<ClaimOutcome> {
    if runner(connection)?.is_none_or(|(held, _)| held != *lease) {
        return Err(StoreError::NotLeading.into());
    }
    let Some(mut job) = due(connection, kinds, now)? else {
        // The clock was set back: nothing that waits for a while waits longer than that.
        connection
            .prepare_cached(
                "UPDATE quipu_job SET next = ?1 + span WHERE state <> 'failed' AND next > ?1 AND span < next - ?1",
            )?
            .execute([now])?;
        return Ok(ClaimOutcome::Nothing);
    };
    if job.state != JobState::Waiting && job.attempts >= job.attempt_limit {
        connection
            .prepare_cached(
                "UPDATE quipu_job SET state = 'failed', next = ?2, span = NULL, owner = NULL, error = ?3 WHERE key = ?1",
            )?
            .execute(params![job.key.as_str(), now, LOST_ATTEMPT])?;
        (job.state, job.next, job.error) = (JobState::Failed, now, Some(LOST_ATTEMPT.to_owned()));
        return Ok(ClaimOutcome::Exhausted(Box::new(job)));
    }
    let fence = next_fence(connection)?;
    connection
        .prepare_cached(
            "UPDATE quipu_job SET state = 'running', next = ?2, span = ?3, fence = ?4, owner = ?5, attempts = attempts + 1 \
             WHERE key = ?1",
        )?
        .execute(params![job.key.as_str(), now.saturating_add(ttl), ttl, fence, lease.owner.0])?;
    job.state = JobState::Running { owner: lease.owner.clone() };
    (job.next, job.attempts) = (now.saturating_add(ttl), job.attempts.saturating_add(1));
    Ok(ClaimOutcome::Job(Box::new(JobClaim { job, fence: Fence(fence.unsigned_abs()) })))
}

/// What is said of a job by who claimed it.
#[derive(Clone)]
enum JobReport {
    Renewed { ttl: i64 },
    Finished(Option<JobTime>),
    Failed { error: String, plan: JobFailurePlan },
    Released,
}

fn say(
    connection: &Connection,
    key: &JobKey,
    fence: Fence,
    said: &JobReport,
    now: UnixMs,
) -> Outcome<JobState> {
    let fence = i64::try_from(fence.0).unwrap_or(i64::MAX);
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM quipu_job WHERE key = ?1 AND fence = ?2 AND state = 'running'"
    ))?;
    let held = statement.query_row(params![key.as_str(), fence], read).optional()?;
    let job = held.ok_or_else(|| Failure::Store(StoreError::JobLost { key: key.clone() }))?;
    let waits = |time: JobTime, due: Option<i64>, attempts: u32, error: Option<&str>| -> Outcome<JobState> {
        let (next, span) = when(time, now);
        let due = due.unwrap_or(next);
        connection
            .prepare_cached(
                "UPDATE quipu_job SET state = 'waiting', owner = NULL, due = ?2, next = ?3, span = ?4, attempts = ?5, \
                 error = ?6 WHERE key = ?1",
            )?
            .execute(params![key.as_str(), due, next, span, attempts, error])?;
        Ok(JobState::Waiting)
    };
    match said {
        JobReport::Renewed { ttl } => {
            connection
                .prepare_cached("UPDATE quipu_job SET next = ?2, span = ?3 WHERE key = ?1")?
                .execute(params![key.as_str(), now.saturating_add(*ttl), ttl])?;
            Ok(job.state)
        }
        JobReport::Finished(Some(next)) => waits(*next, None, 0, None),
        JobReport::Finished(None) => {
            connection.prepare_cached("DELETE FROM quipu_job WHERE key = ?1")?.execute([key.as_str()])?;
            Ok(JobState::Waiting)
        }
        JobReport::Failed { error, plan: JobFailurePlan::Next(next) } => {
            waits(*next, None, 0, Some(error.as_str()))
        }
        JobReport::Failed { error, plan: JobFailurePlan::Retry(retry) }
            if job.attempts < job.attempt_limit =>
        {
            waits(JobTime::After(*retry), Some(job.due), job.attempts, Some(error.as_str()))
        }
        JobReport::Failed { error, plan: JobFailurePlan::Retry(_) | JobFailurePlan::Stop } => {
            connection
                .prepare_cached(
                    "UPDATE quipu_job SET state = 'failed', owner = NULL, next = ?2, span = NULL, error = ?3 WHERE key = ?1",
                )?
                .execute(params![key.as_str(), now, error])?;
            Ok(JobState::Failed)
        }
        JobReport::Released => {
            let attempts = job.attempts.saturating_sub(1);
            waits(JobTime::After(Duration::ZERO), Some(job.due), attempts, job.error.as_deref())
        }
    }
}

fn retry(connection: &Connection, key: &JobKey, now: UnixMs) -> Outcome<JobRetry> {
    match find(connection, key)?.map(|job| job.state) {
        None => return Ok(JobRetry::Missing),
        Some(JobState::Running { .. }) => return Ok(JobRetry::Running),
        Some(JobState::Paused) => return Ok(JobRetry::Paused),
        Some(JobState::Waiting | JobState::Failed) => {}
    }
    connection
        .prepare_cached(
            "UPDATE quipu_job SET state = 'waiting', due = min(due, ?2), next = ?2, span = 0, attempts = 0 WHERE key = ?1",
        )?
        .execute(params![key.as_str(), now])?;
    Ok(JobRetry::Due)
}

/// Its time is the end of time: also an earlier version does not claim it.
fn pause(connection: &Connection, key: &JobKey) -> Outcome<JobPause> {
    match find(connection, key)?.map(|job| job.state) {
        None => return Ok(JobPause::Missing),
        Some(JobState::Paused) => return Ok(JobPause::Unchanged),
        Some(JobState::Running { .. } | JobState::Waiting | JobState::Failed) => {}
    }
    connection
        .prepare_cached(
            "UPDATE quipu_job SET state = 'paused', next = ?2, span = NULL, owner = NULL WHERE key = ?1",
        )?
        .execute(params![key.as_str(), i64::MAX])?;
    Ok(JobPause::Changed)
}

fn resume(connection: &Connection, key: &JobKey, time: JobTime, now: UnixMs) -> Outcome<JobPause> {
    match find(connection, key)?.map(|job| job.state) {
        None => return Ok(JobPause::Missing),
        Some(JobState::Paused) => {}
        Some(JobState::Running { .. } | JobState::Waiting | JobState::Failed) => {
            return Ok(JobPause::Unchanged);
        }
    }
    let (due, span) = when(time, now);
    connection
        .prepare_cached(
            "UPDATE quipu_job SET state = 'waiting', due = ?2, next = ?2, span = ?3, attempts = 0 WHERE key = ?1",
        )?
        .execute(params![key.as_str(), due, span])?;
    Ok(JobPause::Changed)
}

fn kinds(connection: &Connection, now: UnixMs) -> Outcome<Vec<JobKind>> {
    let mut statement = connection.prepare_cached(
        "SELECT kind, count(*), count(*) FILTER (WHERE state = 'failed'), \
         min(CASE WHEN next > ?1 AND span < next - ?1 THEN ?1 ELSE next END) \
         FILTER (WHERE state <> 'failed' AND typeof(next) = 'integer') \
         FROM quipu_job GROUP BY kind ORDER BY kind",
    )?;
    let found = statement.query_map([now], |row| {
        Ok(JobKind {
            kind: rows::text(row, 0)?.unwrap_or_default().into_owned(),
            count: rows::integer(row, 1)?.unsigned_abs(),
            failed: rows::integer(row, 2)?.unsigned_abs(),
            next: row.get::<_, Option<i64>>(3)?,
        })
    })?;
    Ok(found.collect::<Result<_, _>>()?)
}

impl SqliteStore {
    async fn say_of_job(
        &self,
        claim: &JobClaim,
        said: JobReport,
        now: UnixMs,
    ) -> Result<JobState, StoreError> {
        let (key, fence) = (claim.job.key.clone(), claim.fence);
        self.work(Durability::Process, move |connection| say(connection, &key, fence, &said, now)).await
    }
}

impl Jobs for SqliteStore {
    fn put_job(&self, job: NewJob, now: UnixMs) -> Fut<'_, JobPut> {
        Box::pin(async move {
            job.check()?;
            self.work(Durability::Power, move |connection| put(connection, &job, now)).await
        })
    }

    fn put_new_job(&self, job: NewJob, now: UnixMs) -> Fut<'_, bool> {
        Box::pin(async move {
            job.check()?;
            self.work(Durability::Power, move |connection| match find(connection, &job.key)? {
                Some(_) => Ok(false),
                None => put(connection, &job, now).map(|_| true),
            })
            .await
        })
    }

    fn put_paused_job(&self, job: NewJob, now: UnixMs) -> Fut<'_, bool> {
        Box::pin(async move {
            job.check()?;
            self.work(Durability::Power, move |connection| match find(connection, &job.key)? {
                Some(_) => Ok(false),
                None => {
                    put(connection, &job, now)?;
                    pause(connection, &job.key).map(|_| true)
                }
            })
            .await
        })
    }

    fn lead_jobs<'a>(&'a self, owner: &'a Owner, now: UnixMs, ttl: Duration) -> Fut<'a, RunnerLeaseOutcome> {
        let (owner, ttl) = (owner.clone(), millis(ttl));
        Box::pin(self.work(Durability::Process, move |connection| lead(connection, &owner, now, ttl)))
    }

    fn resign_jobs<'a>(&'a self, lease: &'a RunnerLease) -> Fut<'a, ()> {
        let lease = lease.clone();
        Box::pin(self.work(Durability::Process, move |connection| resign(connection, &lease)))
    }

    fn claim_job<'a>(
        &'a self,
        lease: &'a RunnerLease,
        kinds: &'a [&'a str],
        now: UnixMs,
        ttl: Duration,
    ) -> Fut<'a, ClaimOutcome> {
        let lease = lease.clone();
        let kinds: Vec<String> = kinds.iter().map(|kind| (*kind).to_owned()).collect();
        let ttl = millis(ttl);
        Box::pin(
            self.work(Durability::Process, move |connection| claim(connection, &lease, &kinds, now, ttl)),
        )
    }

    fn renew_job<'a>(&'a self, claim: &'a JobClaim, now: UnixMs, ttl: Duration) -> Fut<'a, ()> {
        Box::pin(async move {
            self.say_of_job(claim, JobReport::Renewed { ttl: millis(ttl) }, now).await.map(drop)
        })
    }

    fn finish_job<'a>(&'a self, claim: &'a JobClaim, next: Option<JobTime>, now: UnixMs) -> Fut<'a, ()> {
        Box::pin(async move { self.say_of_job(claim, JobReport::Finished(next), now).await.map(drop) })
    }

    fn fail_job<'a>(
        &'a self,
        claim: &'a JobClaim,
        error: &'a str,
        plan: JobFailurePlan,
        now: UnixMs,
    ) -> Fut<'a, JobState> {
        Box::pin(async move {
            check_job_error(error)?;
            self.say_of_job(claim, JobReport::Failed { error: error.to_owned(), plan }, now).await
        })
    }

    fn release_job<'a>(&'a self, claim: &'a JobClaim, now: UnixMs) -> Fut<'a, ()> {
        Box::pin(async move { self.say_of_job(claim, JobReport::Released, now).await.map(drop) })
    }

    fn retry_job<'a>(&'a self, key: &'a JobKey, now: UnixMs) -> Fut<'a, JobRetry> {
        let key = key.clone();
        Box::pin(self.work(Durability::Power, move |connection| retry(connection, &key, now)))
    }

    fn pause_job<'a>(&'a self, key: &'a JobKey) -> Fut<'a, JobPause> {
        let key = key.clone();
        Box::pin(self.work(Durability::Power, move |connection| pause(connection, &key)))
    }

    fn resume_job<'a>(&'a self, key: &'a JobKey, due: JobTime, now: UnixMs) -> Fut<'a, JobPause> {
        let key = key.clone();
        Box::pin(self.work(Durability::Power, move |connection| resume(connection, &key, due, now)))
    }

    fn cancel_job<'a>(&'a self, key: &'a JobKey) -> Fut<'a, bool> {
        let key = key.clone();
        Box::pin(self.work(Durability::Power, move |connection| {
            let gone =
                connection.prepare_cached("DELETE FROM quipu_job WHERE key = ?1")?.execute([key.as_str()])?;
            Ok(gone > 0)
        }))
    }

    fn job<'a>(&'a self, key: &'a JobKey) -> Fut<'a, Option<Job>> {
        let key = key.clone();
        Box::pin(self.read(move |connection| find(connection, &key)))
    }

    fn jobs<'a>(&'a self, after: Option<&'a JobKey>, limit: usize) -> Fut<'a, Vec<Job>> {
        let after = after.map(|key| key.as_str().to_owned());
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        Box::pin(self.read(move |connection| {
            let mut statement = connection.prepare_cached(&format!(
                "SELECT {COLUMNS} FROM quipu_job WHERE ?1 IS NULL OR key > ?1 ORDER BY key LIMIT ?2"
            ))?;
            let found = statement.query_map(params![after, limit], read)?;
            Ok(found.collect::<Result<_, _>>()?)
        }))
    }

    fn job_kinds(&self, now: UnixMs) -> Fut<'_, Vec<JobKind>> {
        Box::pin(self.read(move |connection| kinds(connection, now)))
    }
}
