//! What is not the conversation itself: calls beside it, sub-agents, context of the client, answers of the proxy.

use quipu_protocol::{Entry, Message};
use quipu_proxy::WireKind;
use quipu_testkit::FakeServer;
use serde_json::{Value, json};

use crate::support::*;

const WIRE: WireKind = WireKind::Messages;

/// A small call without tools, such as for a title.
fn small(session: &str, text: &str) -> Value {
    let mut body = asks(WIRE, session, true, &[text]);
    body["tools"] = json!([]);
    body["system"] = json!("Write a title.");
    body
}

fn as_agent(proxy: &Proxy, agent: &str, body: &Value) {
    let headers = [("User-Agent", "some-cli/1.0"), ("Thread-Id", agent)];
    assert_eq!(proxy.send("POST", path(WIRE), &headers, body.to_string().as_bytes()).status, 200);
}

#[test]
fn small_calls_before_a_conversation_are_beside_it() {
    let server =
        FakeServer::start(["A title.", "Ready.", "One.", "Alone."].map(|text| says(WIRE, true, text)));
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("quipu.db");
    let proxy = Proxy::start(&server.url(), &store);
    proxy.call(WIRE, &small("s", "Name this: First?"));
    proxy.call(WIRE, &small("s", "quota"));
    proxy.call(WIRE, &asks(WIRE, "s", true, &["First?"]));
    // Nothing comes after it: it is a conversation.
    proxy.call(WIRE, &small("alone", "Which paint?"));
    assert_eq!(proxy.end().kept, 4);
    let graph = open(&store);
    let expect = pairs(&[("user", "First?"), ("assistant", "One.")]);
    assert_eq!(said(&*graph, head(&*graph, "some-cli", "s")), expect);
    let all = sessions(&*graph);
    let main = all.iter().find(|row| row.id.as_str() == "s").unwrap();
    assert_eq!((main.title.as_str(), main.entries), ("First?", 2));
    let beside: Vec<_> = all.iter().filter(|row| row.parent == Some("s".into())).collect();
    assert_eq!(beside.len(), 2, "{all:?}");
    assert!(beside.iter().all(|row| row.id.as_str().starts_with("child-s-")), "{beside:?}");
    assert!(all.iter().any(|row| row.id.as_str() == "alone" && row.parent.is_none()), "{all:?}");
}

#[test]
fn named_agents_have_sessions_of_their_own() {
    let server = FakeServer::start(["One.", "Fork.", "Two."].map(|text| says(WIRE, true, text)));
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("quipu.db");
    let proxy = Proxy::start(&server.url(), &store);
    // Who is the session itself is named by its id.
    as_agent(&proxy, "s", &asks(WIRE, "s", true, &["First?"]));
    // A fork has the tools, the system prompt and the messages of the conversation.
    as_agent(&proxy, "agent-7", &asks(WIRE, "s", true, &["First?", "One.", "Look into it."]));
    as_agent(&proxy, "s", &asks(WIRE, "s", true, &["First?", "One.", "Second?"]));
    proxy.end();
    let graph = open(&store);
    let expect =
        pairs(&[("user", "First?"), ("assistant", "One."), ("user", "Second?"), ("assistant", "Two.")]);
    assert_eq!(said(&*graph, head(&*graph, "some-cli", "s")), expect);
    let all = sessions(&*graph);
    assert_eq!(all.len(), 2, "{all:?}");
    let fork = all.iter().find(|row| row.parent == Some("s".into())).unwrap();
    let last = said(&*graph, head(&*graph, "some-cli", fork.id.as_str())).pop();
    assert_eq!(last, Some(("assistant".into(), "Fork.".into())));
    assert_eq!(block_on(graph.heads("some-cli/s/")).unwrap().len(), 1, "the fork is no branch of it");
}

#[test]
fn calls_beside_a_conversation_are_known_after_a_restart() {
    let server = FakeServer::start(["One.", "Sub.", "Two."].map(|text| says(WIRE, true, text)));
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("quipu.db");
    let proxy = Proxy::start(&server.url(), &store);
    proxy.call(WIRE, &asks(WIRE, "s", true, &["First?"]));
    proxy.end();
    let proxy = Proxy::start(&server.url(), &store);
    // The tools of the conversation, and another system prompt.
    let mut sub = asks(WIRE, "s", true, &["Look into it."]);
    sub["system"] = json!("You are sent to look into things.");
    proxy.call(WIRE, &sub);
    proxy.call(WIRE, &asks(WIRE, "s", true, &["First?", "One.", "Second?"]));
    proxy.end();
    let graph = open(&store);
    assert_eq!(said(&*graph, head(&*graph, "some-cli", "s")).len(), 4);
    let all = sessions(&*graph);
    assert_eq!(all.iter().filter(|row| row.parent == Some("s".into())).count(), 1, "{all:?}");
    assert_eq!(all.iter().find(|row| row.id.as_str() == "s").unwrap().entries, 4, "{all:?}");
}

#[test]
fn context_of_the_client_is_not_what_the_user_says() {
    let reminder = "<system-reminder>\nNotes of the project.\n</system-reminder>";
    let place = "<environment_context>\n<cwd>/work/place</cwd>\n</environment_context>";
    for wire in [WireKind::Messages, WireKind::Responses] {
        let server = FakeServer::start(["One.", "Two."].map(|text| says(wire, true, text)));
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("quipu.db");
        let proxy = Proxy::start(&server.url(), &store);
        let first = match wire {
            WireKind::Responses => vec![
                json!({ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": place }] }),
                json!({ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "Which paint?" }] }),
            ],
            _ => vec![json!({ "role": "user", "content": [
                { "type": "text", "text": reminder },
                { "type": "text", "text": "Which paint?" },
            ]})],
        };
        proxy.call(wire, &with_list(wire, "s", true, first.clone()));
        let mut second = first;
        second.extend(match wire {
            WireKind::Responses => vec![
                json!({ "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": "One." }] }),
                json!({ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "And the gate?" }] }),
            ],
            _ => vec![
                json!({ "role": "assistant", "content": [{ "type": "text", "text": "One." }] }),
                json!({ "role": "user", "content": [{ "type": "text", "text": "And the gate?" }] }),
            ],
        });
        proxy.call(wire, &with_list(wire, "s", true, second));
        proxy.end();
        let graph = open(&store);
        let row = &sessions(&*graph)[0];
        assert_eq!((row.title.as_str(), row.cwd.as_str()), ("Which paint?", "/work/place"), "{wire:?}");
        let entries = entries(&*graph, row.head.unwrap());
        let context: Vec<String> = entries
            .iter()
            .filter_map(|(_, entry, _)| match entry {
                Entry::Message(Message::Custom(custom)) => Some(custom.content.text()),
                _ => None,
            })
            .collect();
        let expect = if wire == WireKind::Responses { place } else { reminder };
        assert_eq!(context, [expect], "{wire:?}");
        let words: Vec<_> =
            said(&*graph, row.head.unwrap()).into_iter().filter(|(who, _)| who != "other").collect();
        let expect = pairs(&[
            ("user", "Which paint?"),
            ("assistant", "One."),
            ("user", "And the gate?"),
            ("assistant", "Two."),
        ]);
        assert_eq!(words, expect, "{wire:?}");
    }
}

#[test]
fn refusals_are_answers_of_the_proxy() {
    let server = FakeServer::start(["One.", "Two."].map(|text| says(WIRE, false, text)));
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("quipu.db");
    let proxy = Proxy::start(&server.url(), &store);
    proxy.call(WIRE, &asks(WIRE, "s", false, &["First?"]));
    let turns = ["First?", "One.", "quipu: confirm"];
    let got: Value = serde_json::from_str(&proxy.call(WIRE, &asks(WIRE, "s", false, &turns)).text()).unwrap();
    let refusal = got["content"][0]["text"].as_str().unwrap().to_owned();
    assert!(refusal.contains("Nothing is changed."), "{refusal}");
    proxy.call(WIRE, &asks(WIRE, "s", false, &[&turns[..], &[&refusal, "Second?"]].concat()));
    proxy.end();
    let graph = open(&store);
    let entries = entries(&*graph, head(&*graph, "some-cli", "s"));
    let by: Vec<(String, String)> = entries
        .iter()
        .filter_map(|(_, entry, _)| match entry {
            Entry::Message(Message::Assistant(answer)) => Some((answer.provider.clone(), answer.text())),
            _ => None,
        })
        .collect();
    let expect = pairs(&[("anthropic", "One."), ("quipu-proxy", &refusal), ("anthropic", "Two.")]);
    assert_eq!(by, expect);
    assert_eq!(entries.len(), 7, "one lineage: {by:?}");
}
