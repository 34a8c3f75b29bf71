//! Copies of entries in several sessions count once, in whatever order nodes come.

use std::collections::BTreeMap;
use std::path::Path;

use proptest::prelude::*;
use quipu_dag::{Blob, Node, NodeRecord};
use quipu_protocol::{
    AssistantMessage, Content, Entry, Json, Message, NodeId, SessionId, StepInfo, ToolCall,
    ToolResultMessage, Usage,
};
use quipu_store::{ReadModel as _, SearchQuery, SqliteStore, Upkeep as _, UsageGrouping, UsageQuery};
use quipu_transcript::encode;
use rusqlite::Connection;

use crate::support::*;

/// A session: when it began, which one it was forked from, how many entries it copied of that, how many are its own.
#[derive(Debug, Clone)]
struct ForkSpec {
    from: usize,
    copied: usize,
    own: usize,
}

fn id_of(session: usize) -> SessionId {
    SessionId::from(format!("0190a5c0-0000-7000-8000-{session:012}"))
}

fn build(
    parent: Option<NodeId>,
    entry: &Entry,
    place: usize,
    id: Option<String>,
    at: i64,
) -> (Node, Vec<Blob>) {
    let mut step = StepInfo::default();
    step.extra.insert("pi".into(), Json::from(&serde_json::json!({ "n": place })));
    let encoded = encode(entry, &step);
    let record = NodeRecord {
        parent,
        role: encoded.role,
        parts: encoded.blobs.iter().map(|blob| blob.id).collect(),
        timestamp: at,
        external_id: id,
        system_prompt: None,
    };
    (Node::new(record, None, None), encoded.blobs)
}

/// What stands at a place of a session of that name: in turn a prompt, an answer that writes a file, and its result.
fn entry(owner: usize, place: usize) -> (Entry, String, i64) {
    let at = T + i64::try_from(owner * 10_000_000 + place * 1_000).unwrap();
    let entry = match place % 3 {
        0 => user(&format!("purple {owner} {place}"), at),
        1 => {
            let call = ToolCall {
                id: "c".into(),
                name: "write".into(),
                arguments: Json::from(
                    &serde_json::json!({ "path": format!("f{}", place % 2), "content": "" }),
                ),
                thought_signature: None,
                namespace: None,
            };
            Entry::Message(Message::Assistant(AssistantMessage {
                content: vec![Content::ToolCall(call)],
                usage: Usage { input: 1, output: 1, ..Usage::default() },
                ..AssistantMessage::default()
            }))
        }
        _ => Entry::Message(Message::ToolResult(ToolResultMessage {
            tool_call_id: "c".into(),
            tool_name: "write".into(),
            content: Vec::new(),
            details: None,
            usage: None,
            is_error: place.is_multiple_of(2),
            timestamp: at,
        })),
    };
    (entry, format!("e{owner}.{place}"), at)
}

/// Whose the entries of a session are, and the places that they have there.
type EntryOwners = Vec<(usize, usize)>;

/// All nodes, and the entries of each session.
fn nodes_of(sessions: &[ForkSpec]) -> (Vec<(Node, Vec<Blob>)>, Vec<EntryOwners>) {
    let (mut nodes, mut entries): (_, Vec<EntryOwners>) = (Vec::new(), Vec::new());
    for (at, forked) in sessions.iter().enumerate() {
        let mut start = session_start(&id_of(at), &format!("/w{at}"), None);
        if let Entry::Session(start) = &mut start {
            start.agent = "pi".into();
        }
        let began = T + i64::try_from(at).unwrap();
        let first = build(None, &start, 0, None, began);
        let mut parent = first.0.id;
        nodes.push(first);
        let copied = match at {
            0 => Vec::new(),
            _ => {
                let from = &entries[forked.from % at];
                from[..forked.copied.min(from.len())].to_vec()
            }
        };
        let own = copied.len()..copied.len() + forked.own;
        let of: EntryOwners = copied.into_iter().chain(own.map(|place| (at, place))).collect();
        for (place, (owner, theirs)) in of.iter().enumerate() {
            let (entry, id, time) = entry(*owner, *theirs);
            // As in a file from which other lines were left out.
            let built = build(Some(parent), &entry, place * 2 + at, Some(id), time);
            parent = built.0.id;
            nodes.push(built);
        }
        entries.push(of);
    }
    (nodes, entries)
}

fn insert(connection: &Connection, nodes: &[(Node, Vec<Blob>)]) {
    for (node, blobs) in nodes {
        for blob in blobs {
            connection
                .execute(
                    "INSERT OR IGNORE INTO blobs (hash, type, content) VALUES (?1, ?2, ?3)",
                    [blob.id.to_string(), blob.kind.clone(), blob.content.clone()],
                )
                .unwrap();
        }
        connection
            .execute(
                "INSERT INTO nodes (id, parent_id, role, parts_list, timestamp, external_id) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                rusqlite::params![
                    node.id.to_string(),
                    node.record.parent.map(|id| id.to_string()),
                    node.record.role,
                    quipu_dag::write_parts_list(&node.record.parts),
                    node.record.timestamp,
                    node.record.external_id,
                ],
            )
            .unwrap();
    }
}

/// Every row of what was done, but for the numbers of rows.
fn rows(path: &Path) -> Vec<String> {
    let connection = Connection::open(path).unwrap();
    let mut rows = Vec::new();
    for statement in [
        "SELECT 'use', s.id, slot, u.model, calls, input, output FROM quipu_x_use u JOIN quipu_x_session s ON s.num = session",
        "SELECT 'tool', s.id, slot, tool, calls, failed, 0 FROM quipu_x_tool t JOIN quipu_x_session s ON s.num = session",
        "SELECT 'touch', s.id, path, deed, times, at, n.id FROM quipu_x_touch JOIN quipu_x_session s ON s.num = session JOIN nodes n ON n.rowid = seq",
        "SELECT 'file', n.id, path, call, at, a.id, 0 FROM quipu_x_file JOIN nodes n ON n.rowid = seq LEFT JOIN nodes a ON a.rowid = asked",
        "SELECT 'asked', s.id, at, n.id, 0, 0, 0 FROM quipu_x_asked JOIN quipu_x_session s ON s.num = session JOIN nodes n ON n.rowid = seq",
    ] {
        let mut statement = connection.prepare(statement).unwrap();
        let found = statement.query_map([], |row| {
            Ok((0..7)
                .map(|at| format!("{:?} ", row.get::<_, rusqlite::types::Value>(at)))
                .collect::<String>())
        });
        rows.extend(found.unwrap().map(Result::unwrap));
    }
    rows.sort();
    rows
}

async fn check(store: &SqliteStore, entries: &[EntryOwners]) {
    let query = UsageQuery { by: UsageGrouping::Session, since: None, until: None };
    let known = store.usage(query).await.unwrap();
    assert_eq!(known.behind, 0);
    let calls: BTreeMap<String, u64> = known.found.iter().map(|sum| (sum.key.clone(), sum.calls)).collect();
    let mut expect = BTreeMap::new();
    let (mut said, mut writes) = (0, 0);
    for (at, entries) in entries.iter().enumerate() {
        let own = || entries.iter().filter(|(owner, _)| *owner == at);
        let answers = own().filter(|(_, place)| place % 3 == 1).count() as u64;
        expect.extend((answers > 0).then(|| (id_of(at).to_string(), answers)));
        said += own().filter(|(_, place)| place % 3 == 0).count();
        let done = own().filter(|(_, place)| place % 3 == 2 && place % 2 == 1).count() as u64;
        let touched = store.file_activity(&id_of(at)).await.unwrap().found;
        assert_eq!(touched.iter().map(|touched| touched.times).sum::<u64>(), done, "session {at}");
        writes += done;
    }
    assert_eq!(calls, expect);
    let query = SearchQuery { words: "purple".into(), limit: 10_000, ..SearchQuery::default() };
    while store.index().await.unwrap() != quipu_store::IndexBacklog::default() {}
    let found = store.search(query).await.unwrap();
    assert_eq!(found.hits.len(), said);
    for hit in &found.hits {
        let owner = hit.excerpt.text.split(' ').nth(1).unwrap().parse().unwrap();
        assert_eq!(hit.session, Some(id_of(owner)));
    }
    let paths: Vec<String> =
        (0..entries.len()).flat_map(|at| ["0", "1"].map(|file| format!("/w{at}/f{file}"))).collect();
    assert_eq!(store.changes(&paths).await.unwrap().found.len() as u64, writes);
}

fn sessions() -> impl Strategy<Value = Vec<ForkSpec>> {
    let forked = (0..10_usize, 0..14_usize, 0..7_usize);
    proptest::collection::vec(forked.prop_map(|(from, copied, own)| ForkSpec { from, copied, own }), 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn copies_count_once_in_any_order(
        sessions in sessions(),
        order in proptest::collection::vec(any::<u32>(), 120),
        pieces in proptest::collection::vec(1..40_usize, 1..8),
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("twins.db");
            let (nodes, entries) = nodes_of(&sessions);
            // In any order, children before their parents too; looked at in between.
            let mut nodes: Vec<_> = nodes.into_iter().zip(order.iter().chain(std::iter::repeat(&0))).collect();
            nodes.sort_by_key(|(_, order)| **order);
            let nodes: Vec<_> = nodes.into_iter().map(|(node, _)| node).collect();
            let mut rest = nodes.as_slice();
            let mut pieces = pieces.into_iter();
            let mut store = open(&path);
            while !rest.is_empty() {
                let (some, more) = rest.split_at(pieces.next().unwrap_or(rest.len()).min(rest.len()));
                insert(&Connection::open(&path).unwrap(), some);
                rest = more;
                store.usage(UsageQuery { by: UsageGrouping::Time, since: None, until: None }).await.unwrap();
            }
            check(&store, &entries).await;
            drop(store);
            let before = rows(&path);
            store = open(&path);
            store.rebuild().await.unwrap();
            check(&store, &entries).await;
            drop(store);
            assert_eq!(rows(&path), before);
        });
    }
}
