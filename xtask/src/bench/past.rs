//! The past: how long extractive summaries of so many turns take, how much memory, and how much the store grows by them; then the
//! chunk of a new turn, and the page.
//!
//! Histories are imported once; each run builds the past of a copy of that store. The last copy has the new turns and the pages.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use super::browser::{self, Browser};
use super::histories::{Amount, History};
use super::measure;
use super::programs::{Contender, Stage};
use super::{Benchmark, Context, Row, guard, number, search};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "past",
    about: "summaries without a model of 1k, 10k and 100k turns: time, memory, growth of the store; a new turn's chunk; the page",
    run,
};

/// Turns of one session, and messages of one turn.
const SESSION: usize = 500;
const TURN: usize = 4;
/// More turns take long to copy, and are built less often.
const MANY: usize = 10_000;
const FEW_RUNS: usize = 3;
/// Turns whose chunks are made one by one.
const NEW_TURNS: usize = 100;

fn run(context: &Context) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for turns in context.sizes.past {
        let what = format!("past of {} turns", number(*turns as f64));
        if context.wants(BENCHMARK.name, &what) {
            eprintln!("bench: {what}");
            rows.extend(measure_one(context, *turns, &what)?);
        }
    }
    Ok(rows)
}

fn measure_one(context: &Context, turns: usize, what: &str) -> Result<Vec<Row>> {
    let stage = Stage::new(context, Contender::Quipu)?;
    let folder = context.quipu.with_file_name("bench");
    std::fs::create_dir_all(&folder)?;
    let folder = tempfile::Builder::new().prefix("past-").tempdir_in(folder)?;
    let files = folder.path().join("files");
    std::fs::create_dir_all(&files)?;
    let sessions = turns.div_ceil(SESSION);
    let amount = Amount { name: "", files: sessions, entries: turns / sessions * TURN };
    History::ClaudeCode.write(context, &amount, &files)?;
    let (made, store) = (folder.path().join("made.db"), folder.path().join("quipu.db"));
    let output = guard::output(
        stage.program()?.args(["import", History::ClaudeCode.agent()]).arg(&files).arg("--store").arg(&made),
    )?;
    ensure!(output.status.success(), "import: {}", String::from_utf8_lossy(&output.stderr).trim());
    let parts = [
        (", built", "ms"),
        (", built, peak memory", "MiB"),
        (", built again", "ms"),
        (", built again, peak memory", "MiB"),
        (", growth of the store", "MB"),
        (", of the store before", "%"),
    ];
    let mut rows = parts.map(|(part, unit)| Row { what: format!("{what}{part}"), unit, samples: Vec::new() });
    let runs = if turns > MANY { context.runs.min(FEW_RUNS) } else { context.runs };
    for _ in 0..runs {
        copy(&made, &store)?;
        let before = size(&store);
        let build = || -> Result<measure::Cost> {
            let mut command = stage.program()?;
            command.args(["past", "build", "--all", "--store"]).arg(&store);
            measure::once(&command)
        };
        let (first, again) = (build()?, build()?);
        let growth = size(&store).saturating_sub(before) as f64 / 1e6;
        let share = growth * 1e8 / before as f64;
        let figures = [first.wall_ms, first.peak_mib, again.wall_ms, again.peak_mib, growth, share];
        rows.iter_mut().zip(figures).for_each(|(row, figure)| row.samples.push(figure));
    }
    let mut rows = Vec::from(rows);
    rows.extend(page(context, &stage, &store, folder.path(), (what, runs))?);
    rows.extend(new_turns(context, &store, what)?);
    Ok(rows)
}

/// Writing the page, and opening it.
fn page(
    context: &Context,
    stage: &Stage<'_>,
    store: &Path,
    folder: &Path,
    (what, runs): (&str, usize),
) -> Result<Vec<Row>> {
    let row = |part: &str, unit| Row { what: format!("{what}, page{part}"), unit, samples: Vec::new() };
    let mut rows = [
        row(", written", "ms"),
        row(", written, peak memory", "MiB"),
        row("", "MB"),
        row(", opened in a browser", "ms"),
    ];
    let program = browser::program();
    if program.is_none() {
        context.notes.borrow_mut().push("opening the page of a past: no chromium in PATH".to_owned());
    }
    let file = folder.join("past.html");
    for _ in 0..runs {
        drop(std::fs::remove_file(&file));
        let mut command = stage.program()?;
        command.args(["past", "page", "--all", "-o"]).arg(&file).arg("--store").arg(store);
        let cost = measure::once(&command)?;
        let bytes = std::fs::metadata(&file)?.len();
        let mut figures = vec![cost.wall_ms, cost.peak_mib, bytes as f64 / 1e6];
        if let Some(program) = &program {
            // A browser of its own each time: nothing of the page is in its caches.
            figures.push(Browser::start(program)?.open(&file)?);
        }
        rows.iter_mut().zip(figures).for_each(|(row, figure)| row.samples.push(figure));
    }
    Ok(rows.into())
}

/// The chunks of turns that come one by one, within one process that keeps what it knows of the past.
fn new_turns(context: &Context, store: &Path, what: &str) -> Result<Vec<Row>> {
    let output = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--release", "--package", "quipu-past", "--example", "past_rate", "--"])
        .arg(store)
        .arg(NEW_TURNS.to_string())
        .current_dir(&context.root)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    ensure!(output.status.success(), "the example past_rate of quipu-past ended with {}", output.status);
    let mut rows = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let row = search::row(line)?;
        rows.push(Row { what: format!("{what}, {}", row.what), ..row });
    }
    Ok(rows)
}

fn files_of(store: &Path) -> [std::path::PathBuf; 3] {
    ["", "-wal", "-shm"].map(|end| format!("{}{end}", store.display()).into())
}

/// Bytes of a store with its log.
fn size(store: &Path) -> u64 {
    files_of(store)
        .iter()
        .take(2)
        .filter_map(|file| std::fs::metadata(file).ok())
        .map(|found| found.len())
        .sum()
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    for (from, to) in files_of(from).iter().zip(files_of(to)) {
        // What is not there need not go.
        drop(std::fs::remove_file(&to));
        if from.exists() {
            std::fs::copy(from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
        }
    }
    Ok(())
}
