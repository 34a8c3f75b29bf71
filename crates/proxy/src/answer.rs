//! What came back: an answer of the model, or why there is none.

use std::sync::Arc;

use http::StatusCode;
use http::header::CONTENT_TYPE;
use quipu_protocol::{AssistantMessage, CallId, Content, Model, ModelError, ModelErrorKind, StopReason};
use quipu_providers::answer_decoder;

use crate::exchange::{AnswerEnd, Exchange};
use crate::packed::unpacked;
use crate::wire_kind::WireKind;
use crate::wires::blank_answer;

/// Characters of a server's complaint that are kept.
const COMPLAINT: usize = 500;

/// An answer as it is kept.
pub(crate) struct Answer {
    pub(crate) message: AssistantMessage,
    pub(crate) error: Option<ModelErrorKind>,
}

/// Headers in which clients send keys.
const KEYS: [&str; 4] = ["authorization", "x-api-key", "api-key", "x-goog-api-key"];
/// Bytes of a key at least: shorter ones would be found in any text.
const KEY: usize = 6;

/// Reads the answer of an exchange with this model. Where a server repeats a key of the request, it is left out.
pub(crate) fn read(exchange: &Exchange, model: &Arc<Model>) -> Answer {
    let answer = as_it_came(exchange, model);
    let Ok(json) = quipu_protocol::Json::of(&answer.message) else { return answer };
    let mut text = json.get().to_owned();
    for value in KEYS.iter().flat_map(|name| exchange.headers.get_all(*name)) {
        let key = value.to_str().unwrap_or_default().trim();
        let key = key.split_once(' ').map_or(key, |(_, key)| key.trim());
        if key.len() >= KEY {
            let key = quipu_dag::quoted(key);
            text = text.replace(&key[1..key.len() - 1], "[key]");
        }
    }
    if text == json.get() {
        return answer;
    }
    match quipu_protocol::Json::parse(&text).ok().and_then(|json| json.read().ok()) {
        Some(message) => Answer { message, ..answer },
        None => {
            let message = AssistantMessage {
                stop_reason: answer.message.stop_reason,
                error_message: Some("the answer is not kept: it repeats a key".into()),
                timestamp: answer.message.timestamp,
                ..blank_answer(&model.api, &model.provider, &model.id)
            };
            Answer { message, ..answer }
        }
    }
}

fn as_it_came(exchange: &Exchange, model: &Arc<Model>) -> Answer {
    let failed = |kind: ModelErrorKind, text: String| {
        let stop_reason =
            if kind == ModelErrorKind::Aborted { StopReason::Aborted } else { StopReason::Error };
        let message = AssistantMessage {
            stop_reason,
            error_message: Some(text),
            timestamp: exchange.started,
            ..blank_answer(&model.api, &model.provider, &model.id)
        };
        Answer { message, error: Some(kind) }
    };
    let Some(status) = exchange.status else {
        return match exchange.end {
            AnswerEnd::Aborted => {
                failed(ModelErrorKind::Aborted, "the client left before the answer began".into())
            }
            AnswerEnd::Stopped => {
                failed(ModelErrorKind::Aborted, "the proxy was stopped before the answer began".into())
            }
            AnswerEnd::Whole | AnswerEnd::Broken | AnswerEnd::TooLarge => {
                failed(ModelErrorKind::Network, "the server did not answer".into())
            }
        };
    };
    if exchange.end == AnswerEnd::TooLarge {
        return failed(ModelErrorKind::TooLarge, "the answer is larger than what is kept of one".into());
    }
    let packed = exchange.answer.concat();
    let body = match unpacked(&exchange.answer_headers, &packed) {
        Ok(body) => body,
        Err(error) => return failed(ModelErrorKind::Malformed, format!("the answer is not kept: {error}")),
    };
    if !status.is_success() {
        let said: String = String::from_utf8_lossy(&body).chars().take(COMPLAINT).collect();
        return failed(kind_of(status), format!("HTTP {}: {said}", status.as_u16()));
    }
    let kind = exchange.answer_headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let is_stream = kind.is_some_and(|kind| kind.contains("event-stream"))
        || body.starts_with(b"event:")
        || body.starts_with(b"data:");
    if is_stream {
        return streamed(exchange, model, &body);
    }
    let facts = serde_json::from_slice(&body).ok().and_then(|value| exchange.wire.answer(&value));
    let Some(facts) = facts else {
        return match exchange.end {
            AnswerEnd::Aborted => failed(ModelErrorKind::Aborted, "the client left during the answer".into()),
            AnswerEnd::Stopped => {
                failed(ModelErrorKind::Aborted, "the proxy was stopped during the answer".into())
            }
            AnswerEnd::Whole | AnswerEnd::Broken | AnswerEnd::TooLarge => {
                failed(ModelErrorKind::Malformed, "the answer is not one of this wire".into())
            }
        };
    };
    let calls = facts.content.iter().any(|part| part.as_tool_call().is_some());
    let stop_reason = match facts.stop.as_deref() {
        Some("max_tokens" | "length" | "incomplete") => StopReason::Length,
        Some(_) | None if calls => StopReason::ToolUse,
        Some(_) | None => StopReason::Stop,
    };
    let mut usage = facts.usage;
    usage.cost = cost(model, &usage);
    let message = AssistantMessage {
        content: facts.content,
        usage,
        stop_reason,
        timestamp: exchange.started,
        response_model: facts.model.filter(|name| *name != model.id),
        response_id: facts.id,
        ..blank_answer(&model.api, &model.provider, &model.id)
    };
    Answer { message, error: None }
}

fn streamed(exchange: &Exchange, model: &Arc<Model>, body: &[u8]) -> Answer {
    let blank = || blank_answer(&model.api, &model.provider, &model.id);
    let Some(mut decoder) = answer_decoder(Arc::clone(model), exchange.started) else {
        return Answer { message: blank(), error: Some(ModelErrorKind::Malformed) };
    };
    let mut events = Vec::new();
    let read = decoder.push(body, &mut events).and_then(|()| decoder.end(&mut events));
    let error = read.err().map(|error| match exchange.end {
        AnswerEnd::Aborted if !decoder.is_complete() => {
            ModelError::new(ModelErrorKind::Aborted, "the client left during the answer")
        }
        AnswerEnd::Stopped if !decoder.is_complete() => {
            ModelError::new(ModelErrorKind::Aborted, "the proxy was stopped during the answer")
        }
        AnswerEnd::Aborted
        | AnswerEnd::Stopped
        | AnswerEnd::Whole
        | AnswerEnd::Broken
        | AnswerEnd::TooLarge => error,
    });
    let (mut message, _, refused) = decoder.finish(error.as_ref());
    if exchange.wire == WireKind::Responses {
        // The decoder names calls by the item too, which clients do not.
        for part in &mut message.content {
            if let Content::ToolCall(call) = part
                && let Some((id, _)) = call.id.as_str().split_once('|')
            {
                call.id = CallId::from(id.to_owned());
            }
        }
    }
    Answer { message, error: error.or(refused).map(|error| error.kind) }
}

fn kind_of(status: StatusCode) -> ModelErrorKind {
    match status.as_u16() {
        401 | 403 => ModelErrorKind::Auth,
        429 => ModelErrorKind::RateLimited,
        503 | 529 => ModelErrorKind::Overloaded,
        500..=599 => ModelErrorKind::Server,
        _ => ModelErrorKind::InvalidRequest,
    }
}

fn cost(model: &Model, usage: &quipu_protocol::Usage) -> quipu_protocol::Cost {
    model.price(usage)
}
