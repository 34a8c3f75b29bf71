//! What gives a call its credential: sources, what they give, and the handle through which calls use them.
//!
//! A [`CredentialSource`] knows where credentials are from; [`Credentials`] is how calls use one: it keeps a
//! credential until it expires or is refused, lets one call at a time fetch, and holds a source to its limits. To try
//! again with another credential is a decision of the source alone.

mod adopt;
mod agents;
mod auth_file;
mod check;
mod credential;
mod error;
mod handle;
mod key_ring;
mod key_use;
mod keychain;
mod login;
mod owner_lock;
mod secret;
mod sign;
mod stored;
mod use_file;

use futures_util::future::BoxFuture;
use quipu_protocol::ModelErrorKind;

pub use adopt::{AdoptMode, AdoptOutcome, AdoptedCredential, AdoptedPause, AdoptedUse, adopt_key_use};
pub(crate) use agents::AgentFiles;
pub(crate) use agents::owner as agent_owner;
pub use agents::{AgentAccount, AgentLogin};
pub(crate) use auth_file::{AuthEntries, AuthEntry};
pub use auth_file::{AuthFile, AuthFileError};
pub use credential::{Credential, Expiry, HeaderText, Scheme};
pub use error::{CredentialError, InvalidCredential, SourceFailure};
pub use handle::{Credentials, MAX_CREDENTIALS_PER_CALL};
pub use key_ring::{KeyPause, KeyStatus, forget_key_use};
pub use keychain::{Keychain, KeychainError};
pub use login::StoredLogin;
pub use secret::Secret;
pub use sign::{Sign, SignRequest};
pub use stored::StoredKeys;
pub(crate) use stored::{Keys, Origin};

/// Gives the calls to a provider their credentials.
///
/// Futures that it returns must not block their thread. One that takes longer than
/// [`CallOptions::credential_timeout`](crate::CallOptions::credential_timeout), panics, or gives something that cannot
/// be sent fails the call that needed it, and no other.
///
/// ```
/// use futures_util::future::BoxFuture;
/// use quipu_providers::{
///     CallOutcome, Credential, CredentialError, CredentialRequest, CredentialSource, Expiry, Scheme, Secret,
/// };
///
/// /// Access tokens that live for an hour, of an account that has a second one.
/// struct Tokens;
///
/// impl CredentialSource for Tokens {
///     fn name(&self) -> &str {
///         "example tokens"
///     }
///
///     fn credential<'a>(
///         &'a self,
///         request: &'a CredentialRequest<'a>,
///     ) -> BoxFuture<'a, Result<Credential, CredentialError>> {
///         Box::pin(async move {
///             let account = match &request.refused {
///                 None => "first",
///                 Some(refused) if refused.identity == "first" => "second",
///                 Some(_) => {
///                     let what = "Both accounts were refused. Run `example login`.";
///                     return Err(CredentialError::NeedsLogin { what: what.into() });
///                 }
///             };
///             // Here it would ask a server.
///             let token = Secret::new(format!("token-of-{account}-account"));
///             let mut credential = Credential::new(account, Scheme::Bearer(token));
///             credential.expiry = Expiry::At(4_102_444_800_000);
///             Ok(credential)
///         })
///     }
///
///     fn report<'a>(&'a self, _identity: &'a str, _outcome: &'a CallOutcome) -> BoxFuture<'a, ()> {
///         Box::pin(std::future::ready(()))
///     }
/// }
///
/// # futures_util::FutureExt::now_or_never(async {
/// let request = CredentialRequest::first("example");
/// assert_eq!(Tokens.credential(&request).await.unwrap().identity, "first");
/// # }).unwrap();
/// ```
pub trait CredentialSource: Send + Sync + 'static {
    /// What it is called, for people: in errors, in `quipu auth`.
    fn name(&self) -> &str;

    /// A credential for the next attempt. What it gives after a refusal is used only when it is another one; to have no
    /// other, give the same again.
    ///
    /// # Errors
    /// [`CredentialError::NeedsLogin`] with what a person has to do; [`CredentialError::Unavailable`] for all else.
    fn credential<'a>(
        &'a self,
        request: &'a CredentialRequest<'a>,
    ) -> BoxFuture<'a, Result<Credential, CredentialError>>;

    /// What became of an attempt with the credential of this identity. Awaited for five seconds at most. By default nothing
    /// is done.
    fn report<'a>(&'a self, _identity: &'a str, _outcome: &'a CallOutcome) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// What a credential is needed for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CredentialRequest<'a> {
    /// The id of the provider that is called.
    pub provider: &'a str,
    /// What the call used before, and what came of it; `None` for its first attempt.
    pub refused: Option<RefusedCredential<'a>>,
}

impl<'a> CredentialRequest<'a> {
    /// Whether the credential is good and its account can do no more for now: to fetch the same again helps nobody.
    pub(crate) fn is_exhausted(&self) -> bool {
        let is_refused = |it: &RefusedCredential<'_>| {
            matches!(it.outcome, CallOutcome::Unauthorised | CallOutcome::Revoked)
        };
        self.refused.as_ref().is_some_and(|it| !is_refused(it))
    }

    /// The request of a call that has sent nothing.
    #[must_use]
    pub const fn first(provider: &'a str) -> Self {
        Self { provider, refused: None }
    }
}

/// A credential that a provider refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedCredential<'a> {
    /// The name under which the source knows the credential.
    pub identity: &'a str,
    /// What came of it.
    pub outcome: CallOutcome,
}

/// What became of an attempt, as far as it concerns its credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CallOutcome {
    /// It was answered.
    Done,
    /// The credential was refused.
    Unauthorised,
    /// The credential was revoked: it will not be taken again.
    Revoked,
    /// There were too many requests with it.
    RateLimited,
    /// A limit of a day, a week or its plan is reached.
    UsageLimit,
    /// Its money or quota is used up.
    Quota,
    /// It failed for another reason.
    Other(ModelErrorKind),
}

impl CallOutcome {
    pub(crate) const fn of(error: Option<ModelErrorKind>) -> Self {
        match error {
            None => Self::Done,
            Some(ModelErrorKind::Auth) => Self::Unauthorised,
            Some(ModelErrorKind::AuthRevoked) => Self::Revoked,
            Some(ModelErrorKind::RateLimited) => Self::RateLimited,
            Some(ModelErrorKind::UsageLimit) => Self::UsageLimit,
            Some(ModelErrorKind::Quota) => Self::Quota,
            Some(other) => Self::Other(other),
        }
    }

    /// Whether another credential may help.
    #[must_use]
    pub const fn is_refusal(&self) -> bool {
        match self {
            Self::Unauthorised | Self::Revoked | Self::RateLimited | Self::UsageLimit | Self::Quota => true,
            Self::Done | Self::Other(_) => false,
        }
    }
}
