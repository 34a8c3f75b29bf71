//! The three proofs of a past: requests put together again, falsehoods that are found among the claims of summaries, and answers with
//! the past, without it and with a disturbed one.
//!
//! The reader of the answers is scripted: it says what stands in its request, and nothing else.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::programs::{Contender, Stage};
use super::wires::Wire;
use super::{Benchmark, Context, Row, guard, measure, search};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "past-proof",
    about: "the proofs of a past: requests put together again, falsehoods found, answers with and without it",
    run,
};

/// Services, each with a port that a session tells.
const FACTS: usize = 20;
/// Turns of a session, of which one has the fact.
const TURNS: usize = 6;
const UNKNOWN: &str = "unknown";

fn run(context: &Context) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for requests in context.sizes.turns {
        let what = format!("past-proof, structure of {requests} requests");
        if context.wants(BENCHMARK.name, &what) {
            eprintln!("bench: {what}");
            rows.extend(structure(context, *requests, &what)?);
        }
    }
    if context.wants(BENCHMARK.name, "past-proof, grounding") {
        eprintln!("bench: past-proof, grounding");
        rows.extend(grounding(context)?);
    }
    if context.wants(BENCHMARK.name, "past-proof, ablation") {
        eprintln!("bench: past-proof, ablation");
        rows.extend(ablation(context)?);
    }
    Ok(rows)
}

/// A session of so many requests, each of which is put together again.
fn structure(context: &Context, requests: usize, what: &str) -> Result<Vec<Row>> {
    let stage = Stage::new(context, Contender::Quipu)?;
    let (tool, arguments) = stage.who.shell("true");
    let calls = (1..requests).map(|at| stage.wire().call(&format!("c{at}"), tool, &arguments));
    let script: Vec<_> = calls.chain([stage.hello()]).collect();
    stage.run(&stage.prompt(None, "Run it.")?, script)?;
    let limit = requests.to_string();
    let prove = || -> Result<Command> {
        let mut command = stage.program()?;
        command.args(["past", "prove", "--all", "--json", "--requests", &limit]);
        Ok(command)
    };
    let proof = printed(&mut prove()?)?;
    let count = |name: &str| proof["structure"][name].as_f64().unwrap_or_default();
    ensure!(count("requests") == requests as f64, "{} of {requests} requests", count("requests"));
    let row = |part: &str, unit, samples| Row { what: format!("{what}{part}"), unit, samples };
    let mut took = Vec::new();
    for _ in 0..context.runs {
        took.push(measure::once(&prove()?)?.wall_ms);
    }
    Ok(vec![row("", "ms", took), row(", equal", "%", vec![100.0 * count("equal") / count("requests")])])
}

/// What the checker finds among the cases of its tests, by an example of its crate.
fn grounding(context: &Context) -> Result<Vec<Row>> {
    let output = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--release", "--package", "quipu-past", "--example", "grounding_rate"])
        .current_dir(&context.root)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    ensure!(output.status.success(), "the example grounding_rate of quipu-past ended with {}", output.status);
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    lines
        .lines()
        .map(|line| {
            let row = search::row(line)?;
            Ok(Row { what: format!("past-proof, grounding, {}", row.what), ..row })
        })
        .collect()
}

/// Questions about ports, answered by a reader that finds them in its request or nowhere.
fn ablation(context: &Context) -> Result<Vec<Row>> {
    let stage = Stage::new(context, Contender::Quipu)?;
    let folder = tempfile::tempdir_in(&context.scratch)?;
    for fact in 0..FACTS {
        let file = folder.path().join(format!("fact-{fact}.jsonl"));
        write_session(&file, fact)?;
        let mut import = stage.program()?;
        stage.run(import.args(["import", "pi"]).arg(&file), [])?;
    }
    let mut build = stage.program()?;
    stage.run(build.args(["past", "build", "--all"]), [])?;
    let lines = (0..FACTS).map(|fact| {
        let question = format!("What is the port of {}?", service(fact));
        json!({ "question": question, "answer": port(fact) }).to_string()
    });
    let questions = folder.path().join("questions.jsonl");
    std::fs::write(&questions, lines.collect::<Vec<_>>().join("\n"))?;
    let wire = stage.wire();
    stage.answer_by(move |request| answer(wire, request));
    let mut prove = stage.program()?;
    prove.args(["past", "prove", "--all", "--json", "--model", "fake/m", "--budget", "1", "--chunks", "1"]);
    let proof = printed(prove.arg("--questions").arg(&questions))?;
    let asked = proof["ablation"]["questions"].as_array().map(Vec::as_slice).unwrap_or_default();
    ensure!(asked.len() == FACTS, "{} of {FACTS} questions were asked: {}", asked.len(), proof["ablation"]);
    let chunks: Vec<&Value> = asked.iter().filter_map(|one| one["chunks"].as_array()).flatten().collect();
    ensure!(!chunks.is_empty(), "no single chunk was removed");
    let share = |of: &[&Value], name: &str| {
        let is = of.iter().filter(|one| one[name] == true).count();
        vec![100.0 * is as f64 / of.len() as f64]
    };
    let all: Vec<&Value> = asked.iter().collect();
    let rows = [
        ("right with the cover", share(&all, "with")),
        ("right without it", share(&all, "without")),
        ("right with a disturbed one", share(&all, "disturbed")),
        ("answers that change with a disturbed one", share(&all, "changedDisturbed")),
        ("single chunks whose removal changes the answer", share(&chunks, "changedRemoved")),
        ("single chunks whose disturbance changes the answer", share(&chunks, "changedDisturbed")),
    ];
    let row = |(part, samples)| Row { what: format!("past-proof, ablation, {part}"), unit: "%", samples };
    Ok(rows.map(row).into())
}

/// What a program printed as JSON. One that found something ends with another code.
fn printed(command: &mut Command) -> Result<Value> {
    let output = guard::output(command)?;
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).with_context(|| format!("it printed no JSON: {}", said.trim()))
}

fn service(fact: usize) -> String {
    format!("service{}", char::from(b'a' + u8::try_from(fact % 26).unwrap_or_default()))
}

fn port(fact: usize) -> usize {
    8_101 + 37 * fact
}

/// A session of Pi that tells one port among other things.
fn write_session(file: &Path, fact: usize) -> Result<()> {
    let at = |turn: usize, second: usize| format!("2025-01-{:02}T{turn:02}:00:{second:02}.000Z", fact + 1);
    let mut lines = vec![
        json!({ "type": "session", "version": 3, "id": format!("fact-{fact}"), "timestamp": at(0, 0), "cwd": "/p" }),
    ];
    let mut parent = Value::Null;
    for turn in 0..TURNS {
        let said = if turn == TURNS / 2 {
            format!("The port of {} is {}.", service(fact), port(fact))
        } else {
            format!("Step {turn} of {} reads one more line.", service(fact))
        };
        for (second, role, text) in [(0, "user", said.as_str()), (1, "assistant", "Noted.")] {
            let id = format!("f{fact}t{turn}{role}");
            let content = json!([{ "type": "text", "text": text }]);
            let mut message = json!({ "role": role, "content": content });
            if role == "assistant" {
                message["stopReason"] = json!("stop");
            }
            lines.push(json!({ "type": "message", "id": id, "parentId": parent, "timestamp": at(turn, second), "message": message }));
            parent = json!(id);
        }
    }
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// The port that a request tells of the service that it asks for.
fn answer(wire: Wire, request: &str) -> super::wires::Reply {
    let asked = request.rsplit("What is the port of ").next().unwrap_or_default();
    let service: String = asked.chars().take_while(char::is_ascii_alphanumeric).collect();
    let told = request.split_once(&format!("The port of {service} is "));
    let port: String =
        told.map(|(_, rest)| rest.chars().take_while(char::is_ascii_digit).collect()).unwrap_or_default();
    wire.text(&[if port.is_empty() { UNKNOWN.to_owned() } else { port }])
}
