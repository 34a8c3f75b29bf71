//! What a commit writes, in pages and not in time.

use quipu_store::{Commit, RefMove, RefName, Store, Upkeep};
use rusqlite::{Connection, params};

use crate::support::*;

/// Bytes of the log before its first page, and of each page with its header.
const HEADER: u64 = 32;
const FRAME: u64 = 24 + 4096;
/// Enough for several groups of derived rows.
const COMMITS: i64 = 200;

/// Pages in the log, which nothing cut while it was read from.
fn pages(path: &std::path::Path) -> u64 {
    (std::fs::metadata(path.with_file_name("quipu.db-wal")).unwrap().len() - HEADER) / FRAME
}

/// A reader that keeps the log from beginning anew.
fn hold(path: &std::path::Path) -> Connection {
    let reader = Connection::open(path).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM nodes").unwrap();
    reader
}

#[tokio::test]
async fn a_commit_changes_hardly_more_pages_than_its_bare_statements() {
    let (ours, bare) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (ours, bare) = (ours.path().join("quipu.db"), bare.path().join("quipu.db"));
    // The same nodes for both, below the start of a session.
    let session = "s".into();
    let (base, mut start) = entry_commit(None, &session_start(&session, "/w", None), T);
    start.moves.push(RefMove::swap(RefName::session(&session), None, base, "start"));
    let mut steps = Vec::new();
    let mut parent = base;
    for n in 1..=COMMITS {
        let (id, mut commit) = entry_commit(Some(parent), &user(&format!("{n} ").repeat(300), T + n), T + n);
        commit.moves.push(RefMove::swap(RefName::session(&session), Some(parent), id, "append"));
        commit.moves.push(RefMove::publish(RefName::PI_HEAD.into(), id, "append"));
        steps.push(commit);
        parent = id;
    }
    for path in [&ours, &bare] {
        open(path).commit(start.clone()).await.unwrap();
    }

    let reader = hold(&bare);
    let connection = Connection::open(&bare).unwrap();
    let before = pages_of_bare(&connection, &[], &bare);
    let bare_pages = pages_of_bare(&connection, &steps, &bare) - before;
    drop((reader, connection));

    let store = open(&ours);
    let reader = hold(&ours);
    let (_, first) = text_commit(Some(base), "first", T);
    store.commit(first).await.unwrap();
    let before = pages(&ours);
    for step in steps {
        store.commit(step).await.unwrap();
    }
    let our_pages = pages(&ours) - before;
    drop(reader);
    assert_eq!(store.check().await.unwrap().problems, []);
    // A page and a half for each commit: derived rows are written in groups, and a slow machine makes more of them.
    let most = bare_pages + u64::try_from(COMMITS).unwrap() * 3 / 2;
    assert!(
        our_pages <= most,
        "{our_pages} pages, and {bare_pages} of bare statements, in {COMMITS} commits"
    );
}

fn pages_of_bare(connection: &Connection, steps: &[Commit], path: &std::path::Path) -> u64 {
    connection.execute_batch("PRAGMA wal_autocheckpoint = 0; PRAGMA synchronous = NORMAL").unwrap();
    connection.execute_batch("CREATE TABLE IF NOT EXISTS bare (x)").unwrap();
    for step in steps {
        let node = &step.nodes[0];
        let (id, parent) = (node.id.to_string(), node.record.parent.map(|parent| parent.to_string()));
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        for blob in &step.blobs {
            connection
                .execute(
                    "INSERT OR IGNORE INTO blobs (hash, type, content) VALUES (?1, ?2, ?3)",
                    params![blob.id.to_string(), blob.kind, blob.content],
                )
                .unwrap();
        }
        let record = &node.record;
        connection
            .execute(
                "INSERT INTO nodes (id, parent_id, role, parts_list, timestamp, external_id) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![id, parent, record.role, quipu_dag::write_parts_list(&record.parts), record.timestamp, record.external_id],
            )
            .unwrap();
        for moved in &step.moves {
            connection
                .execute(
                    "INSERT INTO refs (name, node_id) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET node_id = ?2",
                    params![moved.name.as_str(), id],
                )
                .unwrap();
        }
        connection.execute_batch("COMMIT").unwrap();
    }
    pages(path)
}
