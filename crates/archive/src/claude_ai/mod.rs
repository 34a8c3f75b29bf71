//! Conversations of Claude.ai, from the export of an account.
//!
//! A conversation is a list of messages; newer exports say what each follows. An answer has its tool calls and their results in
//! it: it becomes one message up to each of its results, and those stand behind it.

mod read;

use crate::export::Shape;
use crate::intake::DatabaseFormat;
use crate::json::Members;

/// What these sessions are called in the store.
pub const AGENT: &str = "claude-ai";

pub(crate) const FORMAT: DatabaseFormat =
    DatabaseFormat { agent: AGENT, open: |path, _, _| crate::export::open(path, &SHAPE) };

const SHAPE: Shape = Shape { is_main, id, read: read::read };

/// Whether a file of an archive holds conversations.
pub(crate) fn is_main(name: &str) -> bool {
    name.rsplit('/').next() == Some("conversations.json")
}

/// The id of a conversation.
pub(crate) fn id(conversation: &Members<'_>) -> Option<String> {
    conversation.get("chat_messages").filter(|messages| messages.starts_with('['))?;
    conversation.string("uuid").map(Into::into)
}
