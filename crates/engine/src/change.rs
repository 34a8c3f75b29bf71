//! Why a session was not moved, forked, labelled, merged or removed.

use quipu_history::Illegal;
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
    #[error("another process is working on session `{0}`; end it first")]
    Busy(SessionId),
    /// The session has no ref any more.
    #[error("session `{session}` was removed, and stood at {at}")]
    Removed {
        /// The session.
        session: SessionId,
        /// A node of it to go on from.
        at: NodeId,
    },
    /// Another program writes the session.
    #[error("session `{session}` is written by {agent} and stays as it is")]
    Foreign {
        /// The session.
        session: SessionId,
        /// That program.
        agent: String,
    },
    /// A session was removed, and the files of what its commands printed were not.
    #[error(
        "session `{session}` was removed, but not all that its commands printed: {why}; remove that yourself"
    )]
    Outputs {
        /// The session.
        session: SessionId,
        /// Which file stays, and why.
        why: String,
    },
    /// The node belongs to no session.
    #[error("node {0} belongs to no session")]
    NoSession(NodeId),
    /// Nobody can go on from there.
    #[error("nobody can go to node {}: {why}{}", node.short(), instead(*nearest))]
    Illegal {
        /// The node.
        node: NodeId,
        /// Why.
        why: Illegal,
        /// The nearest ancestor that can be gone to.
        nearest: Option<NodeId>,
    },
    /// What a session would say to itself cannot be said: why, and what to do.
    #[error("{0}")]
    BadMessage(String),
    /// The session has it on its lineage already.
    #[error("session `{session}` goes on from node {} already, so there is nothing to merge", node.short())]
    NothingToMerge {
        /// The node.
        node: NodeId,
        /// The session.
        session: SessionId,
    },
    /// Both sides of a merge changed these files.
    #[error(
        "both sides changed {}; say whose version to keep: ours (of the session that is merged into) or theirs",
        files.join(", ")
    )]
    Conflict {
        /// Absolute paths.
        files: Vec<String>,
    },
    /// Nothing moved the session, or all that did is undone.
    #[error("there is nothing to undo: session `{0}` is at its beginning")]
    NothingToUndo(SessionId),
    /// Nothing was undone since the session moved last.
    #[error("there is nothing to redo: nothing of session `{0}` was undone since its last move")]
    NothingToRedo(SessionId),
    /// A label or a name is too long.
    #[error("a label or name has at most {NAME_LIMIT} characters, and this one has {0}")]
    TooLong(usize),
    /// Files do not go with it.
    #[error(transparent)]
    Files(#[from] FilesError),
}

fn instead(nearest: Option<NodeId>) -> String {
    nearest.map_or(String::new(), |near| {
        format!("; the nearest before it that can be gone to is {}", near.short())
    })
}

impl From<StoreError> for ChangeError {
    fn from(error: StoreError) -> Self {
        Self::Open(error.into())
    }
}
