//! Questions of a server to the person in front of the session.

use futures_util::future::BoxFuture;
use quipu_protocol::Json;

/// What a server asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Elicitation {
    /// Some values.
    Form {
        /// What it says; invisible characters stand by their numbers.
        message: String,
        /// JSON Schema of the answer: an object schema.
        schema: Json,
    },
    /// A page to open in a browser, at an address that is shown in full.
    Page {
        /// What it says; invisible characters stand by their numbers.
        message: String,
        /// The address.
        url: String,
    },
}

/// What a person said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ElicitationAnswer {
    /// Yes; for a form with these values, an object.
    Accept(Option<Json>),
    /// No.
    Decline,
    /// No answer, or nobody is there.
    Cancel,
}

/// Puts questions of servers to a person.
pub trait Elicitor: Send + Sync + 'static {
    /// Asks. Where nobody is there, the answer is [`ElicitationAnswer::Cancel`].
    fn elicit(&self, request: Elicitation) -> BoxFuture<'static, ElicitationAnswer>;
}
