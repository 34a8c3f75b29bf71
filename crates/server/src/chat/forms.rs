//! The forms of an answer.

use quipu_protocol::Usage;
use serde_json::{Value, json};

use crate::answer::ApiError;

use super::request::StreamMode;
use super::run::ChatOutcome;

/// What all forms of one answer have in common.
pub(super) struct ChatForms {
    id: String,
    /// Seconds since the Unix epoch.
    created: i64,
    model: String,
}

impl ChatForms {
    pub(super) fn new(model: String) -> Self {
        let id = format!("chatcmpl-{}", uuid::Uuid::new_v4().simple());
        Self { id, created: quipu_host::now().div_euclid(1000), model }
    }

    /// The whole answer.
    pub(super) fn whole(&self, outcome: &ChatOutcome) -> Value {
        let message = json!({ "role": "assistant", "content": outcome.text, "refusal": null });
        let choice = json!({
            "index": 0, "message": message, "logprobs": null, "finish_reason": outcome.finish.name(),
        });
        json!({
            "id": self.id, "object": "chat.completion", "created": self.created, "model": self.model,
            "choices": [choice], "usage": usage(&outcome.usage),
        })
    }

    fn chunk(&self, mode: StreamMode, choices: &Value) -> Value {
        let mut chunk = json!({
            "id": self.id, "object": "chat.completion.chunk", "created": self.created, "model": self.model,
            "choices": choices,
        });
        if mode == StreamMode::PiecesAndUsage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }

    fn delta(&self, mode: StreamMode, delta: &Value, finish: Option<&str>) -> String {
        let choice = json!({ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish });
        event(&self.chunk(mode, &json!([choice])))
    }

    pub(super) fn first(&self, mode: StreamMode) -> String {
        self.delta(mode, &json!({ "role": "assistant", "content": "" }), None)
    }

    pub(super) fn piece(&self, mode: StreamMode, text: &str) -> String {
        self.delta(mode, &json!({ "content": text }), None)
    }

    pub(super) fn last(&self, mode: StreamMode, outcome: &ChatOutcome) -> String {
        let mut text = self.delta(mode, &json!({}), Some(outcome.finish.name()));
        if mode == StreamMode::PiecesAndUsage {
            let mut chunk = self.chunk(mode, &json!([]));
            chunk["usage"] = usage(&outcome.usage);
            text.push_str(&event(&chunk));
        }
        text.push_str("data: [DONE]\n\n");
        text
    }

    /// The end of a stream that has begun: the clients of the API look for this member.
    pub(super) fn failed(error: &ApiError) -> String {
        event(&error.body())
    }
}

fn event(value: &Value) -> String {
    format!("data: {value}\n\n")
}

fn usage(usage: &Usage) -> Value {
    let prompt = usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write);
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": usage.output,
        "total_tokens": prompt.saturating_add(usage.output),
        "prompt_tokens_details": { "cached_tokens": usage.cache_read },
        "completion_tokens_details": { "reasoning_tokens": usage.reasoning.unwrap_or_default() },
    })
}
