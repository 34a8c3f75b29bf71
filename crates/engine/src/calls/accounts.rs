//! The budgets of agents and jobs that calls count for, as values.

use std::sync::Arc;

use quipu_protocol::{BudgetHolder, BudgetUnit};
use quipu_store::ReserveId;

/// What all calls of an agent or of a job may use in one calendar day of the engine's clock.
#[derive(Debug, Clone, PartialEq)]
pub struct AccountBudget {
    /// Whose budget it is.
    pub holder: BudgetHolder,
    /// The id of the agent, or the key of the job.
    pub name: Arc<str>,
    /// US dollars; `None` for no limit.
    pub dollars: Option<f64>,
    /// Tokens of input, of answers and of caches; `None` for no limit.
    pub tokens: Option<u64>,
}

/// Of whose budgets the calls of a session are.
pub trait Accounts: Send + Sync + 'static {
    /// Those of the next call. Asked before each, so that another amount holds from then on.
    fn budgets(&self) -> Vec<AccountBudget>;
}

impl Accounts for Vec<AccountBudget> {
    fn budgets(&self) -> Vec<AccountBudget> {
        self.clone()
    }
}

/// What was used of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct AccountUse {
    /// US dollars; 0 where they have no limit.
    pub dollars: f64,
    /// Tokens; 0 where they have no limit.
    pub tokens: u64,
}

/// A budget in one unit.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct AccountAmount {
    pub(super) holder: BudgetHolder,
    pub(super) name: Arc<str>,
    pub(super) unit: BudgetUnit,
    /// How the store names it.
    pub(super) account: String,
    /// In billionths of a US dollar, or in tokens.
    pub(super) limit: i64,
}

/// What is reserved of an account for the call under way.
#[derive(Debug)]
pub(super) struct HeldAmount {
    pub(super) account: String,
    pub(super) unit: BudgetUnit,
    pub(super) id: ReserveId,
}

/// What a call may use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Allowance {
    /// In billionths of a US dollar.
    pub(super) amount: i64,
    /// Tokens of the answer.
    pub(super) output: u64,
}

/// What a call used.
#[derive(Debug, Clone, Copy)]
pub(super) struct UsedAmounts {
    /// In billionths of a US dollar.
    pub(super) dollars: i64,
    pub(super) tokens: i64,
}

impl AccountAmount {
    pub(super) fn is_money(&self) -> bool {
        self.unit == BudgetUnit::Dollars
    }
}
