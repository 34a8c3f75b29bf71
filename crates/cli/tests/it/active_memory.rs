//! Active memory in sessions of the command: notes stand beside the prompts that they fit.

use quipu_testkit::{Answer, Gate, Reply};
use serde_json::Value;

use crate::support::*;

#[test]
fn note_stands_beside_the_prompt_that_it_fits() {
    let answers = ["One.", "Two.", "Three."].map(|text| Answer::new().text(text).reply());
    let world = World::new(answers);
    world.run(&["memory", "on"]).ok();
    let status = world.run(&["memory", "status", "--json"]).ok().json();
    let root = status["memories"][0]["root"].as_str().expect("a memory").to_owned();
    // The system prompt has the beginnings of notes already; this one is too old for it.
    let notes = std::path::Path::new(&root).join("memory");
    std::fs::create_dir_all(&notes).unwrap();
    std::fs::write(notes.join("2020-01-02.md"), "- The staging deploy needs the blue token.\n").unwrap();
    world.run(&["memory", "review", "--accept-all"]).ok();
    world.run(&["-p", "What does the staging deploy need?"]).ok();
    let request = &world.requests()[0];
    let text = messages(request).iter().map(wire_text).collect::<String>();
    assert!(text.contains("<active_memory>") && text.contains("blue token"), "{text}");
    assert!(text.contains("memory/2020-01-02.md#L1"), "{text}");
    // What stood beside a prompt was not said in it.
    let found = world.run(&["memory", "search", "--json", "--", "What does the staging deploy need?"]).ok();
    let found = String::from_utf8_lossy(&found.out);
    assert!(found.contains(r#""kind":"user""#) && !found.contains("Added by the hook"), "{found}");
    world.run(&["-p", "Which colours does the terminal support?"]).ok();
    let text = messages(&world.requests()[1]).iter().map(wire_text).collect::<String>();
    assert!(!text.contains("<active_memory>"), "{text}");
    world.run(&["config", "set", "memory.active.mode", "off"]).ok();
    world.run(&["-p", "What does the staging deploy need?"]).ok();
    let text = messages(&world.requests()[2]).iter().map(wire_text).collect::<String>();
    assert!(!text.contains("<active_memory>"), "{text}");
}

/// A world whose project's memory has one accepted note, too old for the system prompt.
fn noted() -> World {
    let world = World::new([]);
    world.run(&["memory", "on"]).ok();
    let status = world.run(&["memory", "status", "--json"]).ok().json();
    let notes = std::path::Path::new(status["memories"][0]["root"].as_str().unwrap()).join("memory");
    std::fs::create_dir_all(&notes).unwrap();
    std::fs::write(notes.join("2020-01-02.md"), "- The staging deploy needs the blue token.\n").unwrap();
    world.run(&["memory", "review", "--accept-all"]).ok();
    world
}

/// Asks in a new session, or in the newest one; what was sent for it.
fn asks(world: &World, flags: &[&str], prompt: &str, answers: &[&str]) -> Vec<Value> {
    let before = world.requests().len();
    for text in answers {
        world.server.push(Answer::new().text(text).reply());
    }
    world.run(&[&["-p"][..], flags, &[prompt]].concat()).ok();
    let requests = world.requests();
    requests[before..].iter().map(quipu_testkit::CapturedRequest::json).collect()
}

fn tools(request: &Value) -> Vec<&str> {
    let mut tools: Vec<&str> =
        request["tools"].as_array().unwrap().iter().filter_map(|tool| tool["name"].as_str()).collect();
    tools.sort_unstable();
    tools
}

fn allow(world: &World) {
    world.run(&["config", "set", "budget.background", r#"{"active-memory": 1000}"#]).ok();
}

#[test]
fn model_of_active_memory_is_asked_within_its_budget_alone() {
    let world = noted();
    world.run(&["config", "set", "memory.active.mode", "always"]).ok();
    // Nobody said what it may cost: what the search found is added.
    let sent = asks(&world, &[], "What does the staging deploy need?", &["One."]);
    assert_eq!(sent.len(), 1);
    assert!(sent[0].to_string().contains("- memory/2020-01-02.md#L1 (owner): "), "{}", sent[0]);
    allow(&world);
    let summary = "Staging wants the token that is blue.";
    // In a new session, and in one that goes on.
    for (flags, prompt) in
        [(&[][..], "And what does the staging deploy need today?"), (&["-c"], "What does staging need then?")]
    {
        let summary = format!("{summary} {}", prompt.len());
        let sent = asks(&world, flags, prompt, &[&summary, "Two."]);
        assert_eq!(sent.len(), 2, "{prompt}");
        assert_eq!(tools(&sent[0]), ["memory_get", "memory_search"]);
        let beside = format!("<active_memory>\\n{summary}\\n");
        assert!(sent[1].to_string().contains(&beside), "{beside} in {}", sent[1]);
    }
    let usage = world.run(&["usage", "--by", "purpose", "--json"]).ok().json_lines();
    assert!(usage.iter().any(|row| row["purpose"] == "active-memory" && row["calls"] == 2), "{usage:?}");
    // What is used up is not spent again.
    world.run(&["config", "set", "budget.background", r#"{"active-memory": 0.000001}"#]).ok();
    assert_eq!(asks(&world, &[], "Does the staging deploy need anything?", &["Three."]).len(), 1);
}

#[test]
fn session_that_reads_no_files_has_no_active_memory() {
    let world = noted();
    // Of two stores the one that is not kept has no requests.
    world.unchecked();
    for flag in ["--no-context-files", "--no-session"] {
        let sent = asks(&world, &[flag], "What does the staging deploy need?", &["One."]);
        assert_eq!(sent.len(), 1);
        assert!(!sent[0].to_string().contains("active_memory"), "{flag}: {}", sent[0]);
    }
}

#[test]
fn model_is_asked_where_the_search_settles_nothing() {
    let world = noted();
    world.run(&["config", "set", "memory.active.mode", "escalate"]).ok();
    allow(&world);
    let sent = asks(&world, &[], "What does the staging deploy need?", &["One."]);
    assert_eq!(sent.len(), 1, "the search settles it");
    assert!(sent[0].to_string().contains("blue token"), "{}", sent[0]);
    let sent = asks(&world, &[], "Who waters the plants on fridays?", &["NONE", "Two."]);
    assert_eq!(sent.len(), 2);
    assert_eq!(tools(&sent[0]), ["memory_get", "memory_search"]);
    assert!(!sent[1].to_string().contains("<active_memory>"), "{}", sent[1]);
}

#[test]
fn model_is_asked_by_one_of_two_sessions_that_the_budget_is_for() {
    let world = noted();
    // One call may cost a dollar and more.
    price(&world);
    world.run(&["config", "set", "memory.active.mode", "always"]).ok();
    world.run(&["config", "set", "budget.background", r#"{"active-memory": 1.5}"#]).ok();
    // The other one waits for no money that is reserved: the first one is given up after 15 seconds.
    world.run(&["config", "set", "budget.waitMs", "1"]).ok();
    let gate = Gate::new();
    let held = Answer::new().text("It wants the token that is blue.").usage(10, 500, 0, 0).stream();
    world.server.push(Reply::sse("").then_gate(&gate).then(held));
    let first = world.start(&["-p", "What does the staging deploy need first?"]);
    reached(&gate);
    world.server.push(Answer::new().text("Two.").reply().only_for("staging deploy need second"));
    world.run(&["-p", "What does the staging deploy need second?"]).ok();
    let requests = world.requests();
    assert_eq!(requests.len(), 2, "the model of active memory is asked once");
    let text = messages(&requests[1]).iter().map(wire_text).collect::<String>();
    assert!(text.contains("- memory/2020-01-02.md#L1 (owner): "), "what the search found is added: {text}");
    world.server.push(Answer::new().text("One.").reply());
    gate.open();
    first.wait().exits(0);
    assert_eq!(world.requests().len(), 3);
}
