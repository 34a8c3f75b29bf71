//! What a search finds for a question among the sources of a past: words of turns that no summary has, and their meaning where
//! there is a model for it.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use quipu_protocol::{Body, Content, Entry, Message, NodeId, SessionId, UnixMs};
use quipu_store::{Graph, QUESTION_LIMIT, RecallKind, RecallPlace, RecallQuery, StoreError, WordVectors};
use quipu_store::{decode_nodes, decode_whole};
use quipu_transcript::DecodedEntry;

use crate::cover::{Charge, CoverItem, CoverLine, Span, line_cost, stems};
use crate::record::read_chunks_by_node;
use crate::source::{SourceSpeaker, source_of, time_of};
use crate::{PastError, PastScope, TimeRange};

/// Hits that are looked at.
const HITS: usize = 100;
/// Chunks whose sources are read to find those of the hits: of the best ones first.
const LEAVES: usize = 512;
/// Nodes that are read at once.
const PAGE: usize = 512;
/// How long a search indexes what is new.
const PATIENCE: Duration = Duration::from_millis(500);
/// Bytes of a raw turn; of a longer one the part with the words of the question is served.
const TURN: usize = 1_200;
/// How far from one part of a long turn to the next one that is looked at.
const STEP: usize = 200;
/// Bytes of a turn that are looked at.
const LOOKED_AT: usize = 64 << 10;
/// How much of a hit's relevance the turns beside it have.
const BESIDE: f64 = 0.8;

/// A chunk of nodes that a search may lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeafPlace {
    pub(crate) node: NodeId,
    pub(crate) span: TimeRange,
}

/// What was found, by the chunks that sum it up.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RecalledTurns {
    /// How well each hit fits, from 0 to 1.
    scores: HashMap<NodeId, f64>,
    /// The chunks that sum up hits, by time, with all nodes that they sum up.
    leaves: Vec<(LeafPlace, Vec<NodeId>)>,
}

/// Raw turns in the place of a chunk.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LeafTurns {
    pub(crate) of: NodeId,
    pub(crate) items: Vec<CoverItem>,
    pub(crate) lines: Vec<(NodeId, CoverLine)>,
    pub(crate) scores: Vec<(NodeId, f64)>,
}

impl RecalledTurns {
    /// Asks the index of the store. Nothing is found where it has none, and nothing of the session `asking`: its words are the question.
    pub(crate) async fn find(
        store: &dyn Graph,
        scope: &PastScope,
        leaves: &[LeafPlace],
        (question, asking): (&str, Option<&SessionId>),
        words: Option<Arc<dyn WordVectors>>,
    ) -> Result<Self, PastError> {
        let Some(index) = store.recall_index() else { return Ok(Self::default()) };
        if leaves.is_empty() || question.trim().is_empty() {
            return Ok(Self::default());
        }
        match index.index_recall(words.clone(), PATIENCE).await {
            // What is indexed is searched all the same.
            Ok(_) | Err(StoreError::ReadOnly { .. } | StoreError::Full { .. } | StoreError::Busy { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let projects = match scope {
            PastScope::Project(root) => Some(vec![root.clone()]),
            PastScope::All | PastScope::Agent(_) | PastScope::Session(_) => None,
        };
        // Of several questions the newest stands last.
        let newest = question.ceil_char_boundary(question.len().saturating_sub(QUESTION_LIMIT));
        let question = question[newest..].to_owned();
        let query = RecallQuery {
            question,
            projects,
            kinds: vec![RecallKind::User, RecallKind::Assistant],
            asking: asking.cloned(),
            limit: HITS,
            ..RecallQuery::default()
        };
        let hidden = store.hidden();
        let mut scores = HashMap::new();
        for hit in index.recall(query, words).await?.hits {
            if let RecallPlace::Node { node, .. } = hit.place
                && !hidden.hides(&node)
                && hit.score > 0.0
            {
                scores.insert(node, hit.score);
            }
        }
        let leaves = leaves_of(store, scope, leaves, &scores).await?;
        Ok(Self { scores, leaves })
    }

    /// How much chunks of nodes have to do with the question: as much as their best hit, from 0 to 1.
    pub(crate) fn leaf_scores(&self) -> Vec<(NodeId, f64)> {
        let best = |nodes: &[NodeId]| {
            nodes.iter().filter_map(|node| self.scores.get(node)).copied().fold(0.0, f64::max)
        };
        self.leaves.iter().map(|(leaf, nodes)| (leaf.node, best(nodes))).collect()
    }

    /// All that was said in the chunks with hits: a hit is as relevant as it fits, and what stands beside it four fifths as much.
    pub(crate) async fn turns(
        &self,
        store: &dyn Graph,
        question: &str,
        charge: Charge,
    ) -> Result<Vec<LeafTurns>, PastError> {
        let wanted = stems(question);
        let mut taken = BTreeSet::new();
        let mut found = Vec::with_capacity(self.leaves.len());
        for (leaf, nodes) in &self.leaves {
            let said = said_in(store, nodes, &wanted).await?;
            let said: Vec<SaidTurn> = said.into_iter().filter(|turn| taken.insert(turn.node)).collect();
            if said.is_empty() {
                continue;
            }
            let times: Vec<UnixMs> = said.iter().map(|turn| turn.at).collect();
            let spans = tiles(leaf.span, &times);
            let own: Vec<f64> =
                said.iter().map(|turn| self.scores.get(&turn.node).copied().unwrap_or(0.0)).collect();
            let beside = |at: Option<usize>| at.and_then(|at| own.get(at)).copied().unwrap_or(0.0) * BESIDE;
            let mut turns =
                LeafTurns { of: leaf.node, items: Vec::new(), lines: Vec::new(), scores: Vec::new() };
            for (at, (turn, span)) in said.into_iter().zip(spans).enumerate() {
                let line = CoverLine { key: minute_key(turn.at), summary: Some(turn.text) };
                let cost = line_cost(&line, 0, charge);
                turns.items.push(CoverItem {
                    id: turn.node,
                    span,
                    cost,
                    exclusion: None,
                    children: Vec::new(),
                });
                turns.lines.push((turn.node, line));
                let score = own[at].max(beside(at.checked_sub(1))).max(beside(Some(at + 1)));
                if score > 0.0 {
                    turns.scores.push((turn.node, score));
                }
            }
            found.push(turns);
        }
        Ok(found)
    }
}

/// The chunks that name hits as sources, each with all that it names.
async fn leaves_of(
    store: &dyn Graph,
    scope: &PastScope,
    leaves: &[LeafPlace],
    scores: &HashMap<NodeId, f64>,
) -> Result<Vec<(LeafPlace, Vec<NodeId>)>, PastError> {
    let mut nodes: Vec<NodeId> = scores.keys().copied().collect();
    nodes.sort_unstable();
    let read: Vec<_> = store.nodes(&nodes).await?.into_iter().flatten().collect();
    let decoded = decode_whole(store, &read).await?;
    let mut hits = Vec::with_capacity(read.len());
    for (node, decoded) in read.iter().zip(&decoded) {
        let score = scores.get(&node.id).copied().unwrap_or(0.0);
        hits.extend(time_of(&decoded.entry, node.record.timestamp).map(|at| (score, at)));
    }
    let possible = leaves_at(leaves, hits);
    let ids: Vec<NodeId> = possible.iter().map(|leaf| leaf.node).collect();
    let mut chunks = read_chunks_by_node(store, scope, &ids).await?;
    let mut found = Vec::new();
    for leaf in possible {
        let Some(chunk) = chunks.remove(&leaf.node) else { continue };
        let sources: Vec<NodeId> = chunk.sources.iter().map(|source| source.node).collect();
        if sources.iter().any(|node| scores.contains_key(node)) {
            found.push((leaf, sources));
        }
    }
    Ok(found)
}

/// The chunks at the time of hits, by time: those of the best hits, where they are many. A hit is its score and its time.
fn leaves_at(leaves: &[LeafPlace], mut hits: Vec<(f64, UnixMs)>) -> Vec<LeafPlace> {
    hits.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let mut places = BTreeSet::new();
    for (_, at) in hits {
        for (place, _) in leaves.iter().enumerate().filter(|(_, leaf)| leaf.span.contains(at)) {
            if places.len() < LEAVES {
                places.insert(place);
            }
        }
    }
    places.into_iter().filter_map(|place| leaves.get(place)).copied().collect()
}

struct SaidTurn {
    node: NodeId,
    at: UnixMs,
    text: String,
}

/// What people and models said in these nodes, in their order.
async fn said_in(
    store: &dyn Graph,
    nodes: &[NodeId],
    wanted: &BTreeSet<String>,
) -> Result<Vec<SaidTurn>, PastError> {
    let hidden = store.hidden();
    let (mut said, mut last) = (Vec::new(), 0);
    for page in nodes.chunks(PAGE) {
        let read: Vec<_> = store.nodes(page).await?.into_iter().flatten().collect();
        let decoded = decode_nodes(store, &read).await?;
        for (node, decoded) in read.iter().zip(decoded) {
            last = time_of(&decoded.entry, node.record.timestamp).unwrap_or(last);
            if hidden.hides(&node.id) {
                continue;
            }
            let Some((source, _)) = source_of(&decoded, None) else { continue };
            let mark = match source.speaker {
                SourceSpeaker::Person => "> ",
                SourceSpeaker::Model => "- ",
                SourceSpeaker::Tool => continue,
            };
            let images = images_of(&decoded);
            if source.text.trim().is_empty() && images == 0 {
                continue;
            }
            let images = match images {
                0 => String::new(),
                1 => " (an image)".to_owned(),
                count => format!(" ({count} images)"),
            };
            let text = format!("{mark}{}{images}", part_about(source.text.trim(), wanted));
            said.push(SaidTurn { node: node.id, at: last, text });
        }
    }
    Ok(said)
}

/// Images that are not served with the words.
fn images_of(decoded: &DecodedEntry) -> usize {
    let blocks = match &decoded.entry {
        Entry::Message(Message::User(said)) => match &said.content {
            Body::Blocks(blocks) => blocks.as_slice(),
            Body::Text(_) => &[],
        },
        Entry::Message(Message::Assistant(answer)) => answer.content.as_slice(),
        _ => &[],
    };
    blocks.iter().filter(|block| matches!(block, Content::Image(_))).count()
}

/// The whole of a text, or the part of a long one that has most of the words.
pub(crate) fn part_about(text: &str, wanted: &BTreeSet<String>) -> String {
    if text.len() <= TURN {
        return text.to_owned();
    }
    let starts = (0..text.len().min(LOOKED_AT)).step_by(STEP).map(|at| text.floor_char_boundary(at));
    let end_of = |start: usize| text.floor_char_boundary(start + TURN);
    let count = |start: usize| stems(&text[start..end_of(start)]).intersection(wanted).count();
    // The first of those that have as many.
    let (start, _) = starts.fold((0, 0), |(start, most), next| match count(next) {
        count if count > most => (next, count),
        _ => (start, most),
    });
    let end = end_of(start);
    let before = if start > 0 { "…" } else { "" };
    let after = if end < text.len() { "…" } else { "" };
    format!("{before}{}{after}", text[start..end].trim())
}

/// From each time to the next one, so that together they are the whole. In their order, also where a clock stood still.
pub(crate) fn tiles(whole: TimeRange, times: &[UnixMs]) -> Vec<Span> {
    let end = whole.end() - 1;
    let mut starts = Vec::with_capacity(times.len());
    let mut next = whole.start();
    for (at, time) in times.iter().enumerate() {
        let start = if at == 0 { whole.start() } else { (*time).max(next).min(end) };
        starts.push(start);
        next = start + 1;
    }
    let ends = starts.iter().skip(1).map(|next| next - 1).chain([end]);
    starts.iter().zip(ends).map(|(start, end)| Span { start: *start, end: end.max(*start) }).collect()
}

/// The minute of a turn, as a range.
pub(crate) fn minute_key(at: UnixMs) -> String {
    Timestamp::from_millisecond(at)
        .map_or_else(|_| String::new(), |at| at.strftime("%Y-%m-%dT%H:%MZ").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_of_a_chunk_are_all_of_its_time() {
        let leaf = TimeRange::new(100, 200).unwrap();
        let spans = tiles(leaf, &[120, 120, 110, 150]);
        let ends: Vec<(i64, i64)> = spans.iter().map(|span| (span.start, span.end)).collect();
        assert_eq!(ends, [(100, 119), (120, 120), (121, 149), (150, 199)]);
    }

    #[test]
    fn leaves_of_the_best_hits_are_looked_at() {
        let count = LEAVES + 10;
        let leaf = |at: i64| LeafPlace {
            node: NodeId([0; 32]),
            span: TimeRange::new(10 * at, 10 * at + 10).unwrap(),
        };
        let leaves: Vec<LeafPlace> = (1..=count as i64).map(leaf).collect();
        let found = leaves_at(&leaves, (1..=count as i64).map(|at| (at as f64, 10 * at)).collect());
        assert_eq!(found, leaves[10..]);
    }

    #[test]
    fn part_of_a_long_turn_has_the_words() {
        let text =
            format!("{}The port is 7411 on the heron host. {}", "word ".repeat(900), "more ".repeat(900));
        let found = part_about(&text, &stems("heron port"));
        assert!(found.contains("port is 7411 on the heron host"), "{found}");
        assert!(found.starts_with('…') && found.ends_with('…') && found.len() < TURN + 10, "{found}");
        assert_eq!(part_about("short", &stems("heron")), "short");
    }
}
