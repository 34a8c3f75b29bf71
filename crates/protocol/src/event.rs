//! Events that a session emits.

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tagged::tagged;
use crate::{
    Answer, Ask, AskId, BashExecutionMessage, CallId, Compaction, CompactionReason, ItemId, Json, Message,
    MessageId, Model, ModelError, NodeId, RunId, SessionId, Snapshot, Thinking, ToolResultMessage, UnixMs,
    Usage, UserInput,
};

/// An event with its position in the session's stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Envelope {
    /// Counts up by one from 1 for each session task.
    pub seq: u64,
    /// The session.
    pub session: SessionId,
    /// The run that it belongs to.
    pub run: Option<RunId>,
    /// When it was emitted.
    pub at: UnixMs,
    /// What happened.
    pub event: Event,
}

/// What happened in a session. JSON form: an object with a `type`; later versions may add types and members.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[schemars(tag = "type")]
pub enum Event {
    /// A run began.
    RunStarted,
    /// A turn began: one model call and the tools that it asks for.
    TurnStarted {
        /// Counts from 1 in each run.
        turn: u32,
    },
    /// A turn ended; its results are committed.
    TurnEnded {
        /// As in the start.
        turn: u32,
    },
    /// A run ended: its last commit is done.
    RunEnded {
        /// How it ended.
        outcome: Outcome,
    },
    /// The session is idle: nothing runs.
    Settled,
    /// A message starts: a user message of the conversation, an answer that streams, or a tool result.
    MessageStarted {
        /// Identifies the message until it has a node.
        id: MessageId,
        /// The message so far. The content of an answer that streams is still empty.
        message: Arc<Message>,
        /// 1 for the first attempt; higher when an earlier answer was dropped and requested again.
        attempt: u32,
    },
    /// A piece of an answer. Never the whole message.
    MessageDelta {
        /// The message.
        id: MessageId,
        /// The piece.
        delta: Delta,
    },
    /// The message is complete.
    MessageEnded {
        /// The message.
        id: MessageId,
        /// All of it, as committed.
        message: Arc<Message>,
        /// Whether it was committed.
        ending: Ending,
    },
    /// A tool call was recorded and is about to run.
    ToolStarted {
        /// The call.
        call: CallId,
        /// The tool.
        name: String,
        /// The arguments as the model wrote them.
        args: Json,
    },
    /// The end of a tool's output so far.
    ToolOutput {
        /// The call.
        call: CallId,
        /// At most 50 KB.
        tail: Arc<str>,
    },
    /// A tool call is done and its result is stored.
    ToolEnded {
        /// The call.
        call: CallId,
        /// The result.
        result: Arc<ToolResultMessage>,
    },
    /// A shell line of a person was recorded and starts.
    ShellStarted {
        /// Identifies the line.
        id: RunId,
        /// The line.
        line: String,
        /// Whether it is hidden from the model.
        hidden: bool,
    },
    /// The end of a shell line's output so far.
    ShellOutput {
        /// The line.
        id: RunId,
        /// At most 16 KB.
        tail: Arc<str>,
    },
    /// A shell line ended. It is also emitted as a message when it becomes a node.
    ShellEnded {
        /// The line.
        id: RunId,
        /// The result.
        result: Arc<BashExecutionMessage>,
        /// Why the result could not be stored in the session; `None` when it was stored.
        store_error: Option<String>,
    },
    /// A question needs an answer.
    AskOpened {
        /// The question.
        ask: Arc<Ask>,
    },
    /// A question was answered or withdrawn.
    AskClosed {
        /// The question.
        ask: AskId,
        /// The answer that counted; `None` when the question was withdrawn.
        answer: Option<Answer>,
        /// Whether a change of the policy answered it.
        by_policy: bool,
    },
    /// The permissions changed. They apply to every call that has not started.
    PermissionsChanged {
        /// The mode, in one word.
        mode: String,
    },
    /// The queues changed.
    QueueChanged {
        /// Messages for the end of the turn.
        steering: Vec<QueuedItem>,
        /// Messages for the end of the run.
        follow_up: Vec<QueuedItem>,
    },
    /// A node was appended that no other event reports, such as the record of a failure.
    Appended {
        /// The last node.
        node: NodeId,
    },
    /// The session's ref moved other than by appending.
    HeadMoved {
        /// The old head.
        from: Option<NodeId>,
        /// The new head.
        to: NodeId,
    },
    /// A compaction starts, within a turn or in an idle session.
    CompactionStarted {
        /// Why.
        reason: CompactionReason,
    },
    /// A compaction ended.
    CompactionEnded {
        /// As in the start.
        reason: CompactionReason,
        /// The result.
        result: Arc<CompactionResult>,
    },
    /// A jump to another node starts in an idle session.
    JumpStarted {
        /// The node that the command named.
        to: NodeId,
    },
    /// A jump ended. If the session moved, `HeadMoved` came first.
    JumpEnded {
        /// The result.
        result: Arc<JumpResult>,
    },
    /// Requests omit old tool results from here on; the graph keeps them. Within a turn, before a model call.
    ContextPruned {
        /// The node that records it; the one before it has the old context.
        node: NodeId,
        /// Number of results that are omitted.
        results: u64,
        /// Tokens of the context before it.
        tokens_before: u64,
        /// Tokens of the context after it, estimated.
        tokens_after: u64,
    },
    /// A new epoch starts with the next request: another model, thinking level, tool list or system prompt. Between two
    /// turns, or within one before its model call.
    EpochChanged {
        /// The node that records it; `None` in a session without nodes.
        node: Option<NodeId>,
        /// The model.
        model: Arc<Model>,
        /// The thinking level.
        thinking: Thinking,
    },
    /// The same request will be sent again.
    RetryScheduled {
        /// The number of the next attempt, from 2.
        attempt: u32,
        /// The delay before it; in JSON `delayMs`.
        #[serde(rename = "delayMs", with = "millis")]
        #[schemars(with = "u64")]
        delay: Duration,
        /// What went wrong.
        error: ModelError,
    },
    /// A series of retries is over.
    RetryEnded {
        /// Whether the last one succeeded.
        ok: bool,
    },
    /// Something for a person to see.
    Ui {
        /// What to show.
        ui: Ui,
    },
    /// The session was renamed.
    Renamed {
        /// The name; empty for none.
        name: String,
    },
    /// The subscriber was too slow and missed events. Never sent to a lossless subscriber.
    Lagged {
        /// Number of missed events.
        missed: u64,
        /// The current state, which replaces the state folded from earlier events.
        snapshot: Arc<Snapshot>,
    },
}

/// A message in a queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueuedItem {
    /// Identifies it.
    pub id: ItemId,
    /// Its text.
    pub text: String,
}

/// A piece of an answer. `index` is the position of the block in the message's content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Delta {
    /// A text block begins.
    TextStarted {
        /// The block.
        index: usize,
    },
    /// More text.
    Text {
        /// The block.
        index: usize,
        /// The added text.
        text: String,
    },
    /// The text block is complete.
    TextEnded {
        /// The block.
        index: usize,
    },
    /// A thinking block begins.
    ThinkingStarted {
        /// The block.
        index: usize,
    },
    /// More thinking.
    Thinking {
        /// The block.
        index: usize,
        /// The added text.
        text: String,
    },
    /// The thinking block is complete.
    ThinkingEnded {
        /// The block.
        index: usize,
    },
    /// A tool call begins.
    ToolCallStarted {
        /// The block.
        index: usize,
        /// The call's id.
        id: CallId,
        /// The tool.
        name: String,
    },
    /// More of the arguments' JSON text.
    ToolCallArguments {
        /// The block.
        index: usize,
        /// The added text.
        json: String,
    },
    /// The tool call is complete.
    ToolCallEnded {
        /// The block.
        index: usize,
    },
}

/// The result of a compaction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum CompactionResult {
    /// The context is smaller from here on.
    Done {
        /// The compaction node; its parent has the old context.
        node: NodeId,
        /// Its content.
        compaction: Arc<Compaction>,
        /// Tokens of the context after it, estimated.
        tokens_after: u64,
    },
    /// It was aborted. The context did not change.
    Aborted,
    /// It failed. The context did not change. One line: what happened and what to do.
    Failed(String),
}

/// The result of a jump.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum JumpResult {
    /// The session is at the target; it may have been there before.
    Done(Box<JumpReport>),
    /// It was aborted. The session did not move.
    Aborted,
    /// It failed. The session did not move. One line: what happened and what to do.
    Failed(String),
}

/// A completed jump.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JumpReport {
    /// The session.
    pub session: SessionId,
    /// The head before the jump.
    pub from: NodeId,
    /// The node that the session continues from.
    pub at: NodeId,
    /// The new head: `at`, or a node that was added after it.
    pub head: NodeId,
    /// The input of the user message after this node, for editing.
    pub prompt: Option<UserInput>,
    /// The node with the summary of the branch that was left.
    pub summary: Option<NodeId>,
    /// Tokens and cost of that summary.
    pub usage: Option<Usage>,
}

/// Whether a message was committed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Ending {
    /// It is a node of the conversation.
    Committed(NodeId),
    /// It is not part of the conversation.
    Dropped(ModelError),
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Outcome {
    /// The model finished.
    Done,
    /// It was aborted.
    Aborted,
    /// A model call failed after all retries.
    Failed(ModelError),
    /// A limit that the user set was reached.
    Limit(Limit),
    /// A step could not be committed. Nothing after the last committed step took effect.
    StoreFailed(String),
}

/// A limit that the user set.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Limit {
    /// Turns of one run.
    Turns(u32),
    /// US dollars of one run.
    Cost(f64),
    /// US dollars of one calendar day, over all sessions of the store.
    Daily {
        /// US dollars spent today.
        spent: f64,
        /// The limit.
        budget: f64,
    },
}

/// What a person sees outside of the conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Ui {
    /// A notice, shown once.
    Notice {
        /// The notice.
        notice: Notice,
    },
    /// A status line that stays until it is replaced or removed.
    Status {
        /// Identifies the line.
        key: String,
        /// The line; `None` removes it.
        text: Option<String>,
    },
    /// Lines that stay until they are replaced or removed.
    Widget {
        /// Identifies the lines.
        key: String,
        /// The lines; an empty list removes them.
        lines: Vec<String>,
    },
}

/// A notice for a person.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Notice {
    /// Another process moved the session's ref, so this process continues in a branch.
    Branched {
        /// The session that this process writes to now.
        session: SessionId,
    },
    /// Calls that were running when an earlier process exited or stopped responding. They are not run again.
    Interrupted {
        /// Tool names and their calls.
        calls: Vec<(String, CallId)>,
        /// Whether a model call was sent whose answer is lost.
        model_call: bool,
    },
    /// Anything else.
    Note {
        /// One line.
        text: String,
    },
}

impl Notice {
    /// A note: one line of text.
    pub fn note(text: impl Into<String>) -> Self {
        Self::Note { text: text.into() }
    }
}

impl From<Notice> for Event {
    fn from(notice: Notice) -> Self {
        Self::Ui { ui: Ui::Notice { notice } }
    }
}

/// A time as a number of milliseconds.
mod millis {
    use std::time::Duration;

    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}

tagged!(Event);
