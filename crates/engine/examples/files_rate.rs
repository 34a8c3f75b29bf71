//! What it costs that files go with the conversation: looking at a workspace around a command, and keeping a file around
//! a call that changes it.
//!
//! `files_rate DIRECTORY FILES TIMES` makes a workspace of so many files in the directory and prints a JSON line for each
//! row: `{"what": .., "unit": "ms", "samples": [..]}`. `cargo xtask bench files` runs it.

use std::error::Error;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use quipu::protocol::{Json, Model};
use quipu::store::{OpenOptions, SqliteStore};
use quipu::{Engine, FileSettings, Script, ScriptStep, Sealer, SessionOptions};
use quipu_workspace::{changed, scan};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Bytes of the file that is changed.
const BYTES: usize = 256 << 10;
/// Files of one directory.
const TOGETHER: usize = 100;

fn row(what: &str, samples: &[f64]) -> Outcome<()> {
    let row = serde_json::json!({ "what": what, "unit": "ms", "samples": samples });
    Ok(writeln!(std::io::stdout(), "{row}")?)
}

fn since(begun: Instant) -> f64 {
    begun.elapsed().as_secs_f64() * 1e3
}

fn scans(directory: &Path, files: usize, times: usize) -> Outcome<()> {
    for at in 0..files {
        let parent = directory.join(format!("d{}/e{}", at / TOGETHER / 10, at / TOGETHER));
        if at % TOGETHER == 0 {
            std::fs::create_dir_all(&parent)?;
        }
        std::fs::write(parent.join(format!("file_{at}.rs")), format!("fn f{at}() {{}}\n"))?;
    }
    let (mut first, mut same, mut different) = (Vec::new(), Vec::new(), Vec::new());
    for turn in 0..times {
        let begun = Instant::now();
        let before = scan(directory, None, None)?;
        first.push(since(begun));
        let begun = Instant::now();
        let found = changed(&before, &scan(directory, None, Some(&before))?);
        same.push(since(begun));
        if !found.is_empty() {
            return Err(format!("{found:?} have not changed").into());
        }
        let new = directory.join(format!("d0/new_{turn}"));
        std::fs::write(&new, "new")?;
        std::fs::write(directory.join("d0/e0/file_0.rs"), format!("fn f{turn}() {{ changed() }}\n"))?;
        let begun = Instant::now();
        let found = changed(&before, &scan(directory, None, Some(&before))?);
        different.push(since(begun));
        if found.len() != 2 {
            return Err(format!("{found:?} have changed").into());
        }
        std::fs::remove_file(new)?;
    }
    row(&format!("a first look at {files} files"), &first)?;
    row(&format!("what changed among {files} files: nothing"), &same)?;
    row(&format!("what changed among {files} files: two"), &different)
}

/// Milliseconds of each of so many turns that edit a file.
async fn turns(directory: &Path, name: &str, times: usize, enabled: bool) -> Outcome<Vec<f64>> {
    let work = directory.join(name);
    std::fs::create_dir_all(&work)?;
    let filler = "let value = compute(input, 17); // and so on\n".repeat(BYTES / 46);
    std::fs::write(work.join("f.rs"), format!("// turn 0;\n{filler}"))?;
    let steps = (0..times).flat_map(|turn| {
        let args = serde_json::json!({
            "path": "f.rs",
            "edits": [{ "oldText": format!("// turn {turn};"), "newText": format!("// turn {};", turn + 1) }],
        });
        let calls = vec![("edit".to_owned(), Json::from(&args))];
        [
            ScriptStep { calls, ..ScriptStep::default() },
            ScriptStep { text: "Done.".into(), ..ScriptStep::default() },
        ]
    });
    let store = SqliteStore::open(&directory.join(format!("{name}.db")), &OpenOptions::default())?;
    let engine = Engine::new(Arc::new(store), Arc::new(Sealer::new([0; 32])), directory.join("spill"));
    let (model, script) = (Arc::new(Model::default()), Arc::new(Script::new(steps.collect())));
    let files = FileSettings { enabled, ..FileSettings::default() };
    let session = engine.create(SessionOptions { files, ..SessionOptions::new(work, model, script) }).await?;
    let mut samples = Vec::new();
    for _ in 0..times {
        let begun = Instant::now();
        session.ask("Go on.").await?;
        samples.push(since(begun));
    }
    session.shutdown().await;
    Ok(samples)
}

#[tokio::main]
async fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [directory, files, times] = args.as_slice() else {
        return Err("usage: files_rate DIRECTORY FILES TIMES".into());
    };
    let directory = tempfile::tempdir_in({
        std::fs::create_dir_all(directory)?;
        directory
    })?;
    let (files, times) = (files.parse()?, times.parse::<usize>()?.max(1));
    scans(&directory.path().join("many"), files, times)?;
    let without = turns(directory.path(), "without", times * 10, false).await?;
    let with = turns(directory.path(), "with", times * 10, true).await?;
    row("a turn that edits 256 KiB, nothing kept", &without)?;
    row("a turn that edits 256 KiB, before and after kept", &with)
}
