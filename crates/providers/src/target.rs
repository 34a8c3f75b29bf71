//! Where bodies go: an address, and the headers that are sent with each.

use quipu_protocol::{ModelError, ModelErrorKind};
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use crate::net;

/// Where bodies go.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    /// What stands in no message.
    pub(crate) secrets: Vec<String>,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target").field("url", &self.url.as_str()).finish_non_exhaustive()
    }
}

impl Target {
    pub(crate) fn new(url: &str, headers: HeaderMap, secrets: &[String]) -> Result<Self, ModelError> {
        let url = http_url(url).ok_or_else(|| {
            ModelError::new(
                ModelErrorKind::InvalidRequest,
                format!("The base URL of the model gives {url:?}, which is not an HTTP URL. Correct it in models.json."),
            )
        })?;
        let mut target = Self { url, headers, secrets: Vec::new() };
        secrets.iter().for_each(|secret| target.hide(secret));
        Ok(target)
    }

    /// Keeps `secret` out of messages.
    pub(crate) fn hide(&mut self, secret: &str) {
        const SHORTEST: usize = 8;
        if secret.len() >= SHORTEST {
            self.secrets.push(secret.to_owned());
        }
    }

    pub(crate) fn url(&self) -> &str {
        self.url.as_str()
    }

    pub(crate) fn is_local(&self) -> bool {
        net::is_loopback(self.url.host_str().unwrap_or_default())
    }

    /// Host and port, for messages.
    pub(crate) fn name(&self) -> String {
        let host = self.url.host_str().unwrap_or_default();
        self.url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }
}

/// A URL that requests can be sent to.
pub(crate) fn http_url(url: &str) -> Option<Url> {
    // The parser would take the first word of a path for a missing host.
    let parsed = Some(url).filter(|url| url.contains("://") && !url.contains(":///"));
    let parsed = parsed.and_then(|url| Url::parse(url).ok());
    parsed.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
}

/// Adds configured headers, which replace ours of the same name.
pub(crate) fn add_headers(all: &mut HeaderMap, headers: &[(String, String)]) -> Result<(), ModelError> {
    for (name, value) in headers {
        let parsed = HeaderName::try_from(name.as_str()).map_err(|_| bad_header(name))?;
        all.insert(parsed, header_value(name, value)?);
    }
    Ok(())
}

pub(crate) fn header_value(name: &str, value: &str) -> Result<HeaderValue, ModelError> {
    let mut value = HeaderValue::try_from(value).map_err(|_| bad_header(name))?;
    value.set_sensitive(true);
    Ok(value)
}

fn bad_header(name: &str) -> ModelError {
    ModelError::new(
        ModelErrorKind::InvalidRequest,
        format!(
            "The header {name:?} of the model has characters that HTTP does not allow. Correct it in models.json."
        ),
    )
}
