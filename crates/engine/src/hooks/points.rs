//! What hooks are shown of a session's steps beside inputs and tools, and what they may return there.

use std::sync::Arc;

use quipu_protocol::{CompactionReason, Content, Message, NodeId, Outcome, SessionId};

/// How a session begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionOrigin {
    /// It is a new one.
    New,
    /// It goes on from its last node.
    Resumed,
    /// It goes on from a node of another session.
    Forked,
}

/// What a hook says when a session begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartVerdict {
    /// Nothing.
    Pass,
    /// This stands beside the first prompt, in its node.
    Beside(String),
}

/// Where a session is to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MoveRequest {
    /// A person wants it at another node.
    Jump {
        /// That node.
        to: NodeId,
    },
    /// The model wants it at an earlier node.
    Tobe {
        /// That node.
        to: NodeId,
    },
    /// What was done last is to be taken back.
    Undo {
        /// How many steps.
        steps: u32,
    },
    /// What was taken back is to be done again.
    Redo {
        /// How many steps.
        steps: u32,
    },
    /// Another branch is to be brought in.
    Merge {
        /// Its last node.
        from: NodeId,
    },
    /// The last compaction is to be taken back.
    UndoCompaction,
    /// Another session is to go on from a node; this one stays.
    Fork {
        /// That node.
        at: NodeId,
    },
    /// Whoever is in front leaves it for another session.
    Switch {
        /// The other one; `None` for a new one.
        to: Option<SessionId>,
    },
}

/// What a hook says of a move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MoveVerdict {
    /// It is made.
    Pass,
    /// It is not made.
    Block {
        /// Why, for whoever wants it.
        reason: String,
    },
}

/// A line that a person wants to run in the shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellLine {
    /// The line.
    pub line: String,
    /// Whether the model is not shown what comes of it.
    pub hidden: bool,
}

/// What a hook says of a person's line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShellVerdict {
    /// It runs.
    Pass,
    /// This line runs instead, and stands in the node. Placeholders of secrets in it are resolved before it runs.
    Replace(String),
    /// It does not run.
    Block {
        /// Why, for the person.
        reason: String,
    },
}

/// A context that is about to be compacted.
#[derive(Debug, Clone, PartialEq)]
pub struct CompactionRequest {
    /// Why.
    pub reason: CompactionReason,
    /// What whoever asked for it wants looked at above all.
    pub focus: Option<String>,
    /// What the compaction before said in short.
    pub previous: Option<String>,
    /// The messages that the summary takes the place of.
    pub messages: Vec<Arc<Message>>,
}

/// What a hook says of a compaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompactionVerdict {
    /// The model sums the messages up.
    Pass,
    /// This is the summary, and no model is asked. It is recorded as supplied by a hook.
    Supply(String),
    /// The context stays as it is.
    Block {
        /// Why, for people.
        reason: String,
    },
}

/// What a hook says of messages that are about to be sent.
#[derive(Debug, Clone, PartialEq)]
pub enum RequestVerdict {
    /// They are sent as they are.
    Pass,
    /// These are sent instead, with this request alone: at most [`HOOK_REQUEST`](crate::HOOK_REQUEST) bytes as JSON, and a
    /// conversation as models take it, in which each result stands behind its call.
    Replace(Vec<Arc<Message>>),
}

/// What a hook says of an answer of the model.
#[derive(Debug, Clone, PartialEq)]
pub enum MessageVerdict {
    /// It stays as it is.
    Pass,
    /// This stands in its place: text, thinking and calls of tools. Calls that are left out do not run, others do. A piece
    /// of thinking that is not the model's own loses its signature.
    Replace(Vec<Content>),
}

/// A run that is about to begin.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunStart {
    /// What is said, in order; nothing where a run goes on with what was said before.
    pub prompt: Vec<Content>,
}

/// What a hook says of the beginning of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunStartVerdict {
    /// It begins.
    Pass,
    /// This stands beside the prompt, in its node; where there is none, in a node of its own.
    Beside(String),
}

/// A run that ended, or is about to.
#[derive(Debug, Clone, PartialEq)]
pub struct RunEnd {
    /// How it ends.
    pub outcome: Outcome,
    /// The text of the model's last answer; empty where there is none.
    pub answer: String,
    /// How often in a row hooks went on with this run before.
    pub again: u32,
}

/// What a hook says of the end of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunEndVerdict {
    /// It ends.
    Pass,
    /// It goes on: the model is given this as the next prompt. At most three times in a row, and only where the run would
    /// end because the model is done.
    Continue {
        /// What the model is to do.
        prompt: String,
    },
}
