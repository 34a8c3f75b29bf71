//! How fast the rows of a store go into an empty one by a bare loop of plain statements: what an import is measured by.
//!
//! `bulk_rate STORE DIRECTORY RUNS` reads the blobs and nodes of STORE in the order in which they were written and puts
//! them into a new file in DIRECTORY, 2,000 nodes and their blobs a transaction, with the connection's settings that
//! the store's writer has. Only the writing is timed: no text is read, made or hashed, and no derived row written. Prints
//! `{"what": .., "unit": "s", "samples": [..]}`. `cargo xtask bench import` runs it.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use quipu_store::{OpenOptions, SqliteStore};
use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags, params_from_iter};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Nodes of one transaction.
const NODES: usize = 2_000;

#[expect(clippy::print_stdout, reason = "the numbers are this program's output")]
fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [store, directory, runs] = arguments.as_slice() else {
        return Err("usage: bulk_rate STORE DIRECTORY RUNS".into());
    };
    let mut samples = Vec::new();
    for run in 0..runs.parse::<usize>()? {
        let file = Scratch(Path::new(directory).join(format!("bulk-rate-{}-{run}.db", std::process::id())));
        samples.push(copy(Path::new(store), &file.0)?.as_secs_f64());
    }
    println!("{}", serde_json::json!({ "what": "bare statements", "unit": "s", "samples": samples }));
    Ok(())
}

/// How long the statements took.
fn copy(from: &Path, to: &Path) -> Outcome<Duration> {
    // The tables are the store's own.
    drop(SqliteStore::open(to, &OpenOptions::default())?);
    let from = Connection::open_with_flags(from, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let to = Connection::open(to)?;
    to.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA cache_size = -32000; \
         PRAGMA wal_autocheckpoint = 16000; PRAGMA journal_size_limit = 67108864",
    )?;
    let mut nodes = from.prepare(
        "SELECT id, parent_id, role, parts_list, timestamp, config_json, thought_signatures, system_prompt_hash, \
         external_id FROM nodes ORDER BY rowid",
    )?;
    let mut nodes = nodes.query([])?;
    let mut blobs = from.prepare("SELECT hash, type, content FROM blobs ORDER BY rowid")?;
    let mut blobs = blobs.query([])?;
    let mut count_of_blobs = from.prepare("SELECT count(*) FROM json_each(?1)")?;
    let mut put_blob = to.prepare("INSERT OR IGNORE INTO blobs (hash, type, content) VALUES (?1, ?2, ?3)")?;
    let mut put_node = to.prepare(
        "INSERT OR IGNORE INTO nodes (id, parent_id, role, parts_list, timestamp, config_json, thought_signatures, \
         system_prompt_hash, external_id) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?;
    let mut took = Duration::ZERO;
    loop {
        let mut node_rows = Vec::with_capacity(NODES);
        let mut blob_rows = Vec::with_capacity(3 * NODES);
        while node_rows.len() < NODES
            && let Some(row) = nodes.next()?
        {
            let row = (0..9).map(|column| row.get(column)).collect::<Result<Vec<Value>, _>>()?;
            let parts: u32 = count_of_blobs.query_row([&row[3]], |row| row.get(0))?;
            node_rows.push(row);
            // Those that nodes share were there before, so this is at least as many as are new.
            for _ in 0..parts {
                if let Some(row) = blobs.next()? {
                    blob_rows.push((0..3).map(|column| row.get(column)).collect::<Result<Vec<Value>, _>>()?);
                }
            }
        }
        if node_rows.is_empty() && blob_rows.is_empty() {
            return Ok(took);
        }
        let begun = Instant::now();
        to.execute_batch("BEGIN IMMEDIATE")?;
        for row in &blob_rows {
            put_blob.execute(params_from_iter(row))?;
        }
        for row in &node_rows {
            put_node.execute(params_from_iter(row))?;
        }
        to.execute_batch("COMMIT")?;
        took += begun.elapsed();
    }
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
