//! What is sent on the second wire, and what its servers check.

use std::collections::HashSet;

use quipu_protocol::{Content, Json, Message, Model, Thinking, Usage};
use serde_json::{Value, json};

use crate::encode::{self, assistant, body, call, encode, image, request, result, snapshot, thinking, user};

/// A model on this machine.
pub(crate) fn model() -> Model {
    Model {
        id: "local-1".into(),
        provider: "testing".into(),
        api: "openai-completions".into(),
        ..encode::model()
    }
}

/// An answer of [`model`].
pub(crate) fn own(content: Vec<Content>) -> Message {
    let mut message = assistant("local-1", content);
    if let Message::Assistant(answer) = &mut message {
        answer.provider = "testing".into();
        answer.api = "openai-completions".into();
    }
    message
}

/// The model at this address, with these quirks.
fn at(provider: &str, base_url: &str, id: &str, compat: &str) -> Model {
    Model {
        provider: provider.into(),
        base_url: base_url.into(),
        id: id.into(),
        compat: Json::parse(compat).ok(),
        ..model()
    }
}

/// The conversation of the first wire, continued by a model of this one.
fn conversation() -> Vec<Message> {
    let mut all = encode::conversation();
    all.extend([
        own(vec![
            thinking("Hm.", Some("reasoning"), None),
            Content::text("I will"),
            Content::text("look."),
            call("functions.read:0", "read", r#"{"path": "a", "n": 1.0, "s": "\ud83d"}"#),
            call("", "read", "{}"),
        ]),
        result("functions.read:0", vec![image(), Content::text("one"), Content::text("two")], true),
        result("", vec![image()], false),
        own(vec![
            thinking("", Some(r#"[{"type":"reasoning.encrypted","data":"x","bad":"\ud800"}]"#), None),
            call("functions.read:0", "read", "{}"),
        ]),
        result("functions.read:0", vec![], false),
        own(vec![thinking("only thoughts", Some("reasoning_content"), None)]),
        user(vec![Content::text("One"), Content::text("two")]),
        own(vec![call("never", "read", "{}")]),
    ]);
    all
}

#[test]
fn a_conversation_is_adapted_to_the_wire() {
    let body = body(&request(model(), conversation()));
    assert_eq!(acceptable(&body), Ok(()));
    snapshot("completions_full", &body);
}

#[test]
fn a_blind_model_is_told_of_images() {
    let blind = Model { input: vec!["text".into()], reasoning: false, ..model() };
    let body = body(&request(blind, conversation()));
    assert_eq!(acceptable(&body), Ok(()));
    assert!(!body.to_string().contains("image_url"));
    let said = body["messages"][2]["content"].as_str().unwrap();
    assert_eq!(said.matches("(image omitted").count(), 2, "{said}");
}

/// From this wire to the first one and back, everything that one of them must adapt is in the conversation.
#[test]
fn a_conversation_can_change_its_wire() {
    for (model, foreign) in [(model(), "proof=="), (encode::model(), "Hm.")] {
        let body = body(&request(model, conversation()));
        let text = body.to_string();
        assert!(!text.contains(foreign), "{foreign}");
        for said in ["Looking.", "I will", "No result provided"] {
            assert!(text.contains(said), "{said}");
        }
    }
}

#[test]
fn quirks_are_respected() {
    let short = || {
        vec![
            user(vec![Content::text("Hi")]),
            own(vec![thinking("Hm.", Some("reasoning_content"), None), call("a", "read", "{}")]),
            result("a", vec![Content::text("ok")], false),
            user(vec![Content::text("And?")]),
        ]
    };
    let with = |compat: &str| {
        let mut request = request(at("testing", "http://127.0.0.1:1", "local-1", compat), short());
        request.thinking = Thinking::Medium;
        body(&request)
    };
    let plain = with("{}");
    assert_eq!(plain["stream_options"], json!({"include_usage": true}));
    assert_eq!(
        (plain.get("store"), plain.get("prompt_cache_key"), plain.get("tool_stream")),
        (None, None, None)
    );
    assert_eq!((&plain["max_tokens"], plain.get("max_completion_tokens")), (&json!(64_000), None));
    assert_eq!(plain["messages"][0], json!({"role": "system", "content": "You help."}));
    assert_eq!(plain["messages"][2]["reasoning_content"], "Hm.");
    assert_eq!(plain["messages"][2]["content"], Value::Null);
    assert_eq!(plain["tools"][0]["function"].get("strict"), None);

    assert_eq!(with(r#"{"supportsUsageInStreaming":false}"#).get("stream_options"), None);
    assert_eq!(with(r#"{"supportsStore":true}"#)["store"], false);
    assert_eq!(with(r#"{"promptCacheKeyMode":"enabled"}"#)["prompt_cache_key"], "s");
    assert_eq!(with(r#"{"zaiToolStream":true}"#)["tool_stream"], true);
    assert_eq!(with(r#"{"maxTokensField":"max_completion_tokens"}"#)["max_completion_tokens"], 64_000);
    assert_eq!(with(r#"{"supportsDeveloperRole":true}"#)["messages"][0]["role"], "developer");
    assert_eq!(with(r#"{"supportsStrictMode":true}"#)["tools"][1]["function"]["strict"], false);
    assert_eq!(with(r#"{"requiresToolResultName":true}"#)["messages"][3]["name"], "read");
    assert_eq!(with(r#"{"requiresNonNullAssistantContent":true}"#)["messages"][2]["content"], "");
    let between = with(r#"{"requiresAssistantAfterToolResult":true}"#);
    let roles: Vec<_> =
        between["messages"].as_array().unwrap().iter().map(|m| m["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "assistant", "user"]);
    let as_text = with(r#"{"requiresThinkingAsText":true}"#);
    assert_eq!(as_text["messages"][2]["content"], "Hm.");
    assert_eq!(as_text["messages"][2].get("reasoning_content"), None);
    assert_eq!(with(r#"{"vllmPriority":2}"#)["priority"], 2);
    assert_eq!(with(r#"{"openRouterRouting":{"only":["x"]}}"#)["provider"], json!({"only": ["x"]}));
    assert_eq!(
        with(r#"{"vercelGatewayRouting":{"order":["x"],"new":1}}"#)["providerOptions"],
        json!({"gateway": {"order": ["x"]}})
    );

    let cached = with(r#"{"cacheControlFormat":"anthropic"}"#);
    let mark = json!({"type": "ephemeral"});
    assert_eq!(cached["tools"][0].get("cache_control"), None);
    assert_eq!(cached["tools"][1]["cache_control"], mark);
    for place in [0, 4] {
        assert_eq!(cached["messages"][place]["content"][0]["cache_control"], mark);
    }

    let mut bare = request(model(), short());
    bare.tools = Vec::new().into();
    bare.system = " ".into();
    let body = body(&bare);
    assert_eq!((body.get("tools"), &body["messages"][0]["role"]), (None, &json!("user")));
    bare.model = at("testing", "http://127.0.0.1:1", "m", r#"{"requiresToolsWithToolHistory":true}"#).into();
    assert_eq!(self::body(&bare)["tools"], json!([]));

    // Where a model's own thinking has no other place.
    let empty = at("deepseek", "https://example.com", "m", "{}");
    let body = self::body(&request(empty, short()));
    assert_eq!(body["messages"][2]["reasoning_content"], "");
}

#[test]
fn servers_are_told_to_think_in_their_own_ways() {
    let members = ["reasoning_effort", "reasoning", "thinking", "enable_thinking", "chat_template_kwargs"];
    let more = ["chat_template_args", "thinking_token_budget", "my_budget"];
    let check = |compat: &str, map: &str, level: Thinking, expect: Value| {
        let mut model = at("testing", "https://example.com", "m", compat);
        model.thinking_level_map = Json::parse(map).ok();
        let mut request = request(model, vec![user(vec![Content::text("Hi")])]);
        request.thinking = level;
        let body = body(&request);
        let got: serde_json::Map<_, _> = members
            .iter()
            .chain(&more)
            .filter_map(|name| Some(((*name).to_owned(), body.get(*name)?.clone())))
            .collect();
        assert_eq!(Value::Object(got), expect, "{compat} {map} {level:?}");
    };
    let format = |format: &str| format!(r#"{{"thinkingFormat":"{format}"}}"#);
    let (off, high) = (Thinking::Off, Thinking::High);
    check("{}", "{}", off, json!({}));
    check("{}", r#"{"off":"none"}"#, off, json!({"reasoning_effort": "none"}));
    check("{}", "{}", high, json!({"reasoning_effort": "high"}));
    check("{}", r#"{"high":"max"}"#, high, json!({"reasoning_effort": "max"}));
    check(r#"{"supportsReasoningEffort":false}"#, "{}", high, json!({}));
    check(&format("openrouter"), "{}", off, json!({"reasoning": {"effort": "none"}}));
    check(&format("openrouter"), "{}", high, json!({"reasoning": {"effort": "high"}}));
    check(&format("deepseek"), "{}", off, json!({"thinking": {"type": "disabled"}}));
    check(
        &format("deepseek"),
        "{}",
        high,
        json!({"thinking": {"type": "enabled"}, "reasoning_effort": "high"}),
    );
    // A model that cannot but think.
    check(
        &format("deepseek"),
        r#"{"off":null,"minimal":null,"low":null}"#,
        off,
        json!({"thinking": {"type": "enabled"}, "reasoning_effort": "medium"}),
    );
    check(
        &format("zai"),
        "{}",
        high,
        json!({"thinking": {"type": "enabled", "clear_thinking": false}, "reasoning_effort": "high"}),
    );
    check(&format("zai"), "{}", off, json!({"thinking": {"type": "disabled"}}));
    check(&format("qwen"), "{}", high, json!({"enable_thinking": true, "reasoning_effort": "high"}));
    check(
        &format("qwen-chat-template"),
        "{}",
        off,
        json!({"chat_template_kwargs": {"enable_thinking": false, "preserve_thinking": true}}),
    );
    check(&format("together"), "{}", off, json!({"reasoning": {"enabled": false}}));
    check(
        &format("together"),
        "{}",
        high,
        json!({"reasoning": {"enabled": true}, "reasoning_effort": "high"}),
    );
    check(&format("string-thinking"), "{}", off, json!({"thinking": "none"}));
    check(&format("string-thinking"), "{}", high, json!({"thinking": "high"}));
    check(&format("ant-ling"), "{}", high, json!({}));
    check(&format("ant-ling"), r#"{"high":"deep"}"#, high, json!({"reasoning": {"effort": "deep"}}));
    let kwargs = r#"{"thinkingFormat":"chat-template","chatTemplateKwargs":{"on":{"$var":"thinking.enabled"},
        "budget":{"$var":"thinking.budget"},"effort":{"$var":"thinking.effort","omitWhenOff":true},"x":1}}"#;
    check(
        kwargs,
        "{}",
        high,
        json!({"chat_template_kwargs": {"on": true, "budget": 16_384, "effort": "high", "x": 1}}),
    );
    check(kwargs, "{}", off, json!({"chat_template_kwargs": {"on": false, "x": 1}}));
    let args = r#"{"thinkingFormat":"baseten","chatTemplateArgs":{"on":{"$var":"thinking.enabled"}}}"#;
    check(args, "{}", high, json!({"reasoning_effort": "high", "chat_template_args": {"on": true}}));
    let budget = r#"{"supportsReasoningEffort":false,"supportsThinkingTokenBudget":true}"#;
    check(budget, "{}", Thinking::Low, json!({"thinking_token_budget": 2_048}));
    check(budget, "{}", off, json!({}));
    let budget = r#"{"supportsReasoningEffort":false,"thinkingTokenBudgetField":"my_budget"}"#;
    check(budget, "{}", high, json!({"my_budget": 16_384}));
}

#[test]
fn limits() {
    let check = |max_tokens: Option<u64>, level: Thinking, expect: u64| {
        let mut request = request(model(), vec![user(vec![Content::text("Hi")])]);
        (request.max_tokens, request.thinking) = (max_tokens, level);
        assert_eq!(body(&request)["max_tokens"], expect);
    };
    check(None, Thinking::Off, 64_000);
    check(Some(100), Thinking::Off, 100);
    check(Some(100), Thinking::Low, 2_148);
    check(Some(63_000), Thinking::High, 64_000);
}

#[test]
fn ids_of_other_servers_are_made_to_fit() {
    let long = format!("call_{}|fc_{}", "a".repeat(30), "b".repeat(400));
    let messages = vec![
        user(vec![Content::text("Hi")]),
        assistant("other", vec![call("call_1|fc_2", "read", "{}"), call(&long, "read", "{}")]),
        own(vec![call("call_1|fc_2", "read", "{}"), call(&"é".repeat(9), "read", "{}")]),
    ];
    let body = body(&request(model(), messages));
    let ids: Vec<&str> = body["messages"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|message| message["tool_calls"].as_array().into_iter().flatten())
        .map(|call| call["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids[0], "call_1_fc_2");
    assert!(ids[1].starts_with("call_aaaaaaaaaaaaaaaaaaaaaaaaaa_") && ids[1].len() == 40, "{}", ids[1]);
    assert_eq!(ids[2], "call_1|fc_2");
    assert_eq!(ids[3], "_________");
}

/// A later request repeats an earlier one up to the end of its messages.
#[test]
fn consecutive_bodies_share_their_beginning() {
    let all = conversation();
    let before = encode(&request(model(), all[..3].to_vec()));
    let after = encode(&request(model(), all));
    let shared = before.iter().zip(&after).take_while(|(a, b)| a == b).count();
    assert_eq!(std::str::from_utf8(&before[shared..]), Ok(r#"],"max_tokens":64000}"#));
}

#[test]
fn usage_of_earlier_answers_counts_for_the_limit() {
    let mut answer = own(vec![Content::text("x")]);
    if let Message::Assistant(answer) = &mut answer {
        answer.usage = Usage { input: 189_999, total_tokens: 189_999, ..Usage::default() };
    }
    let messages = vec![user(vec![Content::text("a")]), answer, user(vec![Content::text("abc")])];
    assert_eq!(body(&request(model(), messages))["max_tokens"], 5_904);
}

/// What a server checks of a conversation.
pub(crate) fn acceptable(body: &Value) -> Result<(), String> {
    let mut ids = HashSet::new();
    let mut open: Vec<String> = Vec::new();
    let name = |text: &str| {
        let ok = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        !text.is_empty() && text.len() <= 64 && text.chars().all(ok)
    };
    let says = |value: &Value| value.as_str().is_some_and(|text| !text.trim().is_empty());
    for (place, message) in body["messages"].as_array().unwrap().iter().enumerate() {
        let content = &message["content"];
        let role = message["role"].as_str().unwrap();
        if role != "tool" && !open.is_empty() {
            return Err(format!("{open:?} are not answered"));
        }
        let fits = match role {
            "system" | "developer" => place == 0 && says(content),
            "tool" => {
                let id = message["tool_call_id"].as_str().unwrap();
                let before = open.len();
                open.retain(|known| known != id);
                open.len() + 1 == before && says(content)
            }
            "user" => match content.as_array() {
                None => says(content),
                Some(parts) => {
                    !parts.is_empty()
                        && parts.iter().all(|part| match part["type"].as_str() {
                            Some("text") => says(&part["text"]),
                            Some("image_url") => {
                                part["image_url"]["url"].as_str().unwrap().starts_with("data:image/")
                            }
                            _ => false,
                        })
                }
            },
            "assistant" => {
                for call in message["tool_calls"].as_array().into_iter().flatten() {
                    let id = call["id"].as_str().unwrap();
                    let graphic =
                        !id.is_empty() && id.len() <= 64 && id.bytes().all(|b| b.is_ascii_graphic());
                    let arguments = call["function"]["arguments"].as_str().unwrap();
                    let object =
                        serde_json::from_str::<Value>(arguments).is_ok_and(|value| value.is_object());
                    let function = name(call["function"]["name"].as_str().unwrap());
                    if !graphic || !object || !function || call["type"] != "function" {
                        return Err(format!("a bad call {call}"));
                    }
                    if !ids.insert(id.to_owned()) {
                        return Err(format!("the id {id} twice"));
                    }
                    open.push(id.to_owned());
                }
                says(content) || (content.is_null() && !open.is_empty())
            }
            _ => false,
        };
        if !fits {
            return Err(format!("a bad message {message}"));
        }
    }
    if open.is_empty() { Ok(()) } else { Err(format!("{open:?} are not answered at the end")) }
}
