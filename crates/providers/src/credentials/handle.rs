//! How calls use a source: one fetch at a time, within a time, and checked.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::check::check;
use super::{
    CallOutcome, Credential, CredentialError, CredentialRequest, CredentialSource, RefusedCredential,
    SourceFailure,
};
use crate::time::now;

/// Credentials that one call uses at most, one after the other.
pub const MAX_CREDENTIALS_PER_CALL: usize = 4;

/// How long a source may take to hear what became of an attempt.
const REPORT: Duration = Duration::from_secs(5);

/// A source as the calls to one provider use it. Clones share its credential: one is fetched once for all of them, and
/// kept until it expires or is refused.
#[derive(Clone)]
pub struct Credentials(Arc<Inner>);

struct Inner {
    source: Arc<dyn CredentialSource>,
    naming: NamingRule,
    current: Mutex<CurrentCredential>,
    /// Held by the call that fetches.
    flight: tokio::sync::Mutex<()>,
}

/// Whether attempts name the credential that they were made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NamingRule {
    Always,
    /// Once a call has used more than one.
    Rotated,
}

#[derive(Default)]
struct CurrentCredential {
    credential: Option<Arc<Credential>>,
    /// How many fetches have come back.
    fetches: u64,
    /// What the last one came to, where it failed.
    failed: Option<CredentialError>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("source", &self.0.source.name()).finish_non_exhaustive()
    }
}

impl Credentials {
    /// Those of `source`.
    pub fn new(source: Arc<dyn CredentialSource>) -> Self {
        Self::with(source, NamingRule::Always, None)
    }

    /// This one, for every call.
    pub fn fixed(credential: Credential) -> Self {
        Self::with(Arc::new(FixedSource(credential.clone())), NamingRule::Rotated, Some(credential))
    }

    /// None: calls are made without a credential.
    pub fn none() -> Self {
        Self::fixed(Credential::new("none", super::Scheme::None))
    }

    /// Those of `source`, which has given `credential` already.
    pub(crate) fn begun(source: Arc<dyn CredentialSource>, credential: Credential) -> Self {
        Self::with(source, NamingRule::Rotated, Some(credential))
    }

    /// Those of `source`, which has several and has given `credential` of them.
    pub(crate) fn chosen(source: Arc<dyn CredentialSource>, credential: Credential) -> Self {
        Self::with(source, NamingRule::Always, Some(credential))
    }

    fn with(source: Arc<dyn CredentialSource>, naming: NamingRule, credential: Option<Credential>) -> Self {
        let current =
            CurrentCredential { credential: credential.map(Arc::new), ..CurrentCredential::default() };
        Self(Arc::new(Inner {
            source,
            naming,
            current: Mutex::new(current),
            flight: tokio::sync::Mutex::new(()),
        }))
    }

    /// The source's name.
    pub fn name(&self) -> &str {
        self.0.source.name()
    }

    /// What is known without asking the source.
    pub(crate) fn known(&self) -> Option<Arc<Credential>> {
        self.current().credential.clone()
    }

    /// Whether the first credential of a call is named in its record.
    pub(crate) fn is_named(&self) -> bool {
        self.0.naming == NamingRule::Always
    }

    /// Lets go of a credential that cannot be used: the next call asks the source.
    pub(crate) fn forget(&self, credential: &Arc<Credential>) {
        let mut current = self.current();
        if current.credential.as_ref().is_some_and(|known| Arc::ptr_eq(known, credential)) {
            current.credential = None;
        }
    }

    fn current(&self) -> MutexGuard<'_, CurrentCredential> {
        // Nothing can break down while it is held.
        self.0.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The credential for an attempt: another than the one that was `refused`. Whoever is dropped while it waits leaves
    /// the fetch to the next.
    pub(crate) async fn get(
        &self,
        provider: &str,
        refused: Option<(&Arc<Credential>, CallOutcome)>,
        within: Duration,
    ) -> Result<Arc<Credential>, SourceFailure> {
        let usable = |current: &CurrentCredential| {
            let credential = current.credential.as_ref().filter(|known| known.expiry.allows(now()))?;
            let is_refused = refused.is_some_and(|(old, _)| Arc::ptr_eq(old, credential));
            (!is_refused).then(|| credential.clone())
        };
        let before = {
            let current = self.current();
            match usable(&current) {
                Some(credential) => return Ok(credential),
                None => current.fetches,
            }
        };
        let _flight = self.0.flight.lock().await;
        {
            let current = self.current();
            if let Some(credential) = usable(&current) {
                return Ok(credential);
            }
            // Somebody has asked meanwhile, and that holds for everybody who waited for it.
            if let Some(error) = current.failed.as_ref().filter(|_| current.fetches > before) {
                return Err(self.failure(error.clone()));
            }
        }
        let refused = refused.map(|(old, outcome)| RefusedCredential { identity: &old.identity, outcome });
        let fetched = self.fetch(&CredentialRequest { provider, refused }, within).await;
        let mut current = self.current();
        current.fetches += 1;
        match fetched {
            Ok(credential) => {
                current.failed = None;
                // The same again stays the same for those who compare.
                let known = current.credential.as_ref().filter(|known| ***known == credential);
                let credential = known.cloned().unwrap_or_else(|| Arc::new(credential));
                current.credential = Some(credential.clone());
                Ok(credential)
            }
            Err(error) => {
                current.failed = Some(error.clone());
                Err(self.failure(error))
            }
        }
    }

    fn failure(&self, error: CredentialError) -> SourceFailure {
        SourceFailure { source_name: self.name().chars().take(128).collect(), error }
    }

    async fn fetch(
        &self,
        request: &CredentialRequest<'_>,
        within: Duration,
    ) -> Result<Credential, CredentialError> {
        let credential = guarded(async { self.0.source.credential(request).await }, within).await??;
        check(&credential, now()).map_err(CredentialError::Invalid)?;
        Ok(credential)
    }

    /// Lets the source know what became of an attempt. One that does not listen is left alone.
    pub(crate) async fn report(&self, credential: &Credential, outcome: CallOutcome) {
        drop(guarded(async { self.0.source.report(&credential.identity, &outcome).await }, REPORT).await);
    }

    /// The failure of a signer that the source gave.
    pub(crate) async fn guard<T>(
        &self,
        work: impl Future<Output = Result<T, CredentialError>>,
        within: Duration,
    ) -> Result<T, SourceFailure> {
        let done = guarded(work, within).await.and_then(|done| done);
        done.map_err(|error| self.failure(error))
    }
}

/// What foreign work comes to, within a time.
async fn guarded<T>(work: impl Future<Output = T>, within: Duration) -> Result<T, CredentialError> {
    match tokio::time::timeout(within, AssertUnwindSafe(work).catch_unwind()).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(_)) => Err(CredentialError::Panicked),
        Err(_) => Err(CredentialError::TimedOut(within)),
    }
}

/// A source of one credential.
struct FixedSource(Credential);

impl CredentialSource for FixedSource {
    fn name(&self) -> &str {
        &self.0.identity
    }

    fn credential<'a>(
        &'a self,
        _request: &'a CredentialRequest<'a>,
    ) -> BoxFuture<'a, Result<Credential, CredentialError>> {
        Box::pin(async { Ok(self.0.clone()) })
    }

    fn report<'a>(&'a self, _identity: &'a str, _outcome: &'a CallOutcome) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }
}
