//! How much of its requests a provider has already, with the past before the conversation: what two requests in a row begin with alike.
//!
//! Each way has a home of its own with the same history, so that they differ in nothing else. A request is the same in each run, so
//! it is measured once.

use anyhow::{Context as _, Result, ensure};

use super::histories::{Amount, History, prose};
use super::programs::{Contender, Stage};
use super::{Benchmark, Context, Row};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "cache",
    about: "what 200 requests in a row begin with alike, with the past before them",
    run,
};

/// Runs of a session.
const TURNS: usize = 200;
/// So often another session comes to the past.
const EVERY: usize = 20;
/// Sessions of the past at the beginning, and their entries.
const SESSIONS: usize = 20;
const ENTRIES: usize = 200;
/// Bytes of a prompt.
const ASKED: usize = 90;
/// Where a part of a request may be kept until: no part of what is read.
const MARK: &str = r#","cache_control":{"type":"ephemeral"}"#;

/// Settings of a session, as variables.
type Mode = (&'static str, &'static [(&'static str, &'static str)]);

const WITHOUT: Mode = ("without the past", &[("QUIPU_MEMORY_TIME", "off")]);
const DELAYED: Mode = ("with the past, changes one run later", &[("QUIPU_MEMORY_TIME", "on")]);
const AT_ONCE: Mode =
    ("with the past, changes at once", &[("QUIPU_MEMORY_TIME", "on"), ("QUIPU_MEMORY_DELAY", "false")]);

/// What the requests of a session came to.
struct Shares {
    /// How much of all but the first stands at the beginning of the one before, in percent.
    cached: f64,
    /// How often another past stood in a request than in the one before.
    changes: usize,
    /// Bytes of the past, of all bytes that were sent, in percent.
    past: f64,
}

fn run(context: &Context) -> Result<Vec<Row>> {
    let turns = if context.sizes.is_smoke() { 10 } else { TURNS };
    let mut rows = Vec::new();
    for every in [Some(EVERY), None] {
        let what = match every {
            Some(every) => {
                format!("{turns} runs of a session, another session in the past after each {every}")
            }
            None => format!("{turns} runs of a session, the past as it is"),
        };
        if !context.wants(BENCHMARK.name, &what) {
            continue;
        }
        for (name, settings) in [WITHOUT, DELAYED, AT_ONCE] {
            eprintln!("bench: {what}, {name}");
            let found = shares(context, settings, turns, every).with_context(|| name.to_owned())?;
            let row = |part: &str, unit: &'static str, value: f64| Row {
                what: format!("{what}, {part} {name}"),
                unit,
                samples: vec![value],
            };
            rows.push(row("cached share", "%", found.cached));
            if settings != WITHOUT.1 {
                rows.push(row("changes of the past,", "changes", found.changes as f64));
                rows.push(row("share of the past,", "%", found.past));
            }
        }
    }
    Ok(rows)
}

fn quipu(stage: &Stage<'_>, arguments: &[&str]) -> Result<()> {
    let mut command = stage.program()?;
    stage.run(command.args(arguments), [])?;
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "bytes of a few requests")]
fn shares(
    context: &Context,
    settings: &[(&str, &str)],
    turns: usize,
    every: Option<usize>,
) -> Result<Shares> {
    let stage = Stage::new(context, Contender::Quipu)?;
    let folder = tempfile::tempdir_in(&context.scratch)?;
    let more = every.map_or(0, |every| turns.div_ceil(every));
    let amount = Amount { name: "", files: SESSIONS + more, entries: ENTRIES };
    let project = stage.project();
    let at = project.to_str().context("the folder is not UTF-8")?;
    History::ClaudeCode.write_in(context, &amount, folder.path(), at)?;
    let mut files: Vec<String> = std::fs::read_dir(folder.path())?
        .map(|entry| Ok(entry?.path().to_str().context("the folder is not UTF-8")?.to_owned()))
        .collect::<Result<_>>()?;
    files.sort();
    for file in files.drain(..SESSIONS) {
        quipu(&stage, &["import", "claude-code", &file, "--yes"])?;
    }
    quipu(&stage, &["memory", "on"])?;
    quipu(&stage, &["past", "build"])?;
    let (mut all, mut cached, mut past_bytes, mut changes) = (0_usize, 0_usize, 0_usize, 0_usize);
    let mut before = (String::new(), String::new());
    for turn in 0..turns {
        if turn > 0 && every.is_some_and(|every| turn % every == 0) {
            let file = files.pop().context("there is no other session")?;
            quipu(&stage, &["import", "claude-code", &file, "--yes"])?;
            quipu(&stage, &["past", "build"])?;
        }
        let mut command = stage.prompt(None, &prose(turn % SESSIONS, turn, ASKED))?;
        command.envs(settings.iter().copied()).env("QUIPU_MEMORY_ACTIVE_MODE", "off");
        if turn > 0 {
            command.arg("--continue");
        }
        stage.run(&command, [stage.wire().text(&[prose(turn, turn + 1, 600)])])?;
        // Behind its headers, of which some are never the same.
        let request = stage.last_request();
        let body = request.split_once("\r\n\r\n").map_or(request.as_str(), |(_, body)| body);
        let request = body.replace(MARK, "");
        let past = request.find("<past>").zip(request.find("</past>"));
        let past = past.map_or("", |(start, end)| request.get(start..end).unwrap_or_default()).to_owned();
        if turn == 0 {
            ensure!(past.is_empty() == (settings == WITHOUT.1), "the request begins otherwise: {request}");
        } else {
            let (last, last_past) = &before;
            all += request.len();
            past_bytes += past.len();
            changes += usize::from(past != *last_past);
            cached += last.bytes().zip(request.bytes()).take_while(|(one, other)| one == other).count();
        }
        before = (request, past);
    }
    let percent = |of: usize| of as f64 * 100.0 / all.max(1) as f64;
    Ok(Shares { cached: percent(cached), changes, past: percent(past_bytes) })
}
