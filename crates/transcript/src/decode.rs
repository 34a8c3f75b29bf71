//! Our nodes back to entries.

use quipu_dag::{BlobId, Node};
use quipu_protocol::{
    AssistantMessage, Body, CallId, Compaction, CompactionSummaryMessage, Content, CustomMessage, Entry,
    ImageContent, Json, Message, StepInfo, ToolResultMessage, UnixMs, Usage, UserMessage,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use crate::blocks::{image_data, members_of, string_of, tool_call};
use crate::exact::read;
use crate::own_part::{Mark, OwnPart, WholeLocation, present};
use crate::{DecodedEntry, Lookup};

pub(crate) fn decode(node: &Node, own: &OwnPart<'_>, parts: &[BlobId], lookup: &dyn Lookup) -> DecodedEntry {
    let mut step: StepInfo = field(own.step);
    let extra: Vec<(String, Json)> = field(own.extra);
    step.extra.extend(extra);
    (step.provenance, step.added) = (own.provenance(), own.added());
    step.files = own.files();
    step.merge = own.merge();
    let entry = match own.entry.as_ref() {
        "message" => message(node, own, parts, lookup).map(Entry::Message),
        "session" => own.session.and_then(|raw| read(raw.get())).map(Entry::Session),
        "epoch" => own.epoch.and_then(|raw| read(raw.get())).map(Entry::Epoch),
        "compaction" => compaction(node, own, parts, lookup).map(Entry::Compaction),
        "meta" => whole(own, parts, lookup).map(Entry::Meta),
        _ => None,
    };
    DecodedEntry { entry: entry.unwrap_or_else(|| Entry::Meta(Json::object())), step }
}

fn field<T: DeserializeOwned + Default>(raw: Option<&RawValue>) -> T {
    raw.and_then(|raw| read(raw.get())).unwrap_or_default()
}

fn message(node: &Node, own: &OwnPart<'_>, parts: &[BlobId], lookup: &dyn Lookup) -> Option<Message> {
    if own.other {
        return whole(own, parts, lookup).map(Message::Other);
    }
    if !matches!(own.whole(), WholeLocation::No) {
        return whole(own, parts, lookup).and_then(|json| json.read().ok());
    }
    Some(match node.record.role.as_str() {
        "assistant" => {
            let mut assistant: AssistantMessage = own.message.and_then(|raw| read(raw.get()))?;
            assistant.content = content(own, parts, lookup);
            Message::Assistant(assistant)
        }
        "toolResult" => Message::ToolResult(tool_result(own, parts, lookup)),
        "custom" => {
            #[derive(Deserialize, Default)]
            #[serde(rename_all = "camelCase", default)]
            struct Fields {
                custom_type: String,
                display: bool,
                #[serde(deserialize_with = "present")]
                details: Option<Json>,
                timestamp: UnixMs,
            }
            let Fields { custom_type, display, details, timestamp } = field(own.message);
            let content = body(own, parts, lookup);
            Message::Custom(CustomMessage { custom_type, content, display, details, timestamp })
        }
        _ => {
            #[derive(Deserialize, Default)]
            struct Fields {
                #[serde(default)]
                timestamp: UnixMs,
            }
            let Fields { timestamp } = field(own.message);
            Message::User(UserMessage { content: body(own, parts, lookup), timestamp })
        }
    })
}

fn compaction(node: &Node, own: &OwnPart<'_>, parts: &[BlobId], lookup: &dyn Lookup) -> Option<Compaction> {
    let mut compaction: Compaction = own.compaction.and_then(|raw| read(raw.get()))?;
    // Without its words, when those were erased or lost.
    if node.record.role == crate::INTERNAL {
        if let Some((summary, tokens_before)) =
            whole(own, parts, lookup).as_ref().and_then(crate::listing::summary_in)
        {
            compaction = Compaction { summary, tokens_before, ..compaction };
        }
    } else if let Some(Message::CompactionSummary(message)) =
        whole(own, parts, lookup).and_then(|json| json.read().ok())
    {
        let CompactionSummaryMessage { summary, tokens_before, timestamp } = message;
        compaction = Compaction { summary, tokens_before, timestamp, ..compaction };
    }
    Some(compaction)
}

fn whole(own: &OwnPart<'_>, parts: &[BlobId], lookup: &dyn Lookup) -> Option<Json> {
    match own.whole() {
        WholeLocation::No => None,
        WholeLocation::Here(json) => Some(json),
        WholeLocation::InMeta => {
            let blob =
                parts.iter().find_map(|part| lookup.blob(part).filter(|blob| blob.kind == "pi_meta"))?;
            crate::listing::unlisted(&blob.content, own.listed, own.wrapped)
        }
    }
}

fn body(own: &OwnPart<'_>, parts: &[BlobId], lookup: &dyn Lookup) -> Body {
    let blocks = content(own, parts, lookup);
    if own.plain {
        return Body::Text(blocks.iter().find_map(Content::as_text).unwrap_or_default().into());
    }
    Body::Blocks(blocks)
}

fn content(own: &OwnPart<'_>, parts: &[BlobId], lookup: &dyn Lookup) -> Vec<Content> {
    let blocks = parts.iter().map(|part| {
        let blob = lookup.blob(part)?;
        match blob.kind.as_str() {
            "text" => string_of(&blob.content).map(Content::text),
            "thinking" => string_of(&blob.content).map(|thinking| {
                Content::Thinking(quipu_protocol::ThinkingContent { thinking, ..Default::default() })
            }),
            "tool_call" => tool_call(&blob.content).map(Content::ToolCall),
            _ => None,
        }
    });
    merge(own, blocks, lookup)
}

fn tool_result(own: &OwnPart<'_>, parts: &[BlobId], lookup: &dyn Lookup) -> ToolResultMessage {
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct Fields {
        tool_call_id: String,
        tool_name: String,
        is_error: bool,
        #[serde(deserialize_with = "present")]
        details: Option<Json>,
        usage: Option<Usage>,
        timestamp: UnixMs,
    }
    let fields: Fields = field(own.message);
    let blob = parts.iter().find_map(|part| lookup.blob(part).filter(|blob| blob.kind == "tool_result"));
    let texts: Vec<Option<Content>> = match blob {
        None => Vec::new(),
        Some(blob) => match members_of(&blob.content) {
            Some(mut members) => {
                let items: Vec<Json> =
                    members.remove("content").and_then(|json| json.read().ok()).unwrap_or_default();
                items.iter().map(|item| item.read().ok()).collect()
            }
            // Erased content is a string in its place.
            None => vec![string_of(&blob.content).map(Content::text)],
        },
    };
    ToolResultMessage {
        tool_call_id: CallId::from(fields.tool_call_id),
        tool_name: fields.tool_name,
        content: merge(own, texts.into_iter(), lookup),
        details: fields.details,
        usage: fields.usage,
        is_error: fields.is_error,
        timestamp: fields.timestamp,
    }
}

/// Puts images and other blocks back between those of the parts, and each mark on its block. A part that is
/// missing keeps its place, so that the rest stays in order.
fn merge(
    own: &OwnPart<'_>,
    parts: impl Iterator<Item = Option<Content>>,
    lookup: &dyn Lookup,
) -> Vec<Content> {
    let images = own.images().into_iter().map(|image| {
        let data = image.chunk.and_then(|chunk| lookup.chunk(&chunk)).map(image_data).or(image.data);
        let mime_type = image.mime_type;
        (image.index, data.map(|data| Content::Image(ImageContent { data, mime_type })))
    });
    let others = own.others().into_iter().map(|other| {
        let block = other.block.map(Content::Other);
        (other.index, block.or_else(|| other.content.and_then(|json| json.read().ok())))
    });
    let mut added: Vec<(u64, Option<Content>)> = images.chain(others).collect();
    added.sort_by_key(|(index, _)| *index);
    let mut added = added.into_iter().peekable();
    let marks = own.marks();
    let mut marks = marks.iter().peekable();

    let mut blocks = Vec::new();
    let mut index = 0;
    for part in parts {
        while let Some((_, block)) = added.next_if(|(at, _)| *at <= index) {
            blocks.extend(block);
            index += 1;
        }
        while marks.next_if(|mark| mark.index < index).is_some() {}
        let mark = marks.peek().filter(|mark| mark.index == index);
        blocks.extend(part.map(|mut part| {
            if let Some(mark) = mark {
                apply(mark, &mut part);
            }
            part
        }));
        index += 1;
    }
    blocks.extend(added.filter_map(|(_, block)| block));
    blocks
}

fn apply(mark: &Mark, block: &mut Content) {
    match block {
        Content::Text(text) => text.text_signature = mark.signature.clone(),
        Content::Thinking(thinking) => {
            thinking.thinking_signature = mark.signature.clone();
            thinking.redacted = mark.redacted;
        }
        Content::ToolCall(call) => {
            call.thought_signature = mark.signature.clone();
            call.namespace = mark.namespace.clone();
            if let Some(arguments) = &mark.arguments {
                call.arguments = arguments.clone();
            }
        }
        Content::Image(_) | Content::Other(_) => {}
    }
}
