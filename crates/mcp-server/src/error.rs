//! What goes wrong, for the model that called a tool and for whoever started the server.

use quipu_history::{NodeNameError, RecallError};
use quipu_loopback::ListenError;
use quipu_store::StoreError;
use rmcp::ErrorData;

/// Why the store cannot be opened, in words.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct StoreOpenError(pub String);

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The first messages of a client begin no session of the protocol.
    #[error("the client did not begin a session of the protocol: {0}")]
    Handshake(String),
    /// A network address other than this machine's own was asked for.
    #[error("{0} is not an address of this machine alone; use 127.0.0.1 or [::1]")]
    NotLoopback(std::net::SocketAddr),
    /// The network failed.
    #[error(transparent)]
    Network(#[from] std::io::Error),
}

impl From<ListenError> for ServeError {
    fn from(error: ListenError) -> Self {
        match error {
            ListenError::NotLoopback(address) => Self::NotLoopback(address),
            ListenError::Network(error) => Self::Network(error),
        }
    }
}

/// Why a call has no result. The model reads the words.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// The store failed.
    #[error("The archive could not be read: {0}")]
    Store(#[from] StoreError),
    /// The store cannot be opened.
    #[error("The archive could not be opened: {0}")]
    Opening(#[from] StoreOpenError),
    /// Nothing was ever stored.
    #[error("Nothing was recorded on this machine yet.")]
    Empty,
    /// An id names nothing that may be seen, or several nodes.
    #[error("{0}")]
    Name(String),
    /// The arguments are not those of the tool.
    #[error("{0}")]
    Arguments(String),
    /// A file cannot be read, or may not.
    #[error("{0}")]
    File(String),
    /// There are no directories to show sessions of.
    #[error("{0}")]
    NoScope(String),
    /// The call took too long.
    #[error("The call took longer than {0} s and was stopped; narrow it.")]
    Late(u64),
    /// The client cancelled the call.
    #[error("The call was cancelled.")]
    Cancelled,
}

impl From<NodeNameError> for CallError {
    fn from(error: NodeNameError) -> Self {
        match error {
            NodeNameError::Store(error) => Self::Store(error),
            other => Self::Name(other.to_string()),
        }
    }
}

impl From<RecallError> for CallError {
    fn from(error: RecallError) -> Self {
        match error {
            RecallError::Store(error) => Self::Store(error),
            other @ (RecallError::NoSuchNode(_) | RecallError::Beyond { .. }) => {
                Self::Name(other.to_string())
            }
        }
    }
}

impl CallError {
    /// The error of a request that is no call of a tool.
    pub(crate) fn of_request(self) -> ErrorData {
        match self {
            Self::Name(text) => ErrorData::resource_not_found(text, None),
            Self::Arguments(text) => ErrorData::invalid_params(text, None),
            other => ErrorData::internal_error(other.to_string(), None),
        }
    }
}
