//! The one HTTP client factory.
//!
//! Made on first use: start-up must not pay for it. One TLS provider (ring), no total timeout (an answer may
//! stream for an hour), no redirects (a POST with a credential goes where it was sent or nowhere).

use std::sync::OnceLock;
use std::time::Duration;

use quipu_protocol::{ModelError, ModelErrorKind};

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// A backstop only. Each call has its own, shorter limit on silence.
const READ_TIMEOUT: Duration = Duration::from_secs(3600);

/// The client for `url`. Hosts of this machine are reached directly, all others through the system's proxy.
///
/// # Errors
/// `Network` when the system's certificates or proxy settings cannot be read.
pub fn client(url: &reqwest::Url) -> Result<&'static reqwest::Client, ModelError> {
    static PLAIN: OnceLock<Result<reqwest::Client, String>> = OnceLock::new();
    static DIRECT: OnceLock<Result<reqwest::Client, String>> = OnceLock::new();
    static PROXIED: OnceLock<Result<reqwest::Client, String>> = OnceLock::new();
    let made = match (is_loopback(url.host_str().unwrap_or_default()), url.scheme()) {
        // Reading the system's certificates takes longer than a call to a local server does.
        (true, "http") => PLAIN.get_or_init(|| build(|builder| builder.no_proxy().tls_certs_only([]))),
        (true, _) => DIRECT.get_or_init(|| build(reqwest::ClientBuilder::no_proxy)),
        (false, _) => PROXIED.get_or_init(|| build(|builder| builder)),
    };
    made.as_ref().map_err(|error| {
        ModelError::new(ModelErrorKind::Network, format!("The HTTP client could not be made: {error}."))
    })
}

/// Whether `host` (of a URL, IPv6 in brackets or not) is this machine.
pub fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

#[expect(clippy::disallowed_methods, reason = "this is the factory that everyone else must use")]
fn build(adapt: fn(reqwest::ClientBuilder) -> reqwest::ClientBuilder) -> Result<reqwest::Client, String> {
    static RING: OnceLock<()> = OnceLock::new();
    RING.get_or_init(|| {
        // An error only says that the embedding program chose a provider before us, which is as good.
        drop(rustls::crypto::ring::default_provider().install_default());
    });
    let builder = reqwest::Client::builder()
        .user_agent(concat!("quipu/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        .read_timeout(READ_TIMEOUT)
        .redirect(reqwest::redirect::Policy::none());
    adapt(builder).build().map_err(|error| describe(&error))
}

/// An error and its causes in one line, without the URL.
pub(crate) fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_known_by_name_and_number() {
        for host in ["localhost", "LOCALHOST", "127.0.0.1", "127.9.9.9", "::1", "[::1]", "::ffff:127.0.0.1"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["example.com", "10.0.0.1", "localhost.example.com", "0.0.0.0", ""] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
