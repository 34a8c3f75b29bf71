//! The members of `tools`: which tools are offered, and when calls that go in circles are stopped.

use quipu_policy::{LoopDetectors, LoopSettings, NameLists, ToolPolicy, ToolProfile};
use serde_json::{Value, json};

use super::tool_policies::{closed_members, group_policies, list_of, provider_policies, sender_policies};

/// An entry that is the name of no tool, and no program.
pub(crate) const UNREADABLE: &str = "(unreadable)";

/// The members of `tools`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolSettings {
    /// The built-in tools to offer; `None` for those of every session.
    pub built_in: Option<Vec<String>>,
    /// What narrows the tools of every session.
    pub policy: ToolPolicy,
    /// What narrows those of sub-agents.
    pub sub_agents: NameLists,
    /// When loops of calls are reported and broken; `None` for never.
    pub loops: Option<LoopSettings>,
}

impl ToolSettings {
    /// The values that were checked, by the names of the settings.
    pub(super) fn of<'a>(value: &dyn Fn(&str) -> Option<&'a Value>) -> Self {
        let texts = |name: &str| value(name).map(list_of).unwrap_or_default();
        let flag = |name: &str, default: bool| value(name).and_then(Value::as_bool).unwrap_or(default);
        let number = |name: &str, default: usize| {
            let number = value(name).and_then(Value::as_u64);
            number.map_or(default, |number| usize::try_from(number).unwrap_or(usize::MAX))
        };
        let default = LoopSettings::default();
        let LoopSettings { history_size, warning, unknown_tool, critical, breaker, detectors } = default;
        let loops = LoopSettings {
            history_size: number("tools.loopDetection.historySize", history_size),
            warning: number("tools.loopDetection.warning", warning),
            unknown_tool: number("tools.loopDetection.unknownTool", unknown_tool),
            critical: number("tools.loopDetection.critical", critical),
            breaker: number("tools.loopDetection.breaker", breaker),
            detectors: LoopDetectors {
                generic_repeat: flag("tools.loopDetection.genericRepeat", detectors.generic_repeat),
                known_poll_no_progress: flag(
                    "tools.loopDetection.knownPollNoProgress",
                    detectors.known_poll_no_progress,
                ),
                ping_pong: flag("tools.loopDetection.pingPong", detectors.ping_pong),
            },
        };
        Self {
            built_in: value("tools.builtIn").map(list_of),
            policy: ToolPolicy {
                profile: value("tools.profile").and_then(Value::as_str).and_then(ToolProfile::of_word),
                allow: texts("tools.allow"),
                also_allow: texts("tools.alsoAllow"),
                deny: texts("tools.deny"),
                by_provider: provider_policies(value("tools.byProvider")),
                by_group: group_policies(value("tools.byGroup")),
                by_sender: sender_policies(value("tools.bySender")),
                sandbox: NameLists {
                    allow: texts("tools.sandbox.allow"),
                    also_allow: texts("tools.sandbox.alsoAllow"),
                    deny: texts("tools.sandbox.deny"),
                },
            },
            sub_agents: NameLists {
                allow: texts("tools.subagents.allow"),
                also_allow: texts("tools.subagents.alsoAllow"),
                deny: texts("tools.subagents.deny"),
            },
            loops: flag("tools.loopDetection.enabled", false).then_some(loops),
        }
    }
}

/// What takes the place of a value that narrows tools or confines commands and cannot be read: without it, tools would be offered that
/// somebody wanted to take away, and commands would run where somebody wanted them not to.
pub(super) fn closed(
    name: &str,
    value: Option<Value>,
    mut problems: Vec<String>,
) -> (Option<Value>, Vec<String>) {
    if problems.is_empty() {
        return (value, problems);
    }
    let is_left = value.as_ref().and_then(Value::as_array).is_some_and(|left| !left.is_empty());
    let (value, until) = match name {
        "tools.profile" => (json!("minimal"), "it is `minimal` until it is corrected"),
        "tools.allow" | "tools.subagents.allow" | "tools.sandbox.allow" if !is_left => {
            (json!([UNREADABLE]), "no tools are offered until it is corrected")
        }
        "tools.deny" | "tools.subagents.deny" | "tools.sandbox.deny" => {
            (json!(["*"]), "no tools are offered until it is corrected")
        }
        "sandbox.mode" => (json!("all"), "all sessions work in a sandbox until it is corrected"),
        "sandbox.backend" => (json!(UNREADABLE), "commands in sandboxes do not run until it is corrected"),
        "sandbox.network" => (json!("closed"), "commands reach no network until it is corrected"),
        "sandbox.scope" => (json!("session"), "no sessions share a sandbox until it is corrected"),
        "sandbox.runtime" => (json!(UNREADABLE), "commands in containers do not run until it is corrected"),
        // What is wrong with single members is said of these.
        "tools.byProvider" | "tools.byGroup" | "tools.bySender" if value.is_none() => {
            (closed_members(), "no tools are offered by it until it is corrected")
        }
        "agents.byId" if value.is_none() => {
            let agents = json!({ super::named_agents::EVERY: super::named_agents::closed() });
            (agents, "agents get no tools and call no model until it is corrected")
        }
        _ => return (value, problems),
    };
    problems.push(format!("{name} cannot be read: {until}"));
    (Some(value), problems)
}
