//! The agents of this machine that can have the history: whether they are set up.

use quipu_host::Home;
use quipu_setup::{AgentState, Goal, Setup};

use super::{Finding, State};
use crate::setup::{LocalAgents, state_words};

/// Nothing where no agent is installed.
pub(super) fn findings(home: &Home) -> Vec<Finding> {
    let finding = |state, detail| Finding { what: "setup", state, detail };
    let Ok(local) = LocalAgents::of(home) else { return Vec::new() };
    local.with(|context, agents| {
        let setup = match Setup::read(&local.home) {
            Ok(setup) => setup,
            Err(error) => return vec![finding(State::Note, error.to_string())],
        };
        let mut found = Vec::new();
        for agent in agents.iter().filter(|agent| agent.is_found() || setup.lists(agent.name)) {
            let plan = setup.plan(context, agent, Goal::Present);
            let detail = format!("{}: {}", agent.title, state_words(&plan));
            let name = agent.name;
            found.push(match plan.state() {
                AgentState::Empty => continue,
                AgentState::Complete => finding(State::Good, detail),
                AgentState::Absent | AgentState::Partial | AgentState::Outdated => finding(
                    State::Note,
                    format!("{detail}; `quipu setup {name}` shows what it changes and asks"),
                ),
                AgentState::Changed | AgentState::Unusable => finding(State::Note, detail),
            });
        }
        found
    })
}
