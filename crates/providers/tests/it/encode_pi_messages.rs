//! What is sent on the wire of a session's messages, and what a gateway checks.

use std::collections::HashSet;
use std::sync::Arc;

use quipu_protocol::{AssistantMessage, Content, Json, Message, Model, ModelRequest, Thinking};
use quipu_providers::{CacheRetention, CallOptions, Settings};
use serde_json::{Value, json};

use crate::encode::{self, assistant, body, call, encode, image, request, result, thinking, user};
use crate::wires;

/// A model of this wire.
pub(crate) fn model() -> Model {
    Model { id: "gate-1".into(), provider: "testing".into(), api: "pi-messages".into(), ..encode::model() }
}

/// An answer of [`model`].
pub(crate) fn own(content: Vec<Content>) -> Message {
    let Message::Assistant(answer) = assistant("gate-1", content) else { unreachable!() };
    Message::Assistant(AssistantMessage { provider: "testing".into(), api: "pi-messages".into(), ..answer })
}

fn say(text: &str) -> Message {
    user(vec![Content::text(text)])
}

#[test]
fn gateway_body_has_model_options_and_context() {
    let mut request = ModelRequest { thinking: Thinking::High, ..request(model(), vec![say("Hi")]) };
    let first = body(&request);
    assert_eq!(first["model"], "gate-1");
    assert_eq!(first["options"], json!({"reasoning": "high", "cacheRetention": "short", "sessionId": "s"}));
    let context = &first["context"];
    assert_eq!(context["systemPrompt"], "You help.");
    assert_eq!(context["tools"][0]["name"], "read");
    let said = json!({"role": "user", "content": [{"type": "text", "text": "Hi"}], "timestamp": 0});
    assert_eq!(context["messages"], json!([said]));
    (request.thinking, request.max_tokens) = (Thinking::Off, Some(100));
    (request.system, request.tools) = (" ".into(), [].into());
    let second = body(&request);
    assert_eq!(second["options"], json!({"maxTokens": 100, "cacheRetention": "short", "sessionId": "s"}));
    assert_eq!(second["context"], json!({"messages": [said]}));
}

#[test]
fn gateway_is_told_of_caches_and_settings() {
    let options = |cache: CacheRetention, params: &str| {
        let mut request = request(model(), vec![say("Hi")]);
        Arc::make_mut(&mut request.model).sampling_params = Json::parse(params).ok();
        let options = CallOptions { cache, ..CallOptions::default() };
        let none = quipu_providers::Credentials::none();
        let provider = wires::provider(&request.model, none, &[], options).unwrap();
        let body: Value = serde_json::from_slice(&provider.encode(&request).unwrap()).unwrap();
        body["options"].clone()
    };
    assert_eq!(options(CacheRetention::Off, "{}"), json!({"cacheRetention": "none"}));
    assert_eq!(options(CacheRetention::Long, "{}"), json!({"cacheRetention": "long", "sessionId": "s"}));
    let own = r#"{"temperature":0.5,"sessionId":"x","cacheRetention":"long"}"#;
    assert_eq!(
        options(CacheRetention::Short, own),
        json!({"temperature": 0.5, "sessionId": "x", "cacheRetention": "long"})
    );
}

/// What the gateway gave goes back unchanged, ids too; of another model only what it said and did.
#[test]
fn gateway_gets_its_own_blocks_back() {
    let long = format!("call_1|fc_{}", "a".repeat(90));
    let content = || {
        vec![
            thinking("Hm.", Some("proof=="), None),
            thinking("", Some("sealed=="), Some(true)),
            Content::text("So."),
            call(&long, "read", r#"{"path":"a"}"#),
        ]
    };
    let sent = |answer: Message| {
        let messages = vec![say("Hi"), answer, result(&long, vec![Content::text("one"), image()], true)];
        let body = body(&request(model(), messages));
        assert_eq!(acceptable(&body), Ok(()), "{body}");
        body["context"]["messages"].clone()
    };
    let ours = sent(own(content()));
    assert_eq!(
        ours[1]["content"][0],
        json!({"type": "thinking", "thinking": "Hm.", "thinkingSignature": "proof=="})
    );
    assert_eq!(ours[1]["content"][1]["redacted"], true);
    assert_eq!(
        (&ours[1]["content"][3]["id"], &ours[1]["content"][3]["thoughtSignature"]),
        (&json!(long), &json!("gone"))
    );
    assert_eq!((&ours[2]["toolCallId"], &ours[2]["isError"]), (&json!(long), &json!(true)));
    assert_eq!(ours[2]["content"][1], json!({"type": "image", "data": "aGk=", "mimeType": "image/png"}));
    let theirs = sent(assistant("other", content()));
    assert_eq!(theirs[1]["content"][0], json!({"type": "text", "text": "So."}));
    assert_eq!(theirs[1]["content"][1].get("thoughtSignature"), None);
    assert_eq!(theirs[1]["model"], "other");
}

/// Models of the catalogue with this API can be called once there is a key.
#[test]
fn catalogue_models_of_radius_can_be_called() {
    let home = tempfile::tempdir().unwrap();
    let key = |name: &str| (name == "RADIUS_API_KEY").then(|| "key-0123456789".to_owned());
    let (settings, _) = Settings::load(home.path(), &key);
    assert_eq!(settings.default_model().map(|model| model.api.clone()).as_deref(), Some("pi-messages"));
    for model in settings.models_of("radius") {
        assert!(settings.is_available(model) && settings.provider_for(model, None).is_ok(), "{}", model.id);
    }
}

/// A later request repeats an earlier one up to the end of its messages.
#[test]
fn consecutive_gateway_bodies_share_their_beginning() {
    let all = crate::encode_completions::conversation();
    let before = encode(&request(model(), all[..3].to_vec()));
    let after = encode(&request(model(), all));
    let shared = before.iter().zip(&after).take_while(|(a, b)| a == b).count();
    assert_eq!(std::str::from_utf8(&before[shared..]), Ok("]}}"));
}

/// What a gateway checks of a conversation.
pub(crate) fn acceptable(body: &Value) -> Result<(), String> {
    let mut ids = HashSet::new();
    let mut open: Vec<String> = Vec::new();
    let says = |value: &Value| value.as_str().is_some_and(|text| !text.trim().is_empty());
    for message in body["context"]["messages"].as_array().unwrap() {
        // It can read them as messages of a session.
        let read: Result<Message, _> = serde_json::from_value(message.clone());
        if !matches!(read, Ok(Message::User(_) | Message::Assistant(_) | Message::ToolResult(_))) {
            return Err(format!("no message: {message}"));
        }
        let role = message["role"].as_str().unwrap();
        if role != "toolResult" && !open.is_empty() {
            return Err(format!("{open:?} are not answered"));
        }
        let blocks = message["content"].as_array().unwrap();
        if blocks.is_empty() {
            return Err(format!("nothing in {message}"));
        }
        for block in blocks {
            let fits = match (role, block["type"].as_str().unwrap()) {
                (_, "text") => says(&block["text"]),
                ("user" | "toolResult", "image") => says(&block["data"]),
                ("assistant", "thinking") => true,
                ("assistant", "toolCall") => {
                    let id = block["id"].as_str().unwrap();
                    if !ids.insert(id.to_owned()) {
                        return Err(format!("the id {id} twice"));
                    }
                    open.push(id.to_owned());
                    says(&block["id"]) && says(&block["name"]) && block["arguments"].is_object()
                }
                _ => false,
            };
            if !fits {
                return Err(format!("a bad block {block}"));
            }
        }
        if role == "toolResult" {
            let before = open.len();
            open.retain(|known| message["toolCallId"] != known.as_str());
            if open.len() + 1 != before {
                return Err(format!("a result of no call {message}"));
            }
        }
    }
    if open.is_empty() { Ok(()) } else { Err(format!("{open:?} are not answered at the end")) }
}
