//! `QUIPU_LOG`: lines of JSON under the ids of the events, sealed, in a private file or on stderr, and nothing where it is off.

use std::path::Path;

use quipu_testkit::{Answer, Reply};
use serde_json::{Value, json};

use crate::pty::{CTRL_D, Terminal, says};
use crate::support::*;

/// Of a form that is known as a secret's.
const SECRET: &str = "ghp_0123456789abcdefghijABCDEFGHIJ012345";

/// Runs the command with this in its environment.
fn traced(world: &World, env: &[(&str, &str)], args: &[&str]) -> CommandOutput {
    let mut command = world.quipu(args);
    command.envs(env.iter().copied());
    RunningCommand::start(command).wait()
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect()
}

fn lines_of(path: &Path) -> Vec<Value> {
    lines(&std::fs::read_to_string(path).unwrap())
}

/// The lines of spans of this name that ended.
fn ended<'a>(lines: &'a [Value], name: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["phase"] == "end" && line["name"] == name).collect()
}

fn texts<'a>(lines: impl IntoIterator<Item = &'a Value>, member: &str) -> Vec<&'a str> {
    lines.into_iter().filter_map(|line| line[member].as_str()).collect()
}

#[test]
fn ids_in_a_trace_are_those_of_the_events() {
    let world = World::new([
        Answer::new()
            .tool_call("c1", "read", &json!({ "path": "a.txt" }).to_string())
            .tool_call("c2", "read", &json!({ "path": "b.txt" }).to_string())
            .reply(),
        Answer::new().text("Read.").reply(),
    ]);
    world.file("a.txt", "words of a file");
    let log = world.path("work/log.jsonl");
    let env = [("QUIPU_LOG", "debug"), ("QUIPU_LOG_FILE", log.to_str().unwrap())];
    let events = traced(&world, &env, &["-p", "--mode", "json", "read them both"]).ok().json_lines();
    assert_eq!(mode(&log), 0o600);
    let all = lines_of(&log);
    let id = events[0]["id"].as_str().unwrap();
    assert_eq!(texts(ended(&all, "session"), "session"), [id]);
    // They run side by side.
    let mut tools: Vec<(&str, bool)> = ended(&all, "tool_call")
        .iter()
        .map(|one| (one["call"].as_str().unwrap(), one["is_error"].as_bool().unwrap()))
        .collect();
    tools.sort_unstable();
    assert_eq!(tools, [("c1", false), ("c2", true)]);
    let turns: Vec<&Value> = ended(&all, "turn").iter().map(|turn| &turn["turn"]).collect();
    assert_eq!(turns, [1, 2]);
    let calls = ended(&all, "model_call");
    assert_eq!(texts(calls.iter().copied(), "tokens.source"), ["local", "local"]);
    assert!(calls.iter().all(|call| call["tokens.output"].is_u64() && call["ms"].is_f64()), "{calls:?}");
    // What stands in a run has its id, and the session's.
    let run = ended(&all, "run")[0]["run"].as_str().unwrap();
    let within =
        |line: &&Value| ["turn", "model_call", "tool_call"].contains(&line["name"].as_str().unwrap());
    for line in all.iter().filter(within) {
        assert_eq!((line["session"].as_str(), line["run"].as_str()), (Some(id), Some(run)), "{line}");
    }
    let kept: Vec<&str> = events
        .iter()
        .filter(|event| event["type"] == "message_end")
        .filter_map(|end| end["node"].as_str())
        .collect();
    assert_eq!(kept.len(), 5);
    let told: Vec<&Value> = all.iter().filter(|line| line["name"] == "message kept").collect();
    assert_eq!(texts(told, "node"), kept);
    let committed = texts(ended(&all, "commit"), "node");
    assert!(committed.contains(kept.last().unwrap()), "{committed:?}");
    let text = std::fs::read_to_string(&log).unwrap();
    for said in ["read them both", "words of a file", "a.txt", "Read."] {
        assert!(!text.contains(said), "{said} is in the trace");
    }
    // Another run appends.
    world.server.push(Answer::new().text("On.").reply());
    traced(&world, &env, &["-p", "-c", "on"]).ok();
    assert_eq!(ended(&lines_of(&log), "run").len(), 2);
}

#[test]
fn secrets_never_reach_a_trace() {
    let world = World::new([
        call("c1", "read", &json!({ "path": "key.txt" })),
        call("c2", SECRET, &json!({ "path": SECRET })),
        Reply::error(400, "invalid_request_error", &format!("not with {SECRET} and {KEY}")),
    ]);
    world.file("key.txt", format!("token {SECRET}\n"));
    let log = world.path("log.jsonl");
    let env = [("QUIPU_LOG", "trace"), ("QUIPU_LOG_FILE", log.to_str().unwrap())];
    let ran = traced(&world, &env, &["-p", &format!("use {SECRET}")]);
    assert!(!ran.status.success());
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(!text.contains(SECRET) && !text.contains(KEY), "{text}");
    let all = lines(&text);
    let failed = ended(&all, "model_call").pop().unwrap();
    let error = failed["error"].as_str().unwrap();
    assert!(error.contains("[REDACTED:github-token:") && error.contains("[credential]"), "{error}");
    assert!(failed["error.kind"].is_string() && failed["outcome"] == "failed", "{failed}");
}

#[test]
fn lines_go_to_stderr_and_nothing_where_it_is_off() {
    let world = World::new(vec![Answer::new().text("Done.").reply(); 4]);
    let log = world.path("log.jsonl");
    let ran = traced(&world, &[("QUIPU_LOG", "quipu=info")], &["-p", "go"]).ok();
    assert_eq!(ran.text(), "Done.\n");
    let traced_lines: Vec<&str> = ran.err.lines().filter(|line| line.starts_with("{\"time\"")).collect();
    let all = lines(&traced_lines.join("\n"));
    assert_eq!(ended(&all, "model_call").len(), 1);
    assert!(ended(&all, "commit").is_empty(), "commits are for debug");
    let only = traced(&world, &[("QUIPU_LOG", "quipu_store=debug")], &["-p", "go"]).ok();
    assert!(only.err.contains("\"commit\"") && !only.err.contains("model_call"), "{}", only.err);
    for env in [&[("QUIPU_LOG_FILE", log.to_str().unwrap())][..], &[("QUIPU_LOG", "off")]] {
        let ran = traced(&world, env, &["-p", "go"]).ok();
        assert!(!ran.err.contains("{\"time\""), "{}", ran.err);
    }
    assert!(!log.exists() && !world.path("home/.quipu/logs").exists());
}

#[test]
fn wrong_directives_are_told_and_change_nothing() {
    let world = World::new(vec![Answer::new().text("Done.").reply(); 2]);
    for (directives, why) in
        [("debgu", "\"debgu\" is not a level"), ("hyper=debug", "\"hyper\" cannot be traced")]
    {
        let ran = traced(&world, &[("QUIPU_LOG", directives)], &["-p", "go"]).ok();
        assert_eq!(ran.text(), "Done.\n");
        let warned: Vec<&str> =
            ran.err.lines().filter(|line| line.contains("QUIPU_LOG is ignored")).collect();
        let [warning] = warned.as_slice() else { panic!("{}", ran.err) };
        assert!(warning.starts_with("warning: ") && warning.contains(why), "{warning}");
        assert!(!ran.err.contains("{\"time\""), "{}", ran.err);
    }
    let ran = traced(&world, &[("QUIPU_LOG", "loud")], &["sessions"]).ok();
    assert!(ran.err.contains("off, error, warn, info, debug and trace"), "{}", ran.err);
}

#[test]
fn a_place_that_takes_nothing_is_told_once() {
    let world = World::unprivileged(vec![Answer::new().text("Done.").reply(); 3]);
    world.file("closed", "");
    set_mode(&world.path("work/closed"), 0o400);
    for path in ["/dev/full", "/nonexistent/log", "closed"] {
        let env = [("QUIPU_LOG", "debug"), ("QUIPU_LOG_FILE", path)];
        let ran = traced(&world, &env, &["-p", "go"]).ok();
        assert_eq!(ran.text(), "Done.\n");
        let warned: Vec<&str> = ran.err.lines().filter(|line| line.contains(path)).collect();
        assert_eq!(warned.len(), 1, "{}", ran.err);
        assert!(warned[0].starts_with("warning: "), "{}", ran.err);
    }
}

#[test]
fn terminal_traces_to_a_file_and_names_it() {
    let world = World::new([says("Hello there.")]);
    let mut terminal = Terminal::telling(&world, &[], 100, 30, &[("QUIPU_LOG", "debug")]);
    terminal.shows("logs/quipu.jsonl");
    terminal.shows("test-1");
    terminal.types("say hello\r");
    terminal.shows("Hello there.");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    let log = world.path("home/.quipu/logs/quipu.jsonl");
    assert_eq!((mode(&log), mode(log.parent().unwrap())), (0o600, 0o700));
    let all = lines_of(&log);
    assert_eq!(ended(&all, "run").len(), 1);
    assert!(!contains(&terminal.bytes, b"\"phase\""), "nothing of it is drawn");
    // A directive that is wrong is shown, too.
    let mut terminal = Terminal::telling(&world, &[], 100, 30, &[("QUIPU_LOG", "loud")]);
    terminal.shows("is not a level");
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
}
