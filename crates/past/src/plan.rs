//! What a past is to have, and what of it is not there yet: one plan, for who wants to know and for who makes it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use quipu_protocol::{AuthorClass, NodeId, SessionId};
use quipu_store::Graph;
use serde::Serialize;

use crate::model::{CallSize, first_line};
use crate::overlap::OverlapIndex;
use crate::record::read_chunks;
use crate::{
    ChunkAuthor, ChunkEntry, PastError, PastId, PastIndex, PastScope, SummaryMethod, SummaryModel, TimeRange,
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
    /// The call that it takes, where a model is asked.
    pub(crate) call: Option<CallSize>,
    /// Whether a model answered that call already.
    pub(crate) recorded: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PlannedSources {
    Nodes {
        session: SessionId,
        /// Who imported the session, where it is not ours.
        importer: Option<String>,
        /// Empty where nothing is to be made of them.
        nodes: Vec<NodeId>,
        count: usize,
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

/// What a past is to have and has not, the finest first, and what becomes of what it has.
#[derive(Debug, Default)]
pub struct PastPlan {
    /// What is to be made, what that is made of, and leaves that a person took back.
    pub(crate) chunks: Vec<PlannedChunk>,
    /// All that is there beside those.
    pub(crate) rest: BuildSize,
    /// Chunks that are not wanted any more, and that no new one stands for.
    pub(crate) orphans: Vec<PastId>,
    pub(crate) index: Arc<PastIndex>,
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
    /// Looks for answers to its calls that were paid for already.
    pub(crate) async fn look_up(&mut self, model: &dyn SummaryModel) {
        for chunk in self.chunks.iter_mut().filter(|chunk| chunk.progress == PlannedProgress::Missing) {
            if chunk.call.is_some() && model.recorded(&first_line(chunk.work, chunk.level)).await.is_some() {
                (chunk.call, chunk.recorded) = (None, true);
            }
        }
    }

    /// What a build asks a model, one call after the other.
    pub fn calls(&self) -> impl Iterator<Item = CallSize> {
        self.chunks.iter().filter_map(|chunk| chunk.call)
    }

    /// What the compiler made before and does not want any more gives its place to a chunk that is made now.
    pub(crate) fn compare(&mut self, outdated: &[PastId]) {
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
        for old in outdated.iter().filter_map(|id| self.index.get(id)) {
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
            ..self.rest
        };
        for (at, chunk) in self.chunks.iter().enumerate() {
            let nodes = match &chunk.of {
                PlannedSources::Nodes { count, .. } => *count,
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
    pub fn index(&self) -> &PastIndex {
        &self.index
    }
}

impl PlannedProgress {
    /// The chunk that is there already.
    pub(crate) const fn there(&self) -> Option<PastId> {
        match self {
            Self::Standing(id) | Self::Former(id) => Some(*id),
            Self::Retracted | Self::Missing => None,
        }
    }

    /// Whether a build makes it or puts it back.
    pub(crate) const fn is_pending(&self) -> bool {
        matches!(self, Self::Missing | Self::Former(_))
    }
}

impl PlannedChunk {
    /// Whether a build makes it or puts it back.
    pub(crate) const fn is_pending(&self) -> bool {
        self.progress.is_pending()
    }
}

/// Nodes of leaves that a person took back or had forgotten, each with its leaf.
pub(crate) type TakenNodes = HashMap<NodeId, PastId>;

/// What a person took back or had forgotten stays so when its session continues, and by whichever method it would be made.
pub(crate) async fn taken_back(
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
pub(crate) struct ChunkPlace<'a> {
    pub(crate) work: WorkId,
    pub(crate) level: u32,
    pub(crate) span: TimeRange,
    pub(crate) class: AuthorClass,
    pub(crate) session: Option<&'a SessionId>,
    /// Chunks that are there already of those that it is made of.
    pub(crate) children: Vec<PastId>,
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

/// How far it is. `wanted` says in which way it would be made.
pub(crate) fn progress_of(
    index: &PastIndex,
    place: &ChunkPlace<'_>,
    wanted: &SummaryMethod,
) -> PlannedProgress {
    let made = || index.of_work(&place.work).filter(|chunk| place.is_of(chunk));
    if made().any(ChunkEntry::is_taken_back) {
        return PlannedProgress::Retracted;
    }
    let same = made().filter(|chunk| place.has_children(chunk));
    let serving = same.filter_map(|chunk| Some((chunk.is_live(), chunk.method.serves(wanted)?, chunk)));
    // The first of the best.
    match serving.rev().max_by_key(|(is_live, rank, _)| (*is_live, *rank)) {
        Some((true, _, chunk)) => PlannedProgress::Standing(chunk.id),
        _ if index.is_forgotten(&place.work) => PlannedProgress::Retracted,
        Some((false, _, chunk)) => PlannedProgress::Former(chunk.id),
        None => PlannedProgress::Missing,
    }
}
