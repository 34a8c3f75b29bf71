//! The database into the store.

use std::path::Path;
use std::sync::Arc;

use quipu_protocol::{NodeId, SessionId};
use quipu_seal::Sealer;
use quipu_store::{Commit, Expect, Graph, RefMove, RefName};

use super::AGENT;
use super::graph::Database;
use super::log;
use crate::batches::off_the_runtime;
use crate::intake::{open_file, stamp};
use crate::lineages::main_ref;
use crate::seen::{Mark, Seen};
use crate::{ArchiveError, ImportOptions, ProblemKind, Progress, Report};

/// Nodes and bytes of one commit, about.
const NODES: usize = 2_000;
const BYTES: usize = 4 << 20;
/// Letters of the name of a ref at most.
const NAME: usize = 200;
/// The refs of nodes that nothing follows begin with this.
const ENDS: &str = "playfilo-ends/";

/// Imports the graph of a database; one report.
pub(crate) async fn import(
    store: &Arc<dyn Graph>,
    sealer: &Arc<Sealer>,
    path: &Path,
    seen: &Seen,
    options: &ImportOptions<'_>,
) -> Result<Vec<Report>, ArchiveError> {
    let fail = |source| ArchiveError::File { path: path.to_owned(), doing: "read", source };
    let path = &std::path::absolute(path).map_err(fail)?;
    drop(open_file(path)?);
    let (bytes, sha256) = stamp(path).map_err(fail)?;
    if let Some(mark) = seen.of(AGENT, path)
        && (mark.bytes, mark.sha256, mark.actions) == (bytes, sha256, true)
        && let Some(head) = store.head(&main_ref(AGENT, &mark.session)).await?
    {
        let mut report = Report::new(path.clone(), mark.session.clone());
        (report.bytes, report.unchanged, report.head) = (bytes, true, Some(head));
        return Ok(vec![report]);
    }
    let mut report = Report::new(path.clone(), String::new().into());
    let owned = path.clone();
    let mut graph;
    let refs;
    (graph, refs, report) = off_the_runtime(move || {
        let graph = Database::open(&owned, &mut report)?;
        let fail = |source| ArchiveError::File { path: owned.clone(), doing: "read", source };
        let refs = graph.refs().map_err(fail)?;
        Ok::<_, ArchiveError>((graph, refs, report))
    })
    .await??;
    loop {
        let sealer = Arc::clone(sealer);
        let done;
        (graph, report, done) = off_the_runtime(move || {
            let mut graph = graph;
            let mut report = report;
            let taken = graph.take(NODES, BYTES, &sealer, &mut report);
            (graph, report, taken)
        })
        .await?;
        let mut taken = done.map_err(fail)?;
        if taken.nodes.is_empty() {
            break;
        }
        let ids: Vec<NodeId> = taken.nodes.iter().map(|node| node.id).collect();
        let present = store.nodes(&ids).await?;
        let mut present = present.iter().map(Option::is_some);
        report.read += ids.len() as u64;
        taken.nodes.retain(|_| !present.next().unwrap_or_default());
        report.added += taken.nodes.len() as u64;
        report.present += (ids.len() - taken.nodes.len()) as u64;
        report.bytes = bytes / 1_000 * graph.done();
        if !options.dry_run {
            let commit = Commit { blobs: taken.blobs, nodes: taken.nodes, ..Commit::default() };
            store.commit(commit).await?;
        }
        let at = report.bytes;
        (options.progress)(Progress { bytes: at, stored: at, total: bytes, entries: report.read });
    }
    report.bytes = bytes;
    report.branches = graph.ends.len() as u64;
    // Read by one thread and written by another, so that a log of any length needs little room.
    let (rows, come) = tokio::sync::mpsc::channel(1);
    let reader = Arc::clone(sealer);
    let reading = off_the_runtime(move || {
        let (graph, mut report) = (graph, report);
        let read = graph.log(&reader, &mut report, &rows);
        (graph, report, read)
    });
    let (read, added) = tokio::join!(reading, log::add(store, come, options.dry_run));
    let done;
    (graph, report, done) = read?;
    done.map_err(fail)?;
    report.actions = added?;
    finish(store, &graph, refs, report, (bytes, sha256), options).await.map(|report| vec![report])
}

/// Moves the refs, and notes what was imported.
async fn finish(
    store: &Arc<dyn Graph>,
    graph: &Database,
    refs: Vec<(String, String)>,
    mut report: Report,
    (bytes, sha256): (u64, quipu_protocol::ChunkId),
    options: &ImportOptions<'_>,
) -> Result<Report, ArchiveError> {
    let mut commit = Commit::default();
    let mut first = None;
    for (name, node) in refs {
        let to = node.parse::<NodeId>().ok().and_then(|node| graph.here.get(&node).copied());
        let fits = (1..=NAME).contains(&name.len()) && !name.chars().any(char::is_control);
        let Some(to) = to.filter(|_| fits) else {
            let detail = format!("ref {name}: its node is missing, or its name is not valid");
            report.problem(0, ProblemKind::NotAnEntry, &detail);
            continue;
        };
        let session: SessionId = name.as_str().into();
        let own = main_ref(AGENT, &session);
        if store.head(&own).await? != Some(to) {
            commit.moves.push(RefMove::publish(own, to, "import"));
        }
        first.get_or_insert((session, to));
    }
    let held = store.heads(ENDS).await?;
    for node in &graph.ends {
        if !held.iter().any(|head| head.node == *node) {
            commit.moves.push(RefMove::publish(RefName::from(format!("{ENDS}{node}")), *node, "import"));
        }
    }
    for head in held.into_iter().filter(|head| graph.inner.contains(&head.node)) {
        let why = "import".into();
        commit.moves.push(RefMove { name: head.name, expect: Expect::Any, to: None, fence: None, why });
    }
    if let Some((session, node)) = first {
        (report.session, report.head) = (session.clone(), Some(node));
        let mark = Mark { actions: true, ..Mark::new(AGENT, &report.path, session, bytes, sha256) };
        commit.actions.push(mark.action(None, Some(node)));
    }
    if !options.dry_run {
        store.commit(commit).await?;
    }
    Ok(report)
}
