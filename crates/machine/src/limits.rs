//! Limits of a run.

use std::time::Duration;

use quipu_protocol::Limit;

use super::{Run, RunMoney};

/// Limits of one run, and of the runs that it goes on with elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Limits {
    /// Turns of the run at most; behind the last it ends with `Limit::Turns`. `None`: no limit.
    pub max_turns: Option<u32>,
    /// US dollars at most. Before each model call the most that it can cost must be left.
    pub max_cost: Option<f64>,
    /// US dollars at most that calls of all sessions of the store may cost in one calendar day of the engine's clock. Before each model call the most that it can cost is reserved in the store.
    pub daily_budget: Option<f64>,
    /// How long a call waits while only what others have reserved stands in its way; 30 seconds where nothing is said.
    pub wait: Option<Duration>,
}

impl Limits {
    /// What a run may still spend; calls beside the conversation are told apart, since some may be under way.
    pub(super) fn money(&self, run: &Run) -> Option<RunMoney> {
        self.max_cost.map(|limit| RunMoney { left: limit - run.cost, limit })
    }

    pub(super) fn reached(&self, run: &Run) -> Option<Limit> {
        let turns = run.before + run.turn;
        let turns = self.max_turns.filter(|max| turns >= *max).map(Limit::Turns);
        turns.or_else(|| self.max_cost.filter(|max| run.spent() >= *max).map(Limit::Cost))
    }
}
