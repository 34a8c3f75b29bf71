//! The past: how long extractive summaries of so many turns take, how much memory, and how much the store grows by them.
//!
//! Histories are imported once; each run builds the past of a copy of that store.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use super::histories::{Amount, History};
use super::measure;
use super::programs::{Contender, Stage};
use super::{Benchmark, Context, Row, guard, number};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "past",
    about: "summaries without a model of 1k, 10k and 100k turns: time, memory, growth of the store",
    run,
};

/// Turns of one session, and messages of one turn.
const SESSION: usize = 500;
const TURN: usize = 4;
/// More turns take long to copy, and are built less often.
const MANY: usize = 10_000;
const FEW_RUNS: usize = 3;

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
    Ok(rows.into())
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
