//! Short blocks joined into one message.

use serde::{Deserialize, Serialize};

use crate::block::Block;
use crate::chunk::{BreakPreference, units};

/// When joined blocks are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CoalesceOptions {
    /// An idle moment sends nothing shorter than this, in units.
    pub min: usize,
    /// No joined block is longer, in units.
    pub max: usize,
    /// Milliseconds without a new block after which the joined one is sent.
    pub idle_ms: u64,
}

impl Default for CoalesceOptions {
    fn default() -> Self {
        Self { min: 800, max: 1200, idle_ms: 1000 }
    }
}

/// Joins blocks. Times are milliseconds of one clock that does not run backwards.
#[derive(Debug, Clone)]
pub struct Coalescer {
    options: CoalesceOptions,
    joiner: &'static str,
    waiting: Option<Block>,
    length: usize,
    changed: u64,
}

impl Coalescer {
    /// Blocks are joined as they would have been cut.
    pub fn new(options: CoalesceOptions, preference: BreakPreference) -> Self {
        let joiner = match preference {
            BreakPreference::Paragraph => "\n\n",
            BreakPreference::Newline => "\n",
            BreakPreference::Sentence => " ",
        };
        Self { options, joiner, waiting: None, length: 0, changed: 0 }
    }

    /// The blocks to send, now that this one came. Media, another reply target and another kind of block end what waits.
    pub fn push(&mut self, block: Block, at: u64) -> Vec<Block> {
        let mut ready = Vec::new();
        let length = units(&block.text);
        let joins = self.waiting.as_ref().is_some_and(|waiting| {
            waiting.reply_to == block.reply_to
                && waiting.voice == block.voice
                && waiting.reasoning == block.reasoning
                && block.media.is_empty()
                && self.length + self.joiner.len() + length <= self.options.max
        });
        if !joins {
            ready.extend(self.flush());
        }
        self.changed = at;
        match &mut self.waiting {
            Some(waiting) => {
                waiting.text.push_str(self.joiner);
                waiting.text.push_str(&block.text);
                waiting.end = block.end;
                waiting.digest = block.digest;
                self.length += self.joiner.len() + length;
            }
            None => {
                self.length = length;
                self.waiting = Some(block);
            }
        }
        let whole = self.waiting.as_ref().is_some_and(|waiting| !waiting.media.is_empty());
        if whole || self.length >= self.options.max {
            ready.extend(self.flush());
        }
        ready
    }

    /// When an idle moment will send what waits.
    pub fn deadline(&self) -> Option<u64> {
        (self.waiting.is_some() && self.length >= self.options.min)
            .then(|| self.changed.saturating_add(self.options.idle_ms))
    }

    /// What an idle moment sends.
    pub fn tick(&mut self, at: u64) -> Option<Block> {
        self.deadline().filter(|deadline| *deadline <= at)?;
        self.flush()
    }

    /// What waits, sent or dropped by the caller.
    pub fn flush(&mut self) -> Option<Block> {
        self.length = 0;
        self.waiting.take()
    }
}
