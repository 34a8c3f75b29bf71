//! `quipu schedule`: jobs, and a process that runs them.

mod add;
mod install;
mod log;

pub(crate) use log::told;

use std::io::Write as _;
use std::sync::Arc;

use clap::{Args, Subcommand};
use quipu_host::jobs::{DueRun, JobNotice, JobRunner, handlers, keep_dream_job, models_for_jobs};
use quipu_host::{Home, HostNotice, Observer, SCHEDULED, ScheduledJob, ScheduledWork, now};
use quipu_schedule::{Recurrence, spell_span};
use quipu_store::{Job, JobKey, JobPause, JobRetry, JobState, JobTime, Jobs};
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
    /// Show what jobs did: each run with its session, cost and answer.
    Log(log::LogArgs),
    /// Run jobs when they are due, until Ctrl-C. An open terminal and `quipu serve` do this too; `quipu -p` does not. Only one process runs jobs at a time.
    Run {
        /// Make this job due now, run the jobs that are due, and exit.
        key: Option<String>,
        /// Run the jobs that are due now, each once, and exit.
        #[arg(long)]
        once: bool,
        #[command(flatten)]
        out: OutArgs,
    },
    /// Add a job. With a name, and without --in, repeating it changes nothing.
    Add {
        #[command(subcommand)]
        job: Box<add::NewJobArgs>,
    },
    /// Pause a job: it stays, and does not run. A run that is under way is stopped.
    Pause {
        /// Its key in the list.
        key: String,
        #[command(flatten)]
        store: StoreArg,
    },
    /// End the pause of a job: it runs at its next time.
    Resume {
        /// Its key in the list.
        key: String,
        #[command(flatten)]
        store: StoreArg,
    },
    /// Write a systemd timer of yours, or a launchd agent, that runs the jobs that are due each minute. Shows the files and asks first.
    Install(install::InstallArgs),
    /// Remove what `install` wrote.
    Uninstall(install::InstallArgs),
    /// Remove a job, even if it is running. Its results are kept.
    #[command(visible_alias = "rm")]
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

pub(crate) async fn run(args: &ScheduleArgs) -> Result<(), Failure> {
    match &args.action {
        None => list(&args.out).await,
        Some(ScheduleAction::List(out)) => list(out).await,
        Some(ScheduleAction::Log(args)) => log::run(args).await,
        Some(ScheduleAction::Run { key: Some(key), out, .. }) => {
            let store = stored(&out.store, key).await?;
            match store.retry_job(&key.as_str().into(), now()).await? {
                JobRetry::Due => {}
                JobRetry::Missing => return Err(unknown(key)),
                JobRetry::Paused => return Err(paused(key)),
                JobRetry::Running => {
                    return Err(Failure::failed(format!(
                        "job {} is running, or was when its process ended; it is not run a second time",
                        printable(key)
                    )));
                }
            }
            drop(store);
            work(RunScope::Key(key.clone()), out).await
        }
        Some(ScheduleAction::Run { key: None, once: true, out }) => work(RunScope::Due, out).await,
        Some(ScheduleAction::Run { key: None, once: false, out }) => work(RunScope::Always, out).await,
        Some(ScheduleAction::Add { job }) => add::run(job).await,
        Some(ScheduleAction::Install(args)) => install::install(args).await,
        Some(ScheduleAction::Uninstall(args)) => install::uninstall(args).await,
        Some(ScheduleAction::Pause { key, store }) => {
            let store = stored(store, key).await?;
            match store.pause_job(&key.as_str().into()).await? {
                JobPause::Missing => return Err(unknown(key)),
                JobPause::Changed => {
                    note(format!("Paused job {key}; `quipu schedule resume {key}` ends that."));
                }
                JobPause::Unchanged => note(format!("Job {key} is paused already.")),
            }
            Ok(())
        }
        Some(ScheduleAction::Resume { key, store }) => {
            let store = stored(store, key).await?;
            let job = store.job(&key.as_str().into()).await?.ok_or_else(|| unknown(key))?;
            let next = match scheduled(&job) {
                Some(scheduled) => scheduled.next(key, now()).map_err(Failure::failed)?,
                None => None,
            };
            // A time that passed meanwhile is made up for.
            let next = next.unwrap_or(JobTime::After(std::time::Duration::ZERO));
            match store.resume_job(&job.key, next, now()).await? {
                JobPause::Missing => return Err(unknown(key)),
                JobPause::Changed => note(format!("Job {key} runs again at its next time.")),
                JobPause::Unchanged => note(format!("Job {key} is not paused.")),
            }
            Ok(())
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
                JobRetry::Paused => return Err(paused(key)),
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

fn paused(key: &str) -> Failure {
    let key = printable(key);
    Failure::usage(format!("job {key} is paused; `quipu schedule resume {key}` ends that"))
}

/// The store that may hold a job.
async fn stored(store: &StoreArg, key: &str) -> Result<Arc<dyn Jobs>, Failure> {
    let found = home(store)?.existing_store().await?;
    found.map(|store| store as Arc<dyn Jobs>).ok_or_else(|| unknown(key))
}

/// What a job with a schedule says of itself.
fn scheduled(job: &Job) -> Option<ScheduledJob> {
    (job.kind == SCHEDULED).then(|| ScheduledJob::of_payload(&job.payload).ok()).flatten()
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
        note("There are no jobs. `quipu schedule add prompt --cron \"0 7 * * *\" PROMPT` adds one.");
    }
    Ok(out.flush()?)
}

fn json(job: &Job) -> serde_json::Value {
    let (state, owner) = match &job.state {
        JobState::Waiting => ("waiting", None),
        JobState::Running { owner } => ("running", Some(&owner.0)),
        JobState::Failed => ("failed", None),
        JobState::Paused => ("paused", None),
    };
    // The address of a webhook may be a secret.
    let payload = match job.kind == SCHEDULED {
        // One that this version cannot read may hold one as well.
        true => scheduled(job).map(|scheduled| serde_json::json!(scheduled.shown()).to_string()),
        false => Some(job.payload.clone()),
    };
    serde_json::json!({
        "key": job.key.as_str(), "kind": job.kind, "payload": payload, "state": state, "due": job.due,
        "next": job.next, "attempts": job.attempts, "attemptLimit": job.attempt_limit, "error": job.error, "owner": owner,
    })
}

fn row(job: &Job) -> String {
    let paint = Paint::stdout();
    let now = now();
    let state = match &job.state {
        JobState::Waiting if job.next <= now => "due".to_owned(),
        JobState::Waiting => {
            let seconds = u64::try_from((job.next - now).div_euclid(1000) + 1).unwrap_or(0);
            format!("in {}", spell_span(std::time::Duration::from_secs(seconds)))
        }
        JobState::Paused => "paused".to_owned(),
        JobState::Running { .. } if job.next <= now => "its process ended".to_owned(),
        JobState::Running { .. } => "running".to_owned(),
        JobState::Failed => format!("failed {}", ago(now, job.next)),
    };
    let mut row = format!("{}  {state}", paint.bold(&printable(job.key.as_str())));
    if let Some(scheduled) = scheduled(job).map(ScheduledJob::shown) {
        row.push_str(&paint.dim(&format!("  {}  ", one_line(&times(&scheduled.when), 80))));
        row.push_str(&one_line(&work_of(&scheduled.work), 100));
    }
    if let Some(error) = &job.error {
        let attempts = match job.attempt_limit {
            u32::MAX => format!("  {} attempts: ", job.attempts),
            limit => format!("  {} of {limit} attempts: ", job.attempts),
        };
        row.push_str(&paint.dim(&attempts));
        row.push_str(&one_line(error, 200));
    }
    row
}

/// When a job is due, in a few words.
fn times(when: &Recurrence) -> String {
    match when {
        Recurrence::At(at) => format!("at {}", clock_time(*at, None)),
        Recurrence::Every { every_ms, .. } => {
            format!("every {}", spell_span(std::time::Duration::from_millis(*every_ms)))
        }
        Recurrence::Cron { expression, zone } => format!("{expression} ({zone})"),
    }
}

/// A time as clocks show it: in a zone, or in that of this machine.
fn clock_time(at: i64, zone: Option<&str>) -> String {
    let zone = match zone {
        Some(name) => jiff::tz::TimeZone::get(name).ok(),
        None => Some(jiff::tz::TimeZone::system()),
    };
    match (jiff::Timestamp::from_millisecond(at), zone) {
        (Ok(at), Some(zone)) => at.to_zoned(zone).strftime("%Y-%m-%d %H:%M:%S %Z").to_string(),
        _ => quipu_host::iso(at),
    }
}

/// What a job does, in a few words.
fn work_of(work: &ScheduledWork) -> String {
    match work {
        ScheduledWork::Prompt(work) => work.prompt.clone(),
        ScheduledWork::BuiltIn { name, arguments } => {
            [std::slice::from_ref(name), arguments.as_slice()].concat().join(" ")
        }
    }
}

/// Tells what a runner does: programs in lines of JSON, people in words.
struct Teller {
    home: Home,
    json: bool,
    /// The job that is to be run, until it is.
    wanted: std::sync::Mutex<Option<JobKey>>,
}

/// What is run.
enum RunScope {
    /// Jobs when they are due, until a signal.
    Always,
    /// Those that are due now.
    Due,
    /// The same, and this one is among them.
    Key(String),
}

impl Observer for Teller {
    fn notice(&self, notice: HostNotice) {
        self.home.observer().notice(notice);
    }

    fn job(&self, notice: &JobNotice) {
        if let JobNotice::Began { key, .. } = notice {
            let mut wanted = self.wanted.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            wanted.take_if(|wanted| *wanted == *key);
        }
        if self.json {
            // Who does not listen any more changes nothing about the jobs.
            drop(writeln!(crate::console::stdout(), "{}", notice.json()));
        } else {
            note(in_words(&notice.into()));
        }
    }
}

async fn work(scope: RunScope, args: &OutArgs) -> Result<(), Failure> {
    let home = home(&args.store)?;
    let store = home.store().await?;
    if let Some(why) = store.refusal() {
        return Err(why.clone().into());
    }
    let sealer = home.engine(store.clone(), &home.settings())?.sealer().clone();
    let wanted = match &scope {
        RunScope::Key(key) => Some(JobKey::from(key.as_str())),
        RunScope::Always | RunScope::Due => None,
    };
    let teller = Arc::new(Teller { home: home.clone(), json: args.json, wanted: wanted.into() });
    let home = home.with_observer(teller.clone());
    keep_dream_job(&home, &store).await?;
    let models = models_for_jobs(&home, store.clone());
    let runner = JobRunner::new(store, handlers(&home), teller.clone(), sealer).with_models(models);
    let stop = CancellationToken::new();
    let mut signals = Signals::new()?;
    let running = async {
        if !matches!(scope, RunScope::Always) {
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
    if let Some(DueRun::Busy { owner, .. }) = &ended {
        teller.job(&JobNotice::AnotherRunner { owner: owner.clone() });
    }
    let left = teller.wanted.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
    if let Some(key) = left {
        let key = printable(key.as_str());
        return Err(Failure::failed(match ended {
            Some(DueRun::Busy { .. }) => {
                format!("job {key} was not run here; it is due now, and the process that runs jobs takes it")
            }
            _ => format!("job {key} was not run; `quipu schedule list` shows how it stands"),
        }));
    }
    match ended {
        Some(DueRun::Ran { failed, .. }) if failed > 0 => Err(Failure::failed(format!(
            "{failed} {} failed; `quipu schedule list` shows why",
            if failed == 1 { "job" } else { "jobs" }
        ))),
        Some(DueRun::Ran { .. } | DueRun::Busy { .. }) | None => Ok(()),
    }
}
