//! State directories of OpenClaw: what is read of files and databases, and sessions written again.

use std::path::{Path, PathBuf};

use quipu_archive::openclaw::state::{StateDirectory, StateFault, StateForm, indexed_sessions};
use quipu_archive::openclaw::{ExportedTranscript, transcript};
use quipu_testkit::{AGENT_FORM, GatewayDatabase, STATE_FORM};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use serde_json::{Value, json};

use crate::support::{Archive, SECRET, archive, block_on, entry, header, lines, user};

const S: &str = "5d2f7c1e-0b5e-4f0a-9d1c-8f2f4a6b7c8d";

fn put(dir: &Path, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
    let path = dir.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, text).unwrap();
    path
}

fn faults(state: &StateDirectory) -> Vec<String> {
    let mut all: Vec<String> = state
        .problems
        .iter()
        .map(|problem| {
            let path = problem.path.strip_prefix(&state.dir).unwrap_or(&problem.path);
            format!("{}: {}", path.display(), problem.fault)
        })
        .collect();
    all.sort();
    all
}

fn names(state: &StateDirectory) -> Vec<&str> {
    state.agents.iter().map(|agent| agent.id.as_str()).collect()
}

#[test]
fn files_of_a_state_directory_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    put(dir, "openclaw.json", "{ agents: {} }");
    put(dir, "exec-approvals.json", r#"{"version":1}"#);
    put(dir, "cron/jobs.json", r#"[{"id":"j"}]"#);
    put(dir, "agents/ops/sessions/a.jsonl", "");
    let index = json!({ "agent:main:main": { "sessionId": "a", "updatedAt": 9, "skillsSnapshot": {}, "label": "l" },
        "agent:main:topic": { "sessionId": "a", "sessionFile": "/elsewhere/a-topic-7.jsonl" }, "none": {} });
    put(dir, "agents/main/sessions/sessions.json", index.to_string());
    for name in
        ["a.jsonl", "b.jsonl.reset.2026", "a.jsonl.lock", "a.trajectory.jsonl", "a.checkpoint.b.jsonl"]
    {
        put(dir, &format!("agents/main/sessions/{name}"), "");
    }
    put(dir, "agents/main/agent/auth-profiles.json", r#"{"profiles":{}}"#);
    let state = StateDirectory::read(dir).unwrap();
    assert_eq!((state.form, names(&state)), (StateForm::Files, vec!["main", "ops"]));
    assert_eq!(faults(&state), [""; 0]);
    assert_eq!(state.jobs.as_ref().unwrap().value, json!({ "jobs": [{ "id": "j" }] }));
    assert!(state.config.is_some() && state.approvals.is_some());
    let main = &state.agents[0];
    let files: Vec<_> =
        main.transcripts.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(files, ["a.jsonl", "b.jsonl.reset.2026"]);
    assert!(main.profiles.as_ref().unwrap().exposed, "the file is readable for all");
    let (sessions, without) = indexed_sessions(main.index.as_ref().unwrap());
    let found: Vec<_> =
        sessions.iter().map(|one| (one.key.as_str(), one.session.as_str(), one.updated)).collect();
    assert_eq!(found, [("agent:main:main", "a", 9), ("agent:main:topic", "a-topic-7", 0)]);
    assert_eq!(
        (without.as_slice(), sessions[0].entry.get("skillsSnapshot")),
        (&["none".to_owned()][..], None)
    );
    assert_eq!(sessions[0].entry["label"], "l");

    let empty = tempfile::tempdir().unwrap();
    let error = StateDirectory::read(empty.path()).unwrap_err().to_string();
    assert!(error.contains("is not a state directory"), "{error}");
    assert!(
        StateDirectory::read(&empty.path().join("no")).unwrap_err().to_string().contains("cannot be read")
    );
}

#[test]
fn hostile_files_of_a_state_are_reported_one_by_one() {
    let outside = tempfile::tempdir().unwrap();
    put(outside.path(), "secret.jsonl", lines(&[header(S)]));
    put(outside.path(), "secret.json", "{\"key\": 1}");
    put(outside.path(), "agent/sessions/x.jsonl", "");
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let sessions = dir.join("agents/main/sessions");
    put(dir, "agents/main/sessions/good.jsonl", "");
    std::os::unix::fs::symlink(outside.path().join("secret.jsonl"), sessions.join("out.jsonl")).unwrap();
    std::os::unix::fs::symlink("good.jsonl", sessions.join("in.jsonl")).unwrap();
    std::os::unix::fs::symlink("nothing.jsonl", sessions.join("gone.jsonl")).unwrap();
    std::fs::create_dir(sessions.join("dir.jsonl")).unwrap();
    std::os::unix::fs::symlink(outside.path().join("agent"), dir.join("agents/linked")).unwrap();
    std::fs::create_dir(dir.join("agents/Big Name")).unwrap();
    std::os::unix::fs::symlink(outside.path().join("secret.json"), dir.join("exec-approvals.json")).unwrap();
    put(dir, "agents/main/sessions/sessions.json", "");
    let profiles = put(dir, "agents/main/agent/auth-profiles.json", "{\"profiles\": sk-secret}");
    put(dir, "agents/main/agent/auth-state.json", "7");
    let big = std::fs::File::create(dir.join("agents/main/cron.json")).unwrap();
    big.set_len(1 << 30).unwrap();
    std::fs::create_dir(dir.join("cron")).unwrap();
    std::fs::rename(dir.join("agents/main/cron.json"), dir.join("cron/jobs.json")).unwrap();
    let state = StateDirectory::read(dir).unwrap();
    assert_eq!(
        faults(&state),
        [
            "agents/Big Name: the name of an agent has 1 to 64 of the letters a-z, digits, `_` and `-`",
            "agents/linked: it is a link out of the state directory",
            "agents/main/agent/auth-profiles.json: it is not valid JSON (line 1, column 14)",
            "agents/main/agent/auth-state.json: it is not a JSON object",
            "agents/main/sessions/dir.jsonl: it is not a regular file",
            "agents/main/sessions/gone.jsonl: it cannot be read: No such file or directory (os error 2)",
            "agents/main/sessions/out.jsonl: it is a link out of the state directory",
            "cron/jobs.json: it has 1073741824 bytes; the limit is 67108864",
            "exec-approvals.json: it is a link out of the state directory",
        ]
    );
    let files: Vec<_> = state.agents[0].transcripts.iter().map(|path| path.file_name().unwrap()).collect();
    assert_eq!(files, ["good.jsonl", "in.jsonl"]);

    // Locked by a process that runs, and by one that does not.
    std::fs::write(&profiles, r#"{"profiles":{}}"#).unwrap();
    let lock = |pid: u32| {
        put(
            dir,
            "agents/main/agent/auth-profiles.json.lock",
            json!({ "pid": pid, "createdAt": "x" }).to_string(),
        )
    };
    let own = std::process::id();
    lock(own);
    let state = StateDirectory::read(dir).unwrap();
    assert!(state.agents[0].profiles.is_none());
    let locked = |problem: &StateFault| matches!(problem, StateFault::Locked { pid } if *pid == own);
    assert!(state.problems.iter().any(|problem| locked(&problem.fault)), "{:?}", state.problems);
    lock(i32::MAX as u32);
    assert!(StateDirectory::read(dir).unwrap().agents[0].profiles.is_some());
}

fn conversation() -> Vec<Value> {
    let mut first = header(S);
    first["futureMember"] = json!({ "a": 1.0 });
    let answer = json!({ "role": "assistant", "content": [{ "type": "text", "text": "Yes." }], "runId": "r1",
        "api": "x", "provider": "p", "model": "m", "stopReason": "stop", "timestamp": 6,
        "usage": { "input": 1, "output": 1, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 2 } });
    vec![
        first,
        user("u1", None, "One."),
        entry("a1", Some("u1"), &json!({ "type": "message", "message": answer })),
        entry("c1", Some("a1"), &json!({ "type": "custom", "customType": "openclaw.cache-ttl", "data": {} })),
        user("u2", Some("c1"), "Left."),
        user("u3", Some("c1"), "Right."),
        entry(
            "k1",
            Some("u3"),
            &json!({ "type": "compaction", "summary": "In short.", "firstKeptEntryId": "u3", "tokensBefore": 9 }),
        ),
        user("u4", Some("k1"), "On."),
    ]
}

fn exported(archive: &Archive, session: &str) -> (ExportedTranscript, Vec<Value>) {
    let mut out = Vec::new();
    let row = archive.row(session);
    let done = block_on(transcript(&*archive.store, &row, &mut out)).unwrap();
    let text = String::from_utf8(out).unwrap();
    (done, text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

#[test]
fn transcript_is_written_as_it_was() {
    let archive = archive();
    let dir = "agents/ops/sessions";
    let index = json!({ "agent:ops:main": { "sessionId": S, "label": "Named" } });
    put(archive.dir.path(), &format!("{dir}/sessions.json"), index.to_string());
    archive.take("openclaw", &format!("{dir}/{S}.jsonl"), lines(&conversation()));
    let (done, again) = exported(&archive, S);
    assert_eq!(again, conversation());
    let expect =
        ExportedTranscript { entries: 7, archived: None, id: Some(S.into()), agent: Some("ops".into()) };
    assert_eq!(done, expect);

    // Into another store, and out of that: the same.
    let other = crate::support::archive();
    std::fs::create_dir_all(other.dir.path().join(dir)).unwrap();
    other.take("openclaw", &format!("{dir}/{S}.jsonl"), lines(&again));
    assert_eq!(exported(&other, S).1, again);

    // Put aside, with a secret, of the first version.
    let mut old = vec![header("old"), user("u1", None, SECRET)];
    old[0]["version"] = 1.into();
    archive.take("openclaw", &format!("{dir}/old.jsonl.deleted.2026-02-03T04-05-06.789Z"), lines(&old));
    let (done, again) = exported(&archive, "old");
    assert_eq!(done.archived, Some(("deleted".into(), "2026-02-03T04-05-06.789Z".into())));
    assert_eq!((again.len(), &again[0]["version"]), (2, &json!(3)));
    assert!(!again[1].to_string().contains(SECRET), "{again:?}");
}

/// The same value with all numbers of one kind, and with the version of the header that is written.
fn plain(value: &Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64()),
        Value::Array(items) => items.iter().map(plain).collect(),
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| match name.as_str() {
                "version" => (name.clone(), json!(3.0)),
                _ => (name.clone(), plain(value)),
            })
            .collect(),
        other => other.clone(),
    }
}

/// Written by the program itself, which answered to a server of a test.
#[test]
fn transcripts_of_the_program_are_read_whole() {
    for (name, entries, texts) in [
        ("openclaw-2026.5.20.jsonl", 9, &["u Hello there", "a Answer 1.", "u And again", "a Answer 2."][..]),
        ("openclaw-2026.9.6.jsonl", 6, &["u From nine", "a Answer 4."]),
    ] {
        let text = crate::support::fixture(name);
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let session = lines[0]["id"].as_str().unwrap();
        let archive = archive();
        let path = format!("agents/main/sessions/{session}.jsonl");
        std::fs::create_dir_all(archive.dir.path().join("agents/main/sessions")).unwrap();
        let report = archive.take("openclaw", &path, &text);
        assert_eq!(
            (report.added, report.lost, report.repaired, report.changed),
            (entries, 0, 0, 0),
            "{report:?}"
        );
        assert_eq!(crate::agents::shorts(&archive.messages(session)), texts);
        let (_, again) = exported(&archive, session);
        assert_eq!(again.iter().map(plain).collect::<Vec<_>>(), lines.iter().map(plain).collect::<Vec<_>>());
    }
}

/// Events of a session as a database has them.
fn events(database: &GatewayDatabase, all: &[Value], packed: fn(usize) -> bool) {
    for (at, event) in all.iter().enumerate() {
        let text = event.to_string();
        let bytes = compress_to_vec(text.as_bytes(), CompressionLevel::Fastest);
        let seq = i64::try_from(at).unwrap();
        match packed(at) {
            true => database.event(S, seq, None, Some(&bytes)),
            false => database.event(S, seq, Some(&text), None),
        }
    }
}

#[test]
fn databases_of_a_state_give_the_same_as_files() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let shared = GatewayDatabase::of_state(&dir.join("state/openclaw.sqlite"), STATE_FORM);
    shared.approvals(r#"{"version":1,"agents":{}}"#);
    shared.job("j1", false, r#"{"name":"One"}"#);
    shared.job("j2", true, "not json");
    let database = dir.join("agents/main/agent/openclaw-agent.sqlite");
    let agent = GatewayDatabase::of_agent(&database, AGENT_FORM);
    agent.conversation("agent:main:main", S, r#"{"label":"Named","sessionFile":"/x/y.jsonl"}"#);
    agent.conversation("agent:main:broken", "s2", "nothing");
    agent.profiles(r#"{"profiles":{"p:default":{}}}"#, r#"{"usageStats":{}}"#);
    events(&agent, &conversation(), |at| at % 2 == 1);
    agent.event("broken", 0, None, Some(b"no frame"));
    agent.event("../../out", 0, Some("{}"), None);
    let aside = lines(&[header("aside"), user("u1", None, "Old.")]);
    let packed = compress_to_vec(aside.as_bytes(), CompressionLevel::Fastest);
    agent.archive("aside", "aside.jsonl.reset.2026-02-03T04-05-06.789Z.zst", "zstd", &packed);
    agent.archive("evil", "../evil.jsonl.reset.2026", "identity", aside.as_bytes());
    let cold = lines(&[header("cold"), user("u1", None, "Cold.")]);
    agent.cold("cold", Some(&compress_to_vec(cold.as_bytes(), CompressionLevel::Fastest)));
    agent.cold("file", None);
    // What stands in the logs beside them counts.
    let before: Vec<_> = std::fs::read(&database).unwrap();
    let beside = |end: &str| std::fs::read(format!("{}{end}", database.display())).ok();
    let (log, memory) = (beside("-wal"), beside("-shm"));

    let state = StateDirectory::read(dir).unwrap();
    assert_eq!(
        faults(&state),
        [
            "agents/main/agent/openclaw-agent.sqlite: `../../out` of `transcript_events` cannot be read",
            "agents/main/agent/openclaw-agent.sqlite: `../evil.jsonl.reset.2026` of `session_transcript_archives` cannot be read",
            "agents/main/agent/openclaw-agent.sqlite: `agent:main:broken` of `session_nodes` cannot be read",
            "agents/main/agent/openclaw-agent.sqlite: `broken 0` of `transcript_events` cannot be read",
            "agents/main/agent/openclaw-agent.sqlite: `file` of `session_transcript_cold_archives` cannot be read",
            "state/openclaw.sqlite: `j2` of `cron_jobs` cannot be read",
        ]
    );
    assert_eq!(state.form, StateForm::Databases);
    let jobs = &state.jobs.as_ref().unwrap().value["jobs"];
    assert_eq!(*jobs, json!([{ "name": "One", "id": "j1", "enabled": false }]));
    assert_eq!(state.approvals.as_ref().unwrap().value["version"], 1);
    let main = &state.agents[0];
    assert!(main.profiles.as_ref().unwrap().value["profiles"]["p:default"].is_object());
    assert!(main.profile_state.is_some());
    let (sessions, _) = indexed_sessions(main.index.as_ref().unwrap());
    assert_eq!((sessions[0].session.as_str(), sessions[0].updated), (S, 7));
    let shown: Vec<_> = main.transcripts.iter().map(|path| state.shown(path)).collect();
    let shown: Vec<_> =
        shown.iter().map(|path| path.strip_prefix(&state.dir).unwrap().to_str().unwrap()).collect();
    let names = [
        format!("agents/main/sessions/{S}.jsonl"),
        "agents/main/sessions/aside.jsonl.reset.2026-02-03T04-05-06.789Z".to_owned(),
        "agents/main/sessions/cold.jsonl".to_owned(),
    ];
    assert_eq!(shown, names);

    let archive = archive();
    let paths = main.transcripts.clone();
    for path in &paths {
        let text = std::fs::read(path).unwrap();
        put(archive.dir.path(), state.shown(path).strip_prefix(&state.dir).unwrap().to_str().unwrap(), &text);
    }
    archive.take("openclaw", &names[0], std::fs::read(&paths[0]).unwrap());
    assert_eq!(exported(&archive, S).1, conversation());
    assert_eq!(std::fs::read_to_string(&paths[1]).unwrap(), aside);
    drop(state);
    assert!(!paths[0].exists(), "what was written is gone");
    assert_eq!(std::fs::read(&database).unwrap(), before);
    assert!(log.is_some() && (beside("-wal"), beside("-shm")) == (log, memory));
    // Once their program is closed there are no logs, and none are made.
    drop((shared, agent));
    let main = &StateDirectory::read(dir).unwrap().agents[0];
    assert!(main.profiles.is_some() && main.transcripts.len() == 3);
    assert_eq!((beside("-wal"), beside("-shm")), (None, None));
}

#[test]
fn database_of_an_unknown_form_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    GatewayDatabase::of_state(&dir.join("state/openclaw.sqlite"), STATE_FORM + 2).job("j", true, "{}");
    GatewayDatabase::of_agent(&dir.join("agents/main/agent/openclaw-agent.sqlite"), 14);
    put(dir, "agents/ops/agent/openclaw-agent.sqlite", "no database");
    let state = StateDirectory::read(dir).unwrap();
    let faults = faults(&state);
    assert_eq!(
        faults[0],
        "agents/main/agent/openclaw-agent.sqlite: the database has version 14 of its form; versions 23 are supported, those of 2026.9.6"
    );
    assert!(
        faults[1].starts_with("agents/ops/agent/openclaw-agent.sqlite: it cannot be read: "),
        "{faults:?}"
    );
    assert!(faults[2].contains("version 19") && faults[2].contains("17 and 18"), "{faults:?}");
    assert!(state.jobs.is_none() && state.agents.iter().all(|agent| agent.transcripts.is_empty()));
}
