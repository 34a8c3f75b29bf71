//! What hooks say, and what is kept of what they and policies did.

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

/// The name under which the result of a call keeps what policies decided of it.
const POLICIES: &str = "policies";

/// What hooks and policies did to a tool call, as its result keeps it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Interventions {
    /// What hooks did to it and to its result.
    pub hooks: Vec<Json>,
    /// Which policies asked about it or denied it.
    pub policies: Vec<Json>,
}

impl Interventions {
    /// Adds what policies decided later. A policy that is asked again often says the same.
    pub(crate) fn add_policies(&mut self, policies: Vec<Json>) {
        for record in policies {
            if !self.policies.contains(&record) {
                self.policies.push(record);
            }
        }
    }

    /// Keeps them with a step.
    pub fn record(&self, step: &mut StepInfo) {
        record_hooks(step, &self.hooks);
        if !self.policies.is_empty()
            && let Ok(records) = Json::of(&self.policies)
        {
            step.extra.insert(POLICIES.to_owned(), records);
        }
    }
}
