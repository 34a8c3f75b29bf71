//! A request to the bytes of the wire. Pure and deterministic.

use quipu_protocol::{
    AssistantMessage, Content, Json, Message, Model, ModelError, ModelRequest, Thinking, ThinkingContent,
    ToolResultMessage,
};
use serde_json::{Map, Value, json};

use super::compat::{CacheControlFormat, Compat, MaxTokensField, PromptCacheKeyMode, ThinkingFormat};
use super::wire::{
    BodyTail, CallFunction, CallKind, Function, Head, ImageUrl, Part, Role, StreamOptions, Tool, WireCall,
    WireContent, WireMessage,
};
use crate::body::{Body, BodyBuilder, Memory};
use crate::cache::CacheControl;
use crate::prepare::{
    self, Calls, IMAGES_FOLLOW, MAX_NAME, MIN_ANSWER, NO_RESULT, NO_TOOL_OUTPUT, RESULTS_READ, SEE_IMAGE,
    TOOL_IMAGE_OMITTED, UserBlock, arguments, output_tokens, sampling, sendable, wire_name,
};
use crate::structured::{self, FormDefault};
use crate::thinking::mapped;
use crate::tool_schema;
use crate::{CacheRetention, CallOptions};
use crate::{clamp_level, level_name};

/// Length of a tool call's id at most, where it is the server's own.
const MAX_OWN_ID: usize = 64;
/// Length of another server's id at most.
const MAX_ID: usize = 40;
/// Members that `samplingParams` do not change.
const FIXED: [&str; 4] = ["model", "messages", "stream", "tools"];

/// What is remembered where a longer conversation goes on.
#[derive(Default)]
struct State {
    calls: Calls,
    /// The last message that was written is a result.
    behind_result: bool,
}

/// The body of `request`.
pub(super) fn encode(
    request: &ModelRequest,
    options: &CallOptions,
    memory: &mut Memory,
) -> Result<Body, ModelError> {
    let model = &*request.model;
    let compat = Compat::of(model);
    let level = clamp_level(model, request.thinking);
    let max_tokens = output_tokens(request, level, options.budgets);
    let budget = options.budgets.of(level).min(max_tokens.saturating_sub(MIN_ANSWER));
    let budget = (level != Thinking::Off && budget > 0).then_some(budget);
    let long_cache = options.cache == CacheRetention::Long && compat.supports_long_cache_retention;
    let cached = options.cache != CacheRetention::Off
        && match compat.prompt_cache_key_mode {
            PromptCacheKeyMode::Enabled => true,
            PromptCacheKeyMode::Auto => long_cache,
            PromptCacheKeyMode::Disabled => false,
        };
    let prompt_cache_key = request.session.as_deref().filter(|_| cached).map(prepare::cache_key);
    let old_field = compat.max_tokens_field == MaxTokensField::MaxTokens;
    // What the user says of the model comes last, and wins over all but the conversation itself.
    let own = sampling(model, &FIXED);
    let ours = |name: &str| !own.contains_key(name);
    let marks = compat.cache_control_format == Some(CacheControlFormat::Anthropic);
    let mark = CacheControl::of(options.cache, compat.supports_long_cache_retention).filter(|_| marks);
    let tools = tools(request, &compat, mark);
    let usage = compat.supports_usage_in_streaming && ours("stream_options");
    let tool_stream = compat.zai_tool_stream && tools.is_some() && ours("tool_stream");
    let mut extra = extra(model, &compat, level);
    let mut budget = budget_members(model, &compat, level, budget);
    budget.retain(|name, _| ours(name));
    extra.retain(|name, _| ours(name));
    let last = BodyTail {
        max_tokens: (old_field && ours("max_tokens")).then_some(max_tokens),
        max_completion_tokens: (!old_field && ours("max_completion_tokens")).then_some(max_tokens),
        budget,
    };
    let prompt_cache_key = prompt_cache_key.filter(|_| ours("prompt_cache_key"));
    let prompt_cache_retention = (long_cache && ours("prompt_cache_retention")).then_some("24h");
    let store = (compat.supports_store && ours("store")).then_some(false);
    let mut extra: Map<String, Value> = extra.into_iter().chain(own).collect();
    let format = structured::format(request, options, FormDefault::Listed)
        .filter(|_| !extra.contains_key("response_format"));
    if let Some(format) = format {
        extra.insert("response_format".to_owned(), json!({ "type": "json_schema", "json_schema": format }));
    }
    let rest = (prompt_cache_key, prompt_cache_retention, &extra, tools.is_some(), mark);
    let rest = serde_json::to_string(&rest).unwrap_or_default();
    let mut growing: BodyBuilder<State> = memory.go_on(request, rest, "messages", |out| {
        let head = Head {
            model: &model.id,
            stream: true,
            stream_options: usage.then_some(StreamOptions { include_usage: true }),
            store,
            prompt_cache_key,
            prompt_cache_retention,
            tool_stream: tool_stream.then_some(true),
            tools: tools.as_deref(),
            extra: &extra,
        };
        serde_json::to_writer(out, &head)
    })?;
    if growing.begins() && !request.system.trim().is_empty() {
        let developer = model.reasoning && compat.supports_developer_role;
        let role = if developer { Role::Developer } else { Role::System };
        let mut system = WireMessage::new(role, WireContent::Text(request.system.to_string()));
        mark_text(&mut system, mark);
        growing.write(&system)?;
        growing.settle(request, None);
    }
    // What stands behind the last answer can still change with what follows: its results and the mark.
    let last_answer = request.messages.iter().rposition(|message| matches!(**message, Message::Assistant(_)));
    let State { calls, behind_result } = growing.take_state();
    let (mut settled, mut open) = (0, calls.open.clone());
    let mut conversation = Conversation { calls, behind_result, ..Conversation::default() };
    for (at, message) in request.messages.iter().enumerate().skip(growing.taken()) {
        match &**message {
            Message::Assistant(answer) => {
                conversation.close(&compat);
                conversation.assistant(answer, model, &compat);
            }
            Message::ToolResult(result) => conversation.result(result, model, &compat),
            message => conversation.user(prepare::user_side(message, model).unwrap_or_default(), &compat),
        }
        if Some(at) == last_answer {
            settled = conversation.messages.len();
            open.clone_from(&conversation.calls.open);
        }
    }
    conversation.close(&compat);
    let Conversation { mut messages, mut calls, .. } = conversation;
    if messages.is_empty() && growing.taken() == 0 {
        return Err(prepare::nothing_to_send());
    }
    let mut settles = true;
    if mark.is_some() {
        let said = |message: &WireMessage<'_>| matches!(message.role, Role::User | Role::Assistant);
        let marked = messages.iter_mut().rposition(|message| said(message) && mark_text(message, mark));
        if marked.is_none() && growing.taken() > 0 {
            // The mark is in what was written already.
            return encode(request, options, &mut Memory::default());
        }
        settles = marked.is_some_and(|marked| marked >= settled);
    }
    calls.open = open;
    let behind_result = messages[..settled].last().map_or(behind_result, is_result);
    messages[..settled].iter().try_for_each(|message| growing.write(message))?;
    if settles && settled > 0 {
        growing.settle(request, last_answer);
    }
    messages[settled..].iter().try_for_each(|message| growing.write(message))?;
    growing.finish(memory, settles.then_some(State { calls, behind_result }), &last)
}

/// The declarations; `None` for none at all, which is not the same as an empty list.
fn tools<'a>(
    request: &'a ModelRequest,
    compat: &Compat,
    mark: Option<CacheControl>,
) -> Option<Vec<Tool<'a>>> {
    let has_calls = || {
        request.messages.iter().any(|message| match &**message {
            Message::Assistant(answer) => !prepare::is_broken(answer) && answer.tool_calls().next().is_some(),
            _ => false,
        })
    };
    if request.tools.is_empty() && !(compat.requires_tools_with_tool_history && has_calls()) {
        return None;
    }
    let last = request.tools.len().wrapping_sub(1);
    let tools = request.tools.iter().enumerate().map(|(at, tool)| Tool::Function {
        function: Function {
            name: &tool.name,
            description: &tool.description,
            parameters: tool_schema::sent(tool, compat.tool_schema),
            strict: compat.supports_strict_mode.then_some(false),
        },
        cache_control: mark.filter(|_| at == last),
    });
    Some(tools.collect())
}

/// Marks the last text of a message, if at all; says whether it has any.
fn mark_text(message: &mut WireMessage<'_>, mark: Option<CacheControl>) -> bool {
    match &mut message.content {
        WireContent::Null => false,
        _ if mark.is_none() => true,
        WireContent::Text(text) => {
            let text = std::mem::take(text);
            message.content = WireContent::Parts(vec![Part::Text { text, cache_control: mark }]);
            true
        }
        WireContent::Parts(parts) => parts.iter_mut().rev().any(|part| match part {
            Part::Text { cache_control, .. } => {
                *cache_control = mark;
                true
            }
            Part::ImageUrl { .. } => false,
        }),
    }
}

fn is_result(message: &WireMessage<'_>) -> bool {
    message.role == Role::Tool
}

/// How hard to think, and where a router sends the request: members that only some servers know.
fn extra(model: &Model, compat: &Compat, level: Thinking) -> Map<String, Value> {
    use ThinkingFormat as F;
    let mut extra = Map::new();
    let mut set = |name: &str, value: Value| drop(extra.insert(name.to_owned(), value));
    let on = level != Thinking::Off;
    let renamed = mapped(model, level);
    let effort = renamed.clone().or_else(|| on.then(|| level_name(level).to_owned()));
    let plain_effort = effort.clone().filter(|_| on && compat.supports_reasoning_effort);
    let switch = || json!({ "type": if on { "enabled" } else { "disabled" } });
    if model.reasoning {
        match compat.thinking_format {
            F::Openai => {
                let effort = effort.filter(|_| compat.supports_reasoning_effort);
                effort.into_iter().for_each(|effort| set("reasoning_effort", effort.into()));
            }
            F::Openrouter => {
                set("reasoning", json!({ "effort": effort.unwrap_or_else(|| "none".into()) }));
            }
            F::StringThinking => set("thinking", effort.unwrap_or_else(|| "none".into()).into()),
            F::AntLing => {
                let effort = renamed.filter(|_| on);
                effort.into_iter().for_each(|effort| set("reasoning", json!({ "effort": effort })));
            }
            F::Deepseek => set("thinking", switch()),
            F::Zai if on => set("thinking", json!({ "type": "enabled", "clear_thinking": false })),
            F::Zai => set("thinking", switch()),
            F::Qwen => set("enable_thinking", on.into()),
            F::QwenChatTemplate => {
                let arguments = json!({ "enable_thinking": on, "preserve_thinking": true });
                set("chat_template_kwargs", arguments);
            }
            F::Together => set("reasoning", json!({ "enabled": on })),
            F::Baseten => {
                let effort = effort.filter(|_| compat.supports_reasoning_effort);
                effort.into_iter().for_each(|effort| set("reasoning_effort", effort.into()));
            }
            // Both may name the budget, which depends on `max_tokens` and so on the conversation.
            F::ChatTemplate => {}
        }
        if matches!(compat.thinking_format, F::Deepseek | F::Zai | F::Qwen | F::Together) {
            plain_effort.into_iter().for_each(|effort| set("reasoning_effort", effort.into()));
        }
    }
    if let Some(priority) = compat.vllm_priority {
        set("priority", priority.into());
    }
    if let Some(routing) = &compat.open_router_routing {
        set("provider", Value::Object(routing.clone()));
    }
    if let Some(routing) = &compat.vercel_gateway_routing {
        let known = routing.iter().filter(|(name, _)| matches!(name.as_str(), "only" | "order"));
        let known: Map<_, _> = known.map(|(name, value)| (name.clone(), value.clone())).collect();
        if !known.is_empty() {
            set("providerOptions", json!({ "gateway": known }));
        }
    }
    extra
}

/// The members that may hold a budget of thinking.
fn budget_members(
    model: &Model,
    compat: &Compat,
    level: Thinking,
    budget: Option<u64>,
) -> Map<String, Value> {
    let mut members = Map::new();
    if !model.reasoning {
        return members;
    }
    let (name, template) = match compat.thinking_format {
        ThinkingFormat::ChatTemplate => ("chat_template_kwargs", &compat.chat_template_kwargs),
        ThinkingFormat::Baseten => ("chat_template_args", &compat.chat_template_args),
        ThinkingFormat::Openai
        | ThinkingFormat::Openrouter
        | ThinkingFormat::Deepseek
        | ThinkingFormat::Zai
        | ThinkingFormat::Qwen
        | ThinkingFormat::QwenChatTemplate
        | ThinkingFormat::Together
        | ThinkingFormat::StringThinking
        | ThinkingFormat::AntLing => ("", &Map::new()),
    };
    let filled: Map<_, _> = template
        .iter()
        .filter_map(|(name, value)| Some((name.clone(), fill_in(value, model, level, budget)?)))
        .collect();
    if !filled.is_empty() {
        members.insert(name.to_owned(), Value::Object(filled));
    }
    let field = compat.thinking_token_budget_field.as_deref();
    let field = field.or(compat.supports_thinking_token_budget.then_some("thinking_token_budget"));
    if let (Some(field), Some(budget)) = (field, budget) {
        members.insert(field.to_owned(), budget.into());
    }
    members
}

/// A value of a template: itself, or what its `$var` stands for; `None` where it is to be left out.
fn fill_in(value: &Value, model: &Model, level: Thinking, budget: Option<u64>) -> Option<Value> {
    let Value::Object(reference) = value else { return Some(value.clone()) };
    let on = level != Thinking::Off;
    if !on && reference.get("omitWhenOff") == Some(&Value::Bool(true)) {
        return None;
    }
    match reference.get("$var").and_then(Value::as_str) {
        Some("thinking.enabled") => Some(on.into()),
        Some("thinking.budget") => budget.map(Value::from),
        _ => mapped(model, level).or_else(|| on.then(|| level_name(level).to_owned())).map(Value::from),
    }
}

#[derive(Default)]
struct Conversation<'a> {
    messages: Vec<WireMessage<'a>>,
    /// The message before the first of them is a result.
    behind_result: bool,
    calls: Calls,
    results: Vec<WireMessage<'a>>,
    /// Images of results, which have no place in them.
    images: Vec<Part<'a>>,
}

impl<'a> Conversation<'a> {
    fn user(&mut self, shown: Vec<UserBlock<'a>>, compat: &Compat) {
        if shown.is_empty() {
            return;
        }
        self.close(compat);
        let content = content(shown);
        self.push_user(content, compat);
    }

    fn push_user(&mut self, content: WireContent<'a>, compat: &Compat) {
        let behind_result = self.messages.last().map_or(self.behind_result, is_result);
        if behind_result && compat.requires_assistant_after_tool_result {
            let read = WireContent::Text(RESULTS_READ.into());
            self.messages.push(WireMessage::new(Role::Assistant, read));
        }
        self.messages.push(WireMessage::new(Role::User, content));
    }

    fn assistant(&mut self, answer: &'a AssistantMessage, model: &Model, compat: &Compat) {
        if prepare::is_broken(answer) {
            return;
        }
        let own = prepare::is_own(answer, model);
        let mut message = WireMessage::new(Role::Assistant, WireContent::Null);
        let mut texts: Vec<&str> = Vec::new();
        let mut thoughts: Vec<&ThinkingContent> = Vec::new();
        for block in &answer.content {
            match block {
                Content::Text(block) if !block.text.trim().is_empty() => texts.push(&block.text),
                // Another model's thinking means nothing here.
                Content::Thinking(block) if own && block.redacted != Some(true) => thoughts.push(block),
                Content::ToolCall(call) => {
                    let (base, longest) = wire_id(call.id.as_str(), own);
                    let id = self.calls.open(&call.id, base, longest);
                    let mut name = wire_name(&call.name);
                    name.truncate(MAX_NAME);
                    let arguments = arguments(&call.arguments).to_string();
                    let function = CallFunction { name, arguments };
                    message.tool_calls.push(WireCall { id, kind: CallKind::Function, function });
                }
                Content::Text(_) | Content::Thinking(_) | Content::Image(_) | Content::Other(_) => {}
            }
        }
        if texts.is_empty() && message.tool_calls.is_empty() {
            return;
        }
        let thought = thoughts.iter().map(|block| block.thinking.as_str()).filter(|text| !text.is_empty());
        let thought = thought.collect::<Vec<_>>().join("\n");
        if compat.requires_thinking_as_text && !thought.trim().is_empty() {
            texts.insert(0, &thought);
        } else {
            give_back(&mut message, &thoughts, thought.clone(), compat, model);
        }
        let text = texts.join("\n");
        let needs_text =
            compat.requires_non_null_assistant_content || compat.requires_assistant_after_tool_result;
        if !text.is_empty() || needs_text {
            message.content = WireContent::Text(text);
        }
        self.messages.push(message);
    }

    fn result(&mut self, result: &'a ToolResultMessage, model: &Model, compat: &Compat) {
        let Some(id) = self.calls.answer(&result.tool_call_id) else { return };
        let mut texts = Vec::new();
        let mut has_images = false;
        for shown in prepare::shown(&result.content, model, TOOL_IMAGE_OMITTED) {
            match shown {
                UserBlock::Text(text) => texts.push(text),
                UserBlock::Image { .. } => {
                    has_images = true;
                    self.images.push(part(shown));
                }
            }
        }
        let mut text = texts.join("\n");
        if text.is_empty() {
            text.push_str(if has_images { SEE_IMAGE } else { NO_TOOL_OUTPUT });
        }
        let mut message = WireMessage::new(Role::Tool, WireContent::Text(text));
        message.tool_call_id = Some(id);
        if compat.requires_tool_result_name && !result.tool_name.is_empty() {
            let mut name = wire_name(&result.tool_name);
            name.truncate(MAX_NAME);
            message.name = Some(name);
        }
        self.results.push(message);
    }

    /// Sends the results of the last calls, those that are missing too, and then their images.
    fn close(&mut self, compat: &Compat) {
        self.messages.append(&mut self.results);
        for id in self.calls.close() {
            let mut message = WireMessage::new(Role::Tool, WireContent::Text(NO_RESULT.into()));
            message.tool_call_id = Some(id);
            self.messages.push(message);
        }
        if !self.images.is_empty() {
            let mut parts = vec![Part::Text { text: IMAGES_FOLLOW.into(), cache_control: None }];
            parts.append(&mut self.images);
            self.push_user(WireContent::Parts(parts), compat);
        }
    }
}

/// Gives the server its own thinking back, in the member that it came in.
fn give_back(
    message: &mut WireMessage<'_>,
    thoughts: &[&ThinkingContent],
    thought: String,
    compat: &Compat,
    model: &Model,
) {
    let signature = thoughts.iter().find_map(|block| block.thinking_signature.as_deref());
    let wants_it = compat.requires_reasoning_content_on_assistant_messages;
    match signature {
        Some(details) if details.starts_with('[') => {
            message.reasoning_details = Json::parse(details).ok().map(|details| sendable(&details));
        }
        _ if thought.trim().is_empty() => {}
        Some("reasoning") => message.reasoning = Some(thought),
        Some("reasoning_text") => message.reasoning_text = Some(thought),
        Some("reasoning_content") => message.reasoning_content = Some(thought),
        Some(_) | None if wants_it => message.reasoning_content = Some(thought),
        Some(_) | None => {}
    }
    if wants_it && model.reasoning && message.reasoning_content.is_none() {
        message.reasoning_content = Some(String::new());
    }
}

fn part(shown: UserBlock<'_>) -> Part<'_> {
    match shown {
        UserBlock::Text(text) => Part::Text { text: text.to_owned(), cache_control: None },
        UserBlock::Image { media_type, data } => Part::ImageUrl { image_url: ImageUrl { media_type, data } },
    }
}

/// Text alone as a plain string, which every server takes.
fn content(shown: Vec<UserBlock<'_>>) -> WireContent<'_> {
    match prepare::texts(&shown) {
        Some(texts) => WireContent::Text(texts.join("\n")),
        None => WireContent::Parts(shown.into_iter().map(part).collect()),
    }
}

/// The id of a call before it is made unique, and how long it may be. A server's own stays as it was; another's is
/// written in the characters that all take: the part before `|` and the part behind it when both fit, and else the
/// beginning with a hash of the whole.
fn wire_id(id: &str, own: bool) -> (String, usize) {
    if own && !id.is_empty() && id.len() <= MAX_OWN_ID && id.bytes().all(|byte| byte.is_ascii_graphic()) {
        return (id.to_owned(), MAX_OWN_ID);
    }
    let mut base = wire_name(id);
    if base.len() > MAX_ID {
        // FNV-1a: short, and the same everywhere.
        let hash =
            id.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        let start = id.split('|').next().map(wire_name).unwrap_or_default();
        base = start.chars().take(MAX_ID - 9).collect();
        base.push_str(&format!("_{hash:08x}"));
    }
    (base, MAX_ID)
}
