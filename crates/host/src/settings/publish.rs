//! What is published of the settings: a JSON Schema for editors, and the table of the documents.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::table::{Item, KEYS, Key, Kind, ProjectUse};
use super::tool_policies::PolicyTable;

/// The JSON Schema of a file of settings.
pub fn settings_schema() -> Value {
    let mut root = section();
    root["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    root["title"] = "Quipu settings".into();
    root["properties"]["$schema"] = json!({ "type": "string" });
    for key in KEYS {
        let mut at = &mut root;
        let path = key.path();
        for member in &path[..path.len() - 1] {
            let members = &mut at["properties"];
            if members[member].is_null() {
                members[member] = section();
            }
            at = &mut members[member];
        }
        at["properties"][path[path.len() - 1]] = schema_of(key);
    }
    root
}

fn section() -> Value {
    json!({ "type": "object", "additionalProperties": false, "properties": {} })
}

fn schema_of(key: &Key) -> Value {
    let mut schema = match key.kind {
        Kind::Flag => json!({ "type": "boolean" }),
        Kind::Number { least, most: u64::MAX } => json!({ "type": "integer", "minimum": least }),
        Kind::Number { least, most } => json!({ "type": "integer", "minimum": least, "maximum": most }),
        Kind::Amount => json!({ "type": "number", "exclusiveMinimum": 0 }),
        Kind::Text | Kind::Cron => json!({ "type": "string", "minLength": 1 }),
        Kind::Word(words) => json!({ "enum": words }),
        Kind::List(Item::Port) => {
            json!({ "type": "array", "items": { "type": "integer", "minimum": 1, "maximum": 65_535 } })
        }
        Kind::List(_) => json!({ "type": "array", "items": { "type": "string" } }),
        Kind::PurposeModels => {
            json!({ "type": "object", "additionalProperties": { "type": "string", "minLength": 1 } })
        }
        Kind::PurposeBudgets => {
            json!({ "type": "object", "additionalProperties": { "type": "number", "minimum": 0 } })
        }
        Kind::ToolPolicies(table) => policies(table),
        Kind::ChannelWords(words) => {
            json!({ "type": "object", "additionalProperties": { "enum": words } })
        }
        Kind::ChannelTimes => json!({ "type": "object", "additionalProperties": {
            "type": "integer", "minimum": 0, "maximum": super::messages::DEBOUNCE_MOST,
        } }),
        Kind::Resets(names) => super::messages::resets_schema(names),
        Kind::Turns(names) => super::messages::turns_schema(names),
        Kind::Agents => json!({ "type": "object", "additionalProperties": {
            "type": "object", "additionalProperties": false, "properties": {
                "model": { "type": "string", "minLength": 1 },
                "workspace": { "type": "string", "minLength": 1 },
                "tools": agent_tools(),
                "budget": { "type": "object", "additionalProperties": false, "properties": {
                    "daily": { "type": "number", "minimum": 0 },
                    "dailyTokens": { "type": "integer", "minimum": 0 },
                } },
                "heartbeat": super::heartbeat::schema(),
            },
        } }),
        Kind::Servers => json!({ "anyOf": [
            { "const": false },
            { "type": "object", "additionalProperties": { "anyOf": [{ "type": "string" }, { "const": false }, { "type": "null" }] } },
        ] }),
        Kind::Semantic => json!({ "anyOf": [
            { "const": false },
            { "type": "object", "additionalProperties": false, "properties": {
                "path": { "type": "string" },
                "endpoint": { "type": "string" },
                "provider": { "type": "string" },
                "model": { "type": "string" },
                "dimensions": { "type": "integer", "minimum": 1, "maximum": quipu_providers::MAX_DIMENSIONS },
            } },
        ] }),
        Kind::Hooks => json!({ "type": "object", "additionalProperties": { "type": "array", "items": {
            "type": "object",
            "properties": {
                "matcher": { "type": "string" },
                "hooks": { "type": "array", "items": {
                    "type": "object",
                    "required": ["type", "command"],
                    "properties": {
                        "type": { "const": "command" },
                        "command": { "type": "string", "minLength": 1 },
                        "timeout": { "type": "number", "exclusiveMinimum": 0 },
                        "onFailure": { "enum": ["pass", "block"] },
                    },
                } },
            },
            "required": ["hooks"],
        } } }),
    };
    schema["description"] = key.help.into();
    if !key.default.is_empty() {
        schema["default"] = key.default_value();
    }
    // Null says nothing, wherever it stands.
    let mut either = Map::new();
    for name in ["description", "default"] {
        if let Some(value) = schema.as_object_mut().and_then(|schema| schema.remove(name)) {
            either.insert(name.to_owned(), value);
        }
    }
    either.insert("anyOf".to_owned(), json!([schema, { "type": "null" }]));
    Value::Object(either)
}

/// A list of names, and the objects of such lists.
fn lists(more: &[(&str, Value)]) -> Value {
    let list = json!({ "type": "array", "items": { "type": "string" } });
    let mut properties = Map::new();
    for name in ["allow", "alsoAllow", "deny"] {
        properties.insert(name.to_owned(), list.clone());
    }
    properties.extend(more.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    json!({ "type": "object", "additionalProperties": false, "properties": properties })
}

fn profiles() -> Value {
    json!({ "enum": ["minimal", "messaging", "coding", "full"] })
}

fn policies(table: PolicyTable) -> Value {
    let one = match table {
        PolicyTable::Providers => lists(&[("profile", profiles())]),
        PolicyTable::Groups => lists(&[("bySender", policies(PolicyTable::Senders))]),
        PolicyTable::Senders => lists(&[]),
    };
    json!({ "type": "object", "additionalProperties": one })
}

fn agent_tools() -> Value {
    let list = json!({ "type": "array", "items": { "type": "string" } });
    let sandbox = json!({
        "type": "object", "additionalProperties": false, "properties": { "allow": list, "deny": list },
    });
    lists(&[
        ("profile", profiles()),
        ("byProvider", policies(PolicyTable::Providers)),
        ("byGroup", policies(PolicyTable::Groups)),
        ("bySender", policies(PolicyTable::Senders)),
        ("sandbox", sandbox),
    ])
}

/// The table of all settings, in Markdown.
pub fn settings_table() -> String {
    let mut text = String::from(
        "| key | value | default | variable | takes effect | in a project's file |\n|---|---|---|---|---|---|\n",
    );
    for key in KEYS {
        let default = if key.default.is_empty() { String::new() } else { format!("`{}`", key.default) };
        let project = match key.project {
            ProjectUse::Allowed => "yes".to_owned(),
            ProjectUse::Refused(why) => format!("no: {why}"),
        };
        // A string always takes more.
        let _written = writeln!(
            text,
            "| `{}`: {} | {} | {default} | `{}` | {} | {project} |",
            key.name,
            key.help,
            key.kind.short(),
            key.variable(),
            key.effect.word(),
        );
    }
    text
}
