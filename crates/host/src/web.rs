//! The web tools of a session, as the user set them up.

use std::sync::Arc;

use quipu::rules::{Host, Verdict};
use quipu::{PermissionMode, Sealer, SessionOptions};
use quipu_protocol::Model;
use quipu_providers::{CallOptions, Scheme, SearchSupport, Settings, search_support};
use quipu_web::{HostJudge, SEARCH_SERVICES, WebAccess, WebFetch, WebPolicy, WebSearch};
use quipu_workspace::Network;

use crate::saved::SavedPermissions;
use crate::{Advice, Home, OpenRequest, Settings as Config, env};

/// The members of `web`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WebSettings {
    /// The search service; `None` for none.
    pub search: Option<String>,
    /// Where it is, in the place of its own address.
    pub search_url: Option<String>,
}

/// What an installation is made of.
pub(crate) struct WebTools<'a> {
    pub(crate) home: &'a Home,
    pub(crate) settings: &'a Settings,
    pub(crate) sealer: &'a Sealer,
    pub(crate) web: &'a WebSettings,
    /// The list of tools, where there is one.
    pub(crate) names: Option<&'a [String]>,
    pub(crate) calls: &'a CallOptions,
    pub(crate) permissions: Arc<SavedPermissions>,
}

impl HostJudge for SavedPermissions {
    fn host(&self, host: &Host) -> Verdict {
        Self::host(self, host)
    }

    fn tool(&self, name: &str) -> Verdict {
        Self::tool(self, name)
    }

    fn is_offline(&self) -> bool {
        Self::is_offline(self)
    }

    fn is_unasked(&self) -> bool {
        self.mode() == PermissionMode::Full
    }
}

/// Whether a session is kept off the network.
pub(crate) fn is_offline(config: &Config, request: &OpenRequest) -> bool {
    request.permissions.no_network || config.sandbox.network == Network::Closed
}

/// What the user chose and a session does not have that is kept off the network.
pub(crate) fn say_what_is_left_out(config: &Config, request: &OpenRequest, wanted: &WebTools<'_>) {
    let fetches = wanted.names.is_some_and(|names| names.iter().any(|name| name == "web_fetch"));
    let chosen = config.calls.options.web_search != quipu_providers::WebSearch::Off;
    let left_out: Vec<&str> = [
        fetches.then_some("`web_fetch`"),
        wanted.web.search.is_some().then_some("`web_search`"),
        (request.web_search || chosen).then_some("the web search of the model's provider"),
    ]
    .into_iter()
    .flatten()
    .collect();
    if left_out.is_empty() {
        return;
    }
    let left_out = left_out.join(", ");
    if request.permissions.no_network {
        wanted.home.warn_with(
            format!("The session is kept off the network, so it has no web tools ({left_out})"),
            Advice::AllowNetwork,
        );
    } else {
        wanted
            .home
            .warn(format!("`sandbox.network` is `closed`, so the session has no web tools ({left_out})."));
    }
}

/// Gives a session the web tools that the user chose.
pub(crate) fn install(options: &mut SessionOptions, wanted: WebTools<'_>) {
    let WebTools { home, settings, sealer, web, names, calls, permissions } = wanted;
    let access = Arc::new(WebAccess::new(permissions));
    let before = options.tools.len();
    if names.is_some_and(|names| names.iter().any(|name| name == "web_fetch")) {
        options.tools.push(Arc::new(WebFetch::new(access.clone())));
    }
    if let Some(service) = web.search.as_deref().filter(|_| !is_of_the_provider(calls, &options.model)) {
        let key = key_of(settings, service);
        if let Some(key) = &key {
            sealer.know(service, key);
        }
        match WebSearch::new(service, web.search_url.as_deref(), key.as_deref()) {
            Ok(search) => options.tools.push(Arc::new(search)),
            Err(error) => {
                let text = format!("The session has no web search: {error}");
                match (key, needs_search_key(service)) {
                    (None, true) => home.warn_with(text, Advice::SetKey(Some(service.to_owned()))),
                    _ => home.warn(text),
                }
            }
        }
    }
    if options.tools.len() > before {
        options.policies.push(Arc::new(WebPolicy::new(access)));
    }
}

/// Whether the model searches at its provider, as the user wants it to.
fn is_of_the_provider(calls: &CallOptions, model: &Model) -> bool {
    calls.web_search == quipu_providers::WebSearch::On && search_support(model) == SearchSupport::Yes
}

/// Whether a key can be stored for a search service of this name.
pub fn needs_search_key(service: &str) -> bool {
    SEARCH_SERVICES.iter().any(|known| known.id == service && known.needs_key())
}

/// The key of a service: as it is stored, else of the environment.
fn key_of(settings: &Settings, service: &str) -> Option<String> {
    let stored = settings.credential(service).and_then(|credential| match credential.scheme {
        Scheme::Key(secret) | Scheme::Bearer(secret) => Some(secret.expose().to_owned()),
        _ => None,
    });
    stored.or_else(|| {
        let known = SEARCH_SERVICES.iter().find(|known| known.id == service)?;
        env(known.variable.as_deref()?)
    })
}
