//! Parts of a response as the screen showed it, and rounds as the model had them.

use quipu_protocol::{
    Content, ImageContent, Json, ThinkingContent, ToolCall, ToolResultMessage, UnixMs, Usage,
};

use crate::json::{Members, list, text_of};

/// Levels of a rendered result that are looked through.
const DEEPEST: u32 = 64;

/// One part of a response.
pub(super) enum Part<'a> {
    Text(String),
    Thinking(String),
    Tool(Tool<'a>),
    /// What is no content, whole.
    Other(Json),
}

/// A tool that ran, as the screen showed it.
pub(super) struct Tool<'a> {
    pub(super) id: String,
    members: Members<'a>,
}

/// One answer of a model.
pub(super) struct Round<'a> {
    pub(super) members: Members<'a>,
    pub(super) content: Vec<Content>,
}

impl<'a> Part<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        Self::known(text).unwrap_or_else(|| Self::Other(Json::parse(text).unwrap_or_default()))
    }

    fn known(text: &'a str) -> Option<Self> {
        let members = Members::of(text)?;
        match members.string("kind").as_deref() {
            None | Some("markdownContent" | "markdownVuln") => {
                let inner = members.get("content").and_then(|inner| words_of(inner, &["value"]));
                Some(Self::Text(members.get("value").and_then(text_of).or(inner)?))
            }
            Some("thinking") => {
                let value = members.get("value")?;
                let text = match value.starts_with('[') {
                    true => list(value).into_iter().filter_map(text_of).collect(),
                    false => text_of(value)?,
                };
                Some(Self::Thinking(text))
            }
            Some("inlineReference") => {
                // The words around it are parts of their own.
                let name = members.get("name").and_then(text_of);
                let inner = members.get("inlineReference").and_then(Members::of);
                let path = |inner: &Members<'_>| {
                    let uri = inner.get("uri").or_else(|| inner.get("location")).and_then(Members::of);
                    let path =
                        uri.as_ref().and_then(|uri| uri.string("path")).or_else(|| inner.string("path"))?;
                    Some(path.rsplit('/').next()?.to_owned())
                };
                let name = name.or_else(|| inner.as_ref()?.get("name").and_then(text_of));
                name.or_else(|| inner.as_ref().and_then(path)).map(Self::Text)
            }
            Some("toolInvocationSerialized" | "toolInvocation") => {
                let id = members.string("toolCallId")?.into_owned();
                Some(Self::Tool(Tool { id, members }))
            }
            Some(_) => None,
        }
    }
}

impl Tool<'_> {
    pub(super) fn name(&self) -> String {
        self.members.string("toolId").unwrap_or_default().into_owned()
    }

    fn data(&self) -> Option<Members<'_>> {
        self.members.get("toolSpecificData").and_then(Members::of)
    }

    /// The call, as far as the screen told of it.
    pub(super) fn call(&self) -> ToolCall {
        let data = self.data();
        let of = |name: &str| data.as_ref().and_then(|data| data.get(name));
        let line =
            of("commandLine").and_then(|line| words_of(line, &["original", "userEdited", "toolEdited"]));
        let line = line.or_else(|| of("command").and_then(text_of));
        let message = || self.members.get("invocationMessage").and_then(|text| words_of(text, &["value"]));
        let said = |name: &str, text: &str| {
            Json::parse(&format!("{{{}:{}}}", quipu_dag::quoted(name), quipu_dag::quoted(text)))
        };
        let arguments = match (of("rawInput"), line) {
            (Some(input), _) => Json::parse(input).ok(),
            (None, Some(line)) => said("command", &line).ok(),
            (None, None) => message().and_then(|text| said("message", &text).ok()),
        };
        ToolCall {
            id: self.id.clone().into(),
            name: self.name(),
            arguments: arguments.unwrap_or_else(Json::object),
            thought_signature: None,
            namespace: None,
        }
    }

    /// Whether it failed, or was not allowed.
    pub(super) fn has_failed(&self) -> bool {
        let details = self.members.get("resultDetails").and_then(Members::of);
        let told = details.is_some_and(|details| details.get("isError") == Some("true"));
        let data = self.data();
        let state = data.as_ref().and_then(|data| Members::of(data.get("terminalCommandState")?));
        let code = state.and_then(|state| state.get("exitCode")?.parse::<i64>().ok());
        let confirmed = self.members.get("isConfirmed");
        let kind =
            confirmed.and_then(Members::of).and_then(|confirmed| confirmed.get("type")?.parse::<i64>().ok());
        told || code.is_some_and(|code| code != 0) || confirmed == Some("false") || kind == Some(0)
    }

    pub(super) fn details(&self) -> Json {
        self.members.without(&["toolCallId", "toolId", "kind"])
    }

    /// What it returned, as far as the screen showed it; `None` when it was not done.
    pub(super) fn result(&self, timestamp: UnixMs) -> Option<ToolResultMessage> {
        if self.members.get("isComplete") == Some("false") {
            return None;
        }
        let details = self.members.get("resultDetails").and_then(Members::of);
        let output = details.as_ref().and_then(|details| details.get("output")).unwrap_or("null");
        let outputs = if output.starts_with('[') { list(output) } else { vec![output] };
        let mut content: Vec<Content> = outputs.into_iter().filter_map(|output| shown(output, 0)).collect();
        if content.is_empty() {
            let data = self.data();
            let printed =
                data.as_ref().and_then(|data| words_of(data.get("terminalCommandOutput")?, &["text"]));
            let past = || self.members.get("pastTenseMessage").and_then(|text| words_of(text, &["value"]));
            content.extend(printed.or_else(past).map(Content::text));
        }
        Some(ToolResultMessage {
            tool_call_id: self.id.clone().into(),
            tool_name: self.name(),
            content,
            details: Some(self.details()),
            usage: None,
            is_error: self.has_failed(),
            timestamp,
        })
    }
}

impl<'a> Round<'a> {
    pub(super) fn of(text: &'a str) -> Option<Self> {
        let members = Members::of(text)?;
        let mut content = Vec::new();
        if let Some(thinking) = members.get("thinking").and_then(Members::of) {
            let text = thinking.get("text").unwrap_or("\"\"");
            let text: String = match text.starts_with('[') {
                true => list(text).into_iter().filter_map(text_of).collect(),
                false => text_of(text).unwrap_or_default(),
            };
            if !text.is_empty() {
                content.push(Content::Thinking(ThinkingContent {
                    thinking: text,
                    ..ThinkingContent::default()
                }));
            }
        }
        content.extend(
            members.get("response").and_then(text_of).filter(|text| !text.is_empty()).map(Content::text),
        );
        for call in list(members.get("toolCalls").unwrap_or("[]")) {
            let Some(call) = Members::of(call) else { continue };
            let (Some(id), Some(name)) = (call.string("id"), call.string("name")) else { continue };
            let arguments = call.get("arguments").and_then(text_of).unwrap_or_default();
            content.push(Content::ToolCall(ToolCall {
                id: id.into_owned().into(),
                name: name.into_owned(),
                // What is not JSON is kept as a text.
                arguments: Json::parse(&arguments).or_else(|_| Json::of(&arguments)).unwrap_or_default(),
                thought_signature: None,
                namespace: None,
            }));
        }
        Some(Self { members, content })
    }

    /// What is in no content; a call's own name and arguments are.
    pub(super) fn rest(&self) -> Json {
        self.members.without(&["response", "toolCalls"])
    }
}

/// The result of a call, as the model had it.
pub(super) fn result(
    call: &ToolCall,
    text: &str,
    tool: Option<&Tool<'_>>,
    timestamp: UnixMs,
) -> ToolResultMessage {
    let parts =
        Members::of(text).map(|result| list(result.get("content").unwrap_or("[]"))).unwrap_or_default();
    ToolResultMessage {
        tool_call_id: call.id.clone(),
        tool_name: call.name.clone(),
        content: parts.into_iter().filter_map(|part| shown(part, 0)).collect(),
        details: tool.map(Tool::details),
        usage: None,
        is_error: tool.is_some_and(Tool::has_failed),
        timestamp,
    }
}

/// A part of a result: words, an image, or a tree of rendered pieces.
fn shown(part: &str, depth: u32) -> Option<Content> {
    if part.starts_with('"') {
        return text_of(part).map(Content::text);
    }
    let members = Members::of(part)?;
    let kind = members.string("mimeType").filter(|kind| kind.starts_with("image/"));
    if let Some(kind) = kind {
        let data = members
            .string("base64Data")
            .or_else(|| members.string("data"))
            .or_else(|| members.string("value"));
        if let Some(data) = data {
            return Some(Content::Image(ImageContent {
                data: data.into_owned(),
                mime_type: kind.into_owned(),
            }));
        }
    }
    let value = members.get("value")?;
    if value.starts_with('"') {
        return text_of(value).map(Content::text);
    }
    let mut text = String::new();
    let tree = Members::of(value)?;
    rendered(tree.get("node").unwrap_or(value), &mut text, depth);
    Some(Content::text(text))
}

/// The words of a tree of rendered pieces.
fn rendered(node: &str, out: &mut String, depth: u32) {
    let Some(members) = Members::of(node).filter(|_| depth < DEEPEST) else { return };
    if let Some(text) = members.get("text").and_then(text_of) {
        if members.get("lineBreakBefore") == Some("true") && !out.is_empty() {
            out.push('\n');
        }
        out.push_str(&text);
    }
    for child in list(members.get("children").unwrap_or("[]")) {
        rendered(child, out, depth + 1);
    }
}

/// A text, or the first of these members that is one.
fn words_of(json: &str, names: &[&str]) -> Option<String> {
    if json.starts_with('"') {
        return text_of(json);
    }
    let members = Members::of(json)?;
    names.iter().find_map(|name| members.get(name).and_then(text_of))
}

/// Counts of a round; input comes with what was read from the cache in it.
pub(super) fn usage(counts: &Members<'_>) -> Usage {
    let number = |members: &Members<'_>, names: &[&str]| {
        names.iter().find_map(|name| members.get(name)?.parse::<u64>().ok()).unwrap_or(0)
    };
    let all = number(counts, &["prompt_tokens", "promptTokens"]);
    let output = number(counts, &["completion_tokens", "completionTokens", "outputTokens"]);
    let inner = counts.get("prompt_tokens_details").and_then(Members::of);
    let cache_read = inner.map_or(0, |inner| number(&inner, &["cached_tokens"])).min(all);
    let input = all - cache_read;
    Usage { input, output, cache_read, total_tokens: all.saturating_add(output), ..Usage::default() }
}
