//! How a source fails.

use std::time::Duration;

use quipu_protocol::{ModelError, ModelErrorKind};

use crate::failure::quote;

/// Why there is no credential.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    /// A person has to do something first.
    #[error("{what}")]
    NeedsLogin {
        /// What, in whole sentences.
        what: String,
    },
    /// It could not be had.
    #[error("{why}")]
    Unavailable {
        /// Why, for people.
        why: String,
    },
    /// The source did not answer in time.
    #[error("it did not answer within {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    /// The source panicked.
    #[error("it panicked; this is a bug in the source")]
    Panicked,
    /// What the source gave cannot be used.
    #[error("its value cannot be used: {0}")]
    Invalid(InvalidCredential),
}

/// What is wrong with a credential.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCredential {
    /// There is no identity, or none that can be shown.
    #[error("the identity must have 1 to 128 printable characters and contain no part of the secret")]
    Identity,
    /// A secret is empty.
    #[error("the secret is empty")]
    Empty,
    /// Something is too large.
    #[error("{what} is larger than the limit of {limit} bytes")]
    TooLarge {
        /// The part that is too large.
        what: &'static str,
        /// The limit in bytes.
        limit: usize,
    },
    /// A credential has more headers than a request may carry.
    #[error("it has more than {limit} headers")]
    TooManyHeaders {
        /// The largest number of headers.
        limit: usize,
    },
    /// HTTP cannot carry a header.
    #[error("a header has characters that HTTP does not allow, such as a line break")]
    Header,
    /// The base URL is none.
    #[error("the base URL is not an HTTP URL")]
    BaseUrl,
    /// The model is on this machine, and calls with this credential would leave it.
    #[error("its base URL is on another machine, and the model is one of this machine")]
    LeavesMachine,
    /// It is none that the API takes.
    #[error("{0}")]
    Unfit(&'static str),
    /// Its time has passed already.
    #[error("it has expired")]
    Expired,
}

/// A source failed, and how.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("The credential source `{source_name}` failed: {error}.")]
pub struct SourceFailure {
    /// The name of the credential source.
    pub source_name: String,
    /// The reason, without secrets.
    pub error: CredentialError,
}

impl From<SourceFailure> for ModelError {
    fn from(failure: SourceFailure) -> Self {
        let message = match &failure.error {
            // What a person has to do is said as it is.
            CredentialError::NeedsLogin { what } => quote(what),
            CredentialError::Unavailable { why } => {
                let error = CredentialError::Unavailable { why: quote(why).trim_end_matches('.').to_owned() };
                SourceFailure { error, ..failure }.to_string()
            }
            CredentialError::TimedOut(_) | CredentialError::Panicked | CredentialError::Invalid(_) => {
                failure.to_string()
            }
        };
        Self::new(ModelErrorKind::NoCredential, message)
    }
}
