//! How long planning a compaction takes. Measured by an example of the crate that plans: no command stops there.

use super::{Benchmark, Context, Row, number};
use anyhow::{Context as _, Result, bail};
use std::process::{Command, Stdio};

const UNIT: &str = "ms";

pub(super) const BENCHMARK: Benchmark =
    Benchmark { name: "plan", about: "plan a compaction of 100k entries", run };

fn run(context: &Context) -> Result<Vec<Row>> {
    let count = context.sizes.plan;
    let output = Command::new(env!("CARGO"))
        .args([
            "run",
            "--quiet",
            "--release",
            "--package",
            "quipu-transcript",
            "--example",
            "plan_compaction",
            "--",
        ])
        .args([context.runs.to_string(), count.to_string()])
        .current_dir(&context.root)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    if !output.status.success() {
        bail!("the example plan_compaction of quipu-transcript ended with {}", output.status);
    }
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).context("not a row")?;
    let samples = value["samples"].as_array().filter(|_| value["unit"] == UNIT).context("not a row")?;
    let samples = samples.iter().filter_map(serde_json::Value::as_f64).collect();
    Ok(vec![Row {
        what: format!("plan a compaction of {} entries", number(count as f64)),
        unit: UNIT,
        samples,
    }])
}
