//! `quipu schedule`: jobs, and a process that runs them.

use std::io::Write as _;
use std::sync::Arc;

use clap::{Args, Subcommand};
use quipu_host::jobs::{DueRun, IMPORT_WATCH, ImportWatch, JobNotice, JobRunner, handlers, keep_dream_job, models_for_jobs};
use quipu_host::{Home, HostNotice, Observer, now};
use quipu_store::{Job, JobKey, JobPut, JobRetry, JobState, Jobs};
use tokio_util::sync::CancellationToken;

use crate::args::{OutArgs, StoreArg};
use crate::exit::Failure;
use crate::home::{home, in_words};
use crate::print::{Paint, ago, note, one_line, printable};
use crate::signals::Signals;

/// Jobs that are listed from one read.
const PAGE: usize = 100;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ScheduleArgs {
    #[command(subcommand)]
    action: Option<ScheduleAction>,
    #[command(flatten)]
    out: OutArgs,
}

#[derive(Debug, Subcommand)]
enum ScheduleAction {
    /// List the jobs and their state. The same as `quipu schedule`.
    List(OutArgs),
    /// Run jobs when they are due, until Ctrl-C. An open terminal and `quipu serve` do this too; `quipu -p` does not. Only one process runs jobs at a time.
    Run {
        /// Run the jobs that are due now, each once, and exit.
        #[arg(long)]
        once: bool,
        #[command(flatten)]
        out: OutArgs,
    },
    /// Add a job. Safe to repeat.
    Add {
        #[command(subcommand)]
        job: NewJobArgs,
    },
    /// Remove a job, even if it is running. Its results are kept.
    Remove {
        /// Its key in the list.
        key: String,
        #[command(flatten)]
        store: StoreArg,
    },
    /// Make a job due now, even if it used up its attempts.
    Retry {
        /// Its key in the list.
        key: String,
        #[command(flatten)]
        store: StoreArg,
    },
}

#[derive(Debug, Subcommand)]
enum NewJobArgs {
    /// Import the sessions of agents, and then everything new that they write. Prints the keys of the jobs, one for each agent.
    ImportWatch {
        /// The agents, by their names in `quipu import`.
        #[arg(value_name = "AGENT", required = true)]
        agents: Vec<String>,
        #[command(flatten)]
        store: StoreArg,
    },
}

pub(crate) async fn run(args: &ScheduleArgs) -> Result<(), Failure> {
    match &args.action {
        None => list(&args.out).await,
        Some(ScheduleAction::List(out)) => list(out).await,
        Some(ScheduleAction::Run { once, out }) => work(*once, out).await,
        Some(ScheduleAction::Add { job: NewJobArgs::ImportWatch { agents, store } }) => {
            add(agents, store).await
        }
        Some(ScheduleAction::Remove { key, store }) => {
            let store = stored(store, key).await?;
            if !store.cancel_job(&key.as_str().into()).await? {
                return Err(unknown(key));
            }
            note(format!("Removed job {key}."));
            Ok(())
        }
        Some(ScheduleAction::Retry { key, store }) => {
            let store = stored(store, key).await?;
            match store.retry_job(&key.as_str().into(), now()).await? {
                JobRetry::Missing => return Err(unknown(key)),
                JobRetry::Running => {
                    note(format!("Job {key} is running, or was when its process ended; nothing changed."));
                }
                JobRetry::Due => note(format!("Job {key} is due now.")),
            }
            Ok(())
        }
    }
}

fn unknown(key: &str) -> Failure {
    Failure::usage(format!("there is no job `{}`; `quipu schedule list` lists them", printable(key)))
}

/// The store that may hold a job.
async fn stored(store: &StoreArg, key: &str) -> Result<Arc<dyn Jobs>, Failure> {
    let found = home(store)?.existing_store().await?;
    found.map(|store| store as Arc<dyn Jobs>).ok_or_else(|| unknown(key))
}

async fn add(agents: &[String], store: &StoreArg) -> Result<(), Failure> {
    let home = home(store)?;
    // All names are right, or nothing is added.
    let jobs = agents.iter().map(|agent| ImportWatch::job(agent));
    let jobs = jobs.collect::<Result<Vec<_>, _>>().map_err(crate::import::in_words)?;
    let store = home.store().await?;
    let mut out = crate::console::stdout();
    for job in jobs {
        let key = job.key.clone();
        let did = match store.put_job(job, now()).await? {
            JobPut::Added => "is added",
            JobPut::Replaced => "is changed and starts over",
            JobPut::Unchanged => "already exists",
        };
        note(format!("Job {key} {did}."));
        writeln!(out, "{key}")?;
    }
    Ok(())
}

async fn list(args: &OutArgs) -> Result<(), Failure> {
    let store = home(&args.store)?.store_to_read()?;
    let mut out = std::io::BufWriter::new(crate::console::stdout());
    let mut after: Option<JobKey> = None;
    while let Some(store) = &store {
        let jobs = store.jobs(after.as_ref(), PAGE).await?;
        let Some(last) = jobs.last() else { break };
        after = Some(last.key.clone());
        for job in &jobs {
            if args.json {
                writeln!(out, "{}", json(job))?;
            } else {
                writeln!(out, "{}", row(job))?;
            }
        }
    }
    if after.is_none() && !args.json {
        note(format!("There are no jobs. `quipu schedule add {IMPORT_WATCH} AGENT` adds one."));
    }
    Ok(out.flush()?)
}

fn json(job: &Job) -> serde_json::Value {
    let (state, owner) = match &job.state {
        JobState::Waiting => ("waiting", None),
        JobState::Running { owner } => ("running", Some(&owner.0)),
        JobState::Failed => ("failed", None),
    };
    serde_json::json!({
        "key": job.key.as_str(), "kind": job.kind, "payload": job.payload, "state": state, "due": job.due,
        "next": job.next, "attempts": job.attempts, "attemptLimit": job.attempt_limit, "error": job.error, "owner": owner,
    })
}

fn row(job: &Job) -> String {
    let paint = Paint::stdout();
    let now = now();
    let state = match &job.state {
        JobState::Waiting if job.next <= now => "due".to_owned(),
        JobState::Waiting => format!("in {} s", (job.next - now).div_euclid(1000) + 1),
        JobState::Running { .. } if job.next <= now => "its process ended".to_owned(),
        JobState::Running { .. } => "running".to_owned(),
        JobState::Failed => format!("failed {}", ago(now, job.next)),
    };
    let mut row = format!("{}  {state}", paint.bold(&printable(job.key.as_str())));
    if let Some(error) = &job.error {
        let attempts = format!("  {} of {} attempts: ", job.attempts, job.attempt_limit);
        row.push_str(&paint.dim(&attempts));
        row.push_str(&one_line(error, 200));
    }
    row
}

/// Tells what a runner does: programs in lines of JSON, people in words.
struct Teller {
    home: Home,
    json: bool,
}

impl Observer for Teller {
    fn notice(&self, notice: HostNotice) {
        self.home.observer().notice(notice);
    }

    fn job(&self, notice: &JobNotice) {
        if self.json {
            // Who does not listen any more changes nothing about the jobs.
            drop(writeln!(crate::console::stdout(), "{}", notice.json()));
        } else {
            note(in_words(&notice.into()));
        }
    }
}

async fn work(once: bool, args: &OutArgs) -> Result<(), Failure> {
    let home = home(&args.store)?;
    let store = home.store().await?;
    if let Some(why) = store.refusal() {
        return Err(why.clone().into());
    }
    let sealer = home.engine(store.clone(), &home.settings())?.sealer().clone();
    let teller = Arc::new(Teller { home: home.clone(), json: args.json });
    let home = home.with_observer(teller.clone());
    keep_dream_job(&home, &store).await?;
    let models = models_for_jobs(&home, store.clone());
    let runner = JobRunner::new(store, handlers(&home), teller.clone(), sealer).with_models(models);
    let stop = CancellationToken::new();
    let mut signals = Signals::new()?;
    let running = async {
        if once {
            return runner.run_due(&stop).await.map(Some);
        }
        note("Running jobs when they are due; press Ctrl-C to stop.");
        runner.run(&stop).await;
        Ok(None)
    };
    let mut running = std::pin::pin!(running);
    let ended = tokio::select! {
        biased;
        _ = signals.next() => {
            stop.cancel();
            // The job that runs is given back first, unless that takes too long.
            tokio::select! {
                _ = signals.next() => {}
                _ = &mut running => {}
            }
            return Err(Failure::silent(signals.exit()));
        }
        ended = &mut running => ended?,
    };
    match ended {
        Some(DueRun::Busy { owner, .. }) => {
            teller.job(&JobNotice::AnotherRunner { owner });
            Ok(())
        }
        Some(DueRun::Ran { failed, .. }) if failed > 0 => Err(Failure::failed(format!(
            "{failed} {} failed; `quipu schedule list` shows why",
            if failed == 1 { "job" } else { "jobs" }
        ))),
        Some(DueRun::Ran { .. }) | None => Ok(()),
    }
}
