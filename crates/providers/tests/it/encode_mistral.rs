//! What is sent on the wire of chunks, and what its server checks.

use std::collections::HashSet;
use std::sync::Arc;

use quipu_protocol::{AssistantMessage, Content, Json, Message, Model, ModelRequest, Thinking};
use quipu_providers::{CacheRetention, CallOptions, Settings};
use serde_json::{Value, json};

use crate::encode::{self, assistant, body, call, encode, image, request, result, thinking, user};
use crate::wires;

/// A model of this wire.
pub(crate) fn model() -> Model {
    Model {
        id: "chunks-1".into(),
        provider: "testing".into(),
        api: "mistral-conversations".into(),
        ..encode::model()
    }
}

/// An answer of [`model`].
pub(crate) fn own(content: Vec<Content>) -> Message {
    let Message::Assistant(answer) = assistant("chunks-1", content) else { unreachable!() };
    let api = "mistral-conversations".into();
    Message::Assistant(AssistantMessage { provider: "testing".into(), api, ..answer })
}

fn say(text: &str) -> Message {
    user(vec![Content::text(text)])
}

/// The messages of a request, without the system prompt.
fn messages(messages: Vec<Message>) -> Vec<Value> {
    let body = body(&request(model(), messages));
    assert_eq!(acceptable(&body), Ok(()), "{body}");
    body["messages"].as_array().unwrap()[1..].to_vec()
}

#[test]
fn mistral_call_ids_get_nine_characters() {
    let ids = ["aB3dE6gH9", "call_1|fc_2", "call_1|fc_2", "aB3dE6gH9", "", "ü"];
    let said = |ids: &[&str]| {
        let calls = ids.iter().map(|id| call(id, "read", "{}")).collect();
        messages(vec![say("Hi"), assistant("other", calls)])
    };
    let all = said(&ids);
    let calls = all[1]["tool_calls"].as_array().unwrap();
    let made: Vec<&str> = calls.iter().map(|call| call["id"].as_str().unwrap()).collect();
    assert_eq!(made[0], "aB3dE6gH9");
    assert_eq!(made.iter().collect::<HashSet<_>>().len(), ids.len());
    // Each id is the same in every request.
    assert_eq!(said(&ids[..2])[1]["tool_calls"][1]["id"], made[1]);
    let results: Vec<&str> = all[2..].iter().map(|result| result["tool_call_id"].as_str().unwrap()).collect();
    assert_eq!(results, made);
}

#[test]
fn mistral_thinking_returns_as_a_chunk() {
    let answer = own(vec![
        thinking("Hm.", Some("reasoning_content"), None),
        thinking(" ", None, None),
        thinking("secret", Some("x"), Some(true)),
        Content::text("So."),
    ]);
    let plain = own(vec![Content::text("Plain.")]);
    let calls = own(vec![thinking("First.", None, None), call("aaaaaaaaa", "read", "{}")]);
    let alone = own(vec![thinking("only thoughts", None, None)]);
    let got = messages(vec![say("Hi"), answer, plain, calls, alone]);
    let thought = |text: &str| json!({"type": "thinking", "thinking": [{"type": "text", "text": text}]});
    assert_eq!(got[1]["content"], json!([thought("Hm."), {"type": "text", "text": "So."}]));
    assert_eq!(got[2]["content"], "Plain.");
    assert_eq!(got[3]["content"], json!([thought("First.")]));
    assert_eq!((&got[4]["role"], got.len()), (&json!("tool"), 5));
}

#[test]
fn mistral_images_are_chunks_also_in_results() {
    let got = messages(vec![
        user(vec![Content::text("See"), image()]),
        own(vec![call("aaaaaaaaa", "read", "{}"), call("bbbbbbbbb", "read", "{}")]),
        result("aaaaaaaaa", vec![Content::text("one"), image()], false),
        result("bbbbbbbbb", vec![], true),
    ]);
    let picture = json!({"type": "image_url", "image_url": "data:image/png;base64,aGk="});
    let text = |text: &str| json!({"type": "text", "text": text});
    assert_eq!(got[0]["content"], json!([text("See"), picture]));
    assert_eq!(got[1].get("content"), None);
    assert_eq!(got[2]["content"], json!([text("one"), picture]));
    assert_eq!((&got[3]["content"], &got[3]["name"]), (&json!("(no tool output)"), &json!("read")));
}

/// The server refuses the user's words right behind a result, and an answer at the end that it is not to continue.
#[test]
fn mistral_roles_follow_each_other_as_they_must() {
    let call = || own(vec![call("aaaaaaaaa", "read", "{}")]);
    let roles = |all: Vec<Message>| -> Vec<String> {
        let role = |message: &Value| {
            format!(
                "{}{}",
                message["role"].as_str().unwrap(),
                if message["prefix"] == true { "+" } else { "" }
            )
        };
        messages(all).iter().map(role).collect()
    };
    let ok = || result("aaaaaaaaa", vec![Content::text("ok")], false);
    assert_eq!(
        roles(vec![say("Hi"), call(), ok(), say("Go on")]),
        ["user", "assistant", "tool", "assistant", "user"]
    );
    assert_eq!(
        roles(vec![say("Hi"), call(), say("Never mind")]),
        ["user", "assistant", "tool", "assistant", "user"]
    );
    assert_eq!(roles(vec![say("Hi"), own(vec![Content::text("Well")])]), ["user", "assistant+"]);
    assert_eq!(
        roles(vec![say("Hi"), own(vec![Content::text("Well")]), say("?")]),
        ["user", "assistant", "user"]
    );
    assert_eq!(roles(vec![say("Hi"), call(), ok()]), ["user", "assistant", "tool"]);
}

#[test]
fn mistral_effort_is_the_word_of_the_catalogue() {
    let check = |reasoning: bool, map: &str, level: Thinking, expect: Value| {
        let mut model = Model { reasoning, ..model() };
        model.thinking_level_map = Json::parse(map).ok();
        let body = body(&ModelRequest { thinking: level, ..request(model, vec![say("Hi")]) });
        assert_eq!(body["reasoning_effort"], expect, "{map} {level:?}");
        assert_eq!(body.get("prompt_mode"), None);
    };
    let two =
        r#"{"off":"none","minimal":null,"low":null,"medium":null,"high":"high","xhigh":null,"max":null}"#;
    check(true, two, Thinking::Off, json!("none"));
    check(true, two, Thinking::Low, json!("high"));
    check(true, two, Thinking::High, json!("high"));
    let three = r#"{"off":null,"minimal":null,"low":"low","medium":"medium","high":"high"}"#;
    check(true, three, Thinking::Off, json!("low"));
    check(true, three, Thinking::Medium, json!("medium"));
    check(true, "{}", Thinking::Low, json!("high"));
    check(true, "{}", Thinking::Off, json!(null));
    check(false, two, Thinking::High, json!(null));
}

#[test]
fn mistral_settings_of_the_model_win() {
    let with = |params: &str| {
        let mut request = ModelRequest { thinking: Thinking::High, ..request(model(), vec![say("Hi")]) };
        Arc::make_mut(&mut request.model).sampling_params = Json::parse(params).ok();
        body(&request)
    };
    let plain = with("{}");
    let members = ["stream", "max_tokens", "prompt_cache_key", "reasoning_effort"];
    assert_eq!(json!(members.map(|name| &plain[name])), json!([true, 64_000, "s", "high"]));
    assert_eq!(plain["tools"][0]["function"]["strict"], false);
    let all = r#"{"random_seed":7,"safe_prompt":true,"parallel_tool_calls":false,"prompt_mode":"reasoning","max_tokens":9,
        "reasoning_effort":"none","prompt_cache_key":"k","model":"x","stream":false,"tools":[],"messages":[]}"#;
    let body = with(all);
    let sent = [
        "random_seed",
        "safe_prompt",
        "parallel_tool_calls",
        "prompt_mode",
        "max_tokens",
        "reasoning_effort",
    ];
    assert_eq!(json!(sent.map(|name| &body[name])), json!([7, true, false, "reasoning", 9, "none"]));
    assert_eq!(body["prompt_cache_key"], "k");
    for fixed in ["model", "messages", "stream", "tools"] {
        assert_eq!(body[fixed], plain[fixed], "{fixed}");
    }
}

#[test]
fn mistral_cache_is_named_unless_it_is_off() {
    for (cache, named) in
        [(CacheRetention::Short, true), (CacheRetention::Long, true), (CacheRetention::Off, false)]
    {
        let options = CallOptions { cache, ..CallOptions::default() };
        let request = ModelRequest { session: Some("é".repeat(70)), ..request(model(), vec![say("Hi")]) };
        let provider =
            wires::provider(&request.model, quipu_providers::Credentials::none(), &[], options).unwrap();
        let body: Value = serde_json::from_slice(&provider.encode(&request).unwrap()).unwrap();
        assert_eq!(body.get("prompt_cache_key").cloned(), named.then(|| json!("é".repeat(64))));
    }
}

/// Models of the catalogue with this API can be called once there is a key.
#[test]
fn catalogue_models_of_mistral_can_be_called() {
    let home = tempfile::tempdir().unwrap();
    let key = |name: &str| (name == "MISTRAL_API_KEY").then(|| "key-0123456789".to_owned());
    let (settings, warnings) = Settings::load(home.path(), &key);
    assert!(warnings.is_empty(), "{warnings:?}");
    let model = settings.default_model().unwrap();
    assert_eq!((model.provider.as_str(), model.api.as_str()), ("mistral", "mistral-conversations"));
    for model in settings.models_of("mistral") {
        assert!(settings.is_available(model) && settings.provider_for(model, None).is_ok(), "{}", model.id);
    }
}

/// A later request repeats an earlier one up to the end of its messages.
#[test]
fn consecutive_mistral_bodies_share_their_beginning() {
    let all = crate::encode_completions::conversation();
    let before = encode(&request(model(), all[..3].to_vec()));
    let after = encode(&request(model(), all));
    let shared = before.iter().zip(&after).take_while(|(a, b)| a == b).count();
    assert_eq!(std::str::from_utf8(&before[shared..]), Ok(r#"],"max_tokens":64000}"#));
}

/// What the server checks of a conversation.
pub(crate) fn acceptable(body: &Value) -> Result<(), String> {
    let mut ids = HashSet::new();
    let mut open: Vec<String> = Vec::new();
    let is_id = |text: &str| text.len() == 9 && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let is_name = |text: &str| {
        let ok = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        !text.is_empty() && text.len() <= 64 && text.chars().all(ok)
    };
    let says = |value: &Value| value.as_str().is_some_and(|text| !text.trim().is_empty());
    let chunks = |value: &Value, kinds: &[&str]| {
        value.as_array().is_some_and(|chunks| {
            !chunks.is_empty()
                && chunks.iter().all(|chunk| {
                    let kind = chunk["type"].as_str().unwrap_or_default();
                    kinds.contains(&kind)
                        && match kind {
                            "text" => says(&chunk["text"]),
                            "thinking" => says(&chunk["thinking"][0]["text"]),
                            _ => chunk["image_url"].as_str().unwrap().starts_with("data:image/"),
                        }
                })
        })
    };
    let all = body["messages"].as_array().unwrap();
    let mut before = "";
    for (place, message) in all.iter().enumerate() {
        let content = &message["content"];
        let role = message["role"].as_str().unwrap();
        if role != "tool" && !open.is_empty() {
            return Err(format!("{open:?} are not answered"));
        }
        if (before, role) == ("tool", "user") {
            return Err("the user right behind a result".into());
        }
        if message["prefix"] == true && place + 1 != all.len() {
            return Err("a prefix that is not at the end".into());
        }
        before = role;
        let fits = match role {
            "system" => place == 0 && says(content),
            "tool" => {
                let id = message["tool_call_id"].as_str().unwrap();
                let count = open.len();
                open.retain(|known| known != id);
                let name = message["name"].as_str().is_none_or(is_name);
                open.len() + 1 == count && name && (says(content) || chunks(content, &["text", "image_url"]))
            }
            "user" => says(content) || chunks(content, &["text", "image_url"]),
            "assistant" => {
                for call in message["tool_calls"].as_array().into_iter().flatten() {
                    let id = call["id"].as_str().unwrap();
                    let arguments = call["function"]["arguments"].as_str().unwrap();
                    let object =
                        serde_json::from_str::<Value>(arguments).is_ok_and(|value| value.is_object());
                    let name = is_name(call["function"]["name"].as_str().unwrap());
                    if !is_id(id) || !object || !name || call["type"] != "function" {
                        return Err(format!("a bad call {call}"));
                    }
                    if !ids.insert(id.to_owned()) {
                        return Err(format!("the id {id} twice"));
                    }
                    open.push(id.to_owned());
                }
                let no_content = content.is_null() && !open.is_empty();
                no_content || says(content) || chunks(content, &["text", "thinking"])
            }
            _ => false,
        };
        if !fits {
            return Err(format!("a bad message {message}"));
        }
    }
    if all.last().is_some_and(|last| last["role"] == "assistant" && last["prefix"] != true) {
        return Err("an answer at the end".into());
    }
    if open.is_empty() { Ok(()) } else { Err(format!("{open:?} are not answered at the end")) }
}
