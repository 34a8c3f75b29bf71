//! Logins that are stored: kept in `auth.json`, and renewed by one process at a time.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use quipu_protocol::UnixMs;
use serde_json::{Map, Value};

use super::agents::{self, AgentAccount, AgentRenewal, AgentTokens};
use super::auth_file::{WRITE_INTERVAL, WRITES, private, private_directory};
use super::owner_lock::OwnerLock;
use super::{
    AuthEntry, AuthFile, AuthFileError, Credential, CredentialError, Expiry, HeaderText, Keys, Scheme, Secret,
};
use crate::logins::{self, DOMAIN, LoginError, LoginRow, LoginTokens, Logins};
use crate::time::now;

/// How long another process may take to renew a login.
const LOCK: Duration = Duration::from_secs(45);
/// How often is looked whether it is done.
const LOCK_INTERVAL: Duration = Duration::from_millis(25);
/// The field that says when a person accepted the restriction of a login.
const ACCEPTED: &str = "accepted";
/// The field that names the project of the account.
const PROJECT: &str = "project";

/// What is stored of a login, for people: no token.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredLogin {
    /// When the access token counts as expired, in milliseconds since the epoch.
    pub expires: Option<UnixMs>,
    /// Whether another access token can be had without a person.
    pub is_renewable: bool,
    /// The program whose file holds the tokens, where that is not `auth.json`.
    pub agent: Option<String>,
}

impl StoredLogin {
    /// What an entry of `auth.json` says of a login; `None` when it is a key.
    pub(crate) fn of(entry: &AuthEntry) -> Option<Self> {
        match entry {
            AuthEntry::Oauth { refresh, expires, .. } => {
                let is_renewable = refresh.as_ref().is_some_and(|refresh| !refresh.is_empty());
                Some(Self { expires: *expires, is_renewable, agent: None })
            }
            AuthEntry::Reference { agent, .. } => {
                Some(Self { expires: None, is_renewable: false, agent: Some(agent.clone()) })
            }
            AuthEntry::ApiKey { .. } => None,
        }
    }
}

impl AuthFile {
    /// Keeps the tokens of a login for `provider`, or the key that it made, in place of what was there. `accepted` is
    /// when a person accepted its restriction.
    ///
    /// # Errors
    /// As [`AuthFile::set_key`].
    pub fn set_login(
        &self,
        provider: &str,
        tokens: &LoginTokens,
        accepted: Option<UnixMs>,
    ) -> Result<(), AuthFileError> {
        if tokens.expires.is_none() && tokens.refresh.is_none() {
            return self.set_key(provider, &tokens.access);
        }
        let mut stored = Map::from_iter([("type".to_owned(), Value::from("oauth"))]);
        put(&mut stored, tokens);
        if let Some(accepted) = accepted {
            stored.insert(ACCEPTED.to_owned(), accepted.into());
        }
        self.change(|entries| entries.insert(provider.to_owned(), Value::Object(stored))).map(drop)
    }

    /// Has the login that another program keeps used for `provider`, in place of what was there. Nothing is taken from
    /// that program: what is stored is its name, and what is known of the account.
    ///
    /// # Errors
    /// As [`AuthFile::set_key`].
    pub fn set_reference(
        &self,
        provider: &str,
        agent: &str,
        accepted: Option<UnixMs>,
        account: &AgentAccount,
    ) -> Result<(), AuthFileError> {
        let mut stored = serde_json::json!({ "type": "reference", "agent": agent });
        if let Some(accepted) = accepted {
            stored[ACCEPTED] = accepted.into();
        }
        if let Some(project) = &account.project {
            stored[PROJECT] = project.as_str().into();
        }
        self.change(|entries| entries.insert(provider.to_owned(), stored)).map(drop)
    }

    /// Puts renewed tokens in the place of those that `refresh` belongs to. What somebody else stored meanwhile stays.
    fn put_renewed(&self, provider: &str, refresh: &str, tokens: &LoginTokens) -> Result<(), AuthFileError> {
        self.change(|entries| {
            let Some(Value::Object(stored)) = entries.get_mut(provider) else { return };
            if stored.get("refresh").and_then(Value::as_str) == Some(refresh) {
                put(stored, tokens);
            }
        })
    }

    /// The directory in which the file really is.
    fn directory(&self) -> PathBuf {
        let path = fs::canonicalize(self.path()).unwrap_or_else(|_| self.path().to_path_buf());
        path.parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
    }
}

fn put(stored: &mut Map<String, Value>, tokens: &LoginTokens) {
    stored.insert("access".to_owned(), tokens.access.clone().into());
    if let Some(refresh) = &tokens.refresh {
        stored.insert("refresh".to_owned(), refresh.clone().into());
    }
    if let Some(expires) = tokens.expires {
        stored.insert("expires".to_owned(), expires.into());
    }
    stored.extend(tokens.fields.clone());
}

/// Whether an access token can be used now, and is not the one that was refused.
fn is_usable(access: &str, expires: Option<UnixMs>, refused: Option<&str>) -> bool {
    expires.is_none_or(|at| Expiry::At(at).allows(now())) && refused != Some(access)
}

impl AuthEntry {
    /// The project of the account, where a login has one.
    pub(crate) fn project(&self) -> Option<&str> {
        match self {
            Self::Oauth { fields, .. } | Self::Reference { fields, .. } => fields.get(PROJECT)?.as_str(),
            Self::ApiKey { .. } => None,
        }
    }
}

impl Keys {
    /// The token that another program keeps for a provider, as it is now.
    ///
    /// # Errors
    /// When there is none that can be used without its owner.
    pub(crate) async fn agent_token(&self, agent: &str, provider: &str) -> Result<Secret, CredentialError> {
        let tokens = self.agent_tokens(agent, provider).await?;
        if !is_usable(&tokens.access, tokens.expires, None) {
            let what = tokens.expired(provider, &self.logins);
            let what = format!("The {}.", what.trim_start_matches("the "));
            return Err(CredentialError::NeedsLogin { what });
        }
        self.learn(provider, &tokens.access);
        Ok(Secret::new(tokens.access))
    }

    /// The credential of a login that is stored in `auth.json`. One that has expired is given where it can be renewed:
    /// whoever uses it asks again first.
    pub(super) fn login_credential(
        &self,
        provider: &str,
        entry: &AuthEntry,
    ) -> Result<Option<Credential>, String> {
        let row = self.logins.row(provider);
        let (AuthEntry::Oauth { fields, .. } | AuthEntry::Reference { fields, .. }) = entry else {
            return Ok(None);
        };
        let owned = match entry {
            AuthEntry::Reference { agent, .. } => agents::restriction(agent),
            AuthEntry::Oauth { .. } | AuthEntry::ApiKey { .. } => None,
        };
        if let Some(restriction) = row.and_then(|row| row.restriction.as_deref()).or(owned)
            && !fields.contains_key(ACCEPTED)
        {
            return Err(format!(
                "auth.json: nobody has accepted the restriction of this login. {restriction} Log in again to accept it"
            ));
        }
        match entry {
            AuthEntry::Oauth { access, refresh, expires, fields } => {
                let refresh = refresh.as_deref().filter(|refresh| !refresh.is_empty());
                if expires.is_some_and(|at| at <= now()) && (refresh.is_none() || row.is_none()) {
                    return Err("auth.json: the access token has expired; log in again".into());
                }
                self.token_credential(provider, "auth.json", access, refresh, *expires, fields).map(Some)
            }
            AuthEntry::Reference { agent, .. } => {
                let mut tokens = self.agents.tokens(agent, provider)?;
                if tokens.renewal == AgentRenewal::Exchange {
                    let known = self.exchanged().get(provider).cloned();
                    // Until it is exchanged there is nothing to call with; it has expired, so it is not sent.
                    let known = known.filter(|known| is_usable(&known.access, known.expires, None));
                    (tokens.access, tokens.expires) = match known {
                        Some(known) => (known.access, known.expires),
                        None => ("none".to_owned(), Some(1)),
                    };
                }
                let can_renew = tokens.refresh.is_some() && row.is_some();
                if tokens.expires.is_some_and(|at| at <= now()) && !can_renew {
                    return Err(tokens.expired(provider, &self.logins));
                }
                let AgentTokens { access, expires, refresh, fields, name, .. } = &tokens;
                let source = format!("the login of {name}");
                self.token_credential(provider, &source, access, refresh.as_deref(), *expires, fields)
                    .map(Some)
            }
            AuthEntry::ApiKey { .. } => Ok(None),
        }
    }

    fn exchanged(&self) -> MutexGuard<'_, BTreeMap<String, LoginTokens>> {
        self.exchanged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn token_credential(
        &self,
        provider: &str,
        source: &str,
        access: &str,
        refresh: Option<&str>,
        expires: Option<UnixMs>,
        fields: &Map<String, Value>,
    ) -> Result<Credential, String> {
        [Some(access), refresh].into_iter().flatten().for_each(|secret| self.learn(provider, secret));
        let mut credential = Credential::new(source, Scheme::Bearer(Secret::new(access)));
        credential.sealed.extend(refresh.map(Secret::new));
        credential.expiry = expires.map_or(Expiry::UntilRefused, Expiry::At);
        if let Some(row) = self.logins.row(provider) {
            add_sent(row, &mut credential, access, fields)
                .map_err(|problem| format!("{source}: the token cannot be used: {problem}"))?;
        }
        Ok(credential)
    }

    /// Renews a login that another program keeps, where it can be done without taking it from that program.
    async fn renew_reference(
        &self,
        row: &LoginRow,
        provider: &str,
        agent: &str,
        refused: Option<String>,
    ) -> Result<(), CredentialError> {
        let unavailable = |why: String| CredentialError::Unavailable { why };
        let tokens = self.agent_tokens(agent, provider).await?;
        match (tokens.renewal, &tokens.refresh) {
            (AgentRenewal::Exchange, Some(login)) => {
                let known = self.exchanged().get(provider).cloned();
                if known.is_some_and(|it| is_usable(&it.access, it.expires, refused.as_deref())) {
                    return Ok(());
                }
                let (row, _) = row.at(None).map_err(|error| unavailable(error.to_string()))?;
                let made =
                    logins::renewed(&row, login).await.map_err(|error| tokens.failed(provider, &error))?;
                self.exchanged().insert(provider.to_owned(), made);
                Ok(())
            }
            (AgentRenewal::Locked, Some(_))
                if !is_usable(&tokens.access, tokens.expires, refused.as_deref()) =>
            {
                let (keys, row) = (self.clone(), row.clone());
                let (provider, agent) = (provider.to_owned(), agent.to_owned());
                let work = async move { keys.renew_in_place(&row, &provider, &agent, refused).await };
                tokio::spawn(work).await.map_err(|_| CredentialError::Panicked)?
            }
            (AgentRenewal::Owner | AgentRenewal::Exchange | AgentRenewal::Locked, _) => Ok(()),
        }
    }

    /// Renews a login in its owner's file, under its owner's lock.
    async fn renew_in_place(
        &self,
        row: &LoginRow,
        provider: &str,
        agent: &str,
        refused: Option<String>,
    ) -> Result<(), CredentialError> {
        let unavailable = |why: String| CredentialError::Unavailable { why };
        let path = self.agent_tokens(agent, provider).await?.path;
        let lock = OwnerLock::take(&path).await.map_err(unavailable)?;
        let tokens = self.agent_tokens(agent, provider).await?;
        let Some(refresh) = tokens.refresh.clone() else { return Ok(()) };
        if is_usable(&tokens.access, tokens.expires, refused.as_deref()) {
            return Ok(());
        }
        let domain = tokens.fields.get(DOMAIN).and_then(Value::as_str);
        let (row, _) = row.at(domain).map_err(|error| unavailable(error.to_string()))?;
        let made = logins::renewed(&row, &refresh).await.map_err(|error| tokens.failed(provider, &error))?;
        let provider = provider.to_owned();
        let write = move || {
            let mut file = agents::read(&path)?;
            match file.get_mut(&provider) {
                Some(Value::Object(entry))
                    if entry.get("refresh").and_then(Value::as_str) == Some(&refresh) =>
                {
                    put(entry, &made);
                    lock.write(&path, &file)
                }
                _ => Ok(()),
            }
        };
        let written = tokio::task::spawn_blocking(write).await;
        written.map_err(|_| CredentialError::Panicked)?.map_err(unavailable)
    }

    async fn agent_tokens(&self, agent: &str, provider: &str) -> Result<AgentTokens, CredentialError> {
        let (files, agent, provider) = (self.agents.clone(), agent.to_owned(), provider.to_owned());
        let tokens = tokio::task::spawn_blocking(move || files.tokens(&agent, &provider)).await;
        tokens.map_err(|_| CredentialError::Panicked)?.map_err(|why| CredentialError::Unavailable { why })
    }

    /// Renews the login of the provider, where it has one that is expired or whose access token was `refused`. One
    /// process does that at a time; what another has stored meanwhile is used.
    pub(super) async fn renew(&self, provider: &str, refused: Option<String>) -> Result<(), CredentialError> {
        let Some(row) = self.logins.row(provider) else { return Ok(()) };
        let stored = read(&AuthFile::new(&self.home), provider).await?;
        match &stored {
            Some(AuthEntry::Reference { agent, .. }) => {
                return self.renew_reference(row, provider, agent, refused).await;
            }
            Some(AuthEntry::Oauth { access, refresh: Some(_), expires, .. })
                if !is_usable(access, *expires, refused.as_deref()) => {}
            _ => return Ok(()),
        }
        let renewal = Renewal {
            file: AuthFile::new(&self.home),
            row: row.clone(),
            provider: provider.to_owned(),
            refused,
        };
        // A call that is given up must not lose the tokens that a server has just handed out: this is finished then,
        // too.
        tokio::spawn(renewal.run()).await.map_err(|_| CredentialError::Panicked)?
    }
}

impl AgentTokens {
    /// What a person has to do about a login that has expired.
    fn expired(&self, provider: &str, logins: &Logins) -> String {
        let (name, path) = (&self.name, self.path.display());
        let other = match logins.account(provider) {
            Some(_) => format!(", or log in to {provider} here"),
            None => String::new(),
        };
        format!("the login that {name} keeps in {path} has expired; use {name} once{other}")
    }

    fn failed(&self, provider: &str, error: &LoginError) -> CredentialError {
        let (name, path) = (&self.name, self.path.display());
        let what = format!("The login that {name} keeps in {path} was not renewed: {error}.");
        if error.is_final() {
            let what = format!("{what} Log in with {name} again, or log in to {provider} here.");
            return CredentialError::NeedsLogin { what };
        }
        CredentialError::Unavailable { why: what }
    }
}

/// Where calls go with a token, and the headers that go with it.
fn add_sent(
    row: &LoginRow,
    credential: &mut Credential,
    access: &str,
    fields: &Map<String, Value>,
) -> Result<(), String> {
    let domain = fields.get(DOMAIN).and_then(Value::as_str);
    let (row, _) = row.at(domain).map_err(|error| error.to_string())?;
    credential.base_url = logins::base_url(&row, access)?;
    let headers = logins::sent_headers(&row, fields).into_iter();
    credential.headers = headers.map(|(name, value)| (name, HeaderText::Plain(value))).collect();
    Ok(())
}

/// The entry of a provider, as it is now. A file that another program is just writing is read again.
async fn read(file: &AuthFile, provider: &str) -> Result<Option<AuthEntry>, CredentialError> {
    let file = file.clone();
    let read = tokio::task::spawn_blocking(move || file.read_settled()).await;
    match read.map_err(|_| CredentialError::Panicked)? {
        Ok(mut entries) => Ok(entries.known.remove(provider)),
        Err(error) => Err(CredentialError::Unavailable { why: error.to_string() }),
    }
}

/// One renewal of the login of a provider.
struct Renewal {
    file: AuthFile,
    row: LoginRow,
    provider: String,
    refused: Option<String>,
}

impl Renewal {
    async fn run(self) -> Result<(), CredentialError> {
        let _lock = self.lock().await?;
        let Some(AuthEntry::Oauth { access, refresh: Some(refresh), expires, fields }) =
            read(&self.file, &self.provider).await?
        else {
            return Ok(());
        };
        if is_usable(&access, expires, self.refused.as_deref()) {
            return Ok(());
        }
        let domain = fields.get(DOMAIN).and_then(Value::as_str);
        let (row, _) = self.row.at(domain).map_err(|error| self.needs_login(&error.to_string()))?;
        let tokens = match logins::renewed(&row, &refresh).await {
            Ok(tokens) => tokens,
            Err(error) => {
                // Somebody who knows nothing of our lock may have been first.
                let now = read(&self.file, &self.provider).await?;
                if let Some(AuthEntry::Oauth { access, expires, .. }) = &now
                    && is_usable(access, *expires, self.refused.as_deref())
                {
                    return Ok(());
                }
                return Err(match error.is_final() {
                    true => self.needs_login(&error.to_string()),
                    false => CredentialError::Unavailable {
                        why: format!("the login of {} was not renewed: {error}", self.provider),
                    },
                });
            }
        };
        self.store(&refresh, tokens).await
    }

    /// Stores renewed tokens, before anybody uses them.
    async fn store(&self, refresh: &str, tokens: LoginTokens) -> Result<(), CredentialError> {
        let mut tries = WRITES;
        loop {
            let (file, provider) = (self.file.clone(), self.provider.clone());
            let (refresh, tokens) = (refresh.to_owned(), tokens.clone());
            let stored = tokio::task::spawn_blocking(move || file.put_renewed(&provider, &refresh, &tokens));
            match stored.await.map_err(|_| CredentialError::Panicked)? {
                Ok(()) => return Ok(()),
                Err(AuthFileError::Invalid { .. }) if tries > 0 => {
                    tries -= 1;
                    tokio::time::sleep(WRITE_INTERVAL).await;
                }
                Err(error) => {
                    return Err(self.needs_login(&format!("the renewed tokens could not be stored: {error}")));
                }
            }
        }
    }

    /// Held by the process that renews.
    async fn lock(&self) -> Result<File, CredentialError> {
        let directory = self.file.directory();
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
        let name: String = self.provider.chars().take(64).map(plain).collect();
        let path = directory.join(format!("auth.json.{name}.lock"));
        let failed = |error: std::io::Error| CredentialError::Unavailable {
            why: format!("the login of {} was not renewed: {}: {error}", self.provider, path.display()),
        };
        private_directory(&directory).map_err(failed)?;
        let file = private().create(true).truncate(false).open(&path).map_err(failed)?;
        let until = tokio::time::Instant::now() + LOCK;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::Error(error)) => return Err(failed(error)),
                Err(TryLockError::WouldBlock) if tokio::time::Instant::now() >= until => {
                    return Err(CredentialError::Unavailable {
                        why: format!(
                            "another process has been renewing the login of {} for {} seconds and holds {}; end it",
                            self.provider,
                            LOCK.as_secs(),
                            path.display()
                        ),
                    });
                }
                Err(TryLockError::WouldBlock) => tokio::time::sleep(LOCK_INTERVAL).await,
            }
        }
    }

    fn needs_login(&self, why: &str) -> CredentialError {
        let (provider, name) = (&self.provider, &self.row.name);
        CredentialError::NeedsLogin {
            what: format!(
                "The login of {provider} ({name}) cannot be used any more: {why}. Log in to {provider} again."
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::auth_file::entry;
    use super::*;

    #[test]
    fn renewed_tokens_leave_alone_what_somebody_else_stored() {
        let home = tempfile::tempdir().unwrap();
        let file = AuthFile::new(home.path());
        let tokens = |number: u32| LoginTokens {
            access: format!("access-{number}"),
            refresh: Some(format!("refresh-{number}")),
            expires: Some(number.into()),
            fields: Map::new(),
        };
        let stored = || {
            let text = fs::read_to_string(file.path()).unwrap();
            entry(&serde_json::from_str::<Value>(&text).unwrap()["p"]).unwrap()
        };
        fs::write(
            file.path(),
            r#"{"p": {"type": "oauth", "access": "access-0", "refresh": "refresh-0", "accountId": "a", "more": [1]}}"#,
        )
        .unwrap();
        file.put_renewed("p", "refresh-0", &tokens(1)).unwrap();
        let fields: Map<String, Value> = serde_json::from_str(r#"{"accountId": "a", "more": [1]}"#).unwrap();
        let oauth = |number: u32| AuthEntry::Oauth {
            access: format!("access-{number}"),
            refresh: Some(format!("refresh-{number}")),
            expires: Some(number.into()),
            fields: fields.clone(),
        };
        assert_eq!(stored(), oauth(1));
        file.put_renewed("p", "refresh-0", &tokens(2)).unwrap();
        assert_eq!(stored(), oauth(1));
        assert!(file.remove("p").unwrap());
        file.put_renewed("p", "refresh-1", &tokens(2)).unwrap();
        assert!(file.read().unwrap().known.is_empty());
    }
}
