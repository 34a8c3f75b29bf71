//! The span of a call of a model.

use std::sync::Arc;

use quipu_machine::Purpose;
use quipu_protocol::{ModelError, Outcome, StopReason};
use tracing::field::Empty;
use tracing::{Span, info_span};

use super::{CallJob, CallResult, SideNote};
use crate::spans::{record_error, record_outcome};

/// What a call of a model is for.
#[derive(Debug, Clone)]
pub(crate) enum CallPurpose {
    /// The answer of a turn.
    Answer,
    /// Notes on a stretch of conversation.
    Summary(Purpose),
    /// What a hook or a source wants to know, beside the conversation.
    Side(Arc<SideNote>),
    /// The same, in a session of its own.
    Standalone(Arc<str>),
}

impl CallPurpose {
    /// What the row of a call beside the conversation tells.
    pub(super) fn side(&self) -> Option<&SideNote> {
        match self {
            Self::Side(note) => Some(note),
            Self::Answer | Self::Summary(_) | Self::Standalone(_) => None,
        }
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Self::Answer => "answer",
            Self::Summary(purpose) => purpose.word(),
            Self::Side(note) => &note.purpose,
            Self::Standalone(purpose) => purpose,
        }
    }
}

/// A call of a model, with all its attempts.
pub(super) fn model_call(order: &CallJob, is_local: impl FnOnce() -> bool) -> Span {
    let model = &order.request.model;
    info_span!(
        "model_call",
        purpose = order.purpose.name(),
        run = %order.run,
        head = %order.head,
        provider = model.provider.as_str(),
        model = model.id.as_str(),
        tokens.source = if is_local() { "local" } else { "cloud" },
        tokens.input = Empty,
        tokens.output = Empty,
        tokens.cache_read = Empty,
        tokens.cache_write = Empty,
        tokens.reasoning = Empty,
        cost = Empty,
        body_bytes = Empty,
        attempts = Empty,
        first_token_ms = Empty,
        stop = Empty,
        outcome = Empty,
        error.kind = Empty,
        error = Empty,
    )
}

/// What came of a call.
pub(super) fn model_call_ended(
    span: &Span,
    made: &Result<CallResult, Outcome>,
    seal: impl Fn(&str) -> String,
) {
    if span.is_disabled() {
        return;
    }
    let CallResult { end, record, .. } = match made {
        Ok(made) => made,
        Err(outcome) => return record_outcome(span, outcome),
    };
    let usage = &end.message.usage;
    span.record("tokens.input", usage.input).record("tokens.output", usage.output);
    span.record("tokens.cache_read", usage.cache_read).record("tokens.cache_write", usage.cache_write);
    if let Some(reasoning) = usage.reasoning {
        span.record("tokens.reasoning", reasoning);
    }
    span.record("cost", usage.cost.total).record("stop", stop(end.message.stop_reason));
    span.record("attempts", end.attempts.len());
    if let Some(record) = record {
        span.record("body_bytes", record.body_bytes);
        if let Some(first) = record.first_token_ms {
            span.record("first_token_ms", first);
        }
    }
    match &end.error {
        None => {
            span.record("outcome", "done");
        }
        Some(error) => {
            let error = ModelError { message: seal(&error.message), ..error.clone() };
            record_error(span, &error);
            span.record("outcome", "failed");
        }
    }
}

fn stop(reason: StopReason) -> &'static str {
    match reason {
        StopReason::Stop => "stop",
        StopReason::Length => "length",
        StopReason::ToolUse => "tool_use",
        StopReason::Error => "error",
        StopReason::Aborted => "aborted",
        StopReason::Deferred => "deferred",
        StopReason::Pending => "pending",
    }
}
