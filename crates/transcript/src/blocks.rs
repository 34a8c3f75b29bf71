//! The blocks of a message's content: parts that everyone reads, and notes in our part for the rest.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use quipu_dag::{Blob, BlobId, ChunkId, quoted, sha256};
use quipu_protocol::{CallId, Content, ImageContent, Json, TextContent, ThinkingContent, ToolCall};
use serde::Serialize;

use crate::exact::{Canonical, exact, plain};
use crate::own_part::Draft;

/// Content that is split up.
#[derive(Default)]
pub(crate) struct Blocks {
    pub(crate) blobs: Vec<Blob>,
    pub(crate) chunks: Vec<(ChunkId, Vec<u8>)>,
    marks: Vec<Canonical>,
    images: Vec<Canonical>,
    others: Vec<Canonical>,
}

impl Blocks {
    /// One part and nothing beside it.
    pub(crate) fn one(blob: Blob) -> Self {
        Self { blobs: vec![blob], ..Self::default() }
    }

    /// The content of any message but a tool result.
    pub(crate) fn of(content: &[Content]) -> Self {
        let mut blocks = Self::default();
        for (index, block) in content.iter().enumerate() {
            match block {
                Content::Text(TextContent { text, text_signature }) => {
                    blocks.blobs.push(Blob::text(text));
                    blocks.mark(index, [("signature", string(text_signature.as_deref()))]);
                }
                Content::Thinking(ThinkingContent { thinking, thinking_signature, redacted }) => {
                    blocks.blobs.push(Blob::string("thinking", thinking));
                    let signature = string(thinking_signature.as_deref());
                    blocks
                        .mark(index, [("signature", signature), ("redacted", redacted.map(Canonical::from))]);
                }
                Content::ToolCall(call) => blocks.tool_call(index, call),
                Content::Image(image) => blocks.image(index, image),
                Content::Other(json) => blocks.other(index, ("block", exact(json))),
            }
        }
        blocks
    }

    /// The content of a tool result: its texts go inside one blob, as canonical JSON beside.
    pub(crate) fn of_result(content: &[Content]) -> (Self, Vec<String>) {
        let mut blocks = Self::default();
        let mut texts = Vec::new();
        for (index, block) in content.iter().enumerate() {
            match block {
                Content::Text(TextContent { text, text_signature }) => {
                    texts.push(format!("{{\"text\":{},\"type\":\"text\"}}", quoted(text)));
                    blocks.mark(index, [("signature", string(text_signature.as_deref()))]);
                }
                Content::Image(image) => blocks.image(index, image),
                Content::Thinking(_) | Content::ToolCall(_) => {
                    blocks.other(index, ("content", exact(&json_of(block))));
                }
                Content::Other(json) => blocks.other(index, ("block", exact(json))),
            }
        }
        (blocks, texts)
    }

    /// Writes the notes into our part.
    pub(crate) fn describe(&mut self, draft: &mut Draft) {
        for (chunk, _) in &self.chunks {
            draft.refer(chunk.0);
        }
        draft.set_list("marks", std::mem::take(&mut self.marks));
        draft.set_list("images", std::mem::take(&mut self.images));
        draft.set_list("others", std::mem::take(&mut self.others));
    }

    fn tool_call(&mut self, index: usize, call: &ToolCall) {
        let ToolCall { id, name, arguments, thought_signature, namespace } = call;
        let (id, name) = (quoted(id.as_str()), quoted(name));
        // Members in canonical order, so that a check needs no parser unless the arguments do.
        let content = |arguments: &str| format!("{{\"arguments\":{arguments},\"id\":{id},\"name\":{name}}}");
        let mut verbatim = None;
        let blob = Blob::new("tool_call", content(arguments.get())).unwrap_or_else(|_| {
            // Nested deeper than other readers follow: they get the arguments as a text.
            verbatim = Some(exact(arguments));
            Blob::from_canonical("tool_call", content(&quoted(arguments.get())))
        });
        self.blobs.push(blob);
        let signature = string(thought_signature.as_deref());
        let namespace = string(namespace.as_deref());
        self.mark(index, [("signature", signature), ("namespace", namespace), ("arguments", verbatim)]);
    }

    fn image(&mut self, index: usize, image: &ImageContent) {
        let ImageContent { data, mime_type } = image;
        let bytes = STANDARD.decode(data).ok().filter(|bytes| STANDARD.encode(bytes) == *data);
        let stored = match bytes {
            Some(bytes) => {
                let chunk = ChunkId(sha256(&bytes));
                self.chunks.push((chunk, bytes));
                ("chunk", plain(&chunk))
            }
            None => ("data", Canonical::from(data.as_str())),
        };
        let mime_type = ("mimeType", Canonical::from(mime_type.as_str()));
        self.images.push(Canonical::object([("index", (index as u64).into()), mime_type, stored]));
    }

    fn other(&mut self, index: usize, stored: (&'static str, Canonical)) {
        self.others.push(Canonical::object([("index", (index as u64).into()), stored]));
    }

    fn mark<const N: usize>(&mut self, index: usize, notes: [(&'static str, Option<Canonical>); N]) {
        let mut notes: Vec<_> = notes.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        if !notes.is_empty() {
            notes.push(("index", (index as u64).into()));
            self.marks.push(Canonical::object(notes));
        }
    }
}

fn string(text: Option<&str>) -> Option<Canonical> {
    text.map(Canonical::from)
}

/// The base64 of an image's bytes, as it was before they became a chunk.
pub(crate) fn image_data(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// A string of a blob; lone surrogates are seen as U+FFFD. `None` when it is no string.
pub(crate) fn string_of(content: &str) -> Option<String> {
    serde_json::from_str(content)
        .ok()
        .or_else(|| serde_json::from_str(&quipu_protocol::without_lone_surrogates(content)).ok())
}

/// The members of a JSON object, as text; `None` when it is none.
pub(crate) fn members_of(content: &str) -> Option<std::collections::HashMap<String, Json>> {
    serde_json::from_str(content)
        .ok()
        .or_else(|| serde_json::from_str(&quipu_protocol::without_lone_surrogates(content)).ok())
}

/// Plain data always has a JSON text; `null` stands for the impossible.
pub(crate) fn json_of<T: Serialize>(data: &T) -> Json {
    Json::of(data).unwrap_or_default()
}

/// A call as other programs write it, too.
pub(crate) fn tool_call(content: &str) -> Option<ToolCall> {
    let mut members = members_of(content)?;
    let text = |json: Option<Json>| json.and_then(|json| string_of(json.get()));
    // A call without an id is known by the hash of what it asks for.
    let id = text(members.remove("id"))
        .or_else(|| quipu_dag::hash_json(content).ok().map(|hash| BlobId(hash).to_string()))?;
    let arguments = ["arguments", "args", "input"].iter().find_map(|name| members.remove(*name));
    Some(ToolCall {
        id: CallId::from(id),
        name: text(members.remove("name")).unwrap_or_else(|| "unknown".into()),
        arguments: arguments.unwrap_or_else(Json::object),
        thought_signature: None,
        namespace: None,
    })
}

pub(crate) fn member(json: &Json, name: &str) -> Option<String> {
    members_of(json.get())?.get(name).and_then(|value| string_of(value.get()))
}

/// Whether there is something in a block.
pub(crate) fn says_something(block: &Content) -> bool {
    match block {
        Content::Text(text) => !text.text.trim().is_empty(),
        Content::Thinking(thinking) => {
            !thinking.thinking.trim().is_empty() || thinking.thinking_signature.is_some()
        }
        Content::Image(_) | Content::ToolCall(_) | Content::Other(_) => true,
    }
}

/// Whether a block can stand on the user's side.
pub(crate) fn is_input(block: &Content) -> bool {
    match block {
        Content::Text(_) | Content::Image(_) | Content::Other(_) => true,
        Content::Thinking(_) | Content::ToolCall(_) => false,
    }
}
