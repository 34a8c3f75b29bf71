//! What is sent to the backend of a subscription, and what it checks.

use std::sync::Arc;

use quipu_protocol::{AssistantMessage, Content, Json, Message, Model, ModelRequest, Thinking};
use quipu_providers::{CacheRetention, CallOptions};
use serde_json::{Value, json};

use crate::encode::{assistant, body, encode, request, thinking, user};
use crate::{encode_responses, wires};

/// A model of this wire.
pub(crate) fn model() -> Model {
    Model { id: "items-of-a-plan".into(), api: "openai-codex-responses".into(), ..encode_responses::model() }
}

/// An answer of [`model`].
pub(crate) fn own(content: Vec<Content>) -> Message {
    let Message::Assistant(answer) = assistant("items-of-a-plan", content) else { unreachable!() };
    let api = "openai-codex-responses".into();
    Message::Assistant(AssistantMessage { provider: "testing".into(), api, ..answer })
}

fn hello() -> ModelRequest {
    request(model(), vec![user(vec![Content::text("Hi")])])
}

#[test]
fn codex_body_has_its_own_members() {
    let body = body(&hello());
    let names = ["store", "stream", "instructions", "text", "tool_choice", "parallel_tool_calls", "include"];
    assert_eq!(
        json!(names.map(|name| &body[name])),
        json!([
            false,
            true,
            "You help.",
            {"verbosity": "low"},
            "auto",
            true,
            ["reasoning.encrypted_content"]
        ])
    );
    assert_eq!(body["prompt_cache_key"], "s");
    assert_eq!(body["tools"][0]["strict"], false);
    // The server refuses each of these.
    for refused in ["max_output_tokens", "prompt_cache_retention", "prompt_cache_options", "temperature"] {
        assert_eq!(body.get(refused), None, "{refused}");
    }
    assert_eq!(body["input"], json!([{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}]));
}

#[test]
fn codex_body_always_has_instructions() {
    for system in ["", " \n"] {
        let body = body(&ModelRequest { system: system.into(), ..hello() });
        assert!(body["instructions"].as_str().is_some_and(|text| text.len() > 5), "{body}");
    }
}

#[test]
fn codex_cache_key_follows_the_retention() {
    let check = |cache: CacheRetention, expect: Value| {
        let options = CallOptions { cache, ..CallOptions::default() };
        let none = quipu_providers::Credentials::none();
        let request = ModelRequest { session: Some("x".repeat(70)), ..hello() };
        let provider = wires::provider(&request.model, none, &[], options).unwrap();
        let body: Value = serde_json::from_slice(&provider.encode(&request).unwrap()).unwrap();
        assert_eq!(json!([body["prompt_cache_key"], body["prompt_cache_retention"]]), expect);
    };
    check(CacheRetention::Short, json!(["x".repeat(64), null]));
    check(CacheRetention::Long, json!(["x".repeat(64), null]));
    check(CacheRetention::Off, json!([null, null]));
}

#[test]
fn codex_thinking_off_leaves_an_unknown_word_out() {
    let check = |map: &str, level: Thinking, expect: Value| {
        let mut request = ModelRequest { thinking: level, ..hello() };
        Arc::make_mut(&mut request.model).thinking_level_map = Json::parse(map).ok();
        let body = body(&request);
        assert_eq!(
            json!([body["reasoning"], body["include"]]),
            json!([expect, ["reasoning.encrypted_content"]])
        );
    };
    let on = |effort: &str| json!({"effort": effort, "summary": "auto"});
    check("{}", Thinking::Off, json!(null));
    check(r#"{"off":"none"}"#, Thinking::Off, json!({"effort": "none"}));
    // A model that cannot but think.
    check(r#"{"off":null,"minimal":"low"}"#, Thinking::Off, on("low"));
    check(r#"{"minimal":"low"}"#, Thinking::Minimal, on("low"));
    check("{}", Thinking::High, on("high"));
}

#[test]
fn codex_settings_of_the_model_win() {
    let with = |params: &str, compat: &str| {
        let mut request = hello();
        let model = Arc::make_mut(&mut request.model);
        (model.sampling_params, model.compat) = (Json::parse(params).ok(), Json::parse(compat).ok());
        body(&request)
    };
    let all = r#"{"text":{"verbosity":"high"},"tool_choice":"none","parallel_tool_calls":false,"service_tier":"priority",
        "instructions":"Obey.","input":[],"include":[]}"#;
    let body = with(all, "{}");
    let names = ["text", "tool_choice", "parallel_tool_calls", "service_tier", "instructions", "include"];
    assert_eq!(
        json!(names.map(|name| &body[name])),
        json!([{"verbosity": "high"}, "none", false, "priority", "You help.", []])
    );
    assert_eq!(body["input"].as_array().map(Vec::len), Some(1));
    let body = with("{}", r#"{"supportsMaxOutputTokens":true,"supportsStrictMode":false}"#);
    assert_eq!((&body["max_output_tokens"], body["tools"][0].get("strict")), (&json!(64_000), None));
}

/// A later request repeats an earlier one up to the end of its input.
#[test]
fn consecutive_codex_bodies_share_their_beginning() {
    let all = crate::encode_completions::conversation();
    let before = encode(&request(model(), all[..3].to_vec()));
    let after = encode(&request(model(), all));
    let shared = before.iter().zip(&after).take_while(|(a, b)| a == b).count();
    assert_eq!(std::str::from_utf8(&before[shared..]), Ok("]}"));
}

/// Reasoning of the same model at the other address is another model's.
#[test]
fn codex_reasoning_stays_with_the_subscription() {
    let said = |answer: Message| {
        let messages = vec![user(vec![Content::text("Hi")]), answer, user(vec![Content::text("Go on")])];
        body(&request(model(), messages)).to_string()
    };
    let content = || vec![thinking("Hm.", Some(encode_responses::REASONING), None), Content::text("So.")];
    assert!(said(own(content())).contains("sealed=="));
    let elsewhere = said(encode_responses::own(content()));
    assert!(elsewhere.contains("So.") && !elsewhere.contains("sealed=="), "{elsewhere}");
}

/// What the server checks of a conversation.
pub(crate) fn acceptable(body: &Value) -> Result<(), String> {
    if body["instructions"].as_str().is_none_or(|text| text.trim().is_empty()) {
        return Err("no instructions".into());
    }
    if body["input"]
        .as_array()
        .unwrap()
        .iter()
        .any(|item| item["role"] == "system" || item["role"] == "developer")
    {
        return Err("a system prompt in the input".into());
    }
    if body.get("max_output_tokens").is_some() {
        return Err("a limit of the output".into());
    }
    encode_responses::acceptable(body)
}
