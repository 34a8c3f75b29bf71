//! Copilot CLI: a file of its own in its directory of hooks, with the names of events that make its payloads those of Claude
//! Code.

use std::path::Path;

use serde_json::{Value, json};

use crate::claude_code::transcript_path;
use crate::configuration::{
    Configuration, ConfigurationContent, ConfigurationFile, ConfigurationPlace, command,
};
use crate::hook_call::{CommandFailure, FailureSign, Occasion, edit, edit_target, exit_code_of, text};
use crate::host::{Host, SessionStorage};

const NAME: &str = "copilot";

const PLACES: &[ConfigurationPlace] = &[
    ConfigurationPlace { variable: "COPILOT_HOME", path: "hooks/quipu.json" },
    ConfigurationPlace { variable: "HOME", path: ".copilot/hooks/quipu.json" },
];

const EVENTS: [&str; 7] = [
    "SessionStart",
    "UserPromptSubmit",
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "Stop",
    "SessionEnd",
];

pub(crate) const HOST: Host = Host {
    name: NAME,
    agent: "copilot-cli",
    occasion,
    storage: SessionStorage::Files,
    transcript: transcript_path,
    answer: |_, text| json!({ "additionalContext": text }).to_string(),
    configuration,
};

fn occasion(event: &str, payload: &Value) -> Occasion {
    let tool = text(payload, &["tool_name"]).unwrap_or_default();
    let input = payload.get("tool_input").unwrap_or(&Value::Null);
    match event {
        "SessionStart" if text(payload, &["source"]).is_some_and(|source| source == "resume") => {
            Occasion::None
        }
        "SessionStart" => Occasion::Start,
        "UserPromptSubmit" => text(payload, &["prompt"]).map_or(Occasion::None, Occasion::Prompt),
        "PreToolUse" if tool == "Edit" || tool == "Write" || tool == "MultiEdit" => {
            edit(edit_target(input, "path", "old_str"))
        }
        "PreToolUse" => {
            let names = ["patch", "input", "command"];
            let patch = names.iter().find_map(|name| text(input, &[name]));
            edit(patch.map(|patch| crate::hook_call::patched(&patch)).unwrap_or_default())
        }
        "PostToolUse" | "PostToolUseFailure" if tool == "Bash" => {
            let output = text(payload, &["tool_result", "text_result_for_llm"])
                .filter(|output| exit_code_of(output).is_some_and(|code| code != 0))
                .or_else(|| text(payload, &["error"]));
            match (text(input, &["command"]), output) {
                (Some(command), Some(output)) => {
                    Occasion::Failure(CommandFailure { command, output, sign: FailureSign::Reported })
                }
                _ => Occasion::None,
            }
        }
        "Stop" | "SessionEnd" => Occasion::TurnEnd,
        _ => Occasion::None,
    }
}

fn configuration(program: &Path) -> Configuration {
    let hook =
        |event: &&str| json!([{ "type": "command", "bash": command(program, NAME, event), "timeoutSec": 5 }]);
    let hooks: serde_json::Map<String, Value> =
        EVENTS.iter().map(|event| ((*event).to_owned(), hook(event))).collect();
    let file = json!({ "version": 1, "hooks": hooks });
    let content = ConfigurationContent::Own(format!("{file:#}\n"));
    Configuration { files: vec![ConfigurationFile { places: PLACES, content }], remark: None }
}
