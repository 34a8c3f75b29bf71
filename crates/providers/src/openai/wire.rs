//! The shapes of the wire. Requests keep the order in which their members are declared: what changes least
//! comes first, so that two consecutive bodies share a long beginning.

use quipu_protocol::Json;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::cache::CacheControl;

/// What stands before the messages.
#[derive(Serialize)]
pub(super) struct Head<'a> {
    pub(super) model: &'a str,
    pub(super) stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stream_options: Option<StreamOptions>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) store: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) prompt_cache_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) prompt_cache_retention: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tools: Option<&'a [Tool<'a>]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tool_stream: Option<bool>,
    /// How to think, and where to: what only some servers know.
    #[serde(flatten)]
    pub(super) extra: &'a Map<String, Value>,
}

/// The members of a body that follow the messages.
#[derive(Serialize)]
pub(super) struct BodyTail {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_completion_tokens: Option<u64>,
    /// What follows from `max_tokens`.
    #[serde(flatten)]
    pub(super) budget: Map<String, Value>,
}

#[derive(Serialize)]
pub(super) struct StreamOptions {
    pub(super) include_usage: bool,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Tool<'a> {
    Function {
        function: Function<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
}

#[derive(Serialize)]
pub(super) struct Function<'a> {
    pub(super) name: &'a str,
    pub(super) description: &'a str,
    pub(super) parameters: Json,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) strict: Option<bool>,
}

#[derive(Serialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Role {
    System,
    Developer,
    User,
    Assistant,
    Tool,
}

#[derive(Serialize)]
pub(super) struct WireMessage<'a> {
    pub(super) role: Role,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tool_call_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reasoning: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reasoning_text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reasoning_details: Option<Json>,
    pub(super) content: WireContent<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tool_calls: Vec<WireCall>,
}

impl<'a> WireMessage<'a> {
    pub(super) fn new(role: Role, content: WireContent<'a>) -> Self {
        Self {
            role,
            tool_call_id: None,
            name: None,
            reasoning_content: None,
            reasoning: None,
            reasoning_text: None,
            reasoning_details: None,
            content,
            tool_calls: Vec::new(),
        }
    }
}

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum WireContent<'a> {
    Null,
    Text(String),
    Parts(Vec<Part<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Part<'a> {
    Text {
        text: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    ImageUrl {
        image_url: ImageUrl<'a>,
    },
}

/// An image as a `data:` URL.
pub(super) struct ImageUrl<'a> {
    pub(super) media_type: &'a str,
    pub(super) data: &'a str,
}

impl Serialize for ImageUrl<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap as _;
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry("url", &format_args!("data:{};base64,{}", self.media_type, self.data))?;
        map.end()
    }
}

#[derive(Serialize)]
pub(super) struct WireCall {
    pub(super) id: String,
    #[serde(rename = "type")]
    pub(super) kind: CallKind,
    pub(super) function: CallFunction,
}

#[derive(Serialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
pub(super) enum CallKind {
    Function,
}

#[derive(Serialize)]
pub(super) struct CallFunction {
    pub(super) name: String,
    /// A JSON text.
    pub(super) arguments: String,
}

/// One event of the answer. Members stay raw: each server fills them in its own way.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Chunk<'a> {
    #[serde(borrow)]
    pub(super) id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) model: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) object: Option<&'a RawValue>,
    #[serde(borrow, rename = "type")]
    pub(super) kind: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) choices: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Choice<'a> {
    #[serde(borrow)]
    pub(super) index: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) delta: Option<&'a RawValue>,
    /// Instead of a delta, from servers that send the answer whole.
    #[serde(borrow)]
    pub(super) message: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) finish_reason: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct ChoiceDelta<'a> {
    #[serde(borrow)]
    pub(super) content: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) refusal: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) reasoning_content: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) reasoning: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) reasoning_text: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) reasoning_details: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) tool_calls: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) function_call: Option<&'a RawValue>,
}

/// A piece of content where a server sends a list of such.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct ContentPart<'a> {
    #[serde(borrow)]
    pub(super) text: Option<&'a RawValue>,
    /// A list of such pieces.
    #[serde(borrow)]
    pub(super) thinking: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct CallDelta<'a> {
    #[serde(borrow)]
    pub(super) index: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) function: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct FunctionDelta<'a> {
    #[serde(borrow)]
    pub(super) name: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) arguments: Option<&'a RawValue>,
}

/// Token counts; where the cached ones stand differs.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct WireUsage<'a> {
    #[serde(borrow)]
    pub(super) prompt_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) completion_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) prompt_tokens_details: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) completion_tokens_details: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) prompt_cache_hit_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) cached_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) num_cached_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) prompt_token_details: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct TokenDetails<'a> {
    #[serde(borrow)]
    pub(super) cached_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) cache_write_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) reasoning_tokens: Option<&'a RawValue>,
}
