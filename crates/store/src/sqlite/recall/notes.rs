//! The notes of memories in the index: their chunks are units, their files groups.

use rusqlite::{Connection, OptionalExtension as _, params};

use super::super::failure::Outcome;
use super::super::vectors::packed;
use super::space::{Adder, Space, Unit, kind, totals};
use super::vectors::Weights;
use super::{author_number, seconds};
use crate::{IndexedNote, NOTE_CHUNK, NoteChange, NoteChunk, WordVectors};

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS quipu_x_note_file (id INTEGER PRIMARY KEY AUTOINCREMENT, memory TEXT NOT NULL, path TEXT NOT NULL, stamp TEXT NOT NULL,
  UNIQUE (memory, path));
CREATE TABLE IF NOT EXISTS quipu_x_note_chunk (unit INTEGER PRIMARY KEY, file INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
  model TEXT, vector BLOB);
CREATE INDEX IF NOT EXISTS quipu_x_note_chunk_file ON quipu_x_note_chunk(file);
";
/// Units of changed files that stay at least before the index is made anew.
const GONE: u32 = 4_000;

pub(in crate::sqlite) fn reset(connection: &Connection) -> Outcome<()> {
    Space::Notes.reset(connection)?;
    connection
        .execute_batch("DROP TABLE IF EXISTS quipu_x_note_file; DROP TABLE IF EXISTS quipu_x_note_chunk")?;
    Ok(())
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
    }
    Space::Notes.create(connection)?;
    connection.execute_batch(TABLES)?;
    let mut adder = Adder::new(connection, Space::Notes)?;
    let mut weights = Weights::new(connection)?;
    for change in changes {
        remove(connection, &mut adder, memory, &change.path)?;
        if let Some(chunks) = &change.chunks {
            let file = add(connection, &mut adder, memory, change, chunks)?;
            if let Some(words) = words {
                add_vectors(connection, &mut weights, words, file, chunks)?;
            }
        }
    }
    adder.finish()
}

fn remove(connection: &Connection, adder: &mut Adder<'_>, memory: &str, path: &str) -> Outcome<()> {
    let mut statement =
        connection.prepare_cached("SELECT id FROM quipu_x_note_file WHERE memory = ?1 AND path = ?2")?;
    let Some(file) = statement.query_row([memory, path], |row| row.get::<_, i64>(0)).optional()? else {
        return Ok(());
    };
    let mut statement = connection.prepare_cached("SELECT unit FROM quipu_x_note_chunk WHERE file = ?1")?;
    let units: Vec<u32> = statement.query_map([file], |row| row.get(0))?.collect::<Result<_, _>>()?;
    for unit in units {
        let old = adder.units.get(unit)?;
        adder.units.set(unit, &Unit { kind: kind::GONE, ..old })?;
        adder.totals.words -= i64::from(old.words);
    }
    connection.prepare_cached("DELETE FROM quipu_x_note_chunk WHERE file = ?1")?.execute([file])?;
    connection.prepare_cached("DELETE FROM quipu_x_note_file WHERE id = ?1")?.execute([file])?;
    let removed =
        connection.prepare_cached("DELETE FROM quipu_x_note_group WHERE num = ?1")?.execute([file])?;
    adder.totals.groups -= i64::try_from(removed).unwrap_or(0);
    Ok(())
}

fn add(
    connection: &Connection,
    adder: &mut Adder<'_>,
    memory: &str,
    change: &NoteChange,
    chunks: &[NoteChunk],
) -> Outcome<u32> {
    let file: u32 = connection
        .prepare_cached(
            "INSERT INTO quipu_x_note_file (memory, path, stamp) VALUES (?1, ?2, ?3) RETURNING id",
        )?
        .query_row([memory, &change.path, &change.stamp], |row| row.get(0))?;
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
    }
    Ok(file)
}

/// The vectors of the chunks of a file, which were added in this order.
fn add_vectors(
    connection: &Connection,
    weights: &mut Weights<'_>,
    words: &dyn WordVectors,
    file: u32,
    chunks: &[NoteChunk],
) -> Outcome<()> {
    let mut statement =
        connection.prepare_cached("SELECT unit FROM quipu_x_note_chunk WHERE file = ?1 ORDER BY unit")?;
    let units: Vec<u32> = statement.query_map([file], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let mut put =
        connection.prepare_cached("UPDATE quipu_x_note_chunk SET model = ?2, vector = ?3 WHERE unit = ?1")?;
    for (unit, chunk) in units.into_iter().zip(chunks) {
        let vector = weights.vector(words, &chunk.text)?;
        put.execute(params![unit, words.id(), packed(&vector)])?;
    }
    Ok(())
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

/// The files of these memories.
pub(super) fn files(connection: &Connection, memories: &[String]) -> Outcome<Vec<u32>> {
    let mut files = Vec::new();
    let mut statement = connection.prepare_cached("SELECT id FROM quipu_x_note_file WHERE memory = ?1")?;
    for memory in memories {
        for file in statement.query_map([memory], |row| row.get(0))? {
            files.push(file?);
        }
    }
    Ok(files)
}

/// Calls `take` with the unit and the vector of each chunk that `model` made one for.
pub(super) fn vectors(connection: &Connection, model: &str, mut take: impl FnMut(u32, &[u8])) -> Outcome<()> {
    let mut statement = connection.prepare_cached(
        "SELECT unit, vector FROM quipu_x_note_chunk WHERE model = ?1 AND vector IS NOT NULL",
    )?;
    let mut rows = statement.query([model])?;
    while let Some(row) = rows.next()? {
        take(row.get(0)?, row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?);
    }
    Ok(())
}
