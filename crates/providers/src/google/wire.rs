//! The shapes of the wire. Requests keep the order in which their members are declared: what changes least
//! comes first, so that two consecutive bodies share a long beginning.

use std::borrow::Cow;

use quipu_protocol::Json;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// What stands before the contents.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Head<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tools: Vec<Tools<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tool_config: Option<ToolConfig>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) system_instruction: Option<Instruction<'a>>,
}

/// A body that holds another, without its end.
#[derive(Serialize)]
pub(super) struct OuterBody<'a> {
    pub(super) model: &'a str,
    pub(super) project: &'a str,
    pub(super) request: InnerBody<'a>,
}

/// The beginning of the body within.
#[derive(Serialize)]
pub(super) struct InnerBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) session_id: Option<&'a str>,
    #[serde(flatten)]
    pub(super) head: Head<'a>,
}

/// The members of a body that follow the contents.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BodyTail {
    pub(super) generation_config: GenerationConfig,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GenerationConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_output_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) thinking_config: Option<ThinkingConfig>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response_mime_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response_json_schema: Option<Value>,
    /// What the user says of the model.
    #[serde(flatten)]
    pub(super) sampling: Map<String, Value>,
}

#[derive(Serialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(super) struct ThinkingConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) include_thoughts: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) thinking_level: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) thinking_budget: Option<i64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Tools<'a> {
    pub(super) function_declarations: Vec<Declaration<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) google_search: Option<EmptyObject>,
}

#[derive(Serialize)]
pub(super) struct EmptyObject {}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolConfig {
    /// Calls of the server's own tools stand in answers, and go back with them.
    pub(super) include_server_side_tool_invocations: bool,
}

/// A tool. Its schema goes where any JSON Schema may stand; `parameters` takes a part of OpenAPI's only.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Declaration<'a> {
    pub(super) name: &'a str,
    pub(super) description: &'a str,
    pub(super) parameters_json_schema: Json,
}

#[derive(Serialize)]
pub(super) struct Instruction<'a> {
    pub(super) parts: [PlainText<'a>; 1],
}

#[derive(Serialize)]
pub(super) struct PlainText<'a> {
    pub(super) text: &'a str,
}

#[derive(Serialize)]
pub(super) struct Content<'a> {
    pub(super) role: Role,
    pub(super) parts: Vec<Part<'a>>,
}

#[derive(Serialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Role {
    User,
    Model,
}

/// What a part holds, and what proves the thinking behind it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Part<'a> {
    #[serde(flatten)]
    pub(super) data: Data<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) thought: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) thought_signature: Option<Cow<'a, str>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Data<'a> {
    Text(&'a str),
    InlineData(InlineData<'a>),
    FunctionCall(FunctionCall),
    FunctionResponse(FunctionResponse<'a>),
    /// A call of a tool of the server, as it came.
    ToolCall(Json),
    /// What such a tool returned, as it came.
    ToolResponse(Json),
}

impl<'a> From<Data<'a>> for Part<'a> {
    fn from(data: Data<'a>) -> Self {
        Self { data, thought: None, thought_signature: None }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InlineData<'a> {
    pub(super) mime_type: &'a str,
    pub(super) data: &'a str,
}

#[derive(Serialize)]
pub(super) struct FunctionCall {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    pub(super) name: String,
    pub(super) args: Json,
}

#[derive(Serialize)]
pub(super) struct FunctionResponse<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
    pub(super) name: String,
    pub(super) response: Response,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) parts: Vec<ResponsePart<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Response {
    Output(String),
    Error(String),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ResponsePart<'a> {
    pub(super) inline_data: InlineData<'a>,
}

/// An event that holds another.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OuterEvent<'a> {
    #[serde(borrow)]
    pub(super) response: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) trace_id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

/// One event of the answer. Members stay raw: servers in between leave out and mix up any.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Chunk<'a> {
    #[serde(borrow)]
    pub(super) candidates: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) prompt_feedback: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) usage_metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) model_version: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) response_id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PromptFeedback<'a> {
    #[serde(borrow)]
    pub(super) block_reason: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) block_reason_message: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Candidate<'a> {
    #[serde(borrow)]
    pub(super) index: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) content: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) finish_reason: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) finish_message: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) grounding_metadata: Option<&'a RawValue>,
}

/// What the answer was searched for, and where it was found.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct GroundingMetadata<'a> {
    #[serde(borrow)]
    pub(super) web_search_queries: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) grounding_chunks: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct GroundingChunk<'a> {
    #[serde(borrow)]
    pub(super) web: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct WebPage<'a> {
    #[serde(borrow)]
    pub(super) uri: Option<&'a RawValue>,
}

/// A call of a tool of the server, or what it returned.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ServerTool<'a> {
    #[serde(borrow)]
    pub(super) id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) tool_type: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) args: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct SearchArguments<'a> {
    #[serde(borrow)]
    pub(super) queries: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) query: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct CandidateContent<'a> {
    #[serde(borrow)]
    pub(super) parts: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PartDelta<'a> {
    #[serde(borrow)]
    pub(super) text: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) thought: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) thought_signature: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) function_call: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) tool_call: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) tool_response: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct CallDelta<'a> {
    #[serde(borrow)]
    pub(super) id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) name: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) args: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) partial_args: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) will_continue: Option<&'a RawValue>,
}

/// Token counts; absent or odd ones leave what was known before.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct WireUsage<'a> {
    #[serde(borrow)]
    pub(super) prompt_token_count: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) tool_use_prompt_token_count: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) cached_content_token_count: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) candidates_token_count: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) thoughts_token_count: Option<&'a RawValue>,
}
