//! The wires: what their requests and answers say.

mod completions;
mod messages;
mod responses;

use http::HeaderMap;
use quipu_archive::ConversationDigest;
use quipu_protocol::{
    AssistantMessage, CallId, Content, ImageContent, Json, ThinkingContent, ToolCall, Usage,
};
use serde_json::Value;

use crate::body::RequestBody;
use crate::item::{Item, ItemList};
use crate::wire_kind::WireKind;

/// What a body says beside its messages.
pub(crate) struct RequestFacts {
    pub(crate) model: String,
    pub(crate) is_stream: bool,
    pub(crate) system: String,
    /// How many tools it declares, and their JSON text.
    pub(crate) tools: usize,
    pub(crate) tools_text: String,
    /// The client's own id of the session.
    pub(crate) session: Option<String>,
    /// The answer that it goes on from, where the history is kept at the server.
    pub(crate) previous: Option<String>,
    /// Where the client works.
    pub(crate) cwd: String,
}

/// What an answer in one body says.
pub(crate) struct AnswerFacts {
    pub(crate) content: Vec<Content>,
    pub(crate) id: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) usage: Usage,
    pub(crate) stop: Option<String>,
}

/// Headers in which clients send ids of sessions, in the order in which they are believed.
const SESSION_HEADERS: [&str; 6] = [
    "session-id",
    "session_id",
    "x-session-id",
    "conversation_id",
    "x-session-affinity",
    "x-client-session-id",
];

impl WireKind {
    /// The conversation of a body, which goes on from another one.
    pub(crate) fn items(
        self,
        body: &RequestBody,
        after: ConversationDigest,
        seal: &dyn Fn(&str) -> String,
    ) -> Vec<Item> {
        let mut list = ItemList::after(after);
        for (element, piece) in body.elements.iter().enumerate() {
            let value = piece.value();
            match self {
                Self::Messages => messages::items(&mut list, element, &value, seal),
                Self::Completions => completions::items(&mut list, element, &value, seal),
                Self::Responses => responses::items(&mut list, element, &value, seal),
            }
        }
        name_results(&mut list.items);
        list.items
    }

    /// What a body says beside its messages. `items` are its own.
    pub(crate) fn facts(self, body: &RequestBody, items: &[Item], headers: &HeaderMap) -> RequestFacts {
        let system = match self {
            Self::Messages => texts(&body.value("system")),
            Self::Responses => body.text("instructions").unwrap_or_default(),
            Self::Completions => String::new(),
        };
        let tools = body.member("tools");
        let tools_text = tools.map_or_else(|| "[]".to_owned(), |raw| raw.get().to_owned());
        let count = body.value("tools").as_array().map_or(0, Vec::len);
        let cwd = working_directory(&system, items);
        RequestFacts {
            model: body.text("model").unwrap_or_default(),
            is_stream: body.member("stream").is_some_and(|raw| raw.get() == "true"),
            system,
            tools: count,
            tools_text,
            session: self.session(body, headers),
            previous: self.previous(body),
            cwd,
        }
    }

    /// The client's own id of the session of a request.
    pub(crate) fn session(self, body: &RequestBody, headers: &HeaderMap) -> Option<String> {
        let of_header = || {
            let value = SESSION_HEADERS.iter().find_map(|name| headers.get(*name));
            value.and_then(|value| value.to_str().ok()).map(str::to_owned)
        };
        let own = match self {
            Self::Messages => messages::session(&body.value("metadata")),
            Self::Completions | Self::Responses => None,
        };
        let key = || body.text("prompt_cache_key").filter(|_| self != Self::Messages);
        own.or_else(of_header).or_else(key).filter(|id| !id.trim().is_empty())
    }

    /// The answer that a request goes on from, where the history is kept at the server.
    pub(crate) fn previous(self, body: &RequestBody) -> Option<String> {
        body.text("previous_response_id").filter(|_| self == Self::Responses)
    }

    /// What an answer in one body says; `None` for anything else.
    pub(crate) fn answer(self, body: &Value) -> Option<AnswerFacts> {
        let seal = |text: &str| text.to_owned();
        let mut list = ItemList::default();
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let (usage, stop) = match self {
            Self::Messages => {
                body.get("content")?.as_array()?;
                messages::items(&mut list, 0, body, &seal);
                (messages::usage(&body["usage"]), text(&body["stop_reason"]))
            }
            Self::Completions => {
                let choice = body.get("choices")?.get(0)?;
                completions::items(&mut list, 0, choice.get("message")?, &seal);
                (completions::usage(&body["usage"]), text(&choice["finish_reason"]))
            }
            Self::Responses => {
                for (element, item) in body.get("output")?.as_array()?.iter().enumerate() {
                    responses::items(&mut list, element, item, &seal);
                }
                (responses::usage(&body["usage"]), text(&body["status"]))
            }
        };
        let content = list.items.into_iter().flat_map(|item| item.content).collect();
        Some(AnswerFacts { content, id: text(&body["id"]), model: text(&body["model"]), usage, stop })
    }
}

/// Names the tools of results, which only their calls name.
fn name_results(items: &mut [Item]) {
    let mut names = std::collections::HashMap::new();
    for item in items {
        if let Some(call) = item.content.iter().find_map(Content::as_tool_call) {
            names.insert(call.id.as_str().to_owned(), call.name.clone());
        }
        if let crate::item::Author::Tool { call, name, .. } = &mut item.author
            && name.is_empty()
            && let Some(known) = names.get(call.as_str())
        {
            name.clone_from(known);
        }
    }
}

/// How texts name the directory that a client works in.
const DIRECTORIES: [(&str, &str); 3] =
    [("<cwd>", "</cwd>"), ("orking directory: ", "\n"), ("orking directory is ", "\n")];

/// The directory that a client says it works in; empty where it says none.
fn working_directory(system: &str, items: &[Item]) -> String {
    let first = items.iter().take(8).flat_map(|item| item.content.iter().filter_map(Content::as_text));
    for text in std::iter::once(system).chain(first) {
        for (before, after) in DIRECTORIES {
            let Some(at) = text.find(before) else { continue };
            let rest = &text[at + before.len()..];
            let path = rest.split(after).next().unwrap_or_default().lines().next().unwrap_or_default();
            let path = path.trim().trim_end_matches('.');
            if path.starts_with('/') && path.len() < 4_096 {
                return path.to_owned();
            }
        }
    }
    String::new()
}

/// The texts of a text or of a list of blocks.
pub(crate) fn texts(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let texts = blocks.iter().filter_map(|block| block["text"].as_str());
            texts.collect::<Vec<_>>().join("\n\n")
        }
        _ => String::new(),
    }
}

fn thinking(text: &str, signature: Option<&str>, redacted: Option<bool>) -> Content {
    let thinking_signature = signature.filter(|text| !text.is_empty()).map(str::to_owned);
    Content::Thinking(ThinkingContent { thinking: text.to_owned(), thinking_signature, redacted })
}

fn tool_call(id: &str, name: &str, arguments: Json) -> Content {
    Content::ToolCall(ToolCall {
        id: CallId::from(id),
        name: name.to_owned(),
        arguments,
        thought_signature: None,
        namespace: None,
    })
}

/// Arguments that are written as text: as JSON where they are, else as a string.
fn written_arguments(text: &str) -> Json {
    match Json::parse(text) {
        Ok(json) => json,
        Err(_) if text.trim().is_empty() => Json::object(),
        Err(_) => Json::of(text).unwrap_or_default(),
    }
}

/// An image in a `data:` address.
fn data_image(address: &str) -> Option<Content> {
    let (kind, data) = address.strip_prefix("data:")?.split_once(";base64,")?;
    Some(Content::Image(ImageContent { data: data.to_owned(), mime_type: kind.to_owned() }))
}

fn other(value: &Value) -> Content {
    let mut value = value.clone();
    if let Some(object) = value.as_object_mut() {
        object.remove("cache_control");
    }
    Content::Other(Json::from(&value))
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

/// An answer of `api` without content.
pub(crate) fn blank_answer(api: &str, provider: &str, model: &str) -> AssistantMessage {
    AssistantMessage {
        api: api.to_owned(),
        provider: provider.to_owned(),
        model: model.to_owned(),
        ..AssistantMessage::default()
    }
}
