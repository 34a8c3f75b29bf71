//! Commands that change what a session is and how it goes on.

use quipu_testkit::{Answer, Gate, Reply};
use serde_json::{Value, json};

use super::{Rpc, kinds};
use crate::support::*;

fn says(text: &str) -> Reply {
    Answer::new().text(text).reply()
}

/// An answer whose end waits for the test.
fn waits(gate: &Gate) -> Reply {
    let answer = Answer::new().text("At last.");
    let (first, whole) = (answer.unfinished(), answer.stream());
    let rest = whole.strip_prefix(&first).unwrap().to_owned();
    Reply::sse(first).then_gate(gate).then(rest)
}

#[test]
fn messages_wait_in_the_queue_that_they_are_for() {
    let gate = Gate::new();
    let world = World::new([waits(&gate), says("steered"), says("followed")]);
    let mut rpc = Rpc::start(&world, &[]);
    // Nothing runs: they wait for what does.
    rpc.data(json!({ "type": "steer", "message": "held" }));
    assert_eq!(rpc.events.last().unwrap()["steering"], json!(["held"]));
    assert_eq!(rpc.state()["pendingMessageCount"], 1);
    assert_eq!(rpc.data(json!({ "type": "clear_queue" })), json!({ "steering": ["held"], "followUp": [] }));
    rpc.data(json!({ "type": "follow_up", "message": "f" }));
    rpc.data(json!({ "type": "prompt", "message": "go" }));
    rpc.until("message_update");
    let error = rpc.error(json!({ "type": "prompt", "message": "now" }));
    assert!(error.starts_with("Agent is already processing. Specify streamingBehavior"), "{error}");
    rpc.data(json!({ "type": "prompt", "message": "s", "streamingBehavior": "steer" }));
    rpc.data(json!({ "type": "steer", "message": "gone" }));
    let state = rpc.state();
    assert_eq!((&state["isStreaming"], &state["pendingMessageCount"]), (&json!(true), &json!(3)), "{state}");
    assert_eq!(
        rpc.data(json!({ "type": "clear_queue" })),
        json!({ "steering": ["s", "gone"], "followUp": ["f"] })
    );
    for (kind, message) in [("steer", "s"), ("follow_up", "f")] {
        rpc.data(json!({ "type": kind, "message": message }));
    }
    gate.open();
    rpc.until("agent_settled");
    let messages = rpc.data(json!({ "type": "get_messages" }));
    let said: Vec<&str> = messages["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["content"][0]["text"].as_str().unwrap())
        .collect();
    assert_eq!(said, ["go", "At last.", "s", "steered", "f", "followed"]);
    rpc.process.close().ok();
}

#[test]
fn abort_waits_until_the_session_is_idle() {
    let world = World::new([Reply::sse(Answer::new().text("Half").unfinished()).then_hang(), says("whole")]);
    let mut rpc = Rpc::start(&world, &[]);
    // Nothing to abort.
    rpc.data(json!({ "type": "abort" }));
    rpc.data(json!({ "type": "prompt", "message": "go" }));
    rpc.until("message_update");
    rpc.data(json!({ "type": "abort" }));
    let seen = kinds(&rpc.events);
    assert!(seen.contains(&"agent_end"), "{seen:?}");
    assert_eq!(rpc.state()["isStreaming"], false);
    rpc.run("again");
    assert_eq!(rpc.data(json!({ "type": "get_last_assistant_text" }))["text"], "whole");
    rpc.process.close().ok();
}

#[test]
fn context_is_compacted_and_its_entries_say_so() {
    let long = "word ".repeat(400);
    let world = World::new([says(&long), says(&long), says("## Goal\nTo count.")]);
    let settings = json!({ "retry": { "baseDelayMs": 1 }, "compaction": { "reserveTokens": 1000, "keepRecentTokens": 501 } });
    std::fs::write(world.path("home/.quipu/settings.json"), settings.to_string()).unwrap();
    let mut rpc = Rpc::start(&world, &[]);
    assert_eq!(rpc.error(json!({ "type": "compact" })), "Nothing to compact (session too small)");
    assert_eq!(kinds(&rpc.events), ["compaction_start", "compaction_end"]);
    rpc.run("one");
    rpc.run("two");
    rpc.events.clear();
    let done = rpc.data(json!({ "type": "compact", "customInstructions": "the numbers" }));
    assert!(done["summary"].as_str().unwrap().contains("To count."), "{done}");
    let members: Vec<&String> = done.as_object().unwrap().keys().collect();
    assert_eq!(members[..4], ["summary", "firstKeptEntryId", "tokensBefore", "estimatedTokensAfter"]);
    let entries = rpc.data(json!({ "type": "get_entries" }));
    let entries = entries["entries"].as_array().unwrap();
    let last = entries.last().unwrap();
    assert_eq!((&last["type"], &last["firstKeptEntryId"]), (&json!("compaction"), &done["firstKeptEntryId"]));
    assert!(entries.iter().any(|entry| entry["id"] == done["firstKeptEntryId"]), "{done}");
    let event = rpc.events.iter().find(|event| event["type"] == "compaction_end").unwrap();
    assert_eq!(event["result"]["firstKeptEntryId"], done["firstKeptEntryId"]);
    assert_eq!(rpc.error(json!({ "type": "compact" })), "Already compacted");
    let messages = rpc.data(json!({ "type": "get_messages" }));
    assert_eq!(messages["messages"][0]["role"], "compactionSummary");
    assert_eq!(rpc.state()["messageCount"], messages["messages"].as_array().unwrap().len());
    rpc.process.close().ok();
}

#[test]
fn sessions_are_forked_copied_switched_and_begun() {
    let world = World::new([says("one"), says("two"), says("other two")]);
    let mut rpc = Rpc::start(&world, &[]);
    rpc.run("first");
    rpc.run("second");
    let id = |rpc: &mut Rpc| rpc.state()["sessionId"].as_str().unwrap().to_owned();
    let first = id(&mut rpc);
    let messages = rpc.data(json!({ "type": "get_fork_messages" }));
    let texts: Vec<&Value> =
        messages["messages"].as_array().unwrap().iter().map(|message| &message["text"]).collect();
    assert_eq!(texts, ["first", "second"]);
    let entry = messages["messages"][1]["entryId"].clone();
    let forked = rpc.data(json!({ "type": "fork", "entryId": entry }));
    assert_eq!(forked, json!({ "text": "second", "cancelled": false }));
    let fork = id(&mut rpc);
    assert_ne!(fork, first);
    rpc.run("another second");
    assert_eq!(rpc.data(json!({ "type": "get_last_assistant_text" }))["text"], "other two");

    assert_eq!(rpc.data(json!({ "type": "clone" })), json!({ "cancelled": false }));
    let copy = id(&mut rpc);
    assert!(copy != fork && copy != first);
    assert_eq!(rpc.state()["messageCount"], 4);

    assert_eq!(
        rpc.data(json!({ "type": "switch_session", "sessionPath": first })),
        json!({ "cancelled": false })
    );
    assert_eq!(id(&mut rpc), first);
    assert_eq!(rpc.data(json!({ "type": "get_last_assistant_text" }))["text"], "two");
    // To where it is already.
    rpc.data(json!({ "type": "switch_session", "sessionPath": first }));
    // What cannot be opened leaves the session as it is.
    rpc.error(json!({ "type": "switch_session", "sessionPath": "no-such-session" }));
    assert_eq!(id(&mut rpc), first);

    rpc.data(json!({ "type": "new_session", "parentSession": "/elsewhere.jsonl" }));
    let state = rpc.state();
    assert_eq!((&state["messageCount"], &state["pendingMessageCount"]), (&json!(0), &json!(0)));
    assert_eq!(rpc.data(json!({ "type": "get_entries" })), json!({ "entries": [], "leafId": null }));
    assert_eq!(rpc.data(json!({ "type": "get_last_assistant_text" })), json!({}));
    rpc.process.close().ok();
}

#[test]
fn session_file_of_pi_is_continued_and_named() {
    let world = World::new([says("one"), says("two")]);
    let file = world.path("work/session.jsonl");
    let path = file.display().to_string();
    let mut rpc = Rpc::start(&world, &["--session", &path]);
    assert_eq!(rpc.state()["sessionFile"], path.as_str());
    rpc.run("first");
    let entries = rpc.data(json!({ "type": "get_entries" }));
    rpc.data(json!({ "type": "new_session" }));
    assert_eq!(rpc.state().get("sessionFile"), None);
    rpc.data(json!({ "type": "switch_session", "sessionPath": path }));
    assert_eq!(rpc.state()["sessionFile"], path.as_str());
    // The entries are those of the file.
    let again = rpc.data(json!({ "type": "get_entries" }));
    let ids = |entries: &Value| -> Vec<Value> {
        entries["entries"].as_array().unwrap().iter().map(|entry| entry["id"].clone()).collect()
    };
    assert!(ids(&again).starts_with(&ids(&entries)), "{again}");
    rpc.run("second");
    rpc.process.close().ok();
    let lines = std::fs::read_to_string(&file).unwrap();
    assert!(lines.contains("\"first\"") && lines.contains("\"second\""), "{lines}");
}

#[test]
fn models_and_levels_are_chosen_also_while_a_run_is_under_way() {
    let gate = Gate::new();
    let world = World::new([waits(&gate), says("now")]);
    let mut rpc = Rpc::start(&world, &["--model", MODEL]);
    let models = rpc.data(json!({ "type": "get_available_models" }));
    let ids: Vec<&Value> = models["models"].as_array().unwrap().iter().map(|model| &model["id"]).collect();
    assert!(ids.contains(&&json!("thinker")) && ids.contains(&&json!(MODEL)), "{ids:?}");
    assert!(!models.to_string().contains(KEY));
    assert_eq!(rpc.data(json!({ "type": "cycle_thinking_level" })), Value::Null);
    assert_eq!(rpc.data(json!({ "type": "get_available_thinking_levels" })), json!({ "levels": ["off"] }));
    rpc.data(json!({ "type": "prompt", "message": "go" }));
    rpc.until("message_update");
    // The next request goes there; until then the state says what was chosen.
    let thinker = json!({ "type": "set_model", "provider": "testing", "modelId": "thinker" });
    assert_eq!(rpc.data(thinker)["id"], "thinker");
    rpc.data(json!({ "type": "set_thinking_level", "level": "high" }));
    rpc.data(json!({ "type": "set_session_name", "name": "  chosen  " }));
    let state = rpc.state();
    let now = (&state["model"]["id"], &state["thinkingLevel"], &state["sessionName"], &state["isStreaming"]);
    assert_eq!(now, (&json!("thinker"), &json!("high"), &json!("chosen"), &json!(true)), "{state}");
    gate.open();
    rpc.until("session_info_changed");
    assert!(kinds(&rpc.events).contains(&"thinking_level_changed"));
    let state = rpc.state();
    assert_eq!((&state["model"]["id"], &state["sessionName"]), (&json!("thinker"), &json!("chosen")));
    assert_eq!(rpc.data(json!({ "type": "cycle_thinking_level" })), json!({ "level": "off" }));
    rpc.run("again");
    assert_eq!(world.requests()[1].json()["model"], "thinker");
    rpc.process.close().ok();
}

#[test]
fn settings_hold_at_once_and_are_saved() {
    let world = World::new([
        Reply::error(529, "overloaded_error", "busy"),
        Reply::error(529, "overloaded_error", "busy"),
        says("at last"),
    ]);
    let mut rpc = Rpc::start(&world, &[]);
    for (kind, value) in [
        ("set_steering_mode", json!({ "mode": "all" })),
        ("set_follow_up_mode", json!({ "mode": "all" })),
        ("set_auto_compaction", json!({ "enabled": false })),
        ("set_auto_retry", json!({ "enabled": false })),
    ] {
        let mut command = value;
        command["type"] = kind.into();
        assert_eq!(rpc.data(command), Value::Null);
    }
    let state = rpc.state();
    let now = (&state["steeringMode"], &state["followUpMode"], &state["autoCompactionEnabled"]);
    assert_eq!(now, (&json!("all"), &json!("all"), &json!(false)), "{state}");
    let file = std::fs::read_to_string(world.path("home/.quipu/settings.json")).unwrap();
    let file: Value = serde_json::from_str(&file).unwrap();
    assert_eq!(file["retry"], json!({ "baseDelayMs": 1, "enabled": false }));
    assert_eq!((&file["compaction"]["enabled"], &file["steeringMode"]), (&json!(false), &json!("all")));
    // One request, and no second one.
    rpc.run("go");
    assert_eq!(world.requests().len(), 1);
    assert!(!kinds(&rpc.events).contains(&"auto_retry_start"));
    rpc.data(json!({ "type": "set_auto_retry", "enabled": true }));
    rpc.run("go on");
    assert_eq!(world.requests().len(), 3);
    let retry = rpc.events.iter().find(|event| event["type"] == "auto_retry_start").unwrap();
    assert_eq!((&retry["attempt"], &retry["maxAttempts"]), (&json!(1), &json!(3)), "{retry}");
    rpc.process.close().ok();
}

#[test]
fn retry_that_waits_is_given_up() {
    let world = World::new([Reply::error(529, "overloaded_error", "busy")]);
    std::fs::write(world.path("home/.quipu/settings.json"), r#"{"retry":{"baseDelayMs":3600000}}"#).unwrap();
    let mut rpc = Rpc::start(&world, &[]);
    rpc.data(json!({ "type": "prompt", "message": "go" }));
    rpc.until("auto_retry_start");
    rpc.data(json!({ "type": "abort_retry" }));
    let end = rpc.until("agent_end");
    assert_eq!(end["outcome"]["kind"], "aborted");
    // Nothing waits now.
    rpc.data(json!({ "type": "abort_retry" }));
    rpc.process.close().ok();
}

#[test]
fn commands_with_a_slash_are_listed_and_expanded() {
    let world = World::new([says("Reviewed.")]);
    let skill = world.path("home/.quipu/skills/tidy");
    std::fs::create_dir_all(&skill).unwrap();
    std::fs::write(skill.join("SKILL.md"), "---\nname: tidy\ndescription: How to tidy.\n---\nTidy it.\n")
        .unwrap();
    let prompts = world.path("home/.quipu/prompts");
    std::fs::create_dir_all(&prompts).unwrap();
    std::fs::write(prompts.join("look.md"), "---\ndescription: Look.\n---\nLook at $ARGUMENTS closely.\n")
        .unwrap();
    let mut rpc = Rpc::start(&world, &[]);
    let commands = rpc.data(json!({ "type": "get_commands" }));
    let commands = commands["commands"].as_array().unwrap().clone();
    let find = |name: &str| commands.iter().find(|command| command["name"] == name).unwrap().clone();
    let skill = find("skill:tidy");
    assert_eq!(
        (&skill["source"], &skill["sourceInfo"]["scope"]),
        (&json!("skill"), &json!("user")),
        "{skill}"
    );
    assert_eq!(find("look")["source"], "prompt");
    rpc.run("/look a.rs");
    let sent = messages(&world.requests()[0]).iter().map(wire_text).collect::<String>();
    assert!(sent.contains("Look at a.rs closely."), "{sent}");
    rpc.process.close().ok();
}

#[test]
fn session_that_keeps_nothing_is_driven_alike() {
    let world = World::new([says("one"), says("two")]);
    world.unchecked();
    let mut rpc = Rpc::start(&world, &["--no-session"]);
    rpc.run("first");
    rpc.data(json!({ "type": "set_auto_retry", "enabled": false }));
    let entry = rpc.data(json!({ "type": "get_fork_messages" }))["messages"][0]["entryId"].clone();
    assert_eq!(rpc.data(json!({ "type": "fork", "entryId": entry }))["text"], "first");
    rpc.run("second");
    rpc.process.close().ok();
    assert!(!world.store().exists());
    let settings = std::fs::read_to_string(world.path("home/.quipu/settings.json")).unwrap();
    assert!(!settings.contains("enabled"), "{settings}");
}
