//! What stops a dream.

use quipu_store::StoreError;

/// Why a step of a dream could not be made.
#[derive(Debug, thiserror::Error)]
pub enum DreamError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file, with what was tried.
    #[error("could not {doing} {path}: {source}")]
    File {
        /// The file.
        path: String,
        /// What was tried.
        doing: &'static str,
        /// What the system says.
        source: std::io::Error,
    },
    /// What was stored of the dream cannot be read.
    #[error("the progress of the dream cannot be read: {0}; the next dream starts over")]
    Progress(String),
    /// The memory cannot be written to, or its changes cannot be recorded.
    #[error("{0}")]
    Host(String),
}
