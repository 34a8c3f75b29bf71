//! The lines as they are written. The order of fields is the order on the wire.

use std::sync::Arc;

use quipu_protocol::{
    AskKind, BackgroundEnd, CallId, Compaction, CompactionReason, Content, Json, JumpReport, Message,
    ModelError, NodeId, SessionId, Thinking, ToolResultMessage, Ui, Usage, UserInput,
};
use serde::Serialize;
use serde::ser::SerializeMap as _;

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub(crate) enum Line<'a> {
    Session {
        version: u32,
        id: &'a SessionId,
        timestamp: &'a str,
        cwd: &'a str,
    },
    AgentStart,
    AgentEnd {
        messages: &'a [Arc<Message>],
        will_retry: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        outcome: Option<OutcomeLine<'a>>,
    },
    AgentSettled,
    TurnStart,
    TurnEnd {
        message: Option<&'a Message>,
        tool_results: &'a [Arc<Message>],
    },
    MessageStart {
        message: &'a Message,
        #[serde(skip_serializing_if = "Option::is_none")]
        attempt: Option<u32>,
    },
    MessageUpdate {
        usage: &'a Usage,
        assistant_message_event: Update<'a>,
    },
    MessageEnd {
        message: &'a Message,
        #[serde(skip_serializing_if = "Option::is_none")]
        node: Option<NodeId>,
        #[serde(skip_serializing_if = "Option::is_none")]
        dropped: Option<ErrorLine<'a>>,
    },
    ToolExecutionStart {
        tool_call_id: &'a CallId,
        tool_name: &'a str,
        args: &'a Json,
    },
    ToolExecutionUpdate {
        tool_call_id: &'a CallId,
        tool_name: &'a str,
        args: &'a Json,
        partial_result: ToolResult<'a>,
    },
    ToolExecutionEnd {
        tool_call_id: &'a CallId,
        tool_name: &'a str,
        result: ToolResult<'a>,
        is_error: bool,
    },
    QueueUpdate {
        steering: Vec<&'a str>,
        follow_up: Vec<&'a str>,
    },
    AutoRetryStart {
        attempt: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        max_attempts: Option<u32>,
        delay_ms: u64,
        error_message: &'a str,
    },
    AutoRetryEnd {
        success: bool,
        attempt: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        final_error: Option<&'a str>,
    },
    CompactionStart {
        reason: CompactionReason,
    },
    CompactionEnd {
        reason: CompactionReason,
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<CompactionLine<'a>>,
        aborted: bool,
        will_retry: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        error_message: Option<&'a str>,
    },
    QuipuAsked {
        id: &'a str,
        tool_call_id: &'a CallId,
        tool_name: &'a str,
        question: &'a str,
        subject: &'a str,
    },
    #[serde(rename = "quipu_asked")]
    QuipuAskedOther {
        id: &'a str,
        ask: &'a AskKind,
    },
    QuipuUi {
        ui: &'a Ui,
    },
    SessionInfoChanged {
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<&'a str>,
    },
    ThinkingLevelChanged {
        level: Thinking,
    },
    QuipuAskClosed {
        id: &'a str,
        answer: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<&'a str>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        by_policy: bool,
    },
    QuipuPermissions {
        mode: &'a str,
    },
    QuipuBackgroundStart {
        id: &'a str,
        command: &'a str,
    },
    QuipuBackgroundEnd {
        id: &'a str,
        command: &'a str,
        end: &'a BackgroundEnd,
    },
    QuipuChildStart {
        child: &'a str,
        tool_call_id: &'a str,
        agent: &'a str,
        title: &'a str,
    },
    QuipuChildEnd {
        child: &'a str,
        tool_call_id: &'a str,
        outcome: &'a str,
        turns: u32,
        calls: u32,
        cost: f64,
    },
    QuipuHeadMoved {
        from: Option<NodeId>,
        to: NodeId,
    },
    QuipuJumpStart {
        to: NodeId,
    },
    QuipuJumpEnd {
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<JumpLine<'a>>,
        aborted: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        error_message: Option<&'a str>,
    },
    QuipuContextPruned {
        node: NodeId,
        results: u64,
        tokens_before: u64,
        estimated_tokens_after: u64,
    },
    QuipuChanged {
        provider: &'a str,
        model_id: &'a str,
        thinking_level: Thinking,
        #[serde(skip_serializing_if = "Option::is_none")]
        node: Option<NodeId>,
    },
    QuipuTrouble(TroubleLine<'a>),
    QuipuLagged {
        missed: u64,
    },
}

/// One piece of an answer.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub(crate) enum Update<'a> {
    TextStart {
        content_index: usize,
    },
    TextDelta {
        content_index: usize,
        delta: &'a str,
    },
    TextEnd {
        content_index: usize,
        content: &'a str,
    },
    ThinkingStart {
        content_index: usize,
    },
    ThinkingDelta {
        content_index: usize,
        delta: &'a str,
    },
    ThinkingEnd {
        content_index: usize,
        content: &'a str,
    },
    #[serde(rename = "toolcall_start")]
    ToolCallStart {
        content_index: usize,
        id: &'a CallId,
        tool_name: &'a str,
    },
    #[serde(rename = "toolcall_delta")]
    ToolCallDelta {
        content_index: usize,
        delta: &'a str,
    },
    #[serde(rename = "toolcall_end")]
    ToolCallEnd {
        content_index: usize,
        tool_call: Content,
    },
}

/// What a tool returned, or its output so far.
#[derive(Serialize)]
pub(crate) struct ToolResult<'a> {
    pub(crate) content: &'a [Content],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) details: Option<Json>,
}

impl<'a> From<&'a ToolResultMessage> for ToolResult<'a> {
    fn from(result: &'a ToolResultMessage) -> Self {
        Self { content: &result.content, details: result.details.clone() }
    }
}

/// How a run ended, when it was not simply done.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub(crate) enum OutcomeLine<'a> {
    Aborted,
    Failed { error: ErrorLine<'a> },
    TurnLimit { turns: u32 },
    CostLimit { dollars: f64 },
    DailyBudget { spent: f64, budget: f64 },
    AccountBudget(&'a quipu_protocol::AccountLimit),
    StoreFailed { message: &'a str },
}

/// An error of a model call.
#[derive(Serialize)]
pub(crate) struct ErrorLine<'a> {
    kind: quipu_protocol::ModelErrorKind,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
}

impl<'a> From<&'a ModelError> for ErrorLine<'a> {
    fn from(error: &'a ModelError) -> Self {
        Self { kind: error.kind, message: &error.message, status: error.status }
    }
}

/// Something that the user should know.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(crate) enum TroubleLine<'a> {
    Branched { session: &'a SessionId },
    Interrupted { calls: Vec<InterruptedCall<'a>>, model_call: bool },
    Note { message: &'a str },
}

/// What became of a line that came in.
#[derive(Serialize)]
pub(crate) struct Response<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) id: Option<&'a str>,
    #[serde(rename = "type")]
    pub(crate) kind: &'a str,
    pub(crate) command: &'a str,
    pub(crate) success: bool,
    pub(crate) error: &'a str,
}

/// A tool call that was under way.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InterruptedCall<'a> {
    pub(crate) tool_call_id: &'a CallId,
    pub(crate) tool_name: &'a str,
}

/// A question as a dialog.
#[derive(Default)]
pub(crate) struct Dialog<'a> {
    pub(crate) id: &'a str,
    pub(crate) method: &'a str,
    pub(crate) title: &'a str,
    pub(crate) message: Option<&'a str>,
    pub(crate) options: Option<Vec<&'a str>>,
    pub(crate) placeholder: Option<&'a str>,
    pub(crate) prefill: Option<&'a str>,
    pub(crate) timeout: Option<u64>,
}

impl Serialize for Dialog<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", "extension_ui_request")?;
        for (name, value) in [("id", self.id), ("method", self.method), ("title", self.title)] {
            map.serialize_entry(name, value)?;
        }
        let texts = [("message", self.message), ("placeholder", self.placeholder), ("prefill", self.prefill)];
        for (name, value) in texts {
            if let Some(value) = value {
                map.serialize_entry(name, value)?;
            }
        }
        if let Some(options) = &self.options {
            map.serialize_entry("options", options)?;
        }
        if let Some(timeout) = self.timeout {
            map.serialize_entry("timeout", &timeout)?;
        }
        map.end()
    }
}

impl Dialog<'_> {
    pub(crate) fn write(&self) -> String {
        write(self)
    }
}

impl Line<'_> {
    pub(crate) fn write(&self) -> String {
        write(self)
    }
}

impl Response<'_> {
    pub(crate) fn write(&self) -> String {
        write(self)
    }
}

/// A text as a JSON string.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// JSON text in one line.
pub(crate) fn one_line(line: String) -> String {
    // Arguments are kept as the model wrote them, and it may have broken them into lines; within a JSON
    // text such a break can only be white space.
    if line.contains(['\n', '\r']) { line.replace(['\n', '\r'], " ") } else { line }
}

/// The JSON text, without a newline at its end or inside.
pub(crate) fn write(line: &impl Serialize) -> String {
    match serde_json::to_string(line) {
        Ok(line) => one_line(line),
        // No value of ours lacks a JSON form; were there one, the reader must learn that a line is missing.
        Err(error) => {
            let message = format!("an event could not be written as JSON: {error}");
            format!(
                r#"{{"type":"quipu_trouble","kind":"note","message":{}}}"#,
                serde_json::Value::from(message)
            )
        }
    }
}

/// Where a jump led.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct JumpLine<'a> {
    from: NodeId,
    at: NodeId,
    head: NodeId,
    #[serde(skip_serializing_if = "Option::is_none")]
    said: Option<&'a UserInput>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<NodeId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
}

impl<'a> From<&'a JumpReport> for JumpLine<'a> {
    fn from(jumped: &'a JumpReport) -> Self {
        let JumpReport { session: _, from, at, head, prompt, summary, usage } = jumped;
        Self { from: *from, at: *at, head: *head, said: prompt.as_ref(), summary: *summary, usage: *usage }
    }
}

/// What a compaction made.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CompactionLine<'a> {
    pub(crate) summary: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) first_kept_entry_id: Option<String>,
    pub(crate) tokens_before: u64,
    pub(crate) estimated_tokens_after: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) details: Option<&'a Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) usage: Option<Usage>,
    pub(crate) quipu_node: NodeId,
}

impl<'a> CompactionLine<'a> {
    pub(crate) fn of(
        node: NodeId,
        compaction: &'a Compaction,
        first_kept: Option<String>,
        tokens_after: u64,
    ) -> Self {
        Self {
            summary: &compaction.summary,
            first_kept_entry_id: first_kept,
            tokens_before: compaction.tokens_before,
            estimated_tokens_after: tokens_after,
            details: compaction.details.as_ref(),
            usage: compaction.usage,
            quipu_node: node,
        }
    }
}
