//! Who may ask: programs on this machine that mean this server, and no page of a browser.

use http::header::{HOST, ORIGIN, UPGRADE};
use http::{HeaderMap, Method, StatusCode, Uri};

use crate::refusal::Refusal;

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
    let site = headers.get("sec-fetch-site").map(http::HeaderValue::as_bytes);
    if matches!(site, Some(b"cross-site" | b"same-site")) {
        return refuse(StatusCode::FORBIDDEN, "requests of web pages are refused");
    }
    // Offers of other protocols, such as h2c, may be declined; this one cannot be.
    let is_socket =
        |value: &http::HeaderValue| value.as_bytes().to_ascii_lowercase().starts_with(b"websocket");
    if headers.get_all(UPGRADE).iter().any(is_socket) {
        return refuse(StatusCode::NOT_IMPLEMENTED, "WebSocket is not passed on; use HTTP");
    }
    Ok(())
}
