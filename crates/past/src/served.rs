//! The cover of a past: which of its chunks are served within a budget, and their text.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use quipu_protocol::{NodeId, SessionId, UnixMs};
use quipu_store::{Graph, WordVectors};
use serde::{Deserialize, Serialize};

use crate::cover::{
    Charge, Cover, CoverAsk, CoverItem, CoverLine, Exclusion, Forest, RelevanceIndex, Span, frame_cost,
    line_cost, render,
};
use crate::index::ChunkEntry;
use crate::prove::{ground_pending, is_kept_out};
use crate::recalled::{LeafPlace, RecalledTurns};
use crate::record::read_chunks_by_node;
use crate::{ChunkAuthor, PastError, PastId, PastIndex, PastScope, ReviewState, TimeRange};

/// Chunks that are read at once.
const PAGE: usize = 1_024;
/// Percent of the budget that may go to raw turns that a question leads to.
const FOCUS: u8 = 80;
/// How much the words of summaries weigh beside what was found among the turns.
const SUMMARIES: f64 = 0.5;

/// The chunks of a past with the keys and words that they are served with.
#[derive(Debug, Clone)]
pub struct CoverStock {
    chunks: Arc<StockChunks>,
    /// What a question leads to.
    about: Option<Arc<QuestionSignal>>,
}

#[derive(Debug)]
struct StockChunks {
    forest: Forest,
    lines: HashMap<NodeId, CoverLine>,
    ids: HashMap<NodeId, PastId>,
    /// Chunks that nobody took back or had forgotten, the superseded ones, too.
    usable: HashSet<PastId>,
    relevance: RelevanceIndex,
    /// Chunks of nodes that builds made and nobody took back.
    leaves: Vec<LeafPlace>,
    charge: Charge,
}

/// What is known of one question.
#[derive(Debug)]
struct QuestionSignal {
    question: String,
    /// Where raw turns stand below chunks.
    forest: Option<Forest>,
    turns: HashMap<NodeId, CoverLine>,
    relevance: Vec<(NodeId, f64)>,
}

/// What a question leads to: chunks alone, or the raw turns of those, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CoverDetail {
    /// Chunks are the finest that is served.
    Chunks,
    /// Chunks of nodes may be replaced by what was said in them.
    Turns,
}

/// What a question is searched with among the sources of a past. Whoever draws a cover for a question takes it from here.
#[derive(Clone)]
pub struct CoverSearch<'a> {
    /// Where.
    pub store: &'a dyn Graph,
    /// Whose past it is.
    pub scope: &'a PastScope,
    /// The second signal, by meaning: where there is a model for it.
    pub words: Option<Arc<dyn WordVectors>>,
    /// What it leads to.
    pub detail: CoverDetail,
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
        let known = |node: &NodeId| known?.chunks.lines.get(node)?.summary.clone();
        let chunks: Vec<&ChunkEntry> =
            index.chunks().filter(|chunk| !chunk.is_superseded && !chunk.is_removed).collect();
        let verdicts = ground_pending(store, scope, index).await?;
        let mut items = Vec::with_capacity(chunks.len());
        let (mut lines, mut ids, mut leaves) = (HashMap::new(), HashMap::new(), Vec::new());
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
                if entry.author == ChunkAuthor::Build
                    && entry.level == 0
                    && entry.state != ReviewState::Retracted
                {
                    leaves.push(LeafPlace { node: entry.node, span: entry.span });
                }
                ids.insert(entry.node, entry.id);
                lines.insert(entry.node, line);
            }
        }
        let summaries = items.iter().filter(|item| item.exclusion.is_none());
        let summaries = summaries
            .filter_map(|item| Some((item.id, lines.get(&item.id)?.summary.as_deref().unwrap_or_default())));
        let relevance = RelevanceIndex::new(summaries);
        let usable =
            index.chunks().filter(|chunk| chunk.state != ReviewState::Retracted && !chunk.is_removed);
        let usable = usable.map(|chunk| chunk.id).collect();
        leaves.sort_unstable_by_key(|leaf| (leaf.span, leaf.node));
        let chunks =
            StockChunks { forest: Forest::new(items), lines, ids, usable, relevance, leaves, charge };
        Ok(Self { chunks: Arc::new(chunks), about: None })
    }

    /// The same with what a search of the store finds for a question among the sources: by words, and by meaning where the search has
    /// vectors. Covers that are asked for this question are drawn there; with [`CoverDetail::Turns`] down to what was said, for up to
    /// four fifths of the budget. What is new is indexed before, for half a second at most. Nothing is found of the session `asking`,
    /// whose words the question is.
    ///
    /// # Errors
    /// What the store says.
    pub async fn about(
        &self,
        search: &CoverSearch<'_>,
        question: &str,
        asking: Option<&SessionId>,
    ) -> Result<Self, PastError> {
        let chunks = &self.chunks;
        let CoverSearch { store, scope, words, detail } = search.clone();
        let recalled = RecalledTurns::find(store, scope, &chunks.leaves, (question, asking), words).await?;
        let mut relevance = relative(chunks.relevance.scores(question), SUMMARIES);
        let mut turns = HashMap::new();
        let mut forest = None;
        match detail {
            CoverDetail::Chunks => relevance = summed(relevance, recalled.leaf_scores()),
            CoverDetail::Turns => {
                let mut parts = Vec::new();
                for leaf in recalled.turns(store, question, chunks.charge).await? {
                    // Each of them before any summary.
                    relevance.extend(leaf.scores.into_iter().map(|(turn, score)| (turn, SUMMARIES + score)));
                    turns.extend(leaf.lines);
                    parts.push((leaf.of, leaf.items));
                }
                forest = (!parts.is_empty()).then(|| chunks.forest.with_parts(parts));
            }
        }
        let about = QuestionSignal { question: question.to_owned(), forest, turns, relevance };
        Ok(Self { chunks: chunks.clone(), about: Some(Arc::new(about)) })
    }

    /// What a cover is chosen from, and what draws it.
    fn signal(&self, question: Option<&str>) -> (&Forest, Vec<(NodeId, f64)>, u8) {
        let about = self.about.as_ref().filter(|about| Some(about.question.as_str()) == question);
        match (about, question) {
            (Some(about), _) => match &about.forest {
                Some(forest) => (forest, about.relevance.clone(), FOCUS),
                None => (&self.chunks.forest, about.relevance.clone(), 0),
            },
            (None, Some(question)) => (&self.chunks.forest, self.chunks.relevance.scores(question), 0),
            (None, None) => (&self.chunks.forest, Vec::new(), 0),
        }
    }

    /// What a session serves that begins at the boundary: chunks that end before it. The last line names the time between them and
    /// the boundary, of which nothing is shown.
    #[must_use]
    pub fn serve(&self, budget: u64, question: Option<&str>, boundary: UnixMs) -> ServedCover {
        let (cover, frame) = self.serving(budget, question, boundary);
        let mut lines = Vec::with_capacity(cover.members.len() + 1);
        let mut members = Vec::with_capacity(cover.members.len());
        for member in &cover.members {
            let (Some(line), Some(id)) = (self.line(&member.id), self.id(&member.id)) else {
                continue;
            };
            lines.push(line.clone());
            members.push(ServedMember { node: member.id, id, key: line.key.clone(), cost: member.cost });
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

    /// Which chunks it gives, and what stands around the lines.
    fn serving(&self, budget: u64, question: Option<&str>, boundary: UnixMs) -> (Cover, u64) {
        // There is always room for the last line.
        let longest = TimeRange::ALL.key();
        let charge = self.chunks.charge;
        let last = line_cost(&CoverLine { key: longest, summary: None }, 0, charge);
        let frame = frame_cost(charge).saturating_add(last);
        let (forest, relevance, focus) = self.signal(question);
        let ask = CoverAsk {
            budget: budget.saturating_sub(frame),
            boundary: Some(boundary),
            relevance,
            focus,
            ..CoverAsk::default()
        };
        (forest.cover(&ask), frame)
    }

    /// Whether all that a cover tells may still be told: nobody took it back, and nobody had it forgotten.
    #[must_use]
    pub fn allows(&self, cover: &ServedCover) -> bool {
        cover.members.iter().all(|member| self.chunks.usable.contains(&member.id))
    }

    /// What is served within a budget, in tokens or whatever the charge counts; `question` draws what has its words.
    #[must_use]
    pub fn cover(&self, budget: u64, question: Option<&str>) -> PastCover {
        let frame = frame_cost(self.chunks.charge);
        let (forest, relevance, focus) = self.signal(question);
        let ask = CoverAsk { budget: budget.saturating_sub(frame), relevance, focus, ..CoverAsk::default() };
        self.rendered(forest.cover(&ask), frame)
    }

    /// The chunks that [`serve`](Self::serve) gives, and why: `boundary` is the first moment of the present.
    #[must_use]
    pub fn cover_before(&self, budget: u64, question: Option<&str>, boundary: UnixMs) -> PastCover {
        let (cover, frame) = self.serving(budget, question, boundary);
        self.rendered(cover, frame)
    }

    fn rendered(&self, cover: Cover, frame: u64) -> PastCover {
        let lines: Vec<CoverLine> =
            cover.members.iter().filter_map(|member| self.line(&member.id).cloned()).collect();
        let cost = if lines.is_empty() { 0 } else { cover.used.saturating_add(frame) };
        PastCover { text: render(&lines), cost, cover }
    }

    /// The key and words of a chunk, by its node; of a raw turn, too.
    #[must_use]
    pub fn line(&self, node: &NodeId) -> Option<&CoverLine> {
        let turn = || self.about.as_ref().and_then(|about| about.turns.get(node));
        self.chunks.lines.get(node).or_else(turn)
    }

    /// How much chunks have to do with a question, by what covers for it are drawn.
    #[must_use]
    pub fn scores(&self, question: &str) -> Vec<(NodeId, f64)> {
        self.signal(Some(question)).1
    }

    /// The key of a chunk or of a raw turn, by its node.
    #[must_use]
    pub fn key(&self, node: &NodeId) -> Option<&str> {
        self.line(node).map(|line| line.key.as_str())
    }

    /// The id of a chunk, by its node; a raw turn has none.
    #[must_use]
    pub fn id(&self, node: &NodeId) -> Option<PastId> {
        self.chunks.ids.get(node).copied()
    }
}

/// The same with this as the best.
fn relative(mut scores: Vec<(NodeId, f64)>, best: f64) -> Vec<(NodeId, f64)> {
    let most = scores.iter().map(|(_, score)| *score).fold(0.0, f64::max);
    if most > 0.0 {
        scores.iter_mut().for_each(|(_, score)| *score *= best / most);
    }
    scores
}

/// Both signals of each chunk together.
fn summed(one: Vec<(NodeId, f64)>, other: Vec<(NodeId, f64)>) -> Vec<(NodeId, f64)> {
    let mut sums: BTreeMap<NodeId, f64> = one.into_iter().collect();
    for (node, score) in other {
        *sums.entry(node).or_default() += score;
    }
    sums.into_iter().collect()
}
