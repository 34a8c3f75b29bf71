//! What goes wrong on the way to a page. The texts are for the model.

/// Why a page could not be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error("{0}")]
    Address(String),
    #[error("{0}")]
    Refused(String),
    #[error("{host} could not be reached: {why}")]
    Unreachable { host: String, why: String },
    #[error("{host} did not answer within {seconds} s")]
    Late { host: String, seconds: u64 },
    #[error("The server redirected more than {} times", crate::limits::REDIRECTS)]
    Redirects,
    #[error("The answer of {host} was cut off: {why}")]
    Broken { host: String, why: String },
}

/// Why a search service cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SearchSetupError {
    /// There is no such service.
    #[error("there is no search service {0:?}")]
    Unknown(String),
    /// It has no address of its own.
    #[error("the search service {0} needs the address of a server")]
    NoAddress(&'static str),
    /// The address is none.
    #[error("{0:?} is not the address of a search server: {1}")]
    Address(String, String),
    /// It needs a key.
    #[error("the search service {0} needs a key")]
    NoKey(&'static str),
}
