//! What is looked for in words of the format, and what is told of it.

use std::sync::Arc;

use quipu_dag::{Blob, Node, NodeRecord};
use quipu_store::{
    Commit, ContentHolder as _, ContentQuery, EraseTargets, FoundPlace, OwnerDeathCheck, SqliteStore,
    Store as _, StoreHolder,
};

#[tokio::test]
async fn needle_in_a_member_name_is_reported_and_kept() {
    let store = Arc::new(SqliteStore::in_memory().unwrap());
    let own = r#"{"entry":"message","message":{"stopReason":"toolUse","toolName":"quince"},"v":1}"#;
    let call = |code: &str| format!(r#"{{"arguments":{{"{code}":4711}},"id":"c1","name":"quince"}}"#);
    let blobs = [
        Blob::new("tool_call", call("stopReason")).unwrap(),
        Blob::new("tool_call", call("other")).unwrap(),
        Blob::new("quipu", own).unwrap(),
    ];
    let record = NodeRecord {
        parent: None,
        role: "assistant".into(),
        parts: blobs.iter().map(|blob| blob.id).collect(),
        timestamp: 1_700_000_000_000,
        external_id: None,
        system_prompt: None,
    };
    let nodes = vec![Node::new(record, None, None)];
    store.commit(Commit { blobs: blobs.to_vec(), nodes, ..Commit::default() }).await.unwrap();
    let is_dead: OwnerDeathCheck = Arc::new(|_| false);
    let graph = StoreHolder::all(&store, &is_dead).swap_remove(0);
    let ids = blobs.each_ref().map(|blob| blob.id);

    // Only in what stays: told, not found, and nothing changes.
    let targets = EraseTargets::of_needle("quince", "a test");
    let page = graph.find(&ContentQuery::of(targets.selection.clone())).await.unwrap();
    assert_eq!(page.found, []);
    let erased = graph.erase(&targets).await.unwrap();
    assert_eq!((erased.count, erased.kept_count), (0, 3));
    let left: Vec<_> = store.blobs(&ids).await.unwrap().into_iter().flatten().collect();
    assert_eq!(left, blobs);

    // In arguments it is content, even as a name; in our part it is a word of the format.
    let erased = graph.erase(&EraseTargets::of_needle("stopReason", "a test")).await.unwrap();
    assert_eq!((erased.count, erased.kept_count), (1, 1));
    assert_eq!(erased.kept[0].place, FoundPlace::Blob(ids[2]));
    let left: Vec<_> = store.blobs(&ids).await.unwrap().into_iter().flatten().collect();
    assert_eq!(left[0].content, r#"{"arguments":{},"id":"c1","name":"quince"}"#);
    assert_eq!(left[1..], blobs[1..]);
    // A number in arguments, too.
    assert_eq!(graph.erase(&EraseTargets::of_needle("4711", "a test")).await.unwrap().count, 1);
}
