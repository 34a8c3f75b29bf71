//! How a reply is sent.

use serde::{Deserialize, Serialize};

use crate::chunk::ChunkOptions;
use crate::coalesce::CoalesceOptions;
use crate::media::MediaCheck;
use crate::pacing::PacingOptions;

/// When text is sent that could not be cut yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DrainPoint {
    /// When a text of the message ends; blocks are sent while it streams.
    #[default]
    TextEnd,
    /// When the message ends; nothing is sent before.
    MessageEnd,
}

/// Which messages of a run answer the message that started it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ReplyMode {
    /// None, whatever the text says.
    #[default]
    Off,
    /// Those of which the text says what they answer.
    Explicit,
    /// The first one.
    First,
    /// All of them.
    All,
}

/// How a reply is sent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StreamOptions {
    /// Length of the messages.
    pub chunks: ChunkOptions,
    /// When they are sent.
    pub drain: DrainPoint,
    /// Joins short blocks.
    pub coalesce: Option<CoalesceOptions>,
    /// Pauses between blocks that are sent while the answer streams.
    pub pacing: Option<PacingOptions>,
    /// Only what stands in `<final>` tags is sent.
    pub enforce_final: bool,
    /// Which messages are replies.
    pub reply_mode: ReplyMode,
    /// Id of the message that started the run, when the chat has one.
    pub current_message: Option<String>,
    /// The chat, as messaging tools name it: once a tool has sent something there, the text of a message that is sent at its end is not.
    pub target: Option<String>,
    /// Reasoning is sent as messages of its own before the answer.
    pub reasoning: bool,
    /// Which files may be sent. Text that names others stays as it is; without it, all may be sent. It is not stored.
    #[serde(skip)]
    pub media_check: Option<MediaCheck>,
    /// Decides the lengths of the pauses.
    pub seed: u64,
}
