//! Another model for a session that is open.

use std::path::PathBuf;
use std::sync::Arc;

use quipu::{ModelLookupError, Models, Provider, Sealer};
use quipu_protocol::Model;
use quipu_providers::{CallSettings, Selection, Settings};

use crate::{Sources, env, seal_credentials};

/// Looks up models in the user's files when a session changes its model.
pub(crate) struct ModelFiles {
    pub(crate) home: PathBuf,
    pub(crate) sources: Sources,
    /// How the session's models are called.
    pub(crate) calls: CallSettings,
    pub(crate) sealer: Arc<Sealer>,
    /// The key that was given on the command line, and the provider that it is for.
    pub(crate) key: Option<(String, String)>,
}

impl Models for ModelFiles {
    fn find(&self, provider: &str, id: &str) -> Result<(Arc<Model>, Arc<dyn Provider>), ModelLookupError> {
        let settings = self.settings();
        self.found(&settings, &format!("{provider}/{id}"))
    }

    fn find_named(&self, name: &str) -> Result<(Arc<Model>, Arc<dyn Provider>), ModelLookupError> {
        self.found(&self.settings(), name)
    }
}

impl ModelFiles {
    fn settings(&self) -> Settings {
        // What is wrong with the files was told when the session was opened.
        let (settings, _) = Settings::load_with(&self.home, self.calls.clone(), &env);
        let (settings, _) = self.sources.applied_to(settings);
        settings.with_shell(crate::helpers::shell(&self.home))
    }

    fn found(
        &self,
        settings: &Settings,
        name: &str,
    ) -> Result<(Arc<Model>, Arc<dyn Provider>), ModelLookupError> {
        let found = settings.find(None, name)?;
        let Selection { model, .. } = found;
        let key = self.key.as_ref().filter(|(of, _)| *of == model.provider).map(|(_, key)| key.as_str());
        let carries = settings.provider_for(&model, key)?;
        seal_credentials(&self.sealer, settings);
        Ok((model, carries))
    }
}
