//! What others than the wire put around a body, and what they see of the answer's beginning.

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use crate::target::Target;

/// Headers that [`HeaderChanges`] cannot set or take away: those that carry credentials, and those that HTTP itself needs.
pub const PROTECTED_HEADERS: [&str; 17] = [
    "accept",
    "accept-encoding",
    "api-key",
    "authorization",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "cookie",
    "expect",
    "host",
    "proxy-authorization",
    "te",
    "transfer-encoding",
    "upgrade",
    "x-api-key",
    "x-goog-api-key",
];

/// Headers of an answer that are shown at most.
const SHOWN: usize = 64;
/// Bytes of the value of one at most.
const SHOWN_VALUE: usize = 1_024;

/// Changes of the headers of one call, beside those of the wire, the configuration and the credential.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HeaderChanges {
    /// Names in lower case, and values.
    pub set: Vec<(String, String)>,
    /// Names in lower case.
    pub removed: Vec<String>,
}

impl HeaderChanges {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.removed.is_empty()
    }

    /// What HTTP does not allow of them, or what cannot be changed, in one line; `None` where all is well.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        let names = self.set.iter().map(|(name, _)| name).chain(&self.removed);
        for name in names {
            let known = HeaderName::try_from(name.as_str()).map_err(|_| ());
            match known {
                Err(()) => return Some(format!("{name:?} is not a valid header name")),
                Ok(known) if known.as_str() != name => {
                    return Some(format!("the header {name:?} is not in lower case"));
                }
                Ok(known) if PROTECTED_HEADERS.contains(&known.as_str()) => {
                    return Some(format!("the header {name} cannot be changed"));
                }
                Ok(_) => {}
            }
        }
        let bad = self.set.iter().find(|(_, value)| HeaderValue::try_from(value).is_err());
        bad.map(|(name, _)| format!("the value of the header {name} has characters that HTTP does not allow"))
    }

    /// Makes them, but for headers that the credential of `target` stands in.
    pub(crate) fn apply(&self, headers: &mut HeaderMap, target: &Target) {
        if self.is_empty() {
            return;
        }
        let is_free = |headers: &HeaderMap, name: &str| {
            let carried = headers.get(name).and_then(|value| value.to_str().ok());
            let is_secret = carried
                .is_some_and(|value| target.secrets.iter().any(|secret| value.contains(secret.as_str())));
            !PROTECTED_HEADERS.contains(&name) && !is_secret
        };
        for name in &self.removed {
            if is_free(headers, name) {
                headers.remove(name.as_str());
            }
        }
        for (name, value) in &self.set {
            let made = HeaderName::try_from(name.as_str()).ok().zip(HeaderValue::try_from(value).ok());
            if let Some((parsed, value)) = made.filter(|_| is_free(headers, name)) {
                headers.insert(parsed, value);
            }
        }
    }
}

/// How the answer to one attempt begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseHead {
    /// Which attempt of the call it answers, from 1.
    pub attempt: u32,
    /// The HTTP status.
    pub status: u16,
    /// Names in lower case, and values: at most 64 of them, each cut at 1,024 bytes. Cookies and values that are not text are left out,
    /// and so is the credential.
    pub headers: Vec<(String, String)>,
}

impl ResponseHead {
    pub(crate) fn of(attempt: u32, status: u16, headers: &HeaderMap, target: &Target) -> Self {
        let shown = headers.iter().filter(|(name, _)| *name != reqwest::header::SET_COOKIE);
        let shown = shown.filter_map(|(name, value)| {
            let value = value.to_str().ok()?;
            let hidden = target
                .secrets
                .iter()
                .fold(value.to_owned(), |value, secret| value.replace(secret, "[credential]"));
            let end = hidden.floor_char_boundary(SHOWN_VALUE);
            Some((name.as_str().to_owned(), hidden[..end].to_owned()))
        });
        Self { attempt, status, headers: shown.take(SHOWN).collect() }
    }
}
