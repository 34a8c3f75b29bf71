use quipu_dag::Blob;

use super::*;
use crate::sqlite::job::LARGE;
use crate::{Commit, OpenOptions, SqliteStore, Store as _};

/// How many transactions these commits make, queued while the writer is busy with another one.
async fn transactions(commits: Vec<Commit>) -> u64 {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&dir.path().join("quipu.db"), &OpenOptions::default()).unwrap();
    let writer = store.writer().unwrap();
    let changes = writer.changes();
    let (begun, has_begun) = channel();
    let (go, wait) = channel();
    let busy = move |_: &Connection| {
        begun.send(()).unwrap();
        wait.recv().unwrap();
        Ok(())
    };
    let (busy, answer) = Work::new(Durability::Process, writer.place.clone(), busy);
    writer.submit(busy).await.unwrap();
    has_begun.recv().unwrap();
    let committed = futures_util::future::join_all(commits.into_iter().map(|commit| store.commit(commit)));
    // Each is queued when it is asked for the first time.
    let (committed, ()) = tokio::join!(biased; committed, async { go.send(()).unwrap() });
    assert!(committed.iter().all(Result::is_ok), "{committed:?}");
    answer.await.unwrap().unwrap();
    let all = *changes.borrow();
    all - 1
}

/// A commit of so many blobs.
fn blobs(name: &str, count: usize) -> Commit {
    let blobs = (0..count).map(|number| Blob::text(&format!("{name} {number}"))).collect();
    Commit { blobs, ..Commit::default() }
}

#[tokio::test]
async fn small_commits_share_a_transaction() {
    assert_eq!(transactions(vec![blobs("a", 1), blobs("b", 1), blobs("c", 1)]).await, 1);
}

/// In a savepoint, SQLite would keep in memory how each of its pages was before it.
#[tokio::test]
async fn a_large_commit_has_a_transaction_of_its_own() {
    assert_eq!(transactions(vec![blobs("a", 1), blobs("b", LARGE), blobs("c", 1), blobs("d", 1)]).await, 3);
    assert_eq!(transactions(vec![blobs("a", LARGE), blobs("b", LARGE)]).await, 2);
}
