//! Events that a session emits.

use std::sync::Arc;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tagged::tagged;
use crate::{
    Answer, Ask, AskId, BackgroundEnd, BackgroundId, BashExecutionMessage, CallId, ChildOutcome, Compaction,
    CompactionReason, ItemId, Json, Limit, Message, MessageId, Model, ModelError, NodeId, RunId, SessionId,
    Snapshot, Thinking, ToolResultMessage, UnixMs, Usage, UserInput,
};

/// An event with its position in the session's stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Envelope {
    /// Counts up by one from 1 for each session task.
    pub seq: u64,
    /// Id of the session that is written to: UUIDv7 text or a chosen name. Changes when the session branches.
    pub session: SessionId,
    /// Id of the run or other operation (jump, compaction, merge) under way; `null` in an idle session.
    pub run: Option<RunId>,
    /// Time of the event in milliseconds since the Unix epoch.
    pub at: UnixMs,
    /// The event as an object with a `type`, such as `turnStarted`.
    pub event: Event,
}

/// What happened in a session. JSON form: an object with a `type`; later versions may add types and members.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(remote = "Self", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[schemars(tag = "type")]
pub enum Event {
    /// A run began. `run` of the envelope has its id, as in each event until `runEnded`.
    RunStarted,
    /// A turn began: one model call and the tools that it asks for.
    TurnStarted {
        /// Counts from 1 in each run.
        turn: u32,
    },
    /// A turn ended; its results are committed.
    TurnEnded {
        /// Same number as in `turnStarted`.
        turn: u32,
    },
    /// A run ended: its last commit is done.
    RunEnded {
        /// `"done"`, `"aborted"`, or an object with one member: `failed`, `limit` or `storeFailed`.
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
        /// Same id as in `messageStarted` of the answer.
        id: MessageId,
        /// Added text, or the start or end of a block, as an object with a `type` and an `index`.
        delta: Delta,
    },
    /// The message is complete. No later event refers to the message's `id`.
    MessageEnded {
        /// Same id as in `messageStarted`.
        id: MessageId,
        /// The whole message. The `content` of a dropped answer can be empty, whatever was streamed.
        message: Arc<Message>,
        /// `{"committed":NODE}`, or `{"dropped":ERROR}` for a message that is not part of the conversation.
        ending: Ending,
    },
    /// A tool call was recorded and is about to run.
    ToolStarted {
        /// Id of the `toolCall` block in the answer. Unique only within that answer.
        call: CallId,
        /// Name of the tool as the model wrote it. Such a tool need not exist.
        name: String,
        /// The arguments as the model wrote them.
        args: Json,
    },
    /// The end of a tool's output so far.
    ToolOutput {
        /// Same id as in `toolStarted`.
        call: CallId,
        /// At most 50 KB.
        tail: Arc<str>,
    },
    /// A tool call is done and its result is stored.
    ToolEnded {
        /// Same id as in `toolStarted`. A call that is refused has both events too.
        call: CallId,
        /// Content for the model, details for clients. `isError` is true for a refused call.
        result: Arc<ToolResultMessage>,
    },
    /// A shell line of a person was recorded and starts.
    ShellStarted {
        /// Identifies the line.
        id: RunId,
        /// The command line, with placeholders in place of secrets.
        line: String,
        /// Whether requests to the model leave out the line and its output.
        hidden: bool,
    },
    /// The end of a shell line's output so far.
    ShellOutput {
        /// Same id as in `shellStarted`.
        id: RunId,
        /// At most 16 KB.
        tail: Arc<str>,
    },
    /// A shell line ended. It is also emitted as a message when it becomes a node.
    ShellEnded {
        /// Same id as in `shellStarted` and in the acknowledgement `started` of the command.
        id: RunId,
        /// The line with its exit code and the end of its output, at most 50,000 bytes.
        result: Arc<BashExecutionMessage>,
        /// Why the result could not be stored in the session; `None` when it was stored.
        store_error: Option<String>,
    },
    /// A command of the model runs in the background.
    BackgroundStarted {
        /// Identifies the command in the session, such as `b1`.
        id: BackgroundId,
        /// The command line, with placeholders in place of secrets.
        command: String,
    },
    /// A background command ended. A message to the model says so too; it is emitted when it becomes a node.
    BackgroundEnded {
        /// Same id as in `backgroundStarted`.
        id: BackgroundId,
        /// The command line as in `backgroundStarted`.
        command: String,
        /// `"timedOut"`, or an object with one member: `exited`, `signalled`, `killed` or `lost`.
        end: BackgroundEnd,
    },
    /// A sub-agent began. Its session can be subscribed to like any other.
    ChildStarted {
        /// Its session.
        child: SessionId,
        /// Same id as in `toolStarted` of the call that began it.
        call: CallId,
        /// The name of the agent; `sub-agent` for one without.
        agent: String,
        /// What it is about, in a few words; may be empty.
        title: String,
    },
    /// A sub-agent ended, and its session is closed. The result of its call follows.
    ChildEnded {
        /// Its session.
        child: SessionId,
        /// Same id as in `childStarted`.
        call: CallId,
        /// `"done"`, `"stopped"`, `"failed"` or `"limit"`.
        outcome: ChildOutcome,
        /// Its turns.
        turns: u32,
        /// Its tool calls.
        calls: u32,
        /// US dollars.
        cost: f64,
    },
    /// A question needs an answer.
    AskOpened {
        /// The question with its default answer and, if it expires, its deadline.
        ask: Arc<Ask>,
    },
    /// A question was answered or withdrawn.
    AskClosed {
        /// Same id as in `askOpened`.
        ask: AskId,
        /// The answer that counted; `None` when the question was withdrawn.
        answer: Option<Answer>,
        /// Whether a change of the policy answered it.
        by_policy: bool,
    },
    /// The permissions changed. They apply to every call that has not started.
    PermissionsChanged {
        /// The new mode, such as `ask`, `workspace` or `full`.
        mode: String,
    },
    /// A message entered or left a queue. The event lists both queues in full.
    QueueChanged {
        /// Messages for the end of the turn.
        steering: Vec<QueuedItem>,
        /// Messages for the end of the run.
        follow_up: Vec<QueuedItem>,
    },
    /// A node was appended that no other event reports, such as the record of a failure.
    Appended {
        /// The new head of the session: the last of the appended nodes.
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
        /// What caused the compaction: `threshold`, `overflow` or `manual`.
        reason: CompactionReason,
    },
    /// A compaction ended. The context changed only if the result is `done`.
    CompactionEnded {
        /// Same reason as in `compactionStarted`.
        reason: CompactionReason,
        /// `"aborted"`, or an object with one member: `done` or `failed`.
        result: Arc<CompactionResult>,
    },
    /// A jump to another node starts in an idle session.
    JumpStarted {
        /// The node that the command named.
        to: NodeId,
    },
    /// A jump ended. If the session moved, `HeadMoved` came first.
    JumpEnded {
        /// `"aborted"`, or an object with one member: `done` or `failed`.
        result: Arc<JumpResult>,
    },
    /// Requests omit old tool results from here on; the graph keeps them. Within a turn, before a model call.
    ContextPruned {
        /// The node that records it; the one before it has the old context.
        node: NodeId,
        /// Number of results that are omitted.
        results: u64,
        /// Tokens of the context before results were omitted, counted by the provider or estimated.
        tokens_before: u64,
        /// Tokens of the context after it, estimated.
        tokens_after: u64,
    },
    /// A new epoch starts with the next request: another model, thinking level, tool list or system prompt. Between two
    /// turns, or within one before its model call.
    EpochChanged {
        /// The node that records it; `None` in a session without nodes.
        node: Option<NodeId>,
        /// Model of the next request, with its prices and limits.
        model: Arc<Model>,
        /// Thinking level of the next request. Can differ from the level that `set` asked for.
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
        /// A notice, a status line or a widget, as an object with a `type`.
        ui: Ui,
    },
    /// The session has another name from here on.
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

/// A message that waits for the end of the turn (steering) or of the run (follow-up).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueuedItem {
    /// Id in the acknowledgement `queued`; `unqueue` takes it.
    pub id: ItemId,
    /// Text blocks of the message, joined by newlines. Images are left out.
    pub text: String,
}

/// A piece of an answer. `index` is the position of the block in the message's content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Delta {
    /// A text block begins.
    TextStarted {
        /// Zero-based index of the block in the message's `content`.
        index: usize,
    },
    /// Text to append to a text block.
    Text {
        /// Zero-based index of the block in the message's `content`.
        index: usize,
        /// The added text only, not the whole block.
        text: String,
    },
    /// The text block is complete.
    TextEnded {
        /// Zero-based index of the block in the message's `content`.
        index: usize,
    },
    /// A thinking block begins.
    ThinkingStarted {
        /// Zero-based index of the block in the message's `content`.
        index: usize,
    },
    /// Reasoning text to append to a thinking block.
    Thinking {
        /// Zero-based index of the block in the message's `content`.
        index: usize,
        /// The added text only, not the whole block.
        text: String,
    },
    /// The thinking block is complete.
    ThinkingEnded {
        /// Zero-based index of the block in the message's `content`.
        index: usize,
    },
    /// A tool call begins. The arguments follow as pieces of JSON text.
    ToolCallStarted {
        /// Zero-based index of the block in the message's `content`.
        index: usize,
        /// The call's id.
        id: CallId,
        /// Name of the tool that the model calls.
        name: String,
    },
    /// More of the arguments' JSON text.
    ToolCallArguments {
        /// Zero-based index of the block in the message's `content`.
        index: usize,
        /// The added text.
        json: String,
    },
    /// The model wrote all of the tool call. `toolStarted` reports that the call is about to run.
    ToolCallEnded {
        /// Zero-based index of the block in the message's `content`.
        index: usize,
    },
    /// A tool of the provider ran, such as its web search. The block came whole.
    ServerTool {
        /// Zero-based index of the block in the message's `content`.
        index: usize,
        /// What it did, in a line; may be empty.
        summary: String,
    },
}

/// How a compaction ended. JSON form: `"aborted"`, or an object with the member `done` or `failed`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum CompactionResult {
    /// The context is smaller from here on.
    Done {
        /// The compaction node; its parent has the old context.
        node: NodeId,
        /// Summary, first kept node and cost, as the node has them.
        compaction: Arc<Compaction>,
        /// Tokens of the context after it, estimated.
        tokens_after: u64,
    },
    /// It was aborted. The context did not change.
    Aborted,
    /// It failed. The context did not change. One line: what happened and what to do.
    Failed(String),
}

/// How a jump ended. JSON form: `"aborted"`, or an object with the member `done` or `failed`.
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

/// What a jump changed. Nodes that were left stay in the graph.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JumpReport {
    /// Id of the session after the jump: a new id if the session branched.
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
    /// A command `abort` or the end of the session stopped the run.
    Aborted,
    /// A model call failed after all retries.
    Failed(ModelError),
    /// A limit that the user set was reached.
    Limit(Limit),
    /// A step could not be committed. Nothing after the last committed step took effect.
    StoreFailed(String),
}

/// What a person sees outside of the conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Ui {
    /// A notice, shown once.
    Notice {
        /// The notice as an object with a `type`: `branched`, `interrupted` or `note`.
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

/// A message for people outside of the conversation. JSON form: an object with a `type`.
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
        /// One line of text for a person, not for the model.
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
