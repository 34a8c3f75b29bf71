//! What stands out among many nodes: labels, ends of branches, compactions, and where branches part.

use quipu_protocol::{NodeId, SessionId, UnixMs};

/// A label that a node has: the last one in time that was given to it and not cleared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// The session in which it was given.
    pub session: SessionId,
    /// The entry that gave it.
    pub node: NodeId,
    /// The node that has it; `None` when there is none of that name.
    pub target: Option<NodeId>,
    /// The label: one line, at most 200 characters.
    pub text: String,
    /// When it was given.
    pub at: UnixMs,
}

/// A node that stands out by where it is or what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Landmark {
    /// The id of the node that stands out.
    pub node: NodeId,
    /// Why it stands out.
    pub kind: LandmarkKind,
    /// Its session.
    pub session: SessionId,
    /// How many nodes stand before it.
    pub depth: u64,
}

/// Why a node stands out in a tree of sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LandmarkKind {
    /// Nothing follows it.
    End,
    /// The context is summed up there.
    Compaction,
}

/// Where the lineage of a node leaves that of another one, the trunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForkPoint {
    /// How many nodes stand before the node.
    pub depth: u64,
    /// The last node of both lineages and how many stand before it; `None` when they share none.
    pub at: Option<(NodeId, u64)>,
    /// The first node that is the node's alone; `None` when it is on the trunk.
    pub apart: Option<NodeId>,
}
