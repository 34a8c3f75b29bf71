//! A request to the bytes of the wire. Pure and deterministic.

use bytes::Bytes;
use quipu_protocol::{
    AssistantMessage, Content, Message, Model, ModelError, ModelRequest, Thinking, ToolResultMessage,
};

use super::Compat;
use super::wire::{Block, ImageSource, OutputConfig, Request, Role, ThinkingMode, Tool, WireMessage};
use crate::CallOptions;
use crate::cache::CacheControl;
use crate::prepare::{
    self, Calls, MIN_ANSWER, NO_OUTPUT, NO_RESULT, Shown, TOOL_IMAGE_OMITTED, arguments, fit, own_tokens,
    sendable, wanted_tokens, wire_name,
};
use crate::thinking::{clamp_level, mapped};

/// The smallest budget that the wire takes.
const MIN_BUDGET: u64 = 1_024;
/// Length of a tool call's id at most.
const MAX_ID: usize = 64;
/// Length of a tool's name at most; a model can make up a longer one, and every later request would be refused.
const MAX_NAME: usize = 128;

const IMAGES_FOLLOW: &str = "Images of the failed tool call:";

/// The body of `request`.
pub(super) fn encode(request: &ModelRequest, options: &CallOptions) -> Result<Bytes, ModelError> {
    let model = &*request.model;
    let compat = Compat::of(model);
    let mark = CacheControl::of(options.cache, compat.long_cache);
    let (thinking, output_config, max_tokens) = thinking(request, &compat, options);
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
        last.cache_control = mark;
    }
    let system = (!request.system.trim().is_empty())
        .then_some(Block::Text { text: &request.system, cache_control: mark });
    let mut messages = conversation(request, &compat);
    if messages.is_empty() {
        return Err(prepare::nothing_to_send());
    }
    let last_user = messages.iter_mut().rev().find(|message| message.role == Role::User);
    if let Some(block) = last_user.and_then(|message| message.content.last_mut()) {
        block.mark(mark);
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
    prepare::to_bytes(&body)
}

/// How the model is told to think, and how many tokens it may write.
fn thinking(
    request: &ModelRequest,
    compat: &Compat,
    options: &CallOptions,
) -> (Option<ThinkingMode>, Option<OutputConfig>, u64) {
    let model = &*request.model;
    let own = own_tokens(model);
    let wanted = wanted_tokens(request);
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
    let budget = options.budgets.of(level);
    // Thinking counts as output: a caller's limit is for the answer.
    let total = if request.max_tokens.is_some() { wanted.saturating_add(budget).min(own) } else { own };
    let total = fit(request, total);
    let budget = u64::min(budget, total.saturating_sub(MIN_ANSWER));
    if budget < MIN_BUDGET {
        return (Some(ThinkingMode::Disabled), None, total);
    }
    (Some(ThinkingMode::Enabled { budget_tokens: budget, display: DISPLAY }), None, total)
}

#[derive(Default)]
struct Conversation<'a> {
    messages: Vec<WireMessage<'a>>,
    calls: Calls,
    results: Vec<Block<'a>>,
    /// Images of failed calls, which may not stand inside a result.
    images: Vec<Block<'a>>,
}

fn conversation<'a>(request: &'a ModelRequest, compat: &Compat) -> Vec<WireMessage<'a>> {
    let model = &*request.model;
    let mut conversation = Conversation::default();
    for message in &request.messages {
        match &**message {
            Message::Assistant(answer) => conversation.assistant(answer, model, compat),
            Message::ToolResult(result) => conversation.result(result, model),
            message => conversation.user(prepare::user_side(message, model).unwrap_or_default()),
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

    fn user(&mut self, content: Vec<Shown<'a>>) {
        if !content.is_empty() {
            self.answer_calls();
            self.push(Role::User, content.into_iter().map(Block::from).collect());
        }
    }

    fn assistant(&mut self, answer: &'a AssistantMessage, model: &Model, compat: &Compat) {
        self.answer_calls();
        if prepare::is_broken(answer) {
            return;
        }
        let own = prepare::is_own(answer, model);
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
                    let id = self.calls.open(&call.id, wire_name(call.id.as_str()), MAX_ID);
                    let mut name = wire_name(&call.name);
                    name.truncate(MAX_NAME);
                    content.push(Block::ToolUse { id, name, input: arguments(&call.arguments) });
                }
                Content::Image(_) | Content::Other(_) => {}
            }
        }
        self.push(Role::Assistant, content);
    }

    fn result(&mut self, result: &'a ToolResultMessage, model: &Model) {
        let Some(tool_use_id) = self.calls.answer(&result.tool_call_id) else { return };
        let shown = prepare::shown(&result.content, model, TOOL_IMAGE_OMITTED);
        let mut content: Vec<_> = shown.into_iter().map(Block::from).collect();
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
        for tool_use_id in self.calls.close() {
            self.results.push(Block::ToolResult {
                tool_use_id,
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
}

/// The wire refuses text that is empty or only white space.
fn text(text: &str) -> Option<Block<'_>> {
    (!text.trim().is_empty()).then_some(Block::Text { text, cache_control: None })
}

impl<'a> From<Shown<'a>> for Block<'a> {
    fn from(shown: Shown<'a>) -> Self {
        match shown {
            Shown::Text(text) => Self::Text { text, cache_control: None },
            Shown::Image { media_type, data } => {
                Self::Image { source: ImageSource::Base64 { media_type, data }, cache_control: None }
            }
        }
    }
}
