//! What is written is what was read.

use quipu_dag::{Node, NodeRecord};
use quipu_protocol::{Compaction, Entry, Epoch, Json, Message, NodeId, SessionStart, StepInfo, Thinking};
use quipu_store::{Commit, NewChunk, RefMove, RefName};
use serde_json::{Value, json};

use crate::support::{
    Archive, FIXTURES, archive, as_script, assert_exports, block_on, entry, fixture, header, lines, user,
};

#[test]
fn every_fixture_comes_back() {
    for name in FIXTURES {
        let archive = archive();
        let text = fixture(name);
        let report = archive.import_text("a.jsonl", &text);
        let export = archive.export(report.session.as_str());
        assert_exports(&export, &text);
        // And what was written is read as the same session.
        let again = archive.import_text("b.jsonl", &export);
        assert_eq!((again.added, again.changed, again.lost, again.repaired), (0, 0, 0, 0), "{name}");
    }
}

#[test]
fn the_second_version_comes_back() {
    let mut first = header("s");
    first["version"] = json!(2);
    let message =
        json!({ "role": "hookMessage", "customType": "x", "content": "y", "display": true, "timestamp": 1 });
    let hook = entry("b", Some("a"), &json!({ "type": "message", "message": message }));
    let text = lines(&[first, user("a", None, "1"), hook]);
    let archive = archive();
    archive.import_text("a.jsonl", &text);
    assert_exports(&archive.export("s"), &text);
    assert!(matches!(&archive.lineage("s")[2].1, Entry::Message(Message::Custom(_))));
}

#[test]
fn unknown_members_survive_export() {
    let rest = json!([
        { "type": "context_edit", "targetId": "a", "replacement": null },
        { "type": "usage", "kind": "cache_warm", "provider": "p", "model": "m", "usage": {} },
        { "type": "message", "message": {
            "role": "system", "content": "x", "sections": { "a": null }, "toolsAdded": [], "timestamp": 1 } },
        { "type": "message", "message": {
            "role": "assistant", "content": [{ "type": "text", "text": "t", "textSignature": "s", "new": 1 }],
            "api": "x", "provider": "p", "model": "m", "thinkingLevel": "high", "stopReason": "stop",
            "usage": { "input": 1, "output": 2, "cacheRead": 0, "cacheWrite": 0, "reasoning": 1, "totalTokens": 3,
                "cost": { "input": 0, "output": 0.1, "cacheRead": 0, "cacheWrite": 0, "total": 0.1 }, "more": [] },
            "deferred": { "id": "q" }, "diagnostics": [{}], "timestamp": 1, "endTurn": true } },
        { "type": "message", "extra": { "deep": [1] }, "message": {
            "role": "toolResult", "toolCallId": "c", "toolName": "n", "content": null, "isError": false,
            "nestedCalls": { "calls": [], "complete": true }, "durationMs": 5, "timestamp": 1 } },
        { "type": "compaction", "summary": "s", "firstKeptEntryId": "a", "tokensBefore": 1.5,
            "systemMessage": { "role": "system" }, "retainedTail": [], "details": null },
        { "type": "branch_summary", "fromId": null, "summary": "s" },
        { "type": "custom", "customType": "pi.virtual-model-state", "data": { "9": 1, "a": 1e3 } },
        { "type": "session_info", "name": "n" },
        { "type": "label", "targetId": "a", "label": "l" },
        { "type": "something.new" },
        { "type": "message", "message": "no object" },
        { "type": "message", "message": { "role": "user", "content": [
            { "type": "image", "data": "aGVsbG8=", "mimeType": "image/png" }, { "type": "unknown" } ] } },
    ]);
    let mut entries = vec![header("s"), user("a", None, "1")];
    let mut before = "a".to_owned();
    for (at, rest) in rest.as_array().unwrap().iter().enumerate() {
        let id = format!("e{at}");
        entries.push(entry(&id, Some(&before), rest));
        before = id;
    }
    let text = lines(&entries);
    let archive = archive();
    let report = archive.import_text("a.jsonl", &text);
    assert_eq!((report.added, report.repaired, report.lost), (14, 0, 0));
    assert_exports(&archive.export("s"), &text);
}

#[test]
fn text_is_kept_to_the_letter() {
    let archive = archive();
    let line = |id: &str, parent: &str, content: &str| {
        format!(
            "{{\"type\":\"message\",\"id\":\"{id}\",\"parentId\":{parent},\"timestamp\":\"2026-01-02T03:04:06.000Z\",\
             \"message\":{{\"role\":\"user\",\"content\":{content},\"timestamp\":1}}}}"
        )
    };
    // Half a surrogate pair, which no text of ours can hold.
    let content = "[{\"type\":\"text\",\"text\":\"\\ud800 \\u00e9 \u{2028}\"}]";
    let text =
        format!("{}\n{}\n{}\r\n", header("s"), line("a", "null", content), line("b", "\"a\"", "\"x\""));
    archive.import_text("a.jsonl", text);
    let export = archive.export("s");
    assert!(export.contains(content), "{export}");
    assert!(export.contains("\"content\":\"x\""), "{export}");
}

/// A session of our own: its nodes are written as the engine writes them.
fn native(archive: &Archive, id: &str, below: Option<NodeId>, entries: &[Entry]) {
    let mut parent = below;
    let mut batch = Commit::default();
    for (at, entry) in (0_i64..).zip(entries) {
        let encoded = quipu_transcript::encode(entry, &StepInfo::default());
        let record = NodeRecord {
            parent,
            role: encoded.role,
            parts: encoded.blobs.iter().map(|blob| blob.id).collect(),
            timestamp: 1_800_000_000_000 + at,
            external_id: Some(format!("01900000-0000-7000-8000-{at:012x}")),
            system_prompt: None,
        };
        let node = Node::new(record, None, None);
        parent = Some(node.id);
        batch.blobs.extend(encoded.blobs);
        let chunks = encoded.chunks.into_iter();
        batch.chunks.extend(chunks.map(|(id, bytes)| NewChunk::Full { id, bytes: bytes.into() }));
        batch.nodes.push(node);
    }
    batch.moves.push(RefMove::swap(RefName::session(&id.into()), None, parent.unwrap(), "test"));
    block_on(archive.store.commit(batch)).unwrap();
}

fn start(id: &str, epoch: Epoch) -> Entry {
    Entry::Session(SessionStart {
        session: id.into(),
        cwd: "/work".into(),
        agent: "quipu".into(),
        parent_session: None,
        epoch,
    })
}

fn epoch(model: &str, thinking: Thinking) -> Epoch {
    Epoch { provider: "p".into(), model: model.into(), thinking, ..Epoch::default() }
}

fn values(export: &str) -> Vec<Value> {
    export.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn our_own_sessions_are_files_of_the_third_version() {
    let archive = archive();
    let label =
        json!({ "type": "label", "targetId": "01900000-0000-7000-8000-000000000001", "label": "here" });
    native(
        &archive,
        "own",
        None,
        &[
            start("own", epoch("m1", Thinking::Off)),
            Entry::Message(Message::user("first", 1)),
            Entry::Epoch(epoch("m2", Thinking::Off)),
            Entry::Epoch(epoch("m2", Thinking::High)),
            Entry::Epoch(Epoch { max_tokens: Some(5), ..epoch("m2", Thinking::High) }),
            Entry::Meta(Json::from(label)),
            Entry::Meta(Json::from(json!({ "type": "session_info", "name": "a name" }))),
            Entry::Message(Message::user("second", 2)),
        ],
    );
    let export = archive.export("own");
    let entries = values(&export);
    let kinds: Vec<&str> = entries.iter().map(|entry| entry["type"].as_str().unwrap()).collect();
    let (model, level) = ("model_change", "thinking_level_change");
    assert_eq!(kinds, ["session", model, level, "message", model, level, "label", "session_info", "message"]);
    assert_eq!(
        entries[0],
        json!({ "type": "session", "version": 3, "id": "own", "timestamp": "2027-01-15T08:00:00.000Z", "cwd": "/work" })
    );
    assert_eq!(entries[1]["parentId"], Value::Null);
    for pair in entries[1..].windows(2) {
        assert_eq!(pair[1]["parentId"], pair[0]["id"]);
        // A node of two lines gives its id to the second.
        let id = pair[0]["id"].as_str().unwrap();
        assert_eq!(id.strip_suffix("-model").unwrap_or(id).len(), 36);
    }
    assert_eq!(entries[6]["targetId"], entries[3]["id"]);
    assert_eq!(entries[5]["thinkingLevel"], "high");
    // It is ours: where it comes from nothing is added. Elsewhere it is read back as it was written.
    let report = archive.import_text("own.jsonl", &export);
    assert_eq!((report.added, report.present, report.repaired, report.lost), (0, 8, 0, 0));
    let elsewhere = crate::support::archive();
    for added in [8, 0] {
        let report = elsewhere.import_text(&format!("{added}.jsonl"), &export);
        assert_eq!((report.added, report.changed, report.repaired, report.lost), (added, 0, 0, 0));
    }
    assert_exports(&elsewhere.export("own"), &export);
}

#[test]
fn a_session_that_goes_on_from_an_imported_one_has_both() {
    let archive = archive();
    let compaction =
        json!({ "type": "compaction", "summary": "x", "firstKeptEntryId": "b", "tokensBefore": 5 });
    let compaction = entry("c", Some("b"), &compaction);
    let text = lines(&[header("s"), user("a", None, "1"), user("b", Some("a"), "2"), compaction.clone()]);
    let report = archive.import_text("a.jsonl", text);
    let kept = archive.lineage("s")[2].0;
    let ours = Compaction { summary: "all".into(), first_kept: Some(kept), ..Compaction::default() };
    native(
        &archive,
        "own",
        report.head,
        &[
            start("own", epoch("m1", Thinking::Off)),
            Entry::Message(Message::user("on", 1)),
            Entry::Compaction(ours),
        ],
    );
    let entries = values(&archive.export("own"));
    assert_eq!((&entries[0]["id"], &entries[0]["cwd"]), (&json!("own"), &json!("/work")));
    assert_eq!(as_script(&entries[3]), as_script(&compaction));
    assert_eq!(entries[4]["parentId"], "c");
    assert_eq!(entries[7]["summary"], "all");
    assert_eq!(entries[7]["firstKeptEntryId"], "b");
    // The imported session is as it was.
    assert_eq!(archive.export("s").lines().count(), 4);
}
