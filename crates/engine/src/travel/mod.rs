//! Time travel: the tools with which a model looks at the graph and goes to another point of its session.
//!
//! They need the store and the place where their session stands, so they live here and not with the tools that work on files;
//! what they show is made by `quipu-history`.

mod history;
#[cfg(test)]
mod tests;
mod tobe;
mod tools;

use std::sync::{Arc, OnceLock};

use tokio::sync::watch;

use crate::subscribe::View;

pub(crate) use history::SearchHistory;
pub(crate) use tools::{Archive, LifeTool, Recall, TraceTool};

pub use tobe::Travel;
pub(crate) use tobe::{PlannedJump, Tobe, carryover_text, log_of};

/// Whether the model can look up earlier sessions. Off by default;
/// [`of_json`](Self::of_json) has it on where settings do not say otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HistorySettings {
    /// Whether it has the tool `search_history`, over its session's directory and those below it, and `recall`, which
    /// reads what was found. A session that began without keeps what it sends: it is not offered there.
    pub enabled: bool,
}

/// Whether the model can look at the graph around it and go to earlier points of its session. Off by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TravelSettings {
    /// Whether it has the tools `life`, `trace` and `tobe`, and `recall` as well. A session that began without one keeps
    /// what it sends: it is not offered there.
    pub tools: bool,
}

/// The name of the tool that searches earlier sessions.
pub const SEARCH_TOOL: &str = SearchHistory::NAME;

/// Where the session of a tool stands: known when the session is at work.
pub(crate) type SessionView = Arc<OnceLock<watch::Receiver<View>>>;
