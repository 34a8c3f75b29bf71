//! A model that follows a script: for the demo, and for tests that need no wire.

use std::sync::Mutex;

use crate::{Call, CallEnd, CallEvent, Provider};
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use quipu_protocol::{
    AssistantMessage, Attempt, CallId, Content, Delta, Json, Message, ModelError, ModelErrorKind,
    ModelRequest, StopReason, ToolCall, ToolResultMessage, Usage,
};

/// One answer of the script, and what must have happened before it.
#[derive(Debug, Clone, Default)]
pub struct ScriptStep {
    /// What the results of the calls before must say, in order: a piece of each result's text. Empty for the
    /// first answer.
    pub expect: Vec<String>,
    /// The text of the answer.
    pub text: String,
    /// The calls of the answer: tool and arguments.
    pub calls: Vec<(String, Json)>,
}

/// A model that follows a script. When reality departs from it, the call fails with
/// [`ModelErrorKind::ReplayMismatch`] and names the first result that differs.
#[derive(Debug)]
pub struct Script {
    steps: Vec<ScriptStep>,
    at: Mutex<usize>,
}

impl Script {
    /// A model that gives these answers, one a call.
    pub fn new(steps: Vec<ScriptStep>) -> Self {
        Self { steps, at: Mutex::new(0) }
    }

    fn answer(&self, request: &ModelRequest) -> Result<AssistantMessage, ModelError> {
        let departed = |text: String| ModelError::new(ModelErrorKind::ReplayMismatch, text);
        let mut at = self.at.lock().map_err(|_| departed("the script failed".into()))?;
        let Some(step) = self.steps.get(*at) else {
            return Err(departed("the script has no more answers".into()));
        };
        let results = last_results(request);
        for (expect, result) in step.expect.iter().zip(&results) {
            let text: Vec<&str> = result.content.iter().filter_map(Content::as_text).collect();
            let text = text.join("\n");
            if !text.contains(expect.as_str()) {
                return Err(departed(format!(
                    "the result of `{}` (call {}) differs from the script.\nexpected: {}\ngot:      {}",
                    result.tool_name,
                    result.tool_call_id,
                    expect.trim_end().replace('\n', "\n          "),
                    text.trim_end().replace('\n', "\n          "),
                )));
            }
        }
        if results.len() < step.expect.len() {
            return Err(departed(format!("{} results expected, {} came", step.expect.len(), results.len())));
        }
        *at += 1;
        let number = *at;
        let text = (!step.text.is_empty()).then(|| Content::text(step.text.clone()));
        let calls = step.calls.iter().enumerate().map(|(place, (name, arguments))| {
            Content::ToolCall(ToolCall {
                id: CallId::from(format!("call_{number}_{}", place + 1)),
                name: name.clone(),
                arguments: arguments.clone(),
                thought_signature: None,
                namespace: None,
            })
        });
        Ok(AssistantMessage {
            content: text.into_iter().chain(calls).collect(),
            stop_reason: if step.calls.is_empty() { StopReason::Stop } else { StopReason::ToolUse },
            ..blank(request)
        })
    }
}

impl Provider for Script {
    fn encode(&self, request: &ModelRequest) -> Result<Bytes, ModelError> {
        Ok(plain_body(request))
    }

    fn is_local(&self) -> bool {
        true
    }

    fn send(&self, call: Call) -> BoxFuture<'_, CallEnd> {
        async move {
            let answer = self.answer(&call.request);
            let sent = async {
                if let Ok(message) = &answer {
                    // Nobody listens only when the session is being closed.
                    drop(stream(&call, message).await);
                }
            };
            let stopped = tokio::select! {
                biased;
                () = call.cancel.cancelled() => true,
                () = sent => false,
            };
            let answer =
                if stopped { Err(ModelError::new(ModelErrorKind::Aborted, "aborted")) } else { answer };
            let error = answer.as_ref().err().cloned();
            let at = crate::time::now();
            let attempt =
                Attempt { at, error: error.as_ref().map(|error| error.kind), status: None, credential: None };
            let message = answer.unwrap_or_else(|error| AssistantMessage {
                stop_reason: if stopped { StopReason::Aborted } else { StopReason::Error },
                error_message: Some(error.message),
                ..blank(&call.request)
            });
            CallEnd { message, error, attempts: vec![attempt], charges: Vec::new(), unknown: Vec::new() }
        }
        .boxed()
    }
}

/// A request in our own words, for models without a wire.
pub fn plain_body(request: &ModelRequest) -> Bytes {
    let body = serde_json::json!({
        "model": request.model.id,
        "system": &*request.system,
        "tools": &*request.tools,
        "messages": request.messages.iter().map(|message| &**message).collect::<Vec<_>>(),
    });
    body.to_string().into()
}

/// Says a whole message as if it came in pieces.
pub async fn stream(
    call: &Call,
    message: &AssistantMessage,
) -> Result<(), tokio::sync::mpsc::error::SendError<CallEvent>> {
    let started = AssistantMessage {
        content: Vec::new(),
        usage: Usage::default(),
        stop_reason: StopReason::Pending,
        error_message: None,
        ..message.clone()
    };
    call.events.send(CallEvent::Started(Box::new(started))).await?;
    for (index, block) in message.content.iter().enumerate() {
        let deltas = match block {
            Content::Text(text) => vec![
                Delta::TextStarted { index },
                Delta::Text { index, text: text.text.clone() },
                Delta::TextEnded { index },
            ],
            Content::ToolCall(tool) => vec![
                Delta::ToolCallStarted { index, id: tool.id.clone(), name: tool.name.clone() },
                Delta::ToolCallArguments { index, json: tool.arguments.to_string() },
                Delta::ToolCallEnded { index },
            ],
            Content::Thinking(thinking) => vec![
                Delta::ThinkingStarted { index },
                Delta::Thinking { index, text: thinking.thinking.clone() },
                Delta::ThinkingEnded { index },
            ],
            Content::Other(json) => {
                let used = quipu_protocol::ServerToolBlock::of_json(json);
                used.map(|used| Delta::ServerTool { index, summary: used.summary() }).into_iter().collect()
            }
            Content::Image(_) => Vec::new(),
        };
        for delta in deltas {
            call.events.send(CallEvent::Delta(delta)).await?;
        }
    }
    Ok(())
}

fn last_results(request: &ModelRequest) -> Vec<&ToolResultMessage> {
    let mut results: Vec<&ToolResultMessage> = request
        .messages
        .iter()
        .rev()
        .map_while(|message| match &**message {
            Message::ToolResult(result) => Some(result),
            _ => None,
        })
        .collect();
    results.reverse();
    results
}

/// An answer to a request, without content.
pub fn blank(request: &ModelRequest) -> AssistantMessage {
    AssistantMessage::of(&request.model, StopReason::Stop, 0)
}
