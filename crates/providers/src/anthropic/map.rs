//! A request to the bytes of the wire. Pure and deterministic.

use std::collections::HashSet;

use bytes::Bytes;
use quipu_protocol::{
    AssistantMessage, Body, CallId, Content, ImageContent, Json, Message, Model, ModelError, ModelErrorKind,
    ModelRequest, StopReason, Thinking, ToolResultMessage, without_lone_surrogates,
};

use super::Compat;
use super::wire::{
    Block, CacheControl, ImageSource, OutputConfig, Request, Role, ThinkingMode, Tool, WireMessage,
};
use crate::thinking::{clamp_level, mapped};

/// Tokens of the window that stay free beside the estimated input.
const MARGIN: u64 = 4_096;
/// Output that is kept possible before a larger margin than [`MARGIN`] is asked for.
const OUTPUT_BEFORE_MARGIN: u64 = 32_768;
/// Tokens of the answer that a thinking budget must leave.
const MIN_ANSWER: u64 = 1_024;
/// The smallest budget that the wire takes.
const MIN_BUDGET: u64 = 1_024;
/// What an image is estimated at, in tokens.
const IMAGE_TOKENS: u64 = 1_200;
/// Nested arguments deeper than this are sent as text: no server takes them.
const MAX_DEPTH: usize = 100;
/// Length of a tool call's id at most.
const MAX_ID: usize = 64;
/// Length of a tool's name at most; a model can make up a longer one, and every later request would be refused.
const MAX_NAME: usize = 128;

const NO_OUTPUT: &str = "(no output)";
const NO_RESULT: &str = "No result provided";
const IMAGE_OMITTED: &str = "(image omitted: model does not support images)";
const TOOL_IMAGE_OMITTED: &str = "(tool image omitted: model does not support images)";
const IMAGE_UNKNOWN: &str = "(image omitted: not a PNG, JPEG, GIF or WebP image in base64)";
const IMAGES_FOLLOW: &str = "Images of the failed tool call:";

/// The body of `request`.
pub(super) fn encode(request: &ModelRequest) -> Result<Bytes, ModelError> {
    let model = &*request.model;
    let compat = Compat::of(model);
    let (thinking, output_config, max_tokens) = thinking(request, &compat);
    let mut tools: Vec<_> = request
        .tools
        .iter()
        .map(|tool| Tool {
            name: &tool.name,
            description: &tool.description,
            input_schema: sendable(&tool.parameters),
            cache_control: None,
        })
        .collect();
    if compat.cache_control_on_tools
        && let Some(last) = tools.last_mut()
    {
        last.cache_control = Some(CacheControl::Ephemeral);
    }
    let system = (!request.system.trim().is_empty())
        .then_some(Block::Text { text: &request.system, cache_control: Some(CacheControl::Ephemeral) });
    let mut messages = conversation(request, &compat);
    if messages.is_empty() {
        return Err(ModelError::new(
            ModelErrorKind::InvalidRequest,
            "There is nothing to send: the conversation is empty.",
        ));
    }
    let last_user = messages.iter_mut().rev().find(|message| message.role == Role::User);
    if let Some(block) = last_user.and_then(|message| message.content.last_mut()) {
        block.mark();
    }
    let body = Request {
        model: &model.id,
        stream: true,
        tools,
        system: system.into_iter().collect(),
        thinking,
        output_config,
        messages,
        max_tokens,
    };
    serde_json::to_vec(&body).map(Bytes::from).map_err(|error| {
        ModelError::new(
            ModelErrorKind::InvalidRequest,
            format!("The conversation has no form on this wire: {error}."),
        )
    })
}

/// How the model is told to think, and how many tokens it may write.
fn thinking(request: &ModelRequest, compat: &Compat) -> (Option<ThinkingMode>, Option<OutputConfig>, u64) {
    let model = &*request.model;
    let own = if model.max_tokens == 0 { u64::from(u32::MAX) } else { model.max_tokens };
    let wanted = request.max_tokens.unwrap_or(own).min(own).max(1);
    let level = clamp_level(model, request.thinking);
    const DISPLAY: &str = "summarized";
    if level == Thinking::Off {
        return (model.reasoning.then_some(ThinkingMode::Disabled), None, fit(request, wanted));
    }
    if compat.adaptive_thinking {
        let effort = mapped(model, level).unwrap_or_else(|| {
            String::from(match level {
                Thinking::Off | Thinking::Minimal | Thinking::Low => "low",
                Thinking::Medium => "medium",
                Thinking::High | Thinking::Xhigh | Thinking::Max => "high",
            })
        });
        let mode = ThinkingMode::Adaptive { display: DISPLAY };
        return (Some(mode), Some(OutputConfig { effort }), fit(request, wanted));
    }
    let budget = match level {
        Thinking::Off | Thinking::Minimal => 1_024,
        Thinking::Low => 2_048,
        Thinking::Medium => 8_192,
        Thinking::High | Thinking::Xhigh | Thinking::Max => 16_384,
    };
    // Thinking counts as output: a caller's limit is for the answer.
    let total = if request.max_tokens.is_some() { wanted.saturating_add(budget).min(own) } else { own };
    let total = fit(request, total);
    let budget = u64::min(budget, total.saturating_sub(MIN_ANSWER));
    if budget < MIN_BUDGET {
        return (Some(ThinkingMode::Disabled), None, total);
    }
    (Some(ThinkingMode::Enabled { budget_tokens: budget, display: DISPLAY }), None, total)
}

/// `wanted` output tokens, or as many as the window leaves room for; at least one.
fn fit(request: &ModelRequest, wanted: u64) -> u64 {
    let window = request.model.context_window;
    if window == 0 {
        return wanted;
    }
    let input = estimate(request);
    let free = window.saturating_sub(input);
    // Servers count tokens differently; a large input is given a proportional margin while that leaves enough.
    let mut room = free.saturating_sub(MARGIN.max(input.saturating_mul(15).div_ceil(100)));
    if room < OUTPUT_BEFORE_MARGIN {
        room = free.saturating_sub(MARGIN).min(OUTPUT_BEFORE_MARGIN);
    }
    wanted.min(room).max(1)
}

/// Tokens of the input: what the last answer counted, and a quarter of the bytes since then.
fn estimate(request: &ModelRequest) -> u64 {
    let size = |message: &Message| -> u64 {
        let blocks = match message {
            Message::User(m) => m.content.blocks(),
            Message::Assistant(m) => m.content.as_slice().into(),
            Message::ToolResult(m) => m.content.as_slice().into(),
            Message::Custom(m) => m.content.blocks(),
            other => return (serde_json::to_string(other).map_or(0, |text| text.len() as u64)) / 4,
        };
        blocks
            .iter()
            .map(|block| match block {
                Content::Text(b) => b.text.len() as u64 / 4 + 1,
                Content::Thinking(b) => b.thinking.len() as u64 / 4 + 1,
                Content::ToolCall(b) => (b.name.len() + b.arguments.get().len()) as u64 / 4 + 1,
                Content::Image(_) => IMAGE_TOKENS,
                Content::Other(_) => 0,
            })
            .sum()
    };
    let mut since: u64 = 0;
    for message in request.messages.iter().rev() {
        if let Message::Assistant(answer) = &**message
            && answer.usage.total_tokens > 0
            && !matches!(answer.stop_reason, StopReason::Error | StopReason::Aborted)
        {
            return since.saturating_add(answer.usage.total_tokens);
        }
        since = since.saturating_add(size(message));
    }
    let tools: usize = request
        .tools
        .iter()
        .map(|tool| tool.name.len() + tool.description.len() + tool.parameters.get().len())
        .sum();
    since + (request.system.len() + tools) as u64 / 4
}

/// A tool call of the last assistant message, with the id that it has on the wire.
struct Call {
    id: CallId,
    wire_id: String,
    answered: bool,
}

#[derive(Default)]
struct Conversation<'a> {
    messages: Vec<WireMessage<'a>>,
    /// Ids that are taken: the wire wants each tool call's id once in a conversation, and ours are unique only
    /// within a message.
    taken: HashSet<String>,
    calls: Vec<Call>,
    results: Vec<Block<'a>>,
    /// Images of failed calls, which may not stand inside a result.
    images: Vec<Block<'a>>,
}

fn conversation<'a>(request: &'a ModelRequest, compat: &Compat) -> Vec<WireMessage<'a>> {
    let model = &*request.model;
    let mut conversation = Conversation::default();
    for message in &request.messages {
        match &**message {
            Message::User(user) => conversation.user(body(&user.content, model)),
            Message::Custom(custom) => conversation.user(body(&custom.content, model)),
            Message::BranchSummary(summary) => {
                conversation.user(text(&summary.summary).into_iter().collect());
            }
            Message::CompactionSummary(summary) => {
                conversation.user(text(&summary.summary).into_iter().collect());
            }
            Message::BashExecution(bash) if bash.exclude_from_context == Some(true) => {}
            Message::BashExecution(bash) => {
                conversation.user([text(&bash.command), text(&bash.output)].into_iter().flatten().collect());
            }
            Message::Assistant(answer) => conversation.assistant(answer, model, compat),
            Message::ToolResult(result) => conversation.result(result, model),
            Message::Other(_) => {}
        }
    }
    conversation.answer_calls();
    conversation.messages
}

impl<'a> Conversation<'a> {
    fn push(&mut self, role: Role, content: Vec<Block<'a>>) {
        if !content.is_empty() {
            self.messages.push(WireMessage { role, content });
        }
    }

    fn user(&mut self, content: Vec<Block<'a>>) {
        if !content.is_empty() {
            self.answer_calls();
            self.push(Role::User, content);
        }
    }

    fn assistant(&mut self, answer: &'a AssistantMessage, model: &Model, compat: &Compat) {
        self.answer_calls();
        if matches!(answer.stop_reason, StopReason::Error | StopReason::Aborted) {
            return;
        }
        let own = answer.provider == model.provider && answer.api == model.api && answer.model == model.id;
        let mut content = Vec::new();
        for block in &answer.content {
            match block {
                Content::Text(block) => content.extend(text(&block.text)),
                // Proof of another model's thinking means nothing here.
                Content::Thinking(_) if !own => {}
                Content::Thinking(block) => match (&block.thinking_signature, block.redacted) {
                    (Some(data), Some(true)) => content.push(Block::RedactedThinking { data }),
                    (Some(signature), _) => {
                        content.push(Block::Thinking { thinking: &block.thinking, signature });
                    }
                    (None, _) if compat.empty_signature && !block.thinking.trim().is_empty() => {
                        content.push(Block::Thinking { thinking: &block.thinking, signature: "" });
                    }
                    (None, _) => {}
                },
                Content::ToolCall(call) => {
                    let wire_id = self.wire_id(&call.id);
                    self.calls.push(Call { id: call.id.clone(), wire_id: wire_id.clone(), answered: false });
                    let mut name = wire_name(&call.name);
                    name.truncate(MAX_NAME);
                    content.push(Block::ToolUse { id: wire_id, name, input: input(&call.arguments) });
                }
                Content::Image(_) | Content::Other(_) => {}
            }
        }
        self.push(Role::Assistant, content);
    }

    fn result(&mut self, result: &'a ToolResultMessage, model: &Model) {
        // The conversation is valid: what answers no call answers one of an answer that was left out.
        let Some(call) = self.calls.iter_mut().find(|call| !call.answered && call.id == result.tool_call_id)
        else {
            return;
        };
        call.answered = true;
        let tool_use_id = call.wire_id.clone();
        let mut content = blocks(&result.content, model, TOOL_IMAGE_OMITTED);
        if result.is_error {
            let (images, rest) = content.into_iter().partition(|block| matches!(block, Block::Image { .. }));
            content = rest;
            self.images.extend::<Vec<_>>(images);
        }
        if content.is_empty() {
            content.extend(text(NO_OUTPUT));
        }
        self.results.push(Block::ToolResult {
            tool_use_id,
            content,
            is_error: result.is_error,
            cache_control: None,
        });
    }

    /// Sends the results of the last calls in one message, those that are missing too.
    fn answer_calls(&mut self) {
        for call in self.calls.drain(..).filter(|call| !call.answered) {
            self.results.push(Block::ToolResult {
                tool_use_id: call.wire_id,
                content: text(NO_RESULT).into_iter().collect(),
                is_error: true,
                cache_control: None,
            });
        }
        let mut content = std::mem::take(&mut self.results);
        if !self.images.is_empty() {
            content.extend(text(IMAGES_FOLLOW));
            content.append(&mut self.images);
        }
        self.push(Role::User, content);
    }

    fn wire_id(&mut self, id: &CallId) -> String {
        let mut base = wire_name(id.as_str());
        base.truncate(MAX_ID);
        let mut wire_id = base.clone();
        let mut count = 1;
        while !self.taken.insert(wire_id.clone()) {
            count += 1;
            let suffix = format!("_{count}");
            wire_id = base.clone();
            wire_id.truncate(MAX_ID - suffix.len());
            wire_id.push_str(&suffix);
        }
        wire_id
    }
}

/// `text` in the characters that the wire takes in names and ids; never empty, always ASCII.
fn wire_name(text: &str) -> String {
    let name: String = text
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' })
        .collect();
    if name.is_empty() { "_".into() } else { name }
}

/// The wire refuses text that is empty or only white space.
fn text(text: &str) -> Option<Block<'_>> {
    (!text.trim().is_empty()).then_some(Block::Text { text, cache_control: None })
}

fn body<'a>(body: &'a Body, model: &Model) -> Vec<Block<'a>> {
    match body {
        Body::Text(plain) => text(plain).into_iter().collect(),
        Body::Blocks(content) => blocks(content, model, IMAGE_OMITTED),
    }
}

/// Text and images; for a model that sees no images each run of them as one text.
fn blocks<'a>(content: &'a [Content], model: &Model, omitted: &'static str) -> Vec<Block<'a>> {
    let mut out = Vec::new();
    let mut in_run = false;
    for block in content {
        match block {
            Content::Text(block) => out.extend(text(&block.text)),
            Content::Image(image) if model.sees_images() => {
                out.extend(picture(image).or_else(|| text(IMAGE_UNKNOWN)));
            }
            Content::Image(_) if in_run => {}
            Content::Image(_) => out.extend(text(omitted)),
            Content::Thinking(_) | Content::ToolCall(_) | Content::Other(_) => {}
        }
        in_run = matches!(block, Content::Image(_));
    }
    out
}

/// The image, when it is one that the wire takes: a single other one would have the whole request refused.
fn picture(image: &ImageContent) -> Option<Block<'_>> {
    let media_type = match image.mime_type.as_str() {
        "image/jpg" => "image/jpeg",
        known @ ("image/png" | "image/jpeg" | "image/gif" | "image/webp") => known,
        _ => return None,
    };
    let data = image.data.as_bytes();
    let padding = data.iter().rev().take(2).take_while(|byte| **byte == b'=').count();
    let (digits, _) = data.split_at(data.len() - padding);
    let is_base64 = !digits.is_empty()
        && data.len().is_multiple_of(4)
        && digits.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'));
    is_base64.then_some(Block::Image {
        source: ImageSource::Base64 { media_type, data: &image.data },
        cache_control: None,
    })
}

/// Arguments as the wire wants them: an object. What the model wrote that is none is shown to it as text.
fn input(arguments: &Json) -> Json {
    if arguments.get().starts_with('{') && depth(arguments.get()) <= MAX_DEPTH {
        return sendable(arguments);
    }
    let text = match serde_json::from_str::<String>(arguments.get()) {
        Ok(text) => text,
        Err(_) => arguments.get().to_owned(),
    };
    Json::from(serde_json::json!({ "INVALID_JSON": text }))
}

/// `json` without halves of surrogate pairs, which servers refuse.
fn sendable(json: &Json) -> Json {
    match without_lone_surrogates(json.get()) {
        std::borrow::Cow::Borrowed(_) => json.clone(),
        std::borrow::Cow::Owned(text) => Json::parse(&text).unwrap_or_else(|_| json.clone()),
    }
}

/// How deep the arrays and objects of a JSON text nest.
fn depth(json: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut in_string, mut escaped) = (false, false);
    for byte in json.bytes() {
        if in_string {
            in_string = escaped || byte != b'"';
            escaped = !escaped && byte == b'\\';
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}
