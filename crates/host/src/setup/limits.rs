//! How many turns of a conversation requests have, in the form of another gateway, and in ours.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::policies::TakenMembers;
use crate::settings::check_setting;

/// The setting that says it by channel.
pub(super) const HISTORY: &str = "session.history.byChannel";
/// The members that say it of a channel, and what they are called here.
const KINDS: [(&str, &str); 2] = [("historyLimit", "group"), ("dmHistoryLimit", "direct")];
/// Where a channel says it of single people.
const PEOPLE: &str = "dms";

/// Limits of the channels, by their names.
pub(super) fn of_channels(key: &str, channels: &Value) -> TakenMembers {
    let mut taken = TakenMembers::default();
    for (channel, settings) in channels.as_object().into_iter().flatten() {
        let at = format!("{key}.{channel}");
        let mut ours = Map::new();
        for (theirs, kind) in KINDS {
            if let Some(limit) = settings.get(theirs)
                && let Some(limit) = fitting(&format!("{at}.{theirs}"), &json!({ kind: limit }), &mut taken)
            {
                ours.extend(limit);
            }
        }
        let people = people(&at, settings, &mut taken);
        if let Some(people) = fitting(&format!("{at}.{PEOPLE}"), &json!({ "people": people }), &mut taken)
            && !people["people"].as_object().is_none_or(Map::is_empty)
        {
            ours.extend(people);
        }
        let accounts = settings.get("accounts").and_then(Value::as_object).into_iter().flatten();
        for (account, settings) in accounts {
            let members = KINDS.map(|(theirs, _)| theirs).into_iter().chain([PEOPLE]);
            for member in members.filter(|member| settings.get(member).is_some()) {
                let why = "limits of turns are by channel here, not by account";
                taken.left.push((format!("{at}.accounts.{account}.{member}"), why.to_owned()));
            }
        }
        if !ours.is_empty() {
            taken.members.insert(channel.clone(), Value::Object(ours));
        }
    }
    taken
}

/// Limits of single people of a channel, by their ids in small letters, as keys of conversations have them.
fn people(at: &str, settings: &Value, taken: &mut TakenMembers) -> BTreeMap<String, Value> {
    let mut people = BTreeMap::new();
    let Some(theirs) = settings.get(PEOPLE) else { return people };
    let Some(members) = theirs.as_object() else {
        taken.left.push((format!("{at}.{PEOPLE}"), "it is not an object".to_owned()));
        return people;
    };
    for (id, settings) in members {
        let name = format!("{at}.{PEOPLE}.{id}");
        for member in settings.as_object().into_iter().flatten().map(|(member, _)| member) {
            if member != "historyLimit" {
                taken.left.push((format!("{name}.{member}"), "there is no such setting here".to_owned()));
            }
        }
        let name = format!("{name}.historyLimit");
        let Some(limit) = settings.get("historyLimit") else {
            if !settings.is_object() {
                taken.left.push((name, "it is not in an object".to_owned()));
            }
            continue;
        };
        let ours = id.to_lowercase();
        if ours != *id && members.contains_key(&ours) {
            taken.left.push((name, format!("`{ours}` is the same person here, and counts")));
        } else if let Some(limit) = fitting(&name, &json!({ "direct": limit }), taken) {
            people.insert(ours, limit["direct"].clone());
        }
    }
    people
}

/// The members of a channel, if they can be set.
fn fitting(key: &str, members: &Value, taken: &mut TakenMembers) -> Option<Map<String, Value>> {
    let Value::Object(of_channel) = members else { return None };
    match check_setting(HISTORY, &json!({ "channel": members }).to_string()) {
        Ok(_) => Some(of_channel.clone()),
        Err(_) => {
            let why = match of_channel.contains_key("people") {
                true => "there are more people than a channel can have here",
                false => "it is no number of turns that a limit can have here",
            };
            taken.left.push((key.to_owned(), why.to_owned()));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_channels_become_ours_with_what_is_left_named() {
        let channels = json!({
            "Telegram": {
                "historyLimit": 20, "dmHistoryLimit": 0, "botToken": "t",
                "dms": { "7": { "historyLimit": 5 }, "Ann": { "historyLimit": 6 }, "ann": { "historyLimit": 7 } },
                "accounts": { "work": { "dmHistoryLimit": 3, "name": "x" } },
            },
            "slack": { "historyLimit": -1, "dmHistoryLimit": "many", "dms": { "u": { "historyLimit": 1.5, "x": 1 }, "v": 3 } },
            "irc": { "dms": [], "dmHistoryLimit": 100_001 },
            "quiet": {},
            "modelByChannel": "x",
        });
        let TakenMembers { members, left, .. } = of_channels("channels", &channels);
        let expect = json!({
            "Telegram": { "group": 20, "direct": 0, "people": { "7": 5, "ann": 7 } },
        });
        assert_eq!(Value::Object(members), expect);
        let mut left: Vec<String> = left.into_iter().map(|(key, _)| key).collect();
        left.sort();
        assert_eq!(
            left,
            [
                "channels.Telegram.accounts.work.dmHistoryLimit",
                "channels.Telegram.dms.Ann.historyLimit",
                "channels.irc.dmHistoryLimit",
                "channels.irc.dms",
                "channels.slack.dmHistoryLimit",
                "channels.slack.dms.u.historyLimit",
                "channels.slack.dms.u.x",
                "channels.slack.dms.v.historyLimit",
                "channels.slack.historyLimit",
            ]
        );
    }

    #[test]
    fn crowd_of_people_is_left_with_the_rest_taken() {
        let crowd: Map<String, Value> =
            (0..2_000).map(|at| (at.to_string(), json!({ "historyLimit": 1 }))).collect();
        let TakenMembers { members, left, .. } =
            of_channels("channels", &json!({ "irc": { "historyLimit": 4, "dms": crowd } }));
        assert_eq!(Value::Object(members), json!({ "irc": { "group": 4 } }));
        assert_eq!((left.len(), left[0].0.as_str()), (1, "channels.irc.dms"));
    }
}
