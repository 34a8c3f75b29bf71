//! What was spent since when: kept with each commit, made anew, missing in older files.

use quipu_dag::{Node, NodeRecord};
use quipu_protocol::{CallRecord, Compaction, Entry, Message, NodeId, SessionId, StepInfo, Usage};
use quipu_store::{
    Commit, Graph, Op, ReadModel as _, RefMove, RefName, Reservation, ReserveId, ReserveRequest, SqliteStore,
    Store as _, Upkeep,
};
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

async fn session(store: &dyn Graph, name: &str, at: i64) -> NodeId {
    let id = SessionId::from(name);
    let (base, mut commit) = entry_commit(None, &session_start(&id, "/work", None), at);
    commit.moves.push(RefMove::swap(RefName::session(&id), None, base, "start"));
    store.commit(commit).await.unwrap();
    base
}

/// Dollars since each time, to the cent.
async fn cents(store: &dyn Graph, since: &[i64]) -> Vec<f64> {
    let mut found = Vec::new();
    for at in since {
        found.push((store.spent(*at).await.unwrap() * 100.0).round());
    }
    found
}

/// Two sessions that spend over three quarter hours.
async fn spend(store: &dyn Graph) {
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
async fn spending_covers_all_sessions_and_survives_a_rebuild() {
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
async fn spending_is_visible_to_other_processes_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let (writer, reader) = (open(&path), open(&path));
    spend(&writer).await;
    assert_eq!(cents(&reader, &SINCE).await, EXPECTED);
}

#[tokio::test]
async fn spending_of_an_older_file_is_counted_on_open() {
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

const DOLLAR: i64 = 1_000_000_000;

/// A call that costs two dollars at most and one at least asks at this time, on a day with five dollars.
fn ask(id: &str, now: i64) -> ReserveRequest {
    ReserveRequest {
        id: ReserveId(id.into()),
        since: START,
        now,
        expires: now + 100,
        limit: 5 * DOLLAR,
        elsewhere: 0,
        full: 2 * DOLLAR,
        least: DOLLAR,
        settles: false,
    }
}

fn release(id: &str, charged: i64) -> Op {
    Op::Release { id: ReserveId(id.into()), charged }
}

fn op(op: Op) -> Commit {
    Commit { ops: vec![op], ..Commit::default() }
}

#[tokio::test]
async fn reservations_hold_across_processes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let (one, two) = (open(&path), open(&path));
    let said = |granted: Option<i64>, spent: i64, others: i64| Reservation {
        granted: granted.map(|granted| granted * DOLLAR),
        spent: spent * DOLLAR,
        others: others * DOLLAR,
    };
    let now = START + 10;
    assert_eq!(one.reserve(ask("a", now)).await.unwrap(), said(Some(2), 0, 0));
    assert_eq!(two.reserve(ask("b", now)).await.unwrap(), said(Some(2), 0, 2));
    // The same call asks again, for instance for the next piece of a summary.
    assert_eq!(two.reserve(ask("b", now)).await.unwrap(), said(Some(2), 0, 2));
    // Only others stand in the way: it waits, and takes less when it waited enough.
    assert_eq!(two.reserve(ask("c", now)).await.unwrap(), said(None, 0, 4));
    assert_eq!(
        two.reserve(ReserveRequest { settles: true, ..ask("c", now) }).await.unwrap(),
        said(Some(1), 0, 4)
    );
    assert_eq!(
        one.reserve(ReserveRequest { settles: true, ..ask("d", now) }).await.unwrap(),
        said(None, 0, 5)
    );
    two.commit(op(release("c", 0))).await.unwrap();

    // What a call cost takes the place of what was reserved, in one commit.
    let base = session(&one, "one", START + 11).await;
    let mut paid = answer(base, 3.0, START + 12, Some(call()));
    paid.ops.push(release("a", 0));
    one.commit(paid).await.unwrap();
    // Waiting would not help: it takes what there is, if that is enough.
    assert_eq!(two.reserve(ask("c", now)).await.unwrap(), said(None, 3, 2));
    two.commit(op(release("b", 0))).await.unwrap();
    assert_eq!(
        two.reserve(ReserveRequest { full: 3 * DOLLAR, ..ask("c", now) }).await.unwrap(),
        said(Some(2), 3, 0)
    );
    assert_eq!(one.check().await.unwrap().problems, []);
}

#[tokio::test]
async fn reservations_of_a_purpose_stand_beside_those_of_the_day() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let (one, two) = (open(&path), open(&path));
    let now = START + 10;
    let base = session(&one, "one", START + 11).await;
    one.commit(answer(base, 1.0, START + 12, Some(call()))).await.unwrap();
    let of = |purpose: &str, id: &str| {
        let id = ReserveId::of_purpose(purpose, id);
        ReserveRequest { limit: 3 * DOLLAR, ..ask(&id.0, now) }
    };
    let said = async |store: &SqliteStore, ask: ReserveRequest| {
        let Reservation { granted, spent, others } = store.reserve(ask).await.unwrap();
        (granted.map(|granted| granted / DOLLAR), spent / DOLLAR, others / DOLLAR)
    };
    // What nodes cost is for who asks to say.
    assert_eq!(said(&one, of("past", "a")).await, (Some(2), 0, 0));
    assert_eq!(said(&two, of("past", "b")).await, (None, 0, 2), "another process");
    assert_eq!(said(&two, of("past-2", "c")).await, (Some(2), 0, 0), "another purpose");
    assert_eq!(said(&two, ask("d", now)).await, (Some(2), 1, 0), "the day has its own");
    assert_eq!(said(&one, ReserveRequest { elsewhere: DOLLAR, ..of("past", "a") }).await, (Some(2), 1, 0));
    // What broke off counts for the purpose, and once for the day.
    one.commit(op(release("past/a", DOLLAR))).await.unwrap();
    assert_eq!(said(&two, of("past", "b")).await, (Some(2), 1, 0));
    assert!(two.assumed(START, now).await.unwrap() == 0.0);
    assert_eq!(one.check().await.unwrap().problems, []);
}

#[tokio::test]
async fn account_keeps_what_its_calls_used_until_the_next_day() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let (one, two) = (open(&path), open(&path));
    let now = START + 10;
    let of = |account: &str, id: &str, now: i64| {
        let id = ReserveId::of_purpose(account, id);
        ReserveRequest { limit: 3 * DOLLAR, ..ask(&id.0, now) }
    };
    let said = async |store: &SqliteStore, ask: ReserveRequest| {
        let Reservation { granted, spent, others } = store.reserve(ask).await.unwrap();
        (granted.map(|granted| granted / DOLLAR), spent / DOLLAR, others / DOLLAR)
    };
    let spend = |id: &str, amount: i64| op(Op::Spend { id: ReserveId(id.into()), amount });
    assert_eq!(said(&one, of("agent:ops", "a", now)).await, (Some(2), 0, 0));
    assert_eq!(said(&two, of("agent:ops", "b", now)).await, (None, 0, 2), "another process");
    assert_eq!(said(&two, of("agent:main", "c", now)).await, (Some(2), 0, 0), "another account");
    one.commit(spend("agent:ops/a", DOLLAR)).await.unwrap();
    // Once.
    one.commit(spend("agent:ops/a", DOLLAR)).await.unwrap();
    assert_eq!(said(&two, of("agent:ops", "b", now)).await, (Some(2), 1, 0));
    two.commit(spend("agent:ops/b", 0)).await.unwrap();
    for nth in 0..50 {
        said(&two, ReserveRequest { full: 1, least: 1, ..of("agent:ops", &nth.to_string(), now + nth) })
            .await;
        two.commit(spend(&format!("agent:ops/{nth}"), DOLLAR / 50)).await.unwrap();
    }
    drop(one);
    let later = now + 2 * QUARTER;
    // The process that asked for it is gone.
    assert_eq!(said(&two, ReserveRequest { full: 1, least: 1, ..of("agent:ops", "d", later) }).await.1, 2);
    assert_eq!(two.spent_of("agent:ops", START, later + 99).await.unwrap(), 2 * DOLLAR);
    assert_eq!(two.spent_of("agent:ops", START, later + 100).await.unwrap(), 2 * DOLLAR + 1);
    assert_eq!(two.spent_of("agent", START, later + 100).await.unwrap(), 0);
    // Many calls of a quarter hour are one row.
    let rows = rusqlite::Connection::open(&path).unwrap();
    let count =
        || rows.query_row("SELECT count(*) FROM quipu_reserve", [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(count(), 3, "what is spent, what is lost, and that of the other account");
    assert_eq!(two.assumed(START, later).await.unwrap(), 0.0, "the day has its own");
    assert_eq!(two.check().await.unwrap().problems, []);
    let since = START + 24 * 4 * QUARTER;
    let tomorrow = ReserveRequest { since, ..of("agent:ops", "e", since + 1) };
    assert_eq!(said(&two, tomorrow).await, (Some(2), 0, 0));
    // Of a process whose day began later, and behind a clock that is set back, the day before counts still.
    assert_eq!(two.spent_of("agent:ops", START, later + 100).await.unwrap(), 2 * DOLLAR + 1);
    let since = START + 5 * 24 * 4 * QUARTER;
    let much_later = ReserveRequest { since, ..of("agent:ops", "f", since + 1) };
    assert_eq!(said(&two, much_later).await, (Some(2), 0, 0));
    assert_eq!(count(), 1, "what is over for days is forgotten");
}

#[tokio::test]
async fn expired_reservation_counts_as_spent_for_the_day() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let store = open(&path);
    let now = START + 10;
    store.reserve(ask("a", now)).await.unwrap();
    store.commit(op(Op::Renew { id: ReserveId("a".into()), expires: now + 500 })).await.unwrap();
    let held = store.reserve(ask("b", now + 499)).await.unwrap();
    assert_eq!((held.spent, held.others), (0, 2 * DOLLAR));
    store.commit(op(release("b", 0))).await.unwrap();
    drop(store);
    let store = open(&path);
    let lost = store.reserve(ask("b", now + 500)).await.unwrap();
    assert_eq!((lost.spent, lost.others), (2 * DOLLAR, 0));
    store.commit(op(release("b", 0))).await.unwrap();
    let since = START + 24 * 4 * QUARTER;
    let tomorrow = store.reserve(ReserveRequest { since, ..ask("b", since + 1) }).await.unwrap();
    assert_eq!((tomorrow.spent, tomorrow.others), (0, 0));
    store.commit(op(release("b", 0))).await.unwrap();
    let since = START + 5 * 24 * 4 * QUARTER;
    let later = store.reserve(ReserveRequest { since, ..ask("b", since + 1) }).await.unwrap();
    assert_eq!((later.spent, later.others), (0, 0));
    // It is gone.
    let again = store.reserve(ask("c", since + 1)).await.unwrap();
    assert_eq!((again.spent, again.others), (0, 2 * DOLLAR));
}

#[tokio::test]
async fn charged_cost_without_a_node_counts_for_the_day() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let store = open(&path);
    let now = START + 10;
    store.reserve(ask("a", now)).await.unwrap();
    assert_eq!(store.assumed(START, now).await.unwrap(), 0.0, "it is reserved");
    let base = session(&store, "one", now).await;
    let mut paid = answer(base, 0.5, now, Some(call()));
    paid.ops.push(release("a", DOLLAR));
    store.commit(paid).await.unwrap();
    // There is nothing to renew any more.
    store.commit(op(Op::Renew { id: ReserveId("x".into()), expires: now + 500 })).await.unwrap();
    drop(store);
    let store = open(&path);
    assert_eq!(store.assumed(START, now).await.unwrap(), 1.0);
    assert_eq!(store.assumed(now + 1, now + 1).await.unwrap(), 0.0);
    assert_eq!(store.spent(START).await.unwrap(), 0.5);
    let next = store.reserve(ask("b", now)).await.unwrap();
    assert_eq!((next.spent, next.others), (DOLLAR + DOLLAR / 2, 0));
    assert_eq!(store.check().await.unwrap().problems, []);
}

#[tokio::test]
async fn a_file_without_the_table_of_reservations_gets_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    drop(open(&path));
    rusqlite::Connection::open(&path).unwrap().execute_batch("DROP TABLE quipu_reserve").unwrap();
    let store = open(&path);
    assert_eq!(store.reserve(ask("a", START)).await.unwrap().granted, Some(2 * DOLLAR));
}
