//! The agent at work against a fake model server on loopback: one prompt, many turns, many deltas, a long session.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use quipu_testkit::{Answer, FakeServer, Reply};

use super::{Benchmark, Context, Row, measure};

pub(super) const HELLO: Benchmark =
    Benchmark { name: "hello", about: "one prompt, one answer, one process", run: hello };
pub(super) const TURNS: Benchmark =
    Benchmark { name: "turns", about: "tool loops of 50, 200 and 800 turns", run: turns };
pub(super) const DELTAS: Benchmark =
    Benchmark { name: "deltas", about: "an answer of 20,000 pieces", run: deltas };
pub(super) const RESUME: Benchmark =
    Benchmark { name: "resume", about: "continue a session of 100 and 1,000 turns", run: resume };

pub(super) const LIST: Benchmark = Benchmark { name: "list", about: "list 1,000 sessions", run: list };

/// A user's files, a project and a model server.
struct Stage {
    dir: tempfile::TempDir,
    server: FakeServer,
}

impl Stage {
    fn new(script: Vec<Reply>) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let server = FakeServer::start(script);
        let stage = Self { dir, server };
        std::fs::create_dir(stage.home())?;
        std::fs::create_dir(stage.project())?;
        std::fs::write(stage.project().join("a.txt"), "one\ntwo\nthree\n")?;
        let models = serde_json::json!({ "providers": { "fake": {
            "baseUrl": stage.server.url(),
            "api": "anthropic-messages",
            "apiKey": "bench",
            "models": [{ "id": "m", "contextWindow": 100_000_000, "maxTokens": 4_000 }],
        }}});
        std::fs::write(stage.home().join("models.json"), models.to_string())?;
        Ok(stage)
    }

    fn home(&self) -> std::path::PathBuf {
        self.dir.path().join("home")
    }

    fn project(&self) -> std::path::PathBuf {
        self.dir.path().join("project")
    }

    fn command(&self, quipu: &Path, arguments: &[&str]) -> Command {
        let mut command = self.plain(quipu, &["--print", "--provider", "fake", "--model", "m"]);
        command.args(arguments);
        command
    }

    fn plain(&self, quipu: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(quipu);
        command
            .args(arguments)
            .current_dir(self.project())
            .env("HOME", self.dir.path())
            .env("QUIPU_HOME", self.home())
            .env("NO_PROXY", "127.0.0.1");
        command
    }

    /// Milliseconds between one request and the next.
    fn gaps(&self) -> Vec<f64> {
        let times: Vec<_> = self.server.requests().iter().map(|request| request.at).collect();
        times.windows(2).map(|pair| pair[1].duration_since(pair[0]).as_secs_f64() * 1_000.0).collect()
    }
}

fn row(what: impl Into<String>, unit: &'static str) -> Row {
    Row { what: what.into(), unit, samples: Vec::new() }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn hello(context: &Context) -> Result<Vec<Row>> {
    let mut rows = [
        row("hello, wall", "ms"),
        row("hello, processor", "ms"),
        row("hello, peak memory", "MiB"),
        row("hello, bytes of the request", "B"),
    ];
    for _ in 0..context.runs {
        let stage = Stage::new(vec![Answer::new().text("Hello.").reply()])?;
        let cost = measure::once(&stage.command(&context.quipu, &["hello"]))?;
        let requests = stage.server.requests();
        let body = &requests.first().context("no request came")?.body;
        for (row, sample) in
            rows.iter_mut().zip([cost.wall_ms, cost.cpu_ms, cost.peak_mib, body.len() as f64])
        {
            row.samples.push(sample);
        }
    }
    Ok(rows.into())
}

fn turns(context: &Context) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let command = r#"{"command":"true"}"#;
    // Commands are confined unless told otherwise.
    let kinds = [
        ("read", "", r#"{"path":"a.txt"}"#, "workspace"),
        ("bash", "", command, "workspace"),
        ("bash", " (not confined)", command, "full"),
    ];
    for (tool, how, arguments, mode) in kinds {
        for count in [50, 200, 800] {
            let what = |part: &str| format!("{count} turns of `{tool}`{how}, {part}");
            let mut own = [
                row(what("between two requests"), "ms"),
                row(what("first tenth"), "ms"),
                row(what("last tenth"), "ms"),
                row(what("processor for a turn"), "ms"),
                row(what("peak memory"), "MiB"),
            ];
            // Long loops are their own repetition.
            let runs = if count == 800 { context.runs.min(7) } else { context.runs };
            for _ in 0..runs {
                let call = |turn: usize| {
                    Answer::new().tool_call(&format!("call_{turn}"), tool, arguments).reply().keep_alive()
                };
                let mut script: Vec<Reply> = (0..count).map(call).collect();
                script.push(Answer::new().text("Done.").reply());
                let stage = Stage::new(script)?;
                let cost = measure::once(&stage.command(&context.quipu, &["--permissions", mode, "go"]))?;
                let gaps = stage.gaps();
                if gaps.len() != count {
                    bail!("{} of {count} turns were made", gaps.len());
                }
                let tenth = count / 10;
                let samples = [
                    median(gaps.clone()),
                    median(gaps[..tenth].to_vec()),
                    median(gaps[count - tenth..].to_vec()),
                    cost.cpu_ms / count as f64,
                    cost.peak_mib,
                ];
                own.iter_mut().zip(samples).for_each(|(row, sample)| row.samples.push(sample));
            }
            rows.extend(own);
        }
    }
    Ok(rows)
}

fn deltas(context: &Context) -> Result<Vec<Row>> {
    let mut rows = [
        row("20,000 deltas, wall", "ms"),
        row("20,000 deltas, processor", "ms"),
        row("20,000 deltas, peak memory", "MiB"),
    ];
    let delta = |index: usize| {
        let delta = serde_json::json!({ "type": "text_delta", "text": format!("word{index} ") });
        serde_json::json!({ "type": "content_block_delta", "index": 0, "delta": delta })
    };
    let start = serde_json::json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } });
    let mut answer = Answer::new().event(start);
    for index in 0..20_000 {
        answer = answer.event(delta(index));
    }
    answer = answer.event(serde_json::json!({ "type": "content_block_stop", "index": 0 }));
    for _ in 0..context.runs {
        let stage = Stage::new(vec![answer.reply()])?;
        let cost = measure::once(&stage.command(&context.quipu, &["hello"]))?;
        let samples = [cost.wall_ms, cost.cpu_ms, cost.peak_mib];
        rows.iter_mut().zip(samples).for_each(|(row, sample)| row.samples.push(sample));
    }
    Ok(rows.into())
}

fn resume(context: &Context) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for count in [100, 1_000] {
        let call = |turn: usize| {
            Answer::new().tool_call(&format!("call_{turn}"), "read", r#"{"path":"a.txt"}"#).reply()
        };
        let mut script: Vec<Reply> = (0..count).map(call).collect();
        script.push(Answer::new().text("Done.").reply());
        let stage = Stage::new(script)?;
        measure::once(&stage.command(&context.quipu, &["go"]))?;
        let what = |part: &str| format!("continue {count} turns, {part}");
        let mut own =
            [row(what("wall"), "ms"), row(what("processor"), "ms"), row(what("peak memory"), "MiB")];
        for _ in 0..context.runs {
            stage.server.push(Answer::new().text("Hello.").reply());
            let cost = measure::once(&stage.command(&context.quipu, &["--continue", "hello"]))?;
            let samples = [cost.wall_ms, cost.cpu_ms, cost.peak_mib];
            own.iter_mut().zip(samples).for_each(|(row, sample)| row.samples.push(sample));
        }
        rows.extend(own);
    }
    Ok(rows)
}

fn list(context: &Context) -> Result<Vec<Row>> {
    const SESSIONS: usize = 1_000;
    let stage = Stage::new((0..SESSIONS).map(|_| Answer::new().text("Hello.").reply()).collect())?;
    for _ in 0..SESSIONS {
        let output = stage.command(&context.quipu, &["hello"]).output().context("cannot run quipu")?;
        if !output.status.success() {
            bail!("a session ended with {}", output.status);
        }
    }
    let mut rows = [
        row("list 1,000 sessions, wall", "ms"),
        row("list 1,000 sessions, processor", "ms"),
        row("list 1,000 sessions, peak memory", "MiB"),
    ];
    for _ in 0..context.runs {
        let cost = measure::once(&stage.plain(&context.quipu, &["sessions", "--limit", "0"]))?;
        let samples = [cost.wall_ms, cost.cpu_ms, cost.peak_mib];
        rows.iter_mut().zip(samples).for_each(|(row, sample)| row.samples.push(sample));
    }
    Ok(rows.into())
}
