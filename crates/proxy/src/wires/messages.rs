//! Messages of blocks.

use quipu_protocol::{Content, ImageContent, Json, Usage};
use serde_json::Value;

use super::{count, other, texts, thinking, tool_call};
use crate::item::{Author, ItemList};

pub(super) fn items(list: &mut ItemList, element: usize, message: &Value, seal: &dyn Fn(&str) -> String) {
    let author = match message["role"].as_str() {
        Some("assistant") => Author::Assistant,
        Some("user") => Author::User,
        role => Author::Instructions(role.unwrap_or("system").to_owned()),
    };
    let text = [message["content"].clone()];
    let blocks = match &message["content"] {
        Value::Array(blocks) => &blocks[..],
        Value::String(_) => &text[..],
        _ => &[],
    };
    for (block, value) in blocks.iter().enumerate() {
        let at = (element, block);
        if value["type"] == "tool_result" {
            let author = Author::Tool {
                call: value["tool_use_id"].as_str().unwrap_or_default().to_owned(),
                name: String::new(),
                failed: value["is_error"] == true,
            };
            let content = match &value["content"] {
                Value::Array(parts) => parts.iter().map(content).collect(),
                Value::String(text) => vec![Content::text(text.clone())],
                _ => Vec::new(),
            };
            list.push(at, author, content, seal);
        } else {
            list.push(at, author.clone(), vec![content(value)], seal);
        }
    }
}

fn content(block: &Value) -> Content {
    let text = |name: &str| block[name].as_str().unwrap_or_default();
    match block["type"].as_str() {
        None if block.is_string() => Content::text(block.as_str().unwrap_or_default()),
        Some("text") => Content::text(text("text")),
        Some("thinking") => thinking(text("thinking"), block["signature"].as_str(), None),
        Some("redacted_thinking") => thinking("", block["data"].as_str(), Some(true)),
        Some("tool_use") => tool_call(text("id"), text("name"), Json::from(&block["input"])),
        Some("image") if block["source"]["type"] == "base64" => {
            let source = |name: &str| block["source"][name].as_str().unwrap_or_default().to_owned();
            Content::Image(ImageContent { data: source("data"), mime_type: source("media_type") })
        }
        _ => other(block),
    }
}

/// The session in the id of the user: behind its last `session_`, or the member of an object in it.
pub(super) fn session(metadata: &Value) -> Option<String> {
    let text = texts(&metadata["user_id"]);
    if let Ok(object) = serde_json::from_str::<Value>(&text)
        && let Some(session) = object["session_id"].as_str()
    {
        return Some(session.to_owned());
    }
    text.rsplit_once("session_").map(|(_, session)| session.to_owned()).filter(|session| !session.is_empty())
}

pub(super) fn usage(usage: &Value) -> Usage {
    let (input, output) = (count(&usage["input_tokens"]), count(&usage["output_tokens"]));
    let cache_read = count(&usage["cache_read_input_tokens"]);
    let cache_write = count(&usage["cache_creation_input_tokens"]);
    let total_tokens = input + output + cache_read + cache_write;
    Usage { input, output, cache_read, cache_write, total_tokens, ..Usage::default() }
}
