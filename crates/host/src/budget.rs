//! What may be spent in a day: what a person says, or `budget.daily` of the settings.

use quipu::Clock as _;
use quipu_protocol::Model;
use quipu_store::{Graph, StoreError};

use crate::{Advice, BudgetSettings, Failure, Home, ProblemKind, Source};

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
