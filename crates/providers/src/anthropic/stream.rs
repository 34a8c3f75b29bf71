//! The answer: server-sent events to a message. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use quipu_protocol::{AssistantMessage, Json, Model, ModelError, ServerToolBlock, StopReason, UnixMs, Usage};
use serde_json::Value;
use serde_json::value::RawValue;

use super::map::RESULT_OF_SERVER;
use super::wire::{
    CacheCreation, Event, FoundPage, MessageStart, OutputDetails, Part, ServerToolError, ServerToolUsage,
    TextSignature, WireUsage,
};
use crate::CallEvent;
use crate::assemble::{Assembler, Piece, malformed};
use crate::decode::{
    AnswerDecoder, SseAnswer, Wire, declined, json_of, number, read, reported, string, tokens,
};
use crate::failure;
use crate::sse::SseEvent;

/// A decoder for one answer of `model` to a call that began at `timestamp`.
pub fn decoder(model: Arc<Model>, timestamp: UnixMs) -> Box<dyn AnswerDecoder> {
    Box::new(SseAnswer::new(Stream {
        answer: Assembler::new(&model, timestamp),
        model,
        whole_inputs: BTreeMap::new(),
        server_calls: BTreeMap::new(),
        citations: BTreeMap::new(),
        held: 0,
        stop: None,
        explanation: None,
        told: false,
        complete: false,
    }))
}

struct Stream {
    model: Arc<Model>,
    answer: Assembler,
    /// Inputs that came whole at the start of a tool call; used when no piece of it follows.
    whole_inputs: BTreeMap<u64, String>,
    /// Calls of tools of the server that are not whole yet.
    server_calls: BTreeMap<u64, ServerCall>,
    /// Where texts come from, by their blocks.
    citations: BTreeMap<u64, Vec<Json>>,
    /// Bytes of both.
    held: usize,
    stop: Option<String>,
    explanation: Option<String>,
    /// The usage of the whole answer came, which the one at its beginning is not.
    told: bool,
    complete: bool,
}

/// A call of a tool of the server while it arrives.
struct ServerCall {
    /// The block as it began.
    block: Json,
    /// Pieces of its input.
    input: String,
}

impl Wire for Stream {
    fn event(&mut self, event: &SseEvent, out: &mut Vec<CallEvent>) -> Result<(), ModelError> {
        self.take(event, out)
    }

    fn body_ended(&mut self, _: &mut Vec<CallEvent>) -> Result<(), ModelError> {
        Ok(())
    }

    fn has_begun(&self) -> bool {
        self.answer.has_begun()
    }

    fn has_usage(&self) -> bool {
        self.told
    }

    fn is_complete(&self) -> bool {
        self.complete
    }

    fn is_enough(&self) -> bool {
        self.complete
    }

    fn finish(mut self, error: Option<&ModelError>) -> (AssistantMessage, Vec<Json>, Option<ModelError>) {
        let failure = error.cloned().or_else(|| self.conclude());
        let (message, unknown) = self.answer.finish(&self.model, failure.as_ref());
        (message, unknown, failure)
    }
}

impl Stream {
    /// Sets the stop reason of a complete answer.
    fn conclude(&mut self) -> Option<ModelError> {
        let calls = self.answer.has_tool_calls();
        let natural = if calls { StopReason::ToolUse } else { StopReason::Stop };
        let word = self.stop.as_deref().unwrap_or_default();
        let (reason, lossless) = match word {
            "end_turn" => (natural, !calls),
            "tool_use" => (natural, calls),
            "max_tokens" => (StopReason::Length, true),
            "model_context_window_exceeded" => (StopReason::Length, false),
            "refusal" | "sensitive" => (StopReason::Error, false),
            // The server goes on with its tools when it gets the answer back.
            "pause_turn" if !calls && self.answer.ends_with_server_tool() => (StopReason::ToolUse, false),
            // `stop_sequence`, other `pause_turn` and words that are not known yet.
            _ => (natural, false),
        };
        let message = self.answer.message_mut();
        message.stop_reason = reason;
        message.raw_stop_reason = self.stop.clone().filter(|_| !lossless);
        (reason == StopReason::Error).then(|| declined(word, self.explanation.as_deref()))
    }

    fn take(&mut self, sse: &SseEvent, out: &mut Vec<CallEvent>) -> Result<(), ModelError> {
        let raw = json_of(sse)?;
        let Ok(event) = serde_json::from_str::<Event<'_>>(raw.get()) else {
            return self.unknown(raw);
        };
        let kind = string(event.kind).unwrap_or_else(|| sse.event.clone());
        match kind.as_str() {
            "ping" => Ok(()),
            "message_start" if !self.answer.has_begun() => {
                self.start(event.message, out);
                Ok(())
            }
            "content_block_start" => self.block_start(raw, &event, out),
            "content_block_delta" => self.block_delta(raw, &event, out),
            "content_block_stop" => match number(event.index) {
                Some(wire) if self.server_calls.contains_key(&wire) => self.server_call(wire, out),
                Some(wire) if self.answer.is_unknown(wire) => self.unknown(raw),
                // It came whole.
                Some(wire) if self.answer.is_server_tool(wire) => Ok(()),
                Some(wire) => {
                    self.whole_input(wire, out)?;
                    self.cite(wire)?;
                    self.answer.end(wire, out)
                }
                None => Err(malformed("ended a block without its number")),
            },
            "message_delta" => {
                if let Some(delta) = read::<Part<'_>>(event.delta) {
                    // Of two reasons the first one counts.
                    self.stop = self.stop.take().or_else(|| string(delta.stop_reason));
                    self.explanation =
                        self.explanation.take().or_else(|| delta.stop_details.and_then(explanation));
                }
                self.usage(event.usage);
                let usage: Option<WireUsage<'_>> = read(event.usage);
                self.told |= usage.is_some_and(|usage| tokens(usage.output_tokens).is_some());
                Ok(())
            }
            "message_stop" => {
                if !self.answer.has_begun() {
                    return Err(malformed("ended an answer that it had not begun"));
                }
                while let Some((&wire, _)) = self.whole_inputs.first_key_value() {
                    self.whole_input(wire, out)?;
                }
                while let Some((&wire, _)) = self.server_calls.first_key_value() {
                    self.server_call(wire, out)?;
                }
                while let Some((&wire, _)) = self.citations.first_key_value() {
                    self.cite(wire)?;
                }
                self.answer.end_all(out);
                self.complete = true;
                Ok(())
            }
            "error" => Err(reported(&sse.data)),
            _ => self.unknown(raw),
        }
    }

    fn whole_input(&mut self, wire: u64, out: &mut Vec<CallEvent>) -> Result<(), ModelError> {
        match self.whole_inputs.remove(&wire) {
            Some(input) if self.answer.text(wire).is_empty() => {
                self.answer.append(wire, Piece::Arguments, &input, out)
            }
            _ => Ok(()),
        }
    }

    /// A call of a tool of the server is whole.
    fn server_call(&mut self, wire: u64, out: &mut Vec<CallEvent>) -> Result<(), ModelError> {
        let Some(ServerCall { block, input }) = self.server_calls.remove(&wire) else { return Ok(()) };
        let mut members: serde_json::Map<String, Value> = block.read().unwrap_or_default();
        if !input.trim().is_empty() {
            let input = serde_json::from_str(&input);
            members.insert(
                "input".into(),
                input.map_err(|_| malformed("sent a call of its own tool that is not JSON"))?,
            );
        }
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(String::from);
        let query = members.get("input").and_then(|input| text(input.get("query")));
        let block = ServerToolBlock {
            queries: query.into_iter().collect(),
            data: serde_json::to_string(&members).ok(),
            ..ServerToolBlock::new(text(members.get("name")).unwrap_or_default())
        };
        self.answer.add_server_tool(wire, block, out)
    }

    /// Keeps where a text comes from with it.
    fn cite(&mut self, wire: u64) -> Result<(), ModelError> {
        let Some(citations) = self.citations.remove(&wire) else { return Ok(()) };
        let signature = serde_json::to_string(&TextSignature { citations }).unwrap_or_default();
        self.answer.set_signature(wire, signature)
    }

    fn unknown(&mut self, raw: &RawValue) -> Result<(), ModelError> {
        let event = Json::parse(raw.get()).map_err(|_| malformed("sent an event that is not JSON"))?;
        self.answer.keep_unknown(event)
    }

    fn start(&mut self, message: Option<&RawValue>, out: &mut Vec<CallEvent>) {
        if let Some(start) = read::<MessageStart<'_>>(message) {
            self.usage(start.usage);
            let model = string(start.model).filter(|model| *model != self.model.id && !model.is_empty());
            let message = self.answer.message_mut();
            message.response_id = string(start.id);
            message.response_model = model;
        }
        self.answer.begin(out);
    }

    fn block_start(
        &mut self,
        raw: &RawValue,
        event: &Event<'_>,
        out: &mut Vec<CallEvent>,
    ) -> Result<(), ModelError> {
        let wire = number(event.index).ok_or_else(|| malformed("began a block without a number"))?;
        let part: Part<'_> = read(event.content_block).unwrap_or_default();
        let (first, piece) = match string(part.kind).as_deref() {
            Some("text") => {
                self.answer.start_text(wire, out)?;
                (part.text, Piece::Text)
            }
            Some("thinking") => {
                self.answer.start_thinking(wire, out)?;
                if let Some(signature) = string(part.signature) {
                    self.answer.sign(wire, &signature)?;
                }
                (part.thinking, Piece::Thinking)
            }
            Some("redacted_thinking") => {
                self.answer.start_redacted(wire, string(part.data).unwrap_or_default(), out)?;
                return Ok(());
            }
            Some("tool_use") => {
                let id =
                    string(part.id).filter(|id| !id.is_empty()).unwrap_or_else(|| format!("call_{wire}"));
                self.answer.start_tool_call(wire, &id.into(), string(part.name).unwrap_or_default(), out)?;
                if let Some(input) = part.input.filter(|input| input.get() != "{}") {
                    self.whole_inputs.insert(wire, serde_json::Value::from(input.get()).to_string());
                }
                return Ok(());
            }
            Some("server_tool_use") if part.id.is_some() => {
                let block = event.content_block.map(Json::from).unwrap_or_default();
                self.held += block.get().len();
                self.answer.can_hold(self.held)?;
                if self.server_calls.insert(wire, ServerCall { block, input: String::new() }).is_some() {
                    return Err(malformed(format!("started block {wire} twice")));
                }
                return Ok(());
            }
            Some(kind) if kind.ends_with(RESULT_OF_SERVER) && part.tool_use_id.is_some() => {
                let block = server_result(kind, event.content_block, &part);
                return self.answer.add_server_tool(wire, block, out);
            }
            _ => {
                self.answer.start_unknown(wire)?;
                return self.unknown(raw);
            }
        };
        match first {
            Some(first) => self.answer.append(wire, piece, first.get(), out),
            None => Ok(()),
        }
    }

    fn block_delta(
        &mut self,
        raw: &RawValue,
        event: &Event<'_>,
        out: &mut Vec<CallEvent>,
    ) -> Result<(), ModelError> {
        let wire =
            number(event.index).ok_or_else(|| malformed("sent a piece without the number of its block"))?;
        if self.answer.is_unknown(wire) {
            return self.unknown(raw);
        }
        let part: Part<'_> = read(event.delta).unwrap_or_default();
        if let Some(call) = self.server_calls.get_mut(&wire) {
            let more = string(part.partial_json).unwrap_or_default();
            call.input.push_str(&more);
            self.held += more.len();
            return self.answer.can_hold(self.held);
        }
        let (text, piece) = match string(part.kind).as_deref() {
            Some("text_delta") => (part.text, Piece::Text),
            Some("thinking_delta") => (part.thinking, Piece::Thinking),
            Some("input_json_delta") => (part.partial_json, Piece::Arguments),
            Some("signature_delta") => {
                return self.answer.sign(wire, &string(part.signature).unwrap_or_default());
            }
            Some("citations_delta") => {
                let Some(citation) = part.citation.map(Json::from) else { return self.unknown(raw) };
                self.held += citation.get().len();
                self.citations.entry(wire).or_default().push(citation);
                return self.answer.can_hold(self.held);
            }
            _ => return self.unknown(raw),
        };
        let text = text.ok_or_else(|| malformed(format!("sent an empty piece of block {wire}")))?;
        self.answer.append(wire, piece, text.get(), out)
    }

    /// Counts are totals so far, not additions; each is never less than it was seen.
    fn usage(&mut self, raw: Option<&RawValue>) {
        let Some(wire) = read::<WireUsage<'_>>(raw) else { return };
        let usage: &mut Usage = &mut self.answer.message_mut().usage;
        let grow = |place: &mut u64, raw| *place = tokens(raw).unwrap_or(0).max(*place);
        grow(&mut usage.input, wire.input_tokens);
        grow(&mut usage.output, wire.output_tokens);
        grow(&mut usage.cache_read, wire.cache_read_input_tokens);
        grow(&mut usage.cache_write, wire.cache_creation_input_tokens);
        let creation = read::<CacheCreation<'_>>(wire.cache_creation);
        if let Some(long) = creation.and_then(|creation| tokens(creation.ephemeral_1h_input_tokens)) {
            usage.cache_write_1h = usage.cache_write_1h.max((long > 0).then_some(long));
        }
        let details = read::<OutputDetails<'_>>(wire.output_tokens_details);
        if let Some(thinking) = details.and_then(|details| tokens(details.thinking_tokens)) {
            usage.reasoning = usage.reasoning.max(Some(thinking));
        }
        usage.total_tokens = usage.input + usage.output + usage.cache_read + usage.cache_write;
        let tools: ServerToolUsage<'_> = read(wire.server_tool_use).unwrap_or_default();
        self.answer.count_searches(tokens(tools.web_search_requests).unwrap_or(0));
    }
}

/// What a tool of the server returned.
fn server_result(kind: &str, raw: Option<&RawValue>, part: &Part<'_>) -> ServerToolBlock {
    let pages: Vec<FoundPage<'_>> = read(part.content).unwrap_or_default();
    let error: ServerToolError<'_> = read(part.content).unwrap_or_default();
    ServerToolBlock {
        sources: pages.iter().filter_map(|page| string(page.url)).collect(),
        error: string(error.error_code),
        data: raw.map(|raw| raw.get().to_owned()),
        ..ServerToolBlock::new(kind)
    }
}

fn explanation(details: &RawValue) -> Option<String> {
    let details: serde_json::Value = serde_json::from_str(details.get()).ok()?;
    let text = details.get("explanation").or_else(|| details.get("message"))?.as_str()?;
    Some(failure::quote(text)).filter(|text| !text.is_empty())
}
