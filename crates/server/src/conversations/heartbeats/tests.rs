use std::sync::atomic::{AtomicU32, Ordering};

use quipu::store::{
    ClaimOutcome, Fut, JobClaim, JobFailurePlan, JobKind, JobPause, JobPut, JobRetry, JobState, Owner,
    RunnerLease, RunnerLeaseOutcome,
};

use super::*;

/// Jobs that are due tomorrow; counts how often somebody looks.
#[derive(Default)]
struct DistantJobs(AtomicU32);

impl Jobs for DistantJobs {
    fn put_job(&self, _: NewJob, _: i64) -> Fut<'_, JobPut> {
        unreachable!()
    }

    fn put_new_job(&self, _: NewJob, _: i64) -> Fut<'_, bool> {
        unreachable!()
    }

    fn put_paused_job(&self, _: NewJob, _: i64) -> Fut<'_, bool> {
        unreachable!()
    }

    fn lead_jobs<'a>(&'a self, _: &'a Owner, _: i64, _: Duration) -> Fut<'a, RunnerLeaseOutcome> {
        unreachable!()
    }

    fn resign_jobs<'a>(&'a self, _: &'a RunnerLease) -> Fut<'a, ()> {
        unreachable!()
    }

    fn claim_job<'a>(
        &'a self,
        _: &'a RunnerLease,
        _: &'a [&'a str],
        _: i64,
        _: Duration,
    ) -> Fut<'a, ClaimOutcome> {
        unreachable!()
    }

    fn renew_job<'a>(&'a self, _: &'a JobClaim, _: i64, _: Duration) -> Fut<'a, ()> {
        unreachable!()
    }

    fn finish_job<'a>(&'a self, _: &'a JobClaim, _: Option<JobTime>, _: i64) -> Fut<'a, ()> {
        unreachable!()
    }

    fn fail_job<'a>(&'a self, _: &'a JobClaim, _: &'a str, _: JobFailurePlan, _: i64) -> Fut<'a, JobState> {
        unreachable!()
    }

    fn release_job<'a>(&'a self, _: &'a JobClaim, _: i64) -> Fut<'a, ()> {
        unreachable!()
    }

    fn retry_job<'a>(&'a self, _: &'a JobKey, _: i64) -> Fut<'a, JobRetry> {
        unreachable!()
    }

    fn pause_job<'a>(&'a self, _: &'a JobKey) -> Fut<'a, JobPause> {
        unreachable!()
    }

    fn resume_job<'a>(&'a self, _: &'a JobKey, _: JobTime, _: i64) -> Fut<'a, JobPause> {
        unreachable!()
    }

    fn cancel_job<'a>(&'a self, _: &'a JobKey) -> Fut<'a, bool> {
        unreachable!()
    }

    fn job<'a>(&'a self, _: &'a JobKey) -> Fut<'a, Option<Job>> {
        unreachable!()
    }

    fn jobs<'a>(&'a self, _: Option<&'a JobKey>, _: usize) -> Fut<'a, Vec<Job>> {
        unreachable!()
    }

    fn job_kinds(&self, now: i64) -> Fut<'_, Vec<JobKind>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        let next = Some(now + 24 * 60 * 60 * 1_000);
        let kind = JobKind { kind: HEARTBEAT_JOB.to_owned(), count: 1, failed: 0, next };
        Box::pin(std::future::ready(Ok(vec![kind])))
    }
}

/// Is never called.
struct NoWork;

impl JobHandler for NoWork {
    fn kind(&self) -> &str {
        HEARTBEAT_JOB
    }

    fn run<'a>(&'a self, _: &'a Job, _: &'a JobContext) -> BoxFuture<'a, Result<JobOutcome, JobError>> {
        unreachable!()
    }
}

#[tokio::test(start_paused = true)]
async fn runner_looks_for_heartbeats_once_a_minute() {
    let jobs = Arc::new(DistantJobs::default());
    let runner = runner(jobs.clone(), Arc::new(NoWork), Arc::new(Sealer::new([7; 32])));
    let stop = CancellationToken::new();
    tokio::time::timeout(Duration::from_secs(600), runner.run(&stop)).await.unwrap_err();
    let looks = jobs.0.load(Ordering::SeqCst);
    assert!(looks <= 11, "{looks}");
}
