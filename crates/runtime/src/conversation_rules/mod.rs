//! Rules of conversations that are functions of a key, of times and of messages: when one begins anew, and how much of it a request
//! has.

mod history;
mod reset;

pub use history::{ChannelHistory, HistoryLimits, HistoryOverride, newest_turns};
pub use reset::{
    ConversationKind, ConversationTimes, ResetByKind, ResetMode, ResetPolicy, ResetReason, ResetRule,
    ResetSettings, SessionOwner, TurnCause,
};
