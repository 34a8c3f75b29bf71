//! A lineage to the conversation that a model is shown.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use quipu_protocol::{
    AssistantMessage, Body, BranchSummaryMessage, CallId, Compaction, CompactionSummaryMessage, Content,
    CustomMessage, Entry, Json, Message, NodeId, SessionProfile, StopReason, ToolResultMessage, UnixMs,
    UserMessage,
};
use serde::Deserialize;

use crate::blocks::{is_input, member, says_something};
use crate::{shell_profile, words};

/// Version of this projection; recorded with each model call. Raise it when the same entries give other
/// messages.
pub const PROJECTION: u32 = 1;

/// The valid conversation that `entries` (root first) give: settled assistant turns only, each tool call
/// answered exactly once right after its assistant message and in call order, no result without its call,
/// roles limited to user, assistant and tool result. [`check_conversation`](crate::check_conversation) is the
/// law that it keeps.
///
/// A result counts for a call when it comes before the next assistant message that is kept; later ones find
/// their call answered already, by a note that it was interrupted.
///
/// A pure function, and stable under appending: while the last turn is complete, projecting a longer lineage
/// gives the old messages first, unchanged.
pub fn project<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Vec<Arc<Message>> {
    project_messages(
        entries
            .into_iter()
            .filter_map(|entry| message_of(entry).map(|message| Arc::new(message.into_owned()))),
    )
}

/// As [`project`], of the messages alone: those that need no change are shared, not copied.
pub fn project_messages(messages: impl IntoIterator<Item = Arc<Message>>) -> Vec<Arc<Message>> {
    project_messages_as(None, messages)
}

/// As [`project_messages`], as requests of a session with this profile have them: with [`SessionProfile::Shell`] without
/// calls, and with results as messages of the user.
pub fn project_messages_as(
    profile: Option<SessionProfile>,
    messages: impl IntoIterator<Item = Arc<Message>>,
) -> Vec<Arc<Message>> {
    let mut projection = Projection { profile, ..Projection::default() };
    for message in messages {
        projection.add(message);
    }
    let end = projection.end();
    projection.out.extend(end);
    projection.out
}

/// Projects a conversation again and again while it grows, each time at the cost of what is new.
#[derive(Default)]
pub struct Projector {
    /// What was projected.
    source: Vec<Arc<Message>>,
    projection: Projection,
    /// What was shown last: what is settled, then the end as it was.
    shown: Arc<Vec<Arc<Message>>>,
    /// How much of it is settled.
    settled: usize,
}

impl Projector {
    /// One for the requests of a session with this profile.
    pub fn of(profile: Option<SessionProfile>) -> Self {
        Self { projection: Projection { profile, ..Projection::default() }, ..Self::default() }
    }

    /// What [`project_messages_as`] gives of `messages`. Nothing is copied when these go on from the ones before (the
    /// very same, and more behind them) and what was given then is not held any more.
    pub fn project<'a>(
        &mut self,
        messages: impl Iterator<Item = &'a Arc<Message>> + Clone,
    ) -> Arc<Vec<Arc<Message>>> {
        let mut known = messages.clone();
        if !self.source.iter().all(|old| known.next().is_some_and(|new| Arc::ptr_eq(old, new))) {
            *self = Self::of(self.projection.profile);
        }
        let shown = Arc::make_mut(&mut self.shown);
        shown.truncate(self.settled);
        for message in messages.skip(self.source.len()) {
            self.source.push(message.clone());
            self.projection.add(message.clone());
        }
        shown.append(&mut self.projection.out);
        self.settled = shown.len();
        shown.extend(self.projection.end());
        Arc::clone(&self.shown)
    }
}

/// The message that an entry stands for in a conversation, if it does. Entries that other programs keep beside
/// the messages, but show to the model, are messages here.
pub fn message_of(entry: &Entry) -> Option<Cow<'_, Message>> {
    match entry {
        Entry::Message(message) => Some(Cow::Borrowed(message)),
        Entry::Session(_) | Entry::Epoch(_) => None,
        Entry::Compaction(compaction) => Some(Cow::Owned(summary_message(compaction))),
        Entry::Meta(json) => message_of_meta(json).map(Cow::Owned),
    }
}

/// The places in a lineage (root first) that the model is shown: all of them, or those that its last compaction
/// leaves. That compaction comes first, then what it kept, then what came after it; older compactions say nothing
/// any more. When what it kept begins outside the lineage, everything before it counts as kept: too much is shown
/// rather than too little.
pub fn context(lineage: &[(NodeId, Entry)]) -> Vec<usize> {
    let is_compaction = |at: &usize| matches!(lineage[*at].1, Entry::Compaction(_));
    let Some(last) = (0..lineage.len()).rev().find(is_compaction) else {
        return (0..lineage.len()).collect();
    };
    let Entry::Compaction(compaction) = &lineage[last].1 else { return Vec::new() };
    let kept = match &compaction.first_kept {
        None => last,
        // It holds what it kept.
        Some(_) if compaction.retained_tail.is_some() => last,
        Some(first) => lineage[..last].iter().position(|(id, _)| id == first).unwrap_or(0),
    };
    let shown = std::iter::once(last).chain(kept..last).chain(last + 1..lineage.len());
    shown.filter(|at| *at == last || !is_compaction(at)).collect()
}

/// The messages that a compaction holds itself, to stand behind its summary.
pub fn retained_messages(compaction: &Compaction) -> Vec<Message> {
    let tail = compaction.retained_tail.as_ref();
    tail.and_then(|tail| tail.read().ok()).unwrap_or_default()
}

/// What a compaction says to the model.
pub(crate) fn summary_message(compaction: &Compaction) -> Message {
    let Compaction { summary, tokens_before, timestamp, .. } = compaction;
    Message::CompactionSummary(CompactionSummaryMessage {
        summary: summary.clone(),
        tokens_before: *tokens_before,
        timestamp: *timestamp,
    })
}

fn message_of_meta(json: &Json) -> Option<Message> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Fields {
        #[serde(default)]
        custom_type: String,
        #[serde(default)]
        content: Body,
        #[serde(default)]
        summary: String,
        #[serde(default)]
        from_id: Option<String>,
        #[serde(default)]
        details: Option<Json>,
    }
    // Most entries are labels and the like: told apart without reading them.
    if !json.get().contains("custom_message") && !json.get().contains("branch_summary") {
        return None;
    }
    let kind = member(json, "type")?;
    let Fields { custom_type, content, summary, from_id, details } = json.read().ok()?;
    match kind.as_str() {
        "custom_message" => Some(Message::Custom(CustomMessage {
            custom_type,
            content,
            display: true,
            details: None,
            timestamp: 0,
        })),
        "branch_summary" => {
            Some(Message::BranchSummary(BranchSummaryMessage { summary, from_id, details, timestamp: 0 }))
        }
        _ => None,
    }
}

#[derive(Default)]
struct Projection {
    profile: Option<SessionProfile>,
    out: Vec<Arc<Message>>,
    /// Whether there was an assistant message.
    begun: bool,
    /// The calls of the last assistant message, whose results are still coming.
    calls: Vec<Call>,
    /// Which of them wait for a result, by the id that it will name.
    waiting: HashMap<CallId, VecDeque<usize>>,
    stop_reason: StopReason,
    asked_at: UnixMs,
    /// What the user said since that message.
    meanwhile: Vec<Arc<Message>>,
    /// Every id shown so far, since some wires want them to differ throughout; with the number to try next
    /// where one comes again.
    ids: HashMap<CallId, u64>,
}

struct Call {
    shown: CallId,
    name: String,
    result: Option<Arc<Message>>,
}

impl Projection {
    fn add(&mut self, message: Arc<Message>) {
        match &*message {
            Message::User(user) => match &user.content {
                Body::Blocks(blocks) if !blocks.iter().all(is_input) => {
                    self.say(Body::Blocks(inputs(blocks)), user.timestamp);
                }
                content if is_empty(content) => {}
                _ => self.meanwhile.push(message),
            },
            Message::Custom(custom) => {
                let content = match &custom.content {
                    Body::Text(text) => Body::Text(text.clone()),
                    Body::Blocks(blocks) => Body::Blocks(inputs(blocks)),
                };
                self.say(content, custom.timestamp);
            }
            Message::BashExecution(bash) => {
                if bash.exclude_from_context != Some(true) {
                    self.say(text(words::bash_execution(bash)), bash.timestamp);
                }
            }
            Message::BranchSummary(branch) => {
                if !branch.summary.trim().is_empty() {
                    self.say(text(words::branch_summary(&branch.summary)), branch.timestamp);
                }
            }
            Message::CompactionSummary(compaction) => {
                if !compaction.summary.trim().is_empty() {
                    self.say(text(words::compaction_summary(&compaction.summary)), compaction.timestamp);
                }
            }
            Message::Assistant(assistant) => {
                if counts(assistant) {
                    self.answer(&message, assistant);
                }
            }
            Message::ToolResult(result) => self.result(&message, result),
            Message::Other(_) => {}
        }
    }

    fn say(&mut self, content: Body, timestamp: UnixMs) {
        if !is_empty(&content) {
            self.meanwhile.push(Arc::new(Message::User(UserMessage { content, timestamp })));
        }
    }

    fn answer(&mut self, message: &Arc<Message>, assistant: &AssistantMessage) {
        self.close();
        if !std::mem::replace(&mut self.begun, true) && self.out.is_empty() {
            self.out.push(Arc::new(Message::user(words::LOST_BEGINNING, assistant.timestamp)));
        }
        self.stop_reason = assistant.stop_reason;
        self.asked_at = assistant.timestamp;
        let mut as_received = true;
        for call in assistant.tool_calls() {
            let shown = self.unused_id(&call.id);
            as_received &= shown == call.id;
            self.waiting.entry(call.id.clone()).or_default().push_back(self.calls.len());
            self.calls.push(Call { shown, name: call.name.clone(), result: None });
        }
        match self.profile {
            None => {}
            Some(SessionProfile::Shell) => {
                self.out.extend(shell_profile::said(message, assistant));
                return;
            }
        }
        if as_received {
            self.out.push(Arc::clone(message));
            return;
        }
        let mut renamed = assistant.clone();
        let mut calls = self.calls.iter();
        for block in &mut renamed.content {
            if let Content::ToolCall(block) = block
                && let Some(call) = calls.next()
            {
                block.id = call.shown.clone();
            }
        }
        self.out.push(Arc::new(Message::Assistant(renamed)));
    }

    fn result(&mut self, message: &Arc<Message>, result: &ToolResultMessage) {
        let Some(waiting) = self.waiting.get_mut(&result.tool_call_id) else { return };
        let Some(call) = waiting.pop_front().and_then(|index| self.calls.get_mut(index)) else { return };
        let as_received = call.shown == result.tool_call_id && result.content.iter().all(is_input);
        call.result = Some(if as_received {
            Arc::clone(message)
        } else {
            let content = inputs(&result.content);
            let tool_call_id = call.shown.clone();
            Arc::new(Message::ToolResult(ToolResultMessage { tool_call_id, content, ..result.clone() }))
        });
    }

    /// The end of the turn as it is so far: results in call order, then what the user said meanwhile.
    fn end(&self) -> Vec<Arc<Message>> {
        let results = self.calls.iter().map(|call| {
            call.result.clone().unwrap_or_else(|| {
                Arc::new(Message::ToolResult(ToolResultMessage {
                    tool_call_id: call.shown.clone(),
                    tool_name: call.name.clone(),
                    content: vec![Content::text(words::no_result(self.stop_reason))],
                    details: None,
                    usage: None,
                    is_error: true,
                    timestamp: self.asked_at,
                }))
            })
        });
        let results = results.map(|result| match (self.profile, &*result) {
            (Some(SessionProfile::Shell), Message::ToolResult(told)) => Arc::new(shell_profile::told(told)),
            _ => result,
        });
        results.chain(self.meanwhile.iter().cloned()).collect()
    }

    /// Ends the turn.
    fn close(&mut self) {
        let end = self.end();
        self.out.extend(end);
        self.calls.clear();
        self.waiting.clear();
        self.meanwhile.clear();
    }

    /// The id itself, or with a number when it is empty or taken.
    fn unused_id(&mut self, id: &CallId) -> CallId {
        let mut shown = id.clone();
        if id.as_str().is_empty() || self.ids.contains_key(id) {
            let base = if id.as_str().is_empty() { "call" } else { id.as_str() };
            let mut number = self.ids.get(id).copied().unwrap_or(2);
            loop {
                shown = CallId::from(format!("{base}_{number}"));
                number += 1;
                if !self.ids.contains_key(&shown) {
                    break;
                }
            }
            self.ids.insert(id.clone(), number);
        }
        self.ids.insert(shown.clone(), 2);
        shown
    }
}

fn text(text: String) -> Body {
    Body::Blocks(vec![Content::text(text)])
}

/// Whether a conversation shows this answer: it ended in a way that can be answered, and says something.
pub fn counts(answer: &AssistantMessage) -> bool {
    is_settled(answer.stop_reason) && answer.content.iter().any(says_something)
}

/// Whether a turn ended in a way that can be answered: not failed, aborted, put off or still streaming.
#[must_use]
pub fn is_settled(stop_reason: StopReason) -> bool {
    match stop_reason {
        StopReason::Stop | StopReason::Length | StopReason::ToolUse => true,
        StopReason::Error | StopReason::Aborted | StopReason::Deferred | StopReason::Pending => false,
    }
}

/// Whether there is nothing in a message of the user's side.
pub(crate) fn is_empty(body: &Body) -> bool {
    match body {
        Body::Text(text) => text.trim().is_empty(),
        Body::Blocks(blocks) => !blocks.iter().any(says_something),
    }
}

fn inputs(blocks: &[Content]) -> Vec<Content> {
    blocks.iter().filter(|block| is_input(block)).cloned().collect()
}
