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
use quipu::{Engine, FileSettings, Script, ScriptStep, Sealer, Session, SessionOptions};
use quipu_workspace::{changed, scan};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Bytes of the file that is changed.
const BYTES: usize = 256 << 10;
/// Files that git ignores and that are looked at.
const IGNORED: usize = 10_000;
/// Files of one directory.
const TOGETHER: usize = 100;

fn row(what: &str, samples: &[f64]) -> Outcome<()> {
    let row = serde_json::json!({ "what": what, "unit": "ms", "samples": samples });
    Ok(writeln!(std::io::stdout(), "{row}")?)
}

/// Milliseconds of the clock, and of processors: what a busy machine does not stretch.
#[derive(Default)]
struct Samples {
    wall: Vec<f64>,
    processor: Vec<f64>,
}

impl Samples {
    fn add(&mut self, begun: (Instant, f64)) -> Outcome<()> {
        self.wall.push(begun.0.elapsed().as_secs_f64() * 1e3);
        self.processor.push(processor()? - begun.1);
        Ok(())
    }

    fn rows(&self, what: &str) -> Outcome<()> {
        row(what, &self.wall)?;
        row(&format!("{what}, processor"), &self.processor)
    }
}

fn processor() -> Outcome<f64> {
    use nix::sys::time::TimeValLike as _;
    let used = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF)?;
    let micros = used.user_time().num_microseconds() + used.system_time().num_microseconds();
    Ok(std::time::Duration::from_micros(micros.unsigned_abs()).as_secs_f64() * 1e3)
}

fn now() -> Outcome<(Instant, f64)> {
    Ok((Instant::now(), processor()?))
}

fn scans(directory: &Path, files: usize, times: usize) -> Outcome<()> {
    for at in 0..files {
        let parent = directory.join(format!("d{}/e{}", at / TOGETHER / 10, at / TOGETHER));
        if at % TOGETHER == 0 {
            std::fs::create_dir_all(&parent)?;
        }
        std::fs::write(parent.join(format!("file_{at}.rs")), format!("fn f{at}() {{}}\n"))?;
    }
    let (mut first, mut same, mut different) = (Samples::default(), Samples::default(), Samples::default());
    for turn in 0..times {
        let begun = now()?;
        let before = scan(directory, None, None, IGNORED)?;
        first.add(begun)?;
        let begun = now()?;
        let found = changed(&before, &scan(directory, None, Some(&before), IGNORED)?).files;
        same.add(begun)?;
        if !found.is_empty() {
            return Err(format!("{found:?} have not changed").into());
        }
        let new = directory.join(format!("d0/new_{turn}"));
        std::fs::write(&new, "new")?;
        std::fs::write(directory.join("d0/e0/file_0.rs"), format!("fn f{turn}() {{ changed() }}\n"))?;
        let begun = now()?;
        let found = changed(&before, &scan(directory, None, Some(&before), IGNORED)?).files;
        different.add(begun)?;
        if found.len() != 2 {
            return Err(format!("{found:?} have changed").into());
        }
        std::fs::remove_file(new)?;
    }
    first.rows(&format!("a first look at {files} files"))?;
    same.rows(&format!("what changed among {files} files: nothing"))?;
    different.rows(&format!("what changed among {files} files: two"))
}

/// A session whose model edits a file in so many turns: the same again, or one that nobody touched before.
async fn editing(directory: &Path, name: &str, times: usize, enabled: bool, again: bool) -> Outcome<Session> {
    let work = directory.join(name);
    std::fs::create_dir_all(&work)?;
    let filler = "let value = compute(input, 17); // and so on\n".repeat(BYTES / 46);
    for turn in 0..if again { 1 } else { times } {
        // No two are alike.
        std::fs::write(work.join(format!("f{turn}.rs")), format!("// turn {turn};\n{filler}"))?;
    }
    let steps = (0..times).flat_map(|turn| {
        let args = serde_json::json!({
            "path": format!("f{}.rs", if again { 0 } else { turn }),
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
    Ok(engine.create(SessionOptions { files, ..SessionOptions::new(work, model, script) }).await?)
}

/// Turns without files kept and with them, one after the other, and by how much they differ.
async fn turns(directory: &Path, times: usize, again: bool) -> Outcome<()> {
    let sessions = [
        editing(directory, &format!("without-{again}"), times, false, again).await?,
        editing(directory, &format!("with-{again}"), times, true, again).await?,
    ];
    let mut samples = [Samples::default(), Samples::default()];
    for _ in 0..times {
        for (session, samples) in sessions.iter().zip(&mut samples) {
            let begun = now()?;
            session.ask("Go on.").await?;
            samples.add(begun)?;
        }
    }
    for session in sessions {
        session.shutdown().await;
    }
    let what = if again { "256 KiB" } else { "256 KiB for the first time" };
    let [without, with] = samples;
    without.rows(&format!("a turn that edits {what}, nothing kept"))?;
    with.rows(&format!("a turn that edits {what}, before and after kept"))?;
    let cost = |with: &[f64], without: &[f64]| median(with) - median(without);
    let name = format!("what it costs to keep {what}");
    row(&name, &[cost(&with.wall, &without.wall)])?;
    row(&format!("{name}, processor"), &[cost(&with.processor, &without.processor)])
}

fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
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
    turns(directory.path(), times * 10, true).await?;
    turns(directory.path(), times * 10, false).await
}
