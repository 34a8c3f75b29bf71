//! What is sent: the body of a request.

use std::sync::Arc;

use proptest::prelude::*;
use quipu_protocol::{
    AssistantMessage, Body, Content, ImageContent, Json, Message, Model, ModelErrorKind, ModelRequest,
    StopReason, TextContent, Thinking, ThinkingContent, ToolCall, ToolResultMessage, ToolSpec, Usage,
    UserMessage,
};
use quipu_providers::CallOptions;
use serde_json::{Value, json};

use crate::wires;

pub(crate) fn model() -> Model {
    Model {
        id: "claude-test-1".into(),
        provider: "anthropic".into(),
        api: "anthropic-messages".into(),
        base_url: "http://127.0.0.1:1".into(),
        reasoning: true,
        input: vec!["text".into(), "image".into()],
        context_window: 200_000,
        max_tokens: 64_000,
        ..Model::default()
    }
}

pub(crate) fn request(model: Model, messages: Vec<Message>) -> ModelRequest {
    let spec = |name: &str, parameters: &str| ToolSpec {
        name: name.into(),
        description: format!("The {name} tool."),
        parameters: Json::parse(parameters).unwrap(),
    };
    ModelRequest {
        model: Arc::new(model),
        system: "You help.".into(),
        tools: vec![
            spec("read", r#"{"type":"object","properties":{"z":{},"a":{"minimum":1.0}}}"#),
            spec("bash", r#"{"type":"object","description":"\ud800"}"#),
        ]
        .into(),
        messages: Arc::new(messages.into_iter().map(Arc::new).collect()),
        thinking: Thinking::Off,
        max_tokens: None,
        session: Some("s".into()),
        stable_system: None,
    }
}

pub(crate) fn encode(request: &ModelRequest) -> Vec<u8> {
    let provider =
        wires::provider(&request.model, quipu_providers::Credentials::none(), &[], CallOptions::default())
            .unwrap();
    provider.encode(request).unwrap().to_vec()
}

pub(crate) fn body(request: &ModelRequest) -> Value {
    serde_json::from_slice(&encode(request)).unwrap()
}

pub(crate) fn image() -> Content {
    Content::Image(ImageContent { data: "aGk=".into(), mime_type: "image/png".into() })
}

pub(crate) fn thinking(text: &str, signature: Option<&str>, redacted: Option<bool>) -> Content {
    Content::Thinking(ThinkingContent {
        thinking: text.into(),
        thinking_signature: signature.map(String::from),
        redacted,
    })
}

pub(crate) fn call(id: &str, name: &str, arguments: &str) -> Content {
    Content::ToolCall(ToolCall {
        id: id.into(),
        name: name.into(),
        arguments: Json::parse(arguments).unwrap(),
        thought_signature: Some("gone".into()),
        namespace: None,
    })
}

pub(crate) fn assistant(of: &str, content: Vec<Content>) -> Message {
    Message::Assistant(AssistantMessage {
        content,
        api: "anthropic-messages".into(),
        provider: "anthropic".into(),
        model: of.into(),
        usage: Usage::default(),
        stop_reason: StopReason::ToolUse,
        timestamp: 0,
        response_model: None,
        response_id: None,
        error_message: None,
        raw_stop_reason: None,
    })
}

pub(crate) fn result(id: &str, content: Vec<Content>, is_error: bool) -> Message {
    Message::ToolResult(ToolResultMessage {
        tool_call_id: id.into(),
        tool_name: "read".into(),
        content,
        details: None,
        usage: None,
        is_error,
        timestamp: 0,
    })
}

pub(crate) fn user(content: Vec<Content>) -> Message {
    Message::User(UserMessage { content: Body::Blocks(content), timestamp: 0 })
}

/// A conversation with everything that the wire must adapt.
pub(crate) fn conversation() -> Vec<Message> {
    let deep = format!("{{\"a\":{}1{}}}", "[".repeat(200), "]".repeat(200));
    let signed = Content::Text(TextContent { text: "Looking.".into(), text_signature: Some("gone".into()) });
    vec![
        Message::User(UserMessage { content: Body::Text("Plain".into()), timestamp: 0 }),
        user(vec![
            Content::text("See"),
            Content::text(" \n"),
            image(),
            image(),
            Content::text("these"),
            image(),
        ]),
        user(vec![Content::text("")]),
        assistant(
            "claude-test-1",
            vec![
                thinking("", Some("proof=="), None),
                thinking("", Some("EmwK"), Some(true)),
                thinking("unsigned", None, None),
                signed,
                Content::text(""),
                call("toolu_1", "read", r#"{"path": "a", "n": 1.0, "s": "\ud83d"}"#),
                call("toolu_2", "read", r#""{\"path\": a""#),
                call("toolu_3", "read", &deep),
                call("toolu_4", "read", "[1]"),
            ],
        ),
        result("toolu_1", vec![Content::text("one"), image()], false),
        result("toolu_2", vec![Content::text("bad"), image()], true),
        result("toolu_3", vec![], false),
        assistant(
            "another",
            vec![
                thinking("secret", Some("foreign"), None),
                thinking("", Some("foreign"), Some(true)),
                call("call|1/ü", "functions.read", "{}"),
                call("call|1/ü", "", "{}"),
                call("toolu_1", "read", "{}"),
                call(&"x".repeat(80), "read", "{}"),
            ],
        ),
        result("call|1/ü", vec![Content::text("first")], false),
        result("call|1/ü", vec![Content::text("second")], false),
        result("nobody", vec![Content::text("lost")], false),
        result("toolu_1", vec![Content::text("third")], false),
        result(&"x".repeat(80), vec![image()], false),
        Message::Other(Json::parse(r#"{"role":"system"}"#).unwrap()),
        assistant("another", vec![thinking("only thoughts", Some("foreign"), None)]),
        user(vec![Content::text("Go on")]),
    ]
}

#[test]
fn request_omits_content_that_the_server_refuses() {
    let image =
        |mime: &str, data: &str| Content::Image(ImageContent { data: data.into(), mime_type: mime.into() });
    let long = "n".repeat(300);
    let request = request(
        model(),
        vec![
            user(vec![
                image("image/jpg", "aGk="),
                image("image/bmp", "aGk="),
                image("image/png", "aGk"),
                image("image/png", "a k="),
                image("image/png", "===="),
                image("image/png", ""),
            ]),
            assistant("claude-test-1", vec![call("a", &long, "{}")]),
            result("a", vec![Content::text("ok")], false),
        ],
    );
    let body = body(&request);
    let content = body["messages"][0]["content"].as_array().unwrap();
    assert_eq!(content[0]["source"]["media_type"], "image/jpeg");
    assert!(
        content[1..].iter().all(|block| block["text"].as_str().unwrap().starts_with("(image omitted")),
        "{content:?}"
    );
    assert_eq!(body["messages"][1]["content"][0]["name"], long[..128]);
}

#[test]
fn thinking_and_limits() {
    let short = vec![user(vec![Content::text("Hi")])];
    let check = |change: &dyn Fn(&mut Model), level: Thinking, max_tokens: Option<u64>, expect: Value| {
        let mut model = model();
        change(&mut model);
        let mut request = request(model, short.clone());
        request.thinking = level;
        request.max_tokens = max_tokens;
        let body = body(&request);
        assert_eq!(json!([body["thinking"], body["output_config"]["effort"], body["max_tokens"]]), expect);
    };
    let enabled = |budget: u64| json!({"type": "enabled", "budget_tokens": budget, "display": "summarized"});
    let adaptive = json!({"type": "adaptive", "display": "summarized"});
    let off = json!({"type": "disabled"});
    let as_is = |_: &mut Model| {};
    check(&as_is, Thinking::Off, None, json!([off, null, 64_000]));
    check(&as_is, Thinking::Off, Some(1_000_000), json!([off, null, 64_000]));
    check(&as_is, Thinking::Off, Some(0), json!([off, null, 1]));
    check(&as_is, Thinking::Minimal, None, json!([enabled(1_024), null, 64_000]));
    check(&as_is, Thinking::Low, None, json!([enabled(2_048), null, 64_000]));
    check(&as_is, Thinking::Medium, Some(1_000), json!([enabled(8_168), null, 9_192]));
    check(&as_is, Thinking::Max, Some(60_000), json!([enabled(16_384), null, 64_000]));
    let small = |model: &mut Model| model.max_tokens = 4_096;
    check(&small, Thinking::High, None, json!([enabled(3_072), null, 4_096]));
    let tiny = |model: &mut Model| model.max_tokens = 2_000;
    check(&tiny, Thinking::High, None, json!([off, null, 2_000]));
    check(&|model| model.reasoning = false, Thinking::High, None, json!([null, null, 64_000]));
    check(&|model| model.context_window = 0, Thinking::Off, None, json!([off, null, 64_000]));
    // 37 tokens of input: the window less them and the margin.
    check(&|model| model.context_window = 10_000, Thinking::Off, None, json!([off, null, 5_867]));
    check(&|model| model.context_window = 100, Thinking::Off, None, json!([off, null, 1]));
    let managed = |model: &mut Model| {
        model.compat = Json::parse(r#"{"forceAdaptiveThinking":true}"#).ok();
        model.thinking_level_map =
            Json::parse(r#"{"off":null,"minimal":null,"xhigh":"xhigh","max":"top"}"#).ok();
    };
    check(&managed, Thinking::Off, None, json!([adaptive, "low", 64_000]));
    check(&managed, Thinking::Medium, Some(10), json!([adaptive, "medium", 10]));
    check(&managed, Thinking::High, None, json!([adaptive, "high", 64_000]));
    check(&managed, Thinking::Max, None, json!([adaptive, "top", 64_000]));
}

#[test]
fn large_inputs_leave_a_margin() {
    let check = |used: u64, expect: u64| {
        let mut answer = assistant("claude-test-1", vec![Content::text("x")]);
        if let Message::Assistant(answer) = &mut answer {
            answer.usage = Usage { input: used, total_tokens: used, ..Usage::default() };
            answer.stop_reason = StopReason::Stop;
        }
        let messages = vec![user(vec![Content::text("a")]), answer, user(vec![Content::text("abc")])];
        let body = body(&request(model(), messages));
        assert_eq!(body["max_tokens"], expect, "{used}");
    };
    check(99, 64_000);
    check(119_999, 62_000);
    check(159_999, 32_768);
    check(189_999, 5_904);
    check(250_000, 1);
}

#[test]
fn an_empty_conversation_is_refused() {
    let model = model();
    let provider =
        wires::provider(&model, quipu_providers::Credentials::none(), &[], CallOptions::default()).unwrap();
    for messages in [vec![], vec![user(vec![Content::text(" ")])]] {
        let error = provider.encode(&request(model.clone(), messages)).unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::InvalidRequest);
    }
}

/// A later request repeats an earlier one up to the marks that the earlier one had at its end.
#[test]
fn consecutive_bodies_share_their_beginning() {
    let all = conversation();
    let before = encode(&request(model(), all[..3].to_vec()));
    let after = encode(&request(model(), all));
    let shared = before.iter().zip(&after).take_while(|(a, b)| a == b).count();
    let mark = br#","cache_control":{"type":"ephemeral"}}]}],"max_tokens":64000}"#;
    assert_eq!(&before[shared..], mark);
}

/// What is the same in other sessions has a mark of its own; three others are left for tools, the whole prompt and the conversation.
#[test]
fn system_prompt_is_marked_where_it_begins_to_change() {
    let whole = ModelRequest {
        system: "You help.\n\nNow: noon.".into(),
        stable_system: Some(11),
        ..request(model(), conversation())
    };
    let mark = json!({ "type": "ephemeral" });
    let block = |text: &str| json!({ "type": "text", "text": text, "cache_control": mark });
    let found = body(&whole);
    assert_eq!(found["system"], json!([block("You help.\n\n"), block("Now: noon.")]));
    assert_eq!(found.to_string().matches("cache_control").count(), 4);
    // Requests of another session begin with the same bytes.
    let other = ModelRequest { system: "You help.\n\nNow: one.".into(), ..whole.clone() };
    let (one, other) = (encode(&whole), encode(&other));
    let shared = one.iter().zip(&other).take_while(|(a, b)| a == b).count();
    assert!(String::from_utf8_lossy(&one[..shared]).ends_with("\"text\":\"Now: "));
    for stable_system in [None, Some(0), Some(99), Some(whole.system.len())] {
        let found = body(&ModelRequest { stable_system, ..whole.clone() });
        assert_eq!(found["system"], json!([block("You help.\n\nNow: noon.")]), "{stable_system:?}");
    }
    // Neither in the middle of a character.
    let odd = ModelRequest { system: "ä b".into(), stable_system: Some(1), ..whole };
    assert_eq!(body(&odd)["system"], json!([block("ä b")]));
}

fn contents() -> impl Strategy<Value = Vec<Content>> {
    let text = prop_oneof![Just(String::new()), Just(" \n".into()), "\\PC{1,8}"];
    let signature = prop_oneof![
        3 => "[a-z=]{0,4}",
        1 => "[12]".prop_map(|id| super::encode_responses::REASONING.replace("rs_1", &format!("rs_{id}"))),
    ];
    let block = prop_oneof![
        text.clone().prop_map(Content::text),
        Just(image()),
        (text, proptest::option::of(signature), proptest::option::of(any::<bool>()))
            .prop_map(|(text, signature, redacted)| thinking(&text, signature.as_deref(), redacted)),
        (
            "[ab|é]{0,3}",
            "[a.]{0,3}",
            prop_oneof![Just("{}"), Just("null"), Just("\"x"), Just("{\"a\":\"\\ud800\"}")]
        )
            .prop_map(|(id, name, arguments)| {
                let arguments = quipu_providers::tool_arguments(arguments);
                call(&id, &name, arguments.get())
            }),
        Just(Content::Other(Json::parse(r#"{"type":"new"}"#).unwrap())),
    ];
    proptest::collection::vec(block, 0..5)
}

/// A conversation in which models of all wires have spoken.
pub(crate) fn messages() -> impl Strategy<Value = Vec<Message>> {
    let author = prop_oneof![
        Just("claude-test-1"),
        Just("other"),
        Just("local-1"),
        Just("items-1"),
        Just("gemini-3-test"),
        Just("items-of-a-plan"),
        Just("chunks-1"),
        Just("converse-1"),
        Just("gate-1")
    ];
    let message = prop_oneof![
        contents().prop_map(user),
        (contents(), author).prop_map(|(content, of)| match of {
            "local-1" => super::encode_completions::own(content),
            "items-1" => super::encode_responses::own(content),
            "gemini-3-test" => super::encode_contents::own(content),
            "items-of-a-plan" => super::encode_codex::own(content),
            "chunks-1" => super::encode_mistral::own(content),
            "converse-1" => super::encode_converse::own(content),
            "gate-1" => super::encode_pi_messages::own(content),
            of => assistant(of, content),
        }),
        ("[ab|é]{0,3}", contents(), any::<bool>())
            .prop_map(|(id, content, error)| result(&id, content, error)),
    ];
    proptest::collection::vec(message, 0..12)
}

/// What the server checks of a conversation.
pub(crate) fn acceptable(body: &Value) -> Result<(), String> {
    let mut ids = std::collections::HashSet::new();
    let (mut open, mut searching): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    let name = |text: &str, longest: usize| {
        let ok = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        !text.is_empty() && text.len() <= longest && text.chars().all(ok)
    };
    let no_text = |block: &Value| block["text"].as_str().is_none_or(|text| text.trim().is_empty());
    for message in body["messages"].as_array().unwrap() {
        let blocks = message["content"].as_array().unwrap();
        let mut answers = 0;
        let spoke = message["role"] == "user" && blocks.iter().any(|block| block["type"] != "tool_result");
        if spoke && !searching.is_empty() {
            return Err(format!("{searching:?} have no result"));
        }
        if blocks.is_empty() {
            return Err("a message without content".into());
        }
        for (place, block) in blocks.iter().enumerate() {
            match block["type"].as_str().unwrap() {
                "text" if no_text(block) => return Err("empty text".into()),
                "tool_use" => {
                    let id = block["id"].as_str().unwrap();
                    let tool = block["name"].as_str().unwrap();
                    if !name(id, 64) || !name(tool, 128) || !block["input"].is_object() {
                        return Err(format!("a bad call {block}"));
                    }
                    if !ids.insert(id.to_owned()) {
                        return Err(format!("the id {id} twice"));
                    }
                }
                "tool_result" => {
                    if place != answers || !open.contains(&block["tool_use_id"].as_str().unwrap().to_owned())
                    {
                        return Err(format!("a result out of place {block}"));
                    }
                    answers += 1;
                    let inner = block["content"].as_array().unwrap();
                    let images = inner.iter().any(|block| block["type"] == "image");
                    if inner.is_empty() || (block["is_error"] == true && images) {
                        return Err(format!("a bad result {block}"));
                    }
                }
                "server_tool_use" => searching.push(block["id"].as_str().unwrap().to_owned()),
                kind if kind != "tool_result" && kind.ends_with("_tool_result") => {
                    let before = searching.len();
                    searching.retain(|id| block["tool_use_id"] != id.as_str());
                    if searching.len() + 1 != before {
                        return Err(format!("a result of no call {block}"));
                    }
                }
                _ => {}
            }
        }
        if answers != open.len() {
            return Err(format!("{} calls and {answers} results", open.len()));
        }
        let calls = blocks.iter().filter(|block| block["type"] == "tool_use");
        open = calls.map(|block| block["id"].as_str().unwrap().to_owned()).collect();
    }
    if open.is_empty() { Ok(()) } else { Err("calls without results at the end".into()) }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(
        std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(128)
    ) })]

    #[test]
    fn any_conversation_becomes_one_that_the_server_takes(messages in messages()) {
        use super::{encode_codex, encode_completions, encode_contents, encode_mistral, encode_converse, encode_pi_messages, encode_responses};
        for model in [
            model(),
            encode_completions::model(),
            encode_responses::model(),
            encode_contents::model(),
            encode_contents::old_model(),
            encode_codex::model(),
            encode_mistral::model(),
            encode_converse::model(),
            encode_converse::plain_model(),
            encode_pi_messages::model(),
        ] {
            let request = request(model, messages.clone());
            let provider = wires::provider(&request.model, quipu_providers::Credentials::none(), &[], CallOptions::default()).unwrap();
            let Ok(first) = provider.encode(&request) else { continue };
            prop_assert_eq!(&first, &provider.encode(&request).unwrap());
            let body: Value = serde_json::from_slice(&first).unwrap();
            let checked = match request.model.api.as_str() {
                "anthropic-messages" => acceptable(&body),
                "openai-responses" => encode_responses::acceptable(&body),
                "google-generative-ai" => encode_contents::acceptable(&body),
                "openai-codex-responses" => encode_codex::acceptable(&body),
                "mistral-conversations" => encode_mistral::acceptable(&body),
                "bedrock-converse-stream" => encode_converse::acceptable(&body),
                "pi-messages" => encode_pi_messages::acceptable(&body),
                _ => encode_completions::acceptable(&body),
            };
            prop_assert_eq!(checked, Ok(()), "{}", body);
        }
    }
}
