//! Budgets of single agents and jobs for a day.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::UnixMs;

/// Whose budget it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum BudgetHolder {
    /// An agent, with all of its sessions.
    Agent,
    /// A job, with all of its runs.
    Job,
}

/// What a budget counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum BudgetUnit {
    /// US dollars.
    Dollars,
    /// Tokens of input, of answers and of caches.
    Tokens,
}

/// What an agent or a job may use in one calendar day, where the next call does not fit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AccountLimit {
    /// Whose budget it is.
    pub holder: BudgetHolder,
    /// The id of the agent, or the key of the job.
    pub name: String,
    /// What it counts.
    pub unit: BudgetUnit,
    /// What was used of it today.
    pub spent: f64,
    /// What may be used in one day.
    pub budget: f64,
    /// When the next day begins, in milliseconds since 1970.
    pub resets: UnixMs,
}

impl BudgetHolder {
    /// The holder in text and in names: `agent` or `job`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Job => "job",
        }
    }
}

impl BudgetUnit {
    /// An amount out of another one: `$1.20 of $2.50`, `300 of 1000 tokens`.
    #[must_use]
    pub fn share(self, spent: f64, budget: f64) -> String {
        match self {
            Self::Dollars => format!("{} of {}", dollars(spent), dollars(budget)),
            Self::Tokens => format!("{spent:.0} of {budget:.0} tokens"),
        }
    }
}

/// Small amounts by four digits.
fn dollars(amount: f64) -> String {
    if amount > 0.0 && amount < 0.1 { format!("${amount:.4}") } else { format!("${amount:.2}") }
}

impl fmt::Display for AccountLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { holder, name, unit, spent, budget, resets: _ } = self;
        let holder = holder.word();
        if *budget <= 0.0 {
            write!(f, "the {holder} `{name}` may call no model: its daily budget is 0, or cannot be read")?;
            return match self.setting() {
                Some(setting) => write!(f, " (`{setting}` in the settings)"),
                None => Ok(()),
            };
        }
        let used = unit.share(*spent, *budget);
        write!(f, "the daily budget of the {holder} `{name}` leaves too little for the next call: {used} ")?;
        write!(f, "used today; it begins anew at midnight")?;
        match self.setting() {
            Some(setting) => write!(f, " (`{setting}` in the settings)"),
            None => write!(f, " (the daily budget of the job changes it)"),
        }
    }
}

impl AccountLimit {
    /// The setting that says how much it is; none for a job, which says so itself.
    #[must_use]
    pub fn setting(&self) -> Option<String> {
        let member = match self.unit {
            BudgetUnit::Dollars => "daily",
            BudgetUnit::Tokens => "dailyTokens",
        };
        match self.holder {
            BudgetHolder::Agent => Some(format!("agents.byId.{}.budget.{member}", self.name)),
            BudgetHolder::Job => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_names_the_holder_the_amounts_and_the_setting() {
        let limit = AccountLimit {
            holder: BudgetHolder::Agent,
            name: "ops".into(),
            unit: BudgetUnit::Dollars,
            spent: 1.204,
            budget: 2.5,
            resets: 1_795_993_200_000,
        };
        assert_eq!(
            limit.to_string(),
            "the daily budget of the agent `ops` leaves too little for the next call: $1.20 of $2.50 used today; it begins anew at midnight (`agents.byId.ops.budget.daily` in the settings)"
        );
        let job = AccountLimit { holder: BudgetHolder::Job, unit: BudgetUnit::Tokens, spent: 300.0, ..limit };
        let text = job.to_string();
        assert!(text.contains("of the job `ops`") && text.contains("300 of 2 tokens"), "{text}");
        let read: AccountLimit = serde_json::from_str(&serde_json::to_string(&job).unwrap()).unwrap();
        assert_eq!(read, job);
    }
}
