//! What one event means on its own.

use std::borrow::Cow;

use quipu_protocol::{
    AssistantMessage, Body, Compaction, Content, CustomMessage, Entry, ImageContent, Json, Message,
    StopReason, ThinkingContent, ToolCall, ToolResultMessage, UnixMs, Usage, UserMessage,
};

use crate::json::{Members, list, text_of, time_of};

pub(super) struct Event<'a> {
    pub(super) kind: Cow<'a, str>,
    pub(super) data: Members<'a>,
    pub(super) id: Option<Cow<'a, str>>,
    /// The event before it, as it stands.
    pub(super) parent: Option<&'a str>,
    /// The subagent whose event it is.
    pub(super) agent: Option<Cow<'a, str>>,
    pub(super) time: Option<UnixMs>,
    /// Only for the screen.
    pub(super) is_passing: bool,
}

impl<'a> Event<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        // A name with half of a surrogate pair: kept as it is, and nothing in it is looked at.
        let members = Members::of(text).unwrap_or_else(|| Members(Vec::new()));
        let data = members.get("data").and_then(Members::of).unwrap_or_else(|| Members(Vec::new()));
        let agent = members.string("agentId").or_else(|| data.string("parentToolCallId"));
        Self {
            kind: members.string("type").unwrap_or_default(),
            id: members.string("id").filter(|id| !id.is_empty()),
            parent: members.get("parentId"),
            agent: agent.filter(|agent| !agent.is_empty()),
            time: members.string("timestamp").and_then(|text| time_of(&text)),
            is_passing: members.get("ephemeral") == Some("true"),
            data,
        }
    }

    fn text(&self, name: &str) -> Option<String> {
        self.data.get(name).and_then(text_of)
    }

    /// What somebody said, or the program in the user's place.
    pub(super) fn user(&self, timestamp: UnixMs) -> Option<Entry> {
        let mut content = vec![Content::text(self.text("content")?)];
        let attachments = list(self.data.get("attachments").unwrap_or("[]"));
        content.extend(attachments.into_iter().filter_map(|attachment| image(&Members::of(attachment)?)));
        let content = Body::Blocks(content);
        let source = self.data.string("source").filter(|source| source != "user" && source != "human");
        Some(Entry::Message(match source {
            Some(source) => Message::Custom(CustomMessage {
                custom_type: source.into_owned(),
                content,
                display: true,
                details: None,
                timestamp,
            }),
            None => Message::User(UserMessage { content, timestamp }),
        }))
    }

    /// What a model answered, with the record of the request that it answered.
    pub(super) fn answer(&self, record: Option<&Members<'_>>, timestamp: UnixMs) -> AssistantMessage {
        let reasoning = self.data.get("reasoningBlocks").and_then(Members::of);
        let wire = reasoning.as_ref().and_then(|reasoning| reasoning.string("provider"));
        let endpoint = record.and_then(|record| record.string("apiEndpoint"));
        let api = match (wire, endpoint.as_deref()) {
            (Some(wire), _) => wire.into_owned(),
            (None, Some(end)) if end.ends_with("/responses") => "openai-responses".into(),
            (None, Some(end)) if end.ends_with("/messages") => "anthropic-messages".into(),
            (None, Some(end)) if end.ends_with("/chat/completions") => "openai-completions".into(),
            (None, _) => "copilot".into(),
        };
        let blocks =
            reasoning.as_ref().and_then(|reasoning| reasoning.get("blocks")).map(list).unwrap_or_default();
        let mut content: Vec<Content> = blocks.into_iter().filter_map(thinking).collect();
        if content.is_empty()
            && let Some(thinking) = self.text("reasoningText").filter(|text| !text.is_empty())
        {
            content.push(Content::Thinking(ThinkingContent { thinking, ..ThinkingContent::default() }));
        }
        content.extend(self.text("content").filter(|text| !text.is_empty()).map(Content::text));
        let calls = list(self.data.get("toolRequests").unwrap_or("[]"));
        content.extend(calls.into_iter().filter_map(call).map(Content::ToolCall));
        let has_calls = content.iter().any(|block| block.as_tool_call().is_some());
        let usage = record.map(usage).unwrap_or_else(|| {
            // Older versions tell only this.
            let output = self.data.get("outputTokens").and_then(|text| text.parse().ok()).unwrap_or(0);
            Usage { output, total_tokens: output, ..Usage::default() }
        });
        let reason = record.and_then(|record| record.string("finishReason"));
        AssistantMessage {
            content,
            api,
            provider: "github-copilot".into(),
            model: self.data.string("model").unwrap_or_default().into_owned(),
            usage,
            stop_reason: match reason.as_deref() {
                _ if has_calls => StopReason::ToolUse,
                Some("length") => StopReason::Length,
                _ => StopReason::Stop,
            },
            timestamp,
            response_id: self.data.string("apiCallId").map(Cow::into_owned),
            ..AssistantMessage::default()
        }
    }

    /// What a tool returned.
    pub(super) fn result(&self, name: String, timestamp: UnixMs) -> Option<ToolResultMessage> {
        let id = self.data.string("toolCallId")?.into_owned();
        let result = self.data.get("result").and_then(Members::of);
        let mut content = Vec::new();
        if let Some(result) = &result {
            content.extend(result.get("content").and_then(text_of).map(Content::text));
            let blocks = list(result.get("contents").unwrap_or("[]"));
            content.extend(blocks.into_iter().filter_map(|block| image(&Members::of(block)?)));
        }
        let error = self.data.get("error").and_then(Members::of);
        if let Some(told) =
            error.and_then(|error| text_of(error.get("message")?)).filter(|_| content.is_empty())
        {
            content.push(Content::text(told));
        }
        let shell = self.data.get("shellExecution").and_then(Members::of);
        let code = shell.and_then(|shell| shell.get("exitCode")?.parse::<i64>().ok());
        let details = self.data.without(&[
            "toolCallId",
            "model",
            "interactionId",
            "turnId",
            "rte",
            "toolTelemetry",
            "result",
        ]);
        let rest = result.map(|result| result.without(&["content"])).filter(|rest| rest.get() != "{}");
        let details = match rest {
            Some(rest) => {
                let outer = details.get().trim_end_matches('}');
                let comma = if outer.len() > 1 { "," } else { "" };
                Json::parse(&format!("{outer}{comma}\"result\":{rest}}}")).unwrap_or(details)
            }
            None => details,
        };
        Some(ToolResultMessage {
            tool_call_id: id.into(),
            tool_name: name,
            content,
            details: Some(details),
            usage: None,
            is_error: self.data.get("success") == Some("false") || code.is_some_and(|code| code != 0),
            timestamp,
        })
    }

    /// A request that failed, or was broken off.
    pub(super) fn failed(&self, stop_reason: StopReason, timestamp: UnixMs) -> Entry {
        let told = self.text("message").or_else(|| self.text("reason")).unwrap_or_default();
        Entry::Message(Message::Assistant(AssistantMessage {
            api: "copilot".into(),
            provider: "github-copilot".into(),
            stop_reason,
            error_message: Some(told),
            timestamp,
            ..AssistantMessage::default()
        }))
    }

    /// What stands for all before it.
    pub(super) fn compaction(&self, timestamp: UnixMs) -> Option<Entry> {
        let summary = self.text("summaryContent").filter(|text| !text.trim().is_empty())?;
        if self.data.get("success") == Some("false") {
            return None;
        }
        let tokens_before =
            self.data.get("preCompactionTokens").and_then(|text| text.parse().ok()).unwrap_or_default();
        Some(Entry::Compaction(Compaction { summary, tokens_before, timestamp, ..Compaction::default() }))
    }
}

fn call(text: &str) -> Option<ToolCall> {
    let call = Members::of(text)?;
    let arguments = call.get("arguments").unwrap_or("{}");
    // Tools with a grammar take a text.
    Some(ToolCall {
        id: call.string("toolCallId")?.into_owned().into(),
        name: call.string("name")?.into_owned(),
        arguments: Json::parse(arguments).unwrap_or_else(|_| Json::object()),
        thought_signature: None,
        namespace: None,
    })
}

/// Reasoning in the provider's own shape, which is what it wants back.
fn thinking(block: &str) -> Option<Content> {
    let members = Members::of(block)?;
    let is_sealed = block.contains("[REDACTED:");
    let thinking = match members.string("type")?.as_ref() {
        "thinking" => ThinkingContent {
            thinking: members.get("thinking").and_then(text_of)?,
            thinking_signature: members.string("signature").filter(|_| !is_sealed).map(Cow::into_owned),
            redacted: None,
        },
        "redacted_thinking" => ThinkingContent {
            thinking: String::new(),
            thinking_signature: Some(members.string("data")?.into_owned()),
            redacted: Some(true),
        },
        "reasoning" => {
            let texts = list(members.get("summary").unwrap_or("[]"));
            let texts = texts.into_iter().filter_map(|text| text_of(Members::of(text)?.get("text")?));
            let thinking = texts.collect::<Vec<_>>().join("\n\n");
            let is_signed = members.string("encrypted_content").is_some() && !is_sealed;
            if thinking.is_empty() && !is_signed {
                return None;
            }
            ThinkingContent {
                thinking,
                thinking_signature: is_signed.then(|| block.to_owned()),
                redacted: None,
            }
        }
        _ => return None,
    };
    Some(Content::Thinking(thinking))
}

/// An image that is given whole.
fn image(block: &Members<'_>) -> Option<Content> {
    let kind = block.string("mimeType").filter(|kind| kind.starts_with("image/"))?.into_owned();
    Some(Content::Image(ImageContent { data: block.string("data")?.into_owned(), mime_type: kind }))
}

/// Counts of a request; input comes with what was read from the cache in it.
fn usage(record: &Members<'_>) -> Usage {
    let number = |name: &str| record.get(name).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let all = number("inputTokens");
    let cache_read = number("cacheReadTokens").min(all);
    let cache_write = number("cacheWriteTokens").min(all - cache_read);
    let (output, reasoning) = (number("outputTokens"), number("reasoningTokens"));
    Usage {
        input: all - cache_read - cache_write,
        output,
        cache_read,
        cache_write,
        reasoning: (reasoning > 0).then_some(reasoning),
        total_tokens: all.saturating_add(output),
        ..Usage::default()
    }
}
