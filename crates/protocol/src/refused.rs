//! Why a command was not accepted.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::NodeId;

/// Characters of a label or a session's name at most.
pub const NAME_LIMIT: usize = 200;

/// Why a command was not accepted. Nothing happened then. JSON form: an object with a `type`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Refused {
    /// A run is under way; queue the message instead, or abort first.
    #[error("the agent is working; send the message as steering or follow-up, or abort first")]
    Busy,
    /// The message has no text and no image.
    #[error("the message is empty")]
    Empty,
    /// A hook did not let the message pass.
    #[error("{why}")]
    Blocked {
        /// Which, and why.
        why: String,
    },
    /// The conversation ends with an answer and nothing waits.
    #[error("nothing to continue: the conversation ends with an answer")]
    NothingToContinue,
    /// The context is too small to sum anything up.
    #[error("nothing to compact: the conversation is shorter than the part that compaction keeps")]
    NothingToCompact,
    /// The node is not one of this session.
    #[error("node {node} is not in this session; fork there to continue from it")]
    NotInSession {
        /// The node.
        node: NodeId,
    },
    /// A label is too long.
    #[error("a label can have at most {NAME_LIMIT} characters; this one has {characters}")]
    LabelTooLong {
        /// How many it has.
        characters: usize,
    },
    /// The model cannot be asked.
    #[error("{why}")]
    NoSuchModel {
        /// Why not.
        why: String,
    },
    /// No such question is open.
    #[error("that question is no longer open")]
    NoSuchAsk,
    /// The question is open, and this is no answer to it.
    #[error("that is not a valid answer to the question; it is still open")]
    NoSuchAnswer,
    /// Nothing moved the session, or all that did is undone.
    #[error("nothing to undo: the session is at its beginning")]
    NothingToUndo,
    /// Nothing was undone since the session moved last.
    #[error("nothing to redo: nothing was undone since the last change")]
    NothingToRedo,
    /// The session does not end with a compaction.
    #[error(
        "the session does not end with a compaction, so there is none to undo; to undo turns, use `undo`"
    )]
    NoCompaction,
    /// Both sides of a merge changed these files, and nobody said whose count.
    #[error("both sides changed {}; choose which to keep", files.join(", "))]
    MergeConflict {
        /// Absolute paths.
        files: Vec<String>,
    },
    /// Files do not go along; nothing was changed.
    #[error("{why}")]
    Files {
        /// Why.
        why: String,
        /// Those that somebody changed since, or that cannot be kept as they are.
        conflicts: Vec<String>,
    },
    /// It cannot go there; nothing was changed.
    #[error("{why}")]
    NotMoved {
        /// Why.
        why: String,
    },
    /// 256 messages wait already.
    #[error("256 messages are already queued; remove some, or wait until the agent reads them")]
    QueueFull,
    /// A lossless subscriber has not read thousands of events.
    #[error(
        "a subscriber does not read its events, so the agent starts nothing new; abort, or wait until it catches up"
    )]
    Behind,
    /// It could not be stored, so nothing happened.
    #[error("{why}")]
    Store {
        /// Why.
        why: String,
    },
    /// The session has ended.
    #[error("the session is closed")]
    Closed,
}
