//! Models whose requests are signed with the keys of a cloud, and where these are.

use std::sync::{Arc, PoisonError};

use quipu_protocol::{Model, ModelError};

use super::Settings;
use crate::Provider;
use crate::bedrock;
use crate::bedrock::chain::{AwsCredentials, Environment, HINT, Origin, SKIP_AUTH};
use crate::catalogue;
use crate::credentials::{AgentAccount, AgentLogin, AuthEntry, CredentialError, Credentials, agent_owner};
use crate::google::adc::{self, AdcFile};
use crate::google::code_assist;
use crate::google::vertex::VertexPlace;

impl Settings {
    /// What variables and files say of keys of a cloud; `None` for a provider that takes none.
    fn environment(&self, provider: &str) -> Option<Environment> {
        let is_signed = |model: &Arc<Model>| model.api == bedrock::API;
        let has_models = || self.configured.get(provider).is_some_and(|models| models.iter().any(is_signed));
        if provider != bedrock::PROVIDER && !has_models() {
            return None;
        }
        let row = catalogue::provider(bedrock::PROVIDER)?;
        let names = row.vars.iter().chain(&row.secrets);
        let vars = names.filter_map(|name| Some((name.clone(), self.variable(provider, name)?)));
        let stored = match self.keys.auth.get(provider) {
            Some(AuthEntry::ApiKey { env, .. }) => env.get("AWS_PROFILE").cloned(),
            Some(AuthEntry::Oauth { .. } | AuthEntry::Reference { .. }) | None => None,
        };
        Some(Environment::new(vars.collect(), stored.filter(|name| !name.trim().is_empty())))
    }

    /// Which place has the keys. Reads small files the first time.
    fn origin(&self, provider: &str) -> Option<Origin> {
        let mut known = self.clouds.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(origin) = known.get(provider) {
            return origin.clone();
        }
        let origin = self.environment(provider).and_then(|environment| environment.origin());
        known.insert(provider.to_owned(), origin.clone());
        origin
    }

    fn skips_auth(&self, provider: &str) -> bool {
        self.environment(provider).is_some_and(|environment| environment.skips_auth())
    }

    /// The file of Google with which calls to a provider can be made.
    pub(super) fn default_credentials(&self, provider: &str) -> Option<AdcFile> {
        let of_provider = provider == adc::PROVIDER;
        of_provider.then(|| AdcFile::find(|name| self.variable(provider, name))).flatten()
    }

    pub(super) fn vertex_place(&self, provider: &str) -> VertexPlace {
        let set = |name: &str| self.variable(provider, name);
        let project = set("GOOGLE_CLOUD_PROJECT").or_else(|| set("GCLOUD_PROJECT"));
        VertexPlace { project, location: set("GOOGLE_CLOUD_LOCATION") }
    }

    /// The project of the account that calls to a provider are made with.
    pub(super) fn account_project(&self, provider: &str) -> Option<String> {
        let stored = self.keys.auth.get(provider).and_then(AuthEntry::project).map(str::to_owned);
        stored.or_else(|| self.wanted_project(provider))
    }

    fn wanted_project(&self, provider: &str) -> Option<String> {
        let set = |name: &str| self.variable(provider, name);
        set("GOOGLE_CLOUD_PROJECT").or_else(|| set("GOOGLE_CLOUD_PROJECT_ID"))
    }

    /// What calls with the login of another program need to know of its account. Where that is something, the token of
    /// the login goes to the server of its provider, so that a person must have agreed to its use.
    ///
    /// # Errors
    /// When the token cannot be used, and what the server says.
    pub async fn agent_account(&self, login: &AgentLogin) -> Result<AgentAccount, CredentialError> {
        let provider = login.provider.as_deref().unwrap_or_default();
        let models = self.models_of(provider);
        let Some(model) = models.iter().find(|model| model.api == code_assist::API) else {
            return Ok(AgentAccount::default());
        };
        let token = self.keys.agent_token(&login.agent, provider).await?;
        let named = self.wanted_project(provider);
        let project =
            code_assist::project(&model.base_url, token.expose(), named.as_deref(), &login.name).await?;
        Ok(AgentAccount { project: Some(project) })
    }

    /// The program whose login is the only credential that a provider takes, in one word.
    pub fn login_owner(&self, provider: &str) -> Option<&'static str> {
        let has_other =
            self.logins().account(provider).is_some() || !self.credential_variables(provider).is_empty();
        agent_owner(provider).filter(|_| !has_other).map(|(agent, _)| agent)
    }

    /// Where the keys of a cloud would come from.
    pub(super) fn cloud_source(&self, provider: &str) -> Option<String> {
        if let Some(file) = self.default_credentials(provider) {
            return Some(file.name());
        }
        match self.origin(provider) {
            Some(origin) => Some(origin.name()),
            None => self.skips_auth(provider).then(|| SKIP_AUTH.into()),
        }
    }

    /// Whether the provider is called with keys of a cloud, and with nothing of its own.
    pub(super) fn uses_cloud(&self, provider: &str) -> bool {
        self.own_source(provider).is_none() && self.cloud_source(provider).is_some()
    }

    /// Whether somebody named those keys.
    pub(super) fn has_chosen_cloud(&self, provider: &str) -> bool {
        if let Some(file) = self.default_credentials(provider) {
            let place = self.vertex_place(provider);
            return file.is_named() && place.project.is_some() && place.location.is_some();
        }
        self.origin(provider).is_none_or(|origin| origin.is_chosen())
    }

    /// What people are told besides the provider's own key.
    pub(super) fn cloud_hint(&self, provider: &str) -> Option<String> {
        if provider == adc::PROVIDER {
            return Some(adc::HINT.into());
        }
        let half = self.environment(provider)?.half_set();
        Some(match half {
            Some(half) => format!("{half}. {HINT}"),
            None => HINT.into(),
        })
    }

    /// Where calls to a model go whose requests may be signed; `None` for another.
    pub(super) fn cloud_place(&self, model: &Model) -> Result<Option<bedrock::Place>, ModelError> {
        if model.api != bedrock::API {
            return Ok(None);
        }
        let environment = self.environment_of(model);
        bedrock::Place::of(model, &environment).map(Some)
    }

    fn environment_of(&self, model: &Model) -> Environment {
        let known = self.environment(&model.provider).or_else(|| self.environment(bedrock::PROVIDER));
        known.unwrap_or_else(|| Environment::new(std::collections::BTreeMap::new(), None))
    }

    /// Something that calls `model` at the place.
    pub(super) fn signed(
        &self,
        model: &mut Model,
        api_key: Option<&str>,
        mut place: bedrock::Place,
    ) -> Result<Arc<dyn Provider>, ModelError> {
        let provider = model.provider.clone();
        let (credentials, headers) = if self.skips_auth(&provider) {
            model.base_url = self.fill_in(model)?;
            (Credentials::none(), self.headers(model)?)
        } else {
            self.access_or(model, api_key, || {
                let origin = self.origin(&provider)?;
                let environment = self.environment(&provider)?;
                let region = place.region.clone();
                let mut shared = self.cloud_credentials.lock().unwrap_or_else(PoisonError::into_inner);
                let known = shared.entry((provider.clone(), region.clone())).or_insert_with(|| {
                    let (local, shell) = (self.options.local, self.keys.shell.clone());
                    Credentials::new(Arc::new(AwsCredentials::new(origin, environment, region, local, shell)))
                });
                Some(known.clone())
            })?
        };
        place.base_url.clone_from(&model.base_url);
        bedrock::provider(model, credentials, &headers, self.options.clone(), place)
    }
}
