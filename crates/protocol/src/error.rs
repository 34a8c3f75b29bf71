//! What can go wrong with a model call. Closed: adapters map what they meet, nobody above matches on text.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Thinking;

/// A failed model call.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelError {
    /// What to branch on.
    pub kind: ModelErrorKind,
    /// What happened and where, in one line for people; may quote the server (at most 2,000 characters).
    pub message: String,
    /// The HTTP status, when there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The provider's id of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// How long the server asked us to wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<Duration>,
    /// Levels of thinking that the model takes instead, the one to try first in front; with `thinkingLevel`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub levels: Vec<Thinking>,
}

/// The closed set of ways in which a model call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ModelErrorKind {
    /// No credential is known for the provider.
    NoCredential,
    /// The credential was refused (401, 403).
    Auth,
    /// The credential was revoked, or its account closed: it will not be taken again.
    AuthRevoked,
    /// No money or quota is left; waiting does not help.
    Quota,
    /// A limit of a day, a week or a plan is reached; waiting a moment does not help.
    UsageLimit,
    /// Too many requests (429); waiting helps.
    RateLimited,
    /// The provider is overloaded (503, 529).
    Overloaded,
    /// Another failure inside the provider (5xx).
    Server,
    /// No connection: name, route, refused, TLS.
    Network,
    /// Nothing came for too long.
    Timeout,
    /// The stream ended before the answer was complete.
    StreamEnded,
    /// The answer is not what the wire says: HTML, garbage, half an event.
    Malformed,
    /// The answer is larger than we take.
    TooLarge,
    /// The conversation does not fit the model's window.
    ContextOverflow,
    /// The request was refused as invalid (400, 413, 422).
    InvalidRequest,
    /// The provider does not know the model (404).
    UnknownModel,
    /// The model does not take this level of thinking.
    ThinkingLevel,
    /// The provider declined to answer on grounds of content.
    Refused,
    /// We stopped it.
    Aborted,
    /// A scripted or recorded exchange does not match the conversation.
    #[serde(alias = "departed")]
    ReplayMismatch,
}

impl ModelErrorKind {
    /// Whether sending the same bytes again can help.
    pub fn is_transient(self) -> bool {
        matches!(
            self,
            Self::RateLimited
                | Self::Overloaded
                | Self::Server
                | Self::Network
                | Self::Timeout
                | Self::StreamEnded
        )
    }
}

impl ModelErrorKind {
    /// Whether another model, with its own provider, can answer where this failure lasts. Not where it is the
    /// conversation or a person that stands in the way.
    pub fn another_model_may_help(self) -> bool {
        match self {
            Self::NoCredential
            | Self::Auth
            | Self::AuthRevoked
            | Self::Quota
            | Self::UsageLimit
            | Self::RateLimited
            | Self::Overloaded
            | Self::Server
            | Self::Network
            | Self::Timeout
            | Self::StreamEnded
            | Self::Malformed
            | Self::UnknownModel => true,
            Self::TooLarge
            | Self::ContextOverflow
            | Self::InvalidRequest
            | Self::ThinkingLevel
            | Self::Refused
            | Self::Aborted
            | Self::ReplayMismatch => false,
        }
    }
}

impl ModelError {
    /// An error without a server's answer.
    pub fn new(kind: ModelErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            status: None,
            request_id: None,
            retry_after: None,
            levels: Vec::new(),
        }
    }
}

/// As it would be derived; most errors have no levels.
impl fmt::Debug for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, message, status, request_id, retry_after, levels } = self;
        let mut shown = f.debug_struct("ModelError");
        shown.field("kind", kind).field("message", message).field("status", status);
        shown.field("request_id", request_id).field("retry_after", retry_after);
        if !levels.is_empty() {
            shown.field("levels", levels);
        }
        shown.finish()
    }
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
