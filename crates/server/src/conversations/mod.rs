//! Conversations by their keys: messages come in, and replies wait until somebody takes them.

mod heartbeats;
mod mailboxes;
mod request;
mod routes;
mod service;

pub(crate) use heartbeats::workspace;
pub(crate) use routes::{acknowledge, post_message, replies, stop, unknown_agent, wake};
pub(crate) use service::{ConversationService, ServiceOptions};
