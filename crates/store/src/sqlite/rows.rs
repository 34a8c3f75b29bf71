//! Rows to objects. Files may come from other programs, so nothing about a value is taken for granted: what
//! cannot be read is left out, as the published reader does, and `check` tells of it.

use std::borrow::Cow;

use quipu_dag::{Blob, Node, NodeRecord, read_parts_list};
use quipu_protocol::{BlobId, ChunkId, NodeId, UnixMs};
use quipu_transcript::{INTERNAL, Lookup};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};

use super::failure::Outcome;

/// The columns of a node, for a table called `n`; read by [`node`].
pub(super) const NODE: &str = "n.id, n.parent_id, n.role, n.parts_list, n.timestamp, n.config_json, \
     n.thought_signatures, n.system_prompt_hash, n.external_id";

/// A value as text; what is not valid UTF-8 becomes U+FFFD. `None` for NULL.
pub(super) fn text<'a>(row: &'a Row<'_>, column: usize) -> rusqlite::Result<Option<Cow<'a, str>>> {
    Ok(match row.get_ref(column)? {
        ValueRef::Null => None,
        ValueRef::Integer(number) => Some(number.to_string().into()),
        ValueRef::Real(number) => Some(number.to_string().into()),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(match std::str::from_utf8(bytes) {
            Ok(text) => text.into(),
            Err(_) => String::from_utf8_lossy(bytes),
        }),
    })
}

/// A value as a whole number; other programs may have bound it as a float. 0 for anything else.
pub(super) fn integer(row: &Row<'_>, column: usize) -> rusqlite::Result<i64> {
    Ok(match row.get_ref(column)? {
        ValueRef::Integer(number) => number,
        #[expect(clippy::cast_possible_truncation, reason = "saturates, which is what is wanted")]
        ValueRef::Real(number) => number as i64,
        ValueRef::Null | ValueRef::Text(_) | ValueRef::Blob(_) => 0,
    })
}

/// A node's id as hexadecimal text.
pub(super) fn node_id(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<NodeId>> {
    Ok(text(row, column)?.and_then(|text| text.parse().ok()))
}

/// A node; `None` when its id is not a hash.
pub(super) fn node(row: &Row<'_>) -> rusqlite::Result<Option<Node>> {
    node_id(row, 0)?.map(|id| node_of(row, id)).transpose()
}

/// The node of a row whose id was read.
pub(super) fn node_of(row: &Row<'_>, id: NodeId) -> rusqlite::Result<Node> {
    let owned = |column| text(row, column).map(|text| text.map(Cow::into_owned));
    let record = NodeRecord {
        parent: node_id(row, 1)?,
        role: owned(2)?.unwrap_or_default(),
        parts: text(row, 3)?.map(|list| parts(&list)).unwrap_or_default(),
        timestamp: integer(row, 4)?,
        external_id: owned(8)?,
        system_prompt: text(row, 7)?.and_then(|text| text.parse().ok()),
    };
    Ok(Node { id, record, config: owned(5)?, thought_signatures: owned(6)? })
}

/// The parts of a node that are hashes.
pub(super) fn parts(list: &str) -> Vec<BlobId> {
    read_parts_list(list).unwrap_or_else(|_| {
        let items: Vec<Cow<'_, str>> = serde_json::from_str(list).unwrap_or_default();
        items.iter().filter_map(|item| item.parse().ok()).collect()
    })
}

/// A node by its id.
pub(super) fn find_node(connection: &Connection, id: &NodeId) -> Outcome<Option<Node>> {
    let mut statement = connection.prepare_cached(&format!("SELECT {NODE} FROM nodes n WHERE n.id = ?1"))?;
    let mut rows = statement.query([id.to_string()])?;
    Ok(match rows.next()? {
        Some(row) => node(row)?,
        None => None,
    })
}

/// A node by its row number.
pub(super) fn node_at(connection: &Connection, seq: i64) -> Outcome<Option<Node>> {
    let mut statement =
        connection.prepare_cached(&format!("SELECT {NODE} FROM nodes n WHERE n.rowid = ?1"))?;
    let mut rows = statement.query([seq])?;
    Ok(match rows.next()? {
        Some(row) => node(row)?,
        None => None,
    })
}

/// A blob by its id.
pub(super) fn find_blob(connection: &Connection, id: &BlobId) -> Outcome<Option<Blob>> {
    let mut statement = connection.prepare_cached("SELECT type, content FROM blobs WHERE hash = ?1")?;
    let mut rows = statement.query([id.to_string()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let owned = |column| text(row, column).map(|text| text.map(Cow::into_owned).unwrap_or_default());
    Ok(Some(Blob { id: *id, kind: owned(0)?, content: owned(1)? }))
}

/// What a node is ([`quipu_transcript::role_of`]): of those that are no messages, our own part tells it.
pub(super) fn role_of<'a>(connection: &Connection, node: &'a Node) -> Outcome<&'a str> {
    struct Part(Option<Blob>);
    impl Lookup for Part {
        fn blob(&self, id: &BlobId) -> Option<&Blob> {
            self.0.as_ref().filter(|blob| blob.id == *id)
        }
        fn chunk(&self, _: &ChunkId) -> Option<&[u8]> {
            None
        }
    }
    let record = &node.record;
    let (INTERNAL, [_, .., last]) = (record.role.as_str(), &record.parts[..]) else {
        return Ok(&record.role);
    };
    let mut statement =
        connection.prepare_cached("SELECT type, content FROM blobs WHERE hash = ?1 AND type = 'quipu'")?;
    let mut rows = statement.query([last.to_string()])?;
    let own = match rows.next()? {
        Some(row) => {
            let owned = |column| text(row, column).map(|text| text.map(Cow::into_owned).unwrap_or_default());
            Some(Blob { id: *last, kind: owned(0)?, content: owned(1)? })
        }
        None => None,
    };
    Ok(quipu_transcript::role_of(node, &Part(own)))
}

/// Milliseconds since the epoch.
pub(super) fn now() -> UnixMs {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
