//! Gemini CLI: hooks in `settings.json`. Before a tool runs, nothing can be told to the model; so what is known of a file is
//! told when it was read.

use std::path::Path;

use serde_json::Value;

use crate::claude_code::{additional_context, transcript_path};
use crate::configuration::{
    Configuration, ConfigurationContent, ConfigurationFile, ConfigurationPlace, grouped_hooks,
};
use crate::hook_call::{CommandFailure, FailureSign, Occasion, edit, edit_target, exit_code_of, text};
use crate::host::{Host, SessionStorage};

const NAME: &str = "gemini";

const PLACES: &[ConfigurationPlace] = &[
    ConfigurationPlace { variable: "GEMINI_CLI_HOME", path: ".gemini/settings.json" },
    ConfigurationPlace { variable: "HOME", path: ".gemini/settings.json" },
];

const EVENTS: &[(&str, Option<&str>)] = &[
    ("SessionStart", None),
    ("BeforeAgent", None),
    ("AfterTool", Some("read_file|run_shell_command")),
    ("AfterAgent", None),
    ("SessionEnd", None),
];

pub(crate) const HOST: Host = Host {
    name: NAME,
    agent: "gemini-cli",
    occasion,
    storage: SessionStorage::Files,
    transcript: transcript_path,
    answer: additional_context,
    configuration,
};

fn occasion(event: &str, payload: &Value) -> Occasion {
    match event {
        "SessionStart" if text(payload, &["source"]).is_some_and(|source| source == "resume") => {
            Occasion::None
        }
        "SessionStart" => Occasion::Start,
        "BeforeAgent" => text(payload, &["prompt"]).map_or(Occasion::None, Occasion::Prompt),
        "AfterTool" => match text(payload, &["tool_name"]).unwrap_or_default().as_str() {
            "read_file" => {
                let input = payload.get("tool_input").unwrap_or(&Value::Null);
                edit(edit_target(input, "file_path", "old_string"))
            }
            "run_shell_command" => {
                let output = text(payload, &["tool_response", "llmContent"]);
                match (text(payload, &["tool_input", "command"]), output) {
                    (Some(command), Some(output)) if exit_code_of(&output).is_some_and(|code| code != 0) => {
                        // What the program says of the command stands around what that printed.
                        let printed = output.split_once("Output: ").map(|(_, printed)| printed.to_owned());
                        let output = printed.unwrap_or(output);
                        Occasion::Failure(CommandFailure { command, output, sign: FailureSign::Reported })
                    }
                    _ => Occasion::None,
                }
            }
            _ => Occasion::None,
        },
        "AfterAgent" | "SessionEnd" => Occasion::TurnEnd,
        _ => Occasion::None,
    }
}

fn configuration(program: &Path) -> Configuration {
    let content = ConfigurationContent::Json(grouped_hooks(program, NAME, EVENTS, 5_000));
    Configuration { files: vec![ConfigurationFile { places: PLACES, content }], remark: None }
}
