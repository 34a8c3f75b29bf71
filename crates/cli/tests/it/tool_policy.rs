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

/// The tools that the report says are offered, and the steps that removed the others.
fn report(world: &World, args: &[&str]) -> (Vec<String>, Vec<(String, String)>) {
    let report = world.run(&[&["tools", "--json"], args].concat()).ok().json();
    let texts = |list: &Value, name: &str| -> Vec<String> {
        list.as_array().unwrap().iter().map(|one| one[name].as_str().unwrap().to_owned()).collect()
    };
    let removed = texts(&report["removed"], "tool").into_iter().zip(texts(&report["removed"], "step"));
    (texts(&report["offered"], "tool"), removed.collect())
}

#[test]
fn agents_groups_and_senders_have_policies_of_their_own() {
    let world = World::new([]);
    std::fs::create_dir(world.path("ops")).unwrap();
    let agent = json!({
        "workspace": world.path("ops"),
        "tools": {
            "allow": ["group:fs", "group:runtime"],
            "byProvider": { "testing/thinker": { "deny": ["bash"] } },
            "bySender": { "username:ann": { "deny": ["write"] } },
        },
    });
    let group = json!({ "deny": ["edit"], "bySender": { "id:7": { "deny": ["read"] } } });
    settings(
        &world,
        &json!({
            "tools": { "byGroup": { "telegram:-100": group }, "bySender": { "*": { "deny": ["bash"] } } },
            "agents": { "byId": { "ops": agent } },
        }),
    );
    let removed = |args: &[&str]| -> Vec<String> {
        let found = report(&world, args).1.into_iter().filter(|(tool, _)| BUILT_IN.contains(&&**tool));
        found.map(|(tool, step)| format!("{tool}: {step}")).collect()
    };
    // A session that no chat began has none of them.
    assert_eq!(removed(&[]), Vec::<String>::new());
    assert_eq!(removed(&["--group", "telegram:-100"]), ["edit: tools.byGroup.telegram:-100"]);
    assert_eq!(
        removed(&["--group", "Telegram:-100", "--sender", "7"]),
        [
            "read: tools.byGroup.telegram:-100.bySender.id:7",
            "bash: tools.bySender.*",
            "edit: tools.byGroup.telegram:-100",
        ]
    );
    assert_eq!(
        removed(&["--agent", "ops", "--sender", "username:ann"]),
        ["bash: tools.bySender.*", "write: the agent's tools.bySender.username:ann"]
    );
    assert_eq!(
        removed(&["--agent", "ops", "--model", "testing/thinker"]),
        ["bash: the agent's tools.byProvider.testing/thinker"]
    );
    let (offered, _) = report(&world, &["--agent", "ops"]);
    assert_eq!(offered, ["read", "bash", "background", "edit", "write"]);
    let ran = world.run(&["tools", "--agent", "nobody"]).ok();
    assert!(ran.err.contains("no settings name the agent `nobody`"), "{}", ran.err);
    for bad in [["--group", "telegram"], ["--sender", "id:"]] {
        world.run(&[&["tools"], &bad[..]].concat()).exits(2);
    }
}

/// The tools that every session has.
const BUILT_IN: [&str; 4] = ["read", "bash", "edit", "write"];

#[test]
fn confined_commands_have_lists_of_their_own() {
    if !crate::permissions::confined() {
        return;
    }
    let world = World::new([]);
    let agent = json!({ "tools": { "sandbox": { "deny": ["write"] } } });
    settings(
        &world,
        &json!({
            "tools": { "sandbox": { "deny": ["edit"] } },
            "agents": { "byId": { "ops": agent } },
        }),
    );
    let of = |args: &[&str]| -> Vec<String> {
        let (offered, removed) = report(&world, args);
        let steps = removed.into_iter().map(|(tool, step)| format!("{tool}: {step}"));
        assert!(offered.contains(&"bash".to_owned()), "{offered:?}");
        steps.collect()
    };
    let both = ["edit: tools.sandbox", "write: the agent's tools.sandbox"];
    assert_eq!(of(&["--agent", "ops"]), both);
    assert_eq!(of(&[]), both[..1]);
    world.run(&["permissions", "set", "full"]).ok();
    assert_eq!(of(&["--agent", "ops"]), Vec::<String>::new(), "nothing is confined");
}

#[test]
fn sandbox_of_a_scope_has_tools_of_its_own() {
    let world = World::new([]);
    let tools = |sandbox: &serde_json::Value, args: &[&str]| {
        let agent = json!({ "tools": { "sandbox": { "alsoAllow": ["search_history"], "deny": ["write"] } } });
        let written = json!({
            "sandbox": { "mode": "all" },
            "tools": { "sandbox": sandbox },
            "agents": { "byId": { "ops": agent } },
        });
        settings(&world, &written);
        report(&world, args)
    };
    let has = |offered: &[String], name: &str| offered.iter().any(|one| one == name);
    let (offered, removed) = tools(&json!({}), &[]);
    assert!(["bash", "read", "todo", "plan"].iter().all(|name| has(&offered, name)), "{offered:?}");
    for name in ["search_history", "recall"] {
        let step = removed.iter().find(|(tool, _)| tool == name).map(|(_, step)| step.as_str());
        assert_eq!(step, Some("tools.sandbox"), "{name}: {removed:?}");
    }
    let (offered, _) = tools(&json!({ "alsoAllow": ["recall"], "deny": ["edit"] }), &[]);
    assert!(has(&offered, "recall") && !has(&offered, "edit"), "{offered:?}");
    let (offered, _) = tools(&json!({ "alsoAllow": ["recall"], "deny": ["edit"] }), &["--agent", "ops"]);
    assert!(has(&offered, "search_history") && !has(&offered, "recall"), "{offered:?}");
    assert!(!has(&offered, "edit") && !has(&offered, "write"), "what either denies: {offered:?}");
    let (offered, _) = tools(&json!({ "allow": ["read"] }), &[]);
    assert_eq!(offered, ["read"]);
}

/// A policy of an agent, a group or a sender that cannot be read leaves nothing open.
#[test]
fn unreadable_policies_of_agents_groups_and_senders_close() {
    let world = World::new([]);
    let all = ["--agent", "ops", "--group", "t:1", "--sender", "7"];
    let is_confined = crate::permissions::confined();
    for (tools, agents) in [
        (json!({ "byGroup": { "t:1": { "denied": ["bash"] } } }), json!({})),
        (json!({ "byGroup": { "t:1": { "deny": "bash" } } }), json!({})),
        (json!({ "byGroup": { "t": { "deny": ["bash"] } } }), json!({})),
        (json!({ "byGroup": ["bash"] }), json!({})),
        (json!({ "byGroup": { "t:1": { "bySender": 7 } } }), json!({})),
        (json!({ "bySender": { "id:7": { "profile": "coding" } } }), json!({})),
        (json!({ "bySender": { "name:Ann": { "deny": ["bash"] } } }), json!({})),
        (json!({ "bySender": 7 }), json!({})),
        (json!({ "byProvider": 7 }), json!({})),
        (json!({ "sandbox": { "deny": "bash" } }), json!({})),
        (json!({}), json!({ "ops": { "tools": { "deny": "bash" } } })),
        (json!({}), json!({ "ops": { "tools": { "profile": "codnig" } } })),
        (json!({}), json!({ "ops": { "tools": { "byGroup": { "t:1": 7 } } } })),
        (json!({}), json!({ "ops": { "tools": { "sandbox": { "deny": 7 } } } })),
        (json!({}), json!({ "Ops": { "tools": { "deny": ["bash"] } } })),
        (json!({}), json!(7)),
    ] {
        // Its lists count where something is confined.
        if !is_confined && [&tools, &agents].iter().any(|one| one.to_string().contains("sandbox")) {
            continue;
        }
        settings(&world, &json!({ "tools": tools, "agents": { "byId": agents } }));
        let ran = world.run(&[&["tools", "--json"], &all[..]].concat()).ok();
        assert_eq!(ran.json()["offered"], json!([]), "{tools} {agents}");
        assert!(ran.err.contains("tools") && ran.err.contains("corrected"), "{tools} {agents}: {}", ran.err);
        // Whom it does not concern has what there is.
        if tools.get("byGroup").is_some_and(Value::is_object) {
            assert!(report(&world, &["--sender", "7"]).0.contains(&"bash".to_owned()), "{tools}");
        }
    }
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

/// A file of settings that is not JSON opens nothing that it closed.
#[test]
fn settings_that_are_no_json_close_what_they_name() {
    let world = World::new([]);
    let file = world.path("home/.quipu/settings.json");
    let named = r#"{ "defaultModel": "testing/test-1", "tools": { "deny": ["bash"] }, "agents": { "byId": {"#;
    std::fs::write(&file, named).unwrap();
    let ran = world.run(&["tools", "--json"]).ok();
    let report = ran.json();
    assert_eq!(report["offered"], json!([]), "{report}");
    assert!(ran.err.contains("tools.deny, agents.byId cannot be read: no tools are offered"), "{}", ran.err);
    assert!(ran.err.contains("agents get no tools"), "{}", ran.err);
    // What it does not name is as ever.
    std::fs::write(&file, r#"{ "theme": "dark", "#).unwrap();
    let (offered, removed) = self::report(&world, &[]);
    assert!(offered.contains(&"bash".to_owned()) && removed.is_empty(), "{removed:?}");
}
