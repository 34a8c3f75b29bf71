//! A conversation as text for the model that sums it up.

use std::sync::Arc;

use quipu_protocol::{Body, Content, Message};

use crate::words;

/// UTF-16 code units of a tool's result that are shown.
const RESULT: usize = 2_000;

/// The messages as text, one block each, an empty line between: who speaks in brackets, then the words. Thinking
/// and calls stand in blocks of their own; results are cut at 2,000 characters and say how many are missing.
pub fn conversation_text(messages: &[Arc<Message>]) -> String {
    let mut blocks = Vec::new();
    for message in messages {
        push(&mut blocks, message);
    }
    blocks.join("\n\n")
}

fn push(blocks: &mut Vec<String>, message: &Message) {
    match message {
        Message::User(user) => say(blocks, "User", &text_of(&user.content)),
        Message::Custom(custom) => say(blocks, "User", &text_of(&custom.content)),
        Message::BashExecution(bash) => {
            if bash.exclude_from_context != Some(true) {
                say(blocks, "User", &words::bash_execution(bash));
            }
        }
        Message::BranchSummary(branch) => say(blocks, "User", &words::branch_summary(&branch.summary)),
        Message::CompactionSummary(compaction) => {
            say(blocks, "User", &words::compaction_summary(&compaction.summary));
        }
        Message::Assistant(answer) => {
            let (mut thinking, mut text, mut calls) = (Vec::new(), Vec::new(), Vec::new());
            for block in &answer.content {
                match block {
                    Content::Thinking(block) => thinking.push(block.thinking.as_str()),
                    Content::Text(block) => text.push(block.text.as_str()),
                    Content::ToolCall(call) => {
                        calls.push(format!("{}({})", call.name, arguments(call.arguments.get())));
                    }
                    Content::Image(_) | Content::Other(_) => {}
                }
            }
            say(blocks, "Assistant thinking", &thinking.join("\n"));
            say(blocks, "Assistant", &text.join("\n"));
            say(blocks, "Assistant tool calls", &calls.join("; "));
        }
        Message::ToolResult(result) => {
            let text = texts(&result.content).join("");
            say(blocks, "Tool result", &cut_off(&text));
        }
        Message::Other(_) => {}
    }
}

fn say(blocks: &mut Vec<String>, who: &str, text: &str) {
    if !text.is_empty() {
        blocks.push(format!("[{who}]: {text}"));
    }
}

fn text_of(body: &Body) -> String {
    match body {
        Body::Text(text) => text.clone(),
        Body::Blocks(blocks) => texts(blocks).join(""),
    }
}

fn texts(blocks: &[Content]) -> Vec<&str> {
    blocks.iter().filter_map(Content::as_text).collect()
}

/// `{"a":1,"b":"x"}` as `a=1, b="x"`.
fn arguments(json: &str) -> String {
    let Ok(members) = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(json) else {
        return json.to_owned();
    };
    let members = members.iter().map(|(name, value)| format!("{name}={value}"));
    members.collect::<Vec<_>>().join(", ")
}

fn cut_off(text: &str) -> String {
    let mut units = 0;
    for (at, character) in text.char_indices() {
        units += character.len_utf16();
        if units > RESULT {
            let rest = text[at..].encode_utf16().count();
            return format!("{}\n\n[... {rest} more characters truncated]", &text[..at]);
        }
    }
    text.to_owned()
}
