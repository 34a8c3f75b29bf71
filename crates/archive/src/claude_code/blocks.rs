//! Blocks of a message to content.

use quipu_protocol::{Content, ImageContent, Json, TextContent, ThinkingContent, ToolCall};

use crate::cut;
use crate::json::{Members, text_of};

/// The blocks of a content that is a list; a text is one block. `None` for anything else.
pub(super) fn list(content: &str) -> Option<Vec<&str>> {
    if content.starts_with('[') {
        return cut::elements(content);
    }
    content.starts_with('"').then(|| vec![content])
}

/// One block. What is of no known shape is kept whole.
pub(super) fn content(block: &str) -> Content {
    known(block).unwrap_or_else(|| Content::Other(Json::known(block)))
}

fn known(block: &str) -> Option<Content> {
    if block.starts_with('"') {
        return Some(Content::text(text_of(block)?));
    }
    let members = Members::known(block)?;
    Some(match members.string("type")?.as_ref() {
        "text" => Content::Text(TextContent { text: text_of(members.get("text")?)?, text_signature: None }),
        "thinking" => {
            let thinking = text_of(members.get("thinking")?)?;
            let signature = members.string("signature").filter(|signature| !signature.is_empty());
            // It covers the words that were signed; where a secret among them was sealed no model takes it any more.
            let signature = signature.filter(|_| !thinking.contains("[REDACTED:"));
            Content::Thinking(ThinkingContent {
                thinking,
                thinking_signature: signature.map(std::borrow::Cow::into_owned),
                redacted: None,
            })
        }
        "redacted_thinking" => Content::Thinking(ThinkingContent {
            thinking: String::new(),
            thinking_signature: Some(members.string("data")?.into_owned()),
            redacted: Some(true),
        }),
        "tool_use" => Content::ToolCall(ToolCall {
            id: members.string("id")?.into_owned().into(),
            name: members.string("name")?.into_owned(),
            arguments: Json::known(members.get("input").unwrap_or("{}")),
            thought_signature: None,
            namespace: None,
        }),
        "image" => {
            let source = Members::known(members.get("source")?)?;
            if source.string("type")? != "base64" {
                return None;
            }
            Content::Image(ImageContent {
                data: source.string("data")?.into_owned(),
                mime_type: source.string("media_type")?.into_owned(),
            })
        }
        _ => return None,
    })
}

/// Whether all of a block is in its content.
pub(super) fn is_all(block: &str) -> bool {
    let Some(members) = Members::known(block) else { return true };
    let known: &[&str] = match members.string("type").as_deref() {
        Some("text") => &["type", "text"],
        Some("thinking") => &["type", "thinking", "signature"],
        Some("redacted_thinking") => &["type", "data"],
        Some("tool_use") => &["type", "id", "name", "input"],
        Some("image") => &["type", "source"],
        Some("tool_result") => &["type", "tool_use_id", "content", "is_error"],
        _ => return true,
    };
    members.0.iter().all(|(name, _)| known.contains(&name.as_ref()))
}
