//! Where a session finds another model to go on with.

use std::sync::Arc;

use quipu_protocol::Model;
use quipu_providers::Provider;

/// The models that a session may go on with, for [`Command::Set`](quipu_protocol::Command::Set).
pub trait Models: Send + Sync + 'static {
    /// A model by its provider's id and its own, and what carries requests to it. May read files and run commands: it is
    /// called where that holds nothing up.
    ///
    /// # Errors
    /// Why it cannot be asked, for people.
    fn find(&self, provider: &str, id: &str) -> Result<(Arc<Model>, Arc<dyn Provider>), String>;
}
