//! Messages of a conversation to items.

use std::collections::{HashMap, HashSet};

use quipu_protocol::{
    AssistantMessage, Body, Content, Entry, ImageContent, Json, Message, StopReason, ThinkingContent,
    ToolCall, ToolResultMessage, UnixMs, UserMessage,
};
use quipu_seal::Sealer;

use crate::ProblemKind;
use crate::export::{Files, begin, record, title};
use crate::intake::{Item, ItemParent, NodeBuilder, Outline, Stop};
use crate::json::{Members, list, text_of, time_of};

/// Members of a conversation that stay as long as it does.
const KEPT: [&str; 3] = ["uuid", "account", "project_uuid"];
/// Those that are told elsewhere.
const TOLD: [&str; 6] =
    ["name", "created_at", "updated_at", "chat_messages", "current_leaf_message_uuid", "model"];
/// Members of a message that stand elsewhere.
const ELSEWHERE: [&str; 9] = [
    "uuid",
    "text",
    "content",
    "sender",
    "created_at",
    "updated_at",
    "parent_message_uuid",
    "attachments",
    "index",
];

pub(super) fn read(
    conversation: &Members<'_>,
    outline: &Outline,
    files: &mut Files,
    sealer: &Sealer,
    out: &mut NodeBuilder,
) -> Result<(), Stop> {
    let time = conversation.string("created_at").and_then(|time| time_of(&time));
    let owner = begin(conversation, outline, time, &KEPT, &TOLD, out);
    let messages = list(conversation.get("chat_messages").unwrap_or("[]"));
    let messages: Vec<Option<Members<'_>>> = messages.into_iter().map(Members::of).collect();
    let mut reader = Reader {
        out,
        files,
        sealer,
        owner,
        time,
        model: conversation.get("model").and_then(text_of).unwrap_or_default(),
        session: outline.session.as_str(),
        ids: messages.iter().flatten().filter_map(|one| one.string("uuid")).map(Into::into).collect(),
        ends: HashMap::new(),
        last: ItemParent::Nothing,
        line: 0,
        is_head: true,
    };
    let current =
        conversation.string("current_leaf_message_uuid").filter(|id| reader.ids.contains(id.as_ref()));
    for (at, message) in messages.iter().enumerate() {
        reader.line = at as u64 + 1;
        let Some(message) = message else {
            reader.out.report.problem(reader.line, ProblemKind::NotAnEntry, "");
            continue;
        };
        reader.is_head = current.is_none() || message.string("uuid") == current;
        reader.message(message)?;
    }
    title(out, owner, outline.session.as_str(), conversation.get("name").and_then(text_of).as_deref())
}

struct Reader<'a> {
    out: &'a mut NodeBuilder,
    files: &'a mut Files,
    sealer: &'a Sealer,
    owner: usize,
    /// Of the conversation.
    time: Option<UnixMs>,
    model: String,
    session: &'a str,
    /// Of all messages.
    ids: HashSet<String>,
    /// The last item of each message that came.
    ends: HashMap<String, String>,
    /// The item that came last.
    last: ItemParent,
    /// The place of the message in the conversation, from 1.
    line: u64,
    is_head: bool,
}

impl Reader<'_> {
    fn message(&mut self, message: &Members<'_>) -> Result<(), Stop> {
        let id = message.string("uuid").filter(|id| !id.is_empty()).map(std::borrow::Cow::into_owned);
        let id = id.unwrap_or_else(|| format!("{}#{}", self.session, self.line));
        let time = message.string("created_at").and_then(|time| time_of(&time)).or(self.time);
        if let Some(parent) = message.get("parent_message_uuid") {
            let parent = text_of(parent).filter(|parent| !is_root(parent));
            self.last = match parent {
                None => ItemParent::Nothing,
                Some(parent) => match self.ends.get(&parent) {
                    Some(end) => ItemParent::Item(end.clone()),
                    None => ItemParent::Item(parent),
                },
            };
        }
        let before = self.last.clone();
        match message.string("sender").as_deref() {
            Some("assistant") => self.answer(message, &id, time)?,
            Some("human") => self.prompt(message, &id, time)?,
            _ => {}
        }
        if self.last == before {
            // Nothing that a model would be shown, but not nothing.
            self.put(id.clone(), record("message", &message.without(&["updated_at"])), time, None)?;
        }
        if let ItemParent::Item(last) = &self.last {
            self.ends.insert(id, last.clone());
        }
        Ok(())
    }

    /// The members of a message that no entry holds, and the blocks that are no content.
    fn kept(message: &Members<'_>, beside: Vec<Json>) -> Option<Json> {
        #[derive(serde::Serialize)]
        struct UnmappedMembers {
            message: Json,
            #[serde(skip_serializing_if = "Vec::is_empty")]
            blocks: Vec<Json>,
        }
        Json::of(&UnmappedMembers { message: message.without(&ELSEWHERE), blocks: beside }).ok()
    }

    fn prompt(&mut self, message: &Members<'_>, id: &str, time: Option<UnixMs>) -> Result<(), Stop> {
        let mut content = Vec::new();
        let mut beside = Vec::new();
        for block in list(message.get("content").unwrap_or("[]")) {
            let members = Members::of(block).unwrap_or_else(|| Members(Vec::new()));
            match members.get("text").and_then(text_of).filter(|text| !text.is_empty()) {
                Some(text) => {
                    content.push(Content::text(text));
                    beside.extend(rest_of(&members, &["type", "text"]));
                }
                None => {
                    content
                        .extend(image(&members).or_else(|| Some(Content::Other(Json::parse(block).ok()?))));
                }
            }
        }
        if content.is_empty() {
            let text = message.get("text").and_then(text_of).filter(|text| !text.is_empty());
            content.extend(text.map(Content::text));
        }
        for attachment in list(message.get("attachments").unwrap_or("[]")).into_iter().filter_map(Members::of)
        {
            let name = attachment.get("file_name").and_then(text_of).unwrap_or_default();
            let text = attachment.get("extracted_content").and_then(text_of).filter(|text| !text.is_empty());
            match text {
                Some(text) => content.push(Content::text(format!("{name}:\n\n{text}"))),
                None => content.extend(self.file(&attachment, &name)),
            }
            beside.extend(rest_of(&attachment, &["extracted_content"]));
        }
        for file in list(message.get("files").unwrap_or("[]")).into_iter().filter_map(Members::of) {
            let name = file.get("file_name").and_then(text_of).unwrap_or_default();
            content.extend(self.file(&file, &name));
        }
        if content.is_empty() {
            return Ok(());
        }
        let entry = Entry::Message(Message::User(UserMessage {
            content: Body::Blocks(content),
            timestamp: time.unwrap_or_default(),
        }));
        self.put(id.to_owned(), entry, time, Self::kept(message, beside))
    }

    /// A file that the export has beside the conversations.
    fn file(&mut self, file: &Members<'_>, name: &str) -> Option<Content> {
        let id = file.string("file_uuid").or_else(|| file.string("id")).unwrap_or_default();
        let id = if id.is_empty() { name } else { &*id };
        self.files.asset(id, name, self.line, self.sealer, &mut self.out.report)
    }

    /// An answer: one message up to the results of its calls, those, and so on.
    fn answer(&mut self, message: &Members<'_>, id: &str, time: Option<UnixMs>) -> Result<(), Stop> {
        let mut step: Vec<Content> = Vec::new();
        let mut beside = Vec::new();
        let mut number = 0;
        // Calls without a result yet; older exports name neither.
        let mut calls: Vec<ToolCall> = Vec::new();
        let mut unnamed = 0;
        let blocks = list(message.get("content").unwrap_or("[]"));
        let mut results: Vec<(ToolResultMessage, Option<Json>)> = Vec::new();
        for block in blocks {
            let members = Members::of(block).unwrap_or_else(|| Members(Vec::new()));
            let kind = members.string("type").unwrap_or_default();
            if kind != "tool_result" && !results.is_empty() {
                self.step(message, id, &mut number, time, &mut step, &mut beside)?;
                self.results(id, time, &mut results)?;
            }
            match &*kind {
                "text" => {
                    let text = members.get("text").and_then(text_of).filter(|text| !text.is_empty());
                    step.extend(text.map(Content::text));
                    beside.extend(rest_of(&members, &["type", "text"]));
                }
                "thinking" => {
                    let thinking = members.get("thinking").and_then(text_of).unwrap_or_default();
                    if !thinking.is_empty() {
                        step.push(Content::Thinking(ThinkingContent {
                            thinking,
                            ..ThinkingContent::default()
                        }));
                    }
                    beside.extend(rest_of(&members, &["type", "thinking"]));
                }
                "tool_use" => {
                    unnamed += 1;
                    let named = members.string("id").filter(|id| !id.is_empty());
                    let call = ToolCall {
                        id: named.map_or_else(|| format!("{id}.call{unnamed}"), Into::into).into(),
                        name: members.get("name").and_then(text_of).unwrap_or_default(),
                        arguments: members
                            .get("input")
                            .and_then(|input| Json::parse(input).ok())
                            .unwrap_or_else(Json::object),
                        thought_signature: None,
                        namespace: None,
                    };
                    calls.push(call.clone());
                    step.push(Content::ToolCall(call));
                    beside.extend(rest_of(&members, &["type", "id", "name", "input"]));
                }
                "tool_result" => {
                    let of = members.string("tool_use_id").filter(|id| !id.is_empty());
                    let at = match &of {
                        Some(of) => calls.iter().position(|call| call.id.as_str() == of),
                        None => (!calls.is_empty()).then_some(0),
                    };
                    let Some(at) = at else {
                        beside.extend(Json::parse(block).ok());
                        continue;
                    };
                    let call = calls.remove(at);
                    let rest = rest_of(&members, &["type", "tool_use_id", "content", "is_error", "name"]);
                    results.push((result(&members, call, time), rest));
                }
                _ => beside.extend(Json::parse(block).ok()),
            }
        }
        if step.is_empty() && number == 0 {
            let text = message.get("text").and_then(text_of).filter(|text| !text.is_empty());
            step.extend(text.map(Content::text));
        }
        self.step(message, id, &mut number, time, &mut step, &mut beside)?;
        self.results(id, time, &mut results)
    }

    fn step(
        &mut self,
        message: &Members<'_>,
        id: &str,
        number: &mut u32,
        time: Option<UnixMs>,
        step: &mut Vec<Content>,
        beside: &mut Vec<Json>,
    ) -> Result<(), Stop> {
        let content = std::mem::take(step);
        if content.is_empty() {
            return Ok(());
        }
        *number += 1;
        let has_calls = content.iter().any(|block| block.as_tool_call().is_some());
        let answer = AssistantMessage {
            content,
            api: super::AGENT.into(),
            provider: "anthropic".into(),
            model: message.get("model").and_then(text_of).unwrap_or_else(|| self.model.clone()),
            stop_reason: match message.string("stop_reason").as_deref() {
                Some("user_canceled") => StopReason::Aborted,
                Some("max_tokens") => StopReason::Length,
                _ if has_calls => StopReason::ToolUse,
                _ => StopReason::Stop,
            },
            timestamp: time.unwrap_or_default(),
            ..AssistantMessage::default()
        };
        let own = if *number == 1 { id.to_owned() } else { format!("{id}.{number}") };
        let kept = Self::kept(message, std::mem::take(beside));
        self.put(own, Entry::Message(Message::Assistant(answer)), time, kept)
    }

    fn results(
        &mut self,
        id: &str,
        time: Option<UnixMs>,
        results: &mut Vec<(ToolResultMessage, Option<Json>)>,
    ) -> Result<(), Stop> {
        for (result, rest) in std::mem::take(results) {
            let own = format!("{id}.{}", result.tool_call_id);
            self.put(own, Entry::Message(Message::ToolResult(result)), time, rest)?;
        }
        Ok(())
    }

    fn put(
        &mut self,
        id: String,
        entry: Entry,
        time: Option<UnixMs>,
        kept: Option<Json>,
    ) -> Result<(), Stop> {
        let mut item = Item::new(id.clone(), entry, self.line);
        (item.owner, item.time, item.kept, item.is_head) = (self.owner, time, kept, self.is_head);
        item.follows = std::mem::replace(&mut self.last, ItemParent::Item(id));
        self.out.item(item)
    }
}

/// Whether an id stands for the beginning of a conversation.
fn is_root(id: &str) -> bool {
    id.is_empty() || id.starts_with("00000000-0000-")
}

/// What a block has beside these members and what says nothing.
fn rest_of(members: &Members<'_>, without: &[&str]) -> Option<Json> {
    let says = |value: &str| !matches!(value, "null" | "false" | "[]" | "{}" | "\"\"");
    let times = ["start_timestamp", "stop_timestamp"];
    let mut empty: Vec<&str> =
        members.0.iter().filter(|(_, value)| !says(value)).map(|(name, _)| name.as_ref()).collect();
    empty.extend(without);
    let is_rest = |name: &str| !empty.contains(&name) && !times.contains(&name);
    members.0.iter().any(|(name, _)| is_rest(name)).then(|| members.without(&empty))
}

/// An image that stands in a block.
fn image(block: &Members<'_>) -> Option<Content> {
    let source = block.get("source").and_then(Members::of)?;
    let kind = source.string("media_type").filter(|kind| kind.starts_with("image/"))?;
    let data = source.string("data").filter(|data| !data.is_empty())?;
    Some(Content::Image(ImageContent { data: data.into_owned(), mime_type: kind.into_owned() }))
}

fn result(block: &Members<'_>, call: ToolCall, time: Option<UnixMs>) -> ToolResultMessage {
    let content = block.get("content").unwrap_or("[]");
    let content = match content.starts_with('"') {
        true => text_of(content).map(Content::text).into_iter().collect(),
        false => list(content)
            .into_iter()
            .filter_map(|part| {
                let members = Members::of(part)?;
                let text = members.get("text").and_then(text_of).map(Content::text);
                text.or_else(|| image(&members)).or_else(|| Some(Content::Other(Json::parse(part).ok()?)))
            })
            .collect(),
    };
    ToolResultMessage {
        tool_call_id: call.id,
        tool_name: call.name,
        content,
        details: None,
        usage: None,
        is_error: block.get("is_error") == Some("true"),
        timestamp: time.unwrap_or_default(),
    }
}
