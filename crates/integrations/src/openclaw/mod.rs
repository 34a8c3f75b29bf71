//! OpenClaw: a plugin of two files, which calls the hooks.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::configuration::{
    Configuration, ConfigurationContent, ConfigurationFile, ConfigurationPlace, JsonAddition, JsonValue,
    plugin,
};
use crate::hook_call::{Occasion, text};
use crate::host::{Host, SessionStorage};

const NAME: &str = "openclaw";

const MANIFEST_PLACES: &[ConfigurationPlace] = &[
    ConfigurationPlace { variable: "OPENCLAW_STATE_DIR", path: "extensions/quipu/openclaw.plugin.json" },
    ConfigurationPlace { variable: "HOME", path: ".openclaw/extensions/quipu/openclaw.plugin.json" },
];

const PACKAGE_PLACES: &[ConfigurationPlace] = &[
    ConfigurationPlace { variable: "OPENCLAW_STATE_DIR", path: "extensions/quipu/package.json" },
    ConfigurationPlace { variable: "HOME", path: ".openclaw/extensions/quipu/package.json" },
];

const PLUGIN_PLACES: &[ConfigurationPlace] = &[
    ConfigurationPlace { variable: "OPENCLAW_STATE_DIR", path: "extensions/quipu/index.js" },
    ConfigurationPlace { variable: "HOME", path: ".openclaw/extensions/quipu/index.js" },
];

const SETTINGS_PLACES: &[ConfigurationPlace] = &[
    ConfigurationPlace { variable: "OPENCLAW_STATE_DIR", path: "openclaw.json" },
    ConfigurationPlace { variable: "HOME", path: ".openclaw/openclaw.json" },
];

const PLUGIN: &str = include_str!("plugin.js");

pub(crate) const HOST: Host = Host {
    name: NAME,
    agent: NAME,
    occasion,
    directory: None,
    storage: SessionStorage::Files,
    transcript,
    answer: |_, text| json!({ "text": text }).to_string(),
    configuration,
};

fn occasion(event: &str, payload: &Value) -> Occasion {
    match event {
        "session_start" => Occasion::Start,
        "before_prompt_build" => text(payload, &["prompt"]).map_or(Occasion::None, Occasion::Prompt),
        "agent_end" | "session_end" => Occasion::TurnEnd,
        _ => Occasion::None,
    }
}

/// The file of a session, by the names of the agent and of the session. That it lies where sessions do is checked when it is read.
fn transcript(payload: &Value) -> Option<PathBuf> {
    let is_name = |name: &String| {
        name.len() <= 128 && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
    };
    let session = text(payload, &["session_id"]).filter(is_name)?;
    let agent = text(payload, &["agent_id"]).filter(is_name).unwrap_or_else(|| "main".to_owned());
    let root = match std::env::var_os("OPENCLAW_STATE_DIR").filter(|dir| !dir.is_empty()) {
        Some(dir) => PathBuf::from(dir),
        None => std::env::home_dir()?.join(".openclaw"),
    };
    Some(root.join("agents").join(agent).join("sessions").join(format!("{session}.jsonl")))
}

fn configuration(program: &Path) -> Configuration {
    let manifest = json!({
        "id": "quipu",
        "name": "Quipu",
        "description": "History of the workspace, from every agent",
        "configSchema": { "type": "object", "additionalProperties": false, "properties": {} },
    });
    let package = json!({ "name": "quipu-openclaw", "version": "1.0.0", "private": true, "type": "module",
        "openclaw": { "extensions": ["./index.js"] } });
    let own = |places, text| ConfigurationFile { places, content: ConfigurationContent::Own(text) };
    let plugin = plugin(PLUGIN, program, NAME);
    // A plugin that it did not bring along itself receives no prompt without this.
    let permission = JsonAddition {
        members: ["plugins", "entries", "quipu"].map(str::to_owned).to_vec(),
        value: JsonValue::Member(json!({ "enabled": true, "hooks": { "allowConversationAccess": true } })),
    };
    Configuration {
        files: vec![
            own(MANIFEST_PLACES, format!("{manifest:#}\n")),
            own(PACKAGE_PLACES, format!("{package:#}\n")),
            own(PLUGIN_PLACES, plugin),
            ConfigurationFile {
                places: SETTINGS_PLACES,
                content: ConfigurationContent::Json(vec![permission]),
            },
        ],
        remark: Some(
            "Restart the gateway of OpenClaw, and allow the plugin `quipu` where `plugins.allow` is set. Where the settings have a \
             `plugins.entries.quipu` of your own, add `\"hooks\": {\"allowConversationAccess\": true}` to it.",
        ),
    }
}
