//! A repository whose user consented, as it is kept.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use quipu_protocol::UnixMs;
use serde::{Deserialize, Serialize};

/// A repository whose user consented.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConsentedRepository {
    /// The true path of the directory that all of its worktrees share (`.git`).
    pub directory: PathBuf,
    /// The inode of that directory: another repository at the same path is another one.
    pub inode: u64,
    /// When the user consented.
    pub since: UnixMs,
}

impl ConsentedRepository {
    /// Whether the repository is still there.
    pub fn is_there(&self) -> bool {
        self.directory.canonicalize().is_ok_and(|path| path == self.directory)
            && self.directory.metadata().is_ok_and(|found| found.is_dir() && found.ino() == self.inode)
    }
}
