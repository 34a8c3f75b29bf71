//! The answer: server-sent events to a message. Pure.
//!
//! An answer has at most one text and one block of thinking here: the wire numbers neither. Calls are told apart by
//! index and id, of which servers leave out, repeat and mix up any.

use std::sync::Arc;

use quipu_protocol::{AssistantMessage, Json, Model, ModelError, ModelErrorKind, StopReason, UnixMs, Usage};
use serde_json::Value;
use serde_json::value::RawValue;

use super::compat::Compat;
use super::wire::{
    CallDelta, Choice, ChoiceDelta, Chunk, ContentPart, FunctionDelta, TokenDetails, WireUsage,
};
use crate::CallEvent;
use crate::assemble::{Assembler, MAX_BLOCKS, Piece, malformed, too_much_content};
use crate::decode::{
    AnswerDecoder, SseAnswer, Wire, declined, json_of, number, read, reported, string, tokens,
};
use crate::failure;
use crate::sse::SseEvent;

/// Tool calls of one answer at most. Each piece is looked for among them.
const MAX_CALLS: usize = 1_000;
/// Bytes of arguments that are looked through for their end, over the whole answer.
const MAX_LOOKED_THROUGH: usize = 64 << 20;
/// Our numbers for the blocks.
const TEXT: u64 = 0;
const THINKING: u64 = 1;
const FIRST_CALL: u64 = 2;

/// A decoder for one answer of `model` to a call that began at `timestamp`.
pub fn decoder(model: Arc<Model>, timestamp: UnixMs) -> Box<dyn AnswerDecoder> {
    Box::new(SseAnswer::new(Stream {
        answer: Assembler::new(&model, timestamp),
        needs_finish: Compat::of(&model).supports_finish_reason,
        model,
        has_text: false,
        thinking_field: None,
        details: Vec::new(),
        calls: Vec::new(),
        started: 0,
        held: 0,
        looked_through: 0,
        finish: None,
        counted: TokenCounts::default(),
        told: false,
        complete: false,
    }))
}

struct Stream {
    model: Arc<Model>,
    answer: Assembler,
    needs_finish: bool,
    has_text: bool,
    /// The member that thinking comes in, once a block of it was begun.
    thinking_field: Option<&'static str>,
    /// Thinking in the form that the server wants back as it is.
    details: Vec<Value>,
    calls: Vec<CallSoFar>,
    /// Calls that were begun in the answer: the first so many.
    started: usize,
    /// Bytes that wait for the beginning of their call, and in `details`.
    held: usize,
    looked_through: usize,
    finish: Option<Finish>,
    counted: TokenCounts,
    /// Some usage came: with the end of the answer, all of it.
    told: bool,
    complete: bool,
}

/// Tokens of the input, as the wire counts them: the cached ones are among those of the prompt.
#[derive(Default)]
struct TokenCounts {
    prompt: u64,
    cached: u64,
    written: u64,
}

/// A tool call as far as it is known. It begins in the answer when both its id and its name are.
#[derive(Default)]
struct CallSoFar {
    index: Option<u64>,
    id: Option<String>,
    name: Option<String>,
    /// Pieces of the arguments that came before it began.
    waiting: Vec<String>,
}

/// Why the answer ended, in the server's word.
enum Finish {
    Done(String),
    Length(String),
    Declined(String),
}

impl Wire for Stream {
    fn event(&mut self, event: &SseEvent, out: &mut Vec<CallEvent>) -> Result<(), ModelError> {
        self.take(event, out)
    }

    fn body_ended(&mut self, out: &mut Vec<CallEvent>) -> Result<(), ModelError> {
        if self.finish.is_some() || (!self.needs_finish && self.answer.has_begun()) {
            return self.conclude(out);
        }
        Ok(())
    }

    fn has_begun(&self) -> bool {
        self.answer.has_begun()
    }

    fn has_usage(&self) -> bool {
        self.told && self.is_enough()
    }

    fn is_complete(&self) -> bool {
        self.complete
    }

    fn is_enough(&self) -> bool {
        self.complete || self.finish.is_some()
    }

    fn finish(mut self, error: Option<&ModelError>) -> (AssistantMessage, Vec<Json>, Option<ModelError>) {
        let failure = error.cloned().or_else(|| self.stop());
        let (message, unknown) = self.answer.finish(&self.model, failure.as_ref());
        (message, unknown, failure)
    }
}

impl Stream {
    /// Sets the stop reason of a complete answer.
    fn stop(&mut self) -> Option<ModelError> {
        let calls = self.answer.has_tool_calls();
        let natural = if calls { StopReason::ToolUse } else { StopReason::Stop };
        let (reason, raw, failure) = match self.finish.take() {
            None => (natural, None, None),
            Some(Finish::Done(word)) => {
                let usual = if calls { "tool_calls" } else { "stop" };
                (natural, Some(word).filter(|word| word != usual), None)
            }
            Some(Finish::Length(word)) => {
                (StopReason::Length, Some(word).filter(|word| word != "length"), None)
            }
            Some(Finish::Declined(word)) => {
                let error = declined(&failure::quote(&word), None);
                (StopReason::Error, Some(word), Some(error))
            }
        };
        let message = self.answer.message_mut();
        message.stop_reason = reason;
        message.raw_stop_reason = raw;
        failure
    }

    fn take(&mut self, sse: &SseEvent, out: &mut Vec<CallEvent>) -> Result<(), ModelError> {
        if sse.data.trim() == "[DONE]" {
            return match &self.finish {
                None if self.needs_finish => Err(ModelError::new(
                    ModelErrorKind::StreamEnded,
                    "ended the answer without a reason for its end",
                )),
                None | Some(_) => {
                    self.answer.begin(out);
                    self.conclude(out)
                }
            };
        }
        let raw = json_of(sse)?;
        let Ok(chunk) = serde_json::from_str::<Chunk<'_>>(raw.get()) else {
            return self.unknown(raw);
        };
        let says_error = |raw| string(raw).as_deref() == Some("error");
        if chunk.error.is_some() || says_error(chunk.object) || says_error(chunk.kind) || sse.event == "error"
        {
            return Err(reported(&sse.data));
        }
        if chunk.choices.is_none() && chunk.usage.is_none() {
            return self.unknown(raw);
        }
        if !self.answer.has_begun() {
            let model = string(chunk.model).filter(|model| *model != self.model.id && !model.is_empty());
            let message = self.answer.message_mut();
            message.response_id = string(chunk.id).filter(|id| !id.is_empty());
            message.response_model = model;
            self.usage(chunk.usage);
            self.answer.begin(out);
        } else {
            self.usage(chunk.usage);
        }
        let choices: Vec<&RawValue> = match chunk.choices {
            Some(choices) => match read(Some(choices)) {
                Some(choices) => choices,
                None => return self.unknown(raw),
            },
            None => Vec::new(),
        };
        for choice in choices {
            match read::<Choice<'_>>(Some(choice)) {
                // We ask for one answer.
                Some(choice) if number(choice.index).unwrap_or(0) == 0 => self.choice(&choice, out)?,
                Some(_) | None => self.unknown(raw)?,
            }
        }
        Ok(())
    }

    fn unknown(&mut self, raw: &RawValue) -> Result<(), ModelError> {
        let event = Json::parse(raw.get()).map_err(|_| malformed("sent an event that is not JSON"))?;
        self.answer.keep_unknown(event)
    }

    fn choice(&mut self, choice: &Choice<'_>, out: &mut Vec<CallEvent>) -> Result<(), ModelError> {
        if let Some(error) = choice.error {
            return Err(reported(&format!("{{\"error\":{}}}", error.get())));
        }
        self.usage(choice.usage);
        let nothing_yet = !self.has_text && self.thinking_field.is_none() && self.calls.is_empty();
        let delta = choice.delta.or(choice.message.filter(|_| nothing_yet));
        if let Some(delta) = read::<ChoiceDelta<'_>>(delta) {
            self.delta(&delta, out)?;
        }
        let word = string(choice.finish_reason).filter(|word| !word.is_empty());
        if let (Some(word), None) = (word, &self.finish) {
            self.finish = Some(finish(word)?);
        }
        Ok(())
    }

    fn delta(&mut self, delta: &ChoiceDelta<'_>, out: &mut Vec<CallEvent>) -> Result<(), ModelError> {
        // Before the text: some servers send both in one. Some send the same under two names.
        let fields = [
            ("reasoning_content", delta.reasoning_content),
            ("reasoning", delta.reasoning),
            ("reasoning_text", delta.reasoning_text),
        ];
        let thought = fields.into_iter().find_map(|(name, raw)| Some((name, text(raw)?)));
        if let Some((name, thought)) = thought {
            self.think(name, thought, out)?;
        }
        if let Some(details) = read::<Vec<&RawValue>>(delta.reasoning_details) {
            for detail in details {
                self.detail(detail)?;
            }
        }
        for content in [delta.content, delta.refusal] {
            match content {
                Some(parts) if parts.get().starts_with('[') => {
                    for raw in read::<Vec<&RawValue>>(content).unwrap_or_default() {
                        let Some(part) = read::<ContentPart<'_>>(Some(raw)) else {
                            if let Some(more) = text(Some(raw)) {
                                self.say(more, out)?;
                            }
                            continue;
                        };
                        for thought in read::<Vec<ContentPart<'_>>>(part.thinking).unwrap_or_default() {
                            if let Some(thought) = text(thought.text) {
                                self.think("reasoning_content", thought, out)?;
                            }
                        }
                        if let Some(more) = text(part.text) {
                            self.say(more, out)?;
                        }
                    }
                }
                content => {
                    if let Some(more) = text(content) {
                        self.say(more, out)?;
                    }
                }
            }
        }
        for call in read::<Vec<CallDelta<'_>>>(delta.tool_calls).unwrap_or_default() {
            self.call(&call, out)?;
        }
        if delta.function_call.is_some() {
            let call = CallDelta { function: delta.function_call, ..CallDelta::default() };
            self.call(&call, out)?;
        }
        Ok(())
    }

    fn say(&mut self, literal: &str, out: &mut Vec<CallEvent>) -> Result<(), ModelError> {
        if !self.has_text {
            self.has_text = true;
            self.answer.start_text(TEXT, out)?;
        }
        self.answer.append(TEXT, Piece::Text, literal, out)
    }

    fn think(
        &mut self,
        field: &'static str,
        literal: &str,
        out: &mut Vec<CallEvent>,
    ) -> Result<(), ModelError> {
        if self.thinking_field.is_none() {
            self.thinking_field = Some(field);
            self.answer.start_thinking(THINKING, out)?;
        }
        self.answer.append(THINKING, Piece::Thinking, literal, out)
    }

    /// Keeps a piece of thinking that must be given back as it is. Pieces of one text become one.
    fn detail(&mut self, raw: &RawValue) -> Result<(), ModelError> {
        self.hold(raw.get().len())?;
        let Value::Object(mut new) = Json::parse(raw.get()).map(|json| json.value()).unwrap_or_default()
        else {
            return Ok(());
        };
        let same = |last: &Value| ["type", "index"].iter().all(|name| last.get(name) == new.get(*name));
        if let Some(last) = self.details.last_mut().filter(|last| same(last)).and_then(Value::as_object_mut) {
            let pieces: Vec<_> =
                ["text", "summary"].into_iter().filter(|name| new.contains_key(*name)).collect();
            if !pieces.is_empty() {
                for name in pieces {
                    let more = new.remove(name);
                    match (last.get_mut(name), more) {
                        (Some(Value::String(text)), Some(Value::String(more))) => text.push_str(&more),
                        (None | Some(Value::Null), Some(more)) => drop(last.insert(name.to_owned(), more)),
                        _ => {}
                    }
                }
                last.extend(new.into_iter().filter(|(_, value)| !value.is_null()));
                return Ok(());
            }
        }
        if self.details.len() == MAX_BLOCKS {
            return Err(too_much_content());
        }
        self.details.push(Value::Object(new));
        Ok(())
    }

    fn hold(&mut self, bytes: usize) -> Result<(), ModelError> {
        self.held = self.held.saturating_add(bytes);
        self.answer.can_hold(self.held)
    }

    fn call(&mut self, delta: &CallDelta<'_>, out: &mut Vec<CallEvent>) -> Result<(), ModelError> {
        let function: FunctionDelta<'_> = read(delta.function).unwrap_or_default();
        // One server writes `null` as a text.
        let id = string(delta.id).filter(|id| !id.is_empty() && id != "null");
        let name = string(function.name).filter(|name| !name.is_empty());
        let index = number(delta.index);
        let arguments = match function.arguments {
            None => None,
            Some(raw) if raw.get().starts_with('"') => text(Some(raw)).map(String::from),
            // Some servers send the value itself.
            Some(raw) => Some(Value::from(raw.get()).to_string()),
        };
        let place = match self.place(index, id.as_deref(), name.as_deref()) {
            Some(place) => place,
            None => {
                if self.calls.len() == MAX_CALLS {
                    return Err(ModelError::new(
                        ModelErrorKind::TooLarge,
                        format!("sent more than {MAX_CALLS} tool calls in one answer"),
                    ));
                }
                self.calls.push(CallSoFar { index, ..CallSoFar::default() });
                self.calls.len() - 1
            }
        };
        let more = id.as_ref().map_or(0, String::len) + name.as_ref().map_or(0, String::len);
        let begun = place < self.started;
        if !begun {
            self.hold(more + arguments.as_ref().map_or(0, String::len))?;
        }
        let Some(call) = self.calls.get_mut(place) else { return Ok(()) };
        call.id = call.id.take().or(id);
        call.name = call.name.take().or(name);
        if let Some(arguments) = arguments {
            if begun {
                return self.answer.append(wire(place), Piece::Arguments, &arguments, out);
            }
            call.waiting.push(arguments);
        }
        self.begin_calls(false, out)
    }

    /// The call that a piece belongs to; `None` for a new one.
    fn place(&mut self, index: Option<u64>, id: Option<&str>, name: Option<&str>) -> Option<usize> {
        let by_index = index.and_then(|index| self.calls.iter().rposition(|call| call.index == Some(index)));
        let by_id = id.and_then(|id| self.calls.iter().rposition(|call| call.id.as_deref() == Some(id)));
        match (by_index, by_id) {
            (Some(place), Some(other)) if place != other => name.is_none().then_some(other),
            (Some(place), None) => {
                let call = self.calls.get(place)?;
                let other_id = id.is_some() && call.id.is_some();
                // An id that changes with each piece names nothing; a new name begins a new call.
                let next = match name {
                    Some(_) if other_id => true,
                    Some(_) if id.is_none() && call.name.is_some() => self.is_whole(place),
                    Some(_) | None => false,
                };
                (!next).then_some(place)
            }
            (Some(place), Some(_)) => Some(place),
            (None, Some(place)) => (index.is_none() || name.is_none()).then_some(place),
            (None, None) if index.is_none() && id.is_none() => match self.calls.len().checked_sub(1) {
                Some(last) if name.is_none() => Some(last),
                Some(last) => (!self.is_whole(last) && self.calls.get(last)?.name.is_none()).then_some(last),
                None => None,
            },
            (None, None) => None,
        }
    }

    /// Whether the arguments of a call that was begun are a whole JSON value.
    fn is_whole(&mut self, place: usize) -> bool {
        let text = self.answer.text(wire(place));
        self.looked_through = self.looked_through.saturating_add(text.len());
        place < self.started
            && self.looked_through <= MAX_LOOKED_THROUGH
            && serde_json::from_str::<&RawValue>(text).is_ok()
    }

    /// Begins the calls whose id and name are known, in order; at the end of the answer all.
    fn begin_calls(&mut self, all: bool, out: &mut Vec<CallEvent>) -> Result<(), ModelError> {
        while let Some(call) = self.calls.get_mut(self.started) {
            if !all && (call.id.is_none() || call.name.is_none()) {
                return Ok(());
            }
            let id = call.id.clone().unwrap_or_else(|| format!("call_{}", self.started));
            let name = call.name.clone().unwrap_or_default();
            let waiting = std::mem::take(&mut call.waiting);
            let wire = wire(self.started);
            self.started += 1;
            self.answer.start_tool_call(wire, &id.into(), name, out)?;
            for piece in waiting {
                self.answer.append(wire, Piece::Arguments, &piece, out)?;
            }
        }
        Ok(())
    }

    fn conclude(&mut self, out: &mut Vec<CallEvent>) -> Result<(), ModelError> {
        if !self.details.is_empty() && self.thinking_field.is_none() {
            self.thinking_field = Some("reasoning");
            self.answer.start_thinking(THINKING, out)?;
        }
        if let Some(field) = self.thinking_field {
            let details = std::mem::take(&mut self.details);
            let signature =
                if details.is_empty() { field.to_owned() } else { Value::from(details).to_string() };
            self.answer.sign(THINKING, &signature)?;
        }
        self.begin_calls(true, out)?;
        self.answer.end_all(out);
        self.complete = true;
        Ok(())
    }

    /// Counts are totals so far, not additions; each is never less than it was seen.
    fn usage(&mut self, raw: Option<&RawValue>) {
        let Some(wire) = read::<WireUsage<'_>>(raw) else { return };
        let grow = |place: &mut u64, count: Option<u64>| *place = count.unwrap_or(0).max(*place);
        let TokenCounts { prompt, cached, written } = &mut self.counted;
        let details = wire.prompt_tokens_details.or(wire.prompt_token_details);
        let details: TokenDetails<'_> = read(details).unwrap_or_default();
        grow(prompt, tokens(wire.prompt_tokens));
        let places =
            [details.cached_tokens, wire.prompt_cache_hit_tokens, wire.cached_tokens, wire.num_cached_tokens];
        grow(cached, places.into_iter().find_map(tokens));
        grow(written, tokens(details.cache_write_tokens));
        let usage: &mut Usage = &mut self.answer.message_mut().usage;
        usage.cache_read = (*cached).min(*prompt);
        usage.cache_write = (*written).min(*prompt - usage.cache_read);
        usage.input = *prompt - usage.cache_read - usage.cache_write;
        grow(&mut usage.output, tokens(wire.completion_tokens));
        self.told |= usage.output > 0 || usage.input > 0;
        let details: TokenDetails<'_> = read(wire.completion_tokens_details).unwrap_or_default();
        usage.reasoning = usage.reasoning.max(tokens(details.reasoning_tokens).filter(|count| *count > 0));
        usage.total_tokens = usage.input + usage.output + usage.cache_read + usage.cache_write;
    }
}

fn wire(place: usize) -> u64 {
    FIRST_CALL + place as u64
}

/// The literal of a text that is not empty. What is no string is none.
fn text(raw: Option<&RawValue>) -> Option<&str> {
    raw.map(RawValue::get).filter(|literal| literal.starts_with('"') && literal.len() > 2)
}

fn finish(word: String) -> Result<Finish, ModelError> {
    let failed = |kind, why: &str| {
        let word = failure::quote(&word);
        Err(ModelError::new(kind, format!("ended the answer with the reason {word:?}{why}")))
    };
    match word.as_str() {
        "stop" | "end" | "eos" | "end_turn" | "stop_sequence" | "tool_calls" | "tool_use"
        | "function_call" => Ok(Finish::Done(word)),
        "length" | "max_tokens" | "model_length" => Ok(Finish::Length(word)),
        "content_filter" | "sensitive" | "safety" | "refusal" => Ok(Finish::Declined(word)),
        "network_error" | "error" | "insufficient_system_resource" | "abort" => {
            failed(ModelErrorKind::Server, "")
        }
        _ => failed(ModelErrorKind::Malformed, ", which this version does not know"),
    }
}
