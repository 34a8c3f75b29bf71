//! What is sent on the wire of items, and what its servers check.

use std::collections::HashSet;
use std::sync::Arc;

use quipu_protocol::{
    AssistantMessage, Content, Json, Message, Model, ModelRequest, TextContent, Thinking, ThinkingContent,
};
use quipu_providers::{CacheRetention, CallOptions};
use serde_json::{Value, json};

use crate::encode::{self, assistant, body, call, encode, image, request, result, thinking, user};
use crate::wires;

/// The id in an item of reasoning.
pub(crate) const REASONING: &str = r#"{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"Hm."}],"encrypted_content":"sealed=="}"#;

/// A model of this wire.
pub(crate) fn model() -> Model {
    Model {
        id: "items-1".into(),
        provider: "testing".into(),
        api: "openai-responses".into(),
        ..encode::model()
    }
}

/// An answer of [`model`].
pub(crate) fn own(content: Vec<Content>) -> Message {
    answer_of("testing", "openai-responses", "items-1", content)
}

fn answer_of(provider: &str, api: &str, of: &str, content: Vec<Content>) -> Message {
    let Message::Assistant(answer) = assistant(of, content) else { unreachable!() };
    Message::Assistant(AssistantMessage { provider: provider.into(), api: api.into(), ..answer })
}

/// A text with the id and the phase that it came with.
fn signed(text: &str, signature: &str) -> Content {
    Content::Text(TextContent { text: text.into(), text_signature: Some(signature.into()) })
}

fn reasoning(id: &str) -> Content {
    let item = REASONING.replace("rs_1", id);
    Content::Thinking(ThinkingContent {
        thinking: "Hm.".into(),
        thinking_signature: Some(item),
        redacted: None,
    })
}

/// The input of a request, without the system prompt.
fn input(messages: Vec<Message>) -> Vec<Value> {
    let body = body(&request(model(), messages));
    assert_eq!(acceptable(&body), Ok(()), "{body}");
    body["input"].as_array().unwrap()[1..].to_vec()
}

#[test]
fn reasoning_is_returned_as_it_came() {
    let item = r#"{ "type":"reasoning","id":"rs_1","summary":[],"z":1.0,"encrypted_content":"c2VhbGVk","n":12345678901234567890}"#;
    let messages = vec![
        user(vec![Content::text("Hi")]),
        own(vec![
            thinking("", Some(item), None),
            signed("Looking.", r#"{"v":1,"id":"msg_2","phase":"commentary"}"#),
            call("call_3|fc_3", "read", "{}"),
        ]),
        result("call_3|fc_3", vec![Content::text("ok")], false),
        own(vec![signed("Done.", r#"{"v":1,"id":"msg_4","phase":"final_answer"}"#)]),
    ];
    let sent = String::from_utf8(encode(&request(model(), messages.clone()))).unwrap();
    assert!(sent.contains(item), "{sent}");
    let input = input(messages);
    let ids: Vec<&Value> = input.iter().map(|item| &item["id"]).collect();
    assert_eq!(json!(ids), json!([null, "rs_1", "msg_2", "fc_3", null, "msg_4"]));
    assert_eq!((&input[2]["phase"], &input[5]["phase"]), (&json!("commentary"), &json!("final_answer")));
    assert_eq!((&input[3]["call_id"], &input[4]["call_id"]), (&json!("call_3"), &json!("call_3")));
    assert_eq!(input[4]["output"], "ok");
}

/// A message or a call without the reasoning that it came with must not show that it had some.
#[test]
fn ids_are_left_out_with_the_reasoning_before_them() {
    let check = |content: Vec<Content>, expect: Value| {
        let mut all = vec![user(vec![Content::text("Hi")])];
        all.push(own(content));
        let input = input(all);
        let got: Vec<Value> = input[1..].iter().map(|item| json!([item["type"], item["id"]])).collect();
        assert_eq!(json!(got), expect);
    };
    let text = || signed("So.", r#"{"v":1,"id":"msg_own"}"#);
    let out = || json!(["function_call_output", null]);
    let plain = json!([["message", "msg_1"]]);
    check(vec![text()], json!([["message", "msg_own"]]));
    check(vec![reasoning("rs_1"), text()], json!([["reasoning", "rs_1"], ["message", "msg_own"]]));
    // Not encrypted, and so known to the server alone.
    let bare = r#"{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":null}"#;
    check(vec![thinking("Hm.", Some(bare), None), text()], plain.clone());
    // Open reasoning needs no key.
    let open =
        r#"{"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"Hm."}]}"#;
    check(
        vec![thinking("Hm.", Some(open), None), text()],
        json!([["reasoning", "rs_1"], ["message", "msg_own"]]),
    );
    for odd in ["reasoning_content", "", "{", "[]", r#"{"type":"new","encrypted_content":"x"}"#] {
        check(vec![thinking("Hm.", Some(odd), None), text()], plain.clone());
    }
    check(vec![thinking("Hm.", None, None), text()], plain.clone());
    // Behind the last word.
    check(vec![text(), reasoning("rs_1")], plain.clone());
    check(vec![text(), reasoning("rs_1"), Content::text(" ")], plain.clone());
    check(vec![reasoning("rs_1"), reasoning("rs_1"), text()], plain.clone());
    check(
        vec![reasoning("rs_1"), call("c1|fc_1", "read", "{}"), call("c2|ctc_2", "read", "{}")],
        json!([["reasoning", "rs_1"], ["function_call", "fc_1"], ["function_call", null], out(), out()]),
    );
    check(
        vec![thinking("Hm.", Some(bare), None), call("c1|fc_1", "read", "{}")],
        json!([["function_call", null], out()]),
    );
    // What is left of an answer that was forgotten.
    check(
        vec![thinking("", None, None), call("c1|fc_1", "read", "{}")],
        json!([["function_call", null], out()]),
    );
    // What the server summarised stays, whatever is around it.
    let compaction = r#"{"type":"compaction","id":"cmp_1","encrypted_content":"c"}"#;
    check(
        vec![thinking("", Some(compaction), Some(true)), thinking("Hm.", None, None), text()],
        json!([["compaction", "cmp_1"], ["message", "msg_1"]]),
    );
    // Ids that the wire does not take.
    let long = format!("msg_{}", "x".repeat(64));
    for odd in [long.as_str(), "msg_", "msg_ü", "other", r#"{"v":1}"#, ""] {
        check(vec![signed("So.", odd)], plain.clone());
    }
    check(vec![signed("So.", "msg_old")], json!([["message", "msg_old"]]));
}

#[test]
fn ids_of_other_models_are_made_to_fit() {
    let long = format!("call_{}|fc_{}", "a".repeat(80), "b".repeat(400));
    let ids = |provider: &str, api: &str, of: &str| {
        let calls = ["call_1|fc_2", "call_1|fc_2", &long, "toolu_1", "ü|", "|x", "", "a__|fc_9"];
        let content = calls.iter().map(|id| call(id, "read", "{}")).collect();
        let input = input(vec![
            user(vec![Content::text("Hi")]),
            answer_of(provider, api, of, content),
            own(vec![call("functions.read:0|fc_own", "read", "{}")]),
        ]);
        let calls = input.iter().filter(|item| item["type"] == "function_call");
        calls
            .map(|item| (item["call_id"].as_str().unwrap().to_owned(), item["id"].as_str().map(String::from)))
            .collect::<Vec<_>>()
    };
    for (provider, api, of, has_item) in [
        ("elsewhere", "openai-responses", "items-1", true),
        ("testing", "openai-responses", "items-2", false),
    ] {
        let ids = ids(provider, api, of);
        let call_ids: Vec<&str> = ids.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(call_ids[..2], ["call_1", "call_1_2"]);
        assert_eq!(call_ids[2].len(), 64);
        assert_eq!(call_ids[3..], ["toolu_1", "call", "call_2", "call_3", "a", "functions.read:0"]);
        let items: Vec<bool> = ids.iter().map(|(_, id)| id.is_some()).collect();
        let made = has_item;
        assert_eq!(items, [made, made, made, false, made, made, false, made, true]);
        for (_, id) in &ids[..8] {
            assert!(id.as_ref().is_none_or(|id| id.starts_with("fc_") && id.len() == 19), "{id:?}");
        }
        assert_eq!(ids[8].1.as_deref(), Some("fc_own"));
    }
}

#[test]
fn results_can_hold_images() {
    let messages = vec![
        user(vec![Content::text("Hi")]),
        own(vec![call("a", "read", "{}"), call("b", "read", "{}"), call("c", "read", "{}")]),
        result("a", vec![Content::text("one"), image(), Content::text("two")], false),
        result("b", vec![Content::text("one"), Content::text("two")], true),
        result("c", vec![], false),
    ];
    let outputs = |input: Vec<Value>| -> Vec<Value> {
        input
            .iter()
            .filter(|item| item["type"] == "function_call_output")
            .map(|item| item["output"].clone())
            .collect()
    };
    let picture = json!({"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,aGk="});
    let text = |text: &str| json!({"type": "input_text", "text": text});
    assert_eq!(
        outputs(input(messages)),
        [json!([text("one"), picture, text("two")]), json!("one\ntwo"), json!("(no tool output)")]
    );
}

#[test]
fn thinking_is_asked_for_by_level() {
    let check = |reasoning: bool, map: &str, compat: &str, level: Thinking, expect: Value| {
        let mut model = Model { reasoning, compat: Json::parse(compat).ok(), ..model() };
        model.thinking_level_map = Json::parse(map).ok();
        let mut request = request(model, vec![user(vec![Content::text("Hi")])]);
        request.thinking = level;
        let body = body(&request);
        assert_eq!(json!([body["reasoning"], body["include"]]), expect, "{map} {level:?}");
    };
    let on = |effort: &str| json!([{"effort": effort, "summary": "auto"}, ["reasoning.encrypted_content"]]);
    let (off, high) = (Thinking::Off, Thinking::High);
    check(true, "{}", "{}", high, on("high"));
    check(true, r#"{"high":"top"}"#, "{}", high, on("top"));
    check(true, "{}", "{}", off, json!([{"effort": "none"}, null]));
    check(true, r#"{"off":"minimal"}"#, "{}", off, json!([{"effort": "minimal"}, null]));
    // A model that cannot but think.
    check(true, r#"{"off":null,"minimal":null}"#, "{}", off, on("low"));
    check(false, "{}", "{}", high, json!([null, null]));
    let mute = r#"{"supportsReasoningEffort":false}"#;
    check(true, "{}", mute, high, json!([{"summary": "auto"}, ["reasoning.encrypted_content"]]));
    check(true, "{}", mute, off, json!([null, null]));
}

#[test]
fn output_is_limited_and_never_below_the_least() {
    let check = |max_tokens: Option<u64>, level: Thinking, expect: u64| {
        let mut request = request(model(), vec![user(vec![Content::text("Hi")])]);
        (request.max_tokens, request.thinking) = (max_tokens, level);
        assert_eq!(body(&request)["max_output_tokens"], expect);
    };
    check(None, Thinking::Off, 64_000);
    check(Some(100), Thinking::Off, 100);
    check(Some(3), Thinking::Off, 16);
    check(Some(100), Thinking::Low, 2_148);
    check(Some(63_000), Thinking::High, 64_000);
}

#[test]
fn nothing_is_stored_and_caches_are_named() {
    let check = |compat: &str, cache: CacheRetention, expect: Value| {
        let model = Model { compat: Json::parse(compat).ok(), ..model() };
        let mut request = request(model, vec![user(vec![Content::text("Hi")])]);
        request.session = Some("é".repeat(70));
        let options = CallOptions { cache, ..CallOptions::default() };
        let none = quipu_providers::Credentials::none();
        let provider = wires::provider(&request.model, none, &[], options).unwrap();
        let body: Value = serde_json::from_slice(&provider.encode(&request).unwrap()).unwrap();
        let members =
            ["store", "stream", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options"];
        assert_eq!(json!(members.map(|name| &body[name])), expect, "{compat} {cache:?}");
    };
    use CacheRetention::{Long, Off, Short};
    let key = "é".repeat(64);
    check("{}", Short, json!([false, true, key, null, null]));
    check("{}", Long, json!([false, true, key, "24h", null]));
    check("{}", Off, json!([false, true, null, null, null]));
    check(r#"{"supportsLongCacheRetention":false}"#, Long, json!([false, true, key, null, null]));
    let told = r#"{"supportsExplicitPromptCacheMode":true}"#;
    check(told, Short, json!([false, true, key, null, null]));
    check(told, Long, json!([false, true, key, null, {"ttl": "30m"}]));
    check(told, Off, json!([false, true, null, null, {"mode": "explicit"}]));
}

#[test]
fn settings_of_the_model_win_over_ours() {
    let with = |params: &str| {
        let mut request = request(model(), vec![user(vec![Content::text("Hi")])]);
        request.thinking = Thinking::Medium;
        Arc::make_mut(&mut request.model).sampling_params = Json::parse(params).ok();
        body(&request)
    };
    let plain = with("{}");
    let all = r#"{"temperature":0.25,"service_tier":"flex","max_output_tokens":20,"store":true,"include":[],"input":[],
        "parallel_tool_calls":false,"reasoning":{"effort":"odd"},"prompt_cache_key":"k","model":"x","stream":false,"tools":[]}"#;
    let body = with(all);
    let sent =
        ["temperature", "service_tier", "max_output_tokens", "store", "include", "parallel_tool_calls"];
    assert_eq!(json!(sent.map(|name| &body[name])), json!([0.25, "flex", 20, true, [], false]));
    assert_eq!((&body["reasoning"], &body["prompt_cache_key"]), (&json!({"effort": "odd"}), &json!("k")));
    for fixed in ["model", "input", "stream", "tools"] {
        assert_eq!(body[fixed], plain[fixed], "{fixed}");
    }
}

/// A later request repeats an earlier one up to the end of its input.
#[test]
fn consecutive_responses_bodies_share_their_beginning() {
    let all = crate::encode_completions::conversation();
    let before = encode(&request(model(), all[..3].to_vec()));
    let after = encode(&request(model(), all));
    let shared = before.iter().zip(&after).take_while(|(a, b)| a == b).count();
    assert_eq!(std::str::from_utf8(&before[shared..]), Ok(r#"],"max_output_tokens":64000}"#));
}

/// A copy of an answer in one conversation: the server refuses an id that it knows already.
#[test]
fn items_that_occur_twice_are_sent_once() {
    let turn = |request: &mut ModelRequest| {
        let messages = Arc::make_mut(&mut request.messages);
        messages.push(Arc::new(own(vec![
            reasoning("rs_1"),
            signed("So.", "msg_1a"),
            call("call_1|fc_1", "read", "{}"),
        ])));
        messages.push(Arc::new(result("call_1|fc_1", vec![Content::text("ok")], false)));
    };
    let mut request = request(model(), vec![user(vec![Content::text("Hi")])]);
    turn(&mut request);
    turn(&mut request);
    let body = body(&request);
    assert_eq!(acceptable(&body), Ok(()), "{body}");
    assert_eq!(body.to_string().matches("rs_1").count(), 1);
}

/// What a server checks of a conversation.
pub(crate) fn acceptable(body: &Value) -> Result<(), String> {
    let mut ids = HashSet::new();
    let (mut calls, mut open) = (HashSet::new(), Vec::new());
    let plain = |text: &str| {
        let ok = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        !text.is_empty() && text.len() <= 64 && text.chars().all(ok)
    };
    let says = |value: &Value| value.as_str().is_some_and(|text| !text.trim().is_empty());
    let parts = |value: &Value| {
        value.as_array().is_some_and(|parts| {
            !parts.is_empty()
                && parts.iter().all(|part| match part["type"].as_str() {
                    Some("input_text") => says(&part["text"]),
                    Some("input_image") => part["image_url"].as_str().unwrap().starts_with("data:image/"),
                    _ => false,
                })
        })
    };
    let mut waits = false;
    for (place, item) in body["input"].as_array().unwrap().iter().enumerate() {
        let kind = item["type"].as_str().unwrap_or_default();
        let role = item["role"].as_str().unwrap_or_default();
        if let Some(id) = item["id"].as_str()
            && !ids.insert(id.to_owned())
        {
            return Err(format!("the id {id} twice"));
        }
        let is_output = matches!(kind, "message" | "function_call" | "custom_tool_call" | "web_search_call");
        if waits && !is_output && kind != "reasoning" && kind != "compaction" {
            return Err(format!("reasoning without what follows it: {item}"));
        }
        waits = kind == "reasoning" || waits && !is_output;
        let is_call = kind.starts_with("function_call") || kind.starts_with("custom_tool_call");
        if !is_call && !open.is_empty() && role == "user" {
            return Err(format!("{open:?} are not answered"));
        }
        let fits = match (kind, role) {
            ("", "system" | "developer") => place == 0 && says(&item["content"]),
            ("", "user") => parts(&item["content"]),
            ("message", "assistant") => {
                let id = item["id"].as_str().unwrap_or_default();
                plain(id) && id.starts_with("msg_") && says(&item["content"][0]["text"])
            }
            ("reasoning" | "compaction" | "compaction_summary", _) => true,
            ("function_call", _) => {
                let id = item["call_id"].as_str().unwrap();
                let graphic = !id.is_empty() && id.len() <= 64 && id.bytes().all(|b| b.is_ascii_graphic());
                let arguments = item["arguments"].as_str().unwrap();
                let object = serde_json::from_str::<Value>(arguments).is_ok_and(|value| value.is_object());
                if !calls.insert(id.to_owned()) {
                    return Err(format!("the call {id} twice"));
                }
                open.push(id.to_owned());
                let own = item["id"].as_str().is_none_or(|id| plain(id) && id.starts_with("fc_"));
                graphic && object && own && plain(item["name"].as_str().unwrap())
            }
            ("web_search_call", _) => true,
            ("custom_tool_call", _) => {
                let id = item["call_id"].as_str().unwrap();
                if !calls.insert(id.to_owned()) {
                    return Err(format!("the call {id} twice"));
                }
                open.push(id.to_owned());
                let own = item["id"].as_str().is_none_or(|id| plain(id) && id.starts_with("ctc_"));
                own && item["input"].is_string() && plain(item["name"].as_str().unwrap())
            }
            ("function_call_output" | "custom_tool_call_output", _) => {
                let before = open.len();
                open.retain(|known| item["call_id"] != known.as_str());
                open.len() + 1 == before && (says(&item["output"]) || parts(&item["output"]))
            }
            _ => false,
        };
        if !fits {
            return Err(format!("a bad item {item}"));
        }
    }
    if waits {
        return Err("reasoning at the end".into());
    }
    if open.is_empty() { Ok(()) } else { Err(format!("{open:?} are not answered at the end")) }
}
