//! How long the program takes to start and say its version, the least that every use of it costs; and how large it
//! is.

use super::contest::Contest;
use super::measure;
use super::programs::{Contender, Stage};
use super::{Benchmark, Context, Row};
use anyhow::{Context as _, Result};
use std::process::Command;

pub(super) const BENCHMARK: Benchmark =
    Benchmark { name: "version", about: "start, print the version, exit", run };
pub(super) const SIZE: Benchmark =
    Benchmark { name: "size", about: "bytes of the released program", run: size };

fn run(context: &Context) -> Result<Vec<Row>> {
    let contest = Contest {
        bench: BENCHMARK.name,
        what: "`--version`",
        parts: &[("wall", "ms"), ("peak memory", "MiB")],
        contenders: &[Contender::Quipu, Contender::Pi, Contender::Codex],
    };
    let prepare = |stage: &Stage<'_>| -> Result<Command> {
        let mut command = stage.program()?;
        command.arg("--version");
        // The first run reads the binary from disk.
        measure::once(&command)?;
        Ok(command)
    };
    contest.run(context, prepare, |_, command| {
        let cost = measure::once(command)?;
        Ok(vec![Some(cost.wall_ms), Some(cost.peak_mib)])
    })
}

fn size(context: &Context) -> Result<Vec<Row>> {
    let what = "the released program";
    if !context.wants(SIZE.name, what) {
        return Ok(Vec::new());
    }
    let bytes = std::fs::metadata(&context.quipu).context("the program is gone")?.len();
    Ok(vec![Row { what: format!("{what}, size"), unit: "MB", samples: vec![bytes as f64 / 1e6] }])
}
