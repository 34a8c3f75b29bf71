//! How long the everyday answers take: usage, files, log, blame; what looks at the graph: life, recall, trace, diff; and
//! what goes back in time: undo, redo, tobe.
//!
//! `answers_rate DIRECTORY NODES TIMES` makes a store of so many nodes in the directory and prints a JSON line for each
//! row: `{"what": .., "unit": "ms", "samples": [..]}`. Half a minute lies between two nodes, so a million of them are a
//! year. `cargo xtask bench answers` runs it.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use quipu::protocol::{
    AssistantMessage, Content, Cost, Entry, Epoch, Json, Message, NodeId, SessionId, SessionStart, StepInfo,
    StopReason, ToolCall, ToolResultMessage, UnixMs, Usage,
};
use quipu::store::{
    Action, ActivityQuery, Commit, LineageEnd, OpenOptions, ReadModel as _, RefMove, RefName, Resolution,
    Scope, SqliteStore, Store, UsageGrouping, UsageQuery,
};
use quipu::{Engine, Sealer};
use quipu_dag::{Node, NodeRecord};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Nodes of one session.
const SESSION: usize = 400;
/// Nodes of one commit.
const BATCH: usize = 400;
/// How often a session goes back, and forward again.
const MOVES: usize = 200;
/// How often the graph is looked at, in sessions all over the store.
const LOOKS: usize = 200;
/// Sessions with two branches.
const FORKED: usize = 20;
/// Nodes of the second branch; the first one has as many more than half of the session.
const BRANCH: usize = 240;
/// Nodes of one long lineage.
const DEEP: usize = 100_000;
/// Different files.
const FILES: usize = 500;
/// Milliseconds between two nodes.
const BETWEEN: i64 = 30_000;
/// When the first was written.
const BEGAN: UnixMs = 1_700_000_000_000;

/// The entry of the n-th node, as agents write them: a question, calls, results, an answer.
fn entry(n: usize, at: UnixMs) -> Outcome<Entry> {
    let within = n % SESSION;
    if within == 0 {
        let session = n / SESSION;
        return Ok(Entry::Session(SessionStart {
            session: format!("session-{session}").into(),
            cwd: format!("/project/{}", session % 40),
            agent: ["quipu", "pi", "other"][session % 3].to_owned(),
            parent_session: None,
            epoch: Epoch { provider: "p".to_owned(), model: "m".to_owned(), ..Epoch::default() },
        }));
    }
    let path = format!("src/file_{}.rs", (n / 8) % FILES);
    let call = match within % 8 {
        1 => return Ok(Entry::Message(Message::user(format!("Make the thing number {n} work."), at))),
        3 | 5 | 7 => {
            let message = ToolResultMessage {
                tool_call_id: format!("c{}", n - 1).into(),
                tool_name: "tool".into(),
                content: vec![Content::text("a line of a result\n".repeat(20))],
                details: None,
                usage: None,
                is_error: false,
                timestamp: at,
            };
            return Ok(Entry::Message(Message::ToolResult(message)));
        }
        2 => Some(("read", serde_json::json!({ "path": path }))),
        4 => Some(("bash", serde_json::json!({ "command": format!("cargo test -p thing {n}") }))),
        6 => Some((
            "edit",
            serde_json::json!({ "path": path, "edits": [{ "oldText": "fn old() {\n}\n", "newText": text(n) }] }),
        )),
        _ => None,
    };
    let mut content = vec![Content::text("That is done, and here is what was done.")];
    if let Some((name, arguments)) = call {
        content.push(Content::ToolCall(ToolCall {
            id: format!("c{n}").into(),
            name: name.into(),
            arguments: Json::parse(&arguments.to_string())?,
            thought_signature: None,
            namespace: None,
        }));
    }
    let cost = Cost { total: 0.01, ..Cost::default() };
    Ok(Entry::Message(Message::Assistant(AssistantMessage {
        content,
        provider: "p".into(),
        model: ["m", "n"][n / SESSION % 2].into(),
        usage: Usage { input: 1_000, output: 200, cache_read: 20_000, cost, ..Usage::default() },
        stop_reason: if within.is_multiple_of(8) { StopReason::Stop } else { StopReason::ToolUse },
        timestamp: at,
        ..AssistantMessage::default()
    })))
}

/// What the edit of a node puts in its place.
fn text(n: usize) -> String {
    format!("fn thing_{n}() {{\n    let value_{n} = {n};\n    use_it(value_{n});\n}}\n")
}

/// Puts the n-th entry behind its parent, as it was written at such a place in time.
fn put(
    batch: &mut Commit,
    parent: Option<NodeId>,
    n: usize,
    time: usize,
    external_id: String,
) -> Outcome<NodeId> {
    let timestamp = BEGAN + i64::try_from(time)? * BETWEEN;
    let encoded = quipu_transcript::encode(&entry(n, timestamp)?, &StepInfo::default());
    let record = NodeRecord {
        parent,
        role: encoded.role,
        parts: encoded.blobs.iter().map(|blob| blob.id).collect(),
        timestamp,
        external_id: Some(external_id),
        system_prompt: None,
    };
    let node = Node::new(record, None, None);
    let id = node.id;
    batch.blobs.extend(encoded.blobs);
    batch.nodes.push(node);
    Ok(id)
}

async fn fill(store: &SqliteStore, nodes: usize) -> Outcome<()> {
    let mut parent = None;
    let mut batch = Commit::default();
    for n in 0..nodes {
        let node = put(&mut batch, parent.filter(|_| n % SESSION != 0), n, n, format!("n{n}"))?;
        parent = Some(node);
        if n % SESSION == SESSION - 1 || n + 1 == nodes {
            let session = SessionId::from(format!("session-{}", n / SESSION));
            let agent = ["quipu", "pi", "other"][n / SESSION % 3];
            batch.moves.push(RefMove::publish(RefName::of_agent(agent, &session), node, "bench"));
        }
        if batch.nodes.len() == BATCH || n + 1 == nodes {
            store.commit(std::mem::take(&mut batch)).await?;
        }
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the numbers are this program's output")]
fn row(what: &str, samples: &[f64]) {
    println!("{}", serde_json::json!({ "what": what, "unit": "ms", "samples": samples }));
}

/// Milliseconds that each of so many takes.
async fn time<T>(what: &str, times: usize, mut work: impl AsyncFnMut() -> Outcome<T>) -> Outcome<()> {
    let mut samples = Vec::with_capacity(times);
    for _ in 0..times {
        let began = Instant::now();
        work().await?;
        samples.push(began.elapsed().as_secs_f64() * 1e3);
    }
    row(what, &samples);
    Ok(())
}

async fn measure(path: &Path, nodes: usize, times: usize) -> Outcome<()> {
    let store = Arc::new(SqliteStore::open(path, &OpenOptions::default())?);
    fill(&store, nodes).await?;
    store.sessions(quipu::store::SessionQuery { limit: Some(1), ..Default::default() }).await?;
    let all = UsageQuery { by: UsageGrouping::Time, since: None, until: None };
    let began = Instant::now();
    while store.usage(all.clone()).await?.behind > 0 {}
    let thousands = f64::from(u32::try_from(nodes)?) / 1e3;
    row("tables behind an import, 1,000 nodes", &[began.elapsed().as_secs_f64() * 1e3 / thousands]);
    for (name, by) in [
        ("day", UsageGrouping::Time),
        ("project", UsageGrouping::Project),
        ("model", UsageGrouping::Model),
        ("session", UsageGrouping::Session),
    ] {
        let query = UsageQuery { by, ..all.clone() };
        time(&format!("usage by {name}"), times, async || Ok(store.usage(query.clone()).await?)).await?;
    }
    let session = SessionId::from(format!("session-{}", nodes / SESSION / 2));
    time("files of a session", times, async || Ok(store.file_activity(&session).await?)).await?;
    let end = BEGAN + i64::try_from(nodes)? * BETWEEN;
    for (name, since, below) in [
        ("log of a day", end - 86_400_000, None),
        ("log of all time below a directory", 0, Some("/project".to_owned())),
    ] {
        let query = ActivityQuery { below, since, agent: None, limit: 20 };
        time(name, times, async || Ok(quipu::history::log(&*store, query.clone(), 5).await?)).await?;
    }
    // Files of one project that many turns changed, each with a line of nobody's.
    let edits: Vec<usize> =
        (0..nodes).filter(|n| n % SESSION % 8 == 6 && (n / SESSION).is_multiple_of(40)).collect();
    let file = edits.last().map_or(0, |n| (n / 8) % FILES);
    let own = edits.iter().filter(|n| (**n / 8) % FILES == file);
    let content = format!("// by hand\n{}", own.map(|n| text(*n)).collect::<String>());
    let paths = [format!("/project/0/src/file_{file}.rs")];
    time("blame of a file", times, async || {
        let blame = quipu::history::blame(&*store, &paths, &content, &|_| None).await?;
        // The bracket at the end stood in what was replaced.
        let is_turn = |line: Option<&quipu::history::LineAuthor>| {
            matches!(line, Some(quipu::history::LineAuthor::Turn(_)))
        };
        if is_turn(blame.lines.first()) || !is_turn(blame.lines.get(1)) {
            return Err("the lines have wrong authors".into());
        }
        Ok(blame)
    })
    .await?;
    moves(store.clone(), nodes).await?;
    looks(&store, path, nodes).await?;
    deep(&store, nodes, times).await
}

/// The last session grows to many nodes; its lineage is read from its end to its root.
async fn deep(store: &SqliteStore, nodes: usize, times: usize) -> Outcome<()> {
    let mut parent = numbered(store, nodes - 1).await?;
    let mut batch = Commit::default();
    // No second session begins within it.
    for n in (nodes..).filter(|n| n % SESSION != 0).take(DEEP) {
        parent = put(&mut batch, Some(parent), n, n, format!("n{n}"))?;
        if batch.nodes.len() == BATCH {
            store.commit(std::mem::take(&mut batch)).await?;
        }
    }
    store.commit(batch).await?;
    // What was written is indexed before it is read.
    store.sessions(quipu::store::SessionQuery { limit: Some(1), ..Default::default() }).await?;
    time("a lineage of 100,000 nodes, with its rows", times, async || {
        let lineage = store.lineage(parent, LineageEnd::Root).await?;
        if lineage.len() < DEEP {
            return Err("the lineage is too short".into());
        }
        Ok(lineage)
    })
    .await
}

/// A node by its number.
async fn numbered(store: &SqliteStore, n: usize) -> Outcome<NodeId> {
    match store.resolve(&format!("ext:n{n}").into(), &Scope::default()).await? {
        Resolution::One(found) => Ok(found.node),
        Resolution::Many(_) | Resolution::None => Err(format!("node {n} is not there").into()),
    }
}

/// Sessions all over the store get a second branch, from their middle; gives the ends of both.
async fn fork(store: &SqliteStore, nodes: usize) -> Outcome<Vec<(NodeId, NodeId)>> {
    let sessions = nodes / SESSION;
    let mut ends = Vec::new();
    for session in (0..sessions).step_by(sessions.div_ceil(FORKED).max(1)) {
        let first = session * SESSION;
        let from = numbered(store, first + SESSION - BRANCH).await?;
        let (mut parent, mut batch) = (from, Commit::default());
        for n in first + SESSION - BRANCH + 1..first + SESSION {
            parent = put(&mut batch, Some(parent), n, nodes + n, format!("b{n}"))?;
        }
        let row = |kind: &str, from, to| Action {
            timestamp: BEGAN,
            kind: kind.into(),
            from,
            to: Some(to),
            metadata: Some("{\"carryover_message\":\"Look at the other way.\"}".into()),
        };
        batch.actions.extend((0..10).map(|_| row("BOOT", None, from)));
        batch.actions.push(row("INCARNATE", Some(from), parent));
        store.commit(batch).await?;
        ends.push((numbered(store, first + SESSION - 1).await?, parent));
    }
    Ok(ends)
}

/// Life, recall, trace and diff in sessions all over the store; and a store that is opened for one look.
async fn looks(store: &SqliteStore, path: &Path, nodes: usize) -> Outcome<()> {
    let ends = fork(store, nodes).await?;
    // What was written is indexed before the first look; the last look opens a store of its own.
    store.sessions(quipu::store::SessionQuery { limit: Some(1), ..Default::default() }).await?;
    let places =
        (0..LOOKS).map(|look| (look * 7_919 * (nodes / LOOKS)) % nodes / SESSION * SESSION + SESSION / 2);
    let mut places_found = Vec::new();
    for place in places {
        places_found.push(numbered(store, place.min(nodes - 1)).await?);
    }
    let mut samples = Vec::new();
    for node in &places_found {
        let began = Instant::now();
        let life = quipu::history::life(store, &quipu::history::LifeQuery::new(*node)).await?;
        samples.push(began.elapsed().as_secs_f64() * 1e3);
        if life.lines.len() < 5 {
            return Err("life shows too little".into());
        }
    }
    rows("life", samples);
    let mut samples = Vec::new();
    for node in &places_found {
        let began = Instant::now();
        quipu::history::recall(store, &quipu::history::RecallQuery::new(*node)).await?;
        samples.push(began.elapsed().as_secs_f64() * 1e3);
    }
    rows("recall", samples);
    let (mut traces, mut diffs) = (Vec::new(), Vec::new());
    for look in 0..LOOKS {
        let (left, right) = ends[look % ends.len()];
        let began = Instant::now();
        let trace = quipu::history::trace(store, &quipu::history::TraceQuery::new(right)).await?;
        traces.push(began.elapsed().as_secs_f64() * 1e3);
        let began = Instant::now();
        let diff = quipu::history::branch_diff(store, left, right).await?;
        diffs.push(began.elapsed().as_secs_f64() * 1e3);
        if trace.rows.len() != 11 || diff.sides.iter().any(|side| side.nodes + 1 != BRANCH as u64) {
            return Err(format!(
                "{} rows, sides of {:?}",
                trace.rows.len(),
                diff.sides.map(|side| side.nodes)
            )
            .into());
        }
    }
    rows("trace", traces);
    rows(&format!("diff, sides of {} nodes", BRANCH - 1), diffs);
    let mut samples = Vec::new();
    for node in places_found.iter().take(LOOKS / 4) {
        let began = Instant::now();
        let opened = SqliteStore::open(path, &OpenOptions::default())?;
        quipu::history::life(&opened, &quipu::history::LifeQuery::new(*node)).await?;
        samples.push(began.elapsed().as_secs_f64() * 1e3);
    }
    rows("open and first life", samples);
    Ok(())
}

/// A session of ours in the middle goes back and forward, and elsewhere.
async fn moves(store: Arc<SqliteStore>, nodes: usize) -> Outcome<()> {
    let number = nodes / SESSION / 2 / 3 * 3;
    let session = SessionId::from(format!("session-{number}"));
    let engine = Engine::new(store.clone(), Arc::new(Sealer::new([0; 32])), std::env::temp_dir());
    let answer = format!("ext:n{}", number * SESSION + 16);
    let Resolution::One(target) = store.resolve(&answer.into(), &Scope::default()).await? else {
        return Err("the answer to go to is not there".into());
    };
    // Back and forward by turns, so that there is always something to undo.
    let (mut back, mut forward) = (Vec::new(), Vec::new());
    for _ in 0..MOVES {
        for (samples, undo) in [(&mut back, true), (&mut forward, false)] {
            let began = Instant::now();
            let done = if undo { engine.undo(&session, 1).await? } else { engine.redo(&session, 1).await? };
            samples.push(began.elapsed().as_secs_f64() * 1e3);
            if done.len() != 1 {
                return Err("nothing was undone".into());
            }
        }
    }
    rows("undo of a turn", back);
    rows("redo of a turn", forward);
    let (mut there, mut again) = (Vec::new(), Vec::new());
    for _ in 0..MOVES {
        let began = Instant::now();
        engine.tobe(target.node, "This way is closed: look at the other.").await?;
        there.push(began.elapsed().as_secs_f64() * 1e3);
        let began = Instant::now();
        engine.undo(&session, 1).await?;
        again.push(began.elapsed().as_secs_f64() * 1e3);
    }
    rows("tobe without files", there);
    rows("undo of tobe", again);
    Ok(())
}

/// A row, and one for its slowest.
fn rows(what: &str, mut samples: Vec<f64>) {
    row(what, &samples);
    samples.sort_unstable_by(f64::total_cmp);
    let slow = samples.get(samples.len().saturating_sub(1) * 99 / 100).copied();
    row(&format!("{what}, 99th percentile"), slow.as_slice());
}

/// A store that goes away.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        for end in ["", "-wal", "-shm"] {
            std::fs::remove_file(format!("{}{end}", self.0.display())).ok();
        }
    }
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, nodes, times] = arguments.as_slice() else {
        return Err("usage: answers_rate DIRECTORY NODES TIMES".into());
    };
    std::fs::create_dir_all(directory)?;
    let file = Scratch(Path::new(directory).join(format!("answers-rate-{}.db", std::process::id())));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(measure(&file.0, nodes.parse()?, times.parse()?))
}
