//! Blobs and nodes as they are stored and hashed.

use quipu_protocol::{BlobId, NodeId, UnixMs};

/// A typed piece of content. Its id covers type and canonical content, not the spelling of the column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// SHA-256 of the canonical `{content, type}`.
    pub id: BlobId,
    /// `text`, `thinking`, `tool_call`, `tool_result`, `pi_meta`, `system_prompt`, `quipu`, …
    pub kind: String,
    /// The column as stored: JSON text in the first writer's member order.
    pub content: String,
}

/// What the id of a node covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRecord {
    /// The node that this one follows; `None` for a root.
    pub parent: Option<NodeId>,
    /// Such as `user`, `assistant`, `toolResult`, `pi_internal`.
    pub role: String,
    /// The blobs, in order.
    pub parts: Vec<BlobId>,
    /// Commit time, milliseconds since the epoch.
    pub timestamp: UnixMs,
    /// The writer's own id of the entry; a UUIDv7 for our nodes.
    pub external_id: Option<String>,
    /// The system prompt in force.
    pub system_prompt: Option<BlobId>,
}

/// A node: its record, its id, and the columns that the id does not cover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// SHA-256 of the canonical record.
    pub id: NodeId,
    /// What the id covers.
    pub record: NodeRecord,
    /// `config_json`, as stored: which agent and model. Not covered by the id.
    pub config: Option<String>,
    /// `thought_signatures`, as stored. Not covered by the id.
    pub thought_signatures: Option<String>,
}
