//! Why a session could not be made, opened or read.

use quipu_protocol::{NodeId, SessionId};
use quipu_store::StoreError;

/// A session could not be made or opened. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Nobody knows what a person had forgotten.
    #[error("no session is continued while what was forgotten cannot be read: {0}")]
    Forgotten(String),
    /// The store has no session with this id.
    #[error("there is no session `{0}` in the store")]
    NoSuchSession(String),
    /// The id is not one that a session can have.
    #[error("`{0}` is not a valid session id: use at most 128 letters, digits, `.`, `_` and `-`")]
    BadId(String),
    /// The name stands for a session that exists already.
    #[error("a session `{0}` exists already; open it instead")]
    Exists(SessionId),
    /// Its nodes are changes of a memory, or summaries of a past: nobody speaks in it.
    #[error("session `{0}` holds the changes of a memory or the summaries of a past; it takes no prompts")]
    Notes(SessionId),
    /// Two tools have the same name, or one has none that a model could call.
    #[error("`{0}` is not a valid tool name, or two tools have this name")]
    BadTool(String),
    /// It began otherwise, and a session keeps what it began with.
    #[error(
        "the session has {}, and was asked for with the profile `{wanted}`: a session keeps the profile that it began \
         with; begin a new one",
        began_with.map_or_else(|| "no profile".to_owned(), |word| format!("the profile `{word}`"))
    )]
    OtherProfile {
        /// The profile that was asked for.
        wanted: &'static str,
        /// The one that it has.
        began_with: Option<&'static str>,
    },
    /// There is nothing that could run its commands.
    #[error(
        "the profile `shell` needs the tool `bash`, and the session would not have it; add it to its tools"
    )]
    NoShell,
    /// The store has no node with this id.
    #[error("there is no node {0} in the store")]
    NoSuchNode(NodeId),
    /// Tool calls of the last answer have no result at this node.
    #[error(
        "cannot continue from node {}: tool calls have no result there ({}); choose the node of an answer, or of its \
         last tool result",
        node.short(),
        calls.join(", ")
    )]
    Incomplete {
        /// The node that was to be continued from.
        node: NodeId,
        /// The tools that were called.
        calls: Vec<String>,
    },
    /// A lineage could not be read.
    #[error("could not read session `{session}`: {why}")]
    Broken {
        /// The id of the session, which stays unchanged.
        session: SessionId,
        /// What is wrong.
        why: String,
    },
    /// Files of an earlier move cannot take their places, so the session is not moved again.
    #[error(
        "session `{session}` cannot move: files of an earlier move are not restored yet: {why}; fix the cause and try \
         again"
    )]
    Unsettled {
        /// The id of the session, which stays unchanged.
        session: SessionId,
        /// Each file with the reason, for people.
        why: String,
    },
}
