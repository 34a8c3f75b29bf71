//! Files of other programs, of older ones, and of nobody; and another program that reads ours.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use quipu_dag::{Blob, Node, NodeRecord};
use quipu_protocol::{
    AssistantMessage, Content, Entry, Json, Message, NodeId, SessionId, StopReason, ToolCall,
    ToolResultMessage,
};
use quipu_store::{
    Commit, LineageEnd, OpenOptions, ProblemKind, ReadModel as _, ReadParts, RefMove, RefName, Resolution,
    Scope, SessionQuery, SqliteStore, Store, StoreError, Upkeep,
};
use quipu_transcript::Lookup as _;
use rusqlite::Connection;
use rusqlite::types::Value;

use crate::support::*;

/// The tables of the program that came before V4, and the oldest ones that are known of.
const V3: &str = "
CREATE TABLE blobs (hash TEXT PRIMARY KEY, type TEXT NOT NULL, content TEXT NOT NULL, thought_signature TEXT);
CREATE TABLE nodes (id TEXT PRIMARY KEY, parent_id TEXT, role TEXT NOT NULL, parts_list TEXT NOT NULL,
  timestamp INTEGER NOT NULL, config_json TEXT, thought_signatures TEXT, system_prompt_hash TEXT);
CREATE TABLE refs (name TEXT PRIMARY KEY, node_id TEXT NOT NULL);
CREATE TABLE action_log (id INTEGER PRIMARY KEY AUTOINCREMENT, timestamp INTEGER NOT NULL,
  action_type TEXT NOT NULL, from_node TEXT, to_node TEXT, metadata TEXT);
CREATE INDEX idx_nodes_parent ON nodes(parent_id);";
const V1: &str = "
CREATE TABLE blobs (hash TEXT PRIMARY KEY, type TEXT NOT NULL, content TEXT NOT NULL);
CREATE TABLE nodes (id TEXT PRIMARY KEY, parent_id TEXT, role TEXT NOT NULL, parts_list TEXT NOT NULL, timestamp INTEGER NOT NULL);";

/// Writes a node as another program does: plain statements, in the base columns only.
fn insert(connection: &Connection, node: &Node, blob: &Blob) {
    connection
        .execute(
            "INSERT OR IGNORE INTO blobs (hash, type, content) VALUES (?1, ?2, ?3)",
            [blob.id.to_string(), blob.kind.clone(), blob.content.clone()],
        )
        .unwrap();
    connection
        .execute(
            "INSERT INTO nodes (id, parent_id, role, parts_list, timestamp) VALUES (?1, ?2, ?3, ?4, ?5)",
            rusqlite::params![
                node.id.to_string(),
                node.record.parent.map(|id| id.to_string()),
                node.record.role,
                quipu_dag::write_parts_list(&node.record.parts),
                // As a program bound to floats would.
                node.record.timestamp as f64
            ],
        )
        .unwrap();
}

/// Before, changes of files were kept without the node that says how they were.
#[tokio::test]
async fn activity_of_an_older_form_is_rebuilt() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("older.db");
    let store = open(&path);
    let session = SessionId::from("0190a5c0-0000-7000-8000-00000000000a");
    let (first, mut commit) = entry_commit(None, &session_start(&session, "/w", None), T);
    commit.moves.push(RefMove::publish(RefName::session(&session), first, "begin"));
    store.commit(commit).await.unwrap();
    let arguments = Json::parse(r#"{"path":"a","content":"x"}"#).unwrap();
    let (thought_signature, namespace) = (None, None);
    let call = ToolCall { id: "c1".into(), name: "write".into(), arguments, thought_signature, namespace };
    let answer = AssistantMessage { content: vec![Content::ToolCall(call)], ..AssistantMessage::default() };
    let (answer, commit) = entry_commit(Some(first), &Entry::Message(Message::Assistant(answer)), T + 1);
    store.commit(commit).await.unwrap();
    let result = ToolResultMessage {
        tool_call_id: "c1".into(),
        tool_name: "write".into(),
        content: Vec::new(),
        details: None,
        usage: None,
        is_error: false,
        timestamp: T + 2,
    };
    let (_, commit) = entry_commit(Some(answer), &Entry::Message(Message::ToolResult(result)), T + 2);
    store.commit(commit).await.unwrap();
    let expect =
        (store.file_activity(&session).await.unwrap(), store.changes(&["/w/a".into()]).await.unwrap());
    assert_eq!((expect.0.found.len(), expect.1.found.len(), expect.0.behind), (1, 1, 0));
    drop(store);
    let connection = Connection::open(&path).unwrap();
    connection
        .execute_batch(
            "DROP TABLE quipu_x_file;
             CREATE TABLE quipu_x_file (path TEXT NOT NULL, seq INTEGER NOT NULL, call INTEGER NOT NULL,
               at INTEGER NOT NULL, asked INTEGER, PRIMARY KEY (path, seq, call)) WITHOUT ROWID;
             INSERT INTO quipu_x_file VALUES ('/other', 1, 0, 5, NULL);",
        )
        .unwrap();
    drop(connection);
    let store = open(&path);
    assert_eq!(
        (store.file_activity(&session).await.unwrap(), store.changes(&["/w/a".into()]).await.unwrap()),
        expect
    );
    assert_eq!(store.changes(&["/other".into()]).await.unwrap().found, []);
}

/// A program that copies a file may write a node before its parent.
#[tokio::test]
async fn children_before_their_parents() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("backwards.db");
    let mut nodes: Vec<(Node, Blob)> = Vec::new();
    for n in 0..20 {
        let parent = nodes.last().map(|(node, _)| node.id);
        nodes.push(text_node(parent, "user", &format!("backwards {n}"), T + n));
    }
    let ids: Vec<NodeId> = nodes.iter().map(|(node, _)| node.id).collect();
    drop(open(&path));
    let connection = Connection::open(&path).unwrap();
    for (node, blob) in nodes.iter().rev() {
        insert(&connection, node, blob);
    }
    drop(connection);
    let store = open(&path);
    let below = store.below(ids[0], &[ids[19], ids[5]]).await.unwrap();
    let piece = store.written(&below, ReadParts::All, usize::MAX).await.unwrap();
    let found: Vec<NodeId> = piece.nodes.iter().rev().map(|written| written.node.id).collect();
    assert_eq!(found, ids[1..]);
    assert!(nodes[1..].iter().all(|(_, blob)| piece.objects.blob(&blob.id) == Some(blob)));
}

pub(crate) fn old_file(path: &Path, tables: &str) -> Vec<NodeId> {
    let connection = Connection::open(path).unwrap();
    connection.execute_batch(tables).unwrap();
    let mut ids: Vec<NodeId> = Vec::new();
    for n in 0..20 {
        let (node, blob) = text_node(ids.last().copied(), "user", &format!("old {n}"), T + n);
        insert(&connection, &node, &blob);
        ids.push(node.id);
    }
    ids
}

fn backups(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains(".bak.")).collect()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// Every row of every derived table but those of the search: what these hold depends on what was added together.
fn derived(path: &Path) -> Vec<(String, Vec<Vec<Value>>)> {
    let connection = Connection::open(path).unwrap();
    let names: Vec<String> = connection
        .prepare(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'quipu_x_%' \
             AND name NOT LIKE 'quipu_x_words%' AND name NOT LIKE 'quipu_x_parts%' \
             AND name NOT IN ('quipu_x_search', 'quipu_x_late', 'quipu_x_deeds', 'quipu_x_tardy', 'quipu_x_use', 'quipu_x_purpose', \
             'quipu_x_tool', 'quipu_x_touch', 'quipu_x_file', 'quipu_x_state', 'quipu_x_held', 'quipu_x_asked') ORDER BY name",
        )
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let rows = |name: &String| {
        let mut statement = connection.prepare(&format!("SELECT * FROM {name} ORDER BY 1")).unwrap();
        let count = statement.column_count();
        let rows = statement.query_map([], |row| (0..count).map(|at| row.get(at)).collect()).unwrap();
        rows.map(Result::unwrap).collect()
    };
    names.iter().map(|name| (name.clone(), rows(name))).collect()
}

#[tokio::test]
async fn older_files_are_upgraded_after_a_backup() {
    for (tables, version) in [(V3, 3), (V1, 1)] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("playfilo.db");
        let ids = old_file(&path, tables);
        let store = open(&path);
        let lineage = store.lineage(ids[19], LineageEnd::Root).await.unwrap();
        assert_eq!(lineage.iter().map(|node| node.id).collect::<Vec<_>>(), ids);
        assert_eq!(store.ancestor(ids[19], 3).await.unwrap(), Some(ids[3]));
        assert_eq!(store.check().await.unwrap().problems, []);
        let (id, commit) = step(&"new".into(), None, "new", T);
        store.commit(commit).await.unwrap();
        assert!(store.nodes(&[id]).await.unwrap()[0].is_some());
        drop(store);
        let backups = backups(dir.path());
        assert_eq!(backups.len(), 1, "{backups:?}");
        assert!(backups[0].starts_with(&format!("playfilo.db.bak.v{version}.")), "{backups:?}");
        let backup = dir.path().join(&backups[0]);
        assert_eq!(mode(&backup), 0o600);
        let copy = Connection::open(&backup).unwrap();
        let count: i64 = copy.query_row("SELECT count(*) FROM nodes", [], |row| row.get(0)).unwrap();
        assert_eq!(count, 20);
        assert!(copy.prepare("SELECT external_id FROM nodes").is_err(), "the backup is the file as it was");
        // Once upgraded, nothing is done again; other programs see no version.
        drop(open(&path));
        assert_eq!(self::backups(dir.path()).len(), 1);
        let connection = Connection::open(&path).unwrap();
        let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
        assert_eq!(version, 0);
    }
}

#[test]
fn a_newer_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    drop(open(&path));
    let connection = Connection::open(&path).unwrap();
    connection.execute_batch("UPDATE quipu_meta SET value = '99' WHERE key = 'format'").unwrap();
    let error = SqliteStore::open(&path, &options()).unwrap_err();
    assert!(matches!(error, StoreError::NewerVersion { found: 99, known: 1, .. }), "{error}");
}

#[test]
fn file_that_is_no_store_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let refuse = |name: &str| SqliteStore::open(&at(name), &options()).unwrap_err();

    drop(open(&at("quipu.db")));
    symlink(at("quipu.db"), at("link.db")).unwrap();
    assert!(matches!(refuse("link.db"), StoreError::Symlink { .. }));
    symlink(at("nowhere"), at("dangling.db")).unwrap();
    assert!(matches!(refuse("dangling.db"), StoreError::Symlink { .. }));
    assert!(!at("nowhere").exists());
    drop(open(&at("log.db")));
    symlink(at("quipu.db"), at("log.db-wal")).unwrap();
    assert!(matches!(refuse("log.db"), StoreError::Symlink { .. }));
    fs::create_dir(at("sub")).unwrap();
    assert!(matches!(refuse("sub"), StoreError::NotAStore { .. }));
    assert!(matches!(refuse("quipu.db/x.db"), StoreError::NotAStore { .. } | StoreError::Io { .. }));
    let fifo = Command::new("mkfifo").arg(at("fifo.db")).status().unwrap();
    assert!(fifo.success());
    assert!(matches!(refuse("fifo.db"), StoreError::NotAStore { .. }));
    assert!(matches!(
        SqliteStore::open(Path::new("/dev/null"), &options()),
        Err(StoreError::NotAStore { .. })
    ));
    assert!(matches!(SqliteStore::open(Path::new("/"), &options()), Err(StoreError::NotAStore { .. })));

    Connection::open(at("other.db")).unwrap().execute_batch("CREATE TABLE places (url TEXT)").unwrap();
    let before = fs::read(at("other.db")).unwrap();
    assert!(matches!(refuse("other.db"), StoreError::NotAStore { .. }));
    assert_eq!(fs::read(at("other.db")).unwrap(), before, "a refused file is left alone");
    Connection::open(at("odd.db"))
        .unwrap()
        .execute_batch("CREATE TABLE nodes (id TEXT); CREATE TABLE blobs (x)")
        .unwrap();
    assert!(matches!(refuse("odd.db"), StoreError::NotAStore { .. }));

    fs::write(at("text.db"), "hello\n".repeat(2000)).unwrap();
    let error = refuse("text.db");
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
    assert!(error.to_string().contains("text.db") && error.to_string().contains("backup"), "{error}");

    let none = OpenOptions { create: false, ..options() };
    for name in ["absent.db", "absent/quipu.db"] {
        assert!(matches!(SqliteStore::open(&at(name), &none), Err(StoreError::NotAStore { .. })));
        assert!(!at(name).exists() && !at("absent").exists());
    }
    // A file of no bytes is a new store.
    fs::write(at("empty.db"), "").unwrap();
    drop(open(&at("empty.db")));
}

#[tokio::test]
async fn files_are_private_whatever_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("a/b");
    let path = home.join("quipu.db");
    let store = open(&path);
    let (_, commit) = step(&"s".into(), None, "private", T);
    store.commit(commit).await.unwrap();
    for made in [dir.path().join("a"), home.clone()] {
        assert_eq!(mode(&made), 0o700);
    }
    for name in ["quipu.db", "quipu.db-wal", "quipu.db-shm"] {
        assert_eq!(mode(&home.join(name)), 0o600, "{name}");
    }
    drop(store);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    drop(open(&path));
    assert_eq!(mode(&path), 0o600);
    // Reached through a link that is ours, the directory is the one behind it.
    symlink(&home, dir.path().join("link")).unwrap();
    let store = open(&dir.path().join("link/quipu.db"));
    assert_eq!(store.path(), fs::canonicalize(&path).unwrap());
}

#[test]
fn somebody_elses_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    drop(open(&path));
    let nobody = Some(65534);
    if std::os::unix::fs::chown(&path, nobody, nobody).is_err() {
        println!("skipped: only the administrator can give a file away");
        return;
    }
    let error = SqliteStore::open(&path, &options()).unwrap_err();
    assert!(matches!(error, StoreError::NotOwner { owner: 65534, .. }), "{error}");
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::chown(dir.path(), nobody, nobody).unwrap();
    let error = SqliteStore::open(&path, &options()).unwrap_err();
    assert!(matches!(error, StoreError::NotOwner { owner: 65534, .. }), "{error}");
    assert!(!path.exists());
}

#[tokio::test]
async fn foreign_rows_are_indexed_on_demand() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("playfilo.db");
    let store = open(&path);
    let mut trunk: Vec<Node> = Vec::new();
    for n in 0..30 {
        let parent = trunk.last().map(|node| node.id);
        trunk.push(text_node(parent, "user", &format!("foreign {n}"), T + n).0);
    }
    let blob = |n: usize| Blob::text(&format!("foreign {n}"));
    let other = Connection::open(&path).unwrap();
    // Children before their parents, as a copy from elsewhere may be.
    for n in (10..30).rev() {
        insert(&other, &trunk[n], &blob(n));
    }
    assert_eq!(store.ancestor(trunk[29].id, 0).await.unwrap(), Some(trunk[10].id), "the rest is missing yet");
    let ids: Vec<NodeId> =
        store.lineage(trunk[29].id, LineageEnd::Root).await.unwrap().iter().map(|n| n.id).collect();
    assert_eq!(ids, trunk[10..].iter().map(|node| node.id).collect::<Vec<_>>());
    let report = store.check().await.unwrap();
    assert_eq!(report.problems.iter().map(|problem| problem.kind).collect::<Vec<_>>(), [ProblemKind::Parent]);
    for (n, node) in trunk.iter().enumerate().take(10) {
        insert(&other, node, &blob(n));
    }
    for depth in 0..30 {
        assert_eq!(store.ancestor(trunk[29].id, depth).await.unwrap(), Some(trunk[depth as usize].id));
    }
    assert_eq!(store.check().await.unwrap().problems, []);
    // Ours below theirs.
    let (mine, commit) = text_commit(Some(trunk[29].id), "mine", T + 99);
    store.commit(commit).await.unwrap();
    assert_eq!(store.ancestor(mine, 30).await.unwrap(), Some(mine));

    let before = derived(&path);
    store.rebuild().await.unwrap();
    assert_eq!(derived(&path), before);
}

#[tokio::test]
async fn rebuilt_tables_are_equal() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let store = open(&path);
    let mut heads: Vec<Option<NodeId>> = vec![None];
    for n in 0..200_i64 {
        let at = T + n;
        let parent = heads[usize::try_from(n * 7919).unwrap() % heads.len()];
        let session = SessionId::from(format!("session {n}"));
        let entry = match n % 5 {
            0 => session_start(&session, "/w", None),
            1 | 2 => user(&format!("question {n}"), at),
            _ => {
                let mut answer = assistant(&format!("answer {n}"));
                answer.usage.cost.total = 0.001 * n as f64;
                Entry::Message(Message::Assistant(answer))
            }
        };
        let (id, mut commit) = entry_commit(parent, &entry, at);
        if n % 5 == 0 {
            commit.moves.push(RefMove::swap(RefName::session(&session), None, id, "step"));
        }
        store.commit(commit).await.unwrap();
        heads.push(Some(id));
    }
    // A read that needs the newest rows has them made.
    assert_eq!(store.sessions(SessionQuery::default()).await.unwrap().len(), 40);
    let before = derived(&path);
    assert!(before.iter().any(|(name, rows)| name == "quipu_x_session" && rows.len() == 40));
    store.rebuild().await.unwrap();
    assert_eq!(derived(&path), before);
    let sessions = store.sessions(SessionQuery::default()).await.unwrap();
    drop(store);
    // Also when they are lost altogether.
    let connection = Connection::open(&path).unwrap();
    for (name, _) in &before {
        connection.execute_batch(&format!("DROP TABLE {name}")).unwrap();
    }
    drop(connection);
    let store = open(&path);
    assert_eq!(store.sessions(SessionQuery::default()).await.unwrap(), sessions);
    assert_eq!(derived(&path), before);
    assert_eq!(store.check().await.unwrap().problems, []);
}

#[tokio::test]
async fn damaged_derived_tables_do_not_stop_commits() {
    for damage in [
        "UPDATE quipu_x_node SET jump = 999999",
        "UPDATE quipu_x_node SET depth = 'deep'",
        "DELETE FROM quipu_x_cursor",
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("quipu.db");
        let store = open(&path);
        let session: SessionId = "s".into();
        let (mut head, commit) = step(&session, None, "0", T);
        store.commit(commit).await.unwrap();
        Connection::open(&path).unwrap().execute_batch(damage).unwrap();
        for n in 1..4 {
            let (next, commit) = step(&session, Some(head), &n.to_string(), T + n);
            store.commit(commit).await.unwrap();
            head = next;
        }
        assert_eq!(store.check().await.unwrap().problems, [], "{damage}");
        assert_eq!(store.lineage(head, LineageEnd::Root).await.unwrap().len(), 4, "{damage}");
    }
}

#[tokio::test]
async fn damaged_row_fails_only_the_work_that_needs_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let store = open(&path);
    let damage = "INSERT INTO quipu_lease VALUES ('bad', x'ff', 'no number', 'never')";
    Connection::open(&path).unwrap().execute_batch(damage).unwrap();
    let (bad, owner) = (RefName::from("bad"), quipu_store::Owner("me".into()));
    let work = (0..40).map(|n| {
        let (store, bad, owner) = (&store, &bad, &owner);
        async move {
            if n % 4 == 3 {
                let leased = store.lease(bad, owner, std::time::Duration::from_secs(9)).await;
                assert!(matches!(leased, Err(StoreError::Corrupt { .. })), "{leased:?}");
                return Ok(());
            }
            store.commit(text_commit(None, "good", T + n).1).await
        }
    });
    let done = futures_util::future::join_all(work).await;
    assert_eq!(done, vec![Ok(()); 40]);
}

#[tokio::test]
async fn walks_over_cycles_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let store = open(&path);
    let ids: Vec<String> = (1..=4).map(|n| format!("{n:064x}")).collect();
    let other = Connection::open(&path).unwrap();
    // Two circles of two, which the derived tables confirm.
    for (seq, parent) in [(1_usize, 2_usize), (2, 1), (3, 4), (4, 3)] {
        let (id, above) = (&ids[seq - 1], &ids[parent - 1]);
        other
            .execute_batch(&format!(
                "INSERT INTO nodes VALUES ('{id}', '{above}', 'user', '[]', 1, NULL, NULL, NULL, NULL);
                 INSERT INTO quipu_x_node VALUES ({seq}, x'{id}', {parent}, {parent}, 7, NULL, 1, 0);
                 UPDATE quipu_x_cursor SET seq = {seq};"
            ))
            .unwrap();
    }
    let ids: Vec<NodeId> = ids.iter().map(|id| id.parse().unwrap()).collect();
    assert_eq!(store.lineage(ids[0], LineageEnd::Root).await.unwrap().len(), 2);
    assert!(matches!(store.fork_point(ids[0], ids[2]).await, Err(StoreError::Corrupt { .. })));
    assert!(matches!(store.ancestor(ids[0], 3).await, Err(StoreError::Corrupt { .. })));
}

#[tokio::test]
async fn hostile_rows_do_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let store = open(&path);
    let (good, commit) = step(&"good".into(), None, "good", T);
    store.commit(commit).await.unwrap();
    let (one, two) = (format!("{:064x}", 1), format!("{:064x}", 2));
    let other = Connection::open(&path).unwrap();
    other
        .execute_batch(&format!(
            "INSERT INTO nodes VALUES ('{one}', '{two}', 'user', '[]', 1, NULL, NULL, NULL, NULL);
             INSERT INTO nodes VALUES ('{two}', '{one}', 'user', '[]', 1, NULL, NULL, NULL, NULL);
             INSERT INTO nodes VALUES ('not a hash', NULL, 'user', '[]', 1, NULL, NULL, NULL, NULL);
             INSERT INTO nodes VALUES (x'ff00', x'ff', x'fe', x'fd', 'soon', x'fc', 1.5, 2, 3);
             INSERT INTO nodes VALUES (NULL, NULL, '', '{{', 9e99, NULL, NULL, NULL, NULL);
             INSERT INTO nodes VALUES ('{:064x}', 'no hash', 'x', '[1,\"zz\",null]', -9e99, '', '', '', '');
             INSERT INTO blobs VALUES ('bafyabc', 'playtiss', 'aGVsbG8=', NULL);
             INSERT INTO blobs VALUES ('{one}', 'text', '\"another text\"', NULL);
             INSERT INTO blobs VALUES ('{two}', 'text', x'ff', NULL);
             INSERT INTO refs VALUES ('broken', 'nowhere');
             INSERT INTO refs VALUES (x'ff', '{good}');
             INSERT INTO action_log VALUES (NULL, 'soon', x'ff', x'ff', 7, x'ff');
             INSERT INTO quipu_chunk VALUES (x'00', 0, 5, x'00');
             INSERT INTO quipu_chunk VALUES (zeroblob(32), 2, 5, x'05');
             INSERT INTO quipu_chunk VALUES (randomblob(32), 1, 1000000000000, x'00');
             INSERT INTO quipu_step VALUES ('lost', 'r', 'model', 'sent', NULL);",
            3
        ))
        .unwrap();
    let (one, two): (NodeId, NodeId) = (one.parse().unwrap(), two.parse().unwrap());
    let circle = store.lineage(one, LineageEnd::Root).await.unwrap();
    assert_eq!(circle.iter().map(|node| node.id).collect::<Vec<_>>(), [two, one]);
    assert_eq!(store.fork_point(one, good).await.unwrap(), None);
    assert_eq!(store.ancestor(one, 0).await.unwrap(), Some(two));
    assert_eq!(store.head(&"broken".into()).await.unwrap(), None);
    assert_eq!(store.heads("").await.unwrap().len(), 2);
    assert_eq!(store.actions(quipu_store::ActionQuery::default()).await.unwrap().len(), 1);
    assert_eq!(store.sessions(SessionQuery::default()).await.unwrap(), []);
    assert_eq!(
        store
            .resolve(&"0000".into(), &Scope::default())
            .await
            .map(|found| matches!(found, Resolution::Many(_))),
        Ok(true)
    );
    assert_eq!(store.nodes(&[good]).await.unwrap().len(), 1);
    assert!(matches!(
        store.chunk(quipu_protocol::ChunkId([0; 32]), 0..9).await,
        Err(StoreError::Corrupt { .. })
    ));
    store.rebuild().await.unwrap();
    let report = store.check().await.unwrap();
    for kind in
        [ProblemKind::Blob, ProblemKind::Chunk, ProblemKind::Parent, ProblemKind::Ref, ProblemKind::Orphan]
    {
        assert!(report.problems.iter().any(|problem| problem.kind == kind), "{kind:?} in {report:#?}");
    }
    assert!(
        !report
            .problems
            .iter()
            .any(|problem| matches!(problem.kind, ProblemKind::File | ProblemKind::Derived))
    );
    let (_, commit) = step(&"good".into(), Some(good), "goes on", T + 1);
    store.commit(commit).await.unwrap();
}

fn assistant(text: &str) -> AssistantMessage {
    AssistantMessage {
        content: vec![Content::text(text)],
        api: "demo".to_owned(),
        provider: "demo".to_owned(),
        model: "demo-1".to_owned(),
        usage: quipu_protocol::Usage::default(),
        stop_reason: StopReason::Stop,
        timestamp: T,
        response_model: None,
        response_id: None,
        error_message: None,
        raw_stop_reason: None,
    }
}

#[tokio::test]
async fn an_independent_reader_in_javascript_finds_the_same_hashes() {
    if Command::new("node").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        assert!(std::env::var_os("QUIPU_REQUIRE_PEERS").is_none(), "node is not installed");
        println!("skipped: node is not installed");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let store = open(&path);
    let session = SessionId::from("0190a5c0-2222-7000-8000-000000000001");
    let mut answer = assistant("I look \u{2028}\u{7f}😀\t\"q\" \\ é");
    answer.stop_reason = StopReason::ToolUse;
    let arguments =
        r#"{"b":1.0,"10":12345678901234567890,"9":-0,"a":"\ud800x","__proto__":{"x":1},"01":[1e21,1e-7]}"#;
    answer.content.push(Content::ToolCall(ToolCall {
        id: "call_1".into(),
        name: "read".to_owned(),
        arguments: Json::parse(arguments).unwrap(),
        thought_signature: Some("sig".to_owned()),
        namespace: None,
    }));
    let result = ToolResultMessage {
        tool_call_id: "call_1".into(),
        tool_name: "read".to_owned(),
        content: vec![Content::text("ok\n")],
        details: Some(Json::parse("{\"lines\":1}").unwrap()),
        usage: None,
        is_error: false,
        timestamp: T,
    };
    let entries = [
        session_start(&session, "/work", None),
        user("fix the parser", T),
        Entry::Message(Message::Assistant(answer)),
        Entry::Message(Message::ToolResult(result)),
        Entry::Message(Message::Assistant(assistant("done"))),
        Entry::Meta(Json::parse(r#"{"type":"label","id":"x","label":"\udfff"}"#).unwrap()),
    ];
    let mut parent = None;
    for (n, entry) in entries.iter().enumerate() {
        let (id, mut commit) = entry_commit(parent, entry, T + n as i64);
        commit.moves.push(RefMove::swap(RefName::session(&session), parent, id, "step"));
        commit.moves.push(RefMove::publish(RefName::PI_HEAD.into(), id, "publish"));
        store.commit(commit).await.unwrap();
        parent = Some(id);
    }
    // As the departure node of another program: no id of its own, a system prompt in force.
    let prompt = Blob::string("system_prompt", "You are Pi.");
    let (node, blob) = text_node(parent, "toolResult", "gone", T + 50);
    let node = Node::new(NodeRecord { system_prompt: Some(prompt.id), ..node.record }, None, None);
    store.commit(Commit { blobs: vec![prompt, blob], nodes: vec![node], ..Commit::default() }).await.unwrap();
    drop(store);

    let connection = Connection::open(&path).unwrap();
    let mut lines = String::new();
    for (table, key) in [("blobs", "hash"), ("nodes", "id"), ("refs", "name")] {
        let mut statement = connection.prepare(&format!("SELECT * FROM {table} ORDER BY {key}")).unwrap();
        let columns: Vec<String> = statement.column_names().map(str::to_owned).collect();
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let mut object = serde_json::Map::new();
            object.insert("table".to_owned(), table.into());
            for (at, column) in columns.iter().enumerate() {
                let value = match row.get::<_, Value>(at).unwrap() {
                    Value::Null => serde_json::Value::Null,
                    Value::Integer(number) => number.into(),
                    Value::Text(text) => text.into(),
                    other => panic!("{column}: {other:?}"),
                };
                object.insert(column.clone(), value);
            }
            lines.push_str(&serde_json::to_string(&object).unwrap());
            lines.push('\n');
        }
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/js/reader.js");
    let mut reader =
        Command::new("node").arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    reader.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = reader.wait_with_output().unwrap();
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["problems"], serde_json::json!([]));
    assert_eq!(found["nodes"], 7);
    assert_eq!(found["skipped"], serde_json::json!({"quipu": 6}));
    assert_eq!(
        found["conversation"],
        serde_json::json!([
            ["user", ["fix the parser"]],
            ["assistant", ["I look \u{2028}\u{7f}😀\t\"q\" \\ é", "read"]],
            ["toolResult", ["ok\n"]],
            ["assistant", ["done"]]
        ])
    );
}
