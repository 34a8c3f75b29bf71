//! Commands: the one way in.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tagged::tagged;
use crate::{
    Answer, AskId, CallId, ItemId, MergeSide, MoveFiles, MoveReport, NodeId, RunId, SessionId, Thinking,
    UserInput,
};

/// A request of a front to a session. An accepted command is durable before it is acknowledged.
///
/// JSON form: an object with a `type`. An unknown member makes the command invalid.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
#[schemars(tag = "type")]
pub enum Command {
    /// Send a message to the agent.
    Prompt {
        /// The message.
        input: UserInput,
        /// When the message reaches the model.
        when: QueueMode,
    },
    /// Continue from the current end of the conversation, without a new message.
    Continue,
    /// Remove items from the queues.
    Unqueue {
        /// The items; empty for all.
        items: Vec<ItemId>,
    },
    /// Stop something that is running.
    Abort {
        /// What to stop.
        target: AbortTarget,
    },
    /// Answer a question.
    Answer {
        /// The question.
        ask: AskId,
        /// The answer.
        answer: Answer,
    },
    /// Summarize the context, except for its end. Acknowledged when it starts.
    Compact {
        /// What the summary should focus on.
        focus: Option<String>,
    },
    /// Move the session to another of its nodes: before a user message, after any other node. The nodes that are left stay
    /// in the graph. Acknowledged when it starts.
    Jump {
        /// The node.
        to: NodeId,
        /// Summarize the branch that is left, and add the summary at the target.
        summary: Option<Summarize>,
        /// A label for that summary, or for the target where there is no summary: one line, at most 200 characters.
        label: Option<String>,
        /// What happens to files.
        #[serde(default)]
        files: MoveFiles,
    },
    /// Merge the result of a branch into the session: one node after its head that records both ends. Acknowledged when it
    /// is done, as are the commands below.
    Merge {
        /// The end of the branch.
        from: NodeId,
        /// A note of the user; may be empty. At most 64 KiB.
        note: String,
        /// Whose version of a file to keep where both sides changed it. Refused when this is needed and missing.
        side: Option<MergeSide>,
        /// What happens to files: those that the branch changed can take the content of the branch.
        #[serde(default)]
        files: MoveFiles,
    },
    /// Undo the last moves of the session: a jump, a merge, or a turn.
    Undo {
        /// Number of steps; fewer are undone where there are no more.
        steps: u32,
        /// What happens to files.
        #[serde(default)]
        files: MoveFiles,
    },
    /// Redo what was undone last.
    Redo {
        /// Number of steps.
        steps: u32,
        /// What happens to files.
        #[serde(default)]
        files: MoveFiles,
    },
    /// Undo the compaction at the end of the session.
    UndoCompaction,
    /// Create another session that continues from a node of any session: before a user message, after any other node. This
    /// session does not change.
    Fork {
        /// The node.
        at: NodeId,
    },
    /// Label a node. While the session is busy, the label is recorded when it is idle again.
    Label {
        /// The node.
        node: NodeId,
        /// One line, at most 200 characters; `None` removes the label.
        text: Option<String>,
    },
    /// Name the session. While the session is busy, the name is recorded when it is idle again.
    Rename {
        /// One line, at most 200 characters; empty for none.
        name: String,
    },
    /// Change a setting from the next request on. Acknowledged when it is recorded: at once in an idle session, otherwise
    /// between two turns or at the end of the run.
    Set {
        /// What to change.
        setting: Setting,
    },
    /// Run a shell line of a person in the directory of the session, outside of the sandbox and in parallel to the agent. It
    /// is recorded before it starts, so that a crash does not lose it.
    /// Acknowledged as started, with the id that [`Event::ShellOutput`](crate::Event::ShellOutput) and
    /// [`Event::ShellEnded`](crate::Event::ShellEnded) have. It becomes a node of the conversation when it is
    /// done and the session is idle.
    Shell {
        /// The line.
        line: String,
        /// Whether to hide it from the model.
        hidden: bool,
    },
    /// End the session task. Running work is aborted first.
    Close,
}

/// A setting of an open session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Setting {
    /// The model. The thinking level stays, as far as the model has it.
    Model {
        /// Its provider's id.
        provider: String,
        /// Its id.
        id: String,
    },
    /// The thinking level, or the nearest one that the model has.
    Thinking {
        /// The level.
        level: Thinking,
    },
    /// The permissions, as the session's policy has them now. Takes effect at once, also within a turn: open questions and
    /// calls that have not started are decided again.
    Permissions,
}

/// Options of a summary.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Summarize {
    /// What the summary should focus on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub focus: Option<String>,
}

/// When a message reaches the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum QueueMode {
    /// At once; refused while a run is under way.
    Now,
    /// After the current turn and all its tool calls; at once when idle.
    Steer,
    /// When the agent would stop; at once when idle.
    FollowUp,
}

/// What to stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum AbortTarget {
    /// The whole run.
    Run,
    /// One tool call of it.
    Tool(CallId),
    /// The compaction or jump that is running; the run continues where it can.
    Compaction,
    /// A person's line in the shell.
    Shell(RunId),
}

/// The result of an accepted command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Ack {
    /// A run began.
    Started(RunId),
    /// The message is in a queue.
    Queued(ItemId),
    /// It is done.
    Handled,
    /// These were removed from the queues.
    Unqueued(Vec<UserInput>),
    /// The session moved.
    Moved(MoveReport),
    /// A new session was created.
    Forked {
        /// The new session.
        session: SessionId,
        /// The text of the user message after the node, for editing.
        prompt: Option<String>,
    },
}

tagged!(Command);
