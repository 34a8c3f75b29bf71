//! What is sent on the third wire, and what its server checks.

use std::collections::HashSet;

use quipu_protocol::{Content, ImageContent, Json, Message, Model, TextContent, Thinking};
use quipu_providers::{CallOptions, ThinkingBudgets};
use serde_json::{Value, json};

use crate::encode::{self, assistant, body, call, encode, image, request, result, thinking, user};
use crate::wires;

/// A model that takes images in results and wants signatures.
pub(crate) fn model() -> Model {
    Model {
        id: "gemini-3-test".into(),
        provider: "google".into(),
        api: "google-generative-ai".into(),
        ..encode::model()
    }
}

/// One that does neither.
pub(crate) fn old_model() -> Model {
    Model { id: "gemini-2.5-flash".into(), ..model() }
}

/// An answer of [`model`].
pub(crate) fn own(content: Vec<Content>) -> Message {
    of("gemini-3-test", content)
}

fn of(id: &str, content: Vec<Content>) -> Message {
    let mut message = assistant(id, content);
    if let Message::Assistant(answer) = &mut message {
        answer.provider = "google".into();
        answer.api = "google-generative-ai".into();
    }
    message
}

/// A call with a signature that can be the server's.
pub(crate) fn signed(id: &str, name: &str, arguments: &str, signature: &str) -> Content {
    let mut content = call(id, name, arguments);
    if let Content::ToolCall(call) = &mut content {
        call.thought_signature = Some(signature.into());
    }
    content
}

pub(crate) fn signed_text(text: &str, signature: &str) -> Content {
    Content::Text(TextContent { text: text.into(), text_signature: Some(signature.into()) })
}

/// The parts of each turn of a request for `model`.
fn turns(model: Model, messages: Vec<Message>) -> Vec<Vec<Value>> {
    let body = body(&request(model, messages));
    assert_eq!(acceptable(&body), Ok(()), "{body}");
    let parts = |turn: &Value| turn["parts"].as_array().unwrap().clone();
    body["contents"].as_array().unwrap().iter().map(parts).collect()
}

fn say(text: &str) -> Message {
    user(vec![Content::text(text)])
}

#[test]
fn roles_take_turns_and_the_user_begins() {
    let turns = turns(
        model(),
        vec![
            own(vec![Content::text("Before.")]),
            own(vec![Content::text("More.")]),
            say("One"),
            user(vec![Content::text(" ")]),
            say("two"),
            own(vec![thinking("only thoughts", None, None)]),
            say("three"),
            own(vec![call("a", "read", "{}"), call("b", "2-go.x", "{}")]),
            result("b", vec![Content::text("second")], false),
            say("four"),
        ],
    );
    let shown = "(The beginning of this conversation is not shown.)";
    assert_eq!(turns[0], [json!({ "text": shown })]);
    assert_eq!(turns[1], [json!({ "text": "Before." }), json!({ "text": "More." })]);
    assert_eq!(turns[2], ["One", "two", "three"].map(|text| json!({ "text": text })));
    assert_eq!(turns[3][1]["functionCall"]["name"], "_2-go.x");
    // In the order of the calls, and then the user's words.
    let answered = |name: &str, id: &str, response: Value| json!({ "functionResponse": { "id": id, "name": name, "response": response } });
    assert_eq!(
        turns[4],
        [
            answered("read", "a", json!({ "error": "No result provided" })),
            answered("_2-go.x", "b", json!({ "output": "second" })),
            json!({ "text": "four" }),
        ]
    );
}

#[test]
fn images_of_results_stand_where_the_model_takes_them() {
    let gif = Content::Image(ImageContent { data: "aGk=".into(), mime_type: "image/gif".into() });
    let messages = vec![
        say("Look"),
        own(vec![call("a", "read", "{}"), call("b", "read", "{}")]),
        result("a", vec![image()], false),
        result("b", vec![Content::text("bad"), image(), gif], true),
    ];
    let data = json!({ "inlineData": { "mimeType": "image/png", "data": "aGk=" } });
    let gone = "(image omitted: this API does not accept GIF images)";
    let new = &turns(model(), messages.clone())[2];
    let [first, second] = new.as_slice() else { panic!("{new:?}") };
    let response = &first["functionResponse"];
    assert_eq!(response["response"], json!({ "output": "(see attached image)" }));
    assert_eq!(response["parts"], json!([data]));
    let response = &second["functionResponse"];
    assert_eq!(response["response"], json!({ "error": format!("bad\n{gone}") }));
    assert_eq!(response["parts"], json!([data]));
    let old = &turns(old_model(), messages)[2];
    assert_eq!(old.len(), 5);
    assert_eq!(old[0]["functionResponse"].as_object().unwrap().len(), 2, "{old:?}");
    assert_eq!(old[2], json!({ "text": "Attached image(s) from tool result:" }));
    assert_eq!(old[3..], [data.clone(), data]);
}

#[test]
fn signatures_go_back_to_the_model_that_gave_them() {
    let content = || {
        vec![
            thinking("Hm.", Some("AAAA"), None),
            thinking("", Some("BBBB"), None),
            thinking("", None, None),
            signed_text("Text", "CC=="),
            signed_text("", "DDDD"),
            signed_text("", "no signature"),
            signed("a", "read", "{}", "EEE="),
            signed("b", "read", "{}", "a signature?"),
        ]
    };
    let parts = |model: Model, author: &str| turns(model, vec![say("Hi"), of(author, content())])[1].clone();
    let plain = |part: &Value| {
        let mut part = part.clone();
        if let Some(call) = part.as_object_mut().unwrap().remove("functionCall") {
            part["id"] = call["id"].clone();
        }
        part
    };
    let own: Vec<Value> = parts(model(), "gemini-3-test").iter().map(plain).collect();
    assert_eq!(
        json!(own),
        json!([
            { "text": "Hm.", "thought": true, "thoughtSignature": "AAAA" },
            { "text": "", "thought": true, "thoughtSignature": "BBBB" },
            { "text": "Text", "thoughtSignature": "CC==" },
            { "text": "", "thoughtSignature": "DDDD" },
            { "thoughtSignature": "EEE=", "id": "a" },
            { "id": "b" },
        ])
    );
    // Of another model: no thinking, no proof, and where a call needs one a word that stands for it.
    let other: Vec<Value> = parts(model(), "gemini-3-other").iter().map(plain).collect();
    let stand_in = "skip_thought_signature_validator";
    assert_eq!(
        json!(other),
        json!([{ "text": "Text" }, { "thoughtSignature": stand_in, "id": "a" }, { "id": "b" }])
    );
    let old: Vec<Value> = parts(old_model(), "gemini-3-other").iter().map(plain).collect();
    assert_eq!(json!(old), json!([{ "text": "Text" }, { "id": null }, { "id": null }]));
    let old: Vec<Value> = parts(old_model(), "gemini-2.5-flash").iter().map(plain).collect();
    assert_eq!(old.len(), 6);
    assert_eq!(old[4], json!({ "thoughtSignature": "EEE=", "id": null }));
}

#[test]
fn schemas_of_tools_are_said_in_the_keywords_that_are_taken() {
    let schema = r##"{"$schema":"x","type":"object","properties":{"a":{"anyOf":[{"const":1},{"$ref":"#/$defs/b"}]}},
        "$defs":{"b":{"type":["string","null"],"pattern":"^a"}},"additionalProperties":false}"##;
    let mut asked = request(model(), vec![say("Hi")]);
    let mut tools = asked.tools.to_vec();
    tools[0].parameters = Json::parse(schema).unwrap();
    asked.tools = tools.into();
    let body = body(&asked);
    let declared = &body["tools"][0]["functionDeclarations"];
    let said = json!({ "type": "object", "properties": {
        "a": { "anyOf": [{ "enum": [1] }, { "type": "string" }] } } });
    assert_eq!(declared[0]["parametersJsonSchema"], said);
    assert_eq!(
        declared[1]["parametersJsonSchema"],
        asked.tools[1].parameters.value(),
        "this one is taken as it is"
    );
    assert_eq!(declared[0]["parameters"], Value::Null);
    assert_eq!(declared[0]["description"], "The read tool.");
    assert_eq!(declared.as_array().unwrap().len(), 2);
    assert_eq!(body["systemInstruction"], json!({ "parts": [{ "text": "You help." }] }));
    for member in ["model", "stream", "messages"] {
        assert_eq!(body[member], Value::Null);
    }
}

#[test]
fn generation_config_has_limits_thinking_and_sampling() {
    let check = |model: Model, level: Thinking, max_tokens: Option<u64>, expect: Value| {
        let mut request = request(model, vec![say("Hi")]);
        (request.thinking, request.max_tokens) = (level, max_tokens);
        assert_eq!(body(&request)["generationConfig"], expect);
    };
    let levels = |level: &str| json!({ "includeThoughts": true, "thinkingLevel": level });
    let budget = |budget: i64| json!({ "includeThoughts": true, "thinkingBudget": budget });
    let with =
        |tokens: u64, thinking: Value| json!({ "maxOutputTokens": tokens, "thinkingConfig": thinking });
    let (off, low, high) = (Thinking::Off, Thinking::Low, Thinking::High);
    check(model(), off, None, with(64_000, json!({ "thinkingLevel": "MINIMAL" })));
    check(model(), low, Some(100), with(2_148, levels("LOW")));
    check(model(), high, None, with(64_000, levels("HIGH")));
    check(old_model(), off, Some(100), with(100, json!({ "thinkingBudget": 0 })));
    check(old_model(), high, None, with(64_000, budget(24_576)));
    check(old_model(), low, Some(100), with(2_148, budget(1_124)));
    let plain = Model { reasoning: false, ..old_model() };
    check(plain.clone(), high, Some(7), json!({ "maxOutputTokens": 7 }));
    let params = r#"{"temperature":0.5,"topK":3,"maxOutputTokens":9,"thinkingConfig":{"thinkingBudget":5}}"#;
    let sampled = Model { sampling_params: Json::parse(params).ok(), ..old_model() };
    check(sampled, high, None, serde_json::from_str(params).unwrap());
    let odd = Model { sampling_params: Json::parse("[1]").ok(), ..plain };
    check(odd, off, None, json!({ "maxOutputTokens": 64_000 }));
    let budgets = ThinkingBudgets { low: 3_000, ..ThinkingBudgets::default() };
    let options = CallOptions { budgets, ..CallOptions::default() };
    let model = old_model();
    let provider = wires::provider(&model, quipu_providers::Credentials::none(), &[], options).unwrap();
    let mut request = request(model, vec![say("Hi")]);
    request.thinking = low;
    let body: Value = serde_json::from_slice(&provider.encode(&request).unwrap()).unwrap();
    assert_eq!(body["generationConfig"], with(64_000, budget(3_000)));
}

/// A later request repeats an earlier one up to the end of its contents.
#[test]
fn consecutive_bodies_share_their_beginning() {
    let all = encode::conversation();
    let before = encode(&request(old_model(), all[..3].to_vec()));
    let after = encode(&request(old_model(), all));
    let shared = before.iter().zip(&after).take_while(|(a, b)| a == b).count();
    let end = r#"],"generationConfig":{"maxOutputTokens":64000,"thinkingConfig":{"thinkingBudget":0}}}"#;
    assert_eq!(std::str::from_utf8(&before[shared..]), Ok(end));
}

/// What the server checks of a conversation.
pub(crate) fn acceptable(body: &Value) -> Result<(), String> {
    let name = |value: &Value| {
        let text = value.as_str().unwrap();
        let ok = |c: char| c.is_ascii_alphanumeric() || "_-.:".contains(c);
        let begins = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        begins && text.len() <= 64 && text.chars().all(ok)
    };
    let id = |value: &Value| value.as_str().is_none_or(|id| !id.is_empty() && id.len() <= 64);
    let mut ids = HashSet::new();
    let mut open: Vec<(Value, Value)> = Vec::new();
    for (place, content) in body["contents"].as_array().unwrap().iter().enumerate() {
        let is_user = place % 2 == 0;
        if content["role"] != if is_user { "user" } else { "model" } {
            return Err(format!("a turn out of turn {content}"));
        }
        let parts = content["parts"].as_array().unwrap();
        if parts.is_empty() {
            return Err("a turn without parts".into());
        }
        let mut answered = Vec::new();
        for (at, part) in parts.iter().enumerate() {
            let signature = &part["thoughtSignature"];
            if let Some(text) = part["text"].as_str() {
                if text.trim().is_empty() && (signature.is_null() || is_user) {
                    return Err("empty text".into());
                }
            } else if let Some(call) = part.get("functionCall") {
                if is_user || !name(&call["name"]) || !id(&call["id"]) || !call["args"].is_object() {
                    return Err(format!("a bad call {part}"));
                }
                if call["id"].is_string() && !ids.insert(call["id"].clone()) {
                    return Err(format!("an id twice {part}"));
                }
                open.push((call["id"].clone(), call["name"].clone()));
            } else if let Some(response) = part.get("functionResponse") {
                if at != answered.len() || response["response"].as_object().unwrap().len() != 1 {
                    return Err(format!("a bad result {part}"));
                }
                answered.push((response["id"].clone(), response["name"].clone()));
            } else if part.get("toolCall").or_else(|| part.get("toolResponse")).is_some() {
                if is_user {
                    return Err(format!("a tool of the server on the user's side {part}"));
                }
            } else if !is_user || part["inlineData"]["data"].as_str().is_none_or(str::is_empty) {
                return Err(format!("an unknown part {part}"));
            }
            if is_user && !signature.is_null() {
                return Err(format!("a signature of the user {part}"));
            }
        }
        if is_user && answered != open {
            return Err(format!("{open:?} is answered by {answered:?}"));
        }
        if is_user {
            open.clear();
        }
    }
    if open.is_empty() { Ok(()) } else { Err(format!("{open:?} are not answered at the end")) }
}
