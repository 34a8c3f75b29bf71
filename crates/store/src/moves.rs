//! Where refs stood before, and jumps that are not over yet.

use quipu_protocol::{Json, NodeId, UnixMs};

use crate::RefName;

/// Why a ref moved that went on to a node below: these moves come in great numbers, and the graph tells of them too.
pub const APPENDS: [&str; 3] = ["append", "label", "rename"];

/// Why the ref of a past moved: what is appended to it from then on belongs to the same step, until it moves so again.
pub const PAST_MOVE: &str = "past";

/// A session's jump that is not over: where it went is committed or about to be, and something is still to be done.
/// One a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenJump {
    /// How far it is. Opaque to the store.
    pub stage: String,
    /// What is to be done. Opaque to the store; at most [`BLOB_LIMIT`](crate::BLOB_LIMIT).
    pub plan: Json,
}

/// Which rows of the log of refs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReflogQuery {
    /// The ref.
    pub name: RefName,
    /// Only rows with a lower number.
    pub before: Option<i64>,
    /// Leaves out that something was appended ([`APPENDS`]). A row of any other kind is in the log with its commit; those
    /// of appending come up to 32 commits later.
    pub moves_only: bool,
    /// At most so many.
    pub limit: Option<usize>,
}

/// A move of a ref.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedMove {
    /// Its number; grows.
    pub id: i64,
    /// Where the ref stood; `None` when it was not there.
    pub old: Option<NodeId>,
    /// Where it went; `None` when it was removed.
    pub new: Option<NodeId>,
    /// The time of the move, in milliseconds since 1970.
    pub at: UnixMs,
    /// Who moved it, such as `quipu/` and the number of a process.
    pub writer: String,
    /// The reason in the log of refs, such as `append`, `jump` or `undo`.
    pub why: String,
}
