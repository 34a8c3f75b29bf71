//! `--record`, `--replay`, `--fork`, and the recordings that are shipped as demos.

use std::path::{Path, PathBuf};

use quipu_testkit::{Answer, Reply};
use serde_json::{Value, json};

use crate::support::*;

fn demo_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/demo").join(name)
}

fn copy(world: &World, name: &str) {
    world.file(name, std::fs::read(demo_file(name)).unwrap());
}

/// A world whose model is called `scripted`, with the four tools that a demo needs. It is no provider that the questions
/// at the end know.
fn studio(script: impl IntoIterator<Item = Reply>) -> World {
    let world = World::new(script);
    world.unchecked();
    let models = json!({ "providers": { "demo": {
        "baseUrl": world.server.url(), "apiKey": KEY, "api": "anthropic-messages",
        "models": [{ "id": "scripted", "name": "Scripted", "contextWindow": 200_000, "maxTokens": 8_000 }],
    } } });
    std::fs::write(world.path("home/.quipu/models.json"), models.to_string()).unwrap();
    std::fs::write(world.path("home/.quipu/settings.json"), r#"{"search":{"tool":false}}"#).unwrap();
    world
}

/// Compares a new recording with the shipped one, but for what changes with the words of our prompt and tools.
/// `INSTA_UPDATE=always` ships the new one.
fn compare(world: &World, made: &str, shipped: &str) {
    let made = std::fs::read_to_string(world.path("work").join(made)).unwrap();
    if std::env::var("INSTA_UPDATE").is_ok_and(|value| value == "always") {
        std::fs::write(demo_file(shipped), &made).unwrap();
    }
    let shipped_text = std::fs::read_to_string(demo_file(shipped)).unwrap();
    let plain = |text: &str| -> Vec<Value> {
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines
            .map(|mut line| {
                for name in ["by", "system", "toolDeclarations", "body", "bodyBytes", "chain"] {
                    line.as_object_mut().unwrap().remove(name);
                }
                line
            })
            .collect()
    };
    assert_eq!(plain(&made), plain(&shipped_text), "{shipped}: INSTA_UPDATE=always makes it anew");
}

#[test]
fn the_demo_is_a_recording() {
    let world = studio([
        Answer::new()
            .text("I will run the test first, and read the program beside it.")
            .tool_call("call_1_1", "bash", r#"{"command":"sh test.sh"}"#)
            .tool_call("call_1_2", "read", r#"{"path":"discount.sh"}"#)
            .usage(812, 74, 0, 0)
            .reply(),
        Answer::new()
            .text("The discount is subtracted as an amount; it should be a percentage of the price.")
            .tool_call(
                "call_2_1",
                "edit",
                r#"{"path":"discount.sh","edits":[{"oldText":"$((price - percent))","newText":"$((price - price * percent / 100))"}]}"#,
            )
            .usage(1_094, 92, 0, 0)
            .reply(),
        Answer::new()
            .text("Now the test again.")
            .tool_call("call_3_1", "bash", r#"{"command":"sh test.sh"}"#)
            .usage(1_215, 38, 0, 0)
            .reply(),
        Answer::new()
            .text("Fixed: `discount.sh` now takes the percentage of the price, and `sh test.sh` passes.")
            .usage(1_290, 27, 0, 0)
            .reply(),
    ]);
    copy(&world, "discount.sh");
    copy(&world, "test.sh");
    let task = "The test fails. Find the bug, fix it, and show that the test passes.";
    world.run(&["-p", "--permissions", "full", "--model", "demo/scripted", "--record", "made", task]).ok();
    compare(&world, "made", "task.jsonl");
}

#[test]
fn the_tour_is_two_recordings() {
    let write = |id: &str, path: &str, content: &str| {
        (id.to_owned(), json!({ "path": path, "content": content }).to_string())
    };
    let by_name = write("call_2_1", "by-name.txt", "Ada   12-10\nAlan  06-23\nGrace 12-09\n");
    let by_date = write("call_3_1", "by-date.txt", "Alan  06-23\nGrace 12-09\nAda   12-10\n");
    let world = studio([
        Answer::new().tool_call("call_1_1", "read", r#"{"path":"birthdays.txt"}"#).usage(790, 31, 0, 0).reply(),
        Answer::new()
            .text("Three people, in no order. I can sort them by name (Ada, Alan, Grace) or by date (Alan, Grace, Ada).")
            .usage(868, 40, 0, 0)
            .reply(),
        Answer::new().tool_call(&by_name.0, "write", &by_name.1).usage(931, 63, 0, 0).reply(),
        Answer::new().text("Done: `by-name.txt` begins with Ada.").usage(1_020, 14, 0, 0).reply(),
        Answer::new().tool_call(&by_date.0, "write", &by_date.1).usage(934, 63, 0, 0).reply(),
        Answer::new().text("Done: `by-date.txt` begins with Alan.").usage(1_023, 14, 0, 0).reply(),
    ]);
    copy(&world, "birthdays.txt");
    let ask = "Read birthdays.txt and say how it could be sorted.";
    let record = |file: &'static str| ["-p", "--model", "demo/scripted", "--record", file];
    world.run(&[&record("tour")[..], &[ask, "By name, into by-name.txt."]].concat()).ok();
    let answers: Vec<Value> =
        world.nodes().into_iter().filter(|node| node["step"]["call"].is_object()).collect();
    let node = answers[1]["id"].as_str().unwrap();
    world.run(&[&record("fork")[..], &["--fork", node, "By date, into by-date.txt."]].concat()).ok();
    compare(&world, "tour", "tour.jsonl");
    compare(&world, "fork", "tour-fork.jsonl");
}

/// A recording of a small task, made in a world of its own.
fn recording() -> Vec<u8> {
    let world = World::new([
        bash("c1", "cat f; pwd; mktemp -u; date +%H:%M:%S; echo in 0.$$ s"),
        Answer::new().text("It says hi.").reply(),
        Answer::new().text("Still.").reply(),
    ]);
    world.file("f", "hi\n");
    let ran = world.run(&["-p", "--record", "rec", "look", "and now?"]).ok();
    assert_eq!(ran.text(), "It says hi.\nStill.\n");
    let path = world.path("work/rec");
    assert_eq!(mode(&path), 0o600);
    let bytes = std::fs::read(path).unwrap();
    assert!(!contains(&bytes, KEY.as_bytes()) && !contains(&bytes, world.server.url().as_bytes()));
    bytes
}

/// A world without model and key.
fn alone(recording: &[u8]) -> World {
    let world = World::new([]);
    std::fs::remove_file(world.path("home/.quipu/models.json")).unwrap();
    world.file("rec", recording);
    world
}

#[test]
fn a_recording_needs_no_model_and_no_key() {
    let world = alone(&recording());
    world.file("f", "hi\n");
    let ran = world.run(&["--replay", "rec"]).ok();
    assert_eq!(ran.text(), "It says hi.\nStill.\n");
    assert!(ran.err.contains("• bash cat f; pwd;") && !ran.err.contains("note:"), "{}", ran.err);
    let nodes = world.nodes();
    assert_eq!(nodes.len(), 7);
    assert_eq!(nodes[2]["step"]["call"]["provider"], "replay");
    let events = world.run(&["-p", "--mode", "json", "--no-session", "--replay", "rec"]).ok().json_lines();
    assert!(events.len() > 10);
    let other = world.run(&["--replay", "rec", "--append-system-prompt", "Be short."]).ok();
    assert!(other.err.contains("a different system prompt"), "{}", other.err);
    assert!(world.requests().is_empty());
}

#[test]
fn reality_that_departs_from_the_recording_is_told() {
    let world = alone(&recording());
    world.file("f", "hello\n");
    let words = ["the result of `bash` (call c1) differs", "expected: hi\n", "got:      hello"];
    let ran = world.run(&["--replay", "rec"]).fails(6, &words);
    assert!(!ran.err.contains("to continue"), "a replay does not go on: {}", ran.err);
}

#[test]
fn a_file_that_is_no_recording_is_told() {
    let good = String::from_utf8(recording()).unwrap();
    let check = |bytes: &[u8], words: &[&str]| {
        let world = alone(bytes);
        world.run(&["--replay", "rec"]).fails(2, words);
        assert!(!world.store().exists(), "nothing was begun");
    };
    check(b"", &["rec is not a recording"]);
    check(b"\x7fELF\x02\x01\0\0", &["rec is not a recording"]);
    check(good.replacen("says hi", "says no", 1).as_bytes(), &["rec was modified: the hash of line 3"]);
    check(good.replacen("Recording\":1", "Recording\":7", 1).as_bytes(), &["version 7", "Update"]);
    check(&good.as_bytes()[..good.len() - 9], &["rec is incomplete: line 4"]);
    let world = alone(good.as_bytes());
    world.run(&["--replay", "none"]).fails(2, &["none"]);
    world.run(&["--replay", "."]).fails(2, &["not a regular file"]);
    for more in [&["word"][..], &["-c"], &["--model", "x"], &["--record", "f"], &["--session", "x"]] {
        world.run(&[&["--replay", "rec"], more].concat()).exits(2);
    }
}

#[test]
fn a_recording_overwrites_nothing_and_is_not_begun_in_vain() {
    let world = World::says("Hello.");
    world.file("mine", "keep");
    world.run(&["-p", "--record", "mine", "hello"]).fails(2, &["mine already exists"]);
    assert_eq!(std::fs::read_to_string(world.path("work/mine")).unwrap(), "keep");
    world.run(&["-p", "--record", "no/dir", "hello"]).fails(2, &["no/dir"]);
    world.run(&["-p", "--record", "rec", "--model", "none-such", "hello"]).exits(2);
    assert!(!world.path("work/rec").exists());
    assert!(world.requests().is_empty(), "nothing was paid before the file was there");
    world.run(&["-p", "--record", "rec", "hello"]).ok();
}

#[test]
fn unfinished_recording_is_reported_and_replayable() {
    let world = World::new([
        bash("c1", "cat f"),
        Answer::new().text("It says hi.").reply(),
        Answer::new().text(&"Still. ".repeat(500)).reply(),
    ]);
    world.unchecked();
    world.file("f", "hi\n");
    // Files may grow to 4 KiB, as on a disk that is full then.
    let mut command = world.command("/bin/sh");
    let program = world.program.display();
    command.args(["-c", &format!("ulimit -f 8; exec {program} -p --no-session --record rec look on")]);
    let ran = RunningCommand::start(command).wait().fails(1, &["the recording is not complete", "rec"]);
    assert!(ran.text().ends_with("Still. \n"), "the answer is not lost: {}", ran.text());
    let ran = world.run(&["--replay", "rec"]).ok();
    assert_eq!(ran.text(), "It says hi.\n");
}

#[test]
fn another_way_from_an_older_node() {
    let world = World::new([
        Answer::new().text("Left or right?").reply(),
        bash("c1", "echo left"),
        Answer::new().text("Left it is.").reply(),
        Answer::new().text("Right it is.").reply(),
    ]);
    world.run(&["-p", "where?", "left"]).ok();
    let nodes = world.nodes();
    let node = |at: usize| nodes[at]["id"].as_str().unwrap();
    world.run(&["-p", "--fork", node(4), "on"]).fails(2, &["tool calls have no result", "bash"]);
    world.run(&["-p", "--fork", "ffff", "on"]).exits(2);
    let ran = world.run(&["-p", "--fork", &node(2)[..12], "right"]).ok();
    assert_eq!(ran.text(), "Right it is.\n");
    let said: Vec<String> = messages(&world.requests()[3]).iter().map(wire_text).collect();
    assert_eq!(said, ["where?", "Left or right?", "right"]);
    let sessions = world.sessions();
    assert_eq!(sessions.len(), 2);
    // The first session is as it was.
    let first = sessions.iter().find(|row| row["id"] == nodes[0]["session"]["session"]).unwrap();
    assert_eq!(world.nodes_of(&[first["id"].as_str().unwrap()])[..7], nodes[..7]);
}
