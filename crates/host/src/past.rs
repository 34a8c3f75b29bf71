//! The past of a project, of an agent or of everything, in a home: whose it is, and who makes its summaries.

mod after_session;
mod model;

mod reader;
mod requests;
mod rows;

use std::path::Path;
use std::sync::Arc;

use quipu::{Runner, RunnerError};
use quipu_memory::project_root;
use quipu_past::prove::{has_unchecked, mark_ungrounded, mark_ungrounded_in};
use quipu_past::{BuildEnd, BuildProgress, ExtractiveSummary, PastCursor, PastError, PastPlan, Summaries};
use quipu_store::Graph;

use crate::background_budget::background_budget;
use crate::purposes::PAST_PURPOSE;
use crate::{Failure, Home, now};

pub(crate) use after_session::AfterSession;
pub use model::PastModel;

pub use quipu_past::PastScope;
pub use reader::ModelReader;
pub use requests::RecordedRequests;
pub use rows::{past_headers, past_rows, past_sources};

impl From<PastError> for Failure {
    fn from(error: PastError) -> Self {
        match error {
            PastError::Store(error) => error.into(),
            error @ (PastError::Range(_)
            | PastError::NoChunk { .. }
            | PastError::Ambiguous { .. }
            | PastError::NothingThere { .. }
            | PastError::BadDraft(_)) => Self::request(error),
            error @ (PastError::Busy(_) | PastError::BadSummary(_)) => Self::failed(error),
        }
    }
}

/// The past of the project that a directory belongs to.
#[must_use]
pub fn project_past(cwd: &Path) -> PastScope {
    PastScope::Project(project_root(cwd).to_string_lossy().into_owned())
}

/// A build, and what was found when its chunks were checked.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedBuild {
    /// What it did.
    pub end: BuildEnd,
    /// Chunks that say what their sources do not.
    pub ungrounded: usize,
    /// Why they could not be checked.
    pub warning: Option<String>,
}

/// Who makes the summaries of pasts here.
#[derive(Debug)]
pub enum PastWriters {
    /// Rules.
    Rules,
    /// A model, within its budget.
    Model(Box<PastModel>),
}

impl PastWriters {
    /// A model where a person said what the past may cost (`budget.background`), else rules. `runner` makes what asks it.
    ///
    /// # Errors
    /// Where a model is allowed, and none can be asked.
    pub async fn of(
        home: &Home,
        store: &Arc<dyn Graph>,
        runner: impl FnOnce() -> Result<Runner, RunnerError>,
    ) -> Result<Self, Failure> {
        // What was spent does not matter yet.
        if !crate::has_background_budget(home, PAST_PURPOSE)
            || background_budget(home, &**store, PAST_PURPOSE).await?.limit <= 0.0
        {
            return Ok(Self::Rules);
        }
        Ok(Self::Model(Box::new(PastModel::new(home, store, runner)?)))
    }

    /// Them, for a plan and a build.
    #[must_use]
    pub fn summaries(&self) -> Summaries<'_> {
        match self {
            Self::Rules => Summaries::Rules(&ExtractiveSummary),
            Self::Model(model) => Summaries::Model(&**model),
        }
    }

    /// The model that is asked, where one is.
    #[must_use]
    pub fn model(&self) -> Option<&PastModel> {
        match self {
            Self::Rules => None,
            Self::Model(model) => Some(model),
        }
    }

    /// What a build would do now.
    ///
    /// # Errors
    /// What the store says.
    pub async fn plan(&self, store: &dyn Graph, scope: &PastScope) -> Result<PastPlan, Failure> {
        Ok(self.summaries().plan(store, scope, now()).await?)
    }

    /// Makes what is missing and checks it, while no other process does.
    ///
    /// # Errors
    /// Where another process builds the same past, or others write to it again and again; what the store says.
    pub async fn build(
        &self,
        store: &Arc<dyn Graph>,
        scope: &PastScope,
        progress: &mut (dyn FnMut(BuildProgress) + Send),
    ) -> Result<FinishedBuild, Failure> {
        self.build_on(&mut PastCursor::default(), false, store, scope, progress).await
    }

    /// The same where builds have left a cursor, which goes on with this one: only what is new is read. `can_continue` says whether there
    /// will be another build with it.
    ///
    /// # Errors
    /// As those of [`build`](Self::build).
    pub async fn build_on(
        &self,
        cursor: &mut PastCursor,
        can_continue: bool,
        store: &Arc<dyn Graph>,
        scope: &PastScope,
        progress: &mut (dyn FnMut(BuildProgress) + Send),
    ) -> Result<FinishedBuild, Failure> {
        let busy = || Failure::from(PastError::Busy(scope.session()));
        let work = async {
            // As it stands now that nobody else writes.
            let plan = self.summaries().plan_from(cursor, &**store, scope, now()).await?;
            let mut is_to_check = has_unchecked(plan.index());
            let end = self.summaries().build(&**store, scope, &plan, now(), progress).await?;
            drop(plan);
            is_to_check |= self.model().is_some() && end.head.is_some();
            if can_continue || is_to_check {
                cursor.settle(&**store).await?;
            }
            // Words that were copied need no check.
            if !is_to_check {
                return Ok(FinishedBuild { end, ungrounded: 0, warning: None });
            }
            let marked = match cursor.index() {
                Some(index) => mark_ungrounded_in(&**store, scope, index, end.head, now()).await,
                None => mark_ungrounded(&**store, scope, end.head, now()).await,
            };
            // What was made stays, and is checked when it is served, where this fails.
            Ok(match marked {
                Ok(found) => {
                    let ungrounded = found.iter().filter(|verdict| !verdict.is_grounded()).count();
                    FinishedBuild { end, ungrounded, warning: None }
                }
                Err(error) => FinishedBuild { end, ungrounded: 0, warning: Some(error.to_string()) },
            })
        };
        quipu::with_lease(store, &scope.ref_name(), busy, work).await
    }
}
