//! How a login fails.

use std::time::Duration;

use super::LoginMethod;

/// A login or the renewal of its tokens failed. No text holds a token, a code or a verifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// The provider has no login, or not this one.
    #[error("{name} has no login {}", match method { LoginMethod::Device => "by device code", LoginMethod::Browser | LoginMethod::Paste => "by browser" })]
    NoFlow {
        /// The account that is logged in to.
        name: String,
        /// What was asked for.
        method: LoginMethod,
    },
    /// The person or the provider said no.
    #[error("the login was denied{words}")]
    Denied {
        /// What the server says of it, after a colon; may be empty.
        words: String,
    },
    /// The code of the login is not valid any more.
    #[error("the login expired before it was completed")]
    Expired,
    /// Nobody completed the login.
    #[error("the login was not completed within {} minutes", limit.as_secs().div_ceil(60))]
    TimedOut {
        /// How long was waited.
        limit: Duration,
    },
    /// There is no way to receive the code: its address is in use, and nothing is pasted.
    #[error(
        "the address {address}, to which the browser returns, cannot be used ({why}); paste the code instead"
    )]
    Callback {
        /// Where was to be listened.
        address: String,
        /// Why that failed.
        why: String,
    },
    /// The code that was pasted is of another login.
    #[error("the pasted text belongs to another login; paste the code of this one")]
    ForeignCode,
    /// There is no code in what was pasted.
    #[error("the pasted text contains no code; paste the code, or the whole address that the browser shows")]
    NoCode,
    /// A URL of the login would carry secrets in the open, or is none.
    #[error("{url} cannot be used for a login: it must be an https address")]
    Address {
        /// What was to be asked, without its query.
        url: String,
    },
    /// The domain that was given is none.
    #[error("{domain:?} is not a domain name")]
    Domain {
        /// What was given.
        domain: String,
    },
    /// The server refused.
    #[error("{host} refused {what} (HTTP {status}){words}")]
    Refused {
        /// The server.
        host: String,
        /// What was asked.
        what: &'static str,
        /// The status of its answer.
        status: u16,
        /// Its word for the reason, such as `invalid_grant`.
        code: String,
        /// What it says, after a colon; may be empty.
        words: String,
    },
    /// The server answered something that cannot be used.
    #[error("{host} answered {what} with something that cannot be used: {problem}")]
    Nonsense {
        /// The server.
        host: String,
        /// What was asked.
        what: &'static str,
        /// What is wrong with its answer.
        problem: String,
    },
    /// The server could not be reached.
    #[error("{host} could not be reached for {what}: {why}")]
    Unreachable {
        /// The server.
        host: String,
        /// What was to be asked.
        what: &'static str,
        /// Why.
        why: String,
    },
}

impl LoginError {
    /// Whether the same request will fail again, so that a person has to log in anew.
    pub(crate) const fn is_final(&self) -> bool {
        match self {
            Self::Refused { status, .. } => matches!(*status, 400 | 401 | 403 | 404),
            Self::Denied { .. } | Self::Expired => true,
            _ => false,
        }
    }
}
