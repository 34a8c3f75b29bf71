//! What is summed up, and what came of it.

use std::sync::Arc;

use quipu_protocol::{CallRecord, CompactionReason, Json, Message, Model, NodeId, Provenance, Usage};
use quipu_transcript::{Safeguard, SummaryPart};
use serde::{Deserialize, Serialize};

/// The purpose of a summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Replaces the beginning of the context.
    Compaction,
    /// Summarizes a branch that was left.
    Branch,
}

/// Messages to summarize.
#[derive(Debug, Clone, PartialEq)]
pub struct Stretch {
    pub purpose: Purpose,
    /// Why, where it is compacted.
    pub reason: Option<CompactionReason>,
    /// Whether a summary was made before that is not used.
    pub is_again: bool,
    /// The summary of the previous compaction.
    pub previous: Option<String>,
    /// Whole turns.
    pub history: Vec<Arc<Message>>,
    /// The beginning of a turn whose end stays.
    pub turn: Vec<Arc<Message>>,
    /// The oldest node that stays; `None` where none does.
    pub first_kept: Option<NodeId>,
    /// What the summary should focus on.
    pub focus: Option<String>,
    /// Tokens that a request may have, its answer included.
    pub window: u64,
    /// Tokens of the answer at most.
    pub max_tokens: u64,
    /// US dollars that the run may still spend.
    pub dollars: Option<f64>,
    /// How it is summed up in the careful way; `None` for the plain one.
    pub safeguard: Option<Safeguard>,
}

/// The model calls of a summary.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Calls {
    pub usage: Usage,
    pub records: Vec<CallRecord>,
    /// US dollars that they may have cost besides.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub assumed: f64,
}

fn is_zero(dollars: &f64) -> bool {
    *dollars == 0.0
}

impl Calls {
    /// US dollars that they cost, or may have cost.
    pub fn cost(&self) -> f64 {
        self.usage.cost.total + self.assumed
    }
}

/// The text that stands for messages, and the calls that made it.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    pub text: String,
    pub made: Calls,
    /// Who gave it in place of the model.
    pub supplied_by: Option<String>,
    /// The hook that supplied it, where one did.
    pub hooks: Vec<Json>,
    /// Where it comes from, when that is no model.
    pub provenance: Option<Provenance>,
    /// The parts of it that repeat words of nodes.
    pub parts: Vec<SummaryPart>,
}

/// Why there is no summary, and the calls that were made for it all the same.
#[derive(Debug, Clone, PartialEq)]
pub struct NoSummary {
    /// In one line; `None` when it was stopped.
    pub why: Option<String>,
    pub made: Calls,
}

impl Purpose {
    /// Its word in records, traces and settings.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Compaction => "compaction",
            Self::Branch => "branch_summary",
        }
    }
}

impl Stretch {
    /// The same for another model than the session's: what fits its window, and an answer that it can give.
    #[must_use]
    pub fn for_model(self, model: &Model) -> Self {
        let window = if model.context_window == 0 { u64::MAX } else { model.context_window };
        let most = if model.max_tokens == 0 { u64::MAX } else { model.max_tokens };
        Self { window, max_tokens: self.max_tokens.min(most), ..self }
    }
}
