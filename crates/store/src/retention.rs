//! Results of dropping stored states of files to make room.

/// States of files that were dropped. What an open step or jump needs stays, and of each file of each session what its last
/// change names, so more can be left than was asked for. Each transaction tells of itself in the action log
/// (`QUIPU_DROP_FILES`). The file does not get smaller by it: its room is used again, or given back by
/// [`Upkeep::shrink`](crate::Upkeep::shrink).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DroppedFiles {
    /// How many.
    pub states: u64,
    /// Bytes that they took.
    pub bytes: u64,
    /// Bytes that states of files take now; 0 where it is not said.
    pub left: u64,
}

/// The progress of dropping, reported before each transaction and after the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileDropProgress {
    /// States that are dropped so far.
    pub done: u64,
    /// The expected total, as far as it is known.
    pub of: u64,
}

/// Receives the progress of dropping.
pub type FileDropListener<'a> = &'a (dyn Fn(FileDropProgress) + Send + Sync);
