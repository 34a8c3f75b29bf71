//! A request to the bytes of the wire. Pure and deterministic.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use quipu_protocol::{
    AssistantMessage, Content, Json, Message, Model, ModelError, ModelRequest, Thinking, ThinkingContent,
    ToolResultMessage,
};
use serde_json::{Map, Value, json};

use super::place::BedrockPlace;
use super::traits::Traits;
use super::wire::{
    Block, BodyTail, Head, Image, ImageBytes, InputSchema, Reasoning, ReasoningText, Role, Status, Tool,
    ToolConfig, ToolResult, ToolSpec, ToolUse, WireMessage,
};
use crate::anthropic::test_string::disarmed_json;
use crate::body::{Body, BodyBuilder, Memory};
use crate::openai::compat::Compat;
use crate::prepare::{
    self, Calls, MAX_NAME, MIN_ANSWER, NO_OUTPUT, NO_RESULT, TOOL_IMAGE_OMITTED, UserBlock, arguments, fit,
    own_tokens, wanted_tokens, wire_name,
};
use crate::thinking::mapped;
use crate::tool_schema;
use crate::{CallOptions, clamp_level};

/// The smallest budget that a model takes.
const MIN_BUDGET: u64 = 1_024;
/// Length of a tool call's id at most.
const MAX_ID: usize = 64;
/// Lets a model with a thinking budget think between tool calls.
const INTERLEAVED_THINKING: &str = "interleaved-thinking-2025-05-14";
/// Members of `inferenceConfig`; other parameters are those of the model alone.
const INFERENCE: [&str; 4] = ["maxTokens", "temperature", "topP", "stopSequences"];

/// Stands before a conversation that begins with an answer: the first turn is the user's.
const OPENING: &str = "(The beginning of this conversation is not shown.)";
const IMAGES_FOLLOW: &str = "Images of the failed tool call:";
/// A tool that is there where calls were made and there are no tools any more: without any the server refuses the
/// conversation.
const NO_TOOL: (&str, &str) = ("no_tool", "Tools cannot be called in this conversation.");

/// The body of `request`.
pub(super) fn encode(
    request: &ModelRequest,
    options: &CallOptions,
    place: &BedrockPlace,
    memory: &mut Memory,
) -> Result<Body, ModelError> {
    let model = &*request.model;
    let traits = Traits::of(model, place);
    let mark = traits.mark(options.cache);
    let lacks_tools = request.tools.is_empty() && request.messages.iter().any(|message| has_calls(message));
    let rest = serde_json::to_string(&(mark, lacks_tools)).unwrap_or_default();
    let dialect = Compat::of(model).tool_schema;
    let mut growing: BodyBuilder<Calls> = memory.go_on(request, rest, "messages", |out| {
        let spec = |name, description, json| {
            let input_schema = InputSchema { json };
            Tool { tool_spec: ToolSpec { name, description, input_schema } }
        };
        let mut tools: Vec<_> = request
            .tools
            .iter()
            .map(|tool| {
                let schema = disarmed_json(tool_schema::sent(tool, dialect));
                spec(&tool.name, &tool.description, schema)
            })
            .collect();
        if lacks_tools {
            let (name, description) = NO_TOOL;
            tools.push(spec(name, description, Json::from(json!({ "type": "object" }))));
        }
        let mut system = Vec::new();
        if !request.system.trim().is_empty() {
            system.push(Block::Text(&request.system));
            system.extend(mark.map(Block::CachePoint));
        }
        let head = Head { tool_config: (!tools.is_empty()).then_some(ToolConfig { tools }), system };
        serde_json::to_writer(out, &head)
    })?;
    let calls: Calls = growing.take_state();
    let mut settled = SettledPrefix { messages: 0, last: None, open_calls: calls.open.clone() };
    let mut conversation = Conversation {
        messages: Vec::new(),
        begins: growing.taken() == 0,
        calls,
        results: Vec::new(),
        images: Vec::new(),
        traits,
    };
    for (at, message) in request.messages.iter().enumerate().skip(growing.taken()) {
        match &**message {
            Message::Assistant(answer) => {
                conversation.assistant(answer, model);
                // What stands behind the last answer can still change with what follows.
                if conversation.ends_with(Role::Assistant) {
                    settled = SettledPrefix {
                        messages: conversation.messages.len(),
                        last: Some(at),
                        open_calls: conversation.calls.open.clone(),
                    };
                }
            }
            Message::ToolResult(result) => conversation.result(result, model),
            message => conversation.user(prepare::user_side(message, model).unwrap_or_default()),
        }
    }
    conversation.answer_calls();
    let Conversation { mut messages, mut calls, begins, .. } = conversation;
    if messages.is_empty() && begins {
        return Err(prepare::nothing_to_send());
    }
    if !begins && messages.first().is_some_and(|message| message.role == Role::Assistant) {
        // It belongs to the turn that was written already.
        return encode(request, options, place, &mut Memory::default());
    }
    if let Some(last) = messages.last_mut().filter(|last| last.role == Role::User) {
        last.content.extend(mark.map(Block::CachePoint));
    }
    messages[..settled.messages].iter().try_for_each(|message| growing.write(message))?;
    if settled.messages > 0 {
        growing.settle(request, settled.last);
    }
    messages[settled.messages..].iter().try_for_each(|message| growing.write(message))?;
    calls.open = settled.open_calls;
    growing.finish(memory, Some(calls), &tail(request, traits, options))
}

/// What of the conversation every longer one also begins with.
struct SettledPrefix {
    messages: usize,
    /// The last message in them.
    last: Option<usize>,
    open_calls: Vec<prepare::Call>,
}

fn has_calls(message: &Message) -> bool {
    let Message::Assistant(answer) = message else { return false };
    let is_call = |block: &Content| matches!(block, Content::ToolCall(_));
    !prepare::is_broken(answer) && answer.content.iter().any(is_call)
}

/// Limits, sampling, and the members for thinking.
fn tail(request: &ModelRequest, traits: Traits, options: &CallOptions) -> BodyTail {
    let model = &*request.model;
    let (max_tokens, mut fields) = thinking(request, traits, options);
    let mut config = Map::new();
    // What other models take is known to them better than to the catalogue.
    if traits.is_claude || request.max_tokens.is_some() {
        config.insert("maxTokens".into(), max_tokens.into());
    }
    // What the user says of the model wins.
    for (name, value) in prepare::sampling(model, &[]) {
        let place = if INFERENCE.contains(&name.as_str()) { &mut config } else { &mut fields };
        place.insert(name, value);
    }
    BodyTail { inference_config: config, additional_model_request_fields: fields }
}

/// How many tokens the model may write, and the members that tell it to think.
fn thinking(request: &ModelRequest, traits: Traits, options: &CallOptions) -> (u64, Map<String, Value>) {
    let model = &*request.model;
    let mut fields = Map::new();
    let wanted = wanted_tokens(request);
    let level = clamp_level(model, request.thinking);
    if level == Thinking::Off || !traits.is_claude {
        return (fit(request, wanted), fields);
    }
    let mode = |kind: &str, budget: Option<u64>| {
        let mut mode = json!({ "type": kind });
        if let Some(budget) = budget {
            mode["budget_tokens"] = budget.into();
        }
        if traits.has_display {
            mode["display"] = "summarized".into();
        }
        mode
    };
    if traits.is_adaptive {
        let effort = mapped(model, level).unwrap_or_else(|| {
            String::from(match level {
                Thinking::Off | Thinking::Minimal | Thinking::Low => "low",
                Thinking::Medium => "medium",
                Thinking::High | Thinking::Xhigh | Thinking::Max => "high",
            })
        });
        fields.insert("thinking".into(), mode("adaptive", None));
        fields.insert("output_config".into(), json!({ "effort": effort }));
        return (fit(request, wanted), fields);
    }
    let own = own_tokens(model);
    let budget = options.budgets.of(level);
    // Thinking counts as output: a caller's limit is for the answer.
    let total = if request.max_tokens.is_some() { wanted.saturating_add(budget).min(own) } else { own };
    let total = fit(request, total);
    let budget = u64::min(budget, total.saturating_sub(MIN_ANSWER));
    if budget >= MIN_BUDGET {
        fields.insert("thinking".into(), mode("enabled", Some(budget)));
        fields.insert("anthropic_beta".into(), json!([INTERLEAVED_THINKING]));
    }
    (total, fields)
}

struct Conversation<'a> {
    messages: Vec<WireMessage<'a>>,
    /// Nothing stands before the first of them; else an answer does.
    begins: bool,
    calls: Calls,
    results: Vec<Block<'a>>,
    /// Images of failed calls, which may not stand inside a result.
    images: Vec<Block<'a>>,
    traits: Traits,
}

impl<'a> Conversation<'a> {
    fn ends_with(&self, role: Role) -> bool {
        self.messages.last().is_some_and(|message| message.role == role)
    }

    /// Adds to the turn of this role, or begins one: the roles take turns.
    fn push(&mut self, role: Role, content: Vec<Block<'a>>) {
        if content.is_empty() {
            return;
        }
        if self.begins && self.messages.is_empty() && role == Role::Assistant {
            self.messages.push(WireMessage { role: Role::User, content: vec![Block::Text(OPENING)] });
        }
        match self.messages.last_mut() {
            Some(last) if last.role == role => last.content.extend(content),
            Some(_) | None => self.messages.push(WireMessage { role, content }),
        }
    }

    fn user(&mut self, shown: Vec<UserBlock<'a>>) {
        if !shown.is_empty() {
            self.answer_calls();
            self.push(Role::User, shown.into_iter().map(Block::from).collect());
        }
    }

    fn assistant(&mut self, answer: &'a AssistantMessage, model: &Model) {
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
                Content::Thinking(block) => content.extend(self.reasoning(block)),
                Content::ToolCall(call) => {
                    let tool_use_id = self.calls.open(&call.id, wire_name(call.id.as_str()), MAX_ID);
                    let mut name = wire_name(&call.name);
                    name.truncate(MAX_NAME);
                    let input = disarmed_json(with_full_names(arguments(&call.arguments)));
                    content.push(Block::ToolUse(ToolUse { tool_use_id, name, input }));
                }
                Content::Image(_) | Content::Other(_) => {}
            }
        }
        self.push(Role::Assistant, content);
    }

    fn reasoning(&self, block: &'a ThinkingContent) -> Option<Block<'a>> {
        let signature = block.thinking_signature.as_deref().filter(|text| !text.trim().is_empty());
        if block.redacted == Some(true) {
            let data = signature.filter(|data| STANDARD.decode(data).is_ok())?;
            return Some(Block::ReasoningContent(Reasoning::RedactedContent(data)));
        }
        if block.thinking.trim().is_empty() {
            return None;
        }
        // Only these models take signatures, and they refuse thinking without one.
        let signature = if self.traits.is_claude { Some(signature?) } else { None };
        let text = ReasoningText { text: &block.thinking, signature };
        Some(Block::ReasoningContent(Reasoning::ReasoningText(text)))
    }

    fn result(&mut self, result: &'a ToolResultMessage, model: &Model) {
        let Some(tool_use_id) = self.calls.answer(&result.tool_call_id) else { return };
        let shown = prepare::shown(&result.content, model, TOOL_IMAGE_OMITTED);
        let mut content: Vec<_> = shown.into_iter().map(Block::from).collect();
        if result.is_error {
            let (images, rest) = content.into_iter().partition(|block| matches!(block, Block::Image(_)));
            content = rest;
            self.images.extend::<Vec<_>>(images);
        }
        if content.is_empty() {
            content.push(Block::Text(NO_OUTPUT));
        }
        let status = if result.is_error { Status::Error } else { Status::Success };
        self.results.push(Block::ToolResult(ToolResult { tool_use_id, content, status }));
    }

    /// Sends the results of the last calls in one turn, those that are missing too.
    fn answer_calls(&mut self) {
        for tool_use_id in self.calls.close() {
            let content = vec![Block::Text(NO_RESULT)];
            self.results.push(Block::ToolResult(ToolResult { tool_use_id, content, status: Status::Error }));
        }
        let mut content = std::mem::take(&mut self.results);
        if !self.images.is_empty() {
            content.push(Block::Text(IMAGES_FOLLOW));
            content.append(&mut self.images);
        }
        self.push(Role::User, content);
    }
}

/// The wire refuses text that is empty or only white space.
fn text(text: &str) -> Option<Block<'_>> {
    (!text.trim().is_empty()).then_some(Block::Text(text))
}

/// Arguments without members that have no name, which the server refuses.
fn with_full_names(arguments: Json) -> Json {
    fn drop_nameless(value: &mut Value) {
        match value {
            Value::Object(members) => {
                members.retain(|name, _| !name.is_empty());
                members.values_mut().for_each(drop_nameless);
            }
            Value::Array(values) => values.iter_mut().for_each(drop_nameless),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    // Seldom: what is written anew may be written differently.
    if !arguments.get().contains("\"\"") {
        return arguments;
    }
    let mut value = arguments.value();
    let before = value.clone();
    drop_nameless(&mut value);
    if value == before { arguments } else { Json::from(value) }
}

impl<'a> From<UserBlock<'a>> for Block<'a> {
    fn from(shown: UserBlock<'a>) -> Self {
        match shown {
            UserBlock::Text(text) => Self::Text(text),
            UserBlock::Image { media_type, data } => {
                let format = media_type.strip_prefix("image/").unwrap_or(media_type);
                Self::Image(Image { format, source: ImageBytes { bytes: data } })
            }
        }
    }
}
