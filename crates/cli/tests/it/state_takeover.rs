//! `quipu import --state` and `quipu export --state`: a state directory of another gateway, and back.

use std::path::{Path, PathBuf};

use quipu_testkit::{AGENT_FORM, Answer, GatewayDatabase, STATE_FORM};
use serde_json::{Value, json};

use crate::support::*;

const FIRST: &str = "11111111-0b5e-4f0a-9d1c-8f2f4a6b7c8d";
const OLD: &str = "22222222-0b5e-4f0a-9d1c-8f2f4a6b7c8d";
const OPS: &str = "33333333-0b5e-4f0a-9d1c-8f2f4a6b7c8d";
/// A key in the files. Nothing may ever print it, and no store may hold it.
const SECRET: &str = "sk-takeover-0123456789abcdefghij";
const TOKEN: &str = "token-takeover-0123456789abcdefghij";

pub(crate) fn put(dir: &Path, name: &str, text: impl AsRef<[u8]>) {
    let path = dir.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, text).unwrap();
    set_mode(&path, 0o600);
}

fn transcript(id: &str, texts: &[&str]) -> String {
    let mut lines = vec![
        json!({ "type": "session", "version": 3, "id": id, "timestamp": "2026-05-20T01:02:03.004Z", "cwd": "/p" }),
    ];
    let mut parent = Value::Null;
    for (at, text) in texts.iter().enumerate() {
        let content = json!([{ "type": "text", "text": text }]);
        let message = match at % 2 {
            0 => json!({ "role": "user", "content": content, "timestamp": at }),
            _ => json!({ "role": "assistant", "content": content, "api": "x", "provider": "p", "model": "m",
                "stopReason": "stop", "timestamp": at, "usage": { "input": 1, "output": 1, "cacheRead": 0,
                "cacheWrite": 0, "totalTokens": 2 } }),
        };
        let entry = format!("{}-{at}", &id[..8]);
        lines.push(json!({ "type": "message", "id": entry, "parentId": parent,
            "timestamp": format!("2026-05-20T01:02:0{at}.000Z"), "message": message }));
        parent = entry.into();
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn profiles() -> Value {
    json!({ "version": 1,
        "profiles": {
            "anthropic:default": { "type": "api_key", "provider": "anthropic", "key": SECRET },
            "anthropic:work": { "type": "oauth", "provider": "anthropic", "access": TOKEN, "refresh": format!("r{TOKEN}"),
                "expires": 4_000_000_000_000_i64, "email": "me@example.com" },
            "openai:default": { "type": "api_key", "provider": "openai", "keyRef": { "source": "env", "id": "THE_KEY" } },
            "x:vault": { "type": "api_key", "provider": "x", "keyRef": { "source": "exec", "id": "vault" } } },
        "order": { "anthropic": ["anthropic:work", "anthropic:default"] },
        "usageStats": { "anthropic:default": { "lastUsed": 5, "errorCount": 2, "disabledUntil": 4_000_000_000_000_i64,
            "disabledReason": "billing" } } })
}

fn approvals() -> Value {
    json!({ "version": 1, "socket": { "path": "/x", "token": TOKEN }, "defaults": { "security": "allowlist", "ask": "on-miss" },
        "agents": {
            "main": { "allowlist": [{ "id": "1", "pattern": "/opt/tools/frobnicate" }, { "pattern": "~/x/**/rg" },
                { "pattern": "jq", "argPattern": "^\\.a$" }] },
            "ops": { "security": "deny", "allowlist": [{ "pattern": "git" }] },
            "ghost": { "ask": "always" } } })
}

fn jobs() -> Value {
    let ops =
        json!({ "kind": "agentTurn", "message": "Summarize.", "model": "test/test-1", "timeoutSeconds": 9 });
    json!({ "version": 1, "jobs": [
        { "id": "j1", "name": "Morning", "enabled": true, "agentId": "ops",
            "schedule": { "kind": "cron", "expr": "0 7 * * *", "tz": "America/Los_Angeles" },
            "sessionTarget": "isolated", "payload": ops, "delivery": { "mode": "announce", "channel": "last" } },
        { "id": "j2", "name": "Off", "enabled": false, "schedule": { "kind": "every", "everyMs": 1_800_000, "anchorMs": 7 },
            "sessionTarget": "main", "payload": { "kind": "systemEvent", "text": "Look." }, "delivery": { "mode": "none" } },
        { "id": "j3", "name": "Over", "schedule": { "kind": "at", "at": "2020-01-01T00:00:00Z" },
            "payload": { "kind": "agentTurn", "message": "x" } },
        { "id": "j4", "name": "Ghost", "agentId": "ghost", "schedule": { "kind": "every", "everyMs": 60_000 },
            "payload": { "kind": "agentTurn", "message": "x" } },
        { "id": "j5", "schedule": { "kind": "every", "everyMs": 60_000 },
            "payload": { "kind": "agentTurn", "message": format!("use {SECRET}") } },
        { "id": "j6", "schedule": { "kind": "every", "everyMs": 60_000 }, "payload": { "kind": "dance" } },
        7 ] })
}

fn index(world: &World) -> (Value, Value) {
    let main = json!({
        "agent:main:main": { "sessionId": FIRST, "updatedAt": 9, "label": "The main one", "note": SECRET },
        "agent:main:telegram:group:-100": { "sessionId": "gone", "updatedAt": 3 },
        "agent:main:dm:x": { "sessionId": FIRST, "updatedAt": 4 },
        "agent:main:direct:x": { "sessionId": OLD, "updatedAt": 5 },
        "agent": { "sessionId": FIRST } });
    let ops = json!({ "agent:ops:main": { "sessionId": OPS, "sessionFile": world.path("home") } });
    (main, ops)
}

/// A state directory in the form of files.
fn state(world: &World) -> PathBuf {
    let dir = world.path("home/.openclaw");
    for made in ["work", "ops"] {
        std::fs::create_dir_all(world.path(made)).unwrap();
    }
    let config = format!(
        "{{ // mine\n agents: {{ defaults: {{ workspace: {:?} }}, list: [ {{ id: 'main' }}, {{ id: 'ops', workspace: {:?}, model: {{ primary: 'test/test-1' }} }} ] }}, }}",
        world.path("work"),
        world.path("ops")
    );
    put(&dir, "openclaw.json", config);
    let (main, ops) = index(world);
    put(&dir, "agents/main/sessions/sessions.json", main.to_string());
    put(&dir, "agents/ops/sessions/sessions.json", ops.to_string());
    let texts = ["Hello.", "Hi.", &format!("My key is {SECRET}."), "Noted."];
    put(&dir, &format!("agents/main/sessions/{FIRST}.jsonl"), transcript(FIRST, &texts));
    let old = format!("agents/main/sessions/{OLD}.jsonl.reset.2026-05-19T00-00-00.000Z");
    put(&dir, &old, transcript(OLD, &["Old.", "Yes."]));
    put(&dir, &format!("agents/ops/sessions/{OPS}.jsonl"), transcript(OPS, &["Deploy.", "Done."]));
    put(&dir, "agents/main/agent/auth-profiles.json", profiles().to_string());
    put(&dir, "exec-approvals.json", approvals().to_string());
    put(&dir, "cron/jobs.json", jobs().to_string());
    dir
}

/// `outcome part key` of each report, in the order of the output.
fn outcomes(lines: &[Value]) -> Vec<String> {
    let parts = lines.iter().filter(|line| line["part"].is_string());
    let word = |line: &Value, name: &str| line[name].as_str().unwrap().to_owned();
    parts
        .map(|line| format!("{} {} {}", word(line, "outcome"), word(line, "part"), word(line, "key")))
        .collect()
}

pub(crate) fn texts(lines: &[Value], part: &str, key: &str) -> Vec<String> {
    let of = |line: &&Value| {
        line["part"] == part && line["key"].as_str().is_some_and(|name| name.starts_with(key))
    };
    lines.iter().filter(of).map(|line| line["text"].as_str().unwrap().to_owned()).collect()
}

fn holds_no_secret(world: &World, out: &str) {
    for secret in [SECRET, TOKEN] {
        assert!(!out.contains(secret), "{out}");
        for path in crate::peers::walk(&world.path("home/.quipu")) {
            let is_credentials = path.file_name().is_some_and(|name| name == "auth.json");
            let bytes = std::fs::read(&path).unwrap();
            assert!(is_credentials || !contains(&bytes, secret.as_bytes()), "{} has it", path.display());
        }
    }
}

#[test]
fn state_directory_is_taken_over_once() {
    let world = World::new([Answer::new().text("Of course.").reply()]);
    let dir = state(&world);
    let before: Vec<_> =
        crate::peers::walk(&dir).into_iter().map(|path| (std::fs::read(&path).unwrap(), path)).collect();
    let ran = world.run(&["import", "--state", "openclaw", "--json"]).ok();
    holds_no_secret(&world, &format!("{}{}", ran.text(), ran.err));
    let lines = ran.json_lines();
    assert_eq!(
        outcomes(&lines),
        [
            "added agent main",
            "added agent ops",
            "added credential anthropic:default",
            "added credential anthropic:work",
            "note credential anthropic:work",
            "added credential openai:default",
            "left credential x:vault",
            "added credential order",
            "added approval main security allowlist",
            "added approval main /opt/tools/frobnicate",
            "left approval main ~/x/**/rg",
            "left approval main jq",
            "added approval ops security deny",
            "left approval ops",
            "left approval ghost",
            "left conversation agent:main:telegram:group:-100",
            "added conversation agent:main:main",
            "added conversation agent:main:direct:x",
            "left conversation agent:main:dm:x",
            "left conversation agent",
            "added conversation agent:ops:main",
            "added job j1 (Morning)",
            "note job j1 (Morning)",
            "note job j1 (Morning)",
            "note job j1 (Morning)",
            "added job j2 (Off)",
            "note job j2 (Off)",
            "note job j2 (Off)",
            "left job j3 (Over)",
            "left job j4 (Ghost)",
            "left job j5",
            "left job j6",
            "left job jobs[6]",
        ]
    );
    assert!(texts(&lines, "conversation", "agent:main:dm:x")[0].contains("the same conversation as"));
    assert_eq!(texts(&lines, "job", "j3"), ["the time is in the past"]);
    assert!(texts(&lines, "job", "j5")[0].contains("a key or a password"));
    let added: u64 = lines.iter().filter_map(|line| line["added"].as_u64()).sum();
    assert_eq!(added, 12, "eight entries, what the index says of three sessions, and that one was reset");
    for (bytes, path) in &before {
        assert_eq!(*bytes, std::fs::read(path).unwrap(), "{} changed", path.display());
    }

    // What is there now.
    let agents = world.run(&["config", "get", "agents.byId"]).ok().json();
    let workspace = |name: &str| world.path(name).to_str().unwrap().to_owned();
    assert_eq!(
        agents,
        json!({ "main": { "workspace": workspace("work") }, "ops": { "model": "test/test-1", "workspace": workspace("ops") } })
    );
    assert_eq!(world.run(&["config", "get", "keyOrder"]).ok().json(), json!(["anthropic:work", "anthropic"]));
    let auth = world.path("home/.quipu/auth.json");
    assert_eq!(mode(&auth), 0o600);
    let auth: Value = serde_json::from_slice(&std::fs::read(&auth).unwrap()).unwrap();
    assert_eq!(auth["anthropic"], json!({ "type": "api_key", "key": SECRET }));
    assert_eq!(auth["openai"]["key"], "$THE_KEY");
    assert_eq!(
        (&auth["anthropic:work"]["access"], &auth["anthropic:work"]["email"]),
        (&json!(TOKEN), &json!("me@example.com"))
    );
    let uses: Value =
        serde_json::from_slice(&std::fs::read(world.path("home/.quipu/auth-state.json")).unwrap()).unwrap();
    assert_eq!(uses["keys"]["anthropic"]["disabled"]["reason"], "quota");
    let tested = |line: &str, code| world.run(&["permissions", "test", line]).exits(code);
    tested("/opt/tools/frobnicate --all", 0);
    // Whether it is asked about depends on the mode and the sandbox alone.
    let others = world.run(&["permissions", "test", "jq ."]);
    let others = String::from_utf8_lossy(&others.out).into_owned();
    assert!(others.contains("no rule"), "{others}");
    let jobs = world.run(&["schedule", "list", "--json"]).ok().json_lines();
    let states: Vec<_> =
        jobs.iter().map(|job| (job["key"].as_str().unwrap(), job["state"].as_str().unwrap())).collect();
    assert_eq!(states, [("openclaw/j1", "waiting"), ("openclaw/j2", "paused")]);

    // Again: nothing. What the user changed stays.
    world.run(&["schedule", "resume", "openclaw/j2"]).ok();
    let again = world.run(&["import", "--state", "openclaw", "--json"]).ok().json_lines();
    let changed: Vec<String> =
        outcomes(&again).into_iter().filter(|line| line.starts_with("added")).collect();
    assert_eq!(changed, [""; 0]);
    assert!(again.iter().filter_map(|line| line["unchanged"].as_bool()).all(|unchanged| unchanged));
    let jobs = world.run(&["schedule", "list", "--json"]).ok().json_lines();
    assert_eq!(jobs[1]["state"], "waiting");
}

#[test]
fn grown_transcript_adds_only_what_is_new() {
    let world = World::new([]);
    let dir = state(&world);
    world.run(&["import", "--state", "openclaw"]).ok();
    let file = format!("agents/ops/sessions/{OPS}.jsonl");
    let mut text = transcript(OPS, &["Deploy.", "Done.", "Again.", "Done again."]);
    text.push_str("not json\n{\"type\":\"message\",\"id\":\"torn");
    put(&dir, &file, text);
    let ran = world.run(&["import", "--state", "openclaw", "--json"]).exits(1);
    let lines = ran.json_lines();
    let report = lines.iter().find(|line| line["session"] == OPS).unwrap();
    assert_eq!((&report["added"], &report["lost"], &report["pending"]), (&json!(2), &json!(2), &json!(1)));
    assert_eq!(report["problems"][0]["line"], 6, "{report}");
    assert!(report["path"].as_str().unwrap().ends_with(&file));
    let added: u64 = lines.iter().filter_map(|line| line["added"].as_u64()).sum();
    assert_eq!(added, 2);
}

#[test]
fn dry_run_of_a_state_writes_nothing() {
    let world = World::new([]);
    world.unchecked();
    state(&world);
    let ran = world.run(&["import", "--state", "openclaw", "--dry-run"]).ok();
    assert!(
        ran.text().contains("added  credential   anthropic:work: auth.json anthropic:work"),
        "{}",
        ran.text()
    );
    assert!(ran.text().contains("agent:ops:main goes on in session"), "{}", ran.text());
    assert!(ran.err.contains("would be taken over"), "{}", ran.err);
    assert!(!world.path("home/.quipu/auth.json").exists());
    assert!(!world.path("home/.quipu/permissions.json").exists());
    assert_eq!(world.sessions(), [Value::Null; 0]);
    assert_eq!(world.run(&["schedule", "list", "--json"]).ok().json_lines(), [Value::Null; 0]);
    let settings = std::fs::read_to_string(world.path("home/.quipu/settings.json")).unwrap();
    assert!(!settings.contains("byId") && !settings.contains("keyOrder"), "{settings}");
}

#[test]
fn broken_parts_of_a_state_keep_none_of_the_others() {
    let world = World::new([]);
    let dir = state(&world);
    put(&dir, "agents/main/agent/auth-profiles.json", format!("{{\"profiles\": {SECRET}}}"));
    put(&dir, "cron/jobs.json", r#"{"version":1}"#);
    put(&dir, "exec-approvals.json", r#"{"version":9}"#);
    std::os::unix::fs::symlink("/etc/passwd", dir.join("agents/main/sessions/passwd.jsonl")).unwrap();
    let ran = world.run(&["import", "--state", "openclaw", "--json"]).exits(1);
    assert!(!ran.text().contains(SECRET) && !ran.err.contains(SECRET), "{}", ran.err);
    let lines = ran.json_lines();
    let failed: Vec<_> = lines.iter().filter(|line| line["outcome"] == "failed").collect();
    let of = |end: &str| {
        failed.iter().find(|line| line["file"].as_str().unwrap().ends_with(end)).unwrap()["text"]
            .as_str()
            .unwrap()
    };
    assert!(of("auth-profiles.json").contains("not valid JSON (line 1"), "{failed:?}");
    assert!(of("passwd.jsonl").contains("out of the state directory"));
    assert!(of("jobs.json").contains("no list `jobs`"));
    assert!(of("exec-approvals.json").contains("version 9"));
    assert_eq!(failed.len(), 4);
    assert!(ran.err.contains("4 parts could not be taken over"), "{}", ran.err);
    assert_eq!(world.sessions().len(), 3);

    world.run(&["import", "--state", "pi"]).fails(2, &["import --state openclaw"]);
    world.run(&["import", "--state", "openclaw", "/nowhere"]).fails(2, &["cannot be read"]);
    std::fs::create_dir(world.path("empty")).unwrap();
    let empty = world.path("empty");
    world
        .run(&["import", "--state", "openclaw", empty.to_str().unwrap()])
        .fails(2, &["is not a state directory"]);
}

/// All files of a directory with what they say, without times.
fn contents(dir: &Path) -> Vec<(String, Value)> {
    let mut all: Vec<(String, Value)> = crate::peers::walk(dir)
        .into_iter()
        .map(|path| {
            let name = path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned();
            let text = std::fs::read_to_string(&path).unwrap();
            let mut value: Value = match name.ends_with(".json") {
                true => serde_json::from_str(&text).unwrap(),
                false => text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect(),
            };
            if let Some(agents) = value.get_mut("agents").and_then(Value::as_object_mut) {
                // Ids of rules are those of the home.
                for agent in agents.values_mut() {
                    let list = agent.get_mut("allowlist").and_then(Value::as_array_mut).into_iter().flatten();
                    list.for_each(|entry| entry["id"] = Value::Null);
                }
            }
            (name, value)
        })
        .collect();
    all.sort_by(|one, other| one.0.cmp(&other.0));
    all
}

#[test]
fn state_that_is_written_and_taken_elsewhere_is_the_same() {
    let world = World::new([]);
    state(&world);
    world.run(&["import", "--state", "openclaw"]).ok();
    let out = world.path("out");
    let out = out.to_str().unwrap();
    let ran = world.run(&["export", "--state", "openclaw", "-o", out, "--credentials", "--json"]).ok();
    assert!(
        !ran.text().contains(SECRET) && ran.err.contains("3 conversations and 3 transcripts"),
        "{}",
        ran.err
    );
    let written = contents(Path::new(out));
    let names: Vec<&str> = written.iter().map(|(name, _)| name.as_str()).collect();
    let expect = [
        "agents/main/agent/auth-profiles.json".to_owned(),
        format!("agents/main/sessions/{FIRST}.jsonl"),
        format!("agents/main/sessions/{OLD}.jsonl.reset.2026-05-19T00-00-00.000Z"),
        "agents/main/sessions/sessions.json".to_owned(),
        format!("agents/ops/sessions/{OPS}.jsonl"),
        "agents/ops/sessions/sessions.json".to_owned(),
        "cron/jobs.json".to_owned(),
        "exec-approvals.json".to_owned(),
        "openclaw.json".to_owned(),
    ];
    assert_eq!(names, expect);
    for path in crate::peers::walk(Path::new(out)) {
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
    assert_eq!(mode(Path::new(out)), 0o700);
    let of = |name: &str| &written.iter().find(|(found, _)| found == name).unwrap().1;
    let lines: Vec<Value> = transcript(OPS, &["Deploy.", "Done."])
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(*of(&format!("agents/ops/sessions/{OPS}.jsonl")), Value::from(lines));
    let index = of("agents/main/sessions/sessions.json");
    assert_eq!(index["agent:main:main"]["label"], "The main one");
    assert_eq!(index["agent:main:main"]["sessionId"], FIRST);
    assert!(!index.to_string().contains(SECRET));
    let profiles = of("agents/main/agent/auth-profiles.json");
    assert_eq!(profiles["profiles"]["anthropic:default"]["key"], SECRET);
    assert_eq!(profiles["order"]["anthropic"], json!(["anthropic:work", "anthropic:default"]));
    assert_eq!(of("cron/jobs.json")["jobs"][1]["enabled"], false);

    // Nothing is ever replaced.
    world.run(&["export", "--state", "openclaw", "-o", out]).fails(1, &["is there already"]);
    assert_eq!(contents(Path::new(out)), written);

    // Another home, and out of that again.
    let other = World::new([]);
    let ran = other.run(&["import", "--state", "openclaw", out, "--json"]).ok();
    let outcomes = outcomes(&ran.json_lines());
    assert!(
        outcomes.iter().all(|line| !line.starts_with("left") && !line.starts_with("kept")),
        "{outcomes:?}"
    );
    let again = other.path("again");
    std::fs::create_dir(&again).unwrap();
    let ran =
        other.run(&["export", "--state", "openclaw", "-o", again.to_str().unwrap(), "--credentials"]).ok();
    assert!(ran.err.contains("holds credentials"), "{}", ran.err);
    assert_eq!(contents(&again), written);

    // Without credentials there are none.
    let open = other.path("open");
    let ran = other.run(&["export", "--state", "openclaw", "-o", open.to_str().unwrap()]).ok();
    assert!(ran.text().contains("3 credentials are not written: they are secret"), "{}", ran.text());
    for path in crate::peers::walk(&open) {
        assert!(!contains(&std::fs::read(&path).unwrap(), SECRET.as_bytes()), "{}", path.display());
    }
    other.run(&["export", "--state", "pi", "-o", "x"]).fails(2, &["only a state directory of `openclaw`"]);
    other.run(&["export", "--state", "openclaw"]).exits(2);
}

#[test]
fn state_in_databases_is_taken_over_like_files() {
    let world = World::new([]);
    let dir = state(&world);
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
    let shared = GatewayDatabase::of_state(&dir.join("state/openclaw.sqlite"), STATE_FORM);
    shared.approvals(&read("exec-approvals.json"));
    for job in &jobs()["jobs"].as_array().unwrap()[..2] {
        shared.job(job["id"].as_str().unwrap(), job["enabled"].as_bool().unwrap(), &job.to_string());
    }
    let (main, ops) = index(&world);
    for (agent, index, session) in [("main", main, FIRST), ("ops", ops, OPS)] {
        let database = GatewayDatabase::of_agent(
            &dir.join(format!("agents/{agent}/agent/openclaw-agent.sqlite")),
            AGENT_FORM,
        );
        for (key, entry) in index.as_object().unwrap() {
            database.conversation(key, entry["sessionId"].as_str().unwrap(), &entry.to_string());
        }
        let file = format!("agents/{agent}/sessions/{session}.jsonl");
        for (at, line) in (0..).zip(read(&file).lines()) {
            database.event(session, at, Some(line), None);
        }
        if agent == "main" {
            database.profiles(&profiles().to_string(), "{}");
        }
        std::fs::remove_file(dir.join(file)).unwrap();
        std::fs::remove_file(dir.join(format!("agents/{agent}/sessions/sessions.json"))).unwrap();
    }
    for name in ["exec-approvals.json", "cron/jobs.json", "agents/main/agent/auth-profiles.json"] {
        std::fs::remove_file(dir.join(name)).unwrap();
    }
    let ran = world.run(&["import", "--state", "openclaw", "--json"]).ok();
    holds_no_secret(&world, &format!("{}{}", ran.text(), ran.err));
    let lines = ran.json_lines();
    let added: Vec<_> = outcomes(&lines).into_iter().filter(|line| line.starts_with("added")).collect();
    assert_eq!(
        added,
        [
            "added agent main",
            "added agent ops",
            "added credential anthropic:default",
            "added credential anthropic:work",
            "added credential openai:default",
            "added credential order",
            "added approval main security allowlist",
            "added approval main /opt/tools/frobnicate",
            "added approval ops security deny",
            "added conversation agent:main:main",
            "added conversation agent:ops:main",
            "added conversation agent:main:direct:x",
            "added job j1 (Morning)",
            "added job j2 (Off)",
        ]
    );
    let session = lines.iter().find(|line| line["session"] == OPS).unwrap();
    assert!(session["path"].as_str().unwrap().starts_with(dir.to_str().unwrap()), "{session}");
    let again = world.run(&["import", "--state", "openclaw", "--json"]).ok().json_lines();
    assert!(outcomes(&again).iter().all(|line| !line.starts_with("added")));
    let added: u64 = again.iter().filter_map(|line| line["added"].as_u64()).sum();
    assert_eq!(added, 0);
    GatewayDatabase::of_agent(&dir.join("agents/later/agent/openclaw-agent.sqlite"), AGENT_FORM + 1);
    world
        .run(&["import", "--state", "openclaw"])
        .exits(1)
        .text()
        .find("version 24 of its form; versions 23 are supported")
        .unwrap();
}

#[test]
fn policies_of_agents_come_with_them_and_go_back() {
    let world = World::new([]);
    let dir = state(&world);
    let (work, ops) = (world.path("work"), world.path("ops"));
    let list = json!([
        { "id": "main", "workspace": work, "tools": { "profile": "coding", "deny": ["browser"], "exec": { "ask": "always" },
            "toolsBySender": { "id:7": { "deny": ["edit"] } }, "sandbox": { "tools": { "deny": ["read"] } } } },
        { "id": "ops", "workspace": ops, "tools": "all" },
    ]);
    put(&dir, "openclaw.json", json!({ "agents": { "list": list } }).to_string());
    let lines = world.run(&["import", "--state", "openclaw", "--json"]).ok().json_lines();
    assert!(
        texts(&lines, "agent", "ops tools").iter().any(|text| text.contains("it gets no tools here")),
        "{lines:?}"
    );
    let agents = world.run(&["config", "get", "agents.byId"]).ok().json();
    let policy = json!({ "profile": "coding", "deny": ["browser"], "bySender": { "id:7": { "deny": ["edit"] } },
        "sandbox": { "deny": ["read"] } });
    assert_eq!((&agents["main"]["tools"], &agents["ops"]["tools"]), (&policy, &json!({ "deny": ["*"] })));
    // In the other order it is the same.
    let settings = World::new([]);
    put(&settings.path("home/.openclaw"), "openclaw.json", json!({ "agents": { "list": list } }).to_string());
    settings.run(&["import", "--settings", "openclaw"]).ok();
    let before = settings.run(&["config", "get", "agents.byId"]).ok().json();
    let again = settings.run(&["import", "--state", "openclaw", "--json"]).ok().json_lines();
    assert!(outcomes(&again).contains(&"same agent main".to_owned()), "{again:?}");
    assert_eq!(settings.run(&["config", "get", "agents.byId"]).ok().json(), before);
    assert_eq!(before["main"], agents["main"]);

    let out = world.path("out");
    let out = out.to_str().unwrap();
    world
        .run(&["config", "set", "agents.byId", &{
            let mut agents = agents.clone();
            agents["main"]["budget"] = json!({ "daily": 1 });
            agents.to_string()
        }])
        .ok();
    let lines = world.run(&["export", "--state", "openclaw", "-o", out, "--json"]).ok().json_lines();
    assert_eq!(texts(&lines, "agent", "main"), ["agents.list", "its budget is not written"]);
    let written = contents(Path::new(out));
    let of = |name: &str| &written.iter().find(|(found, _)| found == name).unwrap().1;
    let config = of("openclaw.json");
    let mut theirs = list[0]["tools"].clone();
    assert_eq!(config["agents"]["list"][0]["tools"], theirs);
    assert_eq!(config["tools"]["exec"], json!({ "security": "allowlist", "ask": "on-miss" }));
    theirs["deny"] = json!(["*"]);
    assert_eq!(config["agents"]["list"][1]["tools"]["deny"], theirs["deny"]);
    let other = World::new([]);
    let again = other.run(&["import", "--state", "openclaw", out, "--json"]).ok().json_lines();
    assert!(outcomes(&again).iter().all(|line| !line.starts_with("left")), "{again:?}");
    assert_eq!(other.run(&["config", "get", "agents.byId"]).ok().json(), agents);
}

#[test]
fn members_of_an_agent_that_are_set_stay_and_others_are_added() {
    let world = World::new([]);
    state(&world);
    world
        .run(&["config", "set", "agents.byId", r#"{"ops": {"model": "test/mine", "budget": {"daily": 2}}}"#])
        .ok();
    let lines = world.run(&["import", "--state", "openclaw", "--json"]).ok().json_lines();
    assert_eq!(
        texts(&lines, "agent", "ops"),
        ["agents.byId.ops.workspace", "agents.byId.ops.model"],
        "{lines:?}"
    );
    let agents = world.run(&["config", "get", "agents.byId"]).ok().json();
    assert_eq!(
        agents["ops"],
        json!({ "model": "test/mine", "budget": { "daily": 2 }, "workspace": world.path("ops") })
    );
    // One that cannot be read keeps the others as they are.
    let world = World::new([]);
    state(&world);
    let broken = json!({ "agents": { "byId": { "No One": {}, "main": { "model": "m" } } } });
    std::fs::write(world.path("home/.quipu/settings.json"), broken.to_string()).unwrap();
    let lines = world.run(&["import", "--state", "openclaw", "--json"]).ok().json_lines();
    assert!(texts(&lines, "agent", "main")[0].contains("cannot be read"), "{lines:?}");
    let text = std::fs::read_to_string(world.path("home/.quipu/settings.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["agents"], broken["agents"]);
}

#[test]
fn agents_of_one_directory_are_told_that_rules_are_shared() {
    let world = World::new([]);
    let dir = state(&world);
    let work = world.path("work");
    let list = json!([{ "id": "main", "workspace": work }, { "id": "ops", "workspace": work }]);
    put(&dir, "openclaw.json", json!({ "agents": { "list": list } }).to_string());
    let lines = world.run(&["import", "--state", "openclaw", "--json"]).ok().json_lines();
    let notes: Vec<_> =
        lines.iter().filter(|line| line["outcome"] == "note" && line["part"] == "approval").collect();
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(notes[0]["text"].as_str().unwrap().contains("count for `ops` as well"), "{notes:?}");
    let out = world.path("out");
    world.run(&["export", "--state", "openclaw", "-o", out.to_str().unwrap()]).ok();
    let written = contents(&out);
    let of = |name: &str| &written.iter().find(|(found, _)| found == name).unwrap().1;
    let agents = &of("exec-approvals.json")["agents"];
    assert_eq!((&agents["main"]["security"], &agents["ops"]["security"]), (&json!("deny"), &json!("deny")));
    assert_eq!(of("cron/jobs.json")["jobs"][0]["agentId"], "ops", "the agent that it came from");
}

/// Imports approvals and settings, and gives what the directory of the agent `main` has then: its mode, and its rules in words.
pub(crate) fn taken(config: &Value, approvals: &str) -> (World, Vec<Value>, Value, Vec<String>) {
    let world = World::new([]);
    let dir = world.path("home/.openclaw");
    std::fs::create_dir_all(world.path("work")).unwrap();
    put(&dir, "openclaw.json", config.to_string());
    put(&dir, "exec-approvals.json", approvals);
    let ran = world.run(&["import", "--state", "openclaw", "--json"]);
    let lines = ran.json_lines();
    let file = world.path("home/.quipu/permissions.json");
    let saved: Value =
        std::fs::read(file).map_or(Value::Null, |bytes| serde_json::from_slice(&bytes).unwrap());
    let here = world.path("work").canonicalize().unwrap();
    let project = saved["projects"][here.to_str().unwrap()].clone();
    let rules = project["entries"].as_array().into_iter().flatten();
    let words = rules
        .map(|entry| format!("{} {}", entry["effect"].as_str().unwrap(), entry["rule"].as_str().unwrap()));
    let words = words.collect();
    (world, lines, project["mode"].clone(), words)
}

#[test]
fn allowlist_of_a_gateway_asks_about_what_it_lacks() {
    let agents = |exec: Value| json!({ "agents": { "list": [{ "id": "main", "workspace": "~/../work" }] }, "tools": { "exec": exec } });
    let patterns =
        json!({ "version": 1, "agents": { "main": { "allowlist": [{ "pattern": "rg" }] } } }).to_string();
    let (world, lines, mode, rules) =
        taken(&agents(json!({ "security": "allowlist", "ask": "off" })), &patterns);
    assert_eq!((mode, rules), (json!("ask"), vec!["allow bash(rg *)".to_owned()]), "{lines:?}");
    let asked = world.run(&["permissions", "test", "make all"]);
    assert!(asked.text().starts_with("asked"), "{}", asked.text());
    assert!(world.run(&["permissions", "test", "rg x"]).ok().text().contains("allow bash(rg *)"));
    // Again it is the same, and a mode that is set stays.
    let again = world.run(&["import", "--state", "openclaw", "--json"]).ok().json_lines();
    assert!(texts(&again, "approval", "main security allowlist")[0].contains("mode ask"), "{again:?}");
    world.run(&["permissions", "set", "workspace"]).ok();
    let kept = world.run(&["import", "--state", "openclaw", "--json"]).ok().json_lines();
    let line = kept.iter().find(|line| line["key"] == "main security allowlist").unwrap();
    assert_eq!(line["outcome"], "kept", "{line}");
    // Patterns alone say the same; full security changes nothing.
    assert_eq!(taken(&agents(json!({})), &patterns).2, "ask");
    assert_eq!(taken(&agents(json!({ "security": "full" })), &patterns).2, Value::Null);
}

#[test]
fn denial_of_commands_is_never_lost_on_the_way() {
    let config = |id: &str, exec: Value| json!({ "agents": { "list": [{ "id": id, "workspace": "~/../work", "tools": { "exec": exec } }] } });
    let denied = vec!["deny bash".to_owned()];
    let of = |config: &Value, approvals: &str| taken(config, approvals).3;
    let deny = json!({ "security": "deny" });
    let one = r#"{"version":1}"#;
    assert_eq!(of(&config("main", deny.clone()), one), denied);
    assert_eq!(of(&config(" Main ", deny.clone()), one), denied, "ids are trimmed");
    assert_eq!(of(&config("main", deny.clone()), r#"{"version":2}"#), denied, "the other file counts");
    assert_eq!(of(&config("main", deny.clone()), "{"), denied, "the other file counts");
    let host = |security: &str| {
        json!({ "version": 1, "defaults": { "security": "deny" },
            "agents": { "main": { "security": security, "allowlist": [{ "pattern": "rg" }] } } })
        .to_string()
    };
    assert_eq!(of(&config("main", json!({})), &host("denyy")), denied, "what is not known is strict");
    assert_eq!(of(&config("main", json!({})), &host("full")), ["allow bash(rg *)"]);
    // What could not be read may have denied it.
    for broken in [r#"{"version":2}"#, "{"] {
        let (_, lines, mode, rules) = taken(&config("main", json!({})), broken);
        assert_eq!((mode, rules.len()), (json!("ask"), 0), "{broken}: {lines:?}");
    }
    // So may settings have.
    let world = World::new([]);
    let dir = world.path("home/.openclaw");
    put(&dir, "openclaw.json", "{");
    std::fs::create_dir_all(dir.join("agents/main/agent")).unwrap();
    std::fs::create_dir_all(dir.join("workspace")).unwrap();
    world.run(&["import", "--state", "openclaw", "--json"]).exits(1);
    let agents = world.run(&["config", "get", "agents.byId"]).ok().json();
    assert_eq!(agents["main"]["tools"], json!({ "deny": ["*"] }));
    // A file that is missing in its policy may have taken every tool.
    for tools in [json!({ "$include": "./gone.json5" }), json!({ "sandbox": { "$include": "./gone.json5" } })]
    {
        let list = json!([{ "id": "main", "workspace": "~/../work", "tools": tools }]);
        let (world, lines, ..) = taken(&json!({ "agents": { "list": list } }), one);
        let agents = world.run(&["config", "get", "agents.byId"]).ok().json();
        assert_eq!(agents["main"]["tools"], json!({ "deny": ["*"] }), "{lines:?}");
    }
    // An agent that works nowhere is named.
    for workspace in [json!("clawd"), json!("${NOWHERE}/x"), json!(7)] {
        let config = json!({ "agents": { "list": [{ "id": "ops", "workspace": workspace }] }, "tools": { "exec": deny } });
        let (_, lines, _, rules) = taken(&config, one);
        assert_eq!(rules, [] as [String; 0]);
        let left = |part: &str, key: &str| {
            let is_of = |line: &&Value| line["part"] == part && line["outcome"] == "left";
            lines.iter().filter(is_of).any(|line| line["key"].as_str().unwrap().contains(key))
        };
        assert!(left("approval", "ops") && left("agent", "workspace"), "{lines:?}");
    }
}

#[test]
fn missing_include_of_a_state_gives_agents_no_more() {
    let world = World::new([]);
    let dir = state(&world);
    let ops = world.path("ops");
    let config = format!(
        "{{ agents: {{ list: [ {{ id: 'ops', workspace: {ops:?}, $include: './ops.json5' }} ], $include: 'gone.json5' }} }}"
    );
    put(&dir, "openclaw.json", config);
    put(&dir, "ops.json5", "{ model: 'test/test-1', tools: { deny: ['browser'] } }");
    let lines = world.run(&["import", "--state", "openclaw", "--json"]).exits(1).json_lines();
    let failed: Vec<&Value> = lines.iter().filter(|line| line["outcome"] == "failed").collect();
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert!(
        failed[0]["key"] == "agents.$include" && failed[0]["text"].as_str().unwrap().contains("gone.json5"),
        "{failed:?}"
    );
    let agents = world.run(&["config", "get", "agents.byId"]).ok().json();
    assert_eq!(
        agents["ops"],
        json!({ "model": "test/test-1", "workspace": ops, "tools": { "deny": ["browser"] } })
    );
    assert_eq!(agents["main"]["tools"], json!({ "deny": ["*"] }), "what is said of it is not known");
    assert!(texts(&lines, "agent", "main").iter().any(|text| text.contains("it gets no tools here")));
    assert!(texts(&lines, "approval", "").iter().any(|text| text.contains("no allowlists are taken")));
    let rules = world.run(&["permissions", "test", "/opt/tools/frobnicate --all"]);
    assert!(String::from_utf8_lossy(&rules.out).contains("no rule"));
}

#[test]
fn topics_and_the_default_agent_come_back_from_an_export() {
    let world = World::new([]);
    let dir = state(&world);
    let (work, ops) = (world.path("work"), world.path("ops"));
    let list = json!([
        { "id": "main", "workspace": work },
        { "id": "ops", "workspace": ops, "default": true },
    ]);
    put(&dir, "openclaw.json", json!({ "agents": { "list": list } }).to_string());
    let stem = format!("{OLD}-topic-5");
    put(&dir, &format!("agents/ops/sessions/{stem}.jsonl"), transcript(OLD, &["Topic.", "Yes."]));
    let key = "agent:ops:telegram:group:-100:topic:5";
    let index = json!({ key: { "sessionId": OLD, "sessionFile": format!("{stem}.jsonl"), "updatedAt": 7 } });
    put(&dir, "agents/ops/sessions/sessions.json", index.to_string());
    world.run(&["import", "--state", "openclaw"]).ok();
    let export = |world: &World, name: &str| {
        let out = world.path(name);
        world.run(&["export", "--state", "openclaw", "-o", out.to_str().unwrap()]).ok();
        (contents(&out), out)
    };
    let (written, out) = export(&world, "out");
    let of = |name: &str| &written.iter().find(|(found, _)| found == name).unwrap().1;
    let entry = &of("agents/ops/sessions/sessions.json")[key];
    assert_eq!((&entry["sessionId"], &entry["sessionFile"]), (&json!(OLD), &json!(format!("{stem}.jsonl"))));
    assert_eq!(of(&format!("agents/ops/sessions/{stem}.jsonl"))[0]["id"], OLD);
    let main = &of("agents/main/sessions/sessions.json")["agent:main:main"];
    assert_eq!((&main["sessionId"], &main["sessionFile"]), (&json!(FIRST), &Value::Null));
    let agents = &of("openclaw.json")["agents"]["list"];
    assert_eq!(
        (&agents[0]["default"], &agents[1]["id"], &agents[1]["default"]),
        (&Value::Null, &json!("ops"), &json!(true))
    );
    let other = World::new([]);
    let lines =
        other.run(&["import", "--state", "openclaw", out.to_str().unwrap(), "--json"]).ok().json_lines();
    assert!(outcomes(&lines).contains(&format!("added conversation {key}")), "{lines:?}");
    assert_eq!(export(&other, "again").0, written);
}
