//! Event streams as servers send them.

use serde_json::{Value, json};

use crate::{Gate, Reply};

/// How a server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wire {
    /// Blocks that are started and ended (`…/v1/messages`).
    #[default]
    Messages,
    /// Deltas of one choice (`…/chat/completions`).
    Completions,
    /// Items that are added and done (`…/responses`).
    Responses,
    /// Parts of one candidate (`…:streamGenerateContent`).
    Contents,
    /// Items at the backend of a subscription (`…/codex/responses`).
    Subscription,
    /// Deltas of one choice whose content may be a list of chunks (`…/chat/completions`).
    Chunks,
    /// Blocks in frames of bytes (`…/converse-stream`). Streams are written as text with the names and the payloads of their
    /// frames, which [`Wire::bytes`] puts into frames.
    Converse,
    /// Messages as sessions hold them (`…/messages`).
    Gateway,
    /// Parts of one candidate, each event within another (`…/v1internal:streamGenerateContent`).
    Envelope,
}

/// Builds the event stream of one answer, block after block.
///
/// ```
/// let reply = quipu_testkit::Answer::new().text("Hello").reply();
/// let server = quipu_testkit::FakeServer::start([reply]);
/// assert!(server.url().starts_with("http://127.0.0.1:"));
/// ```
#[derive(Debug, Clone)]
pub struct Answer {
    wire: Wire,
    events: Vec<Value>,
    blocks: usize,
    calls: usize,
    /// Uncached input, output, read from and written to the cache.
    usage: [u64; 4],
    stop: Option<String>,
    has_calls: bool,
}

impl Default for Answer {
    fn default() -> Self {
        Self {
            wire: Wire::default(),
            events: Vec::new(),
            blocks: 0,
            calls: 0,
            usage: [10, 5, 0, 0],
            stop: None,
            has_calls: false,
        }
    }
}

impl Answer {
    /// An answer without content: 10 tokens in, 5 out.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same on this wire.
    pub fn on(wire: Wire) -> Self {
        Self { wire, ..Self::default() }
    }

    /// A text block, in two pieces when it is long enough.
    #[must_use]
    pub fn text(self, text: &str) -> Self {
        match self.wire {
            Wire::Messages => {
                let deltas = halves(text).map(|piece| json!({ "type": "text_delta", "text": piece }));
                self.block(&json!({ "type": "text", "text": "" }), deltas)
            }
            Wire::Completions | Wire::Chunks => {
                self.deltas(halves(text).map(|piece| json!({ "content": piece })))
            }
            Wire::Responses | Wire::Subscription => {
                let part = json!({ "type": "output_text", "text": text, "annotations": [] });
                let item = json!({ "type": "message", "role": "assistant", "content": [part] });
                self.item(&item, "content", "response.output_text.delta", halves(text))
            }
            Wire::Contents | Wire::Envelope => self.parts(halves(text).map(|piece| json!({ "text": piece }))),
            Wire::Converse => self.pieces(None, halves(text).map(|piece| json!({ "text": piece }))),
            Wire::Gateway => self.said("text", &json!({}), halves(text), &json!({ "content": text })),
        }
    }

    /// A thinking block with its signature, where the wire has such.
    #[must_use]
    pub fn thinking(self, thinking: &str, signature: &str) -> Self {
        match self.wire {
            Wire::Messages => {
                let deltas =
                    halves(thinking).map(|piece| json!({ "type": "thinking_delta", "thinking": piece }));
                let signature = json!({ "type": "signature_delta", "signature": signature });
                let start = json!({ "type": "thinking", "thinking": "", "signature": "" });
                self.block(&start, deltas.chain([signature]))
            }
            Wire::Completions => {
                self.deltas(halves(thinking).map(|piece| json!({ "reasoning_content": piece })))
            }
            Wire::Chunks => self.deltas(halves(thinking).map(|piece| {
                let thinking = [json!({ "type": "text", "text": piece })];
                json!({ "content": [{ "type": "thinking", "thinking": thinking }] })
            })),
            Wire::Responses | Wire::Subscription => {
                let part = json!({ "type": "summary_text", "text": thinking });
                let item = json!({ "type": "reasoning", "summary": [part], "encrypted_content": signature });
                self.item(&item, "summary", "response.reasoning_summary_text.delta", halves(thinking))
            }
            Wire::Gateway => {
                let end = json!({ "content": thinking, "contentSignature": signature });
                self.said("thinking", &json!({}), halves(thinking), &end)
            }
            Wire::Contents | Wire::Envelope => {
                let pieces = halves(thinking).map(|piece| json!({ "text": piece, "thought": true }));
                let signature = json!({ "text": "", "thought": true, "thoughtSignature": signature });
                self.parts(pieces.chain([signature]))
            }
            Wire::Converse => {
                let pieces = halves(thinking).map(|piece| json!({ "text": piece }));
                let pieces = pieces.chain([json!({ "signature": signature })]);
                self.pieces(None, pieces.map(|piece| json!({ "reasoningContent": piece })))
            }
        }
    }

    /// A thinking block that came encrypted only.
    #[must_use]
    pub fn redacted_thinking(self, data: &str) -> Self {
        match self.wire {
            Wire::Messages => self.block(&json!({ "type": "redacted_thinking", "data": data }), []),
            Wire::Completions => {
                let detail = json!({ "type": "reasoning.encrypted", "data": data, "index": 0 });
                self.deltas([json!({ "reasoning_details": [detail] })])
            }
            Wire::Gateway => {
                let end = json!({ "content": "", "contentSignature": data, "redacted": true });
                self.said("thinking", &json!({}), [], &end)
            }
            // There is no such thing here.
            Wire::Chunks => self,
            Wire::Responses | Wire::Subscription => {
                let item = json!({ "type": "reasoning", "summary": [], "encrypted_content": data });
                self.item(&item, "summary", "", [])
            }
            Wire::Contents | Wire::Envelope => {
                self.parts([json!({ "text": "", "thought": true, "thoughtSignature": data })])
            }
            Wire::Converse => self.pieces(None, [json!({ "reasoningContent": { "redactedContent": data } })]),
        }
    }

    /// A tool call. `arguments` are sent as they are, JSON or not.
    #[must_use]
    pub fn tool_call(self, id: &str, name: &str, arguments: &str) -> Self {
        self.tool_call_in(id, name, halves(arguments))
    }

    /// The same with the arguments in these pieces.
    #[must_use]
    pub fn tool_call_in<'a>(
        mut self,
        id: &str,
        name: &str,
        pieces: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let index = self.calls;
        self.calls += 1;
        self.has_calls = true;
        let pieces = pieces.into_iter();
        match self.wire {
            Wire::Messages => {
                let deltas = pieces.map(|piece| json!({ "type": "input_json_delta", "partial_json": piece }));
                self.block(&json!({ "type": "tool_use", "id": id, "name": name, "input": {} }), deltas)
            }
            Wire::Completions | Wire::Chunks => {
                let function = json!({ "name": name, "arguments": "" });
                let start = json!({ "index": index, "id": id, "type": "function", "function": function });
                let more = pieces.map(|piece| json!({ "index": index, "function": { "arguments": piece } }));
                let deltas = std::iter::once(start).chain(more);
                self.deltas(deltas.map(|call| json!({ "tool_calls": [call] })))
            }
            Wire::Responses | Wire::Subscription => {
                let pieces: Vec<&str> = pieces.collect();
                let mut item = json!({ "type": "function_call", "name": name, "arguments": pieces.concat() });
                match id.split_once('|') {
                    Some((call_id, id)) => (item["call_id"], item["id"]) = (json!(call_id), json!(id)),
                    None => item["call_id"] = json!(id),
                }
                self.item(&item, "arguments", "response.function_call_arguments.delta", pieces)
            }
            Wire::Gateway => {
                let pieces: Vec<&str> = pieces.collect();
                let arguments = pieces.concat();
                let arguments = serde_json::from_str(&arguments).unwrap_or(Value::from(arguments));
                let call = json!({ "type": "toolCall", "id": id, "name": name, "arguments": arguments });
                let start = json!({ "id": id, "toolName": name });
                self.said("toolcall", &start, pieces, &json!({ "toolCall": call }))
            }
            // Its calls come whole.
            Wire::Contents | Wire::Envelope => {
                let text: String = pieces.collect();
                let args = serde_json::from_str(&text).unwrap_or(Value::from(text));
                self.parts([json!({ "functionCall": { "id": id, "name": name, "args": args } })])
            }
            Wire::Converse => {
                let start = json!({ "toolUse": { "toolUseId": id, "name": name } });
                self.pieces(Some(start), pieces.map(|piece| json!({ "toolUse": { "input": piece } })))
            }
        }
    }

    /// A search of the provider for `query`, and the pages that it found. Wires without one send nothing.
    #[must_use]
    pub fn web_search(self, query: &str, pages: &[&str]) -> Self {
        let number = self.blocks;
        match self.wire {
            Wire::Messages => {
                let id = format!("srvtoolu_{number}");
                let used = json!({ "type": "server_tool_use", "id": id, "name": "web_search", "input": {} });
                let input = json!({ "query": query }).to_string();
                let pieces =
                    halves(&input).map(|piece| json!({ "type": "input_json_delta", "partial_json": piece }));
                let found = |page: &&str| json!({ "type": "web_search_result", "url": page, "title": "A page", "encrypted_content": "c2VhbGVk" });
                let content: Vec<Value> = pages.iter().map(found).collect();
                let result =
                    json!({ "type": "web_search_tool_result", "tool_use_id": id, "content": content });
                self.block(&used, pieces).block(&result, [])
            }
            Wire::Responses | Wire::Subscription => {
                let action = json!({ "type": "search", "query": query });
                let item = json!({ "id": format!("ws_{number}"), "type": "web_search_call", "status": "completed", "action": action });
                let searching =
                    json!({ "type": "response.web_search_call.searching", "output_index": number });
                let added = json!({ "id": item["id"], "type": "web_search_call", "status": "in_progress" });
                let (added, done) = (
                    json!({ "type": "response.output_item.added", "output_index": number, "item": added }),
                    json!({ "type": "response.output_item.done", "output_index": number, "item": item }),
                );
                Self { blocks: number + 1, ..self.event(added).event(searching).event(done) }
            }
            Wire::Contents | Wire::Envelope => {
                let (id, kind) = (format!("search_{number}"), "GOOGLE_SEARCH_WEB");
                let call = json!({ "toolType": kind, "id": id, "args": { "queries": [query] } });
                let back = json!({ "toolType": kind, "id": id, "response": { "search_suggestions": "" } });
                let answer = self.parts([
                    json!({ "toolCall": call, "thoughtSignature": "c2VhcmNo" }),
                    json!({ "toolResponse": back, "thoughtSignature": "Zm91bmRz" }),
                ]);
                let mut last = candidate(&[], None);
                let chunks: Vec<Value> = pages.iter().map(|page| json!({ "web": { "uri": page } })).collect();
                last["candidates"][0]["groundingMetadata"] =
                    json!({ "webSearchQueries": [query], "groundingChunks": chunks });
                let blocks = answer.blocks + 2;
                Self { blocks, ..answer.event(last) }
            }
            Wire::Completions | Wire::Chunks | Wire::Converse | Wire::Gateway => self,
        }
    }

    /// An event as it is.
    #[must_use]
    pub fn event(mut self, event: Value) -> Self {
        self.events.push(event);
        self
    }

    /// Tokens: uncached input, output, read from and written to the cache.
    #[must_use]
    pub fn usage(mut self, input: u64, output: u64, cache_read: u64, cache_write: u64) -> Self {
        self.usage = [input, output, cache_read, cache_write];
        self
    }

    /// The stop reason, in the words of the wire; without this the usual one.
    #[must_use]
    pub fn stop(mut self, reason: &str) -> Self {
        self.stop = Some(reason.to_owned());
        self
    }

    /// The stream without its end: what was built so far and no stop reason.
    pub fn unfinished(&self) -> String {
        let start = match self.wire {
            Wire::Messages => {
                let [input, _, read, written] = self.usage;
                let usage = json!({
                    "input_tokens": input, "cache_creation_input_tokens": written, "cache_read_input_tokens": read,
                });
                let message = json!({
                    "id": "msg_test", "type": "message", "role": "assistant", "model": "test-model",
                    "content": [], "stop_reason": null, "stop_sequence": null, "usage": usage,
                });
                json!({ "type": "message_start", "message": message })
            }
            Wire::Completions | Wire::Chunks => chunk(&json!({ "role": "assistant", "content": "" }), None),
            Wire::Responses | Wire::Subscription => {
                let response = json!({
                    "id": "msg_test", "object": "response", "status": "in_progress", "model": "test-model",
                    "output": [], "usage": null,
                });
                json!({ "type": "response.created", "response": response })
            }
            Wire::Contents | Wire::Envelope => candidate(&[], None),
            Wire::Converse => json!({ "messageStart": { "role": "assistant" } }),
            Wire::Gateway => json!({ "type": "start" }),
        };
        std::iter::once(&start).chain(&self.events).map(|event| self.frame(event)).collect()
    }

    /// The whole stream.
    pub fn stream(&self) -> String {
        let [input, output, read, written] = self.usage;
        let mut out = self.unfinished();
        match self.wire {
            Wire::Messages => {
                let natural = if self.has_calls { "tool_use" } else { "end_turn" };
                let reason = self.stop.as_deref().unwrap_or(natural);
                out.push_str(&self.frame(&json!({
                    "type": "message_delta",
                    "delta": { "stop_reason": reason, "stop_sequence": null },
                    "usage": { "output_tokens": output },
                })));
                out.push_str(&self.frame(&json!({ "type": "message_stop" })));
            }
            Wire::Completions | Wire::Chunks => {
                let natural = if self.has_calls { "tool_calls" } else { "stop" };
                let reason = self.stop.as_deref().unwrap_or(natural);
                out.push_str(&self.frame(&chunk(&json!({}), Some(reason))));
                let mut last = chunk(&json!({}), None);
                last["choices"] = json!([]);
                last["usage"] = json!({
                    "prompt_tokens": input + read + written,
                    "completion_tokens": output,
                    "total_tokens": input + output + read + written,
                    "prompt_tokens_details": { "cached_tokens": read, "cache_write_tokens": written },
                });
                out.push_str(&self.frame(&last));
                out.push_str("data: [DONE]\n\n");
            }
            Wire::Responses | Wire::Subscription => {
                let reason = self.stop.as_deref().filter(|reason| *reason != "completed");
                let status = if reason.is_some() { "incomplete" } else { "completed" };
                let details = reason.map(|reason| json!({ "reason": reason }));
                let response = json!({
                    "id": "msg_test", "object": "response", "status": status, "model": "test-model", "output": [],
                    "error": null, "incomplete_details": details,
                    "usage": {
                        "input_tokens": input + read + written,
                        "input_tokens_details": { "cached_tokens": read, "cache_write_tokens": written },
                        "output_tokens": output,
                        "output_tokens_details": { "reasoning_tokens": 0 },
                        "total_tokens": input + output + read + written,
                    },
                });
                let end = json!({ "type": format!("response.{status}"), "response": response });
                out.push_str(&self.frame(&end));
            }
            Wire::Gateway => {
                let natural = if self.has_calls { "toolUse" } else { "stop" };
                let usage = json!({
                    "input": input, "output": output, "cacheRead": read, "cacheWrite": written,
                    "totalTokens": input + output + read + written,
                });
                out.push_str(&self.frame(&json!({
                    "type": "done", "reason": self.stop.as_deref().unwrap_or(natural), "usage": usage,
                    "responseId": "msg_test",
                })));
            }
            Wire::Contents | Wire::Envelope => {
                let mut last = candidate(&[], Some(self.stop.as_deref().unwrap_or("STOP")));
                last["usageMetadata"] = json!({
                    "promptTokenCount": input + read + written,
                    "candidatesTokenCount": output,
                    "totalTokenCount": input + output + read + written,
                    "cachedContentTokenCount": read,
                });
                out.push_str(&self.frame(&last));
            }
            Wire::Converse => {
                let natural = if self.has_calls { "tool_use" } else { "end_turn" };
                let reason = self.stop.as_deref().unwrap_or(natural);
                out.push_str(&self.frame(&json!({ "messageStop": { "stopReason": reason } })));
                let usage = json!({
                    "inputTokens": input, "outputTokens": output, "totalTokens": input + output + read + written,
                    "cacheReadInputTokens": read, "cacheWriteInputTokens": written,
                });
                out.push_str(&self.frame(&json!({ "metadata": { "usage": usage } })));
            }
        }
        out
    }

    /// The stream up to the second piece of its text, and the rest; all of it and nothing where there is none, or on a wire other than
    /// [`Wire::Messages`].
    pub fn halves(&self) -> (String, String) {
        let stream = self.stream();
        let second = stream.match_indices("event: content_block_delta").nth(1);
        let (before, after) = stream.split_at(second.map_or(stream.len(), |(at, _)| at));
        (before.to_owned(), after.to_owned())
    }

    /// The whole stream as a reply whose second half arrives when the gate opens.
    pub fn halved(&self, gate: &Gate) -> Reply {
        let (before, after) = self.halves();
        Reply::sse(before).then_gate(gate).then(after)
    }

    /// The whole stream as a reply.
    pub fn reply(&self) -> Reply {
        Reply::stream_on(self.wire, &self.stream())
    }

    fn frame(&self, event: &Value) -> String {
        match self.wire {
            Wire::Messages | Wire::Responses | Wire::Subscription => {
                format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default())
            }
            // An error stands beside the answer, not within it.
            Wire::Envelope if event.get("error").is_none() => {
                let outer = json!({ "response": event, "traceId": "trace-1" });
                format!("data: {outer}\n\n")
            }
            Wire::Completions | Wire::Contents | Wire::Chunks | Wire::Gateway | Wire::Envelope => {
                format!("data: {event}\n\n")
            }
            // An event is an object with one member: its name.
            Wire::Converse => {
                let member = event.as_object().and_then(|members| members.iter().next());
                member
                    .map(|(name, payload)| format!("event: {name}\ndata: {payload}\n\n"))
                    .unwrap_or_default()
            }
        }
    }

    fn deltas(mut self, deltas: impl IntoIterator<Item = Value>) -> Self {
        self.events.extend(deltas.into_iter().map(|delta| chunk(&delta, None)));
        self
    }

    /// An item of the output, which begins with nothing in `member`, and deltas of this type.
    fn item<'a>(
        mut self,
        item: &Value,
        member: &str,
        delta: &str,
        pieces: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let index = self.blocks;
        self.blocks += 1;
        let mut start = item.clone();
        start[member] = if item[member].is_string() { json!("") } else { json!([]) };
        let added = "response.output_item.added";
        self.events.push(json!({ "type": added, "output_index": index, "item": start }));
        for piece in pieces {
            let place = if member == "summary" { "summary_index" } else { "content_index" };
            self.events.push(json!({ "type": delta, "output_index": index, place: 0, "delta": piece }));
        }
        self.event(json!({ "type": "response.output_item.done", "output_index": index, "item": item }))
    }

    /// A block that begins with `start`, where the wire has one, and these deltas.
    fn pieces(mut self, start: Option<Value>, deltas: impl IntoIterator<Item = Value>) -> Self {
        let index = self.blocks;
        self.blocks += 1;
        let start =
            start.map(|start| json!({ "contentBlockStart": { "contentBlockIndex": index, "start": start } }));
        self.events.extend(start);
        for delta in deltas {
            self.events.push(json!({ "contentBlockDelta": { "contentBlockIndex": index, "delta": delta } }));
        }
        self.event(json!({ "contentBlockStop": { "contentBlockIndex": index } }))
    }

    /// A block of this kind, with what its first and its last event have beside their number.
    fn said<'a>(
        mut self,
        kind: &str,
        start: &Value,
        pieces: impl IntoIterator<Item = &'a str>,
        end: &Value,
    ) -> Self {
        let index = self.blocks;
        self.blocks += 1;
        let event = |what: &str, more: &Value| {
            let mut event = json!({ "type": format!("{kind}_{what}"), "contentIndex": index });
            for (name, value) in more.as_object().into_iter().flatten() {
                event[name] = value.clone();
            }
            event
        };
        self.events.push(event("start", start));
        self.events.extend(pieces.into_iter().map(|piece| event("delta", &json!({ "delta": piece }))));
        self.events.push(event("end", end));
        self
    }

    fn parts(mut self, parts: impl IntoIterator<Item = Value>) -> Self {
        self.events.extend(parts.into_iter().map(|part| candidate(&[part], None)));
        self
    }

    fn block(mut self, start: &Value, deltas: impl IntoIterator<Item = Value>) -> Self {
        let index = self.blocks;
        self.blocks += 1;
        self.events.push(json!({ "type": "content_block_start", "index": index, "content_block": start }));
        for delta in deltas {
            self.events.push(json!({ "type": "content_block_delta", "index": index, "delta": delta }));
        }
        self.event(json!({ "type": "content_block_stop", "index": index }))
    }
}

/// One event of the second wire.
fn chunk(delta: &Value, finish: Option<&str>) -> Value {
    json!({
        "id": "msg_test", "object": "chat.completion.chunk", "created": 1, "model": "test-model",
        "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }],
    })
}

/// One event of the third wire.
fn candidate(parts: &[Value], finish: Option<&str>) -> Value {
    let mut candidate = json!({ "content": { "parts": parts, "role": "model" }, "index": 0 });
    if let Some(finish) = finish {
        candidate["finishReason"] = finish.into();
    }
    json!({ "candidates": [candidate], "modelVersion": "test-model", "responseId": "msg_test" })
}

/// `text` in at most two pieces, none of them empty.
fn halves(text: &str) -> impl Iterator<Item = &str> {
    let mut middle = text.len() / 2;
    while !text.is_char_boundary(middle) {
        middle -= 1;
    }
    let (first, second) = text.split_at(middle);
    [first, second].into_iter().filter(|piece| !piece.is_empty())
}
