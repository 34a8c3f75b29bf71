//! Content-addressed objects: canonical JSON, text that may hold lone surrogates, hashes, blobs, nodes.
//!
//! Pure: no IO, no clock. It knows bytes and hashes; what an object *means* (a message, a session) is the
//! business of `quipu-transcript`.

mod object;

pub use object::*;
pub use quipu_protocol::{BlobId, ChunkId, NodeId, NotAHash};
