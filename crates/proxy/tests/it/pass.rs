//! What passes through is what was sent, in both directions.

use std::io::{Read as _, Write as _};

use proptest::prelude::*;
use quipu_proxy::WireKind;
use quipu_testkit::{FakeServer, Gate, Reply};

use crate::support::*;

fn text() -> impl Strategy<Value = String> {
    "[ -9<-~]{0,40}".prop_map(|text| text.trim().to_owned())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bytes_and_headers_pass_unchanged(
        body in proptest::collection::vec(any::<u8>(), 0..3_000),
        pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..900), 0..6),
        named in proptest::collection::vec(("x-[a-z]{1,12}", text()), 0..8),
        given in proptest::collection::vec(("x-[a-z]{1,12}", text()), 0..8),
        status in prop_oneof![Just(200_u16), Just(201), Just(302), Just(404), Just(429), Just(529)],
        place in prop_oneof![Just("/v1/messages"), Just("/v1/chat/completions"), Just("/v1/responses"), Just("/v1/files?a=%2F&b"), Just("/x")],
    ) {
        let mut reply = Reply::new(status, "application/octet-stream", Vec::new());
        for (name, value) in &given {
            reply = reply.header(name, value);
        }
        for piece in &pieces {
            reply = reply.then(piece.clone());
        }
        let server = FakeServer::start([reply]);
        let dir = tempfile::tempdir().unwrap();
        let proxy = Proxy::start(&server.url(), &dir.path().join("quipu.db"));
        let mut headers: Vec<(&str, &str)> =
            vec![("accept", "text/event-stream"), ("content-type", "application/json"), ("x-api-key", "key")];
        headers.extend(named.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        let got = proxy.send("POST", place, &headers, &body);
        prop_assert_eq!(got.status, status);
        prop_assert_eq!(&got.body, &pieces.concat());
        // All but those of one connection.
        let of = |all: &[(String, String)]| {
            let hop = ["connection", "transfer-encoding", "content-length", "host", "accept"];
            let mut all: Vec<(String, String)> =
                all.iter().filter(|(name, _)| !hop.contains(&name.as_str())).cloned().collect();
            all.sort();
            all
        };
        let mut expected: Vec<(String, String)> = given.clone();
        expected.push(("content-type".into(), "application/octet-stream".into()));
        expected.sort();
        prop_assert_eq!(of(&got.headers), expected);
        let asked = &server.requests()[0];
        prop_assert_eq!(&asked.path, place);
        prop_assert_eq!(&asked.body[..], &body[..]);
        let mut sent: Vec<(String, String)> =
            headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        sent.retain(|(name, _)| name != "accept");
        sent.sort();
        prop_assert_eq!(of(&asked.headers), sent);
        prop_assert_eq!(asked.header("accept"), Some("text/event-stream"));
    }
}

#[test]
fn pieces_of_a_stream_arrive_as_they_come() {
    let gate = Gate::new();
    let server = FakeServer::start([Reply::sse("data: one\n\n").then_gate(&gate).then("data: two\n\n")]);
    let dir = tempfile::tempdir().unwrap();
    let proxy = Proxy::start(&server.url(), &dir.path().join("quipu.db"));
    let mut stream = proxy.connect();
    let body = asks(WireKind::Messages, "s", true, &["Hello"]).to_string();
    write!(
        stream,
        "POST /v1/messages HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        proxy.address,
        body.len()
    )
    .unwrap();
    let mut seen = String::new();
    while !seen.contains("data: one") {
        let mut buffer = [0; 1_024];
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0, "{seen}");
        seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
    assert!(!seen.contains("data: two"));
    gate.open();
    stream.read_to_string(&mut seen).unwrap();
    assert!(seen.contains("data: two"), "{seen}");
}

#[test]
fn paths_of_no_wire_and_redirects_pass_and_are_not_kept() {
    let server = FakeServer::start([
        Reply::new(200, "application/json", "{\"data\":[]}"),
        Reply::new(307, "text/plain", "elsewhere").header("location", "https://example.com/v1/messages"),
        Reply::new(204, "text/plain", ""),
    ]);
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("quipu.db");
    let proxy = Proxy::start(&server.url(), &store);
    // The fake server answers lists of models itself, unless the client says nothing of itself.
    let got = proxy.send("GET", "/v1/models", &[], b"");
    assert_eq!((got.status, got.text().as_str()), (200, "{\"data\":[]}"));
    let got = proxy.send("PUT", "/v1/other", &[], b"{}");
    assert_eq!((got.status, got.header("location")), (307, Some("https://example.com/v1/messages")));
    assert_eq!(proxy.send("DELETE", "/v1/files/1", &[], b"").status, 204);
    let asked = server.requests();
    assert_eq!(asked.len(), 3, "{asked:?}");
    assert_eq!(asked[0].header("user-agent"), None);
    assert_eq!(asked[2].method, "DELETE");
    let counts = proxy.end();
    assert_eq!((counts.kept, counts.unread, counts.lost), (0, 0, 0));
    assert!(sessions(&*open(&store)).is_empty());
}
