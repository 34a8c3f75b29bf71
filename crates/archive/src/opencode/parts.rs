//! Parts of a message to content.

use quipu_protocol::{
    CallId, Content, Cost, ImageContent, Json, ThinkingContent, ToolCall, ToolResultMessage, UnixMs, Usage,
};
use serde_json::value::RawValue;

use crate::json::{Members, text_of};

/// A part, taken apart.
pub(super) struct Part<'a> {
    pub(super) members: Members<'a>,
    pub(super) kind: String,
    pub(super) text: &'a str,
}

impl<'a> Part<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        let members = Members::known(text).unwrap_or_else(|| Members(Vec::new()));
        let kind = members.string("type").unwrap_or_default().into_owned();
        Self { members, kind, text }
    }

    /// What it says; `None` for what is no content.
    pub(super) fn content(&self) -> Option<Content> {
        match self.kind.as_str() {
            "text" => {
                let text = self.words()?;
                // Attempts that were broken off leave such.
                (!text.is_empty()).then(|| Content::text(text))
            }
            "reasoning" => {
                let thinking = self.words()?;
                let signature = self.members.get("metadata").and_then(signature);
                if thinking.is_empty() && signature.is_none() {
                    return None;
                }
                // It covers the words that were signed; where a secret among them was sealed no model takes it.
                let signature = signature.filter(|_| !thinking.contains("[REDACTED:"));
                Some(Content::Thinking(ThinkingContent {
                    thinking,
                    thinking_signature: signature,
                    redacted: None,
                }))
            }
            "tool" => {
                let state = self.state()?;
                Some(Content::ToolCall(ToolCall {
                    id: self.call()?,
                    name: self.members.string("tool").unwrap_or_default().into_owned(),
                    arguments: state.get("input").map(Json::known).unwrap_or_default(),
                    thought_signature: None,
                    namespace: None,
                }))
            }
            "file" => Some(
                image(&self.members)
                    .unwrap_or_else(|| Content::Other(Json::parse(self.text).unwrap_or_default())),
            ),
            _ => None,
        }
    }

    fn words(&self) -> Option<String> {
        text_of(self.members.get("text")?)
    }

    fn state(&self) -> Option<Members<'a>> {
        self.members.get("state").and_then(Members::known)
    }

    pub(super) fn call(&self) -> Option<CallId> {
        self.members.string("callID").map(|id| id.into_owned().into())
    }

    /// What the tool returned, when it has; with its start and milliseconds.
    pub(super) fn result(
        &self,
        timestamp: UnixMs,
    ) -> Option<(ToolResultMessage, Option<UnixMs>, Option<u64>)> {
        let state = self.state()?;
        let status = state.string("status")?;
        let failed = status == "error";
        if !failed && status != "completed" {
            return None;
        }
        let words = state.get(if failed { "error" } else { "output" }).and_then(text_of).unwrap_or_default();
        let mut content = vec![Content::text(words)];
        let files: Vec<&RawValue> =
            state.get("attachments").and_then(|list| serde_json::from_str(list).ok()).unwrap_or_default();
        content.extend(files.iter().filter_map(|file| image(&Members::known(file.get())?)));
        let metadata = state.get("metadata");
        let exit = metadata.and_then(|data| Members::known(data)?.get("exit")?.parse::<i64>().ok());
        let time = state.get("time").and_then(Members::known);
        let at = |name: &str| time.as_ref().and_then(|time| time.get(name)?.parse::<i64>().ok());
        let (started, ended) = (at("start"), at("end"));
        let took = started.zip(ended).and_then(|(start, end)| u64::try_from(end.checked_sub(start)?).ok());
        let result = ToolResultMessage {
            tool_call_id: self.call()?,
            tool_name: self.members.string("tool").unwrap_or_default().into_owned(),
            content,
            details: metadata.map(Json::known),
            usage: None,
            is_error: failed || exit.is_some_and(|code| code != 0),
            timestamp: ended.unwrap_or(timestamp),
        };
        Some((result, started, took))
    }

    /// What of it is in no entry.
    pub(super) fn rest(&self) -> Json {
        match self.kind.as_str() {
            "text" | "reasoning" => self.members.without(&["text", "time"]),
            "tool" => self.members.without(&["state", "callID", "tool"]),
            "file" => self.members.without(&["url"]),
            _ => self.members.without(&[]),
        }
    }
}

/// An image that is given whole.
fn image(file: &Members<'_>) -> Option<Content> {
    let url = file.string("url")?;
    let (kind, data) = url.strip_prefix("data:")?.split_once(";base64,")?;
    let is_image = kind.starts_with("image/");
    is_image.then(|| Content::Image(ImageContent { data: data.to_owned(), mime_type: kind.to_owned() }))
}

/// What a provider wants back with its reasoning.
fn signature(metadata: &str) -> Option<String> {
    let providers = Members::known(metadata)?;
    let of = |inner: &str| Some(Members::known(inner)?.string("signature")?.into_owned());
    providers.0.iter().find_map(|(_, inner)| of(inner))
}

/// Counts of an answer or of one of its steps.
pub(super) fn usage(members: &Members<'_>) -> Usage {
    let Some(tokens) = members.get("tokens").and_then(Members::known) else { return Usage::default() };
    let number = |members: &Members<'_>, name: &str| {
        members.get(name).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0)
    };
    let cache = tokens.get("cache").and_then(Members::known).unwrap_or_else(|| Members(Vec::new()));
    let (input, output, reasoning) =
        (number(&tokens, "input"), number(&tokens, "output"), number(&tokens, "reasoning"));
    let (cache_read, cache_write) = (number(&cache, "read"), number(&cache, "write"));
    // What was thought is counted beside the output.
    let output = output.saturating_add(reasoning);
    let cost = members.get("cost").and_then(|text| text.parse::<f64>().ok());
    Usage {
        input,
        output,
        cache_read,
        cache_write,
        cache_write_1h: None,
        reasoning: (reasoning > 0).then_some(reasoning),
        total_tokens: [output, cache_read, cache_write]
            .iter()
            .fold(input, |sum, count| sum.saturating_add(*count)),
        cost: Cost {
            total: cost.filter(|cost| cost.is_finite() && *cost >= 0.0).unwrap_or(0.0),
            ..Cost::default()
        },
    }
}
