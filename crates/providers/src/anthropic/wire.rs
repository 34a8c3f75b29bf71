//! The shapes of the wire. Requests keep the order in which their members are declared: what changes least
//! comes first, so that two consecutive bodies share a long beginning.

use quipu_protocol::Json;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::test_string;
use crate::cache::CacheControl;

/// What stands before the messages.
#[derive(Serialize)]
pub(super) struct Head<'a> {
    pub(super) model: &'a str,
    pub(super) stream: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tools: Vec<AnyTool<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) system: Vec<Block<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) thinking: Option<&'a ThinkingMode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) output_config: Option<&'a OutputConfig>,
}

/// The members of a body that follow the messages.
#[derive(Serialize)]
pub(super) struct BodyTail {
    pub(super) max_tokens: u64,
}

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum AnyTool<'a> {
    Own(Tool<'a>),
    Search(SearchTool),
}

/// The provider's own search.
#[derive(Serialize)]
pub(super) struct SearchTool {
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) name: &'static str,
    pub(super) max_uses: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cache_control: Option<CacheControl>,
}

#[derive(Serialize)]
pub(super) struct Tool<'a> {
    pub(super) name: &'a str,
    #[serde(serialize_with = "test_string::write")]
    pub(super) description: &'a str,
    pub(super) input_schema: Json,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cache_control: Option<CacheControl>,
}

#[derive(Serialize, Debug, PartialEq)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ThinkingMode {
    Disabled,
    Enabled { budget_tokens: u64, display: &'static str },
    Adaptive { display: &'static str },
}

#[derive(Serialize, Debug, PartialEq)]
pub(super) struct OutputConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) effort: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) format: Option<OutputFormat>,
}

/// The form of the answer.
#[derive(Serialize, Debug, PartialEq)]
pub(super) struct OutputFormat {
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) schema: serde_json::Value,
}

#[derive(Serialize)]
pub(super) struct WireMessage<'a> {
    pub(super) role: Role,
    pub(super) content: Vec<Block<'a>>,
}

#[derive(Serialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Role {
    User,
    Assistant,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Block<'a> {
    Text {
        #[serde(serialize_with = "test_string::write")]
        text: &'a str,
        /// Where it comes from, as the server has it.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        citations: Vec<Json>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    Image {
        source: ImageSource<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    Thinking {
        thinking: &'a str,
        signature: &'a str,
    },
    RedactedThinking {
        data: &'a str,
    },
    ToolUse {
        id: String,
        name: String,
        input: Json,
    },
    ToolResult {
        tool_use_id: String,
        content: Vec<Block<'a>>,
        is_error: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    /// What a tool of the server did, as it came.
    #[serde(untagged)]
    Server(ServerItem),
}

/// A call of a tool of the server, or what it returned.
#[derive(Clone)]
pub(super) struct ServerItem {
    pub(super) json: Json,
    pub(super) id: String,
    pub(super) part: ServerPart,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ServerPart {
    Use,
    Result,
}

impl Serialize for ServerItem {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.json.serialize(serializer)
    }
}

/// The citations of a text: the `textSignature` of its block.
#[derive(Serialize, Deserialize)]
pub(super) struct TextSignature {
    pub(super) citations: Vec<Json>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(super) enum ImageSource<'a> {
    Base64 { media_type: &'a str, data: &'a str },
}

impl Block<'_> {
    /// Marks the block as the end of a cached prefix, where the wire allows it.
    pub(super) fn mark(&mut self, mark: Option<CacheControl>) {
        match self {
            Self::Text { cache_control, .. }
            | Self::Image { cache_control, .. }
            | Self::ToolResult { cache_control, .. } => *cache_control = mark,
            Self::Thinking { .. }
            | Self::RedactedThinking { .. }
            | Self::ToolUse { .. }
            | Self::Server(_) => {}
        }
    }
}

/// One event of the answer. Members stay raw: what they must be depends on the type, and an event of an
/// unknown type may use the same names for something else.
#[derive(Deserialize)]
pub(super) struct Event<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) index: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) message: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) content_block: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) delta: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct MessageStart<'a> {
    #[serde(borrow)]
    pub(super) id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) model: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
}

/// A `content_block` or a `delta`: all members that some type of it has.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Part<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) text: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) thinking: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) signature: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) data: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) name: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) input: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) partial_json: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) stop_reason: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) stop_details: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) tool_use_id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) content: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) citation: Option<&'a RawValue>,
}

/// What a search found.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct FoundPage<'a> {
    #[serde(borrow)]
    pub(super) url: Option<&'a RawValue>,
}

/// Why a tool of the server failed.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct ServerToolError<'a> {
    #[serde(borrow)]
    pub(super) error_code: Option<&'a RawValue>,
}

/// What tools of the server are charged by.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct ServerToolUsage<'a> {
    #[serde(borrow)]
    pub(super) web_search_requests: Option<&'a RawValue>,
}

/// Token counts; absent or odd ones leave what was known before.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct WireUsage<'a> {
    #[serde(borrow)]
    pub(super) input_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) output_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) cache_read_input_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) cache_creation_input_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) cache_creation: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) output_tokens_details: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) server_tool_use: Option<&'a RawValue>,
}

/// Cache writes by how long they are kept.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct CacheCreation<'a> {
    #[serde(borrow)]
    pub(super) ephemeral_1h_input_tokens: Option<&'a RawValue>,
}

/// What the output was made of.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct OutputDetails<'a> {
    #[serde(borrow)]
    pub(super) thinking_tokens: Option<&'a RawValue>,
}
