//! Logins to providers: begun, shown, waited for, stored.

use quipu_protocol::UnixMs;
use quipu_providers::{
    AgentLogin, AuthFile, Keychain, LoginError, LoginOptions, LoginPrompt, PendingLogin, Settings as Models,
    nearest,
};
use tokio_util::sync::CancellationToken;

pub use quipu_providers::LoginMethod;

use crate::{Advice, Failure, FailureKind, Home};

/// The login that a provider has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginOffer {
    /// The provider.
    pub provider: String,
    /// The account, for people.
    pub account: String,
    /// What a person must accept before it is used.
    pub restriction: Option<String>,
    /// Whether a key of the provider can be used in its place.
    pub takes_key: bool,
    /// Whether it can be made in a browser.
    pub in_browser: bool,
    /// Whether it can be made with a code on another device.
    pub by_device_code: bool,
}

/// Whether a person has accepted the restriction of a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestrictionConsent {
    /// Nobody was asked, or the answer was no.
    Absent,
    /// A person has read and accepted it.
    Accepted,
}

/// A login that waits for its person. Dropping it ends it, and nothing is stored.
#[derive(Debug)]
pub struct ProviderLogin {
    offer: LoginOffer,
    pending: PendingLogin,
    file: AuthFile,
    keychain: Keychain,
    accepted: Option<UnixMs>,
}

/// What gives a provider its credential: a key, the login to its account, or either.
pub(crate) fn credential_advice(settings: &Models, provider: &str) -> Advice {
    let takes_key = !settings.credential_variables(provider).is_empty();
    match (settings.logins().account(provider), takes_key) {
        (None, _) => match settings.login_owner(provider) {
            Some(agent) => Advice::UseLogin(agent.to_owned()),
            None => Advice::SetKey(Some(provider.to_owned())),
        },
        (Some(_), true) => Advice::SetKeyOrLogIn(provider.to_owned()),
        (Some(_), false) => Advice::LogIn(provider.to_owned()),
    }
}

/// Every login that there is.
pub fn login_offers(settings: &Models) -> Vec<LoginOffer> {
    let logins = settings.logins();
    logins.providers().into_iter().filter_map(|provider| offer(settings, provider)).collect()
}

/// The login of one provider.
///
/// # Errors
/// When it has none.
pub fn login_offer(settings: &Models, provider: &str) -> Result<LoginOffer, Failure> {
    let logins = settings.logins();
    offer(settings, provider).ok_or_else(|| {
        let all = logins.providers();
        let near = nearest(provider, all.iter().map(|name| (*name).to_owned()));
        let near = near.first().map_or_else(String::new, |near| format!(" Did you mean {near}?"));
        let provider = crate::one_line(provider, 80);
        Failure::request(format!("{provider} has no login.{near} These have one: {}", all.join(", ")))
    })
}

pub(crate) fn offer(settings: &Models, provider: &str) -> Option<LoginOffer> {
    let logins = settings.logins();
    Some(LoginOffer {
        provider: provider.to_owned(),
        account: logins.account(provider)?.to_owned(),
        restriction: logins.restriction(provider).map(str::to_owned),
        takes_key: !settings.credential_variables(provider).is_empty(),
        in_browser: logins.has_browser(provider),
        by_device_code: logins.has_device_code(provider),
    })
}

/// Begins the login that was offered.
///
/// # Errors
/// When its restriction is not accepted, and what the provider's server says.
pub async fn begin_login(
    home: &Home,
    settings: &Models,
    offer: LoginOffer,
    consent: RestrictionConsent,
    options: LoginOptions,
) -> Result<ProviderLogin, Failure> {
    if let (Some(restriction), RestrictionConsent::Absent) = (&offer.restriction, consent) {
        return Err(Failure::request(format!(
            "{} is not used before you accept: {restriction}",
            offer.account
        )));
    }
    let pending = PendingLogin::begin(settings.logins(), &offer.provider, options)
        .await
        .map_err(|error| failed(&error))?;
    let accepted = offer.restriction.as_ref().map(|_| crate::now());
    let (file, keychain) = (AuthFile::new(&home.dir), settings.keychain());
    Ok(ProviderLogin { offer, pending, file, keychain, accepted })
}

impl ProviderLogin {
    /// What to show.
    pub fn prompt(&self) -> LoginPrompt {
        self.pending.prompt()
    }

    /// Waits until the person is done, and stores the tokens. `paste` gives what is pasted, or `None` when nothing will
    /// be. Says what was stored.
    ///
    /// # Errors
    /// When the login fails, takes too long or is cancelled, or the tokens cannot be stored.
    pub async fn finish(
        self,
        paste: impl Future<Output = Option<String>> + Send,
        cancel: &CancellationToken,
    ) -> Result<String, Failure> {
        let Self { offer, pending, file, keychain, accepted } = self;
        let tokens = tokio::select! {
            tokens = pending.finish(paste) => tokens.map_err(|error| failed(&error))?,
            () = cancel.cancelled() => return Err(Failure::failed("the login was stopped; nothing is stored")),
        };
        let (provider, account) = (offer.provider, offer.account);
        let path = file.path().display().to_string();
        let stored = {
            let provider = provider.clone();
            let store =
                move || keychain.replace(&file, &provider, || file.set_login(&provider, &tokens, accepted));
            tokio::task::spawn_blocking(store).await
        };
        stored.map_err(Failure::failed)?.map_err(Failure::failed)?;
        Ok(format!(
            "You are logged in to {provider} ({account}). The login is in {path}, which only you can read."
        ))
    }
}

fn failed(error: &LoginError) -> Failure {
    let kind = match error {
        LoginError::Denied { .. }
        | LoginError::Expired
        | LoginError::TimedOut { .. }
        | LoginError::Refused { .. } => FailureKind::Credential,
        LoginError::NoFlow { .. }
        | LoginError::Callback { .. }
        | LoginError::ForeignCode
        | LoginError::NoCode
        | LoginError::Address { .. }
        | LoginError::Domain { .. } => FailureKind::Request,
        LoginError::Nonsense { .. } | LoginError::Unreachable { .. } => FailureKind::Failed,
    };
    Failure::new(kind, format!("{error}; nothing is stored"))
}

/// The login of another program on this machine, where it can be used.
///
/// # Errors
/// When that program keeps none, or several and the provider is not named, or none that can be used.
pub fn agent_login(settings: &Models, agent: &str, provider: Option<&str>) -> Result<AgentLogin, Failure> {
    let all = settings.agent_logins();
    let mut found: Vec<&AgentLogin> = all.iter().filter(|login| login.agent == agent).collect();
    let Some(first) = found.first() else {
        let others: Vec<_> = all.iter().map(|login| login.agent.as_str()).collect();
        let others = if others.is_empty() { "no program does".to_owned() } else { others.join(", ") };
        let agent = crate::one_line(agent, 40);
        return Err(Failure::request(format!("{agent} keeps no login on this machine; these do: {others}")));
    };
    let (name, path, obstacle) =
        (first.name.clone(), first.path.display().to_string(), first.obstacle.clone());
    if let Some(provider) = provider {
        found.retain(|login| login.provider.as_deref() == Some(provider));
    }
    let providers: Vec<_> = found.iter().filter_map(|login| login.provider.as_deref()).collect();
    match (found.as_slice(), providers.as_slice()) {
        ([login], [_]) => Ok(AgentLogin::clone(login)),
        ([_], []) => Err(Failure::request(format!(
            "the login that {name} keeps in {path} cannot be used: {}",
            obstacle.unwrap_or_else(|| "no provider takes it".to_owned())
        ))),
        ([], _) => Err(Failure::request(format!("{name} keeps no login for that provider in {path}"))),
        _ => {
            Err(Failure::request(format!("{name} keeps several logins; name one: {}", providers.join(", "))))
        }
    }
}

/// Has the login of another program used from now on. What it keeps is read when it is needed and stays where it is.
/// Where calls need to know more of the account, its server is asked.
///
/// # Errors
/// When its restriction is not accepted, the server refuses the login, or it cannot be stored.
pub async fn use_agent_login(
    home: &Home,
    settings: &Models,
    login: &AgentLogin,
    consent: RestrictionConsent,
) -> Result<String, Failure> {
    let provider = login.provider.as_deref().unwrap_or_default();
    let restriction = login.restriction.as_deref();
    if let (Some(restriction), RestrictionConsent::Absent) = (restriction, consent) {
        return Err(Failure::request(format!("the login is not used before you accept: {restriction}")));
    }
    let account = settings.agent_account(login).await.map_err(|error| {
        Failure::new(
            FailureKind::Credential,
            format!("{}; nothing is stored", error.to_string().trim_end_matches('.')),
        )
    })?;
    let file = AuthFile::new(&home.dir);
    let accepted = restriction.map(|_| crate::now());
    let set = || file.set_reference(provider, &login.agent, accepted, &account);
    settings.keychain().replace(&file, provider, set).map_err(Failure::failed)?;
    let (name, path) = (&login.name, login.path.display());
    Ok(format!("{provider} uses the login of {name} in {path}. Nothing was copied from it."))
}
