//! The past as rows of a tree: whose pasts there are, their chunks, and what a chunk stands on.

use std::collections::HashMap;
use std::path::Path;

use quipu_past::{
    ChunkEntry, EvidenceKind, EvidenceNode, PastId, PastIndex, PastScope, ReviewState, class_name,
    evidence_of, read_chunks,
};
use quipu_protocol::{AuthorClass, NodeId, SessionId};
use quipu_store::{Graph, decode_nodes};

use crate::entry::entry_line;
use crate::past::project_past;
use crate::text::one_line;
use crate::tree::{PastChunkRow, PastRow, TreeKind, TreeRow, of_node};
use crate::{Failure, FoundItem, FoundItems, Home};

/// Chunks and sources below one row; the newest chunks, and the first sources.
const ROWS: usize = 1_000;
/// Nodes that are read together.
const TOGETHER: usize = 256;
/// Columns of a row at most.
const WIDTH: usize = 300;

/// The pasts that a tree begins with: that of the project, where it has one or its memory is on, and that of the session, if there is
/// one. With `all`, those of agents and of everything too.
///
/// # Errors
/// What the store says.
pub async fn past_headers(
    home: &Home,
    store: &dyn Graph,
    cwd: &Path,
    session: Option<&SessionId>,
    all: bool,
) -> Result<Vec<TreeRow>, Failure> {
    let mut rows = Vec::new();
    if all {
        let mut agents: Vec<String> = store
            .sessions(quipu_store::SessionQuery::default())
            .await?
            .into_iter()
            .map(|row| row.agent)
            .collect();
        agents.sort_unstable();
        agents.dedup();
        for scope in std::iter::once(PastScope::All).chain(agents.into_iter().map(PastScope::Agent)) {
            rows.extend(header(store, scope, false).await?);
        }
    }
    rows.extend(header(store, project_past(cwd), crate::is_memory_on(home, cwd)).await?);
    if let Some(session) = session {
        rows.extend(header(store, PastScope::Session(session.clone()), false).await?);
    }
    Ok(rows)
}

async fn header(store: &dyn Graph, scope: PastScope, is_wanted: bool) -> Result<Option<TreeRow>, Failure> {
    let head = store.head(&scope.ref_name()).await?;
    if head.is_none() && !is_wanted {
        return Ok(None);
    }
    let name = scope.name();
    let text = match head {
        Some(_) => format!("past of {}", one_line(&name, WIDTH)),
        None => format!("past of {}, not built yet", one_line(&name, WIDTH)),
    };
    let past = PastRow { scope, name, chunk: None };
    Ok(Some(TreeRow {
        past: Some(past),
        ..TreeRow::new(head.unwrap_or(NodeId([0; 32])), TreeKind::Past, text)
    }))
}

/// What stands below a row of a past: its coarsest chunks; the chunks or the sources of a chunk.
///
/// # Errors
/// What the store says; where the chunk is not there any more.
pub async fn past_rows(store: &dyn Graph, row: &PastRow) -> Result<Vec<TreeRow>, Failure> {
    let PastRow { scope, chunk, .. } = row;
    let index = PastIndex::read(store, scope).await?;
    let (found, above): (Vec<&ChunkEntry>, Option<&ChunkEntry>) = match chunk {
        None => (index.roots(), None),
        Some(PastChunkRow { id, key, .. }) => {
            let Some(entry) = index.get(id) else {
                return Err(Failure::request(format!("the chunk {key} is not there any more")));
            };
            let children = entry.children.iter().filter_map(|child| index.get(child));
            (children.filter(|child| !child.is_removed).collect(), Some(entry))
        }
    };
    let mut rows = Vec::new();
    let left = found.len().saturating_sub(ROWS);
    if left > 0 {
        let text = format!("⋮ {left} earlier chunks are not listed; a range finds them");
        let node = found.first().map_or(NodeId([0; 32]), |entry| entry.node);
        rows.push(TreeRow { past: Some(row.clone()), ..TreeRow::new(node, TreeKind::Past, text) });
    }
    for some in found.get(left..).unwrap_or_default().chunks(TOGETHER) {
        rows.extend(chunk_rows(store, row, &index, some).await?);
    }
    if let Some(entry) = above.filter(|entry| entry.sources > 0) {
        rows.extend(source_rows(store, scope, entry).await?);
    }
    if let Some(first) = rows.first_mut() {
        first.starts = true;
    }
    Ok(rows)
}

async fn chunk_rows(
    store: &dyn Graph,
    row: &PastRow,
    index: &PastIndex,
    some: &[&ChunkEntry],
) -> Result<Vec<TreeRow>, Failure> {
    let PastRow { scope, name, .. } = row;
    let nodes: Vec<NodeId> = some.iter().map(|entry| entry.node).collect();
    let read = read_chunks(store, scope, &nodes).await?;
    let summaries: HashMap<PastId, String> =
        read.into_iter().map(|chunk| (chunk.id(), chunk.summary)).collect();
    Ok(some
        .iter()
        .map(|entry| {
            let key = index.key(entry);
            let words = summaries.get(&entry.id).map_or_else(String::new, |text| one_line(text, WIDTH));
            let text = format!("{key} · {}: {words}", facts(entry));
            let chunk = PastChunkRow { id: entry.id, key, range: entry.span.key() };
            let past = PastRow { scope: scope.clone(), name: name.clone(), chunk: Some(chunk) };
            TreeRow { past: Some(past), ..TreeRow::new(entry.node, TreeKind::Chunk, text) }
        })
        .collect())
}

fn facts(entry: &ChunkEntry) -> String {
    let mut facts = match entry.children.len() {
        0 => format!("{} nodes", entry.sources),
        count => format!("{count} chunks"),
    };
    if entry.class == AuthorClass::Untrusted {
        facts.push_str(&format!(", {}", class_name(entry.class)));
    }
    match entry.state {
        ReviewState::Made => {}
        ReviewState::Reviewed => facts.push_str(", reviewed"),
        ReviewState::Retracted => facts.push_str(", retracted"),
    }
    if entry.is_superseded {
        facts.push_str(", superseded");
    }
    facts
}

/// The nodes that a chunk names itself.
async fn source_rows(
    store: &dyn Graph,
    scope: &PastScope,
    entry: &ChunkEntry,
) -> Result<Vec<TreeRow>, Failure> {
    let Some(chunk) = read_chunks(store, scope, &[entry.node]).await?.pop() else { return Ok(Vec::new()) };
    let ids: Vec<NodeId> = chunk.sources.iter().map(|source| source.node).take(ROWS).collect();
    let mut rows = Vec::with_capacity(ids.len());
    for some in ids.chunks(TOGETHER) {
        let sessions = store.sessions_of(some).await?;
        let nodes: Vec<_> = store.nodes(some).await?.into_iter().flatten().collect();
        let decoded = decode_nodes(store, &nodes).await?;
        let mut found: HashMap<NodeId, TreeRow> =
            nodes.iter().zip(&decoded).map(|(node, one)| (node.id, of_node(node.id, &one.entry))).collect();
        for (id, session) in some.iter().zip(sessions) {
            let gone = || TreeRow::new(*id, TreeKind::Summary, "a source that is not there any more");
            rows.push(TreeRow { of: session, ..found.remove(id).unwrap_or_else(gone) });
        }
    }
    Ok(rows)
}

/// Why a node is evidence, in a few words.
const fn kind_words(kind: EvidenceKind) -> &'static str {
    match kind {
        EvidenceKind::Explicit => "source",
        EvidenceKind::Overlap => "at the same time, no source",
        EvidenceKind::Late => "late: came after the chunk was made",
        EvidenceKind::Missing => "source, not there any more",
    }
}

/// What a chunk stands on, with how each node begins: its sources and those of the chunks below it, and what was said at its time.
///
/// # Errors
/// What the store says; where the chunk is not there any more.
pub async fn past_sources(store: &dyn Graph, row: &PastRow) -> Result<FoundItems, Failure> {
    let PastRow { scope, chunk, .. } = row;
    let Some(PastChunkRow { id, key, .. }) = chunk else { return Ok(FoundItems::default()) };
    let index = PastIndex::read(store, scope).await?;
    let Some(entry) = index.get(id) else {
        return Err(Failure::request(format!("the chunk {key} is not there any more")));
    };
    let evidence = evidence_of(store, scope, &index, entry).await?;
    let mut items = FoundItems::default();
    let listed: Vec<&EvidenceNode> = evidence.nodes.iter().take(ROWS).collect();
    for some in listed.chunks(TOGETHER) {
        let ids: Vec<NodeId> = some.iter().map(|one| one.node).collect();
        let nodes: Vec<_> = store.nodes(&ids).await?.into_iter().flatten().collect();
        let decoded = decode_nodes(store, &nodes).await?;
        let said: HashMap<NodeId, String> =
            nodes.iter().zip(&decoded).map(|(node, one)| (node.id, entry_line(&one.entry, WIDTH))).collect();
        for one in some {
            let text = said.get(&one.node).cloned().unwrap_or_else(|| one.node.short());
            let at = one.at.map_or_else(String::new, |at| format!(" · {}", crate::iso(at)));
            let detail = format!("{}{at}", kind_words(one.kind));
            items.found.push(FoundItem { node: one.node, session: one.session.clone(), text, detail });
        }
    }
    let more = evidence.nodes.len().saturating_sub(listed.len());
    let mut note = format!("{} % of what was said in {key} is a source.", evidence.coverage());
    if more > 0 {
        note.push_str(&format!(" {more} more nodes are not listed."));
    }
    items.notes.push(note);
    Ok(items)
}
