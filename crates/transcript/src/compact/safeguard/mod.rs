//! The careful way to sum a conversation up: in which pieces it is read, what is asked of the summary, and what stands behind
//! it without a model. Pure: the engine makes the calls.

mod audit;
mod plan;
mod sections;

pub use audit::*;
pub use plan::*;
pub use sections::*;

/// Whether names that are hard to find again have to be in a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IdentifierRule {
    /// The summary is made again where one is missing, and what is missing then is added to it.
    #[default]
    Strict,
    /// Nobody looks.
    Off,
}

/// How a conversation is summed up in the careful way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Safeguard {
    /// The messages of so many of the user's last turns stand behind the summary word for word; 12 count at most.
    pub recent_turns: u64,
    /// So much of the model's window is read at once, in percent. What is older is summed up before.
    pub history_percent: u64,
    /// Whether identifiers have to be in it.
    pub identifiers: IdentifierRule,
    /// How often a summary that lacks something is made again; 3 count at most.
    pub quality_retries: u64,
    /// Seconds that all its calls may take together.
    pub timeout_seconds: u64,
    /// Milliseconds before a call that failed is made again; then doubled, up to 5 seconds.
    pub retry_ms: u64,
}

impl Default for Safeguard {
    fn default() -> Self {
        Self {
            recent_turns: 3,
            history_percent: 50,
            identifiers: IdentifierRule::Strict,
            quality_retries: 1,
            timeout_seconds: 900,
            retry_ms: 500,
        }
    }
}

impl Safeguard {
    /// Turns that stand behind the summary at most.
    pub const MOST_TURNS: u64 = 12;
    /// Times that a summary is made again at most.
    pub const MOST_RETRIES: u64 = 3;
}
