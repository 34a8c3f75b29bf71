//! Any bytes: from a server, and conversations. See `docs/development.md`.

use std::sync::Arc;

use quipu_protocol::{
    AssistantMessage, Content, Json, Message, Model, ModelErrorKind, ModelRequest, Prices, Thinking, ToolSpec,
};
use quipu_providers::sse::{SseDecoder, SseEvent};
use quipu_providers::{CallEnd, CallEvent, CallOptions, laws, tool_arguments};
use serde::Deserialize;
use serde_json::Value;

use crate::wires::{self, Wire};
use crate::{
    code_assist, driver, encode, encode_codex, encode_completions, encode_contents, encode_converse,
    encode_mistral, encode_pi_messages, encode_responses,
};

const RECORDINGS: [&str; 8] = [
    "recordings",
    "recordings/completions",
    "recordings/responses",
    "recordings/contents",
    "recordings/subscription",
    "recordings/chunks",
    "recordings/converse",
    "recordings/gateway",
];

/// What all streams and conversations are made of.
const JSON: &str = r#"{ } [ ] , : " \ \" \\ \n \u0000 \ud800 \udc00 \ud83d\ude00 \ud83d null true false 0 -1 1 2 1.5 1e999
    18446744073709551615 9007199254740993 "" " " [] {} [[[[ {"a": ü 😀 "type": "index": "id": "text": "name": "input":
    "content": "usage":"#;
const STREAM: &str = r#""server_tool_use" "web_search" "web_search_tool_result" "citations_delta" "citation":{ "tool_use_id":
    "web_search_call" "action":{ "query": "annotations":[ "toolCall":{ "toolResponse":{ "toolType": "GOOGLE_SEARCH_WEB"
    "groundingMetadata":{ "webSearchQueries":[ "pause_turn" "server_tool_use":{ "web_search_requests": data: event: : data:[DONE] "message_start" "message_delta" "message_stop" "content_block_start"
    "content_block_delta" "content_block_stop" "text_delta" "input_json_delta" "thinking_delta" "signature_delta" "tool_use"
    "thinking" "redacted_thinking" "error" "ping" "choices":[{ "delta":{ "tool_calls":[{ "function":{ "arguments":
    "finish_reason": "stop" "length" "tool_calls" "refusal": "reasoning_content": "reasoning_details": "partial_json":
    "candidates":[{ "content":{"parts":[ "functionCall":{ "args": "thought":true, "thoughtSignature": "finishReason": "STOP"
    "promptFeedback": "blockReason": "usageMetadata":{ "promptTokenCount": "input_tokens": "output_tokens": "cache_read_input_tokens": "prompt_tokens": "completion_tokens":
    "response.created" "response.output_item.added" "response.output_item.done" "response.output_text.delta"
    "response.reasoning_summary_text.delta" "response.reasoning_text.delta" "response.function_call_arguments.delta"
    "response.function_call_arguments.done" "response.custom_tool_call_input.delta" "response.custom_tool_call_input.done"
    "response.completed" "response.incomplete" "response.failed" "response":{ "output":[{ "item":{ "output_index":
    "summary_index": "content_index": "call_id": "custom_tool_call" "function_call" "reasoning" "message" "compaction"
    "start" "text_start" "text_end" "thinking_start" "thinking_end" "toolcall_start" "toolcall_delta" "toolcall_end" "done"
    "contentIndex": "contentSignature": "redacted":true "toolName": "toolCall":{ "reason": "errorMessage": "responseId":
    "codex.rate_limits" "service_tier": "type":"thinking" "thinking":[{ "num_cached_tokens": "null" "model_length"
    "encrypted_content": "summary":[{ "incomplete_details":{"reason": "max_output_tokens" "phase": "delta": "status":
    event:messageStart event:contentBlockStart event:contentBlockDelta event:contentBlockStop event:messageStop event:metadata
    exception:throttlingException "contentBlockIndex": "role": "start":{ "toolUse":{ "toolUseId": "reasoningContent":{
    "redactedContent": "signature": "stopReason": "end_turn" "usage":{ "inputTokens": "outputTokens": "cacheReadInputTokens":"#;
const REQUEST: &str = r#""type":"serverTool" "tool":"web_search" "queries":[ "sources":[ "data":"{\\"type\\":" "apply_patch" "role": "user" "assistant" "toolResult" "bashExecution" "custom" "branchSummary" "toolCall" "image"
    "toolCallId": "arguments": "thinking": "thinkingSignature": "redacted":true "stopReason": "error" "aborted" "toolUse"
    "excludeFromContext":true "mimeType":"image/png" "data":"aGk=" "compat": "thinkingLevelMap": "model": "maxTokens":
    "contextWindow": "reasoning":true "totalTokens": "provider":"testing" "api": "input":["text"]"#;

fn words(of: &[&str]) -> Vec<String> {
    let all = of.iter().flat_map(|words| words.split_whitespace()).map(String::from);
    all.chain(["\n", "\r", "\r\n", "\n\n", "\u{feff}", " "].map(String::from)).collect()
}

/// The length of the pieces that an input is split into besides single bytes.
fn stride(bytes: &[u8]) -> usize {
    bytes.iter().fold(bytes.len(), |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into())) % 13 + 2
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, left: &T, right: &T) -> Result<(), String> {
    if left == right { Ok(()) } else { Err(format!("{what}: {left:?} is not {right:?}")) }
}

/// Events as the standard's own steps give them: lines first, then fields. The last one needs no empty line.
fn by_the_book(bytes: &[u8]) -> Vec<SseEvent> {
    let (mut lines, mut line, mut rest) = (Vec::new(), Vec::new(), bytes.iter().peekable());
    while let Some(&byte) = rest.next() {
        match byte {
            b'\r' | b'\n' => {
                rest.next_if(|next| byte == b'\r' && **next == b'\n');
                lines.push(std::mem::take(&mut line));
            }
            _ => line.push(byte),
        }
    }
    lines.extend([line, Vec::new()]);
    if let Some(first) = lines[0].strip_prefix("\u{feff}".as_bytes()) {
        lines[0] = first.to_vec();
    }
    let (mut out, mut event, mut data) = (Vec::new(), Vec::new(), None::<Vec<Vec<u8>>>);
    for line in lines {
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let name = parts.next().unwrap();
        let value = parts.next().unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value).to_vec();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match name {
            b"" if line.is_empty() => {
                let event = std::mem::take(&mut event);
                if let Some(data) = data.take() {
                    out.push(SseEvent { event: text(&event), data: text(&data.join(&b'\n')) });
                }
            }
            b"event" => event = value,
            b"data" => data.get_or_insert_default().push(value),
            _ => {}
        }
    }
    out
}

#[test]
fn fuzz_sse() {
    let decode = |size: usize, bytes: &[u8]| {
        let (mut decoder, mut out) = (SseDecoder::default(), Vec::new());
        for piece in bytes.chunks(size) {
            decoder.push(piece, &mut out).unwrap();
        }
        decoder.finish(&mut out);
        out
    };
    let folders = ["it/__fuzz__/sse/corpus", RECORDINGS[0], RECORDINGS[1], RECORDINGS[2]];
    driver::run(bolero::check!(name = "sse"), "fuzz_sse", &folders, &words(&[STREAM]), |bytes| {
        let expect = by_the_book(bytes);
        for size in [1, stride(bytes), usize::MAX] {
            same(&format!("in pieces of {size}"), &decode(size, bytes), &expect)?;
        }
        Ok(())
    });
}

fn standard(wire: Wire) -> Model {
    match wire {
        Wire::Messages => encode::model(),
        Wire::Completions => encode_completions::model(),
        Wire::Responses => encode_responses::model(),
        Wire::Contents => encode_contents::model(),
        Wire::Subscription => encode_codex::model(),
        Wire::Chunks => encode_mistral::model(),
        Wire::Converse => encode_converse::model(),
        Wire::Gateway => encode_pi_messages::model(),
        Wire::Envelope => code_assist::model(),
    }
}

fn decode(wire: Wire, size: usize, bytes: &[u8]) -> (Vec<CallEvent>, CallEnd) {
    let cost = Prices { input: 3.0, output: 15.0, cache_read: 0.3, cache_write: 3.75, ..Prices::default() };
    let mut decoder = wires::decoder(wire, Arc::new(Model { cost, ..standard(wire) }), 7);
    let mut events = Vec::new();
    let pushed = bytes.chunks(size).try_for_each(|piece| decoder.push(piece, &mut events));
    let error = pushed.and_then(|()| decoder.end(&mut events)).err();
    let (message, unknown, error) = decoder.finish(error.as_ref());
    (events, CallEnd { message, error, attempts: Vec::new(), charges: Vec::new(), unknown })
}

fn stream_law(wire: Wire, bytes: &[u8]) -> Result<(), String> {
    let (events, end) = decode(wire, usize::MAX, bytes);
    laws::check(&events, &end).map_err(|broken| broken.to_string())?;
    for size in [1, stride(bytes)] {
        same(&format!("in pieces of {size}"), &decode(wire, size, bytes), &(events.clone(), end.clone()))?;
    }
    // What is kept of it can be read again and sent on.
    let message = Message::Assistant(end.message);
    let stored = serde_json::to_string(&message).map_err(|error| error.to_string())?;
    let read: Message = serde_json::from_str(&stored).map_err(|error| format!("{stored}: {error}"))?;
    same("stored and read", &read, &message)?;
    let conversation = vec![encode::user(vec![Content::text("Go")]), message];
    wires::WIRES.into_iter().try_for_each(|next| taken(next, &conversation))
}

#[test]
fn fuzz_messages_stream() {
    let folders = ["it/__fuzz__/messages_stream/corpus", RECORDINGS[0]];
    let law = |bytes: &[u8]| stream_law(Wire::Messages, bytes);
    driver::run(
        bolero::check!(name = "messages_stream"),
        "fuzz_messages_stream",
        &folders,
        &words(&[JSON, STREAM]),
        law,
    );
}

#[test]
fn fuzz_completions_stream() {
    let folders = ["it/__fuzz__/completions_stream/corpus", RECORDINGS[1]];
    let law = |bytes: &[u8]| stream_law(Wire::Completions, bytes);
    driver::run(
        bolero::check!(name = "completions_stream"),
        "fuzz_completions_stream",
        &folders,
        &words(&[JSON, STREAM]),
        law,
    );
}

#[test]
fn fuzz_responses_stream() {
    let folders = ["it/__fuzz__/responses_stream/corpus", RECORDINGS[2]];
    let law = |bytes: &[u8]| stream_law(Wire::Responses, bytes);
    driver::run(
        bolero::check!(name = "responses_stream"),
        "fuzz_responses_stream",
        &folders,
        &words(&[JSON, STREAM]),
        law,
    );
}

#[test]
fn fuzz_google_stream() {
    let law = |bytes: &[u8]| stream_law(Wire::Contents, bytes);
    driver::run(
        bolero::check!(name = "google_stream"),
        "fuzz_google_stream",
        &["it/__fuzz__/google_stream/corpus", RECORDINGS[3]],
        &words(&[JSON, STREAM]),
        law,
    );
}

/// Any bytes, and any events in frames that are whole.
#[test]
fn fuzz_converse_stream() {
    let law = |bytes: &[u8]| {
        stream_law(Wire::Converse, bytes)?;
        stream_law(Wire::Converse, &Wire::Converse.bytes(&String::from_utf8_lossy(bytes)))
    };
    driver::run(
        bolero::check!(name = "converse_stream"),
        "fuzz_converse_stream",
        &["it/__fuzz__/converse_stream/corpus", RECORDINGS[6]],
        &words(&[JSON, STREAM]),
        law,
    );
}

#[test]
fn fuzz_subscription_stream() {
    let law = |bytes: &[u8]| stream_law(Wire::Subscription, bytes);
    driver::run(
        bolero::check!(name = "responses_stream"),
        "fuzz_subscription_stream",
        &["it/__fuzz__/responses_stream/corpus", RECORDINGS[4]],
        &words(&[JSON, STREAM]),
        law,
    );
}

#[test]
fn fuzz_chunks_stream() {
    let law = |bytes: &[u8]| stream_law(Wire::Chunks, bytes);
    driver::run(
        bolero::check!(name = "completions_stream"),
        "fuzz_chunks_stream",
        &["it/__fuzz__/completions_stream/corpus", RECORDINGS[5]],
        &words(&[JSON, STREAM]),
        law,
    );
}

#[test]
fn fuzz_gateway_stream() {
    let law = |bytes: &[u8]| stream_law(Wire::Gateway, bytes);
    driver::run(
        bolero::check!(name = "gateway_stream"),
        "fuzz_gateway_stream",
        &["it/__fuzz__/gateway_stream/corpus", RECORDINGS[7]],
        &words(&[JSON, STREAM]),
        law,
    );
}

/// Any bytes, and recorded events within others.
#[test]
fn fuzz_envelope_stream() {
    let law = |bytes: &[u8]| {
        stream_law(Wire::Envelope, bytes)?;
        stream_law(Wire::Envelope, code_assist::around(&String::from_utf8_lossy(bytes)).as_bytes())
    };
    driver::run(
        bolero::check!(name = "google_stream"),
        "fuzz_envelope_stream",
        &["it/__fuzz__/google_stream/corpus", RECORDINGS[3]],
        &words(&[JSON, STREAM]),
        law,
    );
}

/// The body of a request, when the wire can say it: the same each time.
fn body(request: &ModelRequest) -> Result<Option<Value>, String> {
    let model = &request.model;
    let Ok(provider) =
        wires::provider(model, quipu_providers::Credentials::none(), &[], CallOptions::default())
    else {
        return Ok(None);
    };
    let first = provider.encode(request);
    same("encoded twice", &provider.encode(request), &first)?;
    match first {
        Ok(bytes) => match serde_json::from_slice(&bytes) {
            Ok(body) => Ok(Some(body)),
            Err(error) => Err(format!("{error} in {}", bytes.escape_ascii())),
        },
        Err(error) if error.kind == ModelErrorKind::InvalidRequest => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// A server takes this conversation, whatever is in it.
fn taken(wire: Wire, messages: &[Message]) -> Result<(), String> {
    let Some(body) = body(&encode::request(standard(wire), messages.to_vec()))? else { return Ok(()) };
    let checked = match wire {
        Wire::Messages => encode::acceptable(&body),
        Wire::Completions => encode_completions::acceptable(&body),
        Wire::Responses => encode_responses::acceptable(&body),
        Wire::Contents => encode_contents::acceptable(&body),
        Wire::Subscription => encode_codex::acceptable(&body),
        Wire::Chunks => encode_mistral::acceptable(&body),
        Wire::Converse => encode_converse::acceptable(&body),
        Wire::Gateway => encode_pi_messages::acceptable(&body),
        Wire::Envelope => code_assist::acceptable(&body),
    };
    checked.map_err(|why| format!("{why}: {body}"))
}

/// The first line of an input: what else a request is made of.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Setup {
    model: Model,
    system: String,
    tools: Vec<ToolSpec>,
    thinking: Thinking,
    max_tokens: Option<u64>,
    session: Option<String>,
}

fn request_law(wire: Wire, bytes: &[u8]) -> Result<(), String> {
    let text = String::from_utf8_lossy(bytes);
    let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
    let messages: Vec<Message> = rest.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    taken(wire, &messages)?;
    let Ok(setup) = serde_json::from_str::<Setup>(first) else { return Ok(()) };
    let request = ModelRequest {
        model: Arc::new(Model { api: wires::api(wire).into(), ..setup.model }),
        system: setup.system.into(),
        tools: setup.tools.into(),
        messages: Arc::new(messages.into_iter().map(Arc::new).collect()),
        thinking: setup.thinking,
        max_tokens: setup.max_tokens,
        session: setup.session,
        stable_system: None,
    };
    let Some(body) = body(&request)? else { return Ok(()) };
    let member = match wire {
        Wire::Messages | Wire::Completions | Wire::Chunks | Wire::Converse => "messages",
        Wire::Responses | Wire::Subscription => "input",
        Wire::Contents => "contents",
        Wire::Gateway => "context",
        Wire::Envelope => "request",
    };
    let list = match wire {
        Wire::Gateway => &body[member]["messages"],
        Wire::Envelope => &body[member]["contents"],
        _ => &body[member],
    };
    if list.is_array() { Ok(()) } else { Err(format!("no {member} in {body}")) }
}

#[test]
fn fuzz_messages_request() {
    let law = |bytes: &[u8]| request_law(Wire::Messages, bytes);
    driver::run(
        bolero::check!(name = "request"),
        "fuzz_messages_request",
        &["it/__fuzz__/request/corpus"],
        &words(&[JSON, REQUEST]),
        law,
    );
}

#[test]
fn fuzz_completions_request() {
    let law = |bytes: &[u8]| request_law(Wire::Completions, bytes);
    driver::run(
        bolero::check!(name = "request"),
        "fuzz_completions_request",
        &["it/__fuzz__/request/corpus"],
        &words(&[JSON, REQUEST]),
        law,
    );
}

#[test]
fn fuzz_responses_request() {
    let law = |bytes: &[u8]| request_law(Wire::Responses, bytes);
    driver::run(
        bolero::check!(name = "request"),
        "fuzz_responses_request",
        &["it/__fuzz__/request/corpus"],
        &words(&[JSON, REQUEST]),
        law,
    );
}

#[test]
fn fuzz_google_request() {
    let law = |bytes: &[u8]| request_law(Wire::Contents, bytes);
    driver::run(
        bolero::check!(name = "request"),
        "fuzz_google_request",
        &["it/__fuzz__/request/corpus"],
        &words(&[JSON, REQUEST]),
        law,
    );
}

#[test]
fn fuzz_subscription_request() {
    let law = |bytes: &[u8]| request_law(Wire::Subscription, bytes);
    driver::run(
        bolero::check!(name = "request"),
        "fuzz_subscription_request",
        &["it/__fuzz__/request/corpus"],
        &words(&[JSON, REQUEST]),
        law,
    );
}

#[test]
fn fuzz_chunks_request() {
    let law = |bytes: &[u8]| request_law(Wire::Chunks, bytes);
    driver::run(
        bolero::check!(name = "request"),
        "fuzz_chunks_request",
        &["it/__fuzz__/request/corpus"],
        &words(&[JSON, REQUEST]),
        law,
    );
}

#[test]
fn fuzz_converse_request() {
    let law = |bytes: &[u8]| request_law(Wire::Converse, bytes);
    driver::run(
        bolero::check!(name = "request"),
        "fuzz_converse_request",
        &["it/__fuzz__/request/corpus"],
        &words(&[JSON, REQUEST]),
        law,
    );
}

#[test]
fn fuzz_gateway_request() {
    let law = |bytes: &[u8]| request_law(Wire::Gateway, bytes);
    driver::run(
        bolero::check!(name = "request"),
        "fuzz_gateway_request",
        &["it/__fuzz__/request/corpus"],
        &words(&[JSON, REQUEST]),
        law,
    );
}

#[test]
fn fuzz_envelope_request() {
    let law = |bytes: &[u8]| request_law(Wire::Envelope, bytes);
    driver::run(
        bolero::check!(name = "request"),
        "fuzz_envelope_request",
        &["it/__fuzz__/request/corpus"],
        &words(&[JSON, REQUEST]),
        law,
    );
}

#[test]
fn fuzz_tool_arguments() {
    driver::run(
        bolero::check!(name = "tool_arguments"),
        "fuzz_tool_arguments",
        &["it/__fuzz__/tool_arguments/corpus"],
        &words(&[JSON]),
        |bytes| {
            let text = String::from_utf8_lossy(bytes);
            let arguments = tool_arguments(&text);
            if let Err(error) = Json::parse(arguments.get()) {
                return Err(format!("{arguments} is no JSON: {error}"));
            }
            let json = Json::parse(&text);
            let expect = match json {
                Ok(json) => json,
                Err(_) if text.trim().is_empty() => Json::object(),
                Err(_) => Json::from(Value::from(&*text)),
            };
            same("arguments", &arguments, &expect)?;
            same("once more", &tool_arguments(arguments.get()), &arguments)?;
            // Stored with its message, it comes back.
            let call = encode::call("id", "read", arguments.get());
            let Message::Assistant(answer) = encode::assistant("m", vec![call]) else { return Ok(()) };
            let stored = serde_json::to_string(&answer).map_err(|error| error.to_string())?;
            let read: AssistantMessage = serde_json::from_str(&stored).map_err(|error| error.to_string())?;
            same("stored and read", &read, &answer)
        },
    );
}
