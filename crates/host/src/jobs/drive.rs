//! Jobs beside a front that lives long, and the watch of notes.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use quipu_store::{JobKind, Jobs as _};
use tokio_util::sync::CancellationToken;

use super::runner::NoticeSet;
use super::{HEARTBEAT_JOB, JobRunner, handlers, models_for_jobs};
use crate::front_thread::{ThreadEnd, run_in_thread};
use crate::{Failure, Home};

/// How long after the beginning of a front jobs are looked for, which nobody waits for.
const FIRST_LOOK: Duration = Duration::from_secs(1);
/// How often they are looked for while there are none.
const LOOK: Duration = Duration::from_secs(60);
/// How long the end of a front waits for a job that was asked to end.
const PATIENCE: Duration = Duration::from_secs(4);

/// Runs a front, and beside it the jobs of its store when they are due: in a thread of their own, where there are any. Notes that
/// change are indexed, where a session of the front has a memory. Ends with the front; a job that runs then is given back.
pub async fn run_alongside<T>(home: &Home, front: impl Future<Output = T>) -> T {
    let stop = CancellationToken::new();
    let front = stopping(stop.clone(), front);
    let (ended, (), ()) =
        tokio::join!(front, drive(home, stop.clone()), crate::memory_watch::watch_memories(home, stop));
    ended
}

/// Runs a front that runs no jobs, and has notes that change indexed beside it.
pub async fn watch_alongside<T>(home: &Home, front: impl Future<Output = T>) -> T {
    let stop = CancellationToken::new();
    let front = stopping(stop.clone(), front);
    let (ended, ()) = tokio::join!(front, crate::memory_watch::watch_memories(home, stop));
    ended
}

/// A front whose end cancels `stop`, also where it is dropped.
fn stopping<T>(stop: CancellationToken, front: impl Future<Output = T>) -> impl Future<Output = T> {
    let guard = stop.drop_guard();
    async move {
        let ended = front.await;
        drop(guard);
        ended
    }
}

/// Until `stop` is cancelled.
async fn drive(home: &Home, stop: CancellationToken) {
    let reported: Arc<NoticeSet> = Arc::default();
    let mut wait = FIRST_LOOK;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
        wait = LOOK;
        match has_jobs(home).await {
            Ok(true) => {}
            Ok(false) => continue,
            Err(failure) => {
                home.warn(format!("Jobs cannot be run now: {failure}"));
                continue;
            }
        }
        let (job_home, ends, reported) = (home.clone(), stop.clone(), reported.clone());
        let work = move || async move { work(&job_home, &ends, reported).await };
        let ended = tokio::select! {
            ended = run_in_thread(&stop, PATIENCE, work) => ended,
            () = keep_dream_jobs(home) => continue,
        };
        match ended {
            ThreadEnd::Done => {}
            ThreadEnd::Failed(failure) => home.warn(format!("Jobs cannot be run now: {failure}")),
            ThreadEnd::Panicked => home.warn("The job runner panicked, which is a bug; it starts again"),
            ThreadEnd::Blocked => return,
        }
    }
}

/// Has the job that dreams follow the settings, for ever. What the store says then is said of the jobs.
pub async fn keep_dream_jobs(home: &Home) {
    loop {
        tokio::time::sleep(LOOK).await;
        if let Some(store) = home.opened_store() {
            drop(super::keep_dream_job(home, &store).await);
        }
    }
}

/// Whether there are jobs to run; without a thread where the front has the store open.
async fn has_jobs(home: &Home) -> Result<bool, Failure> {
    match home.opened_store() {
        Some(store) => {
            super::keep_dream_job(home, &store).await?;
            Ok(!store.is_read_only() && are_any(&store.job_kinds(crate::now()).await?))
        }
        None => Ok(true),
    }
}

/// Whether there are jobs for this process; those of heartbeats are not.
fn are_any(kinds: &[JobKind]) -> bool {
    kinds.iter().any(|found| found.kind != HEARTBEAT_JOB)
}

/// Runs jobs where there are any, until there are none or it is stopped.
async fn work(home: &Home, stop: &CancellationToken, reported: Arc<NoticeSet>) -> Result<(), Failure> {
    let store = match home.opened_store() {
        Some(store) => Some(store),
        None => home.store_to_read()?,
    };
    let Some(store) = store else { return Ok(()) };
    // One that an earlier version stored gets its present form before it is claimed.
    super::keep_dream_job(home, &store).await?;
    if store.is_read_only() || !are_any(&store.job_kinds(crate::now()).await?) {
        return Ok(());
    }
    let sealer = home.engine(store.clone(), &home.settings())?.sealer().clone();
    let models = models_for_jobs(home, store.clone());
    let runner = JobRunner::new(store, handlers(home), home.shared_observer(), sealer).with_models(models);
    runner.beside_others_of(home).sharing(reported).run_while_needed(stop).await;
    Ok(())
}
