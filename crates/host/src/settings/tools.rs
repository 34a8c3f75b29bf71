//! The members of `tools`: which tools are offered, and when calls that go in circles are stopped.

use std::collections::BTreeMap;

use quipu_policy::{LoopDetectors, LoopSettings, NameLists, ToolPolicy, ToolProfile};
use serde_json::{Map, Value, json};

/// An entry that is the name of no tool.
const UNREADABLE: &str = "(unreadable)";
/// Providers and models in `tools.byProvider` at most.
const MOST_PROVIDERS: usize = 256;

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
        let by_provider = value("tools.byProvider").and_then(Value::as_object).into_iter().flatten();
        Self {
            built_in: value("tools.builtIn").map(list_of),
            policy: ToolPolicy {
                profile: value("tools.profile").and_then(Value::as_str).and_then(ToolProfile::of_word),
                allow: texts("tools.allow"),
                also_allow: texts("tools.alsoAllow"),
                deny: texts("tools.deny"),
                by_provider: by_provider.map(|(key, value)| (key.clone(), policy_of(value))).collect(),
                by_sender: BTreeMap::new(),
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

fn list_of(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// What takes the place of a value that narrows tools and cannot be read: without it, tools would be offered that somebody wanted to
/// take away.
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
        "tools.allow" | "tools.subagents.allow" if !is_left => {
            (json!([UNREADABLE]), "no tools are offered until it is corrected")
        }
        "tools.deny" | "tools.subagents.deny" => (json!(["*"]), "no tools are offered until it is corrected"),
        _ => return (value, problems),
    };
    problems.push(format!("{name} cannot be read: {until}"));
    (Some(value), problems)
}

/// A member of `tools.byProvider`.
fn policy_of(value: &Value) -> ToolPolicy {
    let list = |name: &str| value.get(name).map(list_of).unwrap_or_default();
    ToolPolicy {
        profile: value.get("profile").and_then(Value::as_str).and_then(ToolProfile::of_word),
        allow: list("allow"),
        also_allow: list("alsoAllow"),
        deny: list("deny"),
        ..ToolPolicy::default()
    }
}

/// The members of `tools.byProvider`. One that cannot be read would leave tools that somebody wanted to take away, so its model
/// gets none. Also what is wrong with them.
pub(super) fn check_providers(name: &str, members: &Map<String, Value>) -> (Value, Vec<String>) {
    let (mut good, mut problems) = (Map::new(), Vec::new());
    for (key, value) in members {
        if good.len() == MOST_PROVIDERS {
            problems.push(format!("{name} can have {MOST_PROVIDERS} members; the others are ignored"));
            break;
        }
        match problem_of(value) {
            None => drop(good.insert(key.clone(), value.clone())),
            Some(why) => {
                problems.push(format!("{name}.{key} {why}; its models get no tools until it is corrected"));
                good.insert(key.clone(), json!({ "deny": ["*"] }));
            }
        }
    }
    (Value::Object(good), problems)
}

fn problem_of(value: &Value) -> Option<String> {
    let Some(members) = value.as_object() else { return Some("must be an object".to_owned()) };
    members.iter().find_map(|(name, value)| match name.as_str() {
        "profile" if value.as_str().and_then(ToolProfile::of_word).is_some() => None,
        "profile" => Some("has a profile that is not minimal, messaging, coding or full".to_owned()),
        "allow" | "alsoAllow" | "deny" => {
            let is_list = value.as_array().is_some_and(|items| items.iter().all(is_entry));
            (!is_list).then(|| format!("has {name} that is no list of names"))
        }
        _ => Some(format!("has a member {name:?}; there are profile, allow, alsoAllow and deny")),
    })
}

/// Whether a value can stand in a list of tools.
pub(super) fn is_entry(value: &Value) -> bool {
    value.as_str().is_some_and(|text| quipu_policy::NamePattern::parse(text).is_some())
}
