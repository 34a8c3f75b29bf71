//! Jobs beside a front that lives long.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use quipu_store::Jobs as _;
use tokio_util::sync::CancellationToken;

use super::runner::Said;
use super::{JobRunner, handlers, models_for_jobs};
use crate::{Failure, Place};

/// How long after the beginning of a front jobs are looked for, which nobody waits for.
const FIRST_LOOK: Duration = Duration::from_secs(1);
/// How often they are looked for while there are none.
const LOOK: Duration = Duration::from_secs(60);
/// How long the end of a front waits for a job that was asked to end.
const PATIENCE: Duration = Duration::from_secs(4);

/// Runs a front, and beside it the jobs of its store when they are due: in a thread of their own, where there are any. Ends
/// with the front; a job that runs then is given back.
pub async fn beside<T>(place: &Place, front: impl Future<Output = T>) -> T {
    let stop = CancellationToken::new();
    // Also where this future is dropped.
    let guard = stop.clone().drop_guard();
    let front = async move {
        let ended = front.await;
        drop(guard);
        ended
    };
    let (ended, ()) = tokio::join!(front, drive(place, stop));
    ended
}

/// Until `stop` is cancelled.
async fn drive(place: &Place, stop: CancellationToken) {
    let said: Arc<Said> = Arc::default();
    let mut wait = FIRST_LOOK;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
        wait = LOOK;
        match has_jobs(place).await {
            Ok(true) => {}
            Ok(false) => continue,
            Err(failure) => {
                place.warn(format!("Jobs cannot be run now: {failure}"));
                continue;
            }
        }
        let (home, ends, said) = (place.clone(), stop.clone(), said.clone());
        // What a handler does, or a panic in it, is not the front's: it has its thread and its runtime.
        let mut work = tokio::task::spawn_blocking(move || work(&home, &ends, said));
        let ended = tokio::select! {
            ended = &mut work => ended,
            () = stop.cancelled() => match tokio::time::timeout(PATIENCE, &mut work).await {
                Ok(ended) => ended,
                // It blocks its thread, which ends with the process.
                Err(_) => return,
            },
        };
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => place.warn(format!("Jobs cannot be run now: {failure}")),
            Err(_) => place.warn("The runner of jobs failed inside, which is a bug; it begins again"),
        }
    }
}

/// Whether there are jobs to run; without a thread where the front has the store open.
async fn has_jobs(place: &Place) -> Result<bool, Failure> {
    match place.opened_store() {
        Some(store) => Ok(!store.is_read_only() && !store.job_kinds(crate::now()).await?.is_empty()),
        None => Ok(true),
    }
}

/// Runs jobs where there are any, until there are none or it is stopped.
fn work(place: &Place, stop: &CancellationToken, said: Arc<Said>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let store = match place.opened_store() {
            Some(store) => Some(store),
            None => place.store_to_read()?,
        };
        let Some(store) = store else { return Ok(()) };
        if store.is_read_only() || store.job_kinds(crate::now()).await?.is_empty() {
            return Ok(());
        }
        let sealer = place.engine(store.clone(), &place.settings())?.sealer().clone();
        let models = models_for_jobs(place, store.clone());
        let runner =
            JobRunner::new(store, handlers(place), place.shared_observer(), sealer).with_models(models);
        runner.sharing(said).run_while_needed(stop).await;
        Ok(())
    })
}
