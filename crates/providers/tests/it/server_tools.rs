//! Searches of providers, and tools that are called with plain text: what is offered, kept and sent back.

use std::sync::Arc;

use proptest::prelude::*;
use quipu_protocol::{
    AssistantMessage, Content, Json, Message, Model, ModelRequest, ServerToolBlock, StopReason, Thinking,
    ToolSpec,
};
use quipu_providers::{CallEnd, CallEvent, CallOptions, Credentials, Memory, WebSearch, laws};
use quipu_testkit::Answer;
use serde_json::{Value, json};

use crate::conversations::model;
use crate::encode::{call, request, result, user};
use crate::wires::{self, WIRES, Wire};
use crate::{code_assist, encode, encode_codex, encode_contents, encode_responses};

const SEARCHING: [Wire; 5] =
    [Wire::Messages, Wire::Responses, Wire::Subscription, Wire::Contents, Wire::Envelope];
const PAGES: [&str; 2] = ["https://a.example/1", "https://b.example/2"];

/// A model of the wire that has a search.
fn searcher(wire: Wire) -> Model {
    let model = model(wire);
    let own = model.compat.as_ref().map(Json::value).unwrap_or_else(|| json!({}));
    let mut compat = own;
    compat["supportsWebSearch"] = json!(true);
    Model { compat: Some(Json::from(compat)), ..model }
}

fn body_with(request: &ModelRequest, web_search: WebSearch) -> Value {
    let options = CallOptions { web_search, ..CallOptions::default() };
    let provider = wires::provider(&request.model, Credentials::none(), &[], options).unwrap();
    serde_json::from_slice(&provider.encode(request).unwrap()).unwrap()
}

fn acceptable(wire: Wire, body: &Value) {
    let checked = match wire {
        Wire::Messages => encode::acceptable(body),
        Wire::Responses => encode_responses::acceptable(body),
        Wire::Subscription => encode_codex::acceptable(body),
        Wire::Contents => encode_contents::acceptable(body),
        Wire::Envelope => code_assist::acceptable(body),
        Wire::Completions | Wire::Chunks | Wire::Converse | Wire::Gateway => Ok(()),
    };
    assert_eq!(checked, Ok(()), "{wire:?}: {body}");
}

/// The body of the conversation: on one wire it stands within another.
fn within(wire: Wire, body: &Value) -> &Value {
    if wire == Wire::Envelope { &body["request"] } else { body }
}

fn say(text: &str) -> Message {
    user(vec![Content::text(text)])
}

fn decode(wire: Wire, model: &Model, stream: &str) -> (Vec<CallEvent>, CallEnd) {
    decode_bytes(wire, model, &wire.bytes(stream))
}

fn decode_bytes(wire: Wire, model: &Model, bytes: &[u8]) -> (Vec<CallEvent>, CallEnd) {
    let mut decoder = wires::decoder(wire, Arc::new(model.clone()), 7);
    let mut events = Vec::new();
    let pushed = decoder.push(bytes, &mut events);
    let error = pushed.and_then(|()| decoder.end(&mut events)).err();
    let (message, unknown, error) = decoder.finish(error.as_ref());
    let end = CallEnd { message, error, attempts: Vec::new(), charges: Vec::new(), unknown };
    laws::check(&events, &end).unwrap_or_else(|broken| panic!("{wire:?}: {broken}"));
    (events, end)
}

/// An answer that searches, says something and calls a tool.
fn searched(wire: Wire) -> AssistantMessage {
    let answer = Answer::on(wire).text("I look.").web_search("quipu knots", &PAGES).text("Knots.");
    let (_, end) = decode(wire, &searcher(wire), &answer.tool_call("c1", "read", r#"{"path":"a"}"#).stream());
    assert_eq!((&end.error, end.unknown.len()), (&None, 0), "{wire:?} {:?}", end.unknown);
    end.message
}

fn conversation(answer: AssistantMessage) -> Vec<Message> {
    let id = answer.tool_calls().next().unwrap().id.to_string();
    let result = result(&id, vec![Content::text("the file")], false);
    vec![say("Begin"), Message::Assistant(answer), result, say("Go on")]
}

#[test]
fn search_is_offered_only_where_it_is_wanted_and_there() {
    for wire in WIRES {
        let has = |model: Model, wanted: WebSearch, tools: bool| {
            let mut asked = request(model, vec![say("Hi")]);
            if !tools {
                asked.tools = Arc::new([]);
            }
            let body = body_with(&asked, wanted);
            let text = within(wire, &body)["tools"].to_string();
            text.contains("web_search") || text.contains("googleSearch")
        };
        let expect = SEARCHING.contains(&wire);
        assert_eq!(has(searcher(wire), WebSearch::On, true), expect, "{wire:?}");
        assert!(!has(searcher(wire), WebSearch::Off, true), "{wire:?}");
        assert!(!has(searcher(wire), WebSearch::On, false), "{wire:?}");
        let none = Model { provider: "mine".into(), compat: None, ..model(wire) };
        assert!(!has(none, WebSearch::On, true), "{wire:?}");
    }
}

#[test]
fn search_is_declared_in_the_form_of_each_api() {
    let tools = |wire: Wire| {
        let body = body_with(&request(searcher(wire), vec![say("Hi")]), WebSearch::On);
        let body = within(wire, &body);
        (body["tools"].as_array().unwrap().last().unwrap().clone(), body["toolConfig"].clone())
    };
    let messages = tools(Wire::Messages).0;
    assert_eq!(
        messages,
        json!({ "type": "web_search_20250305", "name": "web_search", "max_uses": 5, "cache_control": { "type": "ephemeral" } })
    );
    for wire in [Wire::Responses, Wire::Subscription] {
        assert_eq!(tools(wire).0, json!({ "type": "web_search" }));
    }
    for wire in [Wire::Contents, Wire::Envelope] {
        let (contents, config) = tools(wire);
        assert_eq!(contents["googleSearch"], json!({}));
        assert_eq!(contents["functionDeclarations"].as_array().unwrap().len(), 2);
        assert_eq!(config, json!({ "includeServerSideToolInvocations": true }));
    }
}

#[test]
fn search_is_kept_and_returned_unchanged() {
    for wire in SEARCHING {
        let answer = searched(wire);
        let used: Vec<ServerToolBlock> = answer.content.iter().filter_map(ServerToolBlock::of).collect();
        assert_eq!(used[0].summary(), "searched the web: quipu knots", "{wire:?}");
        let found = used.iter().any(|block| block.sources == PAGES);
        assert_eq!(found, matches!(wire, Wire::Messages | Wire::Contents | Wire::Envelope), "{wire:?}");
        // As any program reads and writes it.
        let json = serde_json::to_string(&answer).unwrap();
        let again: AssistantMessage = serde_json::from_str(&json).unwrap();
        assert_eq!(again, answer);
        for wanted in [WebSearch::On, WebSearch::Off] {
            let asked = request(searcher(wire), conversation(again.clone()));
            let options = CallOptions { web_search: wanted, ..CallOptions::default() };
            let provider = wires::provider(&asked.model, Credentials::none(), &[], options).unwrap();
            let bytes = provider.encode(&asked).unwrap().to_vec();
            let text = String::from_utf8(bytes).unwrap();
            acceptable(wire, &serde_json::from_str(&text).unwrap());
            for block in used.iter().filter_map(|block| block.data.as_deref()) {
                let is_part = matches!(wire, Wire::Contents | Wire::Envelope);
                let part = if is_part { part_of(block) } else { block.to_owned() };
                assert!(text.contains(&part), "{wire:?}: {part} in {text}");
            }
        }
    }
}

/// What a part holds, as it came; its signature stands behind it.
fn part_of(block: &str) -> String {
    let value: Value = serde_json::from_str(block).unwrap();
    let name = if value.get("toolCall").is_some() { "toolCall" } else { "toolResponse" };
    format!(r#""{name}":{},"thoughtSignature":{}"#, value[name], value["thoughtSignature"])
}

#[test]
fn searches_of_one_model_are_not_sent_to_another() {
    for (from, to) in SEARCHING.into_iter().flat_map(|from| WIRES.map(|to| (from, to))) {
        let answer = searched(from);
        let other = Model { id: "another".into(), ..searcher(to) };
        let asked = ModelRequest { thinking: Thinking::High, ..request(other, conversation(answer)) };
        let body = body_with(&asked, WebSearch::Off);
        acceptable(to, &body);
        let text = body.to_string();
        for said in ["Begin", "I look.", "Knots.", "the file", "Go on"] {
            assert!(text.contains(said), "{from:?} to {to:?}: {said} in {text}");
        }
        for own in ["quipu knots", "server_tool_use", "web_search", "toolResponse", "c2VhbGVk", "a.example"] {
            assert!(!text.contains(own), "{from:?} to {to:?}: {own} in {text}");
        }
    }
}

#[test]
fn cut_streams_with_a_search_keep_the_laws() {
    for wire in SEARCHING {
        let answer =
            Answer::on(wire).web_search("quipu knots", &PAGES).text("Knots.").web_search("more", &[]);
        let bytes = wire.bytes(&answer.stream());
        for end in 0..bytes.len() {
            let (_, end) = decode_bytes(wire, &searcher(wire), &bytes[..end]);
            let Message::Assistant(_) = Message::Assistant(end.message.clone()) else { unreachable!() };
            let asked =
                request(searcher(wire), vec![say("Begin"), Message::Assistant(end.message), say("Again")]);
            acceptable(wire, &body_with(&asked, WebSearch::On));
        }
    }
}

#[test]
fn failed_and_unknown_tools_of_the_server_do_no_harm() {
    let model = searcher(Wire::Messages);
    let block = |index: u64, block: Value| {
        [
            json!({ "type": "content_block_start", "index": index, "content_block": block }),
            json!({ "type": "content_block_stop", "index": index }),
        ]
    };
    let used = json!({ "type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": { "query": "q" } });
    let error = json!({ "type": "web_search_tool_result_error", "error_code": "max_uses_exceeded" });
    let failed = json!({ "type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": error });
    let other =
        json!({ "type": "server_tool_use", "id": "srvtoolu_2", "name": "code_execution", "input": {} });
    let ran = json!({ "type": "code_execution_tool_result", "tool_use_id": "srvtoolu_2", "content": [] });
    let lone = json!({ "type": "web_search_tool_result", "tool_use_id": "srvtoolu_9", "content": [] });
    let odd = json!({ "type": "mcp_tool_use", "id": "m" });
    let mut answer = Answer::new();
    for (index, one) in (0..).zip([used, failed, other, ran, lone, odd]) {
        for event in block(index, one) {
            answer = answer.event(event);
        }
    }
    let (_, end) = decode(Wire::Messages, &model, &answer.stream());
    assert_eq!(end.error, None);
    let summaries: Vec<String> =
        end.message.content.iter().filter_map(ServerToolBlock::of).map(|block| block.summary()).collect();
    assert_eq!(
        summaries,
        ["searched the web: q", "the search of the web failed: max_uses_exceeded", "", "", ""]
    );
    assert_eq!(end.unknown.len(), 2, "{:?}", end.unknown);
    let body = body_with(
        &request(model, vec![say("Begin"), Message::Assistant(end.message), say("On")]),
        WebSearch::On,
    );
    acceptable(Wire::Messages, &body);
    let text = body.to_string();
    assert!(text.contains("max_uses_exceeded") && text.contains("code_execution"), "{text}");
    assert!(!text.contains("srvtoolu_9"), "a result without its call: {text}");
}

#[test]
fn citations_go_back_to_the_model_that_has_them() {
    let model = searcher(Wire::Messages);
    let cited = json!({ "type": "web_search_result_location", "url": PAGES[0], "encrypted_index": "aW5kZXg", "n": 1.0 });
    let answer = Answer::new()
        .web_search("q", &PAGES)
        .event(json!({ "type": "content_block_start", "index": 2, "content_block": { "type": "text", "text": "" } }))
        .event(json!({ "type": "content_block_delta", "index": 2, "delta": { "type": "text_delta", "text": "Knots." } }))
        .event(json!({ "type": "content_block_delta", "index": 2, "delta": { "type": "citations_delta", "citation": cited } }))
        .event(json!({ "type": "content_block_stop", "index": 2 }));
    let (_, end) = decode(Wire::Messages, &model, &answer.stream());
    assert_eq!((&end.error, end.unknown.len()), (&None, 0));
    let asked = |model: Model| {
        let messages = vec![say("Begin"), Message::Assistant(end.message.clone()), say("Go on")];
        body_with(&request(model, messages), WebSearch::On)
    };
    let body = asked(model.clone());
    assert_eq!(body["messages"][1]["content"][2]["citations"], json!([cited]));
    assert!(!asked(Model { id: "x".into(), ..model }).to_string().contains("encrypted_index"));

    let model = searcher(Wire::Responses);
    let note =
        json!({ "type": "url_citation", "url": PAGES[0], "start_index": 0, "end_index": 5, "title": "A" });
    let part = json!({ "type": "output_text", "text": "Knots.", "annotations": [note] });
    let item = json!({ "type": "message", "id": "msg_1", "role": "assistant", "content": [part] });
    let answer = Answer::on(Wire::Responses)
        .event(
            json!({ "type": "response.output_text.annotation.added", "output_index": 0, "annotation": note }),
        )
        .event(json!({ "type": "response.output_item.done", "output_index": 0, "item": item }));
    let (_, end) = decode(Wire::Responses, &model, &answer.stream());
    assert_eq!((&end.error, end.unknown.len()), (&None, 0));
    let messages = vec![say("Begin"), Message::Assistant(end.message), say("Go on")];
    let body = body_with(&request(model, messages), WebSearch::On);
    assert_eq!(body["input"][2]["content"][0]["annotations"], json!([note]));
}

/// An answer that the server paused within its search.
fn paused() -> AssistantMessage {
    let used = json!({ "type": "server_tool_use", "id": "srvtoolu_5", "name": "web_search", "input": { "query": "q" } });
    let answer = Answer::new()
        .text("I look.")
        .event(json!({ "type": "content_block_start", "index": 1, "content_block": used }))
        .event(json!({ "type": "content_block_stop", "index": 1 }))
        .stop("pause_turn");
    decode(Wire::Messages, &searcher(Wire::Messages), &answer.stream()).1.message
}

#[test]
fn paused_answer_goes_back_as_it_is() {
    let answer = paused();
    assert_eq!(
        (answer.stop_reason, answer.raw_stop_reason.as_deref()),
        (StopReason::ToolUse, Some("pause_turn"))
    );
    let body = |messages: Vec<Message>| {
        let body = body_with(&request(searcher(Wire::Messages), messages), WebSearch::On);
        acceptable(Wire::Messages, &body);
        body
    };
    let held = body(vec![say("Begin"), Message::Assistant(answer.clone())]);
    let last = held["messages"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&last["role"], &last["content"][1]["id"]), (&json!("assistant"), &json!("srvtoolu_5")));
    // It goes on with the result.
    let result = json!({ "type": "web_search_tool_result", "tool_use_id": "srvtoolu_5", "content": [] });
    let more = Answer::new()
        .event(json!({ "type": "content_block_start", "index": 0, "content_block": result }))
        .event(json!({ "type": "content_block_stop", "index": 0 }))
        .event(json!({ "type": "content_block_start", "index": 1, "content_block": { "type": "text", "text": "So." } }))
        .event(json!({ "type": "content_block_stop", "index": 1 }));
    let more = decode(Wire::Messages, &searcher(Wire::Messages), &more.stream()).1.message;
    let whole = vec![say("Begin"), Message::Assistant(answer.clone()), Message::Assistant(more), say("On")];
    assert!(body(whole).to_string().contains("web_search_tool_result"));
    // The user speaks first: what has no result is left out.
    let stopped = body(vec![say("Begin"), Message::Assistant(answer), say("Stop")]);
    assert!(!stopped.to_string().contains("srvtoolu_5") && stopped.to_string().contains("I look."));
}

#[test]
fn growing_bodies_with_searches_are_those_made_anew() {
    for wire in SEARCHING {
        let mut messages = conversation(searched(wire));
        if wire == Wire::Messages {
            messages.extend([Message::Assistant(paused()), Message::Assistant(paused()), say("Stop")]);
            messages.extend([Message::Assistant(paused())]);
        }
        messages.extend([Message::Assistant(searched(wire)), say("End")]);
        let whole = request(searcher(wire), messages);
        let options = CallOptions { web_search: WebSearch::On, ..CallOptions::default() };
        let provider = wires::provider(&whole.model, Credentials::none(), &[], options).unwrap();
        let mut memory = Memory::default();
        for count in 1..=whole.messages.len() {
            let part = ModelRequest { messages: whole.messages[..count].to_vec().into(), ..whole.clone() };
            let grown = provider.encode_next(&part, &mut memory).unwrap();
            assert_eq!(grown.bytes, provider.encode(&part).unwrap(), "{wire:?} {count}");
        }
    }
}

#[test]
fn searches_are_in_the_cost_of_an_answer() {
    let model =
        Model { id: "claude-opus-5".into(), provider: "anthropic".into(), ..searcher(Wire::Messages) };
    let counted = json!({ "type": "message_delta", "delta": {}, "usage": { "server_tool_use": { "web_search_requests": 3 } } });
    let answer = Answer::new().web_search("q", &[]).event(counted);
    let (_, end) = decode(Wire::Messages, &model, &answer.stream());
    assert!((end.message.usage.cost.total - 0.03).abs() < 1e-9, "{:?}", end.message.usage);
}

fn patcher(wire: Wire, takes_text: bool) -> ModelRequest {
    let mut compat = json!({});
    compat["supportsOpenAIGrammarTools"] = json!(takes_text);
    let model = Model { compat: Some(Json::from(compat)), ..model(wire) };
    let tool = ToolSpec {
        name: "apply_patch".into(),
        description: "Patches.".into(),
        parameters: Json::parse(
            r#"{"type":"object","properties":{"input":{"type":"string"}},"required":["input"]}"#,
        )
        .unwrap(),
    };
    let patch = "*** Begin Patch\n*** Add File: a\n+\"x\"\n*** End Patch";
    let mine = call("call_1|ctc_1", "apply_patch", &json!({ "input": patch }).to_string());
    let odd = call("call_2|fc_2", "apply_patch", r#"{"path":"a"}"#);
    let messages = vec![
        say("Begin"),
        crate::conversations::own(wire, vec![mine, odd]),
        result("call_1|ctc_1", vec![Content::text("done")], false),
        result("call_2|fc_2", vec![Content::text("bad")], true),
        say("Go on"),
    ];
    ModelRequest { tools: vec![tool].into(), ..request(model, messages) }
}

#[test]
fn patches_are_plain_text_where_the_model_takes_it() {
    let body = body_with(&patcher(Wire::Responses, true), WebSearch::Off);
    acceptable(Wire::Responses, &body);
    let tool = &body["tools"][0];
    assert_eq!(
        (&tool["type"], &tool["format"]["type"], &tool["format"]["syntax"]),
        (&json!("custom"), &json!("grammar"), &json!("lark"))
    );
    assert!(tool["format"]["definition"].as_str().unwrap().starts_with("start: begin section+ end\n"));
    let kinds: Vec<&str> =
        body["input"].as_array().unwrap().iter().filter_map(|item| item["type"].as_str()).collect();
    let expect = ["custom_tool_call", "function_call", "custom_tool_call_output", "function_call_output"];
    assert_eq!(kinds, expect);
    assert_eq!(body["input"][2]["input"], "*** Begin Patch\n*** Add File: a\n+\"x\"\n*** End Patch");
    assert_eq!(body["input"][2]["id"], "ctc_1");
    for wire in WIRES {
        let body = body_with(&patcher(wire, false), WebSearch::Off);
        acceptable(wire, &body);
        let text = body.to_string();
        assert!(
            !text.contains("custom_tool") && !text.contains("lark") && text.contains("Begin Patch"),
            "{wire:?} {text}"
        );
    }
}

#[test]
fn text_calls_survive_their_round_trip() {
    let item = json!({ "type": "custom_tool_call", "id": "ctc_7", "call_id": "call_7", "name": "apply_patch", "input": "*** Begin Patch\n\"é\\" });
    let answer = Answer::on(Wire::Responses)
        .event(json!({ "type": "response.output_item.done", "output_index": 0, "item": item }));
    let mut asked = patcher(Wire::Responses, true);
    let (_, end) = decode(Wire::Responses, &asked.model, &answer.stream());
    asked.messages = Arc::new(vec![
        Arc::new(say("Begin")),
        Arc::new(Message::Assistant(end.message)),
        Arc::new(say("On")),
    ]);
    let body = body_with(&asked, WebSearch::Off);
    acceptable(Wire::Responses, &body);
    let sent = &body["input"][2];
    assert_eq!(
        (&sent["id"], &sent["call_id"], &sent["input"]),
        (&item["id"], &item["call_id"], &item["input"])
    );
    assert_eq!(body["input"][3]["type"], "custom_tool_call_output");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    /// Whatever is in a block of this type, the request is one that the server takes.
    #[test]
    fn any_server_tool_block_leaves_a_body_that_is_taken(data in "[a-z{}\":,_\\[\\]]{0,60}", tool in "[a-z_]{0,12}") {
        for wire in SEARCHING {
            let block = ServerToolBlock { data: Some(data.clone()), ..ServerToolBlock::new(tool.clone()) };
            let answer = crate::conversations::own(wire, vec![Content::text("So."), block.into_content()]);
            let asked = request(searcher(wire), vec![say("Begin"), answer, say("Go on")]);
            acceptable(wire, &body_with(&asked, WebSearch::On));
        }
    }
}
