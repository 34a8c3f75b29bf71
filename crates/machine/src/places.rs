//! Places of a session: where a jump leads, and the conversation at a node.

use std::sync::Arc;

use quipu_protocol::{Compaction, Epoch, Message, NodeId};
use quipu_transcript::{Prune, TouchedFiles};

/// The target of a jump, and what the jump leaves.
#[derive(Debug, Clone, PartialEq)]
pub struct JumpTarget {
    /// The node that the session would continue from.
    pub at: NodeId,
    /// The messages that would be left, if requested.
    pub left: Vec<Arc<Message>>,
    /// The node of each of them.
    pub nodes: Vec<NodeId>,
    /// The files that were touched there.
    pub files: TouchedFiles,
}

/// The conversation at a node.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionPlace {
    /// The conversation there.
    pub messages: Vec<Arc<Message>>,
    /// The node of each of them.
    pub nodes: Vec<NodeId>,
    /// The compaction that it begins with.
    pub compacted: Option<Arc<Compaction>>,
    /// How many of the messages are its summary and what it kept.
    pub old: usize,
    /// Where the lineage says that results are left out; the messages are whole.
    pub prunes: Vec<(usize, Prune)>,
    /// What requests there begin with.
    pub epoch: Epoch,
}
