//! Questions as dialogs, and clients that die while one is open.

use nix::sys::signal::Signal;
use quipu_testkit::{Answer, Gate, Reply};
use serde_json::{Value, json};

use super::{Rpc, kinds};
use crate::support::*;

fn asks_for_a_command() -> World {
    World::new([bash("c1", "echo ran > ran.txt"), Answer::new().text("Done.").reply()])
}

/// Prompts, and reads until the question about the command.
fn question(rpc: &mut Rpc) -> Value {
    rpc.data(json!({ "type": "prompt", "message": "Run it." }));
    let asked = rpc.until("extension_ui_request");
    assert_eq!((&asked["method"], &asked["options"][0]), (&json!("select"), &json!("once")), "{asked}");
    assert!(asked["title"].as_str().unwrap().contains("echo ran > ran.txt"), "{asked}");
    asked
}

#[test]
fn question_about_a_command_is_a_dialog_and_its_answer_counts() {
    let world = asks_for_a_command();
    let mut rpc = Rpc::start(&world, &["--permissions", "ask"]);
    let asked = question(&mut rpc);
    // To a question that is not there, nothing is said; one that cannot be taken leaves it open.
    rpc.process.send(r#"{"type":"extension_ui_response","id":"elsewhere","value":"once"}"#);
    let answer = |value: &str| {
        json!({ "type": "extension_ui_response", "id": asked["id"], "value": value }).to_string()
    };
    rpc.process.send(&answer("perhaps"));
    let refused = rpc.next();
    assert_eq!((&refused["command"], &refused["success"]), (&json!("extension_ui_response"), &json!(false)));
    assert!(rpc.state()["isStreaming"].as_bool().unwrap());
    rpc.process.send(&answer("once"));
    rpc.until("agent_settled");
    assert!(world.path("work/ran.txt").exists());
    assert!(kinds(&rpc.events).contains(&"quipu_ask_closed"));
    rpc.process.close().ok();
}

#[test]
fn client_that_dies_in_mid_question_leaves_a_whole_session() {
    let mut world = asks_for_a_command();
    let mut rpc = Rpc::start(&world, &["--permissions", "ask"]);
    question(&mut rpc);
    let id = rpc.state()["sessionId"].as_str().unwrap().to_owned();
    // The end of stdin is an end in order, whatever is open.
    let ended = rpc.process.close().ok();
    assert!(ended.text().contains(r#""type":"agent_end""#), "{}", ended.text());
    assert!(!world.path("work/ran.txt").exists());
    world.another_server([Answer::new().text("Still here.").reply()]);
    let mut rpc = Rpc::start(&world, &["--session", &id]);
    rpc.run("And now?");
    assert_eq!(rpc.data(json!({ "type": "get_last_assistant_text" })), json!({ "text": "Still here." }));
    rpc.process.close().ok();
}

#[test]
fn signals_end_in_order_with_their_codes() {
    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGHUP, 129), (Signal::SIGINT, 130)] {
        let world = asks_for_a_command();
        let mut rpc = Rpc::start(&world, &["--permissions", "ask"]);
        question(&mut rpc);
        rpc.process.running.signal(signal);
        rpc.process.running.wait().exits(code);
        assert!(!world.path("work/ran.txt").exists());
    }
}

#[test]
fn commands_of_people_end_with_the_client() {
    let world = World::new([]);
    let mut rpc = Rpc::start(&world, &[]);
    rpc.send(json!({ "type": "bash", "command": "echo $$; exec sleep 3600" }));
    let update = rpc.until("bash_execution_update");
    assert_eq!(update["id"], "c1");
    let pid: i32 = update["delta"].as_str().unwrap().trim().parse().unwrap();
    // It can be stopped by name.
    assert!(lives(pid));
    let ended = rpc.process.close().ok();
    let last = ended.text();
    assert!(last.contains(r#""id":"c1","type":"response","command":"bash","success":true"#), "{last}");
    assert!(last.contains(r#""cancelled":true"#), "{last}");
    gone(pid);
}

#[test]
fn events_of_a_run_come_after_the_response_to_its_prompt() {
    let gate = Gate::new();
    let reply = Reply::sse("").then_gate(&gate).then_reset();
    let world = World::new([reply, Answer::new().text("later").reply()]);
    world.unchecked();
    let mut rpc = Rpc::start(&world, &[]);
    let id = rpc.send(json!({ "type": "prompt", "message": "go" }));
    rpc.response(&id);
    assert!(!kinds(&rpc.events).contains(&"agent_start"), "{:?}", rpc.events);
    rpc.until("agent_start");
    gate.open();
    rpc.until("agent_settled");
    rpc.process.close().ok();
}
