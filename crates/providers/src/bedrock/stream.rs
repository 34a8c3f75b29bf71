//! The answer: frames to a message. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use aws_smithy_types::event_stream::Message;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use quipu_protocol::{AssistantMessage, Json, Model, ModelError, ModelErrorKind, StopReason, UnixMs, Usage};
use serde_json::Value;
use serde_json::value::RawValue;

use super::frames::FrameDecoder;
use super::wire::{CacheDetail, Event, Original, Part, ReasoningPart, ToolUsePart, WireUsage};
use crate::CallEvent;
use crate::assemble::{Assembler, Piece, malformed};
use crate::decode::{AnswerDecoder, declined, number, read, string, tokens};
use crate::failure::{classify, quote, read_complaint};

/// A decoder for one answer of `model` to a call that began at `timestamp`.
pub fn decoder(model: Arc<Model>, timestamp: UnixMs) -> Box<dyn AnswerDecoder> {
    Box::new(FramedAnswer {
        frames: FrameDecoder::default(),
        answer: Assembler::new(&model, timestamp),
        model,
        open: BTreeMap::new(),
        held: 0,
        stop: None,
        told: false,
        complete: false,
    })
}

/// What a block that is open is made of.
enum OpenBlock {
    Text,
    Thinking,
    /// Thinking that comes encrypted, in pieces of bytes.
    Redacted(Vec<u8>),
    ToolCall,
}

struct FramedAnswer {
    frames: FrameDecoder,
    model: Arc<Model>,
    answer: Assembler,
    /// Blocks that have begun and not ended, by the wire's numbers.
    open: BTreeMap<u64, OpenBlock>,
    /// Bytes of encrypted thinking in them.
    held: usize,
    stop: Option<String>,
    /// The usage came.
    told: bool,
    complete: bool,
}

impl AnswerDecoder for FramedAnswer {
    fn push(&mut self, bytes: &[u8], out: &mut Vec<CallEvent>) -> Result<(), ModelError> {
        if self.complete {
            return Ok(());
        }
        self.frames.push(bytes);
        while !self.complete
            && let Some(message) = self.frames.message()?
        {
            self.frame(&message, out)?;
        }
        Ok(())
    }

    fn end(&mut self, out: &mut Vec<CallEvent>) -> Result<(), ModelError> {
        if self.stop.is_some() && !self.complete {
            // Its usage never came.
            self.finished(out)?;
        }
        if self.complete { Ok(()) } else { Err(self.frames.end(self.answer.has_begun())) }
    }

    fn is_complete(&self) -> bool {
        self.complete
    }

    fn is_enough(&self) -> bool {
        self.stop.is_some()
    }

    fn has_heard(&self) -> bool {
        self.frames.has_heard()
    }

    fn has_begun(&self) -> bool {
        self.answer.has_begun()
    }

    fn has_usage(&self) -> bool {
        self.told
    }

    fn finish(
        mut self: Box<Self>,
        error: Option<&ModelError>,
    ) -> (AssistantMessage, Vec<Json>, Option<ModelError>) {
        let failure = error.cloned().or_else(|| self.conclude());
        let Self { answer, model, .. } = *self;
        let (message, unknown) = answer.finish(&model, failure.as_ref());
        (message, unknown, failure)
    }
}

impl FramedAnswer {
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
            "guardrail_intervened" | "content_filtered" | "refusal" => (StopReason::Error, false),
            // `stop_sequence` and words that are not known yet.
            _ => (natural, false),
        };
        let message = self.answer.message_mut();
        message.stop_reason = reason;
        message.raw_stop_reason = self.stop.clone().filter(|_| !lossless);
        (reason == StopReason::Error).then(|| declined(word, None))
    }

    fn frame(&mut self, message: &Message, out: &mut Vec<CallEvent>) -> Result<(), ModelError> {
        let header = |name: &str| {
            let header = message.headers().iter().find(|header| header.name().as_str() == name);
            header.and_then(|header| header.value().as_string().ok()).map_or("", |text| text.as_str())
        };
        let payload = String::from_utf8_lossy(message.payload());
        match header(":message-type") {
            "event" => self.event(header(":event-type"), &payload, out),
            "exception" => Err(exception(header(":exception-type"), &payload)),
            "error" => {
                let text = Value::from(header(":error-message"));
                Err(exception(header(":error-code"), &format!(r#"{{"message":{text}}}"#)))
            }
            other => Err(malformed(format!("sent a frame of the unknown type {:?}", quote(other)))),
        }
    }

    fn event(&mut self, kind: &str, payload: &str, out: &mut Vec<CallEvent>) -> Result<(), ModelError> {
        let raw: &RawValue = serde_json::from_str(payload)
            .map_err(|_| malformed(format!("sent an event that is not JSON: {}", quote(payload))))?;
        let Ok(event) = serde_json::from_str::<Event<'_>>(raw.get()) else {
            return self.unknown(kind, raw);
        };
        match kind {
            "messageStart" if !self.answer.has_begun() => {
                if string(event.role).is_some_and(|role| role != "assistant") {
                    return Err(malformed("began a message that is no answer"));
                }
                self.answer.begin(out);
                Ok(())
            }
            "contentBlockStart" => self.block_start(kind, raw, &event, out),
            "contentBlockDelta" => self.block_delta(kind, raw, &event, out),
            "contentBlockStop" => match number(event.content_block_index) {
                Some(wire) if self.answer.is_unknown(wire) => self.unknown(kind, raw),
                Some(wire) => self.block_end(wire, out),
                None => Err(malformed("ended a block without its number")),
            },
            "messageStop" => self.stopped(string(event.stop_reason).unwrap_or_default(), out),
            "metadata" => {
                self.usage(event.usage);
                if self.stop.is_some() { self.finished(out) } else { Ok(()) }
            }
            // It opens the stream of other services.
            "initial-response" => Ok(()),
            _ => self.unknown(kind, raw),
        }
    }

    fn unknown(&mut self, kind: &str, raw: &RawValue) -> Result<(), ModelError> {
        let event = format!("{{{}:{}}}", Value::from(kind), raw.get());
        let event = Json::parse(&event).map_err(|_| malformed("sent an event that is not JSON"))?;
        self.answer.keep_unknown(event)
    }

    fn block_start(
        &mut self,
        kind: &str,
        raw: &RawValue,
        event: &Event<'_>,
        out: &mut Vec<CallEvent>,
    ) -> Result<(), ModelError> {
        let wire =
            number(event.content_block_index).ok_or_else(|| malformed("began a block without a number"))?;
        let part: Part<'_> = read(event.start).unwrap_or_default();
        if let Some(call) = read::<ToolUsePart<'_>>(part.tool_use) {
            let id = string(call.tool_use_id).filter(|id| !id.is_empty());
            let id = id.unwrap_or_else(|| format!("call_{wire}"));
            self.answer.start_tool_call(wire, &id.into(), string(call.name).unwrap_or_default(), out)?;
            self.open.insert(wire, OpenBlock::ToolCall);
            return Ok(());
        }
        // Text and thinking begin with their first piece.
        if part.text.is_some() || event.start.is_none_or(|start| start.get() == "{}" || start.get() == "null")
        {
            return Ok(());
        }
        self.answer.start_unknown(wire)?;
        self.unknown(kind, raw)
    }

    fn block_delta(
        &mut self,
        kind: &str,
        raw: &RawValue,
        event: &Event<'_>,
        out: &mut Vec<CallEvent>,
    ) -> Result<(), ModelError> {
        let wire = number(event.content_block_index)
            .ok_or_else(|| malformed("sent a piece without the number of its block"))?;
        if self.answer.is_unknown(wire) {
            return self.unknown(kind, raw);
        }
        let part: Part<'_> = read(event.delta).unwrap_or_default();
        if let Some(text) = part.text {
            if !self.open.contains_key(&wire) {
                self.answer.start_text(wire, out)?;
                self.open.insert(wire, OpenBlock::Text);
            }
            return self.answer.append(wire, Piece::Text, text.get(), out);
        }
        if let Some(call) = read::<ToolUsePart<'_>>(part.tool_use) {
            return match call.input {
                Some(input) => self.answer.append(wire, Piece::Arguments, input.get(), out),
                None => Ok(()),
            };
        }
        match read::<ReasoningPart<'_>>(part.reasoning_content) {
            Some(reasoning) => self.reasoning(wire, &reasoning, out),
            None => self.unknown(kind, raw),
        }
    }

    fn reasoning(
        &mut self,
        wire: u64,
        part: &ReasoningPart<'_>,
        out: &mut Vec<CallEvent>,
    ) -> Result<(), ModelError> {
        if let Some(data) = string(part.redacted_content).filter(|data| !data.is_empty()) {
            let bytes = STANDARD.decode(&data).map_err(|_| {
                malformed(format!("sent encrypted thinking in block {wire} that is not base64"))
            })?;
            self.answer.can_hold(self.held.saturating_add(bytes.len()))?;
            self.held += bytes.len();
            if !self.open.contains_key(&wire) {
                self.answer.start_redacted(wire, String::new(), out)?;
                self.open.insert(wire, OpenBlock::Redacted(Vec::new()));
            }
            return match self.open.get_mut(&wire) {
                Some(OpenBlock::Redacted(all)) => {
                    all.extend(bytes);
                    Ok(())
                }
                _ => Err(malformed(format!(
                    "sent encrypted thinking in block {wire}, which is of another kind"
                ))),
            };
        }
        if part.text.is_none() && part.signature.is_none() {
            return Ok(());
        }
        if !self.open.contains_key(&wire) {
            self.answer.start_thinking(wire, out)?;
            self.open.insert(wire, OpenBlock::Thinking);
        }
        if let Some(text) = part.text {
            self.answer.append(wire, Piece::Thinking, text.get(), out)?;
        }
        match string(part.signature) {
            Some(signature) => self.answer.sign(wire, &signature),
            None => Ok(()),
        }
    }

    /// Ends a block; one that never began had nothing in it.
    fn block_end(&mut self, wire: u64, out: &mut Vec<CallEvent>) -> Result<(), ModelError> {
        match self.open.remove(&wire) {
            None => Ok(()),
            Some(OpenBlock::Redacted(bytes)) => {
                self.held -= bytes.len();
                self.answer.set_signature(wire, STANDARD.encode(bytes))?;
                self.answer.end(wire, out)
            }
            Some(OpenBlock::Text | OpenBlock::Thinking | OpenBlock::ToolCall) => self.answer.end(wire, out),
        }
    }

    fn stopped(&mut self, word: String, out: &mut Vec<CallEvent>) -> Result<(), ModelError> {
        if !self.answer.has_begun() {
            return Err(malformed("ended an answer that it had not begun"));
        }
        if matches!(word.as_str(), "malformed_model_output" | "malformed_tool_use") {
            // Another try has often another outcome.
            let text = format!("ended the answer with the reason {word:?}");
            return Err(ModelError::new(ModelErrorKind::Server, text));
        }
        self.end_blocks(out)?;
        // Of two reasons the first one counts.
        self.stop.get_or_insert(word);
        Ok(())
    }

    fn end_blocks(&mut self, out: &mut Vec<CallEvent>) -> Result<(), ModelError> {
        while let Some((&wire, _)) = self.open.first_key_value() {
            self.block_end(wire, out)?;
        }
        Ok(())
    }

    fn finished(&mut self, out: &mut Vec<CallEvent>) -> Result<(), ModelError> {
        self.end_blocks(out)?;
        self.complete = true;
        Ok(())
    }

    /// Counts are totals, not additions; each is never less than it was seen.
    fn usage(&mut self, raw: Option<&RawValue>) {
        let Some(wire) = read::<WireUsage<'_>>(raw) else { return };
        let usage: &mut Usage = &mut self.answer.message_mut().usage;
        let grow = |place: &mut u64, raw| *place = tokens(raw).unwrap_or(0).max(*place);
        grow(&mut usage.input, wire.input_tokens);
        grow(&mut usage.output, wire.output_tokens);
        grow(&mut usage.cache_read, wire.cache_read_input_tokens);
        grow(&mut usage.cache_write, wire.cache_write_input_tokens);
        let details: Vec<&RawValue> = read(wire.cache_details).unwrap_or_default();
        let details = details.into_iter().filter_map(|detail| read::<CacheDetail<'_>>(Some(detail)));
        let long = details.filter(|detail| string(detail.ttl).as_deref() == Some("1h"));
        let long: u64 = long.filter_map(|detail| tokens(detail.input_tokens)).fold(0, u64::saturating_add);
        let long = Some(long.min(usage.cache_write)).filter(|long| *long > 0);
        usage.cache_write_1h = usage.cache_write_1h.max(long);
        usage.total_tokens = usage.input + usage.output + usage.cache_read + usage.cache_write;
        self.told |= tokens(wire.output_tokens).is_some();
    }
}

/// The failure that a frame reports, by the name of its exception.
fn exception(name: &str, payload: &str) -> ModelError {
    let mut complaint = read_complaint(payload);
    let mut kind: String = quote(name);
    if let Some(first) = kind.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    // Those that it would have answered with before the stream.
    let status = match kind.as_str() {
        "ThrottlingException" => Some(429),
        "ServiceUnavailableException" => Some(503),
        "InternalServerException" => Some(500),
        "ValidationException" => Some(400),
        "ModelStreamErrorException" => Some(424),
        "ModelTimeoutException" => Some(408),
        _ => complaint.status,
    };
    let original = serde_json::from_str::<Original<'_>>(payload).ok();
    let original = original.and_then(|it| string(it.original_message)).map(|text| quote(&text));
    if let Some(original) = original.filter(|text| !text.is_empty() && !complaint.message.contains(text)) {
        complaint.message = format!("{} {original}", complaint.message);
    }
    complaint.kind = kind;
    let message = format!("reported a failure: {} ({})", complaint.message, complaint.kind);
    let mut error = ModelError::new(classify(status, &complaint), message);
    error.retry_after = complaint.retry_after;
    error
}
