//! Plan mode and to-do lists of a session: what the settings and the request make of them.

use quipu::PlanningSettings;
use quipu_protocol::Epoch;
use quipu_replay::Replay;

use crate::{OpenRequest, Settings};

/// What is replayed has the tools of its recording. `last` is what the session was, where it was any.
pub(crate) fn planning_settings(
    settings: &Settings,
    request: &OpenRequest,
    last: Option<&Epoch>,
    replayed: Option<&Replay>,
) -> PlanningSettings {
    let begins = (last.is_none() && settings.plan_mode && replayed.is_none()).then_some(true);
    PlanningSettings {
        plan: replayed.is_none_or(Replay::plans),
        start: request.permissions.plan.or(begins),
        named_model: request.model.is_some(),
        todo: settings.todo_tool && replayed.is_none_or(Replay::lists),
    }
}
