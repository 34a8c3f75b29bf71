//! The model that a session has in plan mode.

use std::sync::Arc;

use quipu_protocol::{EpochPlan, FormerModel, Model, Thinking};
use quipu_providers::{Provider, clamp_level};
use quipu_transcript::plan_mode_of;

use super::PlanMode;
use crate::engine::SessionOptions;
use crate::models::{ModelLookupError, Models, PurposeModel, may_see, purpose_model};
use crate::resume::Past;

/// The purpose of the calls of a session in plan mode: its model is set in `purposeModels`.
pub const PLANS_PURPOSE: &str = "plans";

/// The model for plans, and what carries requests to it.
pub(crate) struct PlanRoute {
    pub(crate) model: Arc<Model>,
    pub(crate) provider: Arc<dyn Provider>,
    /// Its level of thinking, where it has one of its own.
    pub(crate) thinking: Option<Thinking>,
}

impl SessionOptions {
    /// Puts the model for plans in the place of the options' own, which it gives back.
    pub(crate) fn take_route(&mut self, route: &PlanRoute) -> (Arc<Model>, Arc<dyn Provider>) {
        self.thinking = clamp_level(&route.model, route.thinking.unwrap_or(self.thinking));
        let model = std::mem::replace(&mut self.model, route.model.clone());
        (model, std::mem::replace(&mut self.provider, route.provider.clone()))
    }
}

/// What the user set for plans. Looks at files, and may run a command.
pub(crate) async fn plan_model(
    models: Option<Arc<dyn Models>>,
) -> Result<Option<PurposeModel>, ModelLookupError> {
    purpose_model(models, PLANS_PURPOSE.to_owned()).await
}

/// Whether a session whose model is `own` uses what was found, and what people should know of it.
pub(crate) fn plan_route(
    found: Result<Option<PurposeModel>, ModelLookupError>,
    (own, carrier): (&Model, &dyn Provider),
) -> (Option<PlanRoute>, Option<String>) {
    let PurposeModel { model, provider, thinking } = match found {
        Ok(None) => return (None, None),
        Ok(Some(found)) => found,
        Err(error) => {
            let own = &own.id;
            let text = format!("The model set for `{PLANS_PURPOSE}` cannot be used, so {own} plans: {error}");
            return (None, Some(text));
        }
    };
    if !may_see(carrier, &*provider) {
        let (own, other) = (&own.id, &model.id);
        let text = format!("{own} runs on this machine and {other} does not, so {own} plans.");
        return (None, Some(text));
    }
    if (&own.provider, &own.id) == (&model.provider, &model.id) && thinking.is_none() {
        return (None, None);
    }
    let text = format!(
        "{}/{} plans (`purposeModels.{PLANS_PURPOSE}` in the settings); {} continues when plan mode ends.",
        model.provider, model.id, own.id
    );
    (Some(PlanRoute { model, provider, thinking }), Some(text))
}

/// What the lineage says of plan mode when a session is opened; with the model for plans where the session begins with that
/// one, and what people should know.
pub(crate) async fn epoch_plan(
    options: &SessionOptions,
    past: Option<&Past>,
    mode: &PlanMode,
) -> (Option<EpochPlan>, Option<PlanRoute>, Option<String>) {
    let recorded = past.and_then(|past| past.epoch.plan.as_ref());
    if !mode.is_on() {
        let was_on = past.is_some_and(|past| plan_mode_of(&past.messages) == Some(true));
        return ((recorded.is_some() || was_on).then(EpochPlan::default), None, None);
    }
    // Without a model to go back to, the one that it has is what somebody wanted in plan mode.
    let has_own = recorded.is_some_and(|plan| plan.on && plan.before.is_none());
    if has_own || options.planning.named_model {
        return (Some(EpochPlan { on: true, before: None }), None, None);
    }
    let found = plan_model(options.models.clone()).await;
    let (route, text) = plan_route(found, (&options.model, &*options.provider));
    let before = route.as_ref().map(|_| FormerModel {
        provider: options.model.provider.clone(),
        model: options.model.id.clone(),
        thinking: clamp_level(&options.model, options.thinking),
    });
    (Some(EpochPlan { on: true, before }), route, text)
}
