//! What every conversation that is sent must keep.

use std::collections::HashSet;
use std::sync::Arc;

use quipu_protocol::{Body, Message};

use crate::project::{is_empty, is_input, is_settled, says_something};

/// Checks that `messages` are a valid conversation: users, assistants and tool results only; it begins with the
/// user; no message of the user or the assistant is empty; each assistant turn is settled; each tool call has an
/// id that no other has and is answered exactly once, in call order, right after its assistant message; no
/// result stands elsewhere; results and users bring neither thinking nor calls.
///
/// # Errors
/// The position (from 0) and the broken rule, in one line for people.
pub fn check_conversation(messages: &[Arc<Message>]) -> Result<(), String> {
    let mut waiting = std::collections::VecDeque::new();
    let mut ids = HashSet::new();
    for (index, message) in messages.iter().enumerate() {
        let broken = |rule: &str| Err(format!("message {index}: {rule}"));
        if !waiting.is_empty() && !matches!(**message, Message::ToolResult(_)) {
            return broken("comes before the results of the calls before it");
        }
        match &**message {
            Message::User(user) => {
                if is_empty(&user.content) {
                    return broken("the user says nothing");
                }
                if matches!(&user.content, Body::Blocks(blocks) if !blocks.iter().all(is_input)) {
                    return broken("the user brings thinking or tool calls");
                }
            }
            Message::Assistant(assistant) => {
                if index == 0 {
                    return broken("the assistant speaks first");
                }
                if !is_settled(assistant.stop_reason) {
                    return broken("the turn is not settled");
                }
                if !assistant.content.iter().any(says_something) {
                    return broken("the assistant says nothing");
                }
                for call in assistant.tool_calls() {
                    if call.id.as_str().is_empty() {
                        return broken("a tool call has no id");
                    }
                    if !ids.insert(&call.id) {
                        return broken("the id of a tool call was used before");
                    }
                    waiting.push_back(&call.id);
                }
            }
            Message::ToolResult(result) => {
                if waiting.pop_front() != Some(&result.tool_call_id) {
                    return broken("the result does not answer the call whose turn it is");
                }
                if !result.content.iter().all(is_input) {
                    return broken("the result brings thinking or tool calls");
                }
            }
            Message::BashExecution(_)
            | Message::Custom(_)
            | Message::BranchSummary(_)
            | Message::CompactionSummary(_)
            | Message::Other(_) => return broken("neither user, assistant nor tool result"),
        }
    }
    match waiting.front() {
        None => Ok(()),
        Some(id) => Err(format!("the end: the call {id} has no result")),
    }
}
