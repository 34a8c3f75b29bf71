//! Runners of jobs: in this process and in others, which are killed.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use quipu::{CallRequest, Clock, Engine, RunnerPurpose, Script, ScriptStep, Sealer, SessionOptions};
use quipu_host::jobs::{
    DREAM, DueRun, JobContext, JobError, JobHandler, JobNotice, JobOutcome, JobRunner, RunnerOptions,
    run_alongside,
};
use quipu_host::{Home, HostNotice, Observer, SilentObserver, now};
use quipu_protocol::Entry;
use quipu_store::{
    ClaimOutcome, Fence, Fut, Job, JobClaim, JobFailurePlan, JobKey, JobKind, JobPause, JobPut, JobRetry,
    JobState, JobTime, Jobs, LOST_ATTEMPT, LineageEnd, NewJob, OpenOptions, Owner, ReadModel as _,
    RunnerLease, RunnerLeaseOutcome, SessionQuery, SqliteStore, Store as _, StoreError, decode_nodes,
};
use tokio_util::sync::CancellationToken;

const ROLE: &str = "QUIPU_HOST_CHILD";
const SECRET: &str = "sk-this-is-a-key-of-a-test-0123456789";

/// Times that a test can wait for.
fn options() -> RunnerOptions {
    RunnerOptions {
        lease: Duration::from_millis(900),
        poll: Duration::from_millis(20),
        retry: Duration::from_millis(1),
        longest_retry: Duration::from_millis(5),
        spacing: Duration::from_millis(1),
        grace: Duration::from_millis(50),
    }
}

fn open(path: &Path) -> Arc<SqliteStore> {
    Arc::new(SqliteStore::open(path, &OpenOptions::default()).unwrap())
}

fn new_job(key: &str, kind: &str, payload: impl Into<String>) -> NewJob {
    let due = JobTime::After(Duration::ZERO);
    NewJob { key: key.into(), kind: kind.into(), payload: payload.into(), due, attempt_limit: 3 }
}

/// Records notices.
#[derive(Default)]
struct NoticeLog(Mutex<Vec<JobNotice>>);

impl NoticeLog {
    fn all(&self) -> Vec<JobNotice> {
        self.0.lock().unwrap().clone()
    }
}

impl Observer for NoticeLog {
    fn notice(&self, notice: HostNotice) {
        panic!("{notice:?}");
    }

    fn job(&self, notice: &JobNotice) {
        self.0.lock().unwrap().push(notice.clone());
    }
}

/// Work that takes a while.
async fn lasts(time: Duration) {
    drop(tokio::time::timeout(time, std::future::pending::<()>()).await);
}

/// Writes a line to the file that the job names: its key, what it is due for, which attempt.
struct Append(fn() -> JobOutcome);

impl JobHandler for Append {
    fn kind(&self) -> &str {
        "append"
    }

    fn run<'a>(&'a self, job: &'a Job, _: &'a JobContext) -> BoxFuture<'a, Result<JobOutcome, JobError>> {
        Box::pin(async move {
            let mut file = std::fs::File::options()
                .append(true)
                .create(true)
                .open(&job.payload)
                .map_err(JobError::new)?;
            let line = format!("{} {} {}\n", job.key, job.due, job.attempts);
            file.write_all(line.as_bytes()).map_err(JobError::new)?;
            lasts(Duration::from_millis(1)).await;
            Ok((self.0)())
        })
    }
}

/// A handler that calls a function.
struct FnHandler<F>(&'static str, Duration, F);

impl<F> JobHandler for FnHandler<F>
where
    F: for<'a> Fn(&'a Job, &'a JobContext) -> BoxFuture<'a, Result<JobOutcome, JobError>>
        + Send
        + Sync
        + 'static,
{
    fn kind(&self) -> &str {
        self.0
    }

    fn deadline(&self) -> Duration {
        self.1
    }

    fn run<'a>(&'a self, job: &'a Job, cx: &'a JobContext) -> BoxFuture<'a, Result<JobOutcome, JobError>> {
        (self.2)(job, cx)
    }
}

fn does<F>(kind: &'static str, deadline: Duration, work: F) -> Arc<dyn JobHandler>
where
    F: for<'a> Fn(&'a Job, &'a JobContext) -> BoxFuture<'a, Result<JobOutcome, JobError>>
        + Send
        + Sync
        + 'static,
{
    Arc::new(FnHandler(kind, deadline, work))
}

fn runner(jobs: Arc<dyn Jobs>, handlers: Vec<Arc<dyn JobHandler>>, observer: Arc<dyn Observer>) -> JobRunner {
    let sealer = Sealer::new([7; 32]);
    sealer.know("credential", SECRET);
    JobRunner::new(jobs, handlers, observer, Arc::new(sealer)).with_options(options())
}

async fn stands(jobs: &dyn Jobs, key: &str) -> Job {
    jobs.job(&key.into()).await.unwrap().unwrap()
}

/// Runs jobs until nothing is left to do about them, or for ten seconds.
async fn run_until(runner: &JobRunner, done: impl AsyncFn() -> bool) {
    let stop = CancellationToken::new();
    let watch = async {
        for _ in 0..1_000 {
            if done().await {
                break;
            }
            lasts(Duration::from_millis(10)).await;
        }
        stop.cancel();
    };
    tokio::join!(runner.run(&stop), watch);
    assert!(done().await, "not within ten seconds");
}

fn lines(file: &Path) -> Vec<String> {
    std::fs::read_to_string(file).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// This binary as another process, which does `role` with the store in `dir`.
fn start(role: &str, dir: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "jobs::child", "--nocapture", "--test-threads=1"]);
    command.env(ROLE, role).env("QUIPU_HOST_DIR", dir);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

fn say(text: &str) {
    let mut out = std::io::stdout();
    writeln!(out, "\nsaid {text}").unwrap();
    out.flush().unwrap();
}

/// What the process says next.
fn hear(lines: &mut impl Iterator<Item = std::io::Result<String>>) -> String {
    lines.find_map(|line| line.unwrap().strip_prefix("said ").map(str::to_owned)).expect("it says something")
}

#[tokio::test]
async fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let dir = PathBuf::from(std::env::var_os("QUIPU_HOST_DIR").unwrap());
    let store = open(&dir.join("quipu.db"));
    if role == "run" {
        let again = || JobOutcome::Again(JobTime::After(Duration::from_millis(5)));
        let runner = runner(store, vec![Arc::new(Append(again))], Arc::new(SilentObserver));
        say("ready");
        return runner.run(&CancellationToken::new()).await;
    }
    let halts = does("append", Duration::from_secs(600), |_, _| {
        Box::pin(async {
            say("0");
            std::future::pending().await
        })
    });
    let handler = if role == "during" { halts } else { Arc::new(Append(|| JobOutcome::Done)) };
    let jobs = Arc::new(HaltingStore { store, role });
    runner(jobs, vec![handler], Arc::new(SilentObserver)).run(&CancellationToken::new()).await;
}

/// A store that halts the process at one step.
struct HaltingStore {
    store: Arc<SqliteStore>,
    role: String,
}

impl HaltingStore {
    async fn step(&self, role: &str, fence: Fence) {
        if self.role == role {
            say(&fence.0.to_string());
            std::future::pending::<()>().await;
        }
    }
}

impl Jobs for HaltingStore {
    fn put_job(&self, job: NewJob, now: i64) -> Fut<'_, JobPut> {
        self.store.put_job(job, now)
    }

    fn put_new_job(&self, job: NewJob, now: i64) -> Fut<'_, bool> {
        self.store.put_new_job(job, now)
    }

    fn put_paused_job(&self, job: NewJob, now: i64) -> Fut<'_, bool> {
        self.store.put_paused_job(job, now)
    }

    fn lead_jobs<'a>(&'a self, owner: &'a Owner, now: i64, ttl: Duration) -> Fut<'a, RunnerLeaseOutcome> {
        self.store.lead_jobs(owner, now, ttl)
    }

    fn resign_jobs<'a>(&'a self, lease: &'a RunnerLease) -> Fut<'a, ()> {
        self.store.resign_jobs(lease)
    }

    fn claim_job<'a>(
        &'a self,
        lease: &'a RunnerLease,
        kinds: &'a [&'a str],
        now: i64,
        ttl: Duration,
    ) -> Fut<'a, ClaimOutcome> {
        Box::pin(async move {
            self.step("before the claim", Fence(0)).await;
            let claimed = self.store.claim_job(lease, kinds, now, ttl).await?;
            if let ClaimOutcome::Job(claim) = &claimed {
                self.step("after the claim", claim.fence).await;
            }
            Ok(claimed)
        })
    }

    fn renew_job<'a>(&'a self, claim: &'a JobClaim, now: i64, ttl: Duration) -> Fut<'a, ()> {
        self.store.renew_job(claim, now, ttl)
    }

    fn finish_job<'a>(&'a self, claim: &'a JobClaim, next: Option<JobTime>, now: i64) -> Fut<'a, ()> {
        Box::pin(async move {
            self.step("after the work", claim.fence).await;
            self.store.finish_job(claim, next, now).await?;
            self.step("when finished", claim.fence).await;
            Ok(())
        })
    }

    fn fail_job<'a>(
        &'a self,
        claim: &'a JobClaim,
        error: &'a str,
        plan: JobFailurePlan,
        now: i64,
    ) -> Fut<'a, JobState> {
        self.store.fail_job(claim, error, plan, now)
    }

    fn release_job<'a>(&'a self, claim: &'a JobClaim, now: i64) -> Fut<'a, ()> {
        self.store.release_job(claim, now)
    }

    fn retry_job<'a>(&'a self, key: &'a JobKey, now: i64) -> Fut<'a, JobRetry> {
        self.store.retry_job(key, now)
    }

    fn pause_job<'a>(&'a self, key: &'a JobKey) -> Fut<'a, JobPause> {
        self.store.pause_job(key)
    }

    fn resume_job<'a>(&'a self, key: &'a JobKey, due: JobTime, now: i64) -> Fut<'a, JobPause> {
        self.store.resume_job(key, due, now)
    }

    fn cancel_job<'a>(&'a self, key: &'a JobKey) -> Fut<'a, bool> {
        self.store.cancel_job(key)
    }

    fn job<'a>(&'a self, key: &'a JobKey) -> Fut<'a, Option<Job>> {
        self.store.job(key)
    }

    fn jobs<'a>(&'a self, after: Option<&'a JobKey>, limit: usize) -> Fut<'a, Vec<Job>> {
        self.store.jobs(after, limit)
    }

    fn job_kinds(&self, now: i64) -> Fut<'_, Vec<JobKind>> {
        self.store.job_kinds(now)
    }
}

#[tokio::test]
async fn two_processes_run_each_job_once_each_time() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ran");
    let store = open(&dir.path().join("quipu.db"));
    for n in 0..10 {
        let job = new_job(&format!("job{n}"), "append", file.to_str().unwrap());
        store.put_job(job, now()).await.unwrap();
    }
    let mut children = [start("run", dir.path()), start("run", dir.path())];
    for _ in 0..1_000 {
        if lines(&file).len() >= 200 {
            break;
        }
        lasts(Duration::from_millis(20)).await;
    }
    for child in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let mut times: BTreeMap<String, u32> = BTreeMap::new();
    for line in lines(&file) {
        assert!(line.ends_with(" 1"), "each in its first attempt: {line}");
        *times.entry(line).or_default() += 1;
    }
    assert!(times.len() >= 200, "{}", times.len());
    let twice: Vec<_> = times.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    // All of them took part in turn, none was forgotten.
    let jobs: std::collections::HashSet<&str> =
        times.keys().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(jobs.len(), 10);
}

#[tokio::test]
async fn next_runner_takes_over_from_one_killed_at_any_step() {
    // What the killed one wrote, and the attempt in which the next one runs it, if it does.
    let steps = [
        ("before the claim", 0, Some(1)),
        ("after the claim", 0, Some(2)),
        ("during", 0, Some(2)),
        ("after the work", 1, Some(2)),
        ("when finished", 1, None),
    ];
    for (step, wrote, next) in steps {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ran");
        let store = open(&dir.path().join("quipu.db"));
        store.put_job(new_job("job", "append", file.to_str().unwrap()), now()).await.unwrap();
        let due = stands(&*store, "job").await.due;
        let mut child = start(step, dir.path());
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        let fence = Fence(hear(&mut said).parse().unwrap());
        let heard_at = Instant::now();
        let old = store.job(&"job".into()).await.unwrap().map(|job| JobClaim { job, fence });
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(lines(&file).len(), wrote, "{step}");

        let heard = Arc::new(NoticeLog::default());
        let stop = CancellationToken::new();
        let other = runner(store.clone(), vec![Arc::new(Append(|| JobOutcome::Done))], heard.clone());
        if next.is_some() {
            // Not while its leases last.
            let ran = other.run_due(&stop).await.unwrap();
            let is_busy = matches!(ran, DueRun::Busy { .. });
            assert!(is_busy || heard_at.elapsed() > options().lease / 2, "{step}: {ran:?}");
        }
        run_until(&other, async || store.job(&"job".into()).await.unwrap().is_none()).await;
        let expected: Vec<String> = next.iter().map(|attempt| format!("job {due} {attempt}")).collect();
        assert_eq!(lines(&file)[wrote..], expected, "{step}: for the same time");
        if let (Some(old), Some(2)) = (old, next) {
            let refused = store.finish_job(&old, None, now()).await;
            assert_eq!(refused, Err(StoreError::JobLost { key: "job".into() }), "{step}");
        }
    }
}

#[tokio::test]
async fn runners_beside_each_other_run_jobs_at_the_same_time() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::at(dir.path(), Arc::new(SilentObserver));
    let store = open(&dir.path().join("quipu.db"));
    let (begun, over) = (Arc::new(tokio::sync::Notify::new()), Arc::new(tokio::sync::Notify::new()));
    let (says, waits) = (begun.clone(), over.clone());
    let long = does("long", Duration::from_secs(600), move |_, _| {
        let (says, waits) = (says.clone(), waits.clone());
        Box::pin(async move {
            says.notify_one();
            waits.notified().await;
            Ok(JobOutcome::Done)
        })
    });
    let short = || does("short", Duration::from_secs(600), |_, _| Box::pin(async { Ok(JobOutcome::Done) }));
    let beside =
        |handler| runner(store.clone(), vec![handler], Arc::new(SilentObserver)).beside_others_of(&home);
    let elsewhere = runner(store.clone(), vec![short()], Arc::new(SilentObserver));
    let stop = CancellationToken::new();
    store.put_job(new_job("l", "long", ""), now()).await.unwrap();
    let (first, second) = (beside(long), beside(short()));
    let others = async {
        begun.notified().await;
        store.put_job(new_job("s", "short", ""), now()).await.unwrap();
        assert!(matches!(elsewhere.run_due(&stop).await.unwrap(), DueRun::Busy { .. }));
        assert_eq!(second.run_due(&stop).await.unwrap(), DueRun::Ran { finished: 1, failed: 0 });
        // The one that ended did not let others for the one that works.
        assert!(matches!(elsewhere.run_due(&stop).await.unwrap(), DueRun::Busy { .. }));
        over.notify_one();
    };
    let (ran, ()) = tokio::join!(first.run_due(&stop), others);
    assert_eq!(ran.unwrap(), DueRun::Ran { finished: 1, failed: 0 });
    store.put_job(new_job("t", "short", ""), now()).await.unwrap();
    assert_eq!(elsewhere.run_due(&stop).await.unwrap(), DueRun::Ran { finished: 1, failed: 0 });
}

#[tokio::test]
async fn attempts_are_used_up_by_runners_that_die() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("quipu.db"));
    let job = NewJob { attempt_limit: 2, ..new_job("deadly", "append", "unused") };
    store.put_job(job, now()).await.unwrap();
    for attempt in 1..=2 {
        let mut child = start("during", dir.path());
        hear(&mut BufReader::new(child.stdout.take().unwrap()).lines());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(stands(&*store, "deadly").await.attempts, attempt);
    }
    let heard = Arc::new(NoticeLog::default());
    let next = runner(store.clone(), vec![Arc::new(Append(|| JobOutcome::Done))], heard.clone());
    run_until(&next, async || stands(&*store, "deadly").await.state == JobState::Failed).await;
    assert_eq!(stands(&*store, "deadly").await.error.as_deref(), Some(LOST_ATTEMPT));
    let (key, error) = ("deadly".into(), LOST_ATTEMPT.to_owned());
    assert_eq!(heard.all(), [JobNotice::Failed { key, attempt: 2, error, retry: None }]);
}

#[tokio::test]
async fn handlers_that_hang_panic_fail_or_flood_use_up_attempts() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("quipu.db"));
    let long = Duration::from_secs(60);
    let handlers = vec![
        does("hangs", Duration::from_millis(30), |_, _| Box::pin(std::future::pending())),
        does("panics", long, |_, _| panic!("with {SECRET}")),
        does("panics later", long, |_, _| {
            Box::pin(async {
                tokio::task::yield_now().await;
                panic!("later")
            })
        }),
        does("fails", long, |_, _| Box::pin(async { Err(JobError::new(format!("no {SECRET} here"))) })),
        does("floods", long, |_, _| Box::pin(async { Err(JobError::new("é".repeat(20 << 20))) })),
        does("works", long, |_, _| Box::pin(async { Ok(JobOutcome::Done) })),
    ];
    for handler in &handlers {
        store.put_job(new_job(handler.kind(), handler.kind(), ""), now()).await.unwrap();
    }
    let heard = Arc::new(NoticeLog::default());
    let all = runner(store.clone(), handlers, heard.clone());
    run_until(&all, async || {
        let kinds = store.job_kinds(now()).await.unwrap();
        kinds.len() == 5 && kinds.iter().all(|kind| kind.failed == 1)
    })
    .await;
    let job = async |key| stands(&*store, key).await;
    assert_eq!(job("hangs").await.error.as_deref(), Some("it took longer than 0.03 s"));
    assert!(job("panics later").await.error.unwrap().ends_with("a bug: later"));
    for key in ["panics", "fails"] {
        let error = job(key).await.error.unwrap();
        assert!(error.contains("[REDACTED:credential:") && !error.contains(SECRET), "{error}");
    }
    let flood = job("floods").await.error.unwrap();
    assert!((4_000..=4_096).contains(&flood.len()) && flood.ends_with("é…"), "{}", flood.len());
    for key in ["hangs", "panics", "panics later", "fails", "floods"] {
        assert_eq!(job(key).await.attempts, 3);
        let of_this = |notice: &JobNotice| match notice {
            JobNotice::Failed { key: of, retry, .. } if *of == key.into() => Some(*retry),
            _ => None,
        };
        let retries: Vec<_> = heard.all().iter().filter_map(of_this).collect();
        assert_eq!(retries, [Some(Duration::from_millis(1)), Some(Duration::from_millis(2)), None], "{key}");
    }
    assert!(heard.all().contains(&JobNotice::Finished { key: "works".into(), next: None }));
    // Tried again, it has all its attempts.
    store.retry_job(&"fails".into(), now()).await.unwrap();
    let stop = CancellationToken::new();
    assert_eq!(all.run_due(&stop).await.unwrap(), DueRun::Ran { finished: 0, failed: 1 });
    assert_eq!((job("fails").await.state, job("fails").await.attempts), (JobState::Waiting, 1));
}

#[tokio::test]
async fn job_of_an_unknown_kind_is_left_alone_and_reported_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("quipu.db"));
    store.put_job(new_job("later", "of a later version", "{}"), now()).await.unwrap();
    let before = stands(&*store, "later").await;
    let heard = Arc::new(NoticeLog::default());
    let runner = runner(store.clone(), vec![Arc::new(Append(|| JobOutcome::Done))], heard.clone());
    let stop = CancellationToken::new();
    for _ in 0..3 {
        assert_eq!(runner.run_due(&stop).await.unwrap(), DueRun::Ran { finished: 0, failed: 0 });
    }
    let unknown = JobNotice::UnknownKind { kind: "of a later version".into(), count: 1 };
    assert_eq!(heard.all(), [unknown]);
    assert_eq!(stands(&*store, "later").await, before);
}

#[tokio::test]
async fn lease_of_a_long_job_is_renewed() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("quipu.db"));
    store.put_job(new_job("long", "long", ""), now()).await.unwrap();
    // Three times as long as its lease.
    let long = || {
        does("long", Duration::from_secs(60), |_, _| {
            Box::pin(async {
                lasts(Duration::from_millis(2_700)).await;
                Ok(JobOutcome::Done)
            })
        })
    };
    let (one, other) = (Arc::new(NoticeLog::default()), Arc::new(NoticeLog::default()));
    let first = runner(store.clone(), vec![long()], one.clone());
    let second = runner(store.clone(), vec![long()], other.clone());
    let gone = async || store.job(&"long".into()).await.unwrap().is_none();
    tokio::join!(run_until(&first, gone), run_until(&second, gone));
    let said: Vec<JobNotice> = one.all().into_iter().chain(other.all()).collect();
    let key: JobKey = "long".into();
    let began = JobNotice::Began { key: key.clone(), attempt: 1 };
    assert_eq!(said, [began, JobNotice::Finished { key, next: None }]);
}

#[tokio::test]
async fn job_in_hand_is_given_back_when_the_runner_ends() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("quipu.db"));
    let long = Duration::from_secs(60);
    let handlers = vec![
        does("deaf", long, |_, _| Box::pin(std::future::pending())),
        does("polite", long, |_, cx| {
            Box::pin(async move {
                cx.stop().cancelled().await;
                Err(JobError::new("the job was stopped"))
            })
        }),
        does("nearly done", long, |_, cx| {
            Box::pin(async move {
                cx.stop().cancelled().await;
                Ok(JobOutcome::Done)
            })
        }),
    ];
    for kind in ["deaf", "polite", "nearly done"] {
        store.put_job(new_job(kind, kind, ""), now()).await.unwrap();
        let heard = Arc::new(NoticeLog::default());
        let runner = runner(store.clone(), handlers.clone(), heard.clone());
        let running = async || !heard.all().is_empty();
        run_until(&runner, running).await;
        let key: JobKey = kind.into();
        let began = JobNotice::Began { key: key.clone(), attempt: 1 };
        if kind == "nearly done" {
            assert_eq!(heard.all(), [began, JobNotice::Finished { key, next: None }]);
            continue;
        }
        assert_eq!(heard.all(), [began, JobNotice::GivenBack { key: key.clone() }]);
        let job = stands(&*store, kind).await;
        assert_eq!((job.state, job.attempts), (JobState::Waiting, 0));
        assert!(job.next <= now(), "due at once");
        // And nobody has to wait for a lease.
        let other = store.lead_jobs(&Owner("other".into()), now(), Duration::from_secs(1)).await.unwrap();
        let RunnerLeaseOutcome::Granted(lease) = other else { panic!("{other:?}") };
        store.resign_jobs(&lease).await.unwrap();
        store.cancel_job(&key).await.unwrap();
    }
}

#[tokio::test]
async fn removed_job_is_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("quipu.db"));
    store.put_job(new_job("endless", "endless", ""), now()).await.unwrap();
    let endless = does("endless", Duration::from_secs(60), |_, _| Box::pin(std::future::pending()));
    let heard = Arc::new(NoticeLog::default());
    let runner = runner(store.clone(), vec![endless], heard.clone());
    let key: JobKey = "endless".into();
    run_until(&runner, async || {
        let said = heard.all();
        if said.len() == 1 {
            store.cancel_job(&key).await.unwrap();
        }
        said.len() == 2
    })
    .await;
    let began = JobNotice::Began { key: key.clone(), attempt: 1 };
    assert_eq!(heard.all(), [began, JobNotice::Lost { key }]);
}

/// A clock that tests set.
struct SetClock(AtomicI64);

impl Clock for SetClock {
    fn now(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[tokio::test]
async fn clock_set_back_delays_no_job_that_is_due_after_a_while() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("quipu.db"));
    let clock = Arc::new(SetClock(AtomicI64::new(1_800_000_000_000)));
    let ran = Arc::new(AtomicU32::new(0));
    let counter = ran.clone();
    let again = does("again", Duration::from_secs(60), move |_, _| {
        counter.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Ok(JobOutcome::Again(JobTime::After(Duration::from_millis(200)))) })
    });
    store.put_job(new_job("again", "again", ""), clock.now()).await.unwrap();
    let runner = runner(store.clone(), vec![again], Arc::new(SilentObserver)).with_clock(clock.clone());
    run_until(&runner, async || ran.load(Ordering::Relaxed) == 1).await;
    // A year. From then on it goes as clocks do.
    clock.0.fetch_sub(365 * 86_400_000, Ordering::Relaxed);
    run_until(&runner, async || {
        clock.0.fetch_add(10, Ordering::Relaxed);
        ran.load(Ordering::Relaxed) == 3
    })
    .await;
}

#[tokio::test]
async fn job_that_is_always_due_runs_once_in_one_look() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("quipu.db"));
    let eager = does("eager", Duration::from_secs(60), |_, _| {
        Box::pin(async {
            lasts(Duration::from_millis(5)).await;
            Ok(JobOutcome::Again(JobTime::At(0)))
        })
    });
    for key in ["one", "two"] {
        store.put_job(new_job(key, "eager", ""), now()).await.unwrap();
    }
    let runner = runner(store.clone(), vec![eager], Arc::new(SilentObserver));
    let ran = runner.run_due(&CancellationToken::new()).await.unwrap();
    assert_eq!(ran, DueRun::Ran { finished: 2, failed: 0 });
    assert_eq!(stands(&*store, "one").await.state, JobState::Waiting);
}

/// A handler that runs some of its jobs at once, and counts how many.
#[derive(Default)]
struct Crowd {
    now: AtomicU32,
    most: AtomicU32,
    ran: AtomicU32,
}

struct CrowdHandler(Arc<Crowd>);

impl JobHandler for CrowdHandler {
    fn kind(&self) -> &str {
        "crowd"
    }

    fn at_once(&self) -> usize {
        2
    }

    fn run<'a>(&'a self, _: &'a Job, _: &'a JobContext) -> BoxFuture<'a, Result<JobOutcome, JobError>> {
        Box::pin(async {
            self.0.most.fetch_max(self.0.now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            lasts(Duration::from_millis(30)).await;
            self.0.now.fetch_sub(1, Ordering::Relaxed);
            self.0.ran.fetch_add(1, Ordering::Relaxed);
            Ok(JobOutcome::Done)
        })
    }
}

#[tokio::test]
async fn long_job_holds_up_no_other_kind() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("quipu.db"));
    let endless = does("endless", Duration::from_secs(60), |_, _| Box::pin(std::future::pending()));
    let crowd = Arc::new(Crowd::default());
    store.put_job(new_job("endless", "endless", ""), now()).await.unwrap();
    let heard = Arc::new(NoticeLog::default());
    let runner = runner(store.clone(), vec![endless, Arc::new(CrowdHandler(crowd.clone()))], heard.clone());
    let is_added = std::sync::atomic::AtomicBool::new(false);
    run_until(&runner, async || {
        if !heard.all().is_empty() && !is_added.swap(true, Ordering::Relaxed) {
            // They become due while it runs.
            for number in 0..5 {
                store.put_job(new_job(&format!("{number}"), "crowd", ""), now()).await.unwrap();
            }
        }
        crowd.ran.load(Ordering::Relaxed) == 5
    })
    .await;
    assert_eq!(crowd.most.load(Ordering::Relaxed), 2, "as many at once as the handler says");
    // It was given back, for the next runner.
    let stands = stands(&*store, "endless").await;
    assert_eq!((stands.state, stands.attempts), (JobState::Waiting, 0));
}

#[tokio::test]
async fn pass_runs_short_jobs_again_beside_a_long_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("quipu.db"));
    let ran = Arc::new(AtomicU32::new(0));
    let (seen, counter) = (ran.clone(), ran.clone());
    // It is done when the other one ran three times.
    let long = does("long", Duration::from_secs(60), move |_, _| {
        let seen = seen.clone();
        Box::pin(async move {
            while seen.load(Ordering::Relaxed) < 3 {
                lasts(Duration::from_millis(5)).await;
            }
            Ok(JobOutcome::Done)
        })
    });
    let short = does("short", Duration::from_secs(60), move |_, _| {
        counter.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Ok(JobOutcome::Again(JobTime::At(0))) })
    });
    for kind in ["long", "short"] {
        store.put_job(new_job(kind, kind, ""), now()).await.unwrap();
    }
    let runner = runner(store.clone(), vec![long, short], Arc::new(SilentObserver));
    let done = runner.run_due(&CancellationToken::new()).await.unwrap();
    let DueRun::Ran { finished, failed: 0 } = done else { panic!("{done:?}") };
    assert!(finished >= 4, "{finished}");
    assert_eq!(stands(&*store, "short").await.state, JobState::Waiting);
}

#[tokio::test]
async fn store_without_jobs_is_not_made_by_a_front() {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::at(dir.path(), Arc::new(SilentObserver));
    let front = async {
        lasts(Duration::from_millis(1_300)).await;
        7
    };
    assert_eq!(run_alongside(&home, front).await, 7);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn stored_dream_of_an_older_form_does_not_fail() {
    let dir = tempfile::tempdir().unwrap();
    let settings = serde_json::json!({ "memory": { "dreaming": { "enabled": true } } });
    std::fs::write(dir.path().join("settings.json"), settings.to_string()).unwrap();
    quipu_memory::MemoryHome::new(dir.path()).choose(dir.path(), |choice| choice.on = true).unwrap();
    let log = Arc::new(NoticeLog::default());
    let home = Home::at(dir.path(), log.clone());
    let store = open(&dir.path().join("quipu.db"));
    store.put_job(new_job(DREAM, DREAM, "{}"), now()).await.unwrap();
    let front = async {
        loop {
            let changed = store.changed();
            let job = stands(&*store, DREAM).await;
            if job.payload != "{}" || job.attempts > 0 || job.state == JobState::Failed {
                break job;
            }
            changed.await.unwrap();
        }
    };
    let job = run_alongside(&home, front).await;
    assert_eq!((&job.state, job.attempts), (&JobState::Waiting, 0), "{job:?}");
    assert!(job.due > now() && job.payload.contains("cron"), "{job:?}");
    assert!(log.all().is_empty(), "{:?}", log.all());
}

/// Asks a model, and keeps the answer in the file that the job names.
fn asks() -> Arc<dyn JobHandler> {
    does("ask", Duration::from_secs(60), |job, cx| {
        Box::pin(async move {
            let purpose = RunnerPurpose::new("digest").map_err(JobError::new)?;
            let runner = cx.runner().map_err(JobError::new)?;
            let answer =
                runner.call(CallRequest::new(purpose, "What is new?")).await.map_err(JobError::new)?;
            std::fs::write(&job.payload, format!("{} {}", answer.session, answer.text))
                .map_err(JobError::new)?;
            Ok(JobOutcome::Done)
        })
    })
}

#[tokio::test]
async fn job_asks_a_model_and_its_call_is_a_session_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let (path, file) = (dir.path().join("quipu.db"), dir.path().join("answer"));
    let store = open(&path);
    store.put_job(new_job("one", "ask", file.to_str().unwrap()), now()).await.unwrap();
    let engine = Engine::new(store.clone(), Arc::new(Sealer::new([7; 32])), dir.path().join("spill"));
    let step = ScriptStep { text: "Nothing.".into(), ..ScriptStep::default() };
    let (model, script) = (Arc::default(), Arc::new(Script::new(vec![step])));
    let options = SessionOptions { tools: Vec::new(), ..SessionOptions::new(dir.path(), model, script) };
    let heard = Arc::new(NoticeLog::default());
    let runner = runner(store.clone(), vec![asks()], heard.clone())
        .with_models(move || Ok(engine.runner(options.clone())));
    let stop = CancellationToken::new();
    assert_eq!(
        runner.run_due(&stop).await.unwrap(),
        DueRun::Ran { finished: 1, failed: 0 },
        "{:?}",
        heard.all()
    );
    let said = std::fs::read_to_string(&file).unwrap();
    let (session, text) = said.split_once(' ').unwrap();
    assert_eq!(text, "Nothing.");
    let query = SessionQuery { children: true, ..SessionQuery::default() };
    let sessions = store.sessions(query).await.unwrap();
    assert_eq!(sessions.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(), [session]);
    assert_eq!(
        store.sessions(SessionQuery::default()).await.unwrap(),
        [],
        "nobody goes on with it by chance"
    );
    let nodes = store.lineage(sessions[0].head.unwrap(), LineageEnd::Root).await.unwrap();
    let purposes =
        decode_nodes(&*store, &nodes).await.unwrap().into_iter().filter_map(|one| match one.entry {
            Entry::Meta(json) => Some(json.value()["data"]["purpose"].clone()),
            _ => None,
        });
    assert_eq!(purposes.collect::<Vec<_>>(), ["digest"]);
}

#[tokio::test]
async fn job_without_models_is_told_that_there_are_none() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("quipu.db"));
    store.put_job(new_job("one", "ask", "unused"), now()).await.unwrap();
    let heard = Arc::new(NoticeLog::default());
    let runner = runner(store.clone(), vec![asks()], heard.clone());
    let stop = CancellationToken::new();
    assert_eq!(runner.run_due(&stop).await.unwrap(), DueRun::Ran { finished: 0, failed: 1 });
    let told = heard.all().into_iter().find_map(|notice| match notice {
        JobNotice::Failed { error, .. } => Some(error),
        _ => None,
    });
    assert_eq!(told.unwrap(), "no model is available: this program does not give models to jobs");
}

#[tokio::test]
async fn runner_of_a_job_is_closed_after_the_attempt() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("quipu.db"));
    store.put_job(new_job("one", "leak", ""), now()).await.unwrap();
    let engine = Engine::new(store.clone(), Arc::new(Sealer::new([7; 32])), dir.path().join("spill"));
    let (model, script) = (Arc::default(), Arc::new(Script::new(vec![ScriptStep::default()])));
    let options = SessionOptions { tools: Vec::new(), ..SessionOptions::new(dir.path(), model, script) };
    let (sender, mut runners) = tokio::sync::mpsc::unbounded_channel();
    let leaks = does("leak", Duration::from_secs(60), move |_, cx| {
        let sender = sender.clone();
        Box::pin(async move {
            sender.send(cx.runner().map_err(JobError::new)?).map_err(JobError::new)?;
            Ok(JobOutcome::Done)
        })
    });
    let heard = Arc::new(NoticeLog::default());
    let runner = runner(store.clone(), vec![leaks], heard.clone())
        .with_models(move || Ok(engine.runner(options.clone())));
    let ran = runner.run_due(&CancellationToken::new()).await.unwrap();
    assert_eq!(ran, DueRun::Ran { finished: 1, failed: 0 }, "{:?}", heard.all());
    let kept = runners.recv().await.unwrap();
    let request = CallRequest::new(RunnerPurpose::new("late").unwrap(), "What is new?");
    assert!(matches!(kept.call(request).await, Err(quipu::RunnerError::Closed)));
}
