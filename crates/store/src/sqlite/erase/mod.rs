//! Content is found in the tables, and erased from them and from the file.
//!
//! A node that is erased keeps its row, its id and its place: its parts are replaced by what
//! [`quipu_transcript::erased_part`] leaves of them. Texts and bytes that nothing else names are replaced by rows without
//! content, so that an import which meets them again does not bring them back. `quipu_erased` says what was erased, when and
//! why. All of that is one transaction; then the file is written anew and the log is cut, and until that is done a mark stands
//! in `quipu_meta`, by which the next call goes on.

mod holders;
mod rewrite;
mod scope;
mod scrub;
mod seek;

use std::collections::HashSet;

use quipu_dag::{Blob, Verdict};
use quipu_protocol::{BlobId, ChunkId, NodeId};
use quipu_transcript::{emptied_part, erased_part};
use rusqlite::{Connection, OptionalExtension as _, params};

pub use self::holders::{IsDead, StoreHolder};
pub(super) use self::scrub::shrink;
use super::failure::Outcome;
use super::{chunks, rows};
use crate::{EraseTargets, Erasure, Needles, Selection};

/// What a row of `quipu_erased` is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Node = 1,
    Blob = 2,
    Chunk = 3,
}

/// Notes that something is erased.
fn note(connection: &Connection, kind: Kind, hash: &[u8; 32], why: &str) -> Outcome<()> {
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

/// Whether a text is what an erasure leaves.
pub(super) fn is_left(blob: &Blob) -> bool {
    erased_part(blob).content == blob.content || emptied_part(blob).content == blob.content
}

/// Erases anew what is noted as erased and is there all the same. Within the caller's transaction.
pub(super) fn again(connection: &Connection) -> Outcome<()> {
    let mut statement = connection.prepare("SELECT hash, kind, why FROM quipu_erased")?;
    let read = |row: &rusqlite::Row<'_>| {
        let why = rows::text(row, 2)?.unwrap_or_default().into_owned();
        Ok((row.get::<_, [u8; 32]>(0)?, row.get::<_, i64>(1)?, why))
    };
    let noted: Vec<_> = statement.query_map([], read)?.collect::<Result<_, _>>()?;
    for (hash, kind, why) in noted {
        let mut selection = Selection::default();
        if kind == Kind::Node as i64 {
            let node = rows::find_node(connection, &NodeId(hash))?;
            if node.is_some_and(|node| node.verify() == Verdict::Valid) {
                selection.nodes.push(NodeId(hash));
            }
        } else if kind == Kind::Blob as i64 {
            let blob = rows::find_blob(connection, &BlobId(hash))?;
            if blob.is_some_and(|blob| blob.verify() == Verdict::Valid && !is_left(&blob)) {
                selection.blobs.push(BlobId(hash));
            }
        } else {
            chunks::stand_alone(connection, &HashSet::from([ChunkId(hash)]))?;
            chunks::empty(connection, &ChunkId(hash))?;
        }
        if !selection.is_empty() {
            forget(connection, &hash)?;
            let targets = EraseTargets { selection, why };
            rewrite::erase(connection, &targets, &Needles::default(), &|_| true)?;
        }
    }
    Ok(())
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
