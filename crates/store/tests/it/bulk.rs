//! Many commits as few: what is gathered is what the commits would have written.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use quipu_protocol::{ItemId, NodeId, SessionId};
use quipu_store::{
    Action, ActionQuery, Bulk, Commit, Extent, LineageEnd, Local as _, NewChunk, RefExpectation, RefMove,
    RefName, SqliteStore, Store, StoreError, Upkeep, Window,
};
use rusqlite::Connection;

use crate::child::command;
use crate::support::*;

/// As if the store were large: everything is gathered.
pub(crate) fn gather(dir: &Path) -> Bulk {
    Bulk::new(Extent { nodes: 1 << 20, spool: Some(dir.to_owned()) })
}

/// Commits all pieces of a window; says how many they were.
pub(crate) async fn write(store: &SqliteStore, window: Option<Window>) -> Result<usize, StoreError> {
    let (mut count, mut done) = (0, 0);
    let Some(mut window) = window else { return Ok(0) };
    while let Some(piece) = window.piece()? {
        assert!(piece.done >= done && piece.done <= 1_000, "{} after {done}", piece.done);
        done = piece.done;
        store.commit(piece.commit).await?;
        count += 1;
    }
    assert_eq!(done, 1_000);
    Ok(count)
}

fn publish(at: NodeId, name: &str) -> RefMove {
    RefMove::publish(RefName::from(name), at, "bulk")
}

fn leave(name: &str) -> RefMove {
    RefMove {
        name: RefName::from(name),
        expect: RefExpectation::Any,
        to: None,
        fence: None,
        why: "bulk".to_owned(),
    }
}

/// Commits as an import makes them: branches, texts that come twice, a chunk, an action, refs that come and go.
fn commits() -> Vec<Commit> {
    let mut commits = Vec::new();
    let mut ids: Vec<NodeId> = Vec::new();
    for n in 0..40_i64 {
        let mut whole = Commit::default();
        for m in 0..50_usize {
            let parent = match ids.len() {
                0 => None,
                len if m == 0 => ids.get(usize::try_from(n).unwrap() * 7 % len).copied(),
                len => ids.get(len - 1).copied(),
            };
            let at = T + n * 50 + i64::try_from(m).unwrap();
            let (id, commit) = text_commit(parent, &format!("text {}", (at - T) % 700), at);
            ids.push(id);
            whole.blobs.extend(commit.blobs);
            whole.nodes.extend(commit.nodes);
        }
        let last = ids[ids.len() - 1];
        whole.moves.push(publish(last, &format!("end/{n}")));
        whole.moves.push(publish(last, "published"));
        if n % 3 > 0 {
            whole.moves.push(leave(&format!("end/{}", n - 1)));
        }
        if n % 10 == 0 {
            let bytes = noise(n.unsigned_abs(), 5_000);
            whole.chunks.push(NewChunk::Full { id: chunk_id(&bytes), bytes: Arc::from(bytes) });
            let name = RefName::from("swapped");
            let expect = (n > 0).then(|| ids[ids.len() - 1 - 500]);
            whole.moves.push(RefMove::swap(name, expect, last, "bulk"));
            whole.actions.push(Action {
                timestamp: T + n,
                kind: "QUIPU_TEST".to_owned(),
                from: None,
                to: Some(last),
                metadata: None,
            });
        }
        commits.push(whole);
    }
    commits
}

/// The rows of the tables that are the truth, in the order of the nodes' numbers.
fn rows(path: &Path) -> Vec<String> {
    let connection = Connection::open(path).unwrap();
    let mut all = Vec::new();
    for query in [
        "SELECT * FROM nodes ORDER BY rowid",
        "SELECT * FROM blobs ORDER BY hash",
        "SELECT * FROM refs ORDER BY name",
        "SELECT timestamp, action_type, to_node FROM action_log ORDER BY id",
        "SELECT hash FROM quipu_chunk ORDER BY hash",
        "SELECT * FROM quipu_x_node ORDER BY seq",
    ] {
        let mut statement = connection.prepare(query).unwrap();
        let columns = statement.column_count();
        let mut found = statement.query([]).unwrap();
        while let Some(row) = found.next().unwrap() {
            let values = (0..columns).map(|column| format!("{:?}", row.get_ref(column).unwrap()));
            all.push(values.collect::<Vec<_>>().join("|"));
        }
    }
    all
}

#[tokio::test]
async fn bulk_writes_what_the_commits_would_write() {
    let dir = tempfile::tempdir().unwrap();
    let (plain, gathered) = (dir.path().join("plain.db"), dir.path().join("gathered.db"));
    for path in [&plain, &gathered] {
        let store = open(path);
        // Some is there already: a blob that another program spelled in its own way, nodes, a ref.
        let there = Connection::open(path).unwrap();
        let first = commits().swap_remove(0);
        let (blob, again) = (&first.blobs[3], &first.blobs[4]);
        there
            .execute(
                "INSERT INTO blobs (hash, type, content) VALUES (?1, ?2, ?3)",
                [&blob.id.to_string(), &blob.kind, &format!(" {}", blob.content)],
            )
            .unwrap();
        store.commit(Commit { blobs: vec![again.clone()], ..Commit::default() }).await.unwrap();
        let some =
            Commit { nodes: first.nodes[..10].to_vec(), blobs: first.blobs[..10].to_vec(), ..first.clone() };
        store
            .commit(Commit {
                moves: vec![publish(first.nodes[2].id, "end/0")],
                chunks: vec![],
                actions: vec![],
                ..some
            })
            .await
            .unwrap();
        if *path == plain {
            for commit in commits() {
                store.commit(commit).await.unwrap();
            }
        } else {
            let mut bulk = gather(dir.path());
            for commit in commits() {
                assert!(bulk.add(commit).unwrap().is_none());
            }
            assert_eq!(
                std::fs::read_dir(dir.path())
                    .unwrap()
                    .filter(|entry| {
                        let name = entry.as_ref().unwrap().file_name();
                        !name.to_string_lossy().contains(".db")
                    })
                    .count(),
                0,
                "the file has no name"
            );
            // Twice, as after a crash: nothing is there twice.
            assert_eq!(write(&store, bulk.end()).await.unwrap(), 2);
            assert!(bulk.end().is_none());
        }
        assert_eq!(store.check().await.unwrap().problems, []);
        let actions = store.actions(ActionQuery::default()).await.unwrap();
        assert_eq!(actions.len(), 4);
    }
    assert_eq!(rows(&plain), rows(&gathered));
}

#[tokio::test]
async fn single_commit_or_missing_spool_file_passes_through() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("quipu.db"));
    let extent = store.extent().await.unwrap();
    assert_eq!(extent, Extent { nodes: 0, spool: Some(dir.path().canonicalize().unwrap()) });
    assert_eq!(SqliteStore::in_memory().unwrap().extent().await.unwrap(), Extent::default());
    // An empty store gathers as well: small commits become larger ones.
    let mut bulk = Bulk::new(extent);
    let windows: Vec<_> = commits().into_iter().map(|commit| bulk.add(commit).unwrap()).collect();
    let (last, before) = windows.split_last().unwrap();
    assert!(last.is_some() && before.iter().all(Option::is_none));
    let mut bulk = gather(dir.path());
    assert!(bulk.add(commits().swap_remove(0)).unwrap().is_none());
    assert_eq!(bulk.end().unwrap().piece().unwrap().unwrap().commit.nodes.len(), 50);
    // Where no file can be made, as if nothing were gathered.
    let mut bulk = gather(&dir.path().join("none"));
    let windows: Vec<_> = commits().into_iter().map(|commit| bulk.add(commit).unwrap()).collect();
    assert!(windows[0].is_none() && windows[1..].iter().all(Option::is_some));
    let mut count = 0;
    for mut window in windows.into_iter().flatten().chain(bulk.end()) {
        while let Some(piece) = window.piece().unwrap() {
            count += piece.commit.nodes.len();
        }
    }
    assert_eq!(count, 2_000);
}

#[tokio::test]
async fn refused_window_leaves_no_node() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("quipu.db"));
    let unknown = NodeId([9; 32]);
    let mut wrong: Vec<(&str, Commit)> = Vec::new();
    let (_, orphan) = text_commit(Some(unknown), "below nothing", T);
    wrong.push(("the parent", orphan));
    let (_, mut bare) = text_commit(None, "without its text", T + 1);
    bare.blobs.clear();
    wrong.push(("a part", bare));
    wrong.push(("where ref", Commit { moves: vec![publish(unknown, "nowhere")], ..Commit::default() }));
    let swap = RefMove::swap(RefName::from("swapped"), Some(unknown), unknown, "test");
    wrong.push(("swapped", Commit { moves: vec![swap], ..Commit::default() }));
    let take = quipu_store::Op::InboxTake { session: SessionId::from("s"), item: ItemId::from("none") };
    wrong.push(("input none", Commit { ops: vec![take], ..Commit::default() }));
    for (what, commit) in wrong {
        let mut bulk = gather(dir.path());
        let mut before = commits();
        before.truncate(3);
        for commit in before.into_iter().chain([commit]) {
            bulk.add(commit).unwrap();
        }
        let error = write(&store, bulk.end()).await.unwrap_err();
        assert!(error.to_string().contains(what), "{what}: {error}");
        assert_eq!(store.check().await.unwrap().nodes, 0);
        assert_eq!(store.heads("").await.unwrap(), []);
    }
    let mut bulk = gather(dir.path());
    for commit in commits() {
        bulk.add(commit).unwrap();
    }
    // One without those before it does not pass either.
    let mut window = bulk.end().unwrap();
    let blobs = window.piece().unwrap().unwrap().commit;
    let nodes = window.piece().unwrap().unwrap().commit;
    assert!(matches!(store.commit(nodes.clone()).await, Err(StoreError::Missing { .. })));
    store.commit(blobs).await.unwrap();
    // Nor into another store than the blobs.
    let other = open(&dir.path().join("other.db"));
    assert!(matches!(other.commit(nodes.clone()).await, Err(StoreError::Missing { .. })));
    store.commit(nodes.clone()).await.unwrap();
    let report = store.check().await.unwrap();
    assert_eq!((report.problems, report.nodes), (vec![], 2_000));
    // A window in a window.
    let mut bulk = gather(dir.path());
    bulk.add(Commit { spooled: nodes.spooled.clone(), ..Commit::default() }).unwrap();
    bulk.add(text_commit(None, "one more", T).1).unwrap();
    write(&store, bulk.end()).await.unwrap();
    assert_eq!(store.check().await.unwrap().nodes, 2_001);
}

#[tokio::test]
async fn full_window_ends() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("quipu.db"));
    let mut bulk = Bulk::new(Extent { nodes: 16_000, spool: Some(dir.path().to_owned()) });
    let (mut parent, mut at, mut windows, mut pieces) = (None, T, 0, 0);
    for n in 0..6 {
        let mut whole = Commit::default();
        for _ in 0..1_000 {
            // Some are larger than what is written at once.
            let text = if at == T + 77 {
                "long ".repeat(1_000_000)
            } else {
                format!("text {at} {}", "x".repeat(2_000))
            };
            let (id, commit) = text_commit(parent, &text, at);
            (parent, at) = (Some(id), at + 1);
            whole.blobs.extend(commit.blobs);
            whole.nodes.extend(commit.nodes);
        }
        whole.moves.push(publish(parent.unwrap(), "end"));
        let window = bulk.add(whole).unwrap();
        assert_eq!(window.is_some(), n == 4, "{n}");
        windows += usize::from(window.is_some());
        pieces += write(&store, window).await.unwrap();
    }
    pieces += write(&store, bulk.end()).await.unwrap();
    assert_eq!(windows, 1);
    assert!(pieces > 3, "{pieces}");
    assert_eq!(store.head(&"end".into()).await.unwrap(), parent);
    assert_eq!(store.lineage(parent.unwrap(), LineageEnd::Root).await.unwrap().len(), 6_000);
    assert_eq!(store.check().await.unwrap().problems, []);
}

/// Appends windows to a ref without end, from where it stands, and says what was acknowledged. Run by a child.
pub(crate) async fn until_killed(path: &Path) {
    let store = open(path);
    let mut parent = store.head(&"end".into()).await.unwrap();
    let mut at = match parent {
        None => T,
        Some(head) => store.nodes(&[head]).await.unwrap()[0].as_ref().unwrap().record.timestamp + 1,
    };
    let mut out = std::io::stdout();
    writeln!(out).unwrap();
    loop {
        let mut bulk = gather(path.parent().unwrap());
        for _ in 0..4 {
            let mut whole = Commit::default();
            for _ in 0..300 {
                let (id, commit) = text_commit(parent, &format!("text {at} {}", "x".repeat(10_000)), at);
                (parent, at) = (Some(id), at + 1);
                whole.blobs.extend(commit.blobs);
                whole.nodes.extend(commit.nodes);
            }
            whole.moves.push(publish(parent.unwrap(), "end"));
            bulk.add(whole).unwrap();
        }
        let mut window = bulk.end().unwrap();
        while let Some(piece) = window.piece().unwrap() {
            writeln!(out, "piece").unwrap();
            out.flush().unwrap();
            store.commit(piece.commit).await.unwrap();
        }
        writeln!(out, "kept {}", parent.unwrap()).unwrap();
        out.flush().unwrap();
    }
}

#[tokio::test]
async fn kill_within_a_window_loses_that_window_only() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let mut stood = 0;
    // After so many windows and pieces: at the first one, between two, after one and after two windows.
    for (windows, pieces) in [(0, 1), (0, 3), (0, 5), (1, 1), (2, 2)] {
        let mut child = command("bulk until killed", &path).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (mut kept, mut begun) = (0, 0);
        while (kept, begun) < (windows, pieces) {
            let line = lines.next().unwrap().unwrap();
            if line.starts_with("kept ") {
                (kept, begun) = (kept + 1, 0);
            }
            begun += usize::from(line == "piece");
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let rest: Vec<String> = lines.map_while(Result::ok).collect();
        let store = open(&path);
        let report = store.check().await.unwrap();
        assert_eq!(report.problems, []);
        assert_eq!(report.nodes % 1_200, 0, "whole windows");
        let nodes = usize::try_from(report.nodes).unwrap();
        assert!(nodes >= stood, "{nodes} after {stood}");
        stood = nodes;
        if let Some(head) = store.head(&"end".into()).await.unwrap() {
            assert_eq!(store.lineage(head, LineageEnd::Root).await.unwrap().len(), nodes, "{rest:?}");
        }
    }
    assert!(stood >= 3 * 1_200);
}

/// Puts the commits of this file into a store by windows. Run by a child.
pub(crate) async fn windows(path: &Path) {
    let store = open(path);
    for some in commits().chunks(5) {
        let mut bulk = gather(path.parent().unwrap());
        for commit in some {
            // What depends on where a ref stands is one process's own.
            let mut commit = commit.clone();
            commit.moves.retain(|moved| moved.expect == RefExpectation::Any);
            bulk.add(commit).unwrap();
        }
        write(&store, bulk.end()).await.unwrap();
    }
}

#[tokio::test]
async fn same_import_in_two_processes_is_resumed_by_a_third() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let store = open(&path);
    let mut children: Vec<_> = (0..2).map(|_| command("windows", &path).spawn().unwrap()).collect();
    let session = SessionId::from("beside");
    let mut parent = None;
    let mut count = 0;
    while children.iter_mut().any(|child| child.try_wait().unwrap().is_none()) || count < 20 {
        let (id, commit) = step(&session, parent, &format!("step {count}"), T + count);
        store.commit(commit).await.unwrap();
        (parent, count) = (Some(id), count + 1);
    }
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let report = store.check().await.unwrap();
    assert_eq!(report.problems, []);
    assert_eq!(report.nodes, 2_000 + count.unsigned_abs());
    let lineage = store.lineage(parent.unwrap(), LineageEnd::Root).await.unwrap();
    assert_eq!(lineage.len() as u64, count.unsigned_abs());
}

#[tokio::test]
async fn many_nodes_are_several_commits_and_refs_come_with_the_last() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("quipu.db"));
    let mut bulk = gather(dir.path());
    let mut parent = None;
    for n in 0..15 {
        let mut whole = Commit::default();
        for m in 0..2_000 {
            let (id, commit) = text_commit(parent, &format!("text {m}"), T + n * 2_000 + m);
            parent = Some(id);
            whole.blobs.extend(commit.blobs);
            whole.nodes.extend(commit.nodes);
        }
        whole.moves.push(publish(parent.unwrap(), "end"));
        assert!(bulk.add(whole).unwrap().is_none());
    }
    let mut window = bulk.end().unwrap();
    let mut moved = Vec::new();
    while let Some(portion) = window.piece().unwrap() {
        moved.push(portion.commit.moves.len());
        store.commit(portion.commit).await.unwrap();
    }
    // The texts, of which each is there once, and two commits of nodes.
    assert_eq!(moved, [0, 0, 1]);
    assert_eq!(store.lineage(parent.unwrap(), LineageEnd::Root).await.unwrap().len(), 30_000);
    assert_eq!(store.head(&"end".into()).await.unwrap(), parent);
    assert_eq!(store.check().await.unwrap().problems, []);
}
