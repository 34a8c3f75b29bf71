//! One message, taken apart, and what it means.

use std::borrow::Cow;

use quipu_protocol::{
    AssistantMessage, CallId, Content, ImageContent, Json, StopReason, ThinkingContent, ToolCall,
    ToolResultMessage, UnixMs, Usage,
};

use crate::json::{Members, list, text_of, time_of};

/// What the first message of a session begins with, which nobody said.
const PREAMBLES: [&str; 2] = ["<session_context>", "This is the Gemini CLI. We are setting up the context"];
/// Around what hooks told the model, within what the user said.
const HOOKS: (&str, &str) = ("<hook_context>", "</hook_context>");
/// What stands behind the exit code of a command.
const TRAILERS: [&str; 5] = [
    "</untrusted_context>",
    "Signal: ",
    "Background PIDs: ",
    "Process Group PGID: ",
    "(Output was truncated",
];

pub(super) struct Message<'a> {
    pub(super) members: Members<'a>,
    pub(super) kind: Cow<'a, str>,
    pub(super) time: Option<UnixMs>,
}

#[derive(Default)]
pub(super) struct ContentParts<'a> {
    pub(super) content: Vec<Content>,
    pub(super) responses: Vec<Response<'a>>,
    /// Of its parts what has no place elsewhere.
    pub(super) more: Vec<Json>,
}

/// The result of a call, as it stands in a content.
pub(super) struct Response<'a> {
    pub(super) call: String,
    members: Members<'a>,
}

/// A call of an answer, as the program noted it.
pub(super) struct Call<'a> {
    pub(super) id: String,
    members: Members<'a>,
}

impl<'a> Message<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        let members = Members::of(text).unwrap_or_else(|| Members(Vec::new()));
        let kind = members.string("type").unwrap_or_default();
        let time = members.string("timestamp").and_then(|text| time_of(&text));
        Self { members, kind, time }
    }

    /// How much it says that other versions of it do not.
    pub(super) fn score(&self) -> [usize; 5] {
        let has = |name: &str| self.members.get(name).is_some_and(|value| value != "null" && value != "[]");
        let calls = self.calls();
        let results = calls.iter().filter(|call| call.has_result()).count();
        [has("tokens").into(), calls.len(), results, has("thoughts").into(), has("model").into()]
    }

    pub(super) fn content_parts(&self) -> ContentParts<'a> {
        content_parts(self.members.get("content").unwrap_or("[]"))
    }

    /// Whether the program says it when a session begins or goes on.
    pub(super) fn is_preamble(&self) -> bool {
        let first = || self.content_parts().content.into_iter().next();
        let starts = |text: &str| PREAMBLES.iter().any(|words| text.trim_start().starts_with(words));
        self.kind == "user" && first().as_ref().and_then(Content::as_text).is_some_and(starts)
    }

    /// What stands for all before it, when it does.
    pub(super) fn summary(&self) -> Option<String> {
        let content_parts = self.content_parts();
        let text = quipu_protocol::Body::Blocks(content_parts.content).text();
        (self.kind == "user" && text.contains("<state_snapshot>")).then_some(text)
    }

    pub(super) fn calls(&self) -> Vec<Call<'a>> {
        let calls = list(self.members.get("toolCalls").unwrap_or("[]"));
        calls.into_iter().enumerate().filter_map(|(at, call)| Call::of(call, at)).collect()
    }

    /// What a model answered.
    pub(super) fn answer(&self, timestamp: UnixMs) -> (AssistantMessage, Vec<Json>) {
        let ContentParts { content: own, more, .. } = self.content_parts();
        let mut content: Vec<Content> = Vec::new();
        if !own.iter().any(|block| matches!(block, Content::Thinking(_))) {
            content
                .extend(list(self.members.get("thoughts").unwrap_or("[]")).into_iter().filter_map(thought));
        }
        content.extend(own);
        for call in self.calls() {
            let is_there =
                content.iter().filter_map(Content::as_tool_call).any(|have| have.id.as_str() == call.id);
            if !is_there {
                content.push(Content::ToolCall(call.content()));
            }
        }
        let has_calls = content.iter().any(|block| block.as_tool_call().is_some());
        let answer = AssistantMessage {
            content,
            api: "google-generative-ai".into(),
            provider: "google".into(),
            model: self.members.string("model").unwrap_or_default().into_owned(),
            usage: self.members.get("tokens").and_then(usage).unwrap_or_default(),
            stop_reason: if has_calls { StopReason::ToolUse } else { StopReason::Stop },
            timestamp,
            ..AssistantMessage::default()
        };
        (answer, more)
    }
}

impl<'a> Response<'a> {
    fn of(text: &'a str) -> Option<Self> {
        let members = Members::of(text)?;
        let call = members.string("id").or_else(|| members.string("name")).unwrap_or_default().into_owned();
        Some(Self { call, members })
    }

    /// The result, as the model saw it.
    pub(super) fn result(&self, timestamp: UnixMs) -> ToolResultMessage {
        let name = self.members.string("name").unwrap_or_default().into_owned();
        let (content, failed) = self.content();
        ToolResultMessage {
            tool_call_id: CallId::from(self.call.clone()),
            is_error: failed || has_failed(&name, &content),
            tool_name: name,
            content,
            details: None,
            usage: None,
            timestamp,
        }
    }

    /// Its words and images, and whether they tell of an error.
    fn content(&self) -> (Vec<Content>, bool) {
        let response = self.members.get("response").unwrap_or("{}");
        let inner = Members::of(response).unwrap_or_else(|| Members(Vec::new()));
        let error = inner.get("error").filter(|error| *error != "null");
        let words = match error.or_else(|| inner.get("output")) {
            Some(words) => text_of(words).unwrap_or_else(|| words.to_owned()),
            None => text_of(response).unwrap_or_else(|| response.to_owned()),
        };
        let mut content = vec![Content::text(words)];
        content.extend(content_parts(self.members.get("parts").unwrap_or("[]")).content);
        (content, error.is_some())
    }
}

impl<'a> Call<'a> {
    fn of(text: &'a str, at: usize) -> Option<Self> {
        let members = Members::of(text)?;
        let id = members.string("id").filter(|id| !id.is_empty());
        let id = id.map_or_else(|| format!("call-{}", at + 1), Cow::into_owned);
        Some(Self { id, members })
    }

    fn name(&self) -> String {
        self.members.string("name").unwrap_or_default().into_owned()
    }

    fn content(&self) -> ToolCall {
        ToolCall {
            id: self.id.clone().into(),
            name: self.name(),
            arguments: self
                .members
                .get("args")
                .and_then(|text| Json::parse(text).ok())
                .unwrap_or_else(Json::object),
            thought_signature: None,
            namespace: None,
        }
    }

    pub(super) fn has_result(&self) -> bool {
        self.members.get("result").is_some_and(|result| result != "null" && result != "[]")
    }

    /// What the program noted of a call that has no result.
    pub(super) fn rest(&self) -> Json {
        self.members.without(&["id", "name", "args"])
    }

    /// What it returned, when it has.
    pub(super) fn result(&self, timestamp: UnixMs) -> Option<ToolResultMessage> {
        if !self.has_result() {
            return None;
        }
        let ContentParts { content: beside, responses, more } = content_parts(self.members.get("result")?);
        let mut content = Vec::new();
        let mut failed =
            self.members.string("status").is_some_and(|status| status == "error" || status == "cancelled");
        // Results of its siblings may stand here too.
        for response in responses.iter().filter(|response| response.call == self.id || responses.len() == 1) {
            let (words, is_error) = response.content();
            content.extend(words);
            failed |= is_error;
        }
        content.extend(beside);
        content.extend(more.into_iter().map(Content::Other));
        let ended = self.members.string("timestamp").and_then(|text| time_of(&text));
        Some(ToolResultMessage {
            tool_call_id: self.id.clone().into(),
            is_error: failed || has_failed(&self.name(), &content),
            tool_name: self.name(),
            content,
            details: Some(self.members.without(&["id", "name", "args", "result"])),
            usage: None,
            timestamp: ended.unwrap_or(timestamp),
        })
    }
}

/// What the user said without what hooks told the model, and that. Where nothing else was said, all of it is left.
pub(super) fn without_hooks(content: Vec<Content>) -> (Vec<Content>, Vec<Json>) {
    let (mut said, mut told) = (Vec::new(), Vec::new());
    for block in &content {
        let Some(mut text) = block.as_text() else {
            said.push(block.clone());
            continue;
        };
        while let Some(inner) = text.trim_start().strip_prefix(HOOKS.0)
            && let Some((context, rest)) = inner.split_once(HOOKS.1)
        {
            told.extend(Json::of(context).ok());
            text = rest.trim_start_matches('\n');
        }
        if !text.is_empty() {
            said.push(Content::text(text));
        }
    }
    if said.is_empty() { (content, Vec::new()) } else { (said, told) }
}

/// Parts of a content, which may be a text, one part, or a list of either.
fn content_parts(content: &str) -> ContentParts<'_> {
    let mut parts = ContentParts::default();
    let elements = if content.starts_with('[') { list(content) } else { vec![content] };
    for element in elements {
        if element.starts_with('"') {
            let text = text_of(element).unwrap_or_default();
            parts.content.extend((!text.is_empty()).then(|| Content::text(text)));
            continue;
        }
        let Some(part) = Members::of(element) else {
            if element != "null" {
                parts.content.push(Content::Other(Json::parse(element).unwrap_or_default()));
            }
            continue;
        };
        if let Some(response) = part.get("functionResponse").and_then(Response::of) {
            parts.responses.push(response);
            parts.keep(&part, &["functionResponse"]);
            continue;
        }
        let (block, used) =
            block(&part).unwrap_or_else(|| (Content::Other(Json::parse(element).unwrap_or_default()), ALL));
        parts.content.push(block);
        if used != ALL {
            parts.keep(&part, used);
        }
    }
    parts
}

/// A block that holds its part whole.
const ALL: &[&str] = &["*"];

/// A part of a known kind, and what of it is in the block.
fn block(part: &Members<'_>) -> Option<(Content, &'static [&'static str])> {
    if let Some(text) = part.get("text").and_then(text_of) {
        if part.get("thought") == Some("true") {
            let thinking = ThinkingContent { thinking: text, thinking_signature: None, redacted: None };
            return Some((Content::Thinking(thinking), &["text", "thought"]));
        }
        return Some((Content::text(text), &["text"]));
    }
    if let Some(call) = part.get("functionCall").and_then(Members::of) {
        let id = call.string("id").or_else(|| call.string("name"))?.into_owned();
        let call = ToolCall {
            id: id.into(),
            name: call.string("name")?.into_owned(),
            arguments: call.get("args").and_then(|text| Json::parse(text).ok()).unwrap_or_else(Json::object),
            thought_signature: part.string("thoughtSignature").map(Cow::into_owned),
            namespace: None,
        };
        return Some((Content::ToolCall(call), &["functionCall", "thoughtSignature"]));
    }
    let data = part.get("inlineData").and_then(Members::of)?;
    let kind = data.string("mimeType").filter(|kind| kind.starts_with("image/"))?;
    let image = ImageContent { data: data.string("data")?.into_owned(), mime_type: kind.into_owned() };
    Some((Content::Image(image), &["inlineData"]))
}

impl ContentParts<'_> {
    fn keep(&mut self, part: &Members<'_>, used: &[&str]) {
        let rest = part.without(used);
        self.more.extend((rest.get() != "{}").then_some(rest));
    }
}

/// A thought, in the words that the model had for it.
fn thought(text: &str) -> Option<Content> {
    let thought = Members::of(text)?;
    let word = |name: &str| thought.get(name).and_then(text_of).unwrap_or_default();
    let (subject, description) = (word("subject"), word("description"));
    let thinking = match (subject.is_empty(), description.is_empty()) {
        (true, true) => return None,
        (true, false) => description,
        (false, true) => format!("**{subject}**"),
        (false, false) => format!("**{subject}** {description}"),
    };
    Some(Content::Thinking(ThinkingContent { thinking, thinking_signature: None, redacted: None }))
}

/// Whether a command ended with another exit code than 0, which only its last words tell.
fn has_failed(name: &str, content: &[Content]) -> bool {
    let Some(text) = content.first().and_then(Content::as_text).filter(|_| name == "run_shell_command")
    else {
        return false;
    };
    let mut lines = text.lines().rev().filter(|line| !TRAILERS.iter().any(|start| line.starts_with(start)));
    let code = lines.find(|line| !line.is_empty()).and_then(|line| line.strip_prefix("Exit Code: "));
    code.is_some_and(|code| code.trim().parse::<i64>().is_ok_and(|code| code != 0))
}

/// Counts of an answer; input comes with what was read from the cache in it, output without what was thought.
fn usage(tokens: &str) -> Option<Usage> {
    let tokens = Members::of(tokens)?;
    let number = |name: &str| tokens.get(name).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let (all, thoughts) = (number("input"), number("thoughts"));
    let cache_read = number("cached").min(all);
    let input = (all - cache_read).saturating_add(number("tool"));
    let output = number("output").saturating_add(thoughts);
    Some(Usage {
        input,
        output,
        cache_read,
        reasoning: (thoughts > 0).then_some(thoughts),
        total_tokens: input.saturating_add(cache_read).saturating_add(output),
        ..Usage::default()
    })
}
