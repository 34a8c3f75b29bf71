//! Entries that stand in several sessions. A program that forks a session copies what was said into another file, with its
//! ids and times; what follows what may change by that, and so each copy is a node of its own. One of them counts: that
//! of the session that began first, so that the order in which files were imported does not matter.

use quipu_dag::Node;
use quipu_protocol::BlobId;
use rusqlite::Connection;

use super::failure::Outcome;
use super::rows;

/// Nodes of one id that are looked at, those that came first.
const MOST: usize = 64;

/// A node that says what another one says.
pub(super) struct Twin {
    pub(super) seq: i64,
    pub(super) session: i64,
    rank: Rank,
}

/// The lowest one counts: of a session of ours, of the one that began first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    is_other: bool,
    began: i64,
    session: String,
    seq: i64,
}

/// What a node is among those that say the same.
#[derive(Default)]
pub(super) struct Twins {
    /// Itself, where it is one of those that are looked at.
    own: Option<Rank>,
    /// In other sessions.
    pub(super) others: Vec<Twin>,
}

impl Twins {
    /// Those of a node of this session.
    pub(super) fn of(connection: &Connection, seq: i64, session: i64, node: &Node) -> Outcome<Self> {
        let mut twins = Self::default();
        let Some(id) = node.record.external_id.as_deref().filter(|id| !id.is_empty()) else {
            return Ok(twins);
        };
        // Nearly always it is the only one, which the index tells.
        let mut statement =
            connection.prepare_cached("SELECT rowid FROM nodes WHERE external_id = ?1 LIMIT 2")?;
        if statement.query_map([id], |_| Ok(()))?.count() < 2 {
            return Ok(twins);
        }
        let mut statement = connection.prepare_cached(
            "SELECT n.rowid, n.role, n.timestamp, n.parts_list, x.session, s.agent <> 'quipu', s.created, s.id FROM nodes n \
             CROSS JOIN quipu_x_node x ON x.seq = n.rowid CROSS JOIN quipu_x_session s ON s.num = x.session \
             WHERE n.external_id = ?1 ORDER BY n.rowid LIMIT ?2",
        )?;
        let mut found = statement.query(rusqlite::params![id, MOST as i64])?;
        while let Some(row) = found.next()? {
            let other: i64 = row.get(0)?;
            let of = row.get(4)?;
            let rank = Rank { is_other: row.get(5)?, began: row.get(6)?, session: row.get(7)?, seq: other };
            if of == session {
                // Twice in one file it was said twice.
                twins.own = Some(rank).filter(|_| other == seq).or(twins.own);
                continue;
            }
            let parts = rows::parts(&rows::text(row, 3)?.unwrap_or_default());
            if rows::text(row, 1)?.as_deref() == Some(node.record.role.as_str())
                && rows::integer(row, 2)? == node.record.timestamp
                && is_same(connection, &node.record.parts, &parts)?
            {
                twins.others.push(Twin { seq: other, session: of, rank });
            }
        }
        Ok(twins)
    }

    /// Whether the node itself comes after another one, and so does not count where that does.
    pub(super) fn is_after(&self, other: &Twin) -> bool {
        self.own.as_ref().is_none_or(|own| other.rank < *own)
    }

    /// The first of those for which this holds.
    pub(super) fn first(&self, mut holds: impl FnMut(&Twin) -> Outcome<bool>) -> Outcome<Option<&Twin>> {
        let mut first: Option<&Twin> = None;
        for twin in &self.others {
            if first.is_none_or(|first| twin.rank < first.rank) && holds(twin)? {
                first = Some(twin);
            }
        }
        Ok(first)
    }
}

/// Whether parts say the same. Our own part has the place in the file, and an entry that is no message stands as it was, with what
/// it followed there.
fn is_same(connection: &Connection, a: &[BlobId], b: &[BlobId]) -> Outcome<bool> {
    if a.len() != b.len() {
        return Ok(false);
    }
    let mut statement =
        connection.prepare_cached("SELECT 1 FROM blobs WHERE hash = ?1 AND type IN ('quipu', 'pi_meta')")?;
    for (a, b) in a.iter().zip(b).filter(|(a, b)| a != b) {
        if !statement.exists([a.to_string()])? || !statement.exists([b.to_string()])? {
            return Ok(false);
        }
    }
    Ok(true)
}
