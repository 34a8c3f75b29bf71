//! Content is found in the tables, and erased from them and from the file.
//!
//! A node that is erased keeps its row, its id and its place: its parts are replaced by what
//! [`quipu_transcript::erased_part`] leaves of them. Texts and bytes that nothing else names are replaced by rows without
//! content, so that an import which meets them again does not bring them back. `quipu_erased` says what was erased, when and
//! why. All of that is one transaction; then the file is written anew and the WAL is cut, and until that is done a mark stands
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
use rusqlite::Connection;

pub use self::holders::{OwnerDeathCheck, StoreHolder};
pub(super) use self::scrub::shrink;
use super::erased::{Kind, forget};
use super::failure::Outcome;
use super::{chunks, rows};
use crate::{EraseTargets, Needles, Selection};

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
