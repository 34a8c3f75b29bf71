//! A request to the bytes of the wire. Pure and deterministic.

use quipu_protocol::{
    AssistantMessage, Content, Message, Model, ModelError, ModelRequest, Thinking, ToolCall,
    ToolResultMessage,
};

use super::wire::{
    BodyTail, CallFunction, Chunk, Function, Head, ImageUrl, Thought, Tool, WireCall, WireContent,
    WireMessage,
};
use crate::body::{Body, BodyBuilder, Memory};
use crate::openai::compat::Compat;
use crate::prepare::{
    self, Calls, MAX_NAME, NO_RESULT, NO_TOOL_OUTPUT, RESULTS_READ, TOOL_IMAGE_OMITTED, UserBlock, arguments,
    output_tokens, sampling, wire_name,
};
use crate::thinking::mapped;
use crate::tool_schema;
use crate::{CacheRetention, CallOptions, clamp_level};

/// Length of a call's id. The server takes no other, and letters and digits only.
const ID_LENGTH: usize = 9;
/// Members that `samplingParams` do not change.
const FIXED: [&str; 4] = ["model", "messages", "stream", "tools"];
/// The effort of a model of which the catalogue says nothing: all that think take this word.
const EFFORT: &str = "high";

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
    let level = clamp_level(model, request.thinking);
    // What the user says of the model comes last, and wins over all but the conversation itself.
    let own = sampling(model, &FIXED);
    let ours = |name: &str| !own.contains_key(name);
    let is_cached = options.cache != CacheRetention::Off && ours("prompt_cache_key");
    let prompt_cache_key = request.session.as_deref().filter(|_| is_cached).map(prepare::cache_key);
    let effort = effort(model, level).filter(|_| ours("reasoning_effort"));
    let max_tokens = output_tokens(request, level, options.budgets);
    let last = BodyTail { max_tokens: ours("max_tokens").then_some(max_tokens) };
    let rest = serde_json::to_string(&(prompt_cache_key, &effort, &own)).unwrap_or_default();
    let dialect = Compat::of(model).tool_schema;
    let mut growing: BodyBuilder<State> = memory.go_on(request, rest, "messages", |out| {
        let tools = request.tools.iter().map(|tool| {
            let parameters = tool_schema::sent(tool, dialect);
            let (name, description) = (&tool.name, &tool.description);
            Tool::Function { function: Function { name, description, parameters, strict: false } }
        });
        let head = Head {
            model: &model.id,
            stream: true,
            prompt_cache_key,
            reasoning_effort: effort.as_deref(),
            tools: tools.collect(),
            extra: &own,
        };
        serde_json::to_writer(out, &head)
    })?;
    if growing.begins() && !request.system.trim().is_empty() {
        growing.write(&WireMessage::System { content: &request.system })?;
        growing.settle(request, None);
    }
    // What stands behind the last answer can still change with what follows: its results.
    let last_answer = request.messages.iter().rposition(|message| matches!(**message, Message::Assistant(_)));
    let State { calls, behind_result } = growing.take_state();
    let (mut settled, mut open) = (0, calls.open.clone());
    let mut conversation = Conversation { calls, behind_result, ..Conversation::default() };
    for (at, message) in request.messages.iter().enumerate().skip(growing.taken()) {
        match &**message {
            Message::Assistant(answer) => {
                conversation.close();
                conversation.assistant(answer, model);
            }
            Message::ToolResult(result) => conversation.result(result, model),
            message => conversation.user(prepare::user_side(message, model).unwrap_or_default()),
        }
        if Some(at) == last_answer {
            settled = conversation.messages.len();
            open.clone_from(&conversation.calls.open);
        }
    }
    conversation.close();
    let Conversation { mut messages, mut calls, .. } = conversation;
    if messages.is_empty() && growing.taken() == 0 {
        return Err(prepare::nothing_to_send());
    }
    let mut settles = true;
    match messages.last_mut() {
        Some(WireMessage::Assistant { prefix, .. }) => (*prefix, settles) = (true, false),
        Some(_) => {}
        // The answer that ends the conversation was written already, as one that something follows.
        None => return encode(request, options, &mut Memory::default()),
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

/// The effort of thinking, for models that take one.
fn effort(model: &Model, level: Thinking) -> Option<String> {
    let usual = || (level != Thinking::Off).then(|| EFFORT.to_owned());
    if model.reasoning { mapped(model, level).or_else(usual) } else { None }
}

#[derive(Default)]
struct Conversation<'a> {
    messages: Vec<WireMessage<'a>>,
    /// The message before the first of them is a result.
    behind_result: bool,
    calls: Calls,
    results: Vec<WireMessage<'a>>,
}

impl<'a> Conversation<'a> {
    fn user(&mut self, shown: Vec<UserBlock<'a>>) {
        if shown.is_empty() {
            return;
        }
        self.close();
        if self.messages.last().map_or(self.behind_result, is_result) {
            let content = Some(WireContent::Text(RESULTS_READ.into()));
            self.messages.push(WireMessage::Assistant { content, tool_calls: Vec::new(), prefix: false });
        }
        self.messages.push(WireMessage::User { content: content(shown) });
    }

    fn assistant(&mut self, answer: &'a AssistantMessage, model: &Model) {
        if prepare::is_broken(answer) {
            return;
        }
        let own = prepare::is_own(answer, model);
        let (mut chunks, mut tool_calls, mut says) = (Vec::new(), Vec::new(), false);
        for block in &answer.content {
            match block {
                Content::Text(block) if !block.text.trim().is_empty() => {
                    says = true;
                    chunks.push(Chunk::Text { text: &block.text });
                }
                // Another model's thinking means nothing here.
                Content::Thinking(block)
                    if own && block.redacted != Some(true) && !block.thinking.trim().is_empty() =>
                {
                    chunks.push(Chunk::Thinking { thinking: [Thought { text: &block.thinking }] });
                }
                Content::ToolCall(call) => tool_calls.push(self.call(call)),
                Content::Text(_) | Content::Thinking(_) | Content::Image(_) | Content::Other(_) => {}
            }
        }
        if !says && tool_calls.is_empty() {
            return;
        }
        let content = match chunks.as_slice() {
            [] => None,
            [Chunk::Text { text }] => Some(WireContent::Text((*text).to_owned())),
            _ => Some(WireContent::Chunks(chunks)),
        };
        self.messages.push(WireMessage::Assistant { content, tool_calls, prefix: false });
    }

    fn call(&mut self, call: &ToolCall) -> WireCall {
        let id = self.calls.open_as(&call.id, |attempt| wire_id(call.id.as_str(), attempt));
        let mut name = wire_name(&call.name);
        name.truncate(MAX_NAME);
        let arguments = arguments(&call.arguments).to_string();
        WireCall { id, kind: "function", function: CallFunction { name, arguments } }
    }

    fn result(&mut self, result: &'a ToolResultMessage, model: &Model) {
        let Some(tool_call_id) = self.calls.answer(&result.tool_call_id) else { return };
        let shown = prepare::shown(&result.content, model, TOOL_IMAGE_OMITTED);
        let content =
            if shown.is_empty() { WireContent::Text(NO_TOOL_OUTPUT.into()) } else { content(shown) };
        let name = (!result.tool_name.is_empty()).then(|| {
            let mut name = wire_name(&result.tool_name);
            name.truncate(MAX_NAME);
            name
        });
        self.results.push(WireMessage::Tool { tool_call_id, name, content });
    }

    /// Sends the results of the last calls, those that are missing too.
    fn close(&mut self) {
        self.messages.append(&mut self.results);
        for tool_call_id in self.calls.close() {
            let content = WireContent::Text(NO_RESULT.into());
            self.messages.push(WireMessage::Tool { tool_call_id, name: None, content });
        }
    }
}

fn is_result(message: &WireMessage<'_>) -> bool {
    matches!(message, WireMessage::Tool { .. })
}

/// Text alone as a plain string.
fn content(shown: Vec<UserBlock<'_>>) -> WireContent<'_> {
    match prepare::texts(&shown) {
        Some(texts) => WireContent::Text(texts.join("\n")),
        None => WireContent::Chunks(shown.into_iter().map(Chunk::from).collect()),
    }
}

impl<'a> From<UserBlock<'a>> for Chunk<'a> {
    fn from(shown: UserBlock<'a>) -> Self {
        match shown {
            UserBlock::Text(text) => Self::Text { text },
            UserBlock::Image { media_type, data } => {
                Self::ImageUrl { image_url: ImageUrl { media_type, data } }
            }
        }
    }
}

/// The id of a call in the form of the wire: as it is where it has this form, and else made from it.
fn wire_id(id: &str, attempt: u32) -> String {
    const DIGITS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let has_form = id.len() == ID_LENGTH && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if has_form && attempt == 0 {
        return id.to_owned();
    }
    let mut hash = prepare::fnv(&format!("{id}:{attempt}"));
    let mut made = String::with_capacity(ID_LENGTH);
    for _ in 0..ID_LENGTH {
        let digit = usize::try_from(hash % 36).unwrap_or_default();
        made.push(char::from(DIGITS[digit]));
        hash /= 36;
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_ids_have_nine_letters_and_digits() {
        assert_eq!(wire_id("aB3dE6gH9", 0), "aB3dE6gH9");
        let ids = ["aB3dE6gH9", "call_1|fc_2", "", "ü", "call_0fypS1hVX", "aB3dE6gH_"];
        let made: std::collections::HashSet<String> =
            ids.iter().flat_map(|id| (1..4).map(|attempt| wire_id(id, attempt))).collect();
        assert_eq!(made.len(), 18);
        for id in made {
            assert!(id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{id}");
        }
    }
}
