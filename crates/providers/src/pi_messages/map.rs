//! A request to the bytes of the wire. Pure and deterministic.
//!
//! The gateway does to a conversation what each model wants. What one model signed or thought is left out here all the
//! same where another one is called: it concerns nobody else.

use std::collections::HashMap;

use quipu_protocol::{
    AssistantMessage, Body as Text, CallId, Content, ImageContent, Message, Model, ModelError, ModelRequest,
    TextContent, Thinking, ToolCall, ToolResultMessage, UnixMs, UserMessage,
};

use super::wire::{BodyTail, Context, Head, Options, Tool};
use crate::body::{Body, BodyBuilder, Memory};
use crate::openai::compat::Compat;
use crate::prepare::{
    self, Calls, NO_OUTPUT, NO_RESULT, TOOL_IMAGE_OMITTED, UserBlock, arguments, output_tokens, sampling,
    wire_name,
};
use crate::tool_schema;
use crate::{CacheRetention, CallOptions, clamp_level, level_name};

/// Length of a call's id at most. What a gateway gives holds the ids of the server behind it.
const MAX_ID: usize = 512;
/// Length of a tool's name at most.
const MAX_NAME: usize = 128;

/// The body of `request`.
pub(super) fn encode(
    request: &ModelRequest,
    options: &CallOptions,
    memory: &mut Memory,
) -> Result<Body, ModelError> {
    let model = &*request.model;
    let level = clamp_level(model, request.thinking);
    let own = sampling(model, &[]);
    let ours = |name: &str| !own.contains_key(name);
    let max_tokens = request.max_tokens.map(|_| output_tokens(request, level, options.budgets));
    let max_tokens = max_tokens.filter(|_| ours("maxTokens"));
    let thinks = model.reasoning && level != Thinking::Off && ours("reasoning");
    let is_cached = options.cache != CacheRetention::Off && ours("sessionId");
    let cache_retention = match options.cache {
        CacheRetention::Off => "none",
        CacheRetention::Short => "short",
        CacheRetention::Long => "long",
    };
    let options = || Options {
        max_tokens,
        reasoning: thinks.then(|| level_name(level)),
        cache_retention: ours("cacheRetention").then_some(cache_retention),
        session_id: request.session.as_deref().filter(|_| is_cached),
        extra: &own,
    };
    let rest = serde_json::to_string(&options()).unwrap_or_default();
    let dialect = Compat::of(model).tool_schema;
    let mut growing: BodyBuilder<State> = memory.go_on(request, rest, "messages", |out| {
        let tools = request.tools.iter().map(|tool| {
            let parameters = tool_schema::sent(tool, dialect);
            Tool { name: &tool.name, description: &tool.description, parameters }
        });
        let system_prompt = Some(&*request.system).filter(|text| !text.trim().is_empty());
        let context = Context { system_prompt, tools: tools.collect() };
        serde_json::to_writer(&mut *out, &Head { model: &model.id, options: options(), context })?;
        // The messages are part of the context.
        out.pop();
        Ok(())
    })?;
    growing.close_with("}");
    // What stands behind the last answer can still change with what follows: its results.
    let last_answer = request.messages.iter().rposition(|message| matches!(**message, Message::Assistant(_)));
    let State { calls, names } = growing.take_state();
    let (mut settled, mut open) = (0, calls.open.clone());
    let mut conversation = Conversation { calls, names, ..Conversation::default() };
    for (at, message) in request.messages.iter().enumerate().skip(growing.taken()) {
        match &**message {
            Message::Assistant(answer) => {
                conversation.close();
                conversation.assistant(answer, model);
            }
            Message::ToolResult(result) => conversation.result(result, model),
            message => {
                let shown = prepare::user_side(message, model).unwrap_or_default();
                conversation.user(&shown, message.timestamp());
            }
        }
        if Some(at) == last_answer {
            settled = conversation.messages.len();
            open.clone_from(&conversation.calls.open);
        }
    }
    conversation.close();
    let Conversation { messages, mut calls, names, .. } = conversation;
    if messages.is_empty() && growing.taken() == 0 {
        return Err(prepare::nothing_to_send());
    }
    calls.open = open;
    messages[..settled].iter().try_for_each(|message| growing.write(message))?;
    if settled > 0 {
        growing.settle(request, last_answer);
    }
    messages[settled..].iter().try_for_each(|message| growing.write(message))?;
    growing.finish(memory, Some(State { calls, names }), &BodyTail {})
}

/// What is remembered where a longer conversation goes on.
#[derive(Default)]
struct State {
    calls: Calls,
    names: HashMap<String, String>,
}

#[derive(Default)]
struct Conversation {
    messages: Vec<Message>,
    calls: Calls,
    /// Names of tools by the ids of their calls.
    names: HashMap<String, String>,
    results: Vec<Message>,
}

impl Conversation {
    fn user(&mut self, shown: &[UserBlock<'_>], timestamp: UnixMs) {
        if !shown.is_empty() {
            self.close();
            let content = Text::Blocks(blocks(shown));
            self.messages.push(Message::User(UserMessage { content, timestamp }));
        }
    }

    fn assistant(&mut self, answer: &AssistantMessage, model: &Model) {
        if prepare::is_broken(answer) {
            return;
        }
        let own = prepare::is_own(answer, model);
        let mut content = Vec::new();
        let mut says = false;
        for block in &answer.content {
            match block {
                Content::Text(block) if !block.text.trim().is_empty() => {
                    says = true;
                    let text_signature = block.text_signature.clone().filter(|_| own);
                    content.push(Content::Text(TextContent { text: block.text.clone(), text_signature }));
                }
                Content::Thinking(_) if own => content.push(block.clone()),
                Content::ToolCall(call) => {
                    says = true;
                    content.push(Content::ToolCall(self.call(call, own)));
                }
                Content::Text(_) | Content::Thinking(_) | Content::Image(_) | Content::Other(_) => {}
            }
        }
        if says {
            self.messages.push(Message::Assistant(AssistantMessage {
                content,
                response_model: None,
                response_id: answer.response_id.clone().filter(|_| own),
                error_message: None,
                raw_stop_reason: None,
                ..answer.clone()
            }));
        }
    }

    fn call(&mut self, call: &ToolCall, own: bool) -> ToolCall {
        let id = call.id.as_str();
        let is_plain = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_graphic());
        let base = if is_plain { id.to_owned() } else { wire_name(id) };
        let mut name = wire_name(&call.name);
        name.truncate(MAX_NAME);
        let id = self.calls.open(&call.id, base, MAX_ID);
        self.names.insert(id.clone(), name.clone());
        ToolCall {
            id: id.into(),
            name,
            arguments: arguments(&call.arguments),
            thought_signature: call.thought_signature.clone().filter(|_| own),
            namespace: call.namespace.clone().filter(|_| own),
        }
    }

    fn result(&mut self, result: &ToolResultMessage, model: &Model) {
        let Some(id) = self.calls.answer(&result.tool_call_id) else { return };
        let shown = prepare::shown(&result.content, model, TOOL_IMAGE_OMITTED);
        let content = if shown.is_empty() { vec![Content::text(NO_OUTPUT)] } else { blocks(&shown) };
        let made = ToolResultMessage {
            tool_name: wire_name(&result.tool_name),
            is_error: result.is_error,
            timestamp: result.timestamp,
            ..bare_result(id.into(), content)
        };
        self.results.push(Message::ToolResult(made));
    }

    /// Sends the results of the last calls, those that are missing too.
    fn close(&mut self) {
        self.messages.append(&mut self.results);
        for id in self.calls.close() {
            let tool_name = self.names.get(&id).cloned().unwrap_or_default();
            let missing = bare_result(id.into(), vec![Content::text(NO_RESULT)]);
            self.messages.push(Message::ToolResult(ToolResultMessage { tool_name, ..missing }));
        }
    }
}

/// A result with nothing but this: one that failed.
fn bare_result(tool_call_id: CallId, content: Vec<Content>) -> ToolResultMessage {
    let (details, usage) = (None, None);
    ToolResultMessage {
        tool_call_id,
        tool_name: String::new(),
        content,
        details,
        usage,
        is_error: true,
        timestamp: 0,
    }
}

fn blocks(shown: &[UserBlock<'_>]) -> Vec<Content> {
    let block = |shown: &UserBlock<'_>| match *shown {
        UserBlock::Text(text) => Content::text(text),
        UserBlock::Image { media_type, data } => {
            Content::Image(ImageContent { data: data.to_owned(), mime_type: media_type.to_owned() })
        }
    };
    shown.iter().map(block).collect()
}
