//! A request to the bytes of the wire. Pure and deterministic.

use std::collections::HashSet;

use quipu_protocol::{
    AssistantMessage, Content, Json, Message, Model, ModelError, ModelRequest, ServerToolBlock, Thinking,
    ToolResultMessage,
};

use super::Compat;
use super::test_string::disarmed_json;
use super::wire::{
    AnyTool, Block, BodyTail, Head, ImageSource, OutputConfig, OutputFormat, Part, Role, SearchTool,
    ServerItem, ServerPart, TextSignature, ThinkingMode, Tool, WireMessage,
};
use crate::CallOptions;
use crate::body::{Body, BodyBuilder, Memory};
use crate::cache::CacheControl;
use crate::clamp_level;
use crate::decode::string;
use crate::openai::compat::Compat as ServerCompat;
use crate::prepare::{
    self, Calls, MIN_ANSWER, NO_OUTPUT, NO_RESULT, TOOL_IMAGE_OMITTED, UserBlock, arguments, fit, own_tokens,
    sendable, wanted_tokens, wire_name,
};
use crate::search;
use crate::structured;
use crate::thinking::mapped;
use crate::tool_schema;

/// The smallest budget that the wire takes.
const MIN_BUDGET: u64 = 1_024;
/// Length of a tool call's id at most.
const MAX_ID: usize = 64;
/// Length of a tool's name at most; a model can make up a longer one, and every later request would be refused.
const MAX_NAME: usize = 128;

/// The search of the server, in the version that is known here.
const SEARCH_TOOL: &str = "web_search_20250305";
/// How types of blocks end that hold results of tools of the server.
pub(super) const RESULT_OF_SERVER: &str = "_tool_result";

const IMAGES_FOLLOW: &str = "Images of the failed tool call:";

/// The body of `request`.
pub(super) fn encode(
    request: &ModelRequest,
    options: &CallOptions,
    memory: &mut Memory,
) -> Result<Body, ModelError> {
    let model = &*request.model;
    let compat = Compat::of(model);
    let mark = CacheControl::of(options.cache, compat.long_cache);
    let (thinking, effort, max_tokens) = thinking(request, &compat, options);
    let format =
        structured::plain_schema(request, options).map(|schema| OutputFormat { kind: "json_schema", schema });
    let output_config = (effort.is_some() || format.is_some()).then_some(OutputConfig { effort, format });
    let searches = search::is_offered(request, options.web_search);
    let rest = serde_json::to_string(&(&thinking, &output_config, mark, searches, request.stable_system))
        .unwrap_or_default();
    let dialect = ServerCompat::of(model).tool_schema;
    let mut growing: BodyBuilder<Calls> = memory.go_on(request, rest, "messages", |out| {
        let mut tools: Vec<_> = request
            .tools
            .iter()
            .map(|tool| {
                AnyTool::Own(Tool {
                    name: &tool.name,
                    description: &tool.description,
                    input_schema: disarmed_json(tool_schema::sent(tool, dialect)),
                    cache_control: None,
                })
            })
            .collect();
        tools.extend(searches.then_some(AnyTool::Search(SearchTool {
            kind: SEARCH_TOOL,
            name: "web_search",
            max_uses: search::MAX_SEARCHES,
            cache_control: None,
        })));
        if compat.cache_control_on_tools {
            match tools.last_mut() {
                Some(AnyTool::Own(last)) => last.cache_control = mark,
                Some(AnyTool::Search(last)) => last.cache_control = mark,
                None => {}
            }
        }
        let block = |text| Block::Text { text, citations: Vec::new(), cache_control: mark };
        let halves = halves(request).filter(|_| mark.is_some());
        let system = match halves {
            // What is the same from session to session is kept by itself.
            Some((stable, changing)) => vec![block(stable), block(changing)],
            None if request.system.trim().is_empty() => Vec::new(),
            None => vec![block(&request.system)],
        };
        let head = Head {
            model: &model.id,
            stream: true,
            tools,
            system,
            thinking: thinking.as_ref(),
            output_config: output_config.as_ref(),
        };
        serde_json::to_writer(out, &head)
    })?;
    // What stands behind the last answer can still change with what follows: its results and the mark.
    let last_answer = request.messages.iter().rposition(|message| matches!(**message, Message::Assistant(_)));
    let mut conversation = Conversation { calls: growing.take_state(), ..Conversation::default() };
    let (mut settled, mut open) = (0, conversation.calls.open.clone());
    for (at, message) in request.messages.iter().enumerate().skip(growing.taken()) {
        match &**message {
            Message::Assistant(answer) => conversation.assistant(answer, model, &compat),
            Message::ToolResult(result) => conversation.result(result, model),
            message => conversation.user(prepare::user_side(message, model).unwrap_or_default()),
        }
        // What the server still runs can have to be left out.
        if Some(at) == last_answer && conversation.waiting().next().is_none() {
            settled = conversation.messages.len();
            open.clone_from(&conversation.calls.open);
        }
    }
    conversation.answer_calls();
    let Conversation { mut messages, mut calls, .. } = conversation;
    if messages.is_empty() && growing.taken() == 0 {
        return Err(prepare::nothing_to_send());
    }
    let marked = messages.iter().rposition(|message| message.role == Role::User);
    if marked.is_none() && growing.taken() > 0 {
        // The mark is in what was written already.
        return encode(request, options, &mut Memory::default());
    }
    let block = marked.and_then(|marked| messages[marked].content.last_mut());
    block.into_iter().for_each(|block| block.mark(mark));
    let settles = marked.is_some_and(|marked| marked >= settled);
    messages[..settled].iter().try_for_each(|message| growing.write(message))?;
    if settles && settled > 0 {
        growing.settle(request, last_answer);
    }
    messages[settled..].iter().try_for_each(|message| growing.write(message))?;
    // Where nothing was settled since, what is remembered is that of the place before.
    let remembers = settles && (settled > 0 || last_answer.is_none_or(|last| last < growing.taken()));
    calls.open = open;
    growing.finish(memory, remembers.then_some(calls), &BodyTail { max_tokens })
}

/// The system prompt that is the same in other sessions, and what follows it; `None` where nobody says where that begins, or where
/// one of them would be empty.
fn halves(request: &ModelRequest) -> Option<(&str, &str)> {
    let (stable, changing) = request.system.split_at_checked(request.stable_system?)?;
    (!stable.trim().is_empty() && !changing.trim().is_empty()).then_some((stable, changing))
}

/// How the model is told to think, and how many tokens it may write.
fn thinking(
    request: &ModelRequest,
    compat: &Compat,
    options: &CallOptions,
) -> (Option<ThinkingMode>, Option<String>, u64) {
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
        return (Some(mode), Some(effort), fit(request, wanted));
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

impl<'a> Conversation<'a> {
    fn push(&mut self, role: Role, content: Vec<Block<'a>>) {
        if !content.is_empty() {
            self.messages.push(WireMessage { role, content });
        }
    }

    fn user(&mut self, content: Vec<UserBlock<'a>>) {
        if !content.is_empty() {
            self.answer_calls();
            self.drop_waiting();
            self.push(Role::User, content.into_iter().map(Block::from).collect());
        }
    }

    /// Calls of tools of the server that it has not answered yet: it goes on with them in the next answer.
    fn waiting(&self) -> impl Iterator<Item = &str> {
        let items = |part: ServerPart| {
            let blocks = self.messages.iter().flat_map(|message| &message.content);
            blocks.filter_map(move |block| match block {
                Block::Server(item) if item.part == part => Some(item.id.as_str()),
                _ => None,
            })
        };
        let answered: HashSet<&str> = items(ServerPart::Result).collect();
        items(ServerPart::Use).filter(move |id| !answered.contains(id))
    }

    /// Leaves out such calls: the user spoke, and they are never answered.
    fn drop_waiting(&mut self) {
        let waiting: HashSet<String> = self.waiting().map(String::from).collect();
        if waiting.is_empty() {
            return;
        }
        for message in &mut self.messages {
            message
                .content
                .retain(|block| !matches!(block, Block::Server(item) if waiting.contains(&item.id)));
        }
        self.messages.retain(|message| !message.content.is_empty());
    }

    /// A block of a tool of the server; a result only behind its call.
    fn server_item(&self, block: &Json, content: &[Block<'_>]) -> Option<ServerItem> {
        let item = server_item(block)?;
        let is_known = |id: &str| {
            let ours = content.iter().filter_map(|block| match block {
                Block::Server(item) if item.part == ServerPart::Use => Some(item.id.as_str()),
                _ => None,
            });
            self.waiting().chain(ours).any(|known| known == id)
        };
        (item.part == ServerPart::Use || is_known(&item.id)).then_some(item)
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
                Content::Text(block) => {
                    let signature = block.text_signature.as_deref().filter(|_| own);
                    let cited = signature.and_then(|text| serde_json::from_str::<TextSignature>(text).ok());
                    let mut said = text(&block.text);
                    if let (Some(Block::Text { citations, .. }), Some(cited)) = (&mut said, cited) {
                        *citations = cited.citations;
                    }
                    content.extend(said);
                }
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
                    let input = disarmed_json(arguments(&call.arguments));
                    content.push(Block::ToolUse { id, name, input });
                }
                Content::Other(block) if own => {
                    let item = self.server_item(block, &content);
                    content.extend(item.map(Block::Server));
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
    (!text.trim().is_empty()).then_some(Block::Text { text, citations: Vec::new(), cache_control: None })
}

/// What the server wants back of one of its tools.
fn server_item(block: &Json) -> Option<ServerItem> {
    let json = Json::parse(&ServerToolBlock::of_json(block)?.data?).ok()?;
    let part: Part<'_> = serde_json::from_str(json.get()).ok()?;
    let (id, part) = match string(part.kind).as_deref() {
        Some("server_tool_use") => (string(part.id)?, ServerPart::Use),
        Some(kind) if kind.ends_with(RESULT_OF_SERVER) => (string(part.tool_use_id)?, ServerPart::Result),
        _ => return None,
    };
    Some(ServerItem { json: sendable(&json), id, part })
}

impl<'a> From<UserBlock<'a>> for Block<'a> {
    fn from(shown: UserBlock<'a>) -> Self {
        match shown {
            UserBlock::Text(text) => Self::Text { text, citations: Vec::new(), cache_control: None },
            UserBlock::Image { media_type, data } => {
                Self::Image { source: ImageSource::Base64 { media_type, data }, cache_control: None }
            }
        }
    }
}
