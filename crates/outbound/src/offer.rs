//! A message that is offered to a chat.

use serde::{Deserialize, Serialize};

use crate::block::{Block, ReplyKey};

/// A message for a chat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Offer {
    /// The reply that it belongs to.
    pub key: ReplyKey,
    /// Counts from 0 in each reply. Key and part name the message, whatever becomes of it.
    pub part: u32,
    /// What the message says.
    pub block: Block,
    /// 1 for the first offer.
    pub attempt: u32,
    /// It may change: a preview of the reply, which part 0 will replace.
    pub preview: bool,
    /// The message of the chat that shows the preview, to be edited into this one.
    pub replaces: Option<String>,
}
