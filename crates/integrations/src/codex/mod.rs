//! Codex: hooks in `hooks.json`, in the form of Claude Code. What a command returned is not told, only what it printed.

use std::path::Path;

use serde_json::Value;

use crate::claude_code::{additional_context, transcript_path};
use crate::configuration::{
    Configuration, ConfigurationContent, ConfigurationFile, ConfigurationPlace, grouped_hooks,
};
use crate::hook_call::{CommandFailure, FailureSign, Occasion, edit, edit_target, patched, text};
use crate::host::{Host, SessionStorage};

const NAME: &str = "codex";

const PLACES: &[ConfigurationPlace] = &[
    ConfigurationPlace { variable: "CODEX_HOME", path: "hooks.json" },
    ConfigurationPlace { variable: "HOME", path: ".codex/hooks.json" },
];

/// A patch may be an argument of a command.
const EVENTS: &[(&str, Option<&str>)] = &[
    ("SessionStart", None),
    ("UserPromptSubmit", None),
    ("PreToolUse", Some("apply_patch|Edit|Write|Bash")),
    ("PostToolUse", Some("Bash")),
    ("Stop", None),
    ("SessionEnd", None),
];

pub(crate) const HOST: Host = Host {
    name: NAME,
    agent: NAME,
    occasion,
    storage: SessionStorage::Files,
    transcript: transcript_path,
    answer: additional_context,
    configuration,
};

fn occasion(event: &str, payload: &Value) -> Occasion {
    let tool = text(payload, &["tool_name"]).unwrap_or_default();
    let command = || {
        let names = ["command", "input", "patch"];
        names.iter().find_map(|name| text(payload, &["tool_input", name]))
    };
    match event {
        "SessionStart" if text(payload, &["source"]).is_some_and(|source| source == "resume") => {
            Occasion::None
        }
        "SessionStart" => Occasion::Start,
        "UserPromptSubmit" => text(payload, &["prompt"]).map_or(Occasion::None, Occasion::Prompt),
        "PreToolUse" if tool == "Edit" || tool == "Write" => {
            let input = payload.get("tool_input").unwrap_or(&Value::Null);
            let named = edit_target(input, "file_path", "old_string");
            edit(if named.is_empty() {
                command().map(|text| patched(&text)).unwrap_or_default()
            } else {
                named
            })
        }
        "PreToolUse" => edit(command().map(|text| patched(&text)).unwrap_or_default()),
        "PostToolUse" if tool == "Bash" => {
            let output = text(payload, &["tool_response"])
                .or_else(|| text(payload, &["tool_response", "output"]))
                .filter(|output| !output.trim().is_empty());
            match (command(), output) {
                (Some(command), Some(output)) => {
                    Occasion::Failure(CommandFailure { command, output, sign: FailureSign::Guessed })
                }
                _ => Occasion::None,
            }
        }
        "Stop" | "SessionEnd" => Occasion::TurnEnd,
        _ => Occasion::None,
    }
}

fn configuration(program: &Path) -> Configuration {
    let content = ConfigurationContent::Json(grouped_hooks(program, NAME, EVENTS, 5));
    Configuration {
        files: vec![ConfigurationFile { places: PLACES, content }],
        remark: Some("Codex runs new hooks after you trust them: start it and open /hooks once."),
    }
}
