//! What only a store that is a file on this machine can do.

use quipu_protocol::ChunkId;

use crate::{Extent, Fut};

/// Hints and checks that make a local file faster or safer. Nothing depends on them for being right.
pub trait Local: Send + Sync {
    /// Whether all that was acknowledged is where the store was opened, as far as the last commit showed: not when its file
    /// was removed or replaced, or its WAL cut short.
    fn is_in_place(&self) -> bool;

    /// Says that a difference to this chunk will be written soon, so that it can be read before.
    fn will_build_on(&self, base: ChunkId);

    /// How large the store is: what [`Bulk`](crate::Bulk) goes by.
    fn extent(&self) -> Fut<'_, Extent>;
}
