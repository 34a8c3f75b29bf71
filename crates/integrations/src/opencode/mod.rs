//! OpenCode: a plugin of one file, which calls the hooks.

use std::path::Path;

use serde_json::{Value, json};

use crate::configuration::{
    Configuration, ConfigurationContent, ConfigurationFile, ConfigurationPlace, literal,
};
use crate::hook_call::{CommandFailure, FailureSign, Occasion, edit, edit_target, text};
use crate::host::{Host, SessionStorage};

const NAME: &str = "opencode";

const PLACES: &[ConfigurationPlace] = &[
    ConfigurationPlace { variable: "OPENCODE_CONFIG_DIR", path: "plugins/quipu.js" },
    ConfigurationPlace { variable: "XDG_CONFIG_HOME", path: "opencode/plugins/quipu.js" },
    ConfigurationPlace { variable: "HOME", path: ".config/opencode/plugins/quipu.js" },
];

const PLUGIN: &str = include_str!("plugin.js");

pub(crate) const HOST: Host = Host {
    name: NAME,
    agent: NAME,
    occasion,
    storage: SessionStorage::Database,
    // One database holds all sessions.
    transcript: |_| None,
    answer: |_, text| json!({ "text": text }).to_string(),
    configuration,
};

fn occasion(event: &str, payload: &Value) -> Occasion {
    match event {
        "experimental.chat.system.transform" => Occasion::Start,
        "chat.message" => text(payload, &["prompt"]).map_or(Occasion::None, Occasion::Prompt),
        "tool.execute.after" => match text(payload, &["tool"]).unwrap_or_default().as_str() {
            "read" => {
                let input = payload.get("args").unwrap_or(&Value::Null);
                edit(edit_target(input, "filePath", "oldString"))
            }
            "bash" if payload.get("exit").and_then(Value::as_i64).is_some_and(|code| code != 0) => {
                match (text(payload, &["args", "command"]), text(payload, &["output"])) {
                    (Some(command), Some(output)) => {
                        Occasion::Failure(CommandFailure { command, output, sign: FailureSign::Reported })
                    }
                    _ => Occasion::None,
                }
            }
            _ => Occasion::None,
        },
        "session.idle" => Occasion::TurnEnd,
        _ => Occasion::None,
    }
}

fn configuration(program: &Path) -> Configuration {
    let content =
        ConfigurationContent::Own(PLUGIN.replace("\"QUIPU\"", &literal(&program.to_string_lossy())));
    Configuration { files: vec![ConfigurationFile { places: PLACES, content }], remark: None }
}
