//! Which tools are offered by the settings, what says why the others are not, and calls that go in circles.

use std::path::PathBuf;

use quipu_testkit::{Answer, Reply};
use serde_json::{Value, json};

use crate::support::*;

/// Names of the tools in the last request.
fn offered(world: &World) -> Vec<String> {
    let body = world.requests().last().unwrap().json();
    let tools = body["tools"].as_array().cloned().unwrap_or_default();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

fn settings(world: &World, settings: &Value) {
    std::fs::write(world.path("home/.quipu/settings.json"), settings.to_string()).unwrap();
}

/// What the model is told of a call.
fn told(world: &World, reply: Reply) -> String {
    world.server.push(reply);
    world.server.push(Answer::new().text("I see.").reply());
    world.run(&["-p", "-c", "go on"]).ok();
    wire_text(&messages(world.requests().last().unwrap()).pop().unwrap())
}

#[test]
fn policy_of_the_settings_narrows_what_is_offered() {
    let world = World::new((0..9).map(|_| Answer::new().text("Hi.").reply()));
    world.run(&["-p", "first"]).ok();
    let all = offered(&world);
    assert!(all.starts_with(&["read", "bash", "background", "edit", "write"].map(str::to_owned)), "{all:?}");
    settings(&world, &json!({ "tools": { "deny": ["group:runtime", "EDIT"] } }));
    world.run(&["-p", "-c", "second"]).ok();
    let left: Vec<String> =
        all.iter().filter(|name| !["bash", "background", "edit"].contains(&name.as_str())).cloned().collect();
    assert_eq!(offered(&world), left, "a session that goes on has what is set now");
    settings(&world, &json!({ "tools": { "profile": "coding", "allow": ["read", "exec"] } }));
    world.run(&["-p", "third"]).ok();
    assert_eq!(offered(&world), ["read", "bash", "background"]);
    settings(&world, &json!({ "tools": { "byProvider": { "testing/test-1": { "deny": ["*"] } } } }));
    world.run(&["-p", "fourth"]).ok();
    assert_eq!(offered(&world), Vec::<String>::new());
    world.run(&["-p", "--model", "testing/thinker", "fifth"]).ok();
    assert_eq!(offered(&world), all, "another model has all of them");
    // A list that cannot be read leaves nothing open.
    settings(&world, &json!({ "tools": { "byProvider": { "testing": { "denied": ["bash"] } } } }));
    world.run(&["-p", "sixth"]).ok();
    assert_eq!(offered(&world), Vec::<String>::new());
    // The list of earlier versions still counts.
    settings(&world, &json!({ "tools": ["read"] }));
    world.run(&["-p", "seventh"]).ok();
    assert!(!offered(&world).contains(&"bash".to_owned()), "{:?}", offered(&world));
    // A project cannot open anything.
    settings(&world, &json!({ "tools": { "allow": ["read"] } }));
    std::fs::create_dir(world.path("work/.quipu")).unwrap();
    world.file(".quipu/settings.json", r#"{"tools":{"allow":["*"],"deny":[]}}"#);
    world.run(&["-p", "eighth"]).ok();
    assert_eq!(offered(&world), ["read"]);
}

#[test]
fn denied_tool_does_not_run_and_says_why() {
    let world = World::new([Answer::new().text("Hi.").reply()]);
    world.run(&["-p", "first"]).ok();
    settings(&world, &json!({ "tools": { "deny": ["bash"] } }));
    let text = told(&world, bash("c1", "touch ran"));
    assert!(
        text.contains("The tool bash is not offered here: denied by bash (tools.allow and deny)"),
        "{text}"
    );
    assert!(!world.path("work/ran").exists());
}

#[test]
fn tools_of_servers_are_narrowed_too() {
    let world = World::new([]);
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../mcp/tests/it/server.py");
    let env = json!({ "SERVER_LOG": world.path("tmp/log"), "CHANGED": world.path("tmp/changed") });
    let server = json!({ "command": "python3", "args": [script, "good"], "env": env });
    let file = json!({ "mcpServers": { "srv": server } });
    std::fs::write(world.path("home/.quipu/mcp.json"), file.to_string()).unwrap();
    for (policy, expected) in [
        (json!({}), true),
        (json!({ "deny": ["mcp__srv__*"] }), false),
        (json!({ "deny": ["group:mcp"] }), false),
        (json!({ "allow": ["read"] }), false),
        (json!({ "profile": "coding" }), true),
    ] {
        settings(&world, &json!({ "tools": policy }));
        world.server.push(Answer::new().text("Hi.").reply());
        world.run(&["-p", "go"]).ok();
        assert_eq!(offered(&world).contains(&"mcp__srv__echo".to_owned()), expected, "{policy}");
    }
}

#[test]
fn report_names_stages_and_rules() {
    let world = World::new([]);
    settings(&world, &json!({ "tools": { "profile": "coding", "deny": ["group:runtime", "nobody"] } }));
    let report = world.run(&["tools", "--json"]).ok().json();
    assert_eq!(report["model"], "testing/test-1");
    let stages: Vec<&str> =
        report["stages"].as_array().unwrap().iter().map(|stage| stage["stage"].as_str().unwrap()).collect();
    assert_eq!(stages, ["base", "replacements", "own", "channel's", "policy", "schema", "abort"]);
    let removed = json!([
        { "tool": "bash", "step": "tools.allow and deny", "rule": "denied", "entry": "group:runtime" },
        { "tool": "background", "step": "tools.allow and deny", "rule": "denied", "entry": "group:runtime" },
    ]);
    assert_eq!(report["removed"], removed);
    assert_eq!(
        report["warnings"],
        json!([r#"tools.allow and deny: "nobody" is the name of no tool and no group"#])
    );
    let offered: Vec<&Value> = report["offered"].as_array().unwrap().iter().map(|one| &one["tool"]).collect();
    assert!(offered.contains(&&json!("read")) && !offered.contains(&&json!("bash")), "{report}");
    let text = world.run(&["tools"]).ok().text();
    assert!(text.contains("bash: denied by group:runtime (tools.allow and deny)"), "{text}");
    assert!(world.sessions().is_empty(), "it begins no session");
    settings(&world, &json!({ "tools": { "byProvider": { "testing/thinker": { "allow": ["read"] } } } }));
    let other = world.run(&["tools", "--json", "--model", "testing/thinker"]).ok().json();
    assert_eq!(other["offered"], json!([{ "tool": "read", "source": null }]));
    let none = json!({ "tools": { "deny": ["*"] } });
    settings(&world, &none);
    let text = world.run(&["tools"]).ok().text();
    assert!(text.contains("\noffered\n  none\n"), "{text}");
}

/// What cannot be read takes tools away and gives none.
#[test]
fn settings_that_cannot_be_read_offer_no_tools() {
    let world = World::new([]);
    for (bad, left) in [
        (json!({ "profile": "codnig" }), json!([])),
        (json!({ "allow": "read" }), json!([])),
        (json!({ "allow": [7] }), json!([])),
        (json!({ "allow": ["read", 7] }), json!([{ "tool": "read", "source": null }])),
        (json!({ "deny": "bash" }), json!([])),
        (json!({ "deny": ["bash", 7] }), json!([])),
    ] {
        settings(&world, &json!({ "tools": bad }));
        let ran = world.run(&["tools", "--json"]).ok();
        assert_eq!(ran.json()["offered"], left, "{bad}");
        assert!(ran.err.contains("tools."), "{bad}: {}", ran.err);
    }
}

#[test]
fn repeated_calls_are_reported_then_rejected() {
    let same = || call("c1", "read", &json!({ "path": "a.txt" }));
    let world = World::new((0..6).map(|_| same()).chain([Answer::new().text("Enough.").reply()]));
    world.file("a.txt", "knot\n");
    let limits = json!({ "enabled": true, "warning": 2, "critical": 4 });
    settings(&world, &json!({ "tools": { "loopDetection": limits } }));
    world.run(&["-p", "read"]).ok();
    let results: Vec<String> = messages(world.requests().last().unwrap())
        .iter()
        .filter(|message| message["role"] == "user")
        .skip(1)
        .map(wire_text)
        .collect();
    assert_eq!(results.len(), 6);
    let warned: Vec<bool> = results.iter().map(|text| text.contains("This may be a loop: `read`")).collect();
    assert_eq!(warned, [false, false, true, false, false, false], "one warning: {results:?}");
    let rejected: Vec<bool> = results.iter().map(|text| text.contains("because this is a loop")).collect();
    assert_eq!(rejected, [false, false, false, false, true, true], "{results:?}");
    let records: Vec<Value> =
        world.nodes().iter().filter(|node| node.to_string().contains("loop detection")).cloned().collect();
    assert_eq!(records.len(), 3, "each is recorded: {records:?}");
    // Off by default.
    settings(&world, &json!({}));
    for _ in 0..6 {
        world.server.push(same());
    }
    world.server.push(Answer::new().text("Enough.").reply());
    world.run(&["-p", "read"]).ok();
    assert!(!messages(world.requests().last().unwrap()).iter().any(|one| one.to_string().contains("a loop")));
}

#[test]
fn tool_that_does_not_exist_is_rejected_in_the_end() {
    let world = World::new(
        (0..4).map(|_| call("c1", "nobody", &json!({}))).chain([Answer::new().text("Enough.").reply()]),
    );
    settings(&world, &json!({ "tools": { "loopDetection": { "enabled": true, "unknownTool": 2 } } }));
    world.run(&["-p", "go"]).ok();
    let requests = world.requests();
    let told = messages(requests.last().unwrap()).iter().map(Value::to_string).collect::<String>();
    assert_eq!(told.matches("there is no such tool").count(), 2, "{told}");
    assert_eq!(told.matches("Tool nobody not found").count(), 2, "{told}");
}

#[test]
fn poll_of_a_command_that_prints_nothing_is_rejected() {
    let start = json!({ "command": "cat", "run_in_background": true });
    let poll = |at: usize| call(&format!("p{at}"), "background", &json!({ "action": "output", "id": "b1" }));
    let world = World::new(
        [call("c1", "bash", &start)]
            .into_iter()
            .chain((0..5).map(poll))
            .chain([Answer::new().text("Enough.").reply()]),
    );
    settings(
        &world,
        &json!({ "tools": { "loopDetection": { "enabled": true, "warning": 2, "critical": 3 } } }),
    );
    world.run(&["-p", "go"]).ok();
    let told = messages(world.requests().last().unwrap()).iter().map(Value::to_string).collect::<String>();
    assert!(told.contains("`background` was asked 3 times and found nothing new"), "{told}");
}
