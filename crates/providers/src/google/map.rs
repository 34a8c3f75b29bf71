//! A request to the bytes of the wire. Pure and deterministic.

use std::borrow::Cow;

use quipu_protocol::{
    AssistantMessage, Content as Block, Json, Message, Model, ModelError, ModelRequest, ServerToolBlock,
    ToolResultMessage,
};
use serde_json::{Map, Value};

use super::traits::{self, Traits};
use super::wire::{
    BodyTail, Content, Data, Declaration, EmptyObject, FunctionCall, FunctionResponse, GenerationConfig,
    Head, InlineData, InnerBody, Instruction, OuterBody, Part, PartDelta, PlainText, Response, ResponsePart,
    Role, ServerTool, ToolConfig, Tools,
};
use crate::body::{Body, BodyBuilder, Memory};
use crate::decode::{read, string};
use crate::prepare::{
    self, Calls, IMAGES_FOLLOW, MAX_NAME, NO_OUTPUT, NO_RESULT, SEE_IMAGE, TOOL_IMAGE_OMITTED, UserBlock,
    arguments, output_tokens, sendable, wire_name,
};
use crate::search;
use crate::structured;
use crate::tool_schema::{self, SchemaDialect};
use crate::{CacheRetention, CallOptions, clamp_level};

/// Length of a tool call's id at most.
const MAX_ID: usize = 64;
/// Stands for the proof of a call that this model did not make, where a call without one is refused.
const NO_PROOF: &str = "skip_thought_signature_validator";

/// Stands before a conversation that begins with an answer: the first turn is the user's.
const OPENING: &str = "(The beginning of this conversation is not shown.)";
const GIF_OMITTED: &str = "(image omitted: this API does not accept GIF images)";

/// What is remembered where a longer conversation goes on, which is always behind an answer.
#[derive(Default)]
struct State {
    calls: Calls,
    open: Vec<OpenCall>,
}

/// A call of the last answer.
#[derive(Clone)]
struct OpenCall {
    wire_id: String,
    name: String,
}

/// The body of `request`; with a `project`, within a body that names it.
pub(super) fn encode(
    request: &ModelRequest,
    options: &CallOptions,
    project: Option<&str>,
    memory: &mut Memory,
) -> Result<Body, ModelError> {
    let model = &*request.model;
    let searches = search::is_offered(request, options.web_search);
    let session = request.session.as_deref().filter(|_| options.cache != CacheRetention::Off);
    let rest = match project {
        None => searches.to_string(),
        Some(project) => format!("{searches} {project} {}", session.unwrap_or_default()),
    };
    let mut growing: BodyBuilder<State> = memory.go_on(request, rest, "contents", |out| {
        let declarations: Vec<_> = request
            .tools
            .iter()
            .map(|tool| Declaration {
                name: &tool.name,
                description: &tool.description,
                parameters_json_schema: tool_schema::sent(tool, SchemaDialect::Subset),
            })
            .collect();
        let tools = (!declarations.is_empty()).then_some(Tools {
            function_declarations: declarations,
            google_search: searches.then_some(EmptyObject {}),
        });
        let instruction = Instruction { parts: [PlainText { text: &request.system }] };
        let head = Head {
            tools: tools.into_iter().collect(),
            tool_config: searches.then_some(ToolConfig { include_server_side_tool_invocations: true }),
            system_instruction: (!request.system.trim().is_empty()).then_some(instruction),
        };
        let Some(project) = project else { return serde_json::to_writer(out, &head) };
        let within = InnerBody { session_id: session, head };
        serde_json::to_writer(&mut *out, &OuterBody { model: &model.id, project, request: within })?;
        // The contents are part of the request within.
        out.pop();
        Ok(())
    })?;
    if project.is_some() {
        growing.close_with(closing(request, session));
    }
    let State { calls, open } = growing.take_state();
    let mut settled =
        SettledPrefix { open_calls: calls.open.clone(), open: open.clone(), ..SettledPrefix::default() };
    let mut conversation = Conversation {
        contents: Vec::new(),
        begins: growing.taken() == 0,
        results: open.iter().map(|_| None).collect(),
        calls,
        open,
        traits: Traits::of(model),
    };
    for (at, message) in request.messages.iter().enumerate().skip(growing.taken()) {
        match &**message {
            Message::Assistant(answer) => {
                conversation.assistant(answer, model);
                // What stands behind the last answer can still change with what follows.
                if conversation.ends_with(Role::Model) {
                    settled = SettledPrefix {
                        contents: conversation.contents.len(),
                        last: Some(at),
                        open_calls: conversation.calls.open.clone(),
                        open: conversation.open.clone(),
                    };
                }
            }
            Message::ToolResult(result) => conversation.result(result, model),
            message => conversation.user(prepare::user_side(message, model).unwrap_or_default()),
        }
    }
    conversation.answer_calls();
    let Conversation { contents, mut calls, begins, .. } = conversation;
    if contents.is_empty() && begins {
        return Err(prepare::nothing_to_send());
    }
    if !begins && contents.first().is_some_and(|content| content.role == Role::Model) {
        // It belongs to the turn that was written already.
        return encode(request, options, project, &mut Memory::default());
    }
    contents[..settled.contents].iter().try_for_each(|content| growing.write(content))?;
    if settled.contents > 0 {
        growing.settle(request, settled.last);
    }
    contents[settled.contents..].iter().try_for_each(|content| growing.write(content))?;
    calls.open = settled.open_calls;
    let tail = BodyTail { generation_config: generation_config(request, options) };
    growing.finish(memory, Some(State { calls, open: settled.open }), &tail)
}

/// What follows the request within: the prompt that it belongs to, where the session is named.
fn closing(request: &ModelRequest, session: Option<&str>) -> Cow<'static, str> {
    let Some(session) = session else { return "}".into() };
    let prompts = request.messages.iter().filter(|message| matches!(***message, Message::User(_))).count();
    format!(r#","user_prompt_id":{}}}"#, Value::from(format!("{session}-{prompts}"))).into()
}

/// What of the conversation every longer one also begins with.
#[derive(Default)]
struct SettledPrefix {
    contents: usize,
    /// The last message in them.
    last: Option<usize>,
    open_calls: Vec<prepare::Call>,
    open: Vec<OpenCall>,
}

fn generation_config(request: &ModelRequest, options: &CallOptions) -> GenerationConfig {
    let model = &*request.model;
    let level = clamp_level(model, request.thinking);
    let max_tokens = output_tokens(request, level, options.budgets);
    let thinking = traits::thinking(model, request.thinking, options.budgets, max_tokens);
    // What the user says of the model wins.
    let sampling = match model.sampling_params.as_ref().map(|params| sendable(params).value()) {
        Some(Value::Object(params)) => params,
        Some(_) | None => Map::new(),
    };
    let is_set = ["responseMimeType", "responseSchema", "responseJsonSchema"]
        .iter()
        .any(|name| sampling.contains_key(*name));
    let schema = structured::schema(request, options).filter(|_| !is_set);
    GenerationConfig {
        response_mime_type: schema.is_some().then_some("application/json"),
        response_json_schema: schema,
        max_output_tokens: (!sampling.contains_key("maxOutputTokens")).then_some(max_tokens),
        thinking_config: thinking.filter(|_| !sampling.contains_key("thinkingConfig")),
        sampling,
    }
}

struct Conversation<'a> {
    contents: Vec<Content<'a>>,
    /// Nothing stands before the first of them; else an answer does.
    begins: bool,
    calls: Calls,
    /// The calls of the last answer, in their order, and what answers each.
    open: Vec<OpenCall>,
    results: Vec<Option<CallResult<'a>>>,
    traits: Traits,
}

struct CallResult<'a> {
    response: Response,
    images: Vec<InlineData<'a>>,
}

impl<'a> Conversation<'a> {
    fn ends_with(&self, role: Role) -> bool {
        self.contents.last().is_some_and(|content| content.role == role)
    }

    /// Adds to the turn of this role, or begins one: the roles take turns.
    fn push(&mut self, role: Role, parts: Vec<Part<'a>>) {
        if parts.is_empty() {
            return;
        }
        if self.begins && self.contents.is_empty() && role == Role::Model {
            self.contents.push(Content { role: Role::User, parts: vec![Data::Text(OPENING).into()] });
        }
        match self.contents.last_mut() {
            Some(last) if last.role == role => last.parts.extend(parts),
            Some(_) | None => self.contents.push(Content { role, parts }),
        }
    }

    fn user(&mut self, shown: Vec<UserBlock<'a>>) {
        if !shown.is_empty() {
            self.answer_calls();
            self.push(Role::User, shown.into_iter().map(|block| user_part(block).into()).collect());
        }
    }

    fn assistant(&mut self, answer: &'a AssistantMessage, model: &Model) {
        self.answer_calls();
        if prepare::is_broken(answer) {
            return;
        }
        let own = prepare::is_own(answer, model);
        let mut parts: Vec<Part<'a>> = Vec::new();
        for block in &answer.content {
            match block {
                Block::Text(block) => {
                    let proof = proof(block.text_signature.as_deref(), own).map(Cow::Borrowed);
                    if proof.is_some() || !block.text.trim().is_empty() {
                        let data = Data::Text(&block.text);
                        parts.push(Part { data, thought: None, thought_signature: proof });
                    }
                }
                // Another model's thinking means nothing here.
                Block::Thinking(block) if own => {
                    let proof = proof(block.thinking_signature.as_deref(), own).map(Cow::Borrowed);
                    if proof.is_some() || !block.thinking.trim().is_empty() {
                        let data = Data::Text(&block.thinking);
                        parts.push(Part { data, thought: Some(true), thought_signature: proof });
                    }
                }
                Block::ToolCall(call) => {
                    let is_first = self.open.is_empty();
                    let wire_id = self.calls.open(&call.id, wire_name(call.id.as_str()), MAX_ID);
                    let name = function_name(&call.name);
                    let data = Data::FunctionCall(FunctionCall {
                        id: self.traits.has_call_ids.then(|| wire_id.clone()),
                        name: name.clone(),
                        args: arguments(&call.arguments),
                    });
                    // Of calls that are made at once only the first has one.
                    let stand_in = (is_first && self.traits.needs_signatures).then_some(NO_PROOF);
                    let proof = proof(call.thought_signature.as_deref(), own).or(stand_in).map(Cow::Borrowed);
                    parts.push(Part { data, thought: None, thought_signature: proof });
                    self.open.push(OpenCall { wire_id, name });
                    self.results.push(None);
                }
                Block::Other(block) if own => parts.extend(server_part(block, &answer.content)),
                Block::Thinking(_) | Block::Image(_) | Block::Other(_) => {}
            }
        }
        let says = |part: &Part<'_>| part.thought.is_none() || part.thought_signature.is_some();
        if parts.iter().any(says) {
            self.push(Role::Model, parts);
        }
    }

    fn result(&mut self, result: &'a ToolResultMessage, model: &Model) {
        let Some(wire_id) = self.calls.answer(&result.tool_call_id) else { return };
        let Some(place) = self.open.iter().position(|call| call.wire_id == wire_id) else { return };
        let (mut texts, mut images) = (Vec::new(), Vec::new());
        for block in prepare::shown(&result.content, model, TOOL_IMAGE_OMITTED) {
            match user_part(block) {
                Data::Text(text) => texts.push(text),
                Data::InlineData(image) => images.push(image),
                Data::FunctionCall(_)
                | Data::FunctionResponse(_)
                | Data::ToolCall(_)
                | Data::ToolResponse(_) => {}
            }
        }
        let nothing = if images.is_empty() { NO_OUTPUT } else { SEE_IMAGE };
        let text = if texts.is_empty() { nothing.to_owned() } else { texts.join("\n") };
        let response = if result.is_error { Response::Error(text) } else { Response::Output(text) };
        self.results[place] = Some(CallResult { response, images });
    }

    /// Sends the results of the last calls in the order of the calls, those that are missing too.
    fn answer_calls(&mut self) {
        self.calls.close().for_each(drop);
        let (mut parts, mut behind) = (Vec::new(), Vec::new());
        let results = std::mem::take(&mut self.results);
        for (call, result) in std::mem::take(&mut self.open).into_iter().zip(results) {
            let missing =
                || CallResult { response: Response::Error(NO_RESULT.to_owned()), images: Vec::new() };
            let CallResult { response, images } = result.unwrap_or_else(missing);
            let (inside, outside) =
                if self.traits.has_result_images { (images, Vec::new()) } else { (Vec::new(), images) };
            behind.extend(outside.into_iter().map(|image| Part::from(Data::InlineData(image))));
            let data = Data::FunctionResponse(FunctionResponse {
                id: self.traits.has_call_ids.then_some(call.wire_id),
                name: call.name,
                response,
                parts: inside.into_iter().map(|inline_data| ResponsePart { inline_data }).collect(),
            });
            parts.push(data.into());
        }
        if !behind.is_empty() {
            parts.push(Data::Text(IMAGES_FOLLOW).into());
            parts.append(&mut behind);
        }
        self.push(Role::User, parts);
    }
}

fn user_part(block: UserBlock<'_>) -> Data<'_> {
    match block {
        UserBlock::Text(text) => Data::Text(text),
        UserBlock::Image { media_type: "image/gif", .. } => Data::Text(GIF_OMITTED),
        UserBlock::Image { media_type, data } => Data::InlineData(InlineData { mime_type: media_type, data }),
    }
}

/// A part of a tool of the server, which it wants back; only where its call and what it returned are both there.
fn server_part<'a>(block: &Json, all: &[Block]) -> Option<Part<'a>> {
    let part = server_tool(block)?;
    let has_other = all.iter().any(|other| match other {
        Block::Other(other) => {
            server_tool(other).is_some_and(|other| other.id == part.id && other.is_call != part.is_call)
        }
        Block::Text(_) | Block::Thinking(_) | Block::Image(_) | Block::ToolCall(_) => false,
    });
    let ServerPart { json, is_call, signature, .. } = part;
    let data = if is_call { Data::ToolCall(json) } else { Data::ToolResponse(json) };
    has_other.then_some(Part { data, thought: None, thought_signature: signature.map(Cow::Owned) })
}

/// A part of a tool of the server, taken apart.
struct ServerPart {
    json: Json,
    id: String,
    is_call: bool,
    signature: Option<String>,
}

fn server_tool(block: &Json) -> Option<ServerPart> {
    let data = Json::parse(&ServerToolBlock::of_json(block)?.data?).ok()?;
    let part: PartDelta<'_> = serde_json::from_str(data.get()).ok()?;
    let is_call = part.tool_call.is_some();
    let raw = part.tool_call.or(part.tool_response)?;
    let tool: ServerTool<'_> = read(Some(raw))?;
    let signature = string(part.thought_signature);
    let signature = signature.filter(|text| proof(Some(text.as_str()), true).is_some());
    Some(ServerPart { json: sendable(&Json::from(raw)), id: string(tool.id)?, is_call, signature })
}

/// A signature as this model gave it; one that cannot be the server's would have the whole request refused.
fn proof(signature: Option<&str>, own: bool) -> Option<&str> {
    signature.filter(|text| {
        let digits = text.trim_end_matches('=');
        let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_');
        own && !digits.is_empty()
            && text.len().is_multiple_of(4)
            && text.len() - digits.len() <= 2
            && digits.bytes().all(is_digit)
    })
}

/// `name` in the characters that the wire takes; it begins with a letter or an underscore.
fn function_name(name: &str) -> String {
    let is_taken = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':');
    let mut name: String = name.chars().map(|c| if is_taken(c) { c } else { '_' }).collect();
    if !name.starts_with(|first: char| first == '_' || first.is_ascii_alphabetic()) {
        name.insert(0, '_');
    }
    name.truncate(MAX_NAME);
    name
}
