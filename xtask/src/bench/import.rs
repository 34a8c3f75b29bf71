//! Histories of other agents into a store, and those of Pi out of it, beside a bare loop of the same statements.
//!
//! The bare loop is an example of the store, which alone speaks SQL: it writes the rows that the import made into an empty
//! store, without reading, sealing or hashing anything.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::histories::{Amount, HISTORIES, History};
use super::measure;
use super::programs::{Contender, Stage};
use super::sessions::Session;
use super::{Benchmark, Context, Row, build, guard, search};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "import",
    about: "import histories of four agents, 10 and 100 MB, with --million 1 GB; index them; export Pi's",
    run,
};

/// What has more files takes minutes, and runs less often.
const FEW_FILES: usize = 5;
const SLOW_RUNS: usize = 3;

/// What a disk needs after it has taken all that was written.
const QUIET: Duration = Duration::from_millis(300);

/// All statements of an import, and those for two of its tables.
const BARE: &str = ", bare statements";
const ALONE: &str = ", bare statements for blobs and nodes";

fn run(context: &Context) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for amount in &context.sizes.import {
        let what = format!("import {}", amount.name);
        if !context.wants(BENCHMARK.name, &what) {
            continue;
        }
        eprintln!("bench: {what}");
        rows.extend(measure_one(context, amount)?);
    }
    for history in HISTORIES {
        for amount in &context.sizes.import {
            let what = format!("import {} ({})", amount.name, history.name());
            if context.wants(BENCHMARK.name, &what) {
                eprintln!("bench: {what}");
                rows.extend(measure_history(context, history, amount, &what)?);
            }
        }
    }
    Ok(rows)
}

/// A history of another agent than Pi: in, and into the indexes of the search.
fn measure_history(context: &Context, history: History, amount: &Amount, what: &str) -> Result<Vec<Row>> {
    let stage = Stage::new(context, Contender::Quipu)?;
    let folder = tempfile::Builder::new().prefix("import-").tempdir_in(bench_folder(context)?)?;
    let (files, store) = (folder.path().join("files"), folder.path().join("quipu.db"));
    std::fs::create_dir_all(&files)?;
    let megabytes = history.write(context, amount, &files)? as f64 / 1e6;
    let bare = build(&context.root, &["--package", "quipu-store", "--example", "bulk_rate"], "bulk_rate")?;
    let index =
        build(&context.root, &["--package", "quipu-store", "--example", "search_rate"], "search_rate")?;
    let mut rows: Vec<Row> =
        [("", "MB/s"), (", processor", "ms"), (", peak memory", "MB"), (BARE, "MB/s"), (ALONE, "MB/s")]
            .map(|(part, unit)| Row { what: format!("{what}{part}"), unit, samples: Vec::new() })
            .into();
    for _ in 0..runs(context, amount) {
        remove(&store);
        settle();
        let mut import = stage.program()?;
        import.args(["import", history.agent()]).arg(&files).arg("--store").arg(&store);
        let cost = measure::once(&import)?;
        settle();
        let [all, alone] = bare_seconds(&bare, &store, folder.path())?.map(|seconds| megabytes / seconds);
        let rate = megabytes / (cost.wall_ms / 1e3);
        let figures = [rate, cost.cpu_ms, megabytes_of(cost.peak_mib), all, alone];
        rows.iter_mut().zip(figures).for_each(|(row, figure)| row.samples.push(figure));
    }
    let output = guard::output(Command::new(index).arg(&store))?;
    ensure!(output.status.success(), "search_rate: {}", String::from_utf8_lossy(&output.stderr).trim());
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let row = search::row(line)?;
        rows.push(Row { what: format!("{what}, {}", row.what), ..row });
    }
    Ok(rows)
}

fn runs(context: &Context, amount: &Amount) -> usize {
    if amount.files > FEW_FILES { context.runs.min(SLOW_RUNS) } else { context.runs }
}

/// What earlier steps wrote must not reach the disk during the next, nor the room of what they removed be given back then.
fn settle() {
    nix::unistd::sync();
    std::thread::sleep(QUIET);
}

fn remove(store: &Path) {
    for end in ["", "-wal", "-shm"] {
        // What is not there need not go.
        drop(std::fs::remove_file(format!("{}{end}", store.display())));
    }
}

fn measure_one(context: &Context, amount: &Amount) -> Result<Vec<Row>> {
    let stage = Stage::new(context, Contender::Quipu)?;
    // Beside the release: a folder for temporary files may be memory.
    let folder = tempfile::Builder::new().prefix("import-").tempdir_in(bench_folder(context)?)?;
    let (files, store) = (folder.path().join("files"), folder.path().join("quipu.db"));
    std::fs::create_dir_all(&files)?;
    let mut bytes = 0;
    for session in sessions(amount) {
        let file = files.join(format!("{}.jsonl", session.id()));
        session.write(&stage.project(), &file)?;
        bytes += std::fs::metadata(&file)?.len();
    }
    let megabytes = bytes as f64 / 1e6;
    let bare = build(&context.root, &["--package", "quipu-store", "--example", "bulk_rate"], "bulk_rate")?;
    let quipu = |words: &[&str]| -> Result<Command> {
        let mut command = stage.program()?;
        command.args(words).arg("--store").arg(&store);
        Ok(command)
    };
    let (what, name) = (format!("import {}", amount.name), amount.name);
    let mut rows: Vec<Row> = [
        (what.clone(), "MB/s"),
        (format!("{what}, processor"), "ms"),
        (format!("{what}, peak memory"), "MB"),
        (format!("{what}{BARE}"), "MB/s"),
        (format!("{what}{ALONE}"), "MB/s"),
        (format!("check {name} again, unchanged"), "ms"),
        (format!("check {name} again, touched"), "ms"),
        (format!("export {name}"), "MB/s"),
        (format!("export {name}, peak memory"), "MB"),
    ]
    .into_iter()
    .map(|(what, unit)| Row { what, unit, samples: Vec::new() })
    .collect();
    let mut put = |figures: [f64; 9]| {
        for (row, figure) in rows.iter_mut().zip(figures) {
            row.samples.push(figure);
        }
    };
    for _ in 0..runs(context, amount) {
        remove(&store);
        settle();
        let mut import = quipu(&["import", "pi"])?;
        import.arg(&files);
        let imported = measure::once(&import)?;
        // The first check reads the files when they are as new as here, and keeps what the next one goes by.
        measure::once(&import)?;
        let unchanged = measure::once(&import)?;
        for session in sessions(amount) {
            let file =
                std::fs::File::options().append(true).open(files.join(format!("{}.jsonl", session.id())))?;
            file.set_modified(std::time::SystemTime::now())?;
        }
        let touched = measure::once(&import)?;
        let (mut exported, mut export_peak) = (0.0, 0.0_f64);
        for session in sessions(amount) {
            let out = folder.path().join("out.jsonl");
            settle();
            let mut export = quipu(&["export", "--format", "pi", &session.id()])?;
            export.arg("-o").arg(&out);
            let cost = measure::once(&export)?;
            exported += cost.wall_ms;
            export_peak = export_peak.max(cost.peak_mib);
            let lines = |file: &Path| -> Result<usize> {
                Ok(std::fs::read(file)?.iter().filter(|byte| **byte == b'\n').count())
            };
            let (had, has) = (lines(&files.join(format!("{}.jsonl", session.id())))?, lines(&out)?);
            ensure!(had == has, "{had} lines went in and {has} came out");
            std::fs::remove_file(out)?;
        }
        settle();
        let [all, alone] = bare_seconds(&bare, &store, folder.path())?.map(|seconds| megabytes / seconds);
        let rate = |ms: f64| megabytes / (ms / 1e3);
        put([
            rate(imported.wall_ms),
            imported.cpu_ms,
            megabytes_of(imported.peak_mib),
            all,
            alone,
            unchanged.wall_ms,
            touched.wall_ms,
            rate(exported),
            megabytes_of(export_peak),
        ]);
    }
    Ok(rows)
}

fn megabytes_of(mib: f64) -> f64 {
    mib * 1.048_576
}

fn sessions(amount: &Amount) -> impl Iterator<Item = Session> {
    (0..amount.files).map(|number| Session { number, entries: amount.entries })
}

fn bench_folder(context: &Context) -> Result<PathBuf> {
    let folder = context.quipu.with_file_name("bench");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

/// Seconds that all statements took, and those for blobs and nodes.
fn bare_seconds(program: &Path, store: &Path, folder: &Path) -> Result<[f64; 2]> {
    let output = guard::output(Command::new(program).arg(store).arg(folder).arg("1"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the bare loop failed: {}", said.trim());
    let text = String::from_utf8_lossy(&output.stdout);
    let seconds = |what: &str| -> Result<f64> {
        let mut rows = text.lines().map(serde_json::from_str::<Value>);
        let row = rows.find(|row| row.as_ref().is_ok_and(|row| row["what"] == what));
        let row = row.transpose().context("the bare loop printed something else")?;
        row.and_then(|row| row["samples"][0].as_f64()).with_context(|| format!("no time of {what}"))
    };
    Ok([seconds("statements")?, seconds("blobs and nodes")?])
}
