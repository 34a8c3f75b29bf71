//! Where a session finds another model to continue with.

use std::sync::Arc;

use quipu_protocol::{Model, ModelError};
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

    /// The same by a name as settings have it: `provider/model`.
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
