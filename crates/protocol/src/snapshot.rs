//! The state of a session, for a client that connects or reconnects.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Ask, AssistantMessage, BackgroundSnapshot, CallId, ChildSnapshot, CompactionReason, CompactionResult,
    Delta, Ending, Envelope, Event, Json, JumpResult, Message, MessageId, Model, ModelError, NodeId, Notice,
    QueuedItem, RunId, SessionId, SessionProfile, Thinking, ToolResultMessage, Ui, UnixMs, Usage,
};

/// The state of a session after one of its events. [`Snapshot::fold`] is the only way to change it, so a client that folds
/// events has the same state as one that requests a new snapshot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// Number of the last folded event; 0 before the first.
    pub seq: u64,
    /// The session that is written to; changes when the session branches.
    pub session: SessionId,
    /// The directory that it works in.
    pub cwd: String,
    /// Its name; empty for none.
    pub name: String,
    /// The head; `None` before the first message.
    pub head: Option<NodeId>,
    /// Model of the next request, until `epochChanged` names another model.
    pub model: Arc<Model>,
    /// Thinking level of the next request, until `epochChanged` names another level.
    pub thinking: Thinking,
    /// How its answers are read, where not as answers with tool calls; absent for most sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<SessionProfile>,
    /// The permission mode, in one word; empty where there is none.
    pub permissions: String,
    /// The run between `runStarted` and `runEnded`; `null` outside of a run.
    pub run: Option<RunSnapshot>,
    /// Open questions, oldest first.
    pub asks: Vec<Arc<Ask>>,
    /// Messages for the end of the turn.
    pub steering: Vec<QueuedItem>,
    /// Messages for the end of the run.
    pub follow_up: Vec<QueuedItem>,
    /// Tool calls of the turn that are not nodes yet, in order.
    pub tools: Vec<ToolSnapshot>,
    /// Running shell lines of people, oldest first.
    #[serde(default)]
    pub shells: Vec<ShellSnapshot>,
    /// Running background commands, oldest first.
    #[serde(default)]
    pub background: Vec<BackgroundSnapshot>,
    /// Sub-agents at work, oldest first.
    #[serde(default)]
    pub children: Vec<ChildSnapshot>,
    /// The answer that streams.
    pub message: Option<PartialMessage>,
    /// The reason of the running compaction.
    pub compaction: Option<CompactionReason>,
    /// The target of the running jump.
    pub jump: Option<NodeId>,
    /// The next attempt of a failed model call; `null` if none is scheduled.
    pub retry: Option<RetrySnapshot>,
    /// Tokens and cost of the answers since the session was opened.
    pub usage: Usage,
    /// Tokens of the context as last counted or estimated.
    pub context: Option<u64>,
    /// Status lines, by key.
    pub status: BTreeMap<String, String>,
    /// Lines of each widget, by the `key` of the widget. A removed widget is absent.
    pub widgets: BTreeMap<String, Vec<String>>,
}

/// A run between `runStarted` and `runEnded`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunSnapshot {
    /// Id in `run` of the envelopes of the run: UUIDv7 text.
    pub id: RunId,
    /// Time of `runStarted` in milliseconds since the Unix epoch.
    pub since: UnixMs,
    /// Its turn, from 1; 0 before the first.
    pub turn: u32,
}

/// A tool call that is not a node yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolSnapshot {
    /// Same id as in `toolStarted`.
    pub call: CallId,
    /// Name of the tool as in `toolStarted`.
    pub name: String,
    /// The arguments as the model wrote them.
    pub args: Json,
    /// Time of `toolStarted` in milliseconds since the Unix epoch.
    pub since: UnixMs,
    /// The end of its output so far, at most 50 KB.
    pub tail: Arc<str>,
    /// The result, once it is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Arc<ToolResultMessage>>,
}

/// A running shell line of a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShellSnapshot {
    /// Same id as in `shellStarted`; `abort` takes it as `{"shell":ID}`.
    pub id: RunId,
    /// The command line as in `shellStarted`.
    pub line: String,
    /// Whether the model does not see it.
    pub hidden: bool,
    /// Time of `shellStarted` in milliseconds since the Unix epoch.
    pub since: UnixMs,
    /// The end of its output so far, at most 16 KB.
    pub tail: Arc<str>,
}

/// An answer that streams.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PartialMessage {
    /// Identifies the message until it has a node.
    pub id: MessageId,
    /// 1 for the first try.
    pub attempt: u32,
    /// Time of `messageStarted` in milliseconds since the Unix epoch.
    pub since: UnixMs,
    /// Its blocks so far, by their position in the message.
    pub blocks: BTreeMap<usize, PartialBlock>,
}

/// A block of an answer that streams.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum PartialBlock {
    /// A text block, from `textStarted` on.
    Text {
        /// The `text` pieces of the block so far, joined.
        text: String,
        /// Whether the block is complete.
        done: bool,
    },
    /// A thinking block, from `thinkingStarted` on.
    Thinking {
        /// The `thinking` pieces of the block so far, joined.
        text: String,
        /// Whether the block is complete.
        done: bool,
    },
    /// A tool call that the model writes, from `toolCallStarted` on.
    ToolCall {
        /// Id of the call, which `toolStarted` repeats.
        id: CallId,
        /// Name of the tool that the model calls.
        name: String,
        /// The text of its arguments so far: the beginning of a JSON object.
        json: String,
        /// Whether the block is complete.
        done: bool,
    },
    /// A tool of the provider, from `serverTool` on.
    ServerTool {
        /// What it did, in a line; may be empty.
        summary: String,
    },
}

/// The next attempt of a model call: from `retryScheduled` until an answer starts or `retryEnded`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RetrySnapshot {
    /// The number of the next attempt, from 2.
    pub attempt: u32,
    /// When it will be made.
    pub at: UnixMs,
    /// What went wrong.
    pub error: ModelError,
}

impl Snapshot {
    /// An idle session before its first event.
    pub fn new(session: SessionId, cwd: String, model: Arc<Model>, thinking: Thinking) -> Self {
        Self {
            seq: 0,
            session,
            cwd,
            name: String::new(),
            head: None,
            model,
            thinking,
            profile: None,
            permissions: String::new(),
            run: None,
            asks: Vec::new(),
            steering: Vec::new(),
            follow_up: Vec::new(),
            tools: Vec::new(),
            shells: Vec::new(),
            background: Vec::new(),
            children: Vec::new(),
            message: None,
            compaction: None,
            jump: None,
            retry: None,
            usage: Usage::default(),
            context: None,
            status: BTreeMap::new(),
            widgets: BTreeMap::new(),
        }
    }

    /// Applies one event: the one after [`Snapshot::seq`], or [`Event::Lagged`].
    pub fn fold(&mut self, envelope: &Envelope) {
        let at = envelope.at;
        match &envelope.event {
            Event::RunStarted => {
                let id = envelope.run.clone().unwrap_or_else(|| "".into());
                self.run = Some(RunSnapshot { id, since: at, turn: 0 });
            }
            Event::TurnStarted { turn } => {
                if let Some(run) = &mut self.run {
                    run.turn = *turn;
                }
            }
            Event::TurnEnded { .. } => self.tools.clear(),
            Event::RunEnded { .. } => self.at_rest(),
            Event::Settled => {
                self.at_rest();
                (self.compaction, self.jump) = (None, None);
            }
            Event::MessageStarted { id, message, attempt } => {
                if let Message::Assistant(_) = &**message {
                    let (id, attempt) = (id.clone(), *attempt);
                    self.retry = None;
                    self.message = Some(PartialMessage { id, attempt, since: at, blocks: BTreeMap::new() });
                }
            }
            Event::MessageDelta { id, delta } => {
                if let Some(message) = self.message.as_mut().filter(|message| message.id == *id) {
                    message.fold(delta);
                }
            }
            Event::MessageEnded { id, message, ending } => {
                if self.message.as_ref().is_some_and(|open| open.id == *id) {
                    self.message = None;
                }
                if let Message::Assistant(answer) = &**message {
                    self.count(answer);
                }
                if let Ending::Committed(node) = ending {
                    self.head = Some(*node);
                }
            }
            Event::ToolStarted { call, name, args } => self.tools.push(ToolSnapshot {
                call: call.clone(),
                name: name.clone(),
                args: args.clone(),
                since: at,
                tail: "".into(),
                result: None,
            }),
            Event::ToolOutput { call, tail } => {
                if let Some(tool) = self.tool(call) {
                    tool.tail = tail.clone();
                }
            }
            Event::ToolEnded { call, result } => {
                if let Some(tool) = self.tool(call) {
                    tool.result = Some(result.clone());
                }
            }
            Event::ShellStarted { id, line, hidden } => self.shells.push(ShellSnapshot {
                id: id.clone(),
                line: line.clone(),
                hidden: *hidden,
                since: at,
                tail: "".into(),
            }),
            Event::ShellOutput { id, tail } => {
                if let Some(shell) = self.shells.iter_mut().find(|shell| shell.id == *id) {
                    shell.tail = tail.clone();
                }
            }
            Event::ShellEnded { id, .. } => self.shells.retain(|shell| shell.id != *id),
            Event::BackgroundStarted { id, command } => {
                let (id, command) = (id.clone(), command.clone());
                self.background.push(BackgroundSnapshot { id, command, since: at });
            }
            Event::BackgroundEnded { id, .. } => self.background.retain(|running| running.id != *id),
            Event::ChildStarted { child, call, agent, title } => self.children.push(ChildSnapshot {
                child: child.clone(),
                call: call.clone(),
                agent: agent.clone(),
                title: title.clone(),
                since: at,
            }),
            Event::ChildEnded { child, .. } => self.children.retain(|running| running.child != *child),
            Event::AskOpened { ask } => self.asks.push(ask.clone()),
            Event::AskClosed { ask, .. } => self.asks.retain(|open| open.id != *ask),
            Event::PermissionsChanged { mode } => self.permissions.clone_from(mode),
            Event::QueueChanged { steering, follow_up } => {
                self.steering.clone_from(steering);
                self.follow_up.clone_from(follow_up);
            }
            Event::Appended { node } => self.head = Some(*node),
            Event::HeadMoved { to, .. } => self.head = Some(*to),
            Event::CompactionStarted { reason } => self.compaction = Some(*reason),
            Event::CompactionEnded { result, .. } => {
                self.compaction = None;
                if let CompactionResult::Done { node, compaction, tokens_after } = &**result {
                    self.head = Some(*node);
                    self.context = Some(*tokens_after);
                    if let Some(usage) = &compaction.usage {
                        self.usage.cost.total += usage.cost.total;
                    }
                }
            }
            Event::JumpStarted { to } => self.jump = Some(*to),
            Event::JumpEnded { result } => {
                self.jump = None;
                if let JumpResult::Done(jumped) = &**result {
                    self.head = Some(jumped.head);
                    if let Some(usage) = &jumped.usage {
                        self.usage.cost.total += usage.cost.total;
                    }
                }
            }
            Event::ContextPruned { node, tokens_after, .. } => {
                self.head = Some(*node);
                self.context = Some(*tokens_after);
            }
            Event::EpochChanged { node, model, thinking } => {
                self.head = node.or(self.head);
                self.model = model.clone();
                self.thinking = *thinking;
            }
            Event::RetryScheduled { attempt, delay, error } => {
                let delay = i64::try_from(delay.as_millis()).unwrap_or(i64::MAX);
                let (attempt, error) = (*attempt, error.clone());
                self.retry = Some(RetrySnapshot { attempt, at: at.saturating_add(delay), error });
            }
            Event::RetryEnded { .. } => self.retry = None,
            Event::Renamed { name } => self.name.clone_from(name),
            Event::Ui { ui } => self.show(ui),
            Event::Lagged { snapshot, .. } => *self = Self::clone(snapshot),
        }
        self.seq = envelope.seq;
        if self.session != envelope.session {
            self.session = envelope.session.clone();
        }
    }

    /// Nothing of a run is under way.
    fn at_rest(&mut self) {
        self.run = None;
        self.message = None;
        self.retry = None;
        self.tools.clear();
    }

    fn tool(&mut self, call: &CallId) -> Option<&mut ToolSnapshot> {
        self.tools.iter_mut().find(|tool| tool.call == *call && tool.result.is_none())
    }

    fn show(&mut self, ui: &Ui) {
        match ui {
            Ui::Notice { notice: Notice::Branched { session } } => self.session.clone_from(session),
            Ui::Notice { .. } => {}
            Ui::Status { key, text: Some(text) } => drop(self.status.insert(key.clone(), text.clone())),
            Ui::Status { key, text: None } => drop(self.status.remove(key)),
            Ui::Widget { key, lines } if lines.is_empty() => drop(self.widgets.remove(key)),
            Ui::Widget { key, lines } => drop(self.widgets.insert(key.clone(), lines.clone())),
        }
    }

    fn count(&mut self, answer: &AssistantMessage) {
        let (all, usage) = (&mut self.usage, &answer.usage);
        all.input = all.input.saturating_add(usage.input);
        all.output = all.output.saturating_add(usage.output);
        all.cache_read = all.cache_read.saturating_add(usage.cache_read);
        all.cache_write = all.cache_write.saturating_add(usage.cache_write);
        all.total_tokens = all.total_tokens.saturating_add(usage.total_tokens);
        all.cost.input += usage.cost.input;
        all.cost.output += usage.cost.output;
        all.cost.cache_read += usage.cost.cache_read;
        all.cost.cache_write += usage.cost.cache_write;
        all.cost.total += usage.cost.total;
        if usage.total_tokens > 0 {
            self.context = Some(usage.total_tokens);
        }
    }
}

impl PartialMessage {
    /// Applies one piece.
    pub fn fold(&mut self, delta: &Delta) {
        match delta {
            Delta::TextStarted { index } => {
                self.blocks.insert(*index, PartialBlock::Text { text: String::new(), done: false });
            }
            Delta::ThinkingStarted { index } => {
                self.blocks.insert(*index, PartialBlock::Thinking { text: String::new(), done: false });
            }
            Delta::ToolCallStarted { index, id, name } => {
                let (id, name) = (id.clone(), name.clone());
                let block = PartialBlock::ToolCall { id, name, json: String::new(), done: false };
                self.blocks.insert(*index, block);
            }
            Delta::Text { index, text: piece } => {
                if let Some(PartialBlock::Text { text, .. }) = self.blocks.get_mut(index) {
                    text.push_str(piece);
                }
            }
            Delta::Thinking { index, text: piece } => {
                if let Some(PartialBlock::Thinking { text, .. }) = self.blocks.get_mut(index) {
                    text.push_str(piece);
                }
            }
            Delta::ToolCallArguments { index, json: piece } => {
                if let Some(PartialBlock::ToolCall { json, .. }) = self.blocks.get_mut(index) {
                    json.push_str(piece);
                }
            }
            Delta::TextEnded { index } | Delta::ThinkingEnded { index } | Delta::ToolCallEnded { index } => {
                match self.blocks.get_mut(index) {
                    Some(
                        PartialBlock::Text { done, .. }
                        | PartialBlock::Thinking { done, .. }
                        | PartialBlock::ToolCall { done, .. },
                    ) => *done = true,
                    Some(PartialBlock::ServerTool { .. }) | None => {}
                }
            }
            Delta::ServerTool { index, summary } => {
                self.blocks.insert(*index, PartialBlock::ServerTool { summary: summary.clone() });
            }
        }
    }
}
