//! Everyday answers: usage, files, log, blame, life, recall, trace, diff, undo, tobe. Measured by an example of the engine, within one process.

use super::{Benchmark, Context, MILLION, Row, number, search};
use anyhow::{Context as _, Result, bail};
use std::process::{Command, Stdio};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "answers",
    about: "usage, files, log, blame, life, recall, trace, diff, undo, redo and tobe; with --million among a million nodes",
    run,
};

fn run(context: &Context) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for nodes in &context.sizes.answers {
        let what = format!("among {} nodes", number(*nodes as f64));
        if !context.wants(BENCHMARK.name, &what) {
            continue;
        }
        // Beside the release: a folder for temporary files may be memory.
        let directory = context.quipu.with_file_name("bench");
        let output = Command::new(env!("CARGO"))
            .args(["run", "--quiet", "--release", "--package", "quipu", "--example", "answers_rate", "--"])
            .arg(directory)
            .args([nodes.to_string(), context.runs.to_string()])
            .current_dir(&context.root)
            .stderr(Stdio::inherit())
            .output()
            .context("cannot run cargo")?;
        if !output.status.success() {
            bail!("the example answers_rate of quipu ended with {}", output.status);
        }
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let mut row = search::row(line)?;
            row.what = format!("{what}, {}", row.what);
            rows.push(row);
        }
    }
    if !rows.is_empty() && !context.sizes.answers.contains(&MILLION) {
        context.notes.borrow_mut().push("answers among a million nodes (--million)".to_owned());
    }
    Ok(rows)
}
