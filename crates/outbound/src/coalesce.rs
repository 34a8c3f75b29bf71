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

/// How a block follows the one before it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seam {
    /// What stands between the two in the text; `None` where that is not known, or more than blanks.
    pub gap: Option<String>,
    /// Bytes at the start of the block that open code again: left out where it is joined to what the same code is open in.
    pub reopened: usize,
    /// Bytes at its end that close code: left out where the next one opens it again.
    pub closed: usize,
}

/// Joins blocks. Times are milliseconds of one clock that does not run backwards.
#[derive(Debug, Clone)]
pub struct Coalescer {
    options: CoalesceOptions,
    joiner: &'static str,
    waiting: Option<Block>,
    /// Bytes at its end that close code.
    closed: usize,
    length: usize,
    changed: u64,
}

impl Coalescer {
    /// Where it is not known what stands between two blocks, they are joined as they would have been cut.
    pub fn new(options: CoalesceOptions, preference: BreakPreference) -> Self {
        let joiner = match preference {
            BreakPreference::Paragraph => "\n\n",
            BreakPreference::Newline => "\n",
            BreakPreference::Sentence => " ",
        };
        Self { options, joiner, waiting: None, closed: 0, length: 0, changed: 0 }
    }

    /// The blocks to send, now that this one came. Media, another reply target and another kind of block end what waits.
    pub fn push(&mut self, block: Block, seam: &Seam, at: u64) -> Vec<Block> {
        let mut ready = Vec::new();
        let joined = self.waiting.as_ref().and_then(|waiting| self.joined(waiting, &block, seam));
        if joined.is_none() {
            ready.extend(self.flush());
        }
        self.changed = at;
        self.closed = seam.closed;
        match (&mut self.waiting, joined) {
            (Some(waiting), Some((text, length))) => {
                self.length = length;
                waiting.text = text;
                waiting.end = block.end;
                waiting.media_end = block.media_end;
                waiting.digest = block.digest;
            }
            _ => {
                self.length = units(&block.text);
                self.waiting = Some(block);
            }
        }
        let whole = self.waiting.as_ref().is_some_and(|waiting| !waiting.media.is_empty());
        if whole || self.length >= self.options.max {
            ready.extend(self.flush());
        }
        ready
    }

    /// The text of both and its units, where they can be one message.
    fn joined(&self, waiting: &Block, block: &Block, seam: &Seam) -> Option<(String, usize)> {
        let are_alike = waiting.reply_to == block.reply_to
            && waiting.voice == block.voice
            && waiting.reasoning == block.reasoning
            && block.media.is_empty();
        if !are_alike {
            return None;
        }
        let is_open = (self.closed > 0) == (seam.reopened > 0) || self.closed == 0;
        let (before, gap, after) = match &seam.gap {
            Some(gap) if is_open => {
                let before = waiting.text.len().checked_sub(self.closed)?;
                (waiting.text.get(..before)?, gap.as_str(), block.text.get(seam.reopened..)?)
            }
            _ => (waiting.text.as_str(), self.joiner, block.text.as_str()),
        };
        let length = units(before) + units(gap) + units(after);
        (length <= self.options.max).then(|| ([before, gap, after].concat(), length))
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
