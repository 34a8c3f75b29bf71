//! Sessions of OpenClaw: what is kept, what its names say, and that nothing is taken in twice.

use quipu_archive::{AGENTS, Agent, ProblemKind};
use quipu_protocol::Entry;
use serde_json::{Value, json};

use crate::agents::shorts;
use crate::support::{Archive, SECRET, archive, entry, header, lines, user};

const AGENT: &str = "openclaw";
const S: &str = "5d2f7c1e-0b5e-4f0a-9d1c-8f2f4a6b7c8d";
const DIR: &str = "agents/ops/sessions";

fn answer(id: &str, parent: Option<&str>, content: &Value, stop: &str) -> Value {
    let message = json!({ "role": "assistant", "content": content, "api": "anthropic-messages", "provider": "anthropic",
        "model": "claude-x", "stopReason": stop, "timestamp": 6, "runId": "r1",
        "usage": { "input": 5, "output": 3, "cacheRead": 2, "cacheWrite": 1, "totalTokens": 11,
            "cost": { "input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0.25 } } });
    entry(id, parent, &json!({ "type": "message", "message": message }))
}

fn result(id: &str, parent: &str) -> Value {
    let message = json!({ "role": "toolResult", "toolCallId": "t1", "toolName": "exec", "isError": true,
        "content": [{ "type": "text", "text": "no" }], "details": { "exitCode": 3 }, "timestamp": 7 });
    entry(id, Some(parent), &json!({ "type": "message", "message": message }))
}

fn conversation() -> Vec<Value> {
    let mut first = header(S);
    first["futureMember"] = json!({ "a": 1.0 });
    vec![
        first,
        entry("m1", None, &json!({ "type": "model_change", "provider": "anthropic", "modelId": "claude-x" })),
        user("u1", Some("m1"), "Look."),
        answer(
            "a1",
            Some("u1"),
            &json!([{ "type": "thinking", "thinking": "hm", "thinkingSignature": "sig" },
                { "type": "toolCall", "id": "t1", "name": "exec", "arguments": { "b": 1.0, "a": SECRET } }]),
            "toolUse",
        ),
        result("r1", "a1"),
        entry(
            "c1",
            Some("r1"),
            &json!({ "type": "custom", "customType": "openclaw.cache-ttl", "data": { "timestamp": 1 } }),
        ),
        answer("a2", Some("c1"), &json!([{ "type": "text", "text": "Done." }]), "stop"),
        user("u2", Some("a2"), "Left."),
        // The user went back.
        user("u3", Some("a2"), "Right."),
        entry(
            "k1",
            Some("u3"),
            &json!({ "type": "compaction", "summary": "In short.", "firstKeptEntryId": "u3",
            "tokensBefore": 1234 }),
        ),
        user("u4", Some("k1"), "On."),
    ]
}

fn with_index(index: &str) -> Archive {
    let archive = archive();
    std::fs::create_dir_all(archive.dir.path().join(DIR)).unwrap();
    archive.file(&format!("{DIR}/sessions.json"), index);
    archive
}

#[test]
fn branches_names_and_the_agent_are_kept() {
    let index = json!({
        "agent:ops:main": { "sessionId": "another", "label": "not this one" },
        "agent:ops:whatsapp:group:1": { "sessionId": S, "displayName": format!("The {SECRET} group"), "skillsSnapshot": {} },
    });
    let archive = with_index(&index.to_string());
    let report = archive.take(AGENT, &format!("{DIR}/{S}.jsonl"), lines(&conversation()));
    assert_eq!((report.added, report.lost, report.repaired, report.branches), (11, 0, 0, 3), "{report:?}");
    assert_eq!(report.sealed, 1);
    assert_eq!(
        shorts(&archive.messages(S)),
        ["u Look.", "a (hm) t1=exec", "r t1=exec! no", "a Done.", "u Right.", "s In short.", "u On."]
    );
    assert_eq!(
        shorts(archive.shown(S).iter().map(|message| &**message)).len(),
        3,
        "what stands before is summed up"
    );
    let row = archive.row(S);
    assert_eq!((row.agent.as_str(), row.cwd.as_str()), (AGENT, "/p"));
    assert!(row.called.starts_with("The [REDACTED:"), "{}", row.called);
    let (_, start) = &archive.extras(S)[0];
    assert_eq!(start["agent"], "ops");
    assert_eq!(start["header"]["futureMember"], json!({ "a": 1.0 }));
    let kept = &archive.extras(S)[3].1;
    assert_eq!(kept["message"]["set"]["runId"], "r1");
    let again = archive.take(AGENT, &format!("{DIR}/{S}.jsonl"), lines(&conversation()));
    assert!(again.unchanged);
}

#[test]
fn archived_session_is_the_same_one() {
    let all = lines(&conversation());
    let archive = archive();
    archive.take(AGENT, &format!("{DIR}/{S}.jsonl"), &all);
    let nodes = archive.all().1;
    let aside = archive.take(AGENT, &format!("{DIR}/{S}.jsonl.reset.2026-02-03T04-05-06.789Z"), &all);
    assert_eq!((aside.added, aside.present, aside.changed), (1, 10, 0), "{aside:?}");
    let one = crate::support::archive();
    one.take(AGENT, &format!("{DIR}/{S}.jsonl.reset.2026-02-03T04-05-06.789Z"), &all);
    one.take(AGENT, &format!("{DIR}/{S}.jsonl"), &all);
    assert_eq!(one.all(), archive.all());
    assert!(nodes.iter().all(|node| one.all().1.contains(node)));

    let found = Agent::named(AGENT).unwrap().files(&archive.dir.path().join("agents")).unwrap();
    assert_eq!(found.files.len(), 2);
    for name in ["x.jsonl.lock", "x.jsonl.bak-12-34", "sessions.json", "x.jsonl.deleted"] {
        archive.file(&format!("{DIR}/{name}"), &all);
    }
    archive.file(&format!("{DIR}/y.jsonl.deleted.2026-02-03T04-05-06.789Z"), &all);
    let found = Agent::named(AGENT).unwrap().files(&archive.dir.path().join("agents")).unwrap();
    assert_eq!(found.files.len(), 3, "{found:?}");
}

#[test]
fn grown_file_equals_a_single_import() {
    let text = lines(&conversation());
    let name = format!("{DIR}/{S}.jsonl");
    let whole = archive();
    whole.take(AGENT, &name, &text);
    let grown = archive();
    let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at + 1).collect();
    for (at, end) in ends.iter().enumerate() {
        let report = grown.take(AGENT, &name, &text[..*end]);
        assert_eq!((report.changed, report.added), (0, u64::from(at > 0)), "{report:?}");
    }
    assert_eq!(grown.all(), whole.all());
    let mut backwards = conversation();
    backwards[1..].reverse();
    let other = archive();
    let report = other.take(AGENT, &name, lines(&backwards));
    assert_eq!((report.added, report.repaired), (10, 0), "{report:?}");
    assert_eq!(other.all().1, whole.all().1);
}

#[test]
fn oddities_are_reported_and_break_no_chain() {
    let archive = with_index("{\"agent:ops:main\":");
    let all = [
        header(S).to_string(),
        user("u1", None, "One.").to_string(),
        "not json".into(),
        "[1]".into(),
        // The gateway forgot to say what it follows.
        json!({ "type": "message", "id": "g1", "timestamp": "1970-01-01T00:00:00.000Z",
            "message": { "role": "assistant", "content": [{ "type": "text", "text": "Injected." }] } })
        .to_string(),
        user("u2", Some("g1"), "Two.").to_string(),
        user("u3", Some("never"), "Three.").to_string(),
        json!({ "type": "message", "message": { "role": "user", "content": "No id." } }).to_string(),
        user("u4", Some("u3"), "\u{fffd}").to_string().replace('\u{fffd}', "\\ud800"),
        header("second").to_string(),
        user("u2", Some("u4"), "The same id.").to_string(),
        "{\"type\":\"message\",\"id\":\"torn\"".into(),
    ];
    let report = archive.take(AGENT, &format!("{DIR}/{S}.jsonl"), all.join("\n"));
    let kinds: Vec<ProblemKind> = report.problems.iter().map(|problem| problem.kind).collect();
    for kind in [
        ProblemKind::Malformed,
        ProblemKind::NotAnEntry,
        ProblemKind::Orphan,
        ProblemKind::NoId,
        ProblemKind::SecondHeader,
        ProblemKind::DuplicateId,
        ProblemKind::Torn,
    ] {
        assert!(kinds.contains(&kind), "{kind:?} {report:?}");
    }
    assert_eq!((report.read, report.added, report.lost), (8, 8, 4), "{report:?}");
    let again = archive.take(AGENT, &format!("{DIR}/copy.jsonl"), all.join("\n"));
    assert_eq!((again.added, again.changed), (0, 0), "{again:?}");
    assert_eq!(shorts(&archive.messages(S)).last().unwrap(), "u The same id.");
}

#[test]
fn a_topic_has_a_session_of_its_own() {
    let archive = archive();
    archive.take(AGENT, &format!("{DIR}/{S}.jsonl"), lines(&conversation()));
    let text = lines(&[header(S), user("u1", None, "In the topic.")]);
    let report = archive.take(AGENT, &format!("{DIR}/{S}-topic-7.jsonl"), text);
    assert_eq!(report.session.as_str(), format!("{S}-topic-7"));
    assert_eq!(shorts(&archive.messages(report.session.as_str())), ["u In the topic."]);
    assert_eq!(archive.messages(S).len(), 7);
}

#[test]
fn sessions_directory_is_found() {
    let archive = archive();
    let home = archive.dir.path().to_owned();
    for (state, agent) in [(".openclaw", "main"), (".openclaw", "ops"), (".clawdbot", "main")] {
        let dir = home.join(state).join("agents").join(agent).join("sessions");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join(format!("{agent}.jsonl")), "").unwrap();
    }
    let agent = AGENTS.iter().find(|agent| agent.name == AGENT).unwrap();
    let kept = agent.detect(&|name| (name == "HOME").then(|| home.clone()));
    assert_eq!(kept.files.len(), 3, "{kept:?}");
    let kept = agent.detect(&|name| (name == "OPENCLAW_STATE_DIR").then(|| home.join(".openclaw")));
    assert_eq!(kept.files.len(), 2, "{kept:?}");
}

impl Archive {
    /// What the nodes of a session keep for this agent.
    fn extras(&self, id: &str) -> Vec<(Entry, Value)> {
        let head = self.row(id).head.unwrap();
        crate::support::block_on(async {
            let nodes = self.store.lineage(head, quipu_store::LineageEnd::Root).await.unwrap();
            let decoded = quipu_store::decode_nodes(&*self.store, &nodes).await.unwrap();
            let kept = |step: &quipu_protocol::StepInfo| {
                step.extra.get(AGENT).map_or(Value::Null, |kept| serde_json::from_str(kept.get()).unwrap())
            };
            decoded.into_iter().map(|one| (one.entry.clone(), kept(&one.step))).collect()
        })
    }
}

/// Whichever of them is placed first: what the first of an id follows is in no file, so it waits for the end.
#[test]
fn duplicate_ids_are_told_apart_by_content() {
    let silent = |id: &str, text: &str| {
        let mut entry = user(id, None, text);
        entry.as_object_mut().unwrap().shift_remove("parentId");
        entry
    };
    let text = lines(&[
        header("s"),
        user("r", Some("gone"), "1"),
        silent("g", "2"),
        silent("r", "3"),
        silent("r", "4"),
    ]);
    let archive = archive();
    let report = archive.take(AGENT, "a.jsonl", &text);
    assert_eq!((report.added, report.lost), (4, 0), "{report:?}");
    let before = archive.all();
    let again = archive.take(AGENT, "b.jsonl", &text);
    assert_eq!((again.added, again.present, again.changed), (0, 4, 0), "{again:?}");
    assert_eq!(archive.all(), before);
    // Two of them were edited: what the store has of them stays.
    let edited = text.replace("\"3\"", "\"5\"").replace("\"4\"", "\"6\"");
    let report = archive.take(AGENT, "c.jsonl", edited);
    assert_eq!((report.added, report.present, report.changed), (0, 2, 2), "{report:?}");
    assert_eq!(archive.all().1, before.1);
}

/// None is looked for among all the others.
#[test]
fn thousands_of_entries_of_one_id() {
    let archive = archive();
    let mut text = lines(&[header("s")]);
    for n in 0..6_000 {
        text.push_str(&format!("{}\n", user("same", None, &format!("{n}"))));
    }
    let report = archive.take(AGENT, "a.jsonl", &text);
    assert_eq!((report.added, report.repaired, report.branches), (6_000, 5_999, 6_000));
    let again = archive.take(AGENT, "b.jsonl", &text);
    assert_eq!((again.added, again.present, again.changed), (0, 6_000, 0));
}
