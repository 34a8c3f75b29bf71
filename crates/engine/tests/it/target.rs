//! Where a session can be set, when parts of the graph are gone.

use std::sync::Arc;

use quipu::history::{Illegal, legal_target};
use quipu::protocol::NodeId;
use quipu::store::{Commit, SqliteStore, Store as _};
use quipu_dag::{Blob, Node, NodeRecord};
use serde_json::json;

use crate::storage::{FailingStore, errors, failing};

/// A root, an answer with two calls, their results, what was said then, and an answer to it.
async fn world() -> (Arc<FailingStore>, Vec<Node>) {
    let inner = Arc::new(SqliteStore::in_memory().unwrap());
    let blob = |kind: &str, json: serde_json::Value| Blob::new(kind, json.to_string()).unwrap();
    let call = |id: &str| blob("tool_call", json!({ "id": id, "name": "read", "arguments": { "path": id } }));
    let result =
        |id: &str| blob("tool_result", json!({ "toolCallId": id, "toolName": "read", "content": id }));
    let rows = [
        ("user", vec![Blob::text("look")]),
        ("assistant", vec![Blob::text("both"), call("a"), call("b")]),
        ("toolResult", vec![result("a")]),
        ("toolResult", vec![result("b")]),
        ("user", vec![Blob::text("and now")]),
        ("assistant", vec![Blob::text("done")]),
    ];
    let mut commit = Commit::default();
    for (at, (role, blobs)) in rows.into_iter().enumerate() {
        let record = NodeRecord {
            parent: commit.nodes.last().map(|node: &Node| node.id),
            role: role.into(),
            parts: blobs.iter().map(|blob| blob.id).collect(),
            timestamp: i64::try_from(at).unwrap(),
            external_id: None,
            system_prompt: None,
        };
        commit.nodes.push(Node::new(record, None, None));
        commit.blobs.extend(blobs);
    }
    let nodes = commit.nodes.clone();
    inner.commit(commit).await.unwrap();
    let [error, ..] = errors();
    (failing(&inner, usize::MAX, 0, error), nodes)
}

#[tokio::test]
async fn lost_results_make_no_node_legal() {
    let (store, nodes) = world().await;
    let ids: Vec<NodeId> = nodes.iter().map(|node| node.id).collect();
    let all = async |gone: &[[u8; 32]]| {
        *store.gone.lock().unwrap() = gone.iter().copied().collect();
        let mut found = Vec::new();
        for id in &ids {
            let legal = legal_target(&*store, *id).await.ok();
            found.push(legal.map(|legal| (legal.illegal, legal.nearest)));
        }
        found
    };
    let fine = |at: usize| Some((None, Some(ids[at])));
    let waits = |calls: &[&str]| Some(Illegal::Unanswered(calls.iter().map(|id| (*id).into()).collect()));
    let start = Some(ids[0]);
    let begun = [fine(0), Some((waits(&["a", "b"]), start)), Some((waits(&["b"]), start))];
    assert_eq!(all(&[]).await, [&begun[..], &[fine(3), fine(4), fine(5)]].concat());

    // A call: nobody knows what the answer waits for.
    let unreadable = || Some((Some(Illegal::Unreadable), start));
    let half = [fine(0), unreadable(), unreadable(), unreadable(), unreadable(), fine(5)];
    assert_eq!(all(&[nodes[1].record.parts[2].0]).await, half);
    // A result: its call has none.
    let waits_for_a = || Some((waits(&["a"]), start));
    let result =
        [begun[0].clone(), begun[1].clone(), begun[1].clone(), waits_for_a(), waits_for_a(), fine(5)];
    assert_eq!(all(&[nodes[2].record.parts[0].0]).await, result);
    // What the user said: no call is touched by it.
    assert_eq!(all(&[nodes[4].record.parts[0].0]).await, all(&[]).await);
    // A node: what stands below it has no beginning, up to the next answer.
    let lost = || Some((Some(Illegal::Lost), None));
    assert_eq!(all(&[ids[1].0]).await, [fine(0), None, lost(), lost(), lost(), fine(5)]);
    assert_eq!(all(&[ids[3].0]).await, [&begun[..], &[None, lost(), fine(5)]].concat());
}
