//! Why a command was not accepted.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::NodeId;

/// Characters of a label or a session's name at most.
pub const NAME_LIMIT: usize = 200;

/// Why a command was not accepted. Nothing happened then. JSON form: an object with a `type`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Refusal {
    /// A run is under way; queue the message instead, or abort first.
    #[error("the agent is working; send the message as steering or follow-up, or abort first")]
    Busy,
    /// The message has no text and no image.
    #[error("the message is empty")]
    Empty,
    /// A hook blocked the message, the shell line or the move.
    #[error("{why}")]
    Blocked {
        /// Text for people: which hook blocked the command, and why.
        why: String,
    },
    /// The conversation ends with an answer and nothing waits.
    #[error("nothing to continue: the conversation ends with an answer")]
    NothingToContinue,
    /// The context is too small to compact.
    #[error("there is nothing to compact: the conversation is shorter than what a compaction keeps")]
    NothingToCompact,
    /// The node is not in this session. `fork` can continue from a node of another session.
    #[error("node {node} is not in this session; fork there to continue from it")]
    NotInSession {
        /// The node that the command named.
        node: NodeId,
    },
    /// The label or name has more than 200 characters.
    #[error("a label can have at most {NAME_LIMIT} characters; this one has {characters}")]
    LabelTooLong {
        /// Number of characters in the refused label or name.
        characters: usize,
    },
    /// The model does not exist or cannot be used.
    #[error("{why}")]
    NoSuchModel {
        /// Text for people: why the model cannot be used.
        why: String,
    },
    /// No such question is open.
    #[error("that question is no longer open")]
    NoSuchAsk,
    /// The question does not accept this answer. It is still open.
    #[error("the question does not accept that answer; it is still open")]
    InvalidAnswer,
    /// The session is at its beginning, so `undo` has no step to take.
    #[error("nothing to undo: the session is at its beginning")]
    NothingToUndo,
    /// Nothing was undone since the last move, so `redo` has no step to take.
    #[error("there is nothing to redo: nothing was undone since the last move")]
    NothingToRedo,
    /// The session does not end with a compaction.
    #[error("the session does not end with a compaction; use `undo` for turns")]
    NoCompaction,
    /// Both sides of a merge changed these files, and the command names no side.
    #[error("both sides changed {}; say whose version to keep", files.join(", "))]
    MergeConflict {
        /// Absolute paths.
        files: Vec<String>,
    },
    /// Files cannot be restored; nothing was changed.
    #[error("{why}")]
    Files {
        /// Text for people: why files cannot be restored.
        why: String,
        /// Files that somebody changed since, or whose current content cannot be kept.
        conflicts: Vec<String>,
    },
    /// The session cannot move there; nothing was changed.
    #[error("{why}")]
    NotMoved {
        /// Text for people: why the session cannot move.
        why: String,
    },
    /// The queues hold 256 messages already.
    #[error("the queues hold 256 messages already; remove some, or wait until the agent has read them")]
    QueueFull,
    /// A lossless subscriber has not read thousands of events.
    #[error("a subscriber does not read its events, so nothing new can start; abort, or let it catch up")]
    SlowSubscriber,
    /// The store failed; nothing happened.
    #[error("{why}")]
    Store {
        /// Text for people: what failed in the store.
        why: String,
    },
    /// The session has ended.
    #[error("the session is closed")]
    Closed,
}
