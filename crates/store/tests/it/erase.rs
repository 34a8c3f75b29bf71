//! Content is found and erased: from every part of a store, from its file, and from nothing else.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use quipu_dag::{Blob, Node, NodeRecord};
use quipu_protocol::{
    AssistantMessage, AuthorClass, CallRecord, ChunkId, Content, Entry, FileChange, FileState, ItemId, Json,
    Message, NodeId, SessionId, StepInfo, ToolCall, ToolResultMessage,
};
use quipu_store::{
    BOOKMARK, Commit, ContentHolder, ContentQuery, EraseReport, EraseTargets, FoundContent, FoundPlace,
    InboxItem, JobRunChange, JobRuns as _, JobTime, Jobs as _, KeptReason, LineageEnd, NewChunk, NewJob,
    NewJobRun, NoteChange, NoteChunk, Op, OpenJump, OpenOptions, Owner, OwnerDeathCheck, ReadModel as _,
    RecallIndex as _, RefMove, RefName, SearchQuery, Selection, SelectionError, SqliteStore, Step, StepCall,
    StepState, Store as _, StoreError, StoreHolder, Upkeep as _, Vectors as _,
};
use quipu_transcript::{ERASED, encode};

use crate::child::command;
use crate::support::*;

fn nobody() -> OwnerDeathCheck {
    Arc::new(|_| false)
}

fn holder(store: &Arc<SqliteStore>, name: &str) -> StoreHolder {
    let mut all = StoreHolder::all(store, &nobody());
    let at = all.iter().position(|holder| holder.name() == name).unwrap();
    all.swap_remove(at)
}

async fn found(holder: &dyn ContentHolder, selection: &Selection) -> Vec<FoundContent> {
    let mut query = ContentQuery { limit: 2, ..ContentQuery::of(selection.clone()) };
    let mut all = Vec::new();
    loop {
        let page = holder.find(&query).await.unwrap();
        assert!(page.found.len() <= 2);
        all.extend(page.found);
        match page.next {
            Some(next) => query.after = Some(next),
            None => return all,
        }
    }
}

async fn erase(holder: &dyn ContentHolder, selection: Selection) -> EraseReport {
    holder.erase(&EraseTargets { selection, why: "a test".into() }).await.unwrap()
}

fn of_nodes(nodes: &[NodeId]) -> Selection {
    Selection { nodes: nodes.to_vec(), ..Selection::default() }
}

fn of_needle(needle: &str) -> Selection {
    Selection { needles: vec![needle.as_bytes().to_vec()], ..Selection::default() }
}

/// A session that grows.
struct Session {
    id: SessionId,
    head: Option<NodeId>,
    at: i64,
    body: Option<(ChunkId, Vec<u8>)>,
    nodes: Vec<NodeId>,
}

impl Session {
    async fn begin(store: &SqliteStore, id: &str) -> Self {
        let id = SessionId::from(id);
        let mut session = Self { id, head: None, at: T, body: None, nodes: Vec::new() };
        let start = session_start(&session.id, "/work", None);
        session.put(store, &start, StepInfo::default(), Vec::new()).await;
        session
    }

    async fn put(
        &mut self,
        store: &SqliteStore,
        entry: &Entry,
        step: StepInfo,
        chunks: Vec<NewChunk>,
    ) -> NodeId {
        self.at += 1;
        let encoded = encode(entry, &step);
        let record = NodeRecord {
            parent: self.head,
            role: encoded.role,
            parts: encoded.blobs.iter().map(|blob| blob.id).collect(),
            timestamp: self.at,
            external_id: Some(format!("0190a5c0-0000-7000-8000-{:012x}", self.at - T)),
            system_prompt: None,
        };
        let node = Node::new(record, None, None);
        let id = node.id;
        let own =
            encoded.chunks.into_iter().map(|(id, bytes)| NewChunk::Full { id, bytes: Arc::from(bytes) });
        let moves = vec![RefMove::swap(RefName::session(&self.id), self.head, id, "append")];
        let chunks = chunks.into_iter().chain(own).collect();
        store
            .commit(Commit { blobs: encoded.blobs, chunks, nodes: vec![node], moves, ..Commit::default() })
            .await
            .unwrap();
        self.head = Some(id);
        self.nodes.push(id);
        id
    }

    async fn says(&mut self, store: &SqliteStore, text: &str) -> NodeId {
        let entry = user(text, self.at);
        self.put(store, &entry, StepInfo::default(), Vec::new()).await
    }

    /// An answer, recorded with a body that repeats all that was said, as the difference to the one before.
    async fn answers(&mut self, store: &SqliteStore, content: Vec<Content>, said: &str) -> NodeId {
        let mut body = self.body.as_ref().map(|(_, body)| body.clone()).unwrap_or_else(|| noise(7, 4_000));
        body.extend_from_slice(format!("{{\"content\":{}}}", serde_json::Value::from(said)).as_bytes());
        let id = chunk_id(&body);
        let chunk = match &self.body {
            None => NewChunk::Full { id, bytes: Arc::from(body.clone()) },
            Some((base, _)) => NewChunk::Delta { id, base: *base, bytes: Arc::from(body.clone()) },
        };
        let head = self.head.unwrap();
        let call = CallRecord {
            api: "demo".into(),
            provider: "demo".into(),
            model: "demo-1".into(),
            local: true,
            projection: 1,
            head,
            system: None,
            tools: chunk_id(b"[]"),
            body: id,
            body_bytes: body.len() as u64,
            before_hooks: None,
            headers: std::collections::BTreeMap::new(),
            removed_headers: Vec::new(),
            started: self.at,
            first_token_ms: None,
            duration_ms: None,
            attempts: Vec::new(),
        };
        let step = StepInfo { call: Some(call), ..StepInfo::default() };
        let message = AssistantMessage { content, timestamp: self.at, ..AssistantMessage::default() };
        self.body = Some((id, body));
        self.put(store, &Entry::Message(Message::Assistant(message)), step, vec![chunk]).await
    }
}

async fn text_of(store: &SqliteStore, id: NodeId) -> String {
    let nodes = store.nodes(&[id]).await.unwrap();
    let decoded = store.decoded(nodes.into_iter().flatten().collect()).await.unwrap();
    format!("{:?}", decoded[0].1.entry)
}

/// All that is in the file and beside it.
fn raw(path: &Path) -> Vec<u8> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(path.parent().unwrap()).unwrap() {
        all.extend(std::fs::read(entry.unwrap().path()).unwrap());
    }
    all
}

fn is_in(raw: &[u8], needle: &str) -> bool {
    raw.windows(needle.len()).any(|window| window == needle.as_bytes())
}

#[tokio::test]
async fn erased_node_keeps_its_place_and_its_bytes_are_gone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let store = Arc::new(open(&path));
    let mut session = Session::begin(&store, "s1").await;
    session.says(&store, "the weather").await;
    session.answers(&store, vec![Content::text("sunshine")], "the weather").await;
    let secret = session.says(&store, "my pass phrase is xylophone-quartz").await;
    let answer = session.answers(&store, vec![Content::text("noted")], "xylophone-quartz").await;
    let bodies: Vec<ChunkId> = vec![session.body.as_ref().unwrap().0];
    let last = session.says(&store, "and now the harvest").await;
    assert_eq!(store.search(query("xylophone")).await.unwrap().hits.len(), 1);
    let graph = holder(&store, "store.graph");
    let places: Vec<FoundPlace> =
        found(&graph, &of_nodes(&[secret])).await.into_iter().map(|found| found.place).collect();
    assert_eq!(places, [FoundPlace::Node(secret), FoundPlace::Chunk(bodies[0])]);
    assert!(!found(&holder(&store, "store.search"), &of_nodes(&[secret])).await.is_empty());

    let erased = erase(&graph, of_nodes(&[secret])).await;
    assert_eq!((erased.count, erased.kept_count), (2, 0), "{erased:?}");

    for holder in StoreHolder::all(&store, &nobody()) {
        assert_eq!(found(&holder, &of_nodes(&[secret])).await, [], "{}", holder.name());
        assert_eq!(found(&holder, &of_needle("xylophone-quartz")).await, [], "{}", holder.name());
    }
    assert_eq!(store.search(query("xylophone")).await.unwrap().hits, []);
    assert!(text_of(&store, secret).await.contains(ERASED));
    let known = store.erasures(&[secret, answer]).await.unwrap();
    assert_eq!((known[0].as_ref().unwrap().why.as_str(), &known[1]), ("a test", &None));
    // The rest goes on: the lineage, the answer, what is found by words.
    let lineage: Vec<NodeId> =
        store.lineage(last, LineageEnd::Root).await.unwrap().iter().map(|node| node.id).collect();
    assert_eq!(lineage, session.nodes);
    assert!(text_of(&store, answer).await.contains("noted"));
    assert_eq!(store.search(query("harvest")).await.unwrap().hits.len(), 1);
    let error = store.chunk(bodies[0], 0..u64::MAX).await.unwrap_err();
    assert!(matches!(&error, StoreError::Erased { what, .. } if what.contains("a test")), "{error}");
    assert_eq!(store.check().await.unwrap().problems, []);
    assert!(!is_in(&raw(&path), "xylophone"), "the store is open, and nothing of it is left");
    assert!(is_in(&raw(&path), "sunshine"));
    drop((store, graph));
    assert!(!is_in(&raw(&path), "xylophone"));
    // Again: nothing more.
    let store = Arc::new(open(&path));
    assert_eq!(erase(&holder(&store, "store.graph"), of_nodes(&[secret])).await, EraseReport::default());
}

fn query(words: &str) -> SearchQuery {
    SearchQuery { words: words.to_owned(), limit: 10, ..SearchQuery::default() }
}

#[tokio::test]
async fn text_of_another_node_stays() {
    let store = Arc::new(SqliteStore::in_memory().unwrap());
    let (mut one, mut other) = (Session::begin(&store, "s1").await, Session::begin(&store, "s2").await);
    let gone = one.says(&store, "go ahead").await;
    let stays = other.says(&store, "go ahead").await;
    let graph = holder(&store, "store.graph");
    erase(&graph, of_nodes(&[gone])).await;
    assert!(text_of(&store, gone).await.contains(ERASED));
    assert!(text_of(&store, stays).await.contains("go ahead"));
    // By the text itself, it goes everywhere.
    let text = Selection { blobs: vec![Blob::text("go ahead").id], ..Selection::default() };
    assert_eq!(erase(&graph, text.clone()).await.count, 1);
    assert!(text_of(&store, stays).await.contains(ERASED));
    assert_eq!(found(&graph, &text).await, []);
    // Said anew, it is there again, and what was erased is not.
    let anew = other.says(&store, "go ahead").await;
    assert!(text_of(&store, anew).await.contains("go ahead"));
    assert!(text_of(&store, gone).await.contains(ERASED));
    assert_eq!(store.check().await.unwrap().problems, []);
}

#[tokio::test]
async fn import_does_not_bring_erased_text_back() {
    let store = Arc::new(SqliteStore::in_memory().unwrap());
    let (node, blob) = text_node(None, "user", "an old secret", T);
    let commit = Commit { blobs: vec![blob.clone()], nodes: vec![node.clone()], ..Commit::default() };
    store.commit(commit.clone()).await.unwrap();
    let graph = holder(&store, "store.graph");
    erase(&graph, of_nodes(&[node.id])).await;
    store.commit(commit).await.unwrap();
    assert_eq!(found(&graph, &of_needle("an old secret")).await, []);
    let kept = store.blobs(&[blob.id]).await.unwrap();
    assert_eq!(kept[0].as_ref().unwrap().content, format!("\"{ERASED}\""));
}

/// Keeps what a job did.
async fn log_run(store: &SqliteStore, key: &str, text: &str, session: Option<&SessionId>) {
    let run = NewJobRun { key: key.into(), due: T, attempt: 1, target: "none".into(), began: T };
    let id = store.begin_job_run(run).await.unwrap();
    let (text, session) = (Some(text.to_owned()), session.cloned());
    store.change_job_run(id, JobRunChange { text, session, ..JobRunChange::default() }).await.unwrap();
}

#[tokio::test]
async fn needle_is_found_in_every_table_and_erased_from_all() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let store = Arc::new(open(&path));
    let secret = "päss \"phrase\"\n4711";
    let mut session = Session::begin(&store, "s1").await;
    session.says(&store, &format!("first {secret} last")).await;
    let arguments = serde_json::json!({ "command": format!("echo {secret}") }).to_string();
    let call = ToolCall {
        id: "c1".into(),
        name: "bash".into(),
        arguments: Json::parse(&arguments).unwrap(),
        thought_signature: None,
        namespace: None,
    };
    session.answers(&store, vec![Content::ToolCall(call)], secret).await;
    let result = ToolResultMessage {
        tool_call_id: "c1".into(),
        tool_name: "bash".into(),
        content: vec![Content::text(secret)],
        details: None,
        usage: None,
        is_error: false,
        timestamp: T,
    };
    let state = |text: &str| FileState::File {
        mode: 0o644,
        size: text.len() as u64,
        content: chunk_id(text.as_bytes()),
    };
    let (old, new) = (format!("old {secret}"), "new and harmless");
    let files = vec![FileChange { path: "a.txt".into(), before: state(&old), after: state(new) }];
    let chunks = [old.as_str(), new]
        .map(|text| NewChunk::Full { id: chunk_id(text.as_bytes()), bytes: Arc::from(text.as_bytes()) });
    let step = StepInfo { files, ..StepInfo::default() };
    session.put(&store, &Entry::Message(Message::ToolResult(result)), step, chunks.to_vec()).await;
    let item = InboxItem {
        id: ItemId::from("i1"),
        queue: "followUp".into(),
        input: Json::of(&serde_json::json!({ "text": secret })).unwrap(),
    };
    let bookmark =
        RefMove::publish(RefName::bookmark("päss \"phrase\"\n4711"), session.head.unwrap(), "bookmark");
    let ops = vec![Op::InboxPut { session: session.id.clone(), item }];
    store.commit(Commit { moves: vec![bookmark], ops, ..Commit::default() }).await.unwrap();
    let job = NewJob {
        key: "mind".into(),
        kind: "note".into(),
        payload: secret.into(),
        due: JobTime::At(T),
        attempt_limit: 1,
    };
    store.put_job(job, T).await.unwrap();
    log_run(&store, "job", secret, None).await;
    // One that says nothing of it, but worked in the session.
    log_run(&store, "other", "fine", Some(&session.id)).await;

    let mut places = Vec::new();
    for holder in StoreHolder::all(&store, &nobody()) {
        let here = found(&holder, &of_needle(secret)).await;
        places.extend(here.into_iter().map(|found| match found.place {
            FoundPlace::Row { table, .. } => table,
            FoundPlace::Blob(_) => "blob".into(),
            FoundPlace::Chunk(_) => "chunk".into(),
            other => format!("{other}"),
        }));
    }
    places.sort();
    places.dedup();
    let tables = ["blob", "chunk", "quipu_inbox", "quipu_job", "quipu_job_run", "quipu_x_session", "refs"];
    for table in tables {
        assert!(places.iter().any(|place| place == table), "{table}: {places:?}");
    }
    for holder in StoreHolder::all(&store, &nobody()) {
        let erased = erase(&holder, of_needle(secret)).await;
        assert_eq!(erased.kept, [], "{}", holder.name());
    }
    for holder in StoreHolder::all(&store, &nobody()) {
        assert_eq!(found(&holder, &of_needle(secret)).await, [], "{}", holder.name());
    }
    assert_eq!(store.heads(BOOKMARK).await.unwrap(), []);
    assert_eq!(store.jobs(None, 10).await.unwrap(), []);
    let kept = store.job_runs(None, None, 10).await.unwrap();
    assert_eq!(kept.iter().map(|run| run.text.as_str()).collect::<Vec<_>>(), ["fine"]);
    let of_session = Selection { sessions: vec![session.id.clone()], ..Selection::default() };
    assert_eq!(erase(&holder(&store, "store.jobs"), of_session).await.count, 1);
    assert_eq!(store.job_runs(None, None, 10).await.unwrap(), []);
    assert_eq!(store.pending(&session.id).await.unwrap().inbox, []);
    // The call keeps its id and its name, so that its result stands below it.
    let call = text_of(&store, session.nodes[2]).await;
    assert!(call.contains("c1") && call.contains("bash") && !call.contains("4711"), "{call}");
    assert_eq!(store.chunk(chunk_id(new.as_bytes()), 0..u64::MAX).await.unwrap(), new.as_bytes());
    assert_eq!(store.check().await.unwrap().problems, []);
    assert!(!is_in(&raw(&path), "4711"));
}

#[tokio::test]
async fn running_session_keeps_its_content() {
    let store = Arc::new(SqliteStore::in_memory().unwrap());
    let mut session = Session::begin(&store, "s1").await;
    let said = session.says(&store, "in the middle of it").await;
    let name = RefName::session(&session.id);
    let (owner, ttl) = (Owner("front:1".into()), Duration::from_secs(60));
    store.lease(&name, &owner, ttl).await.unwrap();
    let graph = holder(&store, "store.graph");
    for selection in [of_nodes(&[said]), of_needle("middle of it")] {
        let erased = erase(&graph, selection).await;
        assert_eq!((erased.count, erased.kept_count), (0, 1));
        assert_eq!(erased.kept[0].why, KeptReason::InUse);
        assert!(erased.kept[0].detail.contains("front:1"));
    }
    assert!(text_of(&store, said).await.contains("middle of it"));
    // One that is known to be dead does not count.
    let dead: OwnerDeathCheck = Arc::new(|owner| owner == "front:1");
    let graph = StoreHolder::all(&store, &dead).swap_remove(0);
    assert_eq!(erase(&graph, of_nodes(&[said])).await.count, 1);
    assert!(text_of(&store, said).await.contains(ERASED));
}

#[tokio::test]
async fn whole_session_is_erased_and_others_stay() {
    let store = Arc::new(SqliteStore::in_memory().unwrap());
    let (mut one, mut other) = (Session::begin(&store, "s1").await, Session::begin(&store, "s2").await);
    for n in 0..5 {
        one.says(&store, &format!("private {n}")).await;
        one.answers(&store, vec![Content::text("mine")], &format!("private {n}")).await;
        other.says(&store, &format!("public {n}")).await;
        other.answers(&store, vec![Content::text("mine")], &format!("public {n}")).await;
    }
    let before = everything(&store, &other.nodes).await;
    let graph = holder(&store, "store.graph");
    let selection = Selection { sessions: vec![one.id.clone()], ..Selection::default() };
    assert!(erase(&graph, selection.clone()).await.count >= 11);
    assert_eq!(found(&graph, &selection).await, []);
    assert_eq!(found(&graph, &of_needle("private")).await, []);
    assert_eq!(everything(&store, &other.nodes).await, before);
    let rows = store.sessions(Default::default()).await.unwrap();
    assert_eq!(rows.len(), 2, "it is still known that there was one");
    assert_eq!(store.check().await.unwrap().problems, []);
}

#[tokio::test]
async fn vectors_of_erased_nodes_are_erased() {
    let store = Arc::new(SqliteStore::in_memory().unwrap());
    let mut session = Session::begin(&store, "s1").await;
    let (gone, stays) = (session.says(&store, "about cats").await, session.says(&store, "about dogs").await);
    let batch = store.without_vectors("m", 10).await.unwrap();
    let vectors = vec![vec![1.0, 0.0]; batch.texts.len()];
    store.keep_vectors("m", &batch, &vectors).await.unwrap();
    let semantic = holder(&store, "store.semantic");
    assert_eq!(found(&semantic, &of_nodes(&[gone, stays])).await.len(), 2);
    erase(&holder(&store, "store.graph"), of_nodes(&[gone])).await;
    assert_eq!(found(&semantic, &of_nodes(&[gone])).await, []);
    assert_eq!(found(&semantic, &of_nodes(&[stays])).await.len(), 1);
    // From the index alone: the node stays.
    assert_eq!(erase(&semantic, of_nodes(&[stays])).await.count, 1);
    assert_eq!(found(&semantic, &of_nodes(&[stays])).await, []);
    assert!(text_of(&store, stays).await.contains("dogs"));
}

#[tokio::test]
async fn index_can_be_erased_without_the_graph() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let store = Arc::new(open(&path));
    let mut session = Session::begin(&store, "s1").await;
    let said = session.says(&store, "remember the zeppelin").await;
    assert_eq!(store.search(query("zeppelin")).await.unwrap().hits.len(), 1);
    let search = holder(&store, "store.search");
    assert!(erase(&search, of_nodes(&[said])).await.count >= 1);
    assert_eq!(found(&search, &of_nodes(&[said])).await, []);
    assert_eq!(store.search(query("zeppelin")).await.unwrap().hits, []);
    assert!(text_of(&store, said).await.contains("zeppelin"));
    assert_eq!(store.check().await.unwrap().problems, []);
}

#[tokio::test]
async fn words_of_notes_are_erased_from_their_index() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let store = Arc::new(open(&path));
    let note = |text: &str| NoteChange {
        path: "MEMORY.md".into(),
        stamp: text.into(),
        chunks: Some(vec![NoteChunk {
            first: 1,
            last: 1,
            text: text.into(),
            at: T,
            author: AuthorClass::Owner,
        }]),
    };
    store.put_notes("m", vec![note("the zeppelins land at dawn")], None).await.unwrap();
    // The line goes, and its words stay in the index.
    store.put_notes("m", vec![note("nothing lands")], None).await.unwrap();
    assert!(is_in(&raw(&path), "zeppelin"));
    let search = holder(&store, "store.search");
    assert_eq!(found(&search, &of_needle("zeppelins land at dawn")).await.len(), 1);
    assert_eq!(found(&search, &of_needle("zeppelins land at noon")).await, []);
    assert_eq!(erase(&search, of_needle("zeppelins land at dawn")).await.count, 1);
    assert_eq!(found(&search, &of_needle("zeppelins land at dawn")).await, []);
    assert!(!is_in(&raw(&path), "zeppelin"));
    assert_eq!(store.indexed_notes("m").await.unwrap(), [], "the next search makes it again");
    assert_eq!(store.check().await.unwrap().problems, []);
}

#[tokio::test]
async fn selection_beyond_the_limits_is_refused() {
    let store = Arc::new(SqliteStore::in_memory().unwrap());
    for holder in StoreHolder::all(&store, &nobody()) {
        let error = holder.find(&ContentQuery::of(of_needle("abc"))).await.unwrap_err();
        assert_eq!(error, SelectionError::Needle { bytes: 3 }.into());
        let many = Selection { nodes: vec![NodeId([1; 32]); 10_001], ..Selection::default() };
        let error = holder.erase(&EraseTargets { selection: many, why: String::new() }).await.unwrap_err();
        assert_eq!(error, SelectionError::TooMany { count: 10_001 }.into());
    }
}

#[tokio::test]
async fn bytes_of_the_parts_are_those_of_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let store = Arc::new(open(&path));
    let mut session = Session::begin(&store, "s1").await;
    for n in 0..50 {
        session.says(&store, &format!("text {n} {}", "word ".repeat(100))).await;
    }
    store.search(query("word")).await.unwrap();
    store.shrink().await.unwrap();
    let mut sum = 0;
    for holder in StoreHolder::all(&store, &nobody()) {
        sum += holder.bytes().await.unwrap();
    }
    let log = std::fs::metadata(dir.path().join("quipu.db-wal")).map_or(0, |file| file.len());
    assert_eq!(sum, std::fs::metadata(&path).unwrap().len() + log);
}

/// Nodes with their parts, and bodies of requests, as they are read.
async fn everything(store: &SqliteStore, nodes: &[NodeId]) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for node in store.nodes(nodes).await.unwrap().into_iter().flatten() {
        let blobs = store.blobs(&node.record.parts).await.unwrap();
        for blob in blobs.into_iter().flatten() {
            if blob.kind == "quipu" {
                let part: serde_json::Value = serde_json::from_str(&blob.content).unwrap();
                if let Some(body) = part.pointer("/step/call/body").and_then(|body| body.as_str()) {
                    let body = body.parse().unwrap();
                    let bytes = store.chunk(body, 0..u64::MAX).await;
                    all.insert(format!("body {body}"), bytes.unwrap_or_default());
                }
            }
            all.insert(format!("{} {}", node.id, blob.id), blob.content.into_bytes());
        }
        all.insert(node.id.to_string(), format!("{:?}", node.record).into_bytes());
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Random texts, some said twice, in sessions with and without bodies; a random subset goes.
    #[test]
    fn rest_is_byte_identical_after_a_random_subset_is_erased(
        says in prop::collection::vec((0_usize..3, 0_u8..12, any::<bool>()), 1..25),
        goes in prop::collection::vec(any::<bool>(), 25),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store = Arc::new(SqliteStore::in_memory().unwrap());
            let mut sessions = Vec::new();
            for id in ["s0", "s1", "s2"] {
                sessions.push(Session::begin(&store, id).await);
            }
            let (mut gone, mut stay) = (Vec::new(), Vec::new());
            for ((of, text, answered), goes) in says.iter().zip(&goes) {
                let session = &mut sessions[*of];
                let text = format!("text number {text} of them");
                let id = if *answered {
                    session.answers(&store, vec![Content::text(&text)], &text).await
                } else {
                    session.says(&store, &text).await
                };
                if *goes { gone.push(id) } else { stay.push(id) }
            }
            let before = everything(&store, &stay).await;
            let graph = holder(&store, "store.graph");
            let erased = erase(&graph, of_nodes(&gone)).await;
            prop_assert_eq!(erased.kept_count, 0);
            let after = everything(&store, &stay).await;
            for (key, bytes) in &before {
                // Bodies at and below what was erased were made of it; a body that is still there is as it was.
                let of_erased = key.starts_with("body") && after[key].is_empty();
                prop_assert!(of_erased || &after[key] == bytes, "{}", key);
            }
            for id in &gone {
                prop_assert!(!text_of(&store, *id).await.contains("text number"));
            }
            prop_assert_eq!(found(&graph, &of_nodes(&gone)).await, []);
            for session in &sessions {
                let lineage = store.lineage(session.head.unwrap(), LineageEnd::Root).await.unwrap();
                prop_assert_eq!(lineage.len(), session.nodes.len());
                // Bodies above all that was erased are kept.
                let first = session.nodes.iter().position(|id| gone.contains(id)).unwrap_or(session.nodes.len());
                for key in everything(&store, &session.nodes[..first]).await.keys() {
                    if let Some(body) = key.strip_prefix("body ") {
                        prop_assert!(store.chunk(body.parse().unwrap(), 0..u64::MAX).await.is_ok());
                    }
                }
            }
            prop_assert_eq!(store.check().await.unwrap().problems, []);
            Ok(())
        })?;
    }
}

/// A store in which every second thing that is said holds what is to go.
async fn fill(path: &Path) -> Session {
    let store = open(path);
    let mut session = Session::begin(&store, "killed").await;
    for n in 0..300 {
        let text = if n % 2 == 0 { format!("keep {n}") } else { format!("quokka {n}") };
        session.says(&store, &text).await;
        session.answers(&store, vec![Content::text("yes")], &text).await;
    }
    session
}

pub(crate) async fn until_killed(path: &Path) {
    let store = Arc::new(open(path));
    let graph = holder(&store, "store.graph");
    let mut out = std::io::stdout();
    // The test harness has begun a line.
    writeln!(out, "\nbegins").unwrap();
    out.flush().unwrap();
    erase(&graph, of_needle("quokka")).await;
    writeln!(out, "done").unwrap();
}

#[tokio::test]
async fn killed_erasure_is_finished_by_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let original = dir.path().join("original.db");
    let session = fill(&original).await;
    let began = Instant::now();
    let whole = copy(dir.path(), &original, "whole");
    let done = {
        let store = Arc::new(open(&whole));
        erase(&holder(&store, "store.graph"), of_needle("quokka")).await
    };
    assert!(done.count >= 150 && done.kept.is_empty(), "{}", done.count);
    let long = began.elapsed();
    let (mut early, mut between, mut late) = (0, 0, 0);
    // Later and later, until one was done.
    for round in 0_u32.. {
        if late > 0 {
            break;
        }
        let path = copy(dir.path(), &original, &format!("round{round}"));
        let mut child = command("erase until killed", &path).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert!(lines.any(|line| line == "begins"));
        let until = Instant::now() + long * round * (1 + round / 10) / 8;
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let store = Arc::new(open(&path));
        let graph = holder(&store, "store.graph");
        let left = found(&graph, &of_needle("quokka")).await;
        match (left.is_empty(), store.has_remnants().await.unwrap()) {
            (false, _) => {
                assert_eq!(left.len() as u64, done.count, "round {round}: all or nothing");
                early += 1;
            }
            (true, true) => between += 1,
            (true, false) => late += 1,
        }
        assert_eq!(store.check().await.unwrap().problems, [], "round {round}");
        let erased = erase(&graph, of_needle("quokka")).await;
        assert_eq!(erased.kept, [], "round {round}");
        assert!(!store.has_remnants().await.unwrap());
        assert_eq!(found(&graph, &of_needle("quokka")).await, []);
        assert_eq!(store.check().await.unwrap().problems, [], "round {round}");
        let lineage = store.lineage(session.head.unwrap(), LineageEnd::Root).await.unwrap();
        assert_eq!(lineage.len(), session.nodes.len());
        drop((store, graph));
        assert!(!is_in(&std::fs::read(&path).unwrap(), "quokka"), "round {round}");
        assert!(is_in(&std::fs::read(&path).unwrap(), "keep 298"), "round {round}");
    }
    println!("killed before it was done {early}, before the file was written anew {between}, after {late}");
    assert!(early > 0 && early + between > 1, "{early} {between} {late}");
}

fn copy(dir: &Path, original: &Path, name: &str) -> std::path::PathBuf {
    let into = dir.join(name);
    std::fs::create_dir(&into).unwrap();
    let path = into.join("quipu.db");
    std::fs::copy(original, &path).unwrap();
    path
}

#[tokio::test]
async fn wal_reader_leaves_remnants_until_it_ends() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let options = OpenOptions { busy: Duration::from_millis(100), ..options() };
    let store = Arc::new(SqliteStore::open(&path, &options).unwrap());
    let mut session = Session::begin(&store, "s1").await;
    let said = session.says(&store, "the okapi sleeps").await;
    let reader = rusqlite::Connection::open(&path).unwrap();
    reader.execute_batch("BEGIN").unwrap();
    let nodes: i64 = reader.query_row("SELECT count(*) FROM nodes", [], |row| row.get(0)).unwrap();
    assert_eq!(nodes, 2);
    let graph = holder(&store, "store.graph");
    let erased = erase(&graph, of_nodes(&[said])).await;
    assert_eq!(erased.count, 1);
    assert_eq!(erased.kept[0].why, KeptReason::Remnants);
    assert!(store.has_remnants().await.unwrap());
    reader.execute_batch("COMMIT").unwrap();
    assert_eq!(erase(&graph, of_nodes(&[said])).await.kept, []);
    assert!(!store.has_remnants().await.unwrap());
    assert!(!is_in(&raw(&path), "okapi"));
}

#[tokio::test]
async fn repaired_store_still_lacks_erased_content() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let (session, said) = {
        let options = OpenOptions { busy: Duration::from_millis(100), ..options() };
        let store = Arc::new(SqliteStore::open(&path, &options).unwrap());
        let mut session = Session::begin(&store, "s1").await;
        for n in 0..40 {
            session.says(&store, &format!("kept {n}")).await;
        }
        let said = session.says(&store, "the narwhal dives").await;
        session.answers(&store, vec![Content::text("it does")], "the narwhal dives").await;
        let word = session.says(&store, "a second narwhal").await;
        let graph = holder(&store, "store.graph");
        // Who reads keeps old pages in the file.
        let reader = rusqlite::Connection::open(&path).unwrap();
        reader.execute_batch("BEGIN; SELECT count(*) FROM nodes").unwrap();
        erase(&graph, of_nodes(&[said])).await;
        let text = Selection { blobs: vec![Blob::text("a second narwhal").id], ..Selection::default() };
        erase(&graph, text).await;
        assert!(store.has_remnants().await.unwrap());
        drop(reader);
        assert!(text_of(&store, word).await.contains(ERASED));
        (session, said)
    };
    let done = quipu_store::salvage(&path).unwrap();
    assert_eq!((done.report.problems, done.lost_nodes), (Vec::new(), 0));
    let store = Arc::new(open(&path));
    let lineage = store.lineage(session.head.unwrap(), LineageEnd::Root).await.unwrap();
    assert_eq!(lineage.len(), session.nodes.len());
    assert!(text_of(&store, said).await.contains(ERASED));
    assert_eq!(store.erasures(&[said]).await.unwrap()[0].as_ref().unwrap().why, "a test");
    let graph = holder(&store, "store.graph");
    assert_eq!(found(&graph, &of_needle("narwhal")).await, []);
    assert!(matches!(
        store.chunk(session.body.as_ref().unwrap().0, 0..1).await,
        Err(StoreError::Erased { .. } | StoreError::Missing { .. })
    ));
    assert_eq!(store.check().await.unwrap().problems, []);
}

#[tokio::test]
async fn body_of_an_unanswered_call_is_erased_with_its_context() {
    let store = Arc::new(SqliteStore::in_memory().unwrap());
    let mut session = Session::begin(&store, "s1").await;
    let said = session.says(&store, "the lynx waits").await;
    let body = b"{\"content\":\"the lynx waits\"}".to_vec();
    let id = chunk_id(&body);
    let data = serde_json::json!({ "head": said, "body": id, "bodyBytes": body.len() });
    let step = Step {
        run: "r1".into(),
        call: StepCall::Model,
        state: StepState::Sent,
        data: Some(data.to_string().into_bytes()),
    };
    let ops = vec![Op::StepPut { session: session.id.clone(), step }];
    let chunks = vec![NewChunk::Full { id, bytes: Arc::from(body) }];
    store.commit(Commit { chunks, ops, ..Commit::default() }).await.unwrap();
    erase(&holder(&store, "store.graph"), of_nodes(&[said])).await;
    assert!(matches!(store.chunk(id, 0..1).await, Err(StoreError::Erased { .. })));
    assert_eq!(store.pending(&session.id).await.unwrap().steps.len(), 1, "how far it came is still known");
    // A jump that moves files is finished first.
    let jump = OpenJump { stage: "moved".into(), plan: Json::object() };
    let put = |jump| Op::JumpPut { session: session.id.clone(), jump };
    store.commit(Commit { ops: vec![put(jump)], ..Commit::default() }).await.unwrap();
    let whole = Selection { sessions: vec![session.id.clone()], ..Selection::default() };
    let kept = erase(&holder(&store, "store.graph"), whole).await.kept;
    assert_eq!((kept.len(), kept[0].why), (1, KeptReason::InUse));
    let jump = OpenJump { stage: "waits".into(), plan: Json::object() };
    store.commit(Commit { ops: vec![put(jump)], ..Commit::default() }).await.unwrap();
    // The whole session takes the rows along.
    let whole = Selection { sessions: vec![session.id.clone()], ..Selection::default() };
    erase(&holder(&store, "store.graph"), whole).await;
    let left = store.pending(&session.id).await.unwrap();
    assert_eq!((left.steps.len(), left.jump), (0, None));
}

#[tokio::test]
async fn side_call_is_erased_with_the_node_before_it() {
    let store = Arc::new(SqliteStore::in_memory().unwrap());
    let mut session = Session::begin(&store, "s1").await;
    let said = session.says(&store, "the lynx waits").await;
    let after = session.says(&store, "and now").await;
    let mut chunks = Vec::new();
    let mut put = |run: &str, head: NodeId| {
        let body = format!("{run}: the lynx waits").into_bytes();
        let id = chunk_id(&body);
        let end = serde_json::json!({ "usage": {}, "answer": { "content": run }, "reserved": [["r", 1]] });
        let data = serde_json::json!({ "head": head, "body": id, "side": { "purpose": "p", "end": end } });
        chunks.push(NewChunk::Full { id, bytes: Arc::from(body) });
        let data = Some(data.to_string().into_bytes());
        let step =
            Step { run: run.into(), call: StepCall::Tool("runner".into()), state: StepState::Done, data };
        (id, Op::StepPut { session: session.id.clone(), step })
    };
    let ((at, one), (below, other)) = (put("r1", said), put("r2", after));
    store.commit(Commit { chunks, ops: vec![one, other], ..Commit::default() }).await.unwrap();
    erase(&holder(&store, "store.graph"), of_nodes(&[said])).await;
    for body in [at, below] {
        assert!(matches!(store.chunk(body, 0..1).await, Err(StoreError::Erased { .. })));
    }
    let steps = store.pending(&session.id).await.unwrap().steps;
    let end = |run: &str| {
        let step = steps.iter().find(|step| step.run.as_str() == run).unwrap();
        let row: serde_json::Value = serde_json::from_slice(step.data.as_ref().unwrap()).unwrap();
        row["side"]["end"].clone()
    };
    let left = end("r1");
    assert_eq!((&left["answer"], &left["error"]), (&serde_json::Value::Null, &ERASED.into()));
    assert_eq!(left["reserved"][0][0], "r", "what is reserved for it is still known");
    assert_eq!(end("r2")["answer"]["content"], "r2");
}

#[tokio::test]
async fn difference_to_erased_bytes_is_kept_whole() {
    let store = Arc::new(SqliteStore::in_memory().unwrap());
    let base = noise(3, 50_000);
    let mut next = base.clone();
    next.extend_from_slice(b"and more");
    let mut last = next.clone();
    last.extend_from_slice(b" and more");
    let large = noise(9, 5 << 20);
    let chunks = vec![
        NewChunk::Full { id: chunk_id(&base), bytes: Arc::from(base.clone()) },
        NewChunk::Delta { id: chunk_id(&next), base: chunk_id(&base), bytes: Arc::from(next.clone()) },
        NewChunk::Delta { id: chunk_id(&last), base: chunk_id(&next), bytes: Arc::from(last.clone()) },
        NewChunk::Full { id: chunk_id(&large), bytes: Arc::from(large.clone()) },
    ];
    store.commit(Commit { chunks, ..Commit::default() }).await.unwrap();
    let graph = holder(&store, "store.graph");
    let of = |bytes: &[u8]| Selection { chunks: vec![chunk_id(bytes)], ..Selection::default() };
    assert_eq!(erase(&graph, of(&next)).await.count, 1);
    for bytes in [&base, &last, &large] {
        assert_eq!(&store.chunk(chunk_id(bytes), 0..u64::MAX).await.unwrap(), bytes);
    }
    assert!(erase(&graph, of(&large)).await.count > 1, "with its pieces");
    assert_eq!(found(&graph, &of(&large)).await, []);
    // Written anew, it is there again.
    let again = NewChunk::Full { id: chunk_id(&next), bytes: Arc::from(next.clone()) };
    let step = Step { run: "r".into(), call: StepCall::Model, state: StepState::Sent, data: None };
    let session = Session::begin(&store, "s1").await;
    let ops = vec![Op::StepPut { session: session.id.clone(), step }];
    store.commit(Commit { chunks: vec![again], ops, ..Commit::default() }).await.unwrap();
    assert_eq!(store.chunk(chunk_id(&next), 0..u64::MAX).await.unwrap(), next);
    assert_eq!(store.check().await.unwrap().problems, []);
}
