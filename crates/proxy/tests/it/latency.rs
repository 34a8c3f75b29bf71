//! What the proxy adds to a call: printed, not judged.

use std::time::{Duration, Instant};

use quipu_proxy::WireKind;
use quipu_testkit::FakeServer;

use crate::support::*;

fn percentile(times: &mut [Duration], of: usize) -> Duration {
    times.sort();
    times[(times.len() * of / 100).min(times.len() - 1)]
}

/// A client of the server itself, with the same bytes.
fn direct(server: &FakeServer, body: &str) -> Duration {
    use std::io::{Read as _, Write as _};
    let begun = Instant::now();
    let mut stream = std::net::TcpStream::connect(server.address()).unwrap();
    stream.set_nodelay(true).unwrap();
    write!(
        stream,
        "POST /v1/messages HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    begun.elapsed()
}

#[test]
fn calls_through_the_proxy_are_timed() {
    let count = 200;
    let filler = "word ".repeat(40_000);
    let script = (0..count * 2).map(|_| says(WireKind::Messages, true, "An answer."));
    let server = FakeServer::start(script);
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("quipu.db");
    let proxy = Proxy::start(&server.url(), &store);
    let (mut plain, mut proxied) = (Vec::new(), Vec::new());
    for turn in 0..count {
        let body = asks(WireKind::Messages, "timed", true, &[&filler, "Yes.", &format!("Turn {turn}")]);
        plain.push(direct(&server, &body.to_string()));
        let begun = Instant::now();
        let got = proxy.call(WireKind::Messages, &body);
        proxied.push(begun.elapsed());
        assert_eq!(got.status, 200);
    }
    for of in [50, 90, 99] {
        let (without, with) = (percentile(&mut plain, of), percentile(&mut proxied, of));
        println!(
            "p{of}: direct {without:?}, through the proxy {with:?}, added {:?}",
            with.saturating_sub(without)
        );
    }
    assert_eq!(proxy.end().kept, count as u64);
}
