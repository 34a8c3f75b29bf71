//! How a wire reaches its server: an address and headers, with whatever credential there is.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use quipu_protocol::{Model, ModelError, ModelErrorKind};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};

use crate::CallOptions;
use crate::credentials::{
    CallOutcome, Credential, CredentialError, Credentials, InvalidCredential, MAX_CREDENTIALS_PER_CALL,
    Scheme, SignRequest, SourceFailure,
};
use crate::target::{Target, add_headers, header_value};

/// What a wire makes of a base URL and a credential.
pub(crate) trait WireForm: Send + Sync + 'static {
    /// Where requests go below a base URL.
    fn address(&self, base_url: &str) -> String;

    /// Where requests with such a credential go, where that makes a difference.
    fn address_for(&self, base_url: &str, _scheme: &Scheme) -> String {
        self.address(base_url)
    }

    /// The wire's own headers, with those that carry the credential.
    fn headers(&self, scheme: &Scheme) -> Result<HeaderMap, InvalidCredential>;

    /// Whether all headers together are what the server needs with such a credential.
    fn check(&self, _scheme: &Scheme, _headers: &HeaderMap) -> Result<(), InvalidCredential> {
        Ok(())
    }
}

/// The way to one model.
pub(crate) struct Access {
    credentials: Credentials,
    provider: String,
    base_url: String,
    /// Headers that a person has set.
    configured: HeaderMap,
    wire: Box<dyn WireForm>,
    /// Where the model's own base URL leads.
    own: Target,
    /// What the last credential came to.
    ready: Mutex<Option<ResolvedAccess>>,
}

/// A credential and the target that calls with it go to.
#[derive(Clone)]
pub(crate) struct ResolvedAccess {
    pub(crate) credential: Arc<Credential>,
    pub(crate) target: Arc<Target>,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").field("credentials", &self.credentials).field("target", &self.own).finish()
    }
}

impl Access {
    /// The way to `model` with these credentials and a person's `headers`.
    ///
    /// # Errors
    /// `InvalidRequest` when the base URL is not an HTTP URL or a header is none, `Auth` when a credential that is known
    /// already cannot stand in a header.
    pub(crate) fn new(
        model: &Model,
        credentials: Credentials,
        headers: &[(String, String)],
        wire: impl WireForm,
    ) -> Result<Self, ModelError> {
        let mut configured = HeaderMap::new();
        add_headers(&mut configured, headers)?;
        let own = Target::new(&wire.address(&model.base_url), HeaderMap::new(), &[])?;
        let access = Self {
            credentials,
            provider: model.provider.clone(),
            base_url: model.base_url.clone(),
            configured,
            wire: Box::new(wire),
            own,
            ready: Mutex::default(),
        };
        if let Some(known) = access.credentials.known() {
            access.reached(known.clone()).map_err(|problem| {
                let text = format!("The credential from {} cannot be used: {problem}.", known.identity);
                ModelError::new(ModelErrorKind::Auth, text)
            })?;
        }
        Ok(access)
    }

    /// Whether the model is one of this machine.
    pub(crate) fn is_local(&self) -> bool {
        self.own.is_local()
    }

    /// Whether attempts name their credential though there was only one.
    pub(crate) fn is_named(&self) -> bool {
        self.credentials.is_named()
    }

    /// The way for the next attempt.
    pub(crate) async fn reach(&self, options: &CallOptions) -> Result<ResolvedAccess, ModelError> {
        let credential = self.credentials.get(&self.provider, None, options.credential_timeout).await?;
        self.reached(credential.clone()).map_err(|problem| {
            self.credentials.forget(&credential);
            self.unusable(problem).into()
        })
    }

    /// A way with a credential that is none of those that were `used`, the last of which came to `outcome`. `None` when
    /// the source has no other.
    ///
    /// # Errors
    /// When the source was asked and failed.
    pub(crate) async fn another(
        &self,
        used: &[Arc<Credential>],
        outcome: CallOutcome,
        options: &CallOptions,
    ) -> Result<Option<ResolvedAccess>, SourceFailure> {
        let Some(last) = used.last().filter(|_| used.len() < MAX_CREDENTIALS_PER_CALL) else {
            return Ok(None);
        };
        let refused = Some((last, outcome));
        let credential = self.credentials.get(&self.provider, refused, options.credential_timeout).await?;
        if used.iter().any(|known| known.is_sent_as(&credential)) {
            return Ok(None);
        }
        self.reached(credential.clone()).map(Some).map_err(|problem| {
            self.credentials.forget(&credential);
            self.unusable(problem)
        })
    }

    /// Lets the source know what became of an attempt.
    pub(crate) async fn report(&self, credential: &Credential, outcome: CallOutcome) {
        self.credentials.report(credential, outcome).await;
    }

    /// What is sent to `target` when its credential signs requests; `None` when it does not.
    pub(crate) async fn signed(
        &self,
        reached: &ResolvedAccess,
        headers: &HeaderMap,
        body: &Bytes,
        options: &CallOptions,
    ) -> Result<Option<(Target, HeaderMap)>, ModelError> {
        let Scheme::Signer(signer) = &reached.credential.scheme else { return Ok(None) };
        let target = &*reached.target;
        let host = target.name();
        let mut shown = vec![("host", host.as_str())];
        shown.extend(headers.iter().filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?))));
        let url = target.url();
        let request = SignRequest { method: "POST", url, headers: shown, body };
        let sign = async { signer.sign(&request).await };
        let made = self.credentials.guard(sign, options.credential_timeout).await?;
        let (mut all, mut target) = (headers.clone(), target.clone());
        for (name, value) in made {
            let added =
                HeaderName::try_from(name.as_str()).ok().zip(HeaderValue::try_from(value.expose()).ok());
            let (name, mut carried) = added.ok_or_else(|| self.unusable(InvalidCredential::Header))?;
            carried.set_sensitive(true);
            all.insert(name, carried);
            target.hide(value.expose());
        }
        Ok(Some((target, all)))
    }

    fn unusable(&self, problem: InvalidCredential) -> SourceFailure {
        let source_name = self.credentials.name().to_owned();
        SourceFailure { source_name, error: CredentialError::Invalid(problem) }
    }

    fn reached(&self, credential: Arc<Credential>) -> Result<ResolvedAccess, InvalidCredential> {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ready) = ready.as_ref().filter(|ready| Arc::ptr_eq(&ready.credential, &credential)) {
            return Ok(ready.clone());
        }
        let mut headers = self.wire.headers(&credential.scheme)?;
        for (name, text) in &credential.headers {
            let name = HeaderName::try_from(name.as_str()).map_err(|_| InvalidCredential::Header)?;
            headers.insert(name, carried(text.expose())?);
        }
        headers.extend(self.configured.clone());
        self.wire.check(&credential.scheme, &headers)?;
        let base_url = credential.base_url.as_deref().unwrap_or(&self.base_url);
        let secrets: Vec<_> = credential.secrets().map(|secret| secret.expose().to_owned()).collect();
        let target = Target::new(&self.wire.address_for(base_url, &credential.scheme), headers, &secrets)
            .map_err(|_| InvalidCredential::BaseUrl)?;
        if self.own.is_local() && !target.is_local() {
            return Err(InvalidCredential::LeavesMachine);
        }
        Ok(ready.insert(ResolvedAccess { credential, target: Arc::new(target) }).clone())
    }
}

/// The headers of a scheme on a wire that has no header of its own for keys, or this one.
pub(crate) fn add_scheme(
    all: &mut HeaderMap,
    scheme: &Scheme,
    key_header: HeaderName,
) -> Result<(), InvalidCredential> {
    match scheme {
        Scheme::Key(secret) | Scheme::Bearer(secret) => {
            all.insert(key_header, bearer(secret.expose())?);
        }
        Scheme::Header { name, value } => {
            let name = HeaderName::try_from(name.as_str()).map_err(|_| InvalidCredential::Header)?;
            all.insert(name, carried(value.expose())?);
        }
        Scheme::Signer(_) | Scheme::None => {}
    }
    Ok(())
}

/// `Bearer SECRET`.
fn bearer(secret: &str) -> Result<HeaderValue, InvalidCredential> {
    carried(&format!("Bearer {secret}"))
}

/// A header's value that is not shown.
pub(crate) fn carried(value: &str) -> Result<HeaderValue, InvalidCredential> {
    header_value("", value).map_err(|_| InvalidCredential::Header)
}

/// The header that carries bearer tokens.
pub(crate) const BEARER: HeaderName = AUTHORIZATION;
