//! What a past is to have, and what of it is not there yet: one plan, for who wants to know and for who makes it.

use std::collections::{HashMap, HashSet};

use quipu_protocol::{AuthorClass, NodeId, SessionId, UnixMs};
use quipu_store::Graph;
use serde::Serialize;

use crate::chunk::worse;
use crate::overlap::OverlapIndex;
use crate::record::read_chunks;
use crate::segments::segments_around;
use crate::tree::{TreeItem, groups};
use crate::work::{method_bytes, work_id};
use crate::{
    ChunkAuthor, ChunkEntry, PastError, PastId, PastIndex, PastScope, Segment, SummaryMethod, TimeRange,
    WorkId,
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
    /// A person took it back: it is not made again.
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
    pub(crate) sessions: usize,
    pub(crate) open: usize,
    pub(crate) untimed: usize,
}

/// What a build has to do, or did: the same numbers before and after. It asks no model.
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
        let index = PastIndex::read(store, scope).await?;
        let taken = taken_back(store, scope, &index).await?;
        let mut plan = Self { index, ..Self::default() };
        let mut segments = Vec::new();
        for row in scope.sessions(store).await? {
            let found = segments_around(store, &row, now, &taken).await?;
            plan.sessions += 1;
            plan.open += found.open;
            plan.untimed += found.untimed;
            segments.extend(found.segments);
        }
        plan.lay_out(segments, method, &taken);
        plan.compare();
        Ok(plan)
    }

    /// Leaves by time, then level on level of parents, until fewer than four have none.
    fn lay_out(&mut self, segments: Vec<Segment>, method: &SummaryMethod, taken: &TakenNodes) {
        let method = method_bytes(method);
        let by_work = works(&self.index);
        let mut items = Vec::with_capacity(segments.len());
        let mut seen = HashSet::with_capacity(segments.len());
        for segment in segments {
            let Segment { session, nodes, span, bytes, class } = segment;
            let mut sorted = nodes.clone();
            sorted.sort_unstable();
            let work = work_id(&method, 0, sorted.iter().map(|node| &node.0));
            // The same nodes twice, by two rows of one session.
            if !seen.insert(work) {
                continue;
            }
            let is_taken = nodes.iter().all(|node| taken.contains_key(node));
            let place = ChunkPlace { work, level: 0, span, class, session: Some(&session) };
            let progress = match is_taken {
                true => PlannedProgress::Retracted,
                false => progress_of(&self.index, &by_work, &place),
            };
            let of = PlannedSources::Nodes { session, nodes, bytes };
            let at = self.chunks.len();
            let planned = PlannedChunk { work, level: 0, span, class, of, progress, supersedes: Vec::new() };
            self.chunks.push(planned);
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
                let work = work_id(&method, level, children.clone().map(|item| &item.work.0));
                let class = children.clone().fold(AuthorClass::Owner, |class, item| {
                    self.chunks.get(item.at).map_or(class, |chunk| worse(class, chunk.class))
                });
                let of = PlannedSources::Children(children.map(|item| item.at).collect());
                let place = ChunkPlace { work, level, span, class, session: None };
                let progress = progress_of(&self.index, &by_work, &place);
                let at = self.chunks.len();
                let planned = PlannedChunk { work, level, span, class, of, progress, supersedes: Vec::new() };
                self.chunks.push(planned);
                if progress != PlannedProgress::Retracted {
                    parents.push(TreeItem { span, work, at });
                }
            }
            items = parents;
            level += 1;
        }
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
        let mut places: HashMap<(u32, Option<&SessionId>), Vec<(TimeRange, usize)>> = HashMap::new();
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
        let mut size = BuildSize {
            sessions: self.sessions,
            superseded: self.orphans.len(),
            open: self.open,
            untimed: self.untimed,
            ..BuildSize::default()
        };
        for chunk in &self.chunks {
            size.superseded += chunk.supersedes.len();
            let nodes = match &chunk.of {
                PlannedSources::Nodes { nodes, .. } => nodes.len(),
                PlannedSources::Children(_) => 0,
            };
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

/// Nodes of leaves that a person took back, each with its leaf.
pub(crate) type TakenNodes = HashMap<NodeId, PastId>;

/// What a person took back stays so when its session continues, and by whichever method it would be made.
async fn taken_back(
    store: &dyn Graph,
    scope: &PastScope,
    index: &PastIndex,
) -> Result<TakenNodes, PastError> {
    let is_leaf = |chunk: &&ChunkEntry| chunk.author == ChunkAuthor::Build && chunk.sources > 0;
    let leaves = index.chunks().filter(is_leaf).filter(|chunk| chunk.is_taken_back());
    let leaves: Vec<NodeId> = leaves.map(|chunk| chunk.node).collect();
    let mut taken = TakenNodes::new();
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
}

impl ChunkPlace<'_> {
    fn is_of(&self, chunk: &ChunkEntry) -> bool {
        (chunk.level, chunk.span, chunk.class) == (self.level, self.span, self.class)
            && chunk.session.as_ref() == self.session
    }
}

fn progress_of(
    index: &PastIndex,
    works: &HashMap<WorkId, Vec<PastId>>,
    place: &ChunkPlace<'_>,
) -> PlannedProgress {
    let made = works.get(&place.work).into_iter().flatten().filter_map(|id| index.get(id));
    let made: Vec<&ChunkEntry> = made.filter(|chunk| place.is_of(chunk)).collect();
    if made.iter().any(|chunk| chunk.is_taken_back()) {
        return PlannedProgress::Retracted;
    }
    let live = made.iter().find(|chunk| chunk.is_live());
    match (live, made.first()) {
        (Some(chunk), _) => PlannedProgress::Standing(chunk.id),
        (None, Some(chunk)) => PlannedProgress::Former(chunk.id),
        (None, None) => PlannedProgress::Missing,
    }
}
