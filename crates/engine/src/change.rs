//! Why a session was not moved, forked, labelled, merged or removed.

use quipu_history::IllegalTarget;
use quipu_protocol::{NAME_LIMIT, NodeId, SessionId};
use quipu_store::StoreError;

use crate::error::OpenError;
use crate::files::FilesError;

/// Why a session was not changed. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The session or the node could not be read, or the store refused.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Somebody is working on the session.
    #[error("session `{0}` is in use by another process; end that process first")]
    Busy(SessionId),
    /// The session has no ref any more.
    #[error("session `{session}` was removed; its last node was {at}")]
    Removed {
        /// The session that was to be changed.
        session: SessionId,
        /// A node of it to continue from.
        at: NodeId,
    },
    /// Another program writes the session.
    #[error("session `{session}` belongs to {agent} and cannot be changed here")]
    Foreign {
        /// The session that was to be changed.
        session: SessionId,
        /// That program.
        agent: String,
    },
    /// A session was removed, and the files of what its commands printed were not.
    #[error(
        "session `{session}` was removed, but some of its commands' output files were not: {why}; remove them yourself"
    )]
    Outputs {
        /// The session that was to be changed.
        session: SessionId,
        /// Which file stays, and why.
        why: String,
    },
    /// The node belongs to no session.
    #[error("node {0} does not belong to a session")]
    NoSession(NodeId),
    /// Nobody can continue from there.
    #[error("cannot go to node {}: {why}{}", node.short(), instead(*nearest))]
    Illegal {
        /// The node that was asked for.
        node: NodeId,
        /// The rule of a valid conversation that it would break.
        why: IllegalTarget,
        /// The nearest ancestor that can be gone to.
        nearest: Option<NodeId>,
    },
    /// The message of a session to itself is not possible: why, and what to do.
    #[error("{0}")]
    BadMessage(String),
    /// The session has it on its lineage already.
    #[error("nothing to merge: node {} is already in the history of session `{session}`", node.short())]
    NothingToMerge {
        /// The node that was asked for.
        node: NodeId,
        /// The session that was to be changed.
        session: SessionId,
    },
    /// Both sides of a merge changed these files.
    #[error(
        "both sides changed {}; choose which to keep: ours (the session you merge into) or theirs",
        files.join(", ")
    )]
    Conflict {
        /// Absolute paths.
        files: Vec<String>,
    },
    /// Nothing moved the session, or all that did is undone.
    #[error("nothing to undo: session `{0}` is at its beginning")]
    NothingToUndo(SessionId),
    /// Nothing was undone since the session moved last.
    #[error("nothing to redo: nothing was undone in session `{0}` since its last change")]
    NothingToRedo(SessionId),
    /// A label or a name is too long.
    #[error("a label or name can have at most {NAME_LIMIT} characters; this one has {0}")]
    TooLong(usize),
    /// Files do not go with it.
    #[error(transparent)]
    Files(#[from] FilesError),
}

fn instead(nearest: Option<NodeId>) -> String {
    nearest.map_or(String::new(), |near| {
        format!("; the nearest earlier node that you can go to is {}", near.short())
    })
}

impl From<StoreError> for ChangeError {
    fn from(error: StoreError) -> Self {
        Self::Open(error.into())
    }
}
