//! A job with a schedule and something to do: what is stored of it, and what it may be.

use std::fmt;
use std::time::Duration;

use quipu::AccountBudget;
use quipu_protocol::{BudgetHolder, UnixMs};
use quipu_providers::net::{Url, is_loopback};
use quipu_schedule::{Recurrence, Schedule, ScheduleError};
use quipu_store::{Job, JobKey, JobTime, NewJob};
use serde::{Deserialize, Serialize};

/// The kind of such jobs.
pub const SCHEDULED: &str = "scheduled";
/// The kind of the job that dreams, its key and the name of its work: there is one for all memories.
pub const DREAM: &str = "dream";
/// The name of the work that builds a past.
pub const PAST_BUILD: &str = "past";

/// The work of a job that builds a past.
#[must_use]
pub fn past_work(scope: &quipu_past::PastScope) -> ScheduledWork {
    let scope = serde_json::json!(scope).to_string();
    ScheduledWork::BuiltIn { name: PAST_BUILD.to_owned(), arguments: vec![scope] }
}
/// Bytes of the prompt of a job at most.
pub const PROMPT_LIMIT: usize = 32 << 10;
/// Attempts of a job that is due once: it is tried again three times.
const ATTEMPTS_OF_ONE: u32 = 4;

/// A job with a schedule: what is stored of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScheduledJob {
    /// When it is due.
    pub when: Recurrence,
    /// By how many milliseconds it may be later, so that not all jobs begin at once.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub jitter_ms: u64,
    /// What is done.
    pub work: ScheduledWork,
    /// Where its answer goes.
    #[serde(default)]
    pub target: JobTarget,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What a job does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ScheduledWork {
    /// A prompt in a session of its own.
    Prompt(PromptWork),
    /// Work of this program.
    BuiltIn {
        /// Its name.
        name: String,
        /// What it is given.
        #[serde(default)]
        arguments: Vec<String>,
    },
}

/// A prompt, and the session that it is said in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PromptWork {
    /// What is said.
    pub prompt: String,
    /// The directory of the session.
    pub cwd: String,
    /// The agent whose tools and budget count, by its id in `agents.byId`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The model; that of a new session where none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// US dollars that one run may cost. Without it and without one for a day nothing runs that has a price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<f64>,
    /// US dollars that all runs of a day may cost together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daily_budget: Option<f64>,
    /// Tokens that all runs of a day may use together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daily_tokens: Option<u64>,
    /// Turns of one run at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<u32>,
    /// The built-in tools that it has; those of the settings where none are named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Whether a model asked for the job, and not a person.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_model: bool,
}

impl PromptWork {
    /// Of a person, without limits of its own: only models that cost nothing answer it.
    pub fn new(prompt: impl Into<String>, cwd: impl Into<String>) -> Self {
        Self {
            prompt: prompt.into(),
            cwd: cwd.into(),
            agent: None,
            model: None,
            budget: None,
            daily_budget: None,
            daily_tokens: None,
            max_turns: None,
            tools: None,
            by_model: false,
        }
    }

    /// What all runs of a day may use, for the job of this key; `None` where they have no limit.
    #[must_use]
    pub fn account(&self, key: &str) -> Option<AccountBudget> {
        let is_limited = self.daily_budget.is_some() || self.daily_tokens.is_some();
        let (holder, dollars, tokens) = (BudgetHolder::Job, self.daily_budget, self.daily_tokens);
        is_limited.then(|| AccountBudget { holder, name: key.into(), dollars, tokens })
    }

    /// Whether it may call models that have a price.
    #[must_use]
    pub const fn may_spend(&self) -> bool {
        self.budget.is_some() || self.daily_budget.is_some()
    }
}

/// Where the answer of a run goes.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum JobTarget {
    /// Nobody: it stands in the log.
    Nobody,
    /// Whoever starts a terminal next.
    #[default]
    Terminal,
    /// The desktop, in a notification.
    Desktop,
    /// A command that reads it.
    Command(String),
    /// A server that it is posted to. The address may hold a secret: it is not shown.
    Webhook(String),
}

impl JobTarget {
    /// Its word in lists and logs.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Nobody => "none",
            Self::Terminal => "terminal",
            Self::Desktop => "desktop",
            Self::Command(_) => "command",
            Self::Webhook(_) => "webhook",
        }
    }

    /// Whether an address can be one of a webhook.
    ///
    /// # Errors
    /// `Webhook`.
    pub fn webhook(url: &str) -> Result<Self, ScheduledJobError> {
        checked_url(url).map(|_| Self::Webhook(url.to_owned()))
    }
}

impl fmt::Debug for JobTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the address.
        f.write_str(self.word())
    }
}

/// Why there can be no such job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScheduledJobError {
    /// Its times are none.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// Its only time is over.
    #[error("the time is in the past")]
    Past,
    /// It has no prompt.
    #[error("the prompt is empty")]
    EmptyPrompt,
    /// Its prompt is too long.
    #[error("the prompt has {bytes} bytes; the limit is {PROMPT_LIMIT}")]
    LongPrompt {
        /// Its bytes.
        bytes: usize,
    },
    /// Its budget is none.
    #[error("a budget is a number of US dollars above 0")]
    Budget,
    /// Its budget of tokens is none.
    #[error("a budget of tokens is a whole number above 0")]
    TokenBudget,
    /// The address of its webhook is none.
    #[error(
        "a webhook has an https:// address, or an http:// address of this machine, without a user name or password"
    )]
    Webhook,
    /// Its name is none.
    #[error("the name of a job is one line of text without control characters")]
    Name,
    /// Its name is that of the job that dreams.
    #[error("the job `{DREAM}` is the one that dreams; choose another name")]
    Reserved,
    /// It holds a key or a password.
    #[error(
        "{0} holds what looks like a key or a password, and jobs are stored as they are; read it from a file or the environment instead"
    )]
    Secret(&'static str),
    /// What is stored cannot be read.
    #[error("the payload of the job cannot be read: {0}")]
    Payload(String),
}

impl ScheduledJob {
    /// A stored job.
    ///
    /// # Errors
    /// `Payload`.
    pub fn of_payload(payload: &str) -> Result<Self, ScheduledJobError> {
        serde_json::from_str(payload).map_err(|error| ScheduledJobError::Payload(error.to_string()))
    }

    /// What a job with a schedule says of itself; `None` for another one, and for one that cannot be read.
    #[must_use]
    pub fn of_job(job: &Job) -> Option<Self> {
        let is_scheduled = job.kind == SCHEDULED || job.kind == DREAM;
        is_scheduled.then(|| Self::of_payload(&job.payload).ok()).flatten()
    }

    /// Its times under this name.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn schedule(&self, key: &str) -> Result<Schedule, ScheduleError> {
        Schedule::of(&self.when, Duration::from_millis(self.jitter_ms), key)
    }

    /// The next time after `now`, as jobs have it; `None` where there is none.
    ///
    /// # Errors
    /// What is wrong with its times.
    pub fn next(&self, key: &str, now: UnixMs) -> Result<Option<JobTime>, ScheduleError> {
        let next = self.schedule(key)?.next_after(now);
        Ok(next.map(|at| if self.when.is_once() { JobTime::At(at) } else { JobTime::Slot(at) }))
    }

    /// What is stored, after it was checked.
    ///
    /// # Errors
    /// Why there can be no such job.
    pub fn new_job(&self, key: JobKey, now: UnixMs) -> Result<NewJob, ScheduledJobError> {
        let name = key.as_str();
        if name.trim().is_empty() || name.trim() != name || name.chars().any(is_unprintable) {
            return Err(ScheduledJobError::Name);
        }
        let is_dream = matches!(&self.work, ScheduledWork::BuiltIn { name, .. } if name == DREAM);
        if is_dream != (name == DREAM) {
            return Err(ScheduledJobError::Reserved);
        }
        if let JobTarget::Command(line) = &self.target
            && holds_secret(line)
        {
            return Err(ScheduledJobError::Secret("the command"));
        }
        if let ScheduledWork::Prompt(work) = &self.work {
            if holds_secret(&work.prompt) {
                return Err(ScheduledJobError::Secret("the prompt"));
            }
            if work.prompt.trim().is_empty() {
                return Err(ScheduledJobError::EmptyPrompt);
            }
            if work.prompt.len() > PROMPT_LIMIT {
                return Err(ScheduledJobError::LongPrompt { bytes: work.prompt.len() });
            }
            let is_none = |budget: f64| !budget.is_finite() || budget <= 0.0;
            if work.budget.is_some_and(is_none) || work.daily_budget.is_some_and(is_none) {
                return Err(ScheduledJobError::Budget);
            }
            if work.daily_tokens == Some(0) {
                return Err(ScheduledJobError::TokenBudget);
            }
        }
        let due = self.next(key.as_str(), now)?.ok_or(ScheduledJobError::Past)?;
        let attempt_limit = if self.when.is_once() { ATTEMPTS_OF_ONE } else { u32::MAX };
        let payload = serde_json::json!(self).to_string();
        let kind = if is_dream { DREAM } else { SCHEDULED }.to_owned();
        Ok(NewJob { key, kind, payload, due, attempt_limit })
    }

    /// The same without what may be a secret: for lists.
    #[must_use]
    pub fn shown(mut self) -> Self {
        match &mut self.target {
            JobTarget::Webhook(url) => *url = host_of(url),
            JobTarget::Command(line) => *line = sealed(line),
            JobTarget::Nobody | JobTarget::Terminal | JobTarget::Desktop => {}
        }
        match &mut self.work {
            ScheduledWork::Prompt(work) => work.prompt = sealed(&work.prompt),
            ScheduledWork::BuiltIn { arguments, .. } => {
                for argument in arguments {
                    *argument = sealed(argument);
                }
            }
        }
        self
    }

    /// Whether it is the same job as another one that was added at another time: `every` counts from then.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        let mut same = other.clone();
        if let (Recurrence::Every { anchor, .. }, Recurrence::Every { anchor: own, .. }) =
            (&mut same.when, &self.when)
        {
            *anchor = *own;
        }
        *self == same
    }
}

/// Line breaks, terminal sequences, and characters that nobody sees or that turn text around.
fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// Without keys: those that are known, and those that look like one.
fn sealed(text: &str) -> String {
    quipu::Sealer::new([0; 32]).seal(&crate::sealed(text)).into_owned()
}

fn holds_secret(text: &str) -> bool {
    sealed(text) != text
}

/// Where a webhook may be: elsewhere only where nobody on the way can read it.
pub(crate) fn checked_url(url: &str) -> Result<Url, ScheduledJobError> {
    let url = Url::parse(url).map_err(|_| ScheduledJobError::Webhook)?;
    let is_here = url.host_str().is_some_and(is_loopback);
    let is_safe = url.scheme() == "https" || (url.scheme() == "http" && is_here);
    let is_bare = url.username().is_empty() && url.password().is_none() && url.host_str().is_some();
    if is_safe && is_bare { Ok(url) } else { Err(ScheduledJobError::Webhook) }
}

/// The server of an address: the rest may be a secret.
pub(crate) fn host_of(url: &str) -> String {
    let host = Url::parse(url).ok().and_then(|url| {
        let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
        Some(format!("{}://{}{port}/…", url.scheme(), url.host_str()?))
    });
    host.unwrap_or_else(|| "…".to_owned())
}
