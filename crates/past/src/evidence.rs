//! What a chunk stands on: the nodes that it names, and those that lie in its span without being named.

use std::collections::{HashMap, HashSet};

use quipu_protocol::{NodeId, SessionId, UnixMs};
use quipu_store::{Graph, decode_shown, decode_whole};
use serde::Serialize;

use crate::pages::{PAGE, Pages};
use crate::record::read_chunks;
use crate::segments::importer_of;
use crate::source::{source_of, time_of};
use crate::{ChunkEntry, PastError, PastIndex, PastScope};

/// Why a node is evidence of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EvidenceKind {
    /// The chunk, or one below it, names it as a source.
    Explicit,
    /// It was said in the span of the chunk, and is no source.
    Overlap,
    /// The same, and it came to the store after the chunk was made.
    Late,
    /// It is named as a source, and is not there any more.
    Missing,
}

/// A node, and why it is evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EvidenceNode {
    /// The node.
    pub node: NodeId,
    /// Why.
    pub kind: EvidenceKind,
    /// Its session, where that is known.
    pub session: Option<SessionId>,
    /// When it was said, where that is known; of one that overlaps without a time of its own, that of the one before it.
    pub at: Option<UnixMs>,
}

/// All evidence of a chunk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evidence {
    /// The sources in their order, then what overlaps, by time.
    pub nodes: Vec<EvidenceNode>,
}

impl Evidence {
    /// How many nodes are evidence of this kind.
    #[must_use]
    pub fn count(&self, kind: EvidenceKind) -> usize {
        self.nodes.iter().filter(|node| node.kind == kind).count()
    }

    /// How much of what was said in the span the chunk names, in percent, rounded down; 0 where nothing was said.
    #[must_use]
    pub fn coverage(&self) -> usize {
        let explicit = self.count(EvidenceKind::Explicit);
        let all = explicit + self.count(EvidenceKind::Overlap) + self.count(EvidenceKind::Late);
        (explicit * 100).checked_div(all).unwrap_or(0)
    }
}

/// Looks for the evidence of a chunk. Reads the sessions that were going on in its span.
///
/// # Errors
/// What the store says.
pub async fn evidence_of(
    store: &dyn Graph,
    scope: &PastScope,
    index: &PastIndex,
    chunk: &ChunkEntry,
) -> Result<Evidence, PastError> {
    let sources = sources_below(store, scope, index, chunk).await?;
    let mut found = Evidence::default();
    for some in sources.chunks(PAGE) {
        let sessions = store.sessions_of(some).await?;
        let nodes: Vec<_> = store.nodes(some).await?.into_iter().flatten().collect();
        let decoded = decode_whole(store, &nodes).await?;
        let times = nodes.iter().zip(decoded);
        let times: HashMap<NodeId, Option<UnixMs>> =
            times.map(|(node, decoded)| (node.id, time_of(&decoded.entry, node.record.timestamp))).collect();
        for (id, session) in some.iter().zip(sessions) {
            let (kind, at) = match times.get(id) {
                Some(at) => (EvidenceKind::Explicit, *at),
                None => (EvidenceKind::Missing, None),
            };
            found.nodes.push(EvidenceNode { node: *id, kind, session, at });
        }
    }
    let explicit: HashSet<NodeId> = sources.into_iter().collect();
    let hidden = store.hidden();
    let mut overlapping = Vec::new();
    for row in scope.sessions(store).await? {
        let Some(head) = row.head else { continue };
        // One of no known time was said when the one before it was.
        let mut last = None;
        let mut pages = Pages::below(store, row.base, head).await?;
        while let Some(piece) = pages.next().await? {
            for stored in piece.nodes.iter().filter(|stored| !hidden.hides(&stored.node.id)) {
                let decoded = decode_shown(&hidden, &stored.node, &piece.objects);
                if source_of(&decoded, importer_of(&row)).is_none() {
                    continue;
                }
                last = time_of(&decoded.entry, stored.node.record.timestamp).or(last);
                let node = stored.node.id;
                let Some(at) = last.filter(|at| chunk.span.contains(*at) && !explicit.contains(&node)) else {
                    continue;
                };
                let kind = if stored.seq > chunk.seq { EvidenceKind::Late } else { EvidenceKind::Overlap };
                let session = Some(row.id.clone());
                overlapping.push(EvidenceNode { node, kind, session, at: Some(at) });
            }
        }
    }
    overlapping.sort_by_key(|node| (node.at, node.node));
    overlapping.dedup_by_key(|node| node.node);
    found.nodes.extend(overlapping);
    Ok(found)
}

/// The sources of a chunk and of all chunks below it, each once.
pub(crate) async fn sources_below(
    store: &dyn Graph,
    scope: &PastScope,
    index: &PastIndex,
    chunk: &ChunkEntry,
) -> Result<Vec<NodeId>, PastError> {
    let mut seen = HashSet::from([chunk.id]);
    let mut open = vec![chunk];
    let mut holders = Vec::new();
    while let Some(chunk) = open.pop() {
        if chunk.sources > 0 {
            holders.push(chunk.node);
        }
        // The last first, so that the first is taken first.
        let children = chunk.lost.iter().rev().chain(chunk.children.iter().rev());
        let children = children.filter(|child| seen.insert(**child));
        open.extend(children.filter_map(|child| index.get(child)));
    }
    let mut sources = Vec::new();
    let mut named = HashSet::new();
    for some in holders.chunks(PAGE) {
        for chunk in read_chunks(store, scope, some).await? {
            sources.extend(chunk.sources.iter().map(|source| source.node).filter(|node| named.insert(*node)));
        }
    }
    Ok(sources)
}
