//! A session as a tree: which of its nodes are drawn, and in which order. However large it is, only what stands out
//! in it is read.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};

use quipu_protocol::{Entry, NodeId, SessionId};
use quipu_store::{Graph, LandmarkKind, LineageEnd, SessionQuery, SessionRow, StoreError, decode_with};
use serde::Deserialize;

/// Nodes of a session that is drawn without leaving any out.
const SMALL: u64 = 200;
/// Nodes between two that stand out which are drawn rather than counted.
const FEW: u64 = 4;
/// Labels and names at the end of a branch that are passed over: so many times so many.
const NOTES: (usize, usize) = (8, 32);

/// What of a session is drawn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeQuery {
    /// Every node, labels and names too. Otherwise the first one, the newest before the head, where branches part and
    /// what they end with, compactions, forks and what has a label; a session of 200 nodes or fewer is drawn whole.
    pub whole: bool,
    /// Nodes before the head that are drawn.
    pub recent: u64,
    /// Branches, compactions, forks and labels at most, the newest of each.
    pub most: usize,
}

impl Default for TreeQuery {
    fn default() -> Self {
        Self { whole: false, recent: 30, most: 100 }
    }
}

/// A session as it is drawn: the oldest first, its head last. Side branches stand before what continues from where they
/// part.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionTree {
    /// The lines in their order.
    pub lines: Vec<TreeLine>,
    /// Where the session stands, labels and names passed over; where it stood last when it was removed.
    pub head: NodeId,
    /// The labels of nodes that are drawn.
    pub labels: HashMap<NodeId, String>,
    /// Whether there are more branches, compactions, forks or labels than are drawn.
    pub more: bool,
}

/// A line of the drawing of a session.
#[derive(Debug, Clone, PartialEq)]
pub struct TreeLine {
    /// How many branches it is away from what leads to the head.
    pub level: usize,
    /// Whether a branch begins here.
    pub starts: bool,
    /// What stands on it.
    pub item: TreeItem,
}

/// What stands on a line of a tree.
#[derive(Debug, Clone, PartialEq)]
pub enum TreeItem {
    /// A node that has a line of its own.
    Node(NodeId),
    /// Nodes in a row that are not drawn: so many, the first with `depth` nodes before it, the last one the parent of
    /// `below`.
    Folded {
        /// The node that follows them.
        below: NodeId,
        /// How many nodes stand before the first of them.
        depth: u64,
        /// How many they are.
        count: u64,
    },
    /// A session that continues from the node of the line before.
    Session(Box<SessionRow>),
}

/// A node among those that stand out.
struct Spot {
    depth: u64,
    /// The next one before it that stands out.
    above: Option<NodeId>,
}

/// Nodes that share a lineage apart from all others.
struct Group {
    members: Vec<NodeId>,
    /// The node that it continues from.
    from: Option<NodeId>,
    /// Its first node and how many stand before that.
    first: Option<(u64, NodeId)>,
}

/// Reads what is drawn of a session. Takes as long as what is drawn is large, and not as the session is.
///
/// # Errors
/// What the store says.
pub async fn session_tree(
    store: &dyn Graph,
    row: &SessionRow,
    query: &TreeQuery,
) -> Result<SessionTree, StoreError> {
    let session = std::slice::from_ref(&row.id);
    let mut marks = store.landmarks(session, query.most.saturating_add(2)).await?;
    let mut more = false;
    for kind in [LandmarkKind::End, LandmarkKind::Compaction] {
        let mut met = 0;
        marks.retain(|mark| {
            // The head is drawn in any case.
            met += usize::from(mark.kind == kind && row.head != Some(mark.node));
            mark.kind != kind || met <= query.most
        });
        more |= met > query.most;
    }
    let newest = marks.iter().find(|mark| mark.kind == LandmarkKind::End).map(|end| end.node);
    let head = row.head.or(newest).unwrap_or(row.base);
    let mut ends: Vec<NodeId> = [head].into_iter().chain(marks.iter().map(|mark| mark.node)).collect();
    if !query.whole {
        ends = past_notes(store, &ends).await?;
    }
    let head = ends.first().copied().unwrap_or(head);

    let mut labels: HashMap<NodeId, String> = HashMap::new();
    for label in store.labels(session).await? {
        if let Some(target) = label.target
            && labels.len() < query.most
        {
            labels.entry(target).or_insert(label.text);
        } else {
            more |= label.target.is_some();
        }
    }
    let mut forks = forks_of(store, &row.id, query.most.saturating_add(1)).await?;
    more |= forks.len() > query.most;
    forks.truncate(query.most);
    if !query.whole {
        let from: Vec<NodeId> = forks.iter().filter_map(|(at, _)| *at).collect();
        let mut from = past_notes(store, &from).await?.into_iter();
        forks.iter_mut().filter(|(at, _)| at.is_some()).for_each(|(at, _)| *at = from.next());
    }

    // An id that was used twice is that of several beginnings.
    let same = store.sessions(SessionQuery { id: Some(row.id.clone()), ..SessionQuery::default() }).await?;
    let bases = same.iter().map(|row| row.base);
    let mut seen = HashSet::new();
    let wanted: Vec<NodeId> = [row.base]
        .into_iter()
        .chain(bases)
        .chain(ends)
        .chain(labels.keys().copied())
        .chain(forks.iter().filter_map(|(at, _)| *at))
        .filter(|node| seen.insert(*node))
        .collect();
    let (spots, floor) = spots(store, head, row.base, wanted.clone()).await?;
    let order = wanted.into_iter().enumerate().map(|(at, node)| (node, at)).collect();
    let layout = Layout { query, small: row.entries <= SMALL, head, floor, spots, order, forks };
    let lines = layout.lines(store).await?;
    Ok(SessionTree { lines, head, labels, more })
}

/// The same nodes, each with the labels and names that it ends with passed over.
async fn past_notes(store: &dyn Graph, ends: &[NodeId]) -> Result<Vec<NodeId>, StoreError> {
    let nodes: Vec<_> = store.nodes(ends).await?.into_iter().flatten().collect();
    let hidden = store.hidden();
    let decoded = decode_with(store, &hidden, &nodes).await?;
    let noted: HashSet<NodeId> = nodes
        .iter()
        .zip(&decoded)
        .filter(|(_, decoded)| is_note(&decoded.entry))
        .map(|(node, _)| node.id)
        .collect();
    let mut passed = Vec::with_capacity(ends.len());
    for end in ends {
        let mut at = *end;
        let (rounds, together) = NOTES;
        for _ in 0..if noted.contains(end) { rounds } else { 0 } {
            let nodes = store.lineage(at, LineageEnd::Count(together)).await?;
            let decoded = decode_with(store, &hidden, &nodes).await?;
            let kept = nodes.iter().zip(&decoded).rfind(|(_, decoded)| !is_note(&decoded.entry));
            match (kept, nodes.first().and_then(|first| first.record.parent)) {
                (Some((node, _)), _) => {
                    at = node.id;
                    break;
                }
                (None, Some(parent)) => at = parent,
                (None, None) => break,
            }
        }
        passed.push(at);
    }
    Ok(passed)
}

/// Whether an entry only says something about another one, or about the session: a label or a name.
pub fn is_note(entry: &Entry) -> bool {
    #[derive(Deserialize)]
    struct Kind {
        #[serde(rename = "type")]
        kind: String,
    }
    let Entry::Meta(json) = entry else { return false };
    // Most are something else: recognized without reading them.
    if !json.get().contains("\"label\"") && !json.get().contains("\"session_info\"") {
        return false;
    }
    json.read::<Kind>().is_ok_and(|entry| matches!(entry.kind.as_str(), "label" | "session_info"))
}

/// Sessions that went on from this one, the oldest first, each with the node from which it did.
async fn forks_of(
    store: &dyn Graph,
    session: &SessionId,
    most: usize,
) -> Result<Vec<(Option<NodeId>, SessionRow)>, StoreError> {
    let query = SessionQuery { parent: Some(session.clone()), limit: Some(most), ..SessionQuery::default() };
    let mut rows = store.sessions(query).await?;
    rows.sort_by_key(|row| row.created);
    let bases: Vec<NodeId> = rows.iter().map(|row| row.base).collect();
    let nodes = store.nodes(&bases).await?;
    let parents = nodes.into_iter().map(|node| node.and_then(|node| node.record.parent));
    Ok(parents.zip(rows).collect())
}

/// How nodes stand to each other, with the nodes where their lineages part; and how many stand before `base` where that
/// leads to `head`. Asks about each node as often as the logarithm of their number, whatever the tree looks like: what
/// they are compared with is one of them by chance.
async fn spots(
    store: &dyn Graph,
    head: NodeId,
    base: NodeId,
    wanted: Vec<NodeId>,
) -> Result<(HashMap<NodeId, Spot>, u64), StoreError> {
    let below = store.fork_points(head, &[base]).await?;
    let floor = below.into_iter().flatten().find(|base| base.apart.is_none()).map_or(0, |base| base.depth);
    let mut spots = HashMap::new();
    let mut groups = vec![Group { members: wanted, from: None, first: None }];
    let mut trunk = Some(head);
    while let Some(Group { mut members, from, first }) = groups.pop() {
        // Ids are hashes, so the smallest is any.
        let Some(pivot) = trunk.take().or_else(|| members.iter().min().copied()) else { continue };
        members.push(pivot);
        let mut chain: BTreeMap<u64, NodeId> = first.into_iter().collect();
        let mut apart: HashMap<NodeId, Group> = HashMap::new();
        for (node, meeting) in members.iter().zip(store.fork_points(pivot, &members).await?) {
            // One without a root stands nowhere.
            let Some(meeting) = meeting else { continue };
            let Some(first) = meeting.apart else {
                chain.insert(meeting.depth, *node);
                continue;
            };
            let from = meeting.at.filter(|(_, depth)| *depth >= floor);
            chain.extend(from.map(|(node, depth)| (depth, node)));
            let depth = meeting.at.map_or(0, |(_, depth)| depth + 1);
            let from = from.map(|(node, _)| node);
            let group = apart.entry(first).or_insert(Group {
                members: Vec::new(),
                from,
                first: Some((depth, first)),
            });
            group.members.push(*node);
        }
        let mut above = from;
        for (depth, node) in chain {
            if depth >= floor || from.is_some() || first.is_some() {
                spots.insert(node, Spot { depth, above });
                above = Some(node);
            }
        }
        groups.extend(apart.into_values());
    }
    Ok((spots, floor))
}

/// What is known of a tree before its lines are laid out.
struct Layout<'a> {
    query: &'a TreeQuery,
    /// Whether it is small enough to leave nothing out.
    small: bool,
    head: NodeId,
    /// How many nodes stand before the session's own.
    floor: u64,
    spots: HashMap<NodeId, Spot>,
    /// The newest ends first.
    order: HashMap<NodeId, usize>,
    forks: Vec<(Option<NodeId>, SessionRow)>,
}

impl Layout<'_> {
    async fn lines(mut self, store: &dyn Graph) -> Result<Vec<TreeLine>, StoreError> {
        let mut trunk = HashSet::new();
        let mut next = Some(self.head);
        while let Some(node) = next.filter(|node| trunk.insert(*node)) {
            next = self.spots.get(&node).and_then(|spot| spot.above);
        }
        // The deepest node and the newest end below each, from the leaves up.
        let mut by_depth: Vec<NodeId> = self.spots.keys().copied().collect();
        by_depth.sort_unstable_by_key(|node| Reverse(self.spots[node].depth));
        let mut deepest: HashMap<NodeId, u64> = HashMap::new();
        let mut newest: HashMap<NodeId, usize> = HashMap::new();
        let mut kids: HashMap<Option<NodeId>, Vec<NodeId>> = HashMap::new();
        for node in by_depth {
            let spot = &self.spots[&node];
            let depth = *deepest.entry(node).or_insert(spot.depth);
            let own = self.order.get(&node).copied().unwrap_or(usize::MAX);
            let order = *newest.entry(node).and_modify(|order| *order = own.min(*order)).or_insert(own);
            if let Some(above) = spot.above {
                deepest.entry(above).and_modify(|most| *most = depth.max(*most)).or_insert(depth);
                newest.entry(above).and_modify(|least| *least = order.min(*least)).or_insert(order);
            }
            kids.entry(spot.above).or_default().push(node);
        }
        let mut forks: HashMap<NodeId, Vec<SessionRow>> = HashMap::new();
        for (at, row) in std::mem::take(&mut self.forks) {
            // One that began with nothing stands beside the session's first node.
            let at = at.filter(|at| self.spots.contains_key(at)).unwrap_or(self.head);
            forks.entry(at).or_default().push(row);
        }
        // What leads to the head comes last, elsewhere what is longest; before it, the oldest first.
        let sorted = |nodes: &mut Vec<NodeId>| {
            nodes.sort_by_key(|node| (trunk.contains(node), deepest[node], Reverse(newest[node])));
            let main = nodes.pop();
            nodes.sort_by_key(|node| Reverse(newest[node]));
            main
        };
        let mut lines = Vec::new();
        let mut roots = kids.remove(&None).unwrap_or_default();
        let main = sorted(&mut roots);
        let mut stack: Vec<(NodeId, usize, bool)> = main.into_iter().map(|node| (node, 0, false)).collect();
        stack.extend(roots.into_iter().rev().map(|node| (node, 0, false)));
        while let Some((node, level, mut starts)) = stack.pop() {
            for item in self.before(store, node, trunk.contains(&node)).await? {
                lines.push(TreeLine { level, starts: std::mem::take(&mut starts), item });
            }
            lines.push(TreeLine { level, starts, item: TreeItem::Node(node) });
            for row in forks.remove(&node).unwrap_or_default() {
                let item = TreeItem::Session(Box::new(row));
                lines.push(TreeLine { level: level + 1, starts: true, item });
            }
            let mut side = kids.remove(&Some(node)).unwrap_or_default();
            let mut main = sorted(&mut side);
            if node == self.head {
                // What was left behind it is beside the way that is taken.
                side.extend(main.take());
                side.sort_by_key(|node| Reverse(newest[node]));
            }
            stack.extend(main.map(|node| (node, level, false)));
            stack.extend(side.into_iter().rev().map(|node| (node, level + 1, true)));
        }
        Ok(lines)
    }

    /// The nodes between one that stands out and the next before it: some of them, and a count of the rest.
    async fn before(
        &self,
        store: &dyn Graph,
        node: NodeId,
        on_trunk: bool,
    ) -> Result<Vec<TreeItem>, StoreError> {
        let Some(spot) = self.spots.get(&node) else { return Ok(Vec::new()) };
        let first = match spot.above.and_then(|above| self.spots.get(&above)) {
            Some(above) => above.depth + 1,
            None if on_trunk => self.floor,
            None => spot.depth,
        };
        let between = spot.depth.saturating_sub(first);
        let head = self.spots.get(&self.head).map_or(0, |head| head.depth);
        let drawn = if self.query.whole {
            0
        } else if self.small || between <= FEW {
            between
        } else if on_trunk {
            self.query.recent.saturating_sub(head - spot.depth).min(between)
        } else {
            0
        };
        let mut nodes = Vec::new();
        if drawn > 0 {
            let count = usize::try_from(drawn).unwrap_or(usize::MAX).saturating_add(1);
            nodes = store.lineage(node, LineageEnd::Count(count)).await?;
            nodes.pop();
        }
        let below = nodes.first().map_or(node, |first| first.id);
        let count = between - drawn;
        let folded = (count > 0).then_some(TreeItem::Folded { below, depth: first, count });
        Ok(folded.into_iter().chain(nodes.iter().map(|node| TreeItem::Node(node.id))).collect())
    }
}
