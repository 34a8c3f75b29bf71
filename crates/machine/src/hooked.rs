//! What hooks say, and what is kept of what they did.

use quipu_protocol::{Json, UserInput};

/// What hooks say to the model, sealed.
#[derive(Debug, Clone, PartialEq)]
pub struct HookPrompt {
    /// What they say.
    pub input: UserInput,
    /// Who said it.
    pub hooks: Vec<Json>,
}

/// The name under which a step keeps what hooks did to it.
pub const HOOKS: &str = "hooks";

/// What hooks did to a step, as it is kept with that.
pub fn hook_records(records: &[Json]) -> Option<Json> {
    if records.is_empty() { None } else { Json::of(records).ok() }
}
