//! The search of a provider, and patches in the place of edits, from the settings to the files.

use quipu_testkit::{Answer, Wire};
use serde_json::{Value, json};

use crate::support::*;

const PAGES: [&str; 1] = ["https://a.example/1"];

/// A model on this wire with these quirks.
fn configure(world: &World, api: &str, compat: &Value) {
    let model = json!({
        "id": MODEL, "api": api, "contextWindow": 200_000, "maxTokens": 8_000, "input": ["text"], "compat": compat,
        "cost": { "input": 1, "output": 1, "cacheRead": 0, "cacheWrite": 0 },
    });
    let provider = json!({ "baseUrl": world.server.url(), "apiKey": KEY, "models": [model] });
    let file = json!({ "providers": { "testing": provider } });
    std::fs::write(world.path("home/.quipu/models.json"), file.to_string()).unwrap();
}

fn tools(request: &quipu_testkit::CapturedRequest) -> Vec<Value> {
    serde_json::from_slice::<Value>(&request.body).unwrap()["tools"].as_array().unwrap().clone()
}

fn names(tools: &[Value]) -> Vec<&str> {
    tools.iter().filter_map(|tool| tool["name"].as_str()).collect()
}

#[test]
fn web_search_is_offered_only_to_a_run_that_wants_it() {
    let search = Answer::new().web_search("quipu knots", &PAGES).text("Knots.");
    let world = World::new([
        search.reply(),
        Answer::new().text("Again.").reply(),
        Answer::new().text("Off.").reply(),
    ]);
    configure(&world, "anthropic-messages", &json!({ "supportsWebSearch": true }));
    let ran = world.run(&["-p", "--web-search", "first"]).ok();
    assert_eq!(ran.text(), "Knots.\n");
    assert!(ran.err.contains("• searched the web: quipu knots\n"), "{}", ran.err);
    assert!(ran.err.contains("• found 1 page\n"), "{}", ran.err);
    world.run(&["config", "set", "webSearch", "true"]).ok();
    world.run(&["-p", "-c", "second"]).ok();
    world.run(&["config", "unset", "webSearch"]).ok();
    world.run(&["-p", "-c", "third"]).ok();
    let requests = world.requests();
    let offered: Vec<bool> =
        requests.iter().map(|request| names(&tools(request)).contains(&"web_search")).collect();
    assert_eq!(offered, [true, true, false]);
    // What was found is sent back as it came, in both.
    for request in &requests[1..] {
        let answer = &messages(request)[1];
        assert_eq!(answer["content"][0]["type"], "server_tool_use");
        assert_eq!(answer["content"][1]["content"][0]["encrypted_content"], "c2VhbGVk", "{answer}");
    }
    let shown = world.run(&["show", world.nodes()[2]["id"].as_str().unwrap()]).ok().text();
    assert!(shown.contains("searched the web: quipu knots") && shown.contains(PAGES[0]), "{shown}");
    let session = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    let page = world.run(&["export", "--format", "markdown", &session]).ok().text();
    assert!(page.contains("searched the web: quipu knots") && !page.contains("c2VhbGVk"), "{page}");
    // As a session file of Pi and back, it is the same message.
    let file = world.path("tmp/session.jsonl");
    world.run(&["export", "--format", "pi", "-o", file.to_str().unwrap(), &session]).ok();
    let lines = std::fs::read_to_string(&file).unwrap();
    let line = lines.lines().find(|line| line.contains("serverTool")).unwrap();
    let entry: Value = serde_json::from_str(line).unwrap();
    assert_eq!(
        (&entry["message"]["role"], &entry["message"]["content"][2]["text"]),
        (&json!("assistant"), &json!("Knots."))
    );
    let mut other = world;
    other.another_server([Answer::new().text("Back.").reply()]);
    configure(&other, "anthropic-messages", &json!({ "supportsWebSearch": true }));
    let copy = other.path("tmp/other.jsonl");
    std::fs::write(&copy, lines.replace(&session, "0199aaaa-0000-4000-8000-000000000009")).unwrap();
    other.run(&["-p", "--session", copy.to_str().unwrap(), "fourth"]).ok();
    let sent = messages(other.requests().last().unwrap());
    assert_eq!(sent[1]["content"][1]["content"][0]["encrypted_content"], "c2VhbGVk", "{sent:?}");
}

#[test]
fn project_cannot_turn_web_search_on() {
    let world = World::new([Answer::new().text("Hello.").reply()]);
    configure(&world, "anthropic-messages", &json!({ "supportsWebSearch": true }));
    std::fs::create_dir(world.path("work/.quipu")).unwrap();
    world.file(".quipu/settings.json", r#"{"webSearch":true}"#);
    world.run(&["-p", "first"]).ok();
    assert!(!names(&tools(&world.requests()[0])).contains(&"web_search"));
}

#[test]
fn missing_web_search_is_said_once_and_the_run_goes_on() {
    let call = call("c1", "read", &json!({ "path": "a" }));
    let world = World::new([call, Answer::new().text("Done.").reply()]);
    world.file("a", "text");
    let ran = world.run(&["-p", "--web-search", "first"]).ok();
    assert_eq!(ran.text(), "Done.\n");
    assert_eq!(ran.err.matches("has no web search of its provider").count(), 1, "{}", ran.err);
}

#[test]
fn web_search_that_a_fallback_model_lacks_is_said_at_the_change() {
    let busy = quipu_testkit::Reply::error(529, "overloaded_error", "Overloaded");
    let world = World::new([busy, Answer::new().text("Done.").reply()]);
    let models = world.path("home/.quipu/models.json");
    let mut file: Value = serde_json::from_str(&std::fs::read_to_string(&models).unwrap()).unwrap();
    for model in file["providers"]["testing"]["models"].as_array_mut().unwrap() {
        model["compat"] = json!({ "supportsWebSearch": model["id"] == MODEL });
    }
    std::fs::write(&models, file.to_string()).unwrap();
    let set = json!({ "fallbackModels": ["testing/thinker"], "retry": { "enabled": false } });
    std::fs::write(world.path("home/.quipu/settings.json"), set.to_string()).unwrap();
    let ran = world.run(&["-p", "--web-search", "first"]).ok();
    assert_eq!(ran.text(), "Done.\n");
    let words = "testing/thinker has no web search of its provider. The session has no web search.";
    assert_eq!(ran.err.matches(words).count(), 1, "{}", ran.err);
    assert!(!ran.err.contains("testing/test-1 has no"), "{}", ran.err);
    let offered: Vec<bool> =
        world.requests().iter().map(|it| names(&tools(it)).contains(&"web_search")).collect();
    assert_eq!(offered, [true, false]);
}

#[test]
fn web_search_is_refused_by_commands_that_ask_for_none() {
    let world = World::says("Hello.");
    world.run(&["-p", "first"]).ok();
    for command in ["compact", "context"] {
        world.run(&[command, "--web-search"]).fails(2, &["--web-search"]);
    }
    assert_eq!(world.requests().len(), 1);
}

#[test]
fn paused_search_goes_on_in_the_same_run() {
    let used = json!({ "type": "server_tool_use", "id": "srvtoolu_5", "name": "web_search", "input": { "query": "q" } });
    let paused = Answer::new()
        .event(json!({ "type": "content_block_start", "index": 0, "content_block": used }))
        .event(json!({ "type": "content_block_stop", "index": 0 }))
        .stop("pause_turn");
    let result = json!({ "type": "web_search_tool_result", "tool_use_id": "srvtoolu_5", "content": [] });
    let more = Answer::new()
        .event(json!({ "type": "content_block_start", "index": 0, "content_block": result }))
        .event(json!({ "type": "content_block_stop", "index": 0 }))
        .event(json!({ "type": "content_block_start", "index": 1, "content_block": { "type": "text", "text": "So." } }))
        .event(json!({ "type": "content_block_stop", "index": 1 }));
    let world = World::new([paused.reply(), more.reply(), Answer::new().text("Bye.").reply()]);
    configure(&world, "anthropic-messages", &json!({ "supportsWebSearch": true }));
    let ran = world.run(&["-p", "--web-search", "first"]).ok();
    assert_eq!(ran.text(), "So.\n");
    let requests = world.requests();
    let sent = messages(&requests[1]);
    assert_eq!((sent.len(), &sent[1]["role"], &sent[1]["content"]), (2, &json!("assistant"), &json!([used])));
    world.run(&["-p", "-c", "--web-search", "second"]).ok();
    let sent = messages(&world.requests()[2]);
    assert_eq!(sent[2]["content"][0], result);
}

#[test]
fn endless_pauses_end_the_run() {
    let used = json!({ "type": "server_tool_use", "id": "srvtoolu_5", "name": "web_search", "input": { "query": "q" } });
    let paused = Answer::new()
        .event(json!({ "type": "content_block_start", "index": 0, "content_block": used }))
        .event(json!({ "type": "content_block_stop", "index": 0 }))
        .stop("pause_turn");
    let world = World::new(vec![paused.reply(); 30]);
    configure(&world, "anthropic-messages", &json!({ "supportsWebSearch": true }));
    world.run(&["-p", "--web-search", "first"]);
    assert_eq!(world.requests().len(), 17);
}

fn patch(body: &str) -> String {
    format!("*** Begin Patch\n{body}*** End Patch")
}

/// A call of the tool as the servers of this API make it.
fn patch_call(id: &str, body: &str) -> quipu_testkit::Reply {
    let item = json!({
        "type": "custom_tool_call", "id": format!("ctc_{id}"), "call_id": format!("call_{id}"), "name": "apply_patch",
        "input": patch(body),
    });
    let done = json!({ "type": "response.output_item.done", "output_index": 0, "item": item });
    Answer::on(Wire::Responses).event(done).reply()
}

fn read(world: &World, name: &str) -> Option<String> {
    std::fs::read_to_string(world.path(&format!("work/{name}"))).ok()
}

#[test]
fn patches_change_files_and_are_undone() {
    let says = |text: &str| Answer::on(Wire::Responses).text(text).reply();
    let body = "*** Update File: a\n@@\n one\n-two\n+2\n*** Add File: new\n+n\n*** Delete File: gone\n\
                *** Update File: old\n*** Move to: moved\n-x\n+y\n";
    let world = World::new([
        patch_call("1", body),
        says("Done."),
        patch_call("2", "*** Update File: a\n-zzz\n"),
        says("Failed."),
    ]);
    configure(&world, "openai-responses", &json!({ "supportsOpenAIGrammarTools": true }));
    for (name, text) in [("a", "one\ntwo\n"), ("gone", "g\n"), ("old", "x\n")] {
        world.file(name, text);
    }
    let ran = world.run(&["-p", "first"]).ok();
    assert!(ran.err.contains("• apply_patch a, new, gone, old\n"), "{}", ran.err);
    let state = ["a", "new", "gone", "old", "moved"].map(|name| read(&world, name));
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(state, [text("one\n2\n"), text("n\n"), None, None, text("y\n")]);
    let requests = world.requests();
    let offered = tools(&requests[0]);
    assert!(names(&offered).contains(&"apply_patch"), "{offered:?}");
    assert!(!names(&offered).contains(&"edit") && !names(&offered).contains(&"write"), "{offered:?}");
    assert_eq!(offered.iter().find(|tool| tool["name"] == "apply_patch").unwrap()["type"], "custom");
    let sent: Value = serde_json::from_slice(&requests[1].body).unwrap();
    let kinds: Vec<&str> =
        sent["input"].as_array().unwrap().iter().filter_map(|item| item["type"].as_str()).collect();
    assert_eq!(kinds, ["custom_tool_call", "custom_tool_call_output"], "{sent}");
    assert!(sent.to_string().contains("A new"), "{sent}");

    let blamed = world.run(&["blame", "a"]).ok().text();
    assert!(blamed.contains('2') && blamed.contains("one"), "{blamed}");
    world.run(&["-p", "-c", "second"]).ok();
    let last: Value = serde_json::from_slice(&world.requests()[3].body).unwrap();
    assert!(last.to_string().contains("Could not find the 1 lines of a change"), "{last}");
    assert_eq!(read(&world, "a"), text("one\n2\n"));
    world.run(&["undo", "--yes", "--files"]).ok();
    world.run(&["undo", "--yes", "--files"]).ok();
    let state = ["a", "new", "gone", "old", "moved"].map(|name| read(&world, name));
    assert_eq!(state, [text("one\ntwo\n"), None, text("g\n"), text("x\n"), None]);
}

#[test]
fn patch_outside_of_the_workspace_is_refused() {
    let world = World::new([
        patch_call("1", "*** Add File: a\n+x\n*** Add File: ../out\n+x\n"),
        Answer::on(Wire::Responses).text("Refused.").reply(),
    ]);
    configure(&world, "openai-responses", &json!({ "supportsOpenAIGrammarTools": true }));
    world.run(&["-p", "first"]).ok();
    assert_eq!((read(&world, "a"), read(&world, "../out")), (None, None));
    let sent = String::from_utf8(world.requests()[1].body.to_vec()).unwrap();
    assert!(sent.contains("outside the workspace"), "{sent}");
}

#[test]
fn setting_decides_on_patches() {
    let world = World::new((0..4).map(|_| Answer::new().text("Hi.").reply()));
    world.run(&["-p", "first"]).ok();
    world.run(&["config", "set", "applyPatch", "on"]).ok();
    world.run(&["-p", "second"]).ok();
    world.run(&["config", "set", "applyPatch", "off"]).ok();
    world.run(&["-p", "third"]).ok();
    world.run(&["config", "set", "applyPatch", "auto"]).ok();
    // It goes on with the tools that it had.
    world.run(&["-p", "-c", "fourth"]).ok();
    let had: Vec<bool> =
        world.requests().iter().map(|request| names(&tools(request)).contains(&"apply_patch")).collect();
    assert_eq!(had, [false, true, false, false]);
    let patched = tools(&world.requests()[1]);
    let tool = patched.iter().find(|tool| tool["name"] == "apply_patch").unwrap();
    assert_eq!(tool["input_schema"]["required"], json!(["input"]));
}
