//! Plain bytes on their way into a store.

use std::sync::Arc;

use bytes::Bytes;
use quipu_protocol::ChunkId;

/// Plain bytes to keep, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewChunk {
    /// Kept for themselves.
    Full {
        /// SHA-256 of `bytes`.
        id: ChunkId,
        /// The bytes.
        bytes: Arc<[u8]>,
    },
    /// Kept for themselves and as they are: quicker to write than `Full`, and larger.
    Plain {
        /// SHA-256 of `bytes`.
        id: ChunkId,
        /// The bytes.
        bytes: Arc<[u8]>,
    },
    /// Kept as the difference to another chunk; read back like any other. Whole when `base` is not there or
    /// the difference would not be smaller.
    Delta {
        /// SHA-256 of `bytes`.
        id: ChunkId,
        /// A chunk with nearly the same bytes.
        base: ChunkId,
        /// The bytes.
        bytes: Arc<[u8]>,
    },
    /// As `Delta`, where it is known how much of the beginning is the same, so that nothing is compared.
    Grown {
        /// SHA-256 of `bytes`.
        id: ChunkId,
        /// A chunk that begins with the same bytes.
        base: ChunkId,
        /// How many bytes both begin with, at least.
        prefix: u64,
        /// The bytes.
        bytes: Bytes,
    },
}
