//! Messages of one choice.

use quipu_protocol::{Content, Usage};
use serde_json::Value;

use super::{count, data_image, other, thinking, tool_call, written_arguments};
use crate::item::{Author, ItemList};

/// Where servers put reasoning.
const REASONING: [&str; 2] = ["reasoning_content", "reasoning"];

pub(super) fn items(list: &mut ItemList, element: usize, message: &Value, seal: &dyn Fn(&str) -> String) {
    let author = match message["role"].as_str() {
        Some("user") => Author::User,
        Some("assistant") | None => Author::Assistant,
        Some("tool") => Author::Tool {
            call: message["tool_call_id"].as_str().unwrap_or_default().to_owned(),
            name: message["name"].as_str().unwrap_or_default().to_owned(),
            failed: false,
        },
        Some(role) => Author::Instructions(role.to_owned()),
    };
    let mut block = 0;
    let mut push = |list: &mut ItemList, content: Vec<Content>| {
        list.push((element, block), author.clone(), content, seal);
        block += 1;
    };
    if author == Author::Assistant
        && let Some(text) = REASONING.iter().find_map(|name| message[*name].as_str())
        && !text.is_empty()
    {
        push(list, vec![thinking(text, None, None)]);
    }
    let parts: Vec<Content> = match &message["content"] {
        Value::String(text) => vec![Content::text(text.clone())],
        Value::Array(parts) => parts.iter().map(part).collect(),
        _ => Vec::new(),
    };
    if let Author::Tool { .. } = author {
        push(list, parts);
        return;
    }
    for part in parts {
        push(list, vec![part]);
    }
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        let (id, name) = (call["id"].as_str().unwrap_or_default(), call["function"]["name"].as_str());
        let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
        let call = match name {
            Some(name) => tool_call(id, name, written_arguments(arguments)),
            None => other(call),
        };
        push(list, vec![call]);
    }
}

fn part(part: &Value) -> Content {
    match part["type"].as_str() {
        Some("text") => Content::text(part["text"].as_str().unwrap_or_default()),
        Some("image_url") => {
            let address = part["image_url"]["url"].as_str().unwrap_or_default();
            data_image(address).unwrap_or_else(|| other(part))
        }
        _ => other(part),
    }
}

pub(super) fn usage(usage: &Value) -> Usage {
    let cache_read = count(&usage["prompt_tokens_details"]["cached_tokens"]);
    let (input, output) = (count(&usage["prompt_tokens"]), count(&usage["completion_tokens"]));
    let total_tokens = input + output;
    Usage { input: input.saturating_sub(cache_read), output, cache_read, total_tokens, ..Usage::default() }
}
