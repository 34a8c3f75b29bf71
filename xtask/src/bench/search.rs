//! The search: how fast its indexes follow, how large they are, how long a mix of searches takes.
//!
//! Measured once by an example of the store, which alone speaks SQL: each figure is made of many nodes or searches.

use super::{Benchmark, Context, MILLION, Row, number};
use anyhow::{Context as _, Result, bail};
use std::process::{Command, Stdio};

/// Searches of each kind. The mix stands in the example.
const SEARCHES: usize = 1_000;

pub(super) const BENCHMARK: Benchmark =
    Benchmark { name: "search", about: "index text and find it; with --million among a million nodes", run };

fn run(context: &Context) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for nodes in &context.sizes.search {
        let what = format!("among {} nodes", number(*nodes as f64));
        if !context.wants(BENCHMARK.name, &what) {
            continue;
        }
        // Beside the release: a folder for temporary files may be memory. A million nodes take 3 GB.
        let directory = context.quipu.with_file_name("bench");
        let searches = if *nodes < 10_000 { SEARCHES / 10 } else { SEARCHES };
        let output = Command::new(env!("CARGO"))
            .args([
                "run",
                "--quiet",
                "--release",
                "--package",
                "quipu-store",
                "--example",
                "search_rate",
                "--",
            ])
            .arg(directory)
            .args([nodes.to_string(), searches.to_string()])
            .current_dir(&context.root)
            .stderr(Stdio::inherit())
            .output()
            .context("cannot run cargo")?;
        if !output.status.success() {
            bail!("the example search_rate of quipu-store ended with {}", output.status);
        }
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let mut row = row(line)?;
            row.what = format!("search {what}, {}", row.what);
            rows.push(row);
        }
    }
    if !rows.is_empty() && !context.sizes.search.contains(&MILLION) {
        context.notes.borrow_mut().push("search among a million nodes (--million)".to_owned());
    }
    Ok(rows)
}

/// Reads one line of the example's output.
pub(super) fn row(line: &str) -> Result<Row> {
    let value: serde_json::Value =
        serde_json::from_str(line).with_context(|| format!("not a row: {line}"))?;
    let unit = ["MB", "MB/s", "% of text", "ms", "%", "1/s"].into_iter().find(|unit| value["unit"] == **unit);
    let samples =
        value["samples"].as_array().map(|samples| samples.iter().filter_map(serde_json::Value::as_f64));
    match (value["what"].as_str(), unit, samples) {
        (Some(what), Some(unit), Some(samples)) => {
            Ok(Row { what: what.to_owned(), unit, samples: samples.collect() })
        }
        _ => bail!("not a row: {line}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read() {
        let read = row("{\"what\":\"x\",\"unit\":\"ms\",\"samples\":[1,2.5]}");
        assert!(read.is_ok_and(|row| row.what == "x" && row.unit == "ms" && row.samples == [1.0, 2.5]));
        for bad in ["", "{}", "{\"what\":\"x\",\"unit\":\"furlong\",\"samples\":[1]}"] {
            assert!(row(bad).is_err(), "{bad}");
        }
    }
}
