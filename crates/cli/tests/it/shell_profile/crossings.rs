//! The profile and everything else that a session can be.

use serde_json::json;

use super::*;
use crate::pty::{CTRL_D, Terminal};

#[test]
fn permissions_decide_on_commands() {
    let world = world(["touch ran", "exit\nNot allowed."]);
    world.run(&["permissions", "add", "deny", "bash(touch *)"]).ok();
    assert_eq!(run(&world, &["go"]).ok().text(), "Not allowed.\n");
    assert!(!world.path("work/ran").exists());
    let denied = told(&world);
    assert!(untimed(&denied).contains("bash(touch *)"), "{denied}");
    // Where somebody would have to be asked, and nobody is there.
    let world = self::world(["touch ran", "exit"]);
    world.run(&["-p", "--profile", "shell", "--permissions", "ask", "go"]).ok();
    assert!(!world.path("work/ran").exists());
    assert!(told(&world).contains("nobody is here to give it, so it was not run"), "{}", told(&world));
}

#[test]
fn plan_mode_runs_what_reads_and_prints_the_plan() {
    let world = world(["ls notes", "touch ran", "exit\nFirst look, then touch."]);
    world.file("notes", "x");
    let ran = run(&world, &["--plan", "how?"]).ok();
    assert_eq!(ran.text(), "First look, then touch.\n", "{}", ran.err);
    assert!(!world.path("work/ran").exists());
    let all = said(&world, 2);
    assert_eq!(untimed(&all[2].1), "notes\n");
    assert!(all[4].1.contains("Plan mode is on, so only what reads may run"), "{all:?}");
}

#[test]
fn session_keeps_the_profile_that_it_began_with() {
    let world = World::new([
        reply("echo one"),
        reply("exit\nOne."),
        reply("echo two"),
        reply("exit\nTwo."),
        reply("exit\nForked."),
        reply("plain"),
    ]);
    run(&world, &["one"]).ok();
    let head = world.sessions()[0]["head"].as_str().unwrap().to_owned();
    let ran = world.run(&["-p", "-c", "two"]).ok();
    assert_eq!(ran.text(), "Two.\n");
    assert!(ran.err.contains("This session has the profile `shell`"), "{}", ran.err);
    assert_eq!(world.run(&["-p", "--fork", &head, "and now?"]).ok().text(), "Forked.\n");
    let [before, after] = [0, 4].map(|at| world.requests()[at].json());
    assert_eq!(before["system"], after["system"]);
    assert!(after.get("tools").is_none_or(|tools| *tools == json!([])), "{after}");
    // The other way round.
    world.run(&["-p", "plain"]).ok();
    let refused = ["no profile", "keeps the profile that it began with"];
    world.run(&["-p", "-c", "--profile", "shell", "go"]).fails(2, &refused);
    let head = world.sessions()[0]["head"].as_str().unwrap().to_owned();
    world.run(&["-p", "--fork", &head, "--profile", "shell", "go"]).fails(2, &refused);
    assert_eq!(world.requests().len(), 6);
}

#[test]
fn profile_says_what_it_cannot_do() {
    let world = World::new([]);
    run(&world, &["--tools", "read", "go"]).fails(2, &["profile `shell` needs the tool `bash`"]);
    world.file("form.json", r#"{"type":"object"}"#);
    run(&world, &["--output-schema", "form.json", "go"]).fails(2, &["cannot fit a JSON Schema"]);
    run(&world, &["--record", "r.jsonl", "go"]).fails(2, &["cannot be recorded or replayed"]);
    assert!(!world.path("work/r.jsonl").exists());
    world.run(&["-p", "--profile", "none", "go"]).fails(2, &["none", "shell"]);
}

#[test]
fn undo_takes_the_files_of_commands_back() {
    let world = world(["echo one > a", "exit", "echo two > a", "exit"]);
    run(&world, &["one"]).ok();
    world.run(&["-p", "-c", "two"]).ok();
    let content = || std::fs::read_to_string(world.path("work/a")).unwrap();
    assert_eq!(content(), "two\n");
    world.run(&["undo", "--files", "--yes"]).ok();
    assert_eq!(content(), "one\n");
    world.run(&["redo", "--files", "--yes"]).ok();
    assert_eq!(content(), "two\n");
    let files = world.run(&["files"]).ok().text();
    assert!(files.contains('a'), "{files}");
}

#[test]
fn history_shows_and_finds_the_commands() {
    let world = world(["echo zebra | tr a-z A-Z", "exit\nShouted."]);
    run(&world, &["shout"]).ok();
    let session = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    let nodes = world.nodes();
    let one = |role: &str| nodes.iter().find(|node| node["message"]["role"] == role).unwrap();
    let shown = |id: &Value| world.run(&["show", id.as_str().unwrap()]).ok().text();
    assert!(shown(&nodes[0]["id"]).contains("profile shell"), "{}", shown(&nodes[0]["id"]));
    let answer = shown(&one("assistant")["id"]);
    assert!(answer.contains("echo zebra | tr a-z A-Z") && answer.contains("bash"), "{answer}");
    assert!(shown(&one("toolResult")["id"]).contains("ZEBRA"));
    let life = world.run(&["life", &session]).ok().text();
    assert!(life.contains("Shouted."), "{life}");
    let found = world.run(&["search", "zebra"]).ok().text();
    assert!(found.contains("zebra"), "{found}");
    let log = world.run(&["log"]).ok().text();
    assert!(log.contains("1 tool call") || log.contains("bash"), "{log}");
}

#[test]
fn json_events_and_sessions_in_memory_have_the_profile() {
    let world = world(["echo hi", "exit\nDone."]);
    let lines = run(&world, &["--mode", "json", "--no-session", "go"]).ok().json_lines();
    let of = |kind: &str| lines.iter().filter(|line| line["type"] == kind).cloned().collect::<Vec<_>>();
    let [started] = of("tool_execution_start").try_into().unwrap();
    let args = json!({ "command": "echo hi", "timeout": 300 });
    assert_eq!((&started["toolName"], &started["args"]), (&json!("bash"), &args));
    assert_eq!(of("tool_execution_end").len(), 1);
    let ends = of("message_end");
    let answer = &ends.iter().find(|line| line["message"]["role"] == "assistant").unwrap()["message"];
    assert_eq!(answer["stopReason"], "toolUse");
    assert_eq!(answer["content"][0]["text"], "echo hi");
    assert_eq!(answer["content"][1]["id"], started["toolCallId"]);
    assert_eq!(ends.last().unwrap()["message"]["content"][0]["text"], "exit\nDone.");
    assert!(!world.store().exists());
    world.unchecked();
}

#[test]
fn compaction_keeps_the_profile() {
    let long = format!("echo {}", "word ".repeat(400));
    let world = world([
        &long[..],
        "exit\nOne.",
        &long,
        "exit\nTwo.",
        "## Goal\nTo echo.",
        "It exits.",
        "echo three",
        "exit\nThree.",
    ]);
    let settings = json!({ "compaction": { "reserveTokens": 1000, "keepRecentTokens": 501 } });
    std::fs::write(world.path("home/.quipu/settings.json"), settings.to_string()).unwrap();
    run(&world, &["one"]).ok();
    world.run(&["-p", "-c", "two"]).ok();
    world.run(&["compact"]).ok();
    assert_eq!(world.run(&["-p", "-c", "three"]).ok().text(), "Three.\n");
    let all = said(&world, 7);
    assert!(all[0].1.contains("To echo."), "{all:?}");
    assert!(
        all.len() > 2 && all[all.len() - 2].1 == "echo three" && untimed(&told(&world)) == "three\n",
        "{all:?}"
    );
    let body = world.requests()[7].json();
    assert!(body.get("tools").is_none_or(|tools| *tools == json!([])), "{body}");
}

#[test]
fn export_is_a_session_of_pi_that_can_be_imported() {
    let world =
        World::new([reply("patience 5m echo hi"), reply(""), reply("exit\nDone."), reply("On I go.")]);
    run(&world, &["go"]).ok();
    let session = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    let file = world.run(&["export", "--format", "pi", &session]).ok().json_lines();
    let messages: Vec<&Value> =
        file.iter().filter(|line| line["type"] == "message").map(|line| &line["message"]).collect();
    let roles: Vec<&str> = messages.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "toolResult", "assistant", "toolResult", "assistant"]);
    for pair in [1, 3] {
        let calls = messages[pair]["content"].as_array().unwrap();
        let call = calls.iter().find(|block| block["type"] == "toolCall").unwrap();
        assert_eq!(call["id"], messages[pair + 1]["toolCallId"]);
        assert_eq!((&call["name"], &messages[pair]["stopReason"]), (&json!("bash"), &json!("toolUse")));
    }
    assert_eq!(messages[1]["content"][0]["text"], "patience 5m echo hi");
    // Elsewhere it is a session with calls of a tool.
    let path = world.file("s.jsonl", file.iter().map(|line| format!("{line}\n")).collect::<String>());
    let other = world.path("work/other.db").display().to_string();
    world.run(&["import", "pi", path.to_str().unwrap(), "--store", &other]).ok();
    world.run(&["-p", "--store", &other, "--session", &session, "--cwd", ".", "on"]).ok();
    let body = world.requests().last().unwrap().json();
    assert!(body["tools"].as_array().is_some_and(|tools| !tools.is_empty()), "{body}");
    assert!(body["messages"].to_string().contains("tool_result"), "{body}");
}

#[test]
fn session_in_a_file_of_pi_goes_on_in_its_profile() {
    let world = world(["echo one", "exit\nOne.", "echo two", "exit\nTwo."]);
    run(&world, &["--session", "s.jsonl", "one"]).ok();
    assert_eq!(world.run(&["-p", "--session", "s.jsonl", "two"]).ok().text(), "Two.\n");
    let file = std::fs::read_to_string(world.path("work/s.jsonl")).unwrap();
    assert_eq!(file.matches("\"toolCall\"").count(), 2, "{file}");
}

#[test]
fn terminal_goes_on_in_the_profile() {
    let world = world(["echo one", "exit\nOne.", "echo two", "exit\nTwo it is."]);
    run(&world, &["one"]).ok();
    let mut terminal = Terminal::open(&world, &["-c"]);
    terminal.shows("This session has the profile `shell`");
    terminal.types("two\r");
    terminal.settles("Two it is.");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    assert_eq!(untimed(&told(&world)), "two\n");
}

#[test]
fn model_sees_placeholders_of_secrets_in_commands() {
    let secret =
        "sk-ant-api03-AbCdEfGhIjKlMnOpQrStUvWxYz0123456789-AbCdEfGhIjKlMnOpQrStUvWxYz0123456789-AbCdEfGhIjAA";
    let world = world([&format!("echo {secret}")[..], "exit\nDone."]);
    run(&world, &["go"]).ok();
    let body = world.requests().last().unwrap().json().to_string();
    assert!(!body.contains(secret) && body.contains("[REDACTED:"), "{body}");
}
