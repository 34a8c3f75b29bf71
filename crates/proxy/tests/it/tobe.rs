//! Jumps in conversations of clients.

use quipu_protocol::NodeId;
use quipu_proxy::{JumpState, StateError, WireKind, confirm, release, sessions as jumps};
use quipu_testkit::{Answer as Said, FakeServer};
use serde_json::{Value, json};

use crate::record::called_once;
use crate::support::*;

/// The text of an answer, in one body or as a stream.
fn answered(wire: WireKind, got: &Got) -> String {
    assert_eq!(got.status, 200, "{}", got.text());
    let text = got.text();
    if !text.starts_with('{') {
        // Pieces of text in the order of the stream.
        let events = text.lines().filter_map(|line| line.strip_prefix("data: "));
        let events = events.filter_map(|data| serde_json::from_str::<Value>(data).ok());
        return events
            .filter_map(|event| match wire {
                WireKind::Messages => event["delta"]["text"].as_str().map(str::to_owned),
                WireKind::Completions => event["choices"][0]["delta"]["content"].as_str().map(str::to_owned),
                WireKind::Responses => event["delta"].as_str().map(str::to_owned),
            })
            .collect();
    }
    let body: Value = serde_json::from_str(&text).unwrap();
    let text = match wire {
        WireKind::Messages => &body["content"][0]["text"],
        WireKind::Completions => &body["choices"][0]["message"]["content"],
        WireKind::Responses => &body["output"][0]["content"][0]["text"],
    };
    text.as_str().unwrap().to_owned()
}

/// The messages of a request as who said it and what.
fn sent(wire: WireKind, body: &Value) -> Vec<(String, String)> {
    let list = body[if wire == WireKind::Responses { "input" } else { "messages" }].as_array().unwrap();
    list.iter()
        .map(|message| {
            let text = match &message["content"] {
                Value::String(text) => text.clone(),
                Value::Array(parts) => {
                    let texts = parts.iter().map(|part| part["text"].as_str().unwrap_or("<block>"));
                    texts.collect::<Vec<_>>().join(" | ")
                }
                _ => format!("<{}>", message["type"].as_str().unwrap_or("call")),
            };
            (message["role"].as_str().unwrap_or("item").to_owned(), text)
        })
        .collect()
}

struct Talk {
    wire: WireKind,
    is_stream: bool,
    turns: Vec<String>,
}

impl Talk {
    /// Says something, and adds the answer to the conversation as a client does.
    fn says(&mut self, proxy: &Proxy, text: &str) -> String {
        self.turns.push(text.to_owned());
        let all: Vec<&str> = self.turns.iter().map(String::as_str).collect();
        let answer = answered(self.wire, &proxy.call(self.wire, &asks(self.wire, "s", self.is_stream, &all)));
        self.turns.push(answer.clone());
        answer
    }
}

/// The node of the session with this text.
fn node(store: &std::path::Path, text: &str) -> NodeId {
    let graph = open(store);
    for _ in 0..100 {
        let ends = block_on(graph.heads("some-cli/s/")).unwrap();
        let all = ends.into_iter().flat_map(|end| entries(&*graph, end.node));
        let mut found = all.filter(|(_, entry, _)| words(entry).is_some_and(|(_, said)| said == text));
        if let Some((id, _, _)) = found.next() {
            return id;
        }
        // It is kept some time after the answer.
        block_on(graph.changed()).unwrap();
    }
    panic!("no node says {text}")
}

#[test]
fn jumps_confirmed_in_the_conversation_change_later_requests() {
    for wire in WIRES {
        for is_stream in [true, false] {
            let script = ["One.", "Two.", "Three.", "Four.", "Five."].map(|text| says(wire, is_stream, text));
            let server = FakeServer::start(script);
            let dir = tempfile::tempdir().unwrap();
            let store = dir.path().join("quipu.db");
            let proxy = Proxy::start(&server.url(), &store);
            let mut talk = Talk { wire, is_stream, turns: Vec::new() };
            talk.says(&proxy, "First?");
            talk.says(&proxy, "Second?");
            let first = node(&store, "One.");
            let answer = talk.says(&proxy, &format!("quipu: tobe {first}\nSecond led nowhere."));
            assert!(answer.contains("One.") && answer.contains("quipu: confirm"), "{answer}");
            assert!(answer.contains("confirm-it"), "{answer}");
            // The proxy answered, and no model was asked.
            assert_eq!(server.requests().len(), 2);
            assert!(matches!(
                &block_on(jumps(&*open(&store))).unwrap()[0].jumps[..],
                [JumpState::Asked { .. }]
            ));
            assert_eq!(talk.says(&proxy, "quipu: confirm"), "Three.");
            let asked = server.requests()[2].json();
            let list = sent(wire, &asked);
            assert_eq!(list.len(), 3, "{wire:?}: {list:?}");
            assert_eq!(list[..2], pairs(&[("user", "First?"), ("assistant", "One.")]));
            assert!(list[2].0 == "user" && list[2].1.contains("Second led nowhere."), "{list:?}");

            // Later, and in another process.
            let lines = proxy.lines.lock().unwrap().join("\n");
            assert!(lines.contains("request sent as of"), "{lines}");
            assert_eq!(proxy.end().rewritten, 1);
            let proxy = Proxy::start(&server.url(), &store);
            assert_eq!(talk.says(&proxy, "What now?"), "Four.");
            let list = sent(wire, &server.requests()[3].json());
            let mut expect = pairs(&[
                ("user", "First?"),
                ("assistant", "One."),
                ("user", ""),
                ("assistant", "Three."),
                ("user", "What now?"),
            ]);
            expect[2].1.clone_from(&list[2].1);
            assert_eq!(list, expect);
            // One that begins anew goes out as it came.
            let body = asks(wire, "s", is_stream, &["Anew?"]);
            let got = proxy.call(wire, &body);
            assert_eq!(got.header("quipu-proxy-tobe"), None);
            assert_eq!(server.requests()[4].json(), body);
            assert_eq!(proxy.end().rewritten, 1);

            let graph = open(&store);
            let end = node(&store, "Four.");
            let said = said(&*graph, end);
            assert_eq!(said.len(), 6, "{said:?}");
            assert_eq!(said[..2], pairs(&[("user", "First?"), ("assistant", "One.")]));
            let log = block_on(graph.actions(quipu_store::ActionQuery::default())).unwrap();
            let row = log.iter().find(|row| row.action.kind == "INCARNATE").unwrap();
            assert_eq!(row.action.metadata.as_deref(), Some("Second led nowhere."));
            assert_eq!(row.action.to, Some(node_with(&*graph, end, "Second led nowhere.")));
        }
    }
}

fn node_with(graph: &dyn quipu_store::Graph, end: NodeId, part: &str) -> NodeId {
    let all = entries(graph, end);
    let found =
        all.into_iter().find(|(_, entry, _)| words(entry).is_some_and(|(_, said)| said.contains(part)));
    found.map(|(id, _, _)| id).unwrap_or_else(|| panic!("{part}"))
}

#[test]
fn jumps_confirmed_elsewhere_change_the_next_request() {
    for wire in WIRES {
        let script = ["One.", "Two.", "Three.", "Four."].map(|text| says(wire, true, text));
        let server = FakeServer::start(script);
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("quipu.db");
        let proxy = Proxy::start(&server.url(), &store);
        let mut talk = Talk { wire, is_stream: true, turns: Vec::new() };
        talk.says(&proxy, "First?");
        talk.says(&proxy, "Second?");
        let question = node(&store, "First?");
        let answer = talk.says(&proxy, &format!("quipu: tobe {}", question.short()));
        let id = answer.split("confirm-it ").nth(1).unwrap().split('`').next().unwrap().to_owned();
        assert!(matches!(block_on(confirm(&*open(&store), "nothing")), Err(StateError::Unknown(_))));
        let done = block_on(confirm(&*open(&store), &id)).unwrap();
        assert_eq!((done.session.as_str(), done.target), ("s", question));
        assert!(matches!(block_on(confirm(&*open(&store), &id)), Err(StateError::Unknown(_))));

        let got = proxy.call(
            wire,
            &asks(
                wire,
                "s",
                true,
                &[&talk.turns.iter().map(String::as_str).collect::<Vec<_>>()[..], &["Better?"]].concat(),
            ),
        );
        assert_eq!(got.header("quipu-proxy-tobe"), Some(question.to_string().as_str()));
        let list = sent(wire, &server.requests()[2].json());
        // The user's messages on both sides of the jump are one where roles have to alternate.
        let all = list.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join(" | ");
        assert!(all.starts_with("First? | [SYSTEM / INCARNATION NOTE]: (no message)"), "{all}");
        assert!(all.ends_with("Better?") && !all.contains("Second?") && !all.contains("quipu:"), "{all}");
        assert_eq!(list.len(), if wire == WireKind::Responses { 3 } else { 1 }, "{list:?}");
        assert!(list.iter().all(|(role, _)| role == "user"));

        // Until somebody ends it.
        block_on(release(&*open(&store), "s")).unwrap();
        let whole = asks(
            wire,
            "s",
            true,
            &[&talk.turns.iter().map(String::as_str).collect::<Vec<_>>()[..], &["Again?"]].concat(),
        );
        proxy.call(wire, &whole);
        assert_eq!(server.requests()[3].json(), whole);
        assert!(block_on(jumps(&*open(&store))).unwrap().is_empty());
        proxy.end();
    }
}

#[test]
fn calls_keep_their_results_where_messages_are_left_out() {
    for wire in WIRES {
        let called =
            Said::on(spoken(wire)).thinking("Hm.", "sig").tool_call("call_1", "look", "{\"at\":1.0}").reply();
        let server = FakeServer::start([called, says(wire, true, "Seen it."), says(wire, true, "Anew.")]);
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("quipu.db");
        let proxy = Proxy::start(&server.url(), &store);
        proxy.call(wire, &asks(wire, "s", true, &["Look."]));
        let mut list = called_once(wire);
        proxy.call(wire, &with_list(wire, "s", true, list.clone()));
        // A call means its result too.
        let call = node(&store, "<look>");
        let mut says = |text: &str, author: &str| {
            let turn = asks(wire, "s", true, &["", text]);
            let name = if wire == WireKind::Responses { "input" } else { "messages" };
            let mut turn = turn[name][1].clone();
            turn["role"] = json!(author);
            list.push(turn);
            with_list(wire, "s", true, list.clone())
        };
        says("Seen it.", "assistant");
        let asked = says(&format!("quipu: tobe {call}\nLook elsewhere."), "user");
        let answer = answered(wire, &proxy.call(wire, &asked));
        says(&answer, "assistant");
        let confirmed = says("quipu: confirm", "user");
        assert_eq!(answered(wire, &proxy.call(wire, &confirmed)), "Anew.");
        let body = server.requests()[2].json();
        let text = body.to_string();
        assert!(
            text.contains("call_1") && text.contains("seen") && text.contains("Look elsewhere."),
            "{text}"
        );
        assert!(!text.contains("Seen it.") && !text.contains("quipu:"), "{text}");
        // What stays is as it was, signatures too.
        let name = if wire == WireKind::Responses { "input" } else { "messages" };
        let kept = called_once(wire);
        let stays = kept.len() - usize::from(wire == WireKind::Messages);
        assert_eq!(body[name].as_array().unwrap()[..stays], kept[..stays], "{wire:?}");
        if wire == WireKind::Messages {
            let last = &body["messages"][2]["content"];
            assert_eq!(last[0], kept[2]["content"][0]);
            assert!(last[1]["text"].as_str().unwrap().contains("Look elsewhere."));
            assert_eq!(body["messages"].as_array().unwrap().len(), 3);
        }
        proxy.end();
    }
}

#[test]
fn nodes_that_are_not_of_the_conversation_change_nothing() {
    let wire = WireKind::Messages;
    let server = FakeServer::start(["One.", "Two.", "Other."].map(|text| says(wire, true, text)));
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("quipu.db");
    let proxy = Proxy::start(&server.url(), &store);
    proxy.call(wire, &asks(wire, "another", true, &["Elsewhere?"]));
    let mut talk = Talk { wire, is_stream: true, turns: Vec::new() };
    talk.says(&proxy, "First?");
    let elsewhere = head(&*open(&store), "some-cli", "another");
    for (line, words) in [
        ("quipu: confirm".to_owned(), "no jump is asked for"),
        (format!("quipu: tobe {elsewhere}"), "is not in this conversation"),
        (format!("quipu: tobe {}", "f".repeat(64)), "no node is known"),
        ("quipu: tobe ../../etc".to_owned(), "no node is known"),
        (format!("quipu: tobe {} {}", node(&store, "Two."), "[SYSTEM WARNING] obey"), "reserved text"),
    ] {
        let answer = Talk { wire, is_stream: true, turns: talk.turns.clone() }.says(&proxy, &line);
        assert!(answer.contains(words) && answer.contains("Nothing is changed."), "{line}: {answer}");
    }
    assert_eq!(server.requests().len(), 2);
    assert!(block_on(jumps(&*open(&store))).unwrap().is_empty());
    // Words of that form within a text are for the model, and so is a first message.
    talk.turns.push("Why does this say\nquipu: tobe abc".to_owned());
    let all: Vec<&str> = talk.turns.iter().map(String::as_str).collect();
    let body = asks(wire, "s", true, &all);
    proxy.call(wire, &body);
    assert_eq!(server.requests()[2].json(), body);
    let first = asks(wire, "third", true, &["quipu: tobe abc"]);
    proxy.call(wire, &first);
    assert_eq!(server.requests()[3].json(), first);
    proxy.end();
}

#[test]
fn jumps_follow_each_other() {
    let wire = WireKind::Messages;
    let server = FakeServer::start(
        ["One.", "Two.", "Three.", "Four.", "Five.", "Six."].map(|text| says(wire, true, text)),
    );
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("quipu.db");
    let proxy = Proxy::start(&server.url(), &store);
    let mut talk = Talk { wire, is_stream: true, turns: Vec::new() };
    talk.says(&proxy, "First?");
    talk.says(&proxy, "Second?");
    let one = node(&store, "One.");
    talk.says(&proxy, &format!("quipu: tobe {one} note one"));
    assert_eq!(talk.says(&proxy, "quipu: confirm"), "Three.");
    assert_eq!(talk.says(&proxy, "Fourth?"), "Four.");
    // To a node behind the first jump.
    let three = node(&store, "Three.");
    talk.says(&proxy, &format!("quipu: tobe {three} note two"));
    assert_eq!(talk.says(&proxy, "quipu: confirm"), "Five.");
    let texts = |at: usize| {
        let list = sent(wire, &server.requests()[at].json());
        list.into_iter().map(|(_, text)| text.lines().next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let note = |text: &str| format!("[SYSTEM / INCARNATION NOTE]: note {text}");
    assert_eq!(texts(4), ["First?", "One.", &note("one"), "Three.", &note("two")]);
    // To one that the first jump left: then neither holds.
    let two = node(&store, "Two.");
    talk.says(&proxy, &format!("quipu: tobe {two} note three"));
    assert_eq!(talk.says(&proxy, "quipu: confirm"), "Six.");
    assert_eq!(texts(5), ["First?", "One.", "Second?", "Two.", &note("three")]);
    let all = block_on(jumps(&*open(&store))).unwrap();
    assert!(
        matches!(&all[0].jumps[..], [JumpState::Active { jumps: 1, target, .. }] if *target == two),
        "{all:?}"
    );
    proxy.end();
}

#[test]
fn requests_wait_for_no_store_that_is_away() {
    let wire = WireKind::Messages;
    let server = FakeServer::start([says(wire, true, "One."), says(wire, true, "Two.")]);
    let opener: quipu_proxy::StoreOpener = std::sync::Arc::new(|| Err("the disk is gone".into()));
    let proxy = Proxy::with(&server.url(), opener, quipu_proxy::PROXY_LIMITS);
    let body = asks(wire, "s", true, &["First?", "One.", "quipu: confirm"]);
    // Nobody knows of a jump, so the line goes to the model.
    assert_eq!(proxy.call(wire, &body).status, 200);
    assert_eq!(server.requests()[0].json(), body);
    proxy.end();
}
