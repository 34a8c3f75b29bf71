//! The shapes of the wire. Requests keep the order in which their members are declared: what changes least
//! comes first, so that two consecutive bodies share a long beginning.

use quipu_protocol::Json;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::traits::CachePoint;
use crate::anthropic::test_string;

/// What stands before the messages.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Head<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tool_config: Option<ToolConfig<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) system: Vec<Block<'a>>,
}

/// The members of a body that follow the messages.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BodyTail {
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(super) inference_config: Map<String, Value>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(super) additional_model_request_fields: Map<String, Value>,
}

#[derive(Serialize)]
pub(super) struct ToolConfig<'a> {
    pub(super) tools: Vec<Tool<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Tool<'a> {
    pub(super) tool_spec: ToolSpec<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolSpec<'a> {
    pub(super) name: &'a str,
    /// One that is empty is refused.
    #[serde(skip_serializing_if = "str::is_empty", serialize_with = "test_string::write")]
    pub(super) description: &'a str,
    pub(super) input_schema: InputSchema,
}

#[derive(Serialize)]
pub(super) struct InputSchema {
    pub(super) json: Json,
}

#[derive(Serialize)]
pub(super) struct WireMessage<'a> {
    pub(super) role: Role,
    pub(super) content: Vec<Block<'a>>,
}

#[derive(Serialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Role {
    User,
    Assistant,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Block<'a> {
    Text(#[serde(serialize_with = "test_string::write")] &'a str),
    Image(Image<'a>),
    ToolUse(ToolUse),
    ToolResult(ToolResult<'a>),
    ReasoningContent(Reasoning<'a>),
    CachePoint(CachePoint),
}

#[derive(Serialize)]
pub(super) struct Image<'a> {
    pub(super) format: &'a str,
    pub(super) source: ImageBytes<'a>,
}

#[derive(Serialize)]
pub(super) struct ImageBytes<'a> {
    pub(super) bytes: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolUse {
    pub(super) tool_use_id: String,
    pub(super) name: String,
    pub(super) input: Json,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolResult<'a> {
    pub(super) tool_use_id: String,
    pub(super) content: Vec<Block<'a>>,
    pub(super) status: Status,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    Success,
    Error,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Reasoning<'a> {
    ReasoningText(ReasoningText<'a>),
    RedactedContent(&'a str),
}

#[derive(Serialize)]
pub(super) struct ReasoningText<'a> {
    pub(super) text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) signature: Option<&'a str>,
}

/// The payload of an event. Members stay raw: what they must be depends on the type, and an event of an
/// unknown type may use the same names for something else.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Event<'a> {
    #[serde(borrow)]
    pub(super) role: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) content_block_index: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) start: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) delta: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) stop_reason: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
}

/// A `start` or a `delta`: all members that are known of either.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Part<'a> {
    #[serde(borrow)]
    pub(super) text: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) tool_use: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) reasoning_content: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ToolUsePart<'a> {
    #[serde(borrow)]
    pub(super) tool_use_id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) name: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) input: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ReasoningPart<'a> {
    #[serde(borrow)]
    pub(super) text: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) signature: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) redacted_content: Option<&'a RawValue>,
}

/// Token counts; absent or odd ones leave what was known before.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct WireUsage<'a> {
    #[serde(borrow)]
    pub(super) input_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) output_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) cache_read_input_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) cache_write_input_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) cache_details: Option<&'a RawValue>,
}

/// Tokens that are kept for one time.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct CacheDetail<'a> {
    #[serde(borrow)]
    pub(super) ttl: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) input_tokens: Option<&'a RawValue>,
}

/// What an exception says of the server behind.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Original<'a> {
    #[serde(borrow)]
    pub(super) original_message: Option<&'a RawValue>,
}
