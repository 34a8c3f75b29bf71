//! What was done: tokens, tools, files, prompts. Tables that follow the graph in quiet moments, as those of the search
//! do, and never in a commit; a cursor moves in the transaction that adds to them.

mod add;
mod find;
mod states;

use quipu_transcript::FileOpKind;
use rusqlite::{Connection, OptionalExtension as _, params};

use self::add::Adder;
pub(super) use self::find::{changes, file_activity, session_activity, usage};
pub(super) use self::states::file_steps;
use super::failure::Outcome;
use super::{places, rows};

/// `quipu_x_use`, `quipu_x_tool`: sums by quarter hours; `purpose` is empty for answers, which have that of their session.
/// `quipu_x_purpose`: what sessions were begun for by a runner or a job. `quipu_x_touch`: files by session. `quipu_x_file`: changes by
/// file, `seq` that of the answer (`call` which of its calls, or -1), `states` that of the node which says how the file was
/// before and after. `quipu_x_state`: files before and after steps, those that put files back included; `seq` that of the
/// node which says so. `quipu_x_held`: which of these hold a content. `quipu_x_tardy`: nodes that got their place after the
/// cursor had gone by. `quipu_x_deeds` and the column `deed` (a [`FileOpKind`]) keep their older names, so that stores that have them
/// are read as they are.
const TABLES: &str = "
CREATE TABLE IF NOT EXISTS quipu_x_deeds (one INTEGER PRIMARY KEY CHECK (one = 1), seq INTEGER NOT NULL);
INSERT OR IGNORE INTO quipu_x_deeds VALUES (1, 0);
CREATE TABLE IF NOT EXISTS quipu_x_tardy (seq INTEGER PRIMARY KEY);
CREATE TABLE IF NOT EXISTS quipu_x_use (session INTEGER NOT NULL, slot INTEGER NOT NULL, model TEXT NOT NULL, priced INTEGER NOT NULL,
  purpose TEXT NOT NULL, calls INTEGER NOT NULL, input INTEGER NOT NULL, output INTEGER NOT NULL, cache_read INTEGER NOT NULL,
  cache_write INTEGER NOT NULL, cost INTEGER NOT NULL, PRIMARY KEY (session, slot, model, priced, purpose)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS quipu_x_purpose (session INTEGER PRIMARY KEY, purpose TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS quipu_x_tool (session INTEGER NOT NULL, slot INTEGER NOT NULL, tool TEXT NOT NULL, calls INTEGER NOT NULL,
  failed INTEGER NOT NULL, PRIMARY KEY (session, slot, tool)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS quipu_x_touch (session INTEGER NOT NULL, path TEXT NOT NULL, deed INTEGER NOT NULL, times INTEGER NOT NULL,
  at INTEGER NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (session, path, deed)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS quipu_x_file (path TEXT NOT NULL, seq INTEGER NOT NULL, call INTEGER NOT NULL, at INTEGER NOT NULL, asked INTEGER,
  states INTEGER, PRIMARY KEY (path, seq, call)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS quipu_x_state (path TEXT NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, session INTEGER NOT NULL,
  answer INTEGER, call INTEGER NOT NULL, asked INTEGER, before TEXT NOT NULL, after TEXT NOT NULL, PRIMARY KEY (path, seq)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS quipu_x_state_seq ON quipu_x_state (seq);
CREATE INDEX IF NOT EXISTS quipu_x_state_asked ON quipu_x_state (asked, seq);
CREATE TABLE IF NOT EXISTS quipu_x_held (content BLOB NOT NULL, path TEXT NOT NULL, seq INTEGER NOT NULL,
  PRIMARY KEY (content, path, seq)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS quipu_x_asked (session INTEGER NOT NULL, at INTEGER NOT NULL, seq INTEGER NOT NULL,
  PRIMARY KEY (session, at, seq)) WITHOUT ROWID;
";
const NAMES: [&str; 10] = [
    "quipu_x_deeds",
    "quipu_x_tardy",
    "quipu_x_use",
    "quipu_x_purpose",
    "quipu_x_tool",
    "quipu_x_touch",
    "quipu_x_file",
    "quipu_x_state",
    "quipu_x_held",
    "quipu_x_asked",
];

/// What is done to a file, as it is stored.
pub(super) fn number(kind: FileOpKind) -> i64 {
    match kind {
        FileOpKind::Read => 1,
        FileOpKind::Write => 2,
        FileOpKind::Edit => 3,
        FileOpKind::Remove => 4,
    }
}

/// Whether the tables were ever made here, in the form that they have now. Older ones are made anew.
pub(super) fn exists(connection: &Connection) -> Outcome<bool> {
    let mut statement = connection.prepare_cached(
        "SELECT 1 FROM sqlite_master WHERE name = 'quipu_x_file' AND instr(sql, 'states INTEGER') > 0 \
         AND EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'quipu_x_held') \
         AND EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'quipu_x_purpose')",
    )?;
    Ok(statement.exists([])?)
}

/// Drops the tables; they are made again when there is something to add.
pub(super) fn reset(connection: &Connection) -> Outcome<()> {
    for name in NAMES {
        connection.execute_batch(&format!("DROP TABLE IF EXISTS {name}"))?;
    }
    Ok(())
}

fn cursor(connection: &Connection) -> Outcome<i64> {
    let mut statement = connection.prepare_cached("SELECT seq FROM quipu_x_deeds")?;
    Ok(statement.query_row([], |row| row.get(0)).optional()?.unwrap_or(0))
}

/// How many rows after the cursor there can be.
pub(super) fn behind(connection: &Connection) -> Outcome<u64> {
    let mut statement = connection.prepare_cached("SELECT coalesce(max(rowid), 0) FROM nodes")?;
    let last: i64 = statement.query_row([], |row| row.get(0))?;
    if !exists(connection)? {
        return Ok(last.unsigned_abs());
    }
    let late = connection.prepare_cached("SELECT 1 FROM quipu_x_tardy LIMIT 1")?.exists([])?;
    Ok(u64::try_from(last - cursor(connection)?).unwrap_or(0).max(u64::from(late)))
}

/// A node that waited for its parent has its place now. Within the caller's transaction.
pub(super) fn placed_late(connection: &Connection, seq: i64) -> Outcome<()> {
    if exists(connection)? {
        connection.prepare_cached("INSERT OR IGNORE INTO quipu_x_tardy VALUES (?1)")?.execute([seq])?;
    }
    Ok(())
}

/// Adds what up to `limit` nodes did; says whether there is more. Within the caller's transaction. Tables that are
/// damaged are made anew. What has no place yet is left for later.
pub(super) fn advance(connection: &Connection, limit: usize) -> Outcome<bool> {
    match try_advance(connection, limit) {
        Err(failure) if failure.is_of_data() => {
            reset(connection)?;
            try_advance(connection, limit)
        }
        other => other,
    }
}

fn try_advance(connection: &Connection, limit: usize) -> Outcome<bool> {
    if behind(connection)? == 0 {
        return Ok(false);
    }
    // Only what has its place: whose it is, is told by that.
    let until = places::cursor(connection)?;
    if !exists(connection)? {
        if until == 0 {
            return Ok(false);
        }
        reset(connection)?;
        connection.execute_batch(TABLES)?;
    }
    let from = cursor(connection)?;
    let mut adder = Adder::new(connection, from);
    let columns = format!(
        "SELECT {}, n.rowid, x.session, x.parent FROM nodes n JOIN quipu_x_node x ON x.seq = n.rowid",
        rows::NODE
    );
    let late: Vec<i64> = connection
        .prepare_cached("SELECT seq FROM quipu_x_tardy ORDER BY seq LIMIT ?1")?
        .query_map([i64::try_from(limit).unwrap_or(i64::MAX)], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    for seq in &late {
        connection.prepare_cached("DELETE FROM quipu_x_tardy WHERE seq = ?1")?.execute([seq])?;
        // What the cursor has not reached yet comes with it.
        if *seq <= from {
            let mut statement = connection.prepare_cached(&format!("{columns} WHERE n.rowid = ?1"))?;
            let mut found = statement.query([seq])?;
            if let Some(row) = found.next()? {
                adder.row(row)?;
            }
        }
    }
    let mut statement = connection.prepare_cached(&format!(
        "{columns} WHERE n.rowid > ?1 AND n.rowid <= ?2 ORDER BY n.rowid LIMIT ?3"
    ))?;
    let mut found = statement.query(params![from, until, i64::try_from(limit).unwrap_or(i64::MAX)])?;
    let (mut last, mut taken) = (from, 0);
    while let Some(row) = found.next()? {
        last = row.get(9)?;
        taken += 1;
        adder.row(row)?;
    }
    drop(found);
    adder.finish()?;
    // To the end when nothing was left, or rows that are gone would be counted for ever.
    let last = if taken < limit { until } else { last };
    connection.prepare_cached("UPDATE quipu_x_deeds SET seq = ?1")?.execute([last])?;
    Ok(taken == limit || late.len() == limit || places::is_behind(connection)?)
}
