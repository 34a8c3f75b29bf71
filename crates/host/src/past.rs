//! The past of a project, of an agent or of everything, in a home.

mod reader;
mod requests;

use std::path::Path;

use quipu_memory::project_root;
use quipu_past::{PastError, PastScope};

use crate::Failure;

pub use reader::ModelReader;
pub use requests::RecordedRequests;

impl From<PastError> for Failure {
    fn from(error: PastError) -> Self {
        match error {
            PastError::Store(error) => error.into(),
            error @ (PastError::Range(_)
            | PastError::NoChunk { .. }
            | PastError::Ambiguous { .. }
            | PastError::NothingThere { .. }) => Self::request(error),
            error @ (PastError::Busy(_) | PastError::BadSummary(_) | PastError::Reader(_)) => Self::failed(error),
        }
    }
}

/// The past of the project that a directory belongs to.
#[must_use]
pub fn project_past(cwd: &Path) -> PastScope {
    PastScope::Project(project_root(cwd).to_string_lossy().into_owned())
}
