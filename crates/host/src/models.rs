//! Another model for a session that is open.

use std::path::PathBuf;
use std::sync::Arc;

use quipu::{ModelLookupError, Models, Provider, Sealer};
use quipu_protocol::Model;
use quipu_providers::{Selection, Settings};

use crate::{env, seal_credentials};

/// What the user's files say when another model is asked for.
pub(crate) struct Known {
    pub(crate) home: PathBuf,
    pub(crate) sealer: Arc<Sealer>,
    /// The key that was given on the command line, and the provider that it is for.
    pub(crate) key: Option<(String, String)>,
}

impl Models for Known {
    fn find(&self, provider: &str, id: &str) -> Result<(Arc<Model>, Arc<dyn Provider>), ModelLookupError> {
        // What is wrong with the files was told when the session was opened.
        let (settings, _) = Settings::load(&self.home, &env);
        let settings = settings.with_shell(crate::helpers::shell(&self.home));
        let found = settings.find(None, &format!("{provider}/{id}"))?;
        let Selection { model, .. } = found;
        let key = self.key.as_ref().filter(|(of, _)| *of == model.provider).map(|(_, key)| key.as_str());
        let carries = settings.provider_for(&model, key)?;
        seal_credentials(&self.sealer, &settings);
        Ok((model, carries))
    }
}
