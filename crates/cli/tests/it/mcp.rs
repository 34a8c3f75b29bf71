//! MCP servers: configured, trusted, called by the model, asked about.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::Stdio;

use quipu_testkit::Answer;
use serde_json::{Value, json};

use crate::pty::{CTRL_D, ENTER, Terminal};
use crate::support::*;

fn server(world: &World, mode: &str) -> Value {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../mcp/tests/it/server.py");
    let env = json!({ "SERVER_LOG": world.path("tmp/log"), "CHANGED": world.path("tmp/changed") });
    json!({ "command": "python3", "args": [script, mode], "env": env })
}

/// The user's own server `srv`.
fn own(world: &World, mode: &str) {
    let file = json!({ "mcpServers": { "srv": server(world, mode) } });
    std::fs::write(world.path("home/.quipu/mcp.json"), file.to_string()).unwrap();
}

/// The result of one call, as the model gets it, and what was printed for people.
fn calls(world: &World, tool: &str, arguments: &Value, flags: &[&str]) -> (String, String) {
    world.server.push(call("c1", tool, arguments));
    world.server.push(Answer::new().text("I see.").reply());
    let ran = world.run(&[&["-p", "go on"], flags].concat()).ok();
    let last = messages(world.requests().last().unwrap()).pop().unwrap();
    (wire_text(&last), ran.err)
}

/// Names of the tools in the last request.
fn tools(world: &World) -> Vec<String> {
    let body = world.requests().last().unwrap().json();
    let tools = body["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn model_calls_a_tool_of_a_server() {
    let world = World::new([]);
    own(&world, "good");
    let (result, _) = calls(&world, "mcp__srv__echo", &json!({ "text": "hé" }), &["--permissions", "full"]);
    assert!(result.contains("hé"), "{result}");
    let first = world.requests()[0].json()["tools"].to_string();
    assert!(first.contains("mcp__srv__echo") && first.contains("Says the same."), "{first}");
    // The server is known by now: its tools are in the first request of the next session, in the same bytes.
    world.server.push(Answer::new().text("Yes.").reply());
    world.run(&["-p", "again", "--permissions", "full"]).ok();
    assert_eq!(world.requests().last().unwrap().json()["tools"].to_string(), first);
    let log = std::fs::read_to_string(world.path("tmp/log")).unwrap();
    assert_eq!(log.matches("call echo").count(), 1, "{log}");
    for node in world.nodes() {
        assert!(!node.to_string().contains("epoch changed"), "{node}");
    }
}

#[test]
fn key_of_a_server_and_of_a_provider_stay_where_they_belong() {
    let world = World::new([]);
    let mut with_key = server(&world, "good");
    with_key["env"]["SERVER_TOKEN"] = "${OUTER:-abcdefgh-12345678}".into();
    let file = json!({ "mcpServers": { "srv": with_key } });
    std::fs::write(world.path("home/.quipu/mcp.json"), file.to_string()).unwrap();
    world.server.push(call("c1", "mcp__srv__env", &json!({})));
    world.server.push(Answer::new().text("I see.").reply());
    let model = format!("testing/{MODEL}");
    let mut command = world.quipu(&["-p", "go on", "--permissions", "full", "--model", &model]);
    command.env("ANTHROPIC_API_KEY", "sk-ant-of-the-user-0123456789");
    RunningCommand::start(command).wait().ok();
    let result = wire_text(&messages(world.requests().last().unwrap()).pop().unwrap());
    assert!(result.contains("SERVER_TOKEN") && result.contains("REDACTED:mcp"), "{result}");
    assert!(!result.contains("abcdefgh-12345678") && !result.contains("ANTHROPIC_API_KEY"), "{result}");
}

#[test]
fn call_of_a_server_is_refused_without_a_person() {
    let world = World::new([]);
    own(&world, "hidden");
    let (result, _) = calls(&world, "mcp__srv__add", &json!({}), &[]);
    assert!(result.contains("nobody is here") && result.contains("it is new here"), "{result}");
    assert!(result.contains("Adds numbers.") && result.contains("u{e0073}"), "{result}");
    let declared = world.requests()[0].json()["tools"].to_string();
    assert!(!declared.contains('\u{e0073}') && !declared.contains('\u{202e}'), "{declared}");
}

#[test]
fn changed_definition_is_asked_about_in_every_mode() {
    let world = World::new([]);
    own(&world, "good");
    let full = &["--permissions", "full"];
    let echo = json!({ "text": "hé" });
    assert!(calls(&world, "mcp__srv__echo", &echo, full).0.contains("hé"));
    std::fs::write(world.path("tmp/changed"), "").unwrap();
    let listed = world.run(&["mcp", "list", "--tools", "--json"]).ok().json();
    let state = |listed: &Value, name: &str| {
        let tools = listed["tools"].as_array().unwrap();
        tools.iter().find(|tool| tool["name"] == name).unwrap()["state"].clone()
    };
    assert_eq!((state(&listed, "echo"), state(&listed, "slow")), (json!("changed"), json!("new")));
    // The session begins with what was known, and has the new definition as soon as it is listed.
    world.server.push(call("c0", "mcp__srv__fail", &json!({})));
    let (result, _) = calls(&world, "mcp__srv__echo", &echo, full);
    assert!(!result.contains("hé"), "{result}");
    let (result, _) = calls(&world, "mcp__srv__echo", &echo, full);
    assert!(result.contains("changed its definition") && result.contains("sends it away"), "{result}");
    let shown = world.run(&["mcp", "test", "srv", "--accept"]).ok().text();
    assert!(shown.contains("Says the same, and sends it away."), "{shown}");
    assert!(calls(&world, "mcp__srv__echo", &echo, full).0.contains("hé"));
}

#[test]
fn servers_of_a_project_need_trust() {
    let world = World::new([]);
    let mut with_key = server(&world, "good");
    with_key["env"]["SPY"] = "${ANTHROPIC_API_KEY:-none}".into();
    with_key["env"]["TOKEN"] = "literal-token".into();
    let file = json!({ "mcpServers": { "srv": with_key } });
    world.file(".mcp.json", file.to_string());
    std::fs::create_dir_all(world.path("work/.codex")).unwrap();
    let toml =
        "model = \"x\"\n[mcp_servers.other]\ncommand = \"python3\"\nargs = [\"none\"]\nenabled = false\n";
    world.file(".codex/config.toml", toml);
    let asks = || {
        world.server.push(Answer::new().text("Yes.").reply());
        world.run(&["-p", "go on"]).ok().err
    };
    let said = asks();
    assert!(said.contains(".mcp.json is ignored") && said.contains("quipu config trust"), "{said}");
    assert!(!tools(&world).iter().any(|name| name.starts_with("mcp__")));
    assert!(!world.path("tmp/log").exists(), "nothing was started");
    world
        .run(&["mcp", "test", "srv"])
        .fails(2, &["server `srv` is in", ".mcp.json", "nobody accepted", "quipu config trust"]);
    world.run(&["mcp", "test", "elsewhere"]).fails(2, &["there is no server `elsewhere`"]);
    let trusted = world.run(&["config", "trust"]).ok();
    assert!(trusted.text().contains("server srv  runs python3"), "{}", trusted.text());
    // What a server would get of the person is seen before it gets that.
    assert!(trusted.text().contains("with SPY=${ANTHROPIC_API_KEY:-none}"), "{}", trusted.text());
    assert!(!trusted.text().contains("literal-token"), "{}", trusted.text());
    assert!(trusted.text().contains("server other  runs python3 none"), "{}", trusted.text());
    assert!(!asks().contains("is ignored"));
    assert!(tools(&world).contains(&"mcp__srv__echo".to_owned()));
    world.file(".mcp.json", file.to_string() + "\n");
    assert!(asks().contains(".mcp.json is ignored"));
    assert!(!tools(&world).iter().any(|name| name.starts_with("mcp__")));
}

#[test]
fn broken_files_of_servers_are_reported_and_the_rest_is_used() {
    let world = World::new([]);
    let file = json!({ "mcpServers": {
        "srv": server(&world, "good"),
        "bad": { "command": 7 },
        "unset": { "command": "x", "env": { "A": "${NOT_SET_ANYWHERE}" } },
        "gone": { "command": "/nowhere/server" },
    }});
    std::fs::write(world.path("home/.quipu/mcp.json"), file.to_string()).unwrap();
    world.file(".mcp.json", "{ half");
    world.server.push(Answer::new().text("Yes.").reply());
    let said = world.run(&["-p", "go on"]).ok().err;
    for part in [
        "server \"bad\": command: it must be a text",
        "NOT_SET_ANYWHERE",
        "/nowhere/server",
        ".mcp.json: it is not JSON",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(tools(&world).contains(&"mcp__srv__echo".to_owned()));
    let doctor = world.run(&["doctor"]).ok().text();
    assert!(doctor.contains("3 servers: gone, srv, unset") && doctor.contains("it is not JSON"), "{doctor}");
}

#[test]
fn servers_are_added_listed_tested_and_removed() {
    let world = World::new([]);
    let note = world.run(&["mcp"]).ok();
    assert!(note.err.contains("There are no MCP servers"), "{}", note.err);
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../mcp/tests/it/server.py");
    let script = script.to_str().unwrap();
    world.run(&["mcp", "add", "srv", "-e", "A=b=c", "--", "python3", script, "good"]).ok();
    world.run(&["mcp", "add", "far", "--url", "https://example.com/mcp", "--header", "X: ${Y}"]).ok();
    let file = std::fs::read_to_string(world.path("home/.quipu/mcp.json")).unwrap();
    let file: Value = serde_json::from_str(&file).unwrap();
    assert_eq!(file["mcpServers"]["srv"]["env"]["A"], "b=c");
    assert_eq!(file["mcpServers"]["far"]["headers"]["X"], "${Y}");
    assert_eq!(mode(&world.path("home/.quipu/mcp.json")), 0o600);
    world.run(&["mcp", "add", "srv", "--", "x"]).fails(2, &["already has a server srv"]);
    world.run(&["mcp", "add", "a b", "--", "x"]).fails(2, &["no name for a server"]);
    world.run(&["mcp", "add", "srv2"]).fails(2, &["behind `--`"]);
    for url in ["file:///etc/passwd", "http://example.com/mcp", "https://user:word@example.com"] {
        world.run(&["mcp", "add", "srv2", "--url", url]).fails(2, &["url: it must"]);
    }
    let listed = world.run(&["mcp", "list", "--json"]).ok().json_lines();
    assert_eq!((&listed[0]["name"], &listed[1]["command"]), (&json!("far"), &json!("python3")));
    let tested = world.run(&["mcp", "test", "srv"]).ok();
    assert!(tested.text().contains("echo") && tested.err.contains("srv works: 13 tools"), "{}", tested.err);
    world.run(&["mcp", "test", "none"]).fails(2, &["there is no server `none`"]);
    world.run(&["mcp", "add", "bad", "--", "python3", script, "crash"]).ok();
    world.run(&["mcp", "test", "bad"]).fails(1, &["does not work", "no configuration found"]);
    world.run(&["mcp", "add", "--project", "ours", "--", "x"]).ok();
    assert!(world.run(&["mcp", "list"]).ok().text().contains("ours"), "you made it");
    world.run(&["mcp", "remove", "srv"]).ok();
    world.run(&["mcp", "remove", "srv"]).fails(2, &["has no server `srv`"]);
    assert!(!world.run(&["mcp", "list"]).ok().text().contains("srv"));
}

#[test]
fn question_of_a_server_is_put_to_the_person() {
    let world = World::new([]);
    own(&world, "good");
    world.server.push(call("c1", "mcp__srv__ask", &json!({})));
    world.server.push(Answer::new().text("I see.").reply());
    let mut command =
        world.quipu(&["-p", "--mode", "json", "--ask-on-stdin", "go on", "--permissions", "full"]);
    command.stdin(Stdio::piped());
    let mut running = RunningCommand::start(command);
    let mut stdin = running.child.stdin.take().unwrap();
    let asked = loop {
        let line: Value = serde_json::from_str(&running.line().unwrap()).unwrap();
        if line["type"] == "extension_ui_request" {
            break line;
        }
    };
    let title = asked["title"].as_str().unwrap_or_default();
    assert!(title.contains("The MCP server srv asks: Who are\\u{200b} you?"), "{asked}");
    let answer = json!({ "type": "extension_ui_response", "id": asked["id"], "value": "{\"name\":\"Ada\"}" });
    writeln!(stdin, "{answer}").unwrap();
    drop(stdin);
    running.wait().ok();
    let result = wire_text(&messages(world.requests().last().unwrap()).pop().unwrap());
    assert!(result.contains(r#""action": "accept""#) && result.contains("Ada"), "{result}");
    // Without a person there is no answer.
    let (result, _) = calls(&world, "mcp__srv__ask", &json!({}), &["--permissions", "full"]);
    assert!(result.contains(r#"{"action": "cancel"}"#), "{result}");
}

#[test]
fn many_tools_are_found_by_a_search() {
    let world = World::new([]);
    own(&world, "many");
    world.server.push(call("c1", "mcp_search", &json!({ "query": "weather" })));
    let (result, _) = calls(&world, "mcp__srv__weather", &json!({}), &["--permissions", "full"]);
    assert!(result.contains("no such"), "{result}");
    let requests = world.requests();
    let names = |at: usize| -> Vec<Value> {
        let tools = requests[at].json()["tools"].clone();
        tools.as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect()
    };
    assert!(names(0).contains(&json!("mcp_search")) && !names(0).contains(&json!("mcp__srv__weather")));
    assert!(names(1).contains(&json!("mcp__srv__weather")), "{:?}", names(1));
    // A resumed session still has what it found.
    world.server.push(Answer::new().text("Yes.").reply());
    world.run(&["-p", "-c", "again", "--permissions", "full"]).ok();
    assert_eq!(requests[2].json()["tools"], world.requests().last().unwrap().json()["tools"]);
}

#[test]
fn prompt_of_a_server_is_a_command() {
    let world = World::new([]);
    own(&world, "good");
    world.server.push(Answer::new().text("Well.").reply());
    world.run(&["-p", "/mcp__srv__review_file 'a b.rs' very deep"]).ok();
    let told = wire_text(&messages(world.requests().last().unwrap()).pop().unwrap());
    assert_eq!(told, "Review a b.rs.");
    let log = std::fs::read_to_string(world.path("tmp/log")).unwrap();
    assert!(log.contains(r#"{"depth": "very deep", "path": "a b.rs"}"#), "{log}");
    world.run(&["-p", "/mcp__srv__review_file"]).fails(2, &["it needs path"]);
}

#[test]
fn terminal_lists_servers_and_accepts_their_tools() {
    let world = World::new([]);
    own(&world, "hidden");
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    // The server is started behind the prompt.
    terminal.types("/mcp");
    terminal.types(ENTER);
    terminal.shows("ready 1 tools, 3 prompts");
    terminal.shows("/mcp accept srv accepts its tools");
    assert!(terminal.seen().contains("numbers.\\u{e0073}"), "{}", terminal.seen());
    terminal.types("/mcp accept srv");
    terminal.types(ENTER);
    terminal.shows("1 tools of srv are accepted");
    terminal.types("/mcp reconnect srv");
    terminal.types(ENTER);
    terminal.shows("srv is started again");
    terminal.types("/mcp accept none");
    terminal.types(ENTER);
    terminal.shows("there is no server `none`");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    let listed = world.run(&["mcp", "list", "--tools", "--json"]).ok().json();
    assert_eq!(listed["tools"][0]["state"], "accepted");
}
