//! What goes wrong between a client and a server.

use std::time::Duration;

/// Why there is no connection to a server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The program could not be started.
    #[error("the program {program} could not be started: {why}")]
    Start {
        /// The program.
        program: String,
        /// The system's reason.
        why: String,
    },
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A request of the beginning failed.
    #[error("{method} failed: {error}")]
    Request {
        /// The request.
        method: &'static str,
        /// Why.
        error: RequestError,
    },
    /// The server speaks another version of the protocol.
    #[error("the server speaks version {0:?} of the protocol, which is not supported")]
    Version(String),
}

/// Why a request has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The server refused it.
    #[error("the server answered with error {code}: {message}")]
    Refused {
        /// The code of the error.
        code: i64,
        /// Its words, in one line, cut.
        message: String,
        /// What is to be opened in a browser first: message and address.
        pages: Vec<(String, String)>,
    },
    /// No answer came in time.
    #[error("no answer within {} s", .0.as_secs_f64())]
    Timeout(Duration),
    /// It was stopped.
    #[error("the request was cancelled")]
    Cancelled,
    /// The connection ended.
    #[error("the connection ended: {0}")]
    Closed(String),
    /// The server on the network did not take it.
    #[error("{0}")]
    Unreachable(String),
    /// The answer is not what the protocol asks for.
    #[error("the answer is not valid: {0}")]
    Invalid(String),
    /// The server wants a login.
    #[error("the server wants a login (HTTP {status})")]
    Unauthorized {
        /// The status of its answer.
        status: u16,
        /// What it says of how to log in: the header `WWW-Authenticate`.
        challenge: Option<String>,
    },
}

/// Why the configuration of a server cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The file is no JSON or TOML.
    #[error("{0}")]
    Syntax(String),
    /// A member has a wrong form.
    #[error("{member}: {why}")]
    Member {
        /// Where it stands.
        member: String,
        /// What is wrong.
        why: String,
    },
    /// Variables of the environment are missing.
    #[error("the environment has no {}", .0.join(", "))]
    Variables(Vec<String>),
}
