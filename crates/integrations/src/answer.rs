//! What a call is answered with.

use std::sync::Arc;

use quipu_history::{Projects, Sight};
use quipu_seal::Sealer;
use quipu_store::{Graph, StoreError};

use crate::hook_call::Occasion;
use crate::seen::SeenPassages;
use crate::view::{HookAnswer, HookRequest, View};
use crate::{before_edit, beside_prompt, failure, start};

/// Why a call has no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// The store failed.
    #[error("the store could not be read: {0}")]
    Store(#[from] StoreError),
}

/// Reads the graph for calls of hooks.
pub struct HookReader {
    store: Arc<dyn Graph>,
    sealer: Arc<Sealer>,
}

impl HookReader {
    /// Over a store. The sealer replaces secrets in what is searched for: the store knows them by their placeholders.
    pub fn new(store: Arc<dyn Graph>, sealer: Arc<Sealer>) -> Self {
        Self { store, sealer }
    }

    /// The answer; `None` where there is nothing to say. What could be said already if there were no time for more goes to
    /// `offer`.
    ///
    /// # Errors
    /// The store failed.
    pub async fn answer(
        &self,
        request: &HookRequest,
        seen: &SeenPassages,
        offer: &(dyn Fn(HookAnswer) + Sync),
    ) -> Result<Option<HookAnswer>, AnswerError> {
        // Where everything lies below, nothing is a project.
        if request.directory.parent().is_none() {
            return Ok(None);
        }
        let mut projects = vec![request.directory.to_string_lossy().into_owned()];
        let shown = Projects::new(projects[0].clone());
        if request.spelled.is_absolute() && request.spelled != request.directory {
            let spelled = request.spelled.to_string_lossy().into_owned();
            shown.permit(&spelled);
            projects.push(spelled);
        }
        let sight = Sight::Project { projects: Arc::new(shown), head: Arc::new(|| None) };
        let view = View { store: &*self.store, sealer: &self.sealer, request, projects, sight, seen };
        Ok(match &request.occasion {
            Occasion::Start => start::text(&view).await?,
            Occasion::Prompt(prompt) => beside_prompt::text(&view, prompt).await?,
            Occasion::Edit(targets) => before_edit::text(&view, targets, offer).await?,
            Occasion::Failure(command) => failure::text(&view, command).await?,
            Occasion::TurnEnd | Occasion::None => None,
        })
    }
}
