//! What a runner of jobs says.

use std::time::Duration;

use quipu_protocol::UnixMs;
use quipu_store::{JobKey, Owner, StoreError};
use serde_json::{Value, json};

/// Something that a runner of jobs says.
#[derive(Debug, Clone, PartialEq)]
pub enum JobNotice {
    /// An attempt began.
    Began {
        /// The key under which the job is scheduled.
        key: JobKey,
        /// Which attempt since the last that succeeded.
        attempt: u32,
    },
    /// An attempt succeeded.
    Finished {
        /// The key under which the job is scheduled.
        key: JobKey,
        /// When it is due again; `None` where it is done and removed.
        next: Option<UnixMs>,
    },
    /// An attempt failed.
    Failed {
        /// The key under which the job is scheduled.
        key: JobKey,
        /// The number of the attempt since the last that succeeded, from 1.
        attempt: u32,
        /// Why, sealed.
        error: String,
        /// After how long it is tried again; `None` where that was the last attempt.
        retry: Option<Duration>,
    },
    /// The runner ends, and gave the job back.
    GivenBack {
        /// The key under which the job is scheduled.
        key: JobKey,
    },
    /// The job was removed, replaced or taken over by another process while it ran. What it did is not undone.
    Lost {
        /// The key under which the job is scheduled.
        key: JobKey,
    },
    /// Nothing here runs jobs of this kind: another version may. They are left alone.
    UnknownKind {
        /// The kind that no handler takes.
        kind: String,
        /// How many there are.
        count: u64,
    },
    /// Another process runs the jobs of this store.
    AnotherRunner {
        /// The process, and the runner in it.
        owner: Owner,
    },
    /// The store could not be used. What could not be stored of a job makes it run again.
    Store(StoreError),
}

impl JobNotice {
    /// Whether something is wrong.
    pub fn is_warning(&self) -> bool {
        match self {
            Self::Began { .. }
            | Self::Finished { .. }
            | Self::GivenBack { .. }
            | Self::Lost { .. }
            | Self::AnotherRunner { .. } => false,
            Self::Failed { .. } | Self::UnknownKind { .. } | Self::Store(_) => true,
        }
    }

    /// For programs.
    pub fn json(&self) -> Value {
        match self {
            Self::Began { key, attempt } => {
                json!({ "event": "began", "key": key.as_str(), "attempt": attempt })
            }
            Self::Finished { key, next } => json!({ "event": "finished", "key": key.as_str(), "next": next }),
            Self::Failed { key, attempt, error, retry } => json!({
                "event": "failed", "key": key.as_str(), "attempt": attempt, "error": error,
                "retryMs": retry.map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX)),
            }),
            Self::GivenBack { key } => json!({ "event": "givenBack", "key": key.as_str() }),
            Self::Lost { key } => json!({ "event": "lost", "key": key.as_str() }),
            Self::UnknownKind { kind, count } => {
                json!({ "event": "unknownKind", "kind": kind, "count": count })
            }
            Self::AnotherRunner { owner } => json!({ "event": "anotherRunner", "owner": owner.0 }),
            Self::Store(error) => json!({ "event": "storeError", "error": error.to_string() }),
        }
    }
}

impl std::fmt::Display for JobNotice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Began { key, attempt: 1 } => write!(f, "Job {key} started."),
            Self::Began { key, attempt } => write!(f, "Job {key} started, attempt {attempt}."),
            Self::Finished { key, next: Some(_) } => write!(f, "Job {key} is done until its next time."),
            Self::Finished { key, next: None } => write!(f, "Job {key} is done."),
            Self::Failed { key, attempt, error, retry: Some(after) } => {
                let after = after.as_secs_f64();
                write!(f, "Job {key} failed in attempt {attempt}; next attempt in {after} s: {error}")
            }
            Self::Failed { key, attempt, error, retry: None } => {
                write!(f, "Job {key} failed in attempt {attempt}, the last one: {error}")
            }
            Self::GivenBack { key } => write!(f, "Job {key} was stopped and will run again."),
            Self::Lost { key } => {
                write!(f, "Job {key} was stopped: it was removed, replaced or taken over while it ran.")
            }
            Self::UnknownKind { kind, count } => write!(
                f,
                "{count} jobs have the kind `{kind}`, which this version does not know; they do not run"
            ),
            Self::AnotherRunner { owner } => {
                write!(f, "Another process is running the jobs of this store ({}).", owner.0)
            }
            Self::Store(error) => write!(f, "Jobs cannot be run now: {error}"),
        }
    }
}
