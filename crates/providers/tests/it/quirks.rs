//! Each quirk that `models.json` may name and each server of the table: what it does to a request.

use std::sync::Arc;

use quipu_protocol::{Content, Json, Message, Model, ModelRequest, Thinking, ToolSpec};
use quipu_providers::{CacheRetention, Call, CallOptions, HeaderChanges, ThinkingBudgets};
use quipu_testkit::{Answer, FakeServer};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::encode::{assistant, call, request, result, thinking, user};
use crate::wires::{self, WIRES, Wire, api};
use crate::{
    code_assist, encode, encode_codex, encode_completions, encode_contents, encode_converse, encode_mistral,
    encode_pi_messages, encode_responses,
};

/// A call and its result, thinking with and without proof, and words behind the result.
fn messages(wire: Wire) -> Vec<Message> {
    let answer = |content| match wire {
        Wire::Messages => assistant("claude-test-1", content),
        Wire::Completions => encode_completions::own(content),
        Wire::Responses => encode_responses::own(content),
        Wire::Contents => encode_contents::own(content),
        Wire::Subscription => encode_codex::own(content),
        Wire::Chunks => encode_mistral::own(content),
        Wire::Converse => encode_converse::own(content),
        Wire::Gateway => encode_pi_messages::own(content),
        Wire::Envelope => code_assist::own(content),
    };
    vec![
        user(vec![Content::text("Hi")]),
        answer(vec![thinking("Hm.", Some("reasoning_content"), None), call("a", "read", "{}")]),
        result("a", vec![Content::text("ok")], false),
        answer(vec![thinking("Unsigned.", None, None), Content::text("Yes.")]),
        user(vec![Content::text("And?")]),
        answer(vec![call("b", "read", "{}")]),
        result("b", vec![Content::text("ok")], false),
        user(vec![Content::text("So?")]),
    ]
}

fn asked(wire: Wire, compat: &str) -> ModelRequest {
    let mut model = match wire {
        Wire::Messages => encode::model(),
        Wire::Completions => Model { base_url: "http://127.0.0.1:1".into(), ..encode_completions::model() },
        Wire::Responses => encode_responses::model(),
        Wire::Contents => encode_contents::model(),
        Wire::Subscription => encode_codex::model(),
        Wire::Chunks => encode_mistral::model(),
        Wire::Converse => encode_converse::model(),
        Wire::Gateway => encode_pi_messages::model(),
        Wire::Envelope => code_assist::model(),
    };
    model.compat = Json::parse(compat).ok();
    ModelRequest { thinking: Thinking::Medium, ..request(model, messages(wire)) }
}

fn body(request: &ModelRequest, options: CallOptions) -> Value {
    let provider =
        wires::provider(&request.model, quipu_providers::Credentials::none(), &[], options).unwrap();
    serde_json::from_slice(&provider.encode(request).unwrap()).unwrap()
}

#[test]
fn schemas_of_tools_are_those_of_the_server_on_each_wire() {
    let schema =
        r#"{"type":"object","properties":{"p":{"anyOf":[{"type":"string","minLength":7},{"type":"null"}]}}}"#;
    for wire in WIRES {
        let sent = |dialect: &str| {
            let mut asked = asked(wire, &format!(r#"{{"toolSchema":"{dialect}"}}"#));
            let parameters = Json::parse(schema).unwrap();
            asked.tools = Arc::new([ToolSpec { name: "t".into(), description: "d".into(), parameters }]);
            body(&asked, CallOptions::default()).to_string()
        };
        // What a server of Gemini takes is known by the wire.
        let others = !matches!(wire, Wire::Contents | Wire::Envelope);
        let has = |dialect: &str| ["minLength", "anyOf"].map(|word| sent(dialect).contains(word));
        assert_eq!(has("json-schema"), [others, others], "{wire:?}");
        assert_eq!(has("without-sizes"), [false, others], "{wire:?}");
        assert_eq!(has("without-unions"), [others, false], "{wire:?}");
        assert_eq!(has("subset"), [false, false], "{wire:?}");
    }
}

/// The wire, `compat`, where to look in the body, and what is there without and with it.
type Row = (Wire, &'static str, &'static str, &'static str, &'static str);

const NOTHING: &str = "";

#[rustfmt::skip]
const ROWS: &[Row] = {
    const M: Wire = Wire::Messages;
    const C: Wire = Wire::Completions;
    const R: Wire = Wire::Responses;
    &[
        (C, r#"{"maxTokensField":"max_completion_tokens"}"#, "/max_completion_tokens", NOTHING, "64000"),
        (C, r#"{"maxTokensField":"max_completion_tokens"}"#, "/max_tokens", "64000", NOTHING),
        (C, r#"{"supportsStore":true}"#, "/store", NOTHING, "false"),
        (C, r#"{"supportsUsageInStreaming":false}"#, "/stream_options", r#"{"include_usage":true}"#, NOTHING),
        (C, r#"{"supportsDeveloperRole":true}"#, "/messages/0/role", r#""system""#, r#""developer""#),
        (C, r#"{"supportsStrictMode":true}"#, "/tools/1/function/strict", NOTHING, "false"),
        (C, r#"{"supportsReasoningEffort":false}"#, "/reasoning_effort", r#""medium""#, NOTHING),
        (C, r#"{"thinkingFormat":"openrouter"}"#, "/reasoning", NOTHING, r#"{"effort":"medium"}"#),
        (C, r#"{"thinkingFormat":"deepseek"}"#, "/thinking", NOTHING, r#"{"type":"enabled"}"#),
        (C, r#"{"thinkingFormat":"zai"}"#, "/thinking", NOTHING, r#"{"clear_thinking":false,"type":"enabled"}"#),
        (C, r#"{"thinkingFormat":"qwen"}"#, "/enable_thinking", NOTHING, "true"),
        (C, r#"{"thinkingFormat":"qwen-chat-template"}"#, "/chat_template_kwargs", NOTHING, r#"{"enable_thinking":true,"preserve_thinking":true}"#),
        (C, r#"{"thinkingFormat":"together"}"#, "/reasoning", NOTHING, r#"{"enabled":true}"#),
        (C, r#"{"thinkingFormat":"string-thinking"}"#, "/thinking", NOTHING, r#""medium""#),
        (C, r#"{"thinkingFormat":"ant-ling"}"#, "/reasoning_effort", r#""medium""#, NOTHING),
        (C, r#"{"thinkingFormat":"chat-template","chatTemplateKwargs":{"on":{"$var":"thinking.enabled"}}}"#, "/chat_template_kwargs", NOTHING, r#"{"on":true}"#),
        (C, r#"{"thinkingFormat":"baseten","chatTemplateArgs":{"n":{"$var":"thinking.budget"},"e":{"$var":"thinking.effort"}}}"#, "/chat_template_args", NOTHING, r#"{"e":"medium","n":8192}"#),
        (C, r#"{"thinkingTokenBudgetField":"budget"}"#, "/budget", NOTHING, "8192"),
        (C, r#"{"supportsThinkingTokenBudget":true}"#, "/thinking_token_budget", NOTHING, "8192"),
        (C, r#"{"requiresToolResultName":true}"#, "/messages/3/name", NOTHING, r#""read""#),
        (C, r#"{"requiresAssistantAfterToolResult":true}"#, "/messages/8/role", r#""user""#, r#""assistant""#),
        (C, r#"{"requiresNonNullAssistantContent":true}"#, "/messages/2/content", "null", r#""""#),
        (C, r#"{"requiresThinkingAsText":true}"#, "/messages/2/content", "null", r#""Hm.""#),
        (C, r#"{"requiresThinkingAsText":true}"#, "/messages/2/reasoning_content", r#""Hm.""#, NOTHING),
        (C, r#"{"requiresReasoningContentOnAssistantMessages":true}"#, "/messages/4/reasoning_content", NOTHING, r#""Unsigned.""#),
        (C, r#"{"requiresReasoningContentOnAssistantMessages":true}"#, "/messages/6/reasoning_content", NOTHING, r#""""#),
        (C, r#"{"cacheControlFormat":"anthropic"}"#, "/messages/0/content/0/cache_control", NOTHING, r#"{"type":"ephemeral"}"#),
        (C, r#"{"cacheControlFormat":"anthropic"}"#, "/tools/1/cache_control", NOTHING, r#"{"type":"ephemeral"}"#),
        (C, r#"{"promptCacheKeyMode":"enabled"}"#, "/prompt_cache_key", NOTHING, r#""s""#),
        (C, r#"{"zaiToolStream":true}"#, "/tool_stream", NOTHING, "true"),
        (C, r#"{"vllmPriority":2}"#, "/priority", NOTHING, "2"),
        (C, r#"{"openRouterRouting":{"only":["x"]}}"#, "/provider", NOTHING, r#"{"only":["x"]}"#),
        (C, r#"{"vercelGatewayRouting":{"order":["x"],"new":1}}"#, "/providerOptions", NOTHING, r#"{"gateway":{"order":["x"]}}"#),
        (M, r#"{"forceAdaptiveThinking":true}"#, "/output_config/effort", NOTHING, r#""medium""#),
        (M, r#"{"supportsCacheControlOnTools":false}"#, "/tools/1/cache_control", r#"{"type":"ephemeral"}"#, NOTHING),
        (M, r#"{"allowEmptySignature":true}"#, "/messages/3/content/0/signature", NOTHING, r#""""#),
        (R, r#"{"supportsDeveloperRole":true}"#, "/input/0/role", r#""system""#, r#""developer""#),
        (R, r#"{"supportsStrictMode":true}"#, "/tools/1/strict", NOTHING, "false"),
        (R, r#"{"supportsReasoningEffort":false}"#, "/reasoning/effort", r#""medium""#, NOTHING),
        (R, r#"{"supportsMaxOutputTokens":false}"#, "/max_output_tokens", "64000", NOTHING),
    ]
};

#[test]
fn each_quirk_does_what_it_says() {
    let at = |body: &Value, place: &str| body.pointer(place).map(ToString::to_string).unwrap_or_default();
    let sorted = |text: &str| match text {
        "" => String::new(),
        text => serde_json::from_str::<Value>(text).unwrap().to_string(),
    };
    for &(wire, compat, place, without, with) in ROWS {
        let sees = |compat: &str, expect: &str| {
            let body = body(&asked(wire, compat), CallOptions::default());
            let (got, expect) = (at(&body, place), sorted(expect));
            let same = |text: &str| serde_json::from_str::<Value>(text).ok();
            assert!(
                got == expect || same(&got) == same(&expect) && !got.is_empty(),
                "{compat} {place}: {got}, not {expect}"
            );
        };
        sees("{}", without);
        sees(compat, with);
    }
    // Where there are no tools any more.
    let bare = |compat: &str| {
        let mut request = asked(Wire::Completions, compat);
        request.tools = Vec::new().into();
        body(&request, CallOptions::default()).get("tools").cloned()
    };
    assert_eq!(bare("{}"), None);
    assert_eq!(bare(r#"{"requiresToolsWithToolHistory":true}"#), Some(json!([])));
}

/// Those that are about headers, the end of an answer, or a long cache are tried below.
const ELSEWHERE: [&str; 11] = [
    "keyHeader",
    "requiresToolsWithToolHistory",
    "sendSessionAffinityHeaders",
    "sessionAffinityFormat",
    "supportsExplicitPromptCacheMode",
    "supportsFinishReason",
    "supportsLongCacheRetention",
    // Below `server_tools`.
    "supportsOpenAIGrammarTools",
    "supportsWebSearch",
    // In the tests of the command.
    "supportsOutputSchema",
    // In `schemas_of_tools_are_those_of_the_server_on_each_wire`.
    "toolSchema",
];

/// The documentation names each quirk, and each that it names has a row here.
#[test]
fn each_quirk_of_the_documentation_has_a_row() {
    let page = include_str!("../../../../docs/providers.md");
    let (_, section) = page.split_once("## Quirks").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let (section, _) = section.split_once("Not supported yet").unwrap();
    let is_quirk = |word: &&str| {
        word.chars().all(|c| c.is_ascii_alphabetic())
            && word.chars().any(|c| c.is_ascii_uppercase())
            && word.starts_with(|c: char| c.is_ascii_lowercase())
    };
    let words: Vec<&str> = section.split('`').skip(1).step_by(2).filter(is_quirk).collect();
    assert!(words.len() > 30, "{words:?}");
    for word in words {
        let in_rows = ROWS.iter().any(|(_, compat, ..)| compat.contains(&format!("\"{word}\"")));
        assert!(in_rows || ELSEWHERE.contains(&word) || word == "omitWhenOff", "{word} has no row");
    }
    for (_, compat, ..) in ROWS {
        for word in serde_json::from_str::<serde_json::Map<String, Value>>(compat).unwrap().keys() {
            assert!(section.contains(&format!("`{word}`")), "{word} is not in the documentation");
        }
    }
}

#[test]
fn caches_are_kept_as_long_as_is_asked() {
    let check = |wire: Wire, compat: &str, cache: CacheRetention, expect: Value| {
        let body = body(&asked(wire, compat), CallOptions { cache, ..CallOptions::default() });
        let last = body["messages"].as_array().unwrap().last().unwrap();
        let marks =
            [&body["system"][0], &body["tools"][1], &last["content"][0]].map(|at| &at["cache_control"]);
        assert!(marks.windows(2).all(|pair| wire == Wire::Completions || pair[0] == pair[1]), "{marks:?}");
        let got = json!([marks[1], body["prompt_cache_key"], body["prompt_cache_retention"]]);
        assert_eq!(got, expect, "{wire:?} {compat} {cache:?}");
    };
    use CacheRetention::{Long, Off, Short};
    let short = json!({ "type": "ephemeral" });
    let long = json!({ "type": "ephemeral", "ttl": "1h" });
    let not_long = r#"{"supportsLongCacheRetention":false}"#;
    check(Wire::Messages, "{}", Short, json!([short, null, null]));
    check(Wire::Messages, "{}", Long, json!([long, null, null]));
    check(Wire::Messages, not_long, Long, json!([short, null, null]));
    check(Wire::Messages, "{}", Off, json!([null, null, null]));
    check(Wire::Completions, "{}", Short, json!([null, null, null]));
    check(Wire::Completions, "{}", Long, json!([null, "s", "24h"]));
    check(Wire::Completions, not_long, Long, json!([null, null, null]));
    check(Wire::Completions, r#"{"promptCacheKeyMode":"disabled"}"#, Long, json!([null, null, "24h"]));
    let marked = r#"{"cacheControlFormat":"anthropic","promptCacheKeyMode":"enabled"}"#;
    check(Wire::Completions, marked, Short, json!([short, "s", null]));
    check(Wire::Completions, marked, Long, json!([long, "s", "24h"]));
    check(Wire::Completions, marked, Off, json!([null, null, null]));
}

#[test]
fn thinking_is_given_the_tokens_that_the_user_says() {
    let budgets = ThinkingBudgets { medium: 3_000, ..ThinkingBudgets::default() };
    let options = CallOptions { budgets, ..CallOptions::default() };
    let body = |wire, compat| self::body(&asked(wire, compat), options.clone());
    assert_eq!(body(Wire::Messages, "{}")["thinking"]["budget_tokens"], 3_000);
    let counted = r#"{"supportsThinkingTokenBudget":true}"#;
    assert_eq!(body(Wire::Completions, counted)["thinking_token_budget"], 3_000);
}

#[test]
fn sampling_is_sent_as_it_is_and_wins() {
    let with = |wire: Wire, params: &str| {
        let mut request = asked(wire, r#"{"supportsStore":true,"thinkingTokenBudgetField":"budget"}"#);
        Arc::make_mut(&mut request.model).sampling_params = Json::parse(params).ok();
        body(&request, CallOptions::default())
    };
    let plain = with(Wire::Completions, "{}");
    let body = with(
        Wire::Completions,
        r#"{"temperature":0.25,"top_k":40,"max_tokens":5,"store":true,"reasoning_effort":"odd","budget":1,
            "model":"other","messages":[],"stream":false,"tools":[],"nested":{"\ud800":1}}"#,
    );
    let picked = ["temperature", "top_k", "max_tokens", "store", "reasoning_effort", "budget", "stream"];
    assert_eq!(json!(picked.map(|name| &body[name])), json!([0.25, 40, 5, true, "odd", 1, true]));
    for fixed in ["model", "messages", "tools"] {
        assert_eq!(body[fixed], plain[fixed], "{fixed}");
    }
    for odd in ["[1]", "null", "7"] {
        assert_eq!(with(Wire::Completions, odd), plain);
    }
    // The other wire has no place for it.
    assert_eq!(with(Wire::Messages, r#"{"temperature":1}"#), with(Wire::Messages, "{}"));
}

/// Who is known by name, on requests that are the same but for their quirks: one line each.
#[test]
fn each_server_of_the_table_gets_its_own() {
    #[derive(serde::Deserialize)]
    #[serde(default)]
    #[derive(Default)]
    struct Row {
        providers: Vec<String>,
        hosts: Vec<String>,
        models: Vec<String>,
    }
    let rows: Vec<Row> = serde_json::from_str(include_str!("../../data/quirks.json")).unwrap();
    let mut lines = Vec::new();
    for row in rows {
        let of = |provider: &str, url: &str| {
            let mut model = encode_completions::model();
            (model.provider, model.base_url) = (provider.into(), url.into());
            model.id = format!("{}m", row.models.first().map_or("", String::as_str));
            let request =
                ModelRequest { thinking: Thinking::Medium, ..request(model, messages(Wire::Completions)) };
            let mut body =
                body(&request, CallOptions { cache: CacheRetention::Long, ..CallOptions::default() });
            let roles = body["messages"].as_array().unwrap().iter();
            let roles: Vec<String> = roles
                .map(|message| {
                    let more =
                        ["reasoning_content", "name"].map(|it| message.get(it).map(|_| format!("+{it}")));
                    let marked = message.to_string().contains("cache_control").then(|| "*".to_owned());
                    let role = message["role"].as_str().unwrap().to_owned();
                    std::iter::once(role).chain(more.into_iter().flatten()).chain(marked).collect()
                })
                .collect();
            body["messages"] = json!(roles.join(" "));
            let tools = &body["tools"][1];
            body["tools"] = json!([tools["function"]["strict"], tools["cache_control"]]);
            body.to_string()
        };
        let named = row.providers.iter().map(|name| (name.clone(), of(name, "https://example.com/v1")));
        let known = row.hosts.iter().map(|host| (host.clone(), of("mine", &format!("https://{host}/v1"))));
        let known: Vec<_> = named.chain(known).collect();
        let prefix = row.models.join(" ");
        lines.extend(known.into_iter().map(|(who, body)| format!("{who} {prefix}: {body}")));
    }
    lines.sort();
    lines.dedup();
    assert!(lines.len() > 30);
    insta::with_settings!({ snapshot_path => "../snapshots", prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!("servers", lines.join("\n"));
    });
}

/// Headers that name the session are for those who keep something of it.
#[tokio::test]
async fn a_session_is_not_named_where_nothing_is_kept() {
    let all = [Wire::Messages, Wire::Completions, Wire::Responses, Wire::Subscription, Wire::Chunks];
    for wire in all {
        for (cache, named) in [(CacheRetention::Short, true), (CacheRetention::Off, false)] {
            let server = FakeServer::start([Answer::on(wire).text("x").reply()]);
            let mut request = asked(wire, r#"{"sendSessionAffinityHeaders":true}"#);
            let model = Arc::make_mut(&mut request.model);
            (model.base_url, model.api) = (server.url(), api(wire).into());
            let provider = wires::provider(
                &request.model,
                quipu_providers::Credentials::none(),
                &[],
                CallOptions { cache, ..CallOptions::default() },
            )
            .unwrap();
            let (send, _receive) = mpsc::channel(64);
            let body = provider.encode(&request).unwrap();
            let call = Call {
                request: Arc::new(request),
                body,
                events: send,
                cancel: CancellationToken::new(),
                retries: None,
                secrets: None,
                headers: HeaderChanges::default(),
                responses: None,
            };
            assert_eq!(provider.send(call).await.error, None);
            let asked = &server.requests()[0];
            let header = match wire {
                Wire::Responses => "session_id",
                Wire::Subscription => "session-id",
                Wire::Chunks => "x-affinity",
                _ => "x-session-affinity",
            };
            assert_eq!(asked.header(header).is_some(), named, "{wire:?} {cache:?}");
        }
    }
}
