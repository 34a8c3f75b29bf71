//! Policies of tools in the form of another gateway, and in ours.

use serde_json::{Map, Value, json};

use super::includes::{INCLUDE, has_include};
use crate::settings::{check_setting, no_tools};

/// The setting of policies by provider.
pub(super) const PROVIDERS: &str = "tools.byProvider";
/// The setting of policies by sender.
pub(super) const SENDERS: &str = "tools.bySender";
/// The setting of policies by room.
pub(super) const GROUPS: &str = "tools.byGroup";
/// The key that counts where no other one does.
const ANY: &str = "*";
/// The members of a policy that say the same here.
const LISTS: [&str; 3] = ["allow", "alsoAllow", "deny"];
/// Where a channel keeps its rooms.
const ROOMS: [&str; 2] = ["groups", "channels"];

/// What of a policy is taken over.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct TakenMembers {
    /// In our form.
    pub(super) members: Map<String, Value>,
    /// What is not, by its name, and why.
    pub(super) left: Vec<(String, String)>,
}

impl TakenMembers {
    fn leave(&mut self, key: String, why: &str) {
        self.left.push((key, why.to_owned()));
    }
}

const UNKNOWN: &str = "there is no such setting here";
const MISSING: &str = "a file that it includes cannot be read";

/// Whether a file is missing of an object itself, whose members may have said less.
fn is_partial(value: &Value) -> bool {
    value.get(INCLUDE).is_some()
}

/// `tools` of an agent.
pub(super) fn agent(key: &str, theirs: &Value) -> TakenMembers {
    let mut taken = TakenMembers::default();
    for (member, value) in theirs.as_object().into_iter().flatten() {
        let at = format!("{key}.{member}");
        match member.as_str() {
            "profile" | "byProvider" => drop(taken.members.insert(member.clone(), value.clone())),
            list if LISTS.contains(&list) => drop(taken.members.insert(member.clone(), value.clone())),
            // What cannot be read is not nothing: checks refuse it, and the agent gets no tools.
            "toolsBySender" if !value.is_object() => {
                drop(taken.members.insert("bySender".to_owned(), value.clone()));
            }
            "sandbox" if !is_sandbox(value) => drop(taken.members.insert(member.clone(), value.clone())),
            "toolsBySender" => {
                let of = senders(&at, value);
                taken.left.extend(of.left);
                if !of.members.is_empty() {
                    taken.members.insert("bySender".to_owned(), Value::Object(of.members));
                }
            }
            "sandbox" => {
                let mut lists = Map::new();
                for (member, value) in value.get("tools").and_then(Value::as_object).into_iter().flatten() {
                    match member.as_str() {
                        list if LISTS.contains(&list) => drop(lists.insert(member.clone(), value.clone())),
                        _ => taken.leave(format!("{at}.tools.{member}"), UNKNOWN),
                    }
                }
                for member in value.as_object().into_iter().flatten().map(|(member, _)| member) {
                    if member != "tools" {
                        taken.leave(format!("{at}.{member}"), UNKNOWN);
                    }
                }
                if !lists.is_empty() {
                    taken.members.insert("sandbox".to_owned(), Value::Object(lists));
                }
            }
            _ => taken.leave(at, UNKNOWN),
        }
    }
    if !theirs.is_object() {
        taken.leave(key.to_owned(), "it is not an object");
    }
    taken
}

/// Whether what a policy says of a sandbox can be read.
fn is_sandbox(value: &Value) -> bool {
    value.is_object() && value.get("tools").is_none_or(Value::is_object)
}

/// Lists by sender. A key without a kind is an id; names are not taken, as anybody can have them. One that cannot be read takes all
/// tools from its sender, and what is no object, or not whole, from every sender that it does not name.
pub(super) fn senders(key: &str, theirs: &Value) -> TakenMembers {
    let mut taken = TakenMembers::default();
    for (sender, value) in theirs.as_object().into_iter().flatten() {
        let at = format!("{key}.{sender}");
        let ours = match sender.split_once(':') {
            _ if sender == INCLUDE => continue,
            _ if sender == ANY => sender.clone(),
            Some(("name", _)) => {
                taken.leave(at, "people choose their names themselves; use `id:`, `e164:` or `username:`");
                continue;
            }
            Some(("id" | "e164" | "username", _)) => sender.clone(),
            _ => format!("id:{}", sender.trim_start_matches('@')),
        };
        let lists = lists(&at, value, &mut taken.left);
        let lists = match check_setting(SENDERS, &json!({ &ours: lists }).to_string()) {
            Ok(_) => lists,
            // No sender can have this key.
            Err(why) if check_setting(SENDERS, &json!({ &ours: {} }).to_string()).is_err() => {
                taken.leave(at, &short(&why));
                continue;
            }
            Err(why) => {
                taken.leave(at, &format!("{}; its sender gets no tools here", short(&why)));
                no_tools()
            }
        };
        taken.members.insert(ours, lists);
    }
    if !theirs.is_object() {
        taken.leave(key.to_owned(), "it is not an object; no sender gets tools here");
        taken.members.insert(ANY.to_owned(), no_tools());
    } else if is_partial(theirs) {
        taken.leave(key.to_owned(), &format!("{MISSING}; senders that it does not name get no tools here"));
        taken.members.insert(ANY.to_owned(), no_tools());
    }
    taken
}

/// Policies by provider. One that cannot be read takes all tools from its models, and one whose key is none from all models that have
/// no other.
pub(super) fn providers(key: &str, theirs: &Value) -> TakenMembers {
    let mut taken = TakenMembers::default();
    let mut is_open = theirs.is_object();
    for (provider, value) in theirs.as_object().into_iter().flatten() {
        let at = format!("{key}.{provider}");
        let checked = check_setting(PROVIDERS, &json!({ provider: value }).to_string());
        match checked {
            _ if provider == INCLUDE => {
                taken.leave(
                    key.to_owned(),
                    &format!("{MISSING}; models that have no other key get no tools here"),
                );
                is_open = false;
            }
            _ if has_include(value) => {
                taken.leave(at, &format!("{MISSING}; its models get no tools here"));
                taken.members.insert(provider.clone(), no_tools());
            }
            Ok(_) => drop(taken.members.insert(provider.clone(), value.clone())),
            Err(_) if provider.trim().is_empty() => {
                taken.leave(at, "it names no provider; models that have no other key get no tools here");
                is_open = false;
            }
            Err(why) => {
                taken.leave(at, &format!("{}; its models get no tools here", short(&why)));
                taken.members.insert(provider.clone(), no_tools());
            }
        }
    }
    if !theirs.is_object() {
        taken.leave(key.to_owned(), "it is not an object; no model gets tools here");
    }
    if !is_open {
        taken.members.insert(ANY.to_owned(), no_tools());
    }
    taken
}

/// What is wrong, without what is about settings that stand in a file already.
fn short(why: &str) -> String {
    why.split(';').next().unwrap_or_default().to_owned()
}

/// The lists of a policy.
fn lists(key: &str, theirs: &Value, left: &mut Vec<(String, String)>) -> Value {
    let mut kept = Map::new();
    let Some(members) = theirs.as_object() else {
        left.push((key.to_owned(), "it is not an object; it gets no tools here".to_owned()));
        return no_tools();
    };
    if has_include(theirs) {
        left.push((key.to_owned(), format!("{MISSING}; it gets no tools here")));
        return no_tools();
    }
    for (member, value) in members {
        match LISTS.contains(&&**member) {
            true => drop(kept.insert(member.clone(), value.clone())),
            false => left.push((format!("{key}.{member}"), UNKNOWN.to_owned())),
        }
    }
    Value::Object(kept)
}

/// Policies of the rooms of channels, by `channel:room`. Rooms that a missing file may name get no tools.
pub(super) fn rooms(key: &str, channels: &Value) -> TakenMembers {
    let mut taken = TakenMembers::default();
    if is_partial(channels) {
        taken.leave(key.to_owned(), &format!("{MISSING}; rooms that it does not name get no tools here"));
        taken.members.insert(ANY.to_owned(), no_tools());
    }
    let channels = channels.as_object().into_iter().flatten();
    for (channel, settings) in channels.filter(|(channel, _)| *channel != INCLUDE) {
        for place in ROOMS {
            let rooms = settings.get(place).and_then(Value::as_object).into_iter().flatten();
            for (room, settings) in rooms.filter(|(room, _)| *room != INCLUDE) {
                let at = format!("{key}.{channel}.{place}.{room}");
                room_policy(&at, (channel, room), settings, &mut taken);
            }
        }
        let guilds = settings.get("guilds").and_then(Value::as_object).into_iter().flatten();
        for (guild, settings) in guilds {
            let at = format!("{key}.{channel}.guilds.{guild}");
            for member in ["tools", "toolsBySender"] {
                if settings.get(member).is_some() {
                    taken.leave(format!("{at}.{member}"), "policies are by channel here, not by server");
                }
            }
            let rooms = settings.get("channels").and_then(Value::as_object).into_iter().flatten();
            for (room, settings) in rooms.filter(|(room, _)| *room != INCLUDE) {
                room_policy(&format!("{at}.channels.{room}"), (channel, room), settings, &mut taken);
            }
        }
        let places = ROOMS.iter().chain(&["guilds"]).filter_map(|place| settings.get(*place));
        let guilds = settings.get("guilds").and_then(Value::as_object).into_iter().flatten();
        let of_guilds = guilds.flat_map(|(_, guild)| [Some(guild), guild.get("channels")]).flatten();
        if places.chain(of_guilds).chain([settings]).any(is_partial) {
            let at = format!("{key}.{channel}");
            taken.leave(at, &format!("{MISSING}; rooms that it does not name get no tools here"));
            taken.members.insert(format!("{channel}:{ANY}"), no_tools());
        }
        if let Some(accounts) = settings.get("accounts") {
            leave_policies(&format!("{key}.{channel}.accounts"), accounts, &mut taken);
        }
        taken.leave(format!("{key}.{channel}"), "there are no chat channels yet");
    }
    taken
}

/// Names the policies of accounts, wherever they stand.
fn leave_policies(key: &str, settings: &Value, taken: &mut TakenMembers) {
    for (member, value) in settings.as_object().into_iter().flatten() {
        let at = format!("{key}.{member}");
        match member.as_str() {
            "tools" | "toolsBySender" => taken.leave(at, "policies are by channel here, not by account"),
            _ => leave_policies(&at, value, taken),
        }
    }
}

fn room_policy(key: &str, (channel, room): (&str, &str), settings: &Value, taken: &mut TakenMembers) {
    let mut policy = match settings.get("tools") {
        Some(tools) => lists(&format!("{key}.tools"), tools, &mut taken.left),
        None => json!({}),
    };
    if let Some(theirs) = settings.get("toolsBySender") {
        let of = senders(&format!("{key}.toolsBySender"), theirs);
        taken.left.extend(of.left);
        if !of.members.is_empty() {
            policy["bySender"] = Value::Object(of.members);
        }
    }
    let is_empty = policy.as_object().is_none_or(Map::is_empty);
    let ours = format!("{channel}:{room}");
    if let Err(why) = check_setting(GROUPS, &json!({ &ours: {} }).to_string()) {
        if !is_empty || is_partial(settings) {
            // No room can have this key.
            taken.leave(
                key.to_owned(),
                &format!("{}; rooms that are not named get no tools here", short(&why)),
            );
            taken.members.insert(format!("{channel}:{ANY}"), no_tools());
        }
    } else if is_partial(settings) {
        taken.leave(key.to_owned(), &format!("{MISSING}; it gets no tools here"));
        taken.members.insert(ours, no_tools());
    } else if let Err(why) = check_setting(GROUPS, &json!({ &ours: policy }).to_string()) {
        taken.leave(key.to_owned(), &format!("{}; it gets no tools here", short(&why)));
        taken.members.insert(ours, no_tools());
    } else if !is_empty {
        taken.members.insert(ours, policy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_and_senders_become_ours_with_what_is_left_named() {
        let channels = json!({
            "telegram": { "botToken": "t", "groups": {
                "-100": { "requireMention": true, "tools": { "deny": ["exec"] }, "toolsBySender": {
                    "7": { "alsoAllow": ["exec"] }, "name:Ann": { "deny": ["*"] },
                } },
                "*": { "tools": { "allow": ["read"], "profile": "coding" } },
                "quiet": {},
            }, "accounts": { "work": { "name": "x", "groups": { "-200": { "tools": { "deny": ["exec"] } } } } } },
            "discord": { "guilds": { "1": { "tools": {}, "channels": { "2": { "tools": { "deny": ["*"] } } } } } },
        });
        let TakenMembers { members, left } = rooms("channels", &channels);
        let expect = json!({
            "discord:2": { "deny": ["*"] },
            "telegram:*": { "allow": ["read"] },
            "telegram:-100": { "deny": ["exec"], "bySender": { "id:7": { "alsoAllow": ["exec"] } } },
        });
        assert_eq!(Value::Object(members), expect);
        let mut left: Vec<String> = left.into_iter().map(|(key, _)| key).collect();
        left.sort();
        assert_eq!(
            left,
            [
                "channels.discord",
                "channels.discord.guilds.1.tools",
                "channels.telegram",
                "channels.telegram.accounts.work.groups.-200.tools",
                "channels.telegram.groups.*.tools.profile",
                "channels.telegram.groups.-100.toolsBySender.name:Ann",
            ]
        );
    }

    #[test]
    fn policy_of_an_agent_keeps_what_has_a_counterpart() {
        let theirs = json!({
            "profile": "coding", "deny": ["gateway"], "elevated": { "enabled": true },
            "toolsBySender": { "id:7": { "deny": ["exec"] } },
            "sandbox": { "tools": { "deny": ["browser"], "alsoAllow": ["cron"] } },
        });
        let TakenMembers { members, left } = agent("a.tools", &theirs);
        let expect = json!({
            "profile": "coding", "deny": ["gateway"],
            "bySender": { "id:7": { "deny": ["exec"] } }, "sandbox": { "deny": ["browser"], "alsoAllow": ["cron"] },
        });
        assert_eq!(Value::Object(members), expect);
        let left: Vec<String> = left.into_iter().map(|(key, _)| key).collect();
        assert_eq!(left, ["a.tools.elevated"]);
        assert_eq!(agent("a.tools", &json!(7)).left.len(), 1);
    }

    #[test]
    fn providers_are_taken_one_by_one() {
        let none = json!({ "deny": ["*"] });
        let theirs = json!({
            "openai": { "deny": ["exec"] }, "x": { "profile": "nix" }, "y/z": 7, "*": { "allow": ["read"] },
        });
        let TakenMembers { members, left } = providers(PROVIDERS, &theirs);
        let expect =
            json!({ "openai": { "deny": ["exec"] }, "x": none, "y/z": none, "*": { "allow": ["read"] } });
        assert_eq!(Value::Object(members), expect);
        let keys: Vec<&str> = left.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["tools.byProvider.x", "tools.byProvider.y/z"]);
        assert!(left.iter().all(|(_, why)| why.ends_with("; its models get no tools here")), "{left:?}");
        for broken in [json!({ " ": {}, "*": {} }), json!(["openai"])] {
            let TakenMembers { members, left } = providers(PROVIDERS, &broken);
            assert_eq!((Value::Object(members), left.len()), (json!({ "*": none }), 1), "{broken}");
        }
    }

    #[test]
    fn policy_that_cannot_be_read_becomes_one_without_tools() {
        use crate::setup::tools_of;
        let none = json!({ "deny": ["*"] });
        for broken in [
            json!({ "toolsBySender": [] }),
            json!({ "sandbox": 7 }),
            json!({ "sandbox": { "tools": ["x"] } }),
            json!({ "profile": "coding", "toolsBySender": "all" }),
        ] {
            let (ours, left) = tools_of("ops", "tools", &broken);
            assert_eq!((ours, left.len()), (Some(none.clone()), 1), "{broken}");
        }
        assert_eq!(tools_of("ops", "tools", &json!({ "sandbox": { "mode": "all" } })).0, None);
        let channels = json!({ "telegram": { "groups": { "-1": { "toolsBySender": [] } } } });
        assert_eq!(
            Value::Object(rooms("channels", &channels).members),
            json!({ "telegram:-1": { "bySender": { "*": none } } })
        );
    }
}
