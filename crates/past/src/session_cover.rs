//! What leaves the context of a session, as summaries of its stretches: without a model, and nothing of it is stored here.

use std::collections::{BTreeSet, HashMap, HashSet};

use quipu_dag::sha256;
use quipu_protocol::{AuthorClass, NodeId, UnixMs};
use quipu_store::{Graph, SessionRow, StoreError, decode_nodes};
use quipu_transcript::SummaryPart;

use crate::cover::line_text;
use crate::cover::{
    Charge, CoverAsk, CoverItem, CoverLine, Forest, RelevanceIndex, Span, frame_cost, line_cost, render,
    stems,
};
use crate::recalled::{minute_key, part_about, tiles};
use crate::segments::{importer_of, segments_of};
use crate::source::{SourceSpeaker, SourceText, source_of, time_of};
use crate::summary::{joined, leaf_lines, parent_lines, part_lines};
use crate::{ChildSummary, PastError, Segment, TimeRange, WorkId};

/// Nodes that are read at once.
const PAGE: usize = 512;
/// A time at which no conversation is under way any more.
const LONG_AFTER: i64 = i64::MAX;
/// Children of a summary at most.
const CHILDREN: usize = 4;
/// Turns that stand as they were said at most, and how much of the best one's relevance they have at least.
const HITS: usize = 16;
const HIT: f64 = 0.3;

/// A stretch of a session as text.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionCover {
    /// The lines, oldest first, each behind the key of its range.
    pub text: String,
    /// What it costs.
    pub cost: u64,
    /// The keys of the lines.
    pub keys: Vec<String>,
    /// How many nodes it stands for.
    pub nodes: usize,
    /// The class of the least trusted of them.
    pub class: AuthorClass,
    /// The lines, and the nodes whose words each has.
    pub parts: Vec<SummaryPart>,
}

/// Why a stretch of a session cannot be covered.
#[derive(Debug, thiserror::Error)]
pub enum SessionCoverError {
    /// Of some nodes nobody knows when they were said.
    #[error("{0} nodes have no known time")]
    Untimed(usize),
    /// The model was shown more than sentences of this can say.
    #[error(
        "{0} messages have no words to copy: of programs, attached alone, or a summary of what is not here"
    )]
    Unsaid(usize),
    /// Nothing in it says anything.
    #[error("there is nothing to summarize")]
    Nothing,
    /// The budget has no room for all of it.
    #[error("{room} tokens have no room for the summaries; the coarsest has {needed}")]
    NoRoom {
        /// The budget.
        room: u64,
        /// What the coarsest summary costs.
        needed: u64,
    },
    /// Something of it would be in no summary.
    #[error("nothing would stand for {0}")]
    Uncovered(String),
    /// It cannot be read.
    #[error(transparent)]
    Past(#[from] PastError),
}

impl From<StoreError> for SessionCoverError {
    fn from(error: StoreError) -> Self {
        Self::Past(error.into())
    }
}

/// A stretch, several of them together, or a part of one.
struct Stretch {
    span: TimeRange,
    /// The key of its line.
    key: String,
    work: WorkId,
    summary: String,
    children: Vec<usize>,
    /// The node that each line of the summary is of.
    told: Vec<NodeId>,
}

impl Stretch {
    fn new(span: TimeRange, work: WorkId, summary: String, children: Vec<usize>) -> Self {
        Self { span, key: span.key(), work, summary, children, told: Vec::new() }
    }
}

/// Summaries of all that a session says from its base to its head, within a budget: coarse where there is little room. `about` draws
/// the room to what has its words: turns that have the most of them stand there as they were said, between summaries of the others. The node
/// `asked`, whose words those are, is none of them.
///
/// # Errors
/// Where a part of it would be in none of them, and where it cannot be read.
pub async fn cover_session(
    store: &dyn Graph,
    row: &SessionRow,
    budget: u64,
    charge: Charge,
    (about, asked): (Option<&str>, Option<NodeId>),
) -> Result<SessionCover, SessionCoverError> {
    let found = segments_of(store, row, LONG_AFTER).await?;
    if found.untimed > 0 {
        return Err(SessionCoverError::Untimed(found.untimed));
    }
    if found.unsaid > 0 {
        return Err(SessionCoverError::Unsaid(found.unsaid));
    }
    let class =
        found.segments.iter().fold(AuthorClass::Owner, |class, one| crate::chunk::worse(class, one.class));
    let nodes = found.segments.iter().map(|segment| segment.nodes.len()).sum();
    let mut stretches = Vec::with_capacity(found.segments.len());
    let mut said = Vec::with_capacity(found.segments.len());
    let wanted = about.map(stems);
    for segment in &found.segments {
        let mut nodes = sources_of(store, row, segment).await?;
        let texts: Vec<SourceText> = nodes.iter().map(|(_, _, source)| source.clone()).collect();
        let ids: Vec<u8> = segment.nodes.iter().flat_map(|node| node.0).collect();
        let (summary, told) = told_by(leaf_lines(&texts), &nodes);
        let stretch = Stretch::new(segment.span, WorkId(sha256(&ids)), summary, Vec::new());
        stretches.push(Stretch { told, ..stretch });
        if wanted.is_some() {
            // Parts of it have only what people and models said.
            for (_, _, source) in &mut nodes {
                source.calls = Vec::new();
                if source.speaker == SourceSpeaker::Tool {
                    source.text = String::new();
                }
            }
            said.push(nodes);
        }
    }
    let leaves = stretches.len();
    if leaves == 0 {
        return Err(SessionCoverError::Nothing);
    }
    grow(&mut stretches);
    let root = stretches.len() - 1;
    if let (Some(about), Some(wanted)) = (about, &wanted) {
        split_at_hits(&mut stretches, &said, (about, asked), wanted);
    }
    let lines: Vec<CoverLine> = stretches
        .iter()
        .map(|one| CoverLine { key: one.key.clone(), summary: Some(one.summary.clone()) })
        .collect();
    let place = |work: WorkId| NodeId(work.0);
    let items = stretches.iter().zip(&lines).map(|(one, line)| CoverItem {
        id: place(one.work),
        span: Span { start: one.span.start(), end: one.span.end() - 1 },
        cost: line_cost(line, 0, charge),
        exclusion: None,
        children: one
            .children
            .iter()
            .filter_map(|at| stretches.get(*at))
            .map(|child| place(child.work))
            .collect(),
    });
    let items: Vec<CoverItem> = items.collect();
    let coarsest = items.get(root).map_or(0, |item| item.cost);
    let summaries = stretches.iter().map(|one| (place(one.work), one.summary.as_str()));
    let relevance = about.map_or_else(Vec::new, |about| RelevanceIndex::new(summaries).scores(about));
    let frame = frame_cost(charge);
    let turns = items.iter().take(leaves).flat_map(|item| [item.span.start, item.span.end]).collect();
    let ask = CoverAsk { budget: budget.saturating_sub(frame), turns, relevance, ..CoverAsk::default() };
    let cover = Forest::new(items).cover(&ask);
    if cover.members.is_empty() {
        return Err(SessionCoverError::NoRoom { room: budget, needed: coarsest.saturating_add(frame) });
    }
    let by_id: HashMap<NodeId, usize> =
        stretches.iter().enumerate().map(|(at, one)| (place(one.work), at)).collect();
    let members: Vec<usize> =
        cover.members.iter().filter_map(|member| by_id.get(&member.id)).copied().collect();
    if let Some(missing) = uncovered(&stretches, &members) {
        return Err(SessionCoverError::Uncovered(missing.key()));
    }
    let part = |at: &usize| {
        let (line, stretch) = (lines.get(*at)?, stretches.get(*at)?);
        let mut nodes = stretch.told.clone();
        nodes.sort_unstable();
        nodes.dedup();
        Some(SummaryPart { text: line_text(line).trim_end().to_owned(), nodes })
    };
    let parts = members.iter().filter_map(part).collect();
    let lines: Vec<CoverLine> = members.iter().filter_map(|at| lines.get(*at)).cloned().collect();
    let keys = lines.iter().map(|line| line.key.clone()).collect();
    let cost = cover.used.saturating_add(frame);
    Ok(SessionCover { text: render(&lines), cost, keys, nodes, class, parts })
}

/// A node with when it was said.
type SaidNode = (NodeId, UnixMs, SourceText);

async fn sources_of(
    store: &dyn Graph,
    row: &SessionRow,
    segment: &Segment,
) -> Result<Vec<SaidNode>, SessionCoverError> {
    let hidden = store.hidden();
    let mut said: Vec<SaidNode> = Vec::with_capacity(segment.nodes.len());
    let mut last = segment.span.start();
    for page in segment.nodes.chunks(PAGE) {
        let found: Vec<_> = store.nodes(page).await?.into_iter().flatten().collect();
        let decoded = decode_nodes(store, &found).await?;
        for (node, decoded) in found.iter().zip(decoded).filter(|(node, _)| !hidden.hides(&node.id)) {
            last = time_of(&decoded.entry, node.record.timestamp).unwrap_or(last);
            said.extend(source_of(&decoded, importer_of(row)).map(|(source, _)| (node.id, last, source)));
        }
    }
    Ok(said)
}

/// The lines of a summary as one text, and the node that each is of.
fn told_by(lines: Vec<(String, usize)>, nodes: &[SaidNode]) -> (String, Vec<NodeId>) {
    let told = lines.iter().filter_map(|(_, at)| nodes.get(*at)).map(|(node, _, _)| *node).collect();
    (joined(lines.into_iter().map(|(line, _)| line)), told)
}

/// Puts the turns that have most to do with a question below their stretches, each as it was said, and summaries of what stands
/// between them: together they are all of the stretch.
fn split_at_hits(
    stretches: &mut Vec<Stretch>,
    said: &[Vec<SaidNode>],
    (about, asked): (&str, Option<NodeId>),
    wanted: &BTreeSet<String>,
) {
    let spoken =
        |source: &SourceText| source.speaker != SourceSpeaker::Tool && !source.text.trim().is_empty();
    let turns = said.iter().flatten().filter(|(node, _, source)| Some(*node) != asked && spoken(source));
    let mut scores =
        RelevanceIndex::new(turns.map(|(node, _, source)| (*node, source.text.as_str()))).scores(about);
    scores.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let least = scores.first().map_or(0.0, |(_, best)| best * HIT);
    let hits: HashSet<NodeId> =
        scores.into_iter().take(HITS).filter(|(_, score)| *score >= least).map(|(node, _)| node).collect();
    for (leaf, nodes) in said.iter().enumerate() {
        let Some(span) = stretches.get(leaf).map(|one| one.span) else { continue };
        if !nodes.iter().any(|(node, _, _)| hits.contains(node)) {
            continue;
        }
        let bytes: usize = nodes.iter().map(|(_, _, source)| source.bytes()).sum();
        let parts: Vec<&[SaidNode]> = nodes
            .chunk_by(|(one, _, _), (other, _, _)| !hits.contains(one) && !hits.contains(other))
            .collect();
        let times: Vec<UnixMs> = parts.iter().filter_map(|part| part.first()).map(|(_, at, _)| *at).collect();
        let spans = tiles(span, &times);
        let mut children = Vec::with_capacity(parts.len());
        for (part, tile) in parts.into_iter().zip(spans) {
            let Some(tile) = TimeRange::new(tile.start, tile.end + 1) else { continue };
            let ids: Vec<u8> =
                std::iter::once(2).chain(part.iter().flat_map(|(node, _, _)| node.0)).collect();
            let work = WorkId(sha256(&ids));
            let piece = match part {
                [(node, at, source)] if hits.contains(node) => {
                    let mark = if source.speaker == SourceSpeaker::Person { "> " } else { "- " };
                    let summary = format!("{mark}{}", part_about(source.text.trim(), wanted));
                    let stretch = Stretch::new(tile, work, summary, Vec::new());
                    Stretch { key: minute_key(*at), told: vec![*node], ..stretch }
                }
                _ => {
                    let texts: Vec<SourceText> = part.iter().map(|(_, _, source)| source.clone()).collect();
                    let own: usize = texts.iter().map(SourceText::bytes).sum();
                    let (summary, told) = told_by(part_lines(&texts, own, bytes), part);
                    Stretch { told, ..Stretch::new(tile, work, summary, Vec::new()) }
                }
            };
            children.push(stretches.len());
            stretches.push(piece);
        }
        stretches[leaf].children = children;
    }
}

/// Parents above the stretches, level on level, until one stands for all. They have few children each: a summary gives way to all of
/// its children or to none, so that much of a budget would be left where they are many.
fn grow(stretches: &mut Vec<Stretch>) {
    let mut level: Vec<usize> = (0..stretches.len()).collect();
    while level.len() > 1 {
        level.sort_by_key(|at| stretches.get(*at).map(|one| (one.span, one.work)));
        let count = level.len().div_ceil(CHILDREN);
        let mut parents = Vec::with_capacity(count);
        for nth in 0..count {
            // As even as that goes.
            let group = nth * level.len() / count..(nth + 1) * level.len() / count;
            let children: Vec<usize> = level.get(group).unwrap_or_default().to_vec();
            let mut spans = children.iter().filter_map(|at| stretches.get(*at)).map(|one| one.span);
            let Some(first) = spans.next() else { continue };
            let span = spans.fold(first, TimeRange::union);
            let said: Vec<ChildSummary> = children
                .iter()
                .filter_map(|at| stretches.get(*at))
                .map(|one| ChildSummary { span: one.span, summary: one.summary.clone() })
                .collect();
            // A parent is another thing than an only child.
            let mut ids = vec![1];
            ids.extend(children.iter().filter_map(|at| stretches.get(*at)).flat_map(|one| one.work.0));
            let lines = parent_lines(&said);
            let summary = joined(lines.iter().map(|(line, _)| line.clone()));
            let of = |(_, (child, line)): (String, (usize, usize))| {
                stretches.get(*children.get(child)?)?.told.get(line).copied()
            };
            parents.push(stretches.len());
            let told = lines.into_iter().filter_map(of).collect();
            stretches.push(Stretch { told, ..Stretch::new(span, WorkId(sha256(&ids)), summary, children) });
        }
        level = parents;
    }
}

/// The first stretch, or part of one, that no member stands for.
fn uncovered(stretches: &[Stretch], members: &[usize]) -> Option<TimeRange> {
    let mut stands = vec![false; stretches.len()];
    let mut open = members.to_vec();
    while let Some(at) = open.pop() {
        if let (Some(flag), Some(one)) = (stands.get_mut(at), stretches.get(at))
            && !std::mem::replace(flag, true)
        {
            open.extend(&one.children);
        }
    }
    let missing = stands.iter().zip(stretches).find(|(stands, one)| !**stands && one.children.is_empty());
    missing.map(|(_, one)| one.span)
}
