//! Why something of a memory failed.

use std::io;
use std::path::{Path, PathBuf};

use quipu_store::StoreError;

use crate::files::{FileProblem, NameError};

/// Why a memory was not read or changed. Nothing of the user's was changed.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The system refused.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// With this file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The graph refused.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file of the memory cannot be used.
    #[error("{} cannot be used: {problem}", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// What is wrong with it.
        problem: FileProblem,
    },
    /// The file of choices cannot be used.
    #[error("{} cannot be used: {why}; correct it, or remove it to switch all memories off", path.display())]
    Choices {
        /// Where it is.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The path names no file of a memory.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The memory belongs to a repository.
    #[error("{} belongs to a repository and is only read", .0.display())]
    ReadOnly(PathBuf),
    /// A memory cannot be taken along.
    #[error("the memory of {} is not adopted: {why}", former.display())]
    Adoption {
        /// The directory that the project had.
        former: PathBuf,
        /// Why not.
        why: String,
    },
    /// Other programs kept changing the file.
    #[error("{} was changed by other programs again and again; it was left as it is", .0.display())]
    Unsettled(PathBuf),
    /// Another process holds the lock of the memory.
    #[error("another process is changing {}; try again", .0.display())]
    Busy(PathBuf),
    /// The change would make the file larger than a memory's file may be.
    #[error("{} would have {bytes} bytes; a file of a memory has at most {limit}", path.display())]
    TooLarge {
        /// Which one.
        path: PathBuf,
        /// Its size after the change.
        bytes: u64,
        /// The most that is allowed.
        limit: u64,
    },
}

impl MemoryError {
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { doing, path, source }
    }
}
