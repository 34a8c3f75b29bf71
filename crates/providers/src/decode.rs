//! Bytes of an answer to events and a message: what all wires of server-sent events share.

use quipu_protocol::{AssistantMessage, Json, ModelError, ModelErrorKind};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::CallEvent;
use crate::assemble::malformed;
use crate::failure::{self, classify, levels_for, read_complaint};
use crate::sse::{SseDecoder, SseEvent};
use crate::surrogates::lossy;

/// More tokens than any answer has; larger counts are not believed.
const MAX_TOKENS: u64 = 1 << 40;

/// Turns the bytes of one answer into events and a message. Pure: knows no clock and no connection.
///
/// Errors are phrases that go on after the server's name: "sent ..., ended ...".
pub trait AnswerDecoder: Send {
    /// Takes more bytes and adds what they mean to `out`. Bytes after the end of the answer are ignored.
    ///
    /// # Errors
    /// What the server reported within the stream, or `Malformed` and `TooLarge` for what it must not send.
    fn push(&mut self, bytes: &[u8], out: &mut Vec<CallEvent>) -> Result<(), ModelError>;

    /// The body is over.
    ///
    /// # Errors
    /// `StreamEnded` when the answer is not complete.
    fn end(&mut self, out: &mut Vec<CallEvent>) -> Result<(), ModelError>;

    /// Whether the answer is complete. What follows is not read.
    fn is_complete(&self) -> bool;

    /// Whether the answer would be complete if the body ended now. What may follow is not waited for long.
    fn is_enough(&self) -> bool;

    /// Whether what came looks like this wire at all.
    fn has_heard(&self) -> bool;

    /// Whether the answer began.
    fn has_begun(&self) -> bool;

    /// Whether the server told what all of the answer used.
    fn has_usage(&self) -> bool;

    /// The message and the unknown events; with the error that ended it, when it is not complete. The third is
    /// the failure that a complete answer reports of itself, such as a refusal.
    fn finish(
        self: Box<Self>,
        error: Option<&ModelError>,
    ) -> (AssistantMessage, Vec<Json>, Option<ModelError>);
}

/// What is particular to one wire of server-sent events.
pub(crate) trait Wire: Send {
    /// Takes one event. Never called after the answer is complete.
    fn event(&mut self, event: &SseEvent, out: &mut Vec<CallEvent>) -> Result<(), ModelError>;

    /// The body is over: what need not be said is taken as said.
    fn body_ended(&mut self, out: &mut Vec<CallEvent>) -> Result<(), ModelError>;

    fn has_begun(&self) -> bool;

    fn has_usage(&self) -> bool;

    fn is_complete(&self) -> bool;

    fn is_enough(&self) -> bool;

    fn finish(self, error: Option<&ModelError>) -> (AssistantMessage, Vec<Json>, Option<ModelError>);
}

/// Decodes one answer of a wire of server-sent events.
pub(crate) struct SseAnswer<W> {
    sse: SseDecoder,
    wire: W,
    /// Something came that looks like an event.
    heard: bool,
}

impl<W: Wire> SseAnswer<W> {
    pub(crate) fn new(wire: W) -> Self {
        Self { sse: SseDecoder::default(), wire, heard: false }
    }
}

impl<W: Wire> AnswerDecoder for SseAnswer<W> {
    fn push(&mut self, bytes: &[u8], out: &mut Vec<CallEvent>) -> Result<(), ModelError> {
        if self.wire.is_complete() {
            return Ok(());
        }
        let mut events = Vec::new();
        let pushed = self.sse.push(bytes, &mut events);
        self.heard |= !events.is_empty();
        for event in &events {
            if !self.wire.is_complete() {
                self.wire.event(event, out)?;
            }
        }
        pushed.map_err(|error| ModelError::new(ModelErrorKind::TooLarge, format!("sent too much: {error}")))
    }

    fn end(&mut self, out: &mut Vec<CallEvent>) -> Result<(), ModelError> {
        if self.wire.is_complete() {
            return Ok(());
        }
        let mut events = Vec::new();
        self.sse.finish(&mut events);
        self.heard |= !events.is_empty();
        for event in &events {
            // What is left is often half an event. Only a whole one counts.
            if serde_json::from_str::<&RawValue>(&event.data).is_ok() {
                self.wire.event(event, out)?;
            }
        }
        if !self.wire.is_complete() {
            self.wire.body_ended(out)?;
        }
        if self.wire.is_complete() {
            return Ok(());
        }
        let how = match (events.is_empty(), self.wire.has_begun()) {
            (false, _) => "ended the answer in the middle of an event",
            (true, true) => "ended the answer before it was complete",
            (true, false) => "ended the answer before it began",
        };
        Err(ModelError::new(ModelErrorKind::StreamEnded, how))
    }

    fn is_complete(&self) -> bool {
        self.wire.is_complete()
    }

    fn is_enough(&self) -> bool {
        self.wire.is_enough()
    }

    fn has_heard(&self) -> bool {
        self.heard
    }

    fn has_begun(&self) -> bool {
        self.wire.has_begun()
    }

    fn has_usage(&self) -> bool {
        self.wire.has_usage()
    }

    fn finish(
        self: Box<Self>,
        error: Option<&ModelError>,
    ) -> (AssistantMessage, Vec<Json>, Option<ModelError>) {
        self.wire.finish(error)
    }
}

/// The JSON of an event.
pub(crate) fn json_of(event: &SseEvent) -> Result<&RawValue, ModelError> {
    serde_json::from_str(&event.data)
        .map_err(|_| malformed(format!("sent an event that is not JSON: {}", failure::quote(&event.data))))
}

/// The failure that an event reports.
pub(crate) fn reported(event: &str) -> ModelError {
    let mut complaint = read_complaint(event);
    complaint.explain_limit(None);
    let mut message = format!("reported a failure: {}", complaint.message);
    if !complaint.kind.is_empty() {
        message = format!("{message} ({})", complaint.kind);
    }
    let kind = classify(complaint.status, &complaint);
    let mut error = ModelError::new(kind, message);
    error.levels = levels_for(kind, &complaint);
    error.request_id = complaint.request_id;
    error.retry_after = complaint.retry_after;
    error
}

/// The answer to a complete call that the model declined.
pub(crate) fn declined(word: &str, why: Option<&str>) -> ModelError {
    let why = why.map(|why| format!(": {}", why.trim_end_matches('.'))).unwrap_or_default();
    ModelError::new(ModelErrorKind::Refused, format!("The model declined to answer ({word}){why}."))
}

/// A value of this shape; `None` for another.
pub(crate) fn read<'a, T: Deserialize<'a>>(raw: Option<&'a RawValue>) -> Option<T> {
    serde_json::from_str(raw?.get()).ok()
}

/// A string; halves of surrogate pairs in it become U+FFFD.
pub(crate) fn string(raw: Option<&RawValue>) -> Option<String> {
    lossy(raw?.get())
}

/// A count; fractions are cut, and what is negative or no number at all is none.
pub(crate) fn number(raw: Option<&RawValue>) -> Option<u64> {
    let text = raw?.get();
    text.parse().ok().or_else(|| {
        let value: f64 = text.parse().ok()?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "saturates, and is not negative"
        )]
        (value >= 0.0).then_some(value as u64)
    })
}

/// A count of tokens.
pub(crate) fn tokens(raw: Option<&RawValue>) -> Option<u64> {
    number(raw).filter(|count| *count <= MAX_TOKENS)
}
