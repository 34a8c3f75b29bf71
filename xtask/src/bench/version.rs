//! How long the program takes to start and say its version: the least that every use of it costs.

use super::{Benchmark, Context, Row, measure};
use anyhow::Result;
use std::process::Command;

pub(super) const BENCHMARK: Benchmark =
    Benchmark { name: "version", about: "start, print the version, exit", run };

fn run(context: &Context) -> Result<Vec<Row>> {
    let mut command = Command::new(&context.quipu);
    command.arg("--version");
    let mut wall = Row { what: "`quipu --version`, wall".to_owned(), unit: "ms", samples: Vec::new() };
    let mut memory =
        Row { what: "`quipu --version`, peak memory".to_owned(), unit: "MiB", samples: Vec::new() };
    // The first run reads the binary from disk.
    measure::once(&command)?;
    for _ in 0..context.runs {
        let cost = measure::once(&command)?;
        wall.samples.push(cost.wall_ms);
        memory.samples.push(cost.peak_mib);
    }
    Ok(vec![wall, memory])
}
