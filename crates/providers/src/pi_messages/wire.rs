//! The shapes of the wire. Messages are those of the protocol.

use quipu_protocol::Json;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// What stands before the context.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Head<'a> {
    pub(super) model: &'a str,
    pub(super) options: Options<'a>,
    pub(super) context: Context<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Options<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reasoning: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cache_retention: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) session_id: Option<&'a str>,
    /// What the user adds for this model.
    #[serde(flatten)]
    pub(super) extra: &'a Map<String, Value>,
}

/// The context, up to its messages.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Context<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) system_prompt: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tools: Vec<Tool<'a>>,
}

#[derive(Serialize)]
pub(super) struct Tool<'a> {
    pub(super) name: &'a str,
    pub(super) description: &'a str,
    pub(super) parameters: Json,
}

/// Nothing follows the messages.
#[derive(Serialize)]
pub(super) struct BodyTail {}

/// One event of the answer. Members stay raw: what they must be depends on the type.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Event<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) content_index: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) delta: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) content: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) content_signature: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) redacted: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) tool_name: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) tool_call: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) reason: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) usage: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) response_id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error_message: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

/// A call as it is in the end.
#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct WholeCall<'a> {
    #[serde(borrow)]
    pub(super) arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) thought_signature: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct WireUsage<'a> {
    #[serde(borrow)]
    pub(super) input: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) output: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) cache_read: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) cache_write: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) reasoning: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) cost: Option<&'a RawValue>,
}
