//! Sessions of another agent: taken in, gone on with, and written.

use std::collections::HashMap;
use std::io::Read as _;
use std::path::PathBuf;

use quipu_testkit::{Answer, peer_files};
use serde_json::{Value, json};

use crate::support::*;

/// A header whose directory is the one that tests work in.
pub(crate) fn header(world: &World, id: &str) -> Value {
    json!({
        "type": "session", "version": 3, "id": id, "timestamp": "2025-01-02T03:04:05.678Z", "cwd": world.path("work"),
    })
}

pub(crate) fn entry(id: &str, parent: Option<&str>, rest: &Value) -> Value {
    let mut entry = json!({ "id": id, "parentId": parent, "timestamp": "2025-01-02T03:04:06.000Z" });
    entry.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    entry
}

fn message(id: &str, parent: &str, message: &Value) -> Value {
    entry(id, Some(parent), &json!({ "type": "message", "message": message }))
}

pub(crate) fn user(id: &str, parent: &str, text: &str) -> Value {
    message(
        id,
        parent,
        &json!({ "role": "user", "content": [{ "type": "text", "text": text }], "timestamp": 5 }),
    )
}

pub(crate) fn assistant(id: &str, parent: &str, content: &Value, stop: &str) -> Value {
    let usage = json!({ "input": 1, "output": 2, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 3,
        "cost": { "input": 0.5, "output": 0.5, "cacheRead": 0.5, "cacheWrite": 0.5, "total": 2.5 } });
    message(
        id,
        parent,
        &json!({ "role": "assistant", "content": content, "api": "x", "provider": "testing", "model": MODEL,
            "usage": usage, "stopReason": stop, "timestamp": 6 }),
    )
}

/// A session with two branches, the second of which is the one that goes on.
pub(crate) fn conversation(world: &World, id: &str) -> Vec<Value> {
    let text = |text: &str| json!([{ "type": "text", "text": text }]);
    vec![
        header(world, id),
        entry("m1", None, &json!({ "type": "model_change", "provider": "testing", "modelId": MODEL })),
        entry("t1", Some("m1"), &json!({ "type": "thinking_level_change", "thinkingLevel": "off" })),
        user("u1", "t1", "Which way?"),
        assistant("a1", "u1", &text("Left or right."), "stop"),
        user("u2", "a1", "Left."),
        assistant("a2", "u2", &text("Left it is."), "stop"),
        user("u3", "a1", "Right."),
        assistant("a3", "u3", &text("Right it is."), "stop"),
        entry("l1", Some("a3"), &json!({ "type": "label", "targetId": "a1", "label": "fork" })),
    ]
}

pub(crate) fn lines(entries: &[Value]) -> String {
    entries.iter().map(|entry| format!("{entry}\n")).collect()
}

/// What the last request said, beside the system prompt.
pub(crate) fn said(world: &World) -> Vec<String> {
    messages(world.requests().last().unwrap()).iter().map(wire_text).collect()
}

pub(crate) const ID: &str = "0199aaaa-0000-7000-8000-000000000001";

#[test]
fn an_imported_session_goes_on_as_a_new_one() {
    let world = World::new(["One.", "Two.", "Three."].map(|text| Answer::new().text(text).reply()));
    let dir = world.path("home/.pi/agent/sessions/--work--");
    std::fs::create_dir_all(&dir).unwrap();
    let text = lines(&conversation(&world, ID));
    std::fs::write(dir.join("2025-01-02T03-04-05-678Z_x.jsonl"), &text).unwrap();

    let ran = world.run(&["import", "pi"]).ok();
    assert!(ran.text().contains("2 branches: 9 added, 0 already known"), "{}", ran.text());
    let ran = world.run(&["import", "pi"]).ok();
    assert!(ran.text().contains("unchanged"), "{}", ran.text());
    let rows = world.sessions();
    assert_eq!((rows.len(), &rows[0]["agent"], &rows[0]["title"]), (1, &json!("pi"), &json!("Which way?")));

    // The newest of the directory, with the model that it had.
    let ran = world.run(&["-p", "-c", "on"]).ok();
    assert!(ran.err.contains("is not changed"), "{}", ran.err);
    assert_eq!(said(&world), ["Which way?", "Left or right.", "Right.", "Right it is.", "on"]);
    let rows = world.sessions();
    let own = rows.iter().find(|row| row["agent"] == "quipu").unwrap();
    assert_eq!(own["parentSession"], ID);
    assert_eq!(own["model"], MODEL);
    let system = world.requests().last().unwrap().json()["system"].to_string();
    assert!(system.contains("Quipu"), "a prompt of ours: {system}");

    // Going on again goes on with that one.
    let ran = world.run(&["-p", "-c", "and on"]).ok();
    assert!(!ran.err.contains("is not changed"), "{}", ran.err);
    assert_eq!(
        said(&world),
        ["Which way?", "Left or right.", "Right.", "Right it is.", "on", "One.", "and on"]
    );
    assert_eq!(world.sessions().len(), 2);

    // From an entry in the middle, by its own id.
    world.run(&["-p", "--fork", "ext:a2", "back"]).ok();
    assert_eq!(said(&world), ["Which way?", "Left or right.", "Left.", "Left it is.", "back"]);

    // What was imported is as it was.
    assert_eq!(world.run(&["export", "--format", "pi", ID]).ok().json_lines(), conversation(&world, ID));
    // What came of it is a file as well.
    let export = world.run(&["export", "--format", "pi", own["id"].as_str().unwrap()]).ok().json_lines();
    assert_eq!(export[0]["id"], own["id"]);
    assert_eq!(export.last().unwrap()["message"]["content"][0]["text"], "Two.");
}

#[test]
fn a_session_that_ends_in_open_calls_goes_on() {
    let world = World::says("On.");
    let call =
        json!([{ "type": "toolCall", "id": "c1", "name": "bash", "arguments": { "command": "true" } }]);
    let entries = [
        header(&world, ID),
        entry("m1", None, &json!({ "type": "model_change", "provider": "testing", "modelId": MODEL })),
        user("u1", "m1", "Do it."),
        assistant("a1", "u1", &call, "toolUse"),
    ];
    let path = world.file("s.jsonl", lines(&entries));
    world.run(&["import", "pi", path.to_str().unwrap()]).ok();
    world.run(&["-p", "--session", &ID[..13], "on"]).ok();
    assert_eq!(world.requests().len(), 1);
    // From that very node nobody forks unknowingly.
    let ran = world.run(&["-p", "--fork", "ext:a1", "on"]);
    assert_eq!(ran.status.code(), Some(2));
    assert!(ran.err.contains("tool calls have no result"), "{}", ran.err);
}

#[test]
fn a_model_that_is_gone_is_told() {
    let world = World::says("On.");
    let entries = [
        header(&world, ID),
        entry("m1", None, &json!({ "type": "model_change", "provider": "nobody", "modelId": "no-such" })),
        user("u1", "m1", "Hello."),
    ];
    let path = world.file("s.jsonl", lines(&entries));
    world.run(&["import", "pi", path.to_str().unwrap()]).ok();
    let ran = world.run(&["-p", "-c", "on"]);
    assert_eq!(ran.status.code(), Some(2));
    assert!(ran.err.contains("nobody"), "{}", ran.err);
    world.run(&["-p", "-c", "--model", MODEL, "on"]).ok();
    assert_eq!(said(&world), ["Hello.", "on"]);
}

#[test]
fn each_file_has_its_report() {
    let world = World::new([]);
    let dir = world.path("work/sessions");
    std::fs::create_dir_all(dir.join("deeper")).unwrap();
    let good = lines(&conversation(&world, ID));
    std::fs::write(dir.join("a.jsonl"), &good).unwrap();
    std::fs::write(dir.join("b.jsonl"), "nothing\n").unwrap();
    std::fs::write(dir.join("notes.txt"), "not one of them").unwrap();
    let torn = lines(&conversation(&world, "other")) + &"{\"type\":\"mess".repeat(2);
    std::fs::write(dir.join("deeper/c.jsonl"), torn).unwrap();

    let dry = world.run(&["import", "pi", "sessions", "--json", "--dry-run"]);
    assert!(world.sessions().is_empty());
    let ran = world.run(&["import", "pi", "sessions", "--json"]);
    assert_eq!((dry.status.code(), ran.status.code()), (Some(1), Some(1)));
    let reports = ran.json_lines();
    assert_eq!(reports.len(), 3);
    assert_eq!((&reports[0]["added"], &reports[0]["lost"]), (&json!(9), &json!(0)));
    assert!(reports[1]["error"].as_str().unwrap().contains("it contains no JSON"), "{}", reports[1]);
    assert_eq!((&reports[2]["session"], &reports[2]["lost"]), (&json!("other"), &json!(1)));
    assert_eq!(reports[2]["problems"][0]["kind"], "torn");
    for (dry, real) in dry.json_lines().iter().zip(&reports) {
        assert_eq!(dry["added"], real["added"]);
    }
    assert!(ran.err.contains("3 files: 18 entries added"), "{}", ran.err);

    // What has grown is added, what has not is left alone.
    let more = good + &lines(&[user("u9", "l1", "more")]);
    std::fs::write(dir.join("a.jsonl"), more).unwrap();
    let reports = world.run(&["import", "pi", "sessions", "--json"]).json_lines();
    assert_eq!((&reports[0]["added"], &reports[0]["present"]), (&json!(1), &json!(9)));
    let ran = world.run(&["import", "pi", "sessions/a.jsonl", "--json"]).ok();
    assert_eq!(ran.json_lines()[0]["unchanged"], true);

    let ran = world.run(&["import", "pi", "nowhere"]);
    assert_eq!(ran.status.code(), Some(1));
    let ran = world.run(&["import", "pi"]);
    assert_eq!(ran.status.code(), Some(2));
    assert!(ran.err.contains("there are no sessions in"), "{}", ran.err);
}

/// Each with its reason and what to do; the rest goes on, and running again finishes.
#[test]
fn unreadable_archive_names_the_next_step() {
    use std::os::unix::fs::symlink;
    let world = World::unprivileged([]);
    world.unchecked();
    let dir = world.path("work/in");
    std::fs::create_dir_all(dir.join("closed")).unwrap();
    let good = lines(&conversation(&world, ID));
    let wide: Vec<u8> = good.encode_utf16().flat_map(u16::to_le_bytes).collect();
    for (name, content) in [("good.jsonl", good.as_bytes()), ("wide.jsonl", &wide), ("empty.jsonl", b"")] {
        std::fs::write(dir.join(name), content).unwrap();
    }
    std::fs::write(dir.join("mine.jsonl"), lines(&conversation(&world, "mine"))).unwrap();
    std::fs::write(dir.join("closed/x.jsonl"), lines(&conversation(&world, "closed"))).unwrap();
    let closed = ["mine.jsonl", "closed"].map(|name| dir.join(name));
    closed.iter().for_each(|path| set_mode(path, 0));
    nix::unistd::mkfifo(&dir.join("pipe.jsonl"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    set_mode(&dir.join("pipe.jsonl"), 0o644);
    for (to, from) in
        [("b.jsonl", "a.jsonl"), ("a.jsonl", "b.jsonl"), (".", "itself"), ("gone", "none.jsonl")]
    {
        symlink(to, dir.join(from)).unwrap();
    }
    let ran = world.run(&["import", "pi", "in", "--json"]);
    assert_eq!(ran.status.code(), Some(1));
    let reports = ran.json_lines();
    let added: Vec<&Value> = reports.iter().filter(|report| report["added"].is_u64()).collect();
    assert!(added.len() == 1 && added[0]["added"] == 9, "{reports:?}");
    for (name, reason, advice) in [
        ("a.jsonl", "symbolic links", "points to itself"),
        ("b.jsonl", "symbolic links", "points to itself"),
        ("none.jsonl", "could not be opened", "a broken link"),
        ("mine.jsonl", "Permission denied", "give your user read permission"),
        ("pipe.jsonl", "not a regular file", "a pipe"),
        ("wide.jsonl", "UTF-16", "iconv"),
        ("empty.jsonl", "it is empty", ""),
    ] {
        let report =
            reports.iter().find(|report| report["path"].as_str().is_some_and(|path| path.ends_with(name)));
        let told = report.and_then(|report| report["error"].as_str()).unwrap();
        assert!([name, reason, advice].iter().all(|part| told.contains(part)), "{name}: {told}");
    }
    assert!(ran.err.contains("in/closed could not be read: Permission denied"), "{}", ran.err);
    assert!(ran.err.contains("8 files or directories could not be imported"), "{}", ran.err);

    closed.iter().for_each(|path| set_mode(path, 0o755));
    for name in ["a.jsonl", "b.jsonl", "none.jsonl", "pipe.jsonl", "wide.jsonl", "empty.jsonl"] {
        std::fs::remove_file(dir.join(name)).unwrap();
    }
    let reports = world.run(&["import", "pi", "in", "--json"]).ok().json_lines();
    let added: u64 = reports.iter().filter_map(|report| report["added"].as_u64()).sum();
    assert_eq!((reports.len(), added), (3, 18), "{reports:?}");

    // What is named as an export, and is none.
    let part = world.file("part.zip", b"PK\x03\x04and no end");
    let told = world.run(&["import", part.to_str().unwrap()]);
    assert!(told.err.contains("part.zip could not be read: its end is missing"), "{}", told.err);
    let wide = world.file("wide.json", wide);
    assert!(world.run(&["import", wide.to_str().unwrap()]).err.contains("iconv"));
    std::fs::create_dir(world.path("work/nothing")).unwrap();
    assert!(world.run(&["import", "nothing"]).err.contains("nothing holds no account export"));
}

#[test]
fn the_other_agents_places_are_known() {
    let world = World::new([]);
    let put = |dir: &str, id: &str| {
        std::fs::create_dir_all(world.path(dir)).unwrap();
        std::fs::write(world.path(dir).join("s.jsonl"), lines(&conversation(&world, id))).unwrap();
    };
    put("home/.pi/agent/sessions", "default");
    put("tmp/agent/elsewhere", "setting");
    put("tmp/named", "named");
    let import = |env: &[(&str, &str)]| {
        let mut command = world.quipu(&["import", "pi", "--json"]);
        command.envs(env.iter().copied());
        RunningCommand::start(command).wait().ok().json_lines()[0]["session"].as_str().unwrap().to_owned()
    };
    assert_eq!(import(&[]), "default");
    let agent = world.path("tmp/agent");
    let settings = json!({ "sessionDir": agent.join("elsewhere") });
    std::fs::write(agent.join("settings.json"), settings.to_string()).unwrap();
    let agent = ("PI_CODING_AGENT_DIR", agent.to_str().unwrap());
    assert_eq!(import(&[agent]), "setting");
    let named = world.path("tmp/named");
    assert_eq!(import(&[agent, ("PI_CODING_AGENT_SESSION_DIR", named.to_str().unwrap())]), "named");
}

#[test]
fn an_export_is_written_whole_or_not_at_all() {
    let world = World::says("Hi.");
    world.run(&["-p", "Hello."]).ok();
    let id = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    world.run(&["export", "--format", "pi", &id, "-o", "s.jsonl"]).ok();
    let file = std::fs::read(world.path("work/s.jsonl")).unwrap();
    assert_eq!(world.run(&["export", "--format", "pi", &id]).ok().out, file);
    assert_eq!(mode(&world.path("work/s.jsonl")), 0o600);
    let ran = world.run(&["export", "--format", "pi", &id, "-o", "s.jsonl"]);
    assert_eq!(ran.status.code(), Some(1));
    assert!(ran.err.contains("exists"), "{}", ran.err);
    let ran = world.run(&["export", "--format", "pi", &id, "-o", "none/s.jsonl"]);
    assert_eq!(ran.status.code(), Some(1));
    let ran = world.run(&["export", "--format", "pi", "nobody"]);
    assert_eq!(ran.status.code(), Some(2));
    let names: Vec<_> =
        std::fs::read_dir(world.path("work")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["s.jsonl"]);

    // In another store the same conversation goes on.
    let other = World::says("Again.");
    let moved = String::from_utf8(file)
        .unwrap()
        .replace(world.path("work").to_str().unwrap(), other.path("work").to_str().unwrap());
    other.file("s.jsonl", moved);
    other.run(&["import", "pi", "s.jsonl"]).ok();
    other.run(&["-p", "-c", "And?"]).ok();
    assert_eq!(said(&other), ["Hello.", "Hi.", "And?"]);
}

/// The other agent itself, as `cargo xtask peers` installs it, with a Node that it accepts. `None`, and a line that says
/// so, where it is not there.
pub(crate) fn peer() -> Option<[PathBuf; 2]> {
    peer_files(["node/bin/node", "@earendil-works/pi-coding-agent/dist/bundle/cli.js"])
}

/// Runs the other agent in this world: one prompt to the world's own server.
pub(crate) fn run_peer([node, program]: &[PathBuf; 2], world: &World, args: &[&str]) -> CommandOutput {
    let home = world.path("home/.pi/agent");
    std::fs::create_dir_all(&home).unwrap();
    let model = json!({ "id": MODEL, "contextWindow": 1_000_000_000, "maxTokens": 8_000 });
    let provider = json!({ "baseUrl": world.server.url(), "api": "anthropic-messages", "apiKey": KEY, "models": [model] });
    let models = json!({ "providers": { "testing": provider } });
    std::fs::write(home.join("models.json"), models.to_string()).unwrap();
    let settings = json!({ "enableInstallTelemetry": false, "quietStartup": true, "compaction": { "enabled": false },
        "retry": { "enabled": false } });
    std::fs::write(home.join("settings.json"), settings.to_string()).unwrap();
    let mut command = world.command(node);
    command
        .arg(program)
        .args(["--offline", "--print", "--provider", "testing", "--model", MODEL])
        .args(args)
        .env("PI_OFFLINE", "1")
        .env("PI_SKIP_VERSION_CHECK", "1")
        .env("PI_TELEMETRY", "0");
    RunningCommand::start(command).wait().ok()
}

#[test]
fn the_other_agent_goes_on_with_what_we_export() {
    let Some(peer) = peer() else { return };
    let world = World::new([bash("c1", "echo from-the-tool"), Answer::new().text("It said so.").reply()]);
    world.run(&["-p", "Run it."]).ok();
    let id = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    let export = world.run(&["export", "--format", "pi", &id]).ok().text();

    let other = World::says("Peer here.");
    other.unchecked();
    let there = other.path("work").display().to_string();
    let file = other.file("s.jsonl", export.replace(world.path("work").to_str().unwrap(), &there));
    let ran = run_peer(&peer, &other, &["--session", file.to_str().unwrap(), "And now?"]);
    assert_eq!(ran.text(), "Peer here.\n");
    let texts = said(&other);
    assert_eq!(texts.len(), 5, "{texts:?}");
    assert_eq!(
        (texts[0].as_str(), texts[3].as_str(), texts[4].as_str()),
        ("Run it.", "It said so.", "And now?")
    );
    assert!(texts[2].contains("from-the-tool"), "{texts:?}");

    // What it wrote is ours again: only the new entries are added.
    let before = u64::try_from(export.lines().count()).unwrap() - 1;
    let grown = std::fs::read_to_string(&file).unwrap();
    assert!(
        grown.starts_with(&export.replace(world.path("work").to_str().unwrap(), &there)),
        "it was rewritten: {grown}"
    );
    let report = other.run(&["import", "pi", "s.jsonl", "--json"]).ok().json_lines().remove(0);
    assert_eq!((&report["lost"], &report["repaired"]), (&json!(0), &json!(0)), "{report}");
    assert!(report["added"].as_u64().unwrap() >= before + 2);
}

#[test]
fn imported_session_continues_here() {
    let Some(peer) = peer() else { return };
    let world = World::new([
        bash("c1", "echo from-the-tool"),
        Answer::new().text("It said so.").reply(),
        Answer::new().text("Again.").reply(),
        Answer::new().text("Ours.").reply(),
    ]);
    world.unchecked();
    run_peer(&peer, &world, &["Run it."]);
    run_peer(&peer, &world, &["--continue", "Once more."]);
    let report = world.run(&["import", "pi", "--json"]).ok().json_lines().remove(0);
    assert_eq!((&report["lost"], &report["repaired"]), (&json!(0), &json!(0)), "{report}");
    let file = std::fs::read_to_string(report["path"].as_str().unwrap()).unwrap();
    let entries: Vec<Value> = file.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        world.run(&["export", "--format", "pi", report["session"].as_str().unwrap()]).ok().json_lines().len(),
        entries.len()
    );
    world.run(&["-p", "-c", "Go on."]).ok();
    let texts = said(&world);
    assert_eq!(texts.len(), 7, "{texts:?}");
    let ends: Vec<&str> = [0, 3, 4, 5, 6].map(|at| texts[at].as_str()).to_vec();
    assert_eq!(ends, ["Run it.", "It said so.", "Once more.", "Again.", "Go on."]);
    assert!(texts[2].contains("from-the-tool"), "{texts:?}");
}

#[test]
fn we_migrate_as_the_other_agent_does() {
    let Some(peer) = peer() else { return };
    let world = World::says("Peer here.");
    world.unchecked();
    let fixture = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../archive/tests/fixtures/before-compaction.jsonl.gz");
    let mut text = String::new();
    let packed = std::fs::read(fixture).unwrap();
    flate2::read::GzDecoder::new(&packed[..]).read_to_string(&mut text).unwrap();
    // The directory has to be there.
    let cwd: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    let text = text.replacen(cwd["cwd"].as_str().unwrap(), world.path("work").to_str().unwrap(), 1);
    let file = world.file("s.jsonl", text);
    let report = world.run(&["import", "pi", "s.jsonl", "--json"]).ok().json_lines().remove(0);
    let ours =
        world.run(&["export", "--format", "pi", report["session"].as_str().unwrap()]).ok().json_lines();
    run_peer(&peer, &world, &["--session", file.to_str().unwrap(), "On."]);
    let theirs = std::fs::read_to_string(&file).unwrap();
    let theirs: Vec<Value> = theirs.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    // They draw ids, ours are made from the place: by their place they are the same.
    let numbered = |entries: &[Value]| -> Vec<Value> {
        let ids: HashMap<&str, usize> = entries
            .iter()
            .enumerate()
            .skip(1)
            .filter_map(|(at, entry)| Some((entry["id"].as_str()?, at)))
            .collect();
        let mut numbered = entries.to_vec();
        for entry in numbered.iter_mut().skip(1) {
            for name in ["id", "parentId", "firstKeptEntryId"] {
                if let Some(value) = entry.get_mut(name)
                    && let Some(at) = value.as_str().and_then(|id| ids.get(id))
                {
                    *value = json!(at);
                }
            }
        }
        numbered
    };
    let (ours, theirs) = (numbered(&ours), numbered(&theirs));
    assert_eq!(ours.len(), 1_003);
    for (at, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        assert_eq!(as_script(ours), as_script(theirs), "entry {at}");
    }
}

/// Numbers as JavaScript has them: `0` and `0.0` are one.
pub(crate) fn as_script(value: &Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64()),
        Value::Array(items) => items.iter().map(as_script).collect(),
        Value::Object(members) => {
            Value::Object(members.iter().map(|(name, value)| (name.clone(), as_script(value))).collect())
        }
        Value::Null | Value::Bool(_) | Value::String(_) => value.clone(),
    }
}

/// Sessions of two more agents, as short as they can be, with two calls at once of which one failed.
fn others(world: &World) -> [(&'static str, &'static str, PathBuf); 2] {
    let cwd = world.path("work");
    let record = |kind: &str, id: &str, parent: Value, message: &Value| {
        json!({ "type": kind, "uuid": id, "parentUuid": parent, "sessionId": ID, "cwd": cwd, "message": message,
            "timestamp": "2025-01-02T03:04:06.000Z" })
    };
    let block = |block: &Value| json!({ "id": "m", "role": "assistant", "model": "x", "content": [block], "stop_reason": "tool_use" });
    let call = |id: &str| json!({ "type": "tool_use", "id": id, "name": "Read", "input": { "path": id } });
    let result = |id: &str| json!({ "role": "user", "content": [{ "type": "tool_result", "tool_use_id": id, "content": id, "is_error": true }] });
    let one = [
        record("user", "n1", Value::Null, &json!({ "role": "user", "content": "Look." })),
        record(
            "assistant",
            "n2",
            json!("n1"),
            &block(&json!({ "type": "thinking", "thinking": "hm", "signature": "s" })),
        ),
        record("assistant", "n3", json!("n2"), &block(&call("t1"))),
        record("assistant", "n4", json!("n3"), &block(&call("t2"))),
        record("user", "n5", json!("n4"), &result("t2")),
        record("user", "n6", json!("n3"), &result("t1")),
        record("user", "n7", json!("n5"), &json!({ "role": "user", "content": "And?" })),
    ];
    let record = |kind: &str, payload: &Value| json!({ "timestamp": "2025-01-02T03:04:06.000Z", "type": kind, "payload": payload });
    let item = |payload: &Value| record("response_item", payload);
    let said = |text: &str| {
        item(
            &json!({ "type": "message", "role": "user", "content": [{ "type": "input_text", "text": text }] }),
        )
    };
    let call = |id: &str| {
        item(&json!({ "type": "function_call", "name": "shell", "arguments": "{}", "call_id": id }))
    };
    let output = |id: &str| item(&json!({ "type": "function_call_output", "call_id": id, "output": id }));
    let two = [
        record(
            "session_meta",
            &json!({ "id": "0199bbbb", "timestamp": "2025-01-02T03:04:05.678Z", "cwd": cwd }),
        ),
        said("<environment_context>here</environment_context>"),
        said("Look."),
        item(
            &json!({ "type": "reasoning", "summary": [{ "type": "summary_text", "text": "hm" }], "encrypted_content": "e" }),
        ),
        call("c1"),
        call("c2"),
        output("c1"),
        output("c2"),
        said("And?"),
    ];
    let place = |path: String, text: String| {
        let path = world.path(&path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    };
    [
        ("claude-code", ID, place(format!("home/.claude/projects/-work/{ID}.jsonl"), lines(&one))),
        (
            "codex",
            "0199bbbb",
            place("home/.codex/sessions/2025/01/02/rollout-x-0199bbbb.jsonl".into(), lines(&two)),
        ),
    ]
}

#[test]
fn every_imported_session_goes_on_on_both_wires() {
    use quipu_testkit::Wire;
    let world = World::new([
        Answer::new().text("One.").reply(),
        Answer::new().text("Two.").reply(),
        Answer::new().text("Three.").reply(),
        Answer::on(Wire::Completions).text("Four.").reply(),
        Answer::on(Wire::Completions).text("Five.").reply(),
        Answer::on(Wire::Completions).text("Six.").reply(),
    ]);
    let model =
        |id: &str, api: &str| json!({ "id": id, "api": api, "contextWindow": 200_000, "maxTokens": 8_000 });
    let models = [model("blocks-1", "anthropic-messages"), model("chat-1", "openai-completions")];
    let provider = json!({ "baseUrl": world.server.url(), "apiKey": KEY, "models": models });
    let file = json!({ "providers": { "testing": provider } });
    std::fs::write(world.path("home/.quipu/models.json"), file.to_string()).unwrap();
    let sessions = others(&world);
    let database = world.path("home/.local/share/opencode");
    std::fs::create_dir_all(&database).unwrap();
    let fixture = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../archive/tests/fixtures/hand-made.db");
    std::fs::copy(fixture, database.join("opencode.db")).unwrap();
    // A row of the database holds no JSON.
    world.run(&["import", "--yes"]).fails(1, &["parts of 1 file could not be imported"]);
    for model in ["blocks-1", "chat-1"] {
        for (_, session, _) in &sessions {
            world.run(&["-p", "--model", model, "--session", session, "on"]).ok();
            let said = said(&world).join("\n");
            assert!(said.contains("Look.") && said.contains("And?") && said.ends_with("on"), "{said}");
            assert!(!said.contains("environment_context"), "{said}");
        }
        // Its directory is not on this machine.
        world.run(&["-p", "--model", model, "--session", "ses_two", "--cwd", ".", "on"]).ok();
        assert!(said(&world).join("\n").contains("In the fork."));
    }
    // Each call has its result, whatever the wire.
    let bodies: Vec<String> =
        world.requests().iter().map(|request| String::from_utf8_lossy(&request.body).into_owned()).collect();
    for (body, ids) in bodies.iter().zip([["t1", "t2"], ["c1", "c2"], ["c1", "c2"]].repeat(2)) {
        for id in ids {
            assert!(body.matches(&format!("\"{id}\"")).count() >= 2, "{id} in {body}");
        }
    }
}

#[test]
fn found_agents_are_listed_and_imported_on_request() {
    let world = World::new([]);
    let ran = world.run(&["import"]).ok();
    assert!(ran.err.contains("No sessions of other agents were found"), "{}", ran.err);
    let sessions = others(&world);
    let ran = world.run(&["import"]).ok();
    for (agent, ..) in &sessions {
        assert!(ran.text().contains(agent), "{}", ran.text());
    }
    assert!(ran.err.contains("quipu import --yes"), "{}", ran.err);
    let found = world.run(&["import", "--json"]).ok().json_lines();
    assert_eq!(found.len(), 2);
    let bytes = std::fs::metadata(&sessions[0].2).unwrap().len();
    assert_eq!(
        found[0],
        json!({ "agent": "claude-code", "project": world.path("work"), "sessions": 1, "bytes": bytes })
    );
    world.run(&["import", "--dry-run"]).ok();
    assert!(world.sessions().is_empty(), "nothing was taken in");
    let reports = world.run(&["import", "--yes", "--json"]).ok().json_lines();
    assert_eq!((reports.len(), world.sessions().len()), (2, 2));
    assert!(
        reports.iter().all(|report| report["lost"] == 0 && report["added"].as_u64() > Some(3)),
        "{reports:?}"
    );
    let ran = world.run(&["import", "codex"]).ok();
    assert!(ran.text().contains("unchanged"), "{}", ran.text());
    world.run(&["import", "nobody"]).exits(2);
}
