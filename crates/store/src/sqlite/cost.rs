//! What reads cost, counted and not timed: steps of SQLite's machine, bytes that are read. Nothing may grow with what
//! is not asked for.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quipu_protocol::NodeId;
use rusqlite::{Connection, params};

use super::connect::Patience;
use super::opening::open_for_writing;
use super::{actions, activity, connect, forest, graph, index, lists, places};
use crate::{
    ActionQuery, ActivityQuery, LOGGED, LineageEnd, OpenOptions, RefLogPlace, RefName, ReflogQuery,
    SessionQuery, SqliteStore,
};

/// Nodes since the last compaction.
const CHAIN: i64 = 400;
/// Nodes of one session.
const LENGTH: i64 = 1_000;
/// Every so many sessions work in the same directory.
const PROJECTS: i64 = 50;

fn id(seq: i64) -> NodeId {
    format!("{seq:064x}").parse().unwrap()
}

/// A file with so many nodes and indexed, in sessions one after the other. A compaction stands before the last nodes.
fn make(path: &Path, nodes: i64) -> Connection {
    std::fs::write(path, []).unwrap();
    let connection = open_for_writing(path, &Patience::new(Duration::ZERO)).unwrap();
    connection.execute_batch("BEGIN").unwrap();
    connection
        .execute(
            "WITH RECURSIVE n(seq) AS (SELECT 1 UNION ALL SELECT seq + 1 FROM n WHERE seq < ?1) \
             INSERT INTO nodes (rowid, id, parent_id, role, parts_list, timestamp) SELECT seq, printf('%064x', seq), \
             iif(seq > 1, printf('%064x', seq - 1), NULL), iif(seq = ?1 - ?2 + 1, 'compactionSummary', 'user'), '[]', seq \
             FROM n",
            [nodes, CHAIN],
        )
        .unwrap();
    while index::advance(&connection, 10_000).unwrap() {}
    connection
        .execute(
            "WITH RECURSIVE n(seq) AS (SELECT 1 UNION ALL SELECT seq + ?2 FROM n WHERE seq + ?2 <= ?1) \
             INSERT INTO quipu_x_session SELECT seq, 's' || seq, 'quipu/s' || seq, zeroblob(32), \
             'p' || (seq / ?2 % ?3), 'a', 'm', NULL, 't', NULL, seq, seq, 1, 0 FROM n",
            [nodes, LENGTH / 100, PROJECTS],
        )
        .unwrap();
    connection
        .execute_batch(
            "INSERT INTO refs SELECT ref, printf('%064x', num) FROM quipu_x_session; \
             INSERT INTO quipu_inbox SELECT num, id, 'n', 'q', '1' FROM quipu_x_session; \
             INSERT INTO quipu_step SELECT id, 'r', 'model', 'sent', NULL FROM quipu_x_session; \
             INSERT INTO quipu_x_mark SELECT 11, 1, seq, seq, NULL, NULL FROM quipu_x_node; \
             INSERT INTO quipu_x_mark SELECT 11, 3, seq, seq, printf('%064x', seq), 'label' FROM quipu_x_node \
             WHERE seq BETWEEN 500 AND 509; \
             UPDATE quipu_x_session SET parent = 's11' WHERE num < 50; COMMIT; \
             PRAGMA wal_checkpoint(TRUNCATE)",
        )
        .unwrap();
    connection
}

/// Steps of SQLite's machine that `work` takes.
fn steps<T>(connection: &mut Connection, work: impl Fn(&Connection) -> T) -> u64 {
    let count = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&count);
    connection
        .progress_handler(
            1,
            Some(move || {
                counter.fetch_add(1, Ordering::Relaxed);
                false
            }),
        )
        .unwrap();
    work(connection);
    connection.progress_handler(1, None::<fn() -> bool>).unwrap();
    count.load(Ordering::Relaxed)
}

#[test]
fn reads_cost_what_they_return() {
    let dir = tempfile::tempdir().unwrap();
    let sizes = [1_000, 100_000];
    let mut files = sizes.map(|nodes| (nodes, make(&dir.path().join(format!("{nodes}.db")), nodes)));
    type Work<'a> = &'a dyn Fn(&Connection, i64) -> usize;
    let sessions = |connection: &Connection, cwd: Option<&str>, id: Option<&str>| {
        let query = SessionQuery {
            cwd: cwd.map(str::to_owned),
            id: id.map(Into::into),
            limit: Some(2),
            ..SessionQuery::default()
        };
        lists::sessions(connection, &query).unwrap().len()
    };
    let checkpoint = |connection: &Connection, nodes| {
        graph::lineage(connection, &id(nodes), LineageEnd::Checkpoint).unwrap().len()
    };
    let newest = |connection: &Connection, nodes| {
        // Some nodes are not indexed yet.
        connection.execute("DELETE FROM quipu_x_node WHERE seq > ?1", params![nodes - 30]).unwrap();
        graph::lineage(connection, &id(nodes), LineageEnd::Checkpoint).unwrap().len()
    };
    let forks = SessionQuery { parent: Some("s11".into()), limit: Some(3), ..SessionQuery::default() };
    let works: [(&str, Work<'_>, usize); 17] = [
        ("lineage to the checkpoint", &checkpoint, 400),
        ("last nodes", &|c, nodes| graph::lineage(c, &id(nodes), LineageEnd::Count(20)).unwrap().len(), 20),
        ("newest sessions", &|c, _| sessions(c, None, None), 2),
        ("newest sessions of a directory", &|c, _| sessions(c, Some("p0"), None), 2),
        ("no session of a directory", &|c, _| sessions(c, Some("nowhere"), None), 0),
        ("a session", &|c, _| sessions(c, None, Some("s11")), 1),
        ("heads", &|c, _| lists::heads(c, "quipu/s11x").unwrap().len(), 0),
        ("pending", &|c, _| lists::pending(c, &"s11".into()).unwrap().inbox.len(), 1),
        ("lag", &|c, _| usize::from(places::is_behind(c).unwrap()), 0),
        ("lineage of nodes that are not indexed", &newest, 400),
        // Every node is an end of it.
        ("ends", &|c, _| forest::landmarks(c, &["s11".into()], 20).unwrap().len(), 20),
        ("labels", &|c, _| forest::labels(c, &["s11".into()]).unwrap().len(), 10),
        ("forks", &|c, _| lists::sessions(c, &forks).unwrap().len(), 3),
        ("children", &|c, nodes| graph::children(c, &[id(nodes / 2)]).unwrap().len(), 1),
        ("first children", &|c, nodes| graph::first_children(c, &[id(nodes / 2)], 5).unwrap().len(), 1),
        (
            "descendants",
            &|c, _| usize::try_from(graph::descendants(c, &[id(9)], 300).unwrap()[0]).unwrap(),
            300,
        ),
        ("sessions of nodes", &|c, _| graph::sessions_of(c, &[id(15), id(16)]).unwrap().len(), 2),
    ];
    for (name, work, returned) in works {
        let [small, large] = files.each_mut().map(|(nodes, connection)| {
            // Planned once.
            assert_eq!(work(connection, *nodes), returned, "{name}");
            steps(connection, |connection| work(connection, *nodes))
        });
        assert!(large <= small, "{name}: {small} steps at {} nodes, {large} at {}", sizes[0], sizes[1]);
    }
}

#[test]
fn activity_query_cost_depends_on_its_answer_only() {
    let dir = tempfile::tempdir().unwrap();
    let queries = |limit| {
        let query = |below: Option<&str>, agent: Option<&str>| ActivityQuery {
            below: below.map(str::to_owned),
            since: 0,
            agent: agent.map(str::to_owned),
            limit,
        };
        [query(Some("p0"), None), query(None, None), query(None, Some("a"))]
    };
    let counts = [10_000_i64, 100_000].map(|nodes| {
        let mut connection = make(&dir.path().join(format!("{nodes}.db")), nodes);
        activity::advance(&connection, 1).unwrap();
        // Each session was asked something, and touched more files than are told.
        connection
            .execute_batch(
                "BEGIN; INSERT INTO quipu_x_asked SELECT num, updated, num FROM quipu_x_session; \
                 WITH RECURSIVE n(file) AS (SELECT 1 UNION ALL SELECT file + 1 FROM n WHERE file < 150) \
                 INSERT INTO quipu_x_touch SELECT num, '/f' || file, 2, 1, updated, num FROM quipu_x_session, n \
                 WHERE num % 2 = 1 AND num > (SELECT max(num) - 2000 FROM quipu_x_session); COMMIT",
            )
            .unwrap();
        queries(3).map(|query| {
            let work = |connection: &Connection| activity::session_activity(connection, &query).unwrap().found;
            let found = work(&connection);
            assert_eq!(found.len(), 3, "{query:?}");
            assert!(found.iter().all(|one| one.asked_count == 1 && one.changed.len() <= LOGGED), "{found:?}");
            assert!(found.iter().any(|one| (one.changed.len(), one.changed_count) == (LOGGED, 150)));
            steps(&mut connection, work)
        })
    });
    let [small, large] = counts;
    for (small, large) in small.into_iter().zip(large) {
        assert!(large <= small + small / 100, "{small} steps in 10,000 nodes, {large} in 100,000");
    }
}

#[test]
fn fork_point_search_takes_logarithmic_steps() {
    let dir = tempfile::tempdir().unwrap();
    let mut counts = [1_000_i64, 100_000].map(|nodes| {
        let mut connection = make(&dir.path().join(format!("{nodes}.db")), nodes);
        // Branches of one node each, all along.
        let (parents, beside): (Vec<i64>, Vec<NodeId>) =
            (1..=20).map(|n| (nodes * n / 21, id(nodes * 10 + n))).unzip();
        for (parent, node) in parents.iter().zip(&beside) {
            let values = params![node.to_string(), id(*parent).to_string()];
            let insert = "INSERT INTO nodes (id, parent_id, role, parts_list, timestamp) VALUES (?1, ?2, 'user', '[]', 1)";
            connection.execute(insert, values).unwrap();
        }
        while index::advance(&connection, 10_000).unwrap() {}
        let head = id(nodes);
        let met = forest::fork_points(&connection, &head, &beside).unwrap();
        for ((parent, node), met) in parents.iter().zip(&beside).zip(met) {
            let met = met.unwrap();
            assert_eq!((met.at.unwrap().0, met.apart), (id(*parent), Some(*node)));
        }
        steps(&mut connection, |connection| forest::fork_points(connection, &head, &beside).unwrap())
    });
    counts.sort_unstable();
    let [small, large] = counts;
    assert!(large < small * 3, "{small} steps in 1,000 nodes, {large} in 100,000");
}

#[test]
fn lineage_log_cost_depends_on_its_sessions_only() {
    let dir = tempfile::tempdir().unwrap();
    let [small, large] = [100_i64, 10_000].map(|sessions| {
        let path = dir.path().join(format!("{sessions}.db"));
        std::fs::write(&path, []).unwrap();
        let mut connection = open_for_writing(&path, &Patience::new(Duration::ZERO)).unwrap();
        // Sessions of ten nodes each, and three rows of the log for each.
        connection
            .execute_batch(&format!(
                "BEGIN; WITH RECURSIVE n(seq) AS (SELECT 1 UNION ALL SELECT seq + 1 FROM n WHERE seq < {sessions} * 10) \
                 INSERT INTO nodes (rowid, id, parent_id, role, parts_list, timestamp) SELECT seq, printf('%064x', seq), \
                 iif(seq % 10 = 1, NULL, printf('%064x', seq - 1)), 'user', '[]', seq FROM n; \
                 INSERT INTO action_log (timestamp, action_type, from_node, to_node) \
                 SELECT timestamp, 'BOOT', NULL, id FROM nodes WHERE rowid % 10 IN (1, 5, 0)"
            ))
            .unwrap();
        let name = |connection: &Connection| {
            connection
                .execute_batch(
                    "UPDATE quipu_x_node SET session = (seq - 1) / 10 * 10 + 1; \
                     INSERT INTO quipu_x_session SELECT seq, 's' || seq, 'r', zeroblob(32), 'p', 'a', 'm', NULL, 't', \
                     NULL, seq, seq, 1, 0 FROM quipu_x_node WHERE seq % 10 = 1",
                )
                .unwrap();
        };
        while index::advance(&connection, 10_000).unwrap() {}
        connection.execute_batch("DELETE FROM quipu_x_mark WHERE kind = 5").unwrap();
        name(&connection);
        while actions::advance(&connection, 1_000).unwrap() {}
        connection.execute_batch("COMMIT").unwrap();
        let query = |lineage, session: Option<&str>| ActionQuery {
            kinds: vec!["BOOT".into()],
            lineage,
            left: true,
            session: session.map(Into::into),
            limit: Some(15),
            ..ActionQuery::default()
        };
        let works = [
            (query(Some(id(60)), None), 3),
            (query(None, Some("s51")), 3),
            (query(None, None), 15),
            (query(Some(id(54)), None), 1),
        ];
        works.map(|(query, returned)| {
            let find = |connection: &Connection| actions::find(connection, &query).unwrap().len();
            assert_eq!(find(&connection), returned, "{query:?}");
            steps(&mut connection, find)
        })
    });
    for (small, large) in small.into_iter().zip(large) {
        assert!(large <= small + small / 10, "{small} steps among 300 rows, {large} among 30,000");
    }
}

/// Bytes that this thread has read, where the system counts them.
fn bytes_read() -> Option<u64> {
    let io = std::fs::read_to_string("/proc/thread-self/io").ok()?;
    io.lines().find_map(|line| line.strip_prefix("rchar: ")?.parse().ok())
}

#[test]
fn opening_reads_the_same_of_large_and_small_stores() {
    let dir = tempfile::tempdir().unwrap();
    let [small, large] = [10_i64, 100_000].map(|nodes| {
        let path = dir.path().join(format!("{nodes}.db"));
        drop(make(&path, nodes.max(CHAIN)));
        let before = bytes_read();
        let store = SqliteStore::open(&path, &OpenOptions::default()).unwrap();
        let read = bytes_read().zip(before).map(|(after, before)| after - before);
        drop(store);
        read
    });
    if let (Some(small), Some(large)) = (small, large) {
        assert!(large <= small + (32 << 10), "{small} bytes of a small store, {large} of a large one");
    }
    // And a connection that reads: nothing but the schema.
    let mut reader = connect::reader(&dir.path().join("100000.db"), &Patience::new(Duration::ZERO)).unwrap();
    assert!(steps(&mut reader, |connection| connect::probe(connection).unwrap()) < 1_000);
}

#[test]
fn ref_move_lookup_cost_ignores_appends() {
    let dir = tempfile::tempdir().unwrap();
    let [small, large] = [10_i64, 100_000].map(|rows| {
        let mut connection = make(&dir.path().join(format!("{rows}.db")), CHAIN);
        connection
            .execute(
                "WITH RECURSIVE n(at) AS (SELECT 1 UNION ALL SELECT at + 1 FROM n WHERE at < ?1) \
                 INSERT INTO quipu_reflog (ref, old, new, at, writer, why) \
                 SELECT 'quipu/s', zeroblob(32), zeroblob(32), at, 'w', iif(at = 3, 'jump', 'append') FROM n",
                [rows],
            )
            .unwrap();
        let query = ReflogQuery { name: "quipu/s".into(), before: None, moves_only: true, limit: Some(1) };
        let work = |connection: &Connection| lists::reflog(connection, &query).unwrap();
        assert_eq!(work(&connection)[0].why, "jump");
        steps(&mut connection, work)
    });
    assert!(large <= small, "{small} steps among 10, {large} among 100,000");
}

#[test]
fn ref_change_cost_ignores_sessions_and_earlier_moves() {
    let dir = tempfile::tempdir().unwrap();
    let [small, large] = [1_000_i64, 100_000].map(|nodes| {
        let mut connection = make(&dir.path().join(format!("{nodes}.db")), nodes);
        // Each session began once, and moved since.
        connection
            .execute_batch(
                "INSERT INTO quipu_reflog (ref, old, new, at, writer, why) \
                 SELECT ref, NULL, zeroblob(32), num, 'w', 'begin' FROM quipu_x_session; \
                 INSERT INTO quipu_reflog (ref, old, new, at, writer, why) \
                 SELECT ref, zeroblob(32), zeroblob(32), num, 'w', 'append' FROM quipu_x_session",
            )
            .unwrap();
        let all = lists::ref_changes(&connection, Some(RefLogPlace::default())).unwrap();
        assert_eq!(all.names.unwrap().len() as i64, nodes / (LENGTH / 100));
        let since = lists::ref_changes(&connection, None).unwrap().until;
        let moved = "INSERT INTO quipu_reflog (ref, old, new, at, writer, why) VALUES ('quipu/s11', zeroblob(32), ?1, 7, 'w', 'rm')";
        connection.execute(moved, [Some([1_u8; 32])]).unwrap();
        connection.execute(moved, [None::<[u8; 32]>]).unwrap();
        let work = |connection: &Connection| lists::ref_changes(connection, Some(since)).unwrap().names;
        assert_eq!(work(&connection).unwrap(), [RefName::from("quipu/s11")]);
        // A log that does not have the place any more tells nothing.
        let lost = RefLogPlace { at: since.at + 1, ..since };
        assert_eq!(lists::ref_changes(&connection, Some(lost)).unwrap().names, None);
        steps(&mut connection, work)
    });
    assert!(large <= small, "{small} steps among 100 sessions, {large} among 10,000");
}
