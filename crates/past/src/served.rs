//! The cover of a past: which of its chunks are served within a budget, and their text.

use std::collections::HashMap;

use quipu_protocol::{NodeId, UnixMs};
use quipu_store::Graph;

use crate::cover::{
    Charge, Cover, CoverAsk, CoverItem, CoverLine, Exclusion, Forest, RelevanceIndex, Span, frame_cost,
    line_cost, render,
};
use crate::index::{ChunkEntry, read_chunks_by_node};
use crate::prove::{ground_pending, is_kept_out};
use crate::{PastError, PastId, PastIndex, PastScope, ReviewState};

/// Chunks that are read at once.
const PAGE: usize = 1_024;

/// The chunks of a past with the keys and words that they are served with.
#[derive(Debug)]
pub struct CoverStock {
    forest: Forest,
    lines: HashMap<NodeId, CoverLine>,
    ids: HashMap<NodeId, PastId>,
    relevance: RelevanceIndex,
    charge: Charge,
}

/// What is served of a past.
#[derive(Debug, Clone, PartialEq)]
pub struct PastCover {
    /// Which chunks, and why.
    pub cover: Cover,
    /// The text of the message; empty where nothing is served.
    pub text: String,
    /// What it costs, with what stands around the lines.
    pub cost: u64,
}

impl CoverStock {
    /// Reads the chunks of a past that are shown, and those that were taken back: in the place of such a one its children may be
    /// served. The same holds where a chunk says what its sources do not. What is superseded is left out.
    ///
    /// # Errors
    /// What the store says.
    pub async fn read(
        store: &dyn Graph,
        scope: &PastScope,
        index: &PastIndex,
        charge: Charge,
    ) -> Result<Self, PastError> {
        let chunks: Vec<&ChunkEntry> = index.chunks().filter(|chunk| !chunk.is_superseded).collect();
        let verdicts = ground_pending(store, scope, index).await?;
        let mut items = Vec::with_capacity(chunks.len());
        let (mut lines, mut ids) = (HashMap::new(), HashMap::new());
        for page in chunks.chunks(PAGE) {
            let nodes: Vec<NodeId> = page.iter().map(|chunk| chunk.node).collect();
            let mut read = read_chunks_by_node(store, scope, &nodes).await?;
            for entry in page {
                let summary = read.remove(&entry.node).map(|chunk| chunk.summary).unwrap_or_default();
                let exclusion = match entry.state {
                    ReviewState::Retracted => Some(Exclusion::Retracted),
                    ReviewState::Made | ReviewState::Reviewed if summary.trim().is_empty() => {
                        Some(Exclusion::Empty)
                    }
                    ReviewState::Made | ReviewState::Reviewed => {
                        let verdict = verdicts.get(&entry.id).filter(|verdict| is_kept_out(entry, verdict));
                        verdict.map(|_| Exclusion::Ungrounded)
                    }
                };
                let line = CoverLine { key: index.key(entry), summary: Some(summary) };
                let children = entry.children.iter().filter_map(|child| index.get(child));
                items.push(CoverItem {
                    id: entry.node,
                    // The end of a range does not belong to it.
                    span: Span { start: entry.span.start(), end: entry.span.end() - 1 },
                    cost: line_cost(&line, 0, charge),
                    exclusion,
                    children: children.map(|child| child.node).collect(),
                });
                ids.insert(entry.node, entry.id);
                lines.insert(entry.node, line);
            }
        }
        let summaries = items.iter().filter(|item| item.exclusion.is_none());
        let summaries = summaries
            .filter_map(|item| Some((item.id, lines.get(&item.id)?.summary.as_deref().unwrap_or_default())));
        let relevance = RelevanceIndex::new(summaries);
        Ok(Self { forest: Forest::new(items), lines, ids, relevance, charge })
    }

    /// What is served within a budget, in tokens or whatever the charge counts; `question` draws what has its words.
    #[must_use]
    pub fn cover(&self, budget: u64, question: Option<&str>) -> PastCover {
        self.cover_before(budget, question, None)
    }

    /// The same of what ended before a moment: `boundary` is the first one of the present.
    #[must_use]
    pub fn cover_before(&self, budget: u64, question: Option<&str>, boundary: Option<UnixMs>) -> PastCover {
        let frame = frame_cost(self.charge);
        let relevance = question.map_or_else(Vec::new, |question| self.relevance.scores(question));
        let ask =
            CoverAsk { budget: budget.saturating_sub(frame), relevance, boundary, ..CoverAsk::default() };
        let cover = self.forest.cover(&ask);
        let lines: Vec<CoverLine> =
            cover.members.iter().filter_map(|member| self.lines.get(&member.id).cloned()).collect();
        let cost = if lines.is_empty() { 0 } else { cover.used.saturating_add(frame) };
        PastCover { text: render(&lines), cost, cover }
    }

    /// The key and words of a chunk, by its node.
    #[must_use]
    pub fn line(&self, node: &NodeId) -> Option<&CoverLine> {
        self.lines.get(node)
    }

    /// How much chunks have to do with a question.
    #[must_use]
    pub fn scores(&self, question: &str) -> Vec<(NodeId, f64)> {
        self.relevance.scores(question)
    }

    /// The key of a chunk, by its node.
    #[must_use]
    pub fn key(&self, node: &NodeId) -> Option<&str> {
        self.lines.get(node).map(|line| line.key.as_str())
    }

    /// The id of a chunk, by its node.
    #[must_use]
    pub fn id(&self, node: &NodeId) -> Option<PastId> {
        self.ids.get(node).copied()
    }
}
