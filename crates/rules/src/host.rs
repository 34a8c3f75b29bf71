//! Patterns of hosts, and hosts as programs name them.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::RuleError;

/// `api.example.com`, `*.example.com`, `*`, an address; with `:PORT` for one port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostPattern {
    host: HostName,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum HostName {
    Every,
    /// Those below this name, and not itself.
    Below(String),
    Name(String),
    Address(IpAddr),
}

/// Bytes of the name of a host.
const NAME_LIMIT: usize = 253;

impl HostPattern {
    pub(crate) fn parse(text: &str) -> Result<Self, RuleError> {
        let text = text.trim();
        let bad = || RuleError::BadHost(text.to_owned());
        // `domain:` begins hosts in rules of other agents.
        let rest = text.strip_prefix("domain:").unwrap_or(text);
        let (host, port) = split(rest).ok_or_else(bad)?;
        let host = match (host.strip_prefix("*."), host.as_str()) {
            (_, "*") => HostName::Every,
            (Some(below), _) => HostName::Below(name(below).ok_or_else(bad)?),
            (None, host) => match address(host) {
                Some(address) => HostName::Address(address),
                None => HostName::Name(name(host).ok_or_else(bad)?),
            },
        };
        Ok(Self { host, port })
    }

    pub(crate) fn is_exact(&self) -> bool {
        matches!(self.host, HostName::Name(_) | HostName::Address(_))
    }

    /// Whether it is about this host. A pattern with `*` is about no address.
    pub(crate) fn matches(&self, host: &Host) -> bool {
        let same = match (&self.host, &host.name) {
            (HostName::Every, HostKind::Name(_)) => true,
            (HostName::Below(below), HostKind::Name(name)) => {
                name.strip_suffix(below.as_str()).is_some_and(|front| front.len() > 1 && front.ends_with('.'))
            }
            (HostName::Name(own), HostKind::Name(name)) => own == name,
            (HostName::Address(own), HostKind::Address(address)) => own == address,
            _ => false,
        };
        same && self.port.is_none_or(|port| port == host.port)
    }
}

/// A host and a port that something wants to reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    name: HostKind,
    port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum HostKind {
    Name(String),
    Address(IpAddr),
}

impl Host {
    /// Reads `HOST:PORT`; `[…]` is around an address of version 6. `None` where it is no host.
    pub fn parse(text: &str, default_port: Option<u16>) -> Option<Self> {
        let (host, port) = split(text)?;
        let port = port.or(default_port)?;
        let name = match address(&host) {
            Some(address) => HostKind::Address(address),
            None => HostKind::Name(name(&host)?),
        };
        Some(Self { name, port })
    }

    /// The address, if it is one and no name.
    pub fn address(&self) -> Option<IpAddr> {
        match self.name {
            HostKind::Address(address) => Some(address),
            HostKind::Name(_) => None,
        }
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The name or address, as a rule names it.
    pub fn name(&self) -> String {
        match &self.name {
            HostKind::Name(name) => name.clone(),
            HostKind::Address(IpAddr::V6(address)) => format!("[{address}]"),
            HostKind::Address(IpAddr::V4(address)) => address.to_string(),
        }
    }
}

/// The host, in small letters and without a dot at its end, and the port if there is one.
fn split(text: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        host.parse::<Ipv6Addr>().ok()?;
        (host, if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) })
    } else {
        match text.split_once(':') {
            // An address of version 6 without brackets.
            Some((_, rest)) if rest.contains(':') => (text, None),
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        }
    };
    let is_port = |port: &&str| port.bytes().all(|byte| byte.is_ascii_digit());
    let port = match port {
        Some(port) => Some(Some(port).filter(is_port)?.parse().ok().filter(|port| *port != 0)?),
        None => None,
    };
    Some((host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase(), port))
}

/// The name of a host. What could be read as an address in another spelling (`127.1`, `0x7f.1`) is none.
fn name(text: &str) -> Option<String> {
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
            && !label.starts_with('-')
    };
    let last = text.rsplit('.').next().unwrap_or(text);
    let is_numeric = last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x");
    (text.len() <= NAME_LIMIT && text.split('.').all(is_label) && !is_numeric).then(|| text.to_owned())
}

fn address(text: &str) -> Option<IpAddr> {
    text.parse().ok().map(plain)
}

/// An address of version 4 that is written as one of version 6 is the same address.
fn plain(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// Whether an address is of this machine, of a network that is not public, or of none: what a name must not lead to.
pub fn is_private(address: IpAddr) -> bool {
    match plain(address) {
        IpAddr::V4(address) => is_private_v4(address),
        IpAddr::V6(address) => {
            let [first, second, ..] = address.segments();
            // Addresses of version 4 inside: 64:ff9b::/96 and 2002::/16, and ::a.b.c.d.
            let last = address.octets();
            let embedded = |at: usize| {
                let bytes = last.get(at..at + 4).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
                bytes.is_some_and(|bytes| is_private_v4(Ipv4Addr::from(bytes)))
            };
            address.is_unspecified()
                || address.is_loopback()
                || address.is_multicast()
                || first & 0xfe00 == 0xfc00
                || first & 0xffc0 == 0xfe80
                || first & 0xffc0 == 0xfec0
                || (first == 0x2001 && second == 0xdb8)
                || (first == 0x64 && second == 0xff9b && embedded(12))
                || (first == 0x2002 && embedded(2))
                || (address.segments().iter().take(6).all(|part| *part == 0) && embedded(12))
        }
    }
}

fn is_private_v4(address: Ipv4Addr) -> bool {
    let [first, second, third, _] = address.octets();
    address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_broadcast()
        || address.is_documentation()
        || first == 0
        || first >= 240
        || (first == 100 && (64..128).contains(&second))
        || (first == 192 && second == 0 && third == 0)
        || (first == 198 && (18..20).contains(&second))
}
