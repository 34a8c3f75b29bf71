//! Settings of other agents, taken over.

use serde_json::{Value, json};

use crate::support::*;

fn put(world: &World, path: &str, text: &str) {
    let path = world.path(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn ours(world: &World, name: &str) -> Value {
    let text = std::fs::read_to_string(world.path("home/.quipu").join(name)).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn settings_of_an_agent_become_ours_and_the_rest_is_named() {
    let world = World::new([]);
    let theirs = json!({
        "model": "opus",
        "effortLevel": "high",
        "env": { "SECRET": "hunter2-hunter2" },
        "permissions": { "allow": ["Bash(git status:*)", "Task(x)"], "defaultMode": "plan" },
        "hooks": {
            "PreToolUse": [{ "matcher": "Bash", "hooks": [{ "type": "command", "command": "guard" }] }],
            "Notification": [{ "hooks": [{ "type": "command", "command": "beep" }] }],
        },
        "spinnerTips": true,
    });
    put(&world, "home/.claude/settings.json", &format!("{theirs:#}"));
    let servers = json!({
        "numStartups": 7,
        "oauthAccount": { "token": "secret-account" },
        "mcpServers": { "files": { "command": "npx", "args": ["files"], "env": { "API_KEY": "abc-secret" } } },
    });
    put(&world, "home/.claude.json", &servers.to_string());
    let before = std::fs::read_to_string(world.path("home/.quipu/settings.json")).unwrap();

    let planned =
        world.run(&["import", "--settings", "claude-code", "--dry-run", "--json"]).ok().json_lines();
    assert_eq!(std::fs::read_to_string(world.path("home/.quipu/settings.json")).unwrap(), before);
    assert!(!world.path("home/.quipu/mcp.json").exists());

    let ran = world.run(&["import", "--settings", "claude", "--json"]).ok();
    assert_eq!(ran.json_lines(), planned);
    for secret in ["hunter2", "secret-account", "abc-secret"] {
        let told = [ran.text(), ran.err.clone()].concat();
        assert!(!told.contains(secret), "{told}");
    }
    let line_of =
        |part: &str| 1 + format!("{theirs:#}").lines().position(|line| line.contains(part)).unwrap();
    let row = |key: &str| {
        planned.iter().find(|row| row["key"] == key).unwrap_or_else(|| panic!("{key}: {planned:?}"))
    };
    assert_eq!(row("model")["setting"], "defaultModel");
    for (key, part) in
        [("env", "\"env\""), ("spinnerTips", "spinnerTips"), ("hooks.Notification", "Notification")]
    {
        assert_eq!(
            (&row(key)["outcome"], &row(key)["line"]),
            (&json!("left"), &json!(line_of(part))),
            "{key}"
        );
    }
    assert!(planned.iter().all(|row| row["key"] != "numStartups"), "{planned:?}");
    let settings = ours(&world, "settings.json");
    assert_eq!(settings["defaultModel"], "opus");
    assert_eq!(settings["defaultThinkingLevel"], "high");
    assert_eq!(settings["hooks"]["PreToolUse"][0]["hooks"][0]["command"], "guard");
    assert_eq!(settings["hooks"]["Notification"], Value::Null);
    assert_eq!(settings["retry"]["baseDelayMs"], 1);
    assert_eq!(ours(&world, "mcp.json")["mcpServers"]["files"]["env"]["API_KEY"], "${API_KEY}");
    assert_eq!(mode(&world.path("home/.quipu/mcp.json")), 0o600);

    // Again: nothing changes.
    let files = || {
        ["settings.json", "mcp.json"].map(|name| std::fs::read(world.path("home/.quipu").join(name)).unwrap())
    };
    let written = files();
    let again = world.run(&["import", "--settings", "claude-code", "--json"]).ok().json_lines();
    assert_eq!(files(), written);
    assert!(again.iter().all(|row| row["outcome"] != "set"), "{again:?}");
}

#[test]
fn policies_of_agents_groups_and_senders_are_taken_over() {
    let world = World::new([]);
    let theirs = r#"{
  // JSON5
  agents: { list: [
    { id: "Ops", model: "testing/test-1", identity: { name: "x" },
      tools: { profile: "coding", deny: ["exec"], elevated: { enabled: true } } },
  ] },
  tools: {
    allow: ["group:fs", "process", "exec"],
    byProvider: { testing: { deny: ["write"] } },
    toolsBySender: { "7": { deny: ["edit"] }, "name:Ann": { deny: ["*"] } },
    sandbox: { tools: { deny: ["read"] } },
    exec: { host: "gateway" },
  },
  session: {
    reset: { mode: "daily", atHour: 5 },
    resetByType: { dm: { mode: "idle", idleMinutes: 90 }, thread: { mode: "daily" } },
    resetByChannel: { telegram: { idleMinutes: 60 }, irc: { mode: "weekly" } },
  },
  channels: { telegram: { botToken: "123:secret", groups: { "-100": { tools: { deny: ["edit"] } } } } },
}"#;
    put(&world, "home/.openclaw/openclaw.json", theirs);
    let rows = world.run(&["import", "--settings", "openclaw", "--json"]).ok().json_lines();
    let settings = ours(&world, "settings.json");
    assert_eq!(
        settings["agents"]["byId"],
        json!({ "ops": { "model": "testing/test-1", "tools": { "profile": "coding", "deny": ["exec"] } } })
    );
    assert_eq!(
        settings["tools"],
        json!({
            "allow": ["group:fs", "process", "exec"],
            "byProvider": { "testing": { "deny": ["write"] } },
            "bySender": { "id:7": { "deny": ["edit"] } },
            "sandbox": { "deny": ["read"] },
            "byGroup": { "telegram:-100": { "deny": ["edit"] } },
        })
    );
    assert_eq!(
        settings["session"]["reset"],
        json!({
            "mode": "daily",
            "atHour": 5,
            "byKind": { "direct": { "mode": "idle", "idleMinutes": 90 }, "thread": { "mode": "daily" } },
        })
    );
    let left: Vec<&str> =
        rows.iter().filter(|row| row["outcome"] == "left").map(|row| row["key"].as_str().unwrap()).collect();
    assert_eq!(
        left,
        [
            "agents.list[0].identity",
            "agents.list[0].tools.elevated",
            "tools.toolsBySender.name:Ann",
            "tools.exec",
            "session.resetByChannel",
            "channels.telegram",
        ]
    );
    assert!(
        !settings.to_string().contains("secret")
            && rows.iter().all(|row| !row.to_string().contains("secret"))
    );
    let report = world.run(&["tools", "--agent", "ops", "--sender", "7", "--json"]).ok().json();
    // `exec` is `bash` here.
    assert!(
        report["removed"].as_array().unwrap().iter().any(|one| {
            one["tool"] == "bash"
                && one["step"] == "the agent's tools.allow and deny"
                && one["entry"] == "bash"
        }),
        "{report}"
    );
}

/// What `openclaw.json` says of compaction and pruning, as its wizard and people write it.
const CONTEXT: &str = r#"{
  // written by onboard
  agents: {
    defaults: {
      model: { primary: "testing/test-1" },
      imageModel: { primary: "testing/sees", fallbacks: ["testing/other"] },
      compaction: {
        mode: "safeguard",
        reserveTokens: 30000,
        reserveTokensFloor: 24000,
        keepRecentTokens: 12000,
        maxHistoryShare: 0.6,
        recentTurnsPreserve: 5,
        identifierPolicy: "off",
        qualityGuard: { enabled: true, maxRetries: 2 },
        timeoutSeconds: 600,
        model: "testing/test-1",
        customInstructions: "Keep ticket numbers.",
        notifyUser: true,
        memoryFlush: { enabled: true, softThresholdTokens: 6000 },
      },
      contextPruning: {
        mode: "cache-ttl",
        ttl: "1h",
        keepLastAssistants: 4,
        softTrimRatio: 0.25,
        hardClearRatio: 0.55,
        minPrunableToolChars: 40000,
        softTrim: { maxChars: 3000, headChars: 1000, tailChars: 900 },
        hardClear: { enabled: false, placeholder: "[cleared]" },
        tools: { allow: ["exec", "web_*"], deny: ["read"], extra: [] },
      },
    },
  },
}"#;

#[test]
fn compaction_and_pruning_of_openclaw_become_ours() {
    let world = World::new([]);
    put(&world, "home/.openclaw/openclaw.json", CONTEXT);
    let import = |more: &[&str]| {
        world.run(&[&["import", "--settings", "openclaw", "--json"], more].concat()).ok().json_lines()
    };
    let planned = import(&["--dry-run"]);
    let rows = import(&[]);
    assert_eq!(rows, planned);
    let settings = ours(&world, "settings.json");
    assert_eq!(
        settings["compaction"],
        json!({
            "mode": "safeguard", "reserveTokens": 30000, "keepRecentTokens": 12000, "maxHistoryPercent": 60,
            "recentTurns": 5, "identifiers": "off", "qualityRetries": 2, "timeoutSeconds": 600,
        })
    );
    assert_eq!(
        settings["context"]["expiry"],
        json!({
            "enabled": true, "ttlSeconds": 3600, "keepAnswers": 4, "softPercent": 25, "hardPercent": 55,
            "minClearCharacters": 40000, "trimCharacters": 3000, "headCharacters": 1000, "tailCharacters": 900,
            "clear": false, "placeholder": "[cleared]", "allow": ["bash", "web_*"], "deny": ["read"],
        })
    );
    assert_eq!(settings["purposeModels"], json!({ "image": "testing/sees", "compaction": "testing/test-1" }));
    let of = |outcome: &str| -> Vec<(String, u64)> {
        let found = rows.iter().filter(|row| row["outcome"] == outcome);
        let short = |key: &str| key.trim_start_matches("agents.defaults.").to_owned();
        found.map(|row| (short(row["key"].as_str().unwrap()), row["line"].as_u64().unwrap())).collect()
    };
    let line = |part: &str| 1 + CONTEXT.lines().position(|line| line.contains(part)).unwrap() as u64;
    let at = |key: &str, part: &str| (key.to_owned(), line(part));
    assert_eq!(
        of("left"),
        [
            at("imageModel.fallbacks", "imageModel"),
            at("compaction.customInstructions", "customInstructions"),
            at("compaction.notifyUser", "notifyUser"),
            at("compaction.memoryFlush", "memoryFlush"),
            at("contextPruning.tools.extra", "extra"),
        ]
    );
    assert_eq!(
        of("note"),
        [
            at("compaction.reserveTokensFloor", "reserveTokensFloor"),
            at("compaction.qualityGuard.enabled", "qualityGuard"),
        ]
    );
    // It is what a session uses, and a second time nothing changes.
    let config = world.run(&["config", "--json"]).ok().text();
    assert!(config.contains("context.expiry.ttlSeconds") && !config.contains("is ignored"), "{config}");
    assert!(import(&[]).iter().all(|row| row["outcome"] != "set"));
}

#[test]
fn compaction_that_openclaw_would_not_take_is_named() {
    // A reserve below its floor is the floor, which counts even where nobody names it.
    let floors = [
        (r#"{ "reserveTokens": 4000 }"#, json!({ "reserveTokens": 20000 })),
        (r#"{ "reserveTokensFloor": 0 }"#, json!(null)),
        (r#"{ "reserveTokens": 9000, "reserveTokensFloor": 0 }"#, json!({ "reserveTokens": 9000 })),
        (r#"{ "qualityGuard": { "enabled": false, "maxRetries": 3 } }"#, json!({ "qualityRetries": 0 })),
        (r#"{ "qualityGuard": { "enabled": true } }"#, json!(null)),
        (r#"{ "mode": "default" }"#, json!(null)),
    ];
    for (theirs, expected) in floors {
        let world = World::new([]);
        let text = format!(r#"{{ "agents": {{ "defaults": {{ "compaction": {theirs} }} }} }}"#);
        put(&world, "home/.openclaw/openclaw.json", &text);
        world.run(&["import", "--settings", "openclaw"]).ok();
        assert_eq!(ours(&world, "settings.json")["compaction"], expected, "{theirs}");
    }
    let world = World::new([]);
    let text = r#"{ "agents": { "defaults": {
        "compaction": { "mode": "aggressive", "reserveTokens": "many", "maxHistoryShare": 60, "recentTurnsPreserve": 99,
            "identifierPolicy": "custom", "qualityGuard": { "enabled": "yes", "maxRetries": 9 }, "timeoutSeconds": -1 },
        "contextPruning": { "mode": "adaptive", "ttl": "soon", "softTrim": 5, "tools": { "deny": ["group:fs", 7] } }
    } } }"#;
    put(&world, "home/.openclaw/openclaw.json", text);
    let planned = world.run(&["import", "--settings", "openclaw", "--dry-run", "--json"]).ok().json_lines();
    let rows = world.run(&["import", "--settings", "openclaw", "--json"]).ok().json_lines();
    assert_eq!(rows, planned, "a dry run refuses the same");
    assert!(rows.len() == 12 && rows.iter().all(|row| row["outcome"] == "left"), "{rows:?}");
    let settings = ours(&world, "settings.json");
    assert_eq!((&settings["compaction"], &settings["context"]), (&Value::Null, &Value::Null));
}

#[test]
fn settings_of_the_user_stay_as_they_are() {
    let world = World::new([]);
    put(
        &world,
        "home/.codex/config.toml",
        "model = \"gpt-5\"\nmodel_reasoning_effort = \"none\"\n\n[mcp_servers.docs]\nurl = \"https://example.com/mcp\"\nbearer_token_env_var = \"DOCS\"\n",
    );
    put(
        &world,
        "home/.pi/agent/settings.json",
        r#"{"defaultProvider":"testing","defaultModel":"test-1","retry":{"maxRetries":7,"other":1},"theme":"neon"}"#,
    );
    world.run(&["config", "set", "defaultThinkingLevel", "low"]).ok();
    let ran = world.run(&["import", "--settings"]).ok();
    let text = ran.text();
    assert!(text.contains("defaultThinkingLevel stays as you set it"), "{text}");
    assert!(text.contains("retry.other: there is no such setting here"), "{text}");
    assert!(text.contains("settings.json:1  theme: theme has no such value"), "{text}");
    let settings = ours(&world, "settings.json");
    assert_eq!(settings["defaultModel"], "testing/test-1");
    assert_eq!(
        (&settings["defaultThinkingLevel"], &settings["retry"]["maxRetries"]),
        (&json!("low"), &json!(7))
    );
    assert!(text.contains("defaultModel stays as you set it"), "the first one counts: {text}");
    let docs = &ours(&world, "mcp.json")["mcpServers"]["docs"];
    assert_eq!(docs["headers"]["Authorization"], "Bearer ${DOCS}");
}

#[test]
fn broken_settings_of_others_are_named() {
    let world = World::new([]);
    world.run(&["import", "--settings", "pi"]).fails(2, &["there are no settings of Pi"]);
    world.run(&["import", "--settings", "other"]).fails(2, &["cannot be imported", "claude-code"]);
    put(&world, "home/.codex/config.toml", "model = \"x\"\nbroken = [");
    put(&world, "home/.claude/settings.json", &"[".repeat(100_000));
    put(&world, "home/.pi/agent/settings.json", "{\"theme\": \"dark\", \"retry\": \"often\"");
    let ran = world.run(&["import", "--settings"]).ok();
    for part in ["config.toml:", "settings.json:1", "nothing of it is taken"] {
        assert!(ran.text().contains(part), "{part} in {}", ran.text());
    }
    assert!(ran.err.contains("0 taken over"), "{}", ran.err);
    assert_eq!(ours(&world, "settings.json"), json!({ "retry": { "baseDelayMs": 1 } }));
}

#[test]
fn huge_settings_leave_our_files_readable() {
    let world = World::new([]);
    let mut servers = serde_json::Map::new();
    servers.insert("big".into(), json!({ "command": "x", "env": { "MODE": "v".repeat(2 << 20) } }));
    servers.insert("a b\u{1b}[31m".into(), json!({ "command": "x" }));
    servers.extend((0..100).map(|at| (format!("s{at}"), json!({ "command": "sh", "args": ["-c", "x"] }))));
    put(&world, "home/.claude.json", &json!({ "mcpServers": servers }).to_string());
    let rules = ["Bash(git status)", "Bash(git log)"].repeat(500);
    put(&world, "home/.claude/settings.json", &json!({ "permissions": { "allow": rules } }).to_string());
    let told = world.run(&["import", "--settings", "claude"]).ok();
    for part in ["more than 1048576 bytes", "mcp.json has 64 servers, which is the most", "1 to 64 letters"] {
        assert!(told.text().contains(part), "{part}: {}", told.text());
    }
    assert!(!told.text().contains('\u{1b}'));
    assert_eq!(world.run(&["mcp", "list", "--json"]).ok().json_lines().len(), 64);
    assert_eq!(ours(&world, "settings.json")["permissions"]["allow"].as_array().unwrap().len(), 2);
    // What is added by hand keeps to the same limits.
    world.run(&["mcp", "add", "more", "--", "x"]).fails(1, &["more than 64 servers"]);
    world.run(&["mcp", "remove", "s0"]).ok();
    world.run(&["mcp", "add", "more", "--", "x"]).ok();
}

#[test]
fn limits_of_turns_by_channel_and_person_are_taken_over() {
    let world = World::new([]);
    let theirs = r#"{
  channels: {
    telegram: {
      botToken: "123:secret",
      historyLimit: 20,
      dmHistoryLimit: 0,
      dms: { "7": { historyLimit: 5 }, "8": { historyLimit: "many" } },
      accounts: { work: { historyLimit: 3 } },
    },
    slack: { historyLimit: -1 },
  },
}"#;
    put(&world, "home/.openclaw/openclaw.json", theirs);
    let import = |more: &[&str]| {
        world.run(&[&["import", "--settings", "openclaw", "--json"], more].concat()).ok().json_lines()
    };
    let planned = import(&["--dry-run"]);
    assert_eq!(ours(&world, "settings.json")["session"], Value::Null);
    let rows = import(&[]);
    assert_eq!(rows, planned);
    assert_eq!(
        ours(&world, "settings.json")["session"],
        json!({ "history": { "byChannel": { "telegram": { "group": 20, "direct": 0, "people": { "7": 5 } } } } })
    );
    let line = |part: &str| 1 + theirs.lines().position(|line| line.contains(part)).unwrap() as u64;
    let left: Vec<(String, u64)> = rows
        .iter()
        .filter(|row| row["outcome"] == "left")
        .map(|row| (row["key"].as_str().unwrap().to_owned(), row["line"].as_u64().unwrap()))
        .collect();
    let at = |key: &str, part: &str| (key.to_owned(), line(part));
    assert_eq!(
        left,
        [
            at("channels.telegram", "telegram"),
            at("channels.slack", "slack"),
            at("channels.telegram.dms.8.historyLimit", "dms"),
            at("channels.telegram.accounts.work.historyLimit", "accounts"),
            at("channels.slack.historyLimit", "slack"),
        ]
    );
    assert!(rows.iter().all(|row| !row.to_string().contains("secret")), "{rows:?}");
    // It holds, and a second time nothing changes.
    let config = world.run(&["config", "--json"]).ok().text();
    assert!(!config.contains("is ignored"), "{config}");
    assert!(import(&[]).iter().all(|row| row["outcome"] != "set"));

    // What the user has set stays.
    let world = World::new([]);
    world.run(&["config", "set", "session.history.byChannel", r#"{"irc": {"group": 2}}"#]).ok();
    put(&world, "home/.openclaw/openclaw.json", theirs);
    let told = world.run(&["import", "--settings", "openclaw"]).ok().text();
    assert!(told.contains("session.history.byChannel stays as you set it"), "{told}");
    assert_eq!(
        ours(&world, "settings.json")["session"]["history"]["byChannel"],
        json!({ "irc": { "group": 2 } })
    );
}

#[test]
fn idle_minutes_alone_are_taken_whole_or_not() {
    let imported = |theirs: &str, set: &[[&str; 2]]| {
        let world = World::new([]);
        for [name, value] in set {
            world.run(&["config", "set", name, value]).ok();
        }
        put(&world, "home/.openclaw/openclaw.json", &format!("{{ session: {theirs} }}"));
        let planned =
            world.run(&["import", "--settings", "openclaw", "--json", "--dry-run"]).ok().json_lines();
        let rows = world.run(&["import", "--settings", "openclaw", "--json"]).ok().json_lines();
        assert_eq!(rows, planned, "{theirs}");
        let outcomes: Vec<String> =
            rows.iter().map(|row| row["outcome"].as_str().unwrap().to_owned()).collect();
        (ours(&world, "settings.json")["session"]["reset"].clone(), outcomes)
    };
    let idle = json!({ "mode": "idle", "idleMinutes": 120 });
    assert_eq!(imported("{ idleMinutes: 120 }", &[]), (idle.clone(), vec!["set".into(), "set".into()]));
    let minutes = [["session.reset.idleMinutes", "120"]];
    assert_eq!(imported("{ idleMinutes: 120 }", &minutes), (idle, vec!["same".into(), "set".into()]));
    // One of the two that is set here keeps the other one from being set.
    let daily = [["session.reset.mode", "daily"]];
    assert_eq!(imported("{ idleMinutes: 120 }", &daily), (json!({ "mode": "daily" }), vec!["kept".into()]));
    for bad in ["0", "-3", "\"x\"", "6000000", "null", "[7]"] {
        let theirs = format!("{{ idleMinutes: {bad} }}");
        assert_eq!(imported(&theirs, &[]), (Value::Null, vec!["left".into()]), "{bad}");
    }
    // It says less than what stands beside it.
    let (reset, outcomes) = imported("{ idleMinutes: 120, reset: { atHour: 5 } }", &[]);
    assert_eq!((reset, outcomes[0].as_str()), (json!({ "mode": "daily", "atHour": 5 }), "left"));
    let (reset, _) = imported("{ idleMinutes: 120, resetByType: { dm: { idleMinutes: 9 } } }", &[]);
    // Minutes alone are the mode `idle` here; there they stand beside a day.
    assert_eq!(reset, json!({ "byKind": { "direct": { "mode": "daily", "idleMinutes": 9 } } }));
    let (reset, _) =
        imported("{ reset: { mode: \"idle\" }, resetByChannel: { irc: { idleMinutes: 9 } } }", &[]);
    assert_eq!(
        reset,
        json!({ "mode": "idle", "byChannel": { "irc": { "mode": "idle", "idleMinutes": 9 } } })
    );
}

#[test]
fn agent_that_cannot_be_taken_whole_costs_no_other_one() {
    let world = World::new([]);
    let theirs = r#"{ agents: { list: [
        { id: "Ops", model: { primary: "testing/test-1", fallbacks: ["testing/other"] }, compaction: { mode: "safeguard" },
          heartbeat: { every: "10m" } },
        { id: "My Agent!", model: "testing/test-1" },
        { id: "rel", workspace: "work", model: "testing/test-1" },
        { id: "shut", tools: { allow: "everything" } },
        { id: "ops", model: "testing/other" },
        "x",
    ] } }"#;
    put(&world, "home/.openclaw/openclaw.json", theirs);
    let rows = world.run(&["import", "--settings", "openclaw", "--json"]).ok().json_lines();
    assert_eq!(
        ours(&world, "settings.json")["agents"]["byId"],
        json!({
            "my-agent": { "model": "testing/test-1" },
            "ops": { "model": "testing/test-1" },
            "rel": { "model": "testing/test-1" },
            "shut": { "tools": { "deny": ["*"] } },
        })
    );
    let left: Vec<&str> =
        rows.iter().filter(|row| row["outcome"] == "left").map(|row| row["key"].as_str().unwrap()).collect();
    assert_eq!(
        left,
        [
            "agents.list[0].model.fallbacks",
            "agents.list[0].compaction",
            "agents.list[0].heartbeat",
            "agents.list[2].workspace",
            "agents.list[3].tools",
            "agents.list[4].id",
            "agents.list[5]",
        ]
    );
}

#[test]
fn includes_loops_sandboxes_and_variables_are_taken_over() {
    let world = World::new([]);
    put(
        &world,
        "home/.openclaw/openclaw.json",
        r#"{ "$schema": "x", $include: ["./parts/tools.json5", "./gone.json5"],
  agents: {
    defaults: { model: "${THE_MODEL}", thinkingDefault: "${NOT_SET_AT_ALL}", imageModel: 7,
      sandbox: { mode: "all", scope: "session", workspaceAccess: "ro", docker: {} } },
  },
  channels: "none",
}"#,
    );
    put(
        &world,
        "home/.openclaw/parts/tools.json5",
        r#"{ tools: {
  loopDetection: { enabled: true, warningThreshold: 7, detectors: { pingPong: false }, other: 1 },
  byProvider: { openai: { deny: ["exec"] },
    x: { profile: "nix" } } } }"#,
    );
    let mut command = world.quipu(&["import", "--settings", "openclaw", "--json"]);
    command.env("THE_MODEL", "testing/test-1");
    let rows = RunningCommand::start(command).wait().ok().json_lines();
    let settings = ours(&world, "settings.json");
    assert_eq!(settings["defaultModel"], "testing/test-1");
    assert_eq!(settings["sandbox"], json!({ "mode": "all", "scope": "session", "workspaceAccess": "ro" }));
    assert_eq!(
        settings["tools"],
        json!({
            "loopDetection": { "enabled": true, "warning": 7, "pingPong": false },
            "byProvider": { "openai": { "deny": ["exec"] }, "x": { "deny": ["*"] } },
            "byGroup": { "*": { "deny": ["*"] } },
        }),
        "channels that are no object may have narrowed tools"
    );
    let left: Vec<String> = rows
        .iter()
        .filter(|row| row["outcome"] == "left")
        .map(|row| {
            let file = row["file"].as_str().unwrap().rsplit('/').next().unwrap();
            format!("{file}:{} {}", row["line"], row["key"].as_str().unwrap())
        })
        .collect();
    assert_eq!(
        left,
        [
            "openclaw.json:1 $include",
            "tools.json5:2 tools.loopDetection.other",
            "tools.json5:4 tools.byProvider.x",
            "openclaw.json:3 agents.defaults.thinkingDefault",
            "openclaw.json:3 agents.defaults.imageModel",
            "openclaw.json:4 agents.defaults.sandbox.docker",
            "openclaw.json:6 channels",
        ],
        "{rows:?}"
    );
}

#[test]
fn policy_that_misses_a_part_is_taken_as_one_without_tools() {
    let world = World::new([]);
    let theirs = r##"{
        agents: { list: [ { tools: { deny: ["write"] } }, { id: "ops", tools: { deny: ["${QUIPU_NO_SUCH_NAME}"] } } ] },
        tools: {
            toolsBySender: { "*": { deny: ["exec"] }, "id:7": { $include: "./gone.json5" }, "id:8": { deny: ["${QUIPU_NO_SUCH_NAME}"] },
                "id:9": { deny: ["${THE_TOOL}"] }, "name:Ann": {} },
            byProvider: { openai: { deny: ["exec"] }, "openai/x": { $include: "./gone.json5" } },
            sandbox: { tools: { alsoAllow: ["todo"] } },
        },
        channels: { telegram: { groups: { "-1": { tools: { $include: "./gone.json5" } }, "-2": { tools: { deny: ["exec"] } } } },
            irc: { groups: { $include: "./gone.json5", "#a": { tools: { allow: ["read"] } } } } },
    }"##;
    put(&world, "home/.openclaw/openclaw.json", theirs);
    let mut command = world.quipu(&["import", "--settings", "openclaw", "--json"]);
    command.env("THE_TOOL", "write");
    let rows = RunningCommand::start(command).wait().ok().json_lines();
    let settings = ours(&world, "settings.json");
    let none = json!({ "deny": ["*"] });
    assert_eq!(
        settings["agents"]["byId"],
        json!({ "main": { "tools": { "deny": ["write"] } }, "ops": { "tools": none } })
    );
    assert_eq!(
        settings["tools"],
        json!({
            "bySender": { "*": { "deny": ["exec"] }, "id:7": none, "id:8": none, "id:9": { "deny": ["write"] } },
            "byProvider": { "openai": { "deny": ["exec"] }, "openai/x": none },
            "sandbox": { "alsoAllow": ["todo"] },
            "byGroup": {
                "telegram:-1": none, "telegram:-2": { "deny": ["exec"] },
                "irc:*": none, "irc:#a": none,
            },
        }),
        "{rows:?}"
    );
    let why = |key: &str| {
        let of = rows.iter().filter(|row| row["key"] == key && row["outcome"] == "left");
        of.map(|row| row["why"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    assert!(why("tools.toolsBySender.id:7")[0].contains("it gets no tools here"), "{rows:?}");
    assert!(!why("channels.irc").is_empty() && !why("tools.byProvider.openai/x").is_empty(), "{rows:?}");
    assert!(why("tools.toolsBySender.id:8.deny[0]")[0].contains("is not set"), "{rows:?}");
}

#[test]
fn agents_by_their_ids_become_ours() {
    let world = World::new([]);
    let entries = r#"{ "ops": { "tools": { "deny": ["exec"] } }, "x": 7 }"#;
    put(&world, "home/.openclaw/openclaw.json", &format!(r#"{{ "agents": {{ "entries": {entries} }} }}"#));
    let lines = world.run(&["import", "--settings", "openclaw", "--json"]).json_lines();
    let agents = world.run(&["config", "get", "agents.byId"]).ok().json();
    assert_eq!(agents["ops"]["tools"], json!({ "deny": ["exec"] }), "{lines:?}");
    assert!(lines.iter().any(|line| line["key"] == "agents.entries.x"), "{lines:?}");
}

#[test]
fn limits_that_cannot_be_read_close_what_they_limit() {
    let of = |theirs: &str, before: Option<[&str; 2]>| {
        let world = World::new([]);
        if let Some([name, value]) = before {
            world.run(&["config", "set", name, value]).ok();
        }
        put(&world, "home/.openclaw/openclaw.json", theirs);
        let planned =
            world.run(&["import", "--settings", "openclaw", "--json", "--dry-run"]).ok().json_lines();
        let rows = world.run(&["import", "--settings", "openclaw", "--json"]).ok().json_lines();
        assert_eq!(rows, planned, "{theirs}");
        let left = rows.iter().filter(|row| row["outcome"] == "left").count();
        assert_eq!(left, 1, "{theirs}: {rows:?}");
        let again = world.run(&["import", "--settings", "openclaw", "--json"]).ok().json_lines();
        assert!(again.iter().all(|row| row["outcome"] != "set"), "{again:?}");
        let mut settings = ours(&world, "settings.json");
        settings.as_object_mut().unwrap().remove("retry");
        settings
    };
    let shut = json!({ "tools": { "deny": ["*"] } });
    for bad in ["{ exec: true }", "5", "null", "[\"exec\", 7]", "[\"exec\", \"${QUIPU_NO_SUCH_NAME}\"]", "{}"]
    {
        assert_eq!(of(&format!("{{ tools: {{ deny: {bad} }} }}"), None), shut, "{bad}");
    }
    assert_eq!(of("{ tools: { allow: 7, deny: [\"exec\"] } }", None), shut);
    assert_eq!(of("{ tools: { deny: [\"exec\"], allow: 7 } }", None), shut, "also what was set before it");
    assert_eq!(of("{ tools: { profile: 7 } }", None), json!({ "tools": { "profile": "minimal" } }));
    let all = json!({ "tools": { "profile": "minimal", "deny": ["*"], "sandbox": { "deny": ["*"] }, "subagents": { "deny": ["*"] } } });
    for bad in ["\"none\"", "[]"] {
        assert_eq!(of(&format!("{{ tools: {bad} }}"), None), all, "{bad}");
    }
    for bad in ["true", "\"ALL\""] {
        let theirs = format!("{{ agents: {{ defaults: {{ sandbox: {{ mode: {bad} }} }} }} }}");
        assert_eq!(of(&theirs, None), json!({ "sandbox": { "mode": "all" } }), "{bad}");
    }
    let confined = json!({ "sandbox": { "mode": "all", "scope": "session", "workspaceAccess": "none" } });
    for bad in ["[]", "{ defaults: 7 }"] {
        assert_eq!(of(&format!("{{ agents: {bad} }}"), None), confined, "{bad}");
    }
    // What the user has set counts.
    let own = of("{ tools: { deny: 5 } }", Some(["tools.deny", "write"]));
    assert_eq!(own, json!({ "tools": { "deny": ["write"] } }));
}

#[test]
fn policy_of_an_agent_stays_beside_a_member_with_a_secret() {
    let world = World::new([]);
    let secret = "sk-ant-api03-R7mK2xQ9vT4nB8wL1zJ6cH3dF5gP0sYaUeXo";
    let list = json!([{ "id": "a", "workspace": format!("/srv/{secret}"), "tools": { "deny": ["exec"] } }]);
    put(&world, "home/.openclaw/openclaw.json", &json!({ "agents": { "list": list } }).to_string());
    let ran = world.run(&["import", "--settings", "openclaw", "--json"]).ok();
    assert!(ran.text().contains("a.workspace would hold a secret"), "{}", ran.text());
    assert_eq!(
        ours(&world, "settings.json")["agents"]["byId"],
        json!({ "a": { "tools": { "deny": ["exec"] } } })
    );
}

#[test]
fn missing_file_of_a_list_or_a_server_leaves_no_trace() {
    let world = World::new([]);
    put(&world, "home/.openclaw/a.json5", r#"["exec"]"#);
    let theirs = r##"{ tools: { deny: { $include: ["./a.json5", "./gone.json5"] } },
        mcp: { servers: { x: { command: "y", env: { $include: "./gone.json5", MODE: "a" } }, z: { command: "y" } } },
        channels: { irc: { groups: { "": {}, "#a": { tools: { deny: ["exec"] } } } } } }"##;
    put(&world, "home/.openclaw/openclaw.json", theirs);
    world.run(&["import", "--settings", "openclaw"]).ok();
    assert_eq!(
        ours(&world, "settings.json")["tools"],
        json!({ "deny": ["*"], "byGroup": { "irc:#a": { "deny": ["exec"] } } })
    );
    // A file behind one that is there may have said otherwise.
    put(&world, "home/.openclaw/base.json5", r#"{ mode: "off", workspaceAccess: "rw" }"#);
    let theirs = r#"{ agents: { defaults: { sandbox: { $include: ["./base.json5", "./gone.json5"] } } } }"#;
    put(&world, "home/.openclaw/openclaw.json", theirs);
    world.run(&["import", "--settings", "openclaw"]).ok();
    assert_eq!(
        ours(&world, "settings.json")["sandbox"],
        json!({ "mode": "all", "scope": "session", "workspaceAccess": "none" })
    );
    let servers = ours(&world, "mcp.json")["mcpServers"].clone();
    assert_eq!(servers.as_object().unwrap().keys().collect::<Vec<_>>(), ["z"]);
    // What is no object says so.
    for (text, why) in [("[1]", "it is not a JSON object"), ("// \n", "it is empty"), ("", "it is empty")] {
        put(&world, "home/.openclaw/openclaw.json", text);
        let said = world.run(&["import", "--settings", "openclaw"]);
        let said = [said.text(), said.err].concat();
        assert!(said.contains(why), "{text}: {said}");
    }
    // What was taken before stays, whatever a later import cannot read.
    let world = World::new([]);
    put(&world, "home/.openclaw/openclaw.json", r#"{ tools: { allow: ["${THE_TOOL}"] } }"#);
    let mut command = world.quipu(&["import", "--settings", "openclaw"]);
    command.env("THE_TOOL", "read");
    RunningCommand::start(command).wait().ok();
    world.run(&["import", "--settings", "openclaw"]).ok();
    assert_eq!(ours(&world, "settings.json")["tools"], json!({ "allow": ["read"] }));
}
