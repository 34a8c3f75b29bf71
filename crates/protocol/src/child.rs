//! Sub-agents of a session: sessions of their own that a call of its model began.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{CallId, SessionId, UnixMs};

/// A sub-agent at work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChildSnapshot {
    /// Its session, as in `childStarted`.
    pub child: SessionId,
    /// Same id as in `toolStarted` of the call that began it.
    pub call: CallId,
    /// The name of the agent; `sub-agent` for one without.
    pub agent: String,
    /// What it is about, in a few words; may be empty.
    pub title: String,
    /// Time of `childStarted` in milliseconds since the Unix epoch.
    pub since: UnixMs,
}

/// How a sub-agent ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ChildOutcome {
    /// With an answer.
    Done,
    /// A person, or the end of the call, stopped it.
    Stopped,
    /// Its model failed, or a step could not be stored.
    Failed,
    /// It reached a limit.
    Limit,
}

impl ChildOutcome {
    /// In one word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
            Self::Limit => "limit",
        }
    }
}
