//! What jobs may cost, and what the log says that they cost.

use quipu_testkit::{Answer, Reply};
use serde_json::{Value, json};

use crate::schedule_jobs::{add, jobs, log};
use crate::support::*;

/// Adds a model that is free; the one with a price continues what that fails to do, and works as a sub-agent.
pub(crate) fn with_free_model(world: &World) {
    let path = world.path("home/.quipu/models.json");
    let mut file: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    file["providers"]["testing"]["models"].as_array_mut().unwrap().push(json!({
        "id": "free", "api": "anthropic-messages", "contextWindow": 200_000, "maxTokens": 2_000, "input": ["text"],
        "cost": { "input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0 },
    }));
    std::fs::write(&path, file.to_string()).unwrap();
    let paid = format!("testing/{MODEL}");
    let settings = json!({
        "retry": { "enabled": false }, "agents": { "tool": "on" },
        "fallbackModels": [paid], "fallbackForNamedModel": true, "purposeModels": { "sub-agents": paid },
    });
    std::fs::write(world.path("home/.quipu/settings.json"), settings.to_string()).unwrap();
    std::fs::create_dir_all(world.path("home/.quipu/agents")).unwrap();
    let agent = format!("---\nname: rev\ndescription: Reviews.\nmodel: {paid}\n---\nReview.\n");
    std::fs::write(world.path("home/.quipu/agents/rev.md"), agent).unwrap();
}

fn models(world: &World) -> Vec<Value> {
    world.requests().iter().map(|request| request.json()["model"].clone()).collect()
}

#[test]
fn job_without_a_budget_never_calls_a_model_with_a_price() {
    let task = json!({ "agent": "rev", "prompt": "Look.", "description": "Look" });
    let busy = Reply::error(529, "overloaded_error", "busy");
    let say = |text: &str| Answer::new().text(text).reply();
    let world = World::new([call("c1", "task", &task), say("Looked."), say("Alone."), busy]);
    with_free_model(&world);
    add(&world, &["--model", "testing/free", "x"]);
    world.run(&["schedule", "run", "job"]).ok();
    // The sub-agent works with the model of the session.
    let run = &log(&world)[0];
    assert_eq!((&run["text"], &run["cost"]), (&json!("Alone."), &json!(0.0)));
    // Nothing continues it either.
    add(&world, &["--model", "testing/free", "x"]);
    world.run(&["schedule", "run", "job"]).fails(1, &["1 job failed"]);
    assert_eq!(models(&world), ["free"; 4]);
}

#[test]
fn cost_of_a_job_is_that_of_its_session_and_children() {
    let task = json!({ "agent": "rev", "prompt": "Look.", "description": "Look" });
    let world = World::new([
        call("c1", "task", &task),
        Answer::new().text("Fine.").usage(100, 50, 0, 0).reply(),
        Answer::new().text("It is fine.").reply(),
    ]);
    with_free_model(&world);
    add(&world, &["--model", "testing/free", "--budget", "100", "x"]);
    world.run(&["schedule", "run", "job"]).ok();
    assert_eq!(models(&world), ["free", MODEL, "free"]);
    let cost = log(&world)[0]["cost"].as_f64().unwrap();
    assert!((cost - 0.15).abs() < 1e-9, "{cost}");
}

#[test]
fn failed_job_tells_what_it_cost() {
    let read = Answer::new()
        .tool_call("c1", "read", &json!({ "path": "a" }).to_string())
        .usage(100, 100, 0, 0)
        .reply();
    let world = World::new([read, Reply::error(400, "invalid_request_error", "no such thing")]);
    world.file("a", "x");
    add(&world, &["--budget", "100", "x"]);
    world.run(&["schedule", "run", "job"]).fails(1, &["1 job failed"]);
    let run = &log(&world)[0];
    let cost = run["cost"].as_f64().unwrap();
    assert!(run["state"] == "failed" && (cost - 0.2).abs() < 1e-9, "{run}");
    assert_eq!(jobs(&world)[0]["attempts"], 0, "the same request would fail again: it waits for its time");
}
