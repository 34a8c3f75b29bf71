//! One record, taken apart, and what it means on its own.

use std::borrow::Cow;

use quipu_protocol::{
    AssistantMessage, Body, Compaction, Content, Cost, CustomMessage, Entry, Json, Message, StopReason,
    ToolResultMessage, UnixMs, Usage, UserMessage,
};

use super::blocks;
use crate::json::{Members, time_of};

/// Members that differ in the copies which forks make, or that stand elsewhere.
const APART: [&str; 4] = ["sessionId", "promptId", "requestSessionId", "message"];

/// What a user's record begins with when it was a command of the program.
const COMMANDS: [&str; 6] = [
    "<command-name>",
    "<command-message>",
    "<local-command-",
    "<bash-input>",
    "<bash-stdout>",
    "<task-notification>",
];

pub(super) struct Record<'a> {
    pub(super) members: Members<'a>,
    pub(super) text: &'a str,
    pub(super) line: u64,
    pub(super) kind: Cow<'a, str>,
    pub(super) uuid: Option<Cow<'a, str>>,
    /// What it follows: across a compaction that is not what the next request begins with.
    pub(super) parent: Option<Cow<'a, str>>,
    pub(super) time: Option<UnixMs>,
}

impl<'a> Record<'a> {
    pub(super) fn of(text: &'a str, line: u64) -> Self {
        // A name with half of a surrogate pair: kept as it is, and nothing in it is looked at.
        let members = Members::known(text).unwrap_or_else(|| Members(Vec::new()));
        let kind = members.string("type").unwrap_or_default();
        let uuid = members.string("uuid").filter(|uuid| !uuid.is_empty());
        let parent = members.string("parentUuid").or_else(|| members.string("logicalParentUuid"));
        let time = members.string("timestamp").and_then(|text| time_of(&text));
        Self { members, text, line, kind, uuid, parent, time }
    }

    pub(super) fn is(&self, name: &str) -> bool {
        self.members.get(name) == Some("true")
    }

    /// The members of its message.
    pub(super) fn message(&self) -> Option<Members<'a>> {
        self.members.get("message").and_then(Members::known)
    }

    /// What has no place in an entry; the content and its like have.
    pub(super) fn rest(&self, also: &[&str]) -> Json {
        let names: Vec<&str> = APART.iter().chain(also).copied().collect();
        self.members.without(&names)
    }

    /// The whole record as an entry that carries no message. One without a `type` gets an empty one.
    pub(super) fn verbatim(&self) -> Entry {
        let json = self.members.without(&APART[..3]);
        if self.members.string("type").is_some() {
            return Entry::Meta(json);
        }
        let inner = if json.get() == "{}" { self.text } else { json.get() };
        let text = format!("{{\"type\":\"\",\"record\":{inner}}}");
        Entry::Meta(Json::parse(&text).unwrap_or_default())
    }

    /// The title that somebody gave.
    pub(super) fn given_title(&self) -> Option<Cow<'a, str>> {
        (self.kind == "custom-title").then(|| self.members.string("customTitle")).flatten()
    }

    /// What somebody said, beside the results of tools; `None` when there is nothing of it.
    pub(super) fn said(&self, blocks: &[&str], is_text: bool, timestamp: UnixMs) -> Option<Entry> {
        if blocks.is_empty() {
            return None;
        }
        let content: Vec<Content> = blocks.iter().map(|block| blocks::content(block)).collect();
        let body = match content.as_slice() {
            [Content::Text(text)] if is_text => Body::Text(text.text.clone()),
            _ => Body::Blocks(content),
        };
        let first = body.text();
        let is_command = COMMANDS.iter().any(|word| first.starts_with(word));
        if self.is("isMeta") || is_command {
            return Some(Entry::Message(Message::Custom(CustomMessage {
                custom_type: if is_command { "command" } else { "meta" }.into(),
                content: body,
                display: is_command,
                details: None,
                timestamp,
            })));
        }
        Some(Entry::Message(Message::User(UserMessage { content: body, timestamp })))
    }

    /// What stands for all before it.
    pub(super) fn compaction(&self, tokens_before: u64, timestamp: UnixMs) -> Option<Entry> {
        let message = self.message()?;
        let content: Vec<Content> =
            blocks::list(message.get("content")?)?.into_iter().map(blocks::content).collect();
        Some(Entry::Compaction(Compaction {
            summary: Body::Blocks(content).text(),
            tokens_before,
            timestamp,
            ..Compaction::default()
        }))
    }

    /// A file or the like that the user gave with a prompt, or a prompt that waited; `None` for what the program tells
    /// the model by itself.
    pub(super) fn attachment(&self, timestamp: UnixMs) -> Option<Entry> {
        let attachment = Members::known(self.members.get("attachment")?)?;
        let kind = attachment.string("type")?;
        if kind == "queued_command" {
            let prompt = attachment.get("prompt")?;
            let content: Vec<Content> = blocks::list(prompt)?.into_iter().map(blocks::content).collect();
            let content = Body::Blocks(content);
            return Some(Entry::Message(Message::User(UserMessage { content, timestamp })));
        }
        let given = [
            "file",
            "directory",
            "image",
            "pdf_reference",
            "selected_lines",
            "opened_file",
            "edited_text_file",
        ];
        if !given.contains(&kind.as_ref()) && !kind.starts_with("mcp_resource") {
            return None;
        }
        let rendered: Vec<Content> = match self.members.get("rendered").map(serde_json::from_str) {
            Some(Ok(list)) => {
                let list: Vec<&serde_json::value::RawValue> = list;
                let content = |one: &&serde_json::value::RawValue| {
                    let members = Members::known(one.get())?;
                    let blocks = blocks::list(members.get("content")?)?;
                    Some(blocks.into_iter().map(blocks::content).collect::<Vec<_>>())
                };
                list.iter().filter_map(content).flatten().collect()
            }
            _ => Vec::new(),
        };
        if rendered.is_empty() {
            return None;
        }
        Some(Entry::Message(Message::Custom(CustomMessage {
            custom_type: format!("attachment:{kind}"),
            content: Body::Blocks(rendered),
            display: true,
            details: None,
            timestamp,
        })))
    }

    /// The results among the blocks of a user's record.
    pub(super) fn result(
        &self,
        block: &Members<'_>,
        name: String,
        details: Option<Json>,
        timestamp: UnixMs,
    ) -> Option<Message> {
        let content = block.get("content").and_then(blocks::list).unwrap_or_default();
        Some(Message::ToolResult(ToolResultMessage {
            tool_call_id: block.string("tool_use_id")?.into_owned().into(),
            tool_name: name,
            content: content.into_iter().map(blocks::content).collect(),
            details,
            usage: None,
            is_error: block.get("is_error") == Some("true"),
            timestamp,
        }))
    }
}

/// An answer without content, from the message of one of its records.
pub(super) fn answer(record: &Record<'_>, message: &Members<'_>, timestamp: UnixMs) -> AssistantMessage {
    let text = |name: &str| message.string(name).map(Cow::into_owned);
    let raw = text("stop_reason");
    let mut answer = AssistantMessage {
        api: "anthropic-messages".into(),
        provider: "anthropic".into(),
        model: text("model").unwrap_or_default(),
        usage: usage(record, message),
        stop_reason: stop_reason(raw.as_deref()),
        timestamp,
        response_id: text("id"),
        ..AssistantMessage::default()
    };
    if record.is("isApiErrorMessage") {
        answer.stop_reason = StopReason::Error;
        answer.response_id = None;
    } else {
        let known = ["end_turn", "stop_sequence", "tool_use", "max_tokens"];
        answer.raw_stop_reason = raw.filter(|raw| !known.contains(&raw.as_str()));
    }
    answer
}

fn stop_reason(raw: Option<&str>) -> StopReason {
    match raw {
        Some("tool_use") => StopReason::ToolUse,
        Some("max_tokens" | "model_context_window_exceeded") => StopReason::Length,
        Some("refusal") => StopReason::Error,
        _ => StopReason::Stop,
    }
}

fn usage(record: &Record<'_>, message: &Members<'_>) -> Usage {
    let Some(members) = message.get("usage").and_then(Members::known) else { return Usage::default() };
    let number = |name: &str| members.get(name).and_then(|text| text.parse::<u64>().ok());
    let count = |name: &str| number(name).unwrap_or(0);
    let input = count("input_tokens");
    let output = count("output_tokens");
    let cache_read = count("cache_read_input_tokens");
    let cache_write = count("cache_creation_input_tokens");
    let within = |outer: &str, name: &str| {
        Members::known(members.get(outer)?)?.get(name)?.parse::<u64>().ok().filter(|count| *count > 0)
    };
    let total = record.members.get("costUSD").and_then(|text| text.parse::<f64>().ok());
    Usage {
        input,
        output,
        cache_read,
        cache_write,
        cache_write_1h: within("cache_creation", "ephemeral_1h_input_tokens"),
        reasoning: within("output_tokens_details", "thinking_tokens"),
        total_tokens: input.saturating_add(output).saturating_add(cache_read).saturating_add(cache_write),
        cost: Cost {
            total: total.filter(|cost| cost.is_finite() && *cost >= 0.0).unwrap_or(0.0),
            ..Cost::default()
        },
    }
}
