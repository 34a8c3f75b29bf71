//! The models that jobs may ask.

use std::sync::Arc;

use quipu::{Limits, Runner, RunnerError, SessionOptions};
use quipu_store::Graph;

use crate::models::ModelFiles;
use crate::{Failure, Home, seal_credentials};

/// What asks models for jobs, made when one asks for the first time: the model that a new session would have, with the models of
/// the settings beside it, under the budget of the day. What it does is recorded in `store`, in sessions of their own, which
/// have no tools and work in the home directory of the store.
pub fn models_for_jobs(
    home: &Home,
    store: Arc<dyn Graph>,
) -> impl Fn() -> Result<Runner, RunnerError> + Send + Sync + 'static {
    let home = home.clone();
    move || {
        let missing = |failure: Failure| RunnerError::NoProvider { why: failure.to_string() };
        let settings = home.settings();
        let Some(model) = settings.default_model() else {
            return Err(RunnerError::NoProvider { why: "no model has a credential".into() });
        };
        let provider = settings.provider_for(&model, None).map_err(RunnerError::Model)?;
        let engine = home.engine(store.clone(), &settings).map_err(missing)?;
        seal_credentials(engine.sealer(), &settings);
        let budget = crate::budget::budget_of(&home, None).map_err(missing)?;
        let limits = Limits {
            daily_budget: budget.as_ref().map(|budget| budget.dollars),
            wait: home.config().budget.wait,
            ..Limits::default()
        };
        let known = ModelFiles {
            home: home.dir.clone(),
            sources: home.sources().clone(),
            calls: home.config().calls.clone(),
            sealer: engine.sealer().clone(),
            key: None,
            kept_key: None,
            purposes: home.config().purpose_models.clone(),
        };
        let models = Some(Arc::new(known) as Arc<dyn quipu::Models>);
        let options = SessionOptions::new(home.dir.clone(), model, provider);
        Ok(engine.runner(SessionOptions { tools: Vec::new(), limits, models, ..options }))
    }
}
