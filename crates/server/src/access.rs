//! Who may ask: programs of this machine that know the token, and no page of a browser.

use http::header::{AUTHORIZATION, HOST, ORIGIN};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use quipu_loopback::BearerToken;

use crate::answer::ApiError;

/// Who may ask.
#[derive(Debug, Clone)]
pub enum Access {
    /// Whoever sends the token.
    Token(BearerToken),
    /// Whoever reaches the server: for a Unix socket alone, which has an owner.
    Anyone,
}

impl Access {
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        let Self::Token(token) = self else { return Ok(()) };
        let mut given = headers.get_all(AUTHORIZATION).iter();
        let first = given.next().map(HeaderValue::as_bytes);
        if given.next().is_none() && first.is_some_and(|given| token.is_sent_as(given)) {
            return Ok(());
        }
        Err(ApiError::new(
            StatusCode::UNAUTHORIZED,
            "invalid_api_key",
            "the token is missing or is another one; send it as `Authorization: Bearer TOKEN`",
        ))
    }
}

/// Refuses what no program of this machine sends that means this server. `hosts` is what such a program calls it; `None` for a
/// socket, which has no name on a network.
pub(crate) fn check_origin(
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    hosts: Option<&[String]>,
) -> Result<(), ApiError> {
    let forbidden = |code, text: &str| Err(ApiError::new(StatusCode::FORBIDDEN, code, text));
    if method == Method::CONNECT || uri.authority().is_some() {
        return Err(ApiError::invalid("this server passes nothing on to other hosts"));
    }
    if headers.get_all(HOST).iter().count() > 1 {
        return Err(ApiError::invalid("the request has several Host headers"));
    }
    let is_own =
        |value: &str| hosts.is_some_and(|hosts| hosts.iter().any(|host| host.eq_ignore_ascii_case(value)));
    let host = headers.get(HOST).and_then(|value| value.to_str().ok());
    if hosts.is_some() && !host.is_some_and(is_own) {
        return forbidden("host_not_allowed", "the Host header does not name this server");
    }
    for origin in headers.get_all(ORIGIN) {
        let origin = origin.to_str().ok().and_then(|origin| origin.strip_prefix("http://"));
        if !origin.is_some_and(is_own) {
            return forbidden("origin_not_allowed", "requests of web pages are refused");
        }
    }
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    if matches!(site, Some(b"cross-site" | b"same-site")) {
        return forbidden("origin_not_allowed", "requests of web pages are refused");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(uri: &str, headers: &[(&'static str, &str)], is_socket: bool) -> Option<&'static str> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let hosts = ["localhost:7".to_owned(), "127.0.0.1:7".to_owned()];
        let hosts = (!is_socket).then_some(&hosts[..]);
        check_origin(&Method::GET, &uri.parse().unwrap(), &map, hosts).err().map(|error| error.code)
    }

    #[test]
    fn origin_of_other_sites_is_refused() {
        for (uri, headers, refused) in [
            ("/x", &[("host", "localhost:7")][..], None),
            ("/x", &[("host", "LOCALHOST:7"), ("origin", "http://127.0.0.1:7")], None),
            ("/x", &[("host", "evil.example:7")], Some("host_not_allowed")),
            ("/x", &[("host", "localhost:8")], Some("host_not_allowed")),
            ("/x", &[], Some("host_not_allowed")),
            ("/x", &[("host", "localhost:7"), ("host", "localhost:7")], Some("invalid_request")),
            (
                "/x",
                &[("host", "localhost:7"), ("origin", "https://evil.example")],
                Some("origin_not_allowed"),
            ),
            ("/x", &[("host", "localhost:7"), ("origin", "null")], Some("origin_not_allowed")),
            ("/x", &[("host", "localhost:7"), ("sec-fetch-site", "cross-site")], Some("origin_not_allowed")),
            ("/x", &[("host", "localhost:7"), ("sec-fetch-site", "same-origin")], None),
            ("http://other/x", &[("host", "localhost:7")], Some("invalid_request")),
        ] {
            assert_eq!(check(uri, headers, false), refused, "{uri} {headers:?}");
        }
        assert_eq!(check("/x", &[("host", "anything")], true), None);
        assert_eq!(check("/x", &[("host", "x"), ("origin", "http://x")], true), Some("origin_not_allowed"));
    }

    #[test]
    fn access_wants_the_token_once() {
        let access = Access::Token(BearerToken::new("0123456789abcdef").unwrap());
        let mut headers = HeaderMap::new();
        assert_eq!(access.check(&headers).unwrap_err().status, StatusCode::UNAUTHORIZED);
        headers.append(AUTHORIZATION, "Bearer 0123456789abcdef".parse().unwrap());
        assert_eq!(access.check(&headers), Ok(()));
        headers.append(AUTHORIZATION, "Bearer another".parse().unwrap());
        assert!(access.check(&headers).is_err());
        assert_eq!(Access::Anyone.check(&HeaderMap::new()), Ok(()));
    }
}
