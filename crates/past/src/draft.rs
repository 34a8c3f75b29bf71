//! Chunks that no build makes: a person writes them, or a model that is at work.

use std::collections::HashSet;

use quipu_protocol::{AuthorClass, NodeId, SessionId, UnixMs};
use quipu_store::{Graph, decode_nodes};

use crate::chunk::worse;
use crate::segments::importer_of;
use crate::source::{source_of, time_of};
use crate::writer::PastWriter;
use crate::{
    CHILD_LIMIT, ChunkEntry, ChunkSource, MemoryChunk, PastError, PastId, PastIndex, PastScope,
    SUMMARY_LIMIT, SummaryMethod, TimeRange,
};

/// Sources that are named one by one at most.
const NAMED_SOURCES: usize = 1_024;

/// Who writes a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DraftAuthor {
    /// A person: the chunk may stand in the place of others.
    Person,
    /// A model with a tool, of this class; what it names may be less trusted, and then the chunk is.
    Agent(AuthorClass),
}

/// A chunk to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkDraft {
    /// Who.
    pub author: DraftAuthor,
    /// The words, without secrets.
    pub summary: String,
    /// When it is of; without it, from the first to the last of what it names.
    pub span: Option<TimeRange>,
    /// Chunks that it sums up.
    pub children: Vec<PastId>,
    /// Nodes that it sums up.
    pub sources: Vec<NodeId>,
    /// Chunks in whose place it stands; only a person's does.
    pub supersedes: Vec<PastId>,
}

/// A chunk that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenChunk {
    /// Its id.
    pub id: PastId,
    /// Its node.
    pub node: NodeId,
    /// Its key, as the past stands now.
    pub key: String,
    /// The class of its author.
    pub class: AuthorClass,
}

/// What is known of the nodes that a draft names.
struct NamedNodes {
    span: Option<TimeRange>,
    session: Option<SessionId>,
    class: AuthorClass,
}

/// Writes a chunk. What it names has to be there, in the sessions of the scope; chunks that are superseded or taken back are not.
///
/// # Errors
/// `BadDraft` where it cannot be a chunk; `NoChunk`, `Busy`, `Store`.
pub async fn write_chunk(
    store: &dyn Graph,
    scope: &PastScope,
    draft: ChunkDraft,
    now: UnixMs,
) -> Result<WrittenChunk, PastError> {
    let ChunkDraft { author, summary, span, mut children, sources, mut supersedes } = draft;
    let index = PastIndex::read(store, scope).await?;
    let bytes = summary.trim().len();
    if bytes == 0 || summary.len() > SUMMARY_LIMIT {
        return Err(PastError::BadDraft(format!(
            "a summary has 1 to {SUMMARY_LIMIT} bytes, and this one {bytes}"
        )));
    }
    for (count, limit, what) in
        [(children.len(), CHILD_LIMIT, "chunks"), (sources.len(), NAMED_SOURCES, "nodes")]
    {
        if count > limit {
            return Err(PastError::BadDraft(format!(
                "a summary is of at most {limit} {what}, and this one of {count}"
            )));
        }
    }
    let find =
        |id: &PastId| index.get(id).ok_or_else(|| PastError::NoChunk { id: id.short(), scope: scope.name() });
    let mut nodes = unique(sources);
    if author == DraftAuthor::Person {
        supersedes = unique(supersedes);
    } else {
        supersedes.clear();
    }
    // What stands in the place of others is of all that they are of.
    for id in &supersedes {
        let former = find(id)?;
        // What was taken back since is in no chunk.
        let there = |child: &&PastId| index.get(child).is_some_and(ChunkEntry::is_live);
        children.extend(former.children.iter().filter(there).copied());
        for chunk in crate::read_chunks(store, scope, &[former.node]).await? {
            nodes.extend(chunk.sources.iter().map(|source| source.node));
        }
    }
    let (mut children, nodes) = (unique(children), unique(nodes));
    let mut found: Vec<&ChunkEntry> = Vec::with_capacity(children.len());
    for id in &children {
        let child = find(id)?;
        if child.is_superseded || child.is_taken_back() {
            return Err(PastError::BadDraft(format!(
                "chunk {} was superseded or taken back; name one that is shown",
                id.short()
            )));
        }
        found.push(child);
    }
    found.sort_by_key(|child| (child.span, child.id));
    children = found.iter().map(|child| child.id).collect();
    let is_own = !supersedes.is_empty();
    let named = named_nodes(store, scope, &nodes, is_own).await?;
    let superseded = supersedes.iter().filter_map(|id| index.get(id)).map(|chunk| chunk.span);
    let parts = found.iter().map(|child| child.span).chain(named.span).chain(superseded);
    let whole = parts.reduce(TimeRange::union);
    let span = match (span, whole) {
        (Some(span), Some(whole)) if !span.covers(whole) => {
            return Err(PastError::BadDraft(format!("it is of {whole}, which reaches beyond {span}")));
        }
        (Some(span), None) if span.start() > now => {
            return Err(PastError::BadDraft(format!(
                "{span} begins in the future, and nothing was said then; write a range that has begun, such as today, yesterday or \
                 last week"
            )));
        }
        (Some(span), _) => span,
        (None, Some(whole)) => whole,
        (None, None) => return Err(PastError::BadDraft("it names no time, no chunk and no node".to_owned())),
    };
    if span.start() <= 0 {
        return Err(PastError::BadDraft(format!("a chunk begins in 1970 or later, and this one {span}")));
    }
    let level = found.iter().map(|child| child.level.saturating_add(1)).max().unwrap_or(0);
    let (class, method) = match author {
        DraftAuthor::Person => (AuthorClass::Owner, SummaryMethod::Person),
        DraftAuthor::Agent(class) => {
            let class =
                found.iter().fold(worse(class, named.class), |class, child| worse(class, child.class));
            (class, SummaryMethod::Agent)
        }
    };
    let chunk = MemoryChunk {
        scope: scope.clone(),
        level,
        span,
        summary,
        children,
        sources: nodes.into_iter().map(ChunkSource::whole).collect(),
        session: named.session,
        class,
        method,
        work: None,
        supersedes,
    };
    let id = chunk.id();
    if index.get(&id).is_some_and(ChunkEntry::is_taken_back) {
        let why =
            format!("chunk {} says the same and was taken back; review it to have it shown", id.short());
        return Err(PastError::BadDraft(why));
    }
    // The same once more changes nothing.
    let node = match index.get(&id).filter(|known| known.is_live()) {
        Some(known) => known.node,
        None => {
            let mut writer = PastWriter::new(store, scope, &index);
            let node = writer.chunk(&chunk, now);
            writer.save().await?;
            node
        }
    };
    let index = PastIndex::read(store, scope).await?;
    let key = index.get(&id).map_or_else(|| span.key(), |entry| index.key(entry));
    Ok(WrittenChunk { id, node, key, class })
}

/// Puts a chunk that is there in the place of others, as a person wants it.
///
/// # Errors
/// `NoChunk`, `BadDraft`, `Busy`, `Store`.
pub async fn replace_chunks(
    store: &dyn Graph,
    scope: &PastScope,
    of: Vec<PastId>,
    by: PastId,
    now: UnixMs,
) -> Result<NodeId, PastError> {
    let index = PastIndex::read(store, scope).await?;
    let of = unique(of);
    for id in of.iter().chain([&by]) {
        if index.get(id).is_none() {
            return Err(PastError::NoChunk { id: id.short(), scope: scope.name() });
        }
    }
    if of.contains(&by) || index.get(&by).is_some_and(|by| !by.is_live()) {
        let why = format!("chunk {} is not shown itself, or is to stand in its own place", by.short());
        return Err(PastError::BadDraft(why));
    }
    let mut writer = PastWriter::new(store, scope, &index);
    let node = writer.replace(of, now);
    writer.save().await?;
    Ok(node)
}

/// What the nodes are; those of a chunk that was there may be gone.
async fn named_nodes(
    store: &dyn Graph,
    scope: &PastScope,
    nodes: &[NodeId],
    may_be_gone: bool,
) -> Result<NamedNodes, PastError> {
    let mut named = NamedNodes { span: None, session: None, class: AuthorClass::Owner };
    if nodes.is_empty() {
        return Ok(named);
    }
    let rows = scope.sessions(store).await?;
    let sessions = store.sessions_of(nodes).await?;
    let hidden = store.hidden();
    let mut of = HashSet::new();
    for ((id, session), node) in nodes.iter().zip(&sessions).zip(store.nodes(nodes).await?) {
        let row = session.as_ref().and_then(|session| rows.iter().find(|row| row.id == *session));
        let (Some(row), Some(node), false) = (row, node, hidden.hides(id)) else {
            if may_be_gone {
                continue;
            }
            return Err(PastError::BadDraft(format!(
                "node {} is in no session of {}",
                id.short(),
                scope.name()
            )));
        };
        of.insert(row.id.clone());
        let written = node.record.timestamp;
        for decoded in decode_nodes(store, &[node]).await? {
            let class = source_of(&decoded, importer_of(row)).map(|(source, _)| source.class);
            named.class = worse(named.class, class.unwrap_or(AuthorClass::Untrusted));
            let at = time_of(&decoded.entry, written);
            let span = at.and_then(|at| TimeRange::new(at, at + 1));
            named.span = named.span.into_iter().chain(span).reduce(TimeRange::union);
        }
    }
    named.session = of.iter().next().filter(|_| of.len() == 1).cloned();
    Ok(named)
}

fn unique<T: Copy + Eq + std::hash::Hash>(all: Vec<T>) -> Vec<T> {
    let mut seen = HashSet::new();
    all.into_iter().filter(|one| seen.insert(*one)).collect()
}
