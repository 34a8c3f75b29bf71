//! Why something of a past failed.

use quipu_protocol::SessionId;
use quipu_store::StoreError;

use crate::RangeError;

/// Why a past was not read or changed. What was committed before stays.
#[derive(Debug, thiserror::Error)]
pub enum PastError {
    /// The graph refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The text names no time and no chunk.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// Another process writes to the same past.
    #[error("another process is writing to `{0}`; what this one did until then is kept: run it again")]
    Busy(SessionId),
    /// No chunk has this id.
    #[error("no chunk of {scope} begins with `{id}`")]
    NoChunk {
        /// The digits, short.
        id: String,
        /// Whose past it is.
        scope: String,
    },
    /// Several chunks have it.
    #[error("{count} chunks of {scope} begin with `{id}`; give more digits")]
    Ambiguous {
        /// The digits, short.
        id: String,
        /// Whose past it is.
        scope: String,
        /// How many.
        count: usize,
    },
    /// No chunk lies in the range.
    #[error("no chunk of {scope} lies in {range}")]
    NothingThere {
        /// What was asked for.
        range: String,
        /// Whose past it is.
        scope: String,
    },
    /// A summary was to be made, and nothing came.
    #[error("the summary of {0} is empty or longer than a chunk's")]
    BadSummary(String),
    /// What was written cannot be a chunk.
    #[error("this is no chunk: {0}")]
    BadDraft(String),
}
