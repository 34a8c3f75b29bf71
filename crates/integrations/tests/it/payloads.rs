//! Payloads of real programs, shortened.

use std::path::PathBuf;

use quipu_integrations::{CommandFailure, EditTarget, FailureSign, Host, Occasion};
use serde_json::json;

fn edit(path: &str, old: Option<&str>) -> Occasion {
    Occasion::Edit(vec![EditTarget { path: path.into(), old: old.map(str::to_owned) }])
}

fn failure(output: &str, sign: FailureSign) -> Occasion {
    Occasion::Failure(CommandFailure { command: "make".into(), output: output.into(), sign })
}

#[test]
fn payloads_of_each_host_are_understood() {
    use FailureSign::{Guessed, Reported};
    let prompt = Occasion::Prompt("Fix the paint".into());
    let cases = [
        ("claude-code", "SessionStart", json!({ "source": "startup" }), Occasion::Start),
        ("claude-code", "SessionStart", json!({ "source": "resume" }), Occasion::None),
        ("claude-code", "SessionStart", json!({ "source": "of tomorrow" }), Occasion::Start),
        ("claude-code", "UserPromptSubmit", json!({ "prompt": "Fix the paint" }), prompt.clone()),
        (
            "claude-code",
            "PreToolUse",
            json!({ "tool_name": "Edit", "tool_input": { "file_path": "/w/a", "old_string": "alpha", "new_string": "b" } }),
            edit("/w/a", Some("alpha")),
        ),
        (
            "claude-code",
            "PreToolUse",
            json!({ "tool_name": "MultiEdit", "tool_input": { "file_path": "/w/a", "edits": [{ "old_string": "alpha" }] } }),
            edit("/w/a", Some("alpha")),
        ),
        (
            "claude-code",
            "PreToolUse",
            json!({ "tool_name": "Read", "tool_input": { "file_path": "/w/a" } }),
            Occasion::None,
        ),
        (
            "claude-code",
            "PostToolUseFailure",
            json!({ "tool_name": "Bash", "tool_input": { "command": "make" }, "error": "Exit code 3\nboom" }),
            failure("Exit code 3\nboom", Reported),
        ),
        ("claude-code", "Stop", json!({ "stop_hook_active": false }), Occasion::TurnEnd),
        ("codex", "UserPromptSubmit", json!({ "prompt": "Fix the paint" }), prompt.clone()),
        (
            "codex",
            "PreToolUse",
            json!({ "tool_name": "Bash", "tool_input": { "command": "apply_patch <<'EOF'\n*** Begin Patch\n*** Update File: a.txt\n@@\n keep\n-alpha\n+beta\n@@\n-x\n*** Add File: b.txt\n+y\n*** End Patch\nEOF\n" } }),
            edit("a.txt", Some("keep\nalpha\n")),
        ),
        (
            "codex",
            "PreToolUse",
            json!({ "tool_name": "Bash", "tool_input": { "command": "make" } }),
            Occasion::None,
        ),
        (
            "codex",
            "PostToolUse",
            json!({ "tool_name": "Bash", "tool_input": { "command": "make" }, "tool_response": "boom\n" }),
            failure("boom\n", Guessed),
        ),
        ("gemini", "BeforeAgent", json!({ "prompt": "Fix the paint" }), prompt.clone()),
        (
            "gemini",
            "AfterTool",
            json!({ "tool_name": "read_file", "tool_input": { "file_path": "/w/a" }, "tool_response": { "llmContent": "alpha\n" } }),
            edit("/w/a", None),
        ),
        (
            "gemini",
            "AfterTool",
            json!({ "tool_name": "run_shell_command", "tool_input": { "command": "make" }, "tool_response": { "llmContent": "Output: boom\nExit Code: 3\nProcess Group PGID: 30773" } }),
            failure("boom\nExit Code: 3\nProcess Group PGID: 30773", Reported),
        ),
        (
            "gemini",
            "AfterTool",
            json!({ "tool_name": "run_shell_command", "tool_input": { "command": "make" }, "tool_response": { "llmContent": "Output: fine\nProcess Group PGID: 1" } }),
            Occasion::None,
        ),
        ("gemini", "AfterAgent", json!({}), Occasion::TurnEnd),
        (
            "copilot",
            "PreToolUse",
            json!({ "tool_name": "Edit", "tool_input": { "path": "/w/a", "old_str": "alpha", "new_str": "beta" } }),
            edit("/w/a", Some("alpha")),
        ),
        (
            "copilot",
            "PostToolUse",
            json!({ "tool_name": "Bash", "tool_input": { "command": "make" }, "tool_result": { "result_type": "success", "text_result_for_llm": "boom\n<shellId: 0 completed with exit code 3>" } }),
            failure("boom\n<shellId: 0 completed with exit code 3>", Reported),
        ),
        (
            "copilot",
            "PostToolUse",
            json!({ "tool_name": "Bash", "tool_input": { "command": "make" }, "tool_result": { "text_result_for_llm": "fine\n<shellId: 0 completed with exit code 0>" } }),
            Occasion::None,
        ),
        ("copilot", "Stop", json!({}), Occasion::TurnEnd),
        ("opencode", "chat.message", json!({ "prompt": "Fix the paint" }), prompt.clone()),
        (
            "opencode",
            "tool.execute.after",
            json!({ "tool": "read", "args": { "filePath": "/w/a" } }),
            edit("/w/a", None),
        ),
        (
            "opencode",
            "tool.execute.after",
            json!({ "tool": "bash", "args": { "command": "make" }, "exit": 3, "output": "boom\n" }),
            failure("boom\n", Reported),
        ),
        ("opencode", "session.idle", json!({}), Occasion::TurnEnd),
        ("openclaw", "before_prompt_build", json!({ "prompt": "Fix the paint" }), prompt),
        ("openclaw", "agent_end", json!({}), Occasion::TurnEnd),
    ];
    for (name, event, payload, occasion) in cases {
        let host = Host::named(name).unwrap();
        assert_eq!(host.call(event, &payload, &|_| None).occasion, occasion, "{name} {event} {payload}");
    }
}

#[test]
fn directory_of_a_session_stays_where_the_host_says_so() {
    let payload = json!({ "cwd": "/w/sub" });
    let directory = |name: &str, project: &str| {
        let variable = |name: &str| (name == "CLAUDE_PROJECT_DIR").then(|| PathBuf::from(project));
        Host::named(name).unwrap().call("SessionStart", &payload, &variable).directory
    };
    // The model went into `sub`.
    assert_eq!(directory("claude-code", "/w"), Some(PathBuf::from("/w")));
    assert_eq!(directory("claude-code", ""), Some(PathBuf::from("/w/sub")));
    assert_eq!(directory("codex", "/w"), Some(PathBuf::from("/w/sub")));
}

#[test]
fn payload_of_another_kind_is_nothing() {
    for name in ["claude-code", "codex", "gemini", "copilot", "opencode", "openclaw"] {
        let host = Host::named(name).unwrap();
        for payload in
            [json!(null), json!(7), json!([{}]), json!({ "prompt": [], "tool_input": 7, "cwd": {} })]
        {
            for event in
                ["UserPromptSubmit", "PreToolUse", "PostToolUse", "AfterTool", "tool.execute.after", "", "x"]
            {
                let call = host.call(event, &payload, &|_| None);
                assert_eq!(
                    (call.occasion, call.directory),
                    (Occasion::None, None),
                    "{name} {event} {payload}"
                );
            }
        }
    }
}
