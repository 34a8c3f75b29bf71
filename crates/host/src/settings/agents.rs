//! The members of `agents`: whether the model can send sub-agents, and how far these go.

use std::time::Duration;

use quipu::AgentLimits;
use serde_json::Value;

/// Whether the model has the tool that sends sub-agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AgentTool {
    /// Where there are files of agents.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// The members of `agents`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AgentConfig {
    /// Whether the model has the tool.
    pub tool: AgentTool,
    /// How far its agents go.
    pub limits: AgentLimits,
}

impl AgentConfig {
    /// The values that were checked, by the names of the settings.
    pub(super) fn of<'a>(value: &dyn Fn(&str) -> Option<&'a Value>) -> Self {
        let number = |name: &str| value(name).and_then(Value::as_u64);
        let small = |name: &str, default: u32| {
            number(name).map_or(default, |number| u32::try_from(number).unwrap_or(u32::MAX))
        };
        let fallback = AgentLimits::default();
        let tool = match value("agents.tool").and_then(Value::as_str) {
            Some("on") => AgentTool::On,
            Some("off") => AgentTool::Off,
            Some(_) | None => AgentTool::Auto,
        };
        let limits = AgentLimits {
            max_depth: small("agents.maxDepth", fallback.max_depth),
            max_at_once: number("agents.maxAtOnce")
                .map_or(fallback.max_at_once, |most| usize::try_from(most).unwrap_or(usize::MAX)),
            max_per_run: small("agents.maxPerRun", fallback.max_per_run),
            max_turns: small("agents.maxTurns", fallback.max_turns),
            longest: number("agents.maxMinutes")
                .map_or(fallback.longest, |most| Duration::from_secs(60 * most)),
            max_cost: value("agents.maxCost").and_then(Value::as_f64).or(fallback.max_cost),
        };
        Self { tool, limits }
    }
}
