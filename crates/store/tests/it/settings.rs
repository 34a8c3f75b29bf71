//! The nearest nodes that say how a session is set: on their own lineage, the same after a rebuild, missing in older files.

use quipu_protocol::{Checkpoint, Compaction, Entry, Epoch, Json, NodeId, SessionId};
use quipu_store::{Graph, SqliteStore, Upkeep};
use serde_json::json;

use crate::support::*;

/// Appends an entry; what is written later stands later.
async fn add(store: &dyn Graph, parent: Option<NodeId>, at: i64, entry: &Entry) -> NodeId {
    let (node, commit) = entry_commit(parent, entry, T + at);
    store.commit(commit).await.unwrap();
    node
}

fn meta(json: &serde_json::Value) -> Entry {
    Entry::Meta(Json::from(json))
}

/// Two branches of a session, each with its own settings. Gives nodes and what is said at each, the nearest first.
async fn write(store: &dyn Graph) -> Vec<(NodeId, Vec<NodeId>)> {
    let id = SessionId::from("s");
    let model = |name: &str| meta(&json!({ "type": "model_change", "provider": "p", "modelId": name }));
    let base = add(store, None, 0, &session_start(&id, "/work", None)).await;
    let one = add(store, Some(base), 1, &model("one")).await;
    let thinking = meta(&json!({ "type": "thinking_level_change", "thinkingLevel": "high" }));
    let high = add(store, Some(one), 2, &thinking).await;
    let said = add(store, Some(high), 3, &user("one", 3)).await;
    let label =
        meta(&json!({ "type": "label", "targetId": "model_change", "label": "thinking_level_change" }));
    let left = add(store, Some(said), 4, &label).await;
    let two = add(store, Some(said), 5, &model("two")).await;
    let plain = Compaction { summary: "s".into(), ..Compaction::default() };
    let compacted = add(store, Some(two), 6, &Entry::Compaction(plain.clone())).await;
    let epoch = add(store, Some(compacted), 7, &Entry::Epoch(Epoch::default())).await;
    let checkpoint = Some(Checkpoint { session: id, epoch: Epoch::default() });
    let checkpoint = add(store, Some(epoch), 8, &Entry::Compaction(Compaction { checkpoint, ..plain })).await;
    // A session below it is another one.
    let below = add(store, Some(checkpoint), 9, &session_start(&"t".into(), "/work", None)).await;
    let last = add(store, Some(below), 10, &user("two", 10)).await;
    vec![
        (base, vec![base]),
        (left, vec![high, one, base]),
        (two, vec![two, high, base]),
        (compacted, vec![two, high, base]),
        (epoch, vec![epoch, two, high, base]),
        (checkpoint, vec![checkpoint, epoch, two, high]),
        (last, vec![below]),
        (NodeId([9; 32]), vec![]),
    ]
}

async fn check(store: &dyn Graph, expected: &[(NodeId, Vec<NodeId>)]) {
    for (node, said) in expected {
        let found: Vec<NodeId> = store.settings(*node).await.unwrap().iter().map(|node| node.id).collect();
        assert_eq!(found, *said, "{node}");
    }
}

#[tokio::test]
async fn nearest_setting_on_the_lineage_counts() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    for store in [SqliteStore::in_memory().unwrap(), open(&path)] {
        let expected = write(&store).await;
        check(&store, &expected).await;
        store.rebuild().await.unwrap();
        check(&store, &expected).await;
        assert_eq!(store.check().await.unwrap().problems, []);
    }
}

#[tokio::test]
async fn settings_of_an_older_file_are_read_on_open() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let store = open(&path);
    let expected = write(&store).await;
    drop(store);
    let older = rusqlite::Connection::open(&path).unwrap();
    older.execute_batch("DROP TABLE quipu_x_setting").unwrap();
    drop(older);
    check(&open(&path), &expected).await;
}
