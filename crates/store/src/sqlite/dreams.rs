//! The tables of dreams. They are made with the first signal.

use rusqlite::{Connection, OptionalExtension as _, params};

use super::failure::Outcome;
use super::{SqliteStore, rows};
use crate::{
    DreamProgress, Dreams, Durability, Fut, PROMOTIONS, Promotion, SIGNAL_ENTRIES, SignalChange, SignalEntry,
    TextSignal, check_dream_step,
};

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS quipu_recall (memory TEXT NOT NULL, key TEXT NOT NULL, last INTEGER NOT NULL, entry TEXT NOT NULL, PRIMARY KEY (memory, key));
CREATE TABLE IF NOT EXISTS quipu_dream (memory TEXT PRIMARY KEY, step INTEGER NOT NULL, state TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS quipu_promotion (memory TEXT NOT NULL, id TEXT NOT NULL, at INTEGER NOT NULL, promotion TEXT NOT NULL, PRIMARY KEY (memory, id));
";

/// Every table, with the column that holds content.
pub(super) const CONTENT: [(&str, &str, &str); 3] = [
    ("quipu_recall", "key", "entry"),
    ("quipu_dream", "memory", "state"),
    ("quipu_promotion", "id", "promotion"),
];

/// How the rows of each table are put into another file: the number first, then the texts.
pub(super) const CARRY_OVER: [(&str, &str); 3] = [
    ("quipu_recall", "INSERT OR IGNORE INTO quipu_recall (last, memory, key, entry) VALUES (?1, ?2, ?3, ?4)"),
    ("quipu_dream", "INSERT OR IGNORE INTO quipu_dream (step, memory, state) VALUES (?1, ?2, ?3)"),
    (
        "quipu_promotion",
        "INSERT OR IGNORE INTO quipu_promotion (at, memory, id, promotion) VALUES (?1, ?2, ?3, ?4)",
    ),
];

pub(super) fn exist(connection: &Connection) -> Outcome<bool> {
    let mut statement =
        connection.prepare_cached("SELECT 1 FROM sqlite_master WHERE name = 'quipu_promotion'")?;
    Ok(statement.exists([])?)
}

pub(super) fn create(connection: &Connection) -> Outcome<()> {
    if !exist(connection)? {
        connection.execute_batch(TABLES)?;
    }
    Ok(())
}

/// Rows that another program damaged are left out.
fn entries(connection: &Connection, memory: &str) -> Outcome<Vec<SignalEntry>> {
    if !exist(connection)? {
        return Ok(Vec::new());
    }
    let mut statement =
        connection.prepare_cached("SELECT entry FROM quipu_recall WHERE memory = ?1 ORDER BY key")?;
    let mut found = statement.query([memory])?;
    let mut entries = Vec::new();
    while let Some(row) = found.next()? {
        let entry = rows::text(row, 0)?.unwrap_or_default();
        entries.extend(serde_json::from_str::<SignalEntry>(&entry).ok());
    }
    Ok(entries)
}

fn entry(connection: &Connection, memory: &str, key: &str) -> Outcome<Option<SignalEntry>> {
    let mut statement =
        connection.prepare_cached("SELECT entry FROM quipu_recall WHERE memory = ?1 AND key = ?2")?;
    let found: Option<String> = statement.query_row([memory, key], |row| row.get(0)).optional()?;
    Ok(found.and_then(|entry| serde_json::from_str(&entry).ok()))
}

fn keep(connection: &Connection, memory: &str, entry: &SignalEntry) -> Outcome<()> {
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO quipu_recall (memory, key, last, entry) VALUES (?1, ?2, ?3, ?4)",
        )?
        .execute(params![memory, entry.key, entry.last_at, serde_json::json!(entry).to_string()])?;
    Ok(())
}

fn came(connection: &Connection, memory: &str, signal: &TextSignal) -> Outcome<()> {
    let entry = match entry(connection, memory, &signal.key)? {
        Some(mut entry) => {
            entry.add(signal);
            entry
        }
        None => SignalEntry::first(signal),
    };
    keep(connection, memory, &entry)
}

fn change(connection: &Connection, memory: &str, change: &SignalChange) -> Outcome<()> {
    let (key, at) = match change {
        SignalChange::Came(signal) => return came(connection, memory, signal),
        SignalChange::Light(key, at) | SignalChange::Rem(key, at) | SignalChange::Promoted(key, at) => {
            (key, *at)
        }
    };
    let Some(mut entry) = entry(connection, memory, key)? else { return Ok(()) };
    match change {
        SignalChange::Light(..) => entry.light = (entry.light.0.saturating_add(1), at),
        SignalChange::Rem(..) => entry.rem = (entry.rem.0.saturating_add(1), at),
        SignalChange::Came(_) | SignalChange::Promoted(..) => entry.promoted = Some(at),
    }
    keep(connection, memory, &entry)
}

/// Removes what is beyond the limits.
fn trim(connection: &Connection, memory: &str) -> Outcome<()> {
    let count: i64 = connection
        .prepare_cached("SELECT count(*) FROM quipu_recall WHERE memory = ?1")?
        .query_row([memory], |row| row.get(0))?;
    let over = count.saturating_sub(i64::try_from(SIGNAL_ENTRIES).unwrap_or(i64::MAX));
    if over > 0 {
        connection
            .prepare_cached(
                "DELETE FROM quipu_recall WHERE memory = ?1 AND key IN \
                 (SELECT key FROM quipu_recall WHERE memory = ?1 ORDER BY last, key LIMIT ?2)",
            )?
            .execute(params![memory, over])?;
    }
    Ok(())
}

fn progress(connection: &Connection, memory: &str) -> Outcome<Option<DreamProgress>> {
    if !exist(connection)? {
        return Ok(None);
    }
    let mut statement = connection.prepare_cached("SELECT step, state FROM quipu_dream WHERE memory = ?1")?;
    let found = statement.query_row([memory], |row| {
        let step = rows::integer(row, 0)?.unsigned_abs();
        Ok(DreamProgress { step, state: rows::text(row, 1)?.unwrap_or_default().into_owned() })
    });
    Ok(found.optional()?)
}

fn advance(
    connection: &Connection,
    memory: &str,
    from: u64,
    state: &str,
    changes: &[SignalChange],
    promotions: &[Promotion],
) -> Outcome<bool> {
    create(connection)?;
    if progress(connection, memory)?.map_or(0, |found| found.step) != from {
        return Ok(false);
    }
    for one in changes {
        change(connection, memory, one)?;
    }
    trim(connection, memory)?;
    for promotion in promotions {
        connection
            .prepare_cached(
                "INSERT OR REPLACE INTO quipu_promotion (memory, id, at, promotion) VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute(params![memory, promotion.id, promotion.at, serde_json::json!(promotion).to_string()])?;
    }
    connection
        .prepare_cached(
            "DELETE FROM quipu_promotion WHERE memory = ?1 AND id NOT IN \
             (SELECT id FROM quipu_promotion WHERE memory = ?1 ORDER BY at DESC, id LIMIT ?2)",
        )?
        .execute(params![memory, i64::try_from(PROMOTIONS).unwrap_or(i64::MAX)])?;
    let step = i64::try_from(from.saturating_add(1)).unwrap_or(i64::MAX);
    connection
        .prepare_cached("INSERT OR REPLACE INTO quipu_dream (memory, step, state) VALUES (?1, ?2, ?3)")?
        .execute(params![memory, step, state])?;
    Ok(true)
}

impl Dreams for SqliteStore {
    fn recalls<'a>(&'a self, memory: &'a str) -> Fut<'a, Vec<SignalEntry>> {
        let memory = memory.to_owned();
        Box::pin(self.read(move |connection| entries(connection, &memory)))
    }

    fn note_recalls<'a>(&'a self, memory: &'a str, signals: Vec<TextSignal>) -> Fut<'a, ()> {
        let memory = memory.to_owned();
        Box::pin(async move {
            check_dream_step("", signals.len())?;
            self.work(Durability::Process, move |connection| {
                create(connection)?;
                for signal in &signals {
                    came(connection, &memory, signal)?;
                }
                trim(connection, &memory)
            })
            .await
        })
    }

    fn dream<'a>(&'a self, memory: &'a str) -> Fut<'a, Option<DreamProgress>> {
        let memory = memory.to_owned();
        Box::pin(self.read(move |connection| progress(connection, &memory)))
    }

    fn advance_dream<'a>(
        &'a self,
        memory: &'a str,
        from: u64,
        state: String,
        changes: Vec<SignalChange>,
        promotions: Vec<Promotion>,
    ) -> Fut<'a, bool> {
        let memory = memory.to_owned();
        Box::pin(async move {
            check_dream_step(&state, changes.len())?;
            self.work(Durability::Power, move |connection| {
                advance(connection, &memory, from, &state, &changes, &promotions)
            })
            .await
        })
    }

    fn promotions<'a>(&'a self, memory: &'a str) -> Fut<'a, Vec<Promotion>> {
        let memory = memory.to_owned();
        Box::pin(self.read(move |connection| {
            if !exist(connection)? {
                return Ok(Vec::new());
            }
            let mut statement = connection.prepare_cached(
                "SELECT promotion FROM quipu_promotion WHERE memory = ?1 ORDER BY at DESC, id",
            )?;
            let mut found = statement.query([&memory])?;
            let mut promotions = Vec::new();
            while let Some(row) = found.next()? {
                let promotion = rows::text(row, 0)?.unwrap_or_default();
                promotions.extend(serde_json::from_str::<Promotion>(&promotion).ok());
            }
            Ok(promotions)
        }))
    }

    fn dreamt_memories(&self) -> Fut<'_, Vec<String>> {
        Box::pin(self.read(move |connection| {
            if !exist(connection)? {
                return Ok(Vec::new());
            }
            let mut statement = connection.prepare_cached(
                "SELECT memory FROM quipu_recall UNION SELECT memory FROM quipu_dream ORDER BY 1",
            )?;
            let found =
                statement.query_map([], |row| Ok(rows::text(row, 0)?.unwrap_or_default().into_owned()))?;
            Ok(found.collect::<Result<_, _>>()?)
        }))
    }
}
