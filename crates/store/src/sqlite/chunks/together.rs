//! Chunks that are read together: states of one file, each a small difference to the one before.

use std::sync::Arc;

use quipu_protocol::ChunkId;
use rusqlite::{Connection, OptionalExtension as _};

use super::super::failure::{Failure, Outcome};
use super::{RecentChunks, fetch, read_beside};

/// Whole chunks: as many of the first as have `most` bytes together, one at least; `None` for one that cannot be read.
pub(in crate::sqlite) fn read_together(
    connection: &Connection,
    ids: &[ChunkId],
    most: u64,
) -> Outcome<Vec<Option<Arc<[u8]>>>> {
    let mut sizes = connection.prepare_cached("SELECT size FROM quipu_chunk WHERE hash = ?1")?;
    let (mut count, mut left) = (0, most);
    for id in ids {
        let size: Option<i64> = sizes.query_row([id.0], |row| row.get(0)).optional()?;
        let size = size.and_then(|size| u64::try_from(size).ok()).unwrap_or(0);
        if size > left && count > 0 {
            break;
        }
        (count, left) = (count + 1, left.saturating_sub(size));
    }
    let mut recent = RecentChunks::default();
    let mut found = Vec::with_capacity(count);
    // From the end: what one is the difference to stands behind it.
    for id in ids[..count].iter().rev() {
        let read = fetch(connection, *id).and_then(|row| read_beside(connection, *id, row, &mut recent));
        found.push(match read {
            Ok(bytes) => Some(bytes),
            Err(Failure::Missing(_) | Failure::Erased(_) | Failure::Corrupt(_)) => None,
            Err(error) => return Err(error),
        });
    }
    found.reverse();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use rusqlite::params;

    use super::super::super::schema;
    use super::super::{deflate, encode, insert, read, sha256};
    use super::*;
    use crate::NewChunk;

    /// A damaged row costs what stands on it, whether it is read beside others or not.
    #[test]
    fn chunks_read_together_are_those_read_alone() {
        let connection = Connection::open_in_memory().unwrap();
        schema::create(&connection).unwrap();
        let mut recent = RecentChunks::default();
        let mut ids: Vec<ChunkId> = Vec::new();
        for at in 0..12_usize {
            let bytes: Arc<[u8]> =
                format!("{}{at}{}", "before ".repeat(90), "behind ".repeat(90 + at)).into_bytes().into();
            let id = sha256(&bytes);
            let new = match ids.last() {
                Some(base) => NewChunk::Delta { id, base: *base, bytes },
                None => NewChunk::Full { id, bytes },
            };
            let new = [new];
            let rows = encode(&connection, &new, &mut recent).unwrap();
            insert(&connection, &rows, &new, true).unwrap();
            ids.push(id);
        }
        // Still a difference, to what it was one to, with other bytes in the middle.
        let other = deflate(b"x").unwrap();
        connection
            .execute(
                "UPDATE quipu_chunk SET bytes = CAST(substr(bytes, 1, 49) || ?2 AS BLOB) WHERE hash = ?1",
                params![ids[5].0, other],
            )
            .unwrap();
        ids.reverse();
        let alone: Vec<Option<Vec<u8>>> =
            ids.iter().map(|id| read(&connection, *id, 0..u64::MAX).ok()).collect();
        assert_eq!(alone.iter().filter(|bytes| bytes.is_none()).count(), 7);
        let together = read_together(&connection, &ids, u64::MAX).unwrap();
        let together: Vec<Option<Vec<u8>>> =
            together.into_iter().map(|bytes| bytes.map(|bytes| bytes.to_vec())).collect();
        assert_eq!(together, alone);
    }
}
