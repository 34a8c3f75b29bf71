//! The job that dreams. Its schedule is a setting, and the log and the list show it as they show other jobs.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use quipu_memory::dream::DreamPhase;
use quipu_schedule::Recurrence;
use quipu_store::{Job, JobRunState, Jobs as _, SqliteStore, StoreError};

use super::{
    BuiltInWork, DropReason, JobContext, JobError, JobHandler, JobOutcome, ScheduledHandler, WorkEnd,
};
use crate::background_budget::background_budget;
use crate::dreams::{dream_of, dream_place, dream_recurrence, dream_settings, dreaming_places};
use crate::purposes::DREAM_PURPOSE;
use crate::scheduled_job::{DREAM, JobTarget, ScheduledJob, ScheduledWork};
use crate::{Home, now};

/// How long dreams over all memories may take.
const DEADLINE: Duration = Duration::from_secs(1_800);

/// Runs the job that dreams. Removes it where dreaming was switched off.
pub struct DreamJob {
    home: Home,
    handler: ScheduledHandler,
}

impl DreamJob {
    /// For the memories of a home.
    pub fn new(home: &Home) -> Self {
        let work: Arc<dyn BuiltInWork> = Arc::new(DreamWork(home.apart()));
        Self {
            home: home.clone(),
            handler: ScheduledHandler::of_kind(DREAM, home, vec![work], (1, DEADLINE)),
        }
    }
}

impl JobHandler for DreamJob {
    fn kind(&self) -> &str {
        self.handler.kind()
    }

    fn deadline(&self) -> Duration {
        self.handler.deadline()
    }

    fn retry(&self, job: &Job, now: quipu_protocol::UnixMs) -> Option<quipu_store::JobFailurePlan> {
        self.handler.retry(job, now)
    }

    fn dropped<'a>(&'a self, job: &'a Job, why: DropReason) -> BoxFuture<'a, Result<(), JobError>> {
        self.handler.dropped(job, why)
    }

    fn run<'a>(&'a self, job: &'a Job, cx: &'a JobContext) -> BoxFuture<'a, Result<JobOutcome, JobError>> {
        let config = self.home.config();
        if !config.dreaming.enabled || !config.memory.enabled {
            // Nothing is written of what is off, in the log neither.
            return Box::pin(std::future::ready(Ok(JobOutcome::Done)));
        }
        self.handler.run(job, cx)
    }
}

/// Dreams over every memory.
struct DreamWork(Home);

impl DreamWork {
    async fn dream(&self, cx: &JobContext) -> Result<WorkEnd, JobError> {
        let home = &self.0;
        let store = home.store().await.map_err(JobError::new)?;
        let sealer = home.engine(store.clone(), &home.settings()).map_err(JobError::new)?.sealer().clone();
        let settings = dream_settings();
        let spent = async || {
            let known = background_budget(home, &*store, DREAM_PURPOSE).await;
            known.map_or(0.0, |budget| budget.spent)
        };
        let before = spent().await;
        // Without a model it dreams all the same.
        let runner = cx.runner().ok();
        let (mut failed, mut promoted, mut considered, mut memories) = (None, 0, 0, 0);
        for place in dreaming_places(home).map_err(JobError::new)? {
            let place = dream_place(home, &store, &sealer, place, runner.clone());
            let dream = dream_of(&store, &place, &settings);
            loop {
                if cx.stop().is_cancelled() {
                    return Err(JobError::new("the job was stopped; the next dream goes on from here"));
                }
                match dream.step().await {
                    Ok(Some(state)) if state.phase == DreamPhase::Done => {
                        memories += 1;
                        promoted += state.promoted.len();
                        considered += state.considered;
                        for problem in state.problems {
                            cx.warn(format!("The dream over the memory {}: {problem}.", place.id()));
                        }
                        break;
                    }
                    Ok(Some(_)) => {}
                    // Another process went on with it.
                    Ok(None) => break,
                    // The other memories are dreamt over all the same.
                    Err(error) => {
                        failed = Some(format!("the dream over the memory {} failed: {error}", place.id()));
                        break;
                    }
                }
            }
        }
        if let Some(why) = failed {
            return Err(JobError::new(why));
        }
        // No text of a memory: what is forgotten there would stay here.
        let text = format!("{promoted} of {considered} texts promoted, in {memories} memories");
        let cost = (spent().await - before).max(0.0);
        Ok(WorkEnd { state: JobRunState::Done, session: None, cost, text })
    }
}

impl BuiltInWork for DreamWork {
    fn name(&self) -> &str {
        DREAM
    }

    fn run<'a>(&'a self, _: &'a [String], cx: &'a JobContext) -> BoxFuture<'a, Result<WorkEnd, JobError>> {
        Box::pin(self.dream(cx))
    }
}

/// Makes sure that there is the job at the times of the settings, where dreaming is on and memory is on somewhere, and that there
/// is none elsewhere. Writes nothing else.
///
/// # Errors
/// What the store says.
pub async fn keep_dream_job(home: &Home, store: &Arc<SqliteStore>) -> Result<(), StoreError> {
    if store.is_read_only() {
        return Ok(());
    }
    // What cannot be read changes nothing.
    let Ok(places) = dreaming_places(home) else { return Ok(()) };
    if places.is_empty() {
        if store.job(&DREAM.into()).await?.is_some_and(|job| job.kind == DREAM) {
            store.cancel_job(&DREAM.into()).await?;
        }
        return Ok(());
    }
    let wanted = dream_recurrence(&home.config().dreaming.schedule, &jiff::tz::TimeZone::system());
    // Processes can have different time zones: the zone of whoever made the job stays, or each would make it anew.
    let held = store.job(&DREAM.into()).await?.and_then(|job| ScheduledJob::of_job(&job)).map(|job| job.when);
    let when = held.filter(|held| has_same_expression(held, &wanted)).unwrap_or(wanted);
    let scheduled = ScheduledJob {
        when,
        jitter_ms: 0,
        work: ScheduledWork::BuiltIn { name: DREAM.to_owned(), arguments: Vec::new() },
        target: JobTarget::Nobody,
    };
    // It always has a next time.
    if let Ok(job) = scheduled.new_job(DREAM.into(), now()) {
        store.put_job(job, now()).await?;
    }
    Ok(())
}

fn has_same_expression(one: &Recurrence, other: &Recurrence) -> bool {
    match (one, other) {
        (Recurrence::Cron { expression: one, .. }, Recurrence::Cron { expression: other, .. }) => {
            one == other
        }
        _ => false,
    }
}
