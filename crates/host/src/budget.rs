//! What may be spent in a day: what a person says, or `budget.daily` in `settings.json`.

use std::path::PathBuf;
use std::time::Duration;

use quipu::Clock as _;
use quipu_protocol::Model;
use quipu_store::{Graph, StoreError};

use crate::{Advice, Failure, Place};

/// A limit, and where it is set.
#[derive(Debug, Clone, PartialEq)]
pub struct Budget {
    /// US dollars a calendar day.
    pub dollars: f64,
    /// How long a call waits for what other calls have reserved.
    pub wait: Option<Duration>,
    /// The file that says so; `None` where it was given for this run.
    pub source: Option<PathBuf>,
}

/// The budget of a task: what was `given` beats the file. What cannot be read stops a task instead of letting it spend.
///
/// # Errors
/// When it cannot be read.
pub fn budget_of(place: &Place, given: Option<f64>) -> Result<Option<Budget>, Failure> {
    if let Some(dollars) = given {
        let wait = place.settings_json().ok().and_then(|settings| {
            Some(Duration::from_millis(settings.get("budget")?.get("waitMs")?.as_u64()?))
        });
        return Ok(Some(Budget { dollars, wait, source: None }));
    }
    let path = place.home.join("settings.json");
    let failed = |why: &str| Failure::failed(format!("{}: {why}", path.display())).advise(Advice::SetBudget);
    let settings = match place.settings_json() {
        Ok(settings) => settings,
        // Whoever set no budget there misses none.
        Err(Some(text)) if !text.contains("budget") => return Ok(None),
        Err(_) => return Err(failed("it cannot be read, so what may be spent is not known")),
    };
    let daily = match settings.get("budget") {
        None | Some(serde_json::Value::Null) => return Ok(None),
        Some(serde_json::Value::Object(budget)) => budget,
        Some(_) => return Err(failed("budget must be an object, such as {\"daily\": 5}")),
    };
    let wait = match daily.get("waitMs") {
        None | Some(serde_json::Value::Null) => None,
        Some(value) => match value.as_u64() {
            Some(millis) => Some(Duration::from_millis(millis)),
            None => return Err(failed("budget.waitMs must be a number of milliseconds, such as 30000")),
        },
    };
    match daily.get("daily") {
        None | Some(serde_json::Value::Null) => Ok(None),
        Some(value) => match value.as_f64().filter(|dollars| *dollars > 0.0) {
            Some(dollars) => Ok(Some(Budget { dollars, wait, source: Some(path.clone()) })),
            None => Err(failed("budget.daily must be an amount in US dollars above 0, such as 5")),
        },
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
            "no price is known of {}/{}, so its calls count as $0; `cost` in models.json gives one",
            model.provider, model.id
        )
    })
}
