//! Which headers are passed on.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

/// Headers that are about one connection alone.
const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Packings of answers that can be read for the record.
const READ: [&str; 3] = ["gzip", "zstd", "identity"];

/// The headers of a request as the server gets them.
pub(crate) fn outgoing(headers: &HeaderMap, is_recorded: bool) -> HeaderMap {
    let mut out = passed(headers);
    out.remove(header::HOST);
    // The body was read whole, so its length is known.
    out.remove(header::CONTENT_LENGTH);
    out.remove(header::EXPECT);
    if is_recorded && let Some(narrow) = narrowed(headers) {
        match narrow {
            Some(value) => drop(out.insert(header::ACCEPT_ENCODING, value)),
            None => drop(out.remove(header::ACCEPT_ENCODING)),
        }
    }
    out
}

/// The headers of an answer as the client gets them.
pub(crate) fn passed(headers: &HeaderMap) -> HeaderMap {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    let mut out = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        if !HOP_BY_HOP.contains(&name.as_str()) && !named.contains(name) {
            out.append(name.clone(), value.clone());
        }
    }
    out
}

/// What is accepted, without packings that nobody here reads; `None` where nothing has to change.
fn narrowed(headers: &HeaderMap) -> Option<Option<HeaderValue>> {
    let all: Vec<&str> = headers
        .get_all(header::ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|one| !one.is_empty())
        .collect();
    let is_read = |one: &&str| {
        let name = one.split(';').next().unwrap_or_default().trim();
        READ.iter().any(|known| known.eq_ignore_ascii_case(name))
    };
    if all.iter().all(is_read) {
        return None;
    }
    let kept: Vec<&str> = all.iter().copied().filter(is_read).collect();
    Some(HeaderValue::from_str(&kept.join(", ")).ok().filter(|_| !kept.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn headers_of_one_connection_are_not_passed_on() {
        let all = map(&[
            ("connection", "keep-alive, x-own"),
            ("x-own", "1"),
            ("keep-alive", "5"),
            ("te", "trailers"),
            ("host", "here"),
            ("content-length", "3"),
            ("authorization", "Bearer key"),
            ("x-other", "2"),
        ]);
        assert_eq!(outgoing(&all, true), map(&[("authorization", "Bearer key"), ("x-other", "2")]));
    }

    #[test]
    fn packings_that_nobody_reads_are_not_asked_for() {
        let check = |given: &'static str, expect: Option<&'static str>| {
            let out = outgoing(&map(&[("accept-encoding", given)]), true);
            let found = out.get(header::ACCEPT_ENCODING).map(|value| value.to_str().unwrap());
            assert_eq!(found, expect, "{given}");
        };
        check("gzip, deflate, br, zstd", Some("gzip, zstd"));
        check("gzip;q=0.5,identity", Some("gzip;q=0.5,identity"));
        check("br", None);
        let out = outgoing(&map(&[("accept-encoding", "br")]), false);
        assert_eq!(out.get(header::ACCEPT_ENCODING).unwrap(), "br");
    }
}
