//! What the sender needs of a wire's decoder.

use quipu_protocol::{AssistantMessage, Json, ModelError};

use crate::CallEvent;

/// Turns the bytes of one answer into events and a message. Pure: knows no clock and no connection.
///
/// Errors are phrases that go on after the server's name: "sent ..., ended ...".
pub(crate) trait Decode: Send {
    /// Takes more bytes and adds what they mean to `out`.
    fn push(&mut self, bytes: &[u8], out: &mut Vec<CallEvent>) -> Result<(), ModelError>;

    /// The body is over.
    fn end(&mut self, out: &mut Vec<CallEvent>) -> Result<(), ModelError>;

    /// Whether the answer is complete. What follows is not read.
    fn is_complete(&self) -> bool;

    /// Whether what came looks like this wire at all.
    fn has_heard(&self) -> bool;

    /// The message and the unknown events; with the error that ended it, when it is not complete. The third is
    /// the failure that a complete answer reports of itself, such as a refusal.
    fn finish(
        self: Box<Self>,
        error: Option<&ModelError>,
    ) -> (AssistantMessage, Vec<Json>, Option<ModelError>);
}
