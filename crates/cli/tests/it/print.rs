//! `quipu -p`: what goes in, what comes out, and what the model is sent.

use base64::Engine as _;
use quipu_testkit::{Answer, CapturedRequest, Reply};
use serde_json::{Value, json};

use crate::support::*;

/// A picture of one pixel.
const PIXEL: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";

fn answers(texts: &[&str]) -> Vec<Reply> {
    texts.iter().map(|text| Answer::new().text(text).reply()).collect()
}

fn system(request: &CapturedRequest) -> String {
    let system = &request.json()["system"];
    system.as_array().unwrap().iter().map(|block| block["text"].as_str().unwrap()).collect()
}

#[test]
fn text_streams_to_stdout_when_asked_and_the_rest_to_stderr() {
    let gate = quipu_testkit::Gate::new();
    let answer = Answer::new().text("First line.\nNo newline é😀 \u{1b}[31m at the end");
    let begin = answer.unfinished();
    let end = answer.stream()[begin.len()..].to_owned();
    let first =
        Answer::new().text("I run it.").tool_call("c1", "bash", r#"{"command":"echo done; exit 3"}"#).reply();
    let world = World::new([first, Reply::sse(begin).then_gate(&gate).then(end)]);
    let mut running = world.start(&["-p", "--stream", "go"]);
    assert_eq!(running.line().unwrap(), "I run it.");
    // It is there while the answer is still open.
    assert_eq!(running.line().unwrap(), "First line.");
    reached(&gate);
    gate.open();
    let ran = running.wait().ok();
    assert_eq!(ran.text(), "I run it.\nFirst line.\nNo newline é😀 \u{1b}[31m at the end\n");
    assert!(ran.err.contains("• bash echo done; exit 3"), "{}", ran.err);
    assert!(ran.err.contains("bash failed: done Command exited with code 3"), "{}", ran.err);
}

#[test]
fn answer_is_printed_when_it_is_kept() {
    let gate = quipu_testkit::Gate::new();
    let answer = Answer::new().text("The first line.\nThe second.");
    let begin = answer.unfinished();
    let end = answer.stream()[begin.len()..].to_owned();
    let broken = Reply::sse(Answer::new().text("42, wrong draft").unfinished()).then_cut();
    let first = Answer::new().text("I run it.").tool_call("c1", "bash", r#"{"command":"cat go"}"#).reply();
    let world = World::new([first, broken, Reply::sse(begin).then_gate(&gate).then(end)]);
    let mut running = world.start(&["-p", "go"]);
    // Before its calls are run.
    assert_eq!(running.line().unwrap(), "I run it.");
    reached(&gate);
    gate.open();
    let ran = running.wait().ok();
    assert_eq!(ran.text(), "I run it.\nThe first line.\nThe second.\n");
    assert!(ran.err.contains("broke off") && ran.err.contains("try 2"), "{}", ran.err);
    world.run(&["-p", "--stream", "--mode", "json", "x"]).fails(2, &["--stream is for text"]);
}

#[test]
fn broken_answer_without_another_try_prints_nothing() {
    let broken = || Reply::sse(Answer::new().text("42, wrong draft").unfinished()).then_cut();
    let world = World::new((0..4).map(|_| broken()));
    let ran = world.run(&["-p", "go"]).exits(1);
    assert_eq!(ran.text(), "");
}

#[test]
fn progress_of_an_answer_is_seen_on_a_terminal() {
    let world = World::new([Answer::new().text(&"word ".repeat(200)).text("Behind it.").reply()]);
    let (code, shown) = on_terminal(&world, &["-p", "go"], "", 80);
    assert_eq!(code, Some(0));
    assert!(shown.contains("\r\u{1b}[K… answering, "), "{shown:?}");
    let left = shown.rsplit("\u{1b}[K").next().unwrap();
    assert!(left.ends_with("Behind it.\n") && !left.contains("answering"), "{left:?}");
}

#[test]
fn a_session_goes_on_with_the_same_prefix() {
    let world = World::new(answers(&["One.", "Two.", "Three.", "Four."]));
    world.run(&["-p", "first"]).ok();
    assert_eq!(world.run(&["-p", "-c", "second"]).ok().text(), "Two.\n");
    let id = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    world.run(&["-p", "--session", &id[..13], "third"]).ok();
    world.run(&["-p", "--session", &id, "fourth"]).ok();
    assert_eq!(world.sessions().len(), 1);
    let requests = world.requests();
    let said: Vec<String> = messages(&requests[3]).iter().map(wire_text).collect();
    assert_eq!(said, ["first", "One.", "second", "Two.", "third", "Three.", "fourth"]);
    // All that stands before the newest message is sent as before, byte for byte.
    for pair in requests.windows(2) {
        let [before, after] = pair else { unreachable!() };
        let common = before.body.iter().zip(&after.body).take_while(|(a, b)| a == b).count();
        let text = String::from_utf8_lossy(&before.body);
        let last = text.rfind("\"text\":\"").unwrap();
        assert!(common > last, "only {common} bytes of {} are the same: {text}", before.body.len());
    }
    // The four prompts and answers stand in one line, each in its own node.
    let nodes = world.nodes();
    assert_eq!(nodes.len(), 9);
    for pair in nodes.windows(2) {
        assert_eq!(pair[1]["parent"], pair[0]["id"]);
    }
}

#[test]
fn continuing_is_a_matter_of_the_directory() {
    let world = World::new(answers(&["Here.", "There.", "Here again."]));
    world.run(&["-p", "here"]).ok();
    std::fs::create_dir(world.path("work/other")).unwrap();
    let mut command = world.quipu(&["-p", "-c", "there"]);
    command.current_dir(world.path("work/other"));
    let ran = RunningCommand::start(command).wait().ok();
    assert!(ran.err.contains("No session in this directory yet; starting one."), "{}", ran.err);
    world.run(&["-p", "-c", "again"]).ok();
    let requests = world.requests();
    assert_eq!(messages(&requests[1]).len(), 1);
    assert_eq!(messages(&requests[2]).len(), 3);
    assert_eq!(world.sessions().len(), 2);
    assert_eq!(world.run(&["sessions", "--json"]).ok().json_lines().len(), 1);
}

#[test]
fn nothing_is_kept_when_nothing_should_be() {
    let world = World::says("Hello.");
    world.unchecked();
    assert_eq!(world.run(&["-p", "--no-session", "hi"]).ok().text(), "Hello.\n");
    assert!(!world.store().exists());
    assert_eq!(world.sessions(), Vec::<Value>::new());
}

#[test]
fn another_store_can_be_named() {
    let world = World::new(answers(&["One.", "Two."]));
    world.run(&["-p", "--store", "sub/own.db", "first"]).ok();
    assert!(!world.store().exists());
    world.run(&["-p", "--store", "sub/own.db", "-c", "second"]).ok();
    assert_eq!(messages(&world.requests()[1]).len(), 3);
    assert_eq!(mode(&world.path("work/sub/own.db")), 0o600);
    assert_eq!(mode(&world.path("work/sub")), 0o700);
}

#[test]
fn limits_end_a_run_and_it_goes_on_from_there() {
    let step = |n: u32| bash(&format!("c{n}"), &format!("echo {n}"));
    let world = World::new([step(1), step(2), Answer::new().text("Done.").reply()]);
    let ran =
        world.run(&["-p", "--max-turns", "2", "count"]).fails(5, &["2 turns", "--max-turns", "quipu -p -c"]);
    assert_eq!(ran.text(), "");
    world.run(&["-p", "-c", "go on"]).ok();
    let said: Vec<String> = messages(&world.requests()[2]).iter().map(wire_text).collect();
    assert_eq!(said[said.len() - 2..], ["2\n", "go on"]);
}

#[test]
fn the_system_prompt_is_ours_or_yours() {
    let world = World::new(answers(&["1", "2", "3", "4", "5"]));
    world.file("prompt.md", "From a file.\n");
    world.run(&["-p", "hi"]).ok();
    world.run(&["-p", "--system-prompt", "Be terse.", "hi"]).ok();
    world
        .run(&[
            "-p",
            "--system-prompt",
            "prompt.md",
            "--append-system-prompt",
            "And more.",
            "--append-system-prompt",
            "prompt.md",
            "hi",
        ])
        .ok();
    // It stays with the session, and it can be changed.
    world.run(&["-p", "-c", "hi"]).ok();
    world.run(&["-p", "-c", "--system-prompt", "New.", "hi"]).ok();
    let requests = world.requests();
    let cwd = format!("\n\nWorking directory: {}\n", world.path("work").display());
    assert!(system(&requests[0]).starts_with("You are Quipu") && system(&requests[0]).ends_with(&cwd));
    assert_eq!(system(&requests[1]), format!("Be terse.{cwd}"));
    assert_eq!(system(&requests[2]), format!("From a file.\n\nAnd more.\n\nFrom a file.{cwd}"));
    assert_eq!(system(&requests[3]), system(&requests[2]));
    assert_eq!(system(&requests[4]), format!("New.{cwd}"));
    assert_eq!(messages(&requests[4]).len(), 5);
}

#[test]
fn rules_of_the_project_are_in_the_prompt() {
    let world = World::new(answers(&["0", "1", "2", "3", "4"]));
    std::fs::write(world.path("home/.quipu/AGENTS.md"), "Mine.").unwrap();
    std::fs::write(world.path("AGENTS.md"), "Above.").unwrap();
    world.file("AGENTS.md", "Here.");
    // What lies above the project is not its own, unless the user says so.
    let ran = world.run(&["-p", "hi"]).ok();
    assert!(ran.err.contains("it is above") && ran.err.contains("rules.above"), "{}", ran.err);
    let all = system(&world.requests()[0]);
    assert!(all.contains("Mine.") && all.contains("Here.") && !all.contains("Above."), "{all}");
    let settings = world.path("home/.quipu/settings.json");
    let above = world.path("work").parent().unwrap().display().to_string();
    let wrong = serde_json::json!({ "rules": { "above": above } });
    std::fs::write(&settings, wrong.to_string()).unwrap();
    let ran = world.run(&["-p", "hi"]).ok();
    assert!(ran.err.contains("rules.above must be a list"), "{}", ran.err);
    std::fs::write(&settings, serde_json::json!({ "rules": { "above": [above] } }).to_string()).unwrap();
    world.run(&["-p", "hi"]).ok();
    world.run(&["-p", "--no-context-files", "hi"]).ok();
    let all = system(&world.requests()[2]);
    let places: Vec<usize> = ["Mine.", "Above.", "Here.", "Working directory"]
        .iter()
        .map(|rule| all.find(rule).unwrap())
        .collect();
    assert!(places.is_sorted(), "{all}");
    assert!(!system(&world.requests()[3]).contains("Here."));
    // One that cannot be read is told, and the rest is used.
    std::fs::remove_file(world.path("AGENTS.md")).unwrap();
    std::os::unix::fs::symlink("/proc/self/mem", world.path("AGENTS.md")).unwrap();
    world.run(&["-p", "hi"]).ok();
    assert!(system(&world.requests()[4]).contains("Here."));
}

#[test]
fn files_and_piped_text_come_before_the_words() {
    let world = World::new(answers(&["1", "2", "3", "4"]));
    let notes = world.file("notes.txt", "\u{feff}Note é\n");
    world.file("empty.txt", "");
    let pixel = base64::engine::general_purpose::STANDARD.decode(PIXEL).unwrap();
    world.file("pixel.png", &pixel);
    world.run_with(&["-p", "@notes.txt", "@empty.txt", "@pixel.png", "Look."], "  piped\n\n").ok();
    let request = messages(&world.requests()[0]);
    let content = request[0]["content"].as_array().unwrap();
    let text = format!("piped\n<file name=\"{}\">\nNote é\n\n</file>\nLook.", notes.display());
    assert_eq!(wire_text(&request[0]).trim_end(), text);
    assert_eq!(content[3]["source"]["media_type"], "image/png");
    assert_eq!(content[3]["source"]["data"], PIXEL);
    assert_eq!(content.len(), 4, "an image is sent once");
    // Only piped.
    world.run_with(&["-p"], "all of it").ok();
    assert_eq!(wire_text(&messages(&world.requests()[1])[0]), "all of it");
    // Bytes that are no text do no harm.
    world.run_with(&["-p", "what is this?"], b"\xff\xfe\x00bytes".as_slice()).ok();
    assert!(wire_text(&messages(&world.requests()[2])[0]).ends_with("bytes\nwhat is this?"));
    // Without -p, words are a task as well.
    world.run(&["just do it"]).ok();
}

#[test]
fn several_messages_are_several_prompts() {
    let world = World::new(answers(&["One.", "Two.", "Three."]));
    let ran = world.run(&["-p", "first", "second", "third"]).ok();
    assert_eq!(ran.text(), "One.\nTwo.\nThree.\n");
    let said: Vec<String> = messages(&world.requests()[2]).iter().map(wire_text).collect();
    assert_eq!(said, ["first", "One.", "second", "Two.", "third"]);
}

#[test]
fn the_model_and_its_key_can_be_chosen() {
    let world = World::new(answers(&["1", "2", "3", "4", "5"]));
    world.run(&["-p", "hi"]).ok();
    world.run(&["-p", "--model", "thinker", "--thinking", "low", "hi"]).ok();
    world.run(&["-p", "--provider", "testing", "--model", "testing/thinker:off", "hi"]).ok();
    // What a session was begun with, it keeps.
    world.run(&["-p", "-c", "hi"]).ok();
    world.run(&["-p", "-c", "--model", "test-1", "--api-key", "another-key-0123456789", "hi"]).ok();
    let requests = world.requests();
    let models: Vec<Value> = requests.iter().map(|request| request.json()["model"].clone()).collect();
    assert_eq!(models, ["test-1", "thinker", "thinker", "thinker", "test-1"]);
    assert_eq!(requests[0].json()["thinking"], Value::Null);
    assert_eq!(requests[1].json()["thinking"]["budget_tokens"], 2048);
    assert_eq!(requests[2].json()["thinking"], json!({ "type": "disabled" }));
    assert_eq!(requests[3].json()["thinking"], requests[2].json()["thinking"]);
    let keys: Vec<&str> = requests.iter().map(|request| request.header("x-api-key").unwrap()).collect();
    assert_eq!(keys, [KEY, KEY, KEY, KEY, "another-key-0123456789"]);
    assert!(requests.iter().all(|request| request.method == "POST" && request.path == "/v1/messages"));
}

#[test]
fn prompt_and_tools_are_small() {
    let world = World::says("Hello.");
    world.run(&["-p", "hi"]).ok();
    let body = world.requests()[0].json();
    let names: Vec<&str> =
        body["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        ["read", "bash", "background", "edit", "write", "todo", "plan", "search_history", "recall"]
    );
    let size = body["system"].to_string().len() + body["tools"].to_string().len();
    assert!(size <= 5 * 1024, "{size} bytes");
    assert!(world.requests()[0].body.len() <= 5 * 1024 + 300, "{} bytes", world.requests()[0].body.len());
}

#[test]
fn secrets_reach_neither_model_nor_store_and_files_keep_them() {
    let secret = "another-secret-0123456789";
    let world = World::new([
        bash("c1", "cat secret.txt; echo key=$TESTING_KEY"),
        call(
            "c2",
            "edit",
            &json!({ "path": "secret.txt", "edits": [{ "oldText": "old", "newText": "new" }] }),
        ),
        Answer::new().text("Done.").reply(),
    ]);
    world.file("secret.txt", format!("token {KEY}\n{secret}\nold\n"));
    std::fs::write(
        world.path("home/.quipu/auth.json"),
        json!({ "testing": { "type": "api_key", "key": secret } }).to_string(),
    )
    .unwrap();
    set_mode(&world.path("home/.quipu/auth.json"), 0o600);
    let mut command = world.quipu(&["-p", &format!("the key is {KEY}")]);
    command.env("TESTING_KEY", "not-a-provider-variable");
    RunningCommand::start(command).wait().ok();
    assert_eq!(
        std::fs::read_to_string(world.path("work/secret.txt")).unwrap(),
        format!("token {KEY}\n{secret}\nnew\n")
    );
    for request in world.requests() {
        assert_eq!(request.header("x-api-key"), Some(secret));
        assert!(!contains(&request.body, KEY.as_bytes()) && !contains(&request.body, secret.as_bytes()));
    }
    assert!(wire_text(&messages(&world.requests()[0])[0]).starts_with("the key is [REDACTED:"));
    let stored = std::fs::read(world.store()).unwrap();
    assert!(!contains(&stored, KEY.as_bytes()) && !contains(&stored, secret.as_bytes()));
}

#[test]
fn on_a_terminal_nothing_but_our_own_colours_steers_it() {
    use std::io::Read as _;
    let world = World::new([
        Answer::new()
            .text("evil \u{1b}]0;title\u{7} text")
            .tool_call("c1", "read", r#"{"path":"\u001b[2J"}"#)
            .reply(),
        Answer::new().text("Done.").reply(),
    ]);
    let pty = nix::pty::openpty(None, None).unwrap();
    let mut command = world.quipu(&["-p", "go"]);
    let end = || std::process::Stdio::from(pty.slave.try_clone().unwrap());
    let mut child = command.env("TERM", "xterm").stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
    // It holds the other end, too.
    drop(command);
    drop(pty.slave);
    let mut seen = Vec::new();
    // Some systems end a terminal that everybody left with an error.
    std::fs::File::from(pty.master).read_to_end(&mut seen).ok();
    assert!(child.wait().unwrap().success());
    let seen = String::from_utf8(seen).unwrap();
    assert!(seen.contains("evil \\u{1b}]0;title\\u{7} text") && seen.contains("Done."), "{seen:?}");
    assert!(seen.contains("\u{1b}[2m• read \\u{1b}[2J\u{1b}[0m"), "{seen:?}");
    let ours = ["\r\u{1b}[K", "\u{1b}[2m", "\u{1b}[31m", "\u{1b}[0m"];
    let rest = ours.iter().fold(seen, |seen, colour| seen.replace(colour, ""));
    assert!(!rest.contains('\u{1b}') && !rest.contains('\u{7}'), "{rest:?}");
}

#[test]
fn a_directory_whose_name_is_no_text() {
    use std::os::unix::ffi::OsStrExt as _;
    let world = World::new(answers(&["One.", "Two."]));
    let odd = world.path("work").join(std::ffi::OsStr::from_bytes(b"odd-\xff"));
    // Some systems have no such names.
    if std::fs::create_dir(&odd).is_err() {
        return;
    }
    for args in [["-p", "first"].as_slice(), &["-p", "-c", "second"]] {
        let mut command = world.quipu(args);
        command.current_dir(&odd);
        RunningCommand::start(command).wait().ok();
    }
    assert_eq!(messages(&world.requests()[1]).len(), 3);
    let mut command = world.quipu(&["demo"]);
    command.env("QUIPU_HOME", odd.join("home"));
    RunningCommand::start(command).wait().ok();
    assert!(odd.join("home/quipu.db").exists());
}
