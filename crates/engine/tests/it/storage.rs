//! A store that fails in the middle of a run.

use std::collections::HashSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use quipu::protocol::{
    AssistantMessage, BlobId, ChunkId, Compaction, Content, Entry, Epoch, Event, FileState, Json, Message,
    NodeId, Outcome, SessionId, SessionStart, StepInfo, Thinking,
};
use quipu::store::{
    ActionQuery, Commit, Edge, Fence, ForkPoint, Fut, Graph, Head, Label, Landmark, LineageEnd, Local,
    LoggedAction, OpenWork, Owner, Piece, ReadModel, ReadParts, RefMove, RefName, Reservation,
    ReserveRequest, Resolution, Scope, SearchHits, SearchQuery, Seq, SessionQuery, SessionRow, Spelling,
    SqliteStore, Store, StoreError,
};
use quipu::{Refusal, ToolOutput};
use quipu_dag::{Blob, Node, NodeRecord};
use quipu_transcript::DecodedEntry;
use serde_json::json;

use crate::support::{World, call, engine_over, say, tool};

/// What a test does while a store reads.
pub(crate) type Meanwhile = Box<dyn FnOnce() + Send>;

/// Fails the commits that it is told to; everything else goes through.
pub(crate) struct FailingStore {
    inner: Arc<SqliteStore>,
    /// Commits until the first that fails.
    after: AtomicUsize,
    /// How many fail then.
    times: AtomicUsize,
    failed: AtomicBool,
    error: Mutex<StoreError>,
    /// Nodes that were read of it, and chunks.
    read: AtomicUsize,
    chunks: AtomicUsize,
    /// Nodes and parts that are gone.
    pub(crate) gone: Mutex<HashSet<[u8; 32]>>,
    /// The session that another program goes on with before the next lease is given.
    pub(crate) continues: Mutex<Option<SessionId>>,
    /// What happens while texts are read, after so many reads of them.
    pub(crate) meanwhile: Mutex<Option<(usize, Meanwhile)>>,
    /// What happens before something is written, after so many commits.
    pub(crate) at_commit: Mutex<Option<(usize, Meanwhile)>>,
}

impl FailingStore {
    fn has(&self, id: [u8; 32]) -> bool {
        !self.gone.lock().unwrap().contains(&id)
    }

    fn count<T>(&self, nodes: Vec<T>) -> Vec<T> {
        self.read.fetch_add(nodes.len(), Ordering::SeqCst);
        nodes
    }

    /// How many nodes and how many chunks were read of it.
    pub(crate) fn reads(&self) -> (usize, usize) {
        (self.read.load(Ordering::SeqCst), self.chunks.load(Ordering::SeqCst))
    }

    fn next(&self) -> Option<StoreError> {
        let counted = |count: usize| count.checked_sub(1);
        if self.after.fetch_update(Ordering::SeqCst, Ordering::SeqCst, counted).is_ok() {
            return None;
        }
        self.times.fetch_update(Ordering::SeqCst, Ordering::SeqCst, counted).ok()?;
        self.failed.store(true, Ordering::SeqCst);
        Some(self.error.lock().unwrap().clone())
    }
}

/// Does what is due by now.
fn happen(meanwhile: &Mutex<Option<(usize, Meanwhile)>>) {
    let happens = {
        let mut meanwhile = meanwhile.lock().unwrap();
        match meanwhile.as_mut() {
            Some((left, _)) if *left > 0 => {
                *left -= 1;
                None
            }
            _ => meanwhile.take(),
        }
    };
    if let Some((_, happens)) = happens {
        happens();
    }
}

impl Store for FailingStore {
    fn commit(&self, batch: Commit) -> Fut<'_, ()> {
        happen(&self.at_commit);
        match self.next() {
            Some(error) => Box::pin(std::future::ready(Err(error))),
            None => self.inner.commit(batch),
        }
    }
    fn head<'a>(&'a self, name: &'a RefName) -> Fut<'a, Option<NodeId>> {
        self.inner.head(name)
    }
    fn heads<'a>(&'a self, prefix: &'a str) -> Fut<'a, Vec<Head>> {
        self.inner.heads(prefix)
    }
    fn nodes<'a>(&'a self, ids: &'a [NodeId]) -> Fut<'a, Vec<Option<Node>>> {
        let nodes = self.inner.nodes(ids);
        Box::pin(async move {
            let there = |node: Option<Node>| node.filter(|node| self.has(node.id.0));
            Ok(self.count(nodes.await?.into_iter().map(there).collect()))
        })
    }
    fn blobs<'a>(&'a self, ids: &'a [BlobId]) -> Fut<'a, Vec<Option<Blob>>> {
        let blobs = self.inner.blobs(ids);
        happen(&self.meanwhile);
        Box::pin(async move {
            Ok(blobs.await?.into_iter().map(|blob| blob.filter(|blob| self.has(blob.id.0))).collect())
        })
    }
    fn chunk(&self, id: ChunkId, bytes: Range<u64>) -> Fut<'_, Vec<u8>> {
        self.chunks.fetch_add(1, Ordering::SeqCst);
        self.inner.chunk(id, bytes)
    }
    fn lineage(&self, from: NodeId, until: LineageEnd) -> Fut<'_, Vec<Node>> {
        let nodes = self.inner.lineage(from, until);
        Box::pin(async move {
            let mut nodes = nodes.await?;
            if let Some(gone) = nodes.iter().rposition(|node| !self.has(node.id.0)) {
                nodes.drain(..=gone);
            }
            if nodes.is_empty() {
                return Err(StoreError::Missing { path: PathBuf::from("/x"), what: from.short() });
            }
            Ok(self.count(nodes))
        })
    }
    fn children<'a>(&'a self, of: &'a [NodeId]) -> Fut<'a, Vec<Edge>> {
        self.inner.children(of)
    }
    fn actions(&self, query: ActionQuery) -> Fut<'_, Vec<LoggedAction>> {
        self.inner.actions(query)
    }
    fn lease<'a>(&'a self, name: &'a RefName, owner: &'a Owner, ttl: Duration) -> Fut<'a, Fence> {
        let continues = self.continues.lock().unwrap().take();
        Box::pin(async move {
            if let Some(session) = continues {
                crate::resume::go_on_elsewhere(&*self.inner, &session).await;
            }
            self.inner.lease(name, owner, ttl).await
        })
    }
    fn pending<'a>(&'a self, session: &'a SessionId) -> Fut<'a, OpenWork> {
        self.inner.pending(session)
    }
    fn inboxes<'a>(&'a self, beginning: &'a str) -> Fut<'a, Vec<SessionId>> {
        self.inner.inboxes(beginning)
    }
    fn reserve(&self, ask: ReserveRequest) -> Fut<'_, Reservation> {
        self.inner.reserve(ask)
    }
    fn changed(&self) -> Fut<'_, ()> {
        self.inner.changed()
    }
    fn hidden(&self) -> quipu_store::HiddenSnapshot {
        self.inner.hidden()
    }
}

impl ReadModel for FailingStore {
    fn below<'a>(&'a self, root: NodeId, ends: &'a [NodeId]) -> Fut<'a, Vec<Seq>> {
        self.inner.below(root, ends)
    }
    fn written<'a>(&'a self, seqs: &'a [Seq], parts: ReadParts, bytes: usize) -> Fut<'a, Piece> {
        self.inner.written(seqs, parts, bytes)
    }
    fn decoded(&self, nodes: Vec<Node>) -> Fut<'_, Vec<(Node, DecodedEntry)>> {
        Box::pin(async move {
            let decoded = quipu_store::decode_nodes(self, &nodes).await?;
            Ok(nodes.into_iter().zip(decoded).collect())
        })
    }
    fn ancestor(&self, of: NodeId, depth: u32) -> Fut<'_, Option<NodeId>> {
        self.inner.ancestor(of, depth)
    }
    fn fork_point(&self, a: NodeId, b: NodeId) -> Fut<'_, Option<NodeId>> {
        self.inner.fork_point(a, b)
    }
    fn first_children<'a>(&'a self, of: &'a [NodeId], limit: usize) -> Fut<'a, Vec<Edge>> {
        self.inner.first_children(of, limit)
    }
    fn descendants<'a>(&'a self, of: &'a [NodeId], limit: u64) -> Fut<'a, Vec<u64>> {
        self.inner.descendants(of, limit)
    }
    fn sessions_of<'a>(&'a self, nodes: &'a [NodeId]) -> Fut<'a, Vec<Option<SessionId>>> {
        self.inner.sessions_of(nodes)
    }
    fn resolve<'a>(&'a self, id: &'a Spelling, scope: &'a Scope) -> Fut<'a, Resolution> {
        self.inner.resolve(id, scope)
    }
    fn ref_changes(&self, since: Option<quipu_store::RefLogPlace>) -> Fut<'_, quipu_store::RefChanges> {
        self.inner.ref_changes(since)
    }
    fn sessions(&self, query: SessionQuery) -> Fut<'_, Vec<SessionRow>> {
        self.inner.sessions(query)
    }
    fn labels<'a>(&'a self, sessions: &'a [SessionId]) -> Fut<'a, Vec<Label>> {
        self.inner.labels(sessions)
    }
    fn landmarks<'a>(&'a self, sessions: &'a [SessionId], limit: usize) -> Fut<'a, Vec<Landmark>> {
        self.inner.landmarks(sessions, limit)
    }
    fn fork_points<'a>(&'a self, trunk: NodeId, nodes: &'a [NodeId]) -> Fut<'a, Vec<Option<ForkPoint>>> {
        self.inner.fork_points(trunk, nodes)
    }
    fn settings(&self, of: NodeId) -> Fut<'_, Vec<Node>> {
        let nodes = self.inner.settings(of);
        Box::pin(async move { nodes.await.map(|nodes| self.count(nodes)) })
    }
    fn erasures<'a>(&'a self, nodes: &'a [NodeId]) -> Fut<'a, Vec<Option<quipu_store::Erasure>>> {
        self.inner.erasures(nodes)
    }
    fn astray(&self) -> Fut<'_, Vec<NodeId>> {
        self.inner.astray()
    }
    fn search(&self, query: SearchQuery) -> Fut<'_, SearchHits> {
        self.inner.search(query)
    }
    fn spent(&self, since: i64) -> Fut<'_, f64> {
        self.inner.spent(since)
    }
    fn assumed(&self, since: i64, now: i64) -> Fut<'_, f64> {
        self.inner.assumed(since, now)
    }
    fn spent_of<'a>(&'a self, account: &'a str, since: i64, now: i64) -> Fut<'a, i64> {
        self.inner.spent_of(account, since, now)
    }
    fn usage(
        &self,
        query: quipu_store::UsageQuery,
    ) -> Fut<'_, quipu_store::IndexedAnswer<Vec<quipu_store::UsageSum>>> {
        self.inner.usage(query)
    }
    fn file_activity<'a>(
        &'a self,
        session: &'a SessionId,
    ) -> Fut<'a, quipu_store::IndexedAnswer<Vec<quipu_store::FileActivity>>> {
        self.inner.file_activity(session)
    }
    fn revision(&self) -> Fut<'_, quipu_store::Revision> {
        self.inner.revision()
    }
    fn changes<'a>(
        &'a self,
        paths: &'a [String],
    ) -> Fut<'a, quipu_store::IndexedAnswer<Vec<quipu_store::FileChange>>> {
        self.inner.changes(paths)
    }
    fn file_steps(
        &self,
        query: quipu_store::FileStepQuery,
    ) -> Fut<'_, quipu_store::IndexedAnswer<Vec<quipu_store::FileStep>>> {
        self.inner.file_steps(query)
    }
    fn session_activity(
        &self,
        query: quipu_store::ActivityQuery,
    ) -> Fut<'_, quipu_store::IndexedAnswer<Vec<quipu_store::SessionActivity>>> {
        self.inner.session_activity(query)
    }
    fn reflog<'a>(&'a self, query: &'a quipu_store::ReflogQuery) -> Fut<'a, Vec<quipu_store::LoggedMove>> {
        self.inner.reflog(query)
    }
}

impl Graph for FailingStore {
    fn local(&self) -> Option<&dyn Local> {
        self.inner.local()
    }
}

pub(crate) fn errors() -> [StoreError; 3] {
    let path = PathBuf::from("/x/quipu.db");
    [
        StoreError::Full { path: path.clone(), detail: "disk full".into() },
        StoreError::ReadOnly { path: path.clone() },
        StoreError::Busy { path, waited: Duration::from_secs(1) },
    ]
}

pub(crate) fn failing(
    inner: &Arc<SqliteStore>,
    after: usize,
    times: usize,
    error: StoreError,
) -> Arc<FailingStore> {
    Arc::new(FailingStore {
        inner: inner.clone(),
        after: after.into(),
        times: times.into(),
        failed: false.into(),
        error: Mutex::new(error),
        read: 0.into(),
        chunks: 0.into(),
        gone: Mutex::default(),
        continues: Mutex::default(),
        meanwhile: Mutex::default(),
        at_commit: Mutex::default(),
    })
}

/// A tool that writes down what it did, so that the test knows what must not be lost.
fn acting(ran: &Arc<Mutex<Vec<String>>>) -> Arc<dyn quipu::Tool> {
    let ran = ran.clone();
    tool("act", move |args, _| {
        let text = args["text"].as_str().unwrap().to_owned();
        ran.lock().unwrap().push(text.clone());
        async move { ToolOutput::text(text) }
    })
}

async fn fail_at(after: usize, times: usize, error: StoreError, restart: bool, dir: &Path) -> bool {
    let case = format!("{after} {times} {error:?} {restart}");
    let mut world = World::with([
        call(&[("act", json!({"text": "r1"})), ("act", json!({"text": "r2"}))]),
        call(&[("act", json!({"text": "r3"}))]),
        say("finished"),
    ]);
    let ran: Arc<Mutex<Vec<String>>> = Arc::default();
    world.tools = vec![acting(&ran)];
    let store = failing(&world.store, after, times, error);
    world.engine = engine_over(store.clone(), dir);
    let live = world.create().await;
    let refused = match live.session.prompt("go").await {
        Ok(_) => false,
        Err(Refusal::Store { why: text }) => {
            assert!(text.contains("/x/quipu.db"), "{case}: {text}");
            true
        }
        Err(other) => panic!("{case}: {other:?}"),
    };
    live.settled(1).await;
    let outcomes = live.outcomes();
    match outcomes.as_slice() {
        [] => assert!(refused, "{case}"),
        [Outcome::StoreFailed(text)] => assert!(text.contains("/x/quipu.db"), "{case}: {text}"),
        // What failed was only the early keeping of a result, or nothing.
        [Outcome::Done] => {}
        other => panic!("{case}: {other:?}"),
    }
    let failed = store.failed.load(Ordering::SeqCst);
    // The store works again.
    store.times.store(0, Ordering::SeqCst);
    let id = live.id();
    let (live, mut world) = if restart {
        live.finish().await;
        let head = world.store.head(&RefName::session(&id)).await.unwrap();
        let Some(_) = head else {
            // Not even the first message was kept, and that was said.
            assert!(refused, "{case}");
            return failed;
        };
        let (live, _) = world.open(&id).await;
        (live, world)
    } else {
        (live, world)
    };
    assert_eq!(live.run("next").await, Outcome::Done, "{case}");
    let shown: Vec<String> = world.fake.last_messages().iter().map(crate::support::text_of).collect();
    for did in ran.lock().unwrap().iter() {
        let count = shown.iter().filter(|text| *text == did).count();
        assert_eq!(count, 1, "{case}: the result of {did} is there once: {shown:?}");
    }
    assert_eq!(
        live.all(|event| matches!(event, Event::RunEnded { .. }).then_some(())).len(),
        if restart { 1 } else { outcomes.len() + 1 }
    );
    let pending = world.store.pending(&live.id()).await.unwrap();
    assert_eq!((pending.inbox, pending.steps), (vec![], vec![]), "{case}");
    live.finish().await;
    world.engine = engine_over(world.store.clone(), dir);
    drop(store);
    world.check().await;
    failed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_survives_any_failed_commit_without_losing_results() {
    let dir = crate::support::scratch();
    for restart in [false, true] {
        for (which, error) in errors().into_iter().enumerate() {
            let mut after = 0;
            // One failure, and a store that stays broken until the run has ended.
            while fail_at(after, [1, usize::MAX, 2][which], error.clone(), restart, dir.path()).await {
                after += 1;
            }
            assert!(after >= 6, "{after}");
        }
    }
}

/// A session whose model writes files, over a store of which one commit fails: whether it did, and how many commits it was
/// asked for.
async fn writing(after: usize, enabled: bool, dir: &Path) -> (bool, usize) {
    let write =
        |path: &str, content: &str| ("write", json!({ "path": path, "content": content.repeat(500) }));
    let mut world = World::with([
        call(&[write("a", "one"), write("b", "one"), write("a", "two")]),
        call(&[write("a", "three")]),
        say("finished"),
        say("finished"),
        say("finished"),
    ]);
    world.tools = quipu::builtin();
    std::fs::write(world.cwd().join("a"), "before").unwrap();
    let store = failing(&world.store, after, 1, errors()[0].clone());
    world.engine = engine_over(store.clone(), dir);
    let mut options = world.options();
    options.files.enabled = enabled;
    let live = world.create_with(options).await;
    if live.session.prompt("go").await.is_ok() {
        live.settled(1).await;
    }
    let commits = after - store.after.load(Ordering::SeqCst);
    let failed = store.failed.load(Ordering::SeqCst);
    store.times.store(0, Ordering::SeqCst);
    live.run("next").await;
    let head = live.session.view().head.unwrap();
    let nodes = world.store.lineage(head, LineageEnd::Root).await.unwrap();
    let decoded = quipu_store::decode_nodes(&*world.store, &nodes).await.unwrap();
    let mut states = 0;
    for change in decoded.iter().flat_map(|one| &one.step.files) {
        for content in [&change.before, &change.after].into_iter().filter_map(FileState::content) {
            world.store.chunk(content, 0..u64::MAX).await.unwrap();
            states += 1;
        }
    }
    assert!(failed || states == if enabled { 7 } else { 0 }, "{after}: {states}");
    live.finish().await;
    world.engine = engine_over(world.store.clone(), dir);
    drop(store);
    world.check().await;
    (failed, commits)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn states_of_files_come_with_the_result_that_names_them() {
    let dir = crate::support::scratch();
    // Of each call, only what was there before it is stored by itself.
    let (_, without) = writing(1_000, false, dir.path()).await;
    let (_, with) = writing(1_000, true, dir.path()).await;
    assert_eq!(with, without + 4);
    let mut after = 0;
    while writing(after, true, dir.path()).await.0 {
        after += 1;
    }
    assert_eq!(after, with, "each of them failed once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queued_message_that_could_not_be_stored_is_refused() {
    let gate = crate::support::Gate::new();
    let mut world = World::with([call(&[("wait", json!({}))])]);
    world.tools.push(crate::support::gated("wait", &gate));
    let store = failing(&world.store, usize::MAX, 1, errors()[0].clone());
    world.engine = engine_over(store.clone(), world.dir.path());
    let live = world.create().await;
    live.session.prompt("go").await.unwrap();
    gate.reached().await;
    live.session.steer("kept").await.unwrap();
    store.after.store(0, Ordering::SeqCst);
    assert!(matches!(live.session.steer("lost").await, Err(Refusal::Store { .. })));
    store.times.store(1, Ordering::SeqCst);
    let unqueue = quipu::protocol::Command::Unqueue { items: vec![] };
    assert!(matches!(live.session.send(unqueue).await, Err(Refusal::Store { .. })));
    gate.open();
    live.settled(1).await;
    assert_eq!(live.said()[3..], ["user: kept", "assistant: done"]);
    live.finish().await;
    world.engine = engine_over(world.store.clone(), world.dir.path());
    drop(store);
    world.check().await;
}

/// Writes a session as an importer does: a header, its settings, a history, a compaction that says nothing of them and
/// keeps the last two messages, and one more exchange.
async fn imported(store: &SqliteStore, id: &str, history: usize) -> NodeId {
    let meta = |json: serde_json::Value| Entry::Meta(Json::from(&json));
    let user = |text: &str| Entry::Message(Message::user(text, 5));
    let start = SessionStart {
        session: id.into(),
        cwd: "/".into(),
        agent: "pi".into(),
        parent_session: None,
        epoch: Epoch { provider: "old".into(), model: "old".into(), ..Epoch::default() },
    };
    let answer = |text: &str| {
        Entry::Message(Message::Assistant(AssistantMessage {
            content: vec![Content::text(text)],
            ..AssistantMessage::default()
        }))
    };
    let mut entries = vec![
        Entry::Session(start),
        meta(json!({ "type": "model_change", "provider": "p", "modelId": "m" })),
        meta(json!({ "type": "thinking_level_change", "thinkingLevel": "high" })),
    ];
    for n in 0..history {
        entries.extend([user(&format!("question-{n}")), answer(&format!("answer-{n}"))]);
    }
    let kept = entries.len() - 2;
    entries.push(Entry::Compaction(Compaction { summary: "in short".into(), ..Compaction::default() }));
    entries.extend([user("since"), answer("then")]);
    let (mut nodes, mut batch): (Vec<NodeId>, _) = (Vec::new(), Commit::default());
    for (at, entry) in (0_i64..).zip(&mut entries) {
        if let Entry::Compaction(compaction) = entry {
            compaction.first_kept = Some(nodes[kept]);
        }
        let encoded = quipu_transcript::encode(entry, &StepInfo::default());
        let record = NodeRecord {
            parent: nodes.last().copied(),
            role: encoded.role,
            parts: encoded.blobs.iter().map(|blob| blob.id).collect(),
            timestamp: at,
            external_id: Some(format!("{id}-{at}")),
            system_prompt: None,
        };
        let node = Node::new(record, None, None);
        nodes.push(node.id);
        batch.blobs.extend(encoded.blobs);
        batch.nodes.push(node);
    }
    let head = *nodes.last().unwrap();
    batch.moves.push(RefMove::swap(RefName::of_agent("pi", &id.into()), None, head, "import"));
    store.commit(batch).await.unwrap();
    head
}

/// However long the history, what a session is resumed from is what its last compaction left: a counting store tells.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resuming_reads_no_further_back_than_the_last_compaction() {
    let mut counts = Vec::new();
    for history in [20, 400] {
        let world = World::with([say("One."), say("Two.")]);
        let head = imported(&world.store, "foreign", history).await;
        let error = StoreError::ReadOnly { path: PathBuf::from("/x") };
        let store = failing(&world.store, usize::MAX, 0, error);
        let engine = engine_over(store.clone(), world.dir.path());
        let read = || store.read.swap(0, Ordering::SeqCst);
        let mut count = Vec::new();

        // The settings of a session that another program wrote and compacted.
        let epoch = quipu::epoch_at(&*store, head).await.unwrap();
        assert_eq!((&*epoch.provider, &*epoch.model, epoch.thinking), ("p", "m", Thinking::High));
        count.push(read());

        // Gone on with, and opened again.
        let opened = engine.open(&"foreign".into(), world.options()).await.unwrap();
        count.push(read());
        opened.session.ask("on").await.unwrap();
        let sent = world.fake.last_messages();
        let texts: Vec<String> = sent.iter().map(crate::support::text_of).collect();
        let last = history - 1;
        assert!(texts[0].contains("in short"), "{texts:?}");
        let kept = [&*format!("question-{last}"), &*format!("answer-{last}"), "since", "then", "on"];
        assert_eq!(texts[1..], kept);
        let (id, own) = (opened.session.view().session, opened.session.view().head.unwrap());
        opened.session.shutdown().await;
        engine.label(own, "here").await.unwrap();
        read();
        let again = engine.open(&id, world.options()).await.unwrap().session;
        count.push(read());
        again.ask("and on").await.unwrap();
        assert_eq!(world.fake.last_messages().len(), sent.len() + 2);
        again.shutdown().await;
        read();

        // Labels are told from the index, and a fork knows what the session knows.
        assert_eq!(store.labels(std::slice::from_ref(&id)).await.unwrap().len(), 1);
        assert_eq!(read(), 0);
        engine.fork_from(head, Some(&world.cwd())).await.unwrap();
        count.push(read());
        assert!(count.iter().all(|count| *count < 30), "{count:?}");
        counts.push(count);
        world.check().await;
    }
    assert_eq!(counts[0], counts[1]);
}
