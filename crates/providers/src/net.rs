//! The one HTTP client factory, and what stands between a client and a server.
//!
//! Made on first use: start-up must not pay for it. One TLS provider (ring), no total timeout (an answer may
//! stream for an hour), no redirects (a POST with a credential goes where it was sent or nowhere).

mod download;
mod proxy;
mod trust;
mod unchanged;

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::Duration;

use quipu_protocol::{ModelError, ModelErrorKind};
pub use reqwest::Url;

pub use download::{DownloadError, download};
pub(crate) use proxy::{Proxy, passwords};
pub use unchanged::unchanged_client;

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// A backstop only. Each call has its own, shorter limit on silence.
const READ_TIMEOUT: Duration = Duration::from_secs(3600);

/// How servers on this machine are reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LocalRoute {
    /// Directly, whatever proxy there is.
    #[default]
    Direct,
    /// Like all others.
    Proxied,
}

/// The client for `url`. Hosts of this machine are reached directly unless `local` says otherwise, all others through
/// the proxy of the environment or the system.
///
/// # Errors
/// `Network` when the certificates or the proxy that the environment names cannot be used, saying which and why.
pub fn client(url: &Url, local: LocalRoute) -> Result<&'static reqwest::Client, ModelError> {
    let direct = is_direct(url, local);
    let proxy = if direct { None } else { proxy::of(url)? };
    let secure = url.scheme() == "https" || proxy.is_some_and(|proxy| proxy.secure);
    // No certificate is valid then, and the library that checks them takes such a time for a fault of its own.
    if secure && std::time::SystemTime::now() < std::time::UNIX_EPOCH {
        let why = "the clock of this machine is before 1970, when no certificate is valid; set the clock";
        return Err(ModelError::new(ModelErrorKind::Network, why));
    }
    made(direct, secure)
}

fn made(direct: bool, secure: bool) -> Result<&'static reqwest::Client, ModelError> {
    // By whether a proxy may be used, and whether certificates are needed: to read the system's takes longer than a
    // call to a local server does.
    static CLIENTS: [OnceLock<Result<reqwest::Client, String>>; 4] = [const { OnceLock::new() }; 4];
    let [plain, trusting, plain_proxied, trusting_proxied] = &CLIENTS;
    let place = match (direct, secure) {
        (true, false) => plain,
        (true, true) => trusting,
        (false, false) => plain_proxied,
        (false, true) => trusting_proxied,
    };
    let made = place.get_or_init(|| builder(direct, secure).and_then(finished));
    made.as_ref().map_err(|why| ModelError::new(ModelErrorKind::Network, why.clone()))
}

/// A client for `url` that uses no proxy, whatever the environment says: for addresses that no other machine sees.
pub(crate) fn direct(url: &Url) -> Result<&'static reqwest::Client, ModelError> {
    made(true, url.scheme() == "https")
}

/// A client for `url` that uses no proxy and connects to these addresses of its host alone, which were checked before.
///
/// # Errors
/// As [`client`].
pub fn client_for_addresses(url: &Url, addresses: &[SocketAddr]) -> Result<reqwest::Client, ModelError> {
    let host = url.host_str().unwrap_or_default();
    let builder =
        builder(true, url.scheme() == "https").map(|builder| builder.resolve_to_addrs(host, addresses));
    builder.and_then(finished).map_err(|why| ModelError::new(ModelErrorKind::Network, why))
}

/// Whether requests to `url` go through a proxy, which then looks up its host.
///
/// # Errors
/// As [`client`].
pub fn has_proxy(url: &Url, local: LocalRoute) -> Result<bool, ModelError> {
    Ok(!is_direct(url, local) && proxy::of(url)?.is_some())
}

fn is_direct(url: &Url, local: LocalRoute) -> bool {
    local == LocalRoute::Direct && is_loopback(url.host_str().unwrap_or_default())
}

/// The proxy that requests to `url` go through, where one can be told.
pub(crate) fn proxy_of(url: &Url, local: LocalRoute) -> Option<Proxy> {
    if is_direct(url, local) { None } else { proxy::of(url).ok().flatten() }
}

/// Something between us and the server that has to be put right first: trying again does not help.
pub(crate) struct Obstacle {
    /// What it is and what to do, as sentences that follow "HOST could not be reached: ".
    pub(crate) detail: String,
    /// Whether it is there until somebody acts.
    pub(crate) lasting: bool,
}

/// What kept a request to `url` from being answered, when it was the proxy or a certificate.
pub(crate) fn obstacle(url: &Url, local: LocalRoute, error: &reqwest::Error) -> Option<Obstacle> {
    if let Some(error) = trust::tls_error(error) {
        return Some(Obstacle { detail: trust::explain(error)?, lasting: true });
    }
    proxy_of(url, local)?.obstacle(error)
}

/// Whether `host` (of a URL, IPv6 in brackets or not) is this machine.
pub fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

fn builder(direct: bool, secure: bool) -> Result<reqwest::ClientBuilder, String> {
    let own = concat!("quipu/", env!("CARGO_PKG_VERSION"));
    nameless(direct, secure).map(|builder| builder.user_agent(own))
}

/// A builder that does not say who asks.
#[expect(clippy::disallowed_methods, reason = "this is the factory that everyone else must use")]
fn nameless(direct: bool, secure: bool) -> Result<reqwest::ClientBuilder, String> {
    static RING: OnceLock<()> = OnceLock::new();
    RING.get_or_init(|| {
        // An error only says that the embedding program chose a provider before us, which is as good.
        drop(rustls::crypto::ring::default_provider().install_default());
    });
    let mut builder = reqwest::Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .read_timeout(READ_TIMEOUT)
        .redirect(reqwest::redirect::Policy::none());
    if direct {
        builder = builder.no_proxy();
    }
    if !secure {
        builder = builder.tls_certs_only([]);
    } else if let Some(named) = trust::named(&|name| std::env::var_os(name))? {
        builder = builder.tls_certs_only(named);
    }
    Ok(builder)
}

fn finished(builder: reqwest::ClientBuilder) -> Result<reqwest::Client, String> {
    builder.build().map_err(|error| {
        format!(
            "The HTTP client could not start: {}. If this system has no CA certificates, set SSL_CERT_FILE to a PEM file that has some.",
            describe(&error)
        )
    })
}

/// An error and its causes in one line, without the URL.
pub fn describe(error: &dyn std::error::Error) -> String {
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
