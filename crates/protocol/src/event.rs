//! Events: the one way out.

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

/// An event with its place in the session's stream.
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
    /// The run made its last commit.
    RunEnded {
        /// How.
        outcome: Outcome,
    },
    /// Nothing runs and nothing waits.
    Settled,
    /// A message begins: a user's that reached the conversation, an answer that streams, a tool's result.
    MessageStarted {
        /// Names the message until it has a node.
        id: MessageId,
        /// What is known of it; for an answer that streams: its content still empty.
        message: Arc<Message>,
        /// 1 for the first try; more when the answer before it was dropped and asked for again.
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
        /// What became of it.
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
    /// What a tool printed so far, its end only.
    ToolOutput {
        /// The call.
        call: CallId,
        /// At most 50 KB.
        tail: Arc<str>,
    },
    /// A tool call is done and its result is kept.
    ToolEnded {
        /// The call.
        call: CallId,
        /// The result.
        result: Arc<ToolResultMessage>,
    },
    /// A person's line in the shell was recorded and runs now.
    ShellStarted {
        /// Names it.
        id: RunId,
        /// The line.
        line: String,
        /// Whether the model does not see it.
        hidden: bool,
    },
    /// What it printed so far, its end only.
    ShellOutput {
        /// The line.
        id: RunId,
        /// At most 16 KB.
        tail: Arc<str>,
    },
    /// It is over. It is told as a message as well, once it is a node.
    ShellEnded {
        /// The line.
        id: RunId,
        /// What came of it.
        result: Arc<BashExecutionMessage>,
        /// Why the session does not have it, where it does not.
        lost: Option<String>,
    },
    /// Someone must answer.
    Asked {
        /// The question.
        ask: Arc<Ask>,
    },
    /// A question needs no answer any more.
    AskClosed {
        /// The question.
        ask: AskId,
        /// The answer that counted; `None` when it was withdrawn.
        by: Option<Answer>,
        /// Whether the answer is the policy's, which decides otherwise by now.
        by_policy: bool,
    },
    /// What tools may do has changed. It holds for every call that has not begun.
    PermissionsChanged {
        /// How much is asked now, in a word.
        mode: String,
    },
    /// The queues changed.
    QueueChanged {
        /// Waiting for the end of the turn.
        steering: Vec<Queued>,
        /// Waiting for the end of the run.
        follow_up: Vec<Queued>,
    },
    /// Something was appended that no other event tells of, such as a note of what failed.
    Appended {
        /// Its last node.
        node: NodeId,
    },
    /// The session's ref moved other than by appending.
    HeadMoved {
        /// From where.
        from: Option<NodeId>,
        /// To where.
        to: NodeId,
    },
    /// The context is being summed up. Within a turn, or when no run is under way.
    CompactionStarted {
        /// Why.
        reason: CompactionReason,
    },
    /// That is over.
    CompactionEnded {
        /// As in the start.
        reason: CompactionReason,
        /// What came of it.
        result: Arc<CompactionResult>,
    },
    /// The session is about to go to another node. When no run is under way.
    JumpStarted {
        /// The node that was named.
        to: NodeId,
    },
    /// That is over. Where the session moved, `HeadMoved` came before it.
    JumpEnded {
        /// What came of it.
        result: Arc<JumpResult>,
    },
    /// Old results of tools are left out of requests from here on; the graph keeps them. Within a turn, before a
    /// call.
    ContextPruned {
        /// The node that records it; the one before it has the old context.
        node: NodeId,
        /// Results that are left out.
        results: u64,
        /// Tokens of the context before it.
        tokens_before: u64,
        /// Tokens of the context after it, estimated.
        tokens_after: u64,
    },
    /// The session goes on with this model and this level from its next request on: in a new epoch, which may have another
    /// model or level, or other tools or another system prompt alone. Between two turns, or within one before its call.
    Changed {
        /// The node that records it; `None` where the session has none yet, and begins so.
        node: Option<NodeId>,
        /// The model.
        model: Arc<Model>,
        /// How hard it thinks.
        thinking: Thinking,
    },
    /// The provider will be called again with the same bytes.
    RetryScheduled {
        /// The attempt that will follow, from 2.
        attempt: u32,
        /// After this time; in JSON `delayMs`.
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
    /// Something for people to see.
    Ui {
        /// What.
        ui: Ui,
    },
    /// The session has another name.
    Renamed {
        /// The name; empty for none.
        name: String,
    },
    /// The subscriber was too slow; these events are lost to it. Never sent to a lossless subscriber.
    Lagged {
        /// How many.
        missed: u64,
        /// How everything stands now: in place of what was put together from the events before.
        snapshot: Arc<Snapshot>,
    },
}

/// An input that waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Queued {
    /// Names it.
    pub id: ItemId,
    /// Its text.
    pub text: String,
}

/// A piece of an answer. `index` is the block's place in the message's content.
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
        /// What is added.
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
        /// What is added.
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
        /// What is added.
        json: String,
    },
    /// The tool call is complete.
    ToolCallEnded {
        /// The block.
        index: usize,
    },
}

/// What came of a compaction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum CompactionResult {
    /// The context is smaller from here on.
    Done {
        /// The node that says so; the one before it has the old context.
        node: NodeId,
        /// What it holds.
        compaction: Arc<Compaction>,
        /// Tokens of the context after it, estimated.
        tokens_after: u64,
    },
    /// Somebody stopped it. The context is as it was.
    Aborted,
    /// It could not be made. The context is as it was. In one line, what happened and what to do.
    Failed(String),
}

/// What came of a jump.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum JumpResult {
    /// The session stands at another node, or stood there already.
    Done(Box<Jumped>),
    /// Somebody stopped it. The session stands where it stood.
    Aborted,
    /// It could not be made. The session stands where it stood. In one line, what happened and what to do.
    Failed(String),
}

/// A session that went to another node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Jumped {
    /// The session.
    pub session: SessionId,
    /// Where it stood.
    pub from: NodeId,
    /// The node that it goes on from.
    pub at: NodeId,
    /// Where its ref stands now: at `at`, or at what was added below it.
    pub head: NodeId,
    /// What was said in the message that it stands before, to be said in other words.
    pub said: Option<UserInput>,
    /// The node that sums up what was left behind.
    pub summary: Option<NodeId>,
    /// What that cost.
    pub usage: Option<Usage>,
}

/// What became of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Ending {
    /// It is this node.
    Kept(NodeId),
    /// It is not part of the conversation.
    Dropped(ModelError),
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Outcome {
    /// The model was done.
    Done,
    /// Someone aborted it.
    Aborted,
    /// A model call failed for good.
    Failed(ModelError),
    /// A limit that the user set was reached.
    Limit(Limit),
    /// A step could not be committed; nothing after the last committed step happened.
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
        /// What was spent today.
        spent: f64,
        /// The limit.
        budget: f64,
    },
}

/// What people see beside the conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Ui {
    /// Something that they should know. It is told once.
    Notice {
        /// What.
        notice: Notice,
    },
    /// A line that stays until it is replaced or taken away.
    Status {
        /// Names the line.
        key: String,
        /// The line; `None` takes it away.
        text: Option<String>,
    },
    /// Some lines that stay until they are replaced or taken away.
    Widget {
        /// Names them.
        key: String,
        /// The lines; empty takes them away.
        lines: Vec<String>,
    },
}

/// Something that people should know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Notice {
    /// Another process moved this session's ref; this one goes on as a branch of its own.
    Branched {
        /// The session that this process writes to now.
        session: SessionId,
    },
    /// Calls that were under way when an earlier process died. They are not run again.
    Interrupted {
        /// Tool names and their calls.
        calls: Vec<(String, CallId)>,
        /// Whether a model call was sent whose answer is not known.
        model_call: bool,
    },
    /// Anything else.
    Note {
        /// One line.
        text: String,
    },
}

impl Notice {
    /// Anything that has no kind of its own, in one line.
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
