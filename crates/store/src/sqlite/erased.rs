//! The table of what was erased.

use quipu_protocol::{BlobId, ChunkId, NodeId};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::failure::Outcome;
use super::rows;
use crate::Erasure;

/// What a row of `quipu_erased` is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Node = 1,
    Blob = 2,
    Chunk = 3,
}

/// Notes that something is erased.
pub(super) fn note(connection: &Connection, kind: Kind, hash: &[u8; 32], why: &str) -> Outcome<()> {
    connection
        .prepare_cached("INSERT OR IGNORE INTO quipu_erased (hash, kind, at, why) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![hash, kind as i64, rows::now(), why])?;
    Ok(())
}

/// It is there again.
pub(super) fn forget(connection: &Connection, hash: &[u8; 32]) -> Outcome<()> {
    connection.prepare_cached("DELETE FROM quipu_erased WHERE hash = ?1")?.execute([hash])?;
    Ok(())
}

/// What is known of something that was erased.
pub(super) fn erasure(connection: &Connection, hash: &[u8; 32]) -> Outcome<Option<Erasure>> {
    let mut statement = connection.prepare_cached("SELECT at, why FROM quipu_erased WHERE hash = ?1")?;
    let read = |row: &rusqlite::Row<'_>| {
        Ok(Erasure { at: rows::integer(row, 0)?, why: rows::text(row, 1)?.unwrap_or_default().into_owned() })
    };
    Ok(statement.query_row([hash], read).optional()?)
}

/// Whether a node is erased.
pub(super) fn is_erased_node(connection: &Connection, id: &NodeId) -> Outcome<bool> {
    Ok(erasure(connection, &id.0)?.is_some())
}

/// The same of a text.
pub(super) fn is_erased_blob(connection: &Connection, id: &BlobId) -> Outcome<bool> {
    Ok(erasure(connection, &id.0)?.is_some())
}

/// What to say of bytes that were erased.
pub(super) fn chunk_in_words(connection: &Connection, id: &ChunkId) -> Outcome<String> {
    let name = format!("chunk {}", id.short());
    let Some(Erasure { at, why }) = erasure(connection, &id.0)? else { return Ok(name) };
    let day: Option<String> = connection
        .prepare_cached("SELECT strftime('%Y-%m-%d %H:%M', ?1 / 1000, 'unixepoch')")?
        .query_row([at], |row| row.get(0))?;
    Ok(format!("{name} (on {} UTC: {why})", day.unwrap_or_default()))
}
