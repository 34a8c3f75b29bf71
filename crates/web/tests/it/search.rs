use quipu_web::{SearchSetupError, WebSearch};
use serde_json::{Value, json};

use crate::server::{Answer, Server, run, text};

fn answer(value: &Value) -> Answer {
    ("Content-Type: application/json", value.to_string().into_bytes())
}

fn results(snippet: &str) -> Value {
    json!([
        { "title": "A <b>knot</b>", "url": "https://a.example/1?x=y", snippet: "Cords &amp;\n <strong>knots</strong>\u{202e}" },
        { "title": "bad", "url": "javascript:alert(1)", snippet: "x" },
        { "title": "B", "url": "https://b.example/" },
    ])
}

#[tokio::test]
async fn services_are_asked_on_their_own_wires() {
    let server = Server::new(|path| match path.split('?').next().unwrap() {
        "/search" if path.contains('?') => answer(&json!({ "results": results("content") })),
        "/search" => answer(&json!({ "results": results("content"), "answer": null })),
        _ => answer(&json!({ "web": { "results": results("description") } })),
    });
    let url = server.url("");
    for (service, key) in
        [("searxng", None), ("brave", Some("brave-key-1")), ("tavily", Some("tavily-key-2"))]
    {
        let tool = WebSearch::new(service, Some(&url), key).unwrap();
        assert!(!format!("{tool:?}").contains("key-"));
        let output = run(&tool, json!({ "query": "quipu & knots" })).await;
        let shown = text(&output);
        assert!(shown.starts_with(&format!("Results of {service} for: quipu & knots\n")), "{shown}");
        let expect = "\n1. A **knot**\n   https://a.example/1?x=y\n   Cords & **knots**\n2. B\n   https://b.example/\n";
        assert!(shown.contains(expect) && !output.is_error, "{shown}");
    }
    let requests = server.requests.lock().unwrap().clone();
    assert!(
        requests[0].starts_with("GET /search?q=quipu+%26+knots&format=json HTTP/1.1\r\n"),
        "{}",
        requests[0]
    );
    assert!(!requests[0].contains("key"), "{}", requests[0]);
    assert!(
        requests[1].starts_with("GET /res/v1/web/search?q=quipu+%26+knots&count=10 HTTP/1.1\r\n"),
        "{}",
        requests[1]
    );
    assert!(requests[1].contains("\r\nx-subscription-token: brave-key-1\r\n"), "{}", requests[1]);
    assert!(requests[2].starts_with("POST /search HTTP/1.1\r\n"), "{}", requests[2]);
    assert!(requests[2].contains("\r\nauthorization: Bearer tavily-key-2\r\n"), "{}", requests[2]);
    assert!(requests[2].ends_with("{\"max_results\":10,\"query\":\"quipu & knots\"}"), "{}", requests[2]);
}

#[tokio::test]
async fn failed_searches_say_why() {
    let server = Server::new(|path| match path.split('?').next().unwrap() {
        "/refused/search" => ("HTTP/1.1 401 Unauthorized", b"bad\nkey\x1b[2J".to_vec()),
        "/html/search" => ("Content-Type: text/html", b"<html>".to_vec()),
        "/other/search" => answer(&json!({ "results": "none" })),
        "/long/search" => ("X: y", vec![b' '; 3 << 20]),
        "/redirect/search" => ("HTTP/1.1 302 Found\r\nLocation: /search", Vec::new()),
        _ => answer(&json!({ "results": [] })),
    });
    for (path, expect) in [
        ("/refused", "the server answered with HTTP 401: bad key[2J"),
        ("/html", "the answer has no list of results; does the server give JSON?"),
        ("/other", "the answer has no list of results; does the server give JSON?"),
        ("/long", "the answer is longer than 2 MiB"),
        ("/redirect", "the server answered with HTTP 302: "),
    ] {
        let tool = WebSearch::new("searxng", Some(&server.url(path)), None).unwrap();
        let output = run(&tool, json!({ "query": "q" })).await;
        assert_eq!(text(&output), format!("The search at searxng failed: {expect}"));
        assert!(output.is_error);
    }
    let tool = WebSearch::new("searxng", Some(&server.url("/")), None).unwrap();
    assert_eq!(text(&run(&tool, json!({ "query": "q" })).await), "No results.");
    assert!(run(&tool, json!({ "query": " " })).await.is_error);
}

#[test]
fn services_that_cannot_be_used_are_named() {
    let made =
        |service: &str, address: Option<&str>, key: Option<&str>| WebSearch::new(service, address, key).err();
    assert_eq!(made("none", None, None), Some(SearchSetupError::Unknown("none".into())));
    assert_eq!(made("searxng", None, None), Some(SearchSetupError::NoAddress("searxng")));
    assert_eq!(made("brave", None, None), Some(SearchSetupError::NoKey("brave")));
    assert_eq!(made("brave", None, Some("key")), None);
    // A key is not sent in the open.
    assert!(matches!(
        made("brave", Some("http://a.example"), Some("key")),
        Some(SearchSetupError::Address(..))
    ));
    for bad in ["searx.example", "ftp://searx.example", "http://u:p@searx.example", "http://s.example/?q="] {
        assert!(matches!(made("searxng", Some(bad), None), Some(SearchSetupError::Address(..))), "{bad}");
    }
}
