//! The fold from events to lines.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use quipu_protocol::{
    Answer, AskKind, CallId, CompactionReason, CompactionResult, Content, Delta, Ending, Envelope, Event,
    Json, JumpResult, Limit, Message, MessageId, NodeId, Notice, Outcome, SessionId, Thinking, ToolCall, Ui,
    Usage,
};

use crate::line::{
    CompactionLine, InterruptedCall, JumpLine, Line, OutcomeLine, ToolResult, TroubleLine, Update,
};

/// What the first line says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionHeader {
    /// The session.
    pub id: SessionId,
    /// When it was created, as ISO 8601 in UTC with milliseconds, such as `2026-11-20T08:59:27.127Z`.
    pub timestamp: String,
    /// The directory that it works in.
    pub cwd: String,
}

/// Turns the events of one session into the lines of the JSON mode.
///
/// Feed it every event in order, from a subscription that loses none. It keeps what Pi's lines repeat: the text
/// of blocks that stream, the messages of the turn and of the run.
///
/// ```
/// use quipu_protocol::{Envelope, Event};
/// use quipu_rpc::{JsonEvents, SessionHeader};
///
/// let header =
///     SessionHeader { id: "s1".into(), timestamp: "2026-01-01T00:00:00.000Z".into(), cwd: "/srv/project".into() };
/// let mut events = JsonEvents::new(header);
/// assert!(events.header_line().starts_with(r#"{"type":"session","version":3,"id":"s1","#));
/// let started = Envelope { seq: 1, session: "s1".into(), run: None, at: 0, event: Event::RunStarted };
/// assert_eq!(events.fold(&started), [r#"{"type":"agent_start"}"#]);
/// ```
#[derive(Debug)]
pub struct JsonEvents {
    header: SessionHeader,
    streaming: HashMap<MessageId, Streaming>,
    /// Name and arguments of the tool calls that run.
    running: HashMap<CallId, (String, Json)>,
    turn_message: Option<Arc<Message>>,
    turn_results: Vec<Arc<Message>>,
    run_messages: Vec<Arc<Message>>,
    /// The last answer, when it was dropped.
    dropped: Option<Arc<Message>>,
    /// Attempt and error of the last retry.
    retry: Option<(u32, String)>,
    /// Retries of one request at most, where that is known.
    max_retries: Option<u32>,
    /// The level of thinking, as far as it is known.
    thinking: Option<Thinking>,
    /// A run began since the session was last said to be idle.
    is_unsettled: bool,
    /// What the entries of nodes are called.
    names: HashMap<NodeId, String>,
}

/// A message whose deltas come in.
#[derive(Debug, Default)]
struct Streaming {
    usage: Usage,
    blocks: BTreeMap<usize, Block>,
}

/// What is known of a block so far.
#[derive(Debug, Default)]
struct Block {
    /// Text, thinking, or the JSON text of arguments.
    text: String,
    /// Of a tool call.
    call: Option<(CallId, String)>,
}

impl JsonEvents {
    /// A fold at the beginning of a session's stream.
    pub fn new(header: SessionHeader) -> Self {
        Self {
            header,
            streaming: HashMap::new(),
            running: HashMap::new(),
            turn_message: None,
            turn_results: Vec::new(),
            run_messages: Vec::new(),
            dropped: None,
            retry: None,
            max_retries: None,
            thinking: None,
            is_unsettled: false,
            names: HashMap::new(),
        }
    }

    /// Says how often a request is sent again at most.
    #[must_use]
    pub fn with_max_retries(self, retries: u32) -> Self {
        Self { max_retries: Some(retries), ..self }
    }

    /// Says which level of thinking the session begins with, so that a change of it is seen.
    #[must_use]
    pub fn with_thinking(self, level: Thinking) -> Self {
        Self { thinking: Some(level), ..self }
    }

    /// Says what the entry of a node is called, for the next event that names it; without that it is the node.
    pub fn name_entry(&mut self, node: NodeId, entry: String) {
        self.names.insert(node, entry);
    }

    /// The first line of the stream, without a newline.
    pub fn header_line(&self) -> String {
        let SessionHeader { id, timestamp, cwd } = &self.header;
        Line::Session { version: 3, id, timestamp, cwd }.write()
    }

    /// The lines of one event, in order, each without a newline at its end or inside.
    pub fn fold(&mut self, envelope: &Envelope) -> Vec<String> {
        let line = match &envelope.event {
            Event::RunStarted => {
                self.run_messages.clear();
                self.dropped = None;
                self.is_unsettled = true;
                Line::AgentStart.write()
            }
            Event::TurnStarted { .. } => {
                self.turn_message = None;
                self.turn_results.clear();
                Line::TurnStart.write()
            }
            Event::TurnEnded { .. } => {
                Line::TurnEnd { message: self.turn_message.as_deref(), tool_results: &self.turn_results }
                    .write()
            }
            Event::RunEnded { outcome } => self.run_ended(outcome),
            // Also after what is no run, of which Pi says nothing.
            Event::Settled if !std::mem::take(&mut self.is_unsettled) => return Vec::new(),
            Event::Settled => Line::AgentSettled.write(),
            // A person's line in the shell, which Pi tells of in other ways.
            Event::MessageStarted { message, .. } | Event::MessageEnded { message, .. }
                if matches!(**message, Message::BashExecution(_)) =>
            {
                return Vec::new();
            }
            Event::MessageStarted { id, message, attempt } => {
                if let Message::Assistant(answer) = &**message {
                    let streaming = Streaming { usage: answer.usage, blocks: BTreeMap::new() };
                    self.streaming.insert(id.clone(), streaming);
                }
                Line::MessageStart { message, attempt: (*attempt > 1).then_some(*attempt) }.write()
            }
            Event::MessageDelta { id, delta } => {
                let Some(line) = self.streaming.entry(id.clone()).or_default().update(delta) else {
                    return Vec::new();
                };
                line
            }
            Event::MessageEnded { id, message, ending } => {
                self.streaming.remove(id);
                self.message_ended(message, ending)
            }
            Event::ToolStarted { call, name, args } => {
                self.running.insert(call.clone(), (name.clone(), args.clone()));
                Line::ToolExecutionStart { tool_call_id: call, tool_name: name, args }.write()
            }
            Event::ToolOutput { call, tail } => self.tool_output(call, tail),
            Event::ToolEnded { call, result } => {
                self.running.remove(call);
                Line::ToolExecutionEnd {
                    tool_call_id: call,
                    tool_name: &result.tool_name,
                    result: ToolResult::from(&**result),
                    is_error: result.is_error,
                }
                .write()
            }
            Event::AskOpened { ask } => match &ask.kind {
                AskKind::Permission(asked) => Line::QuipuAsked {
                    id: ask.id.as_str(),
                    tool_call_id: &asked.call,
                    tool_name: &asked.tool,
                    question: &asked.question,
                    subject: &asked.subject,
                },
                kind => Line::QuipuAskedOther { id: ask.id.as_str(), ask: kind },
            }
            .write(),
            Event::AskClosed { ask, answer: by, by_policy } => {
                let (answer, reason) = match by {
                    None => (None, None),
                    Some(Answer::Allow { .. }) => (Some("allow"), None),
                    Some(Answer::Deny { reason }) => (Some("deny"), reason.as_deref()),
                    Some(Answer::Cancel) => (Some("cancel"), None),
                    // Of other questions; whoever asked has the answer.
                    Some(_) => (Some("given"), None),
                };
                Line::QuipuAskClosed { id: ask.as_str(), answer, reason, by_policy: *by_policy }.write()
            }
            Event::PermissionsChanged { mode } => Line::QuipuPermissions { mode }.write(),
            Event::BackgroundStarted { id, command } => {
                Line::QuipuBackgroundStart { id: id.as_str(), command }.write()
            }
            Event::BackgroundEnded { id, command, end } => {
                Line::QuipuBackgroundEnd { id: id.as_str(), command, end }.write()
            }
            Event::ChildStarted { child, call, agent, title } => {
                Line::QuipuChildStart { child: child.as_str(), tool_call_id: call.as_str(), agent, title }
                    .write()
            }
            Event::ChildEnded { child, call, outcome, turns, calls, cost } => Line::QuipuChildEnd {
                child: child.as_str(),
                tool_call_id: call.as_str(),
                outcome: outcome.word(),
                turns: *turns,
                calls: *calls,
                cost: *cost,
            }
            .write(),
            Event::QueueChanged { steering, follow_up } => Line::QueueUpdate {
                steering: steering.iter().map(|item| item.text.as_str()).collect(),
                follow_up: follow_up.iter().map(|item| item.text.as_str()).collect(),
            }
            .write(),
            // Nobody who reads Pi's stream would know what to do with it.
            Event::Appended { .. }
            | Event::ShellStarted { .. }
            | Event::ShellOutput { .. }
            | Event::ShellEnded { .. } => return Vec::new(),
            Event::HeadMoved { from, to } => Line::QuipuHeadMoved { from: *from, to: *to }.write(),
            Event::CompactionStarted { reason } => Line::CompactionStart { reason: *reason }.write(),
            Event::CompactionEnded { reason, result } => {
                let (done, aborted, error_message) = match &**result {
                    CompactionResult::Done { node, compaction, tokens_after } => {
                        let kept = compaction
                            .first_kept
                            .map(|kept| self.names.remove(&kept).unwrap_or_else(|| kept.to_string()));
                        (Some(CompactionLine::of(*node, compaction, kept, *tokens_after)), false, None)
                    }
                    CompactionResult::Aborted => (None, true, None),
                    CompactionResult::Failed(why) => (None, false, Some(why.as_str())),
                };
                let will_retry = done.is_some() && *reason == CompactionReason::Overflow;
                Line::CompactionEnd { reason: *reason, result: done, aborted, will_retry, error_message }
                    .write()
            }
            Event::JumpStarted { to } => Line::QuipuJumpStart { to: *to }.write(),
            Event::JumpEnded { result } => {
                let (result, aborted, error_message) = match &**result {
                    JumpResult::Done(jumped) => (Some(JumpLine::from(&**jumped)), false, None),
                    JumpResult::Aborted => (None, true, None),
                    JumpResult::Failed(why) => (None, false, Some(why.as_str())),
                };
                Line::QuipuJumpEnd { result, aborted, error_message }.write()
            }
            Event::ContextPruned { node, results, tokens_before, tokens_after } => Line::QuipuContextPruned {
                node: *node,
                results: *results,
                tokens_before: *tokens_before,
                estimated_tokens_after: *tokens_after,
            }
            .write(),
            Event::EpochChanged { node, model, thinking } => {
                let before = self.thinking.replace(*thinking);
                let changed = Line::QuipuChanged {
                    provider: &model.provider,
                    model_id: &model.id,
                    thinking_level: *thinking,
                    node: *node,
                };
                let mut lines = vec![changed.write()];
                if before.is_some_and(|before| before != *thinking) {
                    lines.push(Line::ThinkingLevelChanged { level: *thinking }.write());
                }
                return lines;
            }
            Event::RetryScheduled { attempt, delay, error } => {
                // Pi counts retries, we count attempts.
                let attempt = attempt.saturating_sub(1);
                self.retry = Some((attempt, error.message.clone()));
                let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
                let max_attempts = self.max_retries;
                Line::AutoRetryStart { attempt, max_attempts, delay_ms, error_message: &error.message }
                    .write()
            }
            Event::RetryEnded { ok } => {
                let (attempt, error) = self.retry.take().unwrap_or_default();
                let final_error = (!ok).then_some(error.as_str());
                Line::AutoRetryEnd { success: *ok, attempt, final_error }.write()
            }
            Event::Ui { ui: Ui::Notice { notice } } => Line::QuipuTrouble(match notice {
                Notice::Branched { session } => TroubleLine::Branched { session },
                Notice::Interrupted { calls, model_call } => TroubleLine::Interrupted {
                    calls: calls
                        .iter()
                        .map(|(tool_name, tool_call_id)| InterruptedCall { tool_call_id, tool_name })
                        .collect(),
                    model_call: *model_call,
                },
                Notice::Note { text: message } => TroubleLine::Note { message },
            })
            .write(),
            Event::Ui { ui } => Line::QuipuUi { ui }.write(),
            Event::Renamed { name } => {
                let name = Some(name.as_str()).filter(|name| !name.is_empty());
                Line::SessionInfoChanged { name }.write()
            }
            Event::Lagged { missed, .. } => Line::QuipuLagged { missed: *missed }.write(),
        };
        vec![line]
    }

    fn run_ended(&mut self, outcome: &Outcome) -> String {
        // Whoever looks at the last message to learn what went wrong finds it, though it is not kept.
        self.run_messages.extend(self.dropped.take());
        let outcome = match outcome {
            Outcome::Done => None,
            Outcome::Aborted => Some(OutcomeLine::Aborted),
            Outcome::Failed(error) => Some(OutcomeLine::Failed { error: error.into() }),
            Outcome::Limit(Limit::Turns(turns)) => Some(OutcomeLine::TurnLimit { turns: *turns }),
            Outcome::Limit(Limit::Cost(dollars)) => Some(OutcomeLine::CostLimit { dollars: *dollars }),
            Outcome::Limit(Limit::Daily { spent, budget }) => {
                Some(OutcomeLine::DailyBudget { spent: *spent, budget: *budget })
            }
            Outcome::Limit(Limit::Account(limit)) => Some(OutcomeLine::AccountBudget(limit)),
            Outcome::StoreFailed(message) => Some(OutcomeLine::StoreFailed { message }),
        };
        let line = Line::AgentEnd { messages: &self.run_messages, will_retry: false, outcome }.write();
        self.run_messages.clear();
        self.streaming.clear();
        self.running.clear();
        line
    }

    fn message_ended(&mut self, message: &Arc<Message>, ending: &Ending) -> String {
        let is_answer = matches!(**message, Message::Assistant(_));
        if is_answer {
            self.turn_message = Some(Arc::clone(message));
            self.dropped = None;
        }
        let (node, dropped) = match ending {
            Ending::Committed(node) => {
                self.run_messages.push(Arc::clone(message));
                if matches!(**message, Message::ToolResult(_)) {
                    self.turn_results.push(Arc::clone(message));
                }
                (Some(*node), None)
            }
            Ending::Dropped(error) => {
                if is_answer {
                    self.dropped = Some(Arc::clone(message));
                }
                (None, Some(error.into()))
            }
        };
        Line::MessageEnd { message, node, dropped }.write()
    }

    fn tool_output(&self, call: &CallId, tail: &str) -> String {
        let nothing = (String::new(), Json::object());
        let (tool_name, args) = self.running.get(call).unwrap_or(&nothing);
        let content = if tail.is_empty() { Vec::new() } else { vec![Content::text(tail)] };
        // As Pi: an empty object beside text, nothing before the first byte.
        let details = (!tail.is_empty()).then(Json::object);
        let partial_result = ToolResult { content: &content, details };
        Line::ToolExecutionUpdate { tool_call_id: call, tool_name, args, partial_result }.write()
    }
}

impl Streaming {
    /// The line of a piece; Pi has none for tools of the provider, whose blocks stand in the message.
    fn update(&mut self, delta: &Delta) -> Option<String> {
        let blocks = &mut self.blocks;
        let assistant_message_event = match delta {
            Delta::TextStarted { index } => Update::TextStart { content_index: *index },
            Delta::Text { index, text } => {
                blocks.entry(*index).or_default().text.push_str(text);
                Update::TextDelta { content_index: *index, delta: text }
            }
            Delta::TextEnded { index } => {
                Update::TextEnd { content_index: *index, content: &blocks.entry(*index).or_default().text }
            }
            Delta::ThinkingStarted { index } => Update::ThinkingStart { content_index: *index },
            Delta::Thinking { index, text } => {
                blocks.entry(*index).or_default().text.push_str(text);
                Update::ThinkingDelta { content_index: *index, delta: text }
            }
            Delta::ThinkingEnded { index } => Update::ThinkingEnd {
                content_index: *index,
                content: &blocks.entry(*index).or_default().text,
            },
            Delta::ToolCallStarted { index, id, name } => {
                blocks.entry(*index).or_default().call = Some((id.clone(), name.clone()));
                Update::ToolCallStart { content_index: *index, id, tool_name: name }
            }
            Delta::ToolCallArguments { index, json } => {
                blocks.entry(*index).or_default().text.push_str(json);
                Update::ToolCallDelta { content_index: *index, delta: json }
            }
            Delta::ToolCallEnded { index } => Update::ToolCallEnd {
                content_index: *index,
                tool_call: blocks.entry(*index).or_default().tool_call(),
            },
            Delta::ServerTool { .. } => return None,
        };
        Some(Line::MessageUpdate { usage: &self.usage, assistant_message_event }.write())
    }
}

impl Block {
    fn tool_call(&self) -> Content {
        let (id, name) = self.call.clone().unwrap_or_else(|| ("".into(), String::new()));
        let arguments = match self.text.trim() {
            "" => Json::object(),
            text => Json::parse(text).unwrap_or_else(|_| Json::from(serde_json::Value::from(text))),
        };
        Content::ToolCall(ToolCall { id, name, arguments, thought_signature: None, namespace: None })
    }
}
