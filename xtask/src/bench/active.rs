//! What active memory adds before the first request, among imported sessions and notes.

use anyhow::{Context as _, Result, ensure};

use super::contest::Contest;
use super::histories::{Amount, History, prose};
use super::programs::{Contender, Stage};
use super::{Benchmark, Context, Row, number};

pub(super) const BENCHMARK: Benchmark =
    Benchmark { name: "active", about: "what active memory adds before the first request", run };

/// Files of notes.
const NOTES: usize = 100;
/// Each in a session of this many.
const ENTRIES: usize = 1_000;
const SESSIONS: [usize; 2] = [1, 10];
/// A turn in the middle of the last session, whose words the prompt has.
const TURN: usize = 120;
/// Bytes of them.
const ASKED: usize = 90;

fn run(context: &Context) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for sessions in SESSIONS {
        let what = format!(
            "start to first request among {} nodes and {NOTES} notes",
            number((sessions * ENTRIES) as f64)
        );
        let contest = Contest {
            bench: BENCHMARK.name,
            what: &what,
            parts: &[
                ("memory off", "ms"),
                ("memory on, without active memory", "ms"),
                ("with active memory", "ms"),
                ("added by active memory", "ms"),
                ("`quipu memory search` with the same words, wall", "ms"),
                ("the search of that, without the start of the program", "ms"),
            ],
            contenders: &[Contender::Quipu],
        };
        let question = prose(sessions - 1, TURN, ASKED);
        let prepare = |stage: &Stage<'_>| fill(context, stage, sessions, &question);
        rows.extend(contest.run(context, prepare, |stage, ()| {
            let first = |settings: &[(&str, &str)]| {
                let mut command = stage.prompt(None, &question)?;
                command.envs(settings.iter().copied());
                let found = stage.run(&command, [stage.hello()])?.first_request_ms();
                found.context("no request was made")
            };
            let off = first(&[("QUIPU_MEMORY_ENABLED", "false")])?;
            let plain = first(&[("QUIPU_MEMORY_ACTIVE_MODE", "off")])?;
            let active = first(&[("QUIPU_MEMORY_ACTIVE_MODE", "search")])?;
            let mut search = stage.program()?;
            search.args(["memory", "search", "--json", "--", &question]);
            let alone = stage.run(&search, [])?.cost.wall_ms;
            // What it does before: the program starts, and opens the store.
            let mut start = stage.program()?;
            start.args(["sessions", "--json", "--limit", "1"]);
            let start = stage.run(&start, [])?.cost.wall_ms;
            Ok([off, plain, active, active - plain, alone, alone - start].map(Some).into())
        })?);
    }
    Ok(rows)
}

/// Imports the sessions, switches memory on, writes notes, and lets a first run index all of it.
fn fill(context: &Context, stage: &Stage<'_>, sessions: usize, question: &str) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let amount = Amount { name: "", files: sessions, entries: ENTRIES };
    let project = stage.project();
    let at = project.to_str().context("the folder is not UTF-8")?;
    History::ClaudeCode.write_in(context, &amount, folder.path(), at)?;
    let quipu = |arguments: &[&str]| -> Result<()> {
        let mut command = stage.program()?;
        stage.run(command.args(arguments), [])?;
        Ok(())
    };
    let folder = folder.path().to_str().context("the folder is not UTF-8")?;
    quipu(&["import", "claude-code", folder, "--yes"])?;
    quipu(&["memory", "on"])?;
    let notes = stage.settings().join("memory/user/memory");
    std::fs::create_dir_all(&notes)?;
    for note in 0..NOTES {
        let day = format!("2026-{:02}-{:02}.md", 1 + note / 28, 1 + note % 28);
        let lines: Vec<String> = (0..10).map(|line| format!("- {}\n", prose(note, line, 120))).collect();
        std::fs::write(notes.join(day), lines.concat())?;
    }
    stage.run(&stage.prompt(None, question)?, [stage.hello()])?;
    stage.run(&stage.prompt(None, question)?, [stage.hello()])?;
    ensure!(stage.last_request().contains("<active_memory>"), "active memory adds nothing to the request");
    Ok(())
}
