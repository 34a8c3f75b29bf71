//! Where each node stands, as the derived tables say.

use std::collections::HashMap;

use quipu_dag::Blob;
use quipu_protocol::{BlobId, ChunkId, NodeId};
use quipu_transcript::Lookup;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::failure::Outcome;
use super::rows;

/// Nodes of one lineage, or kinds of node that reads look for. Part of the stored form.
pub(super) mod kind {
    pub(in crate::sqlite) const OTHER: i64 = 0;
    pub(in crate::sqlite) const USER: i64 = 1;
    pub(in crate::sqlite) const ASSISTANT: i64 = 2;
    pub(in crate::sqlite) const TOOL_RESULT: i64 = 3;
    pub(in crate::sqlite) const SESSION: i64 = 4;
    pub(in crate::sqlite) const EPOCH: i64 = 5;
    pub(in crate::sqlite) const META: i64 = 6;
    /// Stands for all before it.
    pub(in crate::sqlite) const CHECKPOINT: i64 = 7;
}

/// Where a node stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Position {
    pub(super) seq: i64,
    /// The parent's `seq`; the node's own for a root.
    pub(super) parent: i64,
    /// An ancestor further away, so that any ancestor is few hops away.
    pub(super) jump: i64,
    pub(super) depth: i64,
    pub(super) session: Option<i64>,
}

/// How many rows after the cursor there can be.
pub(super) fn lag(connection: &Connection) -> Outcome<usize> {
    let mut statement = connection.prepare_cached(
        "SELECT coalesce((SELECT max(rowid) FROM nodes), 0) - coalesce((SELECT seq FROM quipu_x_cursor), -1)",
    )?;
    let lag: i64 = statement.query_row([], |row| rows::integer(row, 0))?;
    Ok(usize::try_from(lag).unwrap_or(0))
}

/// The last row number of a node: how many there are, or were.
pub(super) fn last(connection: &Connection) -> Outcome<u64> {
    let mut statement = connection.prepare_cached("SELECT coalesce(max(rowid), 0) FROM nodes")?;
    Ok(u64::try_from(statement.query_row([], |row| rows::integer(row, 0))?).unwrap_or(0))
}

/// Whether there are nodes that are not indexed.
pub(super) fn is_behind(connection: &Connection) -> Outcome<bool> {
    Ok(lag(connection)? > 0)
}

/// The row number of the last node that was taken.
pub(super) fn cursor(connection: &Connection) -> Outcome<i64> {
    Ok(connection.prepare_cached("SELECT seq FROM quipu_x_cursor")?.query_row([], |row| row.get(0))?)
}

/// The parts of a node; chunks are not read.
pub(super) struct Parts(pub(super) HashMap<BlobId, Blob>);

impl Lookup for Parts {
    fn blob(&self, id: &BlobId) -> Option<&Blob> {
        self.0.get(id)
    }

    fn chunk(&self, _: &ChunkId) -> Option<&[u8]> {
        None
    }
}

/// Where a node stands, when it is indexed.
pub(super) fn position(connection: &Connection, id: &NodeId) -> Outcome<Option<Position>> {
    // Both ids: a program that rewrites the file can give its rows other numbers.
    let mut statement = connection.prepare_cached(
        "SELECT x.seq, x.parent, x.jump, x.depth, x.session FROM nodes n JOIN quipu_x_node x ON x.seq = n.rowid \
         WHERE n.id = ?1 AND x.id = ?2",
    )?;
    Ok(statement.query_row(params![id.to_string(), id.0], to_position).optional()?)
}

/// Where the node of a `seq` stands.
pub(super) fn at(connection: &Connection, seq: i64) -> Outcome<Position> {
    let mut statement = connection
        .prepare_cached("SELECT seq, parent, jump, depth, session FROM quipu_x_node WHERE seq = ?1")?;
    Ok(statement.query_row([seq], to_position)?)
}

fn to_position(row: &rusqlite::Row<'_>) -> rusqlite::Result<Position> {
    let seq = row.get(0)?;
    Ok(Position {
        seq,
        parent: row.get::<_, Option<i64>>(1)?.unwrap_or(seq),
        jump: row.get(2)?,
        depth: row.get(3)?,
        session: row.get(4)?,
    })
}
