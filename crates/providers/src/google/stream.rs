//! The answer: server-sent events to a message. Pure.
//!
//! Each event holds parts. Pieces of text and of thinking follow each other until a part of another kind comes, or until
//! a signature: it proves the part that it came with, and nothing behind it. A call comes whole.

use std::sync::Arc;

use quipu_protocol::{
    AssistantMessage, Json, Model, ModelError, ModelErrorKind, ServerToolBlock, StopReason, UnixMs, Usage,
};
use serde_json::Value;
use serde_json::value::RawValue;

use super::code_assist;
use super::wire::{
    CallDelta, Candidate, CandidateContent, Chunk, GroundingChunk, GroundingMetadata, OuterEvent, PartDelta,
    PromptFeedback, SearchArguments, ServerTool, WebPage, WireUsage,
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
        is_within: model.api == code_assist::API,
        model,
        blocks: 0,
        open: None,
        finish: None,
        counted: TokenCounts::default(),
        grounding: None,
        told: false,
        complete: false,
    }))
}

struct Stream {
    model: Arc<Model>,
    /// Each event stands within another.
    is_within: bool,
    answer: Assembler,
    /// Blocks so far: their numbers are ours.
    blocks: u64,
    /// The kind of the last block, while more of it may come.
    open: Option<Piece>,
    finish: Option<Finish>,
    counted: TokenCounts,
    /// What was searched for and found, as the server said it last.
    grounding: Option<Json>,
    /// Some usage came: with the end of the answer, all of it.
    told: bool,
    complete: bool,
}

/// Tokens as the wire counts them: the cached ones are among those of the prompt, thinking is none of the candidates'.
#[derive(Default)]
struct TokenCounts {
    prompt: u64,
    tool_use: u64,
    cached: u64,
    candidates: u64,
    thoughts: u64,
}

/// Why the answer ended, in the server's word.
enum Finish {
    Done,
    Length,
    Declined { word: String, why: Option<String> },
}

impl Wire for Stream {
    fn event(&mut self, event: &SseEvent, out: &mut Vec<CallEvent>) -> Result<(), ModelError> {
        self.take(event, out)
    }

    fn body_ended(&mut self, out: &mut Vec<CallEvent>) -> Result<(), ModelError> {
        if self.finish.is_some() {
            self.end_block(out)?;
            self.ground(out)?;
            self.answer.end_all(out);
            self.complete = true;
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
        self.answer.count_searches(self.answer.searches());
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
            None | Some(Finish::Done) => (natural, None, None),
            Some(Finish::Length) => (StopReason::Length, None, None),
            Some(Finish::Declined { word, why }) => {
                let error = declined(&failure::quote(&word), why.as_deref());
                (StopReason::Error, Some(word), Some(error))
            }
        };
        let message = self.answer.message_mut();
        message.stop_reason = reason;
        message.raw_stop_reason = raw;
        failure
    }

    fn take(&mut self, sse: &SseEvent, out: &mut Vec<CallEvent>) -> Result<(), ModelError> {
        if sse.data.trim() == "[DONE]" && self.finish.is_some() {
            // A word of gateways.
            return self.body_ended(out);
        }
        let raw = json_of(sse)?;
        let (raw, trace) = match read::<OuterEvent<'_>>(Some(raw).filter(|_| self.is_within)) {
            Some(around) if around.error.is_some() => return Err(reported(&sse.data)),
            Some(OuterEvent { response: Some(within), trace_id, .. }) => (within, trace_id),
            Some(_) | None => (raw, None),
        };
        let Ok(chunk) = serde_json::from_str::<Chunk<'_>>(raw.get()) else {
            return self.unknown(raw);
        };
        if chunk.error.is_some() || sse.event == "error" {
            return Err(reported(raw.get()));
        }
        let feedback: PromptFeedback<'_> = read(chunk.prompt_feedback).unwrap_or_default();
        let blocked = string(feedback.block_reason).filter(|word| !word.is_empty());
        if chunk.candidates.is_none() && chunk.usage_metadata.is_none() && blocked.is_none() {
            return self.unknown(raw);
        }
        self.usage(chunk.usage_metadata);
        let version = string(chunk.model_version).filter(|version| {
            let name = version.rsplit('/').next().unwrap_or_default();
            !name.is_empty() && Some(name) != self.model.id.rsplit('/').next()
        });
        let message = self.answer.message_mut();
        if message.response_id.is_none() {
            let id = string(chunk.response_id).or_else(|| string(trace));
            message.response_id = id.filter(|id| !id.is_empty());
        }
        if message.response_model.is_none() {
            message.response_model = version;
        }
        self.answer.begin(out);
        if let (Some(word), None) = (blocked, &self.finish) {
            let why = string(feedback.block_reason_message).map(|why| failure::quote(&why));
            self.finish = Some(Finish::Declined { word, why });
        }
        let candidates: Vec<&RawValue> = match chunk.candidates {
            Some(candidates) => match read(Some(candidates)) {
                Some(candidates) => candidates,
                None => return self.unknown(raw),
            },
            None => Vec::new(),
        };
        let mut has_unknown = false;
        for candidate in candidates {
            match read::<Candidate<'_>>(Some(candidate)) {
                // We ask for one answer.
                Some(candidate) if number(candidate.index).unwrap_or(0) == 0 => {
                    has_unknown |= !self.candidate(&candidate, out)?;
                }
                Some(_) | None => has_unknown = true,
            }
        }
        if has_unknown { self.unknown(raw) } else { Ok(()) }
    }

    fn unknown(&mut self, raw: &RawValue) -> Result<(), ModelError> {
        let event = Json::parse(raw.get()).map_err(|_| malformed("sent an event that is not JSON"))?;
        self.answer.keep_unknown(event)
    }

    /// Takes the parts of the answer; says whether all of them are known.
    fn candidate(&mut self, candidate: &Candidate<'_>, out: &mut Vec<CallEvent>) -> Result<bool, ModelError> {
        let content: CandidateContent<'_> = read(candidate.content).unwrap_or_default();
        let parts: Option<Vec<&RawValue>> = read(content.parts);
        let mut is_known = parts.is_some() || content.parts.is_none();
        for part in parts.unwrap_or_default() {
            match read::<PartDelta<'_>>(Some(part)) {
                Some(known) if known.tool_call.is_some() || known.tool_response.is_some() => {
                    self.server_tool(part, &known, out)?;
                }
                Some(part) => is_known &= self.part(&part, out)?,
                None => is_known = false,
            }
        }
        if let Some(grounding) = candidate.grounding_metadata.filter(|raw| raw.get().starts_with('{')) {
            self.answer.can_hold(grounding.get().len())?;
            self.grounding = Some(Json::from(grounding));
        }
        let word = string(candidate.finish_reason).filter(|word| !word.is_empty());
        if let (Some(word), None) = (word, &self.finish) {
            let why = string(candidate.finish_message).map(|why| failure::quote(&why));
            self.finish = Some(finish(word, why.filter(|why| !why.is_empty()))?);
        }
        Ok(is_known)
    }

    fn part(&mut self, part: &PartDelta<'_>, out: &mut Vec<CallEvent>) -> Result<bool, ModelError> {
        let signature = string(part.thought_signature).filter(|text| !text.is_empty());
        if let Some(call) = read::<CallDelta<'_>>(part.function_call) {
            self.call(&call, signature, out)?;
            return Ok(true);
        }
        let literal = part.text.map(RawValue::get).filter(|literal| literal.starts_with('"'));
        let is_known = literal.is_some();
        let literal = literal.filter(|literal| literal.len() > 2);
        if literal.is_none() && signature.is_none() {
            return Ok(is_known);
        }
        let is_thought = read::<bool>(part.thought).unwrap_or(false);
        let piece = if is_thought { Piece::Thinking } else { Piece::Text };
        let wire = self.block(piece, out)?;
        if let Some(literal) = literal {
            self.answer.append(wire, piece, literal, out)?;
        }
        if let Some(signature) = signature {
            self.answer.set_signature(wire, signature)?;
            self.end_block(out)?;
        }
        Ok(true)
    }

    /// The number of the open block of this kind, which is begun if need be.
    fn block(&mut self, piece: Piece, out: &mut Vec<CallEvent>) -> Result<u64, ModelError> {
        if self.open == Some(piece) {
            return Ok(self.blocks - 1);
        }
        self.end_block(out)?;
        let wire = self.blocks;
        if piece == Piece::Thinking {
            self.answer.start_thinking(wire, out)?;
        } else {
            self.answer.start_text(wire, out)?;
        }
        self.blocks += 1;
        self.open = Some(piece);
        Ok(wire)
    }

    fn end_block(&mut self, out: &mut Vec<CallEvent>) -> Result<(), ModelError> {
        match self.open.take() {
            Some(_) => self.answer.end(self.blocks - 1, out),
            None => Ok(()),
        }
    }

    fn call(
        &mut self,
        call: &CallDelta<'_>,
        signature: Option<String>,
        out: &mut Vec<CallEvent>,
    ) -> Result<(), ModelError> {
        let more = read::<bool>(call.will_continue).unwrap_or(false);
        if call.partial_args.is_some() || more {
            // It would be run with a part of its arguments.
            return Err(malformed("sent a tool call in pieces, which was not asked for"));
        }
        self.end_block(out)?;
        let wire = self.blocks;
        let id = string(call.id).filter(|id| !id.is_empty()).unwrap_or_else(|| format!("call_{wire}"));
        self.answer.start_tool_call(wire, &id.into(), string(call.name).unwrap_or_default(), out)?;
        self.blocks += 1;
        if let Some(args) = call.args {
            self.answer.append(wire, Piece::Arguments, &Value::from(args.get()).to_string(), out)?;
        }
        if let Some(signature) = signature {
            self.answer.set_signature(wire, signature)?;
        }
        self.answer.end(wire, out)
    }

    /// A tool of the server: its call, or what it returned.
    fn server_tool(
        &mut self,
        raw: &RawValue,
        part: &PartDelta<'_>,
        out: &mut Vec<CallEvent>,
    ) -> Result<(), ModelError> {
        self.end_block(out)?;
        let tool: ServerTool<'_> = read(part.tool_call.or(part.tool_response)).unwrap_or_default();
        let kind = string(tool.tool_type).unwrap_or_default();
        let name = if kind == SEARCH { "web_search".to_owned() } else { kind.to_lowercase() };
        let asked: SearchArguments<'_> = read(tool.args).unwrap_or_default();
        let mut queries = strings(asked.queries);
        queries.extend(string(asked.query));
        let name = if part.tool_call.is_some() { name } else { format!("{name}_result") };
        let data = Some(raw.get().to_owned());
        let wire = self.blocks;
        self.blocks += 1;
        self.answer.add_server_tool(
            wire,
            ServerToolBlock { queries, data, ..ServerToolBlock::new(name) },
            out,
        )
    }

    /// What the server says of its searches, where no call of the answer says it.
    fn ground(&mut self, out: &mut Vec<CallEvent>) -> Result<(), ModelError> {
        let Some(grounding) = self.grounding.take() else { return Ok(()) };
        let said: GroundingMetadata<'_> = grounding.read().unwrap_or_default();
        let chunks: Vec<GroundingChunk<'_>> = read(said.grounding_chunks).unwrap_or_default();
        let pages = chunks.iter().filter_map(|chunk| read::<WebPage<'_>>(chunk.web));
        let sources: Vec<String> = pages.filter_map(|page| string(page.uri)).collect();
        let queries = if self.answer.searches() > 0 { Vec::new() } else { strings(said.web_search_queries) };
        let found = ServerToolBlock { sources, ..ServerToolBlock::new("web_search_result") };
        let searched = ServerToolBlock { queries, ..ServerToolBlock::new("web_search") };
        let has_searched = !searched.queries.is_empty();
        let blocks = [has_searched.then_some(searched), (!found.sources.is_empty()).then_some(found)];
        for block in blocks.into_iter().flatten() {
            let wire = self.blocks;
            self.blocks += 1;
            self.answer.add_server_tool(wire, block, out)?;
        }
        Ok(())
    }

    /// Counts are totals so far, not additions; each is never less than it was seen.
    fn usage(&mut self, raw: Option<&RawValue>) {
        let Some(wire) = read::<WireUsage<'_>>(raw) else { return };
        let grow = |place: &mut u64, raw| *place = tokens(raw).unwrap_or(0).max(*place);
        let TokenCounts { prompt, tool_use, cached, candidates, thoughts } = &mut self.counted;
        grow(prompt, wire.prompt_token_count);
        grow(tool_use, wire.tool_use_prompt_token_count);
        grow(cached, wire.cached_content_token_count);
        grow(candidates, wire.candidates_token_count);
        grow(thoughts, wire.thoughts_token_count);
        let usage: &mut Usage = &mut self.answer.message_mut().usage;
        usage.cache_read = (*cached).min(*prompt);
        usage.input = *prompt - usage.cache_read + *tool_use;
        usage.output = *candidates + *thoughts;
        usage.reasoning = (*thoughts > 0).then_some(*thoughts);
        usage.total_tokens = usage.input + usage.output + usage.cache_read;
        self.told |= usage.output > 0 || usage.input > 0;
    }
}

/// The type of the search among the server's tools.
const SEARCH: &str = "GOOGLE_SEARCH_WEB";

/// The texts of a list.
fn strings(raw: Option<&RawValue>) -> Vec<String> {
    let items: Vec<&RawValue> = read(raw).unwrap_or_default();
    items.into_iter().filter_map(|item| string(Some(item))).collect()
}

fn finish(word: String, why: Option<String>) -> Result<Finish, ModelError> {
    let failed = |kind, what: &str| {
        let word = failure::quote(&word);
        let why = why.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
        Err(ModelError::new(kind, format!("ended the answer with the reason {word:?}{what}{why}")))
    };
    match word.as_str() {
        "STOP" => Ok(Finish::Done),
        "MAX_TOKENS" => Ok(Finish::Length),
        "SAFETY"
        | "RECITATION"
        | "LANGUAGE"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "MODEL_ARMOR"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT"
        | "IMAGE_RECITATION" => Ok(Finish::Declined { word, why }),
        // Another try has often another outcome.
        "MALFORMED_FUNCTION_CALL"
        | "UNEXPECTED_TOOL_CALL"
        | "TOO_MANY_TOOL_CALLS"
        | "MALFORMED_RESPONSE"
        | "OTHER"
        | "IMAGE_OTHER"
        | "NO_IMAGE"
        | "FINISH_REASON_UNSPECIFIED" => failed(ModelErrorKind::Server, ""),
        "MISSING_THOUGHT_SIGNATURE" => failed(ModelErrorKind::InvalidRequest, ""),
        _ => failed(ModelErrorKind::Malformed, ", which this version does not know"),
    }
}
