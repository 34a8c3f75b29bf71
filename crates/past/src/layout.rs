//! How the chunks lie that a past is to have: leaves by time, then level on level of parents, until fewer than four have none. What
//! comes or goes moves the parents above it, and no others.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;

use quipu_protocol::{AuthorClass, NodeId, SessionId};

use crate::chunk::worse;
use crate::model::{leaf_size, most_bytes, parent_size};
use crate::plan::{ChunkPlace, PlannedChunk, PlannedProgress, PlannedSources, progress_of};
use crate::tree::{Grouping, SameItems, TreeItem};
use crate::work::{leaf_work, work_id};
use crate::{BuildSize, PastId, PastIndex, PastPlan, Segment, SummaryMethod, TimeRange, WorkId};

/// A segment that is to have a leaf.
pub(crate) struct NewLeaf {
    /// Its session.
    pub(crate) key: (SessionId, NodeId),
    /// Its place in the session.
    pub(crate) ordinal: usize,
    /// Whether it stands behind the last cut.
    pub(crate) is_rest: bool,
    pub(crate) segment: Segment,
    pub(crate) importer: Option<String>,
    /// Whether a person took back all that it is of.
    pub(crate) is_taken: bool,
    /// The leaf that it has, and keeps while it is open again.
    pub(crate) stands: Option<PastId>,
}

#[derive(Debug)]
pub(crate) struct ChunkPlaces {
    method: SummaryMethod,
    /// Chunks by their place; children of parents are places.
    chunks: Vec<Option<PlannedChunk>>,
    free: Vec<usize>,
    /// How often the same nodes are to have a leaf.
    works: HashMap<WorkId, usize>,
    levels: Vec<TreeLevel>,
    /// Places of what is to be made, in its order.
    pending: Vec<usize>,
    /// Places that were given last.
    new: Vec<usize>,
    /// Places of leaves that a person took back.
    retracted: BTreeSet<usize>,
    count: usize,
    retracted_count: usize,
    nodes: usize,
}

/// Chunks of a level, and what their parents are.
#[derive(Debug, Default)]
struct TreeLevel {
    /// By span and work.
    items: Vec<TreeItem>,
    grouping: Grouping,
    /// Which items a parent has, and its place.
    parents: Vec<(Range<usize>, usize)>,
}

impl ChunkPlaces {
    pub(crate) fn new(method: SummaryMethod) -> Self {
        Self {
            method,
            chunks: Vec::new(),
            free: Vec::new(),
            works: HashMap::new(),
            levels: Vec::new(),
            pending: Vec::new(),
            new: Vec::new(),
            retracted: BTreeSet::new(),
            count: 0,
            retracted_count: 0,
            nodes: 0,
        }
    }

    const fn asks(&self) -> bool {
        matches!(self.method, SummaryMethod::Model(_))
    }

    fn get(&self, at: usize) -> Option<&PlannedChunk> {
        self.chunks.get(at)?.as_ref()
    }

    fn put(&mut self, chunk: PlannedChunk) -> usize {
        self.count += 1;
        self.retracted_count += usize::from(chunk.progress == PlannedProgress::Retracted);
        self.nodes += node_count(&chunk);
        let at = self.free.pop().unwrap_or(self.chunks.len());
        let is_leaf = matches!(chunk.of, PlannedSources::Nodes { .. });
        if is_leaf && chunk.progress == PlannedProgress::Retracted {
            self.retracted.insert(at);
        }
        if chunk.is_pending() {
            self.pending.push(at);
        }
        self.new.push(at);
        match self.chunks.get_mut(at) {
            Some(place) => *place = Some(chunk),
            None => self.chunks.push(Some(chunk)),
        }
        at
    }

    fn take(&mut self, at: usize) -> Option<PlannedChunk> {
        let chunk = self.chunks.get_mut(at)?.take()?;
        self.count -= 1;
        self.retracted_count -= usize::from(chunk.progress == PlannedProgress::Retracted);
        self.nodes -= node_count(&chunk);
        self.retracted.remove(&at);
        self.free.push(at);
        Some(chunk)
    }

    /// Whether no two of the leaves are of the same nodes, with those that come and without those that go.
    pub(crate) fn are_single(&self, removed: &[usize], added: &[NewLeaf]) -> bool {
        let mut gone = HashSet::new();
        for chunk in removed.iter().filter_map(|at| self.get(*at)) {
            if self.works.get(&chunk.work) != Some(&1) {
                return false;
            }
            gone.insert(chunk.work);
        }
        let mut come = HashSet::new();
        added.iter().map(|leaf| leaf_work(&leaf.segment.nodes)).all(|work| {
            let is_free = gone.contains(&work) || !self.works.contains_key(&work);
            is_free && come.insert(work)
        })
    }

    /// Whether the leaf at a place is of this segment.
    pub(crate) fn is_at(&self, at: usize, segment: &Segment) -> bool {
        self.get(at).is_some_and(|chunk| chunk.work == leaf_work(&segment.nodes))
    }

    /// Takes leaves out: where they stood among all, and the chunks that are there of them.
    pub(crate) fn take_out(&mut self, leaves: &[usize]) -> (Vec<TreeItem>, Vec<PastId>) {
        self.new.clear();
        let (mut items, mut there) = (Vec::new(), Vec::new());
        for at in leaves {
            let Some(chunk) = self.take(*at) else { continue };
            self.works.remove(&chunk.work);
            there.extend(chunk.progress.there());
            items.extend(item(&chunk, *at));
        }
        (items, there)
    }

    /// A place for a leaf; `None` where there is one of the same nodes.
    pub(crate) fn leaf(&mut self, index: &PastIndex, leaf: NewLeaf) -> Option<usize> {
        let NewLeaf { segment, importer, is_taken, stands, .. } = leaf;
        let Segment { session, nodes, span, bytes, class, said } = segment;
        let work = leaf_work(&nodes);
        let count = self.works.entry(work).or_default();
        *count += 1;
        if *count > 1 {
            return None;
        }
        let place = ChunkPlace { work, level: 0, span, class, session: Some(&session), children: Vec::new() };
        let progress = match stands {
            _ if is_taken => PlannedProgress::Retracted,
            Some(id) => PlannedProgress::Standing(id),
            None => progress_of(index, &place, &self.method),
        };
        let count = nodes.len();
        let nodes = if progress.is_pending() { nodes } else { Vec::new() };
        let of = PlannedSources::Nodes { session, importer, nodes, count, bytes };
        let asked = self.asks() && progress == PlannedProgress::Missing;
        let call = (asked && said.iter().any(|said| *said > 0)).then(|| leaf_size(work, &said));
        let supersedes = Vec::new();
        Some(self.put(PlannedChunk {
            work,
            level: 0,
            span,
            class,
            of,
            progress,
            supersedes,
            call,
            recorded: false,
        }))
    }

    /// Moves the parents where leaves went and came: the chunks that are there of those parents which are none any more.
    pub(crate) fn lay_out(
        &mut self,
        index: &PastIndex,
        removed: Vec<TreeItem>,
        added: &[usize],
    ) -> Vec<PastId> {
        let added = added.iter().filter_map(|at| item(self.get(*at)?, *at)).collect();
        let mut there = Vec::new();
        let (mut removed, mut added): (Vec<TreeItem>, Vec<TreeItem>) = (removed, added);
        for height in 0.. {
            if removed.is_empty() && added.is_empty() {
                break;
            }
            if self.levels.len() == height {
                self.levels.push(TreeLevel::default());
            }
            let Some(level) = self.levels.get_mut(height) else { break };
            let (same, groups) = level.change(&removed, added);
            // Which parents stay.
            let old = std::mem::take(&mut level.parents);
            let mut is_kept = vec![false; old.len()];
            let mut kept: Vec<Option<usize>> = Vec::with_capacity(groups.len());
            for group in &groups {
                let was = same.was(group).and_then(|was| {
                    let at = old.partition_point(|(range, _)| range.start < was.start);
                    old.get(at).filter(|(range, _)| *range == was).map(|(_, place)| (at, *place))
                });
                if let Some((at, _)) = was {
                    is_kept[at] = true;
                }
                kept.push(was.map(|(_, place)| place));
            }
            (removed, added) = (Vec::new(), Vec::new());
            for ((_, place), _) in old.iter().zip(&is_kept).filter(|(_, is_kept)| !**is_kept) {
                let Some(chunk) = self.take(*place) else { continue };
                there.extend(chunk.progress.there());
                removed.extend(item(&chunk, *place));
            }
            let mut parents = Vec::with_capacity(groups.len());
            for (group, place) in groups.into_iter().zip(kept) {
                let place = match place {
                    Some(place) => place,
                    None => {
                        let Some(chunk) = self.parent(index, height, group.clone()) else { continue };
                        let place = self.put(chunk);
                        added.extend(self.get(place).and_then(|chunk| item(chunk, place)));
                        place
                    }
                };
                parents.push((group, place));
            }
            if let Some(level) = self.levels.get_mut(height) {
                level.parents = parents;
            }
        }
        there
    }

    /// The parent of some neighbours of a level.
    fn parent(&self, index: &PastIndex, height: usize, group: Range<usize>) -> Option<PlannedChunk> {
        let items = self.levels.get(height)?.items.get(group)?;
        let (first, rest) = items.split_first()?;
        let level = u32::try_from(height + 1).ok()?;
        let span = rest.iter().fold(first.span, |span, item| span.union(item.span));
        let work = work_id(level, items.iter().map(|item| &item.work.0));
        let children: Vec<&PlannedChunk> = items.iter().filter_map(|item| self.get(item.at)).collect();
        let class = children.iter().fold(AuthorClass::Owner, |class, child| worse(class, child.class));
        let there = children.iter().filter_map(|child| child.progress.there()).collect();
        let place = ChunkPlace { work, level, span, class, session: None, children: there };
        let mut progress = progress_of(index, &place, &self.method);
        // It names children that others take the place of.
        let is_new = |child: &&PlannedChunk| child.progress == PlannedProgress::Missing;
        if progress != PlannedProgress::Retracted && children.iter().any(is_new) {
            progress = PlannedProgress::Missing;
        }
        let asked = self.asks() && progress == PlannedProgress::Missing;
        let call =
            asked.then(|| parent_size(work, level, children.iter().map(|child| summary_size(index, child))));
        let of = PlannedSources::Children(items.iter().map(|item| item.at).collect());
        let supersedes = Vec::new();
        Some(PlannedChunk { work, level, span, class, of, progress, supersedes, call, recorded: false })
    }

    /// Chunks that are there of all that is wanted.
    pub(crate) fn there(&self) -> HashSet<PastId> {
        self.chunks.iter().flatten().filter_map(|chunk| chunk.progress.there()).collect()
    }

    /// The same of what got a place last.
    pub(crate) fn there_of_new(&self) -> HashSet<PastId> {
        self.new.iter().filter_map(|at| self.get(*at)?.progress.there()).collect()
    }

    /// Whether something is to be made.
    pub(crate) const fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Takes what was to be made as made: the chunks, where the past has one of each.
    pub(crate) fn settle(&mut self, index: &PastIndex) -> Option<HashSet<PastId>> {
        let mut made = HashSet::with_capacity(self.pending.len());
        for at in std::mem::take(&mut self.pending) {
            let chunk = self.get(at)?;
            let (session, children) = match &chunk.of {
                PlannedSources::Nodes { session, .. } => (Some(session), Vec::new()),
                PlannedSources::Children(children) => {
                    (None, children.iter().filter_map(|at| self.get(*at)?.progress.there()).collect())
                }
            };
            let PlannedChunk { work, level, span, class, .. } = *chunk;
            let place = ChunkPlace { work, level, span, class, session, children };
            let progress = progress_of(index, &place, &self.method);
            let PlannedProgress::Standing(id) = progress else { return None };
            made.insert(id);
            let chunk = self.chunks.get_mut(at)?.as_mut()?;
            (chunk.progress, chunk.call) = (progress, None);
            if let PlannedSources::Nodes { nodes, .. } = &mut chunk.of {
                *nodes = Vec::new();
            }
        }
        Some(made)
    }

    /// Puts into a plan what is to be made, what that is made of, and what a person took back; the rest is counted.
    pub(crate) fn plan(&self, plan: &mut PastPlan) {
        let taken_back = self.retracted.iter().filter_map(|at| self.get(*at));
        plan.chunks.extend(taken_back.cloned());
        let mut known: HashMap<usize, usize> = HashMap::with_capacity(self.pending.len());
        for at in &self.pending {
            let Some(mut chunk) = self.get(*at).cloned() else { continue };
            if let PlannedSources::Children(children) = &mut chunk.of {
                for child in children.iter_mut() {
                    let Some(below) = self.get(*child) else { continue };
                    *child = *known.entry(*child).or_insert_with(|| {
                        plan.chunks.push(PlannedChunk { of: counted(&below.of), ..below.clone() });
                        plan.chunks.len() - 1
                    });
                }
            }
            known.insert(*at, plan.chunks.len());
            plan.chunks.push(chunk);
        }
        let is_standing = |chunk: &&PlannedChunk| matches!(chunk.progress, PlannedProgress::Standing(_));
        let standing = plan.chunks.iter().filter(is_standing).count();
        plan.rest = BuildSize {
            standing: self.count - self.retracted_count - self.pending.len() - standing,
            nodes: self.nodes - plan.chunks.iter().map(node_count).sum::<usize>(),
            retracted: self.retracted_count - self.retracted.len(),
            ..BuildSize::default()
        };
    }
}

impl TreeLevel {
    /// Takes items out and puts others in: what stays as it was, and the groups now.
    fn change(&mut self, removed: &[TreeItem], added: Vec<TreeItem>) -> (SameItems, Vec<Range<usize>>) {
        let key = |item: &TreeItem| (item.span, item.work);
        let were = self.items.len();
        let (mut first, mut end) = (were, 0);
        for item in removed.iter().chain(&added) {
            first = first.min(self.items.partition_point(|other| key(other) < key(item)));
            end = end.max(self.items.partition_point(|other| key(other) <= key(item)));
        }
        let end = end.max(first);
        let gone: HashSet<(TimeRange, WorkId)> = removed.iter().map(key).collect();
        let stay = self.items.get(first..end).unwrap_or_default().iter().copied();
        let mut changed: Vec<TreeItem> = stay.filter(|item| !gone.contains(&key(item))).collect();
        changed.extend(added);
        changed.sort_unstable_by_key(key);
        self.items.splice(first..end, changed);
        let same = SameItems { before: first, after: were - end, were, are: self.items.len() };
        self.grouping.update(&self.items, same);
        (same, self.grouping.groups())
    }
}

/// The chunk among its neighbours; nothing where a person took it back.
fn item(chunk: &PlannedChunk, at: usize) -> Option<TreeItem> {
    let PlannedChunk { span, work, progress, .. } = *chunk;
    (progress != PlannedProgress::Retracted).then_some(TreeItem { span, work, at })
}

fn node_count(chunk: &PlannedChunk) -> usize {
    match &chunk.of {
        PlannedSources::Nodes { count, .. } => *count,
        PlannedSources::Children(_) => 0,
    }
}

/// Of something that is there, nothing is made: how much it is of is enough.
fn counted(of: &PlannedSources) -> PlannedSources {
    match of {
        PlannedSources::Nodes { session, importer, count, bytes, .. } => PlannedSources::Nodes {
            session: session.clone(),
            importer: importer.clone(),
            nodes: Vec::new(),
            count: *count,
            bytes: *bytes,
        },
        PlannedSources::Children(_) => PlannedSources::Children(Vec::new()),
    }
}

/// The key of a child and the bytes of its summary; of one that a model is still to make, the most that it may have.
fn summary_size(index: &PastIndex, child: &PlannedChunk) -> (String, usize) {
    let known = match child.progress {
        PlannedProgress::Standing(id) | PlannedProgress::Former(id) => index.get(&id),
        PlannedProgress::Retracted | PlannedProgress::Missing => None,
    };
    (child.span.key(), known.map_or_else(|| most_bytes(child.level), |known| known.bytes))
}
