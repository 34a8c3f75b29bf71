//! What hooks say, and what is kept of what they did.

use quipu_protocol::{Json, StepInfo, UserInput};

/// What hooks say to the model, sealed.
#[derive(Debug, Clone, PartialEq)]
pub struct HookPrompt {
    /// What they say.
    pub input: UserInput,
    /// Who said it.
    pub hooks: Vec<Json>,
}

/// The name under which a step keeps what hooks did to it.
const HOOKS: &str = "hooks";

/// Keeps with a step what hooks did to it.
pub fn record_hooks(step: &mut StepInfo, records: &[Json]) {
    if !records.is_empty()
        && let Ok(records) = Json::of(records)
    {
        step.extra.insert(HOOKS.to_owned(), records);
    }
}
