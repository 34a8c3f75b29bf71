//! From the first setup to the last trace.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use quipu_setup::{AgentState, BACKUP_DIRECTORY, Goal, LEDGER_FILE, PieceState, Setup, SetupError};

use crate::user::User;

const AGENTS: [(&str, &str); 6] = [
    ("claude-code", ".claude.json"),
    ("codex", ".codex/config.toml"),
    ("gemini", ".gemini/settings.json"),
    ("copilot", ".copilot/mcp-config.json"),
    ("opencode", ".config/opencode/opencode.jsonc"),
    ("openclaw", ".openclaw/openclaw.json"),
];

#[test]
fn each_agent_is_set_up_and_leaves_no_trace() {
    let user = User::new(&[".claude", ".codex"]);
    let before = user.tree();
    for (agent, file) in AGENTS {
        assert_eq!(user.plan(agent, Goal::Present).state(), AgentState::Absent, "{agent}");
        user.apply(agent, Goal::Present).unwrap();
        let text = user.text(file);
        assert!(
            text.contains("quipu") && text.contains("serve") && text.contains("the \\\"q\\\"/quipu"),
            "{text}"
        );
        assert_eq!(user.path(file).metadata().unwrap().mode() & 0o777, 0o600);
        // The second time there is nothing to do.
        let again = user.apply(agent, Goal::Present).unwrap();
        assert_eq!((again.state(), again.is_done()), (AgentState::Complete, true), "{agent}");
        assert_eq!(user.text(file), text);
    }
    let ledger = user.home().join(LEDGER_FILE);
    assert_eq!(ledger.metadata().unwrap().mode() & 0o777, 0o600);
    for (agent, _) in AGENTS {
        user.apply(agent, Goal::Absent).unwrap();
        assert_eq!(user.plan(agent, Goal::Present).state(), AgentState::Absent);
    }
    assert_eq!(user.tree(), before);
    assert!(!ledger.exists());
}

#[test]
fn settings_keep_their_bytes_mode_and_backup() {
    let user = User::new(&[]);
    let texts = [
        ("claude-code", ".claude.json", "\u{feff}{\r\n\t\"theme\": \"dark\",\r\n\t\"mcpServers\": {}\r\n}"),
        ("codex", ".codex/config.toml", "# mine\nmodel = 'm'\n\n[tui] # t\ntheme = \"x\""),
        ("opencode", ".config/opencode/opencode.json", "{\"mcp\":{\"a\":{\"type\":\"local\"}}}"),
        ("openclaw", ".openclaw/openclaw.json", "{\n  // JSON5\n  agents: { 'main': {}, },\n}\n"),
    ];
    for (agent, file, text) in texts {
        let path = user.write(file, text);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let plan = user.apply(agent, Goal::Present).unwrap();
        assert_eq!(plan.changes[0].before(), Some(text));
        assert_ne!(user.text(file), text);
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o640);
        let backups = std::fs::read_dir(user.home().join(BACKUP_DIRECTORY)).unwrap();
        let kept = backups.flatten().any(|entry| {
            entry.metadata().unwrap().mode() & 0o777 == 0o600
                && std::fs::read(entry.path()).unwrap() == text.as_bytes()
        });
        assert!(kept, "{agent}");
        user.apply(agent, Goal::Absent).unwrap();
        assert_eq!(user.text(file), text, "{agent}");
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o640);
    }
}

#[test]
fn piece_that_the_user_changed_is_left_alone() {
    let user = User::new(&[".claude"]);
    user.apply("claude-code", Goal::Present).unwrap();
    let text = user.text(".claude.json").replace("\"serve\"", "\"serve\", \"--mine\"");
    user.write(".claude.json", &text);
    for goal in [Goal::Present, Goal::Absent, Goal::Present] {
        let plan = user.apply("claude-code", goal).unwrap();
        assert_eq!((plan.state(), plan.is_done()), (AgentState::Changed, true));
        assert_eq!(user.text(".claude.json"), text);
    }
    // Made what it was again, it goes with all that was made for it.
    user.apply("claude-code", Goal::Absent).unwrap();
    user.write(".claude.json", &text.replace(", \"--mine\"", ""));
    user.apply("claude-code", Goal::Absent).unwrap();
    assert!(!user.path(".claude.json").exists() && !user.home().join(LEDGER_FILE).exists());
    // So is a comment in it.
    for (agent, file, entry) in
        [("claude-code", ".claude.json", "\"serve\""), ("codex", ".codex/config.toml", "\"serve\"]")]
    {
        let comment = if agent == "codex" { " # mine" } else { " // mine" };
        user.apply(agent, Goal::Present).unwrap();
        let text = user.text(file).replace(entry, &format!("{entry}{comment}"));
        user.write(file, &text);
        for goal in [Goal::Present, Goal::Absent] {
            let plan = user.apply(agent, goal).unwrap();
            assert_eq!((plan.state(), plan.is_done()), (AgentState::Changed, true), "{text}");
        }
    }
    // One that was there before is the user's.
    user.write(".gemini/settings.json", "{\"mcpServers\": {\"quipu\": {\"command\": \"quipu\"}}}");
    let plan = user.apply("gemini", Goal::Absent).unwrap();
    assert_eq!((plan.pieces[0].state.clone(), plan.is_done()), (PieceState::Changed, true));
}

#[test]
fn program_that_moved_is_named_anew() {
    let mut user = User::new(&[]);
    user.write(".codex/config.toml", "a = 1\n");
    user.write(".claude.json", "{\n  \"a\": 1\n}\n");
    let mut first = Vec::new();
    for (agent, file) in [("codex", ".codex/config.toml"), ("claude-code", ".claude.json")] {
        user.apply(agent, Goal::Present).unwrap();
        let behind = if agent == "codex" { "\n[tui]\nb = 2\n" } else { "// end\n" };
        first.push((agent, file, user.text(file) + behind, behind));
        user.write(file, &first[first.len() - 1].2);
    }
    user.program = "/new/quipu".to_owned();
    for (agent, file) in [("codex", ".codex/config.toml"), ("claude-code", ".claude.json")] {
        let plan = user.plan(agent, Goal::Present);
        assert_eq!(plan.state(), AgentState::Outdated);
        assert_eq!(plan.pieces[0].old_program.as_deref(), Some("/opt/the \"q\"/quipu"));
        user.apply(agent, Goal::Present).unwrap();
        let text = user.text(file);
        assert!(text.contains("/new/quipu") && !text.contains("/opt/the"), "{text}");
    }
    // Back at its place: the same bytes.
    user.program = "/opt/the \"q\"/quipu".to_owned();
    for (agent, file, text, behind) in first {
        user.apply(agent, Goal::Present).unwrap();
        assert_eq!(user.text(file), text);
        user.apply(agent, Goal::Absent).unwrap();
        let before = if agent == "codex" { "a = 1\n" } else { "{\n  \"a\": 1\n}\n" };
        assert_eq!(user.text(file), format!("{before}{behind}"));
    }
}

#[test]
fn created_file_with_entries_of_the_user_stays() {
    let user = User::new(&[]);
    user.apply("gemini", Goal::Present).unwrap();
    let text = user.text(".gemini/settings.json").replacen('{', "{\n  \"mine\": true,", 1);
    user.write(".gemini/settings.json", &text);
    user.write(".gemini/other.json", "{}");
    user.apply("gemini", Goal::Absent).unwrap();
    assert_eq!(user.text(".gemini/settings.json"), "{\n  \"mine\": true\n}\n");
    user.apply("copilot", Goal::Present).unwrap();
    user.write(".copilot/state.json", "{}");
    user.apply("copilot", Goal::Absent).unwrap();
    assert!(!user.path(".copilot/mcp-config.json").exists() && user.path(".copilot/state.json").exists());
}

#[test]
fn file_that_the_user_wrote_anew_stays_as_written() {
    for mine in ["{\n  \"mcpServers\": {\n  }\n}\n", "{\n}\n", ""] {
        let user = User::new(&[".claude"]);
        user.apply("claude-code", Goal::Present).unwrap();
        user.write(".claude.json", mine);
        user.apply("claude-code", Goal::Present).unwrap();
        assert_ne!(user.text(".claude.json"), mine);
        user.apply("claude-code", Goal::Absent).unwrap();
        assert_eq!(user.text(".claude.json"), mine);
    }
}

#[test]
fn file_without_ledger_is_recognized_by_content() {
    let mut user = User::new(&[".claude"]);
    let text = "{\n  \"mcpServers\": {\n    \"a\": {}\n  }\n}\n";
    user.write(".claude.json", text);
    user.apply("claude-code", Goal::Present).unwrap();
    std::fs::remove_file(user.home().join(LEDGER_FILE)).unwrap();
    assert_eq!(user.plan("claude-code", Goal::Present).state(), AgentState::Complete);
    // Also when the program is elsewhere now.
    user.program = "/new/quipu".to_owned();
    let plan = user.plan("claude-code", Goal::Present);
    assert_eq!(plan.state(), AgentState::Outdated);
    assert_eq!(plan.pieces[0].old_program.as_deref(), Some("/opt/the \"q\"/quipu"));
    user.apply("claude-code", Goal::Absent).unwrap();
    assert_eq!(user.text(".claude.json"), text);
    // Hooks in a list, and a file of its own.
    user.program = "/old/quipu".to_owned();
    let (list, own) = ("{\n  \"hooks\": {\n    \"Stop\": [\n      1\n    ]\n  }\n}\n", "call /old/quipu\n");
    let hooks = user.write(".claude/settings.json", list);
    user.hooks = vec![hooks, user.path(".claude/own.txt")];
    user.apply("claude-code", Goal::Present).unwrap();
    assert_eq!(user.text(".claude/own.txt"), own);
    std::fs::remove_file(user.home().join(LEDGER_FILE)).unwrap();
    user.program = "/new/quipu".to_owned();
    assert_eq!(user.plan("claude-code", Goal::Present).state(), AgentState::Outdated);
    user.apply("claude-code", Goal::Present).unwrap();
    assert!(!user.text(".claude/settings.json").contains("/old"));
    std::fs::remove_file(user.home().join(LEDGER_FILE)).unwrap();
    user.apply("claude-code", Goal::Absent).unwrap();
    assert_eq!(user.text(".claude/settings.json"), list);
    assert!(!user.path(".claude/own.txt").exists());
}

#[test]
fn hook_of_the_user_beside_ours_is_no_call() {
    let mut user = User::new(&[".claude"]);
    let text = "{\n  \"hooks\": {\n    \"Stop\": [\n      \"/home/quipu/claude-code/x.sh\"\n    ]\n  }\n}\n";
    user.hooks = vec![user.write(".claude/settings.json", text)];
    let plan = user.apply("claude-code", Goal::Present).unwrap();
    assert_eq!(plan.pieces[1].state, PieceState::Missing);
    assert!(user.text(".claude/settings.json").contains("hook claude-code Stop"));
    user.apply("claude-code", Goal::Absent).unwrap();
    assert_eq!(user.text(".claude/settings.json"), text);
}

#[test]
fn file_that_setup_made_keeps_no_blank_line_before_others() {
    let user = User::new(&[".codex"]);
    user.apply("codex", Goal::Present).unwrap();
    let mine = "[projects.\"/p\"]\ntrust_level = \"trusted\"\n";
    user.write(".codex/config.toml", &format!("{}\n{mine}", user.text(".codex/config.toml")));
    user.apply("codex", Goal::Absent).unwrap();
    assert_eq!(user.text(".codex/config.toml"), mine);
}

#[test]
fn leftovers_of_a_killed_setup_are_removed() {
    let user = User::new(&[".codex"]);
    user.apply("codex", Goal::Present).unwrap();
    user.apply("copilot", Goal::Present).unwrap();
    let left = [".quipu", ".quipu/setup-backups", ".codex", ".copilot"];
    let left = left.map(|directory| user.write(&format!("{directory}/.quipu-setup-aB3xY9"), "half"));
    let other = user.write(".codex/.quipu-setup-of-mine", "mine");
    drop(Setup::lock(&user.home()).unwrap());
    assert!(left.iter().all(|path| !path.exists()) && other.exists());
}

#[test]
fn link_of_a_dotfile_manager_is_written_through() {
    let user = User::new(&[".claude"]);
    let target = user.write("dotfiles/claude.json", "{}\n");
    symlink(&target, user.path(".claude.json")).unwrap();
    let plan = user.apply("claude-code", Goal::Present).unwrap();
    assert_eq!(plan.changes[0].target(), target);
    assert!(user.path(".claude.json").symlink_metadata().unwrap().is_symlink());
    assert!(user.text("dotfiles/claude.json").contains("serve"));
    user.apply("claude-code", Goal::Absent).unwrap();
    assert_eq!(user.text("dotfiles/claude.json"), "{}\n");
}

#[test]
fn directories_of_the_environment_count() {
    let mut user = User::new(&[]);
    let config = user.elsewhere("config");
    std::fs::create_dir_all(&config).unwrap();
    user.variables = vec![("CODEX_HOME", config.clone()), ("XDG_CONFIG_HOME", config.clone())];
    assert!(user.with("codex", |_, agent| agent.is_found()));
    assert!(!user.with("opencode", |_, agent| agent.is_found()));
    user.apply("codex", Goal::Present).unwrap();
    assert!(config.join("config.toml").exists());
    user.apply("opencode", Goal::Present).unwrap();
    // Another file of the same agent does not hide where ours is.
    std::fs::rename(config.join("opencode/opencode.jsonc"), config.join("opencode/opencode.json")).unwrap();
    user.apply("opencode", Goal::Absent).unwrap();
    user.apply("codex", Goal::Absent).unwrap();
    assert!(!config.join("config.toml").exists());
}

#[test]
fn second_setup_waits_for_none() {
    let user = User::new(&[]);
    let first = Setup::lock(&user.home()).unwrap();
    assert!(matches!(Setup::lock(&user.home()), Err(SetupError::Busy { .. })));
    drop(first);
    assert!(Setup::lock(&user.home()).is_ok());
}
