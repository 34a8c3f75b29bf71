//! Clients that do what they should not.

use nix::sys::signal::Signal;
use quipu_testkit::Gate;
use serde_json::{Value, json};

use super::client::Client;
use super::says;
use crate::support::*;

#[test]
fn malformed_lines_have_clear_errors_and_the_next_line_counts() {
    let world = World::new([says("Whole.")]);
    let mut client = Client::silent(&world);
    let error = client.fails("session/list", &json!({}));
    assert_eq!((&error["code"], &error["message"]), (&json!(-32_600), &json!("send `initialize` first")));
    let check = |client: &mut Client, line: &str, id: Value, code: i64, why: &str| {
        client.line(line);
        let error = client.answer(&id)["error"].clone();
        assert_eq!(error["code"], code, "{line}: {error}");
        assert!(error["message"].as_str().unwrap().contains(why), "{line}: {error}");
    };
    // A version of tomorrow is answered with ours.
    let params =
        json!({ "protocolVersion": 65_535, "clientCapabilities": { "fs": 7, "terminal": "yes" }, "new": {} });
    assert_eq!(client.call("initialize", &params)["protocolVersion"], 1);
    check(&mut client, "not json", Value::Null, -32_700, "line 3: this line is not JSON");
    check(&mut client, "[]", Value::Null, -32_600, "batches");
    check(&mut client, r#"{"jsonrpc":"2.0","id":"x","method":7}"#, json!("x"), -32_600, "`method`");
    check(&mut client, r#"{"id":"y","method":"session/list"}"#, json!("y"), -32_600, "jsonrpc");
    let tomorrow = r#"{"jsonrpc":"2.0","id":"z","method":"session/dream","params":{}}"#;
    check(&mut client, tomorrow, json!("z"), -32_601, "there is no method `session/dream`");
    let unfit = r#"{"jsonrpc":"2.0","id":"p","method":"session/prompt","params":{"sessionId":7}}"#;
    check(&mut client, unfit, json!("p"), -32_602, "session/prompt");
    let long = format!(r#"{{"jsonrpc":"2.0","id":9,"method":"{}"}}"#, "x".repeat(17 << 20));
    check(&mut client, &long, Value::Null, -32_600, "longer than 16 MiB");
    // Answers that nobody waits for, and notifications that nobody knows, are passed over.
    client.line(r#"{"jsonrpc":"2.0","id":77,"result":{}}"#);
    client.tell("session/unknown", &json!({}));
    client.tell("session/cancel", &json!({ "sessionId": "none" }));
    assert_eq!(client.fails("initialize", &params)["code"], -32_600);
    assert_eq!(client.fails("authenticate", &json!({ "methodId": "x" }))["code"], -32_602);
    let session = client.open(&world);
    assert_eq!(client.says(&session, "Still there?"), "end_turn");
    client.leave();
}

#[test]
fn thousand_parallel_requests_are_each_answered() {
    let gate = Gate::new();
    let world = World::new([]);
    world.server.push(quipu_testkit::Reply::sse("").then_gate(&gate));
    world.server.push(says("Calm."));
    let mut client = Client::start(&world, &json!({}));
    let session = client.open(&world);
    let prompted = client.prompt(&session, "Wait");
    reached(&gate);
    let mode = json!({ "sessionId": session, "modeId": "ask" });
    let prompt = json!({ "sessionId": session, "prompt": [{ "type": "text", "text": "more" }] });
    let mut ids = Vec::new();
    for at in 0..1_000 {
        ids.push(match at % 3 {
            0 => client.send("session/list", &json!({})),
            1 => client.send("session/set_mode", &mode),
            _ => client.send("session/prompt", &prompt),
        });
    }
    let (mut done, mut busy, mut second) = (0, 0, 0);
    for id in ids {
        let answer = client.answer(&json!(id));
        match answer["error"]["message"].as_str() {
            None => done += 1,
            Some(why) if why.contains("requests are already in progress") => busy += 1,
            Some(why) if why.contains("a prompt of this session is under way") => second += 1,
            Some(why) => panic!("{why}"),
        }
    }
    assert!(done > 0 && second > 0, "{done} done, {busy} busy, {second} second prompts");
    client.tell("session/cancel", &json!({ "sessionId": session }));
    assert_eq!(client.result(prompted)["stopReason"], "cancelled");
    gate.open();
    assert_eq!(client.says(&session, "And now?"), "end_turn");
    client.leave();
}

#[test]
fn client_that_dies_in_mid_question_leaves_the_session_whole() {
    let write = |id: &str, world: &World| {
        call(id, "write", &json!({ "path": world.path("out.txt"), "content": "new\n" }))
    };
    let world = World::new([]);
    world.server.push(write("c1", &world));
    world.server.push(says("Back again."));
    let mut client = Client::start(&world, &json!({}));
    let session = client.open(&world);
    client.prompt(&session, "Write outside");
    client.request();
    client.leave();
    assert!(!world.path("out.txt").exists());
    let mut client = Client::start(&world, &json!({}));
    let named = json!({ "sessionId": session, "cwd": world.path("work"), "mcpServers": [] });
    client.call("session/load", &named);
    let calls = client.of_kind("tool_call_update");
    assert_eq!(calls.last().unwrap()["update"]["status"], "failed", "{calls:?}");
    assert_eq!(client.says(&session, "Are you there?"), "end_turn");
    client.leave();
}

#[test]
fn killed_agent_leaves_a_session_that_can_be_loaded() {
    let gate = Gate::new();
    let world = World::new([]);
    world.server.push(quipu_testkit::Reply::sse("").then_gate(&gate));
    world.server.push(says("Back again."));
    let mut client = Client::start(&world, &json!({}));
    let session = client.open(&world);
    client.prompt(&session, "Wait");
    reached(&gate);
    client.process.running.signal(Signal::SIGKILL);
    drop(client.process.running.wait());
    gate.open();
    let mut client = Client::start(&world, &json!({}));
    let named = json!({ "sessionId": session, "cwd": world.path("work"), "mcpServers": [] });
    client.call("session/load", &named);
    assert_eq!(client.text("user_message_chunk"), "Wait");
    assert_eq!(client.says(&session, "Are you there?"), "end_turn");
    client.leave();
}

#[test]
fn directories_that_cannot_be_worked_in_are_refused() {
    let world = World::new([says("Here."), says("There.")]);
    std::fs::create_dir(world.path("other")).unwrap();
    std::os::unix::fs::symlink(world.path("other"), world.path("work/link")).unwrap();
    world.file("file.txt", "");
    let mut client = Client::start(&world, &json!({}));
    let check = |client: &mut Client, cwd: Value, why: &str| {
        let error = client.fails("session/new", &json!({ "cwd": cwd, "mcpServers": [] }));
        assert_eq!(error["code"], -32_602, "{error}");
        assert!(error["message"].as_str().unwrap().contains(why), "{error}");
    };
    check(&mut client, json!("work"), "absolute");
    check(&mut client, json!(""), "absolute");
    check(&mut client, json!(world.path("work/none")), "does not exist");
    check(&mut client, json!(world.path("work/file.txt")), "does not exist");
    check(&mut client, json!(7), "expected a string");
    let added = json!({ "cwd": world.path("work"), "mcpServers": [], "additionalDirectories": ["/"] });
    assert_eq!(client.fails("session/new", &added)["code"], -32_602);
    // A link that leads out of the project is the directory that it leads to.
    let linked = json!({ "cwd": world.path("work/link"), "mcpServers": [] });
    let session = client.call("session/new", &linked)["sessionId"].as_str().unwrap().to_owned();
    assert_eq!(client.says(&session, "Where?"), "end_turn");
    let listed = client.call("session/list", &json!({ "cwd": world.path("work/link") }));
    assert_eq!(listed["sessions"][0]["cwd"], json!(world.path("other")));
    assert_eq!(client.call("session/list", &json!({ "cwd": world.path("work") }))["sessions"], json!([]));
    // And no session goes on in the directory of another.
    let here = json!({ "sessionId": session, "cwd": world.path("work"), "mcpServers": [] });
    let error = client.fails("session/load", &here);
    assert!(error["message"].as_str().unwrap().contains("works in"), "{error}");
    client.call("session/close", &json!({ "sessionId": session }));
    let error = client.fails("session/load", &here);
    assert!(error["message"].as_str().unwrap().contains("works in"), "{error}");
    client.leave();
}

#[test]
fn signal_ends_the_agent_with_its_own_code() {
    let gate = Gate::new();
    let world = World::new([quipu_testkit::Reply::sse("").then_gate(&gate)]);
    let mut client = Client::start(&world, &json!({}));
    let session = client.open(&world);
    client.prompt(&session, "Wait");
    reached(&gate);
    client.process.running.signal(Signal::SIGTERM);
    let ran = client.process.running.wait();
    assert_eq!(ran.status.code(), Some(143), "{}", ran.err);
    gate.open();
}
