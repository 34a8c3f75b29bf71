//! Another model for a session that is open.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use quipu::{ModelLookupError, Models, Provider, PurposeModel, Sealer};
use quipu_protocol::Model;
use quipu_providers::{CallSettings, Selection, Settings};

use crate::offered_tools::missing_search;
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
    /// The key that the session keeps to, with its provider.
    pub(crate) kept_key: Option<(String, String)>,
    /// Names of models by the purpose that they are for, as the user set them.
    pub(crate) purposes: BTreeMap<String, String>,
}

impl Models for ModelFiles {
    fn find(&self, provider: &str, id: &str) -> Result<(Arc<Model>, Arc<dyn Provider>), ModelLookupError> {
        self.find_named(&format!("{provider}/{id}"))
    }

    fn find_for(&self, purpose: &str) -> Result<Option<PurposeModel>, ModelLookupError> {
        self.purposes.get(purpose).map(|pattern| self.look_up(pattern)).transpose()
    }

    fn remarks(&self, model: &Model) -> Vec<String> {
        missing_search(&self.calls.options, model).into_iter().collect()
    }

    fn find_named(&self, name: &str) -> Result<(Arc<Model>, Arc<dyn Provider>), ModelLookupError> {
        let PurposeModel { model, provider, .. } = self.look_up(name)?;
        Ok((model, provider))
    }
}

impl ModelFiles {
    fn look_up(&self, pattern: &str) -> Result<PurposeModel, ModelLookupError> {
        // What is wrong with the files was told when the session was opened.
        let (settings, _) = Settings::load_with(&self.home, self.calls.clone(), &env);
        let (settings, _) = self.sources.applied_to(settings);
        let mut settings = settings.with_shell(crate::helpers::shell(&self.home));
        if let Some((provider, id)) = &self.kept_key {
            settings = settings.with_kept_key(provider, id);
        }
        let Selection { model, thinking, .. } = settings.find(None, pattern)?;
        let key = self.key.as_ref().filter(|(of, _)| *of == model.provider).map(|(_, key)| key.as_str());
        let provider = settings.provider_for(&model, key)?;
        seal_credentials(&self.sealer, &settings);
        Ok(PurposeModel { model, provider, thinking })
    }
}
