//! Finds the model that continues a run in place of one that failed.

use std::sync::Arc;

use quipu_machine::{FallbackRequest, FallbackResult, MachineInput};
use quipu_protocol::Model;
use quipu_providers::Provider;

use super::task::Task;
use super::{FoundFallback, ModelRoute};
use crate::mailbox;
use crate::models::{Models, may_see};

/// Names of a list of models that count.
pub const MOST_FALLBACKS: usize = 8;

impl Task {
    /// Looks for the next model that can be called.
    pub(super) fn find_fallback(&mut self, request: FallbackRequest) {
        let current = (self.machine.model().clone(), self.caller.provider());
        let own = current.1.clone();
        if !self.left.iter().any(|(model, _)| Arc::ptr_eq(model, &current.0)) {
            self.left.push(current);
        }
        let (found, _) = self.found_fallbacks.get_or_insert_with(|| mailbox::channel(1));
        let (models, names, found) = (self.models.clone(), self.fallbacks.clone(), found.clone());
        self.effects.spawn(async move {
            let run = request.run.clone();
            // It may read files, and run a command that knows a key.
            let search =
                tokio::task::spawn_blocking(move || search(models.as_deref(), &names, &request, &*own));
            let (result, route) = search.await.unwrap_or_else(|_| {
                let notes = vec!["Looking for another model failed; this is a bug.".to_owned()];
                (FallbackResult { next: MOST_FALLBACKS, model: None, notes }, None)
            });
            // The task is gone only when the session is over.
            drop(found.send(FoundFallback { run, result, route }).await);
        });
    }

    /// The search is over.
    pub(super) fn fallback_found(&mut self, found: FoundFallback) {
        let FoundFallback { run, result, route } = found;
        self.chosen.extend(route);
        self.take(MachineInput::FallbackFound(run, result));
    }

    /// What carries requests to a model that was left for another one.
    pub(super) fn left_route(&self, model: &Arc<Model>) -> Option<Arc<dyn Provider>> {
        let route = self.left.iter().find(|(left, _)| Arc::ptr_eq(left, model));
        route.map(|(_, provider)| provider.clone())
    }
}

/// The first name, from the request's on, of a model that can be called and did not fail in this run.
fn search(
    models: Option<&dyn Models>,
    names: &[String],
    request: &FallbackRequest,
    own: &dyn Provider,
) -> (FallbackResult, Option<ModelRoute>) {
    let mut result = FallbackResult { next: names.len(), ..FallbackResult::default() };
    let Some(models) = models else { return (result, None) };
    for (at, name) in names.iter().enumerate().skip(request.from) {
        let (model, provider) = match models.find_named(name) {
            Ok(found) => found,
            Err(error) => {
                result.notes.push(format!("The fallback model {name} cannot be used: {error}"));
                continue;
            }
        };
        let is_same = |tried: &Arc<Model>| tried.provider == model.provider && tried.id == model.id;
        if request.tried.iter().any(is_same) {
            continue;
        }
        if !may_see(own, &*provider) {
            result.notes.push(format!(
                "The fallback model {name} is not used: it is not on this machine, as the session's model is."
            ));
            continue;
        }
        result.notes.extend(models.remarks(&model));
        result.next = at + 1;
        result.model = Some(model.clone());
        return (result, Some((model, provider)));
    }
    (result, None)
}
