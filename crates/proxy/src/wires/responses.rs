//! Items.

use quipu_protocol::{Content, Usage};
use serde_json::Value;

use super::{count, data_image, other, texts, thinking, tool_call, written_arguments};
use crate::item::{Author, ItemList};

pub(super) fn items(list: &mut ItemList, element: usize, item: &Value, seal: &dyn Fn(&str) -> String) {
    let text = |name: &str| item[name].as_str().unwrap_or_default();
    if let Some(alone) = item.as_str() {
        list.push((element, 0), Author::User, vec![Content::text(alone)], seal);
        return;
    }
    match item["type"].as_str() {
        Some("message") | None => {
            let author = match text("role") {
                "user" => Author::User,
                "assistant" => Author::Assistant,
                role => Author::Instructions(role.to_owned()),
            };
            let parts = match &item["content"] {
                Value::String(text) => vec![Content::text(text.clone())],
                Value::Array(parts) => parts.iter().map(part).collect(),
                _ => Vec::new(),
            };
            for (block, part) in parts.into_iter().enumerate() {
                list.push((element, block), author.clone(), vec![part], seal);
            }
        }
        Some("reasoning") => {
            let said = [texts(&item["summary"]), texts(&item["content"])];
            let said: Vec<&str> = said.iter().map(String::as_str).filter(|text| !text.is_empty()).collect();
            let content = thinking(&said.join("\n\n"), item["encrypted_content"].as_str(), None);
            list.push((element, 0), Author::Assistant, vec![content], seal);
        }
        Some("function_call") => {
            let call = tool_call(text("call_id"), text("name"), written_arguments(text("arguments")));
            list.push((element, 0), Author::Assistant, vec![call], seal);
        }
        Some("custom_tool_call") => {
            let input = quipu_protocol::Json::from(&serde_json::json!({ "input": item["input"] }));
            let call = tool_call(text("call_id"), text("name"), input);
            list.push((element, 0), Author::Assistant, vec![call], seal);
        }
        Some("function_call_output" | "custom_tool_call_output") => {
            let author =
                Author::Tool { call: text("call_id").to_owned(), name: String::new(), failed: false };
            let content = match &item["output"] {
                Value::String(text) => vec![Content::text(text.clone())],
                Value::Array(parts) => parts.iter().map(part).collect(),
                Value::Null => Vec::new(),
                output => vec![other(output)],
            };
            list.push((element, 0), author, content, seal);
        }
        Some(_) => list.push((element, 0), Author::Assistant, vec![other(item)], seal),
    }
}

fn part(part: &Value) -> Content {
    match part["type"].as_str() {
        Some("input_text" | "output_text" | "text" | "summary_text") => {
            Content::text(part["text"].as_str().unwrap_or_default())
        }
        Some("input_image") => {
            data_image(part["image_url"].as_str().unwrap_or_default()).unwrap_or_else(|| other(part))
        }
        _ => other(part),
    }
}

pub(super) fn usage(usage: &Value) -> Usage {
    let cache_read = count(&usage["input_tokens_details"]["cached_tokens"]);
    let (input, output) = (count(&usage["input_tokens"]), count(&usage["output_tokens"]));
    let reasoning = usage["output_tokens_details"]["reasoning_tokens"].as_u64();
    let total_tokens = input + output;
    Usage {
        input: input.saturating_sub(cache_read),
        output,
        cache_read,
        reasoning,
        total_tokens,
        ..Usage::default()
    }
}
