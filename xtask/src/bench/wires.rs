//! What a model server answers, in the wires that the measured programs speak.

use serde_json::{Value, json};
use std::time::Duration;

/// Bytes of an answer that are sent at once.
const PIECE: usize = 64 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wire {
    /// `POST /v1/messages`.
    Messages,
    /// `POST /v1/responses`.
    Responses,
    /// `POST /v1/chat/completions`.
    Completions,
    /// `POST /v1beta/models/m:streamGenerateContent`.
    Contents,
    /// `POST /model/m/converse-stream`, answered in frames of bytes.
    Converse,
    /// `POST /messages`.
    Gateway,
}

/// An API that models of the measured programs are set to, and how they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Api {
    pub(super) name: &'static str,
    pub(super) wire: Wire,
    /// What the base URL has behind the host.
    pub(super) path: &'static str,
    /// The key; where the API wants a token of an account, one that names an account.
    pub(super) key: &'static str,
}

impl Api {
    const fn new(name: &'static str, wire: Wire, path: &'static str) -> Self {
        Self { name, wire, path, key: "bench" }
    }

    /// The one of all other benchmarks.
    pub(super) const MESSAGES: Self = Self::new("anthropic-messages", Wire::Messages, "");

    /// A token without a signature whose claims name the account `bench`.
    const ACCOUNT: &'static str = "eyJhbGciOiJub25lIn0.eyJodHRwczovL2FwaS5vcGVuYWkuY29tL2F1dGgiOnsiY2hhdGdwdF9hY2NvdW50X2lkIjoiYmVuY2gifX0.bench";

    /// All others that have a form of their own: `azure-openai-responses` and `google-vertex` are those of two of them.
    pub(super) const OTHERS: &'static [Self] = &[
        Self::new("openai-completions", Wire::Completions, "/v1"),
        Self::new("openai-responses", Wire::Responses, "/v1"),
        Self { key: Self::ACCOUNT, ..Self::new("openai-codex-responses", Wire::Responses, "") },
        Self::new("google-generative-ai", Wire::Contents, "/v1beta"),
        Self::new("mistral-conversations", Wire::Completions, ""),
        Self::new("bedrock-converse-stream", Wire::Converse, ""),
        Self::new("pi-messages", Wire::Gateway, ""),
    ];
}

/// A whole HTTP answer, made before the clock runs: pieces that are written one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) pieces: Vec<Vec<u8>>,
    /// From one piece to the next; nothing waits without.
    pub(super) every: Option<Duration>,
}

impl Wire {
    /// An answer of one text, in so many deltas.
    pub(super) fn text(self, deltas: &[String]) -> Reply {
        let whole: String = deltas.concat();
        let events = match self {
            Self::Messages => {
                let delta = |text: &String| json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": text } });
                messages(&json!({ "type": "text", "text": "" }), deltas.iter().map(delta), "end_turn")
            }
            Self::Responses => {
                let item = |status: &str, content: Value| json!({ "type": "message", "id": "msg_1", "role": "assistant", "status": status, "content": content });
                let part = |text: &str| json!({ "type": "output_text", "text": text, "annotations": [] });
                let delta = |text: &String| json!({ "type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0, "content_index": 0, "delta": text });
                let mut body = vec![json!({
                    "type": "response.content_part.added", "item_id": "msg_1", "output_index": 0, "content_index": 0, "part": part("")
                })];
                body.extend(deltas.iter().map(delta));
                body.push(json!({
                    "type": "response.output_text.done", "item_id": "msg_1", "output_index": 0, "content_index": 0, "text": whole
                }));
                responses(&item("in_progress", json!([])), body, &item("completed", json!([part(&whole)])))
            }
            Self::Completions => {
                completions(deltas.iter().map(|text| json!({ "role": "assistant", "content": text })), "stop")
            }
            Self::Contents => {
                let mut chunks: Vec<_> =
                    deltas.iter().map(|text| contents(&json!({ "text": text }))).collect();
                end_contents(&mut chunks);
                chunks
            }
            Self::Converse => converse(None, deltas.iter().map(|text| json!({ "text": text })), "end_turn"),
            Self::Gateway => {
                let end = json!({ "type": "text_end", "contentIndex": 0, "content": whole });
                gateway(("text", &json!({})), deltas.iter().map(String::as_str), end, "stop")
            }
        };
        self.reply(&events)
    }

    /// A call of one tool; `arguments` is the JSON of an object.
    pub(super) fn call(self, id: &str, tool: &str, arguments: &str) -> Reply {
        let events = match self {
            Self::Messages => {
                let block = json!({ "type": "tool_use", "id": id, "name": tool, "input": {} });
                let delta = json!({ "type": "input_json_delta", "partial_json": arguments });
                let delta = json!({ "type": "content_block_delta", "index": 0, "delta": delta });
                messages(&block, [delta], "tool_use")
            }
            Self::Responses => {
                let item = |status: &str, arguments: &str| json!({ "type": "function_call", "id": format!("fc_{id}"), "call_id": id, "name": tool, "arguments": arguments, "status": status });
                let item_id = format!("fc_{id}");
                let delta = json!({ "type": "response.function_call_arguments.delta", "item_id": item_id, "output_index": 0, "delta": arguments });
                let done = json!({ "type": "response.function_call_arguments.done", "item_id": item_id, "output_index": 0, "arguments": arguments });
                responses(&item("in_progress", ""), [delta, done], &item("completed", arguments))
            }
            Self::Completions => {
                let function = json!({ "name": tool, "arguments": arguments });
                let call = json!({ "index": 0, "id": id, "type": "function", "function": function });
                completions([json!({ "role": "assistant", "tool_calls": [call] })], "tool_calls")
            }
            Self::Contents => {
                let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
                let mut chunks =
                    vec![contents(&json!({ "functionCall": { "id": id, "name": tool, "args": arguments } }))];
                end_contents(&mut chunks);
                chunks
            }
            Self::Converse => {
                let start = json!({ "toolUse": { "toolUseId": id, "name": tool } });
                converse(Some(start), [json!({ "toolUse": { "input": arguments } })], "tool_use")
            }
            Self::Gateway => {
                let parsed: Value = serde_json::from_str(arguments).unwrap_or_default();
                let call = json!({ "type": "toolCall", "id": id, "name": tool, "arguments": parsed });
                let end = json!({ "type": "toolcall_end", "contentIndex": 0, "toolCall": call });
                gateway(("toolcall", &json!({ "id": id, "toolName": tool })), [arguments], end, "toolUse")
            }
        };
        self.reply(&events)
    }

    fn reply(self, events: &[Value]) -> Reply {
        match self {
            Self::Converse => {
                let named = events.iter().filter_map(|event| event.as_object()?.iter().next());
                let frames = named.flat_map(|(name, payload)| frame(name, payload.to_string().as_bytes()));
                Reply::of("application/vnd.amazon.eventstream", &frames.collect::<Vec<_>>())
            }
            Self::Messages | Self::Responses | Self::Completions | Self::Contents | Self::Gateway => {
                Reply::of("text/event-stream", &lines(events))
            }
        }
    }
}

/// The events as lines of text.
fn lines(events: &[Value]) -> Vec<u8> {
    let mut body = Vec::new();
    for event in events {
        if let Some(name) = event["type"].as_str() {
            body.extend_from_slice(format!("event: {name}\n").as_bytes());
        }
        body.extend_from_slice(format!("data: {event}\n\n").as_bytes());
    }
    if events.last().is_some_and(|last| last["object"] == "chat.completion.chunk") {
        body.extend_from_slice(b"data: [DONE]\n\n");
    }
    body
}

/// An event of this name as a frame: a prelude with its checksum, headers, the payload, a checksum.
fn frame(name: &str, payload: &[u8]) -> Vec<u8> {
    let mut head = Vec::new();
    for (header, value) in
        [(":event-type", name), (":content-type", "application/json"), (":message-type", "event")]
    {
        head.push(u8::try_from(header.len()).unwrap_or(u8::MAX));
        head.extend(header.as_bytes());
        // A string.
        head.push(7);
        head.extend(u16::try_from(value.len()).unwrap_or(u16::MAX).to_be_bytes());
        head.extend(value.as_bytes());
    }
    let length = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX).to_be_bytes();
    let mut frame = [length(16 + head.len() + payload.len()), length(head.len())].concat();
    frame.extend(crc32fast::hash(&frame).to_be_bytes());
    frame.extend(head);
    frame.extend(payload);
    frame.extend(crc32fast::hash(&frame).to_be_bytes());
    frame
}

/// Each event is an object with one member, its name.
fn converse(start: Option<Value>, deltas: impl IntoIterator<Item = Value>, stop: &str) -> Vec<Value> {
    let mut events = vec![json!({ "messageStart": { "role": "assistant" } })];
    events.extend(
        start.map(|start| json!({ "contentBlockStart": { "contentBlockIndex": 0, "start": start } })),
    );
    let delta = |delta: Value| json!({ "contentBlockDelta": { "contentBlockIndex": 0, "delta": delta } });
    events.extend(deltas.into_iter().map(delta));
    events.push(json!({ "contentBlockStop": { "contentBlockIndex": 0 } }));
    events.push(json!({ "messageStop": { "stopReason": stop } }));
    let usage = json!({ "inputTokens": 10, "outputTokens": 5, "totalTokens": 15 });
    events.push(json!({ "metadata": { "usage": usage } }));
    events
}

/// One block of this kind, with what its first event has beside its number.
fn gateway<'a>(
    (kind, start): (&str, &Value),
    deltas: impl IntoIterator<Item = &'a str>,
    end: Value,
    reason: &str,
) -> Vec<Value> {
    let mut first = start.clone();
    first["type"] = format!("{kind}_start").into();
    first["contentIndex"] = 0.into();
    let mut events = vec![json!({ "type": "start" }), first];
    let kind = format!("{kind}_delta");
    events.extend(deltas.into_iter().map(|delta| json!({ "type": kind, "contentIndex": 0, "delta": delta })));
    events.push(end);
    let usage = json!({ "input": 10, "output": 5, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 15 });
    events.push(json!({ "type": "done", "reason": reason, "usage": usage, "responseId": "r_1" }));
    events
}

fn messages(block: &Value, deltas: impl IntoIterator<Item = Value>, stop: &str) -> Vec<Value> {
    let message = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [],
        "stop_reason": null, "stop_sequence": null, "usage": { "input_tokens": 10, "output_tokens": 1 }
    });
    let mut events = vec![
        json!({ "type": "message_start", "message": message }),
        json!({ "type": "content_block_start", "index": 0, "content_block": block }),
    ];
    events.extend(deltas);
    events.push(json!({ "type": "content_block_stop", "index": 0 }));
    let delta = json!({ "stop_reason": stop, "stop_sequence": null });
    events.push(json!({ "type": "message_delta", "delta": delta, "usage": { "output_tokens": 5 } }));
    events.push(json!({ "type": "message_stop" }));
    events
}

fn completions(deltas: impl IntoIterator<Item = Value>, stop: &str) -> Vec<Value> {
    let chunk = |delta: Value, stop: Value| {
        let choices = json!([{ "index": 0, "delta": delta, "finish_reason": stop }]);
        json!({ "id": "c_1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices })
    };
    let mut chunks: Vec<_> = deltas.into_iter().map(|delta| chunk(delta, Value::Null)).collect();
    chunks.push(chunk(json!({}), stop.into()));
    let usage = json!({ "prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15 });
    chunks.push(json!({
        "id": "c_1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [], "usage": usage
    }));
    chunks
}

fn contents(part: &Value) -> Value {
    let content = json!({ "role": "model", "parts": [part] });
    json!({ "candidates": [{ "index": 0, "content": content }], "modelVersion": "m", "responseId": "r_1" })
}

/// The last one says that it is.
fn end_contents(chunks: &mut [Value]) {
    if let Some(last) = chunks.last_mut() {
        last["candidates"][0]["finishReason"] = "STOP".into();
        last["usageMetadata"] =
            json!({ "promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15 });
    }
}

fn responses(begun: &Value, between: impl IntoIterator<Item = Value>, done: &Value) -> Vec<Value> {
    let response = |status: &str, output: Value, usage: Value| json!({ "id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": status, "output": output, "usage": usage });
    let usage = json!({
        "input_tokens": 10, "input_tokens_details": { "cached_tokens": 0 },
        "output_tokens": 5, "output_tokens_details": { "reasoning_tokens": 0 }, "total_tokens": 15
    });
    let mut events = vec![
        json!({ "type": "response.created", "response": response("in_progress", json!([]), Value::Null) }),
        json!({ "type": "response.output_item.added", "output_index": 0, "item": begun }),
    ];
    events.extend(between);
    events.push(json!({ "type": "response.output_item.done", "output_index": 0, "item": done }));
    events.push(
        json!({ "type": "response.completed", "response": response("completed", json!([done]), usage) }),
    );
    events
}

impl Reply {
    fn of(media_type: &str, body: &[u8]) -> Self {
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {media_type}\r\nconnection: keep-alive\r\n\
             transfer-encoding: chunked\r\n\r\n"
        );
        let mut pieces: Vec<Vec<u8>> = body
            .chunks(PIECE)
            .map(|piece| [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat())
            .collect();
        // The first piece with the head and the last with the end, so that a short answer is one write.
        if let Some(first) = pieces.first_mut() {
            first.splice(..0, head.bytes());
        }
        if let Some(last) = pieces.last_mut() {
            last.extend_from_slice(b"0\r\n\r\n");
        }
        Self { pieces, every: None }
    }

    /// The same answer, each of its events sent by itself and so long after the one before.
    pub(super) fn paced(self, every: Duration) -> Self {
        let mut pieces = Vec::new();
        let whole = self.pieces.concat();
        // Chunks are taken apart and made anew.
        let (head, mut rest) = split(&whole, b"\r\n\r\n");
        let mut body = Vec::new();
        while !rest.is_empty() {
            let (length, after) = split(rest, b"\r\n");
            let length = length.strip_suffix(b"\r\n").unwrap_or(length);
            let length =
                std::str::from_utf8(length).ok().and_then(|digits| usize::from_str_radix(digits, 16).ok());
            let length = length.unwrap_or(0).min(after.len());
            body.extend_from_slice(&after[..length]);
            rest = after.get(length + 2..).unwrap_or_default();
        }
        pieces.push(head.to_vec());
        let mut rest = &body[..];
        while !rest.is_empty() {
            let (event, after) = split(rest, b"\n\n");
            pieces.push([format!("{:x}\r\n", event.len()).as_bytes(), event, b"\r\n"].concat());
            rest = after;
        }
        if let Some(last) = pieces.last_mut() {
            last.extend_from_slice(b"0\r\n\r\n");
        }
        Self { pieces, every: Some(every) }
    }

    /// What the server says beyond its script: the program asked more often than it should.
    pub(super) fn refusal(status: &str) -> Self {
        let head = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
        Self { pieces: vec![head.into_bytes()], every: None }
    }
}

/// What there is up to the end of a mark, and what comes after it.
fn split<'bytes>(bytes: &'bytes [u8], mark: &[u8]) -> (&'bytes [u8], &'bytes [u8]) {
    let end =
        bytes.windows(mark.len()).position(|window| window == mark).map_or(bytes.len(), |at| at + mark.len());
    bytes.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of the events, with the body put together again.
    fn events(reply: &Reply) -> Vec<String> {
        let text = String::from_utf8_lossy(&reply.pieces.concat()).into_owned();
        text.lines().filter_map(|line| line.strip_prefix("event: ")).map(str::to_owned).collect()
    }

    #[test]
    fn answers_begin_and_end_as_their_wire_wants() {
        let texts = ["a".to_owned(), "b".to_owned()];
        let cases = [
            (Wire::Messages.text(&texts), "message_start", 7, "message_stop"),
            (Wire::Messages.call("c", "read", "{}"), "message_start", 6, "message_stop"),
            (Wire::Responses.text(&texts), "response.created", 8, "response.completed"),
            (Wire::Responses.call("c", "exec", "{}"), "response.created", 6, "response.completed"),
            (Wire::Gateway.text(&texts), "start", 6, "done"),
            (Wire::Gateway.call("c", "read", "{}"), "start", 5, "done"),
        ];
        for (reply, first, count, last) in cases {
            let events = events(&reply);
            assert_eq!((events.len(), events[0].as_str(), events[count - 1].as_str()), (count, first, last));
        }
    }

    /// The vector of the standard for this checksum, and the lengths of the form.
    #[test]
    fn frames_have_their_lengths_and_checksums() {
        assert_eq!(crc32fast::hash(b"123456789"), 0xcbf4_3926);
        let frame = frame("messageStop", b"{}");
        let number = |at: usize| u32::from_be_bytes(frame[at..at + 4].try_into().unwrap_or_default());
        let (whole, head) = (frame.len(), frame.len() - 18);
        assert_eq!((number(0) as usize, number(4) as usize), (whole, head));
        assert_eq!(number(8), crc32fast::hash(&frame[..8]));
        assert_eq!(number(whole - 4), crc32fast::hash(&frame[..whole - 4]));
        let reply = Wire::Converse.call("c", "read", "{}").pieces.concat();
        let reply = String::from_utf8_lossy(&reply);
        let names = ["messageStart", "contentBlockStart", "contentBlockDelta", "messageStop", "metadata"];
        assert!(names.iter().all(|name| reply.contains(name)), "{reply}");
    }

    #[test]
    fn a_paced_answer_has_an_event_in_each_piece() {
        let whole = Wire::Messages.text(&["a".to_owned(), "b".to_owned()]);
        let paced = whole.clone().paced(Duration::from_micros(500));
        assert_eq!(events(&paced), events(&whole));
        assert_eq!(paced.pieces.len(), 1 + events(&whole).len());
        assert!(paced.pieces.last().is_some_and(|last| last.ends_with(b"\n\n\r\n0\r\n\r\n")));
    }

    #[test]
    fn a_long_answer_is_cut_into_whole_pieces() {
        let deltas: Vec<String> = (0..2_000).map(|index| format!("word{index} ")).collect();
        let reply = Wire::Messages.text(&deltas);
        assert!(reply.pieces.len() > 2 && reply.pieces.iter().all(|piece| piece.len() < PIECE + 256));
        assert!(reply.pieces.last().is_some_and(|last| last.ends_with(b"\r\n0\r\n\r\n")));
    }
}
