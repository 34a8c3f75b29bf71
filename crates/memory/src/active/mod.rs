//! Active memory: before a run begins, what is remembered of its prompt stands beside it.
//!
//! A search finds it. Where that does not settle it and the user wants so, a model is asked in a bounded session of its own. What
//! is added is quoted, declared untrusted, and stored with the prompt.

mod frame;
mod gate;
mod hook;
mod query;
mod standing;

use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::AuthorClass;

pub use frame::{framed, summary_of};
pub use gate::{Breaker, RecallCache};
pub use hook::ActiveMemory;
pub use query::{RecentTurns, coverage, said, search_query, without_quotes};

/// The name of the step, and the purpose of its model calls.
pub const ACTIVE_MEMORY: &str = "active-memory";
/// Hits of a search that are looked at.
pub const ACTIVE_HITS: usize = 6;
/// Hits that are added at most.
pub const ACTIVE_ADDED: usize = 3;
/// Characters of one that is added.
pub const ACTIVE_HIT_CHARACTERS: usize = 300;

/// How much is done before a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ActiveMode {
    /// Nothing.
    Off,
    /// A search, without a model.
    #[default]
    Search,
    /// A search, and a model where that finds nothing that clearly fits.
    Escalate,
    /// Always a model.
    Always,
}

impl ActiveMode {
    /// Its name in the settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Search => "search",
            Self::Escalate => "escalate",
            Self::Always => "always",
        }
    }
}

/// How active memory works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveOptions {
    /// How much is done.
    pub mode: ActiveMode,
    /// How long all of it may take.
    pub deadline: Duration,
    /// Characters of a model's summary at most.
    pub summary: usize,
    /// How long what was found for a prompt counts for the same one.
    pub cache: Duration,
    /// Timeouts in a row before nothing is tried for a while.
    pub timeouts: u32,
    /// How long that while is.
    pub cooldown: Duration,
}

impl Default for ActiveOptions {
    fn default() -> Self {
        Self {
            mode: ActiveMode::Search,
            deadline: Duration::from_secs(15),
            summary: 220,
            cache: Duration::from_secs(15),
            timeouts: 3,
            cooldown: Duration::from_secs(60),
        }
    }
}

/// Something that is remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveHit {
    /// Where it stands: the lines of a file, or a node.
    pub source: String,
    /// What it says.
    pub text: String,
    /// Who wrote it.
    pub author: AuthorClass,
}

/// What is remembered of a prompt: hits, or what a model says of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recollection {
    /// The best first.
    pub hits: Vec<ActiveHit>,
    /// What a model says.
    pub summary: Option<String>,
}

/// Why a search has no answer, for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ActiveSearchError(pub String);

/// What a session of a model may cost.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ActiveBudget {
    /// US dollars that it may cost now; 0 for models that cost nothing alone.
    pub left: f64,
    /// US dollars of a day, of which what each call may cost is reserved, so that all processes together stay within them; `None`
    /// where nothing is left.
    pub daily: Option<f64>,
}

/// Searches what is remembered, for the session that it is made for.
pub trait ActiveSearch: Send + Sync + 'static {
    /// The best hits first, at most `limit`, and none of the session itself.
    fn search<'a>(
        &'a self,
        session: &'a str,
        query: &'a str,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<ActiveHit>, ActiveSearchError>>;

    /// What a session of a model may cost now.
    fn budget(&self) -> BoxFuture<'_, ActiveBudget> {
        Box::pin(std::future::ready(ActiveBudget::default()))
    }
}
