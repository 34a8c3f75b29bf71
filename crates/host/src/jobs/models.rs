//! The models that jobs may ask.

use std::sync::Arc;

use quipu::{Limits, Runner, RunnerError, SessionOptions};
use quipu_store::Graph;

use crate::models::Known;
use crate::{Failure, Place, seal_credentials};

/// What asks models for jobs, made when one asks for the first time: the model that a new session would have, with the models of
/// the settings beside it, under the budget of the day. What it does is recorded in `store`, in sessions of their own, which
/// have no tools and work in the home directory of the store.
pub fn models_for_jobs(
    place: &Place,
    store: Arc<dyn Graph>,
) -> impl Fn() -> Result<Runner, RunnerError> + Send + Sync + 'static {
    let place = place.clone();
    move || {
        let missing = |failure: Failure| RunnerError::NoProvider { why: failure.to_string() };
        let settings = place.settings();
        let Some(model) = settings.default_model() else {
            return Err(RunnerError::NoProvider { why: "no credential of a model is known".into() });
        };
        let provider = settings.provider_for(&model, None).map_err(RunnerError::Model)?;
        let engine = place.engine(store.clone(), &settings).map_err(missing)?;
        seal_credentials(engine.sealer(), &settings);
        let budget = crate::budget::budget_of(&place, None).map_err(missing)?;
        let limits = Limits {
            daily_budget: budget.as_ref().map(|budget| budget.dollars),
            wait: budget.as_ref().and_then(|budget| budget.wait),
            ..Limits::default()
        };
        let known = Known {
            home: place.home.clone(),
            sources: place.sources().clone(),
            calls: place.config().calls.clone(),
            sealer: engine.sealer().clone(),
            key: None,
        };
        let models = Some(Arc::new(known) as Arc<dyn quipu::Models>);
        let options = SessionOptions::new(place.home.clone(), model, provider);
        Ok(engine.runner(SessionOptions { tools: Vec::new(), limits, models, ..options }))
    }
}
