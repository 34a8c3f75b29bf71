//! The answer: server-sent events to a message. Pure.
//!
//! Each item of the output is a block, known by its place. The server says nearly everything twice, in pieces and
//! whole: the pieces count, and what is whole adds what they lack.

use std::collections::BTreeMap;
use std::sync::Arc;

use quipu_protocol::{
    AssistantMessage, Json, Model, ModelError, ModelErrorKind, ServerToolBlock, StopReason, UnixMs, Usage,
};
use serde_json::Value;
use serde_json::value::RawValue;

use super::codex::SUBSCRIPTION_API;
use super::map::SEARCH_ITEM;
use super::wire::{
    ContentPart, Event, IncompleteDetails, SearchAction, TextSignature, TokenDetails, WireItem, WireResponse,
    WireUsage,
};
use crate::CallEvent;
use crate::assemble::{Assembler, Piece, malformed};
use crate::decode::{
    AnswerDecoder, SseAnswer, Wire, declined, json_of, number, read, reported, string, tokens,
};
use crate::failure;
use crate::sse::SseEvent;
use crate::surrogates::lossy;

/// Between two parts of one block of reasoning.
const PARAGRAPH: &str = r#""\n\n""#;
/// How the arguments of a call begin and end whose input is plain text.
const INPUT_START: &str = r#"{"input":""#;
const INPUT_END: &str = r#""}"#;

/// A decoder for one answer of `model` to a call that began at `timestamp`.
pub fn decoder(model: Arc<Model>, timestamp: UnixMs) -> Box<dyn AnswerDecoder> {
    Box::new(SseAnswer::new(Stream {
        answer: Assembler::new(&model, timestamp),
        tier: asked_tier(&model),
        model,
        items: BTreeMap::new(),
        stop: None,
        counted: TokenCounts::default(),
        told: false,
    }))
}

struct Stream {
    model: Arc<Model>,
    answer: Assembler,
    items: BTreeMap<u64, Item>,
    /// Why the answer ended, once it has.
    stop: Option<Stop>,
    counted: TokenCounts,
    /// The usage of the whole answer came.
    told: bool,
    /// Which of the server's prices counts.
    tier: Option<String>,
}

/// Tokens of the input, as the wire counts them: the cached ones are among them.
#[derive(Default)]
struct TokenCounts {
    input: u64,
    cached: u64,
    written: u64,
}

struct Item {
    kind: Kind,
    done: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Message,
    Reasoning {
        /// What the last piece was a part of: whether of the summary, and its number.
        part: Option<(bool, u64)>,
        /// The item holds what a later request needs.
        is_encrypted: bool,
    },
    Call {
        /// The arguments came whole.
        is_whole: bool,
    },
    /// A call whose input is plain text.
    TextCall {
        is_whole: bool,
    },
    /// What only the server understands, and wants back.
    Opaque,
    /// A search of the server.
    Search,
    Unknown,
}

enum Stop {
    Done,
    Length,
    Declined(String),
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
        let failure = error.cloned().or_else(|| self.conclude());
        self.answer.count_searches(self.answer.searches());
        self.answer.set_price_factor(price_factor(&self.model, self.tier.as_deref()));
        let (message, unknown) = self.answer.finish(&self.model, failure.as_ref());
        (message, unknown, failure)
    }
}

impl Stream {
    /// Sets the stop reason of a complete answer.
    fn conclude(&mut self) -> Option<ModelError> {
        let calls = self.answer.has_tool_calls();
        let (reason, raw, failure) = match self.stop.take() {
            Some(Stop::Length) => (StopReason::Length, None, None),
            Some(Stop::Declined(word)) => {
                let error = declined(&failure::quote(&word), None);
                (StopReason::Error, Some(word), Some(error))
            }
            Some(Stop::Done) | None if calls => (StopReason::ToolUse, None, None),
            Some(Stop::Done) | None => (StopReason::Stop, None, None),
        };
        let message = self.answer.message_mut();
        message.stop_reason = reason;
        message.raw_stop_reason = raw;
        failure
    }

    fn take(&mut self, sse: &SseEvent, out: &mut Vec<CallEvent>) -> Result<(), ModelError> {
        if sse.data.trim() == "[DONE]" {
            return Ok(());
        }
        let raw = json_of(sse)?;
        let Ok(event) = serde_json::from_str::<Event<'_>>(raw.get()) else {
            return self.unknown(raw);
        };
        let kind = string(event.kind).unwrap_or_else(|| sse.event.clone());
        let is_of_reasoning = matches!(
            kind.as_str(),
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta"
        );
        match kind.as_str() {
            "response.created" | "response.in_progress" | "response.queued" => {
                self.begin(&read(event.response).unwrap_or_default(), out);
                Ok(())
            }
            "response.output_item.added" => {
                self.begin(&WireResponse::default(), out);
                let index = number(event.output_index).unwrap_or_else(|| self.next());
                if self.items.contains_key(&index) {
                    return Err(malformed(format!("began item {index} twice")));
                }
                match event.item {
                    Some(item) => self.start(index, item, out),
                    None => self.unknown(raw),
                }
            }
            "response.output_item.done" => {
                self.begin(&WireResponse::default(), out);
                let index = number(event.output_index).unwrap_or_else(|| self.last());
                match event.item {
                    Some(item) => self.done(index, item, out),
                    None => self.unknown(raw),
                }
            }
            "response.output_text.delta" | "response.refusal.delta" => self.say(&event, raw, out),
            _ if is_of_reasoning => self.think(&event, raw, out),
            "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" => {
                self.argue(&event, raw, out)
            }
            "response.function_call_arguments.done" => self.whole(&event, event.arguments, raw, out),
            "response.custom_tool_call_input.done" => self.whole(&event, event.input, raw, out),
            // Said elsewhere, too.
            "response.content_part.added"
            | "response.content_part.done"
            | "response.output_text.done"
            | "response.refusal.done"
            | "response.reasoning_summary_part.added"
            | "response.reasoning_summary_part.done"
            | "response.reasoning_summary_text.done"
            | "response.reasoning_text.done"
            | "response.output_text.annotation.added"
            | "response.web_search_call.in_progress"
            | "response.web_search_call.searching"
            | "response.web_search_call.completed"
            | "keepalive"
            | "ping" => Ok(()),
            // Of the account, not of the answer.
            "codex.rate_limits" | "response.metadata" => Ok(()),
            "response.completed"
            | "response.done"
            | "response.incomplete"
            | "response.failed"
            | "response.cancelled" => self.end(&kind, event.response, out),
            "error" => Err(reported(&sse.data)),
            _ if event.kind.is_none() && event.error.is_some() => Err(reported(&sse.data)),
            _ => self.unknown(raw),
        }
    }

    fn unknown(&mut self, raw: &RawValue) -> Result<(), ModelError> {
        let event = Json::parse(raw.get()).map_err(|_| malformed("sent an event that is not JSON"))?;
        self.answer.keep_unknown(event)
    }

    /// The place behind the last item, for servers that do not number them.
    fn next(&self) -> u64 {
        self.items.last_key_value().map_or(0, |(last, _)| last.saturating_add(1))
    }

    fn last(&self) -> u64 {
        self.items.last_key_value().map_or(0, |(last, _)| *last)
    }

    fn begin(&mut self, response: &WireResponse<'_>, out: &mut Vec<CallEvent>) {
        if !self.answer.has_begun() {
            self.usage(response.usage);
            let model = string(response.model).filter(|model| *model != self.model.id && !model.is_empty());
            let message = self.answer.message_mut();
            message.response_id = string(response.id).filter(|id| !id.is_empty());
            message.response_model = model;
            self.answer.begin(out);
        }
    }

    /// Begins an item that is not known yet.
    fn start(&mut self, index: u64, raw: &RawValue, out: &mut Vec<CallEvent>) -> Result<(), ModelError> {
        let item: WireItem<'_> = read(Some(raw)).unwrap_or_default();
        let kind = match string(item.kind).as_deref() {
            Some("message") => {
                self.answer.start_text(index, out)?;
                Kind::Message
            }
            Some("reasoning") => {
                self.answer.start_thinking(index, out)?;
                Kind::Reasoning { part: None, is_encrypted: false }
            }
            Some("function_call") => {
                self.start_call(index, &item, out)?;
                let first = item.arguments.filter(|literal| literal.get().starts_with('"'));
                if let Some(first) = first {
                    self.answer.append(index, Piece::Arguments, first.get(), out)?;
                }
                Kind::Call { is_whole: false }
            }
            Some("custom_tool_call") => {
                self.start_call(index, &item, out)?;
                self.append_arguments(index, INPUT_START, out)?;
                if let Some(first) = item.input.and_then(inside) {
                    self.append_arguments(index, first, out)?;
                }
                Kind::TextCall { is_whole: false }
            }
            // It is begun when it is known.
            Some("compaction" | "compaction_summary") => Kind::Opaque,
            Some(SEARCH_ITEM) => Kind::Search,
            _ => {
                self.answer.start_unknown(index)?;
                self.unknown(raw)?;
                Kind::Unknown
            }
        };
        self.items.insert(index, Item { kind, done: false });
        Ok(())
    }

    /// The call's id has two parts: results name the first one, and the second one is the item's.
    fn start_call(
        &mut self,
        index: u64,
        item: &WireItem<'_>,
        out: &mut Vec<CallEvent>,
    ) -> Result<(), ModelError> {
        let call_id = string(item.call_id).filter(|id| !id.is_empty());
        let call_id = call_id.unwrap_or_else(|| format!("call_{index}"));
        let id = match string(item.id).filter(|id| !id.is_empty()) {
            Some(item_id) => format!("{call_id}|{item_id}"),
            None => call_id,
        };
        self.answer.start_tool_call(index, &id.into(), string(item.name).unwrap_or_default(), out)
    }

    fn say(&mut self, event: &Event<'_>, raw: &RawValue, out: &mut Vec<CallEvent>) -> Result<(), ModelError> {
        let index = number(event.output_index).unwrap_or_else(|| self.last());
        self.begin(&WireResponse::default(), out);
        if !self.items.contains_key(&index) {
            self.answer.start_text(index, out)?;
            self.items.insert(index, Item { kind: Kind::Message, done: false });
        }
        self.piece(index, Piece::Text, event, raw, out)
    }

    fn think(
        &mut self,
        event: &Event<'_>,
        raw: &RawValue,
        out: &mut Vec<CallEvent>,
    ) -> Result<(), ModelError> {
        let index = number(event.output_index).unwrap_or_else(|| self.last());
        self.begin(&WireResponse::default(), out);
        if !self.items.contains_key(&index) {
            self.answer.start_thinking(index, out)?;
            let kind = Kind::Reasoning { part: None, is_encrypted: false };
            self.items.insert(index, Item { kind, done: false });
        }
        let of_summary = event.summary_index.is_some();
        let place = number(event.summary_index.or(event.content_index)).unwrap_or_default();
        if let Some(Item { kind: Kind::Reasoning { part, .. }, done: false }) = self.items.get_mut(&index) {
            let is_next =
                part.replace((of_summary, place)).is_some_and(|before| before != (of_summary, place));
            if is_next {
                self.answer.append(index, Piece::Thinking, PARAGRAPH, out)?;
            }
        }
        self.piece(index, Piece::Thinking, event, raw, out)
    }

    fn argue(
        &mut self,
        event: &Event<'_>,
        raw: &RawValue,
        out: &mut Vec<CallEvent>,
    ) -> Result<(), ModelError> {
        let index = number(event.output_index).unwrap_or_else(|| self.last());
        if let Some(Item { kind: Kind::TextCall { is_whole }, done: false }) = self.items.get(&index) {
            // Behind its end nothing can be added.
            let more = event.delta.filter(|_| !is_whole).and_then(inside);
            let more = more
                .ok_or_else(|| malformed(format!("sent a piece of item {index} that has no place in it")))?;
            return self.append_arguments(index, more, out);
        }
        self.piece(index, Piece::Arguments, event, raw, out)
    }

    fn piece(
        &mut self,
        index: u64,
        piece: Piece,
        event: &Event<'_>,
        raw: &RawValue,
        out: &mut Vec<CallEvent>,
    ) -> Result<(), ModelError> {
        if self.answer.is_unknown(index) {
            return self.unknown(raw);
        }
        let delta = event.delta.ok_or_else(|| malformed(format!("sent an empty piece of item {index}")))?;
        self.answer.append(index, piece, delta.get(), out)
    }

    /// Adds a piece of the JSON text of arguments.
    fn append_arguments(
        &mut self,
        index: u64,
        text: &str,
        out: &mut Vec<CallEvent>,
    ) -> Result<(), ModelError> {
        self.answer.append(index, Piece::Arguments, &Value::from(text).to_string(), out)
    }

    /// The arguments or the input of a call, whole.
    fn whole(
        &mut self,
        event: &Event<'_>,
        text: Option<&RawValue>,
        raw: &RawValue,
        out: &mut Vec<CallEvent>,
    ) -> Result<(), ModelError> {
        let index = number(event.output_index).unwrap_or_else(|| self.last());
        match self.items.get(&index).map(|item| item.kind) {
            Some(Kind::Call { .. } | Kind::TextCall { .. }) => {
                self.complete_call(index, string(text).as_deref(), out)
            }
            _ => self.unknown(raw),
        }
    }

    /// Adds what pieces of a call's arguments lack.
    fn complete_call(
        &mut self,
        index: u64,
        text: Option<&str>,
        out: &mut Vec<CallEvent>,
    ) -> Result<(), ModelError> {
        let Some(Item { kind, done: false }) = self.items.get_mut(&index) else { return Ok(()) };
        match kind {
            Kind::Call { is_whole } if !*is_whole => {
                let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(()) };
                *is_whole = true;
                if self.add_rest(index, Piece::Arguments, text, out)? {
                    return Ok(());
                }
                // Of two forms of the same the one that was shown counts.
                if serde_json::from_str::<&RawValue>(self.answer.text(index)).is_ok() {
                    return Ok(());
                }
                Err(malformed(format!("ended item {index} with other arguments than it began with")))
            }
            Kind::TextCall { is_whole } if !*is_whole => {
                *is_whole = true;
                if let Some(text) = text {
                    let so_far = self.answer.text(index).strip_prefix(INPUT_START).unwrap_or_default();
                    let so_far = lossy(&format!("\"{so_far}\"")).unwrap_or_default();
                    if let Some(more) = text.strip_prefix(so_far.as_str()).filter(|more| !more.is_empty()) {
                        let literal = Value::from(more).to_string();
                        self.append_arguments(index, &literal[1..literal.len() - 1], out)?;
                    }
                }
                self.append_arguments(index, INPUT_END, out)
            }
            _ => Ok(()),
        }
    }

    /// Adds what the pieces of a block lack of the whole text. Whether they are its beginning.
    fn add_rest(
        &mut self,
        index: u64,
        piece: Piece,
        whole: &str,
        out: &mut Vec<CallEvent>,
    ) -> Result<bool, ModelError> {
        match whole.strip_prefix(self.answer.text(index)) {
            Some("") => Ok(true),
            Some(rest) => {
                self.answer.append(index, piece, &Value::from(rest).to_string(), out)?;
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Ends an item, with all that it is.
    fn done(&mut self, index: u64, raw: &RawValue, out: &mut Vec<CallEvent>) -> Result<(), ModelError> {
        if !self.items.contains_key(&index) {
            self.start(index, raw, out)?;
            if self.answer.is_unknown(index) {
                return Ok(());
            }
        }
        let item: WireItem<'_> = read(Some(raw)).unwrap_or_default();
        let Some(Item { kind, done: false }) = self.items.get(&index) else { return Ok(()) };
        let kind = *kind;
        let name = string(item.kind).unwrap_or_default();
        match (kind, name.as_str()) {
            (Kind::Message, "message") => {
                let parts: Vec<ContentPart<'_>> = read(item.content).unwrap_or_default();
                let annotations = parts.iter().filter_map(|part| read::<Vec<Json>>(part.annotations));
                let annotations: Vec<Json> = annotations.flatten().collect();
                let parts =
                    parts.iter().filter_map(|part| string(part.text).or_else(|| string(part.refusal)));
                self.add_rest(index, Piece::Text, &parts.collect::<String>(), out)?;
                let (id, phase) = (string(item.id), string(item.phase));
                if id.is_some() || phase.is_some() || !annotations.is_empty() {
                    let signature = TextSignature { v: 1, id: id.unwrap_or_default(), phase, annotations };
                    let signature = serde_json::to_string(&signature).unwrap_or_default();
                    self.answer.set_signature(index, signature)?;
                }
            }
            (Kind::Reasoning { .. }, "reasoning") => {
                let texts = |raw| {
                    let parts: Vec<ContentPart<'_>> = read(raw).unwrap_or_default();
                    parts.iter().filter_map(|part| string(part.text)).collect::<Vec<_>>().join("\n\n")
                };
                let summary = texts(item.summary);
                let whole = if summary.is_empty() { texts(item.content) } else { summary };
                self.add_rest(index, Piece::Thinking, &whole, out)?;
                self.keep_reasoning(index, raw, &item)?;
            }
            (Kind::Call { .. }, "function_call") => {
                self.complete_call(index, string(item.arguments).as_deref(), out)?;
            }
            (Kind::TextCall { .. }, "custom_tool_call") => {
                self.complete_call(index, string(item.input).as_deref(), out)?;
            }
            (Kind::Opaque, "compaction" | "compaction_summary") => {
                self.answer.start_redacted(index, raw.get().to_owned(), out)?;
            }
            (Kind::Search, SEARCH_ITEM) => {
                self.answer.add_server_tool(index, search(raw, &item), out)?;
                self.mark_done(index);
                return Ok(());
            }
            (Kind::Unknown, _) => return self.unknown(raw),
            _ => return Err(malformed(format!("ended item {index} as one of another kind"))),
        }
        self.mark_done(index);
        self.answer.end(index, out)
    }

    fn mark_done(&mut self, index: u64) {
        if let Some(item) = self.items.get_mut(&index) {
            item.done = true;
        }
    }

    /// Keeps an item of reasoning as it is, for later requests.
    fn keep_reasoning(&mut self, index: u64, raw: &RawValue, item: &WireItem<'_>) -> Result<(), ModelError> {
        self.answer.replace_signature(index, raw.get().to_owned())?;
        if let Some(Item { kind: Kind::Reasoning { is_encrypted, .. }, .. }) = self.items.get_mut(&index) {
            *is_encrypted = string(item.encrypted_content).is_some_and(|data| !data.is_empty());
        }
        Ok(())
    }

    /// The answer is over: `kind` and what the response says of itself tell how.
    fn end(
        &mut self,
        kind: &str,
        raw: Option<&RawValue>,
        out: &mut Vec<CallEvent>,
    ) -> Result<(), ModelError> {
        let response: WireResponse<'_> = read(raw).unwrap_or_default();
        self.begin(&response, out);
        self.usage(response.usage);
        self.told |= self.counted.input > 0;
        // The backend of a subscription names the tier of the account, not that of the call.
        let said = string(response.service_tier);
        let said = said
            .filter(|tier| self.model.api != SUBSCRIPTION_API || tier != "default" || self.tier.is_none());
        self.tier = said.or(self.tier.take());
        let status = string(response.status);
        let status = match (kind, status.as_deref()) {
            (
                "response.completed" | "response.done",
                Some(status @ ("incomplete" | "failed" | "cancelled")),
            ) => status,
            ("response.completed" | "response.done", _) => "completed",
            (kind, _) => kind.trim_start_matches("response."),
        };
        let stop = match status {
            "completed" => Stop::Done,
            "incomplete" => {
                let details: IncompleteDetails<'_> = read(response.incomplete_details).unwrap_or_default();
                incomplete(string(details.reason).unwrap_or_default())?
            }
            "cancelled" => {
                return Err(ModelError::new(ModelErrorKind::Server, "cancelled the answer"));
            }
            _ => {
                let error = response.error.filter(|error| error.get() != "null");
                return Err(match error {
                    Some(error) => reported(&format!("{{\"error\":{}}}", error.get())),
                    None => ModelError::new(ModelErrorKind::Server, "reported a failure without a reason"),
                });
            }
        };
        self.add_output(response.output, out)?;
        if matches!(stop, Stop::Done) {
            let calls: Vec<u64> = self.items.keys().copied().collect();
            for index in calls {
                // What is plain text has an end that the model did not write.
                if matches!(self.items.get(&index), Some(Item { kind: Kind::TextCall { .. }, done: false })) {
                    self.complete_call(index, None, out)?;
                }
            }
        }
        self.answer.end_all(out);
        self.stop = Some(stop);
        Ok(())
    }

    /// What the whole output has beside what came of it before.
    fn add_output(&mut self, output: Option<&RawValue>, out: &mut Vec<CallEvent>) -> Result<(), ModelError> {
        let nothing_came = self.items.is_empty();
        let output: Vec<&RawValue> = read(output).unwrap_or_default();
        for (index, raw) in (0_u64..).zip(output) {
            let item: WireItem<'_> = read(Some(raw)).unwrap_or_default();
            let name = string(item.kind);
            match (self.items.get(&index).map(|item| (item.kind, item.done)), name.as_deref()) {
                (None, _) if nothing_came => self.done(index, raw, out)?,
                (Some((Kind::Message, false)), Some("message"))
                | (Some((Kind::Reasoning { .. }, false)), Some("reasoning"))
                | (Some((Kind::Call { .. }, false)), Some("function_call"))
                | (Some((Kind::TextCall { .. }, false)), Some("custom_tool_call"))
                | (Some((Kind::Search, false)), Some(SEARCH_ITEM))
                | (Some((Kind::Opaque, false)), Some("compaction" | "compaction_summary")) => {
                    self.done(index, raw, out)?;
                }
                // Some servers encrypt it only at the end.
                (Some((Kind::Reasoning { is_encrypted: false, .. }, true)), Some("reasoning"))
                    if item.encrypted_content.is_some() =>
                {
                    self.keep_reasoning(index, raw, &item)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Counts are totals so far, not additions; each is never less than it was seen.
    fn usage(&mut self, raw: Option<&RawValue>) {
        let Some(wire) = read::<WireUsage<'_>>(raw) else { return };
        let grow = |place: &mut u64, count: Option<u64>| *place = count.unwrap_or(0).max(*place);
        let TokenCounts { input, cached, written } = &mut self.counted;
        let details: TokenDetails<'_> = read(wire.input_tokens_details).unwrap_or_default();
        grow(input, tokens(wire.input_tokens));
        grow(cached, tokens(details.cached_tokens));
        grow(written, tokens(details.cache_write_tokens));
        let usage: &mut Usage = &mut self.answer.message_mut().usage;
        usage.cache_read = (*cached).min(*input);
        usage.cache_write = (*written).min(*input - usage.cache_read);
        usage.input = *input - usage.cache_read - usage.cache_write;
        grow(&mut usage.output, tokens(wire.output_tokens));
        let details: TokenDetails<'_> = read(wire.output_tokens_details).unwrap_or_default();
        usage.reasoning = usage.reasoning.max(tokens(details.reasoning_tokens).filter(|count| *count > 0));
        usage.total_tokens = usage.input + usage.output + usage.cache_read + usage.cache_write;
    }
}

/// The block of a search, which the server wants back as it is.
fn search(raw: &RawValue, item: &WireItem<'_>) -> ServerToolBlock {
    let action: SearchAction<'_> = read(item.action).unwrap_or_default();
    let several: Vec<&RawValue> = read(action.queries).unwrap_or_default();
    let mut queries: Vec<String> = several.into_iter().filter_map(|query| string(Some(query))).collect();
    if queries.is_empty() {
        // A page that is opened has an address only.
        queries.extend(string(action.query).or_else(|| string(action.url)).filter(|text| !text.is_empty()));
    }
    let failed = string(item.status).filter(|status| status == "failed");
    let data = Some(raw.get().to_owned());
    ServerToolBlock { queries, error: failed, data, ..ServerToolBlock::new("web_search") }
}

/// What is between the quotes of a JSON string, still escaped.
fn inside(literal: &RawValue) -> Option<&str> {
    literal.get().strip_prefix('"')?.strip_suffix('"')
}

/// Why an answer is not complete, in the server's word.
fn incomplete(word: String) -> Result<Stop, ModelError> {
    match word.as_str() {
        "max_output_tokens" | "max_tokens" => Ok(Stop::Length),
        "content_filter" => Ok(Stop::Declined(word)),
        "" => Err(malformed("left the answer incomplete without a reason")),
        _ => {
            let word = failure::quote(&word);
            let why = format!(
                "left the answer incomplete for the reason {word:?}, which this version does not know"
            );
            Err(malformed(why))
        }
    }
}

/// The tier that the model's settings ask for; what the server says comes before it.
fn asked_tier(model: &Model) -> Option<String> {
    let params = model.sampling_params.as_ref().map(Json::value)?;
    params.get("service_tier")?.as_str().map(String::from)
}

/// How many times the usual price the tier that the model's settings ask for may cost.
pub(super) fn dearest_tier(model: &Model) -> f64 {
    // The server may take the usual one.
    price_factor(model, asked_tier(model).as_deref()).max(1.0)
}

/// How many times the usual price a tier costs.
fn price_factor(model: &Model, tier: Option<&str>) -> f64 {
    match tier {
        Some("flex") => 0.5,
        Some("priority") if model.id == "gpt-5.5" => 2.5,
        Some("priority") => 2.0,
        Some(_) | None => 1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn price_follows_the_service_tier() {
        let of = |id: &str, tier: Option<&str>| {
            price_factor(&Model { id: id.into(), ..Model::default() }, tier).to_string()
        };
        assert_eq!(of("gpt-5", None), "1");
        assert_eq!(of("gpt-5", Some("default")), "1");
        assert_eq!(of("gpt-5", Some("flex")), "0.5");
        assert_eq!(of("gpt-5", Some("priority")), "2");
        assert_eq!(of("gpt-5.5", Some("priority")), "2.5");
        let asks = |params: &str| {
            asked_tier(&Model { sampling_params: Json::parse(params).ok(), ..Model::default() })
        };
        assert_eq!(asks(r#"{"service_tier":"flex"}"#).as_deref(), Some("flex"));
        assert_eq!(asks(r#"{"service_tier":1}"#), None);
    }
}
