//! What was spent since when: kept with each commit, made anew, missing in older files.

use quipu_dag::{Node, NodeRecord};
use quipu_protocol::{CallRecord, Compaction, Entry, Message, NodeId, SessionId, StepInfo, Usage};
use quipu_store::{Commit, RefMove, RefName, SqliteStore, Store, Upkeep};
use quipu_transcript::encode;
use serde_json::json;

use crate::support::*;

const QUARTER: i64 = 15 * 60 * 1000;
/// A quarter hour begins.
const START: i64 = T - T % QUARTER + QUARTER;

fn call() -> CallRecord {
    let hash = "0".repeat(64);
    serde_json::from_value(json!({
        "api": "a", "provider": "p", "model": "m", "local": false, "projection": 1, "head": hash, "tools": hash,
        "body": hash, "bodyBytes": 0, "started": 0,
    }))
    .unwrap()
}

/// An answer that cost so much. Without a call it was imported.
fn answer(parent: NodeId, dollars: f64, at: i64, call: Option<CallRecord>) -> Commit {
    let message: Message = serde_json::from_value(json!({
        "role": "assistant", "content": [{ "type": "text", "text": "done" }], "api": "a", "provider": "p", "model": "m",
        "usage": { "cost": { "total": dollars } }, "stopReason": "stop", "timestamp": at,
    }))
    .unwrap();
    entry(parent, &Entry::Message(message), at, call)
}

/// A summary that cost so much.
fn summary(parent: NodeId, dollars: f64, at: i64, call: Option<CallRecord>) -> Commit {
    let mut usage = Usage::default();
    usage.cost.total = dollars;
    let compaction = Compaction { summary: "s".into(), usage: Some(usage), ..Compaction::default() };
    entry(parent, &Entry::Compaction(compaction), at, call)
}

fn entry(parent: NodeId, entry: &Entry, at: i64, call: Option<CallRecord>) -> Commit {
    let encoded = encode(entry, &StepInfo { call, ..StepInfo::default() });
    let record = NodeRecord {
        parent: Some(parent),
        role: encoded.role,
        parts: encoded.blobs.iter().map(|blob| blob.id).collect(),
        timestamp: at,
        external_id: Some(format!("0190a5c0-0000-7000-8000-{:012x}", at - T)),
        system_prompt: None,
    };
    let node = Node::new(record, None, None);
    Commit { blobs: encoded.blobs, nodes: vec![node], ..Commit::default() }
}

async fn session(store: &dyn Store, name: &str, at: i64) -> NodeId {
    let id = SessionId::from(name);
    let (base, mut commit) = entry_commit(None, &session_start(&id, "/work", None), at);
    commit.moves.push(RefMove::swap(RefName::session(&id), None, base, "start"));
    store.commit(commit).await.unwrap();
    base
}

/// Dollars since each time, to the cent.
async fn cents(store: &dyn Store, since: &[i64]) -> Vec<f64> {
    let mut found = Vec::new();
    for at in since {
        found.push((store.spent(*at).await.unwrap() * 100.0).round());
    }
    found
}

/// Two sessions that spend over three quarter hours.
async fn spend(store: &dyn Store) {
    let (one, two) = (session(store, "one", T + 1).await, session(store, "two", T + 2).await);
    let steps = [
        (one, 0.01, START - 1, Some(call())),
        (one, 0.02, START, Some(call())),
        (two, 0.04, START + 1, Some(call())),
        (two, 0.08, START + QUARTER, Some(call())),
        // Free, imported, and of a program that writes nonsense.
        (one, 0.0, START + 2, Some(call())),
        (one, 5.0, START + 3, None),
        (two, -5.0, START + 4, Some(call())),
    ];
    for (parent, dollars, at, call) in steps {
        store.commit(answer(parent, dollars, at, call)).await.unwrap();
    }
    store.commit(summary(one, 0.16, START + QUARTER + 1, Some(call()))).await.unwrap();
    store.commit(summary(two, 5.0, START + QUARTER + 2, None)).await.unwrap();
    let branch = json!({ "type": "branch_summary", "summary": "s", "usage": { "cost": { "total": 0.32 } } });
    let branch = Entry::Meta(quipu_protocol::Json::from(&branch));
    store.commit(entry(two, &branch, START + QUARTER + 3, Some(call()))).await.unwrap();
    store.commit(entry(two, &branch, START + QUARTER + 4, None)).await.unwrap();
}

const SINCE: [i64; 6] = [0, START - 1, START, START + QUARTER, START + QUARTER + 1, START + 2 * QUARTER];
const EXPECTED: [f64; 6] = [63.0, 63.0, 62.0, 56.0, 56.0, 0.0];

#[tokio::test]
async fn is_counted_over_all_sessions_and_the_same_after_a_rebuild() {
    let dir = tempfile::tempdir().unwrap();
    for store in [SqliteStore::in_memory().unwrap(), open(&dir.path().join("quipu.db"))] {
        assert_eq!(cents(&store, &SINCE).await, [0.0; 6]);
        spend(&store).await;
        assert_eq!(cents(&store, &SINCE).await, EXPECTED);
        store.rebuild().await.unwrap();
        assert_eq!(cents(&store, &SINCE).await, EXPECTED);
        assert_eq!(store.check().await.unwrap().problems, []);
    }
}

#[tokio::test]
async fn is_seen_by_other_processes_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let (writer, reader) = (open(&path), open(&path));
    spend(&writer).await;
    assert_eq!(cents(&reader, &SINCE).await, EXPECTED);
}

#[tokio::test]
async fn a_file_of_an_older_program_is_counted_when_it_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let store = open(&path);
    spend(&store).await;
    drop(store);
    let forget = || {
        let older = rusqlite::Connection::open(&path).unwrap();
        older.execute_batch("DROP TABLE quipu_x_spend").unwrap();
    };
    forget();
    let store = open(&path);
    assert_eq!(cents(&store, &SINCE).await, EXPECTED);
    assert_eq!(store.check().await.unwrap().problems, []);
    drop(store);
    // It cannot be written: what it lacks is made in memory.
    forget();
    let mode = |mode| std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode));
    mode(0o400).unwrap();
    let store = open(&path);
    assert_eq!(cents(&store, &SINCE).await, EXPECTED);
    drop(store);
    mode(0o600).unwrap();
}
