//! Permission rules: their language, and what they say of commands, paths, hosts and tools. Pure: it reads no file, asks
//! nobody and knows no session; what a true path is it is told.

mod host;
mod judge;
mod pattern;
mod programs;
mod propose;
mod read_only;
mod rule;
mod run_files;
mod shell;

pub use host::{Host, is_private};
pub use judge::{FileAccess, Judgement, PartJudgement, Place, RuleSet, Verdict};
pub use read_only::{WritingPart, read_only};
pub use rule::{Effect, RULE_LIMIT, Rule, RuleError};
pub use run_files::{RunFiles, ScriptWord, run_files};
