//! Policies of tools by provider, group and sender, and those of an agent: what of them can be read, and what takes the place of the
//! rest.
//!
//! What narrows tools and cannot be read would leave tools that somebody wanted to take away. So it takes away all.

use std::collections::BTreeMap;

use quipu_policy::{NameLists, SenderPolicy, ToolPolicy, ToolProfile};
use serde_json::{Map, Value, json};

/// Members of an object of policies at most.
const MOST: usize = 1_000;
/// Characters of a key in a message at most.
const SHOWN: usize = 80;
/// The key for all that have no member of their own.
const OTHERS: &str = "*";

/// Which policies stand in an object, and by which keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyTable {
    /// By `provider` or `provider/model`.
    Providers,
    /// By `channel:room` or `channel:*`.
    Groups,
    /// By `id:`, `e164:` or `username:`.
    Senders,
}

/// The members that hold policies.
const LISTS: [&str; 3] = ["allow", "alsoAllow", "deny"];

/// The policy that takes all tools: what holds where one cannot be read.
pub(crate) fn no_tools() -> Value {
    json!({ "deny": ["*"] })
}

/// A table of policies of which nothing can be read.
pub(crate) fn closed_members() -> Value {
    json!({ OTHERS: no_tools() })
}

impl PolicyTable {
    fn members(self) -> &'static [&'static str] {
        match self {
            Self::Providers => &["profile", "allow", "alsoAllow", "deny"],
            Self::Groups => &["allow", "alsoAllow", "deny", "bySender"],
            Self::Senders => &LISTS,
        }
    }

    /// Whom its members are about.
    fn of(self) -> &'static str {
        match self {
            Self::Providers => "its models get",
            Self::Groups => "the group gets",
            Self::Senders => "the sender gets",
        }
    }

    /// Why a key is none.
    fn key_problem(self, key: &str) -> Option<&'static str> {
        let key = key.trim();
        let is_good = match self {
            Self::Providers => !key.is_empty(),
            Self::Groups => {
                key == OTHERS
                    || key
                        .split_once(':')
                        .is_some_and(|(channel, room)| !channel.is_empty() && !room.is_empty())
            }
            Self::Senders => {
                let kinds = ["id", "e164", "username"];
                let is_kind = |(kind, rest): (&str, &str)| {
                    !rest.is_empty() && kinds.contains(&&*kind.to_ascii_lowercase())
                };
                key == OTHERS || key.split_once(':').is_some_and(is_kind)
            }
        };
        let wanted = match self {
            Self::Providers => "a provider",
            Self::Groups => "`channel:room`, `channel:*` or `*`",
            // Anybody can have the name of somebody.
            Self::Senders => "`id:…`, `e164:…`, `username:…` or `*`",
        };
        (!is_good).then_some(wanted)
    }
}

/// A table of policies. A member that cannot be read offers no tools; a key that cannot be read closes all that have no key of
/// their own. Also what is wrong.
pub(super) fn check_table(
    name: &str,
    table: PolicyTable,
    members: &Map<String, Value>,
) -> (Map<String, Value>, Vec<String>) {
    let (mut good, mut problems) = (Map::new(), Vec::new());
    let mut is_open = true;
    for (key, value) in members {
        let shown: String = key.chars().filter(|letter| !letter.is_control()).take(SHOWN).collect();
        if good.len() == MOST {
            problems.push(format!("{name} can have {MOST} members; the others get no tools"));
            is_open = false;
            break;
        }
        if let Some(wanted) = table.key_problem(key) {
            problems.push(format!(
                "{name}.{shown}: a key is {wanted}; until it is corrected, whoever has no other key gets no tools"
            ));
            is_open = false;
            continue;
        }
        let (value, wrong) = check_policy(&format!("{name}.{shown}"), table.members(), value, table.of());
        problems.extend(wrong);
        good.insert(key.clone(), value);
    }
    if !is_open {
        good.insert(OTHERS.to_owned(), no_tools());
    }
    (good, problems)
}

/// The policy of an agent, and what is wrong with it.
pub(super) fn check_agent(name: &str, value: &Value) -> (Value, Vec<String>) {
    let members = ["profile", "allow", "alsoAllow", "deny", "byProvider", "byGroup", "bySender", "sandbox"];
    check_policy(name, &members, value, "the agent gets")
}

/// A policy with these members, or the closed one; and what is wrong. `of` says who gets no tools then.
fn check_policy(name: &str, members: &[&str], value: &Value, of: &str) -> (Value, Vec<String>) {
    let refused = |why: String| (no_tools(), vec![format!("{why}; {of} no tools until it is corrected")]);
    let Some(written) = value.as_object() else { return refused(format!("{name} must be an object")) };
    let (mut kept, mut problems) = (Map::new(), Vec::new());
    for (member, value) in written {
        let is_known = members.contains(&&**member);
        let tables = [
            ("byProvider", PolicyTable::Providers),
            ("byGroup", PolicyTable::Groups),
            ("bySender", PolicyTable::Senders),
        ];
        let table = tables.into_iter().find(|(table, _)| table == member).map(|(_, table)| table);
        let wrong = match (member.as_str(), table) {
            _ if !is_known => {
                let shown: String =
                    member.chars().filter(|letter| !letter.is_control()).take(SHOWN).collect();
                let known = members.join(", ");
                Some(format!("{name} has a member {shown:?}; there are {known}"))
            }
            (_, Some(table)) => match value.as_object() {
                Some(inner) => {
                    let (inner, wrong) = check_table(&format!("{name}.{member}"), table, inner);
                    problems.extend(wrong);
                    kept.insert(member.clone(), Value::Object(inner));
                    continue;
                }
                None => Some(format!("{name}.{member} must be an object")),
            },
            ("sandbox", None) => {
                let (inner, wrong) =
                    check_policy(&format!("{name}.sandbox"), &["allow", "alsoAllow", "deny"], value, of);
                problems.extend(wrong);
                kept.insert(member.clone(), inner);
                continue;
            }
            ("profile", None) => value
                .as_str()
                .and_then(ToolProfile::of_word)
                .is_none()
                .then(|| format!("{name} has a profile that is not minimal, messaging, coding or full")),
            (list, None) => {
                let is_list = value.as_array().is_some_and(|items| items.iter().all(is_entry));
                (!is_list).then(|| format!("{name} has {list} that is no list of names"))
            }
        };
        match wrong {
            Some(wrong) => return refused(wrong),
            None => drop(kept.insert(member.clone(), value.clone())),
        }
    }
    (Value::Object(kept), problems)
}

/// Whether a value can stand in a list of tools.
pub(super) fn is_entry(value: &Value) -> bool {
    value.as_str().is_some_and(|text| quipu_policy::NamePattern::parse(text).is_some())
}

pub(super) fn list_of(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn lists_of(value: &Value) -> NameLists {
    let list = |name: &str| value.get(name).map(list_of).unwrap_or_default();
    NameLists { allow: list("allow"), also_allow: list("alsoAllow"), deny: list("deny") }
}

/// A policy that was checked.
pub(super) fn policy_of(value: &Value) -> ToolPolicy {
    let NameLists { allow, also_allow, deny } = lists_of(value);
    ToolPolicy {
        profile: value.get("profile").and_then(Value::as_str).and_then(ToolProfile::of_word),
        allow,
        also_allow,
        deny,
        by_provider: provider_policies(value.get("byProvider")),
        by_group: group_policies(value.get("byGroup")),
        by_sender: sender_policies(value.get("bySender")),
        sandbox: value.get("sandbox").map(lists_of).unwrap_or_default(),
    }
}

/// Policies by provider that were checked.
pub(super) fn provider_policies(value: Option<&Value>) -> BTreeMap<String, ToolPolicy> {
    members_of(value).map(|(key, value)| (key.clone(), policy_of(value))).collect()
}

/// Policies by group that were checked.
pub(super) fn group_policies(value: Option<&Value>) -> BTreeMap<String, ToolPolicy> {
    provider_policies(value)
}

/// Lists by sender that were checked.
pub(super) fn sender_policies(value: Option<&Value>) -> SenderPolicy {
    members_of(value).map(|(key, value)| (key.clone(), lists_of(value))).collect()
}

fn members_of(value: Option<&Value>) -> impl Iterator<Item = (&String, &Value)> {
    value.and_then(Value::as_object).into_iter().flatten()
}
