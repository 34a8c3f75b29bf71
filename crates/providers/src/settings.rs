//! What can be called, and with which credentials: the catalogue, `models.json`, `auth.json` and the
//! environment put together.

mod cloud;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

use quipu_protocol::{Json, Model, ModelError, ModelErrorKind};
use serde_json::Value;

use crate::bedrock::chain::Origin as CloudOrigin;
use crate::catalogue;
use crate::catalogue_file::{CATALOGUE_FILE, Catalogue, CatalogueSource};
use crate::credentials::{
    AgentFiles, AgentLogin, AuthEntries, AuthEntry, AuthFile, Credential, Credentials, KeyStatus, Keychain,
    Keys, Origin, StoredKeys, StoredLogin,
};
use crate::google::adc::{self, AdcSource};
use crate::google::{code_assist, vertex};
use crate::latest::Latest;
use crate::local::{self, LocalEndpoint};
use crate::logins::Logins;
use crate::mistral::{self, MistralConversations};
use crate::model_sources::{self, GatheredModels, ModelSources, OwnModels, SourcedModel};
use crate::models_file::{self, ProviderConfig};
use crate::openai_responses::AzureDeployment;
use crate::pi_messages::{self, PiMessages};
use crate::values::{self, Shell, Vars};
use crate::warning::Warning;
use crate::{AnthropicMessages, GoogleGenerativeAi, OpenAiCompletions, OpenAiResponses};
use crate::{CallOptions, CallSettings, LocalServer, Provider, failure, net, settings_file};
use crate::{anthropic, bedrock, google, openai, openai_responses};

/// Secrets shorter than this are not given to [`Settings::secrets`]: replacing them would tear ordinary text.
const MIN_SECRET: usize = 8;

/// The APIs that can be called.
const SUPPORTED: [&str; 11] = [
    anthropic::API,
    openai::API,
    openai_responses::API,
    openai_responses::AZURE_API,
    openai_responses::SUBSCRIPTION_API,
    mistral::API,
    pi_messages::API,
    google::API,
    vertex::API,
    code_assist::API,
    bedrock::API,
];

/// Credentials, and headers.
type Access = (Credentials, Vec<(String, String)>);

/// Models by provider.
type ModelTable = BTreeMap<String, Vec<Arc<Model>>>;

static VARS: Latest<Vars> = Latest::new();
static AUTH: Latest<BTreeMap<String, AuthEntry>> = Latest::new();
static CONFIGS: Latest<BTreeMap<String, ProviderConfig>> = Latest::new();
static CONFIGURED: Latest<ModelTable> = Latest::new();
static AGENTS: Latest<AgentFiles> = Latest::new();
static HERE: Latest<BTreeSet<String>> = Latest::new();

/// Models and credentials as the user has set them up.
pub struct Settings {
    options: CallOptions,
    /// Where servers on this machine are looked for.
    places: Arc<[LocalEndpoint]>,
    /// Those that were found, once they were looked for.
    local: OnceLock<Vec<LocalServer>>,
    /// The models that are known without `models.json`.
    catalogue: Catalogue,
    /// The keys that are stored.
    keys: Keys,
    /// Where credentials are from that are not stored, by provider.
    sources: BTreeMap<String, Credentials>,
    /// The models of each provider that `models.json` names.
    configured: Arc<ModelTable>,
    /// The models of each provider that another source adds to, all of them.
    extended: BTreeMap<String, Vec<Arc<Model>>>,
    /// Where providers whose requests are signed have their keys, once that was asked for.
    clouds: Mutex<BTreeMap<String, Option<CloudOrigin>>>,
    /// The credentials of such providers, by region: all calls share them until they end.
    cloud_credentials: Mutex<BTreeMap<(String, String), Credentials>>,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings").field("home", &self.keys.home).finish_non_exhaustive()
    }
}

impl Settings {
    /// Reads `models.json`, `auth.json` and, for the patience of calls, `settings.json` in `home`, and the
    /// variables that matter through `env`. Runs no command, does not parse the catalogue, and never fails: what
    /// cannot be used is told in the warnings.
    pub fn load(home: &Path, env: &dyn Fn(&str) -> Option<String>) -> (Self, Vec<Warning>) {
        let mut warnings = Vec::new();
        let calls = settings_file::read(&home.join("settings.json"), &mut warnings);
        let (settings, more) = Self::load_with(home, calls, env);
        warnings.extend(more);
        (settings, warnings)
    }

    /// The same, where somebody else has read the settings of calls.
    pub fn load_with(
        home: &Path,
        calls: CallSettings,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> (Self, Vec<Warning>) {
        let mut warnings = Vec::new();
        let auth_file = AuthFile::new(home);
        let auth = auth_file.read_settled().unwrap_or_else(|error| {
            warnings.push(Warning(error.to_string()));
            AuthEntries::default()
        });
        let path = auth_file.path().display();
        if auth.exposed {
            warnings.push(Warning(format!("{path} can be read by others. Run: chmod 600 {path}")));
        }
        for (provider, problem) in &auth.odd {
            warnings.push(Warning(format!("{path}: the entry {provider:?} is not used: {problem}.")));
        }
        let catalogue = Catalogue::load(home, &mut warnings);
        let configs = models_file::read(&home.join("models.json"), &mut warnings);
        let mut names: BTreeSet<String> = BTreeSet::new();
        for (_, row) in catalogue::providers() {
            names.extend(row.env.iter().map(|env| env.name.clone()));
            names.extend(row.vars.iter().chain(&row.secrets).cloned());
        }
        names.extend(configured_variables(&auth.known, &configs));
        let value = |name: &str| env(name).filter(|value| !value.is_empty());
        let vars: Vars = names.into_iter().map(|name| (name.clone(), value(&name))).collect();
        let configured: ModelTable = configs
            .iter()
            .map(|(id, config)| {
                (id.clone(), models_file::models(id, config, catalogue.models(id), &mut warnings))
            })
            .collect();
        let free = calls.local.iter().map(|place| &place.id);
        let is_known = |id: &String| catalogue::provider(id).is_some() || !catalogue.models(id).is_empty();
        let free = free.filter(|id| !configured.contains_key(*id) && !is_known(id));
        let is_here = |models: &[Arc<Model>]| models.iter().all(|model| is_local(model));
        let own = configured.iter().filter(|(_, models)| is_here(models)).map(|(id, _)| id);
        let here: BTreeSet<_> = free.chain(own).cloned().collect();
        let learned = net::passwords(env).into_iter().map(|it| ("proxy".into(), it)).collect();
        let keys = Keys {
            home: home.to_path_buf(),
            vars: VARS.shared(vars),
            shell: usual(home),
            auth: AUTH.shared(auth.known),
            configs: CONFIGS.shared(configs),
            logins: Logins::load(home, &mut warnings),
            order: calls.key_order,
            kept: Arc::default(),
            agents: AGENTS.shared(AgentFiles::new(env)),
            exchanged: Arc::default(),
            here: HERE.shared(here),
            printed: Arc::default(),
            learned: Arc::new(Mutex::new(learned)),
        };
        let settings = Self {
            options: calls.options,
            places: calls.local,
            local: OnceLock::new(),
            catalogue,
            keys,
            sources: BTreeMap::new(),
            configured: CONFIGURED.shared(configured),
            extended: BTreeMap::new(),
            clouds: Mutex::default(),
            cloud_credentials: Mutex::default(),
        };
        (settings, warnings)
    }

    /// The same with other limits for calls.
    #[must_use]
    pub fn with_call_options(mut self, options: CallOptions) -> Self {
        self.options = options;
        self
    }

    /// The same, where this runs the `!command`s of the files. By default it is `/bin/sh` in `home`, without the
    /// entries of `PATH` that are relative or lie below the current directory.
    #[must_use]
    pub fn with_shell(mut self, shell: Arc<Shell>) -> Self {
        self.keys.shell = shell;
        self
    }

    /// The same, where calls begin with this key of a provider with several, by its id, so that a session stays with the
    /// cache of one account. Not while it rests, and not where the user has set an order of these keys.
    #[must_use]
    pub fn with_kept_key(mut self, provider: impl Into<String>, id: impl Into<String>) -> Self {
        Arc::make_mut(&mut self.keys.kept).insert(provider.into(), id.into());
        self
    }

    /// The same, where calls to `provider` use these credentials in place of stored keys. A key that is given to
    /// [`Settings::provider_for`] comes before them.
    #[must_use]
    pub fn with_credentials(mut self, provider: impl Into<String>, credentials: Credentials) -> Self {
        self.sources.insert(provider.into(), credentials);
        self
    }

    /// The same, with models of other sources behind its own. Those that it has already are left as they are, and those
    /// that would have the key of a known provider sent elsewhere are left out; the warnings say so. Their headers are
    /// taken as they are written.
    #[must_use]
    pub fn with_models(mut self, gathered: &GatheredModels) -> (Self, Vec<Warning>) {
        let mut warnings = gathered.notices.clone();
        for SourcedModel { model, source } in &gathered.models {
            let provider = &model.provider;
            let known =
                self.configured.get(provider).map_or_else(|| self.catalogue.models(provider), Vec::as_slice);
            let problem = if known.iter().any(|known| known.id == model.id) {
                Some("is known already and stays as it is")
            } else {
                model_sources::obstacle(model, known)
            };
            match problem {
                Some(problem) => {
                    let (provider, id) = (failure::quote(provider), failure::quote(&model.id));
                    warnings
                        .push(Warning(format!("The model source `{source}`: {provider}/{id} {problem}.")));
                }
                None => {
                    let models = self.extended.entry(provider.clone()).or_insert_with(|| known.to_vec());
                    models.push(model_sources::literal(model));
                }
            }
        }
        (self, warnings)
    }

    /// The sources of its own models: `models.json`, the catalogue, servers on this machine where they are looked for.
    /// Those that `models.json` changes count as its own.
    pub fn model_sources(&self) -> ModelSources {
        let configured = self.configured.values().flatten();
        let (known, own): (Vec<_>, Vec<_>) = configured.cloned().partition(|model| {
            let known = self.catalogue.models(&model.provider);
            known.binary_search_by(|known| known.id.cmp(&model.id)).is_ok_and(|at| known[at] == *model)
        });
        let others = self.known_providers().filter(|id| !self.configured.contains_key(*id));
        let others = others.flat_map(|id| self.catalogue.models(id).iter().cloned());
        let (taken, built_in): (Vec<_>, Vec<_>) =
            known.into_iter().chain(others).partition(|model| self.catalogue.is_own(model));
        let local = self.local_servers().iter().flat_map(|server| server.models.iter().cloned());
        ModelSources::default()
            .with(OwnModels { name: "models.json", models: own })
            .with(OwnModels { name: CATALOGUE_FILE, models: taken })
            .with(OwnModels { name: "catalogue", models: built_in })
            .with(OwnModels { name: "local servers", models: local.collect() })
    }

    /// The same, but a call that fails is not made again.
    #[must_use]
    pub fn without_retries(mut self) -> Self {
        self.options.max_retries = 0;
        self
    }

    /// Ids of the providers of the catalogue.
    fn known_providers(&self) -> impl Iterator<Item = &str> {
        let built_in = catalogue::providers().iter().map(|(id, _)| id.as_str());
        built_in.chain(self.catalogue.own_providers())
    }

    /// The catalogue that is used: the built-in one, or the user's.
    pub fn catalogue(&self) -> CatalogueSource {
        self.catalogue.source()
    }

    /// Ids of all providers: those of the catalogue in its order, then those of `models.json`.
    pub fn providers(&self) -> Vec<&str> {
        let is_known = |id: &str| self.known_providers().any(|known| known == id);
        let own = self.configured.keys().map(String::as_str).filter(|id| !is_known(id));
        let is_new = |id: &&str| !is_known(id) && !self.configured.contains_key(*id);
        self.known_providers()
            .chain(own)
            .chain(self.extended.keys().map(String::as_str).filter(is_new))
            .collect()
    }

    /// All models, by provider; at the end those of [`Settings::local_servers`].
    pub fn models(&self) -> Vec<Arc<Model>> {
        let known = self.providers().into_iter().flat_map(|provider| self.models_of(provider));
        known.chain(self.local_servers().iter().flat_map(|server| &server.models)).cloned().collect()
    }

    /// The models of one provider; empty when it is not known. A provider on this machine that nobody has set up is
    /// asked for them, which may block for a second.
    pub fn models_of(&self, provider: &str) -> &[Arc<Model>] {
        match self.extended.get(provider).or_else(|| self.configured.get(provider)) {
            Some(models) => models,
            None if self.place(provider).is_some() => {
                let found = self.found_local().iter().find(|server| server.id == provider);
                found.map_or(&[], |server| server.models.as_slice())
            }
            None => self.catalogue.models(provider),
        }
    }

    /// Model servers that listen on this machine where such usually do, when no other model can be used; else none,
    /// and nobody is asked. The first call may block for a second.
    pub fn local_servers(&self) -> &[LocalServer] {
        if self.default_model().is_some() { &[] } else { self.found_local() }
    }

    /// What could be used on this machine though no credential is known, for people.
    pub fn local_offer(&self) -> Option<String> {
        let offers = self.local_servers().iter().filter_map(|server| {
            let (first, more) = server.models.split_first()?;
            let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
            Some(format!(
                "{} is running on {} with {}{more}: the model {}/{}",
                server.name, server.address, first.id, server.id, first.id
            ))
        });
        let offers: Vec<_> = offers.collect();
        (!offers.is_empty()).then(|| format!("{}.", offers.join("; ")))
    }

    /// Where [`Settings::local_servers`] looks, for people: names and ports.
    pub fn local_places(&self) -> Vec<String> {
        let free = self.places.iter().filter(|place| self.place(&place.id).is_some());
        free.map(|place| format!("{} ({})", place.name, place.port().unwrap_or_default())).collect()
    }

    fn found_local(&self) -> &[LocalServer] {
        self.local.get_or_init(|| {
            let free = self.places.iter().filter(|place| self.place(&place.id).is_some());
            local::find(&free.cloned().collect::<Vec<_>>())
        })
    }

    /// Where the provider would listen on this machine, when nobody has set it up.
    pub(crate) fn place(&self, provider: &str) -> Option<&LocalEndpoint> {
        let is_set_up = self.configured.contains_key(provider)
            || self.extended.contains_key(provider)
            || self.known_providers().any(|known| known == provider);
        self.places.iter().find(|place| place.id == provider).filter(|_| !is_set_up)
    }

    /// Ids of the providers on this machine that may be asked for, set up or not.
    pub(crate) fn local_ids(&self) -> impl Iterator<Item = &str> {
        self.places.iter().map(|place| place.id.as_str()).filter(|id| self.place(id).is_some())
    }

    /// The model to use when the user names none: the default of the first provider that has a credential and
    /// whose wire we speak, or else its first model.
    pub fn default_model(&self) -> Option<Arc<Model>> {
        let of = |provider: &str| {
            let models = self.models_of(provider);
            let wanted = catalogue::provider(provider).and_then(|row| row.default.as_deref());
            let default =
                models.iter().find(|model| Some(model.id.as_str()) == wanted && self.is_available(model));
            default.or_else(|| models.iter().find(|model| self.is_available(model))).cloned()
        };
        // Keys of a whole cloud are there for other programs too: any other credential comes first.
        let usable = self.providers().into_iter().filter(|provider| self.may_be_available(provider));
        let (clouds, own): (Vec<_>, Vec<_>) = usable.partition(|provider| self.uses_cloud(provider));
        let chosen = clouds.into_iter().filter(|provider| self.has_chosen_cloud(provider));
        own.into_iter().chain(chosen).find_map(of)
    }

    /// The model of a provider to use when only that is named, credential or not: its default, or else its first one
    /// whose wire we speak.
    pub fn default_of(&self, provider: &str) -> Option<Arc<Model>> {
        let spoken = || self.models_of(provider).iter().filter(|model| is_supported(model));
        let wanted = catalogue::provider(provider).and_then(|row| row.default.as_deref());
        spoken().find(|model| Some(model.id.as_str()) == wanted).or_else(|| spoken().next()).cloned()
    }

    /// Variables of the environment from which the provider's credential is taken, the usual one first.
    pub fn credential_variables(&self, provider: &str) -> Vec<String> {
        let row = catalogue::provider(provider).into_iter().flat_map(|row| row.env.iter().rev());
        row.map(|env| env.name.clone()).collect()
    }

    /// Whether the model can be called: its wire is one that we speak, and there is a credential or none is
    /// needed. Runs no command.
    pub fn is_available(&self, model: &Model) -> bool {
        let has_address = || AzureDeployment::of(model, |name| self.variable(&model.provider, name)).is_ok();
        is_supported(model)
            && (!is_deployed(model) || has_address())
            && (self.credential_source(&model.provider).is_some() || is_local(model))
    }

    /// Whether some model of the provider could be available, without parsing the catalogue's.
    fn may_be_available(&self, provider: &str) -> bool {
        self.credential_source(provider).is_some()
            || self.configured.contains_key(provider)
            || self.extended.contains_key(provider)
    }

    /// Where the provider's credential would come from; `None` when there is none. Runs no command.
    pub fn credential_source(&self, provider: &str) -> Option<String> {
        self.own_source(provider).or_else(|| self.cloud_source(provider))
    }

    /// The same for a credential of the provider itself.
    fn own_source(&self, provider: &str) -> Option<String> {
        if let Some(source) = self.sources.get(provider) {
            return Some(source.name().to_owned());
        }
        if let Some(AuthEntry::Reference { agent, .. }) = self.keys.auth.get(provider) {
            return Some(format!("the login of {agent}"));
        }
        if self.keys.has_entry(provider) {
            let is_elsewhere = self.keys.is_in_keychain(provider);
            return Some(if is_elsewhere { "the keychain".into() } else { "auth.json".into() });
        }
        self.keys.outside(provider)
    }

    /// The keys of a provider that has several, in the order in which a session would begin with them; empty where it has
    /// one or none, or another source. Reads a file.
    pub fn key_statuses(&self, provider: &str) -> Vec<KeyStatus> {
        if self.sources.contains_key(provider) { Vec::new() } else { self.keys.statuses(provider) }
    }

    /// The keychain of the operating system, whose program runs as a `!command` does.
    pub fn keychain(&self) -> Keychain {
        Keychain::new(self.keys.shell.clone())
    }

    /// The logins of providers.
    pub fn logins(&self) -> &Logins {
        &self.keys.logins
    }

    /// The logins that other programs keep on this machine. Only their places are read.
    pub fn agent_logins(&self) -> Vec<AgentLogin> {
        let mut logins = self.keys.agents.logins();
        for login in &mut logins {
            let of_provider = login.provider.as_deref().and_then(|id| self.keys.logins.restriction(id));
            login.restriction = of_provider.map(str::to_owned).or(login.restriction.take());
        }
        logins
    }

    /// What is stored of the provider's login; `None` when there is none, or it is not what calls use.
    pub fn stored_login(&self, provider: &str) -> Option<StoredLogin> {
        let entry = self.keys.auth.get(provider).filter(|_| !self.sources.contains_key(provider));
        StoredLogin::of(entry?)
    }

    /// The credential that is stored for the provider; `None` when there is none or it cannot be had (then
    /// [`Settings::provider_for`] says why). May run a command that the user's files name, for up to 10 s.
    pub fn credential(&self, provider: &str) -> Option<Credential> {
        match self.keys.several(provider, "") {
            Some(several) => several.ok()?.known().map(|known| Credential {
                identity: self.credential_source(provider).unwrap_or_else(|| known.identity.clone()),
                ..Credential::clone(&known)
            }),
            None => self.keys.look_up(provider).ok().flatten(),
        }
    }

    /// Something that calls `model`, with `api_key` when it is given, else with the configured credential. May
    /// run commands that the user's files name.
    ///
    /// # Errors
    /// `NoCredential`, saying which variable or file to set; `InvalidRequest` when the wire of the model is not
    /// one that this version speaks, or its configuration is wrong.
    pub fn provider_for(
        &self,
        model: &Model,
        api_key: Option<&str>,
    ) -> Result<Arc<dyn Provider>, ModelError> {
        let provider = model.provider.as_str();
        let mut model = model.clone();
        let deployment = if is_deployed(&model) {
            let deployment = AzureDeployment::of(&model, |name| self.variable(provider, name))?;
            model.base_url.clone_from(&deployment.base_url);
            Some(deployment)
        } else {
            None
        };
        let place = self.cloud_place(&model)?;
        if let Some(place) = &place {
            model.base_url.clone_from(&place.base_url);
        }
        if model.base_url.is_empty() {
            return Err(ModelError::new(
                ModelErrorKind::InvalidRequest,
                format!(
                    "{provider}/{} has no address. Set \"baseUrl\" of {provider} in models.json.",
                    model.id
                ),
            ));
        }
        if !is_supported(&model) {
            return Err(ModelError::new(
                ModelErrorKind::InvalidRequest,
                format!(
                    "{provider}/{} uses the API {:?}, which is not supported yet. Supported are {}.",
                    model.id,
                    model.api,
                    SUPPORTED.map(|api| format!("{api:?}")).join(", ")
                ),
            ));
        }
        let given = api_key.map(str::trim).filter(|key| !key.is_empty());
        if let Some(place) = place {
            return self.signed(&mut model, given, place);
        }
        let file = self.default_credentials(provider).filter(|_| model.api == vertex::API && given.is_none());
        let is_file_used = file.is_some() && self.own_source(provider).is_none();
        let of_file = || file.map(|file| Credentials::new(Arc::new(AdcSource::new(file))));
        let (credentials, headers) = self.access_or(&mut model, given, of_file)?;
        let options = self.options.clone();
        if let Some(deployment) = deployment {
            let deployment = AzureDeployment { base_url: model.base_url.clone(), ..deployment };
            let made = OpenAiResponses::deployed(&model, deployment, credentials, &headers, options)?;
            return Ok(Arc::new(made));
        }
        Ok(match model.api.as_str() {
            openai::API => Arc::new(OpenAiCompletions::new(&model, credentials, &headers, options)?),
            openai_responses::API | openai_responses::SUBSCRIPTION_API => {
                Arc::new(OpenAiResponses::new(&model, credentials, &headers, options)?)
            }
            mistral::API => Arc::new(MistralConversations::new(&model, credentials, &headers, options)?),
            pi_messages::API => Arc::new(PiMessages::new(&model, credentials, &headers, options)?),
            google::API => Arc::new(GoogleGenerativeAi::new(&model, credentials, &headers, options)?),
            vertex::API => {
                let place = self.vertex_place(provider);
                if let Some(missing) = adc::missing_place(&place).filter(|_| is_file_used)
                    && model.base_url.contains(vertex::LOCATION)
                {
                    return Err(ModelError::new(ModelErrorKind::InvalidRequest, missing));
                }
                Arc::new(GoogleGenerativeAi::vertex(&model, credentials, &headers, options, place)?)
            }
            code_assist::API => {
                let project = code_assist::named_project(self.account_project(provider))?;
                Arc::new(GoogleGenerativeAi::code_assist(&model, credentials, &headers, options, project)?)
            }
            _ => Arc::new(AnthropicMessages::new(&model, credentials, &headers, options)?),
        })
    }

    /// The credentials and the headers that go to `model`, whose base URL is filled in.
    pub(crate) fn access_to(&self, model: &mut Model, api_key: Option<&str>) -> Result<Access, ModelError> {
        self.access_or(model, api_key, || None)
    }

    /// The same, with `other` credentials where none are stored.
    fn access_or(
        &self,
        model: &mut Model,
        api_key: Option<&str>,
        other: impl FnOnce() -> Option<Credentials>,
    ) -> Result<Access, ModelError> {
        let provider = model.provider.as_str();
        let stored = |first: Credential, origin| {
            let source = StoredKeys::new(self.keys.clone(), first.clone(), origin);
            Credentials::begun(Arc::new(source), first)
        };
        let credentials = match (api_key, self.sources.get(provider)) {
            (Some(key), _) => stored(self.keys.given(provider, key), Origin::Given),
            (None, Some(source)) => source.clone(),
            (None, None) => {
                if let Some(several) = self.keys.several(provider, &model.id) {
                    several
                        .map_err(|error| ModelError::new(ModelErrorKind::NoCredential, error.to_string()))?
                } else {
                    let found =
                        self.keys.look_up(provider).map_err(|why| self.no_credential(provider, &why))?;
                    match found.map(|found| stored(found, Origin::Stored)).or_else(other) {
                        Some(found) => found,
                        None if is_local(model) => Credentials::none(),
                        None => return Err(self.no_credential(provider, "")),
                    }
                }
            }
        };
        model.base_url = self.fill_in(model)?;
        let headers = self.headers(model)?;
        Ok((credentials, headers))
    }

    /// The patience of calls.
    pub(crate) fn call_options(&self) -> &CallOptions {
        &self.options
    }

    /// The directory of the user's files.
    pub(crate) fn home(&self) -> &Path {
        &self.keys.home
    }

    fn no_credential(&self, provider: &str, why: &str) -> ModelError {
        let mut message = self.keys.advice(provider, why);
        if let Some(hint) = self.cloud_hint(provider) {
            message = format!("{message} {hint}");
        }
        if let Some(offer) = self.local_offer() {
            message = format!("{message} {offer}");
        }
        ModelError::new(ModelErrorKind::NoCredential, message)
    }

    /// The base URL with `{NAME}` replaced by variables.
    fn fill_in(&self, model: &Model) -> Result<String, ModelError> {
        let mut url = model.base_url.clone();
        if model.api == vertex::API && url.contains(vertex::LOCATION) {
            return Ok(url);
        }
        while let Some((before, rest)) = url.split_once('{') {
            let Some((name, after)) = rest.split_once('}') else { break };
            let Some(value) = self.variable(&model.provider, name).filter(|value| !value.contains('{'))
            else {
                return Err(ModelError::new(
                    ModelErrorKind::NoCredential,
                    format!(
                        "The base URL of {} needs {name}. Set this environment variable.",
                        model.provider
                    ),
                ));
            };
            url = format!("{before}{value}{after}");
        }
        Ok(url)
    }

    /// A variable that calls to `provider` depend on: of its entry in `auth.json`, or of the environment.
    fn variable(&self, provider: &str, name: &str) -> Option<String> {
        let own = match self.keys.auth.get(provider) {
            Some(AuthEntry::ApiKey { env, .. }) => env.get(name).cloned(),
            Some(AuthEntry::Oauth { .. } | AuthEntry::Reference { .. }) | None => None,
        };
        own.or_else(|| self.keys.vars.get(name).cloned().flatten())
    }

    fn headers(&self, model: &Model) -> Result<Vec<(String, String)>, ModelError> {
        let headers = model.headers.as_ref().map(Json::value);
        let Some(Value::Object(headers)) = headers else { return Ok(Vec::new()) };
        headers
            .iter()
            .filter_map(|(name, value)| Some((name, value.as_str()?)))
            .map(|(name, raw)| {
                let value = values::resolve(raw, &self.keys.vars, &*self.keys.shell).map_err(|error| {
                    ModelError::new(
                        ModelErrorKind::NoCredential,
                        format!("The header {name:?} of {} has no value: {error}.", model.provider),
                    )
                })?;
                for secret in header_secrets(name, raw, &value) {
                    self.keys.learn(&model.provider, secret);
                }
                Ok((name.clone(), value))
            })
            .collect()
    }

    /// Every credential that is known now, with its provider, for sealing: variables, files, and what commands
    /// printed and callers gave so far. Ask again after [`Settings::provider_for`]. Runs no command.
    pub fn secrets(&self) -> Vec<(String, String)> {
        let mut all = self.keys.learned().clone();
        for (provider, source) in &self.sources {
            let mut found = Vec::new();
            if let Some(known) = source.known() {
                known.teach(|secret| found.push(secret.to_owned()));
            }
            all.extend(found.into_iter().map(|secret| (provider.clone(), secret)));
        }
        let mut add = |provider: &str, secret: &str| {
            all.insert((provider.to_owned(), secret.trim().to_owned()));
        };
        for (provider, row) in catalogue::providers() {
            for name in row.env.iter().map(|env| &env.name).chain(&row.secrets) {
                if let Some(Some(value)) = self.keys.vars.get(name) {
                    add(provider, value);
                }
            }
        }
        let plain = |value: &str, vars: &Vars| {
            (!value.starts_with('!')).then(|| values::resolve(value, vars, &*self.keys.shell).ok()).flatten()
        };
        for (name, entry) in self.keys.auth.iter() {
            let provider = self.keys.provider_of(name);
            match entry {
                AuthEntry::ApiKey { key: Some(key), .. } if self.keys.is_placeholder(provider, key) => {}
                AuthEntry::ApiKey { key: Some(key), env } => {
                    plain(key, &self.keys.vars_with(env)).iter().for_each(|key| add(provider, key));
                }
                AuthEntry::ApiKey { key: None, .. } | AuthEntry::Reference { .. } => {}
                AuthEntry::Oauth { access, refresh, .. } => {
                    add(provider, access);
                    refresh.iter().for_each(|refresh| add(provider, refresh));
                }
            }
        }
        for (provider, config) in self.keys.configs.iter() {
            let key = config.api_key.as_deref().filter(|key| !self.keys.is_placeholder(provider, key));
            let key = key.and_then(|key| plain(key, &self.keys.vars));
            key.iter().for_each(|key| add(provider, key));
            for (name, raw) in config.all_headers() {
                if let Some(value) = plain(raw, &self.keys.vars) {
                    header_secrets(name, raw, &value).into_iter().for_each(|secret| add(provider, secret));
                }
            }
        }
        let mut seen = BTreeSet::new();
        all.retain(|(_, secret)| secret.len() >= MIN_SECRET && seen.insert(secret.clone()));
        all.into_iter().collect()
    }

    /// Names of all environment variables that hold, or would hold, a provider's credential: to be taken from
    /// the environment of child processes.
    pub fn env_keys(&self) -> Vec<String> {
        let known = catalogue::providers().iter().flat_map(|(_, row)| &row.env).map(|env| env.name.clone());
        let names: BTreeSet<_> =
            known.chain(configured_variables(&self.keys.auth, &self.keys.configs)).collect();
        names.into_iter().collect()
    }
}

fn usual(home: &Path) -> Arc<Shell> {
    let home = home.to_path_buf();
    Arc::new(move |line| Ok(values::usual_shell(&home, line)))
}

/// Whether this version speaks the model's wire, and knows where to.
pub fn is_supported(model: &Model) -> bool {
    let has_address = !model.base_url.is_empty() || is_deployed(model) || model.api == bedrock::API;
    has_address && SUPPORTED.contains(&model.api.as_str())
}

/// Whether each customer has an address of their own, which variables say.
fn is_deployed(model: &Model) -> bool {
    model.api == openai_responses::AZURE_API
}

fn is_local(model: &Model) -> bool {
    reqwest::Url::parse(&model.base_url).is_ok_and(|url| net::is_loopback(url.host_str().unwrap_or_default()))
}

/// The credentials in the value of a header: the whole, and what follows its scheme (`Bearer …`), which is what
/// stands elsewhere. Of a value that is written out, only in headers that are named for it.
fn header_secrets<'a>(name: &str, raw: &str, value: &'a str) -> Vec<&'a str> {
    const NAMES: [&str; 7] = ["auth", "key", "token", "secret", "cookie", "password", "credential"];
    let name = name.to_ascii_lowercase();
    if value == raw && !NAMES.iter().any(|part| name.contains(part)) {
        return Vec::new();
    }
    let mut secrets = vec![value];
    secrets.extend(value.split_whitespace().last().filter(|last| *last != value));
    secrets
}

fn configured_variables<'a>(
    auth: &'a BTreeMap<String, AuthEntry>,
    configs: &'a BTreeMap<String, ProviderConfig>,
) -> impl Iterator<Item = String> + 'a {
    let keys = auth.values().filter_map(|entry| match entry {
        AuthEntry::ApiKey { key, .. } => key.as_deref(),
        AuthEntry::Oauth { .. } | AuthEntry::Reference { .. } => None,
    });
    let values = configs.values().flat_map(|config| {
        config.api_key.as_deref().into_iter().chain(config.all_headers().map(|(_, value)| value))
    });
    keys.chain(values).flat_map(values::variables).map(String::from)
}
