//! What goes wrong with files and disks: one clear error each, and the store goes on where it can.

use std::fs::{self, Permissions};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use quipu_protocol::SessionId;
use quipu_store::{
    Commit, LineageEnd, Local as _, NewChunk, OpenOptions, ReadModel as _, RefName, SearchIndex,
    SessionQuery, SqliteStore, Store, StoreError, Upkeep,
};
use rusqlite::Connection;

use crate::child::{command, run_unprivileged};
use crate::support::*;

#[test]
fn full_disk_is_reported() {
    run_unprivileged("limit", Some(2048));
}

#[test]
fn missing_permission_is_reported() {
    run_unprivileged("read-only", None);
}

#[test]
fn removed_wal_is_reported() {
    run_unprivileged("no-log", None);
}

/// Run by a user whom permissions bind: what is kept beside the file is removed or replaced under a writer.
pub(crate) async fn without_its_log(path: &Path) {
    let beside = |suffix: &str| path.with_file_name(format!("quipu.db{suffix}"));
    let session = SessionId::from("unlogged");
    let (mut head, mut n) = (None, 0);
    // What happens, to which name, and whether the acknowledged steps can all be saved.
    type Fault<'a> = &'a dyn Fn(&Path);
    let faults: [(&str, &str, Fault<'_>, bool); 5] = [
        ("removed", "-wal", &|log| fs::remove_file(log).unwrap(), true),
        ("moved", "-wal", &|log| fs::rename(log, log.with_file_name("old-log")).unwrap(), true),
        ("emptied", "-wal", &|log| fs::rename(empty(log), log).unwrap(), true),
        ("no shared memory", "-shm", &|memory| fs::remove_file(memory).unwrap(), true),
        ("other shared memory", "-shm", &|memory| fs::rename(empty(memory), memory).unwrap(), true),
    ];
    for (name, suffix, fault, saved) in faults {
        let store = open(path);
        for _ in 0..40 {
            let (id, commit) = step(&session, head, name, T + n);
            store.commit(commit).await.unwrap();
            (head, n) = (Some(id), n + 1);
        }
        fault(&beside(suffix));
        let (_, commit) = step(&session, head, "not kept", T + n);
        for _ in 0..2 {
            let error = store.commit(commit.clone()).await.unwrap_err();
            let StoreError::Replaced { lost, saved: told, .. } = &error else { panic!("{name}: {error:?}") };
            assert_eq!((lost, *told), (&beside(suffix), saved), "{name}");
            let said = error.to_string();
            assert!(said.contains(suffix) && said.contains("open it again"), "{name}: {said}");
        }
        // What can be read is read.
        assert_eq!(store.head(&RefName::session(&session)).await.unwrap(), head, "{name}");
        drop(store);
        let store = open(path);
        assert_eq!(store.head(&RefName::session(&session)).await.unwrap(), head, "{name}");
        let length = store.lineage(head.unwrap(), LineageEnd::Root).await.unwrap().len();
        assert_eq!(length, usize::try_from(n).unwrap(), "{name}");
        assert_eq!(store.check().await.unwrap().problems, [], "{name}");
    }
    // Put back, it goes on.
    let store = open(path);
    let (id, commit) = step(&session, head, "before", T + n);
    store.commit(commit).await.unwrap();
    fs::rename(beside("-wal"), beside("-elsewhere")).unwrap();
    let (next, commit) = step(&session, Some(id), "after", T + n + 1);
    assert!(matches!(store.commit(commit.clone()).await, Err(StoreError::Replaced { .. })));
    fs::rename(beside("-elsewhere"), beside("-wal")).unwrap();
    store.commit(commit).await.unwrap();
    drop(store);
    assert_eq!(open(path).head(&RefName::session(&session)).await.unwrap(), Some(next));
}

/// A new empty file beside `path`.
fn empty(path: &Path) -> std::path::PathBuf {
    let made = path.with_file_name("empty");
    fs::write(&made, []).unwrap();
    made
}

/// The log is removed after all of it was copied; another process makes a new one and leaves. Neither its steps nor
/// ours are lost, and closing our store does not copy the old log over the new steps.
#[tokio::test]
async fn wal_recreated_by_another_process_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let store = open(&path);
    let session = SessionId::from("ours");
    let mut head = None;
    for n in 0..50 {
        let (id, commit) = step(&session, head, &"ours ".repeat(100), T + n);
        store.commit(commit).await.unwrap();
        head = Some(id);
    }
    // So that nothing is left to be written by itself.
    store.sessions(SessionQuery::default()).await.unwrap();
    let copied: (i64, i64, i64) = Connection::open(&path)
        .unwrap()
        .query_row("PRAGMA wal_checkpoint(FULL)", [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .unwrap();
    assert_eq!((copied.0, copied.1), (0, copied.2));
    fs::remove_file(path.with_file_name("quipu.db-wal")).unwrap();
    let mut other = command("commits", &path);
    other.env("QUIPU_STORE_COUNT", "30").env("QUIPU_STORE_SESSION", "theirs");
    assert!(other.status().unwrap().success());
    let (_, commit) = step(&session, head, "not kept", T + 99);
    let error = store.commit(commit).await.unwrap_err();
    assert!(matches!(error, StoreError::Replaced { saved: false, .. }), "{error:?}");
    drop(store);
    let store = open(&path);
    assert_eq!(store.head(&RefName::session(&session)).await.unwrap(), head);
    let theirs = store.head(&RefName::session(&"theirs".into())).await.unwrap().unwrap();
    assert_eq!(store.lineage(theirs, LineageEnd::Root).await.unwrap().len(), 30);
    assert_eq!(store.check().await.unwrap().problems, []);
}

/// Run with a limit of 2 MiB on the size of files.
pub(crate) async fn under_a_limit(path: &Path) {
    let store = open(path);
    let session = SessionId::from("limited");
    let (first, commit) = step(&session, None, "before", T);
    store.commit(commit).await.unwrap();
    let (second, commit) = step(&session, Some(first), "beside", T + 1);
    let large = |n: u64| {
        let bytes = noise(n, 3 << 20);
        let chunk = NewChunk::Full { id: chunk_id(&bytes), bytes: Arc::from(bytes) };
        Commit { chunks: vec![chunk], ..Commit::default() }
    };
    // Together with one that fits: that one must not go down with it.
    let (failed, fits) = tokio::join!(store.commit(large(1)), store.commit(commit));
    let error = failed.unwrap_err();
    assert!(matches!(error, StoreError::Full { .. }), "{error:?}");
    assert!(error.to_string().contains("quipu.db") && error.to_string().contains("room"), "{error}");
    fits.unwrap();
    for n in 0..5 {
        assert!(matches!(store.commit(large(n)).await, Err(StoreError::Full { .. })));
    }
    // What is gathered finds no room for its file either, and takes nothing with it.
    let mut bulk = crate::bulk::gather(path.parent().unwrap());
    let error = (0..5)
        .find_map(|n| {
            let (_, commit) = text_commit(Some(second), &format!("{n} ").repeat(500_000), T + 50 + n);
            bulk.add(commit).err()
        })
        .unwrap();
    assert!(matches!(error, StoreError::Full { .. }), "{error:?}");
    // And on.
    let (third, commit) = step(&session, Some(second), "after", T + 2);
    store.commit(commit).await.unwrap();
    assert_eq!(store.lineage(third, LineageEnd::Root).await.unwrap().len(), 3);
    assert_eq!(store.check().await.unwrap().problems, []);
    // Until nothing fits any more.
    let (mut parent, mut n) = (third, 3);
    let error = loop {
        let (id, commit) = step(&session, Some(parent), &"full ".repeat(2000), T + n);
        match store.commit(commit).await {
            Ok(()) => (parent, n) = (id, n + 1),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, StoreError::Full { .. }), "{error:?}");
    assert_eq!(store.lineage(parent, LineageEnd::Root).await.unwrap().len(), usize::try_from(n).unwrap());
    drop(store);
    let store = open(path);
    assert_eq!(store.head(&RefName::session(&session)).await.unwrap(), Some(parent));
    assert_eq!(store.check().await.unwrap().problems, []);
}

/// Run by a user whom permissions bind.
pub(crate) async fn without_permission(path: &Path) {
    let dir = path.parent().unwrap();
    let session = SessionId::from("limited");
    let chmod = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    let store = open(path);
    let (base, commit) = entry_commit(None, &session_start(&session, "/w", None), T);
    store.commit(commit).await.unwrap();
    let (first, commit) = step(&session, None, "before", T);
    store.commit(commit).await.unwrap();
    drop(store);

    for (file, directory) in [(0o600, 0o500), (0o400, 0o700), (0o400, 0o500)] {
        chmod(path, file);
        chmod(dir, directory);
        let store = open(path);
        assert!(store.is_read_only());
        assert_eq!(store.head(&RefName::session(&session)).await.unwrap(), Some(first));
        assert_eq!(store.lineage(first, LineageEnd::Root).await.unwrap().len(), 1);
        assert_eq!(store.sessions(SessionQuery::default()).await.unwrap()[0].base, base);
        assert_eq!(store.check().await.unwrap().problems, []);
        let (_, commit) = step(&session, Some(first), "after", T + 1);
        let error = store.commit(commit).await.unwrap_err();
        assert!(matches!(error, StoreError::ReadOnly { .. }), "{error:?}");
        assert!(store.changed().await.is_err());
        drop(store);
        chmod(dir, 0o700);
        chmod(path, 0o600);
    }
    // Another program's file that cannot be written: what it lacks is made in memory.
    drop(open(path));
    let connection = Connection::open(path).unwrap();
    for table in
        ["x_cursor", "x_node", "x_session", "x_wait", "step", "inbox", "chunk", "meta", "lease", "reflog"]
    {
        connection.execute_batch(&format!("DROP TABLE quipu_{table}")).unwrap();
    }
    drop(connection);
    chmod(path, 0o400);
    chmod(dir, 0o500);
    let store = open(path);
    assert_eq!(store.sessions(SessionQuery::default()).await.unwrap()[0].base, base);
    assert_eq!(store.ancestor(first, 0).await.unwrap(), Some(first));
    assert_eq!(store.pending(&session).await.unwrap(), quipu_store::OpenWork::default());
    assert_eq!(store.check().await.unwrap().problems, []);
    drop(store);
    // Nothing there, and nothing can be made.
    let error = SqliteStore::open(&dir.join("new.db"), &options()).unwrap_err();
    assert!(error.to_string().contains("new.db"), "{error}");
    // A directory that cannot even be looked into.
    chmod(dir, 0o000);
    let error = SqliteStore::open(path, &options()).unwrap_err();
    assert!(matches!(error, StoreError::Io { .. }), "{error:?}");
    chmod(dir, 0o700);
    chmod(path, 0o600);
    let store = open(path);
    let (_, commit) = step(&session, Some(first), "after", T + 1);
    store.commit(commit).await.unwrap();
}

#[tokio::test]
async fn flipped_header_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let store = open(&path);
    let (_, commit) = step(&"s".into(), None, "before", T);
    store.commit(commit).await.unwrap();
    drop(store);
    let mut file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all(&[0xff; 16]).unwrap();
    drop(file);
    let error = SqliteStore::open(&path, &options()).unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
    assert!(error.to_string().contains("quipu.db"), "{error}");
}

#[tokio::test]
async fn damage_inside_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let store = open(&path);
    let session = SessionId::from("s");
    let mut parent = None;
    for n in 0..300 {
        let (id, commit) = step(&session, parent, &"some text ".repeat(50), T + n);
        store.commit(commit).await.unwrap();
        parent = Some(id);
    }
    drop(store);
    let size = fs::metadata(&path).unwrap().len();
    for at in [4096 * 3, size / 2, size - 4096] {
        let mut file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.seek(SeekFrom::Start(at)).unwrap();
        file.write_all(&[0xa5; 600]).unwrap();
    }
    // Wherever it shows first, it is told, and nothing panics.
    match SqliteStore::open(&path, &options()) {
        Err(error) => assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}"),
        Ok(store) => match store.check().await {
            Ok(report) => assert!(report.problem_count > 0),
            Err(error) => assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}"),
        },
    }
}

#[tokio::test]
async fn truncated_file_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    drop(open(&path));
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(5000).unwrap();
    drop(file);
    match SqliteStore::open(&path, &options()) {
        Err(error) => assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}"),
        Ok(store) => match store.check().await {
            Ok(report) => assert!(report.problem_count > 0),
            Err(error) => assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}"),
        },
    }
}

#[tokio::test]
async fn locked_file_is_reported_until_it_is_unlocked() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let store = open_impatient(&path);
    let session = SessionId::from("s");
    let (first, commit) = step(&session, None, "before", T);
    store.commit(commit).await.unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (_, commit) = step(&session, Some(first), "after", T + 1);
    let error = store.commit(commit.clone()).await.unwrap_err();
    assert!(matches!(error, StoreError::Busy { .. }), "{error:?}");
    assert!(error.to_string().contains("locked by another program"), "{error}");
    // Reading does not wait for writers.
    assert_eq!(store.head(&RefName::session(&session)).await.unwrap(), Some(first));
    other.execute_batch("ROLLBACK").unwrap();
    store.commit(commit).await.unwrap();
    drop(store);

    // Locked altogether: not even opened.
    other.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE").unwrap();
    let error =
        SqliteStore::open(&path, &quipu_store::OpenOptions { busy: std::time::Duration::ZERO, ..options() });
    assert!(matches!(error, Err(StoreError::Busy { .. })), "{error:?}");
    let error = SqliteStore::open_to_read(&path, std::time::Duration::from_millis(10)).unwrap_err();
    assert!(error.to_string().contains("another program for 10 ms"), "{error}");
}

#[tokio::test]
async fn vanished_file_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let store = open(&path);
    let session = SessionId::from("s");
    let (first, commit) = step(&session, None, "before", T);
    store.commit(commit).await.unwrap();
    fs::rename(&path, dir.path().join("elsewhere.db")).unwrap();
    let (_, commit) = step(&session, Some(first), "after", T + 1);
    let error = store.commit(commit.clone()).await.unwrap_err();
    assert!(matches!(error, StoreError::Replaced { .. }), "{error:?}");
    assert!(error.to_string().contains("removed or replaced"), "{error}");
    // What was acknowledged went with the file, and not into a log that it has left behind.
    let moved = Connection::open(dir.path().join("elsewhere.db")).unwrap();
    let nodes: i64 = moved.query_row("SELECT count(*) FROM nodes", [], |row| row.get(0)).unwrap();
    assert_eq!(nodes, 1);
    drop(moved);
    // Put back, it goes on.
    fs::rename(dir.path().join("elsewhere.db"), &path).unwrap();
    store.commit(commit).await.unwrap();
}

#[tokio::test]
async fn queued_commits_are_finished_when_the_store_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let store = open(&path);
    let mut ids = Vec::new();
    for n in 0..50 {
        let (id, commit) = text_commit(None, &format!("dropped {n}"), T + n);
        ids.push(id);
        // Polled once, so that it is queued; then nobody waits for it.
        let mut future = store.commit(commit);
        assert!(futures_util::future::poll_immediate(&mut future).await.is_none_or(|done| done.is_ok()));
    }
    drop(store);
    let nodes = open(&path).nodes(&ids).await.unwrap();
    assert!(nodes.iter().all(Option::is_some));
}

/// A copy takes the file's place, and another process works with it: log and shared memory have the same names for both, so
/// what is committed in the log goes into the copy, and the file that is open here lacks it. No recovered file is offered.
#[tokio::test]
async fn file_with_a_shared_wal_is_not_recovered() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    drop(open(&path));
    let other = dir.path().join("other.db");
    // By another process: closing the file in this one would drop the locks of the store.
    let copied = std::process::Command::new("cp").arg(&path).arg(&other).status().unwrap();
    assert!(copied.success());
    let store = open(&path);
    let session = SessionId::from("ours");
    let mut head = None;
    for n in 0..30 {
        let (id, commit) = step(&session, head, "ours", T + n);
        store.commit(commit).await.unwrap();
        head = Some(id);
    }
    fs::rename(&other, &path).unwrap();
    let mut child = command("commits", &path);
    child.env("QUIPU_STORE_COUNT", "3").env("QUIPU_STORE_SESSION", "theirs");
    assert!(child.status().unwrap().success());
    Connection::open(&path).unwrap().query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(())).unwrap();
    let (_, commit) = step(&session, head, "not kept", T + 99);
    let error = store.commit(commit).await.unwrap_err();
    assert!(matches!(error, StoreError::Replaced { recovered: None, saved: false, .. }), "{error:?}");
    let said = error.to_string();
    assert!(said.contains("may not be in the file") && !said.contains("all acknowledged"), "{said}");
    let names = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!names.into_iter().any(|name| name.to_string_lossy().contains("recovered")));
    drop(store);
    // Nothing was written to the file that stands there now.
    let store = open(&path);
    let theirs = store.head(&RefName::session(&"theirs".into())).await.unwrap().unwrap();
    assert_eq!(store.lineage(theirs, LineageEnd::Root).await.unwrap().len(), 3);
    assert_eq!(store.check().await.unwrap().problems, []);
}

/// Commits steps that only the log holds: somebody reads the store as it was before them. Gives the last one.
async fn commit_behind(
    store: &SqliteStore,
    reader: &Connection,
    session: &SessionId,
) -> quipu_protocol::NodeId {
    let (first, commit) = step(session, None, "before", T);
    store.commit(commit).await.unwrap();
    reader.execute_batch("BEGIN").unwrap();
    reader.query_row("SELECT count(*) FROM nodes", [], |row| row.get::<_, i64>(0)).unwrap();
    let mut head = first;
    for n in 1..40 {
        let (id, commit) = step(session, Some(head), &"text ".repeat(200), T + n);
        store.commit(commit).await.unwrap();
        head = id;
    }
    head
}

/// Everything of a session of 40 steps, in a store that was saved.
async fn assert_whole(path: &Path, session: &SessionId, head: quipu_protocol::NodeId) {
    assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    let saved = open(path);
    assert_eq!(saved.head(&RefName::session(session)).await.unwrap(), Some(head));
    assert_eq!(saved.lineage(head, LineageEnd::Root).await.unwrap().len(), 40);
    assert_eq!(saved.check().await.unwrap().problems, []);
}

fn names_in(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn truncated_wal_is_reported_and_its_steps_are_saved() {
    for part in [0, 1, 2, 3] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("quipu.db");
        let log = path.with_file_name("quipu.db-wal");
        let session = SessionId::from("s");
        let (store, reader) = (open(&path), Connection::open(&path).unwrap());
        let head = commit_behind(&store, &reader, &session).await;
        let size = fs::metadata(&log).unwrap().len();
        fs::OpenOptions::new().write(true).open(&log).unwrap().set_len(size * part / 4).unwrap();
        for _ in 0..2 {
            let (_, commit) = step(&session, Some(head), "not kept", T + 99);
            let error = store.commit(commit).await.unwrap_err();
            let StoreError::Cut { recovered: Some(kept), wal: told, .. } = &error else {
                panic!("{part}: {error:?}")
            };
            assert_eq!(told, &log);
            assert!(error.to_string().contains("cut short"), "{error}");
            assert_whole(kept, &session, head).await;
        }
        assert!(!store.is_in_place());
        drop((store, reader));
        // What the store itself still holds is sound.
        assert_eq!(open(&path).check().await.unwrap().problems, [], "{part}");
    }
}

/// Told to nobody, because nothing is committed any more.
#[tokio::test]
async fn wal_truncated_before_its_end_leaves_a_copy() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let session = SessionId::from("s");
    let (store, reader) = (open(&path), Connection::open(&path).unwrap());
    let head = commit_behind(&store, &reader, &session).await;
    let log = path.with_file_name("quipu.db-wal");
    fs::OpenOptions::new().write(true).open(&log).unwrap().set_len(0).unwrap();
    drop((store, reader));
    let saved = names_in(dir.path()).into_iter().find(|name| name.contains("recovered")).unwrap();
    assert_whole(&dir.path().join(saved), &session, head).await;
}

#[tokio::test]
async fn checkpointed_wal_can_be_truncated_without_loss() {
    for part in [0, 1, 2] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("quipu.db");
        let log = path.with_file_name("quipu.db-wal");
        let session = SessionId::from("s");
        let store = open(&path);
        let other = Connection::open(&path).unwrap();
        let mut head = None;
        for n in 0..40 {
            let (id, commit) = step(&session, head, "text", T + n);
            store.commit(commit).await.unwrap();
            head = Some(id);
        }
        // So that nothing is left to be written by itself.
        store.sessions(SessionQuery::default()).await.unwrap();
        let copied: (i64, i64, i64) = other
            .query_row("PRAGMA wal_checkpoint(FULL)", [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .unwrap();
        assert_eq!((copied.0, copied.1), (0, copied.2));
        let size = fs::metadata(&log).unwrap().len();
        fs::OpenOptions::new().write(true).open(&log).unwrap().set_len(size * part / 4).unwrap();
        let (id, commit) = step(&session, head, "after", T + 50);
        store.commit(commit).await.unwrap();
        // As a crash would leave it.
        let crashed = dir.path().join("crashed.db");
        fs::copy(&path, &crashed).unwrap();
        fs::copy(&log, crashed.with_file_name("crashed.db-wal")).unwrap();
        for path in [&crashed, &path] {
            let store = open(path);
            assert_eq!(store.head(&RefName::session(&session)).await.unwrap(), Some(id), "{part}");
            assert_eq!(store.check().await.unwrap().problems, [], "{part}");
        }
    }
}

/// Other programs empty the log at any moment, as they may.
#[tokio::test]
async fn wal_emptied_by_others_is_not_truncated() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    drop(open(&path));
    let count: usize = std::env::var("QUIPU_FULL").map_or(150, |_| 5_000);
    let mut children: Vec<_> = (0..3)
        .map(|n| {
            let mut child = command("commits", &path);
            child.env("QUIPU_STORE_COUNT", count.to_string()).env("QUIPU_STORE_SESSION", format!("s{n}"));
            child.spawn().unwrap()
        })
        .collect();
    let mut emptied = 0;
    while children.iter_mut().any(|child| child.try_wait().unwrap().is_none()) {
        let other = Connection::open(&path).unwrap();
        for _ in 0..20 {
            let busy: i64 =
                other.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).unwrap_or(1);
            emptied += usize::from(busy == 0);
        }
    }
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    assert!(emptied > 0);
    let store = open(&path);
    for n in 0..3 {
        let name = RefName::session(&SessionId::from(format!("s{n}").as_str()));
        let head = store.head(&name).await.unwrap().unwrap();
        assert_eq!(store.lineage(head, LineageEnd::Root).await.unwrap().len(), count);
    }
    assert_eq!(store.check().await.unwrap().problems, []);
    assert!(!names_in(dir.path()).iter().any(|name| name.contains("recovered")));
}

#[test]
fn truncated_shared_memory_is_survived() {
    let dir = tempfile::tempdir().unwrap();
    let output = command("no-memory", &dir.path().join("quipu.db")).output().unwrap();
    // A process that looks at what was cut off ends with a signal.
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{}\n{}\n{said}",
        output.status,
        String::from_utf8_lossy(&output.stdout)
    );
}

/// A store at rest: it indexes nothing by itself, and another one commits.
fn open_at_rest(path: &Path) -> SqliteStore {
    SqliteStore::open(path, &OpenOptions { search_index: SearchIndex::Asked, ..options() }).unwrap()
}

/// What a store looks at when it is opened, beside whoever opened it, is done: it is at rest from here on.
async fn looked_around(store: &SqliteStore) {
    store.commit(Commit::default()).await.unwrap();
}

#[test]
fn shared_memory_truncated_at_rest_is_survived() {
    let dir = tempfile::tempdir().unwrap();
    for role in ["first-read", "closed-by-all"] {
        let path = dir.path().join(format!("{role}.db"));
        let output = command(role, &path).output().unwrap();
        assert!(
            output.status.success(),
            "{role}: {}\n{}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

/// Run as a child: a first read opens a connection, and then nothing is done until the memory is cut short.
pub(crate) async fn after_a_first_read(path: &Path) {
    let session = SessionId::from("read");
    let (first, commit) = step(&session, None, "first", T);
    open(path).commit(commit).await.unwrap();
    let store = open_at_rest(path);
    looked_around(&store).await;
    assert_eq!(store.head(&RefName::session(&session)).await.unwrap(), Some(first));
    nix::unistd::truncate(&file_beside(path, "-shm"), 0).unwrap();
    let (second, commit) = step(&session, Some(first), "second", T + 1);
    store.commit(commit).await.unwrap();
    assert_eq!(store.lineage(second, LineageEnd::Root).await.unwrap().len(), 2);
}

/// Run as a child: all are closed because of the memory; then the last to leave removes the log, as it should.
pub(crate) async fn closed_by_all(path: &Path) {
    let session = SessionId::from("closed");
    let (first, commit) = step(&session, None, "first", T);
    open(path).commit(commit).await.unwrap();
    let store = open_at_rest(path);
    looked_around(&store).await;
    // The second read finds the connection of the first.
    for _ in 0..2 {
        store.lineage(first, LineageEnd::Root).await.unwrap();
    }
    nix::unistd::truncate(&file_beside(path, "-shm"), 0).unwrap();
    drop(open_at_rest(path));
    assert!(!file_beside(path, "-wal").exists());
    let (second, commit) = step(&session, Some(first), "second", T + 1);
    store.commit(commit).await.unwrap();
    assert_eq!(store.lineage(second, LineageEnd::Root).await.unwrap().len(), 2);
    assert_eq!(store.check().await.unwrap().problems, []);
}

fn file_beside(path: &Path, side: &str) -> std::path::PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(side);
    name.into()
}

/// Made anew by a process that begins later, it is as long as it needs to be, and shorter than it was.
#[tokio::test]
async fn shared_memory_recreated_by_others_is_left_alone() {
    for round in 0..4 {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("quipu.db");
        let (log, memory) = (file_beside(&path, "-wal"), file_beside(&path, "-shm"));
        let session = SessionId::from("ours");
        drop(open(&path));
        let store = open_at_rest(&path);
        let (first, commit) = step(&session, None, &"long ".repeat(5_000_000), T);
        open(&path).commit(commit).await.unwrap();
        for _ in 0..2 {
            store.lineage(first, LineageEnd::Root).await.unwrap();
        }
        assert!(fs::metadata(&memory).unwrap().len() > 32_768);
        let other = Connection::open(&path).unwrap();
        let busy: i64 = other.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).unwrap();
        assert_eq!(busy, 0);
        drop(other);
        nix::unistd::truncate(&memory, 0).unwrap();
        let mut child = command("commits", &path);
        child.env("QUIPU_STORE_COUNT", "1000").env("QUIPU_STORE_SESSION", "theirs");
        let mut child = child.spawn().unwrap();
        while fs::metadata(&log).unwrap().len() < 200_000 {
            assert_eq!(child.try_wait().unwrap(), None);
        }
        assert_eq!(store.lineage(first, LineageEnd::Root).await.unwrap().len(), 1);
        let status = child.wait().unwrap();
        assert!(status.success(), "{round}: {status}");
        assert_eq!(store.check().await.unwrap().problems, []);
    }
}

/// Run as a child: the memory beside the file is cut short under a writer, its readers, and another store of the process.
pub(crate) async fn without_its_memory(path: &Path) {
    let session = SessionId::from("unshared");
    // Nothing of them reads by itself at the moment of a cut.
    let (store, beside) = (open_at_rest(path), open_at_rest(path));
    looked_around(&store).await;
    looked_around(&beside).await;
    let memory = path.with_file_name("quipu.db-shm");
    let (mut head, mut n) = (None, 0);
    let mut commit = async |count: usize, text: &str| {
        for _ in 0..count {
            let (id, commit) = step(&session, head, text, T + n);
            store.commit(commit).await.unwrap();
            (head, n) = (Some(id), n + 1);
        }
        (head.unwrap(), usize::try_from(n).unwrap())
    };
    let cut = async |size: u64| {
        // What the store does in a quiet moment has just been done, or waits for one.
        looked_around(&store).await;
        let long = fs::metadata(&memory).unwrap().len();
        assert!(long > size, "{long}");
        nix::unistd::truncate(&memory, i64::try_from(size).unwrap()).unwrap();
    };
    // Enough for a second piece of memory, which is the one that is cut off at last.
    commit(1, &"long ".repeat(4_000_000)).await;
    for size in [0, 1, 4096, 20_000, 32_768] {
        let (last, length) = commit(20, "before").await;
        cut(size).await;
        assert_eq!(store.lineage(last, LineageEnd::Root).await.unwrap().len(), length, "{size}");
        cut(size.min(16_000)).await;
        let (last, length) = commit(3, "after").await;
        cut(size.min(16_000)).await;
        assert_eq!(beside.lineage(last, LineageEnd::Root).await.unwrap().len(), length, "{size}");
        let (last, length) = commit(1, &format!("long {size} ").repeat(2_500_000)).await;
        // Another process meanwhile.
        let mut other = command("commits", path);
        other.env("QUIPU_STORE_COUNT", "5").env("QUIPU_STORE_SESSION", format!("theirs {size}"));
        assert!(other.status().unwrap().success());
        assert_eq!(store.lineage(last, LineageEnd::Root).await.unwrap().len(), length, "{size}");
    }
    cut(0).await;
    drop(beside);
    drop(store);
    let store = open(path);
    assert_eq!(store.head(&RefName::session(&session)).await.unwrap(), head);
    assert_eq!(store.check().await.unwrap().problems, []);
}
