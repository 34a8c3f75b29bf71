//! A request to the bytes of the wire. Pure and deterministic.
//!
//! Nothing is stored at the server: each request holds the whole conversation, with the server's own items of
//! reasoning as they came.

use std::collections::HashSet;

use quipu_protocol::{
    AssistantMessage, Content, Json, Message, Model, ModelError, ModelRequest, ServerToolBlock, TextContent,
    Thinking, ThinkingContent, ToolCall, ToolResultMessage,
};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::codex;
use super::compat::Compat;
use super::text_tools::{self, TextTools};
use super::wire::{
    BodyTail, CacheOptions, CallOutput, Head, ImageUrl, InputItem, InputPart, OutputItem, OutputText,
    Reasoning, Role, TextFormat, TextSignature, Tool, WireItem,
};
use crate::body::{Body, BodyBuilder, Memory};
use crate::decode::{read, string};
use crate::prepare::{
    self, Calls, MAX_NAME, NO_RESULT, NO_TOOL_OUTPUT, TOOL_IMAGE_OMITTED, UserBlock, arguments,
    output_tokens, sampling, sendable, wire_name,
};
use crate::search;
use crate::structured::{self, FormDefault};
use crate::thinking::mapped;
use crate::tool_schema;
use crate::{CacheRetention, CallOptions, clamp_level, level_name};

/// Length of an id at most.
const MAX_ID: usize = 64;
/// The server refuses smaller limits of the output.
const MIN_OUTPUT: u64 = 16;
/// Members that `samplingParams` do not change.
const FIXED: [&str; 4] = ["model", "input", "stream", "tools"];
/// How ids of messages and of function calls begin.
const MESSAGE_ID: &str = "msg_";
const CALL_ITEM_ID: &str = "fc_";
const TEXT_CALL_ITEM_ID: &str = "ctc_";
/// The type of the item of a search.
pub(super) const SEARCH_ITEM: &str = "web_search_call";

/// What is remembered where a longer conversation goes on.
#[derive(Default)]
struct State {
    calls: Calls,
    /// Ids of items that were sent. The server refuses an id that occurs twice.
    ids: HashSet<String>,
    /// Calls that were sent as plain text.
    plain: HashSet<String>,
}

/// The body of `request`, whose model the server knows by the name of `deployment` where there is one.
pub(super) fn encode(
    request: &ModelRequest,
    options: &CallOptions,
    deployment: Option<&str>,
    memory: &mut Memory,
) -> Result<Body, ModelError> {
    let model = &*request.model;
    let compat = Compat::of(model);
    let level = clamp_level(model, request.thinking);
    let max_tokens = output_tokens(request, level, options.budgets).max(MIN_OUTPUT);
    // What the user says of the model comes last, and wins over all but the conversation itself.
    let mut own = sampling(model, if compat.is_subscribed { &codex::FIXED } else { &FIXED });
    let format = structured::format(request, options, FormDefault::Taken);
    if let Some(Value::Object(mut format)) = format.filter(|_| !own.contains_key("text")) {
        format.insert("type".to_owned(), "json_schema".into());
        let mut text = json!({ "format": format });
        if compat.is_subscribed {
            text["verbosity"] = codex::VERBOSITY.into();
        }
        own.insert("text".to_owned(), text);
    }
    let ours = |name: &str| !own.contains_key(name);
    let is_cached = options.cache != CacheRetention::Off && ours("prompt_cache_key");
    let prompt_cache_key = request.session.as_deref().filter(|_| is_cached).map(prepare::cache_key);
    let long_cache = options.cache == CacheRetention::Long && compat.long_cache;
    let prompt_cache_options = match options.cache {
        CacheRetention::Off => Some(CacheOptions::Mode("explicit")),
        CacheRetention::Long if compat.long_cache => Some(CacheOptions::Ttl("30m")),
        CacheRetention::Short | CacheRetention::Long => None,
    };
    let prompt_cache_options =
        prompt_cache_options.filter(|_| compat.explicit_cache_mode && ours("prompt_cache_options"));
    let keeps_a_day = long_cache && !compat.explicit_cache_mode && ours("prompt_cache_retention");
    let prompt_cache_retention = keeps_a_day.then_some("24h");
    let reasoning = reasoning(model, &compat, level).filter(|_| ours("reasoning"));
    let may_think = level != Thinking::Off || compat.is_subscribed;
    let include =
        (model.reasoning && may_think && ours("include")).then_some(["reasoning.encrypted_content"]);
    let store = ours("store").then_some(false);
    let last = BodyTail {
        max_output_tokens: (compat.max_output_tokens && ours("max_output_tokens")).then_some(max_tokens),
    };
    let searches = search::is_offered(request, options.web_search);
    let texts = TextTools::of(&request.tools, compat.grammar_tools);
    let rest = (
        deployment,
        include,
        reasoning.as_ref(),
        (prompt_cache_key, prompt_cache_retention, prompt_cache_options),
        (&own, searches),
    );
    let rest = serde_json::to_string(&rest).unwrap_or_default();
    let mut growing: BodyBuilder<State> = memory.go_on(request, rest, "input", |out| {
        let tools = request.tools.iter().map(|tool| match texts.form_of(&tool.name) {
            Some(definition) => Tool::Custom {
                name: &tool.name,
                description: &tool.description,
                format: TextFormat::Grammar { syntax: text_tools::SYNTAX, definition },
            },
            None => Tool::Function {
                name: &tool.name,
                description: &tool.description,
                parameters: tool_schema::sent(tool, compat.tool_schema),
                strict: compat.strict_mode.then_some(false),
            },
        });
        let head = Head {
            model: deployment.unwrap_or(&model.id),
            stream: true,
            store,
            subscribed: compat.is_subscribed.then(|| codex::HeadMembers::of(request, ours)),
            include,
            reasoning: reasoning.as_ref(),
            prompt_cache_key,
            prompt_cache_retention,
            prompt_cache_options,
            tools: tools.chain(searches.then_some(Tool::WebSearch {})).collect(),
            extra: &own,
        };
        serde_json::to_writer(out, &head)
    })?;
    if growing.begins() && !request.system.trim().is_empty() && !compat.is_subscribed {
        let role = if model.reasoning && compat.developer_role { Role::Developer } else { Role::System };
        growing.write(&InputItem::Prompt { role, content: &request.system })?;
        growing.settle(request, None);
    }
    // What stands behind the last answer can still change with what follows: its results.
    let last_answer = request.messages.iter().rposition(|message| matches!(**message, Message::Assistant(_)));
    let State { calls, ids, plain } = growing.take_state();
    let (mut settled, mut open) = (0, calls.open.clone());
    let mut conversation = Conversation { calls, ids, plain, texts, ..Conversation::default() };
    for (at, message) in request.messages.iter().enumerate().skip(growing.taken()) {
        match &**message {
            Message::Assistant(answer) => {
                conversation.close();
                conversation.assistant(at, answer, model);
            }
            Message::ToolResult(result) => conversation.result(result, model),
            message => conversation.user(prepare::user_side(message, model).unwrap_or_default()),
        }
        if Some(at) == last_answer {
            settled = conversation.items.len();
            open.clone_from(&conversation.calls.open);
        }
    }
    conversation.close();
    let Conversation { items, mut calls, ids, plain, .. } = conversation;
    if items.is_empty() && growing.taken() == 0 {
        return Err(prepare::nothing_to_send());
    }
    calls.open = open;
    items[..settled].iter().try_for_each(|item| growing.write(item))?;
    if settled > 0 {
        growing.settle(request, last_answer);
    }
    items[settled..].iter().try_for_each(|item| growing.write(item))?;
    growing.finish(memory, Some(State { calls, ids, plain }), &last)
}

/// How hard to think.
fn reasoning(model: &Model, compat: &Compat, level: Thinking) -> Option<Reasoning> {
    if !model.reasoning {
        return None;
    }
    let on = level != Thinking::Off;
    let unmapped = match level {
        // Not each of its models knows the word; the server decides.
        Thinking::Off if compat.is_subscribed => None,
        Thinking::Off => Some("none"),
        level => Some(level_name(level)),
    };
    let effort = mapped(model, level).or_else(|| unmapped.map(String::from));
    let effort = effort.filter(|_| compat.reasoning_effort);
    let summary = on.then_some("auto");
    (effort.is_some() || summary.is_some()).then_some(Reasoning { effort, summary })
}

#[derive(Default)]
struct Conversation<'a> {
    items: Vec<InputItem<'a>>,
    calls: Calls,
    ids: HashSet<String>,
    results: Vec<InputItem<'a>>,
    texts: TextTools,
    plain: HashSet<String>,
}

impl<'a> Conversation<'a> {
    fn user(&mut self, shown: Vec<UserBlock<'a>>) {
        if !shown.is_empty() {
            self.close();
            let content = shown.into_iter().map(InputPart::from).collect();
            self.items.push(InputItem::User { role: Role::User, content });
        }
    }

    /// The items of an answer, which is message number `at`. Each message and each call of an answer is tied to the
    /// reasoning before it: where some of that is left out, the ids that show the tie are left out, too.
    fn assistant(&mut self, at: usize, answer: &'a AssistantMessage, model: &Model) {
        if prepare::is_broken(answer) {
            return;
        }
        let own = prepare::is_own(answer, model);
        let tied = own && self.returns_all(answer);
        for block in &answer.content {
            match block {
                Content::Text(text) if !text.text.trim().is_empty() => self.message(at, text, own, tied),
                Content::Thinking(thinking) if tied => {
                    let item = thinking.thinking_signature.as_deref().and_then(returned);
                    if let Some(ReturnedItem { json, id, .. }) = item {
                        self.ids.extend(id);
                        self.items.push(InputItem::Returned(json));
                    }
                }
                Content::Thinking(thinking) if own => {
                    // What has no tie, such as what the server itself summarised.
                    let item = thinking.thinking_signature.as_deref().and_then(returned);
                    if let Some(ReturnedItem { json, .. }) =
                        item.filter(|item| !item.is_reasoning && self.is_new(item))
                    {
                        self.items.push(InputItem::Returned(json));
                    }
                }
                Content::ToolCall(call) => self.call(call, answer, model, tied),
                Content::Other(json) if tied => {
                    if let Some(ReturnedItem { json, id, .. }) = search_item(json) {
                        self.ids.extend(id);
                        self.items.push(InputItem::Returned(json));
                    }
                }
                Content::Text(_) | Content::Thinking(_) | Content::Image(_) | Content::Other(_) => {}
            }
        }
    }

    /// Whether all reasoning of the answer can be given back: each item once, and none behind the last message or call.
    fn returns_all(&self, answer: &AssistantMessage) -> bool {
        let mut seen = HashSet::new();
        let mut waits = false;
        for block in &answer.content {
            match block {
                Content::Thinking(ThinkingContent { thinking_signature, .. }) => {
                    let Some(item) = thinking_signature.as_deref().and_then(returned) else { return false };
                    if !self.is_new(&item) || !item.id.as_ref().is_none_or(|id| seen.insert(id.clone())) {
                        return false;
                    }
                    waits |= item.is_reasoning;
                }
                Content::Text(text) => waits &= text.text.trim().is_empty(),
                Content::ToolCall(_) => waits = false,
                Content::Other(json) => {
                    let Some(item) = search_item(json) else { continue };
                    if !self.is_new(&item) || !item.id.is_none_or(|id| seen.insert(id)) {
                        return false;
                    }
                    waits = false;
                }
                Content::Image(_) => {}
            }
        }
        !waits
    }

    fn is_new(&self, item: &ReturnedItem) -> bool {
        item.id.as_ref().is_none_or(|id| !self.ids.contains(id))
    }

    fn message(&mut self, at: usize, text: &'a TextContent, own: bool, tied: bool) {
        let signature = text.text_signature.as_deref().filter(|_| own).map(text_signature);
        let (id, phase, annotations) =
            signature.map_or_else(Default::default, |known| (Some(known.id), known.phase, known.annotations));
        let id = id.filter(|id| tied && is_item_id(id, MESSAGE_ID) && !self.ids.contains(id));
        let id = id.unwrap_or_else(|| {
            let mut made_up = format!("{MESSAGE_ID}{at}");
            let mut count = 1;
            while self.ids.contains(&made_up) {
                count += 1;
                made_up = format!("{MESSAGE_ID}{at}_{count}");
            }
            made_up
        });
        self.ids.insert(id.clone());
        self.items.push(InputItem::Output(OutputItem::Message {
            role: Role::Assistant,
            content: [OutputText { text: &text.text, annotations }],
            status: "completed",
            id,
            phase,
        }));
    }

    fn call(&mut self, call: &'a ToolCall, answer: &AssistantMessage, model: &Model, tied: bool) {
        let own = prepare::is_own(answer, model);
        let (call_id, item_id) = match call.id.as_str().split_once('|') {
            Some((call_id, item_id)) => (call_id, Some(item_id)),
            None => (call.id.as_str(), None),
        };
        let is_plain = !call_id.is_empty() && call_id.bytes().all(|byte| byte.is_ascii_graphic());
        let base = if own && is_plain && call_id.len() <= MAX_ID {
            call_id.to_owned()
        } else {
            let mut base = wire_name(call_id);
            base.truncate(MAX_ID);
            base.truncate(base.trim_end_matches('_').len());
            if base.is_empty() { "call".to_owned() } else { base }
        };
        let call_id = self.calls.open(&call.id, base, MAX_ID);
        let related = answer.provider == model.provider && answer.api == model.api;
        let input = self.texts.input_of(call);
        // One that was made with arguments is tied to its reasoning as such.
        let is_function = tied && item_id.is_some_and(|id| id.starts_with(CALL_ITEM_ID));
        let input = input.filter(|_| !is_function);
        let start = if input.is_some() { TEXT_CALL_ITEM_ID } else { CALL_ITEM_ID };
        let id = match item_id {
            Some(id) if tied => Some(id.to_owned()).filter(|id| is_item_id(id, start)),
            // Of this server, but without the reasoning that it belongs to.
            Some(_) if related => None,
            // The call's id is the only one in the conversation.
            Some(_) => Some(format!("{start}{:016x}", prepare::fnv(&call_id))),
            None => None,
        };
        let id = id.filter(|id| self.ids.insert(id.clone()));
        let mut name = wire_name(&call.name);
        name.truncate(MAX_NAME);
        if let Some(input) = input {
            self.plain.insert(call_id.clone());
            self.items.push(InputItem::Output(OutputItem::CustomToolCall { id, call_id, name, input }));
            return;
        }
        self.items.push(InputItem::Output(OutputItem::FunctionCall {
            id,
            call_id,
            name,
            arguments: arguments(&call.arguments).to_string(),
            namespace: call.namespace.as_deref().filter(|_| own),
        }));
    }

    fn result(&mut self, result: &'a ToolResultMessage, model: &Model) {
        let Some(call_id) = self.calls.answer(&result.tool_call_id) else { return };
        let shown = prepare::shown(&result.content, model, TOOL_IMAGE_OMITTED);
        let output = match prepare::texts(&shown) {
            Some(texts) if texts.is_empty() => CallOutput::Text(NO_TOOL_OUTPUT.into()),
            Some(texts) => CallOutput::Text(texts.join("\n")),
            None => CallOutput::Parts(shown.into_iter().map(InputPart::from).collect()),
        };
        let item = self.output(call_id, output);
        self.results.push(item);
    }

    /// What answers a call, in the form of the call.
    fn output(&self, call_id: String, output: CallOutput<'a>) -> InputItem<'a> {
        InputItem::Output(if self.plain.contains(&call_id) {
            OutputItem::CustomToolCallOutput { call_id, output }
        } else {
            OutputItem::FunctionCallOutput { call_id, output }
        })
    }

    /// Sends the results of the last calls, those that are missing too.
    fn close(&mut self) {
        self.items.append(&mut self.results);
        let missing: Vec<String> = self.calls.close().collect();
        for call_id in missing {
            let item = self.output(call_id, CallOutput::Text(NO_RESULT.into()));
            self.items.push(item);
        }
    }
}

impl<'a> From<UserBlock<'a>> for InputPart<'a> {
    fn from(shown: UserBlock<'a>) -> Self {
        match shown {
            UserBlock::Text(text) => Self::InputText { text },
            UserBlock::Image { media_type, data } => {
                Self::InputImage { detail: "auto", image_url: ImageUrl { media_type, data } }
            }
        }
    }
}

/// An item that the server made and wants back as it is.
struct ReturnedItem {
    json: Json,
    id: Option<String>,
    is_reasoning: bool,
}

/// The item in the signature of a block of thinking. `None` where there is no such item, and where it holds nothing
/// that a server without a memory of it can use.
fn returned(signature: &str) -> Option<ReturnedItem> {
    let json = Json::parse(signature).ok().filter(|json| json.get().starts_with('{'))?;
    let item: WireItem<'_> = serde_json::from_str(json.get()).ok()?;
    let kind = string(item.kind)?;
    let is_encrypted = string(item.encrypted_content).is_some_and(|data| !data.is_empty());
    let has_content = || read::<Vec<&RawValue>>(item.content).is_some_and(|content| !content.is_empty());
    let is_reasoning = kind == "reasoning";
    let is_usable = match kind.as_str() {
        "reasoning" => is_encrypted || has_content(),
        "compaction" | "compaction_summary" => is_encrypted,
        _ => false,
    };
    let id = string(item.id).filter(|id| !id.is_empty());
    is_usable.then(|| ReturnedItem { json: sendable(&json), id, is_reasoning })
}

/// The item of a search of the server, which it wants back as it is.
fn search_item(block: &Json) -> Option<ReturnedItem> {
    let json = Json::parse(&ServerToolBlock::of_json(block)?.data?).ok()?;
    let item: WireItem<'_> = serde_json::from_str(json.get()).ok()?;
    let id = string(item.id).filter(|id| !id.is_empty());
    let is_search = string(item.kind).is_some_and(|kind| kind == SEARCH_ITEM);
    is_search.then(|| ReturnedItem { json: sendable(&json), id, is_reasoning: false })
}

/// The id and the phase of a text. Old sessions have the bare id.
fn text_signature(signature: &str) -> TextSignature {
    serde_json::from_str(signature).unwrap_or_else(|_| TextSignature {
        v: 1,
        id: signature.to_owned(),
        phase: None,
        annotations: Vec::new(),
    })
}

fn is_item_id(id: &str, start: &str) -> bool {
    id.len() <= MAX_ID && id.len() > start.len() && id.starts_with(start) && wire_name(id) == id
}
