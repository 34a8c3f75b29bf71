//! An entry and how its step went, as the parts of a node and back.
//!
//! The first parts are those that every program on the shared graph reads: `text`, `thinking`, `tool_call`,
//! `tool_result`, `pi_meta`. The last is ours, of type `quipu`: a canonical JSON object with all that those
//! cannot carry. Other readers skip it.
//!
//! | member | what |
//! |---|---|
//! | `v` | 1; a part of another version is not read |
//! | `refs` | each hash that the part points at, hexadecimal, sorted, once |
//! | `entry` | `message`, `session`, `epoch` or `meta` |
//! | `message` | the fields of the message that no other part has |
//! | `whole` | `true`: the `pi_meta` part is the whole message or entry; else the message or entry itself |
//! | `other` | the message is of a shape unknown to its writer |
//! | `listed` | bytes at the beginning of the `pi_meta` part, after which our entry goes on: ids for other programs |
//! | `wrapped` | the same, where our message ends before the last byte |
//! | `plain` | the content was one string |
//! | `marks` | what belongs to a block: `{index, signature?, redacted?, namespace?, arguments?}` |
//! | `images` | `{index, mimeType, chunk}`, or `data` where base64 is not the usual spelling |
//! | `others` | blocks that have no type of their own: `{index, block}`; `{index, content}` for known ones |
//! | `session`, `epoch` | the first node of a session; a change of prefix |
//! | `step`, `extra` | how the step went; its named additions as pairs |
//!
//! `index` counts the blocks of the content, images and others included. A value that canonical JSON would
//! change stands as `{"=": text}`, with its JSON text in a string.

use quipu_dag::{Blob, Node};
use quipu_protocol::{BlobId, ChunkId, Entry, StepInfo};

use crate::Listing;

/// The role of nodes that are no messages: the beginning of a session, an epoch, a meta entry.
pub const INTERNAL: &str = "pi_internal";

/// What nodes are that hold a compaction ([`crate::role_of`]). Those that an import made, and older ones, have it as their role.
pub const COMPACTION: &str = "compactionSummary";

/// An entry encoded as the parts of a node.
#[derive(Debug, Clone, PartialEq)]
pub struct EncodedEntry {
    /// The node's role.
    pub role: String,
    /// The parts in order, ours (type `quipu`) last.
    pub blobs: Vec<Blob>,
    /// Plain bytes that our part refers to (images).
    pub chunks: Vec<(ChunkId, Vec<u8>)>,
}

/// Where decoding finds what a node refers to. A missing object is skipped, as the published reader does.
pub trait Lookup {
    /// The blob of this id.
    fn blob(&self, id: &BlobId) -> Option<&Blob>;
    /// The bytes of this id.
    fn chunk(&self, id: &ChunkId) -> Option<&[u8]>;
}

/// A node decoded to an entry.
#[derive(Debug, Clone, PartialEq)]
pub struct DecodedEntry {
    /// The entry.
    pub entry: Entry,
    /// How the step went; empty for nodes of other programs.
    pub step: StepInfo,
}

/// Splits an entry into parts.
///
/// [`decode`] gives back the same entry, provided that the store keeps the blobs' text. Where the store has a
/// blob of the same id already, its text stands: the same value, maybe with members in another order.
pub fn encode(entry: &Entry, step: &StepInfo) -> EncodedEntry {
    crate::encode::encode(entry, step, None)
}

/// The same for a node of ours: what is no message has the ids in it under which programs that share the store list it.
pub fn encode_listed(entry: &Entry, step: &StepInfo, listing: &Listing<'_>) -> EncodedEntry {
    crate::encode::encode(entry, step, Some(listing))
}

/// Reads a node back. Never fails: what cannot be understood becomes [`Entry::Meta`] or an empty message.
pub fn decode(node: &Node, lookup: &dyn Lookup) -> DecodedEntry {
    match crate::own_part::find(node, lookup) {
        Some((own, parts)) => crate::decode::decode(node, &own, parts, lookup),
        None => DecodedEntry { entry: crate::foreign::decode(node, lookup), step: StepInfo::default() },
    }
}

/// The chunks that [`decode`] will ask for.
pub fn chunks_of(node: &Node, lookup: &dyn Lookup) -> Vec<ChunkId> {
    let Some((own, _)) = crate::own_part::find(node, lookup) else { return Vec::new() };
    own.images().iter().filter_map(|image| image.chunk).collect()
}
