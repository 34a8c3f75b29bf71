//! The answer: server-sent events to a message. Pure.
//!
//! The gateway numbers its blocks, and says each in pieces and then whole: the pieces count, and what is whole adds what
//! they lack.

use std::sync::Arc;

use quipu_protocol::{AssistantMessage, Cost, Json, Model, ModelError, StopReason, UnixMs, Usage};
use serde_json::Value;
use serde_json::value::RawValue;

use super::wire::{Event, WholeCall, WireUsage};
use crate::CallEvent;
use crate::assemble::{Assembler, Piece, malformed};
use crate::decode::{AnswerDecoder, SseAnswer, Wire, json_of, number, read, reported, string, tokens};
use crate::failure;
use crate::sse::SseEvent;

/// A decoder for one answer of `model` to a call that began at `timestamp`.
pub fn decoder(model: Arc<Model>, timestamp: UnixMs) -> Box<dyn AnswerDecoder> {
    let answer = Assembler::new(&model, timestamp);
    Box::new(SseAnswer::new(Stream { model, answer, stop: None, told: false }))
}

struct Stream {
    model: Arc<Model>,
    answer: Assembler,
    /// Why the answer ended, once it has.
    stop: Option<StopReason>,
    told: bool,
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
        self.stop.is_some()
    }

    fn is_enough(&self) -> bool {
        self.stop.is_some()
    }

    fn finish(mut self, error: Option<&ModelError>) -> (AssistantMessage, Vec<Json>, Option<ModelError>) {
        if let Some(stop) = self.stop {
            self.answer.message_mut().stop_reason = stop;
        }
        let (message, unknown) = self.answer.finish(&self.model, error);
        (message, unknown, error.cloned())
    }
}

impl Stream {
    fn take(&mut self, sse: &SseEvent, out: &mut Vec<CallEvent>) -> Result<(), ModelError> {
        if sse.data.trim() == "[DONE]" {
            return Ok(());
        }
        let raw = json_of(sse)?;
        let Ok(event) = serde_json::from_str::<Event<'_>>(raw.get()) else {
            return self.unknown(raw);
        };
        let kind = string(event.kind).unwrap_or_default();
        let index = number(event.content_index);
        match (kind.as_str(), index) {
            ("start", _) => self.answer.begin(out),
            ("text_start", Some(index)) => {
                self.answer.begin(out);
                self.answer.start_text(index, out)?;
            }
            ("thinking_start", Some(index)) => {
                self.answer.begin(out);
                self.answer.start_thinking(index, out)?;
            }
            ("toolcall_start", Some(index)) => {
                self.answer.begin(out);
                let id = string(event.id).filter(|id| !id.is_empty());
                let id = id.unwrap_or_else(|| format!("call_{index}"));
                let name = string(event.tool_name).unwrap_or_default();
                self.answer.start_tool_call(index, &id.into(), name, out)?;
            }
            ("text_delta", Some(index)) => self.piece(index, Piece::Text, &event, out)?,
            ("thinking_delta", Some(index)) => self.piece(index, Piece::Thinking, &event, out)?,
            ("toolcall_delta", Some(index)) => self.piece(index, Piece::Arguments, &event, out)?,
            ("text_end", Some(index)) => {
                self.complete(index, Piece::Text, &event, out)?;
                self.end(index, event.content_signature, out)?;
            }
            ("thinking_end", Some(index)) => {
                self.complete(index, Piece::Thinking, &event, out)?;
                if event.redacted.is_some_and(|raw| raw.get() == "true") {
                    self.answer.redact(index);
                }
                self.end(index, event.content_signature, out)?;
            }
            ("toolcall_end", Some(index)) => {
                let call: WholeCall<'_> = read(event.tool_call).unwrap_or_default();
                if let Some(arguments) = call.arguments.filter(|_| self.answer.text(index).is_empty()) {
                    let literal = Value::from(arguments.get()).to_string();
                    self.answer.append(index, Piece::Arguments, &literal, out)?;
                }
                self.end(index, call.thought_signature, out)?;
            }
            ("done", _) => {
                self.answer.begin(out);
                self.note(&event);
                self.stop = Some(self.reason(&string(event.reason).unwrap_or_default())?);
                self.answer.end_all(out);
            }
            ("error", _) => {
                self.note(&event);
                return Err(match string(event.error_message).filter(|text| !text.is_empty()) {
                    Some(text) => reported(&complaint(&text)),
                    None => reported(&sse.data),
                });
            }
            ("", _) if event.error.is_some() => return Err(reported(&sse.data)),
            _ => return self.unknown(raw),
        }
        Ok(())
    }

    fn unknown(&mut self, raw: &RawValue) -> Result<(), ModelError> {
        let event = Json::parse(raw.get()).map_err(|_| malformed("sent an event that is not JSON"))?;
        self.answer.keep_unknown(event)
    }

    fn piece(
        &mut self,
        index: u64,
        piece: Piece,
        event: &Event<'_>,
        out: &mut Vec<CallEvent>,
    ) -> Result<(), ModelError> {
        let delta = event.delta.ok_or_else(|| malformed(format!("sent an empty piece of block {index}")))?;
        self.answer.append(index, piece, delta.get(), out)
    }

    /// Adds what the pieces of a block lack of the whole.
    fn complete(
        &mut self,
        index: u64,
        piece: Piece,
        event: &Event<'_>,
        out: &mut Vec<CallEvent>,
    ) -> Result<(), ModelError> {
        let whole = string(event.content).unwrap_or_default();
        match whole.strip_prefix(self.answer.text(index)) {
            Some("") | None => Ok(()),
            Some(rest) => self.answer.append(index, piece, &Value::from(rest).to_string(), out),
        }
    }

    fn end(
        &mut self,
        index: u64,
        signature: Option<&RawValue>,
        out: &mut Vec<CallEvent>,
    ) -> Result<(), ModelError> {
        if let Some(signature) = string(signature).filter(|signature| !signature.is_empty()) {
            self.answer.set_signature(index, signature)?;
        }
        self.answer.end(index, out)
    }

    fn reason(&self, word: &str) -> Result<StopReason, ModelError> {
        match word {
            "length" => Ok(StopReason::Length),
            "stop" | "toolUse" if self.answer.has_tool_calls() => Ok(StopReason::ToolUse),
            "stop" | "toolUse" => Ok(StopReason::Stop),
            _ => {
                let word = failure::quote(word);
                let why =
                    format!("ended the answer with the reason {word:?}, which this version does not know");
                Err(malformed(why))
            }
        }
    }

    /// What the last event says beside the end.
    fn note(&mut self, event: &Event<'_>) {
        let id = string(event.response_id).filter(|id| !id.is_empty());
        let message = self.answer.message_mut();
        message.response_id = id.or(message.response_id.take());
        let Some(wire) = read::<WireUsage<'_>>(event.usage) else { return };
        let count = |raw| tokens(raw).unwrap_or_default();
        let (input, output) = (count(wire.input), count(wire.output));
        let (cache_read, cache_write) = (count(wire.cache_read), count(wire.cache_write));
        message.usage = Usage {
            input,
            output,
            cache_read,
            cache_write,
            reasoning: tokens(wire.reasoning).filter(|count| *count > 0),
            total_tokens: input + output + cache_read + cache_write,
            ..Usage::default()
        };
        self.told = input + output > 0;
        // The gateway knows which model it chose.
        let is_sound = |cost: &Cost| {
            let parts = [cost.input, cost.output, cost.cache_read, cost.cache_write, cost.total];
            parts.iter().all(|part| part.is_finite() && *part >= 0.0)
        };
        if let Some(cost) = read::<Cost>(wire.cost).filter(is_sound) {
            self.answer.set_cost(cost);
        }
    }
}

/// The words of the gateway's own client, as an error in the usual form. They often begin with the status that it got, and
/// go on with the body.
fn complaint(text: &str) -> String {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at(digits);
    let status: Option<u16> = number.parse().ok().filter(|number| (400..600).contains(number));
    let status = status.filter(|_| rest.is_empty() || rest.starts_with([' ', ':']));
    let body: Option<Value> = serde_json::from_str(rest.trim_start_matches([' ', ':'])).ok();
    let body = status.and(body).unwrap_or_default();
    let inner = body.get("error").unwrap_or(&body);
    let kind = inner.get("type").or_else(|| inner.get("code")).and_then(Value::as_str);
    let mut error = serde_json::json!({ "message": text });
    if let Some(status) = status {
        error["code"] = status.into();
    }
    if let Some(kind) = kind {
        error["type"] = kind.into();
    }
    serde_json::json!({ "error": error }).to_string()
}

#[cfg(test)]
mod tests {
    use quipu_protocol::ModelErrorKind;

    use super::*;

    #[test]
    fn failures_in_a_stream_are_told_apart_by_their_status() {
        let check = |text: &str, expect: ModelErrorKind| {
            assert_eq!(reported(&complaint(text)).kind, expect, "{text}");
        };
        let overloaded = r#"529 {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
        check(overloaded, ModelErrorKind::Overloaded);
        check("529", ModelErrorKind::Overloaded);
        check(r#"429: {"message":"slow down"}"#, ModelErrorKind::RateLimited);
        check("503: upstream", ModelErrorKind::Overloaded);
        check("12 monkeys", reported(r#"{"error":{"message":"12 monkeys"}}"#).kind);
        check("5290 things", reported(r#"{"error":{"message":"5290 things"}}"#).kind);
    }
}
