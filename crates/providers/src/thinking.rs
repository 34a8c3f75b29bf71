//! Levels of thinking: which ones a model has, and what its wire calls them.

use quipu_protocol::{Model, Thinking, level_name};
use serde_json::Value;

/// Tokens that each level of thinking is given, where a server counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThinkingBudgets {
    /// For [`Thinking::Minimal`].
    pub minimal: u64,
    /// For [`Thinking::Low`].
    pub low: u64,
    /// For [`Thinking::Medium`].
    pub medium: u64,
    /// For [`Thinking::High`] and all above it.
    pub high: u64,
}

impl Default for ThinkingBudgets {
    fn default() -> Self {
        Self { minimal: 1_024, low: 2_048, medium: 8_192, high: 16_384 }
    }
}

impl ThinkingBudgets {
    /// Those of a level; of no thinking the least.
    pub(crate) fn of(self, level: Thinking) -> u64 {
        match level {
            Thinking::Off | Thinking::Minimal => self.minimal,
            Thinking::Low => self.low,
            Thinking::Medium => self.medium,
            Thinking::High | Thinking::Xhigh | Thinking::Max => self.high,
        }
    }
}

/// What the model's map calls the level, when it renames it.
pub(crate) fn mapped(model: &Model, level: Thinking) -> Option<String> {
    map(model).get(level_name(level))?.as_str().map(String::from)
}

fn map(model: &Model) -> Value {
    model.thinking_level_map.as_ref().map(quipu_protocol::Json::value).unwrap_or_default()
}
