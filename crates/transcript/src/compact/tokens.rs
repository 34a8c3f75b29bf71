//! How large a context is, as well as can be told without the model's tokenizer.

use std::sync::Arc;

use quipu_protocol::{AssistantMessage, Body, Content, Message, Usage};

use crate::project::is_settled;

/// Characters (UTF-16 code units) that count as one token.
const CHARACTERS: u64 = 4;
/// What an image counts, in characters.
const IMAGE: u64 = 4_800;

/// The tokens of one message, by its length: a quarter of its UTF-16 code units, 1,200 for an image. Signatures and
/// the frame of the message are not counted.
pub fn estimate_tokens(message: &Message) -> u64 {
    let characters = match message {
        Message::User(user) => body(&user.content),
        Message::Assistant(answer) => blocks(&answer.content),
        Message::ToolResult(result) => blocks(&result.content),
        Message::BashExecution(bash) => length(&bash.command) + length(&bash.output),
        Message::Custom(custom) => body(&custom.content),
        Message::BranchSummary(branch) => length(&branch.summary),
        Message::CompactionSummary(compaction) => length(&compaction.summary),
        Message::Other(_) => 0,
    };
    characters.div_ceil(CHARACTERS)
}

/// The tokens that a message adds to a request: [`estimate_tokens`], and none for what is never sent, an answer that
/// failed or a command that was kept from the model.
pub fn sent_tokens(message: &Message) -> u64 {
    match message {
        Message::Assistant(answer) if !is_settled(answer.stop_reason) => 0,
        Message::BashExecution(bash) if bash.exclude_from_context == Some(true) => 0,
        _ => estimate_tokens(message),
    }
}

/// The tokens of a text, by its length.
pub fn estimate_text(text: &str) -> u64 {
    length(text).div_ceil(CHARACTERS)
}

/// The place of the last answer that tells how many tokens were used, and how many. Answers that failed or say
/// nothing of it do not count, nor do the first `old` messages: a compaction's summary and what it kept, whose usage
/// counts what is gone.
pub fn last_count(messages: &[Arc<Message>], old: usize) -> Option<(usize, u64)> {
    messages.iter().enumerate().skip(old).rev().find_map(|(at, message)| match &**message {
        Message::Assistant(answer) => Some((at, used(answer)?)),
        _ => None,
    })
}

/// The size of a context: its [`last_count`] and the [`sent_tokens`] of what came after it, or of everything.
pub fn context_tokens(messages: &[Arc<Message>], old: usize) -> u64 {
    let (after, used) = last_count(messages, old).map_or((0, 0), |(at, used)| (at + 1, used));
    messages[after..].iter().fold(used, |sum, message| sum.saturating_add(sent_tokens(message)))
}

fn used(answer: &AssistantMessage) -> Option<u64> {
    if !is_settled(answer.stop_reason) {
        return None;
    }
    let Usage { input, output, cache_read, cache_write, total_tokens, .. } = answer.usage;
    if input.saturating_add(cache_read).saturating_add(cache_write) == 0 && total_tokens <= output {
        // Not counted, whatever the rest says.
        return None;
    }
    let sum = input.saturating_add(output).saturating_add(cache_read).saturating_add(cache_write);
    Some(if total_tokens > 0 { total_tokens } else { sum }).filter(|used| *used > 0)
}

fn body(body: &Body) -> u64 {
    match body {
        Body::Text(text) => length(text),
        Body::Blocks(content) => blocks(content),
    }
}

fn blocks(content: &[Content]) -> u64 {
    content
        .iter()
        .map(|block| match block {
            Content::Text(text) => length(&text.text),
            Content::Thinking(thinking) => length(&thinking.thinking),
            Content::Image(_) => IMAGE,
            Content::ToolCall(call) => length(&call.name) + length(call.arguments.get()),
            Content::Other(json) => length(json.get()),
        })
        .sum()
}

fn length(text: &str) -> u64 {
    // Most text is ASCII, whose bytes are its code units.
    if text.is_ascii() { text.len() as u64 } else { text.encode_utf16().count() as u64 }
}
