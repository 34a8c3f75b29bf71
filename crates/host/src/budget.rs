//! What may be spent in a day: what a person says, or `budget.daily` of the settings.

use std::sync::Arc;

use quipu::{AccountBudget, Accounts, Clock as _};
use quipu_protocol::{BudgetHolder, Model};
use quipu_store::{Graph, StoreError};

use crate::settings::EVERY_AGENT;
use crate::{Advice, AgentBudget, BudgetSettings, Failure, Home, OpenRequest, Problem, ProblemKind, Source};

/// A limit, and where it is set.
#[derive(Debug, Clone, PartialEq)]
pub struct Budget {
    /// US dollars a calendar day.
    pub dollars: f64,
    /// What says so; `None` where it was given for this run.
    pub source: Option<Source>,
}

/// The budget of a task: what was `given` beats the settings. What cannot be read stops a task instead of letting it spend.
///
/// # Errors
/// When it cannot be read.
pub fn budget_of(home: &Home, given: Option<f64>) -> Result<Option<Budget>, Failure> {
    let settings = home.config();
    let BudgetSettings { daily, .. } = settings.budget;
    if let Some(dollars) = given {
        return Ok(Some(Budget { dollars, source: None }));
    }
    let wrong = settings.problems.iter().find(|problem| match &problem.kind {
        // Whoever set no budget there misses none.
        _ if problem.is_of_the_whole() => home.settings_mention("budget"),
        ProblemKind::NotAnObject(name) => name == "budget",
        ProblemKind::Invalid { key, .. } => key.starts_with("budget."),
        _ => false,
    });
    match (daily, wrong) {
        // It is that of before, or of the environment.
        (Some(dollars), _) => {
            Ok(Some(Budget { dollars, source: settings.source_of("budget.daily").cloned() }))
        }
        (None, None) => Ok(None),
        (None, Some(problem)) if problem.is_of_the_whole() => {
            let text = format!("{}: it cannot be read, so the daily budget is unknown", problem.source);
            Err(Failure::failed(text).advise(Advice::SetBudget))
        }
        (None, Some(problem)) => Err(Failure::failed(problem.to_string()).advise(Advice::SetBudget)),
    }
}

/// What an agent may use in a day, where the settings say so.
#[must_use]
pub fn agent_budget(home: &Home, id: &str) -> Option<AccountBudget> {
    let config = home.config();
    match config.named_agent(id) {
        Some(agent) => account_of(id, agent.budget),
        // Where nothing of the file can be read, it may have one.
        None if config.problems.iter().any(Problem::is_of_the_whole) && home.settings_mention("budget") => {
            account_of(id, AgentBudget { daily: Some(0.0), daily_tokens: None })
        }
        None => None,
    }
}

/// The budgets of all agents that have one.
#[must_use]
pub fn agent_budgets(home: &Home) -> Vec<AccountBudget> {
    let config = home.config();
    config
        .named_agents
        .iter()
        .filter(|(id, _)| *id != EVERY_AGENT)
        .filter_map(|(id, agent)| account_of(id, agent.budget))
        .collect()
}

fn account_of(id: &str, budget: AgentBudget) -> Option<AccountBudget> {
    let AgentBudget { daily, daily_tokens } = budget;
    let is_limited = daily.is_some() || daily_tokens.is_some();
    let (holder, dollars, tokens) = (BudgetHolder::Agent, daily, daily_tokens);
    is_limited.then(|| AccountBudget { holder, name: id.into(), dollars, tokens })
}

/// The budgets that the calls of a session count for.
struct SessionAccounts {
    home: Home,
    /// The settings say what it may use, at each call.
    agent: Option<String>,
    others: Vec<AccountBudget>,
}

impl Accounts for SessionAccounts {
    fn budgets(&self) -> Vec<AccountBudget> {
        let agent = self.agent.as_ref().and_then(|id| agent_budget(&self.home, id));
        agent.into_iter().chain(self.others.iter().cloned()).collect()
    }
}

/// The budgets that the calls of a session count for; `None` where it can have none.
pub(crate) fn accounts_of(home: &Home, request: &OpenRequest) -> Option<Arc<dyn Accounts>> {
    let (agent, others) = (request.audience.agent.clone(), request.accounts.clone());
    let has_any = agent.is_some() || !others.is_empty();
    has_any.then(|| Arc::new(SessionAccounts { home: home.clone(), agent, others }) as Arc<dyn Accounts>)
}

/// US dollars that the calls of a store cost since midnight, and what else they may have cost.
///
/// # Errors
/// What the store says.
pub async fn spent_today(store: &dyn Graph) -> Result<(f64, f64), StoreError> {
    let clock = quipu::SystemClock;
    let now = clock.now();
    let today = clock.day_of(now);
    Ok((store.spent(today).await?, store.assumed(today, now).await?))
}

/// What to say of a model of this machine whose calls a limit on money cannot count; one elsewhere is refused.
pub(crate) fn unpriced(model: &Model) -> Option<String> {
    (!model.cost.are_known()).then(|| {
        format!(
            "the price of {}/{} is unknown, so its calls count as $0; set `cost` in models.json",
            model.provider, model.id
        )
    })
}
