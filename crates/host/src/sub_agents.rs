//! The sub-agents that the model of a session can send.

use std::path::Path;
use std::sync::Arc;

use quipu::{AgentSettings, Worktrees};

use crate::Home;
use crate::resources::ResourceSet;
use crate::settings::{AgentConfig, AgentTool};

/// Those of the files, as far as the settings let them go; `None` where the model has no tool for them.
pub(crate) fn agent_settings(
    home: &Home,
    cwd: &Path,
    config: &AgentConfig,
    resources: &ResourceSet,
) -> Option<Arc<AgentSettings>> {
    let is_offered = match config.tool {
        AgentTool::On => true,
        AgentTool::Off => false,
        AgentTool::Auto => !resources.agents.is_empty(),
    };
    is_offered.then(|| {
        let agents = resources.agents.iter().map(|agent| agent.definition.clone()).collect();
        let worktrees = Worktrees::is_possible_in(cwd).then(|| home.worktrees());
        Arc::new(AgentSettings { agents, limits: config.limits.clone(), worktrees })
    })
}
