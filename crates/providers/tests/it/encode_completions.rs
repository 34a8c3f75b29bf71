//! What is sent on the second wire, and what its servers check.

use std::collections::HashSet;

use quipu_protocol::{Content, Json, Message, Model, Thinking, Usage};
use serde_json::{Value, json};

use crate::encode::{self, assistant, body, call, encode, image, request, result, thinking, user};

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
pub(crate) fn conversation() -> Vec<Message> {
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
