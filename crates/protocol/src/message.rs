//! Messages, in the shapes of Pi's session files.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::content::{lenient, tag};
use crate::{CallId, Content, Json, Model, ToolCall, UnixMs, Usage};

/// One message of a conversation. JSON form: an object with a `role`.
///
/// Deserialising never fails on an unknown role or shape: such a value is kept whole in [`Message::Other`].
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(tag = "role", rename_all = "camelCase")]
pub enum Message {
    /// What a person (or a program on their behalf) said.
    User(UserMessage),
    /// What the model answered.
    Assistant(AssistantMessage),
    /// The result of one tool call, for the model.
    ToolResult(ToolResultMessage),
    /// A command that the user ran by hand.
    BashExecution(BashExecutionMessage),
    /// A message of an extension, seen by the model as the user's.
    Custom(CustomMessage),
    /// What an abandoned branch held.
    BranchSummary(BranchSummaryMessage),
    /// What stood before a compaction.
    CompactionSummary(CompactionSummaryMessage),
    /// A message of a role unknown to this version.
    #[serde(untagged)]
    Other(Json),
}

/// Text or blocks.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(untagged)]
pub enum Body {
    /// Plain text: a JSON string.
    Text(String),
    /// Blocks in order: a JSON list of objects with a `type`.
    Blocks(Vec<Content>),
}

/// What a person said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct UserMessage {
    /// Text, or text and images.
    #[serde(default)]
    pub content: Body,
    /// Time of the message in milliseconds since the Unix epoch; 0 when unknown.
    #[serde(default)]
    pub timestamp: UnixMs,
}

/// Why an answer ended. `rawStopReason` has the provider's own word where that word says more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum StopReason {
    /// The model completed the answer and waits for no tool result.
    #[default]
    Stop,
    /// It reached the limit of output tokens; tool calls in it may be cut and are never run.
    Length,
    /// It waits for tool results.
    ToolUse,
    /// The call failed; see the error message.
    Error,
    /// Someone aborted the call.
    Aborted,
    /// The provider answers later.
    Deferred,
    /// Still streaming; never stored.
    Pending,
}

/// What the model answered.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AssistantMessage {
    /// Blocks in the order received.
    #[serde(default, deserialize_with = "null_is_default")]
    pub content: Vec<Content>,
    /// The wire, such as `anthropic-messages`.
    #[serde(default)]
    pub api: String,
    /// The provider's id.
    #[serde(default)]
    pub provider: String,
    /// Id of the requested model. `responseModel` is present when another model answered.
    #[serde(default)]
    pub model: String,
    /// Tokens and cost.
    #[serde(default)]
    pub usage: Usage,
    /// `pending` while the answer streams; `stop` where stored data has none.
    #[serde(default)]
    pub stop_reason: StopReason,
    /// When the call began.
    #[serde(default)]
    pub timestamp: UnixMs,
    /// The model that answered, when it names another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_model: Option<String>,
    /// The provider's id of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_id: Option<String>,
    /// What went wrong, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// The provider's own word for the stop reason, where ours loses something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_stop_reason: Option<String>,
}

/// What one tool call returned: content for the model, details for clients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolResultMessage {
    /// Same id as in the `toolCall` block of the answer that requests the call.
    pub tool_call_id: CallId,
    /// Name of the tool in the call; empty when unknown.
    #[serde(default)]
    pub tool_name: String,
    /// Text and images, for the model.
    #[serde(default, deserialize_with = "null_is_default")]
    pub content: Vec<Content>,
    /// For fronts, never for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Json>,
    /// Tokens that the tool itself used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Whether the call failed.
    #[serde(default)]
    pub is_error: bool,
    /// End of the call in milliseconds since the Unix epoch; 0 when unknown.
    #[serde(default)]
    pub timestamp: UnixMs,
}

/// A command that the user ran by hand.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BashExecutionMessage {
    /// The line that the shell ran.
    pub command: String,
    /// What the command printed. Quipu keeps the end: at most 50,000 bytes.
    #[serde(default)]
    pub output: String,
    /// Exit code; absent when the command was stopped, did not run, or has an unknown end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Whether the command was stopped before it ended.
    #[serde(default)]
    pub cancelled: bool,
    /// Whether the output was cut.
    #[serde(default)]
    pub truncated: bool,
    /// Path of a file with the longer output; absent if there is no such file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_output_path: Option<String>,
    /// Whether the model must not see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclude_from_context: Option<bool>,
    /// End of the command in milliseconds since the Unix epoch; 0 when unknown.
    #[serde(default)]
    pub timestamp: UnixMs,
}

/// A message that an extension added. The model sees its content as the user's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CustomMessage {
    /// The extension's name for its kind.
    pub custom_type: String,
    /// Text or blocks.
    #[serde(default)]
    pub content: Body,
    /// Whether people see it.
    #[serde(default)]
    pub display: bool,
    /// For fronts, never for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Json>,
    /// Time of adding the message in milliseconds since the Unix epoch; 0 when unknown.
    #[serde(default)]
    pub timestamp: UnixMs,
}

/// What an abandoned branch held.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BranchSummaryMessage {
    /// Text about the branch. The model gets it in a message of the user.
    pub summary: String,
    /// The entry that the branch ended in.
    #[serde(default)]
    pub from_id: Option<String>,
    /// Whatever its maker keeps beside it, such as the files that were read and modified. Never for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Json>,
    /// Time of writing the summary in milliseconds since the Unix epoch; 0 when unknown.
    #[serde(default)]
    pub timestamp: UnixMs,
}

/// What stood before a compaction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CompactionSummaryMessage {
    /// Text that the model gets in place of the messages before the compaction.
    pub summary: String,
    /// Tokens of the context before the compaction, counted or estimated; 0 when unknown.
    #[serde(default)]
    pub tokens_before: u64,
    /// Time of writing the summary in milliseconds since the Unix epoch; 0 when unknown.
    #[serde(default)]
    pub timestamp: UnixMs,
}

impl Message {
    /// Reads a message, as deserialising does, without a copy of its text.
    ///
    /// # Errors
    /// The parser's message when `text` is no JSON.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        let known = match tag(text, "\"role\"").as_deref() {
            Some("user") => lenient(text).map(Self::User).ok(),
            Some("assistant") => lenient(text).map(Self::Assistant).ok(),
            Some("toolResult") => lenient(text).map(Self::ToolResult).ok(),
            Some("bashExecution") => lenient(text).map(Self::BashExecution).ok(),
            Some("custom") => lenient(text).map(Self::Custom).ok(),
            Some("branchSummary") => lenient(text).map(Self::BranchSummary).ok(),
            Some("compactionSummary") => lenient(text).map(Self::CompactionSummary).ok(),
            _ => None,
        };
        known.map_or_else(|| Json::parse(text).map(Self::Other), Ok)
    }

    /// A user's text.
    pub fn user(text: impl Into<String>, timestamp: UnixMs) -> Self {
        Self::User(UserMessage { content: Body::Blocks(vec![Content::text(text)]), timestamp })
    }

    /// The role as it stands on the wire and in nodes; `None` for a message without one.
    pub fn role(&self) -> Option<std::borrow::Cow<'_, str>> {
        Some(match self {
            Self::User(_) => "user".into(),
            Self::Assistant(_) => "assistant".into(),
            Self::ToolResult(_) => "toolResult".into(),
            Self::BashExecution(_) => "bashExecution".into(),
            Self::Custom(_) => "custom".into(),
            Self::BranchSummary(_) => "branchSummary".into(),
            Self::CompactionSummary(_) => "compactionSummary".into(),
            Self::Other(json) => return tag(json.get(), "\"role\""),
        })
    }

    /// When it was said, in milliseconds; 0 when unknown.
    pub fn timestamp(&self) -> UnixMs {
        match self {
            Self::User(m) => m.timestamp,
            Self::Assistant(m) => m.timestamp,
            Self::ToolResult(m) => m.timestamp,
            Self::BashExecution(m) => m.timestamp,
            Self::Custom(m) => m.timestamp,
            Self::BranchSummary(m) => m.timestamp,
            Self::CompactionSummary(m) => m.timestamp,
            Self::Other(_) => 0,
        }
    }
}

impl AssistantMessage {
    /// An answer of `model` without content.
    pub fn of(model: &Model, stop_reason: StopReason, timestamp: UnixMs) -> Self {
        Self {
            api: model.api.clone(),
            provider: model.provider.clone(),
            model: model.id.clone(),
            stop_reason,
            timestamp,
            ..Self::default()
        }
    }

    /// The `toolCall` blocks of the content, in order.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.content.iter().filter_map(Content::as_tool_call)
    }

    /// The text blocks joined by newlines.
    pub fn text(&self) -> String {
        self.content.iter().filter_map(Content::as_text).collect::<Vec<_>>().join("\n")
    }
}

impl Body {
    /// The text blocks joined by newlines.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Blocks(blocks) => blocks.iter().filter_map(Content::as_text).collect::<Vec<_>>().join("\n"),
        }
    }

    /// The blocks; plain text as one block.
    pub fn blocks(&self) -> std::borrow::Cow<'_, [Content]> {
        match self {
            Self::Text(text) => vec![Content::text(text.clone())].into(),
            Self::Blocks(blocks) => blocks.into(),
        }
    }
}

impl Default for Body {
    fn default() -> Self {
        Self::Blocks(Vec::new())
    }
}

fn null_is_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(d: D) -> Result<T, D::Error> {
    Option::<T>::deserialize(d).map(Option::unwrap_or_default)
}

impl<'de> Deserialize<'de> for Body {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(d).map_err(serde::de::Error::custom)?;
        match raw.get().as_bytes().first() {
            Some(b'"') => lenient(raw.get()).map(Self::Text),
            Some(b'n') => Ok(Self::default()),
            _ => lenient(raw.get()).map(Self::Blocks),
        }
        .map_err(serde::de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Message {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(d).map_err(serde::de::Error::custom)?;
        Self::parse(raw.get()).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn round_trip(text: &str) -> Message {
        let message: Message = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&message).unwrap(), text);
        message
    }

    #[test]
    fn json_is_kept_to_the_byte() {
        let call = r#"{"role":"assistant","content":[{"type":"thinking","thinking":"","thinkingSignature":"s"},{"type":"toolCall","id":"c","name":"edit","arguments":{"b":1.0,"a":{"__proto__":1,"9":12345678901234567890}}}],"api":"a","provider":"p","model":"m","usage":{"input":1,"output":2,"cacheRead":0,"cacheWrite":0,"totalTokens":3,"cost":{"input":0.1,"output":0.2,"cacheRead":0.0,"cacheWrite":0.0,"total":0.3}},"stopReason":"toolUse","timestamp":5}"#;
        let Message::Assistant(message) = round_trip(call) else { panic!("an assistant message") };
        assert_eq!(message.tool_calls().count(), 1);
        round_trip(r#"{"role":"user","content":"plain","timestamp":1}"#);
        round_trip(r#"{"role":"user","content":[{"type":"new","x":1.0}],"timestamp":1}"#);
        assert!(matches!(round_trip(r#"{"role":"system","content":1.0}"#), Message::Other(_)));
        assert!(matches!(round_trip(r#"{"role":"toolResult","content":[]}"#), Message::Other(_)));
    }

    #[test]
    fn the_last_role_counts() {
        let check = |text: &str, expect: &str| {
            assert_eq!(Message::parse(text).unwrap().role().unwrap(), expect, "{text}");
        };
        check(r#"{"role":"system","text":"\"role\":\"user\""}"#, "system");
        check(r#"{"role":"system","role":"other"}"#, "other");
        check(r#"{"role":"system","\u0072ole":"other"}"#, "other");
        check(r#"{"role":"system","x":{"role":"inner"}}"#, "system");
        check(r#"{"role":"sys\"tem"}"#, "sys\"tem");
        check(r#"{ "role" : "system" , "text":"role"}"#, "system");
        check(r#"{"a":1,"role":"system"}"#, "system");
        assert!(matches!(
            Message::parse(r#"{"role":"user","role":"assistant"}"#),
            Ok(Message::Other(_)) | Ok(Message::Assistant(_))
        ));
        assert!(Message::parse(r#"{"role":"user""#).is_err());
        assert!(Message::parse(r#"{"role":"user","content":[}"#).is_err());
    }

    #[test]
    fn null_content_is_empty() {
        let Message::User(user) = serde_json::from_str(r#"{"role":"user","content":null}"#).unwrap() else {
            panic!("a user message")
        };
        assert_eq!(user.content, Body::default());
    }

    #[test]
    fn lone_surrogates_are_seen_as_replacement_characters() {
        let message: Message =
            serde_json::from_str(r#"{"role":"user","content":"a\ud800b","timestamp":1}"#).unwrap();
        assert_eq!(
            message,
            Message::User(UserMessage { content: Body::Text("a\u{fffd}b".into()), timestamp: 1 })
        );
    }
}
