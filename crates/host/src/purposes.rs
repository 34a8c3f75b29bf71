//! What this program asks models for in the background.

/// The purpose of what a dream asks.
pub const DREAM_PURPOSE: &str = "dream";
/// The purpose of summaries of the past. Without an amount they are made of sentences of their sources.
pub const PAST_PURPOSE: &str = "past";
/// The purpose of what is noted before a compaction. Nobody asked for that call, so it is in the background: without an amount
/// nothing is noted.
pub const FLUSH_PURPOSE: &str = "memory-flush";
/// The purpose of questions about a past that a person has asked to prove it.
pub const PROOF_PURPOSE: &str = "past-proof";
