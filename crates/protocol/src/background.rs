//! Commands that run in the background of a session.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{BackgroundId, UnixMs};

/// A running background command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackgroundSnapshot {
    /// Same id as in `backgroundStarted`; `abort` takes it as `{"background":ID}`.
    pub id: BackgroundId,
    /// The command line as in `backgroundStarted`.
    pub command: String,
    /// Time of `backgroundStarted` in milliseconds since the Unix epoch.
    pub since: UnixMs,
}

/// How a background command ended. JSON form: `"timedOut"`, or an object with one member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum BackgroundEnd {
    /// With this exit code.
    Exited(i32),
    /// By a signal that Quipu did not send.
    Signalled(i32),
    /// Killed at the timeout of its call.
    TimedOut,
    /// Killed, for this reason.
    Killed(KillReason),
    /// Quipu lost contact and killed it; why.
    Lost(String),
}

/// Why a background command was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum KillReason {
    /// The model asked for it.
    Model,
    /// A person asked for it.
    Person,
    /// The session moved to another point of its history.
    Move,
    /// The session ended.
    Close,
}

impl std::fmt::Display for BackgroundEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exited with code {code}"),
            Self::Signalled(signal) => write!(f, "was ended by signal {signal}"),
            Self::TimedOut => f.write_str("was killed at its timeout"),
            Self::Killed(KillReason::Model) => f.write_str("was killed by the model"),
            Self::Killed(KillReason::Person) => f.write_str("was killed by the user"),
            Self::Killed(KillReason::Move) => {
                f.write_str("was killed because the session moved to another point")
            }
            Self::Killed(KillReason::Close) => f.write_str("was killed because the session ended"),
            Self::Lost(why) => write!(f, "was killed: {why}"),
        }
    }
}
