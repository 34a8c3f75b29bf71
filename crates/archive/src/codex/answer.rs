//! What a model answered at once, put together from records.

use quipu_protocol::{
    AssistantMessage, Content, Json, StopReason, TextContent, ThinkingContent, ToolCall, UnixMs, Usage,
};

use super::user_input;
use crate::intake::Item;
use crate::json::{Members, text_of};

/// An answer whose records may still be coming, and what waits for it.
#[derive(Clone)]
pub(super) struct Open {
    pub(super) item: Item,
    pub(super) answer: AssistantMessage,
    /// The records, without what stands in the answer.
    pub(super) records: Vec<Json>,
    /// Items that came after it, before it was known to be whole.
    pub(super) after: Vec<Item>,
}

impl Open {
    pub(super) fn new(item: Item, provider: &str, model: &str, timestamp: UnixMs) -> Self {
        let answer = AssistantMessage {
            api: "openai-responses".into(),
            provider: provider.to_owned(),
            model: model.to_owned(),
            timestamp,
            ..AssistantMessage::default()
        };
        Self { item, answer, records: Vec::new(), after: Vec::new() }
    }

    /// Adds a record; its call, if it is one, is returned with its name.
    pub(super) fn add(&mut self, kind: &str, payload: &Members<'_>, text: &str) -> Option<(String, String)> {
        let string = |name: &str| payload.string(name).map(std::borrow::Cow::into_owned);
        let mut call = None;
        let in_answer: &[&str] = match kind {
            "message" => {
                let elements = user_input::list(payload.get("content").unwrap_or("[]"));
                self.answer.content.extend(elements.into_iter().map(user_input::content));
                &["content"]
            }
            "reasoning" => {
                self.answer.content.push(thinking(payload));
                &["summary", "content", "encrypted_content"]
            }
            "function_call" | "custom_tool_call" | "local_shell_call" | "tool_search_call" => {
                let id = string("call_id").or_else(|| string("id")).unwrap_or_default();
                let name = string("name").unwrap_or_else(|| kind.trim_end_matches("_call").to_owned());
                let arguments = match kind {
                    "function_call" => {
                        let text = payload.get("arguments").and_then(text_of).unwrap_or_default();
                        // What is not JSON is kept as a text.
                        Json::parse(&text).or_else(|_| Json::of(&text)).unwrap_or_default()
                    }
                    "custom_tool_call" => payload
                        .0
                        .iter()
                        .find(|(name, _)| name == "input")
                        .map_or_else(Json::object, |(_, input)| {
                            Json::known(["{\"input\":", input, "}"].concat())
                        }),
                    _ => {
                        let inner =
                            payload.get("action").or_else(|| payload.get("arguments")).unwrap_or("{}");
                        Json::known(inner)
                    }
                };
                call = Some((id.clone(), name.clone()));
                let namespace = string("namespace");
                let id = id.into();
                let block = ToolCall { id, name, arguments, thought_signature: None, namespace };
                self.answer.content.push(Content::ToolCall(block));
                self.answer.stop_reason = StopReason::ToolUse;
                &["arguments", "input", "action"]
            }
            // What the provider ran by itself, and kinds that are not known.
            _ => {
                self.answer.content.push(Content::Other(Json::parse(text).unwrap_or_default()));
                return None;
            }
        };
        self.records.push(payload.without(in_answer));
        call
    }
}

/// Reasoning with the item itself as its signature, which is what the wire wants back.
fn thinking(payload: &Members<'_>) -> Content {
    let texts = |name: &str| -> Vec<String> {
        let elements = user_input::list(payload.get(name).unwrap_or("[]"));
        let text = |element: &str| Members::known(element).and_then(|members| text_of(members.get("text")?));
        elements.into_iter().filter_map(text).collect()
    };
    let mut thinking = texts("summary");
    if thinking.is_empty() {
        thinking = texts("content");
    }
    let thinking = thinking.join("\n\n");
    let signature = payload.without(&["internal_chat_message_metadata_passthrough"]);
    let is_signed = payload.string("encrypted_content").is_some() && !signature.get().contains("[REDACTED:");
    if thinking.is_empty() && !is_signed {
        return Content::Text(TextContent::default());
    }
    Content::Thinking(ThinkingContent {
        thinking,
        thinking_signature: is_signed.then(|| signature.get().to_owned()),
        redacted: None,
    })
}

/// Counts of a response; input comes with what was read from the cache in it.
pub(super) fn usage(counts: &str) -> Option<Usage> {
    let members = Members::known(counts)?;
    let number = |name: &str| members.get(name).and_then(|text| text.parse::<u64>().ok());
    let all = number("input_tokens")?;
    let cache_read = number("cached_input_tokens").unwrap_or(0).min(all);
    let cache_write = number("cache_write_input_tokens").unwrap_or(0).min(all - cache_read);
    let output = number("output_tokens").unwrap_or(0);
    Some(Usage {
        input: all - cache_read - cache_write,
        output,
        cache_read,
        cache_write,
        reasoning: number("reasoning_output_tokens").filter(|count| *count > 0),
        total_tokens: all.saturating_add(output),
        ..Usage::default()
    })
}
