//! Damaged stores: what can be read is carried over, the rest is told, and the damaged file stays as it was.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quipu_protocol::{ChunkId, Json, NodeId, SessionId};
use quipu_store::{
    Commit, InboxItem, LineageEnd, NewChunk, Op, ReadModel as _, RefName, SessionQuery, SqliteStore, Step,
    StepCall, StepState, Store, StoreError, Upkeep, salvage,
};
use rusqlite::Connection;

use crate::support::*;

/// What a store was made with.
struct SampleStore {
    nodes: Vec<NodeId>,
    chunks: Vec<ChunkId>,
    session: SessionId,
}

/// A session of 300 nodes, with chunks whole, as differences and in pieces, a waiting input and an open step.
async fn fill(store: &SqliteStore) -> SampleStore {
    let session = SessionId::from("0190a5c0-3333-7000-8000-000000000001");
    let (base, mut commit) = entry_commit(None, &session_start(&session, "/w", None), T);
    commit.moves.push(quipu_store::RefMove::swap(RefName::session(&session), None, base, "start"));
    store.commit(commit).await.unwrap();
    let (mut nodes, mut chunks) = (vec![base], Vec::<ChunkId>::new());
    for n in 0..300_i64 {
        let said = format!("question {n} {}", "words ".repeat(if n % 50 == 7 { 4_000 } else { 40 }));
        let parent = *nodes.last().unwrap();
        let (id, mut commit) = entry_commit(Some(parent), &user(&said, T + n + 1), T + n + 1);
        commit.moves.push(quipu_store::RefMove::swap(RefName::session(&session), Some(parent), id, "step"));
        if n % 20 == 3 {
            let mut bytes = noise(1, 20_000);
            bytes.extend_from_slice(n.to_string().as_bytes());
            let (id, bytes) = (chunk_id(&bytes), Arc::from(bytes));
            commit.chunks.push(match chunks.last() {
                Some(base) if n % 3 != 0 => NewChunk::Delta { id, base: *base, bytes },
                _ => NewChunk::Full { id, bytes },
            });
            chunks.push(id);
        }
        store.commit(commit).await.unwrap();
        nodes.push(id);
    }
    let large = noise(7, 5 << 20);
    chunks.push(chunk_id(&large));
    let chunk = NewChunk::Full { id: chunk_id(&large), bytes: Arc::from(large) };
    let input = Json::parse(r#"{"text":"wait"}"#).unwrap();
    let item = InboxItem { id: "i1".into(), queue: "steer".to_owned(), input };
    let put = |call: &str| Op::StepPut {
        session: session.clone(),
        step: Step {
            run: "r1".into(),
            call: StepCall::Tool(call.into()),
            state: StepState::Running,
            data: Some(vec![0, 1, 2]),
        },
    };
    // One that is over: it must not come back.
    let call = StepCall::Tool("over".into());
    let over = Op::StepRemove { session: session.clone(), run: "r1".into(), call, data: None };
    let ops = vec![Op::InboxPut { session: session.clone(), item }, put("over"), put("open"), over];
    store.commit(Commit { chunks: vec![chunk], ops, ..Commit::default() }).await.unwrap();
    SampleStore { nodes, chunks, session }
}

async fn made(path: &Path) -> SampleStore {
    let store = open(path);
    fill(&store).await
}

fn overwrite(path: &Path, at: u64, bytes: &[u8]) {
    fs::File::options().write(true).open(path).unwrap().write_all_at(bytes, at).unwrap();
}

fn files(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Which of the nodes are there.
async fn kept(store: &SqliteStore, made: &SampleStore) -> Vec<bool> {
    store.nodes(&made.nodes).await.unwrap().iter().map(Option::is_some).collect()
}

/// All of it is there and sound.
async fn assert_whole(path: &Path, made: &SampleStore) {
    let store = open(path);
    assert!(kept(&store, made).await.iter().all(|kept| *kept));
    assert_eq!(store.head(&RefName::session(&made.session)).await.unwrap(), made.nodes.last().copied());
    let lineage = store.lineage(*made.nodes.last().unwrap(), LineageEnd::Root).await.unwrap();
    assert_eq!(lineage.iter().map(|node| node.id).collect::<Vec<_>>(), made.nodes);
    for node in &lineage {
        assert!(store.blobs(&node.record.parts).await.unwrap().iter().all(Option::is_some));
    }
    for id in &made.chunks {
        assert_eq!(chunk_id(&store.chunk(*id, 0..u64::MAX).await.unwrap()), *id);
    }
    let report = store.check().await.unwrap();
    assert_eq!(report.problems, []);
    assert!(report.salvaged.is_some());
    assert_eq!(store.sessions(SessionQuery::default()).await.unwrap().len(), 1);
    // And it goes on.
    let (_, commit) = step(&made.session, made.nodes.last().copied(), "on", T + 999);
    store.commit(commit).await.unwrap();
}

#[tokio::test]
async fn a_destroyed_header_loses_nothing() {
    for size in [16, 100] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("quipu.db");
        let made = made(&path).await;
        overwrite(&path, 0, &vec![0xff; size]);
        let damaged = fs::read(&path).unwrap();
        assert!(matches!(SqliteStore::open(&path, &options()), Err(StoreError::Corrupt { .. })));
        let done = salvage(&path).unwrap();
        assert_eq!(fs::read(&done.damaged).unwrap(), damaged, "the damaged file is kept as it was");
        assert!(done.damaged.file_name().unwrap().to_str().unwrap().starts_with("quipu.db.damaged."));
        assert_eq!((done.skipped, done.lost_nodes, done.lost_open), (0, 0, false), "{done:?}");
        assert!(done.moved_back.is_empty() && done.lost_refs.is_empty());
        assert_eq!((done.report.inbox, done.report.open_steps, done.report.sessions), (1, 1, 1));
        let pending = open(&path).pending(&made.session).await.unwrap();
        assert_eq!(pending.steps[0].call, StepCall::Tool("open".into()));
        assert_eq!(pending.steps[0].data, Some(vec![0, 1, 2]));
        assert_whole(&path, &made).await;
        use std::os::unix::fs::MetadataExt as _;
        for name in files(dir.path()) {
            assert_eq!(fs::metadata(dir.path().join(&name)).unwrap().mode() & 0o777, 0o600, "{name}");
            assert!(!name.contains("repaired"), "{name}");
        }
    }
}

#[tokio::test]
async fn file_without_first_page_keeps_the_other_pages() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let made = made(&path).await;
    overwrite(&path, 0, &[0xff; 4096]);
    let done = salvage(&path).unwrap();
    // Where the small tables began is not known any more, and rows of theirs that are over must not come back.
    assert!(done.lost_open, "{done:?}");
    assert_eq!((done.lost_nodes, done.report.open_steps, done.report.inbox), (0, 0, 0));
    assert_whole(&path, &made).await;
}

#[tokio::test]
async fn flipped_bytes_lose_only_what_they_hit() {
    for (n, (from, length)) in
        [(3, 600), (10, 4096), (40, 8192), (2, 40_960), (60, 1)].into_iter().enumerate()
    {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("quipu.db");
        let made = made(&path).await;
        overwrite(&path, from * 4096 + 2_000 * (n as u64 % 2), &vec![0xa5; length]);
        let Ok(done) = salvage(&path) else { panic!("case {n}") };
        let store = open(&path);
        let kept = kept(&store, &made).await;
        let lost = kept.iter().filter(|kept| !**kept).count();
        assert!(lost < 200, "case {n}: {lost} lost, {done:?}");
        // What is told as the head is there, and whatever is there is what it says.
        if let Some(head) = store.head(&RefName::session(&made.session)).await.unwrap() {
            assert!(made.nodes.contains(&head));
            let newest = made.nodes.iter().zip(&kept).rev().find(|(_, kept)| **kept).unwrap().0;
            assert_eq!(head, *newest, "case {n}: {done:?}");
        }
        let report = store.check().await.unwrap();
        use quipu_store::ProblemKind as Kind;
        let only_missing = |kind| matches!(kind, Kind::Parent | Kind::Part | Kind::Ref | Kind::Orphan);
        assert!(report.problems.iter().all(|problem| only_missing(problem.kind)), "case {n}: {report:#?}");
        let told = done.skipped + done.lost_nodes + done.report.problem_count;
        let chunks: HashSet<&ChunkId> = made.chunks.iter().collect();
        assert!(lost == 0 || told > 0, "case {n}: {lost} lost and nothing told, {done:?}, {}", chunks.len());
        for id in &made.chunks {
            match store.chunk(*id, 0..u64::MAX).await {
                Ok(bytes) => assert_eq!(chunk_id(&bytes), *id),
                Err(error) => assert!(matches!(error, StoreError::Missing { .. }), "{error:?}"),
            }
        }
    }
}

#[tokio::test]
async fn truncated_file_keeps_its_beginning() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let made = made(&path).await;
    let size = fs::metadata(&path).unwrap().len();
    for (n, part) in [3, 2, 1].into_iter().enumerate() {
        let copy = dir.path().join(format!("copy{n}.db"));
        fs::copy(&path, &copy).unwrap();
        let length = size * part / 4 + 1234;
        fs::File::options().write(true).open(&copy).unwrap().set_len(length).unwrap();
        let done = salvage(&copy).unwrap();
        let store = open(&copy);
        let found = kept(&store, &made).await.iter().filter(|kept| **kept).count();
        assert!(found > 20, "{part}/4: {found} found, {done:?}");
        assert!(store.head(&RefName::session(&made.session)).await.unwrap().is_some(), "{done:?}");
        store.check().await.unwrap();
    }
}

#[tokio::test]
async fn steps_only_in_the_wal_are_carried_over() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let store = open(&path);
    // As long as somebody reads, what is committed stays in the log.
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN; SELECT count(*) FROM nodes").unwrap();
    let made = fill(&store).await;
    let copy = dir.path().join("copy.db");
    fs::copy(&path, &copy).unwrap();
    fs::copy(dir.path().join("quipu.db-wal"), dir.path().join("copy.db-wal")).unwrap();
    drop(other);
    drop(store);
    overwrite(&copy, 0, &[0xff; 100]);
    let log = fs::read(dir.path().join("copy.db-wal")).unwrap();
    assert!(log.len() > 1 << 20);
    let done = salvage(&copy).unwrap();
    let mut beside = done.damaged.clone().into_os_string();
    beside.push("-wal");
    assert!(fs::read(PathBuf::from(beside)).unwrap() == log, "the log stands beside the damaged file");
    assert_eq!((done.skipped, done.lost_nodes, done.lost_wal), (0, 0, false));
    assert_whole(&copy, &made).await;

    // Its chain of checksums broken in the middle: what came before is carried over.
    let cut = dir.path().join("cut.db");
    fs::copy(&done.damaged, &cut).unwrap();
    fs::write(dir.path().join("cut.db-wal"), &log).unwrap();
    overwrite(&dir.path().join("cut.db-wal"), log.len() as u64 / 8, &[0xa5; 8]);
    let done = salvage(&cut).unwrap();
    let store = open(&cut);
    let kept = kept(&store, &made).await;
    let first_lost = kept.iter().position(|kept| !kept).unwrap();
    assert!(first_lost > 5 && kept[first_lost..].iter().all(|kept| !kept), "{first_lost}");
    assert_eq!(store.head(&RefName::session(&made.session)).await.unwrap(), Some(made.nodes[first_lost - 1]));
    assert_eq!(store.check().await.unwrap().problems, [], "{done:?}");
}

#[tokio::test]
async fn forged_rows_are_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let made = made(&path).await;
    let other = Connection::open(&path).unwrap();
    let (one, two) = (format!("{:064x}", 1), format!("{:064x}", 2));
    let head = made.nodes[200];
    other
        .execute_batch(&format!(
            "INSERT INTO blobs VALUES ('{one}', 'text', '\"another text\"', NULL);
             INSERT INTO blobs VALUES ('{two}', 'text', x'ff', NULL);
             INSERT INTO nodes VALUES ('{one}', NULL, 'user', '[]', 1, NULL, NULL, NULL, '0190a5c0-0000-7000-8000-000000000009');
             INSERT INTO nodes VALUES (x'ff00', x'ff', x'fe', x'fd', 'soon', x'fc', 1.5, 2, 3);
             INSERT INTO refs VALUES ('broken', '{two}');
             INSERT INTO refs VALUES ('theirs', '{head}');
             INSERT INTO quipu_chunk VALUES (zeroblob(32), 2, 5, x'05');
             INSERT INTO quipu_chunk VALUES (randomblob(32), 1, 1000000000000, x'00');
             INSERT INTO quipu_inbox VALUES (NULL, 's', 'n', 'q', 'no json');
             INSERT INTO quipu_step VALUES ('s', 'r', 'other', 'sent', NULL);"
        ))
        .unwrap();
    drop(other);
    overwrite(&path, 0, &[0xff; 16]);
    let done = salvage(&path).unwrap();
    assert!(done.skipped >= 6, "{done:?}");
    assert_eq!(done.lost_refs, ["broken"]);
    let store = open(&path);
    assert_eq!(store.head(&"theirs".into()).await.unwrap(), Some(head));
    assert_eq!(store.head(&"broken".into()).await.unwrap(), None);
    drop(store);
    assert_whole(&path, &made).await;
}

#[tokio::test]
async fn salvage_leaves_other_files_and_stores_in_use_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    for content in [&b"just some words\n".repeat(900)[..], b"", &noise(3, 100_000), &[0x0d; 65_536]] {
        fs::write(&path, content).unwrap();
        let error = salvage(&path).unwrap_err();
        assert!(matches!(error, StoreError::NotAStore { .. }), "{error:?}");
        assert_eq!(files(dir.path()), ["quipu.db"]);
        assert!(fs::read(&path).unwrap() == content);
    }
    fs::remove_file(&path).unwrap();
    assert!(matches!(salvage(&path), Err(StoreError::NotAStore { .. })));
    assert_eq!(files(dir.path()), Vec::<String>::new());
}

#[tokio::test]
async fn any_bytes_are_read_without_harm() {
    let dir = tempfile::tempdir().unwrap();
    let good = dir.path().join("good.db");
    let store = open(&good);
    let session = SessionId::from("s");
    let mut parent = None;
    for n in 0..40 {
        let (id, commit) = step(&session, parent, &"text ".repeat(50 + 60 * n), T + n as i64);
        store.commit(commit).await.unwrap();
        parent = Some(id);
    }
    drop(store);
    let bytes = fs::read(&good).unwrap();
    let mut random = noise(11, 1 << 16).into_iter().cycle();
    for round in 0..16 {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("quipu.db");
        let mut damaged = bytes.clone();
        for _ in 0..120 * round {
            let at = random.by_ref().take(4).fold(0, |at, byte| at << 8 | usize::from(byte));
            // Heads of pages more often than the rest.
            let at =
                if at % 3 == 0 { at % damaged.len() } else { at % damaged.len() / 4096 * 4096 + at % 16 };
            damaged[at] = random.next().unwrap();
        }
        fs::write(&path, &damaged).unwrap();
        match salvage(&path) {
            Ok(done) => {
                assert!(fs::read(&done.damaged).unwrap() == damaged);
                open(&path).check().await.unwrap();
            }
            Err(error) => {
                assert!(
                    matches!(error, StoreError::NotAStore { .. } | StoreError::NewerVersion { .. }),
                    "{error:?}"
                );
                assert!(fs::read(&path).unwrap() == damaged);
            }
        }
    }
}
