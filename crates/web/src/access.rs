//! Which hosts tools may reach.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use quipu_rules::{Host, Verdict, is_private};
use reqwest::Url;

use crate::error::FetchError;
use crate::limits::URL_BYTES;
use crate::names::FETCH;

/// The user's permission rules, as far as they are about hosts.
pub trait HostJudge: Send + Sync + 'static {
    /// What rules say of a host.
    fn host(&self, host: &Host) -> Verdict;

    /// What rules say of a tool.
    fn tool(&self, name: &str) -> Verdict;

    /// Whether the session is kept off the network.
    fn is_offline(&self) -> bool;

    /// Whether nothing is asked that no rule asks about.
    fn is_unasked(&self) -> bool;
}

/// Which hosts a session reaches: by rules, and by what a person allowed while it was open.
pub struct WebAccess {
    judge: Arc<dyn HostJudge>,
    allowed: Mutex<BTreeSet<String>>,
    version: AtomicU64,
}

impl std::fmt::Debug for WebAccess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebAccess").field("allowed", &self.allowed).finish_non_exhaustive()
    }
}

/// Whether a host may be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HostDecision {
    Allowed,
    /// A person is asked; whether a yes may hold for longer than once.
    Asked {
        may_last: bool,
    },
    /// Why not, for the model.
    Denied(String),
}

impl WebAccess {
    /// By these rules.
    pub fn new(judge: Arc<dyn HostJudge>) -> Self {
        Self { judge, allowed: Mutex::default(), version: AtomicU64::new(0) }
    }

    /// Whether the session is kept off the network.
    pub(crate) fn is_offline(&self) -> bool {
        self.judge.is_offline()
    }

    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::SeqCst)
    }

    /// Allows a host until the session ends.
    pub(crate) fn allow(&self, host: &Host) {
        self.allowed.lock().unwrap_or_else(PoisonError::into_inner).insert(key(host));
        self.version.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn decide(&self, host: &Host) -> HostDecision {
        let name = host.name();
        let verdict = self.judge.host(host);
        let is_inner =
            name == "localhost" || name.ends_with(".localhost") || host.address().is_some_and(is_private);
        match (verdict, self.judge.tool(FETCH)) {
            (Verdict::Deny, _) => HostDecision::Denied(format!(
                "The user denies {name} to tools, by a permission rule or by keeping the session off the network."
            )),
            (Verdict::Allow, _) => HostDecision::Allowed,
            _ if is_inner => HostDecision::Denied(inner(&name)),
            (Verdict::Ask, _) => HostDecision::Asked { may_last: false },
            (_, Verdict::Allow) => HostDecision::Allowed,
            _ if self.judge.is_unasked() => HostDecision::Allowed,
            _ if self.allowed.lock().unwrap_or_else(PoisonError::into_inner).contains(&key(host)) => {
                HostDecision::Allowed
            }
            _ => HostDecision::Asked { may_last: true },
        }
    }

    /// Whether a name may lead to an address.
    fn may_connect(&self, name: &str, address: SocketAddr) -> bool {
        let own_rule = || {
            let host = Host::parse(&address.to_string(), None);
            host.is_some_and(|host| self.judge.host(&host) == Verdict::Allow)
        };
        let is_denied = || {
            let host = Host::parse(&address.to_string(), None);
            host.is_some_and(|host| self.judge.host(&host) == Verdict::Deny)
        };
        if is_private(address.ip()) {
            (name == "localhost" && address.ip().is_loopback()) || own_rule()
        } else {
            !is_denied()
        }
    }

    /// The addresses of a host that may be connected to; `is_proxied`: another one looks them up, and a name that nobody
    /// here knows may be known there.
    pub(crate) async fn addresses(
        &self,
        host: &Host,
        is_proxied: bool,
    ) -> Result<Vec<SocketAddr>, FetchError> {
        let name = host.name();
        if let Some(address) = host.address() {
            return Ok(vec![SocketAddr::new(address, host.port())]);
        }
        let unreachable = |why: String| FetchError::Unreachable { host: name.clone(), why };
        let looked = tokio::net::lookup_host((name.as_str(), host.port()));
        let found = match tokio::time::timeout(crate::limits::LOOKUP_TIME, looked).await {
            Ok(Ok(found)) => found.collect::<Vec<_>>(),
            Ok(Err(_)) | Err(_) if is_proxied => return Ok(Vec::new()),
            Ok(Err(error)) => return Err(unreachable(format!("its name has no address ({error})"))),
            Err(_) => return Err(unreachable("its name was not looked up in time".to_owned())),
        };
        let (open, closed): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|address| self.may_connect(&name, *address));
        match closed.first() {
            // A proxy chooses the address itself.
            Some(address) if open.is_empty() || is_proxied => {
                let at = shown(address.ip());
                Err(FetchError::Refused(format!("{name} leads to {at}. {}", inner(&at))))
            }
            None if open.is_empty() => Err(unreachable("its name has no address".to_owned())),
            _ => Ok(open),
        }
    }
}

fn shown(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

fn inner(name: &str) -> String {
    format!(
        "{name} is on this machine or in a network that is not public, which is closed to this tool. The permission rule \
         `network({name})` would allow it; only the user can add it."
    )
}

/// A yes to a host is one to both of its usual ports.
fn key(host: &Host) -> String {
    match host.port() {
        80 | 443 => host.name(),
        port => format!("{}:{port}", host.name()),
    }
}

/// Reads an address that may be fetched.
///
/// # Errors
/// Why it may not.
pub(crate) fn checked_url(text: &str) -> Result<(Url, Host), FetchError> {
    let bad = |why: &str| FetchError::Address(format!("The address cannot be fetched: {why}"));
    if text.len() > URL_BYTES {
        return Err(bad("it is longer than 4 KiB"));
    }
    let url = Url::parse(text.trim()).map_err(|error| bad(&error.to_string()))?;
    host_of(&url).map(|host| (url, host))
}

/// The host of an address that may be fetched.
pub(crate) fn host_of(url: &Url) -> Result<Host, FetchError> {
    let bad = |why: &str| FetchError::Address(format!("The address cannot be fetched: {why}"));
    if !matches!(url.scheme(), "http" | "https") {
        return Err(bad("it must begin with https:// or http://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(bad("it must not hold a user or a password"));
    }
    let host = url.host_str().unwrap_or_default();
    Host::parse(host, url.port_or_known_default()).ok_or_else(|| bad("it names no host"))
}
