//! How fast the rows of a store go into an empty one by a bare loop of plain statements: what an import is measured by.
//!
//! `bulk_rate STORE DIRECTORY RUNS` reads the rows of STORE in the order in which they were written and puts them into a
//! new file in DIRECTORY, 2,000 nodes and their blobs a transaction, with the connection's settings that the store's
//! writer has. Only the writing is timed: no text is read, made, sealed or hashed. Prints two rows
//! `{"what": .., "unit": "s", "samples": [..]}`: `statements` are all that make a file as the import left it from none: its tables,
//! the rows of each and the last copy of the log into it; `blobs and nodes` only the rows of those two, the log being left.
//! `cargo xtask bench import` runs it.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use quipu_store::{OpenOptions, SqliteStore};
use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags, Row, Statement, params_from_iter};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Nodes of one transaction.
const NODES: i64 = 2_000;

#[expect(clippy::print_stdout, reason = "the numbers are this program's output")]
fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [store, directory, runs] = arguments.as_slice() else {
        return Err("usage: bulk_rate STORE DIRECTORY RUNS".into());
    };
    for (what, all) in [("statements", true), ("blobs and nodes", false)] {
        let mut samples = Vec::new();
        for run in 0..runs.parse::<usize>()? {
            let file =
                Scratch(Path::new(directory).join(format!("bulk-rate-{}-{run}.db", std::process::id())));
            samples.push(copy(Path::new(store), &file.0, all)?.as_secs_f64());
        }
        println!("{}", serde_json::json!({ "what": what, "unit": "s", "samples": samples }));
    }
    Ok(())
}

/// How long the statements took.
fn copy(from: &Path, to: &Path, all: bool) -> Outcome<Duration> {
    // The tables are the store's own.
    let tables = tables(&to.with_extension("tables"))?;
    let from = Connection::open_with_flags(from, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let begun = Instant::now();
    let to = Connection::open(to)?;
    to.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA cache_size = -32000; \
         PRAGMA wal_autocheckpoint = 16000; PRAGMA journal_size_limit = 67108864; BEGIN IMMEDIATE",
    )?;
    tables.iter().try_for_each(|statement| to.execute_batch(statement))?;
    to.execute_batch("COMMIT")?;
    let mut took = if all { begun.elapsed() } else { Duration::ZERO };
    {
        let mut nodes = Rows::of(&from, &to, "nodes")?;
        let mut blobs = Rows::of(&from, &to, "blobs")?;
        let mut places = if all { Some(Rows::of(&from, &to, "quipu_x_node")?) } else { None };
        let mut count_of_blobs = from.prepare("SELECT count(*) FROM json_each(?1)")?;
        loop {
            let node_rows = nodes.next(NODES)?;
            let mut parts: u32 = 0;
            for row in &node_rows {
                parts += count_of_blobs.query_row([&row[PARTS]], |row| row.get::<_, u32>(0))?;
            }
            // Those that nodes share were there before, so this is at least as many as are new.
            let blob_rows = blobs.next(if node_rows.is_empty() { i64::MAX } else { parts.into() })?;
            let place_rows = places.as_mut().map_or(Ok(Vec::new()), |places| places.next(NODES))?;
            if node_rows.is_empty() && blob_rows.is_empty() {
                break;
            }
            let begun = Instant::now();
            to.execute_batch("BEGIN IMMEDIATE")?;
            put_all(&mut blobs.put, &blob_rows)?;
            put_all(&mut nodes.put, &node_rows)?;
            if let Some(places) = &mut places {
                put_all(&mut places.put, &place_rows)?;
            }
            to.execute_batch("COMMIT")?;
            took += begun.elapsed();
        }
    }
    if !all {
        return Ok(took);
    }
    let mut tables = from.prepare(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%' \
         AND name NOT IN ('blobs', 'nodes', 'quipu_x_node', 'sqlite_sequence')",
    )?;
    let tables = tables.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()?;
    for table in tables {
        // What was made later is not the import's.
        if !to.table_exists(None, table.as_str())? {
            continue;
        }
        let (columns, mut put) = columns_of(&to, &table)?;
        let mut rows = from.prepare(&format!("SELECT {} FROM {table}", columns.join(", ")))?;
        let mut rows = rows.query([])?;
        let mut read = Vec::new();
        while let Some(row) = rows.next()? {
            read.push(values(row, columns.len())?);
        }
        if !read.is_empty() {
            let begun = Instant::now();
            to.execute_batch("BEGIN IMMEDIATE")?;
            put_all(&mut put, &read)?;
            to.execute_batch("COMMIT")?;
            took += begun.elapsed();
        }
    }
    let begun = Instant::now();
    to.close().map_err(|(_, error)| error)?;
    Ok(took + begun.elapsed())
}

/// The statements that make the tables of a store, and their indexes.
fn tables(scratch: &Path) -> Outcome<Vec<String>> {
    let file = Scratch(scratch.to_owned());
    drop(SqliteStore::open(&file.0, &OpenOptions::default())?);
    let made = Connection::open_with_flags(&file.0, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    // Tables that others bring along, and indexes without a text, come with them.
    let mut statements = made.prepare(
        "SELECT sql FROM sqlite_master m WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' \
         AND NOT EXISTS (SELECT 1 FROM sqlite_master v WHERE v.sql LIKE 'CREATE VIRTUAL%' \
         AND m.name LIKE v.name || '\\_%' ESCAPE '\\')",
    )?;
    let statements = statements.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    Ok(statements)
}

/// The column `parts_list` of `nodes`.
const PARTS: usize = 3;

/// The rows of a table in the order of their numbers, and the statement that puts them into another file.
struct Rows<'a> {
    from: Statement<'a>,
    put: Statement<'a>,
    columns: usize,
    /// The number of the last one that was read.
    last: i64,
}

impl<'a> Rows<'a> {
    fn of(from: &'a Connection, to: &'a Connection, table: &str) -> Outcome<Self> {
        let (columns, put) = columns_of(to, table)?;
        let list = columns.join(", ");
        let from = from.prepare(&format!(
            "SELECT {list}, rowid FROM {table} WHERE rowid > ?1 ORDER BY rowid LIMIT ?2"
        ))?;
        Ok(Self { from, put, columns: columns.len(), last: i64::MIN })
    }

    fn next(&mut self, most: i64) -> Outcome<Vec<Vec<Value>>> {
        let mut found = self.from.query([self.last, most])?;
        let mut rows = Vec::new();
        while let Some(row) = found.next()? {
            rows.push(values(row, self.columns)?);
            self.last = row.get(self.columns)?;
        }
        Ok(rows)
    }
}

fn columns_of<'a>(to: &'a Connection, table: &str) -> Outcome<(Vec<String>, Statement<'a>)> {
    let mut columns = to.prepare("SELECT name FROM pragma_table_info(?1)")?;
    let columns = columns.query_map([table], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()?;
    let (list, places) = (columns.join(", "), vec!["?"; columns.len()].join(", "));
    // Rows of the other tables may be there from the start.
    let or = if matches!(table, "blobs" | "nodes") { "IGNORE" } else { "REPLACE" };
    let put = to.prepare(&format!("INSERT OR {or} INTO {table} ({list}) VALUES ({places})"))?;
    Ok((columns, put))
}

fn values(row: &Row<'_>, columns: usize) -> rusqlite::Result<Vec<Value>> {
    (0..columns).map(|column| row.get(column)).collect()
}

fn put_all(put: &mut Statement<'_>, rows: &[Vec<Value>]) -> rusqlite::Result<()> {
    rows.iter().try_for_each(|row| put.execute(params_from_iter(row)).map(|_| ()))
}

/// A database that is removed with its companions.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        for suffix in ["", "-wal", "-shm"] {
            let mut name = self.0.clone().into_os_string();
            name.push(suffix);
            // What cannot be removed is left in the build folder.
            drop(std::fs::remove_file(name));
        }
    }
}
