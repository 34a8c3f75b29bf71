//! Content-addressed objects: canonical JSON, text that may hold lone surrogates, hashes, blobs, nodes.
//!
//! Pure: no IO, no clock. It knows bytes and hashes; what an object *means* (a message, a session) is the
//! business of `quipu-transcript`.

mod canonical;
mod chunk;
mod json;
mod object;
mod text;

pub use canonical::{canonical, hash_content, hash_json, is_canonical, quoted, sha256};
pub use chunk::*;
pub use json::*;
pub use object::*;
pub use quipu_protocol::{BlobId, ChunkId, NodeId, NotAHash};
pub use text::*;
