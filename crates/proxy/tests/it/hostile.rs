//! Clients and servers that misbehave.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use quipu_proxy::{PROXY_LIMITS, ProxyLimits, WireKind};
use quipu_testkit::{FakeServer, Reply};

use crate::support::*;

fn proxied(server: &str, limits: ProxyLimits) -> (Proxy, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let proxy = Proxy::with(server, opener(dir.path().join("quipu.db")), limits);
    (proxy, dir)
}

#[test]
fn requests_that_mean_no_server_of_ours_are_refused() {
    let server = FakeServer::start([(); 2].map(|()| Reply::new(200, "text/plain", "passed")));
    let (proxy, _dir) = proxied(&server.url(), PROXY_LIMITS);
    let host = proxy.address;
    for (request, expect, words) in [
        ("POST /v1/messages HTTP/1.1\r\nHost: example.com\r\n".to_owned(), 403, "Host"),
        (
            format!("POST /v1/messages HTTP/1.1\r\nHost: {host}\r\nOrigin: https://example.com\r\n"),
            403,
            "web pages",
        ),
        (format!("POST /v1/messages HTTP/1.1\r\nHost: {host}\r\nOrigin: null\r\n"), 403, "web pages"),
        (format!("GET http://example.com/ HTTP/1.1\r\nHost: {host}\r\n"), 400, "other hosts"),
        (format!("CONNECT example.com:443 HTTP/1.1\r\nHost: {host}\r\n"), 400, "other hosts"),
        (format!("GET /v1/responses HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\n"), 501, "WebSocket"),
        (
            format!("POST /v1/messages HTTP/1.1\r\nHost: {host}\r\nContent-Length: {}\r\n", (64 << 20) + 1),
            413,
            "64 MiB",
        ),
        (format!("POST /../../admin/responses HTTP/1.1\r\nHost: {host}\r\n"), 400, "read in another way"),
        (format!("POST /%2e%2e/responses HTTP/1.1\r\nHost: {host}\r\n"), 400, "read in another way"),
        (format!("GET /x HTTP/1.1\r\nHost: {host}\r\nSec-Fetch-Site: cross-site\r\n"), 403, "web pages"),
    ] {
        let got = proxy.raw(format!("{request}Connection: close\r\n\r\n").as_bytes());
        assert_eq!(got.status, expect, "{request}: {}", got.text());
        assert!(got.text().contains(words), "{request}: {}", got.text());
        assert!(got.text().contains("quipu proxy: "), "{}", got.text());
    }
    // Two readings of one request would hide another.
    for smuggled in [
        format!(
            "POST /v1/messages HTTP/1.1\r\nHost: {host}\r\nContent-Length: 4\r\nContent-Length: 9\r\n\r\nabcd"
        ),
        format!("POST /v1/messages HTTP/1.1\r\nHost: {host}\r\nContent-Length: +4\r\n\r\nabcd"),
        format!(
            "POST /v1/messages HTTP/1.1\r\nHost: {host}\r\nHost: {host}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        ),
        format!(
            "POST /v1/messages HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n"
        ),
    ] {
        assert_eq!(proxy.raw(smuggled.as_bytes()).status, 400, "{smuggled}");
    }
    assert!(server.requests().is_empty());
    // Chunks win over a length, which does not go on.
    let both = "Content-Length: 50\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n";
    let got =
        proxy.raw(format!("POST /x HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{both}").as_bytes());
    assert_eq!(got.text(), "passed");
    let asked = &server.requests()[0];
    assert_eq!((asked.header("content-length"), &asked.body[..]), (Some("2"), &b"ab"[..]));
    assert_eq!(asked.header("transfer-encoding"), None);
    // What is right passes, also under another name of this machine.
    let got = proxy.raw(
        format!("GET /x HTTP/1.1\r\nHost: localhost:{}\r\nConnection: close\r\n\r\n", host.port()).as_bytes(),
    );
    assert_eq!(got.text(), "passed");
}

#[test]
fn bodies_in_chunks_have_the_same_limit() {
    let server = FakeServer::start([Reply::new(200, "text/plain", "passed")]);
    let limits = ProxyLimits { body: 1 << 20, ..PROXY_LIMITS };
    let (proxy, _dir) = proxied(&server.url(), limits);
    let chunk = [format!("{:x}\r\n", 1 << 20).into_bytes(), vec![b'a'; 1 << 20], b"\r\n".to_vec()].concat();
    let head = format!(
        "POST /v1/messages HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n",
        proxy.address
    );
    let got = proxy.raw(&[head.as_bytes(), &chunk, b"0\r\n\r\n"].concat());
    assert_eq!(got.status, 200);
    assert_eq!(server.requests()[0].body.len(), 1 << 20);
    let got = proxy.raw(&[head.as_bytes(), &chunk, b"1\r\na\r\n0\r\n\r\n"].concat());
    assert_eq!(got.status, 413);
    assert!(got.text().contains("more than 1 MiB"), "{}", got.text());
}

#[test]
fn malformed_requests_pass_untouched_and_unkept() {
    let bodies: [&[u8]; 6] = [
        b"{\"model\":\"m\",\"messages\":[{\"role\":",
        b"[1,2]",
        b"{\"messages\":7}",
        b"",
        b"\xff\xfe\x00",
        b"{\"model\":\"m\"}",
    ];
    let server =
        FakeServer::start(bodies.map(|_| Reply::error(400, "invalid_request_error", "what is this?")));
    let (proxy, _dir) = proxied(&server.url(), PROXY_LIMITS);
    for body in bodies {
        let got = proxy.send("POST", "/v1/messages", &[("X-Api-Key", "key")], body);
        assert_eq!(got.status, 400);
        assert!(got.text().contains("what is this?"));
    }
    for (asked, body) in server.requests().iter().zip(bodies) {
        assert_eq!(&asked.body[..], body);
    }
    let counts = proxy.end();
    assert_eq!((counts.kept, counts.unread, counts.lost), (0, 6, 0));
}

#[test]
fn servers_that_are_silent_or_away_are_named() {
    let limits = ProxyLimits { silence: Duration::from_millis(300), ..PROXY_LIMITS };
    let server = FakeServer::start([Reply::never(), Reply::sse("data: {}\n\n").then_hang()]);
    let (proxy, _dir) = proxied(&server.url(), limits);
    let body = asks(WireKind::Messages, "s", true, &["Hello"]);
    let got = proxy.call(WireKind::Messages, &body);
    assert_eq!(got.status, 504, "{}", got.text());
    assert!(got.text().contains("127.0.0.1 did not answer"), "{}", got.text());
    let got = proxy.call(WireKind::Messages, &body);
    assert_eq!((got.status, got.text().as_str()), (200, "data: {}\n\n"));
    assert_eq!(proxy.end().kept, 2);

    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (proxy, _dir) = proxied(&format!("http://{free}"), PROXY_LIMITS);
    let got = proxy.call(WireKind::Messages, &body);
    assert_eq!(got.status, 502);
    assert!(got.text().contains("could not be reached"), "{}", got.text());
}

/// Reads the head and the body of one request.
fn request_of(stream: &mut TcpStream) {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4_096];
    while !bytes.windows(4).any(|part| part == b"\r\n\r\n") {
        let count = stream.read(&mut buffer).unwrap();
        bytes.extend_from_slice(&buffer[..count]);
    }
}

#[test]
fn clients_that_leave_end_the_call_of_the_server() {
    for begins in [false, true] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (proxy, dir) = proxied(&format!("http://{}", listener.local_addr().unwrap()), PROXY_LIMITS);
        let mut client = proxy.connect();
        let body = asks(WireKind::Messages, "s", true, &["Hello"]).to_string();
        write!(
            client,
            "POST /v1/messages HTTP/1.1\r\nHost: {}\r\nUser-Agent: some-cli\r\nContent-Length: {}\r\n\r\n{body}",
            proxy.address,
            body.len()
        )
        .unwrap();
        let (mut upstream, _) = listener.accept().unwrap();
        upstream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        request_of(&mut upstream);
        if begins {
            let head =
                "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
            write!(upstream, "{head}a\r\ndata: 1\n\n\n\r\n").unwrap();
            let mut buffer = [0; 1_024];
            assert!(client.read(&mut buffer).unwrap() > 0);
        }
        drop(client);
        let mut rest = Vec::new();
        // The end of the connection, and not of the time.
        let ended = upstream.read_to_end(&mut rest);
        assert!(ended.is_ok() || ended.unwrap_err().kind() == std::io::ErrorKind::ConnectionReset);
        drop(upstream);
        assert_eq!(proxy.end().kept, 1);
        let graph = open(&dir.path().join("quipu.db"));
        assert_eq!(said(&*graph, head(&*graph, "some-cli", "s"))[0].1, "Hello");
    }
}

#[test]
fn clients_that_never_read_lose_their_place() {
    let limits = ProxyLimits { unread: Duration::from_millis(200), connections: 1, ..PROXY_LIMITS };
    let endless = Reply::new(200, "text/event-stream", "").then_repeat(vec![b'a'; 1 << 16], 1 << 20);
    let server = FakeServer::start([endless, Reply::new(200, "text/plain", "next")]);
    let (proxy, _dir) = proxied(&server.url(), limits);
    let mut client = proxy.connect();
    write!(client, "GET /x HTTP/1.1\r\nHost: {}\r\n\r\n", proxy.address).unwrap();
    // The only place is free again, though the first client is there and reads nothing.
    let got = proxy.send("GET", "/y", &[], b"");
    assert_eq!(got.text(), "next");
    drop(client);
}

#[test]
fn idle_connections_make_room() {
    let limits = ProxyLimits { connections: 2, request: Duration::from_secs(600), ..PROXY_LIMITS };
    let server = FakeServer::start(["one", "two", "three"].map(|text| Reply::new(200, "text/plain", text)));
    let (proxy, _dir) = proxied(&server.url(), limits);
    let mut kept = proxy.connect();
    write!(kept, "GET /x HTTP/1.1\r\nHost: {}\r\n\r\n", proxy.address).unwrap();
    let mut answer = Vec::new();
    while !answer.windows(3).any(|part| part == b"one") {
        let mut piece = [0; 1_024];
        let count = kept.read(&mut piece).unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&piece[..count]);
    }
    let silent = proxy.connect();
    // Both places are taken by clients that ask nothing; each makes room for one that does.
    assert_eq!(proxy.send("GET", "/y", &[], b"").text(), "two");
    assert_eq!(proxy.send("GET", "/z", &[], b"").text(), "three");
    drop((kept, silent));
}

#[test]
fn keys_go_to_no_server_of_another_wire() {
    let servers = [(); 3].map(|()| FakeServer::start([Reply::new(200, "text/plain", "passed")]));
    let [messages, completions, other] = &servers;
    let named = [format!("messages={}", messages.url()), format!("completions={}", completions.url())];
    let dir = tempfile::tempdir().unwrap();
    let with = |named: &[String]| Proxy::to(named, opener(dir.path().join("quipu.db")), PROXY_LIMITS);
    let proxy = with(&named);
    let got = proxy.send("GET", "/api/other", &[("Authorization", "Bearer secret-of-one-vendor")], b"");
    assert_eq!(got.status, 404);
    assert!(got.text().contains("a server for other paths"), "{}", got.text());
    assert!(servers.iter().all(|server| server.requests().is_empty()));
    proxy.end();
    let proxy = with(&[&named[..], &[format!("other={}", other.url())]].concat());
    assert_eq!(proxy.send("GET", "/api/other", &[], b"").text(), "passed");
    assert_eq!(other.requests().len(), 1);
    assert_eq!(proxy.send("GET", "/v1/models", &[("anthropic-version", "1")], b"").text(), "passed");
    assert_eq!(messages.requests().len(), 1);
}

#[test]
fn offers_and_answers_without_a_body_pass() {
    let marked = Reply::new(200, "text/plain", "passed").header("quipu-proxy-tobe", "forged");
    let server =
        FakeServer::start([marked, Reply::new(304, "text/plain", "").header("content-length", "12")]);
    let (proxy, _dir) = proxied(&server.url(), PROXY_LIMITS);
    let host = proxy.address;
    let offer = "Connection: close, Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n";
    let got = proxy.raw(format!("GET /x HTTP/1.1\r\nHost: {host}\r\n{offer}\r\n").as_bytes());
    assert_eq!((got.status, got.text().as_str()), (200, "passed"));
    assert_eq!(got.header("quipu-proxy-tobe"), None);
    assert_eq!(
        (server.requests()[0].header("upgrade"), server.requests()[0].header("http2-settings")),
        (None, None)
    );
    let got = proxy.raw(format!("GET /y HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes());
    assert_eq!((got.status, got.header("content-length")), (304, None));
}

#[test]
fn answers_beyond_the_memory_pass_without_a_record() {
    let big = Reply::new(200, "application/json", "[\"").then("a".repeat(1 << 20)).then("\"]");
    let server = FakeServer::start([big, says(WireKind::Messages, true, "Small.")]);
    let limits = ProxyLimits { memory: 512 << 10, ..PROXY_LIMITS };
    let (proxy, dir) = proxied(&server.url(), limits);
    let got = proxy.call(WireKind::Messages, &asks(WireKind::Messages, "s", true, &["Much?"]));
    assert_eq!((got.status, got.body.len()), (200, (1 << 20) + 4));
    // Its room is free again.
    let got = proxy.call(WireKind::Messages, &asks(WireKind::Messages, "t", true, &["Little?"]));
    assert_eq!(got.status, 200);
    assert_eq!(proxy.end().kept, 2);
    let graph = open(&dir.path().join("quipu.db"));
    let of = |session: &str| said(&*graph, head(&*graph, "some-cli", session)).pop().unwrap().1;
    assert!(of("s").contains("larger than what is kept"), "{}", of("s"));
    assert_eq!(of("t"), "Small.");
}
