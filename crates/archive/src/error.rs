//! What can go wrong with a whole file or session.

use std::path::PathBuf;

use quipu_store::StoreError;

/// A file could not be imported, or a session not exported.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The store refused. What was committed before stays; importing again goes on from there.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file could not be opened, read or written.
    #[error("{} could not be {doing}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What was done to it, such as `read`.
        doing: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// Not a session file of this agent.
    #[error("{} is not a session file: {why}", path.display())]
    NotASession {
        /// The file.
        path: PathBuf,
        /// What is missing.
        why: &'static str,
    },
    /// Another program changed the file so that what was read before is not there any more.
    #[error("another program changed {} while it was being read; import it again", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// Another process of ours is working with the file.
    #[error("{} is in use by another Quipu process; end that one first, or continue in a fork", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The session has no nodes that could be written.
    #[error("session `{session}` cannot be exported: {why}")]
    NotExportable {
        /// The session.
        session: String,
        /// What is missing.
        why: &'static str,
    },
    /// A fault of ours.
    #[error("this is a bug in Quipu, please report it: {0}")]
    Fault(String),
}
