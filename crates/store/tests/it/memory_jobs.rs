//! The jobs of the store in maps.

use std::collections::BTreeMap;
use std::time::Duration;

use quipu_protocol::UnixMs;
use quipu_store::{
    ClaimOutcome, Fence, Fut, JOB_LIMIT, Job, JobClaim, JobFailurePlan, JobKey, JobKind, JobPause, JobPut,
    JobRetry, JobState, JobTime, Jobs, LOST_ATTEMPT, NewJob, Owner, RunnerLease, RunnerLeaseOutcome,
    StoreError, check_job_error,
};

use crate::memory::{MemoryStore, answer};

#[derive(Default)]
pub(crate) struct JobTables {
    jobs: BTreeMap<JobKey, Row>,
    runner: Option<(RunnerLease, i64)>,
    claims: u64,
}

struct Row {
    job: Job,
    /// How far from now it may be due at most.
    span: Option<i64>,
    fence: u64,
}

impl Row {
    fn waits(&mut self, time: JobTime, now: UnixMs) {
        self.job.state = JobState::Waiting;
        (self.job.next, self.span) = match time {
            JobTime::At(at) => (at, None),
            JobTime::After(time) => (now + millis(time), Some(millis(time))),
            JobTime::Slot(at) => (at, Some((at - now).max(0))),
        };
    }

    fn fails(&mut self, error: &str, now: UnixMs) {
        self.job.state = JobState::Failed;
        (self.job.next, self.span, self.job.error) = (now, None, Some(error.to_owned()));
    }

    /// When it can be claimed; now where the clock was set back behind that.
    fn next(&self, now: UnixMs) -> UnixMs {
        self.span.filter(|span| self.job.next > now + span).map_or(self.job.next, |_| now)
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap()
}

impl JobTables {
    fn put(&mut self, new: NewJob, now: UnixMs) -> Result<JobPut, StoreError> {
        new.check()?;
        let found = self.jobs.get(&new.key);
        let put = match found {
            Some(Row { job, .. })
                if (&job.kind, &job.payload, job.attempt_limit)
                    == (&new.kind, &new.payload, new.attempt_limit.max(1)) =>
            {
                return Ok(JobPut::Unchanged);
            }
            Some(_) => JobPut::Replaced,
            None if self.jobs.len() as u64 >= JOB_LIMIT => {
                return Err(StoreError::TooManyJobs { limit: JOB_LIMIT });
            }
            None => JobPut::Added,
        };
        let is_paused = found.is_some_and(|row| row.job.state == JobState::Paused);
        let job = Job {
            key: new.key.clone(),
            kind: new.kind,
            payload: new.payload,
            state: JobState::Waiting,
            due: 0,
            next: 0,
            attempts: 0,
            attempt_limit: new.attempt_limit.max(1),
            error: None,
        };
        let mut row = Row { job, span: None, fence: 0 };
        row.waits(new.due, now);
        row.job.due = row.job.next;
        if is_paused {
            (row.job.state, row.job.next, row.span) = (JobState::Paused, i64::MAX, None);
        }
        self.jobs.insert(new.key, row);
        Ok(put)
    }

    fn lead(&mut self, owner: &Owner, now: UnixMs, ttl: i64) -> RunnerLeaseOutcome {
        let fence = match &mut self.runner {
            None => Fence(1),
            Some((held, until)) if *until > now && held.owner == *owner => held.fence,
            Some((held, until)) if *until > now => {
                *until = (*until).min(now + ttl);
                return RunnerLeaseOutcome::Refused { owner: held.owner.clone(), until: *until };
            }
            Some((held, _)) => Fence(held.fence.0 + 1),
        };
        let lease = RunnerLease { owner: owner.clone(), fence };
        self.runner = Some((lease.clone(), now + ttl));
        RunnerLeaseOutcome::Granted(lease)
    }

    fn claim(
        &mut self,
        lease: &RunnerLease,
        kinds: &[&str],
        now: UnixMs,
        ttl: i64,
    ) -> Result<ClaimOutcome, StoreError> {
        if self.runner.as_ref().is_none_or(|(held, _)| held != lease) {
            return Err(StoreError::NotLeading);
        }
        let open = self.jobs.values_mut().filter(|row| row.job.state != JobState::Failed);
        let due = open.filter(|row| row.job.next <= now && kinds.contains(&row.job.kind.as_str()));
        let Some(row) = due.min_by_key(|row| (row.job.next, row.job.key.clone())) else {
            for row in self.jobs.values_mut().filter(|row| row.job.state != JobState::Failed) {
                let latest = row.span.map_or(i64::MAX, |span| now + span);
                if row.job.next > latest {
                    row.job.next = latest;
                }
            }
            return Ok(ClaimOutcome::Nothing);
        };
        if row.job.state != JobState::Waiting && row.job.attempts >= row.job.attempt_limit {
            row.fails(LOST_ATTEMPT, now);
            return Ok(ClaimOutcome::Exhausted(Box::new(row.job.clone())));
        }
        self.claims += 1;
        row.fence = self.claims;
        row.job.state = JobState::Running { owner: lease.owner.clone() };
        row.job.attempts += 1;
        (row.job.next, row.span) = (now + ttl, Some(ttl));
        Ok(ClaimOutcome::Job(Box::new(JobClaim { job: row.job.clone(), fence: Fence(row.fence) })))
    }

    fn held(&mut self, claim: &JobClaim) -> Result<&mut Row, StoreError> {
        let key = claim.job.key.clone();
        let row = self.jobs.get_mut(&key);
        row.filter(|row| row.fence == claim.fence.0 && matches!(row.job.state, JobState::Running { .. }))
            .ok_or(StoreError::JobLost { key })
    }
}

impl Jobs for MemoryStore {
    fn put_job(&self, job: NewJob, now: UnixMs) -> Fut<'_, JobPut> {
        answer(self.jobs().put(job, now))
    }

    fn put_new_job(&self, job: NewJob, now: UnixMs) -> Fut<'_, bool> {
        let is_there = self.jobs().jobs.contains_key(&job.key);
        if is_there {
            return answer(job.check().map(|()| false));
        }
        answer(self.jobs().put(job, now).map(|_| true))
    }

    fn put_paused_job(&self, job: NewJob, now: UnixMs) -> Fut<'_, bool> {
        let key = job.key.clone();
        Box::pin(async move {
            let is_new = self.put_new_job(job, now).await?;
            if is_new {
                self.pause_job(&key).await?;
            }
            Ok(is_new)
        })
    }

    fn lead_jobs<'a>(&'a self, owner: &'a Owner, now: UnixMs, ttl: Duration) -> Fut<'a, RunnerLeaseOutcome> {
        answer(Ok(self.jobs().lead(owner, now, millis(ttl))))
    }

    fn resign_jobs<'a>(&'a self, lease: &'a RunnerLease) -> Fut<'a, ()> {
        if let Some((held, until)) = &mut self.jobs().runner
            && held == lease
        {
            (held.owner, *until) = (Owner(String::new()), i64::MIN);
        }
        answer(Ok(()))
    }

    fn claim_job<'a>(
        &'a self,
        lease: &'a RunnerLease,
        kinds: &'a [&'a str],
        now: UnixMs,
        ttl: Duration,
    ) -> Fut<'a, ClaimOutcome> {
        answer(self.jobs().claim(lease, kinds, now, millis(ttl)))
    }

    fn renew_job<'a>(&'a self, claim: &'a JobClaim, now: UnixMs, ttl: Duration) -> Fut<'a, ()> {
        let ttl = millis(ttl);
        answer(self.jobs().held(claim).map(|row| (row.job.next, row.span) = (now + ttl, Some(ttl))))
    }

    fn finish_job<'a>(&'a self, claim: &'a JobClaim, next: Option<JobTime>, now: UnixMs) -> Fut<'a, ()> {
        let mut tables = self.jobs();
        let done = tables.held(claim).map(|row| match next {
            Some(next) => {
                row.waits(next, now);
                (row.job.due, row.job.attempts, row.job.error) = (row.job.next, 0, None);
                false
            }
            None => true,
        });
        if done == Ok(true) {
            tables.jobs.remove(&claim.job.key);
        }
        answer(done.map(drop))
    }

    fn fail_job<'a>(
        &'a self,
        claim: &'a JobClaim,
        error: &'a str,
        plan: JobFailurePlan,
        now: UnixMs,
    ) -> Fut<'a, JobState> {
        if let Err(error) = check_job_error(error) {
            return answer(Err(error));
        }
        answer(self.jobs().held(claim).map(|row| {
            row.fails(error, now);
            match plan {
                JobFailurePlan::Retry(retry) if row.job.attempts < row.job.attempt_limit => {
                    row.waits(JobTime::After(retry), now);
                }
                JobFailurePlan::Next(next) => {
                    row.waits(next, now);
                    (row.job.due, row.job.attempts) = (row.job.next, 0);
                }
                JobFailurePlan::Retry(_) | JobFailurePlan::Stop => {}
            }
            row.job.state.clone()
        }))
    }

    fn release_job<'a>(&'a self, claim: &'a JobClaim, now: UnixMs) -> Fut<'a, ()> {
        answer(self.jobs().held(claim).map(|row| {
            row.waits(JobTime::After(Duration::ZERO), now);
            row.job.attempts -= 1;
        }))
    }

    fn retry_job<'a>(&'a self, key: &'a JobKey, now: UnixMs) -> Fut<'a, JobRetry> {
        answer(Ok(match self.jobs().jobs.get_mut(key) {
            None => JobRetry::Missing,
            Some(Row { job: Job { state: JobState::Running { .. }, .. }, .. }) => JobRetry::Running,
            Some(row) if row.job.state == JobState::Paused => JobRetry::Paused,
            Some(row) => {
                row.waits(JobTime::After(Duration::ZERO), now);
                (row.job.due, row.job.attempts) = (row.job.due.min(now), 0);
                JobRetry::Due
            }
        }))
    }

    fn pause_job<'a>(&'a self, key: &'a JobKey) -> Fut<'a, JobPause> {
        answer(Ok(match self.jobs().jobs.get_mut(key) {
            None => JobPause::Missing,
            Some(row) if row.job.state == JobState::Paused => JobPause::Unchanged,
            Some(row) => {
                (row.job.state, row.job.next, row.span) = (JobState::Paused, i64::MAX, None);
                JobPause::Changed
            }
        }))
    }

    fn resume_job<'a>(&'a self, key: &'a JobKey, due: JobTime, now: UnixMs) -> Fut<'a, JobPause> {
        answer(Ok(match self.jobs().jobs.get_mut(key) {
            None => JobPause::Missing,
            Some(row) if row.job.state == JobState::Paused => {
                row.waits(due, now);
                (row.job.due, row.job.attempts) = (row.job.next, 0);
                JobPause::Changed
            }
            Some(_) => JobPause::Unchanged,
        }))
    }

    fn cancel_job<'a>(&'a self, key: &'a JobKey) -> Fut<'a, bool> {
        answer(Ok(self.jobs().jobs.remove(key).is_some()))
    }

    fn job<'a>(&'a self, key: &'a JobKey) -> Fut<'a, Option<Job>> {
        answer(Ok(self.jobs().jobs.get(key).map(|row| row.job.clone())))
    }

    fn jobs<'a>(&'a self, after: Option<&'a JobKey>, limit: usize) -> Fut<'a, Vec<Job>> {
        let tables = self.jobs();
        let rows = tables.jobs.values().filter(|row| after.is_none_or(|after| row.job.key > *after));
        answer(Ok(rows.take(limit).map(|row| row.job.clone()).collect()))
    }

    fn job_kinds(&self, now: UnixMs) -> Fut<'_, Vec<JobKind>> {
        let mut kinds: BTreeMap<String, JobKind> = BTreeMap::new();
        for row in self.jobs().jobs.values() {
            let kind = row.job.kind.clone();
            let sum = kinds.entry(kind.clone()).or_insert(JobKind { kind, count: 0, failed: 0, next: None });
            sum.count += 1;
            if row.job.state == JobState::Failed {
                sum.failed += 1;
            } else {
                sum.next = Some(sum.next.unwrap_or(i64::MAX).min(row.next(now)));
            }
        }
        answer(Ok(kinds.into_values().collect()))
    }
}
