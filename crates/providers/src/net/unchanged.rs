//! The client of who passes on requests and answers of others.

use std::sync::OnceLock;

use quipu_protocol::{ModelError, ModelErrorKind};
use reqwest::Url;

use super::{LocalRoute, finished, is_direct, nameless};

/// A client for `url` that names no program of its own, unpacks nothing and follows no redirect: answers are what the server
/// sent.
///
/// # Errors
/// As [`client`](super::client).
pub fn unchanged_client(url: &Url) -> Result<&'static reqwest::Client, ModelError> {
    // By whether a proxy may be used, and whether certificates are needed.
    static CLIENTS: [OnceLock<Result<reqwest::Client, String>>; 3] = [const { OnceLock::new() }; 3];
    let [plain, trusting, proxied] = &CLIENTS;
    let direct = is_direct(url, LocalRoute::Direct);
    let secure = !direct || url.scheme() == "https";
    let place = match (direct, secure) {
        (true, false) => plain,
        (true, true) => trusting,
        (false, _) => proxied,
    };
    let made = place.get_or_init(|| nameless(direct, secure).and_then(|builder| finished(builder.no_gzip())));
    made.as_ref().map_err(|why| ModelError::new(ModelErrorKind::Network, why.clone()))
}
