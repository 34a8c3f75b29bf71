//! The limits of what a source gives.

use quipu_protocol::UnixMs;
use reqwest::header::{HeaderName, HeaderValue};

use super::{Credential, Expiry, InvalidCredential, Scheme};
use crate::target::http_url;

/// Characters of an identity at most.
const MAX_IDENTITY: usize = 128;
/// Bytes of a header's name and value at most.
const MAX_HEADER: usize = 16 << 10;
/// Headers that go with a credential at most.
const MAX_HEADERS: usize = 32;
/// Bytes of a base URL at most.
const MAX_URL: usize = 2 << 10;
/// Secrets shorter than this may stand in an identity by chance.
const MIN_SECRET: usize = 8;

/// Whether `credential` can be sent, `now`.
pub(super) fn check(credential: &Credential, now: UnixMs) -> Result<(), InvalidCredential> {
    match &credential.scheme {
        Scheme::Key(secret) | Scheme::Bearer(secret) => header("authorization", secret.expose())?,
        Scheme::Header { name, value } => header(name, value.expose())?,
        Scheme::Signer(_) | Scheme::None => {}
    }
    if credential.headers.len() > MAX_HEADERS {
        return Err(InvalidCredential::TooManyHeaders { limit: MAX_HEADERS });
    }
    for (name, text) in &credential.headers {
        header(name, text.expose())?;
    }
    let identity = &credential.identity;
    let holds = credential.secrets().map(super::Secret::expose);
    let holds = holds.filter(|secret| secret.len() >= MIN_SECRET).any(|secret| identity.contains(secret));
    let fits = (1..=MAX_IDENTITY).contains(&identity.chars().take(MAX_IDENTITY + 1).count());
    if holds || !fits || identity.trim().is_empty() || identity.contains(char::is_control) {
        return Err(InvalidCredential::Identity);
    }
    if let Some(url) = &credential.base_url {
        if url.len() > MAX_URL {
            return Err(InvalidCredential::TooLarge { what: "the base URL", limit: MAX_URL });
        }
        let url = http_url(url).ok_or(InvalidCredential::BaseUrl)?;
        // It is shown in messages; what belongs to a credential stands in its scheme.
        if !url.username().is_empty() || url.password().is_some() {
            return Err(InvalidCredential::BaseUrl);
        }
    }
    match credential.expiry {
        Expiry::At(at) if at <= now => Err(InvalidCredential::Expired),
        Expiry::At(_) | Expiry::UntilRefused | Expiry::Once => Ok(()),
    }
}

/// Whether HTTP can carry it.
pub(super) fn header(name: &str, value: &str) -> Result<(), InvalidCredential> {
    if name.len().saturating_add(value.len()) > MAX_HEADER {
        return Err(InvalidCredential::TooLarge { what: "a header", limit: MAX_HEADER });
    }
    if value.trim().is_empty() {
        return Err(InvalidCredential::Empty);
    }
    let can = HeaderName::try_from(name).is_ok() && HeaderValue::try_from(value).is_ok();
    can.then_some(()).ok_or(InvalidCredential::Header)
}
