//! When an agent looks after things by itself: `agents.byId.ID.heartbeat`.

use quipu_schedule::{ActiveHours, parse_span};
use serde_json::{Map, Value, json};

/// Characters of a prompt at most.
const PROMPT: usize = 16_384;
/// Characters beside the token of silence that can be set at most.
const ACK: u64 = 100_000;
/// What a problem says is wanted.
const WANTED: &str = "a heartbeat has `every` (a length of time such as \"30m\"), `prompt`, `activeHours` (`start`, `end`, `timezone`), `ackMaxChars`, `skipWhenBusy`, `isolatedSession` and `lightContext`";

/// The members that can be read. One that cannot be read turns heartbeats off: they cost money, and may be meant to come less often.
pub(super) fn check(name: &str, value: &Value) -> (Option<Value>, Vec<String>) {
    let Some(members) = value.as_object() else {
        return (None, vec![format!("{name} must be an object; it is ignored")]);
    };
    let mut kept = Map::new();
    for (member, value) in members {
        let fits = match member.as_str() {
            "every" => value.as_str().is_some_and(is_span),
            "prompt" => value.as_str().is_some_and(|prompt| prompt.chars().count() <= PROMPT),
            "activeHours" => are_hours(value),
            "ackMaxChars" => value.as_u64().is_some_and(|most| most <= ACK),
            "skipWhenBusy" | "isolatedSession" | "lightContext" => value.is_boolean(),
            _ => false,
        };
        if !fits {
            let member: String = member.chars().filter(|letter| !letter.is_control()).take(64).collect();
            let problem = format!("{name}.{member} cannot be read, so the agent has no heartbeat: {WANTED}");
            return (None, vec![problem]);
        }
        kept.insert(member.clone(), value.clone());
    }
    (Some(Value::Object(kept)), Vec::new())
}

/// The form of a heartbeat.
pub(super) fn schema() -> Value {
    let text = json!({ "type": "string", "minLength": 1 });
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "every": text,
            "prompt": { "type": "string" },
            "activeHours": {
                "type": "object",
                "additionalProperties": false,
                "required": ["start", "end"],
                "properties": { "start": text, "end": text, "timezone": text },
            },
            "ackMaxChars": { "type": "integer", "minimum": 0, "maximum": ACK },
            "skipWhenBusy": { "type": "boolean" },
            "isolatedSession": { "type": "boolean" },
            "lightContext": { "type": "boolean" },
        },
    })
}

fn is_span(text: &str) -> bool {
    text.trim() == "0" || parse_span(text).is_ok()
}

fn are_hours(value: &Value) -> bool {
    let Some(members) = value.as_object() else { return false };
    let text = |name: &str| members.get(name).and_then(Value::as_str);
    let is_known = members.iter().all(|(name, value)| {
        matches!(name.as_str(), "start" | "end") || (name == "timezone" && value.is_string())
    });
    match (text("start"), text("end")) {
        (Some(start), Some(end)) if is_known => {
            ActiveHours::of(start, end, text("timezone").unwrap_or("UTC")).is_ok()
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heartbeat_that_cannot_be_read_is_off() {
        let hours = json!({ "start": "08:00", "end": "22:00", "timezone": "Europe/Berlin" });
        let good = json!({
            "every": "1h30m", "prompt": "Look.", "activeHours": hours, "ackMaxChars": 9, "skipWhenBusy": true,
            "isolatedSession": false, "lightContext": false,
        });
        for value in [json!({}), json!({ "every": "0" }), json!({ "every": "0m" }), good] {
            assert_eq!(check("h", &value), (Some(value), Vec::new()));
        }
        for value in [
            json!("30m"),
            json!({ "every": "soon" }),
            json!({ "every": 30 }),
            json!({ "evry": "30m" }),
            json!({ "prompt": "x".repeat(PROMPT + 1) }),
            json!({ "activeHours": { "start": "8", "end": "9:00" } }),
            json!({ "activeHours": { "start": "8:00" } }),
            json!({ "activeHours": { "start": "8:00", "end": "9:00", "timezone": "Nowhere/Here" } }),
            json!({ "activeHours": { "start": "8:00", "end": "9:00", "days": 1 } }),
            json!({ "ackMaxChars": -1 }),
            json!({ "skipWhenBusy": "yes" }),
            json!({ "isolatedSession": 1 }),
            json!({ "lightContext": null }),
        ] {
            let (kept, problems) = check("h", &value);
            assert!(kept.is_none() && problems.len() == 1, "{value}: {kept:?} {problems:?}");
        }
    }
}
