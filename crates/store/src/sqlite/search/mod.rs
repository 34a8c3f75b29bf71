//! Full text: which nodes say what.
//!
//! Two FTS5 tables that keep no text: words of everything, and trigrams of what is looked for by parts. Each has a
//! cursor, which moves in the transaction that adds to the table. They are made when there is something to index
//! first, so that a new store has none, and are added to in quiet moments, never by a commit.

mod find;
mod mark;
mod prefetch;
mod query;
mod text;

use rusqlite::{Connection, OptionalExtension as _, params};
use sha2::{Digest as _, Sha256};

pub(super) use self::find::{allowed, find, near, stands};
pub(super) use self::prefetch::Prefetch;
use self::text::Document;
pub(super) use self::text::Reader;
use super::failure::{Failure, Outcome};
use super::{places, rows};
use crate::IndexBacklog;

/// `about` holds the tags of a node and the paths that it names. A node's row has its number in `nodes`. Pieces of an
/// index are merged eight at a time: four cost a sixth more processor time, sixteen make searches look in more of them. The
/// words of a whole transaction have room in memory (`hashsize`), or it would leave several pieces.
const TABLES: &str = "
CREATE TABLE IF NOT EXISTS quipu_x_search (kind INTEGER PRIMARY KEY, seq INTEGER NOT NULL);
INSERT OR IGNORE INTO quipu_x_search VALUES (1, 0), (2, 0);
CREATE TABLE IF NOT EXISTS quipu_x_late (seq INTEGER PRIMARY KEY);
CREATE VIRTUAL TABLE IF NOT EXISTS quipu_x_words USING fts5(text, about, content='', contentless_delete=1, tokenize='unicode61 remove_diacritics 2');
CREATE VIRTUAL TABLE IF NOT EXISTS quipu_x_parts USING fts5(text, content='', contentless_delete=1, detail=none, tokenize='trigram');
INSERT INTO quipu_x_words (quipu_x_words, rank) VALUES ('automerge', 8);
INSERT INTO quipu_x_parts (quipu_x_parts, rank) VALUES ('automerge', 8);
INSERT INTO quipu_x_words (quipu_x_words, rank) VALUES ('hashsize', 33554432);
";
const NAMES: [&str; 4] = ["quipu_x_search", "quipu_x_late", "quipu_x_words", "quipu_x_parts"];
/// Nodes after a cursor, as [`rows::node`] reads them but for what says nothing, and the numbers of their sessions.
const UNINDEXED: &str = "
SELECT n.id, n.parent_id, n.role, n.parts_list, n.timestamp, NULL, NULL, NULL, NULL, n.rowid, x.session
FROM nodes n LEFT JOIN quipu_x_node x ON x.seq = n.rowid
WHERE n.rowid > ?1 AND n.rowid <= ?2 ORDER BY n.rowid LIMIT ?3";
/// Nodes that get their places before a step.
pub(super) const PLACED: usize = 2_000;
/// Words of an excerpt's text that are looked at.
const EXCERPT_PLACES: usize = 500;
/// Of those that were placed late, which are removed from the index first.
const STEP_LATE: usize = 200;

/// With how many times the room a search is made again whose hits were not all to be shown.
const MORE_ROOM: usize = 8;
/// With room for so many hits, it is not.
const ROOM: usize = 2_000;

/// Which of the two tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Words = 1,
    Substrings = 2,
}

/// How much is indexed in one transaction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    /// Bytes of text by words.
    pub(super) words: usize,
    /// Bytes of text by substrings, which take about five times as long.
    pub(super) substrings: usize,
    /// Nodes at most: those without text cost little, but not nothing.
    pub(super) nodes: usize,
    /// Bytes of blobs that are read at once, for this transaction and those after it.
    pub(super) prefetch: usize,
}

/// Whether anything was ever indexed here.
pub(super) fn exists(connection: &Connection) -> Outcome<bool> {
    let mut statement =
        connection.prepare_cached("SELECT 1 FROM sqlite_master WHERE name = 'quipu_x_search'")?;
    Ok(statement.exists([])?)
}

/// FTS5 remembers where its pieces are, and looks whether that still holds when a query begins, but not when the file
/// is checked. Within the caller's transaction.
pub(super) fn forget_older(connection: &Connection) -> Outcome<()> {
    if exists(connection)? {
        for table in ["quipu_x_words", "quipu_x_parts"] {
            let query = format!("SELECT 1 FROM {table} WHERE {table} MATCH 'abc' LIMIT 1");
            connection.prepare_cached(&query)?.exists([])?;
        }
    }
    Ok(())
}

/// Whether a complaint of SQLite's names one of our tables.
pub(super) fn is_named_in(complaint: &str) -> bool {
    NAMES.iter().any(|name| complaint.contains(name))
}

/// Drops both tables; they are made again when there is something to index.
pub(super) fn reset(connection: &Connection) -> Outcome<()> {
    for name in NAMES {
        connection.execute_batch(&format!("DROP TABLE IF EXISTS {name}"))?;
    }
    Ok(())
}

/// The next number of times that the room is had in which a search for `limit` hits is made.
pub(super) fn more_room(limit: usize, times: usize) -> Option<usize> {
    (limit.saturating_mul(times) < ROOM).then(|| times.saturating_mul(MORE_ROOM))
}

fn cursor(connection: &Connection, kind: Kind) -> Outcome<i64> {
    let mut statement = connection.prepare_cached("SELECT seq FROM quipu_x_search WHERE kind = ?1")?;
    Ok(statement.query_row([kind as i64], |row| row.get(0)).optional()?.unwrap_or(0))
}

/// How many rows after each cursor there can be.
pub(super) fn unindexed(connection: &Connection) -> Outcome<IndexBacklog> {
    let mut statement = connection.prepare_cached("SELECT coalesce(max(rowid), 0) FROM nodes")?;
    let last: i64 = statement.query_row([], |row| row.get(0))?;
    let (mut words, mut substrings) = (0, 0);
    let mut late = false;
    if exists(connection)? {
        words = cursor(connection, Kind::Words)?;
        substrings = cursor(connection, Kind::Substrings)?;
        late = connection.prepare_cached("SELECT 1 FROM quipu_x_late LIMIT 1")?.exists([])?;
    }
    let left = |seq: i64| u64::try_from(last - seq).unwrap_or(0);
    Ok(IndexBacklog { words: left(words).max(u64::from(late)), substrings: left(substrings) })
}

/// A node that waited for its parent has its place now: what is said of it has to be added. Within the caller's
/// transaction.
pub(super) fn placed_late(connection: &Connection, seq: i64) -> Outcome<()> {
    if exists(connection)? {
        connection.prepare_cached("INSERT OR IGNORE INTO quipu_x_late VALUES (?1)")?.execute([seq])?;
    }
    Ok(())
}

/// Indexes a little more, words before substrings; says whether there is more to do. Within the caller's transaction.
/// Tables that are damaged are made anew. `prefetch` is what the step before read of what comes now.
pub(super) fn advance(connection: &Connection, step: Step, prefetch: &mut Prefetch) -> Outcome<bool> {
    match try_advance(connection, step, prefetch) {
        Err(failure) if is_damage(&failure) => {
            reset(connection)?;
            try_advance(connection, step, prefetch)
        }
        other => other,
    }
}

/// Whether a table of ours is wrong, and not the file.
pub(super) fn is_damage(failure: &Failure) -> bool {
    let virtual_table = match failure {
        Failure::Sql(error) => error
            .sqlite_error()
            .is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_CORRUPT_VTAB),
        Failure::Corrupt(_) | Failure::Missing(_) | Failure::Erased(_) | Failure::Store(_) => false,
    };
    virtual_table || failure.is_of_data()
}

fn try_advance(connection: &Connection, step: Step, prefetch: &mut Prefetch) -> Outcome<bool> {
    // Only what has its place: a session's name and directory are part of what is indexed.
    let until = places::cursor(connection)?;
    if !exists(connection)? {
        if until == 0 {
            return Ok(false);
        }
        connection.execute_batch(TABLES)?;
    }
    let mut reader = Reader::new(connection);
    let more_late = add_late(connection, &mut reader)?;
    let kind = if cursor(connection, Kind::Words)? < until { Kind::Words } else { Kind::Substrings };
    let from = cursor(connection, kind)?;
    if from >= until {
        *prefetch = Prefetch::default();
        return Ok(more_late || places::is_behind(connection)?);
    }
    reader.prefetch = std::mem::take(prefetch);
    let mut put = connection.prepare_cached(match kind {
        Kind::Words => "INSERT INTO quipu_x_words (rowid, text, about) VALUES (?1, ?2, ?3)",
        Kind::Substrings => "INSERT INTO quipu_x_parts (rowid, text) VALUES (?1, ?2)",
    })?;
    let mut statement = connection.prepare_cached(UNINDEXED)?;
    let mut found = statement.query(params![from, until, i64::try_from(step.nodes).unwrap_or(i64::MAX)])?;
    let (mut last, mut nodes, mut bytes) = (from, 0, 0);
    let most = match kind {
        Kind::Words => step.words,
        Kind::Substrings => step.substrings,
    };
    while bytes < most
        && let Some(row) = found.next()?
    {
        last = row.get(9)?;
        nodes += 1;
        let Some(node) = rows::node(row)? else { continue };
        reader.prefetch.reach(connection, kind, last, until, step.prefetch)?;
        match kind {
            Kind::Words => {
                let Document { text, about, .. } = reader.words(&node, row.get(10)?)?;
                if !text.is_empty() {
                    put.execute(params![last, text, about])?;
                    bytes += text.len();
                }
            }
            Kind::Substrings => {
                let text = reader.parts(&node)?;
                if !text.is_empty() {
                    put.execute(params![last, text])?;
                    bytes += text.len();
                }
            }
        }
    }
    drop(found);
    *prefetch = reader.prefetch;
    // To the end when nothing was left, or rows that are gone would be counted for ever.
    let last = if bytes < most && nodes < step.nodes { until } else { last };
    connection
        .prepare_cached("UPDATE quipu_x_search SET seq = ?2 WHERE kind = ?1")?
        .execute(params![kind as i64, last])?;
    Ok(true)
}

/// Says what is now known of nodes that were indexed before they had a session.
fn add_late(connection: &Connection, reader: &mut Reader<'_>) -> Outcome<bool> {
    let waiting: Vec<i64> = connection
        .prepare_cached("SELECT seq FROM quipu_x_late ORDER BY seq LIMIT ?1")?
        .query_map([STEP_LATE as i64], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    let done = cursor(connection, Kind::Words)?;
    let more = waiting.len() == STEP_LATE;
    for seq in waiting {
        connection.prepare_cached("DELETE FROM quipu_x_late WHERE seq = ?1")?.execute([seq])?;
        if seq > done {
            continue;
        }
        let Some(node) = rows::node_at(connection, seq)? else { continue };
        let session = connection
            .prepare_cached("SELECT session FROM quipu_x_node WHERE seq = ?1")?
            .query_row([seq], |row| row.get(0))
            .optional()?
            .flatten();
        let Document { text, about, .. } = reader.words(&node, session)?;
        if !text.is_empty() {
            connection
                .prepare_cached(
                    "INSERT OR REPLACE INTO quipu_x_words (rowid, text, about) VALUES (?1, ?2, ?3)",
                )?
                .execute(params![seq, text, about])?;
        }
    }
    Ok(more)
}

/// The words of a text, folded; of scripts that write no spaces, each character.
pub(super) fn words(text: &str) -> impl Iterator<Item = std::borrow::Cow<'_, str>> {
    mark::tokens(text).map(|(_, word)| word)
}

/// The piece of a text that has most of these words, which `fold` makes of the words of the text.
pub(super) fn excerpt_of(text: &str, words: &[String], fold: &dyn Fn(&str) -> String) -> String {
    let places: Vec<mark::Place> = mark::tokens(text)
        .filter_map(|(range, word)| {
            let word = fold(&word);
            let term = words.iter().position(|wanted| *wanted == word)?;
            Some(mark::Place { range, term })
        })
        .take(EXCERPT_PLACES)
        .collect();
    let crate::Excerpt { text, cut_before, cut_after, marks: _ } = mark::excerpt(text, &places);
    let [before, after] = [cut_before, cut_after].map(|cut| if cut { "…" } else { "" });
    format!("{before}{text}{after}")
}

/// A word that stands for a property of a node, and that no text has by chance.
fn tag(kind: char, value: &str) -> String {
    format!("q{kind}{}", quipu_protocol::hex(&Sha256::digest(value.as_bytes())[..8]))
}
