//! Walks over the graph: by integers where the nodes are indexed, by ids where they are not.

use std::collections::HashSet;

use quipu_dag::Node;
use quipu_protocol::{NodeId, SessionId};
use quipu_transcript::COMPACTION;
use rusqlite::{Connection, OptionalExtension as _, Rows, params};

use super::failure::{Failure, Outcome};
use super::places::{self, Position, position};
use super::rows;
use crate::{Edge, Until};

/// Rows of others that are passed by before the index is asked where the parent is.
const BESIDE: usize = 4;
/// Nodes that the index leads to in one go where they lie apart.
const APART: usize = 1_024;
/// Nodes from which on a lineage is read by two connections at once: less takes longer to share than to do.
const LONG: i64 = 4_096;
/// The newest nodes that may be passed by for one that is indexed.
const NEWEST: usize = 256;
/// Nodes that room is made for at once.
const ROOM: usize = 1 << 17;

/// The nodes from `until` to `from`, oldest first.
pub(super) fn lineage(connection: &Connection, from: &NodeId, until: Until) -> Outcome<Vec<Node>> {
    if until == Until::Count(0) {
        return Ok(Vec::new());
    }
    let mut walk = Walk { until, nodes: Vec::new() };
    let mut seen = HashSet::new();
    let mut next = Some(*from);
    // The newest nodes may not be indexed yet; from the first that is, the index leads on.
    let mut by_index = true;
    while let Some(id) = next.filter(|id| seen.insert(*id)) {
        if by_index && let Some(start) = position(connection, &id)? {
            let before = walk.nodes.len();
            if walk.by_index(connection, (id, start), from)? {
                return Ok(walk.oldest_first());
            }
            walk.nodes.truncate(before);
            by_index = false;
        }
        let Some(node) = rows::find_node(connection, &id)? else {
            if walk.nodes.is_empty() {
                return Err(Failure::Missing(format!("node {}", id.short())));
            }
            break;
        };
        next = node.record.parent;
        if walk.take(connection, node)? {
            return Ok(walk.oldest_first());
        }
    }
    if let Until::Node(end) = until {
        return Err(not_an_ancestor(&end, from));
    }
    Ok(walk.oldest_first())
}

/// The node in the middle of a long lineage, and its parent; `None` of one that is short, or is not indexed.
pub(super) fn middle(connection: &Connection, of: &NodeId) -> Outcome<Option<[NodeId; 2]>> {
    let mut newest = *of;
    for _ in 0..NEWEST {
        if let Some(start) = position(connection, &newest)? {
            if start.depth < LONG {
                return Ok(None);
            }
            let Some(middle) = ancestor_at(connection, start, start.depth / 2)? else { return Ok(None) };
            let (node, parent) = (id_of(connection, middle.seq)?, id_of(connection, middle.parent)?);
            return Ok(node.zip(parent).map(<[NodeId; 2]>::from));
        }
        let Some(parent) = rows::find_node(connection, &newest)?.and_then(|node| node.record.parent) else {
            return Ok(None);
        };
        newest = parent;
    }
    Ok(None)
}

/// A lineage, on the way to its root.
struct Walk {
    until: Until,
    /// The newest first.
    nodes: Vec<Node>,
}

/// Where a walk is.
struct Place {
    /// The row that was taken last.
    seq: i64,
    /// The node that comes next.
    next: NodeId,
}

impl Walk {
    fn oldest_first(mut self) -> Vec<Node> {
        self.nodes.reverse();
        self.nodes
    }

    /// Takes a node; says whether it is the last.
    fn take(&mut self, connection: &Connection, node: Node) -> Outcome<bool> {
        let is_last = match self.until {
            Until::Root => false,
            Until::Node(end) => node.id == end,
            Until::Count(most) => self.nodes.len() + 1 == most,
            Until::Checkpoint => rows::role_of(connection, &node)? == COMPACTION,
        };
        self.nodes.push(node);
        Ok(is_last)
    }

    /// From an indexed node on; `false` when the index does not lead to the end. `asked` is the node of the whole walk,
    /// for errors.
    ///
    /// Mostly a node was written right after its parent. So rows are read one after the other, and where the next ones
    /// are others', the index leads on.
    fn by_index(
        &mut self,
        connection: &Connection,
        (from, start): (NodeId, Position),
        asked: &NodeId,
    ) -> Outcome<bool> {
        if let Until::Node(id) = self.until {
            let Some(end) = position(connection, &id)? else { return Ok(false) };
            if ancestor_at(connection, start, end.depth)?.is_none_or(|found| found.seq != end.seq) {
                return Err(not_an_ancestor(&id, asked));
            }
        }
        let above = usize::try_from(start.depth).unwrap_or(usize::MAX).saturating_add(1);
        // More than these would be a circle in rows that somebody else wrote.
        let most = self.nodes.len().saturating_add(above);
        match self.until {
            Until::Root => self.nodes.reserve(above.min(ROOM)),
            Until::Count(count) => self.nodes.reserve((count - self.nodes.len()).min(above).min(ROOM)),
            Until::Node(_) | Until::Checkpoint => {}
        }
        let mut beside = connection.prepare_cached(&format!(
            "SELECT {}, n.rowid FROM nodes n WHERE n.rowid < ?1 ORDER BY n.rowid DESC",
            rows::NODE
        ))?;
        let mut apart = connection.prepare_cached(&format!(
            "WITH RECURSIVE up(seq, parent, n) AS ( \
               SELECT seq, parent, 0 FROM quipu_x_node WHERE seq = ?1 \
               UNION ALL \
               SELECT x.seq, x.parent, up.n + 1 FROM up JOIN quipu_x_node x ON x.seq = up.parent WHERE up.n < ?2) \
             SELECT {}, n.rowid FROM up CROSS JOIN nodes n ON n.rowid = up.seq WHERE up.n > 0",
            rows::NODE
        ))?;
        let mut place = Place { seq: start.seq.saturating_add(1), next: from };
        let mut leap = 1;
        loop {
            let before = self.nodes.len();
            if let Some(ended) =
                self.along(connection, &mut beside.query([place.seq])?, BESIDE, &mut place)?
            {
                return Ok(ended);
            }
            // Of many sessions that grow side by side, hardly a node lies beside its parent.
            leap = if self.nodes.len() - before > BESIDE { 1 } else { (4 * leap).min(APART) };
            let before = self.nodes.len();
            let limit = i64::try_from(leap).unwrap_or(i64::MAX);
            if let Some(ended) =
                self.along(connection, &mut apart.query(params![place.seq, limit])?, 1, &mut place)?
            {
                return Ok(ended);
            }
            if self.nodes.len() == before || self.nodes.len() > most {
                return Ok(false);
            }
        }
    }

    /// Takes rows, each the parent of the one before, until so many in turn are not, or no more are wanted: then says
    /// whether the walk is at its end. The links of the nodes themselves are the truth; the index only finds them faster.
    fn along(
        &mut self,
        connection: &Connection,
        found: &mut Rows<'_>,
        patience: usize,
        place: &mut Place,
    ) -> Outcome<Option<bool>> {
        let mut passed = 0;
        while passed < patience
            && let Some(row) = found.next()?
        {
            if rows::node_id(row, 0)? != Some(place.next) {
                passed += 1;
                continue;
            }
            passed = 0;
            let node = rows::node_of(row, place.next)?;
            place.seq = row.get(9)?;
            let parent = node.record.parent;
            if self.take(connection, node)? {
                return Ok(Some(true));
            }
            let Some(parent) = parent else { return Ok(Some(!matches!(self.until, Until::Node(_)))) };
            place.next = parent;
        }
        Ok(None)
    }
}

fn not_an_ancestor(id: &NodeId, of: &NodeId) -> Failure {
    Failure::Missing(format!("node {} on the lineage of node {}", id.short(), of.short()))
}

/// The node of the lineage of `of` with `depth` nodes before it.
pub(super) fn ancestor(connection: &Connection, of: &NodeId, depth: u32) -> Outcome<Option<NodeId>> {
    if let Some(start) = position(connection, of)? {
        return match ancestor_at(connection, start, i64::from(depth))? {
            Some(found) => id_of(connection, found.seq),
            None => Ok(None),
        };
    }
    let chain = match ids_to_root(connection, of)? {
        chain if chain.is_empty() => return Ok(None),
        chain => chain,
    };
    Ok(chain.iter().rev().nth(usize::try_from(depth).unwrap_or(usize::MAX)).copied())
}

/// The last node that both lineages share.
pub(super) fn fork_point(connection: &Connection, a: &NodeId, b: &NodeId) -> Outcome<Option<NodeId>> {
    if let (Some(left), Some(right)) = (position(connection, a)?, position(connection, b)?) {
        return match meeting(connection, left, right)? {
            Some(shared) => id_of(connection, shared.seq),
            None => Ok(None),
        };
    }
    let left: HashSet<NodeId> = ids_to_root(connection, a)?.into_iter().collect();
    Ok(ids_to_root(connection, b)?.into_iter().find(|id| left.contains(id)))
}

/// The same for nodes that are indexed.
pub(super) fn meeting(connection: &Connection, a: Position, b: Position) -> Outcome<Option<Position>> {
    let depth = a.depth.min(b.depth);
    let mut left = ancestor_at(connection, a, depth)?.unwrap_or(a);
    let mut right = ancestor_at(connection, b, depth)?.unwrap_or(b);
    while left.seq != right.seq {
        if left.depth == 0 {
            return Ok(None);
        }
        let far = left.jump != right.jump;
        left = above(connection, left, if far { left.jump } else { left.parent })?;
        right = above(connection, right, if far { right.jump } else { right.parent })?;
    }
    Ok(Some(left))
}

/// Whether `a` is `b` or one of its ancestors.
pub(super) fn is_ancestor(connection: &Connection, a: &NodeId, b: &NodeId) -> Outcome<bool> {
    if let (Some(high), Some(low)) = (position(connection, a)?, position(connection, b)?) {
        return Ok(ancestor_at(connection, low, high.depth)?.is_some_and(|found| found.seq == high.seq));
    }
    Ok(ids_to_root(connection, b)?.contains(a))
}

pub(super) fn ancestor_at(
    connection: &Connection,
    mut from: Position,
    depth: i64,
) -> Outcome<Option<Position>> {
    if depth > from.depth || depth < 0 {
        return Ok(None);
    }
    while from.depth > depth {
        let far = places::at(connection, from.jump)?;
        from = above(connection, from, if far.depth >= depth { from.jump } else { from.parent })?;
    }
    Ok(Some(from))
}

/// The position of `seq`, which must be an ancestor of `from`.
fn above(connection: &Connection, from: Position, seq: i64) -> Outcome<Position> {
    let next = places::at(connection, seq)?;
    if next.depth >= from.depth {
        return Err(Failure::Corrupt("the derived tables contain a cycle".to_owned()));
    }
    Ok(next)
}

pub(super) fn id_of(connection: &Connection, seq: i64) -> Outcome<Option<NodeId>> {
    let mut statement = connection.prepare_cached("SELECT id FROM nodes WHERE rowid = ?1")?;
    Ok(statement.query_row([seq], |row| rows::node_id(row, 0)).optional()?.flatten())
}

/// Newest first. Ends at a missing parent and where it would run in a circle.
fn ids_to_root(connection: &Connection, from: &NodeId) -> Outcome<Vec<NodeId>> {
    let mut statement = connection.prepare_cached("SELECT parent_id FROM nodes WHERE id = ?1")?;
    let mut ids = Vec::new();
    let mut seen = HashSet::new();
    let mut next = Some(*from);
    while let Some(id) = next.filter(|id| seen.insert(*id)) {
        let parent = statement.query_row([id.to_string()], |row| rows::node_id(row, 0)).optional()?;
        let Some(parent) = parent else { break };
        ids.push(id);
        next = parent;
    }
    Ok(ids)
}

/// The direct children of each node.
pub(super) fn children(connection: &Connection, of: &[NodeId]) -> Outcome<Vec<Edge>> {
    let mut statement =
        connection.prepare_cached("SELECT id FROM nodes WHERE parent_id = ?1 ORDER BY rowid")?;
    let mut edges = Vec::new();
    for parent in of {
        let mut found = statement.query([parent.to_string()])?;
        while let Some(row) = found.next()? {
            edges.extend(rows::node_id(row, 0)?.map(|child| Edge { parent: *parent, child }));
        }
    }
    Ok(edges)
}

/// The first children of each node.
pub(super) fn first_children(connection: &Connection, of: &[NodeId], limit: usize) -> Outcome<Vec<Edge>> {
    let mut statement =
        connection.prepare_cached("SELECT id FROM nodes WHERE parent_id = ?1 ORDER BY rowid LIMIT ?2")?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut edges = Vec::new();
    for parent in of {
        let mut found = statement.query(params![parent.to_string(), limit])?;
        while let Some(row) = found.next()? {
            edges.extend(rows::node_id(row, 0)?.map(|child| Edge { parent: *parent, child }));
        }
    }
    Ok(edges)
}

/// How many nodes stand below each, up to a limit for all together.
pub(super) fn descendants(connection: &Connection, of: &[NodeId], limit: u64) -> Outcome<Vec<u64>> {
    // The limit also ends a circle in rows that somebody else wrote.
    let mut statement = connection.prepare_cached(
        "SELECT count(*) FROM (WITH RECURSIVE down(id) AS (SELECT id FROM nodes WHERE parent_id = ?1 \
         UNION ALL SELECT n.id FROM down JOIN nodes n ON n.parent_id = down.id) SELECT 1 FROM down LIMIT ?2)",
    )?;
    let mut left = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut counts = Vec::with_capacity(of.len());
    for node in of {
        let count: i64 = statement.query_row(params![node.to_string(), left], |row| row.get(0))?;
        left -= count;
        counts.push(count.unsigned_abs());
    }
    Ok(counts)
}

/// The session of each node.
pub(super) fn sessions_of(connection: &Connection, nodes: &[NodeId]) -> Outcome<Vec<Option<SessionId>>> {
    let mut statement = connection.prepare_cached(
        "SELECT s.id FROM nodes n JOIN quipu_x_node x ON x.seq = n.rowid AND x.id = ?2 \
         JOIN quipu_x_session s ON s.num = x.session WHERE n.id = ?1",
    )?;
    let mut sessions = Vec::with_capacity(nodes.len());
    for node in nodes {
        let found = statement.query_row(params![node.to_string(), node.0], |row| row.get::<_, String>(0));
        sessions.push(found.optional()?.map(SessionId::from));
    }
    Ok(sessions)
}
