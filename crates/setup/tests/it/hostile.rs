//! Files that must not be changed, or are changed by others.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use quipu_setup::{AgentState, Goal, LEDGER_FILE, Setup, SetupError};
use sha2::{Digest as _, Sha256};

use crate::user::User;

/// What another program does to a file.
type ForeignEdit = fn(&Path);

#[track_caller]
fn refused(user: &User, agent: &str, words: &[&str]) {
    let plan = user.plan(agent, Goal::Present);
    assert_eq!((plan.state(), plan.is_done()), (AgentState::Unusable, true));
    let problem = plan.problems[0].to_string();
    for word in words {
        assert!(problem.contains(word), "{problem}");
    }
    user.apply(agent, Goal::Present).unwrap();
}

#[test]
fn broken_settings_are_named_with_their_line() {
    let user = User::new(&[]);
    let texts = [
        ("claude-code", ".claude.json", "{\n  \"a\": 1\n  \"b\": 2\n}", "line 3"),
        ("claude-code", ".claude.json", "[]", "line 1"),
        ("gemini", ".gemini/settings.json", "{\n\"mcpServers\": []}", "`mcpServers`"),
        ("codex", ".codex/config.toml", "a = 1\nb = \n", "line 2"),
        ("codex", ".codex/config.toml", "mcp_servers = { a = {} }\n", "mcp_servers.quipu"),
    ];
    for (agent, file, text, words) in texts {
        user.write(file, text);
        refused(&user, agent, &[file, words]);
        assert_eq!(user.text(file), text);
    }
    std::fs::write(user.path(".claude.json"), b"{\"a\": \"\xff\"}").unwrap();
    refused(&user, "claude-code", &["UTF-8"]);
    std::fs::write(user.path(".claude.json"), vec![b' '; (16 << 20) + 1]).unwrap();
    refused(&user, "claude-code", &["16 MiB"]);
}

#[test]
fn files_that_are_not_the_users_own_are_refused() {
    let user = User::new(&[".claude"]);
    let path = user.path(".claude.json");
    let outside = user.elsewhere("outside.json");
    std::fs::write(&outside, "{}").unwrap();
    symlink(&outside, &path).unwrap();
    refused(&user, "claude-code", &["out of your home directory"]);
    std::fs::remove_file(&path).unwrap();
    symlink("nowhere", &path).unwrap();
    refused(&user, "claude-code", &["leads nowhere"]);
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    refused(&user, "claude-code", &["no regular file"]);
    std::fs::remove_dir(&path).unwrap();
    user.write(".claude.json", "{}");
    std::fs::hard_link(&path, user.path("other")).unwrap();
    refused(&user, "claude-code", &["hard link"]);
    std::fs::remove_file(user.path("other")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o400)).unwrap();
    refused(&user, "claude-code", &["read-only"]);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    if nix::unistd::geteuid().is_root() {
        std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
        refused(&user, "claude-code", &["another user (id 65534)"]);
    }
    assert_eq!(std::fs::read_to_string(&outside).unwrap(), "{}");
    // A directory that leads elsewhere is no better.
    std::fs::create_dir(user.elsewhere("dir")).unwrap();
    symlink(user.elsewhere("dir"), user.path(".codex")).unwrap();
    refused(&user, "codex", &["out of your home directory"]);
}

#[test]
fn change_between_diff_and_write_is_refused() {
    let user = User::new(&[".claude"]);
    let edits: [(&str, ForeignEdit); 3] = [
        ("{}", |path| std::fs::write(path, "{ }").unwrap()),
        ("{}", |path| std::fs::remove_file(path).unwrap()),
        ("", |path| std::fs::write(path, "{}").unwrap()),
    ];
    for (before, edit) in edits {
        let path = user.path(".claude.json");
        match before {
            "" => drop(std::fs::remove_file(&path)),
            text => drop(user.write(".claude.json", text)),
        }
        user.with("claude-code", |context, agent| {
            let mut setup = Setup::lock(&user.home()).unwrap();
            let plan = setup.plan(context, agent, Goal::Present);
            edit(&path);
            let now = std::fs::read(&path).ok();
            let error = setup.apply(&plan, Goal::Present).unwrap_err();
            assert!(matches!(error, SetupError::Concurrent { .. }), "{error}");
            assert_eq!(std::fs::read(&path).ok(), now);
        });
        assert!(!user.home().join(LEDGER_FILE).exists());
    }
}

#[test]
fn failed_write_leaves_file_and_ledger() {
    let user = User::new(&[".codex"]);
    user.write(".codex/config.toml", "a = 1\n");
    // Nothing can be made in the place of the backups.
    user.write(".quipu/setup-backups", "");
    let error = user.apply("codex", Goal::Present).unwrap_err();
    assert!(matches!(error, SetupError::Io { .. }), "{error}");
    assert_eq!(user.text(".codex/config.toml"), "a = 1\n");
    assert!(!user.home().join(LEDGER_FILE).exists());
}

#[test]
fn ledger_of_others_moves_no_foreign_bytes() {
    let user = User::new(&[".claude"]);
    let key = user.write(".ssh/config", "Host *\n");
    user.write(".claude.json", "{}\n");
    user.apply("claude-code", Goal::Present).unwrap();
    let path = user.home().join(LEDGER_FILE);
    let ledger = std::fs::read_to_string(&path).unwrap();
    let text = user.text(".claude.json");
    // Another file, by its hash.
    let sha256: String = Sha256::digest("Host *\n").iter().map(|byte| format!("{byte:02x}")).collect();
    let foreign = format!(
        r#"{{"version":1,"files":[{{"agent":"claude-code","path":{key:?},"created":true,"directories":["/"],"containers":[],"pieces":[{{"program":"x","content":{{"file":{{"sha256":"{sha256}"}}}}}}]}}]}}"#
    );
    std::fs::write(&path, foreign).unwrap();
    user.apply("claude-code", Goal::Absent).unwrap();
    assert_eq!(std::fs::read_to_string(&key).unwrap(), "Host *\n");
    // Texts that would be put back.
    user.write(".claude.json", &text);
    std::fs::write(
        &path,
        ledger.replace(
            "\"containers\": []",
            r#""containers":[{"path":[],"origin":{"blank":{"text":"evil"}}}]"#,
        ),
    )
    .unwrap();
    user.apply("claude-code", Goal::Absent).unwrap();
    assert!(!user.text(".claude.json").contains("evil"));
    for bad in ["{", "{\"version\":2,\"files\":[]}"] {
        std::fs::write(&path, bad).unwrap();
        assert!(matches!(Setup::read(&user.home()), Err(SetupError::Ledger { .. })));
    }
}
