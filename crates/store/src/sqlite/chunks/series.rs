//! Chunks that are read together: states of one file, each a small difference to the one before.

use quipu_protocol::ChunkId;
use rusqlite::{Connection, OptionalExtension as _};

use super::super::failure::{Failure, Outcome};
use super::resumed_hash::ResumedHash;
use super::{DELTA, Delta, assemble, base_of, damaged, delta, difference, fetch};
use crate::SeriesChunk;

/// The chunk that was read last: the next one of the series is given, and mostly kept, as a difference to it.
struct LastChunk {
    id: ChunkId,
    bytes: Vec<u8>,
    /// Of these bytes.
    hash: ResumedHash,
}

/// How many of the first are read together: at most as many as have `most` bytes, one at least. The last of them is one that
/// stands for itself where one does in their second half: what a difference is one to would be read for it alone.
fn together(connection: &Connection, ids: &[ChunkId], most: u64) -> Outcome<usize> {
    let mut heads = connection.prepare_cached("SELECT size, codec FROM quipu_chunk WHERE hash = ?1")?;
    let (mut count, mut left, mut whole) = (0, most, 0);
    for id in ids {
        let head: Option<(i64, i64)> =
            heads.query_row([id.0], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        let size = head.and_then(|(size, _)| u64::try_from(size).ok()).unwrap_or(0);
        if size > left && count > 0 {
            break;
        }
        (count, left) = (count + 1, left.saturating_sub(size));
        if head.is_some_and(|(_, codec)| codec != DELTA) {
            whole = count;
        }
    }
    Ok(if 2 * whole >= count { whole } else { count })
}

/// Whole chunks: as many of the first as are read [`together`]; `None` for one that cannot be read.
pub(in crate::sqlite) fn read_series(
    connection: &Connection,
    ids: &[ChunkId],
    most: u64,
) -> Outcome<Vec<Option<SeriesChunk>>> {
    let count = together(connection, ids, most)?;
    let mut found = Vec::with_capacity(count);
    let mut last: Option<LastChunk> = None;
    let whole = |last: LastChunk| Some(SeriesChunk::Whole(last.bytes.into()));
    // From the end: what one is the difference to stands behind it.
    for id in ids[..count].iter().rev() {
        match read_before(connection, *id, &mut last) {
            Ok(behind) => found.extend(behind.map(Some)),
            Err(Failure::Missing(_) | Failure::Erased(_) | Failure::Corrupt(_)) => {
                found.extend(last.take().map(whole));
                found.push(None);
            }
            Err(error) => return Err(error),
        }
    }
    found.extend(last.map(whole));
    found.reverse();
    Ok(found)
}

/// Reads the chunk that stands before the last one in the series; what the last one is beside it.
fn read_before(
    connection: &Connection,
    id: ChunkId,
    last: &mut Option<LastChunk>,
) -> Outcome<Option<SeriesChunk>> {
    let row = fetch(connection, id)?;
    if let Some(last) = last
        && row.codec == DELTA
        && base_of(&row.bytes) == Some(last.id)
    {
        let (prefix, middle, suffix) = difference(id, last.bytes.len(), &row)?;
        let end = last.bytes.len() - suffix;
        // Checked before anything is copied.
        let hash = last.hash.of([&last.bytes[..prefix], &middle, &last.bytes[end..]], prefix);
        if ChunkId(hash) != id {
            return Err(damaged(id, "its bytes do not match its id"));
        }
        let middle = last.bytes.splice(prefix..end, middle).collect();
        last.id = id;
        return Ok(Some(SeriesChunk::Changed { prefix, suffix, middle }));
    }
    let bytes = assemble(connection, id, row)?;
    let mut hash = ResumedHash::new();
    if ChunkId(hash.of([&bytes, &[], &[]], 0)) != id {
        return Err(damaged(id, "its bytes do not match its id"));
    }
    let behind = last.take().map(|last| {
        let Delta { prefix, suffix, middle } = delta(&bytes, &last.bytes);
        SeriesChunk::Changed { prefix, suffix, middle: middle.to_vec() }
    });
    *last = Some(LastChunk { id, bytes, hash });
    Ok(behind)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rusqlite::params;

    use super::super::super::schema;
    use super::super::{RecentChunks, deflate, encode, insert, read, sha256};
    use super::*;
    use crate::NewChunk;

    /// A damaged row costs what stands on it, whether it is read beside others or not.
    #[test]
    fn chunks_of_a_series_are_those_read_alone() {
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
        for most in [u64::MAX, 4_000] {
            let series = read_series(&connection, &ids, most).unwrap();
            let mut bytes = Vec::new();
            let series: Vec<Option<Vec<u8>>> = series
                .into_iter()
                .map(|chunk| {
                    chunk.map(|chunk| {
                        chunk.apply(&mut bytes);
                        bytes.clone()
                    })
                })
                .collect();
            assert!(!series.is_empty() && (most < u64::MAX || series.len() == alone.len()));
            assert_eq!(series, alone[..series.len()]);
        }
        // What differs much is still given as what stands between, and what differs little in few bytes.
        let series = read_series(&connection, &ids[6..], u64::MAX).unwrap();
        let changed = series.iter().flatten().filter_map(|chunk| match chunk {
            SeriesChunk::Changed { middle, .. } => Some(middle.len()),
            SeriesChunk::Whole(_) => None,
        });
        assert_eq!(changed.filter(|bytes| *bytes < 32).count(), 4, "{series:?}");
    }

    /// Edits all over a file: half of its bytes stand before the change, and are not hashed again.
    #[test]
    fn states_of_a_file_are_hashed_from_their_change_on() {
        let connection = Connection::open_in_memory().unwrap();
        schema::create(&connection).unwrap();
        let mut recent = RecentChunks::default();
        let mut lines: Vec<String> =
            (0..2_000).map(|at| format!("let value_{at} = compute(turn_0, {at});\n")).collect();
        let mut ids: Vec<ChunkId> = Vec::new();
        let mut sizes = 0;
        for turn in 1..=32 {
            lines[turn * 60] = format!("let value = compute(turn_{turn});\n");
            let bytes: Arc<[u8]> = lines.concat().into_bytes().into();
            sizes += bytes.len();
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
        // Those in the first half of a read are no reason for a shorter one, nor is one whose end stands for itself.
        ids.reverse();
        let whole = ids.len() - 1;
        for (from, count) in [(0, 32), (12, 20), (0, 40), (20, 13), (30, 10)] {
            let asked: Vec<ChunkId> = ids.iter().cycle().copied().skip(from).take(count).collect();
            let found = read_series(&connection, &asked, u64::MAX).unwrap().len();
            let own = asked.iter().rposition(|id| *id == ids[whole]).map_or(0, |at| at + 1);
            assert_eq!(found, if own * 2 >= count { own } else { count }, "{from} {count}");
        }
        ids.reverse();
        let mut last: Option<LastChunk> = None;
        for id in &ids {
            read_before(&connection, *id, &mut last).unwrap();
        }
        let last = last.unwrap();
        assert_eq!(last.bytes, lines.concat().as_bytes());
        assert!(last.hash.hashed < sizes * 6 / 10, "{} of {sizes} bytes were hashed", last.hash.hashed);
    }
}
