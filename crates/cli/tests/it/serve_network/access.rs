//! Who may ask.

use super::*;

#[test]
fn address_of_other_machines_is_refused() {
    let world = world([]);
    world
        .run(&["serve", "--listen", "0.0.0.0:0"])
        .fails(2, &["can be reached by other machines", "127.0.0.1"]);
    // Nothing is announced that is refused.
    let open = world.run(&["serve", "--no-token", "--listen", "127.0.0.1:0", "--json"]);
    assert!(open.out.is_empty() && !open.err.contains("Serving"), "{}", open.err);
    open.fails(2, &["needs a token"]);
    let install = ["serve", "install", "--yes", "--no-token", "--listen", "127.0.0.1:0"];
    world.run(&install).fails(2, &["needs a token"]);
    assert!(!world.path("home/.config").exists());
    world.run(&["serve", "--json"]).exits(2);
    assert!(!world.path("home/.quipu/serve.token").exists());
}

#[test]
fn requests_need_the_token_and_the_own_name() {
    let world = world([]);
    let server = Server::start(&world);
    let health = server.request("GET", "/health", &[("Authorization", "")], "");
    assert_eq!((health.status, health.body.as_str()), (200, r#"{"status":"ok"}"#));
    for path in ["/metrics", "/v1/models", "/v1/socket", "/nothing"] {
        for given in ["", "Bearer 0123456789abcdef0123456789abcdef", "Basic eDp4", "Bearer"] {
            let answer = server.request("GET", path, &[("Authorization", given)], "");
            answer.refuses(401, "invalid_api_key");
            assert!(answer.head.contains("www-authenticate: bearer"), "{answer:?}");
        }
    }
    let other = |headers: &[(&str, &str)]| server.request("GET", "/health", headers, "");
    other(&[("Host", "evil.example")]).refuses(403, "host_not_allowed");
    other(&[("Host", "")]).refuses(403, "host_not_allowed");
    other(&[("Origin", "https://evil.example")]).refuses(403, "origin_not_allowed");
    other(&[("Sec-Fetch-Site", "cross-site")]).refuses(403, "origin_not_allowed");
    let port = server.address.split(':').nth(1).unwrap();
    assert_eq!(other(&[("Host", &format!("localhost:{port}"))]).status, 200);
    server.get("/nothing").refuses(404, "not_found");
    server.request("POST", "/health", &[], "").refuses(405, "method_not_allowed");
    server.get("/v1/chat/completions").refuses(405, "method_not_allowed");
    server.get("/v1/socket").refuses(426, "upgrade_required");
    // A WebSocket as well, before it is one.
    let bearer = format!("Bearer {}", server.token);
    assert_eq!(server.upgraded(&[]).unwrap_err(), 401);
    assert_eq!(server.upgraded(&[("authorization", "Bearer wrong")]).unwrap_err(), 401);
    let page = [("authorization", &*bearer), ("origin", "https://evil.example")];
    assert_eq!(server.upgraded(&page).unwrap_err(), 403);
    let renamed = [("authorization", &*bearer), ("host", "evil.example")];
    assert_eq!(server.upgraded(&renamed).unwrap_err(), 403);
    drop(server.socket());
    assert!(server.metric(r#"quipu_http_requests_total{route="socket",status="401"}"#).unwrap() >= 6.0);
    server.ends(Signal::SIGTERM, 0);
}

#[test]
fn broken_requests_harm_nobody_else() {
    let world = world([says("Still here.")]);
    let server = Server::start(&world);
    let mut other = server.socket();
    for garbage in
        ["\r\n\r\n", "GET\r\n\r\n", "\0\0\0\0", "GET / HTTP/9\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]
    {
        let mut stream = server.connect();
        stream.write_all(garbage.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        stream.read_to_end(&mut Vec::new()).ok();
    }
    let long = format!("x-long: {}", "x".repeat(300 << 10));
    let mut stream = server.connect();
    stream
        .write_all(format!("GET /health HTTP/1.1\r\nHost: {}\r\n{long}\r\n\r\n", server.address).as_bytes())
        .ok();
    let answer = answer_of(stream);
    assert_eq!(answer.status, 431, "{answer:?}");
    // The limit is what is said, not what happens to fit.
    for (bytes, status) in [(60_000, 200), (70_000, 431)] {
        let answer = server.request("GET", "/health", &[("X-Long", &"x".repeat(bytes))], "");
        assert_eq!(answer.status, status, "{answer:?}");
    }
    // One that says how long it is, and one that does not.
    let huge = (21 << 20).to_string();
    let answer = server.request("POST", "/v1/chat/completions", &[("Content-Length", &huge)], "{");
    answer.refuses(413, "request_too_large");
    let mut stream = server.send(
        "POST",
        "/v1/chat/completions",
        &[("Content-Length", ""), ("Transfer-Encoding", "chunked")],
        "",
    );
    let piece = [b"100000\r\n".to_vec(), vec![b' '; 1 << 20], b"\r\n".to_vec()].concat();
    for _ in 0..22 {
        if stream.write_all(&piece).is_err() {
            break;
        }
    }
    answer_of(stream).refuses(413, "request_too_large");
    server.request("POST", "/v1/chat/completions", &[], "{\"messages\":").refuses(400, "invalid_request");
    for path in ["/v1/chat/completions", "/v1/conversations/agent:main:main/messages"] {
        let list = server.request("POST", path, &[], r#"["Hello", null]"#);
        list.refuses(400, "invalid_request");
        assert!(list.body.contains("must be a JSON object"), "{list:?}");
    }
    let session = other.open(&world);
    other.subscribe(&session);
    other.prompt(&session, "Are you there?");
    assert!(other.events_to("settled").len() > 3);
    server.ends(Signal::SIGTERM, 0);
}
