//! What a past is to have, and what of it is not there yet: one plan, for who wants to know and for who makes it.

use std::collections::{HashMap, HashSet};

use quipu_protocol::{AuthorClass, NodeId, SessionId, UnixMs};
use quipu_store::Graph;
use serde::Serialize;

use crate::chunk::worse;
use crate::model::{CallSize, first_line, leaf_size, most_bytes, parent_size};
use crate::overlap::OverlapIndex;
use crate::record::read_chunks;
use crate::segments::{NodeMeasure, measured_segments, segment};
use crate::tree::{TreeItem, groups};
use crate::work::{leaf_work, work_id};
use crate::{
    ChunkAuthor, ChunkEntry, PastError, PastId, PastIndex, PastScope, Segment, SummaryMethod, SummaryModel,
    TimeRange, WorkId,
};

/// Leaves that are read at once.
const LEAVES: usize = 512;

/// A chunk that the past is to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlannedChunk {
    pub(crate) work: WorkId,
    pub(crate) level: u32,
    pub(crate) span: TimeRange,
    pub(crate) class: AuthorClass,
    pub(crate) of: PlannedSources,
    pub(crate) progress: PlannedProgress,
    /// Chunks whose place it takes.
    pub(crate) supersedes: Vec<PastId>,
    /// The call that it takes, where a model is asked.
    pub(crate) call: Option<CallSize>,
    /// Whether a model answered that call already.
    pub(crate) recorded: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PlannedSources {
    Nodes {
        session: SessionId,
        nodes: Vec<NodeId>,
        bytes: usize,
    },
    /// Places in the plan.
    Children(Vec<usize>),
}

/// How far a chunk of the plan is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlannedProgress {
    /// It is there.
    Standing(PastId),
    /// It was superseded, and is wanted again: its summary is there.
    Former(PastId),
    /// A person took it back, or had it forgotten: it is not made again.
    Retracted,
    /// It is to be made.
    Missing,
}

/// The chunks that a past is to have, the finest first, and what becomes of those that it has.
#[derive(Debug, Default)]
pub struct PastPlan {
    pub(crate) chunks: Vec<PlannedChunk>,
    /// Chunks that are not wanted any more, and that no new one stands for.
    pub(crate) orphans: Vec<PastId>,
    pub(crate) index: PastIndex,
    /// What was forgotten when it was made: [`HiddenSnapshot::version`](quipu_store::HiddenSnapshot::version).
    pub(crate) hidden: u64,
    pub(crate) sessions: usize,
    pub(crate) open: usize,
    pub(crate) untimed: usize,
}

/// What a build has to do, or did: the same numbers before and after.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BuildSize {
    /// Sessions that were read.
    pub sessions: usize,
    /// Nodes that chunks sum up themselves, those that are there included.
    pub nodes: usize,
    /// Chunks of nodes to make.
    pub leaves: usize,
    /// Chunks of chunks to make.
    pub parents: usize,
    /// Chunks to put back as they were.
    pub restored: usize,
    /// Chunks that are there.
    pub standing: usize,
    /// Chunks whose place others take, or whose nodes are not there any more.
    pub superseded: usize,
    /// Chunks that a person took back.
    pub retracted: usize,
    /// Bytes of nodes to sum up.
    pub bytes: u64,
    /// Nodes of conversations that may still go on.
    pub open: usize,
    /// Nodes of which nobody knows when they were said.
    pub untimed: usize,
    /// Calls of a model. So many are made, unless one has to be made again.
    pub calls: usize,
    /// Tokens that are sent, of [`TOKEN_BYTES`](crate::TOKEN_BYTES) each.
    pub input_tokens: u64,
    /// Tokens of answers. In a plan each answer has as many as it may have.
    pub output_tokens: u64,
    /// Answers to earlier calls that no chunk has yet: they are paid for.
    pub recorded: usize,
}

impl PastPlan {
    /// Plans the past of a scope as its sessions stand at `now`, in milliseconds since the epoch. Reads them all; writes nothing.
    ///
    /// # Errors
    /// What the store says.
    pub async fn make(
        store: &dyn Graph,
        scope: &PastScope,
        method: &SummaryMethod,
        now: UnixMs,
    ) -> Result<Self, PastError> {
        let hidden = store.hidden().version();
        let index = PastIndex::read(store, scope).await?;
        let taken = taken_back(store, scope, &index).await?;
        let mut plan = Self { index, hidden, ..Self::default() };
        let for_model = matches!(method, SummaryMethod::Model(_));
        let mut segments = Vec::new();
        let mut standing = Vec::new();
        for row in scope.sessions(store).await? {
            let found = measured_segments(store, &row, now, for_model, &taken).await?;
            plan.sessions += 1;
            plan.open += found.open;
            plan.untimed += found.untimed;
            segments.extend(found.segments);
            if let Some((kept, id)) = plan.kept(&row.id, &found.tail) {
                plan.open -= kept.nodes.len();
                standing.push((kept, id));
            }
        }
        plan.lay_out(segments, standing, method, &taken);
        plan.compare();
        Ok(plan)
    }

    /// The same for summaries by a model. Looks for answers that were paid for already, too.
    ///
    /// # Errors
    /// What the store says.
    pub async fn make_for(
        store: &dyn Graph,
        scope: &PastScope,
        model: &dyn SummaryModel,
        now: UnixMs,
    ) -> Result<Self, PastError> {
        let mut plan = Self::make(store, scope, &crate::model_method(model), now).await?;
        for chunk in plan.chunks.iter_mut().filter(|chunk| chunk.progress == PlannedProgress::Missing) {
            if chunk.call.is_some() && model.recorded(&first_line(chunk.work, chunk.level)).await.is_some() {
                (chunk.call, chunk.recorded) = (None, true);
            }
        }
        Ok(plan)
    }

    /// What a build asks a model, one call after the other.
    pub fn calls(&self) -> impl Iterator<Item = CallSize> {
        self.chunks.iter().filter_map(|chunk| chunk.call)
    }

    /// The chunk that a segment has which was closed, and is open again: it stays until the segment is closed.
    fn kept(&self, session: &SessionId, tail: &[NodeMeasure]) -> Option<(Segment, PastId)> {
        if tail.is_empty() {
            return None;
        }
        let leaves =
            self.index.live().filter(|leaf| leaf.level == 0 && leaf.session.as_ref() == Some(session));
        let of_tail = leaves.filter_map(|leaf| {
            let kept = segment(session, tail.get(..leaf.sources)?)?;
            let is_it = kept.span == leaf.span && leaf.work == Some(leaf_work(&kept.nodes));
            is_it.then_some((kept, leaf.id))
        });
        of_tail.max_by_key(|(kept, _)| kept.nodes.len())
    }

    /// Leaves by time, then level on level of parents, until fewer than four have none.
    fn lay_out(
        &mut self,
        segments: Vec<Segment>,
        standing: Vec<(Segment, PastId)>,
        method: &SummaryMethod,
        taken: &TakenNodes,
    ) {
        let asks = matches!(method, SummaryMethod::Model(_));
        let by_work = works(&self.index);
        let mut items = Vec::with_capacity(segments.len());
        let mut seen = HashSet::with_capacity(segments.len());
        let closed = segments.into_iter().map(|segment| (segment, None));
        for (segment, stands) in closed.chain(standing.into_iter().map(|(kept, id)| (kept, Some(id)))) {
            let Segment { session, nodes, span, bytes, class, said } = segment;
            let work = leaf_work(&nodes);
            // The same nodes twice, by two rows of one session.
            if !seen.insert(work) {
                continue;
            }
            let is_taken = nodes.iter().all(|node| taken.contains_key(node));
            let place =
                ChunkPlace { work, level: 0, span, class, session: Some(&session), children: Vec::new() };
            let progress = match stands {
                _ if is_taken => PlannedProgress::Retracted,
                Some(id) => PlannedProgress::Standing(id),
                None => progress_of(&self.index, &by_work, &place, method),
            };
            let of = PlannedSources::Nodes { session, nodes, bytes };
            let at = self.chunks.len();
            let asked = asks && progress == PlannedProgress::Missing;
            let call = (asked && said.iter().any(|said| *said > 0)).then(|| leaf_size(work, &said));
            let supersedes = Vec::new();
            let chunk =
                PlannedChunk { work, level: 0, span, class, of, progress, supersedes, call, recorded: false };
            self.chunks.push(chunk);
            if progress != PlannedProgress::Retracted {
                items.push(TreeItem { span, work, at });
            }
        }
        let mut level = 1;
        loop {
            items.sort_unstable_by_key(|item| (item.span, item.work));
            let groups = groups(&items);
            if groups.is_empty() {
                return;
            }
            let mut parents = Vec::with_capacity(groups.len());
            for group in groups {
                let Some((first, rest)) = items.get(group).and_then(<[TreeItem]>::split_first) else {
                    continue;
                };
                let children = std::iter::once(first).chain(rest);
                let span = rest.iter().fold(first.span, |span, item| span.union(item.span));
                let work = work_id(level, children.clone().map(|item| &item.work.0));
                let class = children.clone().fold(AuthorClass::Owner, |class, item| {
                    self.chunks.get(item.at).map_or(class, |chunk| worse(class, chunk.class))
                });
                let children: Vec<usize> = children.map(|item| item.at).collect();
                let there = children.iter().filter_map(|at| self.chunks[*at].there()).collect();
                let place = ChunkPlace { work, level, span, class, session: None, children: there };
                let mut progress = progress_of(&self.index, &by_work, &place, method);
                // It names children that others take the place of.
                let is_new = |at: &usize| self.chunks[*at].progress == PlannedProgress::Missing;
                if progress != PlannedProgress::Retracted && children.iter().any(is_new) {
                    progress = PlannedProgress::Missing;
                }
                let asked = asks && progress == PlannedProgress::Missing;
                let call = asked.then(|| {
                    let said = children.iter().map(|at| self.summary_size(&self.chunks[*at]));
                    parent_size(work, level, said)
                });
                let (at, of) = (self.chunks.len(), PlannedSources::Children(children));
                let supersedes = Vec::new();
                let recorded = false;
                let chunk =
                    PlannedChunk { work, level, span, class, of, progress, supersedes, call, recorded };
                self.chunks.push(chunk);
                if progress != PlannedProgress::Retracted {
                    parents.push(TreeItem { span, work, at });
                }
            }
            items = parents;
            level += 1;
        }
    }

    /// The key of a child and the bytes of its summary; of one that a model is still to make, the most that it may have.
    fn summary_size(&self, child: &PlannedChunk) -> (String, usize) {
        let known = match child.progress {
            PlannedProgress::Standing(id) | PlannedProgress::Former(id) => self.index.get(&id),
            PlannedProgress::Retracted | PlannedProgress::Missing => None,
        };
        (child.span.key(), known.map_or_else(|| most_bytes(child.level), |known| known.bytes))
    }

    /// What the compiler made before and does not want any more gives its place to a chunk that is made now.
    fn compare(&mut self) {
        let wanted: HashSet<PastId> = self
            .chunks
            .iter()
            .filter_map(|chunk| match chunk.progress {
                PlannedProgress::Standing(id) | PlannedProgress::Former(id) => Some(id),
                PlannedProgress::Retracted | PlannedProgress::Missing => None,
            })
            .collect();
        // New chunks by what can take the place of what: leaves of a session, parents of a level.
        let mut places: HashMap<_, Vec<(TimeRange, usize)>> = HashMap::new();
        for (at, chunk) in self.chunks.iter().enumerate() {
            if chunk.is_pending() {
                let session = match &chunk.of {
                    PlannedSources::Nodes { session, .. } => Some(session),
                    PlannedSources::Children(_) => None,
                };
                places.entry((chunk.level, session)).or_default().push((chunk.span, at));
            }
        }
        let places: HashMap<_, OverlapIndex<usize>> =
            places.into_iter().map(|(place, new)| (place, OverlapIndex::new(new))).collect();
        let mut superseded: Vec<(usize, PastId)> = Vec::new();
        for old in self.index.live().filter(|old| old.work.is_some() && !wanted.contains(&old.id)) {
            let new = places.get(&(old.level, old.session.as_ref()));
            match new.and_then(|new| new.least(old.span)) {
                Some(at) => superseded.push((at, old.id)),
                None => self.orphans.push(old.id),
            }
        }
        for (at, old) in superseded {
            self.chunks[at].supersedes.push(old);
        }
    }

    /// What a build of this plan does.
    #[must_use]
    pub fn size(&self) -> BuildSize {
        self.size_of(0..self.chunks.len())
    }

    /// What a build has done that came so far in the plan.
    pub(crate) fn size_of(&self, made: std::ops::Range<usize>) -> BuildSize {
        let is_whole = made == (0..self.chunks.len());
        let mut size = BuildSize {
            sessions: self.sessions,
            superseded: if is_whole { self.orphans.len() } else { 0 },
            open: self.open,
            untimed: self.untimed,
            ..BuildSize::default()
        };
        for (at, chunk) in self.chunks.iter().enumerate() {
            let nodes = match &chunk.of {
                PlannedSources::Nodes { nodes, .. } => nodes.len(),
                PlannedSources::Children(_) => 0,
            };
            if chunk.is_pending() && !made.contains(&at) {
                continue;
            }
            size.superseded += chunk.supersedes.len();
            if let Some(call) = chunk.call {
                size.calls += 1;
                size.input_tokens += call.input;
                size.output_tokens += call.output;
            }
            match (chunk.progress, &chunk.of) {
                (PlannedProgress::Retracted, _) => size.retracted += 1,
                (PlannedProgress::Standing(_), _) => size.standing += 1,
                (PlannedProgress::Former(_), _) => size.restored += 1,
                (PlannedProgress::Missing, PlannedSources::Children(_)) => size.parents += 1,
                (PlannedProgress::Missing, PlannedSources::Nodes { bytes, .. }) => {
                    size.leaves += 1;
                    size.bytes += *bytes as u64;
                }
            }
            size.recorded += usize::from(chunk.recorded);
            size.nodes += nodes;
        }
        size
    }

    /// The chunks that are there already, and what is wrong with some of them.
    #[must_use]
    pub const fn index(&self) -> &PastIndex {
        &self.index
    }
}

impl PlannedChunk {
    /// The chunk that is there already.
    const fn there(&self) -> Option<PastId> {
        match self.progress {
            PlannedProgress::Standing(id) | PlannedProgress::Former(id) => Some(id),
            PlannedProgress::Retracted | PlannedProgress::Missing => None,
        }
    }

    /// Whether a build makes it or puts it back.
    pub(crate) const fn is_pending(&self) -> bool {
        matches!(self.progress, PlannedProgress::Missing | PlannedProgress::Former(_))
    }
}

/// Chunks that the compiler made, by what they were made of.
fn works(index: &PastIndex) -> HashMap<WorkId, Vec<PastId>> {
    let mut works: HashMap<WorkId, Vec<PastId>> = HashMap::new();
    for chunk in index.chunks() {
        if let Some(work) = chunk.work {
            works.entry(work).or_default().push(chunk.id);
        }
    }
    works
}

/// Nodes of leaves that a person took back or had forgotten, each with its leaf.
pub(crate) type TakenNodes = HashMap<NodeId, PastId>;

/// What a person took back or had forgotten stays so when its session continues, and by whichever method it would be made.
async fn taken_back(
    store: &dyn Graph,
    scope: &PastScope,
    index: &PastIndex,
) -> Result<TakenNodes, PastError> {
    let is_leaf = |chunk: &&ChunkEntry| chunk.author == ChunkAuthor::Build && chunk.sources > 0;
    let leaves = index.chunks().filter(is_leaf).filter(|chunk| chunk.is_taken_back());
    let leaves: Vec<NodeId> = leaves.map(|chunk| chunk.node).collect();
    let forgotten = index.forgotten_sources.iter();
    let mut taken: TakenNodes =
        forgotten.flat_map(|(id, nodes)| nodes.iter().map(|node| (*node, *id))).collect();
    for some in leaves.chunks(LEAVES) {
        for leaf in read_chunks(store, scope, some).await? {
            let id = leaf.id();
            taken.extend(leaf.sources.iter().map(|source| (source.node, id)));
        }
    }
    Ok(taken)
}

/// What a chunk that a build made is known by, beside its words.
struct ChunkPlace<'a> {
    work: WorkId,
    level: u32,
    span: TimeRange,
    class: AuthorClass,
    session: Option<&'a SessionId>,
    /// Chunks that are there already of those that it is made of.
    children: Vec<PastId>,
}

impl ChunkPlace<'_> {
    /// Whether it is made of those chunks, and not of some in whose place others stand.
    fn has_children(&self, chunk: &ChunkEntry) -> bool {
        let named: HashSet<&PastId> = chunk.children.iter().chain(&chunk.lost).collect();
        named == self.children.iter().collect()
    }

    fn is_of(&self, chunk: &ChunkEntry) -> bool {
        (chunk.level, chunk.span, chunk.class) == (self.level, self.span, self.class)
            && chunk.session.as_ref() == self.session
    }
}

fn progress_of(
    index: &PastIndex,
    works: &HashMap<WorkId, Vec<PastId>>,
    place: &ChunkPlace<'_>,
    wanted: &SummaryMethod,
) -> PlannedProgress {
    let made = works.get(&place.work).into_iter().flatten().filter_map(|id| index.get(id));
    let made: Vec<&ChunkEntry> = made.filter(|chunk| place.is_of(chunk)).collect();
    if made.iter().any(|chunk| chunk.is_taken_back()) {
        return PlannedProgress::Retracted;
    }
    let same = made.iter().filter(|chunk| place.has_children(chunk));
    let serving = same.filter_map(|chunk| Some((chunk.is_live(), chunk.method.serves(wanted)?, chunk)));
    // The first of the best.
    match serving.rev().max_by_key(|(is_live, rank, _)| (*is_live, *rank)) {
        Some((true, _, chunk)) => PlannedProgress::Standing(chunk.id),
        _ if index.is_forgotten(&place.work) => PlannedProgress::Retracted,
        Some((false, _, chunk)) => PlannedProgress::Former(chunk.id),
        None => PlannedProgress::Missing,
    }
}
