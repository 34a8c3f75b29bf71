//! Clients that do what none should.

use serde_json::json;

use super::client::{Client, text};
use super::filled;

#[test]
fn lines_that_are_no_messages_are_answered() {
    let world = filled();
    let mut client = Client::started(&world);
    for (line, code) in [
        ("nonsense", -32700),
        ("{\"jsonrpc\":\"2.0\",", -32700),
        ("\u{0}\u{1}", -32700),
        ("7", -32600),
        ("null", -32600),
        ("[]", -32600),
        ("{}", -32600),
        ("{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"tools/list\"}", -32600),
        ("{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"tools/list\"}", -32600),
    ] {
        client.line(line);
        let answer = client.message();
        assert_eq!(answer["error"]["code"], code, "{line}: {answer}");
    }
    let deep = "[".repeat(100_000);
    client.line(&format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{deep}"));
    assert_eq!(client.message()["error"]["code"], -32700);
    client.line(&format!("{{\"a\":\"{}\"}}", "a".repeat(2 << 20)));
    let answer = client.message();
    assert!(answer["error"]["message"].as_str().unwrap().contains("1048576 bytes"), "{answer}");
    // Empty lines, and a method that nobody knows.
    client.line("");
    client.line("\r");
    assert_eq!(client.ask("quipu/none", &json!({}))["error"]["code"], -32601);
    assert!(text(&client.call("search", &json!({ "query": "paint" }))).contains("Blue paint it is."));
    client.ends(0);
}

#[test]
fn endless_garbage_ends_the_server() {
    let world = filled();
    Client::started(&world).process.end_with_garbage().ok();
    world.run(&["doctor"]).ok();
}

#[test]
fn thousand_parallel_calls_are_each_answered_once() {
    let world = filled();
    let mut client = Client::started(&world);
    let mut expected = std::collections::BTreeSet::new();
    for n in 0..1_500 {
        let tool = ["search", "around", "why"][n % 3];
        let arguments = [json!({ "query": "paint" }), json!({}), json!({ "file": "gate.md" })][n % 3].clone();
        expected.insert(client.send("tools/call", &json!({ "name": tool, "arguments": arguments })));
    }
    while !expected.is_empty() {
        let answer = client.message();
        assert!(expected.remove(&answer["id"].as_u64().unwrap()), "twice: {answer}");
        assert_eq!(answer["result"]["isError"], false, "{answer}");
    }
    client.ends(0);
}

#[test]
fn cancelled_calls_are_not_answered_and_hold_nothing_up() {
    let world = filled();
    let mut client = Client::started(&world);
    for _ in 0..2_000 {
        let id = client.send("tools/call", &json!({ "name": "search", "arguments": { "query": "paint" } }));
        client.tell("notifications/cancelled", &json!({ "requestId": id, "reason": "a test" }));
    }
    client.tell("notifications/cancelled", &json!({ "requestId": "none" }));
    let last = client.send("tools/call", &json!({ "name": "search", "arguments": { "query": "paint" } }));
    // Some were answered before their cancellation was read.
    while client.message()["id"] != last {}
    client.ends(0);
}
