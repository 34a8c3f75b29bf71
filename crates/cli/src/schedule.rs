//! `quipu schedule`: jobs, and a process that runs them.

mod add;
mod log;

pub(crate) use log::told;

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Subcommand};
use quipu::{AccountBudget, AccountUse};
use quipu_host::dreams::dreaming_places;
use quipu_host::jobs::{
    DREAM, DueRun, JobNotice, JobRunner, handlers, keep_dream_job, keep_dream_jobs, models_for_jobs,
};
use quipu_host::units::UnitPurpose;
use quipu_host::{Home, HostNotice, Observer, SCHEDULED, ScheduledJob, ScheduledWork, now};
use quipu_protocol::BudgetUnit;
use quipu_schedule::{Recurrence, spell_span};
use quipu_store::{Graph, Job, JobKey, JobPause, JobRetry, JobState, JobTime, Jobs};
use tokio_util::sync::CancellationToken;

use crate::args::{OutArgs, StoreArg};
use crate::exit::Failure;
use crate::home::{home, in_words};
use crate::print::{Paint, ago, note, one_line, printable};
use crate::signals::Signals;
use crate::units::{UnitRequest, install, uninstall};

/// The change of a job that stays as it was.
const UNCHANGED: &str = "unchanged";
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
    Pause(KeyArgs),
    /// End the pause of a job: it runs at its next time.
    Resume(KeyArgs),
    /// Write a systemd timer of yours, or a launchd agent, that runs the jobs that are due each minute. Shows the files and asks first.
    Install(InstallArgs),
    /// Remove what `install` wrote.
    Uninstall(InstallArgs),
    /// Remove a job, even if it is running. Its results are kept.
    #[command(visible_alias = "rm")]
    Remove(KeyArgs),
    /// Make a job due now, even if it used up its attempts.
    Retry(KeyArgs),
}

#[derive(Debug, Args)]
struct InstallArgs {
    /// Do it without asking.
    #[arg(long, short = 'y')]
    yes: bool,
    #[command(flatten)]
    out: OutArgs,
}

impl InstallArgs {
    fn request<'a>(&self, home: &'a Home) -> UnitRequest<'a> {
        UnitRequest { home, purpose: UnitPurpose::Schedule, yes: self.yes, json: self.out.json }
    }
}

#[derive(Debug, Args)]
struct KeyArgs {
    /// Its key in the list.
    key: String,
    #[command(flatten)]
    out: OutArgs,
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
        Some(ScheduleAction::Install(args)) => {
            let words = ["schedule", "run", "--once"].map(PathBuf::from).to_vec();
            install(&args.request(&home(&args.out.store)?), words)
        }
        Some(ScheduleAction::Uninstall(args)) => uninstall(&args.request(&home(&args.out.store)?)),
        Some(ScheduleAction::Pause(args)) => pause(args).await,
        Some(ScheduleAction::Resume(args)) => resume(args).await,
        Some(ScheduleAction::Remove(args)) => remove(args).await,
        Some(ScheduleAction::Retry(args)) => retry(args).await,
    }
}

async fn pause(KeyArgs { key, out }: &KeyArgs) -> Result<(), Failure> {
    let store = stored(&out.store, key).await?;
    let (change, words) = match store.pause_job(&key.as_str().into()).await? {
        JobPause::Missing => return Err(unknown(key)),
        JobPause::Changed => {
            ("paused", format!("Paused job {key}; `quipu schedule resume {key}` ends that."))
        }
        JobPause::Unchanged => (UNCHANGED, format!("Job {key} is paused already.")),
    };
    report(&*store, key, change, &words, out.json).await
}

async fn resume(KeyArgs { key, out }: &KeyArgs) -> Result<(), Failure> {
    let store = stored(&out.store, key).await?;
    let job = store.job(&key.as_str().into()).await?.ok_or_else(|| unknown(key))?;
    let next = match ScheduledJob::of_job(&job) {
        Some(scheduled) => scheduled.next(key, now()).map_err(Failure::failed)?,
        None => None,
    };
    // A time that passed meanwhile is made up for.
    let next = next.unwrap_or(JobTime::After(std::time::Duration::ZERO));
    let (change, words) = match store.resume_job(&job.key, next, now()).await? {
        JobPause::Missing => return Err(unknown(key)),
        JobPause::Changed => ("resumed", format!("Job {key} runs again at its next time.")),
        JobPause::Unchanged => (UNCHANGED, format!("Job {key} is not paused.")),
    };
    report(&*store, key, change, &words, out.json).await
}

async fn remove(KeyArgs { key, out }: &KeyArgs) -> Result<(), Failure> {
    let store = stored(&out.store, key).await?;
    if key == DREAM && !dreaming_places(&home(&out.store)?)?.is_empty() {
        return Err(Failure::usage(format!(
            "dreams are switched on, so their job stays; `quipu config set memory.dreaming.enabled false` ends them, `quipu schedule pause {DREAM}` pauses them"
        )));
    }
    let job = store.job(&key.as_str().into()).await?.ok_or_else(|| unknown(key))?;
    if !store.cancel_job(&job.key).await? {
        return Err(unknown(key));
    }
    show(&job, "removed", &format!("Removed job {key}."), out.json)
}

async fn retry(KeyArgs { key, out }: &KeyArgs) -> Result<(), Failure> {
    let store = stored(&out.store, key).await?;
    let (change, words) = match store.retry_job(&key.as_str().into(), now()).await? {
        JobRetry::Missing => return Err(unknown(key)),
        JobRetry::Paused => return Err(paused(key)),
        JobRetry::Running => {
            (UNCHANGED, format!("Job {key} is running, or was when its process ended; nothing changed."))
        }
        JobRetry::Due => ("due", format!("Job {key} is due now.")),
    };
    report(&*store, key, change, &words, out.json).await
}

/// Says what became of a job, which is stored: in words, or as an object of the list with `change`.
async fn report(
    store: &dyn Jobs,
    key: &str,
    change: &str,
    words: &str,
    is_json: bool,
) -> Result<(), Failure> {
    match store.job(&key.into()).await? {
        Some(job) => show(&job, change, words, is_json),
        // Somebody removed it meanwhile.
        None => Err(unknown(key)),
    }
}

fn show(job: &Job, change: &str, words: &str, is_json: bool) -> Result<(), Failure> {
    if !is_json {
        note(words);
        return Ok(());
    }
    let mut object = json(job);
    object["change"] = change.into();
    Ok(writeln!(crate::console::stdout(), "{object}")?)
}

fn unknown(key: &str) -> Failure {
    Failure::usage(format!("there is no job `{}`; `quipu schedule list` lists them", printable(key)))
}

pub(crate) fn paused(key: &str) -> Failure {
    let key = printable(key);
    Failure::usage(format!("job {key} is paused; `quipu schedule resume {key}` ends that"))
}

/// The store that may hold a job.
async fn stored(store: &StoreArg, key: &str) -> Result<Arc<dyn Jobs>, Failure> {
    let home = home(store)?;
    let found = home.existing_store().await?.ok_or_else(|| unknown(key))?;
    if key == DREAM {
        keep_dream_job(&home, &found).await?;
    }
    Ok(found as Arc<dyn Jobs>)
}

async fn list(args: &OutArgs) -> Result<(), Failure> {
    let home = home(&args.store)?;
    let store = home.store_to_read()?;
    if let Some(store) = &store {
        // Where dreams are on, there is their job. What cannot be written is listed as it is.
        drop(keep_dream_job(&home, store).await);
    }
    let mut out = std::io::BufWriter::new(crate::console::stdout());
    let mut after: Option<JobKey> = None;
    while let Some(store) = &store {
        let jobs = store.jobs(after.as_ref(), PAGE).await?;
        let Some(last) = jobs.last() else { break };
        after = Some(last.key.clone());
        for job in &jobs {
            let used = used_today(&**store as &dyn Graph, job).await?;
            if args.json {
                let mut object = json(job);
                if let Some((_, AccountUse { dollars, tokens })) = used {
                    object["today"] = serde_json::json!({ "dollars": dollars, "tokens": tokens });
                }
                writeln!(out, "{object}")?;
            } else {
                let used = used.map_or_else(String::new, |(budget, used)| {
                    Paint::stdout().dim(&format!("  {} today", shares(&budget, used)))
                });
                writeln!(out, "{}{used}", row(job))?;
            }
        }
    }
    if after.is_none() && !args.json {
        note("There are no jobs. `quipu schedule add prompt --cron \"0 7 * * *\" PROMPT` adds one.");
    }
    Ok(out.flush()?)
}

/// What a job may use in a day, and what it used today.
async fn used_today(store: &dyn Graph, job: &Job) -> Result<Option<(AccountBudget, AccountUse)>, Failure> {
    let Some(ScheduledWork::Prompt(work)) = ScheduledJob::of_job(job).map(|scheduled| scheduled.work) else {
        return Ok(None);
    };
    let Some(budget) = work.account(job.key.as_str()) else { return Ok(None) };
    let used = quipu::account_use(store, &quipu::SystemClock, &budget).await?;
    Ok(Some((budget, used)))
}

/// What was used of a budget, in words.
pub(crate) fn shares(budget: &AccountBudget, used: AccountUse) -> String {
    let dollars = budget.dollars.map(|most| BudgetUnit::Dollars.share(used.dollars, most));
    #[expect(clippy::cast_precision_loss, reason = "shown without fractions")]
    let tokens = budget.tokens.map(|most| BudgetUnit::Tokens.share(used.tokens as f64, most as f64));
    dollars.into_iter().chain(tokens).collect::<Vec<_>>().join(", ")
}

fn json(job: &Job) -> serde_json::Value {
    let (state, owner) = match &job.state {
        JobState::Waiting => ("waiting", None),
        JobState::Running { owner } => ("running", Some(&owner.0)),
        JobState::Failed => ("failed", None),
        JobState::Paused => ("paused", None),
    };
    // The address of a webhook may be a secret.
    let payload = match job.kind == SCHEDULED || job.kind == DREAM {
        // One that this version cannot read may hold one as well.
        true => ScheduledJob::of_job(job).map(|scheduled| serde_json::json!(scheduled.shown()).to_string()),
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
    if let Some(scheduled) = ScheduledJob::of_job(job).map(ScheduledJob::shown) {
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
    let running = async {
        if !matches!(scope, RunScope::Always) {
            return Ok(Some(runner.run_due(&stop).await?));
        }
        note("Running jobs when they are due; press Ctrl-C to stop.");
        tokio::select! {
            () = runner.run(&stop) => {}
            () = keep_dream_jobs(&home) => {}
        }
        Ok(None)
    };
    // The jobs that run are given back first, unless that takes too long.
    let ended = Signals::new()?.ending(&stop, running).await?;
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
