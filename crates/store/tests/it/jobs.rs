//! What every store of jobs must do, and what SQLite's does beyond it.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use proptest::prelude::*;
use quipu_store::{
    ClaimOutcome, JOB_ERROR_LIMIT, JOB_LIMIT, JOB_PAYLOAD_LIMIT, Job, JobClaim, JobFailurePlan, JobKey,
    JobKind, JobPause, JobPut, JobRetry, JobState, JobTime, Jobs, LOST_ATTEMPT, NewJob, OpenOptions, Owner,
    RunnerLease, RunnerLeaseOutcome, SqliteStore, Store as _, StoreError, Upkeep as _, salvage,
};

use crate::memory::MemoryStore;
use crate::support::*;

const TTL: Duration = Duration::from_millis(1_000);

fn new_job(key: &str, kind: &str, due: JobTime) -> NewJob {
    NewJob { key: key.into(), kind: kind.into(), payload: "{}".into(), due, attempt_limit: 3 }
}

async fn lead(jobs: &dyn Jobs, owner: &str, now: i64) -> RunnerLease {
    match jobs.lead_jobs(&Owner(owner.into()), now, TTL).await.unwrap() {
        RunnerLeaseOutcome::Granted(lease) => lease,
        RunnerLeaseOutcome::Refused { owner, until } => panic!("{owner:?} until {until}"),
    }
}

async fn claim(jobs: &dyn Jobs, lease: &RunnerLease, now: i64) -> Option<JobClaim> {
    match jobs.claim_job(lease, &["a", "b"], now, TTL).await.unwrap() {
        ClaimOutcome::Job(claim) => Some(*claim),
        ClaimOutcome::Nothing => None,
        ClaimOutcome::Exhausted(job) => panic!("{job:?}"),
    }
}

async fn job(jobs: &dyn Jobs, key: &str) -> Job {
    jobs.job(&key.into()).await.unwrap().unwrap()
}

fn lost(key: &str) -> StoreError {
    StoreError::JobLost { key: key.into() }
}

/// Every law of jobs in turn, on one store that has none.
pub(crate) async fn conform(jobs: &dyn Jobs) {
    puts(jobs).await;
    one_runner_at_a_time(jobs).await;
    claims_in_order(jobs).await;
    attempts(jobs).await;
    leases_that_run_out(jobs).await;
    cancelled_and_replaced(jobs).await;
    clock_set_back(jobs).await;
    pauses(jobs).await;
    limits(jobs).await;
    assert_eq!(jobs.jobs(None, 10).await.unwrap(), []);
}

async fn puts(jobs: &dyn Jobs) {
    let put = async |job| jobs.put_job(job, T).await.unwrap();
    let later = JobTime::After(Duration::from_millis(50));
    assert_eq!(put(new_job("p", "a", later)).await, JobPut::Added);
    let stands = Job {
        key: "p".into(),
        kind: "a".into(),
        payload: "{}".into(),
        state: JobState::Waiting,
        due: T + 50,
        next: T + 50,
        attempts: 0,
        attempt_limit: 3,
        error: None,
    };
    assert_eq!(job(jobs, "p").await, stands);
    assert_eq!(put(new_job("p", "a", JobTime::At(T))).await, JobPut::Unchanged);
    assert_eq!(job(jobs, "p").await, stands, "the due time too");
    let other =
        NewJob { attempt_limit: 0, payload: "{\"x\":1}".into(), ..new_job("p", "b", JobTime::At(T + 7)) };
    assert_eq!(put(other.clone()).await, JobPut::Replaced);
    let changed =
        Job { kind: "b".into(), payload: other.payload, due: T + 7, next: T + 7, attempt_limit: 1, ..stands };
    assert_eq!(job(jobs, "p").await, changed);
    assert_eq!(jobs.job(&"q".into()).await.unwrap(), None);
    put(new_job("q", "a", later)).await;
    let kind = |kind: &str, next| JobKind { kind: kind.into(), count: 1, failed: 0, next: Some(next) };
    assert_eq!(jobs.job_kinds(T).await.unwrap(), [kind("a", T + 50), kind("b", T + 7)]);
    let names = |jobs: Vec<Job>| jobs.iter().map(|job| job.key.to_string()).collect::<Vec<_>>();
    assert_eq!(names(jobs.jobs(None, 1).await.unwrap()), ["p"]);
    assert_eq!(names(jobs.jobs(Some(&"p".into()), 9).await.unwrap()), ["q"]);
    for key in ["p", "q"] {
        assert!(jobs.cancel_job(&key.into()).await.unwrap());
        assert!(!jobs.cancel_job(&key.into()).await.unwrap());
    }
    assert_eq!(jobs.job_kinds(T).await.unwrap(), []);
}

async fn one_runner_at_a_time(jobs: &dyn Jobs) {
    let (me, you) = (Owner("me".into()), Owner("you".into()));
    let first = lead(jobs, "me", T).await;
    assert_eq!(lead(jobs, "me", T + 100).await, first, "renewed");
    let refused = jobs.lead_jobs(&you, T + 100, TTL).await.unwrap();
    assert_eq!(refused, RunnerLeaseOutcome::Refused { owner: me.clone(), until: T + 1_100 });
    let other = lead(jobs, "you", T + 1_100).await;
    assert!(other.fence > first.fence);
    jobs.put_job(new_job("r", "a", JobTime::At(T)), T).await.unwrap();
    let claimed = jobs.claim_job(&first, &["a"], T + 1_100, TTL).await;
    assert_eq!(claimed, Err(StoreError::NotLeading));
    jobs.resign_jobs(&first).await.unwrap();
    assert!(
        matches!(jobs.lead_jobs(&me, T + 1_101, TTL).await.unwrap(), RunnerLeaseOutcome::Refused { .. }),
        "not its own"
    );
    jobs.resign_jobs(&other).await.unwrap();
    assert_eq!(jobs.claim_job(&other, &["a"], T + 1_101, TTL).await, Err(StoreError::NotLeading));
    let again = lead(jobs, "me", T + 1_101).await;
    assert!(again.fence > other.fence);
    jobs.resign_jobs(&again).await.unwrap();
    jobs.cancel_job(&"r".into()).await.unwrap();
}

async fn claims_in_order(jobs: &dyn Jobs) {
    for (key, kind, due) in [("1", "a", 30), ("2", "b", 10), ("3", "a", 10), ("4", "x", 0), ("5", "a", 99)] {
        jobs.put_job(new_job(key, kind, JobTime::At(T + due)), T).await.unwrap();
    }
    let lease = lead(jobs, "me", T).await;
    assert_eq!(claim(jobs, &lease, T + 9).await, None);
    let mut claims = Vec::new();
    while let Some(claimed) = claim(jobs, &lease, T + 50).await {
        assert_eq!(claimed.job, job(jobs, claimed.job.key.as_str()).await);
        assert_eq!(claimed.job.state, JobState::Running { owner: Owner("me".into()) });
        claims.push(claimed);
    }
    let keys: Vec<&str> = claims.iter().map(|claim| claim.job.key.as_str()).collect();
    assert_eq!(keys, ["2", "3", "1"], "nor one of another kind");
    assert!(claims.is_sorted_by(|a, b| a.fence < b.fence));
    for claim in &claims {
        jobs.finish_job(claim, None, T + 60).await.unwrap();
        assert_eq!(
            jobs.finish_job(claim, None, T + 60).await,
            Err(StoreError::JobLost { key: claim.job.key.clone() })
        );
        assert_eq!(jobs.job(&claim.job.key).await.unwrap(), None);
    }
    for key in ["4", "5"] {
        assert!(jobs.cancel_job(&key.into()).await.unwrap());
    }
    jobs.resign_jobs(&lease).await.unwrap();
}

async fn attempts(jobs: &dyn Jobs) {
    jobs.put_job(new_job("t", "a", JobTime::At(T)), T).await.unwrap();
    let lease = lead(jobs, "me", T).await;
    let retry = Duration::from_millis(100);
    let mut now = T;
    for attempt in 1..=3 {
        let claimed = claim(jobs, &lease, now).await.unwrap();
        assert_eq!(claimed.job.attempts, attempt);
        // Given back, it was none.
        jobs.release_job(&claimed, now + 1).await.unwrap();
        assert_eq!(job(jobs, "t").await.attempts, attempt - 1);
        let claimed = claim(jobs, &lease, now + 1).await.unwrap();
        let state = jobs
            .fail_job(&claimed, &format!("no {attempt}"), JobFailurePlan::Retry(retry), now + 2)
            .await
            .unwrap();
        assert_eq!(state, if attempt < 3 { JobState::Waiting } else { JobState::Failed });
        let stands = job(jobs, "t").await;
        assert_eq!((stands.due, stands.error), (T, Some(format!("no {attempt}"))), "due for the same time");
        assert_eq!(claim(jobs, &lease, now + 101).await, None);
        now += 102;
    }
    let kinds = jobs.job_kinds(now).await.unwrap();
    assert_eq!(kinds, [JobKind { kind: "a".into(), count: 1, failed: 1, next: None }]);
    assert_eq!(jobs.put_job(new_job("t", "a", JobTime::At(T)), T).await.unwrap(), JobPut::Unchanged);
    assert_eq!(claim(jobs, &lease, now + 1_000_000).await, None);
    assert_eq!(jobs.retry_job(&"t".into(), now).await.unwrap(), JobRetry::Due);
    assert_eq!(jobs.retry_job(&"no".into(), now).await.unwrap(), JobRetry::Missing);
    let claimed = claim(jobs, &lease, now).await.unwrap();
    assert_eq!((claimed.job.attempts, claimed.job.error.as_deref()), (1, Some("no 3")));
    assert_eq!(jobs.retry_job(&"t".into(), now).await.unwrap(), JobRetry::Running);
    jobs.finish_job(&claimed, Some(JobTime::At(now + 5)), now).await.unwrap();
    let stands = job(jobs, "t").await;
    assert_eq!((stands.due, stands.next, stands.attempts, stands.error), (now + 5, now + 5, 0, None));
    assert_eq!(stands.state, JobState::Waiting);
    // Not for this time any more, and not at all any more.
    let claimed = claim(jobs, &lease, now + 5).await.unwrap();
    let next = JobFailurePlan::Next(JobTime::At(now + 50));
    assert_eq!(jobs.fail_job(&claimed, "later", next, now + 6).await.unwrap(), JobState::Waiting);
    let stands = job(jobs, "t").await;
    assert_eq!((stands.due, stands.next, stands.attempts), (now + 50, now + 50, 0));
    assert_eq!(stands.error.as_deref(), Some("later"), "it is still to be seen");
    let claimed = claim(jobs, &lease, now + 50).await.unwrap();
    let stopped = jobs.fail_job(&claimed, "no", JobFailurePlan::Stop, now + 51).await.unwrap();
    assert_eq!((stopped, job(jobs, "t").await.attempts), (JobState::Failed, 1));
    // A new one takes nobody's name.
    let other = new_job("t", "a", JobTime::At(T + 1));
    assert!(!jobs.put_new_job(NewJob { payload: "other".into(), ..other.clone() }, T).await.unwrap());
    assert_eq!(job(jobs, "t").await.state, JobState::Failed);
    jobs.cancel_job(&"t".into()).await.unwrap();
    assert!(jobs.put_new_job(other, T).await.unwrap());
    assert!(!jobs.put_paused_job(new_job("t", "b", JobTime::At(T)), T).await.unwrap());
    assert_eq!(job(jobs, "t").await.state, JobState::Waiting);
    assert!(jobs.put_paused_job(new_job("held", "a", JobTime::At(T)), T).await.unwrap());
    assert_eq!(job(jobs, "held").await.state, JobState::Paused);
    assert!(jobs.cancel_job(&"held".into()).await.unwrap());
    // Paused, it stays so until that is ended.
    assert_eq!(jobs.pause_job(&"t".into()).await.unwrap(), JobPause::Changed);
    assert_eq!(jobs.retry_job(&"t".into(), now).await.unwrap(), JobRetry::Paused);
    let changed = NewJob { payload: "changed".into(), ..new_job("t", "a", JobTime::At(T)) };
    assert_eq!(jobs.put_job(changed, T).await.unwrap(), JobPut::Replaced);
    assert_eq!(job(jobs, "t").await.state, JobState::Paused);
    assert_eq!(claim(jobs, &lease, now + 1_000_000).await, None);
    jobs.cancel_job(&"t".into()).await.unwrap();
    jobs.resign_jobs(&lease).await.unwrap();
}

async fn leases_that_run_out(jobs: &dyn Jobs) {
    jobs.put_job(new_job("l", "a", JobTime::At(T)), T).await.unwrap();
    let old = lead(jobs, "old", T).await;
    let mut claimed = claim(jobs, &old, T).await.unwrap();
    jobs.renew_job(&claimed, T + 500, TTL).await.unwrap();
    assert_eq!(jobs.job_kinds(T + 500).await.unwrap()[0].next, Some(T + 1_500));
    let mut now = T + 1_400;
    let lease = lead(jobs, "new", now).await;
    assert_eq!(claim(jobs, &lease, now).await, None);
    for attempt in 2..=3 {
        now += 100_000;
        let other = claim(jobs, &lease, now).await.unwrap();
        assert!(other.fence > claimed.fence);
        assert_eq!(other.job.attempts, attempt);
        // Who had it has it no more.
        assert_eq!(jobs.renew_job(&claimed, now, TTL).await, Err(lost("l")));
        assert_eq!(jobs.finish_job(&claimed, None, now).await, Err(lost("l")));
        assert_eq!(jobs.release_job(&claimed, now).await, Err(lost("l")));
        assert_eq!(jobs.fail_job(&claimed, "", JobFailurePlan::Retry(TTL), now).await, Err(lost("l")));
        claimed = other;
    }
    // One that was late, and that nobody else has: nothing was lost.
    jobs.renew_job(&claimed, now + 50_000, TTL).await.unwrap();
    now += 100_000;
    let ClaimOutcome::Exhausted(failed) = jobs.claim_job(&lease, &["a"], now, TTL).await.unwrap() else {
        panic!()
    };
    assert_eq!((failed.attempts, failed.error.as_deref()), (3, Some(LOST_ATTEMPT)));
    assert_eq!((&failed.state, failed.due, failed.next), (&JobState::Failed, T, now));
    assert_eq!(*failed, job(jobs, "l").await);
    assert_eq!(jobs.finish_job(&claimed, None, now).await, Err(lost("l")));
    jobs.cancel_job(&"l".into()).await.unwrap();
    jobs.resign_jobs(&lease).await.unwrap();
}

async fn cancelled_and_replaced(jobs: &dyn Jobs) {
    let lease = lead(jobs, "me", T).await;
    let put = async |payload: &str| {
        let job = NewJob { payload: payload.into(), ..new_job("c", "a", JobTime::At(T)) };
        jobs.put_job(job, T).await.unwrap()
    };
    put("1").await;
    let removed = claim(jobs, &lease, T).await.unwrap();
    jobs.cancel_job(&"c".into()).await.unwrap();
    assert_eq!(jobs.renew_job(&removed, T, TTL).await, Err(lost("c")));
    put("1").await;
    let replaced = claim(jobs, &lease, T).await.unwrap();
    assert!(replaced.fence > removed.fence, "also of one that was removed and is there again");
    assert_eq!(jobs.finish_job(&removed, None, T).await, Err(lost("c")));
    assert_eq!(put("2").await, JobPut::Replaced);
    assert_eq!(jobs.finish_job(&replaced, None, T).await, Err(lost("c")));
    let last = claim(jobs, &lease, T).await.unwrap();
    assert_eq!((last.job.payload.as_str(), last.job.attempts), ("2", 1));
    jobs.finish_job(&last, None, T).await.unwrap();
    jobs.resign_jobs(&lease).await.unwrap();
}

async fn clock_set_back(jobs: &dyn Jobs) {
    const DAY: i64 = 86_400_000;
    let minute = JobTime::After(Duration::from_secs(60));
    jobs.put_job(new_job("relative", "a", minute), T).await.unwrap();
    jobs.put_job(new_job("absolute", "b", JobTime::At(T + 60_000)), T).await.unwrap();
    jobs.put_job(new_job("held", "a", JobTime::At(T - DAY)), T).await.unwrap();
    let dead = lead(jobs, "dead", T).await;
    let held = claim(jobs, &dead, T).await.unwrap();
    assert_eq!(held.job.key, "held".into());
    let then = T - DAY;
    // Its right ends when it would have ended, counted from now.
    let me = Owner("me".into());
    let refused = jobs.lead_jobs(&me, then, TTL).await.unwrap();
    assert_eq!(refused, RunnerLeaseOutcome::Refused { owner: Owner("dead".into()), until: then + 1_000 });
    let lease = lead(jobs, "me", then + 1_000).await;
    // So does its claim, and so does the time of who waits for a minute.
    let then = then + 1_000;
    let next = |kinds: Vec<JobKind>| kinds.iter().map(|kind| kind.next.unwrap()).collect::<Vec<_>>();
    assert_eq!(next(jobs.job_kinds(then).await.unwrap()), [then, T + 60_000]);
    assert_eq!(claim(jobs, &lease, then).await, None);
    assert_eq!(next(jobs.job_kinds(then).await.unwrap()), [then + 1_000, T + 60_000]);
    assert_eq!(claim(jobs, &lease, then + 1_000).await.unwrap().job.key, "held".into());
    assert_eq!(claim(jobs, &lease, then + 60_000).await.unwrap().job.key, "held".into());
    assert_eq!(claim(jobs, &lease, then + 60_000).await.unwrap().job.key, "relative".into());
    assert_eq!(claim(jobs, &lease, then + 60_001).await, None, "the other one waits for its time");
    for key in ["relative", "absolute", "held"] {
        jobs.cancel_job(&key.into()).await.unwrap();
    }
    // One of many times: it is claimed as if it had come, and tells that it is still to come.
    jobs.put_job(new_job("slot", "a", JobTime::Slot(T + 60_000)), T).await.unwrap();
    assert_eq!(claim(jobs, &lead(jobs, "me", then + 60_002).await, then + 60_002).await, None);
    let lease = lead(jobs, "me", then + 120_002).await;
    let early = claim(jobs, &lease, then + 120_002).await.unwrap().job;
    assert_eq!((early.key.as_str(), early.due), ("slot", T + 60_000));
    jobs.cancel_job(&"slot".into()).await.unwrap();
    jobs.resign_jobs(&lease).await.unwrap();
}

async fn pauses(jobs: &dyn Jobs) {
    assert_eq!(jobs.pause_job(&"z".into()).await.unwrap(), JobPause::Missing);
    jobs.put_job(new_job("z", "a", JobTime::At(T)), T).await.unwrap();
    let lease = lead(jobs, "me", T + 90_000).await;
    let held = claim(jobs, &lease, T + 90_000).await.expect("it is due");
    assert_eq!(jobs.pause_job(&"z".into()).await.unwrap(), JobPause::Changed);
    assert_eq!(jobs.pause_job(&"z".into()).await.unwrap(), JobPause::Unchanged);
    assert_eq!(jobs.finish_job(&held, None, T + 90_000).await, Err(lost("z")), "it was lost");
    assert_eq!(claim(jobs, &lease, T + 90_500).await, None);
    let paused = job(jobs, "z").await;
    assert_eq!((paused.state, paused.next), (JobState::Paused, i64::MAX));
    let resumed = jobs.resume_job(&"z".into(), JobTime::At(T + 90_600), T + 90_500).await.unwrap();
    assert_eq!(resumed, JobPause::Changed);
    assert_eq!(claim(jobs, &lease, T + 90_599).await, None);
    let held = claim(jobs, &lease, T + 90_600).await.expect("it is due again");
    assert_eq!(held.job.attempts, 1);
    jobs.finish_job(&held, None, T + 90_600).await.unwrap();
    jobs.resign_jobs(&lease).await.unwrap();
}

async fn limits(jobs: &dyn Jobs) {
    let fits = |key: usize, kind: usize, payload: usize| NewJob {
        payload: "p".repeat(payload),
        ..new_job(&"k".repeat(key), &"a".repeat(kind), JobTime::At(T))
    };
    for (key, kind, payload) in [(129, 1, 1), (1, 129, 1), (1, 1, JOB_PAYLOAD_LIMIT + 1)] {
        let refused = jobs.put_job(fits(key, kind, payload), T).await;
        assert!(matches!(refused, Err(StoreError::TooLarge { .. })), "{refused:?}");
    }
    let largest = fits(128, 1, JOB_PAYLOAD_LIMIT);
    jobs.put_job(largest.clone(), T).await.unwrap();
    let lease = lead(jobs, "me", T).await;
    let claimed = claim(jobs, &lease, T).await.unwrap();
    let long = "e".repeat(JOB_ERROR_LIMIT + 1);
    let refused = jobs.fail_job(&claimed, &long, JobFailurePlan::Retry(TTL), T).await;
    assert!(matches!(refused, Err(StoreError::TooLarge { limit: 4096, .. })), "{refused:?}");
    jobs.fail_job(&claimed, &long[1..], JobFailurePlan::Retry(TTL), T).await.unwrap();
    jobs.cancel_job(&largest.key).await.unwrap();
    jobs.resign_jobs(&lease).await.unwrap();
}

#[tokio::test]
async fn job_count_is_limited_to_ten_thousand() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("quipu.db"));
    let put = async |n: u64| store.put_job(new_job(&format!("{n:05}"), "a", JobTime::At(T)), T).await;
    // Many at once share a transaction.
    let all: Vec<u64> = (0..JOB_LIMIT).collect();
    for some in all.chunks(500) {
        for put in futures_util::future::join_all(some.iter().map(|n| put(*n))).await {
            assert_eq!(put, Ok(JobPut::Added));
        }
    }
    let refused = put(JOB_LIMIT).await;
    assert_eq!(refused, Err(StoreError::TooManyJobs { limit: JOB_LIMIT }));
    assert_eq!(put(7).await, Ok(JobPut::Unchanged));
    let kinds = store.job_kinds(T).await.unwrap();
    assert_eq!(kinds, [JobKind { kind: "a".into(), count: JOB_LIMIT, failed: 0, next: Some(T) }]);
    // Those that are run are run once each, in order.
    let lease = lead(&store, "me", T).await;
    let mut last = None;
    for _ in 0..1_000 {
        let claimed = claim(&store, &lease, T).await.unwrap();
        assert!(last < Some(claimed.job.key.clone()));
        store.finish_job(&claimed, None, T).await.unwrap();
        last = Some(claimed.job.key);
    }
    assert_eq!(store.job_kinds(T).await.unwrap()[0].count, JOB_LIMIT - 1_000);
    assert_eq!(store.check().await.unwrap().problems, []);
}

#[tokio::test]
async fn a_file_without_the_table_of_jobs_gets_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    drop(open(&path));
    rusqlite::Connection::open(&path).unwrap().execute_batch("DROP TABLE quipu_job").unwrap();
    let store = open(&path);
    assert_eq!(store.put_job(new_job("a", "a", JobTime::At(T)), T).await.unwrap(), JobPut::Added);
}

#[tokio::test]
async fn jobs_of_a_newer_store_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let store = open(&path);
    store.put_job(new_job("a", "a", JobTime::At(T)), T).await.unwrap();
    drop(store);
    let rows = rusqlite::Connection::open(&path).unwrap();
    rows.execute_batch("UPDATE quipu_meta SET value = '99' WHERE key = 'format'").unwrap();
    let refused = SqliteStore::open(&path, &OpenOptions::default()).map(drop);
    assert!(matches!(refused, Err(StoreError::NewerVersion { found: 99, .. })), "{refused:?}");
    let count: i64 = rows.query_row("SELECT count(*) FROM quipu_job", [], |row| row.get(0)).unwrap();
    assert_eq!(count, 1);
}

#[tokio::test]
async fn invalid_rows_do_not_stop_other_jobs() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let store = open(&path);
    store.put_job(new_job("good", "a", JobTime::At(T)), T).await.unwrap();
    let damage = "INSERT INTO quipu_job VALUES ('bad', x'ff', 'sleeping', 'never', 'never', 'x', 'y', -1, 'z', 1, x'00ff', x'ff');
        INSERT INTO quipu_job VALUES ('worse', 'a', 'running', 1, 1, NULL, 0, 99999999999, -5, NULL, NULL, '');";
    rusqlite::Connection::open(&path).unwrap().execute_batch(damage).unwrap();
    assert_eq!(store.jobs(None, 9).await.unwrap().len(), 3);
    assert_eq!(store.job_kinds(T).await.unwrap().len(), 2);
    let lease = lead(&store, "me", T).await;
    let ClaimOutcome::Exhausted(worse) = store.claim_job(&lease, &["a"], T, TTL).await.unwrap() else {
        panic!()
    };
    assert_eq!(worse.key, "worse".into());
    assert_eq!(claim(&store, &lease, T).await.unwrap().job.key, "good".into());
    assert_eq!(claim(&store, &lease, T).await, None);
    assert!(store.cancel_job(&"bad".into()).await.unwrap());
}

#[tokio::test]
async fn jobs_survive_a_repair() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let store = open(&path);
    store.commit(text_commit(None, "something", T).1).await.unwrap();
    for key in ["failed", "running", "waiting"] {
        let limit = if key == "failed" { 1 } else { 3 };
        let due = JobTime::At(if key == "waiting" { T + 9 } else { T });
        store.put_job(NewJob { attempt_limit: limit, ..new_job(key, "a", due) }, T).await.unwrap();
    }
    let lease = lead(&store, "me", T).await;
    let failed = claim(&store, &lease, T).await.unwrap();
    store.fail_job(&failed, "no", JobFailurePlan::Retry(TTL), T).await.unwrap();
    let running = claim(&store, &lease, T).await.unwrap();
    let mut before = store.jobs(None, 9).await.unwrap();
    drop(store);
    salvage(&path).unwrap();
    let store = open(&path);
    before[1].state = JobState::Waiting;
    assert_eq!(store.jobs(None, 9).await.unwrap(), before);
    assert_eq!(store.finish_job(&running, None, T).await, Err(lost("running")));
}

/// One thing that happens to a store of jobs.
#[derive(Debug, Clone)]
enum JobEvent {
    Put {
        key: u8,
        payload: u8,
        relative: bool,
        due: i64,
        limit: u32,
    },
    Lead {
        who: u8,
    },
    Resign {
        who: u8,
    },
    Claim {
        who: u8,
    },
    /// Something is said of a claim, old or new.
    Say {
        claim: usize,
        what: u8,
        time: i64,
    },
    Cancel {
        key: u8,
    },
    Retry {
        key: u8,
    },
    Pause {
        key: u8,
    },
    Resume {
        key: u8,
        due: i64,
    },
    /// Time goes on, or back.
    Clock {
        by: i64,
    },
    /// The file is closed and opened again.
    Reopen,
}

fn happening() -> impl Strategy<Value = JobEvent> {
    prop_oneof![
        4 => (0..5_u8, 0..2_u8, any::<bool>(), 0..3_000_i64, 1..4_u32)
            .prop_map(|(key, payload, relative, due, limit)| JobEvent::Put { key, payload, relative, due, limit }),
        3 => (0..3_u8).prop_map(|who| JobEvent::Lead { who }),
        1 => (0..3_u8).prop_map(|who| JobEvent::Resign { who }),
        8 => (0..3_u8).prop_map(|who| JobEvent::Claim { who }),
        8 => (any::<usize>(), 0..7_u8, 0..3_000_i64)
            .prop_map(|(claim, what, time)| JobEvent::Say { claim, what, time }),
        1 => (0..5_u8).prop_map(|key| JobEvent::Cancel { key }),
        1 => (0..5_u8).prop_map(|key| JobEvent::Retry { key }),
        1 => (0..5_u8).prop_map(|key| JobEvent::Pause { key }),
        2 => (0..5_u8, 0..3_000_i64).prop_map(|(key, due)| JobEvent::Resume { key, due }),
        6 => (0..2_000_i64).prop_map(|by| JobEvent::Clock { by }),
        1 => (-5_000..0_i64).prop_map(|by| JobEvent::Clock { by }),
        1 => Just(JobEvent::Reopen),
    ]
}

/// What must hold whatever happens, known from the answers alone.
#[derive(Default)]
struct Laws {
    /// Who may still speak of each job.
    holders: HashMap<JobKey, (JobClaim, i64)>,
    /// Attempts that began since the last success.
    attempts: BTreeMap<JobKey, (u32, u32)>,
    newest: u64,
    leases: [Option<RunnerLease>; 3],
    was_set_back: bool,
}

impl Laws {
    fn claimed(&mut self, claim: &JobClaim, now: i64) {
        assert!(claim.fence.0 > self.newest, "fences grow");
        self.newest = claim.fence.0;
        if let Some((held, until)) = self.holders.insert(claim.job.key.clone(), (claim.clone(), now + 1_000))
        {
            assert!(until <= now || self.was_set_back, "{held:?} was taken at {now}");
        }
        let (attempts, limit) = self.attempts.get_mut(&claim.job.key).expect("it was put");
        *attempts += 1;
        assert_eq!(claim.job.attempts, *attempts);
        assert!(attempts <= limit, "no more attempts than it may have");
    }
}

/// Does one thing to a store; all that it answers, in words.
async fn happen(
    jobs: &dyn Jobs,
    laws: &mut Laws,
    claims: &mut Vec<JobClaim>,
    now: &mut i64,
    what: &JobEvent,
) -> String {
    let owner = |who: u8| Owner(format!("owner {who}"));
    let name = |key: u8| JobKey::from(format!("job {key}"));
    match what.clone() {
        JobEvent::Put { key, payload, relative, due, limit } => {
            let time = Duration::from_millis(due.unsigned_abs());
            let due = match (relative, due % 2) {
                (true, _) => JobTime::After(time),
                (false, 0) => JobTime::At(*now + due),
                (false, _) => JobTime::Slot(*now + due),
            };
            let payload = payload.to_string();
            let new = NewJob { key: name(key), kind: "a".into(), payload, due, attempt_limit: limit };
            let put = jobs.put_job(new, *now).await.unwrap();
            if put != JobPut::Unchanged {
                laws.attempts.insert(name(key), (0, limit));
                laws.holders.remove(&name(key));
            }
            format!("{put:?}")
        }
        JobEvent::Lead { who } => {
            let led = jobs.lead_jobs(&owner(who), *now, TTL).await.unwrap();
            if let RunnerLeaseOutcome::Granted(lease) = &led {
                laws.leases[usize::from(who)] = Some(lease.clone());
            }
            format!("{led:?}")
        }
        JobEvent::Resign { who } => {
            if let Some(lease) = laws.leases[usize::from(who)].clone() {
                jobs.resign_jobs(&lease).await.unwrap();
                assert_eq!(jobs.claim_job(&lease, &["a"], *now, TTL).await, Err(StoreError::NotLeading));
            }
            String::new()
        }
        JobEvent::Claim { who } => {
            let Some(lease) = laws.leases[usize::from(who)].clone() else { return String::new() };
            let claimed = jobs.claim_job(&lease, &["a"], *now, TTL).await;
            let newest = laws.leases.iter().flatten().map(|lease| lease.fence).max();
            assert!(claimed.is_err() || newest == Some(lease.fence), "only the newest runner claims");
            match &claimed {
                Ok(ClaimOutcome::Job(claim)) => {
                    laws.claimed(claim, *now);
                    claims.push((**claim).clone());
                }
                Ok(ClaimOutcome::Exhausted(job)) => drop(laws.holders.remove(&job.key)),
                Ok(ClaimOutcome::Nothing) | Err(_) => {}
            }
            format!("{claimed:?}")
        }
        JobEvent::Say { claim, what, time } => {
            if claims.is_empty() {
                return String::new();
            }
            let claim = claims[claim % claims.len()].clone();
            let key = claim.job.key.clone();
            let time = Duration::from_millis(time.unsigned_abs());
            let holds = laws.holders.get(&key).is_some_and(|(held, _)| held.fence == claim.fence);
            let said = match what {
                0 => jobs.renew_job(&claim, *now, TTL).await.map(|()| JobState::Failed),
                1 => jobs.finish_job(&claim, None, *now).await.map(|()| JobState::Waiting),
                2 => {
                    let next = Some(JobTime::After(time));
                    jobs.finish_job(&claim, next, *now).await.map(|()| JobState::Waiting)
                }
                3 => jobs.fail_job(&claim, "it failed", JobFailurePlan::Retry(time), *now).await,
                5 => jobs.fail_job(&claim, "not now", JobFailurePlan::Next(JobTime::After(time)), *now).await,
                6 => jobs.fail_job(&claim, "never", JobFailurePlan::Stop, *now).await,
                _ => jobs.release_job(&claim, *now).await.map(|()| JobState::Waiting),
            };
            assert_eq!(said.is_ok(), holds, "who holds it, and nobody else, may speak of it: {claim:?}");
            if said.is_ok() {
                match what {
                    0 => drop(laws.holders.insert(key.clone(), (claim, *now + 1_000))),
                    _ => drop(laws.holders.remove(&key)),
                }
                let (attempts, _) = laws.attempts.get_mut(&key).expect("it was put");
                match what {
                    1 => drop(laws.attempts.remove(&key)),
                    2 | 5 => *attempts = 0,
                    4 => *attempts -= 1,
                    _ => {}
                }
            }
            format!("{said:?}")
        }
        JobEvent::Cancel { key } => {
            laws.holders.remove(&name(key));
            laws.attempts.remove(&name(key));
            format!("{:?}", jobs.cancel_job(&name(key)).await)
        }
        JobEvent::Retry { key } => {
            let retried = jobs.retry_job(&name(key), *now).await.unwrap();
            if retried == JobRetry::Due {
                laws.attempts.get_mut(&name(key)).expect("it was put").0 = 0;
            }
            format!("{retried:?}")
        }
        JobEvent::Pause { key } => {
            let paused = jobs.pause_job(&name(key)).await.unwrap();
            if paused == JobPause::Changed {
                laws.holders.remove(&name(key));
            }
            format!("{paused:?}")
        }
        JobEvent::Resume { key, due } => {
            let resumed = jobs.resume_job(&name(key), JobTime::At(*now + due), *now).await.unwrap();
            if resumed == JobPause::Changed {
                laws.attempts.get_mut(&name(key)).expect("it was put").0 = 0;
            }
            format!("{resumed:?}")
        }
        JobEvent::Clock { by } => {
            *now += by;
            laws.was_set_back |= by < 0;
            String::new()
        }
        JobEvent::Reopen => String::new(),
    }
}

/// All that is there.
async fn stands(jobs: &dyn Jobs, now: i64) -> (Vec<Job>, Vec<JobKind>) {
    (jobs.jobs(None, 100).await.unwrap(), jobs.job_kinds(now).await.unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn jobs_obey_their_laws(happenings in prop::collection::vec(happening(), 1..120)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("quipu.db");
            let (mut file, maps) = (open(&path), MemoryStore::default());
            let mut one = (Laws::default(), Vec::new(), T);
            let mut other = (Laws::default(), Vec::new(), T);
            for what in &happenings {
                if matches!(what, JobEvent::Reopen) {
                    drop(file);
                    file = open(&path);
                }
                let said = happen(&file, &mut one.0, &mut one.1, &mut one.2, what).await;
                let expected = happen(&maps, &mut other.0, &mut other.1, &mut other.2, what).await;
                assert_eq!(said, expected, "{what:?}");
                assert_eq!(stands(&file, one.2).await, stands(&maps, one.2).await, "{what:?}");
            }
        });
    }
}
