//! Who may ask: programs on this machine that mean this server, and no page of a browser.

use std::net::SocketAddr;

use http::header::{HOST, ORIGIN, UPGRADE};
use http::{HeaderMap, Method, StatusCode, Uri};

use crate::refusal::Refusal;

/// The names of the server in addresses, with its port.
pub(crate) fn hosts(address: SocketAddr) -> Vec<String> {
    let port = address.port();
    ["localhost", "127.0.0.1", "[::1]"].iter().map(|host| format!("{host}:{port}")).collect()
}

/// Refuses what no client of this server sends.
pub(crate) fn check(
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    hosts: &[String],
) -> Result<(), Refusal> {
    let refuse = |status, text: &str| Err(Refusal::new(status, text));
    if method == Method::CONNECT || uri.authority().is_some() {
        return refuse(
            StatusCode::BAD_REQUEST,
            "this proxy is a server for model calls, and passes nothing on to other hosts",
        );
    }
    if headers.get_all(HOST).iter().count() > 1 {
        return refuse(StatusCode::BAD_REQUEST, "the request has several Host headers");
    }
    let is_own = |value: &str| hosts.iter().any(|host| host.eq_ignore_ascii_case(value));
    let host = headers.get(HOST).and_then(|value| value.to_str().ok());
    if !host.is_some_and(is_own) {
        return refuse(StatusCode::FORBIDDEN, "the Host header does not name this server");
    }
    for origin in headers.get_all(ORIGIN) {
        let origin = origin.to_str().ok().and_then(|origin| origin.strip_prefix("http://"));
        if !origin.is_some_and(is_own) {
            return refuse(StatusCode::FORBIDDEN, "requests of web pages are refused");
        }
    }
    if headers.contains_key(UPGRADE) {
        return refuse(
            StatusCode::NOT_IMPLEMENTED,
            "other protocols, such as WebSocket, are not passed on; use HTTP",
        );
    }
    Ok(())
}
