//! Many conversations in one process. Measured by an example of the runtime, within one process with its model.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

use super::{Benchmark, Context, Row, number, search};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "runtime",
    about: "100 and 1,000 sessions open in one process: message to first request, memory, wake-ups",
    run,
};

fn run(context: &Context) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    // Sessions, messages a second, seconds of them, seconds of rest.
    let sizes: &[[usize; 4]] = if context.sizes.is_smoke() {
        &[[20, 20, 2, 2]]
    } else {
        &[[100, 200, 30, 60], [1_000, 200, 30, 440]]
    };
    for size in sizes {
        let [sessions, rate, ..] = size;
        let what = format!("{} sessions, {rate} messages a second", number(*sessions as f64));
        if !context.wants(BENCHMARK.name, &what) {
            continue;
        }
        // Beside the release: a folder for temporary files may be memory.
        let directory = context.quipu.with_file_name("bench");
        let output = Command::new(env!("CARGO"))
            .args([
                "run",
                "--quiet",
                "--release",
                "--package",
                "quipu-runtime",
                "--example",
                "runtime_rate",
                "--",
            ])
            .arg(directory)
            .args(size.map(|number| number.to_string()))
            .current_dir(&context.root)
            .stderr(Stdio::inherit())
            .output()
            .context("cannot run cargo")?;
        if !output.status.success() {
            bail!("the example runtime_rate of quipu-runtime ended with {}", output.status);
        }
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let mut row = search::row(line)?;
            row.what = format!("{what}, {}", row.what);
            rows.push(row);
        }
    }
    Ok(rows)
}
