//! What a past is to have, and what of it is not there yet: one plan, for who wants to know and for who makes it.

use std::collections::{HashMap, HashSet};

use quipu_dag::sha256;
use quipu_protocol::{AuthorClass, NodeId, SessionId, UnixMs};
use quipu_store::Graph;
use serde::Serialize;

use crate::chunk::worse;
use crate::segments::segments_of;
use crate::tree::{TreeItem, groups};
use crate::{
    ChunkEntry, PastError, PastId, PastIndex, PastScope, ReviewState, Segment, SummaryMethod, TimeRange,
    WorkId,
};

/// The rules by which the past is cut. Other rules make other chunks of the same nodes.
pub const RULES: u32 = 1;

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
        let mut plan = Self { index, ..Self::default() };
        let mut segments = Vec::new();
        for row in scope.sessions(store).await? {
            let found = segments_of(store, &row, now).await?;
            plan.sessions += 1;
            plan.open += found.open;
            plan.untimed += found.untimed;
            segments.extend(found.segments);
        }
        plan.lay_out(segments, method);
        plan.compare();
        Ok(plan)
    }

    /// Leaves by time, then level on level of parents, until fewer than four have none.
    fn lay_out(&mut self, segments: Vec<Segment>, method: &SummaryMethod) {
        let method = serde_json::to_vec(method).unwrap_or_default();
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
            let of = PlannedSources::Nodes { session, nodes, bytes };
            let progress = progress_of(&self.index, &by_work, work, 0, span);
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
                let progress = progress_of(&self.index, &by_work, work, level, span);
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
        let mut places: HashMap<(u32, Option<&SessionId>), Vec<usize>> = HashMap::new();
        for (at, chunk) in self.chunks.iter().enumerate() {
            if chunk.is_pending() {
                let session = match &chunk.of {
                    PlannedSources::Nodes { session, .. } => Some(session),
                    PlannedSources::Children(_) => None,
                };
                places.entry((chunk.level, session)).or_default().push(at);
            }
        }
        let mut superseded: Vec<(usize, PastId)> = Vec::new();
        for old in self.index.live().filter(|old| old.work.is_some() && !wanted.contains(&old.id)) {
            let new = places.get(&(old.level, old.session.as_ref())).into_iter().flatten();
            let taking = new.copied().find(|at| self.chunks[*at].span.overlap(old.span) > 0);
            match taking {
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

fn progress_of(
    index: &PastIndex,
    works: &HashMap<WorkId, Vec<PastId>>,
    work: WorkId,
    level: u32,
    span: TimeRange,
) -> PlannedProgress {
    let made = works.get(&work).into_iter().flatten().filter_map(|id| index.get(id));
    let made: Vec<&ChunkEntry> = made.filter(|chunk| chunk.level == level && chunk.span == span).collect();
    if made.iter().any(|chunk| chunk.state == ReviewState::Retracted) {
        return PlannedProgress::Retracted;
    }
    let live = made.iter().find(|chunk| chunk.is_live());
    match (live, made.first()) {
        (Some(chunk), _) => PlannedProgress::Standing(chunk.id),
        (None, Some(chunk)) => PlannedProgress::Former(chunk.id),
        (None, None) => PlannedProgress::Missing,
    }
}

fn work_id<'a>(method: &[u8], level: u32, of: impl Iterator<Item = &'a [u8; 32]>) -> WorkId {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&RULES.to_le_bytes());
    bytes.extend_from_slice(&level.to_le_bytes());
    bytes.extend_from_slice(&(method.len() as u64).to_le_bytes());
    bytes.extend_from_slice(method);
    of.for_each(|id| bytes.extend_from_slice(id));
    WorkId(sha256(&bytes))
}
