//! Conversations by their keys: messages come in, and replies wait until somebody takes them.

mod heartbeats;
mod mailboxes;
mod news;
mod service;

pub(crate) use heartbeats::workspace;
pub(crate) use mailboxes::{AckOutcome, DEFAULT_CHANNEL, MailboxFilter, RunNews, is_channel};
pub(crate) use news::follow;
pub(crate) use service::{ConversationService, ServiceOptions};
