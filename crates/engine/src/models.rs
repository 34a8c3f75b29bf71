//! Where a session finds another model to continue with.

use std::sync::Arc;

use quipu_protocol::{Model, ModelError, Thinking};
use quipu_providers::{FindError, Provider};

/// Why a session cannot continue with a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelLookupError {
    /// The session was opened without [`Models`].
    #[error("this session cannot switch to another model")]
    NoOthers,
    /// No model has this name, or several have.
    #[error(transparent)]
    NotFound(#[from] FindError),
    /// It is known and cannot be called, for example without a credential.
    #[error(transparent)]
    Unusable(#[from] ModelError),
    /// Looking it up failed.
    #[error("could not look up the model: {why}")]
    Failed {
        /// What happened.
        why: String,
    },
}

/// The models that a session may continue with, for [`Command::Set`](quipu_protocol::Command::Set).
pub trait Models: Send + Sync + 'static {
    /// A model by its provider's id and its own, and what carries requests to it. May read files and run commands: it is
    /// called where that holds nothing up.
    ///
    /// # Errors
    /// It is not known, or cannot be called.
    fn find(&self, provider: &str, id: &str) -> Result<(Arc<Model>, Arc<dyn Provider>), ModelLookupError>;

    /// The model for calls and child sessions of a purpose that name none: `compaction` and `branch_summary` for summaries,
    /// and those of [`RunnerPurpose`](crate::RunnerPurpose). `None`: the session's model. Called as [`Self::find`].
    ///
    /// # Errors
    /// As [`Self::find`].
    fn find_for(&self, purpose: &str) -> Result<Option<PurposeModel>, ModelLookupError> {
        let _ = purpose;
        Ok(None)
    }

    /// What people should know when the session goes on with a model, such as that it lacks something that they want.
    fn remarks(&self, model: &Model) -> Vec<String> {
        let _ = model;
        Vec::new()
    }

    /// [`find`](Self::find) by a name as settings have it: `provider/model`.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    fn find_named(&self, name: &str) -> Result<(Arc<Model>, Arc<dyn Provider>), ModelLookupError> {
        let Some((provider, id)) = name.split_once('/') else {
            let why = format!("{name} is not of the form provider/model");
            return Err(ModelLookupError::Failed { why });
        };
        self.find(provider, id)
    }
}

/// The model for calls of a purpose.
pub struct PurposeModel {
    /// The model.
    pub model: Arc<Model>,
    /// What carries requests to it.
    pub provider: Arc<dyn Provider>,
    /// Its level of thinking, where the user set one.
    pub thinking: Option<Thinking>,
}

impl std::fmt::Debug for PurposeModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = format_args!("{}/{}", self.model.provider, self.model.id);
        f.debug_struct("PurposeModel").field("model", &name).finish_non_exhaustive()
    }
}

/// The model that the user set for calls of a purpose.
pub(crate) async fn purpose_model(
    models: Option<Arc<dyn Models>>,
    purpose: String,
) -> Result<Option<PurposeModel>, ModelLookupError> {
    let Some(models) = models else { return Ok(None) };
    // It may read files, and run a command that knows a key.
    let found = tokio::task::spawn_blocking(move || models.find_for(&purpose)).await;
    found.unwrap_or_else(|error| Err(ModelLookupError::Failed { why: error.to_string() }))
}

/// Whether what a model carried by `own` may see can go to `other`: what may be meant for this machine alone stays on it.
pub(crate) fn may_see(own: &dyn Provider, other: &dyn Provider) -> bool {
    other.is_local() || !own.is_local()
}
