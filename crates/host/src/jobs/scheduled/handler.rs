//! One attempt of a job with a schedule: the work, the log, and the delivery of the answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use quipu::Session;
use quipu_protocol::UnixMs;
use quipu_schedule::Recurrence;
use quipu_store::{
    Job, JobDelivery, JobFailurePlan, JobKey, JobRun, JobRunChange, JobRunState, JobRuns, JobTime, NewJobRun,
};

use super::work::{BuiltInWork, WorkEnd, WorkFailure, cut};
use super::{deliver, prompt};
use crate::Home;
use crate::jobs::{DropReason, JobContext, JobError, JobHandler, JobOutcome};
use crate::scheduled_job::{JobTarget, SCHEDULED, ScheduledJob, ScheduledWork};

/// How long one attempt may take.
const DEADLINE: Duration = Duration::from_secs(60 * 60);
/// Prompts and imports that run at once.
const AT_ONCE: usize = 3;
/// After how long a job is tried again that failed once, twice and so on.
const RETRIES: [Duration; 5] = [
    Duration::from_secs(30),
    Duration::from_secs(60),
    Duration::from_secs(5 * 60),
    Duration::from_secs(15 * 60),
    Duration::from_secs(60 * 60),
];
/// Runs that are lost with their process, one after the other, before the job waits for its next time.
const LOST: usize = 3;
/// How often an answer is given to its target at most.
const DELIVERIES: u32 = 5;
/// Runs of a job that are looked at.
const LOOKED: usize = 20;

/// An attempt under way: its row in the log, and its session.
#[derive(Default)]
struct OpenAttempt {
    run: Option<u64>,
    session: Option<Session>,
}

/// Runs jobs with a schedule.
pub struct ScheduledHandler {
    home: Home,
    built_in: Vec<Arc<dyn BuiltInWork>>,
    kind: &'static str,
    at_once: usize,
    deadline: Duration,
    /// By job.
    open: Mutex<HashMap<JobKey, OpenAttempt>>,
}

/// The attempt of a job.
struct Attempt<'a> {
    job: &'a Job,
    scheduled: &'a ScheduledJob,
    log: &'a dyn JobRuns,
    /// Earlier runs of the job, the newest first.
    earlier: &'a [JobRun],
}

impl Attempt<'_> {
    /// The next time of the job, and no more where there is none.
    fn again(&self) -> Result<JobOutcome, JobError> {
        Ok(self.next()?.map_or(JobOutcome::Done, JobOutcome::Again))
    }

    fn next(&self) -> Result<Option<JobTime>, JobError> {
        self.scheduled.next(self.job.key.as_str(), crate::now()).map_err(JobError::new)
    }

    /// For what cannot be mended by another attempt for this time.
    fn no_more(&self) -> JobFailurePlan {
        self.next().ok().flatten().map_or(JobFailurePlan::Stop, JobFailurePlan::Next)
    }

    /// A run that ended and whose answer is still to be given to its target.
    fn undelivered(&self) -> Option<&JobRun> {
        let mut ended = self.earlier.iter().filter(|run| run.ended.is_some());
        ended.find(|run| run.delivery == JobDelivery::Pending && run.target != JobTarget::Terminal.word())
    }
}

/// Of earlier runs of a job, the newest first: those that were made for the same time, since a person asked for it last.
fn same_time<'a>(job: &Job, earlier: &'a [JobRun]) -> impl Iterator<Item = &'a JobRun> {
    let (due, mut attempt) = (job.due, job.attempts);
    earlier.iter().take_while(move |run| {
        // One that was given back did not count.
        let is_given_back = run.state == JobRunState::Interrupted && run.ended.is_some();
        let most = if is_given_back { attempt } else { attempt.saturating_sub(1) };
        attempt = run.attempt;
        run.due == due && run.attempt <= most
    })
}

impl ScheduledHandler {
    /// For the store of a place.
    pub fn new(home: &Home, built_in: Vec<Arc<dyn BuiltInWork>>) -> Self {
        Self::of_kind(SCHEDULED, home, built_in, (AT_ONCE, DEADLINE))
    }

    /// The same for jobs of another kind.
    pub(in crate::jobs) fn of_kind(
        kind: &'static str,
        home: &Home,
        built_in: Vec<Arc<dyn BuiltInWork>>,
        (at_once, deadline): (usize, Duration),
    ) -> Self {
        // The store that a front has open stays the one that others find.
        Self { home: home.apart(), built_in, kind, at_once, deadline, open: Mutex::default() }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<JobKey, OpenAttempt>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change_open(&self, key: &JobKey, change: impl FnOnce(&mut OpenAttempt)) {
        change(self.open().entry(key.clone()).or_default());
    }

    async fn attempt(&self, job: &Job, cx: &JobContext) -> Result<JobOutcome, JobError> {
        self.open().remove(&job.key);
        let scheduled = ScheduledJob::of_payload(&job.payload)
            .map_err(|error| JobError::new(error).planned(JobFailurePlan::Stop))?;
        let store = self.home.store().await.map_err(JobError::new)?;
        let log: &dyn JobRuns = &*store;
        let earlier = log.job_runs(Some(&job.key), None, LOOKED).await.map_err(JobError::new)?;
        let attempt = Attempt { job, scheduled: &scheduled, log, earlier: &earlier };
        if job.due > crate::now() {
            // The clock was set back: its time is still to come.
            return attempt.again();
        }
        if let Some(run) = attempt.undelivered() {
            // Nothing is done twice: also a job that is due once did its work, unless it was run before its time.
            let did_all = matches!(scheduled.when, Recurrence::At(at) if at <= run.began);
            if run.due == job.due || did_all {
                self.deliver(&attempt, run, cx).await?;
                return attempt.again();
            }
            if let Err(error) = self.deliver(&attempt, run, cx).await {
                if cx.stop().is_cancelled() {
                    return Err(error);
                }
                // Of a time before this one, which has its own answer.
                log.change_job_run(run.id, delivery(JobDelivery::Failed)).await.map_err(JobError::new)?;
            }
        }
        self.work(&attempt, cx).await
    }

    async fn work(&self, attempt: &Attempt<'_>, cx: &JobContext) -> Result<JobOutcome, JobError> {
        let Attempt { job, scheduled, log, .. } = *attempt;
        let new = NewJobRun {
            key: job.key.clone(),
            due: job.due,
            attempt: job.attempts,
            target: scheduled.target.word().to_owned(),
            began: crate::now(),
        };
        let lost = same_time(job, attempt.earlier).take_while(|run| run.ended.is_none()).count();
        let spent: f64 = same_time(job, attempt.earlier).map(|run| run.cost).sum();
        let id = log.begin_job_run(new).await.map_err(JobError::new)?;
        self.change_open(&job.key, |open| open.run = Some(id));
        let worked = if lost >= LOST && !scheduled.when.is_once() {
            let why = format!("its process ended {LOST} times in a row; the job waits for its next time");
            Err(WorkFailure { error: JobError::new(why), cost: 0.0, is_final: true })
        } else {
            self.do_work(attempt, (id, spent), cx).await
        };
        let ended = match worked {
            Ok(end) => {
                let silent = scheduled.target == JobTarget::Nobody || end.text.trim().is_empty();
                let delivery = if silent { JobDelivery::Nothing } else { JobDelivery::Pending };
                let change = JobRunChange {
                    session: end.session,
                    ended: Some((end.state, crate::now())),
                    cost: Some(end.cost),
                    text: Some(cut(end.text)),
                    delivery: Some(delivery),
                };
                log.change_job_run(id, change).await.map_err(JobError::new)?;
                Ok(())
            }
            Err(failure) if cx.stop().is_cancelled() => {
                let text = crate::sealed(&failure.error.to_string());
                self.end(log, (id, JobRunState::Interrupted), (text, failure.cost), JobDelivery::Nothing)
                    .await?;
                return Err(failure.error);
            }
            Err(failure) => {
                let plan = if failure.is_final { attempt.no_more() } else { self.plan(job, crate::now()) };
                self.end_failed(attempt, id, (&failure.error.to_string(), failure.cost), plan).await?;
                Err(failure.error.planned(plan))
            }
        };
        self.open().remove(&job.key);
        // As it stands in the log: each delivery is the same.
        let run = log.job_runs(Some(&job.key), None, LOOKED).await.map_err(JobError::new)?;
        let run = run.into_iter().find(|run| run.id == id && run.delivery == JobDelivery::Pending);
        if let Some(run) = run.filter(|_| scheduled.target != JobTarget::Terminal) {
            let delivered = self.deliver(attempt, &run, cx).await;
            match (&ended, delivered) {
                (Ok(()), delivered) => delivered?,
                // A failure is delivered once; the terminal has it then.
                (Err(_), Err(_)) if !cx.stop().is_cancelled() => {
                    log.change_job_run(id, delivery(JobDelivery::Failed)).await.map_err(JobError::new)?;
                }
                (Err(_), _) => {}
            }
        }
        ended?;
        attempt.again()
    }

    async fn do_work(
        &self,
        attempt: &Attempt<'_>,
        (id, spent): (u64, f64),
        cx: &JobContext,
    ) -> Result<WorkEnd, WorkFailure> {
        let log = attempt.log;
        match &attempt.scheduled.work {
            ScheduledWork::Prompt(work) => {
                let began = |session: Session| {
                    let name = session.view().session;
                    self.change_open(&attempt.job.key, |open| open.session = Some(session));
                    let change = JobRunChange { session: Some(name), ..JobRunChange::default() };
                    async move { log.change_job_run(id, change).await.map_err(JobError::new) }
                };
                let done = prompt::run(&self.home, (&attempt.job.key, work), spent, cx.stop(), began).await;
                self.change_open(&attempt.job.key, |open| open.session = None);
                done
            }
            ScheduledWork::BuiltIn { name, arguments } => {
                match self.built_in.iter().find(|work| work.name() == name) {
                    Some(work) => work.run(arguments, cx).await.map_err(WorkFailure::from),
                    None => Err(JobError::new(format!("this version has no built-in work `{name}`")).into()),
                }
            }
        }
    }

    /// Records a failure. Where the job is not tried again for this time, its target gets it; the same failure at one time
    /// after the other only once.
    async fn end_failed(
        &self,
        attempt: &Attempt<'_>,
        id: u64,
        (why, cost): (&str, f64),
        plan: JobFailurePlan,
    ) -> Result<(), JobError> {
        let job = attempt.job;
        let text = crate::sealed(why);
        let is_last = match plan {
            JobFailurePlan::Retry(_) => job.attempts >= job.attempt_limit,
            JobFailurePlan::Next(_) | JobFailurePlan::Stop => true,
        };
        let before = attempt.earlier.iter().find(|run| run.due != job.due && run.ended.is_some());
        let is_known = before.is_some_and(|run| run.state == JobRunState::Failed && run.text == text);
        let delivers = is_last && !is_known && attempt.scheduled.target != JobTarget::Nobody;
        let delivery = if delivers { JobDelivery::Pending } else { JobDelivery::Nothing };
        self.end(attempt.log, (id, JobRunState::Failed), (text, cost), delivery).await
    }

    async fn end(
        &self,
        log: &dyn JobRuns,
        (id, state): (u64, JobRunState),
        (text, cost): (String, f64),
        delivery: JobDelivery,
    ) -> Result<(), JobError> {
        let ended = Some((state, crate::now()));
        let (text, cost, delivery) = (Some(cut(text)), Some(cost), Some(delivery));
        let change = JobRunChange { session: None, ended, cost, text, delivery };
        log.change_job_run(id, change).await.map_err(JobError::new)
    }

    /// Gives the answer of a run to its target. Where that failed for good, or often enough, the job goes on with its next time.
    async fn deliver(&self, attempt: &Attempt<'_>, run: &JobRun, cx: &JobContext) -> Result<(), JobError> {
        let Attempt { job, scheduled, log, .. } = *attempt;
        let delivered =
            cx.stop().run_until_cancelled(deliver::deliver(&self.home, &scheduled.target, run)).await;
        let Some(delivered) = delivered else { return Err(JobError::new("the job was stopped")) };
        let Err(failure) = delivered else {
            return log.change_job_run(run.id, delivery(JobDelivery::Done)).await.map_err(JobError::new);
        };
        let tries = job.attempts.saturating_sub(run.attempt).saturating_add(1);
        let why = failure.error.to_string();
        if !failure.is_final && tries < DELIVERIES && job.attempts < job.attempt_limit {
            return Err(failure.error.planned(self.plan(job, crate::now())));
        }
        log.change_job_run(run.id, delivery(JobDelivery::Failed)).await.map_err(JobError::new)?;
        let why = format!("the answer was not delivered, and stays in the log: {why}");
        Err(JobError::new(why).planned(attempt.no_more()))
    }

    fn plan(&self, job: &Job, now: UnixMs) -> JobFailurePlan {
        let failed = usize::try_from(job.attempts.saturating_sub(1)).unwrap_or(usize::MAX);
        if let Some(wait) = RETRIES.get(failed) {
            return JobFailurePlan::Retry(*wait);
        }
        // Often enough: it waits for its next time.
        let scheduled = ScheduledJob::of_payload(&job.payload).ok();
        let next = scheduled.and_then(|scheduled| scheduled.next(job.key.as_str(), now).ok().flatten());
        next.map_or(JobFailurePlan::Stop, JobFailurePlan::Next)
    }

    async fn record_drop(&self, job: &Job, why: DropReason) -> Result<(), JobError> {
        let OpenAttempt { run, session } = self.open().remove(&job.key).unwrap_or_default();
        let cost = match session {
            Some(session) => {
                // There is no time for that when the program ends.
                if why != DropReason::Shutdown {
                    session.shutdown().await;
                }
                session.spent()
            }
            None => 0.0,
        };
        let Some(id) = run else { return Ok(()) };
        let store = self.home.store().await.map_err(JobError::new)?;
        let log: &dyn JobRuns = &*store;
        let nothing = JobDelivery::Nothing;
        let interrupted = |text: &str| (text.to_owned(), cost);
        match why {
            DropReason::Shutdown => {
                self.end(log, (id, JobRunState::Interrupted), interrupted("the program ended"), nothing).await
            }
            DropReason::Lost => {
                let text = "the job was paused, removed or replaced, or another process took it over";
                self.end(log, (id, JobRunState::Interrupted), interrupted(text), nothing).await
            }
            DropReason::Deadline(limit) => {
                let scheduled = ScheduledJob::of_payload(&job.payload).map_err(JobError::new)?;
                let earlier = log.job_runs(Some(&job.key), None, LOOKED).await.map_err(JobError::new)?;
                let attempt = Attempt { job, scheduled: &scheduled, log, earlier: &earlier };
                let text = format!("it took longer than {} s", limit.as_secs());
                self.end_failed(&attempt, id, (&text, cost), self.plan(job, crate::now())).await
            }
        }
    }
}

fn delivery(delivery: JobDelivery) -> JobRunChange {
    JobRunChange { delivery: Some(delivery), ..JobRunChange::default() }
}

impl JobHandler for ScheduledHandler {
    fn kind(&self) -> &str {
        self.kind
    }

    fn deadline(&self) -> Duration {
        self.deadline
    }

    fn at_once(&self) -> usize {
        self.at_once
    }

    fn retry(&self, job: &Job, now: UnixMs) -> Option<JobFailurePlan> {
        Some(self.plan(job, now))
    }

    fn dropped<'a>(&'a self, job: &'a Job, why: DropReason) -> BoxFuture<'a, Result<(), JobError>> {
        Box::pin(self.record_drop(job, why))
    }

    fn run<'a>(&'a self, job: &'a Job, cx: &'a JobContext) -> BoxFuture<'a, Result<JobOutcome, JobError>> {
        Box::pin(self.attempt(job, cx))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_of_one_time_share_a_budget_until_a_person_retries() {
        let run = |due, attempt, state, cost| JobRun {
            id: 0,
            key: "job".into(),
            due,
            attempt,
            began: 0,
            ended: Some(1),
            state,
            session: None,
            cost,
            text: String::new(),
            target: "none".to_owned(),
            delivery: JobDelivery::Nothing,
        };
        let (failed, interrupted) = (JobRunState::Failed, JobRunState::Interrupted);
        // The newest first; one was given back, and did not count as an attempt.
        let earlier = [
            run(9, 3, failed, 8.0),
            JobRun { ended: None, ..run(9, 2, interrupted, 4.0) },
            run(9, 1, interrupted, 2.0),
            run(9, 1, failed, 1.0),
            run(5, 1, failed, 16.0),
        ];
        let job = |attempts| Job {
            key: "job".into(),
            kind: SCHEDULED.to_owned(),
            payload: String::new(),
            state: quipu_store::JobState::Waiting,
            due: 9,
            next: 9,
            attempts,
            attempt_limit: u32::MAX,
            error: None,
        };
        let spent = |attempts| same_time(&job(attempts), &earlier).map(|run| run.cost).sum::<f64>();
        assert_eq!(
            spent(4),
            14.0,
            "a failed first attempt before another first one is of an earlier request"
        );
        assert_eq!(spent(1), 0.0, "a person asked for it again");
        let lost = |attempts| {
            let job = job(attempts);
            let runs = same_time(&job, &earlier[1..]);
            runs.take_while(|run| run.ended.is_none()).count()
        };
        assert_eq!((lost(3), lost(1)), (1, 0), "only the death of a process is one");
    }
}
