//! The job that dreams.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use jiff::tz::TimeZone;
use quipu_memory::dream::DreamPhase;
use quipu_store::{Job, JobPut, JobTime, Jobs as _, NewJob, SqliteStore, StoreError};

use super::{JobContext, JobError, JobHandler, JobOutcome};
use crate::dreams::{dream_of, dream_place, dream_settings, dreaming_places, next_dream};
use crate::{Home, now};

/// The kind of the job, and its key: there is one for all memories.
pub const DREAM: &str = "dream";
/// How long dreams over all memories may take.
const DEADLINE: Duration = Duration::from_secs(1_800);
/// Attempts before the job stands as failed.
const ATTEMPTS: u32 = 5;

/// Dreams over every memory, and again when the settings say. Removes itself where dreaming was switched off.
pub struct DreamJob(Home);

impl DreamJob {
    /// For the memories of a home.
    pub fn new(home: Home) -> Self {
        Self(home)
    }

    async fn dream(&self, cx: &JobContext) -> Result<JobOutcome, JobError> {
        let home = &self.0;
        let config = home.config();
        if !config.dreaming.enabled || !config.memory.enabled {
            return Ok(JobOutcome::Done);
        }
        let store = home.store().await.map_err(JobError::new)?;
        let sealer = home.engine(store.clone(), &home.settings()).map_err(JobError::new)?.sealer().clone();
        let settings = dream_settings();
        // Without a model it dreams all the same.
        let runner = cx.runner().ok();
        let mut failed = None;
        for place in dreaming_places(home).map_err(JobError::new)? {
            let place = dream_place(home, &store, &sealer, place, runner.clone());
            let dream = dream_of(&store, &place, &settings);
            loop {
                if cx.stop().is_cancelled() {
                    return Err(JobError::new("the job was stopped; the next dream goes on from here"));
                }
                match dream.step().await {
                    Ok(Some(state)) if state.phase == DreamPhase::Done => {
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
        let next = next_dream(&config.dreaming.schedule, now(), &TimeZone::system());
        Ok(JobOutcome::Again(JobTime::At(next)))
    }
}

impl JobHandler for DreamJob {
    fn kind(&self) -> &str {
        DREAM
    }

    fn deadline(&self) -> Duration {
        DEADLINE
    }

    fn run<'a>(&'a self, _: &'a Job, cx: &'a JobContext) -> BoxFuture<'a, Result<JobOutcome, JobError>> {
        Box::pin(self.dream(cx))
    }
}

/// Makes sure that there is the job, where dreaming is on and memory is on somewhere. Writes nothing else.
///
/// # Errors
/// What the store says.
pub async fn keep_dream_job(home: &Home, store: &Arc<SqliteStore>) -> Result<(), StoreError> {
    if store.is_read_only() || dreaming_places(home).map_or(true, |places| places.is_empty()) {
        return Ok(());
    }
    let next = next_dream(&home.config().dreaming.schedule, now(), &TimeZone::system());
    let job = NewJob {
        key: DREAM.into(),
        kind: DREAM.to_owned(),
        payload: "{}".to_owned(),
        due: JobTime::At(next),
        attempt_limit: ATTEMPTS,
    };
    match store.put_job(job, now()).await? {
        JobPut::Added | JobPut::Replaced | JobPut::Unchanged => Ok(()),
    }
}
