//! Sub-agents of a session: which ones the model can send, and how far they go.

use std::time::Duration;

use quipu_protocol::Thinking;

use crate::worktrees::Worktrees;

/// The name of the tool that sends a sub-agent.
pub const TASK_TOOL: &str = "task";
/// The purpose of child sessions that are sub-agents: its model is set in `purposeModels`.
pub const AGENT_PURPOSE: &str = "sub-agents";

/// Sub-agents that the model of a session can send with the tool `task`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AgentSettings {
    /// The agents that have a name; the first of each name counts.
    pub agents: Vec<AgentDefinition>,
    /// How far they go.
    pub limits: AgentLimits,
    /// Where sub-agents get git worktrees of their own; `None` where they get none.
    pub worktrees: Option<Worktrees>,
}

/// An agent that has a name. It never may do more than the session that sends it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentDefinition {
    /// The name that the model uses.
    pub name: String,
    /// When to use it, in one line for the model.
    pub description: String,
    /// Its system prompt. The rules of the project and the directory follow it.
    pub prompt: String,
    /// The only tools that it has, of those of the session; `None` for all.
    pub tools: Option<Vec<String>>,
    /// Tools that it does not have.
    pub denied_tools: Vec<String>,
    /// The name of its model; `None` for that of the session.
    pub model: Option<String>,
    /// How hard it thinks; `None` for the level of the session.
    pub thinking: Option<Thinking>,
    /// What it may do less than the session.
    pub mode: AgentMode,
    /// Whether it works in a git worktree of its own.
    pub worktree: bool,
    /// Turns at most, where these are fewer than those of [`AgentLimits`].
    pub max_turns: Option<u32>,
}

impl AgentDefinition {
    /// Whether it has a tool that the session has.
    pub fn has_tool(&self, name: &str) -> bool {
        let is_named = |list: &[String]| list.iter().any(|one| one == name);
        self.tools.as_deref().is_none_or(is_named) && !is_named(&self.denied_tools)
    }
}

/// What an agent may do less than the session that sends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AgentMode {
    /// The same.
    #[default]
    Inherit,
    /// It changes no files; a person is asked about each command that does more than read.
    ReadOnly,
    /// What would be asked is refused.
    Unasked,
}

/// How far sub-agents go.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentLimits {
    /// Levels of sub-agents below a session that a person began; at most [`RUNNER_DEPTH`](crate::RUNNER_DEPTH) count.
    pub max_depth: u32,
    /// Sub-agents of one session that work at the same time; others wait.
    pub max_at_once: usize,
    /// Sub-agents that one run of a session begins.
    pub max_per_run: u32,
    /// Turns of one.
    pub max_turns: u32,
    /// How long one works.
    pub longest: Duration,
    /// US dollars that one may cost, where the price of its model is known; `None` for no limit of its own.
    pub max_cost: Option<f64>,
}

impl Default for AgentLimits {
    fn default() -> Self {
        Self {
            max_depth: 1,
            max_at_once: 4,
            max_per_run: 32,
            max_turns: 100,
            longest: Duration::from_secs(30 * 60),
            max_cost: None,
        }
    }
}
