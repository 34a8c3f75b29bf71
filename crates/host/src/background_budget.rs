//! What models may cost in the background: an amount for each purpose and day, 0 until a person sets one.

use std::time::Duration;

use quipu::{Clock as _, SystemClock};
use quipu_store::{Graph, UsageGrouping, UsageQuery};
use tokio::time::Instant;

use crate::{Failure, Home};

/// How long to wait for nodes that were written a moment ago to be counted.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often to look, at least.
const LOOK: Duration = Duration::from_millis(100);

/// The money of a purpose, today.
#[derive(Debug, Clone, PartialEq)]
pub struct BackgroundBudget {
    /// US dollars a day.
    pub limit: f64,
    /// US dollars that calls of this purpose cost since midnight.
    pub spent: f64,
}

impl BackgroundBudget {
    /// US dollars that a call may cost now; `None` where it may not be made.
    #[must_use]
    pub fn left(&self) -> Option<f64> {
        Some(self.limit - self.spent).filter(|left| *left > 0.0)
    }
}

/// Whether a person said what the purpose may cost.
#[must_use]
pub fn has_background_budget(home: &Home, purpose: &str) -> bool {
    home.config().budget.background.contains_key(purpose)
}

/// What a purpose may still cost today. To be asked before each call.
///
/// # Errors
/// What the store says: what is not known is not spent.
pub async fn background_budget(
    home: &Home,
    store: &dyn Graph,
    purpose: &str,
) -> Result<BackgroundBudget, Failure> {
    let limit = home.config().budget.background.get(purpose).copied().unwrap_or(0.0);
    if limit <= 0.0 {
        return Ok(BackgroundBudget { limit: 0.0, spent: 0.0 });
    }
    let today = SystemClock.day_of(SystemClock.now());
    let began = Instant::now();
    let known = loop {
        let changed = store.changed();
        let query = UsageQuery { by: UsageGrouping::Purpose, since: Some(today), until: None };
        let known = store.usage(query).await?;
        if known.behind == 0 {
            break known;
        }
        if began.elapsed() >= PATIENCE {
            return Err(Failure::failed(format!(
                "the cost of the newest {} nodes is not counted yet, so nothing is spent in the background now",
                known.behind
            )));
        }
        // A store that is closed says so with the next question.
        tokio::time::timeout(LOOK, changed).await.ok();
    };
    let spent = known.found.iter().filter(|sum| sum.key == purpose).map(|sum| sum.cost).sum();
    Ok(BackgroundBudget { limit, spent })
}
