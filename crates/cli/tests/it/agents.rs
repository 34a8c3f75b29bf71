//! Sub-agents: the tool `task`, its limits and permissions, and the files that agents come from.

use quipu_testkit::{Answer, CapturedRequest, Gate, Reply};
use serde_json::{Value, json};

use crate::support::*;

fn put(world: &World, path: &str, text: &str) {
    let path = world.path(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// The user's settings, with the tool `task` on.
fn settings(world: &World, agents: &Value) {
    let mut agents = agents.clone();
    agents["tool"] = "on".into();
    put(world, "home/.quipu/settings.json", &json!({ "retry": { "baseDelayMs": 1 }, "agents": agents }).to_string());
}

fn task(id: &str, prompt: &str) -> Reply {
    call(id, "task", &json!({ "prompt": prompt, "description": "Look" }))
}

fn says(text: &str) -> Reply {
    Answer::new().text(text).reply()
}

/// The text of the result of the call.
fn result(request: &CapturedRequest) -> String {
    wire_text(&messages(request).pop().unwrap())
}

/// Names of the tools that a request offers.
fn tools(request: &CapturedRequest) -> Vec<String> {
    let body: Value = request.json();
    let tools = body["tools"].as_array().cloned().unwrap_or_default();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

fn system(request: &CapturedRequest) -> String {
    let body: Value = request.json();
    let blocks = body["system"].as_array().unwrap();
    blocks.iter().map(|block| block["text"].as_str().unwrap()).collect::<Vec<_>>().join("\n")
}

#[test]
fn sub_agent_works_in_a_session_below_its_parent() {
    let world = World::new([
        task("c1", "Write the file and report."),
        call("w1", "write", &json!({ "path": "made.txt", "content": "by the child" })),
        says("The file is written."),
        says("All done."),
    ]);
    settings(&world, &json!({}));
    world.file("AGENTS.md", "Rules of the house.");
    let ran = world.run(&["-p", "Delegate it"]).ok();
    assert!(ran.text().contains("All done."), "{}", ran.text());
    assert_eq!(std::fs::read_to_string(world.path("work/made.txt")).unwrap(), "by the child");
    let requests = world.requests();
    // It does not see the conversation, and sends nobody itself.
    assert_eq!(messages(&requests[1]).len(), 1);
    assert_eq!(wire_text(&messages(&requests[1])[0]), "Write the file and report.");
    assert!(tools(&requests[0]).contains(&"task".to_owned()) && !tools(&requests[1]).contains(&"task".to_owned()));
    assert!(tools(&requests[1]).contains(&"write".to_owned()));
    assert_eq!(system(&requests[1]), system(&requests[0]));
    assert!(system(&requests[1]).contains("Rules of the house."));
    let returned = result(&requests[3]);
    assert!(returned.starts_with("The file is written.\n\n[session child-"), "{returned}");
    // The parent names the child, and the child the parent.
    let sessions = world.sessions();
    let child = sessions.iter().find(|row| row["id"].as_str().unwrap().starts_with("child-")).unwrap();
    let parent = sessions.iter().find(|row| row["id"] != child["id"]).unwrap();
    assert_eq!(child["parent"], parent["id"]);
    let nodes = world.nodes_of(&[parent["id"].as_str().unwrap()]);
    let details = nodes.iter().map(|node| &node["entry"]["message"]["details"]).find(|one| one["child"].is_string());
    let details = details.unwrap_or_else(|| panic!("{nodes:#?}"));
    assert_eq!((&details["child"], &details["outcome"], &details["calls"]), (&child["id"], &json!("done"), &json!(1)));
    // Lists leave it out, and show it when it is asked for.
    let listed = world.run(&["sessions", "--json"]).ok().json_lines();
    assert_eq!(listed.len(), 1);
    // The jump back leaves the child where it is.
    world.run(&["undo"]).ok();
    assert_eq!(world.sessions().len(), sessions.len());
}

#[test]
fn sub_agents_of_one_answer_work_at_once() {
    let gate = Gate::new();
    let world = World::new([
        Answer::new()
            .call("c1", "task", json!({ "prompt": "One" }))
            .call("c2", "task", json!({ "prompt": "Two" }))
            .reply(),
        says("Answer.").hold(&gate),
        says("Answer.").hold(&gate),
        says("Both."),
    ]);
    settings(&world, &json!({}));
    let running = world.start(&["-p", "Both, please"]);
    // Both requests are there before either is answered.
    world.server.wait_for(3);
    gate.open();
    running.wait().ok();
    let requests = world.requests();
    let mut prompts: Vec<String> = requests[1..3].iter().map(|one| wire_text(&messages(one)[0])).collect();
    prompts.sort();
    assert_eq!(prompts, ["One", "Two"]);
    assert_eq!(result(&requests[3]).matches("[session child-").count(), 1);
}
