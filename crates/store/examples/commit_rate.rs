//! How many commits a second the store takes, beside a bare loop of the same statements on the base tables.
//!
//! `commit_rate DIRECTORY RUNS COMMITS [WORDS]` makes files in the directory, which has to be on a real disk, and
//! prints a JSON line for each row: `{"what": .., "unit": "/s", "samples": [..]}`; with words, such as
//! `"process, one"`, only the rows that have them in their name, for profilers. `cargo xtask bench commits` runs it.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Instant;

use quipu_dag::{Blob, Node, NodeRecord};
use quipu_store::{Action, Commit, Durability, OpenOptions, RefMove, RefName, SqliteStore, Store};
use rusqlite::{Connection, params};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Text of a node, bytes: about what an entry of a real session has.
const TEXT_BYTES: usize = 1_024;
/// Sessions that commit at the same time in the grouped row.
const SESSIONS: usize = 16;

#[expect(clippy::print_stdout, reason = "the numbers are this program's output")]
fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (directory, runs, commits, words) = match arguments.as_slice() {
        [directory, runs, commits] => (directory, runs, commits, ""),
        [directory, runs, commits, words] => (directory, runs, commits, words.as_str()),
        _ => return Err("usage: commit_rate DIRECTORY RUNS COMMITS [WORDS]".into()),
    };
    let (directory, runs, commits) =
        (Path::new(directory), runs.parse::<usize>()?, commits.parse::<usize>()?);
    std::fs::create_dir_all(directory)?;
    for (durability, name) in [(Durability::Process, "process"), (Durability::Power, "power")] {
        let sets = [("one session", Some(1)), ("16 sessions", Some(SESSIONS)), ("bare statements", None)];
        for (set, sessions) in sets {
            let what = format!("commits, {name}, {set}");
            if !what.contains(words) {
                continue;
            }
            let mut samples = Vec::with_capacity(runs);
            for run in 0..runs {
                let file = Scratch(directory.join(format!("commit-rate-{}-{run}.db", std::process::id())));
                samples.push(match sessions {
                    Some(sessions) => store_rate(&file.0, durability, sessions, commits)?,
                    None => bare_rate(&file.0, durability, commits)?,
                });
            }
            let row = serde_json::json!({ "what": what, "unit": "/s", "samples": samples });
            println!("{row}");
        }
    }
    Ok(())
}

/// One step as the engine commits it: two blobs, a node, a ref that moves, a row of the action log.
struct StepData {
    blobs: [Blob; 2],
    node: Node,
    action: Action,
}

fn step(number: usize, session: usize, parent: Option<&Node>) -> Outcome<StepData> {
    let text = format!("{session} {number} ").repeat(TEXT_BYTES).chars().take(TEXT_BYTES).collect::<String>();
    let blobs = [
        Blob::text(&text),
        Blob::from_canonical("quipu", format!("{{\"step\":{number},\"turn\":{session}}}")),
    ];
    let timestamp = 1_700_000_000_000 + i64::try_from(number)?;
    let record = NodeRecord {
        parent: parent.map(|parent| parent.id),
        role: "assistant".to_owned(),
        parts: blobs.iter().map(|blob| blob.id).collect(),
        timestamp,
        external_id: Some(format!("01900000-0000-7000-8000-{:012x}", number * 4_096 + session)),
        system_prompt: None,
    };
    let node = Node::new(record, None, None);
    let action = Action {
        timestamp,
        kind: "QUIPU_STEP".to_owned(),
        from: parent.map(|parent| parent.id),
        to: Some(node.id),
        metadata: None,
    };
    Ok(StepData { blobs, node, action })
}

/// Commits a second through the trait: each session waits for its own commit before it makes the next.
fn store_rate(file: &Path, durability: Durability, sessions: usize, commits: usize) -> Outcome<f64> {
    let store = SqliteStore::open(file, &OpenOptions::default())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
    let store = std::sync::Arc::new(store);
    let each = commits / sessions;
    let start = Instant::now();
    runtime.block_on(async {
        let mut tasks = tokio::task::JoinSet::new();
        for session in 0..sessions {
            let store = std::sync::Arc::clone(&store);
            tasks.spawn(async move {
                one_session(store.as_ref(), session, each, durability)
                    .await
                    .map_err(|error| error.to_string())
            });
        }
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        Ok::<(), Box<dyn Error>>(())
    })?;
    Ok(rate(each * sessions, start))
}

async fn one_session(
    store: &SqliteStore,
    session: usize,
    commits: usize,
    durability: Durability,
) -> Outcome<()> {
    let name = RefName::from(format!("bench/{session}"));
    let mut last: Option<Node> = None;
    for number in 0..commits {
        let StepData { blobs, node, action } = step(number, session, last.as_ref())?;
        let expect = last.as_ref().map(|last| last.id);
        let batch = Commit {
            blobs: blobs.to_vec(),
            nodes: vec![node.clone()],
            moves: vec![RefMove::swap(name.clone(), expect, node.id, "bench")],
            actions: vec![action],
            durability,
            ..Commit::default()
        };
        store.commit(batch).await?;
        last = Some(node);
    }
    Ok(())
}

/// Commits a second of the same rows by plain statements: no side tables, no checks, no thread between.
fn bare_rate(file: &Path, durability: Durability, commits: usize) -> Outcome<f64> {
    // The tables are the store's own, without its side tables' rows.
    drop(SqliteStore::open(file, &OpenOptions::default())?);
    let connection = Connection::open(file)?;
    let synchronous = match durability {
        Durability::Process => "NORMAL",
        Durability::Power => "FULL",
    };
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", synchronous)?;
    let mut last: Option<Node> = None;
    let start = Instant::now();
    for number in 0..commits {
        let StepData { blobs, node, action } = step(number, 0, last.as_ref())?;
        let parent = last.as_ref().map(|last| last.id.to_string());
        let id = node.id.to_string();
        connection.execute_batch("BEGIN IMMEDIATE")?;
        for blob in &blobs {
            connection
                .prepare_cached("INSERT OR IGNORE INTO blobs(hash, type, content) VALUES (?1, ?2, ?3)")?
                .execute(params![blob.id.to_string(), blob.kind, blob.content])?;
        }
        let parts = quipu_dag::write_parts_list(&node.record.parts);
        connection
            .prepare_cached(
                "INSERT INTO nodes(id, parent_id, role, parts_list, timestamp, external_id) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?
            .execute(params![id, parent, node.record.role, parts, node.record.timestamp, node.record.external_id])?;
        connection
            .prepare_cached(
                "INSERT INTO refs(name, node_id) VALUES ('bench/0', ?1) ON CONFLICT(name) DO UPDATE SET node_id = ?1",
            )?
            .execute([&id])?;
        connection
            .prepare_cached(
                "INSERT INTO action_log(timestamp, action_type, from_node, to_node) VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute(params![action.timestamp, action.kind, parent, id])?;
        connection.execute_batch("COMMIT")?;
        last = Some(node);
    }
    Ok(rate(commits, start))
}

#[expect(clippy::cast_precision_loss, reason = "counts of commits are far below 2^53")]
fn rate(commits: usize, start: Instant) -> f64 {
    commits as f64 / start.elapsed().as_secs_f64()
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
