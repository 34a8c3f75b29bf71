//! Whether a value is one that its setting may have.

use std::path::Path;
use std::time::Duration;

use quipu::{AGENT_PURPOSE, IMAGE_PURPOSE, PLANS_PURPOSE, PublishSettings, RunnerPurpose};
use quipu_providers::{CallSettings, EmbedderSettings};
use quipu_schedule::{Recurrence, Schedule, ScheduleError};
use serde_json::{Map, Value, json};

use super::table::{Item, Key, Kind};
use super::tool_policies::{check_table, is_entry};
use super::{messages, named_agents};
use crate::offered_tools::LISTED_TOOLS;
use crate::purposes::{DREAM_PURPOSE, FLUSH_PURPOSE, PAST_PURPOSE};

/// Purposes of the engine's own calls that can have a model.
const OWN_PURPOSES: [&str; 2] = ["compaction", "branch_summary"];
/// Purposes of everything that this program begins by itself. Code that is built in can have others.
const PURPOSES: [&str; 8] = [
    OWN_PURPOSES[0],
    OWN_PURPOSES[1],
    PLANS_PURPOSE,
    AGENT_PURPOSE,
    IMAGE_PURPOSE,
    DREAM_PURPOSE,
    FLUSH_PURPOSE,
    PAST_PURPOSE,
];

/// The usable part of a value, and the problems with the rest.
pub(super) struct CheckedValue {
    pub(super) value: Option<Value>,
    pub(super) problems: Vec<String>,
}

impl CheckedValue {
    /// The usable members of an object, and the problems with the rest.
    fn of((good, problems): (Map<String, Value>, Vec<String>)) -> Self {
        Self { value: Some(Value::Object(good)), problems }
    }

    fn good(value: &Value) -> Self {
        Self { value: Some(value.clone()), problems: Vec::new() }
    }
}

/// A value of a file. What is said of it names its key.
pub(super) fn check(key: &Key, value: &Value) -> CheckedValue {
    let CheckedValue { value, problems } = checked(key, value);
    let (value, problems) = super::tools::closed(key.name, value, problems);
    CheckedValue { value, problems }
}

fn checked(key: &Key, value: &Value) -> CheckedValue {
    let name = key.name;
    let is_good = match key.kind {
        Kind::Flag => value.is_boolean(),
        Kind::Number { least, most } => value.as_u64().is_some_and(|number| (least..=most).contains(&number)),
        Kind::Amount => value.as_f64().is_some_and(|amount| amount > 0.0),
        Kind::Text => value.as_str().is_some_and(|text| !text.is_empty()),
        Kind::Cron => match value.as_str().map(cron_problem) {
            Some(None) => true,
            Some(Some(problem)) => {
                return CheckedValue { value: None, problems: vec![format!("{name}: {problem}")] };
            }
            None => false,
        },
        Kind::Word(words) => value.as_str().is_some_and(|word| words.contains(&word)),
        Kind::List(item) => match value {
            Value::Array(items) => return check_list(name, item, items),
            _ => false,
        },
        Kind::PurposeModels => match value {
            Value::Object(models) => return check_purposes(name, models),
            _ => false,
        },
        Kind::PurposeBudgets => match value {
            Value::Object(amounts) => return check_budgets(name, amounts),
            _ => false,
        },
        Kind::ToolPolicies(table) => match value {
            Value::Object(members) => return CheckedValue::of(check_table(name, table, members)),
            _ => false,
        },
        Kind::ChannelWords(words) => match value {
            Value::Object(channels) => return CheckedValue::of(messages::check_words(name, words, channels)),
            _ => false,
        },
        Kind::ChannelTimes => match value {
            Value::Object(channels) => return CheckedValue::of(messages::check_times(name, channels)),
            _ => false,
        },
        Kind::Resets(names) => match value {
            Value::Object(rules) => return CheckedValue::of(messages::check_resets(name, names, rules)),
            _ => false,
        },
        Kind::Turns(names) => match value {
            Value::Object(limits) => return CheckedValue::of(messages::check_turns(name, names, limits)),
            _ => false,
        },
        Kind::Agents => match value {
            Value::Object(agents) => return CheckedValue::of(named_agents::check(name, agents)),
            _ => false,
        },
        Kind::Servers => match value {
            Value::Object(_) | Value::Bool(false) => {
                let (_, problems) = CallSettings::of_json(&json!({ name: value }));
                return CheckedValue { value: Some(value.clone()), problems };
            }
            _ => false,
        },
        Kind::Semantic => match EmbedderSettings::of_json(&json!({ "search": { "semantic": value } })) {
            Ok(_) => true,
            Err(problem) => return CheckedValue { value: None, problems: vec![problem.to_string()] },
        },
        Kind::Hooks => match value {
            Value::Object(_) => {
                let problems = crate::command_hooks::problems_of(value);
                return CheckedValue { value: Some(value.clone()), problems };
            }
            _ => false,
        },
    };
    if is_good {
        return CheckedValue::good(value);
    }
    CheckedValue { value: None, problems: vec![format!("{name} must be {}", key.kind.wanted())] }
}

/// Why a cron expression names no times.
fn cron_problem(expression: &str) -> Option<ScheduleError> {
    let named = Recurrence::Cron { expression: expression.to_owned(), zone: "UTC".to_owned() };
    Schedule::of(&named, Duration::ZERO, "").err()
}

/// The purposes that exist, with names of models.
fn check_purposes(name: &str, models: &Map<String, Value>) -> CheckedValue {
    let (mut good, mut problems) = (Map::new(), Vec::new());
    for (purpose, model) in models {
        let is_own = OWN_PURPOSES.contains(&purpose.as_str());
        if !is_own && RunnerPurpose::new(purpose).is_err() {
            problems.push(format!("{name}.{purpose} is ignored: there is no such purpose"));
        } else if model.as_str().is_some_and(|model| !model.trim().is_empty()) {
            if !PURPOSES.contains(&purpose.as_str()) {
                let known = PURPOSES.join(", ");
                problems
                    .push(format!("{name}.{purpose}: nothing in Quipu has this purpose; there are {known}"));
            }
            good.insert(purpose.clone(), model.clone());
        } else {
            problems.push(format!("{name}.{purpose} must be the name of a model; it is ignored"));
        }
    }
    CheckedValue { value: Some(Value::Object(good)), problems }
}

/// Amounts for purposes that a runner can have.
fn check_budgets(name: &str, amounts: &Map<String, Value>) -> CheckedValue {
    let (mut good, mut problems) = (Map::new(), Vec::new());
    for (purpose, amount) in amounts {
        if RunnerPurpose::new(purpose).is_err() {
            problems.push(format!("{name}.{purpose} is ignored: there is no such purpose"));
        } else if amount.as_f64().is_some_and(|amount| amount >= 0.0) {
            good.insert(purpose.clone(), amount.clone());
        } else {
            problems
                .push(format!("{name}.{purpose} must be an amount in US dollars, 0 or more; it counts as 0"));
            good.insert(purpose.clone(), Value::from(0));
        }
    }
    CheckedValue { value: Some(Value::Object(good)), problems }
}

/// What of a list can be used.
fn check_list(name: &str, item: Item, items: &[Value]) -> CheckedValue {
    let (mut good, mut problems) = (Vec::new(), Vec::new());
    for (at, value) in items.iter().enumerate() {
        if item.fits(value) {
            if item == Item::Head && good.len() == PublishSettings::MOST {
                problems
                    .push(format!("{name} can name {} heads; the others are ignored", PublishSettings::MOST));
                break;
            }
            if item != Item::Head || !good.contains(value) {
                good.push(value.clone());
            }
        } else if item == Item::Model {
            // Half of the names would be other models than those that are meant.
            let problems = vec![format!("{name} must be {}", Kind::List(item).wanted())];
            return CheckedValue { value: None, problems };
        } else {
            problems.push(format!("{name}[{at}] must be {}; it is ignored", item.wanted()));
        }
    }
    CheckedValue { value: Some(Value::Array(good)), problems }
}

impl Item {
    fn fits(self, value: &Value) -> bool {
        let text = value.as_str();
        match self {
            Self::Model => text.is_some(),
            Self::Credential => text.is_some_and(|text| !text.is_empty()),
            Self::Head => text.is_some_and(PublishSettings::is_head),
            Self::Directory => text.is_some_and(|text| text.starts_with(['/', '~'])),
            Self::Writable => {
                text.is_some_and(|text| text == "default" || text.starts_with('/') || text.starts_with("~/"))
            }
            Self::Port => value.as_u64().is_some_and(|port| (1..=65_535).contains(&port)),
            Self::Mount => text.is_some_and(|text| super::container::mount_of(text).is_some()),
            Self::Variable => text.is_some_and(|text| !text.is_empty() && !text.contains(['=', '\0'])),
            Self::Rule => text.is_some_and(|text| quipu::rules::Rule::parse(text).is_ok()),
            Self::Tool => text.is_some_and(|text| LISTED_TOOLS.contains(&text)),
            Self::ToolName => is_entry(value),
            Self::ToolPattern => is_entry(value) && text.is_some_and(|text| !text.starts_with("group:")),
            Self::Service => text.is_some_and(|text| Path::new(text).is_absolute() || is_address(text)),
        }
    }

    fn wanted(self) -> &'static str {
        match self {
            Self::Model => "the name of a model",
            Self::Credential => "the name of a key: PROVIDER, or PROVIDER:NAME",
            Self::Head => {
                "the name of another program's head, such as \"PI_HEAD\" (letters, digits, `_`, `-`, `.`; not beginning with \
                 `quipu`)"
            }
            Self::Directory => "an absolute path, or one below `~`",
            Self::Writable => "an absolute path, one below `~/`, or `default`",
            Self::Port => "a port (1 to 65535)",
            Self::Mount => "`HOST:PLACE` or `HOST:PLACE:rw`, both absolute paths",
            Self::Variable => "the name of a variable",
            Self::Rule => "a permission rule, such as `bash(git status *)`",
            Self::Tool => "`read`, `bash`, `edit`, `write`, `grep`, `find`, `ls` or `web_fetch`",
            Self::ToolPattern => "the name of a tool, or a pattern with `*`",
            Self::ToolName => "the name of a tool, a pattern with `*`, or a group such as `group:fs`",
            Self::Service => "`HOST:PORT`, or the absolute path of a socket",
        }
    }
}

fn is_address(text: &str) -> bool {
    text.rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0))
}

/// A value as it is written where everything is text: in a variable, or on a command line.
///
/// # Errors
/// What is wrong with it.
pub(super) fn read_words(key: &Key, words: &str) -> Result<Value, String> {
    let value = match key.kind {
        Kind::Text | Kind::Cron | Kind::Word(_) => Value::from(words),
        Kind::Flag => match words.to_ascii_lowercase().as_str() {
            "true" | "1" | "on" | "yes" => Value::Bool(true),
            "false" | "0" | "off" | "no" => Value::Bool(false),
            _ => Value::from(words),
        },
        Kind::List(item) => match serde_json::from_str(words) {
            Ok(list @ Value::Array(_)) => list,
            _ => {
                let one = |word: &str| match item {
                    Item::Port => word.parse::<u64>().map_or_else(|_| Value::from(word), Value::from),
                    _ => Value::from(word),
                };
                words.split(',').map(str::trim).filter(|word| !word.is_empty()).map(one).collect()
            }
        },
        Kind::Number { .. }
        | Kind::Amount
        | Kind::PurposeModels
        | Kind::PurposeBudgets
        | Kind::ToolPolicies(_)
        | Kind::ChannelWords(_)
        | Kind::ChannelTimes
        | Kind::Resets(_)
        | Kind::Turns(_)
        | Kind::Agents
        | Kind::Servers
        | Kind::Semantic
        | Kind::Hooks => serde_json::from_str(words).unwrap_or_else(|_| Value::from(words)),
    };
    let CheckedValue { value, problems } = check(key, &value);
    match problems.into_iter().next() {
        Some(problem) => Err(problem),
        None => value.ok_or_else(|| format!("{} must be {}", key.name, key.kind.wanted())),
    }
}
