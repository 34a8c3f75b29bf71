//! A block: what is sent as one message.

use std::fmt;

use quipu_protocol::RunId;
use serde::{Deserialize, Serialize};

use crate::media::NamedFile;

/// Names one logical reply: its preview, its blocks, its final form and each retry have the same. A chat that has seen a part of a
/// key takes it once.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ReplyKey(String);

impl ReplyKey {
    /// The key of an answer: the run, and the number of the answer in it. The same after a crash.
    pub fn of(run: &RunId, message: u32) -> Self {
        Self(format!("{run}/{message}"))
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ReplyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The message that a reply answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ReplyTarget {
    /// The message that started the run.
    Current,
    /// The message of this id, as the chat names it.
    Id(String),
}

/// What is sent as one message, or as a text with its media.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Block {
    /// Can be empty when there are media.
    pub text: String,
    /// Addresses or paths of media, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub media: Vec<String>,
    /// The message that it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<ReplyTarget>,
    /// Audio is sent as a voice message.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub voice: bool,
    /// It is reasoning, not the answer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub reasoning: bool,
    /// Bytes of the visible text of its message that this block and those before it have.
    pub end: usize,
    /// How many media of its message were named up to the last one that left with this block or one before it, those that are not sent
    /// included: a stream that continues the message sends those behind them.
    #[serde(skip_serializing_if = "is_zero")]
    pub media_end: usize,
    /// SHA-256 of those bytes, in hexadecimal digits, where the block left while its message streamed: by it, a stream that continues
    /// the message after a crash knows whether the same text comes again.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub digest: String,
    /// Files that its message names and that were judged since the block before: a stream that continues the message reads its text
    /// as it was read, whatever became of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<NamedFile>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl Block {
    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.text.trim().is_empty() && self.media.is_empty()
    }
}
