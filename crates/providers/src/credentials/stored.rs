//! Keys that are stored: in `auth.json`, in variables of the environment, in `models.json`, some of them behind commands.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;

use super::{
    AgentFiles, AuthEntry, AuthFile, CallOutcome, Credential, CredentialError, CredentialRequest,
    CredentialSource, Scheme, Secret, agent_owner,
};
use crate::catalogue;
use crate::logins::{LoginTokens, Logins};
use crate::models_file::ProviderConfig;
use crate::values::{self, Shell, ValueError, Vars};

/// The keys of a user. Clones share what commands printed.
#[derive(Clone)]
pub(crate) struct Keys {
    pub(crate) home: PathBuf,
    /// The variables that matter, as they were.
    pub(crate) vars: Arc<Vars>,
    /// Runs commands that the files name.
    pub(crate) shell: Arc<Shell>,
    pub(crate) auth: Arc<BTreeMap<String, AuthEntry>>,
    pub(crate) configs: Arc<BTreeMap<String, ProviderConfig>>,
    pub(crate) logins: Logins,
    /// The ids of keys in the order in which those of one provider are tried.
    pub(crate) order: Arc<Vec<String>>,
    /// The keys that sessions keep to, by provider.
    pub(crate) kept: Arc<BTreeMap<String, String>>,
    /// Where other programs keep logins.
    pub(crate) agents: Arc<AgentFiles>,
    /// Tokens that were had for those, and are stored nowhere.
    pub(crate) exchanged: Arc<Mutex<BTreeMap<String, LoginTokens>>>,
    /// Providers whose servers are on this machine.
    pub(crate) here: Arc<BTreeSet<String>>,
    /// What the commands of `auth.json` printed, until it was refused.
    pub(crate) printed: Arc<Mutex<BTreeMap<String, Result<String, ValueError>>>>,
    /// Secrets that became known after loading, with their provider.
    pub(crate) learned: Arc<Mutex<BTreeSet<(String, String)>>>,
}

impl Keys {
    pub(crate) fn learned(&self) -> MutexGuard<'_, BTreeSet<(String, String)>> {
        self.learned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn learn(&self, provider: &str, secret: &str) {
        self.learned().insert((provider.to_owned(), secret.to_owned()));
    }

    /// Whether keys of the provider are sent as bearer tokens, whatever they are.
    fn is_bearer(&self, provider: &str) -> bool {
        self.configs.get(provider).is_some_and(|config| config.auth_header)
    }

    /// A key that somebody gives by hand.
    pub(crate) fn given(&self, provider: &str, key: &str) -> Credential {
        self.learn(provider, key);
        let secret = Secret::new(key);
        let scheme = if self.is_bearer(provider) { Scheme::Bearer(secret) } else { Scheme::Key(secret) };
        Credential::new("a key given by hand", scheme)
    }

    /// What is stored for the provider; `None` when nothing is. May run a command.
    pub(crate) fn look_up(&self, provider: &str) -> Result<Option<Credential>, String> {
        self.look_up_with(provider, self.entry_for(provider, &self.auth))
    }

    pub(super) fn look_up_with(
        &self,
        provider: &str,
        entry: Option<&AuthEntry>,
    ) -> Result<Option<Credential>, String> {
        // `raw` is what is written in the file; `$` for what is not.
        let credential = |raw: &str, text: String, bearer: bool, source: &str| {
            let secret = if self.is_placeholder(provider, raw) {
                Secret::placeholder(text)
            } else {
                self.learn(provider, &text);
                Secret::new(text)
            };
            let bearer = bearer || self.is_bearer(provider);
            Credential::new(source, if bearer { Scheme::Bearer(secret) } else { Scheme::Key(secret) })
        };
        match entry {
            Some(AuthEntry::ApiKey { key: Some(key), env }) => {
                let vars = self.vars_with(env);
                let value = if key.starts_with('!') {
                    let mut printed = self.printed.lock().unwrap_or_else(PoisonError::into_inner);
                    let run = || values::resolve(key, &vars, &*self.shell);
                    printed.entry(key.clone()).or_insert_with(run).clone()
                } else {
                    values::resolve(key, &vars, &*self.shell)
                };
                let value = value.map_err(|error| format!("auth.json: {error}"))?;
                return Ok(Some(credential(key, value, false, "auth.json")));
            }
            Some(login @ (AuthEntry::Oauth { .. } | AuthEntry::Reference { .. })) => {
                return self.login_credential(provider, login);
            }
            Some(AuthEntry::ApiKey { key: None, .. }) | None => {}
        }
        for env in catalogue::provider(provider).into_iter().flat_map(|row| &row.env) {
            if let Some(Some(value)) = self.vars.get(&env.name) {
                return Ok(Some(credential("$", value.trim().to_owned(), env.bearer, &env.name)));
            }
        }
        let config = self.configs.get(provider);
        match config.and_then(|config| config.api_key.as_deref()).filter(|key| !key.is_empty()) {
            Some(key) => {
                let value = values::resolve(key, &self.vars, &*self.shell)
                    .map_err(|error| format!("models.json: {error}"))?;
                Ok(Some(credential(key, value, false, "models.json")))
            }
            None => Ok(None),
        }
    }

    /// What is stored now, after something else was refused or expired: the file may have another key by now, and a
    /// command may print another.
    fn look_up_again(&self, provider: &str) -> Result<Option<Credential>, String> {
        let entries = AuthFile::new(&self.home).read_settled().map_err(|error| error.to_string())?;
        let entry = self.entry_for(provider, &entries.known);
        if let Some(AuthEntry::ApiKey { key: Some(key), .. }) = entry {
            self.printed.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        }
        self.look_up_with(provider, entry)
    }

    /// The variables, with those that an entry of `auth.json` brings.
    pub(crate) fn vars_with(&self, env: &BTreeMap<String, String>) -> Vars {
        let mut vars = Vars::clone(&self.vars);
        vars.extend(env.iter().map(|(name, value)| (name.clone(), Some(value.clone()))));
        vars
    }

    /// Whether a key that is written out is one in name only: servers on this machine want some word, which may be
    /// any and occurs elsewhere. To seal it would tear ordinary text.
    pub(crate) fn is_placeholder(&self, provider: &str, key: &str) -> bool {
        const LONGEST: usize = 24;
        let wordlike =
            key.len() <= LONGEST && !key.contains(|c: char| c.is_ascii_digit() || "$!".contains(c));
        wordlike && self.here.contains(provider)
    }

    /// What a person has to do so that there is a credential.
    pub(crate) fn advice(&self, provider: &str, why: &str) -> String {
        let names: Vec<_> = catalogue::provider(provider)
            .map(|row| row.env.iter().rev().map(|env| env.name.as_str()).collect())
            .unwrap_or_default();
        if let (Some((_, owner)), None, []) =
            (agent_owner(provider), self.logins.account(provider), names.as_slice())
        {
            let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
            return format!(
                "There is no credential for {provider}{why}. It is called with the login that {owner} keeps."
            );
        }
        let set = match names.first() {
            Some(name) => format!("Set {name}, or put"),
            None => "Put".into(),
        };
        let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
        if let (Some(account), []) = (self.logins.account(provider), names.as_slice()) {
            return format!("There is no credential for {provider}{why}. Log in to it ({account}).");
        }
        let mut message = format!(
            "There is no credential for {provider}{why}. {set} {{\"{provider}\": {{\"type\": \"api_key\", \"key\": \
             \"…\"}}}} into {}.",
            self.home.join("auth.json").display()
        );
        if catalogue::provider(provider).is_none() {
            message.push_str(" `apiKey` in models.json works too.");
        }
        if let Some(account) = self.logins.account(provider) {
            message.push_str(&format!(" Or log in to {provider} ({account})."));
        }
        message
    }
}

/// The source of keys that are stored, for one provider: what `auth.json`, the environment and `models.json` say.
///
/// When a key is refused or has expired, `auth.json` is read again and its command runs again; where that gives
/// another key, the call goes on with it.
pub struct StoredKeys {
    keys: Keys,
    /// What was given last.
    last: Mutex<Option<Credential>>,
    /// The token that a login was renewed to when the one before was refused: it is not renewed again for the same.
    renewed: Mutex<Option<Secret>>,
    origin: Origin,
}

/// Where the first key of a source is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Stored,
    /// Somebody has given it, and wants no other.
    Given,
}

impl fmt::Debug for StoredKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredKeys").field("origin", &self.origin).finish_non_exhaustive()
    }
}

impl StoredKeys {
    pub(crate) fn new(keys: Keys, first: Credential, origin: Origin) -> Self {
        Self { keys, last: Mutex::new(Some(first)), renewed: Mutex::default(), origin }
    }

    /// The token of a credential that was refused, unless it was renewed for that reason already.
    fn refused_token(&self, refused: Option<Credential>) -> Option<String> {
        let Scheme::Bearer(token) = refused?.scheme else { return None };
        let renewed = self.renewed.lock().unwrap_or_else(PoisonError::into_inner);
        (renewed.as_ref() != Some(&token)).then(|| token.expose().to_owned())
    }

    fn last(&self) -> MutexGuard<'_, Option<Credential>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CredentialSource for StoredKeys {
    fn name(&self) -> &str {
        "stored keys"
    }

    fn credential<'a>(
        &'a self,
        request: &'a CredentialRequest<'a>,
    ) -> BoxFuture<'a, Result<Credential, CredentialError>> {
        Box::pin(async move {
            let last = self.last().clone();
            if let Some(same) =
                last.clone().filter(|_| request.is_exhausted() || self.origin == Origin::Given)
            {
                return Ok(same);
            }
            let (keys, provider) = (self.keys.clone(), request.provider.to_owned());
            let advice = |why: &str| CredentialError::NeedsLogin { what: self.keys.advice(&provider, why) };
            let refused = request.refused.as_ref().filter(|it| it.outcome == CallOutcome::Unauthorised);
            let refused = self.refused_token(last.filter(|_| refused.is_some()));
            keys.renew(&provider, refused.clone()).await?;
            let asked = provider.clone();
            let found = tokio::task::spawn_blocking(move || keys.look_up_again(&asked)).await;
            let found = found.map_err(|_| CredentialError::Panicked)?;
            let credential = found.map_err(|why| advice(&why))?.ok_or_else(|| advice(""))?;
            if let (Some(_), Scheme::Bearer(token)) = (refused, &credential.scheme) {
                *self.renewed.lock().unwrap_or_else(PoisonError::into_inner) = Some(token.clone());
            }
            *self.last() = Some(credential.clone());
            Ok(credential)
        })
    }
}
