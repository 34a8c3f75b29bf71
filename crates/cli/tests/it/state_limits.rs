//! State directories whose settings cannot be read, or are written as that gateway allows: agents are never able to do more.

use std::os::unix::fs::symlink;
use std::path::Path;

use quipu_testkit::Answer;
use serde_json::{Value, json};

use crate::schedule_costs::with_free_model;
use crate::state_takeover::{put, taken, texts};
use crate::support::*;

/// What no agent can use.
fn closed() -> Value {
    json!({ "deny": ["*"] })
}

/// Imports a state directory with these settings, and gives the agents that are there then.
fn agents(prepare: impl Fn(&World, &Path)) -> (Vec<Value>, Value) {
    let world = World::new([]);
    let dir = world.path("home/.openclaw");
    for agent in ["main", "my-ops"] {
        std::fs::create_dir_all(dir.join("agents").join(agent).join("agent")).unwrap();
    }
    std::fs::create_dir_all(dir.join("workspace")).unwrap();
    let approvals = json!({ "version": 1, "agents": { "main": { "allowlist": [{ "pattern": "rg" }] } } });
    put(&dir, "exec-approvals.json", approvals.to_string());
    prepare(&world, &dir);
    let lines = world.run(&["import", "--state", "openclaw", "--json"]).json_lines();
    let agents = world.run(&["config", "get", "agents.byId"]).ok().json();
    let rules = world.path("home/.quipu/permissions.json");
    let rules = std::fs::read_to_string(rules).unwrap_or_default();
    assert!(!rules.contains("bash(rg *)") || agents["main"]["tools"] != closed(), "{rules}");
    (lines, agents)
}

#[test]
fn settings_that_are_not_read_give_agents_no_tools() {
    let elsewhere = |world: &World, dir: &Path| {
        put(&world.path("dotfiles"), "openclaw.json", "{}");
        symlink(world.path("dotfiles/openclaw.json"), dir.join("openclaw.json")).unwrap();
    };
    let nowhere = |_: &World, dir: &Path| symlink("gone.json", dir.join("openclaw.json")).unwrap();
    let text = |text: &'static str| move |_: &World, dir: &Path| put(dir, "openclaw.json", text);
    type Prepare<'a> = &'a dyn Fn(&World, &Path);
    let cases: [(&str, Prepare<'_>); 7] = [
        ("a link out of it", &elsewhere),
        ("a link to nothing", &nowhere),
        ("a list", &text("[]")),
        ("agents that are no object", &text("{ agents: [] }")),
        ("agents that are no list", &text("{ agents: { list: { main: {} } } }")),
        ("a number that is none", &text("{ $include: './agents.json5' }")),
        (
            "an id that is not set",
            &text("{ agents: { list: [ { id: '${QUIPU_NO_SUCH_NAME}', tools: {} } ] } }"),
        ),
    ];
    for (name, prepare) in cases {
        let (lines, agents) = agents(|world, dir| {
            put(dir, "agents.json5", "{ agents: { list: [ { id: 'main', x: 1e400 } ] } }");
            prepare(world, dir);
        });
        assert_eq!(agents["main"]["tools"], closed(), "{name}: {lines:?}");
        assert_eq!(agents["my-ops"]["tools"], closed(), "{name}: {lines:?}");
        let is_reported = lines.iter().any(|line| {
            line["file"].as_str().is_some_and(|file| file.ends_with(".json") || file.ends_with(".json5"))
                && matches!(line["outcome"].as_str(), Some("failed" | "left"))
        });
        assert!(is_reported, "{name}: {lines:?}");
    }
}

/// Newer versions have agents by their ids.
#[test]
fn agents_by_their_ids_are_taken_as_those_of_a_list() {
    let (lines, found) = agents(|_, dir| {
        let entries = json!({ "main": { "tools": { "deny": ["exec"] } }, "My Ops": 7 });
        put(dir, "openclaw.json", json!({ "agents": { "entries": entries } }).to_string());
    });
    assert_eq!(found["main"]["tools"], json!({ "deny": ["exec"] }), "{lines:?}");
    assert_eq!(found["my-ops"]["tools"], closed(), "{lines:?}");
    for broken in ["{ agents: { entries: [] } }", "{ agents: { entries: { $include: './gone.json5' } } }"] {
        let (lines, found) = agents(|_, dir| put(dir, "openclaw.json", broken));
        assert_eq!((&found["main"]["tools"], &found["my-ops"]["tools"]), (&closed(), &closed()), "{lines:?}");
    }
}

/// A database of one agent does not hide what the others have in files.
#[test]
fn files_beside_a_database_of_an_agent_are_read() {
    let world = World::new([]);
    let dir = world.path("home/.openclaw");
    std::fs::create_dir_all(dir.join("workspace")).unwrap();
    std::fs::create_dir_all(dir.join("agents/main/agent")).unwrap();
    put(&dir, "agents/ops/agent/openclaw-agent.sqlite", "");
    let deny = json!({ "version": 1, "defaults": { "security": "deny" } });
    put(&dir, "exec-approvals.json", deny.to_string());
    let output = world.run(&["import", "--state", "openclaw", "--json"]);
    let lines = output.json_lines();
    let is_taken =
        |line: &Value| line["outcome"] == "added" && line["text"].as_str().unwrap().contains("deny bash");
    assert!(lines.iter().any(is_taken), "{lines:?}");
    // An empty one may have said anything.
    let world = World::new([]);
    let dir = world.path("home/.openclaw");
    std::fs::create_dir_all(dir.join("workspace")).unwrap();
    std::fs::create_dir_all(dir.join("agents/main/agent")).unwrap();
    put(&dir, "exec-approvals.json", "\n");
    let lines = world.run(&["import", "--state", "openclaw", "--json"]).json_lines();
    let is_asked = |line: &Value| line["text"].as_str().is_some_and(|text| text.starts_with("mode ask"));
    assert!(lines.iter().any(is_asked), "{lines:?}");
}

#[test]
fn ids_of_agents_are_those_of_their_directories() {
    let (lines, found) = agents(|_, dir| {
        let list = "[ { tools: { deny: ['write'] } }, { id: ' My Ops! ', tools: { deny: ['exec'] } }, { id: 'my-ops' } ]";
        put(dir, "openclaw.json", format!("{{ agents: {{ list: {list} }} }}"));
    });
    assert_eq!(found["main"]["tools"], json!({ "deny": ["write"] }), "without an id: {lines:?}");
    assert_eq!(found["my-ops"]["tools"], json!({ "deny": ["exec"] }), "{lines:?}");
    // One whose file is missing is none of those that are named.
    let (lines, found) = agents(|_, dir| {
        let list = "[ { $include: './gone.json5' }, { id: 'main', tools: { deny: ['write'] }, model: { primary: 'test/test-1', fallbacks: ['${QUIPU_NO_SUCH_NAME}'] } } ]";
        put(dir, "openclaw.json", format!("{{ agents: {{ list: {list} }} }}"));
    });
    assert_eq!(
        (&found["main"]["tools"], &found["main"]["model"]),
        (&json!({ "deny": ["write"] }), &json!("test/test-1")),
        "{lines:?}"
    );
    assert_eq!(found["my-ops"]["tools"], closed(), "{lines:?}");
    let exec = json!({ "exec": { "security": "deny" } });
    let list = json!([{ "id": "My Ops", "workspace": "~/../work", "tools": exec }]);
    let (_, lines, _, rules) = taken(&json!({ "agents": { "list": list } }), r#"{"version":1}"#);
    assert_eq!(rules, ["deny bash"], "{lines:?}");
}

#[test]
fn variables_count_in_policies_of_agents() {
    let (lines, agents) = agents(|_, dir| {
        let list = "[ { id: 'main', tools: { deny: ['$${HOME}', 'exec'] } }, { id: 'my-ops', tools: { deny: ['${QUIPU_NO_SUCH_NAME}'] } } ]";
        put(dir, "openclaw.json", format!("{{ agents: {{ list: {list} }} }}"));
    });
    assert_eq!(agents["main"]["tools"], json!({ "deny": ["${HOME}", "exec"] }), "{lines:?}");
    assert_eq!(agents["my-ops"]["tools"], closed(), "{lines:?}");
    let left = texts(&lines, "agent", "agents.list[1].tools.deny[0]");
    assert!(left.iter().any(|text| text.contains("QUIPU_NO_SUCH_NAME is not set")), "{lines:?}");
    let list = json!([{ "id": "main", "workspace": "~/../work" }]);
    let (_, _, _, rules) = taken(
        &json!({ "agents": { "list": list }, "tools": { "exec": { "security": "${QUIPU_NO_SUCH_NAME}" } } }),
        r#"{"version":1}"#,
    );
    assert_eq!(rules, ["deny bash"], "what is not known is strict");
}

#[test]
fn approvals_of_another_shape_count_as_lost() {
    let list = json!([{ "id": "main", "workspace": "~/../work" }]);
    for broken in ["[]", r#"{"version":1,"agents":[]}"#] {
        let (_, lines, mode, rules) = taken(&json!({ "agents": { "list": list } }), broken);
        assert_eq!((mode, rules.len()), (json!("ask"), 0), "{broken}: {lines:?}");
        assert!(lines.iter().any(|line| line["outcome"] == "failed"), "{broken}: {lines:?}");
    }
}

#[test]
fn approvals_below_another_shape_are_the_strictest() {
    let list = json!([{ "id": "main", "workspace": "~/../work" }]);
    let none = json!({ "version": 1 });
    let of = |agents: Value| json!({ "version": 1, "agents": agents });
    let exec = |exec: Value| json!({ "agents": { "list": list }, "tools": { "exec": exec } });
    let of_agent = json!([{ "id": "main", "workspace": "~/../work", "tools": { "exec": ["deny"] } }]);
    let plain = json!({ "agents": { "list": list } });
    let defaults = json!({ "version": 1, "defaults": "deny", "agents": { "main": { "allowlist": [{ "pattern": "rg" }] } } });
    for (config, approvals) in [
        (exec(json!("deny")), none.clone()),
        (exec(json!(["full"])), none.clone()),
        (json!({ "agents": { "list": of_agent } }), none.clone()),
        (json!({ "agents": { "list": list }, "tools": [] }), none),
        (plain.clone(), of(json!({ "main": "full" }))),
        (plain.clone(), of(json!({ "*": 7 }))),
        (plain.clone(), of(json!({ "main": { "allowlist": { "pattern": "rg" } } }))),
        (plain, defaults),
    ] {
        let (_, lines, _, rules) = taken(&config, &approvals.to_string());
        assert!(rules.contains(&"deny bash".to_owned()), "{config} {approvals}: {rules:?} {lines:?}");
        let is_noted = |line: &Value| line.to_string().contains("that is not known, and counts as");
        assert!(lines.iter().any(is_noted), "{config} {approvals}: {lines:?}");
    }
}

#[test]
fn jobs_with_unreadable_members_do_not_run() {
    let world = World::new([]);
    let dir = world.path("home/.openclaw");
    let list = json!([{ "id": "main", "workspace": world.path("work") }]);
    put(&dir, "openclaw.json", json!({ "agents": { "list": list } }).to_string());
    let job = |id: &str, member: &str, value: Value| {
        let mut job = json!({ "id": id, "schedule": { "kind": "every", "everyMs": 86_400_000 },
            "payload": { "kind": "agentTurn", "message": "Summarize." }, "delivery": { "mode": "none" } });
        job[member] = value;
        job
    };
    let jobs = [
        job("text", "enabled", json!("false")),
        job("number", "enabled", json!(0)),
        job("null", "enabled", Value::Null),
        job("agent", "agentId", json!(7)),
        job("good", "enabled", json!(true)),
    ];
    put(&dir, "cron/jobs.json", json!({ "version": 1, "jobs": jobs }).to_string());
    let lines = world.run(&["import", "--state", "openclaw", "--json"]).json_lines();
    let listed = world.run(&["schedule", "list", "--json"]).ok().json_lines();
    let mut found: Vec<(&str, bool)> =
        listed.iter().map(|job| (job["key"].as_str().unwrap(), job["state"] == "paused")).collect();
    found.sort_unstable();
    let wanted = [("good", false), ("null", true), ("number", true), ("text", true)];
    let wanted = wanted.map(|(id, is_paused)| (format!("openclaw/{id}"), is_paused));
    assert!(
        found.iter().copied().eq(wanted.iter().map(|(key, is_paused)| (&**key, *is_paused))),
        "{listed:?}"
    );
    assert_eq!(
        lines.iter().filter(|line| line.to_string().contains("so it is paused")).count(),
        3,
        "{lines:?}"
    );
    assert!(lines.iter().any(|line| line.to_string().contains("its agentId is no text")), "{lines:?}");
}

#[test]
fn job_of_an_agent_has_no_more_tools_than_the_agent() {
    let world = World::new([Answer::new().text("Done.").reply(), Answer::new().text("Done.").reply()]);
    with_free_model(&world);
    let dir = world.path("home/.openclaw");
    let work = world.path("work");
    let list = json!([
        { "id": "main", "workspace": work },
        { "id": "ops", "workspace": work, "tools": { "deny": ["exec", "write"] } },
    ]);
    put(&dir, "openclaw.json", json!({ "agents": { "list": list } }).to_string());
    let job = |id: &str, agent: &str| {
        json!({ "id": id, "agentId": agent, "schedule": { "kind": "every", "everyMs": 86_400_000 },
            "payload": { "kind": "agentTurn", "message": "Summarize.", "model": "testing/free" }, "delivery": { "mode": "none" } })
    };
    let jobs = json!({ "version": 1, "jobs": [job("all", "main"), job("few", " OPS ")] });
    put(&dir, "cron/jobs.json", jobs.to_string());
    world.run(&["import", "--state", "openclaw"]).ok();
    let runs = |key: &str| world.run(&["schedule", "run", key]);
    for key in ["openclaw/all", "openclaw/few"] {
        runs(key).ok();
    }
    let offered = |at: usize| {
        let body = world.requests()[at].json();
        let tools = body["tools"].as_array().unwrap().iter();
        tools.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(offered(0).contains(&"bash".to_owned()), "{:?}", offered(0));
    let few = offered(1);
    assert!(!few.contains(&"bash".to_owned()) && !few.contains(&"write".to_owned()), "{few:?}");
    assert!(few.contains(&"read".to_owned()), "{few:?}");
    // It goes back to the agent that it came from, though another one works in the same directory.
    let out = world.path("out");
    world.run(&["export", "--state", "openclaw", "-o", out.to_str().unwrap()]).ok();
    let written: Value = serde_json::from_slice(&std::fs::read(out.join("cron/jobs.json")).unwrap()).unwrap();
    let of: Vec<_> = written["jobs"].as_array().unwrap().iter().map(|job| &job["agentId"]).collect();
    assert_eq!(of, [&json!("main"), &json!("ops")], "{written}");
    // Nothing says what an agent may do that is not set up any more.
    world.run(&["config", "set", "agents.byId", "{}"]).ok();
    let refused = runs("openclaw/few").exits(1);
    assert!(refused.err.contains("no agent `ops` is set up"), "{}", refused.err);
}

#[test]
fn limits_of_all_agents_are_named_where_they_are_not_taken() {
    for tools in ["{ deny: ['exec'] }", "[]", "{ $include: './gone.json5' }"] {
        let (lines, _) = agents(|_, dir| put(dir, "openclaw.json", format!("{{ tools: {tools} }}")));
        let left = texts(&lines, "agent", "tools");
        assert!(left.len() == 1 && left[0].contains("are settings"), "{tools}: {lines:?}");
    }
    let (lines, _) = agents(|_, dir| put(dir, "openclaw.json", "{ tools: { exec: { security: 'deny' } } }"));
    assert!(texts(&lines, "agent", "tools").is_empty(), "{lines:?}");
}

#[test]
fn too_many_agents_keep_nothing_else_from_being_taken() {
    let world = World::new([]);
    let dir = world.path("home/.openclaw");
    let list: Vec<Value> = (0..5_000).map(|at| json!({ "id": format!("a{at}") })).collect();
    put(&dir, "openclaw.json", json!({ "agents": { "list": list } }).to_string());
    let profile = json!({ "type": "token", "provider": "anthropic", "token": "tok-R7mK2xQ9vT4nB8wL1zJ6" });
    let profiles = json!({ "version": 1, "profiles": { "anthropic:default": profile } });
    put(&dir, "agents/a0/agent/auth-profiles.json", profiles.to_string());
    let lines = world.run(&["import", "--state", "openclaw", "--json"]).exits(1).json_lines();
    assert!(lines.iter().all(|line| line["part"] != "agent" || line["outcome"] != "added"), "none is there");
    let failed: Vec<_> = lines.iter().filter(|line| line["outcome"] == "failed").collect();
    assert_eq!((failed.len(), &failed[0]["part"]), (1, &json!("agent")), "{failed:?}");
    assert_eq!(texts(&lines, "credential", "anthropic:default").len(), 1, "{:?}", lines.len());
}

#[test]
fn default_agent_is_none_that_is_named_where_a_file_is_missing() {
    let job = json!({ "id": "j", "schedule": { "kind": "every", "everyMs": 86_400_000 },
        "payload": { "kind": "agentTurn", "message": "x" } });
    let jobs = json!({ "version": 1, "jobs": [job] }).to_string();
    let of = |list: &str| {
        let world = World::new([]);
        let dir = world.path("home/.openclaw");
        std::fs::create_dir_all(world.path("home/w/ops")).unwrap();
        std::fs::create_dir_all(dir.join("agents/main/agent")).unwrap();
        let config = format!("{{ agents: {{ defaults: {{ workspace: '~/w' }}, list: [ {list} ] }} }}");
        put(&dir, "openclaw.json", config);
        put(&dir, "cron/jobs.json", &jobs);
        let lines = world.run(&["import", "--state", "openclaw", "--json"]).json_lines();
        let agents = world.run(&["config", "get", "agents.byId"]).ok().json();
        (texts(&lines, "job", "j").concat(), agents["ops"]["workspace"].clone())
    };
    let (job, workspace) = of("{ $include: './gone.json5' }, { id: 'ops' }");
    assert!(job.contains("which one is the default one cannot be known"), "{job}");
    assert_eq!(workspace, "~/w/ops");
    let (job, workspace) = of("{ $include: './gone.json5' }, { id: 'ops', default: true }");
    assert!(job.contains("openclaw/j"), "{job}");
    assert_eq!(workspace, "~/w");
}
