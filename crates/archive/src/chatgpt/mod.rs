//! Conversations of ChatGPT, from the export of an account.
//!
//! A conversation is a tree of nodes by id, each with at most one message; the node at which it stands is named. Tools have no
//! calls: a message that is addressed to one is the call, and what that says below it is the result.

mod content;
mod read;

use crate::export::Shape;
use crate::intake::DatabaseFormat;
use crate::json::Members;

/// What these sessions are called in the store.
pub const AGENT: &str = "chatgpt";

pub(crate) const FORMAT: DatabaseFormat =
    DatabaseFormat { agent: AGENT, open: |path, _, _| crate::export::open(path, &SHAPE) };

const SHAPE: Shape = Shape { is_main, id, read: read::read };

/// Whether a file of an archive holds conversations; of many there are several.
pub(crate) fn is_main(name: &str) -> bool {
    let name = name.rsplit('/').next().unwrap_or_default();
    let number = name.strip_prefix("conversations").and_then(|rest| rest.strip_suffix(".json"));
    number.is_some_and(|number| number.bytes().all(|byte| byte == b'-' || byte.is_ascii_digit()))
}

/// The id of a conversation.
pub(crate) fn id(conversation: &Members<'_>) -> Option<String> {
    conversation.get("mapping").filter(|mapping| mapping.starts_with('{'))?;
    let id = conversation.string("conversation_id").or_else(|| conversation.string("id"))?;
    Some(id.into_owned())
}
