//! Lines that are no commands, too many of them, and clients that do not read.

use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::process::Stdio;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use quipu_testkit::{Answer, process_memory};
use serde_json::{Value, json};

use super::Rpc;
use crate::support::*;

#[test]
fn bad_lines_are_answered_and_the_next_command_is_carried_out() {
    let world = World::says("Hello.");
    let mut rpc = Rpc::start(&world, &[]);
    for (line, command, error) in [
        ("not json", json!("parse"), "Failed to parse command: "),
        ("[1]", json!("parse"), "a command is a JSON object"),
        ("{\"type\":\"prompt\"", json!("parse"), "Failed to parse command: "),
        (r#"{"type":"bogus"}"#, json!("bogus"), "Unknown command: bogus"),
        (r#"{"kind":"prompt"}"#, Value::Null, "Unknown command: undefined"),
        (r#"{"type":"prompt"}"#, json!("prompt"), "missing field `message`"),
        (r#"{"type":"prompt","message":{"a":1}}"#, json!("prompt"), "expected a string"),
        (r#"{"type":"prompt","message":" "}"#, json!("prompt"), "the message is empty"),
        (r#"{"type":"fork","entryId":"nowhere"}"#, json!("fork"), "Invalid entry ID for forking"),
        (r#"{"type":"get_entries","since":"nowhere"}"#, json!("get_entries"), "Entry not found: nowhere"),
        (r#"{"type":"set_model","provider":"p","modelId":"m"}"#, json!("set_model"), "Model not found: p/m"),
        (
            r#"{"type":"set_thinking_level","level":"very"}"#,
            json!("set_thinking_level"),
            "Unknown thinking level: very",
        ),
        (
            r#"{"type":"set_session_name","name":"  "}"#,
            json!("set_session_name"),
            "Session name cannot be empty",
        ),
        (r#"{"type":"clone"}"#, json!("clone"), "Cannot clone session: no current entry selected"),
        (r#"{"type":"switch_session","sessionPath":"no-such"}"#, json!("switch_session"), "no-such"),
        (r#"{"type":"export_html"}"#, json!("export_html"), "Nothing to export yet"),
        (r#"{"type":"bash","command":""}"#, json!("bash"), "empty"),
    ] {
        rpc.process.send(line);
        let answer = rpc.next();
        assert_eq!((&answer["command"], &answer["success"]), (&command, &json!(false)), "{line}: {answer}");
        assert!(answer["error"].as_str().unwrap().contains(error), "{line}: {answer}");
    }
    // Blank lines say nothing, and the last line needs no end.
    let input = rpc.process.input.as_mut().unwrap();
    input.write_all(b"\n \r\n\xff\n{\"type\":\"get_state\",\"id\":1}\r\n").unwrap();
    assert_eq!(rpc.next()["command"], "parse");
    assert_eq!(rpc.next()["id"], 1);
    rpc.run("Hi.");
    let input = rpc.process.input.as_mut().unwrap();
    input.write_all(b"{\"type\":\"get_last_assistant_text\",\"id\":\"last\"}").unwrap();
    let ended = rpc.process.close().ok();
    let text = ended.text();
    let last = r#"{"id":"last","type":"response","command":"get_last_assistant_text","success":true,"data":{"text":"Hello."}}"#;
    assert_eq!(text.lines().last(), Some(last), "{text}");
}

#[test]
fn thousand_commands_in_one_write_are_all_answered() {
    let world = World::says("Hello.");
    let mut rpc = Rpc::start(&world, &[]);
    rpc.run("Hi.");
    let types = ["get_state", "get_entries", "get_tree", "get_messages", "get_session_stats", "bogus"];
    let line = |n: usize| format!("{{\"id\":{n},\"type\":\"{}\"}}\n", types[n % types.len()]);
    let all: String = (0..1_000).map(line).collect();
    rpc.process.input.as_mut().unwrap().write_all(all.as_bytes()).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < 1_000 {
        let answer = rpc.next();
        assert_eq!(answer["type"], "response", "{answer}");
        let n = usize::try_from(answer["id"].as_u64().unwrap()).unwrap();
        assert_eq!(answer["success"], types[n % types.len()] != "bogus", "{answer}");
        assert!(seen.insert(n), "{n} is answered twice");
    }
    rpc.process.close().ok();
}

#[test]
fn line_of_a_hundred_megabytes_is_skipped_and_not_held() {
    let world = World::new([]);
    let mut rpc = Rpc::start(&world, &[]);
    let mut input = rpc.process.input.take().unwrap();
    let writer = std::thread::spawn(move || {
        input.write_all(b"{\"type\":\"prompt\",\"message\":\"").unwrap();
        let piece = vec![b'x'; 1 << 20];
        for _ in 0..100 {
            input.write_all(&piece).unwrap();
        }
        input.write_all(b"\"}\n{\"type\":\"get_state\",\"id\":1}\n").unwrap();
        input
    });
    let answer = rpc.next();
    assert_eq!(answer["command"], "parse");
    assert!(answer["error"].as_str().unwrap().contains("longer than 16 MiB"), "{answer}");
    assert_eq!(rpc.next()["id"], 1);
    let held = process_memory(rpc.process.running.child.id()).unwrap().peak;
    assert!(held < 200 << 10, "{held} KiB");
    drop(writer.join().unwrap());
    rpc.process.running.wait().ok();
}

#[test]
fn client_that_never_reads_is_waited_for_in_bounded_memory() {
    let world = World::new([Answer::new().text(&"word ".repeat(20_000)).reply()]);
    let mut rpc = Rpc::start(&world, &[]);
    rpc.run("Say much.");
    let id = rpc.state()["sessionId"].as_str().unwrap().to_owned();
    rpc.process.close().ok();

    let mut command = world.quipu(&["--mode", "rpc", "--session", &id]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    // Each is answered with 100 KB that nobody reads: a gigabyte in all, if it were made.
    let line = b"{\"type\":\"get_messages\"}\n";
    let mut sent = 0;
    while sent < 10_000 {
        let mut fds = [PollFd::new(input.as_fd(), PollFlags::POLLOUT)];
        if poll(&mut fds, PollTimeout::from(3_000_u16)).unwrap() == 0 {
            // It takes no more.
            break;
        }
        input.write_all(line).unwrap();
        sent += 1;
    }
    let held = process_memory(child.id()).unwrap().peak;
    assert!(held < 250 << 10, "{held} KiB after {sent} commands");
    // It ends in order all the same.
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143));
    let mut rest = String::new();
    child.stderr.take().unwrap().read_to_string(&mut rest).unwrap();
    assert!(!rest.contains("panicked"), "{rest}");
}

#[test]
fn client_that_closes_its_end_of_stdout_ends_the_program() {
    let world = World::new([]);
    let mut command = world.quipu(&["--mode", "rpc"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let mut input = child.stdin.take().unwrap();
    // What cannot be written is not asked for again.
    while input.write_all(b"{\"type\":\"get_state\"}\n").is_ok() {}
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

#[test]
fn arguments_that_have_no_meaning_are_refused() {
    let world = World::new([]);
    world.run(&["--mode", "rpc", "@notes.md"]).fails(2, &["@file arguments are not supported in RPC mode"]);
    world.run(&["--mode", "rpc", "fix the test"]).fails(2, &["messages are not supported in RPC mode"]);
    world.run(&["-p", "--mode", "rpc", "--replay", "x"]).fails(2, &["--replay has no meaning"]);
    world.run(&["--mode", "rpc", "--model", "no-such-model"]).fails(2, &["no-such-model"]);
    // Nothing was said, so nothing is there.
    world.run(&["--mode", "rpc"]).ok();
    assert!(world.sessions().is_empty());
}
