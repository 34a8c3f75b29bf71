//! Files that go with the conversation. Measured by an example of the engine, within one process.

use super::{Benchmark, Context, Row, search};
use anyhow::{Context as _, Result, bail};
use std::process::{Command, Stdio};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "files",
    about: "what changed among 50,000 files, and a turn that edits 256 KiB with and without keeping them",
    run,
};

/// Files of the workspace.
const FILES: usize = 50_000;

fn run(context: &Context) -> Result<Vec<Row>> {
    // Beside the release: a folder for temporary files may be memory.
    let directory = context.quipu.with_file_name("bench");
    let output = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--release", "--package", "quipu", "--example", "files_rate", "--"])
        .arg(directory)
        .args([FILES.to_string(), context.runs.to_string()])
        .current_dir(&context.root)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    if !output.status.success() {
        bail!("the example files_rate of quipu ended with {}", output.status);
    }
    let rows =
        String::from_utf8_lossy(&output.stdout).lines().map(search::row).collect::<Result<Vec<Row>>>()?;
    Ok(rows.into_iter().filter(|row| context.wants(BENCHMARK.name, &row.what)).collect())
}
