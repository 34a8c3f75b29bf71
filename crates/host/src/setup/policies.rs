//! Policies of tools in the form of another gateway, and in ours.

use std::collections::{BTreeMap, BTreeSet};

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
/// Characters of a name within a reason at most.
const SHOWN: usize = 120;
/// Where a channel keeps its rooms.
const ROOMS: [&str; 2] = ["groups", "channels"];

/// What of a policy is taken over.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct TakenMembers {
    /// In our form.
    pub(super) members: Map<String, Value>,
    /// What is not, by its name, and why.
    pub(super) left: Vec<(String, String)>,
    /// Each key as it stands in the members, and where it comes from, by the form in which keys are compared.
    places: BTreeMap<String, (String, String)>,
    /// Channels whose rooms get no tools.
    closed: BTreeSet<String>,
}

impl TakenMembers {
    fn leave(&mut self, key: String, why: &str) {
        self.left.push((key, why.to_owned()));
    }

    /// The key that counts for one of ours, and where it was first: keys that differ in capitals alone are one.
    fn place(&mut self, at: &str, ours: String) -> (String, String) {
        let same = ours.to_lowercase();
        self.places.entry(same).or_insert_with(|| (ours, at.to_owned())).clone()
    }

    /// Takes a policy. Where one that says something else has the same key here, neither counts.
    fn take(&mut self, at: &str, ours: String, policy: Value) {
        let (ours, first) = self.place(at, ours);
        if self.members.get(&ours).is_some_and(|before| *before != policy) {
            let first: String = first.chars().filter(|letter| !letter.is_control()).take(SHOWN).collect();
            let why = format!(
                "it and {first} are one key here, `{ours}`, with different policies; it gets no tools here"
            );
            self.leave(at.to_owned(), &why);
            self.members.insert(ours, no_tools());
        } else {
            self.members.insert(ours, policy);
        }
    }

    /// Takes all tools from a key, whatever it had before.
    fn close(&mut self, at: &str, ours: String) {
        let (ours, _) = self.place(at, ours);
        self.members.insert(ours, no_tools());
    }

    /// Takes all tools from the rooms of a channel, also from those that have a policy: what is lost may have said less of them.
    fn close_rooms(&mut self, at: &str, channel: &str, why: &str) {
        self.leave(at.to_owned(), &format!("{why}; rooms of `{channel}` get no tools here"));
        self.close(at, format!("{}:{ANY}", channel.trim()));
        self.closed.insert(channel.trim().to_lowercase());
    }

    /// At the end, when all rooms are known.
    fn close_named_rooms(&mut self) {
        for (key, policy) in &mut self.members {
            let channel = key.split_once(':').map(|(channel, _)| channel.to_lowercase());
            if channel.is_some_and(|channel| self.closed.contains(&channel)) {
                *policy = no_tools();
            }
        }
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
    let members = theirs.as_object().into_iter().flatten();
    for (sender, value) in members.filter(|(sender, _)| *sender != INCLUDE) {
        let at = format!("{key}.{sender}");
        let typed =
            sender.trim().split_once(':').filter(|(kind, _)| kind.trim().eq_ignore_ascii_case("channel"));
        if let Some(id) = typed.and_then(|(_, rest)| rest.split_once(':')) {
            let why = "senders are not told apart by channels; this one gets no tools here, on any channel";
            taken.leave(at.clone(), why);
            taken.close(&at, format!("id:{}", bare(id.1)));
            continue;
        }
        let Some(ours) = sender_key(sender) else {
            taken.leave(at, "people choose their names themselves; use `id:`, `e164:` or `username:`");
            continue;
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
                taken.leave(at.clone(), &format!("{}; its sender gets no tools here", short(&why)));
                no_tools()
            }
        };
        taken.take(&at, ours, lists);
    }
    if !theirs.is_object() {
        taken.leave(key.to_owned(), "it is not an object; no sender gets tools here");
        taken.close(key, ANY.to_owned());
    } else if is_partial(theirs) {
        taken.leave(key.to_owned(), &format!("{MISSING}; senders that it does not name get no tools here"));
        taken.close(key, ANY.to_owned());
    }
    taken
}

fn bare(value: &str) -> String {
    value.trim().trim_start_matches('@').to_owned()
}

/// A sender as our keys have one: blanks around it, `@` before it and the case of its kind make no other one. `None` for a name.
fn sender_key(theirs: &str) -> Option<String> {
    let theirs = theirs.trim();
    let (kind, rest) = theirs.split_once(':').unwrap_or_default();
    match kind.trim().to_ascii_lowercase().as_str() {
        _ if theirs == ANY => Some(ANY.to_owned()),
        "name" => None,
        kind @ ("id" | "e164" | "username") => Some(format!("{kind}:{}", bare(rest))),
        _ => Some(format!("id:{}", bare(theirs))),
    }
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
                taken.leave(at.clone(), &format!("{MISSING}; its models get no tools here"));
                taken.take(&at, provider.trim().to_owned(), no_tools());
            }
            Ok(_) => taken.take(&at, provider.trim().to_owned(), value.clone()),
            Err(_) if provider.trim().is_empty() => {
                taken.leave(at, "it names no provider; models that have no other key get no tools here");
                is_open = false;
            }
            Err(why) => {
                taken.leave(at.clone(), &format!("{}; its models get no tools here", short(&why)));
                taken.take(&at, provider.trim().to_owned(), no_tools());
            }
        }
    }
    if !theirs.is_object() {
        taken.leave(key.to_owned(), "it is not an object; no model gets tools here");
    }
    if !is_open {
        taken.close(key, ANY.to_owned());
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

/// Policies of the rooms of channels, by `channel:room`. What cannot be read or has no counterpart takes all tools from the rooms that it
/// may be about.
pub(super) fn rooms(key: &str, channels: &Value) -> TakenMembers {
    let mut taken = TakenMembers::default();
    if !channels.is_object() {
        taken.leave(key.to_owned(), "it is not an object; no room gets tools here");
        taken.close(key, ANY.to_owned());
    } else if is_partial(channels) {
        taken.leave(key.to_owned(), &format!("{MISSING}; rooms that it does not name get no tools here"));
        taken.close(key, ANY.to_owned());
    }
    let channels = channels.as_object().into_iter().flatten();
    for (channel, settings) in channels.filter(|(channel, _)| *channel != INCLUDE) {
        let at = format!("{key}.{channel}");
        for (member, value) in members(&at, channel, settings, &mut taken) {
            let at = format!("{at}.{member}");
            match member.as_str() {
                place if ROOMS.contains(&place) => rooms_of(&at, channel, value, &mut taken),
                "guilds" => guilds(&at, channel, value, &mut taken),
                _ => leave_policies((member, value), &at, channel, &mut taken),
            }
        }
        taken.leave(at, "there are no chat channels yet");
    }
    taken.close_named_rooms();
    taken
}

/// Policies of the rooms of several servers. A room with a name may be one of each of them, which has its policy where it says the same
/// of that name; ids are of one server alone.
fn guilds(at: &str, channel: &str, guilds: &Value, taken: &mut TakenMembers) {
    let mut policies: Vec<(String, TakenMembers)> = Vec::new();
    for (guild, settings) in members(at, channel, guilds, taken) {
        let at = format!("{at}.{guild}");
        let mut of = TakenMembers::default();
        guild_policies(&at, channel, settings, &mut of);
        taken.left.append(&mut of.left);
        taken.closed.append(&mut of.closed);
        policies.push((at, of));
    }
    let is_id = |key: &str| {
        let room = key.split_once(':').map_or(key, |(_, room)| room);
        room.chars().all(|digit| digit.is_ascii_digit())
    };
    let names: BTreeSet<String> =
        policies.iter().flat_map(|(_, of)| of.places.keys()).filter(|key| !is_id(key)).cloned().collect();
    for (at, of) in policies {
        for name in names.iter().filter(|name| !of.places.contains_key(*name)) {
            taken.take(&at, name.clone(), json!({}));
        }
        for (ours, policy) in of.members {
            let (_, place) = of.places.get(&ours.to_lowercase()).cloned().unwrap_or_default();
            taken.take(&place, ours, policy);
        }
    }
}

/// The members of an object that may hold policies of rooms; of what is none, or not whole, the channel is closed.
fn members<'a>(
    at: &str,
    channel: &str,
    value: &'a Value,
    taken: &mut TakenMembers,
) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
    if is_partial(value) {
        taken.close_rooms(at, channel, MISSING);
    } else if !value.is_object() {
        taken.close_rooms(at, channel, "it is not an object");
    }
    value.as_object().into_iter().flatten().filter(|(member, _)| *member != INCLUDE)
}

fn rooms_of(at: &str, channel: &str, rooms: &Value, taken: &mut TakenMembers) {
    let every = rooms.get(ANY).map_or_else(
        || json!({}),
        |settings| {
            // What of it is left is named with itself.
            policy_of_room("", settings, &mut TakenMembers::default())
        },
    );
    for (room, settings) in members(at, channel, rooms, taken) {
        room_policy(&format!("{at}.{room}"), (channel, room), (settings, &every), taken);
    }
}

/// Adds what every room says of senders. Where the room says something of everybody, that counts before it; and a sender can be one that
/// the room names by something else, so one named in another way gets no tools.
fn below_own_senders(own: &mut Map<String, Value>, theirs: &Map<String, Value>) {
    if own.contains_key(ANY) {
        return;
    }
    let kind = |key: &str| key.split_once(':').map(|(kind, _)| kind.to_lowercase());
    let known: Vec<String> = own.keys().map(|key| key.to_lowercase()).collect();
    let kinds: BTreeSet<Option<String>> = own.keys().map(|key| kind(key)).collect();
    for (sender, lists) in theirs.iter().filter(|(sender, _)| !known.contains(&sender.to_lowercase())) {
        let is_one_kind = sender == ANY || kinds.iter().all(|other| *other == kind(sender));
        own.insert(sender.clone(), if is_one_kind { lists.clone() } else { no_tools() });
    }
}

/// What holds in a room whose policy names senders alone: of others what holds in every room.
fn below_every_room(policy: &mut Value, every: &Value) {
    let (Some(policy), Some(every)) = (policy.as_object_mut(), every.as_object()) else { return };
    if policy.is_empty() || policy.keys().any(|member| member != "bySender") {
        return;
    }
    for (member, value) in every {
        match (policy.get_mut(member), value) {
            (Some(Value::Object(own)), Value::Object(theirs)) => below_own_senders(own, theirs),
            (Some(_), _) => {}
            (None, value) => drop(policy.insert(member.clone(), value.clone())),
        }
    }
}

fn guild_policies(at: &str, channel: &str, settings: &Value, taken: &mut TakenMembers) {
    for (member, value) in members(at, channel, settings, taken) {
        let at = format!("{at}.{member}");
        match member.as_str() {
            "channels" => rooms_of(&at, channel, value, taken),
            _ => leave_policies((member, value), &at, channel, taken),
        }
    }
}

/// Names the policies that stand elsewhere, and closes the channel that they are of.
fn leave_policies((name, value): (&str, &Value), at: &str, channel: &str, taken: &mut TakenMembers) {
    let mut found = Vec::new();
    other_policies((name, value), at, &mut found);
    for OtherPolicy { at, why, is_empty } in found {
        match is_empty {
            true => taken.leave(at, why),
            false => taken.close_rooms(&at, channel, why),
        }
    }
}

/// What may narrow tools, and stands where nothing is taken over.
struct OtherPolicy {
    at: String,
    why: &'static str,
    /// It says nothing.
    is_empty: bool,
}

/// Those in a member, however deep.
fn other_policies((name, value): (&str, &Value), at: &str, found: &mut Vec<OtherPolicy>) {
    let why = match name {
        INCLUDE => MISSING,
        "tools" | "toolsBySender" => "policies are by room of `groups` and `channels` here",
        _ => {
            for (at_item, item) in value.as_array().into_iter().flatten().enumerate() {
                other_policies(("", item), &format!("{at}[{at_item}]"), found);
            }
            for (name, value) in value.as_object().into_iter().flatten() {
                other_policies((name, value), &format!("{at}.{name}"), found);
            }
            return;
        }
    };
    let is_empty = value.as_object().is_some_and(Map::is_empty);
    found.push(OtherPolicy { at: at.to_owned(), why, is_empty });
}

/// What a room says of tools; an empty object where it says nothing.
fn policy_of_room(key: &str, settings: &Value, taken: &mut TakenMembers) -> Value {
    let Some(members) = settings.as_object().filter(|_| !is_partial(settings)) else {
        // It says why.
        return lists(key, settings, &mut taken.left);
    };
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
    let mut found = Vec::new();
    for (name, value) in members.iter().filter(|(name, _)| !["tools", "toolsBySender"].contains(&&***name)) {
        other_policies((name, value), &format!("{key}.{name}"), &mut found);
    }
    for OtherPolicy { at, why, is_empty } in found {
        if is_empty {
            taken.leave(at, why);
        } else {
            taken.leave(at, &format!("{why}; the room gets no tools here"));
            policy = no_tools();
        }
    }
    policy
}

fn room_policy(
    key: &str,
    (channel, room): (&str, &str),
    (settings, every): (&Value, &Value),
    taken: &mut TakenMembers,
) {
    let mut policy = policy_of_room(key, settings, taken);
    below_every_room(&mut policy, every);
    if policy.as_object().is_none_or(Map::is_empty) {
        return;
    }
    let ours = format!("{}:{}", channel.trim(), room.trim());
    if let Err(why) = check_setting(GROUPS, &json!({ &ours: {} }).to_string()) {
        // No room can have this key.
        let why = format!("{}; rooms that are not named get no tools here", short(&why));
        taken.leave(key.to_owned(), &why);
        taken.close(key, format!("{}:{ANY}", channel.trim()));
        return;
    }
    if let Err(why) = check_setting(GROUPS, &json!({ &ours: policy }).to_string()) {
        taken.leave(key.to_owned(), &format!("{}; it gets no tools here", short(&why)));
        policy = no_tools();
    }
    taken.take(key, ours, policy);
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
            } },
            "signal": {
                "groups": { "a": { "tools": { "allow": ["read"] } } },
                "accounts": { "work": { "name": "x", "groups": { "a": { "tools": { "deny": ["exec"] } } } } },
            },
            "discord": { "guilds": { "1": { "tools": {}, "channels": { "2": { "tools": { "deny": ["*"] } } } } } },
        });
        let TakenMembers { members, left, .. } = rooms("channels", &channels);
        let expect = json!({
            "discord:2": { "deny": ["*"] },
            "signal:*": { "deny": ["*"] },
            "signal:a": { "deny": ["*"] },
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
                "channels.signal",
                "channels.signal.accounts.work.groups.a.tools",
                "channels.telegram",
                "channels.telegram.groups.*.tools.profile",
                "channels.telegram.groups.-100.toolsBySender.name:Ann",
            ]
        );
    }

    #[test]
    fn policies_with_one_key_take_all_tools_where_they_differ() {
        let none = json!({ "deny": ["*"] });
        let open = json!({ "allow": ["read"] });
        for theirs in [
            json!({ "id:7": none, "7": open }),
            json!({ "@7": none, "7": open, "id:7": open }),
            json!({ "@7": open, "7": { "allow": ["exec"] }, "id:7": open }),
            json!({ "ID:@7": none, " 7 ": open }),
        ] {
            let TakenMembers { members, left, .. } = senders("s", &theirs);
            assert_eq!(Value::Object(members), json!({ "id:7": none }), "{theirs}");
            let is_told = |(key, why): &(String, String)| {
                key.starts_with("s.") && why.starts_with("it and s.") && why.contains("`id:7`")
            };
            assert!(left.iter().any(is_told), "{left:?}");
        }
        let theirs = json!({ "username:Ann": none, "Username:@ann": open, "Name:Ann": open });
        let members = senders("s", &theirs).members;
        assert_eq!(members.values().collect::<Vec<_>>(), [&none], "{members:?}");
        let TakenMembers { members, left, .. } = senders("s", &json!({ "7": open, "id:7": open }));
        assert_eq!((Value::Object(members), left), (json!({ "id:7": open }), Vec::new()));
        let theirs = json!({ "toolsBySender": { "@7": none, "7": open, "id:7": open } });
        assert_eq!(agent("a.tools", &theirs).members["bySender"], json!({ "id:7": none }));
        let room = |policy: &Value| json!({ "tools": policy });
        let guild = |policy: &Value| json!({ "channels": { "*": room(policy) } });
        for (channels, key) in [
            (json!({ "discord": { "guilds": { "a": guild(&none), "b": guild(&open) } } }), "discord:*"),
            (json!({ "x": { "groups": { "1": room(&none) }, "channels": { "1": room(&open) } } }), "x:1"),
            (json!({ "x": { "groups": { "*": room(&open) }, "rooms": { "1": room(&open) } } }), "x:*"),
            (
                json!({ "X": { "groups": { " A": room(&none) } }, "x": { "groups": { "a": room(&open) } } }),
                "X:A",
            ),
        ] {
            let members = rooms("channels", &channels).members;
            assert_eq!(Value::Object(members), json!({ key: none }), "{channels}");
        }
    }

    #[test]
    fn rooms_that_name_senders_alone_have_the_policy_of_all_rooms() {
        let every =
            json!({ "tools": { "deny": ["exec"] }, "toolsBySender": { "7": { "deny": ["*"] }, "8": {} } });
        let groups = json!({
            "*": every,
            "senders": { "toolsBySender": { "7": { "allow": ["read"] } } },
            "lists": { "tools": { "allow": ["read"] }, "toolsBySender": { "9": {} } },
            "nothing": { "tools": {} },
        });
        let members = rooms("channels", &json!({ "x": { "groups": groups } })).members;
        let expect = json!({
            "x:*": { "deny": ["exec"], "bySender": { "id:7": { "deny": ["*"] }, "id:8": {} } },
            "x:senders": { "deny": ["exec"], "bySender": { "id:7": { "allow": ["read"] }, "id:8": {} } },
            "x:lists": { "allow": ["read"], "bySender": { "id:9": {} } },
        });
        assert_eq!(Value::Object(members), expect);
        let every = json!({ "toolsBySender": { "9": {}, "*": {} } });
        for (own, expect) in [
            (json!({ "*": { "deny": ["exec"] } }), json!({ "*": { "deny": ["exec"] } })),
            (
                json!({ "e164:9": { "deny": ["*"] } }),
                json!({ "e164:9": { "deny": ["*"] }, "id:9": { "deny": ["*"] }, "*": {} }),
            ),
        ] {
            let groups = json!({ "*": every, "a": { "toolsBySender": own } });
            let members = rooms("channels", &json!({ "x": { "groups": groups } })).members;
            assert_eq!(members["x:a"]["bySender"], expect, "{own}");
        }
        let groups = json!({ "*": ["broken"], "a": { "toolsBySender": { "7": {} } } });
        let members = rooms("channels", &json!({ "x": { "groups": groups } })).members;
        let none = json!({ "deny": ["*"] });
        assert_eq!(members["x:a"], json!({ "deny": ["*"], "bySender": { "id:7": {} } }));
        assert_eq!(members["x:*"], none);
    }

    #[test]
    fn senders_of_one_channel_get_no_tools_on_any() {
        let theirs = json!({ "Channel:telegram:7": { "allow": ["read"] }, "8": { "allow": ["read"] } });
        let TakenMembers { members, left, .. } = senders("s", &theirs);
        assert_eq!(
            Value::Object(members),
            json!({ "id:7": { "deny": ["*"] }, "id:8": { "allow": ["read"] } })
        );
        assert!(left[0].1.contains("this one gets no tools here"), "{left:?}");
        // Whichever is read first.
        let theirs = json!({ "7": { "allow": ["read"] }, "channel:x:7": {} });
        assert_eq!(Value::Object(senders("s", &theirs).members), json!({ "id:7": { "deny": ["*"] } }));
    }

    #[test]
    fn rooms_of_servers_keep_a_policy_that_all_servers_have() {
        let none = json!({ "deny": ["*"] });
        let open = json!({ "allow": ["read"] });
        let guild = |rooms: &[(&str, &Value)]| {
            let rooms = rooms.iter().map(|(room, policy)| ((*room).to_owned(), json!({ "tools": policy })));
            json!({ "channels": rooms.collect::<Map<_, _>>() })
        };
        for (guilds, expect) in [
            (vec![guild(&[("general", &open), ("12", &open)])], json!({ "d:general": open, "d:12": open })),
            (
                vec![
                    guild(&[("general", &open), ("12", &open)]),
                    guild(&[("*", &json!({ "deny": ["exec"] }))]),
                ],
                json!({ "d:general": none, "d:*": none, "d:12": open }),
            ),
            (vec![guild(&[("General", &open)]), guild(&[("general", &open)])], json!({ "d:General": open })),
            (vec![guild(&[("general", &open)]), json!({})], json!({ "d:general": none })),
            (
                vec![guild(&[("general", &open)]), json!({ "tools": open })],
                json!({ "d:general": none, "d:*": none }),
            ),
        ] {
            let guilds: Map<String, Value> =
                guilds.into_iter().enumerate().map(|(at, guild)| (at.to_string(), guild)).collect();
            let members = rooms("channels", &json!({ "d": { "guilds": guilds } })).members;
            assert_eq!(Value::Object(members), expect, "{guilds:?}");
        }
    }

    #[test]
    fn rooms_get_no_tools_where_the_rest_of_a_channel_is_lost() {
        let none = json!({ "deny": ["*"] });
        let room = json!({ "1": { "tools": { "allow": ["*"] } } });
        for settings in [
            json!({ "$include": "gone", "groups": room }),
            json!({ "groups": room, "channels": 7 }),
            json!({ "groups": room, "tools": { "deny": ["exec"] } }),
        ] {
            let members = rooms("channels", &json!({ "X": settings, "y": { "groups": room } })).members;
            let expect = json!({ "X:*": none, "X:1": none, "y:1": { "allow": ["*"] } });
            assert_eq!(Value::Object(members), expect, "{settings}");
        }
    }

    #[test]
    fn rooms_get_no_tools_where_a_channel_cannot_be_read() {
        let none = json!({ "deny": ["*"] });
        let policy = json!({ "tools": { "deny": ["exec"] } });
        for settings in [
            json!("x"),
            json!([1]),
            json!({ "groups": [policy] }),
            json!({ "guilds": [policy] }),
            json!({ "guilds": { "1": [policy] } }),
            json!({ "guilds": { "1": { "channels": [policy] } } }),
            json!({ "guilds": { "1": policy } }),
            json!({ "accounts": { "a": { "groups": { "1": policy } } } }),
            json!({ "accounts": { "a": { "$include": "gone" } } }),
            json!({ "teams": { "1": { "channels": { "2": policy } } } }),
            json!({ "rooms": { "1": policy } }),
            json!({ "guilds": { "1": { "roles": [{ "admin": policy }] } } }),
            json!({ "groups": true }),
            Value::Null,
            policy.clone(),
        ] {
            let TakenMembers { members, left, .. } = rooms("channels", &json!({ "x": settings }));
            assert_eq!(Value::Object(members), json!({ "x:*": none }), "{settings}");
            assert!(left.iter().any(|(_, why)| why.contains("get no tools here")), "{settings}: {left:?}");
        }
        for room in [
            json!(["y"]),
            Value::Null,
            json!({ "tools": { "allow": ["read"] }, "topics": { "5": policy } }),
            json!({ "topics": [{ "$include": "gone" }] }),
        ] {
            let TakenMembers { members, left, .. } =
                rooms("channels", &json!({ "x": { "groups": { "1": room } } }));
            assert_eq!(Value::Object(members), json!({ "x:1": none }), "{room}");
            assert!(left.iter().any(|(_, why)| why.contains("gets no tools here")), "{room}: {left:?}");
        }
        for channels in [json!([policy]), json!("x"), Value::Null] {
            assert_eq!(
                Value::Object(rooms("channels", &channels).members),
                json!({ "*": none }),
                "{channels}"
            );
        }
        let harmless =
            json!({ "x": { "groups": { "1": {} }, "channels": {}, "dm": { "enabled": true, "tools": {} } } });
        assert_eq!(rooms("channels", &harmless).members, Map::new());
    }

    #[test]
    fn policy_of_an_agent_keeps_what_has_a_counterpart() {
        let theirs = json!({
            "profile": "coding", "deny": ["gateway"], "elevated": { "enabled": true },
            "toolsBySender": { "id:7": { "deny": ["exec"] } },
            "sandbox": { "tools": { "deny": ["browser"], "alsoAllow": ["cron"] } },
        });
        let TakenMembers { members, left, .. } = agent("a.tools", &theirs);
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
        let TakenMembers { members, left, .. } = providers(PROVIDERS, &theirs);
        let expect =
            json!({ "openai": { "deny": ["exec"] }, "x": none, "y/z": none, "*": { "allow": ["read"] } });
        assert_eq!(Value::Object(members), expect);
        let keys: Vec<&str> = left.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["tools.byProvider.x", "tools.byProvider.y/z"]);
        assert!(left.iter().all(|(_, why)| why.ends_with("; its models get no tools here")), "{left:?}");
        let theirs = json!({ "OpenAI": none, "openai": { "allow": ["read"] } });
        assert_eq!(providers(PROVIDERS, &theirs).members.values().collect::<Vec<_>>(), [&none]);
        for broken in [json!({ " ": {}, "*": {} }), json!(["openai"])] {
            let TakenMembers { members, left, .. } = providers(PROVIDERS, &broken);
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
