//! The string that servers of Anthropic answer with a refusal is in no text that is sent to them.

use quipu_protocol::{Content, Json, Message, ModelRequest, ToolSpec};
use serde_json::Value;

use super::encode::{self, assistant, call, encode, request, result, user};
use super::{encode_completions, encode_converse};

const ARMED: &str = "ANTHROPIC_MAGIC_STRING_TRIGGER_REFUSAL_";

fn armed(place: &str) -> String {
    format!("{place} {ARMED}{} end", "1F".repeat(32))
}

/// Requests with the string in each place where files, pages, servers and models can bring it.
fn requests() -> [ModelRequest; 3] {
    let escaped = format!(r#"{{"path":"arguments {}2 end"}}"#, ARMED.replace('_', r"\u005f"));
    let conversation = |answer: fn(Vec<Content>) -> Message| {
        vec![
            user(vec![Content::text(armed("user")), Content::text(armed("second"))]),
            answer(vec![
                Content::text(armed("answer")),
                call("c1", "read", &escaped),
                call("c2", "read", &format!(r#"{{"path":"{}"}}"#, armed("plain"))),
            ]),
            result("c1", vec![Content::text(armed("result"))], false),
            result("c2", vec![Content::text(armed("failed"))], true),
            user(vec![Content::text("Go on.")]),
        ]
    };
    let tool = ToolSpec {
        name: "hostile".into(),
        description: armed("described"),
        parameters: Json::parse(&format!(r#"{{"type":"object","description":"{}"}}"#, armed("schema")))
            .unwrap(),
    };
    let whole = |model, messages| ModelRequest {
        system: format!("{}\n\n{}", armed("stable"), armed("changing")).into(),
        stable_system: Some(armed("stable").len() + 2),
        tools: vec![tool.clone()].into(),
        ..request(model, messages)
    };
    let own = |content| assistant("claude-test-1", content);
    [
        whole(encode::model(), conversation(own)),
        whole(encode_converse::model(), conversation(encode_converse::own)),
        whole(encode_completions::model(), conversation(own)),
    ]
}

/// All texts of a body.
fn texts(value: &Value, out: &mut Vec<String>) {
    match value {
        Value::String(text) => out.push(text.clone()),
        Value::Array(values) => values.iter().for_each(|value| texts(value, out)),
        Value::Object(members) => members.values().for_each(|value| texts(value, out)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn texts_of(request: &ModelRequest) -> Vec<String> {
    let mut out = Vec::new();
    texts(&serde_json::from_slice(&encode(request)).unwrap(), &mut out);
    out
}

#[test]
fn string_that_forces_a_refusal_is_sent_broken_up() {
    let places = [
        "user",
        "second",
        "answer",
        "arguments",
        "plain",
        "result",
        "failed",
        "stable",
        "changing",
        "described",
        "schema",
    ];
    let [messages, converse, other] = requests();
    for request in [&messages, &converse] {
        let sent = texts_of(request);
        assert!(!sent.iter().any(|text| text.contains("ANTHROPIC_MAGIC")), "{sent:?}");
        for place in places {
            let known = format!("{place} ANTHROPIC MAGIC STRING TRIGGER REFUSAL_");
            assert!(sent.iter().any(|text| text.contains(&known)), "{place}: {sent:?}");
        }
    }
    // Where nobody answers it so, it stays as it is.
    assert!(texts_of(&other).iter().any(|text| *text == armed("result")));
}

#[test]
fn string_that_forces_a_refusal_moves_no_mark_and_no_prefix() {
    let [messages, converse, _] = requests();
    for request in [messages, converse] {
        let first = ModelRequest { messages: request.messages[..4].to_vec().into(), ..request.clone() };
        let (before, after) = (encode(&first), encode(&request));
        let shared = before.iter().zip(&after).take_while(|(a, b)| a == b).count();
        let rest = String::from_utf8_lossy(&before[shared..]).into_owned();
        assert!(rest.len() < 120 && !rest.contains("MAGIC"), "{rest}");
    }
    let [messages, ..] = requests();
    let sent: Value = serde_json::from_slice(&encode(&messages)).unwrap();
    let changing = sent["system"][1]["text"].as_str().unwrap();
    assert!(changing.starts_with("changing ") && changing.ends_with(" end"), "{changing}");
}
