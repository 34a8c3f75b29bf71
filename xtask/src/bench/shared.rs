//! The history for other agents: a call of `quipu mcp serve` by a client that starts it for that one call, and by one that keeps it.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use super::histories::{Amount, History, prose};
use super::programs::{Contender, Stage};
use super::terminal::percentile;
use super::wires::Reply;
use super::{Benchmark, Context, MILLION, Row, guard, number};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "shared",
    about: "calls of `quipu mcp serve`, cold and warm; with --million among a million nodes",
    run,
};

/// Entries of one session.
const SESSION: usize = 1_000;
/// Processes that are started for one call, and calls of one process; of each tool.
const COLD: usize = 100;
const WARM: usize = 1_000;
/// Lines of the file for `why`, and turns that changed it.
const LINES: usize = 2_000;
pub(super) const TURNS: usize = 200;
/// What `why` is asked about.
pub(super) const FILE: &str = "blamed.rs";
/// Times that the indexes are asked whether they are done, each of which takes a second at most.
const CATCHING_UP: usize = 2_000;
const TOOLS: [&str; 5] = ["search", "read", "around", "how", "why"];

fn run(context: &Context) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for nodes in &context.sizes.shared {
        let what = format!("shared among {} nodes", number(*nodes as f64));
        if context.wants(BENCHMARK.name, &what) {
            eprintln!("bench: {what}");
            rows.extend(among(context, *nodes, &what)?);
        }
    }
    if !rows.is_empty() && !context.sizes.shared.contains(&MILLION) {
        context.notes.borrow_mut().push("shared among a million nodes (--million)".to_owned());
    }
    Ok(rows)
}

fn among(context: &Context, nodes: usize, what: &str) -> Result<Vec<Row>> {
    let stage = Stage::new(context, Contender::QuipuOpen)?;
    prepare(context, &stage, nodes)?;
    let ids = ids(&stage)?;
    let (cold, warm) = match context.sizes.is_smoke() {
        true => (3, 10),
        false => (COLD, WARM),
    };
    let mut rows = Vec::new();
    let mut peaks = [0.0_f64; TOOLS.len()];
    let mut own = 0.0_f64;
    let mut samples: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    // In turn, so that all of them meet the same moments of the machine; the first of each is not counted.
    for round in 0..=cold {
        for (tool, peak) in TOOLS.into_iter().zip(&mut peaks) {
            let start = Instant::now();
            let mut client = Client::start(&stage)?;
            client.call(tool, &arguments(tool, round, &ids))?;
            if round > 0 {
                samples.entry(tool).or_default().push(milliseconds(start));
            }
            *peak = peak.max(client.memory("VmHWM:")?);
            own = own.max(client.memory("RssAnon:")?);
            client.end()?;
        }
    }
    rows.extend(summary(what, "cold", &samples));
    let mut client = Client::start(&stage)?;
    let mut samples: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for round in 0..=warm {
        for tool in TOOLS {
            let start = Instant::now();
            client.call(tool, &arguments(tool, round, &ids))?;
            if round > 0 {
                samples.entry(tool).or_default().push(milliseconds(start));
            }
        }
    }
    rows.extend(summary(what, "warm", &samples));
    let mut memory = vec![
        ("cold, peak memory".to_owned(), peaks.into_iter().fold(0.0, f64::max)),
        ("cold, memory of its own after a call".to_owned(), own),
        ("warm, peak memory".to_owned(), client.memory("VmHWM:")?),
        ("warm, memory".to_owned(), client.memory("VmRSS:")?),
        ("warm, memory of its own".to_owned(), client.memory("RssAnon:")?),
    ];
    memory.extend(
        TOOLS.into_iter().zip(peaks).map(|(tool, peak)| (format!("cold `{tool}`, peak memory"), peak)),
    );
    client.end()?;
    rows.extend(memory.into_iter().map(|(part, megabytes)| Row {
        what: format!("{what}, {part}"),
        unit: "MB",
        samples: vec![megabytes],
    }));
    Ok(rows)
}

/// Sessions of other agents, a file that many turns changed, and all of it indexed.
pub(super) fn prepare(context: &Context, stage: &Stage<'_>, nodes: usize) -> Result<()> {
    let begun = Instant::now();
    fill(context, stage, nodes)?;
    write_file(stage)?;
    catch_up(stage)?;
    eprintln!("bench: prepared in {:.1} s", begun.elapsed().as_secs_f64());
    Ok(())
}

/// Sessions of another agent in the project.
fn fill(context: &Context, stage: &Stage<'_>, nodes: usize) -> Result<()> {
    let project = stage.project().canonicalize()?;
    let project = project.to_str().context("the directory for temporary files is not UTF-8")?;
    let folder = tempfile::Builder::new().prefix("shared-").tempdir_in(&context.scratch)?;
    let amount = Amount { name: "shared", files: nodes / SESSION, entries: SESSION };
    History::ClaudeCode.write_in(context, &amount, folder.path(), project)?;
    let mut import = stage.program()?;
    import.args(["import", "claude-code"]).arg(folder.path());
    let output = guard::output(&mut import)?;
    ensure!(output.status.success(), "import: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}

/// A line of the file as a turn wrote it.
pub(super) fn line(at: usize, turn: usize) -> String {
    format!("let value_{at} = compute(turn_{turn}, {at});")
}

/// One session in which so many turns change a file of so many lines.
fn write_file(stage: &Stage<'_>) -> Result<()> {
    let all: String = (0..LINES).map(|at| line(at, 0) + "\n").collect();
    let first = json!({ "path": FILE, "content": all }).to_string();
    let mut script: Vec<Reply> = vec![stage.wire().call("call_0", "write", &first)];
    for turn in 1..TURNS {
        // Blocks of five lines all over the file.
        let from = turn * (LINES / TURNS);
        let text = |turn: usize| (from..from + 5).map(|at| line(at, turn) + "\n").collect::<String>();
        let edit = json!({ "path": FILE, "edits": [{ "oldText": text(0), "newText": text(turn) }] });
        script.push(stage.wire().call(&format!("call_{turn}"), "edit", &edit.to_string()));
    }
    script.push(stage.hello());
    stage.run(&stage.prompt(None, "Change the file in many turns.")?, script)?;
    let written = std::fs::read_to_string(stage.project().join(FILE))?;
    ensure!(
        written.lines().count() == LINES && written.contains(&format!("turn_{},", TURNS - 1)),
        "{FILE} was not written"
    );
    Ok(())
}

/// Waits until the tables and the index hold everything.
fn catch_up(stage: &Stage<'_>) -> Result<()> {
    for _ in 0..CATCHING_UP {
        let mut left = 0;
        for words in [&["search", "tare", "--json", "--limit", "1"][..], &["blame", FILE, "--json"]] {
            let mut command = stage.program()?;
            command.args(words);
            let output = guard::output(&mut command)?;
            ensure!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
            let last = String::from_utf8_lossy(&output.stdout).lines().last().unwrap_or_default().to_owned();
            let end: Value = serde_json::from_str(&last).with_context(|| format!("{words:?}: {last}"))?;
            let unindexed = &end["unindexed"];
            let kinds = [&unindexed["words"], &unindexed["substrings"], &end["behind"]];
            left += kinds.iter().filter_map(|kind| kind.as_u64()).sum::<u64>();
        }
        if left == 0 {
            return Ok(());
        }
    }
    bail!("the indexes do not catch up")
}

/// Nodes of sessions all over the store.
fn ids(stage: &Stage<'_>) -> Result<Vec<String>> {
    let mut command = stage.program()?;
    command.args(["sessions", "--all", "--json", "--limit", "200"]);
    let output = guard::output(&mut command)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let rows = text.lines().map(serde_json::from_str::<Value>).collect::<Result<Vec<_>, _>>()?;
    let ids: Vec<String> = rows.iter().filter_map(|row| Some(row["head"].as_str()?.to_owned())).collect();
    ensure!(!ids.is_empty(), "no sessions: {text}");
    Ok(ids)
}

/// What the n-th call of a tool asks for.
fn arguments(tool: &str, round: usize, ids: &[String]) -> Value {
    let id = &ids[round % ids.len()];
    match tool {
        "search" => {
            // Words as often as in natural text, two of them every second time.
            let text = prose(round % 7, round, 400);
            let words: Vec<&str> = text.split_whitespace().filter(|word| word.len() > 2).collect();
            let words: Vec<&str> = words.into_iter().skip(round % 5).take(1 + round % 2).collect();
            json!({ "query": words.join(" ") })
        }
        "why" => json!({ "file": FILE }),
        _ => json!({ "id": id }),
    }
}

fn summary(what: &str, kind: &str, samples: &BTreeMap<&str, Vec<f64>>) -> Vec<Row> {
    let mut rows = Vec::new();
    for tool in TOOLS {
        let Some(samples) = samples.get(tool) else { continue };
        for (part, of) in [("50th", 0.5), ("99th", 0.99)] {
            let what = format!("{what}, {kind} `{tool}`, {part} percentile");
            rows.push(Row { what, unit: "ms", samples: percentile(samples, of).into_iter().collect() });
        }
    }
    rows
}

pub(super) fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1_000.0
}

/// A client of a server that it starts.
pub(super) struct Client {
    server: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    calls: u64,
}

impl Client {
    fn start(stage: &Stage<'_>) -> Result<Self> {
        let mut client = Self::of(stage, &["mcp", "serve"])?;
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "bench", "version": "1" } });
        client.ask("initialize", &params)?;
        client.put(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))?;
        Ok(client)
    }

    /// One of a program that is spoken to in lines of JSON.
    pub(super) fn of(stage: &Stage<'_>, words: &[&str]) -> Result<Self> {
        let mut command = stage.program()?;
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut server = command.spawn().with_context(|| format!("cannot start {words:?}"))?;
        let input = server.stdin.take();
        let output = BufReader::new(server.stdout.take().context("no pipe from the server")?);
        Ok(Self { server, input, output, calls: 0 })
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> Result<()> {
        let answer = self.ask("tools/call", &json!({ "name": tool, "arguments": arguments }))?;
        ensure!(
            answer["result"]["isError"] != true && answer["error"].is_null(),
            "{tool} {arguments}: {answer}"
        );
        Ok(())
    }

    fn ask(&mut self, method: &str, params: &Value) -> Result<Value> {
        self.exchange(json!({ "jsonrpc": "2.0", "method": method, "params": params }))
    }

    /// Asks, under an id of its own, and waits for the answer.
    pub(super) fn exchange(&mut self, mut request: Value) -> Result<Value> {
        self.calls += 1;
        let id = self.calls;
        request["id"] = json!(id);
        self.put(&request)?;
        loop {
            let mut line = String::new();
            ensure!(self.output.read_line(&mut line)? > 0, "the server ended");
            let answer: Value = serde_json::from_str(&line)?;
            if answer["id"] == id {
                return Ok(answer);
            }
        }
    }

    fn put(&mut self, message: &Value) -> Result<()> {
        let input = self.input.as_mut().context("the server is closed")?;
        writeln!(input, "{message}")?;
        Ok(input.flush()?)
    }

    /// A figure of the process, in megabytes; 0 where the system has none.
    pub(super) fn memory(&self, name: &str) -> Result<f64> {
        let Ok(status) = std::fs::read_to_string(format!("/proc/{}/status", self.server.id())) else {
            return Ok(0.0);
        };
        let line = status.lines().find_map(|line| line.strip_prefix(name)).context("no such figure")?;
        let kilobytes: f64 = line.trim().trim_end_matches(" kB").parse()?;
        Ok(kilobytes * 1_024.0 / 1e6)
    }

    pub(super) fn end(mut self) -> Result<()> {
        drop(self.input.take());
        let status = self.server.wait()?;
        ensure!(status.success(), "the server ended with {status}");
        Ok(())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Ended already, unless something failed.
        drop(self.server.kill());
        drop(self.server.wait());
    }
}
