//! What a recalled text must pass before a dream may promote it.

use quipu_protocol::UnixMs;
use quipu_store::SignalEntry;
use serde::{Deserialize, Serialize};

use super::signals::{SignalWeights, Signals, context_diversity, days_since};
use crate::AuthorClass;

/// How the deep phase chooses.
#[derive(Debug, Clone, PartialEq)]
pub struct DeepSettings {
    /// Texts that one dream promotes at most.
    pub limit: usize,
    /// The least score.
    pub min_score: f64,
    /// Times that it came up at least, in all ways.
    pub min_signals: u32,
    /// Different questions, or days, at least.
    pub min_queries: usize,
    /// Days in which the recency halves.
    pub half_life: f64,
    /// Days since it came up last at most.
    pub max_age: f64,
    /// What each signal counts.
    pub weights: SignalWeights,
}

impl Default for DeepSettings {
    fn default() -> Self {
        Self {
            limit: 10,
            min_score: 0.75,
            min_signals: 3,
            min_queries: 3,
            half_life: 14.0,
            max_age: 30.0,
            weights: SignalWeights::default(),
        }
    }
}

/// A reason not to promote a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Gate {
    /// No search ever found it: standing in a note is no recall.
    NoRecall,
    /// It came up too seldom.
    TooSeldom,
    /// For too few questions, and on too few days.
    TooNarrow,
    /// Too long ago.
    TooOld,
    /// The score is too low.
    TooLow,
    /// It was promoted before.
    Promoted,
    /// Its author's class is never promoted.
    Untrusted,
    /// It is what a dream wrote.
    OwnOutput,
    /// Its file, or its text in it, is not there any more.
    Gone,
    /// It was said in a session: only a model makes a line of it.
    Said,
}

impl Gate {
    /// In words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::NoRecall => "no search ever found it; notes of a day do not count as recalls",
            Self::TooSeldom => "it came up too seldom",
            Self::TooNarrow => "it came up for too few questions and on too few days",
            Self::TooOld => "it came up too long ago",
            Self::TooLow => "its score is too low",
            Self::Promoted => "it was promoted before",
            Self::Untrusted => {
                "its author is untrusted, or is Quipu itself; a person can accept it in a review"
            }
            Self::OwnOutput => "a dream wrote it",
            Self::Gone => "it is not there any more",
            Self::Said => {
                "it was said in a session; a line of it needs a model, with an amount in budget.background"
            }
        }
    }
}

/// Why the records of a text keep it from being promoted. None for one that may be.
#[must_use]
pub fn failed_gates(
    entry: &SignalEntry,
    signals: &Signals,
    settings: &DeepSettings,
    now: UnixMs,
) -> Vec<Gate> {
    let gates = [
        (entry.recalls == 0, Gate::NoRecall),
        (entry.signals() == 0 || entry.signals() < settings.min_signals, Gate::TooSeldom),
        (context_diversity(entry) < settings.min_queries, Gate::TooNarrow),
        (days_since(entry.last_at, now) > settings.max_age, Gate::TooOld),
        (signals.total < settings.min_score, Gate::TooLow),
        (entry.promoted.is_some(), Gate::Promoted),
        (super::own::is_dream_output(&entry.text), Gate::OwnOutput),
    ];
    gates.into_iter().filter_map(|(fails, gate)| fails.then_some(gate)).collect()
}

/// Whether text of an author may be promoted.
#[must_use]
pub const fn class_gate(class: AuthorClass) -> Option<Gate> {
    if class.is_promotable() { None } else { Some(Gate::Untrusted) }
}
