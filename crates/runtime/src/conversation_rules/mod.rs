//! Rules of conversations that are functions of settings, a key and times: when one begins anew, and how much of it a request has.

mod history;
mod reset;

pub(crate) use history::conversation_limit;
pub use history::turn_limit;
pub use reset::{
    ConversationKind, ConversationTimes, ResetByKind, ResetMode, ResetPolicy, ResetReason, ResetRule,
    ResetSettings, SessionOwner, TurnCause,
};
