//! `quipu schedule add`.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use quipu_host::jobs::{DREAM, IMPORT_NOW, ImportWatch, keep_dream_job, past_work};
use quipu_host::settings::{SettingsFile, set_setting};
use quipu_host::{
    JobTarget, LISTED_TOOLS, PromptWork, ScheduledJob, ScheduledJobError, ScheduledWork, current_dir,
    may_cost, now,
};
use quipu_protocol::UnixMs;
use quipu_schedule::{Recurrence, Schedule, ScheduleError, parse_span, parse_time};
use quipu_store::{JobKey, JobPut, JobRuns, JobState, Jobs};

use crate::args::{OutArgs, StoreArg};
use crate::exit::Failure;
use crate::home::home;
use crate::past::PastOptions;
use crate::print::{note, printable};

/// The longest time until a job is due.
const LONGEST: Duration = Duration::from_secs(36_500 * 24 * 60 * 60);
/// The setting that says when dreams are due.
const SCHEDULE_KEY: &str = "memory.dreaming.schedule";
/// Names that are tried for a job without one.
const NAMES: u32 = 10_000;

#[derive(Debug, Subcommand)]
pub(super) enum NewJobArgs {
    /// Run a prompt in a session of its own. Prints the key of the job.
    Prompt(PromptArgs),
    /// Import what agents wrote, each time that the job is due. Prints the key of the job.
    Import {
        /// The agents, by their names in `quipu import`.
        #[arg(value_name = "AGENT", required = true)]
        agents: Vec<String>,
        #[command(flatten)]
        times: TimeArgs,
        #[command(flatten)]
        out: OutArgs,
    },
    /// Sum up the past, each time that the job is due: of this project, unless another one is named. Prints the key of the job.
    Past {
        #[command(flatten)]
        of: PastOptions,
        #[command(flatten)]
        times: TimeArgs,
    },
    /// Dream at these times: sets `memory.dreaming.schedule`. There is one such job, `dream`, while dreaming is on. Prints its key.
    Dream {
        /// When the clock of this machine shows this: minute, hour, day, month, weekday, such as "0 3 * * *".
        #[arg(long, value_name = "EXPRESSION")]
        cron: String,
        #[command(flatten)]
        out: OutArgs,
    },
    /// Import the sessions of agents, and then everything new that they write. Prints the keys of the jobs, one for each agent.
    ImportWatch {
        /// The agents, by their names in `quipu import`.
        #[arg(value_name = "AGENT", required = true)]
        agents: Vec<String>,
        #[command(flatten)]
        out: OutArgs,
    },
}

/// When a job is due.
#[derive(Debug, Args)]
pub(super) struct TimeArgs {
    /// When the clock shows this: minute, hour, day, month, weekday, such as "0 7 * * 1-5"; or @hourly, @daily, @weekly, @monthly, @yearly.
    #[arg(long, value_name = "EXPRESSION", group = "when")]
    cron: Option<String>,
    /// Again and again: 30m, 2h, 1d.
    #[arg(long, value_name = "SPAN", group = "when")]
    every: Option<String>,
    /// Once: 2026-12-24T18:00, or 18:00 for the next one.
    #[arg(long, value_name = "TIME", group = "when")]
    at: Option<String>,
    /// Once, after this: 20m, 3h.
    #[arg(long = "in", value_name = "SPAN", group = "when")]
    after: Option<String>,
    /// The time zone of --cron and --at, such as Europe/Berlin. Default: that of this machine.
    #[arg(long, value_name = "ZONE")]
    zone: Option<String>,
    /// Begin later by up to this, so that not all jobs begin at once; always by the same time.
    #[arg(long, value_name = "SPAN")]
    jitter: Option<String>,
    /// The key of the job. Default: a number. Another job of this key is replaced; the same one stays as it is.
    #[arg(long, value_name = "KEY")]
    name: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct PromptArgs {
    /// What the model is asked.
    #[arg(value_name = "PROMPT")]
    prompt: String,
    #[command(flatten)]
    times: TimeArgs,
    /// The directory of the session. Default: this one.
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// The model. Default: that of a new session.
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// US dollars that one run may cost. Without it and without --daily-budget the job runs only with a model that costs nothing.
    #[arg(long, value_name = "DOLLARS")]
    budget: Option<f64>,
    /// US dollars that all runs of a day may cost together, until midnight.
    #[arg(long, value_name = "DOLLARS")]
    daily_budget: Option<f64>,
    /// Tokens that all runs of a day may use together, until midnight.
    #[arg(long, value_name = "TOKENS")]
    daily_tokens: Option<u64>,
    /// Turns of one run at most.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    max_turns: Option<u32>,
    /// The built-in tools that the session has, with commas between them.
    #[arg(long, value_name = "TOOLS", value_delimiter = ',')]
    tools: Option<Vec<String>>,
    /// Where the answer goes: to the next start of the terminal, to the desktop, or nowhere but into the log.
    #[arg(long, value_name = "WHERE", value_parser = ["terminal", "desktop", "none"], group = "target")]
    notify: Option<String>,
    /// Give the answer to this shell command, on its stdin.
    #[arg(long, value_name = "COMMAND", group = "target")]
    command: Option<String>,
    /// Post the answer as JSON to this address.
    #[arg(long, value_name = "URL", group = "target")]
    webhook: Option<String>,
    #[command(flatten)]
    out: OutArgs,
}

fn refused(error: ScheduleError) -> Failure {
    Failure::usage(error)
}

impl TimeArgs {
    fn when(&self) -> Result<Recurrence, Failure> {
        let now = now();
        let zone = match &self.zone {
            Some(name) => {
                jiff::tz::TimeZone::get(name).map_err(|_| refused(ScheduleError::Zone(name.clone())))?
            }
            None => jiff::tz::TimeZone::system(),
        };
        let soon = |span: &String| {
            let span = parse_span(span).map_err(refused)?;
            if span > LONGEST {
                return Err(Failure::usage("a span is at most 36500d"));
            }
            Ok::<_, Failure>(i64::try_from(span.as_millis()).unwrap_or(i64::MAX))
        };
        match (&self.cron, &self.every, &self.at, &self.after) {
            (Some(expression), ..) => {
                let name = self.zone.as_deref().or(zone.iana_name()).ok_or_else(|| {
                    Failure::usage("the time zone of this machine has no name; name one with --zone")
                })?;
                Ok(Recurrence::Cron { expression: expression.clone(), zone: name.to_owned() })
            }
            (_, Some(every), ..) => {
                let every_ms = u64::try_from(soon(every)?).unwrap_or(u64::MAX);
                Ok(Recurrence::Every { every_ms, anchor: now })
            }
            (_, _, Some(at), _) => parse_time(at, &zone, now).map(Recurrence::At).map_err(refused),
            (_, _, _, Some(after)) => Ok(Recurrence::At(now.saturating_add(soon(after)?))),
            _ => Err(Failure::usage("say when: --cron, --every, --at or --in")),
        }
    }

    fn jitter_ms(&self) -> Result<u64, Failure> {
        let Some(jitter) = &self.jitter else { return Ok(0) };
        let jitter = parse_span(jitter).map_err(refused)?;
        if jitter > quipu_schedule::JITTER_MOST {
            return Err(Failure::usage("--jitter is at most 1h"));
        }
        Ok(u64::try_from(jitter.as_millis()).unwrap_or(u64::MAX))
    }
}

impl PromptArgs {
    fn target(&self) -> Result<JobTarget, Failure> {
        if let Some(command) = &self.command {
            return Ok(JobTarget::Command(command.clone()));
        }
        if let Some(url) = &self.webhook {
            return JobTarget::webhook(url).map_err(Failure::usage);
        }
        Ok(match self.notify.as_deref() {
            Some("desktop") => JobTarget::Desktop,
            Some("none") => JobTarget::Nobody,
            _ => JobTarget::Terminal,
        })
    }

    fn work(&self) -> Result<PromptWork, Failure> {
        if let Some(unknown) = self.tools.iter().flatten().find(|tool| !LISTED_TOOLS.contains(&tool.as_str()))
        {
            return Err(Failure::usage(format!(
                "--tools: `{}` is not a built-in tool; they are {}",
                printable(unknown),
                LISTED_TOOLS.join(", ")
            )));
        }
        let cwd = match &self.cwd {
            Some(dir) => dir
                .canonicalize()
                .ok()
                .filter(|dir| dir.is_dir())
                .ok_or_else(|| Failure::usage(format!("--cwd: {} is not a directory", dir.display())))?,
            None => current_dir()?,
        };
        let cwd = cwd.to_str().ok_or_else(|| Failure::usage("the path of the directory is not text"))?;
        Ok(PromptWork {
            model: self.model.clone(),
            budget: self.budget,
            daily_budget: self.daily_budget,
            daily_tokens: self.daily_tokens,
            max_turns: self.max_turns,
            tools: self.tools.clone(),
            ..PromptWork::new(&*self.prompt, cwd)
        })
    }
}

pub(super) async fn run(job: &NewJobArgs) -> Result<(), Failure> {
    match job {
        NewJobArgs::ImportWatch { agents, out } => watch(agents, out).await,
        NewJobArgs::Dream { cron, out } => dream(cron, out).await,
        NewJobArgs::Import { agents, times, out } => {
            for agent in agents {
                // The names are checked as for a watch.
                ImportWatch::job(agent).map_err(crate::import::in_words)?;
            }
            let work = ScheduledWork::BuiltIn { name: IMPORT_NOW.to_owned(), arguments: agents.clone() };
            add("import", work, times, JobTarget::Nobody, out).await
        }
        NewJobArgs::Past { of, times } => {
            let scope = of.scope().await?;
            add("past", past_work(&scope), times, JobTarget::Nobody, of.out()).await
        }
        NewJobArgs::Prompt(args) => {
            let work = args.work()?;
            check_model(&work, &args.out.store).await?;
            let (work, target) = (ScheduledWork::Prompt(work), args.target()?);
            add("prompt", work, &args.times, target, &args.out).await
        }
    }
}

async fn add(
    kind: &str,
    work: ScheduledWork,
    times: &TimeArgs,
    target: JobTarget,
    out: &OutArgs,
) -> Result<(), Failure> {
    let mut scheduled = ScheduledJob { when: times.when()?, jitter_ms: times.jitter_ms()?, work, target };
    let refused = |error: ScheduledJobError| Failure::usage(error);
    // Refused before a store is made.
    scheduled.new_job(JobKey::from(times.name.as_deref().unwrap_or(kind)), now()).map_err(refused)?;
    let store = home(&out.store)?.store().await?;
    let mut did = JobPut::Added;
    let (key, due) = match &times.name {
        Some(name) => {
            let key = JobKey::from(name.as_str());
            let there = store.job(&key).await?.and_then(|job| ScheduledJob::of_job(&job));
            if let Some(same) = there.filter(|there| scheduled.is_like(there)) {
                scheduled = same;
            }
            let job = scheduled.new_job(key.clone(), now()).map_err(refused)?;
            let due = job.due.from_now(now());
            match store.put_job(job, now()).await? {
                JobPut::Unchanged => {
                    let words = format!("Job {key} already exists.");
                    return added(&*store, &key, JobPut::Unchanged, &words, out.json).await;
                }
                put => {
                    // What another job of this name had to say is not told as the word of this one.
                    store.end_deliveries(&key).await?;
                    let stands = store.job(&key).await?.map(|job| job.state);
                    if put == JobPut::Replaced && stands == Some(JobState::Paused) {
                        let words = format!("Job {key} is changed. It stays paused.");
                        return added(&*store, &key, put, &words, out.json).await;
                    }
                    did = put;
                }
            }
            (key, due)
        }
        None => new_job(&*store, &scheduled, kind).await?,
    };
    let zone = match &scheduled.when {
        Recurrence::Cron { zone, .. } => Some(zone.as_str()),
        Recurrence::At(_) | Recurrence::Every { .. } => times.zone.as_deref(),
    };
    let words = format!("Job {key} {}. It is due at {}.", in_words(did), super::clock_time(due, zone));
    added(&*store, &key, did, &words, out.json).await
}

const fn in_words(put: JobPut) -> &'static str {
    match put {
        JobPut::Added => "is added",
        JobPut::Replaced => "is changed and starts over",
        JobPut::Unchanged => "already exists",
    }
}

/// Says what became of a job that was to be added: in words beside its key, or as an object of the list with `change`.
async fn added(
    store: &dyn Jobs,
    key: &JobKey,
    put: JobPut,
    words: &str,
    is_json: bool,
) -> Result<(), Failure> {
    if !is_json {
        note(words);
        return Ok(writeln!(crate::console::stdout(), "{key}")?);
    }
    let change = match put {
        JobPut::Added => "added",
        JobPut::Replaced => "changed",
        JobPut::Unchanged => super::UNCHANGED,
    };
    super::report(store, key.as_str(), change, words, true).await
}

/// The times of dreams are a setting, which their job follows.
async fn dream(cron: &str, out: &OutArgs) -> Result<(), Failure> {
    let home = home(&out.store)?;
    let zone = jiff::tz::TimeZone::system();
    let zone = zone.iana_name().unwrap_or("UTC");
    let when = Recurrence::Cron { expression: cron.to_owned(), zone: zone.to_owned() };
    Schedule::of(&when, Duration::ZERO, DREAM).map_err(refused)?;
    crate::dream::places(&home)?;
    let stored =
        set_setting(&home, &SettingsFile::User, SCHEDULE_KEY, cron).map_err(crate::config::failure)?;
    if home.config().dreaming.schedule != cron {
        return Err(Failure::failed(format!(
            "{SCHEDULE_KEY} is set in {}, but a variable of the environment says something else",
            stored.path.display()
        )));
    }
    let store = home.store().await?;
    let key = JobKey::from(DREAM);
    let before = store.job(&key).await?;
    keep_dream_job(&home, &store).await?;
    let job = store.job(&key).await?.ok_or_else(|| super::unknown(DREAM))?;
    let put = match before {
        None => JobPut::Added,
        Some(before) if before.payload == job.payload => JobPut::Unchanged,
        Some(_) => JobPut::Replaced,
    };
    let next = match job.state {
        JobState::Paused => "It stays paused.".to_owned(),
        _ => format!("It is due at {}.", super::clock_time(job.next, Some(zone))),
    };
    added(&*store, &key, put, &format!("Job {key} {}. {next}", in_words(put)), out.json).await
}

/// Refuses a model that the job could not run with. What else a new session would take may change until then.
async fn check_model(work: &PromptWork, store: &StoreArg) -> Result<(), Failure> {
    let home = home(store)?;
    home.sources().models().gather().await;
    let settings = home.settings();
    let (model, is_named) = match &work.model {
        Some(name) => {
            let found =
                settings.find(None, name).map_err(|error| Failure::usage(format!("--model: {error}")))?;
            (Some(found.model), true)
        }
        None => (settings.default_model(), false),
    };
    let Some(model) = model.filter(|model| may_cost(model)) else { return Ok(()) };
    let name = format!("{}/{}", model.provider, model.id);
    if work.may_spend() && model.cost.are_known() {
        return Ok(());
    }
    let why = match model.cost.are_known() {
        true => format!(
            "{name} is not free, and the job has no budget; give it one with --budget or --daily-budget"
        ),
        false => format!("the price of {name} is unknown, so no budget can hold; set `cost` in models.json"),
    };
    if is_named {
        return Err(Failure::usage(why));
    }
    note(format!("As things are, the job will not run: {why}."));
    Ok(())
}

/// Adds it under the first number that is free, also while others do the same.
async fn new_job(
    store: &(impl Jobs + JobRuns),
    scheduled: &ScheduledJob,
    kind: &str,
) -> Result<(JobKey, UnixMs), Failure> {
    for number in 1..=NAMES {
        let key = JobKey::from(format!("{kind}/{number}"));
        if store.job(&key).await?.is_some() {
            continue;
        }
        let job = scheduled.new_job(key.clone(), now()).map_err(Failure::usage)?;
        let due = job.due.from_now(now());
        if store.put_new_job(job, now()).await? {
            store.end_deliveries(&key).await?;
            return Ok((key, due));
        }
    }
    Err(Failure::failed("there are too many jobs; remove some, or name the job with --name"))
}

async fn watch(agents: &[String], out: &OutArgs) -> Result<(), Failure> {
    let home = home(&out.store)?;
    // All names are right, or nothing is added.
    let jobs = agents.iter().map(|agent| ImportWatch::job(agent));
    let jobs = jobs.collect::<Result<Vec<_>, _>>().map_err(crate::import::in_words)?;
    let store = home.store().await?;
    for job in jobs {
        let key = job.key.clone();
        let put = store.put_job(job, now()).await?;
        added(&*store, &key, put, &format!("Job {key} {}.", in_words(put)), out.json).await?;
    }
    Ok(())
}
