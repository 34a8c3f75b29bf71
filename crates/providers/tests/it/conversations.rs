//! One table of conversations, and what is sent of each on each wire.

use quipu_protocol::{Content, Json, Message, Model, ModelRequest, TextContent, Thinking};
use serde_json::Value;

use crate::encode::{assistant, body, call, conversation, image, request, result, thinking, user};
use crate::wires::{WIRES, Wire, api};
use crate::{
    code_assist, encode, encode_codex, encode_completions, encode_contents, encode_converse, encode_mistral,
    encode_pi_messages, encode_responses,
};

pub(crate) fn model(wire: Wire) -> Model {
    match wire {
        Wire::Messages => encode::model(),
        Wire::Completions => encode_completions::model(),
        Wire::Responses => encode_responses::model(),
        Wire::Contents => encode_contents::model(),
        Wire::Subscription => encode_codex::model(),
        Wire::Chunks => encode_mistral::model(),
        Wire::Converse => encode_converse::model(),
        Wire::Gateway => encode_pi_messages::model(),
        Wire::Envelope => code_assist::model(),
    }
}

/// An answer of the model of this wire.
pub(crate) fn own(wire: Wire, content: Vec<Content>) -> Message {
    match wire {
        Wire::Messages => assistant("claude-test-1", content),
        Wire::Completions => encode_completions::own(content),
        Wire::Responses => encode_responses::own(content),
        Wire::Contents => encode_contents::own(content),
        Wire::Subscription => encode_codex::own(content),
        Wire::Chunks => encode_mistral::own(content),
        Wire::Converse => encode_converse::own(content),
        Wire::Gateway => encode_pi_messages::own(content),
        Wire::Envelope => code_assist::own(content),
    }
}

/// The signature of an answer's thinking on this wire.
pub(crate) fn proof(wire: Wire) -> &'static str {
    match wire {
        Wire::Messages => "proof==",
        Wire::Completions | Wire::Chunks => "reasoning_content",
        Wire::Responses | Wire::Subscription => encode_responses::REASONING,
        Wire::Contents | Wire::Gateway | Wire::Envelope => "cHJvb2Y=",
        Wire::Converse => "proof==",
    }
}

/// Whether reasoning is an item of the server's own.
fn has_items(wire: Wire) -> bool {
    matches!(wire, Wire::Responses | Wire::Subscription)
}

/// A wire that is not this one.
pub(crate) fn other(wire: Wire) -> Wire {
    if wire == Wire::Messages { Wire::Completions } else { Wire::Messages }
}

/// Names, and requests for the model of this wire.
fn table(wire: Wire) -> Vec<(&'static str, ModelRequest)> {
    let say = |text: &str| user(vec![Content::text(text)]);
    let proof = proof(wire);
    let details = match wire {
        Wire::Messages => "EmwK",
        Wire::Completions | Wire::Chunks => "reasoning_content",
        Wire::Responses | Wire::Subscription => {
            r#"{"type":"compaction","id":"cmp_1","encrypted_content":"shorter"}"#
        }
        Wire::Contents | Wire::Converse | Wire::Gateway | Wire::Envelope => "EmwK",
    };
    let plain = vec![say("Hi"), own(wire, vec![Content::text("Hello.")]), say("Bye")];
    let tools = vec![
        say("Look"),
        own(
            wire,
            vec![Content::text("Both."), call("a", "read", r#"{"path":"a"}"#), call("b", "bash", "{}")],
        ),
        result("b", vec![Content::text("it failed")], true),
        result("a", vec![], false),
        own(wire, vec![call("a", "read", r#"{"z":1.0,"a":12345678901234567890}"#)]),
        // Stopped before the second one: the next words come without it.
        say("Never mind"),
    ];
    let thoughts = vec![
        say("Think"),
        own(wire, vec![thinking("Hm.", Some(proof), None), Content::text("So."), call("a", "read", "{}")]),
        result("a", vec![Content::text("ok")], false),
        own(wire, vec![thinking("", Some(details), Some(true)), Content::text("And so.")]),
        say("More"),
    ];
    let images = vec![
        user(vec![Content::text("This"), image(), image(), Content::text("and that"), image()]),
        own(wire, vec![call("a", "read", "{}"), call("b", "read", "{}")]),
        result("a", vec![image()], false),
        result("b", vec![Content::text("half"), image()], true),
        own(wire, vec![Content::text("Seen.")]),
        say("Good"),
    ];
    let elsewhere = other(wire);
    let switched = vec![
        say("Begin there"),
        own(
            elsewhere,
            vec![
                thinking("Theirs.", Some("reasoning"), None),
                Content::text("I look."),
                call("call_1|fc_2", "functions.read", r#"{"path":"a"}"#),
                call("call_1|fc_2", "read", "{}"),
            ],
        ),
        result("call_1|fc_2", vec![Content::text("one")], false),
        result("call_1|fc_2", vec![Content::text("two")], false),
        own(wire, vec![thinking("Ours.", Some(proof), None), Content::text("Here.")]),
        say("Go on"),
    ];
    let full = encode_completions::conversation;
    let with = |messages: Vec<Message>, level: Thinking, change: &dyn Fn(&mut Model)| {
        let mut model = model(wire);
        change(&mut model);
        ModelRequest { thinking: level, ..request(model, messages) }
    };
    let as_is = |_: &mut Model| {};
    let blind = |model: &mut Model| (model.input, model.reasoning) = (vec!["text".into()], false);
    let sampled = |model: &mut Model| {
        model.sampling_params = Json::parse(r#"{"temperature":0.5,"top_k":3}"#).ok();
    };
    let mut bare = with(vec![say("Hi")], Thinking::Off, &as_is);
    (bare.system, bare.tools) = (" ".into(), Vec::new().into());
    vec![
        ("bare", bare),
        ("plain", with(plain.clone(), Thinking::Off, &as_is)),
        ("tools", with(tools, Thinking::Off, &as_is)),
        ("thinking", with(thoughts, Thinking::High, &as_is)),
        ("images", with(images, Thinking::Off, &as_is)),
        ("switched", with(switched, Thinking::Low, &as_is)),
        ("sampled", with(plain, Thinking::Off, &sampled)),
        ("one_wire", with(conversation(), Thinking::Off, &as_is)),
        ("full", with(full(), Thinking::Off, &as_is)),
        ("blind", with(full(), Thinking::Off, &blind)),
    ]
}

fn acceptable(wire: Wire, body: &Value) -> Result<(), String> {
    match wire {
        Wire::Messages => encode::acceptable(body),
        Wire::Completions => encode_completions::acceptable(body),
        Wire::Responses => encode_responses::acceptable(body),
        Wire::Contents => encode_contents::acceptable(body),
        Wire::Subscription => encode_codex::acceptable(body),
        Wire::Chunks => encode_mistral::acceptable(body),
        Wire::Converse => encode_converse::acceptable(body),
        Wire::Gateway => encode_pi_messages::acceptable(body),
        Wire::Envelope => code_assist::acceptable(body),
    }
}

#[test]
fn each_conversation_has_its_request_on_each_wire() {
    for wire in WIRES {
        for (name, request) in table(wire) {
            let body = body(&request);
            assert_eq!(acceptable(wire, &body), Ok(()), "{wire:?} {name}: {body}");
            let wire = match wire {
                Wire::Messages | Wire::Completions | Wire::Responses => api(wire).rsplit('-').next().unwrap(),
                Wire::Contents => "contents",
                Wire::Subscription => "subscription",
                Wire::Chunks => "chunks",
                Wire::Converse => "converse",
                Wire::Gateway => "gateway",
                Wire::Envelope => "envelope",
            };
            insta::with_settings!({ snapshot_path => "../snapshots", prepend_module_to_snapshot => false, omit_expression => true }, {
                insta::assert_snapshot!(format!("{wire}_{name}"), serde_json::to_string_pretty(&body).unwrap());
            });
        }
    }
}

/// What one model thought is not shown to another, and what was said is, whichever way a session changes.
#[test]
fn a_conversation_can_change_its_wire() {
    for wire in WIRES {
        let (_, request) = table(wire).into_iter().find(|(name, _)| *name == "switched").unwrap();
        let text = body(&request).to_string();
        let ours = if has_items(wire) { "sealed==" } else { "Ours." };
        assert!(!text.contains("Theirs.") && text.contains(ours) && text.contains("I look."), "{text}");
        let (_, request) = table(wire).into_iter().find(|(name, _)| *name == "full").unwrap();
        let text = body(&request).to_string();
        let foreign: &[&str] = match wire {
            Wire::Messages => &["Hm."],
            Wire::Completions => &["proof=="],
            Wire::Responses
            | Wire::Contents
            | Wire::Subscription
            | Wire::Chunks
            | Wire::Converse
            | Wire::Gateway
            | Wire::Envelope => &["Hm.", "proof=="],
        };
        assert!(foreign.iter().all(|foreign| !text.contains(foreign)), "{foreign:?}");
        for said in ["Looking.", "I will", "No result provided"] {
            assert!(text.contains(said), "{said}");
        }
    }
}

/// Between any two models: the second one sees what was said and done, and none of the first one's signatures; back
/// with the first one its own are sent again.
#[test]
fn signatures_go_to_the_model_that_made_them() {
    for (first, second) in WIRES.into_iter().flat_map(|first| WIRES.map(|second| (first, second))) {
        let signed = TextContent { text: "I look.".into(), text_signature: Some("msg_of_first".into()) };
        let mut theirs = call("call_1|fc_1", "read", r#"{"path":"a"}"#);
        if let Content::ToolCall(call) = &mut theirs {
            call.thought_signature = Some("thought_of_first".into());
        }
        let content = vec![thinking("Theirs.", Some(proof(first)), None), Content::Text(signed), theirs];
        let messages = vec![
            user(vec![Content::text("Begin")]),
            own(first, content),
            result("call_1|fc_1", vec![Content::text("the result")], false),
            user(vec![Content::text("Go on")]),
        ];
        let sent = |to: Wire, id: Option<&str>| {
            let mut model = model(to);
            if let Some(id) = id {
                model.id = id.into();
            }
            let body = body(&ModelRequest { thinking: Thinking::High, ..request(model, messages.clone()) });
            assert_eq!(acceptable(to, &body), Ok(()), "{first:?} to {to:?}: {body}");
            let text = body.to_string();
            for said in ["Begin", "I look.", r#"{\"path\":\"a\"}"#, "the result", "Go on"] {
                assert!(text.contains(said) || text.contains(&said.replace('\\', "")), "{said}: {text}");
            }
            text
        };
        let mark = if has_items(first) { "sealed==" } else { "Theirs." };
        let elsewhere = if first == second { sent(second, Some("another")) } else { sent(second, None) };
        for secret in [mark, "proof==", "sealed==", "Theirs.", "msg_of_first", "thought_of_first"] {
            assert!(!elsewhere.contains(secret), "{first:?} to {second:?}: {secret} in {elsewhere}");
        }
        assert!(sent(first, None).contains(mark), "{first:?}");
    }
}

#[test]
fn signatures_reach_only_the_model_that_gave_them() {
    let proofs = ["Secret thought", "dGhvdWdodA==", "dGV4dA==", "Y2FsbA=="];
    for from in WIRES {
        let answer = own(
            from,
            vec![
                thinking(proofs[0], Some(proofs[1]), None),
                encode_contents::signed_text("Said.", proofs[2]),
                encode_contents::signed("a", "read", "{}", proofs[3]),
            ],
        );
        let say = |text: &str| user(vec![Content::text(text)]);
        let messages =
            vec![say("Begin"), answer, result("a", vec![Content::text("Read.")], false), say("Go on")];
        for to in WIRES {
            let body = body(&request(model(to), messages.clone()));
            assert_eq!(acceptable(to, &body), Ok(()), "{from:?} {to:?}: {body}");
            let text = body.to_string();
            assert!(["Begin", "Said.", "Read.", "Go on"].iter().all(|said| text.contains(said)), "{text}");
            if from != to {
                assert!(proofs.iter().all(|proof| !text.contains(proof)), "{from:?} {to:?}: {text}");
            } else if matches!(to, Wire::Contents | Wire::Envelope) {
                assert!(proofs.iter().all(|proof| text.contains(proof)), "{text}");
            }
        }
    }
}

/// A blind model is told of images, once for each run of them.
#[test]
fn a_blind_model_is_told_of_images() {
    for wire in WIRES {
        let (_, request) = table(wire).into_iter().find(|(name, _)| *name == "blind").unwrap();
        let text = body(&request).to_string();
        let images = ["image_url", "base64", "inlineData", "bytes"];
        assert!(images.iter().all(|word| !text.contains(word)), "{text}");
        assert_eq!(text.matches("(image omitted: model does not").count(), 2, "{text}");
    }
}
