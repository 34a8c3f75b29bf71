//! Pieces of an answer put together: the message on one side, the events on the other, always in step.
//!
//! Every wire builds its answer through this, so that the laws of the event stream ([`crate::laws`]) hold by
//! construction.

use std::collections::{BTreeMap, HashSet};

use quipu_protocol::{
    AssistantMessage, CallId, Content, Cost, Delta, Json, Model, ModelError, ModelErrorKind, ServerToolBlock,
    StopReason, TextContent, ThinkingContent, ToolCall, UnixMs,
};

use crate::CallEvent;
use crate::search;
use crate::surrogates::Joiner;

/// Blocks of one answer at most.
pub(crate) const MAX_BLOCKS: usize = 10_000;
/// Bytes of text, thinking, signatures, names and arguments in one answer at most: far beyond what any model writes, and
/// few enough that the copies which are made on the way to the store do no harm.
const MAX_CONTENT: usize = 8 << 20;
/// Unknown events of one answer at most; their bytes count as content.
const MAX_UNKNOWN: usize = 10_000;
/// Bytes of a tool call's id, and of its name, at most.
const MAX_NAME: usize = 4 << 10;

/// What a piece adds to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Piece {
    Text,
    Thinking,
    Arguments,
}

#[derive(Debug)]
enum Kind {
    Text,
    Thinking {
        redacted: bool,
    },
    ToolCall {
        id: CallId,
        name: String,
    },
    /// A tool of the provider, which came whole.
    ServerTool(Box<ServerToolBlock>),
}

#[derive(Debug)]
struct Block {
    kind: Kind,
    text: String,
    /// What the provider wants back with the block; empty for nothing.
    signature: String,
    joiner: Joiner,
    open: bool,
}

/// An answer while it arrives.
#[derive(Debug)]
pub(crate) struct Assembler {
    message: AssistantMessage,
    begun: bool,
    blocks: Vec<Block>,
    /// Place of the wire's block in `blocks`, by the wire's own number; `None` for a block of an unknown type.
    by_wire: BTreeMap<u64, Option<usize>>,
    /// Ids of the tool calls so far.
    ids: HashSet<CallId>,
    unknown: Vec<Json>,
    /// Bytes of content so far.
    size: usize,
    /// What the usual price is multiplied by.
    price_factor: f64,
    /// What the server says that it costs.
    cost: Option<Cost>,
    /// Searches that are charged for.
    searches: u64,
}

/// The arguments of a tool call, from the text that the model wrote: the JSON value, an empty object for no
/// text at all, and the text as a JSON string when it is not JSON.
pub fn tool_arguments(text: &str) -> Json {
    if text.trim().is_empty() {
        return Json::object();
    }
    Json::parse(text).unwrap_or_else(|_| Json::from(serde_json::Value::from(text)))
}

/// The answer is larger than [`MAX_CONTENT`].
pub(crate) fn too_much_content() -> ModelError {
    ModelError::new(
        ModelErrorKind::TooLarge,
        format!("sent an answer with more than {} MiB of content", MAX_CONTENT >> 20),
    )
}

pub(crate) fn malformed(message: impl Into<String>) -> ModelError {
    ModelError::new(ModelErrorKind::Malformed, message)
}

impl Assembler {
    pub(crate) fn new(model: &Model, timestamp: UnixMs) -> Self {
        Self {
            message: AssistantMessage::of(model, StopReason::Pending, timestamp),
            begun: false,
            blocks: Vec::new(),
            by_wire: BTreeMap::new(),
            ids: HashSet::new(),
            unknown: Vec::new(),
            size: 0,
            price_factor: 1.0,
            cost: None,
            searches: 0,
        }
    }

    /// The call is charged so many times the usual price.
    pub(crate) fn set_price_factor(&mut self, factor: f64) {
        self.price_factor = factor;
    }

    /// The call costs what the server says.
    pub(crate) fn set_cost(&mut self, cost: Cost) {
        self.cost = Some(cost);
    }

    /// The first event was read: `response_id` and `usage` may be set before.
    pub(crate) fn begin(&mut self, out: &mut Vec<CallEvent>) {
        if !self.begun {
            self.begun = true;
            out.push(CallEvent::Started(Box::new(self.message.clone())));
        }
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.begun
    }

    /// The message without its content, for what stands beside the blocks.
    pub(crate) fn message_mut(&mut self) -> &mut AssistantMessage {
        &mut self.message
    }

    /// Keeps an event that nobody here understands.
    pub(crate) fn keep_unknown(&mut self, event: Json) -> Result<(), ModelError> {
        if self.unknown.len() == MAX_UNKNOWN {
            return Err(ModelError::new(
                ModelErrorKind::TooLarge,
                format!("sent more than {MAX_UNKNOWN} events that this version does not know"),
            ));
        }
        self.grow(event.get().len())?;
        self.unknown.push(event);
        Ok(())
    }

    /// Notes a block of an unknown type: its pieces are unknown too.
    pub(crate) fn start_unknown(&mut self, wire: u64) -> Result<(), ModelError> {
        self.claim(wire, None)
    }

    pub(crate) fn start_text(&mut self, wire: u64, out: &mut Vec<CallEvent>) -> Result<(), ModelError> {
        let index = self.add(wire, Kind::Text)?;
        out.push(CallEvent::Delta(Delta::TextStarted { index }));
        Ok(())
    }

    pub(crate) fn start_thinking(&mut self, wire: u64, out: &mut Vec<CallEvent>) -> Result<(), ModelError> {
        let index = self.add(wire, Kind::Thinking { redacted: false })?;
        out.push(CallEvent::Delta(Delta::ThinkingStarted { index }));
        Ok(())
    }

    /// Thinking that came encrypted only; `data` is kept as its signature.
    pub(crate) fn start_redacted(
        &mut self,
        wire: u64,
        data: String,
        out: &mut Vec<CallEvent>,
    ) -> Result<(), ModelError> {
        self.grow(data.len())?;
        let index = self.add(wire, Kind::Thinking { redacted: true })?;
        self.blocks[index].signature = data;
        out.push(CallEvent::Delta(Delta::ThinkingStarted { index }));
        Ok(())
    }

    pub(crate) fn start_tool_call(
        &mut self,
        wire: u64,
        id: &CallId,
        name: String,
        out: &mut Vec<CallEvent>,
    ) -> Result<(), ModelError> {
        if id.as_str().len().max(name.len()) > MAX_NAME {
            return Err(ModelError::new(
                ModelErrorKind::TooLarge,
                format!("sent a tool call whose id or name has more than {MAX_NAME} bytes"),
            ));
        }
        self.grow(id.as_str().len() + name.len())?;
        let id = self.unique(id);
        let index = self.add(wire, Kind::ToolCall { id: id.clone(), name: name.clone() })?;
        out.push(CallEvent::Delta(Delta::ToolCallStarted { index, id, name }));
        Ok(())
    }

    /// A tool of the provider ran: the block is whole.
    pub(crate) fn add_server_tool(
        &mut self,
        wire: u64,
        block: ServerToolBlock,
        out: &mut Vec<CallEvent>,
    ) -> Result<(), ModelError> {
        let texts = block.queries.iter().chain(&block.sources).chain(&block.error).chain(&block.data);
        self.grow(texts.map(String::len).sum::<usize>() + block.tool.len())?;
        let summary = block.summary();
        let index = self.add(wire, Kind::ServerTool(Box::new(block)))?;
        self.blocks[index].open = false;
        out.push(CallEvent::Delta(Delta::ServerTool { index, summary }));
        Ok(())
    }

    /// Whether the block is one of a tool of the provider.
    pub(crate) fn is_server_tool(&self, wire: u64) -> bool {
        let index = self.by_wire.get(&wire).copied().flatten();
        let block = index.and_then(|index| self.blocks.get(index));
        block.is_some_and(|block| matches!(block.kind, Kind::ServerTool(_)))
    }

    /// Searches that the provider made and charges for.
    pub(crate) fn count_searches(&mut self, count: u64) {
        self.searches = self.searches.max(count);
    }

    /// Searches so far, by the blocks.
    pub(crate) fn searches(&self) -> u64 {
        let is_search = |block: &&Block| matches!(&block.kind, Kind::ServerTool(used) if used.is_search());
        self.blocks.iter().filter(is_search).count() as u64
    }

    /// Whether the last block is one of a tool of the provider.
    pub(crate) fn ends_with_server_tool(&self) -> bool {
        self.blocks.last().is_some_and(|block| matches!(block.kind, Kind::ServerTool(_)))
    }

    /// The id, with a number when an earlier call of the answer has it: results are told apart by it.
    fn unique(&mut self, id: &CallId) -> CallId {
        let mut unique = id.clone();
        let mut count = 1;
        while !self.ids.insert(unique.clone()) {
            count += 1;
            unique = format!("{id}_{count}").into();
        }
        unique
    }

    /// Whether the block is one of an unknown type.
    pub(crate) fn is_unknown(&self, wire: u64) -> bool {
        matches!(self.by_wire.get(&wire), Some(None))
    }

    /// Adds `literal`, a JSON string literal that may end within a surrogate pair.
    pub(crate) fn append(
        &mut self,
        wire: u64,
        piece: Piece,
        literal: &str,
        out: &mut Vec<CallEvent>,
    ) -> Result<(), ModelError> {
        self.grow(literal.len())?;
        let (index, block) = self.open_block(wire)?;
        let fits = match block.kind {
            Kind::Text => piece == Piece::Text,
            Kind::Thinking { redacted } => piece == Piece::Thinking && !redacted,
            Kind::ToolCall { .. } => piece == Piece::Arguments,
            Kind::ServerTool(_) => false,
        };
        if !fits {
            return Err(malformed(format!("sent a piece of another kind for block {wire}")));
        }
        let text = block
            .joiner
            .push(literal)
            .map_err(|_| malformed(format!("sent a piece of block {wire} that is not text")))?;
        block.text.push_str(&text);
        if !text.is_empty() {
            out.push(CallEvent::Delta(delta(&block.kind, index, text)));
        }
        Ok(())
    }

    /// Adds to the signature of a thinking block.
    pub(crate) fn sign(&mut self, wire: u64, more: &str) -> Result<(), ModelError> {
        self.grow(more.len())?;
        let block = self.open_block(wire)?.1;
        match block.kind {
            Kind::Thinking { redacted: false } => {
                block.signature.push_str(more);
                Ok(())
            }
            _ => Err(malformed(format!("signed block {wire}, which is not thinking"))),
        }
    }

    /// Sets the whole signature of an open block of any kind.
    pub(crate) fn set_signature(&mut self, wire: u64, signature: String) -> Result<(), ModelError> {
        self.grow(signature.len())?;
        self.open_block(wire)?.1.signature = signature;
        Ok(())
    }

    /// Replaces the signature of a block, which may have ended.
    pub(crate) fn replace_signature(&mut self, wire: u64, signature: String) -> Result<(), ModelError> {
        self.grow(signature.len())?;
        let index = self.by_wire.get(&wire).copied().flatten();
        if let Some(block) = index.and_then(|index| self.blocks.get_mut(index)) {
            block.signature = signature;
        }
        Ok(())
    }

    /// Marks a block of thinking as one whose text is not all that was thought.
    pub(crate) fn redact(&mut self, wire: u64) {
        let index = self.by_wire.get(&wire).copied().flatten();
        if let Some(Block { kind: Kind::Thinking { redacted }, .. }) =
            index.and_then(|index| self.blocks.get_mut(index))
        {
            *redacted = true;
        }
    }

    pub(crate) fn end(&mut self, wire: u64, out: &mut Vec<CallEvent>) -> Result<(), ModelError> {
        let (index, block) = self.open_block(wire)?;
        close(index, block, out);
        Ok(())
    }

    /// Ends what is still open, in order.
    pub(crate) fn end_all(&mut self, out: &mut Vec<CallEvent>) {
        for (index, block) in self.blocks.iter_mut().enumerate().filter(|(_, block)| block.open) {
            close(index, block, out);
        }
    }

    pub(crate) fn has_tool_calls(&self) -> bool {
        self.blocks.iter().any(|block| matches!(block.kind, Kind::ToolCall { .. }))
    }

    /// The message as it came to be, and the unknown events. With an error: what is known of a broken answer,
    /// without tool calls that were not finished.
    pub(crate) fn finish(
        mut self,
        model: &Model,
        error: Option<&ModelError>,
    ) -> (AssistantMessage, Vec<Json>) {
        let usage = &mut self.message.usage;
        usage.cost = self.cost.unwrap_or_else(|| model.price(usage));
        let cost = &mut usage.cost;
        for part in
            [&mut cost.input, &mut cost.output, &mut cost.cache_read, &mut cost.cache_write, &mut cost.total]
        {
            *part *= self.price_factor;
        }
        if self.cost.is_none() && self.searches > 0 {
            self.message.usage.cost.total += search::price(model, self.searches);
        }
        if let Some(error) = error {
            self.message.stop_reason = match error.kind {
                ModelErrorKind::Aborted => StopReason::Aborted,
                _ => StopReason::Error,
            };
            self.message.error_message = Some(error.message.clone());
        }
        let broken = error.is_some_and(|error| error.kind != ModelErrorKind::Refused);
        self.message.content = self
            .blocks
            .into_iter()
            .filter(|block| match block.kind {
                Kind::ToolCall { .. } => !(broken && block.open),
                Kind::Text => !(broken && block.text.is_empty()),
                Kind::Thinking { .. } | Kind::ServerTool(_) => true,
            })
            .map(Block::into_content)
            .collect();
        (self.message, self.unknown)
    }

    /// Whether a decoder may keep so many bytes beside the answer.
    pub(crate) fn can_hold(&self, bytes: usize) -> Result<(), ModelError> {
        if self.size.saturating_add(bytes) > MAX_CONTENT { Err(too_much_content()) } else { Ok(()) }
    }

    /// What was received of the block.
    pub(crate) fn text(&self, wire: u64) -> &str {
        let index = self.by_wire.get(&wire).copied().flatten();
        index.and_then(|index| self.blocks.get(index)).map_or("", |block| block.text.as_str())
    }

    fn grow(&mut self, bytes: usize) -> Result<(), ModelError> {
        self.size = self.size.saturating_add(bytes);
        if self.size > MAX_CONTENT {
            return Err(too_much_content());
        }
        Ok(())
    }

    fn claim(&mut self, wire: u64, index: Option<usize>) -> Result<(), ModelError> {
        if self.by_wire.len() == MAX_BLOCKS {
            return Err(ModelError::new(
                ModelErrorKind::TooLarge,
                format!("sent more than {MAX_BLOCKS} blocks in one answer"),
            ));
        }
        match self.by_wire.insert(wire, index) {
            None => Ok(()),
            Some(_) => Err(malformed(format!("started block {wire} twice"))),
        }
    }

    fn add(&mut self, wire: u64, kind: Kind) -> Result<usize, ModelError> {
        if !self.begun {
            return Err(malformed("sent content before the start of the answer"));
        }
        let index = self.blocks.len();
        self.claim(wire, Some(index))?;
        let (text, signature) = (String::new(), String::new());
        self.blocks.push(Block { kind, text, signature, joiner: Joiner::default(), open: true });
        Ok(index)
    }

    fn open_block(&mut self, wire: u64) -> Result<(usize, &mut Block), ModelError> {
        let index = self.by_wire.get(&wire).copied().flatten();
        index
            .and_then(|index| self.blocks.get_mut(index).map(|block| (index, block)))
            .filter(|(_, block)| block.open)
            .ok_or_else(|| malformed(format!("sent a piece of block {wire}, which is not open")))
    }
}

fn delta(kind: &Kind, index: usize, text: String) -> Delta {
    match kind {
        Kind::Text => Delta::Text { index, text },
        Kind::Thinking { .. } => Delta::Thinking { index, text },
        Kind::ToolCall { .. } => Delta::ToolCallArguments { index, json: text },
        // It came whole; no piece is added to it.
        Kind::ServerTool(_) => Delta::ServerTool { index, summary: text },
    }
}

fn close(index: usize, block: &mut Block, out: &mut Vec<CallEvent>) {
    block.open = false;
    if let Some(replacement) = block.joiner.finish() {
        block.text.push(replacement);
        out.push(CallEvent::Delta(delta(&block.kind, index, replacement.into())));
    }
    out.push(CallEvent::Delta(match block.kind {
        Kind::Text => Delta::TextEnded { index },
        Kind::Thinking { .. } => Delta::ThinkingEnded { index },
        Kind::ToolCall { .. } => Delta::ToolCallEnded { index },
        Kind::ServerTool(_) => return,
    }));
}

impl Block {
    fn into_content(mut self) -> Content {
        self.text.extend(self.joiner.finish());
        let signature = (!self.signature.is_empty()).then_some(self.signature);
        match self.kind {
            Kind::Text => Content::Text(TextContent { text: self.text, text_signature: signature }),
            Kind::Thinking { redacted } => Content::Thinking(ThinkingContent {
                thinking: self.text,
                thinking_signature: signature,
                redacted: redacted.then_some(true),
            }),
            Kind::ToolCall { id, name } => Content::ToolCall(ToolCall {
                id,
                name,
                arguments: tool_arguments(&self.text),
                thought_signature: signature,
                namespace: None,
            }),
            Kind::ServerTool(block) => block.into_content(),
        }
    }
}
