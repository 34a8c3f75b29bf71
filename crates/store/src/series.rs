//! Chunks that are read together: states of one file, the newest first, each of which differs little from the one before.

use std::sync::Arc;

/// A chunk of a series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SeriesChunk {
    /// All of its bytes.
    Whole(Arc<[u8]>),
    /// The bytes of the chunk before it in the series, but for those between the first `prefix` and the last `suffix` ones.
    Changed {
        /// Bytes that both begin with.
        prefix: usize,
        /// Bytes that both end with; they do not overlap the first ones.
        suffix: usize,
        /// What stands between them.
        middle: Vec<u8>,
    },
}

impl SeriesChunk {
    /// Makes its bytes of those of the chunk before it in the series.
    pub fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Whole(whole) => {
                bytes.clear();
                bytes.extend_from_slice(whole);
            }
            Self::Changed { prefix, suffix, middle } => {
                let end = bytes.len().saturating_sub(*suffix);
                bytes.splice((*prefix).min(end)..end, middle.iter().copied());
            }
        }
    }
}
