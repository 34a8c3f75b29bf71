//! Where requests go.

use std::net::SocketAddr;

use quipu_providers::net::is_loopback;
use reqwest::Url;
use serde::Deserialize;

use crate::wire_kind::WireKind;

/// An address that requests cannot go to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamError {
    /// It is no address.
    #[error("{0} is not an upstream; give an address such as https://api.example.com, or WIRE=ADDRESS")]
    NotAnAddress(String),
    /// It is neither encrypted nor on this machine.
    #[error(
        "the upstream {0} is neither https nor on this machine, so keys would be sent in the clear; use https"
    )]
    Clear(String),
    /// It has a user, a query or a fragment.
    #[error("the upstream {0} has more than a host and a path; leave out user, query and fragment")]
    TooMuch(String),
    /// No wire of this name.
    #[error(
        "{0} is not a wire; the wires are messages, completions and responses, and other is for what is of none"
    )]
    Wire(String),
    /// It is the proxy.
    #[error("the upstream {0} is the proxy itself; choose another")]
    Itself(String),
}

/// What is particular to a wire, beside its shapes.
#[derive(Debug, Deserialize)]
struct Row {
    wire: WireKind,
    api: String,
    provider: String,
    upstream: String,
    /// A header that only clients of this wire send.
    header: Option<String>,
    /// Paths beside its own that only clients of this wire ask for.
    #[serde(default)]
    paths: Vec<String>,
}

const ROWS: &str = include_str!("../data/wires.json");

/// The server behind one wire.
#[derive(Debug, Clone)]
pub(crate) struct Upstream {
    pub(crate) wire: WireKind,
    pub(crate) api: String,
    pub(crate) provider: String,
    pub(crate) base: Url,
    pub(crate) is_local: bool,
    header: Option<String>,
    paths: Vec<String>,
}

/// The servers behind the wires.
#[derive(Debug, Clone)]
pub struct Upstreams {
    messages: Upstream,
    completions: Upstream,
    responses: Upstream,
    /// For paths that are of no wire, where one is named.
    other: Option<Upstream>,
}

/// What paths of no wire are called where upstreams are named.
const OTHER: &str = "other";

impl Upstreams {
    /// The vendors' own servers, except where one is named: `ADDRESS` for all wires, `WIRE=ADDRESS`, or `other=ADDRESS` for
    /// paths of no wire.
    ///
    /// # Errors
    /// When one of them is no address, not safe, or the wire is unknown.
    pub fn new(named: &[String]) -> Result<Self, UpstreamError> {
        let rows: Vec<Row> =
            serde_json::from_str(ROWS).map_err(|error| UpstreamError::NotAnAddress(error.to_string()))?;
        let find = |wire: WireKind| {
            let row = rows.iter().find(|row| row.wire == wire);
            let row = row.ok_or_else(|| UpstreamError::Wire(wire.name().to_owned()))?;
            let base = address(&row.upstream)?;
            let (header, paths) = (row.header.clone(), row.paths.clone());
            let (api, provider) = (row.api.clone(), row.provider.clone());
            Ok(Upstream { wire, api, provider, is_local: false, base, header, paths })
        };
        let mut all = Self {
            messages: find(WireKind::Messages)?,
            completions: find(WireKind::Completions)?,
            responses: find(WireKind::Responses)?,
            other: None,
        };
        for text in named {
            let named_wire = text.split_once('=').filter(|(wire, _)| !wire.contains([':', '/']));
            let (wires, text) = match named_wire {
                Some((OTHER, text)) => {
                    let base = address(text)?;
                    let is_local = is_loopback(base.host_str().unwrap_or_default());
                    all.other = Some(Upstream { base, is_local, ..all.completions.clone() });
                    continue;
                }
                Some((wire, text)) => {
                    let found = WireKind::ALL.into_iter().find(|known| known.name() == wire);
                    (vec![found.ok_or_else(|| UpstreamError::Wire(wire.to_owned()))?], text)
                }
                None => (WireKind::ALL.to_vec(), text.as_str()),
            };
            let base = address(text)?;
            for wire in wires {
                let upstream = all.of_mut(wire);
                upstream.is_local = is_loopback(base.host_str().unwrap_or_default());
                upstream.base = base.clone();
            }
        }
        Ok(all)
    }

    /// Refuses to send requests to the proxy itself.
    pub(crate) fn check(&self, own: SocketAddr) -> Result<(), UpstreamError> {
        for upstream in [&self.messages, &self.completions, &self.responses].into_iter().chain(&self.other) {
            if upstream.is_local && upstream.base.port_or_known_default() == Some(own.port()) {
                return Err(UpstreamError::Itself(upstream.base.to_string()));
            }
        }
        Ok(())
    }

    fn of_mut(&mut self, wire: WireKind) -> &mut Upstream {
        match wire {
            WireKind::Messages => &mut self.messages,
            WireKind::Completions => &mut self.completions,
            WireKind::Responses => &mut self.responses,
        }
    }

    pub(crate) fn of(&self, wire: WireKind) -> &Upstream {
        match wire {
            WireKind::Messages => &self.messages,
            WireKind::Completions => &self.completions,
            WireKind::Responses => &self.responses,
        }
    }

    /// The server for a path, and whether a request there is an exchange with a model. `None` where nobody knows for which
    /// server its key is.
    pub(crate) fn route(&self, path: &str, headers: &http::HeaderMap) -> Option<(&Upstream, bool)> {
        let path = path.trim_end_matches('/');
        for wire in WireKind::ALL {
            if path.ends_with(wire.path()) {
                return Some((self.of(wire), true));
            }
        }
        let within = |wire: WireKind| {
            path.contains(&format!("{}/", wire.path())) || self.of(wire).paths.iter().any(|own| own == path)
        };
        let marked =
            |wire: WireKind| self.of(wire).header.as_ref().is_some_and(|name| headers.contains_key(name));
        let found = WireKind::ALL.into_iter().find(|wire| within(*wire));
        let found = found.or_else(|| WireKind::ALL.into_iter().find(|wire| marked(*wire)));
        if let Some(wire) = found {
            return Some((self.of(wire), false));
        }
        let bases = WireKind::ALL.map(|wire| &self.of(wire).base);
        let only = Some(&self.completions).filter(|_| bases.iter().all(|base| *base == bases[0]));
        self.other.as_ref().or(only).map(|upstream| (upstream, false))
    }

    /// The addresses, for people.
    pub fn lines(&self) -> Vec<String> {
        let line = |wire: WireKind| format!("{}: {}", wire.name(), self.of(wire).base);
        let other = self.other.iter().map(|other| format!("{OTHER}: {}", other.base));
        WireKind::ALL.into_iter().map(line).chain(other).collect()
    }
}

impl Upstream {
    /// The address for a path with its query, byte for byte behind the base.
    pub(crate) fn address(&self, path_and_query: &str) -> Option<Url> {
        let base = self.base.as_str().trim_end_matches('/');
        let text = format!("{base}{path_and_query}");
        // Parsing resolves `..` and writes letters in another way; what is not as it came is not sent.
        Url::parse(&text).ok().filter(|url| path_and_query.starts_with('/') && url.as_str() == text)
    }
}

fn address(text: &str) -> Result<Url, UpstreamError> {
    let url = Url::parse(text).map_err(|_| UpstreamError::NotAnAddress(text.to_owned()))?;
    let Some(host) = url.host_str() else { return Err(UpstreamError::NotAnAddress(text.to_owned())) };
    if !url.username().is_empty() || url.password().is_some() {
        return Err(UpstreamError::TooMuch(format!("{}://{host}", url.scheme())));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(UpstreamError::TooMuch(text.to_owned()));
    }
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_loopback(host) => Ok(url),
        "http" => Err(UpstreamError::Clear(text.to_owned())),
        _ => Err(UpstreamError::NotAnAddress(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstreams_are_encrypted_or_of_this_machine() {
        let check = |text: &str| Upstreams::new(&[text.to_owned()]).map(|_| ());
        assert_eq!(check("https://models.example.com/base"), Ok(()));
        assert_eq!(check("http://127.0.0.1:9"), Ok(()));
        assert_eq!(check("responses=http://localhost:9/v1"), Ok(()));
        assert_eq!(check("http://example.com"), Err(UpstreamError::Clear("http://example.com".into())));
        assert_eq!(check("ftp://example.com"), Err(UpstreamError::NotAnAddress("ftp://example.com".into())));
        assert_eq!(check("words"), Err(UpstreamError::NotAnAddress("words".into())));
        assert_eq!(check("mail=https://example.com"), Err(UpstreamError::Wire("mail".into())));
        assert_eq!(
            check("https://me:key@example.com"),
            Err(UpstreamError::TooMuch("https://example.com".into()))
        );
        let own = Upstreams::new(&["http://localhost:7".to_owned()]).unwrap();
        assert!(own.check("127.0.0.1:7".parse().unwrap()).is_err());
        assert!(own.check("127.0.0.1:8".parse().unwrap()).is_ok());
    }

    #[test]
    fn paths_lead_to_the_wire_that_they_are_of() {
        let all = Upstreams::new(&["other=https://models.example.com/base".to_owned()]).unwrap();
        let route = |path: &str| {
            let (upstream, recorded) = all.route(path, &http::HeaderMap::new()).unwrap();
            (upstream.wire, recorded)
        };
        assert_eq!(route("/v1/messages"), (WireKind::Messages, true));
        assert_eq!(route("/v1/messages/count_tokens"), (WireKind::Messages, false));
        assert_eq!(route("/v1/chat/completions"), (WireKind::Completions, true));
        assert_eq!(route("/v1/responses"), (WireKind::Responses, true));
        assert_eq!(route("/v1/responses/resp_1"), (WireKind::Responses, false));
        assert_eq!(route("/v1/models"), (WireKind::Completions, false));
        let marked = all.messages.header.clone().unwrap();
        let headers = [(marked.parse().unwrap(), "1".parse().unwrap())].into_iter().collect();
        let none = http::HeaderMap::new();
        assert_eq!(all.route("/x", &none).unwrap().0.base.host_str(), Some("models.example.com"));
        let vendors = Upstreams::new(&[]).unwrap();
        assert!(vendors.route("/v1/models", &none).is_none(), "a key would go to either of two servers");
        let (upstream, recorded) = vendors.route("/api/hello", &none).unwrap();
        assert_eq!((upstream.wire, recorded), (WireKind::Messages, false), "asked for before any call");
        let (upstream, recorded) = vendors.route("/v1/models", &headers).unwrap();
        assert_eq!((upstream.wire, recorded), (WireKind::Messages, false));
        assert_eq!(upstream.address("/v1/models?a=%20b").unwrap().path(), "/v1/models");
        for path in ["/../admin", "/a/./b", "/%2e%2e/admin", "*", "/a\\b", "/a\"b", "@example.com/"] {
            assert_eq!(upstream.address(path), None, "{path}");
        }
    }
}
