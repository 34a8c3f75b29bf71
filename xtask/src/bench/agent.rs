//! The agents at work against a fake model server on loopback: one prompt, many turns, many deltas.

use anyhow::{Result, ensure};

use super::contest::Contest;
use super::programs::{Contender, Stage};
use super::wires::{Api, Reply};
use super::{Benchmark, Context, Row};

pub(super) const HELLO: Benchmark =
    Benchmark { name: "hello", about: "one prompt, one answer, one process", run: hello };
pub(super) const TURNS: Benchmark =
    Benchmark { name: "turns", about: "tool loops of 50, 200 and 800 turns", run: turns };
pub(super) const DELTAS: Benchmark =
    Benchmark { name: "deltas", about: "an answer of 20,000 pieces", run: deltas };
pub(super) const APIS: Benchmark =
    Benchmark { name: "apis", about: "hello, turns of `read` and deltas with each other API", run: apis };

const ALL: &[Contender] = &[Contender::Quipu, Contender::Pi, Contender::Codex];

fn hello(context: &Context) -> Result<Vec<Row>> {
    hello_on(context, HELLO.name, "hello", ALL, Api::MESSAGES)
}

fn hello_on(
    context: &Context,
    bench: &'static str,
    what: &str,
    contenders: &[Contender],
    api: Api,
) -> Result<Vec<Row>> {
    let parts = &[
        ("wall", "ms"),
        ("start to first request", "ms"),
        ("processor", "ms"),
        ("peak memory", "MiB"),
        ("bytes of the request", "B"),
    ];
    let contest = Contest { bench, what, parts, contenders };
    let prepare = |stage: &Stage<'_>| stage.warm_up();
    contest.run_on(api, context, prepare, |stage, _| {
        let sample = stage.run(&stage.prompt(None, "hello")?, [stage.hello()])?;
        let first = sample.first_request_ms();
        let bytes = sample.served.first().map(|request| request.body_bytes as f64);
        let cost = sample.cost;
        Ok(vec![Some(cost.wall_ms), first, Some(cost.cpu_ms), Some(cost.peak_mib), bytes])
    })
}

/// Ours and Pi, which have these APIs.
fn apis(context: &Context) -> Result<Vec<Row>> {
    let both = &ALL[..2];
    let mut rows = Vec::new();
    for api in Api::OTHERS {
        let (bench, name) = (APIS.name, api.name);
        rows.extend(hello_on(context, bench, &format!("{name}, hello"), both, *api)?);
        let count = context.sizes.turns.get(1).or(context.sizes.turns.first()).copied().unwrap_or(1);
        let what = format!("{name}, {count} turns of `read`");
        rows.extend(turns_on(context, bench, &what, (Turn::Read, count), both, *api)?);
        let count = super::number(context.sizes.deltas as f64);
        rows.extend(deltas_on(context, bench, &format!("{name}, {count} deltas"), both, *api)?);
    }
    Ok(rows)
}

/// What one turn does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Read,
    Bash,
}

fn turns(context: &Context) -> Result<Vec<Row>> {
    let everybody =
        [Contender::Quipu, Contender::Pi, Contender::Codex, Contender::QuipuOpen, Contender::CodexConfined];
    let kinds = [(Turn::Read, "`read`", &everybody[..2]), (Turn::Bash, "`bash`", &everybody[..])];
    let mut rows = Vec::new();
    for (turn, name, contenders) in kinds {
        for count in context.sizes.turns {
            let what = format!("{count} turns of {name}");
            rows.extend(turns_on(context, TURNS.name, &what, (turn, *count), contenders, Api::MESSAGES)?);
        }
    }
    Ok(rows)
}

fn turns_on(
    context: &Context,
    bench: &'static str,
    what: &str,
    (turn, count): (Turn, usize),
    contenders: &[Contender],
    api: Api,
) -> Result<Vec<Row>> {
    let parts = &[
        ("between reply and request", "ms"),
        ("first tenth", "ms"),
        ("last tenth", "ms"),
        ("processor for a turn", "ms"),
        ("peak memory", "MiB"),
    ];
    let prepare = |stage: &Stage<'_>| {
        std::fs::write(stage.project().join("a.txt"), "one\ntwo\nthree\n")?;
        let cost = stage.warm_up()?;
        check_tool(stage, turn)?;
        Ok(cost)
    };
    Contest { bench, what, parts, contenders }.run_on(api, context, prepare, |stage, hello| {
        let script = tool_loop(stage, turn, "true", count);
        let sample = stage.run(&stage.prompt(None, "go")?, script)?;
        let gaps = sample.gaps_ms();
        let tenth = (count / 10).max(1);
        // Start and end are the same however many turns there are.
        let processor = (sample.cost.cpu_ms - hello.cpu_ms) / count as f64;
        Ok(vec![
            median(&gaps),
            median(&gaps[..tenth]),
            median(&gaps[count - tenth..]),
            Some(processor),
            Some(sample.cost.peak_mib),
        ])
    })
}

/// A tool that only says that it cannot work would be quick.
fn check_tool(stage: &Stage<'_>, turn: Turn) -> Result<()> {
    let command = stage.prompt(None, "go")?;
    stage.run(&command, tool_loop(stage, turn, "touch made.txt", 1))?;
    let works = match turn {
        Turn::Read => stage.last_request().contains("three"),
        Turn::Bash => stage.project().join("made.txt").exists(),
    };
    let said = stage.last_request();
    let end = said.char_indices().rev().nth(600).map_or(0, |(at, _)| at);
    ensure!(works, "its tool does not work; its request ended with {}", &said[end..]);
    Ok(())
}

/// So many calls of the tool, and an end.
fn tool_loop(stage: &Stage<'_>, turn: Turn, line: &str, count: usize) -> Vec<Reply> {
    let (tool, arguments) = match turn {
        Turn::Read => ("read", r#"{"path":"a.txt"}"#.to_owned()),
        Turn::Bash => stage.who.shell(line),
    };
    let call = |index: usize| stage.wire().call(&format!("call_{index}"), tool, &arguments);
    (0..count).map(call).chain([stage.hello()]).collect()
}

fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

fn deltas(context: &Context) -> Result<Vec<Row>> {
    let what = format!("{} deltas", super::number(context.sizes.deltas as f64));
    deltas_on(context, DELTAS.name, &what, ALL, Api::MESSAGES)
}

fn deltas_on(
    context: &Context,
    bench: &'static str,
    what: &str,
    contenders: &[Contender],
    api: Api,
) -> Result<Vec<Row>> {
    let parts = &[("wall", "ms"), ("processor", "ms"), ("peak memory", "MiB")];
    let prepare = |stage: &Stage<'_>| {
        stage.warm_up()?;
        let deltas: Vec<String> = (0..context.sizes.deltas).map(|index| format!("word{index} ")).collect();
        Ok(stage.wire().text(&deltas))
    };
    Contest { bench, what, parts, contenders }.run_on(api, context, prepare, |stage, reply| {
        let cost = stage.run(&stage.prompt(None, "hello")?, [reply.clone()])?.cost;
        Ok(vec![Some(cost.wall_ms), Some(cost.cpu_ms), Some(cost.peak_mib)])
    })
}
