//! Which summaries of the past are served. Measured by an example of its crate, within one process.

use super::{Benchmark, Context, Row, number, search};
use anyhow::{Context as _, Result, bail};
use std::process::{Command, Stdio};

/// Chunks among which is chosen.
const CHUNKS: &[usize] = &[1_000, 10_000, 100_000];

pub(super) const BENCHMARK: Benchmark =
    Benchmark { name: "cover", about: "choose summaries of the past for 8k tokens", run };

fn run(context: &Context) -> Result<Vec<Row>> {
    let sizes = if context.sizes.is_smoke() { &CHUNKS[..1] } else { CHUNKS };
    let mut rows = Vec::new();
    for size in sizes {
        let name = format!("cover of {} chunks", number(*size as f64));
        if !context.wants("cover", &name) {
            continue;
        }
        let output = Command::new(env!("CARGO"))
            .args(["run", "--quiet", "--release", "--package", "quipu-past", "--example", "cover_rate", "--"])
            .args([size.to_string(), context.runs.to_string()])
            .current_dir(&context.root)
            .stderr(Stdio::inherit())
            .output()
            .context("cannot run cargo")?;
        if !output.status.success() {
            bail!("the example cover_rate of quipu-past ended with {}", output.status);
        }
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let mut row = search::row(line)?;
            row.what = format!("{name}, 8k tokens, {}", row.what);
            rows.push(row);
        }
    }
    Ok(rows)
}
