//! Limits that the user set: of a run, of a day, of an agent or a job.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::UnixMs;

/// A limit that the user set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Limit {
    /// Largest number of turns that one run may have.
    Turns(u32),
    /// US dollars of one run.
    Cost(f64),
    /// US dollars of one calendar day, over all sessions of the store.
    Daily {
        /// US dollars spent today.
        spent: f64,
        /// US dollars that may be spent in one day.
        budget: f64,
    },
    /// What an agent or a job may use in one calendar day.
    Account(AccountLimit),
}

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

/// In words, where nothing says it in words of its own.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Turns(turns) => write!(f, "the run had {turns} turns, which is its limit"),
            Self::Cost(limit) => {
                write!(f, "the budget of {} for the run leaves too little for the next call", dollars(*limit))
            }
            Self::Daily { spent, budget } => write!(
                f,
                "the daily budget leaves too little for the next call: {} of {} used today (`budget.daily` in the settings, or what was given in its place)",
                dollars(*spent),
                dollars(*budget)
            ),
            Self::Account(limit) => limit.fmt(f),
        }
    }
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
        assert_eq!(crate::Limit::Account(job.clone()).to_string(), text);
        let read: AccountLimit = serde_json::from_str(&serde_json::to_string(&job).unwrap()).unwrap();
        assert_eq!(read, job);
    }

    #[test]
    fn limits_of_runs_and_days_have_words_too() {
        let text = |limit: Limit| limit.to_string();
        assert_eq!(text(Limit::Turns(7)), "the run had 7 turns, which is its limit");
        let cost = text(Limit::Cost(0.05));
        assert_eq!(cost, "the budget of $0.0500 for the run leaves too little for the next call");
        let daily = text(Limit::Daily { spent: 1.5, budget: 2.0 });
        assert!(daily.contains("$1.50 of $2.00") && daily.contains("`budget.daily`"), "{daily}");
    }
}
