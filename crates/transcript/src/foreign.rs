//! Nodes of other programs: read as liberally as they can be meant.

use std::borrow::Cow;
use std::collections::HashMap;

use quipu_dag::{Blob, Node};
use quipu_protocol::{
    AssistantMessage, Body, CallId, Content, CustomMessage, Entry, ImageContent, Json, Message, StopReason,
    ThinkingContent, ToolResultMessage, UserMessage,
};
use serde::Deserialize;

use crate::Lookup;
use crate::blocks::{member, members_of, string_of, tool_call};

/// What a role means, whoever wrote it.
enum Role {
    User,
    Assistant,
    ToolResult,
    Custom,
    Internal,
    Unknown,
}

impl Role {
    fn of(role: &str) -> Self {
        match role {
            "user" | "human" => Self::User,
            "assistant" | "model" | "ai" => Self::Assistant,
            "toolResult" | "tool_result" | "tool" | "function" => Self::ToolResult,
            "custom" => Self::Custom,
            crate::INTERNAL => Self::Internal,
            _ => Self::Unknown,
        }
    }
}

pub(crate) fn decode(node: &Node, lookup: &dyn Lookup) -> Entry {
    let signatures = Signatures::of(node);
    let parts: Vec<(Option<Signature>, &Blob)> = node
        .record
        .parts
        .iter()
        .enumerate()
        .filter_map(|(index, part)| Some((signatures.of_part(index, &part.to_string()), lookup.blob(part)?)))
        .collect();
    let role = node.record.role.as_str();
    if let Some(entry) = whole(role, &parts) {
        return entry;
    }
    let result = parts.iter().rev().find(|(_, blob)| blob.kind == "tool_result").map(|(_, blob)| *blob);
    let blocks = || parts.iter().filter_map(|(signature, blob)| block(signature.as_ref(), blob)).collect();
    let timestamp = node.record.timestamp;
    Entry::Message(match Role::of(role) {
        Role::ToolResult => Message::ToolResult(tool_result(result, blocks, timestamp)),
        // Some programs send results in the user's name.
        Role::User if result.is_some() && parts.len() == 1 => {
            Message::ToolResult(tool_result(result, blocks, timestamp))
        }
        Role::User => Message::User(UserMessage { content: Body::Blocks(blocks()), timestamp }),
        Role::Assistant => Message::Assistant(assistant(node, blocks())),
        Role::Custom => Message::Custom(CustomMessage {
            custom_type: String::new(),
            content: Body::Blocks(blocks()),
            display: true,
            details: None,
            timestamp,
        }),
        Role::Internal => return Entry::Meta(Json::object()),
        Role::Unknown => {
            let content = Json::of(&blocks()).unwrap_or_default();
            let message = [("role", Json::from(serde_json::Value::from(role))), ("content", content)];
            Message::Other(object(&message))
        }
    })
}

fn object(members: &[(&str, Json)]) -> Json {
    let members: Vec<String> =
        members.iter().map(|(name, value)| format!("{}:{value}", quipu_dag::quoted(name))).collect();
    Json::parse(&format!("{{{}}}", members.join(","))).unwrap_or_else(|_| Json::object())
}

/// The entry, when one part holds the whole of it.
fn whole(role: &str, parts: &[(Option<Signature>, &Blob)]) -> Option<Entry> {
    if let Some((_, blob)) = parts.iter().find(|(_, blob)| blob.kind == "pi_entry") {
        let json = Json::parse(&blob.content).ok()?;
        let message = members_of(json.get()).and_then(|mut members| members.remove("message"));
        return Some(match message {
            Some(message) if member(&json, "type").as_deref() == Some("message") => {
                Entry::Message(message.read().unwrap_or(Message::Other(message)))
            }
            _ => Entry::Meta(json),
        });
    }
    let internal = matches!(Role::of(role), Role::Internal);
    let meta = match parts {
        [(_, blob)] if blob.kind == "pi_meta" => blob,
        _ if internal => parts.iter().map(|(_, blob)| blob).find(|blob| blob.kind == "pi_meta")?,
        _ => return None,
    };
    let json = Json::parse(&meta.content).ok()?;
    if internal {
        return Some(Entry::Meta(json));
    }
    if member(&json, "role").as_deref() == Some(role) {
        return Some(Entry::Message(json.read().unwrap_or(Message::Other(json))));
    }
    // Some write the type of an entry as the role of its node.
    let kind = member(&json, "type")?;
    (kind == role || is_entry_type(&kind)).then_some(Entry::Meta(json))
}

/// Types of entries that stand beside messages in session files; content blocks have other types.
fn is_entry_type(kind: &str) -> bool {
    matches!(
        kind,
        "branch_summary"
            | "compaction"
            | "context_edit"
            | "custom"
            | "custom_message"
            | "label"
            | "model_change"
            | "session_info"
            | "thinking_level_change"
            | "usage"
    )
}

fn assistant(node: &Node, content: Vec<Content>) -> AssistantMessage {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Model {
        provider: Option<String>,
        id: Option<String>,
    }
    let config = node.config.as_deref().and_then(members_of).unwrap_or_default();
    let (provider, model) = match config.get("model").map(|model| (string_of(model.get()), model)) {
        Some((Some(name), _)) => (Some("google".to_owned()), Some(name)),
        Some((None, object)) => {
            let Model { provider, id } = object.read().unwrap_or_default();
            (provider, id)
        }
        None => (None, None),
    };
    let calls = content.iter().any(|block| matches!(block, Content::ToolCall(_)));
    AssistantMessage {
        content,
        api: "chat".into(),
        provider: provider.unwrap_or_else(|| "unknown".into()),
        model: model.unwrap_or_else(|| "unknown".into()),
        usage: quipu_protocol::Usage::default(),
        stop_reason: if calls { StopReason::ToolUse } else { StopReason::Stop },
        timestamp: node.record.timestamp,
        response_model: None,
        response_id: None,
        error_message: None,
        raw_stop_reason: None,
    }
}

fn tool_result(
    result: Option<&Blob>,
    blocks: impl Fn() -> Vec<Content>,
    timestamp: i64,
) -> ToolResultMessage {
    let members = result.and_then(|blob| members_of(&blob.content));
    let member = |name: &str| members.as_ref().and_then(|members| members.get(name));
    let text = |name: &str| member(name).and_then(|value| string_of(value.get()));
    let content = match (member("content"), result) {
        (Some(content), _) => match content.read::<Body>() {
            Ok(body) => body.blocks().into_owned(),
            Err(_) => vec![Content::text(content.get())],
        },
        // Erased content is a string in its place.
        (None, Some(blob)) => string_of(&blob.content).map(Content::text).into_iter().collect(),
        (None, None) => blocks(),
    };
    ToolResultMessage {
        tool_call_id: CallId::from(text("toolCallId").unwrap_or_else(|| "unknown".into())),
        tool_name: text("toolName").unwrap_or_else(|| "unknown".into()),
        content,
        details: member("details").cloned(),
        usage: None,
        is_error: member("isError").is_some_and(|value| value.get() == "true"),
        timestamp,
    }
}

/// A block of a message, from one part.
fn block(signature: Option<&Signature>, blob: &Blob) -> Option<Content> {
    let content = match blob.kind.as_str() {
        "text" => Content::text(string_of(&blob.content)?),
        "thinking" => {
            Content::Thinking(ThinkingContent { thinking: string_of(&blob.content)?, ..Default::default() })
        }
        "tool_call" => Content::ToolCall(tool_call(&blob.content)?),
        "inline_data" => image(&blob.content)?,
        // Never part of the content: results, prompts, our own part, blocks that are not JSON.
        "tool_result" | "system_prompt" | "playtiss" | crate::own_part::KIND => return None,
        "pi_meta" => Json::parse(&blob.content).ok()?.read().ok()?,
        _ => guess(&blob.content)?,
    };
    Some(signed(content, signature))
}

/// A block of an unknown type, by its shape.
fn guess(content: &str) -> Option<Content> {
    if let Some(text) = string_of(content) {
        return Some(Content::text(text));
    }
    let members = members_of(content)?;
    if members.contains_key("name") && ["args", "arguments"].iter().any(|name| members.contains_key(*name)) {
        return tool_call(content).map(Content::ToolCall);
    }
    if let Some(call) = members.get("functionCall") {
        return tool_call(call.get()).map(Content::ToolCall);
    }
    if let Some(text) = members.get("text").and_then(|text| string_of(text.get())) {
        return Some(Content::text(text));
    }
    image(content).or_else(|| Json::parse(content).ok().map(Content::Other))
}

/// `{mimeType, data}`, maybe inside `inlineData`.
fn image(content: &str) -> Option<Content> {
    let mut members = members_of(content)?;
    if let Some(inner) = members.remove("inlineData") {
        members = members_of(inner.get())?;
    }
    let text = |name: &str| members.get(name).and_then(|value| string_of(value.get()));
    let mime_type = text("mimeType").or_else(|| text("mime_type"))?;
    Some(Content::Image(ImageContent { data: text("data")?, mime_type }))
}

fn signed(mut content: Content, signature: Option<&Signature>) -> Content {
    let Some(signature) = signature else { return content };
    match &mut content {
        Content::Text(text) => text.text_signature = Some(signature.text.clone()),
        Content::Thinking(thinking) => {
            thinking.thinking_signature = Some(signature.text.clone());
            thinking.redacted = signature.redacted;
        }
        Content::ToolCall(call) => call.thought_signature = Some(signature.text.clone()),
        Content::Image(_) | Content::Other(_) => {}
    }
    content
}

#[derive(Clone)]
struct Signature {
    text: String,
    redacted: Option<bool>,
}

/// The column `thought_signatures`: a list parallel to the parts, or an object by the blobs' hashes.
enum Signatures {
    None,
    List(Vec<Json>),
    ByHash(HashMap<String, Json>),
}

impl Signatures {
    fn of(node: &Node) -> Self {
        let Some(text) = node.thought_signatures.as_deref() else { return Self::None };
        match serde_json::from_str(text) {
            Ok(list) => Self::List(list),
            Err(_) => members_of(text).map_or(Self::None, Self::ByHash),
        }
    }

    fn of_part(&self, index: usize, hash: &str) -> Option<Signature> {
        let json = match self {
            Self::None => None,
            Self::List(list) => list.get(index),
            Self::ByHash(by_hash) => by_hash.get(hash),
        }?;
        if let Some(text) = string_of(json.get()) {
            return Some(Signature { text, redacted: None });
        }
        let members = members_of(json.get())?;
        let text: Cow<'_, str> = string_of(members.get("sig")?.get())?.into();
        let redacted = members.get("redacted").and_then(|value| value.read().ok());
        Some(Signature { text: text.into_owned(), redacted })
    }
}
