//! What is said of states of files that make room.

/// States of files that were dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DroppedFiles {
    /// How many.
    pub states: u64,
    /// Bytes that they took.
    pub bytes: u64,
    /// Bytes that states of files take now; 0 where it is not said.
    pub left: u64,
}
