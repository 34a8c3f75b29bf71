//! Runs the jobs that are due, a few at once, while no other process does.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::stream::FuturesUnordered;
use quipu::{Clock, Runner, RunnerError, Sealer, SystemClock};
use quipu_protocol::UnixMs;
use quipu_store::{
    ClaimOutcome, Fut, JOB_ERROR_LIMIT, Job, JobClaim, JobFailurePlan, JobKey, JobKind, JobState, JobTime,
    Jobs, Owner, RunnerLeaseOutcome, StoreError,
};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::{DropReason, HEARTBEAT_JOB, JobContext, JobError, JobHandler, JobNotice, JobOutcome, MakeRunner};
use crate::{Home, Observer};

/// Bytes of an error that are looked at.
const ERROR_READ: usize = 64 << 10;
/// How often what became of a job is tried to be stored.
const TRIES: u32 = 5;

/// The times of a runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunnerOptions {
    /// How long a runner and its job are its own without renewal: after that, another process takes over. They are renewed
    /// three times as often.
    pub lease: Duration,
    /// How often it looks for jobs that are new, and whether another runner is gone.
    pub poll: Duration,
    /// After how long a job is tried again that failed once. Doubled with each further attempt.
    pub retry: Duration,
    /// After how long at most.
    pub longest_retry: Duration,
    /// How soon a job is due again at the earliest.
    pub spacing: Duration,
    /// How long a job may go on when the runner ends.
    pub grace: Duration,
}

impl Default for RunnerOptions {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(30),
            poll: Duration::from_secs(5),
            retry: Duration::from_secs(10),
            longest_retry: Duration::from_secs(3600),
            spacing: Duration::from_secs(1),
            grace: Duration::from_secs(2),
        }
    }
}

/// The jobs that are due, and what comes after them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DueRun {
    /// All that were due were run, each once.
    Ran {
        /// How many attempts succeeded.
        finished: u64,
        /// How many failed.
        failed: u64,
    },
    /// Another process runs the jobs.
    Busy {
        /// The process, and the runner in it.
        owner: Owner,
        /// The end of its lease, unless it renews that.
        until: UnixMs,
    },
}

/// Runs the jobs of a store: those that are due, in the order in which they became due, of each kind as many at once as its
/// handler says. Of all runners of a store, in all processes, one runs jobs at a time; those that are [beside each other](Self::beside_others_of) are one.
pub struct JobRunner {
    jobs: Arc<dyn Jobs>,
    handlers: Vec<Arc<dyn JobHandler>>,
    observer: Arc<dyn Observer>,
    sealer: Arc<Sealer>,
    clock: Arc<dyn Clock>,
    options: RunnerOptions,
    seat: Arc<RunnerSeat>,
    /// What was said and is said once.
    reported: Arc<NoticeSet>,
    /// Makes what asks models for jobs.
    models: Option<Arc<MakeRunner>>,
}

/// What runners are one of to others: they run jobs at a time when one of them may.
#[derive(Debug)]
pub(crate) struct RunnerSeat {
    owner: Owner,
    /// How many of them run jobs, or ran some and did not let others yet.
    leading: AtomicUsize,
}

impl Default for RunnerSeat {
    fn default() -> Self {
        Self { owner: owner(), leading: AtomicUsize::new(0) }
    }
}

/// Notices that were reported already, by any runner that shares the set.
pub(super) type NoticeSet = Mutex<HashSet<String>>;

/// How an attempt ended.
enum AttemptEnd {
    Finished(JobOutcome),
    /// With when it is tried again, where the handler says so.
    Failed(String, Option<JobFailurePlan>),
    GivenBack,
    Lost,
}

/// The attempts under way.
#[derive(Default)]
struct RunningJobs<'a> {
    attempts: FuturesUnordered<BoxFuture<'a, (JobKey, AttemptEnd)>>,
    jobs: HashMap<JobKey, RunningJob>,
    /// Whether this process has, or had, the right to run jobs.
    leads: bool,
}

struct RunningJob {
    kind: String,
    /// Whether the job did not run before in the same pass.
    is_first: bool,
}

impl RunningJobs<'_> {
    fn is_empty(&self) -> bool {
        self.attempts.is_empty()
    }

    /// The end of the next attempt that ends.
    async fn ended(&mut self) -> AttemptEnd {
        match self.attempts.next().await {
            Some((key, end)) => {
                self.jobs.remove(&key);
                end
            }
            None => std::future::pending().await,
        }
    }
}

/// One pass over the jobs that are due.
#[derive(Default)]
struct DuePass {
    /// Those that ran, or run.
    done: HashSet<JobKey>,
    /// Whether no more are begun.
    is_over: bool,
    finished: u64,
    failed: u64,
}

impl DuePass {
    fn count(&mut self, end: &AttemptEnd) {
        match end {
            AttemptEnd::Finished(_) => self.finished += 1,
            AttemptEnd::Failed(..) => self.failed += 1,
            AttemptEnd::GivenBack | AttemptEnd::Lost => {}
        }
    }
}

/// The jobs that are due, and what comes after them.
struct DueJobs {
    /// How many jobs there are that it knows how to run.
    jobs: u64,
    /// How long there is nothing to begin.
    wait: Duration,
    /// The process that runs jobs, where that is another one, and the end of its lease.
    leader: Option<(Owner, UnixMs)>,
}

/// Names this process and one runner in it.
fn owner() -> Owner {
    static RUNNERS: AtomicU64 = AtomicU64::new(0);
    let host = nix::unistd::gethostname().unwrap_or_default();
    let began = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos());
    let (pid, number) = (std::process::id(), RUNNERS.fetch_add(1, Ordering::Relaxed));
    Owner(format!("{}:{pid}:{began:x}.{number}", host.to_string_lossy().replace(':', "_")))
}

/// The beginning of a text, of at most so many bytes.
fn cut(mut text: String, limit: usize) -> String {
    if text.len() > limit {
        text.truncate(text.floor_char_boundary(limit.saturating_sub('…'.len_utf8())));
        text.push('…');
    }
    text
}

fn words_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    format!("the job panicked, which is a bug: {text}")
}

impl JobRunner {
    /// A runner of the jobs that these handlers know. It says what it does to `observer`, and seals errors before they are
    /// stored.
    pub fn new(
        jobs: Arc<dyn Jobs>,
        handlers: Vec<Arc<dyn JobHandler>>,
        observer: Arc<dyn Observer>,
        sealer: Arc<Sealer>,
    ) -> Self {
        Self {
            jobs,
            handlers,
            observer,
            sealer,
            clock: Arc::new(SystemClock),
            options: RunnerOptions::default(),
            seat: Arc::default(),
            reported: Arc::default(),
            models: None,
        }
    }

    /// Runs jobs also while others of this home in this process do, of other kinds: to other processes they are one.
    #[must_use]
    pub fn beside_others_of(self, home: &Home) -> Self {
        Self { seat: home.runner_seat(), ..self }
    }

    /// Says nothing once more that another one said.
    pub(super) fn sharing(self, reported: Arc<NoticeSet>) -> Self {
        Self { reported, ..self }
    }

    /// Gives jobs models, where `make` can: called when one asks for them first.
    #[must_use]
    pub fn with_models(self, make: impl Fn() -> Result<Runner, RunnerError> + Send + Sync + 'static) -> Self {
        Self { models: Some(Arc::new(make)), ..self }
    }

    /// With other times.
    #[must_use]
    pub fn with_options(self, options: RunnerOptions) -> Self {
        Self { options, ..self }
    }

    /// With another clock, which jobs are due by.
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// Runs jobs when they are due, until `stop` is cancelled. The jobs that run then are given back. Waits out what is wrong
    /// with the store, and says so.
    pub async fn run(&self, stop: &CancellationToken) {
        self.run_while(stop, |_| true).await;
    }

    /// The same, for as long as there is a job that it can run.
    pub(super) async fn run_while_needed(&self, stop: &CancellationToken) {
        self.run_while(stop, |jobs| jobs > 0).await;
    }

    async fn run_while(&self, stop: &CancellationToken, is_wanted: impl Fn(u64) -> bool) {
        let mut running = RunningJobs::default();
        while !stop.is_cancelled() {
            let wait = match self.begin_due(&mut running, None, stop).await {
                Ok(found) if running.is_empty() && !is_wanted(found.jobs) => break,
                Ok(found) => {
                    self.reported().retain(|reported| reported.starts_with(KIND));
                    found.wait
                }
                Err(error) => {
                    self.report_once(&error.to_string(), &JobNotice::Store(error));
                    if running.is_empty() {
                        self.resign(&mut running).await;
                    }
                    self.options.poll
                }
            };
            tokio::select! {
                () = stop.cancelled() => break,
                _ = running.ended() => {}
                () = sleep(wait) => {}
            }
        }
        self.end(&mut running).await;
    }

    /// Runs the jobs that are due, each once, unless another process runs jobs. Those that become due meanwhile are run as
    /// well; a job runs a second time only while another one is still at its first. Ends early when `stop` is cancelled.
    ///
    /// # Errors
    /// What the store says.
    pub async fn run_due(&self, stop: &CancellationToken) -> Result<DueRun, StoreError> {
        let mut running = RunningJobs::default();
        let mut pass = DuePass::default();
        let found = loop {
            match self.begin_due(&mut running, Some(&mut pass), stop).await {
                Ok(found) if running.is_empty() => break Ok(found.leader),
                Ok(found) => tokio::select! {
                    () = stop.cancelled() => break Ok(None),
                    end = running.ended() => pass.count(&end),
                    () = sleep(found.wait) => {}
                },
                Err(error) => break Err(error),
            }
        };
        while let Some(end) = self.end_one(&mut running).await {
            pass.count(&end);
        }
        self.end(&mut running).await;
        Ok(match found? {
            Some((owner, until)) => DueRun::Busy { owner, until },
            None => DueRun::Ran { finished: pass.finished, failed: pass.failed },
        })
    }

    /// Begins the jobs that are due, where this process may run jobs, as far as there is room for them.
    async fn begin_due<'a>(
        &'a self,
        running: &mut RunningJobs<'a>,
        mut pass: Option<&mut DuePass>,
        stop: &'a CancellationToken,
    ) -> Result<DueJobs, StoreError> {
        let poll = self.options.poll;
        let (jobs, mut next) = self.known(self.kinds().await?, running);
        let mut leader = None;
        // Whoever asks for a pass learns that another process runs jobs, also where nothing is due.
        let mut is_asked = pass.is_some() && running.is_empty();
        while !stop.is_cancelled()
            && (std::mem::take(&mut is_asked) || next.is_some_and(|next| next <= self.now()))
        {
            if pass.as_ref().is_some_and(|pass| pass.is_over) {
                break;
            }
            // Each time: a job may have taken long, and this process may have stood still.
            let lease = match self.jobs.lead_jobs(&self.seat.owner, self.now(), self.options.lease).await? {
                RunnerLeaseOutcome::Granted(lease) => lease,
                RunnerLeaseOutcome::Refused { owner, until } => {
                    leader = Some((owner, until));
                    break;
                }
            };
            if !std::mem::replace(&mut running.leads, true) {
                self.seat.leading.fetch_add(1, Ordering::SeqCst);
            }
            let kinds: Vec<&str> = self.open_handlers(running).map(|handler| handler.kind()).collect();
            let claim = match self.jobs.claim_job(&lease, &kinds, self.now(), self.options.lease).await {
                Ok(ClaimOutcome::Job(claim)) => *claim,
                Ok(ClaimOutcome::Exhausted(job)) => {
                    if let Some(pass) = &mut pass {
                        pass.failed += 1;
                    }
                    self.report_failure(&job);
                    next = self.known(self.kinds().await?, running).1;
                    continue;
                }
                Ok(ClaimOutcome::Nothing) => break,
                Err(StoreError::NotLeading) => {
                    is_asked = true;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let key = claim.job.key.clone();
            let is_first = pass.as_mut().is_none_or(|pass| pass.done.insert(key.clone()));
            // It still runs here, though its claim was lost: it ends when it notices that.
            let is_here = running.jobs.contains_key(&key);
            if is_here || !(is_first || running.jobs.values().any(|job| job.is_first)) {
                self.jobs.release_job(&claim, self.now()).await?;
                if let Some(pass) = pass.filter(|_| !is_here) {
                    pass.is_over = true;
                }
                return Ok(DueJobs { jobs, wait: poll, leader: None });
            }
            let job = RunningJob { kind: claim.job.kind.clone(), is_first };
            running.jobs.insert(key, job);
            running.attempts.push(Box::pin(async move {
                let Job { key, kind, attempts, .. } = &claim.job;
                let span = quipu::job_span(key.as_str(), kind, *attempts);
                let end = self.attempt(&claim, stop).instrument(span).await;
                (claim.job.key, end)
            }));
            next = self.known(self.kinds().await?, running).1;
        }
        if running.is_empty() {
            self.resign(running).await;
        }
        let wait = match &leader {
            Some((_, until)) => self.until(Some(*until)).max(Duration::from_millis(20)),
            // Another process was faster, or the clock was set back.
            None if next.is_some_and(|next| next <= self.now()) => poll,
            None => self.until(next),
        };
        Ok(DueJobs { jobs, wait, leader })
    }

    /// How many jobs there are that it knows how to run, and when the next of those is due that could begin now.
    fn known(&self, kinds: Vec<JobKind>, running: &RunningJobs<'_>) -> (u64, Option<UnixMs>) {
        let (known, unknown): (Vec<_>, Vec<_>) =
            kinds.into_iter().partition(|found| self.handler(&found.kind).is_some());
        // Those of heartbeats are run by the process that has the conversations.
        for found in unknown.into_iter().filter(|found| found.kind != HEARTBEAT_JOB) {
            let (kind, count) = (found.kind, found.count);
            self.report_once(&format!("{KIND}{kind}"), &JobNotice::UnknownKind { kind, count });
        }
        let count = known.iter().map(|found| found.count).sum();
        let is_open = |kind: &str| self.open_handlers(running).any(|handler| handler.kind() == kind);
        (count, known.iter().filter(|found| is_open(&found.kind)).filter_map(|found| found.next).min())
    }

    /// The handlers that can begin another job.
    fn open_handlers(&self, running: &RunningJobs<'_>) -> impl Iterator<Item = &Arc<dyn JobHandler>> {
        let count = |kind: &str| running.jobs.values().filter(|job| job.kind == kind).count();
        let open: Vec<bool> =
            self.handlers.iter().map(|handler| count(handler.kind()) < handler.at_once()).collect();
        self.handlers.iter().zip(open).filter_map(|(handler, is_open)| is_open.then_some(handler))
    }

    async fn end_one(&self, running: &mut RunningJobs<'_>) -> Option<AttemptEnd> {
        if running.is_empty() { None } else { Some(running.ended().await) }
    }

    /// Waits for what runs, and lets others run jobs.
    async fn end(&self, running: &mut RunningJobs<'_>) {
        while self.end_one(running).await.is_some() {}
        self.resign(running).await;
    }

    /// Lets others run jobs. Where that cannot be stored, they wait until the lease ends.
    async fn resign(&self, running: &mut RunningJobs<'_>) {
        // The last one lets others.
        if !std::mem::take(&mut running.leads) || self.seat.leading.fetch_sub(1, Ordering::SeqCst) > 1 {
            return;
        }
        // Under the fence that it has now.
        if let Ok(RunnerLeaseOutcome::Granted(lease)) =
            self.jobs.lead_jobs(&self.seat.owner, self.now(), self.options.lease).await
        {
            drop(self.jobs.resign_jobs(&lease).await);
        }
    }

    /// Runs a job once, and stores what came of it.
    async fn attempt(&self, claim: &JobClaim, stop: &CancellationToken) -> AttemptEnd {
        let Job { key, attempts, .. } = &claim.job;
        let Some(handler) = self.handler(&claim.job.kind) else { return AttemptEnd::Lost };
        self.observer.job(&JobNotice::Began { key: key.clone(), attempt: *attempts });
        match self.work(&**handler, claim, stop).await {
            AttemptEnd::Finished(outcome) => {
                let now = self.now();
                let earliest = JobTime::After(self.options.spacing).from_now(now);
                let next = match outcome {
                    JobOutcome::Done => None,
                    JobOutcome::Again(JobTime::After(time)) => {
                        Some(JobTime::After(time.max(self.options.spacing)))
                    }
                    JobOutcome::Again(JobTime::At(at)) => Some(JobTime::At(at.max(earliest))),
                    JobOutcome::Again(JobTime::Slot(at)) => Some(JobTime::Slot(at.max(earliest))),
                };
                let due = next.map(|next| next.from_now(now));
                let done = || self.jobs.finish_job(claim, next, now);
                self.store(key, done, |()| JobNotice::Finished { key: key.clone(), next: due }).await;
                AttemptEnd::Finished(outcome)
            }
            AttemptEnd::Failed(error, plan) => {
                let doublings = attempts.saturating_sub(1).min(20);
                let doubled =
                    self.options.retry.saturating_mul(1 << doublings).min(self.options.longest_retry);
                let now = self.now();
                let plan = plan.or_else(|| handler.retry(&claim.job, now));
                let plan = plan.unwrap_or(JobFailurePlan::Retry(doubled));
                let earliest = JobTime::After(self.options.spacing).from_now(now);
                let (plan, wait) = match plan {
                    JobFailurePlan::Retry(wait) => (plan, wait),
                    JobFailurePlan::Stop => (plan, Duration::ZERO),
                    JobFailurePlan::Next(next) => {
                        let next = if next.from_now(now) < earliest { JobTime::Slot(earliest) } else { next };
                        let wait = next.from_now(now).saturating_sub(now);
                        let wait = Duration::from_millis(u64::try_from(wait).unwrap_or(0));
                        (JobFailurePlan::Next(next), wait)
                    }
                };
                let failed = || self.jobs.fail_job(claim, &error, plan, self.now());
                let reported = |state| JobNotice::Failed {
                    key: key.clone(),
                    attempt: *attempts,
                    error: error.clone(),
                    retry: (state != JobState::Failed).then_some(wait),
                };
                self.store(key, failed, reported).await;
                AttemptEnd::Failed(error, Some(plan))
            }
            AttemptEnd::GivenBack => {
                let released = || self.jobs.release_job(claim, self.now());
                self.store(key, released, |()| JobNotice::GivenBack { key: key.clone() }).await;
                AttemptEnd::GivenBack
            }
            AttemptEnd::Lost => {
                self.observer.job(&JobNotice::Lost { key: key.clone() });
                AttemptEnd::Lost
            }
        }
    }

    /// Has the handler do its work, while the leases are renewed.
    async fn work(&self, handler: &dyn JobHandler, claim: &JobClaim, stop: &CancellationToken) -> AttemptEnd {
        let cx = JobContext {
            stop: stop.child_token(),
            observer: self.observer.clone(),
            models: self.models.clone(),
            runner: Arc::default(),
            over: CancellationToken::new(),
        };
        let _over = cx.over.clone().drop_guard();
        let work = async { handler.run(&claim.job, &cx).await };
        let mut work = Box::pin(AssertUnwindSafe(work).catch_unwind());
        let limit = handler.deadline();
        let mut overdue = pin!(sleep(limit));
        let grace = async {
            stop.cancelled().await;
            sleep(self.options.grace).await;
        };
        let mut grace = pin!(grace);
        let every = (self.options.lease / 3).max(Duration::from_millis(1));
        let mut renewals = interval_at(Instant::now() + every, every);
        renewals.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let why = loop {
            tokio::select! {
                biased;
                done = &mut work => return match done {
                    Ok(Ok(outcome)) => AttemptEnd::Finished(outcome),
                    Ok(Err(_)) if stop.is_cancelled() => AttemptEnd::GivenBack,
                    Ok(Err(JobError { text, plan, .. })) => AttemptEnd::Failed(self.sealed(text), plan),
                    Err(panic) => AttemptEnd::Failed(self.sealed(words_of(&*panic)), None),
                },
                () = &mut grace => break DropReason::Shutdown,
                () = &mut overdue => break DropReason::Deadline(limit),
                _ = renewals.tick() => {
                    let now = self.now();
                    if let Err(StoreError::JobLost { .. }) = self.jobs.renew_job(claim, now, self.options.lease).await {
                        break DropReason::Lost;
                    }
                    // What else is wrong with the store may pass before the leases end; so may the right to run jobs, and
                    // the job is still ours.
                    drop(self.jobs.lead_jobs(&self.seat.owner, now, self.options.lease).await);
                }
            }
        };
        drop(work);
        if let Err(error) = handler.dropped(&claim.job, why).await {
            cx.warn(format!("Job {}: how it ended could not be recorded: {error}.", claim.job.key));
        }
        match why {
            DropReason::Deadline(limit) => {
                AttemptEnd::Failed(format!("it took longer than {} s", limit.as_secs_f64()), None)
            }
            DropReason::Shutdown => AttemptEnd::GivenBack,
            DropReason::Lost => AttemptEnd::Lost,
        }
    }

    /// Stores what became of a job, and says it. What cannot be stored makes the job run again.
    async fn store<'a, T>(
        &'a self,
        key: &JobKey,
        change: impl Fn() -> Fut<'a, T>,
        notice: impl FnOnce(T) -> JobNotice,
    ) {
        for tried in 1.. {
            match change().await {
                Ok(done) => return self.observer.job(&notice(done)),
                Err(StoreError::JobLost { .. }) => {
                    return self.observer.job(&JobNotice::Lost { key: key.clone() });
                }
                Err(error) if tried == TRIES => return self.observer.job(&JobNotice::Store(error)),
                Err(_) => sleep(Duration::from_millis(100) * tried).await,
            }
        }
    }

    fn report_failure(&self, job: &Job) {
        self.observer.job(&JobNotice::Failed {
            key: job.key.clone(),
            attempt: job.attempts,
            error: job.error.clone().unwrap_or_default(),
            retry: None,
        });
    }

    fn sealed(&self, error: String) -> String {
        let error = cut(error, ERROR_READ);
        cut(self.sealer.seal(&error).into_owned(), JOB_ERROR_LIMIT)
    }

    fn handler(&self, kind: &str) -> Option<&Arc<dyn JobHandler>> {
        self.handlers.iter().find(|handler| handler.kind() == kind)
    }

    fn reported(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report_once(&self, what: &str, notice: &JobNotice) {
        let is_new = self.reported().insert(what.to_owned());
        if is_new {
            self.observer.job(notice);
        }
    }

    async fn kinds(&self) -> Result<Vec<JobKind>, StoreError> {
        self.jobs.job_kinds(self.now()).await
    }

    fn now(&self) -> UnixMs {
        self.clock.now()
    }

    /// How long it is until then, and no longer than until the next look.
    fn until(&self, then: Option<UnixMs>) -> Duration {
        let left = then.map_or(u64::MAX, |then| u64::try_from(then.saturating_sub(self.now())).unwrap_or(0));
        Duration::from_millis(left).min(self.options.poll)
    }
}

/// How what is said of a kind begins.
const KIND: &str = "kind ";
