//! What servers get wrong while their models search the web, on each wire that has a search; and how searches are counted.

use quipu_testkit::{Answer, Reply, Wire};
use serde_json::{Value, json};

use crate::support::*;

macro_rules! on_every_wire {
    ($($test:ident),* $(,)?) => {
        mod messages {
            $(#[test] fn $test() { super::$test(super::Wire::Messages); })*
        }
        mod responses {
            $(#[test] fn $test() { super::$test(super::Wire::Responses); })*
        }
        mod contents {
            $(#[test] fn $test() { super::$test(super::Wire::Contents); })*
        }
        mod subscription {
            $(#[test] fn $test() { super::$test(super::Wire::Subscription); })*
        }
        mod envelope {
            $(#[test] fn $test() { super::$test(super::Wire::Envelope); })*
        }
    };
}

on_every_wire!(
    a_stream_that_breaks_in_a_search,
    a_search_that_fails,
    items_that_nobody_knows,
    searches_are_counted,
);

const PAGES: [&str; 1] = ["https://a.example/1"];

/// A world whose model speaks this wire and has a search.
fn world(wire: Wire, script: impl IntoIterator<Item = Reply>) -> World {
    let world = World::new(script);
    let api = match wire {
        Wire::Messages => "anthropic-messages",
        Wire::Responses => "openai-responses",
        Wire::Contents => "google-generative-ai",
        Wire::Envelope => {
            name_project(&world);
            "google-gemini-cli"
        }
        Wire::Subscription => "openai-codex-responses",
        Wire::Completions | Wire::Chunks | Wire::Converse | Wire::Gateway => panic!("no search on this wire"),
    };
    let model = json!({
        "id": MODEL, "api": api, "contextWindow": 200_000, "maxTokens": 8_000, "input": ["text"],
        "compat": { "supportsWebSearch": true }, "cost": { "input": 1, "output": 1, "cacheRead": 0, "cacheWrite": 0 },
    });
    let provider = json!({ "baseUrl": world.server.url(), "apiKey": KEY, "models": [model],
        "headers": { "chatgpt-account-id": "account-of-test" } });
    let file = json!({ "providers": { "testing": provider } });
    std::fs::write(world.path("home/.quipu/models.json"), file.to_string()).unwrap();
    let settings = r#"{"retry":{"baseDelayMs":1}}"#;
    std::fs::write(world.path("home/.quipu/settings.json"), settings).unwrap();
    world
}

/// The newest session goes on, with its first prompt, and with nothing that the server has not completed.
#[track_caller]
fn continues(wire: Wire, world: &World, begins: &str) -> Value {
    let before = world.requests().len();
    world.server.push(Answer::on(wire).text("Here I am.").reply());
    assert_eq!(world.run(&["-p", "-c", "--web-search", "second"]).ok().text(), "Here I am.\n");
    let request = &world.requests()[before];
    let said: String =
        messages(request).iter().filter(|message| message["role"] != "system").map(wire_text).collect();
    assert!(said.starts_with("first") && said.contains(begins) && said.ends_with("second"), "{said}");
    request.json()
}

fn a_stream_that_breaks_in_a_search(wire: Wire) {
    let search = Answer::on(wire).web_search("knots", &PAGES);
    let begun = search.unfinished();
    let third = begun[..begun.len() * 2 / 3].to_owned();
    for reply in [
        Reply::stream_on(wire, &begun),
        Reply::sse(third.clone()),
        Reply::sse(third.clone()).then_reset(),
        Reply::sse(third).then_cut(),
    ] {
        let world = world(wire, vec![reply; 4]);
        let ran = world.run(&["-p", "--web-search", "first"]).fails(1, &["4 attempts", "quipu -p -c"]);
        assert_eq!(world.requests().len(), 4, "{}", ran.err);
        let body = continues(wire, &world, "").to_string();
        assert!(!body.contains("knots"), "{body}");
    }
}

fn a_search_that_fails(wire: Wire) {
    let answer = Answer::on(wire);
    let failed = match wire {
        Wire::Messages => {
            let block = |index: u32, block: &Value| {
                [
                    json!({ "type": "content_block_start", "index": index, "content_block": block }),
                    json!({ "type": "content_block_stop", "index": index }),
                ]
            };
            let used = json!({ "type": "server_tool_use", "id": "srvtoolu_8", "name": "web_search", "input": { "query": "knots" } });
            let error = json!({ "type": "web_search_tool_result_error", "error_code": "max_uses_exceeded" });
            let result =
                json!({ "type": "web_search_tool_result", "tool_use_id": "srvtoolu_8", "content": error });
            let text = json!({ "type": "text", "text": "So." });
            let blocks = [block(0, &used), block(1, &result), block(2, &text)];
            blocks.into_iter().flatten().fold(answer, Answer::event)
        }
        Wire::Contents | Wire::Envelope => {
            let part = |part: Value| json!({ "candidates": [{ "content": { "parts": [part], "role": "model" }, "index": 0 }] });
            let call =
                json!({ "toolType": "GOOGLE_SEARCH_WEB", "id": "s", "args": { "queries": ["knots"] } });
            let back =
                json!({ "toolType": "GOOGLE_SEARCH_WEB", "id": "s", "response": { "error": "quota" } });
            answer
                .event(part(json!({ "toolCall": call })))
                .event(part(json!({ "toolResponse": back })))
                .event(part(json!({ "text": "So." })))
        }
        _ => {
            let item = json!({ "id": "ws_8", "type": "web_search_call", "status": "failed",
                "action": { "type": "search", "query": "knots" } });
            let done = json!({ "type": "response.output_item.done", "output_index": 7, "item": item });
            answer.event(done).text("So.")
        }
    };
    let world = world(wire, [failed.reply()]);
    assert_eq!(world.run(&["-p", "--web-search", "first"]).ok().text(), "So.\n");
    continues(wire, &world, "So.");
}

fn items_that_nobody_knows(wire: Wire) {
    let answer = Answer::on(wire).web_search("knots", &PAGES);
    let unknown = match wire {
        Wire::Messages => {
            let block = json!({ "type": "new_tool_result", "tool_use_id": "srvtoolu_0", "content": [] });
            answer
                .event(json!({ "type": "content_block_start", "index": 8, "content_block": block }))
                .event(json!({ "type": "content_block_stop", "index": 8 }))
        }
        Wire::Contents | Wire::Envelope => {
            let content = json!({ "parts": [{ "newToolPart": { "id": "x" } }], "role": "model" });
            answer.event(json!({ "candidates": [{ "content": content, "index": 0 }] }))
        }
        _ => {
            let item = json!({ "id": "nt_8", "type": "new_tool_call", "status": "completed" });
            let event =
                |kind: &str| json!({ "type": format!("response.{kind}"), "output_index": 8, "item": item });
            answer
                .event(event("output_item.added"))
                .event(event("new_tool_call.working"))
                .event(event("output_item.done"))
        }
    };
    let world = world(wire, [unknown.text("So.").reply()]);
    let ran = world.run(&["-p", "--web-search", "first"]).ok();
    assert_eq!(ran.text(), "So.\n");
    assert!(ran.err.contains("searched the web: knots"), "{}", ran.err);
    continues(wire, &world, "So.");
}

fn searches_are_counted(wire: Wire) {
    let answer = Answer::on(wire).web_search("knots", &PAGES).web_search("bends", &PAGES).text("So.");
    let world = world(wire, [answer.reply()]);
    let ran = world.run(&["-p", "--mode", "json", "--web-search", "first"]).ok();
    let lines = ran.json_lines();
    let searched = lines.iter().filter(|line| line.to_string().contains("\"knots\"")).count();
    assert!(searched > 0, "{}", ran.text());
    let log = world.run(&["log"]).ok();
    assert!(log.text().contains("tools: web_search 2\n"), "{}", log.text());
    let log = world.run(&["log", "--json"]).ok().json_lines();
    assert_eq!(log[0]["tools"], json!([{ "tool": "web_search", "calls": 2, "failed": 0 }]));
    // Another session without one; then one without a search of its own.
    world.server.push(Answer::on(wire).web_search("turns", &PAGES).text("So.").reply());
    world.server.push(Answer::on(wire).text("So.").reply());
    world.run(&["-p", "--web-search", "second"]).ok();
    world.run(&["-p", "third"]).ok();
    for (by, counts) in
        [("session", vec![0, 1, 2]), ("model", vec![3]), ("project", vec![3]), ("agent", vec![3])]
    {
        let mut rows = world.run(&["usage", "--json", "--by", by]).ok().json_lines();
        let end = rows.pop().unwrap();
        let mut found: Vec<_> = rows.iter().map(|row| row["webSearches"].as_u64().unwrap()).collect();
        found.sort_unstable();
        assert_eq!(
            (found, &end["webSearches"], &end["calls"]),
            (counts, &json!(3), &json!(3)),
            "{by}: {rows:?}"
        );
    }
    let table = world.run(&["usage"]).ok().text();
    let last = table.lines().last().unwrap();
    assert!(table.lines().next().unwrap().contains("searches"), "{table}");
    assert_eq!(last.split_whitespace().nth(6), Some("3"), "{table}");
}
