//! The notes of memories in the index: their chunks are units, their files groups.

use rusqlite::{Connection, OptionalExtension as _, params};

use super::super::failure::Outcome;
use super::super::search;
use super::space::{Adder, Space, Unit, kind, totals};
use super::stem::stem;
use super::vectors::{self, VectorAdder};
use super::words::{cut, is_stop};
use super::{author_number, seconds};
use crate::{IndexedNote, NOTE_CHUNK, NoteChange, NoteChunk, WordVectors};

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS quipu_x_note_file (id INTEGER PRIMARY KEY AUTOINCREMENT, memory TEXT NOT NULL, path TEXT NOT NULL, stamp TEXT NOT NULL,
  UNIQUE (memory, path));
CREATE TABLE IF NOT EXISTS quipu_x_note_chunk (unit INTEGER PRIMARY KEY, file INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS quipu_x_note_chunk_file ON quipu_x_note_chunk(file);
CREATE TABLE IF NOT EXISTS quipu_x_note_memory (memory TEXT PRIMARY KEY, bits BLOB NOT NULL);
";
/// Units of changed files that stay at least before the index is made anew.
const GONE: u32 = 4_000;

pub(in crate::sqlite) fn reset(connection: &Connection) -> Outcome<()> {
    Space::Notes.reset(connection)?;
    vectors::reset(connection, Space::Notes)?;
    connection.execute_batch(
        "DROP TABLE IF EXISTS quipu_x_note_file; DROP TABLE IF EXISTS quipu_x_note_chunk; \
         DROP TABLE IF EXISTS quipu_x_note_memory",
    )?;
    Ok(())
}

/// Whether there is an index of notes, of whatever form.
pub(in crate::sqlite) fn exist(connection: &Connection) -> Outcome<bool> {
    let mut statement = connection.prepare_cached("SELECT 1 FROM sqlite_master WHERE name = ?1")?;
    Ok(statement.exists([Space::Notes.table()])?)
}

/// Whether the index may have the words of a text: those of notes that are gone stay in it until it is made anew. The first and
/// the last word of the text may be a part of one.
pub(in crate::sqlite) fn may_say(connection: &Connection, text: &str) -> Outcome<bool> {
    if !Space::Notes.exists(connection)? {
        return Ok(false);
    }
    let table = Space::Notes.table();
    let mut whole = connection.prepare_cached(&format!("SELECT 1 FROM {table}_word WHERE word = ?1"))?;
    let mut part = connection.prepare_cached(&format!(
        "SELECT 1 FROM {table}_word WHERE instr(word, ?1) > 0 OR instr(?1, word) > 0"
    ))?;
    let words: Vec<_> = search::words(text).collect();
    for (at, word) in words.iter().enumerate().filter(|(_, word)| !is_stop(word)) {
        let stem = stem(cut(word));
        let is_edge = at == 0 || at + 1 == words.len();
        if !(whole.exists([&stem])? || is_edge && part.exists([&stem])?) {
            return Ok(false);
        }
    }
    Ok(!words.is_empty())
}

pub(in crate::sqlite) fn indexed(connection: &Connection, memory: &str) -> Outcome<Vec<IndexedNote>> {
    if !Space::Notes.exists(connection)? {
        return Ok(Vec::new());
    }
    let mut statement =
        connection.prepare_cached("SELECT path, stamp FROM quipu_x_note_file WHERE memory = ?1")?;
    let found =
        statement.query_map([memory], |row| Ok(IndexedNote { path: row.get(0)?, stamp: row.get(1)? }))?;
    Ok(found.collect::<Result<_, _>>()?)
}

pub(in crate::sqlite) fn put(
    connection: &Connection,
    memory: &str,
    changes: &[NoteChange],
    words: Option<&dyn WordVectors>,
) -> Outcome<()> {
    if Space::Notes.exists(connection)? {
        let live: u32 =
            connection.query_row("SELECT count(*) FROM quipu_x_note_chunk", [], |row| row.get(0))?;
        let gone = totals(connection, Space::Notes)?.units.saturating_sub(live);
        if gone > live.max(GONE) {
            reset(connection)?;
        }
    } else {
        reset(connection)?;
    }
    Space::Notes.create(connection)?;
    connection.execute_batch(TABLES)?;
    let mut adder = Adder::new(connection, Space::Notes)?;
    let mut vectors = words.map(|words| VectorAdder::new(connection, Space::Notes, words)).transpose()?;
    let mut bits = bits_of(connection, memory)?;
    for change in changes {
        for unit in remove(connection, &mut adder, memory, &change.path)? {
            set_bit(&mut bits, unit, false);
        }
        if let Some(chunks) = &change.chunks {
            for (unit, chunk) in add(connection, &mut adder, memory, change, chunks)?.into_iter().zip(chunks)
            {
                set_bit(&mut bits, unit, true);
                if let Some(vectors) = &mut vectors {
                    vectors.add(unit, &chunk.text)?;
                }
            }
        }
    }
    connection
        .prepare_cached("INSERT OR REPLACE INTO quipu_x_note_memory (memory, bits) VALUES (?1, ?2)")?
        .execute(params![memory, bits])?;
    vectors.map_or(Ok(()), VectorAdder::finish)?;
    adder.finish()
}

/// The units of a memory, a bit for each from 0 on.
fn bits_of(connection: &Connection, memory: &str) -> Outcome<Vec<u8>> {
    let mut statement =
        connection.prepare_cached("SELECT bits FROM quipu_x_note_memory WHERE memory = ?1")?;
    Ok(statement.query_row([memory], |row| row.get(0)).optional()?.unwrap_or_default())
}

fn set_bit(bits: &mut Vec<u8>, unit: u32, is_of: bool) {
    let at = (unit / 8) as usize;
    if bits.len() <= at {
        bits.resize(at + 1, 0);
    }
    let bit = 1 << (unit % 8);
    bits[at] = if is_of { bits[at] | bit } else { bits[at] & !bit };
}

pub(super) fn has_bit(bits: &[u8], unit: u32) -> bool {
    bits.get((unit / 8) as usize).is_some_and(|byte| byte & (1 << (unit % 8)) != 0)
}

/// The units of these memories, a bit for each from 0 on.
pub(super) fn units_of(connection: &Connection, memories: &[String]) -> Outcome<Vec<u8>> {
    let mut all = Vec::new();
    for memory in memories {
        let bits = bits_of(connection, memory)?;
        all.resize(bits.len().max(all.len()), 0);
        all.iter_mut().zip(bits).for_each(|(all, bits)| *all |= bits);
    }
    Ok(all)
}

/// Removes what is indexed of a file; its units.
fn remove(connection: &Connection, adder: &mut Adder<'_>, memory: &str, path: &str) -> Outcome<Vec<u32>> {
    let mut statement =
        connection.prepare_cached("SELECT id FROM quipu_x_note_file WHERE memory = ?1 AND path = ?2")?;
    let Some(file) = statement.query_row([memory, path], |row| row.get::<_, i64>(0)).optional()? else {
        return Ok(Vec::new());
    };
    let mut statement = connection.prepare_cached("SELECT unit FROM quipu_x_note_chunk WHERE file = ?1")?;
    let units: Vec<u32> = statement.query_map([file], |row| row.get(0))?.collect::<Result<_, _>>()?;
    for unit in units.iter().copied() {
        let old = adder.units.get(unit)?;
        adder.units.set(unit, &Unit { kind: kind::GONE, ..old })?;
        adder.totals.words -= i64::from(old.words);
        vectors::remove(connection, Space::Notes, unit)?;
    }
    connection.prepare_cached("DELETE FROM quipu_x_note_chunk WHERE file = ?1")?.execute([file])?;
    connection.prepare_cached("DELETE FROM quipu_x_note_file WHERE id = ?1")?.execute([file])?;
    let removed =
        connection.prepare_cached("DELETE FROM quipu_x_note_group WHERE num = ?1")?.execute([file])?;
    adder.totals.groups -= i64::try_from(removed).unwrap_or(0);
    Ok(units)
}

/// Adds a file; its units.
fn add(
    connection: &Connection,
    adder: &mut Adder<'_>,
    memory: &str,
    change: &NoteChange,
    chunks: &[NoteChunk],
) -> Outcome<Vec<u32>> {
    let file: u32 = connection
        .prepare_cached(
            "INSERT INTO quipu_x_note_file (memory, path, stamp) VALUES (?1, ?2, ?3) RETURNING id",
        )?
        .query_row([memory, &change.path, &change.stamp], |row| row.get(0))?;
    let mut units = Vec::with_capacity(chunks.len());
    let mut before = 0;
    for chunk in chunks {
        let unit = Unit {
            seq: adder.totals.units.saturating_add(1),
            group: file,
            before,
            at: seconds(chunk.at),
            kind: kind::NOTE,
            author: author_number(chunk.author),
            ..Unit::default()
        };
        let text = &chunk.text[..chunk.text.floor_char_boundary(NOTE_CHUNK)];
        before = adder.add(unit, text, chunk.at)?;
        connection
            .prepare_cached(
                "INSERT INTO quipu_x_note_chunk (unit, file, first, last) VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute(params![before, file, chunk.first, chunk.last])?;
        units.push(before);
    }
    Ok(units)
}

/// The file and the lines of a chunk, by its unit.
pub(super) struct Place {
    pub(super) memory: String,
    pub(super) path: String,
    pub(super) lines: (u32, u32),
}

pub(super) fn place(connection: &Connection, unit: u32) -> Outcome<Option<Place>> {
    let mut statement = connection.prepare_cached(
        "SELECT f.memory, f.path, c.first, c.last FROM quipu_x_note_chunk c JOIN quipu_x_note_file f ON f.id = c.file WHERE c.unit = ?1",
    )?;
    let read = |row: &rusqlite::Row<'_>| {
        Ok(Place { memory: row.get(0)?, path: row.get(1)?, lines: (row.get(2)?, row.get(3)?) })
    };
    Ok(statement.query_row([unit], read).optional()?)
}
