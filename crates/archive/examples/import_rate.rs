//! How fast session files come into a store and out of it.
//!
//! `import_rate DIRECTORY MEGABYTES [RUNS [WORDS]]` makes a session file and stores in the directory, which has to be on a
//! real disk, and prints a JSON line for each row: `{"what": .., "unit": .., "samples": [..]}`; with words, such as
//! `export`, only the import and the rows that have them in their name, for profilers; with `dry run` nothing but that. The
//! last store stays.

use std::error::Error;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use quipu_archive::{ImportCache, pi};
use quipu_seal::Sealer;
use quipu_store::{Graph, LineageEnd, OpenOptions, SessionQuery, SqliteStore};
use serde_json::json;

type Outcome<T> = Result<T, Box<dyn Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (directory, megabytes, runs, words) = match arguments.as_slice() {
        [directory, megabytes] => (directory, megabytes, 3, ""),
        [directory, megabytes, runs] => (directory, megabytes, runs.parse::<u32>()?, ""),
        [directory, megabytes, runs, words] => (directory, megabytes, runs.parse::<u32>()?, words.as_str()),
        _ => return Err("usage: import_rate DIRECTORY MEGABYTES [RUNS [WORDS]]".into()),
    };
    let megabytes = megabytes.parse::<u64>()?;
    let directory = Path::new(directory);
    std::fs::create_dir_all(directory)?;
    let file = directory.join(format!("session-{megabytes}.jsonl"));
    let entries = write_session(&file, megabytes << 20)?;
    let size = megabytes_of(std::fs::metadata(&file)?.len());
    let sealer = Arc::new(Sealer::new([7; 32]));
    let mut rows: Vec<(&str, &str, Vec<f64>)> = vec![
        ("dry run", "MB/s", Vec::new()),
        ("import", "MB/s", Vec::new()),
        ("import again, unchanged", "MB/s", Vec::new()),
        ("import again, by another name", "MB/s", Vec::new()),
        ("lineage", "ms", Vec::new()),
        ("export", "MB/s", Vec::new()),
    ];
    for _ in 0..runs {
        let path = directory.join("import-rate.db");
        remove(&path);
        let store: Arc<dyn Graph> = Arc::new(SqliteStore::open(&path, &OpenOptions::default())?);
        for (row, name, dry_run) in [(0, &file, true), (1, &file, false), (2, &file, false)] {
            if (row == 1 && words != "dry run") || rows[row].0.contains(words) {
                rows[row].2.push(size / import(&store, &sealer, name, dry_run).await?);
            }
        }
        let copy = directory.join("copy.jsonl");
        if rows[3].0.contains(words) {
            std::fs::copy(&file, &copy)?;
            rows[3].2.push(size / import(&store, &sealer, &copy, false).await?);
        }
        if !"lineage, export".contains(words) {
            continue;
        }
        let row = store.sessions(SessionQuery::default()).await?.into_iter().next().ok_or("no session")?;
        let begun = Instant::now();
        let lineage = store.lineage(row.head.ok_or("no head")?, LineageEnd::Root).await?;
        rows[4].2.push(begun.elapsed().as_secs_f64() * 1e3);
        let begun = Instant::now();
        let mut out = std::io::BufWriter::new(std::fs::File::create(&copy)?);
        let done = pi::export(&*store, &row, &mut out).await?;
        rows[5].2.push(megabytes_of(done.bytes) / begun.elapsed().as_secs_f64());
        if done.entries != entries || lineage.len() as u64 > entries + 1 {
            return Err(format!("{entries} entries went in and {} came out", done.entries).into());
        }
    }
    let mut out = std::io::stdout().lock();
    for (what, unit, samples) in rows {
        writeln!(out, "{}", json!({ "what": what, "unit": unit, "samples": samples }))?;
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "sizes of files")]
fn megabytes_of(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

fn remove(path: &Path) {
    for end in ["", "-wal", "-shm"] {
        // What is not there need not go.
        drop(std::fs::remove_file(format!("{}{end}", path.display())));
    }
}

/// Seconds that one import takes.
async fn import(store: &Arc<dyn Graph>, sealer: &Arc<Sealer>, file: &Path, dry_run: bool) -> Outcome<f64> {
    let begun = Instant::now();
    let cache = ImportCache::load(&**store).await?;
    let options = pi::ImportOptions { dry_run, progress: &|_| {} };
    pi::import(store, sealer, file, &cache, &options).await?;
    Ok(begun.elapsed().as_secs_f64())
}

/// A session of turns: a question, an answer with a call, its result, an answer. About a kilobyte an entry; now and
/// then a branch.
fn write_session(path: &Path, size: u64) -> Outcome<u64> {
    let mut out = std::io::BufWriter::new(std::fs::File::create(path)?);
    let header = json!({ "type": "session", "version": 3, "id": "rate", "timestamp": "2026-01-02T03:04:05.678Z", "cwd": "/p" });
    writeln!(out, "{header}")?;
    let (mut written, mut n) = (0, 0_u64);
    let usage = json!({ "input": 100, "output": 50, "cacheRead": 20_000, "cacheWrite": 300, "totalTokens": 20_450,
        "cost": { "input": 0.0003, "output": 0.00075, "cacheRead": 0.006, "cacheWrite": 0.001_125, "total": 0.008_175 } });
    while written < size {
        let text = |length: usize| {
            format!("{n} fn name_{n}(value: u64) -> Result<(), Error> {{\n\t\"text\"\n}}\n").repeat(length)
        };
        let base = json!({ "api": "wire", "provider": "p", "model": "m", "usage": usage, "timestamp": 1_767_323_045_678_i64 });
        let message = match n % 4 {
            0 => {
                json!({ "role": "user", "content": [{ "type": "text", "text": text(4) }], "timestamp": 1_767_323_045_678_i64 })
            }
            1 => {
                let call = json!({ "type": "toolCall", "id": format!("call_{n}"), "name": "bash", "arguments": { "command": text(4) } });
                let mut message = json!({ "role": "assistant", "content": [{ "type": "text", "text": "Let me look." }, call] });
                if let (Some(message), serde_json::Value::Object(base)) = (message.as_object_mut(), base) {
                    message.extend(base);
                }
                message["stopReason"] = json!("toolUse");
                message
            }
            2 => json!({ "role": "toolResult", "toolCallId": format!("call_{}", n - 1), "toolName": "bash",
                "content": [{ "type": "text", "text": text(30) }], "details": {}, "isError": false,
                "timestamp": 1_767_323_045_678_i64 }),
            _ => {
                let mut message =
                    json!({ "role": "assistant", "content": [{ "type": "text", "text": text(6) }] });
                if let (Some(message), serde_json::Value::Object(base)) = (message.as_object_mut(), base) {
                    message.extend(base);
                }
                message["stopReason"] = json!("stop");
                message
            }
        };
        let back = if n % 400 == 399 { 9 } else { 1 };
        let parent = n.checked_sub(back).map(|parent| format!("{parent:08x}"));
        let seconds = n % 60;
        let line = json!({ "type": "message", "id": format!("{n:08x}"), "parentId": parent,
            "timestamp": format!("2026-01-02T03:04:{seconds:02}.678Z"), "message": message })
        .to_string();
        written += line.len() as u64 + 1;
        writeln!(out, "{line}")?;
        n += 1;
    }
    out.flush()?;
    Ok(n)
}
