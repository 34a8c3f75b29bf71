//! Commands: the one way in.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tagged::tagged;
use crate::{
    Answer, AskId, BackgroundId, CallId, ItemId, MergeSide, MoveFiles, MoveReport, NodeId, RunId, SessionId,
    Thinking, UserInput,
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
        /// A list of text and image blocks, or an object where a source other than a person wrote some of them.
        input: UserInput,
        /// When the message reaches the model.
        when: QueueMode,
    },
    /// Continue from the current end of the conversation, without a new message.
    Continue,
    /// Remove items from the queues.
    Unqueue {
        /// Ids from the acknowledgements `queued`; empty for all.
        items: Vec<ItemId>,
    },
    /// Stop something that is running.
    Abort {
        /// `"run"`, `"compaction"`, or an object with one member: `tool`, `shell` or `background`.
        target: AbortTarget,
    },
    /// Answer an open question. The first answer counts; a later one is refused with `noSuchAsk`.
    Answer {
        /// Id of the question from `askOpened`.
        ask: AskId,
        /// An answer of the kind that the question accepts, or `cancel`.
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
        /// A node of this session. Any other node is refused with `notInSession`.
        to: NodeId,
        /// Summarize the branch that is left, and add the summary at the target.
        summary: Option<Summarize>,
        /// A label for that summary, or for the target where there is no summary: one line, at most 200 characters.
        label: Option<String>,
        /// What to do with files that tools changed between the two nodes; absent for `auto`.
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
        /// What to do with files that tools changed in the undone steps; absent for `auto`.
        #[serde(default)]
        files: MoveFiles,
    },
    /// Redo what was undone last.
    Redo {
        /// Number of undone steps to redo; fewer are redone where there are no more.
        steps: u32,
        /// What to do with files that tools changed in the redone steps; absent for `auto`.
        #[serde(default)]
        files: MoveFiles,
    },
    /// Undo the compaction at the end of the session.
    UndoCompaction,
    /// Create another session that continues from a node of any session: before a user message, after any other node. This
    /// session does not change.
    Fork {
        /// A node of any session in the store.
        at: NodeId,
    },
    /// Label a node. While the session is busy, the label is recorded when it is idle again.
    Label {
        /// Id of the node to label: 64 lowercase hexadecimal digits.
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
        /// The model, the thinking level or the permissions, as an object with a `type`.
        setting: Setting,
    },
    /// Run a shell line of a person in the directory of the session, outside of the sandbox and in parallel to the agent. It
    /// is recorded before it starts, so that a crash does not lose it.
    /// Acknowledged as started, with the id that [`Event::ShellOutput`](crate::Event::ShellOutput) and
    /// [`Event::ShellEnded`](crate::Event::ShellEnded) have. It becomes a node of the conversation when it is
    /// done and the session is idle.
    Shell {
        /// The command line. A hook can change the line before it runs.
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
        /// Id of the model at its provider, without the provider's own id.
        id: String,
    },
    /// The thinking level, or the nearest one that the model has.
    Thinking {
        /// The wanted level. Where the model lacks the level: the next higher one, else the next lower one.
        level: Thinking,
    },
    /// The permissions, as the session's policy has them now. Takes effect at once, also within a turn: open questions and
    /// calls that have not started are decided again.
    Permissions,
    /// Plan mode: only calls that read may run. Takes effect as `permissions` does, and is recorded in the session: an idle one
    /// acknowledges it when that is done. Refused with `blocked` where the session has no plan mode.
    Plan {
        /// Whether it is on.
        on: bool,
    },
}

/// How to summarize the branch that a jump leaves. All members are optional.
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

/// What `abort` stops. The command is acknowledged with `handled` even if nothing runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum AbortTarget {
    /// The run with its model call and all its tool calls.
    Run,
    /// One tool call of the turn, by its id from `toolStarted`. The run continues.
    Tool(CallId),
    /// The compaction or jump that is running; the run continues where it can.
    Compaction,
    /// A person's line in the shell.
    Shell(RunId),
    /// A background command of the session, by its id from `backgroundStarted`.
    Background(BackgroundId),
}

/// The result of an accepted command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Ack {
    /// A run, compaction or jump began, with the id in `run` of envelopes; or a shell line, with the id in `shellStarted`.
    Started(RunId),
    /// The message waits in a queue. `queueChanged` lists the item with the same id.
    Queued(ItemId),
    /// The command is complete. For a `prompt`: a hook handled the message, and no run began.
    Handled,
    /// These were removed from the queues.
    Unqueued(Vec<UserInput>),
    /// A merge, undo, redo or undone compaction is done.
    Moved(MoveReport),
    /// A new session was created.
    Forked {
        /// Id of the new session: UUIDv7 text.
        session: SessionId,
        /// The text of the user message after the node, for editing.
        prompt: Option<String>,
    },
}

tagged!(Command);
