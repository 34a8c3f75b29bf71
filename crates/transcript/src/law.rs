//! What every conversation that is sent must keep.

use std::collections::HashSet;
use std::sync::Arc;

use quipu_protocol::{Body, CallId, Message};

use crate::blocks::{is_input, says_something};
use crate::project::{is_empty, is_settled};

/// Where a list of messages is no valid conversation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConversationError {
    /// A message breaks a rule.
    #[error("message {index}: {rule}")]
    Message {
        /// Its position, from 0.
        index: usize,
        /// What it breaks.
        rule: ConversationRule,
    },
    /// A call has no result at the end.
    #[error("at the end, the call {call} has no result")]
    Unanswered {
        /// The call.
        call: CallId,
    },
}

/// A rule that a message can break.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConversationRule {
    /// Results stand right behind their calls.
    #[error("comes before the results of the calls before it")]
    BeforeResults,
    /// Users say something.
    #[error("the user message is empty")]
    EmptyUser,
    /// Users bring texts and images only.
    #[error("the user message contains thinking or tool calls")]
    UserContent,
    /// The user begins.
    #[error("the conversation starts with the assistant")]
    AssistantFirst,
    /// A turn has an end.
    #[error("the assistant message is unfinished")]
    Unsettled,
    /// Assistants say something.
    #[error("the assistant message is empty")]
    EmptyAssistant,
    /// Calls have ids.
    #[error("a tool call has no id")]
    NoCallId,
    /// Ids of calls are used once.
    #[error("two tool calls have the same id")]
    RepeatedCallId,
    /// Results stand in the order of their calls.
    #[error("the tool result does not answer the next open call")]
    OtherCall,
    /// Results bring texts and images only.
    #[error("the tool result contains thinking or tool calls")]
    ResultContent,
    /// Nobody else speaks.
    #[error("not a user message, assistant message or tool result")]
    OtherMessage,
}

/// Checks that `messages` are a valid conversation: users, assistants and tool results only; it begins with the
/// user; no message of the user or the assistant is empty; each assistant turn is settled; each tool call has an
/// id that no other has and is answered exactly once, in call order, right after its assistant message; no
/// result stands elsewhere; results and users bring neither thinking nor calls.
///
/// # Errors
/// The first broken rule and where.
pub fn check_conversation(messages: &[Arc<Message>]) -> Result<(), ConversationError> {
    let mut waiting = std::collections::VecDeque::new();
    let mut ids = HashSet::new();
    for (index, message) in messages.iter().enumerate() {
        let broken = |rule| Err(ConversationError::Message { index, rule });
        if !waiting.is_empty() && !matches!(**message, Message::ToolResult(_)) {
            return broken(ConversationRule::BeforeResults);
        }
        match &**message {
            Message::User(user) => {
                if is_empty(&user.content) {
                    return broken(ConversationRule::EmptyUser);
                }
                if matches!(&user.content, Body::Blocks(blocks) if !blocks.iter().all(is_input)) {
                    return broken(ConversationRule::UserContent);
                }
            }
            Message::Assistant(assistant) => {
                if index == 0 {
                    return broken(ConversationRule::AssistantFirst);
                }
                if !is_settled(assistant.stop_reason) {
                    return broken(ConversationRule::Unsettled);
                }
                if !assistant.content.iter().any(says_something) {
                    return broken(ConversationRule::EmptyAssistant);
                }
                for call in assistant.tool_calls() {
                    if call.id.as_str().is_empty() {
                        return broken(ConversationRule::NoCallId);
                    }
                    if !ids.insert(&call.id) {
                        return broken(ConversationRule::RepeatedCallId);
                    }
                    waiting.push_back(&call.id);
                }
            }
            Message::ToolResult(result) => {
                if waiting.pop_front() != Some(&result.tool_call_id) {
                    return broken(ConversationRule::OtherCall);
                }
                if !result.content.iter().all(is_input) {
                    return broken(ConversationRule::ResultContent);
                }
            }
            Message::BashExecution(_)
            | Message::Custom(_)
            | Message::BranchSummary(_)
            | Message::CompactionSummary(_)
            | Message::Other(_) => return broken(ConversationRule::OtherMessage),
        }
    }
    match waiting.front() {
        None => Ok(()),
        Some(id) => Err(ConversationError::Unanswered { call: (*id).clone() }),
    }
}
