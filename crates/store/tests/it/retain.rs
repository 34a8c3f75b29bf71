//! Old states of files are dropped, and nothing else.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use quipu_dag::{Node, NodeRecord};
use quipu_protocol::{
    Body, Content, Entry, FileChange, FileState, ImageContent, Json, Message, NodeId, SessionId, StepInfo,
    UserMessage,
};
use quipu_store::{
    ActionQuery, Commit, DroppedFiles, FileDropProgress, LineageEnd, NewChunk, Op, OpenJump, RefMove,
    RefName, SqliteStore, Step, StepCall, StepState, Store, StoreError, Upkeep as _,
};
use quipu_transcript::encode;

use crate::child::command;
use crate::support::*;

/// Bytes that hardly shrink; those of one file in a row are alike.
fn content(file: usize, version: usize) -> Arc<[u8]> {
    let mut state = 1 + file as u64;
    let mut bytes: Vec<u8> = (0..6_000)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.to_be_bytes()[0]
        })
        .collect();
    let at = (version * 97) % 5_000;
    bytes[at..at + 500].copy_from_slice(&[u8::try_from(version % 256).unwrap(); 500]);
    bytes.into()
}

fn state(bytes: &[u8]) -> FileState {
    FileState::File { mode: 0o644, size: bytes.len() as u64, content: chunk_id(bytes) }
}

/// A step that changes a file from one version to the next.
fn change(parent: NodeId, session: &SessionId, file: usize, version: usize) -> (NodeId, Commit) {
    let (old, new) = (content(file, version), content(file, version + 1));
    let files = vec![FileChange { path: format!("f{file}"), before: state(&old), after: state(&new) }];
    let entry = Entry::Meta(Json::from(&serde_json::json!({ "type": "custom", "version": version })));
    let encoded = encode(&entry, &StepInfo { files, ..StepInfo::default() });
    let record = NodeRecord {
        parent: Some(parent),
        role: encoded.role,
        parts: encoded.blobs.iter().map(|blob| blob.id).collect(),
        timestamp: T + i64::try_from(file * 1_000 + version).unwrap(),
        external_id: None,
        system_prompt: None,
    };
    let node = Node::new(record, None, None);
    let chunks = vec![
        NewChunk::Plain { id: chunk_id(&old), bytes: old.clone() },
        NewChunk::Delta { id: chunk_id(&new), base: chunk_id(&old), bytes: new },
    ];
    let id = node.id;
    let moves = vec![RefMove::swap(RefName::session(session), Some(parent), id, "append")];
    (id, Commit { blobs: encoded.blobs, chunks, nodes: vec![node], moves, ..Commit::default() })
}

/// A message with an image of these bytes, whose number is a multiple of three.
pub(crate) fn image(bytes: &[u8]) -> Entry {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut data = String::new();
    for three in bytes.chunks_exact(3) {
        let number = three.iter().fold(0, |number, byte| number << 8 | usize::from(*byte));
        data.extend([18, 12, 6, 0].map(|shift| char::from(LETTERS[number >> shift & 63])));
    }
    let image = ImageContent { data, mime_type: "image/png".into() };
    let content = Body::Blocks(vec![Content::Image(image)]);
    Entry::Message(Message::User(UserMessage { content, timestamp: T }))
}

async fn is_kept(store: &SqliteStore, file: usize, version: usize) -> bool {
    let bytes = content(file, version);
    match store.chunk(chunk_id(&bytes), 0..u64::MAX).await {
        Ok(found) => found == *bytes,
        Err(StoreError::Missing { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

/// The first node of a session.
fn start(session: &SessionId) -> (NodeId, Commit) {
    let (id, mut commit) = entry_commit(None, &session_start(session, "/work", None), T);
    commit.moves.push(RefMove::swap(RefName::session(session), None, id, "append"));
    (id, commit)
}

const VERSIONS: usize = 60;

#[tokio::test]
async fn oldest_states_are_dropped_and_needed_ones_stay() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let store = open(&path);
    let session = SessionId::from("s1");
    let (mut head, commit) = start(&session);
    store.commit(commit).await.unwrap();
    for version in 0..VERSIONS {
        for file in 0..2 {
            let (id, commit) = change(head, &session, file, version);
            store.commit(commit).await.unwrap();
            head = id;
        }
    }
    // What a step and a jump that are open need, however old.
    let needs = |version| serde_json::json!({ "content": chunk_id(&content(0, version)) });
    let step = Step {
        run: "r".into(),
        call: StepCall::Tool("1.0".into()),
        state: StepState::Running,
        data: Some(needs(3).to_string().into_bytes()),
    };
    let jump = OpenJump { stage: "moved".into(), plan: Json::from(&needs(5)) };
    let ops =
        vec![Op::StepPut { session: session.clone(), step }, Op::JumpPut { session: session.clone(), jump }];
    // An image with the bytes of an old state.
    let (_, mut commit) = entry_commit(Some(head), &image(&content(1, 7)), T + 99_999);
    commit.ops = ops;
    store.commit(commit).await.unwrap();

    let before = store.check().await.unwrap();
    assert_eq!(before.file_states, 2 * (VERSIONS as u64 + 1));
    let all = store.drop_files(before.file_state_bytes, &|_| {}).await.unwrap();
    assert_eq!(all, DroppedFiles { states: 0, bytes: 0, left: before.file_state_bytes });

    let most = before.file_state_bytes / 2;
    let done = store.drop_files(most, &|_| {}).await.unwrap();
    assert!(done.states > 10 && done.left <= most, "{done:?} {most}");
    let report = store.check().await.unwrap();
    assert_eq!(report.problems, []);
    assert_eq!((report.file_state_bytes, report.dropped_files.states), (done.left, done.states));
    let mut kept = Vec::new();
    for version in 0..=VERSIONS {
        kept.push((is_kept(&store, 0, version).await, is_kept(&store, 1, version).await));
    }
    assert!(kept[3].0 && kept[5].0, "{kept:?}");
    assert!(!kept[0].0 && !kept[0].1 && !kept[4].0, "{kept:?}");
    let first = kept.iter().rposition(|(one, other)| !one || !other).unwrap();
    assert!(first < VERSIONS - 5, "the newest stay: {kept:?}");

    // Whatever may be, the last change of each file stays.
    let done = store.drop_files(0, &|_| {}).await.unwrap();
    assert!(done.left > 0);
    for file in 0..2 {
        assert!(is_kept(&store, file, VERSIONS).await && is_kept(&store, file, VERSIONS - 1).await);
        assert!(!is_kept(&store, file, VERSIONS - 2).await);
    }
    assert!(is_kept(&store, 0, 3).await && is_kept(&store, 0, 5).await && is_kept(&store, 1, 7).await);
    assert_eq!(store.check().await.unwrap().problems, []);
    let query = ActionQuery { kinds: vec!["QUIPU_DROP_FILES".into()], ..ActionQuery::default() };
    assert!(store.actions(query).await.unwrap().len() >= 2, "each is logged");
    assert_eq!(store.drop_files(0, &|_| {}).await.unwrap().states, 0);

    // What was dropped can come again, also for another process that knew it.
    let other = open(&path);
    let (id, commit) = change(head, &session, 0, 0);
    other.commit(commit).await.unwrap();
    assert!(is_kept(&store, 0, 0).await && is_kept(&store, 0, 1).await, "{id}");
    assert_eq!(store.check().await.unwrap().problems, []);
}

#[tokio::test]
async fn dropping_files_while_another_writes_is_safe() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let (store, other) = (open(&path), open(&path));
    let session = SessionId::from("s1");
    let (mut head, commit) = start(&session);
    store.commit(commit).await.unwrap();
    let dropping = tokio::spawn(async move {
        let mut dropped = 0;
        for _ in 0..20 {
            dropped += other.drop_files(0, &|_| {}).await.unwrap().states;
        }
        dropped
    });
    for round in 0..3 {
        // The same states again and again: what is dropped is what comes next.
        for version in 0..40 {
            let (id, mut commit) = change(head, &session, 0, version);
            let node = &mut commit.nodes[0];
            node.record.external_id = Some(format!("{round}.{version}"));
            *node = Node::new(node.record.clone(), None, None);
            let id = if node.id == id { id } else { node.id };
            commit.moves[0].to = Some(id);
            store.commit(commit).await.unwrap();
            head = id;
        }
    }
    assert!(is_kept(&store, 0, 40).await && is_kept(&store, 0, 39).await);
    dropping.await.unwrap();
    assert_eq!(store.check().await.unwrap().problems, []);
}

/// States of one file in a row, and more of them than one transaction drops.
async fn many_states(store: &SqliteStore, count: usize) {
    let session = SessionId::from("s1");
    let (mut head, mut all) = start(&session);
    for version in 0..count {
        let (id, commit) = change(head, &session, version % 3, version / 3);
        let (moved, before) = (commit.moves[0].clone(), all.moves.pop().unwrap());
        all.moves.push(RefMove { expect: before.expect, ..moved });
        all.blobs.extend(commit.blobs);
        all.chunks.extend(commit.chunks);
        all.nodes.extend(commit.nodes);
        head = id;
        if version % 100 == 99 {
            let next = RefMove::swap(RefName::session(&session), Some(head), head, "append");
            let done = std::mem::replace(&mut all, Commit { moves: vec![next], ..Commit::default() });
            store.commit(done).await.unwrap();
        }
    }
    store.commit(all).await.unwrap();
}

/// What a child does that is killed meanwhile.
pub(crate) async fn drops(path: &Path) {
    let out = Mutex::new(std::io::stdout());
    let tell = |at: FileDropProgress| {
        let mut out = out.lock().unwrap();
        writeln!(out, "\ndropped {} of {}", at.done, at.of).unwrap();
        out.flush().unwrap();
    };
    open(path).drop_files(0, &tell).await.unwrap();
}

#[tokio::test]
async fn killed_drop_resumes() {
    const STATES: usize = 2_400;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let whole = {
        let store = open(&path);
        many_states(&store, STATES).await;
        store.check().await.unwrap().file_states
    };
    let copy = dir.path().join("copy.db");
    std::fs::copy(&path, &copy).unwrap();
    let told = Mutex::new(Vec::new());
    let done = open(&copy).drop_files(0, &|at| told.lock().unwrap().push((at.done, at.of))).await.unwrap();
    let mut told = told.into_inner().unwrap();
    assert!(told.is_sorted() && told.len() > 5, "{told:?}");
    assert_eq!(told.pop(), Some((done.states, done.states)));
    let left = open(&copy).check().await.unwrap();
    assert_eq!((left.problems.len(), left.file_states + done.states), (0, whole));

    let mut stood = whole;
    let mut kills = 0;
    for round in 0_u64.. {
        let mut child = command("drop until killed", &path).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        // So many transactions on, and then somewhere in the next.
        let found = lines
            .by_ref()
            .filter(|line| line.starts_with("dropped "))
            .nth(usize::try_from(round % 3).unwrap());
        let until = Instant::now() + Duration::from_micros(round * 7_919 % 20_000);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        kills += u32::from(found.is_some());
        let report = open(&path).check().await.unwrap();
        assert_eq!(report.problems, [], "round {round}");
        assert!(report.file_states <= stood, "round {round}");
        assert_eq!(report.file_states + report.dropped_files.states, whole, "what is gone was counted");
        stood = report.file_states;
        if stood == left.file_states {
            break;
        }
    }
    assert!(kills > 1, "{kills}");
    assert_eq!(open(&path).drop_files(0, &|_| {}).await.unwrap().states, 0);
    let report = open(&path).check().await.unwrap();
    assert_eq!((report.file_states, report.file_state_bytes), (left.file_states, left.file_state_bytes));
}

#[tokio::test]
async fn shrink_makes_the_file_smaller() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let (store, other) = (open(&path), open(&path));
    many_states(&store, 300).await;
    let head = store.head(&RefName::session(&SessionId::from("s1"))).await.unwrap().unwrap();
    let nodes = store.lineage(head, LineageEnd::Root).await.unwrap();
    store.drop_files(0, &|_| {}).await.unwrap();
    let before = store.check().await.unwrap();
    let smaller = store.shrink().await.unwrap();
    // What is indexed meanwhile, in quiet moments, takes and frees some pages.
    assert!(smaller > before.free_bytes / 2, "{smaller} {}", before.free_bytes);
    let after = store.check().await.unwrap();
    assert_eq!((after.problems.len(), after.nodes), (0, before.nodes));
    assert!(after.free_bytes < before.free_bytes / 2, "{} {}", after.free_bytes, before.free_bytes);
    for store in [&store, &other] {
        assert_eq!(store.lineage(head, LineageEnd::Root).await.unwrap(), nodes);
    }
    // Whoever had it open goes on.
    let (id, commit) = change(head, &SessionId::from("s1"), 7, 0);
    other.commit(commit).await.unwrap();
    assert!(is_kept(&store, 7, 1).await, "{id}");
    assert_eq!(other.check().await.unwrap().problems, []);
}
