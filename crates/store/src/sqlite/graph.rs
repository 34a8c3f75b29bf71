//! Walks over the graph: by integers where the nodes are indexed, by ids where they are not.

use std::collections::HashSet;

use quipu_dag::Node;
use quipu_protocol::{NodeId, SessionId};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::failure::{Failure, Outcome};
use super::index::{self, Position, kind, position};
use super::rows;
use crate::{Edge, Until};

/// The nodes from `until` to `from`, oldest first.
pub(super) fn lineage(connection: &Connection, from: &NodeId, until: Until) -> Outcome<Vec<Node>> {
    if until == Until::Count(0) {
        return Ok(Vec::new());
    }
    let mut nodes: Vec<Node> = Vec::new();
    let mut seen = HashSet::new();
    let mut next = Some(*from);
    // The newest nodes may not be indexed yet; from the first that is, the index leads on.
    let mut by_index = true;
    while let Some(id) = next.filter(|id| seen.insert(*id)) {
        let rest = match until {
            Until::Count(most) => Until::Count(most - nodes.len()),
            Until::Root | Until::Node(_) | Until::Checkpoint => until,
        };
        if by_index && let Some(start) = position(connection, &id)? {
            if let Some(found) = indexed_lineage(connection, (id, start), from, rest)? {
                nodes.extend(found);
                nodes.reverse();
                return Ok(nodes);
            }
            by_index = false;
        }
        let Some(node) = rows::find_node(connection, &id)? else {
            if nodes.is_empty() {
                return Err(Failure::Missing(format!("node {}", id.short())));
            }
            break;
        };
        next = node.record.parent;
        let stops = match rest {
            Until::Root => false,
            Until::Node(end) => id == end,
            Until::Count(most) => most == 1,
            Until::Checkpoint => node.record.role == "compactionSummary",
        };
        nodes.push(node);
        if stops {
            nodes.reverse();
            return Ok(nodes);
        }
    }
    if let Until::Node(end) = until {
        return Err(not_an_ancestor(&end, from));
    }
    nodes.reverse();
    Ok(nodes)
}

/// From an indexed node on, newest first; `None` when the index does not hold these nodes. `asked` is the node of
/// the whole walk, for errors.
fn indexed_lineage(
    connection: &Connection,
    (from, start): (NodeId, Position),
    asked: &NodeId,
    until: Until,
) -> Outcome<Option<Vec<Node>>> {
    let (mut count, mut stop, mut stop_kind) = (i64::MAX, -1, -1);
    match until {
        Until::Root => {}
        Until::Count(most) => count = i64::try_from(most).unwrap_or(i64::MAX),
        Until::Checkpoint => stop_kind = kind::CHECKPOINT,
        Until::Node(id) => {
            let Some(end) = position(connection, &id)? else { return Ok(None) };
            if ancestor_at(connection, start, end.depth)?.is_none_or(|found| found.seq != end.seq) {
                return Err(not_an_ancestor(&id, asked));
            }
            stop = end.seq;
        }
    }
    // One more than can be, so that a circle in rows that somebody else wrote ends, and shows.
    count = count.min(start.depth.saturating_add(2));
    let mut statement = connection.prepare_cached(&format!(
        "WITH RECURSIVE up(seq, parent, kind, n) AS ( \
           SELECT seq, parent, kind, 1 FROM quipu_x_node WHERE seq = ?1 \
           UNION ALL \
           SELECT x.seq, x.parent, x.kind, up.n + 1 FROM up JOIN quipu_x_node x ON x.seq = up.parent \
           WHERE up.n < ?2 AND up.seq <> ?3 AND up.kind <> ?4) \
         SELECT {} FROM up CROSS JOIN nodes n ON n.rowid = up.seq",
        rows::NODE
    ))?;
    let mut found = statement.query(params![start.seq, count, stop, stop_kind])?;
    let mut nodes: Vec<Node> = Vec::new();
    while let Some(row) = found.next()? {
        let Some(node) = rows::node(row)? else { return Ok(None) };
        // The links of the nodes themselves are the truth; the index only finds them faster.
        if nodes.last().is_some_and(|below| below.record.parent != Some(node.id)) {
            return Ok(None);
        }
        if i64::try_from(nodes.len()).unwrap_or(i64::MAX) > start.depth {
            return Ok(None);
        }
        nodes.push(node);
    }
    Ok(nodes.first().is_some_and(|node| node.id == from).then_some(nodes))
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
        let far = index::at(connection, from.jump)?;
        from = above(connection, from, if far.depth >= depth { from.jump } else { from.parent })?;
    }
    Ok(Some(from))
}

/// The position of `seq`, which must be an ancestor of `from`.
fn above(connection: &Connection, from: Position, seq: i64) -> Outcome<Position> {
    let next = index::at(connection, seq)?;
    if next.depth >= from.depth {
        return Err(Failure::Corrupt("the derived tables lead in a circle; run `quipu doctor`".to_owned()));
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
