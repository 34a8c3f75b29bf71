//! Time travel: what a model, or a person, may see of the graph, and where a session can be set.
//!
//! The tools of the model need the store and the place where their session stands, so they live here and not with the tools that
//! work on files. What they show is framed as archive, so that nobody takes it for something that is said now.

mod diff;
mod history;
mod life;
mod preview;
mod projects;
mod recall;
mod scope;
mod target;
#[cfg(test)]
mod tests;
mod text;
mod tobe;
mod tools;
mod trace;

use std::sync::{Arc, OnceLock};

use tokio::sync::watch;

use crate::subscribe::View;

pub(crate) use history::SearchHistory;
pub(crate) use projects::Projects;
pub(crate) use scope::Sight;
pub(crate) use tools::{Archive, LifeTool, Recall, TraceTool};

pub use diff::{BranchDiff, BranchSide, branch_diff};
pub use life::{Filter, Life, LifeLine, LifeQuery, life};
pub use recall::{Neighbours, RecallError, RecallQuery, Recalled, recall};
pub(crate) use target::Parts;
pub use target::{Illegal, LegalTarget, legal_target};
pub(crate) use text::{END, escaped, shortened};
pub use tobe::Travel;
pub(crate) use tobe::{CARRYOVER_LIMIT, Tobe, Trip, carryover, carryover_text, count_left, line_of, log_of};
pub use trace::{Carried, Trace, TraceFilter, TraceQuery, TraceScope, carried, row_text, trace};

/// Whether the model can look up what was said and done before. Off by default;
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

/// Where the session of a tool stands: known when the session is at work.
pub(crate) type Standing = Arc<OnceLock<watch::Receiver<View>>>;
