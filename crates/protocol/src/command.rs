//! Commands: the one way in.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tagged::tagged;
use crate::{
    Answer, AskId, CallId, ItemId, MergeSide, MoveFiles, Moved, NodeId, RunId, SessionId, Thinking, UserInput,
};

/// What a front asks of a session. Accepted commands are durable before they are acknowledged.
///
/// JSON form: an object with a `type`. A member that is not known makes the command invalid.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
#[schemars(tag = "type")]
pub enum Command {
    /// Say something to the agent.
    Prompt {
        /// What is said.
        input: UserInput,
        /// When it reaches the model.
        when: QueueMode,
    },
    /// Go on from where the conversation stands, without a new message.
    Continue,
    /// Take waiting items back out of the queues.
    Unqueue {
        /// Which; empty for all.
        items: Vec<ItemId>,
    },
    /// Stop something that runs.
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
    /// Sum the context up, except for its end. Acknowledged as begun.
    Compact {
        /// What the summary should look at above all.
        focus: Option<String>,
    },
    /// Go back, or over, to another node of the session: before it when somebody said it, else behind it. What is left
    /// behind stays in the graph. Acknowledged as begun.
    Jump {
        /// The node.
        to: NodeId,
        /// Whether what is left behind is summed up at the new place.
        summary: Option<Summarize>,
        /// A label for that summary, or for the new place when there is none: one line, at most 200 characters.
        label: Option<String>,
        /// What becomes of files.
        #[serde(default)]
        files: MoveFiles,
    },
    /// Bring what a branch came to into the session: one node behind its head with both ends recorded. Acknowledged when it
    /// is done, as the commands below.
    Merge {
        /// The end of the branch.
        from: NodeId,
        /// The user's own words to it; may be empty. At most 64 KiB.
        note: String,
        /// Whose files count where both sides changed them; refused where that must be said and is not.
        side: Option<MergeSide>,
        /// What becomes of files: those that the branch changed become what it made of them.
        #[serde(default)]
        files: MoveFiles,
    },
    /// Take back what moved the session last: a jump, a merge, or a turn.
    Undo {
        /// So many steps; fewer are taken where there are no more.
        steps: u32,
        /// What becomes of files.
        #[serde(default)]
        files: MoveFiles,
    },
    /// Do again what was undone last.
    Redo {
        /// So many steps.
        steps: u32,
        /// What becomes of files.
        #[serde(default)]
        files: MoveFiles,
    },
    /// Go back over the compaction that the session ends with.
    UndoCompaction,
    /// Make another session that goes on from a node, also one of another session: before it when somebody said it, else
    /// behind it. This one stays as it is.
    Fork {
        /// The node.
        at: NodeId,
    },
    /// Label a node. While something is under way it is recorded at its end.
    Label {
        /// The node.
        node: NodeId,
        /// One line, at most 200 characters; `None` takes the label away.
        text: Option<String>,
    },
    /// Give the session a name. While something is under way it is recorded at its end.
    Rename {
        /// One line, at most 200 characters; empty for none.
        name: String,
    },
    /// Change how the session goes on from its next request on. Acknowledged when that is recorded: at once where nothing
    /// is under way, else between two turns or at the end of what is.
    Set {
        /// What to change.
        setting: Setting,
    },
    /// Run a line in the shell for a person: in the directory of the session, outside of the sandbox and beside the
    /// agent. It is recorded before it begins, so that it is not forgotten when the program ends before the line does.
    /// Acknowledged as started, with the id that [`Event::ShellOutput`](crate::Event::ShellOutput) and
    /// [`Event::ShellEnded`](crate::Event::ShellEnded) have. It becomes a node of the conversation when it is done and
    /// nothing else is under way.
    Shell {
        /// The line.
        line: String,
        /// Whether the model must not see it.
        hidden: bool,
    },
    /// End the session task. What runs is aborted first.
    Close,
}

/// What of a session can be changed while it is open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Setting {
    /// The model that answers. How hard it thinks stays, as far as the model has that level.
    Model {
        /// Its provider's id.
        provider: String,
        /// Its id.
        id: String,
    },
    /// How hard the model thinks: the level, or the nearest one that the model has.
    Thinking {
        /// The level.
        level: Thinking,
    },
    /// What tools may do, as the session's policy says by now. Takes effect at once, also within a turn: open questions
    /// are judged again, and so is each call that has not begun.
    Permissions,
}

/// How something is to be summed up.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Summarize {
    /// What the summary should look at above all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub focus: Option<String>,
}

/// When an input reaches the model.
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
    /// The compaction that is under way, or the jump; the run goes on where it can.
    Compaction,
    /// A person's line in the shell.
    Shell(RunId),
}

/// What became of a command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Ack {
    /// A run began.
    Started(RunId),
    /// It waits in a queue.
    Queued(ItemId),
    /// It is done.
    Handled,
    /// These were taken back.
    Unqueued(Vec<UserInput>),
    /// The session stands elsewhere.
    Moved(Moved),
    /// Another session was made.
    Forked {
        /// It.
        session: SessionId,
        /// What was said in the message that it stands before, to be said in other words.
        said: Option<String>,
    },
}

tagged!(Command);
