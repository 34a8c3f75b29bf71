//! Files go with the conversation: what tools change is noticed and kept, and can be put back.
//!
//! [`keep`] looks at files before and after a call; what it finds stands in the node of the call's result. [`plan`] says
//! what going to another node does to them, and [`restore`] does it around the commit that moves the ref.

mod change_note;
mod interrupted;
mod keep;
mod listing;
mod merged;
mod note;
mod pending;
mod plan;
mod restore;
mod state;
#[cfg(test)]
mod tests;
mod watch;

pub use restore::FilesError;

pub(crate) use change_note::{change_note, tells_of_files};
pub(crate) use interrupted::{InterruptedCall, RecoveredChanges, after_a_crash};
pub(crate) use keep::{CallBaseline, CallPlace, CommandChanges, FileSnapshotter, is_listing, listing_of};
pub(crate) use merged::{Cargo, IncomingFile, ready as ready_to_merge};
pub(crate) use plan::FileRestorer;
pub(crate) use restore::{InFlight, SettleReport, settle};

/// What is kept of the files that tools change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSettings {
    /// Whether anything is.
    pub enabled: bool,
    /// Bytes of one file at most; of a larger one it is only known that it changed.
    pub file_bytes: u64,
    /// Bytes that the files of one run add to the store at most.
    pub run_bytes: u64,
    /// Bytes that the states of files may take of the store; the oldest are dropped first
    /// ([`Upkeep::drop_files`](quipu_store::Upkeep::drop_files)).
    pub store_bytes: u64,
    /// Files that git ignores and that are looked at before a command at most.
    pub ignored_files: u64,
}

impl Default for FileSettings {
    /// On; 1 MiB of a file, 64 MiB of a run, 1 GiB of the store, 10,000 files that git ignores.
    fn default() -> Self {
        Self {
            enabled: true,
            file_bytes: 1 << 20,
            run_bytes: 64 << 20,
            store_bytes: 1 << 30,
            ignored_files: 10_000,
        }
    }
}
