//! Models for a session that may spend nothing.

use std::sync::Arc;

use quipu::{ModelLookupError, Models, Provider, PurposeModel};
use quipu_protocol::Model;
use quipu_providers::net::{Url, is_loopback};

use crate::Failure;

/// US dollars that such a session may cost: less than any call with a price.
pub(crate) const NOTHING: f64 = 1e-6;

/// Which models a session may call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CallPrices {
    /// All.
    #[default]
    Any,
    /// Those whose calls cost nothing: not as fallbacks, for purposes or for sub-agents either.
    OnlyFree,
}

/// Whether a call of the model can cost money: where its price is not known, only one on this machine cannot.
pub fn may_cost(model: &Model) -> bool {
    if model.cost.are_known() {
        return model.cost.most(1_000_000, 1_000_000, true) > 0.0;
    }
    !Url::parse(&model.base_url).ok().and_then(|url| url.host_str().map(is_loopback)).unwrap_or(false)
}

/// What to say of a model that is not free.
fn refusal(model: &Model) -> String {
    format!("the job has no budget, and {}/{} is not free; give the job a budget", model.provider, model.id)
}

/// Whether a session that may spend nothing may have this model.
///
/// # Errors
/// When its calls can cost money.
pub(crate) fn check_free(model: &Model) -> Result<(), Failure> {
    if may_cost(model) { Err(Failure::request(refusal(model))) } else { Ok(()) }
}

/// Those of other models that are free.
pub(crate) struct FreeModels(pub(crate) Arc<dyn Models>);

impl FreeModels {
    fn checked(
        found: (Arc<Model>, Arc<dyn Provider>),
    ) -> Result<(Arc<Model>, Arc<dyn Provider>), ModelLookupError> {
        if may_cost(&found.0) {
            return Err(ModelLookupError::Failed { why: refusal(&found.0) });
        }
        Ok(found)
    }
}

impl Models for FreeModels {
    fn find(&self, provider: &str, id: &str) -> Result<(Arc<Model>, Arc<dyn Provider>), ModelLookupError> {
        self.0.find(provider, id).and_then(Self::checked)
    }

    fn find_for(&self, purpose: &str) -> Result<Option<PurposeModel>, ModelLookupError> {
        // The session's own model is free.
        Ok(self.0.find_for(purpose)?.filter(|found| !may_cost(&found.model)))
    }

    fn remarks(&self, model: &Model) -> Vec<String> {
        self.0.remarks(model)
    }

    fn find_named(&self, name: &str) -> Result<(Arc<Model>, Arc<dyn Provider>), ModelLookupError> {
        self.0.find_named(name).and_then(Self::checked)
    }
}
