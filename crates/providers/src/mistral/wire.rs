//! The shapes of a request. They keep the order in which their members are declared: what changes least comes first, so
//! that two consecutive bodies share a long beginning.

use quipu_protocol::Json;
use serde::Serialize;
use serde_json::{Map, Value};

/// What stands before the messages.
#[derive(Serialize)]
pub(super) struct Head<'a> {
    pub(super) model: &'a str,
    pub(super) stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) prompt_cache_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reasoning_effort: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tools: Vec<Tool<'a>>,
    /// What the user adds for this model.
    #[serde(flatten)]
    pub(super) extra: &'a Map<String, Value>,
}

/// The members of a body that follow the messages.
#[derive(Serialize)]
pub(super) struct BodyTail {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_tokens: Option<u64>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(super) enum Tool<'a> {
    Function { function: Function<'a> },
}

#[derive(Serialize)]
pub(super) struct Function<'a> {
    pub(super) name: &'a str,
    pub(super) description: &'a str,
    pub(super) parameters: Json,
    pub(super) strict: bool,
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
pub(super) enum WireMessage<'a> {
    System {
        content: &'a str,
    },
    User {
        content: WireContent<'a>,
    },
    Assistant {
        #[serde(skip_serializing_if = "Option::is_none")]
        content: Option<WireContent<'a>>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<WireCall>,
        /// The answer begins with this one: the last message of a conversation that ends with an answer.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        prefix: bool,
    },
    Tool {
        tool_call_id: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        content: WireContent<'a>,
    },
}

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum WireContent<'a> {
    Text(String),
    Chunks(Vec<Chunk<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Chunk<'a> {
    Text { text: &'a str },
    Thinking { thinking: [Thought<'a>; 1] },
    ImageUrl { image_url: ImageUrl<'a> },
}

/// A piece of what was thought.
#[derive(Serialize)]
#[serde(tag = "type", rename = "text")]
pub(super) struct Thought<'a> {
    pub(super) text: &'a str,
}

/// An image as a `data:` URL.
pub(super) struct ImageUrl<'a> {
    pub(super) media_type: &'a str,
    pub(super) data: &'a str,
}

impl Serialize for ImageUrl<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("data:{};base64,{}", self.media_type, self.data))
    }
}

#[derive(Serialize)]
pub(super) struct WireCall {
    pub(super) id: String,
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) function: CallFunction,
}

#[derive(Serialize)]
pub(super) struct CallFunction {
    pub(super) name: String,
    /// A JSON text.
    pub(super) arguments: String,
}
