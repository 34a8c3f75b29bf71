//! The Agent Client Protocol: the real command behind pipes, driven by a client of ours and by two of others.

mod client;
mod files;
mod hostile;
mod peers;
mod permissions;
mod terminals;

use quipu_testkit::{Answer, Reply};
use serde_json::{Value, json};

use self::client::Client;
use crate::support::*;

fn says(text: &str) -> Reply {
    Answer::new().text(text).reply()
}

/// A picture of one point.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

#[test]
fn prompt_streams_its_answer_and_says_why_it_ended() {
    let world = World::new([says("Hello, editor."), Answer::new().text("cut").stop("max_tokens").reply()]);
    let mut client = Client::start(&world, &json!({}));
    let session = client.open(&world);
    let commands = client.wait_for("available_commands_update");
    let names: Vec<&str> = commands["update"]["availableCommands"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|command| command["name"].as_str())
        .collect();
    assert!(names.contains(&"compact"), "{names:?}");
    assert_eq!(client.says(&session, "hi"), "end_turn");
    assert_eq!(client.text("agent_message_chunk"), "Hello, editor.");
    let usage = client.of_kind("usage_update").pop().unwrap();
    assert_eq!(usage["update"]["size"], 200_000);
    assert!(usage["update"]["used"].as_u64().unwrap() > 0 && usage["update"]["cost"]["currency"] == "USD");
    assert_eq!(client.of_kind("session_info_update")[0]["update"]["title"], "hi");
    assert_eq!(client.says(&session, "more"), "max_tokens");
    client.leave();
}

#[test]
fn sessions_are_listed_loaded_resumed_closed_and_deleted() {
    let edit = json!({ "path": "a.txt", "edits": [{ "oldText": "one", "newText": "two" }] });
    let todo =
        json!({ "items": [{ "text": "Look", "status": "done" }, { "text": "Leap", "status": "pending" }] });
    let world = World::new([
        call("c1", "edit", &edit),
        call("c1", "todo", &todo),
        says("It is done."),
        says("Still here."),
        says("Again."),
    ]);
    world.file("a.txt", "one\n");
    let mut client = Client::start(&world, &json!({}));
    let session = client.open(&world);
    assert_eq!(client.says(&session, "Change a.txt"), "end_turn");
    let plan = client.of_kind("plan").pop().unwrap();
    assert_eq!(
        plan["update"]["entries"][0],
        json!({ "content": "Look", "priority": "medium", "status": "completed" })
    );
    // A model that uses an id again gets calls of their own.
    let calls = client.of_kind("tool_call");
    let names: Vec<&Value> = calls.iter().map(|call| &call["update"]["toolCallId"]).collect();
    assert_eq!(names, [&json!("c1"), &json!("c1#2")]);
    let path = world.path("work/a.txt");
    assert_eq!(
        calls[0]["update"]["content"],
        json!([{ "type": "diff", "path": path, "oldText": "one", "newText": "two" }])
    );
    let ended =
        client.of_kind("tool_call_update").into_iter().filter(|call| call["update"]["status"] == "completed");
    let ended: Vec<Value> = ended.collect();
    assert_eq!(ended[0]["update"]["locations"], json!([{ "path": path, "line": 1 }]));
    client.leave();

    let mut client = Client::start(&world, &json!({}));
    let here = json!({ "cwd": world.path("work") });
    let listed = client.call("session/list", &here);
    let row = &listed["sessions"][0];
    assert_eq!((&row["sessionId"], &row["title"]), (&json!(session), &json!("Change a.txt")));
    assert_eq!(row["cwd"], json!(world.path("work")));
    let nowhere = client.call("session/list", &json!({ "cwd": world.path("home") }));
    assert_eq!(nowhere["sessions"], json!([]));

    // Loading tells the history before the answer; resuming does not.
    let named = json!({ "sessionId": session, "cwd": world.path("work"), "mcpServers": [] });
    let loaded = client.call("session/load", &named);
    assert_eq!(loaded["modes"]["currentModeId"], "workspace");
    assert_eq!(client.text("user_message_chunk"), "Change a.txt");
    assert_eq!(client.text("agent_message_chunk"), "It is done.");
    assert_eq!(client.of_kind("tool_call").len(), 2);
    assert_eq!(client.of_kind("plan").len(), 1);
    assert_eq!(client.says(&session, "Still there?"), "end_turn");
    assert_eq!(client.call("session/close", &json!({ "sessionId": session })), json!({}));
    let error = client.fails("session/prompt", &json!({ "sessionId": session, "prompt": [] }));
    assert_eq!(error["code"], -32_002, "{error}");
    client.updates.clear();
    client.call("session/resume", &named);
    assert_eq!(client.text("user_message_chunk"), "");
    assert_eq!(client.says(&session, "And now?"), "end_turn");
    assert_eq!(client.text("agent_message_chunk"), "Again.");

    // Of a session that is removed nothing is listed.
    world.check();
    world.unchecked();
    assert_eq!(client.call("session/delete", &json!({ "sessionId": session })), json!({}));
    assert_eq!(client.call("session/list", &json!({}))["sessions"], json!([]));
    assert_eq!(client.fails("session/load", &named)["code"], -32_002);
    client.leave();
}

#[test]
fn list_goes_on_page_by_page() {
    let world = World::new((0..53).map(|_| says("ok")));
    let mut client = Client::start(&world, &json!({}));
    for at in 0..53 {
        let session = client.open(&world);
        client.says(&session, &format!("number {at}"));
        client.call("session/close", &json!({ "sessionId": session }));
    }
    let first = client.call("session/list", &json!({}));
    assert_eq!(first["sessions"].as_array().unwrap().len(), 50);
    let rest = client.call("session/list", &json!({ "cursor": first["nextCursor"] }));
    assert_eq!(rest["sessions"].as_array().unwrap().len(), 3);
    assert!(rest.get("nextCursor").is_none(), "{rest}");
    assert_eq!(client.fails("session/list", &json!({ "cursor": "x" }))["code"], -32_602);
    client.leave();
}

#[test]
fn modes_model_and_thinking_are_set_for_one_session() {
    let world = World::new([says("Thought."), says("As before.")]);
    let mut client = Client::start(&world, &json!({}));
    let params = json!({ "cwd": world.path("work"), "mcpServers": [] });
    let opened = client.call("session/new", &params);
    let session = opened["sessionId"].as_str().unwrap().to_owned();
    let modes: Vec<&Value> =
        opened["modes"]["availableModes"].as_array().unwrap().iter().map(|mode| &mode["id"]).collect();
    assert_eq!(modes, ["ask", "workspace", "plan", "full"]);
    let options = &opened["configOptions"];
    assert_eq!(options[1]["currentValue"], "testing/test-1");
    assert_eq!(options[2]["options"].as_array().unwrap().len(), 1, "{options}");

    let set = |option: &str, value: &str| json!({ "sessionId": session, "configId": option, "value": value });
    let options = client.call("session/set_config_option", &set("model", "testing/thinker"));
    assert_eq!(options["configOptions"][1]["currentValue"], "testing/thinker");
    let options = client.call("session/set_config_option", &set("thinking", "high"));
    assert_eq!(options["configOptions"][2]["currentValue"], "high");
    assert_eq!(client.says(&session, "Think"), "end_turn");
    assert_eq!(world.requests().last().unwrap().json()["model"], "thinker");

    let mode = |mode: &str| json!({ "sessionId": session, "modeId": mode });
    client.call("session/set_mode", &mode("plan"));
    assert_eq!(client.wait_for("current_mode_update")["update"]["currentModeId"], "plan");
    client.call("session/set_mode", &mode("ask"));
    assert_eq!(client.wait_for("current_mode_update")["update"]["currentModeId"], "ask");
    // Nothing of it is saved for the directory.
    let other = client.call("session/new", &params);
    assert_eq!(other["modes"]["currentModeId"], "workspace");

    let error = client.fails("session/set_mode", &mode("god"));
    assert!(error["message"].as_str().unwrap().contains("there are ask, workspace, plan, full"), "{error}");
    assert_eq!(client.fails("session/set_config_option", &set("color", "red"))["code"], -32_602);
    assert_eq!(client.fails("session/set_config_option", &set("model", "no/such"))["code"], -32_602);
    client.leave();
}

#[test]
fn images_resources_and_links_reach_the_model() {
    let world = World::new([says("Seen.")]);
    let mut client = Client::start(&world, &json!({}));
    let session = client.open(&world);
    let prompt = json!([
        { "type": "text", "text": "Compare " },
        { "type": "resource_link", "uri": "file:///work/a.rs", "name": "a.rs" },
        { "type": "text", "text": " with this" },
        { "type": "image", "data": PNG, "mimeType": "image/png" },
        { "type": "resource", "resource": { "uri": "file:///work/b.rs", "text": "fn b() {}", "mimeType": "text/x-rust" } },
    ]);
    let params = json!({ "sessionId": session, "prompt": prompt });
    assert_eq!(client.call("session/prompt", &params)["stopReason"], "end_turn");
    let sent = messages(world.requests().last().unwrap());
    let content = sent.last().unwrap()["content"].to_string();
    for part in ["Compare `/work/a.rs` with this", "image/png", "fn b() {}", "file:///work/b.rs"] {
        assert!(content.contains(part), "{part}: {content}");
    }
    client.leave();
    // What was attached is not told again as if it had been typed.
    let mut client = Client::start(&world, &json!({}));
    let named = json!({ "sessionId": session, "cwd": world.path("work"), "mcpServers": [] });
    client.call("session/load", &named);
    let told = client.of_kind("user_message_chunk");
    assert_eq!(told[0]["update"]["content"]["text"], "Compare `/work/a.rs` with this");
    assert_eq!(told[1]["update"]["content"]["type"], "image");
    assert_eq!(told.len(), 2, "{told:?}");
    client.leave();
}

#[test]
fn commands_with_a_slash_run_and_templates_become_prompts() {
    let world = World::new([says("Reviewed."), says("Fine."), says("A summary.")]);
    std::fs::create_dir_all(world.path("home/.quipu/prompts")).unwrap();
    std::fs::write(world.path("home/.quipu/prompts/review.md"), "Review $ARGUMENTS with care.\n").unwrap();
    let mut client = Client::start(&world, &json!({}));
    let session = client.open(&world);
    let commands = client.wait_for("available_commands_update")["update"]["availableCommands"].to_string();
    assert!(commands.contains("\"review\""), "{commands}");
    assert_eq!(client.says(&session, "/review src"), "end_turn");
    let sent = messages(world.requests().last().unwrap());
    assert!(wire_text(sent.last().unwrap()).contains("Review src with care."), "{sent:?}");
    // What is no command is a message.
    assert_eq!(client.says(&session, "/nothing of the kind"), "end_turn");
    client.leave();
}

#[test]
fn servers_of_the_client_give_tools() {
    let world = World::new([says("None needed.")]);
    let mut client = Client::start(&world, &json!({}));
    // Our own history as a server of tools: a real one on stdio.
    let server = json!({ "name": "history", "command": world.program, "args": ["mcp", "serve"], "env": [
        { "name": "QUIPU_HOME", "value": world.path("home/.quipu") },
    ] });
    let params = json!({ "cwd": world.path("work"), "mcpServers": [server] });
    let session = client.call("session/new", &params)["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(client.says(&session, "Which tools?"), "end_turn");
    let tools = world.requests().last().unwrap().json()["tools"].to_string();
    assert!(tools.contains("mcp__history__"), "{tools}");
    let sse = json!([{ "type": "sse", "name": "old", "url": "https://example.com/sse", "headers": [] }]);
    let error = client.fails("session/new", &json!({ "cwd": world.path("work"), "mcpServers": sse }));
    assert!(error["message"].as_str().unwrap().contains("`sse` is not supported"), "{error}");
    client.leave();
}

#[test]
fn server_of_the_client_over_http_gives_tools() {
    let world = World::new([says("None needed.")]);
    let mut serves = world.start(&["mcp", "serve", "--listen", "127.0.0.1:0"]);
    let line = serves.line_with("Serving");
    let url = format!("http://{}/mcp", line.split("http://").nth(1).unwrap().split("/mcp").next().unwrap());
    let token = std::fs::read_to_string(world.path("home/.quipu/mcp-server.token")).unwrap();
    let server = |token: &str| {
        let bearer = json!([{ "name": "Authorization", "value": format!("Bearer {token}") }]);
        json!([{ "type": "http", "name": "history", "url": url, "headers": bearer }])
    };
    let mut client = Client::start(&world, &json!({}));
    let params = json!({ "cwd": world.path("work"), "mcpServers": server(token.trim()) });
    let session = client.call("session/new", &params)["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(client.says(&session, "Which tools?"), "end_turn");
    let tools = world.requests().last().unwrap().json()["tools"].to_string();
    assert!(tools.contains("mcp__history__"), "{tools}");
    // One that refuses its token is no reason to have no session.
    let params = json!({ "cwd": world.path("work"), "mcpServers": server("wrong") });
    let other = client.call("session/new", &params)["sessionId"].as_str().unwrap().to_owned();
    assert_ne!(other, session);
    client.leave();
    serves.signal(nix::sys::signal::Signal::SIGKILL);
}

#[test]
fn compact_sums_up_and_clients_that_show_it_are_updated() {
    let long = "word ".repeat(400);
    let world = World::new([says(&long), says(&long), says("## Goal\nTo count."), says("Summed up.")]);
    let settings = json!({ "compaction": { "reserveTokens": 1000, "keepRecentTokens": 501 } });
    std::fs::write(world.path("home/.quipu/settings.json"), settings.to_string()).unwrap();
    let mut client = Client::start(&world, &json!({ "session": { "compaction": {} } }));
    let session = client.open(&world);
    for text in ["one", "two"] {
        assert_eq!(client.says(&session, text), "end_turn");
    }
    assert_eq!(client.says(&session, "/compact the numbers"), "end_turn");
    let updates = client.of_kind("compaction_update");
    let of = |at: usize| (&updates[at]["update"]["status"], &updates[at]["update"]["compactionId"]);
    assert_eq!(updates.len(), 2, "{updates:?}");
    assert_eq!((of(0).0, of(1).0), (&json!("in_progress"), &json!("completed")));
    assert_eq!(of(0).1, of(1).1);
    assert_eq!(client.says(&session, "three"), "end_turn");
    let messages = world.requests().last().unwrap().json()["messages"].to_string();
    assert!(messages.contains("To count.") && !messages.contains("\"one\""), "{messages}");
    client.leave();
}

#[test]
fn failure_of_the_model_is_the_error_of_its_prompt() {
    let world = World::new([Reply::error(401, "authentication_error", "invalid x-api-key"), says("Better.")]);
    let mut client = Client::start(&world, &json!({}));
    let session = client.open(&world);
    let prompt = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": "hi" }] });
    let error = client.fails("session/prompt", &prompt);
    assert_eq!((&error["code"], &error["data"]["kind"]), (&json!(-32_000), &json!("auth")), "{error}");
    assert_eq!(client.says(&session, "again"), "end_turn");
    client.leave();
}
