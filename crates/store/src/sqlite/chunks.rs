//! Plain bytes: kept whole, compressed, as a difference to other bytes, or in pieces.

mod resumed_hash;
mod series;
mod spliced;

use std::cell::RefCell;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use quipu_protocol::ChunkId;
use rusqlite::{Connection, OptionalExtension as _, params};
use sha2::{Digest as _, Sha256};

pub(super) use self::series::read_series;
use self::spliced::SplicedBytes;
use super::failure::{Failure, Outcome};
use crate::{CHUNK_LIMIT, NewChunk, StoreError};

const RAW: i64 = 0;
const DEFLATED: i64 = 1;
const DELTA: i64 = 2;
const PIECES: i64 = 3;
/// Of bytes that were erased, nothing.
const ERASED: i64 = 4;

/// Larger chunks are kept in pieces.
const WHOLE: usize = 4 << 20;
/// Bytes of a piece.
const PIECE: usize = 1 << 20;
/// Differences in a row at most; then the bytes are kept whole again.
const DEPTH: u8 = 32;
/// Bytes that are compared at once: bodies of requests are long and begin alike.
const BLOCK: usize = 256;
/// Bytes that one byte of a compressed row can hold, at most.
const MOST_INFLATED: usize = 1_032;
/// Depth, base, prefix, suffix.
const DELTA_HEADER: usize = 1 + 32 + 8 + 8;

/// How one text of bytes differs from another: the bytes between what both begin and end with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delta<'a> {
    /// Bytes that both begin with.
    pub prefix: usize,
    /// Bytes that both end with.
    pub suffix: usize,
    /// What stands between them in the new bytes.
    pub middle: &'a [u8],
}

/// The difference from `base` to `bytes`.
pub fn delta<'a>(base: &[u8], bytes: &'a [u8]) -> Delta<'a> {
    let blocks = base.chunks_exact(BLOCK).zip(bytes.chunks_exact(BLOCK));
    let prefix = blocks.take_while(|(a, b)| a == b).count() * BLOCK;
    let prefix = prefix + common(base[prefix..].iter(), bytes[prefix..].iter());
    let (base, rest) = (&base[prefix..], &bytes[prefix..]);
    let blocks = base.rchunks_exact(BLOCK).zip(rest.rchunks_exact(BLOCK));
    let suffix = blocks.take_while(|(a, b)| a == b).count() * BLOCK;
    let (base, rest) = (&base[..base.len() - suffix], &rest[..rest.len() - suffix]);
    let suffix = suffix + common(base.iter().rev(), rest.iter().rev());
    Delta { prefix, suffix, middle: &bytes[prefix..bytes.len() - suffix] }
}

fn common<'a>(a: impl Iterator<Item = &'a u8>, b: impl Iterator<Item = &'a u8>) -> usize {
    a.zip(b).take_while(|(a, b)| a == b).count()
}

/// A row of the table.
pub(super) struct EncodedChunk {
    id: ChunkId,
    codec: i64,
    size: usize,
    bytes: Vec<u8>,
}

/// The chunks that were written last, so that the next difference needs no reading.
#[derive(Default)]
pub(super) struct RecentChunks(std::collections::VecDeque<(ChunkId, Arc<[u8]>)>);

impl RecentChunks {
    const ITEMS: usize = 8;
    const BYTES: usize = 8 << 20;

    fn get(&self, id: &ChunkId) -> Option<Arc<[u8]>> {
        self.0.iter().find(|(have, _)| have == id).map(|(_, bytes)| Arc::clone(bytes))
    }

    fn put(&mut self, id: ChunkId, bytes: &Arc<[u8]>) {
        if bytes.len() > Self::BYTES || self.get(&id).is_some() {
            return;
        }
        self.0.truncate(Self::ITEMS - 1);
        self.0.push_front((id, Arc::clone(bytes)));
    }
}

/// Makes the rows for chunks that are not there yet. Before the transaction: compressing takes time.
pub(super) fn encode(
    connection: &Connection,
    chunks: &[NewChunk],
    recent: &mut RecentChunks,
) -> Outcome<Vec<EncodedChunk>> {
    let mut rows = Vec::new();
    for chunk in chunks {
        let (id, bytes): (&ChunkId, &[u8]) = match chunk {
            NewChunk::Full { id, bytes }
            | NewChunk::Plain { id, bytes }
            | NewChunk::Delta { id, bytes, .. } => (id, bytes),
            NewChunk::Grown { id, bytes, .. } => (id, bytes),
        };
        debug_assert_eq!(*id, sha256(bytes), "a chunk's id is the SHA-256 of its bytes");
        limit(bytes.len())?;
        if !exists(connection, id)? {
            let difference = match chunk {
                NewChunk::Full { .. } => None,
                NewChunk::Plain { .. } if bytes.len() <= WHOLE => {
                    Some(EncodedChunk { id: *id, codec: RAW, size: bytes.len(), bytes: bytes.to_vec() })
                }
                NewChunk::Plain { .. } => None,
                NewChunk::Delta { base, .. } => encode_delta(connection, *id, *base, bytes, recent)?,
                NewChunk::Grown { base, prefix, .. } => {
                    let prefix = usize::try_from(*prefix).unwrap_or(usize::MAX).min(bytes.len());
                    let depth = depth_below(connection, *base)?;
                    let alike = Delta { prefix, suffix: 0, middle: &bytes[prefix..] };
                    depth.and_then(|depth| encode_difference(*id, *base, depth, bytes.len(), alike))
                }
            };
            match difference {
                Some(row) => rows.push(row),
                None => encode_full(connection, *id, bytes, &mut rows)?,
            }
        }
        match chunk {
            NewChunk::Full { id, bytes }
            | NewChunk::Plain { id, bytes }
            | NewChunk::Delta { id, bytes, .. } => {
                recent.put(*id, bytes);
            }
            // The next difference to it needs none of its bytes.
            NewChunk::Grown { .. } => {}
        }
    }
    Ok(rows)
}

/// Reads a chunk that a difference will be made to. One that cannot be read is met again then.
pub(super) fn read_base(connection: &Connection, id: ChunkId, recent: &mut RecentChunks) {
    if recent.get(&id).is_none()
        && let Ok(bytes) = read(connection, id, 0..u64::MAX)
    {
        recent.put(id, &bytes.into());
    }
    // What compresses is made as well.
    COMPRESS.with_borrow_mut(Compress::reset);
}

/// Writes the rows that were made for these chunks. What was erased is there again only where the commit `revives`.
pub(super) fn insert(
    connection: &Connection,
    rows: &[EncodedChunk],
    chunks: &[NewChunk],
    revives: bool,
) -> Outcome<()> {
    let there = write(connection, rows)?;
    if revives {
        revive(connection, &there)?;
    }
    for chunk in chunks {
        let (id, bytes): (&ChunkId, &[u8]) = match chunk {
            NewChunk::Full { id, bytes }
            | NewChunk::Plain { id, bytes }
            | NewChunk::Delta { id, bytes, .. } => (id, bytes),
            NewChunk::Grown { id, bytes, .. } => (id, bytes),
        };
        let is_erased = match head(connection, id)? {
            Some((ERASED, _)) => true,
            Some((DELTA, header)) => match base_of(&header) {
                Some(base) if exists(connection, &base)? => continue,
                _ => false,
            },
            Some(_) => continue,
            None => false,
        };
        if is_erased && !revives {
            continue;
        }
        // It was there, or what it is the difference to, and was dropped or erased meanwhile.
        remove(connection, id)?;
        let mut rows = Vec::new();
        encode_full(connection, *id, bytes, &mut rows)?;
        let there = write(connection, &rows)?;
        if revives {
            revive(connection, &there)?;
            super::erased::forget(connection, &id.0)?;
        }
    }
    Ok(())
}

fn base_of(header: &[u8]) -> Option<ChunkId> {
    header.get(1..33).and_then(|base| base.try_into().ok()).map(ChunkId)
}

/// Bytes that a chunk takes, its own, and what it is the difference to; `None` when it is not there.
pub(super) fn kept(connection: &Connection, id: &ChunkId) -> Outcome<Option<(u64, u64, Option<ChunkId>)>> {
    let mut statement = connection.prepare_cached(
        "SELECT codec, length(bytes), size, CASE codec WHEN ?2 THEN substr(bytes, 1, 33) ELSE x'' END \
         FROM quipu_chunk WHERE hash = ?1 AND codec <> ?3",
    )?;
    let read = |row: &rusqlite::Row<'_>| {
        let (codec, bytes, size): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let header: Vec<u8> = row.get(3)?;
        Ok((bytes.unsigned_abs(), size.unsigned_abs(), base_of(&header).filter(|_| codec == DELTA)))
    };
    Ok(statement.query_row(params![id.0, DELTA, ERASED], read).optional()?)
}

/// Removes the row of a chunk; gives its bytes as they were kept.
pub(super) fn remove(connection: &Connection, id: &ChunkId) -> Outcome<Option<u64>> {
    let mut statement =
        connection.prepare_cached("DELETE FROM quipu_chunk WHERE hash = ?1 RETURNING length(bytes)")?;
    let removed: Option<i64> = statement.query_row([id.0], |row| row.get(0)).optional()?;
    Ok(removed.map(i64::unsigned_abs))
}

/// Keeps for themselves those chunks that are the difference to one of these, before these go.
pub(super) fn stand_alone(connection: &Connection, go: &HashSet<ChunkId>) -> Outcome<()> {
    let mut statement =
        connection.prepare("SELECT hash, substr(bytes, 1, 33) FROM quipu_chunk WHERE codec = ?1")?;
    let rows =
        statement.query_map([DELTA], |row| Ok((row.get::<_, [u8; 32]>(0)?, row.get::<_, Vec<u8>>(1)?)))?;
    let mut stay = Vec::new();
    for row in rows {
        let (id, header) = row?;
        if base_of(&header).is_some_and(|base| go.contains(&base)) && !go.contains(&ChunkId(id)) {
            stay.push(ChunkId(id));
        }
    }
    for id in stay {
        // One that is damaged stays so, and is told by a check.
        let bytes = match read(connection, id, 0..u64::MAX) {
            Ok(bytes) => bytes,
            Err(Failure::Corrupt(_) | Failure::Missing(_) | Failure::Erased(_)) => continue,
            Err(error) => return Err(error),
        };
        remove(connection, &id)?;
        let mut rows = Vec::new();
        encode_full(connection, id, &bytes, &mut rows)?;
        write(connection, &rows)?;
    }
    Ok(())
}

/// Leaves of a chunk nothing but its row, which says that it was erased; gives its bytes as they were kept.
pub(super) fn empty(connection: &Connection, id: &ChunkId) -> Outcome<Option<u64>> {
    let Some((bytes, ..)) = kept(connection, id)? else { return Ok(None) };
    connection
        .prepare_cached("UPDATE quipu_chunk SET codec = ?2, size = 0, bytes = x'' WHERE hash = ?1")?
        .execute(params![id.0, ERASED])?;
    Ok(Some(bytes))
}

/// Puts bytes back in the place of those that were erased: somebody has them anew. Not as differences, whose base may be
/// gone by now.
fn revive(connection: &Connection, rows: &[&EncodedChunk]) -> Outcome<()> {
    for row in rows.iter().filter(|row| row.codec != DELTA) {
        let put = connection
            .prepare_cached(
                "UPDATE quipu_chunk SET codec = ?2, size = ?3, bytes = ?4 WHERE hash = ?1 AND codec = ?5",
            )?
            .execute(params![
                row.id.0,
                row.codec,
                i64::try_from(row.size).unwrap_or(i64::MAX),
                row.bytes,
                ERASED
            ])?;
        if put > 0 {
            super::erased::forget(connection, &row.id.0)?;
        }
    }
    Ok(())
}

/// The chunks that are made of any of these as pieces.
pub(super) fn owners_of(connection: &Connection, pieces: &HashSet<ChunkId>) -> Outcome<Vec<ChunkId>> {
    let mut statement = connection.prepare("SELECT hash, bytes FROM quipu_chunk WHERE codec = ?1")?;
    let rows =
        statement.query_map([PIECES], |row| Ok((row.get::<_, [u8; 32]>(0)?, row.get::<_, Vec<u8>>(1)?)))?;
    let mut owners = Vec::new();
    for row in rows {
        let (id, list) = row?;
        let mut list = list.chunks_exact(32).filter_map(|piece| piece.try_into().ok()).map(ChunkId);
        if list.any(|piece| pieces.contains(&piece)) {
            owners.push(ChunkId(id));
        }
    }
    Ok(owners)
}

/// Whether a chunk holds what is looked for. Going through chunks in the order in which they were written, `recent` spares
/// following the same differences again and again.
pub(super) fn holds(
    connection: &Connection,
    id: ChunkId,
    needles: &crate::Needles,
    recent: &mut RecentChunks,
) -> Outcome<bool> {
    let row = fetch(connection, id)?;
    if row.codec != PIECES {
        let base = if row.codec == DELTA { read_header(&row.bytes).map(|(base, ..)| base) } else { None };
        let bytes: Arc<[u8]> = match base.and_then(|base| recent.get(&base)) {
            Some(base) => apply(id, &base, &row)?.into(),
            None => assemble(connection, id, row)?.into(),
        };
        recent.put(id, &bytes);
        return Ok(needles.are_in(&bytes));
    }
    let (piece, over) = (PIECE as u64, needles.longest() as u64);
    for at in (0..row.size).step_by(PIECE) {
        let end = (at + piece + over).min(row.size);
        if needles.are_in(&read_pieces(connection, id, &row, at..end)?) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The pieces of these chunks, and of all others that are kept in pieces.
pub(super) fn pieces(
    connection: &Connection,
    of: &HashSet<ChunkId>,
) -> Outcome<(HashSet<ChunkId>, HashSet<ChunkId>)> {
    let mut statement = connection.prepare("SELECT hash, bytes FROM quipu_chunk WHERE codec = ?1")?;
    let rows =
        statement.query_map([PIECES], |row| Ok((row.get::<_, [u8; 32]>(0)?, row.get::<_, Vec<u8>>(1)?)))?;
    let (mut theirs, mut others) = (HashSet::new(), HashSet::new());
    for row in rows {
        let (id, list) = row?;
        let list = list.chunks_exact(32).filter_map(|piece| piece.try_into().ok()).map(ChunkId);
        if of.contains(&ChunkId(id)) { theirs.extend(list) } else { others.extend(list) }
    }
    Ok((theirs, others))
}

/// Gives those that were there already.
fn write<'a>(connection: &Connection, rows: &'a [EncodedChunk]) -> Outcome<Vec<&'a EncodedChunk>> {
    let mut there = Vec::new();
    if rows.is_empty() {
        return Ok(there);
    }
    let mut statement = connection.prepare_cached(
        // Kept as a difference meanwhile, by others in this transaction or by another process: a piece of larger
        // bytes must stand for itself.
        "INSERT INTO quipu_chunk (hash, codec, size, bytes) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (hash) \
         DO UPDATE SET codec = excluded.codec, bytes = excluded.bytes WHERE codec = ?5 AND excluded.codec IN (?6, ?7)",
    )?;
    for row in rows {
        let written = statement.execute(params![
            row.id.0,
            row.codec,
            i64::try_from(row.size).unwrap_or(i64::MAX),
            row.bytes,
            DELTA,
            RAW,
            DEFLATED
        ])?;
        if written == 0 {
            there.push(row);
        }
    }
    Ok(there)
}

fn limit(size: usize) -> Outcome<()> {
    let size = size as u64;
    if size > CHUNK_LIMIT {
        return Err(StoreError::TooLarge {
            what: "a chunk of plain bytes".to_owned(),
            size,
            limit: CHUNK_LIMIT,
        }
        .into());
    }
    Ok(())
}

fn exists(connection: &Connection, id: &ChunkId) -> Outcome<bool> {
    let mut statement =
        connection.prepare_cached("SELECT 1 FROM quipu_chunk WHERE hash = ?1 AND codec <> ?2")?;
    Ok(statement.exists(params![id.0, ERASED])?)
}

/// Whether a chunk is there that stands for itself.
fn is_whole(connection: &Connection, id: &ChunkId) -> Outcome<bool> {
    let mut statement =
        connection.prepare_cached("SELECT 1 FROM quipu_chunk WHERE hash = ?1 AND codec IN (?2, ?3)")?;
    Ok(statement.exists(params![id.0, RAW, DEFLATED])?)
}

fn encode_full(
    connection: &Connection,
    id: ChunkId,
    bytes: &[u8],
    rows: &mut Vec<EncodedChunk>,
) -> Outcome<()> {
    if bytes.len() <= WHOLE {
        rows.push(encode_whole(id, bytes));
        return Ok(());
    }
    let mut list = Vec::with_capacity(bytes.len().div_ceil(PIECE) * 32);
    for piece in bytes.chunks(PIECE) {
        let id = sha256(piece);
        list.extend_from_slice(&id.0);
        if !is_whole(connection, &id)? {
            rows.push(encode_whole(id, piece));
        }
    }
    rows.push(EncodedChunk { id, codec: PIECES, size: bytes.len(), bytes: list });
    Ok(())
}

fn encode_whole(id: ChunkId, bytes: &[u8]) -> EncodedChunk {
    // What hardly shrinks (images, archives) is faster to read as it is.
    match deflate(bytes).filter(|deflated| deflated.len() < bytes.len() - bytes.len() / 20) {
        Some(deflated) => EncodedChunk { id, codec: DEFLATED, size: bytes.len(), bytes: deflated },
        None => EncodedChunk { id, codec: RAW, size: bytes.len(), bytes: bytes.to_vec() },
    }
}

fn encode_delta(
    connection: &Connection,
    id: ChunkId,
    base: ChunkId,
    bytes: &[u8],
    recent: &RecentChunks,
) -> Outcome<Option<EncodedChunk>> {
    let Some(depth) = depth_below(connection, base)? else { return Ok(None) };
    let from = match recent.get(&base) {
        Some(bytes) => bytes,
        // A damaged base is no reason to lose the new bytes.
        None => match read(connection, base, 0..u64::MAX) {
            Ok(bytes) => bytes.into(),
            Err(Failure::Corrupt(_) | Failure::Missing(_) | Failure::Erased(_)) => return Ok(None),
            Err(error) => return Err(error),
        },
    };
    Ok(encode_difference(id, base, depth, bytes.len(), delta(&from, bytes)))
}

/// How many differences a difference to `base` would stand on; `None` when there are too many, or no base. How many
/// the base itself stands on is in its row.
fn depth_below(connection: &Connection, base: ChunkId) -> Outcome<Option<u8>> {
    let depth = match head(connection, &base)? {
        None => return Ok(None),
        Some((DELTA, header)) => header.first().copied().unwrap_or(DEPTH),
        Some((ERASED, _)) => return Ok(None),
        Some(_) => 0,
    };
    Ok(Some(depth).filter(|depth| *depth < DEPTH))
}

fn encode_difference(
    id: ChunkId,
    base: ChunkId,
    depth: u8,
    size: usize,
    difference: Delta<'_>,
) -> Option<EncodedChunk> {
    if difference.middle.len() > WHOLE || difference.middle.len() > size / 2 {
        return None;
    }
    let middle = deflate(difference.middle)?;
    let mut row = Vec::with_capacity(DELTA_HEADER + middle.len());
    row.push(depth + 1);
    row.extend_from_slice(&base.0);
    row.extend_from_slice(&(difference.prefix as u64).to_le_bytes());
    row.extend_from_slice(&(difference.suffix as u64).to_le_bytes());
    row.extend_from_slice(&middle);
    Some(EncodedChunk { id, codec: DELTA, size, bytes: row })
}

/// Codec of a chunk, and the first bytes of a difference: of others, which may be large, none are read.
fn head(connection: &Connection, id: &ChunkId) -> Outcome<Option<(i64, Vec<u8>)>> {
    let mut statement = connection.prepare_cached(
        "SELECT codec, CASE codec WHEN ?2 THEN substr(bytes, 1, 49) ELSE x'' END FROM quipu_chunk WHERE hash = ?1",
    )?;
    Ok(statement.query_row(params![id.0, DELTA], |row| Ok((row.get(0)?, row.get(1)?))).optional()?)
}

/// Bytes of a chunk, checked against its id; of one in pieces, only the pieces that the range touches.
pub(super) fn read(connection: &Connection, id: ChunkId, range: Range<u64>) -> Outcome<Vec<u8>> {
    let row = fetch(connection, id)?;
    let (start, end) = (range.start.min(row.size), range.end.min(row.size).max(range.start.min(row.size)));
    if row.codec == PIECES && (start, end) != (0, row.size) {
        return read_pieces(connection, id, &row, start..end);
    }
    let whole = assemble(connection, id, row)?;
    if sha256(&whole) != id {
        return Err(damaged(id, "its bytes do not match its id"));
    }
    let (start, end) = (narrow(start), narrow(end));
    if (start, end) == (0, whole.len()) {
        return Ok(whole);
    }
    Ok(whole[start..end].to_vec())
}

/// Whether a chunk can be read and is what its id says. Going through chunks in the order in which they were
/// written, `recent` spares following the same differences again and again.
pub(super) fn verify(connection: &Connection, id: ChunkId, recent: &mut RecentChunks) -> Outcome<()> {
    let row = fetch(connection, id)?;
    if row.codec == PIECES {
        let mut hash = Sha256::new();
        let piece = PIECE as u64;
        for at in (0..row.size).step_by(PIECE) {
            hash.update(read_pieces(connection, id, &row, at..(at + piece).min(row.size))?);
        }
        let whole = ChunkId(hash.finalize().into());
        return if whole == id { Ok(()) } else { Err(damaged(id, "its pieces do not match its id")) };
    }
    read_beside(connection, id, row, recent).map(drop)
}

/// The whole bytes, checked; made of what they are the difference to, where that was checked just before.
fn read_beside(
    connection: &Connection,
    id: ChunkId,
    row: StoredChunk,
    recent: &mut RecentChunks,
) -> Outcome<Arc<[u8]>> {
    let base = if row.codec == DELTA { read_header(&row.bytes).map(|(base, ..)| base) } else { None };
    let bytes = match base.and_then(|base| recent.get(&base)) {
        Some(base) => apply(id, &base, &row)?,
        None => assemble(connection, id, row)?,
    };
    if sha256(&bytes) != id {
        return Err(damaged(id, "its bytes do not match its id"));
    }
    let bytes: Arc<[u8]> = bytes.into();
    recent.put(id, &bytes);
    Ok(bytes)
}

struct StoredChunk {
    codec: i64,
    size: u64,
    bytes: Vec<u8>,
}

fn fetch(connection: &Connection, id: ChunkId) -> Outcome<StoredChunk> {
    let mut statement =
        connection.prepare_cached("SELECT codec, size, bytes FROM quipu_chunk WHERE hash = ?1")?;
    let row = statement
        .query_row([id.0], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?, row.get(2)?)))
        .optional()?
        .ok_or_else(|| Failure::Missing(format!("chunk {}", id.short())))?;
    if row.0 == ERASED {
        return Err(Failure::Erased(super::erased::chunk_in_words(connection, &id)?));
    }
    let size = u64::try_from(row.1).ok().filter(|size| *size <= CHUNK_LIMIT);
    let size = size.ok_or_else(|| damaged(id, "its size is out of bounds"))?;
    Ok(StoredChunk { codec: row.0, size, bytes: row.2 })
}

/// The whole bytes, not yet checked. Differences are collected down to whole bytes, then applied upwards.
fn assemble(connection: &Connection, id: ChunkId, row: StoredChunk) -> Outcome<Vec<u8>> {
    let mut differences = Vec::new();
    let mut row = row;
    while row.codec == DELTA {
        if differences.len() > usize::from(DEPTH) {
            return Err(damaged(id, "it depends on too many deltas"));
        }
        let (base, ..) = read_header(&row.bytes).ok_or_else(|| damaged(id, "its delta is truncated"))?;
        differences.push(row);
        row = fetch(connection, base)?;
    }
    let bytes = match row.codec {
        RAW => row.bytes,
        DEFLATED => {
            inflate(&row.bytes, narrow(row.size)).ok_or_else(|| damaged(id, "it cannot be decompressed"))?
        }
        PIECES => {
            let size = row.size;
            read_pieces(connection, id, &row, 0..size)?
        }
        _ => return Err(damaged(id, "it uses an encoding that this version does not know")),
    };
    let mut spliced = SplicedBytes::new(bytes);
    for row in differences.iter().rev() {
        let (prefix, middle, suffix) = difference(id, spliced.len(), row)?;
        spliced.splice(prefix, middle, suffix);
    }
    Ok(spliced.into_bytes())
}

/// What a difference makes of its base.
fn apply(id: ChunkId, base: &[u8], row: &StoredChunk) -> Outcome<Vec<u8>> {
    let (prefix, middle, suffix) = difference(id, base.len(), row)?;
    let mut bytes = Vec::with_capacity(prefix + middle.len() + suffix);
    bytes.extend_from_slice(&base[..prefix]);
    bytes.extend_from_slice(&middle);
    bytes.extend_from_slice(&base[base.len() - suffix..]);
    Ok(bytes)
}

/// What a difference leaves of a base of so many bytes, and what it puts between.
fn difference(id: ChunkId, base: usize, row: &StoredChunk) -> Outcome<(usize, Vec<u8>, usize)> {
    let wrong = || damaged(id, "its delta does not match its base");
    let (_, prefix, suffix) = read_header(&row.bytes).ok_or_else(wrong)?;
    let size = narrow(row.size);
    let kept = prefix.checked_add(suffix).filter(|kept| *kept <= base && *kept <= size).ok_or_else(wrong)?;
    let middle = inflate(&row.bytes[DELTA_HEADER..], size - kept).ok_or_else(wrong)?;
    Ok((prefix, middle, suffix))
}

fn read_header(bytes: &[u8]) -> Option<(ChunkId, usize, usize)> {
    let base: [u8; 32] = bytes.get(1..33)?.try_into().ok()?;
    let prefix = u64::from_le_bytes(bytes.get(33..41)?.try_into().ok()?);
    let suffix = u64::from_le_bytes(bytes.get(41..49)?.try_into().ok()?);
    Some((ChunkId(base), usize::try_from(prefix).ok()?, usize::try_from(suffix).ok()?))
}

/// Bytes of a chunk in pieces; each piece is checked against its own id.
fn read_pieces(
    connection: &Connection,
    id: ChunkId,
    row: &StoredChunk,
    range: Range<u64>,
) -> Outcome<Vec<u8>> {
    let mut out = Vec::with_capacity(narrow(range.end - range.start));
    let piece = PIECE as u64;
    let mut at = range.start / piece * piece;
    while at < range.end {
        let index = narrow(at / piece) * 32;
        let piece_id = row.bytes.get(index..index + 32).and_then(|bytes| bytes.try_into().ok()).map(ChunkId);
        let piece_id = piece_id.ok_or_else(|| damaged(id, "its list of pieces is truncated"))?;
        let part = fetch(connection, piece_id)?;
        let size = narrow(part.size);
        let part = match part.codec {
            RAW => part.bytes,
            DEFLATED => {
                inflate(&part.bytes, size).ok_or_else(|| damaged(piece_id, "it cannot be decompressed"))?
            }
            _ => return Err(damaged(piece_id, "a piece must be stored whole, but this one is not")),
        };
        if sha256(&part) != piece_id {
            return Err(damaged(piece_id, "its bytes do not match its id"));
        }
        let from = narrow(range.start.saturating_sub(at)).min(part.len());
        let to = narrow((range.end - at).min(piece)).min(part.len());
        out.extend_from_slice(part.get(from..to).unwrap_or_default());
        at += piece;
    }
    Ok(out)
}

fn damaged(id: ChunkId, what: &str) -> Failure {
    Failure::Corrupt(format!("chunk {}: {what}", id.short()))
}

/// Sizes here are at most [`CHUNK_LIMIT`].
fn narrow(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}

fn sha256(bytes: &[u8]) -> ChunkId {
    ChunkId(Sha256::digest(bytes).into())
}

thread_local! {
    /// Kept, since its tables take longer to make than most differences take to compress.
    static COMPRESS: RefCell<Compress> = RefCell::new(Compress::new(Compression::new(3), false));
    static DECOMPRESS: RefCell<Decompress> = RefCell::new(Decompress::new(false));
}

fn deflate(bytes: &[u8]) -> Option<Vec<u8>> {
    COMPRESS.with_borrow_mut(|compress| {
        compress.reset();
        let mut out = Vec::with_capacity(bytes.len() / 2 + 64);
        loop {
            let rest = bytes.get(narrow(compress.total_in())..)?;
            match compress.compress_vec(rest, &mut out, FlushCompress::Finish).ok()? {
                Status::StreamEnd => return Some(out),
                Status::Ok | Status::BufError => out.reserve(out.capacity().max(64)),
            }
        }
    })
}

/// Exactly `size` bytes, or nothing: a row cannot make us allocate more than it says, or more than its bytes can hold.
fn inflate(bytes: &[u8], size: usize) -> Option<Vec<u8>> {
    let most = bytes.len().saturating_mul(MOST_INFLATED).saturating_add(1);
    // One byte more, so that what goes on behind them is seen.
    let mut out = Vec::new();
    out.try_reserve_exact(size.saturating_add(1).min(most)).ok()?;
    let status = DECOMPRESS.with_borrow_mut(|decompress| {
        decompress.reset(false);
        decompress.decompress_vec(bytes, &mut out, FlushDecompress::Finish)
    });
    (status.ok()? == Status::StreamEnd && out.len() == size).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::super::{erased, schema};
    use super::*;

    fn chunk(bytes: &[u8]) -> NewChunk {
        NewChunk::Full { id: sha256(bytes), bytes: Arc::from(bytes) }
    }

    fn put(connection: &Connection, chunks: &[NewChunk], rows: &[EncodedChunk], revives: bool) {
        insert(connection, rows, chunks, revives).unwrap();
    }

    #[test]
    fn rows_are_inflated_to_their_size_or_not_at_all() {
        for bytes in [Vec::new(), b"x".to_vec(), vec![0; 3 << 20], (0..=255).cycle().take(70_000).collect()] {
            let row = deflate(&bytes).unwrap();
            assert_eq!(inflate(&row, bytes.len()).as_ref(), Some(&bytes));
            let behind = [row.as_slice(), b"behind"].concat();
            assert_eq!(inflate(&behind, bytes.len()).as_ref(), Some(&bytes));
            assert_eq!(inflate(&row, bytes.len() + 1), None);
            assert_eq!(bytes.len().checked_sub(1).and_then(|less| inflate(&row, less)), None);
            assert_eq!(inflate(&row[..row.len() - 1], bytes.len()), None);
            assert_eq!(inflate(&row, usize::MAX >> 1), None);
        }
        assert_eq!(inflate(b"no row", 6), None);
    }

    /// Another process erases between the making of rows and their transaction.
    #[test]
    fn chunk_is_written_whole_when_its_base_was_erased() {
        let connection = Connection::open_in_memory().unwrap();
        schema::create(&connection).unwrap();
        let base = b"all that was said ".repeat(100);
        let next = [base.as_slice(), b"and more"].concat();
        let last = [next.as_slice(), b" and more"].concat();
        let (base_id, next_id, last_id) = (sha256(&base), sha256(&next), sha256(&last));
        let rows = |chunks: &[NewChunk]| encode(&connection, chunks, &mut RecentChunks::default()).unwrap();
        let is_there = |id: &ChunkId| read(&connection, *id, 0..u64::MAX).ok();
        let erase = |id: &ChunkId| {
            empty(&connection, id).unwrap();
            erased::note(&connection, erased::Kind::Chunk, &id.0, "").unwrap();
        };
        let first = [chunk(&base)];
        put(&connection, &first, &rows(&first), true);

        let new = [
            NewChunk::Grown {
                id: next_id,
                base: base_id,
                prefix: base.len() as u64,
                bytes: next.clone().into(),
            },
            NewChunk::Delta { id: last_id, base: base_id, bytes: Arc::from(last.clone()) },
        ];
        let made = rows(&new);
        assert!(made.iter().all(|row| row.codec == DELTA));
        erase(&base_id);
        put(&connection, &new, &made, true);
        assert_eq!((is_there(&next_id), is_there(&last_id)), (Some(next.clone()), Some(last)));
        assert_eq!(is_there(&base_id), None);

        // What was there when rows were made, and is erased then: an import leaves it so.
        let again = [chunk(&next)];
        let made = rows(&again);
        assert!(made.is_empty());
        erase(&next_id);
        put(&connection, &again, &made, false);
        assert_eq!(is_there(&next_id), None);
        put(&connection, &again, &made, true);
        assert_eq!(is_there(&next_id), Some(next));
        assert_eq!(erased::erasure(&connection, &next_id.0).unwrap(), None);
    }
}
