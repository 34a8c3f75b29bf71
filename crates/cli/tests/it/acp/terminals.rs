//! Terminals of the client.

use serde_json::json;

use super::client::Client;
use super::says;
use crate::support::*;

#[test]
fn confined_command_runs_here_and_not_in_the_terminal() {
    let world = World::new([bash("c1", "echo confined"), says("It ran.")]);
    let mut client = Client::start(&world, &json!({ "terminal": true }));
    let session = client.open(&world);
    let id = client.prompt(&session, "Run it");
    assert!(client.request_or_answer(id).is_none(), "nothing is asked of the client");
    assert_eq!(client.result(id)["stopReason"], "end_turn");
    let ended = client.of_kind("tool_call_update").pop().unwrap();
    assert_eq!(ended["update"]["status"], "completed", "{ended}");
    assert!(ended["update"]["content"].to_string().contains("confined"), "{ended}");
    client.leave();
}

#[test]
fn terminal_of_the_client_is_used_in_the_mode_full() {
    let world = World::new([bash("c1", "echo free; exit 3"), says("It ran.")]);
    let mut client = Client::start(&world, &json!({ "terminal": true }));
    let session = client.open(&world);
    client.call("session/set_mode", &json!({ "sessionId": session, "modeId": "full" }));
    let id = client.prompt(&session, "Run it");
    let request = client.request();
    assert_eq!(request["method"], "terminal/create");
    let params = &request["params"];
    assert_eq!((&params["command"], &params["args"]), (&json!("bash"), &json!(["-c", "echo free; exit 3"])));
    assert_eq!(params["cwd"], json!(world.path("work")));
    client.reply(&request, &json!({ "terminalId": "t1" }));
    let request = client.request();
    assert_eq!(
        (&request["method"], &request["params"]["terminalId"]),
        (&json!("terminal/wait_for_exit"), &json!("t1"))
    );
    client.reply(&request, &json!({ "exitCode": 3 }));
    let request = client.request();
    assert_eq!(request["method"], "terminal/output");
    client.reply(&request, &json!({ "output": "free\n", "truncated": false }));
    let request = client.request();
    assert_eq!(request["method"], "terminal/release");
    client.reply(&request, &json!({}));
    assert_eq!(client.result(id)["stopReason"], "end_turn");
    let updates = client.of_kind("tool_call_update");
    let shown = json!([{ "type": "terminal", "terminalId": "t1" }]);
    assert!(updates.iter().any(|update| update["update"]["content"] == shown), "{updates:?}");
    assert_eq!(updates.last().unwrap()["update"]["status"], "failed");
    let sent = messages(world.requests().last().unwrap());
    let told = sent.last().unwrap().to_string();
    assert!(told.contains("free") && told.contains("Command exited with code 3"), "{told}");
    client.leave();
}

#[test]
fn yielding_command_runs_here_in_the_mode_full_too() {
    let args = json!({ "command": "sleep 1000", "yield": 0.05 });
    let world = World::new([call("c1", "bash", &args), says("It runs.")]);
    let mut client = Client::start(&world, &json!({ "terminal": true }));
    let session = client.open(&world);
    client.call("session/set_mode", &json!({ "sessionId": session, "modeId": "full" }));
    let id = client.prompt(&session, "Run it");
    assert!(client.request_or_answer(id).is_none(), "nothing is asked of the client");
    assert_eq!(client.result(id)["stopReason"], "end_turn");
    let sent = messages(world.requests().last().unwrap());
    let told = sent.last().unwrap().to_string();
    assert!(told.contains("It goes on as background command b1."), "{told}");
    client.leave();
}

#[test]
fn terminal_is_killed_when_the_prompt_is_cancelled() {
    let world = World::new([bash("c1", "sleep 1000"), says("Unused.")]);
    let mut client = Client::start(&world, &json!({ "terminal": true }));
    let session = client.open(&world);
    client.call("session/set_mode", &json!({ "sessionId": session, "modeId": "full" }));
    let id = client.prompt(&session, "Run it");
    let request = client.request();
    client.reply(&request, &json!({ "terminalId": "t1" }));
    assert_eq!(client.request()["method"], "terminal/wait_for_exit");
    client.tell("session/cancel", &json!({ "sessionId": session }));
    let mut methods = Vec::new();
    for _ in 0..3 {
        let request = client.request();
        methods.push(request["method"].as_str().unwrap().to_owned());
        client.reply(&request, &json!({ "output": "", "truncated": false }));
    }
    assert_eq!(methods, ["terminal/kill", "terminal/output", "terminal/release"]);
    assert_eq!(client.result(id)["stopReason"], "cancelled");
    client.leave();
}
