//! The cover of a past: which of its chunks are served within a budget, and their text.

use std::collections::{HashMap, HashSet};

use quipu_protocol::{NodeId, UnixMs};
use quipu_store::Graph;
use serde::{Deserialize, Serialize};

use crate::cover::{
    Charge, Cover, CoverAsk, CoverItem, CoverLine, Exclusion, Forest, RelevanceIndex, Span, frame_cost,
    line_cost, render,
};
use crate::index::ChunkEntry;
use crate::prove::{ground_pending, is_kept_out};
use crate::record::read_chunks_by_node;
use crate::{PastError, PastId, PastIndex, PastScope, ReviewState, TimeRange};

/// Chunks that are read at once.
const PAGE: usize = 1_024;

/// The chunks of a past with the keys and words that they are served with.
#[derive(Debug)]
pub struct CoverStock {
    forest: Forest,
    lines: HashMap<NodeId, CoverLine>,
    ids: HashMap<NodeId, PastId>,
    /// Chunks that nobody took back or had forgotten, the superseded ones, too.
    usable: HashSet<PastId>,
    relevance: RelevanceIndex,
    charge: Charge,
}

/// A cover as a session serves and keeps it: the text, and what it was made of.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServedCover {
    /// The text of the message; empty where nothing is served.
    pub text: String,
    /// What it costs.
    pub cost: u64,
    /// The chunks in it, by time.
    pub members: Vec<ServedMember>,
    /// From the end of what is served to the boundary: nothing of that time is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
}

/// A chunk that is served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServedMember {
    /// Its node.
    pub node: NodeId,
    /// Its id.
    pub id: PastId,
    /// The key of its range.
    pub key: String,
    /// What it costs.
    pub cost: u64,
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
        Self::read_on(store, scope, index, charge, None).await
    }

    /// The same, with the words of chunks that were read before: the node of a chunk never changes.
    ///
    /// # Errors
    /// What the store says.
    pub async fn read_on(
        store: &dyn Graph,
        scope: &PastScope,
        index: &PastIndex,
        charge: Charge,
        known: Option<&Self>,
    ) -> Result<Self, PastError> {
        let known = |node: &NodeId| known?.lines.get(node)?.summary.clone();
        let chunks: Vec<&ChunkEntry> =
            index.chunks().filter(|chunk| !chunk.is_superseded && !chunk.is_removed).collect();
        let verdicts = ground_pending(store, scope, index).await?;
        let mut items = Vec::with_capacity(chunks.len());
        let (mut lines, mut ids) = (HashMap::new(), HashMap::new());
        for page in chunks.chunks(PAGE) {
            let nodes = page.iter().map(|chunk| chunk.node).filter(|node| known(node).is_none());
            let nodes: Vec<NodeId> = nodes.collect();
            let mut read = match nodes.is_empty() {
                true => HashMap::new(),
                false => read_chunks_by_node(store, scope, &nodes).await?,
            };
            for entry in page {
                let read = read.remove(&entry.node).map(|chunk| chunk.summary);
                let summary = read.or_else(|| known(&entry.node)).unwrap_or_default();
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
                // One that is not there, or is another's: it is known as missing, so that the rest does not stand for all.
                let lost = entry.lost.iter().map(|child| NodeId(child.0));
                items.push(CoverItem {
                    id: entry.node,
                    // The end of a range does not belong to it.
                    span: Span { start: entry.span.start(), end: entry.span.end() - 1 },
                    cost: line_cost(&line, 0, charge),
                    exclusion,
                    children: children.map(|child| child.node).chain(lost).collect(),
                });
                ids.insert(entry.node, entry.id);
                lines.insert(entry.node, line);
            }
        }
        let summaries = items.iter().filter(|item| item.exclusion.is_none());
        let summaries = summaries
            .filter_map(|item| Some((item.id, lines.get(&item.id)?.summary.as_deref().unwrap_or_default())));
        let relevance = RelevanceIndex::new(summaries);
        let usable = index.chunks().filter(|chunk| chunk.state != ReviewState::Retracted);
        let usable = usable.map(|chunk| chunk.id).collect();
        Ok(Self { forest: Forest::new(items), lines, ids, usable, relevance, charge })
    }

    /// What a session serves that begins at the boundary: chunks that end before it. The last line names the time between them and
    /// the boundary, of which nothing is shown.
    #[must_use]
    pub fn serve(&self, budget: u64, question: Option<&str>, boundary: UnixMs) -> ServedCover {
        // There is always room for the last line.
        let longest = TimeRange::ALL.key();
        let last = line_cost(&CoverLine { key: longest, summary: None }, 0, self.charge);
        let frame = frame_cost(self.charge).saturating_add(last);
        let relevance = question.map_or_else(Vec::new, |question| self.relevance.scores(question));
        let ask = CoverAsk {
            budget: budget.saturating_sub(frame),
            boundary: Some(boundary),
            relevance,
            ..CoverAsk::default()
        };
        let cover = self.forest.cover(&ask);
        let mut lines = Vec::with_capacity(cover.members.len() + 1);
        let mut members = Vec::with_capacity(cover.members.len());
        for member in &cover.members {
            let (Some(line), Some(id)) = (self.lines.get(&member.id), self.ids.get(&member.id)) else {
                continue;
            };
            lines.push(line.clone());
            members.push(ServedMember { node: member.id, id: *id, key: line.key.clone(), cost: member.cost });
        }
        if lines.is_empty() {
            return ServedCover::default();
        }
        // The last millisecond of a span belongs to it.
        let end = cover.members.iter().map(|member| member.span.end).max().unwrap_or(boundary);
        let left_out = end.checked_add(1).and_then(|end| TimeRange::new(end, boundary)).map(TimeRange::key);
        lines.extend(left_out.clone().map(|key| CoverLine { key, summary: None }));
        let cost = cover.used.saturating_add(frame);
        ServedCover { text: render(&lines), cost, members, left_out }
    }

    /// Whether all that a cover tells may still be told: nobody took it back, and nobody had it forgotten.
    #[must_use]
    pub fn allows(&self, cover: &ServedCover) -> bool {
        cover.members.iter().all(|member| self.usable.contains(&member.id))
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
