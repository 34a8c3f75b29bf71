//! A dream over a memory, without a model. Measured by an example of the memory crate, within one process.

use super::{Benchmark, Context, Row, number, search};
use anyhow::{Context as _, Result, bail};
use std::process::{Command, Stdio};

/// Texts that were recalled.
const CANDIDATES: usize = 10_000;

pub(super) const BENCHMARK: Benchmark =
    Benchmark { name: "dream", about: "dream over 10k recalled texts without a model", run };

fn run(context: &Context) -> Result<Vec<Row>> {
    let directory = context.quipu.with_file_name("bench");
    let output = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--release", "--package", "quipu-memory", "--example", "dream_rate", "--"])
        .arg(directory)
        .args([CANDIDATES.to_string(), context.runs.to_string()])
        .current_dir(&context.root)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    if !output.status.success() {
        bail!("the example dream_rate of quipu-memory ended with {}", output.status);
    }
    let mut rows = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let mut row = search::row(line)?;
        row.what = format!("dream over {} texts, {}", number(CANDIDATES as f64), row.what);
        rows.push(row);
    }
    Ok(rows)
}
