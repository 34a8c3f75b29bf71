//! What this program asks models for in the background.

/// The purpose of what a dream asks.
pub const DREAM_PURPOSE: &str = "dream";
/// The purpose of what is noted before a compaction. It belongs to the session that is compacted: without an amount it is not
/// limited, with 0 nothing is noted.
pub const FLUSH_PURPOSE: &str = "memory-flush";
