//! Agents by their ids: `agents.byId`.

use std::collections::BTreeMap;

use quipu_policy::ToolPolicy;
use serde_json::{Map, Value, json};

use super::heartbeat;
use super::tool_policies::{check_agent, no_tools, policy_of};

/// Agents at most.
const AGENTS: usize = 256;
/// Characters of an id at most.
const ID: usize = 64;
/// Stands for every agent, where ids cannot be read. No settings can name it.
pub(crate) const EVERY: &str = "*";

/// What is set for an agent.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NamedAgent {
    /// The model of its sessions, when they are opened: `provider/id`, or a part of a name.
    pub model: Option<String>,
    /// The directory that it works in, as it is written.
    pub workspace: Option<String>,
    /// What narrows its tools.
    pub tools: Option<ToolPolicy>,
    /// What all of its sessions may use in a day.
    pub budget: AgentBudget,
    /// When it looks after things by itself, as it is written; none where it does not.
    pub heartbeat: Option<Value>,
}

/// What an agent may use in one calendar day.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct AgentBudget {
    /// US dollars; `None` for no limit.
    pub daily: Option<f64>,
    /// Tokens; `None` for no limit.
    pub daily_tokens: Option<u64>,
}

/// The values that were checked.
pub(super) fn of(value: Option<&Value>) -> BTreeMap<String, NamedAgent> {
    let agents = value.and_then(Value::as_object).into_iter().flatten();
    let agents = agents.map(|(id, agent)| {
        let text = |name: &str| agent[name].as_str().map(str::to_owned);
        let (tools, heartbeat) = (agent.get("tools").map(policy_of), agent.get("heartbeat").cloned());
        let budget = AgentBudget {
            daily: agent["budget"]["daily"].as_f64(),
            daily_tokens: agent["budget"]["dailyTokens"].as_u64(),
        };
        let (model, workspace) = (text("model"), text("workspace"));
        (id.clone(), NamedAgent { model, workspace, tools, budget, heartbeat })
    });
    agents.collect()
}

/// The agent of an id; where ids could not be read, what stands for every agent.
pub(super) fn named<'a>(agents: &'a BTreeMap<String, NamedAgent>, id: &str) -> Option<&'a NamedAgent> {
    agents.get(id).or_else(|| agents.get(EVERY))
}

/// What stands for agents that cannot be read: no tools, and nothing to spend.
pub(super) fn closed() -> Value {
    json!({ "tools": no_tools(), "budget": { "daily": 0 } })
}

/// Whether a budget can be read.
fn is_budget(value: &Value) -> bool {
    value.as_object().is_some_and(|members| {
        members.iter().all(|(member, value)| match member.as_str() {
            "daily" => value.as_f64().is_some_and(|dollars| dollars >= 0.0),
            "dailyTokens" => value.as_u64().is_some(),
            _ => false,
        })
    })
}

/// Agents with ids that keys of conversations can have. One that cannot be read gets no tools and calls no model.
pub(super) fn check(name: &str, agents: &Map<String, Value>) -> (Map<String, Value>, Vec<String>) {
    let (mut good, mut problems) = (Map::new(), Vec::new());
    for (id, agent) in agents {
        let shown: String = id.chars().filter(|letter| !letter.is_control()).take(ID).collect();
        if good.len() == AGENTS {
            problems
                .push(format!("{name} can name {AGENTS} agents; the others get no tools and call no model"));
            good.insert(EVERY.to_owned(), closed());
            break;
        }
        let Some(members) = agent.as_object().filter(|_| is_id(id)) else {
            problems.push(format!(
                "{name}.{shown} is ignored: an id has 1 to {ID} of the letters a-z, digits, `_` and `-`, and its agent is an object; until it is corrected, agents without settings get no tools and call no model"
            ));
            good.insert(EVERY.to_owned(), closed());
            continue;
        };
        let mut kept = Map::new();
        for (member, value) in members {
            let fits = match member.as_str() {
                "model" => value.as_str().is_some_and(|model| !model.trim().is_empty()),
                "workspace" => value.as_str().is_some_and(|path| path.starts_with(['/', '~'])),
                "tools" => {
                    let (value, wrong) = check_agent(&format!("{name}.{shown}.tools"), value);
                    problems.extend(wrong);
                    kept.insert(member.clone(), value);
                    continue;
                }
                "budget" => {
                    let is_good = is_budget(value);
                    if !is_good {
                        problems.push(format!(
                            "{name}.{shown}.budget must be an object with `daily` (US dollars, 0 or more) and `dailyTokens` (a whole number, 0 or more); until it is corrected, the agent calls no model"
                        ));
                    }
                    kept.insert(member.clone(), if is_good { value.clone() } else { json!({ "daily": 0 }) });
                    continue;
                }
                "heartbeat" => {
                    let (value, wrong) = heartbeat::check(&format!("{name}.{shown}.heartbeat"), value);
                    problems.extend(wrong);
                    kept.extend(value.map(|value| (member.clone(), value)));
                    continue;
                }
                _ => false,
            };
            if fits {
                kept.insert(member.clone(), value.clone());
            } else {
                let member: String = member.chars().filter(|letter| !letter.is_control()).take(ID).collect();
                problems.push(format!(
                    "{name}.{shown}.{member} is ignored: an agent has a `model`, a `workspace` that is an absolute path or one below `~`, `tools`, a `budget` and a `heartbeat`"
                ));
            }
        }
        good.insert(id.clone(), Value::Object(kept));
    }
    (good, problems)
}

fn is_id(id: &str) -> bool {
    let fits = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || "_-".contains(letter);
    !id.is_empty() && id.len() <= ID && id.chars().all(fits)
}
