//! What is sent on the wire of frames, and what its server checks.

use std::collections::HashSet;

use quipu_protocol::{Content, ImageContent, Json, Message, Model, Thinking, ToolSpec};
use quipu_providers::{
    BedrockConverse, BedrockPlace, CacheRetention, CallOptions, Credentials, MostTokens, Provider,
};
use serde_json::{Value, json};

use crate::encode::{self, assistant, body, call, encode, image, request, result, thinking, user};
use crate::wires;

/// A model that takes signatures and marks for its cache.
pub(crate) fn model() -> Model {
    Model {
        id: "anthropic.claude-sonnet-4-5-test".into(),
        provider: "amazon-bedrock".into(),
        api: "bedrock-converse-stream".into(),
        ..encode::model()
    }
}

/// One that takes neither.
pub(crate) fn plain_model() -> Model {
    Model { id: "maker.plain-v1:0".into(), ..model() }
}

/// An answer of [`model`].
pub(crate) fn own(content: Vec<Content>) -> Message {
    of("anthropic.claude-sonnet-4-5-test", content)
}

fn of(id: &str, content: Vec<Content>) -> Message {
    let mut message = assistant(id, content);
    if let Message::Assistant(answer) = &mut message {
        answer.provider = "amazon-bedrock".into();
        answer.api = "bedrock-converse-stream".into();
    }
    message
}

fn say(text: &str) -> Message {
    user(vec![Content::text(text)])
}

/// The content of each turn of a request for `model`, without the mark at the end.
fn turns(model: Model, messages: Vec<Message>) -> Vec<Vec<Value>> {
    let body = body(&request(model, messages));
    assert_eq!(acceptable(&body), Ok(()), "{body}");
    let content = |turn: &Value| {
        let mut content = turn["content"].as_array().unwrap().clone();
        content.retain(|block| block["cachePoint"].is_null());
        content
    };
    body["messages"].as_array().unwrap().iter().map(content).collect()
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
            own(vec![call("a", "read", "{}"), call("b|2", "2-go.x", "{}")]),
            result("b|2", vec![Content::text("second")], false),
            say("four"),
        ],
    );
    assert_eq!(turns[0], [json!({ "text": "(The beginning of this conversation is not shown.)" })]);
    assert_eq!(turns[1], [json!({ "text": "Before." }), json!({ "text": "More." })]);
    assert_eq!(turns[2], ["One", "two", "three"].map(|text| json!({ "text": text })));
    assert_eq!(turns[3][1], json!({ "toolUse": { "toolUseId": "b_2", "name": "2-go_x", "input": {} } }));
    // The results, and then the user's words.
    let answered = |id: &str, text: &str, status: &str| json!({ "toolResult": { "toolUseId": id, "content": [{ "text": text }], "status": status } });
    assert_eq!(
        turns[4],
        [
            answered("b_2", "second", "success"),
            answered("a", "No result provided", "error"),
            json!({ "text": "four" }),
        ]
    );
}

#[test]
fn images_stand_in_results_of_calls_that_did_not_fail() {
    let webp = Content::Image(ImageContent { data: "aGk=".into(), mime_type: "image/webp".into() });
    let turns = turns(
        model(),
        vec![
            user(vec![Content::text("Look"), webp]),
            own(vec![call("a", "read", "{}"), call("b", "read", "{}"), call("c", "read", "{}")]),
            result("a", vec![image()], false),
            result("b", vec![Content::text("bad"), image()], true),
            result("c", vec![], false),
        ],
    );
    let png = json!({ "image": { "format": "png", "source": { "bytes": "aGk=" } } });
    assert_eq!(turns[0][1]["image"]["format"], "webp");
    assert_eq!(turns[2][0]["toolResult"]["content"], json!([png]));
    assert_eq!(turns[2][1]["toolResult"]["content"], json!([{ "text": "bad" }]));
    assert_eq!(turns[2][1]["toolResult"]["status"], "error");
    assert_eq!(turns[2][2]["toolResult"]["content"], json!([{ "text": "(no output)" }]));
    assert_eq!(turns[2][3..], [json!({ "text": "Images of the failed tool call:" }), png]);
}

#[test]
fn reasoning_goes_back_to_the_model_that_made_it() {
    let content = || {
        vec![
            thinking("Signed.", Some("proof=="), None),
            thinking("Unsigned.", None, None),
            thinking(" ", Some("proof=="), None),
            thinking("", Some("EmwK"), Some(true)),
            thinking("", Some("not base64!"), Some(true)),
            thinking("", None, Some(true)),
            Content::text("So."),
        ]
    };
    let sent = |model: Model, author: &str| turns(model, vec![say("Hi"), of(author, content())])[1].clone();
    let redacted = json!({ "reasoningContent": { "redactedContent": "EmwK" } });
    let text = json!({ "text": "So." });
    let signed = json!({ "text": "Signed.", "signature": "proof==" });
    assert_eq!(
        sent(model(), &model().id),
        [json!({ "reasoningContent": { "reasoningText": signed } }), redacted.clone(), text.clone()]
    );
    let plain = |text: &str| json!({ "reasoningContent": { "reasoningText": { "text": text } } });
    assert_eq!(
        sent(plain_model(), &plain_model().id),
        [plain("Signed."), plain("Unsigned."), redacted, text.clone()]
    );
    assert_eq!(sent(model(), "another"), [text]);
}

#[test]
fn thinking_and_limits_stand_where_the_model_takes_them() {
    let check =
        |change: &dyn Fn(&mut Model), level: Thinking, max_tokens: Option<u64>, expect: [Value; 2]| {
            let mut model = model();
            change(&mut model);
            let mut request = request(model, vec![say("Hi")]);
            (request.thinking, request.max_tokens) = (level, max_tokens);
            let body = body(&request);
            let got = ["inferenceConfig", "additionalModelRequestFields"].map(|name| body[name].clone());
            assert_eq!(got, expect, "{level:?} {max_tokens:?}");
        };
    let tokens = |tokens: u64| json!({ "maxTokens": tokens });
    let enabled = |budget: u64| json!({ "thinking": { "type": "enabled", "budget_tokens": budget, "display": "summarized" }, "anthropic_beta": ["interleaved-thinking-2025-05-14"] });
    let as_is = |_: &mut Model| {};
    check(&as_is, Thinking::Off, None, [tokens(64_000), Value::Null]);
    check(&as_is, Thinking::Minimal, None, [tokens(64_000), enabled(1_024)]);
    check(&as_is, Thinking::Medium, Some(1_000), [tokens(9_192), enabled(8_168)]);
    check(&as_is, Thinking::Max, Some(60_000), [tokens(64_000), enabled(16_384)]);
    check(&|model| model.max_tokens = 2_000, Thinking::High, None, [tokens(2_000), Value::Null]);
    let adaptive = |model: &mut Model| {
        model.id = "us.anthropic.claude-opus-4-7".into();
        model.thinking_level_map = Json::parse(r#"{"xhigh":"xhigh","max":"top"}"#).ok();
    };
    let effort = |effort: &str| json!({ "thinking": { "type": "adaptive", "display": "summarized" }, "output_config": { "effort": effort } });
    check(&adaptive, Thinking::Off, None, [tokens(64_000), Value::Null]);
    check(&adaptive, Thinking::Minimal, None, [tokens(64_000), effort("low")]);
    check(&adaptive, Thinking::Xhigh, Some(10), [tokens(10), effort("xhigh")]);
    check(&adaptive, Thinking::Max, None, [tokens(64_000), effort("top")]);
    let government = |model: &mut Model| model.id = "us-gov.anthropic.claude-opus-4-7".into();
    let bare = json!({ "thinking": { "type": "adaptive" }, "output_config": { "effort": "high" } });
    check(&government, Thinking::High, None, [tokens(64_000), bare]);
    let plain = |model: &mut Model| model.id = plain_model().id;
    check(&plain, Thinking::High, None, [Value::Null, Value::Null]);
    check(&plain, Thinking::High, Some(100), [tokens(100), Value::Null]);
    let sampled = |model: &mut Model| {
        plain(model);
        model.sampling_params = Json::parse(r#"{"temperature":0.5,"topP":0.9,"top_k":3,"maxTokens":7}"#).ok();
    };
    let config = json!({ "temperature": 0.5, "topP": 0.9, "maxTokens": 7 });
    check(&sampled, Thinking::Off, None, [config, json!({ "top_k": 3 })]);
}

#[test]
fn marks_stand_behind_the_system_prompt_and_the_last_words() {
    let sent = |id: &str, cache: CacheRetention, force_cache: bool, messages: Vec<Message>| {
        let model = Model { id: id.into(), ..model() };
        let options = CallOptions { cache, ..CallOptions::default() };
        let place =
            BedrockPlace { base_url: model.base_url.clone(), region: "us-east-1".into(), force_cache };
        let provider = BedrockConverse::new(&model, Credentials::none(), &[], options, place).unwrap();
        let bytes = provider.encode(&request(model, messages)).unwrap();
        serde_json::from_slice::<Value>(&bytes).unwrap()
    };
    let short = json!({ "cachePoint": { "type": "default" } });
    let long = json!({ "cachePoint": { "type": "default", "ttl": "1h" } });
    let profile = "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/abc";
    for (id, cache, force, mark) in [
        (model().id.as_str(), CacheRetention::Short, false, Some(short.clone())),
        (&model().id, CacheRetention::Long, false, Some(long)),
        (&model().id, CacheRetention::Off, true, None),
        (profile, CacheRetention::Short, false, None),
        (profile, CacheRetention::Short, true, Some(short)),
    ] {
        let body = sent(id, cache, force, vec![say("One"), own(vec![Content::text("x")]), say("Two")]);
        let with =
            |text: &str| std::iter::once(json!({ "text": text })).chain(mark.clone()).collect::<Vec<_>>();
        assert_eq!(body["system"], json!(with("You help.")));
        assert_eq!(body["messages"][2]["content"], json!(with("Two")));
        assert_eq!(body["messages"][0]["content"], json!([{ "text": "One" }]));
        // An answer at the end is not marked.
        let body = sent(id, cache, force, vec![say("One"), own(vec![Content::text("x")])]);
        assert_eq!(body["messages"].to_string().matches("cachePoint").count(), 0);
    }
}

#[test]
fn tools_have_schemas_and_are_never_missing_behind_calls() {
    let schema = r##"{"type":"object","properties":{"a":{"anyOf":[{"const":1},{"$ref":"#/$defs/b"}]}}}"##;
    let mut asked =
        request(model(), vec![say("Hi"), own(vec![call("a", "read", r#"{"":{"":1,"b":2},"c":""}"#)])]);
    let tool = |name: &str, description: &str| ToolSpec {
        name: name.into(),
        description: description.into(),
        parameters: Json::parse(schema).unwrap(),
    };
    asked.tools = vec![tool("read", "Reads."), tool("go", "")].into();
    let body = body(&asked);
    let schema: Value = serde_json::from_str(schema).unwrap();
    assert_eq!(
        body["toolConfig"],
        json!({ "tools": [
            { "toolSpec": { "name": "read", "description": "Reads.", "inputSchema": { "json": schema } } },
            { "toolSpec": { "name": "go", "inputSchema": { "json": schema } } },
        ] })
    );
    for member in ["model", "modelId", "stream"] {
        assert_eq!(body[member], Value::Null);
    }
    // Members without a name are refused.
    assert_eq!(body["messages"][1]["content"][0]["toolUse"]["input"], json!({ "c": "" }));
    asked.tools = Vec::new().into();
    let without = self::body(&asked);
    assert_eq!(acceptable(&without), Ok(()), "{without}");
    assert_eq!(without["toolConfig"]["tools"][0]["toolSpec"]["name"], "no_tool");
    let mut plain = request(model(), vec![say("Hi")]);
    plain.tools = Vec::new().into();
    assert_eq!(self::body(&plain)["toolConfig"], Value::Null);
}

#[test]
fn limit_of_output_bounds_what_a_call_can_use() {
    let mut asked = request(model(), vec![say("Hi")]);
    let most = |asked: &quipu_protocol::ModelRequest| MostTokens::of(asked, &encode(asked));
    assert_eq!((most(&asked).output, most(&asked).long_cache), (64_000, false));
    asked.max_tokens = Some(100);
    assert_eq!(most(&asked).output, 100);
}

/// A later request repeats an earlier one up to the mark and the limits.
#[test]
fn consecutive_bodies_share_their_beginning() {
    let all = encode::conversation();
    let before = encode(&request(model(), all[..3].to_vec()));
    let after = encode(&request(model(), all));
    let shared = before.iter().zip(&after).take_while(|(a, b)| a == b).count();
    let end = r#",{"cachePoint":{"type":"default"}}]}],"inferenceConfig":{"maxTokens":64000}}"#;
    assert_eq!(std::str::from_utf8(&before[shared..]), Ok(end));
}

/// Only who sends no credential may reach another machine in the open.
#[test]
fn credentials_do_not_leave_over_plain_http() {
    use quipu_providers::{Credential, Scheme, Secret};
    let make = |url: &str, credentials: Credentials| {
        let model = Model { base_url: url.into(), ..model() };
        wires::provider(&model, credentials, &[], CallOptions::default()).map(drop)
    };
    let key = || Credentials::fixed(Credential::new("a test", Scheme::Bearer(Secret::new("secret-key"))));
    for url in ["https://gateway.example", "http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1"] {
        assert_eq!(make(url, key()), Ok(()), "{url}");
    }
    let error = make("http://gateway.example", key()).unwrap_err();
    assert!(error.message.contains("over plain HTTP") && error.message.contains("https"), "{error}");
    assert_eq!(make("http://gateway.example", Credentials::none()), Ok(()));
}

/// What the server checks of a conversation.
pub(crate) fn acceptable(body: &Value) -> Result<(), String> {
    let name = |value: &Value| {
        let ok = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        value.as_str().is_some_and(|text| (1..=64).contains(&text.len()) && text.chars().all(ok))
    };
    let is_text = |block: &Value| block["text"].as_str().is_some_and(|text| !text.trim().is_empty());
    let is_image = |block: &Value| {
        let format = block["image"]["format"].as_str().unwrap_or_default();
        let bytes = block["image"]["source"]["bytes"].as_str().unwrap_or_default();
        ["png", "jpeg", "gif", "webp"].contains(&format) && !bytes.is_empty()
    };
    let has_nameless = |value: &Value| value.to_string().contains(r#""":"#);
    let tools = body["toolConfig"]["tools"].as_array();
    if body.get("toolConfig").is_some() && tools.is_none_or(Vec::is_empty) {
        return Err("a tool configuration without tools".into());
    }
    let mut ids = HashSet::new();
    let mut open: HashSet<String> = HashSet::new();
    for (place, message) in body["messages"].as_array().unwrap().iter().enumerate() {
        let is_user = place % 2 == 0;
        if message["role"] != if is_user { "user" } else { "assistant" } {
            return Err(format!("a turn out of turn {message}"));
        }
        let content = message["content"].as_array().unwrap();
        if content.is_empty() {
            return Err("a turn without content".into());
        }
        let mut answered = HashSet::new();
        for (at, block) in content.iter().enumerate() {
            if block.as_object().is_none_or(|members| members.len() != 1) {
                return Err(format!("not one kind of content {block}"));
            }
            if let Some(call) = block.get("toolUse") {
                let good = name(&call["toolUseId"]) && name(&call["name"]) && call["input"].is_object();
                if is_user || !good || tools.is_none() || has_nameless(&call["input"]) {
                    return Err(format!("a bad call {block}"));
                }
                let id = call["toolUseId"].as_str().unwrap().to_owned();
                if !ids.insert(id.clone()) {
                    return Err(format!("the id {id} twice"));
                }
                open.insert(id);
            } else if let Some(result) = block.get("toolResult") {
                let inner = result["content"].as_array().unwrap();
                let has_images = inner.iter().any(is_image);
                let good = !inner.is_empty() && inner.iter().all(|block| is_text(block) || is_image(block));
                if at != answered.len() || !good || tools.is_none() {
                    return Err(format!("a bad result {block}"));
                }
                match result["status"].as_str() {
                    Some("success") => {}
                    Some("error") if !has_images => {}
                    _ => return Err(format!("a bad status {block}")),
                }
                answered.insert(result["toolUseId"].as_str().unwrap().to_owned());
            } else if let Some(reasoning) = block.get("reasoningContent") {
                let text = &reasoning["reasoningText"];
                if is_user || !(is_text(text) || reasoning["redactedContent"].is_string()) {
                    return Err(format!("bad reasoning {block}"));
                }
            } else if block.get("cachePoint").is_some() {
                if at + 1 != content.len() || at == 0 {
                    return Err(format!("a mark out of place {message}"));
                }
            } else if !(is_text(block) || is_user && is_image(block)) {
                return Err(format!("unknown content {block}"));
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
