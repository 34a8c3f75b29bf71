//! Why the helper refuses a request.

use quipu_archive::ArchiveError;
use quipu_history::{CarryoverError, NodeNameError, RecallError};
use quipu_store::StoreError;

/// The store could not be opened.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct StoreOpenError(pub String);

/// The text before the system prompt cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct IdentityError(pub String);

/// A request was refused. [`code`](HelperError::code) tells programs why.
#[derive(Debug, thiserror::Error)]
pub enum HelperError {
    /// The line is no request.
    #[error("the line is no request: {0}")]
    Malformed(String),
    /// No such operation.
    #[error("there is no operation \"{0}\"")]
    UnknownOperation(String),
    /// Another request with this id is not answered yet.
    #[error("another request with this id is not answered yet")]
    IdInUse,
    /// A line is longer than it may be.
    #[error("the line is longer than {} bytes", crate::lines::LINE_LIMIT)]
    LineTooLong,
    /// The session was not opened, or was given up after a failure.
    #[error("session \"{0}\" is not open")]
    NotOpen(String),
    /// Too many sessions are open.
    #[error("{0} sessions are open, which is the limit; close one")]
    TooManySessions(usize),
    /// Entries before those that were given are missing.
    #[error("the next entry has the place {expected}, and not {given}")]
    Gap {
        /// The place of the next entry.
        expected: u64,
        /// The place that was given.
        given: u64,
    },
    /// The request was cancelled.
    #[error("the request was cancelled")]
    Cancelled,
    /// The store could not be opened.
    #[error("the store cannot be opened: {0}")]
    Opening(#[from] StoreOpenError),
    /// The store failed.
    #[error("the store failed: {0}")]
    Store(#[from] StoreError),
    /// A session file could not be read or written.
    #[error("{0}")]
    Archive(#[from] ArchiveError),
    /// The arguments of a tool, or what they lead to, are refused; the text is for a model.
    #[error("{0}")]
    Refused(String),
}

impl HelperError {
    /// A word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Malformed(_) | Self::UnknownOperation(_) | Self::IdInUse | Self::LineTooLong => "malformed",
            Self::NotOpen(_) => "not-open",
            Self::TooManySessions(_) => "limit",
            Self::Gap { .. } => "gap",
            Self::Cancelled => "cancelled",
            Self::Opening(_) | Self::Store(_) => "store",
            Self::Archive(ArchiveError::Store(_)) => "store",
            Self::Archive(_) => "file",
            Self::Refused(_) => "refused",
        }
    }
}

impl From<NodeNameError> for HelperError {
    fn from(error: NodeNameError) -> Self {
        match error {
            NodeNameError::Store(error) => Self::Store(error),
            other => Self::Refused(other.to_string()),
        }
    }
}

impl From<RecallError> for HelperError {
    fn from(error: RecallError) -> Self {
        match error {
            RecallError::Store(error) => Self::Store(error),
            other => Self::Refused(other.to_string()),
        }
    }
}

impl From<CarryoverError> for HelperError {
    fn from(error: CarryoverError) -> Self {
        Self::Refused(error.to_string())
    }
}
