//! The first prompt in a session file that the program has not seen before.

use anyhow::{Context as _, Result};

use super::contest::Contest;
use super::programs::{Contender, Stage};
use super::sessions::Session;
use super::{Benchmark, Context, Row, number};

pub(super) const BENCHMARK: Benchmark =
    Benchmark { name: "open", about: "go on in session files of 1, 10 and 100 MB for the first time", run };

fn run(context: &Context) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for count in context.sizes.open {
        let contest = Contest {
            bench: BENCHMARK.name,
            what: &format!("first open of a file of {} entries", number(*count as f64)),
            parts: &[
                ("start to first request", "ms"),
                ("wall", "ms"),
                ("processor", "ms"),
                ("peak memory", "MiB"),
            ],
            contenders: &[Contender::Quipu, Contender::Pi],
        };
        let prepare = |stage: &Stage<'_>| {
            stage.warm_up()?;
            let [store, first] = ["quipu.db", "first.db"].map(|name| stage.settings().join(name));
            // Pi moves session files that stand beside its settings.
            let [file, kept] = ["open.jsonl", "kept.jsonl"].map(|name| stage.project().join(name));
            Session { number: 0, entries: *count }.write(&stage.project().canonicalize()?, &kept)?;
            let ours = matches!(stage.who, Contender::Quipu | Contender::QuipuOpen);
            if ours {
                std::fs::copy(&store, &first).context("the store before the file was opened")?;
            }
            let command = stage.prompt(Some(&file.display().to_string()), "hello")?;
            Ok((
                command,
                [(kept, file)].into_iter().chain(ours.then_some((first, store))).collect::<Vec<_>>(),
            ))
        };
        rows.extend(contest.run(context, prepare, |stage, (command, copies)| {
            for (from, to) in copies {
                std::fs::copy(from, to)?;
            }
            // The copies must not reach the disk during the run.
            nix::unistd::sync();
            let sample = stage.run(command, [stage.hello()])?;
            let first = sample.first_request_ms();
            let cost = sample.cost;
            Ok(vec![first, Some(cost.wall_ms), Some(cost.cpu_ms), Some(cost.peak_mib)])
        })?);
    }
    Ok(rows)
}
