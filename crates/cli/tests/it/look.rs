//! Looking at what was done, and at what can be used: `show`, `sessions`, `models`, `auth`, `doctor`.

use quipu_testkit::{Answer, Reply};
use serde_json::{Value, json};
use std::process::Stdio;

use crate::pty::{CTRL_D, Terminal};
use crate::support::*;

fn id(node: &Value) -> &str {
    node["id"].as_str().unwrap()
}

#[test]
fn a_session_as_a_tree_and_its_nodes_whole() {
    let world = World::new([
        Answer::new()
            .thinking("Let me see.", "c2ln")
            .text("I look.")
            .tool_call("c1", "bash", r#"{"command":"printf 'a\\033[31mb'"}"#)
            .reply(),
        Answer::new().text("Fine.").reply(),
    ]);
    world.run(&["-p", "--model", "thinker", "look"]).ok();
    let nodes = world.nodes();
    let kinds: Vec<&str> = nodes.iter().map(|node| node["role"].as_str().unwrap()).collect();
    assert_eq!(kinds.len(), 5, "{kinds:?}");
    let tree = world.run(&["show"]).ok().text();
    for node in &nodes {
        assert!(tree.contains(&id(node)[..12]), "{tree}");
    }
    assert_eq!(tree.lines().count(), 2 + nodes.len());
    assert!(tree.trim_end().ends_with("assistant Fine.  <-- HEAD"), "{tree}");
    let session = world.sessions()[0].clone();
    let by_name = world.run(&["show", session["id"].as_str().unwrap(), "--json"]).ok().json();
    assert_eq!(by_name["session"], session);
    assert_eq!(by_name["nodes"], json!(nodes));
    for node in &nodes {
        let alone = world.run(&["show", &id(node)[..10], "--json"]).ok().json();
        assert_eq!(&alone, node);
        let text = world.run(&["show", id(node)]).ok().text();
        assert!(text.starts_with(&format!("node {}\n", id(node))) && !text.contains('\u{1b}'), "{text}");
    }
    let answer = world.run(&["show", id(&nodes[2])]).ok().text();
    for part in [
        "(thinking) Let me see.",
        "I look.",
        "[call bash c1]",
        "request ",
        "sha256 ",
        "stopped: ToolUse",
        "local",
    ] {
        assert!(answer.contains(part), "{part}: {answer}");
    }
    let head = world.run(&["show", "HEAD", "--json"]).ok().json();
    assert_eq!(head, nodes[4]);
    let own = format!("ext:{}", nodes[3]["externalId"].as_str().unwrap());
    assert_eq!(world.run(&["show", &own, "--json"]).ok().json(), nodes[3]);
    // The time, duration and place of every step.
    for node in &nodes[2..] {
        assert!(node["step"]["started"].is_i64() && node["step"]["durationMs"].is_u64(), "{node}");
    }
    let call = &nodes[4]["step"]["call"];
    assert!(call["firstTokenMs"].is_u64() && call["local"] == true && call["model"] == "thinker", "{call}");
}

#[test]
fn names_that_mean_nothing_are_told() {
    let world = World::says("Hello.");
    // Before anything was done.
    for args in [["show"].as_slice(), &["show", "abcd"]] {
        world.run(args).fails(2, &["no sessions yet", "quipu demo"]);
    }
    assert!(world.run(&["sessions"]).ok().err.contains("quipu demo"));
    assert_eq!(world.run(&["sessions", "--all", "--json"]).ok().text(), "");
    world.run(&["-p", "--session", "abcd1234", "hi"]).fails(2, &["abcd1234", "quipu sessions --all"]);
    world.run(&["-p", "hi"]).ok();
    let nodes = world.nodes();
    for name in ["ffffffffffff", "abc", "", "no such thing", "ext:nothing", "\u{1b}[31m", "../../etc/passwd"]
    {
        world.run(&["show", name]).fails(2, &["is no node and no session", "quipu sessions --all"]);
        world.run(&["-p", "--session", name, "hi"]).fails(2, &["quipu sessions --all"]);
    }
    // A node that no model call stands behind, and a node in place of a session.
    world.run(&["show", id(&nodes[0]), "--request"]).fails(2, &["no model call", "answer"]);
    world.run(&["-p", "--session", id(&nodes[2]), "hi"]).fails(2, &["is a node, not a session"]);
    // Another directory has none.
    let mut command = world.quipu(&["show"]);
    command.current_dir(world.path("tmp"));
    RunningCommand::start(command).wait().fails(2, &["no session in this directory", "quipu sessions --all"]);
    let mut command = world.quipu(&["sessions"]);
    command.current_dir(world.path("tmp"));
    assert!(RunningCommand::start(command).wait().ok().err.contains("quipu sessions --all"));
}

#[test]
fn a_name_that_could_be_several_lists_them() {
    let world = World::new((0..40).map(|n| Answer::new().text(&format!("Answer {n}")).reply()));
    let prompts: Vec<String> = (0..40).map(|n| format!("prompt {n}")).collect();
    let args: Vec<&str> = ["-p"].into_iter().chain(prompts.iter().map(String::as_str)).collect();
    world.run(&args).ok();
    // Sessions that begin in the same second share the beginning of their ids.
    let sessions = world.sessions();
    let session = sessions[0]["id"].as_str().unwrap();
    world.run(&["show", &session[..8]]).ok();
    world.run(&["demo"]).ok();
    let ran = world.run(&["show", &session[..6]]).fails(2, &["could be any of these", "give more of it"]);
    assert!(ran.message().matches("  session ").count() >= 2, "{}", ran.err);
}

#[test]
fn sessions_newest_first() {
    let world = World::new((0..3).map(|n| Answer::new().text(&format!("Answer {n}")).reply()));
    for prompt in ["first\nwith a second line", "second \u{1b}]0;x\u{7}", "third"] {
        world.run(&["-p", prompt]).ok();
    }
    let text = world.run(&["sessions"]).ok().text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3);
    for (line, title) in lines.iter().zip(["third", "second", "first"]) {
        assert!(line.contains(title) && !line.contains('\u{1b}') && line.contains("3 nodes"), "{line}");
    }
    assert_eq!(world.run(&["sessions", "--limit", "1", "--json"]).ok().json_lines().len(), 1);
    let all = world.run(&["sessions", "--all"]).ok().text();
    assert!(all.contains(world.path("work").to_str().unwrap()), "{all}");
    for row in world.sessions() {
        assert_eq!(row["cwd"], json!(world.path("work")));
        assert!(
            row["entries"] == 2 && row["agent"] == "quipu" && row["cost"].as_f64().unwrap() > 0.0,
            "{row}"
        );
    }
}

#[test]
fn models_that_can_be_used() {
    let world = World::new([]);
    let listed = world.run(&["models", "--json"]).ok().json_lines();
    let ids: Vec<&Value> = listed.iter().map(|model| &model["id"]).collect();
    assert_eq!(ids, [MODEL, "thinker"]);
    assert!(listed.iter().all(|model| model["provider"] == "testing" && model["available"] == true));
    let all = world.run(&["models", "--all", "--json"]).ok().json_lines();
    assert!(all.len() > 100, "{}", all.len());
    assert!(listed.iter().all(|model| model["source"] == "models.json"), "{listed:?}");
    assert!(all.iter().any(|model| model["source"] == "catalogue"));
    let text = world.run(&["models"]).ok().text();
    assert!(text.contains("testing/test-1") && text.contains("models.json"), "{text}");
    let ran = world.run(&["models", "no such model"]).ok();
    assert!(ran.out.is_empty() && ran.err.contains("No model matches."), "{}", ran.err);
    assert_eq!(world.run(&["models", "THINK", "--json"]).ok().json_lines().len(), 1);
}

#[test]
fn credentials_are_kept_privately_and_never_printed() {
    let world = World::new([]);
    let file = world.path("home/.quipu/auth.json");
    let secret = "sk-secret-0123456789abcdef";
    let providers = world.run(&["auth", "--json"]).ok().json_lines();
    let spoken = providers.iter().find(|row| row["supported"] == true && row["source"].is_null()).unwrap();
    let provider = spoken["provider"].as_str().unwrap();
    let source = |world: &World| {
        let rows = world.run(&["auth", "--json"]).ok().json_lines();
        rows.iter().find(|row| row["provider"] == provider).unwrap()["source"].clone()
    };
    let ran = world.run_with(&["auth", "set", provider], format!("{secret}\n")).ok();
    assert!(ran.err.contains("auth.json") && !ran.err.contains(secret) && ran.out.is_empty());
    assert_eq!(mode(&file), 0o600);
    assert!(std::fs::read_to_string(&file).unwrap().contains(secret));
    assert_eq!(source(&world), "auth.json");
    for args in
        [["auth"].as_slice(), &["auth", "--json"], &["doctor"], &["doctor", "--json"], &["models", "--all"]]
    {
        let ran = world.run(args).ok();
        assert!(!ran.text().contains(secret) && !ran.err.contains(secret), "{args:?}");
        assert!(!ran.text().contains(KEY), "{args:?}");
    }
    assert!(world.run(&["models", "--json"]).ok().json_lines().len() > 2);
    assert!(world.run(&["auth", "remove", provider]).ok().err.contains("Removed."));
    assert_eq!(source(&world), Value::Null);
    assert!(world.run(&["auth", "remove", provider]).ok().err.contains("No key was stored"));
    // Bad keys and providers.
    world.run_with(&["auth", "set", "nobody"], secret).fails(2, &["no provider `nobody`", "quipu auth"]);
    for bad in ["", " \n", "two words", "two\nlines"] {
        world.run_with(&["auth", "set", provider], bad).fails(2, &["invalid key", "one word", "stdin"]);
    }
    world.run_with(&["auth", "set", provider], "x".repeat(20_000)).fails(2, &["16 KiB"]);
    let ran = world.run_with(&["auth", "set", provider], b"\xff\xfe".as_slice());
    assert!(matches!(ran.status.code(), Some(1 | 2)), "{}", ran.err);
    // A file that is damaged is told and not overwritten.
    std::fs::write(&file, "{ not json").unwrap();
    assert!(world.run(&["auth"]).ok().err.contains("auth.json"));
    let ran = world.run_with(&["auth", "set", provider], secret).exits(1);
    assert!(ran.message().contains("auth.json"), "{}", ran.err);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "{ not json");
}

#[test]
fn a_healthy_machine_without_a_key() {
    let world = World::new([]);
    std::fs::remove_dir_all(world.path("home/.quipu")).unwrap();
    let found = world.run(&["doctor", "--json"]).ok().json();
    assert_eq!(found["healthy"], true);
    let whats: Vec<&Value> =
        found["findings"].as_array().unwrap().iter().map(|finding| &finding["what"]).collect();
    let expected = [
        "version",
        "shell",
        "home",
        "store",
        "outputs",
        "content",
        "settings",
        "credentials",
        "permissions",
        "budget",
    ];
    assert_eq!(whats, expected);
    // Looking makes nothing.
    assert!(!world.path("home/.quipu").exists());
    let text = world.run(&["doctor"]).ok().text();
    assert!(text.contains("quipu demo") && !text.contains("BAD"), "{text}");
    for args in [["models"].as_slice(), &["auth"], &["sessions"]] {
        world.run(args).ok();
        assert!(!world.path("home/.quipu").exists(), "{args:?}");
    }
}

#[test]
fn outputs_that_are_closed_end_it_quietly() {
    let world =
        World::unprivileged((0..2).map(|_| Answer::new().text(&"many words ".repeat(20_000)).reply()));
    let head = |args: &str| {
        let mut command = world.command("/bin/sh");
        let line = format!("{} {args} | head -c 1; echo \"${{PIPESTATUS:-}}\" >&2", world.program.display());
        command.args(["-c", &line]);
        let ran = RunningCommand::start(command).wait();
        assert_eq!(ran.out.len(), 1, "{args}: {}", ran.err);
        assert!(!ran.err.contains("quipu:") && !ran.err.contains("BrokenPipe"), "{args}: {}", ran.err);
    };
    head("models --all");
    head("models --all --json");
    head("auth --json");
    head("--help");
    head("-p words");
    head("show");
    head("show --json");
    head("sessions");
    head("doctor");
    head("demo");
    // The run that lost its reader is over and its session goes on.
    world.run(&["-p", "--session", world.sessions().last().unwrap()["id"].as_str().unwrap(), "go on"]).ok();
    // No outputs and no input at all.
    let mut command = world.command("/bin/sh");
    let line = format!("{} sessions <&- >&- 2>&-", world.program.display());
    command.args(["-c", &line]).stdout(Stdio::null());
    let ran = RunningCommand::start(command).wait();
    assert!(ran.status.code().is_some(), "{}", ran.status);
}

#[test]
fn a_full_device_in_place_of_stdout_is_told() {
    if !std::path::Path::new("/dev/full").exists() {
        return;
    }
    let world = World::new((0..2).map(|_| Answer::new().text("Some words.\n").reply()));
    for args in
        [["models", "--all"].as_slice(), &["-p", "first"], &["-p", "--mode", "json", "first"], &["--help"]]
    {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = world.quipu(args);
        let output = command.stdout(full).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(!told.contains("panicked"), "{args:?}: {told}");
        if args != ["--help"] {
            assert!(output.status.code() == Some(1) && told.contains("No space left"), "{args:?}: {told}");
        }
    }
    world.server.push(Answer::new().text("On.").reply());
    world.run(&["-p", "-c", "second"]).ok();
}

#[test]
fn the_request_of_an_answer_that_failed_is_kept_as_well() {
    let world =
        World::new([Reply::error(400, "invalid_request_error", "no"), Answer::new().text("Yes.").reply()]);
    world.run(&["-p", "hi"]).exits(1);
    world.run(&["-p", "-c", "again"]).ok();
    let answers: Vec<Value> =
        world.nodes().into_iter().filter(|node| node["step"]["call"].is_object()).collect();
    assert_eq!(answers.len(), 2);
    for (node, request) in answers.iter().zip(world.requests()) {
        assert_eq!(world.run(&["show", id(node), "--request"]).ok().out, request.body);
    }
    // The answer that failed is no part of the conversation.
    let said: Vec<String> = messages(&world.requests()[1]).iter().map(wire_text).collect();
    assert_eq!(said.join("|").matches("hi").count(), 1);
    assert!(said.last().unwrap().ends_with("again"), "{said:?}");
}

#[test]
fn start_notice_of_rules_is_no_warning() {
    let world = World::new([]);
    world.file("AGENTS.md", "One rule.\n");
    world.run(&["config", "trust"]).ok();
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("· Rules: AGENTS.md (1 line). /skills lists them.");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
}
