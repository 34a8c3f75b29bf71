//! How to serve.

use std::path::PathBuf;

use quipu_host::{Home, OpenRequest};
use quipu_runtime::Wording;

use crate::access::Access;
use crate::limits::ServerLimits;

/// How to serve.
pub struct ServerOptions {
    /// The user's files.
    pub home: Home,
    /// What every session is opened with, but for what a client says.
    pub request: OpenRequest,
    /// How failures and notices are worded.
    pub wording: Wording,
    /// The directory of sessions that begin with a request for an answer: an absolute path.
    pub directory: PathBuf,
    /// Who may ask.
    pub access: Access,
    /// What is at most.
    pub limits: ServerLimits,
}
