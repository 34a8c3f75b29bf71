//! The tables: made, recognised, and brought up to date.

use crate::error::system_error;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, OptionalExtension as _};

use super::connect::Patience;
use super::failure::{Failure, Outcome};
use super::file;
use crate::StoreError;

/// The newest format of the side tables that this program knows.
pub(super) const FORMAT: i64 = 1;

/// Shared with other programs; never changed. No version is set: others ignore it, and we probe the columns.
const BASE: &str = "
CREATE TABLE IF NOT EXISTS blobs (hash TEXT PRIMARY KEY, type TEXT NOT NULL, content TEXT NOT NULL, thought_signature TEXT);
CREATE TABLE IF NOT EXISTS nodes (id TEXT PRIMARY KEY, parent_id TEXT, role TEXT NOT NULL, parts_list TEXT NOT NULL,
  timestamp INTEGER NOT NULL, config_json TEXT, thought_signatures TEXT, system_prompt_hash TEXT, external_id TEXT);
CREATE TABLE IF NOT EXISTS refs (name TEXT PRIMARY KEY, node_id TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS action_log (id INTEGER PRIMARY KEY AUTOINCREMENT, timestamp INTEGER NOT NULL,
  action_type TEXT NOT NULL, from_node TEXT, to_node TEXT, metadata TEXT);
";

/// After the columns, or a file of an older program fails here.
const INDEXES: &str = "
CREATE INDEX IF NOT EXISTS idx_nodes_parent ON nodes(parent_id);
CREATE INDEX IF NOT EXISTS idx_nodes_external_id ON nodes(external_id);
";

/// Columns that files of older programs may lack.
const ADDED_COLUMNS: [(&str, &str); 5] = [
    ("nodes", "config_json"),
    ("nodes", "thought_signatures"),
    ("nodes", "system_prompt_hash"),
    ("nodes", "external_id"),
    ("blobs", "thought_signature"),
];

/// Columns without which a table of that name is not ours.
const NEEDED_COLUMNS: [(&str, &[&str]); 4] = [
    ("nodes", &["id", "parent_id", "role", "parts_list", "timestamp"]),
    ("blobs", &["hash", "type", "content"]),
    ("refs", &["name", "node_id"]),
    ("action_log", &["id", "timestamp", "action_type", "from_node", "to_node", "metadata"]),
];

/// Small operational truth: what a crash must not lose and the graph does not hold.
const SIDE: &str = "
CREATE TABLE IF NOT EXISTS quipu_meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS quipu_chunk (hash BLOB PRIMARY KEY, codec INTEGER NOT NULL, size INTEGER NOT NULL, bytes BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS quipu_lease (ref TEXT PRIMARY KEY, owner TEXT NOT NULL, fence INTEGER NOT NULL, expires INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS quipu_inbox (id INTEGER PRIMARY KEY, session TEXT NOT NULL, name TEXT NOT NULL, queue TEXT NOT NULL, item TEXT NOT NULL, UNIQUE(session, name));
CREATE TABLE IF NOT EXISTS quipu_step (session TEXT NOT NULL, run TEXT NOT NULL, call TEXT NOT NULL, state TEXT NOT NULL, result BLOB, PRIMARY KEY(session, run, call));
CREATE TABLE IF NOT EXISTS quipu_reflog (id INTEGER PRIMARY KEY, ref TEXT NOT NULL, old BLOB, new BLOB, at INTEGER NOT NULL, writer TEXT NOT NULL, why TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS quipu_reflog_moves ON quipu_reflog(ref, id) WHERE old IS NULL OR new IS NULL OR why NOT IN ('append', 'label', 'rename');
CREATE TABLE IF NOT EXISTS quipu_jump (session TEXT PRIMARY KEY, stage TEXT NOT NULL, plan TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS quipu_reserve (id TEXT PRIMARY KEY, at INTEGER NOT NULL, expires INTEGER NOT NULL, amount INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS quipu_job (key TEXT PRIMARY KEY, kind TEXT NOT NULL, state TEXT NOT NULL, due INTEGER NOT NULL, next INTEGER NOT NULL, span INTEGER, fence INTEGER NOT NULL, attempts INTEGER NOT NULL, attempt_limit INTEGER NOT NULL, owner TEXT, error TEXT, payload TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS quipu_erased (hash BLOB PRIMARY KEY, kind INTEGER NOT NULL, at INTEGER NOT NULL, why TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS quipu_job_next ON quipu_job(next, key, kind, span) WHERE state <> 'failed';
";

/// Derived from the graph; `rebuild` drops them all. A node's `seq` is the row number of its row in `nodes`, so
/// that what stands here depends on the graph alone and not on when it was indexed.
pub(super) const DERIVED: &str = "
CREATE TABLE IF NOT EXISTS quipu_x_cursor (one INTEGER PRIMARY KEY CHECK (one = 1), seq INTEGER NOT NULL);
INSERT OR IGNORE INTO quipu_x_cursor VALUES (1, 0);
CREATE TABLE IF NOT EXISTS quipu_x_node (seq INTEGER PRIMARY KEY, id BLOB NOT NULL, parent INTEGER, jump INTEGER NOT NULL, depth INTEGER NOT NULL,
  session INTEGER, kind INTEGER NOT NULL, cost INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS quipu_x_wait (seq INTEGER PRIMARY KEY, parent TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS quipu_x_wait_parent ON quipu_x_wait(parent);
CREATE TABLE IF NOT EXISTS quipu_x_session (num INTEGER PRIMARY KEY, id TEXT NOT NULL, ref TEXT NOT NULL, base BLOB NOT NULL, project TEXT NOT NULL,
  agent TEXT NOT NULL, model TEXT NOT NULL, parent TEXT, title TEXT NOT NULL, titled INTEGER, created INTEGER NOT NULL, updated INTEGER NOT NULL,
  entries INTEGER NOT NULL, cost INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS quipu_x_session_id ON quipu_x_session(id);
CREATE INDEX IF NOT EXISTS quipu_x_session_updated ON quipu_x_session(updated);
CREATE INDEX IF NOT EXISTS quipu_x_session_project ON quipu_x_session(project, updated);
CREATE INDEX IF NOT EXISTS quipu_x_session_parent ON quipu_x_session(parent);
CREATE TABLE IF NOT EXISTS quipu_x_mark (session INTEGER NOT NULL, kind INTEGER NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, target TEXT,
  text TEXT, PRIMARY KEY (session, kind, seq)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS quipu_x_mark_name ON quipu_x_mark(text) WHERE kind = 2;
CREATE TABLE IF NOT EXISTS quipu_x_setting (session INTEGER NOT NULL, says INTEGER NOT NULL, seq INTEGER NOT NULL,
  PRIMARY KEY (session, says, seq)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS quipu_x_spend (slot INTEGER PRIMARY KEY, cost INTEGER NOT NULL);
";

const DERIVED_TABLES: [&str; 7] = [
    "quipu_x_cursor",
    "quipu_x_node",
    "quipu_x_wait",
    "quipu_x_session",
    "quipu_x_mark",
    "quipu_x_setting",
    "quipu_x_spend",
];
const SIDE_TABLES: [&str; 10] = [
    "quipu_meta",
    "quipu_chunk",
    "quipu_lease",
    "quipu_inbox",
    "quipu_step",
    "quipu_reflog",
    "quipu_jump",
    "quipu_reserve",
    "quipu_job",
    "quipu_erased",
];

/// What a file is.
enum State {
    /// No table at all.
    Empty,
    /// Base tables without these columns.
    Old(Vec<(&'static str, &'static str)>),
    /// All base columns are there; whether the side tables are.
    Current { complete: bool },
}

/// Makes or upgrades the tables of a file that can be written. Safe to race with other processes.
pub(super) fn bring_up_to_date(connection: &Connection, path: &Path, patience: &Patience) -> Outcome<()> {
    if matches!(recognise(connection, path)?, State::Current { complete: true }) {
        return Ok(());
    }
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let done =
        upgrade_locked(connection, path, patience).and_then(|()| Ok(connection.execute_batch("COMMIT")?));
    if done.is_err() && !connection.is_autocommit() {
        // The error that stopped us is the one to tell.
        connection.execute_batch("ROLLBACK").ok();
    }
    done
}

fn upgrade_locked(connection: &Connection, path: &Path, patience: &Patience) -> Outcome<()> {
    // Once more under the lock: another process may have done it while we waited.
    match recognise(connection, path)? {
        State::Current { complete: true } => return Ok(()),
        State::Current { complete: false } => {}
        State::Empty => return create(connection),
        State::Old(missing) => {
            back_up_before_upgrade(connection, path, patience, &missing)?;
            for (table, column) in missing {
                connection.execute_batch(&format!("ALTER TABLE {table} ADD COLUMN {column} TEXT"))?;
            }
        }
    }
    connection.execute_batch(BASE)?;
    connection.execute_batch(INDEXES)?;
    connection.execute_batch(SIDE)?;
    if !has_derived(connection)? {
        // One that an older program did not have knows nothing of the nodes that are indexed: all are made anew.
        reset_derived(connection)?;
    }
    // Indexes that an older program did not have.
    connection.execute_batch(DERIVED)?;
    note_format(connection)
}

/// All tables, in a database that is empty.
pub(super) fn create(connection: &Connection) -> Outcome<()> {
    for part in [BASE, INDEXES, SIDE, DERIVED] {
        connection.execute_batch(part)?;
    }
    note_format(connection)
}

fn note_format(connection: &Connection) -> Outcome<()> {
    connection.execute("INSERT OR IGNORE INTO quipu_meta VALUES ('format', ?1)", [FORMAT.to_string()])?;
    Ok(())
}

/// Whether every derived table is there.
fn has_derived(connection: &Connection) -> Outcome<bool> {
    for table in DERIVED_TABLES {
        if columns(connection, table)?.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Drops what is derived and makes it empty.
pub(super) fn reset_derived(connection: &Connection) -> Outcome<()> {
    super::vectors::reset(connection)?;
    reset_but_vectors(connection)
}

/// The same, but for the vectors: somebody may have paid for them.
pub(super) fn reset_but_vectors(connection: &Connection) -> Outcome<()> {
    for table in DERIVED_TABLES {
        connection.execute_batch(&format!("DROP TABLE IF EXISTS {table}"))?;
    }
    connection.execute_batch(DERIVED)?;
    // Made again when there is something to index.
    super::activity::reset(connection)?;
    super::recall::reset(connection)?;
    super::search::reset(connection)
}

/// For a file that cannot be written: what it lacks is made beside it, in the connection's own memory, so that
/// every read works as elsewhere.
pub(super) fn complete_in_memory(connection: &Connection, path: &Path) -> Outcome<()> {
    match recognise(connection, path)? {
        State::Current { .. } => {}
        State::Empty => {
            temporary(connection, BASE)?;
        }
        State::Old(_) => {
            return Err(StoreError::NotAStore {
                path: path.to_owned(),
                what:
                    "it was written by an older version and is read-only, so it cannot be upgraded; make it writable, \
                     or copy it"
                        .to_owned(),
            }
            .into());
        }
    }
    for table in SIDE_TABLES {
        if columns(connection, table)?.is_empty() {
            let statement = SIDE.lines().find(|line| line.contains(table)).unwrap_or_default();
            temporary(connection, statement)?;
        }
    }
    if !has_derived(connection)? {
        return temporary(connection, DERIVED);
    }
    Ok(())
}

pub(super) fn temporary(connection: &Connection, statements: &str) -> Outcome<()> {
    let statements = statements
        .replace("CREATE TABLE IF NOT EXISTS ", "CREATE TABLE IF NOT EXISTS temp.")
        .replace("CREATE INDEX IF NOT EXISTS ", "CREATE INDEX IF NOT EXISTS temp.")
        .replace("INSERT OR IGNORE INTO ", "INSERT OR IGNORE INTO temp.");
    connection.execute_batch(&statements)?;
    Ok(())
}

fn recognise(connection: &Connection, path: &Path) -> Outcome<State> {
    let found: HashMap<String, String> = connection
        .prepare("SELECT name, sql FROM main.sqlite_master WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'")?
        .query_map([], |row| Ok((row.get(0)?, row.get::<_, Option<String>>(1)?.unwrap_or_default())))?
        .collect::<Result<_, _>>()?;
    if found.is_empty() {
        return Ok(State::Empty);
    }
    let has = |name: &str| found.contains_key(name);
    // Nearly always each is as we make it, and no column needs a look.
    let as_made = [BASE, INDEXES, SIDE, DERIVED].iter().flat_map(|part| part.split(';')).all(|statement| {
        let Some((kind, rest)) = statement.trim_start().split_once(" IF NOT EXISTS ") else { return true };
        let name = rest.split([' ', '(']).next().unwrap_or_default();
        found
            .get(name)
            .is_some_and(|sql| sql.strip_prefix(kind).and_then(|sql| sql.strip_prefix(' ')) == Some(rest))
    });
    if as_made {
        refuse_newer(connection, path)?;
        return Ok(State::Current { complete: true });
    }
    let foreign = |what: String| Failure::Store(StoreError::NotAStore { path: path.to_owned(), what });
    if !has("nodes") || !has("blobs") {
        return Err(foreign("it is a database of another program".to_owned()));
    }
    for (table, needed) in NEEDED_COLUMNS {
        let found = columns(connection, table)?;
        if !found.is_empty()
            && let Some(column) = needed.iter().find(|column| !found.iter().any(|name| name == *column))
        {
            return Err(foreign(format!("its table `{table}` has no column `{column}`")));
        }
    }
    if has("quipu_meta") {
        refuse_newer(connection, path)?;
    }
    let mut missing = Vec::new();
    for (table, column) in ADDED_COLUMNS {
        if !columns(connection, table)?.iter().any(|name| name == column) {
            missing.push((table, column));
        }
    }
    if !missing.is_empty() {
        return Ok(State::Old(missing));
    }
    let complete = ["refs", "action_log", "quipu_x_session_project"]
        .iter()
        .chain(&SIDE_TABLES)
        .chain(&DERIVED_TABLES)
        .all(|table| has(table));
    Ok(State::Current { complete })
}

fn refuse_newer(connection: &Connection, path: &Path) -> Outcome<()> {
    let format: Option<String> = connection
        .query_row("SELECT value FROM main.quipu_meta WHERE key = 'format'", [], |row| row.get(0))
        .optional()?;
    match format.and_then(|text| text.parse::<i64>().ok()) {
        Some(found) if found > FORMAT => {
            Err(StoreError::NewerVersion { path: path.to_owned(), found, known: FORMAT }.into())
        }
        _ => Ok(()),
    }
}

/// The names of a table's columns; none when there is no such table.
fn columns(connection: &Connection, table: &str) -> Outcome<Vec<String>> {
    let mut statement = connection.prepare("SELECT name FROM pragma_table_info(?1, 'main')")?;
    let names = statement.query_map([table], |row| row.get(0))?.collect::<Result<_, _>>()?;
    Ok(names)
}

/// Copies the file as it is before its columns change. The caller holds the write lock, so that of several
/// processes one makes the copy, and nothing changes while it does; the copy reads through a connection of its
/// own, since a connection cannot copy inside its transaction.
fn back_up_before_upgrade(
    connection: &Connection,
    path: &Path,
    patience: &Patience,
    missing: &[(&str, &str)],
) -> Outcome<()> {
    let version = if missing.iter().any(|(_, column)| *column != "external_id") {
        1
    } else {
        let whole_entries: bool = connection.query_row(
            "SELECT EXISTS (SELECT 1 FROM blobs WHERE type = 'pi_entry')",
            [],
            |row| row.get(0),
        )?;
        if whole_entries { 2 } else { 3 }
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    let target = file::sibling_path(path, &format!(".bak.v{version}.{now}"));
    let source = super::connect::read_write(path, patience)?;
    copy_to(&source, &target)
}

/// Writes a consistent copy of a database to a new private file.
pub(super) fn copy_to(source: &Connection, target: &PathBuf) -> Outcome<()> {
    let Some(name) = target.to_str() else {
        return Err(StoreError::Io {
            path: target.clone(),
            doing: "write".to_owned(),
            detail: "the name is not valid UTF-8".to_owned(),
        }
        .into());
    };
    // SQLite takes an empty file as its target; ours has the right mode before anything is in it.
    file::create_private(target).map_err(|error| system_error(target, "create", &error))?;
    let copied = source.execute("VACUUM INTO ?1", [name]);
    if let Err(error) = copied {
        // Half a copy must not look like a backup.
        std::fs::remove_file(target).ok();
        return Err(error.into());
    }
    Ok(())
}
