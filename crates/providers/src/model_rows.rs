//! Rows of data files that say which models have something.

use quipu_protocol::Model;
use serde::Deserialize;

/// Models of one API, by provider and by the beginning of their ids.
#[derive(Debug, Deserialize)]
pub(crate) struct ModelRow {
    api: String,
    /// Providers whose servers are known to have it.
    providers: Vec<String>,
    /// How ids of the models begin; all of them where there is none.
    #[serde(default)]
    models: Vec<String>,
    /// Those of them that do not have it.
    #[serde(default)]
    without: Vec<String>,
}

impl ModelRow {
    pub(crate) fn is_of_api(&self, api: &str) -> bool {
        self.api == api
    }

    /// Whether it is about the API and the provider of `model`, whichever model that is.
    pub(crate) fn is_of_server(&self, model: &Model) -> bool {
        self.is_of_api(&model.api) && self.providers.contains(&model.provider)
    }

    /// Whether `model` is one of these.
    pub(crate) fn covers(&self, model: &Model) -> bool {
        self.is_of_server(model)
            && (self.models.is_empty() || begins(model, &self.models))
            && !begins(model, &self.without)
    }

    #[cfg(test)]
    pub(crate) fn check(&self, has: impl Fn(&Model) -> bool) {
        for provider in &self.providers {
            let models = crate::catalogue::models(provider);
            assert!(models.iter().any(|model| self.covers(model) && has(model)), "{provider} {}", self.api);
        }
    }
}

/// Whether the id of a model, without what stands before a slash, begins with one of these.
pub(crate) fn begins(model: &Model, starts: &[String]) -> bool {
    let id = model.id.rsplit('/').next().unwrap_or_default();
    starts.iter().any(|start| id.starts_with(start.as_str()))
}
