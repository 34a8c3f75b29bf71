//! Limits of a run.

use quipu_protocol::Limit;

use super::Run;

/// Limits of one run, and of the runs that it goes on with elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Limits {
    /// Turns at most.
    pub max_turns: Option<u32>,
    /// US dollars at most; checked before each model call.
    pub max_cost: Option<f64>,
    /// US dollars at most that calls of all sessions of the store may cost in one calendar day of the clock
    /// ([`Clock::day_of`](crate::Clock::day_of)). Checked before each model call against what is stored by then, so
    /// that it can be exceeded by what the calls under way cost and no more.
    pub daily_budget: Option<f64>,
}

impl Limits {
    pub(super) fn reached(&self, run: &Run) -> Option<Limit> {
        let turns = run.before + run.turn;
        let turns = self.max_turns.filter(|max| turns >= *max).map(Limit::Turns);
        turns.or_else(|| self.max_cost.filter(|max| run.cost >= *max).map(Limit::Cost))
    }
}
