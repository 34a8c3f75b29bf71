//! Makes what a plan says is missing, a commit at a time.

use std::collections::HashMap;

use quipu_protocol::{NodeId, UnixMs};
use quipu_store::{Graph, decode_nodes};

use crate::plan::{PlannedChunk, PlannedProgress, PlannedSources};
use crate::record::read_chunks;
use crate::segments::importer_of;
use crate::source::{SourceText, source_of};
use crate::writer::PastWriter;
use crate::{
    BuildSize, ChildSummary, ChunkSource, MemoryChunk, PastError, PastId, PastIndex, PastPlan, PastScope,
    ReviewState, SUMMARY_LIMIT, Summariser,
};

/// Chunks of one commit at most, and nodes that are read for them.
const BATCH: usize = 64;
const BATCH_NODES: usize = 4_096;
/// Chunks that are superseded by one node.
const SUPERSEDED: usize = 1_000;

/// How far a build is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuildProgress {
    /// Chunks that are committed.
    pub done: usize,
    /// Chunks that there are to make and to put back.
    pub of: usize,
}

/// What a chunk of the plan became.
#[derive(Clone, Copy)]
struct MadeChunk {
    id: PastId,
    node: NodeId,
}

/// Makes the chunks of a plan that are missing, the finest first, and commits them as it goes. Cut off at any time, it loses what it
/// had not committed; planned and built again, it makes only that.
///
/// # Errors
/// `BadSummary` where the summariser gives nothing, or too much; `Busy` where another process writes to the same past; `Store`.
/// What was committed before stays.
pub async fn build_past(
    store: &dyn Graph,
    scope: &PastScope,
    summariser: &dyn Summariser,
    plan: &PastPlan,
    now: UnixMs,
    progress: &mut (dyn FnMut(BuildProgress) + Send),
) -> Result<BuildSize, PastError> {
    let size = plan.size();
    let mut build = BuildRun {
        store,
        scope,
        summariser,
        plan,
        now,
        importers: importers(store, scope).await?,
        writer: PastWriter::new(store, scope, &plan.index),
        made: vec![None; plan.chunks.len()],
    };
    let of = size.leaves + size.parents + size.restored;
    let mut done = 0;
    progress(BuildProgress { done, of });
    let mut at = 0;
    while at < plan.chunks.len() {
        let batch = build.next_batch(at);
        let end = batch.end;
        done += build.make(batch).await?;
        build.writer.save().await?;
        progress(BuildProgress { done, of });
        at = end;
    }
    for of in plan.orphans.chunks(SUPERSEDED) {
        build.writer.supersede(of.to_vec(), now);
    }
    build.writer.save().await?;
    Ok(size)
}

/// The agents of imported sessions.
async fn importers(
    store: &dyn Graph,
    scope: &PastScope,
) -> Result<HashMap<quipu_protocol::SessionId, String>, PastError> {
    let rows = scope.sessions(store).await?;
    let imported = rows.iter().filter_map(|row| Some((row.id.clone(), importer_of(row)?.to_owned())));
    Ok(imported.collect())
}

struct BuildRun<'a> {
    store: &'a dyn Graph,
    scope: &'a PastScope,
    summariser: &'a dyn Summariser,
    plan: &'a PastPlan,
    now: UnixMs,
    importers: HashMap<quipu_protocol::SessionId, String>,
    writer: PastWriter<'a>,
    made: Vec<Option<MadeChunk>>,
}

impl BuildRun<'_> {
    /// Chunks of one level from here on, as many as are made together.
    fn next_batch(&self, start: usize) -> std::ops::Range<usize> {
        let level = self.plan.chunks[start].level;
        let (mut end, mut made, mut nodes) = (start, 0, 0);
        while let Some(chunk) = self.plan.chunks.get(end) {
            if chunk.level != level || made == BATCH || nodes > BATCH_NODES {
                break;
            }
            if let (PlannedProgress::Missing, PlannedSources::Nodes { nodes: of, .. }) =
                (chunk.progress, &chunk.of)
            {
                nodes += of.len();
            }
            made += usize::from(chunk.is_pending());
            end += 1;
        }
        start..end
    }

    async fn make(&mut self, batch: std::ops::Range<usize>) -> Result<usize, PastError> {
        let mut done = 0;
        let texts = self.texts(batch.clone()).await?;
        let summaries = self.child_summaries(batch.clone()).await?;
        for at in batch {
            let planned = &self.plan.chunks[at];
            let chunk = match planned.progress {
                PlannedProgress::Standing(id) => {
                    let known = self.plan.index.get(&id);
                    self.made[at] = known.map(|known| MadeChunk { id, node: known.node });
                    continue;
                }
                PlannedProgress::Retracted => continue,
                PlannedProgress::Former(id) => {
                    let Some(node) = self.plan.index.get(&id).map(|known| known.node) else { continue };
                    let Some(former) = read_chunks(self.store, self.scope, &[node]).await?.pop() else {
                        continue;
                    };
                    MemoryChunk { supersedes: planned.supersedes.clone(), ..former }
                }
                PlannedProgress::Missing => self.summed_up(planned, &texts, &summaries)?,
            };
            let node = self.writer.chunk(&chunk, self.now);
            self.made[at] = Some(MadeChunk { id: chunk.id(), node });
            done += 1;
        }
        Ok(done)
    }

    fn summed_up(
        &self,
        planned: &PlannedChunk,
        texts: &HashMap<NodeId, SourceText>,
        summaries: &HashMap<PastId, ChildSummary>,
    ) -> Result<MemoryChunk, PastError> {
        let (summary, children, sources, session) = match &planned.of {
            PlannedSources::Nodes { session, nodes, .. } => {
                let said: Vec<SourceText> =
                    nodes.iter().filter_map(|node| texts.get(node)).cloned().collect();
                let sources = nodes.iter().copied().map(ChunkSource::whole).collect();
                (self.summariser.leaf(&said), Vec::new(), sources, Some(session.clone()))
            }
            PlannedSources::Children(children) => {
                let made = children.iter().filter_map(|child| self.made[*child]);
                let ids: Vec<PastId> = made.map(|made| made.id).collect();
                let said: Vec<ChildSummary> =
                    ids.iter().filter_map(|id| summaries.get(id)).cloned().collect();
                (self.summariser.parent(&said), ids, Vec::new(), None)
            }
        };
        if summary.trim().is_empty() || summary.len() > SUMMARY_LIMIT {
            return Err(PastError::BadSummary(planned.span.key()));
        }
        Ok(MemoryChunk {
            scope: self.scope.clone(),
            level: planned.level,
            span: planned.span,
            summary,
            children,
            sources,
            session,
            class: planned.class,
            method: self.summariser.method(),
            work: Some(planned.work),
            supersedes: planned.supersedes.clone(),
        })
    }

    /// What the nodes say that the chunks of a batch are to be made of.
    async fn texts(&self, batch: std::ops::Range<usize>) -> Result<HashMap<NodeId, SourceText>, PastError> {
        let hidden = self.store.hidden();
        let mut texts = HashMap::new();
        for planned in &self.plan.chunks[batch] {
            let PlannedSources::Nodes { session, nodes, .. } = &planned.of else { continue };
            if planned.progress != PlannedProgress::Missing {
                continue;
            }
            let importer = self.importers.get(session).map(String::as_str);
            for some in nodes.chunks(BATCH_NODES) {
                let found: Vec<_> = self.store.nodes(some).await?.into_iter().flatten().collect();
                let decoded = decode_nodes(self.store, &found).await?;
                let said = found.iter().zip(decoded).filter(|(node, _)| !hidden.hides(&node.id));
                texts.extend(
                    said.filter_map(|(node, decoded)| Some((node.id, source_of(&decoded, importer)?.0))),
                );
            }
        }
        Ok(texts)
    }

    /// The summaries of the children of the chunks that are to be made of them.
    async fn child_summaries(
        &self,
        batch: std::ops::Range<usize>,
    ) -> Result<HashMap<PastId, ChildSummary>, PastError> {
        let missing =
            self.plan.chunks[batch].iter().filter(|chunk| chunk.progress == PlannedProgress::Missing);
        let children = missing.filter_map(|chunk| match &chunk.of {
            PlannedSources::Children(children) => Some(children),
            PlannedSources::Nodes { .. } => None,
        });
        let made = children.flatten().filter_map(|child| self.made[*child]);
        let nodes: Vec<NodeId> = made.map(|made| made.node).collect();
        let chunks = read_chunks(self.store, self.scope, &nodes).await?;
        Ok(chunks
            .into_iter()
            .map(|chunk| (chunk.id(), ChildSummary { span: chunk.span, summary: chunk.summary }))
            .collect())
    }
}

/// Says what a person made of a chunk. A chunk that is retracted is shown to nobody and not made again; those above it are made
/// without it by the next build.
///
/// # Errors
/// `NoChunk`, `Busy`, `Store`.
pub async fn set_review_state(
    store: &dyn Graph,
    scope: &PastScope,
    chunk: PastId,
    state: ReviewState,
    now: UnixMs,
) -> Result<NodeId, PastError> {
    let index = PastIndex::read(store, scope).await?;
    if index.get(&chunk).is_none() {
        return Err(PastError::NoChunk { id: chunk.short(), scope: scope.name() });
    }
    let mut writer = PastWriter::new(store, scope, &index);
    let node = writer.review(chunk, state, now);
    writer.save().await?;
    Ok(node)
}
