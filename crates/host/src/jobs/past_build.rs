//! Builds the past of a scope, once each time that it is due.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use quipu_past::{PastCursor, PastScope};
use quipu_store::{Graph, JobRunState};

use super::thread::in_own_thread;
use super::{BuiltInWork, JobContext, JobError, WorkEnd};
use crate::Home;
use crate::past::{FinishedBuild, PastWriters};
use crate::scheduled_job::PAST_BUILD;

/// Pasts whose cursors are kept.
const CURSORS: usize = 8;

/// Where the builds of this process are in each past.
type Cursors = Arc<Mutex<HashMap<PastScope, PastCursor>>>;

/// Builds the past of a scope.
pub(super) struct PastBuild {
    home: Home,
    cursors: Cursors,
}

impl PastBuild {
    pub(super) fn new(home: Home) -> Self {
        Self { home, cursors: Cursors::default() }
    }
}

fn take_cursor(cursors: &Cursors, scope: &PastScope) -> PastCursor {
    cursors.lock().unwrap_or_else(PoisonError::into_inner).remove(scope).unwrap_or_default()
}

fn keep_cursor(cursors: &Cursors, scope: PastScope, cursor: PastCursor) {
    let mut kept = cursors.lock().unwrap_or_else(PoisonError::into_inner);
    if kept.len() >= CURSORS {
        kept.clear();
    }
    kept.insert(scope, cursor);
}

async fn build(
    home: &Home,
    cursors: &Cursors,
    arguments: &[String],
    cx: &JobContext,
) -> Result<WorkEnd, JobError> {
    let [scope] = arguments else { return Err(JobError::new("the job names no past")) };
    let scope: PastScope = serde_json::from_str(scope).map_err(JobError::new)?;
    let store: Arc<dyn Graph> = home.store().await.map_err(JobError::new)?;
    let writers = PastWriters::of(home, &store, || cx.runner()).await.map_err(JobError::new)?;
    let mut cursor = take_cursor(cursors, &scope);
    let built = writers.build_on(&mut cursor, true, &store, &scope, &mut |_| {}).await;
    let FinishedBuild { end, ungrounded, warning } = built.map_err(JobError::new)?;
    keep_cursor(cursors, scope, cursor);
    let size = end.size;
    let mut text = format!("{} summaries made, {} put back", size.leaves + size.parents, size.restored);
    if end.replaced_count > 0 {
        text.push_str(&format!(", {} of them extractive because the model gave none", end.replaced_count));
    }
    if ungrounded > 0 {
        text.push_str(&format!(", {ungrounded} say what their sources do not"));
    }
    if let Some(why) = warning {
        text.push_str(&format!(", not checked: {why}"));
    }
    let Some(stop) = end.stop else {
        return Ok(WorkEnd { state: JobRunState::Done, session: None, cost: end.cost, text });
    };
    let left = stop.left.leaves + stop.left.parents;
    text.push_str(&format!("; {left} left: {}", stop.why));
    if stop.is_budget {
        return Ok(WorkEnd { state: JobRunState::Limit, session: None, cost: end.cost, text });
    }
    Err(JobError::new(text).costing(end.cost))
}

impl BuiltInWork for PastBuild {
    fn name(&self) -> &str {
        PAST_BUILD
    }

    fn run<'a>(
        &'a self,
        arguments: &'a [String],
        cx: &'a JobContext,
    ) -> BoxFuture<'a, Result<WorkEnd, JobError>> {
        Box::pin(async move {
            let (home, cursors) = (self.home.clone(), Arc::clone(&self.cursors));
            let arguments = arguments.to_vec();
            let work = |cx| async move { build(&home, &cursors, &arguments, &cx).await };
            in_own_thread(cx, work).await.map_err(JobError::new)?
        })
    }
}
