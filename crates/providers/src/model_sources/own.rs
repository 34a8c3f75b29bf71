//! The sources that are always there.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use quipu_protocol::Model;

use super::{ModelSource, ModelSourceError};

/// Models that are known already: those of the catalogue, of `models.json`, of servers on this machine.
pub(crate) struct OwnModels {
    pub(crate) name: &'static str,
    pub(crate) models: Vec<Arc<Model>>,
}

impl ModelSource for OwnModels {
    fn name(&self) -> &str {
        self.name
    }

    fn version(&self) -> u64 {
        0
    }

    fn models<'a>(&'a self) -> BoxFuture<'a, Result<Vec<Model>, ModelSourceError>> {
        Box::pin(async { Ok(self.models.iter().map(|model| Model::clone(model)).collect()) })
    }
}
