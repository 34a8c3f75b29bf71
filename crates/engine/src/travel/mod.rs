//! Time travel: what a model may see of the graph. `life`, `trace` and `tobe` will stand beside `recall` and
//! `search_history`.
//!
//! These tools need the store and the place where their session stands, so they live here and not with the tools that
//! work on files. What they show is framed as archive, so that nobody takes it for something that is said now.

mod history;
mod projects;
mod recall;
mod target;
#[cfg(test)]
mod tests;
mod text;
mod tobe;

use std::sync::{Arc, OnceLock};

use tokio::sync::watch;

use crate::subscribe::View;

pub(crate) use history::SearchHistory;
pub(crate) use projects::Projects;
pub(crate) use recall::Recall;
pub use target::{Illegal, LegalTarget, legal_target};
pub(crate) use text::{END, escaped, shortened};
pub use tobe::Travel;
pub(crate) use tobe::{CARRYOVER_LIMIT, Tobe, Trip, carryover, carryover_text, count_left, line_of, log_of};

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
    /// Whether it has the tools. A session that began without them keeps what it sends: they are not offered there.
    pub tools: bool,
}

/// Where the session of a tool stands: known when the session is at work.
pub(crate) type Standing = Arc<OnceLock<watch::Receiver<View>>>;
