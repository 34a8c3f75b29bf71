//! Pi with the extension beside Pi without it, and the helper of the extension by itself.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::contest::Contest;
use super::programs::{Contender, Sample, Stage};
use super::shared::{self, Client, milliseconds};
use super::terminal::percentile;
use super::wires::Reply;
use super::{Benchmark, Context, Row, guard, number};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "pi-extension",
    about: "turns of Pi with the extension beside turns without (needs --peers); its helper among imported sessions",
    run,
};

/// Entries that the helper is given, one at a time.
const ENTRIES: usize = 1_000;

fn run(context: &Context) -> Result<Vec<Row>> {
    let mut rows = turns(context)?;
    for nodes in &context.sizes.shared {
        let what = format!("helper among {} nodes", number(*nodes as f64));
        if context.wants(BENCHMARK.name, &what) {
            eprintln!("bench: {what}");
            rows.extend(helper(context, *nodes, &what)?);
        }
    }
    Ok(rows)
}

fn turns(context: &Context) -> Result<Vec<Row>> {
    let count = context.sizes.turns.get(1).or(context.sizes.turns.first()).copied().unwrap_or(1);
    let what = format!("{count} turns of `read` with and without the extension");
    let contest = Contest {
        bench: BENCHMARK.name,
        what: &what,
        parts: &[
            ("without, between reply and request", "ms"),
            ("with, between reply and request", "ms"),
            ("added, median", "ms"),
            ("without, 99th percentile", "ms"),
            ("with, 99th percentile", "ms"),
            ("without, processor", "ms"),
            ("with, processor", "ms"),
        ],
        contenders: &[Contender::Pi],
    };
    let file = |stage: &Stage<'_>| stage.settings().join("extensions/quipu.ts");
    let prepare = |stage: &Stage<'_>| {
        std::fs::write(stage.project().join("a.txt"), "one\ntwo\nthree\n")?;
        let mut setup = stage.ours();
        setup.args(["setup", "pi", "--yes"]).env("PI_CODING_AGENT_DIR", stage.settings());
        let output = guard::output(&mut setup)?;
        ensure!(output.status.success(), "setup: {}", String::from_utf8_lossy(&output.stderr).trim());
        let text = std::fs::read_to_string(file(stage)).context("setup made no extension")?;
        stage.run(&stage.prompt(None, "go")?, script(stage, 1))?;
        let mut sessions = stage.ours();
        let output = guard::output(sessions.args(["sessions", "--all", "--json"]))?;
        let listed = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(listed.contains(r#""agent":"pi""#), "the extension records nothing: {listed}");
        Ok(text)
    };
    contest.run(context, prepare, |stage, text| {
        let sample = || stage.run(&stage.prompt(None, "go")?, script(stage, count));
        std::fs::remove_file(file(stage))?;
        let without = sample()?;
        std::fs::write(file(stage), text)?;
        let with = sample()?;
        let of = |sample: &Sample, part: f64| percentile(&sample.gaps_ms(), part);
        let added = of(&with, 0.5).zip(of(&without, 0.5)).map(|(with, without)| with - without);
        let costs = [Some(without.cost.cpu_ms), Some(with.cost.cpu_ms)];
        let gaps = [of(&without, 0.5), of(&with, 0.5), added, of(&without, 0.99), of(&with, 0.99)];
        Ok(gaps.into_iter().chain(costs).collect())
    })
}

fn script(stage: &Stage<'_>, count: usize) -> Vec<Reply> {
    let arguments = json!({ "path": "a.txt" }).to_string();
    let call = |index: usize| stage.wire().call(&format!("call_{index}"), "read", &arguments);
    (0..count).map(call).chain([stage.hello()]).collect()
}

/// The helper as the extension speaks to it.
fn helper(context: &Context, nodes: usize, what: &str) -> Result<Vec<Row>> {
    let stage = Stage::new(context, Contender::QuipuOpen)?;
    shared::prepare(context, &stage, nodes)?;
    let project = stage.project().canonicalize()?;
    let mut client = Client::of(&stage, &["pi-helper"])?;
    let mut ask = |op: &str, mut request: Value| {
        request["op"] = json!(op);
        let start = Instant::now();
        let answer = client.exchange(request)?;
        ensure!(answer["error"].is_null(), "{op}: {answer}");
        anyhow::Ok((milliseconds(start), answer))
    };
    let header = json!({ "type": "session", "version": 3, "id": "bench", "timestamp": "2026-11-28T10:00:00.000Z",
        "cwd": project });
    let (opened, _) = ask("open", json!({ "header": header, "leaf": null, "reason": "startup" }))?;
    let count = if context.sizes.is_smoke() { 20 } else { ENTRIES };
    let (mut appended, mut told) = (Vec::new(), Vec::new());
    for at in 0..count {
        let id = |at: usize| format!("{at:08x}");
        let entry = json!({ "type": "message", "id": id(at), "parentId": at.checked_sub(1).map(id),
            "timestamp": "2026-11-28T10:00:01.000Z", "message": { "role": "user", "timestamp": 1,
            "content": [{ "type": "text", "text": format!("Message {at}. {}", "words ".repeat(100)) }] } });
        let request = json!({ "session": "bench", "first": at, "entries": [entry], "leaf": id(at) });
        appended.push(ask("append", request)?.0);
        if at % 10 == 9 {
            let name = ["life", "recall", "trace"][at / 10 % 3];
            let arguments = if name == "recall" { json!({ "hash": "HEAD" }) } else { json!({}) };
            let request = json!({ "session": "bench", "name": name, "arguments": arguments, "leaf": id(at) });
            told.push(ask("tool", request)?.0);
        }
    }
    let memory = [
        ("peak memory", client.memory("VmHWM:")?),
        ("memory", client.memory("VmRSS:")?),
        ("memory of its own", client.memory("RssAnon:")?),
    ];
    client.end()?;
    let row = |part: &str, unit: &'static str, sample: Option<f64>| Row {
        what: format!("{what}, {part}"),
        unit,
        samples: sample.into_iter().collect(),
    };
    let mut rows = vec![row("the session opened", "ms", Some(opened))];
    for (kind, times) in [("an entry", &appended), ("a tool", &told)] {
        for (part, of) in [("50th", 0.5), ("99th", 0.99)] {
            rows.push(row(&format!("{kind}, {part} percentile"), "ms", percentile(times, of)));
        }
    }
    rows.extend(memory.map(|(part, megabytes)| row(part, "MB", Some(megabytes))));
    Ok(rows)
}
