//! Questions of the agent, and what the client answers.

use serde_json::{Value, json};

use super::client::Client;
use super::says;
use crate::support::*;

fn chosen(option: &str) -> Value {
    json!({ "outcome": { "outcome": "selected", "optionId": option } })
}

fn options(request: &Value) -> Vec<&str> {
    let options = request["params"]["options"].as_array().unwrap();
    options.iter().map(|option| option["optionId"].as_str().unwrap()).collect()
}

fn outside(world: &World, id: &str) -> quipu_testkit::Reply {
    call(id, "write", &json!({ "path": world.path("out.txt"), "content": "new\n" }))
}

#[test]
fn permission_is_asked_with_its_scopes_and_kept_as_answered() {
    let world = World::new([]);
    for reply in [
        outside(&world, "c1"),
        outside(&world, "c2"),
        outside(&world, "c3"),
        says("Written."),
        outside(&world, "c4"),
        says("Again."),
    ] {
        world.server.push(reply);
    }
    let mut client = Client::start(&world, &json!({}));
    let session = client.open(&world);
    let id = client.prompt(&session, "Write outside");
    let request = client.request();
    assert_eq!(request["method"], "session/request_permission");
    assert_eq!(request["params"]["sessionId"], json!(session));
    let call = &request["params"]["toolCall"];
    assert_eq!((&call["toolCallId"], &call["kind"]), (&json!("c1"), &json!("edit")), "{call}");
    assert!(call["content"].to_string().contains("\"type\":\"diff\""), "{call}");
    let offered = options(&request);
    for option in ["once", "session", "always", "reject"] {
        assert!(offered.contains(&option), "{offered:?}");
    }
    client.reply(&request, &chosen("reject"));
    // The same is asked again after a no, and after a yes for once.
    let request = client.request();
    client.reply(&request, &chosen("once"));
    let request = client.request();
    assert_eq!(request["params"]["toolCall"]["toolCallId"], "c3");
    client.reply(&request, &chosen("always"));
    assert_eq!(client.result(id)["stopReason"], "end_turn");
    assert_eq!(std::fs::read_to_string(world.path("out.txt")).unwrap(), "new\n");
    let ends: Vec<Value> = client
        .of_kind("tool_call_update")
        .into_iter()
        .map(|update| update["update"].clone())
        .filter(|update| update["status"] == "failed" || update["status"] == "completed")
        .map(|update| update["status"].clone())
        .collect();
    assert_eq!(ends, ["failed", "completed", "completed"]);
    // For good: another session of the directory is not asked.
    let other = client.open(&world);
    assert_eq!(client.says(&other, "Write outside again"), "end_turn");
    assert!(world.run(&["permissions", "list"]).ok().text().contains("out.txt"));
    client.leave();
}

#[test]
fn answer_that_was_not_offered_is_a_no() {
    let world = World::new([]);
    for reply in [outside(&world, "c1"), says("No then."), outside(&world, "c2"), says("Nor now.")] {
        world.server.push(reply);
    }
    let mut client = Client::start(&world, &json!({}));
    let session = client.open(&world);
    let id = client.prompt(&session, "Write outside");
    let request = client.request();
    client.reply(&request, &chosen("forever"));
    assert_eq!(client.result(id)["stopReason"], "end_turn");
    // So is an error.
    let id = client.prompt(&session, "Write outside");
    let request = client.request();
    let error =
        json!({ "jsonrpc": "2.0", "id": request["id"], "error": { "code": -32_601, "message": "no" } });
    client.line(&error.to_string());
    assert_eq!(client.result(id)["stopReason"], "end_turn");
    assert!(!world.path("out.txt").exists());
    client.leave();
}

#[test]
fn cancelled_prompt_ends_as_cancelled_and_the_next_one_runs() {
    let gate = quipu_testkit::Gate::new();
    let world = World::new([]);
    world.server.push(outside(&world, "c1"));
    world.server.push(quipu_testkit::Reply::sse("").then_gate(&gate));
    world.server.push(says("Fresh."));
    let mut client = Client::start(&world, &json!({}));
    let session = client.open(&world);
    // While a person is asked.
    let id = client.prompt(&session, "Write outside");
    client.request();
    client.tell("session/cancel", &json!({ "sessionId": session }));
    assert_eq!(client.result(id)["stopReason"], "cancelled");
    // While the model answers, by the id of the request.
    let id = client.prompt(&session, "Think");
    reached(&gate);
    client.tell("$/cancel_request", &json!({ "requestId": id }));
    assert_eq!(client.result(id)["stopReason"], "cancelled");
    gate.open();
    assert_eq!(client.says(&session, "And now"), "end_turn");
    assert_eq!(client.text("agent_message_chunk"), "Fresh.");
    // At once: before anything was sent.
    let id = client.prompt(&session, "Never mind");
    client.tell("session/cancel", &json!({ "sessionId": session }));
    assert_eq!(client.result(id)["stopReason"], "cancelled");
    assert!(!world.path("out.txt").exists());
    client.leave();
}

#[test]
fn plan_is_accepted_or_refused_by_the_client() {
    let plan = |id: &str| call(id, "plan", &json!({ "text": "# The plan\n\nDo it." }));
    let world = World::new([plan("c1"), plan("c2"), says("Done.")]);
    let mut client = Client::start(&world, &json!({}));
    let session = client.open(&world);
    client.call("session/set_mode", &json!({ "sessionId": session, "modeId": "plan" }));
    let id = client.prompt(&session, "Make a plan");
    let request = client.request();
    assert_eq!(options(&request), ["accept", "refuse"], "without forms nothing is edited");
    let call = &request["params"]["toolCall"];
    assert_eq!(call["toolCallId"], "c1", "{call}");
    assert!(call["content"].to_string().contains("Do it."), "{call}");
    client.reply(&request, &chosen("refuse"));
    let request = client.request();
    assert_eq!(request["params"]["toolCall"]["toolCallId"], "c2");
    client.reply(&request, &chosen("accept"));
    assert_eq!(client.result(id)["stopReason"], "end_turn");
    let modes = client.of_kind("current_mode_update");
    assert_eq!(modes.last().unwrap()["update"]["currentModeId"], "workspace");
    client.leave();
}

#[test]
fn plan_is_edited_where_the_client_has_forms() {
    let world = World::new([call("c1", "plan", &json!({ "text": "Do it." })), says("Done.")]);
    let mut client = Client::start(&world, &json!({ "elicitation": { "form": {} } }));
    let session = client.open(&world);
    client.call("session/set_mode", &json!({ "sessionId": session, "modeId": "plan" }));
    let id = client.prompt(&session, "Make a plan");
    let request = client.request();
    client.reply(&request, &chosen("edit"));
    let request = client.request();
    assert_eq!(request["method"], "elicitation/create");
    let field = &request["params"]["requestedSchema"]["properties"]["text"];
    assert_eq!(field["default"], "Do it.", "{request}");
    client.reply(&request, &json!({ "action": "accept", "content": { "text": "Do it twice." } }));
    assert_eq!(client.result(id)["stopReason"], "end_turn");
    let sent = messages(world.requests().last().unwrap());
    assert!(sent.last().unwrap().to_string().contains("Do it twice."), "{sent:?}");
    client.leave();
}
