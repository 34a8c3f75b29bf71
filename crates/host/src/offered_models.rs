//! Models and providers that a person can choose from.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use quipu_protocol::{Model, Thinking};
use quipu_providers::{SourcedModel, clamp_level, is_supported};

use crate::{Failure, Home, LoginOffer};

/// A model that the model keys cycle through, with the user's level of thinking for it.
pub type CycleModel = (Arc<Model>, Option<Thinking>);

/// Model servers on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LocalServers {
    /// Those that listen.
    pub found: Vec<LocalServer>,
    /// Where they were looked for, for people: names and ports.
    pub looked_for: Vec<String>,
}

/// A model server that listens on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalServer {
    /// What it is called.
    pub name: String,
    /// Host and port.
    pub address: String,
    /// The provider's id.
    pub provider: String,
    /// Ids of its models; never empty.
    pub models: Vec<String>,
}

/// A provider for which a key can be kept.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProviderItem {
    /// The id under which `auth.json` keeps the key.
    pub id: String,
    /// Where a key is from already.
    pub source: Option<String>,
    /// Variables of the environment that a key is taken from, the usual one first.
    pub variables: Vec<String>,
    /// The login to its account, where it has one.
    pub login: Option<LoginOffer>,
}

/// All models of the settings, each with the source that it came from, in the order in which models are listed.
pub async fn sourced_models(home: &Home, settings: &quipu_providers::Settings) -> Vec<SourcedModel> {
    let own = settings.model_sources().gather().await;
    let others = home.sources().models().gathered();
    let all = own.models.iter().chain(&others.models);
    let key = |model: &Model| (model.provider.clone(), model.id.clone());
    // Who comes first keeps it.
    let mut sources = HashMap::new();
    for one in all {
        sources.entry(key(&one.model)).or_insert_with(|| one.source.clone());
    }
    let sourced = |model: Arc<Model>| {
        let source = sources.get(&key(&model)).cloned().unwrap_or_else(|| "settings".into());
        SourcedModel { model, source }
    };
    settings.models().into_iter().map(sourced).collect()
}

/// Models that can be called, those of servers on this machine among them. Reads files, and may ask those servers.
pub fn callable_models(home: &Home) -> Vec<Arc<Model>> {
    let settings = home.settings();
    let mut models = settings.models();
    models.retain(|model| {
        settings.is_available(model) || settings.local_servers().iter().any(|it| it.id == model.provider)
    });
    models
}

/// The models that a person goes through in `cwd`, one after the other: those of `enabledModels` of the settings, or all
/// that can be called.
///
/// # Errors
/// `Request` where the setting is no list of names, or names no model that can be asked.
pub fn cycled_models(home: &Home, cwd: &Path) -> Result<Vec<CycleModel>, Failure> {
    let config = home.config_in(cwd);
    if let Some(problem) = config.problem_of("enabledModels") {
        return Err(Failure::request(problem.to_string()));
    }
    let patterns = &config.enabled_models;
    if patterns.is_empty() {
        return Ok(callable_models(home).into_iter().map(|model| (model, None)).collect());
    }
    let named = home.settings().named(patterns);
    if named.is_empty() {
        return Err(Failure::request(format!(
            "`enabledModels` in the settings names no usable model: {}",
            patterns.join(", ")
        )));
    }
    // A level that a model does not have is the one that it is called with.
    let levelled = named.into_iter().map(|(model, level)| {
        let level = level.map(|level| clamp_level(&model, level));
        (model, level)
    });
    Ok(levelled.collect())
}

/// Model servers that listen on this machine. May take a second or two.
pub fn local_servers(home: &Home) -> LocalServers {
    let settings = home.settings();
    let found = settings.local_servers().iter().map(|server| LocalServer {
        name: server.name.clone(),
        address: server.address.clone(),
        provider: server.id.clone(),
        models: server.models.iter().map(|model| model.id.clone()).collect(),
    });
    LocalServers { found: found.collect(), looked_for: settings.local_places() }
}

/// Providers for which a key can be kept.
pub fn key_providers(home: &Home) -> Vec<ProviderItem> {
    let settings = home.settings();
    let spoken = |provider: &&str| settings.models_of(provider).iter().any(|model| is_supported(model));
    let one = |provider: &str| ProviderItem {
        id: provider.to_owned(),
        source: settings.credential_source(provider),
        variables: settings.credential_variables(provider),
        login: crate::login::offer(&settings, provider),
    };
    settings.providers().into_iter().filter(spoken).map(one).collect()
}
