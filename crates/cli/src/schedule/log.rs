//! `quipu schedule log`.

use std::io::Write as _;

use clap::Args;
use quipu_host::iso;
use quipu_store::{JobDelivery, JobKey, JobRun, JobRunState, JobRuns as _, Jobs as _};

use crate::args::OutArgs;
use crate::exit::Failure;
use crate::home::home;
use crate::print::{Paint, dollars, note, printable};

/// Characters of an answer that the terminal shows when it starts.
const TOLD: usize = 2_000;

#[derive(Debug, Args)]
pub(super) struct LogArgs {
    /// The key of the job in the list. Default: all jobs.
    key: Option<String>,
    /// Show at most N runs, the newest first.
    #[arg(long, value_name = "N", default_value_t = 10)]
    limit: usize,
    #[command(flatten)]
    out: OutArgs,
}

pub(super) async fn run(args: &LogArgs) -> Result<(), Failure> {
    let store = home(&args.out.store)?.store_to_read()?;
    let key = args.key.as_deref().map(JobKey::from);
    let runs = match &store {
        Some(store) => store.job_runs(key.as_ref(), None, args.limit).await?,
        None => Vec::new(),
    };
    if let Some(key) = key.as_ref().filter(|_| runs.is_empty()) {
        let is_there = match &store {
            Some(store) => store.job(key).await?.is_some(),
            None => false,
        };
        if !is_there {
            return Err(super::unknown(key.as_str()));
        }
    }
    let mut out = std::io::BufWriter::new(crate::console::stdout());
    for run in &runs {
        if args.out.json {
            writeln!(out, "{}", json(run))?;
        } else {
            write_run(&mut out, run)?;
        }
    }
    if runs.is_empty() && !args.out.json {
        note("No job has run yet.");
    }
    Ok(out.flush()?)
}

/// What a job has to say to a person who starts the terminal.
pub(crate) fn told(run: &JobRun) -> String {
    let mut text: String = run.text.chars().take(TOLD).collect();
    if text.len() < run.text.len() {
        text.push_str(&format!("… `quipu schedule log {}` shows all", run.key));
    }
    let state =
        if run.state == JobRunState::Done { String::new() } else { format!(", {}", run.state.word()) };
    let undelivered = if run.delivery == JobDelivery::Failed {
        format!(", not delivered to the {}", run.target)
    } else {
        String::new()
    };
    format!("Job {} ({}{state}{undelivered}): {text}", run.key, iso(run.began))
}

fn json(run: &JobRun) -> serde_json::Value {
    serde_json::json!({
        "id": run.id, "key": run.key.as_str(), "due": run.due, "attempt": run.attempt, "began": run.began,
        "ended": run.ended, "state": run.state.word(), "session": run.session, "cost": run.cost,
        "text": run.text, "target": run.target, "delivery": run.delivery.word(),
    })
}

fn write_run(out: &mut impl std::io::Write, run: &JobRun) -> std::io::Result<()> {
    let paint = Paint::stdout();
    let state = match run.state {
        JobRunState::Failed | JobRunState::Interrupted => paint.red(run.state.word()),
        JobRunState::Running | JobRunState::Done | JobRunState::Limit => run.state.word().to_owned(),
    };
    let key = paint.bold(&printable(run.key.as_str()));
    write!(out, "{}  {key}  {state}", iso(run.began))?;
    if run.cost > 0.0 {
        write!(out, "  {}", dollars(run.cost))?;
    }
    if run.delivery == JobDelivery::Failed {
        write!(out, "  {}", paint.red("not delivered"))?;
    }
    if let Some(session) = &run.session {
        write!(out, "  {}", paint.dim(&printable(session.as_str())))?;
    }
    writeln!(out)?;
    for line in run.text.lines() {
        writeln!(out, "    {}", printable(line))?;
    }
    Ok(())
}
