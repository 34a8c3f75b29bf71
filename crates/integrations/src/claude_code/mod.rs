//! Claude Code: hooks in `settings.json`, with `additionalContext` as the answer.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::configuration::{
    Configuration, ConfigurationContent, ConfigurationFile, ConfigurationPlace, grouped_hooks,
};
use crate::hook_call::{CommandFailure, EditTarget, FailureSign, Occasion, edit, edit_target, text};
use crate::host::{Host, SessionStorage};

const NAME: &str = "claude-code";

const PLACES: &[ConfigurationPlace] = &[
    ConfigurationPlace { variable: "CLAUDE_CONFIG_DIR", path: "settings.json" },
    ConfigurationPlace { variable: "HOME", path: ".claude/settings.json" },
];

/// Events and the tools that they are wanted of.
const EVENTS: &[(&str, Option<&str>)] = &[
    ("SessionStart", None),
    ("UserPromptSubmit", None),
    ("PreToolUse", Some("Edit|MultiEdit|Write|NotebookEdit")),
    ("PostToolUseFailure", Some("Bash")),
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

/// The file of the session, where a payload names it.
pub(crate) fn transcript_path(payload: &Value) -> Option<PathBuf> {
    text(payload, &["transcript_path"]).map(PathBuf::from)
}

/// Text beside what the model reads.
pub(crate) fn additional_context(event: &str, text: &str) -> String {
    json!({ "hookSpecificOutput": { "hookEventName": event, "additionalContext": text } }).to_string()
}

fn occasion(event: &str, payload: &Value) -> Occasion {
    match event {
        // What was given before stands in a session that is resumed.
        "SessionStart" if text(payload, &["source"]).is_some_and(|source| source == "resume") => {
            Occasion::None
        }
        "SessionStart" => Occasion::Start,
        "UserPromptSubmit" => text(payload, &["prompt"]).map_or(Occasion::None, Occasion::Prompt),
        "PreToolUse" => {
            let Some(input) = payload.get("tool_input") else { return Occasion::None };
            let targets = match text(payload, &["tool_name"]).unwrap_or_default().as_str() {
                "Edit" | "Write" => edit_target(input, "file_path", "old_string"),
                "NotebookEdit" => edit_target(input, "notebook_path", "old_string"),
                "MultiEdit" => several(input),
                _ => Vec::new(),
            };
            edit(targets)
        }
        "PostToolUseFailure" => {
            let command = text(payload, &["tool_input", "command"]);
            match (command, text(payload, &["error"])) {
                (Some(command), Some(output)) => {
                    Occasion::Failure(CommandFailure { command, output, sign: FailureSign::Reported })
                }
                _ => Occasion::None,
            }
        }
        "Stop" | "SessionEnd" | "StopFailure" => Occasion::TurnEnd,
        _ => Occasion::None,
    }
}

/// The first of several replacements in one file.
fn several(input: &Value) -> Vec<EditTarget> {
    let Some(path) = text(input, &["file_path"]) else { return Vec::new() };
    let first = input.get("edits").and_then(Value::as_array).and_then(|edits| edits.first());
    vec![EditTarget { path: PathBuf::from(path), old: first.and_then(|one| text(one, &["old_string"])) }]
}

fn configuration(program: &Path) -> Configuration {
    let additions = grouped_hooks(program, NAME, EVENTS, 5);
    let content = ConfigurationContent::Json(additions);
    Configuration { files: vec![ConfigurationFile { places: PLACES, content }], remark: None }
}
