//! Where credentials and models are from, beside the user's files.

use std::collections::BTreeMap;

use quipu_providers::{Credentials, ModelSources, Settings, Warning};

/// Sources that a program has plugged in. By default there are none.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    credentials: BTreeMap<String, Credentials>,
    models: ModelSources,
}

impl Sources {
    /// The same, where calls to `provider` use these credentials in place of stored keys.
    #[must_use]
    pub fn with_credentials(mut self, provider: impl Into<String>, credentials: Credentials) -> Self {
        self.credentials.insert(provider.into(), credentials);
        self
    }

    /// The same, with these sources of models.
    #[must_use]
    pub fn with_models(self, models: ModelSources) -> Self {
        Self { models, ..self }
    }

    /// Sources that add models to those of the settings.
    pub fn models(&self) -> &ModelSources {
        &self.models
    }

    /// The user's settings, with what the sources gave last.
    pub(crate) fn applied_to(&self, mut settings: Settings) -> (Settings, Vec<Warning>) {
        for (provider, credentials) in &self.credentials {
            settings = settings.with_credentials(provider, credentials.clone());
        }
        if self.models.is_empty() {
            return (settings, Vec::new());
        }
        settings.with_models(&self.models.gathered())
    }
}
