//! Messages that come while a session is busy: what becomes of them, and in which turns they are run.

mod inbox;
mod message;
mod settings;
mod state;

pub use inbox::{INBOX_LIMIT, InboxError, InboxEvents, MESSAGE_LIMIT, MessageInbox, NewMessage};
pub(crate) use message::one_line;
pub use message::{Authority, LINE_CHARS, MessageGroup, Overflow, QueueTurn, QueuedMessage, Route};
pub use settings::{
    BusyMode, CAP_LIMIT, DEFAULT_CAP, DEFAULT_DEBOUNCE, DropRule, QueueOverride, QueuePolicy, QueueSettings,
};
pub use state::{DEBOUNCE_LIMIT, DropReason, QueueEffect, QueueInput, QueueRefusal, QueueRow, SessionQueue};

#[cfg(test)]
mod tests;
