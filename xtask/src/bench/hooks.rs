//! Hooks of other agents: a process for each event, among imported sessions.

use std::io::Write as _;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::histories::prose;
use super::programs::{Contender, Stage};
use super::shared::{self, FILE, TURNS, milliseconds};
use super::terminal::percentile;
use super::{Benchmark, Context, MILLION, Row, number};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "hooks",
    about: "what an agent waits for at its events; with --million among a million nodes",
    run,
};

/// Processes for each event.
const COUNT: usize = 100;
const EVENTS: [(&str, &str); 6] = [
    ("start of a session", "SessionStart"),
    ("beside a prompt", "UserPromptSubmit"),
    ("before an edit of a new line", "PreToolUse"),
    ("before an edit of an old line", "PreToolUse"),
    ("after a failure", "PostToolUseFailure"),
    // Last, since it starts a process that goes on.
    ("end of a turn", "Stop"),
];

fn run(context: &Context) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for nodes in &context.sizes.shared {
        let what = format!("hooks among {} nodes", number(*nodes as f64));
        if context.wants(BENCHMARK.name, &what) {
            eprintln!("bench: {what}");
            rows.extend(among(context, *nodes, &what)?);
        }
    }
    if !rows.is_empty() && !context.sizes.shared.contains(&MILLION) {
        context.notes.borrow_mut().push("hooks among a million nodes (--million)".to_owned());
    }
    Ok(rows)
}

fn among(context: &Context, nodes: usize, what: &str) -> Result<Vec<Row>> {
    let stage = Stage::new(context, Contender::QuipuOpen)?;
    shared::prepare(context, &stage, nodes)?;
    let count = if context.sizes.is_smoke() { 3 } else { COUNT };
    let mut rows = Vec::new();
    let (others, last) = EVENTS.split_at(EVENTS.len() - 1);
    let mut samples = vec![(Vec::new(), 0_usize); EVENTS.len()];
    for events in [others, last] {
        let first = if events == last { others.len() } else { 0 };
        // In turn, so that all of them meet the same moments of the machine; the first of each is not counted.
        for round in 0..=count {
            for (at, (kind, event)) in events.iter().enumerate() {
                let start = Instant::now();
                let printed = hook(&stage, event, &payload(&stage, kind, round)?)?;
                if round > 0 {
                    let (times, answered) = &mut samples[first + at];
                    times.push(milliseconds(start));
                    *answered += usize::from(!printed.is_empty());
                }
            }
        }
    }
    for ((kind, _), (times, answered)) in EVENTS.iter().zip(&samples) {
        for (part, of) in [("50th", 0.5), ("99th", 0.99)] {
            let what = format!("{what}, {kind}, {part} percentile");
            rows.push(Row { what, unit: "ms", samples: percentile(times, of).into_iter().collect() });
        }
        rows.push(Row {
            what: format!("{what}, {kind}, answered"),
            unit: "%",
            samples: vec![100.0 * *answered as f64 / times.len() as f64],
        });
    }
    Ok(rows)
}

/// What the agent writes to the hook, in a session of its own each time: nothing is given twice.
fn payload(stage: &Stage<'_>, kind: &str, round: usize) -> Result<Value> {
    let project = stage.project().canonicalize()?;
    let more = match kind {
        "start of a session" => json!({ "source": "startup" }),
        "beside a prompt" => json!({ "prompt": prose(round % 7, round, 120) }),
        "before an edit of a new line" => edit(TURNS - 1 - round % 20, TURNS - 1 - round % 20),
        // It stands as the first turn wrote it.
        "before an edit of an old line" => edit(round % TURNS, 0),
        "after a failure" => json!({
            "tool_name": "Bash",
            "tool_input": { "command": "cargo test" },
            "error": format!("Exit code 1\n{}", prose(round % 7, round, 120)),
        }),
        _ => json!({ "transcript_path": stage.settings().join("gone.jsonl") }),
    };
    let mut payload = json!({ "session_id": format!("{kind} {round}"), "cwd": project });
    for (name, value) in more.as_object().context("a payload is an object")? {
        payload[name] = value.clone();
    }
    Ok(payload)
}

/// An edit of a line that this turn wrote, in the block of another turn.
fn edit(block: usize, turn: usize) -> Value {
    // Five lines of each block of ten were written by its turn, and five by the first.
    let at = block * 10 + if turn == 0 { 7 } else { 2 };
    let old = shared::line(at, turn);
    json!({ "tool_name": "Edit", "tool_input": { "file_path": FILE, "old_string": old, "new_string": "" } })
}

/// Runs a hook as the agent does, and gives what it prints.
fn hook(stage: &Stage<'_>, event: &str, payload: &Value) -> Result<Vec<u8>> {
    let mut command = stage.program()?;
    command.args(["hook", "claude-code", event]);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start the hook")?;
    let mut input = child.stdin.take().context("no pipe to the hook")?;
    input.write_all(payload.to_string().as_bytes())?;
    drop(input);
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "the hook ended with {}", output.status);
    Ok(output.stdout)
}
