//! How much of its requests a provider has already, with the past before the conversation: what two requests in a row begin with alike.

use std::cell::RefCell;

use anyhow::{Context as _, Result, ensure};

use super::contest::Contest;
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
type Mode = &'static [(&'static str, &'static str)];

const WITHOUT: Mode = &[("QUIPU_MEMORY_TIME", "off")];
const DELAYED: Mode = &[("QUIPU_MEMORY_TIME", "on")];
const AT_ONCE: Mode = &[("QUIPU_MEMORY_TIME", "on"), ("QUIPU_MEMORY_DELAY", "false")];

fn run(context: &Context) -> Result<Vec<Row>> {
    let turns = if context.sizes.is_smoke() { 10 } else { TURNS };
    let modes = [WITHOUT, DELAYED, AT_ONCE];
    let contest = Contest {
        bench: BENCHMARK.name,
        what: &format!("{turns} runs of a session, another session in the past after each {EVERY}"),
        parts: &[
            ("cached share without the past", "%"),
            ("cached share with the past, changes one run later", "%"),
            ("cached share with the past, changes at once", "%"),
        ],
        contenders: &[Contender::Quipu],
    };
    let folder = tempfile::tempdir_in(&context.scratch)?;
    let more = turns.div_ceil(EVERY) * modes.len() * context.runs;
    let prepare = |stage: &Stage<'_>| -> Result<RefCell<Vec<String>>> {
        let amount = Amount { name: "", files: SESSIONS + more, entries: ENTRIES };
        let project = stage.project();
        let at = project.to_str().context("the folder is not UTF-8")?;
        History::ClaudeCode.write_in(context, &amount, folder.path(), at)?;
        let mut files: Vec<String> = std::fs::read_dir(folder.path())?
            .map(|entry| Ok(entry?.path().to_str().context("the folder is not UTF-8")?.to_owned()))
            .collect::<Result<_>>()?;
        files.sort();
        for file in files.drain(..SESSIONS) {
            quipu(stage, &["import", "claude-code", &file, "--yes"])?;
        }
        quipu(stage, &["memory", "on"])?;
        quipu(stage, &["past", "build"])?;
        Ok(RefCell::new(files))
    };
    contest.run(context, prepare, |stage, files| {
        let shares = modes.map(|mode| share(stage, mode, turns, &mut files.borrow_mut()));
        shares.into_iter().map(|share| share.map(Some)).collect()
    })
}

fn quipu(stage: &Stage<'_>, arguments: &[&str]) -> Result<()> {
    let mut command = stage.program()?;
    stage.run(command.args(arguments), [])?;
    Ok(())
}

/// How much of the requests of a session, but for the first one, stands at the beginning of the one before it, in percent.
#[expect(clippy::cast_precision_loss, reason = "bytes of a few requests")]
fn share(stage: &Stage<'_>, mode: Mode, turns: usize, files: &mut Vec<String>) -> Result<f64> {
    let (mut all, mut cached, mut before) = (0_usize, 0_usize, String::new());
    for turn in 0..turns {
        if turn > 0 && turn % EVERY == 0 {
            let file = files.pop().context("there is no other session")?;
            quipu(stage, &["import", "claude-code", &file, "--yes"])?;
            quipu(stage, &["past", "build"])?;
        }
        let mut command = stage.prompt(None, &prose(turn % SESSIONS, turn, ASKED))?;
        command.envs(mode.iter().copied()).env("QUIPU_MEMORY_ACTIVE_MODE", "off");
        if turn > 0 {
            command.arg("--continue");
        }
        stage.run(&command, [stage.wire().text(&[prose(turn, turn + 1, 600)])])?;
        // Behind its headers, of which some are never the same.
        let request = stage.last_request();
        let body = request.split_once("\r\n\r\n").map_or(request.as_str(), |(_, body)| body);
        let request = body.replace(MARK, "");
        if turn == 0 {
            let has_past = request.contains("<past>");
            ensure!(has_past != (mode == WITHOUT), "the request begins otherwise: {request}");
        } else {
            all += request.len();
            cached += before.bytes().zip(request.bytes()).take_while(|(one, other)| one == other).count();
        }
        before = request;
    }
    Ok(cached as f64 * 100.0 / all.max(1) as f64)
}
