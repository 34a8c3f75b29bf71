//! Messages as the updates that a client shows.

use std::path::Path;

use quipu_protocol::{BashExecutionMessage, Body, Content, Json, Message, Notice};
use serde_json::{Value, json};

use crate::link::SessionLink;

/// A piece of a message. `kind` is `user_message_chunk`, `agent_message_chunk` or `agent_thought_chunk`.
pub(crate) fn chunk(kind: &str, text: &str, message: Option<&str>) -> Value {
    let mut update = json!({ "sessionUpdate": kind, "content": { "type": "text", "text": text } });
    if let Some(message) = message {
        update["messageId"] = message.into();
    }
    update
}

/// What a person said.
pub(crate) fn said(body: &Body) -> Vec<Value> {
    let blocks = body.blocks();
    let typed: Vec<Content> = blocks.iter().filter(|block| !is_resource(block)).cloned().collect();
    let text = quipu::typed_text(&typed);
    let mut updates = Vec::new();
    if !text.is_empty() {
        updates.push(chunk("user_message_chunk", &text, None));
    }
    for block in blocks.iter() {
        if let Content::Image(image) = block {
            let image = json!({ "type": "image", "data": image.data, "mimeType": image.mime_type });
            updates.push(json!({ "sessionUpdate": "user_message_chunk", "content": image }));
        }
    }
    updates
}

/// What a client attached, which it need not be told again.
fn is_resource(block: &Content) -> bool {
    block.as_text().is_some_and(|text| text.starts_with(crate::input::RESOURCE_START))
}

/// A line that a person ran.
pub(crate) fn ran(name: &str, ran: &BashExecutionMessage, cwd: &Path) -> Value {
    let arguments = Json::from(&json!({ "command": ran.command }));
    let status = if ran.exit_code == Some(0) { "completed" } else { "failed" };
    let mut call = crate::calls::begun(name, ("bash", &arguments), cwd, status, false);
    let output = crate::calls::output(name, &ran.output);
    call["content"] = output["content"].clone();
    call
}

/// The text of what an answer holds, in order: whether it is thinking, and the text.
pub(crate) fn answer_texts(message: &Message) -> Vec<(bool, &str)> {
    let Message::Assistant(answer) = message else { return Vec::new() };
    let texts = answer.content.iter().filter_map(|block| match block {
        Content::Text(text) => Some((false, text.text.as_str())),
        Content::Thinking(thinking) => Some((true, thinking.thinking.as_str())),
        Content::Image(_) | Content::ToolCall(_) | Content::Other(_) => None,
    });
    texts.filter(|(_, text)| !text.is_empty()).collect()
}

/// The kind of a piece of an answer.
pub(crate) fn answer_kind(is_thinking: bool) -> &'static str {
    if is_thinking { "agent_thought_chunk" } else { "agent_message_chunk" }
}

/// A notice for people in words.
pub(crate) fn notice_text(told: &Notice) -> Option<String> {
    match told {
        Notice::Branched { session } => Some(format!(
            "Another process is working on this session; it continues here on a branch: session {session}"
        )),
        Notice::Interrupted { calls, model_call } => {
            let tools: Vec<&str> = calls.iter().map(|(tool, _)| tool.as_str()).collect();
            let model = if *model_call { "; the answer of a model call is lost" } else { "" };
            Some(format!("An earlier process ended in the middle of: {}{model}", tools.join(", ")))
        }
        Notice::Note { text } => Some(text.clone()),
    }
}

/// A notice as a client shows it: as such, or else among the thoughts.
pub(crate) fn notice(link: &SessionLink, text: &str, is_warning: bool) -> Value {
    if link.abilities.shows_notices {
        let severity = if is_warning { "warning" } else { "info" };
        return json!({ "sessionUpdate": "notice", "severity": severity, "title": text });
    }
    chunk("agent_thought_chunk", &format!("{text}\n\n"), None)
}
