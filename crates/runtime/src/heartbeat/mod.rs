//! Heartbeats: an agent looks after things from time to time, and when something wakes it, without anybody having written.
//!
//! A [`Heartbeat`] is a function from what woke it and the time to what is to be done. [`Heartbeats`] has one for each conversation and runs them in the
//! conversation beside it (`:heartbeat`); a [`HeartbeatJob`] wakes them when their time comes.

mod job;
mod reply;
mod serve;
mod settings;
mod state;

pub use job::{HeartbeatJob, heartbeat_job, heartbeat_of};
pub use quipu_host::jobs::HEARTBEAT_JOB;
pub use reply::{HeartbeatAnswer, asks_for_nothing, heartbeat_answer};
pub use serve::{AlertDelivery, HeartbeatPlace, HeartbeatRuns, Heartbeats, WakeOutcome, heartbeat_request};
pub use settings::{
    BusyRule, HEARTBEAT_PROMPT, HEARTBEAT_TOKEN, HeartbeatRules, HeartbeatSettings, HoursSettings,
};
pub use state::{Heartbeat, HeartbeatFile, HeartbeatReply, HeartbeatStep, SkipReason, WakeReason};
