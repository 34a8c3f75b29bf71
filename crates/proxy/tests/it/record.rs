//! What is kept of the calls that pass.

use std::io::Write as _;
use std::sync::Arc;

use quipu_protocol::{ChunkId, Entry, Message};
use quipu_proxy::{PROXY_LIMITS, WireKind};
use quipu_store::{SearchQuery, StoreError};
use quipu_testkit::{Answer as Said, FakeServer, Reply};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::support::*;

#[test]
fn conversations_extend_one_lineage_on_each_wire() {
    for wire in WIRES {
        for is_stream in [false, true] {
            let server = FakeServer::start([says(wire, is_stream, "One."), says(wire, is_stream, "Two.")]);
            let dir = tempfile::tempdir().unwrap();
            let store = dir.path().join("quipu.db");
            let proxy = Proxy::start(&server.url(), &store);
            assert_eq!(proxy.call(wire, &asks(wire, "sess-1", is_stream, &["First?"])).status, 200);
            assert_eq!(
                proxy.call(wire, &asks(wire, "sess-1", is_stream, &["First?", "One.", "Second?"])).status,
                200
            );
            let counts = proxy.end();
            assert_eq!((counts.kept, counts.unread, counts.lost), (2, 0, 0), "{wire:?} {is_stream}");

            let graph = open(&store);
            let all = sessions(&*graph);
            assert_eq!(all.len(), 1, "{all:?}");
            let row = &all[0];
            assert_eq!(
                (row.id.as_str(), row.agent.as_str(), row.title.as_str()),
                ("sess-1", "some-cli", "First?")
            );
            assert_eq!((row.entries, row.model.as_str()), (4, "m"));
            let end = head(&*graph, "some-cli", "sess-1");
            let expect = pairs(&[
                ("user", "First?"),
                ("assistant", "One."),
                ("user", "Second?"),
                ("assistant", "Two."),
            ]);
            assert_eq!(said(&*graph, end), expect, "{wire:?} {is_stream}");

            // The record is of the bytes that were sent, and what is free of secrets can be read back.
            let (_, entry, step) = entries(&*graph, end).pop().unwrap();
            let call = step.call.unwrap();
            let sent = &server.requests()[1].body;
            assert_eq!(call.body, ChunkId(Sha256::digest(sent).into()));
            assert_eq!(call.body_bytes, sent.len() as u64);
            assert_eq!(block_on(graph.chunk(call.body, 0..u64::MAX)).unwrap(), sent.to_vec());
            let Entry::Message(Message::Assistant(answer)) = entry else { panic!("{entry:?}") };
            assert_eq!((answer.usage.input, answer.usage.output), (10, 5), "{wire:?} {is_stream}");
        }
    }
}

#[test]
fn sessions_are_found_by_search_and_directory() {
    let server = FakeServer::start([says(WireKind::Messages, true, "Paint it green.")]);
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("quipu.db");
    let proxy = Proxy::start(&server.url(), &store);
    proxy.call(WireKind::Messages, &asks(WireKind::Messages, "s", true, &["Which paint?"]));
    proxy.end();
    let graph = open(&store);
    assert_eq!(sessions(&*graph)[0].cwd, "/work/place");
    let query = SearchQuery { words: "green".into(), limit: 10, ..SearchQuery::default() };
    let found = block_on(graph.search(query)).unwrap();
    assert_eq!(found.hits.len(), 1);
}

#[test]
fn secrets_and_keys_are_not_in_the_store() {
    let secret = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
    let server = FakeServer::start([says(WireKind::Messages, true, "I see.")]);
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("quipu.db");
    let proxy = Proxy::start(&server.url(), &store);
    let body = asks(WireKind::Messages, "s", true, &[&format!("My token is {secret}")]);
    proxy.call(WireKind::Messages, &body);
    let lines = proxy.lines.lock().unwrap().join("\n");
    assert_eq!(proxy.end().kept, 1);
    // The server got it; the store did not.
    let sent = server.requests()[0].body.clone();
    assert!(String::from_utf8_lossy(&sent).contains(secret));
    for file in std::fs::read_dir(dir.path()).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        for hidden in [secret, "key-of-a-person"] {
            assert!(!bytes.windows(hidden.len()).any(|part| part == hidden.as_bytes()), "{hidden}");
            assert!(!lines.contains(hidden));
        }
    }
    let graph = open(&store);
    let end = head(&*graph, "some-cli", "s");
    assert!(said(&*graph, end)[0].1.contains("[REDACTED:"));
    let call = entries(&*graph, end).pop().unwrap().2.call.unwrap();
    assert_eq!(call.body, ChunkId(Sha256::digest(&sent).into()));
    assert!(matches!(block_on(graph.chunk(call.body, 0..1)), Err(StoreError::Missing { .. })));
}

#[test]
fn keys_that_servers_repeat_and_secret_names_are_not_kept() {
    let wire = WireKind::Messages;
    let (key, secret) = ("key-of-a-person-000000", "ghp_0123456789abcdefghijABCDEFGHIJ012345");
    let complaint = format!("Incorrect API key provided: {key}.");
    let server = FakeServer::start([
        Reply::error(401, "authentication_error", &complaint),
        says(wire, true, &format!("You use {key}.")),
    ]);
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("quipu.db");
    let proxy = Proxy::start(&server.url(), &store);
    let body = asks(wire, secret, true, &["Who am I?"]);
    let got = proxy.call(wire, &body);
    assert!(got.text().contains(key), "the client gets what the server said");
    proxy.call(wire, &body);
    assert_eq!(proxy.end().kept, 2);
    for file in std::fs::read_dir(dir.path()).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        for hidden in [key, secret] {
            assert!(!bytes.windows(hidden.len()).any(|part| part == hidden.as_bytes()), "{hidden}");
        }
    }
    let graph = open(&store);
    let session = &sessions(&*graph)[0].id;
    assert!(session.as_str().starts_with("sealed-"), "{session}");
    let text = said(&*graph, head(&*graph, "some-cli", session.as_str())).pop().unwrap().1;
    assert_eq!(text, "You use [key].");
}

#[test]
fn edits_of_a_client_become_branches() {
    let wire = WireKind::Completions;
    let script = ["One.", "Two.", "Other."].map(|text| says(wire, false, text));
    let server = FakeServer::start(script);
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("quipu.db");
    let proxy = Proxy::start(&server.url(), &store);
    for turns in [&["First?"][..], &["First?", "One.", "Second?"], &["First?", "One.", "Changed?"]] {
        proxy.call(wire, &asks(wire, "s", false, turns));
    }
    proxy.end();
    let graph = open(&store);
    let end = head(&*graph, "some-cli", "s");
    let expect =
        pairs(&[("user", "First?"), ("assistant", "One."), ("user", "Changed?"), ("assistant", "Other.")]);
    assert_eq!(said(&*graph, end), expect);
    let branches = block_on(graph.heads("some-cli/s/")).unwrap();
    assert_eq!(branches.len(), 2, "{branches:?}");
    assert_eq!(sessions(&*graph)[0].entries, 6);
}

#[test]
fn calls_beside_a_conversation_do_not_spoil_it() {
    let wire = WireKind::Messages;
    let server = FakeServer::start(
        ["A title.", "One.", "Another title.", "Sub.", "Two."].map(|text| says(wire, true, text)),
    );
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("quipu.db");
    let proxy = Proxy::start(&server.url(), &store);
    let title = |text: &str| {
        let mut body = asks(wire, "s", true, &[text]);
        body["tools"] = json!([]);
        body["system"] = json!("Write a title.");
        body
    };
    let mut sub = asks(wire, "s", true, &["Look into it."]);
    sub["system"] = json!("You are sent to look into things.");
    proxy.call(wire, &title("First?"));
    proxy.call(wire, &asks(wire, "s", true, &["First?"]));
    proxy.call(wire, &title("First? One."));
    proxy.call(wire, &sub);
    proxy.call(wire, &asks(wire, "s", true, &["First?", "One.", "Second?"]));
    assert_eq!(proxy.end().kept, 5);
    let graph = open(&store);
    let end = head(&*graph, "some-cli", "s");
    let expect =
        pairs(&[("user", "First?"), ("assistant", "One."), ("user", "Second?"), ("assistant", "Two.")]);
    assert_eq!(said(&*graph, end), expect);
    let beside: Vec<_> = sessions(&*graph).into_iter().filter(|row| row.id.as_str() != "s").collect();
    assert_eq!(beside.len(), 2, "{beside:?}");
    for row in beside {
        assert!(row.id.as_str().starts_with("child-s-"), "{row:?}");
        assert_eq!(row.parent, Some("s".into()));
    }
}

#[test]
fn tool_calls_and_results_keep_their_pairs() {
    for wire in WIRES {
        let called =
            Said::on(spoken(wire)).thinking("Hm.", "sig").tool_call("call_1", "look", "{\"at\":1.0}").reply();
        let server = FakeServer::start([called, says(wire, true, "Done.")]);
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("quipu.db");
        let proxy = Proxy::start(&server.url(), &store);
        proxy.call(wire, &asks(wire, "s", true, &["Look."]));
        proxy.call(wire, &with_list(wire, "s", true, called_once(wire)));
        proxy.end();
        let graph = open(&store);
        let end = head(&*graph, "some-cli", "s");
        let expect = pairs(&[
            ("user", "Look."),
            ("assistant", "<look>"),
            ("result of look", "seen"),
            ("assistant", "Done."),
        ]);
        assert_eq!(said(&*graph, end), expect, "{wire:?}");
        assert_eq!(sessions(&*graph)[0].entries, 4, "{wire:?}");
    }
}

/// A question, a call, and its result.
pub(crate) fn called_once(wire: WireKind) -> Vec<Value> {
    match wire {
        WireKind::Messages => vec![
            json!({ "role": "user", "content": "Look." }),
            json!({ "role": "assistant", "content": [
                { "type": "thinking", "thinking": "Hm.", "signature": "sig" },
                { "type": "tool_use", "id": "call_1", "name": "look", "input": { "at": 1.0 } },
            ]}),
            json!({ "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": "call_1", "content": "seen" },
            ]}),
        ],
        WireKind::Completions => vec![
            json!({ "role": "user", "content": "Look." }),
            json!({ "role": "assistant", "content": null, "tool_calls": [
                { "id": "call_1", "type": "function", "function": { "name": "look", "arguments": "{\"at\":1.0}" } },
            ]}),
            json!({ "role": "tool", "tool_call_id": "call_1", "content": "seen" }),
        ],
        WireKind::Responses => vec![
            json!({ "role": "user", "content": [{ "type": "input_text", "text": "Look." }] }),
            json!({ "type": "reasoning", "summary": [{ "type": "summary_text", "text": "Hm." }], "encrypted_content": "sig" }),
            json!({ "type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{\"at\":1.0}" }),
            json!({ "type": "function_call_output", "call_id": "call_1", "output": "seen" }),
        ],
    }
}

#[test]
fn requests_that_go_on_from_an_answer_by_its_id_find_it() {
    let wire = WireKind::Responses;
    let answer = |id: &str, text: &str| {
        let body = json!({ "id": id, "model": "m", "status": "completed",
            "output": [{ "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": text }] }] });
        Reply::new(200, "application/json", body.to_string())
    };
    let server =
        FakeServer::start([answer("resp_a", "One."), answer("resp_b", "Two."), answer("resp_c", "Three.")]);
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("quipu.db");
    let proxy = Proxy::start(&server.url(), &store);
    proxy.call(wire, &json!({ "model": "m", "input": "First?" }));
    proxy.call(wire, &json!({ "model": "m", "input": "Second?", "previous_response_id": "resp_a" }));
    proxy.end();
    // Another process finds it in the store.
    let proxy = Proxy::start(&server.url(), &store);
    proxy.call(wire, &json!({ "model": "m", "input": "Third?", "previous_response_id": "resp_b" }));
    proxy.end();
    let graph = open(&store);
    let all = sessions(&*graph);
    assert_eq!(all.len(), 1, "{all:?}");
    assert!(all[0].id.as_str().starts_with("conversation-"));
    let expect = pairs(&[
        ("user", "First?"),
        ("assistant", "One."),
        ("user", "Second?"),
        ("assistant", "Two."),
        ("user", "Third?"),
        ("assistant", "Three."),
    ]);
    assert_eq!(said(&*graph, all[0].head.unwrap()), expect);
}

#[test]
fn conversations_go_on_after_a_restart() {
    let wire = WireKind::Messages;
    let server = FakeServer::start(["One.", "Two."].map(|text| says(wire, true, text)));
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("quipu.db");
    let proxy = Proxy::start(&server.url(), &store);
    proxy.call(wire, &asks(wire, "s", true, &["First?"]));
    proxy.end();
    let proxy = Proxy::start(&server.url(), &store);
    proxy.call(wire, &asks(wire, "s", true, &["First?", "One.", "Second?"]));
    proxy.end();
    let graph = open(&store);
    assert_eq!(sessions(&*graph)[0].entries, 4);
    assert_eq!(said(&*graph, head(&*graph, "some-cli", "s")).len(), 4);
}

#[test]
fn packed_bodies_pass_packed_and_are_read() {
    let pack = |text: &str| {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        out.write_all(text.as_bytes()).unwrap();
        out.finish().unwrap()
    };
    let wire = WireKind::Messages;
    let answer = pack(&Said::new().text("One.").stream());
    let reply = Reply::new(200, "text/event-stream", answer.clone()).header("content-encoding", "gzip");
    let server = FakeServer::start([reply]);
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("quipu.db");
    let proxy = Proxy::start(&server.url(), &store);
    let body = pack(&asks(wire, "s", true, &["First?"]).to_string());
    let headers =
        [("User-Agent", "some-cli/1.0"), ("Content-Encoding", "gzip"), ("Accept-Encoding", "gzip, br, zstd")];
    let got = proxy.send("POST", path(wire), &headers, &body);
    assert_eq!(got.body, answer);
    assert_eq!(got.header("content-encoding"), Some("gzip"));
    assert_eq!(proxy.end().kept, 1);
    let asked = &server.requests()[0];
    assert_eq!(asked.body, body);
    assert_eq!(asked.header("accept-encoding"), Some("gzip, zstd"));
    let graph = open(&store);
    let end = head(&*graph, "some-cli", "s");
    assert_eq!(said(&*graph, end), pairs(&[("user", "First?"), ("assistant", "One.")]));
    let call = entries(&*graph, end).pop().unwrap().2.call.unwrap();
    assert_eq!(call.body, ChunkId(Sha256::digest(&body).into()));
}

#[test]
fn answers_that_fail_are_kept_as_failures() {
    let wire = WireKind::Messages;
    let server = FakeServer::start([
        Reply::error(529, "overloaded_error", "later"),
        Reply::sse(Said::new().text("Half of it").unfinished()).then_cut(),
        says(wire, true, "One."),
    ]);
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("quipu.db");
    let proxy = Proxy::start(&server.url(), &store);
    let body = asks(wire, "s", true, &["First?"]);
    assert_eq!(proxy.call(wire, &body).status, 529);
    proxy.call(wire, &body);
    assert_eq!(proxy.call(wire, &body).status, 200);
    assert_eq!(proxy.end().kept, 3);
    let graph = open(&store);
    assert_eq!(
        said(&*graph, head(&*graph, "some-cli", "s")),
        pairs(&[("user", "First?"), ("assistant", "One.")])
    );
    // One question, three answers.
    assert_eq!(sessions(&*graph)[0].entries, 4);
    let ends = block_on(graph.heads("some-cli/s/")).unwrap();
    let answers: Vec<String> = ends.iter().map(|end| said(&*graph, end.node).pop().unwrap().1).collect();
    assert!(answers.iter().any(|text| text.contains("HTTP 529") && text.contains("later")), "{answers:?}");
    assert!(answers.iter().any(|text| text.contains("Half of it")), "{answers:?}");
}

#[test]
fn clients_go_on_where_the_store_fails() {
    let wire = WireKind::Messages;
    let server = FakeServer::start(["One.", "Two."].map(|text| says(wire, true, text)));
    let opener: quipu_proxy::StoreOpener =
        Arc::new(|| Err(quipu_proxy::StoreOpenError("the disk is gone".into())));
    let proxy = Proxy::with(&server.url(), opener, PROXY_LIMITS);
    for turns in [&["First?"][..], &["First?", "One.", "Second?"]] {
        let got = proxy.call(wire, &asks(wire, "s", true, turns));
        assert_eq!(got.status, 200);
    }
    let lines = Arc::clone(&proxy.lines);
    let counts = proxy.end();
    assert_eq!((counts.kept, counts.lost), (0, 2));
    let lines = lines.lock().unwrap().join("\n");
    assert!(lines.contains("not kept: the disk is gone"), "{lines}");
}

#[test]
fn ten_conversations_at_once_stay_apart() {
    let wire = WireKind::Responses;
    let script: Vec<Reply> = (0..10)
        .flat_map(|number| {
            (0..5).map(move |turn| {
                let text = format!("answer {turn} of {number}");
                says(wire, true, &text).only_for(&format!("question {turn} of {number}\"}}]}}]"))
            })
        })
        .collect();
    let server = FakeServer::start(script);
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("quipu.db");
    let proxy = Proxy::start(&server.url(), &store);
    std::thread::scope(|scope| {
        for number in 0..10 {
            let proxy = &proxy;
            scope.spawn(move || {
                let mut turns: Vec<String> = Vec::new();
                for turn in 0..5 {
                    turns.push(format!("question {turn} of {number}"));
                    let all: Vec<&str> = turns.iter().map(String::as_str).collect();
                    let got = proxy.call(wire, &asks(wire, &format!("s{number}"), true, &all));
                    assert_eq!(got.status, 200, "{}", got.text());
                    turns.push(format!("answer {turn} of {number}"));
                }
            });
        }
    });
    assert_eq!(proxy.end().kept, 50);
    let graph = open(&store);
    for number in 0..10 {
        let all = said(&*graph, head(&*graph, "some-cli", &format!("s{number}")));
        assert_eq!(all.len(), 10);
        assert!(all.iter().all(|(_, text)| text.ends_with(&format!("of {number}"))), "{all:?}");
    }
}
