//! The proxy of a session: through it commands reach the hosts that rules allow, and nothing else. It listens in the network of the
//! session and connects in that of the user. Names are checked, nothing is decrypted.

use std::collections::BTreeSet;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use quipu_rules::{Host, RuleSet, Verdict, is_private};

/// Connections at a time.
const MOST: usize = 128;
/// Bytes of the head of a request.
const HEAD: usize = 16 << 10;
/// How long the head of a request may take.
const HEAD_TIME: Duration = Duration::from_secs(20);
/// How long a host may take to answer.
const CONNECT: Duration = Duration::from_secs(10);
/// How long a connection may be silent.
const IDLE: Duration = Duration::from_secs(15 * 60);
/// ProxyRefusal hosts that are remembered for the next result.
const REFUSED: usize = 8;

/// Which hosts commands reach, as rules say at each moment, and which they were refused.
#[derive(Debug, Default)]
pub struct HostRules {
    rules: RwLock<RuleSet>,
    refused: Mutex<BTreeSet<String>>,
}

impl HostRules {
    /// Goes by these rules from now on. Connections that are open stay.
    pub fn set(&self, rules: RuleSet) {
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = rules;
    }

    /// Whether any host is allowed.
    pub fn opens(&self) -> bool {
        self.rules.read().unwrap_or_else(PoisonError::into_inner).opens_hosts()
    }

    /// The rules that would have allowed what was refused since the last call, such as `network(example.com)`.
    pub fn take_refused(&self) -> Vec<String> {
        std::mem::take(&mut *self.refused.lock().unwrap_or_else(PoisonError::into_inner))
            .into_iter()
            .collect()
    }

    fn verdict(&self, host: &Host) -> Verdict {
        self.rules.read().unwrap_or_else(PoisonError::into_inner).host(host).verdict
    }

    /// Where a host is reached, checked after its name was resolved: a name must not lead to an address that is not public.
    fn resolve(&self, host: &Host) -> Result<Vec<SocketAddr>, ProxyRefusal> {
        let verdict = self.verdict(host);
        if verdict != Verdict::Allow {
            return Err(self.refuse(&host.name(), verdict));
        }
        if let Some(address) = host.address() {
            return Ok(vec![SocketAddr::new(address, host.port())]);
        }
        let name = host.name();
        let found = (name.as_str(), host.port()).to_socket_addrs().map_err(|error| ProxyRefusal {
            status: "502 Bad Gateway",
            why: format!("{name} cannot be resolved: {error}"),
        })?;
        let (mut open, mut closed) = (Vec::new(), None);
        for address in found {
            if self.may_reach(&name, address) { open.push(address) } else { closed = Some(address.ip()) }
        }
        match (open.is_empty(), closed) {
            (false, _) => Ok(open),
            (true, Some(IpAddr::V6(address))) => Err(self.refuse(&format!("[{address}]"), Verdict::NoRule)),
            (true, Some(IpAddr::V4(address))) => Err(self.refuse(&address.to_string(), Verdict::NoRule)),
            (true, None) => {
                Err(ProxyRefusal { status: "502 Bad Gateway", why: format!("{name} has no address") })
            }
        }
    }

    fn may_reach(&self, name: &str, address: SocketAddr) -> bool {
        let own_rule = || {
            let host = Host::parse(&address.to_string(), None);
            host.is_some_and(|host| self.verdict(&host) == Verdict::Allow)
        };
        !is_private(address.ip()) || (name == "localhost" && address.ip().is_loopback()) || own_rule()
    }

    fn refuse(&self, name: &str, verdict: Verdict) -> ProxyRefusal {
        let rule = format!("network({name})");
        let why = if verdict == Verdict::NoRule {
            let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
            if refused.len() < REFUSED {
                refused.insert(rule.clone());
            }
            format!(
                "Commands may not reach {name}. The permission rule `{rule}` would allow it; only the user can add it."
            )
        } else {
            format!("A permission rule of the user denies {name} to commands.")
        };
        ProxyRefusal { status: "403 Forbidden", why }
    }
}

/// Why a connection is not made.
#[derive(Debug)]
struct ProxyRefusal {
    status: &'static str,
    why: String,
}

impl ProxyRefusal {
    fn bad(why: &str) -> Self {
        Self { status: "400 Bad Request", why: why.to_owned() }
    }
}

/// A proxy that runs. Dropped, it takes no more connections.
#[derive(Debug)]
pub(crate) struct Proxy {
    listener: TcpListener,
    port: u16,
}

impl Proxy {
    /// Serves what arrives at a listener, which may be in another network.
    pub(crate) fn start(listener: TcpListener, rules: Arc<HostRules>) -> io::Result<Self> {
        let port = listener.local_addr()?.port();
        let accepting = listener.try_clone()?;
        let live = Arc::new(AtomicUsize::new(0));
        thread(move || {
            while let Ok((arrived, _)) = accepting.accept() {
                if live.fetch_add(1, Ordering::SeqCst) >= MOST {
                    live.fetch_sub(1, Ordering::SeqCst);
                    continue;
                }
                let (rules, counted) = (rules.clone(), live.clone());
                let served = thread(move || {
                    // Either side may go at any time.
                    serve(arrived, &rules).ok();
                    counted.fetch_sub(1, Ordering::SeqCst);
                });
                if served.is_err() {
                    live.fetch_sub(1, Ordering::SeqCst);
                }
            }
        })?;
        Ok(Self { listener, port })
    }

    /// The variables that lead programs to it. Servers of the session are reached without it.
    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        let address = format!("http://127.0.0.1:{}", self.port);
        let own = "localhost,127.0.0.1,::1";
        let names = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];
        let mut variables: Vec<_> = names.into_iter().map(|name| (name, address.clone())).collect();
        variables.extend(["NO_PROXY", "no_proxy"].map(|name| (name, own.to_owned())));
        variables
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // Ends the thread that waits there.
        nix::sys::socket::shutdown(
            std::os::fd::AsRawFd::as_raw_fd(&self.listener),
            nix::sys::socket::Shutdown::Both,
        )
        .ok();
    }
}

fn thread(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name("quipu-proxy".to_owned()).spawn(work).map(drop)
}

fn serve(mut client: TcpStream, rules: &HostRules) -> io::Result<()> {
    let Some((head, behind)) = read_head(&mut client)? else {
        return answer(
            &mut client,
            &ProxyRefusal::bad("the head of the request is too long, too slow, or not complete"),
        );
    };
    let request = match Request::parse(&head) {
        Ok(request) => request,
        Err(refused) => return answer(&mut client, &refused),
    };
    let addresses = match rules.resolve(&request.host) {
        Ok(addresses) => addresses,
        Err(refused) => return answer(&mut client, &refused),
    };
    let mut connected = Err(io::ErrorKind::NotFound.into());
    for address in addresses {
        connected = TcpStream::connect_timeout(&address, CONNECT);
        if connected.is_ok() {
            break;
        }
    }
    let mut server = match connected {
        Ok(server) => server,
        Err(error) => {
            let why = format!("{}:{} does not answer: {error}", request.host.name(), request.host.port());
            return answer(&mut client, &ProxyRefusal { status: "502 Bad Gateway", why });
        }
    };
    for side in [&client, &server] {
        side.set_read_timeout(Some(IDLE))?;
        side.set_write_timeout(Some(IDLE))?;
    }
    match &request.head {
        Some(head) => server.write_all(head.as_bytes())?,
        None => client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?,
    }
    server.write_all(&behind)?;
    let (mut back_from, mut back_to) = (server.try_clone()?, client.try_clone()?);
    let back = std::thread::Builder::new().name("quipu-proxy".to_owned()).spawn(move || {
        io::copy(&mut back_from, &mut back_to).ok();
        back_to.shutdown(Shutdown::Write).ok();
    })?;
    io::copy(&mut client, &mut server).ok();
    server.shutdown(Shutdown::Write).ok();
    back.join().map_err(|_| io::Error::other("a thread panicked"))
}

/// The head of a request, and what was read behind it. `None` where there is none within the limits.
fn read_head(client: &mut TcpStream) -> io::Result<Option<(Vec<u8>, Vec<u8>)>> {
    let until = Instant::now() + HEAD_TIME;
    let (mut read, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || read.len() > HEAD {
            return Ok(None);
        }
        client.set_read_timeout(Some(left))?;
        let got = match client.read(&mut buffer) {
            Ok(0) | Err(_) => return Ok(None),
            Ok(got) => got,
        };
        let searched = read.len().saturating_sub(3);
        read.extend_from_slice(buffer.get(..got).unwrap_or_default());
        let end = read.get(searched..).and_then(|part| part.windows(4).position(|four| four == b"\r\n\r\n"));
        if let Some(end) = end {
            let behind = read.split_off(searched + end + 4);
            return Ok((read.len() <= HEAD).then_some((read, behind)));
        }
    }
}

fn answer(client: &mut TcpStream, refused: &ProxyRefusal) -> io::Result<()> {
    let ProxyRefusal { status, why } = refused;
    let body = format!("{why}\n");
    let length = body.len();
    client.set_write_timeout(Some(HEAD_TIME))?;
    write!(
        client,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )?;
    client.shutdown(Shutdown::Write)
}

/// What a client wants of the proxy.
#[derive(Debug)]
struct Request {
    host: Host,
    /// What the host is sent; `None` for a tunnel.
    head: Option<String>,
}

impl Request {
    fn parse(head: &[u8]) -> Result<Self, ProxyRefusal> {
        let text = std::str::from_utf8(head)
            .map_err(|_| ProxyRefusal::bad("the head of the request is not text"))?;
        let mut lines = text.trim_end_matches("\r\n").split("\r\n");
        let mut first = lines.next().unwrap_or_default().split(' ');
        let (Some(method), Some(target), Some(version), None) =
            (first.next(), first.next(), first.next(), first.next())
        else {
            return Err(ProxyRefusal::bad("the first line of the request is none of HTTP"));
        };
        if !matches!(version, "HTTP/1.1" | "HTTP/1.0") || text.contains('\0') {
            return Err(ProxyRefusal::bad("the proxy speaks HTTP/1.1"));
        }
        let no_host = || ProxyRefusal::bad("the request names no host that can be reached");
        if method == "CONNECT" {
            return Ok(Self { host: Host::parse(target, None).ok_or_else(no_host)?, head: None });
        }
        let is_token = |char: char| char.is_ascii_uppercase() || char == '-';
        let rest =
            target.get(..7).filter(|scheme| scheme.eq_ignore_ascii_case("http://")).and(target.get(7..));
        let rest = rest.filter(|_| method.chars().all(is_token)).ok_or_else(no_host)?;
        let split = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(split);
        let host = Host::parse(authority, Some(80)).ok_or_else(no_host)?;
        let slash = if path.starts_with('/') { "" } else { "/" };
        let port = if host.port() == 80 { String::new() } else { format!(":{}", host.port()) };
        // One request for each connection, and to the host that was checked.
        let mut own = format!(
            "{method} {slash}{path} HTTP/1.1\r\nHost: {}{port}\r\nConnection: close\r\n",
            host.name()
        );
        for line in lines {
            let (name, _) =
                line.split_once(':').ok_or_else(|| ProxyRefusal::bad("a line of the head is no header"))?;
            if name.is_empty()
                || !name.bytes().all(|byte| byte.is_ascii_graphic())
                || line.contains(['\r', '\n'])
            {
                return Err(ProxyRefusal::bad("a line of the head is no header"));
            }
            let dropped = [
                "host",
                "connection",
                "proxy-connection",
                "proxy-authorization",
                "keep-alive",
                "upgrade",
                "te",
            ];
            if !dropped.iter().any(|dropped| name.eq_ignore_ascii_case(dropped)) {
                own.push_str(line);
                own.push_str("\r\n");
            }
        }
        own.push_str("\r\n");
        Ok(Self { host, head: Some(own) })
    }
}

#[cfg(test)]
mod tests {
    use quipu_rules::{Effect, Rule};

    use super::*;

    fn rules(texts: &[&str]) -> Arc<HostRules> {
        let rules = HostRules::default();
        let entries = texts.iter().map(|text| (Effect::Allow, Rule::parse(text).unwrap())).collect();
        rules.set(RuleSet::new(entries));
        Arc::new(rules)
    }

    /// What the proxy answers to these bytes.
    fn asked(rules: &Arc<HostRules>, request: &str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let _proxy = Proxy::start(listener, rules.clone()).unwrap();
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    }

    /// A server that answers each connection with the head that it got.
    fn echo() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for arrived in listener.incoming() {
                let mut arrived = arrived.unwrap();
                let (head, _) = read_head(&mut arrived).unwrap().unwrap();
                arrived.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
                arrived.write_all(&head).unwrap();
            }
        });
        address
    }

    #[test]
    fn refused_host_names_its_rule() {
        let rules = rules(&["network(api.example.com)"]);
        for request in [
            "CONNECT other.example.com:443 HTTP/1.1\r\n\r\n",
            "GET http://other.example.com/x HTTP/1.1\r\nHost: api.example.com\r\n\r\n",
        ] {
            let answer = asked(&rules, request);
            assert!(answer.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{answer}");
            assert!(answer.contains("`network(other.example.com)`"), "{answer}");
        }
        assert_eq!(rules.take_refused(), ["network(other.example.com)"]);
        assert!(rules.take_refused().is_empty());
    }

    #[test]
    fn address_needs_its_own_rule() {
        let server = echo();
        let request = format!("GET http://{server}/a?b HTTP/1.1\r\nHost: x\r\nX-Own: 1\r\n\r\n");
        for closed in [&["network(*)"][..], &["network"], &["network(127.0.0.2)"], &["network(127.0.0.1:1)"]]
        {
            let answer = asked(&rules(closed), &request);
            assert!(
                answer.contains("403") && answer.contains("`network(127.0.0.1)`"),
                "{closed:?}: {answer}"
            );
        }
        let answer = asked(&rules(&["network(127.0.0.1)"]), &request);
        let expected =
            format!("GET /a?b HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\nX-Own: 1\r\n\r\n");
        assert!(answer.ends_with(&expected), "{answer}");
        let tunnel = format!("CONNECT {server} HTTP/1.1\r\n\r\nGET /through HTTP/1.1\r\n\r\n");
        let answer = asked(&rules(&["network(127.0.0.1)"]), &tunnel);
        assert!(answer.starts_with("HTTP/1.1 200 Connection established\r\n\r\n"), "{answer}");
        assert!(answer.ends_with("GET /through HTTP/1.1\r\n\r\n"), "{answer}");
    }

    #[test]
    fn name_that_leads_to_a_private_address_is_refused() {
        let server = echo();
        let port = server.port();
        // `localhost` is such a name; only its own rule opens this machine.
        let request = format!("CONNECT localhost:{port} HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n");
        assert!(asked(&rules(&["network(localhost)"]), &request).contains("200 Connection established"));
        let name = gethostname();
        if let Ok(addresses) = (name.as_str(), port).to_socket_addrs() {
            let addresses: Vec<_> = addresses.collect();
            if !addresses.is_empty() && addresses.iter().all(|address| is_private(address.ip())) {
                let request = format!("CONNECT {name}:{port} HTTP/1.1\r\n\r\n");
                let answer = asked(&rules(&[&format!("network({name})")]), &request);
                assert!(answer.contains("403") && answer.contains("`network("), "{answer}");
            }
        }
        let host = Host::parse("rebound.example:80", None).unwrap();
        let closed = rules(&["network(rebound.example)"]);
        assert!(!closed.may_reach(&host.name(), "127.0.0.1:80".parse().unwrap()));
        assert!(!closed.may_reach(&host.name(), "[::ffff:10.0.0.1]:80".parse().unwrap()));
        assert!(closed.may_reach(&host.name(), "93.184.216.34:80".parse().unwrap()));
        let opened = rules(&["network(rebound.example)", "network(10.0.0.1)"]);
        assert!(opened.may_reach(&host.name(), "10.0.0.1:80".parse().unwrap()));
    }

    fn gethostname() -> String {
        nix::unistd::gethostname().unwrap().to_string_lossy().into_owned()
    }

    #[test]
    fn strange_requests_are_refused() {
        let rules = rules(&["network(*)"]);
        let long = format!("GET http://a.example/ HTTP/1.1\r\nX: {}\r\n\r\n", "a".repeat(HEAD));
        for request in [
            "",
            "GET",
            "GET / HTTP/1.1\r\n\r\n",
            "CONNECT a.example HTTP/1.1\r\n\r\n",
            "CONNECT a.example:443 HTTP/2\r\n\r\n",
            "CONNECT u@a.example:443 HTTP/1.1\r\n\r\n",
            "GET https://a.example/ HTTP/1.1\r\n\r\n",
            "GET http:// HTTP/1.1\r\n\r\n",
            "get http://a.example/ HTTP/1.1\r\n\r\n",
            "GET http://127.1/ HTTP/1.1\r\n\r\n",
            "GET http://u:p@a.example/ HTTP/1.1\r\n\r\n",
            "GET http://a.example/ HTTP/1.1\r\nno header\r\n\r\n",
            "GET http://a.example/ HTTP/1.1\r\n x: y\r\n\r\n",
            &long,
        ] {
            let answer = asked(&rules, request);
            assert!(answer.starts_with("HTTP/1.1 400 "), "{request:?}: {answer}");
        }
    }

    #[test]
    fn dropped_proxy_takes_no_more_connections() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(Proxy::start(listener, Arc::default()).unwrap());
        let refused = (0..500).any(|_| {
            std::thread::yield_now();
            TcpStream::connect(address).is_err()
        });
        assert!(refused);
    }
}
