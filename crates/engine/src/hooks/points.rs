//! What hooks are shown of a session's steps beside inputs and tools, and what they may return there.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use quipu_protocol::{AddedBlock, CompactionReason, Content, Json, Message, NodeId, Outcome, SessionId};

/// How a session begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionOrigin {
    /// It begins without a conversation.
    New,
    /// It continues from its last node.
    Resumed,
    /// It continues from a node of another session.
    Forked,
}

/// What a hook says when a session begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartVerdict {
    /// Nothing.
    Pass,
    /// This stands beside the first prompt, in its node.
    Add(String),
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
    /// Another session is to continue from a node; this one stays.
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
    /// The text after `!` or `!!`.
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
    /// The summary of the compaction before.
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
    /// The input, in order; empty where a run continues with earlier input.
    pub prompt: Vec<Content>,
    /// Blocks of it that stand beside what was said: files, piped text, what hooks added.
    pub added: Vec<AddedBlock>,
}

/// What a hook says of the beginning of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunStartVerdict {
    /// It begins.
    Pass,
    /// It begins with more.
    Add(RunStartAddition),
}

impl RunStartVerdict {
    /// Text that stands beside the prompt.
    pub fn beside(text: impl Into<String>) -> Self {
        Self::Add(RunStartAddition { beside: Some(text.into()), system: None })
    }

    /// Text in the system prompt.
    pub fn system(text: impl Into<String>) -> Self {
        Self::Add(RunStartAddition { beside: None, system: Some(text.into()) })
    }
}

/// What a hook adds to a run that is about to begin.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunStartAddition {
    /// Stands beside the prompt, in its node; where there is none, in a node of its own.
    pub beside: Option<String>,
    /// The hook's section of the system prompt, from this run on until the hook gives another one; an empty one takes it
    /// away. A section that differs from the one before begins an epoch: the provider's cache of the prompt is lost.
    pub system: Option<String>,
}

/// A run that ended, or is about to.
#[derive(Debug, Clone, PartialEq)]
pub struct RunEnd {
    /// The outcome that the run has if no hook continues it.
    pub outcome: Outcome,
    /// The text of the model's last answer; empty where there is none.
    pub answer: String,
    /// How often in a row hooks went on with this run before.
    pub again: u32,
}

/// What a hook says of the end of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunEndVerdict {
    /// The hook agrees to the end of the run.
    Pass,
    /// It continues: the model is given this as the next prompt. At most three times in a row, and only where the run would
    /// end because the model is done.
    Continue {
        /// What the model is to do.
        prompt: String,
    },
}

/// A request in the bytes in which it is about to be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Payload {
    /// The API that the bytes are for, such as `anthropic-messages`.
    pub api: String,
    /// The provider's id in the catalogue.
    pub provider: String,
    /// The model's id, as its provider names it.
    pub model: String,
    /// The JSON body of the request.
    pub body: Json,
    /// The headers that hooks before this one set: names in lower case, and values. Those of the wire, of `models.json` and of the
    /// credential are not shown.
    pub headers: BTreeMap<String, String>,
}

/// What a hook says of a request in its bytes.
#[derive(Debug, Clone, PartialEq)]
pub enum SendVerdict {
    /// It is sent as it is.
    Pass,
    /// It is sent with these changes.
    Change(PayloadChange),
}

/// Changes of a request in its bytes, for this request alone.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PayloadChange {
    /// The body that is sent instead: at most [`HOOK_REQUEST`](crate::HOOK_REQUEST) bytes.
    pub body: Option<Json>,
    /// Headers to set, in the place of those of the wire and of `models.json`: at most
    /// [`HOOK_HEADERS`](crate::HOOK_HEADERS) bytes with their names, and none of
    /// [`PROTECTED_HEADERS`](crate::PROTECTED_HEADERS). Names in lower case. Placeholders of secrets are resolved when it is
    /// sent.
    pub set_headers: BTreeMap<String, String>,
    /// Headers of the wire and of `models.json` to leave out, by name in lower case.
    pub remove_headers: Vec<String>,
}

/// A project that has something of its own that must be trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectTrust {
    /// The directory of the project.
    pub root: PathBuf,
    /// The path of its `settings.json`.
    pub file: PathBuf,
    /// What it sets: dotted names.
    pub settings: Vec<String>,
}

/// What a hook says of a project's trust.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrustVerdict {
    /// What a person decided counts.
    Pass,
    /// It is trusted for as long as the program that asked runs. Not kept.
    Trust,
    /// It is not trusted, also where a person trusts it.
    Distrust {
        /// Why, for people.
        reason: String,
    },
}

/// Files that were found for a session and become a part of its system prompt.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resources {
    /// Files of rules, in the order in which the prompt has them.
    pub rules: Vec<PathBuf>,
}

/// What a hook says of the files that were found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResourcesVerdict {
    /// They are used as they were found.
    Pass,
    /// These are used instead: at most [`HOOK_RESOURCES`](crate::HOOK_RESOURCES) files, with absolute paths or such that are relative to
    /// the session's directory.
    Replace(Resources),
}
