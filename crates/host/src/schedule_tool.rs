//! The tool with which a model adds and removes jobs, as far as a person lets it: each change is asked about.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use quipu::{
    FunctionTool, PolicyContext, PolicyError, SessionOptions, ToolOutput, ToolPolicy, ToolRequest,
    ToolVerdict,
};
use quipu_protocol::Scope;
use quipu_schedule::{Recurrence, Schedule, parse_span, parse_time};
use quipu_store::{JobKey, JobPause, JobRuns as _, JobState, Jobs};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::offered_tools::LISTED_TOOLS;
use crate::scheduled_job::{DREAM, JobTarget, PromptWork, ScheduledJob, ScheduledWork};
use crate::{Home, one_line};

/// The name of the tool.
const NAME: &str = "schedule";
/// Jobs that it lists at most.
const LISTED: usize = 50;
/// Characters of a prompt at most: a person is shown all of it.
const PROMPT_MOST: usize = 2_000;
/// The shortest time between two runs of a job.
const SHORTEST: Duration = Duration::from_secs(600);
/// Times of a job that are looked at.
const TIMES: usize = 200;

const DESCRIPTION: &str = "List or change jobs: prompts that run later in sessions of their own. The user is asked about \
    each change. Give one of `cron` (five fields, in the user's time zone), `every` (30m, 2h, 1d) and `at` \
    (2026-12-24T18:00 or 18:00); at least 10 minutes apart. The answer is shown at the next start of the terminal.";

#[derive(Debug, Deserialize)]
struct Arguments {
    action: Action,
    #[serde(default)]
    key: Option<String>,
    #[serde(default)]
    prompt: Option<String>,
    #[serde(default)]
    cron: Option<String>,
    #[serde(default)]
    every: Option<String>,
    #[serde(default)]
    at: Option<String>,
    #[serde(default)]
    budget: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Action {
    List,
    Add,
    Pause,
    Resume,
    Remove,
}

fn parameters() -> Value {
    json!({
        "type": "object",
        "properties": {
            "action": { "type": "string", "enum": ["list", "add", "pause", "resume", "remove"] },
            "key": { "type": "string", "description": "the job's name" },
            "prompt": { "type": "string" },
            "cron": { "type": "string" },
            "every": { "type": "string" },
            "at": { "type": "string" },
            "budget": { "type": "number", "description": "US dollars of one run" },
        },
        "required": ["action"],
    })
}

/// What the sessions of jobs are like: no more able than the one that adds them.
struct JobSession {
    cwd: PathBuf,
    agent: Option<String>,
    model: String,
    tools: Vec<String>,
}

/// Gives a session of this agent the tool, and the step that asks.
pub(crate) fn install(options: &mut SessionOptions, home: &Home, agent: Option<&str>, may_write: bool) {
    let home = home.without_commands();
    let names = options.tools.iter().map(|tool| tool.spec().name.clone());
    let able = Arc::new(JobSession {
        cwd: options.cwd.clone(),
        agent: agent.map(str::to_owned),
        model: format!("{}/{}", options.model.provider, options.model.id),
        tools: names
            .filter(|name| LISTED_TOOLS.contains(&name.as_str()))
            .filter(|name| may_write || !quipu_policy::WRITERS.contains(&name.as_str()))
            .collect(),
    });
    let policy = Arc::new(SchedulePolicy(able.clone()));
    let run = move |arguments: Value| {
        let (home, able) = (home.clone(), able.clone());
        async move {
            match run(&home, &able, arguments).await {
                Ok(text) => ToolOutput::text(text),
                Err(text) => ToolOutput::error(text),
            }
        }
    };
    options.tools.push(Arc::new(FunctionTool::new(NAME, DESCRIPTION, parameters(), run)));
    options.policies.push(policy);
}

impl Arguments {
    fn of(arguments: &Value) -> Result<Self, String> {
        serde_json::from_value(arguments.clone()).map_err(|error| format!("Not changed: {error}."))
    }

    fn key(&self) -> Result<&str, String> {
        let key = self.key.as_deref().map(str::trim).filter(|key| !key.is_empty());
        key.ok_or_else(|| "Not changed: `key` must name the job.".to_owned())
    }

    /// When it is due, as the clocks of this machine show it.
    fn when(&self, now: i64) -> Result<Recurrence, String> {
        let wrong = |error: quipu_schedule::ScheduleError| format!("Not added: {error}.");
        let system = jiff::tz::TimeZone::system();
        match (&self.cron, &self.every, &self.at) {
            (Some(cron), None, None) => {
                let zone =
                    system.iana_name().ok_or("Not added: the time zone of this machine has no name.")?;
                Ok(Recurrence::Cron { expression: cron.clone(), zone: zone.to_owned() })
            }
            (None, Some(every), None) => {
                let every_ms = parse_span(every).map_err(wrong)?.as_millis();
                Ok(Recurrence::Every { every_ms: u64::try_from(every_ms).unwrap_or(u64::MAX), anchor: now })
            }
            (None, None, Some(at)) => parse_time(at, &system, now).map(Recurrence::At).map_err(wrong),
            _ => Err("Not added: give one of `cron`, `every` and `at`.".to_owned()),
        }
    }

    /// Why it cannot be added, where that is known before a person is asked.
    fn refusal(&self, now: i64) -> Option<String> {
        let prompt = self.prompt.as_deref().unwrap_or_default();
        if prompt.chars().count() > PROMPT_MOST {
            return Some(format!("Not added: the prompt has more than {PROMPT_MOST} characters."));
        }
        let when = match self.when(now) {
            Ok(when) => when,
            Err(why) => return Some(why),
        };
        let schedule = match Schedule::of(&when, Duration::ZERO, "") {
            Ok(schedule) => schedule,
            Err(error) => return Some(format!("Not added: {error}.")),
        };
        let mut last = schedule.next_after(now)?;
        for _ in 0..TIMES {
            let next = schedule.next_after(last)?;
            if u128::from((next - last).unsigned_abs()) < SHORTEST.as_millis() {
                return Some("Not added: its times must be at least 10 minutes apart.".to_owned());
            }
            last = next;
        }
        None
    }

    fn times(&self) -> String {
        let of = |word: &str, value: &Option<String>| value.as_ref().map(|value| format!("{word} {value}"));
        let times = [of("cron", &self.cron), of("every", &self.every), of("at", &self.at)];
        times.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

async fn run(home: &Home, able: &JobSession, arguments: Value) -> Result<String, String> {
    let arguments = Arguments::of(&arguments)?;
    let now = crate::now();
    let store = home.store().await.map_err(|failure| failure.to_string())?;
    let jobs: &dyn Jobs = &*store;
    let failed = |error: quipu_store::StoreError| format!("Not changed: {error}.");
    match arguments.action {
        Action::List => {
            let found = jobs.jobs(None, LISTED).await.map_err(failed)?;
            let rows = found.iter().map(|job| {
                let state = match job.state {
                    JobState::Waiting => "waiting",
                    JobState::Running { .. } => "running",
                    JobState::Failed => "failed",
                    JobState::Paused => "paused",
                };
                let times = ScheduledJob::of_job(job).map_or(Value::Null, |job| json!(job.when));
                json!({ "key": job.key.as_str(), "kind": job.kind, "state": state, "next": job.next, "when": times })
                    .to_string()
            });
            let rows: Vec<String> = rows.collect();
            Ok(if rows.is_empty() { "There are no jobs.".to_owned() } else { rows.join("\n") })
        }
        Action::Add => {
            let key = arguments.key()?;
            if let Some(why) = arguments.refusal(now) {
                return Err(why);
            }
            let prompt = arguments.prompt.clone().unwrap_or_default();
            let work = PromptWork {
                agent: able.agent.clone(),
                model: Some(able.model.clone()),
                budget: arguments.budget,
                tools: Some(able.tools.clone()),
                by_model: true,
                ..PromptWork::new(prompt, able.cwd.to_string_lossy())
            };
            let scheduled = ScheduledJob {
                when: arguments.when(now)?,
                jitter_ms: 0,
                work: ScheduledWork::Prompt(work),
                target: JobTarget::Terminal,
            };
            let job =
                scheduled.new_job(JobKey::from(key), now).map_err(|error| format!("Not added: {error}."))?;
            let due = job.due.from_now(now);
            if !jobs.put_new_job(job, now).await.map_err(failed)? {
                return Err(format!("Not added: there is a job `{key}` already."));
            }
            store.end_deliveries(&key.into()).await.map_err(failed)?;
            Ok(format!("The job `{key}` is added. It is due first at {}.", crate::iso(due)))
        }
        Action::Remove if arguments.key()? == DREAM && is_dreaming(home) => Err(
            "Not changed: dreams are a setting of the user (memory.dreaming.enabled); the job can be paused."
                .to_owned(),
        ),
        Action::Remove => match jobs.cancel_job(&arguments.key()?.into()).await.map_err(failed)? {
            true => Ok("Removed.".to_owned()),
            false => Err("Not changed: there is no such job.".to_owned()),
        },
        Action::Pause => paused(jobs.pause_job(&arguments.key()?.into()).await.map_err(failed)?, "Paused."),
        Action::Resume => {
            let key = JobKey::from(arguments.key()?);
            let job = jobs.job(&key).await.map_err(failed)?;
            let next = job.and_then(|job| ScheduledJob::of_job(&job)?.next(key.as_str(), now).ok().flatten());
            let next = next.unwrap_or(quipu_store::JobTime::After(Duration::ZERO));
            paused(jobs.resume_job(&key, next, now).await.map_err(failed)?, "Resumed.")
        }
    }
}

fn is_dreaming(home: &Home) -> bool {
    // What is not known is not removed.
    crate::dreams::dreaming_places(home).map_or(true, |places| !places.is_empty())
}

fn paused(done: JobPause, text: &str) -> Result<String, String> {
    match done {
        JobPause::Changed => Ok(text.to_owned()),
        JobPause::Unchanged => Ok("Nothing changed: it was so already.".to_owned()),
        JobPause::Missing => Err("Not changed: there is no such job.".to_owned()),
    }
}

/// Asks about each change, each time. Without a person nothing is changed.
struct SchedulePolicy(Arc<JobSession>);

impl SchedulePolicy {
    fn verdict(&self, arguments: &Value) -> ToolVerdict {
        // What cannot be read changes nothing: the tool says so.
        let Ok(arguments) = Arguments::of(arguments) else {
            return ToolVerdict::Allow { grants: Vec::new() };
        };
        let key = one_line(arguments.key.as_deref().unwrap_or_default(), 100);
        let question = match arguments.action {
            Action::List => return ToolVerdict::Allow { grants: Vec::new() },
            Action::Add => {
                if let Some(reason) = arguments.refusal(crate::now()) {
                    return ToolVerdict::Deny { reason };
                }
                // All of it, also what one line spells in more columns.
                let prompt = one_line(arguments.prompt.as_deref().unwrap_or_default(), 4 * PROMPT_MOST);
                let budget = match arguments.budget {
                    Some(budget) => format!(", for up to ${budget} each time"),
                    None => ", without a budget: only with a model that costs nothing".to_owned(),
                };
                let JobSession { agent: _, cwd, model, tools } = &*self.0;
                let tools = if tools.is_empty() { "no tools".to_owned() } else { tools.join(", ") };
                let (times, cwd) = (one_line(&arguments.times(), 100), cwd.display());
                format!(
                    "Allow adding the job {key} ({times}) that runs in {cwd} with {model} and {tools}{budget}: \"{prompt}\"?"
                )
            }
            Action::Pause => format!("Allow pausing the job {key}?"),
            Action::Resume => format!("Allow resuming the job {key}?"),
            Action::Remove => format!("Allow removing the job {key}?"),
        };
        ToolVerdict::Ask { question, scopes: vec![Scope::Once] }
    }
}

impl ToolPolicy for SchedulePolicy {
    fn name(&self) -> &str {
        NAME
    }

    fn decide<'a>(
        &'a self,
        request: &'a ToolRequest<'a>,
        _: &'a PolicyContext,
    ) -> BoxFuture<'a, Result<ToolVerdict, PolicyError>> {
        let verdict = match request.call.name.as_str() {
            NAME => self.verdict(&request.call.arguments.value()),
            _ => ToolVerdict::NoOpinion,
        };
        Box::pin(std::future::ready(Ok(verdict)))
    }
}
