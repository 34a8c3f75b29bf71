//! Which state of a store an answer is of.

/// A state of a store: two that are equal had the same answers. After a commit, and once more nodes are indexed, it is another
/// one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Revision(pub(crate) [i64; 6]);
