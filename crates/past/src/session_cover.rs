//! What leaves the context of a session, as summaries of its stretches: without a model, and nothing of it is stored here.

use std::collections::HashMap;

use quipu_dag::sha256;
use quipu_protocol::{AuthorClass, NodeId};
use quipu_store::{Graph, SessionRow, StoreError, decode_nodes};
use quipu_transcript::ToldPart;

use crate::cover::line_text;
use crate::cover::{
    Charge, CoverAsk, CoverItem, CoverLine, Forest, RelevanceIndex, Span, frame_cost, line_cost, render,
};
use crate::segments::{importer_of, segments_of};
use crate::source::{SourceText, source_of};
use crate::summary::{leaf_lines, parent_lines};
use crate::tree::{TreeItem, groups};
use crate::{ChildSummary, ExtractiveSummary, PastError, Segment, Summariser as _, TimeRange, WorkId};

/// Nodes that are read at once.
const PAGE: usize = 512;
/// A time at which no conversation is under way any more.
const LONG_AFTER: i64 = i64::MAX;

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
    pub told: Vec<ToldPart>,
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

/// A stretch, or several of them together.
struct Stretch {
    span: TimeRange,
    work: WorkId,
    summary: String,
    children: Vec<usize>,
    /// The node that each line of the summary is of.
    told: Vec<NodeId>,
}

/// Summaries of all that a session says from its base to its head, within a budget: coarse where there is little room. `about` draws
/// the room to what has its words.
///
/// # Errors
/// Where a part of it would be in none of them, and where it cannot be read.
pub async fn cover_session(
    store: &dyn Graph,
    row: &SessionRow,
    budget: u64,
    charge: Charge,
    about: Option<&str>,
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
    for segment in &found.segments {
        stretches.push(stretch_of(store, row, segment).await?);
    }
    let leaves = stretches.len();
    if leaves == 0 {
        return Err(SessionCoverError::Nothing);
    }
    grow(&mut stretches);
    let lines: Vec<CoverLine> = stretches
        .iter()
        .map(|one| CoverLine { key: one.span.key(), summary: Some(one.summary.clone()) })
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
    let coarsest = items.last().map_or(0, |item| item.cost);
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
    if let Some(missing) = uncovered(&stretches, &members, leaves) {
        return Err(SessionCoverError::Uncovered(missing.key()));
    }
    let part = |at: &usize| {
        let (line, stretch) = (lines.get(*at)?, stretches.get(*at)?);
        let mut nodes = stretch.told.clone();
        nodes.sort_unstable();
        nodes.dedup();
        Some(ToldPart { text: line_text(line).trim_end().to_owned(), nodes })
    };
    let told = members.iter().filter_map(part).collect();
    let lines: Vec<CoverLine> = members.iter().filter_map(|at| lines.get(*at)).cloned().collect();
    let keys = lines.iter().map(|line| line.key.clone()).collect();
    let cost = cover.used.saturating_add(frame);
    Ok(SessionCover { text: render(&lines), cost, keys, nodes, class, told })
}

async fn stretch_of(
    store: &dyn Graph,
    row: &SessionRow,
    segment: &Segment,
) -> Result<Stretch, SessionCoverError> {
    let hidden = store.hidden();
    let mut said: Vec<SourceText> = Vec::with_capacity(segment.nodes.len());
    let mut said_by: Vec<NodeId> = Vec::with_capacity(segment.nodes.len());
    for page in segment.nodes.chunks(PAGE) {
        let found: Vec<_> = store.nodes(page).await?.into_iter().flatten().collect();
        let decoded = decode_nodes(store, &found).await?;
        let shown = found.iter().zip(decoded).filter(|(node, _)| !hidden.hides(&node.id));
        for (node, decoded) in shown {
            if let Some((source, _)) = source_of(&decoded, importer_of(row)) {
                said.push(source);
                said_by.push(node.id);
            }
        }
    }
    let ids: Vec<u8> = segment.nodes.iter().flat_map(|node| node.0).collect();
    let summary = ExtractiveSummary.leaf(&said);
    let told = leaf_lines(&said).into_iter().filter_map(|(_, at)| said_by.get(at)).copied().collect();
    Ok(Stretch { span: segment.span, work: WorkId(sha256(&ids)), summary, children: Vec::new(), told })
}

/// Parents above the stretches, level on level, until one stands for all.
fn grow(stretches: &mut Vec<Stretch>) {
    let mut level: Vec<usize> = (0..stretches.len()).collect();
    while level.len() > 1 {
        let item =
            |at: &usize| stretches.get(*at).map(|one| TreeItem { span: one.span, work: one.work, at: *at });
        let mut items: Vec<TreeItem> = level.iter().filter_map(item).collect();
        items.sort_unstable_by_key(|item| (item.span, item.work));
        let groups = match groups(&items) {
            groups if groups.is_empty() => std::iter::once(0..items.len()).collect(),
            groups => groups,
        };
        let mut parents = Vec::with_capacity(groups.len());
        for group in groups {
            let Some((first, rest)) = items.get(group).and_then(<[TreeItem]>::split_first) else { continue };
            let children: Vec<usize> = std::iter::once(first).chain(rest).map(|item| item.at).collect();
            let span = rest.iter().fold(first.span, |span, item| span.union(item.span));
            let said: Vec<ChildSummary> = children
                .iter()
                .filter_map(|at| stretches.get(*at))
                .map(|one| ChildSummary { span: one.span, summary: one.summary.clone() })
                .collect();
            // A parent is another thing than an only child.
            let mut ids = vec![1];
            ids.extend(children.iter().filter_map(|at| stretches.get(*at)).flat_map(|one| one.work.0));
            let summary = ExtractiveSummary.parent(&said);
            let of = |(_, (child, line)): (String, (usize, usize))| {
                stretches.get(*children.get(child)?)?.told.get(line).copied()
            };
            let told = parent_lines(&said).into_iter().filter_map(of).collect();
            parents.push(stretches.len());
            stretches.push(Stretch { span, work: WorkId(sha256(&ids)), summary, children, told });
        }
        level = parents;
    }
}

/// The first stretch that no member stands for.
fn uncovered(stretches: &[Stretch], members: &[usize], leaves: usize) -> Option<TimeRange> {
    let mut stands = vec![false; stretches.len()];
    let mut open = members.to_vec();
    while let Some(at) = open.pop() {
        if let (Some(flag), Some(one)) = (stands.get_mut(at), stretches.get(at))
            && !std::mem::replace(flag, true)
        {
            open.extend(&one.children);
        }
    }
    let missing = stands.iter().zip(stretches).take(leaves).find(|(stands, _)| !**stands);
    missing.map(|(_, one)| one.span)
}
