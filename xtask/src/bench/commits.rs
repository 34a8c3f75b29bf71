//! Commits a second of the store at both durabilities, beside plain statements on the same tables.
//!
//! Measured by an example of the store, which alone speaks SQL.

use super::{Benchmark, Context, Row};
use anyhow::{Context as _, Result, bail};
use std::process::{Command, Stdio};

/// Enough that opening the file does not count, few enough that all rows take about a minute.
const COMMITS: usize = 2_000;
const UNIT: &str = "/s";

pub(super) const BENCHMARK: Benchmark =
    Benchmark { name: "commits", about: "commits a second of the store, beside plain statements", run };

fn run(context: &Context) -> Result<Vec<Row>> {
    // Beside the release: a folder for temporary files may be memory, which syncs for nothing.
    let directory = context.quipu.with_file_name("bench");
    let output = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--release", "--package", "quipu-store", "--example", "commit_rate", "--"])
        .arg(directory)
        .args([context.runs.to_string(), COMMITS.to_string()])
        .current_dir(&context.root)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    if !output.status.success() {
        bail!("the example commit_rate of quipu-store ended with {}", output.status);
    }
    String::from_utf8_lossy(&output.stdout).lines().map(row).collect()
}

/// Reads one line of the example's output.
fn row(line: &str) -> Result<Row> {
    let value: serde_json::Value =
        serde_json::from_str(line).with_context(|| format!("not a row: {line}"))?;
    let samples =
        value["samples"].as_array().map(|samples| samples.iter().filter_map(serde_json::Value::as_f64));
    match (value["what"].as_str(), value["unit"].as_str(), samples) {
        (Some(what), Some(UNIT), Some(samples)) => {
            Ok(Row { what: what.to_owned(), unit: UNIT, samples: samples.collect() })
        }
        _ => bail!("not a row: {line}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read() {
        let read = row("{\"what\":\"x\",\"unit\":\"/s\",\"samples\":[1,2.5]}");
        assert!(read.is_ok_and(|row| row.what == "x" && row.samples == [1.0, 2.5]));
        for bad in ["", "{}", "{\"what\":\"x\",\"unit\":\"s\",\"samples\":[1]}"] {
            assert!(row(bad).is_err(), "{bad}");
        }
    }
}
