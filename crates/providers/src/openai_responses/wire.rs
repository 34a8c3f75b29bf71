//! The shapes of the wire. Requests keep the order in which their members are declared: what changes least
//! comes first, so that two consecutive bodies share a long beginning.

use quipu_protocol::Json;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::codex::HeadMembers;

/// What stands before the input.
#[derive(Serialize)]
pub(super) struct Head<'a> {
    pub(super) model: &'a str,
    pub(super) stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) store: Option<bool>,
    #[serde(flatten)]
    pub(super) subscribed: Option<HeadMembers<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) include: Option<[&'static str; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reasoning: Option<&'a Reasoning>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) prompt_cache_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) prompt_cache_retention: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) prompt_cache_options: Option<CacheOptions>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tools: Vec<Tool<'a>>,
    /// What the user adds for this model.
    #[serde(flatten)]
    pub(super) extra: &'a Map<String, Value>,
}

/// The members of a body that follow the input.
#[derive(Serialize)]
pub(super) struct BodyTail {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_output_tokens: Option<u64>,
}

#[derive(Serialize)]
pub(super) struct Reasoning {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) effort: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) summary: Option<&'static str>,
}

/// How long the beginning of a conversation is kept, for models with this parameter.
#[derive(Serialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
pub(super) enum CacheOptions {
    Ttl(&'static str),
    Mode(&'static str),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Tool<'a> {
    Function {
        name: &'a str,
        description: &'a str,
        parameters: Json,
        /// The server's default is `true`, which few schemas of tools satisfy.
        #[serde(skip_serializing_if = "Option::is_none")]
        strict: Option<bool>,
    },
    /// The provider's own search.
    WebSearch {},
    /// A tool whose input is plain text.
    Custom { name: &'a str, description: &'a str, format: TextFormat },
}

/// The form of a plain text.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum TextFormat {
    Grammar { syntax: &'static str, definition: &'static str },
}

#[derive(Serialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Role {
    System,
    Developer,
    User,
    Assistant,
}

/// What was said, done or thought, in order.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum InputItem<'a> {
    Prompt {
        role: Role,
        content: &'a str,
    },
    User {
        role: Role,
        content: Vec<InputPart<'a>>,
    },
    Output(OutputItem<'a>),
    /// An item of the server's own, as it came.
    Returned(Json),
}

/// What the model wrote, and what answers it.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum OutputItem<'a> {
    Message {
        role: Role,
        content: [OutputText<'a>; 1],
        status: &'static str,
        id: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        phase: Option<String>,
    },
    FunctionCall {
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        call_id: String,
        name: String,
        /// A JSON text.
        arguments: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        namespace: Option<&'a str>,
    },
    FunctionCallOutput {
        call_id: String,
        output: CallOutput<'a>,
    },
    CustomToolCall {
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        call_id: String,
        name: String,
        /// The text as it is.
        input: String,
    },
    CustomToolCallOutput {
        call_id: String,
        output: CallOutput<'a>,
    },
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "output_text")]
pub(super) struct OutputText<'a> {
    pub(super) text: &'a str,
    pub(super) annotations: Vec<Json>,
}

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum CallOutput<'a> {
    Text(String),
    Parts(Vec<InputPart<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum InputPart<'a> {
    InputText { text: &'a str },
    InputImage { detail: &'static str, image_url: ImageUrl<'a> },
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

/// What identifies a text of an answer: the `textSignature` of its block.
#[derive(Serialize, Deserialize)]
pub(super) struct TextSignature {
    pub(super) v: u64,
    pub(super) id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) phase: Option<String>,
    /// Where the text comes from, as the server has it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) annotations: Vec<Json>,
}

/// One event of the answer. Members stay raw: what they must be depends on the type, and an event of an
/// unknown type may use the same names for something else.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Event<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) output_index: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) summary_index: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) content_index: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) item: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) delta: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) input: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) response: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct WireResponse<'a> {
    #[serde(borrow)]
    pub(super) id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) model: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) status: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) incomplete_details: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) output: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) service_tier: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
}

/// An item of the output: all members that some type of it has.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct WireItem<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) call_id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) name: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) input: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) content: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) summary: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) encrypted_content: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) phase: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) action: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) status: Option<&'a RawValue>,
}

/// What a search was for.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct SearchAction<'a> {
    #[serde(borrow)]
    pub(super) query: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) queries: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) url: Option<&'a RawValue>,
}

/// A piece of content of an item.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct ContentPart<'a> {
    #[serde(borrow)]
    pub(super) text: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) refusal: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) annotations: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct IncompleteDetails<'a> {
    #[serde(borrow)]
    pub(super) reason: Option<&'a RawValue>,
}

/// Token counts; the cached ones are among those of the input.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct WireUsage<'a> {
    #[serde(borrow)]
    pub(super) input_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) output_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) input_tokens_details: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) output_tokens_details: Option<&'a RawValue>,
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
