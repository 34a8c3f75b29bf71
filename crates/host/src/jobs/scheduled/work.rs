//! The work of a job, and what comes of it.

use futures_util::future::BoxFuture;
use quipu_protocol::SessionId;
use quipu_store::{JOB_RUN_TEXT, JobRunState};

use crate::jobs::{JobContext, JobError};

/// What stands behind the beginning of a longer text.
pub(super) const CUT: &str = "\n[…]";

/// What came of the work of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkEnd {
    /// How it ended: `Done` or `Limit`.
    pub state: JobRunState,
    /// The session that it worked in.
    pub session: Option<SessionId>,
    /// US dollars that it cost.
    pub cost: f64,
    /// The answer, sealed. An empty one is not delivered.
    pub text: String,
}

/// Work that failed, and what it cost all the same.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct WorkFailure {
    pub(super) error: JobError,
    pub(super) cost: f64,
    /// Whether another attempt would fail in the same way.
    pub(super) is_final: bool,
}

impl From<JobError> for WorkFailure {
    fn from(error: JobError) -> Self {
        Self { cost: error.cost, error, is_final: false }
    }
}

/// Work that this program does by itself when a job is due.
pub trait BuiltInWork: Send + Sync + 'static {
    /// Its name in jobs.
    fn name(&self) -> &str;

    /// Does it. It may be done again after an attempt that was lost.
    fn run<'a>(
        &'a self,
        arguments: &'a [String],
        cx: &'a JobContext,
    ) -> BoxFuture<'a, Result<WorkEnd, JobError>>;
}

/// The beginning of a text that is too long for the log, marked as such.
pub(super) fn cut(mut text: String) -> String {
    if text.len() > JOB_RUN_TEXT {
        text.truncate(text.floor_char_boundary(JOB_RUN_TEXT - CUT.len()));
        text.push_str(CUT);
    }
    text
}
